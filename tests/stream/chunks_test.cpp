#include <bide/stream/stream.hpp>

#include <support/simulated_streams.hpp>
#include <support/streaming.hpp>
#include <support/tasks.hpp>
#include <support/test.hpp>

using bide::chunks;
using bide::sync_wait;
using test::consume;
using test::consume_timed;
using test::numbers;
using test::numbers_then_failure;
using test::send_at;
using test::timed;
using chunk = std::vector<int>;

TEST_CASE("chunks: has n items each, and the rest at the end") {
    CHECK(sync_wait(consume(chunks(numbers(0, 5), 2))).items ==
          std::vector<chunk>{{0, 1}, {2, 3}, {4}});
    CHECK(sync_wait(consume(chunks(numbers(0, 4), 2))).items == std::vector<chunk>{{0, 1}, {2, 3}});
    CHECK(sync_wait(consume(chunks(numbers(0, 2), 1))).items == std::vector<chunk>{{0}, {1}});
    CHECK(sync_wait(consume(chunks(numbers(0, 0), 3))).items.empty());
    constexpr auto most = (std::numeric_limits<std::size_t>::max)();
    CHECK(sync_wait(consume(chunks(numbers(0, 3), most))).items == std::vector<chunk>{{0, 1, 2}});
}

TEST_CASE("chunks: of no items are refused", "[promise.empty-chunks-refused]") {
    bide::channel<int> items(1);
    CHECK_THROWS_AS(chunks(numbers(0, 5), 0), std::invalid_argument);
    CHECK_THROWS_AS(chunks(&items, 0), std::invalid_argument);
    CHECK_THROWS_AS(chunks(&items, 0, 1ms), std::invalid_argument);
}

TEST_CASE("chunks: moves items, and copies what references refer to") {
    const auto boxes = []() -> bide::async_generator<std::unique_ptr<int>> {
        for (int i = 0; i < 3; ++i) {
            co_yield std::make_unique<int>(i);
        }
    };
    const auto all = sync_wait(consume(chunks(boxes(), 2)));
    REQUIRE(all.items.size() == 2);
    CHECK(*all.items[0][1] == 1);
    CHECK(*all.items[1][0] == 2);
    const auto references = []() -> bide::async_generator<int&> {
        for (int i = 0; i < 3; ++i) {
            co_yield i;
        }
    };
    CHECK(sync_wait(consume(chunks(references(), 2))).items == std::vector<chunk>{{0, 1}, {2}});
}

TEST_CASE("chunks: an exception comes after the items that came before it") {
    const auto all = sync_wait(consume(chunks(numbers_then_failure(0, 5), 3)));
    CHECK(all.items == std::vector<chunk>{{0, 1, 2}, {3, 4}});
    CHECK(all.end == "no more");
    const auto none = sync_wait(consume(chunks(numbers_then_failure(0, 3), 3)));
    CHECK(none.items == std::vector<chunk>{{0, 1, 2}});
    CHECK(none.end == "no more");
}

TEST_CASE("chunks: a time limit counts from the first item of a chunk, and makes none without") {
    bide::channel<int> items(9);
    test::simulated run;
    run.spawn(send_at(items, {5ms, 11ms, 17ms, 40ms, 41ms, 42ms, 60ms}, 61ms)).detach();
    const auto all = run.run_until(consume_timed(chunks(&items, 3, 10ms)));
    CHECK(all == timed<chunk>{{15ms, {0, 1}}, {27ms, {2}}, {42ms, {3, 4, 5}}, {61ms, {6}}});
}

TEST_CASE("chunks: with a limit of zero, has what is there") {
    bide::channel<int> items(4);
    for (int i = 0; i < 3; ++i) {
        static_cast<void>(items.send(i));
    }
    auto all = chunks(&items, 9, 0s);
    const auto first = [](auto& from) -> bide::task<chunk> {
        auto got = co_await from.next();
        co_return std::move(*got);
    };
    CHECK(sync_wait(first(all)) == chunk{0, 1, 2});
    static_cast<void>(items.send(3));
    CHECK(sync_wait(first(all)) == chunk{3});
}

TEST_CASE("chunks: a cancelled consumer first gets the items that the chunk has",
          "[promise.stream-keeps-items]") {
    const bool limited = GENERATE(false, true);
    bide::channel<int> items(4);
    test::simulated on;
    for (int i = 0; i < 3; ++i) {
        static_cast<void>(items.send(i));
    }
    auto all =
        limited ? on.spawn(consume(chunks(&items, 2, 1h))) : on.spawn(consume(chunks(&items, 2)));
    on.run_ready();
    CHECK(items.empty());
    all.cancel();
    const auto got = std::move(all).join();
    CHECK(got.items == std::vector<chunk>{{0, 1}, {2}});
    CHECK(got.end == "stopped");
}
