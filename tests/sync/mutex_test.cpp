// What every lock promises: mutex, adaptive_mutex, and the writer's side of shared_mutex and
// biased_shared_mutex.

#include "support/alloc.hpp"
#include "support/any_lock.hpp"
#include "support/coroutines.hpp"
#include "support/death.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"
#include "support/waiting.hpp"

#include <bide/core/timer.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/biased_shared_mutex.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/shared_mutex.hpp>

using namespace std::chrono_literals;

static_assert(sizeof(bide::mutex) == 16 || sizeof(void*) != 8);
static_assert(sizeof(bide::adaptive_mutex) == 16 || sizeof(void*) != 8);
static_assert(sizeof(bide::shared_mutex) <= 32);

namespace {

using std::chrono::steady_clock;
using test::any_lock;
using test::lock_end;
using counts = std::vector<int>;
using platform = test::observing<test::native>;

template <class Mutex>
constexpr bool is_a_lock =
    !std::is_copy_constructible_v<Mutex> && !std::is_move_constructible_v<Mutex> &&
    !std::is_move_assignable_v<Mutex> && std::is_nothrow_default_constructible_v<Mutex> &&
    noexcept(std::declval<Mutex&>().try_lock()) && noexcept(std::declval<Mutex&>().unlock());
static_assert(is_a_lock<bide::mutex> && is_a_lock<bide::adaptive_mutex>);
static_assert(is_a_lock<bide::shared_mutex> && is_a_lock<bide::biased_shared_mutex>);

constinit bide::mutex mutex_at_start;
constinit bide::adaptive_mutex adaptive_at_start;
constinit bide::shared_mutex shared_at_start;
constinit bide::biased_shared_mutex biased_at_start;

struct kind {
    const char* name;
    std::unique_ptr<any_lock> (*make)();
};
template <class Lock> std::unique_ptr<any_lock> make() { return std::make_unique<Lock>(); }
const kind kinds[] = {
    {"mutex", &make<test::lock_of<bide::basic_mutex<platform>>>},
    {"adaptive_mutex", &make<test::lock_of<bide::basic_adaptive_mutex<platform>>>},
    {"shared_mutex", &make<test::shared_lock_of<bide::basic_shared_mutex<platform>>>},
    {"biased_shared_mutex", &make<test::shared_lock_of<bide::basic_biased_shared_mutex<platform>>>},
    // Where its sleepers sleep otherwise.
    {"mutex", &make<test::lock_of<bide::basic_mutex<test::portable>>>},
    {"adaptive_mutex", &make<test::lock_of<bide::basic_adaptive_mutex<test::portable>>>},
};
constexpr int watched_kinds = 4;

// Runs the rest of its test case for each kind, on the platform whose sleepers are counted.
const kind& each_kind() { return kinds[GENERATE(range(0, watched_kinds))]; }

bool are_asleep(int n) { return test::are_asleep<test::native>(n); }

} // namespace

TEST_CASE("lock: it can be constant-initialised") {
    const std::scoped_lock all(mutex_at_start, adaptive_at_start, shared_at_start, biased_at_start);
    CHECK_FALSE(mutex_at_start.try_lock());
    CHECK_FALSE(adaptive_at_start.try_lock());
    CHECK_FALSE(shared_at_start.try_lock());
    CHECK_FALSE(biased_at_start.try_lock());
}

TEST_CASE("lock: it is locked until it is unlocked") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto m = of.make();
    std::stop_source stop;
    stop.request_stop();
    m->lock();
    CHECK_FALSE(m->try_lock());
    CHECK_FALSE(m->try_lock_for(1ms));
    CHECK_FALSE(m->try_lock_until(steady_clock::now() + 1ms));
    m->unlock();
    CHECK(m->try_lock());
    CHECK_FALSE(m->try_lock());
    m->unlock();
    CHECK(m->lock(std::stop_token()));
    CHECK_FALSE(m->try_lock());
    m->unlock();

    // Ready first.
    CHECK(m->try_lock_for(-1h));
    m->unlock();
    CHECK(m->try_lock_until(steady_clock::time_point::min()));
    m->unlock();
    CHECK(m->lock(stop.get_token()));
    m->unlock();
    std::atomic<lock_end> ends[2] = {};
    m->note_stopped(stop.get_token(), ends[0]);
    m->note_late(-1s, ends[1]);
    CHECK(ends[0] == lock_end::locked);
    CHECK(ends[1] == lock_end::locked);
    {
        std::unique_lock lock(*m, 1s);
        CHECK(lock.owns_lock());
        lock.unlock();
        CHECK(lock.try_lock_until(std::chrono::system_clock::now() + 1s));
        CHECK_FALSE(std::unique_lock(*m, std::try_to_lock).owns_lock());
    }
    CHECK(m->is_free());
}

TEST_CASE("lock: two never hold it, however they lock it") {
    constexpr int rounds = 2'000;
    const kind& of = kinds[GENERATE(range(0, static_cast<int>(std::size(kinds))))];
    CAPTURE(of.name, test::run_seed());
    const auto m = of.make();
    int count = 0; // plain: a sanitizer sees whether it is ordered
    int mine[4] = {};
    test::run_threads(4, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        for (int n = 0; n < rounds; ++n) {
            bool locked = true;
            switch (chance.below(6)) {
            case 0: locked = m->try_lock(); break;
            case 1: locked = m->try_lock_for(std::chrono::nanoseconds(chance.below(30'000))); break;
            case 2: locked = m->lock(std::stop_token()).has_value(); break;
            case 3: {
                std::atomic<lock_end> end{};
                m->count(count, end);
                mine[i] += test::has_ended(end) ? 1 : 0;
                continue;
            }
            default: m->lock();
            }
            if (locked) {
                ++count;
                ++mine[i];
                if (chance.below(64) == 0) {
                    chance();
                }
                m->unlock();
            }
        }
    });
    CHECK(count == mine[0] + mine[1] + mine[2] + mine[3]);
    CHECK(m->is_free());
}

TEST_CASE("lock: another thread may unlock it") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto m = of.make();
    for (int round = 0; round < 100; ++round) {
        m->lock();
        test::team other(1, [&](int) { m->unlock(); });
        m->lock();
        other.join();
        m->unlock();
    }
    CHECK(m->is_free());
}

TEST_CASE("lock: std::lock takes two of them in either order") {
    constexpr int rounds = 1'000;
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto a = of.make();
    const auto b = of.make();
    int both = 0;
    test::run_threads(4, [&](int i) {
        any_lock& first = i % 2 == 0 ? *a : *b;
        any_lock& second = i % 2 == 0 ? *b : *a;
        for (int n = 0; n < rounds; ++n) {
            std::lock(first, second);
            ++both;
            second.unlock();
            first.unlock();
        }
    });
    CHECK(both == 4 * rounds);
    CHECK(std::try_lock(*a, *b) == -1);
    CHECK(std::try_lock(*b, *a) == 0);
    a->unlock();
    b->unlock();
}

TEST_CASE("lock: std::condition_variable_any waits with it") {
    constexpr int rounds = 300;
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto m = of.make();
    std::condition_variable_any changed;
    int turn = 0;
    int turns[2] = {};
    test::run_threads(2, [&](int i) {
        for (int n = 0; n < rounds; ++n) {
            std::unique_lock lock(*m);
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

// ---- Order

TEST_CASE("lock: threads and coroutines get it in the order in which they came",
          "[promise.fifo-waiters]") {
    const kind& of = each_kind();
    for (int pattern = 0; pattern < 16; ++pattern) {
        CAPTURE(of.name, pattern);
        const auto m = of.make();
        test::journal turns;
        std::optional<test::team> threads[4];
        int asleep = 0;
        m->lock();
        for (int i = 0; i < 4; ++i) {
            if ((pattern >> i & 1) == 0) {
                threads[i].emplace(1, [&m, &turns, i](int) {
                    const std::lock_guard lock(*m);
                    turns.add(i);
                });
                REQUIRE(are_asleep(++asleep));
            } else {
                m->note_turn(turns, i);
            }
        }
        CHECK(turns.size() == 0);
        m->unlock();
        REQUIRE(turns.reaches(4));
        REQUIRE(turns.entries() == counts{0, 1, 2, 3});
    }
}

TEST_CASE(
    "lock: unlock hands it to the first waiter if that is a coroutine, and no thread overtakes") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto m = of.make();
    test::manual_executor later;
    bool locked[2] = {};
    m->lock();
    auto first = m->hold_on(later, {}, locked[0]);
    auto second = m->hold_on(later, {}, locked[1]);
    first.start();
    second.start();
    m->unlock();
    CHECK(later.size() == 1);
    CHECK_FALSE(m->try_lock());
    CHECK_FALSE(m->try_lock_for(1ms));
    later.run_all();
    CHECK(locked[0]);
    CHECK_FALSE(locked[1]);
    first.destroy(); // its lock goes with it, to the next
    CHECK_FALSE(m->try_lock());
    later.run_all();
    CHECK(locked[1]);
    second.destroy();
    CHECK(m->is_free());
}

TEST_CASE("lock: but for an adaptive_mutex, no thread overtakes a thread that sleeps") {
    const kind& of = kinds[GENERATE(0, 2, 3)];
    CAPTURE(of.name);
    const auto m = of.make();
    std::atomic<bool> enough{false};
    m->lock();
    test::team next(1, [&](int) {
        const std::lock_guard lock(*m);
        test::eventually([&] { return enough.load(); });
    });
    REQUIRE(are_asleep(1));
    m->unlock();
    CHECK_FALSE(m->try_lock()); // it is the other's, awake or not
    CHECK_FALSE(m->try_lock_for(0s));
    enough = true;
    next.join();
    CHECK(m->is_free());
}

// ---- Deadlines and stops

TEST_CASE("lock: zero, negative and past times mean one attempt", "[promise.time-limits]") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto m = of.make();
    m->lock();
    CHECK(m->attempts_in_no_time() == 0);
    std::atomic<lock_end> ends[2] = {};
    m->note_late(0s, ends[0]);
    m->note_late(-1h, ends[1]);
    CHECK(ends[0] == lock_end::timeout); // without suspending
    CHECK(ends[1] == lock_end::timeout);
    m->unlock();
}

TEST_CASE("lock: a time-out is not early, by its own clock, and has no effect") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto m = of.make();
    m->lock();
    const auto start = steady_clock::now();
    CHECK_FALSE(m->try_lock_for(10ms));
    CHECK(steady_clock::now() >= start + 10ms);
    const auto system = std::chrono::system_clock::now() + 10ms;
    CHECK_FALSE(m->try_lock_until(system));
    CHECK(std::chrono::system_clock::now() >= system);
    std::atomic<lock_end> end{};
    const auto before = steady_clock::now();
    m->note_late(10ms, end);
    REQUIRE(test::has_ended(end));
    CHECK(end == lock_end::timeout);
    CHECK(steady_clock::now() >= before + 10ms);
    m->unlock();
    CHECK(m->is_free());
}

TEST_CASE("lock: a huge time-out never ends the wait, an unlock does", "[promise.time-limits]") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto m = of.make();
    m->lock();
    bool got[4] = {};
    test::team waiting(4, [&](int i) {
        got[i] = m->lock_for_ever(i);
        if (got[i]) {
            m->unlock();
        }
    });
    REQUIRE(are_asleep(4));
    m->unlock();
    waiting.join();
    for (const bool locked : got) {
        CHECK(locked);
    }
}

TEST_CASE("lock: a stop ends the waits it is for and no other") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto m = of.make();
    std::stop_source stop;
    std::stop_source other;
    std::atomic<lock_end> ends[4] = {};
    m->lock();
    m->note_stopped(stop.get_token(), ends[0]);
    m->note_stopped(other.get_token(), ends[1]);
    test::team threads(2, [&](int i) {
        const auto got = m->lock(i == 0 ? stop.get_token() : other.get_token());
        if (got) {
            m->unlock();
        }
        ends[2 + i] = test::end_of(got);
    });
    REQUIRE(are_asleep(2));
    stop.request_stop();
    REQUIRE((test::has_ended(ends[0]) && test::has_ended(ends[2])));
    CHECK(ends[0] == lock_end::stopped);
    CHECK(ends[2] == lock_end::stopped);
    CHECK(ends[1] == lock_end::nothing_yet);
    CHECK(ends[3] == lock_end::nothing_yet);
    CHECK(test::end_of(m->lock(stop.get_token())) == lock_end::stopped); // requested before
    m->unlock();
    threads.join();
    CHECK(ends[1] == lock_end::locked);
    CHECK(ends[3] == lock_end::locked);
    other.request_stop(); // too late for anything
    CHECK(m->is_free());
}

TEST_CASE("lock: no waiter is forgotten when other waiters are stopped or time out") {
    const kind& of = each_kind();
    CAPTURE(of.name, test::run_seed());
    for (int round = 0; round < 100; ++round) {
        const auto m = of.make();
        int count = 0;
        int mine[4] = {};
        std::stop_source stop;
        std::atomic<lock_end> end{};
        m->lock();
        m->note_stopped(stop.get_token(), end);
        test::run_threads(4, [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(round * 4 + i));
            if (i == 0) {
                chance();
                m->unlock();
                chance();
                stop.request_stop();
            }
            for (int n = 0; n < 20; ++n) {
                bool locked = true;
                if (i == 1) {
                    locked = m->lock(stop.get_token()).has_value();
                } else if (i == 2) {
                    locked = m->try_lock_for(std::chrono::nanoseconds(chance.below(40'000)));
                } else {
                    m->lock();
                }
                if (locked) {
                    ++count;
                    ++mine[i];
                    m->unlock();
                }
                chance();
            }
        });
        REQUIRE(mine[0] == 20);
        REQUIRE(mine[3] == 20);
        REQUIRE(count == mine[0] + mine[1] + mine[2] + mine[3]);
        REQUIRE(test::has_ended(end));
        REQUIRE(m->is_free());
    }
}

// ---- Coroutines

TEST_CASE("lock: a coroutine holds it over suspensions and changes of thread") {
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

TEST_CASE("lock: a coroutine that is destroyed while it waits is not waited for") {
    const kind& of = each_kind();
    const int leaves = GENERATE(0, 1, 2);
    CAPTURE(of.name, leaves);
    const auto m = of.make();
    bool locked[3] = {};
    std::vector<test::held> waiting;
    m->lock();
    for (bool& l : locked) {
        waiting.push_back(m->hold(l));
        waiting.back().start();
    }
    waiting[static_cast<std::size_t>(leaves)].destroy();
    m->unlock();
    for (int i = 0; i < 3; ++i) {
        CHECK(locked[i] == (i != leaves));
        waiting[static_cast<std::size_t>(i)].destroy(); // on to the next
    }
    CHECK(m->is_free());
}

TEST_CASE("lock: a coroutine destroyed after the grant gives it back",
          "[promise.destroyed-grant-returns]") {
    const kind& of = each_kind();
    const bool has_waiter = GENERATE(false, true);
    CAPTURE(of.name, has_waiter);
    const auto m = of.make();
    test::manual_executor later;
    bool locked[2] = {};
    m->lock();
    auto granted = m->hold_on(later, {}, locked[0]);
    auto next = m->hold(locked[1]);
    granted.start();
    if (has_waiter) {
        next.start();
    }
    m->unlock();
    REQUIRE(later.size() == 1);
    CHECK_FALSE(m->try_lock());
    later.drop_all();
    granted.destroy();
    CHECK_FALSE(locked[0]);
    CHECK(locked[1] == has_waiter);
    CHECK(m->is_free() != has_waiter);
}

TEST_CASE("lock: a stop that comes after the grant is too late", "[promise.grant-stays]") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto m = of.make();
    test::manual_executor later;
    std::stop_source stop;
    bool locked = false;
    m->lock();
    auto c = m->hold_on(later, stop.get_token(), locked);
    c.start();
    m->unlock();
    stop.request_stop();
    CHECK(later.run_all() == 1);
    CHECK(locked);
    c.destroy();
    CHECK(m->is_free());
}

TEST_CASE("lock: a chain of unlocks takes constant stack space", "[promise.resume-in-release]") {
    constexpr std::size_t length = 20'000;
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto m = of.make();
    test::journal turns;
    m->lock();
    for (std::size_t i = 0; i < length; ++i) {
        m->note_turn(turns, 0);
    }
    m->unlock();
    CHECK(turns.size() == length);
    CHECK(m->is_free());
}

// ---- Allocation

TEST_CASE("lock: no wait allocates", "[promise.no-wait-allocates]") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto m = of.make();
    std::stop_source stop;
    std::stop_source never;
    const std::stop_token token = stop.get_token();
    const std::stop_token idle = never.get_token();
    bide::timer_service<platform>(); // its thread, once
    m->lock();

    SECTION("of a thread") {
        std::size_t made[3] = {1, 1, 1};
        bool good[3] = {};
        std::atomic<bool> timed_out{false};
        test::team waiting(3, [&](int i) {
            const std::size_t before = test::allocations_here();
            if (i == 0) {
                timed_out = !m->try_lock_for(1ms);
                good[i] = m->try_lock_for(1h) && timed_out;
            } else if (i == 1) {
                good[i] = !m->lock(token) && m->lock(idle);
            } else {
                m->lock();
                good[i] = true;
            }
            m->unlock();
            made[i] = test::allocations_here() - before;
        });
        const bool all = test::eventually([&] { return timed_out.load(); }) && are_asleep(3);
        const std::size_t before = test::allocations_here();
        stop.request_stop();
        m->unlock();
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
        test::manual_executor later;
        bool locked[2] = {};
        auto stopped = m->hold_on(later, token, locked[0]);
        auto granted = m->hold(locked[1]);
        const std::size_t before = test::allocations();
        stopped.start();
        granted.start();
        stop.request_stop();
        later.run_all();
        m->unlock();
        CHECK(test::allocations() == before);
        CHECK_FALSE(locked[0]);
        CHECK(locked[1]);
    }
}

// ---- Misuse and destruction

#if BIDE_TESTS_CAN_DIE

TEST_CASE("lock: unlocking it while it is not locked terminates and names it",
          "[promise.unlock-unlocked]") {
    const kind& of = each_kind();
    const auto m = of.make();
    char name[64];
    std::snprintf(name, sizeof name, "%s %p", of.name, m->address());
    for (int round = 0; round < 2; ++round) {
        const std::string said = test::dies([&] { m->unlock(); });
        CAPTURE(said, round);
        CHECK(test::contains(said, name));
        CHECK(test::contains(said, "not locked"));
        m->lock();
        m->unlock();
    }
}

TEST_CASE("lock: destroying it while there are waiters terminates with its name and their number",
          "[promise.destroyed-with-waiters]") {
    const kind& of = each_kind();
    const std::string said = test::dies([&] {
        bool locked = false;
        auto m = of.make();
        m->lock();
        auto first = m->hold(locked);
        auto second = m->hold(locked);
        auto third = m->hold(locked);
        first.start();
        second.start();
        third.start();
        second.destroy();
        m.reset();
    });
    CAPTURE(said);
    CHECK(test::contains(said, of.name));
    CHECK(test::contains(said, "2 waiting"));
}

TEST_CASE("lock: destroying it without waiters is allowed, locked or not") {
    const kind& of = each_kind();
    const std::string said = test::dies([&] {
        bool locked = false;
        auto m = of.make();
        m->lock();
        auto c = m->hold(locked);
        c.start();
        c.destroy();
        m = of.make();
        m->lock();
        m->unlock();
    });
    CHECK(test::contains(said, "[it lives on]"));
}

#endif

TEST_CASE("lock: a coroutine that is handed it inside unlock may destroy it there") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    auto m = of.make();
    any_lock& lock = *m;
    lock.lock();
    lock.lock_and_destroy(m);
    lock.unlock();
    CHECK(m == nullptr);
}

TEMPLATE_TEST_CASE("lock: its last owner may destroy it before the unlocks of the others return",
                   "", bide::mutex, bide::adaptive_mutex, bide::shared_mutex) {
    struct shared {
        TestType mutex;
        int users = 2; // under it
    };
    const auto make = [](void* at, int) { return ::new (at) shared; };
    const auto use = [](shared& s) {
        const std::lock_guard lock(s.mutex);
        --s.users;
    };
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
    CHECK(test::late_touches<shared>(2, 1'500, make, use, outlast) == 0);
}

TEMPLATE_TEST_CASE("lock: a waiter that got it by an unlock may destroy it before that returns", "",
                   bide::mutex, bide::adaptive_mutex, bide::basic_adaptive_mutex<test::portable>) {
    const auto make = [](void* at, int) {
        auto* const m = ::new (at) TestType;
        m->lock();
        return m;
    };
    const auto unlock = [](TestType& m) { m.unlock(); };
    const auto lock = [](TestType& m, int round) {
        if (round % 2 == 0) {
            m.lock();
        } else {
            while (!m.try_lock_for(std::chrono::nanoseconds(round))) {
            }
        }
    };
    CHECK(test::late_touches<TestType>(1, 1'500, make, unlock, lock) == 0);
}
