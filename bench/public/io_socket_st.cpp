// Requests over TCP from a thread of clients to a thread of servers:
// io_socket_st [CONNECTIONS [REQUESTS]]. Each connection has one request on the way at a time.

#include "program.hpp"

#include <bide/io/epoll_driver.hpp>
#include <bide/io/io_socket.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/task/task.hpp>

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include <netinet/in.h>

namespace {

constexpr std::string_view request =
    "HEAD / HTTP/1.1\r\nHost: host:port\r\nConnection: close\r\n\r\n";
constexpr std::string_view response = "HTTP/1.1 200 OK\nContent-Length: 12\n"
                                      "Content-Type: text/plain; charset=utf-8\n\nHello World!";

sockaddr_in address() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(55'550);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}

// Answers until the client closes. Returns the number of requests.
bide::task<std::size_t> answer(bide::io_socket peer) {
    std::array<std::byte, 4096> buffer;
    std::size_t count = 0;
    while ((co_await peer.async_read_some(buffer)).value() != 0) {
        static_cast<void>(
            (co_await bide::async_write(peer, std::as_bytes(std::span(response)))).value());
        ++count;
    }
    co_return count;
}

bide::task<std::size_t> serve(bide::run_loop& loop, bide::io_socket& door,
                              std::size_t connections) {
    std::vector<bide::join_handle<std::size_t>> peers;
    for (std::size_t i = 0; i != connections; ++i) {
        peers.push_back(loop.spawn(answer((co_await door.async_accept()).value())));
    }
    std::size_t count = 0;
    for (auto& peer : peers) {
        count += co_await std::move(peer).async_join();
    }
    co_return count;
}

bide::task<> ask(bide::epoll_driver& io, std::size_t requests) {
    bide::io_socket peer = (co_await bide::async_connect(io, address())).value();
    std::array<std::byte, 4096> buffer;
    for (std::size_t i = 0; i != requests; ++i) {
        static_cast<void>(
            (co_await bide::async_write(peer, std::as_bytes(std::span(request)))).value());
        check((co_await peer.async_read_some(buffer)).value(), response.size());
    }
}

} // namespace

int main(int argc, char** argv) {
    const arguments args{argc, argv};
    const std::size_t connections = args.number(1, 20);
    const std::size_t requests = args.number(2, 100'000);

    bide::epoll_driver server_io;
    bide::io_socket door = bide::listen_at(server_io, address()).value();
    std::size_t served = 0;
    const std::size_t us = microseconds([&] {
        std::thread server([&] {
            bide::run_loop loop({.io = &server_io});
            served = loop.run_until(serve(loop, door, connections));
        });
        std::thread client([&] {
            bide::epoll_driver io;
            bide::run_loop loop({.io = &io});
            for (std::size_t i = 0; i != connections; ++i) {
                loop.spawn(ask(io, requests * (i + 1) / connections - requests * i / connections))
                    .detach();
            }
            loop.run();
        });
        client.join();
        server.join();
    });
    check(served, requests);
    std::printf("connections: %zu\n", connections);
    print_run(us, "iteration_count: 1", "requests", requests);
}
