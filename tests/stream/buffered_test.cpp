#include <bide/stream/buffered.hpp>

#include <bide/channel/channel.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/this_task.hpp>
#include <support/simulated.hpp>
#include <support/streaming.hpp>
#include <support/tasks.hpp>
#include <support/test.hpp>

using bide::buffer_unordered;
using bide::buffered;
using bide::map;
using bide::scheduler;
using bide::sync_wait;
using bide::task;
using test::consume;
using test::numbers;
using test::numbers_then_failure;

namespace {

// Tasks that each wait for an event of their own, and count how many have begun and run.
struct controlled {
    static constexpr int most = 8;

    std::array<bide::event, most> may_end;
    int begun = 0;
    int running = 0;
    int stopped = 0;

    task<int> run(int n) {
        ++begun;
        ++running;
        const auto end = co_await may_end[static_cast<std::size_t>(n)].async_wait().as_result();
        stopped += end ? 0 : 1;
        --running;
        if (!end) {
            bide::detail::throw_error(end.error());
        }
        co_return n;
    }
    auto tasks() {
        return map(numbers(0, most), [this](int n) { return run(n); });
    }
    void end_all() {
        for (auto& e : may_end) {
            e.set();
        }
    }
};
template <class Stream> task<int> next_of(Stream& from) {
    const auto item = co_await from.next();
    co_return item.value_or(-1);
}

task<int> yield_and_return(int n, std::atomic<int>& running, std::atomic<int>& most) {
    const int now = ++running;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    for (int i = n % 4; i > 0; --i) {
        co_await bide::this_task::yield();
    }
    --running;
    co_return n;
}
task<int> fail_at_two(int n) {
    if (n == 2) {
        throw std::runtime_error("two");
    }
    co_return n;
}

// Its coroutine uses what the lambda has captured until it ends. Of such a lambda that was destroyed,
// it makes -1, or a failure under a sanitizer.
auto with_captures() {
    return [text = std::string(99, 'x')](int n) -> task<int> {
        co_await bide::this_task::sleep_for(1ms);
        co_return text == std::string(99, 'x') ? n : -1;
    };
}

} // namespace

TEST_CASE("buffered: yields the values in the order of the stream, whichever task ends first",
          "[promise.buffered-order]") {
    test::simulated on;
    controlled c;
    auto all = on.spawn(consume(buffered(on, c.tasks(), 3)));
    on.run_ready();
    CHECK(c.begun == 3);
    c.may_end[2].set();
    c.may_end[1].set();
    on.run_ready();
    CHECK(c.running == 1);
    CHECK(c.begun == 3); // a task whose value was not yielded counts
    c.may_end[0].set();
    on.run_ready();
    CHECK(c.begun == 6);
    c.end_all();
    const auto got = std::move(all).join();
    CHECK(got.items == std::vector{0, 1, 2, 3, 4, 5, 6, 7});
    CHECK(got.end == "end");
}

TEST_CASE("buffer_unordered: yields each value when its task has ended") {
    test::simulated on;
    controlled c;
    auto all = buffer_unordered(on, c.tasks(), 3);
    for (const int n : {2, 1, 4, 0, 3}) {
        auto one = on.spawn(next_of(all));
        on.run_ready();
        CHECK(c.running == 3);
        c.may_end[static_cast<std::size_t>(n)].set();
        CHECK(std::move(one).join() == n);
    }
    c.end_all();
    auto rest = sync_wait(consume(std::move(all))).items;
    std::sort(rest.begin(), rest.end());
    CHECK(rest == std::vector{5, 6, 7});
}

TEST_CASE("buffered: runs at most n tasks at once, and each task once",
          "[promise.buffered-order]") {
    const std::size_t n = GENERATE(1u, 2u, 7u);
    const bool ordered = GENERATE(false, true);
    const bool received = GENERATE(false, true);
    CAPTURE(n, ordered, received);
    scheduler on(test::workers(2));
    std::atomic<int> running{0};
    std::atomic<int> most{0};
    const auto start = [&](int i) { return yield_and_return(i, running, most); };
    std::vector<int> got;
    if (received) {
        bide::channel<task<int>> tasks(4);
        test::team sender(1, [&](int) {
            for (int i = 0; i < 500; ++i) {
                static_cast<void>(tasks.send(start(i)));
            }
            tasks.close();
        });
        got = sync_wait(
                  on, consume(ordered ? buffered(on, &tasks, n) : buffer_unordered(on, &tasks, n)))
                  .items;
        sender.join();
    } else {
        auto tasks = map(numbers(0, 500), start);
        got = sync_wait(on, consume(ordered ? buffered(on, std::move(tasks), n)
                                            : buffer_unordered(on, std::move(tasks), n)))
                  .items;
    }
    CHECK(most <= static_cast<int>(n));
    if (!ordered) {
        std::sort(got.begin(), got.end());
    }
    std::vector<int> expected(500);
    for (int i = 0; i < 500; ++i) {
        expected[static_cast<std::size_t>(i)] = i;
    }
    CHECK(got == expected);
}

TEST_CASE("buffered: of no tasks is refused, and a stream without tasks ends",
          "[promise.empty-chunks-refused]") {
    scheduler on(test::workers(1));
    CHECK_THROWS_AS(buffered(on, map(numbers(0, 5), fail_at_two), 0), std::invalid_argument);
    CHECK_THROWS_AS(buffer_unordered(on, map(numbers(0, 5), fail_at_two), 0),
                    std::invalid_argument);
    CHECK(sync_wait(consume(buffered(on, map(numbers(0, 0), fail_at_two), 3))).end == "end");
}

TEST_CASE("buffered: the exception of a task comes in the place of its value") {
    scheduler on(test::workers(2));
    const auto got = sync_wait(consume(buffered(on, map(numbers(0, 9), fail_at_two), 4)));
    CHECK(got.items == std::vector{0, 1});
    CHECK(got.end == "two");
    const auto any = sync_wait(consume(buffer_unordered(on, map(numbers(2, 9), fail_at_two), 1)));
    CHECK(any.items.empty());
    CHECK(any.end == "two");
}

TEST_CASE("buffered: however it fails, it waits for its tasks without a thread",
          "[promise.stream-tasks-end]") {
    const bool ordered = GENERATE(false, true);
    const bool stream_fails = GENERATE(false, true);
    CAPTURE(ordered, stream_fails);
    scheduler on(test::workers(1));
    bide::run_loop loop;
    bide::event never;
    bide::event may_end;
    std::atomic<bool> begun{false};
    std::atomic<bool> cancelled{false};
    const auto lingers = [&]() -> task<int> {
        begun = true;
        static_cast<void>(co_await never.async_wait().as_result());
        cancelled = true;
        const bide::this_task::shield held;
        co_await may_end.async_wait();
        co_return 1;
    };
    const auto fails = [&]() -> task<int> {
        while (!begun) {
            co_await bide::this_task::yield();
        }
        throw std::runtime_error("fails");
    };
    const auto make = [&]() -> bide::async_generator<task<int>> {
        if (stream_fails) {
            co_yield lingers();
            co_await fails();
        }
        co_yield fails();
        co_yield lingers();
        co_await never.async_wait();
    };
    loop.spawn([&]() -> task<> {
            while (!cancelled) {
                co_await bide::this_task::yield();
            }
            may_end.set();
        })
        .detach();
    const auto got = loop.run_until(
        consume(ordered ? buffered(on, make(), 3) : buffer_unordered(on, make(), 3)));
    CHECK(got.items.empty());
    CHECK(got.end == "fails");
}

TEST_CASE("buffered: a cancelled consumer cancels the tasks, and ends when they have ended",
          "[promise.stream-tasks-end]") {
    const std::size_t n =
        GENERATE(3u, 8u, 20u); // while it waits for a task, or for a task or an item
    const bool ordered = GENERATE(false, true);
    CAPTURE(n, ordered);
    test::simulated on;
    controlled c;
    bide::event never;
    const auto tasks_and_wait = [](controlled& of,
                                   bide::event& end) -> bide::async_generator<task<int>> {
        for (int i = 0; i < controlled::most; ++i) {
            co_yield of.run(i);
        }
        co_await end.async_wait();
    };
    auto tasks = tasks_and_wait(c, never);
    auto all = on.spawn(consume(ordered ? buffered(on, std::move(tasks), n)
                                        : buffer_unordered(on, std::move(tasks), n)));
    const int begun = (std::min)(static_cast<int>(n), controlled::most);
    on.run_ready();
    CHECK(c.begun == begun);
    all.cancel();
    const auto got = std::move(all).join();
    CHECK(got.items.empty());
    CHECK(got.end == "stopped");
    CHECK(c.stopped == begun);
    CHECK(c.running == 0);
}

TEST_CASE("buffered: destroyed early, it cancels the tasks and waits for them",
          "[promise.stream-tasks-end]") {
    test::simulated on;
    controlled c;
    {
        auto all = buffered(on, c.tasks(), 3);
        auto first = on.spawn(next_of(all));
        on.run_ready();
        CHECK(c.running == 3);
        c.may_end[0].set();
        CHECK(std::move(first).join() == 0);
    }
    CHECK(c.running == 0);
    CHECK(c.stopped == 2);
}

TEST_CASE("buffered: what made a task lives until the task has ended",
          "[promise.stream-tasks-end]") {
    const bool ordered = GENERATE(false, true);
    test::simulated on;
    const auto yields = [](auto make) -> bide::async_generator<task<int>> {
        for (int i = 0; i < 6; ++i) {
            co_yield make(i);
        }
    };
    const auto keep = [](const task<int>&) { return true; };
    const auto check = [&](auto tasks) {
        CHECK(on.run_until(consume(ordered ? buffered(on, std::move(tasks), 4)
                                           : buffer_unordered(on, std::move(tasks), 4)))
                  .items == std::vector{0, 1, 2, 3, 4, 5});
    };
    SECTION("a function") { check(map(numbers(0, 6), with_captures())); }
    SECTION("a function below other operators") {
        auto tasks = bide::filter(map(numbers(0, 6), with_captures()), keep);
        check(bide::take_until(std::move(tasks), std::stop_token()));
    }
    SECTION("a function of a merged stream") {
        check(bide::merge(on, map(numbers(0, 6), with_captures())));
    }
    SECTION("a parameter of a generator") { check(yields(with_captures())); }
    SECTION("a function of a stream that fails") {
        std::string seen;
        const auto make = [&seen, text = std::string(99, 'x')](int) -> task<int> {
            const auto end = co_await bide::this_task::sleep_for(1h).as_result();
            seen += end ? "late" : text;
            co_return 0;
        };
        auto tasks = bide::filter(map(numbers_then_failure(0, 2), make), keep);
        CHECK(on.run_until(consume(buffered(on, std::move(tasks), 9))).end == "no more");
        CHECK(seen == std::string(2 * 99, 'x'));
    }
}

TEST_CASE("buffered: values may be move-only, and their moves may throw") {
    scheduler on(test::workers(2));
    const auto box = [](int n) -> task<std::unique_ptr<int>> {
        co_return std::make_unique<int>(n);
    };
    const auto boxes = sync_wait(consume(buffered(on, map(numbers(0, 3), box), 2)));
    REQUIRE(boxes.items.size() == 3);
    CHECK(*boxes.items[2] == 2);

    struct fragile {
        explicit fragile(int number) : n(number) {}
        fragile(fragile&& other) noexcept(false) : n(other.n) {
            if (n == 1) {
                throw std::runtime_error("move");
            }
        }
        int n;
    };
    const auto make = [](int n) -> task<fragile> { co_return fragile(n); };
    const auto count = [](auto from) -> task<int> {
        int all = 0;
        try {
            while (auto item = co_await from.next()) {
                ++all;
            }
        } catch (const std::runtime_error&) {
            all += 10;
        }
        co_return all;
    };
    CHECK(sync_wait(count(buffered(on, map(numbers(0, 3), make), 2))) == 11);
}
