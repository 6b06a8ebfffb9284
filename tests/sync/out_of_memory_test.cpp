// Semaphores, locks, events and latches need no memory, and what they throw changes nothing where
// there is none: see support/shortage.hpp.

#define BIDE_RECYCLE_FRAMES 0 // so that each frame is an allocation

#include "support/shortage.hpp"
#include "support/waiting.hpp"
#include <bide/core/async_op.hpp>

#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/latch.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/sync/synchronized_value.hpp>
#include <bide/task/task.hpp>

namespace {

using test::scenario;
using test::trial;

// An attempt that has to succeed.
template <class F> void runs(trial& t, F&& f) { t.expect(t.attempt(f) && !t.has_failed()); }

// The coroutines are made before memory runs out: a frame is an allocation.
template <class Mutex> bide::task<> locks(Mutex& m) {
    {
        auto held = co_await m.async_lock();
        auto late = co_await m.async_lock().with_timeout(1us);
    }
    auto again = co_await m.async_lock().as_result();
}

// Locks it in every form that a thread has, free and taken, and in coroutines.
template <class Mutex> void lock_in_every_form(trial& t) {
    Mutex m;
    const std::stop_source stop; // allocates
    auto all = locks(m);
    runs(t, [&] {
        m.lock();
        static_cast<void>(m.try_lock());
        static_cast<void>(m.try_lock_for(1us));
        m.unlock();
        if (m.lock(stop.get_token())) {
            m.unlock();
        }
        if constexpr (requires { m.lock_shared(); }) {
            m.lock_shared();
            static_cast<void>(m.try_lock_for(1us));
            m.unlock_shared();
        }
        bide::sync_wait(std::move(all));
    });
    t.expect(m.try_lock());
    m.unlock();
}

bide::task<> acquires(bide::semaphore& s, std::stop_token stop) {
    auto one = co_await s.async_acquire();
    auto late = co_await s.async_acquire().with_timeout(1us);
    auto stopped = co_await s.async_acquire().with_stop(stop);
}
bide::task<> waits(bide::event& e, bide::latch& l) {
    co_await e.async_wait();
    co_await l.async_wait();
}

const scenario scenarios[] = {
    {"semaphore: a thread",
     [](trial& t) {
         bide::semaphore s(1);
         const std::stop_source stop; // allocates
         runs(t, [&] {
             s.acquire();
             static_cast<void>(s.try_acquire());
             static_cast<void>(s.try_acquire_for(1us));
             s.release();
             if (s.acquire(stop.get_token())) {
                 s.release();
             }
             const bide::permit one(s);
         });
         t.expect(s.available() == 1 && s.waiters() == 0);
     }},
    {"semaphore: a thread that waits",
     [](trial& t) {
         bide::semaphore s(0);
         bool has_it = false;
         std::jthread waiter([&] {
             s.acquire();
             has_it = true;
         });
         t.expect(test::has_waiters(s, 1));
         runs(t, [&] { s.release(); });
         waiter.join();
         t.expect(has_it && s.available() == 0);
     }},
    {"semaphore: a coroutine",
     [](trial& t) {
         bide::semaphore s(1);
         std::stop_source stop;
         stop.request_stop();
         auto all = acquires(s, stop.get_token());
         runs(t, [&] { bide::sync_wait(std::move(all)); });
         t.expect(s.available() == 1 && s.waiters() == 0);
     }},
    {"semaphore: more released than it may hold",
     [](trial& t) {
         bide::semaphore s(1);
         bool refused = false;
         const bool done = t.attempt([&] {
             try {
                 s.release(bide::semaphore::max());
             } catch (const std::overflow_error&) {
                 refused = true;
             }
         });
         t.expect(refused == done && s.available() == 1);
     }},
    {"semaphore: an acquire when it is closed",
     [](trial& t) {
         bide::semaphore s(0);
         s.close();
         bool closed = false;
         const bool done = t.attempt([&] {
             try {
                 s.acquire();
             } catch (const bide::closed_error&) {
                 closed = true;
             }
         });
         t.expect(done && closed && s.waiters() == 0);
     }},
    {"permit: splits and merges",
     [](trial& t) {
         bide::semaphore s(2);
         runs(t, [&] {
             bide::permit two(s, 2);
             bide::permit one = two.split(1);
             two.merge(std::move(one));
         });
         t.expect(s.available() == 2);
     }},
    {"permit: more than its semaphore may hold",
     [](trial& t) {
         bide::semaphore s(1);
         {
             bide::permit one(s);
             s.release(bide::semaphore::max());
             runs(t, [&] { const bide::permit gone(std::move(one)); });
         }
         t.expect(s.available() == bide::semaphore::max());
     }},
    {"mutex", &lock_in_every_form<bide::mutex>},
    {"adaptive_mutex", &lock_in_every_form<bide::adaptive_mutex>},
    {"shared_mutex", &lock_in_every_form<bide::shared_mutex>},
    {"synchronized_value",
     [](trial& t) {
         bide::synchronized_value<std::string> v("old");
         const bool done =
             t.attempt([&] { v.with([](std::string& text) { text.append(100, 'a'); }); });
         t.expect(v.lock()->size() == (done ? 103u : 3u));
     }},
    {"event and latch",
     [](trial& t) {
         bide::event e;
         bide::latch l(2);
         auto all = waits(e, l);
         runs(t, [&] {
             static_cast<void>(e.wait_for(1us));
             e.set();
             e.wait();
             l.count_down();
             l.arrive_and_wait();
             bide::sync_wait(std::move(all));
         });
         t.expect(e.is_set() && l.try_wait());
     }},
};

} // namespace

TEST_CASE("sync: no operation needs memory, and what one throws has changed nothing",
          "[promise.out-of-memory]") {
    test::for_each_allocation_failure(scenarios);
}
