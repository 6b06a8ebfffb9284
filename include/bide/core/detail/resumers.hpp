#ifndef BIDE_CORE_DETAIL_RESUMERS_HPP
#define BIDE_CORE_DETAIL_RESUMERS_HPP

// The threads that resume coroutines without an executor. A resumer runs user code, which may
// block, so it is replaced: a runnable waits for a resumer only while one is about to take it.
//
//   post     wakes an idle resumer. Without one, a resumer that runs takes the runnable later.
//   blocks   a resumer sleeps in bide. If it was the last that ran, another one starts.
//   late     a runnable has waited for `late_ns`: all resumers compute, or block where bide does
//            not see it (read(), std::mutex, sleep_for). As many start as are at it already.
//
// All is decided under one lock; `active_` counts the resumers that run or are about to, which
// includes those that are being woken or started. While a runnable is queued no resumer is idle: a
// resumer becomes idle only if the queue is empty, and a post takes one out of the idle ones. So a
// queued runnable has an active resumer, which takes it or becomes late or blocks, or the step that
// left it without one called `attention`. The thread that is called (core/timer.hpp) runs look(),
// which is the only place that starts resumers after the first. If none can be started it looks
// again after `late_ns`.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/parker.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/timer_queue.hpp>
#include <bide/core/waker.hpp>

#include <cstdint>
#include <limits>
#include <system_error>

namespace bide::inline BIDE_ABI {
namespace detail {

// Starts a thread that is never joined, by the platform's own start_thread() if it has one.
template <class Platform>
std::error_code start_service_thread(os_thread::function body, void* argument) noexcept {
    if constexpr (requires { Platform::start_thread(body, argument); }) {
        return Platform::start_thread(body, argument);
    } else {
        return os_thread::start_detached(body, argument);
    }
}

// Never destroyed while it has threads. It is its threads' host while they run user code.
template <class Platform> class basic_resumers final : public basic_worker_host<Platform> {
public:
    static constexpr unsigned most_threads = Platform::model ? 2 : 256;

    // Longer than a coroutine usually runs between two waits, and than a thread that computes keeps
    // a processor for itself; shorter than the time-outs that programs choose.
    static constexpr std::int64_t late_ns = 5'000'000;

    // A surplus resumer ends when it was idle for so long. One idle resumer stays.
    static constexpr std::int64_t keep_alive_ns = 10'000'000'000;

    static constexpr std::int64_t never_ns = std::numeric_limits<std::int64_t>::max();

    // `attention` is woken, outside the lock, when look() is to be called.
    explicit constexpr basic_resumers(basic_timer_queue<Platform>& timers, waker attention) noexcept
        : timers_(timers), attention_(attention) {}
    basic_resumers(const basic_resumers&) = delete;
    basic_resumers& operator=(const basic_resumers&) = delete;

    // Starts the first resumer, unless there is one. An error: it cannot be started.
    std::error_code start() noexcept;

    // Runs `r` on a resumer. Any thread; `r` stays alive until it is run.
    void post(runnable& r) noexcept;

    // Starts a resumer if one is needed. Returns the steady time at which to call it again. By one
    // thread at a time.
    std::int64_t look(std::int64_t now) noexcept;

    // A snapshot: no runnable is queued and no resumer runs one.
    bool is_idle() const noexcept;

    // As the host of a resumer that runs user code.
    void yield(runnable& r) noexcept override { post(r); }
    void add_timer(timer& t) noexcept override { timers_.add(t); }
    bool blocks() noexcept override;
    void unblocks() noexcept override;
    executor_ref executor() noexcept override { return {}; }

private:
    using word = std::uint32_t;
    using lock_word = lock_bits<Platform, word>;
    template <class T> using var = typename Platform::template var<T>;

    // A thread, in its own frame.
    struct resumer {
        resumer* next = nullptr; // the idle one below
        basic_parker<Platform> parker;
    };

    void lock() const noexcept { lock_word::acquire(lock_); }
    void unlock() const noexcept { lock_word::release(lock_); }

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
    var<resumer*> idle_{nullptr};  // the newest; older ones hang on its `next`
    var<unsigned> threads_{0};     // that have not ended, nor failed to start
    var<unsigned> active_{0};      // of them: those that are neither idle nor blocked
    var<unsigned> named_{0};       // ever
    var<std::uint32_t> posted_{0}; // runnables so far
    var<std::uint32_t> taken_{0};  // of them
    var<bool> watched_{false};     // look() will be called again by itself
    var<std::uint32_t> mark_{0};   // `posted_` at one of the last looks
    var<std::int64_t> due_{0};     // when what was posted by then and is not taken is late
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

// One that is counted already.
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
        call = !watched_ || active_ == 0;
    }
    unlock();
    if (idle != nullptr) {
        idle->parker.unpark(); // it stays until it has this token
    } else if (call) {
        attention_.wake();
    }
}

template <class Platform> std::int64_t basic_resumers<Platform>::look(std::int64_t now) noexcept {
    unsigned start = 0;
    std::int64_t next = never_ns;
    lock();
    if (queue_.first() == nullptr) {
        watched_ = false;
    } else {
        const bool due = watched_ && now >= due_;
        const bool late = due && static_cast<std::int32_t>(mark_ - taken_) > 0;
        if (due || !watched_) {
            mark_ = posted_;
            due_ = now + late_ns;
        }
        const bool full = threads_ == most_threads; // until one comes back: no look can help
        const unsigned room = most_threads - threads_;
        const auto waiting = static_cast<std::uint32_t>(posted_ - taken_);
        start = active_ == 0 ? 1 : late ? static_cast<unsigned>(active_) : 0;
        start = start < waiting ? start : waiting;
        start = start < room ? start : room;
        threads_ = threads_ + start;
        active_ = active_ + start;
        watched_ = !full;
        next = full ? never_ns : static_cast<std::int64_t>(due_);
    }
    unlock();
    for (; start != 0; --start) {
        start_thread(); // in vain: the next look tries again
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
    return true; // look() tries again
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

// What to run next; nullptr: this thread is surplus, and not counted any more.
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
        if (!woken) { // a post took it out, its token is on the way
            unlock();
            me.parker.park();
            lock();
        }
    }
}

// False: it was idle for long enough.
template <class Platform> bool basic_resumers<Platform>::sleep(resumer& me, bool stays) noexcept {
    return me.parker.park_until(stays ? deadline::never()
                                      : deadline::at_ns(Platform::now() + keep_alive_ns));
}

// With the lock. False: it is not among the idle ones.
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
