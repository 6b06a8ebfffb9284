// A server with many connections that stay open: small requests, small replies, one request at a time on each
// connection. The client is a thread of plain epoll, so the processor time of the server is that of all threads but
// this one.

#include "sched/pools.hpp"
#include "sched/usage.hpp"

#if defined(__linux__)

#include <bide/io.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sched/scheduler.hpp>

#if defined(BIDE_BENCH_HAS_ASIO)
#include <asio.hpp>
#endif

#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace bench {
namespace {

constexpr unsigned connections = 64;
constexpr std::string_view end_of_request = "\r\n\r\n";
constexpr std::string_view request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
constexpr std::string_view reply = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello World!";

sockaddr_in any_port() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}
sockaddr_in address_of(int fd) {
    sockaddr_in at{};
    socklen_t size = sizeof at;
    check(::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    return at;
}
void send_at_once(int fd) {
    const int yes = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

double this_thread_us() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

// The client. Its time is that of a request, with all connections busy.
measured measure_requests(const job& j, const sockaddr_in& at) {
    struct connection {
        int fd;
        std::size_t got = 0;
        steady::time_point sent{};
    };
    const auto send = [](connection& c) {
        c.got = 0;
        c.sent = steady::now();
        check(::send(c.fd, request.data(), request.size(), MSG_NOSIGNAL) ==
              static_cast<ssize_t>(request.size()));
    };
    const int set = ::epoll_create1(EPOLL_CLOEXEC);
    std::vector<connection> all;
    all.reserve(connections);
    for (unsigned i = 0; i < connections; ++i) {
        connection& c =
            all.emplace_back(connection{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)});
        check(::connect(c.fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
        send_at_once(c.fd);
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u32 = i;
        check(::epoll_ctl(set, EPOLL_CTL_ADD, c.fd, &event) == 0);
    }

    std::vector<double> times;
    times.reserve(1'000'000);
    const double mine_before = this_thread_us();
    const usage before = usage_so_far();
    const auto began = steady::now();
    for (connection& c : all) {
        send(c);
    }
    for (unsigned waiting = connections; waiting != 0;) {
        std::array<epoll_event, connections> events;
        const int n = ::epoll_wait(set, events.data(), connections, -1);
        const bool goes_on = steady::now() - began < j.duration;
        for (int i = 0; i < n; ++i) {
            connection& c = all[events[static_cast<std::size_t>(i)].data.u32];
            std::array<char, 1024> buffer;
            const ssize_t got = ::recv(c.fd, buffer.data(), buffer.size(), 0);
            check(got > 0);
            c.got += static_cast<std::size_t>(got);
            if (c.got < reply.size()) {
                continue;
            }
            times.push_back(ns_since(c.sent) / 1e3);
            if (goes_on) {
                send(c);
            } else {
                --waiting;
            }
        }
    }
    const double ns = ns_since(began);
    const usage after = usage_so_far();
    const double mine = this_thread_us() - mine_before;
    for (const connection& c : all) {
        ::close(c.fd);
    }
    ::close(set);
    const auto count = static_cast<double>(times.size());
    return {ns / count,
            {{"server us", (after.cpu_us - before.cpu_us - mine) / count},
             {"p99", percentile(times, 0.99)}}};
}

// ---- The servers

bool is_request(const char* data, std::size_t size) {
    return std::string_view(data, size).ends_with(end_of_request);
}

measured by_epoll(const job& j) {
    const int door = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in any = any_port();
    check(::bind(door, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0);
    check(::listen(door, SOMAXCONN) == 0);
    const std::jthread server([door] {
        const int set = ::epoll_create1(EPOLL_CLOEXEC);
        for (unsigned i = 0; i < connections; ++i) {
            const int fd = ::accept4(door, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
            send_at_once(fd);
            epoll_event event{};
            event.events = EPOLLIN;
            event.data.fd = fd;
            check(::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
        }
        for (unsigned open = connections; open != 0;) {
            std::array<epoll_event, connections> events;
            const int n = ::epoll_wait(set, events.data(), connections, -1);
            for (int i = 0; i < n; ++i) {
                const int fd = events[static_cast<std::size_t>(i)].data.fd;
                std::array<char, 1024> buffer;
                const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
                if (got <= 0) {
                    ::close(fd);
                    --open;
                } else if (is_request(buffer.data(), static_cast<std::size_t>(got))) {
                    ::send(fd, reply.data(), reply.size(), MSG_NOSIGNAL);
                }
            }
        }
        ::close(set);
        ::close(door);
    });
    return measure_requests(j, address_of(door));
}

bide::task<> answer(bide::io_socket peer) {
    std::array<std::byte, 1024> buffer;
    for (std::size_t size = 0;;) {
        const auto got = co_await peer.async_read_some(std::span(buffer).subspan(size));
        if (!got || *got == 0) {
            co_return;
        }
        size += *got;
        if (is_request(reinterpret_cast<const char*>(buffer.data()), size)) {
            size = 0;
            const auto sent = co_await bide::async_write(peer, std::as_bytes(std::span(reply)));
            if (!sent) {
                co_return;
            }
        }
    }
}

template <class Runner> bide::task<> serve(Runner& on, bide::io_socket& door) {
    for (unsigned i = 0; i < connections; ++i) {
        auto peer = co_await door.async_accept();
        check(peer.has_value());
        send_at_once(peer->fd());
        on.spawn(answer(std::move(*peer))).detach();
    }
}

measured by_run_loop(const job& j) {
    bide::epoll_driver io;
    bide::io_socket door = bide::listen_at(io, any_port()).value();
    bide::run_loop loop({.io = &io});
    const std::jthread server([&] {
        loop.spawn(serve(loop, door)).detach();
        loop.run();
    });
    return measure_requests(j, address_of(door.fd()));
}

measured by_scheduler(const job& j) {
    bide::epoll_driver io;
    bide::io_socket door = bide::listen_at(io, any_port()).value();
    auto options = scheduler_options_of(j);
    options.io = &io;
    bide::scheduler s(options);
    auto served = s.spawn(serve(s, door));
    const measured found = measure_requests(j, address_of(door.fd()));
    std::move(served).join();
    return found;
}

#if defined(BIDE_BENCH_HAS_ASIO)

using tcp = asio::ip::tcp;

asio::awaitable<void> answer_by_asio(tcp::socket peer) {
    std::array<char, 1024> buffer;
    asio::error_code error;
    auto token = asio::redirect_error(asio::use_awaitable, error);
    for (std::size_t size = 0;;) {
        const auto room = asio::buffer(buffer) + size;
        const std::size_t got = co_await peer.async_read_some(room, token);
        if (error) {
            co_return;
        }
        size += got;
        if (is_request(buffer.data(), size)) {
            size = 0;
            co_await asio::async_write(peer, asio::buffer(reply), token);
            if (error) {
                co_return;
            }
        }
    }
}

asio::awaitable<void> serve_by_asio(tcp::acceptor& door) {
    for (unsigned i = 0; i < connections; ++i) {
        tcp::socket peer = co_await door.async_accept(asio::use_awaitable);
        peer.set_option(tcp::no_delay(true));
        const auto on = peer.get_executor();
        asio::co_spawn(on, answer_by_asio(std::move(peer)), asio::detached);
    }
}

measured by_asio(const job& j) {
    asio::io_context io(static_cast<int>(j.workers));
    tcp::acceptor door(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    asio::co_spawn(io, serve_by_asio(door), asio::detached);
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < j.workers; ++i) {
        threads.emplace_back([&io] { io.run(); });
    }
    return measure_requests(j, address_of(door.native_handle()));
}

#endif

} // namespace

void add_sockets() {
    for (const unsigned threads : {1u, workers()}) {
        const job j{1, threads, a_round(5)};
        table t(threads == 1 ? "sockets/one_thread" : "sockets/workers",
                "64 connections, each with a request and a reply again and again");
        const auto add = [&](const char* name, measured (*measure)(const job&)) {
            t.add(name, [=] { return measure(j); }, placement::own_process);
        };
        if (threads == 1) {
            add("epoll, by hand", by_epoll);
            add("bide::run_loop", by_run_loop);
        } else {
            add(bide_row, by_scheduler);
        }
#if defined(BIDE_BENCH_HAS_ASIO)
        add("Asio", by_asio);
#endif
        if (workers() == 1) {
            break;
        }
    }
}

} // namespace bench

#else

namespace bench {
void add_sockets() {}
} // namespace bench

#endif
