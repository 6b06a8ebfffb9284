#include <bide/io/io_socket.hpp>

// On other systems the header is empty, and so is this.
#if defined(__linux__)

#include <bide/sched/run_loop.hpp>
#include <support/file_waits.hpp>
#include <support/sched.hpp>

#include <climits>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

using namespace bide;
using test::address_of;
using test::bytes_of;
using test::loopback;
using test::open_files;

static_assert(!std::is_copy_constructible_v<io_socket>);
static_assert(std::is_nothrow_move_constructible_v<io_socket>);

namespace {

using made_socket = result<io_socket, std::error_code>;

// Two connected sockets: one for bide, one for plain system calls, which block.
struct ends {
    explicit ends(epoll_driver& io) : ends(io, test::ends::sockets(0)) {}

    void put(std::string_view text) const { both.put(text); }
    std::string get(std::size_t n) const {
        std::string text(n, '\0');
        if (::recv(both.out, text.data(), n, MSG_WAITALL) != static_cast<ssize_t>(n)) {
            test::give_up(test::where(), "cannot receive");
        }
        return text;
    }
    void hang_up() { test::close_file(both.out); }

    test::ends both;
    io_socket mine;

private:
    ends(epoll_driver& io, test::ends made)
        : both(std::move(made)), mine(io, std::exchange(both.in, -1)) {}
};

// Two connected sockets of TCP: one for bide, one for plain system calls.
struct tcp_ends {
    explicit tcp_ends(epoll_driver& io) {
        auto door = listen_at(io, loopback()).value();
        peer = test::connected_to(address_of(door.fd()));
        mine = io_socket(io, ::accept(door.fd(), nullptr, nullptr));
        const int yes = 1;
        ::setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
    tcp_ends(const tcp_ends&) = delete;
    tcp_ends& operator=(const tcp_ends&) = delete;
    ~tcp_ends() { hang_up(); }

    void put(std::string_view text, int flags = 0) const {
        if (::send(peer, text.data(), text.size(), flags) != static_cast<ssize_t>(text.size())) {
            test::give_up(test::where(), "cannot send");
        }
    }
    void hang_up() { test::close_file(peer); }

    io_socket mine;
    int peer;
};

template <class T> T finish(run_loop& loop, join_handle<T> handle) {
    loop.run();
    return std::move(handle).join();
}

task<std::string> read_text(io_socket& from, std::size_t most = 64) {
    std::vector<std::byte> into(most);
    const auto n = co_await from.async_read_some(into);
    if (!n) {
        co_return "error: " + n.error().message();
    }
    co_return std::string(reinterpret_cast<const char*>(into.data()), *n);
}

// Reads into `all` until the end of the stream or an error.
task<std::string> read_rest(io_socket& from, std::string& all) {
    for (;;) {
        const std::string next = co_await read_text(from);
        all += next;
        if (next.empty() || test::contains(next, "error")) {
            co_return all;
        }
    }
}

// Reads so often in vain that the next reads wait without a call.
template <class Ends> void read_in_vain(run_loop& loop, Ends& pair) {
    for (int i = 0; i < 10; ++i) {
        auto reading = loop.spawn(read_text(pair.mine));
        loop.poll();
        pair.put("x");
        REQUIRE(finish(loop, std::move(reading)) == "x");
    }
}

task<std::error_code> read_error(io_socket& from) {
    std::array<std::byte, 16> into{};
    const auto n = co_await from.async_read_some(into);
    co_return n ? std::error_code() : n.error();
}

task<io_count> write_all(io_socket& to, std::string_view text) {
    co_return co_await async_write(to, bytes_of(text));
}

// A test with a loop that runs a driver.
struct on_loop {
    epoll_driver io;
    run_loop loop{run_loop_options{.io = &io}};
};

} // namespace

TEST_CASE_METHOD(on_loop, "io_socket: reads what there is, waits for more, and finds the end") {
    ends pair(io);
    pair.put("first");
    REQUIRE(loop.run_until(read_text(pair.mine)) == "first");
    auto second = loop.spawn(read_text(pair.mine, 3));
    loop.poll();
    REQUIRE_FALSE(second.done());
    std::thread writing([&] { pair.put("second"); });
    loop.run();
    writing.join();
    REQUIRE(std::move(second).join() == "sec");
    REQUIRE(loop.run_until(read_text(pair.mine)) == "ond");
    pair.hang_up();
    REQUIRE(loop.run_until(read_text(pair.mine)).empty());
}

TEST_CASE_METHOD(on_loop, "io_socket: writes more than fits, while the other side reads") {
    ends pair(io);
    std::string text(1'000'000, 'x');
    for (std::size_t i = 0; i < text.size(); ++i) {
        text[i] = static_cast<char>('a' + i % 26);
    }
    std::string got;
    std::thread reading([&] { got = pair.get(text.size()); });
    const io_count written = loop.run_until(write_all(pair.mine, text));
    reading.join();
    REQUIRE(written.value() == text.size());
    REQUIRE(got == text);
}

TEST_CASE_METHOD(on_loop, "io_socket: a write waits beside a read that has begun before it") {
    ends pair(io);
    const std::size_t full = test::ends::fill(pair.mine.fd());
    auto reading = loop.spawn(read_text(pair.mine));
    loop.poll();
    auto writing = loop.spawn(write_all(pair.mine, "x"));
    loop.poll();
    REQUIRE_FALSE(writing.done());
    pair.get(full);
    REQUIRE(test::eventually([&] {
        loop.poll();
        return writing.done();
    }));
    REQUIRE(std::move(writing).join().value() == 1);
    REQUIRE_FALSE(reading.done());
    pair.put("y");
    REQUIRE(finish(loop, std::move(reading)) == "y");
}

TEST_CASE_METHOD(on_loop, "io_socket: a read waits beside a write that has begun before it") {
    tcp_ends pair(io);
    test::ends::fill(pair.mine.fd());
    auto writing = loop.spawn(write_all(pair.mine, "x"));
    loop.poll();
    pair.put("a"); // is there before the first read
    REQUIRE(loop.run_until(read_text(pair.mine)) == "a");
    auto reading = loop.spawn(read_text(pair.mine));
    loop.poll();
    pair.put("b");
    REQUIRE(test::eventually([&] {
        loop.poll();
        return reading.done();
    }));
    REQUIRE(std::move(reading).join() == "b");
    writing.cancel();
    loop.run();
}

TEST_CASE_METHOD(on_loop, "io_socket: a write to a peer that is gone is an error and no signal") {
    ends pair(io);
    pair.hang_up();
    const auto written = loop.run_until(write_all(pair.mine, "text"));
    REQUIRE(written.error() == std::errc::broken_pipe);
}

TEST_CASE_METHOD(on_loop,
                 "io_socket: time-outs, stops and cancellation lose no byte and no descriptor",
                 "[promise.socket-loses-nothing]") {
    ends pair(io);
    const auto files = open_files();
    std::array<std::byte, 8> into{};
    std::stop_source stop;
    const auto read = [&](auto limited) -> task<std::error_code> {
        const auto n = co_await limited(pair.mine.async_read_some(into));
        co_return n.error();
    };
    const auto stoppable = [&](auto op) { return std::move(op).with_stop(stop.get_token()); };
    SECTION("time-out") {
        const auto briefly = [](auto op) { return std::move(op).with_timeout(1ms); };
        REQUIRE(loop.run_until(read(briefly)) == errc::timeout);
    }
    SECTION("one attempt") {
        const auto once = [](auto op) { return std::move(op).with_timeout(0ms); };
        REQUIRE(loop.run_until(read(once)) == errc::timeout);
    }
    SECTION("stop") {
        auto handle = loop.spawn(read(stoppable));
        loop.poll();
        stop.request_stop();
        REQUIRE(finish(loop, std::move(handle)) == errc::stopped);
    }
    SECTION("cancelled task") {
        auto handle = loop.spawn(read_error(pair.mine));
        loop.poll();
        REQUIRE(handle.cancel());
        REQUIRE(finish(loop, std::move(handle)) == errc::stopped);
    }
    SECTION("cancelled after the event, before it has read") {
        auto handle = loop.spawn(read_error(pair.mine));
        loop.poll();
        pair.put("x");
        REQUIRE(io.wait(deadline::poll()) == 1); // it is queued now, to try again
        REQUIRE(handle.cancel());
        REQUIRE(finish(loop, std::move(handle)) == errc::stopped);
        REQUIRE(loop.run_until(read_text(pair.mine)) == "x");
    }
    REQUIRE(open_files() == files);
    pair.put("all");
    REQUIRE(loop.run_until(read_text(pair.mine)) == "all");
}

TEST_CASE_METHOD(on_loop, "io_socket: an event without data is not the end of the wait") {
    ends pair(io);
    auto handle = loop.spawn(read_text(pair.mine));
    loop.poll();
    pair.put("x");
    REQUIRE(io.wait(deadline::poll()) == 1);
    char stolen = 0;
    REQUIRE(::recv(pair.mine.fd(), &stolen, 1, 0) == 1);
    loop.poll(); // it finds nothing, and waits again
    REQUIRE_FALSE(handle.done());
    pair.put("y");
    REQUIRE(finish(loop, std::move(handle)) == "y");
}

TEST_CASE_METHOD(on_loop, "io_socket: finds what follows a short read") {
    tcp_ends pair(io);
    if (GENERATE(true, false)) {
        read_in_vain(loop, pair);
    }
    std::string got;
    auto reading = loop.spawn(read_rest(pair.mine, got));
    loop.poll();
    pair.put("first "); // ends the first wait, and fills a part of the buffer
    if (GENERATE(true, false)) {
        loop.poll(); // what follows comes before this read, or after it
    }
    SECTION("the end of the stream") {
        pair.put("end");
        pair.hang_up();
        REQUIRE(finish(loop, std::move(reading)) == "first end");
    }
    SECTION("the end of the stream, in a later event") {
        REQUIRE(::shutdown(pair.peer, SHUT_WR) == 0);
        REQUIRE(finish(loop, std::move(reading)) == "first ");
    }
    SECTION("an urgent byte, where a read ends, and bytes behind it") {
        pair.put("before ");
        pair.put("U", MSG_OOB);
        pair.put("behind");
        for (int i = 0; i < 10; ++i) {
            loop.poll();
        }
        REQUIRE(got == "first before behind");
        pair.hang_up();
        REQUIRE(finish(loop, std::move(reading)) == got);
    }
    SECTION("an error") {
        const linger none{1, 0};
        ::setsockopt(pair.peer, SOL_SOCKET, SO_LINGER, &none, sizeof none);
        pair.hang_up();
        REQUIRE(test::contains(finish(loop, std::move(reading)), "reset"));
    }
    SECTION("a shutdown of this side") {
        loop.poll();
        REQUIRE(::shutdown(pair.mine.fd(), SHUT_RD) == 0);
        REQUIRE(finish(loop, std::move(reading)) == "first ");
    }
}

TEST_CASE_METHOD(on_loop, "io_socket: reads on, however fast the peer becomes") {
    tcp_ends pair(io);
    read_in_vain(loop, pair);
    std::string all;
    for (int i = 0; i < 40; ++i) {
        pair.put("ab");
        all += loop.run_until(read_text(pair.mine, 1)); // leaves a byte
        all += loop.run_until(read_text(pair.mine));
    }
    std::string sent;
    for (int i = 0; i < 40; ++i) {
        sent += "ab";
    }
    REQUIRE(all == sent);
}

TEST_CASE_METHOD(on_loop, "io_socket: receives each message, however short") {
    int both[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, both) == 0);
    if (GENERATE(true, false)) { // it gets the descriptor of a stream
        tcp_ends before(io);
        read_in_vain(loop, before);
        const int number = before.mine.fd();
        before.mine.close();
        REQUIRE(::dup3(both[0], number, O_CLOEXEC) == number);
        ::close(std::exchange(both[0], number));
    }
    io_socket in(io, both[0]);
    const io_socket out(io, both[1]);
    for (int i = 0; i < 10; ++i) { // in vain, each
        auto one = loop.spawn(read_text(in));
        loop.poll();
        REQUIRE(::send(both[1], "x", 1, 0) == 1);
        REQUIRE(finish(loop, std::move(one)) == "x");
    }
    std::string got;
    auto reading = loop.spawn(read_rest(in, got));
    loop.poll();
    for (int i = 0; i < 3; ++i) {
        for (const char* text : {"one ", "two ", "three "}) {
            REQUIRE(::send(both[1], text, std::strlen(text), 0) > 0);
        }
        for (int k = 0; k < 10; ++k) {
            loop.poll();
        }
    }
    const std::string all = "one two three ";
    REQUIRE(got == all + all + all);
    REQUIRE(reading.cancel());
    loop.run();
}

TEST_CASE_METHOD(on_loop,
                 "io_socket: what is ready ends an operation that must not wait, before any event",
                 "[promise.ready-despite-stop]") {
    tcp_ends pair(io);
    auto waiting = loop.spawn(read_text(pair.mine));
    loop.poll();
    pair.put("x");
    REQUIRE(finish(loop, std::move(waiting)) == "x"); // the next read would wait
    if (GENERATE(true, false)) {
        read_in_vain(loop, pair);
    }
    pair.put("y");
    std::array<std::byte, 8> into{};
    SECTION("a time-out of zero") {
        auto read = [&]() -> task<io_count> {
            co_return co_await pair.mine.async_read_some(into).with_timeout(0ms);
        };
        REQUIRE(loop.run_until(read()).value() == 1);
        REQUIRE(loop.run_until(read()).error() == errc::timeout);
    }
    SECTION("a stop") {
        std::stop_source stop;
        stop.request_stop();
        auto read = [&]() -> task<io_count> {
            co_return co_await pair.mine.async_read_some(into).with_stop(stop.get_token());
        };
        REQUIRE(loop.run_until(read()).value() == 1);
        REQUIRE(loop.run_until(read()).error() == errc::stopped);
    }
}

TEST_CASE("io_socket: where nothing runs the driver any more, what is ready is read") {
    epoll_driver io;
    tcp_ends pair(io);
    {
        run_loop loop{run_loop_options{.io = &io}};
        auto waiting = loop.spawn(read_text(pair.mine));
        loop.poll();
        pair.put("x");
        REQUIRE(finish(loop, std::move(waiting)) == "x");
    }
    REQUIRE(sync_wait(read_error(pair.mine)) == errc::no_driver);
    pair.put("y");
    REQUIRE(sync_wait(read_text(pair.mine)) == "y");
    run_loop loop{run_loop_options{.io = &io}};
    auto waiting = loop.spawn(read_text(pair.mine));
    loop.poll();
    pair.put("z");
    REQUIRE(finish(loop, std::move(waiting)) == "z");
}

TEST_CASE_METHOD(on_loop, "io_socket: its descriptor can also be waited for without a read") {
    tcp_ends pair(io);
    auto ready = [&]() -> task<bool> {
        co_return (co_await io.async_wait_readable(pair.mine.fd()).as_result()).has_value();
    };
    auto read = [&]() -> task<io_count> {
        std::array<std::byte, 8> into{};
        co_return co_await pair.mine.async_read_some(into).with_timeout(0ms);
    };
    REQUIRE(loop.run_until(read()).error() == errc::timeout); // it would block, and has not waited
    for (int i = 0; i < 3; ++i) {
        auto first = loop.spawn(ready());
        loop.poll();
        REQUIRE_FALSE(first.done());
        pair.put("x");
        REQUIRE(finish(loop, std::move(first)));
        REQUIRE(loop.run_until(ready())); // it is ready until it is read
        REQUIRE(loop.run_until(read_text(pair.mine)) == "x");
        auto reading = loop.spawn(read_text(pair.mine));
        auto second = loop.spawn(ready());
        loop.poll();
        pair.put("y");
        REQUIRE(finish(loop, std::move(reading)) == "y");
        REQUIRE(finish(loop, std::move(second)));
    }
}

TEST_CASE_METHOD(on_loop, "io_socket: an event ends more waits than one wait() completes") {
    tcp_ends pair(io);
    constexpr int count = 2 * driver::max_completions + 10;
    std::vector<join_handle<std::string>> all;
    for (int i = 0; i < count; ++i) {
        all.push_back(loop.spawn(read_text(pair.mine, 1)));
    }
    loop.poll();
    pair.put(std::string(count, 'x'));
    loop.run();
    for (auto& one : all) {
        REQUIRE(std::move(one).join() == "x");
    }
}

TEST_CASE_METHOD(on_loop, "io_socket: reads into several buffers and writes from several") {
    ends pair(io);
    const auto piece = [](std::string& of) { return iovec{of.data(), of.size()}; };
    const auto read = [&](std::vector<iovec> into) -> task<io_count> {
        co_return co_await pair.mine.async_readv(into);
    };
    const auto write = [&](std::vector<iovec> from) -> task<io_count> {
        co_return co_await pair.mine.async_writev(from);
    };
    std::string first(3, '-');
    std::string none;
    std::string second(4, '-');

    SECTION("one after the other, as much as there is") {
        auto reading = loop.spawn(read({piece(first), piece(none), piece(second)}));
        loop.poll();
        REQUIRE_FALSE(reading.done());
        pair.put("abcde");
        REQUIRE(finish(loop, std::move(reading)).value() == 5);
        REQUIRE(first == "abc");
        REQUIRE(second == "de--");
        pair.hang_up();
        REQUIRE(loop.run_until(read({piece(first)})).value() == 0);
    }
    SECTION("a write") {
        first = "abc";
        second = "defg";
        REQUIRE(loop.run_until(write({piece(first), piece(none), piece(second)})).value() == 7);
        REQUIRE(pair.get(7) == "abcdefg");
    }
    SECTION("a write that waits for room") {
        const std::size_t full = test::ends::fill(pair.mine.fd());
        auto writing = loop.spawn(write({piece(first), piece(second)}));
        loop.poll();
        REQUIRE_FALSE(writing.done());
        pair.get(full);
        REQUIRE(finish(loop, std::move(writing)).value() == 7);
    }
    SECTION("without room, a read takes nothing and does not wait") {
        const auto without_room = [&]() -> task<io_count> {
            const std::array into{piece(none)};
            co_return co_await pair.mine.async_readv(into).with_timeout(0ms);
        };
        REQUIRE(loop.run_until(without_room()).value() == 0);
        pair.put("x");
        REQUIRE(loop.run_until(read({})).value() == 0);
        REQUIRE(loop.run_until(read({piece(none), piece(none)})).value() == 0);
        REQUIRE(loop.run_until(read_text(pair.mine)) == "x");
        REQUIRE(loop.run_until(write({})).value() == 0);
        REQUIRE(loop.run_until(write({piece(none)})).value() == 0);
    }
    SECTION("more buffers than one call takes") {
        std::string all(IOV_MAX + 10, 'x');
        std::vector<iovec> pieces;
        for (char& one : all) {
            pieces.push_back({&one, 1});
        }
        REQUIRE(loop.run_until(write(pieces)).value() == IOV_MAX);
        pair.put(std::string(all.size(), 'y'));
        REQUIRE(loop.run_until(read(pieces)).value() == IOV_MAX);
        REQUIRE(all == std::string(IOV_MAX, 'y') + std::string(10, 'x'));
    }
    SECTION("errors, a time-out and a close") {
        const iovec nowhere{nullptr, 8};
        pair.put("x");
        REQUIRE(loop.run_until(read({nowhere})).error() == std::errc::bad_address);
        REQUIRE(loop.run_until(write({nowhere})).error() == std::errc::bad_address);
        REQUIRE(loop.run_until(read_text(pair.mine)) == "x");
        const auto in_time = [&]() -> task<io_count> {
            const std::array into{piece(first)};
            co_return co_await pair.mine.async_readv(into).with_timeout(1ms);
        };
        REQUIRE(loop.run_until(in_time()).error() == errc::timeout);
        auto reading = loop.spawn(read({piece(first)}));
        loop.poll();
        pair.mine.close();
        REQUIRE(finish(loop, std::move(reading)).error() == errc::closed);
        REQUIRE(loop.run_until(read({piece(first)})).error() == std::errc::bad_file_descriptor);
    }
}

TEST_CASE_METHOD(on_loop, "io_socket: reads and writes pipes by several buffers") {
    int both[2];
    REQUIRE(::pipe2(both, O_CLOEXEC) == 0);
    io_socket in(io, both[0]);
    io_socket out(io, both[1]);
    std::string text = "abcd";
    const std::array pieces{iovec{text.data(), 1}, iovec{text.data() + 1, 3}};
    const auto there_and_back = [&]() -> task<std::size_t> {
        const std::size_t there = (co_await out.async_writev(pieces)).value();
        text = "----";
        co_return there + (co_await in.async_readv(pieces)).value();
    };
    REQUIRE(loop.run_until(there_and_back()) == 8);
    REQUIRE(text == "abcd");
}

TEST_CASE_METHOD(on_loop, "io_socket: listeners share an address if all of them ask for it") {
    const auto shared = listen_options{.backlog = 4, .reuse_port = true};
    auto first = listen_at(io, loopback(), shared);
    REQUIRE(first.has_value());
    const sockaddr_in at = address_of(first->fd());
    auto second = listen_at(io, at, shared);
    REQUIRE(second.has_value());
    REQUIRE(listen_at(io, at).error() == std::errc::address_in_use);
    first->close();
    const int peer = test::connected_to(at);
    const auto accept = [&]() -> task<bool> {
        co_return (co_await second->async_accept()).has_value();
    };
    REQUIRE(loop.run_until(accept()));
    ::close(peer);

    auto alone = listen_at(io, loopback());
    REQUIRE(listen_at(io, address_of(alone->fd()), shared).error() == std::errc::address_in_use);
}

TEST_CASE_METHOD(on_loop, "io_socket: closed, it ends its operations") {
    SECTION("that wait") {
        ends pair(io);
        auto handle = loop.spawn(read_error(pair.mine));
        loop.poll();
        pair.mine.close();
        REQUIRE(finish(loop, std::move(handle)) == errc::closed);
        REQUIRE(pair.mine.fd() == -1);
        REQUIRE(loop.run_until(read_error(pair.mine)) == std::errc::bad_file_descriptor);
    }
    SECTION("that wait again after an event") {
        ends pair(io);
        auto handle = loop.spawn(read_error(pair.mine));
        loop.poll();
        pair.put("x");
        REQUIRE(io.wait(deadline::poll()) == 1);
        char stolen = 0;
        REQUIRE(::recv(pair.mine.fd(), &stolen, 1, 0) == 1);
        loop.poll();
        pair.mine.close();
        REQUIRE(finish(loop, std::move(handle)) == errc::closed);
    }
    SECTION("that are about to try again, and whose descriptor is another file's meanwhile") {
        std::optional<ends> pair(std::in_place, io);
        auto handle = loop.spawn(read_error(pair->mine));
        loop.poll();
        pair->put("x");
        REQUIRE(io.wait(deadline::poll()) == 1);
        const int was = pair->mine.fd();
        pair->mine.close();
        ends next(io);
        REQUIRE(next.mine.fd() == was); // the lowest free number
        next.put("kept");
        REQUIRE(finish(loop, std::move(handle)) == errc::closed);
        REQUIRE(loop.run_until(read_text(next.mine)) == "kept");
    }
    SECTION("that wait for it without reading, made before and awaited after") {
        ends pair(io);
        auto late = [&]() -> task<std::error_code> {
            auto op = io.async_wait_readable(pair.mine.fd()).as_result();
            pair.mine.close();
            const ends next(io);
            const auto ready = co_await std::move(op).with_timeout(1h);
            co_return ready ? std::error_code() : ready.error();
        };
        REQUIRE(loop.run_until(late()) == errc::closed);
    }
    SECTION("that were made before and awaited after") {
        ends pair(io);
        std::array<std::byte, 8> into{};
        auto late = [&]() -> task<std::error_code> {
            auto op = pair.mine.async_read_some(into);
            pair.mine.close();
            const ends next(io);
            next.put("kept");
            const auto n = co_await std::move(op);
            co_return n.error();
        };
        REQUIRE(loop.run_until(late()) == errc::closed);
    }
}

TEST_CASE("io_socket: listens, connects, accepts, and echoes over TCP and by a path") {
    epoll_driver io;
    scheduler s({.num_workers = 2, .io = &io});
    auto echo = [](io_socket peer) -> task<> {
        std::array<std::byte, 100> buffer{};
        for (;;) {
            const auto n = co_await peer.async_read_some(buffer);
            if (!n || *n == 0) {
                co_return;
            }
            static_cast<void>(co_await async_write(peer, std::span(buffer).first(*n)));
        }
    };
    const auto talk = [&](auto at, io_socket& door) -> task<std::string> {
        auto accepting = [&]() -> task<> {
            auto peer = co_await door.async_accept();
            if (peer) {
                co_await echo(std::move(*peer));
            }
        };
        auto server = s.spawn(accepting());
        auto connected = co_await async_connect(io, at);
        if (!connected) {
            co_return "no connection: " + connected.error().message();
        }
        std::string said;
        for (const std::string_view word : {"one ", "two ", "three"}) {
            const auto sent = co_await async_write(*connected, bytes_of(word));
            if (!sent) {
                co_return "not sent";
            }
            const std::string answer = co_await read_text(*connected);
            said += answer;
        }
        connected->close();
        co_await std::move(server).async_join();
        co_return said;
    };
    SECTION("TCP") {
        auto door = listen_at(io, loopback());
        REQUIRE(door.has_value());
        REQUIRE(s.spawn(talk(address_of(door->fd()), *door)).join() == "one two three");
    }
    SECTION("path") {
        sockaddr_un at{};
        at.sun_family = AF_UNIX;
        const std::string name = "bide_io_socket_test." + std::to_string(::getpid());
        std::memcpy(at.sun_path + 1, name.data(), name.size()); // an abstract one: no file
        auto door = listen_at(io, at);
        REQUIRE(door.has_value());
        REQUIRE(s.spawn(talk(at, *door)).join() == "one two three");
    }
}

TEST_CASE_METHOD(
    on_loop,
    "io_socket: what cannot be bound or connected is the system's error, and leaks nothing") {
    const auto files = open_files();
    {
        auto door = listen_at(io, loopback());
        REQUIRE(door.has_value());
        const auto at = address_of(door->fd());
        REQUIRE(listen_at(io, at).error() == std::errc::address_in_use);
        door->close();
        const auto fails = [](auto connecting) -> task<std::error_code> {
            const auto made = co_await std::move(connecting);
            co_return made ? std::error_code() : made.error();
        };
        REQUIRE(loop.run_until(fails(async_connect(io, at))) == std::errc::connection_refused);
        sockaddr_un nowhere{};
        nowhere.sun_family = AF_UNIX;
        std::memcpy(nowhere.sun_path, "/no/such/path", 14);
        REQUIRE(loop.run_until(fails(async_connect(io, nowhere))) ==
                std::errc::no_such_file_or_directory);
        sockaddr unknown{};
        unknown.sa_family = 0xffff;
        REQUIRE(loop.run_until(fails(async_connect(io, &unknown, sizeof unknown))) ==
                std::errc::address_family_not_supported);
        REQUIRE_FALSE(listen_at(io, &unknown, sizeof unknown).has_value());
    }
    REQUIRE(open_files() == files);
}

TEST_CASE_METHOD(
    on_loop, "io_socket: a connection that is not answered ends by its time-out, and is closed") {
    const auto files = open_files();
    {
        auto full = listen_at(io, loopback());
        REQUIRE(full.has_value());
        REQUIRE(::listen(full->fd(), 0) == 0); // room for one connection
        const auto at = address_of(full->fd());
        std::vector<io_socket> connected;
        auto fill = [&]() -> task<std::error_code> {
            for (int i = 0; i < 100; ++i) {
                auto made = co_await async_connect(io, at).with_timeout(50ms);
                if (!made) {
                    co_return made.error();
                }
                connected.push_back(std::move(*made));
            }
            co_return std::error_code();
        };
        REQUIRE(loop.run_until(fill()) == errc::timeout);
        REQUIRE(open_files() == files + 1 + connected.size());
        {
            auto dropped = async_connect(io, at); // never awaited
        }
        REQUIRE(open_files() == files + 1 + connected.size());
    }
    REQUIRE(open_files() == files);
}

TEST_CASE_METHOD(on_loop, "io_socket: a cancelled accept loses no connection",
                 "[promise.socket-loses-nothing]") {
    auto door = listen_at(io, loopback());
    REQUIRE(door.has_value());
    auto accept = [&]() -> task<made_socket> { co_return co_await door->async_accept(); };
    auto first = loop.spawn(accept());
    loop.poll();
    const int client = test::connected_to(address_of(door->fd()));
    REQUIRE(io.wait(deadline::after(test::patience)) == 1); // it has arrived
    first.cancel();
    REQUIRE(finish(loop, std::move(first)).error() == errc::stopped);
    auto second = loop.run_until(accept());
    REQUIRE(second.has_value());
    ::close(client);
    REQUIRE(loop.run_until(read_text(*second)).empty());
}

TEST_CASE_METHOD(on_loop,
                 "io_socket: without descriptors an accept fails, and the connection waits") {
    auto door = listen_at(io, loopback());
    REQUIRE(door.has_value());
    const int client = test::connected_to(address_of(door->fd()));
    auto accept = [&]() -> task<made_socket> { co_return co_await door->async_accept(); };
    const auto failed = [&] {
        const test::no_descriptors here;
        return loop.run_until(accept());
    }();
    REQUIRE(failed.error() == std::errc::too_many_files_open);
    REQUIRE(loop.run_until(accept()).has_value());
    ::close(client);
}

TEST_CASE_METHOD(on_loop, "io_socket: takes pipes and other descriptors, and gives them back") {
    int both[2];
    REQUIRE(::pipe2(both, O_CLOEXEC) == 0); // they block
    io_socket in(io, both[0]);
    io_socket out(io, both[1]);
    auto reading = loop.spawn(read_text(in));
    loop.poll();
    REQUIRE(loop.run_until(write_all(out, "pipe")).has_value());
    REQUIRE(finish(loop, std::move(reading)) == "pipe");
    const int released = out.release();
    REQUIRE(released == both[1]);
    REQUIRE_FALSE(out);
    ::close(released);
    REQUIRE(loop.run_until(read_text(in)).empty());
}

TEST_CASE("io_socket: is moved with its descriptor") {
    epoll_driver io;
    const auto files = open_files();
    {
        ends pair(io);
        io_socket a(std::move(pair.mine));
        REQUIRE_FALSE(pair.mine);
        io_socket b;
        b = std::move(a);
        REQUIRE(b);
        REQUIRE_FALSE(a);
        ends next(io);
        b = std::move(next.mine); // closes the first
        REQUIRE(::send(pair.both.out, "x", 1, MSG_NOSIGNAL) < 0);
    }
    REQUIRE(open_files() == files);
}

TEST_CASE("io_socket: where nothing runs the driver, an operation that would wait fails") {
    epoll_driver io;
    ends pair(io);
    pair.put("x");
    REQUIRE(sync_wait(read_text(pair.mine)) == "x");
    const std::error_code why = sync_wait(read_error(pair.mine));
    REQUIRE(why == errc::no_driver);
    REQUIRE(why == std::errc::resource_deadlock_would_occur);
    REQUIRE(why.message() == "no scheduler or run_loop runs the driver: see its option `io`");
}

// Nothing runs the driver, so an operation that waits fails.
TEST_CASE("io_socket: reads and writes of nothing do not wait", "[promise.nothing-at-once]") {
    epoll_driver io;
    const auto write_nothing = [](io_socket& to) -> task<io_count> {
        co_return co_await to.async_write_some({});
    };
    SECTION("through a stream") {
        ends pair(io);
        REQUIRE(sync_wait(read_text(pair.mine, 0)).empty());
        test::ends::fill(pair.mine.fd());
        REQUIRE(sync_wait(write_nothing(pair.mine)).value() == 0);
        REQUIRE(sync_wait(write_all(pair.mine, "")).value() == 0);
        pair.mine.close();
        REQUIRE(sync_wait(read_text(pair.mine, 0)) == "error: Bad file descriptor");
        REQUIRE(sync_wait(write_all(pair.mine, "")).error() == std::errc::bad_file_descriptor);
    }
    SECTION("through a socket of messages, where an empty one is something") {
        int both[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, both) == 0);
        io_socket in(io, both[0]);
        io_socket out(io, both[1]);
        REQUIRE(sync_wait(write_nothing(out)).value() == 0);
        REQUIRE(sync_wait(write_all(out, "next")).value() == 4);
        REQUIRE(sync_wait(read_text(in, 0)).empty()); // receives no message
        REQUIRE(sync_wait(read_text(in)).empty());
        REQUIRE(sync_wait(read_text(in)) == "next");
    }
}

TEST_CASE_METHOD(on_loop, "io_socket: a write of all bytes takes a time-out and a stop") {
    ends pair(io);
    const std::string text(1'000'000, 'x');
    std::stop_source stop;
    stop.request_stop();
    auto write = [&]() -> task<bool> {
        const auto late = co_await async_write(pair.mine, bytes_of(text)).with_timeout(1ms);
        const auto stopped =
            co_await async_write(pair.mine, bytes_of(text)).with_stop(stop.get_token());
        co_return late.error() == errc::timeout&& stopped.error() == errc::stopped;
    };
    REQUIRE(loop.run_until(write()));
}

TEST_CASE_METHOD(on_loop, "io_socket: a read and a write allocate nothing") {
    ends pair(io);
    std::size_t allocated = 99;
    auto work = [&]() -> task<> {
        std::array<std::byte, 8> buffer{};
        for (int i = 0; i < 3; ++i) {
            const auto before = test::allocations_here();
            pair.put("x");
            const auto got = co_await pair.mine.async_read_some(buffer);
            const auto late = co_await pair.mine.async_read_some(buffer).with_timeout(1ms);
            const auto sent = co_await pair.mine.async_write_some(std::span(buffer).first(1));
            allocated = test::allocations_here() - before;
            if (!got || late || !sent) {
                co_return;
            }
        }
    };
    loop.run_until(work());
    REQUIRE(allocated == 0);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("io_socket: an operation of one that never had a descriptor terminates", "[death]") {
    const auto end = test::run_child([] {
        io_socket none;
        static_cast<void>(none.async_accept());
    });
    INFO(end.text());
    REQUIRE(end.has_aborted());
    REQUIRE(test::contains(end.said, "has never owned a descriptor"));
}

#endif
namespace {

sockaddr_in any_loopback() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}
sockaddr_in bound_address(const io_socket& of) {
    sockaddr_in at{};
    socklen_t size = sizeof at;
    ::getsockname(of.fd(), reinterpret_cast<sockaddr*>(&at), &size);
    return at;
}

struct datagram {
    std::string text;
    std::error_code error{};
    int from_port = 0;
};
task<datagram> receive(io_socket& at, std::size_t most = 64) {
    std::vector<std::byte> into(most);
    sockaddr_storage from{};
    const auto n = co_await at.async_receive_from(into, from);
    datagram got;
    got.from_port = ntohs(reinterpret_cast<const sockaddr_in&>(from).sin_port);
    if (n) {
        got.text.assign(reinterpret_cast<const char*>(into.data()), *n);
    } else {
        got.error = n.error();
    }
    co_return got;
}
task<io_count> send(io_socket& by, std::string_view text, const sockaddr_in to) {
    co_return co_await by.async_send_to(bytes_of(text), to);
}

} // namespace

TEST_CASE_METHOD(on_loop, "io_socket: datagrams come whole, with the address of their sender") {
    io_socket a = bind_at(io, any_loopback()).value();
    io_socket b = bind_at(io, any_loopback()).value();
    const sockaddr_in to = bound_address(a);
    const int port = ntohs(bound_address(b).sin_port);

    auto first = loop.spawn(receive(a));
    loop.poll();
    REQUIRE_FALSE(first.done());
    REQUIRE(loop.run_until(send(b, "one", to)).value() == 3);
    REQUIRE(loop.run_until(send(b, "", to)).value() == 0);
    REQUIRE(loop.run_until(send(b, "longer than it", to)).value() == 14);
    REQUIRE(loop.run_until(send(b, "last", to)).value() == 4);
    const datagram one = finish(loop, std::move(first));
    REQUIRE(one.text == "one");
    REQUIRE(one.from_port == port);
    REQUIRE(loop.run_until(receive(a, 0)).text.empty()); // takes none
    const datagram empty = loop.run_until(receive(a));
    REQUIRE(empty.text.empty());
    REQUIRE(empty.from_port == port);
    const datagram cut = loop.run_until(receive(a, 4));
    REQUIRE(cut.error == std::errc::message_size);
    REQUIRE(loop.run_until(receive(a)).text == "last");
    REQUIRE(loop.run_until(send(b, std::string(70'000, 'x'), to)).error() ==
            std::errc::message_size);

    // One peer only.
    REQUIRE(::connect(b.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    REQUIRE(loop.run_until(write_all(b, "connected")).value() == 9);
    REQUIRE(loop.run_until(receive(a)).text == "connected");
}

TEST_CASE_METHOD(on_loop, "io_socket: a time-out or a close of a receive loses no datagram",
                 "[promise.socket-loses-nothing]") {
    io_socket a = bind_at(io, any_loopback()).value();
    io_socket b = bind_at(io, any_loopback()).value();
    const auto timed = [](io_socket& at) -> task<std::error_code> {
        std::array<std::byte, 8> into{};
        sockaddr_in from{};
        const auto n = co_await at.async_receive_from(into, from).with_timeout(1ms);
        co_return n ? std::error_code() : n.error();
    };
    REQUIRE(loop.run_until(timed(a)) == errc::timeout);
    REQUIRE(loop.run_until(send(b, "kept", bound_address(a))).value() == 4);
    REQUIRE(loop.run_until(receive(a)).text == "kept");
    auto last = loop.spawn(receive(a));
    loop.poll();
    a.close();
    REQUIRE(finish(loop, std::move(last)).error == errc::closed);
    REQUIRE(bind_at(io, bound_address(b)).error() == std::errc::address_in_use);
}

#endif
