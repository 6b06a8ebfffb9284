// barrier: every waiter is let through when its phase ends, and sees what came before each arrival.
// A waiter that was let through may destroy the barrier.

#include <bide/sync/barrier.hpp>
#include <model/sync_support.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using barrier = bide::barrier<bide::detail::no_completion, platform>;
using gate = bide::detail::basic_phase_gate<platform>;
using awake_barrier =
    bide::barrier<bide::detail::no_completion, model::platform_without_lock_sleep>;

// An arrival; the last one begins the next phase.
gate::phase arrive(gate& g) {
    const auto mine = g.arrive(1, "gate", &g);
    if (mine.is_last) {
        g.advance();
    }
    return mine.at;
}

void two_phases() {
    awake_barrier b(2);
    var<int> left{0};
    var<int> right{0};
    model::thread other([&] {
        left = 1;
        b.arrive_and_wait();
        MODEL_REQUIRE(right == 1);
        b.arrive_and_wait();
        left = 2;
    });
    right = 1;
    b.arrive_and_wait();
    MODEL_REQUIRE(left == 1);
    b.arrive_and_wait();
    right = 2;
}

TEST_CASE("barrier: two threads meet, and see what came before", "[long]") {
    const auto meet = [] {
        barrier b(2);
        var<int> left{0};
        var<int> right{0};
        model::thread other([&] {
            left = 1;
            b.arrive_and_wait();
            MODEL_REQUIRE(right == 1);
        });
        right = 1;
        b.arrive_and_wait();
        MODEL_REQUIRE(left == 1);
    };
    model::check("barrier: one phase", meet);
    model::check("barrier: one phase, steps that fail for no reason",
                 {.spurious = 1, .weak_failures = 1}, meet);
    model::check("barrier: two phases", model::brief_or_long(random(10'000), {}), two_phases);
    model::check("barrier: one arrives, one looks and destroys it", [] {
        auto* const b = new barrier(2);
        var<int> data{0};
        model::thread arriving(model::after_writing(data, [b] { static_cast<void>(b->arrive()); }));
        const auto token = b->arrive();
        while (!b->try_wait(token)) {
            platform::pause();
        }
        MODEL_REQUIRE(data == 1);
        delete b;
    });
    model::check("barrier: one arrives, one waits and destroys it", [] {
        auto* const b = new barrier(2);
        var<int> data{0};
        model::thread arriving(model::after_writing(data, [b] { static_cast<void>(b->arrive()); }));
        b->arrive_and_wait();
        MODEL_REQUIRE(data == 1);
        delete b; // though the other call has not returned
    });
}

TEST_CASE("barrier: the completion function runs once, between the arrivals and the waits") {
    model::check("barrier: completion", [] {
        var<int> completed{0};
        const auto complete = [&completed]() noexcept { increment(completed); };
        bide::barrier<decltype(complete), platform> b(2, complete);
        model::thread other([&] {
            b.arrive_and_wait();
            MODEL_REQUIRE(completed == 1);
        });
        b.arrive_and_wait();
        MODEL_REQUIRE(completed == 1);
    });
}

TEST_CASE("barrier: the last arrival lets all waiters through") {
    model::check("barrier: one in the queue, one that comes", [] {
        gate g(2);
        var<int> data{0};
        const auto phase = arrive(g);
        queued first(g, phase);
        model::thread second([&] {
            g.wait_until(phase, deadline::never());
            MODEL_REQUIRE(data == 1);
        });
        data = 1;
        arrive(g);
        await(first);
        second.join();
        MODEL_REQUIRE(g.has_passed(phase));
    });
    model::check("barrier: two in the queue, two arrive, the first through destroys it", [] {
        auto* const g = new gate(2);
        var<int> left{0};
        var<int> right{0};
        queued a(*g, 0);
        queued b(*g, 0);
        model::thread other([&] {
            await(a);
            MODEL_REQUIRE(left == 1 && right == 1);
        });
        model::thread arriving(model::after_writing(left, [g] { arrive(*g); }));
        right = 1;
        arrive(*g);
        await(b);
        MODEL_REQUIRE(left == 1 && right == 1);
        other.join();
        arriving.join();
        delete g;
    });
    model::check("barrier: two arrive while a third waits and destroys it", random(10'000), [] {
        two_write_and_call(
            new barrier(3), [](barrier& b) { static_cast<void>(b.arrive()); },
            [](barrier& b) { b.arrive_and_wait(); });
    });
}

TEST_CASE("barrier: a drop lowers what the next phase expects") {
    model::check("barrier: one drops, one stays", [] {
        awake_barrier b(2);
        var<int> data{0};
        model::thread dropping(model::after_writing(data, [&] { b.arrive_and_drop(); }));
        b.arrive_and_wait();
        MODEL_REQUIRE(data == 1);
        b.arrive_and_wait(); // alone
        dropping.join();
    });
    model::check("barrier: two drop at once, one stays", [] {
        awake_barrier b(3);
        model::thread first([&] { b.arrive_and_drop(); });
        model::thread second([&] { b.arrive_and_drop(); });
        const auto token = b.arrive();
        first.join();
        second.join();
        MODEL_REQUIRE(b.try_wait(token));
        MODEL_REQUIRE(b.try_wait(b.arrive()));
    });
}

TEST_CASE("barrier: a wait that times out or is stopped leaves the queue") {
    model::check("barrier: time-out against the last arrival", {.timeouts = 1}, [] {
        barrier b(2);
        var<int> data{0};
        model::thread waiting([&] {
            const auto token = b.arrive();
            if (b.wait_for(token, soon)) {
                MODEL_REQUIRE(data == 1);
            }
        });
        data = 1;
        static_cast<void>(b.arrive());
        waiting.join();
    });
    model::check("barrier: stop against the last arrival", [] {
        gate g(2);
        var<int> arrived{0};
        var<int> stopped{0};
        const auto phase = arrive(g);
        queued w(g, phase);
        model::thread stopping(model::after_writing(stopped, [&] { stop(g, w); }));
        model::thread arriving(model::after_writing(arrived, [&] { arrive(g); }));
        w.park(deadline::never());
        MODEL_REQUIRE((w.outcome() == wait_status::granted ? arrived : stopped) == 1);
        stopping.join();
        arriving.join();
        MODEL_REQUIRE(g.has_passed(phase));
    });
    model::check("barrier: a waiter leaves while two arrive", [] {
        gate g(2);
        queued w(g, 0);
        queued stays(g, 0);
        model::thread arriving([&] { arrive(g); });
        if (!g.cancel(w, wait_status::stopped)) {
            await(w);
        }
        arrive(g);
        await(stays);
        arriving.join();
        g.require_no_waiters("gate", &g);
    });
    model::check("barrier: stopped before it is queued, or while", [] {
        gate g(1);
        node w(0);
        stop_at_any_time(g, w);
        g.require_no_waiters("gate", &g);
    });
}

// Two phases of three threads, one of which waits for a time only.
void three_meet_twice() {
    awake_barrier b(3);
    var<int> data[3] = {{0}, {0}, {0}};
    const auto meet = [&](int i) {
        data[i] = 1;
        b.arrive_and_wait();
        MODEL_REQUIRE(data[0] == 1 && data[1] == 1 && data[2] == 1);
        const auto token = b.arrive();
        if (i != 0 || !b.wait_for(token, soon)) {
            b.wait(token);
        }
        data[i] = 2;
    };
    model::thread a([&] { meet(1); });
    model::thread c([&] { meet(2); });
    meet(0);
}

TEST_CASE("barrier: three threads meet twice", "[long]") {
    model::check("barrier: three threads, two phases", random_or_long(10'000, {.timeouts = 1}),
                 three_meet_twice);
}

} // namespace
