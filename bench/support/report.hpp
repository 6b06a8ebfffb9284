#ifndef BIDE_BENCH_SUPPORT_REPORT_HPP
#define BIDE_BENCH_SUPPORT_REPORT_HPP

// What was measured, for people and for programs.

#include "support/host.hpp"
#include "support/json.hpp"
#include "support/options.hpp"
#include "support/stats.hpp"
#include "support/table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace bench {

inline void print_host(const host_info& host, const options& opts) {
    std::printf("host      %s, %d cores, %s, nice %d\n", host.cpu.c_str(), host.cores,
                host.kernel.c_str(), host.nice);
    std::printf("build     %s, %s\n", host.compiler.c_str(), host.flags.c_str());
    std::printf("run       %d repetitions%s, pinned to %s\n", opts.repetitions(),
                opts.quick ? " (quick)" : "", to_string(opts.cpus).c_str());
    std::printf("values    medians; [smallest to largest]; (ratio to the first row: median of the\n"
                "          rounds' ratios); !: others used the processors in most rounds\n");
}

inline std::string number(double value, int digits) {
    if (value != value) {
        return "-";
    }
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

// "15.02 [14.90 to 15.80] (1.00x)": the spread for the first column only, to keep lines readable.
inline std::string cell(const table& t, const row& r, std::size_t index) {
    const column& c = t.columns[index];
    const std::vector<double> all = values(r, index);
    std::string text = number(median(all), c.digits);
    if (index == 0 && smallest(all) < largest(all)) {
        text += " [" + number(smallest(all), c.digits) + " to " + number(largest(all), c.digits);
        text += "]";
    }
    if (c.with_ratio) {
        const double ratio = median(ratios(r, t.rows.front(), index));
        text += " (" + number(ratio, ratio < 0.1 ? 4 : 2) + "x)";
    }
    return text;
}

using text_lines = std::vector<std::vector<std::string>>; // cells of lines

inline text_lines lay_out(const table& t) {
    text_lines lines{{t.name}};
    for (const column& c : t.columns) {
        lines.front().push_back(c.unit.empty() ? c.name : c.name + ", " + c.unit);
    }
    for (const row& r : t.rows) {
        lines.push_back({(r.is_noisy() ? "! " : "  ") + r.name});
        for (std::size_t i = 0; i < t.columns.size(); ++i) {
            lines.back().push_back(cell(t, r, i));
        }
    }
    return lines;
}

inline void print_aligned(const text_lines& lines) {
    std::vector<std::size_t> widths(lines.front().size());
    for (const auto& line : lines) {
        for (std::size_t i = 0; i < line.size(); ++i) {
            widths[i] = std::max(widths[i], line[i].size());
        }
    }
    for (const auto& line : lines) {
        std::printf("%-*s", static_cast<int>(widths[0]), line[0].c_str());
        for (std::size_t i = 1; i < line.size(); ++i) {
            std::printf("  %*s", static_cast<int>(widths[i]), line[i].c_str());
        }
        std::printf("\n");
    }
}

inline void print_table(const table& t) {
    std::printf("\n");
    if (!t.note.empty()) {
        std::printf("# %s\n", t.note.c_str());
    }
    print_aligned(lay_out(t));
    std::fflush(stdout);
}

inline void write_row(json_writer& json, const table& t, const row& r) {
    json.begin_object().member("name", r.name).member("noisy", r.is_noisy());
    json.key("columns").begin_array();
    for (std::size_t i = 0; i < t.columns.size(); ++i) {
        const std::vector<double> all = values(r, i);
        const std::vector<double> relative = ratios(r, t.rows.front(), i);
        json.begin_object()
            .member("name", t.columns[i].name)
            .member("unit", t.columns[i].unit)
            .member("median", median(all))
            .member("min", smallest(all))
            .member("max", largest(all))
            .member("ratio", median(relative))
            .member("ratio_min", smallest(relative))
            .member("ratio_max", largest(relative))
            .member("samples", all)
            .end_object();
    }
    json.end_array().end_object();
}

inline void write_tables(json_writer& json, const std::vector<table>& tables) {
    json.key("tables").begin_array();
    for (const table& t : tables) {
        json.begin_object().member("name", t.name).member("note", t.note);
        json.key("rows").begin_array();
        for (const row& r : t.rows) {
            write_row(json, t, r);
        }
        json.end_array().end_object();
    }
    json.end_array();
}

inline void write_host(json_writer& json, const host_info& host, const options& opts) {
    json.key("host").begin_object();
    json.member("cpu", host.cpu).member("cores", static_cast<double>(host.cores));
    json.member("kernel", host.kernel).member("compiler", host.compiler);
    json.member("flags", host.flags).member("nice", static_cast<double>(host.nice));
    json.end_object();
    json.member("repetitions", static_cast<double>(opts.repetitions()));
    json.member("quick", opts.quick).member("cpus", to_string(opts.cpus));
}

} // namespace bench

#endif
