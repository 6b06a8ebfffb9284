#ifndef BIDE_SYNC_SYNCHRONIZED_VALUE_HPP
#define BIDE_SYNC_SYNCHRONIZED_VALUE_HPP

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/core/waiter.hpp>
#include <bide/fwd.hpp>
#include <bide/sync/mutex.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

// A value that can only be reached under its lock (the name is Concurrency TS 2's). Any Lockable
// will do for Mutex; async_lock() needs one of bide's.
template <class T, class Mutex> class synchronized_value {
public:
    using value_type = T;
    using mutex_type = Mutex;

    // Throws: what T's constructor throws.
    template <class... Args>
        requires std::is_constructible_v<T, Args...>
    explicit synchronized_value(Args&&... args) : value_(std::forward<Args>(args)...) {}

    synchronized_value(const synchronized_value&) = delete;
    synchronized_value& operator=(const synchronized_value&) = delete;

    // The value while its lock is held.
    class [[nodiscard]] locked {
    public:
        locked() noexcept = default; // empty
        locked(locked&& other) noexcept
            : held_(std::move(other.held_)), value_(std::exchange(other.value_, nullptr)) {}
        locked& operator=(locked&& other) noexcept {
            if (this != &other) { // std::unique_lock gives its lock back when it is moved to itself
                held_ = std::move(other.held_);
                value_ = std::exchange(other.value_, nullptr);
            }
            return *this;
        }

        // Requires: not empty.
        T& operator*() const noexcept { return *value_; }
        T* operator->() const noexcept { return value_; }

        explicit operator bool() const noexcept { return value_ != nullptr; }

        // Gives the lock back; empty from now on.
        void unlock() noexcept {
            if (std::exchange(value_, nullptr) != nullptr) {
                held_.unlock();
            }
        }

    private:
        friend class synchronized_value;
        locked(std::unique_lock<Mutex> held, T& value) noexcept
            : held_(std::move(held)), value_(std::addressof(value)) {}

        std::unique_lock<Mutex> held_;
        T* value_ = nullptr;
    };

    // Blocks: as Mutex::lock().
    locked lock() { return locked(std::unique_lock(mutex_), value_); }

    // Empty when taken.
    locked try_lock() {
        std::unique_lock held(mutex_, std::try_to_lock);
        return held ? locked(std::move(held), value_) : locked();
    }

    // As lock(), for a coroutine.
    auto async_lock()
        requires requires(Mutex& m) { m.async_lock(); }
    {
        return mutex_.template async_lock_as<locked, &collect>(this);
    }

    // f(value) under the lock. Throws: what f throws; the lock is given back.
    template <class F> decltype(auto) with(F&& f) {
        const std::lock_guard held(mutex_);
        return std::invoke(std::forward<F>(f), value_);
    }

private:
    static result<locked> collect(const wait_target& t, wait_status what) noexcept {
        if (what != wait_status::granted) {
            return unexpected{errc_of(what)};
        }
        auto& self = *static_cast<synchronized_value*>(t.owner);
        return locked(std::unique_lock(self.mutex_, std::adopt_lock), self.value_);
    }

    Mutex mutex_;
    T value_;
};

} // namespace bide::inline BIDE_ABI

#endif
