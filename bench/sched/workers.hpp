#ifndef BIDE_BENCH_SCHED_WORKERS_HPP
#define BIDE_BENCH_SCHED_WORKERS_HPP

// How many workers every pool has. The processes of the rows learn it from the environment.

#include "support/options.hpp"

#include <charconv>
#include <cstdlib>
#include <string>
#include <system_error>

namespace bench {

inline constexpr const char* workers_variable = "BIDE_BENCH_WORKERS";
inline constexpr unsigned default_workers = 2;

inline unsigned workers() {
    const char* const set = std::getenv(workers_variable);
    if (set == nullptr) {
        return default_workers;
    }
    const std::string text(set);
    unsigned count = 0;
    const auto end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, count);
    if (error != std::errc() || rest != end || count < 1 || count > 256) {
        throw usage_error("--workers: not a number from 1 to 256: " + text);
    }
    return count;
}

} // namespace bench

#endif
