#include <bide/durable/durable_semaphore.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/slots/memory.hpp>

#include <support/durable_locks.hpp>
#include <support/unhurried.hpp>

#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>

#include <sys/wait.h>
#include <unistd.h>

using namespace bide;
using test::holding;
using test::waiting;

namespace {

durable_options on_callers_clock() {
    durable_options o{.lease = 100ms, .clock = lock_clock::caller};
    return o;
}

// A minimal store with transactions.
struct tiny_database {
    slot_snapshot lock;
    int work = 0;
};
struct tiny_transaction {
    tiny_database& of;
    tiny_database draft = of;
    bool is_aborted = false;
    void commit() { of = draft; }
};
class tiny_slot : public slot {
public:
    static constexpr slot_guarantees guarantees{true, false, lock_clock::boottime};
    using transaction = tiny_transaction;
    explicit tiny_slot(tiny_database& of) : of_(&of) {}
    result<slot_snapshot, std::error_code> load() override { return of_->lock; }
    cas_result compare_exchange(slot_version v, std::string_view value) override {
        return write(*of_, v, value);
    }
    result<slot_snapshot, std::error_code> load_in(transaction& in) {
        if (in.is_aborted) {
            return unexpected{std::make_error_code(std::errc::io_error)};
        }
        return in.draft.lock;
    }
    std::string explain() const override { return "the transaction was aborted"; }
    cas_result compare_exchange_in(transaction& in, slot_version v, std::string_view value) {
        return write(in.draft, v, value);
    }

private:
    static cas_result write(tiny_database& d, slot_version v, std::string_view value) {
        if (d.lock.version != v) {
            return {cas_status::conflict, 0, {}, {}};
        }
        d.lock.value = value;
        return {cas_status::stored, ++d.lock.version, {}, {}};
    }
    tiny_database* of_;
};

} // namespace

TEST_CASE("durable_semaphore: single steps depend on the caller's time only") {
    durable_semaphore s(memory_slot(), 1, on_callers_clock());
    REQUIRE_FALSE(s.inspect(0ms)->has_value()); // never used
    durable_ticket a = s.ticket("a");
    durable_ticket b = s.ticket("b");

    const auto first = s.try_acquire(a, 1000ms);
    REQUIRE(first->acquired);
    REQUIRE(first->fence == bide::durable::floor_of(1000));
    REQUIRE(a.fence == first->fence);

    const auto behind = s.try_acquire(b, 1010ms);
    REQUIRE_FALSE(behind->acquired);
    REQUIRE(behind->position == 0);
    REQUIRE(behind->retry_in == 90ms);

    REQUIRE(s.renew(a, 1050ms).value());
    REQUIRE_FALSE(s.try_acquire(b, 1149ms)->acquired); // the lease expires at 1150
    const auto taken = s.try_acquire(b, 1150ms);
    REQUIRE(taken->acquired);
    REQUIRE(taken->fence == first->fence + 1);

    REQUIRE_FALSE(s.renew(a, 1151ms).value()); // lost
    REQUIRE_FALSE(s.release(a).value());       // and the next one's hold is not touched
    REQUIRE(s.inspect(1152ms).value()->live.holders.size() == 1);
    REQUIRE(s.release(b).value());
    REQUIRE_FALSE(s.release(b).value());
    REQUIRE(s.inspect(1153ms).value()->live.holders.empty());
}

TEST_CASE("durable_semaphore: the same ticket is the same contender, the same name is not") {
    durable_semaphore s(memory_slot(), 2, on_callers_clock());
    durable_ticket a = s.ticket("worker");
    REQUIRE(s.try_acquire(a, 0ms)->acquired);
    auto resumed = durable_ticket::parse(a.to_string()); // by another process, say
    const auto again = s.try_acquire(*resumed, 50ms);
    REQUIRE(again->acquired);
    REQUIRE(again->fence == a.fence);
    durable_ticket other = s.ticket("worker");
    const auto second = s.try_acquire(other, 50ms);
    REQUIRE(second->acquired);
    REQUIRE(second->fence != a.fence);
    REQUIRE(second->lane != again->lane);
    durable_ticket third = s.ticket("worker");
    REQUIRE_FALSE(s.try_acquire(third, 60ms)->acquired);
}

TEST_CASE("durable_semaphore: a time on another clock than the record's is refused") {
    const memory_slot slot;
    durable_semaphore s(slot, 1);
    durable_ticket t = s.ticket();
    REQUIRE(s.try_acquire(t, 5ms).error() == durable_errc::clock_mismatch);
    REQUIRE(s.renew(t, 5ms).error() == durable_errc::clock_mismatch);
    REQUIRE(s.inspect(5ms).error() == durable_errc::clock_mismatch);
    REQUIRE(s.try_acquire(t)->acquired);

    durable_semaphore other(slot, 1, on_callers_clock());
    durable_ticket u = other.ticket();
    REQUIRE(other.try_acquire(u, 5ms).error() == durable_errc::clock_mismatch);
}

TEST_CASE("durable_semaphore: contenders with another number of permits are refused",
          "[promise.durable-permit-number]") {
    const memory_slot slot;
    durable_semaphore three(slot, 3);
    const auto held = test::acquired(three);
    durable_semaphore four(slot, 4);
    REQUIRE(four.acquire().error() == durable_errc::permits_mismatch);
    REQUIRE(holding(three) == 1);
}

TEST_CASE("durable_semaphore: the constructor throws if an option is out of range") {
    const auto refuses = [](std::int64_t permits, const durable_options& o) {
        try {
            durable_semaphore s(memory_slot(), permits, o);
            return false;
        } catch (const std::system_error& e) {
            return e.code() == durable_errc::invalid_argument;
        }
    };
    REQUIRE(refuses(0, {}));
    REQUIRE(refuses(-1, {}));
    REQUIRE(refuses(1, {.lease = 0ms}));
    REQUIRE(refuses(1, {.lease = 30s, .margin = 30s}));
    REQUIRE(refuses(1, {.lease = 1ms})); // less than the margin that is taken where none is given
    REQUIRE(refuses(1, {.lease = 1s, .warn_before = 1s})); // not before the loss
    REQUIRE(refuses(1, {.warn_before = -1ms}));
    REQUIRE(refuses(1, {.reclaim_delay = -1ms}));
    REQUIRE(refuses(1, {.clock = lock_clock::server})); // that this slot does not have
    REQUIRE(refuses(1, {.holder_id = "\xff"}));
    REQUIRE(refuses(1, {.attempt_limit = -1ms}));
    REQUIRE(refuses(1, {.poll_most = 0ms}));
    REQUIRE_FALSE(refuses(1, {.lease = 2ms}));
    REQUIRE_FALSE(refuses(1, {}));
}

TEST_CASE(
    "durable_semaphore: more permits than there are are refused, and so are invalid tickets") {
    durable_semaphore s(memory_slot(), 2);
    acquire_request r;
    r.weight = 3;
    REQUIRE(s.acquire(r).error() == durable_errc::too_heavy);
    r.weight = 0;
    REQUIRE(s.acquire(r).error() == durable_errc::invalid_argument);
    durable_ticket t = s.ticket("\xff");
    REQUIRE(s.try_acquire(t).error() == durable_errc::invalid_argument);
    t = s.ticket(std::string(257, 'a'));
    REQUIRE(s.try_acquire(t).error() == durable_errc::invalid_argument);
}

TEST_CASE("durable_semaphore: threads and coroutines are served in the order of arrival",
          "[promise.durable-fifo]") {
    durable_semaphore s(memory_slot(), 1);
    auto held = s.acquire();
    std::mutex lock;
    std::vector<int> order;
    std::map<int, std::int64_t> fences;
    const auto note = [&](int who, const durable_guard& g) {
        const std::lock_guard guard(lock);
        order.push_back(who);
        fences[who] = g.fence();
    };
    const auto by_task = [&](int who) -> task<void> {
        auto mine = co_await s.async_acquire();
        if (mine) {
            note(who, *mine);
        }
    };
    scheduler workers;
    std::vector<std::thread> threads;
    std::vector<join_handle<void>> tasks;
    for (int who = 0; who < 6; ++who) {
        if (who % 2 == 0) {
            threads.emplace_back([&, who] {
                const auto mine = s.acquire();
                if (mine) {
                    note(who, *mine);
                }
            });
        } else {
            tasks.push_back(workers.spawn(by_task(who)));
        }
        REQUIRE(test::comes_to_wait(s, static_cast<std::size_t>(who) + 1));
    }
    REQUIRE(held->release().has_value());
    for (std::thread& t : threads) {
        t.join();
    }
    for (auto& t : tasks) {
        std::move(t).join();
    }
    REQUIRE(order == std::vector<int>{0, 1, 2, 3, 4, 5});
    for (int who = 1; who < 6; ++who) {
        REQUIRE(fences[who] > fences[who - 1]);
    }
}

TEST_CASE("durable_semaphore: a large request is not starved, and no later contender overtakes it",
          "[promise.durable-fifo]") {
    durable_semaphore s(memory_slot(), 3, test::unhurried());
    auto one = s.acquire();
    std::optional<std::int64_t> large_fence;
    std::thread large([&] {
        acquire_request r;
        r.weight = 3;
        auto mine = s.acquire(r);
        if (mine) {
            large_fence = mine->fence();
        }
    });
    REQUIRE(test::comes_to_wait(s));
    REQUIRE(s.try_acquire().error() == errc::timeout); // two are free, and are kept for it
    REQUIRE(waiting(s) == 1);                          // no trace
    REQUIRE(one->release().has_value());
    large.join();
    REQUIRE(large_fence.has_value());
    REQUIRE(s.try_acquire(3).has_value());
}

TEST_CASE("durable_semaphore: free permits are granted even if a stop was requested or the timeout "
          "is zero") {
    durable_semaphore s(memory_slot(), 1, test::unhurried());
    std::stop_source stopped;
    stopped.request_stop();
    acquire_request r = test::until_stop(stopped);
    {
        const auto got = test::acquired(s, r);
        REQUIRE(s.acquire(r).error() == errc::stopped);
    }
    r.timeout = -1s;
    const auto got = test::acquired(s, r);
    REQUIRE(s.acquire(r).error() == errc::timeout);
    REQUIRE(waiting(s) == 0);
}

TEST_CASE("durable_semaphore: a contender that gives up leaves no entry, and the next one gets its "
          "turn",
          "[promise.durable-giving-up]") {
    durable_semaphore s(memory_slot(), 1, test::unhurried());
    auto held = s.acquire();

    REQUIRE(s.acquire(test::within(5ms)).error() == errc::timeout);
    REQUIRE(sync_wait(s.async_acquire(test::within(5ms))).error() == errc::timeout);
    for (const test::giving_up how : test::ways_to_give_up) {
        const auto waits = [&] { CHECK(test::comes_to_wait(s)); };
        REQUIRE(test::error_of_giving_up(how, s, waits) == errc::stopped);
        REQUIRE(waiting(s) == 0);
    }
    REQUIRE(waiting(s) == 0);
    REQUIRE(held->release().has_value());
    REQUIRE(s.try_acquire().has_value());
}

TEST_CASE("durable_semaphore: if a holder disappears, contenders wait until its lease expires",
          "[promise.durable-killed-holder]") {
    durable_semaphore s(memory_slot(), 1, {.lease = 60ms});
    durable_ticket lost = s.ticket();
    const std::int64_t before = bide::durable::boottime_ms();
    REQUIRE(s.try_acquire(lost)->acquired);
    const auto next = test::acquired(s);
    REQUIRE(bide::durable::boottime_ms() - before >= 60);
    REQUIRE(next->fence() > lost.fence);
}

TEST_CASE("durable_semaphore: if a waiter disappears, its place expires after its time") {
    durable_semaphore s(memory_slot(), 1, {.waiter_ttl = 60ms});
    auto held = s.acquire();
    durable_ticket ghost = s.ticket();
    const std::int64_t before = bide::durable::boottime_ms();
    REQUIRE_FALSE(s.try_acquire(ghost)->acquired);
    REQUIRE(held->release().has_value());
    REQUIRE(s.acquire().has_value());
    REQUIRE(bide::durable::boottime_ms() - before >= 60);
}

TEST_CASE("durable_semaphore: a guard may outlive it") {
    std::optional<durable_guard> held;
    const memory_slot slot;
    {
        durable_semaphore s(slot, 1);
        auto got = s.acquire();
        held.emplace(std::move(*got));
    }
    durable_semaphore again(slot, 1, test::unhurried());
    REQUIRE(again.try_acquire().error() == errc::timeout);
    REQUIRE(held->release().has_value());
    REQUIRE(again.try_acquire().has_value());
}

TEST_CASE("durable_semaphore: a stored value that is no record is an error, not an empty lock",
          "[promise.durable-unreadable]") {
    memory_slot slot;
    REQUIRE(slot.compare_exchange(0, "{\"v\":1}").status == cas_status::stored);
    durable_semaphore s(slot, 1);
    REQUIRE(s.acquire().error() == durable_errc::corrupt_record);
    REQUIRE(s.inspect().error() == durable_errc::corrupt_record);
    durable_ticket t = s.ticket();
    REQUIRE(s.try_acquire(t).error() == durable_errc::corrupt_record);
    REQUIRE(s.release(t).error() == durable_errc::corrupt_record);
    REQUIRE(slot.load()->value == "{\"v\":1}");
}

TEST_CASE(
    "durable_semaphore: in a transaction the lock and the work change together or not at all") {
    tiny_database database;
    tiny_slot inside(database);
    durable_semaphore s(tiny_slot(database), 1);
    durable_ticket t = s.ticket();
    {
        tiny_transaction dropped{database};
        REQUIRE(s.try_acquire_in(inside, dropped, t)->acquired);
        dropped.draft.work = 1;
    }
    REQUIRE(holding(s) == 0);
    REQUIRE(database.work == 0);

    t = s.ticket();
    {
        tiny_transaction kept{database};
        REQUIRE(s.try_acquire_in(inside, kept, t)->acquired);
        kept.draft.work = 2;
        kept.commit();
    }
    REQUIRE(holding(s) == 1);
    REQUIRE(database.work == 2);
    {
        tiny_transaction kept{database};
        REQUIRE(s.renew_in(inside, kept, t).value());
        REQUIRE(s.release_in(inside, kept, t).value());
        kept.draft.work = 3;
        kept.commit();
    }
    REQUIRE(holding(s) == 0);
    tiny_transaction late{database};
    REQUIRE_FALSE(s.renew_in(inside, late, t).value());
}

TEST_CASE("durable_semaphore: explain() tells what a slot said of a failure in a transaction") {
    tiny_database database;
    tiny_slot inside(database);
    durable_semaphore s(tiny_slot(database), 1);
    durable_ticket t = s.ticket();
    tiny_transaction aborted{database};
    aborted.is_aborted = true;
    REQUIRE(s.try_acquire_in(inside, aborted, t).error() == std::errc::io_error);
    REQUIRE(s.explain() == "the transaction was aborted");
}
