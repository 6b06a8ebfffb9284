// Notifies: consumers that listen, look and wait take all items, and notifications are conserved.

#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/platforms.hpp"
#include "support/stress.hpp"
#include "support/test.hpp"

#include <bide/channel/select.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/notify.hpp>
#include <bide/task/task.hpp>

namespace {

using std::chrono::microseconds;

template <class Waitable> bide::task<bool> awaiting(Waitable& of, microseconds rest) {
    if (rest.count() == 0) {
        co_await of.async_wait();
        co_return true;
    }
    const auto got = co_await of.async_wait().with_timeout(rest);
    co_return got.has_value();
}

// Waits in one of the ways there are. Returns false if the wait ended early.
template <class Waitable> bool wait(Waitable& of, test::jitter& chance) {
    switch (chance.below(5)) {
    case 0: return bide::sync_wait(awaiting(of, microseconds(0)));
    case 1: return bide::sync_wait(awaiting(of, microseconds(1 + chance.below(50))));
    case 2: return of.wait_for(microseconds(chance.below(50)));
    case 3: {
        std::stop_source stop;
        if (chance.below(2) == 0) {
            stop.request_stop();
        }
        return of.wait(stop.get_token()).has_value();
    }
    default: of.wait(); return true;
    }
}

} // namespace

TEMPLATE_TEST_CASE("notify: consumers that listen, look and wait take every item at once", "",
                   test::native, test::portable, test::jittery) {
    constexpr int producers = 2;
    constexpr int consumers = 3;
    using notify = bide::basic_notify<TestType>;
    const test::stress_time time;
    notify changed;
    std::atomic<std::uint64_t> stored{0};
    std::atomic<std::uint64_t> taken{0};
    std::atomic<int> producing{producers};
    test::stress_threads(producers + consumers, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        if (i < producers) {
            std::uint64_t mine = 0;
            while (mine % 64 != 0 || time.is_left()) {
                stored.fetch_add(1, std::memory_order_relaxed);
                chance.below(4) == 0 ? changed.notify_all() : changed.notify_one();
                if (++mine % 8 == 0) { // until all are taken: a lost notification shows
                    while (taken.load(std::memory_order_relaxed) <
                           stored.load(std::memory_order_relaxed)) {
                        std::this_thread::yield();
                    }
                }
            }
            --producing;
            changed.notify_all();
            return;
        }
        for (;;) {
            typename notify::listener next(changed);
            std::uint64_t had = taken.load(std::memory_order_relaxed);
            bool took = false;
            while (had < stored.load(std::memory_order_relaxed) && !took) {
                took = taken.compare_exchange_weak(had, had + 1, std::memory_order_relaxed);
            }
            if (!took) {
                if (producing == 0) {
                    return;
                }
                wait(next, chance);
            }
        }
    });
    CHECK(stored == taken);
    CHECK(stored > 0);
}

TEMPLATE_TEST_CASE(
    "notify: each notify_one() lets exactly one wait through while there are waiters", "",
    test::native, test::jittery) {
    const test::stress_time time;
    std::uint64_t rounds = 0;
    while (time.is_left()) {
        bide::basic_notify<TestType> n;
        std::atomic<int> through{0};
        std::atomic<int> sent{0};
        constexpr int waiters = 3;
        test::run_threads(waiters + 1, [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
            if (i < waiters) {
                for (int k = 0; k < 4; ++k) {
                    bool got = false;
                    while (!got) {
                        if (chance.below(3) == 0) {
                            typename bide::basic_notify<TestType>::listener mine(n);
                            chance();
                            got = chance.below(3) != 0 && wait(mine, chance);
                        } else {
                            got = wait(n, chance);
                        }
                    }
                    through.fetch_add(1);
                }
                return;
            }
            while (through.load() < 4 * waiters) { // one at a time, each used before the next
                sent.fetch_add(1);
                n.notify_one();
                while (through.load() < sent.load()) {
                    std::this_thread::yield();
                }
            }
        });
        REQUIRE(through == 4 * waiters);
        REQUIRE(sent == 4 * waiters);
        REQUIRE_FALSE(n.try_wait());
        ++rounds;
    }
    CHECK(rounds > 0);
}
