#include <bide/durable/record_admin.hpp>

#include <bide/durable/record.hpp>

#include <support/record_table.hpp>
#include <support/test.hpp>

using namespace bide::durable;
using bide::durable_errc;
using test::is;
using test::is_refused;
using test::table;
using test::who;

TEST_CASE("record_admin: force_release removes the grant, and its next renewal fails") {
    table lock;
    const auto a = lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    const record before = lock.r;
    REQUIRE_FALSE(force_release(lock.r, a.fence + 1, {1, "ops", "x"}));
    REQUIRE(lock.r == before);
    REQUIRE(force_release(lock.r, a.fence, {1001, "ops", "host lost"}));
    REQUIRE(lock.r.admin == admin_note{1001, "ops", "host lost"});
    REQUIRE(lock.renew("a", a.fence, 1002).status == renew_status::lost);
    REQUIRE_FALSE(lock.release("a", a.fence).changed);
    const auto b = lock.acquire("b", 1002);
    REQUIRE(is(b, acquire_status::granted));
    REQUIRE(b.fence > a.fence);
    REQUIRE(lock.r.admin->by == "ops");
}

TEST_CASE("record_admin: an evicted waiter enters the queue again at its end") {
    table lock;
    lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    lock.acquire("c", 1000);
    const record before = lock.r;
    REQUIRE_FALSE(evict_waiter(lock.r, "a's", {})); // it holds
    REQUIRE_FALSE(evict_waiter(lock.r, "nobody", {}));
    REQUIRE(lock.r == before);
    REQUIRE(evict_waiter(lock.r, "b's", {1001, "ops", "evict"}));
    REQUIRE(lock.r.admin->what == "evict");
    REQUIRE(lock.acquire("b", 1002).position == 1);
    REQUIRE(lock.waiters() == "c b");
}

TEST_CASE("record_admin: more permits admit more contenders of the new number") {
    table lock;
    lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    REQUIRE(resize(lock.r, 2, {1001, "ops", "resize"}));
    REQUIRE(lock.r.permits == 2);
    REQUIRE(lock.r.admin->at == 1001);
    REQUIRE(is_refused(lock.acquire("b", 1002), durable_errc::permits_mismatch));
    REQUIRE(lock.renew("a", 1, 1002).status == renew_status::renewed); // the holder keeps its grant
    lock.t.permits = 2;
    const auto b = lock.acquire("b", 1002);
    REQUIRE(is(b, acquire_status::granted));
    REQUIRE(b.lane == 1);
}

TEST_CASE("record_admin: a number of permits out of range is refused") {
    table lock(2);
    const record before = lock.r;
    for (const std::int64_t permits : {std::int64_t{0}, std::int64_t{-1}, largest_permits + 1}) {
        REQUIRE_FALSE(resize(lock.r, permits, {}));
        REQUIRE(lock.r == before);
    }
}

TEST_CASE("record_admin: a repaired record is empty, and its tokens start at the given one") {
    table lock(2);
    lock.r = repair(lock.t, 500, {1000, "ops", "repair"});
    REQUIRE(lock.r.holders.empty());
    REQUIRE(lock.r.waiters.empty());
    REQUIRE(lock.r.permits == 2);
    REQUIRE(lock.r.admin->what == "repair");
    REQUIRE(lock.acquire("a", 1000).fence == 500);
    REQUIRE(repair(lock.t, -3, {}).fence == 1);
    REQUIRE(repair(lock.t, std::numeric_limits<std::int64_t>::max(), {}).fence ==
            largest_first_fence);
}

TEST_CASE("record_admin: for a lost acknowledged record, a holder of all permits is entered for a "
          "lease") {
    table lock(3);
    const auto a = lock.acquire("a", 1000);
    lock.r.holders[0].lease_ms = 250; // the longest that there is a sign of
    const std::int64_t next = lock.r.fence;
    record same = lock.r;
    make_up_for_lost(lock.r, true, lock.t, 1000, {});
    make_up_for_lost(same, true, lock.t, 1000, {});
    REQUIRE(lock.r == same); // the same for every contender that finds it
    REQUIRE(lock.holders() == "a of a record that was damaged");
    REQUIRE(lock.r.fence == next + fence_leap);
    REQUIRE(lock.r.holders[1].fence == next);
    REQUIRE(lock.r.holders[1].lane != lock.r.holders[0].lane);

    lock.release("a", a.fence);
    REQUIRE(is(lock.acquire("b", 1001), acquire_status::waiting));
    REQUIRE(is(lock.acquire("b", 1080), acquire_status::waiting));
    REQUIRE(is(lock.acquire("b", 1160), acquire_status::waiting));
    REQUIRE(is(lock.acquire("b", 1240), acquire_status::waiting));
    REQUIRE(is(lock.acquire("b", 1250), acquire_status::granted));
    REQUIRE(lock.r.holders[0].fence == next + fence_leap);
}

TEST_CASE("record_admin: a record that is lost twice gets different tokens while the time grows") {
    table lock;
    lock.t.first_fence = floor_of(1'000'000);
    lock.r = fresh_record(lock.t);
    lock.acquire("a", 1000);
    lock.release("a", lock.r.holders[0].fence);
    const record before = lock.r;
    std::int64_t largest = 0;
    for (std::int64_t ms = 1; ms <= 3; ++ms) { // each time the same record is read again
        lock.r = before;
        lock.t.first_fence = floor_of(1'000'000 + ms);
        make_up_for_lost(lock.r, false, lock.t, 1000 + ms, {});
        const auto b = lock.acquire("b", 1000 + ms);
        REQUIRE(is(b, acquire_status::granted));
        REQUIRE(b.fence > largest);
        largest = b.fence;
    }
    lock.r = before;
    lock.t.first_fence = 1; // a clock that was set back
    make_up_for_lost(lock.r, false, lock.t, 1000, {});
    REQUIRE(lock.r.fence == before.fence + fence_leap);
}
