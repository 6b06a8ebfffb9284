#include <bide/sched/chrome_trace.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sched/task_group.hpp>
#include <support/coroutines.hpp>
#include <support/file_waits.hpp>
#include <support/sched.hpp>
#include <support/text.hpp>

#if defined(__linux__)
#include <bide/io/epoll_driver.hpp>
#include <bide/sync/event.hpp>

#include <unistd.h>
#endif

// A loop on the caller's own thread: what it runs, when each of its functions returns, and its end.

using namespace bide;
using bide::this_task::yield;

namespace {

task<int> number(int n) { co_return n; }

test::detached ask(int& to) { to = co_await number(7); }
// Asks with more stack in use than a transfer allows (core/resume.hpp).
void ask_from_deep(int& to) {
    volatile char used[8'192];
    used[0] = 0;
    ask(to);
    used[1] = used[0];
}

task<> note(std::vector<int>& order, int n, int rounds) {
    for (int i = 0; i < rounds; ++i) {
        order.push_back(n);
        co_await yield();
    }
}

task<> take(semaphore& from, int& taken) {
    auto permit = co_await from.async_acquire();
    permit.forget();
    ++taken;
}

// Ends with stopped_error if it is cancelled.
task<> wait_for_ever(event& never, bool& was_stopped) {
    was_stopped = !(co_await never.async_wait().as_result()).has_value();
}

// A test with a loop.
struct on_loop {
    run_loop loop;
};

// Counts the events. A loop has one thread.
struct recorder final : trace_sink {
    void ran(unsigned worker, const char* task, task_tag tag, std::int64_t begin,
             std::int64_t end) noexcept override {
        ok = ok && worker == 0 && begin <= end;
        names.push_back(task != nullptr ? task : "");
        tags.push_back(tag);
    }
    void parked(unsigned worker, std::int64_t begin, std::int64_t end) noexcept override {
        ok = ok && worker == 0 && begin <= end;
        ++sleeps;
    }
    void stole(unsigned, unsigned, std::int64_t) noexcept override { ok = false; }

    bool ok = true;
    int sleeps = 0;
    std::vector<std::string> names;
    std::vector<task_tag> tags;
};

} // namespace

TEST_CASE_METHOD(on_loop,
                 "run_loop: runs coroutines, functions, and functions that return coroutines, here",
                 "[promise.run-loop-thread]") {
    const auto here = std::this_thread::get_id();
    int elsewhere = 0;
    const auto look = [&] { elsewhere += std::this_thread::get_id() == here ? 0 : 1; };
    auto one = loop.spawn(number(1));
    auto two = loop.spawn([&] {
        look();
        return 2;
    });
    auto three = loop.spawn([&look, x = std::make_unique<int>(3)]() -> task<int> {
        look();
        co_await yield();
        look();
        co_return *x;
    });
    CHECK(loop.tasks() == 3);
    CHECK_FALSE(one.done());
    CHECK(loop.run() == 4); // the third one was resumed once
    CHECK(loop.tasks() == 0);
    CHECK(std::move(one).join() == 1);
    CHECK(std::move(two).join() == 2);
    CHECK(std::move(three).join() == 3);
    CHECK(elsewhere == 0);
}

TEST_CASE_METHOD(on_loop, "run_loop: runs tasks in the order in which they became runnable") {
    std::vector<int> order;
    for (int n = 0; n < 3; ++n) {
        loop.spawn(note(order, n, 2)).detach();
    }
    loop.run();
    CHECK(order == std::vector{0, 1, 2, 0, 1, 2});
}

TEST_CASE_METHOD(on_loop, "run_loop: runs what is posted, and what waits on it to move there") {
    int woken = 0;
    loop.post(waker([](void* n) noexcept { ++*static_cast<int*>(n); }, &woken));
    CHECK(woken == 0);
    CHECK(loop.run() == 1);
    CHECK(woken == 1);

    scheduler other(test::with(1, false));
    const auto here = std::this_thread::get_id();
    bool moved = false;
    auto moves = other.spawn([&]() -> task<> {
        co_await loop.schedule();
        moved = std::this_thread::get_id() == here;
    });
    while (!moved) {
        loop.run_for(1ms);
    }
    std::move(moves).join(); // it ended on a worker of its own scheduler
}

TEST_CASE_METHOD(
    on_loop,
    "run_loop: a task that never waits lets other tasks, timers and posts have their turns") {
    bool told[3] = {};
    loop.spawn([&]() -> task<> {
            while (!told[0] || !told[1] || !told[2]) {
                co_await yield();
            }
        })
        .detach();
    loop.spawn([&] { told[0] = true; }).detach();
    loop.spawn([&]() -> task<> {
            co_await this_task::sleep_for(1ms);
            told[1] = true;
        })
        .detach();
    std::thread other([&] { loop.spawn([&] { told[2] = true; }).detach(); });
    loop.run();
    other.join();
    CHECK(loop.tasks() == 0);
}

TEST_CASE_METHOD(
    on_loop,
    "run_loop: operations that are ready spend a task's budget, so other tasks get their turns") {
    semaphore permits(1);
    bool stop = false;
    int rounds = 0;
    loop.spawn([&]() -> task<> {
            while (!stop) {
                const auto permit = co_await permits.async_acquire();
                ++rounds;
            }
        })
        .detach();
    loop.spawn([&] { stop = true; }).detach();
    loop.run();
    CHECK(rounds > 0);
}

TEST_CASE_METHOD(
    on_loop,
    "run_loop: the children of when_all run in argument order, in place if none of them waits",
    "[promise.run-loop-when-all]") {
    std::vector<int> order;
    const auto twice = [&](int n) -> task<> {
        co_await when_all(note(order, 10 * n, 0), note(order, 10 * n + 1, 1));
        order.push_back(n);
    };
    const auto root = [&]() -> task<> { co_await when_all(twice(1), twice(2), note(order, 3, 1)); };
    loop.spawn(note(order, 0, 1)).detach();
    auto all = loop.spawn(root());
    loop.run();
    // The first child waits: what it has forked, and then the other children, are queued in their order.
    CHECK(order == std::vector{0, 11, 21, 3, 1, 2});
    std::move(all).join();

    int ended = 0;
    const auto ready = [&]() -> task<> {
        ++ended;
        co_return;
    };
    const auto in_place = [&]() -> task<> { co_await when_all(ready, ready, ready, ready); };
    loop.spawn(in_place).detach();
    CHECK(loop.run() == 1); // one run for the task and its children
    CHECK(ended == 4);
}

TEST_CASE_METHOD(on_loop, "run_loop: children in place let other tasks run, however many there are",
                 "[promise.run-loop-when-all]") {
    constexpr int size = 10'000;
    int ended = 0;
    int turns = 0;
    const auto child = [&]() -> task<> {
        ++ended;
        co_return;
    };
    const auto root = [&]() -> task<> {
        std::vector<task<>> children;
        for (int i = 0; i < size; ++i) {
            children.push_back(child());
        }
        co_await when_all(std::move(children));
    };
    const auto other = [&]() -> task<> {
        while (ended < size) {
            ++turns;
            co_await yield();
        }
    };
    loop.run_until(root()); // alone: it pauses, and goes on at once
    CHECK(ended == size);
    ended = 0;
    loop.spawn(other()).detach();
    loop.spawn(root()).detach();
    loop.run();
    CHECK(ended == size);
    CHECK(turns > size / 256);
}

TEST_CASE_METHOD(
    on_loop, "run_loop: a child of when_all may wait for a later one by awaiting ready children",
    "[promise.when-all-starts-later]") {
    const bool beside_another = GENERATE(false, true);
    bool told = false;
    const auto composes = [&]() -> task<bool> {
        for (int i = 0; i < 2 * 4'096 * 64 && !told; ++i) {
            co_await when_all(number(1), number(2));
        }
        co_return told;
    };
    const auto tells = [&]() -> task<> {
        told = true;
        co_return;
    };
    if (beside_another) {
        loop.spawn(composes()).detach();
    }
    const auto [was_told, one, rest] = loop.run_until(when_all(composes(), number(1), tells()));
    CHECK(was_told);
    loop.run(); // the other one ends, too
}

TEST_CASE_METHOD(on_loop, "run_loop: children in place wait, fail and are cancelled as elsewhere",
                 "[promise.run-loop-when-all]") {
    event never;
    bool stopped = false;
    const auto fails = []() -> task<> {
        co_await yield();
        throw std::runtime_error("failed");
    };
    const auto any = [&]() -> task<> {
        co_await when_any(when_all(wait_for_ever(never, stopped), number(1)), fails());
    };
    CHECK_THROWS_AS(loop.run_until(any()), std::runtime_error);
    CHECK(stopped);

    stopped = false;
    const auto all = [&]() -> task<> {
        co_await when_all(number(1), wait_for_ever(never, stopped), number(2));
    };
    auto handle = loop.spawn(all());
    loop.poll();
    handle.cancel();
    loop.run();
    CHECK(handle.done());
    CHECK(stopped);
}

TEST_CASE_METHOD(
    on_loop,
    "run_loop: a child in place that blocks the loop in a group lets the other children run",
    "[promise.run-loop-when-all]") {
    event go;
    int sum = 0;
    const auto blocks = [&]() -> task<> {
        task_group group(loop);
        const auto child = [&]() -> task<> {
            co_await go.async_wait();
            sum += 1;
        };
        group.spawn(child);
        co_return;
    };
    const auto sets = [&]() -> task<> {
        go.set();
        sum += 10;
        co_return;
    };
    const auto root = [&]() -> task<> { co_await when_all(blocks, sets); };
    loop.run_until(root());
    CHECK(sum == 11);
}

TEST_CASE_METHOD(on_loop, "run_loop: poll() runs what is runnable and does not wait",
                 "[promise.run-loop-thread]") {
    semaphore permits(0);
    int taken = 0;
    loop.spawn(take(permits, taken)).detach();
    loop.spawn(take(permits, taken)).detach();
    CHECK(loop.poll() == 2);
    CHECK(loop.poll() == 0);
    permits.release();
    CHECK(taken == 0); // nothing runs between two calls
    CHECK(loop.poll() == 1);
    CHECK(taken == 1);
    CHECK(loop.tasks() == 1);
    permits.release();
    loop.run();
    CHECK(taken == 2);
    CHECK(loop.run() == 0); // no task is left
}

TEST_CASE_METHOD(
    on_loop,
    "run_loop: run_for() and run_until() end at their times, and the tasks go on in the next "
    "call") {
    semaphore permits(0);
    int taken = 0;
    loop.spawn(take(permits, taken)).detach();
    const auto begin = std::chrono::steady_clock::now();
    loop.run_for(2ms);
    CHECK(std::chrono::steady_clock::now() >= begin + 2ms);
    loop.run_until(std::chrono::steady_clock::now() + 1ms);
    loop.run_until(std::chrono::system_clock::now() - 1h);
    CHECK(loop.tasks() == 1);
    bool yields = true;
    loop.spawn([&]() -> task<> {
            while (yields) {
                co_await yield();
            }
        })
        .detach();
    CHECK(loop.run_for(2ms) > 1); // although a task is always runnable
    yields = false;
    permits.release();
    CHECK(loop.run_for(1h) > 0);
    CHECK(taken == 1);
}

TEST_CASE_METHOD(on_loop,
                 "run_loop: run_until() a task returns its value or throws its exception") {
    semaphore permits(0);
    int taken = 0;
    loop.spawn(take(permits, taken)).detach();
    CHECK(loop.run_until(number(7)) == 7);
    loop.stop(); // run_until() a task does not end by this, and leaves it to the next run
    CHECK(loop.run_until([&]() -> task<int> {
        permits.release();
        co_await this_task::sleep_for(1ms);
        co_return taken;
    }()) == 1);
    CHECK_THROWS_AS(loop.run_until([]() -> task<int> {
        co_await yield();
        throw std::runtime_error("no number");
    }()),
                    std::runtime_error);
    CHECK(loop.tasks() == 0);
    loop.spawn([&] { permits.release(); }).detach();
    CHECK(loop.run() == 0); // stopped
    CHECK(loop.run() == 1);
}

TEST_CASE_METHOD(on_loop, "run_loop: stop() ends the run that is under way, or the next one") {
    event never;
    bool was_stopped = false;
    loop.spawn(wait_for_ever(never, was_stopped)).detach();
    loop.stop();
    loop.run();
    std::atomic<bool> begun{false};
    loop.spawn([&] { begun = true; }).detach();
    std::thread other([&] {
        test::eventually([&] { return begun.load(); });
        loop.stop();
    });
    loop.run();
    other.join();
    CHECK(loop.tasks() == 1);
    CHECK_FALSE(was_stopped);
    never.set();
    loop.run();
    CHECK(loop.tasks() == 0);
}

TEST_CASE("run_loop: a task of one loop may run another loop") {
    run_loop outer;
    run_loop inner;
    const int n = outer.run_until([&]() -> task<int> {
        int sum = 0;
        for (int i = 0; i < 3; ++i) {
            sum += inner.run_until(number(i));
            co_await yield();
        }
        co_return sum;
    }());
    CHECK(n == 3);
}

TEST_CASE("run_loop: in a loop inside of a task, what any code resumes runs at once") {
    run_loop outer;
    run_loop inner;
    int answer = 0;
    const int answer_inside = outer.run_until([&]() -> task<int> {
        inner.spawn([&answer] { ask_from_deep(answer); }).detach();
        inner.run();
        co_return answer;
    }());
    CHECK(answer_inside == 7);
}

TEST_CASE("run_loop: a scheduler's task may run a loop, and another thread takes its worker over") {
    scheduler s(test::with(1, false));
#if defined(__linux__)
    epoll_driver io;
    run_loop loop({.io = GENERATE(true, false) ? &io : nullptr}); // in which it may sleep
#else
    run_loop loop;
#endif
    semaphore permits(0);
    auto runs = s.spawn([&] {
        int taken = 0;
        loop.run_until(take(permits, taken));
        return taken;
    });
    s.spawn([&] { permits.release(); }).join(); // the only worker sleeps in the loop
    CHECK(std::move(runs).join() == 1);
}

TEST_CASE("run_loop: a scheduler's task that runs a loop stays off the worker that it has lost") {
    scheduler s(test::with(1, false));
    std::atomic<bool> over{false};
    const auto churn = [&]() -> task<> {
        while (!over) {
            co_await yield();
            co_await this_task::sleep_for(10us);
        }
    };
    auto churns = s.spawn(churn());
    const auto naps = []() -> task<int> {
        int n = 0;
        for (; n < 5; ++n) {
            co_await this_task::sleep_for(20us); // another thread takes the worker over
        }
        co_return n;
    };
    auto runs = s.spawn([&]() -> task<int> {
        run_loop loop;
        int sum = 0;
        for (int i = 0; i < 50; ++i) {
            sum += loop.run_until(naps());
            co_await this_task::sleep_for(1us);
        }
        co_return sum;
    });
    CHECK(std::move(runs).join() == 250);
    over = true;
    std::move(churns).join();
}

#if defined(__linux__)
TEST_CASE("run_loop: waits for files in its driver, and is woken there") {
    epoll_driver io;
    run_loop loop({.io = &io});
    const test::ends line = test::ends::pipe(0);
    semaphore permits(0);
    char got = 0;
    loop.spawn([&]() -> task<> {
            co_await io.async_wait_readable(line.in);
            got = ::read(line.in, &got, 1) == 1 ? got : '?';
            permits.release(); // to the thread
        })
        .detach();
    int taken = 0;
    semaphore more(0);
    loop.spawn(take(more, taken)).detach();
    std::thread other([&] {
        line.put();
        permits.acquire();
        more.release(); // to a task, while the loop may sleep in the driver
    });
    loop.run();
    other.join();
    CHECK(got == 'x');
    CHECK(taken == 1);
    CHECK_THROWS_AS(run_loop({.io = &io}), std::system_error);
}
#endif

TEST_CASE("run_loop: its destructor cancels the tasks that wait, and those that have not begun",
          "[promise.run-loop-destructor]") {
    event never;
    bool was_stopped = false;
    test::tally t;
    std::optional<join_handle<int>> unbegun;
    {
        run_loop loop;
        loop.spawn(wait_for_ever(never, was_stopped)).detach();
        loop.poll();
        loop.spawn([mine = test::counted(t, 1)]() -> task<> { co_await yield(); }).detach();
        unbegun = loop.spawn([] { return 5; });
    }
    CHECK(was_stopped);
    CHECK(t.alive() == 0);
    CHECK(std::move(*unbegun).join() == 5); // it was queued, and a function does not wait
}

TEST_CASE("run_loop: exceptions that no handle asks for go to on_unhandled") {
    int told = 0;
    run_loop loop({.on_unhandled = [&](std::exception_ptr) { ++told; }});
    loop.spawn([] { throw std::runtime_error("unasked"); }).detach();
    loop.run();
    CHECK(told == 1);
}

TEST_CASE("run_loop: dump() shows the number of tasks and the names of those that wait",
          "[promise.run-loop-reports]") {
    event never;
    bool was_stopped = false;
    run_loop loop;
    loop.spawn(wait_for_ever(never, was_stopped).named("waits")).detach();
    loop.poll();
    const std::string said = test::dump_of(loop);
    INFO(said);
    CHECK(test::contains(said, "run_loop: 1 tasks of 1 left"));
    CHECK(test::contains(said, "state: not run by any thread; queued by other threads: 0"));
    CHECK(test::contains(said, "waits"));
    std::string in_task;
    loop.spawn([&] { in_task = test::dump_of(loop); }).detach();
    loop.poll();
    CHECK(test::contains(in_task, "state: awake"));
}

TEST_CASE("run_loop: a trace gets its runs with the names of the tasks, and its sleeps",
          "[promise.run-loop-reports]") {
    const task_tag red("red");
    // The loop does not sleep for a time that has passed before it is about to.
    CHECK(test::in_some_time(1ms, [&](auto rest) {
        recorder trace;
        run_loop loop({.trace = &trace});
        const auto sleeps = [rest]() -> task<> { co_await this_task::sleep_for(rest); };
        loop.spawn(number(1).named("one").tagged(red)).detach();
        loop.post(waker([](void*) noexcept {}, nullptr));
        loop.spawn(sleeps().named("sleeps")).detach();
        loop.run();
        CHECK(trace.ok);
        if (trace.sleeps == 0) {
            return false;
        }
        CHECK(trace.names == std::vector<std::string>{"one", "", "sleeps", "sleeps"});
        CHECK(trace.tags == std::vector<task_tag>{red, {}, {}, {}});
        return true;
    }));
}

#if BIDE_TESTS_CAN_DIE
TEST_CASE("run_loop: a task that runs its own loop terminates the program, with a message") {
    const std::string said = test::dies([] {
        run_loop loop;
        loop.spawn([&] { loop.poll(); }).detach();
        loop.run();
    });
    CHECK(test::contains(said, "a run_loop must not be run by two threads, nor by one of its own"));
}

TEST_CASE("run_loop: one that is destroyed before a wait that is to resume on it terminates",
          "[promise.home-outlives-tasks]") {
    const auto said_with = [](int released) {
        return test::dies([released] {
            semaphore s(0);
            run_loop home, other;
            home.spawn([&]() -> task<> {
                    for (int i = 0; i < 2; ++i) {
                        (co_await s.async_acquire().resume_on(other)).forget();
                    }
                })
                .detach();
            home.poll();
            s.release(released);
        });
    };
    CHECK(test::contains(said_with(0), "destroyed while tasks are to resume on it: 1"));
    CHECK(test::contains(said_with(1), "destroyed while tasks are to resume on it: 1"));
    CHECK(test::contains(said_with(2), "[it lives on]"));
}
#endif
