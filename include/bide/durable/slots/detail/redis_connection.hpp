#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_CONNECTION_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_CONNECTION_HPP

// Requests to a Redis server and its replies, in the format that the client library makes and
// reads.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/redis_socket.hpp>

#include <cstddef>
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

struct redis_place {
    std::string host;
    int port = 0;
    std::string unix_socket; // where not empty: instead of the two
    std::string user;
    std::string password;
    int database = 0;
};

struct redis_reply_freer {
    void operator()(redisReply* reply) const noexcept { ::freeReplyObject(reply); }
};
using redis_reply = std::unique_ptr<redisReply, redis_reply_freer>;

inline std::string_view redis_text(const redisReply& reply) noexcept {
    return reply.str == nullptr ? std::string_view() : std::string_view(reply.str, reply.len);
}
inline bool is_redis_text(const redisReply& reply) noexcept {
    return reply.type == REDIS_REPLY_STRING || reply.type == REDIS_REPLY_STATUS;
}

// What an error reply means.
inline std::error_code redis_error(const redisReply& reply) noexcept {
    const std::string_view text = redis_text(reply);
    const auto is = [text](std::string_view word) { return text.substr(0, word.size()) == word; };
    if (is("NOAUTH ") || is("WRONGPASS ") || is("NOPERM ") || is("ERR invalid password") ||
        is("DENIED ")) {
        return std::make_error_code(std::errc::permission_denied);
    }
    if (is("LOADING ") || is("BUSY ") || is("MASTERDOWN ") || is("CLUSTERDOWN ") ||
        is("TRYAGAIN ") || is("ERR max number of clients")) {
        return std::make_error_code(std::errc::resource_unavailable_try_again);
    }
    return make_error_code(durable_errc::storage_error);
}

// It was said to whoever connected, whatever was asked, and the server has hung up.
inline bool is_redis_farewell(const redisReply& reply) noexcept {
    const std::string_view text = redis_text(reply);
    return reply.type == REDIS_REPLY_ERROR &&
           (text.starts_with("DENIED ") || text.starts_with("ERR max number of clients"));
}

// The server itself says it, before the script or out of it. Others say "ERR", and may stand
// between us and a server that has done what it was asked for.
inline bool is_certain_redis_error(const redisReply& reply) noexcept {
    const std::string_view text = redis_text(reply);
    const std::string_view word = text.substr(0, text.find(' '));
    for (const std::string_view known :
         {"NOAUTH", "WRONGPASS", "NOPERM", "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN",
          "TRYAGAIN", "NOSCRIPT", "OOM", "MISCONF", "NOREPLICAS", "READONLY", "MOVED", "ASK",
          "CROSSSLOT"}) {
        if (word == known) {
            return true;
        }
    }
    return text.find("@user_script") != text.npos || text.find("unknown command") != text.npos;
}

class redis_connection {
public:
    // A request ready to be sent, or the memory for it is missing.
    static result<std::string, std::error_code> request(const std::vector<std::string_view>& words);

    // Connects, says who we are, and asks these besides; what they are answered goes to `replies`.
    std::error_code open(const redis_place& place, const std::vector<std::string>& besides,
                         std::vector<redis_reply>& replies, deadline end);

    // It was opened by this process, and nothing has happened to it or come from it since.
    bool is_usable() const noexcept {
        return reader_ != nullptr && reader_->pos == reader_->len && owner_ == ::getpid() &&
               socket_.is_quiet();
    }

    // Gives it up, without a word to the server.
    void drop() noexcept {
        socket_.close();
        reader_.reset();
    }

    int fd() const noexcept { return socket_.fd(); }
    pid_t owner() const noexcept { return owner_; }

    // An error: not all of it was sent, and the server does nothing on a part.
    std::error_code send(std::string_view request, deadline end) noexcept {
        return socket_.send(request, end);
    }

    // The next reply, error replies included.
    result<redis_reply, std::error_code> receive(deadline end) noexcept;

private:
    struct freer {
        void operator()(redisReader* reader) const noexcept { ::redisReaderFree(reader); }
    };

    static std::error_code add(std::string& to, const std::vector<std::string_view>& words);

    redis_socket socket_;
    std::unique_ptr<redisReader, freer> reader_;
    pid_t owner_ = 0;
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

inline std::error_code redis_connection::open(const redis_place& place,
                                              const std::vector<std::string>& besides,
                                              std::vector<redis_reply>& replies, deadline end) {
    drop();
    std::string words;
    std::size_t greetings = 0;
    std::error_code error;
    if (!place.password.empty()) {
        error = place.user.empty() ? add(words, {"AUTH", place.password})
                                   : add(words, {"AUTH", place.user, place.password});
        ++greetings;
    }
    if (!error && place.database != 0) {
        error = add(words, {"SELECT", std::to_string(place.database)});
        ++greetings;
    }
    for (const std::string& each : besides) {
        words += each;
    }
    replies.clear();
    replies.reserve(besides.size());
    reader_.reset(::redisReaderCreate());
    if (!error && reader_ == nullptr) {
        error = std::make_error_code(std::errc::not_enough_memory);
    }
    if (!error) {
        owner_ = ::getpid();
        error = place.unix_socket.empty() ? socket_.connect_tcp(place.host, place.port, end)
                                          : socket_.connect_unix(place.unix_socket, end);
    }
    if (!error) {
        error = send(words, end);
    }
    for (std::size_t i = 0; !error && i < greetings + besides.size(); ++i) {
        auto reply = receive(end);
        if (!reply) {
            error = reply.error();
        } else if ((i < greetings && (*reply)->type == REDIS_REPLY_ERROR) ||
                   detail::is_redis_farewell(**reply)) {
            error = detail::redis_error(**reply);
        } else if (i >= greetings) {
            replies.push_back(*std::move(reply));
        }
    }
    if (error) {
        drop();
    }
    return error;
}

inline result<redis_reply, std::error_code> redis_connection::receive(deadline end) noexcept {
    for (;;) {
        void* found = nullptr;
        if (::redisReaderGetReply(reader_.get(), &found) != REDIS_OK) {
            return unexpected{std::make_error_code(reader_->err == REDIS_ERR_OOM
                                                       ? std::errc::not_enough_memory
                                                       : std::errc::protocol_error)};
        }
        if (found != nullptr) {
            return redis_reply(static_cast<redisReply*>(found));
        }
        char some[16 * 1024];
        const auto n = socket_.receive(some, sizeof some, end);
        if (!n) {
            return unexpected{n.error()};
        }
        if (::redisReaderFeed(reader_.get(), some, *n) != REDIS_OK) {
            return unexpected{std::make_error_code(std::errc::not_enough_memory)};
        }
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
