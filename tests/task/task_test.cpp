#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>
#include <support/coroutines.hpp>
#include <support/counted.hpp>
#include <support/death.hpp>
#include <support/test.hpp>

using bide::executor_ref;
using bide::sync_wait;
using bide::task;

namespace {

task<int> number(int n) { co_return n; }
task<> nothing() { co_return; }
task<std::unique_ptr<int>> boxed(int n) { co_return std::make_unique<int>(n); }
task<int&> same(int& n) { co_return n; }
task<const std::string&> longer(const std::string& a, const std::string& b) {
    co_return a.size() < b.size() ? b : a;
}
task<int> fails(const char* why) {
    throw std::runtime_error(why);
    co_return 0;
}
task<> fails_without_value() {
    throw std::logic_error("why");
    co_return;
}

task<std::string> converted() { co_return "from a literal"; }

task<int> sum() {
    int n = 1;
    int& r = co_await same(n);
    r += co_await number(10);
    const auto box = co_await boxed(100);
    co_await nothing();
    co_return n + *box;
}

task<std::string> catches() {
    std::string said;
    try {
        co_await fails("inner");
    } catch (const std::runtime_error& e) {
        said = e.what();
    }
    co_return said + " and on";
}
task<int> lets_through() { co_return 1 + co_await fails("deep"); }

task<test::counted> counted_value(test::tally& t) { co_return test::counted(t, 5); }
task<int> drops(test::tally& t) {
    const test::counted value = co_await counted_value(t);
    co_return value.number();
}

task<> mark(bool& started, test::tally& t) {
    const test::counted local(t, 1);
    started = true;
    co_return;
}

task<> hold(bide::semaphore& s, test::tally& t) {
    const test::counted local(t, 1);
    const auto permit = co_await s.async_acquire();
}
test::held_on<test::manual_executor> await_hold(test::manual_executor&, bide::semaphore& s,
                                                test::tally& t, bool& done) {
    const test::counted local(t, 2);
    co_await hold(s, t);
    done = true;
}

task<int> sum_of_two(int n) { co_return co_await number(n) + co_await number(1); }
// Awaits such ready tasks, one after the other, and lets its thread wait between them if asked.
task<long> sums(int times, task<int> (*make)(int), bool thread_waits) {
    long total = 0;
    for (int i = 0; i < times; ++i) {
        total += thread_waits ? sync_wait(number(1)) : 0;
        total += co_await make(1);
    }
    co_return total;
}
test::held from_foreign(long& total) {
    for (int i = 0; i < 100'000; ++i) {
        total += co_await number(1);
    }
}

// co_await what_executor() returns the executor of the awaiting promise.
struct what_executor {
    what_executor() noexcept {}
    executor_ref named;
    bool await_ready() const noexcept { return false; }
    template <class Promise> bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        named = bide::executor_of(h.promise());
        return false;
    }
    executor_ref await_resume() const noexcept { return named; }
};

task<executor_ref> inner_executor() { co_return co_await what_executor(); }
task<bool> nested_has_the_same() {
    const executor_ref mine = co_await what_executor();
    const executor_ref childs = co_await inner_executor();
    co_return static_cast<bool>(mine) && mine == childs;
}
test::held_on<test::manual_executor> see_executor(test::manual_executor&, executor_ref& seen) {
    seen = co_await inner_executor();
}
test::held see_no_executor(executor_ref& seen) { seen = co_await inner_executor(); }

} // namespace

TEST_CASE("task: returns a value, a reference, a move-only value, or nothing") {
    CHECK(sync_wait(number(7)) == 7);
    CHECK(*sync_wait(boxed(8)) == 8);
    sync_wait(nothing());
    int n = 9;
    int& r = sync_wait(same(n));
    CHECK(&r == &n);
    const std::string a = "a";
    const std::string bb = "bb";
    CHECK(&sync_wait(longer(a, bb)) == &bb);
    STATIC_REQUIRE(std::is_same_v<decltype(sync_wait(same(n))), int&>);
    STATIC_REQUIRE(std::is_void_v<decltype(sync_wait(nothing()))>);
}

TEST_CASE("task: awaits tasks of all kinds of values") {
    CHECK(sync_wait(sum()) == 111);
    CHECK(sync_wait(converted()) == "from a literal");
}

TEST_CASE("task: an exception leaves the await of the task, and an awaiting task may catch it") {
    CHECK_THROWS_AS(sync_wait(fails_without_value()), std::logic_error);
    CHECK(sync_wait(catches()) == "inner and on");
    CHECK_THROWS_AS(sync_wait(lets_through()), std::runtime_error);
}

TEST_CASE("task: a value is moved, never copied, and destroyed as often as it is made") {
    test::tally t;
    CHECK(sync_wait(drops(t)) == 5);
    CHECK(sync_wait(counted_value(t)).number() == 5);
    CHECK(t.copied == 0);
    CHECK(t.made > 0);
    CHECK(t.alive() == 0);
}

TEST_CASE("task: does not start before it is awaited, and may be destroyed before that") {
    bool started = false;
    test::tally t;
    {
        [[maybe_unused]] const task<> dropped = mark(started, t);
        task<> moved = mark(started, t);
        moved = mark(started, t); // the old task is destroyed
    }
    CHECK_FALSE(started);
    CHECK(t.made == 0);
    sync_wait(mark(started, t));
    CHECK(started);
    CHECK(t.alive() == 0);
}

TEST_CASE("task: destroyed in its wait, it cancels the wait and destroys its locals") {
    bide::semaphore s(0);
    test::manual_executor e;
    test::tally t;
    bool done = false;
    {
        auto h = await_hold(e, s, t, done);
        h.start();
        CHECK(s.waiters() == 1);
        CHECK(t.alive() == 2);
    }
    CHECK(s.waiters() == 0);
    CHECK(t.alive() == 0);
    {
        auto h = await_hold(e, s, t, done);
        h.start();
        s.release(); // granted and posted, but not resumed
        CHECK(s.available() == 0);
        e.drop_all();
    }
    CHECK(s.available() == 1);
    CHECK(t.alive() == 0);
    CHECK_FALSE(done);
}

TEST_CASE("task: a million awaits of ready tasks use a bounded stack, in coroutines of any type",
          "[promise.ready-awaits-no-stack]") {
    CHECK(sync_wait(sums(1'000'000, &number, false)) == 1'000'000);
    CHECK(sync_wait(sums(200'000, &sum_of_two, false)) == 400'000);
    CHECK(sync_wait(sums(50'000, &number, true)) == 100'000);
    long total = 0;
    test::held h = from_foreign(total);
    h.start();
    CHECK(h.done());
    CHECK(total == 100'000);
}

TEST_CASE("task: passes its executor on to the tasks that it awaits") {
    CHECK(sync_wait(nested_has_the_same()));
    test::manual_executor e;
    executor_ref seen;
    auto h = see_executor(e, seen);
    h.start();
    CHECK(seen == executor_ref(e));
    {
        test::held n = see_no_executor(seen);
        n.start();
        CHECK_FALSE(static_cast<bool>(seen));
    }
}

#if BIDE_TESTS_CAN_DIE

namespace {

task<> awaits_one_that_has_gone() {
    task<> t = nothing();
    const task<> taken = std::move(t);
    co_await std::move(t);
}

} // namespace

TEST_CASE("task: an await of a task that was moved from terminates with a message") {
    const std::string awaited = test::dies([] { sync_wait(awaits_one_that_has_gone()); });
    CAPTURE(awaited);
    CHECK(test::contains(awaited, "bide: task awaited that was moved from"));
    const std::string run = test::dies([] {
        task<> t = nothing();
        const task<> taken = std::move(t);
        sync_wait(std::move(t));
    });
    CAPTURE(run);
    CHECK(test::contains(run, "bide: task run that was moved from"));
}

#endif

// The standard leaves this undefined. This is what the compilers of the tests do.
#if BIDE_TESTS_CAN_DIE && (defined(__GNUC__) || defined(__clang__))

namespace {

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wreturn-type"
#endif
task<std::string> value_on_one_path(bool has_value) {
    if (has_value) {
        co_return "value";
    }
}
task<int&> reference_on_one_path(int& n, bool has_value) {
    if (has_value) {
        co_return n;
    }
}
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

} // namespace

TEST_CASE("task: the value of a task that ends without co_return terminates with a message") {
    CHECK(sync_wait(value_on_one_path(true)) == "value");
    CHECK(test::contains(test::dies([] { static_cast<void>(sync_wait(value_on_one_path(false))); }),
                         "without co_return"));
    int n = 0;
    CHECK(&sync_wait(reference_on_one_path(n, true)) == &n);
    CHECK(test::contains(
        test::dies([&] { static_cast<void>(sync_wait(reference_on_one_path(n, false))); }),
        "without co_return"));
}

#endif
