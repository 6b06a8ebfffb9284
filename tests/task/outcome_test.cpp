#include <bide/task/outcome.hpp>

#include <bide/task/compose.hpp>
#include <bide/task/this_task.hpp>
#include <support/scheduling.hpp>
#include <support/tasks.hpp>

using bide::scheduler;
using bide::sync_wait;
using bide::task;
using bide::when_all;
using test::fails;
using test::fails_late;
using test::stuck;
using test::what_of;
using test::workers;
namespace this_task = bide::this_task;

namespace {

task<int> number(int n) { co_return n; }
task<> nothing() { co_return; }
task<std::unique_ptr<int>> boxed(int n) { co_return std::make_unique<int>(n); }

} // namespace

TEST_CASE("when_all: with as_outcome, every outcome is kept, of all kinds of values") {
    scheduler s(workers(2));
    const auto all = [&]() -> task<int> {
        const auto calls = [n = 5]() -> task<int> { co_return n; };
        auto [a, b, c, d, e, f] =
            co_await when_all(bide::as_outcome(number(1)), bide::as_outcome(fails("first")),
                              bide::as_outcome(fails_late("second")), bide::as_outcome(nothing()),
                              bide::as_outcome(boxed(4)), bide::as_outcome(calls));
        const auto said = [](const std::exception_ptr& error) {
            return what_of([&] { std::rethrow_exception(error); });
        };
        const bool ok = a && *a == 1 && !b && said(b.error()) == "first" && !c &&
                        said(c.error()) == "second" && d && e && **e == 4 && f && *f == 5 &&
                        !bide::is_stopped(b.error());
        co_return ok ? 1 : 0;
    };
    CHECK(sync_wait(s, all()) == 1);
    CHECK(sync_wait(all()) == 1);
    const auto many = []() -> task<int> {
        std::vector<task<bide::outcome<int>>> children;
        for (int i = 0; i < 10; ++i) {
            children.push_back(bide::as_outcome(i % 2 == 0 ? number(i) : fails("odd")));
        }
        int sum = 0;
        for (const bide::outcome<int>& one : co_await when_all(std::move(children))) {
            sum += one ? *one : 100;
        }
        co_return sum;
    };
    CHECK(sync_wait(s, many()) == 520);
}

TEST_CASE("as_outcome: a stopped child has a stopped_error, and the cancelled parent goes on") {
    scheduler s(workers(2));
    std::atomic<int> seen{0};
    const auto child = [&]() -> task<int> {
        ++seen;
        co_return co_await stuck();
    };
    const auto parent = [&]() -> task<int> {
        const auto [a, b] = co_await when_all(bide::as_outcome(child), bide::as_outcome(number(2)));
        const bool is_right = !a && bide::is_stopped(a.error()) && b && *b == 2;
        seen += is_right ? 10 : 0;
        const auto late = co_await bide::as_outcome(stuck());
        co_return late ? 0 : seen.load();
    };
    auto h = s.spawn(parent);
    REQUIRE(test::eventually([&] { return seen == 1; }));
    CHECK(h.cancel());
    CHECK(std::move(h).join() == 11);
    CHECK_FALSE(bide::is_stopped(nullptr));
}
