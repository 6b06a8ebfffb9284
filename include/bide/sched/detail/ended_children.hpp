#ifndef BIDE_SCHED_DETAIL_ENDED_CHILDREN_HPP
#define BIDE_SCHED_DETAIL_ENDED_CHILDREN_HPP

// What is behind join_set::join_next(): the children that have ended and were not asked for, oldest
// first, how many have not ended, and the waiters. All under one lock.
//
// A waiter that is granted has one of the ended children reserved for it, which it takes when it
// goes on: there are never fewer in the list than are reserved. Waiters queue only while every one
// is reserved, so a child that ends is for the first of them. What was reserved may be given up, and
// is for the next then; so only where no child runs and none is reserved do waiters learn that it is
// closed; until children are added again.
//
// Once the children were cancelled the waiters wait until the last of them has ended: the waiting
// task, which may be cancelled itself, destroys the set then without waiting for any.

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wait_ops.hpp>
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
    class child {
        friend basic_ended_children;
        typename Platform::template var<child*> next_{nullptr};
    };

    basic_ended_children() noexcept = default;
    basic_ended_children(const basic_ended_children&) = delete;
    basic_ended_children& operator=(const basic_ended_children&) = delete;

    // One more that will end. Before it is posted.
    void begin() noexcept {
        lock::acquire(lock_);
        running_ = running_ + 1;
        lock::release(lock_);
    }

    // One has ended. nullptr: with nothing to ask for.
    void end(child* c) noexcept {
        lock::acquire(lock_);
        running_ = running_ - 1;
        if (c != nullptr) {
            append(*c);
        }
        tell_waiters();
    }

    void cancel() noexcept {
        lock::acquire(lock_);
        cancelled_ = true;
        lock::release(lock_);
    }

    bool was_cancelled() noexcept {
        lock::acquire(lock_);
        const bool was = cancelled_;
        lock::release(lock_);
        return was;
    }

    // How many there are, ended or not, but for those that are reserved.
    std::size_t size() noexcept {
        lock::acquire(lock_);
        const std::size_t n = running_ + ended_ - reserved_;
        lock::release(lock_);
        return n;
    }

    // granted: one is reserved for the caller. closed: there is none and none will come.
    wait_status try_reserve() noexcept {
        lock::acquire(lock_);
        const wait_status what = reserve();
        lock::release(lock_);
        return what;
    }

    // The one that was reserved; or gives it up.
    child& take_reserved() noexcept {
        lock::acquire(lock_);
        reserved_ = reserved_ - 1;
        child& c = pop();
        tell_waiters();
        return c;
    }
    void give_up() noexcept {
        lock::acquire(lock_);
        reserved_ = reserved_ - 1;
        tell_waiters();
    }

    // One that is not reserved; nullptr: none.
    child* take() noexcept {
        lock::acquire(lock_);
        child* const c = ended_ != reserved_ ? &pop() : nullptr;
        lock::release(lock_);
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
        } else if (w.claim()) { // else its choice fell on another wait
            w.commit();
            reserved_ = reserved_ + (what == wait_status::granted ? 1U : 0U);
        } else {
            what = wait_status::waiting;
        }
        lock::release(lock_);
        if (what != wait_status::waiting) {
            w.settle(what);
        }
        return what;
    }
    bool cancel(node& w, wait_status why) noexcept {
        lock::acquire(lock_);
        const bool waits_still = queue_.withdraw(w, why);
        lock::release(lock_);
        return waits_still;
    }

private:
    // Under the lock, all of them.
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

    // And lets go of it. What came may be for the first waiters, or the last thing that comes.
    void tell_waiters() noexcept {
        wake_list granted;
        wake_list closed;
        while (!queue_.empty() && peek() != wait_status::waiting) {
            if (node& w = queue_.pop(); w.claim()) {
                w.commit();
                (reserve() == wait_status::granted ? granted : closed).push(w);
            }
        }
        lock::release(lock_);
        wake_list::publish(granted, wait_status::granted, closed, wait_status::closed);
    }

    typename Platform::template atomic<std::uint32_t> lock_{0};
    // Under it:
    basic_waiter_queue<Platform> queue_;
    var<child*> first_{nullptr};
    var<child*> last_{nullptr};
    var<std::size_t> running_{0};
    var<std::size_t> ended_{0}; // in the list
    var<std::size_t> reserved_{0};
    var<bool> cancelled_{false};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
