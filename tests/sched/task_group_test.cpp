#include <bide/sched/task_group.hpp>
#include <bide/sync/event.hpp>
#include <support/homes.hpp>
#include <support/sched.hpp>

using namespace bide;
using namespace test;
using test::fails;
using test::fails_late;
using test::stuck;
namespace this_task = bide::this_task;

namespace {

task<> stops(task_group& g) {
    g.cancel();
    co_return;
}

// What the children of a test have done, and the children.
struct family {
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
    std::atomic<int> sum{0};
    event may_end;
    test::tally values;

    bool has_begun(int n) {
        return test::eventually([&] { return begun == n; });
    }

    // Waits until it is cancelled.
    task<> sleeps() {
        ++begun;
        co_await this_task::sleep_for(1h);
    }
    // The same, and counts its end.
    task<> ends_when_stopped() {
        ++begun;
        const auto slept = co_await this_task::sleep_for(1h).as_result();
        ended += slept ? 100 : 1;
        throw stopped_error(make_error_code(errc::stopped));
    }
    // After its cancellation it waits until it may end.
    task<> lingers() {
        ++begun;
        static_cast<void>(co_await this_task::sleep_for(1h).as_result());
        const this_task::shield held;
        co_await may_end.async_wait();
        ++ended;
    }
    // After its cancellation it fails with another error.
    task<> fails_when_stopped(std::chrono::milliseconds rest = 2ms) {
        ++begun;
        static_cast<void>(co_await this_task::sleep_for(1h).as_result());
        const this_task::shield held;
        co_await this_task::sleep_for(rest);
        ++ended;
        throw std::logic_error("a late error");
    }
    task<> adds(int n) {
        const test::counted local(values, n);
        if (n % 2 != 0) {
            co_await this_task::sleep_for(1ms);
        }
        sum += n;
    }
    task<counted_once> adds_and_says(counted_once n) {
        co_await this_task::yield();
        sum += n.number();
        co_return std::move(n);
    }
    task<> starts(counted_once) {
        ++begun;
        co_return;
    }
    task<> grows(task_group& g, int depth) {
        if (depth > 0) {
            g.spawn(grows(g, depth - 1));
            g.spawn(grows(g, depth - 1));
        }
        co_await this_task::yield();
        ++ended;
    }
};

// A test with a group on two workers.
struct on_two {
    scheduler s{workers(2)};
    family all;
    task_group g{s};
};
// A test that makes groups on one worker.
struct on_one {
    scheduler s{workers(1)};
    family all;
};

// A tree: each task is a group with that many tasks of the next level.
task<> holds(scheduler& s, std::vector<int> fans, family& all) {
    task_group g(s);
    if (fans.empty()) {
        g.spawn(all.sleeps());
    } else {
        const int n = fans.back();
        fans.pop_back();
        for (int i = 0; i < n; ++i) {
            g.spawn(holds(s, fans, all));
        }
    }
    co_await g.async_join();
}
// The same tree, whose groups are joined by their destructors.
task<> holds_blocking(scheduler& s, int n, family& all) {
    task_group g(s);
    for (int i = 0; i < n; ++i) {
        g.spawn(holds_blocking(s, 0, all));
    }
    g.spawn(all.sleeps());
    static_cast<void>(co_await this_task::sleep_for(1h).as_result());
}
task<> nests(scheduler& s, int depth, family& all) {
    task_group g(s);
    g.spawn(depth == 0 ? all.sleeps() : nests(s, depth - 1, all));
    co_await g.async_join();
}

scheduler_options few_threads() {
    auto o = workers(2);
    o.max_blocking_threads = 1;
    return o;
}

test::held awaits(task<> t) { co_await std::move(t); }
test::held joins_plainly(scheduler& s, family& all) {
    task_group g(s);
    g.spawn(all.sleeps());
    co_await g.async_join();
}

task<> sets(std::atomic<int>& to, int value) {
    co_await this_task::yield();
    to = value;
}

// A body that is cancelled with its children.
auto waiting_body(family& all, const char* child_fails) {
    return [&all, child_fails](task_group& g) -> task<> {
        if (child_fails != nullptr) {
            g.spawn(fails_late(child_fails));
        }
        g.spawn(all.ends_when_stopped());
        co_await all.ends_when_stopped();
    };
}

} // namespace

TEST_CASE_METHOD(on_two,
                 "task_group: join waits for all children, and a second join for later ones") {
    g.join(); // without children
    for (int round = 1; round <= 3; ++round) {
        for (int i = 0; i < 100; ++i) {
            g.spawn(all.adds(i % 3));
            g.spawn(all.adds_and_says(counted_once(all.values, 1)));
        }
        g.spawn([&] { ++all.sum; });
        s.spawn([&]() -> task<> {
             const auto adds_one = [&] { return ++all.sum; };
             co_await g.async_spawn(adds_one);
         }).join();
        g.join();
        CHECK(all.sum == round * (99 + 100 + 2));
        CHECK(all.values.alive() == 0);
    }
    CHECK(all.values.copied == 0);
}

TEST_CASE("task_group: its destructor waits for all children, and drops an error") {
    scheduler s(workers(2));
    family all;
    {
        task_group g(s);
        for (int i = 0; i < 100; ++i) {
            g.spawn(all.adds(1));
        }
    }
    CHECK(all.sum == 100);
    {
        task_group g(s);
        g.spawn(fails("an unasked error"));
        g.spawn(stuck());
    }
    CHECK(all.values.alive() == 0);
}

TEST_CASE_METHOD(on_two,
                 "task_group: the first error cancels the other children, and each join throws it",
                 "[promise.when-ends-after-children]") {
    for (int i = 0; i < 100; ++i) {
        g.spawn(stuck());
    }
    g.spawn(all.fails_when_stopped()); // later
    REQUIRE(all.has_begun(1));
    g.spawn(fails_late("the first"));
    CHECK(what_of([&] { g.join(); }) == "the first");
    CHECK(all.ended == 1);
    CHECK(what_of([&] { g.join(); }) == "the first");
    g.spawn(all.starts(counted_once(all.values, 1)));
    CHECK(what_of([&] { g.join(); }) == "the first");
    CHECK(all.begun == 1);
}

TEST_CASE_METHOD(
    on_two, "task_group: cancel ends the children without an error, and later ones never start") {
    for (int i = 0; i < 100; ++i) {
        g.spawn(stuck());
    }
    for (int round = 0; round < 2; ++round) {
        g.cancel();
        g.spawn(all.starts(counted_once(all.values, 1)));
        CHECK(what_of([&] { g.join(); }) == "nothing");
    }
    CHECK(all.begun == 0);
    CHECK(all.values.alive() == 0);
}

TEST_CASE_METHOD(
    on_two,
    "task_group: join of a cancelled group throws a child's error that is no stopped_error") {
    g.spawn(all.fails_when_stopped());
    REQUIRE(all.has_begun(1));
    g.cancel();
    CHECK(what_of([&] { g.join(); }) == "a late error");
}

TEST_CASE("task_group: a handle cancels its child alone, which has not failed then") {
    test::each_home home;
    family all;
    std::vector<cancel_handle> of;
    const auto body = [&]() -> task<int> {
        task_group g(*home);
        of.push_back(g.spawn_with_handle(all.ends_when_stopped()));
        of.push_back(co_await g.async_spawn_with_handle(all.ends_when_stopped()));
        while (all.begun < 2) {
            co_await this_task::yield();
        }
        g.spawn(all.adds(1)); // needs longer
        int cancels = 0;
        for (const cancel_handle& one : of) {
            cancels += one.cancel() ? 1 : 0;
        }
        co_await g.async_join();
        co_return cancels;
    };
    CHECK(home.run(body()) == 2);
    CHECK(all.ended == 2);
    CHECK(all.sum == 1);
    CHECK(of[0].done());
    CHECK_FALSE(of[0].cancel());
    CHECK_FALSE(of[0] == of[1]);
    CHECK(of[0].id() != of[1].id());
    CHECK(of[0] == cancel_handle(of[0]));
}

TEST_CASE("task_group: a child that its handle cancels before its first run never starts") {
    family all;
    cancel_handle kept;
    {
        scheduler s(workers(1));
        task_group g(s);
        std::atomic<bool> may_go{false};
        s.spawn([&] { static_cast<void>(test::spin_until(may_go)); }).detach();
        kept = g.spawn_with_handle(all.starts(counted_once(all.values, 1)));
        CHECK(kept.cancel(user_reason(3)));
        CHECK_FALSE(kept.done());
        may_go = true;
        CHECK(what_of([&] { g.join(); }) == "nothing");
        g.spawn(all.adds(1)); // the group is not cancelled
        g.join();
    }
    CHECK(kept.done()); // after the group and the scheduler
    CHECK_FALSE(kept.cancel());
    CHECK(all.begun == 0);
    CHECK(all.sum == 1);
    CHECK(all.values.alive() == 0);
    CHECK(cancel_handle().done());
    CHECK_FALSE(cancel_handle().cancel());
    CHECK(cancel_handle().id() == nullptr);
}

TEST_CASE_METHOD(
    on_two,
    "task_group: a child that its handle has cancelled fails by an error that is no stopped_error, "
    "and by the stopped_error of a shutdown") {
    const cancel_handle one = g.spawn_with_handle(all.fails_when_stopped());
    REQUIRE(all.has_begun(1));
    CHECK(one.cancel());
    CHECK(what_of([&] { g.join(); }) == "a late error");
    task_group late(s);
    const cancel_handle two = late.spawn_with_handle(all.sleeps());
    REQUIRE(all.has_begun(2));
    s.shutdown();
    CHECK(what_of([&] { late.join(); }) == "stopped");
    CHECK(two.done());
}

TEST_CASE("task_group: a child that its handle cancels leaves its room to the next one") {
    scheduler s(workers(2));
    family all;
    task_group g(s, 1);
    const cancel_handle one = g.spawn_with_handle(all.sleeps());
    REQUIRE(all.has_begun(1));
    const auto waits = [&]() -> task<cancel_handle> {
        co_return co_await g.async_spawn_with_handle(all.adds(1));
    };
    auto next = s.spawn(waits);
    CHECK(one.cancel());
    const cancel_handle two = std::move(next).join();
    g.join();
    CHECK(two.done());
    CHECK(all.sum == 1);
}

TEST_CASE_METHOD(on_two, "task_group: children may spawn children and cancel their group") {
    g.spawn(all.grows(g, 9));
    g.join();
    CHECK(all.ended == 1'023);
    g.spawn(stuck());
    g.spawn(stops(g));
    CHECK(what_of([&] { g.join(); }) == "nothing");
}

TEST_CASE("task_group: async_join may have a time-out, after which the children go on",
          "[promise.run-loop-groups]") {
    test::each_home home;
    family all;
    const auto body = [&]() -> task<std::string> {
        task_group g(*home);
        for (int i = 0; i < 10; ++i) {
            g.spawn(all.adds(1));
        }
        co_await g.async_join();
        g.spawn(stuck());
        std::string said;
        for (const auto rest : {0ms, 1ms}) {
            const auto early = co_await g.async_join().with_timeout(rest);
            said += !early && early.error() == errc::timeout ? "timeout " : "? ";
        }
        g.spawn(fails("x"));
        try {
            co_await g.async_join();
        } catch (const std::runtime_error& e) {
            said += e.what();
        }
        co_return said;
    };
    CHECK(home.run(body()) == "timeout timeout x");
    CHECK(all.sum == 10);
    CHECK(all.values.alive() == 0);
}

TEST_CASE("task_group: cancels its children if an exception leaves its scope",
          "[promise.run-loop-groups]") {
    test::each_home home;
    family all;
    const auto body = [&]() -> task<> {
        task_group g(*home);
        g.spawn(all.ends_when_stopped());
        g.spawn(all.ends_when_stopped());
        while (all.begun < 2) {
            co_await this_task::yield();
        }
        throw std::runtime_error("left");
    };
    CHECK(what_of([&] { home.run(body()); }) == "left");
    CHECK(all.ended == 2);
}

TEST_CASE("task_group: the shutdown of the scheduler stops the children, and refuses later ones") {
    scheduler s(workers(2));
    family all;
    task_group running(s);
    task_group late(s);
    task_group cancelled(s);
    running.spawn(stuck());
    s.shutdown();
    CHECK(what_of([&] { running.join(); }) == "stopped");
    late.spawn(all.starts(counted_once(all.values, 1)));
    CHECK(what_of([&] { late.join(); }) == "stopped");
    cancelled.cancel();
    cancelled.spawn(all.starts(counted_once(all.values, 1)));
    CHECK(what_of([&] { cancelled.join(); }) == "nothing");
    CHECK(all.begun == 0);
    CHECK(all.values.alive() == 0);
}

TEST_CASE_METHOD(
    on_one,
    "task_group: async_join of a cancelled task cancels the children, and throws when they "
    "have ended",
    "[promise.group-end]") {
    const auto joins = [&]() -> task<int> {
        task_group g(s);
        g.spawn(all.lingers());
        int seen = -1;
        try {
            co_await g.async_join();
        } catch (const stopped_error&) {
            seen = all.ended;
        }
        co_return seen;
    };
    auto h = s.spawn(joins);
    REQUIRE(all.has_begun(1));
    CHECK(h.cancel());
    CHECK(s.spawn([] { return true; }).join()); // no thread is blocked
    CHECK_FALSE(h.done());
    CHECK(all.ended == 0);
    all.may_end.set();
    CHECK(std::move(h).join() == 1);
}

// Also where its budget ends just then.
TEST_CASE("task_group: async_join of a task that was cancelled before waits for the children") {
    const int permits = GENERATE(0, 126, 127, 128, 129);
    CAPTURE(permits);
    scheduler s(workers(1));
    family all;
    std::atomic<bool> may_go{false};
    const auto joins = [&]() -> task<int> {
        task_group g(s);
        g.spawn(all.lingers());
        semaphore enough(1);
        {
            const this_task::shield held;
            while (!may_go) {
                co_await this_task::yield();
            }
            for (int i = 0; i < permits; ++i) {
                const auto permit = co_await enough.async_acquire();
            }
        }
        const auto joined = co_await g.async_join().as_result();
        co_return !joined && joined.error() == errc::stopped ? all.ended.load() : -1;
    };
    auto h = s.spawn(joins);
    REQUIRE(all.has_begun(1));
    CHECK(h.cancel());
    may_go = true;
    for (int i = 0; i < 20; ++i) { // lets the worker run the task until it waits
        s.spawn([] {}).join();
    }
    CHECK_FALSE(h.done());
    all.may_end.set();
    CHECK(std::move(h).join() == 1);
}

TEST_CASE("task_group: a shield keeps the cancellation of the task that joins from the children") {
    scheduler s(workers(2));
    family all;
    std::atomic<bool> shielded{false};
    task_group g(s);
    g.spawn([&all]() -> task<> { co_await all.may_end.async_wait(); });
    const auto joins = [&]() -> task<> {
        const this_task::shield held;
        shielded = true;
        co_await g.async_join();
    };
    auto h = s.spawn(joins);
    REQUIRE(test::eventually([&] { return shielded.load(); }));
    CHECK(h.cancel());
    all.may_end.set();
    CHECK(what_of([&] { std::move(h).join(); }) == "nothing");
    CHECK(what_of([&] { g.join(); }) == "nothing");
}

TEST_CASE(
    "task_group: a cancelled joiner throws the error of a child before its own stopped_error") {
    scheduler s(workers(2));
    family all;
    const auto joins = [&]() -> task<> {
        task_group g(s);
        g.spawn(all.fails_when_stopped(0ms));
        co_await g.async_join();
    };
    auto h = s.spawn(joins);
    REQUIRE(all.has_begun(1));
    CHECK(h.cancel());
    CHECK(what_of([&] { std::move(h).join(); }) == "a late error");
}

TEST_CASE("task_group: nested groups end, by a cancellation or a shutdown, and with few threads",
          "[promise.group-end]") {
    const bool by_shutdown = GENERATE(false, true);
    const bool in_destructors = GENERATE(false, true); // these block threads beyond the limit
    CAPTURE(by_shutdown, in_destructors);
    scheduler s(few_threads());
    family all;
    auto h = s.spawn(in_destructors ? holds_blocking(s, 30, all) : holds(s, {10, 10, 20}, all));
    REQUIRE(all.has_begun(in_destructors ? 31 : 2'000));
    if (by_shutdown) {
        s.shutdown();
    } else {
        CHECK(h.cancel());
    }
    CHECK(what_of([&] { std::move(h).join(); }) == (in_destructors ? "nothing" : "stopped"));
}

TEST_CASE(
    "task_group: a group ends on the only worker if max_blocking_threads is the greatest value",
    "[promise.group-end]") {
    auto o = workers(1);
    o.max_blocking_threads = ~0u;
    scheduler s(std::move(o));
    bool ran = false;
    const auto child = [&]() -> task<> {
        ran = true;
        co_return;
    };
    s.spawn([&] {
         task_group g(s);
         g.spawn(child());
     }).join();
    CHECK(ran);
}

TEST_CASE("task_group: a cancellation of nested groups uses a bounded stack") {
    scheduler s(workers(2));
    family all;
    auto h = s.spawn(nests(s, 100'000, all));
    REQUIRE(all.has_begun(1));
    CHECK(h.cancel());
    CHECK(what_of([&] { std::move(h).join(); }) == "stopped");
}

TEST_CASE_METHOD(
    on_one, "task_group: if a coroutine is destroyed while it joins its group, the children are "
            "cancelled") {
    auto frame = joins_plainly(s, all);
    frame.start();
    REQUIRE(all.has_begun(1));
    frame.destroy();
}

TEST_CASE(
    "task_group: a stop callback of a cancelled child may cancel and join a task with a group") {
    scheduler s(workers(2));
    family all;
    bool ended = false;
    task_group g(s);
    auto other = s.spawn(holds(s, {2}, all));
    const auto ends_another = [&]() -> task<> {
        const auto end = [&] {
            other.cancel();
            ended = test::ended_by_stop(std::move(other));
        };
        const std::stop_callback on_stop(this_task::get_stop_token(), end);
        ++all.begun;
        static_cast<void>(co_await this_task::sleep_for(1h).as_result());
    };
    g.spawn(ends_another);
    REQUIRE(all.has_begun(3));
    g.cancel();
    g.join();
    CHECK(ended);
}

TEST_CASE_METHOD(
    on_two, "task_group: a function that returns a task is destroyed when the child has ended") {
    for (int i = 1; i <= 100; ++i) {
        g.spawn([n = counted_once(all.values, i), this]() -> task<int> {
            co_await this_task::yield();
            all.sum += n.number();
            co_return 0;
        });
    }
    g.join();
    CHECK(all.values.alive() == 0);
    g.cancel();
    g.spawn([n = counted_once(all.values, 1), this]() -> task<> {
        all.sum += n.number();
        co_return;
    });
    g.join();
    CHECK(all.sum == 5'050);
    CHECK(all.values.alive() == 0);
}

TEST_CASE("task_group: a function that throws adds no child") {
    scheduler s(workers(1));
    task_group g(s);
    const auto makes_none = []() -> task<int> { throw std::runtime_error("no task"); };
    CHECK(what_of([&] { g.spawn(makes_none); }) == "no task");
    CHECK(what_of([&] { g.join(); }) == "nothing");
}

TEST_CASE("task_group: run returns the value of its body when all children have ended") {
    test::each_home home;
    std::atomic<int> x{0};
    const auto body = [&](task_group& g) -> task<std::string> {
        g.spawn(sets(x, 1));
        co_await g.async_join(); // the body may wait for the children
        std::string said = std::to_string(x);
        g.spawn(sets(x, 2));
        co_return said;
    };
    const std::string said = home.run(task_group::run(*home, body));
    CHECK(said + std::to_string(x) == "12");
    int n = 7;
    const auto refers = [&](task_group&) -> task<int&> { co_return n; };
    CHECK(&home.run(task_group::run(*home, refers)) == &n);
}

TEST_CASE("task_group: run cancels and joins the children if its body throws") {
    test::each_home home;
    family all;
    const auto body = [&](task_group& g) -> task<> {
        g.spawn(all.ends_when_stopped());
        while (all.begun == 0) {
            co_await this_task::yield();
        }
        throw std::runtime_error("body");
    };
    CHECK(what_of([&] { home.run(task_group::run(*home, body)); }) == "body");
    CHECK(all.ended == 1);
}

TEST_CASE("task_group: run cancels its body if a child fails, and throws that error") {
    test::each_home home;
    family all;
    const auto body = waiting_body(all, "child");
    CHECK(what_of([&] { home.run(task_group::run(*home, body)); }) == "child");
    CHECK(all.ended == all.begun);
}

TEST_CASE("task_group: run cancels the body and the children if the awaiting task is cancelled") {
    scheduler s(few_threads());
    family all;
    auto h = s.spawn(task_group::run(s, waiting_body(all, nullptr)));
    REQUIRE(all.has_begun(2));
    CHECK(h.cancel());
    CHECK(what_of([&] { std::move(h).join(); }) == "stopped");
    CHECK(all.ended == 2);
}

TEST_CASE("task_group: run of a body that cancels the group returns its value, or is stopped") {
    test::each_home home;
    const auto body = [](bool waits) {
        return [waits](task_group& g) -> task<int> {
            g.spawn(stuck());
            g.cancel();
            if (waits) {
                co_await this_task::sleep_for(1h);
            }
            co_return 5;
        };
    };
    CHECK(home.run(task_group::run(*home, body(false))) == 5);
    CHECK(what_of([&] { home.run(task_group::run(*home, body(true))); }) == "stopped");
}

TEST_CASE(
    "task_group: run on a scheduler that was shut down is stopped, and the body never starts") {
    scheduler s(workers(1));
    s.shutdown();
    bool begun = false;
    const auto body = [&begun](task_group&) -> task<> {
        begun = true;
        co_return;
    };
    CHECK(what_of([&] { sync_wait(task_group::run(s, body)); }) == "stopped");
    CHECK_FALSE(begun);
}

TEST_CASE_METHOD(
    on_one,
    "task_group: if run is destroyed before its end, it cancels all members and waits for them") {
    auto frame = awaits(task_group::run(s, waiting_body(all, nullptr)));
    frame.start();
    REQUIRE(all.has_begun(2));
    frame.destroy();
    CHECK(all.ended == 2);
}
