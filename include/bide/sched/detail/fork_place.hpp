#ifndef BIDE_SCHED_DETAIL_FORK_PLACE_HPP
#define BIDE_SCHED_DETAIL_FORK_PLACE_HPP

// Where a thread forks: its lane, and whether it does so now. And what is worth a wake.
//
// A thread of the pool keeps its lane until it leaves the pool. Any other thread gets a lane for the
// time of its outermost fork-join in the pool, and so does a thread of the pool that comes back to it
// out of a fork-join of another pool: the forks of each visit stand on a lane of their own.
//
// The threads in a pool whose workers do not steal, or that has only one, have no lanes: they run the
// arms one after the other.
//
// An arm that is published could be run by a worker that sleeps, but to wake it takes the caller
// longer than most small fork-joins as a whole. So the place in the program of each outermost one
// remembers how long it took: where that is brief, somebody who naps is left to his nap (maintenance.hpp).
// Nothing hangs on it but speed: the owner runs what nobody takes.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/detail/fork_lane.hpp>

#include <cstdint>
#include <limits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// A thread's, near (platform.hpp).
template <class Platform> struct basic_fork_place {
    const void* home = nullptr; // the pool's owner, while it is in a fork-join of that
    basic_fork_lane<Platform>* lane = nullptr; // where it forks then; outside of one: its own

    // The lane of a thread of `pool`, in no fork-join of another. nullptr: no memory.
    basic_fork_lane<Platform>* keep(basic_pool<Platform>& pool) noexcept {
        if (lane == nullptr) {
            lane = pool.take_lane();
        }
        return lane;
    }
    void leave(basic_pool<Platform>& pool) noexcept {
        if (lane != nullptr) {
            pool.put_lane(*std::exchange(lane, nullptr));
        }
    }

    static basic_fork_place& here() noexcept {
        return Platform::template near_local<basic_fork_place>();
    }
};

// The lane of a thread for one fork-join: the one that it keeps, or one that is given back.
template <class Platform> class basic_lane_loan {
    using lane = basic_fork_lane<Platform>;

public:
    // `kept`: the thread is the pool's, and in no fork-join.
    basic_lane_loan(basic_pool<Platform>& from, bool kept) noexcept
        : from_(from), kept_(kept), lane_(kept ? from.lane_here() : from.take_lane()) {}
    basic_lane_loan(const basic_lane_loan&) = delete;
    basic_lane_loan& operator=(const basic_lane_loan&) = delete;
    ~basic_lane_loan() {
        if (!kept_ && lane_ != nullptr) {
            from_.put_lane(*lane_);
        }
    }

    // nullptr: no memory.
    lane* get() const noexcept { return lane_; }

private:
    basic_pool<Platform>& from_;
    const bool kept_;
    lane* const lane_;
};

// A place in the program that forks, outermost.
template <class Platform> class basic_fork_site {
public:
    // It takes less than a wake is worth.
    bool is_brief() const noexcept {
        // Order: relaxed; an estimate.
        return average_ns_.load(std::memory_order_relaxed) < worth_a_wake_ns;
    }

    void learn(std::int64_t ns) noexcept {
        // Order: relaxed; an estimate, and a lost update is as good as none.
        const std::int64_t old = average_ns_.load(std::memory_order_relaxed);
        const std::int64_t next = old == unknown ? ns : old + (ns - old) / 4;
        // Order: relaxed; as above.
        average_ns_.store(next, std::memory_order_relaxed);
    }

private:
    static constexpr std::int64_t worth_a_wake_ns = 20'000;
    static constexpr std::int64_t unknown = (std::numeric_limits<std::int64_t>::max)();

    typename Platform::template atomic<std::int64_t> average_ns_{unknown};
};

// While one lives, the thread is in a fork-join, on that lane if there is one. Then it is back where
// it was: in a fork-join of another pool, or in none.
template <class Platform> class basic_fork_session {
    using place = basic_fork_place<Platform>;
    using lane = basic_fork_lane<Platform>;

public:
    // The outermost of a fork-join.
    basic_fork_session(lane& on, basic_fork_site<Platform>& site) noexcept
        : site_(&site), begin_ns_(Platform::now()) {
        on.set_brief(site.is_brief());
        on.take_wake_ns();
        place::here() = {on.home, &on};
    }
    // The same, where there are no lanes.
    explicit basic_fork_session(const void* home) noexcept { place::here() = {home, nullptr}; }
    // A part of one that was stolen from `from`.
    basic_fork_session(lane& on, const lane& from) noexcept {
        on.set_brief(from.is_brief());
        place::here() = {on.home, &on};
    }
    basic_fork_session(const basic_fork_session&) = delete;
    basic_fork_session& operator=(const basic_fork_session&) = delete;
    ~basic_fork_session() {
        place& here = place::here();
        if (site_ != nullptr) {
            site_->learn(Platform::now() - begin_ns_ - here.lane->take_wake_ns());
        }
        here = before_;
    }

private:
    const place before_ = place::here();
    basic_fork_site<Platform>* const site_ = nullptr;
    const std::int64_t begin_ns_ = 0;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
