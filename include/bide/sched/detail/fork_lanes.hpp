// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_FORK_LANES_HPP
#define BIDE_SCHED_DETAIL_FORK_LANES_HPP

// The fork lanes of a pool: a list that only grows, and a free list. Any thread reads the list
// without a lock. Lanes are destroyed with the pool and not before, because a thief may still read
// a lane after its thread has put it back.

#include <bide/core/config.hpp>
#include <bide/core/detail/process_fence.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/detail/fork_lane.hpp>

#include <cstdint>
#include <new>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_fork_lanes {
public:
    using lane = basic_fork_lane<Platform>;
    using job = basic_fork_job<Platform>;

    // `is_used`: workers steal from lanes.
    explicit basic_fork_lanes(bool is_used) noexcept {
        if (is_used) {
            prepare_heavy_fence<Platform>(); // for publish_hidden()
        }
    }
    basic_fork_lanes(const basic_fork_lanes&) = delete;
    basic_fork_lanes& operator=(const basic_fork_lanes&) = delete;
    ~basic_fork_lanes() {
        // Order: relaxed; no thread forks any more.
        for (lane* at = newest_.load(std::memory_order_relaxed); at != nullptr;) {
            lane* const older = at->older();
            delete at;
            at = older;
        }
    }

    // Returns a free lane or a new one. Returns nullptr if there is no memory.
    lane* take(basic_work_queues<Platform>& queues, const void* scheduler_id) noexcept;

    // Makes a lane free.
    // Requires: the lane holds no job.
    void put(lane& mine) noexcept {
        lock::acquire(lock_);
        mine.next_free_ = static_cast<lane*>(free_);
        free_ = &mine;
        lock::release_plain(lock_);
    }

    // Takes the oldest public job of a lane, and sets `from` to that lane. Returns nullptr if no
    // lane has a public job. `chance` decides which lane is searched first.
    job* steal(std::uint64_t chance, lane*& from) noexcept;

    // Publishes jobs of a lane whose owner is busy with something else. Returns true if jobs may be
    // public now.
    bool publish_hidden() noexcept {
        for (lane* at = newest(); at != nullptr; at = at->older()) {
            if (at->publish_hidden()) {
                return true;
            }
        }
        return false;
    }

    // The last look of a worker before it sleeps [idle.announce].
    bool has_work() const noexcept {
        for (const lane* at = newest(); at != nullptr; at = at->older()) {
            if (!at->is_empty() || at->hides_jobs()) {
                return true;
            }
        }
        return false;
    }

private:
    using lock = lock_bits<Platform, std::uint32_t>;

    lane* newest() const noexcept {
        // Order: seq_cst [idle.announce]; a lane that is not seen here holds nothing that was
        // published before this worker's announcement. Acquire [fork_lane.list]; sees the lane as
        // it was made.
        return newest_.load(std::memory_order_seq_cst);
    }

    typename Platform::template atomic<std::uint32_t> lock_{0};
    typename Platform::template atomic<lane*> newest_{nullptr};
    // Under the lock:
    typename Platform::template var<lane*> free_{nullptr};
    // Order: relaxed; how many lanes there are, approximately.
    typename Platform::template atomic<std::uint32_t> count_{0};
};

template <class Platform>
auto basic_fork_lanes<Platform>::take(basic_work_queues<Platform>& queues,
                                      const void* scheduler_id) noexcept -> lane* {
    lock::acquire(lock_);
    lane* mine = free_;
    if (mine != nullptr) {
        free_ = static_cast<lane*>(mine->next_free_);
    }
    lock::release_plain(lock_);
    if (mine != nullptr) {
        return mine;
    }
    mine = new (std::nothrow) lane(queues, scheduler_id);
    if (mine == nullptr) {
        return nullptr;
    }
    lock::acquire(lock_);
    // Order: relaxed; it changes only under the lock.
    mine->older_ = newest_.load(std::memory_order_relaxed);
    // Order: seq_cst [idle.announce]; before a job is published on the lane. Release
    // [fork_lane.list]; other threads see the lane as it was made.
    newest_.store(mine, std::memory_order_seq_cst);
    // Order: relaxed; nothing depends on it.
    count_.fetch_add(1, std::memory_order_relaxed);
    lock::release_plain(lock_);
    return mine;
}

template <class Platform>
auto basic_fork_lanes<Platform>::steal(std::uint64_t chance, lane*& from) noexcept -> job* {
    lane* const newest = this->newest();
    if (newest == nullptr) {
        return nullptr;
    }
    // Order: relaxed; see take().
    const std::uint32_t count = count_.load(std::memory_order_relaxed);
    lane* first = newest;
    for (std::uint64_t skip = count == 0 ? 0 : chance % count; skip > 0; --skip) {
        lane* const older = first->older();
        first = older != nullptr ? older : newest;
    }
    lane* at = first;
    do {
        if (job* const taken = at->steal()) {
            from = at;
            return taken;
        }
        lane* const older = at->older();
        at = older != nullptr ? older : newest;
    } while (at != first);
    return nullptr;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
