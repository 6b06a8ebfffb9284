#include <bide/sched/interval.hpp>

#include <bide/sched/scheduler.hpp>
#include <bide/sched/this_task.hpp>
#include <support/catch.hpp>
#include <support/coroutines.hpp>
#include <support/death.hpp>
#include <support/gate.hpp>
#include <support/scheduling.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>

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

TEST_CASE("interval: missed ticks are counted, not replayed") {
    const test::watchdog guard;
    scheduler s(with(1, false));
    CHECK(s.spawn([]() -> task<bool> {
               const auto start = clock_type::now();
               interval every(1ms);
               while (clock_type::now() - start < 5ms) {
               }
               const std::uint64_t missed = co_await every.async_tick(); // at once
               const auto now = clock_type::now() - start;
               const std::uint64_t one = co_await every.async_tick();
               co_return missed >= 4 && missed <= static_cast<std::uint64_t>(now / 1ms) &&
                   one >= 1 && clock_type::now() - start >= (missed + one) * 1ms;
           }).join());
}

TEST_CASE("interval: a tick that was given up is not lost") {
    const test::watchdog guard;
    scheduler s(with(1, false));
    CHECK(s.spawn([]() -> task<bool> {
               const auto start = clock_type::now();
               interval every(20ms);
               const auto given_up = co_await every.async_tick().with_timeout(1us);
               const auto stays_out = co_await every.async_tick().with_timeout(-1s);
               const std::uint64_t first = co_await every.async_tick();
               const auto now = clock_type::now() - start;
               // Where the machine was busy, the first two may have waited long enough.
               const bool in_time = !given_up && !stays_out;
               co_return !in_time ||
                   (now >= 20ms && first >= 1 && first <= static_cast<std::uint64_t>(now / 20ms));
           }).join());
}

TEST_CASE("interval: a cancelled task's tick is stopped") {
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

TEST_CASE("interval: any coroutine may use one, without a scheduler too") {
    const test::watchdog guard;
    std::atomic<std::uint64_t> ticks{0};
    count_ticks(ticks);
    CHECK(test::eventually([&] { return ticks >= 1'000'005; }));
}

#if BIDE_TESTS_CAN_DIE
TEST_CASE("interval: one of no length says so and terminates") {
    CHECK(test::contains(test::dies([] { const interval none(0s); }), "interval of no length"));
    CHECK(test::contains(test::dies([] { const interval none(-1ms); }), "interval of no length"));
}
#endif
