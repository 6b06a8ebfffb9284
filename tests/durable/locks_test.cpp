#include <bide/durable/locks.hpp>

#include <bide/durable/errors.hpp>
#include <bide/durable/slots/memory.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <support/durable_locks.hpp>
#include <support/unhurried.hpp>

using namespace bide;

static_assert(std::movable<durable_mutex> && std::movable<durable_guard>);
static_assert(any_slot<memory_slot> && !any_slot<durable_mutex>);

TEST_CASE("durable_mutex: tasks hold it across suspensions, and waiting blocks no worker") {
    scheduler_options one;
    one.num_workers = 1;
    scheduler workers(one);
    durable_mutex m(memory_slot{});
    int inside = 0;
    bool wrong = false;
    const auto body = [&]() -> task<void> {
        for (int i = 0; i < 10; ++i) {
            auto g = co_await m.async_acquire();
            wrong = wrong || !g || inside != 0;
            ++inside;
            co_await this_task::yield();
            --inside;
        }
    };
    std::vector<join_handle<void>> tasks;
    for (int i = 0; i < 3; ++i) {
        tasks.push_back(workers.spawn(body()));
    }
    for (auto& t : tasks) {
        std::move(t).join();
    }
    REQUIRE_FALSE(wrong);
}

TEST_CASE("durable_mutex: is not recursive, except for the same ticket") {
    durable_mutex m(memory_slot{});
    acquire_request mine;
    mine.ticket = m.ticket("me");
    const auto g = m.acquire(mine);
    REQUIRE(m.try_acquire().error() == errc::timeout);
    durable_ticket again = *mine.ticket;
    REQUIRE(m.try_acquire(again)->acquired);
    REQUIRE(again.fence == g->fence());
    REQUIRE(g->lane() == 0);
}

TEST_CASE("durable_mutex: a minimum hold time keeps other contenders out after an early release",
          "[promise.durable-minimum-hold]") {
    std::chrono::milliseconds now = 1'000s;
    durable_options o{.clock = lock_clock::caller};
    o.now = [&now] { return now; };
    o.lease = 20s;
    o.auto_renew = false;
    durable_mutex m(memory_slot(), o);
    acquire_request once;
    once.at_least = 60s;
    auto g = test::acquired(m, once);
    const std::int64_t fence = g->fence();
    REQUIRE(g->release().has_value());
    REQUIRE(m.try_acquire().error() == errc::timeout);
    now += 60s - 1ms;
    REQUIRE(m.try_acquire().error() == errc::timeout);
    now += 1ms;
    const auto next = m.try_acquire();
    REQUIRE(next.has_value());
    REQUIRE(next->fence() > fence);
}

TEST_CASE("durable_mutex: a minimum hold time that is out of range is refused") {
    durable_mutex m(memory_slot{});
    acquire_request request;
    request.at_least = -1ms;
    REQUIRE(m.acquire(request).error() == durable_errc::invalid_argument);
}

TEST_CASE("durable_mutex: an administrator ends a minimum hold time") {
    durable_mutex m(memory_slot{}, test::unhurried());
    acquire_request once;
    once.at_least = 1h;
    auto g = test::acquired(m, once);
    const std::int64_t fence = g->fence();
    REQUIRE(g->release().has_value());
    REQUIRE_FALSE(m.try_acquire().has_value());
    REQUIRE(m.admin("ops").force_release(fence, "a test").value_or(false));
    REQUIRE(m.try_acquire().has_value());
}

TEST_CASE("durable_mutex: a grant that its caller did not wait for has no minimum hold time",
          "[promise.durable-minimum-hold]") {
    const auto shown_in = [](std::chrono::milliseconds limit) {
        const memory_slot slot;
        const auto store = std::make_shared<test::valve>();
        store->hang_in(test::place::compare_exchange);
        durable_options o;
        o.attempt_limit = limit;
        durable_mutex m(test::valved_slot(slot, store), o);
        durable_mutex others(slot, test::unhurried());
        acquire_request once;
        once.at_least = 1h;
        once.timeout = 1ms;
        REQUIRE(m.acquire(once).error() == durable_errc::no_answer);
        if (store->stuck() == 0) { // the machine is busy: the call was given up before it began
            store->let_go();
            return false;
        }
        store->let_go();
        REQUIRE(test::eventually([&] {
            const auto seen = others.inspect();
            return seen && *seen && (*seen)->live.fence > 1 && (*seen)->live.holders.empty();
        }));
        REQUIRE(others.try_acquire().has_value());
        return true;
    };
    REQUIRE(test::in_some_time(80ms, shown_in));
}

TEST_CASE("durable_mutex: a note and labels are shown while the contender waits and holds") {
    const memory_slot slot;
    durable_mutex m(slot);
    acquire_request request;
    request.note = "nightly report";
    request.labels = {{"team", "billing"}, {"run", "7"}};
    auto g = test::acquired(m, request);
    const auto seen = m.inspect();
    const auto& about = (*seen)->live.holders.at(0).about;
    REQUIRE(about.note == "nightly report");
    REQUIRE(about.labels == std::vector<bide::durable::label>{{"run", "7"}, {"team", "billing"}});

    request.note = "\xff";
    REQUIRE(m.acquire(request).error() == durable_errc::invalid_argument);
    request.note = std::string(257, 'x');
    REQUIRE(m.acquire(request).error() == durable_errc::invalid_argument);
    request.note.clear();
    request.labels = {{"team", "a"}, {"team", "b"}};
    REQUIRE(m.acquire(request).error() == durable_errc::invalid_argument);
    REQUIRE(m.inspect().value()->live.waiters.empty());
}
