// What a program notes and reports that is compiled with BIDE_DEADLOCK_CHECK.

#define BIDE_DEADLOCK_CHECK

#include <bide/bide.hpp>
#include <bide/core/deadlock_check.hpp>
#include <bide/sync/biased_shared_mutex.hpp>
#include <support/coroutines.hpp>
#include <support/death.hpp>
#include <support/dumps.hpp>
#include <support/tasks.hpp>
#include <support/test.hpp>

using namespace bide;

static_assert(sizeof(mutex) == 16 || sizeof(void*) != 8); // notes lie beside, not inside

namespace {

std::string dumped() {
    return test::written_by([](std::FILE* to) { bide::dump_all(to); });
}
bool is_dumped(std::string_view part) {
    return test::eventually([&] { return test::contains(dumped(), part); });
}

// Collects reports instead of terminating. One at a time.
class reports {
public:
    reports() {
        all().clear();
        bide::set_deadlock_handler([](const char* report) {
            const std::lock_guard lock(guard());
            all().emplace_back(report);
        });
    }
    reports(const reports&) = delete;
    reports& operator=(const reports&) = delete;
    ~reports() { bide::set_deadlock_handler(nullptr); }

    std::size_t count() const {
        const std::lock_guard lock(guard());
        return all().size();
    }
    std::string text() const {
        const std::lock_guard lock(guard());
        return all().empty() ? "" : all().front();
    }

private:
    static std::mutex& guard() {
        static std::mutex m;
        return m;
    }
    static std::vector<std::string>& all() {
        static std::vector<std::string> texts;
        return texts;
    }
};

// n threads, of which each locks its own mutex and then waits for the next one's. The last one to do so
// reports. Then the first mutex is unlocked from outside, which lets all come to their ends.
template <class Mutex> void lock_in_a_ring(std::vector<Mutex*> m, const reports& told) {
    const int n = static_cast<int>(m.size());
    test::rendezvous all_have(n);
    test::team threads(n, [&](int i) {
        auto& mine = *m[static_cast<std::size_t>(i)];
        auto& next = *m[static_cast<std::size_t>((i + 1) % n)];
        mine.lock();
        all_have.meet();
        next.lock();
        next.unlock();
        if (i != 0) {
            mine.unlock();
        }
    });
    REQUIRE(test::eventually([&] { return told.count() != 0; }));
    REQUIRE(is_dumped(std::to_string(n) + " waits")); // the last wait has begun
    m[0]->unlock();
    threads.join();
    CHECK(told.count() == 1);
}

int count(std::string_view text, std::string_view part) {
    int n = 0;
    for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
        ++n;
    }
    return n;
}

task<> lock_two(mutex& first, mutex& next, std::atomic<int>& have, bool& got_both) {
    const auto mine = co_await first.async_lock();
    ++have;
    while (have != 2) {
        co_await bide::this_task::yield();
    }
    const auto other = co_await next.async_lock();
    got_both = true;
}

// Returns what a dump says that a task of a loop waits for which awaits `of`.
template <class Op> std::string what_for(bide::run_loop& loop, Op of) {
    const auto await = [](Op op) -> task<> {
        static_cast<void>(co_await std::move(op).as_result());
    };
    auto waits = loop.spawn(await(std::move(of)).named("this"));
    loop.poll();
    std::string text = dumped();
    waits.cancel();
    loop.poll();
    text = text.substr(text.find("task 'this' waits for ") + 22);
    return text.substr(0, text.find_first_of(",0"));
}

} // namespace

TEST_CASE("deadlock_check: a dump lists the waits, and the holders of locks") {
    bide::scheduler s(test::workers(1));
    mutex m{"accounts"};
    bide::semaphore none(0, "permits");
    bide::event never{"end of the day"};
    bide::channel<int> empty(1, "orders");
    bide::shared_mutex unnamed;
    m.lock();
    unnamed.lock();
    std::stop_source stop;
    {
        test::team threads(3, [&](int i) {
            switch (i) {
            case 0:
                m.lock();
                m.unlock();
                break;
            case 1: static_cast<void>(none.acquire(stop.get_token())); break;
            default: static_cast<void>(empty.recv());
            }
        });
        auto waits = [](mutex& for_this) -> task<> {
            const auto lock = co_await for_this.async_lock();
        }(m);
        auto reads = s.spawn(std::move(waits).named("reader"));
        auto sees = s.spawn([](bide::event& e) -> task<> { co_await e.async_wait(); }(never));
        auto writes = s.spawn([](bide::shared_mutex& of) -> task<> {
            const auto lock = co_await of.async_lock_shared();
        }(unnamed));
        REQUIRE(is_dumped("bide: 6 waits"));
        const std::string text = dumped();
        CHECK(count(text, " waits for mutex 'accounts', held by thread ") == 2);
        CHECK(test::contains(text, "  task 'reader' waits for mutex 'accounts', held by thread "));
        CHECK(test::contains(text, " waits for semaphore 'permits', for "));
        CHECK(
            test::contains(text, "  a task without a name waits for event 'end of the day', for "));
        CHECK(test::contains(text, " waits for channel 'orders', for "));
        CHECK(test::contains(text, " waits for shared_mutex 0x"));
        CHECK(test::contains(text, "bide scheduler: 1 workers, 3 tasks of 3 left"));
        m.unlock();
        unnamed.unlock();
        never.set();
        empty.close();
        stop.request_stop();
        std::move(reads).join();
        std::move(sees).join();
        std::move(writes).join();
    }
    CHECK(test::contains(dumped(), "bide: 0 waits"));
}

TEST_CASE("deadlock_check: threads that wait for each other are reported, once",
          "[promise.deadlock-check]") {
    const reports told;
    mutex a{"a"};
    mutex b{"b"};
    mutex c{"c"};
    lock_in_a_ring<mutex>({&a, &b}, told);
    CHECK(test::contains(told.text(), "bide: deadlock\n  thread "));
    CHECK(count(told.text(), " waits for mutex 'a', held by thread ") == 1);
    CHECK(count(told.text(), " waits for mutex 'b', held by thread ") == 1);

    const reports of_three;
    lock_in_a_ring<mutex>({&a, &b, &c}, of_three);
    CHECK(count(of_three.text(), "\n  thread ") == 3);

    const reports of_others;
    bide::adaptive_mutex d{"d"};
    bide::adaptive_mutex e{"e"};
    lock_in_a_ring<bide::adaptive_mutex>({&d, &e}, of_others);
    CHECK(test::contains(of_others.text(), " waits for adaptive_mutex 'd', held by "));

    const reports of_biased;
    bide::biased_shared_mutex f;
    bide::biased_shared_mutex g;
    lock_in_a_ring<bide::biased_shared_mutex>({&f, &g}, of_biased);
    CHECK(count(of_biased.text(), " waits for biased_shared_mutex 0x") == 2);
}

TEST_CASE("deadlock_check: tasks that wait for each other are reported",
          "[promise.deadlock-check]") {
    const reports told;
    bide::scheduler s(test::workers(2));
    mutex a{"a"};
    mutex b{"b"};
    std::atomic<int> have{0};
    bool got[2] = {};
    auto one = s.spawn(lock_two(a, b, have, got[0]).named("one"));
    auto two = s.spawn(lock_two(b, a, have, got[1]).named("two"));
    REQUIRE(test::eventually([&] { return told.count() != 0; }));
    CHECK(test::contains(told.text(), "task 'one' waits for mutex 'b', held by task 'two'"));
    CHECK(test::contains(told.text(), "task 'two' waits for mutex 'a', held by task 'one'"));
    two.cancel(); // ends the wait, and so the cycle
    std::move(one).join();
    CHECK(test::what_of([&] { std::move(two).join(); }) == "stopped");
    CHECK(got[0]);
    CHECK_FALSE(got[1]);
    CHECK(told.count() == 1);
}

TEST_CASE("deadlock_check: a thread and a task that wait for each other are reported",
          "[promise.deadlock-check]") {
    const reports told;
    bide::scheduler s(test::workers(1));
    mutex a{"a"};
    mutex b{"b"};
    std::atomic<int> have{0};
    bool got = false;
    b.lock();
    auto one = s.spawn(lock_two(a, b, have, got).named("one"));
    REQUIRE(test::eventually([&] { return have == 1; }));
    test::team breaks(1, [&](int) { // in place of the main thread, which waits
        if (test::eventually([&] { return told.count() != 0; })) {
            one.cancel();
        }
    });
    ++have;
    a.lock();
    breaks.join();
    a.unlock();
    b.unlock();
    CHECK(test::what_of([&] { std::move(one).join(); }) == "stopped");
    CHECK(test::contains(told.text(), "task 'one' waits for mutex 'b', held by thread "));
    CHECK(test::contains(told.text(), " waits for mutex 'a', held by task 'one'"));
}

TEST_CASE("deadlock_check: a reader and a writer that wait for each other are reported") {
    const reports told;
    bide::shared_mutex table{"table"};
    mutex log{"log"};
    test::rendezvous both(2);
    test::team threads(2, [&](int i) {
        if (i == 0) {
            table.lock_shared();
            both.meet();
            log.lock();
            log.unlock();
            table.unlock_shared();
        } else {
            log.lock();
            both.meet();
            table.lock();
            table.unlock();
        }
    });
    REQUIRE(test::eventually([&] { return told.count() != 0; }));
    REQUIRE(is_dumped("bide: 2 waits"));
    CHECK(test::contains(told.text(), " waits for shared_mutex 'table', held by thread "));
    CHECK(test::contains(told.text(), " waits for mutex 'log', held by thread "));
    log.unlock();
    threads.join();
    CHECK(told.count() == 1);
}

TEST_CASE("deadlock_check: a condition variable gives the mutex back to its holder") {
    const reports told;
    bide::scheduler s(test::workers(1));
    mutex m{"m"};
    bide::condition_variable changed;
    bide::event until;
    bool is_changed = false;
    auto waits = [&]() -> task<> {
        auto lock = co_await m.async_lock();
        const auto has_changed = [&] { return is_changed; };
        co_await changed.async_wait(lock, has_changed);
        co_await until.async_wait();
    };
    auto one = s.spawn(waits().named("one"));
    // Not "1 waits": a worker that has not run yet waits for the start to be over.
    REQUIRE(is_dumped("task 'one' waits for condition_variable 0x"));
    m.lock(); // not held by the task
    is_changed = true;
    changed.notify_one();
    m.unlock();
    test::team others(2, [&](int i) {
        std::unique_lock lock(m);
        if (i == 0) {
            static_cast<void>(changed.wait_for(lock, 0s));
        }
    });
    CHECK(test::eventually([] { // when the task has gone on with the mutex
        return count(dumped(), " waits for mutex 'm', held by task 'one'") == 2;
    }));
    until.set();
    std::move(one).join();
    others.join();
    CHECK(told.count() == 0);
}

TEST_CASE("deadlock_check: a waiter of a condition waits for its lock, too",
          "[promise.deadlock-check]") {
    for (const bool is_task : {false, true}) {
        const reports told;
        mutex outer{"outer"};
        mutex inner{"inner"};
        bide::condition_variable changed;
        std::stop_source never;
        test::team threads(2, [&](int which) {
            if (which == 0) {
                static_cast<void>(is_dumped(" waits for condition_variable 0x"));
                inner.lock();
                outer.lock(); // closes the cycle, whatever ends the wait for the condition
                outer.unlock();
                changed.notify_one();
                inner.unlock();
            } else if (is_task) {
                bide::sync_wait([](mutex& o, mutex& i, bide::condition_variable& c,
                                   std::stop_token stop) -> task<> {
                    auto held = co_await o.async_lock();
                    static_cast<void>(held.release());
                    auto lock = co_await i.async_lock();
                    static_cast<void>(co_await c.async_wait(lock).with_stop(stop));
                }(outer, inner, changed, never.get_token()));
            } else {
                outer.lock();
                std::unique_lock lock(inner);
                static_cast<void>(changed.wait(lock, never.get_token()));
            }
        });
        REQUIRE(test::eventually([&] { return told.count() != 0; }));
        REQUIRE(is_dumped(" waits for mutex 'outer', held by "));
        CHECK(count(told.text(), " waits for condition_variable 0x") == 1);
        CHECK(count(told.text(), " with mutex 'inner', held by thread ") == 1);
        CHECK(count(told.text(), " waits for mutex 'outer', held by ") == 1);
        outer.unlock();
        threads.join();
        CHECK(told.count() == 1);
    }
}

TEST_CASE("deadlock_check: the predicate of a condition names no lock",
          "[promise.deadlock-check]") {
    struct gate { // a lambda that captures `this` begins with the address of the mutex
        mutex m;
        bide::condition_variable changed;
        bool is_open = false;

        task<> pass() {
            auto lock = co_await m.async_lock();
            const auto opened = [this] { return is_open; };
            co_await changed.async_wait(lock, opened);
        }
    } of;
    const reports told;
    bide::scheduler s(test::workers(1));
    auto passes = s.spawn(of.pass());
    REQUIRE(is_dumped(" waits for condition_variable 0x"));
    of.m.lock();
    of.is_open = true;
    of.changed.notify_one();
    of.m.unlock();
    std::move(passes).join();
    CHECK(told.count() == 0);
}

TEST_CASE("deadlock_check: a wait for a condition that ends at once leaves one note of its lock") {
    const reports told;
    bide::shared_mutex m;
    bide::condition_variable never;
    std::shared_lock lock(m);
    CHECK_FALSE(never.wait_for(lock, 0s));
    std::stop_source stop;
    stop.request_stop();
    CHECK_FALSE(never.wait(lock, stop.get_token()));
    bide::sync_wait([](bide::condition_variable& c, std::shared_lock<bide::shared_mutex>& l,
                       std::stop_token now) -> task<> {
        static_cast<void>(co_await c.async_wait(l).with_stop(now).as_result());
    }(never, lock, stop.get_token()));
    lock.unlock();
    test::rendezvous both(2);
    test::team reads(1, [&](int) {
        m.lock_shared();
        both.meet();
        static_cast<void>(is_dumped("bide: 1 waits"));
        m.unlock_shared();
    });
    both.meet();
    m.lock(); // not "again"
    m.unlock();
    reads.join();
    CHECK(told.count() == 0);
}

TEST_CASE("deadlock_check: a cycle that ends by itself is not reported",
          "[promise.deadlock-check]") {
    for (const bool lasts_first : {false, true}) { // which of the two waits closes the cycle
        const reports told;
        mutex a{"a"};
        mutex b{"b"};
        std::stop_source stop;
        test::rendezvous both(2);
        bool has_b = true;
        test::team threads(2, [&](int i) {
            (i == 0 ? a : b).lock();
            both.meet();
            if ((i == 0) == lasts_first && !is_dumped("bide: 1 waits")) {
                return;
            }
            if (i == 0) {
                has_b = b.lock(stop.get_token()).has_value();
                a.unlock();
            } else {
                a.lock();
                a.unlock();
                b.unlock();
            }
        });
        REQUIRE(is_dumped("bide: 2 waits"));
        stop.request_stop();
        threads.join();
        CHECK_FALSE(has_b);
        CHECK(told.count() == 0);
    }
}

TEST_CASE("deadlock_check: a reader behind a writer that may give up closes no cycle") {
    const reports told;
    bide::shared_mutex table{"table"};
    mutex log{"log"};
    std::stop_source stop;
    test::rendezvous all(3);
    bool wrote = true;
    test::team threads(3, [&](int i) {
        if (i == 0) {
            table.lock_shared();
            all.meet();
            if (is_dumped("bide: 2 waits")) {
                log.lock();
                log.unlock();
            }
            table.unlock_shared();
        } else if (i == 1) {
            all.meet();
            wrote = table.lock(stop.get_token()).has_value();
        } else {
            log.lock();
            all.meet();
            if (is_dumped("bide: 1 waits")) {
                table.lock_shared();
                table.unlock_shared();
            }
            log.unlock();
        }
    });
    REQUIRE(is_dumped("bide: 3 waits"));
    stop.request_stop();
    threads.join();
    CHECK_FALSE(wrote);
    CHECK(told.count() == 0);
}

TEST_CASE("deadlock_check: a lock that was given away has no known holder",
          "[promise.deadlock-check]") {
    const reports told;
    mutex m{"m"};
    std::unique_lock lock(m);
    bide::forget_holder(m);
    test::team other(1, [&, given = &lock](int) {
        if (is_dumped("bide: 1 waits")) {
            given->unlock();
        }
    });
    m.lock(); // not "again"
    other.join();
    m.unlock();
    CHECK(told.count() == 0);
    static_cast<void>(lock.release());

    // A task may have the address of one that has ended with a lock.
    const auto locks = [&m] {
        bide::sync_wait([](mutex& of) -> task<> {
            auto locked = co_await of.async_lock();
            static_cast<void>(locked.release());
        }(m));
    };
    locks();
    test::team unlocks(1, [&](int) {
        if (is_dumped("bide: 1 waits")) {
            m.unlock();
        }
    });
    locks();
    unlocks.join();
    m.unlock();
    CHECK(told.count() == 0);
}

TEST_CASE("deadlock_check: threads and tasks that lock in one order are never reported",
          "[promise.deadlock-check]") {
    const reports told;
    bide::scheduler s(test::workers(2));
    std::array<mutex, 3> m{mutex{"0"}, mutex{"1"}, mutex{"2"}};
    int guarded[3] = {};
    const auto locks = [&]() -> task<> {
        for (int i = 0; i < 300; ++i) {
            const auto first = co_await m[0].async_lock();
            ++guarded[0];
            const auto second = co_await m[1].async_lock();
            ++guarded[1];
            const auto third = co_await m[2].async_lock();
            ++guarded[2];
        }
    };
    auto one = s.spawn(locks());
    auto two = s.spawn(locks());
    test::run_threads(2, [&](int) {
        for (int i = 0; i < 300; ++i) {
            const std::lock_guard first(m[0]);
            ++guarded[0];
            const std::lock_guard third(m[2]);
            ++guarded[2];
        }
    });
    std::move(one).join();
    std::move(two).join();
    CHECK(guarded[0] == 1200);
    CHECK(guarded[1] == 600);
    CHECK(guarded[2] == 1200);
    CHECK(told.count() == 0);
    CHECK(is_dumped("bide: 0 waits")); // a worker that starts late waits for the start to be over
}

TEST_CASE("deadlock_check: each wait says by its type what it waits for") {
    bide::run_loop loop;
    bide::notify never;
    bide::notify::listener next(never);
    bide::latch closed(1);
    bide::barrier<> phases(2);
    const auto arrived = phases.arrive();
    bide::once_flag once;
    const auto turn = once.begin();
    bide::once_cell<int> cell;
    const auto its_turn = cell.begin();
    bide::keyed_mutex<std::string> files;
    const auto file = files.lock("a");
    bide::object_pool<int> pool({.limit = 1}, [] { return 1; });
    const auto lease = pool.acquire();
    bide::biased_shared_mutex table("table");
    table.lock();
    bide::shared_mutex read;
    read.lock_upgradable();
    read.lock_shared();
    CHECK(what_for(loop, never.async_wait()) == "notify ");
    CHECK(what_for(loop, next.async_wait()) == "notify ");
    CHECK(what_for(loop, closed.async_wait()) == "latch ");
    CHECK(what_for(loop, phases.async_wait(arrived)) == "barrier ");
    CHECK(what_for(loop, once.async_begin()) == "once_flag ");
    CHECK(what_for(loop, cell.async_begin()) == "once_cell ");
    CHECK(what_for(loop, files.async_lock("a")) == "key of keyed_mutex ");
    CHECK(what_for(loop, pool.async_acquire()) == "object_pool ");
    CHECK(what_for(loop, table.async_lock()) == "biased_shared_mutex 'table'");
    CHECK(what_for(loop, table.async_lock_shared()) == "biased_shared_mutex 'table'");
    CHECK(what_for(loop, read.async_upgrade()) == "shared_mutex ");

    bide::unbounded_channel<int> empty;
    bide::priority_channel<int> sorted(1);
    bide::sliding_channel<int> latest(1);
    auto [to, from] = bide::make_channel<int>(0);
    auto [promise, future] = bide::oneshot<int>();
    bide::watch<int> watched(0);
    auto changes = watched.subscribe();
    bide::broadcast<int> told(1);
    auto hears = told.subscribe();
    std::vector<int> out;
    CHECK(what_for(loop, empty.async_recv()) == "unbounded_channel ");
    CHECK(what_for(loop, sorted.async_recv()) == "priority_channel ");
    CHECK(what_for(loop, latest.async_recv()) == "sliding_channel ");
    CHECK(what_for(loop, from.async_recv_n(out, 2)) == "channel ");
    CHECK(what_for(loop, to.async_send(1)) == "channel ");
    CHECK(what_for(loop, future.async_recv()) == "oneshot ");
    CHECK(what_for(loop, promise.async_closed()) == "oneshot ");
    CHECK(what_for(loop, changes.async_changed()) == "watch or broadcast ");
    CHECK(what_for(loop, hears.async_recv()) == "watch or broadcast ");
    CHECK(what_for(loop, bide::async_select(bide::on_recv(empty))) == "a select");

    const auto wait = [&]() -> task<> { co_await never.async_wait(); };
    bide::task_group group(loop);
    bide::join_set<void> set(loop);
    set.spawn(wait());
    group.spawn(wait());
    auto ends = loop.spawn(wait().named("ends"));
    CHECK(what_for(loop, bide::this_task::sleep_for(1h)) == "a time");
    CHECK(what_for(loop, std::move(ends).async_join()) == "the end of task 'ends'");
    CHECK(what_for(loop, group.async_join()) == "the end of a group ");
    CHECK(what_for(loop, set.async_join_next()) == "join_set ");
    never.notify_all();
    loop.run();
    test::team threads(2, [&](int i) {
        if (i == 0) {
            bide::notify::listener(never).wait();
        } else {
            static_cast<void>(bide::select(bide::on_recv(empty)));
        }
    });
    CHECK(is_dumped("bide: 2 waits"));
    CHECK(is_dumped(" waits for notify 0x"));
    CHECK(is_dumped(" waits for a select, for "));
    never.notify_all();
    empty.close();
    threads.join();
    table.unlock();
    read.unlock_shared();
    read.unlock_upgradable();
}

#if BIDE_TESTS_CAN_DIE && BIDE_EXCEPTIONS

namespace {

// Its post() does not return.
struct stuck_executor {
    std::atomic<bool> entered{false};
    void post(bide::waker) noexcept {
        entered = true;
        std::this_thread::sleep_for(1h);
    }
};

test::held_on<stuck_executor> take_on(stuck_executor&, bide::semaphore& s) {
    const auto got = co_await s.async_acquire();
}
test::held take(bide::semaphore& s, stuck_executor* then = nullptr) {
    const auto got = co_await s.async_acquire();
    if (then != nullptr) {
        then->post({});
    }
}

// Destroys the victim when the release of another thread is stuck.
template <class Victim>
void destroy_beside_release(stuck_executor& e, semaphore& s, Victim victim) {
    victim.start();
    std::thread([&] { s.release(2); }).detach();
    test::eventually([&] { return e.entered.load(); });
    victim.destroy();
}

// Returns what a program says that locks it twice.
template <class Mutex> std::string locked_twice(Mutex& m, void (Mutex::*first)() = &Mutex::lock) {
    return test::dies([&] {
        (m.*first)();
        m.lock();
    });
}

} // namespace

TEST_CASE("deadlock_check: locking a mutex again terminates with its name") {
    const char* const by_holder = " is locked again by its holder, thread ";
    mutex accounts{"accounts"};
    bide::adaptive_mutex adaptive;
    bide::shared_mutex table{"table"};
    bide::biased_shared_mutex biased;
    CHECK(
        test::contains(locked_twice(accounts), std::string("bide: mutex 'accounts'") + by_holder));
    CHECK(test::contains(locked_twice(adaptive), by_holder));
    CHECK(test::contains(locked_twice(table, &bide::shared_mutex::lock_shared),
                         std::string("bide: shared_mutex 'table'") + by_holder));
    CHECK(test::contains(locked_twice(biased), by_holder));
    CHECK(test::contains(locked_twice(biased, &bide::biased_shared_mutex::lock_shared), by_holder));
    CHECK(test::contains(test::dies([&] {
                             auto twice = [](mutex& of) -> task<> {
                                 const auto once = co_await of.async_lock();
                                 const auto again = co_await of.async_lock();
                             }(accounts);
                             bide::sync_wait(std::move(twice));
                         }),
                         "bide: mutex 'accounts' is locked again by its holder, a task"));
}

TEST_CASE("deadlock_check: a coroutine that is destroyed while another thread's release resumes it "
          "terminates with a message") {
    const bool has_executor = GENERATE(true, false);
    const auto end = test::run_child([=] {
        bide::semaphore s(0);
        stuck_executor e;
        if (has_executor) {
            return destroy_beside_release(e, s, take_on(e, s));
        }
        auto first = take(s, &e);
        first.start();
        destroy_beside_release(e, s, take(s));
    });
    INFO(end.text());
    CHECK(end.has_aborted());
    CHECK(test::contains(end.said, "a coroutine was destroyed while a release on another thread"));
}

TEST_CASE("deadlock_check: without a handler, a deadlock terminates with its report") {
    CHECK(test::contains(test::dies([] {
                             mutex a{"a"};
                             mutex b{"b"};
                             test::rendezvous both(2);
                             test::run_threads(2, [&](int i) {
                                 std::scoped_lock mine(i == 0 ? a : b);
                                 both.meet();
                                 std::scoped_lock other(i == 0 ? b : a);
                             });
                         }),
                         "bide: deadlock\n  thread "));
}

#endif
