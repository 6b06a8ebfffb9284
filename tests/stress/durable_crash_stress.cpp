// Durable locks among processes that are killed and stopped at any time, over the slots that need
// no server; on one machine, and in two containers that do not see each other's processes, boot ids and
// clocks (which needs root and a kernel with time namespaces). To run it for longer:
//
//   BIDE_CRASH_KILLS=2000 BIDE_CRASH_PAUSES=200 durable_crash_stress_test '[kills]'
//   BIDE_CRASH_SLOTS=sqlite ... runs one slot; BIDE_TEST_SEED=... repeats a run
//
// Each storm prints one line on stderr.

#if defined(__linux__)

#include <bide/durable/slots/file.hpp>
#include <bide/durable/slots/memory.hpp>
#include <bide/durable/slots/sqlite.hpp>
#include <support/crash_harness.hpp>
#include <support/server_process.hpp>

namespace {

test::crash_options by_liveness() {
    test::crash_options o;
    o.hear_environment();
    return o;
}

test::crash_options by_lease() {
    test::crash_options o;
    o.process_bound = false;
    o.lease = o.waiter_ttl = 100ms;
    o.kills = 6;
    o.pauses = 1;
    o.hear_environment();
    return o;
}

auto file_in(const test::temp_directory& in) {
    return [path = in.path() + "/lock"] { return bide::slot_ref(bide::file_slot(path)); };
}
auto sqlite_in(const test::temp_directory& in) {
    return [path = in.path() + "/db"] { return bide::slot_ref(bide::sqlite_slot(path, "lock")); };
}

void check_file(test::crash_options o, const std::string& variant, bool in_containers = false) {
    const test::temp_directory in("crash");
    o.in_containers = in_containers;
    test::check_survival("file," + variant, file_in(in), o);
}
void check_sqlite(test::crash_options o, const std::string& variant, bool in_containers = false) {
    const test::temp_directory in("crash");
    o.in_containers = in_containers;
    test::check_survival("sqlite," + variant, sqlite_in(in), o);
}

} // namespace

TEST_CASE("durable locks: kills and pauses, dead holders are detected by liveness",
          "[kills][promise.durable-kills]") {
    SECTION("over a file_slot") { check_file(by_liveness(), "liveness"); }
    SECTION("over a sqlite_slot") { check_sqlite(by_liveness(), "liveness"); }
    SECTION("over a file_slot, three holders") {
        test::crash_options o = by_liveness();
        o.permits = 3;
        check_file(o, "semaphore");
    }
}

TEST_CASE("durable locks: kills and pauses, dead holders are detected by the lease",
          "[kills][promise.durable-kills]") {
    SECTION("over a file_slot") { check_file(by_lease(), "lease"); }
    SECTION("over a sqlite_slot") { check_sqlite(by_lease(), "lease"); }
}

TEST_CASE("durable locks: kills and pauses in two containers",
          "[containers][promise.durable-containers]") {
    if (!test::has_containers()) {
        return;
    }
    SECTION("over a file_slot, by liveness") {
        check_file(by_liveness(), "containers,liveness", true);
    }
    SECTION("over a file_slot, by the lease") { check_file(by_lease(), "containers,lease", true); }
    SECTION("over a sqlite_slot, by liveness") {
        check_sqlite(by_liveness(), "containers,liveness", true);
    }
    SECTION("over a sqlite_slot, by the lease") {
        check_sqlite(by_lease(), "containers,lease", true);
    }
}

TEST_CASE("crash harness: without a gate a stopped holder's late writes are counted", "[kills]") {
    const test::temp_directory in("crash");
    test::crash_options o;
    o.is_gated = false;
    o.pauses_holders_only = true;
    o.renews = false; // a renewing one may be stopped with the file locked, which blocks all others
    o.lease = o.waiter_ttl = 100ms;
    o.kills = 0;
    o.pauses = 3;
    o.time = 0ms;
    const test::crash_report found = test::crash_storm("file,no gate", file_in(in), o);
    INFO(found.summary("no gate") << '\n' << found.all_faults());
    CHECK(found.faults.empty());
    CHECK(found.stale_attempted > 0);
    CHECK(found.stale_accepted == found.stale_attempted);
}

TEST_CASE("crash harness: processes that each have their own lock are detected", "[kills]") {
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

TEST_CASE("crash harness: containers that use their own clocks are detected", "[containers]") {
    if (!test::has_containers()) {
        return;
    }
    const test::temp_directory in("crash");
    test::crash_options o;
    o.in_containers = true;
    o.has_clock_of_its_own = true;
    o.process_bound = false;
    o.kills = 0;
    o.pauses =
        1'000; // at most; about every second holder is in the container with the slower clock
    o.pauses_holders_only = true;
    o.ends_with_overlap = true;
    const test::crash_report found = test::crash_storm("file,own clocks", file_in(in), o);
    INFO(found.summary("own clocks") << '\n' << found.all_faults());
    CHECK(found.overlaps > 0);
}

#else

TEST_CASE("durable locks: kills and pauses are tried on Linux only", "[kills][containers]") {}

#endif
