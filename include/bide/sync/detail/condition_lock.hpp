// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_CONDITION_LOCK_HPP
#define BIDE_SYNC_DETAIL_CONDITION_LOCK_HPP

// The locks that a condition_variable waits with: std::unique_lock of a mutex, an adaptive_mutex or a
// shared_mutex, and std::shared_lock of a shared_mutex.

#include <bide/core/config.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>
#include <bide/fwd.hpp>
#include <bide/sync/detail/lock_wait.hpp>

#include <cstddef>
#include <mutex>
#include <shared_mutex>
#include <type_traits>

namespace bide::inline BIDE_ABI {
namespace detail {

// The queue of a mutex, and what a waiter asks for there.
struct condition_access {
    template <class P> static auto& queue_of(basic_mutex<P>& m) noexcept { return m.permits_; }
    template <class P> static auto& queue_of(basic_shared_mutex<P>& m) noexcept {
        return m.permits_;
    }
    template <class P> static auto& queue_of(basic_adaptive_mutex<P>& m) noexcept {
        return m.lock_;
    }

    template <class P>
    static constexpr std::ptrdiff_t amount(const std::unique_lock<basic_mutex<P>>&) noexcept {
        return 1;
    }
    template <class P>
    static constexpr std::ptrdiff_t
    amount(const std::unique_lock<basic_shared_mutex<P>>&) noexcept {
        return basic_shared_mutex<P>::all;
    }
    template <class P>
    static constexpr std::ptrdiff_t
    amount(const std::shared_lock<basic_shared_mutex<P>>&) noexcept {
        return 1;
    }
    template <class P>
    static constexpr std::ptrdiff_t
    amount(const std::unique_lock<basic_adaptive_mutex<P>>& lock) noexcept {
        return std::remove_reference_t<decltype(queue_of(
            *lock.mutex()))>::handed; // it is never woken only to try
    }

#if defined(BIDE_DEADLOCK_CHECK)
    // After a wait, `by` has the lock again.
    template <template <class> class M, class P>
    static void note_relocked(const std::unique_lock<M<P>>&, const void* m, actor by) noexcept {
        if constexpr (is_noted<P>) {
            wait_notes::all().locked(m, wait_notes::mode::exclusive, by);
        }
    }
    template <class P>
    static void note_relocked(const std::shared_lock<basic_shared_mutex<P>>&, const void* m,
                              actor by) noexcept {
        if constexpr (is_noted<P>) {
            wait_notes::all().locked(m, wait_notes::mode::shared, by);
        }
    }
#endif

    template <class M> static void unlock(const std::unique_lock<M>&, M& m) noexcept { m.unlock(); }
    template <class M> static void unlock(const std::shared_lock<M>&, M& m) noexcept {
        m.unlock_shared();
    }
};

// A lock without its type: where a waiter queues for it.
template <class Platform> class condition_lock {
public:
    using node = basic_waiter<Platform>;
    using wake_list = basic_wake_list<Platform>;

    template <class Lock> explicit condition_lock(const Lock& of) noexcept {
        auto& queue = condition_access::queue_of(*of.mutex());
        using queue_type = std::remove_reference_t<decltype(queue)>;
        queue_ = &queue;
        amount_ = condition_access::amount(of);
        link_ = [](void* to, node& one) noexcept {
            return static_cast<queue_type*>(to)->link(one);
        };
        cancel_ = [](void* from, node& one) noexcept {
            return static_cast<queue_type*>(from)->cancel(one, wait_status::destroyed);
        };
    }

    // Queues `w`, which the condition_variable has decided, or appends it to `granted` if it has the
    // lock at once. From then on only the owner of the lock decides it.
    void queue(node& w, wake_list& granted) const noexcept {
        auto* const link = link_;
        void* const to = queue_;
        w.ask(amount_);
        if (link(to, w) != wait_status::waiting) { // if it waits, it may be gone with *this
            granted.push(w);
        }
    }

    // The address of the mutex's queue, and how much a waiter asks for there.
    const void* address() const noexcept { return queue_; }
    std::ptrdiff_t amount() const noexcept { return amount_; }

    // Takes `w` out of the queue. Returns false if it is not there.
    bool cancel(node& w) const noexcept { return cancel_(queue_, w); }

    // Returns true if both are locks of the same mutex.
    bool is_of_same_mutex(const condition_lock& other) const noexcept {
        return queue_ == other.queue_;
    }

private:
    void* queue_;
    std::ptrdiff_t amount_;
    wait_status (*link_)(void* queue, node& w) noexcept;
    bool (*cancel_)(void* queue, node& w) noexcept;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
