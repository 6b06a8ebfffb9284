#include <bide/sched/task_group.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/strand.hpp>
#include <bide/task/with_deadline.hpp>
#include <bide/test/scheduler.hpp>
#include <support/coroutines.hpp>
#include <support/death.hpp>
#include <support/test.hpp>

// How a simulation ends, early or late: at its limits, at a wait of the test itself, at a misuse.

using bide::task;
using bide::test::scheduler;
using bide::test::simulation_error;
using bide::test::simulation_options;
using bide::this_task::sleep_for;
using bide::this_task::yield;

namespace {

task<> sleep(std::chrono::nanoseconds rest) { co_await sleep_for(rest); }
task<> wait_for(bide::event& e) { co_await e.async_wait(); }
task<> fail() {
    co_await yield();
    throw std::domain_error("fails");
}

template <class F> std::string what_of(F f) {
    try {
        f();
    } catch (const std::exception& e) {
        return e.what();
    }
    return {};
}

} // namespace

TEST_CASE("test scheduler: after a limit its tasks still end") {
    for (const std::uint64_t most : {std::uint64_t{10}, std::uint64_t{1} << 63}) {
        simulation_options how{.seed = 3};
        how.max_steps = most;
        int ended = 0;
        const auto work = [](int& count) -> task<> {
            struct counts {
                int& ended;
                ~counts() { ++ended; }
            } on_end{count};
            co_await sleep_for(1h);
        };
        {
            scheduler s(how);
            for (int i = 0; i < 100; ++i) {
                s.spawn(work(ended)).detach();
            }
            const std::string what = what_of([&] { s.run_ready(); });
            REQUIRE((most == 10) == (what.find("max_steps reached") != std::string::npos));
        }
        REQUIRE(ended == (most == 10 ? ended : 100));
    }
}

TEST_CASE("test scheduler: the clock has an end, and does not go back") {
    simulation_options how{.seed = 3};
    how.max_time = std::chrono::nanoseconds::max();
    scheduler s(how);
    auto sleeper = s.spawn(sleep(1h));
    s.run_for(-1h);
    s.run_for(std::chrono::hours::min());
    REQUIRE(s.now() == 0ns);
    s.run_ready();
    s.advance(std::chrono::hours::max());
    s.advance(1ns);
    const auto end = s.run(); // and no timer is due for ever
    REQUIRE(end.all_ended());
    REQUIRE(end.time > 24h * 365 * 200);
    for (int i = 0; i < 200'000; ++i) {
        static_cast<void>(bide::test::clock::now());
    }
    REQUIRE(s.now() >= end.time);
}

TEST_CASE("test scheduler: run_for() of an outer one goes by its own clock") {
    scheduler outer({.seed = 1});
    scheduler inner({.seed = 2});
    inner.advance(1h);
    outer.run_for(1s);
    REQUIRE(outer.now() == 1s);
    REQUIRE(inner.now() == 1h);
}

TEST_CASE("test scheduler: the tasks run while the test waits, and the time passes") {
    scheduler s;
    auto sleeper = s.spawn(sleep(1h));
    std::move(sleeper).join();
    REQUIRE(s.now() == 1h);

    bide::semaphore none(0);
    REQUIRE_FALSE(none.try_acquire_for(2h));
    REQUIRE(s.now() == 3h);

    const auto release = [](bide::semaphore& to) -> task<> {
        co_await sleep_for(5min);
        to.release();
    };
    s.spawn(release(none)).detach();
    REQUIRE(none.try_acquire_for(2h));
    REQUIRE(s.now() == 3h + 5min);

    bide::event from_thread; // without tasks the thread sleeps
    std::thread setter([&] { from_thread.set(); });
    from_thread.wait();
    setter.join();
}

TEST_CASE("test scheduler: a coroutine that is part of no task is simulated, too") {
    scheduler s;
    const auto waits = [](bide::event& on) -> task<bool> {
        co_return (co_await on.async_wait().with_timeout(2h)).has_value();
    };
    const auto is_limited = [](bide::event& on) -> task<bool> {
        auto work = bide::with_timeout(wait_for(on), 1h);
        co_return (co_await std::move(work)).has_value();
    };
    bide::event e;
    REQUIRE_FALSE(bide::sync_wait(waits(e)));
    REQUIRE(s.now() == 2h);
    REQUIRE_FALSE(bide::sync_wait(is_limited(e)));
    REQUIRE(s.now() == 3h);
    const auto set = [](bide::event& one) -> task<> {
        co_await sleep_for(1s);
        one.set();
    };
    s.spawn(set(e)).detach();
    REQUIRE(bide::sync_wait(waits(e)));
    REQUIRE(s.now() == 3h + 1s);
}

TEST_CASE("test scheduler: a strand that is destroyed runs what was posted, also after a limit") {
    simulation_options how{.seed = 3};
    how.max_steps = 1;
    int ran = 0;
    scheduler s(how);
    {
        bide::strand one(s);
        const auto count = [](int& to) -> task<> {
            ++to;
            co_return;
        };
        s.spawn(one.run(count(ran))).detach();
        REQUIRE_THROWS_AS(s.run(), simulation_error);
    }
    REQUIRE(ran == 1);
}

TEST_CASE("test scheduler: while a group is waited for, an exception of another task is kept") {
    scheduler s;
    s.spawn(fail()).detach();
    {
        bide::task_group group(s);
        group.spawn(sleep(1s));
        group.join();
    }
    REQUIRE_THROWS_AS(s.run(), std::domain_error);
}

TEST_CASE("test scheduler: a report of many tasks has a bounded text") {
    bide::event never;
    scheduler s;
    for (int i = 0; i < 60; ++i) {
        s.spawn(wait_for(never)).detach();
    }
    const auto end = s.run();
    REQUIRE(end.tasks.size() == 60);
    REQUIRE(end.text().find("60 tasks left\n  task 1 waits") != std::string::npos);
    REQUIRE(end.text().find("task 50 waits\n  and 10 more") != std::string::npos);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("test scheduler: a misuse ends the program, and says which") {
    const auto said = [](std::function<void(scheduler&)> misuse,
                         simulation_options how = {.seed = 6}) {
        return test::dies([&] {
            scheduler s(how);
            misuse(s);
        });
    };
    REQUIRE(test::contains(said([](scheduler& s) { s.advance(-1s); }), "cannot go back"));
    REQUIRE(test::contains(said([](scheduler&) { bide::test::choose("a way", 0); }),
                           "choose() has nothing to choose from; seed 6"));

    scheduler* outer = nullptr;
    simulation_options how{.seed = 6};
    how.before_step = [&](std::uint64_t) { outer->run(); };
    REQUIRE(test::contains(said(
                               [&](scheduler& s) {
                                   outer = &s;
                                   s.spawn(sleep(1s)).detach();
                                   s.run();
                               },
                               how),
                           "or by before_step; seed 6"));

    REQUIRE(test::contains(test::dies([] {
                               std::optional<scheduler> first(simulation_options{.seed = 6});
                               scheduler second({.seed = 7});
                               first.reset();
                           }),
                           "destroyed before one that its thread made later; seed 6"));
    REQUIRE(test::contains(test::dies([] {
                               std::optional<scheduler> s(simulation_options{.seed = 6});
                               std::thread([&] { s.reset(); }).join();
                           }),
                           "destroyed by another thread"));
    const auto waits = [](bide::event& on) -> test::detached {
        static_cast<void>(co_await on.async_wait().with_timeout(2h));
    };
    REQUIRE(test::contains(said([&](scheduler&) {
                               static bide::event never;
                               waits(never);
                           }),
                           "a coroutine that is part of no task waits for a time; seed 6"));
}

TEST_CASE("test scheduler: what waits for ever at the end is named, with the last steps") {
    const auto shielded = [](bide::event& on) -> task<> {
        const bide::this_task::shield until_the_end;
        co_await on.async_wait();
    };
    const std::string said = test::dies([&] {
        bide::event never;
        scheduler s({.seed = 6});
        s.spawn(shielded(never).named("stubborn")).detach();
        s.run();
    });
    INFO(said);
    REQUIRE(test::contains(said, "waits for ever; seed 6"));
    REQUIRE(test::contains(said, "task 1 'stubborn' waits\nthe last steps:\nseed 6\n"));

    const std::string waits = test::dies([&] {
        bide::event never;
        scheduler s({.seed = 6});
        auto task = s.spawn(wait_for(never).named("reader"));
        std::move(task).join();
    });
    INFO(waits);
    REQUIRE(test::contains(waits, "the test waits for ever"));
    REQUIRE(test::contains(waits, "task 1 'reader' waits"));
}

TEST_CASE(
    "test scheduler: an exception of a task that it cancels at its end is printed with the seed") {
    const auto cleans_up = [](bide::event& on) -> task<> {
        bool is_stopped = false;
        try {
            co_await on.async_wait();
        } catch (const bide::stopped_error&) {
            is_stopped = true;
        }
        if (is_stopped) {
            throw std::domain_error("in the clean-up");
        }
    };
    const std::string said = test::dies([&] {
        bide::event never;
        scheduler s({.seed = 6});
        s.spawn(cleans_up(never)).detach();
        s.run();
    });
    INFO(said);
    REQUIRE(test::contains(said, "test::scheduler, seed 6: a task that no handle asks for threw"));
    REQUIRE(test::contains(said, "in the clean-up"));
}

#endif
