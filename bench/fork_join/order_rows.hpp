#ifndef BIDE_BENCH_FORK_JOIN_ORDER_ROWS_HPP
#define BIDE_BENCH_FORK_JOIN_ORDER_ROWS_HPP

// Rows of functions that change numbers of some order in place.

#include "fork_join/job.hpp"
#include "fork_join/orders.hpp"
#include "fork_join/pools.hpp"
#include "fork_join/workloads.hpp"

#include <algorithm>
#include <cstdint>

namespace bench {

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

} // namespace bench

#endif
