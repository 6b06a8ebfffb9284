// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_SHARED_STATE_HPP
#define BIDE_CHANNEL_DETAIL_SHARED_STATE_HPP

// The state that the ends of a oneshot, a watch or a broadcast share. One word has a lock, two
// flags, and the number of handles and operations that keep the state alive:
//
//   references << 4 | flags << 2 | lock_bits
//
// The rest of the state is read and changed under the lock. A flag is set once, by the step that
// releases the lock, and may be read at any time. References need no lock.
//
// Each user of the state has a reference, or acts for an object that has one. The last access of a
// user is the release of the lock, or of its reference. So the user that drops the last reference
// comes after all other users, and frees the state.

#include <bide/core/waiter.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class Platform> class basic_shared_state {
public:
    using node = basic_waiter<Platform>;
    using wait_queue = basic_waiter_queue<Platform>;
    using wake_list = basic_wake_list<Platform>;
    using word = std::uint64_t;

    explicit basic_shared_state(word references) noexcept : word_(references * reference) {}
    basic_shared_state& operator=(basic_shared_state&&) = delete;

    void lock() const noexcept { lock_word::acquire(word_); }
    void unlock() const noexcept { lock_word::release(word_); }

    // Calls look() under the lock and returns its result.
    template <class Look> auto locked(Look&& look) const noexcept {
        lock();
        const auto seen = look();
        unlock();
        return seen;
    }

    // --- references

    void add_reference() noexcept {
        // Order: relaxed; the caller has a reference.
        word_.fetch_add(reference, std::memory_order_relaxed);
    }

    // Returns true if the caller has the only reference, so that no other user can get one.
    bool is_alone() const noexcept {
        // Order: acquire [shared_state.reference]; sees the accesses of all earlier users.
        return word_.load(std::memory_order_acquire) / reference == 1;
    }

    // Drops a reference. Returns true if it was the last one. Then the caller frees the state.
    [[nodiscard]] bool drop_reference() noexcept {
        // Order: acq_rel [shared_state.reference]; release: the accesses of the caller happen
        // before the state is freed. Acquire: the last user sees the accesses of all other users.
        return is_alone() || word_.fetch_sub(reference, std::memory_order_acq_rel) / reference == 1;
    }

protected:
    ~basic_shared_state() = default;

    static constexpr word first_flag = 4;
    static constexpr word second_flag = 8;

    // Returns true if one of the flags is set. Without the lock, a false result may be outdated.
    bool has(word flags) const noexcept {
        // Order: acquire [shared_state.flag]; sees what was done before the flag was set.
        return (word_.load(std::memory_order_acquire) & flags) != 0;
    }

    // Unlocks and sets the flags in one step. If `drops` is true, also drops a reference in that
    // step. Returns true if it dropped the last reference.
    [[nodiscard]] bool unlock_with(word flags, bool drops) noexcept {
        const auto* const at = &word_;
        const word dropped = drops ? reference : 0;
        // Order: relaxed; the CAS decides, because references are added and dropped meanwhile.
        word seen = word_.load(std::memory_order_relaxed);
        // Order: acq_rel. Release, for three readers: the next holder of the lock
        // [lock_bits.release], a thread that sees the flag [shared_state.flag], and the user that
        // drops the last reference [shared_state.reference]. Acquire, because this call may drop
        // the last reference. Failure: try again.
        while (!word_.compare_exchange_weak(seen, ((seen & ~lock_word::both) | flags) - dropped,
                                            std::memory_order_acq_rel, std::memory_order_relaxed)) {
        }
        lock_word::wake_after(at, seen);
        return drops && seen / reference == 1;
    }

    // Waits for `q`, unless `q` can complete at once. `limit` is a deadline or a stop token.
    template <class Q, class Limit> static wait_status wait_in(Q& q, const Limit& limit) noexcept {
        const wait_status now = q.try_now();
        return now != wait_status::waiting ? now : thread_wait<Q, Platform>::until(q, 1, limit);
    }

    // --- Requires: the lock

    // Completes the wait `w`, which is not queued, with `what`, and returns `what`. If `w` belongs
    // to a select that has chosen another case, returns waiting. In both cases the wait is over,
    // and the caller does not queue `w`.
    static wait_status complete(node& w, wait_status what) noexcept {
        if (!w.claim()) {
            return wait_status::waiting;
        }
        w.commit();
        w.settle(what);
        return what;
    }

    // Queues `w` and returns waiting. If `w` was cancelled before, completes it and returns its
    // status.
    static wait_status queue(wait_queue& to, node& w) noexcept {
        const wait_status forbidden = w.forbidden();
        if (forbidden == wait_status::waiting) {
            to.push(w);
        } else {
            w.settle(forbidden);
        }
        return forbidden;
    }

private:
    using lock_word = lock_bits<Platform, word>;
    static constexpr word reference = 16;

    mutable typename Platform::template atomic<word> word_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
