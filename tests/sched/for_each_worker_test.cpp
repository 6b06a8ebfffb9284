#include <bide/core/result.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/sched/for_each_worker.hpp>
#include <support/sched.hpp>

using namespace bide;
using namespace test;

TEST_CASE("for_each_worker: calls the function once on each worker's own thread",
          "[promise.each-worker]") {
    const unsigned workers = GENERATE(1U, 2U, 5U);
    const bool steals = GENERATE(false, true);
    auto wanted = with(workers, true);
    wanted.enable_stealing = steals;
    std::vector<std::thread::id> started(workers);
    wanted.on_worker_start = [&started](unsigned w) {
        if (started[w] == std::thread::id()) {
            started[w] = std::this_thread::get_id();
        }
    };
    scheduler s(wanted);
    const auto ids = for_each_worker(s, [] { return std::this_thread::get_id(); });
    CHECK(ids == started);
    const auto numbers = for_each_worker(
        s, [&s](unsigned w) { return std::make_unique<bool>(s.this_worker() == w); });
    CHECK(numbers.size() == workers);
    unsigned right = 0;
    for (const auto& one : numbers) {
        right += *one ? 1 : 0;
    }
    CHECK(right == workers);
    static thread_local int value = 0;
    for_each_worker(s, [](unsigned w) { value = static_cast<int>(w) + 1; });
    CHECK(s.spawn([] { return value; }, {.worker = workers - 1}).join() ==
          static_cast<int>(workers));
}

TEST_CASE("for_each_worker: throws the exception of the lowest worker, when all have ended",
          "[promise.each-worker]") {
    scheduler s(with(4, true));
    std::atomic<int> ended{0};
    std::string what;
    try {
        for_each_worker(s, [&ended](unsigned w) {
            ++ended;
            if (w != 0) {
                throw std::runtime_error(std::to_string(w));
            }
        });
    } catch (const std::runtime_error& e) {
        what = e.what();
    }
    CHECK(what == "1");
    CHECK(ended == 4);
}

TEST_CASE("for_each_worker: on a worker's thread it refuses, and a coroutine there may call it") {
    scheduler s(with(2, true));
    std::atomic<int> calls{0};
    const auto count = [&calls] { return ++calls; };
    CHECK_THROWS_AS(s.spawn([&] { for_each_worker(s, count); }).join(), std::system_error);
    CHECK(calls == 0);
    const auto both = [](scheduler& on, std::atomic<int>& n) -> task<std::size_t> {
        const auto add = [&n] { return ++n; };
        const auto values = co_await async_for_each_worker(on, add);
        co_return values.size();
    };
    auto first = s.spawn(both(s, calls)); // each waits for the other's worker
    auto second = s.spawn(both(s, calls));
    CHECK(std::move(first).join() == 2);
    CHECK(std::move(second).join() == 2);
    CHECK(calls == 4);
    CHECK(sync_wait(both(s, calls)) == 2);
    s.spawn_blocking([&] { for_each_worker(s, count); }).join();
    CHECK(calls == 8);
}

TEST_CASE("for_each_worker: waits for a thread that is blocked, and not for its worker") {
    scheduler s(with(2, false));
    std::atomic<bool> holds{false};
    std::atomic<bool> leaves{false};
    auto busy = s.spawn(
        [&] {
            holds = true;
            spin_until(leaves);
        },
        {.worker = 1});
    CHECK(spin_until(holds));
    std::atomic<int> calls{0};
    std::atomic<bool> over{false};
    std::thread caller([&] {
        for_each_worker(s, [&calls] { ++calls; });
        over = true;
    });
    CHECK(eventually([&calls] { return calls == 1; }));
    CHECK_FALSE(over);
    leaves = true;
    caller.join();
    CHECK(calls == 2);
    std::move(busy).join();
}

TEST_CASE("for_each_worker: after the shutdown it throws, and beside one it ends",
          "[promise.each-worker]") {
    for (int round = 0; round < 50; ++round) {
        scheduler s(with(2, true));
        std::atomic<int> calls{0};
        std::atomic<bool> stopped{false};
        std::thread caller([&] {
            try {
                for_each_worker(s, [&calls] { ++calls; });
            } catch (const stopped_error&) {
                stopped = true;
            }
        });
        s.shutdown();
        caller.join();
        CHECK((stopped || calls == 2));
        CHECK_THROWS_AS(for_each_worker(s, [] {}), stopped_error);
    }
}

TEST_CASE("for_each_worker: a cancelled task waits for all calls", "[promise.each-worker]") {
    scheduler s(with(2, true));
    std::atomic<int> began{0};
    std::atomic<int> ended{0};
    std::atomic<bool> leaves{false};
    const auto all = [](scheduler& on, std::atomic<int>& in, std::atomic<int>& out,
                        std::atomic<bool>& go) -> task<> {
        const auto waits = [&] {
            ++in;
            spin_until(go);
            ++out;
        };
        co_await async_for_each_worker(on, waits);
    };
    scheduler other(with(1, true));
    auto handle = other.spawn(all(s, began, ended, leaves));
    CHECK(eventually([&began] { return began == 2; }));
    handle.cancel();
    CHECK_FALSE(handle.done());
    leaves = true;
    try {
        std::move(handle).join();
    } catch (const stopped_error&) { // after the shield
    }
    CHECK(ended == 2);
}

TEST_CASE("for_each_worker: without memory it throws, when what was spawned has ended") {
    if (!test::counts_allocations()) {
        return;
    }
    scheduler s(with(4, true));
    for (unsigned at = 0; at < 12; ++at) {
        std::atomic<int> began{0};
        std::atomic<int> ended{0};
        bool failed = false;
        try {
            const test::failing_allocations one(at, test::shortage::single, false);
            for_each_worker(s, [&] {
                ++began;
                ++ended;
            });
        } catch (const std::bad_alloc&) {
            failed = true;
        }
        CHECK((failed || began == 4));
        CHECK(began == ended);
    }
}
