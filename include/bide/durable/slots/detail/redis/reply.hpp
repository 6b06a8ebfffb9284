// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_REPLY_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_REPLY_HPP

// The replies of a Redis server, and the meaning of its errors.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>

#include <memory>
#include <string_view>
#include <system_error>

#include <hiredis/hiredis.h>

namespace bide::inline BIDE_ABI {
namespace detail {

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

// Returns the code of an error reply. Errors that last until an operator acts are
// permission_denied, invalid_argument and operation_not_supported.
inline std::error_code redis_error(const redisReply& reply) noexcept {
    const std::string_view text = redis_text(reply);
    const auto is = [text](auto... prefixes) { return (text.starts_with(prefixes) || ...); };
    if (is("NOAUTH ", "WRONGPASS ", "NOPERM ", "DENIED ", "ERR invalid password", "ERR AUTH ",
           "ERR Client sent AUTH") ||
        text.find("ACL failure in script") != text.npos ||
        text.find("user executing the script can't run") != text.npos) {
        return std::make_error_code(std::errc::permission_denied);
    }
    if (is("ERR DB index is out of range", "ERR invalid DB index", "ERR wrong number of arg")) {
        return std::make_error_code(std::errc::invalid_argument);
    }
    if (is("ERR unknown command", "ERR SELECT is not allowed", "MOVED ", "CROSSSLOT ")) {
        return std::make_error_code(std::errc::operation_not_supported);
    }
    if (is("LOADING ", "BUSY ", "MASTERDOWN ", "CLUSTERDOWN ", "TRYAGAIN ", "ASK ",
           "ERR max number of clients")) {
        return std::make_error_code(std::errc::resource_unavailable_try_again);
    }
    return make_error_code(durable_errc::storage_error);
}

// Whether the server refused the connection, for any request, and closed it.
inline bool is_redis_refusal(const redisReply& reply) noexcept {
    const std::string_view text = redis_text(reply);
    return reply.type == REDIS_REPLY_ERROR &&
           (text.starts_with("DENIED ") || text.starts_with("ERR max number of clients"));
}

// Returns true if the server itself reports the error; then the script has stored nothing. A proxy
// reports its own errors as "ERR", and the server behind it may have run the script.
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
