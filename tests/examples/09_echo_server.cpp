// # 9. An echo server
//
// The server has one task that accepts connections, and one task for each connection. A task that waits for a peer costs
// its frame and no thread, so ten thousand idle connections are no trouble. The workers wait for sockets by
// [epoll](../../include/bide/io/README.md#sockets), so this chapter is for Linux.

#include <bide/bide.hpp>
#include <bide/io.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include <netinet/in.h>
#include <sys/socket.h>

using namespace std::chrono_literals;

// One connection. The parameter owns the socket, so the connection is closed when the task ends, whichever way that is.
// `async_read_some()` returns what there is: a number of bytes, 0 at the end of the stream, or a `std::error_code`. A
// peer that says nothing for five minutes is an error here, `errc::timeout`. `async_write()` writes all of the bytes; if
// the peer does not read, it waits, and this task reads nothing more meanwhile. That is all the flow control there is.

bide::task<> echo(bide::io_socket peer) {
    std::array<std::byte, 4096> buffer{};
    for (;;) {
        auto got = co_await peer.async_read_some(buffer).with_timeout(5min);
        if (!got || *got == 0) {
            co_return; // an error, five minutes without a byte, or the end
        }
        auto sent = co_await bide::async_write(peer, std::span(buffer).first(*got));
        if (!sent) {
            co_return;
        }
    }
}

// The loop that accepts. An error is mostly one of the process, such as too many open files. The connection then stays
// in the queue of the system, so a short pause and another try lose nothing. If this task is cancelled, the accept
// returns `errc::stopped`, and the sleep, which is the next wait, ends the task by `stopped_error`.

bide::task<> serve(bide::scheduler& workers, bide::io_socket& door) {
    for (;;) {
        auto peer = co_await door.async_accept();
        if (peer) {
            workers.spawn(echo(std::move(*peer))).detach();
        } else {
            co_await bide::this_task::sleep_for(100ms); // such as too many open files
        }
    }
}

// A client, to try the server: it sends a text, ends its side of the stream, and expects the same text and the end.
// Sending and receiving run at the same time, by `when_all`. If they did not, a text larger than the buffers of the
// system would block: the server waits until the client reads, and the client does not read before all is sent.

bide::task<bool> send_all(bide::io_socket& peer, const std::string& text) {
    const auto sent = co_await bide::async_write(peer, std::as_bytes(std::span(text)));
    co_return sent.has_value() && ::shutdown(peer.fd(), SHUT_WR) == 0;
}

bide::task<std::string> receive_all(bide::io_socket& peer) {
    std::string text;
    std::array<std::byte, 4096> buffer{};
    for (;;) {
        const auto got = co_await peer.async_read_some(buffer);
        if (!got || *got == 0) {
            co_return text;
        }
        text.append(reinterpret_cast<const char*>(buffer.data()), *got);
    }
}

bide::task<bool> talk(bide::epoll_driver& files, sockaddr_in to, std::string text) {
    auto peer = co_await bide::async_connect(files, to);
    if (!peer) {
        std::printf("cannot connect: %s\n", peer.error().message().c_str());
        co_return false;
    }
    const auto both = co_await bide::when_all(send_all(*peer, text), receive_all(*peer));
    co_return std::get<0>(both) && std::get<1>(both) == text;
}

// Without arguments, the program listens at a free port of this machine, and eight clients talk to it at the same time,
// each with more text than the buffers hold. `cancel()` and the end of the scheduler end what still waits.

bide::task<bool> talk_to_itself(bide::scheduler& workers, bide::epoll_driver& files,
                                sockaddr_in at) {
    constexpr int count = 8;
    std::array<bool, count> same{};
    bide::task_group clients(workers);
    const auto client = [&](int number) -> bide::task<> {
        const auto letter = static_cast<char>('a' + number);
        same[static_cast<std::size_t>(number)] =
            co_await talk(files, at, std::string(1'000'000, letter));
    };
    for (int i = 0; i < count; ++i) {
        clients.spawn(client(i));
    }
    co_await clients.async_join();
    const auto right = std::count(same.begin(), same.end(), true);
    std::printf("%d of %d clients got back what they sent\n", static_cast<int>(right), count);
    co_return right == count;
}

// With a port, it serves until it is killed, at all addresses of the machine.

int main(int argc, char** argv) {
    bide::epoll_driver files;
    bide::scheduler workers({.io = &files});
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(argc > 1 ? INADDR_ANY : INADDR_LOOPBACK);
    at.sin_port = htons(static_cast<std::uint16_t>(argc > 1 ? std::atoi(argv[1]) : 0));
    auto door = bide::listen_at(files, at);
    if (!door) {
        std::fprintf(stderr, "cannot listen: %s\n", door.error().message().c_str());
        return 1;
    }
    auto server = workers.spawn(serve(workers, *door));
    if (argc > 1) {
        std::move(server).join();
    }
    socklen_t size = sizeof at; // the port that the system has chosen
    if (::getsockname(door->fd(), reinterpret_cast<sockaddr*>(&at), &size) != 0) {
        return 1;
    }
    const bool ok = workers.spawn(talk_to_itself(workers, files, at)).join();
    server.cancel();
    return ok ? 0 : 1;
}

// Limits. The number of connections is bounded only by the descriptors of the process; a permit of a semaphore for each
// of them is a bound of your own, as in [how many tasks](../../include/bide/sched/README.md#how-many-tasks). There are
// no names, no TLS and no protocols here, and no other systems than Linux: for those use Asio, whose operations a task
// can await. How a server ends in an orderly way, with a time for the connections to finish, is chapter 5.
