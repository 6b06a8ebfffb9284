#ifndef BIDE_SCHED_DETAIL_TIMER_LEADER_HPP
#define BIDE_SCHED_DETAIL_TIMER_LEADER_HPP

// Until when somebody sleeps for the timers of all workers: the sleeper's side of pair [timer_queue.next]
// (core/timer_queue.hpp), for who adds a timer and relies on that. Whoever goes to sleep and finds a
// timer before that time takes the office over; whoever had it sleeps on until its own time and then
// finds that it is not needed. A keeper that wakes resigns; if it runs something then while timers
// are left, another sleeper must be woken to keep the time.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>

#include <cstdint>
#include <limits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_timer_leader {
public:
    static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();

    // Nobody sleeps until `t` or less. For who has made a timer for then visible.
    bool misses(std::int64_t t) const noexcept {
        // Order: seq_cst [timer_queue.next]; after the timer was made visible.
        return t < until_.load(std::memory_order_seq_cst);
    }

    // For who goes to sleep: keeps the time of the earliest timer, which next() reads (seq_cst), if
    // nobody does. `mine`: until when to sleep then, otherwise unchanged.
    template <class Next> void keep(std::int64_t& mine, Next&& next) noexcept {
        for (;;) {
            const std::int64_t first = next();
            // Order: relaxed; the CAS decides.
            std::int64_t seen = until_.load(std::memory_order_relaxed);
            if (first >= seen) {
                return;
            }
            // Order: relaxed; who adds an earlier timer and does not see this finds a sleeper to wake
            // in the idle word [I1]. Failure: look again.
            if (until_.compare_exchange_strong(seen, first, std::memory_order_relaxed,
                                               std::memory_order_relaxed)) {
                mine = first;
            }
        }
    }

    // For who has woken. True: it kept the time.
    bool resign(std::int64_t& mine) noexcept {
        if (mine == never) {
            return false;
        }
        std::int64_t seen = std::exchange(mine, never);
        // Order: seq_cst [timer_queue.next]; who relied on the old time has made its timer visible
        // before: whoever looks at the timers after this sees it. Failure: somebody sleeps for an
        // earlier time.
        until_.compare_exchange_strong(seen, never, std::memory_order_seq_cst,
                                       std::memory_order_relaxed);
        return true;
    }

private:
    typename Platform::template atomic<std::int64_t> until_{never};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
