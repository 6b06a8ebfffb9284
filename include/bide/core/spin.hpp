// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_SPIN_HPP
#define BIDE_CORE_SPIN_HPP

/// \file
/// Decides how long a waiter spins before it sleeps (basic_spin), and how a thread waits for
/// another thread that is between two steps (basic_backoff).
//
// Spinning pays if the awaited change comes sooner than a sleep and a wake take. Assume that two
// threads A and B hand work to each other, and that B sleeps. A calls the wake, and then waits for
// the answer. After the call has returned, B needs another 1.5 to 2 times the duration of the call
// until it runs. If A spins for less than this time, A falls asleep just before B hands the work
// back. B must then wake A, and falls asleep itself in the same way. So two threads that have slept
// once would then sleep each time. The budget is therefore 5/2 of the time of the wake call. The
// library measures that time when it wakes a thread. The budget stays within [2, 20] us.
//
// With a single processor, no other thread can make the change during a spin, so no thread spins.
// If several spins of a thread failed in a row, the thread skips some of the next spins.

#include <bide/core/platform.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Spins for a limited time. The process learns the budget, and each thread has its own history.
template <class Platform> class BIDE_SHARED basic_spin {
public:
    /// Calls `done()` until it returns true or the budget is spent. The budget is at least
    /// `least_ns` nanoseconds, even if the last spins of the thread failed. Set `least_ns` if the
    /// change is likely to come within that time.
    /// Requires: done() only reads. The call that returns true may also write.
    /// Returns: the last answer of done().
    template <class Done> static bool until(Done&& done, std::int64_t least_ns = 0) noexcept {
        if constexpr (Platform::model) {
            return done();
        } else {
            if (is_of_no_use()) {
                return done();
            }
            history& mine = Platform::template local<history>();
            const bool may_spin = mine.may_spin();
            if (!may_spin && (least_ns == 0 || mine.single)) {
                return done();
            }
            const std::int64_t learned_ns = may_spin ? budget_ns() : 0;
            const bool seen = spin_for(learned_ns > least_ns ? learned_ns : least_ns, done);
            if (may_spin || seen) {
                mine.record(seen);
            }
            return seen;
        }
    }

    /// Spins for `pauses` pauses (64 of them take 1 to 3 us), or until `done()` returns true. For a
    /// caller that is in no queue yet.
    /// Returns: true if done() returned true.
    template <class Done> static bool briefly(Done&& done, int pauses = 64) noexcept {
        if constexpr (!Platform::model) {
            if (!Platform::template local<history>().single) {
                for (int i = 0; i < pauses; ++i) {
                    if (done()) {
                        return true;
                    }
                    Platform::pause();
                }
            }
        }
        return false;
    }

    /// Calls `done()` 5 times within about 0.5 us, with growing pauses. Use it for a change that
    /// another thread is about to make.
    /// Returns: true if done() returned true.
    template <class Done> static bool spin_once(Done&& done) noexcept {
        return pausing<1, 16>(done);
    }

    /// Pauses for about 0.3 us and then 0.7 us, and calls `done()` after each pause. Use it if
    /// another thread often writes what `done()` reads: each read takes the cache line from that
    /// thread, so there are few reads.
    /// Returns: true if done() returned true.
    template <class Done> static bool spin_apart(Done&& done) noexcept {
        return pausing<32, 64>(done);
    }

    /// Yields up to `times` times and calls `done()` after each. Use it for a change by a thread
    /// that does not run on a processor yet.
    /// Returns: true if done() returned true.
    template <class Done> static bool yielding(Done&& done, int times) noexcept {
        if constexpr (!Platform::model) {
            for (int i = 0; i < times; ++i) {
                Platform::yield();
                if (done()) {
                    return true;
                }
            }
        }
        return false;
    }

    /// Calls spin_once(). Then yields until done() returns true, for at most `ns` nanoseconds.
    /// Returns: the last answer of done().
    template <class Done> static bool spin_then_yield(Done&& done, std::int64_t ns) noexcept {
        if constexpr (!Platform::model) {
            if (is_of_no_use()) {
                return done();
            }
            if (spin_once(done)) {
                return true;
            }
            for (const std::int64_t end = Platform::now() + ns; Platform::now() < end;) {
                if (yielding(done, 1)) {
                    return true;
                }
            }
        }
        return done();
    }

    /// Calls `call()`, which makes a futex wake, and measures the cost of one such call in 16.
    template <class Call> static void measured_wake(Call&& call) noexcept {
        if constexpr (Platform::model) {
            call();
        } else {
            // Order: relaxed; the count only picks the calls that are measured.
            const bool is_measured = wakes_.fetch_add(1, std::memory_order_relaxed) % 16 == 0;
            const std::int64_t before = is_measured ? Platform::now() : 0;
            call();
            if (is_measured) {
                learn(Platform::now() - before);
            }
        }
    }

    /// Returns the nanoseconds that a spin may take now.
    static std::int64_t budget_ns() noexcept {
        // Order: relaxed; the cost is an estimate.
        const std::int64_t cost = wake_cost_ns_.load(std::memory_order_relaxed);
        return cost * 5 / 2;
    }

private:
    static constexpr std::uint32_t most_skipped = 256;
    static constexpr std::int64_t min_cost_ns = 800;
    static constexpr std::int64_t max_cost_ns = 8'000;

    // The outcomes of this thread's last spins.
    struct history {
        std::uint32_t failed = 0; // spins that failed in a row
        std::uint32_t skip = 0;   // spins that are still to be skipped
        bool asked = false;       // `single` is known
        bool single = false;      // there is one processor

        bool may_spin() noexcept {
            if (skip > 0) {
                --skip;
                return false;
            }
            if (!asked) {
                ask();
            }
            return !single;
        }

        BIDE_COLD void ask() noexcept {
            single = Platform::single_cpu();
            asked = !single;
            skip = single ? most_skipped : 0;
        }

        void record(bool seen) noexcept {
            if (seen) {
                failed = 0;
                skip = 0;
                return;
            }
            asked = false; // the mask may have changed: the next spin asks again
            failed = failed < 10 ? failed + 1 : 10;
            skip = failed > 2 ? most_skipped >> (10 - failed) : 0;
        }
    };

    // Returns true in a simulation without processors: there is no other thread, and the clock
    // stands still, so a spin would change nothing.
    static bool is_of_no_use() noexcept {
        auto* const simulated = detail::simulated_machine::here();
        return simulated != nullptr && !simulated->has_processors();
    }

    // Pauses First times, then twice as often, and so on up to Last. Calls `done()` each time.
    template <int First, int Last, class Done> static bool pausing(Done& done) noexcept {
        if constexpr (!Platform::model) {
            if (!Platform::template local<history>().single) {
                for (int pauses = First; pauses <= Last; pauses *= 2) {
                    for (int i = 0; i < pauses; ++i) {
                        Platform::pause();
                    }
                    if (done()) {
                        return true;
                    }
                }
            }
        }
        return false;
    }

    template <class Done> static bool spin_for(std::int64_t ns, Done& done) noexcept {
        const std::int64_t end = Platform::now() + ns;
        do {
            for (int i = 0; i < 32; ++i) {
                if (done()) {
                    return true;
                }
                Platform::pause();
            }
        } while (Platform::now() < end);
        return done();
    }

    // Raises the estimate quickly towards a higher cost, and lowers it slowly towards a lower cost.
    static void learn(std::int64_t cost) noexcept {
        // Order: relaxed; the cost is an estimate, and a lost update does no harm.
        const std::int64_t old = wake_cost_ns_.load(std::memory_order_relaxed);
        std::int64_t next = cost > old ? old + (cost - old) / 2 : old - (old - cost) / 16;
        next = next < min_cost_ns ? min_cost_ns : next > max_cost_ns ? max_cost_ns : next;
        // Order: relaxed; the cost is an estimate, and a lost update does no harm.
        wake_cost_ns_.store(next, std::memory_order_relaxed);
    }

    inline static typename Platform::template atomic<std::uint32_t> wakes_{0};
    inline static typename Platform::template atomic<std::int64_t> wake_cost_ns_{max_cost_ns};
};

/// Waits for another thread that is between two steps. The steps are a few instructions apart, but
/// that thread may be preempted between them. Each call of this object waits longer: the first 6
/// calls pause, the next 194 calls yield, and later calls sleep for 50 us. Without the sleep, a
/// waiter of higher priority could prevent the other thread from running. The caller checks its
/// condition between the calls.
template <class Platform> class basic_backoff {
public:
    /// Pauses, yields or sleeps once.
    void operator()() noexcept {
        if constexpr (Platform::model) {
            Platform::pause();
        } else if (count_ < yields_from) {
            for (int left = 1 << count_; left > 0; --left) {
                Platform::pause();
            }
            ++count_;
        } else if (count_ < sleeps_from) {
            Platform::yield();
            ++count_;
        } else {
            const typename Platform::template atomic<futex_word> never_changed{0};
            // Calls the platform's futex_wait() and not that of core/futex.hpp: the sleep is too
            // short for another thread to take over this thread's work.
            Platform::futex_wait(never_changed, futex_word{0}, Platform::now() + sleep_ns);
        }
    }

private:
    static constexpr int yields_from = 6;
    static constexpr int sleeps_from = 200;
    static constexpr std::int64_t sleep_ns = 50'000;
    int count_ = 0;
};

}} // namespace bide::BIDE_ABI

#endif
