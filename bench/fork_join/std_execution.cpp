// The parallel algorithms of std on bide (interop/std_execution.hpp) and on TBB: the same lines of std, compiled with
// either backend.

#include "fork_join/pools.hpp"
#include "fork_join/std_calls.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bench {

std_data::std_data(std::size_t size)
    : in(size), sorted(size), other(size), reals(size), out(2 * size), real_out(size) {
    std::uint64_t random = 1;
    const auto next = [&random] {
        random = random * 6364136223846793005u + 1442695040888963407u;
        return static_cast<std::uint32_t>(random >> 33);
    };
    std::generate(in.begin(), in.end(), next);
    std::generate(other.begin(), other.end(), next);
    sorted = in;
    std::sort(sorted.begin(), sorted.end());
    std::sort(other.begin(), other.end());
    for (std::size_t i = 0; i < size; ++i) {
        reals[i] = static_cast<double>(i % 7);
    }
}

void add_std_execution() {
    const std::vector<std_call> rows[] = {std_calls_serial(), std_calls_on_bide(),
                                          std_calls_on_tbb()};
    for (std::uint64_t size = 10'000; size <= (is_short() ? 10'000 : 1'000'000); size *= 100) {
        for (std::size_t i = 0; i < rows[0].size(); ++i) {
            std::string key = rows[0][i].name;
            std::replace(key.begin(), key.end(), ' ', '_');
            fork_table t({.name = "std_execution/" + key + (size == 10'000 ? "/1e4" : "/1e6"),
                          .note = "over numbers of 32 bits",
                          .size = size,
                          .count = static_cast<double>(size)});
            const auto add = [&](const char* row, unsigned threads, std::size_t which) {
                t.add_work<serial_pool>(row, threads,
                                        [call = rows[which][i].call, expected = rows[0][i].call](
                                            serial_pool&, run_timer& timer, std::uint64_t n) {
                                            std_data data(n);
                                            const std::uint64_t result = expected(data);
                                            timer.time([&] { return call(data); }, result);
                                        });
            };
            add(serial_row, 1, 0);
            add("bide, std::execution::par", workers(), 1);
            add(std_row, workers(), 2);
        }
    }
}

} // namespace bench
