#ifndef BIDE_BENCH_SUPPORT_STATS_HPP
#define BIDE_BENCH_SUPPORT_STATS_HPP

// Medians, percentiles and fairness indices of what was measured.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace bench {

inline constexpr double not_measured = std::numeric_limits<double>::quiet_NaN();

inline double median(std::vector<double> values) {
    if (values.empty()) {
        return not_measured;
    }
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) {
        return *middle;
    }
    return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

inline double smallest(const std::vector<double>& values) {
    return values.empty() ? not_measured : *std::min_element(values.begin(), values.end());
}

inline double largest(const std::vector<double>& values) {
    return values.empty() ? not_measured : *std::max_element(values.begin(), values.end());
}

// Jain's index of the shares: 1 when all are equal, 1/n when one has everything. (Jain, Chiu and
// Hawe 1984, DEC-TR-301.) Not a number if no thread got anything.
inline double jain_index(std::span<const std::uint64_t> shares) {
    double sum = 0;
    double squares = 0;
    for (const std::uint64_t share : shares) {
        const auto x = static_cast<double>(share);
        sum += x;
        squares += x * x;
    }
    return squares > 0 ? sum * sum / (static_cast<double>(shares.size()) * squares) : not_measured;
}

// What each thread had done by the end of each window, and before the first one.
using progress = std::vector<std::vector<std::uint64_t>>;

inline std::vector<std::uint64_t> gained(const std::vector<std::uint64_t>& before,
                                         const std::vector<std::uint64_t>& after) {
    std::vector<std::uint64_t> difference(after.size());
    std::transform(after.begin(), after.end(), before.begin(), difference.begin(), std::minus<>());
    return difference;
}

// Over windows short enough, unfairness shows that a long run averages away. Windows in which
// no thread moved say nothing and are left out.
inline double mean_jain_of_windows(const progress& snapshots) {
    double sum = 0;
    double windows = 0;
    for (std::size_t i = 1; i < snapshots.size(); ++i) {
        const double index = jain_index(gained(snapshots[i - 1], snapshots[i]));
        if (index == index) {
            sum += index;
            windows += 1;
        }
    }
    return windows > 0 ? sum / windows : not_measured;
}

} // namespace bench

#endif
