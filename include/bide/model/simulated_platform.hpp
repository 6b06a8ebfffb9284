// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_SIMULATED_PLATFORM_HPP
#define BIDE_MODEL_SIMULATED_PLATFORM_HPP

/// \file
/// The platform of a simulated machine (core/platform.hpp says what a platform is). If a template
/// of the library or of the user is instantiated with it, the code runs on the threads of a
/// model::machine. Its objects have the layout in memory that they have on the native platform.

#include <bide/core/platform.hpp>
#include <bide/model/detail/ops.hpp>
#include <bide/model/machine.hpp>

#include <cstring>
#include <stop_token>
#include <system_error>

namespace bide { inline namespace BIDE_ABI { namespace model {
namespace detail {

inline void touch(const void* address, machine::access how) noexcept {
    if (machine* const m = machine::here()) {
        m->touch(address, how);
    }
}

} // namespace detail

/// Is an atomic in the memory of a machine, with the members of a std::atomic. Outside of the
/// threads of a machine, an access costs nothing.
template <class T> class simulated_atomic {
    using order = std::memory_order;
    static constexpr order seq_cst = order::seq_cst;

public:
    using value_type = T; ///< Names the type of the value.
    /// Names the type of the operand of fetch_add().
    using difference_type = std::conditional_t<std::is_pointer_v<T>, std::ptrdiff_t, T>;
    /// Says that no lock is needed.
    static constexpr bool is_always_lock_free = true;

    /// Constructs an atomic with the value `T{}`.
    constexpr simulated_atomic() noexcept = default;
    /// Constructs an atomic.
    constexpr simulated_atomic(T value) noexcept : value_(value) {}
    simulated_atomic(const simulated_atomic&) = delete;
    simulated_atomic& operator=(const simulated_atomic&) = delete;

    /// Returns true.
    bool is_lock_free() const noexcept { return true; }
    /// Returns the value.
    T load(order = seq_cst) const noexcept {
        detail::touch(this, machine::access::load);
        return value_;
    }
    /// Sets the value.
    void store(T value, order o = seq_cst) noexcept {
        if (o == seq_cst) {
            exchange(value);
        } else {
            detail::touch(this, machine::access::store);
            value_ = value;
        }
    }
    /// Sets the value. Returns the previous value, as do the next five functions.
    T exchange(T value, order = seq_cst) noexcept {
        return modify([=](T) { return value; });
    }
    /// Sets the value to `desired` if it is `expected`; sets `expected` otherwise.
    bool compare_exchange_strong(T& expected, T desired, order = seq_cst,
                                 order = seq_cst) noexcept {
        detail::touch(this, machine::access::modify);
        const bool is_equal = std::memcmp(&value_, &expected, sizeof(T)) == 0;
        (is_equal ? value_ : expected) = is_equal ? desired : value_;
        return is_equal;
    }
    /// Is compare_exchange_strong().
    bool compare_exchange_weak(T& expected, T desired, order a = seq_cst,
                               order b = seq_cst) noexcept {
        return compare_exchange_strong(expected, desired, a, b);
    }
    /// Adds to the value.
    T fetch_add(difference_type by, order = seq_cst) noexcept {
        return modify([=](T was) { return static_cast<T>(was + by); });
    }
    /// Subtracts from the value.
    T fetch_sub(difference_type by, order = seq_cst) noexcept {
        return modify([=](T was) { return static_cast<T>(was - by); });
    }
    /// Keeps the bits that are also in `by`.
    T fetch_and(T by, order = seq_cst) noexcept {
        return modify([=](T was) { return static_cast<T>(was & by); });
    }
    /// Adds the bits of `by`.
    T fetch_or(T by, order = seq_cst) noexcept {
        return modify([=](T was) { return static_cast<T>(was | by); });
    }
    /// Flips the bits of `by`.
    T fetch_xor(T by, order = seq_cst) noexcept {
        return modify([=](T was) { return static_cast<T>(was ^ by); });
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

    /// Returns the value without an access.
    T peek() const noexcept { return value_; }

private:
    template <class F> T modify(F next) noexcept {
        detail::touch(this, machine::access::modify);
        return std::exchange(value_, next(value_));
    }

    alignas(sizeof(T)) T value_{};
};

/// Is plain data in the memory of a machine.
template <class T> class simulated_var : public detail::var_operators<simulated_var<T>, T> {
public:
    /// Constructs a `T{}`.
    constexpr simulated_var() noexcept = default;
    /// Constructs a copy of `value`.
    constexpr simulated_var(T value) noexcept : value_(value) {}
    /// Constructs a copy of what `other` contains.
    simulated_var(const simulated_var& other) noexcept : simulated_var(static_cast<T>(other)) {}

    /// Copies what `other` contains.
    simulated_var& operator=(const simulated_var& other) noexcept {
        return *this = static_cast<T>(other);
    }
    /// Writes the value.
    simulated_var& operator=(T value) noexcept {
        detail::touch(this, machine::access::store);
        value_ = value;
        return *this;
    }
    /// Reads the value.
    operator T() const noexcept {
        detail::touch(this, machine::access::load);
        return value_;
    }

private:
    T value_{};
};

/// Is the platform of the threads of a machine.
struct simulated_platform {
    /// Says that the program runs, and that no model checker explores it.
    static constexpr bool model = false;
    /// Says how often a waiter reads a held lock before it sleeps.
    static constexpr int lock_looks = 5;

    /// Names the atomic type.
    template <class T> using atomic = simulated_atomic<T>;
    /// Names the type of plain shared data.
    template <class T> using var = simulated_var<T>;
    /// Names the type that requests a stop. A stop costs nothing.
    using stop_source = std::stop_source;
    /// Names the type by which a wait learns of a stop.
    using stop_token = std::stop_token;
    /// Names the type that calls an F at a stop.
    template <class F> using stop_callback = std::stop_callback<F>;

    /// Waits until the stores of the thread are done, if the order is seq_cst.
    static void fence(std::memory_order order) noexcept {
        if (machine* const m = machine::here();
            m != nullptr && order == std::memory_order_seq_cst) {
            m->fence();
        }
    }
    /// Does nothing: heavy_fence() does the work of both.
    static void light_fence() noexcept {}
    /// Costs what membarrier(2) costs. Returns true.
    static bool heavy_fence() noexcept {
        if (machine* const m = machine::here()) {
            m->barrier();
        }
        return true;
    }
    /// Costs one pause of a thread that spins.
    static void pause() noexcept {
        if (machine* const m = machine::here()) {
            m->pause();
        }
    }
    /// Lets the next thread of the processor run.
    static void yield() noexcept {
        if (machine* const m = machine::here()) {
            m->yield();
        }
    }
    /// Does nothing.
    static void prefetch(const void*) noexcept {}
    /// Returns the time of the machine in nanoseconds.
    static std::int64_t now() noexcept {
        machine* const m = machine::here();
        return m != nullptr ? m->now_ns() : 0;
    }
    /// Sleeps while `word` contains `expected`. Returns false after a time-out.
    template <class Word>
    static bool futex_wait(const atomic<Word>& word, Word expected, std::int64_t until) noexcept {
        machine* const m = machine::here();
        return m == nullptr || m->sleep(&word, [&] { return word.peek() != expected; }, until);
    }
    /// Wakes at most `count` of the threads that sleep on `word`.
    template <class Word> static void futex_wake(const atomic<Word>* word, int count) noexcept {
        if (machine* const m = machine::here()) {
            m->wake(word, count);
        }
    }
    /// Returns true if the machine has one processor.
    static bool single_cpu() noexcept {
        machine* const m = machine::here();
        return m != nullptr && m->processors() == 1;
    }
    /// Returns the T of this thread.
    template <class T> static T& local() noexcept {
        static constexpr char key = 0;
        static constinit T outside{};
        machine* const m = machine::here();
        return m == nullptr ? outside
                            : *static_cast<T*>(m->local(
                                  &key, [] { return static_cast<void*>(new T{}); },
                                  [](void* of) { delete static_cast<T*>(of); }));
    }
    /// Is local().
    template <class T> static T& near_local() noexcept { return local<T>(); }
    /// Starts a thread of the machine that calls call(argument).
    static std::error_code start_thread(void (*call)(void*) noexcept, void* argument) {
        machine::here()->start([call, argument] { call(argument); });
        return {};
    }
};

}}} // namespace bide::BIDE_ABI::model

#endif
