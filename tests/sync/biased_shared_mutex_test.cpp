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

#include <bide/channel/select.hpp>
#include <bide/sync/biased_shared_mutex.hpp>
#include <bide/sync/scoped_lock.hpp>
#include <bide/sync/synchronized_value.hpp>
#include <bide/task/task.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

static_assert(sizeof(bide::biased_shared_mutex) == 17 * bide::cache_line_pair);
static_assert(sizeof(bide::basic_biased_shared_mutex<bide::native_platform, 1>) ==
              2 * bide::cache_line_pair);
static_assert(!std::is_copy_constructible_v<bide::biased_shared_mutex>);
static_assert(!std::is_move_constructible_v<bide::biased_shared_mutex>);
static_assert(std::is_nothrow_default_constructible_v<bide::biased_shared_mutex>);

namespace {

using std::chrono::steady_clock;
using counts = std::vector<int>;

constexpr int slots = 16; // that many reads without a wait make it biased

constinit bide::biased_shared_mutex ready_at_start;

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

template <class Mutex> void end_bias(Mutex& m) {
    m.lock();
    m.unlock();
}
template <class Mutex> void read_often(Mutex& m) {
    for (int i = 0; i < slots; ++i) {
        m.lock_shared();
        m.unlock_shared();
    }
}

// What the mutex is made of: says whether it is biased.
template <class Platform> struct bias {
    using permits = bide::detail::basic_biased_permits<Platform, slots>;
    permits p;

    bool is_on() { return p.in_queue().available() <= permits::all / 2 + 1; }
    void write() {
        constexpr auto all = static_cast<std::uint64_t>(permits::all);
        CHECK(p.try_take_all());
        CHECK(p.in_queue().give(all, all));
    }
    void read() {
        CHECK(p.try_take_one());
        CHECK(p.give_one());
    }
};

} // namespace

TEST_CASE("biased_shared_mutex: it can be constant-initialised") {
    const std::shared_lock lock(ready_at_start);
    CHECK_FALSE(ready_at_start.try_lock());
}

TEMPLATE_TEST_CASE("biased_shared_mutex: one writer xor any number of readers",
                   "[promise.biased-as-shared]", test::native, test::portable) {
    bide::basic_biased_shared_mutex<TestType> m;
    for (int round = 0; round < 2; ++round) {
        m.lock();
        CHECK_FALSE(m.try_lock());
        CHECK_FALSE(m.try_lock_shared());
        CHECK_FALSE(m.try_lock_for(1ms));
        CHECK_FALSE(m.try_lock_shared_for(1ms));
        CHECK_FALSE(m.try_lock_until(steady_clock::now()));
        CHECK_FALSE(m.try_lock_shared_until(steady_clock::now()));
        m.unlock();
        if (round == 1) {
            read_often(m); // it is biased again
        }

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
}

TEMPLATE_TEST_CASE("biased_shared_mutex: readers have it at the same time", "", test::native,
                   test::portable) {
    bide::basic_biased_shared_mutex<TestType, 2> m; // four threads share two slots
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

TEMPLATE_TEST_CASE("biased_shared_mutex: a writer is alone, and readers see what it wrote",
                   "[promise.biased-as-shared]", test::native, test::portable, test::jittery) {
    constexpr int rounds = std::is_same_v<TestType, test::jittery> ? 200 : 4'000;
    bide::basic_biased_shared_mutex<TestType, 2> m;
    int first = 0; // written together
    int second = 0;
    int written[4] = {};
    int torn[4] = {};
    test::run_threads(4, [&](int i) {
        for (int round = 0; round < rounds; ++round) {
            if ((round + i) % 32 == 0) { // it is biased in between
                const std::lock_guard lock(m);
                ++first;
                ++second;
                ++written[i];
            } else {
                const std::shared_lock lock(m);
                torn[i] += first != second ? 1 : 0;
            }
        }
    });
    int all = 0;
    for (int i = 0; i < 4; ++i) {
        CHECK(torn[i] == 0);
        all += written[i];
    }
    CHECK(first == all);
}

// ---- The bias

TEST_CASE("biased_shared_mutex: a writer ends the bias, and reads without a wait bring it back",
          "[promise.biased-as-shared]") {
    bias<test::native> b;
    CHECK(b.is_on());
    b.read();
    CHECK(b.is_on());
    b.write();
    CHECK_FALSE(b.is_on());
    for (int i = 1; i < slots; ++i) {
        b.read();
        CHECK_FALSE(b.is_on());
    }
    b.read();
    CHECK(b.is_on());
    SECTION("an attempt ends it, too, if it fails") {
        CHECK(b.p.try_take_one());
        CHECK_FALSE(b.p.try_take_all());
        CHECK_FALSE(b.is_on());
        CHECK(b.p.give_one());
    }
    SECTION("every write begins the count anew") {
        b.write();
        for (int i = 1; i < slots; ++i) {
            b.read();
        }
        b.write();
        b.read();
    }
    b.write();
    CHECK_FALSE(b.is_on());
    CHECK(b.p.in_queue().available() == b.p.all);
}

TEST_CASE("biased_shared_mutex: it is not biased while a writer waits",
          "[promise.biased-as-shared]") {
    const test::watchdog guard;
    bide::biased_shared_mutex m;
    test::journal turns;
    m.lock_shared();
    auto w = write(m, turns, 0);
    w.start();
    for (int i = 0; i <= slots; ++i) {
        CHECK_FALSE(m.try_lock_shared());
    }
    m.unlock_shared();
    CHECK(turns.entries() == counts{0});
}

TEMPLATE_TEST_CASE("biased_shared_mutex: a reader may leave on another thread than it came",
                   "[promise.biased-reader-moves]", test::native, test::portable) {
    const test::watchdog guard;
    bide::basic_biased_shared_mutex<TestType> m;
    const bool biased = GENERATE(true, false);
    if (!biased) {
        end_bias(m);
    }
    m.lock_shared();
    m.lock_shared();
    std::shared_lock<decltype(m)> theirs;
    test::team other(1, [&](int) {
        theirs = std::shared_lock(m);
        m.unlock_shared();
        m.unlock_shared(); // more than came by its slot
    });
    other.join();
    CHECK_FALSE(m.try_lock());
    SECTION("after a writer came") { CHECK_FALSE(m.try_lock_for(1ms)); }
    SECTION("when it is biased again") { read_often(m); }
    theirs.unlock();
    CHECK(m.try_lock());
    CHECK_FALSE(m.try_lock_shared());
    m.unlock();
}

TEMPLATE_TEST_CASE("biased_shared_mutex: readers that come and leave on different threads, and "
                   "writers, lose no increment",
                   "[promise.biased-reader-moves]", test::native, test::portable, test::jittery) {
    constexpr int rounds = 300;
    using mutex = bide::basic_biased_shared_mutex<TestType, 2>;
    mutex m;
    int count = 0; // plain: a sanitizer sees whether it is ordered
    std::atomic<int> wrong{0};
    std::atomic<std::shared_lock<mutex>*> handed{nullptr};
    test::run_threads(4, [&](int i) {
        for (int round = 0; round < rounds; ++round) {
            if (i == 0 && round % 16 == 0) {
                while (!m.try_lock_for(1ms)) { // its readers may be behind this writer
                    delete handed.exchange(nullptr);
                }
                ++count;
                m.unlock();
                continue;
            }
            auto mine = std::make_unique<std::shared_lock<mutex>>(m);
            wrong += count < 0 ? 1 : 0;
            // Another thread unlocks it, some time.
            const std::unique_ptr<std::shared_lock<mutex>> before(
                handed.exchange(i == 0 ? nullptr : mine.release()));
        }
        delete handed.exchange(nullptr);
    });
    CHECK(wrong == 0);
    CHECK(count == (rounds + 15) / 16);
    CHECK(m.try_lock());
    m.unlock();
}

// ---- Order

TEMPLATE_TEST_CASE("biased_shared_mutex: readers behind a queued writer wait for it",
                   "[promise.biased-writer-turn]", test::native, test::portable) {
    using mutex = bide::basic_biased_shared_mutex<test::observing<TestType>>;
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
    enough = true;
    writer.join();
    REQUIRE(turns.reaches(2));
    CHECK(m.try_lock_shared());
    m.unlock_shared();
    CHECK_FALSE(m.try_lock());
}

TEMPLATE_TEST_CASE("biased_shared_mutex: the queue is served in order, readers side by side", "",
                   test::native, test::portable) {
    bide::basic_biased_shared_mutex<TestType> m;
    test::journal turns;
    auto first = read(m, turns, 0);
    auto w1 = write(m, turns, 1);
    auto w2 = write(m, turns, 2);
    auto r3 = read(m, turns, 3);
    auto r4 = read(m, turns, 4);
    for (auto* c : {&first, &w1, &w2, &r3, &r4}) {
        c->start();
    }
    CHECK(turns.entries() == counts{0});
    first.destroy();
    CHECK(turns.entries() == counts{0, 1});
    w1.destroy();
    CHECK(turns.entries() == counts{0, 1, 2});
    w2.destroy();
    CHECK(turns.entries() == counts{0, 1, 2, 3, 4});
    r3.destroy();
    CHECK_FALSE(m.try_lock());
    r4.destroy();
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("biased_shared_mutex: a downgrade lets queued readers in, up to the next writer",
                   "", test::native, test::portable) {
    bide::basic_biased_shared_mutex<TestType> m;
    test::journal turns;
    m.lock();
    auto r0 = read(m, turns, 0);
    auto w1 = write(m, turns, 1);
    r0.start();
    w1.start();
    m.unlock_and_lock_shared();
    CHECK(turns.entries() == counts{0});
    r0.destroy();
    CHECK(turns.size() == 1); // this one reads still
    m.unlock_shared();
    CHECK(turns.entries() == counts{0, 1});
    w1.destroy();
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("biased_shared_mutex: a writer gets it although new readers keep coming",
                   "[promise.biased-writer-turn]", test::native, test::portable) {
    // The readers do their best not to leave the mutex to itself: each waits until the other is in
    // again, as long as no writer keeps it out.
    bide::basic_biased_shared_mutex<TestType> m;
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

// ---- Waits that end otherwise

TEMPLATE_TEST_CASE("biased_shared_mutex: a writer that gives up lets the readers behind it in",
                   "[promise.biased-writer-turn]", test::native, test::portable) {
    using mutex = bide::basic_biased_shared_mutex<test::observing<TestType>>;
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

TEMPLATE_TEST_CASE("biased_shared_mutex: a reader that gives up has no effect", "", test::native,
                   test::portable) {
    bide::basic_biased_shared_mutex<TestType> m;
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

TEMPLATE_TEST_CASE("biased_shared_mutex: a stop ends the wait of a reader and of a writer", "",
                   test::native, test::portable) {
    using mutex = bide::basic_biased_shared_mutex<test::observing<TestType>>;
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

TEST_CASE("biased_shared_mutex: a coroutine that got it and is destroyed unlocks it") {
    bide::biased_shared_mutex m;
    test::journal turns;
    test::manual_executor later;
    m.lock();
    auto r = read_later(m, later, turns, 0);
    r.start();
    m.unlock();
    CHECK(later.size() == 1);
    CHECK_FALSE(m.try_lock());
    r.destroy();
    CHECK(m.try_lock());
    m.unlock();
}

// ---- With other parts

TEST_CASE(
    "biased_shared_mutex: it is a case of a select, guards a value, and is locked with others") {
    bide::biased_shared_mutex a;
    bide::biased_shared_mutex b;
    {
        auto chosen = bide::select(bide::on_lock(a), bide::on_lock_shared(b));
        CHECK(a.try_lock() == (chosen.index() == 1));
        CHECK_FALSE((chosen.index() == 1 && b.try_lock()));
        if (chosen.index() == 1) {
            a.unlock();
        }
    }
    {
        const bide::scoped_lock both(a, b);
        CHECK_FALSE(a.try_lock_shared());
        CHECK_FALSE(b.try_lock_shared());
    }
    CHECK(a.try_lock());
    CHECK(b.try_lock());
    a.unlock();
    b.unlock();

    bide::synchronized_value<int, bide::biased_shared_mutex> value(1);
    value.with([](int& n) { ++n; });
    CHECK(bide::sync_wait([](auto& v) -> bide::task<int> {
              const auto locked = co_await v.async_lock();
              co_return *locked;
          }(value)) == 2);
}

TEMPLATE_TEST_CASE("biased_shared_mutex: no wait allocates", "[promise.no-wait-allocates]",
                   test::native, test::portable) {
    using mutex = bide::basic_biased_shared_mutex<test::observing<TestType>>;
    const test::watchdog guard;
    mutex m;
    test::journal turns;
    auto r = read(m, turns, 0);
    auto w = write(m, turns, 1);
    const std::size_t before = test::allocations_here();
    m.lock_shared();
    w.start();
    r.start();
    CHECK_FALSE(m.try_lock_for(1ms));
    m.unlock_shared();
    w.destroy();
    r.destroy();
    read_often(m);
    m.lock();
    m.unlock();
    CHECK(test::allocations_here() == before);
}

// ---- Destruction and misuse

TEMPLATE_TEST_CASE(
    "biased_shared_mutex: its owner may destroy it before the unlocks of the last owners return",
    "", test::native, test::portable) {
    using mutex = bide::basic_biased_shared_mutex<TestType, 2>;
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

TEST_CASE("biased_shared_mutex: unlocking it while it is not locked terminates and names it",
          "[promise.unlock-unlocked]") {
    bide::biased_shared_mutex m;
    char name[64];
    std::snprintf(name, sizeof name, "biased_shared_mutex %p", static_cast<void*>(&m));
    std::string said;
    SECTION("exclusively") {
        said = test::dies([&] { m.unlock(); });
    }
    SECTION("exclusively, when it is not biased") {
        end_bias(m);
        said = test::dies([&] { m.unlock(); });
    }
    SECTION("shared, when it is not biased") {
        end_bias(m);
        said = test::dies([&] { m.unlock_shared(); });
    }
    SECTION("shared, when it is biased: the next writer finds it") {
        said = test::dies([&] {
            m.unlock_shared();
            m.lock();
            m.unlock();
        });
    }
    SECTION("a downgrade") {
        said = test::dies([&] { m.unlock_and_lock_shared(); });
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

TEST_CASE("biased_shared_mutex: destroying it while there are waiters terminates with its name and "
          "their number") {
    const std::string said = test::dies([] {
        test::journal turns;
        std::optional<bide::biased_shared_mutex> m(std::in_place);
        m->lock_shared();
        auto w = write(*m, turns, 0);
        auto r1 = read(*m, turns, 1);
        auto r2 = read(*m, turns, 2);
        w.start();
        r1.start();
        r2.start();
        m.reset();
    });
    CHECK(test::contains(said, "biased_shared_mutex"));
    CHECK(test::contains(said, "3 waiting"));
}

#endif
