// Benchmarks of the durable locks: a row for each store that is installed.

#include "durable/crew.hpp"
#include "durable/directory.hpp"
#include "durable/stores.hpp"
#include "support/bench.hpp"

namespace bench {

void add_slots();       // one process loads and stores, beside the disk's own cost
void add_uncontended(); // one process alone
void add_command();     // a command under a lock of a file
void add_handoff();     // from one process to the next
void add_contended();   // 16 processes want one lock, 32 want four permits
void add_storms();      // compare-and-swap by 2, 16 and 64 processes
void add_herd();        // many wait, one releases
void add_recovery();    // the holder is killed
void add_reducer();     // the rules and the record, without a store

namespace {

void add_all() {
    const std::string below = work_directory::below();
    benchmark::AddCustomContext("stores", describe_stores());
    benchmark::AddCustomContext("files", "below " + below + ", on " + filesystem_of(below) +
                                             "; those of servers on " + filesystem_of("/tmp"));
    for (const auto add : {add_slots, add_uncontended, add_command, add_handoff, add_contended,
                           add_storms, add_herd, add_recovery, add_reducer}) {
        add();
    }
}

} // namespace
} // namespace bench

int main(int argc, char** argv) {
    bench::interruption::begin_to_notice();
    const int result = bench::run(argc, argv, bench::add_all);
    bench::stop_servers();
    bench::work_directory::remove_all();
    return result;
}
