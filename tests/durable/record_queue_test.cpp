#include <bide/durable/expiry.hpp>
#include <bide/durable/record.hpp>

#include <support/test.hpp>

namespace {

using namespace bide::durable;
using bide::lock_clock;
using marks = std::vector<std::int64_t>;

// The first of these processes has the mark 1 and the pid 1001, and so on. The processes themselves
// are not looked up: they are of another pid namespace.
origin process(std::int64_t mark) {
    origin it{"host", "boot", 1000 + mark, 5, 7};
    it.mark = mark;
    it.network = 3;
    return it;
}
const origin here{"host", "boot", 1, 5, 6};

contender contender_of(std::int64_t mark, std::int64_t weight = 1) {
    return {"someone", "nonce" + std::to_string(mark), weight, process(mark), {}};
}
terms listening(std::int64_t permits = 1) {
    terms t{.permits = permits, .clock = lock_clock::boottime};
    t.lease_ms = t.waiter_ttl_ms = 100;
    t.listens = true;
    return t;
}
expiry_judge at(std::int64_t now) { return {lock_clock::boottime, now, here}; }

// A record whose permits are held and waited for by the processes of these marks.
record queue(const terms& t, const std::vector<std::int64_t>& processes) {
    record r = fresh_record(t);
    for (const std::int64_t mark : processes) {
        acquire(r, contender_of(mark), t, 10, at(10));
    }
    return r;
}
void release_of(record& r, std::int64_t mark, std::int64_t now) {
    release(r, "nonce" + std::to_string(mark), 0, now, process(mark));
}

} // namespace

TEST_CASE("record: free permits are passed on to the first waiters, with a lease from then on") {
    terms t = listening(2);
    record r = queue(t, {1, 2, 3, 4, 5});
    r.waiters[1].weight = 2;
    release_of(r, 1, 20);
    release_of(r, 2, 20);
    pass_on(r, t, 20, at(20), here);
    REQUIRE(r.holders.size() == 1);
    REQUIRE(r.waiters.size() == 2); // the first of them needs both permits
    const holder& now = r.holders[0];
    REQUIRE(now.nonce == "nonce3");
    REQUIRE(now.from == process(3));
    REQUIRE(now.fence == 3);
    REQUIRE(now.lane == 0);
    REQUIRE(now.expires_at == 120);

    const record before = r;
    const acquire_outcome found = acquire(r, contender_of(3), t, 40, at(40));
    REQUIRE(found.status == acquire_status::held);
    REQUIRE_FALSE(found.changed);
    REQUIRE(found.fence == 3);
    REQUIRE(found.expires_at == 120);
    REQUIRE(r == before);
    const acquire_outcome late = acquire(r, contender_of(3), t, 80, at(80)); // most of it is over
    REQUIRE(late.changed);
    REQUIRE(r.holders[0].expires_at == 180);
}

TEST_CASE("record: permits are not passed on to a waiter that could not use them") {
    const terms t = listening();
    const auto passed = [&](auto change) {
        record r = queue(t, {1, 2, 3});
        release_of(r, 1, 20);
        change(r);
        pass_on(r, t, 20, at(20), here);
        return r.holders.size() == 1;
    };
    REQUIRE(passed([](record&) {}));
    REQUIRE_FALSE(passed([](record& r) { r.waiters[0].lease_ms = 0; }));
    REQUIRE_FALSE(passed([](record& r) { r.waiters[0].from.boot = "another"; }));
    REQUIRE_FALSE(passed([](record& r) { r.waiters[0].from.pid = 0; }));
    REQUIRE_FALSE(passed([](record& r) { r.waiters[0].from.mark = 0; })); // its end is not seen
    REQUIRE_FALSE(passed([](record& r) { r.waiters[0].from.mark = 3 << 24; })); // no mark
    REQUIRE_FALSE(passed([](record& r) { r.clock = lock_clock::observed; }));
    REQUIRE_FALSE(passed([](record& r) { r.clock = lock_clock::caller; }));
    // The time of the caller is on another clock than the record's.
    REQUIRE_FALSE(passed([](record& r) { r.clock = lock_clock::server; }));
}

TEST_CASE("record: a caller on another clock passes nothing on, and removes no waiter") {
    record r = queue(listening(), {1, 2, 3});
    release_of(r, 1, 20);
    const record before = r;
    terms other = listening();
    other.clock = lock_clock::server;
    const std::int64_t later = 1'717'000'000'000; // on the record's clock, every place has expired
    pass_on(r, other, later, expiry_judge(lock_clock::server, later, here), here);
    REQUIRE(r == before);
}

TEST_CASE("record: a waiter whose place has expired is granted nothing, and the next one is") {
    const terms t = listening();
    record r = queue(t, {1, 2, 3});
    r.waiters[1].expires_at = 500;
    release_of(r, 1, 200);
    pass_on(r, t, 200, at(200), here);
    REQUIRE(r.waiters.empty());
    REQUIRE(r.holders.size() == 1);
    REQUIRE(r.holders[0].nonce == "nonce3");
}

TEST_CASE("record: a grant that is passed on has the waiter's minimum hold time") {
    terms t = listening();
    t.at_least_ms = 300;
    record r = queue(t, {1, 2});
    REQUIRE(r.waiters[0].at_least_ms == 300);
    release_of(r, 1, 20);
    REQUIRE(is_resting(r.holders[0]));
    r.holders.clear();
    pass_on(r, listening(), 20, at(20), here);
    REQUIRE(r.holders[0].held_until == 320);
    REQUIRE(r.holders[0].lease_ms == 300);
}

TEST_CASE("record: of the waiters of a mutex, a release concerns the next one alone") {
    const terms t = listening();
    const record before = queue(t, {1, 2, 3, 4});
    record after = before;
    release_of(after, 1, 20);
    pass_on(after, t, 20, at(20), here);
    REQUIRE(concerned_by_change(before, after) == marks{2});
    record longer = before;
    acquire(longer, contender_of(5), t, 20, at(20));
    REQUIRE(concerned_by_change(before, longer) == marks{});
}

TEST_CASE("record: a waiter is concerned if it depends on another process than before") {
    const terms t = listening();
    const record before = queue(t, {1, 2, 3, 4});
    record after = before;
    release_of(after, 3, 20); // from the queue: 4 depends on 2 now
    REQUIRE(concerned_by_change(before, after) == marks{3, 4});
    after = before;
    after.holders[0].from = process(9);
    REQUIRE(concerned_by_change(before, after) == marks{2});

    const terms two = listening(2);
    const record pair = queue(two, {1, 2, 3, 4, 5});
    after = pair;
    release_of(after, 1, 20); // 3 holds with 2, and 4 is the first now
    pass_on(after, two, 20, at(20), here);
    REQUIRE(concerned_by_change(pair, after) == marks{3, 4});
}

TEST_CASE("record: without a common clock, a release concerns the first waiter") {
    const terms t = listening();
    record before = queue(t, {1, 2, 3});
    before.clock = lock_clock::observed;
    record after = before;
    release_of(after, 1, 20);
    REQUIRE(concerned_by_change(before, after) == marks{2});
    REQUIRE(is_told(before, 1));
    before.clock = lock_clock::caller;
    REQUIRE_FALSE(is_told(before, 1));
}

TEST_CASE(
    "record: a waiter that removes an expired entry stores that, so that a release concerns it") {
    const terms t = listening();
    record r = queue(t, {1, 2, 3});
    const auto see = [&](std::int64_t now) { return acquire(r, contender_of(3), t, now, at(now)); };
    REQUIRE_FALSE(see(20).changed);
    r.waiters[0].expires_at = 30;
    const acquire_outcome seen = see(30);
    REQUIRE(seen.changed);
    REQUIRE(seen.position == 0);
    const record before = r;
    release_of(r, 1, 40);
    REQUIRE(concerned_by_change(before, r) == marks{3});
}

TEST_CASE("record: without a common clock, too, a first waiter that has expired loses its place") {
    terms t = listening();
    record before = queue(t, {1, 2, 3});
    t.clock = before.clock = lock_clock::observed;
    record after = before;
    release_of(after, 1, 20);
    const struct {
        bool expired(const waiter& w, bool) const { return w.nonce == "nonce2"; }
    } judge;
    pass_on(after, t, 20, judge, here);
    REQUIRE(after.holders.empty());
    REQUIRE(after.waiters.size() == 1);
    REQUIRE(concerned_by_change(before, after) == marks{2, 3});
}

TEST_CASE("record: a waiter that does not listen is told, too, and reads for itself") {
    const terms t = listening();
    record before = queue(t, {1, 2, 3});
    before.waiters[0].lease_ms = 0;
    record after = before;
    release_of(after, 1, 20);
    pass_on(after, t, 20, at(20), here);
    REQUIRE(after.waiters.size() == 2);
    REQUIRE(concerned_by_change(before, after) == marks{2});
    after.waiters.clear();
    REQUIRE(concerned_by_change(before, after) == marks{2, 3});
}

TEST_CASE("record: a waiter is told if every process ahead of it can reach it") {
    const terms t = listening();
    const record r = queue(t, {1, 2, 3});
    REQUIRE(is_told(r, 0));
    REQUIRE(is_told(r, 1));
    const auto told = [&](std::size_t index, auto change) {
        record changed = r;
        change(changed);
        return is_told(changed, index);
    };
    REQUIRE_FALSE(told(0, [](record& c) { c.holders[0].from.network = 4; }));
    REQUIRE_FALSE(told(1, [](record& c) { c.holders[0].from.network = 0; }));
    REQUIRE_FALSE(told(1, [](record& c) { c.waiters[0].from.boot = "another"; }));
    REQUIRE(told(0, [](record& c) { c.waiters[1].from.network = 4; })); // it is behind
    REQUIRE_FALSE(told(1, [](record& c) { c.waiters[1].from.mark = 0; }));
    REQUIRE_FALSE(told(1, [](record& c) { c.waiters[1].lease_ms = 0; }));
}
