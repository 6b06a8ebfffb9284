#include <bide/stream/merge.hpp>

#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>
#include <bide/stream/stream.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/this_task.hpp>
#include <support/counted.hpp>
#include <support/simulated.hpp>
#include <support/streaming.hpp>
#include <support/tasks.hpp>
#include <support/test.hpp>

using bide::async_generator;
using bide::merge;
using bide::merged;
using bide::scheduler;
using bide::semaphore;
using bide::sync_wait;
using bide::task;
using test::consume;
using test::numbers;
using test::numbers_then_failure;

namespace {

// Returns true if these are the numbers from 0, those of each thousand in order.
bool complete(const std::vector<int>& all, std::size_t expected) {
    int next[16] = {};
    bool in_order = true;
    for (const int n : all) {
        in_order = in_order && next[n / 1'000]++ == n % 1'000;
    }
    return in_order && all.size() == expected;
}

async_generator<int> numbers_then_wait(int first, int last, semaphore& s) {
    for (int i = first; i < last; ++i) {
        co_yield i;
    }
    const auto permit = co_await s.async_acquire();
}

async_generator<int> yielding_numbers(int first, int last) {
    for (int i = first; i < last; ++i) {
        if (i % 3 == 0) {
            co_await bide::this_task::yield();
        }
        co_yield i;
    }
}

} // namespace

TEST_CASE("merge: each item of each stream comes once, those of one stream in their order",
          "[promise.merge-once]") {
    const unsigned workers = GENERATE(1u, 2u);
    const bool inside = GENERATE(false, true);
    CAPTURE(workers, inside);
    scheduler on(test::workers(workers));
    bide::channel<int> items(2);
    auto all = merge(on, yielding_numbers(0, 1'000), numbers(1'000, 1'500), &items);
    test::team sender(1, [&items](int) {
        for (int i = 2'000; i < 2'300; ++i) {
            static_cast<void>(items.send(i));
        }
        items.close();
    });
    const auto got =
        inside ? sync_wait(on, consume(std::move(all))) : sync_wait(consume(std::move(all)));
    sender.join();
    CHECK(complete(got.items, 1'800));
    CHECK(got.end == "end");
}

TEST_CASE("merge: takes any number of streams") {
    scheduler on(test::workers(2));
    std::vector<async_generator<int>> streams;
    for (int i = 0; i < 10; ++i) {
        streams.push_back(yielding_numbers(1'000 * i, 1'000 * i + 100));
    }
    CHECK(complete(sync_wait(consume(merge(on, std::move(streams)))).items, 1'000));
    const auto none = sync_wait(consume(merge(on, std::vector<async_generator<int>>())));
    CHECK(none.items.empty());
    CHECK(none.end == "end");
    CHECK(sync_wait(consume(merge(on, numbers(0, 3)))).items == std::vector{0, 1, 2});
}

TEST_CASE("merge: moves its items, and copies what references refer to") {
    scheduler on(test::workers(2));
    test::tally t;
    {
        const auto made = [&t](int n) { return test::counted_once(t, n); };
        const auto got = sync_wait(consume(merge(on, bide::map(numbers(0, 100), made))));
        CHECK(got.items.size() == 100);
        CHECK(t.copied == 0);
    }
    CHECK(t.alive() == 0);
    const auto references = []() -> async_generator<int&> {
        for (int i = 0; i < 3; ++i) {
            co_yield i;
        }
    };
    CHECK(sync_wait(consume(merge(on, references()))).items == std::vector{0, 1, 2});
}

TEST_CASE("merge: an exception of a stream comes after its items, and ends the other streams",
          "[promise.merge-once]") {
    scheduler on(test::workers(2));
    semaphore never{0};
    auto all = merge(on, numbers_then_failure(0, 100), numbers_then_wait(1'000, 1'100, never));
    const auto consume_twice = [](merged<int> from) -> task<std::pair<test::consumed<int>, bool>> {
        auto first = co_await consume(&from);
        auto again = co_await consume(&from);
        co_return {std::move(first), again.items.empty() && again.end == "no more"};
    };
    const auto got = sync_wait(consume_twice(std::move(all)));
    CHECK(std::count_if(got.first.items.begin(), got.first.items.end(),
                        [](int n) { return n < 1'000; }) == 100);
    CHECK(complete(got.first.items, got.first.items.size()));
    CHECK(got.first.end == "no more");
    CHECK(got.second);
    CHECK(never.waiters() == 0);
}

TEST_CASE("merge: of a scheduler that has shut down is stopped") {
    scheduler on(test::workers(2));
    on.shutdown();
    const auto got = sync_wait(consume(merge(on, numbers(0, 10))));
    CHECK(got.items.empty());
    CHECK(got.end == "stopped");
}

TEST_CASE("merge: destroyed early, it cancels its streams and destroys its items",
          "[promise.stream-tasks-end]") {
    scheduler on(test::workers(2));
    semaphore never{0};
    test::tally t;
    const auto made = [&t](int n) { return test::counted_once(t, n); };
    {
        auto all = merge(on, bide::map(numbers_then_wait(0, 0, never), made),
                         bide::map(numbers(0, 1'000'000), made));
        REQUIRE(test::eventually([&] { return never.waiters() == 1 && t.made > 3; }));
        auto moved = std::move(all);
    }
    CHECK(never.waiters() == 0);
    CHECK(t.alive() == 0);
}

TEST_CASE("merge: can be awaited with a time-out, and in a select") {
    test::simulated on;
    bide::channel<int> items(2);
    bide::event quit;
    const auto try_all = [&](merged<int> from) -> task<int> {
        int seen = 0;
        const auto early = co_await from.async_recv().with_timeout(1ms);
        seen += !early && early.error() == bide::errc::timeout ? 1 : 0;
        static_cast<void>(co_await items.async_send(10));
        auto item = bide::on_recv(from);
        auto over = bide::on_event(quit);
        auto first = co_await bide::async_select(std::move(item), std::move(over));
        seen += first.index() == 0 ? *first.get<0>() : 0;
        quit.set();
        auto item2 = bide::on_recv(from);
        auto over2 = bide::on_event(quit);
        auto second = co_await bide::async_select(std::move(item2), std::move(over2));
        seen += second.index() == 1 ? 100 : 0;
        items.close();
        const auto end = co_await from.async_recv();
        co_return seen + (end ? 0 : 1'000);
    };
    CHECK(on.run_until(try_all(merge(on, &items))) == 1'111);
    CHECK(on.now() == 1ms);
}

TEST_CASE("merge: a cancelled consumer loses no item") {
    test::simulated on;
    bide::channel<int> items(2);
    auto all = merge(on, &items);
    auto consumer = on.spawn(consume(&all));
    on.run_ready();
    static_cast<void>(items.send(1));
    consumer.cancel();
    auto got = std::move(consumer).join();
    CHECK(got.end == "stopped");
    static_cast<void>(items.send(2));
    items.close();
    const auto rest = sync_wait(consume(&all));
    got.items.insert(got.items.end(), rest.items.begin(), rest.items.end());
    CHECK(got.items == std::vector{1, 2});
}

TEST_CASE("merge: gives a generator what only a receivable stream has") {
    scheduler on(test::workers(2));
    const auto got = sync_wait(consume(bide::chunks(merge(on, numbers(0, 5)), 2, 1h)));
    CHECK(got.items == std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4}});
}
