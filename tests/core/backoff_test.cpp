#include <bide/core/spin.hpp>
#include <support/platforms.hpp>
#include <support/stress.hpp>
#include <support/test.hpp>

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
