#include <bide/task/with_deadline.hpp>

#include <bide/sched/join_set.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sync/event.hpp>
#include <support/coroutines.hpp>
#include <support/counted.hpp>
#include <support/rounds.hpp>
#include <support/simulated.hpp>
#include <support/tasks.hpp>

using bide::cancel_reason;
using bide::errc;
using bide::scheduler;
using bide::task;
using bide::with_deadline;
using bide::with_timeout;
using test::runner;
using test::what_of;
using test::workers;
namespace this_task = bide::this_task;

namespace {

task<int> gives(int value) {
    co_await this_task::yield();
    co_return value;
}
task<> does_nothing() { co_return; }
task<int> fails() {
    co_await this_task::yield();
    throw std::runtime_error("fails");
}
// Waits until it is cancelled, and notes why.
task<int> stuck(std::atomic<cancel_reason>& why) {
    bide::semaphore none(0);
    const auto got = co_await none.async_acquire().as_result();
    why = this_task::cancel_reason();
    if (!got) {
        throw bide::stopped_error();
    }
    co_return 0;
}
std::int64_t limit() { return this_task::deadline().steady_ns(); }
task<std::int64_t> limit_in_task() { co_return limit(); }

} // namespace

TEST_CASE(
    "with_deadline: returns the value of a task that ends in time, and throws its exception") {
    for (const bool pooled : {false, true}) {
        runner run(pooled);
        CHECK(run(with_timeout(gives(3), 1h)).value() == 3);
        CHECK(run(with_deadline(gives(4), std::chrono::steady_clock::now() + 1h)).value() == 4);
        CHECK(run(with_deadline(gives(5), std::chrono::system_clock::now() + 1h)).value() == 5);
        CHECK(run(with_deadline(gives(6), bide::deadline::never())).value() == 6);
        CHECK(run(with_timeout(does_nothing(), 1h)).has_value());
        const int captured = 7;
        const auto callable = [captured]() -> task<int> { co_return captured; };
        CHECK(run(with_timeout(callable, 1h)).value() == 7);
        CHECK(what_of([&] { static_cast<void>(run(with_timeout(fails(), 1h))); }) == "fails");
    }
}

TEST_CASE("with_deadline: cancels the task when the deadline has passed, with the reason timeout") {
    test::simulated run;
    std::atomic<cancel_reason> why{cancel_reason::none};
    CHECK(run.run_until(with_timeout(stuck(why), 2ms)).error() == errc::timeout);
    CHECK(why == cancel_reason::timeout);
    CHECK(run.now() == 2ms);
    const auto late = []() -> task<int> {
        bide::semaphore none(0);
        static_cast<void>(co_await none.async_acquire().as_result());
        co_return 9;
    };
    CHECK(run.run_until(with_timeout(late, 3ms)).value() == 9); // a late value is a value
    CHECK(run.now() == 5ms);
}

TEST_CASE("with_deadline: a deadline that has passed stops the first wait") {
    test::simulated run;
    std::atomic<cancel_reason> why{cancel_reason::none};
    for (const auto rest : {0ns, -1ns}) {
        CHECK(run.run_until(with_timeout(stuck(why), rest)).error() == errc::timeout);
        CHECK(why == cancel_reason::timeout);
        CHECK(run.now() == 0ns);
    }
}

TEST_CASE("with_deadline: of nested deadlines the earliest counts, and ends its own task",
          "[promise.deadlines-travel]") {
    test::simulated run;
    const auto now = bide::test::clock::now();
    const auto ns = [](std::chrono::steady_clock::time_point t) {
        return bide::deadline::at(t).steady_ns();
    };
    const auto early = now + 1h;
    const auto late = now + 2h;
    const auto nested = [&]() -> task<std::vector<std::int64_t>> {
        std::vector<std::int64_t> seen{limit()};
        seen.push_back((co_await with_deadline(limit_in_task(), early)).value());
        seen.push_back((co_await with_deadline(limit_in_task(), late)).value());
        seen.push_back(co_await limit_in_task());
        co_return seen;
    };
    const std::int64_t never = bide::deadline::never().steady_ns();
    using seen = std::vector<std::int64_t>;
    CHECK(run.run_until(nested()) == seen{never, ns(early), ns(late), never});
    CHECK(run.run_until(with_deadline(nested(), early)).value() ==
          seen{ns(early), ns(early), ns(early), ns(early)});
    CHECK(run.run_until(with_deadline(nested(), late)).value() ==
          seen{ns(late), ns(early), ns(late), ns(late)});
    CHECK(this_task::deadline().is_never());

    STATIC_REQUIRE(std::is_same_v<decltype(with_timeout(with_timeout(gives(1), 1h), 2h)),
                                  task<bide::result<int>>>);
    std::atomic<cancel_reason> why{cancel_reason::none};
    CHECK(run.run_until(with_timeout(with_timeout(stuck(why), 0h), 1h)).error() == errc::timeout);
    const auto outlives = [&](std::chrono::nanoseconds inner) -> task<int> {
        const auto got = co_await with_timeout(stuck(why), inner);
        co_return got ? 1 : 2;
    };
    CHECK(run.run_until(with_timeout(outlives(2ms), 1h)).value() == 2);
    CHECK(why == cancel_reason::timeout);
    CHECK(run.run_until(with_timeout(outlives(1h), 2ms)).error() == errc::timeout);
    CHECK(why == cancel_reason::parent);
    CHECK(run.now() == 4ms);
}

TEST_CASE("with_deadline: children inherit the deadline, and tasks that are spawned on a scheduler "
          "do not",
          "[promise.deadlines-travel]") {
    scheduler s(workers(2));
    const auto when = std::chrono::steady_clock::now() + 1h;
    const std::int64_t at = bide::deadline::at(when).steady_ns();
    const auto all = [&]() -> task<bool> {
        const auto both = co_await bide::when_all(limit_in_task(), limit_in_task());
        bool good = std::get<0>(both) == at && std::get<1>(both) == at;
        const auto any = co_await bide::when_any(limit_in_task(), limit_in_task());
        good = good && std::visit([&](std::int64_t seen) { return seen == at; }, any);
        const auto in_group = [](bide::task_group& g) -> task<std::int64_t> {
            std::int64_t child = 0;
            g.spawn([&child]() -> task<> {
                child = limit();
                co_return;
            });
            co_await g.async_join();
            co_return child == limit() ? child : -1;
        };
        good = good && co_await bide::task_group::run(s, in_group) == at;
        bide::join_set<std::int64_t> set(s);
        set.spawn(limit_in_task());
        const auto ended = co_await set.async_join_next();
        good = good && ended == at;
        const std::int64_t spawned = co_await s.spawn(limit_in_task()).async_join();
        co_return good&& spawned == bide::deadline::never().steady_ns();
    };
    CHECK(bide::sync_wait(s, with_deadline(all(), when)).value());
}

TEST_CASE("with_deadline: a time-out reaches the children of the task",
          "[promise.deadlines-travel]") {
    test::simulated run;
    std::atomic<cancel_reason> why[3] = {};
    const auto all = [&]() -> task<> {
        const auto in_group = [&](bide::task_group& g) -> task<> {
            g.spawn(stuck(why[2]));
            co_await g.async_join();
        };
        co_await bide::when_all(stuck(why[0]), stuck(why[1]), bide::task_group::run(run, in_group));
    };
    CHECK(run.run_until(with_timeout(all(), 2ms)).error() == errc::timeout);
    CHECK(run.now() == 2ms);
    for (const auto& one : why) {
        CHECK(one == cancel_reason::parent);
    }
}

TEST_CASE("with_deadline: another cancellation before the deadline is no time-out") {
    test::simulated run;
    std::atomic<cancel_reason> why{cancel_reason::none};
    auto h = run.spawn(with_timeout(stuck(why), 1h));
    run.run_ready();
    CHECK(h.cancel());
    CHECK(test::ended_by_stop(std::move(h)));
    CHECK(why == cancel_reason::parent);
    CHECK(run.now() == 0ns);
}

TEST_CASE("with_deadline: a shield keeps a time-out from the task until it ends") {
    test::simulated run;
    const auto shielded = []() -> task<bool> {
        bool early = true;
        {
            const this_task::shield held;
            co_await this_task::sleep_for(5ms);
            early = this_task::is_cancelled() || this_task::cancel_reason() != cancel_reason::none;
        }
        bide::semaphore none(0);
        const auto got = co_await none.async_acquire().as_result();
        co_return !early && !got && this_task::cancel_reason() == cancel_reason::timeout;
    };
    CHECK(run.run_until(with_timeout(shielded, 1ms)).value());
    CHECK(run.now() == 5ms);
}

TEST_CASE("with_deadline: if destroyed in its wait, its task gives back what it was granted") {
    test::tally t;
    bide::semaphore some(1);
    bide::event never;
    const auto holds = [&]() -> task<> {
        const test::counted local(t, 1);
        const auto held = co_await some.async_acquire();
        co_await never.async_wait();
    };
    const auto starts = [](const auto& f) -> test::held {
        static_cast<void>(co_await with_timeout(with_timeout(f, 1h), 2h));
    };
    for (int i = 0; i < 10; ++i) {
        test::held one = starts(holds);
        one.start();
        CHECK(some.available() == 0);
        CHECK(t.alive() == 1);
        one.destroy();
        CHECK(some.available() == 1);
        CHECK(t.alive() == 0);
    }
}
