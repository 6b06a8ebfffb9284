#ifndef BIDE_BENCH_SUPPORT_PROGRAM_HPP
#define BIDE_BENCH_SUPPORT_PROGRAM_HPP

// What the main() of every benchmark program does.

#include "support/chart.hpp"
#include "support/harness.hpp"
#include "support/host.hpp"
#include "support/json.hpp"
#include "support/options.hpp"
#include "support/report.hpp"
#include "support/table.hpp"
#include "support/verdicts.hpp"

#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace bench {

// What is particular to one.
struct program {
    const char* title;
    const char* about_targets; // how they are judged
    void (*add_all)(harness&);
    std::vector<verdict> (*judge)(const std::vector<table>&);
    void (*print_peers)() = [] {}; // below the host
    void (*print_summary)(const std::vector<table>&) = [](const std::vector<table>&) {};
};

class program_run {
public:
    program_run(const program& p, const options& opts, std::string command)
        : program_(p), options_(opts), command_(std::move(command)) {}

    void run() {
        // Opened before anything is measured: a quarter of an hour is long for a misspelt path.
        open(json_, "--json", options_.json);
        open(svg_, "--svg", options_.svg);
        harness h(options_);
        program_.add_all(h);
        if (h.tables().empty()) {
            throw usage_error("--filter: no row matches " + *options_.filter_given);
        }
        if (options_.list) {
            list_rows(h);
        } else if (!options_.row.empty()) {
            print_sample(h.run_row(options_.row));
        } else {
            run_all(h);
        }
    }

private:
    static void open(std::ofstream& file, const std::string& option, const std::string& path) {
        if (!path.empty()) {
            file.open(path);
            if (!file) {
                throw usage_error(option + ": cannot write " + path);
            }
        }
    }

    static void list_rows(const harness& h) {
        for (const table& t : h.tables()) {
            for (const row& r : t.rows) {
                std::printf("%s\n", harness::full_name(t, r).c_str());
            }
        }
    }

    void run_all(harness& h) {
        const host_info host = describe_host();
        print_host(host, options_);
        program_.print_peers();
        h.run(print_table);
        program_.print_summary(h.tables());
        const std::vector<verdict> verdicts = program_.judge(h.tables());
        print_verdicts(program_.about_targets, verdicts);
        if (json_.is_open()) {
            write_json(h, host, verdicts);
        }
        if (svg_.is_open()) {
            write_chart(svg_, program_.title,
                        {host.cpu + ", " + std::to_string(options_.cpus.size()) + " processors, " +
                             host.kernel + ", " + host.compiler,
                         "medians of " + std::to_string(options_.repetitions()) + " rounds" +
                             (options_.quick ? ", short ones: a draft" : "") +
                             "; !: other programs used the processors",
                         command_},
                        h.tables());
        }
    }

    void write_json(const harness& h, const host_info& host, const std::vector<verdict>& verdicts) {
        json_writer json(json_);
        json.begin_object();
        write_host(json, host, options_);
        write_tables(json, h.tables());
        write_verdicts(json, verdicts);
        json.end_object();
    }

    const program& program_;
    const options& options_;
    const std::string command_;
    std::ofstream json_;
    std::ofstream svg_;
};

// As a shell reads it, without the directory of the program.
inline std::string command_line(int argc, char** argv) {
    constexpr const char* plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,=:";
    const std::string program = argv[0];
    std::string line = program.substr(program.rfind('/') + 1);
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        line += word.find_first_not_of(plain) == std::string::npos ? ' ' + word : " '" + word + "'";
    }
    return line;
}

inline int run_program(const program& p, int argc, char** argv) {
    constexpr int bad_usage = 2;
    try {
        const options opts = option_parser(argc, argv).parse();
        if (opts.help) {
            std::printf(usage_text, argv[0], argv[0]);
            return 0;
        }
        program_run(p, opts, command_line(argc, argv)).run();
        return 0;
    } catch (const usage_error& wrong) {
        std::fprintf(stderr, "%s: %s\n", argv[0], wrong.what());
        std::fprintf(stderr, usage_text, argv[0], argv[0]);
        return bad_usage;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "%s: %s\n", argv[0], failure.what());
        return 1;
    }
}

} // namespace bench

#endif
