// Threads that a signal interrupts five thousand times a second. The handler has no SA_RESTART, so
// each interrupted system call fails with EINTR.

#include <bide/channel/select.hpp>
#include <bide/io/epoll_driver.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <support/file_waits.hpp>
#include <support/sched.hpp>

#if defined(__linux__)

#include <fcntl.h>
#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

using namespace bide;
using namespace test;

namespace {

std::atomic<std::uint64_t> interrupts{0};

extern "C" void on_signal(int) { interrupts.fetch_add(1, std::memory_order_relaxed); }

// Sends a signal to each registered thread every 200 us.
class pest {
public:
    pest() {
        struct sigaction handled{};
        handled.sa_handler = &on_signal;
        ::sigaction(SIGUSR1, &handled, &before_);
        thread_ = std::thread([this] { run(); });
    }
    pest(const pest&) = delete;
    pest& operator=(const pest&) = delete;
    ~pest() {
        over_ = true;
        thread_.join();
        ::sigaction(SIGUSR1, &before_, nullptr);
    }

    // Registers the calling thread, and unblocks the signal in it.
    void join() {
        sigset_t one;
        ::sigemptyset(&one);
        ::sigaddset(&one, SIGUSR1);
        ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
        ::pthread_kill(::pthread_self(), SIGUSR1); // one at least, however short the test is
        const std::lock_guard lock(mutex_);
        threads_.push_back(::pthread_self());
    }
    void leave() {
        const std::lock_guard lock(mutex_);
        const auto is_this = [](pthread_t t) { return ::pthread_equal(t, ::pthread_self()) != 0; };
        threads_.erase(std::find_if(threads_.begin(), threads_.end(), is_this));
    }

    // Registers the workers of a scheduler, which block all signals at their start.
    scheduler_options on_workers(scheduler_options wanted) {
        wanted.on_worker_start = [this](unsigned) { join(); };
        wanted.on_worker_stop = [this](unsigned) { leave(); };
        return wanted;
    }

private:
    void run() {
        while (!over_) {
            {
                const std::lock_guard lock(mutex_);
                for (const pthread_t t : threads_) {
                    ::pthread_kill(t, SIGUSR1);
                }
            }
            std::this_thread::sleep_for(microseconds(200));
        }
    }

    std::mutex mutex_;
    std::vector<pthread_t> threads_;
    std::atomic<bool> over_{false};
    struct sigaction before_{};
    std::thread thread_;
};

// Runs f(0) to f(n - 1) on n threads that are interrupted.
template <class F> void run_interrupted(pest& by, int n, F f) {
    test::run_threads(n, [&by, f](int me) {
        by.join();
        f(me);
        by.leave();
    });
}

bool has_passed(std::chrono::steady_clock::time_point since, std::chrono::nanoseconds rest) {
    return std::chrono::steady_clock::now() - since >= rest;
}

struct bench {
    semaphore some{2};
    mutex one;
    adaptive_mutex quick;
    channel<int> numbers{1};
    std::uint64_t under_one = 0;
    std::uint64_t under_quick = 0;
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> received{0};
    std::atomic<int> held{0};
    std::atomic<int> wrong{0};
};

void work(bench& in, int times, test::jitter& chance) {
    for (int i = 0; i < times; ++i) {
        in.some.acquire();
        in.wrong += ++in.held > 2 ? 1 : 0;
        chance();
        --in.held;
        in.some.release();
        {
            const std::lock_guard lock(in.one);
            ++in.under_one;
        }
        {
            const std::lock_guard lock(in.quick);
            ++in.under_quick;
        }
        semaphore none(0);
        const auto since = std::chrono::steady_clock::now();
        const auto rest = microseconds(chance.below(500));
        in.wrong += none.try_acquire_for(rest) || !has_passed(since, rest) ? 1 : 0;
    }
}

task<> work_in_task(bench& in, int times, std::uint32_t seed) {
    test::jitter chance(seed);
    semaphore none(0);
    for (int i = 0; i < times; ++i) {
        {
            const auto got = co_await in.some.async_acquire();
            in.wrong += ++in.held > 2 ? 1 : 0;
            co_await this_task::yield();
            --in.held;
        }
        {
            const auto lock = co_await in.one.async_lock();
            ++in.under_one;
        }
        const auto since = std::chrono::steady_clock::now();
        const auto rest = microseconds(chance.below(500));
        const auto got = co_await none.async_acquire().with_timeout(rest);
        in.wrong += got || !has_passed(since, rest) ? 1 : 0;
    }
}

void send(bench& in, int times) {
    for (int i = 0; i < times; ++i) {
        in.sent += in.numbers.send(i) ? 1 : 0;
    }
}

void receive(bench& in, std::uint64_t until) {
    semaphore none(0);
    while (in.received < until) {
        auto got = select(on_recv(in.numbers), on_acquire(none), on_timeout(microseconds(300)));
        in.received += got.index() == 0 && got.get<0>() ? 1 : 0;
    }
}

task<std::size_t> read_all(epoll_driver& io, int from, std::size_t bytes) {
    std::array<char, 4096> some{};
    std::size_t got = 0;
    while (got < bytes) {
        const ssize_t n = ::read(from, some.data(), some.size());
        if (n > 0) {
            got += static_cast<std::size_t>(n);
        } else if (n < 0 && errno == EAGAIN) {
            const auto ready = co_await io.async_wait_readable(from).as_result();
            if (!ready) {
                break;
            }
        } else if (n == 0 || errno != EINTR) {
            break;
        }
    }
    co_return got;
}

task<std::size_t> write_all(epoll_driver& io, int to, std::size_t bytes) {
    const std::array<char, 4096> some{};
    std::size_t sent = 0;
    while (sent < bytes) {
        const ssize_t n = ::write(to, some.data(), std::min(some.size(), bytes - sent));
        if (n > 0) {
            sent += static_cast<std::size_t>(n);
        } else if (n < 0 && errno == EAGAIN) {
            const auto ready = co_await io.async_wait_writable(to).as_result();
            if (!ready) {
                break;
            }
        } else if (errno != EINTR) {
            break;
        }
    }
    co_return sent;
}

// Sleeps, so that its worker waits in the driver.
task<int> sleep_some(int times) {
    int early = 0;
    for (int i = 0; i < times; ++i) {
        const auto since = std::chrono::steady_clock::now();
        co_await this_task::sleep_for(milliseconds(1));
        early += has_passed(since, milliseconds(1)) ? 0 : 1;
    }
    co_return early;
}

} // namespace

TEST_CASE("interrupted: no wait of a thread or task is lost, and none ends early",
          "[promise.signal-handlers]") {
    pest signals;
    rounds([&signals](std::uint32_t round) {
        constexpr int times = 20;
        bench in;
        scheduler s(signals.on_workers(with(1 + round % 3, round % 2 == 0)));
        run_interrupted(signals, 6, [&](int me) {
            test::jitter chance(seed_of(8 * round + static_cast<std::uint32_t>(me)));
            switch (me) {
            case 0: send(in, 10 * times); break;
            case 1:
            case 2: receive(in, 10 * times); break;
            case 3: sync_wait(work_in_task(in, times, chance.below(1u << 30))); break;
            case 4: s.spawn(work_in_task(in, times, chance.below(1u << 30))).join(); break;
            default: work(in, times, chance);
            }
        });
        const auto [left, right] =
            join(s, [&] { return in.under_one; }, [&] { return in.under_quick; });
        REQUIRE(left == 3 * times);
        REQUIRE(right == times);
        REQUIRE(in.wrong == 0);
        REQUIRE(in.sent == 10 * times);
        REQUIRE(in.received + in.numbers.size() == in.sent);
        REQUIRE(in.some.available() == 2);
    });
    CHECK(interrupts > 0);
}

TEST_CASE("interrupted: a worker that sleeps in epoll gets its events and timers in time",
          "[promise.signal-handlers]") {
    pest signals;
    rounds([&signals](std::uint32_t round) {
        constexpr std::size_t bytes = 1 << 20;
        const test::ends line = test::ends::pipe();
        epoll_driver io;
        auto wanted = signals.on_workers(with(1 + round % 2, round % 4 < 2));
        wanted.io = &io;
        scheduler s(std::move(wanted));
        auto reads = s.spawn(read_all(io, line.in, bytes));
        auto writes = s.spawn(write_all(io, line.out, bytes));
        auto sleeps = s.spawn(sleep_some(5));
        REQUIRE(std::move(writes).join() == bytes);
        REQUIRE(std::move(reads).join() == bytes);
        REQUIRE(std::move(sleeps).join() == 0);
    });
    CHECK(interrupts > 0);
}

#endif
