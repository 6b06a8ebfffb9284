// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_CLASS_QUEUES_HPP
#define BIDE_SCHED_DETAIL_CLASS_QUEUES_HPP

// The queues of tasks that do not go where any task goes (spawn_options.hpp): one for high tasks, one
// for low tasks, and one for each thread that was started for a worker, for the tasks that are pinned
// to that thread. They are lists under a lock (injector.hpp). Normal tasks never touch them. As long as
// none of them was used, a worker reads one flag for each job that it takes.
//
// Each worker counts turns. A turn of a class that has no job goes to the highest class that has one.
//
// A high or a low job is a job like one in the injector: any worker takes it, and its push wakes one
// that sleeps [idle.announce].
//
// A pinned job waits for one thread, which may own any worker, or none. So its push wakes the worker
// that the thread owns, and no other one [thread_queue.owner]:
//
//   pusher: job visible   read `owned_`, read the idle word
//   thread: write `owned_`   announce that worker as asleep   look at its queue
//
// All of these steps are seq_cst. If the look misses the job, the pusher reads an owner that is at
// least as new, and an idle word in which that worker sleeps. It takes that worker, and no other one,
// out of the set of sleepers. If it reads an older owner, the thread has still to look: before it
// sleeps in another worker, or without one. Then the wake reaches a worker that another thread owns,
// or none. That worker searches in vain. A thread without a worker does the same with `owned_` alone:
// it writes `none`, and looks before it parks. A pusher that reads `none` unparks the thread.

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/injector.hpp>
#include <bide/sched/spawn_options.hpp>

#include <cstddef>

namespace bide::inline BIDE_ABI {
namespace detail {

// Counts the turns of one worker. Of 16 turns in a row, 12 are of high jobs, 3 of normal ones, and 1 of
// low ones.
class class_turns {
public:
    task_priority next() noexcept {
        const unsigned turn = turn_++ % 16;
        return turn == 15      ? task_priority::low
               : turn % 5 == 4 ? task_priority::normal
                               : task_priority::high;
    }

    // Of the turns that normal jobs get, every other one is of pinned jobs.
    bool next_is_pinned() noexcept { return (++normal_turn_ & 1) != 0; }

private:
    unsigned turn_ = 0;
    unsigned normal_turn_ = 0;
};

// The jobs of one thread.
template <class Platform> class basic_thread_queue {
public:
    static constexpr unsigned none = ~0U;

    // `number`: of the worker for which the thread is started. It begins with that worker.
    explicit basic_thread_queue(unsigned number) noexcept : index(number), owned_(number) {}
    basic_thread_queue(const basic_thread_queue&) = delete;
    basic_thread_queue& operator=(const basic_thread_queue&) = delete;

    // Any thread. Returns the worker that the thread owns, or `none`: the caller then wakes it.
    unsigned push(runnable& r) noexcept {
        jobs_.push(r);
        // Order: seq_cst [thread_queue.owner]; after the job was made visible.
        return owned_.load(std::memory_order_seq_cst);
    }

    // Called by the thread: it owns that worker, or none. It then looks before it sleeps.
    void set_owned(unsigned worker) noexcept {
        // Order: seq_cst [thread_queue.owner]; before the announcement and the look.
        owned_.store(worker, std::memory_order_seq_cst);
    }

    runnable* pop() noexcept { return jobs_.pop(); }
    // Order: seq_cst [thread_queue.owner]; the look.
    bool empty() const noexcept { return jobs_.empty(); }
    std::size_t size() const noexcept { return jobs_.size(); }

    const unsigned index;

private:
    basic_injector<Platform> jobs_;
    typename Platform::template atomic<unsigned> owned_;
};

template <class Platform> class basic_class_queues {
public:
    using thread_queue = basic_thread_queue<Platform>;

    basic_class_queues() noexcept = default;
    basic_class_queues(const basic_class_queues&) = delete;
    basic_class_queues& operator=(const basic_class_queues&) = delete;

    // Returns true if a job was ever pushed to a class or to a thread.
    bool in_use() const noexcept {
        // Order: relaxed; a worker that does not see it looks at the queues before it sleeps, and
        // sees it if it sees a job.
        return in_use_.load(std::memory_order_relaxed);
    }

    // Called before each push.
    void use() noexcept {
        if (!in_use()) {
            // Order: relaxed; the job publishes it.
            in_use_.store(true, std::memory_order_relaxed);
        }
    }

    // Requires: `of` is not normal.
    void push(task_priority of, runnable& r) noexcept {
        use();
        (of == task_priority::high ? high_ : low_).push(r);
    }

    // Returns the job of the turn, or nullptr if the turn is of a normal job or its class has none.
    // `mine` are the jobs of the calling thread, or nullptr.
    runnable* take_in_turn(class_turns& turns, thread_queue* mine) noexcept {
        const task_priority turn = turns.next();
        runnable* r = turn == task_priority::low ? low_.pop() : nullptr;
        if (r == nullptr && turn != task_priority::normal) {
            r = high_.pop();
        }
        return r == nullptr && mine != nullptr && turns.next_is_pinned() ? mine->pop() : r;
    }

    // Returns a job of the highest class that has one.
    runnable* pop() noexcept {
        runnable* const r = high_.pop();
        return r != nullptr ? r : low_.pop();
    }

    // Order: seq_cst [idle.announce]; as a look at the injector.
    bool empty() const noexcept { return high_.empty() && low_.empty(); }
    std::size_t high() const noexcept { return high_.size(); }
    std::size_t low() const noexcept { return low_.size(); }

private:
    typename Platform::template atomic<bool> in_use_{false};
    basic_injector<Platform> high_;
    basic_injector<Platform> low_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
