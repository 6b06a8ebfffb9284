#include <bide/stream/timing.hpp>

#include <bide/channel/channel.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/catch.hpp>
#include <support/gate.hpp>
#include <support/streaming.hpp>
#include <support/tasks.hpp>

#include <chrono>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

using bide::debounce;
using bide::errc;
using bide::scheduler;
using bide::sync_wait;
using bide::task;
using bide::throttle;
using bide::timeout;
using test::consume;
using test::numbers;
using clock_type = std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

template <class Stream> auto first_of(Stream& from) {
    const auto take = [](Stream& s) -> task<typename Stream::next_type> {
        auto item = co_await s.next();
        co_return std::move(item);
    };
    return sync_wait(take(from));
}

} // namespace

// ---- throttle

TEST_CASE("throttle: no item comes too early, and none is dropped") {
    const bool pooled = GENERATE(false, true);
    test::runner run(pooled);
    const auto start = clock_type::now();
    const auto all = run(consume(throttle(numbers(0, 5), 2ms)));
    CHECK(clock_type::now() - start >= 8ms);
    CHECK(all.items == std::vector{0, 1, 2, 3, 4});
}

TEST_CASE("throttle: asks its stream for an item when the period is over, not before") {
    const test::watchdog guard;
    scheduler on(test::workers(2));
    bide::channel<int> items(4);
    for (int i = 0; i < 3; ++i) {
        static_cast<void>(items.send(i));
    }
    auto all = on.spawn(consume(throttle(&items, 1h)));
    REQUIRE(test::eventually([&items] { return items.size() == 2; }));
    all.cancel();
    const auto got = std::move(all).join();
    CHECK(got.items == std::vector{0});
    CHECK(got.end == "stopped");
    CHECK(items.size() == 2); // no item is lost
}

TEST_CASE("throttle: without a period, does nothing; with the longest one, passes one item") {
    CHECK(sync_wait(consume(throttle(numbers(0, 3), 0s))).items == std::vector{0, 1, 2});
    CHECK(sync_wait(consume(throttle(numbers(0, 3), -1h))).items == std::vector{0, 1, 2});
    auto once = throttle(numbers(0, 3), std::chrono::hours::max());
    CHECK(first_of(once) == 0);
}

// ---- debounce

TEST_CASE("debounce: of items that come together, the last one comes after a quiet time") {
    bide::channel<int> items(8);
    auto quiet = debounce(&items, 2ms);
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 5; ++i) {
            static_cast<void>(items.send(10 * round + i));
        }
        const auto start = clock_type::now();
        CHECK(first_of(quiet) == 10 * round + 4);
        CHECK(clock_type::now() - start >= 2ms);
    }
    for (int i = 0; i < 3; ++i) {
        static_cast<void>(items.send(i));
    }
    items.close();
    const auto rest = sync_wait(consume(std::move(quiet)));
    CHECK(rest.items == std::vector{2});
    CHECK(rest.end == "end");
}

TEST_CASE("debounce: the end of the stream ends the quiet time, with or without an item") {
    const test::watchdog guard;
    bide::channel<int> items(8);
    static_cast<void>(items.send(1));
    items.close();
    CHECK(sync_wait(consume(debounce(&items, 1h))).items == std::vector{1});
    CHECK(sync_wait(consume(debounce(&items, 1h))).items.empty());
}

TEST_CASE("debounce: a cancelled consumer first gets the item that is there",
          "[promise.stream-keeps-items]") {
    const test::watchdog guard;
    scheduler on(test::workers(2));
    bide::channel<std::unique_ptr<int>> items(8);
    static_cast<void>(items.send(std::make_unique<int>(1)));
    static_cast<void>(items.send(std::make_unique<int>(2)));
    auto all = on.spawn(consume(debounce(&items, 1h)));
    REQUIRE(test::eventually([&items] { return items.empty(); }));
    all.cancel();
    const auto got = std::move(all).join();
    REQUIRE(got.items.size() == 1);
    CHECK(*got.items[0] == 2);
    CHECK(got.end == "stopped");
}

// ---- timeout

TEST_CASE("timeout: yields errc::timeout whenever no item comes in time, and goes on") {
    bide::channel<int> items(8);
    auto limited = timeout(&items, 1ms);
    const auto early = first_of(limited);
    REQUIRE(early);
    CHECK((!*early && early->error() == errc::timeout));
    static_cast<void>(items.send(7));
    const auto item = first_of(limited);
    REQUIRE(item);
    CHECK(*item == 7);
    const auto again = first_of(limited);
    REQUIRE(again);
    CHECK((!*again && again->error() == errc::timeout));
    static_cast<void>(items.send(8));
    items.close();
    const auto last = first_of(limited);
    REQUIRE(last);
    CHECK(*last == 8);
    CHECK(!first_of(limited));
}

TEST_CASE("timeout: with a limit of zero, makes one attempt") {
    bide::channel<int> items(8);
    auto limited = timeout(&items, 0s);
    static_cast<void>(items.send(7));
    const auto item = first_of(limited);
    REQUIRE(item);
    CHECK(*item == 7);
    const auto none = first_of(limited);
    REQUIRE(none);
    CHECK((!*none && none->error() == errc::timeout));
}

TEST_CASE("timeout: a cancellation is no time-out") {
    const test::watchdog guard;
    scheduler on(test::workers(2));
    bide::channel<int> items(8);
    static_cast<void>(items.send(7));
    auto all = on.spawn(consume(timeout(&items, 1h)));
    REQUIRE(test::eventually([&items] { return items.empty(); }));
    all.cancel();
    const auto got = std::move(all).join();
    REQUIRE(got.items.size() == 1);
    CHECK(got.items[0] == 7);
    CHECK(got.end == "stopped");
}

TEST_CASE("timing: times of zero, negative, endless and undefined times lose no item") {
    using seconds = std::chrono::duration<double>;
    const test::watchdog guard;
    const double endless = std::numeric_limits<double>::infinity();
    const double undefined = std::numeric_limits<double>::quiet_NaN();
    for (const seconds time :
         {seconds(0), seconds(-3600), seconds(endless), seconds(-endless), seconds(undefined)}) {
        CAPTURE(time.count());
        bide::channel<int> some(5);
        const auto fill = [&] {
            for (int i = 0; i < 5; ++i) {
                REQUIRE(some.try_send(i));
            }
        };
        fill();
        const auto read = [&]() -> bide::task<int> {
            auto timed = bide::timeout(&some, time);
            int sum = 0;
            for (int i = 0; i < 5; ++i) {
                const auto got = co_await timed.next();
                sum += got && *got ? **got : 100;
            }
            co_return sum;
        };
        CHECK(bide::sync_wait(read()) == 10);
        fill();
        some.close();
        const auto last = [&]() -> bide::task<int> {
            auto quiet = bide::debounce(&some, time);
            int only = -1;
            for (auto got = co_await quiet.next(); got; got = co_await quiet.next()) {
                only = *got;
            }
            co_return only;
        };
        CHECK(bide::sync_wait(last()) == 4);
    }
}
