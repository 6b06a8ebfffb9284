// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_WORK_STEALING_HPP
#define BIDE_SCHED_DETAIL_WORK_STEALING_HPP

// How an idle worker takes jobs from the queues of other workers (work_queues.hpp): half of a ring,
// the oldest child, the oldest arm of a fork-join, or, as the watcher, a job that a LIFO slot holds
// for too long. And its last look at all queues.

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/sched/detail/work_queues.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform>
runnable* basic_work_queues<Platform>::steal(worker& w, unsigned& taken, bool& left) noexcept {
    const auto count = static_cast<unsigned>(workers_.size());
    if (!steals_ || count == 1) {
        return nullptr;
    }
    const auto first = static_cast<unsigned>(w.next_random() % count);
    for (unsigned i = 0; i < 2 * count; ++i) {
        worker& other = workers_[(first + i) % count];
        if (&other == &w) {
            continue;
        }
        runnable* r = nullptr;
        if (i < count) {
            r = other.ring.steal_into(w.ring, taken);
            if (r == nullptr) {
                r = other.children.steal();
                taken = 1;
            }
        } else if (!may_watch_) {
            r = take_lifo(other);
            taken = 1;
        }
        if (r != nullptr) {
            w.has_stolen(taken);
            left = !other.ring.empty() || !other.children.empty();
            return r;
        }
    }
    return nullptr;
}

template <class Platform> runnable* basic_work_queues<Platform>::take_due(worker& w) noexcept {
    runnable* const injected = take_injected(w);
    runnable* const stolen = balance(w);
    if (injected != nullptr && stolen != nullptr) {
        push_ring(w, *stolen);
    }
    return injected != nullptr ? injected : stolen;
}

template <class Platform> runnable* basic_work_queues<Platform>::balance(worker& w) noexcept {
    if (!steals_) {
        return nullptr;
    }
    w.looked_at = (w.looked_at + 1) % static_cast<unsigned>(workers_.size());
    worker& other = workers_[w.looked_at];
    const unsigned mine = w.ring.size();
    const unsigned theirs = other.ring.size();
    if (theirs < mine + mine / 4 + 2) {
        return nullptr;
    }
    unsigned taken = 0;
    runnable* const r = other.ring.steal_into(w.ring, taken, (theirs - mine) / 2);
    if (r != nullptr) {
        w.has_stolen(taken);
        // As after any push [idle.announce]: a worker that announced while the jobs were in neither
        // ring has not seen them.
        unpark(idle_.wake_one());
    }
    return r;
}

template <class Platform>
runnable* basic_work_queues<Platform>::take_arm(worker& w, bool& left) noexcept {
    basic_arm_source<Platform>* const all = steals_ ? arms() : nullptr;
    if (all == nullptr || !all->take_arm(w, left)) {
        return nullptr;
    }
    w.has_stolen(1);
    return &w.arm;
}

template <class Platform> void basic_work_queues<Platform>::note_progress() noexcept {
    for (worker& other : workers_) {
        // Order: relaxed; only the watcher reads it, and there is one watcher at a time.
        other.polled_when_seen.store(other.polled.read(), std::memory_order_relaxed);
    }
}

template <class Platform> runnable* basic_work_queues<Platform>::take_stale(worker& w) noexcept {
    for (worker& other : workers_) {
        // Order: relaxed; see note_progress().
        if (&other == &w ||
            other.polled_when_seen.load(std::memory_order_relaxed) != other.polled.read()) {
            continue;
        }
        if (runnable* const r = take_lifo(other)) {
            w.has_stolen(1);
            return r;
        }
    }
    return nullptr;
}

template <class Platform>
bool basic_work_queues<Platform>::sees_work(const worker& w, bool but_arms) const noexcept {
    if (!has_nothing(w) || has_class_work(w)) {
        return true;
    }
    for (const worker& other : workers_) {
        if (!steals_) {
            break;
        }
        if (!other.ring.empty() || !other.children.empty()) {
            return true;
        }
        // Order: seq_cst [idle.announce]; sees a push that did not see this worker's announcement.
        if (!may_watch_ && other.lifo.load(std::memory_order_seq_cst) != nullptr) {
            return true;
        }
    }
    return steals_ && !but_arms && has_arms();
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
