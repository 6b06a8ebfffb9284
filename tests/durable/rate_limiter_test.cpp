#include <bide/durable/rate_limiter.hpp>

#include <bide/durable/locks.hpp>
#include <bide/durable/slots/file.hpp>
#include <bide/durable/slots/memory.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>

#include <nlohmann/json.hpp>

#include <support/children.hpp>
#include <support/temp_directory.hpp>
#include <support/test.hpp>

#include <unistd.h>

using namespace bide;
using bide::detail::rate_record;
using bide::detail::rate_time;
using bide::detail::token_rate;

namespace {

// The options of limiters on a clock that the test moves.
rate_options on_clock(std::shared_ptr<std::atomic<std::int64_t>> ms) {
    rate_options o{.clock = lock_clock::caller};
    o.now = [ms] { return std::chrono::milliseconds(ms->load()); };
    o.attempt_limit = test::patience;
    return o;
}
rate_options unhurried() {
    rate_options o{.attempt_limit = test::patience};
    return o;
}

// Tokens whose time has come, on a clock that no limiter can set.
struct granted {
    std::int64_t at_ns;
    std::int64_t tokens;
};

// Whether no time t had more than burst + rate * (t + extra) tokens.
bool keep_the_rate(std::vector<granted> all, const token_rate& rate, std::int64_t extra_ns) {
    std::sort(all.begin(), all.end(),
              [](const granted& a, const granted& b) { return a.at_ns < b.at_ns; });
    for (std::size_t first = 0; first < all.size(); ++first) {
        std::int64_t tokens = 0;
        for (std::size_t last = first; last < all.size(); ++last) {
            tokens += all[last].tokens;
            const std::int64_t t = all[last].at_ns - all[first].at_ns + extra_ns;
            if ((tokens - rate.burst) * rate.period_ns > t * rate.count) {
                return false;
            }
        }
    }
    return true;
}

// Random requests on a record, with a clock for each requester that differs from the true time by
// up to `skew_ms`. Returns whether the rate was kept.
bool random_requests_keep_the_rate(unsigned seed, std::int64_t skew_ms, std::int64_t tolerance_ms,
                                   std::int64_t extra_ms) {
    std::mt19937 random(seed);
    const auto below = [&](std::int64_t n) {
        return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
    };
    rate_record r;
    r.rate = *token_rate::make(1 + below(20), 1'000'000 * (20 + below(100)), 1 + below(10));
    const bool has_boot = below(2) == 0 && skew_ms == 0;
    r.at.clock = has_boot ? lock_clock::boottime : lock_clock::caller;
    r.at.now_ms = r.at.unix_ms = 100'000;
    r.at.boot = "boot";
    std::vector<granted> all;
    std::int64_t true_ms = 100'000;
    std::int64_t boot_began = 0;
    for (int i = 0; i < 300; ++i) {
        true_ms += below(3) == 0 ? below(100) : below(8);
        rate_time now = r.at;
        if (has_boot && below(50) == 0) { // a reboot
            boot_began = true_ms;
            now.boot += "+";
        }
        now.unix_ms = true_ms;
        now.now_ms = true_ms - boot_began + (skew_ms != 0 ? below(skew_ms + 1) : 0);
        if (i % 10 == 0) {
            r = *bide::detail::decode_rate(durable::detail::write_text(r));
        }
        r.advance(now, tolerance_ms);
        const std::int64_t n = 1 + below(r.rate.burst);
        const std::int64_t longest = below(2) == 0 ? 0 : below(200) * 1'000'000;
        const std::int64_t wait = r.take(n, longest, std::to_string(i));
        if (wait > longest) {
            continue;
        }
        if (below(5) == 0 && r.give_back(n, std::to_string(i))) {
            continue;
        }
        all.push_back({true_ms * 1'000'000 + wait, n});
    }
    return keep_the_rate(std::move(all), r.rate, extra_ms * 1'000'000 + 2); // times are whole ns
}

// A slot that stores without a look at the version.
class blind_slot : public slot {
public:
    static constexpr slot_guarantees guarantees = memory_slot::guarantees;
    explicit blind_slot(memory_slot of) : of_(std::move(of)) {}
    result<slot_snapshot, std::error_code> load() override {
        auto seen = of_.load();
        std::this_thread::yield(); // between the load and the store
        return seen;
    }
    cas_result compare_exchange(slot_version version, std::string_view value) override {
        for (;;) {
            const auto tried = of_.compare_exchange(version, value);
            if (tried.status != cas_status::conflict) {
                return tried;
            }
            version = tried.current->version;
        }
    }

private:
    memory_slot of_;
};

// Threads with limiters of their own take what they get while the clock goes on. Returns how many
// tokens they got, until the clock has moved by 200 ms, of 5 + 200.
template <class Slot> std::int64_t taken_by_threads(const Slot& slot) {
    const auto ms = std::make_shared<std::atomic<std::int64_t>>(1'000);
    std::atomic<std::int64_t> taken{0};
    std::atomic<bool> failed{false};
    constexpr int threads = 4;
    std::atomic<int> emptied{0}; // threads that found the bucket empty at the present time
    test::run_threads(threads, [&](int i) {
        durable_rate_limiter limiter(slot, 1, 1ms, 5, on_clock(ms));
        for (std::int64_t now = 1'000; now <= 1'200; now += 10) {
            for (;;) {
                const auto got = limiter.try_acquire(1 + i % 2);
                failed = failed || !got;
                if (!got || !*got) {
                    break;
                }
                taken += 1 + i % 2;
            }
            // The last thread moves the clock.
            if (emptied.fetch_add(1) + 1 == threads) {
                emptied = 0;
                *ms += 10;
            } else {
                test::eventually([&] { return *ms > now || failed; });
            }
        }
    });
    return failed ? -1 : taken.load();
}

// A memory_slot without a clock, as etcd, or with one failure.
struct clockless_slot : memory_slot {
    static constexpr slot_guarantees guarantees{true, true, lock_clock::observed};
};
struct relaxed_slot : memory_slot { // may lose values, as Redis
    static constexpr slot_guarantees guarantees{false, true, lock_clock::boottime};
};
class unsure_slot : public slot {
public:
    static constexpr slot_guarantees guarantees = memory_slot::guarantees;
    explicit unsure_slot(memory_slot of) : of_(std::move(of)) {}
    result<slot_snapshot, std::error_code> load() override { return of_.load(); }
    cas_result compare_exchange(slot_version version, std::string_view value) override {
        const auto done = of_.compare_exchange(version, value);
        if (++calls_ % 2 == 1) { // stored, and the reply is lost
            return {cas_status::indeterminate, 0, {}, std::make_error_code(std::errc::io_error)};
        }
        return done;
    }

private:
    memory_slot of_;
    int calls_ = 0;
};

} // namespace

TEST_CASE("durable_rate_limiter: random requests, reboots and cancellations keep the rate",
          "[promise.durable-rate]") {
    for (unsigned seed = 0; seed < 100; ++seed) {
        REQUIRE(random_requests_keep_the_rate(seed, 0, 1'000, 0));
        REQUIRE(random_requests_keep_the_rate(seed, 40, 1'000, 40)); // clocks that differ by 40 ms
    }
}

TEST_CASE("durable_rate_limiter: the check finds clocks that differ by more than the tolerance") {
    bool all_kept = true;
    for (unsigned seed = 0; seed < 100 && all_kept; ++seed) {
        all_kept = random_requests_keep_the_rate(seed, 40, 0, 40);
    }
    REQUIRE_FALSE(all_kept);
}

TEST_CASE("durable_rate_limiter: a clock that is set back makes no wait longer") {
    const auto ms = std::make_shared<std::atomic<std::int64_t>>(10'000'000);
    const memory_slot slot;
    durable_rate_limiter limiter(slot, 1, 10ms, 2, on_clock(ms));
    REQUIRE(*limiter.try_acquire(2));
    REQUIRE_FALSE(*limiter.try_acquire());
    *ms = 5'000'000;
    REQUIRE_FALSE(*limiter.try_acquire()); // refused, and the record begins at the new time
    *ms += 10;
    REQUIRE(*limiter.try_acquire());
    REQUIRE_FALSE(*limiter.try_acquire());
    *ms -= 500; // a clock that is behind, within the tolerance
    REQUIRE_FALSE(*limiter.try_acquire());
    *ms += 510;
    REQUIRE(*limiter.try_acquire());
}

TEST_CASE("durable_rate_limiter: tokens of the time of a reboot are there afterwards") {
    rate_record r;
    r.rate = *token_rate::make(1, 1'000'000'000, 5);
    r.at = {lock_clock::boottime, 900'000, 5'000'000, "a"};
    REQUIRE(r.take(5, 0, "one") == 0);
    r.advance({lock_clock::boottime, 10, 5'002'000, "b"}, 1'000);
    REQUIRE(r.rate.available(r.debt) == 2);
    r.advance({lock_clock::boottime, 20, 4'000'000, "c"}, 1'000); // the system clock was set back
    REQUIRE(r.rate.available(r.debt) == 2);
    r.advance({lock_clock::boottime, 1'020, 4'001'000, "c"}, 1'000);
    REQUIRE(r.rate.available(r.debt) == 3);
}

TEST_CASE("durable_rate_limiter: threads get no more than the rate, and all of it",
          "[promise.durable-rate]") {
    const std::int64_t taken = taken_by_threads(memory_slot());
    REQUIRE(taken <= 5 * 21); // a bucket of 5 every 10 ms
    REQUIRE(taken >= 4 * 21);
}

TEST_CASE("durable_rate_limiter: the count finds a store that forgets changes") {
    REQUIRE(test::eventually([] { return taken_by_threads(blind_slot(memory_slot())) > 5 * 21; }));
}

TEST_CASE("durable_rate_limiter: processes share the rate, and one that is killed loses nothing") {
    const test::temp_directory dir("rate");
    test::shared_with_children<std::atomic<std::int64_t>> ms;
    test::shared_with_children<std::atomic<std::int64_t>> taken;
    *ms = 1'000;
    rate_options o{.clock = lock_clock::caller};
    o.now = [&] { return std::chrono::milliseconds(ms->load()); };
    o.attempt_limit = test::patience;
    {
        test::children all(4, [&](int i, auto gate) -> std::string {
            gate();
            durable_rate_limiter limiter(file_slot(dir / "rate"), 1, 1ms, 50, o);
            for (int k = 0; k < 100; ++k) {
                const auto got = limiter.try_acquire();
                if (!got) {
                    return got.error().message();
                }
                *taken += *got ? 1 : 0;
                *ms += 1;
                if (i == 0 && k == 50) {
                    ::kill(::getpid(), SIGKILL);
                }
            }
            return {};
        });
        const auto said = all.reports();
        REQUIRE(said[0].find("! the process ended with status 9") != std::string::npos);
        for (int i = 1; i < 4; ++i) {
            REQUIRE(said[static_cast<std::size_t>(i)] == "");
        }
    }
    REQUIRE(*ms == 1'000 + 351);
    REQUIRE(*taken <= 50 + 351);
    REQUIRE(*taken >= 50);
    durable_rate_limiter limiter(file_slot(dir / "rate"), 1, 1ms, 50, o);
    *ms += 50;
    REQUIRE(*limiter.available() == 50);
}

TEST_CASE("durable_rate_limiter: tokens come in the order of the requests, and the last go back") {
    rate_record r;
    r.rate = *token_rate::make(1, 10, 2);
    REQUIRE(r.take(2, 0, "first") == 0);
    REQUIRE(r.take(1, 100, "second") == 10);
    REQUIRE(r.take(1, 100, "third") == 20);
    REQUIRE_FALSE(r.give_back(1, "second"));
    REQUIRE(r.give_back(1, "third"));
    REQUIRE_FALSE(r.give_back(1, "third"));
    REQUIRE(r.take(1, 100, "fourth") == 20);
    REQUIRE(r.rate.available(r.debt) == 0);

    rate_options near = unhurried();
    near.longest_wait = 30min;
    durable_rate_limiter limiter(memory_slot(), 1, 1h, 1, near);
    REQUIRE(*limiter.try_acquire());
    REQUIRE(*limiter.available() == 0);
    REQUIRE(limiter.acquire().error() == durable_errc::queue_full);
}

TEST_CASE("durable_rate_limiter: a wait that is stopped gives its tokens back") {
    durable_rate_limiter limiter(memory_slot(), 1, 1h, 1, unhurried());
    REQUIRE(limiter.acquire());
    REQUIRE(limiter.acquire(1, {1min, {}}).error() == errc::timeout);
    REQUIRE_FALSE(*limiter.try_acquire());
    for (int i = 0; i < 3; ++i) { // each would come an hour later if the tokens were not returned
        std::stop_source stop;
        result<void, std::error_code> got;
        test::team waiter(1, [&](int) { got = limiter.acquire(1, {90min, stop.get_token()}); });
        std::this_thread::yield();
        stop.request_stop();
        waiter.join();
        REQUIRE(got.error() == errc::stopped);
    }
    REQUIRE(limiter.acquire(0).error() == durable_errc::invalid_argument);
    REQUIRE(limiter.acquire(2).error() == durable_errc::too_heavy);
}

TEST_CASE("durable_rate_limiter: coroutines wait for tokens, and give them back if cancelled") {
    scheduler workers;
    memory_slot slot;
    durable_rate_limiter limiter(slot, 1, 1h, 2, unhurried());
    const auto body = [&](std::stop_token stop) -> task<std::error_code> {
        const auto one = co_await limiter.async_acquire();
        if (!one) {
            co_return one.error();
        }
        const auto two = co_await limiter.async_try_acquire();
        if (!two || !*two) {
            co_return std::make_error_code(std::errc::no_message);
        }
        rate_wait wait;
        wait.timeout = 90min;
        wait.stop = stop;
        auto acquiring = limiter.async_acquire(1, wait);
        const auto three = co_await std::move(acquiring);
        co_return three ? std::error_code() : three.error();
    };
    std::stop_source stop;
    auto stopped = workers.spawn(body(stop.get_token()));
    stop.request_stop();
    REQUIRE(std::move(stopped).join() == errc::stopped);
    std::atomic<bool> began{false};
    const auto again = [&]() -> task<std::error_code> {
        began = true;
        rate_wait wait;
        wait.timeout = 90min;
        auto acquiring = limiter.async_acquire(1, wait);
        const auto got = co_await std::move(acquiring);
        co_return got ? std::error_code() : got.error();
    };
    auto cancelled = workers.spawn(again());
    REQUIRE(test::eventually([&] { return began.load(); })); // else the task never starts
    cancelled.cancel();
    REQUIRE(std::move(cancelled).join() == errc::stopped);
    const auto r = bide::detail::decode_rate(slot.load()->value);
    REQUIRE(r->rate.wait_ns(r->debt) == 0); // no token is reserved
}

TEST_CASE("durable_rate_limiter: waits for the time of its tokens") {
    durable_rate_limiter limiter(memory_slot(), 1, 20ms, 1, unhurried());
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < 3; ++i) {
        REQUIRE(limiter.acquire());
    }
    REQUIRE(std::chrono::steady_clock::now() - began >= 39ms);
}

TEST_CASE("durable_rate_limiter: another rate is refused") {
    const memory_slot slot;
    durable_rate_limiter one(slot, 10, 10h, 4, unhurried());
    REQUIRE(*one.try_acquire(3));
    durable_rate_limiter same(slot, 1, 1h, 4, unhurried());
    REQUIRE(*same.available() == 1);
    durable_rate_limiter other(slot, 1, 1h, 8, unhurried());
    REQUIRE(other.try_acquire().error() == durable_errc::permits_mismatch);
}

TEST_CASE("durable_rate_limiter: records of other kinds are refused and kept") {
    memory_slot slot;
    durable_mutex lock(slot);
    REQUIRE(lock.acquire()->release());
    durable_rate_limiter limiter(slot, 1, 1s, 1, unhurried());
    REQUIRE(limiter.try_acquire().error() == durable_errc::corrupt_record);
    REQUIRE(lock.acquire()->release());

    memory_slot rated;
    durable_rate_limiter first(rated, 1, 1h, 1, unhurried());
    REQUIRE(*first.try_acquire());
    REQUIRE(durable_mutex(rated).try_acquire().error() == durable_errc::corrupt_record);
    const auto seen = rated.load();
    for (const char* const name : {"kind", "v", "count", "periodNs", "burst", "debt", "clock", "at",
                                   "unixMs", "boot", "last"}) {
        auto damaged = nlohmann::json::parse(seen->value);
        damaged[name] = std::string_view(name) == "v" ? nlohmann::json(1.5) : nlohmann::json(-1);
        REQUIRE(bide::detail::decode_rate(damaged.dump()).error() == durable_errc::corrupt_record);
        damaged.erase(name);
        REQUIRE(bide::detail::decode_rate(damaged.dump()).error() == durable_errc::corrupt_record);
    }
    auto other = nlohmann::json::parse(seen->value);
    other["kind"] = "bide.rates";
    REQUIRE(bide::detail::decode_rate(other.dump()).error() == durable_errc::corrupt_record);
    auto later = nlohmann::json::parse(seen->value);
    later["v"] = 2;
    REQUIRE(bide::detail::decode_rate(later.dump()).error() ==
            durable_errc::unsupported_record_version);
    REQUIRE(bide::detail::decode_rate("").error() == durable_errc::corrupt_record);
    rate_options o = unhurried();
    o.clock = lock_clock::caller;
    REQUIRE(durable_rate_limiter(rated, 1, 1h, 1, o).try_acquire().error() ==
            durable_errc::clock_mismatch);
}

TEST_CASE("durable_rate_limiter: a lost reply takes no token twice") {
    durable_rate_limiter limiter(unsure_slot(memory_slot()), 1, 1h, 4, unhurried());
    for (int i = 0; i < 4; ++i) {
        REQUIRE(*limiter.try_acquire());
    }
    REQUIRE_FALSE(*limiter.try_acquire());
}

TEST_CASE("durable_rate_limiter: options out of range are refused") {
    REQUIRE_THROWS_AS(durable_rate_limiter(clockless_slot(), 1, 1s), std::system_error);
    REQUIRE_THROWS_AS(durable_rate_limiter(memory_slot(), 0, 1s), std::system_error);
    REQUIRE_THROWS_AS(durable_rate_limiter(memory_slot(), 1, 0s), std::system_error);
    REQUIRE_THROWS_AS(durable_rate_limiter(memory_slot(), 1, 1s, 0), std::system_error);
    REQUIRE_THROWS_AS(durable_rate_limiter(memory_slot(), 2, 1ns), std::system_error);
    rate_options negative{.attempt_limit = -1ms};
    REQUIRE_THROWS_AS(durable_rate_limiter(memory_slot(), 1, 1s, 1, negative), std::system_error);
    rate_options o = unhurried();
    o.clock = lock_clock::caller;
    REQUIRE(*durable_rate_limiter(clockless_slot(), 1, 1s, 1, o).try_acquire());
    slot_ref relaxed(allow_relaxed, relaxed_slot());
    REQUIRE(*durable_rate_limiter(std::move(relaxed), 1, 1s).available() == 1);
}
