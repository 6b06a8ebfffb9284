#include <bide/sched/report.hpp>
#include <bide/sched/scheduler_options.hpp>

#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/with_deadline.hpp>
#include <support/sched.hpp>

using namespace bide;
using bide::this_task::sleep_for;
using bide::this_task::yield;
using test::what_of;
using test::with;

namespace {

constexpr task_priority high = task_priority::high;
constexpr task_priority normal = task_priority::normal;
constexpr task_priority low = task_priority::low;

// Occupies a worker until open() was called.
class closed_road {
public:
    explicit closed_road(scheduler& on)
        : task_(on.spawn([this] {
              reached_ = true;
              return test::spin_until(open_);
          })) {
        REQUIRE(test::spin_until(reached_));
    }
    bool open() {
        open_ = true;
        return std::move(task_).join();
    }

private:
    std::atomic<bool> reached_{false};
    std::atomic<bool> open_{false};
    join_handle<bool> task_;
};

// The classes of what one worker has run, in order.
struct log_book {
    std::vector<task_priority> ran;

    std::ptrdiff_t count(std::size_t first, std::size_t last, task_priority of) const {
        const auto at = [this](std::size_t i) {
            return ran.begin() + static_cast<std::ptrdiff_t>(i);
        };
        return std::count(at(first), at(last), of);
    }
};

// Whether of any 16 runs before `last`, 12 are high, 3 normal and 1 low.
bool shares_turns(const log_book& book, std::size_t last) {
    for (std::size_t i = 0; i + 16 <= last; ++i) {
        if (book.count(i, i + 16, high) != 12 || book.count(i, i + 16, normal) != 3 ||
            book.count(i, i + 16, low) != 1) {
            return false;
        }
    }
    return true;
}

// Waits until all tasks have ended, and ends the scheduler.
void finish(scheduler& s) {
    while (stats_of(s).completed != stats_of(s).spawned) {
        std::this_thread::yield();
    }
    s.shutdown();
}

task<> take(semaphore& from) { static_cast<void>(co_await from.async_acquire()); }

task<> yields(log_book& book, task_priority mine, int times) {
    for (int i = 0; i < times; ++i) {
        book.ran.push_back(mine);
        co_await yield();
    }
}

// Counts how often its owner runs on another thread than at first, or beside another owner of it.
class one_thread {
public:
    void visit() {
        const int before = inside_++; // a data race, if two threads come
        wrong_ += before != 0 || (first_ && *first_ != std::this_thread::get_id()) ? 1 : 0;
        first_ = std::this_thread::get_id();
        ++visits_;
        --inside_;
    }
    int wrong() const { return wrong_; }
    int visits() const { return visits_; }
    std::optional<std::thread::id> id() const { return first_; }

private:
    int inside_ = 0, wrong_ = 0, visits_ = 0;
    std::optional<std::thread::id> first_;
};

struct visits_when_destroyed {
    explicit visits_when_destroyed(one_thread& of) noexcept : it(&of) {}
    visits_when_destroyed(visits_when_destroyed&& other) noexcept
        : it(std::exchange(other.it, nullptr)) {}
    ~visits_when_destroyed() {
        if (it != nullptr) {
            it->visit();
        }
    }
    one_thread* it;
};

task<> wander(one_thread& here, semaphore& some) {
    here.visit();
    co_await yield();
    here.visit();
    co_await sleep_for(100us);
    here.visit();
    static_cast<void>(co_await some.async_acquire().with_timeout(100us));
    here.visit();
}

// When the thread of worker 0 has been woken, spawns a task there before the worker looks for one.
struct spawns_when_woken final : trace_sink {
    std::atomic<bool> armed{false};
    std::function<void()> task;

    void ran(unsigned, const char*, task_tag, std::int64_t, std::int64_t) noexcept override {}
    void parked(unsigned worker, std::int64_t, std::int64_t) noexcept override {
        if (worker == 0 && armed.exchange(false)) {
            scheduler& s = *scheduler::current();
            s.spawn(task, {.worker = s.this_worker()}).detach();
        }
    }
    void stole(unsigned, unsigned, std::int64_t) noexcept override {}
};

} // namespace

TEST_CASE("priority: of any 16 tasks that a worker takes, 12 are high, 3 normal and 1 low",
          "[promise.priority-classes]") {
    scheduler s(with(1, false));
    log_book book;
    constexpr int each = 1'000;
    {
        closed_road road(s);
        for (int i = 0; i < each; ++i) {
            for (const task_priority p : {low, normal, high}) {
                s.spawn([&book, p] { book.ran.push_back(p); }, {.priority = p}).detach();
            }
        }
        REQUIRE(road.open());
    }
    s.shutdown();
    REQUIRE(book.ran.size() == 3 * each);
    // All three classes have tasks until the last high one was taken.
    const auto last_high = static_cast<std::size_t>(
        std::find(book.ran.rbegin(), book.ran.rend(), high).base() - book.ran.begin());
    CHECK(last_high >= 16 * (each / 12));
    CHECK(last_high <= 16 * (each / 12 + 1));
    CHECK(shares_turns(book, last_high));
    // From then on, normal tasks have the turns of high ones, until the last normal one was taken.
    const auto last_normal = static_cast<std::size_t>(
        std::find(book.ran.rbegin(), book.ran.rend(), normal).base() - book.ran.begin());
    bool shared = true;
    for (std::size_t i = last_high; i + 16 <= last_normal; ++i) {
        shared = shared && book.count(i, i + 16, low) == 1;
    }
    CHECK(shared);
}

TEST_CASE("priority: a task that was resumed is in its class again", "[promise.priority-classes]") {
    scheduler s(with(1, false));
    log_book book;
    constexpr int each = 320;
    {
        closed_road road(s);
        for (int i = 0; i < 3; ++i) { // more than one of each, so each class always has a task
            s.spawn(yields(book, low, each), {.priority = low}).detach();
            s.spawn(yields(book, normal, each)).detach();
            s.spawn(yields(book, high, each), {.priority = high}).detach();
        }
        REQUIRE(road.open());
    }
    finish(s);
    REQUIRE(book.ran.size() == 9 * each);
    CHECK(shares_turns(book, 3 * each));
}

TEST_CASE("priority: without stealing, a task waits for its turn where each worker finds it",
          "[promise.priority-classes]") {
    scheduler_options wanted = with(2, false);
    wanted.enable_stealing = false;
    std::atomic<bool> opens[2] = {};
    std::atomic<int> begun{0};
    scheduler s(std::move(wanted));
    const auto road = [&](unsigned i) {
        ++begun;
        return test::spin_until(opens[i]);
    };
    auto zero = s.spawn([&road] { return road(0); }, {.worker = 0});
    auto one = s.spawn([&road] { return road(1); }, {.worker = 1});
    REQUIRE(test::eventually([&begun] { return begun == 2; }));
    int ran = 0;
    int kept = 0;
    std::vector<join_handle<void>> all;
    for (int i = 0; i < 500; ++i) {
        all.push_back(s.spawn([&] { ++ran; }));
        for (int k = 0; k < 4; ++k) {
            // If worker 0 had taken a normal task and not run it, that task would wait for the end of this
            // one, even if worker 1 had nothing to do.
            all.push_back(s.spawn(
                [&] { kept += stats_of(s, 0).injected == static_cast<unsigned>(ran) ? 0 : 1; },
                {.priority = high}));
        }
    }
    opens[0] = true;
    test::join_all(all);
    opens[1] = true;
    CHECK((std::move(zero).join() && std::move(one).join()));
    CHECK(kept == 0);
}

TEST_CASE("priority: what a task awaits runs in its class, and what it spawns does not",
          "[promise.priority-classes]") {
    scheduler s(with(1, false));
    log_book book;
    const auto child = [&](task_priority as) -> task<> {
        co_await yield();
        book.ran.push_back(as);
    };
    const auto parent = [&]() -> task<> {
        auto spawned = s.spawn([&] { book.ran.push_back(normal); });
        co_await child(low);
        co_await when_all(child(low), child(low));
        co_await std::move(spawned).async_join();
    };
    {
        closed_road road(s);
        auto handle = s.spawn(parent, {.priority = low});
        s.spawn(yields(book, high, 400), {.priority = high}).detach();
        REQUIRE(road.open());
        std::move(handle).join();
    }
    s.shutdown();
    // The three children of low class have waited for turns of low tasks, at least one each. The
    // spawned task has had the next turn of normal ones.
    REQUIRE(book.count(0, book.ran.size(), low) == 3);
    const auto first_low = static_cast<std::size_t>(
        std::find(book.ran.begin(), book.ran.end(), low) - book.ran.begin());
    const auto first_normal = static_cast<std::size_t>(
        std::find(book.ran.begin(), book.ran.end(), normal) - book.ran.begin());
    CHECK(first_low >= 15 + 15);
    CHECK(first_normal <= 15 + 5);
}

TEST_CASE(
    "priority: sleeps, time-outs and cancellation work in each class, and with a timer_slack") {
    const task_priority p = GENERATE(high, normal, low);
    scheduler_options wanted = with(2, true);
    wanted.timer_slack = 1ms;
    semaphore none(0);
    const auto waits = [&](std::chrono::milliseconds rest) -> task<int> {
        co_await sleep_for(rest);
        const auto got = co_await none.async_acquire().with_timeout(rest);
        const auto late = co_await with_timeout(take(none), rest);
        co_return (got ? 10 : 1) + (late ? 20 : 2);
    };
    // Its scheduler fires them, as for any task. A time that has passed already needs no timer.
    CHECK(test::in_some_time(1ms, [&](auto rest) {
        scheduler s(wanted);
        CHECK(s.spawn([&] { return waits(rest); }, {.priority = p}).join() == 3);
        s.shutdown(); // all are counted
        return stats_of(s).timers_fired >= 3;
    }));
    scheduler s(wanted);
    auto cancelled = s.spawn(take(none), {.priority = p});
    cancelled.cancel();
    CHECK_THROWS_AS(std::move(cancelled).join(), stopped_error);
}

TEST_CASE("pinned task: each of its steps, and its end, are on the thread of its worker",
          "[promise.pinned-tasks]") {
    scheduler_options wanted = test::each_of({1, 2, 4});
    const unsigned workers = wanted.num_workers;
    std::vector<std::thread::id> started(workers);
    wanted.on_worker_start = [&started](unsigned i) { started[i] = std::this_thread::get_id(); };
    scheduler s(wanted);
    semaphore some(0);
    std::vector<one_thread> seen(workers);
    std::vector<join_handle<void>> all;
    for (int n = 0; n < 20; ++n) {
        for (unsigned i = 0; i < workers; ++i) {
            auto whole = [&here = seen[i], &some,
                          last = visits_when_destroyed(seen[i])]() -> task<> {
                co_await wander(here, some);
                co_await when_all(wander(here, some), wander(here, some));
                static_cast<void>(co_await with_timeout(wander(here, some), 1h));
            };
            all.push_back(s.spawn(std::move(whole), {.worker = i}));
        }
    }
    std::thread outside([&] {
        for (int i = 0; i < 20; ++i) {
            some.release();
            std::this_thread::yield();
        }
    });
    test::join_all(all);
    outside.join();
    for (unsigned i = 0; i < workers; ++i) {
        CHECK(seen[i].wrong() == 0);
        CHECK(seen[i].visits() == 20 * 17);
        CHECK(seen[i].id() == started[i]);
    }
}

TEST_CASE("pinned task: is never stolen, and waits while its thread is busy",
          "[promise.pinned-tasks]") {
    scheduler s(with(4, true));
    std::atomic<bool> open{false};
    std::atomic<bool> reached{false};
    auto busy = s.spawn(
        [&] {
            reached = true;
            return test::spin_until(open);
        },
        {.worker = 2});
    REQUIRE(test::spin_until(reached));
    std::atomic<int> ran{0};
    std::vector<join_handle<void>> pinned;
    for (int i = 0; i < 100; ++i) {
        pinned.push_back(s.spawn([&] { ++ran; }, {.worker = 2}));
    }
    for (int i = 0; i < 1'000; ++i) {
        s.spawn([] {}).join(); // the other workers are there
    }
    CHECK(ran == 0);
    open = true;
    CHECK(std::move(busy).join());
    test::join_all(pinned);
    CHECK(ran == 100);
}

TEST_CASE("pinned task: a worker that was woken for another task passes that wake on",
          "[promise.pinned-tasks]") {
    std::atomic<bool> ran{false};
    spawns_when_woken sink;
    sink.task = [&ran] { static_cast<void>(test::spin_until(ran)); };
    scheduler_options wanted = with(3, false);
    wanted.trace = &sink;
    scheduler s(std::move(wanted));
    REQUIRE(test::eventually([&s] { return test::fall_asleep(s); }));
    sink.armed = true;
    // Worker 2 keeps the inner task in its slot and wakes worker 0 for it, which takes the pinned task, as
    // it looks at the slots of others last. So it has to wake worker 1.
    const auto busy = [&] {
        s.spawn([&ran] { ran = true; }).detach();
        return test::eventually([&ran] { return ran.load(); }, test::patience / 4);
    };
    CHECK(s.spawn(busy, {.worker = 2}).join());
    CHECK_FALSE(sink.armed);
}

TEST_CASE("pinned task: has every other turn of normal tasks, and starves none") {
    scheduler s(with(1, false));
    std::vector<int> ran;
    const auto yields_as = [&](int who, int times) -> task<> {
        for (int i = 0; i < times; ++i) {
            ran.push_back(who);
            co_await yield();
        }
    };
    {
        closed_road road(s);
        s.spawn([&] { return yields_as(0, 300); }).detach();
        s.spawn([&] { return yields_as(1, 300); }, {.worker = 0}).detach();
        REQUIRE(road.open());
    }
    finish(s);
    REQUIRE(ran.size() == 600);
    bool in_turn = true;
    for (std::size_t i = 1; i < 590; ++i) {
        in_turn = in_turn && ran[i] != ran[i - 1];
    }
    CHECK(in_turn);
}

TEST_CASE("pinned task: its thread runs it also after it has lost its worker",
          "[promise.pinned-tasks]") {
    scheduler s(with(1, false));
    event first_over;
    event go;
    one_thread seen;
    event waits;
    // A pinned task waits. Then the thread blocks, and another thread takes its worker over, which goes
    // on to run tasks. When the thread returns, it has none.
    auto pinned = s.spawn(
        [&]() -> task<> {
            seen.visit();
            waits.set();
            co_await go.async_wait();
            seen.visit();
            co_await yield();
            seen.visit();
            co_await sleep_for(1ms);
            seen.visit();
        },
        {.worker = 0});
    waits.wait();
    std::atomic<bool> stop{false};
    auto blocks = s.spawn(
        [&] {
            seen.visit();
            auto keeps_substitute = s.spawn([&] {
                const bool is_substitute =
                    !s.this_worker(); // a thread for blocking tasks runs the worker
                first_over.set();
                return test::spin_until(stop) && is_substitute;
            });
            first_over.wait();
            seen.visit();
            return keeps_substitute;
        },
        {.worker = 0});
    auto keeps_substitute = std::move(blocks).join();
    go.set();
    std::move(pinned).join(); // while the other thread has the worker
    CHECK(s.spawn([&] { return s.this_worker(); }, {.worker = 0}).join() == 0u);
    stop = true;
    CHECK(std::move(keeps_substitute).join());
    CHECK(s.spawn([&] { return s.this_worker(); }, {.worker = 0}).join() == 0u);
    CHECK(seen.wrong() == 0);
    CHECK(seen.visits() == 6);
}

TEST_CASE("pinned task: a thread without a worker that runs some takes a blocked worker",
          "[promise.pinned-tasks]") {
    scheduler_options wanted = with(1, false);
    wanted.max_blocking_threads = 1;
    scheduler s(std::move(wanted));
    event has_lost;
    event ran;
    std::atomic<bool> polls{false};
    std::atomic<bool> over{false};
    // The thread of the worker blocks in this task, and so loses the worker. From then on, a pinned task
    // keeps it from being idle.
    const auto blocks = [&] {
        // On the only thread for blocking tasks. When it blocks too, no thread is left but the first one.
        auto second = s.spawn([&] {
            has_lost.set();
            const bool both = test::spin_until(polls);
            s.spawn([&] {
                 over = true;
                 ran.set();
             }).detach();
            ran.wait();
            return both;
        });
        has_lost.wait();
        return second;
    };
    auto first = s.spawn(blocks, {.worker = 0});
    const auto poller = [&]() -> task<bool> {
        const auto end = std::chrono::steady_clock::now() + test::patience / 2;
        while (!over && std::chrono::steady_clock::now() < end) {
            polls = true;
            co_await yield();
        }
        co_return over;
    };
    auto second = std::move(first).join();
    CHECK(s.spawn(poller, {.worker = 0}).join());
    CHECK(std::move(second).join());
}

TEST_CASE("pinned task: with this_worker() it stays on the thread of its spawner") {
    scheduler s(with(3, true));
    one_thread seen;
    const auto local = [&]() -> task<> {
        co_await yield();
        seen.visit();
    };
    const auto spawner = [&]() -> task<std::optional<unsigned>> {
        seen.visit();
        auto a = s.spawn(local, {.worker = s.this_worker()});
        auto b = s.spawn([&] { seen.visit(); }, {.worker = s.this_worker()});
        auto c = s.spawn(local(), {.worker = s.this_worker()});
        co_await std::move(a).async_join();
        co_await std::move(b).async_join();
        co_await std::move(c).async_join();
        co_return s.this_worker();
    };
    CHECK(s.spawn(spawner, {.worker = 1}).join() == 1u);
    CHECK(seen.wrong() == 0);
    CHECK(seen.visits() == 4);
    CHECK(seen.id().has_value());
}

TEST_CASE("pinned task: on_worker_start() may spawn the first task of its thread") {
    std::vector<one_thread> seen(3);
    std::atomic<int> wrong{0};
    std::atomic<int> ended{0};
    scheduler_options wanted = with(3, true);
    wanted.on_worker_start = [&](unsigned i) {
        scheduler& s = *scheduler::current();
        wrong += s.this_worker() == i ? 0 : 1;
        seen[i].visit();
        if (s.this_worker()) {
            s.spawn(
                 [&ended, &here = seen[i]] {
                     here.visit();
                     ++ended;
                 },
                 {.worker = s.this_worker()})
                .detach();
        }
    };
    scheduler s(std::move(wanted));
    CHECK(test::eventually([&ended] { return ended == 3; }, test::patience / 2));
    s.shutdown();
    CHECK(wrong == 0);
    for (const one_thread& one : seen) {
        CHECK(one.visits() == 2);
        CHECK(one.wrong() == 0);
    }
}

TEST_CASE("spawn_options: a wrong worker, and a worker with a priority, are refused",
          "[promise.misuse-refused]") {
    scheduler s(with(2, true));
    CHECK(what_of([&] { s.spawn([] {}, {.worker = 2}).detach(); }) ==
          "scheduler::spawn(): there is no such worker");
    CHECK(what_of([&] { s.spawn([] {}, {.priority = low, .worker = 0}).detach(); }) ==
          "scheduler::spawn(): a pinned task has no priority");
    CHECK_FALSE(s.this_worker());
    scheduler other(with(1, true));
    CHECK_FALSE(other.spawn([&] { return s.this_worker(); }).join());
    CHECK_FALSE(s.spawn_blocking([&] { return s.this_worker(); }).join());
}

TEST_CASE("spawn_options: tasks of each kind run, or are stopped, when the scheduler ends") {
    const unsigned workers = GENERATE(1u, 3u);
    for (int round = 0; round < 20; ++round) {
        semaphore none(0);
        std::atomic<int> ended{0};
        std::vector<join_handle<void>> all;
        {
            scheduler s(with(workers, round % 2 == 0));
            const auto waits = [&]() -> task<> {
                struct at_end {
                    std::atomic<int>& n;
                    ~at_end() { ++n; }
                } const counts{ended};
                co_await yield();
                static_cast<void>(co_await none.async_acquire());
            };
            for (const task_priority p : {low, normal, high}) {
                for (int i = 0; i < 5; ++i) {
                    all.push_back(s.spawn(waits, {.priority = p}));
                }
            }
            for (unsigned i = 0; i < 15; ++i) {
                all.push_back(s.spawn(waits, {.worker = i % workers}));
            }
            if (round % 4 < 2) {
                std::this_thread::yield();
            }
        }
        int stopped = 0;
        for (auto& h : all) {
            stopped += test::ended_by_stop(std::move(h)) ? 1 : 0;
        }
        CHECK(stopped == 30);
        CHECK(ended <= 30);
    }
}
