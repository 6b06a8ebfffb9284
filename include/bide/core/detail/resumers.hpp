// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_RESUMERS_HPP
#define BIDE_CORE_DETAIL_RESUMERS_HPP

// The threads that resume coroutines without an executor. A resumer runs user code, which may
// block. So a blocked resumer is replaced, and a runnable waits only while a resumer is about to
// take it.
//
//   post     Wakes an idle resumer. If none is idle, an active resumer takes the runnable later.
//   blocks   A resumer sleeps in bide. If it was the last active one, another resumer starts.
//   late     A runnable has waited for `late_ns`: all resumers compute, or block outside of bide
//            (read(), std::mutex, sleep_for). The number of active resumers is at most doubled.
//
// One lock guards all decisions. `active_` counts the resumers that run or are about to run,
// including those that are being woken or started. While a runnable is queued, no resumer is idle:
// a resumer becomes idle only if the queue is empty, and a post takes a resumer out of the idle
// list. So a queued runnable has an active resumer. Either that resumer takes the runnable, or it
// blocks, or the runnable becomes late. If a step leaves the runnable without an active resumer,
// that step calls `attention`. The timer thread (core/timer.hpp) answers that call with
// start_needed(). Only start_needed() starts resumers after the first. If no resumer can be
// started, start_needed() asks to be called again after `late_ns`.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/lock_bits.hpp>

#include <bide/core/platform.hpp>
#include <bide/core/wake_scope.hpp>

#include <bide/core/waker.hpp>

#include <cstdint>
#include <limits>
#include <system_error>

namespace bide::inline BIDE_ABI {

// core/timer.hpp, which alone includes this header, includes their definitions.
template <class Platform> class basic_parker;
template <class Platform> class basic_timer_queue;

namespace detail {

// Starts a thread that is never joined, by Platform::start_thread() if the platform has it.
template <class Platform>
std::error_code start_service_thread(os_thread::function body, void* argument) noexcept {
    if constexpr (requires { Platform::start_thread(body, argument); }) {
        return Platform::start_thread(body, argument);
    } else {
        return os_thread::start_detached(body, argument);
    }
}

// Owns the resumers, and is their host while they run user code.
// Requires: it is not destroyed while it has threads.
template <class Platform> class basic_resumers final : public basic_worker_host<Platform> {
public:
    static constexpr unsigned most_threads = Platform::model ? 2 : 256;

    // If a runnable is queued for longer than this time, it is late. The time is longer than a
    // coroutine usually runs between two waits, and longer than a computing thread keeps its
    // processor. It is shorter than usual time-outs.
    static constexpr std::int64_t late_ns = 5'000'000;

    // An idle resumer ends after this time. One idle resumer always stays.
    static constexpr std::int64_t keep_alive_ns = 10'000'000'000;

    static constexpr std::int64_t never_ns = (std::numeric_limits<std::int64_t>::max)();

    // Wakes `attention`, outside the lock, if start_needed() must be called.
    explicit constexpr basic_resumers(basic_timer_queue<Platform>& timers, waker attention) noexcept
        : timers_(timers), attention_(attention) {}
    basic_resumers(const basic_resumers&) = delete;
    basic_resumers& operator=(const basic_resumers&) = delete;

    // Starts the first resumer, unless there is one. Returns an error if it cannot be started.
    std::error_code start() noexcept;

    // Runs `r` on a resumer. Any thread may call it.
    // Requires: `r` lives until it is run.
    void post(runnable& r) noexcept;

    // Starts the resumers that are needed. Returns the steady time at which to call it again.
    // Called by one thread at a time.
    std::int64_t start_needed(std::int64_t now) noexcept;

    // Returns whether no runnable is queued and no resumer runs one. A snapshot.
    bool is_idle() const noexcept;

    // The functions of the host of a resumer that runs user code.
    void yield(runnable& r) noexcept override { post(r); }
    void add_timer(timer& t) noexcept override { timers_.add(t); }
    bool blocks() noexcept override;
    void unblocks() noexcept override;
    executor_ref executor() noexcept override { return {}; }

private:
    using word = std::uint32_t;
    using lock_word = lock_bits<Platform, word>;
    template <class T> using var = typename Platform::template var<T>;

    // One resumer, in the frame of its thread.
    struct resumer {
        resumer* next = nullptr; // the next older idle resumer
        basic_parker<Platform> parker;
    };

    void lock() const noexcept { lock_word::acquire(lock_); }
    void unlock() const noexcept { lock_word::release_plain(lock_); }

    std::error_code start_thread() noexcept;
    static void body(void* self) noexcept { static_cast<basic_resumers*>(self)->run(); }
    void run() noexcept;
    runnable* next(resumer& me) noexcept;
    bool sleep(resumer& me, bool stays) noexcept;
    bool take_out(const resumer& me) noexcept;

    basic_timer_queue<Platform>& timers_;
    const waker attention_;

    mutable typename Platform::template atomic<word> lock_{0};

    // Under the lock:
    run_list queue_;
    var<resumer*> idle_{nullptr};  // the newest idle resumer; its `next` leads to the older ones
    var<unsigned> threads_{0};     // threads that run or are being started
    var<unsigned> active_{0};      // of these: threads that are neither idle nor blocked
    var<unsigned> named_{0};       // threads that were given a name
    var<std::uint32_t> posted_{0}; // runnables that were posted
    var<std::uint32_t> taken_{0};  // runnables that were taken
    var<bool> scheduled_{false};   // start_needed() will be called again at its own request
    var<std::uint32_t> mark_{0};   // `posted_` when `due_` was set
    var<std::int64_t> due_{0};     // when the runnables up to `mark_` that are not taken are late
};

template <class Platform> std::error_code basic_resumers<Platform>::start() noexcept {
    lock();
    const bool first = threads_ == 0;
    if (first) {
        threads_ = 1;
        active_ = 1;
    }
    unlock();
    return first ? start_thread() : std::error_code();
}

// Starts a thread that is counted already. If that fails, takes it out of the counts.
template <class Platform> std::error_code basic_resumers<Platform>::start_thread() noexcept {
    const std::error_code error = start_service_thread<Platform>(&body, this);
    if (error) {
        lock();
        threads_ = threads_ - 1;
        active_ = active_ - 1;
        unlock();
    }
    return error;
}

template <class Platform> void basic_resumers<Platform>::post(runnable& r) noexcept {
    lock();
    queue_.push(r);
    posted_ = posted_ + 1;
    resumer* const idle = idle_;
    bool call = false;
    if (idle != nullptr) {
        idle_ = idle->next;
        active_ = active_ + 1;
    } else {
        call = !scheduled_ || active_ == 0;
    }
    unlock();
    if (idle != nullptr) {
        idle->parker.unpark(); // the resumer lives until it has taken this token
    } else if (call) {
        attention_.wake();
    }
}

template <class Platform>
std::int64_t basic_resumers<Platform>::start_needed(std::int64_t now) noexcept {
    unsigned start = 0;
    std::int64_t next = never_ns;
    lock();
    if (queue_.first() == nullptr) {
        scheduled_ = false;
    } else {
        const bool due = scheduled_ && now >= due_;
        const bool late = due && static_cast<std::int32_t>(mark_ - taken_) > 0;
        if (due || !scheduled_) {
            mark_ = posted_;
            due_ = now + late_ns;
        }
        const bool full = threads_ == most_threads; // a resumer that unblocks takes the runnables
        const unsigned room = most_threads - threads_;
        const auto waiting = static_cast<std::uint32_t>(posted_ - taken_);
        start = active_ == 0 ? 1 : late ? static_cast<unsigned>(active_) : 0;
        start = start < waiting ? start : waiting;
        start = start < room ? start : room;
        threads_ = threads_ + start;
        active_ = active_ + start;
        scheduled_ = !full;
        next = full ? never_ns : static_cast<std::int64_t>(due_);
    }
    unlock();
    for (; start != 0; --start) {
        start_thread(); // if it fails, the next call tries again
    }
    return next;
}

template <class Platform> bool basic_resumers<Platform>::blocks() noexcept {
    lock();
    active_ = active_ - 1;
    const bool call = active_ == 0 && queue_.first() != nullptr;
    unlock();
    if (call) {
        attention_.wake();
    }
    return true; // start_needed() tries again if a start fails
}

template <class Platform> void basic_resumers<Platform>::unblocks() noexcept {
    lock();
    active_ = active_ + 1;
    unlock();
}

template <class Platform> bool basic_resumers<Platform>::is_idle() const noexcept {
    lock();
    unsigned idle = 0;
    for (const resumer* r = idle_; r != nullptr; r = r->next) {
        ++idle;
    }
    const bool all = queue_.first() == nullptr && idle == threads_;
    unlock();
    return all;
}

// ---- A resumer

template <class Platform> void basic_resumers<Platform>::run() noexcept {
    if constexpr (!Platform::model) {
        lock();
        const unsigned number = named_;
        named_ = number + 1;
        unlock();
        os_thread::name_this("bide", "-r", number);
    }
    resumer me;
    while (runnable* const r = next(me)) {
        worker_local<Platform>::get().host = this;
        {
            wake_scope<Platform> scope;
            r->run.wake();
        }
        worker_local<Platform>::get().host = nullptr;
    }
}

// Returns the next runnable. Returns nullptr if this thread was idle for too long; it is then no
// longer counted.
template <class Platform> runnable* basic_resumers<Platform>::next(resumer& me) noexcept {
    lock();
    for (;;) {
        if (runnable* const r = queue_.pop()) {
            taken_ = taken_ + 1;
            unlock();
            return r;
        }
        active_ = active_ - 1;
        resumer* const below = idle_;
        me.next = below;
        idle_ = &me;
        unlock();
        const bool woken = sleep(me, below == nullptr);
        lock();
        if (!woken && take_out(me)) {
            threads_ = threads_ - 1;
            unlock();
            return nullptr;
        }
        if (!woken) { // a post took it out of the idle list and is about to leave a token
            unlock();
            me.parker.park();
            lock();
        }
    }
}

// Returns false if it was idle for `keep_alive_ns`.
template <class Platform> bool basic_resumers<Platform>::sleep(resumer& me, bool stays) noexcept {
    return me.parker.park_until(stays ? deadline::never()
                                      : deadline::at_ns(Platform::now() + keep_alive_ns));
}

// Called with the lock. Returns false if the resumer is not in the idle list.
template <class Platform> bool basic_resumers<Platform>::take_out(const resumer& me) noexcept {
    resumer* above = nullptr;
    for (resumer* r = idle_; r != nullptr; above = r, r = r->next) {
        if (r == &me) {
            if (above == nullptr) {
                idle_ = me.next;
            } else {
                above->next = me.next;
            }
            return true;
        }
    }
    return false;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
