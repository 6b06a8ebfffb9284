#ifndef BIDE_CORE_CHOICE_HPP
#define BIDE_CORE_CHOICE_HPP

// One of several waits is to happen, and only one: what a select hangs its cases on. One word:
//
//   bit 0, 1   claimed by one who tries to decide for its case (core/lock_bits.hpp)
//   decided    one case has happened; never changes again
//
// A primitive that could grant a case claims the choice under its own lock, before it moves
// anything, and then commits or, where there was nothing to move after all, abandons. One that
// meets a claim waits until it is over rather than pass the case over: were the claim abandoned,
// the case would be left asleep beside what it waits for. So between claim and end nobody waits for
// anything, and two choices that meet are claimed in the order of their addresses: there is no
// circle of waiters.

#include <bide/core/config.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_waiter;

template <class Platform> class basic_choice {
public:
    // Runs when the outcome of the chosen case was published. Returns the waiter of the owner of
    // all cases, which is granted then; nullptr if the owner does not wait yet.
    using owner_of = basic_waiter<Platform>* (*)(basic_choice&) noexcept;

    explicit basic_choice(owner_of found_by = nullptr) noexcept : owner_(found_by) {}
    basic_choice(const basic_choice&) = delete;
    basic_choice& operator=(const basic_choice&) = delete;

    // False: decided. True: nobody else decides until commit() or abandon().
    bool claim() noexcept {
        if (is_decided()) {
            return false;
        }
        const bool open = (lock::acquire(word_) & decided) == 0;
        if (!open) {
            lock::release(word_);
        }
        return open;
    }

    // nullptr: each case has a waker of its own.
    owner_of owner() const noexcept { return owner_; }

    void commit() noexcept { lock::release_as(word_, decided); }
    void abandon() noexcept { lock::release(word_); }

    // Order: relaxed; a decision brings no data along, its publication does [W1].
    bool is_decided() const noexcept {
        return (word_.load(std::memory_order_relaxed) & decided) != 0;
    }

private:
    using lock = lock_bits<Platform, futex_word>;
    static constexpr futex_word decided = 4;

    const owner_of owner_;
    typename Platform::template atomic<futex_word> word_{0};
};

} // namespace bide::inline BIDE_ABI

#endif
