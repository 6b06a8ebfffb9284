#include <bide/sched/report.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/sync/semaphore.hpp>

#include <support/sched.hpp>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

using namespace bide;
using test::with;

TEST_CASE("scheduler_options: as many workers as requested, and at least one by default") {
    for (const unsigned n : {1u, 2u, 64u, 65u, 130u}) {
        const scheduler s(with(n, true));
        CHECK(s.concurrency() == n);
    }
    scheduler s(with(0, true));
    CHECK(s.concurrency() >= 1);
    CHECK(s.concurrency() <= std::max(std::thread::hardware_concurrency(), 1u));
    CHECK(s.spawn([] { return 1; }).join() == 1);
}

TEST_CASE("scheduler_options: more workers than there may be are refused before any is made") {
    for (const unsigned n : {1'048'576u, ~0u}) {
        const std::size_t before = test::allocations_here();
        CHECK_THROWS_AS(scheduler(with(n, true)), std::invalid_argument);
        CHECK(test::allocations_here() < before + 100);
    }
}

#if defined(__linux__)

TEST_CASE("scheduler_options: a process that may use one processor gets one worker") {
    const test::on_one_processor here;
    const scheduler s;
    CHECK(s.concurrency() == 1);
}

namespace {

std::string name_of_this_thread() {
    char name[32] = {};
    ::pthread_getname_np(::pthread_self(), name, sizeof name);
    return name;
}

} // namespace

TEST_CASE("scheduler_options: threads are named after the scheduler, also with the longest names") {
    const auto names = [](const char* wanted) {
        const auto text = std::make_unique<std::string>(wanted);
        scheduler_options options = with(1, false);
        options.name = *text;
        scheduler s(std::move(options));
        text->assign("something else");
        return s.spawn(&name_of_this_thread).join() + " " +
               s.spawn_blocking(&name_of_this_thread).join();
    };
    CHECK(names("work") == "work-0 work-b0");
    CHECK(names("a name of many words") == "a name of man-0 a name of ma-b0");
    CHECK(names("") == "-0 -b0");
    scheduler s;
    CHECK(s.spawn(&name_of_this_thread).join().substr(0, 5) == "bide-");
}

#endif

TEST_CASE(
    "scheduler_options: each worker's thread first calls on_worker_start and last on_worker_stop") {
    const unsigned workers = GENERATE(1u, 3u, 70u);
    std::vector<std::atomic<int>> started(workers);
    std::vector<std::atomic<int>> stopped(workers);
    std::atomic<int> unstarted{0};
    static thread_local bool is_worker = false;
    std::atomic<int> elsewhere{0};
    {
        scheduler_options wanted = with(workers, true);
        wanted.on_worker_start = [&](unsigned i) {
            ++started[i];
            is_worker = true;
        };
        wanted.on_worker_stop = [&](unsigned i) {
            elsewhere += is_worker ? 0 : 1;
            is_worker = false;
            ++stopped[i];
        };
        scheduler s(std::move(wanted));
        latch all(200);
        for (int i = 0; i < 200; ++i) {
            s.spawn([&] {
                 unstarted += is_worker ? 0 : 1;
                 all.count_down();
             }).detach();
        }
        all.wait();
    }
    CHECK(unstarted == 0);
    CHECK(elsewhere == 0);
    for (unsigned i = 0; i < workers; ++i) {
        CHECK(started[i] == 1);
        CHECK(stopped[i] == 1);
    }
}

TEST_CASE("scheduler_options: a thread that replaces a blocked one calls the callbacks, too") {
    std::atomic<int> started{0};
    std::atomic<int> stopped{0};
    {
        scheduler_options wanted = with(1, false);
        wanted.on_worker_start = [&](unsigned i) { started += i == 0 ? 1 : 100; };
        wanted.on_worker_stop = [&](unsigned i) { stopped += i == 0 ? 1 : 100; };
        scheduler s(std::move(wanted));
        semaphore permits(0);
        auto blocked = s.spawn([&] { permits.acquire(); });
        s.spawn([&] { permits.release(); }).join();
        std::move(blocked).join();
    }
    CHECK(started == 2);
    CHECK(stopped == 2);
}

TEST_CASE("scheduler_options: callbacks may use their scheduler") {
    std::atomic<int> ran{0};
    std::atomic<int> wrong{0};
    std::atomic<scheduler*> seen{nullptr};
    scheduler* made = nullptr;
    {
        scheduler_options wanted = with(4, true);
        wanted.on_worker_start = [&](unsigned) {
            seen = scheduler::current();
            scheduler::current()->spawn([&] { ++ran; }).detach();
            wrong += scheduler::current()->concurrency() == 4 ? 0 : 1;
        };
        wanted.on_worker_stop = [&](unsigned) { // too late
            auto late = scheduler::current()->spawn([&] { ++wrong; });
            wrong += late.done() ? 0 : 1;
        };
        scheduler s(std::move(wanted));
        made = &s;
        CHECK(test::eventually([&] { return ran == 4; }));
    }
    CHECK(seen == made);
    CHECK(wrong == 0);
}

TEST_CASE("scheduler_options: with any max_timed_sleep, no task is left behind a busy worker",
          "[promise.queued-task-runs]") {
    for (const auto nap : {std::chrono::microseconds::min(), 0us, 1us, 49us, 51us, 4'000us,
                           std::chrono::microseconds::max()}) {
        CAPTURE(nap.count());
        scheduler_options wanted;
        wanted.num_workers = 2;
        wanted.max_timed_sleep = nap;
        scheduler s(std::move(wanted));
        for (int round = 0; round < 2; ++round) {
            test::fall_asleep(s);
            std::atomic<bool> told{false};
            std::vector<join_handle<>> inner;
            CHECK(s.spawn([&] {
                       const auto end = std::chrono::steady_clock::now() + 500us;
                       while (std::chrono::steady_clock::now() < end) { // a worker may watch
                       }
                       inner.push_back(s.spawn([&] { told = true; }));
                       return test::spin_until(told);
                   }).join());
            std::move(inner.front()).join();
        }
    }
}

TEST_CASE("scheduler_options: timer_slack rounds the ends of sleeps and time-outs up",
          "[promise.timer-slack]") {
    for (const auto slack : {std::chrono::microseconds::min(), -1us, 0us, 1us, 20'000us,
                             std::chrono::microseconds::max()}) {
        CAPTURE(slack.count());
        const std::int64_t ns = std::clamp<std::int64_t>(slack / 1us, 0, 1'000'000) * 1'000;
        scheduler_options wanted;
        wanted.num_workers = 2;
        wanted.timer_slack = slack;
        scheduler s(std::move(wanted));
        semaphore never(0);
        const auto began = std::chrono::steady_clock::now();
        const auto early = [&](std::chrono::steady_clock::time_point due) {
            const std::int64_t at = due.time_since_epoch() / 1ns;
            const std::int64_t last = ns == 0 ? at : (at + ns - 1) / ns * ns;
            return std::chrono::steady_clock::now().time_since_epoch() / 1ns < last;
        };
        const auto sleeps = [&](std::chrono::microseconds rest) -> task<std::uint64_t> {
            co_await this_task::sleep_until(began + rest);
            std::uint64_t unrounded = early(began + rest) ? 1 : 0;
            const auto got = co_await never.async_acquire().with_deadline(began + 2 * rest);
            unrounded += got || early(began + 2 * rest) ? 1 : 0;
            co_return unrounded;
        };
        std::vector<join_handle<std::uint64_t>> all;
        for (int i = 1; i <= 20; ++i) {
            all.push_back(s.spawn(sleeps(i * 1'001us)));
        }
        std::uint64_t unrounded = 0;
        for (auto& each : all) {
            unrounded += std::move(each).join();
        }
        // A wait whose time had passed when it began needed no timer, and ended at once.
        CHECK(unrounded <= 2 * all.size() - stats_of(s).timers_fired);
    }
}

TEST_CASE("scheduler_options: workers that do not steal run their own tasks and injected ones") {
    const unsigned workers = GENERATE(1u, 2u, 70u);
    scheduler_options wanted = with(workers, true);
    wanted.enable_stealing = false;
    scheduler s(std::move(wanted));
    latch all(20 * 300);
    for (int i = 0; i < 20; ++i) {
        s.spawn([&] {
             for (int k = 0; k < 300; ++k) { // more than fit into a ring
                 s.spawn([&]() -> task<> {
                      co_await this_task::yield();
                      all.count_down();
                  }).detach();
             }
         }).detach();
    }
    all.wait();
    semaphore permits(0);
    auto blocked = s.spawn([&] {
        auto inner = s.spawn([&] { permits.release(); });
        permits.acquire();
        std::move(inner).join();
    });
    std::move(blocked).join();
    const scheduler_stats now = stats_of(s);
    CHECK(now.stolen == 0);
}

TEST_CASE(
    "scheduler_options: threads for blocking tasks leave when their keep-alive time is over") {
    scheduler_options wanted = with(1, false);
    wanted.blocking_keep_alive = 1ms;
    std::atomic<int> alive{0};
    struct belongings {
        std::atomic<int>* of = nullptr;
        ~belongings() {
            if (of != nullptr) {
                --*of;
            }
        }
    };
    scheduler s(std::move(wanted));
    for (int round = 0; round < 3; ++round) {
        s.spawn_blocking([&] {
             static thread_local belongings mine;
             if (std::exchange(mine.of, &alive) == nullptr) {
                 ++alive;
             }
         }).join();
        CHECK(test::eventually([&] { return alive == 0; }));
    }
}

#if defined(__linux__)
// A timer that no task has armed fires until the thread is joined.
TEST_CASE("scheduler_options: a thread for blocking tasks that has left is joined, although its "
          "scheduler lives on") {
    scheduler_options wanted = with(1, false);
    wanted.blocking_keep_alive = 0ms;
    scheduler s(std::move(wanted));
    s.spawn_blocking([] {}).join();
    CHECK(test::eventually([&] {
        return stats_of(s).timers_fired != 0 && !test::contains(test::dump_of(s), "next timer");
    }));
}
#endif

namespace {

// So many workers, and as many threads for blocking tasks.
scheduler_options few_threads(unsigned n) {
    scheduler_options wanted = with(n, true);
    wanted.max_blocking_threads = n;
    return wanted;
}

} // namespace

// Both workers rely on one request. The first thread that becomes free runs the worker whose ring has
// both jobs, of which the first one waits for the second.
TEST_CASE("scheduler_options: each thread for blocking tasks that becomes free runs a blocked "
          "worker") {
    scheduler s(few_threads(2));
    semaphore permits(0);
    std::atomic<int> begun{0};
    std::atomic<int> may_end{0};
    const auto keeps_a_thread = [&](int n) {
        return s.spawn_blocking([&, n] {
            ++begun;
            test::eventually([&] { return may_end.load() >= n; });
        });
    };
    auto first = keeps_a_thread(1);
    auto second = keeps_a_thread(2);
    REQUIRE(test::eventually([&] { return begun.load() == 2; }));
    auto blocks = s.spawn(
        [&] {
            ++begun;
            permits.acquire();
        },
        {.worker = 1});
    REQUIRE(test::eventually([&] { return begun.load() == 3; }));
    std::atomic<bool> waits{false};
    std::atomic<bool> has_run{false};
    std::atomic<bool> in_time{false};
    const auto pushes_and_blocks = [&] {
        s.spawn([&] {
             waits = true;
             in_time = test::eventually([&] { return has_run.load(); });
             permits.release(2);
         }).detach();
        s.spawn([&] { has_run = true; }).detach();
        ++begun;
        permits.acquire();
    };
    auto blocks_with_jobs = s.spawn(pushes_and_blocks, {.worker = 0});
    REQUIRE(test::eventually([&] { return begun.load() == 4; }));
    may_end = 1;
    std::move(first).join();
    REQUIRE(test::eventually([&] { return waits.load(); }));
    may_end = 2;
    std::move(second).join();
    std::move(blocks_with_jobs).join();
    std::move(blocks).join();
    CHECK(in_time);
}

TEST_CASE(
    "scheduler_options: a thread that runs a worker beside an idle thread is free for a blocking "
    "task") {
    scheduler s(few_threads(1));
    semaphore permits(0);
    std::atomic<bool> has_run{false};
    auto blocked = s.spawn([&] {
        s.spawn([&] { has_run = true; }).detach();
        permits.acquire();
    });
    REQUIRE(test::eventually([&] { return has_run.load(); }));
    const auto parked = [&] { return stats_of(s).parked; };
    const auto before = parked();
    s.spawn([] {}).join();
    REQUIRE(test::eventually([&] { return parked() > before; })); // the worker's thread has not
    permits.release();
    std::move(blocked).join();
    CHECK(s.spawn_blocking([] { return 1; }).join() == 1);
}
