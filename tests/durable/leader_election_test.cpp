#include <bide/durable/leader_election.hpp>

#include <bide/durable/locks.hpp>
#include <bide/durable/observer.hpp>
#include <bide/durable/slots/file.hpp>
#include <bide/durable/slots/memory.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <support/children.hpp>
#include <support/durable_locks.hpp>
#include <support/temp_directory.hpp>
#include <support/unhurried.hpp>

#include <unistd.h>

using namespace bide;

namespace {

durable_options named(std::string name, std::chrono::milliseconds lease = 30s) {
    durable_options o = test::unhurried();
    o.holder_id = std::move(name);
    o.lease = lease;
    o.poll_most = 20ms;
    return o;
}

bool has_waiter(const memory_slot& slot) {
    durable_mutex same(slot);
    return test::comes_to_wait(same);
}

// Takes the grant of the leader away.
void depose(const memory_slot& slot) {
    durable_mutex same(slot);
    const auto seen = same.inspect();
    for (const auto& holder : (*seen)->live.holders) { // none, if its lease has ended
        static_cast<void>(same.admin("test").force_release(holder.fence, "deposed"));
    }
}

// Waits until a stop is requested.
void wait_for_stop(const std::stop_token& stop) {
    test::eventually([&] { return stop.stop_requested(); });
}

} // namespace

TEST_CASE("leader_election: one candidate leads, and the next one when it resigns") {
    const memory_slot slot;
    leader_election a(slot, named("a"));
    leader_election b(slot, named("b"));
    REQUIRE_FALSE(*a.leader());
    REQUIRE_FALSE(a.is_leader());
    REQUIRE(a.lost().stop_requested());
    REQUIRE(a.resign());
    REQUIRE(a.campaign());
    REQUIRE(a.campaign()); // it leads already
    REQUIRE(a.is_leader());
    const std::stop_token term = a.lost();
    REQUIRE_FALSE(term.stop_requested());
    REQUIRE(b.campaign(test::within(0ns)).error() == errc::timeout);
    const auto seen = b.leader();
    REQUIRE((*seen)->name == "a");
    REQUIRE((*seen)->token == a.token());
    REQUIRE((*seen)->pid == ::getpid());
    REQUIRE_FALSE((*seen)->is_self);
    REQUIRE((*a.leader())->is_self);

    result<void, std::error_code> won;
    test::team candidate(1, [&](int) { won = b.campaign(); });
    REQUIRE(has_waiter(slot));
    const auto first = a.token();
    REQUIRE(a.resign());
    REQUIRE(term.stop_requested());
    candidate.join();
    REQUIRE(won);
    REQUIRE(b.token() > first);
    REQUIRE(a.token() == 0);
    REQUIRE(a.lost().stop_requested());
}

TEST_CASE("leader_election: a run is refused while the candidate leads, and possible afterwards") {
    leader_election a(memory_slot(), named("a"));
    REQUIRE(a.campaign());
    const auto work = [](leader_term) {};
    REQUIRE(a.run(work, {}).error() == std::errc::operation_in_progress);
    REQUIRE(a.is_leader());
    REQUIRE(a.campaign()); // it leads already
    REQUIRE(a.resign());
    REQUIRE(a.campaign());
    REQUIRE(a.resign());
    std::stop_source stop;
    int terms = 0;
    const auto once = [&](leader_term) {
        ++terms;
        stop.request_stop();
    };
    REQUIRE(a.run(once, stop.get_token()));
    REQUIRE(terms == 1);
}

TEST_CASE("leader_election: resign() and a stop end a campaign, and two at once are refused") {
    const memory_slot slot;
    leader_election a(slot, named("a"));
    leader_election b(slot, named("b"));
    REQUIRE(a.campaign());
    for (const bool by_stop : {false, true}) {
        std::stop_source stop;
        const acquire_request request = test::until_stop(stop);
        result<void, std::error_code> won;
        test::team candidate(1, [&](int) { won = b.campaign(request); });
        REQUIRE(has_waiter(slot));
        REQUIRE(b.campaign().error() == std::errc::operation_in_progress);
        REQUIRE(b.run([](leader_term) {}, {}).error() == std::errc::operation_in_progress);
        if (by_stop) {
            stop.request_stop();
        } else {
            REQUIRE(b.resign());
        }
        candidate.join();
        REQUIRE(won.error() == errc::stopped);
    }
    durable_mutex same(slot);
    REQUIRE((*same.inspect())->live.waiters.empty());
}

TEST_CASE("leader_election: a leader whose store fails knows of its loss before the next one leads",
          "[promise.durable-leader]") {
    const memory_slot slot;
    const auto store = std::make_shared<test::valve>();
    leader_election a(test::valved_slot(slot, store), named("a", 300ms));
    leader_election b(slot, named("b"));
    REQUIRE(a.campaign());
    const std::stop_token term = a.lost();
    const auto first = a.token();
    store->fails = true;
    REQUIRE(b.campaign());
    REQUIRE_FALSE(a.is_leader());
    REQUIRE(test::eventually([&] { return term.stop_requested(); }));
    REQUIRE(b.token() > first);
    store->fails = false;
    REQUIRE(a.resign().error() == durable_errc::lock_lost);
    REQUIRE(b.is_leader());
}

TEST_CASE("leader_election: observers are told of each leader, in threads and coroutines") {
    const memory_slot slot;
    scheduler workers;
    leader_election a(slot, named("a"));
    const leader_election watches(slot, named("w"));
    leader_wait none{.timeout = 1ms};
    REQUIRE(watches.wait_for_change(none).error() == errc::timeout);

    std::atomic<int> began{0};
    const auto observe = [&](std::int64_t known, std::stop_token stop) -> task<std::string> {
        ++began;
        leader_wait what{.known = known, .stop = stop};
        auto waiting = watches.async_wait_for_change(what);
        const auto seen = co_await std::move(waiting);
        co_return !seen ? seen.error().message() : *seen ? (*seen)->name : "none";
    };
    auto in_task = workers.spawn(observe(0, {}));
    std::string in_thread;
    test::team thread(1, [&](int) {
        const auto seen = watches.wait_for_change({});
        in_thread = seen && *seen ? (*seen)->name : "none";
    });
    REQUIRE(a.campaign());
    thread.join();
    REQUIRE(in_thread == "a");
    REQUIRE(std::move(in_task).join() == "a");

    auto ends = workers.spawn(observe(a.token(), {}));
    REQUIRE(a.resign());
    REQUIRE(std::move(ends).join() == "none");
    std::stop_source stop;
    auto stopped = workers.spawn(observe(0, stop.get_token()));
    auto cancelled = workers.spawn(observe(0, {}));
    REQUIRE(test::eventually([&] { return began == 4; })); // else the task never starts
    stop.request_stop();
    cancelled.cancel();
    REQUIRE(std::move(stopped).join() == make_error_code(errc::stopped).message());
    REQUIRE(std::move(cancelled).join() == make_error_code(errc::stopped).message());
    leader_wait what{.stop = stop.get_token()};
    REQUIRE(watches.wait_for_change(what).error() == errc::stopped);
    const auto asks = [&]() -> task<bool> {
        auto asking = watches.async_leader();
        const auto seen = co_await std::move(asking);
        co_return seen && !*seen;
    };
    REQUIRE(workers.spawn(asks()).join());
}

TEST_CASE("leader_election: terms of several runs follow each other, and never overlap",
          "[promise.durable-leader]") {
    const memory_slot slot;
    constexpr int candidates = 3;
    std::atomic<int> inside{0};
    std::atomic<int> terms{0};
    std::atomic<bool> wrong{false};
    std::atomic<std::int64_t> last{0};
    std::stop_source stop;
    std::vector<std::error_code> results(candidates);
    test::run_threads(candidates, [&](int i) {
        leader_election election(slot, named(std::to_string(i)));
        const auto work = [&](leader_term term) {
            wrong = wrong || inside.fetch_add(1) != 0 || term.token <= last.exchange(term.token) ||
                    election.token() != term.token;
            if (++terms == 30) {
                stop.request_stop();
                wrong = wrong || !term.stop.stop_requested();
            }
            inside.fetch_sub(1);
        };
        const auto over = election.run(work, stop.get_token());
        wrong = wrong || election.is_leader();
        results[static_cast<std::size_t>(i)] = over ? std::error_code() : over.error();
    });
    for (const std::error_code& r : results) {
        REQUIRE_FALSE(r);
    }
    REQUIRE_FALSE(wrong);
    REQUIRE(terms >= 30);
}

TEST_CASE("leader_election: a run that resigns leads until on_elected has returned") {
    const memory_slot slot;
    leader_election a(slot, named("a"));
    leader_election b(slot, named("b"));
    std::stop_source stop;
    std::atomic<bool> works{false};
    std::atomic<int> terms{0};
    result<void, std::error_code> over;
    test::team runner(1, [&](int) {
        const auto work = [&](leader_term term) {
            works = true;
            ++terms;
            wait_for_stop(term.stop);
            if (terms == 1) {
                has_waiter(slot); // the other one waits, and has time to be elected
                std::this_thread::sleep_for(50ms);
            }
            works = false;
        };
        over = a.run(work, stop.get_token());
    });
    REQUIRE(test::eventually([&] { return works.load(); }));
    REQUIRE(a.is_leader());
    REQUIRE(a.campaign().error() == std::errc::operation_in_progress);
    bool worked = true;
    test::team other(1, [&](int) {
        if (b.campaign()) {
            worked = works;
        }
    });
    REQUIRE(has_waiter(slot));
    REQUIRE(a.resign());
    other.join();
    REQUIRE_FALSE(worked);
    REQUIRE(has_waiter(slot)); // the run campaigns again
    REQUIRE(a.resign());       // which ends one campaign of the run, and not the run
    REQUIRE(b.resign());
    REQUIRE(test::eventually([&] { return terms == 2; }));
    stop.request_stop();
    runner.join();
    REQUIRE(over);
    REQUIRE(terms == 2);
    REQUIRE_FALSE(*a.leader());
}

TEST_CASE("leader_election: a run stops the term of a lost lock, and leads again") {
    const memory_slot slot;
    leader_election a(slot, named("a", 300ms));
    std::stop_source stop;
    std::vector<std::int64_t> tokens;
    bool leads = true;
    result<void, std::error_code> over;
    test::team runner(1, [&](int) {
        const auto work = [&](leader_term term) {
            tokens.push_back(term.token);
            if (tokens.size() == 1) {
                depose(slot);
                wait_for_stop(term.stop);
                leads = a.is_leader();
            } else {
                stop.request_stop();
            }
        };
        over = a.run(work, stop.get_token());
    });
    runner.join();
    REQUIRE(over);
    REQUIRE_FALSE(leads);
    REQUIRE(tokens.size() == 2);
    REQUIRE(tokens.at(1) > tokens.at(0));
}

TEST_CASE("leader_election: a run stops the term of a lost lock although the store fails") {
    const auto store = std::make_shared<test::valve>();
    durable_options o = named("a", 300ms);
    o.retry_time = 50ms;
    leader_election a(test::valved_slot(memory_slot(), store), o);
    std::stop_source stop;
    bool leads = true;
    const auto work = [&](leader_term term) {
        store->fails = true;
        wait_for_stop(term.stop);
        leads = a.is_leader();
        stop.request_stop();
    };
    result<void, std::error_code> over;
    test::run_threads(1, [&](int) { over = a.run(work, stop.get_token()); });
    REQUIRE(over);
    REQUIRE_FALSE(leads);
}

TEST_CASE(
    "leader_election: a run goes on after a store has failed, and ends after a lasting error") {
    struct : durable_observer {
        void store_failed(const std::error_code& error) noexcept override {
            wrong = wrong || error != std::errc::io_error;
            store->fails = ++errors < 2;
        }
        std::shared_ptr<test::valve> store = std::make_shared<test::valve>();
        std::atomic<int> errors{0};
        std::atomic<bool> wrong{false};
    } failures;
    memory_slot slot;
    failures.store->fails = true;
    durable_options o = named("a");
    o.retry_time = 50ms;
    o.observer = std::shared_ptr<durable_observer>(std::shared_ptr<void>(), &failures);
    leader_election a(test::valved_slot(slot, failures.store), o);
    std::stop_source stop;
    const auto work = [&](leader_term) { stop.request_stop(); };
    result<void, std::error_code> over;
    test::run_threads(1, [&](int) { over = a.run(work, stop.get_token()); });
    REQUIRE(over);
    REQUIRE(failures.errors == 2);
    REQUIRE_FALSE(failures.wrong);

    const auto seen = slot.load();
    REQUIRE(slot.compare_exchange(seen->version, "no record").status == cas_status::stored);
    REQUIRE(a.run(work, {}).error() == durable_errc::corrupt_record);
    REQUIRE(a.run({}, {}).error() == durable_errc::invalid_argument);
}

TEST_CASE("leader_election: an exception of on_elected ends the run and the term") {
    const memory_slot slot;
    leader_election a(slot, named("a"));
    const auto work = [](leader_term) { throw std::runtime_error("work"); };
    REQUIRE_THROWS_AS(a.run(work, {}), std::runtime_error);
    REQUIRE_FALSE(a.is_leader());
    REQUIRE_FALSE(*a.leader());
    REQUIRE(a.campaign());
}

TEST_CASE("leader_election: coroutines campaign, resign and run, and a cancellation ends a run") {
    const memory_slot slot;
    scheduler workers;
    leader_election a(slot, named("a"));
    const auto once = [&]() -> task<bool> {
        const auto won = co_await a.async_campaign();
        const bool led = won && a.is_leader();
        const auto resigned = co_await a.async_resign();
        co_return led&& resigned && !a.is_leader();
    };
    REQUIRE(workers.spawn(once()).join());

    std::stop_source stop;
    std::atomic<int> terms{0};
    std::atomic<bool> wrong{false};
    const auto three_terms = [&](leader_term term) -> task<> {
        wrong = wrong || !a.is_leader() || a.token() != term.token;
        co_await this_task::yield();
        if (++terms == 3) {
            stop.request_stop();
            wrong = wrong || !term.stop.stop_requested();
        }
    };
    REQUIRE(workers.spawn(a.async_run(three_terms, stop.get_token())).join());
    REQUIRE(terms == 3);
    REQUIRE_FALSE(wrong);

    std::atomic<bool> works{false};
    const auto until_stopped = [&](leader_term term) -> task<> {
        works = true;
        wait_for_stop(term.stop);
        co_return;
    };
    auto cancelled = workers.spawn(a.async_run(until_stopped, {}));
    REQUIRE(test::eventually([&] { return works.load(); }));
    REQUIRE(a.is_leader());
    cancelled.cancel();
    REQUIRE(std::move(cancelled).join().error() == errc::stopped);
    REQUIRE_FALSE(a.is_leader());
    REQUIRE(test::eventually([&] { return !*a.leader(); }));
    REQUIRE(workers.spawn(a.async_run({}, {})).join().error() == durable_errc::invalid_argument);
}

TEST_CASE("leader_election: after a crash of the leader another process leads") {
    const test::temp_directory dir("leader");
    test::shared_with_children<std::atomic<std::int64_t>> token;
    test::children crashes(1, [&](int, auto) -> std::string {
        leader_election mine(file_slot(dir / "leader"), named("child"));
        if (!mine.campaign()) {
            return "not elected";
        }
        *token = mine.token();
        ::kill(::getpid(), SIGKILL);
        return {};
    });
    REQUIRE(crashes.reports()[0].find("! the process ended with status 9") != std::string::npos);
    leader_election a(file_slot(dir / "leader"), named("parent"));
    REQUIRE(a.campaign(test::within(test::patience)));
    REQUIRE(a.token() > *token);
}

TEST_CASE("leader_election: a child of fork() leads nothing, and leaves the term to its parent") {
    const test::temp_directory dir("leader");
    leader_election a(file_slot(dir / "leader"), named("parent"));
    REQUIRE(a.campaign());
    const int said = test::in_child([&] {
        const bool is_good = !a.is_leader() && a.token() == 0 && a.lost().stop_requested() &&
                             a.resign() && a.campaign(test::within(0ns)).error() == errc::timeout;
        const auto seen = a.leader();
        return is_good && seen && *seen && !(*seen)->is_self ? 0 : 1;
    });
    REQUIRE(said == 0);
    REQUIRE(a.is_leader());
    REQUIRE(a.resign());
}
