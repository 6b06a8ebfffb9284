#ifndef BIDE_BENCH_SUPPORT_STATS_HPP
#define BIDE_BENCH_SUPPORT_STATS_HPP

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace bench {

inline constexpr double not_measured = std::numeric_limits<double>::quiet_NaN();

// The value that `share` of the numbers do not exceed; 0.5: the median.
template <class Number> double percentile(std::vector<Number> numbers, double share) {
    if (numbers.empty()) {
        return not_measured;
    }
    const double last = static_cast<double>(numbers.size() - 1);
    const auto place = numbers.begin() + static_cast<std::ptrdiff_t>(last * share + 0.5);
    std::nth_element(numbers.begin(), place, numbers.end());
    return static_cast<double>(*place);
}

// Counts of values in buckets whose width is 1/32 of the value: percentiles to 3 % of any number of
// samples, in constant memory, at a few instructions a sample. The largest value is kept exactly.
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

    // The value that `share` of the samples do not exceed, but for a bucket's width; 1: the largest.
    double percentile(double share) const noexcept {
        std::uint64_t seen = 0;
        for (std::size_t i = 0; share < 1 && i < buckets_.size(); ++i) {
            seen += buckets_[i];
            if (seen > 0 && static_cast<double>(seen) >= share * static_cast<double>(count_)) {
                return static_cast<double>(std::min(highest_in(i), largest_));
            }
        }
        return static_cast<double>(largest_);
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
        return ((bucket - shift * per_power + 1) << shift) - 1;
    }

    std::array<std::uint64_t, (64 - bits + 1) * per_power> buckets_{};
    std::uint64_t count_ = 0;
    std::uint64_t largest_ = 0;
};

} // namespace bench

#endif
