#ifndef BIDE_CORE_SPIN_HPP
#define BIDE_CORE_SPIN_HPP

// How long a waiter looks before it sleeps.
//
// Spinning pays when what is waited for comes sooner than a sleep and a wake would take. What takes
// longest in a handoff to and fro is one's own wake of a sleeping partner: the call itself, and
// then the time until the partner runs, which is one and a half to two times as long again. Who
// looks for less than that after the call falls asleep just before the partner hands back, which
// must wake him in turn: two threads that have once fallen asleep stay asleep. The budget is
// therefore 5/2 of what a wake costs its caller, measured where wakes are made, within [2, 20] us.
// On a single processor nothing can come while we look: no spinning. And a thread whose looks have
// failed a few times in a row leaves some out.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>

#include <cstdint>

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_spin {
public:
    // Asks `done()` until it is true or the budget is spent; says which.
    // Requires: done() only reads, but for the step that makes it true.
    template <class Done> static bool until(Done&& done) noexcept {
        if constexpr (Platform::model) {
            return done();
        } else {
            history& mine = Platform::template local<history>();
            if (!mine.may_spin()) {
                return done();
            }
            const bool seen = look(done);
            mine.record(seen);
            return seen;
        }
    }

    // As until(), for about a microsecond: before one has even queued.
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

    // Asks `done()` a few times, less and less often, within half a microsecond or so: for what
    // another thread is about to do.
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

    // Lets others run, up to `times`, and asks `done()` after each: for what takes a thread that
    // has no processor yet.
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

    // A spin_once, and then yields for `ns`.
    template <class Done> static bool patiently(Done&& done, std::int64_t ns) noexcept {
        if constexpr (!Platform::model) {
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

    // A futex wake by `call`, which one time in sixteen is timed.
    template <class Call> static void measured_wake(Call&& call) noexcept {
        if constexpr (Platform::model) {
            call();
        } else {
            // Order: relaxed; a tally that steers a time-out, nothing hangs on it.
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

    // Nanoseconds that a look may take now.
    static std::int64_t budget_ns() noexcept {
        // Order: relaxed; an estimate.
        const std::int64_t cost = wake_cost_ns_.load(std::memory_order_relaxed);
        return cost * 5 / 2;
    }

private:
    static constexpr std::uint32_t most_skipped = 256;
    static constexpr std::int64_t min_cost_ns = 800;
    static constexpr std::int64_t max_cost_ns = 8'000;

    // What this thread's last looks came to.
    struct history {
        std::uint32_t failed = 0; // in a row
        std::uint32_t skip = 0;   // looks still to leave out
        bool asked = false;       // whether `single` is known
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
                return;
            }
            asked = false; // the mask may have changed: ask before the next look
            failed = failed < 10 ? failed + 1 : 10;
            skip = failed > 2 ? most_skipped >> (10 - failed) : 0;
        }
    };

    template <class Done> static bool look(Done& done) noexcept {
        const std::int64_t end = Platform::now() + budget_ns();
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

    // Quick to believe an expensive wake, slow to forget it.
    static void learn(std::int64_t cost) noexcept {
        // Order: relaxed; an estimate, and a lost update is as good as none.
        const std::int64_t old = wake_cost_ns_.load(std::memory_order_relaxed);
        std::int64_t next = cost > old ? old + (cost - old) / 2 : old - (old - cost) / 16;
        next = next < min_cost_ns ? min_cost_ns : next > max_cost_ns ? max_cost_ns : next;
        // Order: relaxed; as above.
        wake_cost_ns_.store(next, std::memory_order_relaxed);
    }

    inline static typename Platform::template atomic<std::uint32_t> wakes_{0};
    inline static typename Platform::template atomic<std::int64_t> wake_cost_ns_{max_cost_ns};
};

} // namespace bide::inline BIDE_ABI

#endif
