#ifndef BIDE_BENCH_SUPPORT_HARNESS_HPP
#define BIDE_BENCH_SUPPORT_HARNESS_HPP

// Measures tables. Ratios come from rounds: in each, every row of a table is measured once, so that
// what drifts on the machine meets all of them. Every other round goes backwards.

#include "support/child.hpp"
#include "support/cpus.hpp"
#include "support/foreign_time.hpp"
#include "support/options.hpp"
#include "support/table.hpp"
#include "support/watchdog.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace bench {

// What a row needs to know to measure once.
struct setting {
    cpu_list cpus;
    std::chrono::milliseconds duration;
};

class harness {
public:
    // A row in a process of its own ends itself before the process that waits for it does.
    explicit harness(options opts)
        : options_(std::move(opts)),
          watchdog_(std::chrono::seconds(options_.row.empty() ? 90 : 60)) {}

    const options& opts() const { return options_; }
    const std::vector<table>& tables() const { return tables_; }

    setting make_setting(int full_ms, int quick_ms) const {
        return {options_.cpus, std::chrono::milliseconds(options_.quick ? quick_ms : full_ms)};
    }

    // Keeps the rows that are wanted and, where there are any, the baseline.
    void add(table t) {
        const auto wanted = [&](const row& r) { return options_.wants(full_name(t, r)); };
        if (std::none_of(t.rows.begin(), t.rows.end(), wanted)) {
            return;
        }
        const auto unwanted = [&](const row& r) { return !wanted(r); };
        t.rows.erase(std::remove_if(t.rows.begin() + 1, t.rows.end(), unwanted), t.rows.end());
        tables_.push_back(std::move(t));
    }

    // Measures all; `show` sees each table as soon as it is complete.
    template <class Show> void run(Show show) {
        for (table& t : tables_) {
            for (int round = 0; round < options_.repetitions(); ++round) {
                measure_round(t, round % 2 == 1);
            }
            show(t);
        }
    }

    // Measures the row of this name in this process, once.
    sample run_row(const std::string& name) {
        for (table& t : tables_) {
            for (row& r : t.rows) {
                if (full_name(t, r) == name) {
                    watchdog_.begin(name);
                    return r.measure();
                }
            }
        }
        throw usage_error("--row: there is no " + name);
    }

    static std::string full_name(const table& t, const row& r) { return t.name + '/' + r.name; }

private:
    struct attempt {
        sample measured;
        bool clean; // no other program disturbed it
    };

    void measure_round(table& t, bool backwards) {
        const std::size_t count = t.rows.size();
        for (std::size_t i = 0; i < count; ++i) {
            row& r = t.rows[backwards ? count - 1 - i : i];
            attempt last = measure(t, r);
            if (!last.clean) {
                last = measure(t, r);
            }
            r.samples.push_back(std::move(last.measured));
            r.clean.push_back(last.clean);
        }
    }

    attempt measure(const table& t, const row& r) {
        const std::string name = full_name(t, r);
        watchdog_.begin(name);
        const foreign_time others;
        sample measured =
            r.where == placement::here ? r.measure() : measure_in_child(options_, name, r.where);
        return {std::move(measured), !others.was_disturbed()};
    }

    options options_;
    watchdog watchdog_;
    std::vector<table> tables_;
};

} // namespace bench

#endif
