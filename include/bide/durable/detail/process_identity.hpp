// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_PROCESS_IDENTITY_HPP
#define BIDE_DURABLE_DETAIL_PROCESS_IDENTITY_HPP

// Tells in the record of one lock which contenders belong to this process: by the identity of the
// process, and by a mark of presence if the slot keeps marks. A child of fork() is another process:
// it has an object of its own (detail/per_process.hpp), with a mark of its own.

#include <bide/core/config.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>
#include <bide/sync/mutex.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The marks of tickets that are bound to this process.
//
// Such a ticket may outlive the lock object whose mark of presence shows that the process runs. So
// the ticket keeps that mark open until it is known to hold nothing: it was released, or a renewal
// found it lost, by any lock object of this process. If a ticket is never used again, its mark
// stays open until the process ends.
class BIDE_SHARED bound_tickets {
public:
    // Keeps the mark open for the ticket. An empty nonce stands for a ticket that is released in a
    // transaction of the caller, whose outcome is not known here: the mark stays open until the
    // process ends.
    // Throws: std::bad_alloc.
    static void keep(const std::string& nonce, const std::shared_ptr<slot_presence>& mark) {
        bound_tickets* const all = here();
        if (all == nullptr) {
            throw_error(std::make_error_code(std::errc::not_enough_memory));
        }
        const std::lock_guard held(all->lock_);
        all->marks_.emplace(key(nonce, mark->mark()), mark);
    }

    // Closes the marks of a ticket that holds nothing and waits for nothing.
    static void forget(const std::string& nonce) noexcept {
        bound_tickets* const all = here();
        if (all == nullptr) {
            return;
        }
        table gone; // closed after the lock
        const std::lock_guard held(all->lock_);
        auto entry = all->marks_.lower_bound(key(nonce, 0));
        while (entry != all->marks_.end() && entry->first.first == nonce) {
            gone.insert(all->marks_.extract(entry++));
        }
    }

private:
    using key = std::pair<std::string, std::int64_t>; // the nonce, and the mark's name
    using table = std::map<key, std::shared_ptr<slot_presence>>;

    static bound_tickets* here() noexcept {
        return process_wide<bound_tickets, native_platform>::get(
            +[]() noexcept { return new (std::nothrow) bound_tickets; });
    }

    mutex lock_;
    table marks_; // under lock_
};

class process_identity {
public:
    process_identity() = default;
    process_identity(const process_identity&) = delete;
    process_identity& operator=(const process_identity&) = delete;

    // Returns where this process runs.
    const durable::origin& here() const noexcept { return here_; }

    // Returns the origin of a contender. `bound` tells whether the contender is bound to this
    // process. The first bound contender takes a mark, which stays open as long as this object.
    durable::origin origin(bool bound, slot& in);

    // Returns the mark of this process; 0 if it has none yet.
    std::int64_t mark() const noexcept {
        // Order: acquire [process_identity.mark]; the mark is seen.
        return has_mark_.load(std::memory_order_acquire) ? mark_->mark() : 0;
    }

    // Keeps the mark open for this ticket: see bound_tickets.
    // Throws: std::bad_alloc.
    void keep_mark(const std::string& nonce) {
        // Order: acquire [process_identity.mark]; the mark is seen.
        if (has_mark_.load(std::memory_order_acquire)) {
            bound_tickets::keep(nonce, mark_);
        }
    }

    // Called in a child of fork() for the parent's object. It closes the mark in the child, because
    // a mark that the child has open would outlive the parent.
    void leave() noexcept {
        // Order: acquire [process_identity.mark]; the mark is seen.
        if (has_mark_.load(std::memory_order_acquire)) {
            mark_->leave();
            mark_.reset();
        }
    }

private:
    const durable::origin here_ = durable::this_origin(true);
    mutex lock_;
    std::shared_ptr<slot_presence> mark_; // under lock_ until has_mark_, then it stays
    bool can_have_none_ = false;          // under lock_
    native_platform::atomic<bool> has_mark_{false};
};

inline durable::origin process_identity::origin(bool bound, slot& in) {
    durable::origin from = here_;
    if (!bound) {
        from.pid = from.start = from.space = from.network = 0;
        return from;
    }
    const std::lock_guard held(lock_);
    if (mark_ == nullptr && !can_have_none_) {
        auto taken = in.be_present();
        if (taken) {
            mark_ = std::move(*taken);
            // Order: release [process_identity.mark]; publishes the mark.
            has_mark_.store(true, std::memory_order_release);
        } else { // only the pid identifies it; after a passing error the next contender tries again
            can_have_none_ = taken.error() == std::errc::operation_not_supported;
        }
    }
    from.mark = mark_ != nullptr ? mark_->mark() : 0;
    return from;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
