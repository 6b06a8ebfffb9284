#include <bide/durable/expiry.hpp>
#include <bide/durable/process.hpp>

#include <support/catch.hpp>

#include <cstdint>

using namespace bide::durable;
using bide::lock_clock;

namespace {

holder held(std::int64_t expires_at, std::int64_t renewals = 0) {
    holder h;
    h.holder_id = "a";
    h.nonce = "n";
    h.fence = 1;
    h.lease_ms = 100;
    h.expires_at = expires_at;
    h.renewals = renewals;
    h.from.boot = "this";
    return h;
}
waiter waits(std::int64_t expires_at) {
    waiter w;
    w.holder_id = "b";
    w.nonce = "m";
    w.ttl_ms = 100;
    w.expires_at = expires_at;
    w.from.boot = "this";
    return w;
}
origin here() {
    origin o;
    o.boot = "this";
    return o;
}

} // namespace

TEST_CASE("expiry: a lease expires at its time, not before, and later by the grace") {
    const origin self = here();
    for (const lock_clock clock : {lock_clock::caller, lock_clock::server, lock_clock::boottime}) {
        const expiry_judge judge(clock, 1000, self);
        REQUIRE(judge.expired(held(1000), 0));
        REQUIRE(judge.expired(held(999), 0));
        REQUIRE_FALSE(judge.expired(held(1001), 0));
        REQUIRE_FALSE(judge.expired(held(1000), 1));
        REQUIRE(judge.expired(held(990), 10));
        REQUIRE(judge.expired(waits(1000), false));
        REQUIRE_FALSE(judge.expired(waits(1001), true));
    }
}

TEST_CASE("expiry: a lease of another boot is observed, on the boottime clock") {
    const origin self = here();
    record r;
    r.holders = {held(1)};
    r.holders[0].from.boot = "before";
    const holder& h = r.holders[0];
    const expiry_judge by_clock(lock_clock::boottime, 1000, self);
    REQUIRE_FALSE(by_clock.expired(h, 0)); // its time means nothing here
    REQUIRE(expiry_judge(lock_clock::server, 1000, self).expired(h, 0));

    observations seen;
    seen.note(r, 1000);
    REQUIRE_FALSE(by_clock.bounded_by(seen, 1110, 0.1).expired(h, 0));
    REQUIRE(by_clock.bounded_by(seen, 1111, 0.1).expired(h, 0));
    REQUIRE_FALSE(by_clock.bounded_by(seen, 1111, 0.1).expired(h, 10));
}

TEST_CASE("expiry: if a boot is not known, the lease is observed, on the boottime clock") {
    const origin self = here();
    const origin blind;
    record r;
    r.holders = {held(1)};
    r.holders[0].from.boot.clear(); // of a process that is kept from /proc, say
    observations seen;
    seen.note(r, 1000);
    for (const origin& by : {self, blind}) {
        const expiry_judge judge(lock_clock::boottime, 1000, by);
        REQUIRE_FALSE(judge.expired(r.holders[0], 0));
        REQUIRE_FALSE(judge.bounded_by(seen, 1110, 0.1).expired(r.holders[0], 0));
        REQUIRE(judge.bounded_by(seen, 1111, 0.1).expired(r.holders[0], 0));
    }
    REQUIRE_FALSE(expiry_judge(lock_clock::boottime, 1000, blind).expired(held(1), 0));
}

TEST_CASE(
    "expiry: on every clock a lease expires if it is seen unchanged for its length and the drift",
    "[promise.durable-lease-clock]") {
    const origin self = here();
    for (const lock_clock clock : {lock_clock::caller, lock_clock::server, lock_clock::boottime}) {
        record r;
        r.holders = {held(1'000'000'000)}; // the clock was set back by days
        r.waiters = {waits(1'000'000'000)};
        observations seen;
        seen.note(r, 5000);
        const expiry_judge by_clock(clock, 1000, self);
        REQUIRE_FALSE(by_clock.expired(r.holders[0], 0));
        REQUIRE_FALSE(by_clock.bounded_by(seen, 5110, 0.1).expired(r.holders[0], 0));
        REQUIRE(by_clock.bounded_by(seen, 5111, 0.1).expired(r.holders[0], 0));
        REQUIRE(by_clock.bounded_by(seen, 5111, 0.1).expired(r.waiters[0], false));
        r.holders[0].renewals = 1;
        seen.note(r, 5100);
        REQUIRE_FALSE(by_clock.bounded_by(seen, 5111, 0.1).expired(r.holders[0], 0));
    }
}

TEST_CASE(
    "expiry: stored observations of a boot end a lease as if the contender had seen it itself") {
    const origin self = here();
    record r;
    r.holders = {held(1, 3)};
    r.waiters = {waits(1)};
    holder& h = r.holders[0];
    waiter& w = r.waiters[0];
    h.from.boot = w.from.boot = "before";
    h.observed = {{"other", 3, 0, {}}, {"this", 3, 1000, {}}};
    w.observed = {{"this", 0, 1000, {}}};
    const observations nothing; // this contender has just begun
    const auto at = [&](std::int64_t now) {
        return expiry_judge(lock_clock::boottime, now, self).bounded_by(nothing, now, 0.1);
    };
    REQUIRE_FALSE(at(1110).expired(h, 0));
    REQUIRE(at(1111).expired(h, 0));
    REQUIRE_FALSE(at(1121).expired(h, 11));
    REQUIRE(at(1122).expired(h, 11));
    REQUIRE_FALSE(at(1110).expired(w, false));
    REQUIRE(at(1111).expired(w, false));

    SECTION("a judge without observations ignores it") {
        REQUIRE_FALSE(expiry_judge(lock_clock::boottime, 5000, self).expired(h, 0));
    }
    SECTION("an observation of an earlier renewal is void") {
        h.renewals = 4;
        w.refreshes = 1;
        REQUIRE_FALSE(at(5000).expired(h, 0));
        REQUIRE_FALSE(at(5000).expired(w, false));
    }
    SECTION("an observation of another boot does not count") {
        h.observed = {{"other", 3, 0, {}}, {"", 3, 0, {}}};
        REQUIRE_FALSE(at(5000).expired(h, 0));
    }
    SECTION("a time in the future does not count") {
        h.observed = {{"this", 3, 9000, {}}};
        REQUIRE_FALSE(at(5000).expired(h, 0));
    }
    SECTION("it does not count if the contender knows no boot") {
        const origin blind;
        h.observed = {{"", 3, 0, {}}};
        REQUIRE_FALSE(expiry_judge(lock_clock::boottime, 5000, blind)
                          .bounded_by(nothing, 5000, 0.1)
                          .expired(h, 0));
    }
    SECTION("it does not count on another clock than boottime") {
        for (const lock_clock clock :
             {lock_clock::caller, lock_clock::server, lock_clock::observed}) {
            h.expires_at = 1'000'000;
            REQUIRE_FALSE(
                expiry_judge(clock, 5000, self).bounded_by(nothing, 5000, 0.1).expired(h, 0));
        }
    }
}

namespace {

struct marks final : process_knowledge {
    bool runs(const origin&) const noexcept override { return false; }
    bide::presence is_present(std::int64_t mark) const override {
        return mark == 7 ? says : bide::presence::unknown;
    }
    bide::presence says = bide::presence::unknown;
};

} // namespace

TEST_CASE("expiry: a process that cannot be looked up has ended when its mark is gone") {
    using bide::presence;
    origin self = here();
    marks known;
    holder h = held(2000);
    h.from.boot = "of a container";
    h.from.pid = 12;
    h.from.space = 34;
    h.from.mark = 7;
    waiter w = waits(2000);
    w.from = h.from;
    const expiry_judge judge = expiry_judge(lock_clock::server, 1000, self).knowing(&known);
    for (const presence says : {presence::yes, presence::unknown}) {
        known.says = says;
        REQUIRE_FALSE(judge.expired(h, 0));
        REQUIRE_FALSE(judge.expired(w, true));
    }
    known.says = presence::no;
    REQUIRE(judge.expired(h, 0));
    REQUIRE_FALSE(judge.expired(h, 10)); // what it has on its way is given its time
    REQUIRE(judge.expired(w, true));
    REQUIRE_FALSE(judge.expired(w, false));

    known.says = presence::yes; // its lease expired nevertheless: it may be suspended
    REQUIRE(expiry_judge(lock_clock::server, 2000, self).knowing(&known).expired(h, 0));

    known.says = presence::no; // where the system tells, its word counts
    h.from = this_origin(true);
    h.from.mark = 7;
    self = this_origin(true);
    if (can_look_up(h.from, self)) {
        REQUIRE_FALSE(judge.expired(h, 0));
    }
}

TEST_CASE("expiry: a grant that is bound to a mark alone lasts as long as the mark") {
    using bide::presence;
    const origin self = here();
    marks known;
    record r;
    r.holders = {held(2000)};
    r.holders[0].from.mark = 7;
    const holder& h = r.holders[0];
    observations seen;
    seen.note(r, 0);
    const auto at = [&](std::int64_t now) {
        return expiry_judge(lock_clock::boottime, now, self)
            .bounded_by(seen, now, 0.1)
            .knowing(&known);
    };
    known.says = presence::yes;
    REQUIRE_FALSE(at(1'000'000).expired(h, 0));
    known.says = presence::no;
    REQUIRE(at(1).expired(h, 0));
    known.says = presence::unknown; // then its lease counts
    REQUIRE_FALSE(at(100).expired(h, 0));
    REQUIRE(at(2000).expired(h, 0));
}

TEST_CASE("expiry: a grant with a minimum hold time does not end with its process before it") {
    struct marks final : process_knowledge {
        bool runs(const origin&) const noexcept override { return false; }
        bide::presence is_present(std::int64_t) const override { return bide::presence::no; }
    } const gone;
    const origin self = here();
    const observations nothing;
    holder h = held(5000);
    h.from.mark = 7;
    for (const lock_clock clock :
         {lock_clock::caller, lock_clock::server, lock_clock::boottime, lock_clock::observed}) {
        const auto judge =
            expiry_judge(clock, 1000, self).bounded_by(nothing, 1000, 0).knowing(&gone);
        h.held_until = 0;
        REQUIRE(judge.expired(h, 0));
        h.held_boot = "this";
        h.held_until = 1000;
        REQUIRE(judge.expired(h, 0));
        h.held_until = 1001;
        REQUIRE_FALSE(judge.expired(h, 0));
        h.held_until = 1; // of a clock that is not known here
        h.held_boot = "before";
        REQUIRE(judge.expired(h, 0) ==
                (clock == lock_clock::caller || clock == lock_clock::server));
    }
}

TEST_CASE("expiry: an observed lease expires when it was unchanged for its length and the drift") {
    const origin self = here();
    record r;
    r.clock = lock_clock::observed;
    r.fence = 2;
    r.holders = {held(5)}; // whatever its writer's clock said
    r.waiters = {waits(5)};
    observations seen;
    seen.note(r, 1000);
    const auto at = [&](std::int64_t now) { return expiry_judge(seen, now, 0.1, self); };
    REQUIRE_FALSE(at(1000).expired(r.holders[0], 0)); // first seen now
    REQUIRE_FALSE(at(1110).expired(r.holders[0], 0));
    REQUIRE(at(1111).expired(r.holders[0], 0));
    REQUIRE_FALSE(at(1111).expired(r.holders[0], 50));
    REQUIRE(at(1111).expired(r.waiters[0], false));

    SECTION("after a renewal it begins again") {
        r.holders[0].renewals = 1;
        seen.note(r, 1090);
        REQUIRE_FALSE(at(1111).expired(r.holders[0], 0));
        REQUIRE(at(1201).expired(r.holders[0], 0));
    }
    SECTION("after a new grant to the same ticket it begins again") {
        r.holders[0].fence = 7;
        seen.note(r, 1090);
        REQUIRE_FALSE(at(1111).expired(r.holders[0], 0));
    }
    SECTION("an entry that is seen again unchanged continues") {
        seen.note(r, 1090);
        REQUIRE(at(1111).expired(r.holders[0], 0));
    }
    SECTION("an entry that was absent begins again") {
        record empty = r;
        empty.holders.clear();
        seen.note(empty, 1050);
        seen.note(r, 1060);
        REQUIRE_FALSE(at(1111).expired(r.holders[0], 0));
    }
}

TEST_CASE("expiry: an entry of a process that ended expires, at the head of the queue and without "
          "a grace") {
    const origin self = this_origin(true);
    if (self.space == 0) {
        return;
    }
    holder h = held(1'000'000);
    h.from = self;
    h.from.start -= 1; // an earlier process with this pid
    waiter w = waits(1'000'000);
    w.from = h.from;
    const expiry_judge judge(lock_clock::caller, 0, self);
    REQUIRE(judge.expired(h, 0));
    REQUIRE_FALSE(judge.expired(h, 10)); // what it has on its way is given its time
    REQUIRE(judge.expired(w, true));
    REQUIRE_FALSE(judge.expired(w, false));
    h.from = self;
    REQUIRE_FALSE(judge.expired(h, 0));
}

TEST_CASE("expiry: the system is asked only about processes that are not known to run") {
    struct : process_knowledge {
        bool runs(const origin&) const noexcept override { return it_does; }
        bool it_does = false;
    } known;
    origin self = here();
    self.pid = 1;
    self.space = 5;
    holder h = held(2000);
    h.from.pid = 0x7fff'ffff; // there is none
    h.from.space = 5;
    const expiry_judge judge(lock_clock::boottime, 1000, self);
#if defined(__linux__)
    REQUIRE(judge.expired(h, 0));
    REQUIRE(judge.knowing(&known).expired(h, 0));
    REQUIRE(judge.knowing(nullptr).expired(h, 0));
#endif
    known.it_does = true;
    REQUIRE_FALSE(judge.knowing(&known).expired(h, 0));
    h.expires_at = 1000; // its lease expired nevertheless
    REQUIRE(judge.knowing(&known).expired(h, 0));
}
