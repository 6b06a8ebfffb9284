#include <bide/task/interval.hpp>

#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>
#include <support/catch.hpp>
#include <support/coroutines.hpp>
#include <support/death.hpp>
#include <support/gate.hpp>
#include <support/scheduling.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

using bide::interval;
using bide::scheduler;
using bide::task;
using test::with;
using clock_type = std::chrono::steady_clock;
using namespace std::chrono_literals;

TEST_CASE("interval: ticks after each period, never too early") {
    const bool naps = GENERATE(true, false);
    const test::watchdog guard;
    scheduler s(with(2, naps));
    CHECK(s.spawn([]() -> task<int> {
               int early = 0;
               const auto start = clock_type::now();
               interval every(300us);
               std::uint64_t ticks = 0;
               for (int i = 0; i < 30; ++i) {
                   const std::uint64_t came = co_await every.async_tick();
                   ticks += came;
                   early += came == 0 || clock_type::now() - start < ticks * 300us ? 1 : 0;
               }
               co_return early;
           }).join() == 0);
}

TEST_CASE("interval: missed ticks come as one tick, which counts them") {
    const test::watchdog guard;
    scheduler s(with(1, false));
    CHECK(s.spawn([]() -> task<bool> {
               const auto start = clock_type::now();
               interval every(1ms);
               while (clock_type::now() - start < 5ms) {
               }
               const std::uint64_t missed = co_await every.async_tick(); // immediately
               const auto now = clock_type::now() - start;
               const std::uint64_t one = co_await every.async_tick();
               co_return missed >= 4 && missed <= static_cast<std::uint64_t>(now / 1ms) &&
                   one >= 1 && clock_type::now() - start >= (missed + one) * 1ms;
           }).join());
}

TEST_CASE("interval: a tick whose wait timed out is not lost") {
    const test::watchdog guard;
    scheduler s(with(1, false));
    CHECK(s.spawn([]() -> task<bool> {
               const auto start = clock_type::now();
               interval every(20ms);
               const auto given_up = co_await every.async_tick().with_timeout(1us);
               const auto stays_out = co_await every.async_tick().with_timeout(-1s);
               const std::uint64_t first = co_await every.async_tick();
               const auto now = clock_type::now() - start;
               // On a busy machine, the time-outs may be later than the tick.
               const bool in_time = !given_up && !stays_out;
               co_return !in_time ||
                   (now >= 20ms && first >= 1 && first <= static_cast<std::uint64_t>(now / 20ms));
           }).join());
}

TEST_CASE("interval: the tick of a cancelled task is stopped") {
    const test::watchdog guard;
    std::atomic<bool> waits{false};
    scheduler s(with(1, false));
    auto h = s.spawn([&]() -> task<bool> {
        interval never(std::chrono::hours::max());
        waits = true;
        const auto tick = co_await never.async_tick().as_result();
        co_return !tick && tick.error() == bide::errc::stopped;
    });
    REQUIRE(test::eventually([&] { return waits.load(); }));
    h.cancel();
    CHECK(std::move(h).join());
}

namespace {

test::detached count_ticks(std::atomic<std::uint64_t>& ticks) {
    interval every(100us);
    for (int i = 0; i < 5; ++i) {
        ticks += co_await every.async_tick();
    }
    ticks += 1'000'000;
}

} // namespace

TEST_CASE("interval: a coroutine without scheduler may use one") {
    const test::watchdog guard;
    std::atomic<std::uint64_t> ticks{0};
    count_ticks(ticks);
    CHECK(test::eventually([&] { return ticks >= 1'000'005; }));
}

// ---- Missed ticks

namespace {

// The values of the due ticks, up to six.
task<std::vector<std::uint64_t>> due(interval& every) {
    std::vector<std::uint64_t> said;
    for (int i = 0; i < 6; ++i) {
        const auto tick = co_await every.async_tick().with_timeout(0s);
        if (!tick) {
            break;
        }
        said.push_back(*tick);
    }
    co_return said;
}

// The time until the second tick from now.
task<clock_type::duration> two_ticks(interval& every) {
    const auto start = clock_type::now();
    co_await every.async_tick();
    co_await every.async_tick();
    co_return clock_type::now() - start;
}

using counts = std::vector<std::uint64_t>;
using bide::missed_ticks;

} // namespace

TEST_CASE("interval: the policy decides whether due ticks come as one tick or each on its own") {
    const auto since = clock_type::now() - 3h; // four ticks are due
    interval skips(1h);
    skips.reset_at(since);
    CHECK(bide::sync_wait(due(skips)) == counts{4});
    interval bursts(1h, missed_ticks::burst);
    bursts.reset_at(since);
    CHECK(bide::sync_wait(due(bursts)) == counts{1, 1, 1, 1});
    interval delays(1h, missed_ticks::delay);
    delays.reset_at(since);
    CHECK(bide::sync_wait(due(delays)) == counts{4});

    interval old(1h); // its time is before the start of the steady clock
    old.reset_at(clock_type::time_point() - 3h);
    const counts said = bide::sync_wait(due(old));
    REQUIRE(said.size() == 1);
    CHECK(said[0] >= 4);
}

TEST_CASE("interval: with delay, the next tick comes a whole period after the late one") {
    const test::watchdog guard;
    interval every(10ms, missed_ticks::delay);
    every.reset_at(clock_type::now() - 39ms);
    CHECK(bide::sync_wait(two_ticks(every)) >= 10ms);
}

TEST_CASE("interval: reset drops missed ticks, and the next tick comes a whole period later") {
    const test::watchdog guard;
    const auto policy = GENERATE(missed_ticks::skip, missed_ticks::burst, missed_ticks::delay);
    interval every(5ms, policy);
    every.reset_at(clock_type::now() - 1h);
    const auto start = clock_type::now();
    every.reset();
    bide::sync_wait(two_ticks(every));
    CHECK(clock_type::now() - start >= 10ms);
}

TEST_CASE("interval: after reset_at the ticks come at their new times, never too early") {
    const test::watchdog guard;
    interval every(5ms);
    const auto first = clock_type::now() + 10ms;
    every.reset_at(first);
    bide::sync_wait(two_ticks(every));
    CHECK(clock_type::now() >= first + 5ms);
    every.reset_at(clock_type::time_point::min());
    const counts since_ever = bide::sync_wait(due(every));
    REQUIRE_FALSE(since_ever.empty());
    CHECK(since_ever[0] >= 1);
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

#if BIDE_TESTS_CAN_DIE
TEST_CASE("interval: a period of zero or less terminates with a message") {
    CHECK(test::contains(test::dies([] { const interval none(0s); }), "the period of an interval"));
    CHECK(
        test::contains(test::dies([] { const interval none(-1ms); }), "the period of an interval"));
}
#endif
