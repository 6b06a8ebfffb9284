#ifndef BIDE_DURABLE_DETAIL_PROCESS_IDENTITY_HPP
#define BIDE_DURABLE_DETAIL_PROCESS_IDENTITY_HPP

// How one lock's contenders of this process are known in the record: by the process, and by a mark
// of presence where the slot keeps marks. A child of fork() is another process: it has an object of
// its own (detail/per_process.hpp), with a mark of its own.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/detail/bound_tickets.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>
#include <bide/sync/mutex.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

class process_identity {
public:
    process_identity() = default;
    process_identity(const process_identity&) = delete;
    process_identity& operator=(const process_identity&) = delete;

    // Where this process runs.
    const durable::origin& here() const noexcept { return here_; }

    // The origin of a contender; bound to this process or not. A mark is taken for the first one that
    // is bound, and kept as long as this object.
    durable::origin origin(bool bound, slot_ref& slot);

    // The mark stays open for this ticket: see bound_tickets.
    // Throws: std::bad_alloc.
    void keep_mark(const std::string& nonce) {
        // Order: acquire [PI1]; sees the mark.
        if (has_mark_.load(std::memory_order_acquire)) {
            bound_tickets::keep(nonce, mark_);
        }
    }

    // In a child of fork(), of its parent's: a mark that the child has open outlives the parent.
    void leave() noexcept {
        // Order: acquire [PI1]; sees the mark.
        if (has_mark_.load(std::memory_order_acquire)) {
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

inline durable::origin process_identity::origin(bool bound, slot_ref& slot) {
    durable::origin from = here_;
    if (!bound) {
        from.pid = from.start = from.space = 0;
        return from;
    }
    const std::lock_guard held(lock_);
    if (mark_ == nullptr && !can_have_none_ && slot.has_presence()) {
        auto taken = slot.be_present();
        if (taken) {
            mark_ = std::move(*taken);
            // Order: release [PI1]; publishes the mark.
            has_mark_.store(true, std::memory_order_release);
        } else { // the pid has to do; where it was a passing trouble the next one tries again
            can_have_none_ = taken.error() == std::errc::operation_not_supported;
        }
    }
    from.mark = mark_ != nullptr ? mark_->mark() : 0;
    return from;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
