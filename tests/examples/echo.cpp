// echo PORT: sends back what each client sends. An echo server in 25 lines, which README.md shows.

#include <bide/bide.hpp>

#include <array>
#include <chrono>
#include <cstdlib>
#include <netinet/in.h>

using namespace std::chrono_literals;

bide::task<> echo(bide::io_socket peer) { // closes the connection at its end
    std::array<std::byte, 4096> buffer{};
    for (;;) {
        auto got = co_await peer.async_read_some(buffer).with_timeout(5min);
        if (!got || *got == 0)
            co_return; // an error, five minutes without a byte, or the end
        auto sent = co_await bide::async_write(peer, std::span(buffer).first(*got));
        if (!sent)
            co_return;
    }
}

bide::task<> serve(bide::scheduler& workers, bide::io_socket& door) {
    for (;;) {
        auto peer = co_await door.async_accept();
        if (peer)
            workers.spawn(echo(std::move(*peer))).detach();
        else
            co_await bide::this_task::sleep_for(100ms); // such as too many open files
    }
}

int main(int, char** argv) {
    bide::epoll_driver files;
    bide::scheduler workers({.io = &files});
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<std::uint16_t>(std::atoi(argv[1])));
    bide::io_socket door = bide::listen_at(files, at).value();
    workers.spawn(serve(workers, door)).join();
}
