// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_BLOCKING_POOL_HPP
#define BIDE_SCHED_BLOCKING_POOL_HPP

// A pool of threads for work that blocks. It starts threads on demand, up to a limit, and keeps
// idle threads for a while. One lock protects its state. A thread is busy, is idle, or has left:
//
//   busy -> idle     nothing is queued; the thread adds itself to the idle list and sleeps
//   idle -> busy     a post removes the thread from the list and gives it work
//   idle -> left     the thread removes itself from the list after keep_alive, or finish() removes
//                    the thread
//   busy -> left     nothing is queued, and the pool is closed, keeps no idle threads, or has too
//                    many threads
//
// A post may come just when the keep_alive of an idle thread ends. A thread is removed from the
// list in one step, under the lock. If the post removes the thread, it gives the thread its work,
// and the thread runs the work instead of leaving. If the thread removes itself, the post does not
// see the thread.
//
// Queued work is always run. Work is queued only while no thread is idle and at least one thread is
// busy. A busy thread reads the queue before it becomes idle. Threads are started under the lock,
// too, so each counted thread exists.
//
// The system may refuse to start a thread, for lack of memory or of threads. The work then stays
// queued, and the pool must start a thread later: it owes a start. Each post tries an owed start
// again, because all present threads may be blocked until the queued work has run. The owner of the
// pool also calls tend() at intervals, because the system does not report when a start is possible
// again. tend() tries the start. `attention` tells the owner to begin these calls.
//
// A call that wakes an idle thread changes that thread's word under the lock. After it has released
// the lock, the call uses only the address of the word, because the thread may have run its work,
// left and been deleted.
//
// A thread that has left is joined by the next thread that leaves, by reap(), or by finish().

#include <bide/core/detail/os_thread.hpp>
#include <bide/task/detail/task_control.hpp>

namespace bide { inline namespace BIDE_ABI {

/// A pool of threads for blocking work. `Thread` is the type of its threads: detail::os_thread, or
/// a type for the model checker.
template <class Platform, class Thread = detail::os_thread> class BIDE_SHARED basic_blocking_pool {
public:
    /// The limits and the name of a pool.
    struct options {
        unsigned max_threads = 512; ///< at a time; the greatest value means no limit
        std::chrono::milliseconds keep_alive{10'000}; ///< how long an idle thread stays
        std::string name = "bide";                    ///< threads are "<name>-b<index>"
        std::size_t stack_size = 0; ///< of each thread; 0: the default of the system
        waker attention{}; ///< woken, maybe on any thread, when tend() or reap() must be called
    };

    /// Constructs a pool without threads.
    explicit basic_blocking_pool(options wanted) noexcept
        : options_(std::move(wanted)), idle_ns_(deadline::saturated_ns(options_.keep_alive)) {}

    /// Calls finish().
    ~basic_blocking_pool() { finish(); }

    basic_blocking_pool& operator=(basic_blocking_pool&&) = delete;

    /// Runs r.run.wake() on the thread that became idle last. If no thread is idle, starts one. If
    /// no thread can be started, queues `r`. Queued runnables run in the order of the posts.
    /// Returns: true if `r` runs or is queued. If post() returns false, `why` is errc::closed after
    /// finish(); before finish(), `why` tells why the pool could not start its first thread.
    /// Requires: `r` exists until it has run. The context of `attention` exists until this call has
    /// returned.
    /// Memory order: what happens before the call happens before the run.
    /// Destroys: after `r` has begun to run, this call does not access the pool. So `r` may cause
    /// the destruction of the pool.
    bool post(runnable& r, std::error_code& why) noexcept {
        why.clear();
        lock();
        if (wake_idle(r)) {
            return true;
        }
        if (closed_) {
            unlock();
            why = errc::closed;
            return false;
        }
        queue_.push(r);
        queued_ = queued_ + 1;
        why = start_queued();
        const bool taken = threads_ != 0;
        if (taken) {
            why.clear();
        } else { // nothing else is queued
            queue_.pop();
            queued_ = 0;
        }
        unlock_and_ask();
        return taken;
    }

    /// Runs `r` at once, on an idle thread or on a new one. If no thread is idle and none can be
    /// started, returns false and does not queue `r`. Use it for urgent work.
    bool try_run(runnable& r) noexcept {
        lock();
        if (wake_idle(r)) {
            return true;
        }
        const bool taken = !closed_ && !start(r);
        unlock();
        return taken;
    }

    /// Allows one thread more than max_threads, until lower_limit() is called. If work is queued,
    /// starts that thread. Called by a thread that is about to block until other tasks have ended,
    /// because these tasks may need a thread.
    BIDE_COLD void raise_limit() noexcept {
        lock();
        extra_threads_ = extra_threads_ + 1;
        start_queued();
        unlock_and_ask();
    }

    /// Ends a raise_limit().
    void lower_limit() noexcept {
        const typename lock_word::guard section(lock_);
        extra_threads_ = extra_threads_ - 1;
    }

    /// Tries again to start the threads that the system has refused to start. Returns true if the
    /// pool still owes a start. The caller then calls tend() again after a while.
    BIDE_COLD bool tend() noexcept {
        const typename lock_word::guard section(lock_);
        start_queued();
        return owes_start();
    }

    /// Joins the thread that has left the pool, if that thread has ended. Returns true if it has
    /// not ended. The caller then calls reap() again after a while. Does not block. If Thread has
    /// no try_join(), does nothing.
    BIDE_COLD bool reap() noexcept {
        bool again = false;
        if constexpr (requires(Thread& t) { t.try_join(); }) {
            const typename lock_word::guard section(lock_);
            worker* const w = closed_ ? nullptr : static_cast<worker*>(left_);
            again = w != nullptr && !w->thread.try_join();
            if (w != nullptr && !again) {
                left_ = nullptr;
                delete w;
            }
        }
        return again;
    }

    /// Refuses further work, runs all queued runnables, and joins all threads. A second call waits
    /// for the end of the first call.
    /// Blocks: until the last thread has ended.
    /// Requires: the caller is not a thread of the pool; otherwise terminates with a message.
    BIDE_COLD void finish() noexcept {
        if (Platform::template local<thread_role>().pool == this) {
            detail::fatal("blocking_pool", this, "finish() was called on one of its own threads");
        }
        lock();
        closed_ = true;
        while (worker* const w = idle_.first()) {
            const word* const state = take_idle(*w, nullptr);
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
        if (worker* const last = left_) {
            left_ = nullptr;
            joining_ = true;
            unlock();
            last->thread.join();
            delete last;
            lock();
            joining_ = false;
            // Order: relaxed; under the lock. Another finish() sleeps only while `changed_` is
            // unchanged.
            changed_.fetch_add(1, std::memory_order_relaxed);
        }
        unlock();
        futex_wake<Platform>(&changed_, 0x7fffffff);
    }

    /// Returns the number of threads, a snapshot.
    unsigned threads() const noexcept { return under_lock(threads_); }
    /// Returns the number of idle threads, a snapshot.
    unsigned idle() const noexcept { return under_lock(idle_count_); }
    /// Returns the number of queued runnables, a snapshot.
    std::size_t queued() const noexcept { return under_lock(queued_); }

private:
    template <class T> using var = typename Platform::template var<T>;
    using word = typename Platform::template atomic<futex_word>;
    using lock_word = lock_bits<Platform, futex_word>;

    static constexpr std::int64_t max_ns = (std::numeric_limits<std::int64_t>::max)();
    static constexpr futex_word awake = 0;
    static constexpr futex_word asleep = 1; // in the idle list

    struct worker : detail::basic_task_links<Platform, worker> {
        worker(basic_blocking_pool& of, unsigned number, runnable& first) noexcept
            : pool(of), index(number), work(&first) {}

        basic_blocking_pool& pool;
        const unsigned index;
        var<runnable*> work; // what the thread must run; nullptr: it must leave
        word state{awake};
        Thread thread;
    };
    struct thread_role {
        const void* pool = nullptr; // the pool of the calling thread
    };
    void lock() const noexcept { lock_word::acquire(lock_); }
    void unlock() const noexcept { lock_word::release_plain(lock_); }
    template <class T> T under_lock(const var<T>& member) const noexcept {
        const typename lock_word::guard section(lock_);
        return member;
    }

    // ---- Called with the lock

    // If a thread is idle, gives it `r`, releases the lock and returns true.
    bool wake_idle(runnable& r) noexcept {
        worker* const w = idle_.first();
        if (w == nullptr || closed_) {
            return false;
        }
        const word* const state = take_idle(*w, &r);
        unlock();
        futex_wake<Platform>(state, 1);
        return true;
    }

    // Removes an idle thread from the list and gives it `work`. Returns the word to wake.
    const word* take_idle(worker& w, runnable* work) noexcept {
        idle_.remove(w);
        idle_count_ = idle_count_ - 1;
        w.work = work;
        // Order: relaxed; the sleeper acquires the lock before it reads its work.
        w.state.store(awake, std::memory_order_relaxed);
        return &w.state;
    }

    BIDE_COLD std::error_code start(runnable& r) noexcept {
        if (threads_ >= limit()) {
            return std::make_error_code(std::errc::resource_unavailable_try_again);
        }
        worker* const w = new (std::nothrow) worker(*this, started_, r);
        if (w == nullptr) {
            return std::make_error_code(std::errc::not_enough_memory);
        }
        const std::error_code error = w->thread.start(&run, w, options_.stack_size);
        if (error) {
            delete w;
            return error;
        }
        threads_ = threads_ + 1;
        started_ = started_ + 1;
        return {};
    }

    // Starts a thread for each queued runnable, until a start fails. Returns the error of that
    // start.
    std::error_code start_queued() noexcept {
        std::error_code error;
        while (runnable* const first = error ? nullptr : queue_.pop()) {
            error = start(*first);
            if (error) {
                queue_.push_front(*first); // for the next thread that becomes free
            } else {
                queued_ = queued_ - 1;
            }
        }
        return error;
    }

    // Releases the lock. If a start is owed, wakes the owner of the pool.
    void unlock_and_ask() noexcept {
        const waker attention = owes_start() ? options_.attention : waker();
        unlock();
        attention.wake();
    }

    bool owes_start() const noexcept { return queued_ != 0 && threads_ < limit(); }
    unsigned limit() const noexcept {
        const unsigned sum = options_.max_threads + extra_threads_;
        return sum < options_.max_threads ? options_.max_threads : sum;
    }

    // ---- Called by the threads of the pool

    static void run(void* self) noexcept {
        worker& mine = *static_cast<worker*>(self);
        Thread::name_this(mine.pool.options_.name, "-b", mine.index);
        Platform::template local<thread_role>().pool = &mine.pool;
        for (runnable* r = mine.work; r != nullptr; r = mine.pool.next(mine)) {
            r->run.wake(); // the last access to *r
        }
    }

    // Returns the next runnable. Returns nullptr if the thread has left the pool.
    runnable* next(worker& self) noexcept {
        lock();
        if (runnable* const r = queue_.pop()) {
            queued_ = queued_ - 1;
            unlock();
            return r;
        }
        if (!closed_ && idle_ns_ > 0 && threads_ <= limit()) {
            self.work = nullptr;
            idle_.push_front(self);
            idle_count_ = idle_count_ + 1;
            // Order: relaxed, all three; `state` is used under the lock, except in the wait. After
            // the wait, the thread reads `state` again under the lock.
            self.state.store(asleep, std::memory_order_relaxed);
            unlock();
            const std::int64_t now = Platform::now();
            const auto end = deadline::at_ns(idle_ns_ < max_ns - now ? now + idle_ns_ : max_ns);
            while (self.state.load(std::memory_order_relaxed) == asleep &&
                   futex_wait<Platform>(self.state, asleep, end)) {
            }
            lock();
            if (self.state.load(std::memory_order_relaxed) == asleep) { // Order: see above.
                take_idle(self, nullptr);
            } else if (runnable* const r = self.work) {
                unlock();
                return r;
            }
        }
        leave(self);
        return nullptr;
    }

    // Releases the lock. Joins the thread that left before this one; that thread may still be in
    // its last steps or in the destructors of its thread-local objects.
    BIDE_COLD void leave(worker& self) noexcept {
        worker* const before = left_;
        left_ = &self;
        threads_ = threads_ - 1;
        const bool last = closed_ && threads_ == 0;
        if (last) {
            // Order: relaxed; under the lock. finish() sleeps only while `changed_` has the value
            // that finish() has read. If finish() has read the old value, this call wakes it below.
            changed_.fetch_add(1, std::memory_order_relaxed);
        }
        const waker attention = closed_ ? waker() : options_.attention;
        unlock();
        attention.wake();
        if (last) {
            futex_wake<Platform>(&changed_, 0x7fffffff);
        }
        if (before != nullptr) {
            before->thread.join();
            delete before;
        }
    }

    const options options_;
    const std::int64_t idle_ns_; // options_.keep_alive
    mutable word lock_{0};
    word changed_{0}; // changed under the lock when finish() must look again
    // Under the lock:
    detail::run_list queue_;
    var<std::size_t> queued_{0};
    detail::basic_task_list<Platform, worker> idle_; // the thread that became idle last is first
    var<unsigned> idle_count_{0};
    var<unsigned> threads_{0};       // that have not left
    var<unsigned> started_{0};       // number of starts
    var<unsigned> extra_threads_{0}; // above max_threads
    var<worker*> left_{nullptr};
    var<bool> joining_{false}; // a finish() has taken `left_`
    var<bool> closed_{false};
};

/// The pool of a program.
using blocking_pool = basic_blocking_pool<native_platform>;

}} // namespace bide::BIDE_ABI

#endif
