// Like durable_crash_stress.cpp, with the processes in two containers. Neither container sees the
// other's processes, boot id or clock. Needs root and a kernel with time namespaces.
//
//   BIDE_CRASH_KILLS=2000 BIDE_CRASH_PAUSES=200 durable_crash_containers_stress

#include <support/catch.hpp>

#if defined(__linux__)

#include <bide/durable/slots/file.hpp>
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
    o.in_containers = true;
    o.hear_environment();
    return o;
}

test::crash_options by_lease() {
    test::crash_options o = test::storm_by_lease();
    o.in_containers = true;
    return o;
}

using test::file_in;
using test::sqlite_in;

} // namespace

TEST_CASE("durable locks: two containers, over a file_slot, dead holders are detected by liveness",
          "[promise.durable-containers]") {
    if (test::has_containers()) {
        const test::temp_directory in("crash");
        test::check_survival("file,containers,liveness", file_in(in), by_liveness());
    }
}

TEST_CASE(
    "durable locks: two containers, over a file_slot, dead holders are detected by the lease") {
    if (test::has_containers()) {
        const test::temp_directory in("crash");
        test::check_survival("file,containers,lease", file_in(in), by_lease());
    }
}

TEST_CASE(
    "durable locks: two containers, over a sqlite_slot, dead holders are detected by liveness") {
    if (test::has_containers()) {
        const test::temp_directory in("crash");
        test::check_survival("sqlite,containers,liveness", sqlite_in(in), by_liveness());
    }
}

TEST_CASE(
    "durable locks: two containers, over a sqlite_slot, dead holders are detected by the lease") {
    if (test::has_containers()) {
        const test::temp_directory in("crash");
        test::check_survival("sqlite,containers,lease", sqlite_in(in), by_lease());
    }
}

// ---- controls of the harness

TEST_CASE("crash harness: containers that use their own clocks are detected") {
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

TEST_CASE("durable locks: kills and pauses in containers are tried on Linux only") {}

#endif
