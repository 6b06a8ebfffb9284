#ifndef BIDE_TESTS_MODEL_AT_RANDOM_HPP
#define BIDE_TESTS_MODEL_AT_RANDOM_HPP

#include <model/check.hpp>

#include <support/standard.hpp>

namespace model {

// Explores `how.runs` random schedules, where all executions would be too many. Without mutants: one that survives
// random schedules proves nothing.
void check_at_random(std::string_view name, options how, const body& run);
inline void check_at_random(std::string_view name, std::uint64_t runs, const body& run) {
    check_at_random(name, {.runs = runs}, run);
}

// In the long tests, explores all executions.
inline void check_at_random_or_all(std::string_view name, const options& how, const body& run) {
    is_long() ? check(name, {.timeouts = how.timeouts}, run) : check_at_random(name, how, run);
}

} // namespace model

#endif
