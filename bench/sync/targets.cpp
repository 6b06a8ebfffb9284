// What the locks and semaphores have promised to cost, against what they do cost.

#include "sync/targets.hpp"

#include "support/stats.hpp"
#include "support/table.hpp"
#include "support/verdicts.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace bench {
namespace {

enum class pick { median, worst }; // of the rounds: the worst where one exception breaks a promise

struct target {
    const char* table;
    const char* row;
    const char* column;
    const char* baseline; // row of the same table that the value is divided by; "": none
    relation wanted;
    double limit;
    pick which = pick::median;
};

constexpr auto at_most = relation::at_most;
constexpr auto at_least = relation::at_least;

constexpr target targets[] = {
    {"uncontended/lock", "bide::mutex", "pair", "std::mutex", at_most, 0.80},
    {"uncontended/lock", "bide::mutex", "pair", "floor: two known-value CAS", at_most, 1.05},
    {"uncontended/semaphore", "bide::semaphore", "pair", "std::mutex", at_most, 1.25},
    {"uncontended/shared", "bide::shared_mutex", "pair", "std::shared_mutex", at_most, 1.0},
    {"uncontended/coroutine", "bide::mutex, async_lock", "pair", "bide::mutex", at_most, 1.6},

    {"handoff/two-processors", "bide::semaphore, never spinning", "one way",
     "raw futex, always waking", at_most, 1.05},
    {"handoff/two-processors", "bide::semaphore", "one way", "raw futex, always waking", at_most,
     0.05},
    {"handoff/two-processors", "bide::mutex + condition_variable, never spinning", "one way",
     "raw futex, always waking", at_most, 1.1},
    {"handoff/two-processors", "bide::mutex + condition_variable", "one way",
     "raw futex, always waking", at_most, 0.05},
    {"handoff/two-processors", "bide::notify, never spinning", "one way",
     "raw futex, always waking", at_most, 1.1},
    {"handoff/two-processors", "bide::notify", "one way", "raw futex, always waking", at_most,
     0.05},
    {"handoff/one-processor", "bide::semaphore", "one way", "raw futex, always waking", at_most,
     1.3},
    {"handoff/pinned-to-the-same", "bide::semaphore", "one way", "raw futex, always waking",
     at_most, 1.3},

    {"contended/T=2,cs=100ns", "bide::mutex", "Jain", "", at_least, 0.99},
    {"contended/T=4,cs=100ns", "bide::mutex", "Jain", "", at_least, 0.99},
    {"contended/T=8,cs=100ns", "bide::mutex", "Jain", "", at_least, 0.99},
    {"order/queued=1", "bide::mutex", "overtakes", "", at_most, 0, pick::worst},
    {"order/queued=3", "bide::mutex", "overtakes", "", at_most, 0, pick::worst},
    {"order/queued=7", "bide::mutex", "overtakes", "", at_most, 0, pick::worst},
    {"contended/T=2,cs=100ns", "bide::mutex", "throughput", "std::mutex", at_least, 0.65},
    {"contended/T=2,cs=1000ns", "bide::mutex", "throughput", "std::mutex", at_least, 1.2},

    {"contended/T=2,cs=100ns", "bide::adaptive_mutex", "throughput", "std::mutex", at_least, 1.15},
    {"contended/T=2,cs=100ns", "bide::adaptive_mutex", "p99.9", "std::mutex", at_most, 0.35},
    {"contended/T=4,cs=100ns", "bide::adaptive_mutex", "throughput", "std::mutex", at_least, 0.9},
    {"contended/T=8,cs=100ns", "bide::adaptive_mutex", "throughput", "std::mutex", at_least, 0.8},
    {"contended/T=8,cs=100ns", "bide::adaptive_mutex", "J10", "", at_least, 0.95},
    {"contended/T=8,cs=100ns", "bide::adaptive_mutex", "longest", "std::mutex", at_most, 0.35},

    {"notify/no-sleeper", "bide::event_count", "call", "", at_most, 5.5},
    {"notify/no-sleeper", "bide::event_count", "call", "std::mutex + condition_variable", at_most,
     0.4},

    {"readers/T=2,writes=0", "bide::biased_shared_mutex", "throughput", "std::shared_mutex",
     at_least, 8},

    {"barrier/two-threads", "bide::barrier", "phase", "std::barrier", at_most, 1.0},

    {"sizes", "bide::semaphore", "size", "", at_most, 16},
    {"sizes", "bide::mutex", "size", "", at_most, 16},
    {"sizes", "bide::adaptive_mutex", "size", "", at_most, 16},
    {"sizes", "bide::shared_mutex", "size", "", at_most, 32},
    {"sizes", "bide::condition_variable", "size", "", at_most, 16},
    {"sizes", "bide::notify", "size", "", at_most, 16},
    {"sizes", "bide::semaphore::waiter", "size", "", at_most, 64},
};

double picked(const target& wanted, const std::vector<double>& all) {
    if (wanted.which == pick::median) {
        return median(all);
    }
    return wanted.wanted == at_most ? largest(all) : smallest(all);
}

std::string describe(const target& wanted) {
    const std::string subject =
        std::string(wanted.table) + ": " + wanted.row + ", " + wanted.column;
    return *wanted.baseline == '\0' ? subject : subject + " / " + wanted.baseline;
}

// Not measured where the rows were not run.
verdict judge(const target& wanted, const std::vector<table>& tables) {
    verdict v{describe(wanted), wanted.wanted, wanted.limit};
    const auto same = [&](const table& t) { return t.name == wanted.table; };
    const auto t = std::find_if(tables.begin(), tables.end(), same);
    const bool absolute = *wanted.baseline == '\0';
    const row* subject = t == tables.end() ? nullptr : t->find_row(wanted.row);
    const row* baseline = subject == nullptr || absolute ? subject : t->find_row(wanted.baseline);
    if (baseline == nullptr) {
        return v;
    }
    const std::size_t column = t->column_index(wanted.column);
    v.measured =
        picked(wanted, absolute ? values(*subject, column) : ratios(*subject, *baseline, column));
    v.unit = absolute ? ' ' + t->columns[column].unit : "x";
    v.noisy = subject->is_noisy() || baseline->is_noisy();
    return v;
}

} // namespace

std::vector<verdict> judge_all(const std::vector<table>& tables) {
    std::vector<verdict> all;
    for (const target& wanted : targets) {
        all.push_back(judge(wanted, tables));
    }
    return all;
}

} // namespace bench
