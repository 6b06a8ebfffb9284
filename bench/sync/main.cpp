// Benchmarks of the locks and semaphores: one table for each workload, with ratios to std.

#include "support/harness.hpp"
#include "support/host.hpp"
#include "support/json.hpp"
#include "support/options.hpp"
#include "support/report.hpp"
#include "support/table.hpp"
#include "sync/targets.hpp"
#include "sync/workloads.hpp"

#include <cstdio>
#include <exception>
#include <fstream>
#include <string>

namespace bench {
namespace {

constexpr int bad_usage = 2;

void add_all(harness& h) {
    add_uncontended(h);
    add_coroutine(h);
    add_notify(h);
    add_handoff(h);
    add_readers(h);
    add_order(h);
    add_contended(h);
    add_sizes(h);
}

void list_rows(const harness& h) {
    for (const table& t : h.tables()) {
        for (const row& r : t.rows) {
            std::printf("%s\n", harness::full_name(t, r).c_str());
        }
    }
}

void write_json(std::ofstream& file, const harness& h, const host_info& host) {
    json_writer json(file);
    json.begin_object();
    write_host(json, host, h.opts());
    write_tables(json, h.tables());
    write_targets(json, h.tables());
    json.end_object();
}

void run_all(harness& h, std::ofstream& file) {
    const host_info host = describe_host();
    print_host(host, h.opts());
    h.run(print_table);
    print_targets(h.tables());
    if (file.is_open()) {
        write_json(file, h, host);
    }
}

// Opened before anything is measured: ten minutes are long for a misspelt path.
std::ofstream open_json(const std::string& path) {
    std::ofstream file;
    if (!path.empty()) {
        file.open(path);
        if (!file) {
            throw usage_error("--json: cannot write " + path);
        }
    }
    return file;
}

void run(const options& opts) {
    std::ofstream file = open_json(opts.json);
    harness h(opts);
    add_all(h);
    if (h.tables().empty()) {
        throw usage_error("--filter: no row matches " + *opts.filter_given);
    }
    if (opts.list) {
        list_rows(h);
    } else if (!opts.row.empty()) {
        print_sample(h.run_row(opts.row));
    } else {
        run_all(h, file);
    }
}

} // namespace
} // namespace bench

int main(int argc, char** argv) {
    try {
        const bench::options opts = bench::option_parser(argc, argv).parse();
        if (opts.help) {
            std::printf(bench::usage_text, argv[0], argv[0]);
            return 0;
        }
        bench::run(opts);
        return 0;
    } catch (const bench::usage_error& wrong) {
        std::fprintf(stderr, "%s: %s\n", argv[0], wrong.what());
        std::fprintf(stderr, bench::usage_text, argv[0], argv[0]);
        return bench::bad_usage;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "%s: %s\n", argv[0], failure.what());
        return 1;
    }
}
