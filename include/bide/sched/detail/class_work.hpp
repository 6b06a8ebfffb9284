// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_CLASS_WORK_HPP
#define BIDE_SCHED_DETAIL_CLASS_WORK_HPP

// How the queues of a pool (work_queues.hpp) work together with those of high, low and pinned jobs
// (class_queues.hpp).

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/detail/work_queues.hpp>

#include <cstddef>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform>
bool basic_work_queues<Platform>::push_pinned(worker& home, runnable& r) noexcept {
    classes_.use();
    const unsigned at = home.pinned.push(r);
    if (basic_thread_role<Platform>::here().pinned == &home.pinned) {
        return true; // this thread will look
    }
    if (at == home.pinned.none) {
        return false;
    }
    if (idle_.wake_worker(at)) {
        // Order: relaxed; the token publishes it.
        workers_[at].woken_for_pinned.store(true, std::memory_order_relaxed);
        unpark(workers_[at]);
    }
    return true;
}

// Not inlined: most schedulers never call it.
template <class Platform>
BIDE_NOINLINE runnable* basic_work_queues<Platform>::take_in_turn(worker& w) noexcept {
    if (runnable* const r = classes_.take_in_turn(w.turns, w.mine)) {
        return r;
    }
    return std::exchange(w.injector_is_due, false) ? take_due(w) : nullptr;
}

template <class Platform> runnable* basic_work_queues<Platform>::next(worker& w) noexcept {
    if (classes_.in_use()) [[unlikely]] {
        if (runnable* const r = take_in_turn(w)) {
            return r;
        }
    }
    if (runnable* const r = local_work(w)) {
        return r;
    }
    runnable* const r = fetch(w);
    return r != nullptr ? r : take_pinned(w);
}

template <class Platform> runnable* basic_work_queues<Platform>::pop() noexcept {
    runnable* r = injector_.pop();
    r = r != nullptr ? r : classes_.pop();
    for (auto w = workers_.begin(); r == nullptr && w != workers_.end(); ++w) {
        r = w->pinned.pop();
    }
    return r;
}

template <class Platform> std::size_t basic_work_queues<Platform>::queued() const noexcept {
    std::size_t all = injector_.size() + classes_.high() + classes_.low();
    for (const worker& w : workers_) {
        all += w.pinned.size();
    }
    return all;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
