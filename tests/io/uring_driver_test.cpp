// What a uring_driver does besides waiting for files; that is in file_drivers_test.cpp. Its operations are for
// regular files, which never keep a request waiting. The kernel reads and writes sockets at offset 0 as well:
// those that have to wait, or to end early, use them.

#include <bide/io/uring_driver.hpp>

#include <bide/io/io_socket.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/alloc.hpp>
#include <support/death.hpp>
#include <support/file_waits.hpp>
#include <support/platforms.hpp>
#include <support/stop.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace bide;
using test::await;
using test::await_detached;
using test::close_file;
using test::ends;
using test::file_outcome;
using test::file_waits;
using test::held;
using test::readable;
using test::waits_until;

namespace {

// Where the system does not let this process use io_uring, the program has nothing to do.
[[maybe_unused]] const bool is_usable = [] {
    try {
        const uring_driver made;
    } catch (const std::system_error& error) {
        std::printf("skipped: %s\n", error.what());
        std::exit(0);
    }
    return true;
}();

template <class T> T finish(run_loop& loop, join_handle<T> handle) {
    loop.run();
    return std::move(handle).join();
}

// A test with a driver that could be a scheduler's.
struct attached_driver {
    uring_driver d;
    driver::attachment attached{d};
};
// A test with a loop that runs a driver.
struct on_loop {
    uring_driver io;
    run_loop loop{run_loop_options{.io = &io}};
};

} // namespace

// ---- Readiness

TEST_CASE_METHOD(attached_driver, "uring_driver: a wait that its thread has not outlived goes on",
                 "[promise.uring-limits]") {
    ends e = ends::sockets(0);
    ends f = ends::sockets(0);
    std::array<std::byte, 4> into{};
    file_outcome outs[2];
    held ready = await(readable(d, e.in), outs[0]);
    held read = await(d.async_read_at(f.in, into, 0), outs[1]);
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

// ---- Operations

TEST_CASE_METHOD(on_loop,
                 "uring_driver: errors are the system's, and nothing is read or written for "
                 "an empty buffer") {
    ends e = ends::sockets(0);
    std::array<std::byte, 4> into{};
    auto both = [&](int fd, std::span<std::byte> buffer) -> task<std::array<std::error_code, 2>> {
        const auto a = co_await io.async_read_at(fd, buffer, 0);
        const auto b = co_await io.async_write_at(fd, buffer, 0);
        co_return {a ? std::error_code() : a.error(), b ? std::error_code() : b.error()};
    };
    const auto nothing = loop.run_until(both(e.in, {}));
    CHECK((!nothing[0] && !nothing[1]));
    const int closed = e.in;
    close_file(e.in);
    for (const int fd : {closed, -1}) {
        const auto found = loop.run_until(both(fd, into));
        CHECK(found[0] == std::errc::bad_file_descriptor);
        CHECK(found[1] == std::errc::bad_file_descriptor);
    }
    int folder = ::open("/", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    CHECK(loop.run_until(both(folder, into))[0] == std::errc::is_a_directory);
    close_file(folder);
}

TEST_CASE_METHOD(on_loop, "uring_driver: reads and writes a file at offsets") {
    std::FILE* const file = std::tmpfile();
    REQUIRE(file != nullptr);
    const int fd = ::fileno(file);
    auto work = [&]() -> task<std::string> {
        std::array<std::byte, 8> into{};
        const auto a = co_await io.async_write_at(fd, test::bytes_of("world"), 6);
        const auto b = co_await io.async_write_at(fd, test::bytes_of("hello "), 0);
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
    close_file(version);
}

// ---- Operations that end early

TEST_CASE_METHOD(
    on_loop,
    "uring_driver: after a time-out, a stop, a cancellation or the end of the coroutine, the "
    "kernel does not write into the buffer",
    "[promise.kernel-buffers]") {
    ends e = ends::sockets(0);
    auto into = std::make_unique<std::array<std::byte, 8>>();
    // Ends the read as `adapt` says. If `end` is there, calls it when the read waits.
    const auto ended =
        [&](auto adapt, const std::function<void(join_handle<std::error_code>&)>& end = nullptr) {
            auto read = [&]() -> task<std::error_code> {
                const auto n = co_await adapt(io.async_read_at(e.in, *into, 0));
                co_return n.error();
            };
            auto handle = loop.spawn(read);
            if (end) {
                loop.poll();
                end(handle);
            }
            return finish(loop, std::move(handle));
        };
    const auto plain = [](auto op) { return op; };
    std::stop_source stop;
    const auto stoppable = [&](auto op) { return std::move(op).with_stop(stop.get_token()); };
    SECTION("time-out") {
        CHECK(ended([](auto op) { return std::move(op).with_timeout(1ms); }) == errc::timeout);
    }
    SECTION("one attempt") {
        CHECK(ended([](auto op) { return std::move(op).with_timeout(0ms); }) == errc::timeout);
    }
    SECTION("stop") {
        CHECK(ended(stoppable, [&](auto&) { stop.request_stop(); }) == errc::stopped);
    }
    SECTION("stop before the wait") {
        stop.request_stop();
        CHECK(ended(stoppable) == errc::stopped);
    }
    SECTION("cancelled task") {
        CHECK(ended(plain, [](auto& handle) { CHECK(handle.cancel()); }) == errc::stopped);
    }
    SECTION("forgotten file") {
        CHECK(ended(plain, [&](auto&) { io.forget(e.in); }) == errc::closed);
    }
    SECTION("destroyed coroutine") {
        file_outcome out;
        held reader = await(io.async_read_at(e.in, *into, 0), out);
        reader.start();
        loop.poll();
        reader.destroy();
        CHECK_FALSE(out.done);
    }
    SECTION("destroyed while a thread sleeps in wait()") {
        file_outcome out;
        held reader = await(io.async_read_at(e.in, *into, 0), out);
        std::atomic<bool> over{false};
        std::thread sleeping([&] {
            while (!over) {
                io.wait(deadline::never());
            }
        });
        reader.start();
        reader.destroy();
        for (int i = 0; i < 50; ++i) { // the thread takes the completions of some of them
            held next = await(io.async_read_at(e.in, *into, 0), out);
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

TEST_CASE_METHOD(on_loop, "uring_driver: an operation that has happened before its end is not lost",
                 "[promise.kernel-buffers]") {
    ends e = ends::sockets(0);
    std::array<std::byte, 8> into{};
    auto read = [&]() -> task<std::size_t> {
        const auto n = co_await io.async_read_at(e.in, into, 0);
        co_return n ? *n : std::size_t{99};
    };
    auto handle = loop.spawn(read());
    loop.poll();
    e.put("done"); // the kernel reads now, and no thread has taken the completion
    handle.cancel();
    CHECK(finish(loop, std::move(handle)) == 4);
    CHECK(e.rest().empty());
}

TEST_CASE("uring_driver: the end of an attachment ends all waits and operations") {
    uring_driver d;
    ends e = ends::sockets(0);
    ends f = ends::sockets(0);
    std::array<std::byte, 4> into{};
    file_waits all;
    {
        const driver::attachment attached(d);
        all.add(readable(d, e.in));
        all.add(d.async_read_at(e.in, into, 0));
        all.add(d.async_read_at(f.in, into, 0));
        CHECK(all.said() == "waits waits waits");
    }
    all.add(d.async_read_at(f.in, into, 0));
    CHECK(all.said() == "closed closed closed undriven");
    e.put("x");
    CHECK(e.rest() == "x");
}

// ---- Limits

TEST_CASE("uring_driver: more operations than the ring has entries lose nothing",
          "[promise.uring-limits]") {
    uring_driver io(2); // and four completions
    const driver::attachment attached(io);
    constexpr std::size_t count = 200;
    std::vector<ends> files;
    std::vector<std::array<std::byte, 4>> into(count);
    std::vector<const file_outcome*> reads;
    file_waits all;
    for (std::size_t i = 0; i < count; ++i) {
        files.push_back(ends::sockets(0));
        reads.push_back(&all.add(io.async_read_at(files[i].in, into[i], 0)));
    }
    file_outcome last;
    std::array<std::byte, 4> unused{};
    ends quiet = ends::sockets(0);
    held ended = await(io.async_read_at(quiet.in, unused, 0), last);
    ended.start();
    for (std::size_t i = 0; i < count; ++i) {
        files[i].put(i % 2 == 0 ? "x" : "yy");
    }
    ended.destroy(); // its completion is behind all those of the others
    REQUIRE(waits_until(io, [&] { return all.granted() == count; }));
    for (std::size_t i = 0; i < count; ++i) {
        CHECK(reads[i]->has(1 + i % 2));
    }
}

TEST_CASE_METHOD(on_loop, "uring_driver: an operation allocates nothing") {
    ends e = ends::sockets(0);
    std::size_t allocated = 99;
    auto work = [&]() -> task<> {
        std::array<std::byte, 8> into{};
        for (int i = 0; i < 3; ++i) {
            const auto before = test::allocations_here();
            const auto late = co_await io.async_read_at(e.in, into, 0).with_timeout(1ms);
            e.put("x");
            const auto got = co_await io.async_read_at(e.in, into, 0);
            allocated = test::allocations_here() - before;
            if (!got || late) {
                co_return;
            }
        }
    };
    loop.run_until(work());
    CHECK(allocated == 0);
}

TEST_CASE("uring_driver: destroyed with operations under way, it terminates with their number") {
    const std::string said = test::dies([] {
        ends e = ends::sockets(0);
        std::array<std::byte, 4> into{};
        uring_driver d;
        const driver::attachment attached(d);
        file_waits all;
        all.add(d.async_read_at(e.in, into, 0));
        all.add(d.async_read_at(e.in, into, 0));
        std::destroy_at(&d);
    });
    INFO(said);
    CHECK(test::contains(said, "bide: uring_driver 0x"));
    CHECK(test::contains(said, "destroyed with 2 waiting"));
}

TEST_CASE(
    "uring_driver: a destructor that waits for the kernel takes no completion from a thread that "
    "is about to sleep") {
    constexpr std::size_t rounds = 300;
    basic_uring_driver<test::jittery> d;
    const driver::attachment attached(d);
    ends e = ends::sockets(0);
    ends quiet = ends::sockets(0);
    std::array<std::byte, 1> into{};
    std::array<std::byte, 1> unused{};
    std::vector<file_outcome> outs(rounds);
    file_outcome none;
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
            held ends_now = await(d.async_read_at(quiet.in, unused, 0), none);
            await_detached(d.async_read_at(e.in, into, 0), outs[n]);
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
    using socket = basic_io_socket<uring_driver>;
    uring_driver io;
    run_loop loop({.io = &io});
    auto door = listen_at(io, test::loopback());
    REQUIRE(door.has_value());
    const auto at = test::address_of(door->fd());
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
            const auto sent = co_await async_write(*peer, std::span(into).first(*n));
            if (!sent) {
                co_return sent.error();
            }
        }
    };
    auto ask = [&]() -> task<std::string> {
        auto made = co_await async_connect(io, at);
        if (!made) {
            co_return made.error().message();
        }
        socket client = std::move(*made);
        std::array<std::byte, 16> into{};
        const auto late = co_await client.async_read_some(into).with_timeout(1ms);
        const auto sent = co_await async_write(client, test::bytes_of("hello"));
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
            co_await io.async_write_at(fd, std::span(piece).first(n), 0).with_timeout(rest);
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
        const auto n = co_await io.async_read_at(fd, *into, 0).with_timeout(rest);
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
    constexpr std::size_t total = 1'000'000; // in each direction of each pair
    uring_driver io(4);
    const std::uint32_t seed = test::run_seed();
    CAPTURE(seed);
    ends pairs[2] = {ends::sockets(0), ends::sockets(0)};
    std::vector<std::size_t> counts;
    {
        scheduler s({.num_workers = 2, .io = &io});
        std::vector<join_handle<std::size_t>> tasks;
        std::uint32_t n = 0;
        for (ends& e : pairs) {
            for (const int fd : {e.in, e.out}) {
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
