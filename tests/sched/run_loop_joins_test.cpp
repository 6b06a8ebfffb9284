#include <bide/sched/run_loop.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/strand.hpp>
#include <support/sched.hpp>

// A task of a loop that awaits another task. If that one is the next job of the loop, it runs inside of
// the job that awaits it. The same holds on a scheduler, if the awaited task is in the worker's LIFO slot.

using namespace bide;
using bide::this_task::yield;

namespace {

using order = std::vector<std::string>;

task<> says(order& o, const char* what) {
    o.emplace_back(what);
    co_return;
}

// Returns "stopped" if the join was stopped, or else what the task threw, or "joined".
task<> joins(order& o, join_handle<> of) {
    try {
        co_await std::move(of).async_join();
        o.emplace_back("joined");
    } catch (const stopped_error&) {
        o.emplace_back("stopped");
    } catch (const std::exception& e) {
        o.emplace_back(e.what());
    }
}

// A test with a loop, whose tasks say what they do.
struct on_loop {
    run_loop loop;
    order o;
};

} // namespace

TEST_CASE_METHOD(on_loop,
                 "run_loop: a task that joins the only other task continues in the same job") {
    const auto outer = [&]() -> task<> {
        for (int i = 0; i < 3; ++i) {
            co_await joins(o, loop.spawn(says(o, "child")));
        }
    };
    loop.spawn(outer).detach();
    CHECK(loop.run() == 4); // itself and three children
    CHECK(o == order{"child", "joined", "child", "joined", "child", "joined"});
}

TEST_CASE_METHOD(
    on_loop, "run_loop: a task that joins another one continues behind what became runnable before",
    "[promise.run-loop-joins]") {
    SECTION("by the awaited task") {
        const auto child = [&]() -> task<> {
            o.emplace_back("child");
            loop.spawn(says(o, "grandchild")).detach();
            co_return;
        };
        const auto outer = [&]() -> task<> { co_await joins(o, loop.spawn(child)); };
        loop.run_until(outer());
        CHECK(o == order{"child", "grandchild", "joined"});
    }
    SECTION("by the joiner, behind the awaited task") {
        const auto outer = [&]() -> task<> {
            auto child = loop.spawn(says(o, "child"));
            loop.spawn(says(o, "other")).detach();
            co_await joins(o, std::move(child));
        };
        loop.run_until(outer());
        CHECK(o == order{"child", "other", "joined"});
    }
    SECTION("by the joiner, before the awaited task") {
        const auto outer = [&]() -> task<> {
            loop.spawn(says(o, "other")).detach();
            co_await joins(o, loop.spawn(says(o, "child")));
        };
        loop.run_until(outer());
        CHECK(o == order{"other", "child", "joined"});
    }
    SECTION("by the awaited task, which waits") {
        const auto child = [&]() -> task<> {
            loop.spawn(says(o, "grandchild")).detach();
            co_await yield();
            o.emplace_back("child");
        };
        const auto outer = [&]() -> task<> { co_await joins(o, loop.spawn(child)); };
        loop.run_until(outer());
        CHECK(o == order{"grandchild", "child", "joined"});
    }
    SECTION("by the last of two children in place, which joins") {
        const auto first = [&]() -> task<> { co_await joins(o, loop.spawn(says(o, "child"))); };
        const auto second = [&] { return says(o, "sibling"); };
        const auto both = [&]() -> task<> { co_await when_all(first, second); };
        loop.run_until(both());
        CHECK(o == order{"child", "sibling", "joined"});
    }
}

TEST_CASE_METHOD(on_loop,
                 "run_loop: the exception of a joined task reaches its joiner, and no other one") {
    const auto child = []() -> task<> {
        throw std::runtime_error("failed");
        co_return;
    };
    const auto outer = [&]() -> task<> { co_await joins(o, loop.spawn(child)); };
    loop.run_until(outer());
    CHECK(o == order{"failed"});
}

TEST_CASE_METHOD(on_loop, "run_loop: a task that is cancelled by the task that it joins is stopped",
                 "[promise.run-loop-joins]") {
    std::optional<join_handle<>> outer;
    const auto child = [&]() -> task<> {
        o.emplace_back("child");
        CHECK(outer->cancel());
        co_return;
    };
    const auto joiner = [&]() -> task<> { co_await joins(o, loop.spawn(child)); };
    outer = loop.spawn(joiner);
    loop.run();
    CHECK(o == order{"child", "stopped"});
}

TEST_CASE_METHOD(
    on_loop, "run_loop: a cancelled task that joins another one is stopped before that one runs") {
    std::optional<join_handle<>> outer;
    const auto joiner = [&]() -> task<> {
        auto child = loop.spawn(says(o, "child"));
        CHECK(outer->cancel());
        co_await joins(o, std::move(child));
    };
    outer = loop.spawn(joiner);
    loop.run();
    CHECK(o == order{"stopped", "child"});
}

TEST_CASE_METHOD(on_loop,
                 "run_loop: a join with a time-out that polls does not run the awaited task") {
    const auto outer = [&]() -> task<> {
        auto join = loop.spawn(says(o, "child")).async_join();
        const auto got = co_await std::move(join).with_timeout(0s);
        o.emplace_back(got ? "joined" : "timeout");
    };
    loop.run_until(outer());
    loop.run();
    CHECK(o == order{"timeout", "child"});
}

TEST_CASE_METHOD(on_loop,
                 "run_loop: stop() by a joined task ends the run before its joiner continues",
                 "[promise.run-loop-joins]") {
    const auto child = [&]() -> task<> {
        loop.stop();
        o.emplace_back("child");
        co_return;
    };
    const auto outer = [&]() -> task<> { co_await joins(o, loop.spawn(child)); };
    loop.spawn(outer).detach();
    loop.run();
    CHECK(o == order{"child"});
    loop.run();
    CHECK(o == order{"child", "joined"});
}

// The group of the child blocks the thread, and runs the loop inside of the child, whose joiner the
// other task cancels. The child ends only when the joiner has.
TEST_CASE_METHOD(on_loop,
                 "run_loop: a joiner goes on while the task that it joins blocks the loop's thread",
                 "[promise.run-loop-joins]") {
    event joiner_ended;
    std::optional<join_handle<>> outer;
    const auto waits = [&]() -> task<> { co_await joiner_ended.async_wait(); };
    const auto cancels = [&]() -> task<> {
        CHECK(outer->cancel());
        co_return;
    };
    const auto child = [&]() -> task<> {
        {
            task_group group(loop);
            group.spawn(waits);
            group.spawn(cancels);
        }
        o.emplace_back("child");
        co_return;
    };
    const auto joiner = [&](int depth, const auto& again) -> task<> {
        if (depth == 0) {
            co_await joins(o, loop.spawn(child));
            joiner_ended.set();
        } else {
            co_await loop.spawn(again(depth - 1, again)).async_join();
        }
        o.emplace_back("joiner");
    };
    SECTION("the joiner is stopped") {
        outer = loop.spawn(joiner(0, joiner));
        loop.run();
        CHECK(o == order{"stopped", "joiner", "child"});
    }
    SECTION("a joiner of the joiner is stopped, and the event comes from there") {
        const auto outermost = [&]() -> task<> {
            co_await joins(o, loop.spawn(joiner(1, joiner)));
            joiner_ended.set();
        };
        outer = loop.spawn(outermost);
        loop.run();
        CHECK(o == order{"stopped", "child", "joined", "joiner", "joiner"});
    }
}

TEST_CASE("run_loop: joins inside of joins take no stack without limit",
          "[promise.run-loop-joins]") {
    run_loop loop;
    const auto sum = [&](int n, const auto& again) -> task<std::uint64_t> {
        if (n == 0) {
            co_return 0;
        }
        const std::uint64_t rest = co_await loop.spawn(again(n - 1, again)).async_join();
        co_return rest + static_cast<std::uint64_t>(n);
    };
    CHECK(loop.run_until(sum(100'000, sum)) == std::uint64_t{100'000} * 100'001 / 2);
    loop.spawn(sum(32, sum)).detach();
    CHECK(loop.run() > 33); // so some of them have waited, and were resumed
}

TEST_CASE("run_loop: a task that joins one task after the other lets timers and posts have turns") {
    run_loop loop;
    bool over = false;
    const auto sleeps = [&]() -> task<> {
        co_await this_task::sleep_for(1ms);
        over = true;
    };
    const auto nothing = []() -> task<> { co_return; };
    const auto busy = [&]() -> task<> {
        while (!over) {
            co_await loop.spawn(nothing()).async_join();
        }
    };
    loop.spawn(sleeps).detach();
    loop.run_until(busy());
    CHECK(over);
}

TEST_CASE("scheduler: a task that awaits the task that it spawned last does not wait for it",
          "[promise.scheduler-joins]") {
    scheduler s(test::with(1, true));
    std::string last;
    std::string other;
    const auto dumps = [&](std::string& to) -> task<> {
        to = test::dump_of(s);
        co_return;
    };
    s.spawn([&]() -> task<> {
         co_await s.spawn(dumps(last));
         auto older = s.spawn(dumps(other));
         s.spawn([] {}).detach();
         co_await std::move(older);
     }).join();
    CHECK(last.find("waiting tasks: 0") != std::string::npos);
    CHECK(other.find("waiting tasks: 1") != std::string::npos);
}

TEST_CASE("scheduler: a task that awaits another one has its outcome, and learns of its own end",
          "[promise.scheduler-joins]") {
    scheduler s(test::each_of({1})); // a thief could end the task before the await
    order o;
    std::optional<join_handle<>> outer;
    event began;
    semaphore ended(0);
    const auto fails = []() -> task<> {
        throw std::runtime_error("failed");
        co_return;
    };
    const auto cancels = [&]() -> task<> {
        o.emplace_back(outer->cancel() ? "cancelled" : "too late");
        co_return;
    };
    const auto yields = [&]() -> task<> {
        co_await yield();
        o.emplace_back("child");
    };
    outer = s.spawn([&]() -> task<> {
        co_await began.async_wait();
        co_await joins(o, s.spawn(fails));
        co_await joins(o, s.spawn(yields));
        co_await joins(o, s.spawn(cancels));
        ended.release();
    });
    began.set();
    CHECK(ended.try_acquire_for(test::patience));
    std::move(*outer).join();
    CHECK(o == order{"failed", "child", "joined", "cancelled", "stopped"});
}

// The awaited task blocks its thread until the task that awaits it has ended. The worker may be taken
// over by another thread, or not.
TEST_CASE("scheduler: a task goes on while the task that it awaits blocks the thread of both",
          "[promise.scheduler-joins]") {
    scheduler s(test::each_of({1, 3}));
    const int depth = GENERATE(0, 2);
    semaphore began(0);
    semaphore ended(0);
    semaphore over(0);
    order o;
    bool has_ended = false;
    const auto blocks = [&]() -> task<> {
        began.release();
        has_ended = ended.try_acquire_for(test::patience);
        over.release();
        co_return;
    };
    const auto joiner = [&](int left, const auto& again) -> task<> {
        if (left == 0) {
            co_await s.spawn(blocks);
        } else {
            co_await s.spawn(again(left - 1, again));
        }
        over.release();
    };
    auto outer = s.spawn([&]() -> task<> {
        co_await joins(o, s.spawn(joiner(depth, joiner)));
        ended.release(2);
    });
    CHECK(began.try_acquire_for(test::patience));
    CHECK(outer.cancel());
    std::move(outer).join();
    CHECK(over.try_acquire_for(test::patience, depth + 2)); // a shutdown would stop them
    CHECK(has_ended);
    CHECK(o.front() == "stopped");
}

TEST_CASE("scheduler: a task of a strand leaves the strand while it awaits another task",
          "[promise.scheduler-joins]") {
    scheduler s(test::with(2, true));
    strand serial(s);
    semaphore told(0);
    const auto tells = [&]() -> task<> {
        co_await serial.schedule();
        told.release();
    };
    bool was_told = false;
    const auto blocks = [&]() -> task<> {
        s.spawn(tells).detach();
        was_told = !serial.is_here() && told.try_acquire_for(test::patience); // needs the strand
        co_return;
    };
    const auto awaits = [&]() -> task<> { co_await s.spawn(blocks); };
    SECTION("a task that runs completely on it") { s.spawn(serial.run(awaits())).join(); }
    SECTION("a task that has moved to it") {
        s.spawn([&]() -> task<> {
             co_await serial.schedule();
             co_await awaits();
         }).join();
    }
    CHECK(was_told);
}

TEST_CASE("scheduler: joins inside of joins take no stack without limit, also if they block",
          "[promise.scheduler-joins]") {
    scheduler s(test::with(2, true));
    semaphore never(0);
    const bool blocks = GENERATE(false, true);
    bool is_early = false;
    const auto sum = [&](int n, const auto& again) -> task<std::uint64_t> {
        if (n == 0) {
            co_return 0;
        }
        if (blocks) {
            is_early = never.try_acquire_for(1us);
        }
        const std::uint64_t rest = co_await s.spawn(again(n - 1, again));
        co_return rest + static_cast<std::uint64_t>(n);
    };
    const int depth = blocks ? 1'000 : 50'000;
    const auto all = static_cast<std::uint64_t>(depth);
    CHECK(s.spawn(sum(depth, sum)).join() == all * (all + 1) / 2);
}

TEST_CASE("scheduler: a task that joins one task after the other lets all other jobs have turns",
          "[promise.scheduler-joins]") {
    scheduler s(test::with(1, true));
    std::atomic<int> over{0};
    const auto sleeps = [&]() -> task<> {
        co_await this_task::sleep_for(1ms);
        ++over;
    };
    const auto yields = [&]() -> task<> {
        co_await yield();
        ++over;
    };
    const auto busy = [&]() -> task<> {
        s.spawn(yields).detach();
        s.spawn(sleeps).detach();
        while (over != 3) {
            co_await s.spawn([] {});
        }
    };
    auto ends = s.spawn(busy);
    s.spawn([&] { ++over; }).join(); // from outside
    std::move(ends).join();
    CHECK(over == 3);
}
