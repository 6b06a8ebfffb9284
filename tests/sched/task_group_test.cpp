#include <bide/sched/task_group.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/this_task.hpp>
#include <support/catch.hpp>
#include <support/coroutines.hpp>
#include <support/counted.hpp>
#include <support/gate.hpp>
#include <support/tasks.hpp>
#include <support/waiting.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using bide::scheduler;
using bide::sync_wait;
using bide::task;
using bide::task_group;
using test::runner;
using test::what_of;
using test::workers;
namespace this_task = bide::this_task;

namespace {

task<int> fails(const char* why) {
    throw std::runtime_error(why);
    co_return 0;
}
task<int> fails_late(const char* why) {
    co_await this_task::sleep_for(2ms);
    throw std::runtime_error(why);
}
// Waits until it is cancelled.
task<int> stuck() {
    co_await this_task::sleep_for(1h);
    co_return 0;
}
// Ends some time after it was cancelled.
task<int> reluctant(std::atomic<bool>& waits, int& ended) {
    bide::semaphore none(0);
    waits = true;
    const auto got = co_await none.async_acquire().as_result();
    const this_task::shield held;
    co_await this_task::sleep_for(2ms);
    ended += got ? 100 : 1;
    throw std::logic_error("a late error");
}
task<int> started(test::counted_once parameter, std::atomic<int>& begun) {
    ++begun;
    co_return parameter.number();
}
task<int> counts_down(std::atomic<int>& ended) {
    try {
        co_await this_task::sleep_for(1h);
    } catch (const bide::stopped_error&) {
        ++ended;
        throw;
    }
    co_return 0;
}

task<> adds(std::atomic<int>& sum, int n, test::tally& t) {
    const test::counted local(t, n);
    if (n % 2 != 0) {
        co_await this_task::sleep_for(1ms);
    }
    sum += n;
}
task<test::counted_once> adds_and_says(std::atomic<int>& sum, test::counted_once n) {
    co_await this_task::yield();
    sum += n.number();
    co_return std::move(n);
}

} // namespace

TEST_CASE("task_group: join waits for all children, and a second join for later ones") {
    const test::watchdog guard;
    scheduler s(workers(2));
    std::atomic<int> sum{0};
    test::tally t;
    task_group g(s);
    g.join(); // without children
    for (int round = 1; round <= 3; ++round) {
        for (int i = 0; i < 100; ++i) {
            g.spawn(adds(sum, i % 3, t));
            g.spawn(adds_and_says(sum, test::counted_once(t, 1)));
        }
        g.join();
        CHECK(sum == round * (99 + 100));
        CHECK(t.alive() == 0);
    }
    CHECK(t.copied == 0);
}

TEST_CASE("task_group: its destructor waits for all children, and drops an error") {
    const test::watchdog guard;
    scheduler s(workers(2));
    std::atomic<int> sum{0};
    test::tally t;
    {
        task_group g(s);
        for (int i = 0; i < 100; ++i) {
            g.spawn(adds(sum, 1, t));
        }
    }
    CHECK(sum == 100);
    {
        task_group g(s);
        g.spawn(fails("an unasked error"));
        g.spawn(stuck());
    }
    CHECK(t.alive() == 0);
}

TEST_CASE("task_group: the first error cancels the other children, and each join throws it",
          "[promise.when-ends-after-children]") {
    const test::watchdog guard;
    scheduler s(workers(2));
    std::atomic<bool> waits{false};
    int ended = 0;
    task_group g(s);
    for (int i = 0; i < 100; ++i) {
        g.spawn(stuck());
    }
    g.spawn(reluctant(waits, ended)); // this child fails later
    REQUIRE(test::eventually([&] { return waits.load(); }));
    g.spawn(fails_late("the first"));
    CHECK(what_of([&] { g.join(); }) == "the first");
    CHECK(ended == 1);
    CHECK(what_of([&] { g.join(); }) == "the first");
    bool begun = false;
    g.spawn([](bool& b) -> task<> {
        b = true;
        co_return;
    }(begun));
    CHECK(what_of([&] { g.join(); }) == "the first");
    CHECK_FALSE(begun);
}

TEST_CASE("task_group: cancel ends the children without an error, and later ones never start") {
    const test::watchdog guard;
    scheduler s(workers(2));
    test::tally t;
    std::atomic<int> begun{0};
    task_group g(s);
    for (int i = 0; i < 100; ++i) {
        g.spawn(stuck());
    }
    g.cancel();
    g.spawn(started(test::counted_once(t, 1), begun));
    CHECK(what_of([&] { g.join(); }) == "nothing");
    g.cancel();
    g.spawn(started(test::counted_once(t, 1), begun));
    CHECK(what_of([&] { g.join(); }) == "nothing");
    CHECK(begun == 0);
    CHECK(t.alive() == 0);
}

TEST_CASE("task_group: join of a cancelled group throws a child's error that is no stopped_error") {
    const test::watchdog guard;
    scheduler s(workers(2));
    std::atomic<bool> waits{false};
    int ended = 0;
    task_group g(s);
    g.spawn(reluctant(waits, ended));
    REQUIRE(test::eventually([&] { return waits.load(); }));
    g.cancel();
    CHECK(what_of([&] { g.join(); }) == "a late error");
}

namespace {

task<> grows(task_group& g, std::atomic<int>& ended, int depth) {
    if (depth > 0) {
        g.spawn(grows(g, ended, depth - 1));
        g.spawn(grows(g, ended, depth - 1));
    }
    co_await this_task::yield();
    ++ended;
}
task<> ends_all(task_group& g) {
    g.cancel();
    co_return;
}

} // namespace

TEST_CASE("task_group: children may spawn children and cancel their group") {
    const test::watchdog guard;
    scheduler s(workers(2));
    std::atomic<int> ended{0};
    task_group g(s);
    g.spawn(grows(g, ended, 9));
    g.join();
    CHECK(ended == 1'023);
    g.spawn(stuck());
    g.spawn(ends_all(g));
    CHECK(what_of([&] { g.join(); }) == "nothing");
}

namespace {

task<std::string> joins(scheduler& s, std::atomic<int>& sum, test::tally& t) {
    task_group g(s);
    for (int i = 0; i < 10; ++i) {
        g.spawn(adds(sum, 1, t));
    }
    co_await g.async_join();
    g.spawn(stuck());
    std::string said;
    for (const auto rest : {0ms, 1ms}) {
        const auto early = co_await g.async_join().with_timeout(rest);
        said += !early && early.error() == bide::errc::timeout ? "timeout " : "? ";
    }
    g.spawn(fails("x"));
    try {
        co_await g.async_join();
    } catch (const std::runtime_error& e) {
        said += e.what();
    }
    co_return said;
}

} // namespace

TEST_CASE("task_group: async_join may have a time-out, after which the children go on") {
    runner run(GENERATE(false, true));
    scheduler s(workers(2));
    std::atomic<int> sum{0};
    test::tally t;
    CHECK(run(joins(s, sum, t)) == "timeout timeout x");
    CHECK(sum == 10);
    CHECK(t.alive() == 0);
}

namespace {

task<> notes_its_end(std::atomic<int>& begun, std::atomic<int>& ended) {
    ++begun;
    static_cast<void>(co_await counts_down(ended));
}
task<> leaves_by_error(scheduler& s, std::atomic<int>& begun, std::atomic<int>& ended) {
    task_group g(s);
    g.spawn(notes_its_end(begun, ended));
    g.spawn(notes_its_end(begun, ended));
    while (begun < 2) {
        co_await this_task::yield();
    }
    throw std::runtime_error("left");
}
task<> is_cancelled_in_join(scheduler& s, std::atomic<int>& begun, std::atomic<int>& ended) {
    task_group g(s);
    g.spawn(notes_its_end(begun, ended));
    static_cast<void>(co_await g.async_join().as_result());
}

} // namespace

TEST_CASE("task_group: cancels its children if an exception or a cancelled task leaves its scope") {
    const test::watchdog guard;
    scheduler s(workers(1));
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
    CHECK(what_of([&] { sync_wait(s, leaves_by_error(s, begun, ended)); }) == "left");
    CHECK(ended == 2);
    auto h = s.spawn(is_cancelled_in_join(s, begun, ended));
    REQUIRE(test::eventually([&] { return begun == 3; }));
    CHECK(h.cancel());
    std::move(h).join();
    CHECK(ended == 3);
}

namespace {

task<int> blocks_its_worker(scheduler& s, std::atomic<int>& sum, test::tally& t) {
    task_group g(s);
    for (int i = 0; i < 10; ++i) {
        g.spawn(adds(sum, 1, t));
    }
    g.join();
    g.spawn(adds(sum, 1, t));
    co_return sum.load();
}

} // namespace

TEST_CASE("task_group: the children of a task that blocks in join run on its only worker") {
    const test::watchdog guard;
    scheduler s(workers(1));
    std::atomic<int> sum{0};
    test::tally t;
    CHECK(sync_wait(s, blocks_its_worker(s, sum, t)) == 10);
    CHECK(sum == 11);
}

TEST_CASE("task_group: the shutdown of the scheduler stops the children, and refuses later ones") {
    const test::watchdog guard;
    scheduler s(workers(2));
    std::atomic<int> begun{0};
    test::tally t;
    task_group running(s);
    task_group late(s);
    task_group cancelled(s);
    running.spawn(stuck());
    s.shutdown();
    CHECK(what_of([&] { running.join(); }) == "stopped");
    late.spawn(started(test::counted_once(t, 1), begun));
    CHECK(what_of([&] { late.join(); }) == "stopped");
    cancelled.cancel();
    cancelled.spawn(started(test::counted_once(t, 1), begun));
    CHECK(what_of([&] { cancelled.join(); }) == "nothing");
    CHECK(begun == 0);
    CHECK(t.alive() == 0);
}

TEST_CASE("task_group: a join waits for a child that was spawned before, among many other joins") {
    const test::watchdog guard;
    scheduler s(workers(2));
    task_group g(s);
    std::atomic<int> odd{0};
    test::run_threads(3, [&](int) {
        for (int i = 0; i < 2'000; ++i) {
            std::atomic<int> ended{0};
            g.spawn([](std::atomic<int>& e) -> task<> {
                ++e;
                co_return;
            }(ended));
            g.join();
            odd += ended != 1 ? 1 : 0;
        }
    });
    CHECK(odd == 0);
}

TEST_CASE("task_group: may be destroyed as soon as a join has returned") {
    const test::watchdog guard;
    scheduler s(workers(2));
    std::atomic<int> ended{0};
    int failed = 0;
    for (int round = 0; round < 1'000; ++round) {
        auto g = std::make_unique<task_group>(s);
        g->spawn(grows(*g, ended, 1));
        if (round % 3 == 0) {
            g->spawn(fails("x"));
        } else if (round % 3 == 1) {
            g->cancel();
        }
        failed += what_of([&] { g->join(); }) == "x" ? 1 : 0;
        g.reset();
    }
    CHECK(failed == 334);
}

// ---- The end of a group without a thread

namespace {

// Records its start, waits until it may end, and counts its end.
task<> lingers(std::atomic<int>& begun, std::atomic<int>& ended, bide::event& may_end) {
    ++begun;
    static_cast<void>(co_await this_task::sleep_for(1h).as_result());
    const this_task::shield held;
    co_await may_end.async_wait();
    ++ended;
}
task<int> joins_lingerer(scheduler& s, std::atomic<int>& begun, std::atomic<int>& ended,
                         bide::event& may_end) {
    task_group g(s);
    g.spawn(lingers(begun, ended, may_end));
    int seen = -1;
    try {
        co_await g.async_join();
    } catch (const bide::stopped_error&) {
        seen = ended;
    }
    co_return seen;
}

} // namespace

TEST_CASE("task_group: async_join of a cancelled task cancels the children, and throws when they "
          "have ended",
          "[promise.group-end]") {
    const test::watchdog guard;
    scheduler s(workers(1));
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
    bide::event may_end;
    auto h = s.spawn(joins_lingerer(s, begun, ended, may_end));
    REQUIRE(test::eventually([&] { return begun == 1; }));
    CHECK(h.cancel());
    std::atomic<bool> ran{false};
    s.spawn([&ran] { ran = true; }).join(); // no thread is blocked
    CHECK(ran);
    CHECK_FALSE(h.done());
    CHECK(ended == 0);
    may_end.set();
    CHECK(std::move(h).join() == 1);
}

namespace {

task<int> joins_when_cancelled(scheduler& s, std::atomic<int>& begun, std::atomic<int>& ended,
                               bide::event& may_end, std::atomic<bool>& may_join) {
    task_group g(s);
    g.spawn(lingers(begun, ended, may_end));
    {
        const this_task::shield held;
        while (!may_join) {
            co_await this_task::yield();
        }
    }
    const auto joined = co_await g.async_join().as_result();
    co_return !joined && joined.error() == bide::errc::stopped ? ended.load() : -1;
}

} // namespace

TEST_CASE("task_group: async_join of a task that was cancelled before cancels the children, too") {
    const test::watchdog guard;
    scheduler s(workers(1));
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
    std::atomic<bool> may_join{false};
    bide::event may_end;
    auto h = s.spawn(joins_when_cancelled(s, begun, ended, may_end, may_join));
    REQUIRE(test::eventually([&] { return begun == 1; }));
    CHECK(h.cancel());
    may_join = true;
    s.spawn([&may_end] { may_end.set(); }).join();
    CHECK(std::move(h).join() == 1);
}

namespace {

task<> joins_shielded(task_group& g, std::atomic<bool>& shielded) {
    const this_task::shield held;
    shielded = true;
    co_await g.async_join();
}
task<> fails_when_stopped(std::atomic<int>& begun) {
    ++begun;
    static_cast<void>(co_await this_task::sleep_for(1h).as_result());
    throw std::runtime_error("on the way out");
}
task<> joins_failing(scheduler& s, std::atomic<int>& begun) {
    task_group g(s);
    g.spawn(fails_when_stopped(begun));
    co_await g.async_join();
}

} // namespace

TEST_CASE("task_group: a shield keeps the cancellation of the task that joins from the children") {
    const test::watchdog guard;
    scheduler s(workers(2));
    std::atomic<bool> shielded{false};
    bide::event may_end;
    task_group g(s);
    g.spawn([&may_end]() -> task<> { co_await may_end.async_wait(); });
    auto h = s.spawn(joins_shielded(g, shielded));
    REQUIRE(test::eventually([&] { return shielded.load(); }));
    CHECK(h.cancel());
    may_end.set();
    CHECK(what_of([&] { std::move(h).join(); }) == "nothing");
    CHECK(what_of([&] { g.join(); }) == "nothing");
}

TEST_CASE(
    "task_group: a cancelled joiner throws the error of a child before its own stopped_error") {
    const test::watchdog guard;
    scheduler s(workers(2));
    std::atomic<int> begun{0};
    auto h = s.spawn(joins_failing(s, begun));
    REQUIRE(test::eventually([&] { return begun == 1; }));
    CHECK(h.cancel());
    CHECK(what_of([&] { std::move(h).join(); }) == "on the way out");
}

namespace {

task<> sleeps(std::atomic<int>& begun) {
    ++begun;
    co_await this_task::sleep_for(1h);
}
// A tree: each task is a group with that many tasks of the next level.
task<> holds(scheduler& s, std::vector<int> fans, std::atomic<int>& begun) {
    task_group g(s);
    if (fans.empty()) {
        g.spawn(sleeps(begun));
    } else {
        const int n = fans.back();
        fans.pop_back();
        for (int i = 0; i < n; ++i) {
            g.spawn(holds(s, fans, begun));
        }
    }
    co_await g.async_join();
}
// The same tree, whose groups are joined by their destructors.
task<> holds_blocking(scheduler& s, int n, std::atomic<int>& begun) {
    task_group g(s);
    for (int i = 0; i < n; ++i) {
        g.spawn(holds_blocking(s, 0, begun));
    }
    g.spawn(sleeps(begun));
    static_cast<void>(co_await this_task::sleep_for(1h).as_result());
}

bide::scheduler_options few_threads() {
    auto o = workers(2);
    o.max_blocking_threads = 1;
    return o;
}

} // namespace

TEST_CASE("task_group: nested groups end without a thread, by a cancellation or a shutdown",
          "[promise.group-end]") {
    const test::watchdog guard;
    const bool by_shutdown = GENERATE(false, true);
    scheduler s(few_threads());
    std::atomic<int> begun{0};
    auto h = s.spawn(holds(s, {10, 10, 20}, begun));
    REQUIRE(test::eventually([&] { return begun == 2'000; }));
    if (by_shutdown) {
        s.shutdown();
    } else {
        CHECK(h.cancel());
    }
    CHECK(what_of([&] { std::move(h).join(); }) == "stopped");
}

TEST_CASE("task_group: destructors that block have threads beyond max_blocking_threads",
          "[promise.group-end]") {
    const test::watchdog guard;
    const bool by_shutdown = GENERATE(false, true);
    scheduler s(few_threads());
    std::atomic<int> begun{0};
    auto h = s.spawn(holds_blocking(s, 30, begun));
    REQUIRE(test::eventually([&] { return begun == 31; }));
    if (by_shutdown) {
        s.shutdown();
    } else {
        CHECK(h.cancel());
    }
    std::move(h).join();
}

namespace {

task<> nests(scheduler& s, int depth, std::atomic<int>& begun) {
    task_group g(s);
    g.spawn(depth == 0 ? sleeps(begun) : nests(s, depth - 1, begun));
    co_await g.async_join();
}

} // namespace

TEST_CASE("task_group: a cancellation of nested groups uses a bounded stack") {
    const test::watchdog guard;
    scheduler s(workers(2));
    std::atomic<int> begun{0};
    auto h = s.spawn(nests(s, 100'000, begun));
    REQUIRE(test::eventually([&] { return begun == 1; }));
    CHECK(h.cancel());
    CHECK(what_of([&] { std::move(h).join(); }) == "stopped");
}

namespace {

task<> waits_for_permits_then_joins(scheduler& s, int permits, std::atomic<bool>& may_go,
                                    std::atomic<int>& begun, std::atomic<int>& ended,
                                    bide::event& may_end, int& seen) {
    task_group g(s);
    g.spawn(lingers(begun, ended, may_end));
    bide::semaphore enough(1);
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
    seen = !joined ? ended.load() : -1;
}

} // namespace

TEST_CASE("task_group: a join at the end of a cancelled task's budget waits for the children") {
    const test::watchdog guard;
    const int permits = GENERATE(range(124, 132));
    CAPTURE(permits);
    scheduler s(workers(1));
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
    std::atomic<bool> may_go{false};
    bide::event may_end;
    int seen = 0;
    auto h = s.spawn(waits_for_permits_then_joins(s, permits, may_go, begun, ended, may_end, seen));
    REQUIRE(test::eventually([&] { return begun == 1; }));
    CHECK(h.cancel());
    may_go = true;
    for (int i = 0; i < 20; ++i) { // lets the worker run the task until it waits
        s.spawn([] {}).join();
    }
    CHECK_FALSE(h.done());
    may_end.set();
    std::move(h).join();
    CHECK(seen == 1);
}

namespace {

test::held joins_plainly(scheduler& s, std::atomic<int>& begun) {
    task_group g(s);
    g.spawn(sleeps(begun));
    co_await g.async_join();
}

} // namespace

TEST_CASE("task_group: if a coroutine is destroyed while it joins its group, the children are "
          "cancelled") {
    const test::watchdog guard;
    scheduler s(workers(1));
    std::atomic<int> begun{0};
    auto frame = joins_plainly(s, begun);
    frame.start();
    REQUIRE(test::eventually([&] { return begun == 1; }));
    frame.destroy();
}

namespace {

// Its stop callback cancels another task and joins it.
task<> ends_another(bide::join_handle<> other, std::atomic<int>& begun, std::atomic<bool>& ended) {
    const auto end = [&other, &ended] {
        other.cancel();
        try {
            std::move(other).join();
        } catch (const bide::stopped_error&) {
        }
        ended = true;
    };
    const std::stop_callback on_stop(this_task::get_stop_token(), end);
    ++begun;
    static_cast<void>(co_await this_task::sleep_for(1h).as_result());
}

} // namespace

TEST_CASE(
    "task_group: a stop callback of a cancelled child may cancel and join a task with a group") {
    const test::watchdog guard;
    scheduler s(workers(2));
    std::atomic<int> begun{0};
    std::atomic<bool> ended{false};
    task_group g(s);
    g.spawn(ends_another(s.spawn(holds(s, {2}, begun)), begun, ended));
    REQUIRE(test::eventually([&] { return begun == 3; }));
    g.cancel();
    g.join();
    CHECK(ended);
}

// ---- Functions that return tasks

TEST_CASE("task_group: a function that returns a task is destroyed when the child has ended") {
    const test::watchdog guard;
    scheduler s(workers(2));
    test::tally t;
    std::atomic<int> sum{0};
    {
        task_group g(s);
        for (int i = 1; i <= 100; ++i) {
            g.spawn([n = test::counted_once(t, i), &sum]() -> task<int> {
                co_await this_task::yield();
                sum += n.number();
                co_return 0;
            });
        }
        g.join();
        CHECK(t.alive() == 0);
        g.cancel();
        g.spawn([n = test::counted_once(t, 1), &sum]() -> task<> {
            sum += n.number();
            co_return;
        });
        g.join();
    }
    CHECK(sum == 5'050);
    CHECK(t.alive() == 0);
}

namespace {

task<int> none_made() { throw std::runtime_error("no task"); }

} // namespace

TEST_CASE("task_group: a function that throws adds no child") {
    const test::watchdog guard;
    scheduler s(workers(1));
    task_group g(s);
    CHECK(what_of([&] { g.spawn(&none_made); }) == "no task");
    CHECK(what_of([&] { g.join(); }) == "nothing");
}

// ---- run

namespace {

task<> sets(std::atomic<int>& to, int value) {
    co_await this_task::yield();
    to = value;
}
task<std::string> body_that_joins(scheduler& s, std::atomic<int>& x) {
    const auto body = [&x](task_group& g) -> task<std::string> {
        g.spawn(sets(x, 1));
        co_await g.async_join(); // the body may wait for the children
        std::string said = std::to_string(x);
        g.spawn(sets(x, 2));
        co_return said;
    };
    auto whole = task_group::run(s, body);
    std::string said = co_await std::move(whole);
    co_return said + std::to_string(x);
}
task<int&> body_of_reference(scheduler& s, int& n) {
    const auto body = [&n](task_group&) -> task<int&> { co_return n; };
    auto whole = task_group::run(s, body);
    int& same = co_await std::move(whole);
    co_return same;
}
task<> body_that_throws(scheduler& s, std::atomic<int>& begun, std::atomic<int>& ended) {
    const auto body = [&](task_group& g) -> task<> {
        g.spawn([&]() -> task<> {
            ++begun;
            static_cast<void>(co_await counts_down(ended));
        });
        while (begun == 0) {
            co_await this_task::yield();
        }
        throw std::runtime_error("body");
    };
    auto whole = task_group::run(s, body);
    co_await std::move(whole);
}
task<> body_that_waits(scheduler& s, std::atomic<int>& begun, std::atomic<int>& ended,
                       const char* child_fails) {
    const auto body = [&](task_group& g) -> task<> {
        if (child_fails != nullptr) {
            g.spawn(fails_late(child_fails));
        }
        g.spawn([&]() -> task<> {
            ++begun;
            static_cast<void>(co_await counts_down(ended));
        });
        static_cast<void>(co_await counts_down(ended));
    };
    auto whole = task_group::run(s, body);
    co_await std::move(whole);
}
task<int> body_that_cancels(scheduler& s, bool waits) {
    const auto body = [waits](task_group& g) -> task<int> {
        g.spawn(stuck());
        g.cancel();
        if (waits) {
            co_await this_task::sleep_for(1h);
        }
        co_return 5;
    };
    auto whole = task_group::run(s, body);
    const int n = co_await std::move(whole);
    co_return n;
}

} // namespace

TEST_CASE("task_group: run returns the value of its body when all children have ended") {
    runner run(GENERATE(false, true));
    scheduler s(workers(1));
    std::atomic<int> x{0};
    CHECK(run(body_that_joins(s, x)) == "12");
    int n = 7;
    CHECK(&run(body_of_reference(s, n)) == &n);
}

TEST_CASE("task_group: run cancels and joins the children if its body throws") {
    runner run(GENERATE(false, true));
    scheduler s(few_threads());
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
    CHECK(what_of([&] { run(body_that_throws(s, begun, ended)); }) == "body");
    CHECK(ended == 1);
}

TEST_CASE("task_group: run cancels its body if a child fails, and throws that error") {
    runner run(GENERATE(false, true));
    scheduler s(workers(1));
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
    CHECK(what_of([&] { run(body_that_waits(s, begun, ended, "child")); }) == "child");
    CHECK(ended == begun + 1);
}

TEST_CASE("task_group: run cancels the body and the children if the awaiting task is cancelled") {
    const test::watchdog guard;
    scheduler s(few_threads());
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
    auto h = s.spawn(body_that_waits(s, begun, ended, nullptr));
    REQUIRE(test::eventually([&] { return begun == 1; }));
    CHECK(h.cancel());
    CHECK(what_of([&] { std::move(h).join(); }) == "stopped");
    CHECK(ended == 2);
}

TEST_CASE("task_group: run of a body that cancels the group returns its value, or is stopped") {
    runner run(GENERATE(false, true));
    scheduler s(workers(2));
    CHECK(run(body_that_cancels(s, false)) == 5);
    CHECK(what_of([&] { run(body_that_cancels(s, true)); }) == "stopped");
}

TEST_CASE(
    "task_group: run on a scheduler that was shut down is stopped, and the body never starts") {
    const test::watchdog guard;
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

namespace {

test::held awaits(task<> t) { co_await std::move(t); }

} // namespace

TEST_CASE(
    "task_group: if run is destroyed before its end, it cancels all members and waits for them") {
    const test::watchdog guard;
    scheduler s(workers(1));
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
    auto frame = awaits(body_that_waits(s, begun, ended, nullptr));
    frame.start();
    REQUIRE(test::eventually([&] { return begun == 1; }));
    frame.destroy();
    CHECK(ended == 2);
}
