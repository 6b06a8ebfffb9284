#include <bide/core/spin.hpp>
#include <support/platforms.hpp>
#include <support/stress.hpp>
#include <support/test.hpp>

namespace {

using native = bide::native_platform;

// Each test case has a platform of its own, because a thread keeps a history for each platform.
template <class Tag> struct fresh : native {};

template <class Tag> struct modelled : native {
    static constexpr bool model = true;
};

template <class Tag> struct single : native {
    static bool single_cpu() noexcept { return true; }
};

// Each read of the clock advances it by a fixed step. Each pause is counted.
template <class Tag> struct stepping : native {
    inline static std::int64_t time = 0;
    inline static std::int64_t step = 1;
    inline static int pauses = 0;
    static std::int64_t now() noexcept { return time += step; }
    static void pause() noexcept { ++pauses; }
    static bool single_cpu() noexcept { return false; }
};

// Returns how often a spin that fails calls done().
template <class Platform> int questions_of_a_failure() {
    int asked = 0;
    const bool seen = bide::basic_spin<Platform>::until([&]() noexcept {
        ++asked;
        return false;
    });
    return seen ? -1 : asked;
}

} // namespace

TEST_CASE("spin: if done() is true already, it is called once") {
    struct tag {};
    int asked = 0;
    CHECK(bide::basic_spin<fresh<tag>>::until([&]() noexcept { return ++asked == 1; }));
    CHECK(asked == 1);
}

TEST_CASE("spin: a change during the spin is seen") {
    struct tag {};
    int asked = 0;
    CHECK(bide::basic_spin<stepping<tag>>::until([&]() noexcept { return ++asked == 20; }));
    CHECK(asked == 20);
    CHECK(stepping<tag>::pauses == 19);
}

TEST_CASE("spin: a spin that fails ends when its budget is spent, not before") {
    struct tag {};
    using platform = stepping<tag>;
    platform::step = 100;
    const std::int64_t before = platform::time;
    CHECK(questions_of_a_failure<platform>() > 1);
    const std::int64_t took = platform::time - before;
    CHECK(took >= bide::basic_spin<platform>::budget_ns());
    CHECK(took <= bide::basic_spin<platform>::budget_ns() + 500);
}

TEST_CASE("spin: after repeated failures more and more spins are skipped, but never all") {
    struct tag {};
    using platform = stepping<tag>;
    platform::step = 1'000;
    int early = 0;
    int late = 0;
    for (int i = 0; i < 64; ++i) {
        early += questions_of_a_failure<platform>() > 1 ? 1 : 0;
    }
    for (int i = 0; i < 4'096; ++i) {
        late += questions_of_a_failure<platform>() > 1 ? 1 : 0;
    }
    CHECK(early >= 3);
    CHECK(early <= 32);
    CHECK(late >= 1);
    CHECK(late <= 4'096 / 64);
}

TEST_CASE("spin: a spin that succeeds resets the count of failures") {
    struct tag {};
    using platform = stepping<tag>;
    platform::step = 1'000;
    for (int i = 0; i < 64; ++i) {
        questions_of_a_failure<platform>();
    }
    int asked = 0;
    do { // until one is not skipped and succeeds
        asked = 0;
        bide::basic_spin<platform>::until([&]() noexcept { return ++asked == 2; });
    } while (asked != 2);
    CHECK(questions_of_a_failure<platform>() > 1);
    CHECK(questions_of_a_failure<platform>() > 1);
}

TEST_CASE("spin: a spin with a least time is not skipped, and a change in it resets the failures") {
    struct tag {};
    using platform = stepping<tag>;
    platform::step = 1'000;
    for (int i = 0; i < 64; ++i) {
        questions_of_a_failure<platform>();
    }
    const std::int64_t before = platform::time;
    CHECK_FALSE(bide::basic_spin<platform>::until([]() noexcept { return false; }, 5'000));
    CHECK(platform::time - before >= 5'000);
    int asked = 0;
    CHECK(bide::basic_spin<platform>::until([&]() noexcept { return ++asked == 33; }, 5'000));
    CHECK(questions_of_a_failure<platform>() > 1);
    struct lone {};
    CHECK_FALSE(bide::basic_spin<single<lone>>::until([]() noexcept { return false; }, 5'000));
}

TEST_CASE("spin: each thread counts its own failures") {
    struct tag {};
    using platform = stepping<tag>; // on a busy machine, the budget of a real clock may end at once
    for (int i = 0; i < 4'096; ++i) {
        questions_of_a_failure<platform>();
    }
    int asked = 0;
    test::run_threads(1, [&](int) { asked = questions_of_a_failure<platform>(); });
    CHECK(asked > 1);
}

TEST_CASE("spin: on a single processor and in a model, done() is called once") {
    struct tag {};
    CHECK(questions_of_a_failure<single<tag>>() == 1);
    CHECK(questions_of_a_failure<modelled<tag>>() == 1);
    int asked = 0;
    bide::basic_spin<modelled<tag>>::briefly([&]() noexcept {
        ++asked;
        return false;
    });
    CHECK(asked == 0);
}

TEST_CASE("spin: briefly() is bounded by a count") {
    struct tag {};
    using platform = stepping<tag>;
    int asked = 0;
    bide::basic_spin<platform>::briefly([&]() noexcept { return ++asked == 5; });
    CHECK(asked == 5);
    bide::basic_spin<platform>::briefly([&]() noexcept {
        ++asked;
        return false;
    });
    CHECK(asked <= 5 + 64);
}

TEST_CASE("spin: spin_apart() looks twice, after many pauses") {
    struct tag {};
    using platform = stepping<tag>;
    int asked = 0;
    const auto never = [&]() noexcept {
        ++asked;
        return false;
    };
    CHECK_FALSE(bide::basic_spin<platform>::spin_apart(never));
    CHECK(asked == 2);
    CHECK(platform::pauses == 32 + 64);
    CHECK(bide::basic_spin<platform>::spin_apart([]() noexcept { return true; }));
    CHECK(platform::pauses == 32 + 64 + 32);
    CHECK_FALSE(bide::basic_spin<modelled<tag>>::spin_apart(never));
    CHECK(asked == 2);
}

TEST_CASE("spin: each wake is made exactly once, measured or not") {
    struct tag {};
    int calls = 0;
    for (int i = 0; i < 100; ++i) {
        bide::basic_spin<fresh<tag>>::measured_wake([&]() noexcept { ++calls; });
        bide::basic_spin<modelled<tag>>::measured_wake([&]() noexcept { ++calls; });
    }
    CHECK(calls == 200);
}

TEST_CASE("spin: the budget follows the cost of a wake, between 2 and 20 us") {
    struct tag {};
    using platform = stepping<tag>;
    using spin = bide::basic_spin<platform>;
    const auto wakes_that_take = [](std::int64_t ns) {
        for (int i = 0; i < 16 * 200; ++i) {
            spin::measured_wake([&]() noexcept { platform::time += ns; });
        }
    };
    wakes_that_take(1);
    CHECK(spin::budget_ns() == 2'000);
    wakes_that_take(4'000);
    CHECK(spin::budget_ns() > 9'000);
    CHECK(spin::budget_ns() < 11'000);
    wakes_that_take(1'000'000'000);
    CHECK(spin::budget_ns() == 20'000);
    wakes_that_take(1);
    CHECK(spin::budget_ns() < 2'100);
}

namespace {

// Records the acts of a waiter in order.
enum class act { pause, yield, sleep };

template <bool Model> struct noting : test::native {
    static constexpr bool model = Model;
    inline static std::vector<act> acts;
    inline static std::int64_t until = 0;

    static void pause() noexcept { acts.push_back(act::pause); }
    static void yield() noexcept { acts.push_back(act::yield); }
    template <class Word>
    static bool futex_wait(const atomic<Word>& word, Word expected, std::int64_t end) noexcept {
        acts.push_back(word.load() == expected ? act::sleep : act::pause);
        until = end;
        return false;
    }
};

// Returns the acts of call n, counted from 1.
template <class Platform> std::vector<act> act_of(bide::basic_backoff<Platform>& again) {
    Platform::acts.clear();
    again();
    return Platform::acts;
}

} // namespace

TEST_CASE("backoff: it pauses longer and longer, then yields, then sleeps for 50 us") {
    using platform = noting<false>;
    bide::basic_backoff<platform> again;
    std::vector<act> acts = act_of(again);
    std::size_t pauses = 0;
    for (; acts == std::vector<act>(acts.size(), act::pause); acts = act_of(again)) {
        REQUIRE(acts.size() > pauses);
        REQUIRE(acts.size() < 1'000);
        pauses = acts.size();
    }
    CHECK(pauses > 1);
    int yields = 0;
    for (; acts == std::vector<act>{act::yield}; acts = act_of(again)) {
        ++yields;
        REQUIRE(yields < 10'000);
    }
    CHECK(yields > 1);
    for (int n = 0; n < 10; ++n, acts = act_of(again)) {
        REQUIRE(acts == std::vector<act>{act::sleep});
        REQUIRE(platform::until <= platform::now() + 1'000'000);
    }
    bide::basic_backoff<platform> fresh;
    CHECK(act_of(fresh) == std::vector<act>{act::pause});
}

TEST_CASE("backoff: in a model each call is one pause") {
    bide::basic_backoff<noting<true>> again;
    for (int n = 0; n < 1'000; ++n) {
        REQUIRE(act_of(again) == std::vector<act>{act::pause});
    }
}

TEMPLATE_TEST_CASE("backoff: the awaited thread makes progress, also on the same processor", "",
                   test::native, test::portable) {
    constexpr int turns = 300;
    const test::on_one_processor pinned;
    std::atomic<int> turn{0};
    int waited[2] = {};
    test::run_threads(2, [&](int i) {
        for (int n = 0; n < turns; ++n) {
            bide::basic_backoff<TestType> again;
            for (; turn.load() % 2 != i; again()) {
                ++waited[i];
            }
            turn.fetch_add(1);
        }
    });
    CHECK(turn == 2 * turns);
    CHECK(waited[0] + waited[1] > 0);
}
