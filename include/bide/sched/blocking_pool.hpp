#ifndef BIDE_SCHED_BLOCKING_POOL_HPP
#define BIDE_SCHED_BLOCKING_POOL_HPP

// Threads for work that blocks: started on demand, kept for a while, never more than so many.
//
// Everything is decided under one lock. A thread is at work, idle, or has left:
//
//   at work -> idle     nothing is queued; it puts itself on the list and sleeps
//   idle -> at work     a post took it off the list and gave it work
//   idle -> left        it took itself off the list when its time was over, or finish() did
//   at work -> left     nothing is queued, and the pool is closed, keeps none, or has too many
//
// One step takes a thread off the list, so a post that meets a thread whose time is over either
// finds it there, and then the thread finds the work when it comes to leave, or does not, and looks
// for another. Work is queued only while no thread is idle and at least one is at work: that one
// looks at the queue before it becomes idle. Threads are started under the lock, too: what is queued
// can rely on every thread that is counted.
//
// To wake a thread, its word is changed under the lock, and its address is all that is used after
// it: the thread may have done its work, left and been deleted by then.
//
// A thread that has left is joined by the next one that leaves, the last one by finish().

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/resume.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {

// `Thread` is what the pool starts: detail::os_thread, or a model's.
template <class Platform, class Thread = detail::os_thread> class basic_blocking_pool {
public:
    struct options {
        unsigned max_threads = 512;
        std::chrono::milliseconds keep_alive{10'000}; // that an idle thread stays
        std::string name = "bide";                    // threads are "<name>-b<index>"
    };

    explicit basic_blocking_pool(options wanted) noexcept
        : options_(std::move(wanted)), stay_(deadline::saturated_ns(options_.keep_alive)) {}

    // finish().
    ~basic_blocking_pool() { finish(); }

    basic_blocking_pool(const basic_blocking_pool&) = delete;
    basic_blocking_pool& operator=(const basic_blocking_pool&) = delete;

    // Runs r.run.wake() on a thread of the pool: on the one that is idle for the shortest time,
    // else on a new one, else, oldest first, on the next that is free. `r` stays alive until it is
    // run. False: nothing was taken, and `why` says why: errc::closed after finish(), otherwise the
    // error that kept the pool's first thread from being started.
    // Order: what was done before happens-before the run.
    // Destroy: the pool is not touched any more once `r` has been run and finish() can return.
    bool post(runnable& r, std::error_code& why) noexcept;

    // As post(), but what no thread can run at once is not taken. For a thread that is about to
    // block until somebody goes on in its place.
    bool try_run(runnable& r) noexcept;

    // One thread more than max_threads, until lower_limit(): for a thread that blocks until the tasks
    // that other threads are to run have ended. What is queued gets it.
    void raise_limit() noexcept;
    void lower_limit() noexcept;

    // Takes nothing more, runs what is queued, joins all threads. Again: waits for the same.
    // Blocks: until the last thread has ended.
    // Requires: not called on a thread of the pool; terminates otherwise.
    void finish() noexcept;

    // Snapshots: all threads, those without work, and what waits for a thread.
    unsigned threads() const noexcept { return under_lock(threads_); }
    unsigned idle() const noexcept { return under_lock(idle_count_); }
    std::size_t queued() const noexcept { return under_lock(queued_); }

private:
    template <class T> using var = typename Platform::template var<T>;
    using word = typename Platform::template atomic<futex_word>;
    using lock_word = lock_bits<Platform, futex_word>;

    static constexpr futex_word awake = 0;
    static constexpr futex_word asleep = 1; // on the list of those who are idle

    struct worker {
        worker(basic_blocking_pool& of, unsigned number, runnable& first) noexcept
            : pool(of), index(number), work(&first) {}

        basic_blocking_pool& pool;
        const unsigned index;
        Thread thread;
        word state{awake}; // changed under the lock

        // Under the lock:
        var<runnable*> work; // what it is to run; nullptr: to leave
        var<worker*> newer{nullptr};
        var<worker*> older{nullptr};
    };

    // The pool whose thread this is.
    struct home {
        const void* pool = nullptr;
    };

    void lock() const noexcept { lock_word::acquire(lock_); }
    void unlock() const noexcept { lock_word::release(lock_); }

    template <class T> T under_lock(const var<T>& member) const noexcept {
        lock();
        const T copy = member;
        unlock();
        return copy;
    }

    // With the lock, and without it afterwards where it returns true: a thread has `r`.
    bool run_now(runnable& r, std::error_code& why) noexcept;
    std::error_code start(runnable& r) noexcept;

    // With the lock.
    unsigned limit() const noexcept { return options_.max_threads + extra_; }
    void make_idle(worker& w) noexcept;
    void make_busy(worker& w, runnable* work) noexcept;

    // The threads' own.
    static void run(void* self) noexcept;
    runnable* next(worker& self) noexcept;
    void leave(worker& self) noexcept;

    // When a thread that becomes idle now is to leave.
    deadline idle_end() const noexcept {
        const std::int64_t now = Platform::now();
        return stay_ > latest - now ? deadline::never() : deadline::at_ns(now + stay_);
    }

    static constexpr std::int64_t latest = (std::numeric_limits<std::int64_t>::max)();

    const options options_;
    const std::int64_t stay_; // options_.keep_alive
    mutable word lock_{0};
    word changed_{0}; // changed under the lock when finish() should look again

    // Under the lock:
    detail::run_list queue_;
    var<std::size_t> queued_{0};
    var<worker*> idle_{nullptr}; // the newest; the others hang on its `older`
    var<unsigned> idle_count_{0};
    var<unsigned> threads_{0}; // those that have not left
    var<unsigned> started_{0}; // ever
    var<unsigned> extra_{0};   // above max_threads
    var<worker*> left_{nullptr};
    var<bool> joining_{false}; // a finish() has taken `left_`
    var<bool> closed_{false};
};

template <class Platform, class Thread>
bool basic_blocking_pool<Platform, Thread>::post(runnable& r, std::error_code& why) noexcept {
    why.clear();
    lock();
    if (run_now(r, why)) {
        return true;
    }
    const bool taken = !closed_ && threads_ != 0;
    if (taken) {
        why.clear();
        queue_.push(r);
        queued_ = queued_ + 1;
    }
    unlock();
    return taken;
}

template <class Platform, class Thread>
bool basic_blocking_pool<Platform, Thread>::try_run(runnable& r) noexcept {
    std::error_code why;
    lock();
    const bool taken = run_now(r, why);
    if (!taken) {
        unlock();
    }
    return taken;
}

template <class Platform, class Thread>
bool basic_blocking_pool<Platform, Thread>::run_now(runnable& r, std::error_code& why) noexcept {
    if (closed_) {
        why = errc::closed;
        return false;
    }
    if (worker* const w = idle_) {
        const word* const state = &w->state;
        make_busy(*w, &r);
        unlock();
        futex_wake<Platform>(state, 1);
        return true;
    }
    why = start(r);
    if (why) {
        return false;
    }
    unlock();
    return true;
}

template <class Platform, class Thread>
void basic_blocking_pool<Platform, Thread>::raise_limit() noexcept {
    lock();
    extra_ = extra_ + 1;
    if (runnable* const first = queue_.pop()) {
        if (start(*first)) {
            queue_.push_front(*first); // for the next that is free
        } else {
            queued_ = queued_ - 1;
        }
    }
    unlock();
}

template <class Platform, class Thread>
void basic_blocking_pool<Platform, Thread>::lower_limit() noexcept {
    lock();
    extra_ = extra_ - 1;
    unlock();
}

template <class Platform, class Thread>
std::error_code basic_blocking_pool<Platform, Thread>::start(runnable& r) noexcept {
    if (threads_ >= limit()) {
        return std::make_error_code(std::errc::resource_unavailable_try_again);
    }
    worker* const w = new (std::nothrow) worker(*this, started_, r);
    if (w == nullptr) {
        return std::make_error_code(std::errc::not_enough_memory);
    }
    const std::error_code error = w->thread.start(&run, w);
    if (error) {
        delete w;
        return error;
    }
    threads_ = threads_ + 1;
    started_ = started_ + 1;
    return {};
}

template <class Platform, class Thread>
void basic_blocking_pool<Platform, Thread>::make_idle(worker& w) noexcept {
    worker* const before = idle_;
    w.work = nullptr;
    w.newer = nullptr;
    w.older = before;
    if (before != nullptr) {
        before->newer = &w;
    }
    idle_ = &w;
    idle_count_ = idle_count_ + 1;
    // Order: relaxed; read and written under the lock, but for the look before a sleep.
    w.state.store(asleep, std::memory_order_relaxed);
}

template <class Platform, class Thread>
void basic_blocking_pool<Platform, Thread>::make_busy(worker& w, runnable* work) noexcept {
    worker* const newer = w.newer;
    worker* const older = w.older;
    if (newer != nullptr) {
        newer->older = older;
    } else {
        idle_ = older;
    }
    if (older != nullptr) {
        older->newer = newer;
    }
    idle_count_ = idle_count_ - 1;
    w.work = work;
    // Order: relaxed; who sleeps takes the lock before it reads what it is woken for.
    w.state.store(awake, std::memory_order_relaxed);
}

template <class Platform, class Thread>
void basic_blocking_pool<Platform, Thread>::run(void* self) noexcept {
    worker& mine = *static_cast<worker*>(self);
    basic_blocking_pool& pool = mine.pool;
    Thread::name_this(pool.options_.name, "-b", mine.index);
    Platform::template local<home>().pool = &pool;
    for (runnable* r = mine.work; r != nullptr; r = pool.next(mine)) {
        r->run.wake(); // the last touch of *r
    }
}

// What to run next; nullptr: this thread has left.
template <class Platform, class Thread>
runnable* basic_blocking_pool<Platform, Thread>::next(worker& self) noexcept {
    lock();
    if (runnable* const r = queue_.pop()) {
        queued_ = queued_ - 1;
        unlock();
        return r;
    }
    if (!closed_ && stay_ > 0 && threads_ <= limit()) {
        make_idle(self);
        unlock();
        const deadline end = idle_end();
        // Order: relaxed; the lock decides.
        while (self.state.load(std::memory_order_relaxed) == asleep &&
               futex_wait<Platform>(self.state, asleep, end)) {
        }
        lock();
        // Order: relaxed; under the lock.
        if (self.state.load(std::memory_order_relaxed) == asleep) {
            make_busy(self, nullptr);
        } else if (runnable* const r = self.work) {
            unlock();
            return r;
        }
    }
    leave(self);
    return nullptr;
}

// Called with the lock, returns without it. The thread that left before may be on its last steps
// still, or in the destructors of what is local to it.
template <class Platform, class Thread>
void basic_blocking_pool<Platform, Thread>::leave(worker& self) noexcept {
    worker* const before = left_;
    left_ = &self;
    threads_ = threads_ - 1;
    const bool last = closed_ && threads_ == 0;
    if (last) {
        // Order: relaxed; under the lock. Who read the old number is woken below, or finds the new
        // one before it sleeps.
        changed_.fetch_add(1, std::memory_order_relaxed);
    }
    unlock();
    if (last) {
        futex_wake<Platform>(&changed_, 0x7fffffff);
    }
    if (before != nullptr) {
        before->thread.join();
        delete before;
    }
}

template <class Platform, class Thread>
void basic_blocking_pool<Platform, Thread>::finish() noexcept {
    if (Platform::template local<home>().pool == this) {
        detail::fatal("blocking_pool", this, "finished on one of its own threads");
    }
    lock();
    closed_ = true;
    while (worker* const w = idle_) {
        const word* const state = &w->state;
        make_busy(*w, nullptr);
        unlock();
        futex_wake<Platform>(state, 1);
        lock();
    }
    while (threads_ != 0 || joining_) {
        // Order: relaxed; written and read under the lock.
        const futex_word seen = changed_.load(std::memory_order_relaxed);
        unlock();
        futex_wait<Platform>(changed_, seen);
        lock();
    }
    worker* const last = left_;
    if (last == nullptr) {
        unlock();
        return;
    }
    left_ = nullptr;
    joining_ = true;
    unlock();
    last->thread.join();
    delete last;
    lock();
    joining_ = false;
    // Order: relaxed; under the lock, as in leave().
    changed_.fetch_add(1, std::memory_order_relaxed);
    unlock();
    futex_wake<Platform>(&changed_, 0x7fffffff);
}

using blocking_pool = basic_blocking_pool<native_platform>;

} // namespace bide::inline BIDE_ABI

#endif
