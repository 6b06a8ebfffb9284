// Durable locks over stores that lose replies, fail or hang, and whose clocks are set: the
// guarantees hold, and a guard tells in time what it cannot keep.

#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/fence_gate.hpp>
#include <bide/durable/locks.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_json.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/memory.hpp>
#include <support/crash_arena.hpp>
#include <support/durable_locks.hpp>
#include <support/jitter.hpp>
#include <support/unhurried.hpp>

namespace {

using namespace bide;

using answer = result<durable_guard, std::error_code>;
using loaded = result<slot_snapshot, std::error_code>;

bide::durable::record record_of(memory_slot slot) {
    const auto there = slot.load();
    const auto decoded = bide::durable::decode(there->value);
    return decoded ? *decoded : bide::durable::record{};
}
// ---- a store that loses replies

// Of a hundred swaps, how many are:
struct mishaps {
    std::uint32_t unheard = 0; // stored, and the reply is lost
    std::uint32_t unsent = 0;  // not stored, and the reply is lost
    std::uint32_t late = 0;    // stored some operations later, if still possible
    std::uint32_t conflicts = 0;
    std::uint32_t failures = 0; // of loads as well
};

// The shared state of all slot objects of one store: swaps that are still on their way.
class late_swaps {
public:
    void add(slot_version version, std::string_view value, std::uint32_t operations) {
        const std::lock_guard lock(mutex_);
        all_.push_back({version, std::string(value), operations});
    }
    void operation(memory_slot& on) {
        const std::lock_guard lock(mutex_);
        std::erase_if(all_, [&](swap& s) {
            if (--s.operations != 0) {
                return false;
            }
            on.compare_exchange(s.version, s.value);
            return true;
        });
    }

private:
    struct swap {
        slot_version version;
        std::string value;
        std::uint32_t operations;
    };
    std::mutex mutex_;
    std::vector<swap> all_;
};

class unsteady_slot : public slot {
public:
    static constexpr slot_guarantees guarantees = memory_slot::guarantees;

    unsteady_slot(memory_slot on, std::shared_ptr<late_swaps> late, mishaps m, std::uint32_t seed)
        : on_(std::move(on)), late_(std::move(late)), mishaps_(m), chance_(seed) {}

    loaded load() override {
        late_->operation(on_);
        chance_();
        if (chance_.below(100) < mishaps_.failures) {
            return unexpected{make_error_code(durable_errc::storage_error)};
        }
        return on_.load();
    }

    cas_result compare_exchange(slot_version version, std::string_view value) override {
        late_->operation(on_);
        chance_();
        const auto unknown = make_error_code(durable_errc::indeterminate);
        if (happens(mishaps_.unheard)) {
            on_.compare_exchange(version, value);
            return {cas_status::indeterminate, 0, {}, unknown};
        }
        if (happens(mishaps_.unsent)) {
            return {cas_status::indeterminate, 0, {}, unknown};
        }
        if (happens(mishaps_.late)) {
            late_->add(version, value, 1 + chance_.below(4));
            return {cas_status::indeterminate, 0, {}, unknown};
        }
        if (happens(mishaps_.conflicts)) {
            return {cas_status::conflict, 0, {}, {}};
        }
        if (happens(mishaps_.failures)) {
            return {cas_status::failed, 0, {}, make_error_code(durable_errc::storage_error)};
        }
        return on_.compare_exchange(version, value);
    }

private:
    bool happens(std::uint32_t percent) { return chance_.below(100) < percent; }

    memory_slot on_;
    std::shared_ptr<late_swaps> late_;
    mishaps mishaps_;
    test::jitter chance_;
};

// Threads with one lock object each, over one store.
struct contest {
    memory_slot memory;
    std::shared_ptr<late_swaps> late = std::make_shared<late_swaps>();
    test::crash_arena arena;
    std::atomic<std::int64_t> acquired{0};
    std::atomic<std::int64_t> waited{0}; // that did not only try
    std::atomic<std::int64_t> not_released{0};
    std::atomic<std::int64_t> refused{0};

    slot_ref open(const mishaps& m, std::uint32_t seed) {
        return slot_ref(unsteady_slot(memory, late, m, seed));
    }

    void run(const mishaps& m, const durable_options& o, int threads, int turns) {
        arena.lease_outlives_kill = true;
        arena.last_grant_at = test::boottime_ns();
        test::run_threads(threads, [&](int me) {
            const std::uint32_t seed = test::run_seed() + static_cast<std::uint32_t>(me) * 7'919U;
            durable_mutex lock(open(m, seed), o);
            test::jitter chance(seed + 1);
            for (int turn = 0; turn < turns; ++turn) {
                const std::int64_t newest = arena.newest_grant;
                const bool is_try = chance.below(4) == 0;
                waited += is_try ? 0 : 1;
                answer got = is_try ? lock.try_acquire() : lock.acquire();
                if (!got) {
                    refused += is_try ? 0 : 1;
                    continue;
                }
                const auto until = [&] {
                    const std::int64_t now = test::boottime_ns();
                    return now + std::chrono::nanoseconds(got->remaining()).count();
                };
                ++acquired;
                arena.enter(me, got->fence(), got->lane(), until(), newest);
                arena.act(me, until());
                chance();
                arena.act(me, until());
                arena.leave(me);
                not_released += got->release() ? 0 : 1;
            }
        });
    }
};

durable_options with_lease(std::chrono::milliseconds lease) {
    durable_options o{.lease = lease, .poll_most = 5ms};
    return test::unhurried(o);
}

void check_nobody_held_twice(const contest& c) {
    INFO("seed " << test::run_seed() << ", " << c.arena.first_overlap);
    CHECK(c.arena.overlaps == 0);
    CHECK(c.arena.fences_not_later == 0);
    CHECK(c.arena.fences_twice == 0);
    CHECK(c.arena.refused_in_time == 0);
    CHECK(c.refused == 0);
}

// A memory_slot with a server's clock.
class clocked_memory : public slot {
public:
    static constexpr slot_guarantees guarantees{true, true, lock_clock::server};

    clocked_memory(memory_slot on, std::atomic<std::int64_t>& offset_ms)
        : on_(std::move(on)), offset_ms_(&offset_ms) {}

    loaded load() override {
        auto there = on_.load();
        there->server_ms = now();
        return there;
    }
    cas_result compare_exchange(slot_version version, std::string_view value) override {
        cas_result swapped = on_.compare_exchange(version, value);
        if (swapped.current) {
            swapped.current->server_ms = now();
        }
        return swapped;
    }

private:
    std::int64_t now() const { return bide::durable::unix_ms() + offset_ms_->load(); }

    memory_slot on_;
    std::atomic<std::int64_t>* offset_ms_;
};

// A clocked_memory that another program can empty.
class emptied_memory : public clocked_memory {
public:
    emptied_memory(std::atomic<std::int64_t>& offset_ms, std::atomic<bool>& is_empty)
        : clocked_memory(memory_slot(), offset_ms), is_empty_(&is_empty) {}

    loaded load() override {
        auto there = clocked_memory::load();
        return *is_empty_ ? loaded(slot_snapshot{.server_ms = there->server_ms}) : there;
    }

private:
    std::atomic<bool>* is_empty_;
};

constexpr std::int64_t hour_ms = 3'600'000;

// Two locks of one store, whose clock differs by so much.
struct clocked_pair {
    memory_slot memory;
    std::atomic<std::int64_t> offset{0};
    durable_mutex first{slot_ref(clocked_memory(memory, offset)), with_lease(60s)};
    durable_mutex second{slot_ref(clocked_memory(memory, offset)), with_lease(60s)};
};

// The store as a machine with a differing clock sees it: its own times come out right.
class skewed_slot : public slot {
public:
    static constexpr slot_guarantees guarantees = memory_slot::guarantees;

    skewed_slot(memory_slot on, std::int64_t offset_ms)
        : on_(std::move(on)), offset_ms_(offset_ms) {}

    loaded load() override {
        auto there = on_.load();
        if (there->version != 0) {
            there->value = shifted(there->value, -offset_ms_);
        }
        return there;
    }
    cas_result compare_exchange(slot_version version, std::string_view value) override {
        cas_result swapped = on_.compare_exchange(version, shifted(value, offset_ms_));
        swapped.current.reset();
        return swapped;
    }

private:
    static std::string shifted(std::string_view value, std::int64_t by_ms) {
        bide::durable::record r = *bide::durable::decode(value);
        for (auto& h : r.holders) {
            h.expires_at += by_ms;
        }
        for (auto& w : r.waiters) {
            w.expires_at += by_ms;
        }
        return bide::durable::encode(r);
    }

    memory_slot on_;
    std::int64_t offset_ms_;
};

} // namespace

TEST_CASE("durable locks: with lost replies, no two hold at once and no grant is left behind",
          "[promise.durable-exclusion]") {
    contest c;
    mishaps m{.unheard = 15, .unsent = 15, .late = 15, .conflicts = 15};
    c.run(m, with_lease(60s), 4, 40);
    check_nobody_held_twice(c);
    CHECK(c.acquired >= c.waited);
    CHECK(c.not_released == 0);
    for (int i = 0; i < 8; ++i) { // what is still on its way comes
        c.late->operation(c.memory);
    }
    CHECK(record_of(c.memory).holders.empty());
    CHECK(record_of(c.memory).waiters.empty());
}

TEST_CASE("durable locks: with a store that fails at times, no two hold at once and all acquire") {
    contest c;
    mishaps m{.unheard = 8, .unsent = 8, .late = 8, .conflicts = 8, .failures = 8};
    c.run(m, with_lease(60ms), 4, 12);
    check_nobody_held_twice(c);
    CHECK(c.acquired >= c.waited);
}

TEST_CASE("durable_guard: a release whose reply is lost counts as a release",
          "[promise.durable-lost-reply]") {
    contest c;
    mishaps none;
    mishaps unheard{.unheard = 50};
    durable_mutex lock(c.open(none, 1), with_lease(60s));
    for (std::uint32_t seed = 0; seed < 32; ++seed) {
        durable_mutex other(c.open(unheard, seed), with_lease(60s));
        answer got = test::acquired(other);
        CHECK(got->release());
        CHECK(record_of(c.memory).holders.empty());
        CHECK(lock.try_acquire());
    }
}

TEST_CASE("durable_guard: if the store hangs, the guard is lost before another contender acquires "
          "the lock",
          "[promise.durable-lease-end]") {
    for (const bool renews : {true, false}) {
        memory_slot memory;
        const auto store = std::make_shared<test::valve>();
        durable_options o = with_lease(80ms);
        o.auto_renew = renews;
        durable_mutex lock(slot_ref(test::valved_slot(memory, store)), o);
        durable_mutex healthy{slot_ref(memory), with_lease(60s)};
        answer got = test::acquired(lock);
        store->hang_in(test::place::anywhere);
        const auto lost = got->lost();

        answer next = healthy.acquire();
        CHECK_FALSE(got->is_held());
        REQUIRE(next);
        CHECK(next->fence() > got->fence());

        CHECK(test::eventually([&] { return lost.stop_requested(); }));
        CHECK(got->remaining() == 0ms);
        // Neither this nor the destructor calls the store, which still hangs.
        CHECK(sync_wait(got->async_renew()).error() == durable_errc::lock_lost);
        {
            const durable_guard ended = std::move(*got);
        }
        store->let_go();
        CHECK(next->release());
    }
}

TEST_CASE("durable_guard: the destructor waits for a store that hangs until the slot gives up") {
    memory_slot memory;
    const auto store = std::make_shared<test::valve>();
    durable_options o = with_lease(60s);
    o.auto_renew = false;
    durable_mutex lock(slot_ref(test::valved_slot(memory, store)), o);
    std::optional<durable_guard> held(std::move(lock.acquire()).value());
    store->hang_in(test::place::anywhere);
    std::atomic<bool> ended{false};
    std::thread ending([&] {
        held.reset();
        ended = true;
    });
    CHECK(test::eventually([&] { return store->stuck() != 0; }));
    CHECK_FALSE(ended);
    store->fails = true;
    store->let_go();
    ending.join();
    CHECK(ended);
    CHECK(record_of(memory).holders.size() == 1); // over with its lease, it could not be said
}

TEST_CASE(
    "durable_mutex: if the store keeps failing, a wait ends with its error after retry_time") {
    contest c;
    mishaps broken{.failures = 100};
    durable_options o = with_lease(60s);
    o.retry_time = 30ms;
    durable_mutex lock(c.open(broken, 1), o);
    CHECK(lock.acquire().error() == durable_errc::storage_error);
    CHECK(lock.try_acquire().error() == durable_errc::storage_error);
}

TEST_CASE("durable locks: inspect() returns what the store has now, not what was just seen") {
    std::atomic<std::int64_t> offset{0};
    std::atomic<bool> is_empty{false};
    durable_mutex lock(slot_ref(emptied_memory(offset, is_empty)), with_lease(60s));
    for (int i = 0; i < 3; ++i) { // in less than 20 ms, once at least
        is_empty = false;
        REQUIRE(lock.acquire());
        is_empty = true;
        const auto seen = lock.inspect();
        REQUIRE(seen);
        CHECK_FALSE(*seen);
    }
}

TEST_CASE(
    "durable locks: if a server's clock leaps forward, leases expire and their tokens are old") {
    clocked_pair p;
    fence_gate gate;
    answer old = p.first.acquire();
    REQUIRE(old);
    CHECK(gate.admit(old->fence()));
    CHECK_FALSE(p.second.try_acquire());

    p.offset += hour_ms;
    answer next = p.second.try_acquire();
    REQUIRE(next);
    CHECK(gate.admit(next->fence()));
    CHECK_FALSE(gate.admit(old->fence()));
    CHECK(old->renew().error() == durable_errc::lock_lost);
    CHECK(old->lost().stop_requested());
    CHECK_FALSE(old->is_held());
    CHECK_FALSE(old->release());
    CHECK(next->is_held());
    CHECK(next->renew());
}

TEST_CASE("durable locks: if a server's clock is set back, the holder keeps its lock") {
    clocked_pair p;
    answer held = p.first.acquire();
    REQUIRE(held);
    durable_ticket waiting = p.second.ticket("second");
    const auto place = p.second.try_acquire(waiting);
    REQUIRE(place);
    CHECK_FALSE(place->acquired);

    p.offset -= hour_ms;
    CHECK(held->renew());
    CHECK(held->is_held());
    CHECK_FALSE(p.second.try_acquire(waiting)->acquired);
    // If it never asks again, its place is not kept for an hour longer.
    CHECK(record_of(p.memory).waiters.at(0).expires_at <=
          bide::durable::unix_ms() - hour_ms + 60'000);
    CHECK(held->release());
    CHECK(p.second.try_acquire(waiting)->acquired);
}

TEST_CASE("durable locks: observed leases are exclusive between clocks that are an hour apart",
          "[promise.durable-clocks]") {
    for (const std::int64_t offset : {hour_ms, -hour_ms}) {
        memory_slot memory;
        durable_options o = with_lease(150ms);
        o.clock = lock_clock::observed;
        o.process_bound = false;
        // Both are set forward, so that no time is below zero on a machine that has just booted.
        durable_mutex here(slot_ref(skewed_slot(memory, hour_ms)), o);
        durable_mutex there(slot_ref(skewed_slot(memory, hour_ms + offset)), o);

        answer held = test::acquired(here);
        acquire_request request;
        request.timeout = 400ms;
        answer too_early = there.acquire(std::move(request)); // the first goes on renewing
        const bool may_be = !too_early || !held->is_held();
        CHECK(may_be);
        if (too_early) { // where the first one's thread did not run for all of its lease
            CHECK(too_early->release());
            continue;
        }
        CHECK(too_early.error() == errc::timeout);

        const std::int64_t before = held->fence();
        static_cast<void>(held->detach()); // as if it had crashed
        answer next = test::acquired(there);
        CHECK(next->fence() > before);
        CHECK(next->release());
    }
}

TEST_CASE("durable locks: a time out of range is refused, and changes nothing") {
    using std::chrono::milliseconds;
    memory_slot memory;
    durable_options o = with_lease(1s);
    o.clock = lock_clock::caller;
    milliseconds now(1'000);
    o.now = [&now] { return now; };
    durable_mutex lock(slot_ref(memory), o);
    durable_ticket holder = lock.ticket("holder");
    REQUIRE(lock.try_acquire(holder)->acquired);
    const slot_version before = memory.load()->version;

    durable_ticket other = lock.ticket("other");
    for (const milliseconds wrong : {milliseconds(-1), milliseconds::min(), milliseconds::max(),
                                     milliseconds(std::int64_t{1} << 53)}) {
        now = wrong;
        CHECK(lock.try_acquire(other).error() == durable_errc::invalid_argument);
        CHECK(lock.renew(holder).error() == durable_errc::invalid_argument);
    }
    CHECK(memory.load()->version == before);
    now = milliseconds(1'999);
    CHECK(*lock.renew(holder));
    now = milliseconds(2'999);
    CHECK_FALSE(*lock.renew(holder));

    now = milliseconds(-5);
    CHECK(lock.acquire().error() == durable_errc::invalid_argument);
}
