#include <bide/durable/record.hpp>

#include <support/record_table.hpp>
#include <support/test.hpp>

// Examples of the rules, and what the other tests of them leave out: arguments, limits, descriptions, fields of
// other programs. record_random_test.cpp compares the rules with a model, record_search_test.cpp checks them
// together.

using namespace bide::durable;
using namespace bide;

using namespace test;

TEST_CASE("record: the second and the third contender wait in the order of arrival",
          "[promise.durable-fifo]") {
    table lock;
    REQUIRE(is(lock.acquire("a", 1000), acquire_status::granted));
    REQUIRE(lock.holders() == "a");
    REQUIRE(lock.r.holders[0].expires_at == 1100);
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

TEST_CASE("record: when the tokens are used up, no contender is granted") {
    table lock;
    lock.r.fence = largest_number - 1;
    const auto last = lock.acquire("a", 1000);
    REQUIRE(is(last, acquire_status::granted));
    REQUIRE(last.fence == largest_number - 1);
    REQUIRE(lock.release("a", last.fence) == release_status::released);
    REQUIRE(is_refused(lock.acquire("b", 1001), durable_errc::corrupt_record));
}

TEST_CASE("record: a waiter learns when the next lease expires, if that is known") {
    table lock(2);
    lock.acquire("a", 1000);
    lock.acquire("b", 1030);
    REQUIRE(lock.acquire("c", 1040).next_ms == 1100);
    lock.r.clock = lock.t.clock = lock_clock::observed;
    REQUIRE(lock.acquire("c", 1040).next_ms == 0);
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
        REQUIRE(lock.renew("a", a.fence, 1000) == durable_errc::clock_mismatch);
    }
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
        return !acquired && renewed == durable_errc::invalid_argument && lock.r == before;
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
    lock.t.at_least_ms = largest_duration;
    const auto a = lock.acquire("a", largest_time);
    REQUIRE(is(a, acquire_status::granted));
    REQUIRE(lock.r.holders[0].expires_at <= largest_number);
    REQUIRE(is(lock.acquire("b", largest_time), acquire_status::waiting));
    REQUIRE_FALSE(lock.renew("a", a.fence, largest_time));
    // Values that a record may contain.
    lock.r.holders[0].expires_at = largest_number;
    lock.r.waiters[0].expires_at = largest_number;
    REQUIRE_FALSE(lock.renew("a", a.fence, 0));
    REQUIRE(lock.r.holders[0].expires_at == largest_number);
    REQUIRE(is(lock.acquire("b", 0), acquire_status::waiting));
    REQUIRE(lock.r.waiters[0].expires_at == largest_duration);
    lock.r.holders[0].held_until = largest_number;
    REQUIRE(lock.release("a", a.fence, largest_time) == release_status::released);
    REQUIRE(lock.r.holders[0].lease_ms <= largest_duration);
    REQUIRE(lock.r.holders[0].expires_at <= largest_number);
}

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

TEST_CASE("record: the first token of a new record is the terms' own") {
    table lock;
    lock.t.first_fence = 5000;
    lock.r = fresh_record(lock.t);
    REQUIRE(lock.acquire("a", 1000).fence == 5000);
    REQUIRE(repair(lock.t, 7, {}).fence == 5000);
    REQUIRE(repair(lock.t, 7000, {}).fence == 7000);
    REQUIRE(repair(lock.t, std::numeric_limits<std::int64_t>::max(), {}).fence ==
            largest_first_fence);
    lock.t.first_fence = -5;
    REQUIRE(fresh_record(lock.t).fence == 1);
}

TEST_CASE(
    "record: the token of each grant is the record's next or the clock's, whichever is larger",
    "[promise.durable-tokens-grow]") {
    table lock(2);
    lock.t.first_fence = 5000;
    REQUIRE(lock.acquire("a", 1000).fence == 5000);
    const record restored = lock.r; // from a backup, for example
    lock.t.first_fence = 6000;
    REQUIRE(lock.acquire("b", 1000).fence == 6000);
    lock.r = restored;
    lock.t.first_fence = 6001;
    REQUIRE(lock.acquire("c", 1000).fence == 6001);
    lock.t.first_fence = 10; // the clock was set back
    lock.release("c", 6001);
    REQUIRE(lock.acquire("d", 1000).fence == 6002);
    lock.t.first_fence = std::numeric_limits<std::int64_t>::max();
    lock.release("d", 6002);
    REQUIRE(lock.acquire("e", 1000).fence == largest_first_fence);
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
        bool expired(const holder&) const { return false; }
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
    // A time in the future is of another clock, and replaced.
    REQUIRE(lock.by("c", "this", 49).changed);
    REQUIRE(lock.observed() == std::vector<stored_observation>{{"this", 0, 49, {}}});
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

TEST_CASE("record: a renewal where no boot is known leaves the grant bound to its mark") {
    const auto never = [](const auto&...) { return false; };
    struct {
        decltype(never) expired;
    } const judge{never};
    terms t{.clock = lock_clock::boottime};
    record r = fresh_record(t);
    contender self{"a", "a's", 1, {}};
    self.from.mark = 7; // of the grant; a child may keep it
    const auto a = acquire(r, self, t, 1000, judge);
    origin renewer; // the process
    renewer.pid = 12;
    renewer.mark = 8;
    REQUIRE_FALSE(renew(r, "a's", a.fence, t, 1010, judge, renewer));
    REQUIRE(r.holders[0].from.mark == 7);
    REQUIRE(r.holders[0].from.pid == 0);
}

TEST_CASE("record: a release can spare one grant of its ticket") {
    table lock;
    const auto a = lock.acquire("a", 1000);
    REQUIRE(lock.release("a", 0, 1000, {.but = a.fence}) == release_status::not_there);
    REQUIRE(lock.holders() == "a");
    lock.acquire("b", 1001);
    REQUIRE(lock.release("b", 0, 1000, {.but = a.fence}) == release_status::withdrawn);
    REQUIRE(lock.release("a", 0, 1000, {.but = a.fence + 7}) == release_status::released);
}

TEST_CASE("record: a grant with a minimum hold time that is released early rests until then") {
    table lock;
    lock.t.at_least_ms = 250; // longer than the lease
    const auto a = lock.acquire("a", 1000);
    REQUIRE(lock.r.holders[0].expires_at == 1250);
    REQUIRE(lock.r.holders[0].held_until == 1250);
    lock.acquire("b", 1001);
    const auto out = lock.release("a", a.fence, 1010);
    REQUIRE(out == release_status::released);

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
    REQUIRE(lock.acquire("b", 1160).next_ms == 1250);
    REQUIRE(is(lock.acquire("b", 1249), acquire_status::waiting));
    REQUIRE(is(lock.acquire("b", 1250), acquire_status::granted));
}

TEST_CASE(
    "record: a minimum hold time is not shorter though an earlier version renewed it elsewhere") {
    for (const lock_clock clock : {lock_clock::boottime, lock_clock::observed}) {
        table lock;
        lock.t.clock = clock;
        lock.t.at_least_ms = 300;
        lock.r = fresh_record(lock.t);
        const auto a = lock.acquire({"a", "a's", 1, {.boot = "b1"}, {}}, 1000);
        REQUIRE(lock.r.holders[0].held_boot == "b1");
        lock.r.holders[0].from.boot = "b2"; // it kept what it does not know
        lock.r.holders[0].expires_at = 350;
        const origin there{.host = "h", .boot = "b2", .pid = 7, .start = 8, .space = 9};
        REQUIRE(release(lock.r, "a's", a.fence, 100, there) == release_status::released);
        REQUIRE(is_resting(lock.r.holders[0]));
        REQUIRE(lock.r.holders[0].lease_ms == 300);
        REQUIRE(lock.r.holders[0].from == origin{.boot = "b2"});
    }
}

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
