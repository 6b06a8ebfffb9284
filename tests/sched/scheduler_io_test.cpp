#include <bide/sched/epoll_driver.hpp>

#include <support/catch.hpp>

// On other systems the header is empty, and so is this.
#if defined(__linux__)

#include <bide/sched/scheduler.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/this_task.hpp>
#include <support/coroutines.hpp>
#include <support/gate.hpp>
#include <support/scheduling.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

// A scheduler with an idle worker that sleeps in a driver.

using bide::epoll_driver;
using bide::scheduler;
using bide::task;
using bide::this_task::yield;
using namespace std::chrono_literals;

namespace {

bide::scheduler_options driven(epoll_driver& io, unsigned workers, bool naps) {
    bide::scheduler_options wanted = test::with(workers, naps);
    wanted.io = &io;
    return wanted;
}

// Two non-blocking ends, closed at the end.
struct ends {
    ends() {
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, at.data()) != 0) {
            test::give_up(test::where(), "no sockets");
        }
    }
    ends(const ends&) = delete;
    ends& operator=(const ends&) = delete;
    ~ends() {
        ::close(at[0]);
        ::close(at[1]);
    }

    std::array<int, 2> at{};
};

void write_byte(int fd) {
    const char byte = 'x';
    if (::write(fd, &byte, 1) != 1) {
        test::give_up(test::where(), "a byte cannot be written");
    }
}

// Reads or writes `n` bytes, and waits if it has to. Returns false for an error.
task<bool> all_in(epoll_driver& io, int fd, unsigned char* to, std::size_t left) {
    while (left != 0) {
        const ssize_t n = ::read(fd, to, left);
        if (n > 0) {
            to += n;
            left -= static_cast<std::size_t>(n);
        } else if (n == 0 || errno != EAGAIN) {
            co_return false;
        } else {
            co_await io.async_wait_readable(fd);
        }
    }
    co_return true;
}
task<bool> all_out(epoll_driver& io, int fd, const unsigned char* from, std::size_t left) {
    while (left != 0) {
        const ssize_t n = ::write(fd, from, left);
        if (n > 0) {
            from += n;
            left -= static_cast<std::size_t>(n);
        } else if (errno != EAGAIN) {
            co_return false;
        } else {
            co_await io.async_wait_writable(fd);
        }
    }
    co_return true;
}

task<bool> echoes(epoll_driver& io, int fd, int messages) {
    std::vector<unsigned char> buffer(3'000);
    for (int i = 0; i < messages; ++i) {
        if (!co_await all_in(io, fd, buffer.data(), buffer.size()))
            co_return false;
        for (unsigned char& c : buffer)
            c = static_cast<unsigned char>(c + 1);
        if (!co_await all_out(io, fd, buffer.data(), buffer.size()))
            co_return false;
    }
    co_return true;
}
task<bool> asks(epoll_driver& io, int fd, int messages) {
    std::vector<unsigned char> out(3'000);
    std::vector<unsigned char> in(out.size());
    for (int i = 0; i < messages; ++i) {
        for (std::size_t k = 0; k < out.size(); ++k) {
            out[k] = static_cast<unsigned char>(i + static_cast<int>(k));
        }
        if (!co_await all_out(io, fd, out.data(), out.size()))
            co_return false;
        if (!co_await all_in(io, fd, in.data(), in.size()))
            co_return false;
        for (std::size_t k = 0; k < out.size(); ++k) {
            if (in[k] != static_cast<unsigned char>(out[k] + 1))
                co_return false;
        }
    }
    co_return true;
}

task<bool> is_readable(epoll_driver& io, int fd) {
    const bide::io_result done = co_await io.async_wait_readable(fd).as_result();
    co_return done.has_value();
}
task<> yields_until(const std::atomic<bool>& over) {
    while (!over) {
        co_await yield();
    }
}

} // namespace

TEST_CASE("scheduler: tasks that talk over sockets lose no byte and no wake") {
    const unsigned workers = GENERATE(1u, 2u, 3u);
    const bool naps = GENERATE(true, false);
    const test::watchdog guard;
    epoll_driver io;
    scheduler s(driven(io, workers, naps));
    constexpr std::size_t pairs = 20;
    std::vector<ends> all(pairs);
    std::vector<bide::join_handle<bool>> ends_well;
    for (ends& e : all) {
        ends_well.push_back(s.spawn(echoes(io, e.at[0], 20)));
        ends_well.push_back(s.spawn(asks(io, e.at[1], 20)));
    }
    std::size_t good = 0;
    for (auto& h : ends_well) {
        good += std::move(h).join() ? 1 : 0;
    }
    CHECK(good == 2 * pairs);
}

TEST_CASE("scheduler: a worker that sleeps in the driver is woken for everything else") {
    const unsigned workers = GENERATE(1u, 2u);
    const bool naps = GENERATE(true, false);
    const test::watchdog guard;
    epoll_driver io;
    scheduler s(driven(io, workers, naps));
    ends e;
    auto waits = s.spawn(is_readable(io, e.at[0]));
    int ran = 0;
    for (int i = 0; i < 200; ++i) {
        ran += s.spawn([] { return 1; }).join();
    }
    CHECK(ran == 200);
    const auto begin = std::chrono::steady_clock::now();
    sync_wait(s, []() -> task<> { co_await bide::this_task::sleep_for(3ms); }());
    CHECK(std::chrono::steady_clock::now() - begin >= 3ms);
    CHECK_FALSE(waits.done());
    write_byte(e.at[1]);
    CHECK(std::move(waits).join());
}

TEST_CASE("scheduler: waits for files end while all workers but one are busy",
          "[promise.ready-file]") {
    const bool naps = GENERATE(true, false);
    const test::watchdog guard;
    epoll_driver io;
    scheduler s(driven(io, 2, naps));
    for (int round = 0; round < 20; ++round) {
        ends e;
        std::atomic<bool> told{false};
        auto waits = s.spawn([&]() -> task<> {
            co_await is_readable(io, e.at[0]);
            told = true;
        });
        // Written by the task that spins: that wakes no other worker.
        auto spins = s.spawn([&] {
            write_byte(e.at[1]);
            return test::spin_until(told);
        });
        REQUIRE(std::move(spins).join());
        std::move(waits).join();
    }
}

TEST_CASE("scheduler: waits for files end although every worker is busy", "[promise.ready-file]") {
    const test::watchdog guard;
    epoll_driver io;
    scheduler s(driven(io, 2, true));
    std::atomic<bool> over{false};
    std::vector<bide::join_handle<>> busy;
    for (int i = 0; i < 4; ++i) {
        busy.push_back(s.spawn(yields_until(over)));
    }
    for (int round = 0; round < 20; ++round) {
        ends e;
        auto waits = s.spawn(is_readable(io, e.at[0]));
        write_byte(e.at[1]);
        CHECK(std::move(waits).join());
    }
    over = true;
    for (auto& h : busy) {
        std::move(h).join();
    }
}

TEST_CASE("scheduler: waits for files end by cancel, time-out, and shutdown") {
    const bool naps = GENERATE(true, false);
    const test::watchdog guard;
    epoll_driver io;
    scheduler s(driven(io, 2, naps));
    ends e;
    auto cancelled = s.spawn(is_readable(io, e.at[0]));
    CHECK(cancelled.cancel());
    CHECK_THROWS_AS(
        [&] {
            if (!std::move(cancelled).join()) {
                throw bide::stopped_error(make_error_code(bide::errc::stopped)); // it had begun
            }
        }(),
        bide::stopped_error);
    auto late = s.spawn([&]() -> task<bool> {
        const bide::io_result done = co_await io.async_wait_readable(e.at[0]).with_timeout(2ms);
        co_return !done && done.error() == bide::errc::timeout;
    });
    CHECK(std::move(late).join());
    std::vector<bide::join_handle<bool>> waiting;
    for (std::size_t i = 0; i < 10; ++i) {
        waiting.push_back(s.spawn(is_readable(io, e.at[i % 2])));
    }
    s.shutdown();
    for (auto& h : waiting) {
        CHECK_FALSE(std::move(h).join());
    }
}

namespace {

test::detached waits_apart(epoll_driver& io, int fd, std::atomic<int>& outcome) {
    const bide::io_result done = co_await io.async_wait_readable(fd).as_result();
    outcome = done                                                       ? 1
              : done.error() == bide::errc::closed                       ? 2
              : done.error() == std::errc::resource_deadlock_would_occur ? 3
                                                                         : 4;
}

} // namespace

TEST_CASE(
    "scheduler: the waits for files that are no task's end with the scheduler of their driver",
    "[promise.file-wait-without-driver]") {
    const test::watchdog guard;
    epoll_driver io;
    ends e;
    for (int round = 0; round < 2; ++round) { // a second scheduler may have the driver afterwards
        std::atomic<int> apart{0};
        std::atomic<int> late{0};
        {
            scheduler s(driven(io, 2, false));
            waits_apart(io, e.at[0], apart);
            std::error_code why;
            try {
                scheduler another(driven(io, 1, false));
            } catch (const std::system_error& error) {
                why = error.code();
            }
            CHECK(why == std::errc::device_or_resource_busy);
            auto reads = s.spawn(is_readable(io, e.at[1]));
            write_byte(e.at[0]);
            CHECK(std::move(reads).join());
            CHECK(apart == 0);
            s.shutdown();
            waits_apart(io, e.at[0], late);
            CHECK(late == 3);
        }
        CHECK(test::eventually([&] { return apart == 2; }));
        char byte = 0;
        CHECK(::read(e.at[1], &byte, 1) == 1);
    }
}

#endif
