#include <bide/task/acquire_object.hpp>

#include <bide/sched/scheduler.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/this_task.hpp>
#include <bide/task/with_deadline.hpp>
#include <support/test.hpp>
#include <support/waiting.hpp>

using bide::task;

namespace {

using pointer = std::unique_ptr<int>; // cannot be copied
using pool = bide::object_pool<pointer>;

bide::object_pool_options of(std::size_t limit) {
    bide::object_pool_options options;
    options.limit = limit;
    return options;
}
pointer none() { return nullptr; }

task<pointer> connect(int number) {
    co_await bide::this_task::yield();
    co_return std::make_unique<int>(number);
}
task<pointer> fails() {
    co_await bide::this_task::yield();
    throw std::runtime_error("no connection");
}
task<pointer> waits_for(bide::event& open) {
    co_await open.async_wait();
    co_return std::make_unique<int>(1);
}
// Borrows, lets the others wait for a while, and returns the number of the object.
task<int> borrow(pool& p, int& next) {
    const auto make = [&next] { return connect(++next); };
    const auto held = co_await bide::async_acquire_object(p, make);
    co_await bide::this_task::yield();
    co_return **held;
}

} // namespace

TEST_CASE("async_acquire_object: a task makes the object, which is lent again") {
    bide::scheduler s;
    pool p(of(1), &none);
    int next = 0;
    CHECK(bide::sync_wait(s, borrow(p, next)) == 1);
    CHECK(bide::sync_wait(borrow(p, next)) == 1); // without a scheduler
    CHECK(**p.acquire() == 1);
    const auto both = bide::sync_wait(s, bide::when_all(borrow(p, next), borrow(p, next)));
    CHECK((std::get<0>(both) == 1 && std::get<1>(both) == 1));
    CHECK(next == 1);
    CHECK(p.size() == 1);
}

TEST_CASE("async_acquire_object: a task that throws loses no room") {
    bide::scheduler s;
    pool p(of(1), &none);
    int next = 0;
    CHECK_THROWS_AS(bide::sync_wait(s, bide::async_acquire_object(p, &fails)), std::runtime_error);
    CHECK(p.size() == 0);
    const auto refuses = []() -> task<pointer> { throw std::runtime_error("no task"); };
    CHECK_THROWS_AS(bide::sync_wait(s, bide::async_acquire_object(p, refuses)), std::runtime_error);
    CHECK(bide::sync_wait(s, borrow(p, next)) == 1);
}

TEST_CASE("async_acquire_object: a task that is cancelled while it waits or makes loses no room",
          "[promise.object-pool]") {
    bide::scheduler s;
    pool p(of(1), &none);
    bide::event never;
    const auto make = [&] { return waits_for(never); };
    auto making = s.spawn(bide::async_acquire_object(p, make));
    REQUIRE(test::eventually([&] { return p.size() == 1; }));
    auto waiting = s.spawn(bide::async_acquire_object(p, make));
    REQUIRE(test::has_waiters(p, 1));
    waiting.cancel();
    CHECK_THROWS_AS(std::move(waiting).join(), bide::stopped_error);
    auto next = s.spawn(bide::async_acquire_object(p, make));
    REQUIRE(test::has_waiters(p, 1));
    making.cancel(); // the next one gets its turn
    CHECK_THROWS_AS(std::move(making).join(), bide::stopped_error);
    REQUIRE(test::eventually([&] { return p.waiters() == 0 && p.size() == 1; }));
    never.set();
    CHECK(**std::move(next).join() == 1);
    CHECK(p.idle() == 1);
    p.acquire().discard();
    never.reset();
    const auto late =
        bide::sync_wait(s, bide::with_timeout(bide::async_acquire_object(p, make), 1ms));
    CHECK((!late && late.error() == bide::errc::timeout));
    CHECK(p.size() == 0);
    CHECK(p.try_acquire());
}

TEST_CASE("async_acquire_object: a closed pool makes nothing") {
    pool p(of(1), &none);
    int next = 0;
    p.close();
    CHECK_THROWS_AS(bide::sync_wait(borrow(p, next)), bide::closed_error);
    CHECK(next == 0);
}
