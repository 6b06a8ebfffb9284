// Stores that hang: a call with a time limit returns in that time, and its entry is taken back when
// the store works again. Most tests need no clock: the store hangs until the test releases it, so a
// call that has returned before did not wait for it.

#include <bide/durable/detail/acquisition.hpp>
#include <bide/durable/locks.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/slots/memory.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>

#include <support/children.hpp>
#include <support/coroutines.hpp>
#include <support/durable_locks.hpp>
#include <support/unhurried.hpp>

#include <algorithm>
#include <mutex>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace bide;
using namespace test;

namespace {

// Stores only by update_locked().
class updating_slot : public valved_slot {
public:
    using valved_slot::valved_slot;
    cas_result compare_exchange(slot_version, std::string_view) override {
        return {cas_status::conflict, 0, {}, {}};
    }
    cas_result update_locked(const slot_update& update) override {
        valve_->pass(place::update_locked);
        const slot_version before = of_.load()->version;
        const cas_result tried = of_.update_locked(update);
        if (tried.version != before) {
            valve_->stored();
        }
        return tried;
    }
};

// A store of this machine.
class local_slot : public valved_slot {
public:
    static constexpr slot_guarantees guarantees = memory_slot::guarantees;
    using valved_slot::valved_slot;
};

// A slot of a store that all slots share; renewals do not hang.
class shared_slot : public valved_slot {
public:
    shared_slot(memory_slot of, std::string store, std::shared_ptr<valve> calls,
                std::shared_ptr<valve> renewals)
        : valved_slot(std::move(of), std::move(calls)), store_(std::move(store)),
          renewals_(std::move(renewals)) {}
    std::string store() const override { return store_; }
    std::unique_ptr<slot> for_renewals() const override {
        return std::make_unique<shared_slot>(of_, store_, renewals_, renewals_);
    }

private:
    std::string store_;
    std::shared_ptr<valve> renewals_;
};

// A lease so long that no entry expires while a test waits for it to be taken back.
durable_options with_long_lease() {
    durable_options o{.lease = std::chrono::hours(1)};
    return o;
}

// A store that hangs, a lock in it, and a second access to the same record.
struct bench {
    explicit bench(place where = place::load, durable_options o = with_long_lease())
        : hangs(where), lock(make(where), 1, o), seen(memory) {}
    bench(const bench&) = delete;
    bench& operator=(const bench&) = delete;
    ~bench() { v->let_go(); }

    slot_ref make(place where) {
        if (where == place::update_locked) {
            return updating_slot(memory, v);
        }
        return valved_slot(memory, v);
    }
    void hang() { v->hang_in(hangs); }

    // No call was released: the call that is under way still hangs.
    bool still_hangs() const { return v->hangs() == hangs && v->writes() == writes_before; }

    std::size_t holders() { return test::holding(seen); }
    std::size_t waiters() { return test::waiting(seen); }

    const place hangs;
    const memory_slot memory;
    const std::shared_ptr<valve> v = std::make_shared<valve>();
    int writes_before = 0;
    durable_semaphore lock;
    durable_mutex seen;
};

bool all_are_for_stores(const std::set<std::string>& callers) {
    for (const std::string& name : callers) {
        const bool allowed = name.rfind("bide-store", 0) == 0 || name.rfind("bide-lease", 0) == 0;
        if (!allowed) {
            UNSCOPED_INFO("the store was called on a thread " << name);
            return false;
        }
    }
    return !callers.empty();
}

// An acquisition that the test resumes by hand.
using held_coroutine = test::held_on<test::manual_executor>;
held_coroutine acquire_in_hand(test::manual_executor&, durable_semaphore& s,
                               std::atomic<int>& done) {
    auto waiting = s.async_acquire();
    auto got = co_await std::move(waiting);
    done = got ? 1 : -1;
}

std::string this_thread_name() {
    char name[16] = "";
    ::pthread_getname_np(::pthread_self(), name, sizeof name);
    return name;
}

test::detached use_once(durable_semaphore& s, std::set<std::string>& resumed_on,
                        std::atomic<int>& done) {
    auto waiting = s.async_acquire();
    auto got = co_await std::move(waiting);
    resumed_on.insert(this_thread_name());
    {
        auto renewing = got->async_renew();
        const auto renewed = co_await std::move(renewing);
        resumed_on.insert(this_thread_name());
        const auto mine = std::move(*got); // its destructor calls the store
        static_cast<void>(renewed);        // a slow machine may lose it
        done = 1;
    }
    done = 2;
}

// How many stores have a queue for renewals at this moment.
std::size_t stores_with_renewals() {
    using queues = bide::detail::shared_by_key<std::string, bide::detail::job_queue>;
    auto& known = bide::detail::of_process<queues>();
    const std::lock_guard held(known.lock);
    return static_cast<std::size_t>(
        std::count_if(known.all.begin(), known.all.end(),
                      [](const auto& entry) { return !entry.second.expired(); }));
}

} // namespace

TEST_CASE("hung_store: a call with a time limit returns while the store hangs, and its entry is "
          "taken back",
          "[promise.durable-time-limit]") {
    for (const place where : {place::load, place::compare_exchange, place::update_locked}) {
        const auto each = [&](const char* what, auto call) {
            CAPTURE(what, static_cast<int>(where));
            REQUIRE(test::in_some_time(20ms, [&](std::chrono::milliseconds time) {
                durable_options o = with_long_lease();
                o.attempt_limit = time;
                bench b(where, o);
                b.hang();
                call(b, time);
                REQUIRE(b.still_hangs());
                if (b.v->stuck() == 0) {
                    return false; // its time was up before the store was called
                }
                REQUIRE(b.v->stuck() == 1);
                b.v->let_go();
                // The call that hung was granted, and was taken back.
                REQUIRE(test::eventually([&] { return b.v->writes() >= 2; }));
                REQUIRE(b.holders() == 0);
                REQUIRE(b.waiters() == 0);
                REQUIRE(b.lock.acquire(acquire_request()).has_value());
                return true;
            }));
        };
        each("acquire with a timeout", [](bench& b, std::chrono::milliseconds time) {
            REQUIRE(b.lock.acquire(within(time)).error() == durable_errc::no_answer);
        });
        each("try_acquire", [](bench& b, std::chrono::milliseconds) {
            REQUIRE(b.lock.try_acquire().error() == durable_errc::no_answer);
        });
        each("async_acquire with a timeout", [](bench& b, std::chrono::milliseconds time) {
            REQUIRE(sync_wait(b.lock.async_acquire(within(time))).error() ==
                    durable_errc::no_answer);
        });
        for (const test::giving_up how : test::ways_to_give_up) {
            each("a stop or a cancellation", [&](bench& b, std::chrono::milliseconds) {
                const auto hangs = [&] { test::eventually([&] { return b.v->stuck() == 1; }); };
                REQUIRE(test::error_of_giving_up(how, b.lock, hangs) == errc::stopped);
            });
        }
        each("a destroyed async_acquire", [](bench& b, std::chrono::milliseconds) {
            std::atomic<int> done{0};
            test::manual_executor hand;
            auto coroutine = acquire_in_hand(hand, b.lock, done);
            coroutine.start();
            test::eventually([&] { return b.v->stuck() == 1; });
            coroutine.destroy();
            REQUIRE(done == 0);
        });
    }
}

TEST_CASE("hung_store: a call behind one that hangs returns within its own time") {
    bench b;
    b.hang();
    REQUIRE(b.lock.acquire(within(10ms)).error() == durable_errc::no_answer);
    REQUIRE(b.lock.acquire(within(10ms)).error() == durable_errc::no_answer);
    REQUIRE(b.lock.try_acquire().error() == durable_errc::no_answer);
    REQUIRE(sync_wait(b.lock.async_acquire(within(10ms))).error() == durable_errc::no_answer);
    REQUIRE(b.still_hangs());
}

TEST_CASE(
    "hung_store: on a store of this machine a free lock is acquired however long that takes") {
    const auto v = std::make_shared<valve>();
    const memory_slot memory;
    durable_options o = with_long_lease();
    o.attempt_limit = 1ms;
    durable_mutex lock(local_slot(memory, v), o);
    durable_mutex other(memory, test::unhurried(o));
    for (const place where : {place::load, place::compare_exchange}) {
        const auto slowly = [&](auto call) {
            v->hang_in(where);
            std::thread disk([&] {
                test::eventually([&] { return v->stuck() == 1; });
                std::this_thread::sleep_for(20ms); // longer than attempt_limit
                v->let_go();
            });
            const bool is_acquired = call().has_value();
            disk.join();
            REQUIRE(test::eventually([&] { return test::holding(other) == 0; }));
            return is_acquired;
        };
        REQUIRE(slowly([&] { return lock.try_acquire(); }));
        REQUIRE(slowly([&] { return lock.acquire(within(1ms)); }));
        REQUIRE(slowly([&] { return sync_wait(lock.async_acquire(within(0ns))); }));
    }
    const auto held = other.acquire();
    REQUIRE(lock.try_acquire().error() == errc::timeout);
    REQUIRE(lock.acquire(within(1ms)).error() == errc::timeout);
}

TEST_CASE("hung_store: a store of this machine that does not answer is not a lock that is held") {
    const auto v = std::make_shared<valve>();
    durable_options o = with_long_lease();
    o.attempt_limit = 1ms;
    o.retry_time = 20ms;
    durable_mutex lock(local_slot(memory_slot(), v), o);
    v->hang_in(place::load);
    REQUIRE(lock.try_acquire().error() == durable_errc::no_answer);
    v->let_go();
    v->fails = true;
    REQUIRE(lock.acquire(within(1ms)).error() == std::errc::io_error);
}

TEST_CASE("hung_store: a waiter that gives up while the store hangs leaves no place in the queue",
          "[promise.durable-time-limit]") {
    for (const test::giving_up how : test::ways_to_give_up) {
        bench b;
        durable_mutex other(b.memory);
        auto held = other.acquire();
        const auto waits = [&] {
            CHECK(test::eventually([&] { return b.waiters() == 1; }));
            b.hang();
        };
        REQUIRE(test::error_of_giving_up(how, b.lock, waits) == errc::stopped);
        REQUIRE(b.waiters() == 1);
        b.v->let_go();
        REQUIRE(test::eventually([&] { return b.waiters() == 0; }));
        REQUIRE(held->release().has_value());
        REQUIRE(other.acquire().has_value());
    }
}

TEST_CASE("hung_store: a coroutine that is destroyed while it waits leaves no place in the queue") {
    bench b;
    durable_mutex other(b.memory);
    auto held = other.acquire();
    std::atomic<int> done{0};
    test::manual_executor hand;
    auto coroutine = acquire_in_hand(hand, b.lock, done);
    coroutine.start();
    SECTION("during a try, or before its end is known") {}
    SECTION("between two tries") {
        REQUIRE(test::eventually([&] { return hand.run_one(); }));
    }
    REQUIRE(test::eventually([&] { return b.waiters() == 1; }));
    coroutine.destroy();
    REQUIRE(test::eventually([&] { return b.waiters() == 0; }));
    REQUIRE(done == 0);
}

TEST_CASE(
    "hung_store: an entry that could not be taken back is taken back when the store works again",
    "[promise.durable-time-limit]") {
    bench b;
    durable_mutex other(b.memory);
    auto held = other.acquire();
    const auto waits = [&] {
        CHECK(test::eventually([&] { return b.waiters() == 1; }));
        b.v->fails = true;
    };
    REQUIRE(test::error_of_giving_up(test::giving_up::by_stop, b.lock, waits) == errc::stopped);
    REQUIRE(b.waiters() == 1);
    b.v->fails = false;
    REQUIRE(test::eventually([&] { return b.waiters() == 0; }));
}

TEST_CASE("hung_store: what a child of fork() could not take back is when the store works again") {
    enum { shown = 0, wrong = 1, too_late = 2 };
    const auto shown_in = [](std::chrono::milliseconds time) {
        bench b;
        const int status = test::in_child([&] {
            durable_mutex other(b.memory);
            auto held = other.acquire();
            std::atomic<bool> is_over{false};
            std::thread failing([&] {
                test::eventually([&] { return is_over || b.waiters() == 1; });
                b.v->fails = true;
            });
            const bool gave_up = !b.lock.acquire(within(time));
            is_over = true;
            failing.join();
            const bool left_one = b.waiters() == 1;
            b.v->fails = false;
            const bool is_gone = test::eventually([&] { return b.waiters() == 0; });
            return !gave_up || !is_gone ? wrong : left_one ? shown : too_late;
        });
        REQUIRE(status != wrong);
        return status == shown;
    };
    REQUIRE(test::in_some_time(20ms, shown_in));
}

TEST_CASE("hung_store: a thousand calls make no more threads than the cap, and each returns") {
    scheduler workers(test::workers(2));
    const auto takes_all_threads = [&](std::chrono::milliseconds time) {
        const auto v = std::make_shared<valve>();
        durable_options brief = with_long_lease();
        brief.retry_time = 20ms;
        const memory_slot works;
        durable_mutex of_another(works, brief);
        auto held = sync_wait(of_another.async_acquire());
        v->hang_in(place::load);

        std::vector<memory_slot> memories(1000);
        std::vector<std::unique_ptr<durable_mutex>> locks;
        std::vector<join_handle<result<durable_guard, std::error_code>>> calls;
        for (const memory_slot& memory : memories) {
            locks.push_back(
                std::make_unique<durable_mutex>(valved_slot(memory, v), with_long_lease()));
            calls.push_back(workers.spawn(locks.back()->async_acquire(within(time))));
        }
        int most = 0;
        for (std::size_t i = 0; i < calls.size(); ++i) {
            most = i % 50 == 0 ? std::max(most, threads_called("bide-store")) : most;
            REQUIRE(std::move(calls[i]).join().error() == durable_errc::no_answer);
        }
        REQUIRE(v->stuck() > 0);
        REQUIRE(v->stuck() <= 256);
        REQUIRE(most <= 256);
        const bool were_all = v->stuck() == 256; // or the time was up before others began
        if (were_all) {                          // it has no thread, and is not forgotten
            REQUIRE(held->release().error() == errc::timeout);
        }
        v->let_go();
        if (were_all) {
            durable_mutex another(works, test::unhurried());
            REQUIRE(test::eventually([&] { return another.try_acquire().has_value(); }));
        }
        for (const memory_slot& memory : memories) {
            durable_mutex seen(memory);
            REQUIRE(test::eventually([&] { return seen.try_acquire().has_value(); }));
        }
        return were_all;
    };
    REQUIRE(test::in_some_time(300ms, takes_all_threads));
}

TEST_CASE("hung_store: coroutines never call a store on a thread that resumes them",
          "[promise.durable-coroutines]") {
    std::set<std::string> callers;
    scheduler workers(test::workers(2));
    bench b(place::load, {.lease = 300ms});
    const auto use = [&]() -> task<bool> {
        auto waiting = b.lock.async_acquire();
        auto got = co_await std::move(waiting);
        auto renewing = got->async_renew();
        const auto renewed = co_await std::move(renewing);
        auto releasing = got->async_release();
        const auto released = co_await std::move(releasing);
        auto again = b.lock.async_acquire();
        {
            const auto dropped = co_await std::move(again);
        }
        co_return renewed&& released;
    };
    std::vector<join_handle<bool>> tasks;
    for (int i = 0; i < 4; ++i) {
        tasks.push_back(workers.spawn(use()));
    }
    for (auto& task : tasks) {
        static_cast<void>(std::move(task).join()); // a slow machine may lose one
    }
    std::atomic<int> done{0};
    std::set<std::string> resumed_on; // without an executor, and not on a store thread
    use_once(b.lock, resumed_on, done);
    REQUIRE(test::eventually([&] { return done == 2; }));
    for (const std::string& name : resumed_on) {
        CHECK(name.rfind("bide-store", 0) != 0);
    }
    done = 0;

    durable_mutex other(b.memory);
    auto held = other.acquire();
    REQUIRE(sync_wait(b.lock.async_acquire(within(20ms))).error() == errc::timeout);
    auto cancelled = workers.spawn(b.lock.async_acquire());
    REQUIRE(test::eventually([&] { return b.waiters() == 1; }));
    cancelled.cancel();
    REQUIRE(std::move(cancelled).join().error() == errc::stopped);
    test::manual_executor hand;
    auto coroutine = acquire_in_hand(hand, b.lock, done);
    coroutine.start();
    REQUIRE(test::eventually([&] { return hand.run_one(); }));
    coroutine.destroy();
    REQUIRE(test::eventually([&] { return b.waiters() == 0; }));

    // The same for renewals.
    REQUIRE(held->release().has_value());
    auto kept = sync_wait(b.lock.async_acquire());
    const std::stop_token lost = kept->lost();
    REQUIRE(test::eventually([&] {
        const auto now = other.inspect();
        return lost.stop_requested() ||
               (!(*now)->live.holders.empty() && (*now)->live.holders[0].renewals > 0);
    }));
    REQUIRE(all_are_for_stores(b.v->callers()));
}

TEST_CASE("hung_store: async_release and async_renew return what release and renew return") {
    durable_mutex m(memory_slot{});
    auto one = m.acquire();
    REQUIRE(sync_wait(one->async_renew()).has_value());
    REQUIRE(sync_wait(one->async_release()).has_value());
    auto two = m.acquire();
    {
        const auto dropped = two->async_release(); // never awaited
    }
    auto three = m.acquire();
    REQUIRE(m.admin("ops").force_release(three->fence(), "gone").value());
    REQUIRE(sync_wait(three->async_renew()).error() == durable_errc::lock_lost);
    REQUIRE(sync_wait(three->async_release()).error() == durable_errc::lock_lost);
}

TEST_CASE("hung_store: a release continues after its caller has left it") {
    durable_options o = with_long_lease();
    o.retry_time = 20ms;
    bench b(place::load, o);
    const auto free_again = [&] {
        REQUIRE(b.v->hangs() == place::load);
        REQUIRE(b.holders() == 1);
        b.v->let_go();
        REQUIRE(test::eventually([&] { return b.holders() == 0; }));
    };
    SECTION("async_release, by retry_time") {
        auto g = b.lock.acquire();
        b.hang();
        REQUIRE(sync_wait(g->async_release()).error() == errc::timeout);
        free_again();
    }
    SECTION("async_release, cancelled") {
        scheduler workers(test::workers(1));
        auto g = b.lock.acquire();
        b.hang();
        auto task = workers.spawn(g->async_release());
        test::eventually([&] { return b.v->stuck() == 1; });
        task.cancel();
        const auto released = std::move(task).join();
        REQUIRE_FALSE(released.has_value());
        free_again();
    }
    SECTION("the guard of a coroutine, destroyed") {
        {
            const auto g = sync_wait(b.lock.async_acquire());
            REQUIRE(g.has_value());
            b.hang();
        }
        free_again();
    }
}

TEST_CASE("hung_store: inspect() and administrators wait at most for retry_time") {
    bench b(place::anywhere, {.retry_time = 20ms});
    REQUIRE(b.lock.acquire().has_value());
    b.writes_before = b.v->writes();
    b.hang();
    REQUIRE(b.lock.inspect().error() == errc::timeout);
    auto ops = b.lock.admin("ops");
    const auto gone = ops.force_release(1, "hangs");
    REQUIRE_FALSE(gone.has_value());
    const auto repaired = ops.repair(100, "hangs");
    REQUIRE(repaired.error() == durable_errc::indeterminate);
    REQUIRE(b.still_hangs());
}

TEST_CASE("hung_store: a call behind one that hangs returns store_busy") {
    REQUIRE(test::in_some_time(20ms, [](std::chrono::milliseconds time) {
        durable_options o = test::unhurried(with_long_lease());
        o.retry_time = 20ms;
        bench b(place::load, o);
        b.hang();
        std::stop_source source;
        std::thread first([&] { static_cast<void>(b.lock.acquire(test::until_stop(source))); });
        const bool hangs = test::eventually([&] { return b.v->stuck() == 1; });
        durable_ticket t = b.lock.ticket();
        const std::error_code step = b.lock.try_acquire(t).error();
        const std::error_code look = b.lock.inspect().error();
        b.v->let_go();
        source.request_stop();
        first.join();
        REQUIRE(step == durable_errc::store_busy);
        REQUIRE(look == durable_errc::store_busy);
        return hangs && time > 0ms;
    }));
}

TEST_CASE("hung_store: a child of fork() can use the lock while a renewal of its parent hangs") {
    REQUIRE(test::in_some_time(300ms, [](std::chrono::milliseconds lease) {
        bench b(place::load, {.lease = lease});
        const auto held = b.lock.acquire();
        const std::stop_token lost = held->lost();
        b.hang();
        test::eventually([&] { return b.v->stuck() == 1 || lost.stop_requested(); });
        if (b.v->stuck() != 1) {
            return false; // lost before its renewal began
        }
        const int answer = test::in_child([&] {
            b.v->let_go();
            const bool is_seen = b.lock.inspect().has_value();
            auto mine = b.lock.acquire(); // once the lease of its parent's grant expired
            return is_seen && mine && mine->release() ? 0 : 1;
        });
        b.v->let_go();
        REQUIRE(answer == 0);
        return true;
    }));
}

TEST_CASE(
    "hung_store: locks that share a store renew on one thread, not delayed by their own calls",
    "[promise.durable-renewer]") {
    const std::size_t stores = stores_with_renewals();
    REQUIRE(test::in_some_time(3s, [&](std::chrono::milliseconds lease) {
        const auto calls = std::make_shared<valve>();
        const auto renewals = std::make_shared<valve>();
        const std::string name_of_store = "the store with " + std::to_string(lease.count());
        const std::size_t stores_before = stores_with_renewals();
        const int threads = threads_called("bide-lease");
        durable_options o{.lease = lease};
        std::vector<memory_slot> memories(20);
        std::vector<std::unique_ptr<durable_mutex>> locks;
        std::vector<durable_guard> held;
        for (const memory_slot& memory : memories) {
            locks.push_back(std::make_unique<durable_mutex>(
                shared_slot(memory, name_of_store, calls, renewals), o));
            auto got = locks.back()->acquire();
            held.push_back(std::move(*got));
        }
        REQUIRE(stores_with_renewals() <= stores_before + 1);
        REQUIRE(stores_with_renewals() >= stores + 1);
        REQUIRE(threads_called("bide-lease") <= threads + 1);
        calls->hang_in(place::load);
        REQUIRE(test::in_some_time(1ms, [&](std::chrono::milliseconds time) {
            REQUIRE(locks[0]->acquire(within(time)).error() == durable_errc::no_answer);
            return calls->stuck() == 1; // it hangs in the lock's turn
        }));
        bool is_lost = false;
        for (std::size_t i = 0; i < memories.size(); ++i) {
            durable_mutex seen(memories[i], o);
            const std::stop_token lost = held[i].lost();
            REQUIRE(test::eventually([&] {
                const auto now = seen.inspect();
                return (*now)->live.holders.empty() || (*now)->live.holders[0].renewals > 0;
            }));
            is_lost = is_lost || lost.stop_requested();
        }
        REQUIRE(calls->stuck() == 1);
        for (const std::string& name : renewals->callers()) {
            REQUIRE(name.rfind("bide-lease", 0) == 0);
        }
        calls->let_go();
        return !is_lost;
    }));
    REQUIRE(test::eventually([&] { // its thread stays a while
        std::this_thread::sleep_for(10ms);
        return stores_with_renewals() == stores;
    }));
}

TEST_CASE("hung_store: the process can end while a read or a renewal hangs") {
    const pid_t child = ::fork();
    if (child == 0) {
        const auto v = std::make_shared<valve>();
        durable_options o{.lease = 1s};
        durable_mutex m(valved_slot(memory_slot(), v), o);
        durable_mutex other(valved_slot(memory_slot(), v), o);
        auto* const kept = new auto(m.acquire()); // its destructor would wait
        v->hang_in(place::anywhere);
        const bool right =
            kept->has_value() && other.acquire(within(10ms)).error() == durable_errc::no_answer;
        // A slow machine may lose it before its renewal begins.
        test::eventually([&] { return v->stuck() == 2 || !(*kept)->is_held(); });
        std::exit(right ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 0);
}
