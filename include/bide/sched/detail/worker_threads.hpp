#ifndef BIDE_SCHED_DETAIL_WORKER_THREADS_HPP
#define BIDE_SCHED_DETAIL_WORKER_THREADS_HPP

// The threads of a scheduler: one for each worker of its pool, and those that run what blocks. A
// worker whose thread goes to sleep in a task is run by another meanwhile: by one that was itself
// replaced and has come out of its sleep, else by one of those for what blocks. A thread that comes
// back finds its worker run by another, ends the task that it is in, and waits to be of use.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal_exception.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/parker.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/waker.hpp>
#include <bide/sched/blocking_pool.hpp>
#include <bide/sched/detail/cpu_count.hpp>
#include <bide/sched/detail/pool.hpp>
#include <bide/sched/scheduler_options.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {

class scheduler;

namespace detail {

// Whose thread this is, in callbacks and where it has no worker, too, or in whose fork-join it is.
// nullptr: of no scheduler.
struct current_scheduler {
    scheduler* face = nullptr;
    bool leaving = false;                     // in on_worker_stop
    bool stands_in = false;                   // a thread for what blocks runs a worker
    const current_scheduler* outer = nullptr; // before it came into the fork-join

    // It is the scheduler's, or in a fork-join of it, however many of other schedulers it is in since.
    static bool is_of(const scheduler& s) noexcept {
        for (const current_scheduler* at = &here(); at != nullptr; at = at->outer) {
            if (at->face == &s) {
                return true;
            }
        }
        return false;
    }
    static current_scheduler& here() noexcept {
        return native_platform::local<current_scheduler>();
    }
};

class worker_threads {
    using platform = native_platform;
    using pool_type = basic_pool<platform>;
    using worker = pool_type::worker;

public:
    // Takes the callbacks out of `wanted`.
    worker_threads(scheduler& whose, pool_type& pool, scheduler_options& wanted);
    worker_threads(const worker_threads&) = delete;
    worker_threads& operator=(const worker_threads&) = delete;

    // An error: a thread cannot be started. Those that could be run, until finish().
    std::error_code start() noexcept;

    // None runs.
    bool empty() const noexcept { return posts_.empty(); }

    // See basic_blocking_pool::post().
    bool post_blocking(runnable& r, std::error_code& why) noexcept {
        return blocking_.post(r, why);
    }

    // See basic_blocking_pool::raise_limit().
    void raise_limit() noexcept { blocking_.raise_limit(); }
    void lower_limit() noexcept { blocking_.lower_limit(); }

    // The calling thread goes to sleep in a task and leaves `w`. False: there is nobody to run it.
    bool replace(worker& w) noexcept;

    // Has a thread run `w` that blocked, was replaced, and is back. False: there is none.
    bool hire(worker& w) noexcept;

    // replace() was in vain: the next thread that is free runs a worker that is blocked then, until
    // that one's thread is back. False: there is no thread, and none can be started.
    bool call_for_help() noexcept;

    // A thread for what blocks is on no worker's processor, whoever started it.
    void unpin() noexcept {
        if (pin_) {
            mask_.apply();
        }
    }

    // After the pool was stopped: returns when all threads have ended.
    void finish() noexcept;

    const basic_blocking_pool<platform>& blocking() const noexcept { return blocking_; }

private:
    using lock = lock_bits<platform, std::uint32_t>;

    // A worker, with the thread that it started with, and what another runs instead.
    struct post : runnable {
        post(worker_threads& whose, worker& which) noexcept : all(whose), mine(which) {
            run = waker([](void* self) noexcept { static_cast<post*>(self)->stand_in(); }, this);
        }
        void serve() noexcept;
        void stand_in() noexcept;

        worker_threads& all;
        worker& mine;
        os_thread thread;
    };

    // A thread that waits to be of use.
    struct spare {
        spare* next = nullptr;
        worker* gets = nullptr; // nullptr: the end
        basic_parker<platform> parker;
    };

    void help() noexcept;
    void employ(unsigned index) noexcept;
    void dismiss(unsigned index) noexcept;

    scheduler& face_;
    pool_type& pool_;
    const std::string name_;
    const bool pin_;
    const cpu_mask mask_;
    const std::function<void(unsigned)> on_start_;
    const std::function<void(unsigned)> on_stop_;
    basic_blocking_pool<platform> blocking_;
    std::deque<post> posts_;
    platform::atomic<std::uint32_t> lock_{0};
    spare* spares_ = nullptr; // under it, as the next
    bool over_ = false;
    runnable relief_; // among what blocks, while `called_`
    platform::atomic<bool> called_{false};
};

inline worker_threads::worker_threads(scheduler& whose, pool_type& pool, scheduler_options& wanted)
    : face_(whose), pool_(pool), name_(wanted.name), pin_(wanted.pin_workers),
      on_start_(std::move(wanted.on_worker_start)), on_stop_(std::move(wanted.on_worker_stop)),
      blocking_({wanted.max_blocking_threads, wanted.blocking_keep_alive, name_}) {
    for (worker& w : pool_.workers()) {
        posts_.emplace_back(*this, w);
    }
    relief_.run =
        waker([](void* self) noexcept { static_cast<worker_threads*>(self)->help(); }, this);
}

inline std::error_code worker_threads::start() noexcept {
    for (post& p : posts_) {
        const std::error_code error =
            p.thread.start([](void* self) noexcept { static_cast<post*>(self)->serve(); }, &p);
        if (error) {
            while (&posts_.back() != &p) {
                posts_.pop_back();
            }
            posts_.pop_back();
            return error;
        }
    }
    return {};
}

inline void worker_threads::employ(unsigned index) noexcept {
    current_scheduler::here().face = &face_;
    if (on_start_) {
        call_noexcept("on_worker_start", [&] { on_start_(index); });
    }
}

inline void worker_threads::dismiss(unsigned index) noexcept {
    current_scheduler::here().leaving = true;
    if (on_stop_) {
        call_noexcept("on_worker_stop", [&] { on_stop_(index); });
    }
    current_scheduler::here() = {};
}

inline void worker_threads::post::serve() noexcept {
    os_thread::name_this(all.name_, "-", mine.index);
    if (all.pin_) {
        all.mask_.apply_only(mine.index);
    }
    all.employ(mine.index);
    all.pool_.run(mine);
    for (;;) {
        spare me;
        lock::acquire(all.lock_);
        const bool over = all.over_;
        if (!over) {
            me.next = std::exchange(all.spares_, &me);
        }
        lock::release(all.lock_);
        if (over) {
            break;
        }
        all.pool_.relieve(); // one may have found nobody before
        me.parker.park();
        if (me.gets == nullptr) {
            break;
        }
        all.pool_.run(*me.gets);
    }
    all.dismiss(mine.index);
}

inline void worker_threads::post::stand_in() noexcept {
    all.unpin();
    all.employ(mine.index);
    current_scheduler::here().stands_in = true;
    all.pool_.run(mine);
    all.dismiss(mine.index);
}

inline bool worker_threads::replace(worker& w) noexcept {
    return hire(w) || blocking_.try_run(posts_[w.index]);
}

inline bool worker_threads::hire(worker& w) noexcept {
    lock::acquire(lock_);
    spare* const other = spares_;
    if (other != nullptr) {
        spares_ = other->next;
    }
    lock::release(lock_);
    if (other == nullptr) {
        return false;
    }
    other->gets = &w;
    other->parker.unpark();
    return true;
}

inline bool worker_threads::call_for_help() noexcept {
    lock::acquire(lock_);
    const bool is_somebody_there = spares_ != nullptr; // since: it found nobody in need
    lock::release(lock_);
    if (is_somebody_there) {
        pool_.relieve();
        return true;
    }
    // Order: acq_rel [H1]; the call before is over, and what it did.
    if (!called_.exchange(true, std::memory_order_acq_rel)) {
        std::error_code why;
        if (!blocking_.post(relief_, why)) {
            // Order: release [H1]; as if it had not called.
            called_.store(false, std::memory_order_release);
            return false;
        }
    }
    return true;
}

// A thread for what blocks has come to the call.
inline void worker_threads::help() noexcept {
    // Order: release [H1]; who calls from here on is not answered by this.
    called_.store(false, std::memory_order_release);
    if (worker* const w = pool_.take_blocked()) {
        posts_[w->index].stand_in();
    }
}

inline void worker_threads::finish() noexcept {
    lock::acquire(lock_);
    over_ = true;
    spare* waiting = std::exchange(spares_, nullptr);
    lock::release(lock_);
    while (waiting != nullptr) {
        spare* const next = waiting->next; // before it goes
        waiting->parker.unpark();
        waiting = next;
    }
    blocking_.finish();
    for (post& p : posts_) {
        p.thread.join();
    }
    posts_.clear();
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
