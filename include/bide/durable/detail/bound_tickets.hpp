#ifndef BIDE_DURABLE_DETAIL_BOUND_TICKETS_HPP
#define BIDE_DURABLE_DETAIL_BOUND_TICKETS_HPP

// A ticket that is bound to this process may outlive the lock object whose mark of presence shows
// that the process runs. So such a ticket keeps that mark open, until it is known to hold nothing:
// it was released, or a renewal found it lost, by any lock object of this process. The mark of a
// ticket that is never heard of again stays open until the process ends.

#include <bide/core/config.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slot.hpp>
#include <bide/sync/mutex.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

class bound_tickets {
public:
    // An empty nonce: of a ticket that is released in transactions of the caller's, whose end is not
    // known here. The mark stays open until the process ends.
    // Throws: std::bad_alloc.
    static void keep(const std::string& nonce, const std::shared_ptr<slot_presence>& mark) {
        bound_tickets* const all = here();
        if (all == nullptr) {
            throw_error(std::make_error_code(std::errc::not_enough_memory));
        }
        const std::lock_guard held(all->lock_);
        all->marks_.emplace(key(nonce, mark->mark()), mark);
    }

    // The ticket holds nothing, and waits for nothing.
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
