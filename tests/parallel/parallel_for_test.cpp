#include <bide/parallel/parallel_for.hpp>
#include <support/forking.hpp>
#include <support/function_ref.hpp>
#include <support/scheduling.hpp>

namespace {

// How often each of n indices was visited. Any thread counts.
class visits {
public:
    explicit visits(std::size_t n) : counts_(n) {}
    void count(std::size_t at) { counts_[at].fetch_add(1, std::memory_order_relaxed); }
    bool first_once(std::size_t n) const {
        return std::all_of(counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(n),
                           [](auto& c) { return c.load() == 1; });
    }
    bool each_once() const { return first_once(counts_.size()); }
    bool none_twice() const {
        return std::all_of(counts_.begin(), counts_.end(), [](auto& c) { return c.load() <= 1; });
    }

private:
    std::vector<std::atomic<int>> counts_;
};

struct failure {
    int at;
};

using indexed = test::function_ref<void(int)>;

// A clock that the test sets.
struct manual_time : bide::native_platform {
    static inline std::int64_t time = 1;
    static std::int64_t now() noexcept { return time; }
};

// A scheduler with one thread. Thieves want work while nothing is forked, and take nothing.
struct lone_forks {
    using platform = manual_time;
    struct script {
        bool has_work = false;
        int forks = 0;
        int unshared = 0; // iterations since a thief began to want work
        int most_unshared = 0;
    };
    script* s;

    template <class F> void enter(F&& f) const { f(); }
    template <std::int64_t, class Brief, class F>
    void enter_loop(std::uint64_t, const Brief&, F&& f) const {
        f();
    }
    template <class F, class G> void both(F&& f, G&& g, bool = false) const {
        ++s->forks;
        const bool had_work = std::exchange(s->has_work, true);
        s->unshared = 0;
        f();
        s->has_work = had_work;
        g();
    }
    bool wants_work(std::uint64_t) const noexcept { return !s->has_work; }
    const void* thread() const noexcept { return s; }
    bool may_leave() const noexcept { return false; }
    bool leaves_for_task(std::int64_t) const noexcept { return false; }
};

// The same, for loops that were brief before.
struct brief_forks : lone_forks {
    struct record {
        int joins = 0; // fork-joins that were begun
    };
    record* r;

    template <class F> void enter(F&& f) const {
        ++r->joins;
        f();
    }
    template <std::int64_t LongestNs = 0, class Brief, class F>
    void enter_loop(std::uint64_t, Brief&& run_briefly, F&& f) const {
        if (run_briefly(manual_time::now(), std::int64_t{4'000}) == 0) {
            enter(f);
        }
    }
};

auto brief(lone_forks::script& script, brief_forks::record& record,
           const bide::fork_options& options = {}) {
    return test::forks_policy(brief_forks{{&script}, &record}, options);
}

int by_name_calls = 0;
void by_name(int) { ++by_name_calls; }

// In a namespace that has the names that the loops use.
namespace other {

struct body {
    int calls[40] = {};
    void operator()(int) { ++calls[0]; }
};
void run_iterations(int, int, body&) = delete;
template <class... Any> void for_indices(Any&&...) = delete;
template <class... Any> void loop_over(Any&&...) = delete;

} // namespace other

// A loop on a scheduler with random answers.
void by_chance(test::chance_forks::script& script, int n, const bide::fork_options& options,
               indexed body) {
    bide::detail::for_indices(test::by_chance(script, options), 0, n, body);
}

// What a range of these bounds visits, on a scheduler with random answers.
template <class First, class Last> auto indices(First first, Last last) {
    using index = std::common_type_t<First, Last>;
    test::chance_forks::script script(test::run_seed());
    std::vector<index> seen;
    auto body = [&seen](auto i) {
        static_assert(std::is_same_v<decltype(i), index>);
        seen.push_back(i);
    };
    bide::detail::for_indices(test::by_chance(script), first, last, body);
    std::sort(seen.begin(), seen.end());
    return seen;
}

} // namespace

TEST_CASE("parallel_for: each index is visited once, up to the first that throws, whenever thieves "
          "want work",
          "[promise.loop-stops]") {
    test::chance_forks::script script(test::run_seed());
    for (int round = 0; round < 300; ++round) {
        script.hunger = script.chance.below(5);
        const auto n = script.chance.below(1u << script.chance.below(14));
        const auto wanted = std::min(n, script.chance.below(2 * n + 1));
        const int first = static_cast<int>(script.chance.below(100)) - 50;
        bide::fork_options options;
        options.grain = script.chance.below(2) == 0 ? 0 : script.chance.below(200);
        options.yield_to_tasks = true;
        visits v(n);
        const auto visit = [&](int i) {
            const auto at = static_cast<std::uint32_t>(i - first);
            v.count(at);
            if (at == wanted || (at > wanted && at % 7 == 0)) {
                throw failure{i};
            }
        };
        indexed body = visit;
        int thrown = first + static_cast<int>(n);
        try {
            bide::detail::for_indices(test::by_chance(script, options), first, thrown, body);
        } catch (const failure& failed) {
            thrown = failed.at;
        }
        INFO(n << ", grain " << options.grain << ", hunger " << script.hunger);
        REQUIRE(thrown == first + static_cast<int>(wanted));
        REQUIRE(v.first_once(wanted));
        REQUIRE(v.none_twice());
    }
}

TEST_CASE(
    "parallel_for: bounds compare as numbers, and nothing overflows at the ends of their types") {
    CHECK(indices(5, 5).empty());
    CHECK(indices(6, 5).empty());
    CHECK(indices(0u, -1).empty());
    CHECK(indices(std::numeric_limits<std::uint64_t>::max(), -1).empty());
    CHECK(indices(-3, 2) == std::vector<int>{-3, -2, -1, 0, 1});
    CHECK(indices(0, std::size_t{3}) == std::vector<std::size_t>{0, 1, 2});
    CHECK(indices(-2, std::uint8_t{1}) == std::vector<int>{-2, -1, 0});
    CHECK_THROWS_AS(indices(-1, 1u), std::invalid_argument);
    CHECK_THROWS_AS(indices(std::int64_t{-1}, std::uint64_t{1}), std::invalid_argument);

    const auto bytes = indices(std::int8_t{-128}, std::int8_t{127});
    CHECK((bytes.size() == 255 && bytes.front() == -128 && bytes.back() == 126));
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    CHECK(indices(most - 3, most) == std::vector<std::uint64_t>{most - 3, most - 2, most - 1});
    constexpr auto least = std::numeric_limits<std::int64_t>::min();
    CHECK(indices(least, least + 2) == std::vector<std::int64_t>{least, least + 1});
}

TEST_CASE("parallel_for: a range as wide as its type is divided and can be stopped") {
    test::chance_forks::script script(1);
    std::stop_source source;
    const bide::fork_options options{0, source.get_token(), nullptr};
    int calls = 0;
    auto body = [&](std::int64_t) { calls += source.request_stop() ? 1 : 0; };
    CHECK_THROWS_AS(bide::detail::for_indices(test::by_chance(script, options),
                                              std::numeric_limits<std::int64_t>::min(),
                                              std::numeric_limits<std::int64_t>::max(), body),
                    bide::stopped_error);
    CHECK(calls == 1);
}

TEST_CASE("parallel_for: a leaf has at least the grain, and less than twice that") {
    test::chance_forks::script script(test::run_seed());
    for (int round = 0; round < 100; ++round) {
        script.hunger = script.chance.below(5);
        const auto n = 1 + script.chance.below(1'000);
        bide::fork_progress progress;
        const bide::fork_options options{
            .grain = 1 + script.chance.below(100), .progress = &progress, .yield_to_tasks = true};
        std::vector<std::size_t> leaves; // found by the changes of the progress
        std::uint64_t done = 0;
        const auto body = [&](int) {
            if (leaves.empty() || progress.done() != done) {
                done = progress.done();
                leaves.push_back(0);
            }
            ++leaves.back();
        };
        by_chance(script, static_cast<int>(n), options, body);
        INFO(n << ", grain " << options.grain << ", hunger " << script.hunger);
        REQUIRE(*std::min_element(leaves.begin(), leaves.end()) >=
                std::min<std::size_t>(options.grain, n));
        REQUIRE(*std::max_element(leaves.begin(), leaves.end()) < 2 * options.grain);
    }
}

TEST_CASE(
    "parallel_for: divides everything if thieves always want work, and nothing if they never do") {
    const auto nothing = [](int) {};
    indexed body = nothing;
    lone_forks::script sated;
    sated.has_work = true;
    bide::detail::for_indices(test::forks_policy(lone_forks{&sated}), 0, 10'000, body);
    CHECK(sated.forks == 1); // the rest of the loop, beside the first iteration
    test::chance_forks::script script(7);
    script.hunger = 4;
    bide::fork_options options;
    options.grain = 1;
    by_chance(script, 1'000, options, body);
    CHECK(script.forks == 999);
}

TEST_CASE("parallel_for: iterations that take longer than those before are divided") {
    lone_forks::script script;
    auto body = [&script](int i) {
        manual_time::time += i < 9'000 ? 1 : 200'000;
        if (i >= 9'000 && !script.has_work) {
            script.most_unshared = std::max(script.most_unshared, ++script.unshared);
        }
    };
    indexed call = body;
    bide::detail::for_indices(test::forks_policy(lone_forks{&script}), 0, 10'000, call);
    CHECK(script.most_unshared <= 256);
}

TEST_CASE("parallel_for: a loop that is brief again begins no fork-join", "[promise.brief-loops]") {
    for (const int n : {1, 2, 63, 64, 65, 66, 700, 4'000}) {
        INFO(n << " iterations");
        lone_forks::script script;
        brief_forks::record record;
        visits v(static_cast<std::size_t>(n));
        auto body = [&v](int i) {
            manual_time::time += i % 2; // half a nanosecond
            v.count(static_cast<std::size_t>(i));
        };
        indexed call = body;
        bide::detail::for_indices(brief(script, record), 0, n, call);
        CHECK(record.joins == 0);
        CHECK(script.forks == 0);
        CHECK(v.each_once());
    }
}

TEST_CASE("parallel_for: a loop that was brief and is long now becomes a fork-join",
          "[promise.brief-loops]") {
    // Which iteration is the first long one, and how many run alone at most.
    const auto [first_long, most_alone] =
        GENERATE(std::pair(0, 1), std::pair(1, 65), std::pair(64, 65), std::pair(65, 4'161));
    lone_forks::script script;
    brief_forks::record record;
    visits v(10'000);
    int alone = 0;
    auto body = [&v, &alone, &record, from = first_long](int i) {
        manual_time::time += i < from ? 0 : 200'000;
        alone += record.joins == 0 ? 1 : 0;
        v.count(static_cast<std::size_t>(i));
    };
    indexed call = body;
    bide::detail::for_indices(brief(script, record), 0, 10'000, call);
    INFO("the first long iteration is " << first_long);
    CHECK(record.joins == 1);
    CHECK(alone <= most_alone);
    CHECK(script.forks > 0);
    CHECK(v.each_once());
}

TEST_CASE("parallel_for: a brief loop ends at an exception and at a stop, and counts its progress",
          "[promise.brief-loops]") {
    lone_forks::script script;
    brief_forks::record record;
    bide::fork_progress progress;
    std::stop_source source;
    const bool stops = GENERATE(false, true);
    int last = 0;
    auto body = [&last, &source, stops](int i) {
        last = i;
        if (i == 30 && stops) {
            source.request_stop();
        } else if (i == 80) {
            throw failure{i};
        }
    };
    bide::fork_options options;
    options.stop = source.get_token();
    options.progress = &progress;
    try {
        indexed call = body;
        bide::detail::for_indices(brief(script, record, options), 0, 4'000, call);
        CHECK(false);
    } catch (const failure& f) {
        CHECK_FALSE(stops);
        CHECK(f.at == 80);
    } catch (const bide::stopped_error&) {
        CHECK(stops);
    }
    CHECK(record.joins == 0);
    CHECK(last == (stops ? 64 : 80)); // a stop takes effect between leaves
    CHECK(progress.done() == 65);
    CHECK(progress.total() == 4'000);
}

TEST_CASE("parallel_for: parts that a stop or an exception leaves out are not divided") {
    constexpr std::int64_t n = 1'000'000'000'000'000;
    test::chance_forks::script script(6);
    script.hunger = 4;
    script.thieves = 0;
    script.last_fork = 200; // 50 above the first leaf
    std::stop_source source;
    bide::fork_options options;
    options.grain = GENERATE(0u, 1u, 1'000u);
    options.stop = source.get_token();
    int calls = 0;
    const auto run = [&](test::function_ref<void(std::int64_t)> body) {
        script.forks = 0;
        calls = 0;
        bide::detail::for_indices(test::by_chance(script, options), std::int64_t{0}, n, body);
    };
    const auto throws = [&](std::int64_t i) {
        ++calls;
        throw failure{static_cast<int>(i)};
    };
    CHECK_THROWS_AS(run(throws), failure);
    CHECK(calls == 1); // no later iteration begins
    CHECK(script.forks <= 50);
    CHECK_THROWS_AS(run([&](std::int64_t) { source.request_stop(); }), bide::stopped_error);
    CHECK(script.forks <= 50);
    CHECK_THROWS_AS(run([](std::int64_t) {}), bide::stopped_error);
    CHECK(script.forks == 0);
}

TEST_CASE("parallel_for: a stop before it lets nothing begin, and a stop after the last leaf has "
          "no effect") {
    bide::scheduler s(test::with(2, true));
    std::stop_source source;
    int calls = 0;
    const auto stops = [&](int) {
        ++calls;
        source.request_stop();
    };
    const indexed body = stops;
    bide::parallel_for({s, {.stop = source.get_token()}}, 0, 1, body);
    CHECK(calls == 1);
    bide::parallel_for({s, {.stop = source.get_token()}}, 0, 0, body);
    CHECK_THROWS_AS(bide::parallel_for({s, {.stop = source.get_token()}}, 0, 9, body),
                    bide::stopped_error);
    CHECK(calls == 1);
}

TEST_CASE("parallel_for: a body that cannot be copied, or that changes state, is not copied") {
    bide::scheduler s(test::with_serial_forks());
    auto owned = std::make_unique<std::atomic<int>>(0);
    std::atomic<int>& calls = *owned;
    const auto owner = [mine = std::move(owned)](int) { ++*mine; };
    bide::parallel_for(s, 0, 10, owner);
    CHECK(calls == 10);

    struct counter {
        int calls = 0;
        void operator()(int) { ++calls; }
    } body;
    bide::parallel_for(s, 0, 10, body);
    CHECK(body.calls == 10);

    struct counting {
        mutable std::atomic<int> calls{0};
        void operator()(int) const { ++calls; }
    } counted;
    bide::parallel_for(s, 0, 10, counted);
    CHECK(counted.calls == 10);

    struct only_moved {
        int* calls;
        explicit only_moved(int& n) : calls(&n) {}
        only_moved(only_moved&&) = default;
        void operator()(int) const { ++*calls; }
    };
    int moved_calls = 0;
    bide::parallel_for(s, 0, 10, only_moved(moved_calls));
    CHECK(moved_calls == 10);

    bide::parallel_for(s, 0, 10, by_name);
    CHECK(by_name_calls == 10);

    other::body theirs;
    bide::parallel_for(s, 0, 10, theirs);
    CHECK(theirs.calls[0] == 10);
}
