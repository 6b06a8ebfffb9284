#ifndef BIDE_TESTS_SUPPORT_FLAKY_PROXY_HPP
#define BIDE_TESTS_SUPPORT_FLAKY_PROXY_HPP

// A network between a client and a server on 127.0.0.1, with faults: it loses a reply, discards all
// bytes, or cuts connections. A call applies to every byte that arrives after it. The destructor
// ends the proxy's thread.

#include <support/loopback.hpp>
#include <support/standard.hpp>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>

namespace test {

class flaky_proxy {
public:
    enum class afterwards { stays, is_cut };

    explicit flaky_proxy(std::uint16_t server) : server_(server) {
        listening_ = checked(new_socket(SOCK_NONBLOCK));
        wake_ = checked(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
        port_ = listens(listening_);
        thread_ = std::thread([this] { run(); });
    }
    flaky_proxy(const flaky_proxy&) = delete;
    flaky_proxy& operator=(const flaky_proxy&) = delete;
    ~flaky_proxy() {
        {
            const std::lock_guard lock(mutex_);
            is_over_ = true;
        }
        wake();
        thread_.join();
        for (connection& each : connections_) {
            each.close();
        }
        ::close(listening_);
        ::close(wake_);
    }

    // The port that clients connect to.
    std::uint16_t port() const noexcept { return port_; }

    // Ends all faults. This is the state at the beginning.
    void forward() {
        const std::lock_guard lock(mutex_);
        swallows_ = false;
        drops_reply_ = false;
        trickles_ = false;
    }

    // Discards all bytes of all connections, and closes no connection. Discarded bytes stay lost.
    void hang() {
        const std::lock_guard lock(mutex_);
        swallows_ = true;
    }

    // Delivers the server's bytes one by one, with `pause` after each.
    void trickle(std::chrono::milliseconds pause = std::chrono::milliseconds(15)) {
        const std::lock_guard lock(mutex_);
        trickles_ = true;
        pause_ = pause;
        trickled_ = 0;
    }

    // Discards the next reply of the server, after the server has handled the request. Then cuts
    // the connection, or keeps it open and discards all further bytes of the server.
    void drop_next_reply(afterwards then) {
        const std::lock_guard lock(mutex_);
        drops_reply_ = true;
        then_ = then;
    }

    // Ends all open connections; bytes that were not delivered may be lost. Accepts new ones.
    void cut() {
        {
            const std::lock_guard lock(mutex_);
            for (connection& each : connections_) {
                each.end();
            }
        }
        wake();
    }

    // Return how many connections were made, and how many pieces for the server were discarded.
    // They include all that clients did before the call. Must not be called in a child of fork().
    int connections() const { return up_to_date(accepted_); }
    int swallowed() const { return up_to_date(swallowed_); }
    // Returns how many requests clients made: how often bytes of a client followed bytes of the server,
    // or began the connection. If no client sends before it has its reply, these are round trips.
    int requests() const { return up_to_date(requests_); }
    int dropped_replies() const {
        const std::lock_guard lock(mutex_);
        return dropped_;
    }
    // Returns how many bytes of the server were delivered since trickle().
    int trickled() const {
        const std::lock_guard lock(mutex_);
        return trickled_;
    }

private:
    // One direction of a connection: the bytes that were read and not yet written.
    struct direction {
        std::string held{};
        bool has_ended = false;
    };

    struct connection {
        int client;
        int server;
        direction to_server{};
        direction to_client{};
        bool is_mute = false; // the server's bytes are discarded
        bool asks = false;    // the latest bytes were the client's
        bool is_over = false;

        // Ends the connection. The thread closes the descriptors later.
        void end() noexcept {
            is_over = true;
            ::shutdown(client, SHUT_RDWR);
            ::shutdown(server, SHUT_RDWR);
        }
        void close() const noexcept {
            ::close(client);
            ::close(server);
        }
    };

    static int checked(int fd) {
        if (fd < 0) {
            std::perror("flaky_proxy");
            std::abort();
        }
        return fd;
    }

    // Returns the count after the thread has polled all sockets once more.
    int up_to_date(const int& count) const {
        std::unique_lock lock(mutex_);
        const unsigned asked = ++asked_;
        wake();
        answered_by_.wait(lock, [&] { return answered_ >= asked; });
        return count;
    }

    void wake() const noexcept {
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
    }

    void run() {
        std::vector<pollfd> polled;
        for (;;) {
            unsigned asked;
            bool is_asked;
            polled.assign({{wake_, POLLIN, 0}, {listening_, POLLIN, 0}});
            {
                const std::lock_guard lock(mutex_);
                if (is_over_) {
                    return;
                }
                asked = asked_;
                is_asked = asked != answered_;
                for (const connection& each : connections_) {
                    polled.push_back(poll_for(each.client, each.to_server, each.to_client));
                    polled.push_back(poll_for(each.server, each.to_client, each.to_server));
                }
            }
            if (::poll(polled.data(), static_cast<nfds_t>(polled.size()), is_asked ? 0 : -1) < 0) {
                continue; // EINTR
            }
            std::uint64_t ignored;
            [[maybe_unused]] const ssize_t n = ::read(wake_, &ignored, sizeof ignored);

            std::unique_lock lock(mutex_);
            // Only this thread adds and removes connections: they are in the order of `polled`.
            std::size_t at = 2;
            for (auto each = connections_.begin(); each != connections_.end(); at += 2) {
                serve(*each, polled[at].revents, polled[at + 1].revents);
                if (each->is_over) {
                    each->close();
                    each = connections_.erase(each);
                } else {
                    ++each;
                }
            }
            accept();
            answered_ = asked;
            answered_by_.notify_all();
            if (trickles_) {
                const auto pause = pause_;
                lock.unlock();
                std::this_thread::sleep_for(pause);
            }
        }
    }

    // Returns what to poll one end for: bytes to read if none are held, and room to write if some
    // are. If neither, leaves the end out: a closed one would be reported again and again.
    static pollfd poll_for(int fd, const direction& from, const direction& to) noexcept {
        const int events =
            (from.held.empty() && !from.has_ended ? POLLIN : 0) | (to.held.empty() ? 0 : POLLOUT);
        return {events == 0 ? -1 : fd, static_cast<short>(events), 0};
    }

    void serve(connection& c, short client, short server) {
        constexpr short something = POLLIN | POLLHUP | POLLERR;
        if (!c.is_over && (client & something) != 0 && reads(c.client, c.to_server)) {
            requests_ += std::exchange(c.asks, true) ? 0 : 1;
            if (swallows_) {
                c.to_server.held.clear();
                ++swallowed_;
            }
        }
        if (!c.is_over && (server & something) != 0 && reads(c.server, c.to_client)) {
            c.asks = false;
            if (drops_reply_) {
                drops_reply_ = false;
                ++dropped_;
                c.is_mute = true;
                if (then_ == afterwards::is_cut) {
                    c.end();
                }
            }
            if (c.is_mute || swallows_) {
                c.to_client.held.clear();
            }
        }
        if (!c.is_over) {
            writes(c, c.server, c.to_server, c.to_server.held.size());
            writes(c, c.client, c.to_client, trickles_ ? 1 : c.to_client.held.size());
        }
        // If one end has closed and its bytes are delivered, ends the other one. While all bytes
        // are discarded, the client does not learn that the server has closed.
        if ((c.to_server.has_ended && c.to_server.held.empty()) ||
            (c.to_client.has_ended && c.to_client.held.empty() && !swallows_)) {
            c.is_over = true;
        }
    }

    // Reads bytes. Returns false if there are none.
    static bool reads(int from, direction& into) {
        if (!into.held.empty() || into.has_ended) {
            return false;
        }
        char some[16 * 1024];
        const ssize_t n = ::recv(from, some, sizeof some, MSG_DONTWAIT);
        if (n > 0) {
            into.held.assign(some, static_cast<std::size_t>(n));
            return true;
        }
        into.has_ended = n == 0 || (errno != EAGAIN && errno != EINTR);
        return false;
    }

    void writes(connection& c, int to, direction& from, std::size_t most) noexcept {
        if (from.held.empty()) {
            return;
        }
        const ssize_t n = ::send(to, from.held.data(), most, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0) {
            from.held.erase(0, static_cast<std::size_t>(n));
            trickled_ += trickles_ && &from == &c.to_client ? static_cast<int>(n) : 0;
        } else if (errno != EAGAIN && errno != EINTR) {
            c.is_over = true;
        }
    }

    // Accepts clients and connects to the server. If that fails, closes the client's connection.
    void accept() {
        for (;;) {
            const int client = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
            if (client < 0) {
                return;
            }
            ++accepted_;
            const int server = checked(new_socket());
            if (!connects(server, server_)) {
                ::close(client);
                ::close(server);
                continue;
            }
            const int on = 1;
            ::setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            ::setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            connections_.push_back({client, server});
        }
    }

    const std::uint16_t server_;
    std::uint16_t port_ = 0;
    int listening_ = -1;
    int wake_ = -1;

    mutable std::mutex mutex_; // over all members below
    std::list<connection> connections_;
    bool swallows_ = false;
    bool drops_reply_ = false;
    bool trickles_ = false;
    std::chrono::milliseconds pause_{0};
    afterwards then_ = afterwards::stays;
    bool is_over_ = false;
    int accepted_ = 0;
    int requests_ = 0;
    int dropped_ = 0;
    int swallowed_ = 0;
    int trickled_ = 0;
    mutable unsigned asked_ = 0; // the number of calls of up_to_date()
    unsigned answered_ = 0;
    mutable std::condition_variable answered_by_;

    std::thread thread_;
};

} // namespace test

#endif
