#ifndef BIDE_TESTS_SUPPORT_CRASH_SLOTS_HPP
#define BIDE_TESTS_SUPPORT_CRASH_SLOTS_HPP

// For crash_storm(): the slots that need no server, and options of a storm in which dead holders
// are detected by the lease.

#include <bide/durable/slot.hpp>
#include <bide/durable/slots/file.hpp>
#include <bide/durable/slots/sqlite.hpp>
#include <support/crash_harness.hpp>
#include <support/temp_directory.hpp>

#include <chrono>

namespace test {

inline crash_options storm_by_lease() {
    crash_options o;
    o.process_bound = false;
    o.lease = std::chrono::milliseconds(100);
    o.waiter_ttl = std::chrono::milliseconds(100);
    o.kills = 6;
    o.pauses = 1;
    o.hear_environment();
    return o;
}

inline auto file_in(const temp_directory& in) {
    return [path = in.path() + "/lock"] { return bide::slot_ref(bide::file_slot(path)); };
}
inline auto sqlite_in(const temp_directory& in) {
    return [path = in.path() + "/db"] { return bide::slot_ref(bide::sqlite_slot(path, "lock")); };
}

} // namespace test

#endif
