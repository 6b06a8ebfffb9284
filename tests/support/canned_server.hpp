#ifndef BIDE_TESTS_SUPPORT_CANNED_SERVER_HPP
#define BIDE_TESTS_SUPPORT_CANNED_SERVER_HPP

// A server on 127.0.0.1 with fixed answers. It answers the requests of each connection with these
// texts in order, and closes the connection. It serves one connection at a time. The destructor
// ends its thread, after the client has closed its connection.

#include <support/loopback.hpp>
#include <support/standard.hpp>

namespace test {

class canned_server {
public:
    // Tells whether a request is complete. any(): whatever one read returned is.
    using whole = bool (*)(std::string_view request);
    static bool any(std::string_view) noexcept { return true; }

    explicit canned_server(std::vector<std::string> answers, whole is_whole = &any)
        : answers_(std::move(answers)), is_whole_(is_whole) {
        port_ = listens(listening_);
        thread_ = std::thread([this] { run(); });
    }
    canned_server(const canned_server&) = delete;
    canned_server& operator=(const canned_server&) = delete;
    ~canned_server() {
        ::shutdown(listening_, SHUT_RDWR);
        thread_.join();
        ::close(listening_);
    }

    std::uint16_t port() const noexcept { return port_; }
    int requests() const noexcept { return requests_.load(); }

private:
    void run() {
        for (int fd; (fd = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
            char some[4096];
            for (const std::string& answer : answers_) {
                std::string request;
                for (ssize_t n; (request.empty() || !is_whole_(request)) &&
                                (n = ::recv(fd, some, sizeof some, 0)) > 0;) {
                    request.append(some, static_cast<std::size_t>(n));
                }
                requests_ += !request.empty() && is_whole_(request) ? 1 : 0;
                // A client that is stopped receives a part at a time.
                for (std::size_t sent = 0; sent < answer.size();) {
                    const ssize_t n =
                        ::send(fd, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
                    if (n <= 0) {
                        break;
                    }
                    sent += static_cast<std::size_t>(n);
                }
            }
            ::shutdown(fd, SHUT_WR);
            while (::recv(fd, some, sizeof some, 0) >
                   0) { // closing with unread bytes would discard the last answer
            }
            ::close(fd);
        }
    }

    const std::vector<std::string> answers_;
    const whole is_whole_;
    const int listening_ = new_socket();
    std::uint16_t port_;
    std::atomic<int> requests_{0};
    std::thread thread_;
};

} // namespace test

#endif
