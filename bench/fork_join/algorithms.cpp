// std's algorithms over numbers of 32 bits in memory: bide's, std's own with and without std::execution::par,
// and TBB's own loop. From a thousand elements, where a fork-join costs more
// than it brings, to more than fit into a cache. The costly rows compute about 100 ns for an element.

#include "fork_join/pools.hpp"

#include <bide/parallel/parallel_any_of.hpp>
#include <bide/parallel/parallel_copy.hpp>
#include <bide/parallel/parallel_count_if.hpp>
#include <bide/parallel/parallel_fill.hpp>
#include <bide/parallel/parallel_find.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_min_element.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/parallel/parallel_transform.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/parallel_for.h>

#include <execution>
#endif

#include <algorithm>
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

struct data {
    std::vector<std::uint32_t> in;
    std::vector<std::uint32_t> out;
};

// Returns a number that no element is, which the compiler does not know.
std::uint32_t absent() {
    std::uint32_t number = 0xffff'ffff;
    asm volatile("" : "+r"(number));
    return number;
}

constexpr int steps_of_100_ns = 100;

inline std::uint32_t compute(std::uint32_t of) {
    std::uint64_t x = of;
    for (int step = 0; step < steps_of_100_ns; ++step) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        asm volatile("" : "+r"(x));
    }
    return static_cast<std::uint32_t>(x >> 33);
}

// How a row runs an algorithm of std: call(policy...).
struct with_std {
    using pool = serial_pool;
    template <class Call> static auto run(pool&, Call call) { return call(); }
};
#if defined(BIDE_BENCH_HAS_TBB)
struct with_par {
    using pool = tbb_pool;
    template <class Call> static auto run(pool&, Call call) { return call(std::execution::par); }
};
#endif

// ---- The algorithms: in std's form, and in bide's. Each returns a number to check.

struct fill_algorithm {
    static constexpr const char* name = "fill";
    static auto std_form(data& d) {
        return [&d](const auto&... policy) {
            std::fill(policy..., d.out.begin(), d.out.end(), 7U);
            return std::uint64_t{d.out.back()};
        };
    }
    static std::uint64_t bide_form(bide::scheduler& s, data& d) {
        bide::parallel_fill(s, d.out, 7U);
        return d.out.back();
    }
};

struct copy_algorithm {
    static constexpr const char* name = "copy";
    static auto std_form(data& d) {
        return [&d](const auto&... policy) {
            std::copy(policy..., d.in.begin(), d.in.end(), d.out.begin());
            return std::uint64_t{d.out.back()};
        };
    }
    static std::uint64_t bide_form(bide::scheduler& s, data& d) {
        bide::parallel_copy(s, d.in, d.out.begin());
        return d.out.back();
    }
};

// `Costly`: each element takes about 100 ns.
template <bool Costly> struct transform_algorithm {
    static constexpr const char* name = Costly ? "transform, costly" : "transform";
    static std::uint32_t f(std::uint32_t x) { return Costly ? compute(x) : 3 * x; }
    static auto std_form(data& d) {
        return [&d](const auto&... policy) {
            std::transform(policy..., d.in.begin(), d.in.end(), d.out.begin(),
                           [](std::uint32_t x) { return f(x); });
            return std::uint64_t{d.out.back()};
        };
    }
    static std::uint64_t bide_form(bide::scheduler& s, data& d) {
        bide::parallel_transform(s, d.in, d.out.begin(), [](std::uint32_t x) { return f(x); });
        return d.out.back();
    }
};

template <bool Costly> struct for_each_algorithm {
    static constexpr const char* name = Costly ? "for_each, costly" : "for_each";
    static void body(std::uint32_t& x) { x = Costly ? compute(x) : x + 3; }
    static auto std_form(data& d) {
        return [&d](const auto&... policy) {
            std::for_each(policy..., d.out.begin(), d.out.end(), [](std::uint32_t& x) { body(x); });
            return std::uint64_t{0};
        };
    }
    static std::uint64_t bide_form(bide::scheduler& s, data& d) {
        bide::parallel_for(s, d.out, [](std::uint32_t& x) { body(x); });
        return 0;
    }
};

template <bool Costly> struct reduce_algorithm {
    static constexpr const char* name = Costly ? "transform_reduce, costly" : "reduce";
    static std::uint64_t f(std::uint32_t x) { return Costly ? compute(x) : x; }
    static auto std_form(data& d) {
        return [&d](const auto&... policy) {
            return std::transform_reduce(policy..., d.in.begin(), d.in.end(), std::uint64_t{0},
                                         std::plus<>(), [](std::uint32_t x) { return f(x); });
        };
    }
    static std::uint64_t bide_form(bide::scheduler& s, data& d) {
        return bide::parallel_reduce(
            s, d.in, std::uint64_t{0}, [](std::uint32_t x) { return f(x); }, std::plus<>());
    }
};

struct find_algorithm {
    static constexpr const char* name = "find nothing";
    static auto std_form(data& d) {
        return [&d, wanted = absent()](const auto&... policy) {
            return static_cast<std::uint64_t>(
                std::find(policy..., d.in.begin(), d.in.end(), wanted) - d.in.begin());
        };
    }
    static std::uint64_t bide_form(bide::scheduler& s, data& d) {
        return static_cast<std::uint64_t>(bide::parallel_find(s, d.in, absent()) - d.in.begin());
    }
};

template <bool Costly> struct find_if_algorithm {
    static constexpr const char* name = Costly ? "find_if nothing, costly" : "find_if nothing";
    static auto match() {
        return [wanted = absent()](std::uint32_t x) { return (Costly ? compute(x) : x) == wanted; };
    }
    static auto std_form(data& d) {
        return [&d](const auto&... policy) {
            return static_cast<std::uint64_t>(
                std::find_if(policy..., d.in.begin(), d.in.end(), match()) - d.in.begin());
        };
    }
    static std::uint64_t bide_form(bide::scheduler& s, data& d) {
        return static_cast<std::uint64_t>(bide::parallel_find_if(s, d.in, match()) - d.in.begin());
    }
};

struct any_of_algorithm {
    static constexpr const char* name = "any_of nothing";
    static auto std_form(data& d) {
        return [&d](const auto&... policy) {
            return std::uint64_t{std::any_of(policy..., d.in.begin(), d.in.end(),
                                             find_if_algorithm<false>::match())};
        };
    }
    static std::uint64_t bide_form(bide::scheduler& s, data& d) {
        return bide::parallel_any_of(s, d.in, find_if_algorithm<false>::match());
    }
};

template <bool Costly> struct count_if_algorithm {
    static constexpr const char* name = Costly ? "count_if, costly" : "count_if";
    static bool is_odd(std::uint32_t x) { return (Costly ? compute(x) : x) % 2 != 0; }
    static auto std_form(data& d) {
        return [&d](const auto&... policy) {
            return static_cast<std::uint64_t>(std::count_if(
                policy..., d.in.begin(), d.in.end(), [](std::uint32_t x) { return is_odd(x); }));
        };
    }
    static std::uint64_t bide_form(bide::scheduler& s, data& d) {
        return static_cast<std::uint64_t>(
            bide::parallel_count_if(s, d.in, [](std::uint32_t x) { return is_odd(x); }));
    }
};

struct min_algorithm {
    static constexpr const char* name = "min_element";
    static auto std_form(data& d) {
        return [&d](const auto&... policy) {
            return static_cast<std::uint64_t>(
                std::min_element(policy..., d.in.begin(), d.in.end()) - d.in.begin());
        };
    }
    static std::uint64_t bide_form(bide::scheduler& s, data& d) {
        return static_cast<std::uint64_t>(bide::parallel_min_element(s, d.in) - d.in.begin());
    }
};

// Makes numbers in no order, the same each time.
data make(std::size_t size) {
    data d{std::vector<std::uint32_t>(size), std::vector<std::uint32_t>(size)};
    for (std::size_t i = 0; i < size; ++i) {
        d.in[i] = static_cast<std::uint32_t>(i * 2'654'435'761U) >> 1;
    }
    return d;
}

template <class Algorithm, class With>
void add_std_row(fork_table& t, const char* row, unsigned count) {
    t.add_work<typename With::pool>(row, count,
                                    [](auto& pool, run_timer& timer, std::uint64_t size) {
                                        data d = make(size);
                                        const auto call = Algorithm::std_form(d);
                                        const std::uint64_t expected = call();
                                        timer.time([&] { return With::run(pool, call); }, expected);
                                    });
}

std::string in_powers(std::uint64_t size) {
    int zeros = 0;
    for (; size >= 10; size /= 10) {
        ++zeros;
    }
    return "1e" + std::to_string(zeros);
}

template <class Algorithm> void add(std::uint64_t least, std::uint64_t most) {
    for (std::uint64_t size = least; size <= most; size *= 10) {
        std::string key = Algorithm::name;
        std::replace(key.begin(), key.end(), ' ', '_');
        fork_table t({.name = "algorithms/" + key + "/" + in_powers(size),
                      .note = "over numbers of 32 bits",
                      .size = size,
                      .count = static_cast<double>(size)});
        add_std_row<Algorithm, with_std>(t, serial_row, 1);
        t.add_work<bide_pool>(
            bide_row, workers(), [](bide_pool& pool, run_timer& timer, std::uint64_t n) {
                data d = make(n);
                const std::uint64_t expected = Algorithm::std_form(d)();
                timer.time([&] { return Algorithm::bide_form(pool.scheduler(), d); }, expected);
            });
#if defined(BIDE_BENCH_HAS_TBB)
        if constexpr (std::is_same_v<Algorithm, for_each_algorithm<false>>) {
            t.add_work<tbb_pool>(
                tbb_row, workers(), [](tbb_pool&, run_timer& timer, std::uint64_t n) {
                    data d = make(n);
                    timer.time(
                        [&] {
                            tbb::parallel_for(std::size_t{0}, d.out.size(),
                                              [first = d.out.data()](std::size_t i) {
                                                  Algorithm::body(first[i]);
                                              });
                            return true;
                        },
                        true);
                });
        }
        add_std_row<Algorithm, with_par>(t, std_row, workers());
#endif
    }
}

} // namespace

void add_algorithms() {
    const std::uint64_t most = is_short() ? 100'000 : 10'000'000;
    const std::uint64_t most_costly = is_short() ? 10'000 : 1'000'000;
    add<for_each_algorithm<false>>(1'000, most);
    add<transform_algorithm<false>>(1'000, most);
    add<reduce_algorithm<false>>(1'000, most);
    add<copy_algorithm>(1'000, most);
    add<fill_algorithm>(1'000, most);
    add<find_algorithm>(1'000, most);
    add<find_if_algorithm<false>>(1'000, most);
    add<any_of_algorithm>(1'000, most);
    add<count_if_algorithm<false>>(1'000, most);
    add<min_algorithm>(1'000, most);
    add<for_each_algorithm<true>>(1'000, most_costly);
    add<transform_algorithm<true>>(1'000, most_costly);
    add<reduce_algorithm<true>>(1'000, most_costly);
    add<find_if_algorithm<true>>(1'000, most_costly);
    add<count_if_algorithm<true>>(1'000, most_costly);
}

} // namespace bench
