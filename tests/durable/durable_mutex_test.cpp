#include <bide/durable/durable_mutex.hpp>

#include <bide/durable/slots/memory.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <support/catch.hpp>
#include <support/gate.hpp>

#include <atomic>
#include <concepts>
#include <utility>
#include <vector>

using bide::durable_mutex;
using bide::errc;
using bide::memory_slot;

static_assert(std::movable<durable_mutex> && std::movable<bide::durable_guard>);
static_assert(bide::cas_slot<memory_slot> && !bide::cas_slot<durable_mutex>);

TEST_CASE(
    "durable_mutex: over objects that share a slot, one holds at a time and no token repeats") {
    const memory_slot slot;
    constexpr int threads = 4;
    constexpr int each = 25;
    std::atomic<int> inside{0};
    std::atomic<bool> wrong{false};
    std::int64_t last = 0; // under the lock
    int count = 0;         // under the lock
    test::team team(threads, [&](int) {
        durable_mutex m(slot);
        for (int i = 0; i < each; ++i) {
            const auto g = m.acquire();
            if (!g || inside.fetch_add(1) != 0 || g->fence() <= last) {
                wrong = true;
            }
            last = g->fence();
            ++count;
            inside.fetch_sub(1);
        }
    });
    team.join();
    REQUIRE_FALSE(wrong);
    REQUIRE(count == threads * each);
}

TEST_CASE("durable_mutex: tasks hold it across suspensions, and waiting blocks no worker") {
    bide::scheduler_options one;
    one.num_workers = 1;
    bide::scheduler workers(one);
    durable_mutex m(memory_slot{});
    int inside = 0;
    bool wrong = false;
    const auto body = [&]() -> bide::task<void> {
        for (int i = 0; i < 10; ++i) {
            auto g = co_await m.async_acquire();
            wrong = wrong || !g || inside != 0;
            ++inside;
            co_await bide::this_task::yield();
            --inside;
        }
    };
    std::vector<bide::join_handle<void>> tasks;
    for (int i = 0; i < 3; ++i) {
        tasks.push_back(workers.spawn(body()));
    }
    for (auto& t : tasks) {
        std::move(t).join();
    }
    REQUIRE_FALSE(wrong);
}

TEST_CASE("durable_mutex: is not recursive, except for the same ticket") {
    durable_mutex m(memory_slot{});
    bide::acquire_request mine;
    mine.ticket = m.ticket("me");
    const auto g = m.acquire(mine);
    REQUIRE(m.try_acquire().error() == errc::timeout);
    bide::durable_ticket again = *mine.ticket;
    REQUIRE(m.try_acquire(again)->acquired);
    REQUIRE(again.fence == g->fence());
    REQUIRE(g->lane() == 0);
}
