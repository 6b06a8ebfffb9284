// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_CHUNK_SIZES_HPP
#define BIDE_PARALLEL_DETAIL_CHUNK_SIZES_HPP

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

// How many iterations the chunks of a loop have. A chunk has one at first, and grows until it takes
// 4 us by the clock. All parts of the loop share what was learned.
template <class Platform> class basic_chunk_sizes {
public:
    // In nanoseconds: the intended time of a chunk, and the time of an arm that is worth a wake.
    static constexpr std::int64_t chunk_time = 4'000;
    static constexpr std::int64_t arm_time = 64'000;

    // Returns the latest chunk that took about chunk_time, or 0 if none has run.
    std::uint64_t learned() const noexcept {
        // Order: relaxed; an estimate.
        return learned_.load(std::memory_order_relaxed);
    }

    // Returns the size of the chunk after one of `iterations` that took so many nanoseconds.
    static std::uint64_t next(std::uint64_t iterations, std::int64_t took) noexcept {
        const auto nanoseconds = static_cast<std::uint64_t>((std::max)(took, std::int64_t{1}));
        const std::uint64_t fitting =
            (std::max)(iterations * chunk_time / nanoseconds, std::uint64_t{1});
        return (std::min)({fitting, iterations * growth, longest});
    }

    // Makes `chunk` the size with which other parts begin. Writes it only if it has changed by a
    // factor of two, because all parts read the cache line.
    void learn(std::uint64_t chunk) noexcept {
        const std::uint64_t old = learned();
        if (old == 0 || chunk < old / 2 || chunk / 2 > old) {
            // Order: relaxed; an estimate.
            learned_.store(chunk, std::memory_order_relaxed);
        }
    }

    // Runs a loop of `size` iterations without a fork-join, which began at `begin`. run(n) runs about
    // n iterations, and returns how many are left to do. Returns the time at the end, or 0 if the
    // loop takes longer than chunk_time: the rest needs a fork-join. The sizes grow as those of
    // chunks do, so the time of an iteration is known before many have run.
    template <std::invocable<std::uint64_t> Run>
    static std::int64_t run_briefly(std::uint64_t size, const std::int64_t begin, Run run) {
        std::uint64_t chunk = 1;
        for (std::int64_t before = begin;;) {
            const std::uint64_t left = run((std::min)(chunk, size));
            const std::int64_t after = Platform::now();
            if (left == 0) {
                return after;
            }
            if (after - begin >= chunk_time) {
                return 0;
            }
            chunk = next(size - left, after - before);
            before = after;
            size = left;
        }
    }

private:
    // The largest factor by which a chunk grows; its largest size.
    static constexpr std::uint64_t growth = 64;
    static constexpr std::uint64_t longest = 1 << 24;

    typename Platform::template atomic<std::uint64_t> learned_{0};
};

// True if loops that begin with Forker can be brief. False for most forkers that tests make.
template <class Forker>
concept forks_brief_loops =
    requires(const Forker& f, void (*call)(), std::int64_t (*brief)(std::int64_t)) {
        f.enter_loop(std::uint64_t{}, *brief, *call);
    };

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
