// Benchmarks of the locks and semaphores.

#include "support/bench.hpp"

namespace bench {

void add_one_thread();
void add_handoff();   // two threads take turns through two semaphores
void add_barriers();  // threads meet
void add_readers();   // two threads, nearly all readers
void add_both();      // two locks at once
void add_order();     // which threads are overtaken in the queue of a lock
void add_contended(); // 2, 4, 8 threads want one lock
void add_stores();    // a store under one lock
void add_sizes();     // bytes

} // namespace bench

int main(int argc, char** argv) {
    return bench::run(argc, argv, [] {
        bench::add_one_thread();
        bench::add_handoff();
        bench::add_barriers();
        bench::add_readers();
        bench::add_both();
        bench::add_order();
        bench::add_contended();
        bench::add_stores();
        bench::add_sizes();
    });
}
