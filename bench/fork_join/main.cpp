// Benchmarks of fork-join. In serial rows, a plain call that is not inlined stands in place of each fork.

#include "fork_join/pools.hpp"
#include "support/bench.hpp"

#include <string>

namespace bench {

void add_spread();
void add_fib();
void add_tree(); // and from outside
void add_spine();
void add_scopes();
void add_skynet();
void add_nqueens();
void add_uts();
void add_matmul();
void add_loops();
void add_sum();
void add_algorithms(); // those of std
void add_contested();
void add_packs();
void add_sorts();
void add_pipelines();
void add_graphs();
void add_selections();
void add_std_execution(); // on bide, beside TBB

} // namespace bench

int main(int argc, char** argv) {
    using namespace bench;
    return run(argc, argv, [] {
#if defined(BIDE_BENCH_RAYON)
        note_version(rayon_row, BIDE_BENCH_RAYON);
#endif
        benchmark::AddCustomContext("workers", std::to_string(workers()));
        for (const auto add :
             {add_spread, add_fib, add_tree, add_spine, add_scopes, add_skynet, add_nqueens,
              add_uts, add_matmul, add_loops, add_sum, add_algorithms, add_contested, add_packs,
              add_sorts, add_pipelines, add_graphs, add_selections}) {
            add();
        }
#if defined(BIDE_BENCH_HAS_STD_CALLS)
        add_std_execution();
#endif
    });
}
