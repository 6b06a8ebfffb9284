// Loops over a range, and a sum.

#include "fork_join/pools.hpp"

#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_reduce.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/parallel_reduce.h>

#include <execution>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

namespace bench {
namespace {

// ---- Each library's own loop

struct serial_loop {
    using pool = serial_pool;
    template <class Body> static void run(pool&, std::size_t count, Body body) {
        for (std::size_t i = 0; i < count; ++i) {
            body(i);
        }
    }
};

struct bide_loop {
    using pool = bide_pool;
    template <class Body> static void run(pool& on, std::size_t count, Body body) {
        bide::parallel_for(on.scheduler(), std::size_t{0}, count, body);
    }
};

#if defined(BIDE_BENCH_HAS_TBB)

struct tbb_loop {
    using pool = tbb_pool;
    template <class Body> static void run(pool&, std::size_t count, Body body) {
        tbb::parallel_for(std::size_t{0}, count, body);
    }
};

// It goes over elements; they know their place.
struct std_loop {
    using pool = tbb_pool;
    template <class Body> static void run(pool&, std::size_t count, Body body) {
        static std::vector<char> elements;
        elements.resize(count);
        std::for_each(std::execution::par, elements.begin(), elements.end(),
                      [body, first = elements.data()](const char& element) {
                          body(static_cast<std::size_t>(&element - first));
                      });
    }
};

#endif

#if defined(BIDE_BENCH_HAS_OPENMP)

// The loop is the parallel region.
struct openmp_loop {
    struct pool {
        explicit pool(unsigned count) : workers(static_cast<int>(count)) {}
        template <class Body> void run(Body body) { body(); }
        int workers;
    };
    template <class Body> static void run(pool& on, std::size_t count, Body body) {
#pragma omp parallel for num_threads(on.workers)
        for (std::size_t i = 0; i < count; ++i) {
            body(i);
        }
    }
};

#endif

template <class Loop, class Work>
void add_loop(fork_table& t, const char* row, unsigned count, Work work) {
    t.add_work<typename Loop::pool>(
        row, count, [work](auto& on, run_timer& timer, std::uint64_t n) {
            work(timer, n, [&on](std::size_t size, auto body) { Loop::run(on, size, body); });
        });
}

// work(timer, size, loop), with loop(size, body).
template <class Work> void add_all_loops(fork_table& t, Work work) {
    add_loop<serial_loop>(t, serial_row, 1, work);
    add_loop<bide_loop>(t, bide_row, workers(), work);
    if (workers() > 1) {
        add_loop<bide_loop>(t, bide_one_row, 1, work);
    }
    t.add_rayon();
#if defined(BIDE_BENCH_HAS_TBB)
    add_loop<tbb_loop>(t, tbb_row, workers(), work);
    add_loop<std_loop>(t, std_row, workers(), work);
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    add_loop<openmp_loop>(t, openmp_row, workers(), work);
#endif
}

// Nothing, but for each index.
void work_empty(run_timer& timer, std::size_t count, auto loop) {
    timer.time(
        [&] {
            loop(count, [](std::size_t i) { asm volatile("" : : "r"(i)); });
            return true;
        },
        true);
}

// The same number of multiplications everywhere, each of which needs the one before: about 1 us.
constexpr std::uint64_t steps_of_one_us = 1000;

inline void compute_for_one_us() {
    std::uint64_t x = steps_of_one_us;
    for (std::uint64_t step = 0; step < steps_of_one_us; ++step) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        asm volatile("" : "+r"(x));
    }
}

void work_one_us(run_timer& timer, std::size_t count, auto loop) {
    std::vector<unsigned char> visits(count);
    timer.time([&] { std::fill(visits.begin(), visits.end(), static_cast<unsigned char>(0)); },
               [&] {
                   loop(count, [visited = visits.data()](std::size_t i) {
                       compute_for_one_us();
                       ++visited[i];
                   });
                   return true;
               },
               [&](bool) {
                   return std::all_of(visits.begin(), visits.end(),
                                      [](unsigned char times) { return times == 1; });
               });
}

// ---- The sum of numbers in memory

template <class Pool, class Sum>
void add_sum_row(fork_table& t, const char* row, unsigned count, Sum sum) {
    t.add_work<Pool>(row, count, [sum](Pool& pool, run_timer& timer, std::uint64_t size) {
        std::vector<std::uint64_t> numbers(size);
        std::iota(numbers.begin(), numbers.end(), std::uint64_t{1});
        timer.time([&] { return sum(pool, numbers); }, size * (size + 1) / 2);
    });
}

using numbers_to_add = const std::vector<std::uint64_t>&;

std::uint64_t sum_serially(serial_pool&, numbers_to_add numbers) {
    return std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0});
}

std::uint64_t sum_bide(bide_pool& pool, numbers_to_add numbers) {
    return bide::parallel_reduce(
        pool.scheduler(), std::size_t{0}, numbers.size(), std::uint64_t{0},
        [first = numbers.data()](std::size_t i) { return first[i]; }, std::plus<>());
}

#if defined(BIDE_BENCH_HAS_TBB)

std::uint64_t sum_tbb(tbb_pool&, numbers_to_add numbers) {
    const std::uint64_t* const first = numbers.data();
    return tbb::parallel_reduce(
        tbb::blocked_range<std::size_t>(0, numbers.size()), std::uint64_t{0},
        [first](const tbb::blocked_range<std::size_t>& part, std::uint64_t sum) {
            return std::accumulate(first + part.begin(), first + part.end(), sum);
        },
        std::plus<>());
}

std::uint64_t sum_std(tbb_pool&, numbers_to_add numbers) {
    return std::reduce(std::execution::par, numbers.begin(), numbers.end(), std::uint64_t{0});
}

#endif

#if defined(BIDE_BENCH_HAS_OPENMP)

std::uint64_t sum_openmp(openmp_loop::pool& on, numbers_to_add numbers) {
    const std::uint64_t* const first = numbers.data();
    const std::size_t count = numbers.size();
    std::uint64_t sum = 0;
#pragma omp parallel for num_threads(on.workers) reduction(+ : sum)
    for (std::size_t i = 0; i < count; ++i) {
        sum += first[i];
    }
    return sum;
}

#endif

} // namespace

void add_loops() {
    const std::uint64_t empty = is_short() ? 100'000 : 1'000'000;
    fork_table nothing({.name = "parallel_for/empty",
                        .note = std::to_string(empty) + " bodies that do nothing",
                        .size = empty,
                        .count = static_cast<double>(empty),
                        .rayon = "for_empty"});
    add_all_loops(nothing, [](run_timer& timer, std::size_t count, auto loop) {
        work_empty(timer, count, loop);
    });

    for (const std::uint64_t count : {100u, 10'000u}) {
        fork_table t({.name = "parallel_for/" + std::to_string(count) + "_of_1us",
                      .note = "so many bodies of 1000 multiplications",
                      .size = count,
                      .count = static_cast<double>(count),
                      .rayon = "for_1us"});
        add_all_loops(t, [](run_timer& timer, std::size_t size, auto loop) {
            work_one_us(timer, size, loop);
        });
    }
}

void add_sum() {
    const std::uint64_t count = is_short() ? 1'000'000 : 10'000'000;
    fork_table t({.name = std::string("sum/") + (is_short() ? "1M" : "10M"),
                  .note = "of numbers of 64 bits in memory",
                  .size = count,
                  .count = static_cast<double>(count),
                  .rayon = "sum"});
    add_sum_row<serial_pool>(t, serial_row, 1, sum_serially);
    add_sum_row<bide_pool>(t, bide_row, workers(), sum_bide);
    if (workers() > 1) {
        add_sum_row<bide_pool>(t, bide_one_row, 1, sum_bide);
    }
    t.add_rayon();
#if defined(BIDE_BENCH_HAS_TBB)
    add_sum_row<tbb_pool>(t, tbb_row, workers(), sum_tbb);
    add_sum_row<tbb_pool>(t, std_row, workers(), sum_std);
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    add_sum_row<openmp_loop::pool>(t, openmp_row, workers(), sum_openmp);
#endif
}

} // namespace bench
