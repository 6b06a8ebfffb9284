#ifndef BIDE_TESTS_SUPPORT_CRASH_ARENA_HPP
#define BIDE_TESTS_SUPPORT_CRASH_ARENA_HPP

// The resource that processes compete for, in memory shared with their parent, and the referee that
// checks exclusion. The death of a process does not stop the checks. Threads may compete as well.
//
// Each process has a cell. A holder writes into its cell the fence, the lane, and its guard's local
// deadline: until then it may believe that it holds. While it is inside, it acts repeatedly: it
// writes to the resource, and reads the other cells. It clears its cell before it releases. So
//
//   - two processes that are inside at a time cannot miss each other: both write their cells before
//     they read, and the orders are seq_cst; the later one to read sees the other.
//   - a finding is true: a cell that is equal before and after a read of the clock was inside at
//     that time. If both deadlines are in the future, two leases are valid at once.
//   - the parent marks a cell before it kills the process. If a reader finds a cell inside, and
//     then no mark, that process is alive: there is no false alarm, however fast the lock passes
//     on. If the reader finds a mark, it ignores the cell: the process may be dead. If the process
//     is still alive and acts, it reads the cells itself and finds the reader, which is not marked:
//     at most one process is between its mark and its end. So no overlap is missed.
//   - if a lease must outlive its process, marks are ignored: the dead process stays in its cell,
//     and the cell is not reused before its time expires.
//
// A write is stale if another process with a later token had written before it began. The referee
// detects that by itself, because it also checks the fence gate.

#include <bide/durable/fence_gate.hpp>

#include <support/standard.hpp>

#include <time.h>

namespace test {

// By how much this process's clock since the boot is ahead of the machine's: in a time namespace.
inline std::int64_t& boottime_ahead_ns() noexcept {
    static std::int64_t ahead = 0;
    return ahead;
}

// Nanoseconds since the boot of the machine, equal for all processes.
inline std::int64_t boottime_ns() noexcept {
    timespec now{};
#if defined(CLOCK_BOOTTIME)
    ::clock_gettime(CLOCK_BOOTTIME, &now);
#else
    ::clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - boottime_ahead_ns();
}

// The cell of one process. Its successor uses another cell.
struct crash_cell {
    std::atomic<std::int64_t> inside{0}; // its fence while it is inside; 0: outside
    std::atomic<std::int64_t> until{0};  // the guard's deadline; kept after it left
    std::atomic<std::int64_t> lane{0};
    std::atomic<bool> is_taken{false};  // until the process was reaped
    std::atomic<bool> is_doomed{false}; // the parent is about to send SIGKILL
    std::atomic<bool> has_finished{false};
};

class crash_arena {
public:
    static constexpr int cells = 64;
    static constexpr int lanes = 8;

    // Set before the first process starts.
    bool is_gated = true;             // the resource checks tokens
    bool lease_outlives_kill = false; // no other grant may come before a lease expires

    // Returns a free cell for a new process, whose last process need not be remembered; -1: none is
    // free.
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

    // The process was granted the lock. `newest_before` is newest_grant before it asked. `until` is
    // a time before the guard was asked, plus what remains.
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
        ++acquisitions;
    }

    // Writes with the process's token, and reads the other cells.
    void act(int me, std::int64_t until) noexcept {
        crash_cell& mine = cell[static_cast<std::size_t>(me)];
        if (const std::int64_t fence = mine.inside) {
            mine.until = until;
            write(fence, static_cast<std::size_t>(mine.lane), until);
            look(me);
        }
    }

    void leave(int me) noexcept { cell[static_cast<std::size_t>(me)].inside = 0; }

    // Keeps the text of the first overlap.
    void complain(const char* doing, const std::string& what) noexcept {
        if (errors++ == 0) {
            std::snprintf(first_error, sizeof first_error, "%s: %s", doing, what.c_str());
        }
    }

    std::array<crash_cell, cells> cell{};

    // The parent's order to a process inside: stand still there.
    static constexpr int anybody = -1;
    std::atomic<int> stand_still{0}; // 0: no order; for any cell; or the cell that obeys it, plus 1
    std::atomic<bool> is_ending{false};

    std::atomic<std::int64_t> newest_grant{0};
    std::atomic<std::int64_t> last_grant_at{0};
    std::atomic<std::int64_t> longest_gap{0}; // ns from one grant to the next

    std::atomic<std::int64_t> acquisitions{0};
    std::atomic<std::int64_t> overlaps{0};
    std::atomic<std::int64_t> stale_attempted{0};
    std::atomic<std::int64_t> stale_accepted{0};
    std::atomic<std::int64_t> refused_in_time{
        0}; // writes that the gate refused from a holder within its lease
    std::atomic<std::int64_t> fences_not_later{0};
    std::atomic<std::int64_t> fences_twice{0};
    std::atomic<std::int64_t> wrong_lanes{0};
    std::atomic<std::int64_t> told_lost{0}; // releases that reported the loss of the lease
    std::atomic<std::int64_t> believers{0}; // guards that reported a lost lock as held
    std::atomic<std::int64_t> deaf{0};      // guards that never reported the loss
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
    std::array<std::atomic<std::int64_t>, 1 << 16> granted_{}; // indexed by fence
};

static_assert(std::atomic<std::int64_t>::is_always_lock_free);

} // namespace test

#endif
