#ifndef BIDE_BENCH_SUPPORT_WORKERS_HPP
#define BIDE_BENCH_SUPPORT_WORKERS_HPP

// How many workers every pool has. The processes of the rows learn it from the environment.

#include "support/options.hpp"
#include "support/program.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

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

// Takes `--workers N` out, and puts N where workers() finds it.
inline std::vector<char*> without_workers(int argc, char** argv) {
    std::vector<char*> rest(argv, argv + argc);
    const auto option = std::find(rest.begin(), rest.end(), std::string_view("--workers"));
    if (option != rest.end()) {
        const auto value = option + 1;
        ::setenv(workers_variable, value == rest.end() ? "nothing" : *value, 1);
        rest.erase(option, value == rest.end() ? value : value + 1);
    }
    return rest;
}

// As run_program(), with `--workers N` besides.
inline int run_program_with_workers(const program& p, int argc, char** argv) {
    std::vector<char*> rest = without_workers(argc, argv);
    const int result = run_program(p, static_cast<int>(rest.size()), rest.data());
    if (std::find(rest.begin(), rest.end(), std::string_view("--help")) != rest.end()) {
        std::printf("and of this program:\n  --workers N        of every pool, 1 to 256 (%u)\n",
                    default_workers);
    }
    return result;
}

} // namespace bench

#endif
