// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_BARRIER_HPP
#define BIDE_SYNC_BARRIER_HPP

/// \file
/// A point where a number of threads and coroutines wait for each other, phase after phase.

#include <bide/sync/detail/gate.hpp>

#include <stdexcept>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The wait of a barrier. It is a gate (detail/gate.hpp) that opens for one phase after another. Its
// state is one word:
//
//   bit 0, 1   the lock of the queue (core/lock_bits.hpp)
//   queued     there are waiters
//   phase      the number of the phase, modulo 2^29
//   missing    how many arrivals the phase still needs
//
//   queued missing
//     0      n      n arrivals are missing, no waiter
//     1      n      n arrivals are missing, waiters; while the lock is free, all are linked
//     0,1    0      the last arrival is about to begin the next phase
//
// An arrival is one fetch_sub, which ignores the lock. The arrival that makes `missing` zero is the
// last one of the phase. Its thread alone begins the next phase: no arrival is allowed until then.
//
// Why no waiter is left behind: a waiter sets `queued` under the lock by a CAS that fails if the
// phase has ended. The last arrival ends the phase by a CAS if `queued` is clear. If `queued` is
// set, the last arrival first acquires the lock. A waiter holds the lock until it is linked, so the
// last arrival finds the waiter:
//
//   phase ends, then the waiter's CAS    the CAS fails, and the waiter is let through
//   the waiter's CAS, then phase ends    the last arrival finds `queued`, and the waiter
//
// While the lock is held, arrivals still change the count. So the holder of the lock releases it by
// a step that does not change the count. The last arrival may store the whole word, because no
// other arrival is allowed then.
//
// Last access. The last arrival does not access the barrier after the step that begins the next
// phase. Each other arrival ends with its fetch_sub. If there are waiters, the last arrival takes
// them out of the queue before that step. It wakes them after the step, without an access to the
// barrier.

template <class Platform> class basic_phase_gate {
    using node = basic_waiter<Platform>; // its amount: the phase that it waits for
    using waits = thread_wait<basic_phase_gate, Platform>;

public:
    using word = std::uint64_t;
    using phase = std::ptrdiff_t;

    struct arrival {
        phase at;
        bool is_last;
    };

    static constexpr const char* waited_for = "barrier";

    static constexpr std::ptrdiff_t(max)() noexcept { return 0x7fff'ffff; }

    constexpr explicit basic_phase_gate(std::ptrdiff_t expected) noexcept
        : word_(static_cast<word>(expected) * one), expected_(static_cast<word>(expected)) {}
    basic_phase_gate& operator=(basic_phase_gate&&) = delete;

    void require_no_waiters(const char* name, const void* object) noexcept {
        entry::require_no_waiters(word_, queue_, name, object);
    }

    // Counts n arrivals. If the phase is then complete, the caller calls advance().
    // Requires: n arrivals are missing; terminates with the name of the primitive otherwise.
    arrival arrive(word n, const char* name, const void* object) noexcept {
        // Order: acq_rel [barrier.arrive]; release: the last arrival sees what was done before each
        // arrival. Acquire, because this may be the last arrival.
        const word before = word_.fetch_sub(n * one, std::memory_order_acq_rel);
        if (before / one < n) {
            fatal(name, object, "arrived at more often than it expects");
        }
        return {phase_of(before), before / one == n};
    }

    // Lowers the number of arrivals that the later phases expect. Requires: the caller arrives
    // next.
    // Order: relaxed; the arrival that follows publishes the number [barrier.arrive].
    void drop() noexcept { expected_.fetch_sub(1, std::memory_order_relaxed); }

    // Begins the next phase and lets every waiter through. Called once after the last arrival.
    void advance() noexcept {
        const word seen = entry::change_or_lock(
            word_, [this](word from) noexcept { return next_phase(from) | (from & lock::both); });
        if ((seen & queued) == 0) {
            return;
        }
        basic_wake_list<Platform> passed;
        queue_.pop_all(passed);
        // Order: release [lock_bits.release], by release_as(); it is also the release
        // [barrier.phase].
        lock::release_as(word_, next_phase(seen));
        passed.publish(wait_status::granted);
    }

    // Order: acquire [barrier.phase]; if the phase has passed, the caller sees what was done before
    // each arrival.
    bool has_passed(phase p) const noexcept {
        return phase_of(word_.load(std::memory_order_acquire)) != p;
    }

    bool wait_until(phase p, deadline end) noexcept {
        return has_passed(p) || (!end.is_poll() && spin(p)) ||
               waits::until(*this, p, end) == wait_status::granted;
    }
    result<void> wait(phase p, const typename Platform::stop_token& token) noexcept {
        return result_of(has_passed(p) || spin(p) ? wait_status::granted
                                                  : waits::until(*this, p, token));
    }

    // The operation of async_wait() (core/wait_ops.hpp).
    struct passing {
        basic_phase_gate* at; // nullptr: the phase has passed
        phase waits_for;

        const auto& primitive() const noexcept { return *at; }
        wait_status try_now() const noexcept {
            return at == nullptr || at->has_passed(waits_for) ? wait_status::granted
                                                              : wait_status::waiting;
        }
        wait_status enqueue(node& w) const noexcept {
            w.ask(waits_for);
            return at->enqueue(w);
        }
        bool cancel(node& w, wait_status why) const noexcept { return at->cancel(w, why); }
        result<void> collect(wait_status what) const noexcept { return result_of(what); }
    };

    // Called by waits. Enqueues `w` and returns waiting, or completes `w` and returns its status.
    wait_status enqueue(node& w) noexcept {
        const auto has_ended = [p = w.amount()](word seen) noexcept { return phase_of(seen) != p; };
        // Order: acquire [barrier.phase]; a waiter that passes sees what was done before each
        // arrival.
        return entry::enqueue(w, word_, queue_, has_ended);
    }
    // Cancels the wait of `w`. Returns true if this call decided the wait.
    bool cancel(node& w, wait_status why) noexcept { return entry::cancel(w, why, word_, queue_); }
    // The thread does not spin here, because it has spun before it was queued.
    bool await(node& w, deadline end) noexcept { return w.sleep_through(end); }

private:
    using lock = lock_bits<Platform, word>;
    using entry = pass_or_queue<Platform, word>;

    static constexpr word queued = entry::queued;
    static constexpr word one_phase = 8;
    static constexpr word phases = 0xffff'fff8;
    static constexpr word one = word{1} << 32; // in the count

    static phase phase_of(word seen) noexcept { return static_cast<phase>(seen & phases); }

    // Spins on the word, so that the last arrival need not wake this thread. Each read takes the
    // cache line from the next arrival. So the thread pauses between two reads, the longer the more
    // arrivals are missing. A thread whose arrival is missing may want this processor. So the thread
    // yields twice before it spins for long, and 8 times after.
    bool spin(phase p) noexcept {
        using spins = basic_spin<Platform>;
        word pauses = 0; // until the next read
        const auto passed = [this, p, &pauses]() noexcept {
            if (pauses-- > 1) {
                return false;
            }
            // Order: acquire [barrier.phase]; as in has_passed().
            const word seen = word_.load(std::memory_order_acquire);
            pauses = seen / one < 128 ? seen / one / 2 : 64;
            return phase_of(seen) != p;
        };
        const auto has = [this, p]() noexcept { return has_passed(p); };
        return spins::briefly(passed, 16) || spins::yielding(has, 2) || spins::until(passed) ||
               spins::yielding(has, 8);
    }

    word next_phase(word seen) const noexcept {
        // Order: relaxed; the last arrival came after each drop() [barrier.arrive].
        const word expected = expected_.load(std::memory_order_relaxed);
        return ((seen + one_phase) & phases) | expected * one;
    }

    typename Platform::template atomic<word> word_;
    typename Platform::template atomic<word> expected_;
    basic_waiter_queue<Platform> queue_;
};

struct no_completion {
    void operator()() const noexcept {}
};

} // namespace detail

/// A count of arrivals that restarts when it is complete. It is std::barrier for threads and
/// coroutines, with time-outs and stop tokens. Each phase expects a number of arrivals. The last
/// arrival of a phase calls the completion function, begins the next phase, and lets every waiter
/// of the phase through. No arrival is possible between the last arrival and the next phase.
///
/// \code
/// bide::barrier step(2, []() noexcept { std::puts("both are here"); });
/// std::jthread other([&] { step.arrive_and_wait(); });
/// step.arrive_and_wait(); // in a coroutine: co_await step.async_arrive_and_wait()
/// \endcode
///
/// An arrival counts, even if the wait after it ends by a stop or a time-out. If the caller has the
/// token of the arrival, it may wait again.
///
/// Memory order: what happens before each arrival of a phase happens before the call of the
/// completion function. That call happens before the return of each wait for the phase.
///
/// Destroys: a waiter that was let through may destroy the barrier at once, even if the arrive()
/// that let it through has not returned. These still access the barrier, so they must be over
/// before: a wait that another thread has begun and that has not queued its waiter yet, and a stop
/// or a time-out that is just ending a wait.
template <class Completion, class Platform> class barrier {
    using gate = detail::basic_phase_gate<Platform>;
    static_assert(std::is_nothrow_invocable_v<Completion&>,
                  "bide: the completion function of a barrier is called without arguments and is "
                  "noexcept");

public:
    /// Returns the largest number of arrivals that a phase may expect.
    static constexpr std::ptrdiff_t(max)() noexcept { return (gate::max)(); }

    /// The phase of an arrival. A caller passes it to wait for the end of that phase.
    class arrival_token {
        friend class barrier;
        explicit arrival_token(typename gate::phase at) noexcept : at_(at) {}
        typename gate::phase at_;
    };

    /// Constructs a barrier whose phases expect `expected` arrivals each. `completion` is called at
    /// the end of each phase, by the last arrival.
    /// Throws: std::invalid_argument if `expected` is outside [1, max()].
    constexpr explicit barrier(std::ptrdiff_t expected, Completion completion = Completion())
        : gate_(valid(expected)), completion_(std::move(completion)) {}

    /// Destroys the barrier.
    /// Requires: there are no waiters; terminates otherwise.
    ~barrier() { gate_.require_no_waiters("barrier", this); }

    barrier& operator=(barrier&&) = delete;

    /// Arrives n times. The last arrival of the phase calls the completion function. Never blocks.
    /// Requires: the phase expects n more arrivals at least; terminates otherwise.
    /// Throws: std::invalid_argument if n is outside [1, max()]; nothing changes then.
    /// Returns: the token to wait with.
    [[nodiscard]] arrival_token arrive(std::ptrdiff_t n = 1) {
        return arrival_token(count(valid(n)).at);
    }

    /// Arrives once, and lowers the number of arrivals that each later phase expects by one.
    /// Requires: the phase expects one more arrival at least; terminates otherwise. So after all
    /// arrivals were dropped, no arrival is allowed.
    void arrive_and_drop() {
        gate_.drop();
        count(1);
    }

    /// Arrives once, then waits for the end of the phase.
    /// Blocks: until the phase has ended.
    void arrive_and_wait() {
        if (const auto mine = count(1); !mine.is_last) {
            gate_.wait_until(mine.at, deadline::never());
        }
    }

    /// Arrives once, then waits for the end of the phase, unless a stop is requested first.
    /// Returns: errc::stopped if the phase had not ended. The arrival counts nevertheless.
    result<void> arrive_and_wait(typename Platform::stop_token token) {
        const auto mine = count(1);
        return mine.is_last ? result<void>() : gate_.wait(mine.at, token);
    }

    /// Returns true if the phase of `token` has ended. Never blocks.
    bool try_wait(const arrival_token& token) const noexcept {
        BIDE_SWITCH_AFTER();
        return gate_.has_passed(token.at_);
    }

    /// Waits for the end of the phase of `token`.
    /// Requires: `token` is of the current phase or of an earlier one, less than 2^29 phases ago.
    /// Blocks: until the phase has ended.
    void wait(const arrival_token& token) { gate_.wait_until(token.at_, deadline::never()); }

    /// Waits as wait() does, but at most `rest`.
    /// Returns: true if the phase has ended; false after the time-out.
    bool wait_for(const arrival_token& token, deadline::from_now rest) {
        return gate_.wait_until(token.at_, deadline(rest));
    }
    /// Waits as wait() does, but at most until a point in time.
    bool wait_until(const arrival_token& token, deadline when) {
        return gate_.wait_until(token.at_, when);
    }

    /// Waits as wait() does, unless a stop is requested first.
    /// Returns: errc::stopped if the phase had not ended.
    result<void> wait(typename Platform::stop_token stop, const arrival_token& token) {
        return gate_.wait(token.at_, stop);
    }

    /// Waits as wait() does, for a coroutine.
    /// Returns: an operation for co_await.
    basic_async_op<void, Platform> async_wait(const arrival_token& token) noexcept {
        return {typename gate::passing{&gate_, token.at_}};
    }

    /// Arrives once, before it returns. The arrival counts even if the operation is not awaited.
    /// Returns: an operation for co_await, which waits for the end of the phase as wait() does.
    basic_async_op<void, Platform> async_arrive_and_wait() {
        const auto mine = count(1);
        return {typename gate::passing{mine.is_last ? nullptr : &gate_, mine.at}};
    }

private:
    static constexpr std::ptrdiff_t valid(std::ptrdiff_t n) {
        if (n < 1 || n > (max)()) {
            BIDE_THROW(std::invalid_argument("bide::barrier: arrivals outside [1, max()]"));
        }
        return n;
    }

    typename gate::arrival count(std::ptrdiff_t n) noexcept {
        BIDE_SWITCH_AFTER();
        const auto mine = gate_.arrive(static_cast<typename gate::word>(n), "barrier", this);
        if (mine.is_last) {
            completion_();
            gate_.advance();
        }
        return mine;
    }

    gate gate_;
    [[no_unique_address]] Completion completion_;
};

}} // namespace bide::BIDE_ABI

#endif
