// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_FIBER_HPP
#define BIDE_MODEL_IMPL_FIBER_HPP

// The fibers of the checker (core/detail/fiber.hpp), whose state is a number.

#include <bide/core/detail/fiber.hpp>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// Returns a 64-bit hash of bytes, which is never 0. The four sums are independent of each other, so
// the processor computes them in parallel.
inline std::uint64_t digest(const std::byte* from, std::size_t size) noexcept {
    constexpr std::uint64_t odd = 0x9e37'79b9'7f4a'7c15u;
    std::uint64_t sums[4] = {1, 2, 3, size};
    const auto add = [&](std::uint64_t& sum, std::size_t bytes) {
        std::uint64_t word = 0;
        std::memcpy(&word, from, bytes);
        sum = (sum ^ word) * odd;
        sum ^= sum >> 29;
        from += bytes;
        size -= bytes;
    };
    while (size >= sizeof sums) {
        for (std::uint64_t& sum : sums) {
            add(sum, sizeof sum);
        }
    }
    while (size != 0) {
        add(sums[0], size < sizeof sums[0] ? size : sizeof sums[0]);
    }
    std::uint64_t all = 0;
    for (const std::uint64_t sum : sums) {
        all = (all ^ sum) * odd;
    }
    return all | 1;
}

class fiber : public bide::detail::fiber {
public:
    // Returns a hash of the used part of the stack, which includes the saved registers. Returns 0
    // if the platform does not support this. Requires: the fiber is suspended.
    std::uint64_t state() const noexcept {
#if BIDE_FIBER_HAS_SWITCH
        return digest(top(), static_cast<std::size_t>(end() - top()));
#else
        return 0;
#endif
    }
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
