#include <bide/parallel/async_fork.hpp>
#include <bide/parallel/fork_scope.hpp>
#include <bide/parallel/parallel_fold.hpp>
#include <bide/parallel/parallel_pipeline.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <support/scheduling.hpp>

static_assert(std::is_convertible_v<bide::scheduler&, bide::fork_policy>);
static_assert(!std::is_convertible_v<bide::scheduler, bide::fork_policy>, "it would dangle");

template <class Body>
concept takes_braces = requires(bide::scheduler& s, std::vector<int>& range, Body body) {
    bide::parallel_for_chunks({s, {.grain = 10}}, range, body);
    bide::async_fork({s, {.grain = 10}}, [] {});
};
static_assert(takes_braces<void (*)(bide::parallel_chunk<std::vector<int>::iterator>)>);

TEST_CASE("fork_policy: what has no elements takes a stop token, too", "[promise.loop-stops]") {
    bide::scheduler s(test::with(2, true));
    std::stop_source stop;
    stop.request_stop();
    const bide::fork_policy on(s, {.stop = stop.get_token()});
    std::vector<int> numbers(1'000);
    const auto stage = bide::parallel_stage([](int) {});
    CHECK_THROWS_AS(bide::fork_scope(on, [](bide::spawn_scope& in) { in.spawn([] {}); }),
                    bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_pipeline(on, 4, numbers, stage), bide::stopped_error);
}

namespace {

// Counts the threads that are in it at the same time.
class crowd {
public:
    void visit() {
        const int here = ++inside_;
        for (int most = most_; here > most && !most_.compare_exchange_weak(most, here);) {
        }
        const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(2);
        while (std::chrono::steady_clock::now() < end) { // other threads come in meanwhile
        }
        --inside_;
    }
    // Until so many are in it at the same time; the next calls return at once.
    void meet(int threads) {
        ++inside_;
        if (!test::eventually([&] { return inside_ >= threads || has_met_; })) {
            test::give_up(test::where(), "not all threads take part");
        }
        has_met_ = true;
        --inside_;
    }
    int most() const { return most_; }

private:
    std::atomic<int> inside_{0};
    std::atomic<int> most_{0};
    std::atomic<bool> has_met_{false};
};

} // namespace

TEST_CASE("fork_policy: at most max_workers threads take part, and calls inside count, too",
          "[promise.max-workers]") {
    bide::scheduler s(test::with(6, GENERATE(false, true)));
    for (const unsigned most : {1U, 2U, 3U, 20U}) {
        INFO("max_workers " << most);
        crowd all;
        crowd each; // of the calls inside, one after the other
        const bide::fork_policy on(s, {.grain = 1, .max_workers = most});
        const bide::fork_policy two(s, {.grain = 1, .max_workers = 2});
        const auto visit = [&all](int) { all.visit(); };
        const auto nested = [&] {
            bide::parallel_for(two, 0, 40, visit);
            bide::parallel_for(s, 0, 40, visit); // a part of the call around it
        };
        const auto algorithms = [&] {
            bide::parallel_for(on, 0, 300, visit);
            bide::parallel_for({s, {.max_workers = most}}, 0, 3'000, visit);
            bide::parallel_reduce(
                on, 0, 300, 0.0, [&](int) { return all.visit(), 1.0; }, std::plus());
            bide::parallel_fold(
                on, 0, 300, [] { return 0; }, [&](int& n, int) { all.visit(), ++n; }, std::plus());
            bide::fork_scope(on, [&](bide::spawn_scope& scope) {
                for (int i = 0; i < 100; ++i) {
                    scope.spawn([&] { all.visit(); });
                }
                bide::parallel_for(s, 0, 50, [&](int) { scope.spawn([&] { all.visit(); }); });
            });
            std::vector<int> items(100);
            bide::parallel_pipeline(on, 8, items, bide::parallel_stage(visit));
            bide::parallel_for(on, 0, 10, [&](int) { nested(); });
            bide::parallel_for({s, {.grain = 1, .max_workers = 2}}, 0, 100,
                               [&](int) { each.visit(); });
        };
        algorithms();
        s.spawn(algorithms).join();
        CHECK(all.most() <= static_cast<int>(most));
        CHECK(each.most() <= 2);
    }
}

TEST_CASE("fork_policy: as many threads as max_workers take part, if each call takes long",
          "[promise.max-workers]") {
    bide::scheduler s(test::with(6, GENERATE(false, true)));
    for (int round = 0; round < 20; ++round) {
        for (const int most : {2, 4}) {
            const bide::fork_policy on(s, {.grain = 1, .max_workers = static_cast<unsigned>(most)});
            crowd loop;
            bide::parallel_for(on, 0, most, [&](int) { loop.meet(most); });
            crowd tree;
            bide::parallel_reduce(
                on, 0, most, 0.0, [&](int) { return tree.meet(most), 1.0; }, std::plus());
        }
    }
}

TEST_CASE("fork_policy: callers with limits of their own, and without, do not change each other's "
          "limits",
          "[promise.max-workers]") {
    bide::scheduler s(test::with(4, true));
    std::array<crowd, 3> crowds;
    test::team callers(6, [&](int me) {
        const auto limit = static_cast<unsigned>(me % 3);
        for (int round = 0; round < 50; ++round) {
            crowd mine; // each call has a lane that another call may have had before
            const auto visit = [&](int) { mine.visit(); };
            if (limit == 0) {
                bide::parallel_for({s, {.grain = 1}}, 0, 60, visit);
            } else {
                bide::parallel_for({s, {.grain = 1, .max_workers = limit + 1}}, 0, 60, visit);
                if (mine.most() > static_cast<int>(limit) + 1) {
                    crowds[limit].visit();
                }
            }
        }
    });
    callers.join();
    CHECK(crowds[1].most() == 0);
    CHECK(crowds[2].most() == 0);
}

namespace {

// Calls inside of calls, each with a limit.
int leaves_of(bide::scheduler& s, int depth) {
    std::atomic<int> leaves{depth == 0 ? 1 : 0};
    if (depth != 0) {
        const bide::fork_policy on(s, {.grain = 1, .max_workers = 3});
        bide::parallel_for(on, 0, 2, [&](int) { leaves += leaves_of(s, depth - 1); });
    }
    return leaves;
}

} // namespace

TEST_CASE("fork_policy: more limits, one inside of the other, than a worker enters") {
    bide::scheduler s(test::with(4, true));
    for (int round = 0; round < 20; ++round) {
        REQUIRE(leaves_of(s, 7) == 128);
    }
    crowd all; // the limits are left
    bide::parallel_for({s, {.grain = 1, .max_workers = 4}}, 0, 4, [&](int) { all.meet(4); });
}

TEST_CASE("fork_policy: a loop that has been short keeps its limit when it is long",
          "[promise.max-workers]") {
    bide::scheduler s(test::with(6, true));
    crowd all;
    const auto loop = [&](bool is_long) {
        bide::parallel_for({s, {.max_workers = 2}}, 0, 2, [&](int) {
            if (is_long) {
                bide::parallel_for(s, 0, 400, [&](int) { all.visit(); });
            }
        });
    };
    for (int i = 0; i < 2'000; ++i) {
        loop(false);
    }
    for (int i = 0; i < 10; ++i) {
        loop(true);
    }
    CHECK(all.most() <= 2);
}

TEST_CASE("fork_policy: no workers are bad input, more than there are elements or workers are not",
          "[promise.max-workers]") {
    bide::scheduler s(test::with(2, true));
    CHECK_THROWS_AS(bide::fork_policy(s, {.max_workers = 0}), std::invalid_argument);
    const std::vector<int> few{1, 2};
    const auto sum = [&](std::span<const int> in, unsigned most) {
        return bide::parallel_fold(
            {s, {.max_workers = most}}, in, [] { return 0; }, std::plus(), std::plus());
    };
    CHECK(sum(few, 1'000) == 3);
    CHECK(sum({few.data(), 1}, 3) == 1);
    CHECK(sum({}, 3) == 0);
    const auto sums = [&](const bide::fork_policy& on) {
        return bide::parallel_reduce(on, few, 0.5, std::plus());
    };
    auto task = [&]() -> bide::task<double> {
        co_return co_await bide::async_fork({s, {.max_workers = 1}}, sums);
    };
    CHECK(s.spawn(task()).join() == 3.5);
}
