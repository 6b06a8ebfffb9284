// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_ADMIN_HPP
#define BIDE_DURABLE_ADMIN_HPP

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI {
namespace detail {
class durable_lock;
class lock_engine;
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
    result<bool, std::error_code> force_release(std::int64_t fence, std::string_view why);

    /// Changes the number of permits.
    ///
    /// A contender that was made with another number adopts the new number, whatever
    /// durable_options::adopt_permits says. This holds for this lock object, and for contenders
    /// that wait. A contender that asks for more permits than the new number gets
    /// durable_errc::permits_mismatch. Holders keep their permits and can renew them. If the
    /// holders together hold more permits than the new number, no contender is granted a permit
    /// until enough are released. inspect() tells how many are held.
    ///
    /// Returns: false if there is no record, or if `permits` is not a valid number of permits.
    result<bool, std::error_code> resize(std::int64_t permits, std::string_view why);

    /// Replaces a record that cannot be read, or that is missing, by one without holders and
    /// waiters.
    ///
    /// The tokens begin with `min_fence` or with the token from the clock (durable::floor_of()),
    /// whichever is larger. The token from the clock is larger than every token that was granted,
    /// unless the clock was set back. A damaged store is replaced if the slot offers
    /// replace_damaged(). If the slot does not offer it, first remove what is left of the store.
    /// Until then the error is durable_errc::corrupt_record.
    ///
    /// Returns: false if the record can be read; it is left as it is.
    result<bool, std::error_code> repair(std::int64_t min_fence, std::string_view why);

private:
    friend class detail::durable_lock;
    durable_admin(std::shared_ptr<detail::lock_engine> engine, std::string by)
        : engine_(std::move(engine)), by_(std::move(by)) {}

    std::shared_ptr<detail::lock_engine> engine_;
    std::string by_;
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/impl/admin.hpp>
#endif

#endif
