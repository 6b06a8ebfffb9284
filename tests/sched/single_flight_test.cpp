#include <bide/sched/single_flight.hpp>

#include <support/homes.hpp>
#include <support/sched.hpp>

using namespace bide;
using test::workers;
namespace this_task = bide::this_task;

namespace {

using flights = single_flight<std::string, int>;

// The callers of a flight share one exception. Its last owner may be another thread, and ThreadSanitizer
// does not see the reference count of libstdc++. So these tests look at the type alone.
struct failure {};

template <class F> std::string end_of(F f) {
    try {
        f();
    } catch (const failure&) {
        return "failure";
    } catch (const stopped_error&) {
        return "stopped";
    }
    return "nothing";
}

// The works of a test, which run until they may end.
struct works {
    std::atomic<int> begun{0};
    std::atomic<int> stopped{0};
    event may_end;

    task<int> load(int value) {
        ++begun;
        const auto over = co_await may_end.async_wait().as_result();
        if (!over) {
            ++stopped;
            throw stopped_error(make_error_code(errc::stopped));
        }
        co_return value;
    }
    task<int> fails() {
        ++begun;
        co_await may_end.async_wait();
        throw failure();
    }
    // After its cancellation it goes on until it may end.
    task<int> lingers(int value) {
        ++begun;
        {
            const this_task::shield held;
            co_await may_end.async_wait();
        }
        stopped += this_task::is_cancelled() ? 1 : 0;
        co_return value;
    }
    bool has_begun(int n) {
        return test::eventually([&] { return begun == n; });
    }
};

// Counts the callers that have begun.
task<int> asks(flights& of, std::string key, std::atomic<int>& callers, task<int> work) {
    ++callers;
    co_return co_await of.async_run(std::move(key), std::move(work));
}

test::held asks_apart(flights& of, task<int> work) {
    co_await of.async_run("key", std::move(work));
}

// Has asked when it returns.
test::detached asks_at_once(single_flight<int, int>& of, int key, task<int> work,
                            std::atomic<int>& sum, std::atomic<int>& answered) {
    const int got = co_await of.async_run(key, std::move(work));
    sum += got;
    ++answered;
}

// A test on two workers.
struct on_two {
    scheduler s{workers(2)};
    works all;
    std::atomic<int> callers{0};
    flights of{s};

    auto ask(const char* key, task<int> work) {
        return s.spawn(asks(of, key, callers, std::move(work)));
    }
    bool have_asked(int n) {
        return test::eventually([&] { return callers == n; }) && test::fall_asleep(s);
    }
};

} // namespace

TEST_CASE("single_flight: callers of a key share one run, and later callers begin another") {
    test::each_home home;
    works all;
    const auto body = [&]() -> task<int> {
        single_flight<int, int> of(*home);
        std::atomic<int> sum{0};
        for (int round = 1; round <= 2; ++round) {
            all.may_end.reset();
            std::atomic<int> answered{0};
            for (int i = 0; i < 10; ++i) {
                asks_at_once(of, i % 2, all.load(round * 100 + i), sum, answered);
            }
            while (all.begun < 2 * round) {
                co_await this_task::yield();
            }
            all.may_end.set();
            while (answered < 10) {
                co_await this_task::yield();
            }
        }
        co_return sum;
    };
    const int sum = home.run(body());
    CHECK(all.begun == 4);
    // Of 10 callers, 5 have the value of some caller with the same key.
    CHECK(sum % 5 == 0);
    CHECK(sum >= 10 * 100 + 10 * 200 + 2 * 5);
}

TEST_CASE_METHOD(on_two, "single_flight: an error is shared by its callers, and forgotten") {
    auto one = ask("a", all.fails());
    auto two = ask("a", all.fails());
    REQUIRE(have_asked(2));
    all.may_end.set();
    CHECK(end_of([&] { std::move(one).join(); }) == "failure");
    CHECK(end_of([&] { std::move(two).join(); }) == "failure");
    CHECK(all.begun == 1);
    CHECK(ask("a", all.load(3)).join() == 3);
    CHECK(all.begun == 2);
    const auto refuses = []() -> task<int> { throw failure(); };
    CHECK(end_of([&] { sync_wait(of.async_run("a", refuses)); }) == "failure");
}

TEST_CASE_METHOD(on_two, "single_flight: a caller that is cancelled cancels no other caller") {
    auto first = ask("a", all.load(1));
    REQUIRE(all.has_begun(1));
    auto second = ask("a", all.load(2));
    auto third = ask("a", all.load(3));
    REQUIRE(have_asked(3));
    CHECK(first.cancel());
    CHECK(end_of([&] { std::move(first).join(); }) == "stopped");
    CHECK(third.cancel());
    CHECK(end_of([&] { std::move(third).join(); }) == "stopped");
    CHECK(all.stopped == 0);
    all.may_end.set();
    CHECK(std::move(second).join() == 1);
    CHECK(all.begun == 1);
}

TEST_CASE_METHOD(on_two, "single_flight: the last caller that leaves cancels the work") {
    auto first = ask("a", all.load(1));
    auto second = ask("a", all.load(2));
    REQUIRE(have_asked(2));
    CHECK(first.cancel());
    CHECK(second.cancel());
    CHECK(test::eventually([&] { return all.stopped == 1; }));
    {
        test::held destroyed = asks_apart(of, all.load(3));
        destroyed.start();
        REQUIRE(all.has_begun(2));
    }
    CHECK(test::eventually([&] { return all.stopped == 2; }));
    all.may_end.set();
    CHECK(ask("a", all.load(4)).join() == 4);
}

TEST_CASE_METHOD(
    on_two,
    "single_flight: while a cancelled work goes on by its shield, a later caller begins another") {
    event second_may_end;
    auto first = ask("a", all.lingers(1));
    REQUIRE(all.has_begun(1));
    CHECK(first.cancel());
    CHECK(end_of([&] { std::move(first).join(); }) == "stopped");
    const auto loads = [&]() -> task<int> {
        ++all.begun;
        co_await second_may_end.async_wait();
        co_return 2;
    };
    auto second = ask("a", loads());
    REQUIRE(all.has_begun(2));
    all.may_end.set();
    CHECK(test::eventually([&] { return all.stopped == 1; }));
    CHECK_FALSE(second.done());
    second_may_end.set();
    CHECK(std::move(second).join() == 2);
}

TEST_CASE_METHOD(on_two, "single_flight: after forget, a later caller begins another flight") {
    auto first = ask("a", all.load(1));
    REQUIRE(all.has_begun(1));
    of.forget("a");
    of.forget("b");
    auto second = ask("a", all.load(2));
    REQUIRE(all.has_begun(2));
    all.may_end.set();
    CHECK(std::move(first).join() == 1);
    CHECK(std::move(second).join() == 2);
}

TEST_CASE("single_flight: its destructor waits for a work that was cancelled") {
    scheduler s(workers(2));
    works all;
    std::atomic<int> callers{0};
    std::jthread opens;
    {
        flights of(s);
        auto first = s.spawn(asks(of, "a", callers, all.lingers(1)));
        REQUIRE(all.has_begun(1));
        CHECK(first.cancel());
        CHECK(end_of([&] { std::move(first).join(); }) == "stopped");
        opens = std::jthread([&] { all.may_end.set(); });
    }
    CHECK(all.stopped == 1);
}

TEST_CASE("single_flight: a shutdown of the runner stops the callers, also later ones") {
    scheduler s(workers(2));
    works all;
    flights of(s);
    std::string said;
    std::jthread outside(
        [&] { said = end_of([&] { sync_wait(of.async_run("a", all.load(1))); }); });
    REQUIRE(all.has_begun(1));
    s.shutdown();
    outside.join();
    CHECK(said == "stopped");
    CHECK(all.stopped == 1);
    CHECK(end_of([&] { sync_wait(of.async_run("a", all.load(1))); }) == "stopped");
    CHECK(all.begun == 1);
}

TEST_CASE("single_flight: a work without value, and one whose value throws when it is copied") {
    scheduler s(workers(1));
    int runs = 0;
    single_flight<int> plain(s);
    sync_wait(plain.async_run(1, [&runs, held = std::make_unique<int>(1)]() -> task<> {
        runs += *held;
        co_return;
    }));
    CHECK(runs == 1);

    struct fragile {
        fragile() = default;
        fragile(fragile&&) = default;
        fragile(const fragile&) { throw failure(); }
        fragile& operator=(fragile&&) = default;
    };
    single_flight<int, fragile> of(s);
    const auto makes = []() -> task<fragile> { co_return fragile(); };
    for (int i = 0; i < 2; ++i) {
        CHECK(end_of([&] { sync_wait(of.async_run(1, makes)); }) == "failure");
    }
}

TEST_CASE("single_flight: threads and tasks ask, leave and forget at once, and no value is lost",
          "[threads]") {
    constexpr int keys = 3;
    constexpr int asked = 200;
    scheduler s(workers(2));
    test::tally t;
    std::atomic<int> begun{0};
    std::atomic<int> got{0};
    std::atomic<int> left{0};
    std::atomic<int> wrong{0};
    {
        single_flight<int, test::counted> of(s);
        const auto work = [&](int key) -> task<test::counted> {
            ++begun;
            if (begun % 3 != 0) {
                co_await this_task::yield();
            }
            co_return test::counted(t, key);
        };
        const auto note = [&](int key, const test::counted& value) {
            ++got;
            wrong += value.number() == key ? 0 : 1;
        };
        test::run_threads(4, [&](int me) {
            for (int i = 0; i < asked; ++i) {
                const int key = (me + i) % keys;
                if (me % 2 == 0) {
                    note(key, sync_wait(of.async_run(key, work(key))));
                } else {
                    const auto asks = [&]() -> task<> {
                        note(key, co_await of.async_run(key, work(key)));
                    };
                    auto h = s.spawn(asks);
                    if (i % 4 == 0) {
                        h.cancel();
                    }
                    left += end_of([&] { std::move(h).join(); }) == "stopped" ? 1 : 0;
                }
                if (i % 10 == 0) {
                    of.forget(key);
                }
            }
        });
    }
    CHECK(got + left == 4 * asked);
    CHECK(wrong == 0);
    CHECK(begun > 0);
    CHECK(t.alive() == 0);
}
