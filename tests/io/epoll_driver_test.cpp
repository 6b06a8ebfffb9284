#include <bide/io/epoll_driver.hpp>

// What an epoll_driver alone promises; the rest is in file_drivers_test.cpp. On other systems the header
// is empty, and so is this.
#if defined(__linux__)

#include <support/file_waits.hpp>
#include <support/sched.hpp>

#include <fcntl.h>
#include <unistd.h>

using namespace bide;
using namespace test;

static_assert(std::is_same_v<decltype(std::declval<epoll_driver&>().async_wait_writable(0)),
                             async_op<io_done>>);
static_assert(std::is_same_v<as_result_t<io_done>, io_result>);

namespace {

constexpr unsigned most = driver::max_completions;

held await_in_turn(epoll_driver& d, int fd, bool writes, file_outcome& out, int& turns) {
    auto op = writes ? writable(d, fd) : readable(d, fd);
    const auto got = co_await std::move(op);
    out.bytes = static_cast<std::size_t>(++turns);
    out.done = got.has_value();
}

// n coroutines that wait for the same file.
class crowd {
public:
    crowd(epoll_driver& d, int fd, bool writes, std::size_t n) : outs_(n) {
        waits_.reserve(n);
        for (file_outcome& out : outs_) {
            waits_.push_back(await_in_turn(d, fd, writes, out, turns_));
            waits_.back().start();
        }
    }
    std::size_t granted() const {
        std::size_t n = 0;
        for (const file_outcome& out : outs_) {
            n += out.done ? 1 : 0;
        }
        return n;
    }
    // Requires that the first ones were let through, in order, and no others.
    bool in_order() const {
        const std::size_t n = granted();
        for (std::size_t i = 0; i < outs_.size(); ++i) {
            if (outs_[i].done != (i < n) || (i < n && outs_[i].bytes != i + 1)) {
                return false;
            }
        }
        return true;
    }

private:
    int turns_ = 0;
    std::deque<file_outcome> outs_;
    std::vector<held> waits_;
};

int lowest_free_fd() {
    const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(fd);
    return fd;
}

// A test with a driver that could be a scheduler's.
struct attached_driver {
    epoll_driver d;
    driver::attachment attached{d};
};

// Another pipe, with this descriptor as the end that is read.
ends in_place_of(int number) {
    const bool is_closed = ::fcntl(number, F_GETFD) < 0;
    ends next = ends::pipe();
    if (next.in != number) {
        REQUIRE(next.out != number);
        REQUIRE(::dup2(next.in, number) == number);
        ::close(std::exchange(next.in, number));
    }
    REQUIRE(is_closed);
    return next;
}

// Returns "" if it was let through.
held await_by_value(epoll_driver& d, int fd, std::string& said, std::error_code& why) {
    try {
        const auto done = co_await d.async_wait_readable(fd);
        done.value();
        said = done && done.has_value() ? "" : "no value"; // as of a result
    } catch (const closed_error& error) {
        said = "closed";
        why = error.code();
    } catch (const std::system_error& error) {
        said = "failed";
        why = error.code();
    }
}

} // namespace

TEST_CASE_METHOD(attached_driver,
                 "epoll_driver: one wait() hands over at most max_completions, the oldest first") {
    ends e = ends::pipe();
    crowd all(d, e.in, false, 2 * most + 10);
    e.put();
    CHECK(d.wait(deadline::never()) == most);
    CHECK(all.in_order());
    CHECK(d.wait(deadline::never()) == most);
    CHECK(all.in_order());
    CHECK(d.wait(deadline::never()) == 10);
    CHECK(all.granted() == 2 * most + 10);
    CHECK(all.in_order());
    CHECK(look(d) == 0);
}

TEST_CASE_METHOD(
    attached_driver,
    "epoll_driver: with more ready files than max_completions, later calls hand over the rest") {
    constexpr std::size_t files = most + 30;
    std::vector<ends> all;
    test::file_waits waits;
    for (std::size_t i = 0; i < files; ++i) {
        all.push_back(ends::pipe());
        for (std::size_t n = 0; n < 3; ++n) { // one call ends in the middle of a file
            waits.add(readable(d, all[i].in));
        }
    }
    for (ends& e : all) {
        e.put();
    }
    std::size_t handed = 0;
    for (unsigned n; (n = look(d)) != 0; handed += n) {
        CHECK(n <= most);
    }
    CHECK(handed == 3 * files);
    CHECK(waits.granted() == handed);
}

TEST_CASE_METHOD(
    attached_driver,
    "epoll_driver: many waiters for one file starve neither other files nor the other direction") {
    ends busy = ends::full_sockets();
    ends other = ends::pipe();
    crowd readers(d, busy.out, false, 10 * most);
    crowd writers(d, busy.out, true, 3);
    crowd few(d, other.in, false, 3);
    ends::drain(busy.in);
    busy.put_back();
    other.put();
    for (int turn = 0; turn < 3; ++turn) {
        CHECK(d.wait(deadline::never()) <= most);
    }
    CHECK(few.granted() == 3);
    CHECK(writers.granted() == 3);
    CHECK(readers.granted() < 10 * most);
    CHECK(readers.in_order());
    while (look(d) != 0) {
    }
    CHECK(readers.granted() == 10 * most);
}

TEST_CASE("epoll_driver: forget() removes a file from the kernel's set") {
    const int set = lowest_free_fd();
    epoll_driver d;
    const driver::attachment attached(d);
    ends e = ends::pipe();
    const auto size = [set] {
        std::ifstream all("/proc/self/fdinfo/" + std::to_string(set));
        int files = 0;
        for (std::string line; std::getline(all, line);) {
            files += test::contains(line, "tfd:") ? 1 : 0;
        }
        return files;
    };
    const int empty = size(); // without its own
    file_outcome out;
    held h = await(readable(d, e.in), out);
    h.start();
    CHECK(size() == empty + 1);
    d.forget(e.in);
    CHECK(size() == empty);
}

TEST_CASE_METHOD(attached_driver,
                 "epoll_driver: a descriptor that was closed and reused refers to the new file") {
    const bool a_copy_stays = GENERATE(false, true);
    ends old = ends::pipe();
    const int number = old.in;
    int copy = a_copy_stays ? ::dup(old.in) : -1;
    file_outcome cancelled;
    {
        held h = await(readable(d, number), cancelled);
        h.start();
    }
    test::close_file(old.in);
    ends next = in_place_of(number);
    file_outcome out;
    held h = await(readable(d, number), out);
    h.start();
    if (a_copy_stays) {
        old.put(); // the kernel has an event left for the old file
    }
    CHECK(look(d) == 0);
    CHECK_FALSE(out.done);
    next.put();
    CHECK(look(d) == 1);
    CHECK(out.is_granted());
    test::close_file(copy);
}

TEST_CASE_METHOD(attached_driver,
                 "epoll_driver: an event that was not handed over yet does not end a later wait") {
    ends busy = ends::pipe();
    ends old = ends::pipe();
    const int number = old.in;
    crowd all(d, busy.in, false, most);
    file_outcome cancelled;
    held first = await(readable(d, number), cancelled);
    first.start();
    busy.put();
    old.put();
    CHECK(look(d) == most); // the event of the other file is left
    CHECK(all.granted() == most);
    first.destroy();
    test::close_file(old.in);
    ends next = in_place_of(number);
    file_outcome out;
    held h = await(readable(d, number), out);
    h.start();
    CHECK(look(d) == 0);
    CHECK_FALSE(out.done);
    next.put();
    CHECK(look(d) == 1);
    CHECK(out.is_granted());
}

TEST_CASE_METHOD(attached_driver,
                 "epoll_driver: a wait for a file that was closed ends with the next event") {
    ends busy = ends::pipe();
    ends e = ends::full_sockets();
    crowd all(d, busy.in, false, most);
    test::file_waits both;
    both.add(readable(d, e.out));
    both.add(writable(d, e.out));
    busy.put();
    e.put_back();
    CHECK(look(d) == most);
    test::close_file(e.out); // without forget()
    CHECK(look(d) == 1);
    CHECK(both.said() == "granted closed");
}

TEST_CASE_METHOD(attached_driver,
                 "epoll_driver: a cancelled wait does not end a wait in the other direction") {
    ends e = ends::full_sockets();
    test::file_waits both;
    both.add(readable(d, e.out));
    both.add(writable(d, e.out));
    both.destroy(0);
    e.put_back();
    CHECK(look(d) == 0); // the event without a waiter
    CHECK(both.said() == "waits waits");
    ends::drain(e.in);
    CHECK(look(d) == 1);
    CHECK(both.said() == "waits granted");
}

TEST_CASE("epoll_driver: a wait without as_result throws the error") {
    epoll_driver d;
    ends e = ends::pipe();
    std::string said;
    std::error_code why;
    {
        const driver::attachment attached(d);
        held none = await_by_value(d, -1, said, why);
        none.start();
        CHECK(none.done());
        CHECK(said == "failed");
        CHECK(why == std::errc::bad_file_descriptor);
        held forgotten = await_by_value(d, e.in, said, why);
        forgotten.start();
        CHECK_FALSE(forgotten.done());
        d.forget(e.in);
        CHECK(forgotten.done());
        CHECK(said == "closed");
    }
    said.clear();
    e.put();
    held ready = await_by_value(d, e.in, said, why);
    ready.start();
    CHECK(ready.done());
    CHECK(said.empty());
}

TEST_CASE_METHOD(attached_driver, "epoll_driver: a wait() without events uses no processor time") {
    std::atomic<bool> woken{false};
    std::int64_t busy = 0; // processor time in nanoseconds, in 40 ms
    test::run_threads(2, [&](int i) {
        if (i == 0) {
            d.wait(deadline::never());
            woken = true;
            const auto used = []() noexcept {
                timespec t{};
                ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
                return t.tv_sec * std::int64_t{1'000'000'000} + t.tv_nsec;
            };
            const std::int64_t before = used();
            const deadline end = deadline::after(40ms);
            while (native_platform::now() < end.steady_ns()) {
                d.wait(end);
            }
            busy = used() - before;
        } else {
            while (!woken) { // until one finds it asleep, probably
                std::this_thread::sleep_for(1ms);
                d.wake();
            }
        }
    });
    CHECK(busy < 20'000'000);
}

#endif
