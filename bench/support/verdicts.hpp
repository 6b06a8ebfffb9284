#ifndef BIDE_BENCH_SUPPORT_VERDICTS_HPP
#define BIDE_BENCH_SUPPORT_VERDICTS_HPP

// Targets of the project, and what was measured for them.

#include "support/json.hpp"
#include "support/report.hpp"
#include "support/stats.hpp"

#include <cstdio>
#include <string>
#include <vector>

namespace bench {

enum class relation { at_most, at_least };

struct verdict {
    std::string target; // in words
    relation wanted;
    double limit;
    double measured = not_measured;
    std::string unit = "x";
    bool noisy = false;

    bool is_known() const { return measured == measured; }
    bool is_met() const {
        return wanted == relation::at_most ? measured <= limit : measured >= limit;
    }
    const char* sign() const { return wanted == relation::at_most ? "<=" : ">="; }
    const char* name() const { return !is_known() ? "not measured" : is_met() ? "met" : "NOT MET"; }
};

inline void print_verdicts(const char* heading, const std::vector<verdict>& verdicts) {
    int met = 0;
    int known = 0;
    std::printf("\n%s\n", heading);
    for (const verdict& v : verdicts) {
        known += v.is_known() ? 1 : 0;
        met += v.is_met() ? 1 : 0;
        std::printf("  %-12s %8s%-9s %s %-6g %s%s\n", v.name(), number(v.measured, 3).c_str(),
                    v.unit.c_str(), v.sign(), v.limit, v.target.c_str(), v.noisy ? " (noisy)" : "");
    }
    std::printf("%d of %d measured targets met\n", met, known);
}

inline void write_verdicts(json_writer& json, const std::vector<verdict>& verdicts) {
    json.key("targets").begin_array();
    for (const verdict& v : verdicts) {
        json.begin_object()
            .member("target", v.target)
            .member("relation", v.sign())
            .member("limit", v.limit)
            .member("measured", v.measured)
            .member("noisy", v.noisy)
            .member("verdict", v.name())
            .end_object();
    }
    json.end_array();
}

} // namespace bench

#endif
