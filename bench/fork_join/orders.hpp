#ifndef BIDE_BENCH_FORK_JOIN_ORDERS_HPP
#define BIDE_BENCH_FORK_JOIN_ORDERS_HPP

// Numbers in many orders, for the benches that sort, merge and select.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace bench {

using number_list = std::vector<std::uint64_t>;

// Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators": the i-th.
constexpr std::uint64_t random_number(std::uint64_t i) {
    std::uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// An order, and the number at each place in it.
struct order {
    const char* name;
    std::uint64_t (*at)(std::uint64_t i, std::uint64_t count);
};

inline constexpr order orders[] = {
    {"random", [](std::uint64_t i, std::uint64_t) { return random_number(i); }},
    {"sorted", [](std::uint64_t i, std::uint64_t) { return i; }},
    {"reversed", [](std::uint64_t i, std::uint64_t count) { return count - i; }},
    {"equal", [](std::uint64_t, std::uint64_t) { return std::uint64_t{42}; }},
    {"organ_pipe", [](std::uint64_t i, std::uint64_t count) { return std::min(i, count - 1 - i); }},
    {"few_distinct", [](std::uint64_t i, std::uint64_t) { return random_number(i) % 16; }},
    {"mostly_sorted",
     [](std::uint64_t i, std::uint64_t count) {
         return random_number(i) % 100 == 0 ? random_number(i) % count : i;
     }},
};

// What sorting does not change.
struct fingerprint {
    std::uint64_t sum = 0;
    std::uint64_t squares = 0;
    bool operator==(const fingerprint&) const = default;

    explicit fingerprint(const number_list& all) {
        for (const std::uint64_t x : all) {
            sum += x;
            squares += random_number(x);
        }
    }
};

// Returns the numbers in that order.
inline number_list make_numbers(const order& o, std::uint64_t count) {
    number_list made(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        made[i] = o.at(i, count);
    }
    return made;
}

} // namespace bench

#endif
