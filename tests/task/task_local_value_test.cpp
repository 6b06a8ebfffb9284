#include <bide/task/task_local_value.hpp>

#include <bide/sched/join_set.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/async_generator.hpp>
#include <bide/task/for_each_concurrent.hpp>
#include <bide/task/strand.hpp>
#include <bide/task/with_deadline.hpp>
#include <support/alloc.hpp>
#include <support/coroutines.hpp>
#include <support/counted.hpp>
#include <support/death.hpp>
#include <support/rounds.hpp>
#include <support/tasks.hpp>

using bide::scheduler;
using bide::task;
using bide::task_local_value;
using bide::with_value;
using namespace test;
namespace this_task = bide::this_task;

static_assert(!std::is_copy_constructible_v<task_local_value<int>>);
static_assert(!std::is_move_constructible_v<task_local_value<int>>);

namespace {

constinit task_local_value<int> number;
constinit task_local_value<std::string> name;

// A plain function, which is called by a task.
int seen() noexcept { return number.get() != nullptr ? *number.get() : -1; }

task<int> sees() { co_return seen(); }
task<int> sees_later() {
    const int first = seen();
    co_await this_task::yield();
    co_await this_task::sleep_for(1us);
    co_return first == seen() ? first : -2;
}
task<int> awaits(task<int> inner) { co_return co_await std::move(inner); }
bide::async_generator<int> yields_what_it_sees() {
    for (;;) {
        co_yield seen();
        co_await this_task::yield();
    }
}

} // namespace

TEST_CASE("task_local_value: the awaited tasks see it, and what they call, and no task outside") {
    for (const bool pooled : {false, true}) {
        runner run(pooled);
        CHECK(number.get() == nullptr);
        CHECK(run(sees()) == -1);
        CHECK(run(with_value(number, 1, sees())) == 1);
        CHECK(run(with_value(number, 2, sees_later())) == 2);
        CHECK(run(with_value(number, 3, awaits(awaits(sees_later())))) == 3);
        int captured = 4;
        const auto callable = [captured]() -> task<int> { co_return captured * 10 + seen(); };
        CHECK(run(with_value(number, 5, callable)) == 45);
        int at_the_call = 0;
        const auto makes_task = [&at_the_call] {
            at_the_call = seen(); // the scope has not begun
            return sees();
        };
        CHECK(run(with_value(number, 5, makes_task)) == 5);
        CHECK(at_the_call == -1);
        const auto around = []() -> task<int> {
            const int before = seen();
            const int inside = co_await with_value(number, 6, sees_later());
            co_return before * 100 + inside * 10 + seen();
        };
        CHECK(run(around()) == -100 + 60 - 1);
        CHECK(number.get() == nullptr);
    }
}

TEST_CASE("task_local_value: an inner scope hides the outer one of its key, and no other key") {
    for (const bool pooled : {false, true}) {
        runner run(pooled);
        const auto inner = []() -> task<std::string> {
            co_await this_task::yield();
            co_return *name.get() + std::to_string(seen());
        };
        const auto outer = [&]() -> task<std::string> {
            std::string all = co_await inner();
            all += co_await with_value(number, 2, inner());
            all += co_await with_value(name, "b", with_value(number, 3, inner()));
            all += co_await inner();
            co_return all;
        };
        CHECK(run(with_value(name, "a", with_value(number, 1, outer()))) == "a1a2b3a1");
    }
}

TEST_CASE("task_local_value: children inherit it, and tasks that are spawned on a scheduler do not",
          "[promise.task-local]") {
    scheduler s(workers(2));
    const auto all = [&]() -> task<std::string> {
        std::string wrong;
        const auto both =
            co_await bide::when_all(sees_later(), with_value(number, 8, sees_later()));
        wrong += std::get<0>(both) == 7 && std::get<1>(both) == 8 ? "" : "when_all ";
        const auto deep = co_await bide::when_all(bide::when_all(sees(), sees()), sees_later());
        wrong += std::get<0>(std::get<0>(deep)) == 7 && std::get<1>(deep) == 7 ? "" : "nested ";
        const auto any = co_await bide::when_any(sees(), sees_later());
        wrong += std::visit([](int i) { return i; }, any) == 7 ? "" : "when_any ";
        const auto timed = co_await bide::with_timeout(sees_later(), 1h);
        wrong += timed == 7 ? "" : "with_timeout ";
        const auto in_group = [](bide::task_group& g) -> task<int> {
            int child = 0;
            g.spawn([&child]() -> task<> { child = co_await sees_later(); });
            co_await g.async_join();
            co_return child == seen() ? child : -1;
        };
        const int grouped = co_await bide::task_group::run(s, in_group);
        wrong += grouped == 7 ? "" : "task_group ";
        bide::join_set<int> set(s);
        set.spawn(sees_later());
        const auto ended = co_await set.async_join_next();
        wrong += ended == 7 ? "" : "join_set ";
        const std::vector<int> items{1, 2, 3};
        const auto each = [](int) { return sees_later(); };
        const auto mapped = co_await bide::map_concurrent(items, 2, each);
        wrong += mapped == std::vector<int>{7, 7, 7} ? "" : "map_concurrent ";
        auto generator = yields_what_it_sees();
        auto item = co_await generator.next();
        wrong += item == 7 ? "" : "generator ";
        item = co_await generator.next();
        wrong += item == 7 ? "" : "generator's second ";
        auto free = s.spawn(sees_later());
        const int spawned = co_await std::move(free).async_join();
        wrong += spawned == -1 ? "" : "spawn ";
        auto passed = s.spawn(with_value(number, *number.get(), sees_later()));
        const int given = co_await std::move(passed).async_join();
        wrong += given == 7 ? "" : "spawned scope ";
        const int blocking = co_await s.spawn_blocking(&seen).async_join();
        wrong += blocking == -1 ? "" : "spawn_blocking ";
        co_return wrong;
    };
    CHECK(bide::sync_wait(s, with_value(number, 7, all())) == "");
    CHECK(bide::sync_wait(s, sees()) == -1);
}

TEST_CASE("task_local_value: it travels on a run_loop, a strand and another library's executor",
          "[promise.task-local]") {
    bide::run_loop loop;
    auto in_loop = loop.spawn(with_value(number, 1, sees_later()));
    loop.run();
    CHECK(std::move(in_loop).join() == 1);
    scheduler s(workers(2));
    bide::strand serial(s);
    const auto on_strand = [&]() -> task<int> { co_return co_await serial.run(sees_later()); };
    CHECK(bide::sync_wait(s, with_value(number, 2, on_strand())) == 2);
    CHECK(bide::sync_wait(s, serial.run(with_value(number, 3, sees_later()))) == 3);
    test::thread_executor foreign;
    CHECK(bide::sync_wait(foreign, with_value(number, 4, sees_later())) == 4);
    const auto moves = [&]() -> task<int> {
        const int here = seen();
        co_await this_task::yield().resume_on(foreign);
        co_return here * 10 + seen();
    };
    CHECK(bide::sync_wait(s, with_value(number, 5, moves())) == 55);
}

TEST_CASE("task_local_value: the value is made and destroyed once, after its scope has ended",
          "[promise.task-local]") {
    task_local_value<test::counted_once> key; // a value that cannot be copied
    for (const bool pooled : {false, true}) {
        runner run(pooled);
        test::tally t;
        const auto uses = [&]() -> task<int> {
            co_await this_task::yield();
            co_return t.alive() > 0 ? key.get()->number() : -1;
        };
        CHECK(run(with_value(key, test::counted_once(t, 3), uses)) == 3);
        CHECK(t.alive() == 0);
        const auto fails = [&]() -> task<int> {
            co_await this_task::yield();
            throw std::runtime_error(std::to_string(key.get()->number()));
        };
        CHECK(what_of([&] {
                  static_cast<void>(run(with_value(key, test::counted_once(t, 4), fails)));
              }) == "4");
        CHECK(t.alive() == 0);
        static_cast<void>(with_value(key, test::counted_once(t, 5), uses)); // is not awaited
        CHECK(t.alive() == 0);
        CHECK(t.copied == 0);
    }
}

TEST_CASE("task_local_value: results of every kind come through, and a cancellation goes in") {
    for (const bool pooled : {false, true}) {
        runner run(pooled);
        static int global = 0;
        const auto refers = []() -> task<int&> { co_return global; };
        CHECK(&run(with_value(number, 1, refers)) == &global);
        const auto owns = []() -> task<std::unique_ptr<int>> {
            co_return std::make_unique<int>(seen());
        };
        CHECK(*run(with_value(number, 2, owns)) == 2);
        const auto nothing = []() -> task<> {
            global = seen();
            co_return;
        };
        run(with_value(number, 3, nothing));
        CHECK(global == 3);
        bide::event never;
        std::atomic<bool> saw{false};
        const auto waits = [&]() -> task<> {
            const auto got = co_await never.async_wait().as_result();
            saw = !got && seen() == 4;
        };
        CHECK(run(bide::with_timeout(with_value(number, 4, waits), 1ms)).has_value());
        CHECK(saw);
    }
}

TEST_CASE("task_local_value: if a scope is destroyed in its wait, its frames go before the value") {
    task_local_value<test::counted> key;
    test::tally t;
    bide::event never;
    int alive = 0;
    struct looks {
        test::tally& in;
        int& alive;
        ~looks() { alive = in.alive(); }
    };
    const auto holds = [&]() -> task<> {
        const looks at_end{t, alive};
        co_await never.async_wait();
    };
    const auto starts = [&](const auto& f) -> test::held {
        auto scope = with_value(key, test::counted(t, 1), with_value(number, 2, f));
        co_await std::move(scope);
    };
    for (int i = 0; i < 10; ++i) {
        test::held one = starts(holds);
        one.start();
        alive = 0;
        one.destroy();
        CHECK(alive == 1);
        CHECK(t.alive() == 0);
    }
}

TEST_CASE("task_local_value: a chain of scopes and of children of any length is looked through") {
    scheduler s(workers(1));
    struct nest {
        static task<int> of(int depth) {
            if (depth == 0) {
                co_return *name.get() == "outer" ? seen() : -1;
            }
            if (depth % 2 == 0) {
                co_return co_await with_value(number, depth, of(depth - 1));
            }
            co_return std::get<0>(co_await bide::when_all(of(depth - 1)));
        }
    };
    CHECK(bide::sync_wait(s, with_value(name, "outer", nest::of(200))) == 2);
}

TEST_CASE("task_local_value: to read it allocates nothing, with or without a scope") {
    scheduler s(workers(1));
    const auto reads = []() -> task<std::size_t> {
        const std::size_t before = test::allocations_here();
        for (int i = 0; i < 10; ++i) {
            static_cast<void>(seen());
        }
        co_return test::allocations_here() - before;
    };
    CHECK(bide::sync_wait(s, with_value(number, 1, reads)) == 0);
    CHECK(bide::sync_wait(s, reads()) == 0);
}

TEST_CASE(
    "task_local_value: whatever ends a task when, it ends once, with the value of its own scope",
    "[promise.task-local][promise.deadlines-travel]") {
    test::rounds([](std::uint32_t round) {
        test::jitter chance(test::seed_of(round));
        scheduler s(workers(1 + round % 3));
        bide::semaphore some(2);
        task_local_value<test::counted> key;
        test::tally t;
        std::atomic<int> wrong{0};
        std::atomic<int> begun{0};
        std::atomic<int> ended{0};
        std::atomic<int> outcomes{0};
        const auto leaf = [&](int expected, std::chrono::nanoseconds rest) -> task<> {
            const auto look = [&] { wrong += key.get()->number() != expected ? 1 : 0; };
            ++begun;
            struct at_end {
                std::atomic<int>& count;
                ~at_end() { ++count; }
            } const counts{ended};
            look();
            const auto held = co_await some.async_acquire();
            co_await this_task::sleep_for(rest);
            look();
        };
        const auto one = [&](int own, std::chrono::nanoseconds rest,
                             std::chrono::nanoseconds limit) -> task<> {
            auto a = leaf(own, rest);
            auto b = with_value(key, test::counted(t, own + 1'000), leaf(own + 1'000, rest));
            auto both = bide::when_all(std::move(a), std::move(b));
            const auto got = co_await bide::with_timeout(std::move(both), limit);
            outcomes += got || got.error() == bide::errc::timeout ? 1 : 100;
        };
        std::vector<bide::join_handle<>> all;
        for (int i = 0; i < 20; ++i) {
            all.push_back(s.spawn(
                with_value(key, test::counted(t, i), one(i, chance.rest(16), chance.rest(17)))));
        }
        for (std::size_t i = 0; i < all.size(); i += 4) {
            chance();
            all[i].cancel();
        }
        int stopped = 0;
        for (auto& h : all) {
            stopped += test::ended_by_stop(std::move(h)) ? 1 : 0;
        }
        REQUIRE(wrong == 0);
        REQUIRE(begun == ended);
        REQUIRE(outcomes + stopped == 20);
        REQUIRE(some.available() == 2);
        REQUIRE(t.alive() == 0);
    });
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("task_local_value: a scope that ends before a group that was made in it terminates") {
    const std::string said = test::dies([] {
        std::optional<bide::detail::group> escaped; // of a task_group, which needs threads
        const auto makes = [&]() -> task<> {
            escaped.emplace();
            co_return;
        };
        bide::sync_wait(with_value(number, 1, makes));
    });
    CHECK(test::contains(said, "task_local_value"));
    CHECK(test::contains(said, "ended before a task_group"));
}

#endif
