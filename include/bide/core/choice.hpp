// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_CHOICE_HPP
#define BIDE_CORE_CHOICE_HPP

/// \file
/// Lets exactly one of several waits complete: the cases of a select share a choice.
//
// The state is one word:
//
//   bit 0, 1   A releaser holds the claim (core/lock_bits.hpp).
//   decided    One case has happened. This bit never changes again.
//
// A releaser that could grant a case claims the choice under the lock of its primitive, before it
// moves any item. Then it commits, or it abandons the claim if there was no item to move. A
// releaser that meets the claim of another waits until that claim ends. It must not skip the case:
// if the claim were abandoned, the case would sleep although its item is there.
//
// There is no deadlock. A releaser that holds a claim waits for nothing, with one exception: if a
// sender and a receiver both have a choice, it waits for the second claim. It claims the two
// choices in the order of their addresses.

#include <bide/core/config.hpp>

#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>

namespace bide { inline namespace BIDE_ABI {

template <class Platform> class basic_waiter;

/// Decides which one of several waits happens.
template <class Platform> class basic_choice {
public:
    /// Returns the waiter of the thread or coroutine that owns all cases; nullptr if that owner
    /// does not wait yet. The releaser calls it after it has published the outcome of the chosen
    /// case, and then grants that waiter.
    using owner_of = basic_waiter<Platform>* (*)(basic_choice&) noexcept;

    /// Makes an undecided choice. Without `found_by`, each case has a waker of its own.
    explicit basic_choice(owner_of found_by = nullptr) noexcept : owner_(found_by) {}
    basic_choice(const basic_choice&) = delete;
    basic_choice& operator=(const basic_choice&) = delete;

    /// Claims the choice. Until commit() or abandon(), no other releaser can decide it.
    /// Blocks: while another releaser holds the claim.
    /// Returns: false if the choice is decided.
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

    /// Returns the function that finds the owner's waiter; nullptr if each case has its own waker.
    owner_of owner() const noexcept { return owner_; }

    /// Decides the choice and ends the claim.
    void commit() noexcept { lock::release_as(word_, decided); }
    /// Ends the claim and leaves the choice open.
    void abandon() noexcept { lock::release(word_); }

    /// Returns whether the choice is decided.
    // Order: relaxed; the decision carries no data. The publication of the outcome does
    // [waiter.outcome].
    bool is_decided() const noexcept {
        return (word_.load(std::memory_order_relaxed) & decided) != 0;
    }

private:
    using lock = lock_bits<Platform, futex_word>;
    static constexpr futex_word decided = 4;

    const owner_of owner_;
    typename Platform::template atomic<futex_word> word_{0};
};

}} // namespace bide::BIDE_ABI

#endif
