// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_ETCD_HPP
#define BIDE_DURABLE_SLOTS_IMPL_ETCD_HPP

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/etcd/client.hpp>
#include <bide/durable/slots/detail/server/server_slot.hpp>
#include <bide/durable/slots/etcd.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

struct etcd_core : server_slot<etcd_client> {
    static constexpr const char* no_etcd = "not an answer of etcd's gateway";

    etcd_result call(const char* what, const std::string& body, bool may_repeat) {
        const std::size_t longest = 2 * max_value + (std::size_t{4} << 20);
        return ask([&](etcd_client& to) { return to.call({what, body, may_repeat, longest}); });
    }
    static slot_snapshot seen(etcd_value found) {
        slot_snapshot there{.version = found.revision, .value = std::move(found.bytes)};
        if (found.counter) {
            there.counter = static_cast<std::int64_t>(*found.counter);
        }
        return there;
    }
};

// Removes users and passwords from the endpoints' URLs, and stores them in the target, where they
// override the present ones. Returns what is wrong with the endpoints, or nullptr.
inline const char* read_etcd_endpoints(etcd_target& target) {
    if (target.endpoints.empty()) {
        return "there is no endpoint";
    }
    bool has_login = false;
    for (std::string& each : target.endpoints) {
        auto url = read_server_url(each);
        if (!url) {
            return url.error();
        }
        if (url->scheme != "http" && url->scheme != "https") {
            return "the URL of an endpoint begins with neither http:// nor https://";
        }
        if (!url->user.empty() || !url->password.empty()) {
            if (has_login && (url->user != target.user || url->password != target.password)) {
                return "the URLs of two endpoints have different users or passwords";
            }
            has_login = true;
            target.user = std::move(url->user);
            target.password = url->password.empty() ? target.password : std::move(url->password);
        }
        const bool is_address = url->host.find(':') != url->host.npos;
        each = url->scheme + "://" + (is_address ? '[' + url->host + ']' : url->host) +
               (url->port == 0 ? "" : ':' + std::to_string(url->port)) + '/' + url->path;
        each.resize(each.find_last_not_of('/') + 1);
    }
    return target.user.empty() && !target.password.empty() ? "there is a password and no user"
                                                           : nullptr;
}

} // namespace detail

BIDE_DURABLE_INLINE etcd_slot::etcd_slot(std::shared_ptr<detail::etcd_core> core) noexcept
    : core_(std::move(core)) {}

BIDE_DURABLE_INLINE etcd_slot::etcd_slot(std::vector<std::string> endpoints, std::string key,
                                         etcd_slot_options options) {
    detail::etcd_target target{
        std::move(endpoints),
        std::move(options.user),
        std::move(options.password),
        {std::move(options.ca_file), std::move(options.cert_file), std::move(options.key_file)},
        std::move(options.path)};
    if (const char* const error_text =
            key.empty() ? "the key is empty" : detail::read_etcd_endpoints(target)) {
        detail::refuse_argument(std::string("bide::etcd_slot: ") + error_text);
    }
    using connections = detail::shared_connection<detail::etcd_client>;
    core_ = std::make_shared<detail::etcd_core>(
        detail::etcd_core{{std::move(key), options.retry_time, options.max_value,
                           connections({std::move(target), false})}});
}

BIDE_DURABLE_INLINE std::string etcd_slot::store() const { return core_->target().name(); }

BIDE_DURABLE_INLINE std::unique_ptr<slot> etcd_slot::for_renewals() const {
    detail::etcd_core other = *core_;
    other.client = detail::shared_connection<detail::etcd_client>({core_->target(), true});
    return std::make_unique<etcd_slot>(
        etcd_slot(std::make_shared<detail::etcd_core>(std::move(other))));
}

BIDE_DURABLE_INLINE std::string etcd_slot::explain() const { return core_->explain(); }

BIDE_DURABLE_INLINE result<slot_snapshot, std::error_code> etcd_slot::load() {
    detail::etcd_result got = core_->call("/kv/range", detail::etcd_range(core_->key), true);
    if (got.error) {
        return unexpected{core_->failed(got.error, std::move(got.error_text))};
    }
    auto value = detail::etcd_answer(got.of).range();
    if (!value) {
        return unexpected{
            core_->failed(std::make_error_code(std::errc::protocol_error), core_->no_etcd)};
    }
    return core_->seen(*std::move(value));
}

BIDE_DURABLE_INLINE cas_result etcd_slot::compare_exchange(slot_version version,
                                                           std::string_view value) {
    if (value.size() > core_->max_value) {
        return core_->not_stored(cas_status::failed, durable_errc::too_large);
    }
    detail::etcd_result got =
        core_->call("/kv/txn", detail::etcd_exchange(core_->key, version, value), false);
    if (got.error) {
        return core_->not_stored(got.may_have_stored ? cas_status::indeterminate
                                                     : cas_status::failed,
                                 got.error, std::move(got.error_text));
    }
    const detail::etcd_answer read(got.of);
    if (read.is_stored()) {
        if (const auto revision = read.revision()) {
            return {.status = cas_status::stored, .version = *revision};
        }
    } else if (auto found = read.instead()) {
        return {.status = cas_status::conflict, .current = core_->seen(*std::move(found))};
    }
    return core_->not_stored(cas_status::indeterminate,
                             std::make_error_code(std::errc::protocol_error), core_->no_etcd);
}

}} // namespace bide::BIDE_ABI

#endif
