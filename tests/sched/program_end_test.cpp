// How programs end while schedulers and primitives are in use: static objects, exit() at any place,
// and what a child of fork() can do. Each test runs in a child process.

#include <bide/channel/select.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/sched/task_group.hpp>
#include <support/sched.hpp>

#if BIDE_TESTS_CAN_DIE_AT_WORK

using namespace bide;
using test::with;

namespace {

task<> take_for_ever(semaphore& from) {
    for (;;) {
        const auto got = co_await from.async_acquire();
    }
}

task<> receive_all(channel<int>& from) {
    for (;;) {
        const auto got = co_await from.async_recv();
        if (!got) {
            co_return;
        }
    }
}

task<bool> times_out() {
    semaphore none(0);
    const auto got = co_await none.async_acquire().with_timeout(1ms);
    co_return !got && got.error() == errc::timeout;
}

task<> nap() { co_await this_task::sleep_for(1ms); }

// Prints when it is destroyed.
struct farewell {
    farewell() noexcept {}
    farewell(const farewell&) = delete;
    farewell& operator=(const farewell&) = delete;
    ~farewell() {
        const bool good = sync_wait(times_out());
        std::fprintf(stderr, good ? "[farewell]" : "[no farewell]");
    }
};

// Where exit() is called.
struct leaving {
    static void wake(void*) noexcept { std::exit(3); }
};

task<bool> is_stopped(semaphore& none, std::stop_token stop) {
    const auto got = co_await none.async_acquire().with_stop(stop);
    co_return !got && got.error() == errc::stopped;
}

// What a process does with bide. Returns the number of the first check that fails, or 0.
int use_all() {
    semaphore none(0);
    if (none.try_acquire_for(1ms)) {
        return 1;
    }
    if (!sync_wait(times_out())) {
        return 2;
    }
    std::stop_source stop = test::new_stop();
    std::jthread stops([&] {
        test::eventually([&] { return none.waiters() == 1; });
        stop.request_stop();
    });
    if (!sync_wait(is_stopped(none, stop.get_token()))) {
        return 3;
    }
    scheduler s(with(2, true));
    if (!s.spawn(times_out()).join()) {
        return 4;
    }
    const auto [one, two] = join(s, [] { return 1; }, [] { return 2; });
    if (one + two != 3) {
        return 5;
    }
    if (scheduler::shared().spawn([] { return 6; }).join() != 6) {
        return 6;
    }
    return scheduler::shared().spawn(times_out()).join() ? 0 : 7;
}

// Acquires every lock of bide again and again.
void churn(semaphore& some, channel<int>& numbers, scheduler& s, const std::atomic<bool>& over) {
    while (!over) {
        const permit held(some);
        static_cast<void>(numbers.try_send(1));
        static_cast<void>(numbers.try_recv_for(10us));
        static_cast<void>(sync_wait(times_out()));
        s.spawn(nap()).join();
        scheduler::shared().spawn(nap()).detach();
    }
}

} // namespace

TEST_CASE("program end: tasks of a static scheduler may wait for static objects made before it",
          "[promise.static-objects-wait]") {
    const auto end = test::run_child([] {
        static channel<int> numbers(1);
        static semaphore none(0);
        static scheduler s(with(2, true));
        s.spawn(receive_all(numbers)).detach();
        s.spawn(take_for_ever(none)).detach();
        static_cast<void>(numbers.send(1));
        std::exit(0);
    });
    CHECK(end.text() == "[exit 0] ");
}

TEST_CASE(
    "program end: a static object destroyed while tasks wait for it terminates with a message") {
    const auto end = test::run_child([] {
        static scheduler s(with(1, true));
        static channel<int> numbers(1);
        s.spawn(receive_all(numbers)).detach();
        static_cast<void>(numbers.send(1));
        test::eventually([] { return numbers.empty(); });
        s.spawn([] {}).join(); // the only worker runs it when the other task waits again
        std::exit(0);
    });
    INFO(end.text());
    CHECK(end.has_aborted());
    CHECK(test::contains(end.said, "destroyed with 1 waiting"));
}

TEST_CASE("program end: a static group waits for its children") {
    const auto end = test::run_child([] {
        static std::atomic<int> ended{0};
        struct teller {
            ~teller() { std::fprintf(stderr, "%d ended", ended.load()); }
        };
        static teller last;
        static scheduler s(with(2, true));
        static task_group group(s);
        for (int i = 0; i < 3; ++i) {
            group.spawn([]() -> task<> {
                co_await nap();
                ++ended;
            }());
        }
        std::exit(0);
    });
    CHECK(end.text() == "[exit 0] 3 ended");
}

TEST_CASE("program end: a wait that ends by a stop during static destruction names its error") {
    const auto end = test::run_child([] {
        static scheduler s(
            with(1, true)); // cancels when the category, first used below, is destroyed
        static semaphore* const none = new semaphore(0);
        s.spawn([]() -> task<> {
             const auto stopped = co_await none->async_acquire().as_result();
             const std::error_code why = stopped ? std::error_code() : stopped.error();
             std::fprintf(stderr, "%s: %s", why.category().name(), why.message().c_str());
         }).detach();
        test::eventually([] { return none->waiters() == 1; });
        const std::error_code first = errc::closed;
        std::exit(first.value() - 1);
    });
    CHECK(end.text() == "[exit 0] bide: stopped");
}

TEST_CASE("program end: time-outs work during static destruction and in thread_local destructors",
          "[promise.static-objects-wait]") {
    const auto end = test::run_child([] {
        static farewell first; // before the service
        static_cast<void>(sync_wait(times_out()));
        static farewell second; // after it
        thread_local farewell mine;
        std::thread([] { thread_local farewell others; }).join();
        std::exit(0);
    });
    CHECK(end.text() == "[exit 0] [farewell][farewell][farewell][farewell]");
}

TEST_CASE("program end: detached threads may wait for objects that are never destroyed",
          "[promise.static-objects-wait]") {
    const auto end = test::run_child([] {
        static auto* const none = new semaphore(0);
        static auto* const numbers = new channel<int>(0);
        std::thread([] { none->acquire(); }).detach();
        std::thread([] { sync_wait(take_for_ever(*none)); }).detach();
        std::thread([] {
            static_cast<void>(select(on_recv(*numbers), on_acquire(*none)));
        }).detach();
        test::eventually([] { return none->waiters() == 3; });
        std::exit(0);
    });
    CHECK(end.text() == "[exit 0] ");
}

TEST_CASE("program end: tasks of the shared scheduler do not delay the end") {
    const auto end = test::run_child([] {
        static auto* const none = new semaphore(0);
        static std::atomic<bool> computes{false};
        auto& all = scheduler::shared();
        all.spawn(take_for_ever(*none)).detach();
        all.spawn([] { none->acquire(); }).detach();
        all.spawn([]() -> task<> {
               for (;;) {
                   co_await nap();
               }
           })
            .detach();
        all.spawn_blocking([] {
               for (computes = true;;) {
               }
           })
            .detach();
        test::eventually([] { return none->waiters() == 2 && computes; });
        std::exit(0);
    });
    CHECK(end.text() == "[exit 0] ");
}

TEST_CASE("program end: quick_exit() ends the program while schedulers run tasks",
          "[promise.program-ends]") {
    const auto end = test::run_child([] {
        static semaphore none(0);
        static scheduler s(with(2, true));
        s.spawn(take_for_ever(none)).detach();
        s.spawn([] { std::quick_exit(5); }).join();
    });
    CHECK(end.text() == "[exit 5] ");
}

TEST_CASE("program end: exit() in a task ends the program if the task's scheduler is not static",
          "[promise.program-ends]") {
    const auto end = test::run_child([] {
        static farewell last;
        semaphore none(0);
        scheduler s(with(2, true));
        s.spawn(take_for_ever(none)).detach();
        s.spawn([] { std::exit(3); }).join();
    });
    CHECK(end.text() == "[exit 3] [farewell]");
    const auto in_coroutine = test::run_child([] {
        static farewell last;
        scheduler::shared()
            .spawn([]() -> task<> {
                co_await nap();
                std::exit(3);
            })
            .join();
    });
    CHECK(in_coroutine.text() == "[exit 3] [farewell]");
    const auto where_it_blocks = test::run_child([] {
        static farewell last;
        scheduler s(with(1, true));
        s.spawn_blocking([] { std::exit(3); }).join();
    });
    CHECK(where_it_blocks.text() == "[exit 3] [farewell]");
}

TEST_CASE("program end: exit() in a task of a static scheduler terminates with a message",
          "[promise.program-ends]") {
    const auto end = test::run_child([] {
        static scheduler s(with(2, true));
        s.spawn([] { std::exit(3); }).join();
    });
    INFO(end.text());
    CHECK(end.has_aborted());
    CHECK(test::contains(end.said, "shut down by one of its own workers"));
}

TEST_CASE(
    "program end: exit() in a waker, or in a coroutine that a release resumes, ends the program",
    "[promise.program-ends]") {
    const auto in_waker = test::run_child([] {
        static farewell last;
        semaphore some(0);
        semaphore::waiter w(1, waker(&leaving::wake, nullptr));
        static_cast<void>(some.acquire_wait(w));
        some.release();
    });
    CHECK(in_waker.text() == "[exit 3] [farewell]");
    const auto in_coroutine = test::run_child([] {
        static farewell last;
        semaphore some(0);
        struct starts {
            static test::detached leave(semaphore& from) {
                const auto got = co_await from.async_acquire();
                std::exit(3);
            }
        };
        starts::leave(some);
        some.release();
    });
    CHECK(in_coroutine.text() == "[exit 3] [farewell]");
    const auto on_resumer = test::run_child([] {
        static farewell last;
        semaphore none(0);
        struct starts {
            static test::detached leave(semaphore& from) {
                const auto got = co_await from.async_acquire().with_timeout(1ms);
                std::exit(3);
            }
        };
        starts::leave(none);
        std::this_thread::sleep_for(1h); // the resumer ends the program
    });
    CHECK(on_resumer.text() == "[exit 3] [farewell]");
}

TEST_CASE("program end: a child of fork() uses time-outs, stops, and the shared scheduler anew",
          "[promise.fork-child]") {
    const auto end = test::run_child([] { // the service and the scheduler have started in it
        if (const int wrong = use_all()) {
            std::_Exit(100 + wrong);
        }
        const auto child = test::run_child([] {
            if (const int wrong = use_all()) {
                std::_Exit(200 + wrong);
            }
            const auto grandchild = test::run_child([] { std::_Exit(use_all()); });
            std::_Exit(WEXITSTATUS(grandchild.status));
        });
        const int after = use_all();
        std::fputs(child.said.c_str(), stderr);
        std::_Exit(WIFEXITED(child.status) ? after != 0 ? after : WEXITSTATUS(child.status) : 99);
    });
    CHECK(end.text() == "[exit 0] ");
}

TEST_CASE("program end: a child of fork() works although its parent's threads hold locks",
          "[promise.fork-child]") {
    const auto end = test::run_child([] {
        semaphore some(2);
        channel<int> numbers(2);
        std::atomic<bool> over{false};
        auto s = std::make_unique<scheduler>(with(2, true));
        int wrong = 0;
        {
            test::team busy(3, [&](int) { churn(some, numbers, *s, over); });
            for (int i = 0; i < 40 && wrong == 0; ++i) {
                const auto child = test::run_child([&] {
                    static_cast<void>(s.release()->~scheduler());
                    std::_Exit(use_all());
                });
                wrong = child.has_exited(0) ? 0 : 1;
                std::fputs(wrong == 0 ? "" : child.text().c_str(), stderr);
            }
            over = true;
        }
        std::_Exit(wrong);
    });
    CHECK(end.text() == "[exit 0] ");
}

#endif
