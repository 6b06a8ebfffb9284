#ifndef BIDE_TESTS_SUPPORT_JITTER_HPP
#define BIDE_TESTS_SUPPORT_JITTER_HPP

// Chance that can be repeated, and small random delays that widen the windows of a race.

#include "support/seed.hpp"

#include <bide/core/platform.hpp>

#include <support/standard.hpp>

namespace test {

// One for each thread.
class jitter {
public:
    explicit jitter(std::uint32_t seed) noexcept : state_(seed * 2'654'435'769u | 1u) {}

    // Below `bound` (xorshift: Marsaglia, "Xorshift RNGs", 2003).
    std::uint32_t below(std::uint32_t bound) noexcept {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 17;
        state_ ^= state_ << 5;
        return state_ % bound;
    }

    // Nothing, some nanoseconds, or rarely the processor to another thread.
    void operator()() noexcept {
        const std::uint32_t kind = below(16);
        if (kind == 0) {
            std::this_thread::yield();
        } else if (kind < 10) {
            for (std::uint32_t left = below(1u << below(9)); left != 0; --left) {
                bide::native_platform::pause();
            }
        }
    }

    // Looks at the clock for a random time, long ones and short ones alike: below 2^most ns.
    void dawdle(std::uint32_t most) noexcept {
        const std::int64_t rest = below(1u << below(most + 1));
        const std::int64_t end = bide::native_platform::now() + rest;
        while (bide::native_platform::now() < end) {
        }
    }

    // A time of that distribution, to wait for.
    std::chrono::nanoseconds rest(std::uint32_t most) noexcept {
        return std::chrono::nanoseconds(below(1u << below(most + 1)));
    }

private:
    std::uint32_t state_;
};

} // namespace test

#endif
