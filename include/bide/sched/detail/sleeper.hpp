#ifndef BIDE_SCHED_DETAIL_SLEEPER_HPP
#define BIDE_SCHED_DETAIL_SLEEPER_HPP

// Where a worker sleeps: as a parker (core/parker.hpp), on a futex, or else in the scheduler's
// driver, where it looks after files as well. One word:
//
//   empty     no token; the worker is awake or on its way to sleep
//   parked    no token; it sleeps on this word or is about to
//   driving   no token; it is in the driver or about to be
//   notified  a token waits for it
//
// Both sides decide by what their read-modify-write returned, as there; unpark() finds from the old
// state how the sleeper is to be woken. The driver keeps a wake that comes before its wait.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/spin.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform, class Driver> class basic_sleeper {
public:
    constexpr basic_sleeper() noexcept = default;
    basic_sleeper(const basic_sleeper&) = delete;
    basic_sleeper& operator=(const basic_sleeper&) = delete;

    // Takes the token, waiting for it; in `driver`, where there is one. False: there was none by
    // the deadline, or the driver brought something else.
    bool park(deadline until, Driver* driver = nullptr) noexcept {
        const futex_word how = driver == nullptr ? parked : driving;
        futex_word seen = empty;
        // Order: relaxed; it announces and publishes nothing; a failure is followed by take().
        while (state_.compare_exchange_strong(seen, how, std::memory_order_relaxed,
                                              std::memory_order_relaxed)) {
            const bool in_time = driver == nullptr ? futex_wait<Platform>(state_, parked, until)
                                                   : (driver->wait(until), false);
            if (take()) {
                return true;
            }
            if (!in_time) {
                return false;
            }
            seen = empty; // woken for no reason
        }
        return take();
    }

    // Leaves a token; several count once. Any thread.
    void unpark(Driver* driver) noexcept {
        const auto* const word = &state_;
        // Order: release [P2]; what came before is seen by the one who parks.
        const futex_word old = state_.exchange(notified, std::memory_order_release);
        if (old == parked) {
            basic_spin<Platform>::measured_wake(
                [word]() noexcept { futex_wake<Platform>(word, 1); });
        } else if (old == driving) {
            driver->wake();
        }
    }

    // A snapshot.
    bool is_asleep() const noexcept {
        // Order: relaxed; it is old when it is read.
        const futex_word now = state_.load(std::memory_order_relaxed);
        return now == parked || now == driving;
    }

private:
    static constexpr futex_word empty = 0;
    static constexpr futex_word parked = 1;
    static constexpr futex_word driving = 2;
    static constexpr futex_word notified = 3;

    // Order: acquire [P2]; what the notifier did before unpark().
    bool take() noexcept { return state_.exchange(empty, std::memory_order_acquire) == notified; }

    typename Platform::template atomic<futex_word> state_{empty};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
