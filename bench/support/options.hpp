#ifndef BIDE_BENCH_SUPPORT_OPTIONS_HPP
#define BIDE_BENCH_SUPPORT_OPTIONS_HPP

// The command line of a benchmark program.

#include "support/cpus.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <regex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace bench {

inline constexpr const char* usage_text =
    "usage: %s [options]\n"
    "  --quick            short runs, three repetitions, fewer workloads: a check that it works\n"
    "  --filter REGEX     only rows whose TABLE/ROW matches (and the first row of their tables)\n"
    "  --repetitions N    how often each row is measured, 1 to 1000 (7; 3 with --quick)\n"
    "  --cpu-list LIST    processors to pin threads to, as in 0,2-4 (all that are allowed)\n"
    "  --json FILE        write every sample to FILE as well\n"
    "  --svg FILE         draw the medians to FILE as well\n"
    "  --list             print the names of all rows and stop\n"
    "  --row TABLE/ROW    measure one row once and print its bare numbers (how the program calls\n"
    "                     itself for rows that need a process of their own)\n"
    "  --help             this\n"
    "For numbers worth quoting leave the machine alone and run it as `nice -n -10 %s`.\n"
    "What is measured while other programs use the processors is measured again once, and\n"
    "marked where that did not help. A full run takes about a quarter of an hour.\n";

struct options {
    bool quick = false;
    bool list = false;
    bool help = false;
    std::optional<int> repetitions_given;
    std::optional<std::string> filter_given;
    std::string json;
    std::string svg;
    std::string row;
    cpu_list cpus = allowed_cpus();

    int repetitions() const { return repetitions_given.value_or(quick ? 3 : 7); }
    bool wants(const std::string& row_name) const {
        return !filter_given || std::regex_search(row_name, filter);
    }

    std::regex filter;
};

// What is wrong with the command line.
class usage_error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

class option_parser {
public:
    option_parser(int argc, char** argv) : argc_(argc), argv_(argv) {}

    options parse() {
        while (next_ < argc_) {
            take(argv_[next_++]);
        }
        return parsed_;
    }

private:
    void take(std::string_view name) {
        if (name == "--quick") {
            parsed_.quick = true;
        } else if (name == "--list") {
            parsed_.list = true;
        } else if (name == "--help" || name == "-h") {
            parsed_.help = true;
        } else if (name == "--filter") {
            take_filter(value_of(name));
        } else if (name == "--repetitions") {
            take_repetitions(value_of(name));
        } else if (name == "--cpu-list") {
            take_cpus(value_of(name));
        } else if (name == "--json") {
            parsed_.json = value_of(name);
        } else if (name == "--svg") {
            parsed_.svg = value_of(name);
        } else if (name == "--row") {
            parsed_.row = value_of(name);
        } else {
            throw usage_error("unknown option " + std::string(name));
        }
    }

    std::string value_of(std::string_view name) {
        if (next_ == argc_) {
            throw usage_error(std::string(name) + " needs a value");
        }
        return argv_[next_++];
    }

    void take_filter(const std::string& text) {
        try {
            parsed_.filter = std::regex(text);
        } catch (const std::regex_error&) {
            throw usage_error("--filter: not a regular expression: " + text);
        }
        parsed_.filter_given = text;
    }

    void take_repetitions(const std::string& text) {
        int count = 0;
        const auto end = text.data() + text.size();
        const auto [rest, error] = std::from_chars(text.data(), end, count);
        if (error != std::errc() || rest != end || count < 1 || count > 1000) {
            throw usage_error("--repetitions: not a number from 1 to 1000: " + text);
        }
        parsed_.repetitions_given = count;
    }

    void take_cpus(const std::string& text) {
        parsed_.cpus = parse_cpu_list(text);
        if (parsed_.cpus.empty()) {
            throw usage_error("--cpu-list: not a list of processors: " + text);
        }
        for (const int cpu : parsed_.cpus) {
            if (!may_run_on(cpu)) {
                throw usage_error("--cpu-list: may not run on processor " + std::to_string(cpu));
            }
        }
    }

    static bool may_run_on(int cpu) {
        const cpu_list allowed = allowed_cpus();
        return std::find(allowed.begin(), allowed.end(), cpu) != allowed.end();
    }

    int argc_;
    char** argv_;
    int next_ = 1;
    options parsed_;
};

} // namespace bench

#endif
