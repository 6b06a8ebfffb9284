#include <bide/core/async_op.hpp>
#include <support/takers.hpp>
#include <support/test.hpp>

// Where a coroutine resumes after its wait.

using namespace test;

namespace {

std::thread::id here() { return std::this_thread::get_id(); }

// Blocks its thread until it gets a token of another primitive.
held take_and_block(tokens& t, tokens& until, outcome& out) {
    const auto token = co_await t.async_take().as_result();
    const bide::wait_status what = until.take_until(bide::deadline::never());
    out.note(token);
    out.granted = what == bide::wait_status::granted;
}
held take_and_give(tokens& t, tokens& to, outcome& out) {
    const auto token = co_await t.async_take().as_result();
    out.note(token);
    to.give();
}

test::held_on<manual_executor> take_there(manual_executor&, manual_executor& there, tokens& t,
                                          outcome& out, bool late) {
    if (late) {
        const auto token = co_await t.async_take().with_timeout(1h).resume_on(there);
        out.note(token);
    } else {
        const auto token = co_await t.async_take().resume_on(there).with_timeout(1h);
        out.note(token);
    }
}

// Runs each runnable inside post().
struct inline_executor {
    void post(bide::waker w) noexcept { w.wake(); }
};

test::held_on<inline_executor> pass_and_wait(inline_executor&, tokens& t, tokens& to, tokens& until,
                                             outcome& out) {
    const auto token = co_await t.async_take().as_result();
    to.give();
    out.granted = until.take_until(bide::deadline::never()) == bide::wait_status::granted;
    out.done = true;
}

} // namespace

TEST_CASE("async_op: of two released together, one that blocks does not delay the next",
          "[promise.resume-in-release]") {
    tokens t(0);
    tokens until(0);
    outcome first;
    outcome second;
    outcome third;
    held a = take_and_block(t, until, first);
    held b = take_and_give(t, until, second);
    held c = take(t, third);
    a.start();
    b.start();
    c.start();
    t.give(3);
    test::service_thread();
    CHECK(first.is_granted());
    CHECK(second.is_granted());
    CHECK(third.is_granted());
    CHECK(t.available() == 3);
    CHECK(first.on == here());
    CHECK(second.on_resumer);
}

TEST_CASE("async_op: the promise's executor, by reference or by pointer, resumes it") {
    tokens t(0);
    manual_executor e;
    outcome by_reference;
    outcome by_pointer;
    auto a = take_on(e, t, by_reference);
    auto b = take_on(&e, t, by_pointer);
    a.start();
    b.start();
    t.give(2);
    CHECK(e.size() == 2);
    CHECK_FALSE(by_reference.done);
    CHECK(e.run_all() == 2);
    CHECK(by_reference.is_granted());
    CHECK(by_pointer.is_granted());
}

TEST_CASE("async_op: a promise that names no executor is as one without") {
    tokens t(0);
    outcome out;
    auto h = take_on(static_cast<manual_executor*>(nullptr), t, out);
    h.start();
    t.give();
    CHECK(out.is_granted());
}

TEST_CASE("async_op: resume_on overrides the promise's executor, in every position",
          "[promise.resume-on-executor]") {
    for (const bool late : {false, true}) {
        tokens t(0);
        manual_executor own;
        manual_executor there;
        outcome out;
        auto h = take_there(own, there, t, out, late);
        h.start();
        t.give();
        CHECK(own.size() == 0);
        CHECK(there.run_all() == 1);
        CHECK(out.is_granted());
    }
}

TEST_CASE("async_op: a coroutine that waits on a worker resumes on that worker's executor") {
    tokens t(0);
    manual_executor worker;
    outcome out;
    held h = take(t, out);
    auto& state = bide::native_platform::near_local<bide::detail::resume_state>();
    state.worker = bide::executor_ref(worker);
    h.start();
    state.worker = {};
    t.give();
    CHECK_FALSE(out.done);
    CHECK(worker.run_all() == 1);
    CHECK(out.is_granted());
}

TEST_CASE("async_op: the executor resumes a coroutine that another thread released") {
    tokens t(0);
    outcome out;
    std::optional<test::thread_executor> e(std::in_place);
    const std::thread::id expected = e->id();
    auto h = take_on(*e, t, out);
    h.start();
    t.give();
    e.reset(); // it runs all posted runnables before it ends
    CHECK(out.is_granted());
    CHECK(out.on == expected);
}

TEST_CASE("async_op: coroutines that an executor resumes in post() need little stack",
          "[promise.waker-stack]") {
    tokens t(0);
    inline_executor here;
    outcome out;
    std::deque<test::held_on<inline_executor>> all;
    for (int i = 0; i < 100'000; ++i) {
        all.emplace_back(take_on(here, t, out)).start(); // gives the token to the next one
    }
    t.give();
    CHECK(std::all_of(all.begin(), all.end(), [](auto& h) { return h.done(); }));
    CHECK(t.available() == 1);
}

TEST_CASE("async_op: one that an executor resumes in post() may block for one that it released") {
    tokens t(0);
    tokens other(0);
    tokens until(0);
    inline_executor here;
    outcome first;
    outcome second;
    auto a = pass_and_wait(here, t, other, until, first);
    auto b = take_and_give(other, until, second);
    a.start();
    b.start();
    t.give();
    test::service_thread(); // it has resumed b
    CHECK(first.is_granted());
    CHECK(second.is_granted());
}
