// Faults around a durable lock: stores that hang, that reply late or never; threads that cannot be
// started; children of fork(); clocks that throw.

#include <bide/durable/detail/acquisition.hpp>
#include <bide/durable/locks.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/slots/memory.hpp>

#include <support/children.hpp>
#include <support/coroutines.hpp>
#include <support/durable_locks.hpp>
#include <support/unhurried.hpp>

#include <sys/resource.h>

using namespace bide;

namespace {

// A memory_slot with faults that a test switches on.
class odd_slot : public slot {
public:
    static constexpr slot_guarantees guarantees = memory_slot::guarantees;
    struct habits {
        std::atomic<bool> hangs{false};
        bool keeps_back = false; // what is to be stored, once, and then fails to load, once
        bool fails = false;
        std::atomic<int> takes_ms{0};
        std::atomic<int> loads{0};
        slot_version kept_version = 0;
        std::string kept;
    };
    odd_slot(memory_slot of, std::shared_ptr<habits> h) : of_(std::move(of)), h_(std::move(h)) {}

    result<slot_snapshot, std::error_code> load() override {
        // For longer than any test waits in between.
        test::eventually([&] { return !h_->hangs; }, 3 * test::patience);
        ++h_->loads;
        if (std::exchange(h_->fails, false)) {
            return unexpected{std::make_error_code(std::errc::io_error)};
        }
        return of_.load();
    }
    cas_result compare_exchange(slot_version v, std::string_view value) override {
        std::this_thread::sleep_for(std::chrono::milliseconds(h_->takes_ms));
        if (std::exchange(h_->keeps_back, false)) {
            h_->kept_version = v;
            h_->kept = value;
            h_->fails = true;
            return {cas_status::indeterminate, 0, {}, std::make_error_code(std::errc::timed_out)};
        }
        return of_.compare_exchange(v, value);
    }

private:
    memory_slot of_;
    std::shared_ptr<habits> h_;
};

// A slot whose updates are indeterminate: always, or for the first so many.
class unsure_slot : public slot {
public:
    static constexpr slot_guarantees guarantees = memory_slot::guarantees;
    explicit unsure_slot(std::shared_ptr<int> calls, int until = -1)
        : calls_(std::move(calls)), until_(until) {}
    result<slot_snapshot, std::error_code> load() override { return slot_snapshot(); }
    cas_result compare_exchange(slot_version, std::string_view) override { return answer(); }
    cas_result update_locked(const slot_update&) override { return answer(); }

private:
    cas_result answer() {
        if (++*calls_ == until_) {
            return {cas_status::stored, 1, {}, {}};
        }
        return {cas_status::indeterminate, 0, {}, std::make_error_code(std::errc::io_error)};
    }
    std::shared_ptr<int> calls_;
    int until_;
};

test::detached hold_once(durable_mutex& m, std::atomic<int>& done) {
    auto waiting = m.async_acquire();
    {
        const auto got = co_await std::move(waiting);
        done = got.has_value() ? 1 : -1;
    }
    done = done + 1;
}

// Its store is full.
struct full_slot : slot {
    explicit full_slot(const memory_slot& on) : of(on) {}
    static constexpr slot_guarantees guarantees = memory_slot::guarantees;
    result<slot_snapshot, std::error_code> load() override { return of.load(); }
    cas_result compare_exchange(slot_version, std::string_view) override {
        ++*writes;
        return {cas_status::failed, 0, {}, std::make_error_code(std::errc::no_space_on_device)};
    }
    memory_slot of;
    std::shared_ptr<int> writes = std::make_shared<int>(0);
};

// Another contender comes first, once: `other` is called before the next swap.
struct raced_slot : slot {
    raced_slot(const memory_slot& on, std::shared_ptr<std::function<void()>> first)
        : of(on), other(std::move(first)) {}
    static constexpr slot_guarantees guarantees = memory_slot::guarantees;
    result<slot_snapshot, std::error_code> load() override { return of.load(); }
    cas_result compare_exchange(slot_version v, std::string_view value) override {
        if (const auto now = std::exchange(*other, nullptr)) {
            now();
        }
        return of.compare_exchange(v, value);
    }
    memory_slot of;
    std::shared_ptr<std::function<void()>> other;
};

} // namespace

TEST_CASE("lock_faults: an attempt that is granted after a conflict has no time of another lease") {
    const memory_slot memory;
    const auto other = std::make_shared<std::function<void()>>();
    durable_semaphore raced(raced_slot(memory, other), 1);
    durable_semaphore holds(memory, 1);
    durable_ticket first = holds.ticket("first");
    durable_ticket second = raced.ticket("second");
    REQUIRE(holds.try_acquire(first)->acquired);
    *other = [&] { REQUIRE(holds.release(first).value()); };
    const auto got = raced.try_acquire(second);
    REQUIRE(got->acquired);
    REQUIRE(got->retry_in == 0ms);
}

TEST_CASE(
    "lock_faults: a coroutine without an executor does not resume on the lease monitor's thread") {
    const memory_slot memory;
    const auto habits = std::make_shared<odd_slot::habits>();
    durable_mutex waits(odd_slot(memory, habits));
    durable_mutex other(memory);
    durable_mutex third(memory_slot(), {.lease = 50ms, .auto_renew = false});

    auto held = other.acquire();
    std::atomic<int> done{0};
    hold_once(waits, done);
    REQUIRE(done == 0);
    const auto watched = third.acquire();
    const std::stop_token lost = watched->lost();
    habits->hangs = true;
    REQUIRE(held->release().has_value()); // its message lets the coroutine look
    const bool was_told = test::eventually([&] { return lost.stop_requested(); });
    habits->hangs = false;
    REQUIRE(test::eventually([&] { return done == 2; }));
    REQUIRE(was_told);
}

TEST_CASE("lock_faults: a contender with the ticket of an expired grant leaves no entry when it "
          "gives up") {
    durable_semaphore s(memory_slot(), 1, test::unhurried());
    durable_ticket t = s.ticket();
    REQUIRE(s.try_acquire(t)->acquired);
    REQUIRE(s.admin("ops").force_release(t.fence, "gone").value());
    const auto held = test::acquired(s);
    acquire_request r;
    r.ticket = t;
    r.timeout = 5ms;
    REQUIRE(s.acquire(r).error() == errc::timeout);
    REQUIRE(test::waiting(s) == 0);
}

TEST_CASE("lock_faults: a write under way when an acquisition fails does not become a grant",
          "[promise.durable-lost-reply]") {
    memory_slot memory;
    const auto habits = std::make_shared<odd_slot::habits>();
    durable_mutex m(odd_slot(memory, habits), test::unhurried());
    habits->keeps_back = true;
    habits->takes_ms = 5;
    REQUIRE(m.acquire(test::within(1ms)).error() == std::errc::io_error);
    REQUIRE_FALSE(habits->kept.empty());
    static_cast<void>(memory.compare_exchange(habits->kept_version, habits->kept)); // it comes
    const auto seen = m.inspect();
    REQUIRE((!*seen || ((*seen)->live.holders.empty() && (*seen)->live.waiters.empty())));
}

TEST_CASE("lock_faults: after indeterminate results the store is called with pauses") {
    const auto calls = std::make_shared<int>(0);
    durable_mutex m(unsure_slot(calls), {.retry_time = 200ms});
    durable_ticket t = m.ticket();
    REQUIRE(m.try_acquire(t).error() == durable_errc::indeterminate);
    REQUIRE(*calls >= 1);
    REQUIRE(*calls < 1000);
}

TEST_CASE("lock_faults: after an indeterminate result the record is read again") {
    const auto calls = std::make_shared<int>(0);
    durable_mutex m(unsure_slot(calls, 5));
    durable_ticket t = m.ticket();
    REQUIRE(m.try_acquire(t)->acquired);
    REQUIRE(*calls == 5);
}

TEST_CASE("lock_faults: if the store is always slower than the lease, acquire() returns an error") {
    const auto habits = std::make_shared<odd_slot::habits>();
    durable_mutex m(odd_slot(memory_slot(), habits), {.lease = 10ms, .retry_time = 100ms});
    habits->takes_ms = 15;
    REQUIRE(m.acquire(test::within(5s)).error() == durable_errc::lock_lost);
    habits->takes_ms = 0;
    REQUIRE((*m.inspect())->live.holders.empty());
}

TEST_CASE("lock_faults: renewals continue after one that threw") {
    const bool was_kept = test::in_some_time(300ms, [&](std::chrono::milliseconds lease) {
        std::atomic<bool> breaks{false};
        std::atomic<int> broken{0};
        durable_options o{.lease = lease, .clock = lock_clock::caller};
        o.now = [&] {
            if (breaks) {
                ++broken;
                throw std::runtime_error("no clock");
            }
            return std::chrono::milliseconds(bide::durable::boottime_ms());
        };
        durable_mutex m(memory_slot(), o);
        const auto g = test::acquired(m);
        const std::stop_token lost = g->lost();
        breaks = true;
        REQUIRE(test::eventually([&] { return broken > 1 || lost.stop_requested(); }));
        breaks = false;
        REQUIRE(test::eventually([&] { return lost.stop_requested() || test::renewals(m) > 0; }));
        return !lost.stop_requested();
    });
    REQUIRE(was_kept);
}

TEST_CASE("lock_faults: in a child of fork() a lock renews what it acquires there") {
    const bool was_kept = test::in_some_time(300ms, [](std::chrono::milliseconds lease) {
        durable_mutex m(memory_slot(), {.lease = lease});
        {
            const auto g = m.acquire();
        } // the renewer goes on for a while
        return test::in_child([&] {
                   const auto g = m.acquire();
                   const std::stop_token lost = g->lost();
                   test::eventually([&] { return test::renewals(m) > 0 || lost.stop_requested(); });
                   return test::renewals(m) > 0 ? 0 : 1;
               }) == 0;
    });
    REQUIRE(was_kept);
}

TEST_CASE("lock_faults: a child of fork() without a free descriptor can use the lock for which its "
          "parent waits") {
    const auto h = std::make_shared<odd_slot::habits>();
    durable_semaphore m(odd_slot(memory_slot(), h), 1);
    durable_ticket t = m.ticket();
    auto held = m.acquire();
    REQUIRE(held);
    const int before = h->loads;
    test::team waiter(1, [&](int) { static_cast<void>(m.acquire()); });
    REQUIRE(test::eventually([&] { return h->loads >= before + 2; }));
    REQUIRE(m.inspect().value()->live.waiters.size() == 1); // after the read that opened the socket
    REQUIRE(test::in_child([&] {
                const rlimit none{0, 0};
                return ::setrlimit(RLIMIT_NOFILE, &none) == 0 && m.try_acquire(t) ? 0 : 1;
            }) == 0);
    REQUIRE(held->release());
}

TEST_CASE("lock_faults: the lease monitor's thread is started later if it could not be started at "
          "first") {
    REQUIRE(test::in_child([] {
                durable_mutex m(memory_slot(), {.lease = 50ms, .auto_renew = false});
                try {
                    const test::no_new_threads refused;
                    const auto g = m.acquire();
                    return 2; // there is such a thread
                } catch (const std::system_error&) {
                }
                const auto g = m.acquire();
                const std::stop_token lost = g->lost();
                return test::eventually([&] { return lost.stop_requested(); }) ? 0 : 1;
            }) == 0);
}

TEST_CASE("lock_faults: a lock that is held is busy, though what is seen of it cannot be stored") {
    memory_slot memory;
    const durable_options o =
        test::unhurried({.lease = std::chrono::hours(1), .process_bound = false});
    durable_mutex holder(memory, o);
    const auto held = holder.acquire();
    const auto stored = memory.load();
    auto record = bide::durable::decode(stored->value).value();
    record.holders.at(0).from.boot = "another";
    REQUIRE(memory.compare_exchange(stored->version, bide::durable::encode(record)).status ==
            cas_status::stored);

    const full_slot full(memory);
    durable_mutex contender(full, o);
    REQUIRE(contender.try_acquire().error() == errc::timeout);
    REQUIRE(*full.writes == 1); // and nothing to be taken back
}

TEST_CASE("lock_faults: the longest poll interval does not overflow") {
    durable_options o{.poll_least = std::chrono::milliseconds::max(),
                      .poll_most = std::chrono::milliseconds::max()};
    durable_semaphore s(memory_slot(), 1, o);
    auto held = s.acquire();
    REQUIRE(s.acquire(test::within(20ms)).error() == errc::timeout);
    std::thread next([&] { static_cast<void>(s.acquire()); });
    REQUIRE(test::comes_to_wait(s));
    REQUIRE(held->release().has_value());
    next.join();
}
