#include <bide/sched/task_group.hpp>

#include <bide/sync/event.hpp>
#include <support/homes.hpp>
#include <support/sched.hpp>

using namespace bide;
using test::what_of;
using test::workers;
namespace this_task = bide::this_task;

namespace {

task<> waits_for(event& e, std::atomic<int>& begun) {
    ++begun;
    co_await e.async_wait();
}
// Counts a task that is inside, and the most that have been.
void count_in(std::atomic<int>& inside, std::atomic<int>& most) {
    const int here = ++inside;
    for (int seen = most; seen < here && !most.compare_exchange_weak(seen, here);) {
    }
}
task<> notes(test::journal& in, int name) {
    in.add(name);
    co_return;
}

} // namespace

TEST_CASE("task_group: a limit of zero is refused in the call", "[promise.misuse-refused]") {
    scheduler s(workers(1));
    CHECK_THROWS_AS(task_group(s, 0), std::invalid_argument);
    const auto body = [](task_group&) -> task<> { co_return; };
    CHECK_THROWS_AS(static_cast<void>(task_group::run(s, 0, body)), std::invalid_argument);
}

TEST_CASE("task_group: with a limit, async_spawn waits without a thread until a child has ended") {
    test::each_home home(1);
    event full; // so many are inside at a time
    std::atomic<int> inside{0};
    std::atomic<int> most{0};
    std::atomic<int> ended{0};
    const auto child = [&]() -> task<> {
        count_in(inside, most);
        if (inside == 3) {
            full.set();
        }
        co_await full.async_wait();
        --inside;
        ++ended;
    };
    const auto body = [&](task_group& g) -> task<int> {
        for (int i = 0; i < 100; ++i) {
            co_await g.async_spawn(child);
        }
        co_return ended.load();
    };
    CHECK(home.run(task_group::run(*home, 3, body)) >= 97);
    CHECK(ended == 100);
    CHECK(most == 3);
    const auto endless = [&](task_group& g) -> task<> {
        for (int i = 0; i < 100; ++i) {
            co_await g.async_spawn(child); // waits for nothing
        }
    };
    home.run(task_group::run(*home, endless));
    CHECK(ended == 200);
}

TEST_CASE("task_group: threads and tasks get room in the order in which they began to wait",
          "[promise.task-limits]") {
    scheduler s(workers(1));
    std::atomic<int> begun{0};
    test::journal turns;
    event first;
    task_group g(s, 1);
    g.spawn(waits_for(first, begun));
    std::atomic<int> about_to{0};
    const auto spawns = [&](int name) -> task<> {
        ++about_to;
        co_await g.async_spawn(notes(turns, name));
    };
    REQUIRE(test::eventually([&] { return begun == 1; }));
    auto a = s.spawn(spawns(1));
    auto b = s.spawn(spawns(2)); // the only worker runs them in this order, each until it waits
    auto after = s.spawn([] {});
    std::move(after).join();
    REQUIRE(about_to == 2);
    test::team thread(1, [&](int) { g.spawn(notes(turns, 3)); });
    first.set();
    thread.join();
    std::move(a).join();
    std::move(b).join();
    g.join();
    CHECK(turns.entries() == std::vector<int>{1, 2, 3});
}

TEST_CASE("task_group: a spawn that fails, or is cancelled, gives its room back",
          "[promise.task-limits]") {
    scheduler s(workers(2));
    std::atomic<int> begun{0};
    test::tally t;
    event may_end;
    task_group g(s, 1);
    const auto fails = []() -> task<> { throw std::runtime_error("no task"); };
    for (int i = 0; i < 3; ++i) {
        const auto refused = [&]() -> task<> { co_await g.async_spawn(fails); };
        CHECK(what_of([&] { g.spawn(fails); }) == "no task");
        CHECK(what_of([&] { sync_wait(s, refused()); }) == "no task");
    }
    g.spawn(waits_for(may_end, begun));
    std::atomic<bool> about_to{false};
    const auto child = [](test::counted_once, std::atomic<int>& ran) -> task<> {
        ++ran;
        co_return;
    };
    const auto waits = [&]() -> task<> {
        about_to = true;
        co_await g.async_spawn(child(test::counted_once(t, 1), begun));
    };
    auto h = s.spawn(waits());
    REQUIRE(test::eventually([&] { return about_to && begun == 1; }));
    CHECK(h.cancel());
    CHECK(test::ended_by_stop(std::move(h)));
    CHECK(t.alive() == 0);
    may_end.set();
    g.join();
    CHECK(begun == 1);
    g.spawn(waits_for(may_end, begun));
    g.spawn(waits_for(may_end, begun)); // there is room after the first
    g.join();
    CHECK(begun == 3);
}

TEST_CASE("task_group: an async_spawn that got room before a cancellation spawns its child",
          "[promise.task-limits]") {
    run_loop loop;
    std::atomic<int> begun{0};
    event may_end;
    task_group g(loop, 1);
    const auto spawns = [&]() -> task<> { co_await g.async_spawn(waits_for(may_end, begun)); };
    auto first = loop.spawn(spawns());
    auto second = loop.spawn(spawns());
    const auto cancels = [&]() -> task<> {
        while (begun == 0) {
            co_await this_task::yield();
        }
        may_end.set();
        co_await this_task::yield(); // the first child ends
        CHECK(second.cancel());
    };
    loop.spawn(cancels()).detach();
    loop.run();
    std::move(first).join();
    std::move(second).join();
    CHECK(begun == 2);
    loop.spawn(spawns()).detach(); // there is room
    loop.run();
    CHECK(begun == 3);
}

TEST_CASE("task_group: an async_spawn that is not awaited takes no room, and destroys its child") {
    scheduler s(workers(1));
    std::atomic<int> begun{0};
    test::tally t;
    event may_end;
    may_end.set();
    task_group g(s, 1);
    const auto child = [](test::counted_once, std::atomic<int>& ran) -> task<> {
        ++ran;
        co_return;
    };
    {
        auto operation = g.async_spawn(child(test::counted_once(t, 1), begun));
        auto moved = std::move(operation);
        CHECK(t.alive() == 1);
    }
    CHECK(t.alive() == 0);
    const auto spawns = [&]() -> task<> {
        auto operation = g.async_spawn(child(test::counted_once(t, 2), begun));
        co_await g.async_spawn(waits_for(may_end, begun)); // there is room
        co_await std::move(operation);
    };
    sync_wait(s, spawns());
    g.join();
    CHECK(begun == 2);
    CHECK(t.alive() == 0);
}

TEST_CASE("task_group: children that never start give their room back") {
    std::atomic<int> begun{0};
    event never;
    {
        scheduler s(workers(2));
        task_group g(s, 2);
        g.spawn(waits_for(never, begun));
        g.cancel();
        for (int i = 0; i < 100; ++i) {
            g.spawn(waits_for(never, begun));
        }
        g.join();
        CHECK(begun <= 1);
    }
    begun = 0;
    scheduler s(workers(2));
    task_group g(s, 2);
    s.shutdown();
    for (int i = 0; i < 100; ++i) {
        g.spawn(waits_for(never, begun));
    }
    CHECK(what_of([&] { g.join(); }) == "stopped");
    CHECK(begun == 0);
}

// A coroutine without an executor that waits for room resumes on the thread of the child that has
// ended. It blocks there until the end of all children, that child among them.
TEST_CASE("task_group: a coroutine that got room may block until the group has ended") {
    scheduler s(workers(1));
    std::atomic<int> begun{0};
    std::atomic<bool> over{false};
    event first;
    event other;
    task_group g(s, 1);
    g.spawn(waits_for(first, begun));
    const auto spawns = [](task_group& in, event& e, std::atomic<int>& count,
                           std::atomic<bool>& done) -> test::detached {
        co_await in.async_spawn(waits_for(e, count));
        e.set();
        in.join();
        done = true;
    };
    spawns(g, other, begun, over);
    first.set();
    CHECK(test::eventually([&] { return over.load(); }));
    CHECK(begun == 2);
}

TEST_CASE("task_group: with a limit, never more children run, from wherever they are spawned",
          "[promise.task-limits]") {
    test::rounds([](std::uint32_t round) {
        scheduler s(workers(1 + round % 3));
        const int limit = 1 + static_cast<int>(round % 4);
        std::atomic<int> inside{0};
        std::atomic<int> most{0};
        std::atomic<int> begun{0};
        std::atomic<int> ended{0};
        std::atomic<int> spawned{0};
        auto* const g = new task_group(s, static_cast<std::size_t>(limit));
        const auto child = [&]() -> task<> {
            ++begun;
            count_in(inside, most);
            struct at_end {
                std::atomic<int>& now;
                std::atomic<int>& count;
                ~at_end() {
                    --now;
                    ++count;
                }
            } const counts{inside, ended};
            co_await this_task::yield();
        };
        const auto spawner = [&](test::jitter chance) -> task<> {
            for (int i = 0; i < 20; ++i) {
                co_await g->async_spawn(child);
                ++spawned;
                chance();
            }
        };
        auto a = s.spawn(spawner(test::jitter(test::seed_of(round))));
        auto b = s.spawn(spawner(test::jitter(test::seed_of(round + 1))));
        test::run_threads(2, [&](int me) {
            test::jitter chance(test::seed_of(round + 2));
            if (me == 0) {
                for (int i = 0; i < 20; ++i) {
                    g->spawn(child);
                    ++spawned;
                }
            } else if (round % 3 == 0) {
                chance();
                a.cancel();
            }
        });
        const bool a_stopped = test::ended_by_stop(std::move(a));
        const bool b_stopped = test::ended_by_stop(std::move(b));
        g->join();
        delete g;
        REQUIRE_FALSE(b_stopped);
        REQUIRE((round % 3 == 0 || !a_stopped));
        REQUIRE(spawned == ended);
        REQUIRE(begun == ended);
        REQUIRE((a_stopped || ended == 60));
        REQUIRE(most <= limit);
    });
}

TEST_CASE("task_group: groups of one child each nest, in trees and chains, on one worker") {
    scheduler_options options;
    options.num_workers = 1;
    options.max_blocking_threads = 1;
    scheduler s(std::move(options));
    std::atomic<int> made{0};
    const auto tree = [&](const auto& self, int depth) -> task<> {
        ++made;
        const auto body = [&, depth](task_group& group) -> task<> {
            for (int i = 0; i < 2 && depth != 0; ++i) {
                co_await group.async_spawn(self(self, depth - 1));
            }
        };
        co_await task_group::run(s, 1, body);
    };
    sync_wait(s, tree(tree, 6));
    CHECK(made == 127);
    made = 0;
    const auto chain = [&](const auto& self, int depth) -> task<> {
        ++made;
        task_group group(s, 1); // its destructor blocks
        if (depth != 0) {
            group.spawn(self(self, depth - 1));
        }
        co_return;
    };
    s.spawn(chain(chain, 20)).join();
    CHECK(made == 21);
}

TEST_CASE("task_group: threads that wait for room go on when the group is cancelled") {
    scheduler s;
    for (int round = 0; round < 20; ++round) {
        std::atomic<int> stayed{0};
        task_group group(s, 1);
        event never;
        const auto waits = [&]() -> task<> {
            co_await never.async_wait();
            ++stayed;
        };
        group.spawn(waits);
        test::team others(3, [&](int) {
            for (int i = 0; i < 5; ++i) {
                group.spawn(waits);
            }
        });
        group.cancel();
        others.join();
        group.join();
        CHECK(stayed == 0);
    }
}
