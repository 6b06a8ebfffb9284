#ifndef BIDE_TESTS_SUPPORT_CRASH_ARENA_HPP
#define BIDE_TESTS_SUPPORT_CRASH_ARENA_HPP

// What processes that are killed and stopped fight for, in memory that they share with their parent;
// and the referee among them, which nobody's death can blind. Threads may fight for it as well.
//
// Who holds the lock writes itself into its cell: the fence, the lane, and until when it may believe
// that it holds, which is its guard's local deadline. While it is inside it acts again and again:
// it writes to the resource, and looks at the other cells. It takes itself out of its cell before it
// releases. So
//
//   - two that are inside at a time cannot miss each other: both write their cells before they look,
//     and the orders are seq_cst; the later one to look sees the other.
//   - what is found is true: a cell that says the same before and after a look at the clock was
//     inside at that time; with both deadlines still to come two leases are in force at once.
//   - a process that is about to be killed is marked in its cell before the signal is sent. Who finds
//     a cell inside and then no mark has found a process that lives: no false alarm, however soon
//     a lock is passed on to the next. Who finds a mark passes by: the process may be gone. If it is
//     not, and still acts, then it looks itself, and finds the other, which is not marked: at most one
//     process is between its mark and its end. No blind spot.
//   - where a lease has to outlive its process, marks do not count: the dead stays in its cell,
//     which nobody else gets before its time is over.
//
// A write is stale when, before it began, somebody with a later token had written. The referee keeps
// account of that by itself, and not by the gate, which it is to judge.

#include <bide/durable/fence_gate.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include <time.h>

namespace test {

// By how much this process's clock since the boot is ahead of the machine's: in a time namespace.
inline std::int64_t& boottime_ahead_ns() noexcept {
    static std::int64_t ahead = 0;
    return ahead;
}

// Nanoseconds since the machine was booted, the same for all processes.
inline std::int64_t boottime_ns() noexcept {
    timespec now{};
#if defined(CLOCK_BOOTTIME)
    ::clock_gettime(CLOCK_BOOTTIME, &now);
#else
    ::clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - boottime_ahead_ns();
}

// One process of one time; its successor has another one.
struct crash_cell {
    std::atomic<std::int64_t> inside{0}; // the fence that it is inside with; 0: it is not
    std::atomic<std::int64_t> until{0}; // when its belief ends; of the last time that it was inside
    std::atomic<std::int64_t> lane{0};
    std::atomic<bool> is_taken{false};  // until its process was reaped
    std::atomic<bool> is_doomed{false}; // a SIGKILL is about to be sent
    std::atomic<bool> has_finished{false};
};

class crash_arena {
public:
    static constexpr int cells = 64;
    static constexpr int lanes = 8;

    // Set before anybody is there.
    bool is_gated = true;             // the resource checks tokens
    bool lease_outlives_kill = false; // nobody else may be granted the lock before it is over

    // ---- the parent's

    // One for a new process, which nobody has to remember the last of; -1: there is none now.
    int take_cell() noexcept {
        for (int i = 0; i < cells; ++i) {
            last_taken_ = (last_taken_ + 1) % cells;
            crash_cell& c = cell[static_cast<std::size_t>(last_taken_)];
            const bool is_over = c.inside == 0 || !lease_outlives_kill || boottime_ns() > c.until;
            if (!c.is_taken && is_over) {
                c.inside = 0;
                c.is_doomed = false;
                c.has_finished = false;
                c.is_taken = true;
                return last_taken_;
            }
        }
        return -1;
    }

    // ---- a holder's

    // It was granted the lock: `newest_before` is what newest_grant was before it asked. `until` of a
    // time before the guard was asked, and what remains.
    void enter(int me, std::int64_t fence, std::int64_t lane, std::int64_t until,
               std::int64_t newest_before) noexcept {
        if (lane < 0 || lane >= lanes) {
            ++wrong_lanes;
            return;
        }
        crash_cell& mine = cell[static_cast<std::size_t>(me)];
        mine.lane = lane;
        mine.until = until;
        mine.inside = fence;
        if (fence <= newest_before) {
            ++fences_not_later;
        }
        if (granted_[static_cast<std::size_t>(fence) % granted_.size()].exchange(fence) == fence) {
            ++fences_twice;
        }
        raise(newest_grant, fence);
        const std::int64_t now = boottime_ns();
        raise(longest_gap, now - last_grant_at.exchange(now));
        if (const std::int64_t killed_at = holder_killed_at.exchange(0)) {
            const std::size_t n = recoveries++;
            recovery[n % recovery.size()] = now - killed_at;
        }
        ++acquisitions;
    }

    // A write with its token, and a look around.
    void act(int me, std::int64_t until) noexcept {
        crash_cell& mine = cell[static_cast<std::size_t>(me)];
        if (const std::int64_t fence = mine.inside) {
            mine.until = until;
            write(fence, static_cast<std::size_t>(mine.lane), until);
            look(me);
        }
    }

    void leave(int me) noexcept { cell[static_cast<std::size_t>(me)].inside = 0; }

    // The first is kept in words.
    void complain(const char* doing, const std::string& what) noexcept {
        if (errors++ == 0) {
            std::snprintf(first_error, sizeof first_error, "%s: %s", doing, what.c_str());
        }
    }

    std::array<crash_cell, cells> cell{};

    // An order of the parent's to whoever is inside: stand still there.
    static constexpr int anybody = -1;
    std::atomic<int> stand_still{0}; // 0: no order; anybody; or the cell that obeys it, + 1
    std::atomic<bool> is_ending{false};

    std::atomic<std::int64_t> newest_grant{0};
    std::atomic<std::int64_t> last_grant_at{0};
    std::atomic<std::int64_t> longest_gap{0};      // ns from one grant to the next
    std::atomic<std::int64_t> longest_wait{0};     // ns of one process for one grant
    std::atomic<std::int64_t> holder_killed_at{0}; // 0: somebody has got it since
    std::atomic<std::size_t> recoveries{0};
    std::array<std::atomic<std::int64_t>, 4'096> recovery{}; // ns from the kill to the next grant

    std::atomic<std::int64_t> acquisitions{0};
    std::atomic<std::int64_t> overlaps{0};
    std::atomic<std::int64_t> stale_attempted{0};
    std::atomic<std::int64_t> stale_accepted{0};
    std::atomic<std::int64_t> refused_in_time{0}; // a holder in its lease, by the gate
    std::atomic<std::int64_t> fences_not_later{0};
    std::atomic<std::int64_t> fences_twice{0};
    std::atomic<std::int64_t> wrong_lanes{0};
    std::atomic<std::int64_t> told_lost{0}; // releases that heard that the lease was over
    std::atomic<std::int64_t> believers{0}; // guards that took a lost lock for held
    std::atomic<std::int64_t> deaf{0};      // guards that never said that it was lost
    std::atomic<std::int64_t> errors{0};
    char first_error[200] = {};
    char first_overlap[200] = {};

    static void raise(std::atomic<std::int64_t>& to, std::int64_t value) noexcept {
        for (std::int64_t is = to; is < value && !to.compare_exchange_weak(is, value);) {
        }
    }

private:
    int last_taken_ = 0;

    void write(std::int64_t fence, std::size_t lane, std::int64_t until) noexcept {
        const bool is_stale = newest_write_[lane] > fence;
        const bool let_in = !is_gated || gate_[lane].admit(fence);
        if (is_stale) {
            ++stale_attempted;
            stale_accepted += let_in ? 1 : 0;
        }
        if (let_in) {
            raise(newest_write_[lane], fence);
        } else if (boottime_ns() < until) {
            ++refused_in_time;
        }
    }

    void look(int me) noexcept {
        const crash_cell& mine = cell[static_cast<std::size_t>(me)];
        for (int i = 0; i < cells; ++i) {
            const crash_cell& other = cell[static_cast<std::size_t>(i)];
            const std::int64_t fence = other.inside;
            if (i == me || fence == 0 || other.lane != mine.lane) {
                continue;
            }
            const std::int64_t until = other.until;
            const std::int64_t now = boottime_ns();
            if (other.inside != fence || now >= until || now >= mine.until) {
                continue;
            }
            if (other.is_doomed && !lease_outlives_kill) {
                continue;
            }
            if (overlaps++ == 0) {
                std::snprintf(first_overlap, sizeof first_overlap,
                              "fence %lld has %lld us left, fence %lld of the same lane %lld us%s",
                              static_cast<long long>(mine.inside),
                              static_cast<long long>((mine.until - now) / 1'000),
                              static_cast<long long>(fence),
                              static_cast<long long>((until - now) / 1'000),
                              other.is_doomed ? ", and was killed" : "");
            }
        }
    }

    std::array<bide::fence_gate, lanes> gate_{};
    std::array<std::atomic<std::int64_t>, lanes> newest_write_{};
    std::array<std::atomic<std::int64_t>, 1 << 16> granted_{}; // each fence at its place
};

static_assert(std::atomic<std::int64_t>::is_always_lock_free);

} // namespace test

#endif
