// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_CONNECTION_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_CONNECTION_HPP

// A connection to a Redis server, which connects again when it was lost, and the requests of slots
// and listeners. hiredis parses replies.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slots/detail/redis/protocol.hpp>
#include <bide/durable/slots/detail/redis/target.hpp>
#include <bide/durable/slots/detail/redis/tls.hpp>
#include <bide/durable/slots/detail/server/server_slot.hpp>
#include <bide/durable/slots/detail/server/shared_connections.hpp>
#include <bide/durable/slots/detail/server/store_socket.hpp>
#include <bide/durable/slots/detail/server/text.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <hiredis/hiredis.h>

#include <sys/types.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

using redis_answer = server_answer<redis_reply>; // never an error reply

// Used by one thread at a time.
class redis_connection {
public:
    using key = connection_key<redis_target>;
    using answer = redis_answer;

    explicit redis_connection(const key& of) : target_(of.target) {}

    // Connects if the connection is not usable, and loads the script.
    std::error_code make_ready(deadline end) {
        return is_usable() ? std::error_code() : open(true, end);
    }

    // Whether this process opened the connection, it is not closed, and no byte waits to be read.
    bool is_usable() {
        return reader_ != nullptr && reader_->pos == reader_->len && owner_ == ::getpid() &&
               (tls_ != nullptr ? tls_->is_quiet(socket_) : socket_.is_quiet());
    }

    // Closes the connection without a message to the server; in a child of fork(), too.
    void disown() noexcept { drop(); }
    void drop() noexcept {
        socket_.close();
        reader_.reset();
        tls_.reset();
    }

    // Whether it was opened and not dropped.
    bool is_open() const noexcept { return reader_ != nullptr && socket_.fd() >= 0; }

    int fd() const noexcept { return socket_.fd(); }

    // The text of the last error, without the password; empty if the code says it all.
    const std::string& message() const noexcept { return error_text_; }

    // Drops the connection. Returns the error as an answer, with the error's text.
    redis_answer lost(std::error_code error, bool may_have_stored) {
        drop();
        return {{}, error, may_have_stored, error_text_};
    }

    // Runs the script for the key `at`.
    // Requires: make_ready() has succeeded.
    redis_answer run(std::string_view at, std::initializer_list<std::string_view> arguments,
                     deadline end) {
        for (;;) {
            std::vector<std::string_view> command{"EVAL", redis_script, "1", at};
            if (!name_.empty()) {
                command[0] = "EVALSHA";
                command[1] = name_;
            }
            command.insert(command.end(), arguments);
            redis_answer got = exchange(command, end);
            if (got.error || got.of->type != REDIS_REPLY_ERROR) {
                return got;
            }
            const std::string_view text = redis_text(*got.of);
            if (!name_.empty() && text.starts_with("NOSCRIPT ")) {
                name_.clear(); // SCRIPT FLUSH, or a restart, has removed it
                continue;
            }
            if (text.find("READONLY ") != text.npos || text.starts_with("MASTERDOWN ")) {
                drop();
            }
            const std::error_code error = refused(*got.of);
            return {{}, error, !is_certain_redis_error(*got.of), error_text_};
        }
    }

    // Runs a command that changes nothing.
    // Requires: make_ready() has succeeded.
    redis_answer ask(const std::vector<std::string_view>& command, deadline end) {
        redis_answer got = exchange(command, end);
        if (!got.error && got.of->type == REDIS_REPLY_ERROR) {
            const std::error_code error = refused(*got.of);
            return {{}, error, false, error_text_};
        }
        return got;
    }

    // Listens to channels, as channel_listener describes.
    static std::error_code lost_error() {
        return std::make_error_code(std::errc::connection_reset);
    }
    template <class Heard>
    std::error_code subscribe(const std::string& channel, deadline end, Heard heard) {
        if (!is_open()) {
            if (const std::error_code error = open(false, end)) {
                return error;
            }
        }
        if (const std::error_code error = send(redis_request({"SUBSCRIBE", channel}), end)) {
            drop();
            return error;
        }
        return hear(channel, end, heard);
    }
    void unsubscribe(const std::string& channel) {
        if (send(redis_request({"UNSUBSCRIBE", channel}), deadline::poll())) {
            drop();
        }
    }
    template <class Heard> std::error_code hear(Heard heard) {
        return hear({}, deadline::poll(), heard);
    }

private:
    struct freer {
        void operator()(redisReader* reader) const noexcept { ::redisReaderFree(reader); }
    };

    // Connects, logs in and selects the database. Loads the script, or not: a user that only
    // listens may not load scripts.
    std::error_code open(bool loads_script, deadline end) {
        drop();
        error_text_.clear();
        name_.clear();
        reader_.reset(::redisReaderCreate());
        if (reader_ == nullptr) {
            return std::make_error_code(std::errc::not_enough_memory);
        }
        owner_ = ::getpid();
        has_heard_ = false;
        std::error_code error = connect(end);
        if (!error) {
            error = greet(loads_script, end);
            if (error && error != std::errc::timed_out && !has_heard_ && tls_ == nullptr &&
                target_.unix_socket.empty()) {
                if (const char* const other = other_protocol(end)) {
                    error = failed(std::errc::protocol_error, other);
                }
            }
        }
        if (error) {
            error_text_ = without_secret(one_line(error_text_), target_.password);
            drop();
        }
        return error;
    }

    std::error_code connect(deadline end) {
        if (target_.has_tls()) { // first: a missing file is not an error of the network
            auto made = redis_tls::make(target_.host, target_.trust);
            if (made.error) {
                error_text_ = std::move(made.error_text);
                return made.error;
            }
            tls_ = std::move(made.of);
        }
        const std::error_code error =
            target_.unix_socket.empty()
                ? socket_.connect_tcp(target_.host, target_.port, end, error_text_)
                : socket_.connect_unix(target_.unix_socket, end);
        return error || tls_ == nullptr ? error : secure(end);
    }

    std::error_code secure(deadline end) {
        constexpr std::int64_t soon = 250'000'000; // ns; a working server answers sooner
        const std::int64_t first = native_platform::now() + soon;
        std::error_code error =
            tls_->shake_hands(socket_, first < end.steady_ns() ? deadline::at_ns(first) : end);
        if (error == std::errc::timed_out && !end.has_passed()) {
            if (!tls_->has_heard() && answers_redis(target_.host, target_.port, end)) {
                return failed(std::errc::protocol_error,
                              "TLS: the server does not speak TLS at this port");
            }
            error = tls_->shake_hands(socket_, end);
        }
        error_text_ = tls_->error_text();
        return error;
    }

    std::error_code greet(bool loads_script, deadline end) {
        std::vector<std::string> requests;
        if (!target_.password.empty()) {
            requests.push_back(target_.user.empty()
                                   ? redis_request({"AUTH", target_.password})
                                   : redis_request({"AUTH", target_.user, target_.password}));
        }
        if (target_.database != 0) {
            requests.push_back(redis_request({"SELECT", std::to_string(target_.database)}));
        }
        requests.push_back(loads_script ? redis_request({"SCRIPT", "LOAD", redis_script})
                                        : redis_request({"PING"}));
        std::string bytes;
        for (const std::string& each : requests) {
            bytes += each;
        }
        // A server that closes the connection may have sent the reason before.
        const std::error_code unsent = send(bytes, end);
        if (unsent == std::errc::timed_out) {
            return unsent;
        }
        for (std::size_t i = 0; i < requests.size(); ++i) {
            const auto reply = receive(unsent ? deadline::poll() : end);
            if (!reply) {
                return unsent && !has_heard_ ? unsent : reply.error();
            }
            const std::string_view text = redis_text(**reply);
            const bool is_last = i + 1 == requests.size();
            if ((*reply)->type == REDIS_REPLY_ERROR &&
                (!is_last || text.starts_with("DENIED ") ||
                 text.starts_with("ERR max number of clients"))) { // and the server closes it
                return refused(**reply);
            }
            if (is_last && loads_script && is_redis_text(**reply)) {
                name_ = text;
            }
        }
        return unsent;
    }

    // Sends a request. After an error, at most a part of the request was sent. The server ignores
    // an incomplete request.
    std::error_code send(std::string_view request, deadline end) {
        error_text_.clear();
        const std::error_code error =
            tls_ != nullptr ? tls_->send(socket_, request, end) : socket_.send(request, end);
        if (error && tls_ != nullptr) {
            error_text_ = tls_->error_text();
        }
        return error;
    }
    // Receives the next reply, which may be an error reply.
    result<redis_reply, std::error_code> receive(deadline end) {
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

    redis_answer exchange(const std::vector<std::string_view>& command, deadline end) {
        if (const std::error_code error = send(redis_request(command), end)) {
            return lost(error, false);
        }
        auto reply = receive(end);
        if (!reply) {
            return lost(reply.error(), true);
        }
        return {*std::move(reply), {}, true, {}};
    }

    // Reads until the server confirms the channel `wanted`. If that is empty, reads what has
    // arrived.
    template <class Heard>
    std::error_code hear(std::string_view wanted, deadline end, Heard& heard) {
        for (;;) {
            const auto reply = receive(end);
            if (!reply && reply.error() == std::errc::timed_out && wanted.empty()) {
                return {};
            }
            if (reply && (*reply)->type == REDIS_REPLY_ERROR) {
                const std::error_code error = refused(**reply);
                if (!wanted.empty()) {
                    return error; // the subscriptions of other channels continue
                }
                continue;
            }
            if (!reply || (*reply)->type != REDIS_REPLY_ARRAY || (*reply)->elements < 2) {
                drop();
                return reply ? std::make_error_code(std::errc::protocol_error) : reply.error();
            }
            const std::string_view kind = redis_text(*(*reply)->element[0]);
            const std::string_view channel = redis_text(*(*reply)->element[1]);
            if (kind == "message") {
                heard(channel);
            } else if (kind == "subscribe" && channel == wanted) {
                return {};
            }
        }
    }

    // Sets the text of the last error. Returns the error.
    std::error_code failed(std::errc error, std::string_view text) {
        error_text_ = without_secret(one_line(text), target_.password);
        return std::make_error_code(error);
    }
    std::error_code refused(const redisReply& reply) {
        static_cast<void>(failed({}, redis_text(reply)));
        return redis_error(reply);
    }
    std::error_code not_redis(std::string_view heard) {
        const bool is_tls = heard.size() > 1 && (heard[0] == '\x15' || heard[0] == '\x16') &&
                            heard[1] == '\x03' && tls_ == nullptr;
        const bool is_http = heard.starts_with("HTTP/");
        return failed(std::errc::protocol_error,
                      is_tls    ? "the server speaks TLS at this port: use rediss://"
                      : is_http ? "the server does not speak Redis's protocol, but HTTP: " +
                                      one_line(heard.substr(0, heard.find_first_of("\r\n")), 60)
                                : "the server does not speak Redis's protocol");
    }

    // Returns which protocol a server speaks that closed the connection without a reply, or
    // nullptr.
    const char* other_protocol(deadline end) const {
        return answers_tls(target_.host, target_.port, end)
                   ? "the server speaks TLS at this port: use rediss://"
               : answers_postgres(target_.host, target_.port, end)
                   ? "a PostgreSQL server is at this port"
                   : nullptr;
    }

    const redis_target target_;
    store_socket socket_;
    std::unique_ptr<redis_tls> tls_;
    std::unique_ptr<redisReader, freer> reader_;
    pid_t owner_ = 0;
    bool has_heard_ = false; // at least one byte on this connection
    std::string error_text_;
    std::string name_; // the script's hash on this server; empty: it is not loaded
};

}}} // namespace bide::BIDE_ABI::detail

#endif
