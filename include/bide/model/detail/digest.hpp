// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_DIGEST_HPP
#define BIDE_MODEL_DETAIL_DIGEST_HPP

// A 64-bit hash of bytes.

#include <bide/core/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// Never returns 0. The four sums are independent, so the processor computes them in parallel.
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

}}} // namespace bide::BIDE_ABI::model::detail

#endif
