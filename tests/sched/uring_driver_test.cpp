#include <bide/sched/uring_driver.hpp>

#include <support/catch.hpp>

#include <bide/sched/io_socket.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>
#include <support/alloc.hpp>
#include <support/coroutines.hpp>
#include <support/death.hpp>
#include <support/gate.hpp>
#include <support/jitter.hpp>
#include <support/platforms.hpp>
#include <support/service.hpp>
#include <support/stop.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace std::chrono_literals;
using bide::deadline;
using bide::errc;
using bide::task;
using bide::uring_driver;
using test::held;

static_assert(std::is_base_of_v<bide::driver, uring_driver>);
static_assert(!std::is_copy_constructible_v<uring_driver>);

namespace {

// Whether the system lets this process use io_uring. If not, the tests have nothing to run on.
bool refused() {
    static const std::string why = [] {
        try {
            const uring_driver made;
        } catch (const std::system_error& error) {
            return std::string(error.what());
        }
        return std::string();
    }();
    if (!why.empty()) {
        WARN("skipped: " << why);
    }
    return !why.empty();
}

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

// Two connected files. The second one is for plain system calls.
struct ends {
    explicit ends(bool pipe = false, int flags = 0) {
        int both[2];
        if ((pipe ? ::pipe2(both, O_CLOEXEC | flags)
                  : ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both)) != 0) {
            test::give_up(test::where(), "no files");
        }
        mine = both[0];
        other = both[1];
    }
    ends(const ends&) = delete;
    ends& operator=(const ends&) = delete;
    ~ends() {
        close(mine);
        close(other);
    }
    static void close(int& fd) {
        if (fd >= 0) {
            ::close(std::exchange(fd, -1));
        }
    }
    void put(std::string_view text) const {
        if (::write(other, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
            test::give_up(test::where(), "cannot write");
        }
    }
    // What lies in the socket and was not read.
    std::string rest() const {
        std::string text(64, '\0');
        const ssize_t n = ::recv(mine, text.data(), text.size(), MSG_DONTWAIT);
        text.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
        return text;
    }

    int mine = -1;
    int other = -1;
};

std::size_t open_files() {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator("/proc/self/fd")) {
        ++n;
    }
    return n;
}

struct outcome {
    std::error_code why;
    std::size_t bytes = 0;
    std::atomic<bool> done{false}; // written last

    template <class R> void note(const R& got) noexcept {
        why = got ? std::error_code() : got.error();
        if constexpr (!std::is_void_v<typename R::value_type>) {
            bytes = got ? static_cast<std::size_t>(*got) : 0;
        }
        done = true;
    }
    template <class E> bool is(E error) const noexcept { return done && why == error; }
    bool has(std::size_t n) const noexcept { return done && !why && bytes == n; }
};

// Coroutines without an executor: they resume inside wait().
template <class Op> held await(Op op, outcome& out) {
    const auto got = co_await std::move(op);
    out.note(got);
}
template <class Op> test::detached await_detached(Op op, outcome& out) {
    const auto got = co_await std::move(op);
    out.note(got);
}
auto readable(uring_driver& d, int fd) { return d.async_wait_readable(fd).as_result(); }
auto writable(uring_driver& d, int fd) { return d.async_wait_writable(fd).as_result(); }

unsigned look(bide::driver& d) { return d.wait(deadline::poll()); }

// Calls wait() until that is so.
template <class Condition> bool waits_until(uring_driver& d, Condition condition) {
    const deadline end = deadline::after(test::patience);
    while (!condition() && !end.has_passed()) {
        d.wait(end);
    }
    return condition();
}

template <class T> T finish(bide::run_loop& loop, bide::join_handle<T> handle) {
    loop.run();
    return std::move(handle).join();
}

sockaddr_in loopback(std::uint16_t port = 0) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = port;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}
sockaddr_in address_of(int fd) {
    sockaddr_in at{};
    socklen_t size = sizeof at;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
        test::give_up(test::where(), "no address");
    }
    return at;
}
int listening(int backlog = 8) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto at = loopback();
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
        ::listen(fd, backlog) != 0) {
        test::give_up(test::where(), "cannot listen");
    }
    return fd;
}

} // namespace

// ---- Readiness

TEST_CASE("uring_driver: the next wait() after a file became ready ends its waits") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    uring_driver d;
    const bide::driver::attachment attached(d);
    ends e;
    outcome outs[4];
    held reader = await(readable(d, e.mine), outs[0]);
    held second = await(readable(d, e.mine), outs[1]);
    held dropped = await(readable(d, e.mine), outs[2]);
    held writer = await(writable(d, e.mine), outs[3]);
    reader.start();
    second.start();
    dropped.start();
    writer.start();
    CHECK(outs[3].has(0));
    CHECK(look(d) == 0);
    dropped.destroy();
    e.put("x");
    REQUIRE(waits_until(d, [&] { return outs[0].done && outs[1].done; }));
    CHECK(outs[0].has(0));
    CHECK(outs[1].has(0));
    CHECK_FALSE(outs[2].done);
    CHECK(e.rest() == "x");
}

TEST_CASE("uring_driver: waits for both directions of a file end each by its own event") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    uring_driver d;
    const bide::driver::attachment attached(d);
    ends e;
    ::fcntl(e.mine, F_SETFL, O_NONBLOCK);
    const std::vector<char> much(4'096, 'x');
    while (::write(e.mine, much.data(), much.size()) > 0) {
    }
    outcome outs[2];
    held reader = await(readable(d, e.mine), outs[0]);
    held writer = await(writable(d, e.mine), outs[1]);
    reader.start();
    writer.start();
    e.put("x");
    REQUIRE(waits_until(d, [&] { return outs[0].done.load(); }));
    CHECK_FALSE(outs[1].done);
    ends::close(e.other); // a hang-up
    REQUIRE(waits_until(d, [&] { return outs[1].done.load(); }));
    CHECK(outs[1].has(0));
}

TEST_CASE("uring_driver: stops, forget() and time-outs end waits, and the file is released") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    uring_driver d;
    const bide::driver::attachment attached(d);
    ends e;
    std::stop_source stop = test::new_stop();
    outcome outs[4];
    held late = await(readable(d, e.mine).with_timeout(1ms), outs[0]);
    held stopped = await(readable(d, e.mine).with_stop(stop.get_token()), outs[1]);
    held closed = await(readable(d, e.mine), outs[2]);
    held none = await(readable(d, -1), outs[3]);
    late.start();
    stopped.start();
    closed.start();
    none.start();
    CHECK(outs[3].is(std::errc::bad_file_descriptor));
    stop.request_stop();
    REQUIRE(test::eventually([&] { return outs[0].done && outs[1].done; }));
    test::service_thread();
    CHECK(outs[0].is(errc::timeout));
    CHECK(outs[1].is(errc::stopped));
    d.forget(e.mine);
    CHECK(outs[2].is(errc::closed));
    ends::close(e.mine);
    char byte = 0;
    CHECK(::read(e.other, &byte, 1) == 0); // the end: the kernel keeps no reference
}

TEST_CASE("uring_driver: a wait that its thread has not outlived goes on",
          "[promise.uring-limits]") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    uring_driver d;
    const bide::driver::attachment attached(d);
    ends e;
    ends f;
    std::array<std::byte, 4> into{};
    outcome outs[2];
    held ready = await(readable(d, e.mine), outs[0]);
    held read = await(d.async_read_some(f.mine, into), outs[1]);
    std::thread([&] {
        ready.start();
        read.start();
    }).join();
    e.put("x");
    f.put("y");
    REQUIRE(waits_until(d, [&] { return outs[0].done && outs[1].done; }));
    CHECK(outs[0].has(0));
    CHECK(outs[1].has(1));
    CHECK(into[0] == std::byte{'y'});
}

TEST_CASE("uring_driver: waits for a file that was closed without forget() end") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    uring_driver d;
    const bide::driver::attachment attached(d);
    ends e;
    ::fcntl(e.mine, F_SETFL, O_NONBLOCK);
    const std::vector<char> much(4'096, 'x');
    while (::write(e.mine, much.data(), much.size()) > 0) {
    }
    outcome outs[2];
    held reader = await(readable(d, e.mine), outs[0]);
    held writer = await(writable(d, e.mine), outs[1]);
    reader.start();
    writer.start();
    ends::close(e.mine);
    e.put("x"); // ends the read, and the driver asks for the other direction again
    REQUIRE(waits_until(d, [&] { return outs[0].done && outs[1].done; }));
    CHECK(outs[0].has(0));
    CHECK(outs[1].has(0)); // its next attempt fails
}

// ---- Operations

TEST_CASE("uring_driver: reads what there is, waits for more, and finds the end") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    const int kind = GENERATE(0, 1, 2); // socket, pipe, pipe that does not block
    uring_driver io;
    bide::run_loop loop({.io = &io});
    ends e(kind != 0, kind == 2 ? O_NONBLOCK : 0);
    std::array<std::byte, 4> into{};
    auto read = [&]() -> task<std::string> {
        const auto n = co_await io.async_read_some(e.mine, into);
        co_return n ? std::string(reinterpret_cast<const char*>(into.data()), *n)
                    : n.error().message();
    };
    e.put("first");
    CHECK(loop.run_until(read()) == "firs");
    CHECK(loop.run_until(read()) == "t");
    auto second = loop.spawn(read());
    loop.poll();
    CHECK_FALSE(second.done());
    e.put("2");
    CHECK(finish(loop, std::move(second)) == "2");
    auto third = loop.spawn(read());
    loop.poll();
    ends::close(e.other);
    CHECK(finish(loop, std::move(third)).empty());
    auto nothing = [&]() -> task<std::size_t> {
        const auto n = co_await io.async_read_some(e.mine, {});
        co_return n ? *n : std::size_t{7};
    };
    CHECK(loop.run_until(nothing()) == 0);
}

TEST_CASE("uring_driver: errors are the system's, and no signal is raised") {
    if (refused()) {
        return;
    }
    uring_driver io;
    bide::run_loop loop({.io = &io});
    ends e;
    const test::watchdog guard;
    std::array<std::byte, 4> into{};
    auto write = [&]() -> task<std::error_code> { // until it fails
        const std::vector<std::byte> much(100'000);
        for (;;) {
            const auto n = co_await io.async_write_some(e.mine, much);
            if (!n) {
                co_return n.error();
            }
        }
    };
    auto writing = loop.spawn(write());
    loop.poll();
    CHECK_FALSE(writing.done()); // the kernel has the request
    ::shutdown(e.other, SHUT_RD);
    CHECK(finish(loop, std::move(writing)) == std::errc::broken_pipe);
    CHECK(loop.run_until(write()) == std::errc::broken_pipe); // the first attempt fails
    const int closed = e.mine;
    ends::close(e.mine);
    auto all = [&]() -> task<int> {
        const auto a = co_await io.async_read_some(closed, into);
        const auto b = co_await io.async_write_some(closed, into);
        const auto c = co_await io.async_read_at(closed, into, 0);
        const auto d = co_await io.async_accept(closed);
        const auto f = co_await io.async_write_at(-1, into, 0);
        const auto bad = std::errc::bad_file_descriptor;
        co_return (a.error() == bad) + (b.error() == bad) + (c.error() == bad) +
            (d.error() == bad) + (f.error() == bad);
    };
    CHECK(loop.run_until(all()) == 5);
}

TEST_CASE("uring_driver: a write waits until the other side reads") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    uring_driver io;
    bide::run_loop loop({.io = &io});
    ends e;
    constexpr std::size_t total = 1'000'000;
    auto write = [&]() -> task<std::size_t> {
        const std::vector<std::byte> text(total, std::byte{'x'});
        std::size_t sent = 0;
        while (sent < total) {
            const auto n = co_await io.async_write_some(e.mine, std::span(text).subspan(sent));
            if (!n || *n == 0) {
                break;
            }
            sent += *n;
        }
        co_return sent;
    };
    std::size_t got = 0;
    std::thread reading([&] {
        std::vector<char> into(50'000);
        while (got < total) {
            const ssize_t n = ::read(e.other, into.data(), into.size());
            if (n <= 0) {
                return;
            }
            got += static_cast<std::size_t>(n);
        }
    });
    CHECK(loop.run_until(write()) == total);
    reading.join();
    CHECK(got == total);
}

TEST_CASE("uring_driver: reads and writes a file at offsets") {
    if (refused()) {
        return;
    }
    uring_driver io;
    bide::run_loop loop({.io = &io});
    std::FILE* const file = std::tmpfile();
    REQUIRE(file != nullptr);
    const int fd = ::fileno(file);
    auto work = [&]() -> task<std::string> {
        std::array<std::byte, 8> into{};
        const auto a = co_await io.async_write_at(fd, bytes_of("world"), 6);
        const auto b = co_await io.async_write_at(fd, bytes_of("hello "), 0);
        const auto short_one = co_await io.async_read_at(fd, into, 6);
        const auto at_end = co_await io.async_read_at(fd, into, 11);
        const auto middle = co_await io.async_read_at(fd, std::span(into).first(3), 4);
        if (!a || *a != 5 || !b || *b != 6 || !short_one || *short_one != 5 || !at_end ||
            *at_end != 0 || !middle || *middle != 3) {
            co_return "failed";
        }
        co_return std::string(reinterpret_cast<const char*>(into.data()), 5);
    };
    CHECK(loop.run_until(work()) == "o wld"); // the middle over the short one
    CHECK(::lseek(fd, 0, SEEK_CUR) == 0);
    std::fclose(file);
    int version = ::open("/proc/version", O_RDONLY | O_CLOEXEC); // not without the ring
    REQUIRE(version >= 0);
    auto read = [&]() -> task<std::string> {
        std::array<std::byte, 7> into{};
        const auto n = co_await io.async_read_at(version, into, 6);
        co_return std::string(reinterpret_cast<const char*>(into.data()), n ? n->bytes : 0);
    };
    CHECK(loop.run_until(read()) == "version"); // Linux version ...
    ends::close(version);
}

TEST_CASE("uring_driver: connects and accepts, and reports a refusal") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    uring_driver io;
    bide::run_loop loop({.io = &io});
    int door = listening();
    const auto at = address_of(door);
    const auto* const address = reinterpret_cast<const sockaddr*>(&at);
    int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto accept = [&]() -> task<int> {
        const auto made = co_await io.async_accept(door);
        co_return made ? *made : -1;
    };
    auto connect = [&]() -> task<std::error_code> {
        const auto made = co_await io.async_connect(client, address, sizeof at);
        co_return made ? std::error_code() : made.error();
    };
    auto accepting = loop.spawn(accept());
    loop.poll();
    CHECK_FALSE(accepting.done());
    CHECK_FALSE(loop.run_until(connect()));
    int served = finish(loop, std::move(accepting));
    REQUIRE(served >= 0);
    CHECK(::send(client, "x", 1, 0) == 1);
    char byte = 0;
    CHECK(::recv(served, &byte, 1, 0) == 1);
    ends::close(served);
    ends::close(client);
    ends::close(door);
    client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(loop.run_until(connect()) == std::errc::connection_refused);
    ends::close(client);
}

// ---- Operations that end early

TEST_CASE("uring_driver: after a time-out, a stop, a cancellation or the end of the coroutine, the "
          "kernel does not write into the buffer",
          "[promise.kernel-buffers]") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    uring_driver io;
    bide::run_loop loop({.io = &io});
    ends e;
    auto into = std::make_unique<std::array<std::byte, 8>>();
    std::error_code why;
    SECTION("time-out") {
        auto read = [&]() -> task<std::error_code> {
            const auto n = co_await io.async_read_some(e.mine, *into).with_timeout(1ms);
            co_return n.error();
        };
        CHECK(loop.run_until(read()) == errc::timeout);
    }
    SECTION("one attempt") {
        auto read = [&]() -> task<std::error_code> {
            const auto n = co_await io.async_read_some(e.mine, *into).with_timeout(0ms);
            co_return n.error();
        };
        CHECK(loop.run_until(read()) == errc::timeout);
    }
    SECTION("stop") {
        std::stop_source stop;
        auto read = [&]() -> task<std::error_code> {
            const auto n = co_await io.async_read_some(e.mine, *into).with_stop(stop.get_token());
            co_return n.error();
        };
        auto handle = loop.spawn(read());
        loop.poll();
        stop.request_stop();
        CHECK(finish(loop, std::move(handle)) == errc::stopped);
    }
    SECTION("stop before the wait") {
        std::stop_source stop;
        stop.request_stop();
        auto read = [&]() -> task<std::error_code> {
            const auto n = co_await io.async_read_some(e.mine, *into).with_stop(stop.get_token());
            co_return n.error();
        };
        CHECK(loop.run_until(read()) == errc::stopped);
    }
    SECTION("cancelled task") {
        auto read = [&]() -> task<std::error_code> {
            const auto n = co_await io.async_read_some(e.mine, *into);
            co_return n.error();
        };
        auto handle = loop.spawn(read());
        loop.poll();
        CHECK(handle.cancel());
        CHECK(finish(loop, std::move(handle)) == errc::stopped);
    }
    SECTION("forgotten file") {
        auto read = [&]() -> task<std::error_code> {
            const auto n = co_await io.async_read_some(e.mine, *into);
            co_return n.error();
        };
        auto handle = loop.spawn(read());
        loop.poll();
        io.forget(e.mine);
        CHECK(finish(loop, std::move(handle)) == errc::closed);
    }
    SECTION("destroyed coroutine") {
        outcome out;
        held reader = await(io.async_read_some(e.mine, *into), out);
        reader.start();
        loop.poll();
        reader.destroy();
        CHECK_FALSE(out.done);
    }
    SECTION("destroyed while a thread sleeps in wait()") {
        outcome out;
        held reader = await(io.async_read_some(e.mine, *into), out);
        std::atomic<bool> over{false};
        std::thread sleeping([&] {
            while (!over) {
                io.wait(deadline::never());
            }
        });
        reader.start();
        reader.destroy();
        for (int i = 0; i < 50; ++i) { // the thread takes the completions of some of them
            held next = await(io.async_read_some(e.mine, *into), out);
            next.start();
        }
        CHECK_FALSE(out.done);
        over = true;
        io.wake();
        sleeping.join();
    }
    const bool untouched = *into == std::array<std::byte, 8>{};
    into.reset(); // so that a sanitizer, and other owners of the memory, would notice
    CHECK(untouched);
    e.put("all");
    loop.poll();
    CHECK(e.rest() == "all"); // nothing was read for an operation that has ended
}

TEST_CASE("uring_driver: an operation that has happened before its end is not lost",
          "[promise.kernel-buffers]") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    uring_driver io;
    bide::run_loop loop({.io = &io});
    ends e;
    std::array<std::byte, 8> into{};
    auto read = [&]() -> task<std::size_t> {
        const auto n = co_await io.async_read_some(e.mine, into);
        co_return n ? *n : std::size_t{99};
    };
    auto handle = loop.spawn(read());
    loop.poll();
    e.put("done"); // the kernel reads now, and no thread has taken the completion
    handle.cancel();
    CHECK(finish(loop, std::move(handle)) == 4);
    CHECK(e.rest().empty());
}

TEST_CASE("uring_driver: accepts that end early lose no connection and no descriptor") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    uring_driver io;
    bide::run_loop loop({.io = &io});
    int door = listening();
    const auto at = address_of(door);
    const auto files = open_files();
    const bool arrives_before = GENERATE(false, true);
    int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto connect = [&] {
        return ::connect(client, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
    };
    outcome out;
    held first = await(io.async_accept(door), out);
    first.start();
    if (arrives_before) {
        REQUIRE(connect()); // it is accepted for a coroutine that ends
    }
    first.destroy();
    if (!arrives_before) {
        REQUIRE(connect());
        auto accept = [&]() -> task<int> {
            const auto made = co_await io.async_accept(door);
            co_return made ? *made : -1;
        };
        int served = loop.run_until(accept());
        CHECK(served >= 0);
        ends::close(served);
    }
    ends::close(client);
    CHECK(open_files() == files);
    ends::close(door);
}

TEST_CASE("uring_driver: the end of an attachment ends all waits and operations") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    uring_driver d;
    ends e;
    ends f;
    std::array<std::byte, 4> into{};
    outcome outs[4];
    held wait = await(readable(d, e.mine), outs[0]);
    held first = await(d.async_read_some(e.mine, into), outs[1]);
    held second = await(d.async_read_some(f.mine, into), outs[2]);
    held without = await(d.async_read_some(f.mine, into), outs[3]);
    {
        const bide::driver::attachment attached(d);
        wait.start();
        first.start();
        second.start();
        CHECK_FALSE(outs[1].done);
    }
    for (int i = 0; i < 3; ++i) {
        CHECK(outs[i].is(errc::closed));
    }
    without.start();
    CHECK(outs[3].is(std::errc::resource_deadlock_would_occur));
    e.put("x");
    CHECK(e.rest() == "x");
}

// ---- Limits

TEST_CASE("uring_driver: more operations than the ring has entries lose nothing",
          "[promise.uring-limits]") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    uring_driver io(2); // and four completions
    const bide::driver::attachment attached(io);
    constexpr std::size_t count = 100;
    std::vector<std::unique_ptr<ends>> files;
    std::vector<outcome> reads(count);
    std::vector<outcome> waits(count);
    std::vector<std::array<std::byte, 4>> into(count);
    std::vector<held> all;
    for (std::size_t i = 0; i < count; ++i) {
        files.push_back(std::make_unique<ends>());
        all.push_back(await(io.async_read_some(files[i]->mine, into[i]), reads[i]));
        all.back().start();
        all.push_back(await(readable(io, files[i]->mine), waits[i]));
        all.back().start();
    }
    outcome last;
    std::array<std::byte, 4> unused{};
    ends quiet;
    held ended = await(io.async_read_some(quiet.mine, unused), last);
    ended.start();
    for (std::size_t i = 0; i < count; ++i) {
        files[i]->put(i % 2 == 0 ? "x" : "yy");
    }
    ended.destroy(); // its completion is behind all those of the others
    const auto all_done = [](const std::vector<outcome>& outs) {
        return std::all_of(outs.begin(), outs.end(),
                           [](const outcome& o) { return o.done.load(); });
    };
    REQUIRE(waits_until(io, [&] { return all_done(reads) && all_done(waits); }));
    for (std::size_t i = 0; i < count; ++i) {
        CHECK(reads[i].has(1 + i % 2));
        CHECK(waits[i].has(0));
    }
}

TEST_CASE("uring_driver: an operation allocates nothing once there were as many before") {
    if (refused()) {
        return;
    }
    uring_driver io;
    bide::run_loop loop({.io = &io});
    ends e;
    std::size_t allocated = 99;
    auto work = [&]() -> task<> {
        std::array<std::byte, 8> into{};
        for (int i = 0; i < 3; ++i) {
            const auto before = test::allocations_here();
            const auto late = co_await io.async_read_some(e.mine, into).with_timeout(1ms);
            e.put("x");
            const auto got = co_await io.async_read_some(e.mine, into);
            allocated = test::allocations_here() - before;
            if (!got || late) {
                co_return;
            }
        }
    };
    loop.run_until(work());
    CHECK(allocated == 0);
}

// g++'s sanitizer for undefined behaviour needs files where an exception is constructed.
#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE("uring_driver: if the system refuses, the constructor throws and says so") {
    if (refused()) {
        return;
    }
    const auto files = open_files();
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit none = before;
    none.rlim_cur = 0;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    std::exception_ptr thrown;
    try {
        const uring_driver d;
    } catch (...) {
        thrown = std::current_exception();
    }
    ::setrlimit(RLIMIT_NOFILE, &before);
    REQUIRE(thrown);
    std::error_code why;
    std::string said;
    try {
        std::rethrow_exception(thrown);
    } catch (const std::system_error& error) {
        why = error.code();
        said = error.what();
    }
    CHECK(why == std::errc::too_many_files_open);
    CHECK(test::contains(said, "the system has refused io_uring"));
    CHECK(open_files() == files);
}
#endif

TEST_CASE("uring_driver: destroyed with operations under way, it terminates with their number") {
    if (refused()) {
        return;
    }
    const std::string said = test::dies([] {
        ends e;
        std::array<std::byte, 4> into{};
        outcome outs[2];
        uring_driver d;
        const bide::driver::attachment attached(d);
        held a = await(d.async_read_some(e.mine, into), outs[0]);
        held b = await(d.async_read_some(e.mine, into), outs[1]);
        a.start();
        b.start();
        std::destroy_at(&d);
    });
    INFO(said);
    CHECK(test::contains(said, "bide: uring_driver 0x"));
    CHECK(test::contains(said, "destroyed with 2 waiting"));
}

// ---- Wakes and time-outs

TEST_CASE("uring_driver: wakes end one wait(), and none returns before its deadline") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    uring_driver d;
    const bide::driver::attachment attached(d);
    for (int round = 0; round < 3; ++round) {
        d.wake();
        d.wake();
        CHECK(d.wait(deadline::never()) == 0);
        const deadline soon = deadline::after(2ms);
        CHECK(d.wait(soon) == 0);
        CHECK(bide::native_platform::now() >= soon.steady_ns());
    }
    CHECK(d.wait(deadline::after(-1h)) == 0);
    for (const auto rest : {1ns, 999ns, 50'000ns, 1'000'001ns}) {
        const auto when = std::chrono::system_clock::now() + rest;
        CHECK(d.wait(deadline::at(when)) == 0);
        CHECK(std::chrono::system_clock::now() >= when);
    }
}

TEMPLATE_TEST_CASE("uring_driver: no wake is lost, and each one publishes what was done before", "",
                   test::native, test::jittery) {
    if (refused()) {
        return;
    }
    bide::basic_uring_driver<TestType> d;
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

TEST_CASE(
    "uring_driver: a destructor that waits for the kernel takes no completion from a thread that "
    "is about to sleep") {
    if (refused()) {
        return;
    }
    constexpr std::size_t rounds = 300;
    bide::basic_uring_driver<test::jittery> d;
    const bide::driver::attachment attached(d);
    ends e;
    ends quiet;
    std::array<std::byte, 1> into{};
    std::array<std::byte, 1> unused{};
    std::vector<outcome> outs(rounds);
    outcome none;
    std::atomic<bool> over{false};
    bool all = true;
    test::run_threads(2, [&](int i) {
        if (i == 0) {
            while (!over) {
                d.wait(deadline::never());
            }
            return;
        }
        for (std::size_t n = 0; all && n < rounds; ++n) {
            held ends_now = await(d.async_read_some(quiet.mine, unused), none);
            await_detached(d.async_read_some(e.mine, into), outs[n]);
            ends_now.start();
            e.put("x");
            ends_now.destroy();
            all = test::eventually([&] { return outs[n].done.load(); });
        }
        over = true;
        d.wake();
    });
    CHECK(all);
    CHECK_FALSE(none.done);
}

// ---- Sockets, and load

TEST_CASE("uring_driver: io_socket runs over it") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    using socket = bide::basic_io_socket<uring_driver>;
    uring_driver io;
    bide::run_loop loop({.io = &io});
    auto door = bide::listen_at(io, loopback());
    REQUIRE(door.has_value());
    const auto at = address_of(door->fd());
    auto serve = [&]() -> task<std::error_code> {
        auto peer = co_await door->async_accept();
        if (!peer) {
            co_return peer.error();
        }
        std::array<std::byte, 16> into{};
        for (;;) {
            const auto n = co_await peer->async_read_some(into);
            if (!n || *n == 0) {
                co_return n ? std::error_code() : n.error();
            }
            const auto sent = co_await bide::async_write(*peer, std::span(into).first(*n));
            if (!sent) {
                co_return sent.error();
            }
        }
    };
    auto ask = [&]() -> task<std::string> {
        auto made = co_await bide::async_connect(io, at);
        if (!made) {
            co_return made.error().message();
        }
        socket client = std::move(*made);
        std::array<std::byte, 16> into{};
        const auto late = co_await client.async_read_some(into).with_timeout(1ms);
        const auto sent = co_await bide::async_write(client, bytes_of("hello"));
        const auto n = co_await client.async_read_some(into);
        co_return late || !sent || !n ? "failed"
                                      : std::string(reinterpret_cast<char*>(into.data()), *n);
    };
    auto serving = loop.spawn(serve());
    CHECK(loop.run_until(ask()) == "hello");
    CHECK_FALSE(finish(loop, std::move(serving)));
}

namespace {

constexpr std::byte mix(std::size_t n) {
    return static_cast<std::byte>((static_cast<std::uint32_t>(n) * 2'654'435'769u) >> 24);
}

// Writes `total` bytes, the n-th of them mix(n), in pieces. Some attempts end by their time-out.
task<std::size_t> send_all(uring_driver& io, int fd, std::size_t total, std::uint32_t seed) {
    test::jitter chance(seed);
    std::vector<std::byte> piece(20'000);
    std::size_t sent = 0;
    while (sent < total) {
        const std::size_t n = std::min<std::size_t>(total - sent, 1 + chance.below(20'000));
        for (std::size_t i = 0; i < n; ++i) {
            piece[i] = mix(sent + i);
        }
        const auto rest = chance.below(4) == 0 ? chance.rest(30) : std::chrono::nanoseconds(1h);
        const auto done =
            co_await io.async_write_some(fd, std::span(piece).first(n)).with_timeout(rest);
        if (done) {
            sent += *done;
        } else if (done.error() != errc::timeout) {
            break;
        }
    }
    ::shutdown(fd, SHUT_WR);
    co_return sent;
}

// Reads to the end. The buffers change, so that a byte for an operation that has ended is noticed.
task<std::size_t> receive_all(uring_driver& io, int fd, std::uint32_t seed) {
    test::jitter chance(seed);
    std::size_t got = 0;
    for (;;) {
        const auto into = std::make_unique<std::vector<std::byte>>(1 + chance.below(15'000));
        const auto rest = chance.below(3) == 0 ? chance.rest(30) : std::chrono::nanoseconds(1h);
        const auto n = co_await io.async_read_some(fd, *into).with_timeout(rest);
        if (!n && n.error() == errc::timeout) {
            continue;
        }
        if (!n || *n == 0) {
            co_return n ? got : std::size_t{0};
        }
        for (std::size_t i = 0; i < *n; ++i, ++got) {
            if ((*into)[i] != mix(got)) {
                co_return std::size_t{1};
            }
        }
    }
}

} // namespace

TEST_CASE("uring_driver: in a storm of time-outs each byte arrives once, in order",
          "[promise.kernel-buffers]") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    constexpr std::size_t total = 1'000'000; // in each direction of each pair
    uring_driver io(4);
    const std::uint32_t seed = test::run_seed();
    CAPTURE(seed);
    ends pairs[2];
    std::vector<std::size_t> counts;
    {
        bide::scheduler s({.num_workers = 2, .io = &io});
        std::vector<bide::join_handle<std::size_t>> tasks;
        std::uint32_t n = 0;
        for (ends& e : pairs) {
            for (const int fd : {e.mine, e.other}) {
                tasks.push_back(s.spawn(send_all(io, fd, total, seed + n++)));
                tasks.push_back(s.spawn(receive_all(io, fd, seed + n++)));
            }
        }
        for (auto& t : tasks) {
            counts.push_back(std::move(t).join());
        }
    }
    CHECK(counts == std::vector<std::size_t>(8, total));
}

TEST_CASE("uring_driver: a scheduler shuts down with operations under way") {
    if (refused()) {
        return;
    }
    const test::watchdog guard;
    uring_driver io;
    ends e;
    std::array<std::byte, 4> into{};
    outcome out;
    {
        bide::scheduler s({.num_workers = 2, .io = &io});
        await_detached(io.async_read_some(e.mine, into), out); // no task of it
    }
    CHECK(test::eventually([&] { return out.is(errc::closed); }));
    test::service_thread();
    e.put("x");
    CHECK(e.rest() == "x");
}
