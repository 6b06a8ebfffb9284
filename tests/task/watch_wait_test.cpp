#include <bide/task/watch_wait.hpp>

#include <bide/sched/scheduler.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/cancel_handle.hpp>
#include <bide/task/with_deadline.hpp>
#include <support/coroutines.hpp>
#include <support/tasks.hpp>
#include <support/test.hpp>
#include <support/waiting.hpp>

using bide::errc;

TEST_CASE("watch: a coroutine waits for a value, without a thread, and ends by the close") {
    bide::watch<int> w(1);
    auto r = w.subscribe();
    std::atomic<int> got{0};
    const auto waits = [&](int least) -> test::held {
        const auto is_enough = [least](int n) { return n >= least; };
        const auto seen = co_await bide::async_wait(r, is_enough);
        got = seen ? *seen : seen.error() == errc::closed ? -1 : -2;
    };
    auto at_once = waits(1);
    at_once.start();
    CHECK(got == 1);
    auto later = waits(3);
    later.start();
    w.send(2);
    CHECK(got == 1);
    w.send(4);
    CHECK(got == 4);
    {
        auto destroyed = waits(9);
        destroyed.start();
    }
    auto last = waits(9);
    last.start();
    w.close();
    CHECK(got == -1);
}

TEST_CASE(
    "watch: the wait of a task for a value ends by a time-out, a cancellation or an exception") {
    bide::scheduler s(test::workers(2));
    bide::watch<int> w(1);
    auto r = w.subscribe();
    const auto is_two = [](int n) { return n == 2; };
    const auto brief = bide::sync_wait(s, bide::with_timeout(bide::async_wait(r, is_two), 1ms));
    CHECK(!brief);
    CHECK(brief.error() == errc::timeout);
    auto stopped = s.spawn(bide::async_wait(r, is_two));
    CHECK(stopped.cancel());
    CHECK(test::what_of([&] { static_cast<void>(std::move(stopped).join()); }) == "stopped");
    auto h = s.spawn(bide::async_wait(r, is_two));
    auto other = s.spawn([&]() -> bide::task<int> {
        auto mine = w.subscribe();
        const auto throws = [](int n) {
            if (n > 1) {
                throw std::runtime_error("no");
            }
            return false;
        };
        const auto got = co_await bide::async_wait(mine, throws);
        co_return got.value_or(0);
    });
    w.send(2);
    CHECK(std::move(h).join() == 2);
    CHECK(test::what_of([&] { static_cast<void>(std::move(other).join()); }) == "no");
}

TEST_CASE("watch: the wait of a task ends by a cancellation while new values come all the time") {
    bide::scheduler s(test::workers(2));
    bide::watch<int> w(1);
    auto r = w.subscribe();
    bide::cancel_handle me;
    bide::event is_spawned;
    int calls = 0;
    const auto cancels = [&](int n) {
        w.send(n + 1);
        if (++calls == 3) {
            is_spawned.wait();
            me.cancel();
        }
        return calls == 1'000;
    };
    auto stopped = s.spawn(bide::async_wait(r, cancels));
    me = bide::cancel_handle(stopped);
    is_spawned.set();
    CHECK(test::what_of([&] { static_cast<void>(std::move(stopped).join()); }) == "stopped");
    CHECK(calls == 3);
}
