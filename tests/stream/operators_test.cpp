#include <bide/stream/operators.hpp>

#include <bide/channel/channel.hpp>
#include <bide/task/interval.hpp>
#include <support/coroutines.hpp>
#include <support/simulated_streams.hpp>
#include <support/streaming.hpp>
#include <support/tasks.hpp>
#include <support/test.hpp>

using bide::collect;
using bide::from_range;
using bide::sync_wait;
using test::consume;
using test::consume_timed;
using test::numbers;
using test::numbers_then_failure;
using test::send_at;
using test::timed;
using namespace std::chrono_literals;

namespace {

template <class Stream> auto all_of(Stream from) { return sync_wait(collect(std::move(from))); }

const auto keep_moved = [](std::unique_ptr<int>& n) { return std::move(n); };

} // namespace

TEST_CASE("from_range: yields the elements of a range that it owns or borrows") {
    std::vector<int> mine{1, 2, 3};
    CHECK(all_of(from_range(mine)) == mine); // a copy
    CHECK(all_of(from_range(std::list{1, 2, 3})) == mine);
    CHECK(all_of(from_range(std::vector<int>())).empty());
    int array[] = {1, 2, 3};
    CHECK(all_of(from_range(&array)) == mine);

    const auto doubles = [](auto borrowed) -> bide::task<> {
        while (int* const n = co_await borrowed.next()) {
            *n *= 2;
        }
    };
    sync_wait(doubles(from_range(&mine)));
    sync_wait(doubles(from_range(std::span(mine))));
    CHECK(mine == std::vector{4, 8, 12});
}

TEST_CASE("take and skip: a part of the items; take asks for no further item") {
    CHECK(all_of(bide::take(numbers(0, 9), 3)) == std::vector{0, 1, 2});
    CHECK(all_of(bide::take(numbers(0, 2), 3)) == std::vector{0, 1});
    CHECK(all_of(bide::take(numbers_then_failure(0, 2), 2)) == std::vector{0, 1});
    CHECK(all_of(bide::take(numbers_then_failure(0, 0), 0)).empty());
    CHECK(all_of(bide::skip(numbers(0, 4), 2)) == std::vector{2, 3});
    CHECK(all_of(bide::skip(numbers(0, 4), 0)) == std::vector{0, 1, 2, 3});
    CHECK(all_of(bide::skip(numbers(0, 4), 5)).empty());
    CHECK(sync_wait(consume(bide::skip(numbers_then_failure(0, 1), 5))).end == "no more");

    bide::channel<int> items(8);
    for (int i = 0; i < 5; ++i) {
        REQUIRE(items.try_send(i));
    }
    CHECK(all_of(bide::take(&items, 3)) == std::vector{0, 1, 2});
    CHECK(items.size() == 2); // none is lost
    items.close();
    CHECK(all_of(bide::skip(&items, 1)) == std::vector{4});
}

TEST_CASE("zip and from_range: what is collected outlives a range that the stream owned") {
    std::vector<std::string> names{"a", "b"};
    auto pairs = all_of(bide::zip(from_range(&names), from_range(std::vector<int>{1, 2})));
    static_assert(std::is_same_v<decltype(pairs), std::vector<std::pair<std::string, int>>>);
    CHECK(pairs.at(1) == std::pair<std::string, int>("b", 2));
    auto bits = all_of(from_range(std::vector<bool>{true, false}));
    static_assert(std::is_same_v<decltype(bits), std::vector<bool>>);
    CHECK((bits.at(0) && !bits.at(1)));
}

TEST_CASE("zip: pairs until one stream ends; items are moved") {
    const auto pairs = all_of(bide::zip(numbers(0, 3), numbers(5, 9)));
    CHECK(pairs == std::vector<std::pair<int, int>>{{0, 5}, {1, 6}, {2, 7}});
    CHECK(all_of(bide::zip(numbers(0, 3), numbers(0, 0))).empty());
    CHECK(all_of(bide::zip(numbers(0, 0), numbers_then_failure(0, 0))).empty());
    CHECK(sync_wait(consume(bide::zip(numbers(0, 3), numbers_then_failure(0, 1)))).end ==
          "no more");

    std::vector<std::unique_ptr<int>> owned;
    owned.push_back(std::make_unique<int>(7));
    auto moved = all_of(bide::zip(bide::map(from_range(&owned), keep_moved), numbers(0, 3)));
    REQUIRE(moved.size() == 1);
    CHECK((*moved[0].first == 7 && moved[0].second == 0 && owned[0] == nullptr));
}

TEST_CASE("scan: yields the state after each item") {
    CHECK(all_of(bide::scan(numbers(1, 5), 0L, std::plus())) == std::vector{1L, 3L, 6L, 10L});
    CHECK(all_of(bide::scan(numbers(0, 0), 0, std::plus())).empty());
    const auto append = [](std::string s, int n) { return std::move(s) + std::to_string(n); };
    CHECK(all_of(bide::scan(numbers(1, 4), std::string("="), append)) ==
          std::vector<std::string>{"=1", "=12", "=123"});
    const auto fails = [](int, int n) { return n == 2 ? throw std::runtime_error("two") : n; };
    const auto got = sync_wait(consume(bide::scan(numbers(1, 5), 0, fails)));
    CHECK((got.items == std::vector{1} && got.end == "two"));
}

TEST_CASE("flat_map: all items of each stream, in order; an inner failure ends it") {
    const auto up_to = [](int n) { return numbers(0, n); };
    CHECK(all_of(bide::flat_map(numbers(0, 4), up_to)) == std::vector{0, 0, 1, 0, 1, 2});
    CHECK(all_of(bide::flat_map(numbers(0, 0), up_to)).empty());
    const auto failing = [](int n) { return numbers_then_failure(0, n); };
    const auto got = sync_wait(consume(bide::flat_map(numbers(2, 4), failing)));
    CHECK((got.items == std::vector{0, 1} && got.end == "no more"));

    bide::channel<int> items(8);
    REQUIRE(items.try_send(5));
    items.close();
    CHECK(all_of(bide::flat_map(numbers(0, 2), [&](int) { return &items; })) == std::vector{5});
}

TEST_CASE("sample: the last item of each period, at its end; the last item of all at once") {
    bide::channel<int> items(8);
    test::simulated run;
    auto all = run.spawn(consume_timed(bide::sample(&items, 10ms)));
    run.run_until(send_at(items, {1ms, 4ms, 9ms, 12ms, 41ms, 42ms}, 42ms));
    CHECK(std::move(all).join() == timed<int>{{10ms, 2}, {20ms, 3}, {42ms, 5}});
}

TEST_CASE("sample: without a period yields each item; a cancelled one yields what it has") {
    bide::channel<int> items(8);
    for (int i = 0; i < 3; ++i) {
        REQUIRE(items.try_send(i));
    }
    CHECK(all_of(bide::take(bide::sample(&items, 0ms), 2)) == std::vector{0, 1});
    test::simulated run;
    auto all = run.spawn(consume(bide::sample(&items, 1h)));
    run.run_for(1s);
    all.cancel();
    const auto got = std::move(all).join();
    CHECK((got.items == std::vector{2} && got.end == "stopped"));
}

TEST_CASE("ticks: an interval is a stream; a stop ends it") {
    test::simulated run;
    const auto some =
        run.run_until(consume_timed(bide::take(bide::ticks(bide::interval(10ms)), 3)));
    CHECK(some == timed<std::uint64_t>{{10ms, 1}, {20ms, 1}, {30ms, 1}});
    auto rest = run.spawn(consume(bide::ticks(bide::interval(10ms))));
    run.run_for(25ms);
    rest.cancel();
    const auto got = std::move(rest).join();
    CHECK((got.items.size() == 2 && got.end == "stopped"));
}

TEST_CASE("collect: what a stream throws leaves it") {
    CHECK_THROWS_AS(all_of(numbers_then_failure(0, 3)), std::runtime_error);
    CHECK(all_of(numbers(0, 0)).empty());
}
