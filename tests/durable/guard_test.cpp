#include <bide/durable/locks.hpp>

#include <bide/durable/process.hpp>
#include <bide/durable/slots/file.hpp>
#include <bide/durable/slots/memory.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/event.hpp>

#include <support/children.hpp>
#include <support/durable_locks.hpp>
#include <support/temp_directory.hpp>
#include <support/unhurried.hpp>

using namespace bide;
using test::renewals;

TEST_CASE("guard: renews its lease") {
    const bool was_kept = test::in_some_time(60ms, [&](std::chrono::milliseconds lease) {
        durable_mutex m(memory_slot(), {.lease = lease});
        const std::int64_t before = bide::durable::boottime_ms();
        auto g = test::acquired(m);
        const std::stop_token lost = g->lost();
        REQUIRE(test::eventually([&] {
            return lost.stop_requested() ||
                   (renewals(m) >= 3 && bide::durable::boottime_ms() - before > lease.count());
        }));
        return !lost.stop_requested();
    });
    REQUIRE(was_kept);
}

TEST_CASE("guard: a release does not stop the lost() token") {
    durable_mutex m(memory_slot{});
    auto g = m.acquire();
    const std::stop_token lost = g->lost();
    REQUIRE(g->is_held());
    REQUIRE(g->release().has_value());
    REQUIRE_FALSE(lost.stop_requested());
}

TEST_CASE("guard: without renewals it is lost before another contender acquires the lock") {
    const memory_slot slot;
    durable_mutex m(slot, {.lease = 50ms, .auto_renew = false});
    durable_mutex others(slot);
    auto g = m.acquire();
    std::atomic<bool> was_told{false};
    const std::stop_callback tell(g->lost(), [&]() noexcept { was_told = true; });
    const auto next = others.acquire();
    REQUIRE(next.has_value());
    REQUIRE_FALSE(g->is_held());
    REQUIRE(g->remaining() == 0ms);
    REQUIRE(next->fence() > g->fence());
    REQUIRE(test::eventually([&] { return was_told.load(); }));
    REQUIRE(g->renew().error() == durable_errc::lock_lost);
    REQUIRE(g->release().error() == durable_errc::lock_lost);
    REQUIRE(m.try_acquire().error() == errc::timeout); // the next one's hold was not touched
}

TEST_CASE("guard: a holder whose grant is taken away learns of it by its next renewal") {
    durable_mutex m(memory_slot(), {.lease = 30s});
    auto g = m.acquire();
    REQUIRE(m.admin("ops").force_release(g->fence(), "host lost").value());
    REQUIRE(g->is_held()); // it cannot know
    REQUIRE(g->renew().error() == durable_errc::lock_lost);
    REQUIRE_FALSE(g->is_held());
    REQUIRE(g->lost().stop_requested());
    REQUIRE(g->release().error() == durable_errc::lock_lost);
}

TEST_CASE("guard: destruction, assignment and release each release the permits once") {
    durable_mutex m(memory_slot{}, test::unhurried());
    {
        auto g = m.acquire();
        REQUIRE(m.try_acquire().error() == errc::timeout);
    }
    std::optional<durable_guard> held(std::move(*m.try_acquire()));
    durable_mutex other(memory_slot{}, test::unhurried());
    auto of_other = other.acquire();
    *held = std::move(*of_other);
    REQUIRE(m.try_acquire().has_value());
    REQUIRE(other.try_acquire().error() == errc::timeout);
    REQUIRE(held->release().has_value());
    REQUIRE(other.try_acquire().has_value());
    held.reset();
    REQUIRE(other.try_acquire().has_value());
}

TEST_CASE("guard: releases the permits when an exception leaves its scope") {
    durable_mutex m(memory_slot{}, test::unhurried());
    try {
        const auto g = m.acquire();
        throw 1;
    } catch (int) {
    }
    REQUIRE(m.try_acquire().has_value());
}

TEST_CASE(
    "guard: after detach() the permits stay held, and the ticket can renew and release them") {
    const memory_slot slot;
    durable_ticket left;
    {
        durable_mutex m(slot);
        acquire_request r;
        r.ticket = m.ticket("night");
        auto g = m.acquire(r);
        left = g->detach();
    }
    durable_mutex m(slot);
    REQUIRE(m.try_acquire().error() == errc::timeout);
    acquire_request resumed;
    resumed.ticket = durable_ticket::parse(left.to_string()).value();
    auto g = test::acquired(m, resumed);
    REQUIRE(g->fence() == left.fence);
    REQUIRE(g->ticket().holder_id == "night");
}

TEST_CASE("guard: a child of fork() does not release its parent's grant",
          "[promise.durable-fork]") {
    const test::temp_directory directory("guard");
    durable_mutex m(file_slot(directory.path() + "/lock"));
    auto g = test::acquired(m);
    REQUIRE(test::in_child([&] {
                const bool right = !g->is_held();
                {
                    const auto dropped = std::move(g);
                }
                return right ? 0 : 1;
            }) == 0);
    REQUIRE(g->is_held());
    REQUIRE(m.try_acquire().error() == errc::timeout);
    REQUIRE(g->renew().has_value());
}

TEST_CASE("guard: the permits of a killed process are free at once if its ticket was bound to it",
          "[promise.durable-killed-holder]") {
    const test::temp_directory directory("guard");
    durable_options o{.lease = std::chrono::hours(1)};
    test::companion holder([&](auto stay) {
        durable_mutex m(file_slot(directory.path() + "/lock"), o);
        const auto g = m.acquire();
        stay(g ? "holds" : "");
    });
    REQUIRE(holder.said() == "holds");
    durable_mutex m(file_slot(directory.path() + "/lock"), o);
    REQUIRE(m.try_acquire().error() == errc::timeout);
    std::thread killer([&] { holder.kill(); });
    const auto g = m.acquire(); // within the hour
    killer.join();
    REQUIRE(g.has_value());
}
