#include <bide/durable/expiry.hpp>
#include <bide/durable/process.hpp>

#include <support/test.hpp>

using namespace bide::durable;
using bide::lock_clock;

// What record_search_test.cpp compares in every way is not here: clocks, boots, marks and stored observations.

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
    origin o{.boot = "this"};
    return o;
}

struct marks final : process_knowledge {
    bool runs(const origin&) const noexcept override { return false; }
    bide::presence is_present(std::int64_t mark) const override {
        return mark == 7 ? says : bide::presence::unknown;
    }
    bide::presence says = bide::presence::unknown;
};

} // namespace

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
        REQUIRE_FALSE(by_clock.expired(r.holders[0]));
        REQUIRE_FALSE(by_clock.bounded_by(seen, 5110, 0.1).expired(r.holders[0]));
        REQUIRE(by_clock.bounded_by(seen, 5111, 0.1).expired(r.holders[0]));
        REQUIRE(by_clock.bounded_by(seen, 5111, 0.1).expired(r.waiters[0], false));
        r.holders[0].renewals = 1;
        seen.note(r, 5100);
        REQUIRE_FALSE(by_clock.bounded_by(seen, 5111, 0.1).expired(r.holders[0]));
    }
}

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
    const expiry_judge judge(lock_clock::server, 1000, self, &known);
    for (const presence says : {presence::yes, presence::unknown}) {
        known.says = says;
        REQUIRE_FALSE(judge.expired(h));
        REQUIRE_FALSE(judge.expired(w, true));
    }
    known.says = presence::no;
    REQUIRE(judge.expired(h));
    REQUIRE(judge.expired(w, true));
    REQUIRE_FALSE(judge.expired(w, false));

    known.says = presence::yes; // its lease expired nevertheless: it may be suspended
    REQUIRE(expiry_judge(lock_clock::server, 2000, self, &known).expired(h));

    known.says = presence::no; // where the system tells, its word counts
    h.from = this_origin(true);
    h.from.mark = 7;
    self = this_origin(true);
    if (can_look_up(h.from, self)) {
        REQUIRE_FALSE(judge.expired(h));
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
    const auto at = [&](std::int64_t now) {
        return expiry_judge(lock_clock::observed, 0, self).bounded_by(seen, now, 0.1);
    };
    REQUIRE_FALSE(at(1000).expired(r.holders[0])); // first seen now
    REQUIRE_FALSE(at(1110).expired(r.holders[0]));
    REQUIRE(at(1111).expired(r.holders[0]));
    REQUIRE(at(1111).expired(r.waiters[0], false));
}

TEST_CASE("expiry: an entry of a process that ended expires, at the head of the queue") {
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
    REQUIRE(judge.expired(h));
    REQUIRE(judge.expired(w, true));
    REQUIRE_FALSE(judge.expired(w, false));
    h.from = self;
    REQUIRE_FALSE(judge.expired(h));
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
    const expiry_judge judge(lock_clock::boottime, 1000, self, &known);
#if defined(__linux__)
    REQUIRE(judge.expired(h));
    REQUIRE(expiry_judge(lock_clock::boottime, 1000, self).expired(h));
#endif
    known.it_does = true;
    REQUIRE_FALSE(judge.expired(h));
    h.expires_at = 1000; // its lease expired nevertheless
    REQUIRE(judge.expired(h));
}
