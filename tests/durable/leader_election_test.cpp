#include <bide/durable/leader_election.hpp>

#include <bide/durable/locks.hpp>
#include <bide/durable/slots/file.hpp>
#include <bide/durable/slots/memory.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <support/children.hpp>
#include <support/durable_locks.hpp>
#include <support/temp_directory.hpp>
#include <support/unhurried.hpp>

#include <sys/wait.h>
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

// A candidate that runs on a thread of its own. Its work lasts until the end of the term.
struct running {
    explicit running(leader_election& of)
        : thread(1, [this, &of](int) {
              const auto work = [this](leader_term term) {
                  wait_for_stop(term.stop);
                  ++terms;
              };
              over = of.run(work, stop.get_token());
          }) {}
    result<void, std::error_code> end() {
        stop.request_stop();
        thread.join();
        return over;
    }

    std::stop_source stop;
    std::atomic<int> terms{0}; // that have ended
    result<void, std::error_code> over;
    test::team thread;
};

bool comes_to_lead(const leader_election& e) {
    return test::eventually([&] { return e.is_leader(); });
}

} // namespace

TEST_CASE("leader_election: one candidate leads, and the next one when it resigns") {
    const memory_slot slot;
    leader_election a(slot, named("a"));
    leader_election b(slot, named("b"));
    REQUIRE_FALSE(*a.leader());
    REQUIRE_FALSE(a.is_leader());
    a.resign(); // nothing
    running first(a);
    REQUIRE(comes_to_lead(a));
    const auto seen = b.leader();
    REQUIRE((*seen)->name == "a");
    REQUIRE((*seen)->token == a.token());
    REQUIRE((*seen)->pid == ::getpid());
    REQUIRE_FALSE((*seen)->is_self);
    REQUIRE((*a.leader())->is_self);

    running second(b);
    REQUIRE(has_waiter(slot));
    const auto token = a.token();
    a.resign();
    REQUIRE(comes_to_lead(b));
    REQUIRE(first.terms == 1);
    REQUIRE(b.token() > token);
    REQUIRE(a.token() == 0);
    REQUIRE(first.end());
    REQUIRE(second.end());
    REQUIRE(b.token() == 0);
    REQUIRE_FALSE(*a.leader());
}

TEST_CASE("leader_election: a run is refused while another one is under way, and possible later") {
    leader_election a(memory_slot(), named("a"));
    running first(a);
    REQUIRE(comes_to_lead(a));
    const auto work = [](leader_term) {};
    REQUIRE(a.run(work, {}).error() == std::errc::operation_in_progress);
    REQUIRE(a.is_leader());
    REQUIRE(first.end());
    std::stop_source stop;
    int terms = 0;
    const auto once = [&](leader_term) {
        ++terms;
        stop.request_stop();
    };
    REQUIRE(a.run(once, stop.get_token()));
    REQUIRE(terms == 1);
}

TEST_CASE("leader_election: a stop ends a campaign, which leaves no entry") {
    const memory_slot slot;
    leader_election a(slot, named("a"));
    leader_election b(slot, named("b"));
    running first(a);
    REQUIRE(comes_to_lead(a));
    running second(b);
    REQUIRE(has_waiter(slot));
    REQUIRE(b.run([](leader_term) {}, {}).error() == std::errc::operation_in_progress);
    REQUIRE(second.end());
    REQUIRE(second.terms == 0);
    durable_mutex same(slot);
    REQUIRE((*same.inspect())->live.waiters.empty());
    REQUIRE(first.end());
}

TEST_CASE("leader_election: a leader whose store fails knows of its loss before the next one leads",
          "[promise.durable-leader]") {
    const memory_slot slot;
    const auto store = std::make_shared<test::valve>();
    leader_election a(test::valved_slot(slot, store), named("a", 300ms));
    leader_election b(slot, named("b"));
    running first(a);
    REQUIRE(comes_to_lead(a));
    const auto token = a.token();
    store->fails = true;
    std::stop_source stop;
    bool a_leads = true;
    std::int64_t next = 0;
    const auto work = [&](leader_term term) {
        a_leads = a.is_leader();
        next = term.token;
        stop.request_stop();
    };
    REQUIRE(b.run(work, stop.get_token()));
    REQUIRE_FALSE(a_leads);
    REQUIRE(next > token);
    REQUIRE(test::eventually([&] { return first.terms == 1; }));
    store->fails = false;
    REQUIRE(first.end());
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
    running leader(a);
    thread.join();
    REQUIRE(in_thread == "a");
    REQUIRE(std::move(in_task).join() == "a");

    REQUIRE(comes_to_lead(a));
    auto ends = workers.spawn(observe(a.token(), {}));
    REQUIRE(leader.end());
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
    std::atomic<bool> worked{true};
    std::stop_source end_of_b;
    test::team other(1, [&](int) {
        const auto work = [&](leader_term term) {
            worked = works.load();
            wait_for_stop(term.stop);
        };
        static_cast<void>(b.run(work, end_of_b.get_token()));
    });
    REQUIRE(has_waiter(slot));
    a.resign();
    REQUIRE(comes_to_lead(b));
    REQUIRE(has_waiter(slot)); // the run campaigns again
    a.resign();                // which ends one campaign of the run, and not the run
    end_of_b.request_stop();
    other.join();
    REQUIRE_FALSE(worked);
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
    running again(a);
    REQUIRE(comes_to_lead(a));
    REQUIRE(again.end());
}

TEST_CASE("leader_election: coroutines run, and a cancellation ends a run") {
    const memory_slot slot;
    scheduler workers;
    leader_election a(slot, named("a"));

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
        const auto work = [&](leader_term term) {
            *token = term.token;
            ::kill(::getpid(), SIGKILL);
        };
        static_cast<void>(mine.run(work, {}));
        return "not killed";
    });
    REQUIRE(crashes.reports()[0].find("! the process ended with status 9") != std::string::npos);
    leader_election a(file_slot(dir / "leader"), named("parent"));
    running next(a);
    REQUIRE(comes_to_lead(a));
    REQUIRE(a.token() > *token);
    REQUIRE(next.end());
}

TEST_CASE("leader_election: a child of fork() leads nothing, and leaves the term to its parent") {
    const test::temp_directory dir("leader");
    leader_election a(file_slot(dir / "leader"), named("parent"));
    running first(a);
    REQUIRE(comes_to_lead(a));
    const int said = test::in_child([&] {
        a.resign(); // nothing
        std::stop_source stop;
        stop.request_stop();
        const bool runs = a.run([](leader_term) {}, stop.get_token()).has_value();
        const auto seen = a.leader();
        return runs && !a.is_leader() && a.token() == 0 && seen && *seen && !(*seen)->is_self ? 0
                                                                                              : 1;
    });
    REQUIRE(said == 0);
    REQUIRE(a.is_leader());
    REQUIRE(first.terms == 0);
    REQUIRE(first.end());
}

TEST_CASE("leader_election: a child of fork() that returns from on_elected ends its run") {
    const test::temp_directory dir("leader");
    leader_election a(file_slot(dir / "leader"), named("parent"));
    std::stop_source stop;
    pid_t child = -1;
    bool leads = false;
    const auto work = [&](leader_term term) {
        child = ::fork();
        if (child > 0) {
            int status = -1;
            leads = ::waitpid(child, &status, 0) == child && status == 0 &&
                    a.token() == term.token && *a.leader() && (*a.leader())->is_self;
            stop.request_stop();
        }
    };
    const auto over = a.run(work, stop.get_token());
    if (child == 0) {
        ::_exit(!over && over.error() == errc::stopped && !a.is_leader() ? 0 : 1);
    }
    REQUIRE(over);
    REQUIRE(leads);
}
