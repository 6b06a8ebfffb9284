// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_ATOMIC_HPP
#define BIDE_TEST_ATOMIC_HPP

/// \file
/// An atomic for the code under test, and a place at which other tasks may run. Both are for a
/// scheduler with switch_places::operations.
///
/// \code
/// template <template <class> class Atomic = std::atomic> class my_counter {
///     Atomic<int> value_{0};
/// };
/// my_counter<bide::test::atomic> counter; // in a test
/// \endcode

#include <bide/core/detail/switch_after.hpp>

namespace bide { inline namespace BIDE_ABI { namespace test {

/// Lets a test::scheduler with switch_places::operations run other tasks inside of this call. On
/// other threads, and in other simulations, does nothing.
inline void switch_point() noexcept { const bide::detail::switch_after here; }

/// A std::atomic with a switch_point() after each access. So other tasks may run between any two
/// accesses. All accesses are sequentially consistent, because the tasks run one at a time. Outside
/// of a simulation, it is a std::atomic.
template <class T> class atomic {
    using order = std::memory_order;
    static constexpr order seq_cst = order::seq_cst;
    using inner = native_platform::atomic<T>;
    using after = bide::detail::switch_after;

public:
    using value_type = T; ///< Names the type of the value.
    /// Names the type of the operand of fetch_add().
    using difference_type = std::conditional_t<std::is_pointer_v<T>, std::ptrdiff_t, T>;
    /// Says whether no lock is needed.
    static constexpr bool is_always_lock_free = inner::is_always_lock_free;

    /// Constructs an atomic with the value `T{}`.
    constexpr atomic() noexcept : value_(T{}) {}
    /// Constructs an atomic.
    constexpr atomic(T initial) noexcept : value_(initial) {}
    atomic(const atomic&) = delete;
    atomic& operator=(const atomic&) = delete;

    /// Returns whether no lock is needed.
    bool is_lock_free() const noexcept { return value_.is_lock_free(); }
    /// Returns the value.
    T load(order o = seq_cst) const noexcept {
        const after at_end;
        return value_.load(o);
    }
    /// Sets the value.
    void store(T value, order o = seq_cst) noexcept {
        const after at_end;
        value_.store(value, o);
    }
    /// Sets the value. Returns the previous value, as do the fetch functions.
    T exchange(T value, order o = seq_cst) noexcept {
        const after at_end;
        return value_.exchange(value, o);
    }
    /// Sets the value to `desired` if it is `expected`; sets `expected` otherwise.
    bool compare_exchange_strong(T& expected, T desired, order success, order failure) noexcept {
        const after at_end;
        return value_.compare_exchange_strong(expected, desired, success, failure);
    }
    /// Does the same, with the order of std::atomic for a failure.
    bool compare_exchange_strong(T& expected, T desired, order o = seq_cst) noexcept {
        const after at_end;
        return value_.compare_exchange_strong(expected, desired, o);
    }
    /// Is compare_exchange_strong(). In a simulation, it does not fail without a reason.
    bool compare_exchange_weak(T& expected, T desired, order success, order failure) noexcept {
        return compare_exchange_strong(expected, desired, success, failure);
    }
    /// Does the same, with the order of std::atomic for a failure.
    bool compare_exchange_weak(T& expected, T desired, order o = seq_cst) noexcept {
        return compare_exchange_strong(expected, desired, o);
    }
    /// Adds to the value.
    T fetch_add(difference_type by, order o = seq_cst) noexcept {
        const after at_end;
        return value_.fetch_add(by, o);
    }
    /// Subtracts from the value.
    T fetch_sub(difference_type by, order o = seq_cst) noexcept {
        const after at_end;
        return value_.fetch_sub(by, o);
    }
    /// Keeps the bits that are also in `by`.
    T fetch_and(T by, order o = seq_cst) noexcept {
        const after at_end;
        return value_.fetch_and(by, o);
    }
    /// Adds the bits of `by`.
    T fetch_or(T by, order o = seq_cst) noexcept {
        const after at_end;
        return value_.fetch_or(by, o);
    }
    /// Flips the bits of `by`.
    T fetch_xor(T by, order o = seq_cst) noexcept {
        const after at_end;
        return value_.fetch_xor(by, o);
    }

    /// Returns the value.
    operator T() const noexcept { return load(); }
    /// Sets the value. Returns it.
    T operator=(T value) noexcept {
        store(value);
        return value;
    }
    /// Adds 1. Returns the new value.
    T operator++() noexcept { return static_cast<T>(fetch_add(1) + 1); }
    /// Adds 1. Returns the previous value.
    T operator++(int) noexcept { return fetch_add(1); }
    /// Subtracts 1. Returns the new value.
    T operator--() noexcept { return static_cast<T>(fetch_sub(1) - 1); }
    /// Subtracts 1. Returns the previous value.
    T operator--(int) noexcept { return fetch_sub(1); }

private:
    inner value_;
};

}}} // namespace bide::BIDE_ABI::test

#endif
