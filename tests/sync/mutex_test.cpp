// What every lock promises beside its waits (waits_test.cpp): mutex, adaptive_mutex, and the writer's side of
// shared_mutex and biased_shared_mutex.

#include "support/any_lock.hpp"
#include "support/death.hpp"
#include "support/last_touch.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

static_assert(sizeof(bide::mutex) == 16 || sizeof(void*) != 8);
static_assert(sizeof(bide::adaptive_mutex) == 16 || sizeof(void*) != 8);
static_assert(sizeof(bide::shared_mutex) <= 32);

namespace {

using test::any_lock;

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
    {"mutex", &make<test::lock_of<bide::mutex>>},
    {"adaptive_mutex", &make<test::lock_of<bide::adaptive_mutex>>},
    {"shared_mutex", &make<test::shared_lock_of<bide::shared_mutex>>},
    {"biased_shared_mutex", &make<test::shared_lock_of<bide::biased_shared_mutex>>},
};

// Runs the rest of its test case for each kind.
const kind& each_kind() { return kinds[GENERATE(range(0, 4))]; }

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
    {
        std::unique_lock lock(*m, 1s);
        CHECK(lock.owns_lock());
        lock.unlock();
        CHECK(lock.try_lock_until(steady_clock::now() + 1s));
        CHECK_FALSE(std::unique_lock(*m, std::try_to_lock).owns_lock());
    }
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

#endif

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
