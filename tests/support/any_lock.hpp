#ifndef BIDE_TESTS_SUPPORT_ANY_LOCK_HPP
#define BIDE_TESTS_SUPPORT_ANY_LOCK_HPP

// Locks of every kind behind one interface. A test case of what all of them promise is compiled once, and
// runs for each kind.

#include "support/any_wait.hpp"
#include "support/coroutines.hpp"
#include "support/waiting.hpp"

#include <bide/core/result.hpp>

#include <support/standard.hpp>

namespace test {

class any_lock {
public:
    using nanoseconds = std::chrono::nanoseconds;
    using steady_time = std::chrono::steady_clock::time_point;

    any_lock() noexcept = default;
    any_lock(const any_lock&) = delete;
    any_lock& operator=(const any_lock&) = delete;
    virtual ~any_lock() = default;

    virtual const void* address() const = 0;
    virtual void lock() = 0;
    virtual bool try_lock() = 0;
    virtual bool try_lock_for(nanoseconds rest) = 0;
    virtual bool try_lock_until(steady_time when) = 0;
    virtual bide::result<void> lock(std::stop_token stop) = 0;
    virtual void unlock() = 0;

    bool is_free() {
        const bool free = try_lock();
        if (free) {
            unlock();
        }
        return free;
    }

    // A coroutine that notes how its wait has ended, without the lock.
    virtual detached note_stopped(std::stop_token stop, std::atomic<wait_end>& end) = 0;
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
    bide::result<void> lock(std::stop_token stop) final { return mutex_.lock(stop); }
    void unlock() final { mutex_.unlock(); }

    detached note_stopped(std::stop_token stop, std::atomic<wait_end>& end) final {
        auto got = co_await mutex_.async_lock().with_stop(stop);
        const wait_end became = wait_end_of(got);
        if (got) {
            got->unlock();
        }
        end = became;
    }

protected:
    Mutex mutex_;
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
