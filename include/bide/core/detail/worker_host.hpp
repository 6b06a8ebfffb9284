#ifndef BIDE_CORE_DETAIL_WORKER_HOST_HPP
#define BIDE_CORE_DETAIL_WORKER_HOST_HPP

// What a scheduler offers, on its worker threads, to the operations that its tasks call there; and
// how these find it. The service's resumers (core/timer.hpp) have a host as well, whose executor()
// is empty. Other threads have none.
//
// A task that always finds its operations ready gives way after `whole_budget` of them, on any thread,
// and learns there that it was cancelled.

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>

#include <cstdint>
#include <utility>

namespace bide::inline BIDE_ABI {

struct timer;

template <class Platform> class basic_worker_host {
public:
    // Runs `r` here or on another worker, after what is queued already.
    virtual void yield(runnable& r) noexcept = 0;

    // Time-outs of what waits here; cancelled where they were added (core/timer_queue.hpp).
    virtual void add_timer(timer& t) noexcept = 0;

    // This thread is going to sleep inside a task, and: it woke up. What it would have run is
    // another thread's meanwhile. blocks() answers false if none could be started for that: the
    // thread then sleeps for `retry_ns` at most, and calls both again.
    static constexpr std::int64_t retry_ns = 10'000'000;
    virtual bool blocks() noexcept = 0;
    virtual void unblocks() noexcept = 0;

    virtual executor_ref executor() noexcept = 0;

protected:
    ~basic_worker_host() = default;
};

template <class Platform> class basic_task_context;

// This thread's.
template <class Platform> struct worker_local {
    basic_worker_host<Platform>* host = nullptr;     // set while it runs a task
    basic_task_context<Platform>* running = nullptr; // which
    const char* name = nullptr;                      // of the last that ran, while `traced`
    bool traced = false;
    unsigned budget = 0; // 0: no limit; 1: spent; else one more than the operations left

    static worker_local& get() noexcept { return Platform::template local<worker_local>(); }

    // Counts one operation. False: the budget is spent, the operation's coroutine gives way.
    bool spend() noexcept {
        if (budget > 1) {
            --budget;
            return true;
        }
        return budget == 0;
    }

    static constexpr unsigned whole_budget = Platform::model ? 2 : 128;
};

// Gives what this thread runs a whole budget, or none, and at its end the outer one back what it had
// left.
template <class Platform> class worker_turn {
public:
    explicit worker_turn(worker_local<Platform>& here, bool spent = false) noexcept
        : here_(here), left_(std::exchange(here.budget, spent ? 1 : here.whole_budget)) {}
    worker_turn(const worker_turn&) = delete;
    worker_turn& operator=(const worker_turn&) = delete;
    ~worker_turn() { here_.budget = left_; }

private:
    worker_local<Platform>& here_;
    const unsigned left_;
};

} // namespace bide::inline BIDE_ABI

#endif
