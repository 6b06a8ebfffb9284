#include <bide/core/async_op.hpp>

#include <support/takers.hpp>
#include <support/test.hpp>

// Coroutines that are destroyed while they wait.

using namespace test;

namespace {

held take_and_destroy(tokens& t, std::optional<held>& victim, bool& ran) {
    const auto token = co_await t.async_take();
    victim.reset();
    ran = true;
}

// Runs each runnable inside post().
struct inline_executor {
    void post(bide::waker w) noexcept { w.wake(); }
};

held take_on_and_destroy(inline_executor& e, tokens& t, std::optional<held>& victim, bool& ran) {
    const auto token = co_await t.async_take().resume_on(e);
    victim.reset();
    ran = true;
}
held take_on_until_stopped_and_destroy(inline_executor& e, tokens& t, std::stop_token stop,
                                       std::optional<held>& victim, bool& stopped) {
    const auto token = co_await t.async_take().with_stop(stop).resume_on(e);
    victim.reset();
    stopped = !token.has_value();
}
held take_on_and_stop(inline_executor& e, tokens& t, std::stop_source& stop) {
    const auto token = co_await t.async_take().resume_on(e);
    stop.request_stop();
}

} // namespace

TEST_CASE("async_op: a coroutine that is destroyed while it yields has tried nothing") {
    using local = bide::worker_local<bide::native_platform>;
    tokens t(1);
    manual_executor e;
    outcome first;
    outcome second;
    auto h = take_on(e, t, first);
    auto other = take_on(e, t, second);
    {
        const bide::task_budget<bide::native_platform> spent(local::get(), true);
        h.start();
        other.start();
    }
    CHECK(e.size() == 2);
    CHECK(t.available() == 1);
    e.run_all();
    CHECK(first.is_granted());
    CHECK(second.is_granted());
    CHECK(t.available() == 1);

    outcome out;
    auto victim = take_on(e, t, out);
    {
        const bide::task_budget<bide::native_platform> spent(local::get(), true);
        victim.start();
    }
    e.drop_all();
    victim.destroy();
    CHECK_FALSE(out.done);
    CHECK(t.available() == 1);
    CHECK(t.waiters() == 0);
}

TEST_CASE("async_op: a coroutine may destroy coroutines that wait before and after it") {
    tokens t(0);
    tokens other(0);
    bool ran = false;
    outcome out;
    std::optional<held> victim;
    held killer = take_and_destroy(t, victim, ran);
    victim.emplace(take(other, out));
    killer.start();
    victim->start();
    t.give();
    CHECK(ran);
    CHECK(other.waiters() == 0);
    other.give();
    CHECK_FALSE(out.done);
}

TEST_CASE("async_op: a coroutine that resumes in a release may destroy another of that release") {
    tokens t(0);
    inline_executor here;
    bool ran = false;
    outcome out;
    outcome last;
    std::optional<held> victim;
    held killer = take_on_and_destroy(here, t, victim, ran);
    const bool posts = GENERATE(false, true);
    manual_executor e;
    if (posts) {
        victim.emplace(take(t, out));
    } else {
        victim.emplace([](inline_executor& on, tokens& from, outcome& note) -> held {
            const auto token = co_await from.async_take().as_result().resume_on(on);
            note.note(token);
        }(here, t, out));
    }
    held survivor = take(t, last);
    killer.start();
    victim->start();
    survivor.start();
    t.give(2); // the survivor gets the token of the destroyed one
    CHECK(ran);
    CHECK_FALSE(out.done);
    CHECK(last.is_granted());
    CHECK(t.available() == 2);
}

TEST_CASE("async_op: a coroutine resumed by a stop may destroy one of the surrounding release") {
    tokens t(0);
    tokens never(0);
    inline_executor here;
    std::stop_source stop;
    std::optional<held> victim;
    outcome out;
    bool stopped = false;
    victim.emplace(take(t, out));
    held stopping = take_on_and_stop(here, t, stop);
    held killer = take_on_until_stopped_and_destroy(here, never, stop.get_token(), victim, stopped);
    killer.start();
    victim->start();
    stopping.start();
    t.give(2);
    CHECK(stopped);
    CHECK_FALSE(out.done);
    CHECK(stopping.done());
    CHECK(t.available() == 2);
}

TEST_CASE("async_op: to destroy a granted coroutine takes constant time") {
    constexpr std::size_t many = 100'000;
    tokens t(0);
    std::deque<std::optional<held>> victims;
    outcome out;
    held killer = [](tokens& from, std::deque<std::optional<held>>& all) -> held {
        const auto token = co_await from.async_take();
        while (!all.empty()) {
            all.pop_back();
        }
    }(t, victims);
    killer.start();
    for (std::size_t i = 0; i < many; ++i) {
        victims.emplace_back(take(t, out)).value().start();
    }
    t.give(static_cast<int>(many) + 1);
    CHECK(killer.done());
    CHECK_FALSE(out.done);
    CHECK(t.available() == static_cast<int>(many) + 1);
}
