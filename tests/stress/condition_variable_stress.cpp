// Condition variables: items pass through a small buffer under a lock, with every kind of wait, and
// none is lost or doubled; no waiter sleeps beside what it waits for.

#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/platforms.hpp"
#include "support/stress.hpp"
#include "support/test.hpp"

#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/condition_variable.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/task/task.hpp>

namespace {

using std::chrono::microseconds;

template <class P> struct with_mutex {
    using platform = P;
    using mutex = bide::basic_mutex<P>;
};
template <class P> struct with_adaptive_mutex {
    using platform = P;
    using mutex = bide::basic_adaptive_mutex<P>;
};
template <class P> struct with_shared_mutex {
    using platform = P;
    using mutex = bide::basic_shared_mutex<P>;
};

// A buffer of three items, as a ring of numbers.
template <class Kind> struct buffer {
    typename Kind::mutex mutex;
    bide::basic_condition_variable<typename Kind::platform> not_full;
    bide::basic_condition_variable<typename Kind::platform> not_empty;
    int count = 0;
    std::uint64_t sum = 0;
};

template <class Kind, class IsReady>
bide::task<bool> waits(bide::basic_condition_variable<typename Kind::platform>& changed,
                       std::unique_lock<typename Kind::mutex>& lock, IsReady is_ready,
                       microseconds rest) {
    if (rest.count() == 0) {
        co_await changed.async_wait(lock, is_ready);
        co_return true;
    }
    const auto got = co_await changed.async_wait(lock, is_ready).with_timeout(rest);
    co_return got.has_value();
}

// Waits in one of the ways there are. Returns with the lock, and the condition.
template <class Kind, class IsReady>
bool wait(bide::basic_condition_variable<typename Kind::platform>& changed,
          std::unique_lock<typename Kind::mutex>& lock, IsReady is_ready, test::jitter& chance,
          std::stop_source& stops) {
    switch (chance.below(6)) {
    case 0: bide::sync_wait(waits<Kind>(changed, lock, is_ready, microseconds(0))); break;
    case 1:
        while (!bide::sync_wait(
            waits<Kind>(changed, lock, is_ready, microseconds(1 + chance.below(50))))) {
        }
        break;
    case 2:
        while (!changed.wait_for(lock, microseconds(chance.below(50)), is_ready)) {
            lock.unlock(); // a time of zero does not
            lock.lock();
        }
        break;
    case 3:
        while (!is_ready()) {
            static_cast<void>(changed.wait_for(lock, microseconds(1 + chance.below(50))));
        }
        break;
    case 4:
        if (!changed.wait(lock, stops.get_token(), is_ready)) {
            changed.wait(lock, is_ready); // stopped
        }
        break;
    default: changed.wait(lock, is_ready); break;
    }
    return lock.owns_lock() && is_ready();
}

} // namespace

TEMPLATE_TEST_CASE("condition_variable: items pass through a small buffer, none lost or doubled",
                   "", with_mutex<test::native>, with_mutex<test::portable>,
                   with_mutex<test::jittery>, with_adaptive_mutex<test::native>,
                   with_adaptive_mutex<test::jittery>, with_shared_mutex<test::native>) {
    constexpr int capacity = 3;
    constexpr int pairs = 3;
    const test::stress_time time;
    buffer<TestType> b;
    std::atomic<bool> good{true};
    std::atomic<int> producing{pairs};
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> received{0};
    std::stop_source stops[2 * pairs];
    test::stress_threads(2 * pairs + 1, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        if (i == 2 * pairs) { // stops the waits of one thread after the other
            for (int n = 0; n < 2 * pairs; ++n) {
                stops[n].request_stop();
                chance();
            }
            return;
        }
        const auto tell = [&](auto& changed, std::unique_lock<typename TestType::mutex>& lock) {
            if (chance.below(2) == 0) {
                lock.unlock();
            }
            chance.below(8) == 0 ? changed.notify_all() : changed.notify_one();
        };
        if (i < pairs) {
            while (time.is_left()) {
                std::unique_lock lock(b.mutex);
                const auto has_room = [&b] { return b.count < capacity; };
                good = wait<TestType>(b.not_full, lock, has_room, chance, stops[i]) && good;
                ++b.count;
                ++sent;
                tell(b.not_empty, lock);
            }
            const std::lock_guard lock(b.mutex);
            --producing;
            b.not_empty.notify_all();
        } else {
            for (;;) {
                std::unique_lock lock(b.mutex);
                const auto has_item = [&b, &producing] { return b.count > 0 || producing == 0; };
                good = wait<TestType>(b.not_empty, lock, has_item, chance, stops[i]) && good;
                if (b.count == 0) {
                    return;
                }
                --b.count;
                ++received;
                tell(b.not_full, lock);
            }
        }
    });
    CHECK(good);
    CHECK(sent == received);
    CHECK(sent > 0);
    CHECK(b.mutex.try_lock());
    b.mutex.unlock();
}

TEMPLATE_TEST_CASE(
    "condition_variable: notified threads and stopped ones each get their turn, exactly", "",
    with_mutex<test::native>, with_mutex<test::jittery>, with_adaptive_mutex<test::native>) {
    const test::stress_time time;
    std::uint64_t rounds = 0;
    while (time.is_left()) {
        typename TestType::mutex mutex;
        bide::basic_condition_variable<typename TestType::platform> changed;
        std::stop_source stop;
        int waiting = 0;
        int notified = 0;
        int stopped = 0;
        int told = 0;
        test::run_threads(5, [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
            if (i < 3) {
                std::unique_lock lock(mutex);
                ++waiting;
                const bool got = changed.wait(lock, stop.get_token()).has_value();
                ++(got ? notified : stopped);
            } else if (i == 3) {
                for (int n = 0; n < 2; ++n) {
                    chance();
                    const std::lock_guard lock(mutex);
                    if (waiting - told > 0) {
                        ++told;
                        changed.notify_one();
                    }
                }
            } else {
                chance();
                stop.request_stop();
            }
        });
        REQUIRE(notified + stopped == 3);
        REQUIRE(notified <= told);
        ++rounds;
    }
    CHECK(rounds > 0);
}
