#ifndef BIDE_BENCH_DURABLE_WORKLOADS_HPP
#define BIDE_BENCH_DURABLE_WORKLOADS_HPP

// The workloads; each adds its tables. All that is measured runs in processes that are made for it:
// this one has no slot, no lock, no connection, and no thread but the watchdog, which sleeps.

#include "support/harness.hpp"

namespace bench {

void add_slots(harness&);       // one process loads and stores, beside the disk's own cost
void add_uncontended(harness&); // one process alone
void add_handoff(harness&);     // from one process to the next
void add_contended(harness&);   // 16 processes want one lock, 32 want four permits
void add_storms(harness&);      // compare-and-swap by 2, 16 and 64 processes
void add_herd(harness&);        // many wait, one releases
void add_recovery(harness&);    // the holder is killed
void add_reducer(harness&);     // the rules and the record, without a store

} // namespace bench

#endif
