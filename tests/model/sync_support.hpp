#ifndef BIDE_TESTS_MODEL_SYNC_SUPPORT_HPP
#define BIDE_TESTS_MODEL_SYNC_SUPPORT_HPP

// What the models of sync/ are made of.
//
// Three threads that all go for a queue's lock are some hundred thousand executions: where two are
// enough to make the point, the third one's node was queued before, and its owner only looks.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/waiter.hpp>
#include <model/check.hpp>

#include <support/standard.hpp>

namespace sync_model {

using bide::deadline;
using bide::wait_status;
using model::failure;
using model::platform;
using model::var;
using node = bide::basic_waiter<platform>;

// Passes only where options.timeouts lets it.
inline constexpr std::chrono::hours soon{1};

inline model::options random(std::uint64_t runs, model::options o = {}) {
    o.how = model::options::method::pct;
    o.runs = runs;
    return o;
}

// At random; in the long tests more often, also with steps that fail for no reason.
inline model::options random_or_long(std::uint64_t runs, model::options o = {}) {
    if (model::is_long()) {
        runs = 300'000;
        o.depth = 5;
        o.spurious = o.weak_failures = 1;
    }
    return random(runs, o);
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

// `n` threads, two or three: the last to have it destroys it, as with a reference count under a lock.
template <class Mutex> void last_one_destroys_it(int n) {
    struct object {
        Mutex m;
        var<int> users;
        explicit object(int all) : users(all) {}
    };
    auto* const o = new object(n);
    const auto leave = [o] {
        o->m.lock();
        const int left = o->users - 1;
        o->users = left;
        o->m.unlock();
        if (left == 0) {
            delete o;
        }
    };
    model::thread a(leave);
    if (n == 3) {
        model::thread b(leave);
        leave();
    } else {
        leave();
    }
}

// One waits for a time only, while the other unlocks it.
template <class Mutex> void one_times_out_or_locks_it() {
    Mutex m;
    var<int> data{0};
    m.lock();
    model::thread waiting([&] {
        if (m.try_lock_for(soon)) {
            increment(data);
            m.unlock();
        }
    });
    increment(data);
    m.unlock();
    waiting.join();
    MODEL_REQUIRE(m.try_lock());
}

// Two threads write, and then each makes the call. A third one waits for both, sees what they wrote, and destroys
// the object, although the calls may not have returned.
template <class Object> void two_write_and_call(Object* o, auto call, auto wait) {
    var<int> left{0};
    var<int> right{0};
    model::thread a([&, o] {
        left = 1;
        call(*o);
    });
    model::thread b([&, o] {
        right = 1;
        call(*o);
    });
    wait(*o);
    MODEL_REQUIRE(left == 1 && right == 1);
    delete o;
}

// ---- Of a lock that readers share

// What a reader does first: nothing, or what makes it come another way.
inline void as_it_comes(std::uint32_t) noexcept {}

template <class Mutex> void one_writes_one_reads(void (*begin)(std::uint32_t) = as_it_comes) {
    Mutex m;
    var<int> a{0};
    var<int> b{0};
    model::thread reader([&] {
        begin(1);
        const std::shared_lock held(m);
        MODEL_REQUIRE(a == b);
    });
    const std::scoped_lock held(m);
    increment(a);
    increment(b);
}

template <class Mutex> void one_writes_one_tries_to_read() {
    Mutex m;
    var<int> data{0};
    model::thread reader([&] {
        if (m.try_lock_shared()) {
            const int seen = data;
            MODEL_REQUIRE(seen != 1);
            m.unlock_shared();
        }
    });
    m.lock();
    increment(data);
    increment(data);
    m.unlock();
}

template <class Mutex> void one_reads_one_tries_to_write() {
    Mutex m;
    var<int> data{0};
    model::thread writer([&] {
        if (m.try_lock()) {
            increment(data);
            m.unlock();
        }
    });
    m.lock_shared();
    MODEL_REQUIRE(data <= 1);
    m.unlock_shared();
}

template <class Mutex> void two_read() {
    Mutex m;
    m.lock_shared();
    model::thread other([&] {
        m.lock_shared();
        m.unlock_shared();
    });
    other.join(); // while it is held here
    m.unlock_shared();
    MODEL_REQUIRE(m.try_lock());
    m.unlock();
}

template <class Mutex> void one_downgrades_one_writes() {
    Mutex m;
    var<int> data{0};
    m.lock();
    model::thread writer([&] {
        const std::scoped_lock held(m);
        increment(data);
    });
    m.unlock_and_lock_shared();
    MODEL_REQUIRE(data == 0);
    m.unlock_shared();
}

// As soon as it has written.
template <class Mutex> void a_writer_destroys_it() {
    auto* const m = new Mutex;
    var<int> data{0};
    m->lock_shared();
    model::thread reader([&, m] {
        MODEL_REQUIRE(data == 0);
        m->unlock_shared();
    });
    m->lock();
    increment(data);
    m->unlock();
    delete m;
}

// Two writers, one of which may give up, and two readers, twice each.
template <class Mutex>
void two_readers_and_two_writers(void (*begin)(std::uint32_t) = as_it_comes) {
    Mutex m;
    var<int> data{0};
    const auto read = [&](std::uint32_t number) {
        begin(number);
        for (int i = 0; i < 2; ++i) {
            const std::shared_lock held(m);
            MODEL_REQUIRE(data <= 2);
        }
    };
    model::thread a([&] { read(0); });
    model::thread b([&] { read(1); });
    model::thread c([&] {
        if (m.try_lock_for(soon)) {
            increment(data);
            m.unlock();
        }
    });
    m.lock();
    increment(data);
    m.unlock_and_lock_shared();
    MODEL_REQUIRE(data >= 1);
    m.unlock_shared();
    a.join();
    b.join();
    c.join();
    MODEL_REQUIRE(m.try_lock());
    m.unlock();
}

// Looks until the wait is over, asleep or not.
template <class Waiter> void await(const Waiter& w) {
    while (!w.is_complete()) {
        platform::pause();
    }
}

// A node that waits in the queue of a primitive when the body begins; whose it is looks, and does not sleep.
struct queued : node {
    template <class Queue>
    explicit queued(Queue& in, std::ptrdiff_t n = 1, bide::waker wake = {}) : node(n, wake) {
        in.enqueue(*this);
    }
    bool is_granted() const noexcept { return is_complete() && outcome() == wait_status::granted; }
};

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
