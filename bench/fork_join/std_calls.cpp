#include "fork_join/std_calls.hpp"

#include <algorithm>
#include <numeric>

#if defined(BIDE_BENCH_CALLS_PARALLEL)
#include <execution>
#define BIDE_BENCH_PAR std::execution::par,
#else
#define BIDE_BENCH_PAR
#endif

namespace bench {
namespace {

using number = std::uint32_t;

constexpr auto is_odd = [](number x) { return x % 2 != 0; };
constexpr auto is_none = [](number x) { return x == 0xffff'ffff; };

std::uint64_t sum_of(const std::vector<number>& some, std::size_t size) {
    return size == 0 ? 0 : std::uint64_t{some[size / 2]} + some[size - 1];
}

} // namespace

// BIDE_BENCH_CALLS is the name of the function.
std::vector<std_call> BIDE_BENCH_CALLS() {
    return {
#define BIDE_BENCH_CALL(name, ...)                                                                 \
    std_call {                                                                                     \
        name, [](std_data& d) -> std::uint64_t {                                                   \
            [[maybe_unused]] const auto a = d.in.begin();                                          \
            [[maybe_unused]] const auto a_end = d.in.end();                                        \
            [[maybe_unused]] const auto s = d.sorted.begin();                                      \
            [[maybe_unused]] const auto s_end = d.sorted.end();                                    \
            [[maybe_unused]] const auto o = d.other.begin();                                       \
            [[maybe_unused]] const auto o_end = d.other.end();                                     \
            [[maybe_unused]] const auto r = d.reals.begin();                                       \
            [[maybe_unused]] const auto r_end = d.reals.end();                                     \
            [[maybe_unused]] const auto out = d.out.begin();                                       \
            [[maybe_unused]] const auto n = d.in.size();                                           \
            [[maybe_unused]] const auto out_n = out + static_cast<std::ptrdiff_t>(n);              \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
// For an algorithm that works in place, on a copy.
#define BIDE_BENCH_IN_PLACE(name, ...) BIDE_BENCH_CALL(name, std::copy(a, a_end, out); __VA_ARGS__)
        BIDE_BENCH_CALL("for_each",
                        std::for_each(BIDE_BENCH_PAR out, out_n, [](number& x) { x = 3 * x + 1; });
                        return 0;),
            BIDE_BENCH_CALL("transform", std::transform(BIDE_BENCH_PAR a, a_end, out,
                                                        [](number x) { return 3 * x; });
                            return sum_of(d.out, n);),
            BIDE_BENCH_CALL("fill", std::fill(BIDE_BENCH_PAR out, out_n, 7U);
                            return sum_of(d.out, n);),
            BIDE_BENCH_CALL("reduce",
                            return std::reduce(BIDE_BENCH_PAR a, a_end, std::uint64_t{0});),
            BIDE_BENCH_CALL("transform_reduce",
                            return std::transform_reduce(BIDE_BENCH_PAR a, a_end, std::uint64_t{0},
                                                         std::plus<>(), is_odd);),
            BIDE_BENCH_CALL("inclusive_scan", std::inclusive_scan(BIDE_BENCH_PAR a, a_end, out);
                            return sum_of(d.out, n);),
            BIDE_BENCH_CALL("exclusive_scan", std::exclusive_scan(BIDE_BENCH_PAR a, a_end, out, 5U);
                            return sum_of(d.out, n);),
            BIDE_BENCH_CALL("inclusive_scan, double",
                            std::inclusive_scan(BIDE_BENCH_PAR r, r_end, d.real_out.begin());
                            return static_cast<std::uint64_t>(d.real_out.back());),
            BIDE_BENCH_CALL("adjacent_difference",
                            std::adjacent_difference(BIDE_BENCH_PAR a, a_end, out);
                            return sum_of(d.out, n);),
            BIDE_BENCH_CALL("find nothing",
                            return static_cast<std::uint64_t>(
                                std::find(BIDE_BENCH_PAR a, a_end, 0xffff'ffffU) - a);),
            BIDE_BENCH_CALL("any_of nothing",
                            return std::any_of(BIDE_BENCH_PAR a, a_end, is_none) ? 1 : 0;),
            BIDE_BENCH_CALL("count_if", return static_cast<std::uint64_t>(
                                            std::count_if(BIDE_BENCH_PAR a, a_end, is_odd));),
            BIDE_BENCH_CALL("min_element", return static_cast<std::uint64_t>(
                                               std::min_element(BIDE_BENCH_PAR a, a_end) - a);),
            BIDE_BENCH_CALL("minmax_element",
                            return static_cast<std::uint64_t>(
                                std::minmax_element(BIDE_BENCH_PAR a, a_end).second - a);),
            BIDE_BENCH_CALL("adjacent_find", return static_cast<std::uint64_t>(
                                                 std::adjacent_find(BIDE_BENCH_PAR s, s_end) - s);),
            BIDE_BENCH_CALL("is_sorted", return std::is_sorted(BIDE_BENCH_PAR s, s_end) ? 1 : 0;),
            BIDE_BENCH_CALL("equal", return std::equal(BIDE_BENCH_PAR a, a_end, a) ? 1 : 0;),
            BIDE_BENCH_CALL("copy_if",
                            return static_cast<std::uint64_t>(
                                std::copy_if(BIDE_BENCH_PAR a, a_end, out, is_odd) - out);),
            BIDE_BENCH_CALL("unique_copy",
                            return static_cast<std::uint64_t>(
                                std::unique_copy(BIDE_BENCH_PAR s, s_end, out) - out);),
            BIDE_BENCH_CALL(
                "partition_copy",
                return static_cast<std::uint64_t>(
                    std::partition_copy(BIDE_BENCH_PAR a, a_end, out, out_n, is_odd).first - out);),
            BIDE_BENCH_CALL("reverse", std::reverse(BIDE_BENCH_PAR out, out_n); return 0;),
            BIDE_BENCH_CALL("rotate", std::rotate(BIDE_BENCH_PAR out,
                                                  out + static_cast<std::ptrdiff_t>(n / 3), out_n);
                            return 0;),
            BIDE_BENCH_IN_PLACE("remove_if",
                                return static_cast<std::uint64_t>(
                                    std::remove_if(BIDE_BENCH_PAR out, out_n, is_odd) - out);),
            BIDE_BENCH_IN_PLACE("partition",
                                return static_cast<std::uint64_t>(
                                    std::partition(BIDE_BENCH_PAR out, out_n, is_odd) - out);),
            BIDE_BENCH_IN_PLACE(
                "stable_partition",
                return static_cast<std::uint64_t>(
                    std::stable_partition(BIDE_BENCH_PAR out, out_n, is_odd) - out);),
            BIDE_BENCH_IN_PLACE("sort", std::sort(BIDE_BENCH_PAR out, out_n);
                                return sum_of(d.out, n);),
            BIDE_BENCH_IN_PLACE("stable_sort", std::stable_sort(BIDE_BENCH_PAR out, out_n);
                                return sum_of(d.out, n);),
            BIDE_BENCH_IN_PLACE("partial_sort, a tenth",
                                std::partial_sort(BIDE_BENCH_PAR out,
                                                  out + static_cast<std::ptrdiff_t>(n / 10), out_n);
                                return d.out[n / 20];),
            BIDE_BENCH_IN_PLACE("nth_element",
                                std::nth_element(BIDE_BENCH_PAR out,
                                                 out + static_cast<std::ptrdiff_t>(n / 2), out_n);
                                return d.out[n / 2];),
            BIDE_BENCH_CALL("merge", std::merge(BIDE_BENCH_PAR s, s_end, o, o_end, out);
                            return sum_of(d.out, 2 * n);),
            BIDE_BENCH_CALL("inplace_merge", std::copy(s, s_end, std::copy(o, o_end, out));
                            std::inplace_merge(BIDE_BENCH_PAR out, out_n, d.out.end());
                            return sum_of(d.out, 2 * n);),
            BIDE_BENCH_CALL("set_union",
                            return static_cast<std::uint64_t>(
                                std::set_union(BIDE_BENCH_PAR s, s_end, o, o_end, out) - out);),
            BIDE_BENCH_CALL(
                "set_intersection",
                return static_cast<std::uint64_t>(
                    std::set_intersection(BIDE_BENCH_PAR s, s_end, o, o_end, out) - out);),
    };
#undef BIDE_BENCH_IN_PLACE
#undef BIDE_BENCH_CALL
}

} // namespace bench
