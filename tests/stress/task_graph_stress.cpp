// Random graphs of functions, coroutines and subgraphs, run again and again by several threads on one
// scheduler, with failures, stops and limits. Each node checks that its predecessors have ended.

#include <bide/parallel/task_graph.hpp>
#include <support/sched.hpp>

using namespace bide;

namespace {

struct thrown {};

// A graph, and what its nodes have done in the run.
class random_graph {
public:
    random_graph(scheduler& on, std::uint64_t seed) : scheduler_(on), random_(seed) {
        const std::size_t size = 1 + random_() % 60;
        cells_ = std::vector<cell>(size);
        std::vector<task_graph::node> nodes;
        for (std::size_t i = 0; i != size; ++i) {
            nodes.push_back(add(cells_[i]));
            for (std::size_t edges = i == 0 ? 0 : random_() % 4; edges != 0; --edges) {
                const std::size_t from = random_() % i;
                nodes[from].precede(nodes[i]);
                cells_[i].after.push_back(&cells_[from]);
            }
        }
    }

    // Runs the graph once. Returns true if all was as it should be.
    bool run() {
        fails_ = random_() % 4 == 0;
        failing_ = &cells_[random_() % cells_.size()];
        stops_ = random_() % 4 == 0;
        stop_ = std::stop_source();
        for (cell& c : cells_) {
            c.done = 0;
        }
        graph_options how{.stop = stop_.get_token()};
        if (random_() % 2 == 0) {
            how.limit = 1 + random_() % 4;
        }
        try {
            if (random_() % 2 == 0) {
                graph_.run(scheduler_, how);
            } else {
                sync_wait(scheduler_, graph_.async_run(scheduler_, how));
            }
        } catch (const thrown&) {
            return fails_ && failing_->done == 0 && runs_ == 0 && !wrong_;
        } catch (const stopped_error&) {
            return stops_ && runs_ == 0 && !wrong_;
        }
        return !fails_ && runs_ == 0 && !wrong_ &&
               std::ranges::all_of(cells_, [](const cell& c) { return c.done == 1; });
    }

private:
    struct cell {
        int done = 0; // plain: the edges of the graph order the accesses
        std::vector<const cell*> after;
    };

    task_graph::node add(cell& c) {
        switch (random_() % 4) {
        case 0: return graph_.add([this, &c]() -> task<> { return yields(c); });
        case 1:
            return graph_.add([this, &c](task_graph& below) {
                const auto last = below.add([this, &c] { call(c); });
                for (int i = 0; i != 3; ++i) {
                    below.add([this] { count_call(); }).precede(last);
                }
            });
        default: return graph_.add([this, &c] { call(c); });
        }
    }

    task<> yields(cell& c) {
        co_await this_task::yield();
        call(c);
    }

    void count_call() {
        ++runs_;
        --runs_;
    }
    void call(cell& c) {
        ++runs_;
        if (!std::ranges::all_of(c.after, [](const cell* before) { return before->done == 1; })) {
            wrong_ = true;
        }
        --runs_;
        if (fails_ && &c == failing_) {
            throw thrown();
        }
        ++c.done;
        if (stops_ && &c == failing_) {
            stop_.request_stop();
        }
    }

    scheduler& scheduler_;
    std::mt19937_64 random_;
    std::vector<cell> cells_;
    task_graph graph_;
    std::stop_source stop_;
    bool fails_ = false;
    bool stops_ = false;
    const cell* failing_ = nullptr;
    std::atomic<int> runs_{0}; // functions that run
    std::atomic<bool> wrong_{false};
};

} // namespace

TEST_CASE("task_graph stress: random graphs, failures, stops and limits", "[promise.graph-order]") {
    const unsigned workers = GENERATE(1U, 2U, 5U);
    scheduler s(test::with(workers, workers != 2));
    std::vector<long> wrong(3);
    const test::stress_time time;
    test::stress_threads(3, [&](int me) {
        for (std::uint64_t n = test::run_seed() + static_cast<std::uint64_t>(me); time.is_left();
             n += 3) {
            random_graph graph(s, n);
            for (int runs = 0; runs != 10; ++runs) {
                wrong[static_cast<std::size_t>(me)] += graph.run() ? 0 : 1;
            }
        }
    });
    for (const long w : wrong) {
        CHECK(w == 0);
    }
}
