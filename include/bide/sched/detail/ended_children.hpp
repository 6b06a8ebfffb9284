// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_ENDED_CHILDREN_HPP
#define BIDE_SCHED_DETAIL_ENDED_CHILDREN_HPP

// The state of join_set::join_next(): the list of the ended children that no call has taken, oldest
// first, the number of children that have not ended, and the waiters. One lock guards all of it.
//
// A granted waiter has one child of the list reserved, and takes it when it resumes. The list is
// never shorter than the number of reservations. A waiter is enqueued only if every child in the
// list is reserved, so a child that ends is for the first waiter. A waiter may give up its
// reservation, which is then for the next waiter. So waiters learn that no child is left (`closed`)
// only when no child runs and none is reserved. A later begin() ends that state.
//
// If the children are cancelled, the waiters wait until the last child has ended. A waiting task
// that is cancelled itself then destroys the set without a wait.

#include <bide/core/config.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_ended_children {
    using node = basic_waiter<Platform>;
    using lock = lock_bits<Platform, std::uint32_t>;
    using wake_list = basic_wake_list<Platform>;
    template <class T> using var = typename Platform::template var<T>;

public:
    static constexpr const char* waited_for = "join_set";

    class child {
        friend basic_ended_children;
        typename Platform::template var<child*> next_{nullptr};
    };

    basic_ended_children() noexcept = default;
    basic_ended_children(const basic_ended_children&) = delete;
    basic_ended_children& operator=(const basic_ended_children&) = delete;

    // Counts a child. Requires: it is not posted yet.
    void begin() noexcept {
        lock::acquire(lock_);
        running_ = running_ + 1;
        lock::release_plain(lock_);
    }

    // Counts an end. With nullptr, the child has no outcome.
    void end(child* c) noexcept {
        lock::acquire(lock_);
        running_ = running_ - 1;
        if (c != nullptr) {
            append(*c);
        }
        wake_waiters();
    }

    void cancel() noexcept {
        lock::acquire(lock_);
        cancelled_ = true;
        lock::release_plain(lock_);
    }

    bool was_cancelled() noexcept {
        lock::acquire(lock_);
        const bool was = cancelled_;
        lock::release_plain(lock_);
        return was;
    }

    // Returns the number of children, running or ended, that are not reserved.
    std::size_t size() noexcept {
        lock::acquire(lock_);
        const std::size_t n = running_ + ended_ - reserved_;
        lock::release_plain(lock_);
        return n;
    }

    // Returns `granted` if a child was reserved for the caller, `waiting` if the caller must wait,
    // and `closed` if no child is left.
    wait_status try_reserve() noexcept {
        lock::acquire(lock_);
        const wait_status what = reserve();
        lock::release_plain(lock_);
        return what;
    }

    // Takes the child that was reserved for the caller.
    child& take_reserved() noexcept {
        lock::acquire(lock_);
        reserved_ = reserved_ - 1;
        child& c = pop();
        wake_waiters();
        return c;
    }
    // Gives up the caller's reservation.
    void give_up() noexcept {
        lock::acquire(lock_);
        reserved_ = reserved_ - 1;
        wake_waiters();
    }

    // Takes a child that is not reserved. Returns nullptr if there is none.
    child* take() noexcept {
        lock::acquire(lock_);
        child* const c = ended_ != reserved_ ? &pop() : nullptr;
        lock::release_plain(lock_);
        return c;
    }

    // For thread_wait.
    wait_status enqueue(node& w) noexcept {
        lock::acquire(lock_);
        wait_status what = peek();
        if (what == wait_status::waiting) {
            queue_.push(w);
            what = w.forbidden();
            if (what != wait_status::waiting) {
                queue_.remove(w);
            }
        } else if (w.claim()) { // fails if the waiter's select chose another case
            w.commit();
            reserved_ = reserved_ + (what == wait_status::granted ? 1U : 0U);
        } else {
            what = wait_status::waiting;
        }
        lock::release_plain(lock_);
        if (what != wait_status::waiting) {
            w.settle(what);
        }
        return what;
    }
    bool cancel(node& w, wait_status why) noexcept {
        lock::acquire(lock_);
        const bool waits_still = queue_.withdraw(w, why);
        lock::release_plain(lock_);
        return waits_still;
    }

private:
    // Requires, for all below: the caller holds the lock.
    wait_status peek() const noexcept {
        if (cancelled_ && running_ != 0) {
            return wait_status::waiting;
        }
        if (ended_ != reserved_) {
            return wait_status::granted;
        }
        return running_ + reserved_ != 0 ? wait_status::waiting : wait_status::closed;
    }
    wait_status reserve() noexcept {
        const wait_status what = peek();
        reserved_ = reserved_ + (what == wait_status::granted ? 1U : 0U);
        return what;
    }
    void append(child& c) noexcept {
        child* const last = last_;
        c.next_ = nullptr;
        if (last == nullptr) {
            first_ = &c;
        } else {
            last->next_ = &c;
        }
        last_ = &c;
        ended_ = ended_ + 1;
    }
    child& pop() noexcept {
        child& c = *static_cast<child*>(first_);
        child* const next = c.next_;
        first_ = next;
        if (next == nullptr) {
            last_ = nullptr;
        }
        ended_ = ended_ - 1;
        return c;
    }

    // Reserves the children that are not reserved yet for the first waiters, and grants their
    // waits. If no child is left, wakes all waiters. Releases the lock.
    void wake_waiters() noexcept {
        wake_list granted;
        wake_list closed;
        while (!queue_.empty() && peek() != wait_status::waiting) {
            if (node& w = queue_.pop(); w.claim()) {
                w.commit();
                (reserve() == wait_status::granted ? granted : closed).push(w);
            }
        }
        lock::release_plain(lock_);
        wake_list::publish(granted, wait_status::granted, closed, wait_status::closed);
    }

    typename Platform::template atomic<std::uint32_t> lock_{0};
    // Guarded by it:
    basic_waiter_queue<Platform> queue_;
    var<child*> first_{nullptr};
    var<child*> last_{nullptr};
    var<std::size_t> running_{0};
    var<std::size_t> ended_{0}; // the length of the list
    var<std::size_t> reserved_{0};
    var<bool> cancelled_{false};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
