#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>
#include <support/catch.hpp>
#include <support/death.hpp>
#include <support/gate.hpp>
#include <support/scheduling.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

using bide::scheduler;
using bide::scheduler_options;
using bide::task;

// How an exception that is not handled ends the program. The child processes start schedulers.

#if BIDE_TESTS_CAN_DIE_AT_WORK

namespace {

struct own_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

task<> throws() {
    throw own_error("from a task");
    co_return;
}
task<> lets_through() { co_await throws(); }
task<> throws_number() {
    throw 42;
    co_return;
}

// Ends with a detached task that throws.
void fail_detached(scheduler_options wanted) {
    scheduler s(std::move(wanted));
    s.spawn(lets_through()).detach();
}

} // namespace

TEST_CASE("scheduler: an exception that nothing handles ends the program with its type and text",
          "[promise.unhandled-exception]") {
    const test::watchdog guard;
    const auto says_both = [](const std::string& said, const char* text) {
        CAPTURE(said);
        return test::contains(said, "own_error") && test::contains(said, text) &&
               said.find('\n') == said.size() - 1;
    };
    CHECK(says_both(test::dies([] { fail_detached(test::with(1, false)); }), "from a task"));
    CHECK(says_both(test::dies([] {
                        scheduler s(test::with(1, false));
                        s.spawn([] { throw own_error("from a function"); }).detach();
                    }),
                    "from a function"));
    CHECK(says_both(test::dies([] {
                        scheduler s(test::with(1, false));
                        s.spawn_blocking([] { throw own_error("from what blocks"); }).detach();
                    }),
                    "from what blocks"));
    CHECK(says_both(test::dies([] {
                        scheduler s(test::with(1, false));
                        auto h = s.spawn([] { throw own_error("asked for by nothing"); });
                        s.shutdown();
                    }),
                    "asked for by nothing"));
    const std::string number = test::dies([] {
        scheduler s(test::with(1, false));
        s.spawn(throws_number()).detach();
    });
    CHECK(test::contains(number, "threw int\n"));
}

TEST_CASE("scheduler: an exception of a callback ends the program and names the callback") {
    const test::watchdog guard;
    const std::string unhandled = test::dies([] {
        scheduler_options wanted = test::with(1, false);
        wanted.on_unhandled = [](const std::exception_ptr&) { throw own_error("itself"); };
        fail_detached(std::move(wanted));
    });
    CAPTURE(unhandled);
    CHECK(test::contains(unhandled, "on_unhandled threw "));
    CHECK(test::contains(unhandled, "own_error: itself\n"));
    const std::string started = test::dies([] {
        scheduler_options wanted = test::with(1, false);
        wanted.on_worker_start = [](unsigned) { throw own_error("at first"); };
        scheduler s(std::move(wanted));
    });
    CAPTURE(started);
    CHECK(test::contains(started, "on_worker_start threw "));
    CHECK(test::contains(started, "own_error: at first\n"));
    const std::string stopped = test::dies([] {
        scheduler_options wanted = test::with(1, false);
        wanted.on_worker_stop = [](unsigned) { throw own_error("at last"); };
        scheduler s(std::move(wanted));
    });
    CAPTURE(stopped);
    CHECK(test::contains(stopped, "on_worker_stop threw "));
    CHECK(test::contains(stopped, "own_error: at last\n"));
}

TEST_CASE("scheduler: a terminate handler finds the exception that ended the program",
          "[promise.unhandled-exception]") {
    const test::watchdog guard;
    const auto report = [] {
        try {
            if (const std::exception_ptr error = std::current_exception()) {
                std::rethrow_exception(error);
            }
            std::fputs("handler: none\n", stderr);
        } catch (const own_error& e) {
            std::fprintf(stderr, "handler: %s\n", e.what());
        } catch (...) {
            std::fputs("handler: another\n", stderr);
        }
        std::abort();
    };
    CHECK(test::contains(test::dies([&] {
                             std::set_terminate(report);
                             fail_detached(test::with(1, false));
                         }),
                         "handler: from a task\n"));
    CHECK(test::contains(test::dies([&] {
                             std::set_terminate(report);
                             scheduler_options wanted = test::with(1, false);
                             wanted.on_unhandled = [](std::exception_ptr e) {
                                 std::rethrow_exception(std::move(e));
                             };
                             fail_detached(std::move(wanted));
                         }),
                         "handler: from a task\n"));
    CHECK(test::contains(test::dies([&] {
                             std::set_terminate(report);
                             scheduler_options wanted = test::with(1, false);
                             wanted.on_worker_start = [](unsigned) { throw own_error("start"); };
                             scheduler s(std::move(wanted));
                         }),
                         "handler: start\n"));
}

#endif
