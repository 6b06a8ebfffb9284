#include <support/sched.hpp>

using namespace bide;

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

// Writes what it finds to stderr, as the terminate handler of a program.
[[noreturn]] void report() {
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
}

void throws_in_unhandled(scheduler_options& o) {
    o.on_unhandled = [](const std::exception_ptr&) { throw own_error("itself"); };
}
void throws_in_start(scheduler_options& o) {
    o.on_worker_start = [](unsigned) { throw own_error("at first"); };
}
void throws_in_stop(scheduler_options& o) {
    o.on_worker_stop = [](unsigned) { throw own_error("at last"); };
}
void rethrows(scheduler_options& o) {
    o.on_unhandled = [](std::exception_ptr e) { std::rethrow_exception(std::move(e)); };
}

// What the program says that ends with a detached task that throws.
std::string dies_detached(void (*change)(scheduler_options&), std::terminate_handler by = nullptr) {
    return test::dies([=] {
        if (by != nullptr) {
            std::set_terminate(by);
        }
        scheduler_options wanted = test::with(1, false);
        change(wanted);
        scheduler s(std::move(wanted));
        s.spawn(lets_through()).detach();
    });
}

} // namespace

TEST_CASE("scheduler: an exception that nothing handles ends the program with its type and text",
          "[promise.unhandled-exception]") {
    const auto dies_with = [](const char* text, void (*fail)(scheduler&)) {
        const std::string said = test::dies([fail] {
            scheduler s(test::with(1, false));
            fail(s);
        });
        CAPTURE(said);
        CHECK(test::contains(said, "own_error"));
        CHECK(test::contains(said, text));
        CHECK(said.find('\n') == said.size() - 1);
    };
    dies_with("from a task", [](scheduler& s) { s.spawn(lets_through()).detach(); });
    dies_with("from a function",
              [](scheduler& s) { s.spawn([] { throw own_error("from a function"); }).detach(); });
    dies_with("from what blocks", [](scheduler& s) {
        s.spawn_blocking([] { throw own_error("from what blocks"); }).detach();
    });
    dies_with("asked for by nothing", [](scheduler& s) {
        auto h = s.spawn([] { throw own_error("asked for by nothing"); });
        s.shutdown();
    });
    const std::string number = test::dies([] {
        scheduler s(test::with(1, false));
        s.spawn(throws_number()).detach();
    });
    CHECK(test::contains(number, "threw int\n"));
}

TEST_CASE("scheduler: an exception of a callback ends the program and names the callback") {
    const struct {
        void (*throws)(scheduler_options&);
        const char* name;
        const char* text;
    } all[] = {{&throws_in_unhandled, "on_unhandled threw ", "own_error: itself\n"},
               {&throws_in_start, "on_worker_start threw ", "own_error: at first\n"}};
    for (const auto& one : all) {
        const std::string said = dies_detached(one.throws);
        CAPTURE(said);
        CHECK(test::contains(said, one.name));
        CHECK(test::contains(said, one.text));
    }
    const std::string stopped = test::dies([] {
        scheduler_options wanted = test::with(1, false);
        throws_in_stop(wanted);
        scheduler s(std::move(wanted));
    });
    CAPTURE(stopped);
    CHECK(test::contains(stopped, "on_worker_stop threw "));
    CHECK(test::contains(stopped, "own_error: at last\n"));
}

TEST_CASE("scheduler: a terminate handler finds the exception that ended the program",
          "[promise.unhandled-exception]") {
    CHECK(test::contains(dies_detached([](scheduler_options&) {}, &report),
                         "handler: from a task\n"));
    CHECK(test::contains(dies_detached(&rethrows, &report), "handler: from a task\n"));
    CHECK(test::contains(dies_detached(&throws_in_start, &report), "handler: at first\n"));
}

#endif
