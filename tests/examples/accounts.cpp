// A server of Asio whose connections and threads share accounts under a bide::mutex.
//
//   accounts            serves ten clients of its own, and says what they have deposited
//   accounts PORT       serves on that port of this machine until SIGINT
//
// Each line of a client is a number to deposit; the answer is the sum. A thread that knows nothing of Asio
// reports the deposits: it receives from the channel that the connections send to, and locks the mutex
// that they lock. It blocks where they suspend.

#include <bide/bide.hpp>
#include <bide/interop/asio.hpp>

#include <asio/awaitable.hpp>
#include <asio/buffer.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read_until.hpp>
#include <asio/signal_set.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace {

using asio::use_awaitable;
using asio::ip::tcp;
using bide::with_asio::async_await;

struct accounts {
    bide::mutex guard;
    long sum = 0;              // under `guard`
    long deposits = 0;         // under `guard`
    bide::semaphore places{4}; // connections at a time; others wait for their turns
    bide::channel<long> log{8};
};

asio::awaitable<void> serve(tcp::socket peer, accounts& all) {
    const bide::permit place = co_await async_await(all.places.async_acquire(), use_awaitable);
    std::string text;
    try {
        for (;;) {
            const std::size_t size = co_await asio::async_read_until(
                peer, asio::dynamic_buffer(text), '\n', use_awaitable);
            const long amount = std::atol(text.c_str());
            std::string answer;
            {
                const auto lock = co_await async_await(all.guard.async_lock(), use_awaitable);
                all.sum += amount;
                ++all.deposits;
                answer = std::to_string(all.sum) + '\n';
            }
            text.erase(0, size);
            const auto sent = co_await async_await(all.log.async_send(amount), use_awaitable);
            if (!sent.has_value()) {
                co_return; // the server ends
            }
            co_await asio::async_write(peer, asio::buffer(answer), use_awaitable);
        }
    } catch (const std::system_error&) { // the client has left
    }
}

asio::awaitable<void> listen(tcp::acceptor& from, accounts& all) {
    for (;;) {
        tcp::socket peer = co_await from.async_accept(use_awaitable);
        asio::co_spawn(from.get_executor(), serve(std::move(peer), all), asio::detached);
    }
}

asio::awaitable<void> deposit(tcp::endpoint where, long amount) {
    tcp::socket to(co_await asio::this_coro::executor);
    co_await to.async_connect(where, use_awaitable);
    const std::string line = std::to_string(amount) + '\n';
    co_await asio::async_write(to, asio::buffer(line), use_awaitable);
    std::string answer;
    co_await asio::async_read_until(to, asio::dynamic_buffer(answer), '\n', use_awaitable);
}

// A task of bide, for which the clients are operations of Asio.
bide::task<void> ten_clients(asio::io_context& io, tcp::endpoint where) {
    for (long amount = 1; amount <= 10; ++amount) {
        co_await asio::co_spawn(io, deposit(where, amount), bide::with_asio::use_bide);
    }
}

void report(accounts& all) {
    while (const auto amount = all.log.recv()) {
        const std::lock_guard lock(all.guard);
        std::printf("%ld of %ld in %ld deposits\n", *amount, all.sum, all.deposits);
    }
}

int run(int port) {
    accounts all; // outlives the context, which ends the waits of the connections
    asio::io_context io;
    tcp::acceptor acceptor(io,
                           {asio::ip::address_v4::loopback(), static_cast<unsigned short>(port)});
    asio::co_spawn(io, listen(acceptor, all), asio::detached);
    asio::signal_set signals(io, SIGINT, SIGTERM);
    signals.async_wait([&](std::error_code, int) { io.stop(); });
    std::exception_ptr error;
    if (port == 0) {
        bide::with_asio::co_spawn(io, ten_clients(io, acceptor.local_endpoint()),
                                  [&](std::exception_ptr e) {
                                      error = e;
                                      io.stop();
                                  });
    }
    std::thread reporter([&] { report(all); });
    io.run();
    all.log.close();
    reporter.join();
    if (error) {
        std::rethrow_exception(error);
    }
    return port != 0 || all.sum == 55 ? 0 : 1;
}

} // namespace

int main(int count, char** words) {
    try {
        return run(count > 1 ? std::atoi(words[1]) : 0);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "accounts: %s\n", e.what());
        return 2;
    }
}
