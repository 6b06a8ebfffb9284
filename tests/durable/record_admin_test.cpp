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
