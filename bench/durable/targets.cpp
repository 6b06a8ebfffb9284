// What the durable locks have promised, against what they do.

#include "durable/targets.hpp"

#include "durable/contenders.hpp"
#include "support/stats.hpp"
#include "support/table.hpp"
#include "support/verdicts.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

// Of one row, or of each row of ours (nullptr), in a column of a table whose name begins so.
struct promise {
    const char* table;
    const char* row;
    const char* column;
    const char* words;
    relation wanted;
    double limit;
    const char* unit;
    bool worst_round; // or the median of them
};

constexpr promise promises[] = {
    {"contended/16", nullptr, "writes", "writes an acquisition", relation::at_most, 4, "", false},
    {"contended/16", "file", "fairness", "slowest / fastest", relation::at_least, 0.9, "", false},
    {"contended/16", nullptr, "overtaken", "overtaken", relation::at_most, 0, "", true},
    {"herd/", nullptr, "writes", "writes of one release", relation::at_most, 2, "", true},
    {"recovery/process", "file", "p50", "next holder after a kill", relation::at_most, 10, " ms",
     false},
};

class judge {
public:
    explicit judge(const std::vector<table>& tables) : tables_(tables) {}

    std::vector<verdict> all() {
        for (const table& t : tables_) {
            if (t.name == "slot") {
                judge_floor(t);
            }
            for (const promise& p : promises) {
                if (t.name.starts_with(p.table)) {
                    judge_promise(t, p);
                }
            }
        }
        return std::move(verdicts_);
    }

private:
    void judge_floor(const table& t) {
        if (const row* const file = t.find_row("file")) {
            verdicts_.push_back({"slot: file, CAS p50 / one page and fdatasync", relation::at_most,
                                 1.3, median(ratios(*file, t.rows.front(), 0)), "x",
                                 file->is_noisy()});
        }
    }

    void judge_promise(const table& t, const promise& p) {
        for (const row& r : t.rows) {
            if (p.row != nullptr && r.name != p.row) {
                continue;
            }
            const std::vector<double> found = values(r, t.column_index(p.column));
            if (r.name != flock_row && r.name != advisory_row) {
                verdicts_.push_back({t.name + ": " + r.name + ", " + p.words, p.wanted, p.limit,
                                     p.worst_round ? largest(found) : median(found), p.unit,
                                     r.is_noisy()});
            }
        }
    }

    const std::vector<table>& tables_;
    std::vector<verdict> verdicts_;
};

} // namespace

std::vector<verdict> judge_all(const std::vector<table>& tables) { return judge(tables).all(); }

} // namespace bench
