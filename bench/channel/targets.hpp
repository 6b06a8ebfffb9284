#ifndef BIDE_BENCH_CHANNEL_TARGETS_HPP
#define BIDE_BENCH_CHANNEL_TARGETS_HPP

#include "support/table.hpp"
#include "support/verdicts.hpp"

#include <vector>

namespace bench {

// Each target of the channels, with what was measured for it.
std::vector<verdict> judge_all(const std::vector<table>&);

// All workloads in one table: a line each, with bide's ratios to crossbeam-channel and TBB.
void print_summary(const std::vector<table>&);

} // namespace bench

#endif
