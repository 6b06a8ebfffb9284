#ifndef BIDE_TESTS_MODEL_SYNC_SUPPORT_HPP
#define BIDE_TESTS_MODEL_SYNC_SUPPORT_HPP

// What the models of sync/ are made of.
//
// Three threads that all go for a queue's lock are some hundred thousand executions: where two are
// enough to make the point, the third one's node was queued before, and its owner only looks.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waker.hpp>
#include <model/check.hpp>

#include <chrono>
#include <cstdint>
#include <mutex>

namespace sync_model {

using bide::deadline;
using bide::wait_status;
using model::failure;
using model::platform;
using model::var;
using node = bide::basic_waiter<platform>;

// Passes only where options.timeouts lets it.
inline constexpr std::chrono::hours soon{1};

inline model::options random(std::uint64_t runs) {
    return {.how = model::options::method::pct, .runs = runs};
}

inline model::options bounded(int preemptions) {
    return {.how = model::options::method::bounded, .preemptions = preemptions};
}

inline void increment(var<int>& data) { data = data + 1; }

// Two threads that lock it: neither increment is lost.
template <class Mutex> void two_lock_it() {
    Mutex m;
    var<int> data{0};
    const auto work = [&] {
        const std::scoped_lock held(m);
        increment(data);
    };
    model::thread other(work);
    work();
    other.join();
    MODEL_REQUIRE(data == 2);
}

// Two threads that try: one of them has it.
template <class Mutex> void two_try_it() {
    Mutex m;
    var<int> data{0};
    bool other = false;
    model::thread trying([&] {
        other = m.try_lock();
        if (other) {
            increment(data);
        }
    });
    const bool mine = m.try_lock();
    if (mine) {
        increment(data);
    }
    trying.join();
    MODEL_REQUIRE(mine != other);
}

// One tries, one locks.
template <class Mutex> void one_tries_one_locks_it() {
    Mutex m;
    var<int> data{0};
    model::thread trying([&] {
        if (m.try_lock()) {
            increment(data);
            m.unlock();
        }
    });
    m.lock();
    increment(data);
    m.unlock();
}

// Looks until the wait is over, asleep or not.
template <class Waiter> void await(const Waiter& w) {
    while (!w.is_complete()) {
        platform::pause();
    }
}

// What a stop does, on the thread that requests it (thread_wait::stoppable).
template <class Queue> void stop(Queue& q, node& w) {
    if (!w.is_complete() && q.cancel(w, wait_status::stopped)) {
        w.publish(wait_status::stopped);
    }
}

// A stop ends a wait in a queue that lets no waiter through: before the wait is queued, or while.
template <class Queue> void stop_at_any_time(Queue& q, node& w) {
    model::thread stopping([&] { stop(q, w); });
    if (q.enqueue(w) == wait_status::waiting) {
        w.park(deadline::never());
    }
    stopping.join();
    MODEL_REQUIRE(w.outcome() == wait_status::stopped);
}

// A foreign owner's: what its waker left.
struct bell {
    var<int> rung{0};

    bide::waker waker() noexcept { return {&ring, this}; }
    static void ring(void* self) noexcept {
        auto& mine = *static_cast<bell*>(self);
        mine.rung = mine.rung + 1;
    }
};

} // namespace sync_model

#endif
