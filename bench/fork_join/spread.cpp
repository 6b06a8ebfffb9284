// How work spreads: W workers and W leaves that sleep, which takes no processor, so any machine shows what
// one with W processors would. The ideal is the time of one leaf. And one leaf that takes as long as all
// others together: a worker that becomes free while another one is in it has to find the rest.

#include "fork_join/job.hpp"
#include "fork_join/pools.hpp"
#include "fork_join/workloads.hpp"

#include <bide/parallel/parallel_for.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/parallel_for.h>
#endif

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace bench {
namespace {

void loop(bide_pool& on, std::size_t count, auto body) {
    bide::parallel_for(on.scheduler(), std::size_t{0}, count, body);
}
#if defined(BIDE_BENCH_HAS_TBB)
void loop(tbb_pool&, std::size_t count, auto body) {
    tbb::parallel_for(std::size_t{0}, count, body);
}
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
void loop(openmp_pool&, std::size_t count, auto body) {
#pragma omp taskloop shared(body)
    for (std::size_t i = 0; i < count; ++i) {
        body(i);
    }
}
#endif

void tree(auto& on, std::size_t first, std::size_t last, auto& leaf) {
    if (last - first == 1) {
        leaf(first);
        return;
    }
    const std::size_t middle = first + (last - first) / 2;
    on.join([&] { return tree(on, first, middle, leaf), 0; },
            [&] { return tree(on, middle, last, leaf), 0; });
}

using leaf_time = std::chrono::microseconds;

// Each leaf sleeps for `each`. If `is_uneven`, leaf 0 of `all` leaves sleeps as long as the rest together.
auto sleeping(leaf_time each, std::size_t all, bool is_uneven) {
    return [=](std::size_t i) {
        std::this_thread::sleep_for(is_uneven && i == 0 ? each * static_cast<int>(all - 1) : each);
    };
}

// Adds, in ideal times: a tree of joins, a fork of all at once, a loop. The ideal time of the long leaf is
// its own.
template <class Pool, std::size_t Leaves>
void measure(unsigned count, leaf_time each, bool is_uneven, sample& all) {
    Pool pool(count);
    const auto leaf = sleeping(each, Leaves, is_uneven);
    const double ideal = std::chrono::duration<double, std::nano>(each).count() *
                         static_cast<double>(is_uneven ? Leaves - 1 : 1);
    const auto add = [&](auto run) {
        run_timer timer({Leaves, count, std::chrono::milliseconds(1)});
        pool.run([&] { timer.time([&] { return run(), 0; }, 0); });
        all.push_back(timer.result()[0] / ideal);
    };
    add([&] { tree(pool, 0, Leaves, leaf); });
    add([&] { pool.template many<Leaves>(leaf); });
    add([&] { loop(pool, Leaves, leaf); });
}

template <unsigned Count> void add(harness& h, leaf_time each) {
    constexpr unsigned count = Count;
    table t{"spread/" + std::to_string(count) + "/" + std::to_string(each.count()) + "us",
            std::to_string(count) + " workers, as many leaves that sleep; in ideal times",
            {{"tree", "x", 2, true},
             {"all at once", "x", 2, false},
             {"loop", "x", 2, false},
             {"tree, a long leaf", "x", 2, false},
             {"all at once, a long leaf", "x", 2, false},
             {"loop, a long leaf", "x", 2, false}},
            {}};
    const auto add_row = [&]<class Pool>(const char* name, std::type_identity<Pool>) {
        t.rows.push_back({name,
                          [=] {
                              sample all;
                              measure<Pool, count>(count, each, false, all);
                              measure<Pool, count + 1>(count, each, true, all);
                              return all;
                          },
                          placement::own_process});
    };
    add_row(bide_row, std::type_identity<bide_pool>());
#if defined(BIDE_BENCH_HAS_TBB)
    add_row(tbb_row, std::type_identity<tbb_pool>());
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    add_row(openmp_row, std::type_identity<openmp_pool>());
#endif
    h.add(std::move(t));
}

} // namespace

void add_spread(harness& h) {
    for (const leaf_time each : {leaf_time(20'000), leaf_time(1'000)}) {
        add<2>(h, each);
        add<4>(h, each);
        add<8>(h, each);
        add<16>(h, each);
        add<64>(h, each);
    }
}

} // namespace bench
