// Sorting numbers in many orders. And what sorts in part, or not by comparisons: merges, selections, sorts
// by cached keys.

#include "fork_join/pools.hpp"

#include <bide/parallel/parallel_merge.hpp>
#include <bide/parallel/parallel_nth_element.hpp>
#include <bide/parallel/parallel_sort.hpp>
#include <bide/parallel/parallel_sort_by_cached_key.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/parallel_sort.h>

#include <execution>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

using number_list = std::vector<std::uint64_t>;

// Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators": the i-th.
constexpr std::uint64_t random_number(std::uint64_t i) {
    std::uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// An order, and the number at each place in it.
struct order {
    const char* name;
    std::uint64_t (*at)(std::uint64_t i, std::uint64_t count);
};

inline constexpr order orders[] = {
    {"random", [](std::uint64_t i, std::uint64_t) { return random_number(i); }},
    {"sorted", [](std::uint64_t i, std::uint64_t) { return i; }},
    {"reversed", [](std::uint64_t i, std::uint64_t count) { return count - i; }},
    {"equal", [](std::uint64_t, std::uint64_t) { return std::uint64_t{42}; }},
    {"organ_pipe", [](std::uint64_t i, std::uint64_t count) { return std::min(i, count - 1 - i); }},
    {"few_distinct", [](std::uint64_t i, std::uint64_t) { return random_number(i) % 16; }},
    {"mostly_sorted",
     [](std::uint64_t i, std::uint64_t count) {
         return random_number(i) % 100 == 0 ? random_number(i) % count : i;
     }},
};

// What sorting does not change.
struct fingerprint {
    std::uint64_t sum = 0;
    std::uint64_t squares = 0;
    bool operator==(const fingerprint&) const = default;

    explicit fingerprint(const number_list& all) {
        for (const std::uint64_t x : all) {
            sum += x;
            squares += random_number(x);
        }
    }
};

// Returns the numbers in that order.
inline number_list make_numbers(const order& o, std::uint64_t count) {
    number_list made(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        made[i] = o.at(i, count);
    }
    return made;
}

inline constexpr auto is_sorted = [](const number_list& all) {
    return std::is_sorted(all.begin(), all.end());
};

// A row of work(pool, numbers), and of what check(numbers) must find then.
template <class Pool, class Work, class Check>
void add_row(fork_table& t, const order& o, const char* row, unsigned count, Work work,
             Check check) {
    t.add_work<Pool>(row, count, [=, &o](Pool& pool, run_timer& timer, std::uint64_t size) {
        const number_list given = make_numbers(o, size);
        const fingerprint expected(given);
        number_list changed(size);
        timer.time([&] { std::copy(given.begin(), given.end(), changed.begin()); },
                   [&] {
                       work(pool, changed);
                       return true;
                   },
                   [&](bool) { return check(changed) && fingerprint(changed) == expected; });
    });
}

// The rows of bide: on all workers, and on one.
template <class Work, class Check>
void add_bide_rows(fork_table& t, const order& o, Work work, Check check) {
    add_row<bide_pool>(t, o, bide_row, workers(), work, check);
    if (workers() > 1) {
        add_row<bide_pool>(t, o, bide_one_row, 1, work, check);
    }
}

workload sort_workload(const char* prefix, const order& o, std::uint64_t count) {
    const bool tens = count >= 10'000'000;
    return {.name = prefix +
                    std::string(tens                ? "_10M/"
                                : count < 1'000'000 ? "_100k/"
                                                    : "_1M/") +
                    o.name,
            .note = "numbers of 64 bits",
            .size = count,
            .count = static_cast<double>(count),
            .rayon = prefix + std::string("_") + o.name};
}

void add_unstable(const order& o, std::uint64_t count) {
    fork_table t(sort_workload("sort", o, count));
    add_row<serial_pool>(
        t, o, serial_row, 1,
        [](serial_pool&, number_list& all) { std::sort(all.begin(), all.end()); }, is_sorted);
    add_bide_rows(
        t, o,
        [](bide_pool& pool, number_list& all) {
            bide::parallel_sort(pool.scheduler(), all.begin(), all.end());
        },
        is_sorted);
    t.add_rayon();
#if defined(BIDE_BENCH_HAS_TBB)
    add_row<tbb_pool>(
        t, o, tbb_row, workers(),
        [](tbb_pool&, number_list& all) { tbb::parallel_sort(all.begin(), all.end()); }, is_sorted);
    add_row<tbb_pool>(
        t, o, std_row, workers(),
        [](tbb_pool&, number_list& all) { std::sort(std::execution::par, all.begin(), all.end()); },
        is_sorted);
#endif
}

void add_stable(const order& o, std::uint64_t count) {
    fork_table t(sort_workload("stable", o, count));
    add_row<serial_pool>(
        t, o, serial_row, 1,
        [](serial_pool&, number_list& all) { std::stable_sort(all.begin(), all.end()); },
        is_sorted);
    add_bide_rows(
        t, o,
        [](bide_pool& pool, number_list& all) {
            bide::parallel_stable_sort(pool.scheduler(), all.begin(), all.end());
        },
        is_sorted);
    t.add_rayon();
#if defined(BIDE_BENCH_HAS_TBB)
    add_row<tbb_pool>(
        t, o, std_row, workers(),
        [](tbb_pool&, number_list& all) {
            std::stable_sort(std::execution::par, all.begin(), all.end());
        },
        is_sorted);
#endif
}

workload selection(const std::string& name, std::uint64_t count, std::string rayon = {}) {
    return {.name = name + (count < 1'000'000    ? "_100k"
                            : count < 10'000'000 ? "_1M"
                                                 : "_10M"),
            .note = "random numbers of 64 bits",
            .size = count,
            .count = static_cast<double>(count),
            .rayon = std::move(rayon)};
}

const order& random_order() { return orders[0]; }

std::uint64_t costly_key(std::uint64_t number) {
    for (int i = 0; i != 32; ++i) {
        number = random_number(number);
    }
    return number;
}

void add_cached_key(std::uint64_t count) {
    fork_table t(selection("cached_key", count, "cached_random"));
    const auto is_sorted_by_key = [](const number_list& all) {
        return std::is_sorted(all.begin(), all.end(), [](std::uint64_t a, std::uint64_t b) {
            return costly_key(a) < costly_key(b);
        });
    };
    add_row<serial_pool>(
        t, random_order(), serial_row, 1,
        [](serial_pool&, number_list& all) {
            std::vector<std::pair<std::uint64_t, std::uint64_t>> keyed(all.size());
            std::transform(all.begin(), all.end(), keyed.begin(), [](std::uint64_t number) {
                return std::pair(costly_key(number), number);
            });
            std::sort(keyed.begin(), keyed.end());
            std::transform(keyed.begin(), keyed.end(), all.begin(),
                           [](const auto& pair) { return pair.second; });
        },
        is_sorted_by_key);
    add_bide_rows(
        t, random_order(),
        [](bide_pool& pool, number_list& all) {
            bide::parallel_sort_by_cached_key(pool.scheduler(), all, costly_key);
        },
        is_sorted_by_key);
    t.add_rayon();
}

void add_merge(std::uint64_t count) {
    fork_table t(selection("merge", count));
    const auto add = [&]<class Pool>(const char* row, unsigned threads, Pool*, auto merge) {
        t.add_work<Pool>(row, threads, [=](Pool& pool, run_timer& timer, std::uint64_t size) {
            number_list given = make_numbers(random_order(), size);
            const auto middle = given.begin() + static_cast<std::ptrdiff_t>(size / 2);
            std::sort(given.begin(), middle);
            std::sort(middle, given.end());
            const fingerprint expected(given);
            number_list merged(size);
            timer.time([&] { std::fill(merged.begin(), merged.end(), 0); },
                       [&] {
                           merge(pool, given.begin(), middle, given.end(), merged.begin());
                           return true;
                       },
                       [&](bool) { return is_sorted(merged) && fingerprint(merged) == expected; });
        });
    };
    add(serial_row, 1, static_cast<serial_pool*>(nullptr),
        [](serial_pool&, auto a, auto b, auto c, auto to) { std::merge(a, b, b, c, to); });
    const auto by_bide = [](bide_pool& pool, auto a, auto b, auto c, auto to) {
        bide::parallel_merge(pool.scheduler(), a, b, b, c, to);
    };
    add(bide_row, workers(), static_cast<bide_pool*>(nullptr), by_bide);
    if (workers() > 1) {
        add(bide_one_row, 1, static_cast<bide_pool*>(nullptr), by_bide);
    }
#if defined(BIDE_BENCH_HAS_TBB)
    add(std_row, workers(), static_cast<tbb_pool*>(nullptr),
        [](tbb_pool&, auto a, auto b, auto c, auto to) {
            std::merge(std::execution::par, a, b, b, c, to);
        });
#endif
}

void add_nth_element(std::uint64_t count) {
    fork_table t(selection("nth_element", count));
    const auto middle_of = [](number_list& all) {
        return all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    };
    const auto is_divided = [](const number_list& all) {
        const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
        return std::all_of(all.begin(), middle, [=](auto e) { return e <= *middle; }) &&
               std::all_of(middle, all.end(), [=](auto e) { return e >= *middle; });
    };
    add_row<serial_pool>(
        t, random_order(), serial_row, 1,
        [=](serial_pool&, number_list& all) {
            std::nth_element(all.begin(), middle_of(all), all.end());
        },
        is_divided);
    add_bide_rows(
        t, random_order(),
        [=](bide_pool& pool, number_list& all) {
            bide::parallel_nth_element(pool.scheduler(), all, middle_of(all));
        },
        is_divided);
#if defined(BIDE_BENCH_HAS_TBB)
    add_row<tbb_pool>(
        t, random_order(), std_row, workers(),
        [=](tbb_pool&, number_list& all) {
            std::nth_element(std::execution::par, all.begin(), middle_of(all), all.end());
        },
        is_divided);
#endif
}

void add_partial_sort(std::uint64_t count) {
    fork_table t(selection("partial_sort", count));
    const auto tenth_of = [](number_list& all) {
        return all.begin() + static_cast<std::ptrdiff_t>(all.size() / 10);
    };
    const auto is_sorted_in_part = [](const number_list& all) {
        const auto tenth = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 10);
        return std::is_sorted(all.begin(), tenth) &&
               std::all_of(tenth, all.end(), [=](auto e) { return e >= *(tenth - 1); });
    };
    add_row<serial_pool>(
        t, random_order(), serial_row, 1,
        [=](serial_pool&, number_list& all) {
            std::partial_sort(all.begin(), tenth_of(all), all.end());
        },
        is_sorted_in_part);
    add_bide_rows(
        t, random_order(),
        [=](bide_pool& pool, number_list& all) {
            bide::parallel_partial_sort(pool.scheduler(), all, tenth_of(all));
        },
        is_sorted_in_part);
#if defined(BIDE_BENCH_HAS_TBB)
    add_row<tbb_pool>(
        t, random_order(), std_row, workers(),
        [=](tbb_pool&, number_list& all) {
            std::partial_sort(std::execution::par, all.begin(), tenth_of(all), all.end());
        },
        is_sorted_in_part);
#endif
}

} // namespace

void add_sorts() {
    const bool quick = is_short();
    for (const order& o : orders) {
        add_unstable(o, quick ? 100'000 : 1'000'000);
    }
    if (!quick) {
        for (const order& o : orders) {
            add_unstable(o, 10'000'000);
        }
    }
    for (const order& o : orders) {
        add_stable(o, quick ? 100'000 : 1'000'000);
    }
}

void add_selections() {
    const std::uint64_t count = is_short() ? 100'000 : 1'000'000;
    add_cached_key(count);
    add_merge(count);
    add_nth_element(count);
    add_partial_sort(count);
}

} // namespace bench
