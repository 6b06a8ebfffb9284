// The three mutexes, under threads and coroutines at once: what they guard is counted.

#include "support/coroutines.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/platforms.hpp"
#include "support/stress.hpp"
#include "support/test.hpp"

#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/task/task.hpp>

namespace {

using std::chrono::microseconds;

// Plain, so that a hole in the exclusion is a wrong sum, and a race to a sanitizer.
struct guarded {
    std::uint64_t sum = 0;
    std::atomic<std::uint64_t> expected{0};

    void add() noexcept {
        ++sum;
        expected.fetch_add(1, std::memory_order_relaxed);
    }
};

template <class Mutex> bide::task<void> by_task(Mutex& m, guarded& g, test::jitter& chance) {
    const auto lock = co_await m.async_lock();
    g.add();
    chance();
}

// A lock that is held over a suspension, by a coroutine that goes on with it on another thread.
template <class Mutex>
bide::task<void> migrating(Mutex& m, guarded& g, bide::semaphore& elsewhere,
                           test::thread_executor& other) {
    const auto lock = co_await m.async_lock();
    g.add();
    const auto turn = co_await elsewhere.async_acquire().resume_on(other);
    g.add();
}

template <class Mutex> void one_turn(Mutex& m, guarded& g, test::jitter& chance) {
    switch (chance.below(6)) {
    case 0: bide::sync_wait(by_task(m, g, chance)); return;
    case 1:
        if (!m.try_lock_for(microseconds(chance.below(60)))) {
            return;
        }
        break;
    case 2:
        if (!m.try_lock()) {
            return;
        }
        break;
    case 3: {
        std::stop_source source;
        std::thread stopping([&source] { source.request_stop(); });
        const bool mine = m.lock(source.get_token()).has_value();
        stopping.join();
        if (!mine) {
            return;
        }
        break;
    }
    default: m.lock(); break;
    }
    g.add();
    chance();
    m.unlock();
}

template <class Mutex> void storm(int threads, int turns) {
    const test::stress_time time;
    Mutex m;
    guarded g;
    do {
        test::run_threads(threads, [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i) * 7'919u);
            for (int turn = 0; turn < turns; ++turn) {
                one_turn(m, g, chance);
            }
        });
    } while (time.is_left());
    CHECK(g.sum == g.expected);
    CHECK(m.try_lock());
    m.unlock();
}

} // namespace

TEMPLATE_TEST_CASE("mutexes: no update is lost in many short storms", "", bide::mutex,
                   bide::adaptive_mutex, bide::shared_mutex, bide::basic_mutex<test::portable>,
                   bide::basic_adaptive_mutex<test::portable>) {
    storm<TestType>(4, 30);
}

TEMPLATE_TEST_CASE("mutexes: nothing is lost with many more threads than processors", "",
                   bide::mutex, bide::adaptive_mutex) {
    storm<TestType>(24, 100);
}

TEMPLATE_TEST_CASE("mutexes: a coroutine takes a lock along to another thread", "", bide::mutex,
                   bide::adaptive_mutex) {
    const test::stress_time time;
    test::thread_executor other;
    bide::semaphore elsewhere(1);
    TestType m;
    guarded g;
    do {
        test::run_threads(3, [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
            for (int turn = 0; turn < 100; ++turn) {
                if (i == 0) {
                    bide::sync_wait(migrating(m, g, elsewhere, other));
                } else {
                    one_turn(m, g, chance);
                }
            }
        });
    } while (time.is_left());
    // A migrating turn adds two and expects two; the coroutine's frame gives both locks back.
    CHECK(g.sum == g.expected);
    CHECK(elsewhere.available() == 1);
}

TEST_CASE("shared_mutex: in a storm, a reader sees no writer, and a writer sees no other owner") {
    const test::stress_time time;
    bide::shared_mutex m;
    std::atomic<int> readers{0};
    std::atomic<int> writers{0};
    std::atomic<bool> clash{false};
    const auto read = [&](test::jitter& chance) {
        readers.fetch_add(1);
        chance();
        clash = clash || writers.load() != 0;
        readers.fetch_sub(1);
    };
    const auto write = [&](test::jitter& chance) {
        clash = clash || writers.fetch_add(1) != 0 || readers.load() != 0;
        chance();
        writers.fetch_sub(1);
    };
    do {
        test::run_threads(4, [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
            for (int turn = 0; turn < 200; ++turn) {
                switch (chance.below(6)) {
                case 0:
                    m.lock();
                    write(chance);
                    m.unlock_and_lock_shared();
                    read(chance);
                    m.unlock_shared();
                    break;
                case 1:
                    if (m.try_lock_for(microseconds(chance.below(50)))) {
                        write(chance);
                        m.unlock();
                    }
                    break;
                case 2:
                    if (m.try_lock_shared_for(microseconds(chance.below(50)))) {
                        read(chance);
                        m.unlock_shared();
                    }
                    break;
                default:
                    m.lock_shared();
                    read(chance);
                    m.unlock_shared();
                    break;
                }
            }
        });
    } while (time.is_left());
    CHECK_FALSE(clash);
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("shared_mutex: upgrades that wait, try and give up count each change once",
                   "[promise.upgrade]", test::native, test::portable, test::jittery) {
    constexpr int threads = 4;
    const test::stress_time time;
    bide::basic_shared_mutex<TestType> m;
    std::uint64_t count = 0; // plain: changed by the writer only
    std::uint64_t changes[threads] = {};
    std::atomic<int> wrong{0};
    test::stress_threads(threads, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        while (time.is_left()) {
            const microseconds limit(chance.below(50));
            switch (chance.below(4)) {
            case 0:
                m.lock();
                ++count;
                ++changes[i];
                m.unlock();
                break;
            case 1: {
                m.lock_shared();
                const std::uint64_t seen = count;
                chance();
                wrong += count != seen ? 1 : 0;
                m.unlock_shared();
                break;
            }
            default: {
                if (!m.try_lock_upgradable_for(limit)) {
                    break;
                }
                const std::uint64_t seen = count;
                const bool upgraded = chance.below(2) == 0   ? m.try_upgrade_for(limit)
                                      : chance.below(2) == 0 ? m.try_upgrade()
                                                             : (m.upgrade(), true);
                wrong += count != seen ? 1 : 0; // no other writer in between
                if (upgraded) {
                    ++count;
                    ++changes[i];
                    m.downgrade();
                }
                m.unlock_upgradable();
            }
            }
        }
    });
    std::uint64_t expected = 0;
    for (const std::uint64_t n : changes) {
        expected += n;
    }
    CHECK(wrong == 0);
    CHECK(count == expected);
    CHECK(count > 0);
    CHECK(m.try_lock());
    m.unlock();
}
