#include <bide/channel/channel.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/this_task.hpp>
#include <support/alloc.hpp>
#include <support/counted.hpp>
#include <support/scheduling.hpp>
#include <support/simulated.hpp>
#include <support/tasks.hpp>
#include <support/waiting.hpp>

using bide::scheduler;
using bide::sync_wait;
using bide::task;
using bide::when_all;
using bide::when_any;
using test::fails;
using test::fails_late;
using test::runner;
using test::stuck;
using test::what_of;
using test::workers;
namespace this_task = bide::this_task;

namespace {

task<int> number(int n) { co_return n; }
task<> nothing() { co_return; }
task<bool> is_odd(int n) { co_return n % 2 != 0; }
task<std::unique_ptr<int>> boxed(int n) { co_return std::make_unique<int>(n); }
task<int&> same(int& n) { co_return n; }
task<int> slow(int n) {
    co_await this_task::sleep_for(1ms);
    co_return n;
}
task<> waits_for(bide::event& e) { co_await e.async_wait(); }

task<int> counts_its_end(int& ended, int wait_ms) {
    co_await this_task::sleep_for(std::chrono::milliseconds(wait_ms));
    ++ended;
    co_return 0;
}

task<test::counted_once> counted(test::tally& t, int n, bool waits) {
    const test::counted local(t, -n);
    if (waits) {
        co_await this_task::sleep_for(1ms);
    }
    co_return test::counted_once(t, n);
}
task<> awaits_counted(test::tally& t, bool waits, int& sum) {
    auto [a, b] = co_await when_all(counted(t, 1, waits), counted(t, 2, false));
    sum += a.number() + b.number();
    std::vector<task<test::counted_once>> more;
    more.push_back(counted(t, 4, waits));
    more.push_back(counted(t, 8, false));
    for (const test::counted_once& c : co_await when_all(std::move(more))) {
        sum += c.number();
    }
    auto first = co_await when_any(counted(t, 16, waits), counted(t, 16, true));
    sum += first.index() == 0 ? std::get<0>(first).number() : std::get<1>(first).number();
}
// The parameter counts as an instance, too.
task<test::counted_once> passes(test::counted_once c) { co_return std::move(c); }

task<bool> meets(std::atomic<int>& here) {
    ++here;
    co_return test::eventually([&here] { return here == 2; });
}
task<scheduler*> where() { co_return scheduler::current(); }
task<> looks_where(std::thread::id& on) {
    on = test::this_thread();
    co_return;
}
task<bool> comes_back(scheduler& s) {
    co_await when_all(slow(1), number(2));
    co_return scheduler::current() == &s;
}

task<> notes(test::journal& j, int who) {
    j.add(who);
    co_return;
}
task<> notes_after(bide::semaphore& s, test::journal& j, int who) {
    auto got = co_await s.async_acquire();
    got.forget();
    j.add(who);
}
task<> holds(bide::semaphore& from, test::tally& t, std::ptrdiff_t n) {
    const test::counted local(t, 1);
    const auto got = co_await from.async_acquire(n);
}
template <class Held, class S, class... Ts>
Held awaits_on(S&, std::thread::id& on, std::atomic<bool>& over, task<Ts>... tasks) {
    co_await when_all(std::move(tasks)...);
    on = test::this_thread();
    over = true;
}
template <class... Ts>
test::held awaits(std::thread::id& on, std::atomic<bool>& over, task<Ts>... tasks) {
    co_await when_all(std::move(tasks)...);
    on = test::this_thread();
    over = true;
}

test::held sees_no_task(bide::semaphore& from, test::journal& j, std::atomic<int>& seen) {
    co_await when_all(notes_after(from, j, 1));
    seen = this_task::get_stop_token() == std::stop_token() ? 1 : 2;
}
task<> releases(bide::semaphore& s) {
    s.release();
    co_return;
}

test::detached destroys(bide::semaphore& s, std::optional<test::held>& other) {
    auto got = co_await s.async_acquire();
    got.forget();
    other.reset();
}

task<bool> sees_it_go(test::tally& t) {
    const auto end = std::chrono::steady_clock::now() + test::patience / 2;
    while (t.alive() != 0 && std::chrono::steady_clock::now() < end) {
        co_await this_task::yield();
    }
    co_return t.alive() == 0;
}
task<> takes(test::counted_once c) {
    co_await this_task::yield();
    static_cast<void>(c);
}

struct child_report {
    bool saw_cancellation = false;
    bool ended = false;
};

// Waits. When the wait is stopped, records what it sees, and ends only when it is released.
task<int> reports(child_report& r, bide::event& may_end) {
    bide::semaphore none(0);
    const std::stop_token token = this_task::get_stop_token();
    const auto got = co_await none.async_acquire().as_result();
    r.saw_cancellation = !got && this_task::is_cancelled() && token.stop_requested();
    const this_task::shield held;
    co_await may_end.async_wait();
    r.ended = true;
    co_return 7;
}
// Counts in `stopped` if its task was cancelled before, and the wait is stopped.
task<> waits_cancelled(int& begun, int& stopped) {
    ++begun;
    const bool asked = this_task::is_cancelled() && this_task::get_stop_token().stop_requested();
    bide::semaphore none(0);
    const auto got = co_await none.async_acquire().as_result();
    stopped += asked && !got ? 1 : 0;
}
task<> leaves_token(std::stop_token& token) {
    token = this_task::get_stop_token();
    co_return;
}

task<> sets(std::atomic<bool>& flag) {
    flag = true;
    co_return;
}
task<> yields_until(std::atomic<bool>& flag) {
    while (!flag) {
        co_await this_task::yield();
    }
}
// Returns false if that takes longer than two later children may be kept from their start.
task<bool> composes_until(std::atomic<bool>& flag) {
    for (int i = 0; i < 2 * 4'096 * 64 && !flag; ++i) { // 64 times two children spend the budget
        co_await when_all(number(1), number(2));
    }
    co_return flag;
}
task<int> counts_moves(scheduler& other, scheduler& home) {
    int moves = 0;
    co_await other.schedule();
    moves += scheduler::current() == &other ? 1 : 0;
    co_await home.schedule();
    co_return moves + (scheduler::current() == &home ? 1 : 0);
}
task<int> ends_elsewhere(scheduler& other) {
    co_await other.schedule();
    co_return 1;
}
task<bool> awaits_one_that_leaves(scheduler& home, scheduler& other) {
    const auto [a, b, c] =
        co_await when_all(ends_elsewhere(other), counts_moves(other, home), ends_elsewhere(other));
    co_return a + b + c == 4 && scheduler::current() == &home;
}

task<long> many_in_a_row(int n) {
    long sum = 0;
    for (int i = 0; i < n; ++i) {
        const auto [a, b] = co_await when_all(number(1), number(2));
        sum += a + b;
    }
    co_return sum;
}
task<int> deep(int depth) {
    if (depth == 0) {
        co_return 0;
    }
    const auto got = co_await when_all(deep(depth - 1));
    co_return std::get<0>(got) + 1;
}
test::held runs_deep(int depth, int& result) { result = co_await deep(depth); }

task<int> started(test::counted_once parameter, std::atomic<int>& begun) {
    ++begun;
    co_return parameter.number();
}
test::held races(test::tally& t, std::atomic<int>& begun, int& winner) {
    const auto got = co_await when_any(started(test::counted_once(t, 7), begun),
                                       started(test::counted_once(t, 8), begun), fails("never"));
    winner = std::get<0>(got);
}

task<> passes_on(bide::channel<int>& from, bide::channel<int>& to, int& passes, const bool& over) {
    while (!over) {
        static_cast<void>(co_await from.async_recv());
        ++passes;
        static_cast<void>(co_await to.async_send(0)); // closed at the end
    }
    from.close();
}
task<int> sets(bide::event& e, const int& passes) {
    e.set();
    co_return passes;
}

struct inline_executor {
    void post(bide::runnable& r) noexcept { r.run.wake(); }
};
task<int> awaits_all(bide::semaphore& from) {
    int twice = 2;
    auto by_reference = [&twice]() -> task<int&> { co_return twice; };
    const auto [a, b, c, d] = co_await bide::await_all(number(1), by_reference, slow(3), nothing());
    static_cast<void>(d);
    std::vector<task<int>> some;
    some.push_back(number(4));
    some.push_back(slow(5));
    const std::vector<int> more = co_await bide::await_all(std::move(some));
    const auto permit = co_await from.async_acquire();
    co_return 1000 * a + 100 * (b + c) + 10 * more[0] + more[1] + (&b == &twice ? 0 : 1);
}

task<> awaits_all_that_fail(int& ended) {
    co_await bide::await_all(counts_its_end(ended, 3), fails("first"), fails_late("second"));
}

test::held holds_all(bide::semaphore& from, test::tally& t, int& sum) {
    auto waits = [&from, counted = test::counted(t, 2)]() -> task<int> {
        const auto permit = co_await from.async_acquire();
        co_return counted.number();
    };
    const auto [a, b] = co_await bide::await_all(std::move(waits), number(1));
    sum = a + b;
}

task<> acquires_on(inline_executor& where, bide::semaphore& from) {
    const auto permit = co_await from.async_acquire().resume_on(where);
}

} // namespace

TEST_CASE("when_all: returns values of any kind in argument order, and std::monostate for void") {
    runner run(GENERATE(false, true));
    auto got = run(when_all(number(1), nothing(), boxed(3), slow(4)));
    STATIC_REQUIRE(
        std::is_same_v<decltype(got), std::tuple<int, std::monostate, std::unique_ptr<int>, int>>);
    CHECK(std::get<0>(got) == 1);
    CHECK(*std::get<2>(got) == 3);
    CHECK(std::get<3>(got) == 4);
    int n = 5;
    CHECK(&std::get<0>(run(when_all(same(n)))) == &n);
    CHECK(run(when_all()) == std::tuple<>());
}

TEST_CASE(
    "when_all: returns one value for each task of a vector, in order; none for an empty one") {
    runner run(GENERATE(false, true));
    std::vector<task<int>> tasks;
    std::vector<task<bool>> odd;
    std::vector<task<>> silent;
    for (int i = 0; i < 50; ++i) {
        tasks.push_back(i % 7 == 0 ? slow(i) : number(i));
        odd.push_back(is_odd(i));
        silent.push_back(nothing());
    }
    const std::vector<int> got = run(when_all(std::move(tasks)));
    const std::vector<bool> bits = run(when_all(std::move(odd)));
    REQUIRE(got.size() == 50);
    REQUIRE(bits.size() == 50);
    for (int i = 0; i < 50; ++i) {
        CHECK(got[static_cast<std::size_t>(i)] == i);
        CHECK(bits[static_cast<std::size_t>(i)] == (i % 2 != 0));
    }
    CHECK(run(when_all(std::move(silent))).size() == 50);
    CHECK(run(when_all(std::vector<task<int>>())).empty());
}

TEST_CASE(
    "when_all: runs all children to their ends, then throws the first error in argument order",
    "[promise.when-ends-after-children]") {
    runner run(GENERATE(false, true));
    int ended[3] = {};
    CHECK(what_of([&] {
              run(when_all(counts_its_end(ended[0], 3), fails_late("second"), fails("third"),
                           counts_its_end(ended[1], 5)));
          }) == "second");
    CHECK(ended[0] == 1);
    CHECK(ended[1] == 1);
    std::vector<task<int>> tasks;
    tasks.push_back(counts_its_end(ended[2], 3));
    tasks.push_back(fails_late("late"));
    tasks.push_back(fails("at once"));
    CHECK(what_of([&] { run(when_all(std::move(tasks))); }) == "late");
    CHECK(ended[2] == 1);
}

TEST_CASE("compose: values are moved, never copied, and destroyed as often as they are made") {
    runner run(GENERATE(false, true));
    test::tally t;
    for (const bool waits : {false, true}) {
        int sum = 0;
        run(awaits_counted(t, waits, sum));
        CHECK(sum == 31);
        CHECK(t.alive() == 0);
    }
    CHECK(what_of([&] { run(when_all(counted(t, 1, true), fails("x"), counted(t, 2, false))); }) ==
          "x");
    CHECK(std::get<0>(run(when_all(passes(test::counted_once(t, 9))))).number() == 9);
    // This one is never awaited.
    static_cast<void>(when_all(counted(t, 1, true), passes(test::counted_once(t, 9))));
    static_cast<void>(when_any(counted(t, 1, true), passes(test::counted_once(t, 9))));
    CHECK(t.made > 0);
    CHECK(t.copied == 0);
    CHECK(test::eventually([&] { return t.alive() == 0; })); // what is left of the last one
}

TEST_CASE(
    "when_all: of ten thousand children, some ready, some late and some that throw, all end") {
    runner run(GENERATE(false, true));
    std::vector<task<int>> ready;
    std::vector<task<int>> late;
    for (int i = 0; i < 10'000; ++i) {
        ready.push_back(number(1));
        late.push_back(i == 5'000 ? fails_late("one of them") : slow(1));
    }
    CHECK(run(when_all(std::move(ready))) == std::vector<int>(10'000, 1));
    CHECK(what_of([&] { run(when_all(std::move(late))); }) == "one of them");
}

TEST_CASE("await_all: does what when_all does, in the frame of the awaiting coroutine") {
    runner run(GENERATE(false, true));
    bide::semaphore one(1);
    CHECK(run(awaits_all(one)) == 1545);
    int ended = 0;
    CHECK(what_of([&] { run(awaits_all_that_fail(ended)); }) == "first");
    CHECK(ended == 1);
    test::tally t;
    for (const bool ends : {false, true}) {
        bide::semaphore none(0);
        int sum = 0;
        test::held h = holds_all(none, t, sum);
        h.start();
        CHECK(t.alive() > 0);
        if (ends) {
            none.release();
        }
        h.destroy();
        CHECK(sum == (ends ? 3 : 0));
        CHECK(t.alive() == 0);
    }
    scheduler s(workers(1));
    auto waits = s.spawn([]() -> task<> { co_await bide::await_all(stuck(), stuck()); });
    s.shutdown();
    CHECK(what_of([&] { std::move(waits).join(); }) == "stopped");
}

TEST_CASE("when_all: children run in parallel on the scheduler of the awaiting task") {
    scheduler s(workers(2));
    std::atomic<int> here{0};
    CHECK(sync_wait(s, when_all(meets(here), meets(here))) == std::tuple(true, true));
    CHECK(sync_wait(s, when_all(where(), where())) == std::tuple(&s, &s));
    CHECK(sync_wait(s, comes_back(s)));
    std::thread::id on[2];
    sync_wait(when_all(looks_where(on[0]), looks_where(on[1])));
    CHECK(on[0] == std::this_thread::get_id());
    CHECK(on[1] == std::this_thread::get_id());
}

TEST_CASE("when_all: without executor the children run on the awaiting thread, in argument order") {
    test::journal j;
    std::thread::id on;
    std::atomic<bool> over{false};
    test::held h = awaits(on, over, notes(j, 1), notes(j, 2), notes(j, 3));
    h.start();
    CHECK(over);
    CHECK(on == std::this_thread::get_id());
    CHECK(j.entries() == std::vector<int>{1, 2, 3});
}

TEST_CASE("when_all: without executor, child and parent resume on the releasing thread") {
    test::journal j;
    bide::semaphore first(0);
    bide::semaphore last(0);
    std::thread::id on;
    std::atomic<bool> over{false};
    test::held h = awaits(on, over, notes_after(last, j, 1), notes_after(first, j, 2));
    h.start();
    first.release();
    CHECK(j.entries() == std::vector<int>{2});
    CHECK_FALSE(over);
    std::thread other([&] { last.release(); });
    const std::thread::id expected = other.get_id();
    other.join();
    CHECK(over);
    CHECK(on == expected);
    CHECK(j.entries() == std::vector<int>{2, 1});
}

TEST_CASE("when_all: a child that a task resumes by a release is no part of that task") {
    scheduler s(workers(1));
    bide::semaphore permits(0);
    test::journal j;
    std::atomic<int> seen{0};
    test::held h = sees_no_task(permits, j, seen);
    h.start();
    sync_wait(s, releases(permits));
    CHECK(seen == 1);
}

TEST_CASE("when_all: the children are posted to the executor of the awaiting promise") {
    test::manual_executor where;
    test::journal j;
    std::thread::id on;
    std::atomic<bool> over{false};
    using held = test::held_on<test::manual_executor>;
    held h = awaits_on<held>(where, on, over, notes(j, 1), notes(j, 2));
    h.start();
    CHECK(j.size() == 0);
    CHECK(where.size() == 2);
    while (where.run_one() && j.size() < 2) {
    }
    CHECK_FALSE(over);
    CHECK(where.run_all() == 1);
    CHECK(over);
}

TEST_CASE("when_all: if destroyed in its wait, its children give back what they were granted") {
    const bool granted = GENERATE(false, true);
    bide::semaphore s(0);
    test::manual_executor where;
    test::journal j;
    test::tally t;
    std::thread::id on;
    std::atomic<bool> over{false};
    {
        test::held h = awaits(on, over, notes_after(s, j, 1), notes_after(s, j, 2), holds(s, t, 5));
        h.start();
        CHECK(s.waiters() == 3);
        if (granted) {
            s.release(); // the first child has ended, and its frame is destroyed
            CHECK(j.size() == 1);
        }
        h.destroy();
    }
    CHECK(s.waiters() == 0);
    CHECK(s.available() == 0);
    CHECK(t.alive() == 0);
    CHECK(j.size() == (granted ? 1 : 0));
    CHECK_FALSE(over);
}

TEST_CASE("when_all: neither parent nor child resumes after the parent was destroyed") {
    const bool child_has_run = GENERATE(false, true);
    bide::semaphore s(0);
    test::journal j;
    std::thread::id on;
    std::atomic<bool> over{false};
    std::optional<test::held> h;
    // One release grants both children, which resume in order.
    if (!child_has_run) {
        destroys(s, h);
    }
    h.emplace(awaits(on, over, notes_after(s, j, 1)));
    h->start();
    if (child_has_run) {
        destroys(s, h);
    }
    s.release(2);
    CHECK_FALSE(h);
    CHECK_FALSE(over);
    CHECK(j.size() == (child_has_run ? 1 : 0));
    CHECK(s.available() == (child_has_run ? 0 : 1));
}

TEST_CASE("when_all: the frame of a child is destroyed when it ends, not when all have ended") {
    runner run(GENERATE(false, true));
    test::tally t;
    auto both = when_all(takes(test::counted_once(t, 1)), sees_it_go(t));
    CHECK(std::get<1>(run(std::move(both))));
}

TEST_CASE("when_all: cancels the children of a cancelled parent, and waits until they have ended") {
    test::simulated run;
    child_report a;
    child_report b;
    bide::event may_end;
    auto h = run.spawn(when_all(reports(a, may_end), reports(b, may_end)));
    run.run_ready();
    CHECK(h.cancel());
    run.run_ready();
    CHECK(a.saw_cancellation);
    CHECK(b.saw_cancellation);
    CHECK_FALSE(h.done());
    may_end.set();
    CHECK(std::move(h).join() == std::tuple(7, 7));
    CHECK(a.ended);
    CHECK(b.ended);
}

TEST_CASE("when_all: a shield of a child is for that child alone") {
    test::simulated run;
    bide::event e;
    child_report other;
    const auto shielded = [&e]() -> task<bool> {
        const this_task::shield held;
        co_await e.async_wait();
        co_return this_task::is_cancelled();
    };
    auto h = run.spawn(when_all(shielded, reports(other, e)));
    run.run_ready();
    CHECK(h.cancel());
    run.run_ready();
    CHECK(other.saw_cancellation);
    CHECK_FALSE(h.done());
    e.set();
    CHECK(std::move(h).join() == std::tuple(false, 7));
}

TEST_CASE("when_all: children of a cancelled task start, and their first wait is stopped") {
    test::simulated run;
    int begun = 0;
    int stopped = 0;
    auto h = run.spawn([&]() -> task<> {
        static_cast<void>(co_await this_task::sleep_for(1h).as_result());
        co_await when_all(waits_cancelled(begun, stopped), waits_cancelled(begun, stopped));
    });
    run.run_ready();
    CHECK(h.cancel());
    std::move(h).join();
    CHECK(begun == 2);
    CHECK(stopped == 2);
}

TEST_CASE("when_all: a cancellation does not stop the token of a child that has ended") {
    test::simulated run;
    std::stop_token token;
    child_report other;
    bide::event may_end(true);
    auto h = run.spawn(when_all(leaves_token(token), reports(other, may_end)));
    run.run_ready();
    CHECK(h.cancel());
    std::move(h).join();
    CHECK(other.saw_cancellation);
    CHECK_FALSE(token == std::stop_token()); // the child has started
    CHECK_FALSE(token.stop_requested());
}

TEST_CASE("when_all: a child in place that only asks, or has a stop token, sees a cancellation") {
    scheduler s(workers(1));
    for (const bool has_token : {false, true}) {
        std::atomic<bool> asks{false};
        const auto child = [&]() -> task<> {
            const std::stop_token token =
                has_token ? this_task::get_stop_token() : std::stop_token();
            asks = true;
            while (!(has_token ? token.stop_requested() : this_task::is_cancelled())) {
                std::this_thread::yield();
            }
            co_return;
        };
        auto h = s.spawn([&] { return when_all(number(1), when_all(nothing(), when_all(child))); });
        while (!asks) {
            std::this_thread::yield();
        }
        CHECK(h.cancel());
        std::move(h).join();
    }
}

TEST_CASE("when_all: the shutdown of the scheduler ends it") {
    scheduler s(workers(2));
    auto waits = s.spawn([] { return when_all(stuck(), when_all(stuck(), stuck())); });
    auto races = s.spawn([] { return when_any(stuck(), stuck()); });
    s.shutdown();
    CHECK(what_of([&] { std::move(waits).join(); }) == "stopped");
    CHECK(what_of([&] { std::move(races).join(); }) == "stopped");
}

TEST_CASE("when_all: a child may wait for a later one, however it waits, beside busy tasks or not",
          "[promise.when-all-starts-later]") {
    scheduler s(workers(1));
    std::atomic<bool> flag{false};
    sync_wait(s, when_all(when_all(yields_until(flag), sets(flag))));
    for (const int busy : {0, 1, 2, 1}) {
        flag = false;
        std::atomic<bool> over{false};
        s.spawn([] {
         }).join(); // so the turns of a task are the even ones of the worker, or the odd ones
        std::vector<bide::join_handle<bool>> others;
        for (int i = 0; i < busy; ++i) {
            others.push_back(s.spawn(composes_until(over)));
        }
        const auto [inner, last] = sync_wait(
            s, when_all(when_all(composes_until(flag), number(1), sets(flag)), number(2)));
        CHECK(std::get<0>(inner));
        over = true;
        test::join_all(others);
    }
}

TEST_CASE("when_all: resumes on its scheduler after a child that ends on another one") {
    scheduler s(workers(2));
    scheduler other(workers(1));
    for (int i = 0; i < 200; ++i) {
        CHECK(s.spawn(awaits_one_that_leaves(s, other)).join());
    }
}

TEST_CASE("when_all: 200,000 ready children, in sequence or nested, use a bounded stack") {
    runner run(GENERATE(false, true));
    CHECK(run(many_in_a_row(100'000)) == 300'000);
    CHECK(run(deep(100'000)) == 100'000);
    int result = 0;
    test::held without_executor = runs_deep(100'000, result);
    without_executor.start();
    CHECK(result == 100'000);
}

TEST_CASE("when_all: allocates only frames") {
    if (!test::counts_allocations()) {
        return;
    }
    CHECK(sync_wait(many_in_a_row(10)) == 30);
    const std::size_t before = test::allocations_here();
    CHECK(sync_wait(many_in_a_row(10)) == 30);
    const std::size_t after = test::allocations_here();
    CHECK(after - before <= (BIDE_RECYCLE_FRAMES != 0 ? 0 : 10 * 3 + 1));
}

TEST_CASE("when_any: returns the value and the index of the first child that ends") {
    runner run(GENERATE(false, true));
    const auto got = run(when_any(stuck(), slow(2), stuck(), boxed(3)));
    CHECK((got.index() == 3 ? *std::get<3>(got) == 3 : std::get<1>(got) == 2));
    const auto silent = run(when_any(nothing()));
    STATIC_REQUIRE(std::is_same_v<decltype(silent), const std::variant<std::monostate>>);
    const auto late = run(when_any(stuck(), slow(2)));
    CHECK(late.index() == 1);
    CHECK(std::get<1>(late) == 2);
    std::vector<task<int>> tasks;
    for (int i = 0; i < 50; ++i) {
        tasks.push_back(i == 33 ? slow(i) : stuck());
    }
    CHECK(run(when_any(std::move(tasks))) == std::pair<std::size_t, int>(33, 33));
}

TEST_CASE("when_any: where one thread runs the children, the first one that is ready wins",
          "[promise.when-any-first]") {
    const auto winner = []() -> task<std::size_t> {
        const auto two = co_await when_any(number(1), number(2));
        const auto four = co_await when_any(stuck(), number(1), number(2), number(3));
        co_return 10 * two.index() + four.index();
    };
    scheduler s(workers(1));
    bide::run_loop loop;
    for (int i = 0; i < 10; ++i) { // whatever the worker has run before
        CHECK(sync_wait(s, winner()) == 1);
        CHECK(s.spawn(winner(), {.priority = bide::task_priority::high}).join() == 1);
        CHECK(loop.run_until(winner()) == 1);
        CHECK(sync_wait(winner()) == 1);
    }
}

TEST_CASE("when_any: throws the error of the first child to end") {
    runner run(GENERATE(false, true));
    CHECK(what_of([&] { run(when_any(stuck(), fails("a"))); }) == "a");
    CHECK(what_of([&] { run(when_any(fails_late("b"), stuck(), stuck())); }) == "b");
    std::vector<task<int>> tasks;
    tasks.push_back(stuck());
    tasks.push_back(fails("c"));
    CHECK(what_of([&] { run(when_any(std::move(tasks))); }) == "c");
}

TEST_CASE("when_all, when_any: of a container that is no vector, and of a view") {
    std::list<task<int>> some;
    std::deque<task<int>> others;
    for (const int n : {1, 2, 3}) {
        some.push_back(number(n));
        others.push_back(number(n));
    }
    CHECK(sync_wait(when_all(std::move(some))) == std::vector<int>{1, 2, 3});
    CHECK(sync_wait(when_any(std::move(others))).second > 0);
    struct view { // which makes its tasks, without std's, which clang 14 does not compile
        struct iterator {
            int n;
            task<int> operator*() const { return number(n); }
            iterator& operator++() { return ++n, *this; }
            bool operator==(const iterator&) const = default;
        };
        iterator begin() const { return {4}; }
        iterator end() const { return {7}; }
    };
    CHECK(sync_wait(when_all(view())) == std::vector<int>{4, 5, 6});
}

TEST_CASE("when_any: of an empty vector throws std::invalid_argument") {
    CHECK_THROWS_AS(sync_wait(when_any(std::vector<task<int>>())), std::invalid_argument);
}

TEST_CASE("when_any: cancels the losers and waits for them, and drops what they throw",
          "[promise.when-ends-after-children]") {
    test::simulated run;
    const auto reluctant = []() -> task<int> {
        bide::semaphore none(0);
        static_cast<void>(co_await none.async_acquire().as_result());
        const this_task::shield held;
        co_await this_task::sleep_for(1h);
        throw std::logic_error("a late error");
    };
    const auto got = run.run_until(when_any(reluctant, slow(5)));
    CHECK(got.index() == 1);
    CHECK(std::get<1>(got) == 5);
    CHECK(run.now() == 1h + 1ms);
}

TEST_CASE("when_all: a child starts when its sibling waits, however busy its worker is",
          "[promise.when-all-children]") {
    int passes = 0;
    bool over = false;
    std::deque<bide::channel<int>> ways;
    scheduler s(test::with(1, false));
    const int late = s.spawn([&]() -> task<int> {
                          std::vector<bide::join_handle<>> all;
                          for (int i = 0; i < 20; ++i) { // pairs that wake each other for ever
                              auto& a = ways.emplace_back(1);
                              auto& b = ways.emplace_back(1);
                              all.push_back(s.spawn(passes_on(a, b, passes, over)));
                              all.push_back(s.spawn(passes_on(b, a, passes, over)));
                              static_cast<void>(a.try_send(0));
                          }
                          while (passes < 1'000) {
                              co_await this_task::yield();
                          }
                          bide::event e;
                          const int before = passes;
                          const auto both = co_await when_all(waits_for(e), sets(e, passes));
                          over = true;
                          for (auto& each : all) {
                              co_await std::move(each).async_join();
                          }
                          co_return std::get<1>(both) - before;
                      }).join();
    CHECK(late <= 1'000); // a round of the pairs, or two
}

TEST_CASE("when_all: its task does not go on inside a release that resumes a child elsewhere",
          "[promise.when-all-children]") {
    bool releasing = false;
    bool inside = true;
    inline_executor where;
    bide::semaphore permits(0);
    scheduler s(test::with(1, false));
    auto parent = s.spawn([&]() -> task<> {
        co_await when_all(acquires_on(where, permits), nothing());
        inside = releasing;
    });
    s.spawn([&]() -> task<> {
         while (permits.waiters() == 0) {
             co_await this_task::yield();
         }
         releasing = true;
         permits.release();
         releasing = false;
     }).join();
    std::move(parent).join();
    CHECK_FALSE(inside);
}

TEST_CASE("when_any: a child that has lost before its start never starts") {
    test::tally t;
    std::atomic<int> begun{0};
    int winner = 0;
    {
        test::held h = races(t, begun, winner);
        h.start(); // the children run in order on this thread
        CHECK(h.done());
    }
    CHECK(winner == 7);
    CHECK(begun == 1);
    CHECK(t.alive() == 0);
}

#if BIDE_TESTS_CAN_DIE
TEST_CASE("compose: a child that was moved from terminates with a message") {
    const std::string said = test::dies([] {
        task<int> t = number(1);
        task<int> other = std::move(t);
        static_cast<void>(sync_wait(when_all(std::move(t), std::move(other))));
    });
    CHECK(test::contains(said, "moved from"));
}
#endif
