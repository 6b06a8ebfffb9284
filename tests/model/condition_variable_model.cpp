// condition_variable: no notification is lost between the unlock and the sleep; a notified waiter has
// the mutex next in the mutex's queue, whatever ends beside it.

#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/condition_variable.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <model/sync_support.hpp>
#include <support/coroutines.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using awake = model::platform_without_lock_sleep;
template <class P> using condition = bide::basic_condition_variable<P>;
using condition_queue = bide::detail::basic_condition_queue<awake>;
using place = condition_queue::place;
using lock_kind = bide::detail::condition_lock<awake>;
using waiter = bide::basic_waiter<awake>;
using awake_mutex = bide::basic_mutex<awake>;

// One waits for data that the other one makes.
template <class Lock, class P, bool UnderLock> void one_waits() {
    typename Lock::mutex_type m;
    condition<P> changed;
    var<int> data{0};
    model::thread telling([&] {
        std::unique_lock held(m);
        data = 1;
        if (!UnderLock) {
            held.unlock();
        }
        changed.notify_one();
    });
    Lock lock(m);
    changed.wait(lock, [&] { return data == 1; });
    MODEL_REQUIRE(lock.owns_lock() && data == 1);
}

// Two wait, and each takes one item of what the notifiers made.
template <class Mutex> void two_wait(bool all) {
    Mutex m;
    condition<awake> changed;
    var<int> items{0};
    const auto take = [&] {
        std::unique_lock lock(m);
        changed.wait(lock, [&] { return items != 0; });
        items = items - 1;
    };
    model::thread first(take);
    model::thread second(take);
    if (all) {
        {
            const std::scoped_lock held(m);
            items = 2;
        }
        changed.notify_all();
    } else {
        for (int i = 0; i < 2; ++i) {
            const std::scoped_lock held(m);
            increment(items);
            changed.notify_one();
        }
    }
    first.join();
    second.join();
    MODEL_REQUIRE(items == 0);
}

// A waiter of `m` that is queued, and whose owner only looks.
struct queued_in {
    template <class Mutex>
    queued_in(condition_queue& q, Mutex& m) : at(lock_kind(std::unique_lock(m, std::defer_lock))) {
        m.lock();
        MODEL_REQUIRE(q.enqueue(w, at) == wait_status::waiting);
        m.unlock();
    }
    waiter w{1};
    place at;
};

// Passes the mutex through the two waiters, as far as they are granted it. Returns their number.
template <class Mutex> int pass_through(Mutex& m, queued_in& a, queued_in& b) {
    bool passed[2] = {};
    int n = 0;
    for (int again = 0; again < 2; ++again) {
        for (queued_in* const one : {&a, &b}) {
            bool& done = passed[one == &a ? 0 : 1];
            if (!done && one->w.is_complete()) {
                done = true;
                ++n;
                m.unlock();
            }
        }
    }
    return n;
}

TEST_CASE("condition_variable: no notification is lost between the unlock and the sleep") {
    using mutex = bide::basic_mutex<platform>;
    model::check("condition: notified under the lock",
                 &one_waits<std::unique_lock<mutex>, platform, true>);
    model::check("condition: notified after the unlock",
                 &one_waits<std::unique_lock<mutex>, platform, false>);
    model::check("condition: notified, spurious", {.spurious = 1, .weak_failures = 1},
                 &one_waits<std::unique_lock<awake_mutex>, awake, false>);
    model::check("condition: with an adaptive_mutex",
                 &one_waits<std::unique_lock<bide::basic_adaptive_mutex<awake>>, awake, false>);
    model::check("condition: with an adaptive_mutex, under the lock",
                 &one_waits<std::unique_lock<bide::basic_adaptive_mutex<awake>>, awake, true>);
    model::check("condition: with a shared_mutex",
                 &one_waits<std::unique_lock<bide::basic_shared_mutex<awake>>, awake, true>);
    model::check("condition: with a shared lock",
                 &one_waits<std::shared_lock<bide::basic_shared_mutex<awake>>, awake, false>);
}

TEST_CASE("condition_variable: each of two waiters gets its notification and the mutex") {
    model::check("condition: two wait, notify_all", random_or_long(10'000),
                 [] { two_wait<awake_mutex>(true); });
    model::check("condition: two wait, notify_one twice", random_or_long(10'000),
                 [] { two_wait<awake_mutex>(false); });
    model::check("condition: two wait with an adaptive_mutex", random_or_long(10'000),
                 [] { two_wait<bide::basic_adaptive_mutex<awake>>(true); });
    model::check("condition: two in the queue, two that notify one", [] {
        awake_mutex m;
        condition_queue q;
        queued_in a(q, m);
        queued_in b(q, m);
        model::thread other([&] { q.notify_one(); });
        q.notify_one();
        other.join();
        MODEL_REQUIRE(pass_through(m, a, b) == 2 && m.try_lock());
    });
    model::check("condition: two in the queue, one notifies all, one locks", [] {
        awake_mutex m;
        condition_queue q;
        var<int> data{0};
        queued_in a(q, m);
        queued_in b(q, m);
        model::thread locking([&] {
            const std::scoped_lock held(m);
            increment(data);
        });
        q.notify_all();
        await(a.w);
        MODEL_REQUIRE(!b.w.is_complete());
        increment(data);
        m.unlock();
        await(b.w);
        increment(data);
        m.unlock();
        locking.join();
        MODEL_REQUIRE(data == 3 && m.try_lock());
    });
}

TEST_CASE("condition_variable: a wait that times out has the mutex, and one outcome") {
    model::check("condition: time-out against notify_one", {.timeouts = 1}, [] {
        awake_mutex m;
        condition<awake> changed;
        var<int> data{0};
        model::thread waiting([&] {
            std::unique_lock lock(m);
            if (changed.wait_for(lock, soon)) {
                MODEL_REQUIRE(data == 1);
            }
            increment(data);
        });
        {
            const std::scoped_lock held(m);
            increment(data);
            changed.notify_one();
        }
        waiting.join();
        MODEL_REQUIRE(data == 2 && m.try_lock());
    });
    model::check("condition: the time-out of one, a notification", {.timeouts = 1}, [] {
        awake_mutex m;
        condition_queue q;
        queued_in impatient(q, m);
        queued_in patient(q, m);
        model::thread waiting([&] {
            if (!impatient.w.park(deadline::at_ns(1))) {
                MODEL_REQUIRE(!q.cancel(impatient.w, impatient.at, wait_status::timed_out));
            }
        });
        q.notify_one();
        waiting.join();
        const bool in_time = impatient.at.outcome() == wait_status::granted;
        MODEL_REQUIRE(pass_through(m, impatient, patient) == (in_time ? 1 : 2));
        MODEL_REQUIRE(patient.w.is_complete() == !in_time && m.try_lock());
        m.unlock();
        q.notify_all();
    });
}

TEST_CASE("condition_variable: a stop moves the waiter to the mutex, unless it is notified first") {
    model::check("condition: stop against notify_one", [] {
        awake_mutex m;
        condition_queue q;
        var<int> set{0};
        var<int> stopped{0};
        queued_in a(q, m);
        model::thread stopping(model::after_writing(
            stopped, [&] { MODEL_REQUIRE(!q.cancel(a.w, a.at, wait_status::stopped)); }));
        model::thread telling(model::after_writing(set, [&] { q.notify_one(); }));
        await(a.w);
        MODEL_REQUIRE((a.at.outcome() == wait_status::granted ? set : stopped) == 1);
        m.unlock();
    });
    model::check("condition: stop of the first against notify_one", [] {
        awake_mutex m;
        condition_queue q;
        queued_in a(q, m);
        queued_in b(q, m);
        model::thread stopping([&] { q.cancel(a.w, a.at, wait_status::stopped); });
        q.notify_one();
        stopping.join();
        const bool notified = a.at.outcome() == wait_status::granted;
        MODEL_REQUIRE(pass_through(m, a, b) == (notified ? 1 : 2) && m.try_lock());
        m.unlock();
        q.notify_all();
    });
    model::check("condition: stopped before it is queued, or while", [] {
        awake_mutex m;
        condition_queue q;
        waiter w(1);
        place at{lock_kind(std::unique_lock(m, std::defer_lock))};
        model::thread stopping([&] { q.cancel(w, at, wait_status::stopped); });
        m.lock();
        if (q.enqueue(w, at) == wait_status::waiting) {
            m.unlock();
            w.park(deadline::never());
            MODEL_REQUIRE(at.outcome() == wait_status::stopped);
        } else {
            MODEL_REQUIRE(w.outcome() == wait_status::stopped);
        }
        MODEL_REQUIRE(!m.try_lock());
        m.unlock();
        stopping.join();
        q.require_no_waiters();
    });
}

TEST_CASE("condition_variable: it may be destroyed when its waiters wait for the mutex only") {
    model::check("condition: destroyed after notify_all", [] {
        awake_mutex m;
        std::optional<condition_queue> q(std::in_place);
        condition_queue& gone = *q;
        queued_in a(*q, m);
        queued_in b(*q, m);
        model::thread locking([&] {
            m.lock();
            m.unlock();
        });
        q->notify_all();
        q.reset();
        gone.cancel(b.w, b.at, wait_status::timed_out); // leaves it alone
        await(a.w);
        m.unlock();
        await(b.w);
        m.unlock();
        MODEL_REQUIRE(b.at.outcome() == wait_status::granted);
    });
    model::check("condition: destroyed by the notified waiter", [] {
        awake_mutex m;
        auto* const changed = new condition<awake>;
        var<int> waits{0};
        model::thread telling([&] {
            m.lock();
            const bool notifies = waits == 1;
            m.unlock();
            if (notifies) {
                changed->notify_one();
            } else {
                const std::scoped_lock held(m);
                waits = 2;
                changed->notify_one();
            }
        });
        {
            std::unique_lock lock(m);
            if (waits == 0) {
                waits = 1;
                changed->wait(lock);
                delete changed;
                return;
            }
        }
        telling.join();
        delete changed;
    });
}

test::detached take(awake_mutex& m, condition<awake>& changed, var<int>& items) {
    std::unique_lock lock(m, std::try_to_lock);
    if (!lock.owns_lock()) {
        co_return;
    }
    const auto is_there = [&items] { return items != 0; };
    co_await changed.async_wait(lock, is_there);
    MODEL_REQUIRE(lock.owns_lock());
    items = items - 1;
}

TEST_CASE("condition_variable: a coroutine looks again after each notification") {
    model::check("condition: a coroutine, two notifications", [] {
        awake_mutex m;
        condition<awake> changed;
        var<int> items{0};
        take(m, changed, items);
        model::thread empty([&] { changed.notify_all(); });
        {
            const std::scoped_lock held(m);
            items = 1;
            changed.notify_one();
        }
        empty.join();
        MODEL_REQUIRE(items == 0 && m.try_lock());
    });
}

} // namespace
