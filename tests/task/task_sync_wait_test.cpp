#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>
#include <support/alloc.hpp>
#include <support/catch.hpp>
#include <support/coroutines.hpp>
#include <support/gate.hpp>

#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

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

} // namespace

TEST_CASE("sync_wait: runs the task on the calling thread, also after each wait") {
    const test::watchdog guard;
    bide::semaphore s(0);
    test::team releaser(1, [&](int) {
        test::eventually([&] { return s.waiters() == 1; });
        s.release();
    });
    CHECK(sync_wait(where_it_runs(s)) == std::vector<std::thread::id>(3, here()));
}

TEST_CASE("sync_wait: with an executor, the task runs there while the calling thread blocks") {
    const test::watchdog guard;
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

namespace {

task<int> waits_inside(bide::semaphore& s) {
    const int ready = sync_wait(number(1));
    const auto ids = sync_wait(where_it_runs(s)); // the task suspends
    const int after = co_await number(10);
    co_return ready + after + (ids.back() == here() ? 100 : 0);
}

} // namespace

TEST_CASE("sync_wait: a task may call it") {
    const test::watchdog guard;
    bide::semaphore s(0);
    test::team releaser(1, [&](int) {
        test::eventually([&] { return s.waiters() == 1; });
        s.release();
    });
    CHECK(sync_wait(waits_inside(s)) == 111);
}

TEST_CASE("sync_wait: many threads wait for each other's tasks") {
    constexpr int threads = 4;
    constexpr int rounds = 500;
    bide::semaphore s(1);
    int inside = 0; // not atomic: one thread at a time
    struct body {
        static task<> run(bide::semaphore& one, int& count) {
            for (int i = 0; i < rounds; ++i) {
                const auto permit = co_await one.async_acquire();
                ++count;
            }
        }
    };
    test::run_threads(threads, [&](int) { sync_wait(body::run(s, inside)); });
    CHECK(inside == threads * rounds);
    CHECK(s.available() == 1);
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
