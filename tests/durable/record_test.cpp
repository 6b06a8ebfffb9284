#include <bide/durable/record.hpp>
#include <bide/durable/record_admin.hpp>

#include <support/catch.hpp>
#include <support/record_table.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

// The rules one by one. record_search_test.cpp checks them together.

using namespace bide::durable;
using bide::durable_errc;
using bide::lock_clock;

using test::clock_judge;
using test::is;
using test::is_refused;
using test::table;
using test::who;

// ---- one permit

TEST_CASE("record: a single contender is granted at once") {
    table lock;
    const auto a = lock.acquire("a", 1000);
    REQUIRE(is(a, acquire_status::granted));
    REQUIRE(a.changed);
    REQUIRE(a.fence == 1);
    REQUIRE(a.lane == 0);
    REQUIRE(a.position == 0);
    REQUIRE(lock.r.holders.size() == 1);
    const holder& h = lock.r.holders[0];
    REQUIRE(h.holder_id == "a");
    REQUIRE(h.nonce == "a's");
    REQUIRE(h.fence == 1);
    REQUIRE(h.weight == 1);
    REQUIRE(h.lease_ms == 100);
    REQUIRE(h.expires_at == 1100);
    REQUIRE(h.renewals == 0);
    REQUIRE(lock.r.fence == 2);
    REQUIRE(lock.r.waiters.empty());
}

TEST_CASE("record: the second and the third contender wait in the order of arrival",
          "[promise.durable-fifo]") {
    table lock;
    lock.acquire("a", 1000);
    const auto b = lock.acquire("b", 1001);
    REQUIRE(is(b, acquire_status::waiting));
    REQUIRE(b.changed);
    REQUIRE(b.position == 0);
    REQUIRE(b.fence == 0);
    REQUIRE(b.next_ms == 1100);
    const auto c = lock.acquire("c", 1002);
    REQUIRE(is(c, acquire_status::waiting));
    REQUIRE(c.position == 1);
    REQUIRE(lock.waiters() == "b c");
    REQUIRE(lock.r.waiters[1].expires_at == 1092);
    REQUIRE(lock.r.waiters[1].ttl_ms == 90);
}

TEST_CASE("record: a waiter that asks again is not queued twice") {
    table lock;
    lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    lock.acquire("c", 1000);
    REQUIRE(lock.acquire("b", 1001).position == 0);
    REQUIRE(lock.acquire("c", 1001).position == 1);
    REQUIRE(lock.waiters() == "b c");
}

TEST_CASE("record: a free lock is granted to the first waiter only") {
    table lock;
    const auto a = lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    lock.acquire("c", 1000);
    REQUIRE(lock.release("a", a.fence).status == release_status::released);
    REQUIRE(is(lock.acquire("c", 1010), acquire_status::waiting));
    REQUIRE(is(lock.acquire("d", 1010), acquire_status::waiting));
    REQUIRE(is(lock.acquire("b", 1010), acquire_status::granted));
    REQUIRE(lock.holders() == "b");
    REQUIRE(lock.waiters() == "c d");
}

TEST_CASE("record: two contenders with the same name are two") {
    table lock;
    REQUIRE(is(lock.acquire({"worker", "n1", 1, {}}, 1000), acquire_status::granted));
    REQUIRE(is(lock.acquire({"worker", "n2", 1, {}}, 1000), acquire_status::waiting));
    REQUIRE_FALSE(release(lock.r, "n2", 1, 1000, {}).changed);
    REQUIRE(lock.holders() == "worker");
}

TEST_CASE("record: a lease expires exactly at its end") {
    table lock;
    lock.acquire("a", 1000);
    REQUIRE(is(lock.acquire("b", 1099), acquire_status::waiting));
    REQUIRE(lock.holders() == "a");
    REQUIRE(is(lock.acquire("b", 1100), acquire_status::granted));
    REQUIRE(lock.holders() == "b");
}

TEST_CASE("record: a holder that asks again gets the same grant and a new lease") {
    table lock;
    const auto first = lock.acquire("a", 1000);
    const auto again = lock.acquire("a", 1050);
    REQUIRE(is(again, acquire_status::held));
    REQUIRE(again.changed);
    REQUIRE(again.fence == first.fence);
    REQUIRE(again.lane == first.lane);
    REQUIRE(lock.r.holders.size() == 1);
    REQUIRE(lock.r.holders[0].expires_at == 1150);
    REQUIRE(lock.r.holders[0].renewals == 1);
    REQUIRE(lock.r.fence == 2);
}

TEST_CASE("record: a contender whose lease expired waits its turn and gets a new token") {
    table lock;
    const auto first = lock.acquire("a", 1000);
    lock.acquire("b", 1090);
    REQUIRE(is(lock.acquire("a", 1100), acquire_status::waiting));
    REQUIRE(lock.waiters() == "b a");
    const auto b = lock.acquire("b", 1101);
    REQUIRE(is(b, acquire_status::granted));
    lock.release("b", b.fence);
    const auto again = lock.acquire("a", 1102);
    REQUIRE(is(again, acquire_status::granted));
    REQUIRE(again.fence > b.fence);
    REQUIRE(b.fence > first.fence);
}

// ---- permits and weights

TEST_CASE("record: exactly as many are granted as there are permits") {
    table lock(3);
    for (int i = 0; i < 3; ++i) {
        REQUIRE(is(lock.acquire(std::to_string(i), 1000), acquire_status::granted));
    }
    REQUIRE(is(lock.acquire("3", 1000), acquire_status::waiting));
    REQUIRE(lock.r.holders.size() == 3);
    REQUIRE(free_permits(lock.r) == 0);
}

TEST_CASE("record: free permits do not wait until the first waiter asks") {
    table lock(2);
    const auto a = lock.acquire("a", 1000);
    const auto b = lock.acquire("b", 1000);
    for (const char* const name : {"c", "d", "e"}) {
        lock.acquire(name, 1000);
    }
    lock.release("a", a.fence);
    lock.release("b", b.fence);
    // Two permits are free: for c and d in any order, not for e, which would be the third.
    REQUIRE(is(lock.acquire("e", 1010), acquire_status::waiting));
    REQUIRE(is(lock.acquire("d", 1010), acquire_status::granted));
    REQUIRE(is(lock.acquire("e", 1010), acquire_status::waiting));
    REQUIRE(is(lock.acquire("c", 1010), acquire_status::granted));
    REQUIRE(lock.waiters() == "e");
}

TEST_CASE("record: a request for all permits is not overtaken by requests for one") {
    table lock(3);
    const auto a = lock.acquire("a", 1000);
    lock.acquire(who("b"), 1000);
    REQUIRE(is(lock.acquire(who("writer", 3), 1000), acquire_status::waiting));
    // One permit is free, and stays free.
    REQUIRE(is(lock.acquire("late", 1000), acquire_status::waiting));
    lock.release("a", a.fence);
    REQUIRE(is(lock.acquire("late", 1001), acquire_status::waiting));
    REQUIRE(is(lock.acquire(who("writer", 3), 1001), acquire_status::waiting));
    lock.release("b", 2);
    REQUIRE(is(lock.acquire("late", 1002), acquire_status::waiting));
    REQUIRE(is(lock.acquire(who("writer", 3), 1002), acquire_status::granted));
    REQUIRE(free_permits(lock.r) == 0);
    lock.release("writer", 3);
    REQUIRE(is(lock.acquire("late", 1003), acquire_status::granted));
}

TEST_CASE("record: a contender is granted if all waiters ahead and it fit together") {
    table lock(5);
    const auto a = lock.acquire(who("a", 5), 1000);
    lock.acquire(who("b", 2), 1000);
    lock.acquire(who("c", 2), 1000);
    lock.acquire(who("d", 2), 1000);
    lock.acquire(who("e", 1), 1000);
    lock.release("a", a.fence);
    REQUIRE(is(lock.acquire(who("d", 2), 1001), acquire_status::waiting)); // 2 + 2 + 2
    REQUIRE(is(lock.acquire(who("e", 1), 1001), acquire_status::waiting)); // it would fit, past d
    REQUIRE(is(lock.acquire(who("c", 2), 1001), acquire_status::granted));
    REQUIRE(is(lock.acquire(who("b", 2), 1001), acquire_status::granted));
    REQUIRE(is(lock.acquire(who("e", 1), 1001), acquire_status::waiting));
    REQUIRE(lock.waiters() == "d e");
    REQUIRE(free_permits(lock.r) == 1);
}

TEST_CASE("record: a lane is the lowest that no other holder has") {
    table lock(3);
    REQUIRE(lock.acquire("a", 1000).lane == 0);
    REQUIRE(lock.acquire("b", 1000).lane == 1);
    REQUIRE(lock.acquire("c", 1000).lane == 2);
    lock.release("b", 2);
    REQUIRE(lock.acquire("d", 1000).lane == 1);
    lock.release("a", 1);
    lock.release("d", 4);
    REQUIRE(lock.acquire("e", 1000).lane == 0);
    REQUIRE(lock.acquire("f", 1000).lane == 1);
    REQUIRE(lock.acquire("f", 1000).lane == 1);
}

TEST_CASE("record: tokens grow with every grant, whatever is released, lapses or is taken away") {
    table lock(2);
    std::int64_t last = 0;
    for (std::int64_t round = 0; round < 20; ++round) {
        const std::string name = std::to_string(round);
        const auto out = lock.acquire(name, 1000 + 200 * round);
        REQUIRE(is(out, acquire_status::granted));
        REQUIRE(out.fence > last);
        REQUIRE(lock.r.fence > out.fence);
        last = out.fence;
        if (round % 3 == 0) {
            lock.release(name, out.fence);
        } else if (round % 3 == 1) {
            force_release(lock.r, out.fence, {});
        }
    }
}

TEST_CASE("record: when the tokens are used up, no contender is granted") {
    table lock;
    lock.r.fence = largest_number - 1;
    const auto last = lock.acquire("a", 1000);
    REQUIRE(is(last, acquire_status::granted));
    REQUIRE(last.fence == largest_number - 1);
    REQUIRE(lock.release("a", last.fence).changed);
    REQUIRE(is_refused(lock.acquire("b", 1001), durable_errc::corrupt_record));
}

// ---- waiting

TEST_CASE("record: a waiter that does not refresh loses its place exactly at the end of its time") {
    table lock;
    const auto a = lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    lock.acquire("c", 1080);
    lock.renew("a", a.fence, 1080);
    REQUIRE(lock.acquire("c", 1089).position == 1);
    REQUIRE(lock.acquire("c", 1090).position == 0);
    lock.release("a", a.fence);
    REQUIRE(is(lock.acquire("c", 1090), acquire_status::granted));
    REQUIRE(lock.waiters() == "");
}

TEST_CASE("record: a dead waiter does not block the queue, wherever its place is") {
    using names = std::vector<std::string>;
    for (const names& dead : {names{"b"}, names{"c"}, names{"b", "c"}}) {
        table lock;
        const auto a = lock.acquire("a", 1000);
        for (const char* const name : {"b", "c", "d"}) {
            lock.acquire(name, 1000);
        }
        for (const char* const name : {"b", "c", "d"}) {
            const bool lives = std::find(dead.begin(), dead.end(), name) == dead.end();
            if (lives) {
                lock.acquire(name, 1060);
            }
        }
        lock.release("a", a.fence);
        // The live waiters, in their order.
        for (const char* const name : {"b", "c", "d"}) {
            if (std::find(dead.begin(), dead.end(), name) == dead.end()) {
                const auto out = lock.acquire(name, 1095);
                REQUIRE(is(out, acquire_status::granted));
                lock.release(name, out.fence);
            }
        }
        REQUIRE(lock.waiters() == "");
    }
}

TEST_CASE("record: the order of the other waiters stays when one disappears",
          "[promise.durable-fifo]") {
    table lock;
    lock.t.lease_ms = 1000;
    lock.acquire("a", 1000);
    lock.acquire("b", 1020);
    lock.acquire("c", 1000);
    lock.acquire("d", 1020);
    lock.acquire("e", 1020);
    lock.acquire("e", 1095);
    REQUIRE(lock.waiters() == "b d e");
}

TEST_CASE("record: a waiter that asks too late keeps its place if it was not removed") {
    table lock;
    lock.t.lease_ms = 1000;
    lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    lock.acquire("c", 1050);
    const auto b = lock.acquire("b", 1130);
    REQUIRE(is(b, acquire_status::waiting));
    REQUIRE(b.position == 0);
    REQUIRE(lock.waiters() == "b c");
}

TEST_CASE("record: a waiter whose place was removed queues at the end") {
    table lock;
    lock.t.lease_ms = 1000;
    lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    lock.acquire("c", 1050);
    lock.acquire("c", 1095); // takes b's away
    REQUIRE(lock.waiters() == "c");
    REQUIRE(lock.acquire("b", 1100).position == 1);
    REQUIRE(lock.waiters() == "c b");
}

TEST_CASE("record: a try that changes nothing says so, and the record need not be stored") {
    table lock;
    lock.t.lease_ms = 1000;
    lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    const record before = lock.r;
    for (std::int64_t now = 1001; now <= 1030; ++now) {
        const auto out = lock.acquire("b", now);
        REQUIRE(is(out, acquire_status::waiting));
        REQUIRE_FALSE(out.changed);
        REQUIRE(lock.r == before);
    }
}

TEST_CASE("record: a waiter refreshes its place when less than two thirds of its time are left") {
    table lock;
    lock.t.lease_ms = 1000;
    lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    REQUIRE_FALSE(lock.acquire("b", 1030).changed); // 60 of 90 left
    const auto out = lock.acquire("b", 1031);
    REQUIRE(out.changed);
    REQUIRE(lock.r.waiters[0].expires_at == 1121);
    REQUIRE(lock.r.waiters[0].refreshes == 1);
    REQUIRE_FALSE(lock.acquire("b", 1032).changed);
}

TEST_CASE("record: if only expired entries were removed, the record need not be stored") {
    table lock(2);
    lock.t.lease_ms = 50;
    lock.acquire(who("a", 1), 1000);
    lock.t.lease_ms = 1000;
    lock.acquire(who("b", 1), 1000);
    lock.acquire(who("c", 2), 1040);
    // a's lease expired: c does not fit nevertheless, and its place is fresh.
    const record stored = lock.r;
    const auto out = lock.acquire(who("c", 2), 1060);
    REQUIRE(is(out, acquire_status::waiting));
    REQUIRE_FALSE(out.changed);
    lock.r = stored; // nothing is lost
    lock.release("b", 2);
    REQUIRE(is(lock.acquire(who("c", 2), 1061), acquire_status::granted));
}

TEST_CASE(
    "record: a waiter's place lasts as long as its own time, whatever time other contenders use") {
    table lock;
    lock.t.lease_ms = 1000;
    lock.acquire("a", 1000);
    lock.t.waiter_ttl_ms = 300;
    lock.acquire("slow", 1000);
    lock.t.waiter_ttl_ms = 30;
    lock.acquire("b", 1000);
    REQUIRE(lock.acquire("b", 1025).position == 1);
    lock.acquire("b", 1250);
    REQUIRE(lock.waiters() == "slow b");
    // A shorter time is a change, too: other contenders use it.
    const auto out = lock.acquire("slow", 1251);
    REQUIRE(out.changed);
    REQUIRE(lock.r.waiters[0].ttl_ms == 30);
    REQUIRE(lock.r.waiters[0].expires_at == 1281);
}

TEST_CASE("record: a contender is refused when max_waiters wait") {
    table lock;
    lock.t.max_waiters = 2;
    lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    lock.acquire("c", 1000);
    const record before = lock.r;
    REQUIRE(is_refused(lock.acquire("d", 1000), durable_errc::queue_full));
    REQUIRE(lock.r == before);
    REQUIRE(is(lock.acquire("c", 1000), acquire_status::waiting)); // it is in
    REQUIRE(is(lock.acquire("d", 1095), acquire_status::waiting)); // those two are gone
    lock.t.max_waiters = 0;
    REQUIRE(is_refused(lock.acquire("e", 1095), durable_errc::queue_full));
}

TEST_CASE("record: without enqueue a contender stores nothing, and does not overtake") {
    table lock;
    lock.t.enqueue = false;
    const auto a = lock.acquire("a", 1000);
    REQUIRE(is(a, acquire_status::granted));
    const record before = lock.r;
    const auto b = lock.acquire("b", 1001);
    REQUIRE(is(b, acquire_status::waiting));
    REQUIRE_FALSE(b.changed);
    REQUIRE(lock.r == before);

    lock.t.enqueue = true;
    lock.acquire("c", 1002);
    lock.release("a", a.fence);
    lock.t.enqueue = false;
    const auto again = lock.acquire("b", 1003); // free, but c was there before
    REQUIRE(is(again, acquire_status::waiting));
    REQUIRE_FALSE(again.changed);
    REQUIRE(again.position == 1);
    REQUIRE(lock.waiters() == "c");
    REQUIRE(is(lock.acquire("c", 1003), acquire_status::granted));
}

TEST_CASE("record: without enqueue a waiter keeps and refreshes its place") {
    table lock;
    lock.t.lease_ms = 1000;
    lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    lock.t.enqueue = false;
    REQUIRE_FALSE(lock.acquire("b", 1001).changed);
    REQUIRE(lock.acquire("b", 1080).changed);
    REQUIRE(lock.waiters() == "b");
}

TEST_CASE("record: a waiter learns when the next lease expires, if that is known") {
    table lock(2);
    lock.acquire("a", 1000);
    lock.acquire("b", 1030);
    REQUIRE(lock.acquire("c", 1040).next_ms == 1100);
    lock.t.reclaim_delay_ms = 7;
    REQUIRE(lock.acquire("c", 1040).next_ms == 1107);
    lock.r.clock = lock.t.clock = lock_clock::observed;
    REQUIRE(lock.acquire("c", 1040).next_ms == 0);
}

TEST_CASE("record: a dead waiter is removed at the head of the queue only") {
    table lock;
    const auto a = lock.acquire("a", 1000);
    for (const char* const name : {"b", "c", "d"}) {
        lock.acquire(name, 1000);
    }
    lock.release("a", a.fence);
    lock.dead = {"b's", "c's"};
    REQUIRE(is(lock.acquire("d", 1001), acquire_status::granted));
    REQUIRE(lock.waiters() == "");

    table other;
    other.acquire("a", 1000);
    for (const char* const name : {"b", "c", "d"}) {
        other.acquire(name, 1000);
    }
    other.dead = {"c's"};
    REQUIRE(other.acquire("d", 1001).position == 2);
    REQUIRE(other.waiters() == "b c d");
}

TEST_CASE("record: a contender that moved stores its new origin in its grant and in its place") {
    const origin old{"h", "boot", 10, 1, 1};
    const origin now{"h", "boot", 11, 2, 1};
    table lock;
    lock.t.lease_ms = 1000;
    lock.acquire({"a", "na", 1, old}, 1000);
    lock.acquire({"b", "nb", 1, old}, 1000);
    REQUIRE(lock.r.holders[0].from == old);
    REQUIRE_FALSE(lock.acquire({"b", "nb", 1, old}, 1001).changed);
    REQUIRE(lock.acquire({"b", "nb", 1, now}, 1002).changed);
    REQUIRE(lock.r.waiters[0].from == now);
    REQUIRE(is(lock.acquire({"a", "na", 1, now}, 1002), acquire_status::held));
    REQUIRE(lock.r.holders[0].from == now);
}

// ---- leaving

TEST_CASE("record: a release removes exactly its grant") {
    table lock(2);
    const auto a = lock.acquire("a", 1000);
    const auto b = lock.acquire("b", 1000);
    const record before = lock.r;
    for (const std::int64_t fence : {b.fence, a.fence + 10, std::int64_t{-1}}) {
        const auto out = lock.release("a", fence);
        REQUIRE(out.status == release_status::not_there);
        REQUIRE_FALSE(out.changed);
        REQUIRE(lock.r == before);
    }
    REQUIRE_FALSE(lock.release("c", a.fence).changed);
    REQUIRE_FALSE(lock.release("c", 0).changed);
    REQUIRE(lock.r == before);

    const auto out = lock.release("a", a.fence);
    REQUIRE(out.status == release_status::released);
    REQUIRE(out.changed);
    REQUIRE(lock.holders() == "b");
    REQUIRE_FALSE(lock.release("a", a.fence).changed); // and once only
}

TEST_CASE("record: a release that comes late does not touch the same ticket's next grant") {
    table lock;
    const auto first = lock.acquire("a", 1000);
    const auto second = lock.acquire("a", 1100);
    REQUIRE(is(second, acquire_status::granted));
    const record before = lock.r;
    REQUIRE_FALSE(lock.release("a", first.fence).changed);
    REQUIRE(lock.renew("a", first.fence, 1101).status == renew_status::lost);
    REQUIRE(lock.r == before);
    REQUIRE(lock.release("a", second.fence).changed);
}

TEST_CASE("record: a release without a token withdraws a waiter, one with a token does not") {
    table lock;
    lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    lock.acquire("c", 1000);
    REQUIRE_FALSE(lock.release("b", 1).changed);
    REQUIRE(lock.waiters() == "b c");
    const auto out = lock.release("b", 0);
    REQUIRE(out.status == release_status::withdrawn);
    REQUIRE(out.changed);
    REQUIRE(lock.waiters() == "c");
    REQUIRE(lock.holders() == "a");
    REQUIRE_FALSE(lock.release("b", 0).changed);
}

TEST_CASE("record: a release without a token removes the grant or the place of the nonce") {
    table lock;
    lock.acquire("a", 1000);
    REQUIRE(lock.release("a", 0).status == release_status::released);
    REQUIRE(lock.r.holders.empty());
}

TEST_CASE("record: a release after the lease counts if the permits were not granted again") {
    table lock;
    const auto a = lock.acquire("a", 1000);
    REQUIRE(lock.release("a", a.fence).status == release_status::released);
    REQUIRE(lock.r.fence == a.fence + 1); // its token does not come again
}

// ---- renewing

TEST_CASE("record: a renewal begins the lease again") {
    table lock;
    const auto a = lock.acquire("a", 1000);
    const auto out = lock.renew("a", a.fence, 1060);
    REQUIRE(out.status == renew_status::renewed);
    REQUIRE(out.changed);
    REQUIRE_FALSE(out.error);
    REQUIRE(lock.r.holders[0].expires_at == 1160);
    REQUIRE(lock.r.holders[0].renewals == 1);
    REQUIRE(lock.r.holders[0].fence == a.fence);
    REQUIRE(is(lock.acquire("b", 1159), acquire_status::waiting));
    REQUIRE(is(lock.acquire("b", 1160), acquire_status::granted));
}

TEST_CASE("record: only the holder can renew") {
    table lock(2);
    const auto a = lock.acquire("a", 1000);
    const auto b = lock.acquire("b", 1000);
    lock.acquire("c", 1000);
    const record before = lock.r;
    const std::vector<std::pair<std::string, std::int64_t>> others = {
        {"a", b.fence}, {"a", 0}, {"a", a.fence + 10}, {"c", 0},
        {"c", a.fence}, {"d", 0}, {"d", lock.r.fence}};
    for (const auto& [name, fence] : others) {
        const auto out = lock.renew(name, fence, 1001);
        REQUIRE(out.status == renew_status::lost);
        REQUIRE_FALSE(out.changed);
        REQUIRE(lock.r == before);
    }
}

TEST_CASE("record: an expired lease is lost even if it was not granted again") {
    table lock;
    const auto a = lock.acquire("a", 1000);
    const record before = lock.r;
    REQUIRE(lock.renew("a", a.fence, 1100).status == renew_status::lost);
    REQUIRE(lock.r == before);
    REQUIRE(lock.renew("a", a.fence, 1099).status == renew_status::renewed);
}

TEST_CASE("record: no renewal brings a released grant back", "[promise.durable-renewal]") {
    table lock;
    const auto a = lock.acquire("a", 1000);
    lock.release("a", a.fence);
    lock.t.revive = true;
    REQUIRE(lock.renew("a", a.fence, 1001).status == renew_status::lost);
    REQUIRE(lock.r.holders.empty());
}

TEST_CASE("record: with revive, an expired lease without a waiter can be renewed") {
    table lock;
    lock.t.revive = true;
    const auto a = lock.acquire("a", 1000);
    const auto out = lock.renew("a", a.fence, 5000);
    REQUIRE(out.status == renew_status::renewed);
    REQUIRE(out.changed);
    REQUIRE(lock.r.holders[0].expires_at == 5100);
    REQUIRE(lock.r.holders[0].fence == a.fence);
}

TEST_CASE("record: with revive, an expired lease with a waiter is lost") {
    table lock;
    lock.t.revive = true;
    const auto a = lock.acquire("a", 1000);
    lock.acquire("b", 1050);
    REQUIRE(lock.renew("a", a.fence, 1100).status == renew_status::lost);
    // It is different when that one has expired, too.
    REQUIRE(lock.renew("a", a.fence, 1140).status == renew_status::renewed);
}

TEST_CASE("record: with revive, a waiter that does not fit does not prevent the renewal") {
    table lock(2);
    lock.t.revive = true;
    lock.t.waiter_ttl_ms = 1000;
    const auto a = lock.acquire("a", 1000);
    lock.t.lease_ms = 1000;
    lock.acquire("b", 1000);
    lock.acquire(who("both", 2), 1000);
    REQUIRE(lock.renew("a", a.fence, 1100).status == renew_status::renewed); // b has the other one
    lock.release("b", 2);
    REQUIRE(lock.renew("a", a.fence, 1150).status == renew_status::renewed); // not over yet
    REQUIRE(lock.renew("a", a.fence, 2200).status == renew_status::renewed); // `both` is gone
    lock.acquire(who("both", 2), 2300);
    REQUIRE(lock.renew("a", a.fence, 3250).status == renew_status::lost);
}

TEST_CASE("record: a lease that stays expired for other contenders is not revived") {
    // For example its process is dead, and another process goes on with the ticket: other
    // contenders would regard the grant as expired.
    table lock;
    lock.t.revive = true;
    const auto a = lock.acquire("a", 1000);
    lock.dead = {"a's"};
    const record before = lock.r;
    REQUIRE(lock.renew("a", a.fence, 1001).status == renew_status::lost);
    REQUIRE(lock.r == before);
}

TEST_CASE("record: no lease is ever shortened") {
    table lock;
    lock.t.lease_ms = 1000;
    const auto a = lock.acquire("a", 1000);
    lock.t.lease_ms = 10;
    REQUIRE(lock.renew("a", a.fence, 1001).status == renew_status::renewed);
    REQUIRE(lock.r.holders[0].expires_at == 2000);
    REQUIRE(lock.r.holders[0].lease_ms >= 999); // an observer does not see it end sooner
    REQUIRE(is(lock.acquire("a", 1002), acquire_status::held));
    REQUIRE(lock.r.holders[0].expires_at == 2000);
    REQUIRE(lock.r.holders[0].lease_ms >= 998);
    // When the rest is no more than a new one it is as long as asked for.
    REQUIRE(lock.renew("a", a.fence, 1995).status == renew_status::renewed);
    REQUIRE(lock.r.holders[0].expires_at == 2005);
    REQUIRE(lock.r.holders[0].lease_ms == 10);
    // A clock that was set back does not shorten it either.
    REQUIRE(lock.renew("a", a.fence, 500).status == renew_status::renewed);
    REQUIRE(lock.r.holders[0].expires_at == 2005);
    REQUIRE(lock.r.holders[0].lease_ms == 10);
}

TEST_CASE("record: counts of renewals and refreshes wrap to 0 at 2^53") {
    table lock;
    lock.t.lease_ms = 1000;
    const auto a = lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    lock.r.holders[0].renewals = largest_number;
    lock.r.waiters[0].refreshes = largest_number;
    lock.renew("a", a.fence, 1080);
    lock.acquire("b", 1080);
    REQUIRE(lock.r.holders[0].renewals == 0);
    REQUIRE(lock.r.waiters[0].refreshes == 0);
}

// ---- a delay before an expired lease is granted again

TEST_CASE("record: an expired lease is granted again after the delay, a released one at once") {
    table lock;
    lock.t.reclaim_delay_ms = 50;
    const auto a = lock.acquire("a", 1000);
    REQUIRE(is(lock.acquire("b", 1100), acquire_status::waiting));
    REQUIRE(is(lock.acquire("b", 1149), acquire_status::waiting));
    REQUIRE(lock.renew("a", a.fence, 1149).status ==
            renew_status::lost); // the delay is not the holder's
    const auto b = lock.acquire("b", 1150);
    REQUIRE(is(b, acquire_status::granted));
    lock.release("b", b.fence);
    REQUIRE(is(lock.acquire("c", 1150), acquire_status::granted));
}

TEST_CASE("record: within the delay the same ticket gets its grant again, with the same token") {
    table lock;
    lock.t.reclaim_delay_ms = 50;
    const auto a = lock.acquire("a", 1000);
    const auto again = lock.acquire("a", 1120);
    REQUIRE(is(again, acquire_status::held));
    REQUIRE(again.fence == a.fence);
    REQUIRE(lock.r.holders[0].expires_at == 1220);
}

// ---- what is refused

TEST_CASE("record: another number of permits is refused", "[promise.durable-permit-number]") {
    table lock(2);
    lock.acquire("a", 1000);
    const record before = lock.r;
    lock.t.permits = 3;
    REQUIRE(is_refused(lock.acquire("b", 1000), durable_errc::permits_mismatch));
    REQUIRE(is_refused(lock.acquire("a", 5000), durable_errc::permits_mismatch));
    REQUIRE(lock.r == before);
}

TEST_CASE("record: another clock is refused, by acquire and by renew") {
    table lock;
    const auto a = lock.acquire("a", 1000);
    const record before = lock.r;
    for (const lock_clock other :
         {lock_clock::boottime, lock_clock::server, lock_clock::observed}) {
        lock.t.clock = other;
        REQUIRE(is_refused(lock.acquire("b", 1000), durable_errc::clock_mismatch));
        const auto out = lock.renew("a", a.fence, 1000);
        REQUIRE(out.status == renew_status::refused);
        REQUIRE(out.error == durable_errc::clock_mismatch);
        REQUIRE_FALSE(out.changed);
    }
    REQUIRE(lock.r == before);
}

TEST_CASE("record: a request for more permits than there are is refused, and not queued") {
    table lock(2);
    REQUIRE(is_refused(lock.acquire(who("a", 3), 1000), durable_errc::too_heavy));
    REQUIRE(lock.r == fresh_record(lock.t));
}

TEST_CASE("record: a contender that returns with another weight is refused") {
    table lock(3);
    lock.acquire(who("a", 3), 1000);
    lock.acquire(who("b", 1), 1000);
    const record before = lock.r;
    REQUIRE(is_refused(lock.acquire(who("a", 2), 1000), durable_errc::invalid_argument));
    REQUIRE(is_refused(lock.acquire(who("b", 2), 1000), durable_errc::invalid_argument));
    REQUIRE(lock.r == before);
}

TEST_CASE("record: arguments out of range are refused first") {
    constexpr auto least = std::numeric_limits<std::int64_t>::min();
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    const table good(2);
    const auto refuses_terms = [&](const std::function<void(terms&)>& change, std::int64_t now) {
        table lock = good;
        lock.acquire("a", 1000);
        const record before = lock.r;
        change(lock.t);
        const bool acquired = !is_refused(lock.acquire("b", now), durable_errc::invalid_argument);
        const auto renewed = lock.renew("a", 1, now);
        return !acquired && renewed.status == renew_status::refused && !renewed.changed &&
               renewed.error == durable_errc::invalid_argument && lock.r == before;
    };
    const auto nothing = [](terms&) {};
    for (const std::int64_t now : {std::int64_t{-1}, least, largest_time + 1, most}) {
        REQUIRE(refuses_terms(nothing, now));
    }
    for (const std::int64_t n : {std::int64_t{0}, std::int64_t{-1}, least, most}) {
        REQUIRE(refuses_terms([n](terms& t) { t.permits = n; }, 1000));
        REQUIRE(refuses_terms([n](terms& t) { t.lease_ms = n; }, 1000));
        REQUIRE(refuses_terms([n](terms& t) { t.waiter_ttl_ms = n; }, 1000));
    }
    REQUIRE(refuses_terms([](terms& t) { t.reclaim_delay_ms = -1; }, 1000));
    REQUIRE(refuses_terms([](terms& t) { t.reclaim_delay_ms = largest_duration + 1; }, 1000));
    REQUIRE(refuses_terms([](terms& t) { t.lease_ms = largest_duration + 1; }, 1000));
    REQUIRE(refuses_terms([](terms& t) { t.at_least_ms = -1; }, 1000));
    REQUIRE(refuses_terms([](terms& t) { t.at_least_ms = largest_duration + 1; }, 1000));

    const auto refuses = [&](const contender& self) {
        table lock = good;
        return is_refused(lock.acquire(self, 1000), durable_errc::invalid_argument) &&
               lock.r == good.r;
    };
    const std::string long_name(longest_name + 1, 'x');
    REQUIRE(refuses({"", "n", 1, {}}));
    REQUIRE(refuses({"a", "", 1, {}}));
    REQUIRE(refuses({long_name, "n", 1, {}}));
    REQUIRE(refuses({"a", long_name, 1, {}}));
    for (const std::int64_t weight : {std::int64_t{0}, std::int64_t{-1}, least, most}) {
        REQUIRE(refuses({"a", "n", weight, {}}));
    }
}

TEST_CASE("record: the largest times and lengths do not overflow") {
    table lock;
    lock.t.lease_ms = largest_duration;
    lock.t.waiter_ttl_ms = largest_duration;
    lock.t.reclaim_delay_ms = largest_duration;
    lock.t.at_least_ms = largest_duration;
    const auto a = lock.acquire("a", largest_time);
    REQUIRE(is(a, acquire_status::granted));
    REQUIRE(lock.r.holders[0].expires_at <= largest_number);
    REQUIRE(is(lock.acquire("b", largest_time), acquire_status::waiting));
    REQUIRE(lock.renew("a", a.fence, largest_time).status == renew_status::renewed);
    // Values that a record may contain.
    lock.r.holders[0].expires_at = largest_number;
    lock.r.waiters[0].expires_at = largest_number;
    REQUIRE(lock.renew("a", a.fence, 0).status == renew_status::renewed);
    REQUIRE(lock.r.holders[0].expires_at == largest_number);
    REQUIRE(is(lock.acquire("b", 0), acquire_status::waiting));
    REQUIRE(lock.r.waiters[0].expires_at == largest_duration);
    lock.r.holders[0].held_until = largest_number;
    REQUIRE(lock.release("a", a.fence, largest_time).changed);
    REQUIRE(lock.r.holders[0].lease_ms <= largest_duration);
    REQUIRE(lock.r.holders[0].expires_at <= largest_number);
}

// ---- from outside

TEST_CASE("record: unknown fields stay where they are") {
    table lock(2);
    lock.acquire("a", 1000);
    lock.acquire(who("b", 2), 1000);
    lock.r.extra = "{\"x\":1}";
    lock.r.holders[0].extra = "{\"y\":2}";
    lock.r.waiters[0].extra = "{\"z\":3}";
    lock.renew("a", 1, 1090);
    lock.acquire(who("b", 2), 1080);
    lock.acquire("a", 1091);
    resize(lock.r, 2, {});
    REQUIRE(lock.r.extra == "{\"x\":1}");
    REQUIRE(lock.r.holders[0].extra == "{\"y\":2}");
    REQUIRE(lock.r.waiters[0].extra == "{\"z\":3}");
}

TEST_CASE("record: an inspection lists holders, expired holders and expired waiters") {
    table lock(3);
    lock.acquire("a", 1000);
    lock.acquire("b", 1050);
    lock.acquire("c", 1000);
    lock.acquire("d", 1000);
    lock.acquire("e", 1050);
    lock.acquire("f", 1000);
    const record before = lock.r;
    const auto seen = inspect(lock.r, lock.judge(1100));
    REQUIRE(table::names(seen.live.holders) == "b");
    REQUIRE(table::names(seen.expired) == "a c");
    REQUIRE(table::names(seen.live.waiters) == "e");
    REQUIRE(table::names(seen.vanished) == "d f");
    REQUIRE(seen.free == 2);
    REQUIRE(lock.r == before);
}

TEST_CASE("record: sweep() never removes the place of the contender that asks") {
    table lock;
    lock.acquire("a", 1000);
    lock.acquire("b", 1000);
    lock.acquire("c", 1000);
    sweep(lock.r, lock.judge(5000), 0, "c's");
    REQUIRE(lock.holders() == "");
    REQUIRE(lock.waiters() == "c");
    sweep(lock.r, lock.judge(5000), 0);
    REQUIRE(lock.waiters() == "");
}

TEST_CASE("record: the first token of a new record is the terms' own") {
    table lock;
    lock.t.first_fence = 5000;
    lock.r = fresh_record(lock.t);
    REQUIRE(lock.acquire("a", 1000).fence == 5000);
    REQUIRE(repair(lock.t, 7, {}).fence == 5000);
    REQUIRE(repair(lock.t, 7000, {}).fence == 7000);
    lock.t.first_fence = -5;
    REQUIRE(fresh_record(lock.t).fence == 1);
}

TEST_CASE("record: the first token grows with the clock, and leaves tokens above it",
          "[promise.durable-tokens-grow]") {
    REQUIRE(floor_of(0) == 1);
    REQUIRE(floor_of(-1) == 1);
    REQUIRE(floor_of(2) == 2 * 1024 + 1);
    constexpr std::int64_t year_2200 = 7'258'118'400'000;
    REQUIRE(floor_of(year_2200) == year_2200 * 1024 + 1);
    const std::int64_t last = floor_of(std::numeric_limits<std::int64_t>::max());
    REQUIRE(last > floor_of(year_2200));
    REQUIRE(last < largest_number - (std::int64_t{1} << 39));
}

TEST_CASE("record: with adopt_permits, a record without holders and waiters takes the number") {
    table lock(3);
    lock.t.permits = 5;
    REQUIRE(is_refused(lock.acquire("a", 1000), durable_errc::permits_mismatch));
    lock.t.adopt_permits = true;
    const auto a = lock.acquire(who("a", 4), 1000);
    REQUIRE(is(a, acquire_status::granted));
    REQUIRE(a.changed);
    REQUIRE(lock.r.permits == 5);

    lock.t.permits = 2;
    const record before = lock.r;
    REQUIRE(is_refused(lock.acquire("b", 1001), durable_errc::permits_mismatch));
    REQUIRE(lock.r == before);
    lock.t.permits = 5;
    REQUIRE(is(lock.acquire(who("w", 5), 1001), acquire_status::waiting));
    lock.release("a", a.fence);
    lock.t.permits = 2; // the waiter has asked for more than these
    REQUIRE(is_refused(lock.acquire("b", 1002), durable_errc::permits_mismatch));
    REQUIRE(is(lock.acquire("b", 1091), acquire_status::granted)); // it is gone
    REQUIRE(lock.r.permits == 2);
    REQUIRE(lock.r.fence == a.fence + 2); // the tokens go on
}

TEST_CASE("record: a lease that began on another boot is continued in full on this one") {
    table lock;
    lock.t.clock = lock_clock::boottime;
    lock.r = fresh_record(lock.t);
    contender self = who("a");
    self.from.boot = "before";
    const auto a = lock.acquire(self, 900'000); // of a machine that ran for long
    self.from.boot = "now";
    struct {
        bool expired(const holder&, std::int64_t) const { return false; }
        bool expired(const waiter&, bool) const { return false; }
    } nobody;

    SECTION("by its renewal") {
        REQUIRE(renew(lock.r, self.nonce, a.fence, lock.t, 10, nobody, self.from).status ==
                renew_status::renewed);
    }
    SECTION("by its ticket") {
        const auto again = acquire(lock.r, self, lock.t, 10, nobody);
        REQUIRE(again.status == acquire_status::held);
        REQUIRE(again.fence == a.fence);
    }
    REQUIRE(lock.r.holders[0].from.boot == "now");
    REQUIRE(lock.r.holders[0].expires_at == 110);
    REQUIRE(lock.r.holders[0].lease_ms == 100);
}

TEST_CASE("record: next_ms ignores leases of another boot") {
    table lock;
    lock.t.clock = lock_clock::boottime;
    lock.r = fresh_record(lock.t);
    contender a = who("a");
    a.from.boot = "another";
    lock.acquire(a, 1000);
    contender b = who("b");
    b.from.boot = "this";
    REQUIRE(lock.acquire(b, 50).next_ms == 0);
    b.from.boot = "another";
    REQUIRE(lock.acquire(b, 1000).next_ms == 1100);
}

namespace {

// A holder of an earlier boot, and contenders of later boots that try once each.
struct table_of_boots : table {
    explicit table_of_boots(lock_clock clock = lock_clock::boottime) {
        t.clock = clock;
        t.enqueue = false;
        r = fresh_record(t);
        hold = by("a", "before", 900'000).fence;
    }
    acquire_outcome by(const std::string& name, const std::string& boot, std::int64_t now) {
        contender self = who(name);
        self.from.boot = boot;
        return bide::durable::acquire(r, self, t, now, nobody_is_gone);
    }
    const std::vector<stored_observation>& observed() const { return r.holders.at(0).observed; }

    struct {
        bool expired(const holder&, std::int64_t) const { return false; }
        bool expired(const waiter&, bool) const { return false; }
    } nobody_is_gone{};
    std::int64_t hold = 0;
};

} // namespace

TEST_CASE(
    "record: the first contender of a boot stores observations of entries that it cannot read") {
    table_of_boots lock;
    REQUIRE(lock.observed().empty());
    const auto b = lock.by("b", "this", 50);
    REQUIRE(is(b, acquire_status::waiting));
    REQUIRE(b.changed);
    REQUIRE(lock.r.waiters.empty());
    REQUIRE(lock.observed() == std::vector<stored_observation>{{"this", 0, 50, {}}});

    SECTION("later contenders find it, and change nothing") {
        const record before = lock.r;
        REQUIRE_FALSE(lock.by("b", "this", 51).changed);
        REQUIRE_FALSE(lock.by("c", "this", 90).changed);
        REQUIRE(lock.r == before);
    }
    SECTION("a contender of another boot adds its own") {
        REQUIRE(lock.by("c", "next", 7).changed);
        REQUIRE_FALSE(lock.by("d", "this", 60).changed);
        REQUIRE(lock.observed() ==
                std::vector<stored_observation>{{"this", 0, 50, {}}, {"next", 0, 7, {}}});
    }
    SECTION("a time in the future is of another clock, and replaced") {
        REQUIRE(lock.by("c", "this", 49).changed);
        REQUIRE(lock.observed() == std::vector<stored_observation>{{"this", 0, 49, {}}});
    }
    SECTION("a contender without a boot stores nothing") {
        REQUIRE_FALSE(lock.by("c", "", 60).changed);
    }
    SECTION("a contender that can read the times stores nothing") {
        REQUIRE_FALSE(lock.by("c", "before", 900'001).changed);
    }
}

TEST_CASE("record: observations are stored on the boottime clock only") {
    for (const lock_clock clock : {lock_clock::caller, lock_clock::server, lock_clock::observed}) {
        table_of_boots lock(clock);
        REQUIRE_FALSE(lock.by("b", "this", 50).changed);
        REQUIRE(lock.observed().empty());
    }
}

TEST_CASE("record: a renewal clears the observations of its grant") {
    table_of_boots lock;
    lock.by("b", "this", 50);
    origin from;
    SECTION("on its boot") {
        from.boot = "before";
        REQUIRE(
            renew(lock.r, "a's", lock.hold, lock.t, 900'010, lock.nobody_is_gone, from).status ==
            renew_status::renewed);
    }
    SECTION("on another one") {
        from.boot = "this";
        REQUIRE(renew(lock.r, "a's", lock.hold, lock.t, 60, lock.nobody_is_gone, from).status ==
                renew_status::renewed);
    }
    SECTION("by its ticket") { REQUIRE(is(lock.by("a", "before", 900'010), acquire_status::held)); }
    REQUIRE(lock.observed().empty());
}

TEST_CASE("record: an observation that a renewal kept is void, and is replaced") {
    table_of_boots lock;
    lock.by("b", "this", 50);
    lock.by("b", "next", 7);
    ++lock.r.holders[0].renewals; // by a program that does not know the field
    REQUIRE(lock.by("c", "this", 60).changed);
    REQUIRE(lock.observed() == std::vector<stored_observation>{{"this", 1, 60, {}}});
}

TEST_CASE(
    "record: contenders of four boots store one observation each, a fifth replaces the first") {
    table_of_boots lock;
    const std::vector<std::string> boots = {"1", "2", "3", "4", "5", "6", "7", "8"};
    REQUIRE(boots.size() == most_observations);
    for (const std::string& boot : boots) {
        REQUIRE(lock.by("b", boot, 50).changed);
    }
    for (int round = 0; round < 3; ++round) {
        for (const std::string& boot : boots) {
            REQUIRE_FALSE(lock.by("b", boot, 60).changed);
        }
    }
    const auto before = lock.observed();
    REQUIRE(lock.by("b", "9", 70).changed);
    const auto after = lock.observed();
    REQUIRE(after.size() == most_observations);
    REQUIRE(after.back() == stored_observation{"9", 0, 70, {}});
    const auto was_kept = [&](const stored_observation& o) {
        return std::find(after.begin(), after.end(), o) != after.end();
    };
    REQUIRE(std::count_if(before.begin(), before.end(), was_kept) == 7);
}

TEST_CASE(
    "record: of contenders of more boots than are stored, each comes to see the lease's end") {
    constexpr std::int64_t minute = 60'000;
    for (const int boots : {9, 10, 12}) {
        table_of_boots lock;
        std::set<int> first_seen;
        std::vector<std::int64_t> since(static_cast<std::size_t>(boots), -1);
        for (std::int64_t t = 1; t <= 7 * 24 * 60 && first_seen.size() < since.size(); ++t) {
            for (int b = 0; b < boots; ++b) {
                const std::string boot = std::to_string(b);
                lock.by("b", boot, t * minute + b);
                const auto all = lock.observed();
                const auto mine = std::find_if(all.begin(), all.end(),
                                               [&](const auto& o) { return o.boot == boot; });
                if (mine != all.end() && t * minute + b - mine->since >= 3 * minute) {
                    first_seen.insert(b);
                }
            }
        }
        CAPTURE(boots);
        REQUIRE(first_seen.size() == since.size());
    }
}

TEST_CASE("record: a waiter stores observations with its place and its refreshes only") {
    table_of_boots lock;
    lock.t.enqueue = true;
    const auto b = lock.by("b", "before", 900'000);
    REQUIRE(b.position == 0);
    REQUIRE(lock.by("c", "this", 50).changed);
    REQUIRE(lock.observed() == std::vector<stored_observation>{{"this", 0, 50, {}}});
    REQUIRE(lock.r.waiters[0].observed == lock.observed()); // b, whose times it cannot read
    REQUIRE(lock.r.waiters[1].observed.empty());            // itself

    origin before;
    before.boot = "before";
    REQUIRE(renew(lock.r, "a's", lock.hold, lock.t, 900'010, lock.nobody_is_gone, before).changed);
    REQUIRE_FALSE(lock.by("c", "this", 60).changed); // it has a place, and observes by itself
    REQUIRE(lock.observed().empty());
    REQUIRE(lock.by("c", "this", 100).changed); // a refresh
    REQUIRE(lock.observed() == std::vector<stored_observation>{{"this", 1, 100, {}}});

    REQUIRE(
        lock.by("b", "before", 900'070).changed); // a refresh, which clears what was observed of b
    REQUIRE(lock.r.waiters[0].observed.empty());
    REQUIRE(lock.r.waiters[1].observed ==
            std::vector<stored_observation>{{"before", 1, 900'070, {}}});
}

TEST_CASE(
    "record: a contender that is refused because of entries that may be gone stores observations") {
    table_of_boots lock;
    SECTION("the queue is full") {
        lock.t.enqueue = true;
        lock.t.max_waiters = 1;
        lock.by("b", "before", 900'000);
        const auto out = lock.by("c", "this", 50);
        REQUIRE(out.status == acquire_status::refused);
        REQUIRE(out.error == durable_errc::queue_full);
        REQUIRE(out.changed);
        REQUIRE(lock.r.waiters[0].observed == lock.observed());
    }
    SECTION("the record has another number of permits") {
        lock.t.permits = 2;
        lock.t.adopt_permits = true;
        const auto out = lock.by("c", "this", 50);
        REQUIRE(out.error == durable_errc::permits_mismatch);
        REQUIRE(out.changed);
    }
    REQUIRE(lock.observed() == std::vector<stored_observation>{{"this", 0, 50, {}}});
}

TEST_CASE("record: a renewal where no boot is known leaves the grant bound to its mark") {
    const auto never = [](const auto&...) { return false; };
    struct {
        decltype(never) expired;
    } const judge{never};
    terms t;
    t.clock = lock_clock::boottime;
    record r = fresh_record(t);
    contender self{"a", "a's", 1, {}};
    self.from.mark = 7; // of the grant; a child may keep it
    const auto a = acquire(r, self, t, 1000, judge);
    origin renewer; // the process
    renewer.pid = 12;
    renewer.mark = 8;
    REQUIRE(renew(r, "a's", a.fence, t, 1010, judge, renewer).status == renew_status::renewed);
    REQUIRE(r.holders[0].from.mark == 7);
    REQUIRE(r.holders[0].from.pid == 0);
}

TEST_CASE("record: a release can spare one grant of its ticket") {
    table lock;
    const auto a = lock.acquire("a", 1000);
    REQUIRE(lock.release("a", 0, 1000, {.but = a.fence}).status == release_status::not_there);
    REQUIRE(lock.holders() == "a");
    lock.acquire("b", 1001);
    REQUIRE(lock.release("b", 0, 1000, {.but = a.fence}).status == release_status::withdrawn);
    REQUIRE(lock.release("a", 0, 1000, {.but = a.fence + 7}).status == release_status::released);
}

// ---- the minimum hold time

TEST_CASE("record: a grant with a minimum hold time that is released early rests until then") {
    table lock;
    lock.t.at_least_ms = 250; // longer than the lease
    const auto a = lock.acquire("a", 1000);
    REQUIRE(lock.r.holders[0].expires_at == 1250);
    REQUIRE(lock.r.holders[0].held_until == 1250);
    lock.acquire("b", 1001);
    const auto out = lock.release("a", a.fence, 1010);
    REQUIRE(out.status == release_status::released);
    REQUIRE(out.changed);

    const holder& h = lock.r.holders[0];
    REQUIRE(is_resting(h));
    REQUIRE(h.holder_id == "a");
    REQUIRE(h.fence == a.fence);
    REQUIRE(h.expires_at == 1250);
    REQUIRE(h.lease_ms == 240);
    REQUIRE(h.from == origin{});
    const auto seen = inspect(lock.r, lock.judge(1249));
    REQUIRE(seen.free == 0);
    REQUIRE(seen.live.holders.size() == 1);

    const auto b = lock.acquire("b", 1080);
    REQUIRE(is(b, acquire_status::waiting));
    REQUIRE(b.next_ms == 1250);
    REQUIRE(is(lock.acquire("b", 1160), acquire_status::waiting));
    REQUIRE(is(lock.acquire("b", 1249), acquire_status::waiting));
    REQUIRE(is(lock.acquire("b", 1250), acquire_status::granted));
}

TEST_CASE("record: a release after the minimum hold time frees the permits at once") {
    table lock;
    lock.t.at_least_ms = 50;
    const auto a = lock.acquire("a", 1000);
    REQUIRE(lock.r.holders[0].expires_at == 1100);
    REQUIRE(lock.release("a", a.fence, 1050).status == release_status::released);
    REQUIRE(lock.r.holders.empty());
    // Renewals make it no longer.
    const auto b = lock.acquire("b", 2000);
    REQUIRE(lock.renew("b", b.fence, 2040).status == renew_status::renewed);
    REQUIRE(lock.r.holders[0].held_until == 2050);
    REQUIRE(is(lock.acquire("b", 2045), acquire_status::held));
    REQUIRE(lock.r.holders[0].held_until == 2050);
    REQUIRE(lock.release("b", b.fence, 2049).changed);
    REQUIRE(is(lock.acquire("c", 2049), acquire_status::waiting));
    REQUIRE(is(lock.acquire("c", 2050), acquire_status::granted));
}

TEST_CASE("record: no ticket can use a resting entry, and an administrator ends it at once") {
    table lock;
    lock.t.at_least_ms = 100;
    const auto a = lock.acquire("a", 1000);
    lock.release("a", a.fence, 1010);
    const record before = lock.r;
    REQUIRE(lock.renew("a", a.fence, 1020).status == renew_status::lost);
    REQUIRE(lock.release("a", a.fence, 1020).status == release_status::not_there);
    REQUIRE(lock.release("a", 0, 1020).status == release_status::not_there);
    REQUIRE(lock.r == before);
    REQUIRE(is(lock.acquire("a", 1030), acquire_status::waiting));
    REQUIRE(lock.waiters() == "a");
    REQUIRE(force_release(lock.r, a.fence, {}));
    const auto again = lock.acquire("a", 1031);
    REQUIRE(is(again, acquire_status::granted));
    REQUIRE(again.fence == a.fence + 1);
}

TEST_CASE("record: a grant that was taken back because its contender gave up does not rest") {
    table lock;
    lock.t.at_least_ms = 100;
    const auto a = lock.acquire("a", 1000);
    REQUIRE(lock.release("a", a.fence, 1010, {.undo = true}).status == release_status::released);
    REQUIRE(lock.r.holders.empty());
}

TEST_CASE("record: a minimum hold time outlives the holder's process") {
    table lock;
    lock.t.at_least_ms = 250;
    lock.acquire("a", 1000);
    lock.dead = {"a's"};
    REQUIRE(is(lock.acquire("b", 1080), acquire_status::waiting));
    REQUIRE(is(lock.acquire("b", 1165), acquire_status::waiting));
    REQUIRE(lock.renew("a", 1, 1170).status == renew_status::lost); // not longer than the minimum
    REQUIRE(is(lock.acquire("b", 1250), acquire_status::granted));
}

TEST_CASE("record: a resting entry keeps its permits and its lane, without a delay at its end") {
    table lock(3);
    lock.t.at_least_ms = 100;
    lock.t.reclaim_delay_ms = 50;
    const auto a = lock.acquire(who("a", 2), 1000);
    lock.release("a", a.fence, 1010);
    REQUIRE(free_permits(lock.r) == 1);
    const auto b = lock.acquire("b", 1020);
    REQUIRE(is(b, acquire_status::granted));
    REQUIRE(b.lane == 1);
    REQUIRE(lock.acquire("c", 1030).next_ms == 1100);
    const auto c = lock.acquire("c", 1100);
    REQUIRE(is(c, acquire_status::granted));
    REQUIRE(c.lane == 0);
}

TEST_CASE("record: a minimum hold time is never shorter on another boot's clock") {
    for (const lock_clock clock : {lock_clock::boottime, lock_clock::observed}) {
        table lock;
        lock.t.clock = clock;
        lock.t.at_least_ms = 300;
        lock.r = fresh_record(lock.t);
        const contender self{"a", "a's", 1, {.boot = "b1"}, {}};
        const auto a = lock.acquire(self, 1000);
        REQUIRE(lock.r.holders[0].held_boot == "b1");
        const record granted = lock.r;

        // On the same clock: what is left.
        REQUIRE(release(lock.r, "a's", a.fence, 1290, {.boot = "b1"}).changed);
        REQUIRE(lock.r.holders[0].lease_ms == 10);
        REQUIRE(lock.r.holders[0].expires_at == 1300);

        // On another one, or an unknown one: all of it.
        for (const char* const boot : {"b2", ""}) {
            lock.r = granted;
            const origin here{.host = "h", .boot = boot, .pid = 7, .start = 8, .space = 9};
            REQUIRE(release(lock.r, "a's", a.fence, 999'000, here).changed);
            const holder& h = lock.r.holders[0];
            REQUIRE(is_resting(h));
            REQUIRE(h.lease_ms == 300);
            REQUIRE(h.expires_at == 999'300);
            REQUIRE(h.from == origin{.boot = boot});
        }

        // A renewal there begins it again, once.
        lock.r = granted;
        const origin there{.boot = "b2"};
        for (const std::int64_t now : {50, 90}) {
            REQUIRE(renew(lock.r, "a's", a.fence, lock.t, now, lock.judge(now), there).changed);
            REQUIRE(lock.r.holders[0].held_until == 350);
            REQUIRE(lock.r.holders[0].held_boot == "b2");
        }
        REQUIRE(lock.r.holders[0].lease_ms == 260);
        REQUIRE(release(lock.r, "a's", a.fence, 340, there).changed);
        REQUIRE(lock.r.holders[0].lease_ms == 10);

        // An earlier version that renewed it there kept what it does not know.
        lock.r = granted;
        lock.r.holders[0].from.boot = "b2";
        lock.r.holders[0].expires_at = 350;
        REQUIRE(release(lock.r, "a's", a.fence, 100, there).changed);
        REQUIRE(lock.r.holders[0].lease_ms == 300);
    }
}

TEST_CASE("record: a clock that is set back makes a minimum hold time no longer than a lease") {
    table lock;
    lock.t.at_least_ms = 300;
    const auto a = lock.acquire("a", 1'000'000);
    REQUIRE(lock.release("a", a.fence, -5).changed);
    REQUIRE(lock.r.holders[0].lease_ms == 300);
    REQUIRE(lock.r.holders[0].expires_at == 300);
}

TEST_CASE("record: an observed lease that was long at first becomes as long as its renewals") {
    table lock;
    lock.t.clock = lock_clock::observed;
    lock.t.at_least_ms = 1000;
    lock.r = fresh_record(lock.t);
    const origin self{.boot = "b1"};
    const auto a = lock.acquire({"a", "a's", 1, self, {}}, 1000);
    const auto length_at = [&](std::int64_t now) {
        REQUIRE(renew(lock.r, "a's", a.fence, lock.t, now, lock.judge(now), self).changed);
        return lock.r.holders[0].lease_ms;
    };
    REQUIRE(length_at(1000) == 1000);
    REQUIRE(length_at(1500) == 500);
    REQUIRE(length_at(1950) == 100);
    REQUIRE(length_at(2040) == 100);
}

// ---- descriptions

TEST_CASE("record: what a contender tells about itself goes from its place to its grant") {
    table lock;
    const auto a = lock.acquire("a", 1000);
    contender b = who("b");
    b.about = {"nightly", {{"team", "billing"}}};
    lock.acquire(b, 1001);
    REQUIRE(lock.r.waiters[0].about == b.about);
    b.about.note = "weekly"; // the latest counts, and is a reason to store the place
    REQUIRE(lock.acquire(b, 1002).changed);
    REQUIRE(lock.r.waiters[0].about == b.about);
    lock.release("a", a.fence);
    lock.acquire(b, 1003);
    REQUIRE(lock.r.holders[0].about == b.about);
    b.about.labels.clear();
    REQUIRE(is(lock.acquire(b, 1004), acquire_status::held));
    REQUIRE(inspect(lock.r, lock.judge(1005)).live.holders[0].about == b.about);
}

TEST_CASE("record: another order of the labels is no reason to store a place") {
    table lock;
    lock.acquire("a", 1000);
    contender b = who("b");
    b.about.labels = {{"job", "x"}, {"a", ""}};
    lock.acquire(b, 1001);
    std::swap(b.about.labels[0], b.about.labels[1]);
    REQUIRE_FALSE(lock.acquire(b, 1002).changed);
}

TEST_CASE("record: a description beyond its limits is refused") {
    table lock;
    const auto with = [](description about) {
        contender self = who("a");
        self.about = std::move(about);
        return self;
    };
    std::vector<label> many;
    for (std::size_t i = 0; i <= most_labels; ++i) {
        many.push_back({std::to_string(i), "x"});
    }
    const std::string long_text(longest_label + 1, 'x');
    for (const description& bad :
         {description{std::string(longest_note + 1, 'x'), {}}, description{"", many},
          description{"", {{"", "x"}}}, description{"", {{long_text, "x"}}},
          description{"", {{"k", long_text}}}, description{"", {{"k", "1"}, {"k", "2"}}}}) {
        REQUIRE(is_refused(lock.acquire(with(bad), 1000), durable_errc::invalid_argument));
    }
    many.pop_back();
    REQUIRE(is(lock.acquire(with({std::string(longest_note, 'x'), many}), 1000),
               acquire_status::granted));
}
