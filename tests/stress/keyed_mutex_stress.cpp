// Keyed mutexes, several locks at once, and initialisation once: no two inside, nothing is lost.

#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/platforms.hpp"
#include "support/stress.hpp"
#include "support/test.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/keyed_mutex.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/once.hpp>
#include <bide/sync/scoped_lock.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/lock_all.hpp>
#include <bide/task/task.hpp>

namespace {

using std::chrono::microseconds;

template <class Keyed> bide::task<bool> count_in(Keyed& m, int key, std::uint64_t& count) {
    const auto held = co_await m.async_lock(key);
    ++count;
    co_return true;
}
template <class Keyed>
bide::task<bool> count_in_time(Keyed& m, int key, std::uint64_t& count, microseconds rest) {
    const auto held = co_await m.async_lock(key).with_timeout(rest);
    if (held) {
        ++count;
    }
    co_return held.has_value();
}

} // namespace

TEMPLATE_TEST_CASE("keyed_mutex: each lock of a key counts once, however it was waited for",
                   "[promise.keyed-mutex]", test::native, test::portable, test::jittery) {
    constexpr int keys = 5;
    constexpr int threads = 4;
    using keyed = bide::keyed_mutex<int, std::hash<int>, std::equal_to<int>, TestType>;
    const test::stress_time time;
    keyed m(2);
    std::uint64_t counts[keys] = {}; // plain: each is guarded by its key
    std::uint64_t locked[threads] = {};
    test::stress_threads(threads, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        while (time.is_left()) {
            const int key = static_cast<int>(chance.below(keys));
            const microseconds rest(chance.below(50));
            bool got = true;
            switch (chance.below(4)) {
            case 0: got = bide::sync_wait(count_in(m, key, counts[key])); break;
            case 1: got = bide::sync_wait(count_in_time(m, key, counts[key], rest)); break;
            case 2: {
                const auto held = m.try_lock_for(key, rest);
                got = static_cast<bool>(held);
                if (got) {
                    ++counts[key];
                }
                break;
            }
            default: {
                const auto held = m.lock(key);
                ++counts[key];
            }
            }
            locked[i] += got ? 1 : 0;
        }
    });
    std::uint64_t balance = 0;
    for (const std::uint64_t n : locked) {
        balance += n;
    }
    CHECK(balance > 0);
    for (const std::uint64_t n : counts) {
        balance -= n;
    }
    CHECK(balance == 0);
}

namespace {

template <class M> bide::task<std::uint64_t> lock_both(M& a, M& b, std::uint64_t& n, int times) {
    for (int i = 0; i < times; ++i) {
        const auto held = co_await bide::async_lock_all(a, b);
        ++n;
    }
    co_return static_cast<std::uint64_t>(times);
}

} // namespace

TEMPLATE_TEST_CASE("scoped_lock: three mutexes by pairs, from threads and tasks, in any order", "",
                   bide::mutex, bide::adaptive_mutex) {
    constexpr int threads = 4;
    const test::stress_time time;
    TestType m[3];
    std::uint64_t pairs[3] = {}; // plain: pairs[i] is guarded by both mutexes but m[i]
    std::uint64_t locked[threads] = {};
    test::stress_threads(threads, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        while (time.is_left()) {
            const auto left_out = chance.below(3);
            auto& a = m[(left_out + 1) % 3];
            auto& b = m[(left_out + 2) % 3];
            switch (chance.below(4)) {
            case 0: {
                const bide::scoped_lock held(b, a);
                ++pairs[left_out];
                ++locked[i];
                break;
            }
            case 1: {
                const bide::scoped_lock held(microseconds(chance.below(50)), a, b);
                if (held) {
                    ++pairs[left_out];
                    ++locked[i];
                }
                break;
            }
            case 2: locked[i] += bide::sync_wait(lock_both(a, b, pairs[left_out], 2)); break;
            default: {
                const bide::scoped_lock held(a, b);
                ++pairs[left_out];
                ++locked[i];
            }
            }
        }
    });
    std::uint64_t balance = 0;
    for (const std::uint64_t n : locked) {
        balance += n;
    }
    CHECK(balance > 0);
    CHECK(balance == pairs[0] + pairs[1] + pairs[2]);
}

TEMPLATE_TEST_CASE("once_flag: one call of each round succeeds, whatever fails and gives up",
                   "[promise.once]", test::native, test::portable, test::jittery) {
    const test::stress_time time;
    std::uint64_t rounds = 0;
    std::uint64_t wrong = 0;
    while (time.is_left()) {
        bide::basic_once_flag<TestType> f;
        int inside = 0; // plain: guarded by the turn
        int made = 0;
        std::atomic<int> bad{0};
        test::run_threads(4, [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
            while (!f.is_set()) {
                auto got =
                    chance.below(2) == 0
                        ? f.begin_for(microseconds(chance.below(50)))
                        : bide::result<typename bide::basic_once_flag<TestType>::turn>(f.begin());
                if (got && *got) {
                    bad += ++inside != 1 ? 1 : 0;
                    chance();
                    --inside;
                    if (chance.below(2) == 0) {
                        ++made;
                        got->set();
                    }
                } else if (got) {
                    bad += made != 1 ? 1 : 0;
                }
            }
            bad += made != 1 ? 1 : 0;
        });
        wrong += static_cast<std::uint64_t>(bad) + (made != 1 ? 1 : 0);
        ++rounds;
    }
    CHECK(wrong == 0);
    CHECK(rounds > 0);
}
