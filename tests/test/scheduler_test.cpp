#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/task/interval.hpp>
#include <bide/task/rate_limiter.hpp>
#include <bide/task/retry.hpp>
#include <bide/task/strand.hpp>
#include <bide/test/scheduler.hpp>
#include <support/death.hpp>
#include <support/test.hpp>

// Tasks in a simulation: the order, the time, the faults, and what a run says at its end.

using bide::task;
using bide::test::scheduler;
using bide::test::simulation_error;
using bide::test::simulation_options;
using bide::test::task_order;
using bide::this_task::sleep_for;
using bide::this_task::yield;

namespace {

task<> note(std::vector<int>& order, int n, int rounds) {
    for (int i = 0; i < rounds; ++i) {
        order.push_back(n);
        co_await yield();
    }
}

task<> sleep(std::chrono::nanoseconds rest) { co_await sleep_for(rest); }

task<> wait_for(bide::event& e) { co_await e.async_wait(); }

task<> set_after(bide::event& e, std::chrono::nanoseconds rest) {
    co_await sleep_for(rest);
    e.set();
}

// What three tasks on a mutex, a channel and a timer do.
task<> produce(bide::mutex& m, bide::channel<int>& to, int n) {
    for (int i = 0; i < 3; ++i) {
        {
            auto lock = co_await m.async_lock();
            co_await sleep_for(std::chrono::milliseconds(n));
        }
        static_cast<void>(co_await to.async_send(n));
    }
}
task<> consume(bide::channel<int>& from, int count) {
    for (int i = 0; i < count; ++i) {
        static_cast<void>(co_await from.async_recv());
    }
}
// FNV-1a.
std::uint64_t hash_of(const std::string& text) {
    std::uint64_t h = 0xcbf29ce484222325U;
    for (const char c : text) {
        h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    }
    return h;
}

struct run_record {
    std::string journal;
    std::uint64_t hash;
};
run_record record_of(const simulation_options& how) {
    bide::mutex m;
    bide::channel<int> c(1);
    scheduler s(how);
    for (int n = 1; n < 4; ++n) {
        s.spawn(produce(m, c, n).named("produce")).detach();
    }
    s.spawn(consume(c, 9).named("consume")).detach();
    REQUIRE(s.run().all_ended());
    return {s.journal(), hash_of(s.journal())};
}
std::string journal_of(const simulation_options& how) { return record_of(how).journal; }

struct shared_state {
    bide::mutex m;
    bide::channel<int> c{1};
    int sum = 0;
    int inside = 0;
    bool was_together = false;
};
task<> add(shared_state& at) {
    for (int i = 0; i < 2; ++i) {
        auto lock = co_await at.m.async_lock();
        at.was_together = at.was_together || ++at.inside > 1;
        struct leaves {
            int& inside;
            ~leaves() { --inside; }
        } on_end{at.inside};
        ++at.sum;
        co_await sleep_for(1ms);
    }
    static_cast<void>(co_await at.c.async_send(1));
}
task<> receive(shared_state& from) { static_cast<void>(co_await from.c.async_recv()); }

} // namespace

TEST_CASE("test scheduler: the same seed makes the same run, byte for byte",
          "[promise.simulation-repeats]") {
    std::set<std::string> different;
    for (const task_order order : {task_order::random, task_order::priorities, task_order::fifo}) {
        for (std::uint64_t seed = 0; seed < 10; ++seed) {
            simulation_options how{.seed = seed, .order = order};
            how.faults.stall = 0.1;
            const std::string once = journal_of(how);
            REQUIRE(journal_of(how) == once);
            different.insert(once);
        }
    }
    REQUIRE(different.size() > 25);
}

TEST_CASE("test scheduler: a run is the same with every compiler and library",
          "[promise.simulation-repeats]") {
    std::vector<int> order;
    scheduler s({.seed = 1});
    for (int n = 0; n < 4; ++n) {
        s.spawn(note(order, n, 4)).detach();
    }
    REQUIRE(s.run().all_ended());
    std::string digits;
    for (const int n : order) {
        digits += std::to_string(n);
    }
    REQUIRE(digits == "3302323210011120");
    REQUIRE(hash_of(s.journal()) == 0xc1e23c785b660d95U);
    REQUIRE(record_of({.seed = 2}).hash == 0x9b075ab714050feU);
    REQUIRE(record_of({.seed = 2, .order = task_order::priorities}).hash == 0xd9a1c38b8935e87eU);
}

TEST_CASE(
    "test scheduler: without switch points in the program, it refuses to look for their bugs") {
    simulation_options how;
    how.switches = bide::test::switch_places::operations;
    REQUIRE_THROWS_AS(scheduler(how), bide::test::simulation_error);
}

TEST_CASE("test scheduler: fifo keeps the order, and the other orders find others") {
    for (const task_order order : {task_order::random, task_order::priorities, task_order::fifo}) {
        std::set<std::vector<int>> found;
        for (std::uint64_t seed = 0; seed < 50; ++seed) {
            std::vector<int> ran;
            scheduler s({.seed = seed, .order = order});
            for (int n = 0; n < 3; ++n) {
                s.spawn(note(ran, n, 1)).detach();
            }
            s.run();
            found.insert(ran);
        }
        REQUIRE(found.size() == (order == task_order::fifo ? 1U : 6U));
    }
}

TEST_CASE("test scheduler: days pass at once, and in the right order",
          "[promise.simulation-repeats]") {
    const auto began = std::chrono::steady_clock::now();
    std::vector<int> order;
    scheduler s;
    const auto at = [](std::vector<int>& to, int day) -> task<> {
        co_await sleep_for(24h * day);
        to.push_back(day);
    };
    for (const int day : {20, 3, 300, 7}) {
        s.spawn(at(order, day)).detach();
    }
    s.run();
    REQUIRE(order == std::vector<int>{3, 7, 20, 300});
    REQUIRE(s.now() == 300 * 24h);
    REQUIRE(std::chrono::steady_clock::now() - began < 24h); // it did not wait
}

TEST_CASE("test scheduler: a rate limiter that was made before it is full, whatever the real clock "
          "says") {
    bide::rate_limiter one_a_second(1, 1s);
    REQUIRE(one_a_second.try_acquire());
    scheduler s;
    const auto paced = [](bide::rate_limiter& rate) -> task<> {
        for (int i = 0; i < 3; ++i) {
            co_await rate.async_acquire();
        }
    };
    s.run_until(paced(one_a_second));
    REQUIRE(s.now() == 2s);
}

TEST_CASE("test scheduler: a cancelled timer does not move the clock") {
    scheduler s;
    bide::event e;
    const auto wait = [](bide::event& on) -> task<bool> {
        co_return (co_await on.async_wait().with_timeout(1h)).has_value();
    };
    auto got = s.spawn(wait(e));
    s.spawn(set_after(e, 1s)).detach();
    s.run();
    REQUIRE(std::move(got).join());
    REQUIRE(s.now() == 1s);
}

TEST_CASE("test scheduler: the clock is moved by the test, by a task, and by run_for()") {
    scheduler s;
    s.advance(1s);
    const auto compute = []() -> task<> {
        bide::test::advance(2s);
        co_return;
    };
    s.spawn(compute()).detach();
    auto sleeper = s.spawn(sleep(10s));
    s.run_ready();
    REQUIRE(s.now() == 3s);
    REQUIRE_FALSE(s.run_for(5s).all_ended());
    REQUIRE(s.now() == 8s);
    REQUIRE(s.run().all_ended());
    REQUIRE(
        (s.now() == 11s || s.now() == 13s)); // the sleep began before the computation or after it
    REQUIRE(sleeper.done());
}

TEST_CASE("test scheduler: the calendar is simulated, too") {
    const auto before = bide::test::system_clock::now();
    REQUIRE(before - std::chrono::system_clock::now() < 1h);
    scheduler s;
    REQUIRE(bide::test::system_clock::now().time_since_epoch() == 24h * 365 * 70);
    const auto wait = [](std::chrono::system_clock::duration rest) -> task<> {
        co_await bide::this_task::sleep_until(bide::test::system_clock::now() + rest);
    };
    s.run_until(wait(24h));
    REQUIRE(s.now() == 24h);
    REQUIRE(s.report().steps < 10);
    s.run_until(wait(-1h));
    REQUIRE(s.now() == 24h);
    REQUIRE(bide::test::system_clock::now().time_since_epoch() == 24h * 365 * 70 + 24h);
}

TEST_CASE("test scheduler: a loop that waits for a time ends") {
    scheduler s;
    const auto spin = []() -> task<> {
        for (const auto end = bide::test::clock::now() + 1ms; bide::test::clock::now() < end;) {
        }
        co_return;
    };
    s.run_until(spin());
    REQUIRE(s.now() == 1ms);
}

TEST_CASE("test scheduler: after its end the thread has its own clock again") {
    const auto before = bide::native_platform::now();
    {
        scheduler s;
        s.advance(10000h);
        scheduler inner;
        inner.advance(1h);
        REQUIRE(bide::test::now() == 1h);
    }
    const auto after = bide::native_platform::now();
    REQUIRE(after >= before);
    REQUIRE(after - before < 3'600'000'000'000);
}

TEST_CASE("test scheduler: a stall lets a time-out end before a runnable task grants") {
    const auto acquire = [](bide::semaphore& from) -> task<bool> {
        co_return (co_await from.async_acquire().with_timeout(1h)).has_value();
    };
    const auto release = [](bide::semaphore& to) -> task<> {
        co_await yield();
        to.release();
    };
    for (const double stall : {0.0, 0.2}) {
        int granted = 0;
        for (std::uint64_t seed = 0; seed < 100; ++seed) {
            bide::semaphore one(0);
            simulation_options how{.seed = seed};
            how.faults.stall = stall;
            scheduler s(how);
            auto got = s.spawn(acquire(one));
            s.spawn(release(one)).detach();
            REQUIRE(s.run().all_ended());
            granted += std::move(got).join() ? 1 : 0;
        }
        REQUIRE((granted == 100) == (stall == 0.0));
        REQUIRE(granted > 0);
    }
}

TEST_CASE("test scheduler: a select and a retry draw from the seed") {
    const auto draw = [](bide::channel<int>& a, bide::channel<int>& b, std::string& out) -> task<> {
        for (int i = 0; i < 8; ++i) {
            const auto got = co_await bide::async_select(bide::on_recv(a), bide::on_recv(b));
            out += std::to_string(got.index());
        }
        int left = 5;
        const auto fail = [&left]() -> task<int> {
            if (--left != 0) {
                throw std::runtime_error("again");
            }
            co_return 0;
        };
        bide::retry_policy policy;
        policy.attempts = 5;
        policy.jitter = true;
        auto trying = bide::retry(policy, fail);
        co_await std::move(trying);
        out += " " + std::to_string(bide::test::now().count());
    };
    std::set<std::string> selected;
    std::set<std::string> times;
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
        std::string last;
        for (int again = 0; again < 2; ++again) {
            std::string out;
            bide::channel<int> a(8);
            bide::channel<int> b(8);
            for (int i = 0; i < 8; ++i) {
                REQUIRE(a.try_send(i));
                REQUIRE(b.try_send(i));
            }
            scheduler s({.seed = seed});
            s.run_until(draw(a, b, out));
            REQUIRE((again == 0 || out == last));
            last = out;
        }
        selected.insert(last.substr(0, 8));
        times.insert(last.substr(8));
    }
    REQUIRE(selected.size() == 5);
    REQUIRE(times.size() == 5);
}

TEST_CASE("test scheduler: a wait on a strand is simulated, too") {
    scheduler s;
    bide::strand one(s);
    const auto limited = []() -> task<bool> {
        bide::event never;
        co_return (co_await never.async_wait().with_timeout(2h)).has_value();
    };
    auto on_strand = one.run(limited());
    REQUIRE_FALSE(s.run_until(std::move(on_strand)));
    REQUIRE(s.now() == 2h);
}

TEST_CASE("test scheduler: a task is cancelled at each of its points") {
    int cancelled = 0;
    std::uint64_t steps = 40;
    for (std::uint64_t at = 1; at <= steps; ++at) {
        shared_state state;
        bide::join_handle<void>* victim = nullptr;
        simulation_options how{.seed = 3};
        how.before_step = [&](std::uint64_t step) {
            if (step == at && victim != nullptr) {
                victim->cancel();
            }
        };
        scheduler s(how);
        auto first = s.spawn(add(state));
        victim = &first;
        auto second = s.spawn(add(state));
        auto reader = s.spawn(receive(state));
        const auto end = s.run();
        INFO(end.text());
        REQUIRE(end.all_ended());
        victim = nullptr;
        REQUIRE_FALSE(state.was_together);
        REQUIRE(state.inside == 0);
        REQUIRE(state.m.try_lock());
        state.m.unlock();
        REQUIRE(state.sum >= 2);
        try {
            std::move(first).join();
        } catch (const bide::stopped_error&) {
            ++cancelled;
        }
        std::move(second).join();
        std::move(reader).join();
    }
    REQUIRE(cancelled > 5);
    REQUIRE(cancelled < static_cast<int>(steps));
}

TEST_CASE("test scheduler: a wait times out at a step that the test chooses") {
    const auto acquire = [](bide::semaphore& from) -> task<bool> {
        co_return (co_await from.async_acquire().with_timeout(1h)).has_value();
    };
    const auto release = [](bide::semaphore& to) -> task<> {
        for (int i = 0; i < 3; ++i) {
            co_await yield();
        }
        to.release();
    };
    std::string granted;
    for (std::uint64_t at = 1; at <= 8; ++at) {
        bide::semaphore one(0);
        simulation_options how{.seed = 0, .order = task_order::fifo};
        how.before_step = [at](std::uint64_t step) {
            if (step == at) {
                bide::test::advance(1h);
            }
        };
        scheduler s(how);
        auto got = s.spawn(acquire(one));
        s.spawn(release(one)).detach();
        REQUIRE(s.run().all_ended());
        granted += std::move(got).join() ? '+' : '-';
    }
    REQUIRE(granted == "+----+++"); // before the wait, during it, and after the grant
}

TEST_CASE("test scheduler: tasks are cancelled by chance, if they may be") {
    int cancelled = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        bide::event never;
        simulation_options how{.seed = seed};
        how.faults.cancel = 0.5;
        how.faults.most_cancels = 1;
        how.faults.may_cancel = [](const char* name) { return std::string(name) == "victim"; };
        scheduler s(how);
        auto victim = s.spawn(wait_for(never).named("victim"));
        auto second = s.spawn(wait_for(never).named("victim"));
        auto other = s.spawn(sleep(1h).named("other"));
        const auto end = s.run();
        std::move(other).join();
        const bool is_named = s.journal().find(" cancel task ") != std::string::npos;
        REQUIRE(end.tasks.size() == (is_named ? 1U : 2U)); // not both
        cancelled += is_named ? 1 : 0;
    }
    REQUIRE(cancelled > 10);
    REQUIRE(cancelled < 50);
}

TEST_CASE("test scheduler: fault points, choices and notes stand in the journal") {
    REQUIRE_FALSE(bide::test::fault_point("without a scheduler", 1));
    REQUIRE(bide::test::choose("without a scheduler", 5) == 0);
    bide::test::note("without a scheduler");

    scheduler s({.seed = 4});
    const auto store = []() -> task<int> {
        int failed = 0;
        for (int i = 0; i < 1000; ++i) {
            failed += bide::test::fault_point("the store hangs", 0.25) ? 1 : 0;
        }
        REQUIRE(bide::test::fault_point("always", 1));
        REQUIRE_FALSE(bide::test::fault_point("never", 0));
        bool has[3] = {};
        for (int i = 0; i < 100; ++i) {
            has[bide::test::choose("a way", 3)] = true;
        }
        REQUIRE((has[0] && has[1] && has[2]));
        bide::test::note("all is well");
        co_return failed;
    };
    const int failed = s.run_until(store());
    REQUIRE(failed > 150);
    REQUIRE(failed < 350);
    for (const char* line : {"1 fault the store hangs\n", "1 no fault the store hangs\n",
                             "1 fault always\n", "1 choose 2/3 a way\n", "1 note all is well\n"}) {
        INFO(line);
        REQUIRE(s.journal().find(line) != std::string::npos);
    }
}

TEST_CASE("test scheduler: a run names the tasks that wait for ever",
          "[promise.simulation-repeats]") {
    bide::event never;
    scheduler s({.seed = 9});
    s.spawn(wait_for(never).named("reader")).detach();
    s.spawn(sleep(1s).named("sleeper")).detach();
    s.spawn(wait_for(never)).detach();
    const auto end = s.run();
    REQUIRE_FALSE(end.all_ended());
    REQUIRE(end.tasks.size() == 2);
    REQUIRE(end.tasks[0].number == 1);
    REQUIRE(end.tasks[0].name == "reader");
    REQUIRE(end.tasks[0].is_waiting);
    REQUIRE(end.tasks[1].number == 3);
    REQUIRE(end.tasks[1].name.empty());
    REQUIRE(end.time == 1s);
    const std::string text = end.text();
    REQUIRE(text.find("seed 9, ") == 0);
    REQUIRE(text.find("2 tasks left\n  task 1 'reader' waits") != std::string::npos);

    std::string what;
    try {
        s.run_until(wait_for(never).named("main"));
    } catch (const bide::test::stuck_error& e) {
        what = e.what();
    }
    REQUIRE(what.find("waits for ever; seed 9") != std::string::npos);
    REQUIRE(what.find("task 4 'main' waits") != std::string::npos);
    never.set();
    REQUIRE(s.run().all_ended());
}

TEST_CASE("test scheduler: an endless run ends with an error that names the seed") {
    const auto what_of = [](simulation_options how, auto make) {
        scheduler s(std::move(how));
        auto left = s.spawn(make());
        try {
            s.run();
        } catch (const simulation_error& e) {
            return std::string(e.what());
        }
        return std::string();
    };
    const auto spin = []() -> task<> {
        while (!bide::this_task::is_cancelled()) {
            co_await yield();
        }
    };
    const auto tick = []() -> task<> {
        for (bide::interval every(1h); !bide::this_task::is_cancelled();) {
            co_await every.async_tick();
        }
    };
    simulation_options how{.seed = 8};
    how.max_steps = 1000;
    REQUIRE(what_of(how, spin).find("max_steps reached: a task may run for ever; seed 8") !=
            std::string::npos);
    how = {.seed = 8};
    how.max_time = 24h;
    REQUIRE(what_of(how, tick).find("max_time reached") != std::string::npos);
}

TEST_CASE("test scheduler: exceptions go to the handle, or to the run if there is none") {
    const auto fail = []() -> task<int> {
        co_await yield();
        throw std::domain_error("fails");
    };
    scheduler s;
    REQUIRE_THROWS_AS(s.run_until(fail()), std::domain_error);
    auto kept = s.spawn(fail());
    REQUIRE(s.run().all_ended());
    REQUIRE_THROWS_AS(std::move(kept).join(), std::domain_error);
    s.spawn(fail()).detach();
    REQUIRE_THROWS_AS(s.run(), std::domain_error);
    REQUIRE(s.run().all_ended());
}

TEST_CASE("test scheduler: what another thread wakes or spawns ends the run with an error") {
    bide::event e;
    scheduler s;
    auto waits = s.spawn(wait_for(e).named("reader"));
    REQUIRE(s.run().tasks.size() == 1);
    std::thread([&] { e.set(); }).join();
    std::string what;
    try {
        s.run();
    } catch (const simulation_error& error) {
        what = error.what();
    }
    REQUIRE(what.find("another thread has woken task 1 'reader'") != std::string::npos);
    REQUIRE(s.run().all_ended()); // the task goes on after the error
    std::move(waits).join();

    std::thread([&] { s.spawn(sleep(1s)).detach(); }).join();
    REQUIRE_THROWS_AS(s.run(), simulation_error);
    s.run();
    REQUIRE(s.now() == 1s);
}

TEST_CASE("test scheduler: its end cancels the tasks that are left") {
    bide::event never;
    std::vector<int> order;
    bool was_stopped = false;
    const auto wait = [](bide::event& on, bool& stopped) -> task<> {
        try {
            co_await on.async_wait();
        } catch (const bide::stopped_error&) {
            stopped = true;
            throw;
        }
    };
    {
        scheduler s;
        s.spawn(wait(never, was_stopped)).detach();
        s.spawn(sleep(1h)).detach();
        s.run_ready();
        s.spawn(note(order, 1, 1)).detach(); // it has not begun
    }
    REQUIRE(was_stopped);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("test scheduler: a task that blocks its thread is named, and does not hang") {
    const auto block = [](scheduler& on, bide::event& never, int way) -> task<> {
        switch (way) {
        case 0: never.wait(); break;
        case 1: bide::sync_wait(wait_for(never)); break;
        case 2: {
            auto other = on.spawn(wait_for(never));
            std::move(other).join();
            break;
        }
        case 3: on.run(); break;
        default: {
            bide::task_group group(on);
            group.spawn(wait_for(never));
            group.join();
        }
        }
        co_return;
    };
    const char* const blocks = "a task blocks its thread";
    const char* const expected[] = {blocks, blocks, blocks, "it is run by one of its own tasks",
                                    "a group or a set is waited for"};
    for (int way = 0; way < 5; ++way) {
        const std::string said = test::dies([&] {
            bide::event never;
            scheduler s({.seed = 6});
            s.spawn(block(s, never, way).named("blocker")).detach();
            s.run();
        });
        INFO(said);
        REQUIRE(test::contains(said, expected[way]));
        REQUIRE(test::contains(said, way < 4 ? "; task 1 'blocker'; seed 6, step 1,"
                                             : "seed 6, step 2,"));
    }
}

#endif
