// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_FORK_PUBLISHING_HPP
#define BIDE_SCHED_DETAIL_FORK_PUBLISHING_HPP

// How a thief publishes the private jobs of another thread's deque (fork_deque.hpp).
//
// An owner that is in a long job publishes nothing. So a thief that finds that a request stays
// unanswered publishes all private jobs itself, in four steps: it sets the bit `publishing` in
// `range_`, requests, makes a heavy fence, and reads `bottom_`. The last step is one CAS of `range_`,
// which clears the bit and moves split up to that bottom. It fails if the bit is gone: each push and
// pop that looks clears it before it decides anything. An owner that does not look goes on as follows
// [fork_deque.busy]:
//
//   owner: writes bottom   light fence   reads the limit      thief: requests   heavy fence   reads bottom
//
// If the owner has read the limit before the request, the thief reads the bottom that the owner has
// written. Otherwise the owner looks. A push checks the limit first: it only adds a job, which the
// thief sees or does not see. A light fence is free; the thief pays for both (core/platform.hpp).
// Where there is no heavy fence, thieves do not publish, and the owner has to keep more jobs public.
//
// When the owner writes the limit, it changes `range_` afterwards or finds no request in its place.
// So it either clears the bit, or the thief that has set it requests later [fork_deque.publishing].

#include <bide/core/config.hpp>
#include <bide/core/detail/process_fence.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/fork_deque.hpp>

#include <algorithm>

namespace bide::inline BIDE_ABI {

template <class Platform, class Job, unsigned InitialCapacity>
bool basic_fork_deque<Platform, Job, InitialCapacity>::hides_jobs() const noexcept {
    // Order: relaxed, all four; a hint.
    const word seen = range_.load(std::memory_order_relaxed);
    return has_no_public(seen) && limit_.load(std::memory_order_relaxed) == requested &&
           bottom_.load(std::memory_order_relaxed) > split_of(seen) &&
           publisher_.load(std::memory_order_relaxed) == publisher::none;
}

// The thief that is in publish_all() moves split no more. Returns the newest range.
template <class Platform, class Job, unsigned InitialCapacity>
auto basic_fork_deque<Platform, Job, InitialCapacity>::take_over() noexcept -> word {
    // Order: acq_rel [fork_deque.publishing]; sees a split that a thief has moved. A thief that sets
    // its bit later requests later than what the owner has written to the limit.
    return range_.fetch_and(~publishing, std::memory_order_acq_rel) & ~publishing;
}

template <class Platform, class Job, unsigned InitialCapacity>
bool basic_fork_deque<Platform, Job, InitialCapacity>::publish_all() noexcept {
    auto alone = publisher::none;
    // Order: acquire [fork_deque.publisher]; the bit of an earlier thief is gone. Failure relaxed:
    // nothing is done.
    if (!publisher_.compare_exchange_strong(alone, publisher::present, std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
        return false;
    }
    // Order: acquire [fork_deque.publishing]; the request below comes after what the owner has written
    // to the limit before it has changed the range.
    word seen = range_.fetch_or(publishing, std::memory_order_acquire) | publishing;
    // Order: release [fork_deque.request]; the owner that reads this sees the bit.
    limit_.exchange(requested, std::memory_order_release);
    // Order: seq_cst [fork_deque.busy]; before the look at the bottom.
    const bool is_ordered = detail::heavy_fence<Platform>();
    // Order: acquire [fork_deque.bottom]; sees the slots and the jobs below.
    const depth_type bottom = is_ordered ? bottom_.load(std::memory_order_acquire) : 0;
    bool published = false;
    while ((seen & publishing) != 0) {
        const depth_type split = split_of(seen);
        // Order: seq_cst; publishes as rebalance() does. Failure: the loop reads again.
        if (range_.compare_exchange_weak(seen, pack(top_of(seen), (std::max)(split, bottom)),
                                         std::memory_order_seq_cst, std::memory_order_relaxed)) {
            published = bottom > split;
            break;
        }
    }
    // Order: release [fork_deque.publisher].
    publisher_.store(is_ordered ? publisher::none : publisher::impossible,
                     std::memory_order_release);
    return published;
}

} // namespace bide::inline BIDE_ABI

#endif
