#ifndef BIDE_TESTS_SUPPORT_ANY_LOCK_HPP
#define BIDE_TESTS_SUPPORT_ANY_LOCK_HPP

// Locks of every kind behind one interface. A test case of what all of them promise is compiled once, and
// runs for each kind.

#include "support/coroutines.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/waiting.hpp"

#include <bide/core/result.hpp>

#include <support/standard.hpp>

namespace test {

// The outcome of a wait for a lock.
enum class lock_end { nothing_yet, locked, stopped, timeout };

template <class T> lock_end end_of(const bide::result<T>& got) {
    return got                                  ? lock_end::locked
           : got.error() == bide::errc::stopped ? lock_end::stopped
                                                : lock_end::timeout;
}

inline bool has_ended(const std::atomic<lock_end>& end) {
    return eventually([&end] { return end != lock_end::nothing_yet; });
}

class any_lock {
public:
    using nanoseconds = std::chrono::nanoseconds;
    using steady_time = std::chrono::steady_clock::time_point;
    using system_time = std::chrono::system_clock::time_point;

    any_lock() noexcept = default;
    any_lock(const any_lock&) = delete;
    any_lock& operator=(const any_lock&) = delete;
    virtual ~any_lock() = default;

    virtual const void* address() const = 0;
    virtual void lock() = 0;
    virtual bool try_lock() = 0;
    virtual bool try_lock_for(nanoseconds rest) = 0;
    virtual bool try_lock_until(steady_time when) = 0;
    virtual bool try_lock_until(system_time when) = 0;
    virtual bide::result<void> lock(std::stop_token stop) = 0;
    virtual void unlock() = 0;

    bool is_free() {
        const bool free = try_lock();
        if (free) {
            unlock();
        }
        return free;
    }

    // Attempts with each type of time that has passed, or is none. Returns how many locked it.
    virtual int attempts_in_no_time() = 0;
    // Waits with a time-out that never comes, by one of four ways to say so.
    virtual bool lock_for_ever(int way) = 0;

    // A coroutine that notes its turn under the lock.
    virtual detached note_turn(journal& turns, int name) = 0;
    // A coroutine that adds one under the lock.
    virtual detached count(int& under_it, std::atomic<lock_end>& end) = 0;
    // Coroutines that note how their wait has ended, without the lock.
    virtual detached note_stopped(std::stop_token stop, std::atomic<lock_end>& end) = 0;
    virtual detached note_late(nanoseconds rest, std::atomic<lock_end>& end) = 0;
    // A coroutine that has the lock from its turn on until it is destroyed.
    virtual held hold(bool& locked) = 0;
    virtual held hold_on(manual_executor& e, std::stop_token stop, bool& locked) = 0;
    // A coroutine that destroys the lock when it has unlocked it.
    virtual detached lock_and_destroy(std::unique_ptr<any_lock>& mine) = 0;
};

class any_shared_lock : public virtual any_lock {
public:
    virtual void lock_shared() = 0;
    virtual bool try_lock_shared() = 0;
    virtual bool try_lock_shared_for(nanoseconds rest) = 0;
    virtual bool try_lock_shared_until(steady_time when) = 0;
    virtual bide::result<void> lock_shared(std::stop_token stop) = 0;
    virtual void unlock_shared() = 0;
    virtual void unlock_and_lock_shared() = 0;

    // Coroutines that note when they are let in and stay until they are destroyed.
    virtual held write(journal& turns, int name) = 0;
    virtual held read(journal& turns, int name) = 0;
    virtual held read_on(manual_executor& e, journal& turns, int name) = 0;
};

template <class Mutex> class lock_of : public virtual any_lock {
public:
    const void* address() const final { return &mutex_; }
    void lock() final { mutex_.lock(); }
    bool try_lock() final { return mutex_.try_lock(); }
    bool try_lock_for(nanoseconds rest) final { return mutex_.try_lock_for(rest); }
    bool try_lock_until(steady_time when) final { return mutex_.try_lock_until(when); }
    bool try_lock_until(system_time when) final { return mutex_.try_lock_until(when); }
    bide::result<void> lock(std::stop_token stop) final { return mutex_.lock(stop); }
    void unlock() final { mutex_.unlock(); }

    int attempts_in_no_time() final {
        using namespace std::chrono_literals;
        return mutex_.try_lock_for(0s) + mutex_.try_lock_for(-1ns) +
               mutex_.try_lock_for(std::chrono::hours::min()) +
               mutex_.try_lock_for(std::chrono::duration<double>(-1e300)) +
               mutex_.try_lock_until(std::chrono::steady_clock::now()) +
               mutex_.try_lock_until(steady_time::min()) +
               mutex_.try_lock_until(std::chrono::system_clock::now() - 24h) +
               mutex_.try_lock_until(system_time::min());
    }
    bool lock_for_ever(int way) final {
        switch (way) {
        case 0: return mutex_.try_lock_for(std::chrono::hours::max());
        case 1: return mutex_.try_lock_for(std::chrono::duration<double>(1e300));
        case 2: return mutex_.try_lock_until(steady_time::max());
        default: return mutex_.try_lock_until(system_time::max());
        }
    }

    detached note_turn(journal& turns, int name) final {
        const auto lock = co_await mutex_.async_lock();
        turns.add(name);
    }
    detached count(int& under_it, std::atomic<lock_end>& end) final {
        auto lock = co_await mutex_.async_lock();
        ++under_it;
        lock.unlock();
        end = lock_end::locked;
    }
    detached note_stopped(std::stop_token stop, std::atomic<lock_end>& end) final {
        auto got = co_await mutex_.async_lock().with_stop(stop);
        unlock_and_note(got, end);
    }
    detached note_late(nanoseconds rest, std::atomic<lock_end>& end) final {
        auto got = co_await mutex_.async_lock().with_timeout(rest);
        unlock_and_note(got, end);
    }
    held hold(bool& locked) final {
        const auto lock = co_await mutex_.async_lock();
        locked = lock.owns_lock() && lock.mutex() == &mutex_;
        co_await std::suspend_always();
    }
    held hold_on(manual_executor& e, std::stop_token stop, bool& locked) final {
        const auto lock = co_await mutex_.async_lock().with_stop(stop).resume_on(e);
        locked = lock.has_value();
        co_await std::suspend_always();
    }
    detached lock_and_destroy(std::unique_ptr<any_lock>& mine) final {
        auto lock = co_await mutex_.async_lock();
        lock.unlock();
        mine.reset();
    }

protected:
    Mutex mutex_;

private:
    static void unlock_and_note(bide::result<std::unique_lock<Mutex>>& got,
                                std::atomic<lock_end>& end) {
        const lock_end became = end_of(got);
        if (got) {
            got->unlock();
        }
        end = became;
    }
};

template <class Mutex> class shared_lock_of final : public lock_of<Mutex>, public any_shared_lock {
public:
    using nanoseconds = any_lock::nanoseconds;
    using steady_time = any_lock::steady_time;

    void lock_shared() override { this->mutex_.lock_shared(); }
    bool try_lock_shared() override { return this->mutex_.try_lock_shared(); }
    bool try_lock_shared_for(nanoseconds rest) override {
        return this->mutex_.try_lock_shared_for(rest);
    }
    bool try_lock_shared_until(steady_time when) override {
        return this->mutex_.try_lock_shared_until(when);
    }
    bide::result<void> lock_shared(std::stop_token stop) override {
        return this->mutex_.lock_shared(stop);
    }
    void unlock_shared() override { this->mutex_.unlock_shared(); }
    void unlock_and_lock_shared() override { this->mutex_.unlock_and_lock_shared(); }

    held write(journal& turns, int name) override {
        const auto lock = co_await this->mutex_.async_lock();
        turns.add(name);
        co_await std::suspend_always();
    }
    held read(journal& turns, int name) override {
        const auto lock = co_await this->mutex_.async_lock_shared();
        turns.add(name);
        co_await std::suspend_always();
    }
    held read_on(manual_executor& e, journal& turns, int name) override {
        const auto lock = co_await this->mutex_.async_lock_shared().resume_on(e);
        turns.add(name);
        co_await std::suspend_always();
    }
};

} // namespace test

#endif
