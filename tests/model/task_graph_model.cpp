// task_graph. The last predecessor starts its successor, once, and the successor sees what all of them did. A run that
// is cancelled ends, and leaves a graph that can run again. What nodes touch is plain data, so two calls that are not
// ordered are found.

#include <bide/parallel/task_graph.hpp>
#include <model/at_random.hpp>
#include <model/task_support.hpp>
#include <support/test.hpp>

namespace {

using platform = model::platform_without_lock_sleep;
using base = bide::detail::basic_graph_node<platform>;
using graph_type = bide::detail::basic_graph<platform>;
template <class T> using var = platform::var<T>;
template <class T> using atomic = platform::atomic<T>;

// A home with a place for one posted job, which any thread may take. A poster that finds the place taken runs the
// earlier job itself.
class one_place final : public bide::detail::basic_task_home<platform> {
    using registry_type = bide::detail::basic_task_registry<platform>;

public:
    registry_type& registry(unsigned = 0) noexcept override { return tasks_; }
    unsigned registry_here() const noexcept override { return 0; }
    bool is_here() const noexcept override { return true; }
    bool is_closing() const noexcept override { return false; }
    bide::executor_ref executor() noexcept override { return bide::executor_ref::to(*this); }
    void task_ended() noexcept override {}
    void post(bide::runnable& r) noexcept override { wake(place_.exchange(&r, order)); }

    // Runs the posted job, if there is one.
    bool run_one() noexcept { return wake(place_.exchange(nullptr, order)); }

private:
    static constexpr auto order = std::memory_order_acq_rel;

    static bool wake(bide::runnable* r) noexcept {
        if (r != nullptr) {
            r->run.wake();
        }
        return r != nullptr;
    }

    atomic<bide::runnable*> place_{nullptr};
    registry_type tasks_;
};

struct run final : bide::detail::basic_graph_run<platform> {
    using basic_graph_run::basic_graph_run;
};

// A node that calls a function: it returns the choice of a condition.
struct node final : base {
    node(graph_type& in, std::function<std::size_t()> what, bool condition, graph_type* subgraph)
        : base(in, &call_on, &destroy_this), does(std::move(what)), below(subgraph) {
        is_condition = condition;
    }
    static base* call_on(base& n) noexcept {
        node& mine = static_cast<node&>(n);
        const std::size_t choice = mine.does();
        auto& in = *n.graph.current;
        return mine.below != nullptr ? in.run_inner(n, *mine.below) : in.node_ended(n, choice);
    }
    static void destroy_this(base* n) noexcept { std::destroy_at(static_cast<node*>(n)); }

    std::function<std::size_t()> does;
    graph_type* below;
};

template <class F> node& add(graph_type& to, F does, graph_type* below = nullptr) {
    const auto call = [does] {
        does();
        return std::size_t{0};
    };
    return to.add<node>({}, call, false, below);
}

// Runs the graph on this thread and on others, which take up to so many jobs each. Returns true if all nodes ran.
constexpr std::size_t no_limit = run::no_limit;
bool run_on(graph_type& of, std::initializer_list<int> jobs, bool cancels = false,
            std::size_t limit = no_limit) {
    of.check();
    one_place where;
    auto now = std::make_unique<run>(where, of, limit, nullptr);
    {
        std::list<model::thread> threads;
        for (const int most : jobs) {
            threads.emplace_back([&where, most] {
                for (int i = 0; i != most; ++i) {
                    where.run_one();
                }
            });
        }
        if (cancels) {
            threads.emplace_back([&now] { now->group().cancel(); });
        }
        now->to_run().run.wake();
    }
    while (!now->group().of_all().has_come()) {
        MODEL_REQUIRE(where.run_one());
    }
    MODEL_REQUIRE(!where.run_one());
    MODEL_REQUIRE(cancels || !now->has_skipped());
    return !now->has_skipped();
}

// a before b and c, these before d.
struct diamond {
    diamond() {
        node& a = add(all, [this] { start = start + 1; });
        node& b = add(all, [this] { left = start; });
        node& c = add(all, [this] { right = start; });
        node& d = add(all, [this] { sum = sum + left + right; });
        all.precede(a, b);
        all.precede(a, c);
        all.precede(b, d);
        all.precede(c, d);
    }
    graph_type all;
    var<int> start{0};
    var<int> left{0};
    var<int> right{0};
    var<int> sum{0};
};

TEST_CASE("task_graph: the last predecessor starts the successor once, and it sees all of them") {
    model::check("diamond, two workers", [] {
        diamond d;
        MODEL_REQUIRE(run_on(d.all, {2}));
        MODEL_REQUIRE(d.sum == 2);
    });
    model::check("diamond, two workers, twice", [] {
        diamond d;
        MODEL_REQUIRE(run_on(d.all, {2}));
        MODEL_REQUIRE(run_on(d.all, {2}));
        MODEL_REQUIRE(d.sum == 2 + 4);
    });
}

TEST_CASE("task_graph: a run that is cancelled ends, and leaves a graph that can run again") {
    model::check("diamond, cancelled", [] {
        diamond d;
        const bool all_ran = run_on(d.all, {1}, true);
        MODEL_REQUIRE(d.sum == (all_ran ? 2 : 0));
        const int before = d.start;
        d.sum = 0;
        MODEL_REQUIRE(run_on(d.all, {}));
        MODEL_REQUIRE(d.start == before + 1);
        MODEL_REQUIRE(d.sum == 2 * d.start);
        model::record(all_ran ? "ran" : "cancelled");
    });
}

TEST_CASE("task_graph: a limit keeps nodes apart") {
    model::check("three nodes, one at a time", [] {
        graph_type all;
        var<int> calls{0};
        for (int i = 0; i != 3; ++i) {
            add(all, [&] { calls = calls + 1; });
        }
        MODEL_REQUIRE(run_on(all, {1}, false, 1));
        MODEL_REQUIRE(calls == 3);
    });
}

TEST_CASE("task_graph: a subgraph ends before the successors of its node") {
    model::check("two nodes below one", [] {
        graph_type all;
        graph_type below;
        var<int> x{0};
        var<int> y{0};
        var<int> sum{0};
        add(below, [&] { x = x + 1; });
        add(below, [&] { y = y + 1; });
        node& top = add(all, [] {}, &below);
        node& next = add(all, [&] { sum = x + y; });
        all.precede(top, next);
        below.check();
        MODEL_REQUIRE(run_on(all, {2}));
        MODEL_REQUIRE(sum == 2);
    });
}

TEST_CASE("task_graph: a node that a condition starts again sees its last call") {
    model::check("a loop beside a node", [] {
        graph_type all;
        var<int> rounds{0};
        var<int> body_calls{0};
        var<bool> beside{false};
        const auto again = [&] {
            rounds = rounds + 1;
            return std::size_t{rounds == 2 ? 1U : 0U};
        };
        node& first = add(all, [] {});
        node& other = add(all, [&] { beside = true; });
        node& body = add(all, [&] { body_calls = body_calls + 1; });
        node& condition = all.add<node>({}, again, true, nullptr);
        node& last = add(all, [&] { MODEL_REQUIRE(body_calls == 2); });
        all.precede(first, other);
        all.precede(first, body);
        all.precede(body, condition);
        all.precede(condition, body);
        all.precede(condition, last);
        MODEL_REQUIRE(run_on(all, {2}));
        MODEL_REQUIRE(rounds == 2 && beside);
    });
    // The condition does not wait for the node that it picks, so only the count of that node orders its calls.
    model::check("a node that is picked after its call", [] {
        graph_type all;
        var<int> calls{0};
        atomic<bool> has_run{false};
        node& picked = add(all, [&] {
            calls = calls + 1;
            has_run.store(true, std::memory_order_relaxed);
        });
        node& start = add(all, [] {});
        const auto choose = [&] {
            return std::size_t{picked.left.load(std::memory_order_relaxed) == 1 &&
                                       has_run.load(std::memory_order_relaxed)
                                   ? 0U
                                   : 1U};
        };
        node& condition = all.add<node>({}, choose, true, nullptr);
        all.precede(start, picked);
        all.precede(start, condition);
        all.precede(condition, picked);
        MODEL_REQUIRE(run_on(all, {2}));
        MODEL_REQUIRE(calls == 1 || calls == 2);
    });
    // The loop does not wait for the node outside of it, which has one predecessor.
    model::check("a loop that starts a node twice", [] {
        graph_type all;
        var<int> calls{0};
        var<bool> is_second{false};
        atomic<bool> has_run{false};
        node& start = add(all, [] {});
        node& body = add(all, [] {});
        node& outside = add(all, [&] {
            calls = calls + 1;
            has_run.store(true, std::memory_order_relaxed);
        });
        const auto choose = [&] {
            const bool again = !is_second && outside.left.load(std::memory_order_relaxed) == 1 &&
                               has_run.load(std::memory_order_relaxed);
            is_second = true;
            return std::size_t{again ? 0U : 1U};
        };
        node& condition = all.add<node>({}, choose, true, nullptr);
        all.precede(start, body);
        all.precede(body, condition);
        all.precede(body, outside);
        all.precede(condition, body);
        MODEL_REQUIRE(run_on(all, {1, 1}));
        MODEL_REQUIRE(calls == 1 || calls == 2);
    });
}

} // namespace
