// event, latch: every waiter is let through when the count comes to zero, and sees what came before.
// The gate may be destroyed as soon as one waiter has seen it open.

#include <bide/sync/event.hpp>
#include <bide/sync/latch.hpp>
#include <model/sync_support.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using event = bide::basic_event<platform>;
using latch = bide::basic_latch<platform>;
using gate = bide::detail::basic_gate<platform>;

using order = std::memory_order;

void count_down(latch& l) { l.count_down(); }

TEST_CASE("event: set lets the waiter through, with what came before it") {
    const auto one_waiter = [] {
        auto* const e = new event;
        var<int> data{0};
        model::thread setting(model::after_writing(data, [e] { e->set(); }));
        e->wait();
        MODEL_REQUIRE(data == 1);
        delete e; // though the other one is inside of set() still
    };
    model::check("event: one waiter", one_waiter);
    model::check("event: one waiter, steps that fail for no reason",
                 {.spurious = 1, .weak_failures = 1}, one_waiter);
    model::find("event: destroyed under a second set()", failure::lifetime, {}, [] {
        auto* const e = new event;
        model::thread setting([e] { e->set(); });
        e->set();
        e->wait();
        delete e; // the other set() may find it set, and needs it still
    });
    model::check("event: a thread that looks", [] {
        auto* const e = new event;
        var<int> data{0};
        model::thread setting(model::after_writing(data, [e] { e->set(); }));
        while (!e->is_set()) {
            platform::pause();
        }
        MODEL_REQUIRE(data == 1);
        delete e;
    });
}

TEST_CASE("event: set lets all through") {
    model::check("event: one in the queue, one that comes", [] {
        gate g(1);
        var<int> data{0};
        queued first(g);
        model::thread second([&] {
            g.wait();
            MODEL_REQUIRE(data == 1);
        });
        data = 1;
        g.arrive(1);
        await(first);
        second.join();
        MODEL_REQUIRE(g.is_open());
    });
    model::check("event: two in the queue, the first through destroys it", [] {
        auto* const g = new gate(1);
        var<int> data{0};
        queued a(*g);
        queued b(*g);
        model::thread other([&] {
            a.park(deadline::never());
            MODEL_REQUIRE(data == 1);
        });
        model::thread setting(model::after_writing(data, [g] { g->arrive(1); }));
        b.park(deadline::never());
        MODEL_REQUIRE(data == 1);
        delete g; // though the other calls have not returned
    });
    model::check("event: two that set", [] {
        event e;
        var<int> left{0};
        var<int> right{0};
        model::thread setting([&] {
            left = 1;
            e.set();
            MODEL_REQUIRE(e.is_set());
        });
        right = 1;
        e.set();
        MODEL_REQUIRE(e.is_set());
        setting.join();
        e.reset();
        MODEL_REQUIRE(!e.is_set());
    });
}

TEST_CASE("event: a waiter that was let through stays let through") {
    model::check("event: set and reset at once", [] {
        gate g(1);
        var<int> data{0};
        queued w(g);
        model::thread waiting([&] {
            w.park(deadline::never());
            MODEL_REQUIRE(data == 1);
        });
        data = 1;
        g.arrive(1);
        g.shut();
        waiting.join();
        MODEL_REQUIRE(!g.is_open());
    });
    model::check("event: set against reset", [] {
        event e(true);
        model::thread resetting([&] { e.reset(); });
        e.set();
        resetting.join();
        e.set();
        MODEL_REQUIRE(e.is_set());
        e.reset();
        MODEL_REQUIRE(!e.is_set());
    });
    model::check("event: reset against a wait", [] {
        event e(true);
        model::thread waiting([&] { e.wait(); });
        e.reset();
        e.set();
    });
}

TEST_CASE("event: a reset that ended a set comes after it") {
    model::check("event: what came before the set is seen after the reset", [] {
        event e;
        model::atomic<int> data{0};
        int seen = 0;
        model::thread setting([&] {
            data.store(1, order::relaxed);
            e.set();
        });
        e.reset();
        seen = data.load(order::relaxed);
        setting.join();
        MODEL_REQUIRE(e.is_set() || seen == 1);
    });
}

// Stores an item, with no order of its own, and sets.
void put(model::atomic<int>& item, auto& e) {
    item.store(1, order::relaxed);
    e.set();
}

bool is_there(const model::atomic<int>& item) { return item.load(order::relaxed) != 0; }

// Resets, looks, waits, until all items are there.
void take(auto& e, const auto&... items) {
    for (;;) {
        e.reset();
        if ((is_there(items) && ...)) {
            return;
        }
        e.wait();
    }
}

TEST_CASE("event: set() on a set event comes before the reset() that ends it",
          "[promise.event-set-before-reset]") {
    model::check("event: one sets a set event, one resets, looks, waits", {.weak_failures = 1}, [] {
        event e(true);
        model::atomic<int> item{0};
        model::thread setting([&] { put(item, e); });
        take(e, item);
    });
    const auto body = [](bool is_set) {
        event e(is_set);
        model::atomic<int> left{0};
        model::atomic<int> right{0};
        model::thread a([&] { put(left, e); });
        model::thread b([&] { put(right, e); });
        e.reset();
        const bool seen = is_there(left) && is_there(right);
        a.join();
        b.join();
        MODEL_REQUIRE(seen || e.is_set());
    };
    model::check("event: two set, one resets and looks", {.weak_failures = 1},
                 [=] { body(false); });
    model::check("event: two set a set event, one resets and looks", {.weak_failures = 1},
                 [=] { body(true); });
}

using awake_event = bide::basic_event<model::platform_without_lock_sleep>;

// Two that set, one that waits for both items, with a look after each reset.
void two_set_one_takes(bool is_set) {
    awake_event e(is_set);
    model::atomic<int> left{0};
    model::atomic<int> right{0};
    model::thread a([&] { put(left, e); });
    model::thread b([&] { put(right, e); });
    take(e, left, right);
}

// One that sets twice.
void one_sets_twice() {
    awake_event e;
    model::atomic<int> first{0};
    model::atomic<int> second{0};
    model::thread setting([&] {
        put(first, e);
        put(second, e);
    });
    take(e, first, second);
}

TEST_CASE("event: one of two sets, at least, is not lost by a wait after a reset and a look") {
    const auto body = [](bool is_set) {
        awake_event e(is_set);
        model::atomic<int> left{0};
        model::atomic<int> right{0};
        model::thread a([&] { put(left, e); });
        model::thread b([&] { put(right, e); });
        e.reset();
        if (!is_there(left) || !is_there(right)) {
            e.wait();
            MODEL_REQUIRE(is_there(left) || is_there(right));
        }
    };
    model::check("event: two set, one resets, looks, waits once", [=] { body(false); });
    model::check("event: two set a set event, one resets, looks, waits once", [=] { body(true); });
}

TEST_CASE("event: of two sets none is lost by a thread that resets, looks and waits", "[long]") {
    model::check("event: one sets twice, one resets, looks, waits",
                 model::brief_or_long(random(10'000), {}), one_sets_twice);
    model::check("event: two set, one resets, looks, waits", random_or_long(10'000),
                 [] { two_set_one_takes(false); });
    model::check("event: two set a set event, one resets, looks, waits", random_or_long(10'000),
                 [] { two_set_one_takes(true); });
}

TEST_CASE("event: set() on a set event counts for every kind of waiter") {
    model::check("event: a waiter in the queue, two that set, one that resets", [] {
        gate g(1);
        model::atomic<int> left{0};
        model::atomic<int> right{0};
        queued w(g);
        model::thread setting([&] {
            left.store(1, order::relaxed);
            g.arrive(1);
        });
        right.store(1, order::relaxed);
        g.arrive(1);
        await(w);
        g.shut();
        const bool both = is_there(left) && is_there(right);
        setting.join();
        MODEL_REQUIRE(both || g.is_open());
    });
    model::check("event: a waker in place of a thread", [] {
        gate g(0);
        model::atomic<int> item{0};
        bell b;
        node w(1, b.waker());
        model::thread setting([&] {
            item.store(1, order::relaxed);
            g.arrive(1);
        });
        g.shut();
        if (!is_there(item)) {
            if (g.enqueue(w) == wait_status::waiting) {
                await(w);
            }
            MODEL_REQUIRE(is_there(item));
        }
    });
    model::check("event: set() on a set event against a time-out", {.timeouts = 1}, [] {
        event e(true);
        model::atomic<int> item{0};
        model::thread setting([&] { put(item, e); });
        e.reset();
        const bool seen = is_there(item);
        if (e.wait_for(soon)) {
            MODEL_REQUIRE(is_there(item));
        }
        setting.join();
        MODEL_REQUIRE(seen || e.is_set());
    });
    model::check("event: set() on a set event against a stop", [] {
        gate g(0);
        model::atomic<int> item{0};
        node w(1);
        model::thread setting([&] {
            item.store(1, order::relaxed);
            g.arrive(1);
        });
        g.shut();
        const bool seen = is_there(item);
        if (g.enqueue(w) == wait_status::waiting) {
            stop(g, w);
            await(w);
        }
        MODEL_REQUIRE(w.outcome() == wait_status::stopped || is_there(item));
        setting.join();
        MODEL_REQUIRE(seen || g.is_open());
    });
}

TEST_CASE("event: a reset that finds it unset comes after the sets that were reset before") {
    model::check("event: two that reset, one sets", {.weak_failures = 1}, [] {
        event e(true);
        model::atomic<int> item{0};
        model::atomic<int> was_reset{0};
        model::thread setting([&] { put(item, e); });
        model::thread resetting([&] {
            e.reset();
            was_reset.store(1, order::relaxed);
        });
        while (!is_there(was_reset)) {
            platform::pause();
        }
        e.reset();
        const bool seen = is_there(item);
        setting.join();
        MODEL_REQUIRE(seen || e.is_set());
    });
}

TEST_CASE("event: a thread that sees it set sees what came before one of the sets") {
    model::check("event: two that set, one looks", [] {
        event e;
        model::atomic<int> left{0};
        model::atomic<int> right{0};
        model::thread a([&] { put(left, e); });
        model::thread b([&] { put(right, e); });
        if (e.is_set()) {
            MODEL_REQUIRE(is_there(left) || is_there(right));
        }
    });
    model::find("event: a look need not see the last set", failure::assertion, {}, [] {
        event e;
        model::atomic<int> first{0};
        model::atomic<int> second{0};
        model::thread setting([&] {
            put(first, e);
            put(second, e);
        });
        if (e.is_set()) {
            MODEL_REQUIRE(is_there(second));
        }
    });
}

TEST_CASE("latch: every count_down comes before the waiters that are let through") {
    model::check("latch: two arrive, one looks", [] {
        two_write_and_call(new latch(2), count_down, [](latch& l) {
            while (!l.try_wait()) {
                platform::pause();
            }
        });
    });
    model::check("latch: two arrive, one in the queue", [] {
        auto* const g = new gate(2);
        queued w(*g);
        two_write_and_call(g, [](gate& of) { of.arrive(1); }, [&w](gate&) { await(w); });
    });
    model::check("latch: two arrive and wait for each other", [] {
        latch l(2);
        var<int> left{0};
        var<int> right{0};
        model::thread other([&] {
            left = 1;
            l.arrive_and_wait();
            MODEL_REQUIRE(right == 1);
        });
        right = 1;
        l.arrive_and_wait();
        MODEL_REQUIRE(left == 1);
    });
    model::check("latch: one arrives twice, one waits and destroys it", [] {
        auto* const l = new latch(2);
        var<int> data{0};
        model::thread arriving([&, l] {
            data = 1;
            l->count_down();
            data = 2;
            l->count_down();
        });
        l->wait();
        MODEL_REQUIRE(data == 2);
        delete l;
    });
}

TEST_CASE("latch: is not counted down below zero") {
    model::check("latch: two arrive, one too many", [] {
        gate g(3);
        bool other = false;
        model::thread arriving([&] { other = g.arrive(2); });
        const bool mine = g.arrive(2);
        arriving.join();
        MODEL_REQUIRE(mine != other && !g.is_open() && g.arrive(1) && g.is_open());
    });
    model::check("latch: two arrive, one too many, a waiter leaves", [] {
        gate g(1);
        queued w(g);
        bool mine = false;
        bool other = false;
        model::thread arriving([&] {
            other = g.arrive(2);
            mine = g.arrive(1);
        });
        const bool cancelled = g.cancel(w, wait_status::stopped);
        arriving.join();
        MODEL_REQUIRE(mine && !other && g.is_open());
        MODEL_REQUIRE(cancelled || w.outcome() == wait_status::granted);
    });
}

TEST_CASE("event: a wait that times out leaves the queue") {
    model::check("event: time-out against set", {.timeouts = 1}, [] {
        event e;
        var<int> data{0};
        model::thread waiting([&] {
            if (e.wait_for(soon)) {
                MODEL_REQUIRE(data == 1);
            }
        });
        data = 1;
        e.set();
        waiting.join();
        MODEL_REQUIRE(e.is_set());
    });
    model::check("event: two time out, and no waiter is left", [] {
        gate g(1);
        queued a(g);
        queued b(g);
        model::thread waiting([&] { MODEL_REQUIRE(g.cancel(a, wait_status::timed_out)); });
        MODEL_REQUIRE(g.cancel(b, wait_status::timed_out));
        waiting.join();
        g.require_no_waiters("gate", &g);
    });
    model::check("event: one times out, the other is let through", {.timeouts = 1}, [] {
        gate g(1);
        node patient(1);
        node impatient(1);
        const bool first = model::choose(2) == 0;
        g.enqueue(first ? impatient : patient);
        g.enqueue(first ? patient : impatient);
        model::thread waiting([&] {
            if (!impatient.park(deadline::at_ns(1)) &&
                !g.cancel(impatient, wait_status::timed_out)) {
                await(impatient);
            }
        });
        g.arrive(1);
        await(patient);
    });
}

TEST_CASE("event: a wait that is stopped while it is let through has one outcome") {
    model::check("event: stop against set", [] {
        gate g(1);
        var<int> set{0};
        var<int> stopped{0};
        queued w(g);
        model::thread stopping(model::after_writing(stopped, [&] { stop(g, w); }));
        model::thread setting(model::after_writing(set, [&] { g.arrive(1); }));
        w.park(deadline::never());
        MODEL_REQUIRE((w.outcome() == wait_status::granted ? set : stopped) == 1);
    });
    model::check("event: stopped before it is queued, or while", [] {
        gate g(1);
        node w(1);
        stop_at_any_time(g, w);
        g.require_no_waiters("gate", &g);
        MODEL_REQUIRE(g.arrive(1) && g.is_open());
    });
    model::check("event: the waiter gives up, and looks", [] {
        gate g(1);
        var<int> data{0};
        queued w(g);
        model::thread setting(model::after_writing(data, [&] { g.arrive(1); }));
        if (g.cancel(w, wait_status::stopped)) {
            while (!g.is_open()) {
                platform::pause();
            }
        } else {
            await(w);
        }
        MODEL_REQUIRE(data == 1);
    });
    model::check("event: two in the queue are stopped", [] {
        gate g(1);
        queued a(g);
        queued b(g);
        queued c(g);
        model::thread stopping([&] { stop(g, a); });
        stop(g, c);
        stopping.join();
        g.arrive(1);
        MODEL_REQUIRE(a.outcome() == wait_status::stopped && c.outcome() == wait_status::stopped);
        MODEL_REQUIRE(b.outcome() == wait_status::granted);
    });
}

// Two wait, one of them for a time only, two arrive.
void two_wait_and_two_arrive() {
    latch l(2);
    var<int> left{0};
    var<int> right{0};
    model::thread patient([&] {
        l.wait();
        MODEL_REQUIRE(left == 1 && right == 1);
    });
    model::thread impatient([&] {
        if (l.wait_for(soon)) {
            MODEL_REQUIRE(left == 1 && right == 1);
        }
    });
    model::thread arriving(model::after_writing(left, [&] { l.count_down(); }));
    right = 1;
    l.count_down();
    patient.join();
    impatient.join();
    arriving.join();
    MODEL_REQUIRE(l.try_wait());
}

TEST_CASE("latch: two wait and two arrive", "[long]") {
    model::check("latch: four threads", random_or_long(10'000, {.timeouts = 1}),
                 two_wait_and_two_arrive);
}

TEST_CASE("event: two that come, one that sets", "[.long]") {
    model::check("event: two waiters", [] {
        gate g(1);
        var<int> data{0};
        node a(1);
        node b(1);
        const auto come = [&](node& w) {
            if (g.enqueue(w) == wait_status::granted) {
                MODEL_REQUIRE(data == 1);
            }
        };
        model::thread first([&] { come(a); });
        model::thread second([&] { come(b); });
        data = 1;
        g.arrive(1);
        first.join();
        second.join();
        MODEL_REQUIRE(a.outcome() == wait_status::granted && b.outcome() == wait_status::granted);
    });
    model::check("latch: destroyed under two that arrive",
                 [] { two_write_and_call(new latch(2), count_down, [](latch& l) { l.wait(); }); });
}

} // namespace
