// What the locks and semaphores have promised to cost, against what they do cost.

#include "sync/targets.hpp"

#include "support/report.hpp"
#include "support/stats.hpp"
#include "support/table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace bench {
namespace {

enum class relation { at_most, at_least };
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

    {"notify/nobody-asleep", "bide::event_count", "call", "", at_most, 5.5},
    {"notify/nobody-asleep", "bide::event_count", "call", "std::mutex + condition_variable",
     at_most, 0.4},

    {"sizes", "bide::semaphore", "size", "", at_most, 16},
    {"sizes", "bide::mutex", "size", "", at_most, 16},
    {"sizes", "bide::adaptive_mutex", "size", "", at_most, 16},
    {"sizes", "bide::shared_mutex", "size", "", at_most, 32},
    {"sizes", "bide::semaphore::waiter", "size", "", at_most, 64},
};

struct verdict {
    double measured;
    std::string unit;
    bool noisy;
    bool met;
};

double picked(const target& wanted, const std::vector<double>& all) {
    if (wanted.which == pick::median) {
        return median(all);
    }
    return wanted.wanted == at_most ? largest(all) : smallest(all);
}

// Not a number where the rows were not run.
verdict judge(const target& wanted, const std::vector<table>& tables) {
    const auto same = [&](const table& t) { return t.name == wanted.table; };
    const auto t = std::find_if(tables.begin(), tables.end(), same);
    const bool absolute = *wanted.baseline == '\0';
    const row* subject = t == tables.end() ? nullptr : t->find_row(wanted.row);
    const row* baseline = subject == nullptr || absolute ? subject : t->find_row(wanted.baseline);
    if (baseline == nullptr) {
        return {not_measured, "", false, false};
    }
    const std::size_t column = t->column_index(wanted.column);
    const double measured =
        picked(wanted, absolute ? values(*subject, column) : ratios(*subject, *baseline, column));
    const bool met = wanted.wanted == at_most ? measured <= wanted.limit : measured >= wanted.limit;
    const std::string unit = absolute ? ' ' + t->columns[column].unit : "x";
    return {measured, unit, subject->is_noisy() || baseline->is_noisy(), met};
}

const char* sign(const target& wanted) { return wanted.wanted == at_most ? "<=" : ">="; }

std::string describe(const target& wanted) {
    const std::string subject =
        std::string(wanted.table) + ": " + wanted.row + ", " + wanted.column;
    return *wanted.baseline == '\0' ? subject : subject + " / " + wanted.baseline;
}

const char* name_of(const verdict& v) {
    return v.measured != v.measured ? "not measured" : v.met ? "met" : "NOT MET";
}

} // namespace

void print_targets(const std::vector<table>& tables) {
    int met = 0;
    int judged = 0;
    std::printf("\ntargets (median of rounds; overtakes: the worst round)\n");
    for (const target& wanted : targets) {
        const verdict v = judge(wanted, tables);
        const bool known = v.measured == v.measured;
        judged += known ? 1 : 0;
        met += v.met ? 1 : 0;
        std::printf("  %-12s %8s%-9s %s %-6g %s%s\n", name_of(v), number(v.measured, 3).c_str(),
                    v.unit.c_str(), sign(wanted), wanted.limit, describe(wanted).c_str(),
                    v.noisy ? " (noisy)" : "");
    }
    std::printf("%d of %d measured targets met\n", met, judged);
}

void write_targets(json_writer& json, const std::vector<table>& tables) {
    json.key("targets").begin_array();
    for (const target& wanted : targets) {
        const verdict v = judge(wanted, tables);
        json.begin_object()
            .member("target", describe(wanted))
            .member("relation", sign(wanted))
            .member("limit", wanted.limit)
            .member("measured", v.measured)
            .member("noisy", v.noisy)
            .member("verdict", name_of(v))
            .end_object();
    }
    json.end_array();
}

} // namespace bench
