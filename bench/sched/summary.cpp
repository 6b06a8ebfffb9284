// All workloads in one table: what won and what lost.

#include "sched/pools.hpp"
#include "sched/programs.hpp"
#include "sched/targets.hpp"
#include "support/report.hpp"
#include "support/stats.hpp"
#include "support/table.hpp"

#include <cstddef>
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
    {tokio_peer.row, "tokio"},     {go_peer.row, "Go"}, {tmc_peer.row, "TooManyCooks"},
    {libfork_peer.row, "libfork"}, {tbb_row, "TBB"},    {fiber_row, "Boost.Fiber"},
    {futex_row, "futex"},
};

// How many times a peer takes as long (or as much memory) as the subject.
double times(const row& subject, const row* other, std::size_t column) {
    return other == nullptr ? not_measured : 1 / median(ratios(subject, *other, column));
}

std::string in_words(double ratio) {
    return ratio == ratio ? number(ratio, ratio < 10 ? 2 : 0) + 'x' : "-";
}

// A line for each column that is compared, but for the fastest runs.
void add_lines(text_lines& lines, std::string& losses, const table& t, const row& subject) {
    for (std::size_t i = 0; i < t.columns.size(); ++i) {
        const column& c = t.columns[i];
        if (!c.with_ratio || c.name == "fastest") {
            continue;
        }
        std::string name = t.name + ", " + c.name;
        const std::string variant = subject.name.substr(std::string(bide_row).size());
        name += variant.empty() ? "" : " (" + variant.substr(2) + ")";
        lines.push_back({(subject.is_noisy() ? "! " : "  ") + name,
                         number(median(values(subject, i)), c.digits) + ' ' + c.unit});
        std::string lost;
        for (const peer& p : peers) {
            const double ratio = times(subject, t.find_row(p.row), i);
            lines.back().push_back(in_words(ratio));
            if (ratio < 1) {
                lost +=
                    (lost.empty() ? "" : ", ") + std::string(p.heading) + ' ' + in_words(1 / ratio);
            }
        }
        losses += lost.empty() ? "" : lines.back().front() + ": " + lost + '\n';
    }
}

} // namespace

void print_summary(const std::vector<table>& tables) {
    text_lines lines{{"all, and how many times as much the others take", "bide"}};
    for (const peer& p : peers) {
        lines.front().push_back(p.heading);
    }
    std::string losses;
    for (const table& t : tables) {
        for (const row& r : t.rows) {
            if (r.name.starts_with(bide_row)) {
                add_lines(lines, losses, t, r);
            }
        }
    }
    std::printf("\n");
    print_aligned(lines);
    std::printf("\nwhere bide takes more, and how many times as much\n%s", losses.c_str());
}

} // namespace bench
