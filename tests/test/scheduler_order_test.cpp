#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/this_task.hpp>
#include <bide/test/scheduler.hpp>
#include <support/test.hpp>

// Which orders a simulation tries: where a task is interrupted, which one goes on, which timer fires.

using bide::task;
using bide::test::scheduler;
using bide::test::simulation_options;
using bide::test::task_order;
using bide::this_task::sleep_for;
using bide::this_task::yield;

namespace {

simulation_options seeded(std::uint64_t seed, task_order order = task_order::random) {
    simulation_options how;
    how.seed = seed;
    how.order = order;
    how.expected_steps = 20;
    return how;
}

// Every access is under the lock, and yet two tasks can take more than there is.
struct account {
    bide::mutex m;
    int balance = 100;
};
task<> withdraw(account& from, int amount) {
    bool has_enough = false;
    {
        auto lock = co_await from.m.async_lock();
        has_enough = from.balance >= amount;
    }
    if (has_enough) {
        auto lock = co_await from.m.async_lock();
        from.balance -= amount;
    }
}

// The bug needs two switches: away from `last` before its last line, and later away from `middle` before
// its last line. After these `middle` has to go on before `last`, which has waited longer.
struct relay {
    bide::event middle_may_begin;
    bide::event first_may_begin;
    int last_is_at = 0;
    int middle_is_at = 0;
    int written = 0;
    bool is_found = false;
};
task<> last(relay& r) {
    r.middle_may_begin.set();
    co_await yield();
    r.last_is_at = 1;
    co_await yield();
    r.is_found = r.written == 2;
    r.written = 0;
}
task<> middle(relay& r) {
    co_await r.middle_may_begin.async_wait();
    const bool is_late = r.last_is_at == 1;
    r.first_may_begin.set();
    co_await yield();
    r.middle_is_at = 1;
    co_await yield();
    r.written = is_late && r.written == 1 ? 2 : 0;
}
task<> first(relay& r) {
    co_await r.first_may_begin.async_wait();
    r.written = r.middle_is_at == 1 ? 1 : 0;
}

} // namespace

TEST_CASE("test scheduler: another task runs between two operations that need not wait",
          "[promise.simulation-orders]") {
    for (const task_order order : {task_order::random, task_order::priorities, task_order::fifo}) {
        int overdrawn = 0;
        for (std::uint64_t seed = 0; seed < 200; ++seed) {
            account a;
            scheduler s(seeded(seed, order));
            s.spawn(withdraw(a, 80)).detach();
            s.spawn(withdraw(a, 80)).detach();
            REQUIRE(s.run().all_ended());
            overdrawn += a.balance < 0 ? 1 : 0;
        }
        REQUIRE((overdrawn > 0) == (order != task_order::fifo));
        REQUIRE(overdrawn < 200);
    }
}

TEST_CASE("test scheduler: of two tasks that lost their priority, either one goes on first",
          "[promise.simulation-orders]") {
    int found = 0;
    for (std::uint64_t seed = 0; seed < 30'000; ++seed) {
        relay r;
        simulation_options how = seeded(seed, task_order::priorities);
        how.expected_steps = 12;
        scheduler s(how);
        s.spawn(last(r)).detach();
        s.spawn(middle(r)).detach();
        s.spawn(first(r)).detach();
        s.run();
        found += r.is_found ? 1 : 0;
    }
    REQUIRE(found > 10);
}

TEST_CASE("test scheduler: priorities find a switch after many yields in a row",
          "[promise.simulation-orders]") {
    const auto count = [](int& to) -> task<> {
        for (int i = 0; i < 100; ++i) {
            ++to;
            co_await yield();
        }
    };
    const auto look = [](const int& at, bool& is_found) -> task<> {
        is_found = at == 80;
        co_return;
    };
    int found = 0;
    for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
        int at = 0;
        bool is_found = false;
        simulation_options how = seeded(seed, task_order::priorities);
        how.change_points = 1;
        how.expected_steps = 100;
        scheduler s(how);
        s.spawn(count(at)).detach();
        s.spawn(look(at, is_found)).detach();
        s.run();
        found += is_found ? 1 : 0;
    }
    REQUIRE(found > 0); // about 10'000 / (2 tasks * 100 steps * 8)
}

TEST_CASE("test scheduler: a loop that polls, by ready operations or by yielding, starves no other "
          "task") {
    const auto poll = [](bide::mutex& m, bool& flag, bool yields) -> task<> {
        for (bool is_set = false; !is_set;) {
            if (yields) {
                co_await yield();
                is_set = flag;
            } else {
                auto lock = co_await m.async_lock();
                is_set = flag;
            }
        }
    };
    const auto set = [](bide::mutex& m, bool& flag) -> task<> {
        auto lock = co_await m.async_lock();
        flag = true;
    };
    for (const task_order order : {task_order::random, task_order::priorities, task_order::fifo}) {
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
            bide::mutex m;
            bool flag = false;
            simulation_options how = seeded(seed, order);
            how.change_points = 0;
            how.max_steps = 10'000;
            scheduler s(how);
            s.spawn(poll(m, flag, seed % 2 == 0)).detach();
            s.spawn(set(m, flag)).detach();
            REQUIRE(s.run().all_ended());
        }
    }
}

TEST_CASE("test scheduler: a timer that was armed last can fire before a time-out of its moment",
          "[promise.simulation-orders]") {
    const auto acquire = [](bide::semaphore& from) -> task<bool> {
        auto got = co_await from.async_acquire().with_timeout(10ms);
        const bool in_time = got.has_value();
        if (in_time) {
            std::move(*got).forget();
        }
        co_return in_time;
    };
    const auto release = [](bide::semaphore& to) -> task<> {
        co_await sleep_for(5ms);
        co_await sleep_for(5ms);
        to.release();
    };
    for (const task_order order : {task_order::random, task_order::priorities, task_order::fifo}) {
        int granted = 0;
        for (std::uint64_t seed = 0; seed < 200; ++seed) {
            bide::semaphore one(0);
            scheduler s(seeded(seed, order));
            auto got = s.spawn(acquire(one));
            s.spawn(release(one)).detach();
            REQUIRE(s.run().all_ended());
            granted += std::move(got).join() ? 1 : 0;
        }
        REQUIRE((granted > 0) == (order != task_order::fifo));
        REQUIRE(granted < 200);
    }
}
