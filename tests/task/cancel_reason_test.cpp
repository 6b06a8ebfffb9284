#include <bide/task/cancel_reason.hpp>

#include <bide/sched/join_set.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/task/compose.hpp>
#include <support/rounds.hpp>
#include <support/simulated.hpp>
#include <support/tasks.hpp>

using bide::cancel_reason;
using bide::scheduler;
using bide::task;
using bide::user_reason;
using test::workers;
namespace this_task = bide::this_task;

namespace {

// Waits until it is cancelled, and notes why.
struct noted {
    std::atomic<bool> waits{false};
    std::atomic<cancel_reason> why{cancel_reason::none};

    task<> wait() {
        bide::semaphore none(0);
        waits = true;
        const auto got = co_await none.async_acquire().as_result();
        why = got ? cancel_reason::none : this_task::cancel_reason();
    }
    bool begins() const {
        return test::eventually([this] { return waits.load(); });
    }
};

} // namespace

TEST_CASE("cancel_reason: a cancelled task reads the reason of the first canceller",
          "[promise.deadlines-travel]") {
    test::simulated run;
    CHECK(this_task::cancel_reason() == cancel_reason::none);
    for (const cancel_reason why :
         {cancel_reason::requested, user_reason(0), user_reason(5), user_reason(127)}) {
        noted one;
        auto h = run.spawn(one.wait());
        run.run_ready();
        if (why == cancel_reason::requested) {
            h.cancel();
        } else {
            h.cancel(why);
        }
        h.cancel(user_reason(3));
        std::move(h).join();
        CHECK(one.why == why);
    }
    CHECK(user_reason(0) == cancel_reason::user);
    CHECK(user_reason(5) != user_reason(6));
}

TEST_CASE("cancel_reason: a task that is not cancelled, or is shielded, has none") {
    test::simulated run;
    using reasons = std::vector<cancel_reason>;
    auto h = run.spawn([]() -> task<reasons> {
        reasons seen{this_task::cancel_reason()};
        {
            const this_task::shield held;
            co_await this_task::sleep_for(std::chrono::hours(2));
            seen.push_back(this_task::cancel_reason());
        }
        seen.push_back(this_task::cancel_reason());
        co_return seen;
    });
    run.run_for(std::chrono::hours(1));
    CHECK(h.cancel(user_reason(1)));
    CHECK(std::move(h).join() == reasons{cancel_reason::none, cancel_reason::none, user_reason(1)});
}

TEST_CASE("cancel_reason: children of a cancelled task read parent, and losers read sibling") {
    test::simulated run;
    noted a;
    noted b;
    auto h = run.spawn(bide::when_all(a.wait(), b.wait()));
    run.run_ready();
    h.cancel(user_reason(2));
    std::move(h).join();
    CHECK(a.why == cancel_reason::parent);
    CHECK(b.why == cancel_reason::parent);
    noted loser;
    const auto wins = []() -> task<> { co_await this_task::yield(); };
    run.run_until(bide::when_any(loser.wait(), wins));
    CHECK(loser.why == cancel_reason::sibling);
}

TEST_CASE("cancel_reason: members of a group or a set read why it was cancelled") {
    test::simulated run;
    noted one;
    noted other;
    SECTION("the first reason of a group counts, also for a member that comes later") {
        bide::task_group g(run);
        g.spawn(one.wait());
        run.run_ready();
        g.cancel(user_reason(7));
        g.cancel();
        g.spawn(other.wait());
        g.join();
        CHECK(one.why == user_reason(7));
    }
    SECTION("a member that fails") {
        bide::task_group g(run);
        g.spawn(one.wait());
        const auto fails = []() -> task<> {
            co_await this_task::yield();
            throw std::runtime_error("fails");
        };
        g.spawn(fails);
        CHECK(test::what_of([&] { g.join(); }) == "fails");
        CHECK(one.why == cancel_reason::sibling);
    }
    SECTION("the parent of a group") {
        auto h = run.spawn([&]() -> task<> {
            bide::task_group g(run);
            g.spawn(one.wait());
            co_await g.async_join();
        });
        run.run_ready();
        h.cancel(user_reason(1));
        CHECK(test::ended_by_stop(std::move(h)));
        CHECK(one.why == cancel_reason::parent);
    }
    SECTION("a set that is cancelled") {
        bide::join_set<> set(run);
        set.spawn(one.wait());
        run.run_ready();
        set.cancel(user_reason(9));
        while (set.join_next()) {
        }
        CHECK(one.why == user_reason(9));
    }
    SECTION("a set that is destroyed") {
        {
            bide::join_set<> set(run);
            set.spawn(one.wait());
            run.run_ready();
        }
        CHECK(one.why == cancel_reason::parent);
    }
}

TEST_CASE("cancel_reason: a task reads shutdown if its scheduler shuts down") {
    noted waits;
    noted begins_later;
    std::atomic<bool> runs{false};
    std::atomic<bool> may_wait{false};
    scheduler s(workers(2));
    const auto later = [&]() -> task<> {
        runs = true;
        static_cast<void>(test::eventually([&] { return may_wait.load(); }));
        co_await begins_later.wait();
    };
    s.spawn(waits.wait()).detach();
    s.spawn(later).detach();
    REQUIRE(waits.begins());
    REQUIRE(test::eventually([&] { return runs.load(); }));
    test::team closer(1, [&](int) { s.shutdown(); });
    REQUIRE(test::eventually([&] { return waits.why != cancel_reason::none; }));
    may_wait = true;
    closer.join();
    CHECK(waits.why == cancel_reason::shutdown);
    CHECK(begins_later.why == cancel_reason::shutdown);
}
