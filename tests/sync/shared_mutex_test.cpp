// What a lock for readers and writers promises: shared_mutex, and biased_shared_mutex with and without
// its bias. mutex_test.cpp has what a writer has in common with the owner of any lock. The end of this
// file has the upgrades of a shared_mutex.

#include "support/any_lock.hpp"
#include "support/death.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

namespace {

using test::any_shared_lock;
using test::wait_end;
using counts = std::vector<int>;
using platform = test::observing<test::native>;

struct kind {
    const char* name;
    std::unique_ptr<any_shared_lock> (*make)();
    bool biased;
};
template <class Mutex> std::unique_ptr<any_shared_lock> make() {
    return std::make_unique<test::shared_lock_of<Mutex>>();
}
template <class Mutex> std::unique_ptr<any_shared_lock> make_without_bias() {
    auto made = make<Mutex>();
    made->lock(); // a writer ends the bias
    made->unlock();
    return made;
}
const kind kinds[] = {
    {"shared_mutex", &make<bide::basic_shared_mutex<platform>>, false},
    {"biased_shared_mutex", &make<bide::basic_biased_shared_mutex<platform>>, true},
    {"biased_shared_mutex", &make_without_bias<bide::basic_biased_shared_mutex<platform>>, false},
    // Threads share its slots, and it is biased again after two reads.
    {"biased_shared_mutex", &make<bide::basic_biased_shared_mutex<platform, 2>>, true},
};

// Runs the rest of its test case for each kind.
const kind& each_kind() { return kinds[GENERATE(range(0, 4))]; }

bool are_asleep(int n) { return test::are_asleep<test::native>(n); }

test::detached upgrade_and_note(bide::shared_mutex& m, test::journal& turns, int name) {
    const auto reading = co_await m.async_lock_upgradable();
    turns.add(name);
    const auto writing = co_await m.async_upgrade();
    turns.add(name + 10);
}
test::held upgrade_and_hold(bide::shared_mutex& m, bool& mine) {
    const auto reading = co_await m.async_lock_upgradable();
    const auto writing = co_await m.async_upgrade();
    mine = true;
    co_await std::suspend_always();
}
test::held write_once(bide::shared_mutex& m, bool& mine) {
    const auto held = co_await m.async_lock();
    mine = true;
}
test::detached upgrade_in_time(bide::shared_mutex& m, std::stop_token stop, bide::errc& why) {
    const auto reading = co_await m.async_lock_upgradable();
    const auto writing = co_await m.async_upgrade().with_stop(stop);
    why = writing ? bide::errc{} : writing.error();
}

} // namespace

TEST_CASE("shared lock: one writer xor any number of readers", "[promise.biased-as-shared]") {
    const kind& of = each_kind();
    CAPTURE(of.name, of.biased);
    const auto m = of.make();
    for (int round = 0; round < 2; ++round) {
        m->lock_shared();
        CHECK(m->try_lock_shared());
        CHECK(m->try_lock_shared_for(1h));
        CHECK(m->try_lock_shared_until(steady_clock::time_point::min())); // ready first
        CHECK(m->lock_shared(std::stop_token()));
        CHECK_FALSE(m->try_lock());
        for (int left = 5; left > 0; --left) {
            CHECK_FALSE(m->try_lock_for(0s));
            m->unlock_shared();
        }
        m->lock();
        CHECK_FALSE(m->try_lock_shared());
        CHECK_FALSE(m->try_lock_shared_for(1ms));
        CHECK_FALSE(m->try_lock_shared_until(steady_clock::now()));
        m->unlock();
        {
            std::shared_lock reader(*m, 1s);
            CHECK(reader.owns_lock());
            const std::unique_lock writer(*m, 1ms);
            CHECK_FALSE(writer.owns_lock());
        }
        for (int n = 0; n < 16; ++n) { // enough for the bias to come back
            m->lock_shared();
            m->unlock_shared();
        }
    }
    CHECK(m->is_free());
}

TEST_CASE("shared lock: readers have it at the same time") {
    const kind& of = each_kind();
    CAPTURE(of.name, of.biased);
    const auto m = of.make();
    std::atomic<int> inside{0};
    bool met[4] = {};
    test::run_threads(4, [&](int i) {
        const std::shared_lock lock(*m);
        ++inside;
        met[i] = test::eventually([&] { return inside == 4; });
    });
    for (const bool all : met) {
        CHECK(all);
    }
    CHECK(m->is_free());
}

TEST_CASE("shared lock: readers behind a queued writer wait for it",
          "[promise.biased-writer-turn]") {
    const kind& of = each_kind();
    CAPTURE(of.name, of.biased);
    const auto m = of.make();
    test::journal turns;
    std::atomic<bool> enough{false};
    m->lock_shared();
    test::team writer(1, [&](int) {
        const std::lock_guard lock(*m);
        turns.add(0);
        test::eventually([&] { return enough.load(); });
    });
    REQUIRE(are_asleep(1));
    auto reader = m->read(turns, 1);
    reader.start();
    for (int i = 0; i < 17; ++i) { // not to be biased while the writer waits
        CHECK_FALSE(m->try_lock_shared());
    }
    CHECK_FALSE(m->try_lock_shared_for(0s));
    CHECK_FALSE(m->try_lock());
    CHECK(turns.size() == 0);
    m->unlock_shared();
    REQUIRE(turns.reaches(1));
    CHECK(turns.entries() == counts{0});
    CHECK_FALSE(m->try_lock_shared());
    enough = true;
    writer.join();
    REQUIRE(turns.reaches(2));
    CHECK(m->try_lock_shared());
    m->unlock_shared();
    CHECK_FALSE(m->try_lock());
}

TEST_CASE("shared lock: the queue is served in order, readers side by side in one go",
          "[promise.fifo-waiters]") {
    const kind& of = each_kind();
    CAPTURE(of.name, of.biased);
    const auto m = of.make();
    test::journal turns;
    m->lock();
    auto r0 = m->read(turns, 0);
    auto r1 = m->read(turns, 1);
    auto w2 = m->write(turns, 2);
    auto w3 = m->write(turns, 3);
    auto r4 = m->read(turns, 4);
    auto r5 = m->read(turns, 5);
    for (auto* c : {&r0, &r1, &w2, &w3, &r4, &r5}) {
        c->start();
    }
    CHECK(turns.size() == 0);
    m->unlock();
    CHECK(turns.entries() == counts{0, 1});
    r1.destroy();
    CHECK(turns.size() == 2);
    r0.destroy();
    CHECK(turns.entries() == counts{0, 1, 2});
    w2.destroy();
    CHECK(turns.entries() == counts{0, 1, 2, 3});
    w3.destroy();
    CHECK(turns.entries() == counts{0, 1, 2, 3, 4, 5});
    CHECK(m->try_lock_shared());
    m->unlock_shared();
    r4.destroy();
    CHECK_FALSE(m->try_lock());
    r5.destroy();
    CHECK(m->is_free());
}

TEST_CASE("shared lock: a downgrade lets queued readers in, up to the next writer") {
    const kind& of = each_kind();
    CAPTURE(of.name, of.biased);
    const auto m = of.make();
    test::journal turns;
    m->lock();
    auto r0 = m->read(turns, 0);
    auto r1 = m->read(turns, 1);
    auto w2 = m->write(turns, 2);
    auto r3 = m->read(turns, 3);
    for (auto* c : {&r0, &r1, &w2, &r3}) {
        c->start();
    }
    m->unlock_and_lock_shared();
    CHECK(turns.entries() == counts{0, 1});
    r0.destroy();
    r1.destroy();
    CHECK(turns.size() == 2); // this one reads still
    m->unlock_shared();
    CHECK(turns.entries() == counts{0, 1, 2});
    w2.destroy();
    CHECK(turns.entries() == counts{0, 1, 2, 3});
    r3.destroy();

    m->lock();
    m->unlock_and_lock_shared();
    CHECK_FALSE(m->try_lock());
    CHECK(m->try_lock_shared());
    m->unlock_shared();
    m->unlock_shared();
    CHECK(m->is_free());
}

TEST_CASE("shared lock: no writer comes between the two halves of a downgrade") {
    const kind& of = each_kind();
    CAPTURE(of.name, of.biased);
    const auto m = of.make();
    int value = 0;
    int changed[3] = {};
    test::run_threads(3, [&](int i) {
        for (int round = 0; round < 1'000; ++round) {
            m->lock();
            const int mine = ++value;
            m->unlock_and_lock_shared();
            changed[i] += value != mine ? 1 : 0;
            m->unlock_shared();
        }
    });
    for (const int n : changed) {
        CHECK(n == 0);
    }
}

TEST_CASE("shared lock: a writer gets it although new readers keep coming",
          "[promise.no-overtaking][promise.biased-writer-turn]") {
    // The readers do their best not to leave the mutex to itself: each waits until the other is in
    // again, as long as no writer keeps it out.
    const kind& of = each_kind();
    CAPTURE(of.name, of.biased);
    const auto m = of.make();
    std::atomic<int> entries[2] = {0, 0};
    std::atomic<bool> over{false};
    int written = 0;
    test::run_threads(3, [&](int i) {
        if (i == 2) {
            for (; written < 30; ++written) {
                const int seen[2] = {entries[0], entries[1]};
                if (!test::eventually([&] { return entries[0] > seen[0] && entries[1] > seen[1]; },
                                      test::patience / 2) ||
                    !m->try_lock_for(test::patience / 2)) {
                    break;
                }
                m->unlock();
            }
            over = true;
            return;
        }
        while (!over) {
            const std::shared_lock lock(*m);
            const int seen = entries[1 - i];
            ++entries[i];
            for (int n = 0; n < 50 && entries[1 - i] == seen && !over; ++n) {
                std::this_thread::yield();
            }
        }
    });
    CHECK(written == 30);
}

TEST_CASE("shared lock: a writer that gives up lets the readers behind it in",
          "[promise.giving-up-passes-on][promise.biased-writer-turn]") {
    const kind& of = each_kind();
    CAPTURE(of.name, of.biased);
    const auto m = of.make();
    test::journal turns;
    std::atomic<wait_end> end{};
    std::stop_source stop;
    test::manual_executor later; // they run here, on every path
    auto r1 = m->read_on(later, turns, 1);
    auto r2 = m->read_on(later, turns, 2);
    const auto begin_reads = [&] {
        r1.start();
        r2.start();
    };
    m->lock_shared();

    SECTION("a coroutine that is destroyed") {
        auto writer = m->write(turns, 0);
        writer.start();
        begin_reads();
        CHECK(later.size() == 0);
        writer.destroy();
    }
    SECTION("a coroutine that is stopped") {
        m->note_stopped(stop.get_token(), end);
        begin_reads();
        stop.request_stop();
        REQUIRE(test::has_ended(end));
        CHECK(end == wait_end::stopped);
    }
    SECTION("a thread that is stopped") {
        test::team writer(1, [&](int) { end = test::wait_end_of(m->lock(stop.get_token())); });
        REQUIRE(are_asleep(1));
        begin_reads();
        stop.request_stop();
        writer.join();
        CHECK(end == wait_end::stopped);
    }
    REQUIRE(test::eventually([&] { return later.size() == 2; }));
    CHECK(m->try_lock_shared());
    m->unlock_shared();
    m->unlock_shared();
    CHECK_FALSE(m->try_lock());
    later.run_all();
    CHECK(turns.entries() == counts{1, 2});
    r1.destroy();
    CHECK_FALSE(m->try_lock());
    r2.destroy();
    CHECK(m->is_free());
}

TEMPLATE_TEST_CASE(
    "shared lock: its owner may destroy it before the unlocks of the last readers return", "",
    bide::shared_mutex, (bide::basic_biased_shared_mutex<test::native, 2>)) {
    const auto make_locked = [](void* at, int) {
        auto* const m = ::new (at) TestType;
        m->lock_shared();
        m->lock_shared();
        return m;
    };
    const auto unlock = [](TestType& m) { m.unlock_shared(); };
    const auto lock = [](TestType& m, int) {
        m.lock();
        m.unlock();
    };
    CHECK(test::late_touches<TestType>(2, 1'500, make_locked, unlock, lock) == 0);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("shared lock: unlocking it while it is not locked so terminates and names it",
          "[promise.unlock-unlocked]") {
    const kind& of = each_kind();
    const auto m = of.make();
    char name[64];
    std::snprintf(name, sizeof name, "%s %p", of.name, m->address());
    std::string said;
    SECTION("shared; if it is biased, the next writer finds it") {
        said = test::dies([&] {
            m->unlock_shared();
            m->lock();
            m->unlock();
        });
    }
    SECTION("a downgrade") {
        said = test::dies([&] { m->unlock_and_lock_shared(); });
    }
    SECTION("exclusively, when it is locked shared") {
        m->lock_shared();
        said = test::dies([&] { m->unlock(); });
        m->unlock_shared();
    }
    CAPTURE(said, of.biased);
    CHECK(test::contains(said, name));
    CHECK(test::contains(said, "not locked"));
}

#endif

TEST_CASE("shared_mutex: an upgradable lock and an upgrade are waited for until a point in time",
          "[promise.upgrade][promise.time-limits]") {
    bide::shared_mutex m;
    const auto later = std::chrono::steady_clock::now() + test::patience;
    m.lock_upgradable();
    SECTION("the upgradable lock is unlocked before") {
        test::team holder(1, [&](int) { m.unlock_upgradable(); });
        REQUIRE(m.try_lock_upgradable_until(later));
        CHECK_FALSE(m.try_lock_upgradable());
        m.unlock_upgradable();
    }
    SECTION("the last reader leaves before") {
        REQUIRE(m.try_lock_shared());
        test::team reader(1, [&](int) { m.unlock_shared(); });
        REQUIRE(m.try_upgrade_until(later));
        CHECK_FALSE(m.try_lock_shared());
        m.unlock();
    }
    SECTION("the point in time has passed, and the attempt succeeds") {
        REQUIRE(m.try_upgrade_until(std::chrono::steady_clock::time_point()));
        m.unlock();
        REQUIRE(m.try_lock_upgradable_until(std::chrono::system_clock::time_point()));
        m.unlock_upgradable();
    }
    CHECK(m.try_lock());
    m.unlock();
}

TEST_CASE("shared_mutex: one upgradable reader beside readers, and it becomes the writer",
          "[promise.upgrade]") {
    bide::shared_mutex m;
    m.lock_upgradable();
    CHECK_FALSE(m.try_lock_upgradable());
    CHECK_FALSE(m.try_lock_upgradable_for(1ms));
    CHECK_FALSE(m.try_lock_upgradable_until(std::chrono::steady_clock::now() + 1ms));
    CHECK_FALSE(m.try_lock());
    REQUIRE(m.try_lock_shared());
    CHECK_FALSE(m.try_upgrade());
    CHECK_FALSE(m.try_upgrade_for(1ms));
    CHECK_FALSE(m.try_upgrade_until(std::chrono::steady_clock::now() + 1ms));
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

TEST_CASE("shared_mutex: an upgrade passes waiting writers, and those lose nothing",
          "[promise.upgrade]") {
    bide::shared_mutex m;
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
    bide::shared_mutex m;
    test::journal turns;
    m.lock_shared();
    upgrade_and_note(m, turns, 1);
    upgrade_and_note(m, turns, 2);
    bool mine = false;
    auto holder = upgrade_and_hold(m, mine);
    holder.start();
    upgrade_and_note(m, turns, 3);
    CHECK(turns.entries() == counts{1});
    m.unlock_shared();
    CHECK(turns.entries() == counts{1, 11, 2, 12});
    CHECK(mine);
    holder.destroy();
    CHECK(turns.entries() == counts{1, 11, 2, 12, 3, 13});
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

#if BIDE_TESTS_CAN_DIE

TEST_CASE("shared_mutex: the end of an upgradable lock that is not held terminates and names it",
          "[promise.unlock-unlocked]") {
    bide::shared_mutex m;
    std::string said;
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
    CAPTURE(said);
    CHECK(test::contains(said, "shared_mutex"));
    CHECK(test::contains(said, "not locked"));
}

#endif
