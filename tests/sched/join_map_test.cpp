#include <bide/sched/join_map.hpp>

#include <bide/channel/select.hpp>
#include <bide/sync/event.hpp>
#include <support/homes.hpp>
#include <support/sched.hpp>

using namespace bide;
using test::fails;
using test::stuck;
using test::what_of;
using test::workers;
namespace this_task = bide::this_task;

namespace {

task<int> number(int n) { co_return n; }

// Describes an outcome.
template <class T> std::string said(const outcome<T>& one) {
    if (one) {
        if constexpr (std::is_void_v<T>) {
            return "ok";
        } else {
            return std::to_string(*one);
        }
    }
    return what_of([&] { std::rethrow_exception(one.error()); });
}

// All keys and outcomes that a map returns.
template <class Map> task<std::map<std::string, std::string>> all_of(Map& map) {
    std::map<std::string, std::string> all;
    for (;;) {
        const auto next = co_await map.async_join_next();
        if (!next) {
            break;
        }
        all[next->first] += said(next->second);
    }
    co_return all;
}

} // namespace

TEST_CASE("join_map: returns each key once with its outcome: a value, an exception or a stop") {
    test::each_home home;
    const auto body = [&]() -> task<std::map<std::string, std::string>> {
        join_map<std::string, int> map(*home);
        map.spawn("one", number(1));
        map.spawn("fails", fails("bad"));
        map.spawn("stuck", stuck());
        map.spawn("function", [] { return 4; });
        const bool known = map.contains("one") && !map.contains("two") && map.size() == 4 &&
                           !map.cancel("two") && map.cancel("stuck");
        auto all = co_await all_of(map);
        all["known"] = known && map.empty() && !map.contains("one") ? "yes" : "no";
        co_return all;
    };
    const std::map<std::string, std::string> right{
        {"one", "1"}, {"fails", "bad"}, {"stuck", "stopped"}, {"function", "4"}, {"known", "yes"}};
    CHECK(home.run(body()) == right);
}

TEST_CASE("join_map: a key that is in the map is refused until its outcome was returned") {
    scheduler s(workers(2));
    test::tally t;
    event may_end;
    join_map<int> map(s);
    const auto waits = [&](test::counted_once) -> task<> { co_await may_end.async_wait(); };
    CHECK(map.spawn(1, waits(test::counted_once(t, 1))));
    CHECK_FALSE(map.spawn(1, waits(test::counted_once(t, 2))));
    CHECK(t.alive() == 1); // that of the first
    may_end.set();
    CHECK(test::eventually([&] { return t.alive() == 0; }));
    CHECK_FALSE(map.spawn(1, [] {}));
    const auto next = map.join_next();
    REQUIRE(next);
    CHECK(next->first == 1);
    CHECK(next->second.has_value());
    CHECK(map.spawn(1, [] {}));
    CHECK(map.join_next());
    CHECK_FALSE(map.join_next());
    CHECK_FALSE(map.try_join_next());
}

TEST_CASE("join_map: a spawn that throws leaves no key") {
    scheduler s(workers(1));
    join_map<int, int> map(s);
    const auto refuses = []() -> task<int> { throw std::runtime_error("no task"); };
    CHECK(what_of([&] { map.spawn(1, refuses); }) == "no task");
    CHECK_FALSE(map.contains(1));
    CHECK(map.empty());
    CHECK(map.spawn(1, number(1)));
    CHECK(map.join_next()->second == 1);
}

TEST_CASE("join_map: a cancelled map returns all keys, also of children that never start") {
    scheduler s(workers(1));
    std::atomic<bool> may_go{false};
    join_map<std::string, int> map(s);
    map.spawn("stuck", stuck());
    s.spawn([] {}).join(); // it waits
    s.spawn([&] { static_cast<void>(test::spin_until(may_go)); }).detach();
    map.spawn("queued", number(1));
    map.cancel();
    map.spawn("late", number(2));
    may_go = true;
    const std::map<std::string, std::string> right{
        {"stuck", "stopped"}, {"queued", "stopped"}, {"late", "stopped"}};
    CHECK(sync_wait(all_of(map)) == right);
}

TEST_CASE("join_map: a child that is cancelled while it is being made never starts") {
    scheduler s(workers(1));
    join_map<int> map(s);
    bool is_found = false;
    bool was_cancelled = false;
    bool has_run = false;
    map.spawn(1, [&] { // is called by spawn()
        is_found = map.contains(1);
        was_cancelled = map.cancel(1);
        return [](bool& runs) -> task<> {
            runs = true;
            co_return;
        }(has_run);
    });
    const auto next = map.join_next();
    REQUIRE(next);
    REQUIRE(is_found);
    REQUIRE(was_cancelled);
    REQUIRE(next->first == 1);
    REQUIRE_FALSE(next->second);
    REQUIRE_THROWS_AS(std::rethrow_exception(next->second.error()), bide::stopped_error);
    REQUIRE_FALSE(has_run);
}

TEST_CASE("join_map: its destructor cancels the children, which may still use the map") {
    scheduler s(workers(2));
    std::atomic<int> ended{0};
    {
        std::atomic<int> begun{0};
        join_map<int> map(s);
        const auto child = [](join_map<int>& in, std::atomic<int>& begins, std::atomic<int>& ends,
                              int n) -> task<> {
            ++begins;
            static_cast<void>(co_await this_task::sleep_for(1h).as_result());
            in.cancel(n + 1);
            in.spawn(n + 1'000, [] {});
            ++ends;
        };
        for (int i = 0; i < 10; ++i) {
            map.spawn(i, child(map, begun, ended, i));
        }
        REQUIRE(test::eventually([&] { return begun == 10; }));
    }
    CHECK(ended == 10);
    s.shutdown();
    join_map<int> late(s);
    late.spawn(1, [] {});
    const auto next = late.join_next();
    REQUIRE(next);
    CHECK(is_stopped(next->second.error()));
}

TEST_CASE("join_map: threads spawn, cancel and join at once, and each key is returned once",
          "[threads]") {
    constexpr int threads = 4;
    constexpr int keys = 100;
    scheduler s(workers(2));
    join_map<int, test::counted_once> map(s);
    test::tally t;
    std::vector<std::atomic<int>> returned(threads * keys);
    std::atomic<int> refused{0};
    const auto child = [&t](int n) -> task<test::counted_once> {
        if (n % 3 == 0) {
            co_await this_task::sleep_for(1h);
        }
        co_return test::counted_once(t, n);
    };
    test::run_threads(threads, [&](int me) {
        for (int i = 0; i < keys; ++i) {
            const int key = me * keys + i;
            refused += map.spawn(key, child(key)) ? 0 : 1;
            if (i % 3 != 0) {
                if (const auto next = map.try_join_next()) {
                    ++returned[static_cast<std::size_t>(next->first)];
                }
            }
            for (int k = 0; k < key; k += 3) {
                map.cancel(k);
            }
        }
    });
    for (int key = 0; key < threads * keys; ++key) {
        map.cancel(key);
    }
    while (const auto next = map.join_next()) {
        ++returned[static_cast<std::size_t>(next->first)];
    }
    CHECK(refused == 0);
    CHECK(std::all_of(returned.begin(), returned.end(), [](const auto& n) { return n == 1; }));
    CHECK(t.alive() == 0);
}

TEST_CASE("join_map: a child that ends is a case of a select") {
    scheduler s(workers(2));
    join_map<int, int> map(s);
    map.spawn(1, number(7));
    auto chosen = select(on_join_next(map), on_timeout(1h));
    REQUIRE(chosen.index() == 0);
    const auto next = std::move(chosen).template get<0>();
    REQUIRE(next);
    CHECK(next->first == 1);
    CHECK(next->second == 7);
}
