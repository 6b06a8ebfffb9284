#include <bide/io/epoll_driver.hpp>

#include <support/sched.hpp>

// On other systems the header is empty, and so is this.
#if defined(__linux__)

#include <support/file_waits.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

// A scheduler with an idle worker that sleeps in a driver.

using namespace bide;
using bide::this_task::yield;
using test::ends;

namespace {

scheduler_options driven(epoll_driver& io, scheduler_options wanted) {
    wanted.io = &io;
    return wanted;
}

task<bool> is_readable(epoll_driver& io, int fd) {
    const io_result done = co_await io.async_wait_readable(fd).as_result();
    co_return done.has_value();
}
task<> yields_until(const std::atomic<bool>& over) {
    while (!over) {
        co_await yield();
    }
}

test::detached waits_apart(epoll_driver& io, int fd, std::atomic<int>& outcome) {
    const io_result done = co_await io.async_wait_readable(fd).as_result();
    outcome = done ? 1 : done.error() == errc::closed ? 2 : done.error() == errc::no_driver ? 3 : 4;
}

} // namespace

TEST_CASE("scheduler: a worker that sleeps in the driver is woken for everything else") {
    epoll_driver io;
    scheduler s(driven(io, test::each_of({1, 2})));
    ends e = ends::sockets();
    auto waits = s.spawn(is_readable(io, e.in));
    int ran = 0;
    for (int i = 0; i < 200; ++i) {
        ran += s.spawn([] { return 1; }).join();
    }
    CHECK(ran == 200);
    const auto begin = std::chrono::steady_clock::now();
    sync_wait(s, []() -> task<> { co_await this_task::sleep_for(3ms); }());
    CHECK(std::chrono::steady_clock::now() - begin >= 3ms);
    CHECK_FALSE(waits.done());
    e.put();
    CHECK(std::move(waits).join());
}

TEST_CASE("scheduler: waits for files end while all workers but one are busy",
          "[promise.ready-file]") {
    epoll_driver io;
    scheduler s(driven(io, test::each_of({2})));
    for (int round = 0; round < 20; ++round) {
        ends e = ends::sockets();
        std::atomic<bool> told{false};
        auto waits = s.spawn([&]() -> task<> {
            co_await is_readable(io, e.in);
            told = true;
        });
        // Written by the task that spins: that wakes no other worker.
        auto spins = s.spawn([&] {
            e.put();
            return test::spin_until(told);
        });
        REQUIRE(std::move(spins).join());
        std::move(waits).join();
    }
}

TEST_CASE("scheduler: waits for files end although every worker is busy", "[promise.ready-file]") {
    epoll_driver io;
    scheduler s(driven(io, test::with(2, true)));
    std::atomic<bool> over{false};
    std::vector<join_handle<>> busy;
    for (int i = 0; i < 4; ++i) {
        busy.push_back(s.spawn(yields_until(over)));
    }
    for (int round = 0; round < 20; ++round) {
        ends e = ends::sockets();
        auto waits = s.spawn(is_readable(io, e.in));
        e.put();
        CHECK(std::move(waits).join());
    }
    over = true;
    test::join_all(busy);
}

TEST_CASE("scheduler: waits for files end by cancel, time-out, and shutdown") {
    epoll_driver io;
    scheduler s(driven(io, test::each_of({2})));
    ends e = ends::sockets();
    auto cancelled = s.spawn(is_readable(io, e.in));
    CHECK(cancelled.cancel());
    CHECK_THROWS_AS(
        [&] {
            if (!std::move(cancelled).join()) {
                throw stopped_error(make_error_code(errc::stopped)); // it had begun
            }
        }(),
        stopped_error);
    auto late = s.spawn([&]() -> task<bool> {
        const io_result done = co_await io.async_wait_readable(e.in).with_timeout(2ms);
        co_return !done && done.error() == errc::timeout;
    });
    CHECK(std::move(late).join());
    std::vector<join_handle<bool>> waiting;
    for (std::size_t i = 0; i < 10; ++i) {
        waiting.push_back(s.spawn(is_readable(io, i % 2 == 0 ? e.in : e.out)));
    }
    s.shutdown();
    for (auto& h : waiting) {
        CHECK_FALSE(std::move(h).join());
    }
}

TEST_CASE(
    "scheduler: the waits for files that are no task's end with the scheduler of their driver",
    "[promise.file-wait-without-driver]") {
    epoll_driver io;
    ends e = ends::sockets();
    for (int round = 0; round < 2; ++round) { // a second scheduler may have the driver afterwards
        std::atomic<int> apart{0};
        std::atomic<int> late{0};
        {
            scheduler s(driven(io, test::with(2, false)));
            waits_apart(io, e.in, apart);
            std::error_code why;
            try {
                scheduler another(driven(io, test::with(1, false)));
            } catch (const std::system_error& error) {
                why = error.code();
            }
            CHECK(why == std::errc::device_or_resource_busy);
            auto reads = s.spawn(is_readable(io, e.out));
            e.put_back();
            CHECK(std::move(reads).join());
            CHECK(apart == 0);
            s.shutdown();
            waits_apart(io, e.in, late);
            CHECK(late == 3);
        }
        CHECK(test::eventually([&] { return apart == 2; }));
        char byte = 0;
        CHECK(::read(e.out, &byte, 1) == 1);
    }
}

#endif
