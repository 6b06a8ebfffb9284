#include <bide/core/parker.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/timer_queue.hpp>
#include <support/catch.hpp>
#include <support/jitter.hpp>
#include <support/platforms.hpp>
#include <support/stress.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

using bide::deadline;
using bide::timer;
using bide::waker;

namespace {

struct one {
    timer t;
    int fired = 0; // plain: cancel() orders it
};

void fire(void* p) noexcept { ++static_cast<one*>(p)->fired; }

// Threads arm and cancel timers of all kinds. Each firing and each cancellation is counted. A timer
// is freed as soon as it is cancelled.
template <class P> void arm_and_cancel(int threads) {
    CAPTURE(test::run_seed());
    struct tally {
        long armed = 0;
        long cancelled = 0;
        long fired = 0;
        long both_or_none = 0;
    };
    std::vector<tally> tallies(static_cast<std::size_t>(threads));
    auto& service = bide::timer_service<P>();
    test::stress_threads(threads, [&](int me) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(me));
        tally& mine = tallies[static_cast<std::size_t>(me)];
        std::array<std::unique_ptr<one>, 64> all;
        const auto end = [&](std::unique_ptr<one>& o) {
            const bool cancelled = service.cancel(o->t);
            mine.cancelled += cancelled ? 1 : 0;
            mine.fired += o->fired;
            mine.both_or_none += (cancelled ? 1 : 0) + o->fired == 1 ? 0 : 1;
            o.reset();
        };
        for (const test::stress_time time; time.is_left();) {
            auto& o = all[chance.below(all.size())];
            if (o) {
                end(o);
            } else {
                o = std::make_unique<one>();
                o->t.fire = waker(&fire, o.get());
                const std::uint32_t kind = chance.below(4);
                o->t.when = kind == 0   ? deadline::poll()
                            : kind == 1 ? deadline::never()
                                        : deadline::after(chance.rest(21));
                ++mine.armed;
                service.add(o->t);
            }
            chance();
        }
        for (auto& o : all) {
            if (o) {
                end(o);
            }
        }
    });
    for (const tally& t : tallies) {
        CHECK(t.armed > 0);
        CHECK(t.armed == t.cancelled + t.fired);
        CHECK(t.both_or_none == 0);
    }
}

// Each timer is nearer than all earlier ones, so each must wake the service.
template <class P> void always_nearer() {
    auto& service = bide::timer_service<P>();
    std::vector<std::unique_ptr<timer>> later;
    for (int i = 0; i < 100; ++i) {
        later.push_back(std::make_unique<timer>());
        later.back()->when = deadline::after(std::chrono::hours(1) - std::chrono::seconds(i));
        service.add(*later.back());
    }
    bool all_fired = true;
    std::atomic<int> fired{0};
    int rounds = 0;
    for (const test::stress_time time; time.is_left() && all_fired; ++rounds) {
        timer t;
        t.when = deadline::after(std::chrono::microseconds(rounds % 20));
        t.fire = waker([](void* n) noexcept { ++*static_cast<std::atomic<int>*>(n); }, &fired);
        service.add(t);
        all_fired = test::eventually([&] { return fired == rounds + 1; });
        service.cancel(t);
    }
    for (auto& t : later) {
        service.cancel(*t);
    }
    CHECK(all_fired);
    CHECK(fired == rounds);
}

// Workers like those of a scheduler: each has a queue, fires both queues, and sleeps until the
// earliest timer. `earlier` wakes a worker, unless one is awake or will wake in time.
template <class P> struct workers {
    static constexpr int n = 2;

    struct worker {
        workers* all = nullptr;
        typename P::template atomic<std::int64_t> until{0}; // when its sleep ends; 0: it is awake
        bide::basic_parker<P> bed;
        bide::basic_timer_queue<P> timers{
            waker([](void* self) noexcept { static_cast<worker*>(self)->all->nearer(); }, this)};
    };
    worker each[n];
    std::atomic<bool> over{false};

    workers() {
        for (worker& w : each) {
            w.all = this;
        }
    }

    std::int64_t next() const noexcept {
        std::int64_t least = bide::basic_timer_queue<P>::never_ns;
        for (const worker& w : each) {
            least = std::min(least, w.timers.next_ns());
        }
        return least;
    }

    void nearer() noexcept {
        const std::int64_t at = next();
        for (worker& w : each) {
            if (w.until.load(std::memory_order_seq_cst) <= at) {
                return;
            }
        }
        each[0].bed.unpark();
    }

    void run(worker& me) noexcept {
        while (!over) {
            const std::int64_t now = P::now();
            for (worker& w : each) {
                w.timers.fire_due(now);
            }
            const std::int64_t end = next();
            if (end <= now) {
                continue;
            }
            me.until.store(end, std::memory_order_seq_cst);
            if (next() >= end && !over) {
                me.bed.park_until(deadline::at_ns(end));
            }
            me.until.store(0, std::memory_order_relaxed);
        }
    }
};

// Near timers, one after the other: each fires, although only a sleeper can fire it, or is
// cancelled.
template <class P> void kept_by_workers() {
    CAPTURE(test::run_seed());
    workers<P> all;
    bool all_fired[2] = {true, true};
    long rounds[2] = {0, 0};
    std::atomic<int> ended{0};
    test::stress_threads(workers<P>::n + 2, [&](int me) {
        if (me < workers<P>::n) {
            all.run(all.each[me]);
            return;
        }
        struct bell {
            timer t;
            std::atomic<int> fired{0};
        };
        const int mine = me - workers<P>::n;
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(me));
        for (const test::stress_time time; time.is_left() && all_fired[mine]; ++rounds[mine]) {
            bell b;
            b.t.fire = waker([](void* p) noexcept { ++static_cast<bell*>(p)->fired; }, &b);
            b.t.when = deadline::after(chance.rest(18));
            all.each[chance.below(workers<P>::n)].timers.add(b.t);
            if (chance.below(4) == 0) {
                const bool in_time = bide::cancel_timer<P>(b.t);
                all_fired[mine] = b.fired == (in_time ? 0 : 1);
            } else {
                all_fired[mine] = test::eventually([&] { return b.fired == 1; });
                all_fired[mine] = !bide::cancel_timer<P>(b.t) && all_fired[mine];
            }
        }
        if (ended.fetch_add(1) == 1) {
            all.over = true;
            for (auto& w : all.each) {
                w.bed.unpark();
            }
        }
    });
    CHECK((all_fired[0] && all_fired[1]));
    CHECK((rounds[0] > 0 && rounds[1] > 0));
}

} // namespace

TEMPLATE_TEST_CASE("timer: armed and cancelled, stress", "", test::native, test::portable,
                   test::jittery) {
    arm_and_cancel<TestType>(1);
    arm_and_cancel<TestType>(4);
}

TEMPLATE_TEST_CASE("timer: always a nearer one, stress", "", test::native, test::portable,
                   test::jittery) {
    always_nearer<TestType>();
}

TEMPLATE_TEST_CASE("timer: on one processor, stress", "", test::native, test::portable,
                   test::jittery) {
    const test::on_one_processor pinned;
    arm_and_cancel<TestType>(3);
}

TEMPLATE_TEST_CASE("timer: in queues that sleeping workers keep, stress", "", test::native,
                   test::portable, test::jittery) {
    kept_by_workers<TestType>();
}
