#include <bide/sched/executor_runner.hpp>

#include <bide/sched/task_group.hpp>
#include <support/sched.hpp>

using namespace bide;

namespace {

// An event loop of another library: functions with a context, in a queue of its own.
class foreign_loop {
public:
    void post(waker w) noexcept {
        const std::lock_guard lock(mutex_);
        queue_.push_back(w);
        changed_.notify_one();
    }
    // Runs until `done`, and what is queued then.
    template <class Done> void run_until(Done done) {
        while (!done()) {
            run_one(true);
        }
        while (run_one(false)) {
        }
    }
    void drain() {
        while (run_one(false)) {
        }
    }

private:
    bool run_one(bool waits) {
        waker next;
        {
            std::unique_lock lock(mutex_);
            if (waits) {
                changed_.wait_for(lock, 1ms, [this] { return !queue_.empty(); });
            }
            if (queue_.empty()) {
                return false;
            }
            next = queue_.front();
            queue_.pop_front();
        }
        next.wake();
        return true;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<waker> queue_;
};
static_assert(executor<foreign_loop>);
static_assert(!intrusive_executor<foreign_loop>);

task<int> acquire_twice(semaphore& s, std::thread::id here, bool& elsewhere) {
    for (int i = 0; i < 2; ++i) {
        auto one = co_await s.async_acquire();
        one.forget();
        elsewhere |= std::this_thread::get_id() != here;
    }
    co_return 7;
}

task<> wait_for_ever(semaphore& s, bool& ended) {
    struct mark {
        explicit mark(bool& b) : ended(b) {}
        ~mark() { ended = true; }
        bool& ended;
    };
    const mark at_end(ended);
    auto one = co_await s.async_acquire();
}

#if BIDE_EXCEPTIONS
task<> fail() {
    co_await this_task::yield();
    throw std::runtime_error("told");
}

std::string text_of(std::exception_ptr error) {
    try {
        std::rethrow_exception(std::move(error));
    } catch (const std::exception& e) {
        return e.what();
    }
}
#endif

} // namespace

TEST_CASE("spawn: a task runs and resumes on the executor only", "[promise.foreign-executor]") {
    foreign_loop loop;
    semaphore s(0);
    bool elsewhere = false;
    auto handle = spawn(loop, acquire_twice(s, std::this_thread::get_id(), elsewhere));
    REQUIRE(s.waiters() == 0); // it has not run yet
    loop.drain();
    REQUIRE(s.waiters() == 1);
    std::thread releasing([&] { s.release(2); });
    loop.run_until([&] { return handle.done(); });
    releasing.join();
    REQUIRE_FALSE(elsewhere);
    REQUIRE(std::move(handle).join() == 7);
}

TEST_CASE("spawn: runs functions, and functions that return tasks") {
    foreign_loop loop;
    auto sum = spawn(loop, [] { return 1 + 2; });
    auto text = spawn(loop, []() -> task<std::string> { co_return "abc"; });
    loop.drain();
    REQUIRE(std::move(sum).join() == 3);
    REQUIRE(std::move(text).join() == "abc");
}

TEST_CASE("spawn: a task on an executor joins and composes with others, and sleeps") {
    foreign_loop loop;
    auto handle = spawn(loop, [&]() -> task<int> {
        auto inner = spawn(loop, []() -> task<int> {
            co_await this_task::sleep_for(1ms);
            co_return 1;
        });
        const auto two = [](int n) -> task<int> {
            co_await this_task::yield();
            co_return n;
        };
        auto both = co_await when_all(two(10), two(100));
        co_return std::get<0>(both) + std::get<1>(both) + co_await std::move(inner).async_join();
    });
    loop.run_until([&] { return handle.done(); });
    REQUIRE(std::move(handle).join() == 111);
}

TEST_CASE("spawn: a cancelled task ends on the executor") {
    foreign_loop loop;
    semaphore s(0);
    bool ended = false;
    auto handle = spawn(loop, wait_for_ever(s, ended));
    loop.drain();
    REQUIRE(s.waiters() == 1);
    REQUIRE(handle.cancel());
    REQUIRE(s.waiters() == 0);
    REQUIRE_FALSE(ended); // the loop has not run
    loop.drain();
    REQUIRE(ended);
    REQUIRE(handle.done());
}

TEST_CASE("spawn: a dropped handle detaches the task") {
    foreign_loop loop;
    semaphore s(0);
    bool ended = false;
    {
        auto dropped = spawn(loop, wait_for_ever(s, ended));
    }
    loop.drain();
    s.release();
    loop.drain();
    REQUIRE(ended);
    REQUIRE(s.available() == 1);
}

#if BIDE_EXCEPTIONS

TEST_CASE("spawn: with a handler, the exception of a forgotten task goes there",
          "[promise.foreign-executor]") {
    foreign_loop loop;
    std::string said;
    spawn(loop, fail(), [&](std::exception_ptr e) { said = text_of(std::move(e)); });
    loop.drain();
    REQUIRE(said == "told");
    spawn(loop, [] { return 1; }, [&](std::exception_ptr) { said = "no error"; });
    loop.drain();
    REQUIRE(said == "told");
}

TEST_CASE("spawn: with a handle, join() throws the exception") {
    foreign_loop loop;
    auto handle = spawn(loop, fail());
    loop.drain();
    REQUIRE_THROWS_AS(std::move(handle).join(), std::runtime_error);
}

TEST_CASE("spawn: without memory nothing has begun, and nothing is lost") {
    foreign_loop loop;
    auto value = std::make_shared<int>(1);
    auto source = [value] { return *value; };
    bool failed = false;
    for (std::size_t n = 0; n < 100 && (n == 0 || failed); ++n) {
        failed = false;
        try {
            const test::failing_allocations none(n, test::shortage::single, false);
            spawn(loop, source).detach();
        } catch (const std::bad_alloc&) {
            failed = true;
        }
        if (failed) {
            REQUIRE(value.use_count() == 2);
        }
    }
    loop.drain();
    REQUIRE(value.use_count() == 2);
}

TEST_CASE("executor_runner: its handler gets the exceptions that no handle asks for") {
    foreign_loop loop;
    int told = 0;
    executor_runner runner(loop, [&](std::exception_ptr) { ++told; });
    runner.spawn(fail()).detach();
    runner.spawn(fail()).detach();
    loop.drain();
    REQUIRE(told == 2);
    REQUIRE(runner.tasks() == 0);
}

#endif

TEST_CASE("executor_runner: its end cancels its tasks, which end in the loop") {
    foreign_loop loop;
    semaphore s(0);
    bool first = false;
    bool second = false;
    std::optional<join_handle<void>> late;
    {
        executor_runner runner(loop);
        runner.spawn(wait_for_ever(s, first)).detach();
        loop.drain();
        runner.spawn(wait_for_ever(s, second)).detach(); // queued
        REQUIRE(runner.tasks() == 2);
        runner.close();
        late.emplace(runner.spawn(wait_for_ever(s, second)));
        REQUIRE(late->done());
        REQUIRE(runner.tasks() == 2);
    }
    REQUIRE_FALSE(first);
    loop.drain();
    REQUIRE(first);
    REQUIRE(s.waiters() == 0);
}

TEST_CASE("executor_runner: a task and its home leave no memory behind") {
    foreign_loop loop;
    const auto once = [&] {
        executor_runner runner(loop);
        auto kept = runner.spawn([] { return 1; });
        spawn(loop, [] { return 2; }).detach();
        loop.drain();
    };
    once();
    const auto before = test::live_allocations();
    once();
    REQUIRE(test::live_allocations() == before);
}

TEST_CASE("executor_runner: a group of tasks ends with its scope") {
    foreign_loop loop;
    executor_runner runner(loop);
    int sum = 0;
    auto handle = runner.spawn([&]() -> task<> {
        task_group group(runner);
        for (int i = 1; i <= 10; ++i) {
            group.spawn([&sum, i]() -> task<> {
                sum += i;
                co_return;
            });
        }
        co_await group.async_join();
    });
    loop.run_until([&] { return handle.done(); });
    std::move(handle).join();
    REQUIRE(sum == 55);
}

TEST_CASE("executor_runner: threads spawn while the loop runs and the runner closes") {
    for (int round = 0; round < 50; ++round) {
        foreign_loop loop;
        semaphore s(0);
        std::atomic<int> ran{0};
        auto runner = std::make_unique<executor_runner>(loop);
        std::atomic<int> done{0};
        test::team team(2, [&](int) {
            for (int i = 0; i < 20; ++i) {
                runner
                    ->spawn([&]() -> task<> {
                        ++ran;
                        auto one = co_await s.async_acquire();
                    })
                    .detach();
            }
            ++done;
        });
        while (done < 2) {
            loop.drain();
        }
        runner->close();
        loop.run_until([&] { return runner->tasks() == 0; });
        team.join();
        REQUIRE(s.waiters() == 0);
        REQUIRE(ran <= 40);
    }
}
