// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_SYNCHRONIZED_VALUE_HPP
#define BIDE_SYNC_SYNCHRONIZED_VALUE_HPP

/// \file
/// A value with its mutex.
#include <bide/core/result.hpp>
#include <bide/sync/mutex.hpp>

#include <functional>
#include <memory>

namespace bide { inline namespace BIDE_ABI {

/// A value that is accessed only while its mutex is locked. The name comes from the Concurrency TS
/// 2. Mutex is any Lockable; async_lock() requires a mutex of bide.
///
/// \code
/// bide::synchronized_value<std::vector<int>> numbers;
/// numbers.lock()->push_back(1); // unlocks at the end of the statement
/// numbers.with([](std::vector<int>& all) { all.push_back(2); });
/// auto held = co_await numbers.async_lock(); // in a coroutine
/// held->push_back(3);
/// \endcode
template <class T, class Mutex> class synchronized_value {
public:
    /// The type of the value.
    using value_type = T;
    /// The type of the mutex.
    using mutex_type = Mutex;

    /// Constructs the value from `args`.
    /// Throws: what the constructor of T throws.
    template <class... Args>
        requires std::is_constructible_v<T, Args...>
    explicit synchronized_value(Args&&... args) : value_(std::forward<Args>(args)...) {}

    synchronized_value& operator=(synchronized_value&&) = delete;

    /// Access to the value while its mutex is locked.
    class [[nodiscard]] locked {
    public:
        /// Constructs an empty object, which locks nothing.
        locked() noexcept = default;
        /// Takes over the lock of `other`. After that, `other` is empty.
        locked(locked&& other) noexcept
            : held_(std::move(other.held_)), value_(std::exchange(other.value_, nullptr)) {}
        /// Unlocks its mutex and takes over the lock of `other`.
        locked& operator=(locked other) noexcept {
            std::swap(held_, other.held_);
            std::swap(value_, other.value_);
            return *this;
        }

        /// Returns the value.
        /// Requires: this object is not empty.
        T& operator*() const noexcept { return *value_; }
        /// Accesses a member of the value.
        /// Requires: this object is not empty.
        T* operator->() const noexcept { return value_; }

        /// Returns true if it locks a value.
        explicit operator bool() const noexcept { return value_ != nullptr; }

        /// Returns the lock, for a condition_variable: changed.wait(value.as_lock(), predicate).
        /// Requires: the caller leaves the lock as it was, locked or empty.
        std::unique_lock<Mutex>& as_lock() noexcept { return held_; }

        /// Unlocks the mutex. After that, this object is empty.
        void unlock() noexcept {
            if (std::exchange(value_, nullptr) != nullptr) {
                held_.unlock();
            }
        }

    private:
        friend class synchronized_value;
        locked(std::unique_lock<Mutex> held, T& of) noexcept
            : held_(std::move(held)), value_(std::addressof(of)) {}

        std::unique_lock<Mutex> held_;
        T* value_ = nullptr;
    };

    /// Locks the mutex.
    /// Blocks: as Mutex::lock() does.
    /// Returns: access to the value.
    locked lock() { return locked(std::unique_lock(mutex_), value_); }

    /// Locks the mutex if it is free. Never blocks.
    /// Returns: access to the value; empty if the mutex is locked.
    locked try_lock() {
        std::unique_lock held(mutex_, std::try_to_lock);
        return held ? locked(std::move(held), value_) : locked();
    }

    /// Locks the mutex as lock() does, for a coroutine.
    /// Returns: an operation for co_await; its result is access to the value.
    auto async_lock()
        requires requires(Mutex& m) { m.async_lock(); }
    {
        return mutex_.async_lock_as([this]() noexcept {
            return locked(std::unique_lock(mutex_, std::adopt_lock), value_);
        });
    }

    /// Calls f(value) while the mutex is locked.
    /// Blocks: as Mutex::lock() does.
    /// Returns: what f returns.
    /// Throws: what f throws, after the mutex is unlocked.
    template <class F> decltype(auto) with(F&& f) {
        static_assert(!detail::is_task<std::invoke_result_t<F, T&>>,
                      "bide: the mutex is unlocked before a task runs: await async_lock()");
        const std::lock_guard held(mutex_);
        return std::invoke(std::forward<F>(f), value_);
    }

private:
    Mutex mutex_;
    T value_;
};

}} // namespace bide::BIDE_ABI

#endif
