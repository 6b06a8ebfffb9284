#ifndef BIDE_BENCH_SYNC_TARGETS_HPP
#define BIDE_BENCH_SYNC_TARGETS_HPP

#include "support/json.hpp"
#include "support/table.hpp"

#include <vector>

namespace bench {

// Prints each target of the project with what was measured for it.
void print_targets(const std::vector<table>&);
void write_targets(json_writer&, const std::vector<table>&);

} // namespace bench

#endif
