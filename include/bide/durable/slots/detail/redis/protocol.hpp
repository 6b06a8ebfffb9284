// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_PROTOCOL_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_PROTOCOL_HPP

// Requests to a Redis server, its replies and errors, and the script that the server runs
// atomically for a slot: both the load and the compare-and-swap.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot_types.hpp>
#include <bide/durable/slots/detail/server/server_slot.hpp>
#include <bide/durable/slots/detail/server/text.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <hiredis/hiredis.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

inline std::string redis_request(const std::vector<std::string_view>& words) {
    std::string bytes = '*' + std::to_string(words.size()) + "\r\n";
    for (const std::string_view each : words) {
        bytes += '$' + std::to_string(each.size()) + "\r\n";
        bytes.append(each).append("\r\n");
    }
    return bytes;
}

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

// The first element of the script's reply. The second one is the server's time in milliseconds. The
// remaining ones are:
enum class redis_found : long long {
    nothing = 0, // "0" and ""
    record = 1,  // the version and the value
    garbage = 2, // the key's type; no slot has written it, or its version is the last possible one
    stored = 3   // the new version
};

// KEYS: the key. ARGV to load: none. ARGV to store: the expected version, the value, and the
// channel to publish on or "". A new version is the server's time in microseconds. If that is not
// greater than the previous version, the new version is the previous one plus one. A number of Lua
// is exact up to 2^53. After HSET the script cannot fail.
//
// PERSIST makes a replica refuse the load, because the value of a replica may be old. PERSIST must
// not precede HSET: if the server lacks memory, it refuses HSET only if the script has written
// nothing before.
inline constexpr const char* redis_script =
    "local t = redis.call('TIME')\n"
    "local ms = t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "local kind = redis.call('TYPE', KEYS[1]).ok\n"
    "local found, version, value = 0, '0', ''\n"
    "local is_ours = kind == 'none'\n"
    "if kind == 'hash' then\n"
    "  local both = redis.call('HMGET', KEYS[1], 'v', 'p')\n"
    "  found, version, value = 1, both[1], both[2]\n"
    "  is_ours = version and value and string.find(version, '^[1-9]%d*$')\n"
    "end\n"
    "if not is_ours then return {2, ms, kind} end\n"
    "if version ~= ARGV[1] then\n"
    "  redis.call('PERSIST', KEYS[1])\n"
    "  return {found, ms, version, value}\n"
    "end\n"
    "local number = math.max(t[1] * 1000000 + t[2], tonumber(version) + 1)\n"
    "if number > 9007199254740991 then return {2, ms, kind} end\n"
    "local text = string.format('%.0f', number)\n"
    "redis.call('HSET', KEYS[1], 'v', text, 'p', ARGV[2])\n"
    "if ARGV[3] ~= '' then redis.pcall('PUBLISH', ARGV[3], text) end\n"
    "return {3, ms, text}\n";

// Reads a version, from 1 to 2^53 - 1. Returns less for anything else.
inline std::int64_t redis_version(const redisReply& text) noexcept {
    constexpr std::int64_t last = (std::int64_t{1} << 53) - 1;
    return is_redis_text(text) ? read_number(redis_text(text), last) : -1;
}

// Reads the reply to TIME, in milliseconds since 1970.
inline std::optional<std::int64_t> redis_time(const redisReply& reply) noexcept {
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements != 2) {
        return std::nullopt;
    }
    const std::int64_t seconds = redis_version(*reply.element[0]);
    const std::int64_t us = redis_version(*reply.element[1]);
    return seconds < 1 || us < 0 ? std::nullopt : std::optional(seconds * 1'000 + us / 1'000);
}

struct redis_record {
    bool is_stored = false;
    slot_snapshot seen{}; // if it was stored: the new version
};

// Reads the script's reply. protocol_error: it is not a reply of this script. corrupt_record: the
// key holds what no slot stores.
inline server_answer<redis_record> read_redis_record(const redisReply& reply) {
    const auto is = [&reply](std::size_t i, int type) {
        return reply.elements > i && reply.element[i]->type == type;
    };
    server_answer<redis_record> read;
    const auto fails = [&read](std::error_code error, std::string error_text) {
        read.error = error;
        read.error_text = std::move(error_text);
        return std::move(read);
    };
    const auto is_strange = [&fails] {
        return fails(std::make_error_code(std::errc::protocol_error),
                     "not a reply of the slot's script");
    };
    if (reply.type != REDIS_REPLY_ARRAY || !is(0, REDIS_REPLY_INTEGER) ||
        !is(1, REDIS_REPLY_INTEGER)) {
        return is_strange();
    }
    const auto found = static_cast<redis_found>(reply.element[0]->integer);
    const bool has_value = found == redis_found::record;
    read.of.is_stored = found == redis_found::stored;
    read.of.seen.server_ms = reply.element[1]->integer;
    if (found == redis_found::nothing) {
        return read;
    }
    if (found == redis_found::garbage) {
        const bool has_kind = is(2, REDIS_REPLY_STRING) || is(2, REDIS_REPLY_STATUS);
        const std::string kind(has_kind ? redis_text(*reply.element[2]) : std::string_view());
        return fails(durable_errc::corrupt_record, "the key holds what no slot has written" +
                                                       (kind.empty() ? kind : ": a " + kind));
    }
    if ((!has_value && !read.of.is_stored) || reply.elements < (has_value ? 4u : 3u)) {
        return is_strange();
    }
    const std::int64_t version = redis_version(*reply.element[2]);
    if (version < 1) {
        return fails(durable_errc::corrupt_record,
                     "the key's version is not a number that a slot stores");
    }
    read.of.seen.version = static_cast<slot_version>(version);
    if (has_value) {
        if (!is_redis_text(*reply.element[3])) {
            return is_strange();
        }
        read.of.seen.value = redis_text(*reply.element[3]);
    }
    return read;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
