// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_ADMIN_HPP
#define BIDE_DURABLE_ADMIN_HPP

#include <bide/core/config.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_admin.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {
class durable_lock;
} // namespace detail

/// Changes a durable lock for an administrator, which is not one of its contenders.
///
/// The record keeps a note of the latest such change: its time, its author, what changed and why.
/// Every call returns an error as std::error_code: a durable_errc, an errno code, or one of the
/// store. If the error is durable_errc::indeterminate, the time is up, and the change may still be
/// made.
///
/// Blocks: every call, until a store thread has the answer of the store; at most
/// durable_options::retry_time plus attempt_limit.
class durable_admin {
public:
    /// Takes away the grant that has the token `fence`.
    ///
    /// The holder learns of it when its next renewal fails. Until then the holder still acts as if
    /// it held the lock. Only a resource that checks tokens refuses it.
    ///
    /// Returns: false if there is no such grant.
    result<bool, std::error_code> force_release(std::int64_t fence, std::string_view why) {
        auto done = note("force_release " + std::to_string(fence), why);
        return administer([fence, done](durable::record& r, std::int64_t now) {
            return durable::force_release(r, fence, at(done, now));
        });
    }

    /// Removes a waiter from the queue. A waiter that is alive enters the queue again, at its end.
    ///
    /// Returns: false if there is no such waiter.
    result<bool, std::error_code> evict_waiter(std::string_view nonce, std::string_view why) {
        const std::string of(nonce);
        auto done = note("evict_waiter " + of, why);
        return administer([of, done](durable::record& r, std::int64_t now) {
            return durable::evict_waiter(r, of, at(done, now));
        });
    }

    /// Changes the number of permits.
    ///
    /// Afterwards contenders with the old number are refused, this lock object included: construct
    /// new ones. Holders keep their permits and can renew them. If the holders together hold more
    /// permits than the new number, no contender is granted a permit until enough are released.
    /// inspect() tells how many are held.
    ///
    /// Returns: false if there is no record, or if `permits` is not a valid number of permits.
    result<bool, std::error_code> resize(std::int64_t permits, std::string_view why) {
        auto done = note("resize " + std::to_string(permits), why);
        return administer([permits, done](durable::record& r, std::int64_t now) {
            return durable::resize(r, permits, at(done, now));
        });
    }

    /// Replaces a record that cannot be read, or that is missing, by one without holders and
    /// waiters.
    ///
    /// The tokens begin with `min_fence` or with the token from the clock (durable::floor_of()),
    /// whichever is larger. The token from the clock is larger than every token that was granted,
    /// unless the clock was set back. A damaged store is replaced if the slot is a repairable_slot.
    /// If the slot is not, remove what is left of the store first; until then the error is
    /// durable_errc::corrupt_record.
    ///
    /// Returns: false if the record can be read; it is left as it is.
    result<bool, std::error_code> repair(std::int64_t min_fence, std::string_view why) {
        auto done = note("repair", why);
        return call([min_fence, done](detail::lock_engine& engine) {
            return engine.repair(min_fence, done);
        });
    }

private:
    friend class detail::durable_lock;
    durable_admin(std::shared_ptr<detail::lock_engine> engine, std::string by)
        : engine_(std::move(engine)), by_(std::move(by)) {}

    durable::admin_note note(std::string what, std::string_view why) const {
        if (!why.empty()) {
            what.append(": ").append(why);
        }
        return {0, by_, std::move(what)};
    }
    static durable::admin_note at(durable::admin_note done, std::int64_t now) {
        done.at = now;
        return done;
    }

    template <class Change> result<bool, std::error_code> administer(Change change) {
        return call([change](detail::lock_engine& engine) { return engine.administer(change); });
    }
    template <class What> result<bool, std::error_code> call(What what) {
        const auto engine = engine_;
        auto answer = detail::call_store<result<bool, std::error_code>>(
            [engine, what] { return what(*engine); }, engine->retry_time());
        if (!answer && answer.error() == errc::timeout) {
            return unexpected{make_error_code(durable_errc::indeterminate)};
        }
        return answer;
    }

    std::shared_ptr<detail::lock_engine> engine_;
    std::string by_;
};

} // namespace bide::inline BIDE_ABI

#endif
