// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_SPIN_HPP
#define BIDE_CORE_SPIN_HPP

/// \file
/// Decides how long a waiter spins before it sleeps.
//
// Spinning pays if the awaited change comes sooner than a sleep and a wake take. If two threads
// hand work to each other, the longest step is the wake of the partner that sleeps. The wake
// consists of the call, and of the time until the partner runs, which is 1.5 to 2 times as long as
// the call. A waiter that spins for a shorter time falls asleep just before its partner hands back.
// The partner must then wake it, and falls asleep itself in the same way. So two threads that have
// fallen asleep once would sleep in each round. The budget is therefore 5/2 of the cost of the wake
// call. That cost is measured where wakes are made, and the budget stays within [2, 20] us.
//
// With a single processor no change can come during a spin, so no thread spins. If several spins of
// a thread failed in a row, the thread skips some of the next spins.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>

#include <cstdint>

namespace bide { inline namespace BIDE_ABI {

/// Spins, with a budget that is learned for the process and a history of each thread.
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

    /// Spins for about 1 us, for a caller that is in no queue yet.
    template <class Done> static void briefly(Done&& done) noexcept {
        if constexpr (!Platform::model) {
            if (Platform::template local<history>().single) {
                return;
            }
            for (int i = 0; i < 64 && !done(); ++i) {
                Platform::pause();
            }
        }
    }

    /// Calls `done()` 5 times within about 0.5 us, with growing pauses. Use it for a change that
    /// another thread is about to make.
    /// Returns: true if done() returned true.
    template <class Done> static bool spin_once(Done&& done) noexcept {
        if constexpr (!Platform::model) {
            if (!Platform::template local<history>().single) {
                for (int pauses = 1; pauses <= 16; pauses *= 2) {
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

    /// Pauses for about 0.3 us and then 0.7 us, and calls `done()` after each. Use it if another
    /// thread makes such changes often: fewer reads take fewer cache lines from that thread.
    /// Returns: true if done() returned true.
    template <class Done> static bool spin_apart(Done&& done) noexcept {
        if constexpr (!Platform::model) {
            if (!Platform::template local<history>().single) {
                for (int pauses = 32; pauses <= 64; pauses *= 2) {
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

    /// Spins once and then yields for `ns` nanoseconds.
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
            const std::uint32_t tally = wakes_.fetch_add(1, std::memory_order_relaxed);
            if (tally % 16 != 0) {
                call();
                return;
            }
            const std::int64_t before = Platform::now();
            call();
            learn(Platform::now() - before);
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
                single = Platform::single_cpu();
                asked = !single;
                skip = single ? most_skipped : 0;
            }
            return !single;
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

    // In a simulation, there is no other thread and the clock stands still, so spinning is of no
    // use.
    static bool is_of_no_use() noexcept { return detail::simulated_machine::here() != nullptr; }

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

    // Follows a higher cost quickly and a lower cost slowly.
    static void learn(std::int64_t cost) noexcept {
        // Order: relaxed; the cost is an estimate, and a lost update does no harm.
        const std::int64_t old = wake_cost_ns_.load(std::memory_order_relaxed);
        std::int64_t next = cost > old ? old + (cost - old) / 2 : old - (old - cost) / 16;
        next = next < min_cost_ns ? min_cost_ns : next > max_cost_ns ? max_cost_ns : next;
        // Order: relaxed; as for the load.
        wake_cost_ns_.store(next, std::memory_order_relaxed);
    }

    inline static typename Platform::template atomic<std::uint32_t> wakes_{0};
    inline static typename Platform::template atomic<std::int64_t> wake_cost_ns_{max_cost_ns};
};

}} // namespace bide::BIDE_ABI

#endif
