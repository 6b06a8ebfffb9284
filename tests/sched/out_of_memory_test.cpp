// What schedulers, tasks and parallel algorithms do if memory runs out or no thread can be started:
// see support/shortage.hpp.

#define BIDE_RECYCLE_FRAMES 0 // so that each frame is an allocation

#include "support/file_waits.hpp"
#include "support/shortage.hpp"
#include <support/sched.hpp>

#include <bide/io/epoll_driver.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/parallel/parallel_sort.hpp>
#include <bide/sched/chrome_trace.hpp>
#include <bide/sched/report.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sched/task_group.hpp>

namespace {

using namespace bide;
using namespace test;

// Requires that all spawned tasks have ended, and that one more runs.
bool is_intact(scheduler& s) {
    const scheduler_stats now = stats_of(s);
    return now.spawned == now.completed && s.spawn([] { return 1; }).join() == 1;
}

task<int> number(counted of) { co_return of.number(); }
task<int> seven(scheduler&, tally& all) { return number(counted(all, 7)); }
task<int> spawned_by_a_task(scheduler& s, tally& all) {
    auto handle = s.spawn(number(counted(all, 7)));
    const int got = co_await std::move(handle).async_join();
    co_return got;
}
task<int> awaited_by_a_task(scheduler&, tally& all) {
    auto inner = number(counted(all, 7));
    const int got = co_await std::move(inner);
    co_return got;
}
task<int> both(scheduler&, tally& all) {
    auto children = when_all(number(counted(all, 1)), number(counted(all, 2)));
    const std::tuple<int, int> got = co_await std::move(children);
    co_return std::get<0>(got) + std::get<1>(got);
}
std::vector<task<int>> three(tally& all) {
    std::vector<task<int>> children;
    for (int i = 0; i < 3; ++i) {
        children.push_back(number(counted(all, i)));
    }
    return children;
}
task<int> many(scheduler&, tally& all) {
    auto them = when_all(three(all));
    const std::vector<int> got = co_await std::move(them);
    co_return std::accumulate(got.begin(), got.end(), 0);
}
task<int> either(scheduler&, tally& all) {
    auto children = when_any(number(counted(all, 1)), number(counted(all, 2)));
    const auto got = co_await std::move(children);
    co_return static_cast<int>(got.index()) * 0 + 1;
}
task<int> any_of_many(scheduler&, tally& all) {
    auto them = when_any(three(all));
    const auto got = co_await std::move(them);
    co_return static_cast<int>(got.first) == got.second ? 1 : 0;
}
task<int> joins_a_group(scheduler& s, tally& all) {
    task_group group(s);
    for (int i = 0; i < 3; ++i) {
        group.spawn(number(counted(all, i)));
    }
    co_await group.async_join();
    co_return 1;
}
task<int> waits_in_turn(scheduler&, tally&) {
    semaphore never(0);
    std::stop_source stop;
    co_await this_task::sleep_for(1us);
    auto late = co_await never.async_acquire().with_timeout(1us);
    stop.request_stop();
    auto stopped = co_await never.async_acquire().with_stop(stop.get_token());
    co_await this_task::yield();
    co_return late || stopped || never.available() != 0 || never.waiters() != 0 ? 0 : 1;
}
task<> waits(semaphore& never) { auto got = co_await never.async_acquire(); }
task<> sleeps() { co_await this_task::sleep_for(1h); }
task<int> moves_to(scheduler& s, tally&) {
    co_await s.schedule();
    co_return scheduler::current() == &s ? 1 : 0;
}

bool is_stopped(join_handle<> of) {
    try {
        std::move(of).join();
    } catch (const stopped_error&) {
        return true;
    }
    return false;
}

// Makes a scheduler for a body, and expects that it is intact afterwards, and that no value is left.
template <class Body> void on_scheduler(trial& t, unsigned workers, Body body) {
    tally all;
    {
        scheduler s(with(workers, false));
        body(s, all);
        t.expect(is_intact(s));
    }
    t.expect(all.alive() == 0);
}
// Runs a task on a scheduler of its own.
void run_one(trial& t, task<int> (*make)(scheduler&, tally&), unsigned workers = 1) {
    on_scheduler(t, workers, [&](scheduler& s, tally& all) {
        int got = 0;
        const bool done = t.attempt([&] { got = sync_wait(s, make(s, all)); });
        t.expect(!done || got > 0);
    });
}
// Runs a task on this thread.
void run_here(trial& t, task<int> (*make)(scheduler&, tally&)) {
    on_scheduler(t, 1, [&](scheduler& s, tally& all) {
        int got = 0;
        const bool done = t.attempt([&] { got = sync_wait(make(s, all)); });
        t.expect(!done || got > 0);
    });
}
// Spawns what returns 7.
void get_seven(trial& t, join_handle<int> (*spawn)(scheduler&, tally&)) {
    on_scheduler(t, 1, [&](scheduler& s, tally& all) {
        int got = 0;
        const bool done = t.attempt([&] { got = spawn(s, all).join(); });
        t.expect(got == (done ? 7 : 0));
    });
}

const scenario schedulers[] = {
    {"scheduler: construction",
     [](trial& t) {
         std::atomic<int> started{0};
         std::atomic<int> stopped{0};
         const bool done = t.attempt([&] {
             scheduler_options wanted = with(2, true);
             wanted.name = "a name that is too long for a short string";
             wanted.on_worker_start = [&started](unsigned) { ++started; };
             wanted.on_worker_stop = [&stopped](unsigned) { ++stopped; };
             wanted.on_unhandled = [large = std::array<int, 16>{}](std::exception_ptr) {
                 static_cast<void>(large);
             };
             scheduler s(std::move(wanted));
         });
         t.expect(started == stopped && (done || started == 0));
     },
     true},
    {"scheduler: spawn a task", [](trial& t) { run_one(t, &seven); }, true},
    {"scheduler: spawn a function",
     [](trial& t) {
         get_seven(t, [](scheduler& s, tally& all) {
             return s.spawn([mine = counted(all, 7)] { return mine.number(); });
         });
     },
     true},
    {"scheduler: spawn a function that returns a task",
     [](trial& t) {
         get_seven(t, [](scheduler& s, tally& all) {
             return s.spawn([mine = counted(all, 7)] { return number(mine); });
         });
     },
     true},
    {"scheduler: spawn_blocking",
     [](trial& t) {
         get_seven(t, [](scheduler& s, tally& all) {
             return s.spawn_blocking([mine = counted(all, 7)] { return mine.number(); });
         });
     },
     true},
    {"scheduler: spawn by a task", [](trial& t) { run_one(t, &spawned_by_a_task); }, true},
    {"task: awaits a task", [](trial& t) { run_one(t, &awaited_by_a_task); }, true},
    {"task: sync_wait", [](trial& t) { run_here(t, &awaited_by_a_task); }},
    {"scheduler: schedule()", [](trial& t) { run_here(t, &moves_to); }, true},
    {"scheduler: waits of tasks", [](trial& t) { run_one(t, &waits_in_turn); }, true},
    {"run_loop: spawn a function",
     [](trial& t) {
         tally all;
         {
             run_loop loop;
             t.attempt([&] { loop.spawn([mine = counted(all, 7)] {}).detach(); });
             loop.run();
             t.expect(loop.tasks() == 0);
         }
         t.expect(all.alive() == 0);
     }},
    {"scheduler: cancel",
     [](trial& t) {
         semaphore never(0);
         scheduler s(with(1, false));
         auto waiting = s.spawn(waits(never));
         t.expect(test::has_waiters(never, 1));
         bool stopped = false;
         const bool done = t.attempt([&] {
             waiting.cancel();
             stopped = is_stopped(std::move(waiting));
         });
         t.expect(done && stopped);
         t.expect(is_intact(s) && never.waiters() == 0);
     },
     true},
    {"scheduler: shutdown",
     [](trial& t) {
         semaphore never(0);
         std::atomic<int> unhandled{0};
         scheduler_options wanted = with(2, false);
         wanted.on_unhandled = [&unhandled](std::exception_ptr) { ++unhandled; };
         scheduler s(std::move(wanted));
         s.spawn(waits(never)).detach();
         auto kept = s.spawn(waits(never));
         s.spawn(sleeps()).detach();
         t.expect(test::has_waiters(never, 2));
         t.expect(t.attempt([&] { s.shutdown(); }));
         t.expect(unhandled == 0 && kept.done() && never.waiters() == 0);
         t.expect(stats_of(s).spawned == stats_of(s).completed);
         t.expect(is_stopped(std::move(kept)));
     },
     true},
    {"scheduler: a task blocks the only worker",
     [](trial& t) {
         semaphore permits(0);
         scheduler s(with(1, false));
         std::atomic<bool> told{false};
         auto blocks = s.spawn([&] {
             test::spin_until(told);
             permits.acquire();
         });
         auto next = s.spawn([] {});
         t.expect(t.attempt([&] {
             told = true;
             t.expect(test::has_waiters(permits, 1));
             permits.release();
             std::move(next).join();
             std::move(blocks).join();
         }));
         t.expect(is_intact(s));
     },
     true},
    {"scheduler: spawn after shutdown",
     [](trial& t) {
         tally all;
         {
             scheduler s(with(1, false));
             s.shutdown();
             bool stopped = false;
             const auto ends = [&]() -> task<> { co_await number(counted(all, 1)); };
             const bool done = t.attempt([&] { stopped = is_stopped(s.spawn(ends())); });
             t.expect(stopped == done && stats_of(s).spawned == stats_of(s).completed);
         }
         t.expect(all.alive() == 0);
     }},
    {"scheduler: dump",
     [](trial& t) {
         semaphore never(0);
         scheduler s(with(2, false));
         std::vector<join_handle<void>> all;
         for (int i = 0; i < 20; ++i) {
             all.push_back(s.spawn(waits(never).named("waits")));
         }
         t.expect(test::has_waiters(never, 20));
         std::FILE* const to = std::fopen("/dev/null", "w");
         t.attempt([&] { dump(s, to); });
         std::fclose(to);
         never.release(20);
         test::join_all(all);
         t.expect(is_intact(s));
     }},
    {"chrome_trace: loses events, and nothing else",
     [](trial& t) {
         chrome_trace trace;
         scheduler_options wanted = with(1, false);
         wanted.trace = &trace;
         {
             scheduler s(std::move(wanted));
             int got = 0;
             const bool done = t.attempt([&] { got = s.spawn([] { return 1; }).join(); });
             t.expect(got == done);
             t.expect(is_intact(s));
         }
         std::FILE* const to = std::fopen("/dev/null", "w");
         t.expect(trace.write(to));
         std::fclose(to);
     },
     true},
};

const scenario compositions[] = {
    {"when_all", [](trial& t) { run_one(t, &both); }, true},
    {"when_all of a vector", [](trial& t) { run_one(t, &many); }, true},
    {"when_any", [](trial& t) { run_one(t, &either); }, true},
    {"when_any of a vector", [](trial& t) { run_one(t, &any_of_many); }, true},
    {"when_all without a scheduler", [](trial& t) { run_here(t, &both); }},
    {"task_group: spawn and join",
     [](trial& t) {
         on_scheduler(t, 2, [&t](scheduler& s, tally& all) {
             task_group group(s);
             t.attempt([&] {
                 for (int i = 0; i < 3; ++i) {
                     group.spawn(number(counted(all, 1)));
                 }
                 group.join();
             });
             group.join();
             group.spawn(number(counted(all, 1)));
             group.join();
         });
     },
     true},
    {"task_group: a task's", // its end may block a worker
     [](trial& t) { run_one(t, &joins_a_group, 2); }, true},
    {"task_group: cancel",
     [](trial& t) {
         semaphore never(0);
         scheduler s(with(1, false));
         task_group group(s);
         group.spawn(waits(never));
         t.expect(test::has_waiters(never, 1));
         t.expect(t.attempt([&] {
             group.cancel();
             group.join(); // tasks that its cancellation ended have not failed
         }));
         t.expect(never.waiters() == 0);
     },
     true},
};

// Forks until `left` joins are inside each other.
void nest(scheduler& s, int left, int& begun, std::atomic<int>& ended) {
    if (left == 0) {
        return;
    }
    ++begun;
    join(s, [&] { nest(s, left - 1, begun, ended); }, [&] { ++ended; });
}

template <class Sort> void sort_with(trial& t, Sort sort) {
    on_scheduler(t, 2, [&](scheduler& s, tally&) {
        std::vector<int> numbers(20'000);
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            numbers[i] = static_cast<int>(i * 7919 % numbers.size());
        }
        const bool done = t.attempt([&] { sort(s, numbers); });
        t.expect(!done || std::is_sorted(numbers.begin(), numbers.end()));
        std::sort(numbers.begin(), numbers.end());
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            t.expect(numbers[i] == static_cast<int>(i));
        }
    });
}

const scenario forks[] = {
    {"join, and a thousand inside each other",
     [](trial& t) {
         on_scheduler(t, 2, [&t](scheduler& s, tally&) {
             int begun = 0;
             std::atomic<int> ended{0};
             const bool done = t.attempt([&] { nest(s, 1'000, begun, ended); });
             t.expect(done ? begun == 1'000 && ended == 1'000
                           : ended == (begun == 0 ? 0 : begun - 1));
         });
     },
     true},
    {"parallel_invoke",
     [](trial& t) {
         on_scheduler(t, 2, [&t](scheduler& s, tally&) {
             std::atomic<int> ended{0};
             const auto arm = [&ended] { ++ended; };
             const bool done = t.attempt([&] { parallel_invoke(s, arm, arm, arm); });
             t.expect(done ? ended == 3 : ended < 3);
         });
     },
     true},
    {"parallel_for",
     [](trial& t) {
         on_scheduler(t, 2, [&t](scheduler& s, tally&) {
             std::vector<std::atomic<int>> ended(10'000);
             const bool done = t.attempt([&] {
                 parallel_for(s, std::size_t{0}, ended.size(), [&](std::size_t i) { ++ended[i]; });
             });
             for (const auto& e : ended) {
                 t.expect(done ? e == 1 : e <= 1);
             }
         });
     },
     true},
    {"parallel_reduce",
     [](trial& t) {
         on_scheduler(t, 2, [&t](scheduler& s, tally&) {
             int sum = 0;
             const bool done = t.attempt([&] {
                 sum = parallel_reduce(
                     s, 0, 10'000, 0, [](int) { return 1; }, [](int a, int b) { return a + b; });
             });
             t.expect(sum == (done ? 10'000 : 0));
         });
     },
     true},
    {"parallel_sort",
     [](trial& t) {
         sort_with(t,
                   [](scheduler& s, std::vector<int>& v) { parallel_sort(s, v.begin(), v.end()); });
     },
     true},
    {"parallel_stable_sort",
     [](trial& t) {
         sort_with(t, [](scheduler& s, std::vector<int>& v) {
             parallel_stable_sort(s, v.begin(), v.end());
         });
     },
     true},
};

#if defined(__linux__)

task<int> reads(epoll_driver& io, int fd) {
    const io_result ready = co_await io.async_wait_readable(fd).as_result();
    co_return ready ? 1 : ready.error() == std::errc::not_enough_memory ? 2 : 0;
}

const scenario drivers[] = {
    {"epoll_driver: construction", [](trial& t) { t.attempt([] { const epoll_driver made; }); }},
    {"epoll_driver: a wait",
     [](trial& t) {
         const test::ends line = test::ends::pipe();
         line.put();
         epoll_driver io;
         scheduler_options wanted = with(1, false);
         wanted.io = &io;
         scheduler s(std::move(wanted));
         int got = 0;
         const bool done = t.attempt([&] { got = sync_wait(s, reads(io, line.in)); });
         t.expect(done == (got != 0));
         t.expect(sync_wait(s, reads(io, line.in)) == 1);
     },
     true},
};

#endif

#if BIDE_TESTS_CAN_DIE_AT_WORK

task<bool> times_out(semaphore& never) {
    auto got = co_await never.async_acquire().with_timeout(1us);
    co_return !got;
}

// In a process that has not started bide's service: the first wait that needs it, with the n-th
// allocation failing, and another wait afterwards.
std::string starts_service(std::size_t n, test::shortage how) {
    return test::dies([n, how] {
        semaphore never(0);
        bool good = true;
        bool has_failed = false;
        {
            const test::failing_allocations now(n, how, true);
            try {
                good = sync_wait(times_out(never));
            } catch (const std::bad_alloc&) {
            } catch (const std::system_error&) {
            }
            has_failed = now.has_failed();
        }
        good = good && never.waiters() == 0 && sync_wait(times_out(never));
        std::fputs(!good ? "bad" : has_failed ? "good" : "done", stderr);
        std::abort();
    });
}

#endif

} // namespace

TEST_CASE("scheduler: if an allocation or a thread fails, it throws and counts every task",
          "[promise.out-of-memory]") {
    for_each_allocation_failure(schedulers);
}

TEST_CASE("scheduler: if no thread can replace a blocked worker, one is started later") {
    if (!test::counts_allocations()) {
        return;
    }
    semaphore permits(0);
    scheduler s(with(1, false));
    std::atomic<bool> told{false};
    auto blocks = s.spawn([&] {
        test::spin_until(told);
        permits.acquire();
    });
    auto releases = s.spawn([&permits] { permits.release(); });
    {
        const test::failing_allocations none(0, test::shortage::lasting, true);
        told = true;
        CHECK(test::eventually([&none] { return none.has_failed(); }));
    }
    std::move(releases).join();
    std::move(blocks).join();
}

TEST_CASE("compose: if an allocation fails, it throws after all children have ended",
          "[promise.out-of-memory]") {
    for_each_allocation_failure(compositions);
}

TEST_CASE("fork_join: if an allocation fails, no arm is lost and none runs twice",
          "[promise.out-of-memory]") {
    for_each_allocation_failure(forks);
}

#if defined(__linux__)
TEST_CASE("epoll_driver: if an allocation fails, the wait fails") {
    for_each_allocation_failure(drivers);
}
#endif

#if BIDE_TESTS_CAN_DIE_AT_WORK

TEST_CASE(
    "timer: where an allocation or a thread fails, the first time-out throws and the next ends") {
    if (!test::counts_allocations()) {
        return;
    }
    for (const test::shortage how : {test::shortage::single, test::shortage::lasting}) {
        std::string said = "good";
        std::size_t n = 0;
        for (; said == "good" && n < 100; ++n) {
            said = starts_service(n, how);
        }
        CHECK(said == "done");
        CHECK(n > 2);
    }
}

TEST_CASE("scheduler: a noexcept function without memory terminates with a message",
          "[promise.out-of-memory]") {
    if (!test::counts_allocations()) {
        return;
    }
    CHECK(test::dies([] {
              scheduler s(with(1, false));
              s.spawn([] {
                   const test::out_of_memory now;
                   static_cast<void>(this_task::get_stop_token());
               }).join();
          }) == "bide: no memory for a task's stop token\n");
    CHECK(test::dies([] {
              scheduler s(with(1, false));
              const test::out_of_memory now;
              s.post(waker());
          }) == "bide: no memory to post a waker to a scheduler\n");
    CHECK(test::dies([] {
              scheduler s(with(1, false));
              s.shutdown();
              runnable late;
              const test::out_of_memory now;
              s.post(late);
          }) == "bide: the service threads cannot be started\n");
}

#endif

#if defined(BIDE_TESTS_WRAP_THREADS)

namespace {

task<> nothing() { co_return; }

// The only worker is run by the only thread for blocking tasks: a task keeps the worker's own thread.
struct replaced {
    ~replaced() {
        kept.release();
        std::move(keeps).join();
    }

    semaphore kept{0};
    scheduler s{with(1, false)};
    join_handle<> keeps = s.spawn([this] { kept.acquire(); });
    const bool is_replaced = test::has_waiters(kept, 1) && s.spawn([] { return true; }).join();
};

// Begins something while the system refuses threads, until one was refused. Then it must end.
template <class Begin> bool ends_after_a_refusal(Begin begin) {
    auto refused = std::make_unique<test::no_threads>();
    auto handle = begin();
    const bool was = test::eventually([] { return test::refused_threads != 0; });
    refused.reset();
    return was && test::eventually([&] { return handle.done(); });
}

} // namespace

TEST_CASE("no thread: a start that was refused is tried again, also if each thread waits for it",
          "[promise.refused-start]") {
    join_handle<> (*const begins[])(scheduler&) = {
        [](scheduler& s) { return s.spawn_blocking([] {}); },
        [](scheduler& s) { return s.spawn([&s] { task_group(s).spawn(nothing()); }); },
        [](scheduler& s) { return s.spawn([&s] { s.spawn([] {}).join(); }); },
        [](scheduler& s) {
            return s.spawn([&s] {
                semaphore permits(0);
                auto releases = s.spawn([&] { permits.release(); });
                permits.acquire();
                std::move(releases).join();
            });
        }};
    for (const auto begin : begins) {
        replaced r;
        REQUIRE(r.is_replaced);
        CHECK(ends_after_a_refusal([&] { return begin(r.s); }));
    }
}

TEST_CASE("no thread: a thread for blocking tasks that ends a group tries again to start another",
          "[promise.refused-start]") {
    scheduler_options wanted = with(1, false);
    wanted.max_blocking_threads = 1;
    scheduler s(std::move(wanted));
    semaphore kept(0);
    semaphore begin(0);
    auto ends = s.spawn_blocking([&] {
        begin.acquire();
        task_group(s).spawn(nothing());
    });
    auto keeps = s.spawn([&] { kept.acquire(); }); // relies on the thread that ends the group
    REQUIRE(test::has_waiters(kept, 1));
    CHECK(ends_after_a_refusal([&] {
        begin.release();
        return std::move(ends);
    }));
    kept.release();
    std::move(keeps).join();
}

#endif
