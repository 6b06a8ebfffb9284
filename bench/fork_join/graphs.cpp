// Task graphs: functions that depend on each other. Three shapes of Taskflow's own benchmarks, each run again and
// again; one of them with work in the nodes, and one that is built for each run.

#include "fork_join/pools.hpp"

#include <bide/parallel/task_graph.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/flow_graph.h>
#endif
#if defined(BIDE_BENCH_HAS_TASKFLOW)
#include <taskflow/taskflow.hpp>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace bench {
namespace {

// Each graph has the same face: add() adds a node after all earlier ones, edge() makes the second node wait for the
// first one, run() runs all.

class serial_graph {
public:
    explicit serial_graph(unsigned) {}
    template <class F> void add(F f) { nodes_.emplace_back(f); }
    void edge(std::size_t, std::size_t) {} // each edge leads to a node that was added later
    void run() {
        for (const auto& f : nodes_) {
            f();
        }
    }
    void clear() { nodes_.clear(); }

private:
    std::vector<std::function<void()>> nodes_;
};

class bide_graph {
public:
    explicit bide_graph(unsigned workers) : pool_(workers) {}
    template <class F> void add(F f) { nodes_.push_back(graph_.add(f)); }
    void edge(std::size_t from, std::size_t to) { nodes_[from].precede(nodes_[to]); }
    void run() { graph_.run(pool_.scheduler()); }
    void clear() {
        graph_.clear();
        nodes_.clear();
    }

private:
    bide_pool pool_;
    bide::task_graph graph_;
    std::vector<bide::task_graph::node> nodes_;
};

#if defined(BIDE_BENCH_HAS_TBB)
class tbb_graph {
    using node = tbb::flow::continue_node<tbb::flow::continue_msg>;

public:
    explicit tbb_graph(unsigned workers)
        : limit_(tbb::global_control::max_allowed_parallelism, workers) {}
    template <class F> void add(F f) {
        nodes_.push_back(
            std::make_unique<node>(graph_, [f](const tbb::flow::continue_msg&) { f(); }));
    }
    void edge(std::size_t from, std::size_t to) {
        tbb::flow::make_edge(*nodes_[from], *nodes_[to]);
    }
    void run() {
        nodes_.front()->try_put({}); // each shape has one first node
        graph_.wait_for_all();
    }
    void clear() { nodes_.clear(); }

private:
    tbb::global_control limit_;
    tbb::flow::graph graph_;
    std::vector<std::unique_ptr<node>> nodes_;
};
#endif

#if defined(BIDE_BENCH_HAS_TASKFLOW)
constexpr const char* taskflow_row = "taskflow";

class taskflow_graph {
public:
    explicit taskflow_graph(unsigned workers) : executor_(workers) {}
    template <class F> void add(F f) { nodes_.push_back(graph_.emplace(f)); }
    void edge(std::size_t from, std::size_t to) { nodes_[from].precede(nodes_[to]); }
    void run() { executor_.run(graph_).wait(); }
    void clear() {
        graph_.clear();
        nodes_.clear();
    }

private:
    tf::Executor executor_;
    tf::Taskflow graph_;
    std::vector<tf::Task> nodes_;
};
#endif

using edges = std::vector<std::pair<std::size_t, std::size_t>>;

edges chain(std::size_t nodes) {
    edges all;
    for (std::size_t i = 1; i != nodes; ++i) {
        all.emplace_back(i - 1, i);
    }
    return all;
}

edges binary_tree(std::size_t nodes) {
    edges all;
    for (std::size_t i = 1; i != nodes; ++i) {
        all.emplace_back((i - 1) / 2, i);
    }
    return all;
}

// Each node waits for its neighbours above and on the left.
edges wavefront(std::size_t nodes) {
    std::size_t side = 1;
    while (side * side < nodes) {
        ++side;
    }
    edges all;
    for (std::size_t i = 0; i != nodes; ++i) {
        if (i % side != 0) {
            all.emplace_back(i - 1, i);
        }
        if (i >= side) {
            all.emplace_back(i - side, i);
        }
    }
    return all;
}

struct shape {
    const char* name;
    const char* note;
    std::size_t nodes;
    edges (*edges_of)(std::size_t);
    unsigned steps; // of a node, about half a nanosecond each
    bool is_built_each_time;
};

constexpr shape shapes[] = {
    {"graph/chain", "each node waits for the one before it", 32'768, chain, 0, false},
    {"graph/tree", "a full binary tree, from the root on", 32'767, binary_tree, 0, false},
    {"graph/wavefront", "100 x 100 nodes, no work", 10'000, wavefront, 0, false},
    {"graph/wavefront_1us", "100 x 100 nodes of 1 us", 10'000, wavefront, 2'000, false},
    {"graph/built", "100 x 100 nodes, built for each run", 10'000, wavefront, 0, true},
};

template <class Graph> void run(run_timer& timer, unsigned workers, const shape& of) {
    const edges all = of.edges_of(of.nodes);
    std::vector<std::uint64_t> calls(of.nodes);
    Graph graph(workers);
    const auto build = [&] {
        for (std::size_t i = 0; i != of.nodes; ++i) {
            graph.add([cell = &calls[i], steps = of.steps] {
                std::uint64_t x = *cell + 1;
                for (unsigned s = 0; s < steps; ++s) {
                    asm volatile("" : "+r"(x)); // no step may be left out
                    x ^= x << 13;
                    x ^= x << 13;
                }
                ++*cell;
            });
        }
        for (const auto& [from, to] : all) {
            graph.edge(from, to);
        }
    };
    if (!of.is_built_each_time) {
        build();
    }
    std::uint64_t runs = 0;
    timer.time([] {},
               [&] {
                   if (of.is_built_each_time) {
                       graph.clear();
                       build();
                   }
                   graph.run();
                   return ++runs;
               },
               [&](std::uint64_t expected) {
                   return std::all_of(calls.begin(), calls.end(),
                                      [&](std::uint64_t n) { return n == expected; });
               });
}

} // namespace

void add_graphs() {
    for (const shape& s : shapes) {
        fork_table t({.name = s.name,
                      .note = s.note,
                      .size = s.nodes,
                      .count = static_cast<double>(s.nodes)});
        const auto add = [&]<class Graph>(const char* row, unsigned count,
                                          std::type_identity<Graph>) {
            t.add(row, count, [&s](const job& j) {
                run_timer timer(j);
                run<Graph>(timer, j.workers, s);
                return timer.result();
            });
        };
        add(serial_row, 1, std::type_identity<serial_graph>());
        add(bide_row, workers(), std::type_identity<bide_graph>());
        if (workers() > 1) {
            add(bide_one_row, 1, std::type_identity<bide_graph>());
        }
#if defined(BIDE_BENCH_HAS_TASKFLOW)
        add(taskflow_row, workers(), std::type_identity<taskflow_graph>());
#endif
#if defined(BIDE_BENCH_HAS_TBB)
        add(tbb_row, workers(), std::type_identity<tbb_graph>());
#endif
    }
}

} // namespace bench
