// All workloads in one table: what won and what lost.

#include "fork_join/pools.hpp"
#include "fork_join/rayon.hpp"
#include "fork_join/targets.hpp"
#include "support/report.hpp"
#include "support/stats.hpp"
#include "support/table.hpp"

#include <cstdio>
#include <string>
#include <vector>

namespace bench {
namespace {

struct peer {
    const char* row;
    const char* heading;
};

constexpr peer peers[] = {
    {serial_row, "serial"}, {rayon_row, "Rayon"},   {tbb_row, "TBB"},
    {std_row, "std par"},   {openmp_row, "OpenMP"},
};

std::string in_words(double ratio) {
    return ratio == ratio ? number(ratio, ratio < 10 ? 2 : 0) + 'x' : "-";
}

// How many times as long a peer takes, and the losses among them.
void add_line(text_lines& lines, std::string& losses, const table& t, const row& subject) {
    const std::string variant = subject.name.substr(std::string(bide_row).size());
    const std::string name = t.name + variant;
    lines.push_back(
        {(subject.is_noisy() ? "! " : "  ") + name,
         number(median(values(subject, 0)), t.columns[0].digits) + ' ' + t.columns[0].unit,
         number(median(values(subject, 2)), 2) + ' ' + t.columns[2].unit});
    std::string lost;
    for (const peer& p : peers) {
        const row* const other = t.find_row(p.row);
        const bool same_workers = subject.name == bide_row || other == &t.rows.front();
        const double ratio = other == nullptr || !same_workers
                                 ? not_measured
                                 : 1 / median(ratios(subject, *other, 0));
        lines.back().push_back(in_words(ratio));
        if (ratio < 1) {
            lost += (lost.empty() ? "" : ", ") + std::string(p.heading) + ' ' + in_words(1 / ratio);
        }
    }
    losses += lost.empty() ? "" : lines.back().front() + ": " + lost + '\n';
}

} // namespace

void print_summary(const std::vector<table>& tables) {
    text_lines lines{{"all, and how many times as long the others take", "bide", "each"}};
    for (const peer& p : peers) {
        lines.front().push_back(p.heading);
    }
    std::string losses;
    for (const table& t : tables) {
        for (const row& r : t.rows) {
            if (r.name.starts_with(bide_row)) {
                add_line(lines, losses, t, r);
            }
        }
    }
    std::printf("\n");
    print_aligned(lines);
    std::printf("\nwhere bide takes longer, and how many times as long\n%s", losses.c_str());
}

} // namespace bench
