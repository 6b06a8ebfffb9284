// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_IDLE_THREADS_HPP
#define BIDE_SCHED_DETAIL_IDLE_THREADS_HPP

// The threads of a blocking pool that have no work. The lock of the pool guards the list, and
// changes of the words on which they sleep.
//
// To wake a thread, the waker changes the thread's word under the lock, and after that uses only
// the word's address: the thread may have done its work, left and been deleted by then.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/platform.hpp>
#include <bide/task/detail/task_registry.hpp>

#include <atomic>

namespace bide::inline BIDE_ABI {
namespace detail {

// A thread that may be idle.
template <class Platform>
class basic_idle_thread : public basic_task_links<Platform, basic_idle_thread<Platform>> {
public:
    using word = typename Platform::template atomic<futex_word>;

    explicit basic_idle_thread(runnable& first) noexcept : work(&first) {}
    basic_idle_thread(const basic_idle_thread&) = delete;
    basic_idle_thread& operator=(const basic_idle_thread&) = delete;

    // Order: relaxed; under the lock, or the lock decides afterwards.
    bool is_idle() const noexcept { return state_.load(std::memory_order_relaxed) == asleep; }

    // Called by the thread, without the lock.
    // Blocks: until the thread is no longer idle, or until `end`.
    void sleep(deadline end) const noexcept {
        while (is_idle() && futex_wait<Platform>(state_, asleep, end)) {
        }
    }

    typename Platform::template var<runnable*> work; // what it must run; nullptr: it must leave

private:
    template <class> friend class basic_idle_threads;

    static constexpr futex_word awake = 0;
    static constexpr futex_word asleep = 1; // in the list

    word state_{awake};
};

template <class Platform> class basic_idle_threads {
public:
    using thread = basic_idle_thread<Platform>;
    template <class T> using var = typename Platform::template var<T>;

    // Returns the thread that became idle last, or nullptr.
    thread* newest() const noexcept { return list_.first(); }
    const var<unsigned>& size() const noexcept { return size_; }

    void add(thread& t) noexcept {
        t.work = nullptr;
        list_.push_front(t);
        size_ = size_ + 1;
        // Order: relaxed; read and written under the lock, except by the futex wait.
        t.state_.store(thread::asleep, std::memory_order_relaxed);
    }

    // Gives `work` to an idle thread. Returns the word that the caller must wake.
    const typename thread::word* remove(thread& t, runnable* work) noexcept {
        list_.remove(t);
        size_ = size_ - 1;
        t.work = work;
        // Order: relaxed; the sleeper acquires the lock before it reads its work.
        t.state_.store(thread::awake, std::memory_order_relaxed);
        return &t.state_;
    }

private:
    basic_task_list<Platform, thread> list_;
    var<unsigned> size_{0};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
