// How work spreads: W workers and W leaves that sleep, which takes no processor, so any machine shows what
// one with W processors would. The ideal is the time of one leaf. And one leaf that takes as long as all
// others together: a worker that becomes free while another one is in it has to find the rest.

#include "fork_join/pools.hpp"

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
// its own. Returns the time of the tree.
template <class Pool, std::size_t Leaves>
double measure(unsigned count, leaf_time each, bool is_uneven, measured& to) {
    Pool pool(count);
    const auto leaf = sleeping(each, Leaves, is_uneven);
    const double ideal = std::chrono::duration<double, std::nano>(each).count() *
                         static_cast<double>(is_uneven ? Leaves - 1 : 1);
    const auto add = [&](std::string name, auto run) {
        run_timer timer({Leaves, count, std::chrono::milliseconds(1)});
        pool.run([&] { timer.time([&] { return run(), 0; }, 0); });
        to.counters[name + (is_uneven ? ", a long leaf" : "")] = timer.result().ns / ideal;
    };
    add("tree", [&] { tree(pool, 0, Leaves, leaf); });
    add("all at once", [&] { pool.template many<Leaves>(leaf); });
    add("loop", [&] { loop(pool, Leaves, leaf); });
    return ideal * to.counters["tree"];
}

template <unsigned Count> void add(leaf_time each) {
    const std::string count = std::to_string(Count);
    table t("spread/" + count + "/" + std::to_string(each.count()) + "us",
            count + " workers, as many leaves that sleep; the tree, and counters in ideal times");
    const auto add_row = [&]<class Pool>(const char* name, std::type_identity<Pool>) {
        const auto both = [=] {
            measured all;
            all.ns = measure<Pool, Count>(Count, each, false, all);
            measure<Pool, Count + 1>(Count, each, true, all);
            return all;
        };
        t.add(name, both, placement::own_process);
    };
    add_row(bide_row, std::type_identity<bide_pool>());
#if defined(BIDE_BENCH_HAS_TBB)
    add_row(tbb_row, std::type_identity<tbb_pool>());
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    add_row(openmp_row, std::type_identity<openmp_pool>());
#endif
}

} // namespace

void add_spread() {
    for (const leaf_time each : {leaf_time(20'000), leaf_time(1'000)}) {
        add<2>(each);
        add<4>(each);
        add<8>(each);
        add<16>(each);
        add<64>(each);
    }
}

} // namespace bench
