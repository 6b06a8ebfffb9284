#ifndef BIDE_BENCH_DURABLE_JOB_HPP
#define BIDE_BENCH_DURABLE_JOB_HPP

// What the workloads have in common.

#include "durable/contenders.hpp"
#include "durable/crew.hpp"
#include "durable/directory.hpp"
#include "durable/stores.hpp"
#include "support/bench.hpp"
#include "support/stats.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
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
inline bool is_for_many(const std::string& store_name) {
    return !is_short() || store_name == "memory" || store_name == "file";
}
inline bool is_for_many(const lock_kind& kind) { return is_for_many(kind.name); }

// A few numbers that a child leaves.
struct numbers {
    double of[4] = {not_measured, not_measured, not_measured, not_measured};
};

inline void rest(std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); }

// Adds a row, all of which runs in processes that are made for it: this one has no slot, no lock, no connection, and
// no thread but one, which sleeps.
inline void add_row(table& to, const std::string& name, std::function<measured()> measure) {
    to.add(name, [measure = std::move(measure)] {
        interruption::check();
        return measure();
    });
}

} // namespace bench

#endif
