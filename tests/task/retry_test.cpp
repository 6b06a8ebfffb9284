#include <bide/task/retry.hpp>

#include <bide/sync/semaphore.hpp>
#include <bide/task/with_deadline.hpp>
#include <support/rounds.hpp>
#include <support/simulated.hpp>
#include <support/tasks.hpp>

using bide::errc;
using bide::retry;
using bide::retry_policy;
using bide::task;
using test::runner;
using test::what_of;
namespace this_task = bide::this_task;

namespace {

retry_policy quick(unsigned attempts) {
    retry_policy p;
    p.attempts = attempts;
    p.base = 1us;
    p.cap = 10us;
    return p;
}

// The simulated times of the attempts, each of which fails.
using times = std::vector<std::chrono::nanoseconds>;
auto failing_at(times& attempts) {
    return [&attempts]() -> task<> {
        attempts.push_back(bide::test::now());
        throw std::runtime_error("fails");
        co_return;
    };
}
retry_policy hourly(unsigned attempts) {
    retry_policy p;
    p.attempts = attempts;
    p.base = 1h;
    p.cap = 3h;
    p.jitter = false;
    return p;
}

} // namespace

TEST_CASE("retry: makes a new task after each failure, until one succeeds") {
    for (const bool pooled : {false, true}) {
        runner run(pooled);
        int made = 0;
        const auto third = [&made]() -> task<int> {
            const int mine = ++made;
            co_await this_task::yield();
            if (mine < 3) {
                throw std::runtime_error("too early");
            }
            co_return 10 * mine;
        };
        CHECK(run(retry(quick(5), third)) == 30);
        CHECK(made == 3);
        made = 0;
        const auto nothing = [&made]() -> task<> {
            if (++made < 4) {
                throw std::runtime_error("too early");
            }
            co_return;
        };
        run(retry(quick(4), nothing));
        CHECK(made == 4);
        made = 0;
        const auto error = [&made]() -> task<bide::result<int>> {
            if (++made < 3) {
                co_return bide::unexpected{errc::closed};
            }
            co_return made;
        };
        CHECK(run(retry(quick(5), error)).value() == 3);
    }
}

TEST_CASE("retry: the outcome of the last attempt is the outcome") {
    test::simulated run;
    int made = 0;
    const auto fails = [&made]() -> task<int> {
        const std::string what = std::to_string(++made);
        throw std::runtime_error(what);
        co_return 0;
    };
    CHECK(what_of([&] { run.run_until(retry(quick(4), fails)); }) == "4");
    CHECK(made == 4);
    made = 0;
    CHECK(what_of([&] { run.run_until(retry(quick(1), fails)); }) == "1");
    const auto error = [&made]() -> task<bide::result<int>> {
        ++made;
        co_return bide::unexpected{errc::closed};
    };
    made = 0;
    CHECK(run.run_until(retry(quick(3), error)).error() == errc::closed);
    CHECK(made == 3);
}

TEST_CASE("retry: a failure that the predicate refuses is the outcome") {
    test::simulated run;
    int made = 0;
    const auto fails = [&made]() -> task<int> {
        if (++made == 2) {
            throw std::logic_error("permanent");
        }
        throw std::runtime_error("passing");
        co_return 0;
    };
    const auto passing = [](const std::exception_ptr& error) {
        try {
            std::rethrow_exception(error);
        } catch (const std::runtime_error&) {
            return true;
        } catch (...) {
            return false;
        }
    };
    CHECK(what_of([&] { run.run_until(retry(quick(9), fails, passing)); }) == "permanent");
    CHECK(made == 2);
    made = 0;
    const auto error = [&made]() -> task<bide::result<int>> {
        co_return bide::unexpected{++made == 3 ? errc::closed : errc::timeout};
    };
    const auto timeouts = [](errc e) { return e == errc::timeout; };
    CHECK(run.run_until(retry(quick(9), error, timeouts)).error() == errc::closed);
    CHECK(made == 3);
}

TEST_CASE("retry: refuses a policy without attempts or with negative times, in the call",
          "[promise.misuse-refused]") {
    const auto nothing = []() -> task<> { co_return; };
    for (int which = 0; which < 3; ++which) {
        retry_policy p;
        p.attempts = which == 0 ? 0 : 1;
        p.base = which == 1 ? -1ns : 1ns;
        p.cap = which == 2 ? -1ns : 1ns;
        CHECK_THROWS_AS(static_cast<void>(retry(p, nothing)), std::invalid_argument);
    }
}

TEST_CASE("retry: the waits double up to the cap, and jitter is repeated by its seed",
          "[promise.retry-limits]") {
    retry_policy p;
    p.base = 3ns;
    p.cap = 20ns;
    p.jitter = false;
    bide::detail::retry_waits plain(p);
    for (const auto expected : {3ns, 6ns, 12ns, 20ns, 20ns}) {
        CHECK(plain.next() == expected);
    }
    p.base = p.cap = std::chrono::nanoseconds::max();
    bide::detail::retry_waits longest(p);
    CHECK(longest.next() == p.cap);
    CHECK(longest.next() > 100 * 365 * 24h);
    p.base = p.cap = 7ns;
    p.jitter = true;
    p.seed = 42;
    bide::detail::retry_waits one(p);
    bide::detail::retry_waits same(p);
    std::vector<int> counts(8);
    for (int i = 0; i < 8000; ++i) {
        const auto wait = one.next();
        REQUIRE(wait == same.next());
        REQUIRE((wait >= 0ns && wait <= 7ns));
        ++counts[static_cast<std::size_t>(wait.count())];
    }
    for (const int n : counts) {
        CHECK((n > 800 && n < 1200)); // with this seed, always the same
    }
}

TEST_CASE("retry: attempts come when the waits between them are over", "[promise.retry-limits]") {
    test::simulated run;
    times made;
    CHECK(what_of([&] { run.run_until(retry(hourly(5), failing_at(made))); }) == "fails");
    CHECK(made == times{0h, 1h, 3h, 6h, 9h});
}

TEST_CASE("retry: a cancellation stops the wait between attempts, and there is no other attempt",
          "[promise.retry-limits]") {
    test::simulated run;
    times made;
    auto h = run.spawn(retry(hourly(1000), failing_at(made)));
    run.run_for(2h);
    h.cancel();
    CHECK(test::ended_by_stop(std::move(h)));
    CHECK(made == times{0h, 1h});
    CHECK(run.now() == 2h);
}

TEST_CASE("retry: gives up at once if the deadline comes before the next attempt",
          "[promise.retry-limits]") {
    test::simulated run;
    times made;
    const auto limited = [&] { return retry(hourly(1000), failing_at(made)); };
    CHECK(what_of([&] { run.run_until(bide::with_timeout(limited, 150min)).value(); }) == "fails");
    CHECK(made == times{0h, 1h});
    CHECK(run.now() == 1h);

    int errors = 0;
    const auto errs = [&errors]() -> task<bide::result<int>> {
        ++errors;
        co_return bide::unexpected{errc::closed};
    };
    const auto limited_errors = [&] { return retry(hourly(1000), errs); };
    const auto got = run.run_until(bide::with_timeout(limited_errors, 30min));
    REQUIRE_FALSE(got);
    CHECK(got.error() == errc::closed);
    CHECK(errors == 1);
    CHECK(run.now() == 1h);
}

TEST_CASE("retry: of a cancelled task, the outcome of the last attempt is the outcome",
          "[promise.retry-limits]") {
    enum class way { stopped, throws, errs };
    const way ends = GENERATE(way::stopped, way::throws, way::errs);
    test::simulated run;
    int made = 0;
    const auto attempt = [&]() -> task<bide::result<int>> {
        ++made;
        bide::semaphore none(0);
        const auto permit = co_await none.async_acquire().as_result();
        if (ends == way::stopped) {
            throw bide::stopped_error();
        }
        if (ends == way::throws) {
            throw std::runtime_error("its own way");
        }
        co_return bide::unexpected{errc::closed};
    };
    auto h = run.spawn(retry(quick(100), attempt));
    run.run_ready();
    CHECK(made == 1);
    h.cancel();
    errc got{};
    const std::string how = what_of([&] { got = std::move(h).join().error(); });
    CHECK(how == (ends == way::stopped  ? "stopped"
                  : ends == way::throws ? "its own way"
                                        : "nothing"));
    CHECK((ends != way::errs || got == errc::closed));
    CHECK(made == 1);
}
