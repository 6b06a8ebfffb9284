// What the channel has promised to cost, against what it does cost.

#include "channel/targets.hpp"

#include "support/stats.hpp"
#include "support/table.hpp"
#include "support/verdicts.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace bench {
namespace {

constexpr const char* bide = "bide::channel";
constexpr const char* batches = "bide::channel, batches";
constexpr const char* crossbeam = "crossbeam-channel";
constexpr const char* tbb = "tbb::concurrent_bounded_queue";

// Of the first column: subject over baseline, the geometric mean over tables.
struct target {
    std::vector<const char*> tables;
    const char* subject;
    const char* baseline;
    double limit;
};

std::vector<target> all_targets() {
    const std::vector<const char*> medium = {"mpsc/capacity=128", "mpmc/capacity=128",
                                             "mpsc/capacity=1024", "mpmc/capacity=1024"};
    return {
        {{"seq/capacity=N"}, bide, crossbeam, 0.75},
        {{"seq/capacity=128"}, bide, crossbeam, 0.75},
        {{"seq/capacity=N"}, bide, tbb, 0.55},
        {{"seq/capacity=128"}, bide, tbb, 0.55},
        {{"ping-pong/two-processors"}, bide, crossbeam, 0.2},
        {{"spsc/capacity=1", "mpsc/capacity=1", "mpmc/capacity=1"}, bide, crossbeam, 0.4},
        {{"spsc/capacity=0", "mpsc/capacity=0", "mpmc/capacity=0"}, bide, crossbeam, 0.15},
        {medium, bide, crossbeam, 1.05},
        {medium, bide, tbb, 0.1},
        {{"spsc/capacity=N", "mpsc/capacity=N", "mpmc/capacity=N"}, bide, crossbeam, 0.95},
        {{"batch/one-thread"}, batches, crossbeam, 0.22},
        {{"batch/two-threads"}, batches, crossbeam, 0.22},
        {{"select_rx/capacity=N"}, bide, crossbeam, 0.75},
        {{"select_both/capacity=N"}, bide, crossbeam, 0.75},
    };
}

const table* find_table(const std::vector<table>& tables, const std::string& name) {
    const auto same = [&](const table& t) { return t.name == name; };
    const auto found = std::find_if(tables.begin(), tables.end(), same);
    return found == tables.end() ? nullptr : &*found;
}

// Not measured where one of the rows was not run.
verdict judge(const target& wanted, const std::vector<table>& tables) {
    std::string names;
    double logarithms = 0;
    bool noisy = false;
    for (const char* name : wanted.tables) {
        names += (names.empty() ? "" : ", ") + std::string(name);
        const table* t = find_table(tables, name);
        const row* subject = t == nullptr ? nullptr : t->find_row(wanted.subject);
        const row* baseline = t == nullptr ? nullptr : t->find_row(wanted.baseline);
        const bool known = subject != nullptr && baseline != nullptr;
        logarithms += known ? std::log(median(ratios(*subject, *baseline, 0))) : not_measured;
        noisy = noisy || (known && (subject->is_noisy() || baseline->is_noisy()));
    }
    verdict v{names + ": " + wanted.subject + " / " + wanted.baseline, relation::at_most,
              wanted.limit};
    v.measured = std::exp(logarithms / static_cast<double>(wanted.tables.size()));
    v.noisy = noisy;
    return v;
}

// One processor against two. They are different tables, whose rounds do not belong together.
verdict judge_one_processor(const char* name, const std::vector<table>& tables) {
    verdict v{std::string(name) + ": " + bide + " / the same on two processors", relation::at_most,
              3};
    const table* two = find_table(tables, "ping-pong/two-processors");
    const table* one = find_table(tables, name);
    const row* baseline = two == nullptr ? nullptr : two->find_row(bide);
    const row* subject = one == nullptr ? nullptr : one->find_row(bide);
    if (subject != nullptr && baseline != nullptr) {
        v.measured = median(values(*subject, 0)) / median(values(*baseline, 0));
        v.noisy = subject->is_noisy() || baseline->is_noisy();
    }
    return v;
}

} // namespace

std::vector<verdict> judge_all(const std::vector<table>& tables) {
    std::vector<verdict> all;
    for (const target& wanted : all_targets()) {
        all.push_back(judge(wanted, tables));
    }
    all.push_back(judge_one_processor("ping-pong/one-processor", tables));
    all.push_back(judge_one_processor("ping-pong/pinned-to-the-same", tables));
    return all;
}

} // namespace bench
