#ifndef BIDE_BENCH_SYNC_WORKLOADS_HPP
#define BIDE_BENCH_SYNC_WORKLOADS_HPP

// The workloads; each adds its tables.

#include "support/harness.hpp"

namespace bench {

void add_uncontended(harness&); // one thread alone
void add_coroutine(harness&);   // one thread, inside a coroutine
void add_contended(harness&);   // 2, 4, 8 threads want one lock
void add_order(harness&);       // which threads are overtaken in the queue of a lock
void add_handoff(harness&);     // two threads take turns through two semaphores
void add_readers(harness&);     // two threads, nearly all readers
void add_notify(harness&);      // a wake without a sleeper
void add_meetings(harness&);    // barriers, once, several locks, locks by key
void add_sizes(harness&);       // bytes

} // namespace bench

#endif
