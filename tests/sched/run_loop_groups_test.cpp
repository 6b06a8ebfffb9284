#include <bide/sched/join_set.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/stream/buffered.hpp>
#include <bide/sync/event.hpp>
#include <support/sched.hpp>

// Groups, sets and streams whose tasks run on a run_loop: they wait without a thread, and where they
// block the thread of the loop, it runs the other tasks meanwhile.

using namespace bide;
using bide::this_task::yield;

namespace {

task<> add(int& to, int n, int rounds = 1) {
    for (int i = 0; i < rounds; ++i) {
        co_await yield();
    }
    to += n;
}

task<int> after(event& e, int n) {
    co_await e.async_wait();
    co_return n;
}

task<> set(event& e) {
    co_await yield();
    e.set();
}

task<> wait_for(event& e, bool& stopped) {
    const auto waited = co_await e.async_wait().as_result();
    stopped = !waited.has_value();
    if (stopped) {
        co_await yield(); // still takes a turn of the loop
    }
}

bool is_asleep(run_loop& loop) { return test::contains(test::dump_of(loop), "state: asleep"); }

async_generator<int> count(int from, int to) {
    for (int i = from; i < to; ++i) {
        co_await yield();
        co_yield std::move(i);
    }
}

// A test with a loop.
struct on_loop {
    run_loop loop;
};

} // namespace

TEST_CASE_METHOD(on_loop,
                 "run_loop: a group that blocks the loop's thread at its end runs the other tasks",
                 "[promise.run-loop-groups]") {
    int sum = 0;
    event go;
    const auto nested = [&](auto& self, int depth) -> task<> {
        task_group group(loop);
        group.spawn(add(sum, 1, depth));
        if (depth != 0) {
            group.spawn(self(self, depth - 1));
        }
        co_return; // the destructor of the group blocks
    };
    const auto root = [&]() -> task<int> {
        {
            task_group group(loop);
            const auto child = [&]() -> task<> { sum += co_await after(go, 100); };
            group.spawn(child);
            group.spawn(nested(nested, 5));
            loop.spawn(set(go)).detach(); // of no group, and the child waits for it
            group.join();
        }
        co_return sum;
    };
    CHECK(loop.run_until(root()) == 106);
}

TEST_CASE_METHOD(
    on_loop,
    "run_loop: a canceller that is the last to leave a group wakes the loop that waits for it") {
    event began, entered, leave, over;
    auto hold = [&]() noexcept {
        entered.set();
        leave.wait(); // the canceller is in the group until then
    };
    std::optional<std::stop_callback<decltype(hold)>> held;
    task_group* group = nullptr;
    std::thread canceller([&] {
        began.wait();
        group->cancel();
    });
    // When the loop sleeps, its group has no child left, and the canceller alone can end the wait.
    std::thread watcher([&] {
        while (!over.is_set() && !is_asleep(loop)) {
            std::this_thread::yield();
        }
        leave.set();
    });
    const auto child = [&]() -> task<> {
        held.emplace(this_task::get_stop_token(), hold);
        began.set();
        entered.wait(); // runs while it is cancelled, so that it ends without its canceller
        co_return;
    };
    const auto root = [&]() -> task<> {
        task_group mine(loop);
        group = &mine;
        mine.spawn(child);
        mine.join();
        co_return;
    };
    loop.run_until(root());
    over.set();
    canceller.join();
    watcher.join();
    CHECK(leave.is_set());
}

TEST_CASE_METHOD(on_loop,
                 "run_loop: stop() does not end the wait for a group, but the run around it") {
    int sum = 0;
    bool ended = false;
    const auto root = [&]() -> task<> {
        {
            task_group group(loop);
            group.spawn(add(sum, 1, 3));
            loop.stop();
        }
        ended = true;
        co_await yield();
        sum += 10;
    };
    loop.spawn(root()).detach();
    loop.run();
    CHECK(ended);
    CHECK(sum == 1);
    loop.run();
    CHECK(sum == 11);
}

TEST_CASE("run_loop: its destructor ends the tasks that wait for groups, and their children") {
    event never;
    bool stopped = false, also_stopped = false;
    {
        run_loop loop;
        const auto joins = [&]() -> task<> {
            task_group group(loop);
            group.spawn(wait_for(never, stopped));
            co_await group.async_join();
        };
        const auto waits = [&]() -> task<> {
            task_group group(loop);
            group.spawn(wait_for(never, also_stopped));
            co_await never.async_wait(); // stopped: the destructor of the group blocks
        };
        loop.spawn(joins).detach();
        loop.spawn(waits).detach();
        loop.poll();
    }
    CHECK(stopped);
    CHECK(also_stopped);
}

TEST_CASE_METHOD(on_loop, "run_loop: merge() and buffered() run their streams and tasks in it",
                 "[promise.run-loop-groups]") {
    const auto merged = [&]() -> task<std::vector<int>> {
        auto all = bide::merge(loop, count(0, 5), count(10, 15));
        std::vector<int> got;
        for (;;) {
            const auto item = co_await all.async_recv();
            if (!item) {
                break;
            }
            got.push_back(*item);
        }
        std::sort(got.begin(), got.end());
        co_return got;
    };
    CHECK(loop.run_until(merged()) == std::vector{0, 1, 2, 3, 4, 10, 11, 12, 13, 14});

    const auto square = [](int n) -> task<int> {
        for (int i = n % 3; i < 3; ++i) {
            co_await yield();
        }
        co_return n* n;
    };
    const auto buffered = [&](int most) -> task<int> {
        auto squares = bide::buffered(loop, map(count(0, 10), square), 4);
        int last = -1;
        for (int i = 0; i < most; ++i) {
            const auto item = co_await squares.next();
            last = *item;
        }
        co_return last;
    };
    CHECK(loop.run_until(buffered(10)) == 81);
    CHECK(loop.run_until(buffered(3)) == 4); // the generator blocks at its end
    CHECK(loop.tasks() == 0);
}

TEST_CASE_METHOD(
    on_loop, "run_loop: a group, a set or a stream that ends outside of a run runs its own loop",
    "[promise.run-loop-groups]") {
    int sum = 0;
    event go;
    const auto waits = [&]() -> task<> { sum += co_await after(go, 100); };
    {
        task_group group(loop); // no thread has run the loop
        group.spawn(waits);
        loop.spawn(set(go)).detach();
    }
    CHECK(sum == 100);
    {
        join_set<int> set(loop);
        set.spawn(after(go, 1));
        loop.poll();
        set.spawn(after(go, 1));
    }
    {
        auto all = bide::merge(loop, count(0, 5), count(10, 15));
        CHECK(loop.run_until([&]() -> task<bool> {
            const auto item = co_await all.async_recv();
            co_return item.has_value();
        }()));
    }
    task_group group(loop);
    go.reset();
    group.spawn(waits);
    std::thread sets([&] {
        while (!is_asleep(loop)) {
            std::this_thread::yield();
        }
        go.set();
    });
    group.join();
    sets.join();
    CHECK(sum == 200);
    CHECK(loop.tasks() == 0);
}

TEST_CASE_METHOD(on_loop,
                 "run_loop: a thread that waits for a group gives way to one that runs the loop",
                 "[promise.run-loop-groups]") {
    event go;
    std::thread::id ran_on;
    task_group group(loop);
    group.spawn([&]() -> task<> {
        co_await go.async_wait();
        ran_on = std::this_thread::get_id();
    });
    std::thread runs([&] {
        while (!is_asleep(loop)) { // in join()
            std::this_thread::yield();
        }
        loop.poll(); // takes it over
        go.set();
        loop.run();
    });
    const auto runner = runs.get_id();
    group.join();
    runs.join();
    CHECK(ran_on == runner);
}
