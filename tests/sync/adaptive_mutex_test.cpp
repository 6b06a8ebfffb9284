#include "support/alloc.hpp"
#include "support/catch.hpp"
#include "support/coroutines.hpp"
#include "support/death.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/waiting.hpp"

#include <bide/sync/adaptive_mutex.hpp>
#include <bide/task/task.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

static_assert(sizeof(bide::adaptive_mutex) == 16 || sizeof(void*) != 8);
static_assert(!std::is_copy_constructible_v<bide::adaptive_mutex>);
static_assert(!std::is_move_constructible_v<bide::adaptive_mutex>);
static_assert(!std::is_move_assignable_v<bide::adaptive_mutex>);
static_assert(std::is_nothrow_default_constructible_v<bide::adaptive_mutex>);
static_assert(noexcept(std::declval<bide::adaptive_mutex&>().try_lock()));
static_assert(noexcept(std::declval<bide::adaptive_mutex&>().unlock()));

namespace {

using std::chrono::steady_clock;
using counts = std::vector<int>;

constinit bide::adaptive_mutex ready_at_start;

// A platform whose sleepers do not resume before they may, and whose clock can be put forward: a
// thread that was roused is late for as long as the test wants.
template <class Base> struct late_riser : Base {
    inline static std::atomic<int> asleep{0};
    inline static std::atomic<bool> stay{false};
    inline static std::atomic<std::int64_t> ahead{0}; // nanoseconds

    template <class Word>
    static bool futex_wait(const std::atomic<Word>& word, Word expected,
                           std::int64_t until) noexcept {
        constexpr bool is_wait = std::is_same_v<Word, bide::wait_status>;
        if constexpr (is_wait) {
            asleep.fetch_add(1);
        }
        const bool in_time = Base::futex_wait(word, expected, until);
        if constexpr (is_wait) {
            asleep.fetch_sub(1);
            while (stay) {
                std::this_thread::yield();
            }
        }
        return in_time;
    }
    static std::int64_t now() noexcept { return Base::now() + ahead.load(); }

    static bool are_asleep(int n) {
        return test::eventually([n] { return asleep == n; });
    }
};

// What became of a wait.
enum class what { nothing_yet, locked, stopped, timeout };

template <class T> what of(const bide::result<T>& got) {
    return got ? what::locked : got.error() == bide::errc::stopped ? what::stopped : what::timeout;
}

template <class Mutex> test::detached note_turn(Mutex& m, test::journal& turns, int name) {
    const auto lock = co_await m.async_lock();
    turns.add(name);
}
// Ends with the lock given back.
template <class Mutex>
test::detached note_stopped(Mutex& m, std::stop_token t, std::atomic<what>& end) {
    auto got = co_await m.async_lock().with_stop(t);
    const what became = of(got);
    if (got) {
        got->unlock();
    }
    end = became;
}
template <class Mutex>
test::detached note_late(Mutex& m, std::chrono::nanoseconds rest, std::atomic<what>& end) {
    auto got = co_await m.async_lock().with_timeout(rest);
    const what became = of(got);
    if (got) {
        got->unlock();
    }
    end = became;
}
// Holds the lock from its turn to its end.
template <class Mutex> test::held hold(Mutex& m, bool& locked) {
    const auto lock = co_await m.async_lock();
    locked = lock.owns_lock() && lock.mutex() == &m;
    co_await std::suspend_always();
}
template <class Mutex> test::held hold_on(test::manual_executor& e, Mutex& m, bool& locked) {
    const auto lock = co_await m.async_lock().resume_on(e);
    locked = lock.owns_lock();
    co_await std::suspend_always();
}

} // namespace

// ---- Locking

TEST_CASE("adaptive_mutex: it can be constant-initialised") {
    const std::lock_guard lock(ready_at_start);
    CHECK_FALSE(ready_at_start.try_lock());
}

TEMPLATE_TEST_CASE("adaptive_mutex: it is locked until it is unlocked", "", test::native,
                   test::portable) {
    const test::watchdog guard;
    bide::basic_adaptive_mutex<TestType> m;
    std::stop_source stop;
    stop.request_stop();
    m.lock();
    CHECK_FALSE(m.try_lock());
    CHECK_FALSE(m.try_lock_for(1ms));
    CHECK_FALSE(m.try_lock_until(steady_clock::now() + 1ms));
    m.unlock();
    CHECK(m.try_lock());
    CHECK_FALSE(m.try_lock());
    m.unlock();
    CHECK(m.lock(std::stop_token()));
    CHECK_FALSE(m.try_lock());
    m.unlock();

    // Ready first.
    CHECK(m.try_lock_for(-1h));
    m.unlock();
    CHECK(m.try_lock_until(steady_clock::time_point::min()));
    m.unlock();
    CHECK(m.lock(stop.get_token()));
    m.unlock();
    std::atomic<what> ends[2] = {};
    note_stopped(m, stop.get_token(), ends[0]);
    note_late(m, -1s, ends[1]);
    CHECK(ends[0] == what::locked);
    CHECK(ends[1] == what::locked);
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("adaptive_mutex: two never hold it, however they lock it", "", test::native,
                   test::portable) {
    using mutex = bide::basic_adaptive_mutex<TestType>;
    constexpr int rounds = 4'000;
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    mutex m;
    int count = 0; // plain: a sanitizer sees whether it is ordered
    int mine[4] = {};
    test::run_threads(4, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        for (int n = 0; n < rounds; ++n) {
            switch (chance.below(6)) {
            case 0:
                if (!m.try_lock()) {
                    continue;
                }
                break;
            case 1:
                if (!m.try_lock_for(std::chrono::nanoseconds(chance.below(30'000)))) {
                    continue;
                }
                break;
            case 2:
                if (!m.lock(std::stop_token())) {
                    continue;
                }
                break;
            case 3: {
                auto lock = bide::sync_wait([](mutex& from) -> bide::task<std::unique_lock<mutex>> {
                    co_return co_await from.async_lock();
                }(m));
                lock.release();
                break;
            }
            default: m.lock();
            }
            ++count;
            ++mine[i];
            if (chance.below(64) == 0) {
                chance();
            }
            m.unlock();
        }
    });
    CHECK(count == mine[0] + mine[1] + mine[2] + mine[3]);
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("adaptive_mutex: another thread may unlock it", "", test::native,
                   test::portable) {
    const test::watchdog guard;
    bide::basic_adaptive_mutex<TestType> m;
    for (int round = 0; round < 200; ++round) {
        m.lock();
        test::team other(1, [&](int) { m.unlock(); });
        m.lock();
        other.join();
        m.unlock();
    }
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("adaptive_mutex: std::lock takes two of them in either order", "", test::native,
                   test::portable) {
    using mutex = bide::basic_adaptive_mutex<TestType>;
    constexpr int rounds = 2'000;
    mutex a;
    mutex b;
    int both = 0;
    test::run_threads(4, [&](int i) {
        for (int n = 0; n < rounds; ++n) {
            if (i < 2) {
                i == 0 ? std::lock(a, b) : std::lock(b, a);
                std::lock_guard first(a, std::adopt_lock);
                std::lock_guard second(b, std::adopt_lock);
                ++both;
            } else {
                mutex& first = i == 2 ? a : b;
                mutex& second = i == 2 ? b : a;
                const std::scoped_lock lock(first, second);
                ++both;
            }
        }
    });
    CHECK(both == 4 * rounds);
    CHECK(std::try_lock(a, b) == -1);
    CHECK(std::try_lock(b, a) == 0);
    a.unlock();
    b.unlock();
}

TEMPLATE_TEST_CASE("adaptive_mutex: std::unique_lock and condition_variable_any work with it", "",
                   test::native, test::portable) {
    using mutex = bide::basic_adaptive_mutex<TestType>;
    constexpr int rounds = 500;
    mutex m;
    {
        std::unique_lock lock(m, 1s);
        CHECK(lock.owns_lock());
        lock.unlock();
        CHECK(lock.try_lock_until(std::chrono::system_clock::now() + 1s));
        lock.unlock();
        CHECK(lock.try_lock());
        CHECK_FALSE(std::unique_lock(m, std::try_to_lock).owns_lock());
    }
    std::condition_variable_any changed;
    int turn = 0;
    int turns[2] = {};
    test::run_threads(2, [&](int i) {
        for (int n = 0; n < rounds; ++n) {
            std::unique_lock lock(m);
            if (!changed.wait_for(lock, test::patience, [&] { return turn % 2 == i; })) {
                return;
            }
            ++turn;
            ++turns[i];
            changed.notify_all();
        }
    });
    CHECK(turns[0] == rounds);
    CHECK(turns[1] == rounds);
}

// ---- Overtaking, and its end

TEMPLATE_TEST_CASE(
    "adaptive_mutex: a running thread overtakes a sleeping head at most max_overtakes times", "",
    test::native, test::portable) {
    using late = late_riser<TestType>;
    using mutex = bide::basic_adaptive_mutex<late>;
    const test::watchdog guard;
    mutex m;
    for (int round = 0; round < 3; ++round) { // each head anew
        CAPTURE(round);
        m.lock();
        bool locked = false;
        test::team head(1, [&](int) {
            m.lock();
            locked = true;
            m.unlock();
        });
        REQUIRE(late::are_asleep(1));
        // Each unlock from here on may float, and takes one off what is left; the head does not run.
        // So exactly so many are followed by another thread's success, and the next is not.
        late::stay = true;
        unsigned overtakes = 0;
        m.unlock();
        while (overtakes < 4 * mutex::max_overtakes && m.try_lock()) {
            ++overtakes;
            m.unlock();
        }
        CHECK(overtakes == mutex::max_overtakes);
        CHECK_FALSE(m.try_lock()); // it is the head's, which has not run yet
        late::stay = false;
        head.join();
        CHECK(locked);
    }
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("adaptive_mutex: the next head is overtaken at most max_overtakes times, too",
                   "", test::native, test::portable) {
    using late = late_riser<TestType>;
    using mutex = bide::basic_adaptive_mutex<late>;
    const test::watchdog guard;
    mutex m;
    std::stop_source stop;
    m.lock();
    what first = what::nothing_yet;
    bool second = false;
    test::team head(1, [&](int) { first = of(m.lock(stop.get_token())); });
    REQUIRE(late::are_asleep(1));
    test::team next(1, [&](int) {
        m.lock();
        second = true;
        m.unlock();
    });
    REQUIRE(late::are_asleep(2));
    late::stay = true;
    for (int i = 0; i < 10; ++i) {
        m.unlock();
        REQUIRE(m.try_lock());
    }
    stop.request_stop(); // while it is taken: the next in line becomes the head
    unsigned overtakes = 0;
    m.unlock();
    while (overtakes < 4 * mutex::max_overtakes && m.try_lock()) {
        ++overtakes;
        m.unlock();
    }
    CHECK(overtakes == mutex::max_overtakes);
    late::stay = false;
    head.join();
    next.join();
    CHECK(first == what::stopped);
    CHECK(second);
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("adaptive_mutex: a sleeping head is overtaken at most max_overtakes times by "
                   "all threads together",
                   "[promise.bounded-overtaking]", test::native, test::portable) {
    using platform = test::observing<TestType>;
    using mutex = bide::basic_adaptive_mutex<platform>;
    for (int round = 0; round < 20; ++round) {
        CAPTURE(round);
        mutex m;
        unsigned others = 0; // under the mutex: its locks since the head is known to sleep
        unsigned seen = std::numeric_limits<unsigned>::max();
        std::atomic<bool> over{false};
        m.lock();
        test::team head(1, [&](int) {
            m.lock();
            seen = others;
            over = true;
            m.unlock();
        });
        REQUIRE(test::are_asleep<TestType>(1));
        test::team passing(2, [&](int) {
            // Until the head has it, each lock comes after an unlock that floated, and each of those
            // took one off what was left: no bound for chance has to be added.
            while (!over) {
                if (m.try_lock()) {
                    ++others;
                    m.unlock();
                }
            }
        });
        m.unlock();
        head.join();
        passing.join();
        REQUIRE(seen <= mutex::max_overtakes);
    }
}

TEMPLATE_TEST_CASE("adaptive_mutex: a head that is overtaken for max_overtake_time is handed it",
                   "", test::native, test::portable) {
    using late = late_riser<TestType>;
    using mutex = bide::basic_adaptive_mutex<late>;
    const test::watchdog guard;
    const std::int64_t overdue = std::chrono::nanoseconds(mutex::max_overtake_time).count();
    mutex m;
    bool locked = false;
    m.lock();
    test::team head(1, [&](int) {
        m.lock();
        locked = true;
        m.unlock();
    });
    REQUIRE(late::are_asleep(1));
    for (int look = 0; look < 2; ++look) {
        // Roused, and overtaken while it rises; it tries in vain, and sleeps again.
        late::stay = true;
        m.unlock();
        REQUIRE(m.try_lock());
        REQUIRE(late::are_asleep(0));
        late::ahead = late::ahead + (look == 0 ? 0 : overdue);
        late::stay = false;
        REQUIRE(late::are_asleep(1));
    }
    late::stay = true;
    m.unlock();
    CHECK_FALSE(m.try_lock());
    late::stay = false;
    head.join();
    CHECK(locked);
    late::ahead = 0;
}

TEMPLATE_TEST_CASE("adaptive_mutex: a head that gives up while it floats grants it to the next", "",
                   test::native, test::portable) {
    using late = late_riser<TestType>;
    using mutex = bide::basic_adaptive_mutex<late>;
    const test::watchdog guard;
    const bool next_is_thread = GENERATE(true, false);
    CAPTURE(next_is_thread);
    mutex m;
    std::stop_source stop;
    what first = what::nothing_yet;
    std::atomic<bool> second{false};
    test::journal turns;
    m.lock();
    test::team head(1, [&](int) { first = of(m.lock(stop.get_token())); });
    REQUIRE(late::are_asleep(1));
    std::optional<test::team> next;
    if (next_is_thread) {
        next.emplace(1, [&](int) {
            m.lock();
            second = true;
            m.unlock();
        });
        REQUIRE(late::are_asleep(2));
    } else {
        note_turn(m, turns, 7);
    }
    late::stay = true;
    m.unlock(); // the head is roused, and late
    stop.request_stop();
    if (next_is_thread) {
        CHECK_FALSE(m.try_lock()); // no unlock was needed for that
    }
    late::stay = false;
    head.join();
    CHECK(first == what::stopped);
    if (next) {
        next->join();
        CHECK(second);
    } else {
        CHECK(turns.reaches(1));
    }
    CHECK(m.try_lock_for(test::patience));
    m.unlock();
}

TEMPLATE_TEST_CASE("adaptive_mutex: if the last waiter gives up while it floats, it is free", "",
                   test::native, test::portable) {
    using late = late_riser<TestType>;
    using mutex = bide::basic_adaptive_mutex<late>;
    const test::watchdog guard;
    mutex m;
    std::stop_source stop;
    what end = what::nothing_yet;
    m.lock();
    test::team head(1, [&](int) { end = of(m.lock(stop.get_token())); });
    REQUIRE(late::are_asleep(1));
    late::stay = true;
    m.unlock();
    stop.request_stop();
    CHECK(m.try_lock());
    m.unlock();
    late::stay = false;
    head.join();
    CHECK(end == what::stopped);
}

TEMPLATE_TEST_CASE(
    "adaptive_mutex: no waiter is forgotten when other waiters are stopped or time out", "",
    test::native, test::portable) {
    using mutex = bide::basic_adaptive_mutex<TestType>;
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    for (int round = 0; round < 150; ++round) {
        mutex m;
        int count = 0;
        int mine[4] = {};
        std::stop_source stop;
        std::atomic<what> end{};
        m.lock();
        note_stopped(m, stop.get_token(), end);
        test::run_threads(4, [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(round * 4 + i));
            if (i == 0) {
                chance();
                m.unlock();
                chance();
                stop.request_stop();
            }
            for (int n = 0; n < 20; ++n) {
                bool locked = true;
                if (i == 1) {
                    locked = m.lock(stop.get_token()).has_value();
                } else if (i == 2) {
                    locked = m.try_lock_for(std::chrono::nanoseconds(chance.below(40'000)));
                } else {
                    m.lock();
                }
                if (locked) {
                    ++count;
                    ++mine[i];
                    m.unlock();
                }
                chance();
            }
        });
        REQUIRE(mine[0] == 20);
        REQUIRE(mine[3] == 20);
        REQUIRE(count == mine[0] + mine[1] + mine[2] + mine[3]);
        REQUIRE(test::eventually([&] { return end != what::nothing_yet; }));
        REQUIRE(m.try_lock());
        m.unlock();
    }
}

// ---- Deadlines and stops

TEMPLATE_TEST_CASE("adaptive_mutex: zero, negative and past times mean one attempt", "",
                   test::native, test::portable) {
    using std::chrono::duration;
    const test::watchdog guard(20s);
    bide::basic_adaptive_mutex<TestType> m;
    m.lock();
    CHECK_FALSE(m.try_lock_for(0s));
    CHECK_FALSE(m.try_lock_for(-1ns));
    CHECK_FALSE(m.try_lock_for(std::chrono::hours::min()));
    CHECK_FALSE(m.try_lock_for(duration<double>(-1e300)));
    CHECK_FALSE(m.try_lock_until(steady_clock::now()));
    CHECK_FALSE(m.try_lock_until(steady_clock::time_point::min()));
    CHECK_FALSE(m.try_lock_until(std::chrono::system_clock::now() - 24h));
    std::atomic<what> ends[2] = {};
    note_late(m, 0s, ends[0]);
    note_late(m, -1h, ends[1]);
    CHECK(ends[0] == what::timeout); // without suspending
    CHECK(ends[1] == what::timeout);
    m.unlock();
}

TEMPLATE_TEST_CASE("adaptive_mutex: a time-out is not early, by its own clock", "", test::native,
                   test::portable) {
    bide::basic_adaptive_mutex<TestType> m;
    m.lock();
    const auto start = steady_clock::now();
    CHECK_FALSE(m.try_lock_for(15'000'000ns));
    CHECK(steady_clock::now() >= start + 15ms);
    const auto system = std::chrono::system_clock::now() + 15ms;
    CHECK_FALSE(m.try_lock_until(system));
    CHECK(std::chrono::system_clock::now() >= system);
    std::atomic<what> end{};
    const auto before = steady_clock::now();
    note_late(m, 15ms, end);
    REQUIRE(test::eventually([&] { return end != what::nothing_yet; }));
    CHECK(end == what::timeout);
    CHECK(steady_clock::now() >= before + 15ms);
    m.unlock();
}

TEMPLATE_TEST_CASE("adaptive_mutex: a huge time-out never ends the wait, an unlock does", "",
                   test::native, test::portable) {
    using platform = test::observing<TestType>;
    bide::basic_adaptive_mutex<platform> m;
    m.lock();
    bool got[4] = {};
    test::team waiting(4, [&](int i) {
        switch (i) {
        case 0: got[i] = m.try_lock_for(std::chrono::hours::max()); break;
        case 1: got[i] = m.try_lock_for(std::chrono::duration<double>(1e300)); break;
        case 2: got[i] = m.try_lock_until(steady_clock::time_point::max()); break;
        default: got[i] = m.try_lock_until(std::chrono::system_clock::time_point::max());
        }
        if (got[i]) {
            m.unlock();
        }
    });
    REQUIRE(test::are_asleep<TestType>(4));
    m.unlock();
    waiting.join();
    for (const bool locked : got) {
        CHECK(locked);
    }
}

TEMPLATE_TEST_CASE("adaptive_mutex: a stop ends the waits it is for and no other", "", test::native,
                   test::portable) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    bide::basic_adaptive_mutex<platform> m;
    std::stop_source stop;
    std::stop_source other;
    std::atomic<what> ends[4] = {};
    m.lock();
    note_stopped(m, stop.get_token(), ends[0]);
    note_stopped(m, other.get_token(), ends[1]);
    test::team threads(2, [&](int i) {
        const auto got = m.lock(i == 0 ? stop.get_token() : other.get_token());
        if (got) {
            m.unlock();
        }
        ends[2 + i] = of(got);
    });
    REQUIRE(test::are_asleep<TestType>(2));
    stop.request_stop();
    REQUIRE(test::eventually(
        [&] { return ends[0] != what::nothing_yet && ends[2] != what::nothing_yet; }));
    CHECK(ends[0] == what::stopped);
    CHECK(ends[2] == what::stopped);
    CHECK(ends[1] == what::nothing_yet);
    CHECK(ends[3] == what::nothing_yet);
    CHECK(of(m.lock(stop.get_token())) == what::stopped); // requested before
    m.unlock();
    threads.join();
    CHECK(ends[1] == what::locked);
    CHECK(ends[3] == what::locked);
    other.request_stop(); // too late for anything
    CHECK(m.try_lock());
    m.unlock();
}

// ---- Coroutines

TEST_CASE("adaptive_mutex: a coroutine is handed it, and no thread overtakes it") {
    const test::watchdog guard;
    test::manual_executor later;
    bide::adaptive_mutex m;
    bool locked[2] = {};
    m.lock();
    auto first = hold_on(later, m, locked[0]);
    auto second = hold_on(later, m, locked[1]);
    first.start();
    second.start();
    m.unlock();
    CHECK(later.size() == 1);
    CHECK_FALSE(m.try_lock());
    CHECK_FALSE(m.try_lock_for(1ms));
    later.run_all();
    CHECK(locked[0]);
    CHECK_FALSE(locked[1]);
    first.destroy(); // its lock goes with it, to the next
    CHECK_FALSE(m.try_lock());
    later.run_all();
    CHECK(locked[1]);
    second.destroy();
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("adaptive_mutex: threads and coroutines are served in one order", "",
                   test::native, test::portable) {
    using platform = test::observing<TestType>;
    using mutex = bide::basic_adaptive_mutex<platform>;
    const test::watchdog guard;
    for (int pattern = 0; pattern < 8; ++pattern) {
        CAPTURE(pattern);
        mutex m;
        test::journal turns;
        std::optional<test::team> threads[3];
        int asleep = 0;
        m.lock();
        for (int i = 0; i < 3; ++i) {
            if ((pattern >> i) % 2 == 0) {
                note_turn(m, turns, i);
                continue;
            }
            threads[i].emplace(1, [&m, &turns, i](int) {
                m.lock();
                turns.add(i);
                m.unlock();
            });
            REQUIRE(test::are_asleep<TestType>(++asleep));
        }
        CHECK(turns.size() == 0);
        m.unlock();
        REQUIRE(turns.reaches(3));
        REQUIRE(turns.entries() == counts{0, 1, 2});
    }
}

TEST_CASE("adaptive_mutex: a coroutine that is destroyed while it waits is not waited for") {
    const test::watchdog guard;
    const int leaves = GENERATE(0, 1, 2);
    CAPTURE(leaves);
    bide::adaptive_mutex m;
    bool locked[3] = {};
    std::vector<test::held> waiting;
    m.lock();
    for (bool& l : locked) {
        waiting.push_back(hold(m, l));
        waiting.back().start();
    }
    waiting[static_cast<std::size_t>(leaves)].destroy();
    m.unlock();
    for (int i = 0; i < 3; ++i) {
        CHECK(locked[i] == (i != leaves));
        waiting[static_cast<std::size_t>(i)].destroy(); // on to the next
    }
    CHECK(m.try_lock());
    m.unlock();
}

TEST_CASE("adaptive_mutex: a coroutine destroyed after the grant gives it back") {
    const test::watchdog guard;
    test::manual_executor later;
    bide::adaptive_mutex m;
    bool locked[2] = {};
    m.lock();
    auto granted = hold_on(later, m, locked[0]);
    auto next = hold(m, locked[1]);
    granted.start();
    const bool has_waiter = GENERATE(false, true);
    if (has_waiter) {
        next.start();
    }
    m.unlock();
    REQUIRE(later.size() == 1);
    CHECK_FALSE(m.try_lock());
    later.drop_all();
    granted.destroy();
    CHECK_FALSE(locked[0]);
    CHECK(locked[1] == has_waiter);
    CHECK(m.try_lock() != has_waiter);
    if (!has_waiter) {
        m.unlock();
    }
}

TEST_CASE("adaptive_mutex: a stop or a time-out that comes after the grant is too late") {
    const test::watchdog guard;
    test::manual_executor later;
    bide::adaptive_mutex m;
    std::stop_source stop;
    what end = what::nothing_yet;
    m.lock();
    auto c = [](test::manual_executor& e, bide::adaptive_mutex& from, std::stop_token t,
                what& out) -> test::held {
        const auto got = co_await from.async_lock().with_stop(t).resume_on(e);
        out = of(got);
    }(later, m, stop.get_token(), end);
    c.start();
    m.unlock();
    stop.request_stop();
    CHECK(later.run_all() == 1);
    CHECK(end == what::locked);
    CHECK(m.try_lock());
    m.unlock();
}

TEST_CASE("adaptive_mutex: a chain of unlocks takes constant stack space") {
    bide::adaptive_mutex m;
    int passed = 0;
    m.lock();
    for (int i = 0; i < 20'000; ++i) {
        [](bide::adaptive_mutex& from, int& n) -> test::detached {
            const auto lock = co_await from.async_lock();
            ++n;
        }(m, passed);
    }
    m.unlock();
    CHECK(passed == 20'000);
    CHECK(m.try_lock());
    m.unlock();
}

// ---- Allocation

TEMPLATE_TEST_CASE("adaptive_mutex: no wait allocates", "", test::native, test::portable) {
    using platform = test::observing<TestType>;
    using mutex = bide::basic_adaptive_mutex<platform>;
    const test::watchdog guard;
    mutex m;
    std::stop_source stop;
    std::stop_source never;
    const std::stop_token token = stop.get_token();
    const std::stop_token idle = never.get_token();
    bide::timer_service<platform>(); // its thread, once
    m.lock();

    SECTION("of a thread") {
        std::size_t made[3] = {1, 1, 1};
        bool good[3] = {};
        std::atomic<bool> timed_out{false};
        test::team waiting(3, [&](int i) {
            const std::size_t before = test::allocations_here();
            if (i == 0) {
                timed_out = !m.try_lock_for(1ms);
                good[i] = m.try_lock_for(1h) && timed_out;
            } else if (i == 1) {
                good[i] = !m.lock(token) && m.lock(idle);
            } else {
                m.lock();
                good[i] = true;
            }
            m.unlock();
            made[i] = test::allocations_here() - before;
        });
        const bool all =
            test::eventually([&] { return timed_out.load(); }) && test::are_asleep<TestType>(3);
        const std::size_t before = test::allocations_here();
        stop.request_stop();
        m.unlock();
        const std::size_t here = test::allocations_here() - before;
        waiting.join();
        CHECK(here == 0);
        CHECK(all);
        for (int i = 0; i < 3; ++i) {
            CHECK(good[i]);
            CHECK(made[i] == 0);
        }
    }
    SECTION("of a coroutine") {
        mutex start;
        start.lock();
        std::atomic<int> ended{0};
        [](mutex& first, mutex& from, std::stop_token t, std::atomic<int>& end) -> test::detached {
            const auto lock = co_await first.async_lock();
            const auto stopped = co_await from.async_lock().with_stop(t);
            const auto late = co_await from.async_lock().with_timeout(1ms);
            end = !stopped && !late ? 1 : -1;
        }(start, m, token, ended);
        const std::size_t before = test::allocations();
        start.unlock();
        stop.request_stop();
        const bool in_time = test::eventually([&] { return ended != 0; });
        const std::size_t made = test::allocations() - before;
        CHECK(made == 0);
        CHECK(in_time);
        CHECK(ended == 1);
        CHECK(start.try_lock_for(test::patience)); // the coroutine has ended
        start.unlock();
        m.unlock();
    }
}

// ---- Misuse and destruction

#if BIDE_TESTS_CAN_DIE

TEST_CASE("adaptive_mutex: unlocking it while it is not locked terminates with its name") {
    const std::string said = test::dies([] {
        bide::adaptive_mutex m;
        m.lock();
        m.unlock();
        m.unlock();
    });
    CHECK(test::contains(said, "adaptive_mutex"));
    CHECK(test::contains(said, "unlocked while not locked"));
}

TEST_CASE("adaptive_mutex: destroying it while there are waiters terminates with its name and "
          "their number") {
    const std::string said = test::dies([] {
        bool locked = false;
        std::optional<bide::adaptive_mutex> m(std::in_place);
        m->lock();
        auto first = hold(*m, locked);
        auto second = hold(*m, locked);
        auto third = hold(*m, locked);
        first.start();
        second.start();
        third.start();
        second.destroy();
        m.reset();
    });
    CHECK(test::contains(said, "adaptive_mutex"));
    CHECK(test::contains(said, "2 waiting"));
}

TEST_CASE("adaptive_mutex: destroying it without waiters is allowed, locked or not") {
    CHECK(test::contains(test::dies([] {
                             bool locked = false;
                             std::optional<bide::adaptive_mutex> m(std::in_place);
                             m->lock();
                             auto c = hold(*m, locked);
                             c.start();
                             c.destroy();
                             m.emplace();
                             m->lock();
                             m->unlock();
                             m.reset();
                         }),
                         "[it lives on]"));
}

#endif

TEST_CASE("adaptive_mutex: a coroutine that is handed it inside unlock may destroy it there") {
    auto m = std::make_unique<bide::adaptive_mutex>();
    m->lock();
    [](std::unique_ptr<bide::adaptive_mutex>& from) -> test::detached {
        auto lock = co_await from->async_lock();
        lock.unlock();
        from.reset();
    }(m);
    m->unlock();
    CHECK(m == nullptr);
}

TEMPLATE_TEST_CASE("adaptive_mutex: its last owner may destroy it at once", "", test::native,
                   test::portable) {
    struct shared {
        bide::basic_adaptive_mutex<TestType> mutex;
        int users = 2; // under it
    };
    const auto make = [](void* at, int) { return ::new (at) shared; };
    const auto use = [](shared& s) {
        const std::lock_guard lock(s.mutex);
        --s.users;
    };
    // Until the other owners have had it: their unlocks may not have returned.
    const auto outlast = [](shared& s, int round) {
        for (bool last = false; !last;) {
            if (round % 3 == 0) {
                while (!s.mutex.try_lock_for(std::chrono::nanoseconds(round))) {
                }
            } else if (round % 3 == 1) {
                static_cast<void>(s.mutex.lock(std::stop_token()));
            } else {
                s.mutex.lock();
            }
            last = s.users == 0;
            s.mutex.unlock();
        }
    };
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    CHECK(test::late_touches<shared>(2, 3'000, make, use, outlast) == 0);
}

TEMPLATE_TEST_CASE("adaptive_mutex: a waiter that got it by an unlock may destroy it at once", "",
                   test::native, test::portable) {
    using mutex = bide::basic_adaptive_mutex<TestType>;
    const auto make = [](void* at, int) {
        auto* const m = ::new (at) mutex;
        m->lock();
        return m;
    };
    const auto unlock = [](mutex& m) { m.unlock(); };
    const auto lock = [](mutex& m, int round) {
        if (round % 2 == 0) {
            m.lock();
        } else {
            while (!m.try_lock_for(std::chrono::nanoseconds(round))) {
            }
        }
    };
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    CHECK(test::late_touches<mutex>(1, 3'000, make, unlock, lock) == 0);
}
