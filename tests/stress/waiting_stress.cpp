// Events, latches, barriers, notifications, conditions and queues: no waiter is left behind, none comes
// through early, and one that came through may destroy what it waited for.

#include <bide/core/parker.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/barrier.hpp>
#include <bide/sync/condition_variable.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/notify.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <support/sched.hpp>

using namespace bide;
using test::jittery;
using test::native;
using test::portable;

namespace {

template <class Waitable> task<bool> awaiting(Waitable& of, microseconds rest) {
    if (rest.count() == 0) {
        co_await of.async_wait();
        co_return true;
    }
    const auto got = co_await of.async_wait().with_timeout(rest);
    co_return got.has_value();
}

// Waits in one of the ways there are. Returns false if the wait ended early.
template <class Waitable> bool wait_once(Waitable& of, test::jitter& chance) {
    switch (chance.below(5)) {
    case 0: return sync_wait(awaiting(of, microseconds(0)));
    case 1: return sync_wait(awaiting(of, microseconds(1 + chance.below(50))));
    case 2: return of.wait_for(microseconds(chance.below(50)));
    case 3: {
        std::stop_source stop;
        if (chance.below(2) == 0) {
            stop.request_stop();
        }
        return of.wait(stop.get_token()).has_value();
    }
    default: of.wait(); return true;
    }
}
template <class Waitable> void pass(Waitable& of, test::jitter& chance) {
    while (!wait_once(of, chance)) {
    }
}

template <class P> struct opens_event {
    static constexpr int openers = 1;
    basic_event<P> it;

    void open() { it.set(); }
    void wait(test::jitter& chance) { pass(it, chance); }
    bool close() {
        it.reset();
        return true;
    }
};
template <class P> struct opens_latch {
    static constexpr int openers = 3;
    std::optional<basic_latch<P>> it{std::in_place, openers};

    void open() { it->count_down(); }
    void wait(test::jitter& chance) { pass(*it, chance); }
    bool close() {
        it.emplace(openers);
        return true;
    }
};
template <class P> struct opens_event_count {
    static constexpr int openers = 1;
    basic_event_count<P> it;
    std::atomic<bool> is_open{false};

    void open() {
        is_open.store(true, std::memory_order_release);
        it.notify_all();
    }
    void wait(test::jitter&) {
        while (!is_open.load(std::memory_order_acquire)) {
            const auto epoch = it.prepare();
            if (is_open.load(std::memory_order_acquire)) {
                it.cancel();
                break;
            }
            it.wait(epoch);
        }
    }
    bool close() {
        is_open = false;
        return true;
    }
};
// For one waiter. No token may be left.
template <class P> struct opens_parker {
    static constexpr int openers = 1;
    basic_parker<P> it;

    void open() { it.unpark(); }
    void wait(test::jitter& chance) {
        if (chance.below(4) == 0) {
            it.park();
        } else {
            while (!it.park_for(chance.rest(17))) {
            }
        }
    }
    bool close() { return !it.park_for(std::chrono::nanoseconds(0)); }
};

template <class Gate> void openings(int waiters) {
    CAPTURE(waiters);
    constexpr int openers = Gate::openers;
    const test::stress_time time;
    Gate gate;
    test::rendezvous round(openers + waiters);
    std::atomic<int> opened{0};
    std::atomic<bool> over{false};
    std::atomic<int> wrong{0};
    test::players(openers + waiters, [&](int me, test::jitter& chance) {
        for (;;) {
            round.meet();
            if (over) {
                return;
            }
            chance();
            if (me < openers) {
                ++opened;
                gate.open();
            } else {
                gate.wait(chance);
                wrong += opened == openers ? 0 : 1;
            }
            round.meet();
            if (me == 0) {
                opened = 0;
                wrong += gate.close() ? 0 : 1;
                over = !time.is_left();
            }
        }
    });
    CHECK(wrong == 0);
}

// For one consumer, which resets.
template <class P> struct by_event {
    static constexpr auto order = std::memory_order_relaxed;
    basic_event<P> it;

    void tell(test::jitter&) { it.set(); }
    void tell_all() { it.set(); }

    struct look {
        basic_event<P>& of;
        explicit look(by_event& by) : of(by.it) { of.reset(); }
        void wait(test::jitter& chance) { chance.below(64) == 0 ? pass(of, chance) : of.wait(); }
        void cancel() {}
    };
};
template <class P> struct by_notify {
    static constexpr auto order = std::memory_order_relaxed;
    basic_notify<P> it;

    void tell(test::jitter& chance) { chance.below(4) == 0 ? it.notify_all() : it.notify_one(); }
    void tell_all() { it.notify_all(); }

    struct look {
        typename basic_notify<P>::listener next;
        explicit look(by_notify& by) : next(by.it) {}
        void wait(test::jitter& chance) { wait_once(next, chance); }
        void cancel() {}
    };
};
template <class P> struct by_event_count {
    static constexpr auto order = std::memory_order_seq_cst;
    basic_event_count<P> it;

    void tell(test::jitter&) { it.notify_one(); }
    void tell_all() { it.notify_all(); }

    struct look {
        basic_event_count<P>& of;
        decltype(of.prepare()) epoch;
        explicit look(by_event_count& by) : of(by.it), epoch(of.prepare()) {}
        void wait(test::jitter& chance) {
            if (chance.below(4) == 0) {
                of.wait(epoch, deadline::after(microseconds(chance.below(50))));
                of.notify_one(); // what it may have used up
            } else {
                of.wait(epoch);
            }
        }
        void cancel() { of.cancel(); }
    };
};

// A producer waits after so many items until all are taken: a lost notification shows.
template <class Signal> void items(int producers, int consumers, std::uint64_t at_once) {
    CAPTURE(producers, consumers);
    constexpr auto order = Signal::order;
    const test::stress_time time;
    Signal signal;
    std::atomic<std::uint64_t> stored{0};
    std::atomic<std::uint64_t> taken{0};
    std::atomic<int> producing{producers};
    test::players(producers + consumers, [&](int i, test::jitter& chance) {
        if (i < producers) {
            std::uint64_t mine = 0;
            while (mine == 0 || mine % at_once != 0 || time.is_left()) {
                if (chance.below(2) == 0) {
                    signal.tell(chance); // so that the next one changes nothing, maybe
                }
                stored.fetch_add(1, order);
                signal.tell(chance);
                ++mine;
                while (mine % at_once == 0 && taken.load(order) < stored.load(order)) {
                    std::this_thread::yield();
                }
            }
            --producing;
            signal.tell_all();
            return;
        }
        for (bool over = false; !over;) {
            typename Signal::look next(signal);
            const bool last = producing == 0;
            bool took = false;
            std::uint64_t had = taken.load(order);
            while (had < stored.load(order) && !took) {
                took = taken.compare_exchange_weak(had, had + 1, order);
            }
            over = last && !took;
            if (took || over) {
                next.cancel();
            } else {
                next.wait(chance);
            }
        }
    });
    CHECK(stored == taken);
    CHECK(stored > 0);
}

struct lives_of_latch {
    static constexpr int releasers = 1;
    latch it{1};
    void wait(test::jitter& chance) { pass(it, chance); }
    void release() { it.count_down(); }
};
struct lives_of_barrier {
    static constexpr int releasers = 1;
    barrier<> it{2};
    void wait(test::jitter& chance) {
        chance.below(2) == 0 ? it.arrive_and_wait() : it.wait(it.arrive());
    }
    void release() { static_cast<void>(it.arrive()); }
};
struct lives_of_semaphore {
    static constexpr int releasers = 3;
    semaphore it{0};
    void wait(test::jitter&) { it.acquire(releasers); }
    void release() { it.release(); }
};
template <class P> struct lives_of_parker {
    static constexpr int releasers = 1;
    basic_parker<P> it;
    void wait(test::jitter&) { it.park(); }
    void release() { it.unpark(); }
};
template <class P> struct lives_of_ready_queue {
    static constexpr int releasers = 1;
    inline static runnable posted;
    basic_ready_queue<P> it;
    void wait(test::jitter&) {
        if (it.pop(deadline::never()) != &posted) {
            test::give_up(test::where(), "another runnable");
        }
    }
    void release() { it.post(posted); }
};

// A phase, to wait for after the arrival.
template <class Barrier> struct phase {
    Barrier& of;
    typename Barrier::arrival_token token = of.arrive();

    void wait() { of.wait(token); }
    auto wait(std::stop_token stop) { return of.wait(stop, token); }
    bool wait_for(microseconds rest) { return of.wait_for(token, rest); }
    auto async_wait() { return of.async_wait(token); }
};

template <class Mutex, class P> struct lock_of {
    using mutex = Mutex;
    using condition = basic_condition_variable<P>;
};
template <class P> using with_mutex = lock_of<basic_mutex<P>, P>;
template <class P> using with_adaptive_mutex = lock_of<basic_adaptive_mutex<P>, P>;
template <class P> using with_shared_mutex = lock_of<basic_shared_mutex<P>, P>;

// A wait of a condition variable for a condition.
template <class Kind, class IsReady> struct condition_wait {
    typename Kind::condition& changed;
    std::unique_lock<typename Kind::mutex>& lock;
    IsReady is_ready;

    void wait() { changed.wait(lock, is_ready); }
    auto wait(std::stop_token stop) { return changed.wait(lock, stop, is_ready); }
    bool wait_for(microseconds rest) { return changed.wait_for(lock, rest, is_ready); }
    auto async_wait() { return changed.async_wait(lock, is_ready); }
};

struct ball : runnable {
    std::size_t poster = 0;
    long number = 0;              // plain: the post publishes it
    std::atomic<bool> out{false}; // the runnable is in the queue
};

// Each poster has a few runnables and posts each again when it was popped. The owner pops with and
// without time-outs.
template <class P> void posters_and_owner(int posters) {
    constexpr std::size_t balls = 4;
    basic_ready_queue<P> queue;
    std::vector<std::deque<ball>> all(static_cast<std::size_t>(posters));
    std::vector<long> posted(all.size());
    std::vector<long> popped(all.size());
    std::atomic<int> posting{posters};
    long disorder = 0;
    runnable end;
    for (auto& mine : all) {
        mine.resize(balls);
    }
    test::players(posters + 1, [&](int me, test::jitter& chance) {
        if (me < posters) {
            const auto mine = static_cast<std::size_t>(me);
            for (const test::stress_time time; time.is_left();) {
                ball& b = all[mine][static_cast<std::size_t>(posted[mine]) % balls];
                while (b.out.load(std::memory_order_acquire)) {
                    chance();
                }
                b.poster = mine;
                b.number = posted[mine]++;
                b.out.store(true, std::memory_order_relaxed);
                queue.post(b);
                chance();
            }
            if (--posting == 0) {
                queue.post(end);
            }
            return;
        }
        for (runnable* r = nullptr; r != &end;) {
            const bool endless = chance.below(2) == 0;
            r = queue.pop(endless ? deadline::never() : deadline::after(chance.rest(15)));
            if (r != nullptr && r != &end) {
                auto& b = *static_cast<ball*>(r);
                disorder += b.number == popped[b.poster]++ ? 0 : 1;
                b.out.store(false, std::memory_order_release);
            }
        }
    });
    CHECK(disorder == 0);
    CHECK(popped == posted);
    CHECK(queue.pop(deadline::poll()) == nullptr);
}

} // namespace

TEMPLATE_TEST_CASE(
    "waiting: an event, a latch and an event count let all waiters through, none before", "",
    opens_event<native>, opens_event<portable>, opens_latch<native>, opens_latch<portable>,
    opens_event_count<native>, opens_event_count<portable>, opens_event_count<jittery>) {
    openings<TestType>(3);
}

TEMPLATE_TEST_CASE("waiting: one notification reaches one waiter that is about to sleep", "",
                   opens_event_count<native>, opens_event_count<jittery>, opens_parker<native>,
                   opens_parker<portable>, opens_parker<jittery>) {
    openings<TestType>(1);
    const test::on_one_processor pinned;
    openings<TestType>(1);
}

TEMPLATE_TEST_CASE("waiting: an item stored before set() is found by a reset, a look and a wait",
                   "", by_event<native>, by_event<portable>) {
    items<TestType>(1, 1, 1);
    items<TestType>(2, 1, 1);
}

TEMPLATE_TEST_CASE("waiting: consumers that listen, look and wait take every item at once", "",
                   by_notify<native>, by_notify<portable>, by_notify<jittery>,
                   by_event_count<native>, by_event_count<portable>, by_event_count<jittery>) {
    items<TestType>(2, 3, 8);
}

TEMPLATE_TEST_CASE("waiting: the same by many consumers, and on one processor", "",
                   by_event_count<native>, by_event_count<jittery>) {
    items<TestType>(1, 16, 64);
    const test::on_one_processor pinned;
    items<TestType>(1, 2, 64);
}

TEMPLATE_TEST_CASE("waiting: a thread that came through may destroy it before the releases return",
                   "", lives_of_latch, lives_of_barrier, lives_of_semaphore,
                   lives_of_parker<portable>, lives_of_parker<jittery>,
                   lives_of_ready_queue<portable>, lives_of_ready_queue<jittery>) {
    constexpr int releasers = TestType::releasers;
    std::array<std::atomic<TestType*>, releasers> of_round{};
    std::atomic<bool> over{false};
    std::uint64_t rounds = 0;
    test::players(releasers + 1, [&](int i, test::jitter& chance) {
        if (i == releasers) {
            for (const test::stress_time time; time.is_left(); ++rounds) {
                const auto mine = std::make_unique<TestType>(); // freed at once: for ASan to see
                for (auto& slot : of_round) {
                    slot = mine.get();
                }
                chance();
                mine->wait(chance);
            }
            over = true;
            return;
        }
        auto& slot = of_round[static_cast<std::size_t>(i)];
        while (!over) {
            if (TestType* const mine = slot.exchange(nullptr)) {
                chance();
                mine->release();
            }
        }
    });
    CHECK(rounds > 0);
}

TEMPLATE_TEST_CASE("barrier: each phase of a storm has one last arrival, and all come through",
                   "[promise.barrier-phases]", native, portable, jittery) {
    constexpr int size = 4;
    const test::stress_time time;
    std::uint64_t leaders = 0; // plain: the completion function and the waiters are ordered
    bool over = false;
    const auto complete = [&]() noexcept {
        ++leaders;
        over = !time.is_left();
    };
    barrier<decltype(complete), TestType> b(size, complete);
    std::array<std::uint64_t, size> phases{};
    std::atomic<int> wrong{0};
    const auto meets = [&]() -> task<> { co_await b.async_arrive_and_wait(); };
    test::players(size, [&](int i, test::jitter& chance) {
        std::uint64_t& mine = phases[static_cast<std::size_t>(i)];
        for (bool last = false; !last;) {
            switch (chance.below(4)) {
            case 0: sync_wait(meets()); break;
            case 1: b.arrive_and_wait(); break;
            default: {
                phase<decltype(b)> now{b};
                pass(now, chance);
            }
            }
            wrong += leaders != ++mine ? 1 : 0;
            last = over;
        }
    });
    CHECK(wrong == 0);
    CHECK(std::count(phases.begin(), phases.end(), leaders) == size);
}

TEST_CASE("barrier: tasks meet, and those that drop out are not waited for") {
    constexpr int size = 16;
    scheduler s({.num_workers = 2});
    test::rounds([&](std::uint32_t) {
        int phases = 0;
        const auto complete = [&phases]() noexcept { ++phases; };
        barrier<decltype(complete)> b(size, complete);
        std::vector<join_handle<int>> tasks;
        for (int i = 0; i < size; ++i) { // task i meets i times, then drops out
            tasks.push_back(s.spawn([](auto& at, const int& seen, int times) -> task<int> {
                int in_order = 0;
                for (int n = 1; n <= times; ++n) {
                    co_await at.async_arrive_and_wait();
                    in_order += seen == n ? 1 : 0;
                }
                at.arrive_and_drop();
                co_return in_order;
            }(b, phases, i)));
        }
        for (int i = 0; i < size; ++i) {
            REQUIRE(std::move(tasks[static_cast<std::size_t>(i)]).join() == i);
        }
        REQUIRE(phases == size);
    });
}

TEMPLATE_TEST_CASE(
    "notify: each notify_one() lets exactly one wait through while there are waiters", "", native,
    jittery) {
    constexpr int waiters = 3;
    constexpr int waits = 4 * waiters;
    test::rounds([&](std::uint32_t round) {
        basic_notify<TestType> n;
        std::atomic<int> through{0};
        std::atomic<int> sent{0};
        const auto comes_through = [&](test::jitter& chance) {
            if (chance.below(3) != 0) {
                return wait_once(n, chance);
            }
            typename basic_notify<TestType>::listener mine(n);
            chance();
            return chance.below(3) != 0 && wait_once(mine, chance);
        };
        const auto play = [&](int i, test::jitter& chance) {
            if (i < waiters) {
                for (int k = 0; k < waits / waiters; ++k) {
                    while (!comes_through(chance)) {
                    }
                    ++through;
                }
                return;
            }
            while (through < waits) { // one at a time, each used before the next
                ++sent;
                n.notify_one();
                while (through < sent) {
                    std::this_thread::yield();
                }
            }
        };
        test::players(waiters + 1, play, round);
        REQUIRE(through == waits);
        REQUIRE(sent == waits);
        REQUIRE_FALSE(n.try_wait());
    });
}

TEMPLATE_TEST_CASE("condition_variable: items pass through a small buffer, none lost or doubled",
                   "", with_mutex<native>, with_mutex<portable>, with_mutex<jittery>,
                   with_adaptive_mutex<native>, with_adaptive_mutex<jittery>,
                   with_shared_mutex<native>) {
    constexpr int capacity = 3;
    constexpr int pairs = 3;
    const test::stress_time time;
    typename TestType::mutex mutex;
    typename TestType::condition not_full;
    typename TestType::condition not_empty;
    int count = 0; // plain, as all of these: guarded by the mutex
    int producing = pairs;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    bool good = true;
    test::players(2 * pairs, [&](int i, test::jitter& chance) {
        // Waits, changes the count, and tells the other side.
        const auto turn = [&](auto& mine, auto& others, auto is_ready, auto change) {
            std::unique_lock lock(mutex);
            condition_wait<TestType, decltype(is_ready)> wait{mine, lock, is_ready};
            while (!wait_once(wait, chance)) {
                lock.unlock(); // a wait with a time-out of zero does not
                lock.lock();
            }
            good = good && lock.owns_lock() && is_ready();
            const bool goes_on = change();
            if (chance.below(2) == 0) {
                lock.unlock();
            }
            chance.below(8) == 0 ? others.notify_all() : others.notify_one();
            return goes_on;
        };
        const auto has_room = [&] { return count < capacity; };
        const auto has_item = [&] { return count > 0 || producing == 0; };
        if (i < pairs) {
            do {
                turn(not_full, not_empty, has_room, [&] {
                    ++sent;
                    return ++count > 0;
                });
            } while (time.is_left());
            const std::lock_guard lock(mutex);
            --producing;
            not_empty.notify_all();
        } else {
            const auto take = [&] {
                received += count > 0 ? 1 : 0;
                return count > 0 && count-- > 0;
            };
            while (turn(not_empty, not_full, has_item, take)) {
            }
        }
    });
    CHECK(good);
    CHECK(sent == received);
    CHECK(sent > 0);
    CHECK(mutex.try_lock());
    mutex.unlock();
}

TEMPLATE_TEST_CASE(
    "condition_variable: notified threads and stopped ones each get their turn, exactly", "",
    with_mutex<native>, with_mutex<jittery>, with_adaptive_mutex<native>) {
    test::rounds([](std::uint32_t round) {
        typename TestType::mutex mutex;
        typename TestType::condition changed;
        std::stop_source stop;
        int waiting = 0;
        int notified = 0;
        int stopped = 0;
        int told = 0;
        const auto play = [&](int i, test::jitter& chance) {
            if (i < 3) {
                std::unique_lock lock(mutex);
                ++waiting;
                const bool got = changed.wait(lock, stop.get_token()).has_value();
                ++(got ? notified : stopped);
            } else if (i == 3) {
                for (int n = 0; n < 2; ++n) {
                    chance();
                    const std::lock_guard lock(mutex);
                    if (waiting > told) {
                        ++told;
                        changed.notify_one();
                    }
                }
            } else {
                chance();
                stop.request_stop();
            }
        };
        test::players(5, play, round);
        REQUIRE(notified + stopped == 3);
        REQUIRE(notified <= told);
    });
}

TEMPLATE_TEST_CASE("ready_queue: the owner pops what each poster posts, in order", "", native,
                   portable, jittery) {
    posters_and_owner<TestType>(1);
    posters_and_owner<TestType>(4);
    const test::on_one_processor pinned;
    posters_and_owner<TestType>(2);
}
