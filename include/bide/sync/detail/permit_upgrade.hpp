// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_PERMIT_UPGRADE_HPP
#define BIDE_SYNC_DETAIL_PERMIT_UPGRADE_HPP

// A wait in a permit queue that passes all other waiters: the upgrade of a reader to the writer.
// The reader keeps its permits while it waits for the other permits. A writer that waits in front
// of it would wait for these permits, and has been granted other permits in part: a deadlock. So
// the upgrade goes to the front of the queue and gets what the first waiter was granted. If the
// upgrade gives up, its permits go back to the first waiter, as those of every waiter that leaves
// do.

#include <bide/core/config.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/sync/detail/permit_queue.hpp>

#include <cstddef>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Decides, and enqueues or settles.
// Requires: `w` is not the case of a choice.
template <class Platform>
wait_status basic_permit_queue<Platform>::enqueue_first(node& w) noexcept {
    const word need = static_cast<word>(w.amount());
    word seen = lock::acquire(word_);
    word free = 0;
    word next = 0;
    for (;;) {
        if ((seen & queued) != 0) { // only the holder of the lock changes the word then
            node& head = queue_.front();
            free = static_cast<word>(head.amount() - head.missing);
            head.missing = head.missing + static_cast<std::ptrdiff_t>(free < need ? free : need);
            next = seen + one;
            if (free >= need) {
                lock::release(word_);
            }
            break;
        }
        free = seen / one;
        next =
            free >= need ? (seen - need * one) & ~lock::both : queued | one | (seen & lock::both);
        // Order: acquire [permit.release]; what was done before the permits were released. If the
        // step releases the lock, nothing was read or written under it. Failure: look again.
        if (word_.compare_exchange_weak(seen, next, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
            if (free >= need) {
                lock::wake_after(&word_, seen);
            }
            break;
        }
    }
    if (free >= need) {
        w.settle(wait_status::granted);
        return wait_status::granted;
    }
    w.missing = static_cast<std::ptrdiff_t>(need - free);
    queue_.push_front(w);
    if (const wait_status forbidden = w.forbidden(); forbidden != wait_status::waiting) {
        withdraw(w, next / one);
        w.settle(forbidden);
        return forbidden;
    }
    lock::release_as(word_, next & ~lock::both);
    return wait_status::waiting;
}

// The queue as an upgrade sees it, for thread_wait.
template <class Platform> struct permit_front {
    using node = basic_waiter<Platform>;
    basic_permit_queue<Platform>& of;

    const auto& primitive() const noexcept { return of; }
    wait_status enqueue(node& w) noexcept { return of.enqueue_first(w); }
    bool cancel(node& w, wait_status why) noexcept { return of.cancel(w, why); }
};

// The steps of an operation that waits for an upgrade (core/wait_ops.hpp), without its result.
template <class Platform> struct permit_upgrading : basic_permit_queue<Platform>::taking {
    static constexpr bool stands_alone = true;

    wait_status enqueue(basic_waiter<Platform>& w) const noexcept {
        w.ask(this->amount);
        return this->from.enqueue_first(w);
    }
};

// Owns one mode of a mutex: Mode::end(mutex) gives it up.
template <class Mutex, class Mode> class [[nodiscard]] mode_lock {
public:
    mode_lock() noexcept = default;
    explicit mode_lock(Mutex& held) noexcept : of_(&held) {}
    mode_lock(mode_lock&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    mode_lock& operator=(mode_lock&& other) noexcept {
        if (this != &other) {
            unlock();
            of_ = std::exchange(other.of_, nullptr);
        }
        return *this;
    }
    ~mode_lock() { unlock(); }

    explicit operator bool() const noexcept { return of_ != nullptr; }

    void unlock() noexcept {
        if (of_ != nullptr) {
            Mode::end(*std::exchange(of_, nullptr));
        }
    }

private:
    Mutex* of_ = nullptr;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
