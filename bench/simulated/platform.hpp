// The platform of a simulated machine (core/platform.hpp says what a platform is): a template of the
// library that is instantiated with it runs on simulated threads, with the layout in memory that it
// has on the native platform.
#ifndef BIDE_BENCH_SIMULATED_PLATFORM_HPP
#define BIDE_BENCH_SIMULATED_PLATFORM_HPP

#include "simulated/machine.hpp"

#include <bide/core/platform.hpp>

#include <cstring>
#include <stop_token>
#include <system_error>

namespace simulated {

inline void touch(const void* at, access how) noexcept {
    if (machine* const m = machine::here()) {
        m->touch(at, how);
    }
}

template <class T> class atomic {
    using order = std::memory_order;
    static constexpr order seq_cst = order::seq_cst;

public:
    using value_type = T;
    using difference_type = std::conditional_t<std::is_pointer_v<T>, std::ptrdiff_t, T>;
    static constexpr bool is_always_lock_free = true;

    constexpr atomic() noexcept = default;
    constexpr atomic(T initial) noexcept : value_(initial) {}
    atomic(const atomic&) = delete;
    atomic& operator=(const atomic&) = delete;

    bool is_lock_free() const noexcept { return true; }
    T load(order = seq_cst) const noexcept {
        touch(this, access::load);
        return value_;
    }
    void store(T value, order o = seq_cst) noexcept {
        touch(this, o == seq_cst ? access::modify : access::store);
        value_ = value;
    }
    T exchange(T value, order = seq_cst) noexcept {
        touch(this, access::modify);
        return std::exchange(value_, value);
    }
    bool compare_exchange_strong(T& expected, T desired, order = seq_cst,
                                 order = seq_cst) noexcept {
        touch(this, access::modify);
        if (std::memcmp(&value_, &expected, sizeof(T)) != 0) {
            expected = value_;
            return false;
        }
        value_ = desired;
        return true;
    }
    bool compare_exchange_weak(T& expected, T desired, order a = seq_cst,
                               order b = seq_cst) noexcept {
        return compare_exchange_strong(expected, desired, a, b);
    }
    T fetch_add(difference_type by, order = seq_cst) noexcept {
        touch(this, access::modify);
        return std::exchange(value_, static_cast<T>(value_ + by));
    }
    T fetch_sub(difference_type by, order = seq_cst) noexcept {
        touch(this, access::modify);
        return std::exchange(value_, static_cast<T>(value_ - by));
    }
    T fetch_and(T by, order = seq_cst) noexcept {
        touch(this, access::modify);
        return std::exchange(value_, static_cast<T>(value_ & by));
    }
    T fetch_or(T by, order = seq_cst) noexcept {
        touch(this, access::modify);
        return std::exchange(value_, static_cast<T>(value_ | by));
    }
    T fetch_xor(T by, order = seq_cst) noexcept {
        touch(this, access::modify);
        return std::exchange(value_, static_cast<T>(value_ ^ by));
    }

    operator T() const noexcept { return load(); }
    T operator=(T value) noexcept {
        store(value);
        return value;
    }
    T operator++() noexcept { return static_cast<T>(fetch_add(1) + 1); }
    T operator++(int) noexcept { return fetch_add(1); }
    T operator--() noexcept { return static_cast<T>(fetch_sub(1) - 1); }
    T operator--(int) noexcept { return fetch_sub(1); }

    T peek() const noexcept { return value_; } // at no cost

private:
    alignas(sizeof(T)) T value_{};
};

// Plain data of several threads.
template <class T> class var {
public:
    constexpr var() noexcept = default;
    constexpr var(T initial) noexcept : value_(initial) {}
    var(const var& other) noexcept : value_(other) {}

    var& operator=(const var& other) noexcept { return *this = static_cast<T>(other); }
    var& operator=(T value) noexcept {
        touch(this, access::store);
        value_ = value;
        return *this;
    }
    operator T() const noexcept {
        touch(this, access::load);
        return value_;
    }
    template <class U> var& operator+=(const U& by) noexcept {
        return *this = static_cast<T>(static_cast<T>(*this) + by);
    }
    template <class U> var& operator-=(const U& by) noexcept {
        return *this = static_cast<T>(static_cast<T>(*this) - by);
    }
    var& operator++() noexcept { return *this += 1; }
    var& operator--() noexcept { return *this -= 1; }
    T operator++(int) noexcept {
        const T before = *this;
        *this = static_cast<T>(before + 1);
        return before;
    }
    T operator--(int) noexcept {
        const T before = *this;
        *this = static_cast<T>(before - 1);
        return before;
    }
    T operator->() const noexcept
        requires std::is_pointer_v<T>
    {
        return *this;
    }

private:
    T value_{};
};

struct platform {
    static constexpr bool model = false;
    static constexpr int lock_looks = 5;

    template <class T> using atomic = simulated::atomic<T>;
    template <class T> using var = simulated::var<T>;
    using stop_source = std::stop_source;
    using stop_token = std::stop_token;
    template <class F> using stop_callback = std::stop_callback<F>;

    static void fence(std::memory_order o) noexcept {
        if (machine* const m = machine::here(); m != nullptr && o == std::memory_order_seq_cst) {
            m->fence();
        }
    }
    static void light_fence() noexcept {}
    static bool heavy_fence() noexcept {
        if (machine* const m = machine::here()) {
            m->barrier();
        }
        return true;
    }
    static void pause() noexcept {
        if (machine* const m = machine::here()) {
            m->pause();
        }
    }
    static void yield() noexcept {
        if (machine* const m = machine::here()) {
            m->yield();
        }
    }
    static void prefetch(const void* at) noexcept { touch(at, access::store); }
    static std::int64_t now() noexcept {
        machine* const m = machine::here();
        return m != nullptr ? m->now_ns() : 0;
    }
    static bool single_cpu() noexcept { return false; }

    template <class Word>
    static bool futex_wait(const atomic<Word>& word, Word expected, std::int64_t until) noexcept {
        machine* const m = machine::here();
        return m == nullptr ||
               m->sleep(&word, [&] { return word.peek() != expected; }, until);
    }
    template <class Word> static void futex_wake(const atomic<Word>* word, int count) noexcept {
        if (machine* const m = machine::here()) {
            m->wake(word, count);
        }
    }

    template <class T> static T& local() noexcept {
        static constexpr char key = 0;
        static constinit T outside{}; // of the thread that runs the machine
        machine* const m = machine::here();
        return m == nullptr ? outside
                            : *static_cast<T*>(m->local(
                                  &key, [] { return static_cast<void*>(new T{}); },
                                  [](void* of) { delete static_cast<T*>(of); }));
    }
    template <class T> static T& near_local() noexcept { return local<T>(); }

    static std::error_code start_thread(void (*body)(void*) noexcept, void* argument) {
        machine::here()->start([body, argument] { body(argument); });
        return {};
    }
};

} // namespace simulated

#endif
