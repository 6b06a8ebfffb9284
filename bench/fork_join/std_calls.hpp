#ifndef BIDE_BENCH_FORK_JOIN_STD_CALLS_HPP
#define BIDE_BENCH_FORK_JOIN_STD_CALLS_HPP

// Algorithms of std with std::execution::par, compiled twice: with bide as their backend, and with TBB. Both have the
// same names, so bide's are in a shared library that binds its own.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

// Random numbers, two sorted ranges, and room for twice as many.
struct std_data {
    explicit std_data(std::size_t size);

    std::vector<std::uint32_t> in;
    std::vector<std::uint32_t> sorted; // the numbers of `in`
    std::vector<std::uint32_t> other;  // other numbers, sorted
    std::vector<double> reals;
    std::vector<std::uint32_t> out;
    std::vector<double> real_out;
};

// One algorithm: its result is a number to check.
struct std_call {
    const char* name;
    std::uint64_t (*call)(std_data&);
};

// All algorithms, in the same order.
std::vector<std_call> std_calls_serial();
std::vector<std_call> std_calls_on_bide();
std::vector<std_call> std_calls_on_tbb();

} // namespace bench

#endif
