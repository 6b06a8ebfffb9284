#include <bide/core/parker.hpp>
#include <bide/sched/report.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/task/interval.hpp>
#include <support/sched.hpp>

// What a scheduler runs, on which thread, and in what order. Its end is tested in
// scheduler_shutdown_test.cpp.

using namespace bide;
using bide::this_task::yield;
using test::with;

namespace {

task<int> number(int n) { co_return n; }
task<int&> same(int& n) { co_return n; }
task<std::unique_ptr<int>> boxed(int n) {
    co_await yield();
    co_return std::make_unique<int>(n);
}
task<int> eight() { co_return 8; }
int nine() { return 9; }

struct last_of_its_line final {
    task<int> operator()() const { return number(10); }
};

// Each task spawns the next one, and polls for its end.
bool nest(scheduler& s, unsigned left) {
    if (left == 0) {
        return true;
    }
    std::atomic<bool> told{false};
    auto inner = s.spawn([&s, left, &told] {
        const bool good = nest(s, left - 1);
        told = true;
        return good;
    });
    const bool in_time = test::spin_until(told);
    return std::move(inner).join() && in_time;
}

test::detached ring_after(std::chrono::microseconds rest, std::atomic<bool>& rung) {
    co_await this_task::sleep_for(rest);
    rung = true;
}
test::detached ring_unless(semaphore& s, std::atomic<bool>& rung) {
    const auto got = co_await s.async_acquire().with_timeout(500us);
    rung = !got;
}

test::detached visit(scheduler& s, std::atomic<bool>& came) {
    co_await s.schedule();
    came = true;
}

// Everything that can wait for a worker while other tasks keep it busy.
void all_get_their_turn(scheduler& s) {
    CHECK(s.spawn(number(1)).join() == 1);
    s.spawn([]() -> task<> { co_await this_task::sleep_for(1ms); }).join();
    s.spawn([&]() -> task<> {
         latch all(20);
         for (int i = 0; i < 20; ++i) {
             s.spawn([&] { all.count_down(); }).detach();
         }
         co_await all.async_wait();
     }).join();
    std::atomic<bool> came{false};
    visit(s, came);
    CHECK(test::eventually([&came] { return came.load(); }));
}

// Yields until it has had `turns` turns. Counts the tasks that have had so many.
task<> take_turns(int turns, std::atomic<int>& had_all, const std::atomic<bool>& over) {
    for (int i = 0; !over; ++i) {
        co_await yield();
        if (i + 1 == turns) {
            ++had_all;
        }
    }
}

task<> hit(semaphore& mine, semaphore& other, const std::atomic<bool>& over) {
    while (!over) {
        auto permit = co_await mine.async_acquire();
        permit.forget();
        other.release();
    }
    other.release();
}

test::detached yield_once(std::atomic<int>& went_on) {
    co_await yield();
    ++went_on;
}
test::detached spend(semaphore& s, std::atomic<int>& went_on) {
    for (int i = 0; i < 300; ++i) {
        const auto permit = co_await s.async_acquire();
    }
    ++went_on;
}

using recorded = std::vector<scheduler*>;

test::detached note_schedulers(semaphore& s, recorded& seen, std::atomic<bool>& over) {
    seen.push_back(scheduler::current());
    auto first = co_await s.async_acquire(); // the worker that it suspended on
    first.forget();
    seen.push_back(scheduler::current());
    co_await yield();
    seen.push_back(scheduler::current());
    const auto none = co_await s.async_acquire().with_timeout(100us);
    seen.push_back(scheduler::current());
    over = true;
}
test::detached go_there(scheduler& there, semaphore& s, recorded& seen, std::atomic<bool>& over) {
    auto first = co_await s.async_acquire().resume_on(there);
    first.forget();
    seen.push_back(scheduler::current());
    over = true;
}
test::held_on<scheduler> belongs(scheduler&, semaphore& s, recorded& seen) {
    co_await yield();
    seen.push_back(scheduler::current());
    auto first = co_await s.async_acquire();
    first.forget();
    seen.push_back(scheduler::current());
    co_await this_task::sleep_for(100us);
    seen.push_back(scheduler::current());
    s.release();
}

} // namespace

TEST_CASE("scheduler: runs coroutines, functions, and functions that return coroutines") {
    scheduler s(test::each_of({2}));
    int n = 0;
    CHECK(s.spawn(number(1)).join() == 1);
    CHECK(*s.spawn(boxed(2)).join() == 2);
    CHECK(&s.spawn(same(n)).join() == &n);
    CHECK(s.spawn([] { return 4; }).join() == 4);
    CHECK(&s.spawn([&n]() -> int& { return n; }).join() == &n);
    CHECK(s.spawn([x = std::make_unique<int>(5)]() mutable { return std::move(x); }).join());
    CHECK(s.spawn([x = std::make_unique<int>(6)]() -> task<int> {
               co_await yield();
               co_return *x;
           }).join() == 6);
    s.spawn([&n] { n = 7; }).join();
    CHECK(n == 7);
    CHECK(s.spawn(&eight).join() == 8);
    CHECK(s.spawn(&nine).join() == 9);
    CHECK(s.spawn(last_of_its_line()).join() == 10);
    CHECK(sync_wait(s, number(11)) == 11);
    CHECK(&sync_wait(s, same(n)) == &n);
    CHECK(s.spawn_blocking([] { return 12; }).join() == 12);
    CHECK(s.spawn([&]() -> task<bool> {
               co_return &(co_await s.spawn(same(n)).async_join()).get() == &n;
           }).join());
}

TEST_CASE("scheduler: is made with a number of workers alone") {
    CHECK(scheduler(3).concurrency() == 3);
    CHECK_THROWS_AS(scheduler(-1), std::invalid_argument);
    CHECK_THROWS_AS(scheduler(std::numeric_limits<std::int64_t>::max()), std::invalid_argument);
}

TEST_CASE("scheduler: a function's captures live as long as its task, and no longer") {
    test::tally t;
    scheduler s(with(1, false));
    semaphore go(0);
    auto waits = s.spawn([&go, mine = test::counted_once(t, 1)]() -> task<int> {
        const auto permit = co_await go.async_acquire();
        co_return mine.number();
    });
    CHECK(s.spawn([mine = test::counted_once(t, 2)] { return mine.number(); }).join() == 2);
    CHECK(s.spawn_blocking([mine = test::counted_once(t, 3)] { return mine.number(); }).join() ==
          3);
    CHECK(t.alive() == 1);
    go.release();
    CHECK(std::move(waits).join() == 1);
    CHECK(t.alive() == 0);
    CHECK(t.copied == 0);
}

TEST_CASE("scheduler: posted runnables and wakers run on a worker") {
    scheduler s(with(2, false));
    struct posted_call : runnable {
        std::atomic<scheduler*> on{nullptr};
    } own;
    own.run = waker(
        [](void* p) noexcept { static_cast<posted_call*>(p)->on = scheduler::current(); }, &own);
    s.post(own);
    CHECK(test::eventually([&] { return own.on == &s; }));
    own.on = nullptr;
    s.post(own.run);
    CHECK(test::eventually([&] { return own.on == &s; }));
    own.on = nullptr;
    s.spawn([&] { s.post(own.run); }).join();
    CHECK(test::eventually([&] { return own.on == &s; }));
    const scheduler_stats now = stats_of(s);
    CHECK(now.spawned == 1);
}

TEST_CASE("scheduler: current() is the scheduler of the thread, or nullptr") {
    semaphore sleeps(0);
    std::atomic<bool> in_callbacks{true};
    {
        std::atomic<scheduler*> made{nullptr};
        scheduler_options wanted = with(1, false);
        wanted.on_worker_stop = [&](unsigned) {
            if (scheduler::current() != made) {
                in_callbacks = false;
            }
        };
        scheduler s(std::move(wanted));
        made = &s;
        scheduler other(with(1, false));
        CHECK(scheduler::current() == nullptr);
        CHECK(s.spawn([] { return scheduler::current(); }).join() == &s);
        CHECK(other.spawn([] { return scheduler::current(); }).join() == &other);
        CHECK(s.spawn_blocking([] { return scheduler::current(); }).join() == &s);
        CHECK(s.spawn([&]() -> task<scheduler*> {
                   co_await yield();
                   co_return scheduler::current();
               }).join() == &s);
        auto slept = s.spawn([&] { // another thread runs its worker
            sleeps.acquire();
            return scheduler::current();
        });
        s.spawn([&] { sleeps.release(); }).join();
        CHECK(std::move(slept).join() == &s);
        CHECK(scheduler::current() == nullptr);
    }
    CHECK(in_callbacks);
}

TEST_CASE("scheduler: there is one for the process") {
    scheduler& all = scheduler::shared();
    CHECK(&all == &scheduler::shared());
    CHECK(all.concurrency() >= 1);
    CHECK(all.spawn(number(1)).join() == 1);
}

TEST_CASE("scheduler: stats_of() counts what happened") {
    scheduler s(with(1, false));
    constexpr std::uint64_t many = 1'000;
    latch ended(many);
    s.spawn([&] {
         for (std::uint64_t i = 0; i < many; ++i) {
             s.spawn([&] { ended.count_down(); }).detach();
         }
     }).join();
    ended.wait();
    s.spawn([&]() -> task<> {
         while (stats_of(s, 0).timers_fired ==
                0) { // a time that has passed already is not waited for
             co_await this_task::sleep_for(1ms);
         }
     }).join();
    s.spawn_blocking([] {}).join();
    s.shutdown();
    const scheduler_stats sum = stats_of(s);
    const scheduler_stats one = stats_of(s, 0);
    CHECK(sum.spawned == many + 3);
    CHECK(sum.completed == many + 3);
    CHECK(one.spawned == many);
    CHECK(one.completed == many + 2);
    CHECK(one.polled == many + 3); // one ran twice, one on the other scheduler
    CHECK(one.overflowed == 0);    // its ring grows
    CHECK(one.injected >= 2);
    CHECK(one.stolen == 0);
    CHECK(one.steal_batches == 0);
    CHECK(one.timers_fired == 1);
    CHECK(one.woken <= one.parked);
}

TEST_CASE("scheduler: tasks that a busy task has spawned or woken run on other workers",
          "[promise.queued-task-runs]") {
    scheduler s(test::each_of({2, 3}));
    int stuck = 0;
    for (int round = 0; round < 24 && stuck == 0; ++round) {
        if (round % 2 == 0) {
            test::fall_asleep(s);
        }
        const int children =
            1 + round / 2 % 3; // the last is in the LIFO slot, the rest in the ring
        std::atomic<int> ran{0};
        std::atomic<bool> all_ran{false};
        const auto end = [&] {
            if (++ran == children) {
                all_ran = true;
            }
        };
        semaphore to_wake(0);
        std::vector<join_handle<>> made;
        if (round % 4 < 2) {
            for (int i = 0; i < children; ++i) {
                made.push_back(s.spawn([&]() -> task<> {
                    const auto permit = co_await to_wake.async_acquire();
                    end();
                }));
            }
            REQUIRE(test::has_waiters(to_wake, static_cast<std::size_t>(children)));
        }
        const bool told = s.spawn([&] {
                               if (made.empty()) {
                                   for (int i = 0; i < children; ++i) {
                                       made.push_back(s.spawn(end));
                                   }
                               } else {
                                   to_wake.release(children);
                               }
                               return test::spin_until(all_ran);
                           }).join();
        stuck += told ? 0 : 1;
        test::join_all(made);
    }
    CHECK(stuck == 0);
}

TEST_CASE("scheduler: all workers but one may be busy with tasks that wait for a task of that one",
          "[promise.queued-task-runs]") {
    scheduler s(test::each_of({2, 3, 8, 70}));
    for (int round = 0; round < 3; ++round) {
        CHECK(s.spawn([&] { return nest(s, s.concurrency() - 1); }).join());
    }
}

TEST_CASE("scheduler: timers fire while all workers but one are busy",
          "[promise.timeouts-on-time]") {
    scheduler s(test::each_of({2, 3}));
    for (int round = 0; round < 10; ++round) {
        std::atomic<bool> over{false};
        std::vector<join_handle<bool>> busy;
        auto timed = s.spawn([&]() -> task<> {
            co_await this_task::sleep_for(round % 2 == 0 ? 300us : 3ms);
            over = true;
        });
        for (unsigned i = 1; i < s.concurrency(); ++i) {
            busy.push_back(s.spawn([&] { return test::spin_until(over); }));
        }
        CHECK(test::all_true(busy));
        std::move(timed).join();
    }
}

TEST_CASE("scheduler: a time-out fires although the run in which it began does not end") {
    const bool asleep = GENERATE(true, false);
    CAPTURE(asleep);
    scheduler s(test::each_of({2}));
    if (asleep) {
        test::fall_asleep(s);
    }
    semaphore nothing(0);
    std::atomic<bool> rung{false};
    std::atomic<bool> gone{false};
    CHECK(s.spawn([&] {
               ring_after(500us, rung);
               return test::spin_until(rung);
           }).join());
    CHECK(s.spawn([&] {
               ring_unless(nothing, gone);
               return test::spin_until(gone);
           }).join());
    CHECK(test::eventually([&] { return rung && gone; })); // before they are destroyed
}

TEST_CASE("scheduler: all of very many tasks that yield for ever get their turns",
          "[promise.task-fairness]") {
    const unsigned workers = GENERATE(1u, 2u, 5u);
    const bool inside = GENERATE(true, false);
    CAPTURE(workers, inside);
    constexpr int count = 3'000;
    scheduler s(with(workers, true));
    std::atomic<int> had_all{0};
    std::atomic<bool> over{false};
    std::vector<join_handle<>> tasks;
    const auto spawn_all = [&] {
        for (int i = 0; i < count; ++i) {
            tasks.push_back(s.spawn(take_turns(3, had_all, over)));
        }
    };
    if (inside) {
        s.spawn(spawn_all).join();
    } else {
        spawn_all();
    }
    CHECK(test::eventually([&] { return had_all == count; }));
    all_get_their_turn(s);
    over = true;
    test::join_all(tasks);
}

TEST_CASE("scheduler: of tasks that yield, none runs more than twice as often as another one",
          "[promise.yield-turns]") {
    const auto shape = GENERATE(table<unsigned, std::size_t>({{2, 3}, {2, 64}, {3, 7}, {8, 64}}));
    const unsigned workers = std::get<0>(shape);
    const std::size_t tasks = std::get<1>(shape);
    CAPTURE(workers, tasks);
    constexpr long ahead = 256; // No worker is further ahead of another: processors do not matter.
    const long before = 128 * workers + ahead;
    const long most = 5 * before;
    std::vector<std::atomic<long>> of_worker(workers);
    std::vector<std::atomic<long>> of_task(tasks);
    std::atomic<unsigned> held{0};
    std::atomic<bool> begun{false};
    std::atomic<bool> over{false};
    scheduler s(with(workers, false));
    const auto take_turns = [&](std::size_t mine, bool holds) -> task<> {
        for (held += holds ? 1 : 0; holds && !begun;) {
            std::this_thread::yield();
        }
        while (!over) {
            const long turn = ++of_worker[s.this_worker().value()];
            for (const auto& other : of_worker) {
                while (turn > other + ahead && !over) {
                    std::this_thread::yield();
                }
            }
            if (++of_task[mine] == most) {
                over = true;
            }
            co_await yield();
        }
    };
    std::vector<join_handle<>> all; // one task on each worker but one, and all others on that one
    while (all.size() + 1 < workers) {
        all.push_back(s.spawn(take_turns(all.size(), true)));
    }
    while (held + 1 != workers) {
        std::this_thread::yield();
    }
    s.spawn([&] {
         while (all.size() != tasks) {
             all.push_back(s.spawn(take_turns(all.size(), false)));
         }
         begun = true;
     }).join();
    test::join_all(all);
    CHECK(2 * *std::min_element(of_task.begin(), of_task.end()) >= most - before);
}

TEST_CASE("scheduler: two tasks that always wake each other starve no other task",
          "[promise.task-fairness]") {
    semaphore ping(1);
    semaphore pong(0);
    std::atomic<bool> over{false};
    scheduler s(test::each_of({1, 2}));
    auto a = s.spawn(hit(ping, pong, over));
    auto b = s.spawn(hit(pong, ping, over));
    all_get_their_turn(s);
    over = true;
    std::move(a).join();
    std::move(b).join();
}

TEST_CASE("scheduler: several coroutines that yield in one run of a task all continue") {
    const unsigned workers = GENERATE(1u, 2u);
    std::atomic<int> went_on{0};
    semaphore permits(1);
    scheduler s(with(workers, false));
    s.spawn([&]() -> task<> {
         for (int i = 0; i < 3; ++i) {
             yield_once(went_on);
             spend(permits, went_on);
         }
         co_await yield();
         ++went_on;
     }).join();
    CHECK(test::eventually([&] { return went_on == 7; }));
}

TEST_CASE("scheduler: a task that yields goes behind what is queued") {
    scheduler s(with(1, false));
    std::vector<int> order;
    s.spawn([&]() -> task<> {
         std::vector<join_handle<>> others;
         for (int i = 1; i <= 5; ++i) {
             others.push_back(s.spawn([&order, i] { order.push_back(i); }));
         }
         co_await yield();
         order.push_back(0);
         for (auto& h : others) {
             co_await std::move(h).async_join();
         }
     }).join();
    REQUIRE(order.size() == 6);
    CHECK(order[0] == 5); // the task that became runnable last runs first
    CHECK(order[5] == 0);
}

TEST_CASE(
    "scheduler: more tasks than workers may block their threads until other tasks release them",
    "[promise.worker-handover]") {
    constexpr int chain = 12;
    std::deque<semaphore> links;
    for (int i = 0; i <= chain; ++i) {
        links.emplace_back(0);
    }
    scheduler s(test::each_of({1, 2}));
    for (int round = 0; round < 3; ++round) {
        std::vector<join_handle<>> blocked;
        for (std::size_t i = 0; i < chain; ++i) {
            blocked.push_back(s.spawn([&links, i] {
                links[i].acquire();
                links[i + 1].release();
            }));
        }
        s.spawn([&]() -> task<> { // one that does not block
             links[0].release();
             const auto last = co_await links[chain].async_acquire();
         })
            .join();
        test::join_all(blocked);
    }
}

TEST_CASE("scheduler: a task may block in each operation that blocks") {
    const unsigned workers = GENERATE(1u, 2u);
    scheduler s(with(workers, true));
    // The first blocks until the second, spawned by it, runs on its worker.
    const auto blocks = [&s](auto wait, auto end) {
        return s
            .spawn([&s, wait, end] {
                auto other = s.spawn(end);
                wait();
                std::move(other).join();
                return true;
            })
            .join();
    };
    semaphore permits(0);
    CHECK(blocks([&] { permits.acquire(); }, [&] { permits.release(); }));
    CHECK(blocks([&] { static_cast<void>(permits.try_acquire_for(1h)); },
                 [&] { permits.release(); }));
    channel<int> numbers(0);
    const auto send = [&] { static_cast<void>(numbers.send(1)); };
    const auto receive = [&] { static_cast<void>(numbers.recv()); };
    CHECK(blocks(send, receive));
    CHECK(blocks(receive, send));
    event set;
    CHECK(blocks([&] { set.wait(); }, [&] { set.set(); }));
    latch two(2);
    CHECK(blocks([&] { two.arrive_and_wait(); }, [&] { two.arrive_and_wait(); }));
    parker token;
    CHECK(blocks([&] { token.park(); }, [&] { token.unpark(); }));
    mutex m;
    m.lock();
    CHECK(blocks([&] { const std::lock_guard l(m); }, [&] { m.unlock(); }));
    shared_mutex shared;
    shared.lock();
    CHECK(blocks([&] { shared.lock_shared(); }, [&] { shared.unlock(); }));
    CHECK(blocks([&] { shared.lock(); }, [&] { shared.unlock_shared(); }));
    shared.unlock();
    adaptive_mutex adaptive;
    adaptive.lock();
    CHECK(blocks([&] { const std::lock_guard l(adaptive); }, [&] { adaptive.unlock(); }));
}

TEST_CASE("scheduler: a task may call sync_wait(), with and without the scheduler",
          "[promise.worker-handover]") {
    scheduler s(test::each_of({1, 2}));
    semaphore permits(0);
    struct inner {
        static task<int> waits(semaphore& from, int n) {
            co_await yield();
            auto permit = co_await from.async_acquire();
            permit.forget();
            co_await this_task::sleep_for(100us);
            co_return n;
        }
        static int nested(scheduler& on, int depth) {
            return depth == 0 ? 0
                              : 1 + on.spawn([&on, depth] { return nested(on, depth - 1); }).join();
        }
    };
    const int sum = s.spawn([&] {
                         auto giver = s.spawn([&] { permits.release(2); });
                         const int here = sync_wait(inner::waits(permits, 1));
                         const int there = sync_wait(s, inner::waits(permits, 2));
                         std::move(giver).join();
                         return here + there;
                     }).join();
    CHECK(sum == 3);
    CHECK(s.spawn([&] { return inner::nested(s, 20); }).join() == 20);
}

TEST_CASE("scheduler: blocking tasks run on threads of their own while the workers run") {
    scheduler_options wanted = with(1, false);
    wanted.max_blocking_threads = 3;
    scheduler s(std::move(wanted));
    std::atomic<int> inside{0};
    std::atomic<bool> over{false};
    std::vector<join_handle<bool>> apart;
    for (int i = 0; i < 6; ++i) { // three of them wait for a thread
        apart.push_back(s.spawn_blocking([&] {
            ++inside;
            return test::spin_until(over);
        }));
    }
    CHECK(test::eventually([&] { return inside == 3; }));
    CHECK(s.spawn(number(4)).join() == 4);
    over = true;
    CHECK(test::all_true(apart));
    CHECK(inside == 6);
    const scheduler_stats now = stats_of(s, 0);
    CHECK(now.completed == 1);
}

TEST_CASE("scheduler: without blocking threads, spawn_blocking() throws, and blocked tasks keep "
          "their threads") {
    test::tally t;
    scheduler_options wanted = with(2, false);
    wanted.max_blocking_threads = 0;
    scheduler s(std::move(wanted));
    CHECK_THROWS_AS(s.spawn_blocking([mine = test::counted_once(t, 1)] {}), std::system_error);
    CHECK(t.alive() == 0);
    semaphore permits(0);
    auto blocked = s.spawn([&] { permits.acquire(); });
    REQUIRE(test::has_waiters(permits, 1));
    s.spawn([&] { permits.release(); }).join();
    std::move(blocked).join();
}

TEST_CASE("scheduler: a coroutine of any type that waits on a worker resumes on a worker") {
    semaphore permits(0);
    recorded seen;
    std::atomic<bool> over{false};
    scheduler s(with(2, false));
    s.spawn([&] { note_schedulers(permits, seen, over); }).join();
    REQUIRE(test::has_waiters(permits, 1));
    permits.release(); // on this thread
    REQUIRE(test::eventually([&] { return over.load(); }));
    CHECK(seen == recorded(4, &s));
    seen.clear();
    over = false;
    go_there(s, permits, seen, over);
    permits.release();
    REQUIRE(test::eventually([&] { return over.load(); }));
    CHECK(seen == recorded(1, &s));
    seen.clear();
    auto mine = belongs(s, permits, seen);
    mine.start();
    REQUIRE(test::has_waiters(permits, 1));
    permits.release();
    permits.acquire();
    s.shutdown(); // it has left its frame
    CHECK(seen == recorded(3, &s));
    CHECK(mine.done());
}

TEST_CASE("scheduler: a task may resume on another executor and returns for its next wait") {
    const auto kind = test::each_of({1});
    test::thread_executor thread;
    scheduler a(kind);
    scheduler b(kind);
    struct traveller {
        static task<recorded> run(scheduler& home, scheduler& other, test::thread_executor& none,
                                  semaphore& permits) {
            recorded seen;
            const auto note = [&seen] { seen.push_back(scheduler::current()); };
            note();
            co_await other.schedule();
            note();
            co_await yield();
            note();
            co_await home.schedule();
            note();
            auto permit = co_await permits.async_acquire().resume_on(other);
            permit.forget();
            note();
            co_await yield().resume_on(none);
            note();
            co_return seen; // it ends there
        }
    };
    semaphore permits(0);
    test::team giver(1, [&](int) { // after it waits: a free permit would be taken at once
        for (int i = 0; i < 2; ++i) {
            test::has_waiters(permits, 1);
            permits.release();
        }
    });
    recorded expected{&a, &b, &a, &a, &b, nullptr};
    CHECK(a.spawn(traveller::run(a, b, thread, permits)).join() == expected);
    expected.front() = nullptr;
    expected[2] = nullptr; // the loop's thread
    CHECK(sync_wait(traveller::run(a, b, thread, permits)) == expected);
    giver.join();
    const scheduler_stats home = stats_of(a);
    CHECK(home.completed == 1);
    const scheduler_stats other = stats_of(b);
    CHECK(other.spawned == 0);
}

TEST_CASE("scheduler: tasks may have schedulers of their own, and wait for each other's tasks") {
    scheduler outer(test::each_of({1}));
    const int sum = outer
                        .spawn([&] {
                            scheduler inner(with(2, true));
                            auto back = inner.spawn([&] { // and back
                                return outer.spawn([] { return 1; }).join();
                            });
                            const int there = sync_wait(inner, number(10));
                            return there + std::move(back).join();
                        })
                        .join();
    CHECK(sum == 11);
}

TEST_CASE("scheduler: waits of tasks allocate nothing", "[promise.no-wait-allocates]") {
    if (!test::counts_allocations()) {
        return;
    }
    scheduler s(with(1, false));
    semaphore to(0);
    semaphore fro(0);
    channel<int> numbers(0);
    mutex m;
    event set;
    interval ticks(200us);
    std::size_t counted = 1;
    const auto other = [&]() -> task<> {
        for (int i = 0; i < 10; ++i) {
            auto permit = co_await to.async_acquire();
            permit.forget();
            fro.release();
            [[maybe_unused]] const auto got = co_await numbers.async_recv();
        }
    };
    auto partner = s.spawn(other);
    s.spawn([&]() -> task<> {
         for (int round = 0; round < 10; ++round) {
             if (round == 2) { // what is allocated once was allocated
                 counted = test::allocations();
             }
             to.release();
             auto permit = co_await fro.async_acquire();
             permit.forget();
             [[maybe_unused]] const auto sent = co_await numbers.async_send(1);
             const auto none = co_await fro.async_acquire().with_timeout(50us);
             [[maybe_unused]] const auto nothing = co_await numbers.async_recv().with_timeout(50us);
             [[maybe_unused]] const auto unset = co_await set.async_wait().with_timeout(50us);
             co_await yield();
             co_await this_task::sleep_for(50us);
             co_await ticks.async_tick();
             const auto lock = co_await m.async_lock();
         }
         counted = test::allocations() - counted;
     }).join();
    std::move(partner).join();
    CHECK(counted == 0);
}
