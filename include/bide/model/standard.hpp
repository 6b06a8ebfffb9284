// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_STANDARD_HPP
#define BIDE_MODEL_STANDARD_HPP

/// \file
/// The standard library's locks, condition variables and stop tokens for bodies, with its names: a class
/// that takes them from its platform can be checked as it is.
///
/// \code
/// struct checked : bide::model::platform {
///     using mutex = bide::model::mutex;
///     using condition_variable = bide::model::condition_variable;
/// };
/// struct native : bide::native_platform {
///     using mutex = std::mutex;
///     using condition_variable = std::condition_variable;
/// };
/// \endcode
///
/// Thread-local state: platform::local<T>(). Threads in a deadlock of these locks are reported to spin for
/// ever.

#include <bide/core/config.hpp>
#include <bide/model/platform.hpp>

#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

namespace bide::inline BIDE_ABI::model {

/// Is std::mutex of the checker. Which of the waiting threads is next is open.
class mutex {
public:
    /// Locks. Blocks: while another thread has the lock.
    void lock(BIDE_MODEL_SITE) noexcept {
        while (!try_lock(line, file)) {
            platform::pause();
        }
    }
    /// Locks if it is free.
    bool try_lock(BIDE_MODEL_SITE) noexcept {
        bool held = false;
        return held_.compare_exchange_strong(held, true, std::memory_order_acquire,
                                             std::memory_order_relaxed, line, file);
    }
    /// Unlocks.
    void unlock(BIDE_MODEL_SITE) noexcept {
        held_.store(false, std::memory_order_release, line, file);
    }

private:
    atomic<bool> held_{false};
};

/// Is std::condition_variable of the checker, for any lock. A wait ends for no reason as often as
/// options::spurious says, and times out as often as options::timeouts says.
class condition_variable {
public:
    /// Unlocks, waits for a notification, and locks again.
    template <class Lock> void wait(Lock& lock, BIDE_MODEL_SITE) { sleep(lock, never, line, file); }
    /// Waits until `holds()`.
    template <class Lock, class Predicate>
        requires std::predicate<Predicate&>
    void wait(Lock& lock, Predicate holds, BIDE_MODEL_SITE) {
        while (!holds()) {
            sleep(lock, never, line, file);
        }
    }
    /// Waits at most for `rest`.
    template <class Lock, class Rep, class Period>
    std::cv_status wait_for(Lock& lock, std::chrono::duration<Rep, Period> rest, BIDE_MODEL_SITE) {
        const bool in_time = sleep(lock, until(rest), line, file);
        return in_time ? std::cv_status::no_timeout : std::cv_status::timeout;
    }
    /// Waits at most for `rest` until `holds()`. Returns: what it says in the end.
    template <class Lock, class Rep, class Period, class Predicate>
        requires std::predicate<Predicate&>
    bool wait_for(Lock& lock, std::chrono::duration<Rep, Period> rest, Predicate holds,
                  BIDE_MODEL_SITE) {
        const std::int64_t end = until(rest);
        while (!holds()) {
            if (!sleep(lock, end, line, file)) {
                return holds();
            }
        }
        return true;
    }
    /// Wakes one of those that wait, if any do.
    void notify_one(BIDE_MODEL_SITE) noexcept { notify(1, line, file); }
    /// Wakes all that wait.
    void notify_all(BIDE_MODEL_SITE) noexcept {
        notify((std::numeric_limits<int>::max)(), line, file);
    }

private:
    static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();

    template <class Rep, class Period>
    static std::int64_t until(std::chrono::duration<Rep, Period> rest) {
        return platform::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(rest).count();
    }
    // It synchronises nothing: the lock does.
    template <class Lock> bool sleep(Lock& lock, std::int64_t end, int line, const char* file) {
        const std::uint32_t before = changes_.load(std::memory_order_relaxed, line, file);
        lock.unlock();
        const bool in_time = platform::futex_wait(changes_, before, end, line, file);
        lock.lock();
        return in_time;
    }
    void notify(int count, int line, const char* file) noexcept {
        changes_.fetch_add(1, std::memory_order_relaxed, line, file);
        platform::futex_wake(&changes_, count, line, file);
    }

    atomic<std::uint32_t> changes_{0};
};

namespace detail {

// What a stop_source and its tokens and callbacks share.
class stop_state {
public:
    struct callback {
        std::function<void()> run;
        callback* next = nullptr;
        bool listed = false;       // under lock_
        atomic<bool> ended{false}; // run() has returned
        bool* destroyed = nullptr; // set by the destruction within run()
    };

    void refer() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void drop() noexcept {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete this;
        }
    }
    bool requested() const noexcept { return requested_.load(std::memory_order_acquire); }

    bool request() {
        lock_.lock();
        if (requested_.load(std::memory_order_relaxed)) {
            lock_.unlock();
            return false;
        }
        stopper_ = &here();
        requested_.store(true, std::memory_order_release);
        while (callback* const next = first_) {
            first_ = next->next;
            next->listed = false;
            lock_.unlock();
            bool destroyed = false;
            next->destroyed = &destroyed;
            next->run();
            if (!destroyed) {
                next->ended.store(true, std::memory_order_release);
            }
            lock_.lock();
        }
        lock_.unlock();
        return true;
    }

    // Returns false if a stop was requested before.
    bool add(callback& c) noexcept {
        lock_.lock();
        const bool late = requested_.load(std::memory_order_relaxed);
        if (!late) {
            c.next = first_;
            first_ = &c;
            c.listed = true;
        }
        lock_.unlock();
        return !late;
    }

    // It does not run any more when this returns, unless this thread runs it.
    void remove(callback& c) noexcept {
        lock_.lock();
        const bool listed = c.listed;
        if (listed) {
            callback** at = &first_;
            while (*at != &c) {
                at = &(*at)->next;
            }
            *at = c.next;
        }
        const void* const stopper = stopper_;
        lock_.unlock();
        if (listed) {
            return;
        }
        if (stopper == &here()) {
            if (c.destroyed != nullptr) {
                *c.destroyed = true;
            }
            return;
        }
        while (!c.ended.load(std::memory_order_acquire)) {
            platform::pause();
        }
    }

private:
    struct mark {
        char of_thread = 0;
    };
    static mark& here() noexcept { return platform::local<mark>(); }

    atomic<std::uint32_t> references_{1};
    atomic<bool> requested_{false};
    mutex lock_;
    callback* first_ = nullptr;
    const void* stopper_ = nullptr;
};

// Owns a reference, or none.
class stop_reference {
public:
    stop_reference() noexcept = default;
    explicit stop_reference(stop_state* taken) noexcept : state_(taken) {}
    stop_reference(const stop_reference& other) noexcept : state_(other.state_) {
        if (state_ != nullptr) {
            state_->refer();
        }
    }
    stop_reference(stop_reference&& other) noexcept
        : state_(std::exchange(other.state_, nullptr)) {}
    stop_reference& operator=(stop_reference other) noexcept {
        std::swap(state_, other.state_);
        return *this;
    }
    ~stop_reference() {
        if (state_ != nullptr) {
            state_->drop();
        }
    }
    stop_state* get() const noexcept { return state_; }

private:
    stop_state* state_ = nullptr;
};

} // namespace detail

/// Is std::stop_token of the checker.
class stop_token {
public:
    /// Makes a token that is never stopped.
    stop_token() noexcept = default;
    /// Returns whether a stop was requested.
    bool stop_requested() const noexcept {
        return state_.get() != nullptr && state_.get()->requested();
    }
    /// Returns whether it belongs to a source.
    bool stop_possible() const noexcept { return state_.get() != nullptr; }

private:
    friend class stop_source;
    template <class F> friend class stop_callback;
    explicit stop_token(detail::stop_reference state) noexcept : state_(std::move(state)) {}

    detail::stop_reference state_;
};

/// Is std::stop_source of the checker.
class stop_source {
public:
    /// Makes a source of its own. Allocates.
    stop_source() : state_(new detail::stop_state) {}
    /// Returns a token of this source.
    stop_token get_token() const noexcept { return stop_token(state_); }
    /// Requests a stop: runs the callbacks, on this thread.
    /// Returns: whether it is the first request.
    bool request_stop() { return state_.get()->request(); }
    /// Returns whether a stop was requested.
    bool stop_requested() const noexcept { return state_.get()->requested(); }

private:
    detail::stop_reference state_;
};

/// Is std::stop_callback of the checker.
template <class F> class stop_callback {
public:
    /// Runs `run` when a stop is requested; at once, if it was before.
    template <class G> stop_callback(stop_token token, G&& run) : state_(std::move(token.state_)) {
        callback_.run = std::forward<G>(run);
        if (state_.get() != nullptr && !state_.get()->add(callback_)) {
            state_ = {};
            callback_.run();
        }
    }
    stop_callback(const stop_callback&) = delete;
    stop_callback& operator=(const stop_callback&) = delete;
    /// Takes it back. Blocks: while another thread runs it.
    ~stop_callback() {
        if (state_.get() != nullptr) {
            state_.get()->remove(callback_);
        }
    }

private:
    detail::stop_reference state_;
    detail::stop_state::callback callback_;
};
/// Deduces the type of the callback.
template <class F> stop_callback(stop_token, F) -> stop_callback<F>;

} // namespace bide::inline BIDE_ABI::model

#endif
