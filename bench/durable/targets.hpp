#ifndef BIDE_BENCH_DURABLE_TARGETS_HPP
#define BIDE_BENCH_DURABLE_TARGETS_HPP

#include "support/table.hpp"
#include "support/verdicts.hpp"

#include <vector>

namespace bench {

// Each target of the durable locks, with what was measured for it.
std::vector<verdict> judge_all(const std::vector<table>&);

} // namespace bench

#endif
