#include <bide/sched/report.hpp>
#include <bide/sync/semaphore.hpp>
#include <support/sched.hpp>

using namespace bide;
using namespace test;

namespace {

task<> yields(int times) {
    for (int i = 0; i < times; ++i) {
        co_await this_task::yield();
    }
}
task<> waits(semaphore& s) { const auto permit = co_await s.async_acquire(); }

} // namespace

TEST_CASE("dump: shows the names that tasks have given themselves and their tags, and counts each "
          "name and tag apart",
          "[promise.task-tags][promise.task-names]") {
    const task_tag red("red");
    const task_tag quoted("q\"t");
    semaphore never(0);
    scheduler s(with(2, false));
    const auto renames = [&](const char* name) -> task<> {
        this_task::set_name(name);
        co_await waits(never);
    };
    std::vector<join_handle<>> all;
    all.push_back(s.spawn(waits(never).named("reader").tagged(red)));
    all.push_back(s.spawn(waits(never).named("reader"), {.tag = red}));
    all.push_back(s.spawn(waits(never).named("reader").tagged(quoted)));
    all.push_back(s.spawn(renames("reader").named("order")));
    all.push_back(s.spawn(renames(nullptr).named("nameless").tagged(red)));
    REQUIRE(test::has_waiters(never, 5));
    const std::string text = dump_of(s);
    INFO(text);
    CHECK(contains(text, "waiting tasks: 5\n"
                         "         1  unnamed, tag \"red\"\n"
                         "         1  \"reader\"\n"
                         "         1  \"reader\", tag \"q\\\"t\"\n"
                         "         2  \"reader\", tag \"red\"\n"));
    never.release(5);
    test::join_all(all);
}

TEST_CASE("dump: lists the names of the tasks that wait, with their numbers, and no others") {
    semaphore never(0);
    semaphore once(0);
    std::atomic<bool> end{false};
    scheduler s(with(2, false));
    std::vector<join_handle<>> waiting;
    for (int i = 0; i < 3; ++i) {
        waiting.push_back(s.spawn(waits(never).named("reader")));
    }
    waiting.push_back(s.spawn(waits(never).named("the \"other\"")));
    waiting.push_back(s.spawn(waits(never)));
    auto gone = s.spawn(waits(once).named("gone"));
    auto running = s.spawn([&]() -> task<> {
        return [](semaphore& first, std::atomic<bool>& last) -> task<> {
            const auto permit = co_await first.async_acquire();
            test::spin_until(last);
        }(once, end)
                                                                    .named("running");
    });
    auto no_worker_started = s.spawn(yields(0).named("ended"));
    REQUIRE(test::has_waiters(never, 5));
    REQUIRE(test::has_waiters(once, 2));
    once.release(2);
    REQUIRE(test::eventually([&] { return gone.done() && no_worker_started.done(); }));
    REQUIRE(test::eventually([&] { return once.waiters() == 0; }));

    const std::string text = dump_of(s);
    INFO(text);
    CHECK(contains(text, "waiting tasks: 5\n"));
    CHECK(contains(text, " 3  \"reader\"\n"));
    CHECK(contains(text, " 1  \"the \\\"other\\\"\"\n"));
    CHECK(contains(text, " 1  unnamed\n"));
    CHECK(!contains(text, "gone"));
    CHECK(!contains(text, "running"));
    CHECK(!contains(text, "ended"));
    CHECK(contains(text, "2 workers, 6 tasks of 8 left\n"));

    end = true;
    never.release(5);
    std::move(running).join();
    test::join_all(waiting);
    std::move(gone).join();
    s.shutdown();
    const std::string at_end = dump_of(s);
    INFO(at_end);
    CHECK(contains(at_end, "0 tasks of 8 left\n"));
    CHECK(contains(at_end, "waiting tasks: 0\n"));
}

TEST_CASE("dump: lists the states of the workers and the lengths of the queues") {
    semaphore sleeps(0);
    std::atomic<bool> end{false};
    scheduler_options wanted = with(1, false);
    wanted.max_blocking_threads = 1;
    scheduler s(std::move(wanted));
    CHECK(test::eventually(
        [&] { return contains(dump_of(s), "     0  asleep     0    0        0 "); }));
    CHECK(contains(dump_of(s), "global queue: 0; sleeping 1, searching 0\n"));
    CHECK(contains(dump_of(s), "blocking threads: 0, idle 0; queued for them 0\n"));
    CHECK(!contains(dump_of(s), "next timer"));

    // The thread pool's only thread, so that no thread replaces the worker that blocks.
    auto held = s.spawn_blocking([&] { sleeps.acquire(); });
    auto next = s.spawn_blocking([] {});
    CHECK(contains(dump_of(s), "blocking threads: 1, idle 0; queued for them 1\n"));
    auto blocked = s.spawn([&] { sleeps.acquire(); });
    REQUIRE(test::has_waiters(sleeps, 2));
    CHECK(test::eventually(
        [&] { return contains(dump_of(s), "     0  blocked    0    0        0 "); }));
    sleeps.release(2);
    std::move(held).join();
    std::move(next).join();
    std::move(blocked).join();

    std::string from_task;
    latch all(7);
    s.spawn([&] {
         for (int i = 0; i < 7; ++i) {
             s.spawn([&all] { all.count_down(); }).detach();
         }
         from_task = dump_of(s);
     }).join();
    all.wait();
    INFO(from_task);
    CHECK(contains(from_task, "     0  awake      1    6        0 "));

    latch runs(1);
    auto busy = s.spawn([&] {
        runs.count_down();
        test::spin_until(end);
    });
    runs.wait(); // so that its worker fetches no other task with it
    auto timed = s.spawn([]() -> task<> { co_await this_task::sleep_for(1h); });
    auto behind = s.spawn([] {});
    CHECK(test::eventually([&] { return contains(dump_of(s), "global queue: 2; "); }));
    end = true;
    std::move(busy).join();
    std::move(behind).join();
    CHECK(test::eventually([&] { return contains(dump_of(s), "next timer: in 3"); })); // 3.6e6 ms
    timed.cancel();
    s.shutdown();
    CHECK(contains(dump_of(s), "1 workers, 0 tasks of 14 left\n"));
}

TEST_CASE("dump: lists how many children of when_all wait in their worker's deque") {
    scheduler s(with(1, false));
    std::string texts[3];
    const auto child = [&](std::string& to) -> task<> {
        to = dump_of(s);
        co_return;
    };
    const auto parent = [&]() -> task<> {
        auto all = when_all(child(texts[0]), child(texts[1]), child(texts[2]));
        co_await std::move(all);
    };
    s.spawn(parent()).join();
    CHECK(contains(texts[0], "     0  awake      0    0        2 "));
    CHECK(contains(texts[1], "     0  awake      0    0        1 "));
    CHECK(contains(texts[2], "     0  awake      0    0        0 "));
    CHECK(contains(texts[2], "worker  state   lifo ring children"));
}

TEST_CASE("dump: any thread may call it at any time, while tasks rename themselves",
          "[promise.task-names]") {
    test::tally t;
    {
        scheduler s(test::each_of({2}));
        std::atomic<bool> over{false};
        std::atomic<bool> good{true};
        test::team others(2, [&](int) {
            while (!over) {
                if (!contains(dump_of(s), "waiting tasks: ")) {
                    good = false;
                }
            }
        });
        for (int round = 0; round < 40; ++round) {
            semaphore go(0);
            latch ended(20);
            std::vector<join_handle<>> made;
            for (int i = 0; i < 20; ++i) {
                made.push_back(s.spawn([&go, &ended, i, mine = test::counted(t, i)]() -> task<> {
                    this_task::set_name(i % 2 == 0 ? "even" : "odd");
                    this_task::set_tag(task_tag(i % 3 == 0 ? "third" : "other"));
                    const auto permit = co_await go.async_acquire();
                    this_task::set_name("renamed");
                    co_await this_task::sleep_for(10us);
                    ended.count_down();
                }));
            }
            if (round % 2 == 0) {
                s.spawn([&] { static_cast<void>(dump_of(s)); }).join();
            }
            go.release(20);
            for (auto& h : made) {
                if (round % 4 < 2) {
                    std::move(h).join();
                }
            }
            ended.wait();
            go.acquire(20); // all threads have left it
        }
        s.shutdown();
        over = true;
        others.join();
        CHECK(good);
    }
    CHECK(t.alive() == 0);
}

TEST_CASE("dump: without memory it throws, and keeps no reference") {
    if (!test::counts_allocations()) {
        return;
    }
    test::tally t;
    semaphore never(0);
    bool refused = false;
    {
        scheduler s(with(1, false));
        auto waiting = s.spawn([&never, mine = test::counted(t, 1)]() -> task<> {
            const auto permit = co_await never.async_acquire();
        });
        REQUIRE(test::has_waiters(never, 1));
        std::FILE* const to = std::tmpfile();
        REQUIRE(to != nullptr);
        std::fputs("buffered\n", to);
        {
            const test::out_of_memory none;
            try {
                dump(s, to);
            } catch (const std::bad_alloc&) {
                refused = true;
            }
        }
        CHECK(contains(test::read_all(to), "1 workers"));
        std::fclose(to);
        never.release();
        std::move(waiting).join();
    }
    CHECK(refused);
    CHECK(t.alive() == 0);
}
