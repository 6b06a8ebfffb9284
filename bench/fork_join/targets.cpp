// What fork-join has promised to cost, against what it does cost.

#include "fork_join/targets.hpp"

#include "fork_join/pools.hpp"
#include "fork_join/rayon.hpp"
#include "support/stats.hpp"
#include "support/table.hpp"
#include "support/verdicts.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

// By how many times the peer takes longer: the median of the rounds' ratios.
struct speed_target {
    const char* table; // or the one of this name before the '/', where only a smaller one was run
    const char* peer;
    double times;
};

constexpr speed_target speed_targets[] = {
    {"fib/37", rayon_row, 3},     {"fib/37", tbb_row, 29},        {"skynet/1e8", tbb_row, 10},
    {"nqueens/14", tbb_row, 1.4}, {"matmul/1024", tbb_row, 0.98}, {"tree/10", rayon_row, 3.5},
    {"tree/15", rayon_row, 2.8},  {"tree/20", rayon_row, 2.9},
};

class judge {
public:
    explicit judge(const std::vector<table>& tables) : tables_(tables) {}

    std::vector<verdict> all() {
        for (const speed_target& wanted : speed_targets) {
            if (const table* t = find(wanted.table)) {
                judge_speed(*t, wanted.peer, wanted.times);
            }
        }
        for (const table& t : tables_) {
            if (t.name.starts_with("sort_")) {
                for (const char* peer : {rayon_row, tbb_row, std_row}) {
                    judge_speed(t, peer, 1);
                }
            }
        }
        if (const table* t = find("fib/37")) {
            judge_fork(*t);
        }
        for (const table& t : tables_) {
            if (!t.name.starts_with("scope/")) { // a spawn is not a call
                judge_one_worker(t);
            }
        }
        return std::move(verdicts_);
    }

private:
    // The table, or else the last one of its kind, or nothing.
    const table* find(const std::string& name) const {
        const table* found = nullptr;
        for (const table& t : tables_) {
            if (t.name == name) {
                return &t;
            }
            if (!name.starts_with("tree/") && t.name.starts_with(name.substr(0, name.find('/')))) {
                found = &t;
            }
        }
        return found;
    }

    static double ratio(const row* subject, const row* baseline) {
        return subject == nullptr || baseline == nullptr ? not_measured
                                                         : median(ratios(*subject, *baseline, 0));
    }

    static bool is_noisy(std::initializer_list<const row*> rows) {
        return std::any_of(rows.begin(), rows.end(),
                           [](const row* r) { return r != nullptr && r->is_noisy(); });
    }

    void add(verdict v, double measured, bool noisy) {
        v.measured = measured;
        v.noisy = noisy;
        verdicts_.push_back(std::move(v));
    }

    void judge_speed(const table& t, const char* peer_row, double times) {
        const row* const ours = t.find_row(bide_row);
        const row* const peer = t.find_row(peer_row);
        add({t.name + ": " + peer_row + " / bide", relation::at_least, times},
            1 / ratio(ours, peer), is_noisy({ours, peer}));
    }

    void judge_fork(const table& t) {
        const std::size_t column = 2;
        for (const char* name : {bide_row, bide_one_row}) {
            if (const row* const ours = t.find_row(name)) {
                add({t.name + ": " + name + ", core time a fork", relation::at_most, 4,
                     not_measured, " ns"},
                    median(values(*ours, column)), is_noisy({ours}));
            }
        }
    }

    void judge_one_worker(const table& t) {
        const row* const one = t.find_row(bide_one_row);
        const row* const serial = t.find_row(serial_row);
        // No work at all is free in the serial row, and nowhere else.
        if (one != nullptr && t.name != "pipeline/cheap") {
            add({t.name + ": bide, one worker / serial", relation::at_most, 1.1},
                ratio(one, serial), is_noisy({one, serial}));
        }
    }

    const std::vector<table>& tables_;
    std::vector<verdict> verdicts_;
};

} // namespace

std::vector<verdict> judge_all(const std::vector<table>& tables) { return judge(tables).all(); }

} // namespace bench
