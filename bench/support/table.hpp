#ifndef BIDE_BENCH_SUPPORT_TABLE_HPP
#define BIDE_BENCH_SUPPORT_TABLE_HPP

// A table is one workload: its columns are what is measured, its rows the variants that are
// compared. The first row is the baseline.

#include "support/stats.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace bench {

struct column {
    std::string name;
    std::string unit;
    int digits = 2;          // after the point
    bool with_ratio = false; // to the baseline
};

// One number for each column; not_measured where a column does not apply.
using sample = std::vector<double>;

// Where a row is measured. Some libraries decide once in a process, by the processors it may use,
// whether to spin: such rows get a fresh process each time.
enum class placement {
    here,         // in this process
    own_process,  // in one with all processors of the list
    one_processor // in one that has only the first of the list
};

struct row {
    std::string name;
    std::function<sample()> measure;
    placement where = placement::here;

    // What came of it, one of each for each round.
    std::vector<sample> samples = {};
    std::vector<bool> clean = {}; // no other program disturbed it

    // Clean rounds are enough where they are at least half.
    bool is_noisy() const {
        return 2 * std::count(clean.begin(), clean.end(), true) <
               static_cast<std::ptrdiff_t>(clean.size());
    }
};

struct table {
    std::string name;
    std::string note;
    std::vector<column> columns;
    std::vector<row> rows;

    // Adds a row that is measured in this process.
    void add(std::string row_name, std::function<sample()> measure) {
        rows.push_back({std::move(row_name), std::move(measure)});
    }

    const row* find_row(const std::string& row_name) const {
        const auto same = [&](const row& r) { return r.name == row_name; };
        const auto found = std::find_if(rows.begin(), rows.end(), same);
        return found == rows.end() ? nullptr : &*found;
    }

    std::size_t column_index(const std::string& column_name) const {
        const auto same = [&](const column& c) { return c.name == column_name; };
        const auto found = std::find_if(columns.begin(), columns.end(), same);
        return static_cast<std::size_t>(found - columns.begin());
    }
};

// The values of a column in the rounds that count.
inline std::vector<double> values(const row& r, std::size_t column) {
    std::vector<double> chosen;
    for (std::size_t round = 0; round < r.samples.size(); ++round) {
        const double value = r.samples[round][column];
        if ((r.clean[round] || r.is_noisy()) && value == value) {
            chosen.push_back(value);
        }
    }
    return chosen;
}

// Value over the baseline's value of the same round: what slows the machine for a while slows both.
// Of the rounds in which both were clean, where those are at least half; else of all.
inline std::vector<double> ratios(const row& r, const row& baseline, std::size_t column) {
    std::vector<double> of_all;
    std::vector<double> of_clean;
    for (std::size_t round = 0; round < r.samples.size(); ++round) {
        const double ratio = r.samples[round][column] / baseline.samples[round][column];
        if (ratio != ratio) {
            continue;
        }
        of_all.push_back(ratio);
        if (r.clean[round] && baseline.clean[round]) {
            of_clean.push_back(ratio);
        }
    }
    return 2 * of_clean.size() >= of_all.size() ? of_clean : of_all;
}

} // namespace bench

#endif
