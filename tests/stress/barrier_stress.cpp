// Barriers: in each phase one arrival is the last one, and no waiter is left behind or goes ahead.

#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/platforms.hpp"
#include "support/stress.hpp"
#include "support/test.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/sync/barrier.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>

namespace {

using std::chrono::microseconds;

template <class Barrier> bide::task<void> meet_once(Barrier& b) {
    co_await b.async_arrive_and_wait();
}
template <class Barrier, class Token>
bide::task<bool> wait_a_while(Barrier& b, Token token, microseconds rest) {
    const auto through = co_await b.async_wait(token).with_timeout(rest);
    co_return through.has_value();
}

// Arrives and waits in one of the ways there are.
template <class Barrier> void meet(Barrier& b, test::jitter& chance) {
    switch (chance.below(5)) {
    case 0: bide::sync_wait(meet_once(b)); break;
    case 1: {
        const auto token = b.arrive();
        while (!b.wait_for(token, microseconds(chance.below(50)))) {
        }
        break;
    }
    case 2: {
        const auto token = b.arrive();
        while (!bide::sync_wait(wait_a_while(b, token, microseconds(chance.below(50))))) {
        }
        break;
    }
    case 3: b.wait(b.arrive()); break;
    default: b.arrive_and_wait(); break;
    }
}

} // namespace

TEMPLATE_TEST_CASE("barrier: each phase of a storm has one last arrival, and all come through",
                   "[promise.barrier-phases]", test::native, test::portable, test::jittery) {
    constexpr int size = 4;
    const test::stress_time time;
    std::uint64_t leaders = 0; // plain: the completion function and the waiters are ordered
    bool over = false;
    const auto complete = [&]() noexcept {
        ++leaders;
        over = !time.is_left();
    };
    bide::barrier<decltype(complete), TestType> b(size, complete);
    std::uint64_t phases[size] = {};
    std::atomic<int> wrong{0};
    test::stress_threads(size, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        for (bool last = false; !last;) {
            meet(b, chance);
            ++phases[i];
            wrong += leaders != phases[i] ? 1 : 0;
            last = over;
        }
    });
    CHECK(wrong == 0);
    for (const std::uint64_t n : phases) {
        CHECK(n == leaders);
    }
    CHECK(leaders > 0);
}

TEST_CASE("barrier: tasks meet, and those that drop out are not waited for") {
    constexpr int size = 16;
    const test::stress_time time;
    std::uint64_t rounds = 0;
    std::uint64_t wrong = 0;
    bide::scheduler workers({.num_workers = 2});
    while (time.is_left()) {
        int phases = 0;
        const auto complete = [&phases]() noexcept { ++phases; };
        bide::barrier<decltype(complete)> b(size, complete);
        std::vector<bide::join_handle<int>> tasks;
        for (int i = 0; i < size; ++i) { // task i meets i times, then drops out
            tasks.push_back(
                workers.spawn([](auto& at, const int& seen, int times) -> bide::task<int> {
                    int in_order = 0;
                    for (int n = 1; n <= times; ++n) {
                        co_await at.async_arrive_and_wait();
                        in_order += seen == n ? 1 : 0;
                    }
                    at.arrive_and_drop();
                    co_return in_order;
                }(b, phases, i)));
        }
        for (int i = 0; i < size; ++i) {
            const int in_order = std::move(tasks[static_cast<std::size_t>(i)]).join();
            wrong += in_order != i ? 1u : 0u;
        }
        wrong += phases != size ? 1u : 0u;
        ++rounds;
    }
    CHECK(wrong == 0);
    CHECK(rounds > 0);
}

TEST_CASE("barrier: a waiter that is let through may destroy it before the last arrival returns") {
    const test::stress_time time;
    std::atomic<bide::barrier<>*> of_round{nullptr};
    std::atomic<bool> over{false};
    std::uint64_t rounds = 0;
    test::stress_threads(2, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        if (i == 0) {
            while (time.is_left()) {
                auto b = std::make_unique<bide::barrier<>>(2);
                of_round = b.get();
                meet(*b, chance);
                ++rounds;
            }
            over = true;
        } else {
            while (!over) {
                if (auto* const b = of_round.exchange(nullptr); b != nullptr) {
                    chance();
                    static_cast<void>(b->arrive());
                }
            }
        }
    });
    CHECK(rounds > 0);
}
