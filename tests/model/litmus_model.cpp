// Litmus tests of what herd7 does not know: threads that sleep, spin in vain, or fail for no reason. The
// others are in judge/litmus.txt, for judge_model.cpp. How programs and outcomes are written: program.hpp.

#include <model/program.hpp>
#include <support/test.hpp>

namespace {

using model::failure;
using method = model::options::method;

struct row {
    std::string_view name;
    std::string_view program;
    std::string_view outcomes; // all of them
};

void expect(const row& r, method how, model::options o = {}) {
    const model::program p = model::to_program(r.program);
    const auto body = [&] { model::record(model::to_text(p, model::run(p))); };
    INFO(r.name << ": " << r.program);
    o.how = how;
    CHECK(model::outcomes(o, body) == r.outcomes);
}

struct verdict_row {
    std::string_view name;
    std::string_view program;
    failure what;
};

void expect(std::span<const verdict_row> rows) {
    for (const verdict_row& r : rows) {
        const model::program p = model::to_program(r.program);
        for (const method how : {method::exhaustive, method::enumerate}) {
            INFO(r.name << ": " << r.program);
            CHECK(model::explore({.how = how}, [&] { model::run(p); }).what == r.what);
        }
    }
}

// The waker writes the word, then wakes.
constexpr row sleepers[] = {
    {"waking synchronises nothing", "y=1 x.rel=1 x.wake=1 | x.wait=0 y", "0 1"},
    {"the word read after waking may be old", "x=1 x.wake=1 | x.wait=0 x", "0 1"},
    {"the word says what is published", "y=1 x.rel=1 x.wake=1 | x.wait=0 x.acq y", "00 01 11"},
    {"a word that changed lets no thread sleep", "x=1 x.wait=0 x", "1"},
};

constexpr verdict_row verdicts[] = {
    {"store, wake", "x=1 x.wake=1 | x.wait=0", failure::none},
    {"no wake", "x=1 | x.wait=0", failure::lost_wakeup},
    {"wake, store", "x.wake=1 x=1 | x.wait=0", failure::lost_wakeup},
    {"a wake of another word", "x=1 y.wake=1 | x.wait=0", failure::lost_wakeup},
    {"one wake for two", "x=1 x.wake=1 | x.wait=0 | x.wait=0", failure::lost_wakeup},
    {"a wake of two", "x=1 x.wake=2 | x.wait=0 | x.wait=0", failure::none},
    {"two wakes of one", "x=1 x.wake=1 x.wake=1 | x.wait=0 | x.wait=0", failure::none},
    {"the word goes back", "x=1 x.wake=1 x=0 | x.wait=0", failure::lost_wakeup},
    {"awaited in vain", "x=1 x=2 | x@1", failure::livelock},
    {"awaited by each other", "x@1 y=1 | y@1 x=1", failure::livelock},
};

} // namespace

TEST_CASE("litmus: a sleeper is woken, and learns nothing else by that") {
    for (const row& r : sleepers) {
        expect(r, method::exhaustive);
        expect(r, method::enumerate);
    }
}

TEST_CASE("litmus: each failure is found where it can happen and nowhere else") {
    expect(verdicts);
}

TEST_CASE("litmus: what fails for no reason does so within its budget") {
    for (const method how : {method::exhaustive, method::enumerate}) {
        expect({"none", "x~0:1 || x", "0/1"}, how);
        expect({"one", "x~0:1 x~0:1 || x", "01/1 f0/1"}, how, {.weak_failures = 1});
        expect({"two", "x~0:1 x~0:1 || x", "01/1 f0/1 ff/0"}, how, {.weak_failures = 2});
        expect({"one for each thread", "x~0:1 x~0:1 | y || x", "01/0/1 f0/0/1"}, how,
               {.weak_failures = 1});
        expect({"no sleep", "x.wait=0 z=1 | z x=1 x.wake=1", "0"}, how);
        expect({"a sleep", "x.wait=0 z=1 | z x=1 x.wake=1", "0 1"}, how, {.spurious = 1});
        expect({"a time-out", "x.timed=0 x", "00"}, how, {.timeouts = 1});
        expect(
            {"its look synchronises nothing", "y=1 x.rel=1 | x.timed=0 fence.acq y", "00 01 10 11"},
            how, {.timeouts = 1});
        expect({"a time-out, and a wake by a thread that has seen it",
                "x.timed=1 y=1 | x=1 | y x.wake=1", "0/0 0/1 1/0 1/1"},
               how, {.timeouts = 1});
        expect({"the same, where the word changes after another thread's step",
                "x.timed=1 y=1 | z [1]x=1 | z=1 | y x.wake=1",
                "0/1/0 0/1/1 1/0/0 1/0/1 1/1/0 1/1/1"},
               how, {.timeouts = 1});
        expect({"in time, or not", "x=1 x.wake=1 | x.timed=0 x.timed=0 || x", "00/1 11/1"}, how,
               {.timeouts = 1});
    }
}
