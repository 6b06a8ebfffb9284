// What all algorithms promise, one row for each of them: the result and the exception of a loop, whatever
// the size, the grain and the workers; an end at a stop; progress.

#include <bide/parallel/parallel_adjacent_difference.hpp>
#include <bide/parallel/parallel_any_of.hpp>
#include <bide/parallel/parallel_collect.hpp>
#include <bide/parallel/parallel_copy.hpp>
#include <bide/parallel/parallel_count_if.hpp>
#include <bide/parallel/parallel_fill.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_merge.hpp>
#include <bide/parallel/parallel_min_element.hpp>
#include <bide/parallel/parallel_nth_element.hpp>
#include <bide/parallel/parallel_partition.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/parallel/parallel_remove_if.hpp>
#include <bide/parallel/parallel_scan.hpp>
#include <bide/parallel/parallel_sort.hpp>
#include <bide/parallel/parallel_sort_by_cached_key.hpp>
#include <bide/parallel/parallel_transform.hpp>
#include <support/counted.hpp>
#include <support/function_ref.hpp>
#include <support/parallel_rounds.hpp>
#include <support/two_threads.hpp>

namespace {

using bide::fork_policy;
using ints = std::vector<int>;

// Is called for the elements, and returns its argument.
using ask = test::function_ref<int(int)>;

struct is_odd {
    ask one;
    bool operator()(int i) const { return one(i) % 2 != 0; }
};
struct odd_or_none {
    ask one;
    std::optional<int> operator()(int i) const {
        return one(i) % 2 != 0 ? std::optional(i) : std::nullopt;
    }
};
struct same_thirds {
    ask one;
    bool operator()(int a, int b) const { return a / 3 == one(b) / 3; }
};
struct difference {
    ask one;
    int operator()(int a, int b) const { return one(a) - 2 * b; }
};
struct is_less {
    ask one;
    bool operator()(int a, int b) const { return one(a) < b; }
};
struct greatest {
    int operator()(int a, int b) const { return a < b ? b : a; }
};

// The elements before `end`; one more if something was written behind it.
ints written(const ints& out, ints::const_iterator end) {
    ints all(out.begin(), end);
    if (std::any_of(end, out.end(), [](int i) { return i != -1; })) {
        all.push_back(-2);
    }
    return all;
}

ints joined(ints a, const ints& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

ints sorted(ints v) {
    std::sort(v.begin(), v.end());
    return v;
}

struct algorithm {
    const char* name;
    int asks;       // so often at most for an element, and throws what a loop throws; 0: neither
    unsigned steps; // of the progress, for each element; 0: it may end early
    ints (*run)(const fork_policy& on, ints in, ask one, bool by_range);
    ints (*serial)(ints in, ask one);
};

// ---- What a loop does

ints map_all(ints in, ask one) {
    for (int& i : in) {
        i = 3 * one(i);
    }
    return in;
}

ints keep_odd(ints in, ask one) {
    std::erase_if(in, [&](int i) { return one(i) % 2 == 0; });
    return in;
}

ints keep_even(ints in, ask one) {
    std::erase_if(in, [&](int i) { return one(i) % 2 != 0; });
    return in;
}

ints odd_and_even(ints in, ask one) {
    ints odd;
    ints even;
    for (const int i : in) {
        (one(i) % 2 != 0 ? odd : even).push_back(i);
    }
    return joined(std::move(odd), even);
}

ints count_odd_and_even(ints in, ask one) {
    const auto odd = static_cast<int>(keep_odd(in, one).size());
    return {static_cast<int>(in.size()) - odd, odd};
}

ints first_of_thirds(ints in, ask one) {
    ints kept;
    for (const int i : in) {
        if (kept.empty() || !same_thirds{one}(kept.back(), i)) {
            kept.push_back(i);
        }
    }
    return kept;
}

ints first_odd(ints in, ask one) {
    for (std::size_t i = 0; i != in.size(); ++i) {
        if (one(in[i]) % 2 != 0) {
            return {static_cast<int>(i)};
        }
    }
    return {static_cast<int>(in.size())};
}

ints sums(ints in, ask one) {
    for (int sum = 0; int& i : in) {
        i = sum += one(i);
    }
    return in;
}

ints greatest_before(ints in, ask one) {
    for (int most = 7; int& i : in) {
        const int here = one(i);
        i = std::exchange(most, std::max(most, here));
    }
    return in;
}

ints greatest_so_far(ints in, ask one) {
    for (int most = 7; int& i : in) {
        i = most = std::max(most, one(i));
    }
    return in;
}

ints sort_all(ints in, ask) { return sorted(std::move(in)); }

ints sort_all_by_keys(ints in, ask one) {
    std::for_each(in.begin(), in.end(), one);
    return sorted(std::move(in));
}

// ---- The algorithms

ints for_indices(const fork_policy& on, ints in, ask one, bool) {
    const auto body = [&](std::size_t i) { in[i] = 3 * one(in[i]); };
    bide::parallel_for(on, std::size_t{0}, in.size(), test::function_ref<void(std::size_t)>(body));
    return in;
}

ints for_elements(const fork_policy& on, ints in, ask one, bool by_range) {
    const auto body = [&](int& i) { i = 3 * one(i); };
    const test::function_ref<void(int&)> each(body);
    by_range ? bide::parallel_for(on, in, each)
             : bide::parallel_for(on, in.begin(), in.end(), each);
    return in;
}

ints for_chunks(const fork_policy& on, ints in, ask one, bool) {
    const auto body = [&](const bide::parallel_chunk<ints::iterator>& chunk) {
        for (std::size_t i = 0; i != chunk.size(); ++i) {
            chunk[i] = 3 * one(in[chunk.index() + i]);
        }
    };
    bide::parallel_for_chunks(on, in, body);
    return in;
}

ints transform(const fork_policy& on, ints in, ask one, bool by_range) {
    const auto triple = [&](int i) { return 3 * one(i); };
    const ask f(triple);
    ints out(in.size() + 1, -1);
    return written(out, by_range
                            ? bide::parallel_transform(on, in, out.begin(), f)
                            : bide::parallel_transform(on, in.begin(), in.end(), out.begin(), f));
}

ints transform_two(const fork_policy& on, ints in, ask one, bool by_range) {
    const auto sum = [&](int a, int b) { return one(a) + 2 * b; };
    const test::function_ref<int(int, int)> f(sum);
    const auto begin = in.begin();
    ints out(in.size() + 1, -1);
    return written(out, by_range
                            ? bide::parallel_transform(on, in, begin, out.begin(), f)
                            : bide::parallel_transform(on, begin, in.end(), begin, out.begin(), f));
}

ints copy(const fork_policy& on, ints in, ask, bool by_range) {
    ints out(in.size() + 1, -1);
    return written(out, by_range ? bide::parallel_copy(on, in, out.begin())
                                 : bide::parallel_copy(on, in.begin(), in.end(), out.begin()));
}

ints fill(const fork_policy& on, ints in, ask, bool by_range) {
    by_range ? bide::parallel_fill(on, in, 7) : bide::parallel_fill(on, in.begin(), in.end(), 7);
    return in;
}

ints adjacent_difference(const fork_policy& on, ints in, ask one, bool by_range) {
    ints out(in.size() + 1, -1);
    return written(
        out, by_range ? bide::parallel_adjacent_difference(on, in, out.begin(), difference{one})
                      : bide::parallel_adjacent_difference(on, in.begin(), in.end(), out.begin(),
                                                           difference{one}));
}

ints copy_if(const fork_policy& on, ints in, ask one, bool by_range) {
    ints out(in.size(), -1);
    return written(
        out, by_range ? bide::parallel_copy_if(on, in, out.begin(), is_odd{one})
                      : bide::parallel_copy_if(on, in.begin(), in.end(), out.begin(), is_odd{one}));
}

ints unique_copy(const fork_policy& on, ints in, ask one, bool by_range) {
    ints out(in.size(), -1);
    return written(out, by_range ? bide::parallel_unique_copy(on, in, out.begin(), same_thirds{one})
                                 : bide::parallel_unique_copy(on, in.begin(), in.end(), out.begin(),
                                                              same_thirds{one}));
}

ints partition_copy(const fork_policy& on, ints in, ask one, bool by_range) {
    ints odd(in.size(), -1);
    ints even(in.size(), -1);
    const auto [end, rest] =
        by_range ? bide::parallel_partition_copy(on, in, odd.begin(), even.begin(), is_odd{one})
                 : bide::parallel_partition_copy(on, in.begin(), in.end(), odd.begin(),
                                                 even.begin(), is_odd{one});
    return joined(written(odd, end), written(even, rest));
}

ints remove_if(const fork_policy& on, ints in, ask one, bool by_range) {
    const auto end = by_range ? bide::parallel_remove_if(on, in, is_odd{one})
                              : bide::parallel_remove_if(on, in.begin(), in.end(), is_odd{one});
    return {in.begin(), end};
}

ints unique(const fork_policy& on, ints in, ask one, bool by_range) {
    const auto end = by_range ? bide::parallel_unique(on, in, same_thirds{one})
                              : bide::parallel_unique(on, in.begin(), in.end(), same_thirds{one});
    return {in.begin(), end};
}

ints stable_partition(const fork_policy& on, ints in, ask one, bool by_range) {
    by_range ? bide::parallel_stable_partition(on, in, is_odd{one})
             : bide::parallel_stable_partition(on, in.begin(), in.end(), is_odd{one});
    return in;
}

// Sorted in both parts, because its order is not that of a loop.
ints partition(const fork_policy& on, ints in, ask one, bool by_range) {
    const auto middle = by_range ? bide::parallel_partition(on, in, is_odd{one})
                                 : bide::parallel_partition(on, in.begin(), in.end(), is_odd{one});
    std::sort(in.begin(), middle);
    std::sort(middle, in.end());
    return in;
}

ints collect(const fork_policy& on, ints in, ask one, bool) {
    const auto triple = [&](int i) { return 3 * one(i); };
    return bide::parallel_collect(on, in, ask(triple));
}

ints collect_if(const fork_policy& on, ints in, ask one, bool) {
    return bide::parallel_collect_if(on, in, is_odd{one});
}

ints collect_some(const fork_policy& on, ints in, ask one, bool) {
    return bide::parallel_collect_some(on, in, odd_or_none{one});
}

ints count_if(const fork_policy& on, ints in, ask one, bool by_range) {
    const auto odd = by_range ? bide::parallel_count_if(on, in, is_odd{one})
                              : bide::parallel_count_if(on, in.begin(), in.end(), is_odd{one});
    return {static_cast<int>(std::ssize(in) - odd), static_cast<int>(odd)};
}

ints find_if(const fork_policy& on, ints in, ask one, bool by_range) {
    const auto at = by_range ? bide::parallel_find_if(on, in, is_odd{one})
                             : bide::parallel_find_if(on, in.begin(), in.end(), is_odd{one});
    return {static_cast<int>(at - in.begin())};
}

ints find(const fork_policy& on, ints in, ask one, bool by_range) {
    const auto rest = [&](int i) { return one(i) % 2; };
    const auto at = by_range ? bide::parallel_find(on, in, 1, ask(rest))
                             : bide::parallel_find(on, in.begin(), in.end(), 1, ask(rest));
    return {static_cast<int>(at - in.begin())};
}

// The place of the first if any was found.
ints find_any(const fork_policy& on, ints in, ask one, bool) {
    const auto at = bide::parallel_find_any(on, in, is_odd{one});
    if (at == in.end()) {
        return {static_cast<int>(in.size())};
    }
    return *at % 2 != 0 ? first_odd(in, one) : ints{-1};
}

ints any_of(const fork_policy& on, ints in, ask one, bool by_range) {
    const is_odd odd{one};
    const auto begin = in.begin();
    const auto end = in.end();
    return {
        by_range ? bide::parallel_any_of(on, in, odd) : bide::parallel_any_of(on, begin, end, odd),
        by_range ? bide::parallel_none_of(on, in, odd)
                 : bide::parallel_none_of(on, begin, end, odd),
        by_range ? bide::parallel_all_of(on, in, odd) : bide::parallel_all_of(on, begin, end, odd)};
}

ints any_of_a_loop(ints in, ask) {
    const auto odd = std::count_if(in.begin(), in.end(), [](int i) { return i % 2 != 0; });
    return {odd != 0, odd == 0, odd == std::ssize(in)};
}

ints extremes(const fork_policy& on, ints in, ask one, bool by_range) {
    const is_less less{one};
    const auto least = by_range ? bide::parallel_min_element(on, in, less)
                                : bide::parallel_min_element(on, in.begin(), in.end(), less);
    const auto most = by_range ? bide::parallel_max_element(on, in, less)
                               : bide::parallel_max_element(on, in.begin(), in.end(), less);
    return {static_cast<int>(least - in.begin()), static_cast<int>(most - in.begin())};
}

ints extremes_of_a_loop(ints in, ask) {
    std::size_t least = 0;
    std::size_t most = 0;
    for (std::size_t i = 1; i < in.size(); ++i) {
        least = in[i] < in[least] ? i : least;
        most = in[most] < in[i] ? i : most;
    }
    return {static_cast<int>(least), static_cast<int>(most)};
}

ints reduce(const fork_policy& on, ints in, ask one, bool by_range) {
    return {by_range ? bide::parallel_reduce(on, in, 7, one, greatest())
                     : bide::parallel_reduce(on, in.begin(), in.end(), 7, one, greatest())};
}

ints reduce_of_a_loop(ints in, ask one) {
    int most = 7;
    for (const int i : in) {
        most = std::max(most, one(i));
    }
    return {most};
}

ints sum(const fork_policy& on, ints in, ask one, bool by_range) {
    return {by_range ? bide::parallel_reduce(on, in, 7, one, std::plus<>())
                     : bide::parallel_reduce(on, in.begin(), in.end(), 7, one, std::plus<>())};
}

ints sum_of_a_loop(ints in, ask one) {
    int sum = 7;
    for (const int i : in) {
        sum += one(i);
    }
    return {sum};
}

// By an operation that may be regrouped.
ints inclusive_scan(const fork_policy& on, ints in, ask one, bool by_range) {
    ints out(in.size() + 1, -1);
    return written(out, by_range ? bide::parallel_transform_inclusive_scan(on, in, out.begin(),
                                                                           std::plus<>(), one)
                                 : bide::parallel_transform_inclusive_scan(
                                       on, in.begin(), in.end(), out.begin(), std::plus<>(), one));
}

// By one whose sums are kept in the output, which is the input.
ints inclusive_scan_from(const fork_policy& on, ints in, ask one, bool by_range) {
    const auto out = in.begin();
    const greatest op;
    by_range ? bide::parallel_transform_inclusive_scan(on, in, out, op, one, 7)
             : bide::parallel_transform_inclusive_scan(on, out, in.end(), out, op, one, 7);
    return in;
}

ints exclusive_scan(const fork_policy& on, ints in, ask one, bool by_range) {
    const auto out = in.begin();
    const greatest op;
    by_range ? bide::parallel_transform_exclusive_scan(on, in, out, 7, op, one)
             : bide::parallel_transform_exclusive_scan(on, out, in.end(), out, 7, op, one);
    return in;
}

ints sort(const fork_policy& on, ints in, ask one, bool by_range) {
    by_range ? bide::parallel_sort(on, in, is_less{one})
             : bide::parallel_sort(on, in.begin(), in.end(), is_less{one});
    return in;
}

ints stable_sort(const fork_policy& on, ints in, ask one, bool by_range) {
    by_range ? bide::parallel_stable_sort(on, in, is_less{one})
             : bide::parallel_stable_sort(on, in.begin(), in.end(), is_less{one});
    return in;
}

ints sort_by_cached_key(const fork_policy& on, ints in, ask one, bool) {
    bide::parallel_sort_by_cached_key(on, in, one);
    return in;
}

ints nth_element(const fork_policy& on, ints in, ask one, bool by_range) {
    const auto nth = in.begin() + std::ssize(in) / 3;
    by_range ? bide::parallel_nth_element(on, in, nth, is_less{one})
             : bide::parallel_nth_element(on, in.begin(), nth, in.end(), is_less{one});
    std::sort(in.begin(), nth);
    if (nth != in.end()) {
        std::sort(nth + 1, in.end());
    }
    return in;
}

// Its progress is that of a selection and of a sort: here of all.
ints partial_sort(const fork_policy& on, ints in, ask one, bool by_range) {
    by_range ? bide::parallel_partial_sort(on, in, in.end(), is_less{one})
             : bide::parallel_partial_sort(on, in.begin(), in.end(), in.end(), is_less{one});
    return in;
}

ints merge(const fork_policy& on, ints in, ask one, bool by_range) {
    const auto middle = in.begin() + std::ssize(in) / 3;
    std::sort(in.begin(), middle);
    std::sort(middle, in.end());
    ints out(in.size() + 1, -1);
    const ints left(in.begin(), middle);
    const ints right(middle, in.end());
    return written(out, by_range ? bide::parallel_merge(on, left, right, out.begin(), is_less{one})
                                 : bide::parallel_merge(on, left.begin(), left.end(), right.begin(),
                                                        right.end(), out.begin(), is_less{one}));
}

ints inplace_merge(const fork_policy& on, ints in, ask one, bool by_range) {
    const auto middle = in.begin() + std::ssize(in) / 3;
    std::sort(in.begin(), middle);
    std::sort(middle, in.end());
    by_range ? bide::parallel_inplace_merge(on, in, middle, is_less{one})
             : bide::parallel_inplace_merge(on, in.begin(), middle, in.end(), is_less{one});
    return in;
}

const algorithm algorithms[] = {
    {"parallel_for over indices", 1, 1, for_indices, map_all},
    {"parallel_for over elements", 1, 1, for_elements, map_all},
    {"parallel_for_chunks", 1, 1, for_chunks, map_all},
    {"parallel_transform", 1, 1, transform, map_all},
    {"parallel_transform of two ranges", 1, 1, transform_two, map_all},
    {"parallel_copy", 0, 1, copy, [](ints in, ask) { return in; }},
    {"parallel_fill", 0, 1, fill, [](ints in, ask) { return ints(in.size(), 7); }},
    {"parallel_adjacent_difference", 1, 1, adjacent_difference,
     [](ints in, ask one) {
         for (int before = 0; int& i : in) {
             const int here = i;
             i = &i == in.data() ? i : difference{one}(i, before);
             before = here;
         }
         return in;
     }},
    {"parallel_copy_if", 1, 1, copy_if, keep_odd},
    {"parallel_unique_copy", 1, 1, unique_copy, first_of_thirds},
    {"parallel_partition_copy", 1, 1, partition_copy, odd_and_even},
    {"parallel_remove_if", 1, 1, remove_if, keep_even},
    {"parallel_unique", 1, 1, unique, first_of_thirds},
    {"parallel_stable_partition", 1, 1, stable_partition, odd_and_even},
    {"parallel_partition", 0, 1, partition,
     [](ints in, ask one) {
         in = odd_and_even(std::move(in), one);
         const auto odd = std::find_if(in.begin(), in.end(), [](int i) { return i % 2 == 0; });
         std::sort(in.begin(), odd);
         std::sort(odd, in.end());
         return in;
     }},
    {"parallel_collect", 1, 1, collect, map_all},
    {"parallel_collect_if", 1, 1, collect_if, keep_odd},
    {"parallel_collect_some", 1, 1, collect_some, keep_odd},
    {"parallel_count_if", 1, 1, count_if, count_odd_and_even},
    {"parallel_find_if", 1, 0, find_if, first_odd},
    {"parallel_find", 1, 0, find, first_odd},
    {"parallel_find_any", 0, 0, find_any, first_odd},
    {"parallel_any_of, parallel_none_of, parallel_all_of", 0, 0, any_of, any_of_a_loop},
    {"parallel_min_element, parallel_max_element", 0, 2, extremes, extremes_of_a_loop},
    {"parallel_reduce", 1, 1, reduce, reduce_of_a_loop},
    {"parallel_reduce of a sum", 1, 1, sum, sum_of_a_loop},
    {"parallel_transform_inclusive_scan", 2, 1, inclusive_scan, sums},
    {"parallel_transform_inclusive_scan from a value", 1, 1, inclusive_scan_from, greatest_so_far},
    {"parallel_transform_exclusive_scan", 1, 1, exclusive_scan, greatest_before},
    {"parallel_sort", 0, 1, sort, sort_all},
    {"parallel_stable_sort", 0, 1, stable_sort, sort_all},
    {"parallel_sort_by_cached_key", 1, 2, sort_by_cached_key, sort_all_by_keys},
    {"parallel_nth_element", 0, 1, nth_element, sort_all},
    {"parallel_partial_sort", 0, 2, partial_sort, sort_all},
    {"parallel_merge", 0, 1, merge, sort_all},
    {"parallel_inplace_merge", 0, 1, inplace_merge, sort_all},
};

// The element 2 * n or 2 * n + 1 has the place n. One of `rarity` is odd, or none is if that is 0.
ints numbered(std::size_t n, std::uint32_t rarity, test::jitter& chance) {
    ints made(n);
    for (std::size_t i = 0; i != n; ++i) {
        made[i] = static_cast<int>(2 * i) + (rarity != 0 && chance.below(rarity) == 0 ? 1 : 0);
    }
    return made;
}

int same(int i) { return i; }
auto* const asks_nothing = &same;

struct failure {
    int at;
};

// What f() returns; if it throws, the place of the failure.
struct outcome {
    ints values;
    int thrown_at = -1;
    bool operator==(const outcome&) const = default;
};
template <class F> outcome outcome_of(const F& f) {
    try {
        return {f(), -1};
    } catch (const failure& failed) {
        return {{}, failed.at};
    }
}

} // namespace

TEST_CASE("algorithms: each gives what a loop gives, whatever the size, the grain and the workers",
          "[promise.counts-as-std][promise.filter-as-std][promise.scan-as-std]"
          "[promise.collect-order][promise.merge-as-std][promise.search-first][promise.selection]"
          "[promise.loop-visits-once]") {
    test::jitter chance(test::run_seed());
    test::on_all_workers(chance, 4, 12, [&](const fork_policy& on, std::size_t n) {
        const std::uint32_t kinds = 1 + chance.below(1u << chance.below(10));
        ints in(n);
        std::generate(in.begin(), in.end(), [&] { return static_cast<int>(chance.below(kinds)); });
        for (const algorithm& each : algorithms) {
            INFO(each.name);
            const bool by_range = chance.below(2) == 0;
            REQUIRE(each.run(on, in, asks_nothing, by_range) == each.serial(in, asks_nothing));
        }
    });
}

TEST_CASE("algorithms: what a thief does stands behind what was done before it",
          "[promise.filter-as-std][promise.collect-order][promise.scan-as-std]"
          "[promise.partition-order]") {
    test::jitter chance(1);
    for (const unsigned workers : {2u, 16u}) {
        bide::scheduler s(test::with(workers, true));
        for (const algorithm& each : algorithms) {
            if (each.asks == 0) {
                continue; // the first thread may call many times before there is a fork
            }
            INFO(each.name << ", " << workers << " workers");
            const ints in = numbered(6'000, each.steps == 0 ? 0 : 2 + chance.below(9), chance);
            test::two_threads both;
            const auto come = [&](int i) { return both.come(), i; };
            CHECK(each.run(s, in, come, true) == each.serial(in, asks_nothing));
            CHECK(both.met());
        }
    }
}

TEST_CASE("algorithms: each element is asked once, and the exception is that of a loop",
          "[promise.filter-as-std][promise.collect-order][promise.scan-as-std]"
          "[promise.counts-as-std][promise.search-first][promise.loop-stops]") {
    test::jitter chance(test::run_seed());
    for (const unsigned workers : {1u, 3u}) {
        bide::scheduler s(test::with(workers, true));
        for (int round = 0; round < 15; ++round) {
            const std::size_t n = chance.below(1u << chance.below(11));
            const ints in = numbered(n, round % 2 == 0 ? 2 : 1'000, chance);
            const fork_policy on(s, {.grain = chance.below(2) == 0 ? 0u : chance.below(50)});
            const auto first = static_cast<int>(chance.below(static_cast<unsigned>(2 * n) + 1));
            const int second = first + static_cast<int>(chance.below(100));
            std::vector<std::atomic<int>> asked(n);
            bool fails_twice = true;
            const auto fails = [&](int i) {
                ++asked[static_cast<std::size_t>(i / 2)];
                const bool is_second = fails_twice && i / 2 == second;
                return i / 2 == first || is_second ? throw failure{i / 2} : i;
            };
            for (const algorithm& each : algorithms) {
                if (each.asks == 0) {
                    continue;
                }
                INFO(each.name << ", " << workers << " workers, " << n << " elements, grain "
                               << on.options().grain << ", thrown at " << first);
                fails_twice =
                    each.run != unique; // which asks about the first of a thief's part last
                const outcome expected = outcome_of([&] { return each.serial(in, fails); });
                std::fill(asked.begin(), asked.end(), 0);
                REQUIRE(outcome_of([&] { return each.run(on, in, fails, true); }) == expected);
                REQUIRE(std::all_of(asked.begin(), asked.end(),
                                    [&](auto& times) { return times <= each.asks; }));
            }
        }
    }
}

TEST_CASE("algorithms: a stop ends each early, and its progress counts each element once",
          "[promise.loop-stops][promise.loop-visits-once][promise.sort-stops]") {
    constexpr int n = 10'000;
    bide::scheduler s(test::with(3, true));
    test::jitter chance(2);
    for (const std::size_t grain : {0u, 10u}) {
        for (const algorithm& each : algorithms) {
            INFO(each.name << ", grain " << grain);
            const ints in = numbered(n, each.steps == 0 ? 0 : 2, chance);
            bide::fork_progress progress;
            each.run({s, {.grain = grain, .progress = &progress}}, in, asks_nothing, true);
            CHECK((each.steps == 0 || progress.done() == each.steps * n));
            CHECK((each.steps == 0 || progress.total() == each.steps * n));

            std::stop_source stop;
            std::atomic<int> calls{0};
            const auto stops = [&](int i) {
                ++calls;
                stop.request_stop();
                return i;
            };
            const fork_policy on(s, {.grain = grain, .stop = stop.get_token()});
            if (each.asks != 0) {
                CHECK_THROWS_AS(each.run(on, in, stops, true), bide::stopped_error);
                CHECK(calls < n);
            }
            stop.request_stop();
            calls = 0;
            CHECK_THROWS_AS(each.run(on, in, stops, true), bide::stopped_error);
            CHECK(calls == 0);
        }
    }
}

TEST_CASE("algorithms: a grain of more than all elements is one of all") {
    constexpr std::size_t most = ~std::size_t{0};
    bide::scheduler s(test::with(2, true));
    test::jitter chance(3);
    const ints in = numbered(1'000, 3, chance);
    for (const std::size_t grain :
         {std::size_t{1'000}, most / 2, most / 2 + 1, most / 2 + 9, most}) {
        for (const algorithm& each : algorithms) {
            INFO(each.name << ", grain " << grain);
            CHECK(each.run({s, {.grain = grain}}, in, asks_nothing, true) ==
                  each.serial(in, asks_nothing));
        }
    }
}

// ---- On one thread, where chance decides what is stolen, of elements that are counted

namespace {

struct counted : test::counted {
    using test::counted::counted;
    counted* operator&() const = delete;
    template <class T> void operator,(T&&) const = delete;
};
using keeps = test::function_ref<bool(int)>;
using all = bide::detail::elements<counted*>;

// Moves or copies what is kept to the front of `in` or `out`; returns how many.
struct filter {
    const char* name;
    bool keeps_all;
    bool keeps_order; // else it throws the exception of the first part that throws
    bool asks_late;   // about the first element of a thief's part
    std::ptrdiff_t (*run)(test::chance_run&, const all& in, counted* out, keeps keep);
};

auto number = &test::counted::number;

const filter filters[] = {
    {"parallel_copy_if", true, true, false,
     [](test::chance_run& given, const all& in, counted* out, keeps keep) {
         return bide::detail::copy_if(given.policy(), in, out, keep, number) - out;
     }},
    {"parallel_remove_if", false, true, false,
     [](test::chance_run& given, const all& in, counted*, keeps keep) {
         auto drop = std::not_fn(keep);
         using keeps_rest = bide::detail::keeps_unmatched<decltype(drop), decltype(number)>;
         return bide::detail::compact(given.policy(), in, keeps_rest{drop, number}) - in.first;
     }},
    {"parallel_unique", false, true, true,
     [](test::chance_run& given, const all& in, counted*, keeps keep) {
         auto equal = [&](int, int second) { return !keep(second); };
         using keeps_first = bide::detail::keeps_first<decltype(equal), decltype(number)>;
         return bide::detail::compact(given.policy(), in, keeps_first{equal, number}) - in.first;
     }},
    {"parallel_stable_partition", true, true, false,
     [](test::chance_run& given, const all& in, counted*, keeps keep) {
         return bide::detail::stable_partition(given.policy(), in, keep, number) - in.first;
     }},
    {"parallel_partition", true, false, false,
     [](test::chance_run& given, const all& in, counted*, keeps keep) {
         return bide::detail::partition(given.policy(), in, keep, number) - in.first;
     }},
};

} // namespace

TEST_CASE("algorithms: whatever thieves take, filters ask each element once, and lose none",
          "[promise.filter-as-std][promise.partition-order]") {
    test::jitter chance(test::run_seed());
    test::tally tally;
    for (int round = 0; round < 150; ++round) {
        for (const filter& each : filters) {
            test::chance_run given(chance, round);
            given.may_lack_memory(chance);
            INFO(each.name << ", round " << round << ", " << given.n << " elements, thrown at "
                           << given.first);
            std::vector<counted> in;
            for (int i = 0; i < given.n; ++i) {
                in.emplace_back(tally, i);
            }
            std::vector<counted> out(in.size(), counted(tally, -1));
            const int alive = tally.alive();
            std::vector<int> asked(in.size());
            const auto keep = [&](int i) { // the first element is not always asked
                ++asked[static_cast<std::size_t>(i)];
                if (i != 0 && (i == given.first || i == given.second)) {
                    throw failure{i};
                }
                return i % 3 == 0;
            };
            if (each.asks_late) {
                given.second = given.first;
            }
            int expected = given.first != 0 ? given.first : given.second;
            expected = expected != 0 && expected < given.n ? expected : -1;
            int thrown = -1;
            std::ptrdiff_t kept = 0;
            try {
                kept = each.run(given, {in.data(), in.size()}, out.data(), keep);
            } catch (const failure& failed) {
                thrown = failed.at;
            } catch (const std::bad_alloc&) {
                thrown = -2;
            }
            // The parts of a partition differ by at most one element.
            const std::size_t grain =
                given.options.grain == 0 ? in.size() + 1 : given.options.grain;
            const auto parts = std::clamp<std::size_t>(in.size() / grain, 1, 64);
            const auto part_of = [&](int i) {
                std::size_t part = 0;
                while (in.size() * (part + 1) / parts <= static_cast<std::size_t>(i)) {
                    ++part;
                }
                return part;
            };
            if (given.is_out_of_memory && !each.keeps_order) {
                REQUIRE((thrown != -1 || expected == -1));
            } else if (thrown >= 0 && expected >= 0 && !each.keeps_order) {
                REQUIRE(part_of(thrown) == part_of(expected));
            } else {
                REQUIRE((thrown == expected || (given.is_out_of_memory && thrown == -2)));
            }
            REQUIRE(tally.alive() == alive);
            REQUIRE(std::all_of(asked.begin(), asked.end(), [](int times) { return times <= 1; }));

            const auto places = [](const std::vector<counted>& of) {
                ints all_of_them;
                for (const counted& element : of) {
                    all_of_them.push_back(element.number());
                }
                return all_of_them;
            };
            ints left = places(in);
            ints wanted;
            for (int i = 0; i < (thrown == -1 ? given.n : thrown); i += 3) {
                wanted.push_back(i);
            }
            const bool copies = each.run == filters[0].run;
            if (thrown == -1) {
                const ints front = copies ? places(out) : left;
                REQUIRE(kept == std::ssize(wanted));
                REQUIRE(std::is_permutation(wanted.begin(), wanted.end(), front.begin()));
                REQUIRE((!each.keeps_order || std::is_sorted(front.begin(), front.begin() + kept)));
            } else if (copies && thrown != -2) { // what stands before is copied, and nothing else
                wanted.resize(out.size(), -1);
                REQUIRE(places(out) == wanted);
            }
            if (each.keeps_all) {
                REQUIRE((thrown != -1 || copies || !each.keeps_order ||
                         std::is_sorted(left.begin() + kept, left.end())));
                std::sort(left.begin(), left.end());
                ints all_numbers(in.size());
                std::iota(all_numbers.begin(), all_numbers.end(), 0);
                REQUIRE(left == all_numbers);
            }
        }
    }
}
