// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_LOOP_RUNNER_HPP
#define BIDE_SCHED_DETAIL_LOOP_RUNNER_HPP

// Which thread runs a loop (loop.hpp). One word:
//
//   none      no thread runs the loop
//   running   a thread runs it; a second one that wants to terminates the program
//   joining   a thread runs it that waits for tasks of the loop, outside of a run
//   wanted    the same, and other threads sleep until it has left; one of them then runs the loop
//
// A thread that waits for tasks of the loop runs it only if the loop is its own: no other thread has run
// the loop since this one has, or has made it. A joining thread leaves the loop as soon as another
// thread wants to run it. It then waits for its tasks as for those of other threads.
//
// The thread that leaves publishes what it has done with the loop [loop.runner]. So the next thread
// needs no other order.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/thread_mark.hpp>
#include <bide/core/futex.hpp>

#include <atomic>
#include <cstdint>
#include <limits>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_loop_runner {
    using word = std::uint32_t;

public:
    // The calling thread makes the loop.
    basic_loop_runner() noexcept : owner_(thread_mark<Platform>()) {}
    basic_loop_runner(const basic_loop_runner&) = delete;
    basic_loop_runner& operator=(const basic_loop_runner&) = delete;

    // Begins a run. Waits until a joining thread has left the loop: wake_it() makes that thread call
    // is_wanted(). Terminates with a message if the loop runs already, also if `runs_here`.
    template <class WakeIt> void enter(bool runs_here, WakeIt&& wake_it) noexcept {
        word seen = none;
        // Order: acquire [loop.runner]; what the thread before has done. Failure: relaxed, no data is
        // read.
        while (!state_.compare_exchange_strong(seen, running, std::memory_order_acquire,
                                               std::memory_order_relaxed)) {
            if (seen == running || runs_here) {
                fatal("a run_loop must not be run by two threads, nor by one of its own tasks");
            }
            // Order: relaxed, for both; the word asks for a wake and publishes no data.
            if (seen == wanted ||
                state_.compare_exchange_strong(seen, wanted, std::memory_order_relaxed,
                                               std::memory_order_relaxed)) {
                wake_it();
                futex_wait<Platform>(state_, wanted, deadline::never());
            }
            seen = none;
        }
        // Order: relaxed; leave() publishes it.
        owner_.store(thread_mark<Platform>(), std::memory_order_relaxed);
    }

    // Begins to run the loop as a joining thread. Returns false if another thread runs it, or has run it
    // last.
    bool join() noexcept {
        word seen = none;
        // Order: acquire [loop.runner]; as in enter(). The thread before has set the owner, too.
        if (!state_.compare_exchange_strong(seen, joining, std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
            return false;
        }
        if (!is_own()) {
            leave();
            return false;
        }
        return true;
    }

    // Ends both. The wake uses the address only.
    void leave() noexcept {
        const auto* const at = &state_;
        // Order: release [loop.runner]; the next thread sees what this one has done.
        if (state_.exchange(none, std::memory_order_release) == wanted) {
            futex_wake<Platform>(at, (std::numeric_limits<int>::max)());
        }
    }

    // Returns true if a joining thread must leave the loop.
    // Order: relaxed; wake_it() comes after the change.
    bool is_wanted() const noexcept { return state_.load(std::memory_order_relaxed) == wanted; }

    // Returns true if no other thread has run the loop since this one has, or has made it. Is exact
    // between join() and leave().
    // Order: relaxed; the acquire of join() orders.
    bool is_own() const noexcept {
        return owner_.load(std::memory_order_relaxed) == thread_mark<Platform>();
    }

    // A snapshot.
    // Order: relaxed; the value may be old when the caller reads it.
    bool is_running() const noexcept { return state_.load(std::memory_order_relaxed) != none; }

private:
    static constexpr word none = 0, running = 1, joining = 2, wanted = 3;

    typename Platform::template atomic<word> state_{none};
    typename Platform::template atomic<const void*> owner_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
