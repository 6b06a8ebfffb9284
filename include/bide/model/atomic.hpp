// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_ATOMIC_HPP
#define BIDE_MODEL_ATOMIC_HPP

/// \file
/// Atomics, fences and plain data for a body, which is a checked program (model/check.hpp). The
/// checker decides the order of their steps.

#include <bide/model/detail/ops.hpp>

#include <array>
#include <bit>
#include <cstring>

namespace bide { inline namespace BIDE_ABI { namespace model {

namespace detail {

template <class T> ops::bits to_bits(T value) noexcept {
    static_assert(std::is_trivially_copyable_v<T>, "as std::atomic asks for");
    static_assert(sizeof(T) <= sizeof(ops::bits), "the checker has atomics of at most eight bytes");
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
    if constexpr (!std::has_unique_object_representations_v<T>) {
        __builtin_clear_padding(&value); // padding is not compared
    }
#endif
#endif
    ops::bits out = 0;
    std::memcpy(&out, &value, sizeof value);
    return out;
}

template <class T> T from_bits(ops::bits value) noexcept {
    std::array<unsigned char, sizeof(T)> out;
    std::memcpy(&out, &value, sizeof out);
    return std::bit_cast<T>(out);
}

// Stands for the default failure order of a compare-exchange, which failure_of() computes.
inline constexpr std::memory_order derived = static_cast<std::memory_order>(-1);

constexpr std::memory_order failure_of(std::memory_order success) noexcept {
    return success == std::memory_order_acq_rel   ? std::memory_order_acquire
           : success == std::memory_order_release ? std::memory_order_relaxed
                                                  : success;
}

} // namespace detail

/// The source position of a call, as the last two parameters of a function.
#define BIDE_MODEL_SITE int line = __builtin_LINE(), const char *file = __builtin_FILE()

/// Is the checker's replacement for std::atomic. T is an integer, bool, an enumeration, a pointer,
/// or another trivially copyable type of at most eight bytes. The class has all operations of
/// std::atomic. An operation that std::atomic<T> does not have does not compile. A report shows the
/// source position of a call such as load(), but not the position of an operator such as ++.
/// Requires: a body constructs and uses the object.
template <class T> class atomic {
    using order = std::memory_order;
    using bits = detail::ops::bits;
    using site = detail::ops::site;
    static constexpr order seq_cst = std::memory_order_seq_cst;

public:
    /// The type of the value.
    using value_type = T;
    /// The type of the operand of fetch_add() and fetch_sub().
    using difference_type = std::conditional_t<std::is_pointer_v<T>, std::ptrdiff_t, T>;
    /// Always true: the modelled machine has a word of this size.
    static constexpr bool is_always_lock_free = true;

    /// Constructs an atomic with the value T().
    constexpr atomic() noexcept : atomic(T{}) {}
    /// Constructs an atomic with the value `initial`.
    constexpr atomic(T initial) noexcept {
        if (!std::is_constant_evaluated()) {
            object_ = detail::ops::make_atomic(detail::to_bits(initial));
        }
    }
    atomic(const atomic&) = delete;
    atomic& operator=(const atomic&) = delete;
    /// Ends the lifetime of the atomic. Fails the execution if some access to the atomic does not
    /// happen before the destruction.
    BIDE_INLINE ~atomic() { detail::ops::drop_atomic(object_); }

    // Each operation acts as that of std::atomic.

    /// Returns true.
    bool is_lock_free() const noexcept { return true; }
    /// Returns the value.
    T load(order o = seq_cst, BIDE_MODEL_SITE) const noexcept {
        return detail::from_bits<T>(detail::ops::load(object_, o, {file, line}));
    }
    /// Sets the value.
    void store(T value, order o = seq_cst, BIDE_MODEL_SITE) noexcept {
        detail::ops::store(object_, detail::to_bits(value), o, {file, line});
    }
    /// Sets the value. Returns the previous value, as do the next five functions.
    T exchange(T value, order o = seq_cst, BIDE_MODEL_SITE) noexcept {
        return modify([](bits, bits to) { return to; }, detail::to_bits(value), o, {file, line});
    }
    /// Adds to the value.
    T fetch_add(difference_type value, order o = seq_cst, BIDE_MODEL_SITE) noexcept {
        return modify(
            [](bits was, bits by) {
                if constexpr (std::is_floating_point_v<T>) {
                    return detail::to_bits(detail::from_bits<T>(was) + detail::from_bits<T>(by));
                } else {
                    return narrowed(was + by);
                }
            },
            scaled(value), o, {file, line});
    }
    /// Subtracts from the value.
    T fetch_sub(difference_type value, order o = seq_cst, BIDE_MODEL_SITE) noexcept {
        if constexpr (std::is_floating_point_v<T>) {
            return fetch_add(-value, o, line, file);
        } else {
            return modify([](bits was, bits by) { return narrowed(was - by); }, scaled(value), o,
                          {file, line});
        }
    }
    /// Clears the bits that are not in `value`.
    T fetch_and(T value, order o = seq_cst, BIDE_MODEL_SITE) noexcept {
        return modify([](bits was, bits by) { return was & by; }, integer(value), o, {file, line});
    }
    /// Sets the bits that are in `value`.
    T fetch_or(T value, order o = seq_cst, BIDE_MODEL_SITE) noexcept {
        return modify([](bits was, bits by) { return was | by; }, integer(value), o, {file, line});
    }
    /// Inverts the bits that are in `value`.
    T fetch_xor(T value, order o = seq_cst, BIDE_MODEL_SITE) noexcept {
        return modify([](bits was, bits by) { return was ^ by; }, integer(value), o, {file, line});
    }

    /// Sets the value to `desired` if it is `expected`, and returns true. Otherwise sets `expected`
    /// to the value.
    bool compare_exchange_strong(T& expected, T desired, order success = seq_cst,
                                 order failure = detail::derived, BIDE_MODEL_SITE) noexcept {
        return compare(expected, desired, success, failure, false, {file, line});
    }
    /// \overload
    /// In each thread, at most options::weak_failures calls fail spuriously.
    bool compare_exchange_weak(T& expected, T desired, order success = seq_cst,
                               order failure = detail::derived, BIDE_MODEL_SITE) noexcept {
        return compare(expected, desired, success, failure, true, {file, line});
    }

    /// Sleeps while the value is `old`. Reads the value again after each notification.
    void wait(T old, order o = seq_cst, BIDE_MODEL_SITE) const noexcept {
        const bits word = detail::to_bits(old);
        while (detail::ops::load(object_, o, {file, line}) == word) {
            detail::ops::futex_wait(object_, this, word, sizeof(T),
                                    (std::numeric_limits<std::int64_t>::max)(), {file, line});
        }
    }
    /// Wakes one of the threads in wait().
    void notify_one(BIDE_MODEL_SITE) noexcept { detail::ops::futex_wake(this, 1, {file, line}); }
    /// Wakes all threads in wait().
    void notify_all(BIDE_MODEL_SITE) noexcept {
        detail::ops::futex_wake(this, (std::numeric_limits<int>::max)(), {file, line});
    }

    /// Is load().
    operator T() const noexcept { return load(); }
    /// Is store().
    T operator=(T value) noexcept {
        store(value);
        return value;
    }
    /// Is fetch_add(1) + 1.
    T operator++() noexcept { return static_cast<T>(fetch_add(1) + 1); }
    /// Is fetch_add(1).
    T operator++(int) noexcept { return fetch_add(1); }
    /// Is fetch_sub(1) - 1.
    T operator--() noexcept { return static_cast<T>(fetch_sub(1) - 1); }
    /// Is fetch_sub(1).
    T operator--(int) noexcept { return fetch_sub(1); }
    /// Is fetch_add(by) + by.
    T operator+=(difference_type by) noexcept { return static_cast<T>(fetch_add(by) + by); }
    /// Is fetch_sub(by) - by.
    T operator-=(difference_type by) noexcept { return static_cast<T>(fetch_sub(by) - by); }
    /// Is fetch_and(by) & by.
    T operator&=(T by) noexcept { return static_cast<T>(fetch_and(by) & by); }
    /// Is fetch_or(by) | by.
    T operator|=(T by) noexcept { return static_cast<T>(fetch_or(by) | by); }
    /// Is fetch_xor(by) ^ by.
    T operator^=(T by) noexcept { return static_cast<T>(fetch_xor(by) ^ by); }

    /// Returns the number of the atomic in this execution.
    int object() const noexcept { return object_; }

private:
    static bits integer(T value) noexcept {
        static_assert(std::is_integral_v<T>, "as std::atomic asks for");
        return detail::to_bits(value);
    }
    static bits scaled(difference_type by) noexcept {
        static_assert(std::is_arithmetic_v<difference_type> && !std::is_same_v<T, bool>,
                      "as std::atomic asks for");
        if constexpr (std::is_pointer_v<T>) {
            by *= static_cast<difference_type>(sizeof(*T{}));
        }
        return detail::to_bits(by);
    }
    static bits narrowed(bits value) noexcept {
        return detail::to_bits(detail::from_bits<T>(value));
    }
    T modify(bits (*next)(bits, bits), bits operand, order o, site s) noexcept {
        return detail::from_bits<T>(detail::ops::modify(object_, next, operand, o, s));
    }
    bool compare(T& expected, T desired, order success, order failure, bool weak, site s) noexcept {
        if (failure == detail::derived) {
            failure = detail::failure_of(success);
        }
        bits seen = detail::to_bits(expected);
        const bool done = detail::ops::compare_exchange(object_, seen, detail::to_bits(desired),
                                                        success, failure, weak, s);
        expected = detail::from_bits<T>(seen);
        return done;
    }

    int object_ = -1;
};

/// Is the std::atomic_flag of the checker.
class atomic_flag : atomic<bool> {
    using order = std::memory_order;

public:
    /// Constructs a flag that is not set.
    atomic_flag() noexcept : atomic<bool>(false) {}
    /// Sets the flag. Returns whether it was set before.
    bool test_and_set(order o = order::seq_cst, BIDE_MODEL_SITE) noexcept {
        return exchange(true, o, line, file);
    }
    /// Returns whether the flag is set.
    bool test(order o = order::seq_cst, BIDE_MODEL_SITE) const noexcept {
        return load(o, line, file);
    }
    /// Clears the flag.
    void clear(order o = order::seq_cst, BIDE_MODEL_SITE) noexcept { store(false, o, line, file); }
    using atomic<bool>::wait;
    using atomic<bool>::notify_one;
    using atomic<bool>::notify_all;
};

/// Is plain data that is checked for data races. It converts to a T, and a T can be assigned to it.
template <class T> class var : public detail::var_operators<var<T>, T> {
    // The functions are inlined even without optimisation, so that an access has the line of the
    // user's code.
public:
    /// Constructs it with the value T(). Counts as a write.
    BIDE_INLINE constexpr var() noexcept : var(T{}) {}
    /// Constructs it with the value `initial`. Counts as a write.
    BIDE_INLINE constexpr var(T initial) noexcept : value_(initial) {
        if (!std::is_constant_evaluated()) {
            object_ = detail::ops::make_plain();
            detail::ops::plain_write(object_, this);
        }
    }
    /// Constructs a copy. Counts as a read of `other`.
    BIDE_INLINE var(const var& other) noexcept : var(static_cast<T>(other)) {}
    /// Ends the lifetime. Fails the execution if some access does not happen before the
    /// destruction.
    BIDE_INLINE ~var() { detail::ops::drop_plain(object_); }

    /// Assigns a copy. Counts as a read of `other` and a write of this.
    BIDE_INLINE var& operator=(const var& other) noexcept { return *this = static_cast<T>(other); }
    /// Writes a value.
    BIDE_INLINE var& operator=(T value) noexcept {
        detail::ops::plain_write(object_, this);
        value_ = value;
        return *this;
    }
    /// Reads the value.
    BIDE_INLINE operator T() const noexcept {
        detail::ops::plain_read(object_, this);
        return value_;
    }

private:
    T value_;
    int object_ = -1;
};

/// Is the std::atomic_thread_fence() of the checker.
inline void fence(std::memory_order o, BIDE_MODEL_SITE) noexcept {
    detail::ops::fence(o, {file, line});
}

}}} // namespace bide::BIDE_ABI::model

#endif
