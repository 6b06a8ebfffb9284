#include <bide/channel/select.hpp>
#include <bide/sched/join_set.hpp>
#include <bide/sync/event.hpp>
#include <support/homes.hpp>
#include <support/sched.hpp>

using namespace bide;
using test::fails;
using test::stuck;
using test::what_of;
namespace this_task = bide::this_task;

namespace {

scheduler_options workers(unsigned n) {
    scheduler_options o;
    o.num_workers = n;
    o.max_blocking_threads = 1;
    return o;
}

task<int> number_after(event& e, int n) {
    co_await e.async_wait();
    co_return n;
}
task<int> number(int n) { co_return n; }
task<int> ends_though_stopped(std::atomic<int>& begun, int n) {
    ++begun;
    static_cast<void>(co_await this_task::sleep_for(1h).as_result());
    co_return n;
}
task<int> stops_itself() {
    throw stopped_error(make_error_code(errc::stopped));
    co_return 0;
}

task<int> sums(join_set<int>& set) {
    int sum = 0;
    for (;;) {
        const auto next = co_await set.async_join_next();
        if (!next) {
            break;
        }
        sum += *next;
    }
    co_return sum;
}
task<int> spawns_and_sums(task_runner& s, int n) {
    join_set<int> set(s);
    for (int i = 1; i <= n; ++i) {
        set.spawn(number(i));
    }
    const int sum = co_await sums(set);
    set.spawn(stuck()); // the destructor of the set cancels it and blocks
    co_return sum;
}
task<std::string> catches(join_set<int>& set) {
    std::string said;
    try {
        const auto next = co_await set.async_join_next().as_result();
        said = next ? "a value" : "an error";
    } catch (const std::runtime_error& e) {
        said = e.what();
    }
    co_return said;
}
task<std::string> waits_a_little(join_set<int>& set) {
    const auto early = co_await set.async_join_next().with_timeout(1ms);
    co_return !early && early.error() == errc::timeout ? "timeout" : "?";
}

task<> takes_until_stopped(scheduler& s, std::atomic<int>& begun, std::atomic<int>& taken) {
    join_set<int> set(s);
    set.spawn(stuck());
    set.spawn(ends_though_stopped(begun, 7));
    for (;;) {
        const auto next = co_await set.async_join_next();
        ++taken;
        if (!next) {
            break;
        }
    }
}

// A test with a set of tasks.
template <unsigned Workers> struct with_workers {
    scheduler s{workers(Workers)};
    event e;
    std::atomic<int> begun{0};
    join_set<int> set{s};
};

} // namespace

TEST_CASE("join_set: returns the outcomes in the order of the ends, each once, then nothing",
          "[promise.join-set-once]") {
    scheduler s(workers(2));
    event first;
    event second;
    join_set<int> set(s);
    CHECK(set.empty());
    CHECK(set.join_next() == std::nullopt);
    set.spawn(number_after(second, 2));
    set.spawn(number_after(first, 1));
    CHECK(set.size() == 2);
    CHECK(set.try_join_next() == std::nullopt);
    first.set();
    CHECK(set.join_next() == 1);
    second.set();
    CHECK(set.join_next() == 2);
    CHECK(set.join_next() == std::nullopt);
    CHECK(set.empty());
    set.spawn([] { return 3; }); // a second time, a function
    CHECK(set.join_next() == 3);
    CHECK(set.join_next() == std::nullopt);
}

TEST_CASE_METHOD(with_workers<2>,
                 "join_set: join_next throws the error of a child, which cancels no other child") {
    set.spawn(number_after(e, 1));
    set.spawn(fails("a child"));
    CHECK(what_of([&] { static_cast<void>(set.join_next()); }) == "a child");
    set.spawn(stops_itself());
    CHECK(what_of([&] { static_cast<void>(set.join_next()); }) == "stopped");
    e.set();
    CHECK(set.join_next() == 1);
    CHECK(set.join_next() == std::nullopt);
}

TEST_CASE("join_set: join_next returns true once for each child without value") {
    scheduler s(workers(2));
    std::atomic<int> sum{0};
    join_set<> set(s);
    for (int i = 0; i < 100; ++i) {
        set.spawn([&sum]() -> task<> {
            ++sum;
            co_return;
        });
    }
    int ended = 0;
    while (set.join_next()) {
        ++ended;
    }
    CHECK(ended == 100);
    CHECK(sum == 100);
}

TEST_CASE("join_set: values are moved, and destroyed with the set if no call returned them") {
    scheduler s(workers(2));
    test::tally t;
    {
        join_set<test::counted_once> set(s);
        for (int i = 0; i < 100; ++i) {
            set.spawn([n = test::counted_once(t, 1)]() mutable -> task<test::counted_once> {
                co_return std::move(n);
            });
        }
        for (int i = 0; i < 50; ++i) {
            auto one = set.join_next();
            REQUIRE(one);
            CHECK(one->number() == 1);
        }
    }
    CHECK(t.alive() == 0);
    CHECK(t.copied == 0);
}

TEST_CASE_METHOD(with_workers<2>,
                 "join_set: a cancelled set waits for all children, and skips the stopped ones") {
    for (int i = 0; i < 10; ++i) {
        set.spawn(stuck());
    }
    set.spawn(ends_though_stopped(begun, 8));
    set.spawn(ends_though_stopped(begun, 9));
    REQUIRE(test::eventually([&] { return begun == 2; }));
    set.cancel();
    set.spawn(number(1)); // never starts
    const auto one = set.join_next();
    const auto other = set.join_next();
    REQUIRE(one);
    REQUIRE(other);
    CHECK(*one + *other == 17);
    CHECK(set.join_next() == std::nullopt);
}

TEST_CASE("join_set: a task takes the outcome of each of its children once",
          "[promise.join-set-once][promise.run-loop-groups]") {
    test::each_home home;
    CHECK(home.run(spawns_and_sums(*home, 1'000)) == 500'500);
}

TEST_CASE_METHOD(with_workers<2>,
                 "join_set: async_join_next may time out, and throws what a child throws") {
    set.spawn(number_after(e, 1));
    CHECK(sync_wait(waits_a_little(set)) == "timeout");
    set.spawn(fails("late"));
    CHECK(sync_wait(catches(set)) == "late");
    e.set();
    CHECK(sync_wait(sums(set)) == 1);
}

TEST_CASE("join_set: as a case of a select it takes an outcome only if it is chosen") {
    scheduler s(workers(2));
    event e;
    join_set<int> a(s);
    join_set<int> b(s);
    a.spawn(number(1));
    b.spawn(number(1));
    int from_a = 0;
    int from_b = 0;
    for (int i = 0; i < 2; ++i) {
        auto chosen = select(on_join_next(a), on_join_next(b));
        if (chosen.index() == 0) {
            from_a += chosen.template get<0>().value_or(0);
            a.spawn(stuck()); // this child does not end
        } else {
            from_b += chosen.template get<1>().value_or(0);
            b.spawn(stuck());
        }
    }
    CHECK(from_a == 1);
    CHECK(from_b == 1);
}

TEST_CASE("join_set: a cancelled waiting task cancels the children, and resumes after their ends") {
    scheduler s(workers(1));
    std::atomic<int> begun{0};
    std::atomic<int> taken{0};
    auto h = s.spawn(takes_until_stopped(s, begun, taken));
    REQUIRE(test::eventually([&] { return begun == 1; }));
    CHECK(h.cancel());
    CHECK(what_of([&] { std::move(h).join(); }) == "stopped");
    CHECK(taken == 0); // the outcomes are dropped with the set
}

TEST_CASE_METHOD(
    with_workers<1>,
    "join_set: an outcome that a cancelled waiter has not taken is for the next waiter") {
    set.spawn(ends_though_stopped(begun, 7));
    const auto takes = [&]() -> task<int> {
        ++begun;
        const int sum = co_await sums(set);
        co_return sum;
    };
    auto h = s.spawn(takes);
    REQUIRE(test::eventually([&] { return begun == 2; })); // otherwise the child never starts
    CHECK(h.cancel());
    CHECK(what_of([&] { std::move(h).join(); }) == "stopped");
    CHECK(set.size() == 1);
    CHECK(set.join_next() == 7);
    CHECK(set.join_next() == std::nullopt);
}

TEST_CASE("join_set: no waiter learns that no child is left while an outcome is reserved") {
    scheduler s(workers(1));
    std::atomic<bool> shielded{false};
    std::atomic<int> waiting{0};
    event may_end;
    join_set<int> set(s);
    set.spawn([&]() -> task<int> {
        const this_task::shield held;
        shielded = true;
        co_await may_end.async_wait();
        co_return 42;
    });
    const auto takes = [&]() -> task<int> {
        ++waiting;
        const auto next = co_await set.async_join_next();
        co_return next.value_or(-1);
    };
    auto first = s.spawn(takes);
    REQUIRE(test::eventually([&] { return shielded && waiting == 1; }));
    auto second = s.spawn(takes);
    REQUIRE(test::eventually([&] { return waiting == 2; }));
    CHECK(first.cancel());
    may_end.set();
    CHECK(what_of([&] { std::move(first).join(); }) == "stopped");
    CHECK(std::move(second).join() == 42);
}

TEST_CASE_METHOD(with_workers<2>,
                 "join_set: a handle cancels its child alone, and join_next throws stopped_error") {
    const cancel_handle first = set.spawn_with_handle(stuck());
    const cancel_handle second = set.spawn_with_handle(number_after(e, 2));
    CHECK(first.cancel());
    CHECK(what_of([&] { static_cast<void>(set.join_next()); }) == "stopped");
    CHECK(first.done());
    CHECK_FALSE(second.done());
    e.set();
    CHECK(set.join_next() == 2);
    CHECK(test::eventually([&] { return second.done(); }));
    CHECK_FALSE(second.cancel());
    CHECK(set.join_next() == std::nullopt);
}

TEST_CASE("join_set: its destructor cancels the children and waits for them") {
    scheduler s(workers(1));
    std::atomic<int> begun{0};
    {
        join_set<int> set(s);
        set.spawn(stuck());
        set.spawn(ends_though_stopped(begun, 1));
        REQUIRE(test::eventually([&] { return begun == 1; }));
    }
    s.shutdown();
    join_set<int> late(s);
    late.spawn(number(1));
    CHECK(what_of([&] { static_cast<void>(late.join_next()); }) == "stopped");
    CHECK(late.join_next() == std::nullopt);
}
