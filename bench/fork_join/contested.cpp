// Algorithms in which a peer was ahead of bide at some time: the same row for every library that has a form of it.
// std's parallel algorithms run on TBB. OpenMP has loops, and the sorts and merges of g++'s parallel mode. What a
// library has no form for is left out.

#include "fork_join/pools.hpp"

#include <bide/parallel/parallel_find.hpp>
#include <bide/parallel/parallel_fold.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_merge.hpp>
#include <bide/parallel/parallel_partition.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/parallel/parallel_scan.hpp>
#include <bide/parallel/parallel_sort.hpp>
#include <bide/parallel/parallel_transform.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/combinable.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/parallel_reduce.h>
#include <oneapi/tbb/parallel_scan.h>
#include <oneapi/tbb/parallel_sort.h>

#include <execution>
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
#include <parallel/algorithm>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace bench {
namespace {

// The caller is a thread outside.
struct outside_pool : bide_pool {
    using bide_pool::bide_pool;
    template <class Body> void run(Body body) { body(); }
};
#if defined(BIDE_BENCH_HAS_TBB)
// What names the policy of std.
struct std_pool : tbb_pool {
    using tbb_pool::tbb_pool;
};
using chunk = tbb::blocked_range<std::size_t>;
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
// Each algorithm is a parallel region.
struct region_pool {
    explicit region_pool(unsigned count) : workers(static_cast<int>(count)) {
        omp_set_num_threads(workers);
    }
    template <class Body> void run(Body body) { body(); }
    int workers;
};
#endif

// SplitMix64's i-th.
constexpr std::uint64_t random_number(std::uint64_t i) {
    std::uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

std::uint64_t bits_of(std::integral auto x) { return x; }
std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }
std::uint64_t bits_of(const std::string& s) {
    std::uint64_t sum = 0;
    for (const char c : s) {
        sum = sum * 31 + static_cast<unsigned char>(c);
    }
    return sum;
}
struct record {
    std::uint64_t key;
    std::array<std::uint64_t, 3> rest;
};
std::uint64_t bits_of(const record& r) { return r.key; }
template <class Range> std::uint64_t digest(const Range& all) {
    std::uint64_t sum = 0;
    for (const auto& each : all) {
        sum = sum * 31 + bits_of(each);
    }
    return sum;
}

template <class T> std::vector<T> make(std::size_t count, T (*at)(std::uint64_t)) {
    std::vector<T> all(count);
    for (std::size_t i = 0; i != count; ++i) {
        all[i] = at(i);
    }
    return all;
}
// Their sums and products are exact in any order.
double small_number(std::uint64_t i) { return static_cast<double>(random_number(i) % 16); }

// ---- The works. Each has run(pool) for the pools that can do it; prepare() is not timed.

struct for_each_work {
    static constexpr const char* name = "for_each";
    explicit for_each_work(std::size_t n) : all(make(n, small_number)) {}
    static void body(double& x) { x = 0.5 * x + 1; }
    void prepare() {}
    std::uint64_t result() const { return 0; }
    template <class Call> void with(Call call) {
        call(all.begin(), all.end(), [](double& x) { body(x); });
    }
    void run(serial_pool&) {
        with([](auto... of) { std::for_each(of...); });
    }
    void run(bide_pool& on) {
        with([&](auto... of) { bide::parallel_for(on.scheduler(), of...); });
    }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(std_pool&) {
        with([](auto... of) { std::for_each(std::execution::par, of...); });
    }
    void run(tbb_pool&) {
        tbb::parallel_for(chunk(0, all.size()), [first = all.data()](const chunk& part) {
            for (std::size_t i = part.begin(); i != part.end(); ++i) {
                body(first[i]);
            }
        });
    }
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    void run(region_pool&) {
        double* const first = all.data();
        const std::size_t n = all.size();
#pragma omp parallel for
        for (std::size_t i = 0; i < n; ++i) {
            body(first[i]);
        }
    }
#endif
    std::vector<double> all;
};

template <class T> struct scan_work {
    static constexpr const char* name =
        std::is_same_v<T, double> ? "inclusive_scan_double" : "inclusive_scan_u64";
    explicit scan_work(std::size_t n) : in(make(n, at)), out(n) {}
    static T at(std::uint64_t i) { return static_cast<T>(random_number(i) % 16); }
    void prepare() {}
    std::uint64_t result() const { return digest(out); }
    void run(serial_pool&) { std::inclusive_scan(in.begin(), in.end(), out.begin()); }
    void run(bide_pool& on) { bide::parallel_inclusive_scan(on.scheduler(), in, out.begin()); }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(std_pool&) {
        std::inclusive_scan(std::execution::par, in.begin(), in.end(), out.begin());
    }
    void run(tbb_pool&) {
        const T* const from = in.data();
        T* const to = out.data();
        tbb::parallel_scan(
            chunk(0, in.size()), T{},
            [=](const chunk& part, T sum, bool is_final) {
                for (std::size_t i = part.begin(); i != part.end(); ++i) {
                    sum += from[i];
                    if (is_final) {
                        to[i] = sum;
                    }
                }
                return sum;
            },
            std::plus<>());
    }
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    void run(region_pool&) {
        const T* const from = in.data();
        T* const to = out.data();
        const std::size_t n = in.size();
        T sum{};
// g++ 12 warns of a variable that it makes itself.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma omp parallel for reduction(inscan, + : sum)
        for (std::size_t i = 0; i < n; ++i) {
            sum += from[i];
#pragma omp scan inclusive(sum)
            to[i] = sum;
        }
#pragma GCC diagnostic pop
    }
#endif
    std::vector<T> in;
    std::vector<T> out;
};

struct histogram_work {
    static constexpr const char* name = "histogram";
    using counts = std::array<std::uint32_t, 256>;
    explicit histogram_work(std::size_t n) : in(make(n, random_number)) {}
    void prepare() { found = {}; }
    std::uint64_t result() const { return digest(found); }
    static void count(counts& to, std::uint64_t x) { ++to[x % 256]; }
    void add(const counts& part) {
        for (std::size_t i = 0; i != part.size(); ++i) {
            found[i] += part[i];
        }
    }
    void run(serial_pool&) {
        for (const std::uint64_t x : in) {
            count(found, x);
        }
    }
    void run(bide_pool& on) {
        const auto make = [] { return counts{}; };
        const auto join = [](counts& to, const counts& part) {
            std::ranges::transform(to, part, to.begin(), std::plus());
        };
        const auto add_one = [](counts& to, std::uint64_t x) { count(to, x); }; // can be inlined
        found = bide::parallel_fold(on.scheduler(), in, make, add_one, join);
    }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(tbb_pool&) {
        tbb::combinable<counts> parts([] { return counts{}; });
        tbb::parallel_for(chunk(0, in.size()), [&](const chunk& part) {
            counts& mine = parts.local();
            for (std::size_t i = part.begin(); i != part.end(); ++i) {
                count(mine, in[i]);
            }
        });
        parts.combine_each([this](const counts& part) { add(part); });
    }
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    void run(region_pool&) {
        const std::size_t n = in.size();
#pragma omp parallel
        {
            counts mine{};
#pragma omp for nowait
            for (std::size_t i = 0; i < n; ++i) {
                count(mine, in[i]);
            }
#pragma omp critical
            add(mine);
        }
    }
#endif
    std::vector<std::uint64_t> in;
    counts found{};
};

struct dot_work {
    static constexpr const char* name = "dot_product";
    explicit dot_work(std::size_t n) : a(make(n, small_number)), b(a) {}
    void prepare() {}
    std::uint64_t result() const { return bits_of(found); }
    void run(serial_pool&) { found = std::transform_reduce(a.begin(), a.end(), b.begin(), 0.0); }
    void run(bide_pool& on) {
        found = bide::parallel_reduce(
            on.scheduler(), std::size_t{0}, a.size(), 0.0,
            [x = a.data(), y = b.data()](std::size_t i) { return x[i] * y[i]; }, std::plus<>());
    }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(std_pool&) {
        found = std::transform_reduce(std::execution::par, a.begin(), a.end(), b.begin(), 0.0);
    }
    void run(tbb_pool&) {
        found = tbb::parallel_reduce(
            chunk(0, a.size()), 0.0,
            [x = a.data(), y = b.data()](const chunk& part, double sum) {
                for (std::size_t i = part.begin(); i != part.end(); ++i) {
                    sum += x[i] * y[i];
                }
                return sum;
            },
            std::plus<>());
    }
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    void run(region_pool&) {
        const double* const x = a.data();
        const double* const y = b.data();
        const std::size_t n = a.size();
        double sum = 0;
#pragma omp parallel for reduction(+ : sum)
        for (std::size_t i = 0; i < n; ++i) {
            sum += x[i] * y[i];
        }
        found = sum;
    }
#endif
    std::vector<double> a;
    std::vector<double> b;
    double found = 0;
};

struct merge_work {
    static constexpr const char* name = "merge";
    explicit merge_work(std::size_t n) : in(make(n, random_number)), out(n) {
        middle = in.begin() + static_cast<std::ptrdiff_t>(n / 2);
        std::sort(in.begin(), middle);
        std::sort(middle, in.end());
    }
    merge_work(const merge_work&) = delete;
    void prepare() {}
    std::uint64_t result() const { return digest(out); }
    template <class Call> void with(Call call) {
        call(in.begin(), middle, middle, in.end(), out.begin());
    }
    void run(serial_pool&) {
        with([](auto... of) { std::merge(of...); });
    }
    void run(bide_pool& on) {
        with([&](auto... of) { bide::parallel_merge(on.scheduler(), of...); });
    }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(std_pool&) {
        with([](auto... of) { std::merge(std::execution::par, of...); });
    }
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    void run(region_pool&) {
        with([](auto... of) { __gnu_parallel::merge(of...); });
    }
#endif
    std::vector<std::uint64_t> in;
    std::vector<std::uint64_t>::iterator middle;
    std::vector<std::uint64_t> out;
};

struct stable_partition_work {
    static constexpr const char* name = "stable_partition";
    explicit stable_partition_work(std::size_t n) : in(make(n, random_number)) {}
    static bool is_kept(std::uint64_t x) { return x % 2 == 0; }
    void prepare() { out = in; }
    std::uint64_t result() const { return digest(out); }
    template <class Call> void with(Call call) {
        call(out.begin(), out.end(), [](std::uint64_t x) { return is_kept(x); });
    }
    void run(serial_pool&) {
        with([](auto... of) { std::stable_partition(of...); });
    }
    void run(bide_pool& on) {
        with([&](auto... of) { bide::parallel_stable_partition(on.scheduler(), of...); });
    }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(std_pool&) {
        with([](auto... of) { std::stable_partition(std::execution::par, of...); });
    }
#endif
    std::vector<std::uint64_t> in;
    std::vector<std::uint64_t> out;
};

record random_record(std::uint64_t i) { return {random_number(i), {i, i, i}}; }

// 5 to 24 letters.
std::string random_string(std::uint64_t i) {
    std::string made(5 + random_number(i) % 20, 'a');
    for (char& c : made) {
        c = static_cast<char>('a' + random_number(i += 1'000'003) % 26);
    }
    return made;
}

template <class T, bool Stable> struct sort_work {
    static constexpr const char* name = std::is_same_v<T, std::string> ? "sort_strings"
                                        : Stable                       ? "stable_sort_structs"
                                                                       : "sort_structs";
    explicit sort_work(std::size_t n) : in(make(n, at)) {}
    static T at(std::uint64_t i) {
        if constexpr (std::is_same_v<T, std::string>) {
            return random_string(i);
        } else {
            return random_record(i);
        }
    }
    void prepare() { out = in; }
    std::uint64_t result() const { return digest(out); }
    template <class Call> void with(Call call) {
        if constexpr (std::is_same_v<T, std::string>) {
            call(out.begin(), out.end(), std::less<>());
        } else {
            call(out.begin(), out.end(), [](const T& a, const T& b) { return a.key < b.key; });
        }
    }
    void run(serial_pool&) {
        with([](auto... of) {
            if constexpr (Stable) {
                std::stable_sort(of...);
            } else {
                std::sort(of...);
            }
        });
    }
    void run(bide_pool& on) {
        with([&](auto... of) {
            if constexpr (Stable) {
                bide::parallel_stable_sort(on.scheduler(), of...);
            } else {
                bide::parallel_sort(on.scheduler(), of...);
            }
        });
    }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(std_pool&) {
        with([](auto... of) {
            if constexpr (Stable) {
                std::stable_sort(std::execution::par, of...);
            } else {
                std::sort(std::execution::par, of...);
            }
        });
    }
    void run(tbb_pool&)
        requires(!Stable)
    {
        with([](auto... of) { tbb::parallel_sort(of...); });
    }
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    void run(region_pool&) {
        with([](auto... of) {
            if constexpr (Stable) {
                __gnu_parallel::stable_sort(of...);
            } else {
                __gnu_parallel::sort(of...);
            }
        });
    }
#endif
    std::vector<T> in;
    std::vector<T> out;
};

struct find_work {
    static constexpr const char* name = "find";
    explicit find_work(std::size_t n) : in(make(n, at)) {}
    static std::uint32_t at(std::uint64_t i) {
        return static_cast<std::uint32_t>(random_number(i) >> 33);
    }
    void prepare() {}
    std::uint64_t result() const { return found; }
    template <class Call> void with(Call call) {
        std::uint32_t absent = 0xffff'ffff;
        asm volatile("" : "+r"(absent));
        found = static_cast<std::uint64_t>(call(in.begin(), in.end(), absent) - in.begin());
    }
    void run(serial_pool&) {
        with([](auto... of) { return std::find(of...); });
    }
    void run(bide_pool& on) {
        with([&](auto... of) { return bide::parallel_find(on.scheduler(), of...); });
    }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(std_pool&) {
        with([](auto... of) { return std::find(std::execution::par, of...); });
    }
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    void run(region_pool&) {
        with([](auto... of) { return __gnu_parallel::find(of...); });
    }
#endif
    std::vector<std::uint32_t> in;
    std::uint64_t found = 0;
};

struct reverse_work {
    static constexpr const char* name = "reverse";
    explicit reverse_work(std::size_t n) : all(make(n, random_number)) {}
    void prepare() {}
    std::uint64_t result() const { return 0; }
    void run(serial_pool&) { std::reverse(all.begin(), all.end()); }
    void run(bide_pool& on) {
        bide::parallel_for(on.scheduler(), std::size_t{0}, all.size() / 2,
                           [first = all.data(), last = all.size() - 1](std::size_t i) {
                               std::swap(first[i], first[last - i]);
                           });
    }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(std_pool&) { std::reverse(std::execution::par, all.begin(), all.end()); }
    void run(tbb_pool&) {
        tbb::parallel_for(chunk(0, all.size() / 2),
                          [first = all.data(), last = all.size() - 1](const chunk& part) {
                              for (std::size_t i = part.begin(); i != part.end(); ++i) {
                                  std::swap(first[i], first[last - i]);
                              }
                          });
    }
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    void run(region_pool&) {
        std::uint64_t* const first = all.data();
        const std::size_t last = all.size() - 1;
#pragma omp parallel for
        for (std::size_t i = 0; i < all.size() / 2; ++i) {
            std::swap(first[i], first[last - i]);
        }
    }
#endif
    std::vector<std::uint64_t> all;
};

struct transform_work {
    static constexpr const char* name = "transform";
    explicit transform_work(std::size_t n) : in(make(n, random_number)), out(n) {}
    void prepare() {}
    std::uint64_t result() const { return digest(out); }
    static std::uint64_t f(std::uint64_t x) { return 3 * x + 1; }
    template <class Call> void with(Call call) {
        call(in.begin(), in.end(), out.begin(), [](std::uint64_t x) { return f(x); });
    }
    void run(serial_pool&) {
        with([](auto... of) { std::transform(of...); });
    }
    void run(bide_pool& on) {
        with([&](auto... of) { bide::parallel_transform(on.scheduler(), of...); });
    }
#if defined(BIDE_BENCH_HAS_TBB)
    void run(std_pool&) {
        with([](auto... of) { std::transform(std::execution::par, of...); });
    }
    void run(tbb_pool&) {
        tbb::parallel_for(chunk(0, in.size()),
                          [from = in.data(), to = out.data()](const chunk& part) {
                              for (std::size_t i = part.begin(); i != part.end(); ++i) {
                                  to[i] = f(from[i]);
                              }
                          });
    }
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    void run(region_pool&) {
        const std::uint64_t* const from = in.data();
        std::uint64_t* const to = out.data();
        const std::size_t n = in.size();
#pragma omp parallel for
        for (std::size_t i = 0; i < n; ++i) {
            to[i] = f(from[i]);
        }
    }
#endif
    std::vector<std::uint64_t> in;
    std::vector<std::uint64_t> out;
};

// ---- The tables

template <class Pool, class Work> void add_row(fork_table& t, const char* row, unsigned count) {
    if constexpr (requires(Work& w, Pool& pool) { w.run(pool); }) {
        t.add_work<Pool>(row, count, [](Pool& pool, run_timer& timer, std::uint64_t size) {
            Work serial(size);
            serial.prepare();
            serial_pool nobody(1);
            serial.run(nobody);
            const std::uint64_t expected = serial.result();
            Work mine(size);
            timer.time([&] { mine.prepare(); },
                       [&] {
                           mine.run(pool);
                           return true;
                       },
                       [&](bool) { return mine.result() == expected; });
        });
    }
}

template <class Work> void add(std::uint64_t size, bool has_rayon) {
    const char* const shown = size == 100'000 ? "/1e5" : size == 1'000'000 ? "/1e6" : "/1e7";
    fork_table t({.name = std::string("contested/") + Work::name + shown,
                  .note = "the same work by each library",
                  .size = size,
                  .count = static_cast<double>(size),
                  .rayon = has_rayon ? std::string("contested_") + Work::name : ""});
    add_row<serial_pool, Work>(t, serial_row, 1);
    add_row<bide_pool, Work>(t, bide_row, workers());
    add_row<outside_pool, Work>(t, "bide, called from outside", workers());
    add_row<bide_pool, Work>(t, bide_one_row, 1);
    if (has_rayon) {
        t.add_rayon();
    }
#if defined(BIDE_BENCH_HAS_TBB)
    if constexpr (requires(Work& w) { static_cast<void (Work::*)(std_pool&)>(&Work::run); }) {
        add_row<std_pool, Work>(t, std_row, workers());
    }
    add_row<tbb_pool, Work>(t, tbb_row, workers());
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    add_row<region_pool, Work>(t, openmp_row, workers());
#endif
}

} // namespace

void add_contested() {
    constexpr std::uint64_t few = 100'000;
    add<for_each_work>(few, true);
    add<scan_work<std::uint64_t>>(few, false);
    add<scan_work<double>>(few, false);
    add<histogram_work>(few, true);
    add<dot_work>(few, true);
    add<merge_work>(few, false);
    add<stable_partition_work>(few, false);
    add<sort_work<std::string, false>>(few, true);
    add<sort_work<record, false>>(few, true);
    add<sort_work<record, true>>(few, true);
    const std::uint64_t many = is_short() ? few : 10'000'000;
    add<find_work>(many, true);
    add<reverse_work>(many, true);
    add<transform_work>(many, true);
}

} // namespace bench
