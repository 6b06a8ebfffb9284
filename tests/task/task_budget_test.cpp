
#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>
#include <bide/sched/report.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/latch.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/task/compose.hpp>
#include <support/coroutines.hpp>
#include <support/scheduling.hpp>

// Tasks whose operations all complete immediately. When their budget is spent, they yield, and
// learn of a cancellation.

using bide::join_handle;
using bide::scheduler;
using bide::stopped_error;
using bide::sync_wait;
using bide::task;
using bide::when_all;
using bide::when_any;
using bide::this_task::is_cancelled;
using bide::this_task::shield;
using test::with;

namespace {

// Operations that are always ready, and counts of their uses.
struct supplies {
    bide::semaphore permits{3};
    bide::mutex lock;
    bide::channel<int> numbers{4};
    bide::event set{true};
    bide::latch open{0};
    std::atomic<int> rounds{0};
    std::atomic<bool> is_wrong{false};
};

template <auto make> task<> repeats(supplies& of) {
    for (;;) {
        static_cast<void>(co_await make(of));
        ++of.rounds;
    }
}
template <auto make> task<> repeats_until_error(supplies& of) {
    for (;;) {
        const auto got = co_await make(of);
        if (!got) {
            break;
        }
        ++of.rounds;
    }
}
task<> sends_and_receives(supplies& of) {
    for (;;) {
        const auto sent = co_await of.numbers.async_send(1);
        if (!sent) {
            break;
        }
        const auto got = co_await of.numbers.async_recv().as_result();
        if (!got) {
            const auto last = of.numbers.try_recv();
            of.is_wrong = !last || *last != 1;
            break;
        }
        ++of.rounds;
    }
}
task<> joins_an_empty_group(supplies& of) {
    bide::task_group none(scheduler::shared()); // also on a thread that is no worker
    for (;;) {
        co_await none.async_join();
        ++of.rounds;
    }
}
task<> no_wait() { co_return; }
task<> acquires_once(supplies& of) { const auto permit = co_await of.permits.async_acquire(); }

using loop = task<> (*)(supplies&);
constexpr loop acquires = repeats<[](supplies& of) { return of.permits.async_acquire(); }>;
constexpr loop acquires_by_result =
    repeats_until_error<[](supplies& of) { return of.permits.async_acquire().as_result(); }>;
constexpr loop waits_for_event = repeats<[](supplies& of) { return of.set.async_wait(); }>;
constexpr loop selects = repeats<[](supplies& of) {
    return bide::async_select(bide::on_acquire(of.permits), bide::on_event(of.set));
}>;
task<> acquires_in_a_child(supplies& of) { co_await acquires(of); }

constexpr loop all_loops[] = {
    acquires,
    acquires_by_result,
    waits_for_event,
    selects,
    sends_and_receives,
    joins_an_empty_group,
    acquires_in_a_child,
    repeats<[](supplies& of) { return of.lock.async_lock(); }>,
    repeats_until_error<[](supplies& of) { return of.open.async_wait().as_result(); }>,
    repeats_until_error<[](supplies& of) {
        return bide::async_select_biased(bide::on_recv(of.numbers), bide::on_acquire(of.permits))
            .as_result();
    }>,
    repeats<[](supplies&) { return bide::this_task::sleep_for(0s); }>,
    repeats<[](supplies& of) { return when_all(acquires_once(of), acquires_once(of)); }>,
    repeats<[](supplies&) { return when_all(no_wait(), no_wait()); }>,
    repeats<[](supplies&) { return when_any(no_wait(), no_wait()); }>,
    repeats_until_error<[](supplies& of) { return of.permits.async_acquire().with_timeout(1h); }>,
};

void nothing_is_missing(supplies& of) {
    CHECK(of.permits.available() == 3);
    CHECK(of.permits.waiters() == 0);
    CHECK(of.lock.try_lock());
    of.lock.unlock();
    CHECK(of.numbers.size() == 0);
    CHECK_FALSE(of.is_wrong);
}

// Returns "stopped", or "" if the task ended by itself.
std::string end_of(join_handle<> h) {
    try {
        std::move(h).join();
    } catch (const stopped_error&) {
        return "stopped";
    }
    return "";
}

// Returns true when the loop has run more than 500 rounds.
bool goes_on(supplies& of) {
    return test::eventually([&of] { return of.rounds > 500; });
}

task<std::string> acquires_shielded(supplies& of, const std::atomic<bool>& cancelled) {
    std::string seen;
    {
        const shield on;
        of.rounds = 1;
        while (!cancelled) {
            co_await bide::this_task::yield();
        }
        for (int i = 0; i < 1'000; ++i) {
            const auto permit = co_await of.permits.async_acquire().as_result();
            if (!permit) {
                seen += "-";
            }
        }
        seen += "g";
    }
    try {
        co_await acquires(of);
    } catch (const stopped_error&) {
        seen += "s";
    }
    co_return seen;
}

// A coroutine that acquires, and is no part of the task that starts it.
test::detached acquires_apart(supplies& of, int times, std::atomic<int>& granted) {
    for (int i = 0; i < times; ++i) {
        const auto permit = co_await of.permits.async_acquire().as_result();
        granted += permit ? 1 : 1'000'000;
    }
}
task<int> acquires_so_often(supplies& of, int times) {
    int granted = 0;
    for (int i = 0; i < times; ++i) {
        const auto permit = co_await of.permits.async_acquire().as_result();
        granted += permit ? 1 : 1'000'000;
    }
    co_return granted;
}

task<int> endless(supplies& of, const loop l) {
    co_await l(of);
    co_return 0;
}
task<int> number(int n) { co_return n; }
task<int> after_rounds(supplies& of, int rounds) {
    while (of.rounds < rounds) {
        co_await bide::this_task::yield();
    }
    co_return 7;
}

test::held race_without_executor(supplies& of, const loop l, std::optional<int>& out) {
    auto got = co_await when_any(endless(of, l), after_rounds(of, 300));
    out = std::get<1>(got);
}
task<int> acquires_elsewhere(supplies& of, test::thread_executor& elsewhere) {
    co_await bide::this_task::yield().resume_on(elsewhere);
    co_await acquires(of);
    co_return 0;
}
test::detached race_elsewhere(supplies& of, test::thread_executor& elsewhere,
                              std::atomic<int>& out) {
    auto got = co_await when_any(acquires_elsewhere(of, elsewhere), after_rounds(of, 300));
    out = std::get<1>(got);
}

} // namespace

TEST_CASE("cancel: ends a task whose operations are all ready, and loses no permit or item",
          "[promise.cancel-ends-wait]") {
    const unsigned workers = GENERATE(1u, 2u);
    const std::size_t which = GENERATE(range(std::size_t{0}, std::size(all_loops)));
    CAPTURE(workers, which);
    supplies of;
    scheduler s(with(workers, false));
    auto h = s.spawn(all_loops[which](of));
    REQUIRE(goes_on(of));
    of.rounds = 0;
    CHECK(h.cancel());
    end_of(std::move(h));
    nothing_is_missing(of);
}

TEST_CASE("shield: a task whose operations are all ready is stopped after its shield ends") {
    supplies of;
    std::atomic<bool> cancelled{false};
    scheduler s(with(1, false));
    auto h = s.spawn(acquires_shielded(of, cancelled));
    REQUIRE(test::eventually([&] { return of.rounds == 1; }));
    CHECK(h.cancel());
    cancelled = true;
    CHECK(std::move(h).join() == "gs");
    nothing_is_missing(of);
}

TEST_CASE("cancel: stops neither a coroutine outside the task nor a task in its sync_wait") {
    supplies of;
    std::atomic<int> apart{0};
    std::atomic<bool> cancelled{false};
    scheduler s(with(1, false));
    auto h = s.spawn([&]() -> task<int> {
        of.rounds = 1;
        test::spin_until(cancelled);
        acquires_apart(of, 1'000, apart);
        co_return sync_wait(acquires_so_often(of, 1'000));
    });
    REQUIRE(test::eventually([&] { return of.rounds == 1; }));
    CHECK(h.cancel());
    cancelled = true;
    CHECK(std::move(h).join() == 1'000);
    CHECK(test::eventually([&] { return apart == 1'000; }));
    nothing_is_missing(of);
}

TEST_CASE("scheduler: a task yields also if another coroutine has spent its budget") {
    supplies of;
    std::atomic<int> apart{0};
    std::atomic<bool> over{false};
    scheduler s(with(1, false));
    auto busy = s.spawn([&]() -> task<> {
        acquires_apart(of, 200, apart);
        while (!over) {
            const auto permit = co_await of.permits.async_acquire();
        }
    });
    s.spawn([&] { over = true; }).join();
    std::move(busy).join();
    CHECK(test::eventually([&] { return apart == 200; }));
    nothing_is_missing(of);
}

TEST_CASE("scheduler: a task that yields after many operations keeps no lock meanwhile",
          "[promise.yield-holds-nothing]") {
    supplies of;
    int looks = 0;
    int locked = 0;
    scheduler s(with(1, false));
    s.spawn([&]() -> task<> {
         bool over = false;
         auto busy = s.spawn([&]() -> task<> {
             for (int i = 0; i < 1'000; ++i) {
                 const auto guarded = co_await of.lock.async_lock();
             }
             over = true;
         });
         while (!over) { // runs only while the other task yields
             ++looks;
             locked += std::unique_lock(of.lock, std::try_to_lock) ? 0 : 1;
             co_await bide::this_task::yield();
         }
         co_await std::move(busy).async_join();
     }).join();
    CHECK(looks > 3);
    CHECK(locked == 0);
}

TEST_CASE("scheduler: a wait that begins after a spent budget has its time-out there") {
    supplies of;
    bide::semaphore never(0);
    const auto waits = [&](std::chrono::milliseconds rest) -> task<> {
        for (int ready = 120; ready < 136; ++ready) {
            for (int i = 0; i < ready; ++i) {
                const auto permit = co_await of.permits.async_acquire();
            }
            const auto none = co_await never.async_acquire().with_timeout(rest);
            of.rounds += none ? 1 : 0;
        }
    };
    // A time that has passed before its wait begins needs no timer.
    CHECK(test::in_some_time(1ms, [&](auto rest) {
        scheduler s(with(1, false));
        s.spawn(waits(rest)).join();
        s.shutdown(); // all are counted
        return stats_of(s).timers_fired == 16;
    }));
    CHECK(of.rounds == 0);
}

TEST_CASE("when_any: a loser whose operations are all ready ends, on a scheduler or without",
          "[promise.when-ends-after-children]") {
    const bool pooled = GENERATE(true, false);
    const std::size_t which = GENERATE(range(std::size_t{0}, std::size(all_loops)));
    CAPTURE(pooled, which);
    supplies of;
    std::optional<scheduler> pool;
    if (pooled) {
        pool.emplace(with(1, false));
    }
    for (const bool first : {true, false}) {
        auto race = first ? when_any(endless(of, all_loops[which]), number(5))
                          : when_any(number(5), endless(of, all_loops[which]));
        const auto got = pooled ? sync_wait(*pool, std::move(race)) : sync_wait(std::move(race));
        CHECK(got.index() == (first ? 1 : 0));
    }
    auto late = when_any(endless(of, all_loops[which]), after_rounds(of, 300));
    const auto got = pooled ? sync_wait(*pool, std::move(late)) : sync_wait(std::move(late));
    CHECK(got.index() == 1);
    nothing_is_missing(of);
}

TEST_CASE("when_any: children without executor take turns, and a loser ends") {
    const std::size_t which = GENERATE(range(std::size_t{0}, std::size(all_loops)));
    CAPTURE(which);
    supplies of;
    std::optional<int> out;
    test::held h = race_without_executor(of, all_loops[which], out);
    h.start();
    REQUIRE(h.done());
    CHECK(out == 7);
    nothing_is_missing(of);
}

TEST_CASE("when_any: in a task that blocks in sync_wait, the children take turns") {
    supplies of;
    scheduler s(with(1, false));
    CHECK(s.spawn([&] {
               const auto race = sync_wait(when_any(endless(of, acquires), after_rounds(of, 300)));
               return race.index();
           }).join() == 1);
    nothing_is_missing(of);
}

TEST_CASE("when_any: a loser without executor ends after it has changed its thread") {
    supplies of;
    std::atomic<int> out{0};
    {
        test::thread_executor elsewhere;
        race_elsewhere(of, elsewhere, out);
        REQUIRE(test::eventually([&] { return out == 7; }));
    }
    nothing_is_missing(of);
}
