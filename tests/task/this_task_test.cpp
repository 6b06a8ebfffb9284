#include <bide/sched/report.hpp>
#include <bide/task/this_task.hpp>

#include <bide/sync/semaphore.hpp>
#include <support/fake_clock.hpp>
#include <support/scheduling.hpp>
#include <support/waiting.hpp>

using bide::scheduler;
using bide::scheduler_stats;
using bide::sync_wait;
using bide::task;
using bide::this_task::get_stop_token;
using bide::this_task::is_cancelled;
using bide::this_task::shield;
using bide::this_task::sleep_for;
using bide::this_task::sleep_until;
using bide::this_task::yield;
using test::with;
using clock_type = std::chrono::steady_clock;

TEST_CASE("sleep_for: is never too short, and a time of zero or less completes immediately",
          "[promise.timeouts-on-time]") {
    const unsigned workers = GENERATE(1u, 2u);
    const bool naps = GENERATE(true, false);
    CAPTURE(workers, naps);
    scheduler s(with(workers, naps));
    CHECK(s.spawn([]() -> task<int> {
               int early = 0;
               for (int i = 0; i < 20; ++i) {
                   const auto start = clock_type::now();
                   const auto rest = std::chrono::microseconds(37 * i);
                   co_await sleep_for(rest);
                   early += clock_type::now() - start < rest ? 1 : 0;
               }
               co_return early;
           }).join() == 0);
    test::fall_asleep(s); // timers are counted after their tasks run again
    const scheduler_stats before = stats_of(s);
    s.spawn([]() -> task<> {
         co_await sleep_for(0s);
         co_await sleep_for(-1h);
         co_await sleep_until(clock_type::now() - 1h);
         co_await sleep_until(clock_type::time_point::min());
         co_await sleep_until(std::chrono::system_clock::now() - 1h);
     }).join();
    const scheduler_stats after = stats_of(s);
    CHECK(after.timers_fired == before.timers_fired);
}

TEST_CASE("sleep_until: takes a time of any clock") {
    scheduler s(with(1, false));
    CHECK(s.spawn([]() -> task<int> {
               const auto a = clock_type::now() + 2ms;
               co_await sleep_until(a);
               const auto b = std::chrono::system_clock::now() + 2ms;
               co_await sleep_until(b);
               co_return (clock_type::now() < a ? 1 : 0) +
                   (std::chrono::system_clock::now() < b ? 2 : 0);
           }).join() == 0);
}

TEST_CASE("sleep_until: ends when its clock is set past its time") {
    struct tag {};
    using clock = test::fake_clock<tag>;
    clock::set(10h);
    clock::reads = 0;
    scheduler s(with(1, false));
    auto sleeper = s.spawn([]() -> task<bool> {
        co_await sleep_until(clock::time_point(11h));
        co_return clock::now() >= clock::time_point(11h);
    });
    auto limited = s.spawn([]() -> task<bool> {
        const auto slept = co_await sleep_until(clock::time_point(13h)).with_timeout(1ms);
        co_return !slept && slept.error() == bide::errc::timeout;
    });
    REQUIRE(test::eventually([] { return clock::reads > 4; }));
    CHECK(std::move(limited).join());
    clock::set(9h);
    clock::set(12h);
    CHECK(std::move(sleeper).join());
}

TEST_CASE("sleep_for: the longest time ends only by a stop or a time-out") {
    std::stop_source stop;
    scheduler s(with(1, false));
    const auto sleeps = [&stop](auto rest) {
        return [&stop, rest]() -> task<int> {
            const auto slept = co_await sleep_for(rest).with_stop(stop.get_token());
            co_return slept ? 1 : slept.error() == bide::errc::stopped ? 2 : 3;
        };
    };
    auto a = s.spawn(sleeps(std::chrono::hours::max()));
    auto b = s.spawn(sleeps(std::chrono::nanoseconds::max()));
    auto c = s.spawn(sleeps(std::chrono::duration<double>(1e300)));
    CHECK(s.spawn([]() -> task<bool> {
               const auto slept = co_await sleep_for(std::chrono::hours::max()).with_timeout(1ms);
               co_return !slept && slept.error() == bide::errc::timeout;
           }).join());
    CHECK(s.spawn([]() -> task<bool> {
               const auto slept = co_await sleep_for(1ms).with_timeout(1h);
               co_return slept.has_value();
           }).join());
    stop.request_stop();
    CHECK(std::move(a).join() == 2);
    CHECK(std::move(b).join() == 2);
    CHECK(std::move(c).join() == 2);
}

TEST_CASE("this_task: workers fire the time-outs of their tasks, whatever these wait for") {
    const unsigned workers = GENERATE(1u, 2u);
    bide::semaphore none(0);
    const auto times = [&none](std::chrono::microseconds rest) -> task<int> {
        int out = 0;
        for (int i = 0; i < 10; ++i) {
            const auto got = co_await none.async_acquire().with_timeout(rest);
            out += got ? 0 : 1;
            co_await sleep_for(rest);
        }
        co_return out;
    };
    // A time that has passed before its wait begins needs no timer.
    CHECK(test::in_some_time(1ms, [&](auto rest) {
        scheduler s(with(workers, false));
        CHECK(s.spawn(times(rest)).join() == 10);
        s.shutdown();                          // all are counted
        CHECK(stats_of(s).timers_fired <= 20); // no other timer fired
        return stats_of(s).timers_fired == 20;
    }));
    scheduler s(with(workers, false));
    CHECK(s.spawn([&] { // another thread takes its worker over meanwhile
               auto other = s.spawn([&] { none.release(); });
               none.acquire();
               std::move(other).join();
               return sync_wait(times(100us));
           })
              .join() == 10);
    CHECK(none.waiters() == 0);
}

TEST_CASE("sleep_for: a coroutine without scheduler may sleep") {
    CHECK(sync_wait([]() -> task<bool> {
        const auto start = clock_type::now();
        co_await sleep_for(1ms);
        co_await yield();
        co_return clock_type::now() - start >= 1ms && !is_cancelled() &&
            !get_stop_token().stop_possible();
    }()));
}

TEST_CASE("this_task: if no task runs, is_cancelled() is false and a shield does nothing") {
    CHECK_FALSE(is_cancelled());
    CHECK_FALSE(get_stop_token().stop_possible());
    const shield nothing;
    const shield again;
    CHECK_FALSE(is_cancelled());
}

TEST_CASE("this_task: a cancellation stops every copy of the task's stop token") {
    bide::semaphore none(0);
    std::atomic<int> called{0};
    std::optional<std::stop_token> kept;
    std::atomic<bool> is_kept{false};
    scheduler s(with(1, false));
    auto h = s.spawn([&]() -> task<int> {
        const auto inner = []() -> task<std::stop_token> { co_return get_stop_token(); };
        const std::stop_token token = get_stop_token();
        const std::stop_token same = co_await inner();
        kept = token;
        is_kept = true;
        const auto count = [&called] { ++called; };
        const std::stop_callback<decltype(count)> callback(token, count);
        const auto got = co_await none.async_acquire().as_result();
        co_return (got ? 0 : 1) + (token.stop_requested() ? 2 : 0) + (token == same ? 4 : 0);
    });
    REQUIRE(test::eventually([&] { return is_kept && none.waiters() == 1; }));
    CHECK_FALSE(kept->stop_requested());
    h.cancel();
    CHECK(std::move(h).join() == 7);
    CHECK(called == 1);
    CHECK(kept->stop_requested());
}

TEST_CASE("shield: a cancellation takes effect when the shield ends",
          "[promise.cancel-ends-wait]") {
    const bool naps = GENERATE(true, false);
    const bool waits = GENERATE(true, false); // false: it runs when it is cancelled
    CAPTURE(naps, waits);
    bide::semaphore permits(0);
    bide::semaphore none(0);
    std::atomic<bool> shielded{false};
    std::atomic<bool> cancelled{false};
    std::atomic<int> called{0};
    scheduler s(with(2, naps));
    auto h = s.spawn([&]() -> task<std::string> {
        std::string seen;
        const std::stop_token token = get_stop_token();
        const auto count = [&called] { ++called; };
        const std::stop_callback<decltype(count)> callback(token, count);
        {
            const shield outer;
            {
                const shield inner;
                shielded = true;
                if (!waits) {
                    test::spin_until(cancelled);
                }
                auto got = co_await permits.async_acquire().as_result();
                seen += got ? "g" : "-";
                if (got) {
                    got->forget();
                }
            }
            co_await yield();
            seen += is_cancelled() || token.stop_requested() ? "-" : "n";
            seen += called == 0 ? "0" : "-";
        }
        seen += is_cancelled() && token.stop_requested() ? "c" : "-";
        seen += called == 1 ? "1" : "-";
        {
            const shield late; // this shield holds
            co_await yield();
            seen += is_cancelled() ? "-" : "n";
        }
        const auto got = co_await none.async_acquire().as_result();
        seen += got ? "-" : "s";
        co_return seen;
    });
    REQUIRE(test::eventually([&] { return shielded.load(); }));
    if (waits) {
        REQUIRE(test::has_waiters(permits, 1));
    }
    CHECK(h.cancel());
    cancelled = true;
    if (waits) {
        CHECK(permits.waiters() == 1);
    }
    permits.release();
    CHECK(std::move(h).join() == "gn0c1ns");
}

namespace {

// Nests that many shields, and then returns whether the task is cancelled.
task<bool> nest(int depth, std::atomic<bool>& deep, const std::atomic<bool>& cancelled) {
    std::deque<shield> all;
    for (int i = 0; i < depth; ++i) {
        all.emplace_back();
    }
    deep = true;
    test::spin_until(cancelled);
    bool seen = is_cancelled();
    while (!all.empty()) {
        seen = seen || is_cancelled();
        all.pop_back();
    }
    co_return !seen && is_cancelled();
}

} // namespace

TEST_CASE("shield: 65,535 nest, and neither a reference nor a cancellation is lost",
          "[promise.cancel-ends-wait]") {
    scheduler s(with(1, false));
    for (const int depth : {1, 255, 256, 257, 60'000, 65'535}) {
        std::atomic<bool> deep{false};
        std::atomic<bool> cancelled{false};
        auto h = s.spawn(nest(depth, deep, cancelled));
        REQUIRE(test::eventually([&] { return deep.load(); }));
        CHECK_FALSE(h.done());
        CHECK(h.cancel());
        cancelled = true;
        CHECK(std::move(h).join());
    }
}

#if BIDE_TESTS_CAN_DIE_AT_WORK
TEST_CASE("shield: more than 65,535 terminate with a message") {
    CHECK(test::contains(test::dies([] {
                             scheduler s(with(1, false));
                             std::atomic<bool> yes{true};
                             s.spawn(nest(65'536, yes, yes)).join();
                         }),
                         "more than 65535 shields"));
}
#endif

TEST_CASE("shield: holds while the task changes its worker and blocks") {
    bide::semaphore permits(0);
    test::thread_executor elsewhere;
    scheduler s(with(1, false));
    scheduler other(with(1, false));
    auto h = s.spawn([&]() -> task<std::string> {
        std::string seen;
        {
            const shield on;
            auto first = co_await permits.async_acquire().resume_on(elsewhere);
            first.forget();
            seen += is_cancelled() ? "-" : "n";
            co_await other.schedule();
            seen += is_cancelled() ? "-" : "n";
            co_await yield();
            permits.acquire(); // its worker runs another task meanwhile
            seen += is_cancelled() ? "-" : "n";
        }
        seen += is_cancelled() ? "c" : "-";
        co_return seen;
    });
    REQUIRE(test::has_waiters(permits, 1));
    CHECK(h.cancel());
    permits.release();
    REQUIRE(test::has_waiters(permits, 1));
    s.spawn([&] { permits.release(); }).join();
    CHECK(std::move(h).join() == "nnnc");
}
