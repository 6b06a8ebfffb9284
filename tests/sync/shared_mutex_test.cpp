#include "support/alloc.hpp"
#include "support/catch.hpp"
#include "support/coroutines.hpp"
#include "support/death.hpp"
#include "support/fake_clock.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/waiting.hpp"

#include <bide/sync/shared_mutex.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

using namespace std::chrono_literals;

static_assert(sizeof(bide::shared_mutex) <= 32);
static_assert(!std::is_copy_constructible_v<bide::shared_mutex>);
static_assert(!std::is_move_constructible_v<bide::shared_mutex>);
static_assert(std::is_nothrow_default_constructible_v<bide::shared_mutex>);

namespace {

using std::chrono::steady_clock;
using counts = std::vector<int>;

constinit bide::shared_mutex ready_at_start;

// Coroutines that note when they are let in and stay until the test destroys them.
template <class Mutex> test::held write(Mutex& m, test::journal& turns, int name) {
    const auto lock = co_await m.async_lock();
    turns.add(name);
    co_await std::suspend_always();
}
template <class Mutex> test::held read(Mutex& m, test::journal& turns, int name) {
    const auto lock = co_await m.async_lock_shared();
    turns.add(name);
    co_await std::suspend_always();
}

template <class Mutex>
test::held read_later(Mutex& m, test::manual_executor& e, test::journal& turns, int name) {
    const auto lock = co_await m.async_lock_shared().resume_on(e);
    turns.add(name);
    co_await std::suspend_always();
}

} // namespace

TEST_CASE("shared_mutex: it can be constant-initialised") {
    const std::shared_lock lock(ready_at_start);
    CHECK_FALSE(ready_at_start.try_lock());
}

namespace {

template <class Mutex> test::detached upgrade_and_note(Mutex& m, test::journal& turns, int name) {
    const auto reading = co_await m.async_lock_upgradable();
    turns.add(name);
    const auto writing = co_await m.async_upgrade();
    turns.add(name + 10);
}
template <class Mutex> test::held upgrade_and_hold(Mutex& m, bool& mine) {
    const auto reading = co_await m.async_lock_upgradable();
    const auto writing = co_await m.async_upgrade();
    mine = true;
    co_await std::suspend_always();
}
template <class Mutex> test::held write_once(Mutex& m, bool& mine) {
    const auto held = co_await m.async_lock();
    mine = true;
}
template <class Mutex>
test::detached upgrade_in_time(Mutex& m, std::stop_token stop, bide::errc& why) {
    const auto reading = co_await m.async_lock_upgradable();
    const auto writing = co_await m.async_upgrade().with_stop(stop);
    why = writing ? bide::errc{} : writing.error();
}

} // namespace

TEMPLATE_TEST_CASE("shared_mutex: one upgradable reader beside readers, and it becomes the writer",
                   "[promise.upgrade]", test::native, test::portable) {
    const test::watchdog guard;
    bide::basic_shared_mutex<TestType> m;
    m.lock_upgradable();
    CHECK_FALSE(m.try_lock_upgradable());
    CHECK_FALSE(m.try_lock_upgradable_for(1ms));
    CHECK_FALSE(m.try_lock());
    REQUIRE(m.try_lock_shared());
    CHECK_FALSE(m.try_upgrade());
    CHECK_FALSE(m.try_upgrade_for(1ms));
    CHECK(m.try_lock_shared()); // it left the queue
    std::stop_source stop;
    stop.request_stop();
    CHECK_FALSE(m.upgrade(stop.get_token()));
    CHECK_FALSE(m.lock_upgradable(stop.get_token()));
    m.unlock_shared();
    m.unlock_shared();
    CHECK(m.try_upgrade());
    CHECK_FALSE(m.try_lock_shared());
    m.downgrade();
    REQUIRE(m.try_lock_shared());
    m.unlock_shared();
    m.upgrade();
    m.unlock_and_lock_shared();
    REQUIRE(m.try_lock_upgradable());
    m.unlock_upgradable();
    m.unlock_shared();
    m.lock_upgradable();
    m.upgrade();
    m.unlock();
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("shared_mutex: an upgrade passes waiting writers, and those lose nothing",
                   "[promise.upgrade]", test::native, test::portable) {
    const test::watchdog guard;
    bide::basic_shared_mutex<TestType> m;
    bool wrote[2] = {};
    m.lock_upgradable();
    m.lock_shared();
    auto first = write_once(m, wrote[0]);
    auto second = write_once(m, wrote[1]);
    first.start();
    second.start();
    SECTION("an attempt") {
        CHECK_FALSE(m.try_upgrade());
        m.unlock_shared();
        CHECK(m.try_upgrade());
    }
    SECTION("a wait") {
        test::team reader(1, [&](int) { m.unlock_shared(); });
        m.upgrade();
    }
    SECTION("a wait that times out, and another") {
        CHECK_FALSE(m.try_upgrade_for(1ms));
        m.unlock_shared();
        CHECK(m.try_upgrade_for(1ms));
    }
    SECTION("a wait behind a writer that gives up") {
        test::team reader(1, [&](int) { m.unlock_shared(); });
        m.upgrade();
        first.destroy();
        CHECK_FALSE(wrote[1]);
        wrote[0] = true;
    }
    CHECK_FALSE(wrote[1]);
    m.downgrade();
    CHECK_FALSE(wrote[1]);
    CHECK(m.try_upgrade());
    m.unlock();
    CHECK(wrote[0]);
    CHECK(wrote[1]);
    CHECK(m.try_lock());
    m.unlock();
}

TEST_CASE(
    "shared_mutex: coroutines upgrade one after the other, and one that is destroyed undoes it",
    "[promise.upgrade]") {
    const test::watchdog guard;
    bide::shared_mutex m;
    test::journal turns;
    m.lock_shared();
    upgrade_and_note(m, turns, 1);
    upgrade_and_note(m, turns, 2);
    bool mine = false;
    auto holder = upgrade_and_hold(m, mine);
    holder.start();
    upgrade_and_note(m, turns, 3);
    CHECK(turns.entries() == std::vector<int>{1});
    m.unlock_shared();
    CHECK(turns.entries() == std::vector<int>{1, 11, 2, 12});
    CHECK(mine);
    holder.destroy();
    CHECK(turns.entries() == std::vector<int>{1, 11, 2, 12, 3, 13});
    CHECK(m.try_lock());
    m.unlock();

    std::stop_source stop;
    bide::errc why{};
    m.lock_shared();
    upgrade_in_time(m, stop.get_token(), why);
    CHECK_FALSE(m.try_lock_shared()); // behind the upgrade
    stop.request_stop();
    REQUIRE(test::eventually([&] { return m.try_lock_upgradable(); }));
    CHECK(why == bide::errc::stopped);
    m.unlock_upgradable();
    m.unlock_shared();
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("shared_mutex: upgrades among readers and writers lose no increment",
                   "[promise.upgrade]", test::native, test::portable, test::jittery) {
    constexpr int turns = 200;
    bide::basic_shared_mutex<TestType> m;
    int count = 0; // plain: a sanitizer sees whether it is ordered
    std::atomic<int> wrong{0};
    test::run_threads(4, [&](int i) {
        for (int turn = 0; turn < turns; ++turn) {
            if (i < 2) {
                m.lock_upgradable();
                const int seen = count;
                if (turn % 3 != 0 || !m.try_upgrade()) {
                    m.upgrade();
                }
                wrong += count != seen ? 1 : 0; // no writer in between
                ++count;
                turn % 2 == 0 ? m.downgrade() : m.unlock();
                if (turn % 2 == 0) {
                    m.unlock_upgradable();
                }
            } else if (i == 2) {
                const std::lock_guard held(m);
                ++count;
            } else {
                const std::shared_lock held(m);
                wrong += count < 0 ? 1 : 0;
            }
        }
    });
    CHECK(wrong == 0);
    CHECK(count == 3 * turns);
}

TEMPLATE_TEST_CASE("shared_mutex: one writer xor any number of readers", "", test::native,
                   test::portable) {
    bide::basic_shared_mutex<TestType> m;
    m.lock();
    CHECK_FALSE(m.try_lock());
    CHECK_FALSE(m.try_lock_shared());
    CHECK_FALSE(m.try_lock_for(1ms));
    CHECK_FALSE(m.try_lock_shared_for(1ms));
    CHECK_FALSE(m.try_lock_until(steady_clock::now()));
    CHECK_FALSE(m.try_lock_shared_until(steady_clock::now()));
    m.unlock();

    m.lock_shared();
    CHECK(m.try_lock_shared());
    CHECK(m.try_lock_shared_for(1h));
    CHECK(m.try_lock_shared_until(steady_clock::time_point::min())); // ready first
    CHECK(m.lock_shared(std::stop_token()));
    CHECK_FALSE(m.try_lock());
    for (int left = 5; left > 0; --left) {
        CHECK_FALSE(m.try_lock_for(0s));
        m.unlock_shared();
    }
    CHECK(m.try_lock());
    m.unlock();
    CHECK(m.try_lock_for(-1s));
    m.unlock();
    CHECK(m.try_lock_until(steady_clock::now()));
    m.unlock();
    CHECK(m.lock(std::stop_token()));
    m.unlock();
    {
        std::shared_lock reader(m, 1s);
        CHECK(reader.owns_lock());
        const std::unique_lock writer(m, 1ms);
        CHECK_FALSE(writer.owns_lock());
    }
    const std::scoped_lock writer(m);
}

TEMPLATE_TEST_CASE("shared_mutex: readers have it at the same time", "", test::native,
                   test::portable) {
    bide::basic_shared_mutex<TestType> m;
    std::atomic<int> inside{0};
    bool met[4] = {};
    test::run_threads(4, [&](int i) {
        const std::shared_lock lock(m);
        ++inside;
        met[i] = test::eventually([&] { return inside == 4; });
    });
    for (const bool all : met) {
        CHECK(all);
    }
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("shared_mutex: a writer is alone, and readers see what it wrote", "",
                   test::native, test::portable) {
    bide::basic_shared_mutex<TestType> m;
    int first = 0; // written together
    int second = 0;
    int torn[4] = {};
    test::run_threads(4, [&](int i) {
        for (int round = 0; round < 4'000; ++round) {
            if ((round + i) % 4 == 0) {
                const std::lock_guard lock(m);
                ++first;
                ++second;
            } else {
                const std::shared_lock lock(m);
                torn[i] += first != second ? 1 : 0;
            }
        }
    });
    for (const int n : torn) {
        CHECK(n == 0);
    }
    CHECK(first == 4'000);
}

TEMPLATE_TEST_CASE("shared_mutex: readers behind a queued writer wait for it", "", test::native,
                   test::portable) {
    using mutex = bide::basic_shared_mutex<test::observing<TestType>>;
    const test::watchdog guard;
    mutex m;
    test::journal turns;
    std::atomic<bool> enough{false};
    m.lock_shared();
    test::team writer(1, [&](int) {
        const std::lock_guard lock(m);
        turns.add(0);
        test::eventually([&] { return enough.load(); });
    });
    REQUIRE(test::are_asleep<TestType>(1));
    auto reader = read(m, turns, 1);
    reader.start();
    CHECK_FALSE(m.try_lock_shared());
    CHECK_FALSE(m.try_lock_shared_for(0s));
    CHECK_FALSE(m.try_lock());
    CHECK(turns.size() == 0);
    m.unlock_shared();
    REQUIRE(turns.reaches(1));
    CHECK(turns.entries() == counts{0});
    CHECK_FALSE(m.try_lock_shared());
    enough = true;
    writer.join();
    REQUIRE(turns.reaches(2));
    CHECK(m.try_lock_shared());
    m.unlock_shared();
    CHECK_FALSE(m.try_lock());
}

TEMPLATE_TEST_CASE("shared_mutex: the queue is served in order, readers side by side in one go",
                   "[promise.fifo-waiters]", test::native, test::portable) {
    using mutex = bide::basic_shared_mutex<TestType>;
    mutex m;
    test::journal turns;
    m.lock();
    auto r0 = read(m, turns, 0);
    auto r1 = read(m, turns, 1);
    auto w2 = write(m, turns, 2);
    auto w3 = write(m, turns, 3);
    auto r4 = read(m, turns, 4);
    auto r5 = read(m, turns, 5);
    for (auto* c : {&r0, &r1, &w2, &w3, &r4, &r5}) {
        c->start();
    }
    CHECK(turns.size() == 0);
    m.unlock();
    CHECK(turns.entries() == counts{0, 1});
    r1.destroy();
    CHECK(turns.size() == 2);
    r0.destroy();
    CHECK(turns.entries() == counts{0, 1, 2});
    w2.destroy();
    CHECK(turns.entries() == counts{0, 1, 2, 3});
    w3.destroy();
    CHECK(turns.entries() == counts{0, 1, 2, 3, 4, 5});
    CHECK(m.try_lock_shared());
    m.unlock_shared();
    r4.destroy();
    CHECK_FALSE(m.try_lock());
    r5.destroy();
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("shared_mutex: a downgrade lets queued readers in, up to the next writer", "",
                   test::native, test::portable) {
    using mutex = bide::basic_shared_mutex<TestType>;
    mutex m;
    test::journal turns;
    m.lock();
    auto r0 = read(m, turns, 0);
    auto r1 = read(m, turns, 1);
    auto w2 = write(m, turns, 2);
    auto r3 = read(m, turns, 3);
    for (auto* c : {&r0, &r1, &w2, &r3}) {
        c->start();
    }
    m.unlock_and_lock_shared();
    CHECK(turns.entries() == counts{0, 1});
    r0.destroy();
    r1.destroy();
    CHECK(turns.size() == 2); // this one reads still
    m.unlock_shared();
    CHECK(turns.entries() == counts{0, 1, 2});
    w2.destroy();
    CHECK(turns.entries() == counts{0, 1, 2, 3});
    r3.destroy();

    m.lock();
    m.unlock_and_lock_shared();
    CHECK_FALSE(m.try_lock());
    CHECK(m.try_lock_shared());
    m.unlock_shared();
    m.unlock_shared();
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("shared_mutex: no writer comes between the two halves of a downgrade", "",
                   test::native, test::portable) {
    bide::basic_shared_mutex<TestType> m;
    int value = 0;
    int changed[3] = {};
    test::run_threads(3, [&](int i) {
        for (int round = 0; round < 2'000; ++round) {
            m.lock();
            const int mine = ++value;
            m.unlock_and_lock_shared();
            changed[i] += value != mine ? 1 : 0;
            m.unlock_shared();
        }
    });
    for (const int n : changed) {
        CHECK(n == 0);
    }
}

TEMPLATE_TEST_CASE("shared_mutex: a writer that gives up lets the readers behind it in",
                   "[promise.giving-up-passes-on]", test::native, test::portable) {
    using mutex = bide::basic_shared_mutex<test::observing<TestType>>;
    const test::watchdog guard;
    mutex m;
    test::journal turns;
    std::atomic<int> error{0};
    std::stop_source stop;
    test::manual_executor later; // they run here, on every path
    auto r1 = read_later(m, later, turns, 1);
    auto r2 = read_later(m, later, turns, 2);
    m.lock_shared();

    SECTION("a coroutine that is destroyed") {
        auto writer = write(m, turns, 0);
        writer.start();
        r1.start();
        r2.start();
        CHECK(later.size() == 0);
        writer.destroy();
    }
    SECTION("a coroutine that is stopped") {
        [](mutex& on, std::stop_token t, std::atomic<int>& e) -> test::detached {
            const auto got = co_await on.async_lock().with_stop(t);
            e = got ? -1 : static_cast<int>(got.error());
        }(m, stop.get_token(), error);
        r1.start();
        r2.start();
        stop.request_stop();
        REQUIRE(test::eventually([&] { return error != 0; }));
        CHECK(error == static_cast<int>(bide::errc::stopped));
    }
    SECTION("a thread that is stopped") {
        bide::result<void> got;
        test::team writer(1, [&](int) { got = m.lock(stop.get_token()); });
        REQUIRE(test::are_asleep<TestType>(1));
        r1.start();
        r2.start();
        stop.request_stop();
        writer.join();
        REQUIRE_FALSE(got.has_value());
        CHECK(got.error() == bide::errc::stopped);
    }
    SECTION("a thread whose time is up") {
        // By a clock that the test sets: on a busy machine the time could be up before the readers
        // start, and they would not wait.
        using clock = test::fake_clock<TestType>;
        clock::set(0ns);
        bool got = true;
        test::team writer(1,
                          [&](int) { got = m.try_lock_until(typename clock::time_point(30ms)); });
        REQUIRE(test::are_asleep<TestType>(1));
        r1.start();
        r2.start();
        clock::set(30ms);
        writer.join();
        CHECK_FALSE(got);
    }
    REQUIRE(test::eventually([&] { return later.size() == 2; }));
    CHECK(m.try_lock_shared());
    m.unlock_shared();
    m.unlock_shared();
    CHECK_FALSE(m.try_lock());
    later.run_all();
    CHECK(turns.entries() == counts{1, 2});
    r1.destroy();
    CHECK_FALSE(m.try_lock());
    r2.destroy();
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("shared_mutex: a reader that gives up has no effect", "", test::native,
                   test::portable) {
    using mutex = bide::basic_shared_mutex<TestType>;
    mutex m;
    test::journal turns;
    m.lock();
    auto r0 = read(m, turns, 0);
    auto w1 = write(m, turns, 1);
    r0.start();
    w1.start();
    CHECK_FALSE(m.try_lock_shared_for(1ms));
    r0.destroy();
    m.unlock();
    CHECK(turns.entries() == counts{1});
    w1.destroy();
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("shared_mutex: a writer gets it although new readers keep coming",
                   "[promise.no-overtaking]", test::native, test::portable) {
    // The readers do their best not to leave the mutex to itself: each waits until the other is in
    // again, as long as no writer keeps it out.
    bide::basic_shared_mutex<TestType> m;
    std::atomic<int> entries[2] = {0, 0};
    std::atomic<bool> over{false};
    int written = 0;
    test::run_threads(3, [&](int i) {
        if (i == 2) {
            for (; written < 30; ++written) {
                const int seen[2] = {entries[0], entries[1]};
                if (!test::eventually([&] { return entries[0] > seen[0] && entries[1] > seen[1]; },
                                      test::patience / 2) ||
                    !m.try_lock_for(test::patience / 2)) {
                    break;
                }
                m.unlock();
            }
            over = true;
            return;
        }
        while (!over) {
            const std::shared_lock lock(m);
            const int seen = entries[1 - i];
            ++entries[i];
            for (int n = 0; n < 50 && entries[1 - i] == seen && !over; ++n) {
                std::this_thread::yield();
            }
        }
    });
    CHECK(written == 30);
}

TEMPLATE_TEST_CASE("shared_mutex: a stop ends the wait of a reader and of a writer", "",
                   test::native, test::portable) {
    using mutex = bide::basic_shared_mutex<test::observing<TestType>>;
    const test::watchdog guard;
    mutex m;
    std::stop_source stop;
    bide::result<void> got[2];
    m.lock();
    test::team waiting(2, [&](int i) {
        got[i] = i == 0 ? m.lock(stop.get_token()) : m.lock_shared(stop.get_token());
    });
    REQUIRE(test::are_asleep<TestType>(2));
    stop.request_stop();
    waiting.join();
    for (const bide::result<void>& g : got) {
        REQUIRE_FALSE(g.has_value());
        CHECK(g.error() == bide::errc::stopped);
    }
    m.unlock();
    CHECK(m.lock_shared(stop.get_token())); // ready first
    m.unlock_shared();
    CHECK(m.lock(stop.get_token()));
    m.unlock();
}

TEMPLATE_TEST_CASE("shared_mutex: no wait allocates", "[promise.no-wait-allocates]", test::native,
                   test::portable) {
    using mutex = bide::basic_shared_mutex<test::observing<TestType>>;
    const test::watchdog guard;
    mutex m;
    test::journal turns;
    std::size_t made[2] = {1, 1};
    std::atomic<int> timed_out{0};
    auto r = read(m, turns, 0);
    auto w = write(m, turns, 1);
    m.lock();
    std::size_t before = test::allocations_here();
    r.start();
    w.start();
    CHECK(test::allocations_here() == before);
    test::team waiting(2, [&](int i) {
        const std::size_t before_mine = test::allocations_here();
        timed_out += (i == 0 ? m.try_lock_for(1ms) : m.try_lock_shared_for(1ms)) ? 0 : 1;
        if (i == 0) {
            m.lock();
            m.unlock();
        } else {
            m.lock_shared();
            m.unlock_shared();
        }
        made[i] = test::allocations_here() - before_mine;
    });
    before = test::allocations_here();
    const bool slept =
        test::eventually([&] { return timed_out == 2; }) && test::are_asleep<TestType>(2);
    m.unlock();
    r.destroy();
    w.destroy();
    CHECK(test::allocations_here() == before);
    waiting.join();
    CHECK(slept);
    for (int i = 0; i < 2; ++i) {
        CHECK(made[i] == 0);
    }
}

// ---- Destruction and misuse

TEMPLATE_TEST_CASE(
    "shared_mutex: its owner may destroy it before the unlocks of the last owners return", "",
    test::native, test::portable) {
    using mutex = bide::basic_shared_mutex<TestType>;
    const auto make = [](void* at, int) {
        auto* const m = ::new (at) mutex;
        m->lock_shared();
        m->lock_shared();
        return m;
    };
    const auto unlock = [](mutex& m) { m.unlock_shared(); };
    const auto lock = [](mutex& m, int) {
        m.lock();
        m.unlock();
    };
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    CHECK(test::late_touches<mutex>(2, 3'000, make, unlock, lock) == 0);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("shared_mutex: unlocking it while it is not locked terminates and names it",
          "[promise.unlock-unlocked]") {
    bide::shared_mutex m;
    char name[64];
    std::snprintf(name, sizeof name, "shared_mutex %p", static_cast<void*>(&m));
    std::string said;
    SECTION("exclusively") {
        said = test::dies([&] { m.unlock(); });
    }
    SECTION("shared") {
        said = test::dies([&] { m.unlock_shared(); });
    }
    SECTION("a downgrade") {
        said = test::dies([&] { m.unlock_and_lock_shared(); });
    }
    SECTION("a downgrade to upgradable") {
        said = test::dies([&] { m.downgrade(); });
    }
    SECTION("a downgrade to upgradable, when it is locked upgradable") {
        m.lock_upgradable();
        said = test::dies([&] { m.downgrade(); });
        m.unlock_upgradable();
    }
    SECTION("upgradable") {
        said = test::dies([&] { m.unlock_upgradable(); });
    }
    SECTION("exclusively, when it is locked shared") {
        m.lock_shared();
        said = test::dies([&] { m.unlock(); });
        m.unlock_shared();
    }
    CAPTURE(said);
    CHECK(test::contains(said, name));
    CHECK(test::contains(said, "not locked"));
}

TEST_CASE("shared_mutex: destroying it while there are waiters terminates with its name and their "
          "number") {
    const std::string said = test::dies([] {
        test::journal turns;
        std::optional<bide::shared_mutex> m(std::in_place);
        m->lock_shared();
        auto w = write(*m, turns, 0);
        auto r1 = read(*m, turns, 1);
        auto r2 = read(*m, turns, 2);
        w.start();
        r1.start();
        r2.start();
        m.reset();
    });
    CHECK(test::contains(said, "shared_mutex"));
    CHECK(test::contains(said, "3 waiting"));
}

#endif
