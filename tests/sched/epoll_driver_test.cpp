#include <bide/sched/epoll_driver.hpp>

#include <support/catch.hpp>

// On other systems the header is empty, and so is this.
#if defined(__linux__)

#include <bide/task/task.hpp>
#include <support/alloc.hpp>
#include <support/coroutines.hpp>
#include <support/death.hpp>
#include <support/fake_clock.hpp>
#include <support/gate.hpp>
#include <support/jitter.hpp>
#include <support/platforms.hpp>
#include <support/service.hpp>
#include <support/stop.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <deque>
#include <exception>
#include <fstream>
#include <memory>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace std::chrono_literals;
using bide::deadline;
using bide::epoll_driver;
using bide::errc;
using bide::io_result;
using test::held;

static_assert(std::is_base_of_v<bide::driver, epoll_driver>);
static_assert(!std::is_copy_constructible_v<epoll_driver>);
static_assert(noexcept(std::declval<epoll_driver&>().async_wait_readable(0)));
static_assert(noexcept(std::declval<epoll_driver&>().forget(0)));
static_assert(std::is_same_v<decltype(std::declval<epoll_driver&>().async_wait_writable(0)),
                             bide::async_op<bide::io_done>>);
static_assert(std::is_same_v<bide::as_result_t<bide::io_done>, io_result>);

namespace {

constexpr unsigned most = bide::driver::max_completions;
constexpr bool reading = false;
constexpr bool writing = true;

// Two ends of a pipe or of a socket, non-blocking.
class ends {
public:
    static ends pipe() {
        int both[2];
        if (::pipe2(both, O_NONBLOCK | O_CLOEXEC) != 0) {
            test::give_up(test::where(), "no pipe");
        }
        return ends(both);
    }
    static ends sockets() {
        int both[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) != 0) {
            test::give_up(test::where(), "no sockets");
        }
        return ends(both);
    }
    ends(ends&& other) noexcept
        : in(std::exchange(other.in, -1)), out(std::exchange(other.out, -1)) {}
    ends& operator=(ends&&) = delete;
    ~ends() {
        close(in);
        close(out);
    }

    static void close(int& fd) {
        if (fd >= 0) {
            ::close(std::exchange(fd, -1));
        }
    }
    void put(std::size_t n = 1) {
        const std::vector<char> bytes(n, 'x');
        if (::write(out, bytes.data(), n) != static_cast<ssize_t>(n)) {
            test::give_up(test::where(), "cannot write");
        }
    }
    static std::size_t fill(int fd) {
        char bytes[4'096] = {};
        std::size_t sum = 0;
        for (ssize_t n; (n = ::write(fd, bytes, sizeof bytes)) > 0;) {
            sum += static_cast<std::size_t>(n);
        }
        return sum;
    }
    static std::size_t drain(int fd) {
        char bytes[4'096];
        std::size_t sum = 0;
        for (ssize_t n; (n = ::read(fd, bytes, sizeof bytes)) > 0;) {
            sum += static_cast<std::size_t>(n);
        }
        return sum;
    }

    int in;  // is read
    int out; // is written

private:
    explicit ends(const int (&both)[2]) noexcept : in(both[0]), out(both[1]) {}
};

// The outcome of a wait. `done` is written last.
struct outcome {
    bool granted = false;
    std::error_code why;
    int turn = 0;
    std::atomic<bool> done{false};

    void note(const io_result& got) noexcept {
        granted = got.has_value();
        why = got ? std::error_code() : got.error();
        done = true;
    }
    bool is_granted() const noexcept { return done && granted; }
    template <class E> bool is(E error) const noexcept { return done && !granted && why == error; }
};

template <class Driver> auto op(Driver& d, int fd, bool direction) {
    return direction == writing ? d.async_wait_writable(fd) : d.async_wait_readable(fd);
}

// Coroutines without an executor: they resume inside wait().
template <class Driver> held await(Driver& d, int fd, bool direction, outcome& out) {
    const auto got = co_await op(d, fd, direction).as_result();
    out.note(got);
}
template <class Driver>
held await(Driver& d, int fd, bool direction, outcome& out, std::stop_token stop, deadline until) {
    const auto got = co_await op(d, fd, direction).with_stop(stop).with_deadline(until);
    out.note(got);
}
template <class Driver>
held await_in_turn(Driver& d, int fd, bool direction, outcome& out, int& turns) {
    const auto got = co_await op(d, fd, direction).as_result();
    out.turn = ++turns;
    out.note(got);
}

unsigned look(bide::driver& d) { return d.wait(deadline::poll()); }

// n coroutines that wait for the same file.
class crowd {
public:
    crowd(epoll_driver& d, int fd, bool direction, std::size_t n) : outs_(n) {
        waits_.reserve(n);
        for (outcome& out : outs_) {
            waits_.push_back(await_in_turn(d, fd, direction, out, turns_));
            waits_.back().start();
        }
    }
    std::size_t granted() const {
        std::size_t n = 0;
        for (const outcome& out : outs_) {
            n += out.is_granted() ? 1 : 0;
        }
        return n;
    }
    // Requires that the first ones were let through, in order, and no others.
    bool in_order() const {
        for (std::size_t i = 0; i < outs_.size(); ++i) {
            if (outs_[i].done != (i < granted()) ||
                (outs_[i].done && outs_[i].turn != static_cast<int>(i) + 1)) {
                return false;
            }
        }
        return true;
    }

private:
    int turns_ = 0;
    std::deque<outcome> outs_;
    std::vector<held> waits_;
};

// A thread that calls wait() in a loop.
class driving {
public:
    explicit driving(bide::driver& d)
        : driver_(d), thread_([this] {
              while (!over_) {
                  driver_.wait(deadline::never());
              }
          }) {}
    driving(const driving&) = delete;
    driving& operator=(const driving&) = delete;
    ~driving() {
        over_ = true;
        driver_.wake();
        thread_.join();
    }

private:
    bide::driver& driver_;
    std::atomic<bool> over_{false};
    std::thread thread_;
};

int lowest_free_fd() {
    const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(fd);
    return fd;
}

} // namespace

// ---- What is ready

TEST_CASE(
    "epoll_driver: a wait for a ready file succeeds at once, even with a stop or a past deadline") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    ends full = ends::pipe();
    full.put();
    ends at_end = ends::pipe();
    ends::close(at_end.out);
    ends broken = ends::pipe();
    ends::close(broken.in);
    std::FILE* const file = std::tmpfile();
    REQUIRE(file != nullptr);
    const int regular = ::fileno(file);
    std::stop_source stop = test::new_stop();
    stop.request_stop();
    const struct {
        int fd;
        bool direction;
    } all[] = {{full.in, reading},    {full.out, writing}, {at_end.in, reading},
               {broken.out, writing}, {regular, reading},  {regular, writing}};
    for (const auto& one : all) {
        outcome plain;
        outcome limited;
        held a = await(d, one.fd, one.direction, plain);
        held b = await(d, one.fd, one.direction, limited, stop.get_token(), deadline::poll());
        a.start();
        b.start();
        CHECK(plain.is_granted());
        CHECK(limited.is_granted());
    }
    std::fclose(file);
    CHECK(look(d) == 0);
}

TEST_CASE("epoll_driver: the next wait() after a file became ready ends its waits") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    for (const bool direction : {reading, writing}) {
        ends e = ends::sockets();
        ends::fill(e.out);
        outcome out;
        held h = await(d, e.out, direction, out);
        h.start();
        CHECK(look(d) == 0);
        CHECK_FALSE(out.done);
        if (direction == writing) {
            ends::drain(e.in);
        } else {
            const char byte = 'x';
            REQUIRE(::write(e.in, &byte, 1) == 1);
        }
        CHECK_FALSE(out.done);
        CHECK(d.wait(deadline::never()) == 1);
        CHECK(out.is_granted());
        CHECK(look(d) == 0);
    }
}

TEST_CASE("epoll_driver: a hang-up and an error end the waits of both directions") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    ends sockets = ends::sockets();
    ends::fill(sockets.out);
    ends pipe = ends::pipe();
    ends::fill(pipe.out);
    outcome outs[3];
    held a = await(d, sockets.out, reading, outs[0]);
    held b = await(d, sockets.out, writing, outs[1]);
    held c = await(d, pipe.out, writing, outs[2]);
    a.start();
    b.start();
    c.start();
    CHECK(look(d) == 0);
    ends::close(sockets.in); // hang-up
    CHECK(look(d) == 2);
    CHECK(outs[0].is_granted());
    CHECK(outs[1].is_granted());
    CHECK_FALSE(outs[2].done);
    ends::close(pipe.in); // error
    CHECK(look(d) == 1);
    CHECK(outs[2].is_granted());
}

TEST_CASE("epoll_driver: an event ends all waits of its direction, in order, and no other wait") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    ends e = ends::sockets();
    ends::fill(e.out);
    crowd readers(d, e.out, reading, 5);
    crowd writers(d, e.out, writing, 5);
    const char byte = 'x';
    REQUIRE(::write(e.in, &byte, 1) == 1);
    CHECK(look(d) == 5);
    CHECK(readers.granted() == 5);
    CHECK(readers.in_order());
    CHECK(writers.granted() == 0);
    CHECK(look(d) == 0);
    ends::drain(e.in);
    CHECK(look(d) == 5);
    CHECK(writers.in_order());
    CHECK(writers.granted() == 5);
}

TEST_CASE("epoll_driver: a later waiter for the same file is let through with the earlier ones") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    ends e = ends::pipe();
    std::deque<outcome> outs(6);
    std::vector<held> waits;
    for (int round = 0; round < 3; ++round) { // the first one is cancelled each time
        for (std::size_t i = 0; i < outs.size(); ++i) {
            outs[i].done = false;
            waits.push_back(await(d, e.in, reading, outs[i]));
            waits.back().start();
            CHECK(look(d) == 0);
        }
        waits.front().destroy();
        e.put();
        CHECK(look(d) == 5);
        CHECK_FALSE(outs[0].done);
        for (std::size_t i = 1; i < outs.size(); ++i) {
            CHECK(outs[i].is_granted());
        }
        ends::drain(e.in);
        waits.clear();
    }
}

// ---- What one wait() hands over

TEST_CASE("epoll_driver: one wait() hands over at most max_completions, the oldest first") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    ends e = ends::pipe();
    crowd all(d, e.in, reading, 2 * most + 10);
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

TEST_CASE(
    "epoll_driver: with more ready files than max_completions, later calls hand over the rest") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    constexpr std::size_t files = most + 30;
    std::vector<ends> all;
    std::deque<outcome> outs(3 * files); // one call ends in the middle of a file
    std::vector<held> waits;
    for (std::size_t i = 0; i < files; ++i) {
        all.push_back(ends::pipe());
        for (std::size_t n = 0; n < 3; ++n) {
            waits.push_back(await(d, all[i].in, reading, outs[3 * i + n]));
            waits.back().start();
        }
    }
    for (ends& e : all) {
        e.put();
    }
    std::size_t handed = 0;
    for (unsigned n; (n = look(d)) != 0; handed += n) {
        CHECK(n <= most);
    }
    CHECK(handed == outs.size());
    for (const outcome& out : outs) {
        CHECK(out.is_granted());
    }
}

TEST_CASE(
    "epoll_driver: many waiters for one file starve neither other files nor the other direction") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    ends busy = ends::sockets();
    ends::fill(busy.out);
    ends other = ends::pipe();
    crowd readers(d, busy.out, reading, 10 * most);
    crowd writers(d, busy.out, writing, 3);
    crowd few(d, other.in, reading, 3);
    ends::drain(busy.in);
    const char byte = 'x';
    REQUIRE(::write(busy.in, &byte, 1) == 1);
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

// ---- Errors

TEST_CASE("epoll_driver: a wait for a number that is no file ends with the system's error") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    ends e = ends::pipe();
    const int gone = e.in;
    outcome before;
    held h = await(d, e.in, reading, before); // a descriptor that has an entry
    h.start();
    d.forget(e.in);
    CHECK(before.is(errc::closed));
    ends::close(e.in);
    const std::size_t allocated = test::allocations_here();
    for (const int fd : {-1, INT_MIN, INT_MAX, 1'000'000, gone}) {
        for (const bool direction : {reading, writing}) {
            outcome out;
            held a = await(d, fd, direction, out);
            a.start();
            CHECK(out.is(std::errc::bad_file_descriptor));
            CHECK(out.why.category() == std::system_category());
            d.forget(fd);
        }
    }
    // There are ten frames, and no table of a million entries.
    CHECK(test::allocations_here() - allocated <= 20);
    CHECK(look(d) == 0);
}

TEST_CASE("epoll_driver: a first wait without memory fails, and a later one succeeds") {
    if (!test::counts_allocations()) {
        return;
    }
    epoll_driver d;
    const bide::driver::attachment attached(d);
    ends e = ends::pipe();
    outcome out;
    outcome later;
    held a = await(d, e.in, reading, out);
    held b = await(d, e.in, reading, later);
    {
        const test::out_of_memory none;
        a.start();
    }
    CHECK(out.is(std::errc::not_enough_memory));
    b.start();
    e.put();
    CHECK(look(d) == 1);
    CHECK(later.is_granted());
}

TEST_CASE("epoll_driver: a wait for a file that was waited for allocates nothing") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    ends e = ends::pipe();
    for (int round = 0; round < 3; ++round) {
        outcome out;
        held h = await(d, e.in, reading, out);
        const std::size_t before = test::allocations_here();
        h.start();
        const std::size_t after = test::allocations_here();
        e.put();
        CHECK(look(d) == 1);
        CHECK(out.is_granted());
        CHECK((round == 0 || before == after));
        ends::drain(e.in);
    }
}

// g++'s sanitizer for undefined behaviour needs files where an exception is constructed.
#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE("epoll_driver: without free descriptors the constructor throws, and leaks none") {
    const int first = lowest_free_fd();
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    for (int room = 0; room < 2; ++room) { // it needs two
        rlimit small = before;
        small.rlim_cur = static_cast<rlim_t>(first + room);
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &small) == 0);
        std::exception_ptr thrown;
        try {
            const epoll_driver d;
        } catch (...) {
            thrown = std::current_exception(); // a sanitizer may need files to read it
        }
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
        REQUIRE(thrown);
        std::error_code why;
        try {
            std::rethrow_exception(thrown);
        } catch (const std::system_error& error) {
            why = error.code();
        }
        CHECK(why == std::errc::too_many_files_open);
        CHECK(lowest_free_fd() == first);
    }
    {
        const epoll_driver d;
    }
    CHECK(lowest_free_fd() == first);
}
#endif

// ---- Files that are closed

TEST_CASE(
    "epoll_driver: forget() ends all waits for a file with closed, and the file can be closed") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    ends e = ends::sockets();
    ends::fill(e.out);
    outcome outs[4];
    held a = await(d, e.out, reading, outs[0]);
    held b = await(d, e.out, reading, outs[1]);
    held c = await(d, e.out, writing, outs[2]);
    a.start();
    b.start();
    c.start();
    d.forget(e.out);
    for (int i = 0; i < 3; ++i) {
        CHECK(outs[i].is(errc::closed));
    }
    held again = await(d, e.out, reading, outs[3]);
    again.start();
    CHECK(look(d) == 0);
    const char byte = 'x';
    REQUIRE(::write(e.in, &byte, 1) == 1);
    CHECK(look(d) == 1);
    CHECK(outs[3].is_granted());
    d.forget(e.in); // no coroutine has waited for it
    d.forget(-1);
    d.forget(INT_MAX);
}

TEST_CASE("epoll_driver: forget() removes a file from the kernel's set") {
    const int set = lowest_free_fd();
    epoll_driver d;
    const bide::driver::attachment attached(d);
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
    outcome out;
    held h = await(d, e.in, reading, out);
    h.start();
    CHECK(size() == empty + 1);
    d.forget(e.in);
    CHECK(size() == empty);
}

namespace {

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

} // namespace

TEST_CASE("epoll_driver: a descriptor that was closed and reused refers to the new file") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    const bool a_copy_stays = GENERATE(false, true);
    ends old = ends::pipe();
    const int number = old.in;
    int copy = a_copy_stays ? ::dup(old.in) : -1;
    outcome cancelled;
    {
        held h = await(d, number, reading, cancelled);
        h.start();
    }
    ends::close(old.in);
    ends next = in_place_of(number);
    outcome out;
    held h = await(d, number, reading, out);
    h.start();
    if (a_copy_stays) {
        old.put(); // the kernel has an event left for the old file
    }
    CHECK(look(d) == 0);
    CHECK_FALSE(out.done);
    next.put();
    CHECK(look(d) == 1);
    CHECK(out.is_granted());
    ends::close(copy);
}

TEST_CASE("epoll_driver: an event that was not handed over yet does not end a later wait") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    ends busy = ends::pipe();
    ends old = ends::pipe();
    const int number = old.in;
    crowd all(d, busy.in, reading, most);
    outcome cancelled;
    held first = await(d, number, reading, cancelled);
    first.start();
    busy.put();
    old.put();
    CHECK(look(d) == most); // the event of the other file is left
    CHECK(all.granted() == most);
    first.destroy();
    ends::close(old.in);
    ends next = in_place_of(number);
    outcome out;
    held h = await(d, number, reading, out);
    h.start();
    CHECK(look(d) == 0);
    CHECK_FALSE(out.done);
    next.put();
    CHECK(look(d) == 1);
    CHECK(out.is_granted());
}

TEST_CASE("epoll_driver: a wait for a file that was closed ends with the next event") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    ends busy = ends::pipe();
    ends e = ends::sockets();
    ends::fill(e.out);
    crowd all(d, busy.in, reading, most);
    outcome reader;
    outcome writer;
    held a = await(d, e.out, reading, reader);
    held b = await(d, e.out, writing, writer);
    a.start();
    b.start();
    busy.put();
    const char byte = 'x';
    REQUIRE(::write(e.in, &byte, 1) == 1);
    CHECK(look(d) == most);
    ends::close(e.out); // without forget()
    CHECK(look(d) == 1);
    CHECK(reader.is_granted());
    CHECK(writer.is(errc::closed));
}

// ---- Waits that end without an event

TEST_CASE("epoll_driver: a time-out, a stop and the end of the coroutine remove the wait") {
    const test::watchdog guard;
    epoll_driver d;
    const bide::driver::attachment attached(d);
    ends e = ends::pipe();
    std::stop_source stop = test::new_stop();
    outcome outs[4];
    held late = await(d, e.in, reading, outs[0], {}, deadline::after(1ms));
    held stopped = await(d, e.in, reading, outs[1], stop.get_token(), deadline::never());
    held dropped = await(d, e.in, reading, outs[2]);
    held once = await(d, e.in, reading, outs[3], {}, deadline::poll());
    once.start();
    CHECK(outs[3].is(errc::timeout));
    late.start();
    stopped.start();
    dropped.start();
    stop.request_stop();
    REQUIRE(test::eventually([&] { return outs[0].done && outs[1].done; }));
    test::service_thread();
    dropped.destroy();
    CHECK(outs[0].is(errc::timeout));
    CHECK(outs[1].is(errc::stopped));
    CHECK_FALSE(outs[2].done);
    e.put();
    const deadline soon = deadline::after(2ms);
    CHECK(d.wait(soon) == 0); // the event without a waiter does not end it
    CHECK(bide::native_platform::now() >= soon.steady_ns());
}

TEST_CASE("epoll_driver: a cancelled wait does not end a wait in the other direction") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
    ends e = ends::sockets();
    ends::fill(e.out);
    outcome outs[2];
    held reader = await(d, e.out, reading, outs[0]);
    held writer = await(d, e.out, writing, outs[1]);
    reader.start();
    writer.start();
    reader.destroy();
    const char byte = 'x';
    REQUIRE(::write(e.in, &byte, 1) == 1);
    CHECK(look(d) == 0); // the event without a waiter
    CHECK_FALSE(outs[1].done);
    ends::drain(e.in);
    CHECK(look(d) == 1);
    CHECK(outs[1].is_granted());
}

TEST_CASE("epoll_driver: destroyed with waiters, it terminates with their number") {
    const std::string said = test::dies([] {
        ends e = ends::sockets();
        ends::fill(e.out);
        outcome outs[2];
        std::vector<held> waits;
        epoll_driver d;
        const bide::driver::attachment attached(d);
        waits.push_back(await(d, e.out, reading, outs[0]));
        waits.push_back(await(d, e.out, writing, outs[1]));
        waits[0].start();
        waits[1].start();
        std::destroy_at(&d);
    });
    INFO(said);
    CHECK(test::contains(said, "bide: epoll_driver 0x"));
    CHECK(test::contains(said, "destroyed with 2 waiting"));
}

// ---- Without a scheduler

namespace {

// Returns "" if it was let through.
held await_by_value(epoll_driver& d, int fd, std::string& said, std::error_code& why) {
    try {
        co_await d.async_wait_readable(fd);
    } catch (const bide::closed_error& error) {
        said = "closed";
        why = error.code();
    } catch (const std::system_error& error) {
        said = "failed";
        why = error.code();
    }
}

} // namespace

TEST_CASE("epoll_driver: a wait without as_result throws the error") {
    epoll_driver d;
    ends e = ends::pipe();
    std::string said;
    std::error_code why;
    {
        const bide::driver::attachment attached(d);
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

TEST_CASE("epoll_driver: a wait that no scheduler would end fails at once",
          "[promise.file-wait-without-driver]") {
    epoll_driver d;
    ends e = ends::pipe();
    for (int round = 0; round < 3; ++round) { // never attached, and attached earlier
        outcome plain;
        outcome limited;
        outcome one_attempt;
        held a = await(d, e.in, reading, plain);
        held b = await(d, e.in, reading, limited, std::stop_token(), deadline::never());
        held c = await(d, e.in, reading, one_attempt, std::stop_token(), deadline::poll());
        a.start();
        b.start();
        c.start();
        CHECK(plain.is(std::errc::resource_deadlock_would_occur));
        CHECK(limited.is(std::errc::resource_deadlock_would_occur));
        CHECK(one_attempt.is(errc::timeout));
        const bide::driver::attachment attached(d);
        outcome later;
        held w = await(d, e.in, reading, later);
        w.start();
        CHECK_FALSE(later.done);
        e.put();
        CHECK(look(d) == 1);
        CHECK(later.is_granted());
        CHECK(ends::drain(e.in) == 1);
    }
}

TEST_CASE("epoll_driver: the end of an attachment ends all waits, and a second attachment throws") {
    epoll_driver d;
    ends a = ends::pipe();
    ends b = ends::sockets();
    ends::fill(b.out);
    outcome outs[3];
    held first = await(d, a.in, reading, outs[0]);
    held second = await(d, b.out, writing, outs[1]);
    {
        const bide::driver::attachment attached(d);
        first.start();
        second.start();
        std::error_code why;
        try {
            const bide::driver::attachment another(d);
        } catch (const std::system_error& error) {
            why = error.code();
        }
        CHECK(why == std::errc::device_or_resource_busy);
        CHECK_FALSE(outs[0].done);
    }
    CHECK(outs[0].is(errc::closed));
    CHECK(outs[1].is(errc::closed));
    const bide::driver::attachment again(d);
    held third = await(d, a.in, reading, outs[2]);
    third.start();
    CHECK_FALSE(outs[2].done);
    a.put();
    CHECK(look(d) == 1);
    CHECK(outs[2].is_granted());
}

// ---- Wakes and time-outs

TEST_CASE("epoll_driver: wakes before a wait() end that one, and no later one") {
    const test::watchdog guard;
    epoll_driver d;
    const bide::driver::attachment attached(d);
    for (int round = 0; round < 3; ++round) {
        d.wake();
        d.wake();
        CHECK(d.wait(deadline::never()) == 0);
        const deadline soon = deadline::after(2ms);
        CHECK(d.wait(soon) == 0); // the second wake does not end it
        CHECK(bide::native_platform::now() >= soon.steady_ns());
    }
}

TEST_CASE("epoll_driver: a wait() does not return before its deadline, on any clock") {
    const test::watchdog guard;
    struct tag {};
    using fake = test::fake_clock<tag>;
    epoll_driver d;
    const bide::driver::attachment attached(d);
    CHECK(d.wait(deadline::poll()) == 0);
    CHECK(d.wait(deadline::after(-1h)) == 0);
    CHECK(d.wait(deadline::at(std::chrono::steady_clock::now() - 1h)) == 0);
    for (const auto rest : {1ns, 999ns, 50'000ns, 1'000'001ns, 3'700'000ns}) {
        const deadline end = deadline::after(rest);
        CHECK(d.wait(end) == 0);
        CHECK(bide::native_platform::now() >= end.steady_ns());
        const auto when = std::chrono::system_clock::now() + rest;
        CHECK(d.wait(deadline::at(when)) == 0);
        CHECK(std::chrono::system_clock::now() >= when);
    }
    const auto hour = fake::time_point(1h);
    std::atomic<bool> over{false};
    bool early = false;
    test::team clocks(2, [&](int i) {
        if (i == 0) {
            d.wait(deadline::at(fake::time_point(2ms)));
            early = fake::now() < fake::time_point(2ms);
            over = true;
        } else if (test::eventually([] { return fake::reads > 6; })) {
            fake::set(1h);
        }
    });
    clocks.join();
    CHECK(over);
    CHECK_FALSE(early);
    CHECK(fake::now() >= hour);
}

TEST_CASE("epoll_driver: a signal does not end a wait") {
    const test::watchdog guard;
    struct sigaction before{};
    struct sigaction quiet{};
    static std::atomic<int> signals{0};
    quiet.sa_handler = [](int) { signals.fetch_add(1); }; // and no SA_RESTART
    REQUIRE(::sigaction(SIGUSR1, &quiet, &before) == 0);
    epoll_driver d;
    const bide::driver::attachment attached(d);
    std::atomic<pthread_t> sleeper{};
    std::atomic<bool> ready{false};
    std::atomic<bool> over{false};
    unsigned handed = 7;
    test::team threads(2, [&](int i) {
        if (i == 0) {
            sleeper = ::pthread_self();
            ready = true;
            handed = d.wait(deadline::never());
            over = true;
        } else {
            test::eventually([&] { return ready.load(); });
            for (int sent = 1; sent <= 20; ++sent) {
                ::pthread_kill(sleeper, SIGUSR1);
                test::eventually([&] { return signals == sent; });
                if (over) {
                    return;
                }
            }
            d.wake();
        }
    });
    threads.join();
    ::sigaction(SIGUSR1, &before, nullptr);
    CHECK(signals == 20);
    CHECK(handed == 0);
}

TEST_CASE("epoll_driver: a wait() without events uses no processor time") {
    epoll_driver d;
    const bide::driver::attachment attached(d);
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
            while (bide::native_platform::now() < end.steady_ns()) {
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

TEMPLATE_TEST_CASE("epoll_driver: no wake is lost, and each one publishes what was done before",
                   "[promise.ready-file]", test::native, test::jittery) {
    bide::basic_epoll_driver<TestType> d;
    const bide::driver::attachment attached(d);
    constexpr int rounds = 2'000;
    std::atomic<int> seen{0};
    int said = 0; // published by wake() only
    bool in_order = true;
    test::run_threads(2, [&](int i) {
        for (int round = 1; round <= rounds; ++round) {
            if (i == 0) {
                d.wait(deadline::never());
                in_order = in_order && said == round;
                seen = round;
            } else {
                said = round;
                d.wake();
                while (seen != round) {
                    std::this_thread::yield();
                }
            }
        }
    });
    CHECK(in_order);
}

TEMPLATE_TEST_CASE("epoll_driver: of many wakes at the same time none is lost", "", test::native,
                   test::jittery) {
    bide::basic_epoll_driver<TestType> d;
    const bide::driver::attachment attached(d);
    constexpr int wakers = 3;
    constexpr int each = 2'000;
    std::atomic<int> made{0};
    std::atomic<int> taken{0};
    test::run_threads(1 + wakers, [&](int i) {
        if (i == 0) {
            while (taken != wakers * each) {
                if (made.load() == taken.load()) { // sleeps only if there is nothing
                    d.wait(deadline::never());
                }
                taken = made.load();
            }
        } else {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
            for (int n = 0; n < each; ++n) {
                chance();
                ++made;
                d.wake();
                if (n % 8 == 0) { // so that it sleeps sometimes
                    test::eventually([&] { return taken >= made; });
                }
            }
        }
    });
    CHECK(taken == wakers * each);
}

// ---- Load

namespace {

constexpr unsigned char mix(unsigned n) {
    return static_cast<unsigned char>((n * 2'654'435'769u) >> 24);
}

// What several readers of one file have read together. They run on one thread.
struct received {
    unsigned total = 0;
    bool good = true;
    std::atomic<int> readers{0};
};

template <class Driver> test::detached receive(Driver& d, int fd, received& sum) {
    std::array<unsigned char, 300> bytes;
    for (ssize_t n; (n = ::read(fd, bytes.data(), bytes.size())) != 0;) {
        if (n < 0) {
            const auto got = co_await d.async_wait_readable(fd).as_result();
            sum.good = sum.good && got.has_value();
        }
        for (ssize_t i = 0; i < n; ++i, ++sum.total) {
            sum.good = sum.good && bytes[static_cast<std::size_t>(i)] == mix(sum.total);
        }
    }
    --sum.readers;
}

// Writes `total` bytes, the n-th of them mix(n), and then closes.
template <class Driver>
test::held_on<test::thread_executor> send(test::thread_executor&, Driver& d, int fd, unsigned total,
                                          outcome& out) {
    std::array<unsigned char, 700> bytes;
    io_result last;
    for (unsigned sent = 0; sent < total && last;) {
        const unsigned n = std::min(total - sent, 1 + 2u * mix(sent));
        for (unsigned i = 0; i < n; ++i) {
            bytes[i] = mix(sent + i);
        }
        const ssize_t written = ::write(fd, bytes.data(), n);
        if (written > 0) {
            sent += static_cast<unsigned>(written);
        } else {
            const auto got = co_await d.async_wait_writable(fd).as_result();
            last = got;
        }
    }
    ::shutdown(fd, SHUT_WR);
    out.note(last);
}

} // namespace

TEMPLATE_TEST_CASE("epoll_driver: under load each byte arrives once, in order", "", test::native,
                   test::jittery) {
    using driver = bide::basic_epoll_driver<TestType>;
    using sender = test::held_on<test::thread_executor>;
    const test::watchdog guard;
    constexpr std::size_t files = 24;
    constexpr unsigned total = 20'000;
    driver d;
    const bide::driver::attachment attached(d);
    std::deque<ends> all;
    std::deque<outcome> sent(2 * files);
    std::deque<received> got(2 * files);
    std::vector<sender> senders;
    test::thread_executor there; // for the senders; the receivers run in wait()
    for (std::size_t i = 0; i < 2 * files; ++i) {
        if (i % 2 == 0) {
            all.push_back(ends::sockets());
        }
        const int fd = i % 2 == 0 ? all.back().in : all.back().out;
        const int small = 4'096;
        ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
        got[i].readers = 1 + static_cast<int>(i) % 3;
        for (int n = got[i].readers; n != 0; --n) {
            receive(d, fd, got[i]);
        }
        senders.push_back(send(there, d, fd, total, sent[i]));
    }
    {
        const driving thread(d);
        for (sender& s : senders) {
            there.post(bide::waker([](void* h) noexcept { static_cast<sender*>(h)->start(); }, &s));
        }
        const auto over = [&] {
            for (std::size_t i = 0; i < 2 * files; ++i) {
                if (!sent[i].done || got[i].readers != 0) {
                    return false;
                }
            }
            return true;
        };
        REQUIRE(test::eventually(over));
    }
    for (std::size_t i = 0; i < 2 * files; ++i) {
        CHECK(sent[i].granted);
        CHECK(got[i].good);
        CHECK(got[i].total == total);
    }
    CHECK(look(d) == 0);
}

namespace {

template <class Driver>
bide::task<bool> readable_within(Driver& d, int fd, std::chrono::nanoseconds rest) {
    const auto got = co_await d.async_wait_readable(fd).with_timeout(rest);
    co_return got.has_value();
}

} // namespace

TEMPLATE_TEST_CASE("epoll_driver: in a storm of time-outs each byte is read once", "", test::native,
                   test::jittery) {
    bide::basic_epoll_driver<TestType> d;
    const bide::driver::attachment attached(d);
    constexpr std::uint32_t pipes = 3;
    constexpr unsigned total = 1'500;
    std::vector<ends> all;
    for (std::uint32_t i = 0; i < pipes; ++i) {
        all.push_back(ends::pipe());
    }
    std::atomic<unsigned> received{0};
    const driving thread(d);
    CAPTURE(test::run_seed());
    test::run_threads(3, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        for (unsigned sent = 0; i == 0 && sent < total; ++sent) {
            all[chance.below(pipes)].put();
            chance.dawdle(15);
        }
        while (i != 0 && received < total) {
            const int fd = all[chance.below(pipes)].in;
            if (bide::sync_wait(readable_within(d, fd, chance.rest(16)))) {
                received += static_cast<unsigned>(ends::drain(fd));
            }
        }
    });
    CHECK(received == total);
    for (const ends& e : all) {
        CHECK(ends::drain(e.in) == 0);
    }
}

namespace {

template <class Driver>
test::detached await_detached(Driver& d, int fd, std::stop_token stop, outcome& out) {
    const auto got = co_await d.async_wait_readable(fd).with_stop(stop);
    out.note(got);
}

} // namespace

TEMPLATE_TEST_CASE("epoll_driver: while files are opened and closed, each wait ends as it must", "",
                   test::native, test::jittery) {
    bide::basic_epoll_driver<TestType> d;
    const bide::driver::attachment attached(d);
    constexpr int rounds = 400;
    constexpr int threads = 2; // they reuse each other's descriptors
    int wrong[threads] = {};
    {
        const driving thread(d);
        CAPTURE(test::run_seed());
        test::run_threads(threads, [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
            for (int round = 0; round < rounds; ++round) {
                ends e = chance.below(2) == 0 ? ends::pipe() : ends::sockets();
                std::stop_source stop = test::new_stop();
                outcome out;
                await_detached(d, e.in, stop.get_token(), out);
                chance();
                const std::uint32_t end = 1 + chance.below(7); // one of the three, or more
                if ((end & 1) != 0) {
                    e.put();
                }
                if ((end & 2) != 0) {
                    d.forget(e.in);
                }
                if ((end & 4) != 0) {
                    stop.request_stop();
                }
                const bool as_it_has_to = test::eventually([&] { return out.done.load(); }) &&
                                          (((end & 1) != 0 && out.is_granted()) ||
                                           ((end & 2) != 0 && out.is(errc::closed)) ||
                                           ((end & 4) != 0 && out.is(errc::stopped)));
                wrong[i] += as_it_has_to ? 0 : 1;
            }
        });
    }
    for (const int n : wrong) {
        CHECK(n == 0);
    }
    CHECK(look(d) == 0);
}

#endif
