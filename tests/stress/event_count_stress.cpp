#include <bide/core/event_count.hpp>
#include <support/jitter.hpp>
#include <support/platforms.hpp>
#include <support/stress.hpp>
#include <support/test.hpp>

using bide::basic_event_count;
using bide::deadline;

namespace {

// A waiter that is about to sleep, and a notifier with one notification. If they miss each other,
// the waiter sleeps for ever.
template <class P> void one_notification(int waiters) {
    CAPTURE(test::run_seed(), waiters);
    basic_event_count<P> events;
    test::rendezvous round(waiters + 1);
    std::atomic<bool> open{false};
    std::atomic<bool> over{false};
    long rounds = 0;
    std::vector<long> passed(static_cast<std::size_t>(waiters));
    test::stress_threads(waiters + 1, [&](int me) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(me));
        const test::stress_time time;
        for (;;) {
            round.meet();
            if (over) {
                return;
            }
            chance();
            if (me == waiters) {
                ++rounds;
                open.store(true, std::memory_order_release);
                if (waiters == 1) {
                    events.notify_one();
                } else {
                    events.notify_all();
                }
            } else {
                while (!open.load(std::memory_order_acquire)) {
                    const auto epoch = events.prepare();
                    if (open.load(std::memory_order_acquire)) {
                        events.cancel();
                        break;
                    }
                    events.wait(epoch);
                }
                ++passed[static_cast<std::size_t>(me)];
            }
            round.meet();
            if (me == waiters) {
                open = false;
                over = !time.is_left();
            }
        }
    });
    CHECK(rounds > 0);
    for (const long n : passed) {
        CHECK(n == rounds);
    }
}

// Producers and consumers, some of them with time-outs: all items are taken.
template <class P> void items(int producers, int consumers) {
    basic_event_count<P> events;
    std::atomic<long> there{0};
    std::atomic<int> producing{producers};
    std::vector<long> made(static_cast<std::size_t>(producers));
    std::vector<long> taken(static_cast<std::size_t>(consumers));
    const auto take = [&] {
        long seen = there.load();
        while (seen > 0 && !there.compare_exchange_weak(seen, seen - 1)) {
        }
        return seen > 0;
    };
    test::stress_threads(producers + consumers, [&](int me) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(me));
        if (me < producers) {
            for (const test::stress_time time; time.is_left();) {
                there.fetch_add(1);
                events.notify_one();
                ++made[static_cast<std::size_t>(me)];
                chance();
                while (there.load() > 64) { // so that consumers sleep
                    chance();
                }
            }
            if (--producing == 0) {
                events.notify_all();
            }
            return;
        }
        for (;;) {
            const auto epoch = events.prepare();
            const bool last = producing == 0;
            if (take()) {
                events.cancel();
                ++taken[static_cast<std::size_t>(me - producers)];
            } else if (last) {
                events.cancel();
                return;
            } else if (chance.below(4) == 0) {
                events.wait(epoch, deadline::after(std::chrono::microseconds(chance.below(50))));
                if (there.load() > 0) {
                    events.notify_one(); // a consumer that timed out may have used one up
                }
            } else {
                events.wait(epoch);
            }
        }
    });
    CHECK(there == 0);
    CHECK(std::accumulate(made.begin(), made.end(), 0L) ==
          std::accumulate(taken.begin(), taken.end(), 0L));
}

} // namespace

TEMPLATE_TEST_CASE("event_count: one notification, stress", "", test::native, test::portable,
                   test::jittery) {
    one_notification<TestType>(1);
    one_notification<TestType>(3);
}

TEMPLATE_TEST_CASE("event_count: items, stress", "", test::native, test::portable, test::jittery) {
    items<TestType>(2, 3);
    items<TestType>(1, 16);
}

TEMPLATE_TEST_CASE("event_count: on one processor, stress", "", test::native, test::portable,
                   test::jittery) {
    const test::on_one_processor pinned;
    one_notification<TestType>(2);
    items<TestType>(1, 2);
}
