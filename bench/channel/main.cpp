// Benchmarks of the channel.

#include "peers/run.hpp"

namespace bench {

void add_streams();   // seq, spsc, mpsc, mpmc
void add_selects();   // select_rx, select_both
void add_ping_pong(); // two threads take turns
void add_batches();   // sixteen at a time
void add_coroutines();
void add_priorities(); // the greatest message first

} // namespace bench

int main(int argc, char** argv) {
    return bench::run(argc, argv, [] {
#if defined(BIDE_BENCH_CROSSBEAM)
        bench::note_version("crossbeam-channel", BIDE_BENCH_CROSSBEAM);
#endif
        bench::add_streams();
        bench::add_selects();
        bench::add_ping_pong();
        bench::add_batches();
        bench::add_coroutines();
        bench::add_priorities();
    });
}
