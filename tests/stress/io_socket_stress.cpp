// Sockets that are closed while others read from them, and whose descriptors are used again at once: no
// byte goes to a coroutine of another socket, and each wait ends.

#include <support/sched.hpp>

#if defined(__linux__)

#include <bide/io/io_socket.hpp>

#include <sys/socket.h>
#include <unistd.h>

using namespace bide;

namespace {

struct tally {
    std::atomic<int> foreign{0};   // bytes of another socket
    std::atomic<int> surprises{0}; // results that are neither a byte, nor closed, nor the end
    std::atomic<std::uint64_t> bytes{0};
};

// Reads bytes, which must all be `mark`, until the socket is closed.
task<> read_all(std::shared_ptr<io_socket> from, std::byte mark, tally& sum) {
    std::array<std::byte, 4> into{};
    for (;;) {
        const auto n = co_await from->async_read_some(into);
        if (!n) {
            sum.surprises +=
                n.error() == errc::closed || n.error() == std::errc::bad_file_descriptor ? 0 : 1;
            co_return;
        }
        for (std::size_t i = 0; i < *n; ++i) {
            sum.foreign += into[i] == mark ? 0 : 1;
        }
        sum.bytes += *n;
    }
}

} // namespace

TEST_CASE("stress: a closed socket's coroutines take nothing from the next one",
          "[stress][promise.socket-loses-nothing]") {
    tally sum;
    test::rounds([&](std::uint32_t round) {
        epoll_driver io;
        scheduler s({.num_workers = 3, .io = &io});
        // On one worker, so that no operation begins while its socket is closed; the driver's events
        // come from any worker.
        auto work = [&](unsigned number) -> task<> {
            test::jitter chance(test::seed_of(round * 16 + number));
            std::vector<join_handle<void>> readers;
            for (unsigned i = 0; i < 40; ++i) {
                int both[2];
                if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) !=
                    0) {
                    test::give_up(test::where(), "no sockets");
                }
                const auto mark = static_cast<std::byte>(number * 64 + i);
                const auto mine = std::make_shared<io_socket>(io, both[0]);
                auto reader = s.spawn(read_all(mine, mark, sum), {.worker = number});
                for (unsigned n = chance.below(4); n != 0; --n) {
                    co_await this_task::yield();
                    static_cast<void>(::send(both[1], &mark, 1, MSG_NOSIGNAL));
                    chance();
                }
                if (chance.below(2) == 0) {
                    co_await this_task::yield();
                }
                mine->close();
                ::close(both[1]);
                readers.push_back(std::move(reader));
            }
            for (auto& reader : readers) {
                co_await std::move(reader).async_join();
            }
        };
        auto first = s.spawn(work(0), {.worker = 0});
        auto second = s.spawn(work(1), {.worker = 1});
        std::move(first).join();
        std::move(second).join();
    });
    REQUIRE(sum.foreign == 0);
    REQUIRE(sum.surprises == 0);
    REQUIRE(sum.bytes > 0);
}

#endif
