#include <bide/sync/semaphore.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/this_task.hpp>
#include <support/coroutines.hpp>
#include <support/counted.hpp>
#include <support/scheduling.hpp>

using bide::scheduler;
using bide::sync_wait;
using bide::task;
using bide::when_all;
using bide::when_any;

// when_all and when_any of callables that return tasks.

namespace {

task<int> number(int n) { co_return n; }
task<int> seven() { co_return 7; }

// A move-only callable that counts its instances.
class counts {
public:
    counts(test::tally& t, bide::semaphore& s, int n) : value_(t, n), wait_for_(s) {}
    task<int> operator()() {
        const auto permit = co_await wait_for_.async_acquire();
        co_return value_.number();
    }

private:
    test::counted_once value_;
    bide::semaphore& wait_for_;
};

class says {
public:
    says(std::string& said, char what) noexcept : said_(said), what_(what) {}
    says(const says&) = delete;
    says& operator=(const says&) = delete;
    ~says() { said_ += what_; }
    std::string& said() const noexcept { return said_; }

private:
    std::string& said_;
    const char what_;
};

test::held keep(task<std::tuple<int, int>> t, int& sum) {
    const auto [a, b] = co_await std::move(t);
    sum = a + b;
}

task<int> of_named(test::tally& t) {
    const test::counted value(t, 5);
    auto first = [value]() -> task<int> { co_return value.number(); };
    auto second = [value]() -> task<int> { co_return value.number() + 1; };
    const auto [a, b] = co_await when_all(first, std::move(second));
    co_return a + b;
}

} // namespace

TEST_CASE("when_all: takes callables that return tasks, beside tasks") {
    std::string text = "text";
    const auto by_value = [text]() -> task<std::string> {
        co_await bide::this_task::yield();
        co_return text;
    };
    auto by_reference = [&text]() -> task<std::string&> { co_return text; };
    auto nothing = [text]() mutable -> task<> {
        text.clear();
        co_return;
    };
    scheduler s(test::with(2, true));
    auto all = when_all(by_value, number(1), by_reference, nothing, &seven);
    STATIC_REQUIRE(
        std::is_same_v<decltype(all),
                       task<std::tuple<std::string, int, std::string&, std::monostate, int>>>);
    const auto [a, b, c, d, e] = sync_wait(s, std::move(all));
    CHECK(a == "text");
    CHECK(b == 1);
    CHECK(&c == &text);
    CHECK(e == 7);
    const auto [f] = sync_wait(when_all([&] { return number(9); }));
    CHECK(f == 9);
    static_cast<void>(d);
}

TEST_CASE("when_all: takes a vector of callables, in order") {
    scheduler s(test::with(2, true));
    std::vector<std::function<task<int>()>> functions;
    for (int i = 0; i < 100; ++i) {
        functions.push_back([i, boxed = std::make_shared<int>(i)]() -> task<int> {
            co_await bide::this_task::yield();
            co_return i + *boxed;
        });
    }
    const std::vector<int> values = sync_wait(s, when_all(std::move(functions)));
    REQUIRE(values.size() == 100);
    for (std::size_t i = 0; i < values.size(); ++i) {
        CHECK(values[i] == 2 * static_cast<int>(i));
    }
    CHECK(sync_wait(when_all(std::vector<task<int> (*)()>())).empty());
}

TEST_CASE("when_all: a callable is destroyed when its child has ended",
          "[promise.callable-lifetime]") {
    test::tally t;
    bide::semaphore first(0);
    bide::semaphore second(0);
    int sum = 0;
    test::held h = keep(when_all(counts(t, first, 1), counts(t, second, 2)), sum);
    h.start();
    const int alive = t.alive();
    first.release();
    CHECK(t.alive() == alive - 1);
    CHECK(sum == 0);
    second.release();
    CHECK(sum == 3);
    h.destroy();
    CHECK(t.alive() == 0);
    CHECK(t.copied == 0);
}

TEST_CASE("when_all: if the parent is destroyed, each callable outlives the frame of its child") {
    std::string said;
    bide::semaphore s(0);
    auto kept = std::make_shared<says>(said, 'c');
    auto waits = [kept, &s]() -> task<int> {
        const says mine(kept->said(), 'l');
        const auto permit = co_await s.async_acquire();
        co_return 1;
    };
    kept.reset();
    int sum = 0;
    {
        test::held h = keep(when_all(std::move(waits), number(1)), sum);
        h.start();
        CHECK(said.empty());
    }
    CHECK(said == "lc");
    CHECK(sum == 0);
}

TEST_CASE(
    "when_all: named lambdas in a co_await expression are destroyed as often as they are made") {
    test::tally t;
    CHECK(sync_wait(of_named(t)) == 11);
    CHECK(t.alive() == 0);
}

TEST_CASE("when_all: the await calls the callables in order, and then starts the children") {
    std::string said;
    auto make = [&said](char called, char begun) {
        return [&said, called, begun]() -> task<> {
            said += called;
            return [](std::string& to, char what) -> task<> {
                to += what;
                co_return;
            }(said, begun);
        };
    };
    auto all = when_all(make('a', '1'), make('b', '2'));
    CHECK(said.empty());
    sync_wait(std::move(all));
    CHECK(said == "ab12");
    said.clear();
    auto throws = []() -> task<> { throw std::runtime_error("no task"); };
    CHECK_THROWS_AS(sync_wait(when_all(make('a', '1'), throws)), std::runtime_error);
    CHECK(said == "a");
}

TEST_CASE("when_any: takes callables, and destroys each loser's when that child has ended",
          "[promise.callable-lifetime]") {
    test::tally t;
    bide::semaphore never(0);
    scheduler s(test::with(2, true));
    auto wins = [value = test::counted(t, 3)]() -> task<int> {
        co_await bide::this_task::yield();
        co_return value.number();
    };
    const auto got = sync_wait(s, when_any(counts(t, never, 1), std::move(wins), number(3)));
    CHECK(std::visit([](int n) { return n; }, got) == 3);
    CHECK(never.waiters() == 0);
    std::vector<counts> many;
    bide::semaphore one(1);
    many.emplace_back(t, never, 1);
    many.emplace_back(t, one, 2);
    const auto [which, value] = sync_wait(s, when_any(std::move(many)));
    CHECK(which == 1);
    CHECK(value == 2);
    many.clear();
    CHECK(never.waiters() == 0);
    CHECK(t.alive() == 1); // the moved-from lambda
}
