#ifndef BIDE_CHANNEL_DETAIL_SHARED_STATE_HPP
#define BIDE_CHANNEL_DETAIL_SHARED_STATE_HPP

// What the two ends of a small channel have in common: a lock, and, under it, how many handles and
// operations keep the rest alive.
//
// Whoever works on it has a reference of his own, or works through an object that has one. In both
// cases letting go of the lock is his last touch: a reference is given up under the lock, so who
// gives up the last one comes after all others, and frees the state when the lock is free.

#include <bide/core/config.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>

#include <cstddef>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_shared_state {
public:
    using node = basic_waiter<Platform>;
    using wait_queue = basic_waiter_queue<Platform>;
    using wake_list = basic_wake_list<Platform>;

    explicit basic_shared_state(std::size_t references) noexcept : references_(references) {}
    basic_shared_state(const basic_shared_state&) = delete;
    basic_shared_state& operator=(const basic_shared_state&) = delete;

    void lock() const noexcept { lock_word::acquire(lock_); }
    void unlock() const noexcept { lock_word::release(lock_); }

    // The rest is done under the lock.

    void add_reference() noexcept { references_ = references_ + 1; }

    // True: it was the last one; the caller frees the state after unlock().
    bool drop_reference() noexcept {
        references_ = references_ - 1;
        return references_ == 0;
    }

protected:
    ~basic_shared_state() = default;

    // The wait of `w` is over before it is queued. Answers `waiting` where the choice that `w` is
    // part of fell on another wait: then it need not even queue.
    static fate complete(node& w, fate what) noexcept {
        if (!w.claim()) {
            return fate::waiting;
        }
        w.commit();
        w.settle(what);
        return what;
    }

    // Queues `w`: waiting; or the stop or time-out that came first.
    static fate queue(wait_queue& to, node& w) noexcept {
        const fate forbidden = w.forbidden();
        if (forbidden == fate::waiting) {
            to.push(w);
        } else {
            w.settle(forbidden);
        }
        return forbidden;
    }

private:
    using lock_word = lock_bits<Platform, futex_word>;

    mutable typename Platform::template atomic<futex_word> lock_{0};
    typename Platform::template var<std::size_t> references_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
