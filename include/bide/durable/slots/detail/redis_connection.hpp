#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_CONNECTION_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_CONNECTION_HPP

// Requests to a Redis server and its replies, in the format that the client library makes and
// reads.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/other_language.hpp>
#include <bide/durable/slots/detail/redis_openssl.hpp>
#include <bide/durable/slots/detail/redis_place.hpp>
#include <bide/durable/slots/detail/redis_reply.hpp>
#include <bide/durable/slots/detail/store_socket.hpp>
#include <bide/durable/slots/detail/redis_tls.hpp>
#include <bide/durable/slots/detail/store_words.hpp>

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
    // A request ready to be sent, or the memory for it is missing.
    static result<std::string, std::error_code> request(const std::vector<std::string_view>& words);

    // Connects, says who we are, and asks these besides; what they are answered goes to `replies`.
    std::error_code open(const redis_place& place, const std::vector<std::string>& besides,
                         std::vector<redis_reply>& replies, deadline end);

    // It was opened by this process, and nothing has happened to it or come from it since.
    bool is_usable() {
        return reader_ != nullptr && reader_->pos == reader_->len && owner_ == ::getpid() &&
               (tls_ != nullptr ? tls_->is_quiet(socket_) : socket_.is_quiet());
    }

    // Gives it up, without a word to the server.
    void drop() noexcept {
        socket_.close();
        reader_.reset();
        tls_.reset();
    }

    // It was opened, and not dropped.
    bool is_open() const noexcept { return reader_ != nullptr && socket_.fd() >= 0; }

    // In a child of fork(): no more than that.
    void close_descriptor() noexcept { socket_.close(); }

    int fd() const noexcept { return socket_.fd(); }

    // What went wrong last, in more words than the code has; or empty.
    const std::string& words() const noexcept { return words_; }

    // An error: not all of it was sent, and the server does nothing on a part.
    std::error_code send(std::string_view request, deadline end);

    // The next reply, error replies included.
    result<redis_reply, std::error_code> receive(deadline end);

private:
    struct freer {
        void operator()(redisReader* reader) const noexcept { ::redisReaderFree(reader); }
    };

    static std::error_code add(std::string& to, const std::vector<std::string_view>& words);
    static std::error_code greeting(const redis_place& place, std::string& to, std::size_t& count);
    std::error_code connect(const redis_place& place, deadline end);
    std::error_code secure(const redis_place& place, deadline end);
    std::error_code converse(const redis_place& place, const std::vector<std::string>& besides,
                             std::vector<redis_reply>& replies, deadline end);
    std::error_code not_redis(std::string_view heard);
    static const char* other_language(const redis_place& place, deadline end);

    store_socket socket_;
    std::unique_ptr<redis_tls> tls_;
    std::unique_ptr<redisReader, freer> reader_;
    pid_t owner_ = 0;
    bool has_heard_ = false; // at least a byte, by this connection
    std::string words_;
};

inline result<std::string, std::error_code>
redis_connection::request(const std::vector<std::string_view>& words) {
    std::string made;
    if (const std::error_code error = add(made, words)) {
        return unexpected{error};
    }
    return made;
}

inline std::error_code redis_connection::add(std::string& to,
                                             const std::vector<std::string_view>& words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string_view word : words) {
        texts.push_back(word.data() == nullptr ? "" : word.data());
        sizes.push_back(word.size());
    }
    char* made = nullptr;
    const auto size =
        ::redisFormatCommandArgv(&made, static_cast<int>(words.size()), texts.data(), sizes.data());
    if (size < 0) {
        return std::make_error_code(std::errc::not_enough_memory);
    }
    const std::unique_ptr<char, decltype(&::redisFreeCommand)> held(made, &::redisFreeCommand);
    to.append(made, static_cast<std::size_t>(size));
    return {};
}

// Who we are, and which database, as so many requests.
inline std::error_code redis_connection::greeting(const redis_place& place, std::string& to,
                                                  std::size_t& count) {
    std::error_code error;
    if (!place.password.empty()) {
        error = place.user.empty() ? add(to, {"AUTH", place.password})
                                   : add(to, {"AUTH", place.user, place.password});
        ++count;
    }
    if (!error && place.database != 0) {
        error = add(to, {"SELECT", std::to_string(place.database)});
        ++count;
    }
    return error;
}

inline std::error_code redis_connection::connect(const redis_place& place, deadline end) {
    if (place.is_secret()) { // first: a file that is missing is not the network's fault
        redis_tls_made made = make_redis_tls(place.host, place.trust);
        if (made.error) {
            words_ = std::move(made.words);
            return made.error;
        }
        tls_ = std::move(made.session);
    }
    const std::error_code error = place.unix_socket.empty()
                                      ? socket_.connect_tcp(place.host, place.port, end, words_)
                                      : socket_.connect_unix(place.unix_socket, end);
    return error || tls_ == nullptr ? error : secure(place, end);
}

inline std::error_code redis_connection::secure(const redis_place& place, deadline end) {
    constexpr std::int64_t soon = 250'000'000; // ns; a server that works has answered then
    const std::int64_t first = native_platform::now() + soon;
    std::error_code error =
        tls_->shake_hands(socket_, first < end.steady_ns() ? deadline::at_ns(first) : end);
    if (error == std::errc::timed_out && !end.has_passed()) {
        if (!tls_->has_heard() &&
            answers_redis(place.host, place.port, end)) {
            words_ = "TLS: the server does not speak TLS at this port";
            return std::make_error_code(std::errc::protocol_error);
        }
        error = tls_->shake_hands(socket_, end);
    }
    words_ = tls_->words();
    return error;
}

// What a server speaks that hung up without a word; or nullptr.
inline const char* redis_connection::other_language(const redis_place& place, deadline end) {
    return answers_tls(place.host, place.port, end)
               ? "the server speaks TLS at this port, and rediss:// is for that"
           : answers_postgres(place.host, place.port, end)
               ? "a PostgreSQL server is at this port"
               : nullptr;
}

inline std::error_code redis_connection::open(const redis_place& place,
                                              const std::vector<std::string>& besides,
                                              std::vector<redis_reply>& replies, deadline end) {
    drop();
    words_.clear();
    replies.clear();
    replies.reserve(besides.size());
    reader_.reset(::redisReaderCreate());
    if (reader_ == nullptr) {
        return std::make_error_code(std::errc::not_enough_memory);
    }
    owner_ = ::getpid();
    has_heard_ = false;
    std::error_code error = connect(place, end);
    if (!error) {
        error = converse(place, besides, replies, end);
        if (error && error != std::errc::timed_out && !has_heard_ && tls_ == nullptr &&
            place.unix_socket.empty()) {
            if (const char* const other = other_language(place, end)) {
                words_ = other;
                error = std::make_error_code(std::errc::protocol_error);
            }
        }
    }
    if (error) {
        words_ = without_secret(one_line(words_), place.password);
        drop();
    }
    return error;
}

inline std::error_code redis_connection::converse(const redis_place& place,
                                                  const std::vector<std::string>& besides,
                                                  std::vector<redis_reply>& replies, deadline end) {
    std::string words;
    std::size_t greetings = 0;
    if (const std::error_code error = greeting(place, words, greetings)) {
        return error;
    }
    for (const std::string& each : besides) {
        words += each;
    }
    // A server that hangs up may have said before why it does.
    const std::error_code unsent = send(words, end);
    if (unsent == std::errc::timed_out) {
        return unsent;
    }
    for (std::size_t i = 0; i < greetings + besides.size(); ++i) {
        auto reply = receive(unsent ? deadline::poll() : end);
        if (!reply) {
            return unsent && !has_heard_ ? unsent : reply.error();
        }
        if ((i < greetings && (*reply)->type == REDIS_REPLY_ERROR) || is_redis_farewell(**reply)) {
            words_ = redis_text(**reply);
            return redis_error(**reply);
        }
        if (i >= greetings) {
            replies.push_back(*std::move(reply));
        }
    }
    return unsent;
}

inline std::error_code redis_connection::send(std::string_view request, deadline end) {
    words_.clear();
    const std::error_code error =
        tls_ != nullptr ? tls_->send(socket_, request, end) : socket_.send(request, end);
    if (error && tls_ != nullptr) {
        words_ = tls_->words();
    }
    return error;
}

inline std::error_code redis_connection::not_redis(std::string_view heard) {
    const bool is_tls = heard.size() > 1 && (heard[0] == '\x15' || heard[0] == '\x16') &&
                        heard[1] == '\x03' && tls_ == nullptr;
    words_ = is_tls ? "the server speaks TLS at this port, and rediss:// is for that"
                    : "the server does not speak Redis's protocol";
    if (heard.starts_with("HTTP/")) {
        words_ += ", but HTTP: " + one_line(heard.substr(0, heard.find_first_of("\r\n")), 60);
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
            words_ = tls_ != nullptr ? tls_->words() : std::string();
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
