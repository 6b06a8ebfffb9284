// All workloads in one table: what won and what lost.

#include "channel/targets.hpp"
#include "support/report.hpp"
#include "support/stats.hpp"
#include "support/table.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace bench {
namespace {

constexpr const char* bide = "bide::channel";

struct peer {
    const char* row; // or how its name begins
    const char* heading;
};

constexpr peer peers[] = {
    {"crossbeam-channel", "crossbeam"},
    {"tbb::concurrent_bounded_queue", "TBB"},
    {"mutex and condition_variable", "mutex+cv"},
    {"boost::fibers channel", "Boost.Fiber"},
    {"atomic_queue", "atomic_queue"},
    {"moodycamel", "moodycamel"},
};

const row* find_peer(const table& t, const peer& p) {
    const auto same = [&](const row& r) { return r.name.starts_with(p.row); };
    const auto found = std::find_if(t.rows.begin(), t.rows.end(), same);
    return found == t.rows.end() ? nullptr : &*found;
}

double median_of(const row* r) { return r == nullptr ? not_measured : median(values(*r, 0)); }

std::string ratio_to(const row& subject, const row* baseline) {
    return baseline == nullptr ? "-" : number(median(ratios(subject, *baseline, 0)), 2) + 'x';
}

// Which contender was faster, and by how much.
std::string beaten_by(const table& t, const row& subject) {
    std::string all;
    for (const peer& p : peers) {
        const row* const other = find_peer(t, p);
        const double ratio = other == nullptr ? not_measured : median(ratios(subject, *other, 0));
        if (ratio > 1) {
            all +=
                (all.empty() ? "" : ", ") + std::string(p.heading) + ' ' + number(ratio, 2) + 'x';
        }
    }
    return all;
}

std::vector<std::string> line_of(const table& t, const row& subject) {
    std::vector<std::string> line{(subject.is_noisy() ? "! " : "  ") + t.name};
    const int digits = t.columns.front().digits;
    std::string name =
        subject.name == bide ? "" : subject.name.substr(std::string(bide).size() + 2);
    line.front() += name.empty() ? "" : " (" + name + ")";
    line.push_back(number(median_of(&subject), digits));
    for (const peer& p : peers) {
        line.push_back(number(median_of(find_peer(t, p)), digits));
    }
    line.push_back(ratio_to(subject, find_peer(t, peers[0])));
    line.push_back(ratio_to(subject, find_peer(t, peers[1])));
    return line;
}

} // namespace

void print_summary(const std::vector<table>& tables) {
    text_lines lines{{"all, ns", "bide"}};
    for (const peer& p : peers) {
        lines.front().push_back(p.heading);
    }
    lines.front().insert(lines.front().end(), {"/crossbeam", "/TBB"});
    std::string losses;
    for (const table& t : tables) {
        for (const row& r : t.rows) {
            if (r.name.starts_with(bide)) {
                lines.push_back(line_of(t, r));
                const std::string others = beaten_by(t, r);
                losses += others.empty() ? "" : lines.back().front() + ": " + others + '\n';
            }
        }
    }
    std::printf("\n");
    print_aligned(lines);
    std::printf("\nwhere bide is slower, and how many times\n%s", losses.c_str());
}

} // namespace bench
