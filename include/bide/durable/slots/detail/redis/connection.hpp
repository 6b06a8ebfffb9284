// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_CONNECTION_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_CONNECTION_HPP

// A connection to a Redis server: sends requests and receives replies. hiredis formats requests and
// parses replies.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/redis/openssl.hpp>
#include <bide/durable/slots/detail/redis/reply.hpp>
#include <bide/durable/slots/detail/redis/target.hpp>
#include <bide/durable/slots/detail/redis/tls.hpp>
#include <bide/durable/slots/detail/server/other_protocol.hpp>
#include <bide/durable/slots/detail/server/store_error_text.hpp>
#include <bide/durable/slots/detail/server/store_socket.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <hiredis/hiredis.h>

#include <sys/types.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

class redis_connection {
public:
    // Formats a command. Fails if memory runs out.
    static result<std::string, std::error_code>
    request(const std::vector<std::string_view>& command);

    // Connects, logs in, selects the database, and sends `requests`. Their replies go to `replies`.
    std::error_code open(const redis_target& target, const std::vector<std::string>& requests,
                         std::vector<redis_reply>& replies, deadline end);

    // Whether this process opened the connection, it is not closed, and no byte waits to be read.
    bool is_usable() {
        return reader_ != nullptr && reader_->pos == reader_->len && owner_ == ::getpid() &&
               (tls_ != nullptr ? tls_->is_quiet(socket_) : socket_.is_quiet());
    }

    // Closes the connection without a message to the server.
    void drop() noexcept {
        socket_.close();
        reader_.reset();
        tls_.reset();
    }

    // Whether it was opened and not dropped.
    bool is_open() const noexcept { return reader_ != nullptr && socket_.fd() >= 0; }

    // In a child of fork(): closes the descriptor and nothing else.
    void close_descriptor() noexcept { socket_.close(); }

    int fd() const noexcept { return socket_.fd(); }

    // The text of the last error; empty if the code says it all.
    const std::string& error_text() const noexcept { return error_text_; }

    // Sends a request. After an error, at most a part of the request was sent. The server ignores
    // an incomplete request.
    std::error_code send(std::string_view request, deadline end);

    // Receives the next reply, which may be an error reply.
    result<redis_reply, std::error_code> receive(deadline end);

private:
    struct freer {
        void operator()(redisReader* reader) const noexcept { ::redisReaderFree(reader); }
    };

    static std::error_code add(std::string& to, const std::vector<std::string_view>& command);
    static std::error_code greeting(const redis_target& target, std::string& to,
                                    std::size_t& count);
    std::error_code connect(const redis_target& target, deadline end);
    std::error_code secure(const redis_target& target, deadline end);
    std::error_code converse(const redis_target& target, const std::vector<std::string>& requests,
                             std::vector<redis_reply>& replies, deadline end);
    std::error_code not_redis(std::string_view heard);
    static const char* other_protocol(const redis_target& target, deadline end);

    store_socket socket_;
    std::unique_ptr<redis_tls> tls_;
    std::unique_ptr<redisReader, freer> reader_;
    pid_t owner_ = 0;
    bool has_heard_ = false; // at least one byte on this connection
    std::string error_text_;
};

inline result<std::string, std::error_code>
redis_connection::request(const std::vector<std::string_view>& command) {
    std::string made;
    if (const std::error_code error = add(made, command)) {
        return unexpected{error};
    }
    return made;
}

inline std::error_code redis_connection::add(std::string& to,
                                             const std::vector<std::string_view>& command) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string_view word : command) {
        texts.push_back(word.data() == nullptr ? "" : word.data());
        sizes.push_back(word.size());
    }
    char* made = nullptr;
    const auto size = ::redisFormatCommandArgv(&made, static_cast<int>(command.size()),
                                               texts.data(), sizes.data());
    if (size < 0) {
        return std::make_error_code(std::errc::not_enough_memory);
    }
    const std::unique_ptr<char, decltype(&::redisFreeCommand)> held(made, &::redisFreeCommand);
    to.append(made, static_cast<std::size_t>(size));
    return {};
}

// Appends the requests that log in and select the database. Adds their number to `count`.
inline std::error_code redis_connection::greeting(const redis_target& target, std::string& to,
                                                  std::size_t& count) {
    std::error_code error;
    if (!target.password.empty()) {
        error = target.user.empty() ? add(to, {"AUTH", target.password})
                                    : add(to, {"AUTH", target.user, target.password});
        ++count;
    }
    if (!error && target.database != 0) {
        error = add(to, {"SELECT", std::to_string(target.database)});
        ++count;
    }
    return error;
}

inline std::error_code redis_connection::connect(const redis_target& target, deadline end) {
    if (target.has_tls()) { // first: a missing file is not an error of the network
        redis_tls_made made = make_redis_tls(target.host, target.trust);
        if (made.error) {
            error_text_ = std::move(made.error_text);
            return made.error;
        }
        tls_ = std::move(made.session);
    }
    const std::error_code error =
        target.unix_socket.empty() ? socket_.connect_tcp(target.host, target.port, end, error_text_)
                                   : socket_.connect_unix(target.unix_socket, end);
    return error || tls_ == nullptr ? error : secure(target, end);
}

inline std::error_code redis_connection::secure(const redis_target& target, deadline end) {
    constexpr std::int64_t soon = 250'000'000; // ns; a working server answers sooner
    const std::int64_t first = native_platform::now() + soon;
    std::error_code error =
        tls_->shake_hands(socket_, first < end.steady_ns() ? deadline::at_ns(first) : end);
    if (error == std::errc::timed_out && !end.has_passed()) {
        if (!tls_->has_heard() && answers_redis(target.host, target.port, end)) {
            error_text_ = "TLS: the server does not speak TLS at this port";
            return std::make_error_code(std::errc::protocol_error);
        }
        error = tls_->shake_hands(socket_, end);
    }
    error_text_ = tls_->error_text();
    return error;
}

// Returns which protocol a server speaks that closed the connection without a reply, or nullptr.
inline const char* redis_connection::other_protocol(const redis_target& target, deadline end) {
    return answers_tls(target.host, target.port, end)
               ? "the server speaks TLS at this port: use rediss://"
           : answers_postgres(target.host, target.port, end) ? "a PostgreSQL server is at this port"
                                                             : nullptr;
}

inline std::error_code redis_connection::open(const redis_target& target,
                                              const std::vector<std::string>& requests,
                                              std::vector<redis_reply>& replies, deadline end) {
    drop();
    error_text_.clear();
    replies.clear();
    replies.reserve(requests.size());
    reader_.reset(::redisReaderCreate());
    if (reader_ == nullptr) {
        return std::make_error_code(std::errc::not_enough_memory);
    }
    owner_ = ::getpid();
    has_heard_ = false;
    std::error_code error = connect(target, end);
    if (!error) {
        error = converse(target, requests, replies, end);
        if (error && error != std::errc::timed_out && !has_heard_ && tls_ == nullptr &&
            target.unix_socket.empty()) {
            if (const char* const other = other_protocol(target, end)) {
                error_text_ = other;
                error = std::make_error_code(std::errc::protocol_error);
            }
        }
    }
    if (error) {
        error_text_ = without_secret(one_line(error_text_), target.password);
        drop();
    }
    return error;
}

inline std::error_code redis_connection::converse(const redis_target& target,
                                                  const std::vector<std::string>& requests,
                                                  std::vector<redis_reply>& replies, deadline end) {
    std::string bytes;
    std::size_t greetings = 0;
    if (const std::error_code error = greeting(target, bytes, greetings)) {
        return error;
    }
    for (const std::string& each : requests) {
        bytes += each;
    }
    // A server that closes the connection may have sent the reason before.
    const std::error_code unsent = send(bytes, end);
    if (unsent == std::errc::timed_out) {
        return unsent;
    }
    for (std::size_t i = 0; i < greetings + requests.size(); ++i) {
        auto reply = receive(unsent ? deadline::poll() : end);
        if (!reply) {
            return unsent && !has_heard_ ? unsent : reply.error();
        }
        if ((i < greetings && (*reply)->type == REDIS_REPLY_ERROR) || is_redis_refusal(**reply)) {
            error_text_ = redis_text(**reply);
            return redis_error(**reply);
        }
        if (i >= greetings) {
            replies.push_back(*std::move(reply));
        }
    }
    return unsent;
}

inline std::error_code redis_connection::send(std::string_view request, deadline end) {
    error_text_.clear();
    const std::error_code error =
        tls_ != nullptr ? tls_->send(socket_, request, end) : socket_.send(request, end);
    if (error && tls_ != nullptr) {
        error_text_ = tls_->error_text();
    }
    return error;
}

inline std::error_code redis_connection::not_redis(std::string_view heard) {
    const bool is_tls = heard.size() > 1 && (heard[0] == '\x15' || heard[0] == '\x16') &&
                        heard[1] == '\x03' && tls_ == nullptr;
    error_text_ = is_tls ? "the server speaks TLS at this port: use rediss://"
                         : "the server does not speak Redis's protocol";
    if (heard.starts_with("HTTP/")) {
        error_text_ += ", but HTTP: " + one_line(heard.substr(0, heard.find_first_of("\r\n")), 60);
    }
    return std::make_error_code(std::errc::protocol_error);
}

inline result<redis_reply, std::error_code> redis_connection::receive(deadline end) {
    char some[16 * 1024];
    std::size_t heard = 0;
    for (;;) {
        void* found = nullptr;
        if (::redisReaderGetReply(reader_.get(), &found) != REDIS_OK) {
            return unexpected{reader_->err == REDIS_ERR_OOM
                                  ? std::make_error_code(std::errc::not_enough_memory)
                                  : not_redis(std::string_view(some, heard))};
        }
        if (found != nullptr) {
            return redis_reply(static_cast<redisReply*>(found));
        }
        const auto n = tls_ != nullptr ? tls_->receive(socket_, some, sizeof some, end)
                                       : socket_.receive(some, sizeof some, end);
        if (!n) {
            error_text_ = tls_ != nullptr ? tls_->error_text() : std::string();
            return unexpected{n.error()};
        }
        heard = *n;
        has_heard_ = true;
        if (::redisReaderFeed(reader_.get(), some, heard) != REDIS_OK) {
            return unexpected{std::make_error_code(std::errc::not_enough_memory)};
        }
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
