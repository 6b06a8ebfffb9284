#include <bide/io/poll_executor.hpp>

// On other systems the header is empty, and so is this.
#if defined(__linux__)

#include <bide/sched/executor_runner.hpp>
#include <bide/sync/semaphore.hpp>
#include <support/sched.hpp>

#include <poll.h>

using namespace bide;

static_assert(intrusive_executor<poll_executor>);

namespace {

bool is_readable(int fd, int ms = 0) {
    pollfd file{fd, POLLIN, 0};
    return ::poll(&file, 1, ms) == 1;
}

// Counts its runs; posts itself again that many times.
struct job {
    explicit job(poll_executor& on, int more = 0) noexcept : where(on), left(more) {
        to_run.run = waker(
            [](void* self) noexcept {
                auto& me = *static_cast<job*>(self);
                ++me.runs;
                if (me.left-- > 0) {
                    me.where.post(me.to_run);
                }
            },
            this);
    }
    poll_executor& where;
    runnable to_run;
    int left;
    int runs = 0;
};

} // namespace

TEST_CASE("poll_executor: its descriptor is readable while something is queued") {
    poll_executor loop;
    REQUIRE_FALSE(is_readable(loop.fd()));
    REQUIRE(loop.run() == 0);
    job a(loop);
    job b(loop);
    loop.post(a.to_run);
    REQUIRE(is_readable(loop.fd()));
    loop.post(b.to_run);
    REQUIRE(a.runs == 0);
    REQUIRE(loop.run() == 2);
    REQUIRE(a.runs == 1);
    REQUIRE(b.runs == 1);
    REQUIRE_FALSE(is_readable(loop.fd()));
}

TEST_CASE("poll_executor: what posts itself for ever leaves the loop its turn") {
    poll_executor loop;
    job busy(loop, 200);
    loop.post(busy.to_run);
    REQUIRE(loop.run() == 64);
    REQUIRE(is_readable(loop.fd()));
    job next(loop);
    loop.post(next.to_run);
    while (is_readable(loop.fd())) {
        REQUIRE(loop.run() <= 64);
    }
    REQUIRE(busy.runs == 201);
    REQUIRE(next.runs == 1);
}

TEST_CASE("poll_executor: a call from what it runs does nothing") {
    poll_executor loop;
    struct nested {
        poll_executor& loop;
        std::size_t ran = 99;
    } inner{loop};
    runnable r;
    r.run = waker(
        [](void* of) noexcept {
            auto& mine = *static_cast<nested*>(of);
            mine.ran = mine.loop.run();
        },
        &inner);
    job other(loop);
    loop.post(r);
    loop.post(other.to_run);
    REQUIRE(loop.run() == 2);
    REQUIRE(inner.ran == 0);
    REQUIRE(other.runs == 1);
}

TEST_CASE("poll_executor: its end runs what is queued") {
    int runs = 0;
    runnable r;
    r.run = waker([](void* n) noexcept { ++*static_cast<int*>(n); }, &runs);
    {
        poll_executor loop;
        loop.post(r);
    }
    REQUIRE(runs == 1);
}

TEST_CASE("poll_executor: posts of many threads all run, in the thread of the loop") {
    constexpr int threads = 3;
    constexpr int posts = 2'000;
    poll_executor loop;
    int ran = 0; // no lock: all run in this thread
    struct one {
        runnable to_run;
    };
    std::vector<one> jobs(threads * posts);
    for (auto& j : jobs) {
        j.to_run.run = waker([](void* n) noexcept { ++*static_cast<int*>(n); }, &ran);
    }
    test::team team(threads, [&](int i) {
        for (int n = 0; n < posts; ++n) {
            loop.post(jobs[static_cast<std::size_t>(i * posts + n)].to_run);
        }
    });
    while (ran < threads * posts) {
        if (is_readable(loop.fd(), -1)) {
            loop.run();
        }
    }
    team.join();
    REQUIRE_FALSE(is_readable(loop.fd()));
}

TEST_CASE("poll_executor: a runnable may destroy it right after the loop returns to run()") {
    for (int round = 0; round < 100; ++round) {
        auto loop = std::make_unique<poll_executor>();
        int runs = 0;
        runnable r;
        r.run = waker([](void* n) noexcept { ++*static_cast<int*>(n); }, &runs);
        std::thread posting([&, at = loop.get()] { at->post(r); });
        while (runs == 0) {
            loop->run();
        }
        loop.reset(); // the poster has left it, though its thread runs still
        posting.join();
    }
}

TEST_CASE("poll_executor: tasks wait, yield and resume in the loop") {
    poll_executor loop;
    semaphore s(0);
    const auto here = std::this_thread::get_id();
    bool elsewhere = false;
    int steps = 0;
    auto handle = spawn(loop, [&]() -> task<int> {
        elsewhere |= std::this_thread::get_id() != here;
        ++steps;
        const auto one = co_await s.async_acquire();
        elsewhere |= std::this_thread::get_id() != here;
        ++steps;
        co_await this_task::yield();
        elsewhere |= std::this_thread::get_id() != here;
        ++steps;
        co_return 42;
    });
    std::thread releasing([&] { s.release(); });
    while (!handle.done()) {
        is_readable(loop.fd(), -1);
        loop.run();
    }
    releasing.join();
    REQUIRE(steps == 3);
    REQUIRE_FALSE(elsewhere);
    REQUIRE(std::move(handle).join() == 42);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("poll_executor: destroyed by what it runs terminates with a message", "[death]") {
    const auto end = test::run_child([] {
        auto* const loop = new poll_executor;
        runnable r;
        r.run = waker([](void* of) noexcept { delete static_cast<poll_executor*>(of); }, loop);
        loop->post(r);
        loop->run();
    });
    INFO(end.text());
    REQUIRE(end.has_aborted());
    REQUIRE(test::contains(end.said, "destroyed by what runs on it"));
}

TEST_CASE(
    "poll_executor: destroyed before a task that is to resume on it terminates with a message",
    "[death][promise.home-outlives-tasks]") {
    const auto end_of = [](auto start) {
        return test::run_child([start] {
            semaphore s(0);
            poll_executor loop;
            executor_runner runner(loop);
            start(loop, runner, [&]() -> task<> { const auto one = co_await s.async_acquire(); });
            loop.run();
        });
    };
    const auto left = end_of([](auto& loop, auto&, auto waits) { spawn(loop, waits).detach(); });
    INFO(left.text());
    CHECK(left.has_aborted());
    CHECK(test::contains(left.said, "destroyed while tasks are to resume on it: 1"));
    // The end of a runner cancels its tasks, and the executor's end runs them.
    const auto ended =
        end_of([](auto&, auto& runner, auto waits) { runner.spawn(waits).detach(); });
    INFO(ended.text());
    CHECK(ended.has_exited(0));
}

#endif
#endif
