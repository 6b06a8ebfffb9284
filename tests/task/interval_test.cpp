#include <bide/task/interval.hpp>

#include <support/scheduling.hpp>
#include <support/simulated.hpp>

using bide::interval;
using bide::missed_ticks;
using bide::scheduler;
using bide::task;
using test::with;
using clock_type = std::chrono::steady_clock;

namespace {

// How many ticks came as one, and when in simulated time.
using ticks = std::vector<std::pair<std::chrono::nanoseconds, std::uint64_t>>;
task<ticks> next_ticks(interval& every, int n) {
    ticks all;
    for (int i = 0; i < n; ++i) {
        const std::uint64_t came = co_await every.async_tick();
        all.emplace_back(bide::test::now(), came);
    }
    co_return all;
}

// The values of the due ticks, up to six.
using counts = std::vector<std::uint64_t>;
task<counts> due(interval& every) {
    counts said;
    for (int i = 0; i < 6; ++i) {
        const auto tick = co_await every.async_tick().with_timeout(0s);
        if (!tick) {
            break;
        }
        said.push_back(*tick);
    }
    co_return said;
}

} // namespace

TEST_CASE("interval: the policy decides how missed ticks come, and when the next one is") {
    const auto [policy, expected] = GENERATE(table<missed_ticks, ticks>(
        {{missed_ticks::skip, {{35ms, 3}, {40ms, 1}, {50ms, 1}, {60ms, 1}}},
         {missed_ticks::burst, {{35ms, 1}, {35ms, 1}, {35ms, 1}, {40ms, 1}}},
         {missed_ticks::delay, {{35ms, 3}, {45ms, 1}, {55ms, 1}, {65ms, 1}}}}));
    test::simulated run;
    interval every(10ms, policy);
    run.advance(35ms);
    CHECK(run.run_until(next_ticks(every, 4)) == expected);
}

TEST_CASE("interval: a late tick that misses none moves no later tick, with any policy") {
    const auto policy = GENERATE(missed_ticks::skip, missed_ticks::burst, missed_ticks::delay);
    test::simulated run;
    interval every(10ms, policy);
    for (auto start = 0ms; start < 10s; start += 20ms) {
        run.advance(11ms); // the first wake-up is late
        REQUIRE(run.run_until(next_ticks(every, 2)) == ticks{{start + 11ms, 1}, {start + 20ms, 1}});
    }
}

TEST_CASE("interval: a tick whose wait timed out is not lost") {
    test::simulated run;
    interval every(20ms);
    const auto give_up = [&every]() -> task<bool> {
        const auto given_up = co_await every.async_tick().with_timeout(19ms);
        const auto stays_out = co_await every.async_tick().with_timeout(-1s);
        co_return !given_up && !stays_out;
    };
    CHECK(run.run_until(give_up()));
    CHECK(run.now() == 19ms);
    CHECK(run.run_until(next_ticks(every, 2)) == ticks{{20ms, 1}, {40ms, 1}});
}

TEST_CASE("interval: the tick of a cancelled task is stopped") {
    test::simulated run;
    auto h = run.spawn([]() -> task<bool> {
        interval never(std::chrono::hours::max());
        const auto tick = co_await never.async_tick().as_result();
        co_return !tick && tick.error() == bide::errc::stopped;
    });
    run.run_ready();
    h.cancel();
    CHECK(std::move(h).join());
}

TEST_CASE("interval: after reset and reset_at the ticks come at their new times") {
    const auto policy = GENERATE(missed_ticks::skip, missed_ticks::burst, missed_ticks::delay);
    test::simulated run;
    interval every(5ms, policy);
    every.reset_at(bide::test::clock::now() - 1h);
    every.reset(); // drops the missed ticks
    CHECK(run.run_until(next_ticks(every, 2)) == ticks{{5ms, 1}, {10ms, 1}});
    every.reset_at(bide::test::clock::now() + 12ms);
    CHECK(run.run_until(next_ticks(every, 2)) == ticks{{22ms, 1}, {27ms, 1}});
    for (const auto long_ago : {clock_type::time_point() - 3h, clock_type::time_point::min()}) {
        every.reset_at(long_ago);
        const counts since_ever = bide::sync_wait(due(every));
        REQUIRE_FALSE(since_ever.empty());
        CHECK((policy == missed_ticks::burst ? since_ever.size() > 1 : since_ever[0] > 1));
    }
    every.reset_at(clock_type::time_point::max());
    CHECK(bide::sync_wait(due(every)).empty());
}

TEST_CASE("interval: the longest period never ticks again, with any policy") {
    const auto policy = GENERATE(missed_ticks::skip, missed_ticks::burst, missed_ticks::delay);
    for (const auto period :
         {std::chrono::nanoseconds::max(), std::chrono::nanoseconds::max() - 1ns}) {
        interval every(period, policy);
        CHECK(every.period() == period);
        CHECK(bide::sync_wait(due(every)).empty());
        every.reset();
        CHECK(bide::sync_wait(due(every)).empty());
        every.reset_at(clock_type::now());
        CHECK(bide::sync_wait(due(every)) == counts{1});
        CHECK(bide::sync_wait(due(every)).empty());
    }
    CHECK(interval(std::chrono::hours::max()).period() == std::chrono::nanoseconds::max());
    CHECK(interval(1.5s).period() == 1'500ms);
}

TEST_CASE("interval: on the real clock, ticks after each period, never too early") {
    scheduler s(with(2, GENERATE(true, false)));
    CHECK(s.spawn([]() -> task<int> {
               int early = 0;
               const auto start = clock_type::now();
               interval every(300us);
               std::uint64_t sum = 0;
               for (int i = 0; i < 10; ++i) {
                   const std::uint64_t came = co_await every.async_tick();
                   sum += came;
                   early += came == 0 || clock_type::now() - start < sum * 300us ? 1 : 0;
               }
               co_return early;
           }).join() == 0);
}

#if BIDE_TESTS_CAN_DIE
TEST_CASE("interval: a period of zero or less terminates with a message") {
    CHECK(test::contains(test::dies([] { const interval none(0s); }), "the period of an interval"));
    CHECK(
        test::contains(test::dies([] { const interval none(-1ms); }), "the period of an interval"));
}
#endif
