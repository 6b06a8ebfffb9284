#include <bide/durable/locks.hpp>
#include <bide/durable/slots/memory.hpp>

#include <support/durable_locks.hpp>
#include <support/unhurried.hpp>

using namespace bide;

TEST_CASE(
    "admin: a grant is taken away by its token, once, and the record notes the administrator") {
    durable_mutex m(memory_slot{}, test::unhurried());
    const auto held = m.acquire();
    auto ops = m.admin("ops");
    REQUIRE_FALSE(ops.force_release(held->fence() + 1, "").value());
    REQUIRE(ops.force_release(held->fence(), "host lost").value());
    REQUIRE_FALSE(ops.force_release(held->fence(), "").value());
    const auto next = m.try_acquire();
    REQUIRE(next.has_value());
    REQUIRE(next->fence() > held->fence());
    const auto seen = m.inspect().value();
    REQUIRE(seen->live.admin.has_value());
    REQUIRE(seen->live.admin->by == "ops");
    REQUIRE(seen->live.admin->what ==
            "force_release " + std::to_string(held->fence()) + ": host lost");
    REQUIRE(seen->live.admin->at > 0);
}

TEST_CASE("admin: a resized lock admits contenders with the new number of permits") {
    const memory_slot slot;
    durable_semaphore two(slot, 2);
    REQUIRE_FALSE(two.admin("ops").resize(3, "").value()); // there is no record yet
    auto held = two.acquire();
    for (const std::int64_t none :
         {std::int64_t{0}, std::int64_t{-1}, bide::durable::largest_permits + 1}) {
        REQUIRE_FALSE(two.admin("ops").resize(none, "").value());
    }
    REQUIRE(two.admin("ops").resize(1, "vendor asked").value());
    REQUIRE(two.try_acquire().error() == errc::timeout); // it follows
    REQUIRE(held->renew().has_value());                  // the holder keeps its grant
    durable_semaphore one(slot, 1, test::unhurried());
    REQUIRE(one.try_acquire().error() == errc::timeout);
    REQUIRE(held->release().has_value());
    REQUIRE(one.try_acquire().has_value());
    durable_options adopts = test::unhurried();
    adopts.adopt_permits = true;
    durable_semaphore five(slot, 5, adopts);
    REQUIRE(five.try_acquire().has_value()); // the administrator's number stays
    REQUIRE(five.inspect().value()->live.permits == 1);
    REQUIRE(five.try_acquire(2).error() == durable_errc::permits_mismatch);
}

TEST_CASE("admin: contenders that wait follow a new number of permits") {
    const memory_slot slot;
    durable_mutex lock(slot, test::unhurried());
    const auto held = lock.acquire();
    auto waiting = std::async(std::launch::async, [&] { return lock.acquire(test::within(1min)); });
    REQUIRE(test::comes_to_wait(lock));
    REQUIRE(lock.admin("ops").resize(2, "").value());
    REQUIRE(waiting.get().has_value());
}

TEST_CASE("admin: a change by a lock on another clock leaves the waiters their places") {
    const memory_slot slot;
    durable_semaphore lock(slot, 1, test::unhurried());
    auto held = lock.ticket();
    REQUIRE(lock.try_acquire(held)->acquired);
    for (int i = 0; i < 2; ++i) {
        auto queued = lock.ticket();
        REQUIRE_FALSE(lock.try_acquire(queued)->acquired);
    }
    durable_options other = test::unhurried();
    other.clock = lock_clock::caller; // its times are later than all of the record
    REQUIRE(durable_semaphore(slot, 1, other).admin("ops").force_release(held.fence, "").value());
    REQUIRE(lock.inspect().value()->live.waiters.size() == 2);
}

TEST_CASE("admin: repair replaces a record that cannot be read, and no other") {
    memory_slot slot;
    durable_mutex m(slot);
    REQUIRE(slot.compare_exchange(0, "garbage").status == cas_status::stored);
    REQUIRE(m.acquire().error() == durable_errc::corrupt_record);
    REQUIRE(m.admin("ops").repair(bide::durable::largest_number / 2, "").value());
    const auto held = test::acquired(m);
    REQUIRE(held->fence() == bide::durable::largest_number / 2);
    REQUIRE_FALSE(m.admin("ops").repair(5000, "").value());
    REQUIRE(m.inspect().value()->live.holders.size() == 1);
}

TEST_CASE("admin: a time out of range is refused, and the record stays readable") {
    std::chrono::milliseconds now{1000};
    durable_options o{.clock = lock_clock::caller};
    o.now = [&] { return now; };
    durable_semaphore s(memory_slot(), 1, o);
    auto t = s.ticket();
    REQUIRE(s.try_acquire(t)->acquired);
    now = std::chrono::milliseconds(-5);
    REQUIRE(s.admin("ops").resize(2, "").error() == durable_errc::invalid_argument);
    now = std::chrono::milliseconds(1001);
    REQUIRE(s.inspect().value()->live.holders.size() == 1);
}

TEST_CASE("admin: repair does not replace a record of a later format") {
    memory_slot slot;
    const std::string later = "{\"v\":2}";
    REQUIRE(slot.compare_exchange(0, later).status == cas_status::stored);
    durable_semaphore s(slot, 1);
    REQUIRE(s.admin("ops").repair(1, "").error() == durable_errc::unsupported_record_version);
    REQUIRE(slot.load()->value == later);
}
