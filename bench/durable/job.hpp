#ifndef BIDE_BENCH_DURABLE_JOB_HPP
#define BIDE_BENCH_DURABLE_JOB_HPP

// What the workloads have in common.

#include "durable/contenders.hpp"
#include "durable/crew.hpp"
#include "durable/directory.hpp"
#include "durable/stores.hpp"
#include "support/harness.hpp"
#include "support/options.hpp"
#include "support/stats.hpp"
#include "support/table.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

// A place where nothing was stored yet, of what is ready to be used.
inline std::string begin_place(const lock_kind& kind) {
    kind.prepare();
    static_cast<void>(work_directory::path());
    return work_directory::fresh_name();
}
inline std::string begin_place(store& on) {
    on.prepare();
    static_cast<void>(work_directory::path());
    return work_directory::fresh_name();
}

// Workloads that take long have these stores only, where it has to be quick.
inline bool is_for_many(const harness& h, const std::string& store_name) {
    return !h.opts().quick || store_name == "memory" || store_name == "file";
}
inline bool is_for_many(const harness& h, const lock_kind& kind) {
    return is_for_many(h, kind.name);
}

// Of times in nanoseconds, in microseconds.
inline double percentile_us(std::vector<std::int64_t> times, double share) {
    if (times.empty()) {
        return not_measured;
    }
    const auto at = static_cast<std::size_t>(share * static_cast<double>(times.size() - 1) + 0.5);
    const auto found = times.begin() + static_cast<std::ptrdiff_t>(at);
    std::nth_element(times.begin(), found, times.end());
    return static_cast<double>(*found) / 1e3;
}

// A few numbers that a child leaves.
struct numbers {
    double of[4] = {not_measured, not_measured, not_measured, not_measured};
};

inline void rest(std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); }

// How many measurements have failed.
inline std::size_t& failures() noexcept {
    static std::size_t count = 0;
    return count;
}

// Adds a row that may fail: it says why, nothing stands in its place, and the program fails in the
// end; the other rows are measured all the same.
inline void add_row(table& to, std::string name, std::function<sample()> measure) {
    const std::size_t width = to.columns.size();
    const std::string full_name = to.name + '/' + name;
    to.add(std::move(name), [=, measure = std::move(measure)] {
        interruption::check();
        try {
            return measure();
        } catch (const usage_error&) {
            throw;
        } catch (const std::exception& wrong) {
            interruption::check();
            ++failures();
            std::fprintf(stderr, "bench: %s failed: %s\n", full_name.c_str(), wrong.what());
            return sample(width, not_measured);
        }
    });
}

} // namespace bench

#endif
