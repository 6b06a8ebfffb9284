#include <bide/task/cancel_handle.hpp>

#include <bide/sync/event.hpp>
#include <bide/task/this_task.hpp>
#include <support/coroutines.hpp>
#include <support/scheduling.hpp>
#include <support/tasks.hpp>
#include <support/waiting.hpp>

using bide::scheduler;
using bide::sync_wait;
using bide::task;
using bide::this_task::sleep_for;
using bide::this_task::yield;
using test::with;

namespace {

task<int> number(int n) { co_return n; }

template <class T> std::string what_of_join(bide::join_handle<T> h) {
    return test::what_of([&h] { std::move(h).join(); });
}

} // namespace

TEST_CASE("cancel_handle: cancels a task while another owner joins it, and outlives the handle") {
    scheduler s(with(2, true));
    auto h = s.spawn([]() -> task<int> {
        co_await sleep_for(1h);
        co_return 1;
    });
    const bide::cancel_handle c(h);
    CHECK(c == bide::cancel_handle(h));
    CHECK_FALSE(c.done());
    std::jthread other([c] { c.cancel(bide::user_reason(1)); });
    CHECK(what_of_join(std::move(h)) == "stopped");
    CHECK(c.done());
    CHECK_FALSE(c.cancel());
}

TEST_CASE("scoped_join_handle: its destructor and an assignment cancel the task, detach does not") {
    scheduler s(with(2, true));
    std::atomic<int> stopped{0};
    std::atomic<int> begun{0};
    bide::event may_end;
    const auto waits = [&]() -> task<int> {
        ++begun;
        const auto over = co_await may_end.async_wait().as_result();
        stopped += over ? 0 : 1;
        co_return 1;
    };
    {
        bide::scoped_join_handle one = s.spawn(waits);
        bide::scoped_join_handle two = s.spawn(waits);
        REQUIRE(test::eventually([&] { return begun == 2; }));
        bide::scoped_join_handle moved(std::move(two)); // cancels nothing
        one = std::move(moved);                         // cancels the first
        CHECK(test::eventually([&] { return stopped == 1; }));
        CHECK_FALSE(one.done());
    }
    CHECK(test::eventually([&] { return stopped == 2; }));
    bide::scoped_join_handle free = s.spawn(waits);
    bide::scoped_join_handle asked = s.spawn(waits);
    bide::cancel_handle c(free);
    std::move(free).detach();
    may_end.set();
    CHECK(std::move(asked).join() == 1);
    CHECK(test::eventually([&] { return c.done(); }));
    CHECK(stopped == 2);
}

TEST_CASE("scoped_join_handle: async_join that ends early cancels the task") {
    scheduler s(with(2, true));
    std::atomic<int> begun{0};
    std::atomic<int> stopped{0};
    const auto sleeps = [&]() -> task<int> {
        ++begun;
        const auto slept = co_await sleep_for(1h).as_result();
        stopped += slept ? 0 : 1;
        co_return 1;
    };
    const auto joins = [&](bool is_brief) -> task<int> {
        bide::scoped_join_handle one = s.spawn(number(7));
        int sum = co_await std::move(one).async_join();
        bide::scoped_join_handle two = s.spawn(sleeps);
        while (begun == 0) {
            co_await yield();
        }
        if (is_brief) {
            const auto early = co_await std::move(two).async_join().with_timeout(1ms);
            sum += !early && early.error() == bide::errc::timeout ? 10 : 0;
        } else {
            sum += co_await std::move(two);
        }
        co_return sum;
    };
    const auto joins_apart = [](bide::scoped_join_handle<int> h) -> test::held {
        co_await std::move(h).async_join();
    };
    SECTION("by a time-out") { CHECK(sync_wait(s, joins(true)) == 17); }
    SECTION("by a cancellation") {
        auto joiner = s.spawn(joins(false));
        REQUIRE(test::eventually([&] { return begun == 1; }));
        CHECK(joiner.cancel());
        CHECK(what_of_join(std::move(joiner)) == "stopped");
    }
    SECTION("by the destruction of the coroutine") {
        test::held waits = joins_apart(s.spawn(sleeps));
        waits.start();
        REQUIRE(test::eventually([&] { return begun == 1; }));
    }
    CHECK(test::eventually([&] { return stopped == 1; }));
}
