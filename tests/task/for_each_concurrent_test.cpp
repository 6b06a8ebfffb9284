#include <bide/task/for_each_concurrent.hpp>

#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/with_deadline.hpp>
#include <support/coroutines.hpp>
#include <support/counted.hpp>
#include <support/rounds.hpp>
#include <support/scheduling.hpp>
#include <support/simulated.hpp>
#include <support/tasks.hpp>

using bide::for_each_concurrent;
using bide::map_concurrent;
using bide::scheduler;
using bide::sync_wait;
using bide::task;
using test::runner;
using test::what_of;
using test::workers;
namespace this_task = bide::this_task;

namespace {

// The functions of most cases have one type, because the templates are long to compile.
using per_item = std::function<task<>(int)>;

// How many are inside, now and at most.
struct crowd {
    std::atomic<int> now{0};
    std::atomic<int> most{0};

    class visit {
    public:
        explicit visit(crowd& in) noexcept : in_(in) {
            const int here = ++in_.now;
            for (int seen = in_.most; seen < here && !in_.most.compare_exchange_weak(seen, here);) {
            }
        }
        visit(const visit&) = delete;
        visit& operator=(const visit&) = delete;
        ~visit() { --in_.now; }

    private:
        crowd& in_;
    };
};

// The numbers below `end`.
struct numbers {
    explicit numbers(int end_) noexcept : end(end_) {}
    std::optional<int> next() {
        ++calls;
        return at < end ? std::optional<int>(at++) : std::nullopt;
    }
    int end;
    int at = 0;
    int calls = 0;
};
struct slow_numbers : numbers {
    using numbers::numbers;
    task<std::optional<int>> next() {
        const crowd::visit here(inside);
        co_await this_task::yield();
        co_return numbers::next();
    }
    crowd inside;
};

std::vector<int> up_to(int end) {
    std::vector<int> all(static_cast<std::size_t>(end));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

task<int> squared(int n) {
    for (int i = n % 3; i != 0; --i) {
        co_await this_task::yield();
    }
    co_return n* n;
}

struct rude {
    int number;
    void operator&() const = delete;
    template <class T> void operator,(T&&) const = delete;
};

} // namespace

TEST_CASE("for_each_concurrent: runs each item once, and never more than the limit at a time",
          "[promise.task-limits]") {
    for (const bool pooled : {false, true}) {
        runner run(pooled);
        for (const std::size_t limit : {1u, 2u, 7u, 1000u}) {
            crowd inside;
            std::vector<std::atomic<int>> runs(100);
            const per_item visit = [&](int n) -> task<> {
                const crowd::visit here(inside);
                co_await this_task::yield();
                ++runs[static_cast<std::size_t>(n)];
                co_await this_task::yield();
            };
            run(for_each_concurrent(up_to(100), limit, visit));
            CHECK(std::all_of(runs.begin(), runs.end(), [](const auto& n) { return n == 1; }));
            CHECK(inside.now == 0);
            CHECK(inside.most <= static_cast<int>(limit));
        }
    }
}

TEST_CASE("for_each_concurrent: begins the items in order, and uses an lvalue by reference") {
    test::simulated run;
    std::vector<int> begun;
    int ones[] = {1, 2, 3};
    std::list<int> list{4, 5};
    const auto doubles = [&](int& n) -> task<> {
        begun.push_back(n);
        n *= 2;
        co_await this_task::yield();
    };
    run.run_until(for_each_concurrent(ones, 1, doubles));
    run.run_until(for_each_concurrent(list, 1, doubles));
    CHECK(begun == std::vector<int>{1, 2, 3, 4, 5});
    CHECK(ones[2] == 6);
    CHECK(list == std::list<int>{8, 10});
    const per_item never = [&](int) -> task<> {
        begun.clear();
        co_return;
    };
    run.run_until(for_each_concurrent(std::vector<int>(), 4, never));
    run.run_until(for_each_concurrent(numbers(0), 4, never));
    CHECK(begun.size() == 5);
}

TEST_CASE(
    "map_concurrent: returns the values in the order of the items, from every kind of range") {
    for (const bool pooled : {false, true}) {
        runner run(pooled);
        std::vector<int> expected;
        for (const int n : up_to(200)) {
            expected.push_back(n * n);
        }
        const std::vector<int> items = up_to(200);
        const std::list<int> list(items.begin(), items.end());
        for (const std::size_t limit : {1u, 3u, 64u}) {
            CHECK(run(map_concurrent(items, limit, squared)) == expected);
            CHECK(run(map_concurrent(up_to(200), limit, squared)) == expected);
            CHECK(run(map_concurrent(list, limit, squared)) == expected);
            numbers pulled(200);
            CHECK(run(map_concurrent(pulled, limit, squared)) == expected);
            CHECK(pulled.calls == 201); // none after the end
            slow_numbers awaited(200);
            CHECK(run(map_concurrent(awaited, limit, squared)) == expected);
            CHECK(awaited.calls == 201);
            CHECK(awaited.inside.most == 1);
        }
        CHECK(run(map_concurrent(std::vector<int>(), 3, squared)).empty());
    }
}

TEST_CASE(
    "map_concurrent: items and values are moved, never copied, and destroyed as often as made") {
    test::simulated run;
    test::tally t;
    struct source {
        test::tally& of;
        int left = 50;
        std::optional<test::counted_once> next() {
            return left-- > 0 ? std::optional<test::counted_once>(std::in_place, of, left)
                              : std::nullopt;
        }
    };
    const auto passes_on = [](test::counted_once n) -> task<test::counted_once> {
        co_await this_task::yield();
        co_return std::move(n);
    };
    source from{t};
    const auto all = run.run_until(map_concurrent(from, 4, passes_on));
    REQUIRE(all.size() == 50);
    for (int i = 0; i < 50; ++i) {
        CHECK(all[static_cast<std::size_t>(i)].number() == 49 - i);
    }
    CHECK(t.alive() == 50);
    CHECK(t.copied == 0);
}

TEST_CASE("map_concurrent: items and values may overload the address and the comma operator") {
    std::vector<rude> items{{1}, {2}, {3}};
    const auto twice = [](rude& r) -> task<rude> { co_return rude{2 * r.number}; };
    const auto values = sync_wait(bide::map_concurrent(items, 2, twice));
    REQUIRE(values.size() == 3);
    CHECK(values[0].number + 10 * values[1].number + 100 * values[2].number == 642);
}

TEST_CASE("for_each_concurrent: runs inside of itself, and a failure in the depth ends all of it") {
    scheduler s(test::with(GENERATE(1u, 2u), false));
    test::tally t;
    const std::vector<int> three{1, 2, 3};
    std::atomic<int> leaves{0};
    bool fails = false;
    const auto nested = [&](const auto& self, int depth) -> task<> {
        const test::counted mine(t, depth);
        const auto each = [&, depth](int i) -> task<> {
            if (depth != 0) {
                co_await self(self, depth - 1);
            } else {
                co_await bide::this_task::yield();
                ++leaves;
                if (fails && i == 2) {
                    throw std::runtime_error("in the depth");
                }
            }
        };
        co_await for_each_concurrent(three, 2, each);
    };
    sync_wait(s, nested(nested, 4));
    CHECK(leaves == 243);
    CHECK(t.alive() == 0);
    fails = true;
    CHECK_THROWS_AS(sync_wait(s, nested(nested, 4)), std::runtime_error);
    CHECK(t.alive() == 0);
    fails = false;
    for (int round = 0; round < 40; ++round) {
        const auto limit = std::chrono::microseconds(20 * round);
        const auto got = sync_wait(s, bide::with_timeout(nested(nested, 4), limit));
        CHECK((got || got.error() == bide::errc::timeout));
        CHECK(t.alive() == 0);
    }
}

TEST_CASE(
    "for_each_concurrent: the distance of two iterators is the size of a range without size()") {
    struct pair_of_pointers {
        const int* from;
        const int* to;
        const int* begin() const { return from; }
        const int* end() const { return to; }
    };
    const std::vector<int> items{1, 2, 3};
    int sum = 0;
    const per_item add = [&](int n) -> task<> {
        sum += n;
        co_return;
    };
    // Frames for so many items would not fit into memory.
    const std::size_t no_limit = (std::numeric_limits<std::size_t>::max)();
    const pair_of_pointers range{items.data(), items.data() + items.size()};
    test::simulated().run_until(for_each_concurrent(range, no_limit, add));
    CHECK(sum == 6);
}

TEST_CASE("for_each_concurrent: refuses a limit of zero in the call", "[promise.misuse-refused]") {
    const per_item none = [](int) -> task<> { co_return; };
    CHECK_THROWS_AS(static_cast<void>(for_each_concurrent(up_to(3), 0, none)),
                    std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(map_concurrent(up_to(3), 0, squared)), std::invalid_argument);
}

TEST_CASE("for_each_concurrent: the first failure cancels the running tasks and begins no other",
          "[promise.for-each-stops]") {
    test::simulated run;
    int stopped = 0;
    int begun = 0;
    const per_item fourth_fails = [&](int n) -> task<> {
        ++begun;
        if (n == 3) {
            co_await this_task::sleep_for(1h);
            throw std::runtime_error("the fourth");
        }
        bide::semaphore none(0);
        const auto got = co_await none.async_acquire().as_result();
        stopped += got ? 0 : 1;
        throw std::logic_error("a later one");
    };
    CHECK(what_of([&] { run.run_until(for_each_concurrent(up_to(100), 4, fourth_fails)); }) ==
          "the fourth");
    CHECK(stopped == 3);
    CHECK(begun == 4);
}

TEST_CASE("for_each_concurrent: an exception of the function or of the range is a failure") {
    const std::size_t limit = GENERATE(1u, 3u);
    test::simulated run;
    int begun = 0;
    const per_item fails = [&](int n) -> task<> {
        ++begun;
        if (n == 10) {
            throw std::runtime_error("the function");
        }
        return [](int) -> task<> { co_await this_task::yield(); }(n);
    };
    CHECK(what_of([&] { run.run_until(for_each_concurrent(up_to(1000), limit, fails)); }) ==
          "the function");
    CHECK(begun < 1000);

    struct bad : numbers {
        using numbers::numbers;
        std::optional<int> next() {
            auto number = numbers::next();
            return number ? number : throw std::runtime_error("the range");
        }
    };
    struct slow_bad : bad {
        using bad::bad;
        task<std::optional<int>> next() {
            co_await this_task::yield();
            co_return bad::next();
        }
    };
    int ran = 0;
    const per_item counts = [&](int) -> task<> {
        ++ran;
        co_return;
    };
    CHECK(what_of([&] { run.run_until(for_each_concurrent(bad(9), limit, counts)); }) ==
          "the range");
    CHECK(ran == 9);
    CHECK(what_of([&] { run.run_until(for_each_concurrent(slow_bad(9), limit, counts)); }) ==
          "the range");
    CHECK(ran == 18);
}

TEST_CASE("for_each_concurrent: a cancellation stops the running tasks, and waits for them",
          "[promise.for-each-stops]") {
    const int limit = GENERATE(1, 3);
    test::simulated run;
    int stopped = 0;
    int begun = 0;
    bide::event may_end;
    const per_item waits = [&](int) -> task<> {
        ++begun;
        bide::semaphore none(0);
        const auto got = co_await none.async_acquire().as_result();
        stopped += got ? 0 : 1;
        const this_task::shield held;
        co_await may_end.async_wait();
    };
    auto h = run.spawn(for_each_concurrent(numbers(100), static_cast<std::size_t>(limit), waits));
    run.run_ready();
    CHECK(h.cancel());
    run.run_ready();
    CHECK(stopped == limit);
    CHECK_FALSE(h.done());
    may_end.set();
    CHECK(test::ended_by_stop(std::move(h)));
    CHECK(begun == limit);
}

TEST_CASE("for_each_concurrent: a cancelled task never returns without the items that are left",
          "[promise.for-each-stops]") {
    // Runs the newest first: what waits for a failure starts before the runners, and the cancellation
    // ends it.
    struct newest_first {
        void post(bide::runnable& r) noexcept {
            const std::lock_guard mine(lock);
            posted.push_back(&r);
        }
        bool run_one() {
            bide::runnable* r = nullptr;
            {
                const std::lock_guard mine(lock);
                if (posted.empty()) {
                    return false;
                }
                r = posted.back();
                posted.pop_back();
            }
            r->run.wake();
            return true;
        }
        std::mutex lock;
        std::vector<bide::runnable*> posted;
    } where;
    bide::event may_go_on;
    int began = 0;
    int stopped = 0;
    const auto wants_all = [&]() -> task<> {
        {
            const this_task::shield held;
            co_await may_go_on.async_wait();
        }
        const auto counts = [&](int n) -> task<int> {
            ++began;
            co_return n;
        };
        try {
            static_cast<void>(co_await bide::map_concurrent(up_to(9), 3, counts));
        } catch (const bide::stopped_error&) {
            ++stopped;
        }
        try {
            co_await for_each_concurrent(numbers(9), 3, squared);
        } catch (const bide::stopped_error&) {
            ++stopped;
        }
    };
    const auto ends = [&]() -> task<> { // and cancels the other
        may_go_on.set();
        co_return;
    };
    std::atomic<bool> over{false};
    std::thread runs([&] {
        while (!over) {
            if (!where.run_one()) {
                std::this_thread::yield();
            }
        }
    });
    auto both = bide::when_any(ends(), wants_all());
    static_cast<void>(sync_wait(where, std::move(both)));
    over = true;
    runs.join();
    CHECK(began == 0);
    CHECK(stopped == 2);
}

TEST_CASE(
    "for_each_concurrent: a task that is cancelled in its last items returns if they end well") {
    test::simulated run;
    bide::event may_end;
    const per_item shielded = [&](int) -> task<> {
        const this_task::shield held;
        co_await may_end.async_wait();
    };
    auto h = run.spawn(for_each_concurrent(up_to(3), 3, shielded));
    run.run_ready();
    CHECK(h.cancel());
    run.run_ready();
    CHECK_FALSE(h.done());
    may_end.set();
    CHECK_FALSE(test::ended_by_stop(std::move(h)));
}

TEST_CASE(
    "for_each_concurrent: if destroyed in its wait, its tasks give back what they were granted") {
    test::tally t;
    bide::semaphore some(2);
    {
        bide::event never;
        std::atomic<int> begun{0};
        const per_item holds = [&](int n) -> task<> {
            const test::counted local(t, n);
            ++begun;
            const auto held = co_await some.async_acquire();
            co_await never.async_wait();
        };
        const auto starts = [](const auto& f) -> test::held {
            co_await for_each_concurrent(up_to(9), 3, f);
        };
        test::held all = starts(holds);
        all.start();
        CHECK(begun == 3);
        CHECK(some.available() == 0);
        CHECK(t.alive() == 3);
        all.destroy();
        CHECK(never.is_set() == false);
    }
    CHECK(some.available() == 2);
    CHECK(t.alive() == 0);
}

TEST_CASE(
    "for_each_concurrent: whatever fails or is cancelled when, each task that began has ended",
    "[promise.for-each-stops]") {
    test::rounds([](std::uint32_t round) {
        test::jitter chance(test::seed_of(round));
        scheduler s(workers(1 + round % 3));
        crowd inside;
        std::vector<std::atomic<int>> runs(64);
        std::atomic<int> begun{0};
        std::atomic<int> ended{0};
        bide::semaphore some(3);
        const int bad = static_cast<int>(chance.below(128)); // in half of the rounds none
        const int limit = 1 + static_cast<int>(chance.below(8));
        const per_item visit = [&](int n) -> task<> {
            ++begun;
            const crowd::visit here(inside);
            struct at_end {
                std::atomic<int>& count;
                ~at_end() { ++count; }
            } const counts{ended};
            ++runs[static_cast<std::size_t>(n)];
            const auto held = co_await some.async_acquire();
            co_await this_task::yield();
            if (n == bad) {
                throw std::runtime_error("bad");
            }
        };
        auto h = s.spawn(for_each_concurrent(up_to(64), static_cast<std::size_t>(limit), visit));
        const bool cancels = round % 3 == 0;
        for (std::uint32_t spin = chance.below(200); cancels && spin != 0; --spin) {
            std::this_thread::yield();
        }
        if (cancels) {
            h.cancel();
        }
        const std::string how = what_of([&] { std::move(h).join(); });
        REQUIRE(begun == ended);
        REQUIRE(inside.most <= limit);
        REQUIRE(some.available() == 3);
        REQUIRE(std::all_of(runs.begin(), runs.end(), [](const auto& n) { return n <= 1; }));
        if (how == "nothing") {
            REQUIRE(begun == 64);
            REQUIRE(bad >= 64);
        } else {
            REQUIRE(how == (cancels && how == "stopped" ? "stopped" : "bad"));
        }
    });
}
