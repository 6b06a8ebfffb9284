// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_DETAIL_SEEDED_RANDOM_HPP
#define BIDE_TEST_DETAIL_SEEDED_RANDOM_HPP

#include <bide/core/config.hpp>

#include <cstdint>

namespace bide { inline namespace BIDE_ABI { namespace test::detail {

// Random numbers that are the same on every machine and with every library. (The numbers of
// std::uniform_int_distribution are not.) SplitMix64: Steele, Lea, Flood, "Fast Splittable
// Pseudorandom Number Generators", OOPSLA 2014.
class seeded_random {
public:
    explicit seeded_random(std::uint64_t seed) noexcept : state_(seed) {
        static_cast<void>(bits()); // so that small seeds differ in all bits
    }

    std::uint64_t bits() noexcept {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }

    // Returns a number from 0 to n - 1. The bias is below n / 2^64.
    // Requires: n is not 0.
    std::uint64_t below(std::uint64_t n) noexcept { return bits() % n; }

    // Returns true with the given probability. Draws one number, even if the result is certain.
    bool chance(double probability) noexcept {
        constexpr double whole = 9007199254740992.0; // 2^53: a double holds these integers exactly
        return static_cast<double>(bits() >> 11) < probability * whole;
    }

private:
    std::uint64_t state_;
};

}}} // namespace bide::BIDE_ABI::test::detail

#endif
