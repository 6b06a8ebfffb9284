#include <bide/durable/record.hpp>

#include <support/record_table.hpp>
#include <support/test.hpp>

using namespace bide::durable;
using test::is;
using test::table;

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

TEST_CASE("record_admin: contenders follow the number of permits that an administrator has set") {
    table lock(1);
    lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    lock.acquire("c", 1000);
    REQUIRE(resize(lock.r, 2, {}));
    REQUIRE(is(lock.acquire("b", 1000), acquire_status::granted));
    REQUIRE(is(lock.acquire("c", 1000), acquire_status::waiting));
    REQUIRE(test::is_refused(lock.acquire(test::who("d", 3), 1000),
                             bide::durable_errc::permits_mismatch));
    lock.t.permits = 3;
    lock.t.adopt_permits = true;
    lock.r.holders.clear();
    lock.r.waiters.clear();
    REQUIRE(is(lock.acquire("e", 1000), acquire_status::granted));
    REQUIRE(lock.r.permits == 2);
    lock.t.permits = 2;
    REQUIRE(test::is_refused(lock.acquire(test::who("d", 3), 1000), bide::durable_errc::too_heavy));
}
