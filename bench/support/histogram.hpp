#ifndef BIDE_BENCH_SUPPORT_HISTOGRAM_HPP
#define BIDE_BENCH_SUPPORT_HISTOGRAM_HPP

// Counts of values in buckets whose width is 1/32 of the value: percentiles to 3 % of any number of
// samples, in constant memory, at a few instructions a sample. The largest value is kept exactly.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace bench {

class histogram {
public:
    void add(std::uint64_t value) noexcept {
        ++buckets_[bucket_of(value)];
        ++count_;
        largest_ = std::max(largest_, value);
    }

    void merge(const histogram& other) noexcept {
        for (std::size_t i = 0; i < buckets_.size(); ++i) {
            buckets_[i] += other.buckets_[i];
        }
        count_ += other.count_;
        largest_ = std::max(largest_, other.largest_);
    }

    std::uint64_t count() const noexcept { return count_; }
    std::uint64_t largest() const noexcept { return largest_; }

    // The value that `share` of the samples do not exceed, but for a bucket's width.
    std::uint64_t percentile(double share) const noexcept {
        const double wanted = share * static_cast<double>(count_);
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < buckets_.size(); ++i) {
            seen += buckets_[i];
            if (seen > 0 && static_cast<double>(seen) >= wanted) {
                return std::min(highest_in(i), largest_);
            }
        }
        return largest_;
    }

private:
    static constexpr unsigned bits = 5;
    static constexpr std::size_t per_power = std::size_t{1} << bits;

    // Values below 2 * per_power have a bucket each; above, `shift` low bits are dropped.
    static std::size_t bucket_of(std::uint64_t value) noexcept {
        const auto width = static_cast<unsigned>(std::bit_width(value));
        const unsigned shift = width > bits + 1 ? width - bits - 1 : 0;
        return shift * per_power + static_cast<std::size_t>(value >> shift);
    }

    static std::uint64_t highest_in(std::size_t bucket) noexcept {
        const std::size_t shift = bucket < 2 * per_power ? 0 : bucket / per_power - 1;
        const std::uint64_t prefix = bucket - shift * per_power;
        return ((prefix + 1) << shift) - 1;
    }

    std::array<std::uint64_t, (64 - bits + 1) * per_power> buckets_{};
    std::uint64_t count_ = 0;
    std::uint64_t largest_ = 0;
};

} // namespace bench

#endif
