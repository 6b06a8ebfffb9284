#include <bide/io/pollable_wait.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>

// On other systems the header is empty, and so is this.
#if defined(__linux__)

#include <support/file_waits.hpp>
#include <support/sched.hpp>

#include <poll.h>

using namespace bide;

namespace {

bool is_readable(int fd, int ms = 0) {
    pollfd file{fd, POLLIN, 0};
    return ::poll(&file, 1, ms) == 1;
}

} // namespace

TEST_CASE("pollable_wait: its descriptor is readable exactly while there is a result",
          "[promise.pollable-result]") {
    semaphore s(0);
    pollable_wait<permit> w;
    REQUIRE_FALSE(is_readable(w.fd()));
    w.begin(s.async_acquire());
    REQUIRE_FALSE(is_readable(w.fd()));
    REQUIRE_FALSE(w.is_complete());
    s.release();
    REQUIRE(w.is_complete());
    REQUIRE(is_readable(w.fd()));
    REQUIRE(is_readable(w.fd()));
    REQUIRE(w.take().has_value());
    REQUIRE_FALSE(is_readable(w.fd()));
    REQUIRE(s.available() == 1);
    w.begin(s.async_acquire()); // complete at once
    REQUIRE(is_readable(w.fd()));
    w.begin(s.async_acquire()); // drops the first, and takes the same permit again
    REQUIRE(is_readable(w.fd()));
    w.take()->forget();
    w.begin(s.async_acquire());
    REQUIRE_FALSE(is_readable(w.fd()));
    REQUIRE(w.cancel());
    REQUIRE(is_readable(w.fd()));
    REQUIRE(w.take().error() == errc::stopped);
    REQUIRE_FALSE(is_readable(w.fd()));
}

TEST_CASE("pollable_wait: a time-out makes it readable") {
    mutex m;
    const std::scoped_lock mine(m);
    pollable_wait<std::unique_lock<mutex>> w;
    semaphore none(0);
    pollable_wait<permit> p;
    p.begin(none.async_acquire().with_timeout(1ms));
    w.begin(m.async_lock());
    REQUIRE(is_readable(p.fd(), -1));
    REQUIRE(p.take().error() == errc::timeout);
    REQUIRE_FALSE(is_readable(w.fd()));
}

TEST_CASE("pollable_wait: a loop of poll() receives what threads send") {
    constexpr int threads = 2;
    constexpr int items = 2'000;
    channel<int> c(4);
    test::team team(threads, [&](int) {
        for (int i = 1; i <= items; ++i) {
            static_cast<void>(c.send(i));
        }
    });
    std::int64_t sum = 0;
    int count = 0;
    pollable_wait<std::optional<int>> next;
    next.begin(c.async_recv());
    while (count < threads * items) {
        if (!is_readable(next.fd(), -1)) {
            continue; // a signal
        }
        sum += *next.take().value();
        ++count;
        next.begin(c.async_recv());
    }
    team.join();
    REQUIRE(sum == std::int64_t{threads} * items * (items + 1) / 2);
    REQUIRE_FALSE(next.is_complete());
    c.close();
    REQUIRE(is_readable(next.fd(), -1));
    REQUIRE_FALSE(next.take().value().has_value());
}

TEST_CASE("pollable_wait: may be destroyed as soon as it is complete") {
    for (int round = 0; round < 100; ++round) {
        semaphore s(0);
        std::thread releasing;
        {
            pollable_wait<permit> w;
            w.begin(s.async_acquire());
            releasing = std::thread([&] { s.release(); });
            while (!w.is_complete()) {
                std::this_thread::yield();
            }
        } // its descriptor is closed; the releaser must not write to it
        releasing.join();
        REQUIRE(s.available() == 1);
    }
}

TEST_CASE("pollable_wait: begun anew as soon as it is complete, it is not readable",
          "[promise.pollable-result]") {
    semaphore none(0);
    int stale = 0;
    for (int round = 0; round < 200; ++round) {
        semaphore s(0);
        pollable_wait<permit> w;
        w.begin(s.async_acquire());
        std::thread releasing([&] { s.release(); });
        while (!w.is_complete()) {
            std::this_thread::yield();
        }
        w.begin(none.async_acquire());
        releasing.join();
        stale += is_readable(w.fd()) ? 1 : 0;
    }
    REQUIRE(stale == 0);
}

// The sanitizers for addresses and undefined behaviour need files where an exception is constructed.
#if defined(__SANITIZE_ADDRESS__)
#define BIDE_TEST_NEEDS_FILES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BIDE_TEST_NEEDS_FILES 1
#endif
#endif
#if BIDE_EXCEPTIONS && !defined(BIDE_TEST_NEEDS_FILES)

TEST_CASE("pollable_wait: without descriptors the constructor throws the system's error") {
    std::error_code error;
    {
        const test::no_descriptors here;
        try {
            pollable_wait<permit> w;
        } catch (const std::system_error& e) {
            error = e.code();
        }
    }
    REQUIRE(error == std::errc::too_many_files_open);
}

#endif
#endif
