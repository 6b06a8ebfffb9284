#include <bide/stream/stream.hpp>

#include <support/simulated_streams.hpp>
#include <support/streaming.hpp>
#include <support/tasks.hpp>
#include <support/test.hpp>

using bide::debounce;
using bide::errc;
using bide::sync_wait;
using bide::task;
using bide::throttle;
using bide::timeout;
using test::consume;
using test::consume_timed;
using test::numbers;
using test::send_at;
using test::timed;
using clock_type = std::chrono::steady_clock;

namespace {

template <class Stream> auto first_of(Stream& from) {
    const auto take = [](Stream& s) -> task<typename Stream::next_type> {
        auto item = co_await s.next();
        co_return std::move(item);
    };
    return sync_wait(take(from));
}

// Sends 0, 1, ..., n - 1.
void fill(bide::channel<int>& to, int n) {
    for (int i = 0; i < n; ++i) {
        REQUIRE(to.try_send(i));
    }
}

} // namespace

TEST_CASE("throttle: yields an item each period, and drops none") {
    test::simulated run;
    const auto all = run.run_until(consume_timed(throttle(numbers(0, 4), 10ms)));
    CHECK(all == timed<int>{{0ms, 0}, {10ms, 1}, {20ms, 2}, {30ms, 3}});
}

TEST_CASE("throttle: the time that the consumer is busy counts for the period") {
    test::simulated run;
    const auto all = run.run_until(consume_timed(throttle(numbers(0, 3), 10ms), 30ms));
    CHECK(all == timed<int>{{0ms, 0}, {30ms, 1}, {60ms, 2}});
    const auto start = run.now(); // the longer of the two times counts
    const auto more = run.run_until(consume_timed(throttle(numbers(0, 4), 5s), 3s));
    CHECK(more == timed<int>{{start, 0}, {start + 5s, 1}, {start + 10s, 2}, {start + 15s, 3}});
}

TEST_CASE("throttle: asks its stream for an item when the period is over, not before") {
    bide::channel<int> items(4);
    test::simulated run;
    fill(items, 3);
    auto all = run.spawn(consume(throttle(&items, 1h)));
    run.run_for(1h - 1ns);
    CHECK(items.size() == 2);
    run.run_for(1ns);
    CHECK(items.size() == 1);
    all.cancel();
    const auto got = std::move(all).join();
    CHECK(got.items == std::vector{0, 1});
    CHECK(got.end == "stopped");
    CHECK(items.size() == 1); // no item is lost
}

TEST_CASE("throttle: without a period, does nothing; with the longest one, passes one item") {
    CHECK(sync_wait(consume(throttle(numbers(0, 3), 0s))).items == std::vector{0, 1, 2});
    CHECK(sync_wait(consume(throttle(numbers(0, 3), -1h))).items == std::vector{0, 1, 2});
    auto once = throttle(numbers(0, 3), std::chrono::hours::max());
    CHECK(first_of(once) == 0);
}

TEST_CASE("debounce: of items that come together, the last one comes a quiet time after it") {
    bide::channel<int> items(8);
    test::simulated run;
    run.spawn(send_at(items, {1ms, 4ms, 8ms, 20ms, 24ms, 40ms}, 41ms)).detach();
    const auto all = run.run_until(consume_timed(debounce(&items, 5ms)));
    // The end of the stream ends the last quiet time.
    CHECK(all == timed<int>{{13ms, 2}, {29ms, 4}, {41ms, 5}});
}

TEST_CASE("debounce: the end of the stream ends the quiet time, with or without an item") {
    bide::channel<int> items(8);
    fill(items, 1);
    items.close();
    CHECK(sync_wait(consume(debounce(&items, 1h))).items == std::vector{0});
    CHECK(sync_wait(consume(debounce(&items, 1h))).items.empty());
}

TEST_CASE("debounce: a cancelled consumer first gets the item that is there",
          "[promise.stream-keeps-items]") {
    bide::channel<std::unique_ptr<int>> items(8);
    test::simulated run;
    static_cast<void>(items.send(std::make_unique<int>(1)));
    static_cast<void>(items.send(std::make_unique<int>(2)));
    auto all = run.spawn(consume(debounce(&items, 1h)));
    run.run_ready();
    CHECK(items.empty());
    all.cancel();
    const auto got = std::move(all).join();
    REQUIRE(got.items.size() == 1);
    CHECK(*got.items[0] == 2);
    CHECK(got.end == "stopped");
    CHECK(run.now() == 0ms);
}

TEST_CASE("timeout: yields errc::timeout each time that no item comes in time, and goes on") {
    bide::channel<int> items(8);
    test::simulated run;
    run.spawn(send_at(items, {3ms, 28ms}, 30ms)).detach();
    const auto all = run.run_until(consume_timed(timeout(&items, 10ms)));
    const bide::result<int> late = bide::unexpected{errc::timeout};
    CHECK(all == timed<bide::result<int>>{{3ms, 0}, {13ms, late}, {23ms, late}, {28ms, 1}});
}

TEST_CASE("timeout: counts from the call of next(), however long the consumer was busy") {
    bide::channel<int> items(8);
    test::simulated run;
    run.spawn(send_at(items, {0ms, 16ms}, 40ms)).detach();
    const auto all = run.run_until(consume_timed(timeout(&items, 10ms), 7ms));
    // Of an item at 0 ms, next() is called at 7 ms.
    const bide::result<int> late = bide::unexpected{errc::timeout};
    CHECK(all == timed<bide::result<int>>{{0ms, 0}, {16ms, 1}, {33ms, late}});
}

TEST_CASE("timeout: with a limit of zero, makes one attempt") {
    bide::channel<int> items(8);
    auto limited = timeout(&items, 0s);
    fill(items, 1);
    const auto item = first_of(limited);
    REQUIRE(item);
    CHECK(*item == 0);
    const auto none = first_of(limited);
    REQUIRE(none);
    CHECK((!*none && none->error() == errc::timeout));
}

TEST_CASE("timeout: a cancellation is no time-out") {
    bide::channel<int> items(8);
    test::simulated run;
    fill(items, 1);
    auto all = run.spawn(consume(timeout(&items, 1h)));
    run.run_ready();
    all.cancel();
    const auto got = std::move(all).join();
    REQUIRE(got.items.size() == 1);
    CHECK(got.items[0] == 0);
    CHECK(got.end == "stopped");
    CHECK(run.now() == 0ms);
}

TEST_CASE("timing: on the real clock, no wait ends early") {
    test::runner run(GENERATE(false, true));
    const auto start = clock_type::now();
    CHECK(run(consume(throttle(numbers(0, 3), 2ms))).items == std::vector{0, 1, 2});
    CHECK(clock_type::now() - start >= 4ms);

    bide::channel<int> items(8);
    fill(items, 3);
    auto quiet = debounce(&items, 2ms);
    const auto sent = clock_type::now();
    CHECK(first_of(quiet) == 2);
    CHECK(clock_type::now() - sent >= 2ms);

    auto limited = timeout(&items, 1ms);
    const auto asked = clock_type::now();
    const auto late = first_of(limited);
    CHECK(clock_type::now() - asked >= 1ms);
    REQUIRE(late);
    CHECK((!*late && late->error() == errc::timeout));
}

TEST_CASE("timing: times of zero, negative, endless and undefined times lose no item") {
    using seconds = std::chrono::duration<double>;
    const double endless = std::numeric_limits<double>::infinity();
    const double undefined = std::numeric_limits<double>::quiet_NaN();
    for (const seconds time :
         {seconds(0), seconds(-3600), seconds(endless), seconds(-endless), seconds(undefined)}) {
        CAPTURE(time.count());
        bide::channel<int> some(5);
        fill(some, 5);
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
        fill(some, 5);
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
