// Durable locks among processes that are killed and stopped at any time, over the slots that need
// no server. To run it for longer:
//
//   BIDE_CRASH_KILLS=2000 BIDE_CRASH_PAUSES=200 durable_crash_stress
//   BIDE_CRASH_SLOTS=sqlite ... runs one slot; BIDE_TEST_SEED=... repeats a run
//
// Each storm prints one line on stderr.

#include <support/catch.hpp>

#if defined(__linux__)

#include <bide/durable/slots/file.hpp>
#include <bide/durable/slots/memory.hpp>
#include <bide/durable/slots/sqlite.hpp>
#include <support/crash_harness.hpp>
#include <support/crash_slots.hpp>
#include <support/server_process.hpp>

#include <chrono>
#include <string>

namespace {

using namespace std::chrono_literals;

test::crash_options by_liveness() {
    test::crash_options o;
    o.hear_environment();
    return o;
}

test::crash_options by_lease() { return test::storm_by_lease(); }

using test::file_in;
using test::sqlite_in;

} // namespace

TEST_CASE("durable locks: kills and pauses over a file_slot, dead holders are detected by liveness",
          "[promise.durable-kills]") {
    const test::temp_directory in("crash");
    test::check_survival("file,liveness", file_in(in), by_liveness());
}

TEST_CASE(
    "durable locks: kills and pauses over a file_slot, dead holders are detected by the lease",
    "[promise.durable-kills]") {
    const test::temp_directory in("crash");
    test::check_survival("file,lease", file_in(in), by_lease());
}

TEST_CASE("durable locks: kills and pauses among three holders over a file_slot") {
    const test::temp_directory in("crash");
    test::crash_options o = by_liveness();
    o.permits = 3;
    test::check_survival("file,semaphore", file_in(in), o);
}

TEST_CASE(
    "durable locks: kills and pauses over a sqlite_slot, dead holders are detected by liveness") {
    const test::temp_directory in("crash");
    test::check_survival("sqlite,liveness", sqlite_in(in), by_liveness());
}

TEST_CASE(
    "durable locks: kills and pauses over a sqlite_slot, dead holders are detected by the lease",
    "[promise.durable-kills]") {
    const test::temp_directory in("crash");
    test::check_survival("sqlite,lease", sqlite_in(in), by_lease());
}

// ---- controls of the harness

TEST_CASE("crash harness: without a gate a stopped holder's late writes are counted") {
    const test::temp_directory in("crash");
    test::crash_options o;
    o.is_gated = false;
    o.pauses_holders_only = true;
    o.renews =
        false; // otherwise it may be stopped with the file locked, which blocks all other processes
    o.lease = 100ms;
    o.waiter_ttl = 100ms;
    o.kills = 0;
    o.pauses = 3;
    o.time = 0ms;
    const test::crash_report found = test::crash_storm("file,no gate", file_in(in), o);
    INFO(found.summary("no gate") << '\n' << found.all_faults());
    CHECK(found.faults.empty());
    CHECK(found.stale_attempted > 0);
    CHECK(found.stale_accepted == found.stale_attempted);
}

TEST_CASE("crash harness: processes that each have their own lock are detected") {
    test::crash_options o;
    o.kills = 2;
    o.pauses = 1;
    o.lease = 50ms;
    o.time = 200ms;
    o.slack = 300ms; // there is no record in the end
    const test::crash_report found = test::crash_storm(
        "nothing in common", [] { return bide::slot_ref(bide::memory_slot()); }, o);
    INFO(found.summary("nothing in common"));
    CHECK(found.overlaps > 0);
    CHECK_FALSE(found.faults.empty());
}

#else

TEST_CASE("durable locks: kills and pauses are tried on Linux only") {}

#endif
