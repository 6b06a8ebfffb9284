// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_LOCK_PARTS_HPP
#define BIDE_DURABLE_DETAIL_LOCK_PARTS_HPP

#include <bide/core/config.hpp>
#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/detail/renewer.hpp>
#include <bide/durable/detail/withdrawals.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/ticket.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The parts that every kind of durable lock has.
struct lock_parts {
    std::shared_ptr<lock_engine> engine;
    std::shared_ptr<detail::withdrawals> withdrawals;
    std::shared_ptr<detail::renewer> renewer; // nullptr: guards do not renew

    static lock_parts make(slot_ref slot, std::int64_t permits, durable_options options) {
        lock_parts parts;
        if (options.auto_renew) {
            const std::string store = slot->store();
            parts.renewer = store.empty() || options.renew_on != nullptr
                                ? std::make_shared<detail::renewer>(options.renew_on)
                                : renewers::of(store);
        }
        parts.engine = std::make_shared<lock_engine>(std::move(slot), permits, std::move(options));
        parts.withdrawals = std::make_shared<detail::withdrawals>(parts.engine);
        return parts;
    }

    durable_ticket ticket(std::string holder_id, std::int64_t weight, bool process_bound) const {
        if (holder_id.empty()) {
            holder_id = engine->options().holder_id;
        }
        if (holder_id.empty()) {
            holder_id = durable::this_host() + ":" + std::to_string(::getpid());
        }
        return {std::move(holder_id), fresh_nonce(), weight, process_bound, 0};
    }
};

}}} // namespace bide::BIDE_ABI::detail

#endif
