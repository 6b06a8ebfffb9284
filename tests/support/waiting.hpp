#ifndef BIDE_TESTS_SUPPORT_WAITING_HPP
#define BIDE_TESTS_SUPPORT_WAITING_HPP

// Waiters for permits, of every kind, and a journal of their turns.

#include "support/coroutines.hpp"
#include "support/gate.hpp"

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>

#include <support/standard.hpp>

namespace test {

// The numbers of those that came through, in order. Any thread writes; nothing is allocated up to 4,096 entries.
class journal {
public:
    journal() { entries_.reserve(4'096); }

    void add(int waiter) noexcept {
        const std::lock_guard lock(mutex_);
        entries_.push_back(waiter);
    }

    std::vector<int> entries() const {
        const std::lock_guard lock(mutex_);
        return entries_;
    }
    std::size_t size() const {
        const std::lock_guard lock(mutex_);
        return entries_.size();
    }
    void clear() {
        const std::lock_guard lock(mutex_);
        entries_.clear();
    }
    bool reaches(std::size_t n) const {
        return eventually([this, n] { return size() >= n; });
    }

private:
    mutable std::mutex mutex_;
    std::vector<int> entries_;
};

// Polls until that many wait in `primitive`.
template <class T> bool has_waiters(const T& primitive, std::size_t n) {
    return eventually([&primitive, n] { return primitive.waiters() == n; });
}

// The calling thread, for coroutines: the C library promises compilers that its answer never changes,
// and clang keeps std::this_thread::get_id() over a suspension.
BIDE_NOINLINE inline std::thread::id this_thread() noexcept { return std::this_thread::get_id(); }

// An event loop's wait for a semaphore.
template <class Semaphore> class foreign {
public:
    foreign(Semaphore& from, std::ptrdiff_t n) : foreign(from, n, nullptr, 0) {}
    foreign(Semaphore& from, std::ptrdiff_t n, journal& notes, int name)
        : foreign(from, n, &notes, name) {}
    foreign(const foreign&) = delete;
    foreign& operator=(const foreign&) = delete;

    // True: it was complete at once.
    bool start() noexcept {
        const bool complete = from_.acquire_wait(wait_);
        if (complete) {
            note();
        }
        return complete;
    }
    bool cancel() noexcept { return from_.cancel_acquire(wait_); }

    bool is_complete() const noexcept { return wait_.is_complete(); }
    auto outcome() const noexcept { return wait_.outcome(); }
    int wakes() const noexcept { return wakes_.load(); }

private:
    foreign(Semaphore& from, std::ptrdiff_t n, journal* notes, int name)
        : from_(from), notes_(notes), name_(name), wait_(n, bide::waker(&on_wake, this)) {}

    static void on_wake(void* self) noexcept {
        auto& mine = *static_cast<foreign*>(self);
        mine.note();
        mine.wakes_.fetch_add(1);
    }
    void note() noexcept {
        if (notes_ != nullptr) {
            notes_->add(name_);
        }
    }

    Semaphore& from_;
    journal* const notes_;
    const int name_;
    std::atomic<int> wakes_{0};
    typename Semaphore::waiter wait_;
};

// A coroutine without any executor that takes n permits, keeps them, and notes its turn.
template <class Semaphore>
detached acquire_detached(Semaphore& from, std::ptrdiff_t n, journal& notes, int name) {
    auto got = co_await from.async_acquire(n);
    got.forget();
    notes.add(name);
}

} // namespace test

#endif
