#ifndef BIDE_CHANNEL_DETAIL_SHARED_STATE_HPP
#define BIDE_CHANNEL_DETAIL_SHARED_STATE_HPP

// What the two ends of a small channel have in common. One word holds a lock, two marks, and how
// many handles and operations keep the rest alive:
//
//   references << 4 | marks << 2 | lock_bits
//
// The rest is read and changed under the lock. A mark is set when the lock is let go, once, and
// read by anybody at any time. References come and go without the lock.
//
// Whoever works on it has a reference of his own, or works through an object that has one. In both
// cases letting go of the lock, or of the reference where that is his to give up, is his last
// touch. So who gives up the last one comes after all others, and frees the state.

#include <bide/core/config.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>

#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_shared_state {
public:
    using node = basic_waiter<Platform>;
    using wait_queue = basic_waiter_queue<Platform>;
    using wake_list = basic_wake_list<Platform>;
    using word = std::uint64_t;

    explicit basic_shared_state(word references) noexcept : word_(references * reference) {}
    basic_shared_state(const basic_shared_state&) = delete;
    basic_shared_state& operator=(const basic_shared_state&) = delete;

    void lock() const noexcept { lock_word::acquire(word_); }
    void unlock() const noexcept { lock_word::release(word_); }

    // --- references

    void add_reference() noexcept {
        // Order: relaxed; the caller has one.
        word_.fetch_add(reference, std::memory_order_relaxed);
    }

    // Nobody but the caller has one, and nobody can get one.
    bool is_alone() const noexcept {
        // Order: acquire [V2]; what all others did is over for the last one, which frees.
        return word_.load(std::memory_order_acquire) / reference == 1;
    }

    // True: it was the last one; the caller frees the state.
    [[nodiscard]] bool drop_reference() noexcept {
        // Order: acq_rel [V2]; what the caller did is over for the last one; acquire as above.
        return is_alone() || word_.fetch_sub(reference, std::memory_order_acq_rel) / reference == 1;
    }

protected:
    ~basic_shared_state() = default;

    static constexpr word first_mark = 4;
    static constexpr word second_mark = 8;

    // Without the lock an old answer, but a mark stays.
    bool has(word marks) const noexcept {
        // Order: acquire [V3]; what was done before the mark was set.
        return (word_.load(std::memory_order_acquire) & marks) != 0;
    }

    // unlock(), sets the marks, and if `drops`, drop_reference(), in one step. True: as that.
    [[nodiscard]] bool unlock_with(word marks, bool drops) noexcept {
        const auto* const at = &word_;
        const word dropped = drops ? reference : 0;
        // Order: relaxed; the CAS decides, for references may come and go.
        word seen = word_.load(std::memory_order_relaxed);
        // Order: acq_rel; lets go [lock_bits.release]; release [V3] with the marks; [V2] with the
        // reference. Failure: look again.
        while (!word_.compare_exchange_weak(seen, ((seen & ~lock_word::both) | marks) - dropped,
                                            std::memory_order_acq_rel, std::memory_order_relaxed)) {
        }
        lock_word::wake_after(at, seen);
        return drops && seen / reference == 1;
    }

    // --- under the lock

    // The wait of `w` is over before it is queued. Answers `waiting` where the choice that `w` is
    // part of fell on another wait: then it need not even queue.
    static wait_status complete(node& w, wait_status what) noexcept {
        if (!w.claim()) {
            return wait_status::waiting;
        }
        w.commit();
        w.settle(what);
        return what;
    }

    // Queues `w`: waiting; or the stop or time-out that came first.
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
