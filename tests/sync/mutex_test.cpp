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

#include <bide/sync/mutex.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
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

static_assert(sizeof(bide::mutex) == 16 || sizeof(void*) != 8);
static_assert(!std::is_copy_constructible_v<bide::mutex>);
static_assert(!std::is_move_constructible_v<bide::mutex>);
static_assert(std::is_nothrow_default_constructible_v<bide::mutex>);
static_assert(noexcept(std::declval<bide::mutex&>().try_lock()));
static_assert(noexcept(std::declval<bide::mutex&>().unlock()));

namespace {

using std::chrono::steady_clock;
using counts = std::vector<int>;

constinit bide::mutex ready_at_start;

template <class Mutex> test::detached lock_detached(Mutex& m, test::journal& turns, int name) {
    const auto lock = co_await m.async_lock();
    turns.add(name);
}

// Holds the lock from its turn to its end.
test::held hold(bide::mutex& m, bool& locked) {
    const auto lock = co_await m.async_lock();
    locked = lock.owns_lock();
}

} // namespace

TEST_CASE("mutex: it can be constant-initialised") {
    const std::lock_guard lock(ready_at_start);
    CHECK_FALSE(ready_at_start.try_lock());
}

TEMPLATE_TEST_CASE("mutex: it is locked until it is unlocked", "", test::native, test::portable) {
    bide::basic_mutex<TestType> m;
    m.lock();
    CHECK_FALSE(m.try_lock());
    m.unlock();
    CHECK(m.try_lock());
    CHECK_FALSE(m.try_lock());
    m.unlock();
    CHECK(m.try_lock_for(1h));
    CHECK_FALSE(m.try_lock_for(1ms));
    m.unlock();
    CHECK(m.try_lock_until(steady_clock::now() - 1h)); // ready first
    CHECK_FALSE(m.try_lock_until(steady_clock::now() - 1h));
    m.unlock();
    CHECK(m.lock(std::stop_token()));
    m.unlock();
    {
        std::unique_lock lock(m, 1s);
        CHECK(lock.owns_lock());
        lock.unlock();
        CHECK(lock.try_lock_until(std::chrono::system_clock::now() + 1s));
    }
    const std::scoped_lock lock(m);
}

TEMPLATE_TEST_CASE("mutex: one thread at a time has it", "", test::native, test::portable) {
    bide::basic_mutex<TestType> m;
    constexpr int each = 5'000;
    int count = 0;
    test::run_threads(4, [&](int) {
        for (int i = 0; i < each; ++i) {
            const std::lock_guard lock(m);
            ++count;
        }
    });
    CHECK(count == 4 * each);
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("mutex: threads and coroutines get it in the order in which they came",
                   "[promise.fifo-waiters]", test::native, test::portable) {
    using mutex = bide::basic_mutex<test::observing<TestType>>;
    const test::watchdog guard;
    for (int pattern = 0; pattern < 16; ++pattern) {
        CAPTURE(pattern);
        mutex m;
        test::journal turns;
        std::optional<test::team> threads[4];
        int asleep = 0;
        m.lock();
        for (int i = 0; i < 4; ++i) {
            if ((pattern >> i & 1) == 0) {
                threads[i].emplace(1, [&m, &turns, i](int) {
                    const std::lock_guard lock(m);
                    turns.add(i);
                });
                REQUIRE(test::are_asleep<TestType>(++asleep));
            } else {
                lock_detached(m, turns, i);
            }
        }
        m.unlock();
        REQUIRE(turns.reaches(4));
        REQUIRE(turns.entries() == counts{0, 1, 2, 3});
    }
}

TEMPLATE_TEST_CASE("mutex: unlock hands it to the first waiter, and no thread overtakes", "",
                   test::native, test::portable) {
    using mutex = bide::basic_mutex<test::observing<TestType>>;
    const test::watchdog guard;
    mutex m;
    std::atomic<bool> enough{false};
    m.lock();
    test::team next(1, [&](int) {
        const std::lock_guard lock(m);
        test::eventually([&] { return enough.load(); });
    });
    REQUIRE(test::are_asleep<TestType>(1));
    m.unlock();
    CHECK_FALSE(m.try_lock()); // it is the other's, awake or not
    CHECK_FALSE(m.try_lock_for(0s));
    enough = true;
    next.join();
    CHECK(m.try_lock());
    m.unlock();
}

TEST_CASE("mutex: another thread may unlock it") {
    bide::mutex m;
    m.lock();
    test::run_threads(1, [&](int) { m.unlock(); });
    CHECK(m.try_lock());
    m.unlock();
}

TEST_CASE("mutex: std::lock of two from two sides ends") {
    bide::mutex a;
    bide::mutex b;
    int both = 0;
    test::run_threads(2, [&](int i) {
        for (int round = 0; round < 3'000; ++round) {
            if (i == 0) {
                const std::scoped_lock lock(a, b);
                ++both;
            } else {
                std::lock(b, a);
                ++both;
                b.unlock();
                a.unlock();
            }
        }
    });
    CHECK(both == 6'000);
    CHECK(std::try_lock(a, b) == -1);
    a.unlock();
    b.unlock();
}

TEST_CASE("mutex: std::condition_variable_any waits with it") {
    bide::mutex m;
    std::condition_variable_any changed;
    int turn = 0;
    int late = 0;
    test::run_threads(2, [&](int i) {
        for (int round = 0; round < 500; ++round) {
            std::unique_lock lock(m);
            late += changed.wait_for(lock, test::patience, [&] { return turn % 2 == i; }) ? 0 : 1;
            ++turn;
            changed.notify_one();
        }
    });
    CHECK(turn == 1'000);
    CHECK(late == 0);
}

// ---- Deadlines and stops

TEMPLATE_TEST_CASE("mutex: a time-out returns false, is not early, and has no effect", "",
                   test::native, test::portable) {
    using mutex = bide::basic_mutex<test::observing<TestType>>;
    const test::watchdog guard;
    mutex m;
    m.lock();
    CHECK_FALSE(m.try_lock_for(0s));
    CHECK_FALSE(m.try_lock_for(-1h));
    CHECK_FALSE(m.try_lock_until(std::chrono::system_clock::time_point::min()));
    bool got = true;
    bool next = false;
    test::team late(1, [&](int) { got = m.try_lock_for(20ms); });
    test::team patient(1, [&](int) {
        next = m.try_lock_for(std::chrono::hours::max());
        if (next) {
            m.unlock();
        }
    });
    const auto when = steady_clock::now() + 10ms;
    CHECK_FALSE(m.try_lock_until(when));
    CHECK(steady_clock::now() >= when);
    late.join();
    CHECK_FALSE(got);
    REQUIRE(test::are_asleep<TestType>(1));
    m.unlock();
    patient.join();
    CHECK(next);
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("mutex: a stop ends the wait, and not what was granted", "", test::native,
                   test::portable) {
    using mutex = bide::basic_mutex<test::observing<TestType>>;
    const test::watchdog guard;
    mutex m;
    std::stop_source stop;
    m.lock();
    bide::result<void> got;
    test::team waiting(1, [&](int) { got = m.lock(stop.get_token()); });
    REQUIRE(test::are_asleep<TestType>(1));
    stop.request_stop();
    waiting.join();
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error() == bide::errc::stopped);
    const bide::result<void> again = m.lock(stop.get_token());
    CHECK((!again && again.error() == bide::errc::stopped));
    m.unlock();
    CHECK(m.lock(stop.get_token())); // ready first
    m.unlock();
}

TEMPLATE_TEST_CASE("mutex: a coroutine's wait ends by its time-out or its stop", "", test::native,
                   test::portable) {
    using mutex = bide::basic_mutex<TestType>;
    const test::watchdog guard;
    mutex m;
    std::stop_source stop;
    std::atomic<int> errors[3] = {};
    m.lock();
    const auto note = [](std::atomic<int>& e, const auto& got) {
        e = got ? -1 : static_cast<int>(got.error());
    };
    [](mutex& on, std::atomic<int>& e, auto& done) -> test::detached {
        auto got = co_await on.async_lock().with_timeout(5ms);
        done(e, got);
    }(m, errors[0], note);
    [](mutex& on, std::stop_token t, std::atomic<int>& e, auto& done) -> test::detached {
        auto got = co_await on.async_lock().with_stop(t);
        done(e, got);
    }(m, stop.get_token(), errors[1], note);
    [](mutex& on, std::atomic<int>& e, auto& done) -> test::detached {
        auto got = co_await on.async_lock().as_result();
        done(e, got);
    }(m, errors[2], note);
    stop.request_stop();
    REQUIRE(test::eventually([&] { return errors[0] != 0 && errors[1] != 0; }));
    CHECK(errors[0] == static_cast<int>(bide::errc::timeout));
    CHECK(errors[1] == static_cast<int>(bide::errc::stopped));
    CHECK(errors[2] == 0);
    m.unlock();
    CHECK(errors[2] == -1);
    CHECK(m.try_lock());
    m.unlock();
}

// ---- Coroutines

TEST_CASE("mutex: a coroutine holds it over suspensions and changes of thread") {
    bide::mutex m;
    std::thread::id ids[3];
    std::atomic<bool> done{false};
    {
        test::thread_executor first;
        test::thread_executor second;
        m.lock();
        [](bide::mutex& on, test::thread_executor& a, test::thread_executor& b,
           std::thread::id(&id)[3], std::atomic<bool>& end) -> test::detached {
            auto lock = co_await on.async_lock().resume_on(a);
            id[0] = test::this_thread();
            bide::mutex elsewhere;
            elsewhere.lock();
            bide::runnable unlocks; // runs when the coroutine has suspended
            unlocks.run = bide::waker(
                [](void* at) noexcept { static_cast<bide::mutex*>(at)->unlock(); }, &elsewhere);
            bide::executor_ref(a).post(unlocks);
            const auto other = co_await elsewhere.async_lock().resume_on(b);
            id[1] = other.owns_lock() ? test::this_thread() : std::thread::id();
            id[2] = lock.owns_lock() && !on.try_lock() ? id[1] : std::thread::id();
            lock.unlock(); // by another thread than the one it was locked on
            end = true;
        }(m, first, second, ids, done);
        m.unlock();
        CHECK(m.try_lock_for(test::patience));
        CHECK(test::eventually([&] { return done.load(); }));
        CHECK(ids[0] == first.id());
        CHECK(ids[1] == second.id());
        CHECK(ids[2] == second.id());
    }
    m.unlock();
}

TEST_CASE("mutex: a coroutine that is destroyed while it waits, or holds it, leaves the queue, or "
          "unlocks") {
    bide::mutex m;
    bool first_locked = false;
    bool second_locked = false;
    auto first = hold(m, first_locked);
    auto second = hold(m, second_locked);
    m.lock();
    first.start();
    second.start();
    SECTION("while it waits") {
        first.destroy();
        m.unlock();
        CHECK(second_locked);
    }
    SECTION("when it was granted, and not resumed yet") {
        test::manual_executor later;
        auto granted = [](bide::mutex& on, test::manual_executor& e) -> test::held {
            const auto lock = co_await on.async_lock().resume_on(e);
        }(m, later);
        granted.start();
        m.unlock(); // the first, which unlocks, then the second, then this one
        CHECK(later.size() == 1);
        CHECK_FALSE(m.try_lock());
        later.drop_all();
        granted.destroy();
    }
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("mutex: no wait allocates", "[promise.no-wait-allocates]", test::native,
                   test::portable) {
    using mutex = bide::basic_mutex<test::observing<TestType>>;
    const test::watchdog guard;
    mutex m;
    std::stop_source stop;
    const std::stop_token token = stop.get_token();
    std::size_t made = 1;
    bool as_expected = false;
    m.lock();
    test::team waiting(1, [&](int) {
        const std::size_t before = test::allocations_here();
        m.lock();
        as_expected = !m.try_lock_for(1ms) && !m.lock(token);
        m.unlock();
        made = test::allocations_here() - before;
    });
    REQUIRE(test::are_asleep<TestType>(1));
    const std::size_t before = test::allocations_here();
    m.unlock();
    stop.request_stop();
    CHECK(test::allocations_here() == before);
    waiting.join();
    CHECK(made == 0);
    CHECK(as_expected);

    bool locked = false;
    auto c = [](mutex& on, bool& got) -> test::held {
        const auto lock = co_await on.async_lock();
        got = lock.owns_lock();
    }(m, locked);
    m.lock();
    const std::size_t then = test::allocations_here();
    c.start();
    m.unlock();
    CHECK(test::allocations_here() == then);
    CHECK(locked);
}

// ---- Destruction and misuse

TEMPLATE_TEST_CASE("mutex: its owner may destroy it before the unlock of the last owner returns",
                   "", test::native, test::portable) {
    using mutex = bide::basic_mutex<TestType>;
    const auto make = [](void* at, int) {
        auto* const m = ::new (at) mutex;
        m->lock();
        return m;
    };
    const auto unlock = [](mutex& m) { m.unlock(); };
    const auto lock = [](mutex& m, int) {
        m.lock();
        m.unlock();
    };
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    CHECK(test::late_touches<mutex>(1, 3'000, make, unlock, lock) == 0);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("mutex: unlocking it while it is not locked terminates and names it",
          "[promise.unlock-unlocked]") {
    bide::mutex m;
    const std::string said = test::dies([&] { m.unlock(); });
    char name[64];
    std::snprintf(name, sizeof name, "mutex %p", static_cast<void*>(&m));
    CHECK(test::contains(said, name));
    CHECK(test::contains(said, "not locked"));

    m.lock();
    m.unlock();
    CHECK(test::contains(test::dies([&] { m.unlock(); }), "not locked"));
}

TEST_CASE("mutex: destroying it while there are waiters terminates with its name and their number",
          "[promise.destroyed-with-waiters]") {
    const std::string said = test::dies([] {
        test::journal turns;
        std::optional<bide::mutex> m(std::in_place);
        m->lock();
        lock_detached(*m, turns, 0);
        lock_detached(*m, turns, 1);
        m.reset();
    });
    CHECK(test::contains(said, "mutex"));
    CHECK(test::contains(said, "2 waiting"));
}

#endif
