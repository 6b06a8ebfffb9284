#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>
#include <support/alloc.hpp>
#include <support/coroutines.hpp>
#include <support/test.hpp>

// sync_wait: the thread on which the task runs.

using bide::sync_wait;
using bide::task;

namespace {

std::thread::id here() { return std::this_thread::get_id(); }

task<int> number(int n) { co_return n; }
task<> nothing() { co_return; }
task<int&> same(int& n) { co_return n; }
task<int> fails(const char* why) {
    throw std::runtime_error(why);
    co_return 0;
}

task<std::vector<std::thread::id>> where_it_runs(bide::semaphore& s) {
    std::vector<std::thread::id> ids{here()};
    const auto permit = co_await s.async_acquire();
    ids.push_back(here());
    co_await nothing();
    ids.push_back(here());
    co_return ids;
}

task<int> waits_inside(bide::semaphore& s) {
    const int ready = sync_wait(number(1));
    const auto ids = sync_wait(where_it_runs(s)); // the task suspends
    const int after = co_await number(10);
    co_return ready + after + (ids.back() == here() ? 100 : 0);
}

// A wait that completes at the third attempt after the first one.
struct tried {
    using waiter = bide::basic_waiter<bide::native_platform>;
    struct trying {
        tried& of;

        bide::wait_status try_now() const noexcept {
            return ++of.attempts > of.needed ? bide::wait_status::granted
                                             : bide::wait_status::waiting;
        }
        template <class Again> void yield_before_wait(Again&& again) const noexcept {
            ++of.yields;
            for (int i = 0; i < 3 && !again(); ++i) {
            }
        }
        bide::wait_status enqueue(waiter& w) const noexcept {
            ++of.enqueued;
            w.settle(bide::wait_status::granted);
            return bide::wait_status::granted;
        }
        bool cancel(waiter&, bide::wait_status) const noexcept { return false; }
        bide::result<void> collect(bide::wait_status what) const noexcept {
            return bide::result_of(what);
        }
    };
    bide::async_op<bide::result<void>> async_try() noexcept { return {trying{*this}}; }

    int needed = 3;
    int attempts = 0;
    int yields = 0;
    int enqueued = 0;
};

task<> await(tried& t) {
    const auto done = co_await t.async_try(); // CHECK() would await it twice
    CHECK(done.has_value());
}
task<> await_with_time(tried& t) {
    const auto done = co_await t.async_try().with_deadline(bide::deadline::poll());
    CHECK(done.has_value());
}
task<> await_two(tried& first, tried& second) {
    co_await await(first);
    co_await await(second);
}

} // namespace

TEST_CASE("sync_wait: runs the task on the calling thread, also after each wait") {
    bide::semaphore s(0);
    test::team releaser(1, [&](int) {
        test::eventually([&] { return s.waiters() == 1; });
        s.release();
    });
    CHECK(sync_wait(where_it_runs(s)) == std::vector<std::thread::id>(3, here()));
}

TEST_CASE("sync_wait: with an executor, the task runs there while the calling thread blocks") {
    bide::semaphore s(0);
    test::thread_executor e;
    test::team releaser(1, [&](int) {
        test::eventually([&] { return s.waiters() == 1; });
        s.release();
    });
    CHECK(sync_wait(e, where_it_runs(s)) == std::vector<std::thread::id>(3, e.id()));
    CHECK(sync_wait(e, number(3)) == 3);
    CHECK_THROWS_AS(sync_wait(e, fails("there")), std::runtime_error);
    int n = 0;
    CHECK(&sync_wait(e, same(n)) == &n);
}

TEST_CASE("sync_wait: a task may call it") {
    bide::semaphore s(0);
    test::team releaser(1, [&](int) {
        test::eventually([&] { return s.waiters() == 1; });
        s.release();
    });
    CHECK(sync_wait(waits_inside(s)) == 111);
}

TEST_CASE("sync_wait: if nothing else is to run, a wait is tried again before it is queued") {
    tried t;
    sync_wait(await(t));
    CHECK(t.yields == 1);
    CHECK(t.attempts == 4);
    CHECK(t.enqueued == 0);
    SECTION("after an attempt in vain, the rest of the run does not try again") {
        tried never;
        never.needed = 100;
        tried next;
        sync_wait(await_two(never, next));
        CHECK(never.yields == 1);
        CHECK(never.enqueued == 1);
        CHECK(next.yields == 0);
        CHECK(next.enqueued == 1);
    }
    SECTION("a wait that polls is tried once") {
        tried polled;
        sync_wait(await_with_time(polled));
        CHECK(polled.yields == 0);
        CHECK(polled.enqueued == 1);
    }
    SECTION("on another executor it is not tried again") {
        tried elsewhere;
        test::thread_executor e;
        sync_wait(e, await(elsewhere));
        CHECK(elsewhere.yields == 0);
        CHECK(elsewhere.enqueued == 1);
    }
}

TEST_CASE("sync_wait: allocates only frames") {
    bide::semaphore s(1);
    task<> t = [](bide::semaphore& one) -> task<> {
        const auto permit = co_await one.async_acquire();
    }(s);
    const std::size_t before = test::allocations();
    sync_wait(std::move(t));
    CHECK(test::allocations() == before);
}
