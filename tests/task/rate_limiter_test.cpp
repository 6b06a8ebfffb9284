#include <bide/task/rate_limiter.hpp>

#include <bide/task/with_deadline.hpp>
#include <support/rounds.hpp>
#include <support/simulated.hpp>
#include <support/tasks.hpp>

using bide::rate_limiter;
using bide::scheduler;
using bide::task;
using test::runner;
using test::workers;
namespace this_task = bide::this_task;

namespace {

using tokens = bide::detail::basic_token_count<bide::native_platform>;
constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();

} // namespace

TEST_CASE("rate_limiter: tokens come at exact times, of a rate that is no whole number of ns",
          "[promise.rate-exact]") {
    tokens t(1000, 3, 10, 1); // 3 in 10 ns: after 4, 7 and 10 ns
    std::vector<std::int64_t> times;
    for (int i = 0; i < 8; ++i) {
        times.push_back(t.take(1000, 1, never).ready - 1000);
    }
    CHECK(times == std::vector<std::int64_t>{0, 4, 7, 10, 14, 17, 20, 24});
    tokens other(0, 3, 10, 1);
    for (std::int64_t now = 0; now <= 24; ++now) {
        const bool there = std::find(times.begin(), times.end(), now) != times.end();
        CHECK(static_cast<bool>(other.take(now, 1, now)) == there);
    }
}

TEST_CASE(
    "rate_limiter: the bucket is full at the start, holds no more than the burst, and refills") {
    tokens t(0, 1, 10, 5);
    CHECK(t.available(0) == 5);
    CHECK(t.take(0, 3, 0));
    CHECK(t.available(0) == 2);
    CHECK_FALSE(t.take(0, 3, 0));
    CHECK(t.take(10, 3, 10));
    CHECK(t.available(10) == 0);
    CHECK(t.available(49) == 3);
    CHECK(t.available(1'000'000) == 5);
    CHECK(t.take(1'000'000, 5, 1'000'000));
    CHECK_FALSE(t.take(1'000'009, 1, 1'000'009));
    CHECK(t.take(1'000'010, 1, 1'000'010));
    CHECK(t.take(1'000'010, 5, never).ready == 1'000'060);
    CHECK(t.available(1'000'030) == 0);
}

TEST_CASE(
    "rate_limiter: a reservation that is cancelled is returned, unless a later one was made") {
    tokens t(0, 1, 10, 1);
    const auto a = t.take(0, 1, never);
    const auto b = t.take(0, 1, never);
    const auto c = t.take(0, 1, never);
    CHECK(a.ready == 0);
    CHECK(b.ready == 10);
    CHECK(c.ready == 20);
    CHECK_FALSE(t.give_back(b));
    CHECK(t.give_back(c));
    CHECK_FALSE(t.give_back(c));
    CHECK(t.give_back(b)); // the last one now
    CHECK(t.take(0, 1, never).ready == 10);
}

TEST_CASE("rate_limiter: times far away saturate") {
    tokens t(5, 1, never / 4, 1);
    for (const std::int64_t at :
         {std::int64_t{5}, 5 + never / 4, 5 + never / 4 * 2, 5 + never / 4 * 3, never, never}) {
        CHECK(t.take(5, 1, never).ready == at);
    }
}

TEST_CASE("rate_limiter: tokens that are never there do not begin anew") {
    tokens t(0, 1, 10, never);
    for (int i = 0; i < 5; ++i) {
        CHECK(t.take(0, t.burst(), never).ready == (i == 0 ? 0 : never));
    }
    CHECK(t.available(never) == 0);
    CHECK_FALSE(t.take(never - 1, 1, never - 1));
}

TEST_CASE("rate_limiter: after a pause of any length, the next interval is whole",
          "[promise.rate-exact]") {
    struct rate {
        std::int64_t n, period;
    };
    const auto of = GENERATE(rate{1, 1'000}, rate{3, 1'000}, rate{999'983, 1'000'000'000},
                             rate{1'000, 3'600'000'000'000}, rate{7, 86'400'000'000'000});
    const std::int64_t burst = GENERATE(1, 4);
    const std::int64_t per_mille = GENERATE(1, 499, 500, 999);
    CAPTURE(of.n, of.period, burst, per_mille);
    const double interval = static_cast<double>(of.period) / static_cast<double>(of.n);
    const double exact_to = (std::max)(2.0, interval / 10'000);
    tokens t(50, of.n, of.period, burst);
    std::int64_t now = 50;
    for (int pause = 0; pause < 20; ++pause) {
        now += 1 + static_cast<std::int64_t>(interval * (static_cast<double>(burst) +
                                                         static_cast<double>(per_mille) / 1'000));
        REQUIRE(t.available(now) == static_cast<std::uint64_t>(burst));
        CHECK(t.take(now, static_cast<std::uint64_t>(burst), now).ready == now);
        const auto next = t.take(now, 1, never);
        CHECK(static_cast<double>(next.ready - now) >= interval - exact_to);
        CHECK(static_cast<double>(next.ready - now) <= interval + exact_to);
        CHECK(t.give_back(next));
    }
}

TEST_CASE("rate_limiter: a reservation is cancelled once, also if it was moved") {
    static_assert(!std::is_copy_constructible_v<rate_limiter::reservation>);
    rate_limiter r(1, 1h, 5);
    auto a = r.reserve(2);
    const auto when = a.ready_at();
    auto b = std::move(a);
    CHECK_FALSE(a.cancel());
    CHECK(b.cancel());
    CHECK_FALSE(b.cancel());
    CHECK(b.ready_at() == when);
    a = r.reserve(3);
    b = std::move(a);
    CHECK_FALSE(a.cancel());
    CHECK(r.available() == 2);
    CHECK(b.cancel());
    CHECK(r.available() == 5);
}

TEST_CASE("rate_limiter: refuses a rate of zero, and rates and bursts out of range",
          "[promise.misuse-refused]") {
    CHECK_THROWS_AS(rate_limiter(0, 1s), std::invalid_argument);
    CHECK_THROWS_AS(rate_limiter(-1, 1s), std::invalid_argument);
    CHECK_THROWS_AS(rate_limiter(1, 0s), std::invalid_argument);
    CHECK_THROWS_AS(rate_limiter(1, -1s), std::invalid_argument);
    CHECK_THROWS_AS(rate_limiter(1, 1s, 0), std::invalid_argument);
    CHECK_THROWS_AS(rate_limiter(2, 1ns), std::invalid_argument);
    CHECK_THROWS_AS(rate_limiter(1'000'000'000, 24h), std::invalid_argument);
    rate_limiter r(1, 1h, 3);
    CHECK_THROWS_AS(r.acquire(0), std::invalid_argument);
    CHECK_THROWS_AS(r.acquire(4), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(r.reserve(4)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(r.async_acquire(4)), std::invalid_argument);
    CHECK_FALSE(r.try_acquire(4));
    CHECK_FALSE(r.try_acquire(0));
    CHECK(r.available() == 3);
}

TEST_CASE("rate_limiter: an acquisition that gives up returns its tokens") {
    test::simulated run;
    rate_limiter r(1, 1h, 2);
    r.acquire(2);
    CHECK_FALSE(r.try_acquire());
    CHECK_FALSE(r.try_acquire_for(10min));
    CHECK_FALSE(r.try_acquire_until(bide::test::clock::now() + 10min));
    CHECK_FALSE(r.try_acquire_until(bide::test::system_clock::now() + 10min));
    const auto first = r.reserve().ready_at();
    auto second = r.reserve();
    CHECK(second.ready_at() - first == 1h);
    CHECK(second.cancel());
    CHECK_FALSE(second.cancel());
    std::stop_source source;
    source.request_stop();
    CHECK(r.acquire(source.get_token()).error() == bide::errc::stopped);
    auto h = run.spawn(r.async_acquire());
    run.run_ready();
    h.cancel();
    CHECK(test::ended_by_stop(std::move(h)));
    CHECK(run.run_until(bide::with_timeout(r.async_acquire(), 1ms)).error() == bide::errc::timeout);
    CHECK(run.now() == 1ms);
    auto third = r.reserve();
    CHECK(third.ready_at() - first == 1h);
}

TEST_CASE("rate_limiter: waits of each kind end when the tokens come", "[promise.rate-exact]") {
    test::simulated run;
    rate_limiter r(2, 10ms, 2);
    r.acquire(2); // the bucket is full
    CHECK(run.now() == 0ms);
    r.acquire();
    CHECK(run.now() == 5ms);
    CHECK_FALSE(r.try_acquire_for(5ms - 1ns));
    CHECK(run.now() == 5ms);
    CHECK(r.try_acquire_for(5ms));
    CHECK(run.now() == 10ms);
    CHECK(r.acquire(std::stop_source().get_token(), 2));
    CHECK(run.now() == 20ms);
    std::vector<std::chrono::nanoseconds> times;
    const auto takes = [&](std::int64_t n) -> task<> {
        co_await r.async_acquire(n);
        times.push_back(bide::test::now());
    };
    run.spawn(takes(1)).detach();
    run.spawn(takes(2)).detach();
    run.spawn(takes(1)).detach();
    run.run();
    CHECK(times == std::vector<std::chrono::nanoseconds>{25ms, 35ms, 40ms});
}

TEST_CASE("rate_limiter: a task whose deadline comes before its tokens takes none",
          "[promise.rate-exact]") {
    test::simulated run;
    rate_limiter r(1, 1h, 1);
    r.acquire();
    std::vector<bide::join_handle<bide::result<void>>> all;
    for (int i = 0; i < 10; ++i) {
        all.push_back(run.spawn(bide::with_timeout(r.async_acquire(), 2ms)));
    }
    run.run_ready();
    CHECK(r.reserve().ready_at() - bide::test::clock::now() == 1h);
    for (auto& h : all) {
        CHECK(std::move(h).join().error() == bide::errc::timeout);
    }
    CHECK(run.now() == 2ms);
}

TEST_CASE("rate_limiter: threads and tasks together never acquire more than the rate, nor less",
          "[promise.rate-exact]") {
    for (const std::int64_t burst : {1, 7}) {
        scheduler s(workers(2));
        rate_limiter r(2, 1us, burst);
        std::atomic<std::int64_t> taken{0};
        std::atomic<bool> too_many{false};
        const auto began = std::chrono::steady_clock::now();
        const auto note = [&] {
            const std::int64_t all = ++taken;
            const auto past = std::chrono::steady_clock::now() + 1us - began;
            if (all > burst +
                          2 * std::chrono::duration_cast<std::chrono::microseconds>(past).count() +
                          2) {
                too_many = true;
            }
        };
        const auto takes = [&]() -> task<> {
            for (int i = 0; i < 500; ++i) {
                co_await r.async_acquire();
                note();
            }
        };
        auto a = s.spawn(takes());
        auto b = s.spawn(takes());
        test::run_threads(2, [&](int me) {
            for (int i = 0; i < 500; ++i) {
                if (me == 0) {
                    r.acquire();
                } else {
                    while (!r.try_acquire()) {
                    }
                }
                note();
            }
        });
        std::move(a).join();
        std::move(b).join();
        CHECK(taken == 2000);
        CHECK_FALSE(too_many);
    }
}

TEST_CASE("rate_limiter: the slowest, the fastest and the largest are kept without an overflow") {
    constexpr auto most = (std::numeric_limits<std::int64_t>::max)();
    rate_limiter slowest(1, (std::chrono::nanoseconds::max)(), most);
    CHECK(slowest.available() == most);
    CHECK(slowest.try_acquire(most));
    CHECK(slowest.available() == 0);
    CHECK_FALSE(slowest.try_acquire());
    CHECK_FALSE(slowest.try_acquire_for(1h));
    auto first = slowest.reserve(most);
    auto second = slowest.reserve(most); // the tokens of these come never
    auto third = slowest.reserve(most);
    CHECK(first.ready_at() <= second.ready_at());
    CHECK(second.ready_at() <= third.ready_at());
    CHECK_FALSE(first.cancel());
    CHECK_FALSE(slowest.try_acquire());

    rate_limiter half(2, std::chrono::nanoseconds(most / 2));
    CHECK(half.try_acquire());
    auto next = half.reserve();
    auto last = half.reserve();
    CHECK(next.ready_at() < last.ready_at());
    std::stop_source stop;
    stop.request_stop();
    CHECK_FALSE(half.acquire(stop.get_token()).has_value());

    rate_limiter fastest(1'000'000'000, 1s, most);
    CHECK(fastest.try_acquire(most));
    const auto odd = std::chrono::nanoseconds(3'037'000'499); // its square is just below 2^63
    rate_limiter square(odd.count() - 1, odd, 7);
    CHECK(square.try_acquire(7));
    square.acquire(7);
    CHECK_THROWS_AS(rate_limiter(most, (std::chrono::nanoseconds::max)()), std::invalid_argument);
    const double none = std::numeric_limits<double>::quiet_NaN();
    CHECK_THROWS_AS(rate_limiter(1, std::chrono::duration<double>(none)), std::invalid_argument);
    const double endless = std::numeric_limits<double>::infinity();
    CHECK_THROWS_AS(rate_limiter(1, std::chrono::duration<double>(-endless)),
                    std::invalid_argument);
    rate_limiter once(1, std::chrono::duration<double>(endless));
    CHECK(once.try_acquire());
    CHECK_FALSE(once.try_acquire());
}
