// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_RECORD_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_RECORD_HPP

// Reads the replies to a slot's script and to TIME.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/redis/reply.hpp>
#include <bide/durable/slots/detail/redis/script.hpp>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace bide::inline BIDE_ABI {
namespace detail {

// Reads a version: decimal digits, from 1 to 2^53 - 1.
inline std::optional<slot_version> redis_version(const redisReply& text) noexcept {
    constexpr slot_version last = (slot_version{1} << 53) - 1;
    const std::string_view digits = redis_text(text);
    slot_version version = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), version);
    if (!is_redis_text(text) || error != std::errc() || end != digits.data() + digits.size() ||
        version == 0 || version > last || digits.front() == '0') {
        return std::nullopt;
    }
    return version;
}

// Reads the reply to TIME, in milliseconds since 1970.
inline std::optional<std::int64_t> redis_time(const redisReply& reply) noexcept {
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements != 2) {
        return std::nullopt;
    }
    const auto seconds = redis_version(*reply.element[0]);
    const std::string_view rest = redis_text(*reply.element[1]);
    std::int64_t us = 0;
    const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), us);
    if (!seconds || read.ec != std::errc()) {
        return std::nullopt;
    }
    return static_cast<std::int64_t>(*seconds) * 1'000 + us / 1'000;
}

struct redis_record {
    redis_found found = redis_found::nothing;
    slot_snapshot seen{}; // if it was stored: the new version
    std::error_code error{};
    std::string error_text{}; // with an error: its text
};

// Reads the script's reply. protocol_error: it is not a reply of this script. corrupt_record: the
// key holds what no slot stores.
inline redis_record read_redis_record(const redisReply& reply) {
    redis_record read;
    const auto fails = [&read](std::error_code error, std::string error_text) {
        read.error = error;
        read.error_text = std::move(error_text);
        return std::move(read);
    };
    const auto is_strange = [&] {
        return fails(std::make_error_code(std::errc::protocol_error),
                     "not a reply of the slot's script");
    };
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements < 2 ||
        reply.element[0]->type != REDIS_REPLY_INTEGER ||
        reply.element[1]->type != REDIS_REPLY_INTEGER) {
        return is_strange();
    }
    read.found = static_cast<redis_found>(reply.element[0]->integer);
    read.seen.server_ms = reply.element[1]->integer;
    if (read.found == redis_found::nothing) {
        return read;
    }
    if (read.found == redis_found::garbage) {
        const bool says_more = reply.elements > 2 && is_redis_text(*reply.element[2]);
        const std::string kind(says_more ? redis_text(*reply.element[2]) : std::string_view());
        return fails(durable_errc::corrupt_record,
                     kind.empty() ? "the key holds what no slot has written"
                                  : "the key holds what no slot has written: a " + kind);
    }
    const bool has_value = read.found == redis_found::record;
    if ((!has_value && read.found != redis_found::stored) ||
        reply.elements < (has_value ? 4u : 3u)) {
        return is_strange();
    }
    const std::optional<slot_version> version = redis_version(*reply.element[2]);
    if (!version) {
        return fails(durable_errc::corrupt_record,
                     "the key's version is not a number that a slot stores");
    }
    read.seen.version = *version;
    if (has_value) {
        if (!is_redis_text(*reply.element[3])) {
            return is_strange();
        }
        read.seen.value = redis_text(*reply.element[3]);
    }
    return read;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
