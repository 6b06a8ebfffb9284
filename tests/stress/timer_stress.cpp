#include <bide/core/timer.hpp>
#include <support/sched.hpp>

using namespace bide;

namespace {

struct one {
    timer t;
    int fired = 0; // plain: cancel() orders it
};

void fire(void* p) noexcept { ++static_cast<one*>(p)->fired; }

// Threads arm and cancel timers of all kinds. Each firing and each cancellation is counted. A timer
// is freed as soon as it is cancelled.
template <class P> void arm_and_cancel(int threads) {
    struct tally {
        long armed = 0;
        long cancelled = 0;
        long fired = 0;
        long both_or_none = 0;
    };
    std::vector<tally> tallies(static_cast<std::size_t>(threads));
    auto& service = timer_service<P>();
    test::players(threads, [&](int me, test::jitter& chance) {
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
    auto& service = timer_service<P>();
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

} // namespace

TEMPLATE_TEST_CASE("timer: armed and cancelled, stress", "", test::portable, test::jittery) {
    arm_and_cancel<TestType>(1);
    arm_and_cancel<TestType>(4);
}

TEMPLATE_TEST_CASE("timer: always a nearer one, stress", "", test::portable, test::jittery) {
    always_nearer<TestType>();
}

TEMPLATE_TEST_CASE("timer: on one processor, stress", "", test::portable, test::jittery) {
    const test::on_one_processor pinned;
    arm_and_cancel<TestType>(3);
}
