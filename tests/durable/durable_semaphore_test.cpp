#include <bide/durable/locks.hpp>
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

// The time is a variable of the test.
durable_options on_clock(const std::chrono::milliseconds& now) {
    durable_options o{.lease = 100ms, .clock = lock_clock::caller};
    o.now = [&now] { return now; };
    return o;
}

struct failing_slot : slot {
    static constexpr slot_guarantees guarantees{true, false, lock_clock::boottime};
    result<slot_snapshot, std::error_code> load() override {
        return unexpected{std::make_error_code(std::errc::io_error)};
    }
    cas_result compare_exchange(slot_version, std::string_view) override { return {}; }
    std::string explain() const override { return "the disk is gone"; }
};

} // namespace

TEST_CASE("durable_semaphore: with lock_clock::caller, single steps depend on its time only") {
    std::chrono::milliseconds now = 0ms;
    durable_semaphore s(memory_slot(), 1, on_clock(now));
    REQUIRE_FALSE(s.inspect()->has_value()); // never used
    durable_ticket a = s.ticket("a");
    durable_ticket b = s.ticket("b");

    now = 1000ms;
    const auto first = s.try_acquire(a);
    REQUIRE(first->acquired);
    REQUIRE(first->fence == bide::durable::floor_of(1000));
    REQUIRE(a.fence == first->fence);

    now = 1010ms;
    const auto behind = s.try_acquire(b);
    REQUIRE_FALSE(behind->acquired);
    REQUIRE(behind->position == 0);
    REQUIRE(behind->retry_in == 90ms);

    now = 1050ms;
    REQUIRE(s.renew(a).value());
    now = 1149ms; // the lease expires at 1150
    REQUIRE_FALSE(s.try_acquire(b)->acquired);
    now = 1150ms;
    const auto taken = s.try_acquire(b);
    REQUIRE(taken->acquired);
    REQUIRE(taken->fence == bide::durable::floor_of(1150));

    now = 1151ms;
    REQUIRE_FALSE(s.renew(a).value());   // lost
    REQUIRE_FALSE(s.release(a).value()); // and the next one's hold is not touched
    REQUIRE(s.inspect().value()->live.holders.size() == 1);
    REQUIRE(s.release(b).value());
    REQUIRE_FALSE(s.release(b).value());
    REQUIRE(s.inspect().value()->live.holders.empty());
}

TEST_CASE("durable_semaphore: the same ticket is the same contender, the same name is not") {
    std::chrono::milliseconds now = 0ms;
    durable_semaphore s(memory_slot(), 2, on_clock(now));
    durable_ticket a = s.ticket("worker");
    REQUIRE(s.try_acquire(a)->acquired);
    auto resumed = durable_ticket::parse(a.to_string()); // by another process, say
    now = 50ms;
    const auto again = s.try_acquire(*resumed);
    REQUIRE(again->acquired);
    REQUIRE(again->fence == a.fence);
    durable_ticket other = s.ticket("worker");
    const auto second = s.try_acquire(other);
    REQUIRE(second->acquired);
    REQUIRE(second->fence != a.fence);
    REQUIRE(second->lane != again->lane);
    durable_ticket third = s.ticket("worker");
    now = 60ms;
    REQUIRE_FALSE(s.try_acquire(third)->acquired);
}

TEST_CASE("durable_semaphore: a record on another clock is refused") {
    const memory_slot slot;
    durable_semaphore s(slot, 1);
    durable_ticket t = s.ticket();
    REQUIRE(s.try_acquire(t)->acquired);

    const std::chrono::milliseconds now = 5ms;
    durable_semaphore other(slot, 1, on_clock(now));
    durable_ticket u = other.ticket();
    REQUIRE(other.try_acquire(u).error() == durable_errc::clock_mismatch);
}

TEST_CASE(
    "durable_semaphore: an object on another clock ends no minimum hold, and judges nothing") {
    const memory_slot slot;
    durable_semaphore s(slot, 1);
    acquire_request request;
    request.at_least = 1h;
    auto held = s.acquire(request);
    REQUIRE(held);
    const durable_ticket t = held->detach();

    const std::chrono::milliseconds now = std::chrono::hours(24 * 365 * 50);
    durable_semaphore other(slot, 1, on_clock(now));
    REQUIRE(other.inspect().error() == durable_errc::clock_mismatch);
    REQUIRE(other.release(t).error() == durable_errc::clock_mismatch);
    REQUIRE(s.inspect().value()->live.holders.size() == 1);
    REQUIRE(s.renew(t).value());
    REQUIRE(s.release(t).value());
    REQUIRE_FALSE(s.try_acquire().has_value()); // it rests

    durable_semaphore plain(memory_slot(slot), 1);
    REQUIRE(plain.admin("me").force_release(t.fence, "").value());
    durable_ticket u = s.ticket(); // without a minimum hold no time is needed
    REQUIRE(s.try_acquire(u)->acquired);
    REQUIRE(other.release(u).value());
    REQUIRE(s.try_acquire());
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
    REQUIRE_FALSE(
        *s.inspect()); // a refused request writes nothing, so others may choose the permits
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

TEST_CASE("durable_semaphore: explain() tells what the slot said of the last failure") {
    durable_semaphore s(failing_slot(), 1);
    REQUIRE(s.explain() == "");
    durable_ticket t = s.ticket();
    REQUIRE(s.try_acquire(t).error() == std::errc::io_error);
    REQUIRE(s.explain() == "the disk is gone");
}
