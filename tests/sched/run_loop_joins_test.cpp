#include <bide/sched/run_loop.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sync/event.hpp>
#include <support/sched.hpp>

// A task of a loop that awaits another task. If that one is the next job of the loop, it runs inside of
// the job that awaits it.

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
