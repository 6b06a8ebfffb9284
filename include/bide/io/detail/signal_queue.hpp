// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_DETAIL_SIGNAL_QUEUE_HPP
#define BIDE_IO_DETAIL_SIGNAL_QUEUE_HPP

// The signals of a signal_set: a word with a bit for each signal, and a queue of permits
// (sync/detail/permit_queue.hpp).
//
// Each bit has one permit. The deliverer sets a bit and then gives a permit; if the bit is set
// already, it gives none. A waiter takes a permit and then a bit. A wait that is cancelled gives
// back a permit, so its signal stays for the next wait.
//
// Why a waiter with a permit finds a bit: every permit that was taken so far was given after its bit
// was set, and each earlier waiter has taken one bit for its permit. The permits carry the order
// [permit.release], so the steps on the word are relaxed.

#include <bide/core/wait_ops.hpp>
#include <bide/sync/detail/permit_queue.hpp>

#include <bit>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// A set of signal numbers from 1 to 64. Bit 0 is signal 1.
using signal_mask = std::uint64_t;

inline signal_mask mask_of(int signal) noexcept {
    return signal >= 1 && signal <= 64 ? signal_mask{1} << (signal - 1) : 0;
}

// The signals that have arrived for one set and that no wait has taken, and the waiters.
template <class Platform> class basic_signal_queue {
public:
    using queue = basic_permit_queue<Platform>;

    // One thread at a time calls it.
    void deliver(signal_mask arrived) noexcept {
        // Order: relaxed; the permits order the bits: a bit is set before its permit is given.
        const signal_mask before = pending_.fetch_or(arrived, std::memory_order_relaxed);
        for (signal_mask left = arrived & ~before; left != 0; left &= left - 1) {
            permits_.give(1);
        }
    }

    // Takes the lowest signal.
    // Requires: the caller has taken a permit.
    int take() noexcept {
        // Order: relaxed; see deliver().
        signal_mask seen = pending_.load(std::memory_order_relaxed);
        // Order: relaxed; see deliver(). Failure: look again.
        while (!pending_.compare_exchange_weak(seen, seen & (seen - 1), std::memory_order_relaxed,
                                               std::memory_order_relaxed)) {
        }
        return std::countr_zero(seen) + 1;
    }

    template <class Limit> wait_status wait(const Limit& limit) noexcept {
        return permits_.try_take(1) ? wait_status::granted
                                    : thread_wait<queue, Platform>::until(permits_, 1, limit);
    }

    std::size_t waiters() const noexcept { return permits_.waiters(); }
    void require_no_waiters(const char* name, const void* object) const noexcept {
        permits_.require_no_waiters(name, object);
    }

    // The operation of a coroutine (core/wait_ops.hpp).
    struct taking : queue::taking {
        basic_signal_queue& of;

        explicit taking(basic_signal_queue& its) noexcept
            : queue::taking{its.permits_, 1}, of(its) {}

        result<int> collect(wait_status what) const noexcept {
            if (what != wait_status::granted) {
                return unexpected{errc_of(what)};
            }
            return of.take();
        }
        void give_back(wait_status what) const noexcept {
            if (what == wait_status::granted) {
                of.permits_.give(1);
            }
        }
    };

private:
    typename Platform::template atomic<signal_mask> pending_{0};
    queue permits_{0};
};

}}} // namespace bide::BIDE_ABI::detail

#endif
