// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_REDIS_HPP
#define BIDE_DURABLE_SLOTS_IMPL_REDIS_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/redis/connection.hpp>
#include <bide/durable/slots/detail/server/server_slot.hpp>
#include <bide/durable/slots/redis.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

struct redis_core : server_slot<redis_connection> {
    bool notifies = false;

    std::string channel() const { return notifies ? key + ".changed" : std::string(); }
    redis_answer run(std::initializer_list<std::string_view> arguments) {
        return ask([&](redis_connection& to) { return to.run(key, arguments); });
    }

    static std::shared_ptr<redis_core> make(redis_target target, std::string of,
                                            const redis_slot_options& o) {
        if (of.empty()) {
            refuse_argument("bide::redis_slot: the key is empty");
        }
        if (target.unix_socket.empty() && (target.port < 1 || target.port > 65'535)) {
            refuse_argument("bide::redis_slot: the port is not from 1 to 65535");
        }
        return std::make_shared<redis_core>(
            redis_core{{std::move(of), o.retry_time, o.max_value,
                        shared_connection<redis_connection>({std::move(target), false})},
                       o.notify});
    }
};

inline redis_target redis_target_of(std::string host, int port, const redis_slot_options& o) {
    return {std::move(host), port,       o.unix_socket, o.user,
            o.password,      o.database, o.uses_tls,    {o.ca_file, o.cert_file, o.key_file}};
}

// Reads a URL, which overrides the members of `target`. Returns what is wrong with it, or nullptr.
inline const char* read_redis_url(std::string_view text, redis_target& target) {
    auto url = read_server_url(text);
    if (!url) {
        return url.error();
    }
    if (url->scheme != "redis" && url->scheme != "rediss") {
        return "the URL begins with neither redis:// nor rediss://";
    }
    target.host = std::move(url->host);
    target.port = url->port == 0 ? 6379 : url->port;
    target.unix_socket.clear();
    target.uses_tls = target.uses_tls || url->scheme == "rediss";
    target.user = url->user.empty() ? target.user : std::move(url->user);
    target.password = url->password.empty() ? target.password : std::move(url->password);
    if (!target.user.empty() && target.password.empty()) {
        return "the URL has a user and no password; a password alone is written with a ':' before "
               "it";
    }
    if (!url->path.empty()) {
        target.database = static_cast<int>(read_number(url->path, 1'000'000));
    }
    return target.database < 0 ? "the URL's path is not the number of a database" : nullptr;
}

struct redis_record {
    bool is_stored = false;
    slot_snapshot seen{}; // if it was stored: the new version
};

// Reads the script's reply. protocol_error: it is not a reply of this script. corrupt_record: the
// key holds what no slot stores.
inline server_answer<redis_record> read_redis_record(const redisReply& reply) {
    const auto number = [&reply](std::size_t i) {
        return i < reply.elements && reply.element[i]->type == REDIS_REPLY_INTEGER
                   ? reply.element[i]->integer
                   : -1;
    };
    const auto is_text = [&reply](std::size_t i) {
        return i < reply.elements && (reply.element[i]->type == REDIS_REPLY_STRING ||
                                      reply.element[i]->type == REDIS_REPLY_STATUS);
    };
    const std::string_view third = is_text(2) ? redis_text(*reply.element[2]) : std::string_view();
    const std::int64_t version = read_number(third, (std::int64_t{1} << 53) - 1);
    const long long found = number(0);
    server_answer<redis_record> read;
    if (number(1) < 0 || found < 0 || found > 3 || (found == 1 && reply.elements < 4) ||
        (found == 3 && reply.elements < 3) || (found == 1 && version > 0 && !is_text(3))) {
        read.error = std::make_error_code(std::errc::protocol_error);
        read.error_text = "not a reply of the slot's script";
    } else if (found == 2) {
        read.error = durable_errc::corrupt_record;
        read.error_text = "the key holds what no slot has written";
        read.error_text += third.empty() ? "" : ": a " + std::string(third);
    } else if (found != 0 && version < 1) {
        read.error = durable_errc::corrupt_record;
        read.error_text = "the key's version is not a number that a slot stores";
    } else {
        read.of = {found == 3, {.server_ms = number(1)}};
        if (found != 0) {
            read.of.seen.version = static_cast<slot_version>(version);
            read.of.seen.value = found == 1 ? redis_text(*reply.element[3]) : std::string_view();
        }
    }
    return read;
}

} // namespace detail

BIDE_DURABLE_INLINE redis_slot::redis_slot(std::shared_ptr<detail::redis_core> core) noexcept
    : core_(std::move(core)) {}

BIDE_DURABLE_INLINE redis_slot::redis_slot(std::string host, int port, std::string key,
                                           redis_slot_options options)
    : core_(detail::redis_core::make(detail::redis_target_of(std::move(host), port, options),
                                     std::move(key), options)) {}

BIDE_DURABLE_INLINE redis_slot::redis_slot(std::string_view url, std::string key,
                                           redis_slot_options options) {
    detail::redis_target target = detail::redis_target_of({}, 0, options);
    if (const char* const error_text = detail::read_redis_url(url, target)) {
        detail::refuse_argument(std::string("bide::redis_slot: ") + error_text);
    }
    core_ = detail::redis_core::make(std::move(target), std::move(key), options);
}

BIDE_DURABLE_INLINE std::string redis_slot::store() const { return core_->target().name(); }

BIDE_DURABLE_INLINE std::unique_ptr<slot> redis_slot::for_renewals() const {
    detail::redis_core other = *core_;
    other.client = detail::shared_connection<detail::redis_connection>({core_->target(), true});
    return std::make_unique<redis_slot>(
        redis_slot(std::make_shared<detail::redis_core>(std::move(other))));
}

BIDE_DURABLE_INLINE std::string redis_slot::explain() const { return core_->explain(); }

BIDE_DURABLE_INLINE result<slot_snapshot, std::error_code> redis_slot::load() {
    detail::redis_answer got = core_->run({});
    if (got.error) {
        return unexpected{core_->failed(got.error, std::move(got.error_text))};
    }
    auto read = detail::read_redis_record(*got.of);
    if (read.error) {
        return unexpected{core_->failed(read.error, std::move(read.error_text))};
    }
    return std::move(read.of.seen);
}

BIDE_DURABLE_INLINE cas_result redis_slot::compare_exchange(slot_version version,
                                                            std::string_view value) {
    if (value.size() > core_->max_value) {
        return core_->not_stored(cas_status::failed, durable_errc::too_large);
    }
    detail::redis_answer got = core_->run({std::to_string(version), value, core_->channel()});
    if (got.error) {
        cas_result none =
            core_->not_stored(got.may_have_stored ? cas_status::indeterminate : cas_status::failed,
                              got.error, std::move(got.error_text));
        if (got.may_have_stored && none.error == durable_errc::storage_error) {
            none.error = durable_errc::indeterminate; // the error says that nothing was stored
        }
        return none;
    }
    auto read = detail::read_redis_record(*got.of);
    if (read.error) {
        const bool is_unread = read.error == std::errc::protocol_error;
        return core_->not_stored(is_unread ? cas_status::indeterminate : cas_status::failed,
                                 read.error, std::move(read.error_text));
    }
    if (read.of.is_stored) {
        return {.status = cas_status::stored, .version = read.of.seen.version};
    }
    return {.status = cas_status::conflict, .current = std::move(read.of.seen)};
}

BIDE_DURABLE_INLINE result<std::int64_t, std::error_code> redis_slot::server_now() {
    detail::redis_answer got =
        core_->ask([](detail::redis_connection& to) { return to.ask({"TIME"}); });
    if (got.error) {
        return unexpected{core_->failed(got.error, std::move(got.error_text))};
    }
    std::int64_t part[2] = {-1, -1}; // seconds, microseconds
    for (std::size_t i = 0; i < 2 && got.of->elements == 2; ++i) {
        part[i] = detail::read_number(detail::redis_text(*got.of->element[i]), 1LL << 40);
    }
    if (part[0] < 1 || part[1] < 0) {
        return unexpected{core_->failed(std::make_error_code(std::errc::protocol_error),
                                        "not an answer to TIME")};
    }
    return part[0] * 1'000 + part[1] / 1'000;
}

BIDE_DURABLE_INLINE result<std::unique_ptr<slot_watch>, std::error_code> redis_slot::watch() {
    if (!core_->notifies) {
        return unexpected{core_->failed(std::make_error_code(std::errc::operation_not_supported),
                                        "its options do not say notify")};
    }
    std::string error_text;
    auto made = detail::channel_watch<detail::redis_connection>::make(
        {core_->target(), false}, core_->channel(), deadline::after(core_->retry_time), error_text);
    if (!made) {
        return unexpected{core_->failed(made.error(), std::move(error_text))};
    }
    return made;
}

}} // namespace bide::BIDE_ABI

#endif
