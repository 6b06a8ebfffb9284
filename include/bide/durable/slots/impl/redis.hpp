// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_REDIS_HPP
#define BIDE_DURABLE_SLOTS_IMPL_REDIS_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/redis/connection.hpp>
#include <bide/durable/slots/detail/redis/protocol.hpp>
#include <bide/durable/slots/detail/redis/target.hpp>
#include <bide/durable/slots/detail/server/server_slot.hpp>
#include <bide/durable/slots/detail/server/subscription.hpp>
#include <bide/durable/slots/redis.hpp>

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
        return ask([&](redis_connection& to, deadline end) { return to.run(key, arguments, end); });
    }
};

inline redis_target redis_target_of(std::string host, int port, const redis_slot_options& o) {
    return {std::move(host), port,       o.unix_socket, o.user,
            o.password,      o.database, o.uses_tls,    {o.ca_file, o.cert_file, o.key_file}};
}

inline std::shared_ptr<redis_core> make_redis_core(redis_target target, std::string key,
                                                   const redis_slot_options& o) {
    if (key.empty()) {
        refuse_argument("bide::redis_slot: the key is empty");
    }
    if (target.unix_socket.empty() && (target.port < 1 || target.port > 65'535)) {
        refuse_argument("bide::redis_slot: the port is not from 1 to 65535");
    }
    using connections = shared_connection<redis_connection>;
    return std::make_shared<redis_core>(redis_core{
        {std::move(key), o.retry_time, o.max_value, connections({std::move(target), false})},
        o.notify});
}

} // namespace detail

BIDE_DURABLE_INLINE redis_slot::redis_slot(std::shared_ptr<detail::redis_core> core) noexcept
    : core_(std::move(core)) {}

BIDE_DURABLE_INLINE redis_slot::redis_slot(std::string host, int port, std::string key,
                                           redis_slot_options options)
    : core_(detail::make_redis_core(detail::redis_target_of(std::move(host), port, options),
                                    std::move(key), options)) {}

BIDE_DURABLE_INLINE redis_slot::redis_slot(std::string_view url, std::string key,
                                           redis_slot_options options) {
    auto target = detail::redis_target_at(url, detail::redis_target_of({}, 0, options));
    if (!target) {
        detail::refuse_argument(std::string("bide::redis_slot: ") + target.error().error_text);
    }
    core_ = detail::make_redis_core(*std::move(target), std::move(key), options);
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
    detail::redis_answer got = core_->ask(
        [](detail::redis_connection& to, deadline end) { return to.ask({"TIME"}, end); });
    if (got.error) {
        return unexpected{core_->failed(got.error, std::move(got.error_text))};
    }
    if (const auto ms = detail::redis_time(*got.of)) {
        return *ms;
    }
    return unexpected{
        core_->failed(std::make_error_code(std::errc::protocol_error), "not an answer to TIME")};
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
