// Algorithms in which a place depends on all elements before it: scans, filters, groups.

#include "fork_join/pools.hpp"

#include <bide/parallel/parallel_collect.hpp>
#include <bide/parallel/parallel_copy.hpp>
#include <bide/parallel/parallel_partition.hpp>
#include <bide/parallel/parallel_remove_if.hpp>
#include <bide/parallel/parallel_scan.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <execution>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

using number = std::uint32_t;
using numbers = std::vector<number>;

// Numbers of which none can be foreseen.
numbers make_numbers(std::size_t count) {
    numbers all(count);
    number state = 2'463'534'242;
    for (number& each : all) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        each = state;
    }
    return all;
}

bool is_kept(number n) { return n % 2 == 0; }

// What an algorithm gives, to compare.
template <class Range> std::uint64_t digest(const Range& all) {
    std::uint64_t sum = 0;
    for (const auto& each : all) {
        sum = sum * 31 + static_cast<std::uint64_t>(each);
    }
    return sum;
}

// Each has run(pool) for the pools that it can run on. prepare() is not timed.
struct work {
    explicit work(std::size_t count) : in(make_numbers(count)), out(count) {}
    void prepare() {}
    std::uint64_t result() const { return digest(out); }
    numbers in;
    numbers out;
};

struct scan : work {
    using work::work;
    static constexpr const char* name = "inclusive_scan";
    void run(serial_pool&) { std::inclusive_scan(in.begin(), in.end(), out.begin()); }
    void run(bide_pool& on) { bide::parallel_inclusive_scan(on.scheduler(), in, out.begin()); }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(tbb_pool&) {
        std::inclusive_scan(std::execution::par, in.begin(), in.end(), out.begin());
    }
#endif
};

struct float_scan {
    explicit float_scan(std::size_t count) : in(count, 0.5), out(count) {}
    static constexpr const char* name = "inclusive_scan_double";
    void prepare() {}
    std::uint64_t result() const { return digest(out); } // sums of halves are exact
    void run(serial_pool&) { std::inclusive_scan(in.begin(), in.end(), out.begin()); }
    void run(bide_pool& on) { bide::parallel_inclusive_scan(on.scheduler(), in, out.begin()); }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(tbb_pool&) {
        std::inclusive_scan(std::execution::par, in.begin(), in.end(), out.begin());
    }
#endif
    std::vector<double> in;
    std::vector<double> out;
};

struct copy_if : work {
    using work::work;
    static constexpr const char* name = "copy_if";
    void run(serial_pool&) { std::copy_if(in.begin(), in.end(), out.begin(), is_kept); }
    void run(bide_pool& on) {
        bide::parallel_copy_if(on.scheduler(), in, out.begin(),
                               [](number n) { return is_kept(n); });
    }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(tbb_pool&) {
        std::copy_if(std::execution::par, in.begin(), in.end(), out.begin(), is_kept);
    }
#endif
};

struct in_place : work {
    using work::work;
    void prepare() { out = in; }
    std::size_t kept = 0;
    std::uint64_t result() const {
        return digest(numbers(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(kept)));
    }
    void keep(numbers::iterator end) { kept = static_cast<std::size_t>(end - out.begin()); }
};

struct remove_if : in_place {
    using in_place::in_place;
    static constexpr const char* name = "remove_if";
    void run(serial_pool&) { keep(std::remove_if(out.begin(), out.end(), is_kept)); }
    void run(bide_pool& on) {
        keep(bide::parallel_remove_if(on.scheduler(), out, [](number n) { return is_kept(n); }));
    }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(tbb_pool&) {
        keep(std::remove_if(std::execution::par, out.begin(), out.end(), is_kept));
    }
#endif
};

struct unique : in_place {
    explicit unique(std::size_t count) : in_place(count) {
        for (number& each : in) {
            each = each >> 31;
        }
    }
    static constexpr const char* name = "unique";
    void run(serial_pool&) { keep(std::unique(out.begin(), out.end())); }
    void run(bide_pool& on) { keep(bide::parallel_unique(on.scheduler(), out)); }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(tbb_pool&) { keep(std::unique(std::execution::par, out.begin(), out.end())); }
#endif
};

struct stable_partition : in_place {
    using in_place::in_place;
    static constexpr const char* name = "stable_partition";
    std::uint64_t result() const { return digest(out); }
    void run(serial_pool&) { keep(std::stable_partition(out.begin(), out.end(), is_kept)); }
    void run(bide_pool& on) {
        keep(bide::parallel_stable_partition(on.scheduler(), out,
                                             [](number n) { return is_kept(n); }));
    }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(tbb_pool&) {
        keep(std::stable_partition(std::execution::par, out.begin(), out.end(), is_kept));
    }
#endif
};

// Where std has no parallel algorithm, the row of std is left out.
struct collect_if : work {
    using work::work;
    static constexpr const char* name = "collect_if";
    void run(serial_pool&) {
        out = numbers();
        std::copy_if(in.begin(), in.end(), std::back_inserter(out), is_kept);
    }
    void run(bide_pool& on) {
        out = bide::parallel_collect_if(on.scheduler(), in, [](number n) { return is_kept(n); });
    }
};

template <class Work, class Pool> void add_row(fork_table& t, const char* row, unsigned count) {
    t.add_work<Pool>(row, count, [](Pool& pool, run_timer& timer, std::uint64_t size) {
        Work serial(size);
        serial.prepare();
        serial_pool nobody(1);
        serial.run(nobody);
        Work mine(size);
        timer.time([&] { mine.prepare(); },
                   [&] {
                       mine.run(pool);
                       return true;
                   },
                   [&](bool) { return mine.result() == serial.result(); });
    });
}

template <class Work> void add_sizes() {
    for (const std::uint64_t size : {1'000u, 100'000u, 10'000'000u}) {
        if (is_short() && size > 100'000) {
            continue;
        }
        const std::string shown = size == 1'000 ? "1k" : size == 100'000 ? "100k" : "10M";
        fork_table t({.name = std::string(Work::name) + "/" + shown,
                      .note = "numbers in memory",
                      .size = size,
                      .count = static_cast<double>(size)});
        add_row<Work, serial_pool>(t, serial_row, 1);
        add_row<Work, bide_pool>(t, bide_row, workers());
        if (workers() > 1) {
            add_row<Work, bide_pool>(t, bide_one_row, 1);
        }
#if defined(BIDE_BENCH_HAS_TBB)
        if constexpr (requires(Work& w, tbb_pool& pool) { w.run(pool); }) {
            add_row<Work, tbb_pool>(t, std_row, workers());
        }
#endif
    }
}

} // namespace

void add_packs() {
    add_sizes<scan>();
    add_sizes<float_scan>();
    add_sizes<copy_if>();
    add_sizes<remove_if>();
    add_sizes<unique>();
    add_sizes<stable_partition>();
    add_sizes<collect_if>();
}

} // namespace bench
