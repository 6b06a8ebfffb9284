#ifndef BIDE_BENCH_FORK_JOIN_TARGETS_HPP
#define BIDE_BENCH_FORK_JOIN_TARGETS_HPP

#include "support/table.hpp"
#include "support/verdicts.hpp"

#include <vector>

namespace bench {

// Each target of fork-join, with what was measured for it.
std::vector<verdict> judge_all(const std::vector<table>&);

// All workloads in one table: a line each, with bide's ratios to the others.
void print_summary(const std::vector<table>&);

} // namespace bench

#endif
