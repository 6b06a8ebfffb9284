// Events and latches: no waiter is left behind a gate that has opened, and a waiter that was let
// through may destroy the gate.

#include "support/coroutines.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/platforms.hpp"
#include "support/stress.hpp"
#include "support/test.hpp"

#include <bide/sync/event.hpp>
#include <bide/sync/latch.hpp>
#include <bide/task/task.hpp>

namespace {

using std::chrono::microseconds;

template <class Gate> bide::task<void> awaiting(Gate& gate) { co_await gate.async_wait(); }

template <class Gate> bide::task<bool> awaiting_for(Gate& gate, microseconds rest) {
    const auto through = co_await gate.async_wait().with_timeout(rest);
    co_return through.has_value();
}

// Waits in one of the ways there are, until it is through.
template <class Gate> void pass(Gate& gate, test::jitter& chance) {
    switch (chance.below(4)) {
    case 0: bide::sync_wait(awaiting(gate)); break;
    case 1:
        while (!bide::sync_wait(awaiting_for(gate, microseconds(chance.below(50))))) {
        }
        break;
    case 2:
        while (!gate.wait_for(microseconds(chance.below(50)))) {
        }
        break;
    default: gate.wait(); break;
    }
}

} // namespace

TEMPLATE_TEST_CASE("event: each set() ends a storm of waits", "", test::native, test::portable) {
    const test::stress_time time;
    std::uint64_t rounds = 0;
    while (time.is_left()) {
        bide::basic_event<TestType> e;
        test::run_threads(4, [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
            chance();
            if (i == 0) {
                e.set();
            } else {
                pass(e, chance);
            }
        });
        ++rounds;
    }
    CHECK(rounds > 0);
}

TEST_CASE("event: turns taken by set and reset are all seen") {
    const test::stress_time time;
    bide::event there;
    bide::event back;
    std::atomic<bool> over{false};
    std::uint64_t sent = 0;
    std::uint64_t seen = 0;
    test::run_threads(2, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        for (;;) {
            if (i == 0) {
                over = !time.is_left();
                const bool last = over;
                ++sent;
                there.set();
                pass(back, chance);
                back.reset();
                if (last) {
                    return;
                }
            } else {
                pass(there, chance);
                there.reset();
                ++seen;
                const bool last = over;
                back.set();
                if (last) {
                    return;
                }
            }
        }
    });
    CHECK(sent == seen);
}

TEMPLATE_TEST_CASE("event: an item stored before set() is found by a reset, a look and a wait", "",
                   test::native, test::portable) {
    constexpr int most = 2;
    const int producers = GENERATE(1, 2);
    CAPTURE(producers);
    struct alignas(128) line {
        std::atomic<std::uint64_t> stored{0};
        std::atomic<std::uint64_t> taken{0};
    };
    const test::stress_time time;
    bide::basic_event<TestType> e;
    line lines[most];
    std::atomic<int> producing{producers};
    std::uint64_t sent = 0;
    std::uint64_t seen = 0;
    test::stress_threads(producers + 1, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        if (i < producers) { // one item at a time: one that is lost is not made up for by the next
            line& mine = lines[i];
            std::uint64_t n = 0;
            while (n % 256 != 0 || time.is_left()) {
                e.set(); // so that the next one may find it set
                mine.stored.store(++n, std::memory_order_relaxed);
                e.set();
                while (mine.taken.load(std::memory_order_relaxed) != n) { // at once: no pause
                }
            }
            --producing;
            e.set();
            return;
        }
        while (producing != 0) {
            e.reset();
            bool found = producing == 0;
            for (line& l : lines) {
                const std::uint64_t n = l.stored.load(std::memory_order_relaxed);
                if (n != l.taken.load(std::memory_order_relaxed)) {
                    ++seen;
                    found = true;
                    l.taken.store(n, std::memory_order_relaxed);
                }
            }
            if (!found) {
                chance.below(64) == 0 ? pass(e, chance) : e.wait();
            }
        }
    });
    for (const line& l : lines) {
        sent += l.stored;
    }
    CHECK(sent == seen);
    CHECK(sent > 0);
}

TEMPLATE_TEST_CASE("latch: all waiters come through after the last arrival, and none before", "",
                   test::native, test::portable) {
    const test::stress_time time;
    constexpr int arriving = 3;
    bool early = false;
    while (time.is_left()) {
        bide::basic_latch<TestType> l(arriving);
        std::atomic<int> arrived{0};
        std::atomic<bool> too_soon{false};
        test::run_threads(2 * arriving, [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
            chance();
            if (i < arriving) {
                arrived.fetch_add(1);
                l.count_down();
            } else {
                pass(l, chance);
                too_soon = too_soon || arrived.load() != arriving;
            }
        });
        early = early || too_soon;
    }
    CHECK_FALSE(early);
}

TEST_CASE("latch: a waiter that is let through may destroy it before the last arrival returns") {
    const test::stress_time time;
    std::atomic<bide::latch*> of_round{nullptr};
    std::atomic<bool> over{false};
    std::uint64_t rounds = 0;
    test::run_threads(2, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        if (i == 0) {
            while (time.is_left()) {
                auto l = std::make_unique<bide::latch>(1);
                of_round = l.get();
                pass(*l, chance);
                ++rounds;
            }
            over = true;
        } else {
            while (!over) {
                if (bide::latch* const l = of_round.exchange(nullptr); l != nullptr) {
                    chance();
                    l->count_down();
                }
            }
        }
    });
    CHECK(rounds > 0);
}
