#include <bide/stream/stream.hpp>

#include <bide/channel/broadcast.hpp>
#include <bide/channel/channel.hpp>
#include <bide/channel/handles.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <support/alloc.hpp>
#include <support/coroutines.hpp>
#include <support/counted.hpp>
#include <support/streaming.hpp>
#include <support/tasks.hpp>
#include <support/test.hpp>

using bide::async_generator;
using bide::filter;
using bide::map;
using bide::scheduler;
using bide::sync_wait;
using bide::take_until;
using bide::task;
using namespace test;

namespace {

const auto is_even = [](int n) { return n % 2 == 0; };
const auto doubled = [](int n) { return 2 * n; };
const auto text = [](int n) { return std::to_string(n); };

template <class Stream> auto items_of(Stream from) {
    return sync_wait(consume(std::move(from))).items;
}

// A stream of another library: its operation is its own awaiter, and results in a pointer.
class table {
public:
    struct operation {
        explicit operation(table& t) noexcept : of(t) {}
        bool await_ready() const noexcept { return true; }
        void await_suspend(std::coroutine_handle<>) const noexcept {}
        const int* await_resume() const noexcept {
            return of.next_ == 3 ? nullptr : &of.all_[of.next_++];
        }
        table& of;
    };
    operation next() noexcept { return operation(*this); }

private:
    int all_[3] = {1, 2, 3};
    int next_ = 0;
};

// A clock that shows a late time to `late_for` reads, from the read `late_at` on, and is set back then.
struct set_back {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<set_back>;
    [[maybe_unused]] static constexpr bool is_steady = false;

    static time_point now() noexcept {
        const int read = ++reads;
        return time_point(read >= late_at && read < late_at + late_for ? 2h : 0h);
    }

    inline static std::atomic<int> reads{0}, late_at{0}, late_for{0};
};

} // namespace

TEST_CASE("stream: generators, channels, receivers and what has next() are streams") {
    STATIC_REQUIRE(bide::stream<async_generator<int>>);
    STATIC_REQUIRE(bide::stream<async_generator<int>*>);
    STATIC_REQUIRE(bide::stream<async_generator<const std::string&>>);
    STATIC_REQUIRE(bide::stream<table>);
    STATIC_REQUIRE(bide::receivable<bide::receiver<int>>);
    STATIC_REQUIRE(bide::receivable<bide::channel<int>*>);
    STATIC_REQUIRE(bide::receivable<bide::unbounded_channel<int>*>);
    STATIC_REQUIRE(!bide::receivable<async_generator<int>>);
    STATIC_REQUIRE(!bide::stream<int>);
    STATIC_REQUIRE(!bide::stream<bide::sender<int>>);
    STATIC_REQUIRE(!bide::stream<bide::broadcast_subscriber<int>>); // it reports missed values

    STATIC_REQUIRE(std::is_same_v<bide::stream_item_t<async_generator<int>>, int>);
    STATIC_REQUIRE(std::is_same_v<bide::stream_item_t<async_generator<int&>*>, int&>);
    STATIC_REQUIRE(std::is_same_v<bide::stream_item_t<bide::channel<int>*>, int>);
    STATIC_REQUIRE(std::is_same_v<bide::stream_item_t<table>, const int&>);
}

TEST_CASE("stream: map and filter take the items of any stream in order") {
    CHECK(items_of(map(numbers(0, 4), doubled)) == std::vector{0, 2, 4, 6});
    CHECK(items_of(filter(numbers(0, 6), is_even)) == std::vector{0, 2, 4});
    CHECK(items_of(map(filter(map(numbers(0, 3), doubled), is_even), text)) ==
          std::vector<std::string>{"0", "2", "4"});
    CHECK(items_of(map(table(), doubled)) == std::vector{2, 4, 6});
    CHECK(items_of(filter(numbers(0, 0), is_even)).empty());

    auto [to, from] = bide::make_channel<int>(4);
    for (int i = 0; i < 4; ++i) {
        static_cast<void>(to.send(i));
    }
    to.close();
    CHECK(items_of(map(filter(std::move(from), is_even), text)) ==
          std::vector<std::string>{"0", "2"});
}

TEST_CASE("stream: an operator borrows the stream that a pointer refers to") {
    bide::channel<int> two(2);
    static_cast<void>(two.send(1));
    static_cast<void>(two.send(2));
    two.close();
    CHECK(items_of(map(&two, doubled)) == std::vector{2, 4});
    auto three = numbers(0, 3);
    const auto first = [](auto from) -> task<int> {
        const auto item = co_await from.next();
        co_return *item;
    };
    CHECK(sync_wait(first(map(&three, doubled))) == 0);
    CHECK(sync_wait(first(filter(&three, [](int n) { return n == 2; }))) == 2);
}

TEST_CASE("stream: references stay references, and move-only items are moved") {
    std::vector<int> all{1, 2, 3};
    const auto elements = [](std::vector<int>& of) -> async_generator<int&> {
        for (int& e : of) {
            co_yield e;
        }
    };
    const auto clear = [](auto from) -> task<> {
        while (int* const item = co_await from.next()) {
            *item = 0;
        }
    };
    sync_wait(clear(filter(elements(all), [](const int& n) { return n > 1; })));
    CHECK(all == std::vector{1, 0, 0});
    sync_wait(clear(map(elements(all), [](int& n) -> int& { return n; })));
    CHECK(all == std::vector{0, 0, 0});

    auto owned = filter(map(numbers(0, 3), [](int n) { return std::make_unique<int>(n); }),
                        [](const std::unique_ptr<int>& p) { return *p > 0; });
    const auto unboxed = items_of(map(std::move(owned), [](std::unique_ptr<int> p) { return *p; }));
    CHECK(unboxed == std::vector{1, 2});
}

TEST_CASE("map: an rvalue reference that the function returns is an item of its own") {
    bide::unbounded_channel<std::unique_ptr<int>> some;
    REQUIRE(some.send(std::make_unique<int>(5)));
    some.close();
    const auto pass = [](std::unique_ptr<int>&& p) -> std::unique_ptr<int>&& {
        return std::move(p);
    };
    auto passed = map(&some, pass);
    STATIC_REQUIRE(
        std::is_same_v<decltype(passed)::next_type, std::optional<std::unique_ptr<int>>>);
    const auto first = [&]() -> task<int> {
        const auto got = co_await passed.next();
        co_return got ? **got : 0;
    };
    CHECK(sync_wait(first()) == 5);
}

TEST_CASE("stream: no item is copied, and no item allocates", "[promise.stream-costs]") {
    test::tally t;
    const auto made = [&t](int n) { return test::counted(t, n); };
    CHECK(items_of(map(filter(map(numbers(0, 100), made),
                              [](const test::counted& c) { return c.number() < 50; }),
                       [](const test::counted& c) { return c.number(); }))
              .size() == 50);
    CHECK(t.copied == 0);
    CHECK(t.alive() == 0);

    const auto count = [](auto from) -> task<std::size_t> {
        static_cast<void>(co_await from.next());
        const std::size_t before = test::allocations_here();
        while (auto item = co_await from.next()) {
        }
        co_return test::allocations_here() - before;
    };
    CHECK(sync_wait(count(map(filter(numbers(0, 1'000), is_even), doubled))) == 0);
}

TEST_CASE("stream: an exception of a stream or a function leaves next()") {
    const auto fail_at_2 = [](int n) {
        if (n == 2) {
            throw std::runtime_error("two");
        }
        return n != 1;
    };
    const auto of_source =
        sync_wait(consume(map(filter(numbers_then_failure(0, 3), is_even), doubled)));
    CHECK(of_source.items == std::vector{0, 4});
    CHECK(of_source.end == "no more");
    const auto of_filter = sync_wait(consume(filter(numbers(0, 4), fail_at_2)));
    CHECK(of_filter.items == std::vector{0});
    CHECK(of_filter.end == "two");

    // map loses that item alone
    const auto go_on = [&fail_at_2]() -> task<int> {
        auto from = map(numbers(0, 4), fail_at_2);
        int seen = 0;
        for (int i = 0; i < 4; ++i) {
            try {
                const auto item = co_await from.next();
                seen = 10 * seen + (*item ? 2 : 1);
            } catch (const std::runtime_error&) {
                seen = 10 * seen + 9;
            }
        }
        co_return seen;
    };
    CHECK(sync_wait(go_on()) == 2'192);
}

TEST_CASE("stream: 200,000 items go through operators on a bounded stack") {
    const auto sum = [](auto from) -> task<int> {
        int all = 0;
        while (auto item = co_await from.next()) {
            all += *item;
        }
        co_return all;
    };
    const auto one = [](int) { return 1; };
    CHECK(sync_wait(sum(map(filter(map(numbers(0, 200'000), doubled), is_even), one))) == 200'000);
    CHECK(sync_wait(
              sum(map(filter(numbers(0, 200'000), [](int n) { return n == 199'999; }), one))) == 1);
}

TEST_CASE("take_until: a stop ends a wait for an item, and takes none",
          "[promise.stream-keeps-items]") {
    scheduler on(test::workers(2));
    bide::channel<int> items(4);
    static_cast<void>(items.send(1));
    std::stop_source stop;
    auto all = on.spawn(consume(take_until(&items, stop.get_token())));
    REQUIRE(test::eventually([&items] { return items.empty(); }));
    stop.request_stop();
    const auto got = std::move(all).join();
    CHECK(got.items == std::vector{1});
    CHECK(got.end == "end");
    static_cast<void>(items.send(2));
    CHECK(items.size() == 1);
    const auto stopped = sync_wait(consume(take_until(&items, stop.get_token())));
    CHECK(stopped.items.empty());
    CHECK(items.size() == 1);
}

TEST_CASE("take_until: a stop of a generator takes effect before the next item") {
    std::stop_source stop;
    const auto stop_at_2 = [&stop](int n) {
        if (n == 2) {
            stop.request_stop();
        }
        return n;
    };
    CHECK(items_of(take_until(map(numbers(0, 9), stop_at_2), stop.get_token())) ==
          std::vector{0, 1, 2});
    CHECK(items_of(take_until(numbers(0, 3), std::stop_token())) == std::vector{0, 1, 2});
}

TEST_CASE("take_until: a point in time ends it, at the latest at the next item") {
    using clock = std::chrono::steady_clock;
    bide::channel<int> items(4);
    static_cast<void>(items.send(1));
    CHECK(items_of(take_until(&items, clock::now() - 1s)).empty());
    CHECK(items.size() == 1);
    const auto until = clock::now() + 5ms;
    const auto got = items_of(take_until(&items, until));
    CHECK(got.size() + items.size() == 1);
    CHECK(clock::now() >= until);
    CHECK(items_of(take_until(numbers(0, 3), clock::now() + 1h)) == std::vector{0, 1, 2});
    CHECK(items_of(take_until(numbers(0, 3), clock::now() - 1h)).empty());
}

TEST_CASE("take_until: a clock that is set back when the time is over does not make it throw") {
    // The third read and the next ones end the wait: 1 to 3 of them show the late time.
    for (int late_for = 1; late_for <= 3; ++late_for) {
        CAPTURE(late_for);
        set_back::reads = 0;
        set_back::late_at = 3;
        set_back::late_for = late_for;
        bide::unbounded_channel<int> none;
        std::atomic<int> ended{0};
        const auto one = [](bide::unbounded_channel<int>& from,
                            std::atomic<int>& how) -> test::detached {
            auto until = take_until(&from, set_back::time_point(1h));
            try {
                how = (co_await until.next()).has_value() ? 1 : 2;
            } catch (const std::exception&) {
                how = 3;
            }
        };
        one(none, ended);
        CHECK(test::eventually([&] { return ended != 0 || set_back::reads >= 3 + late_for; }));
        none.close(); // ends the wait if the clock has not
        REQUIRE(test::eventually([&] { return ended != 0; }));
        CHECK(ended == 2);
    }
}

TEST_CASE("take_until: the end of the stream, or a cancellation of the consumer, ends it, too") {
    scheduler on(test::workers(2));
    bide::channel<int> items(4);
    std::stop_source never;
    auto all = on.spawn(consume(take_until(&items, never.get_token())));
    static_cast<void>(items.send(1));
    REQUIRE(test::eventually([&items] { return items.empty(); }));
    all.cancel();
    const auto got = std::move(all).join();
    CHECK(got.items == std::vector{1});
    CHECK(got.end == "stopped");
    static_cast<void>(items.send(2));
    items.close();
    CHECK(items_of(take_until(&items, never.get_token())) == std::vector{2});
}
