#include <bide/parallel/task_graph.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/with_deadline.hpp>
#include <support/alloc.hpp>
#include <support/scheduling.hpp>
#include <support/thrown_by.hpp>

using namespace bide;
using test::eventually;
using test::thrown_by;
using test::with;

namespace {

using node = task_graph::node;

// Records the order of calls, on any threads.
class journal {
public:
    auto note(char what) {
        return [this, what] { add(what); };
    }
    void add(char what) {
        const std::lock_guard held(lock_);
        text_ += what;
    }
    std::string take() {
        const std::lock_guard held(lock_);
        return std::exchange(text_, {});
    }

private:
    std::mutex lock_;
    std::string text_;
};

task<> note_later(journal& in, char what) {
    co_await this_task::yield();
    in.add(what);
}

task<> wait_for(event& e) { co_await e.async_wait(); }

task<std::size_t> choose_later(std::size_t choice) {
    co_await this_task::yield();
    co_return choice;
}

task<> throw_later() {
    co_await this_task::yield();
    throw std::domain_error("later");
}

bool comes_before(const std::string& text, char first, char second) {
    return text.find(first) != std::string::npos && text.find(first) < text.find(second);
}

} // namespace

// ---- Order

TEST_CASE("task_graph: each node runs once in each run, after its predecessors",
          "[promise.graph-order]") {
    const unsigned workers = GENERATE(1U, 2U, 4U);
    const std::size_t limit = GENERATE(std::size_t{1}, std::size_t{3}, graph_options().limit);
    scheduler s(with(workers, workers != 4));
    task_graph graph;
    constexpr std::size_t side = 20;
    std::vector<node> nodes;
    std::vector<int> calls(side * side);
    std::atomic<int> wrong{0};
    for (std::size_t i = 0; i != calls.size(); ++i) {
        nodes.push_back(graph.add([&, i] {
            ++calls[i];
            const bool above = i < side || calls[i - side] == calls[i];
            const bool before = i % side == 0 || calls[i - 1] == calls[i];
            wrong += above && before ? 0 : 1;
        }));
        if (i >= side) {
            nodes[i].succeed(nodes[i - side]);
        }
        if (i % side != 0) {
            nodes[i - 1].precede(nodes[i]);
        }
    }
    CHECK(graph.size() == calls.size());
    for (int run = 0; run != 50; ++run) {
        graph.run(s, {.limit = limit});
    }
    CHECK(wrong == 0);
    CHECK(std::ranges::count(calls, 50) == static_cast<std::ptrdiff_t>(calls.size()));
}

TEST_CASE("task_graph: functions, coroutines and subgraphs end before their successors",
          "[promise.graph-order]") {
    scheduler s(with(2, true));
    journal text;
    task_graph graph;
    const node a = graph.add("a", text.note('a'));
    const node b = graph.add("b", [&] { return note_later(text, 'b'); });
    const node c = graph.add("c", [&](task_graph& below) {
        below.add(text.note('c')).precede(below.add([&] { return note_later(text, 'd'); }));
    });
    const node d = graph.add("d", [&](task_graph& below) -> task<> {
        below.add([&](task_graph& deeper) {
            deeper.add([&] { return note_later(text, 'e'); });
            deeper.add(text.note('f'));
        });
        return note_later(text, 'g');
    });
    task_graph other;
    other.add(text.note('h'));
    const node e = graph.add("e", other);
    const node last = graph.add("last", text.note('z'));
    a.precede(b, c, d, e);
    last.succeed(b, c, d, e);
    for (int run = 0; run != 100; ++run) {
        graph.run(s, {.limit = run % 2 == 0 ? 1U : 5U});
        const std::string order = text.take();
        REQUIRE(order.size() == 9);
        REQUIRE(order.front() == 'a');
        REQUIRE(order.back() == 'z');
        REQUIRE(comes_before(order, 'c', 'd'));
        REQUIRE(comes_before(order, 'g', 'e'));
        REQUIRE(comes_before(order, 'g', 'f'));
    }
    CHECK(a.name() == "a");
    CHECK(graph.add([] {}).name().empty());
}

TEST_CASE("task_graph: an empty graph, an empty subgraph and nodes without edges run",
          "[promise.graph-order]") {
    scheduler s(with(2, true));
    task_graph graph;
    graph.run(s);
    std::atomic<int> calls{0};
    for (int i = 0; i != 1'000; ++i) {
        graph.add([&] { ++calls; });
    }
    graph.add([](task_graph&) {});
    graph.run(s);
    CHECK(calls == 1'000);
    graph.clear();
    graph.run(s);
    graph.add([&] { calls = 0; });
    graph.run(s);
    CHECK(calls == 0);
}

TEST_CASE("task_graph: runs on a run_loop, and on the worker that waits for it",
          "[promise.graph-order]") {
    task_graph graph;
    journal text;
    graph.add(text.note('a')).precede(graph.add([&] { return note_later(text, 'b'); }));
    run_loop loop;
    graph.run(loop);
    CHECK(text.take() == "ab");
    scheduler s(with(1, true));
    s.spawn([&] { graph.run(s); }).join();
    CHECK(text.take() == "ab");
    sync_wait(s, graph.async_run(loop.tasks() == 0 ? static_cast<task_runner&>(s) : loop));
    CHECK(text.take() == "ab");
}

TEST_CASE("task_graph: other tasks run during a long chain", "[promise.graph-order]") {
    scheduler s(with(1, true));
    task_graph graph;
    std::atomic<bool> has_run{false};
    std::atomic<int> seen{-1};
    int calls = 0;
    auto first = graph.add([&] { s.spawn([&] { has_run = true; }).detach(); });
    for (int i = 0; i != 10'000; ++i) {
        const node next = graph.add([&] {
            if (++calls, has_run && seen == -1) {
                seen = calls;
            }
        });
        first.precede(next);
        first = next;
    }
    graph.run(s);
    CHECK(seen > 0);
}

// ---- Conditions

TEST_CASE("task_graph: a condition starts the successor that it picks, also again",
          "[promise.graph-conditions]") {
    const unsigned workers = GENERATE(1U, 2U);
    scheduler s(with(workers, true));
    journal text;
    int rounds = 0;
    task_graph graph;
    const node start = graph.add("start", text.note('s'));
    const node body = graph.add("body", text.note('b'));
    const node again = graph.add_condition("again", [&] { return ++rounds % 3 == 0 ? 1 : 0; });
    const node branch =
        graph.add_condition("branch", [&] { return choose_later(rounds == 3 ? 1 : 0); });
    const node left = graph.add("left", text.note('l'));
    const node right = graph.add("right", text.note('r'));
    start.precede(body);
    body.precede(again);
    again.precede(body, branch);
    branch.precede(left, right);
    const std::size_t limit = GENERATE(std::size_t{1}, std::size_t{2}, graph_options().limit);
    graph.run(s, {.limit = limit});
    CHECK(text.take() == "sbbbr");
    graph.run(s, {.limit = limit});
    CHECK(text.take() == "sbbbl");
}

TEST_CASE("task_graph: a condition that picks nothing ends its path",
          "[promise.graph-conditions]") {
    scheduler s(with(2, true));
    task_graph graph;
    journal text;
    const int choice = GENERATE(-1, 1, 100);
    const node a = graph.add_condition([=] { return choice; });
    const node joined = graph.add(text.note('j'));
    const node picked = graph.add(text.note('p'));
    a.precede(picked);
    picked.precede(joined);
    graph.add(text.note('x')).precede(joined); // waits for one that does not come
    for (int run = 0; run != 3; ++run) {
        graph.run(s);
        CHECK(text.take() == "x");
    }
}

// ---- The end of a run

TEST_CASE("task_graph: the first exception leaves the run when all started nodes have ended",
          "[promise.graph-failure]") {
    scheduler s(with(2, true));
    const bool later = GENERATE(false, true);
    task_graph graph;
    event never;
    std::atomic<bool> is_waiting{false};
    std::atomic<int> after{0};
    std::atomic<int> fails{1};
    const node waits = graph.add([&]() -> task<> {
        is_waiting = true;
        return wait_for(never);
    });
    const node bad = graph.add([&]() -> task<> {
        eventually([&] { return is_waiting.load(); });
        if (fails == 0) {
            never.set();
            return throw_later();
        }
        if (!later) {
            throw std::domain_error("at once");
        }
        return throw_later();
    });
    bad.precede(graph.add([&] { ++after; }));
    waits.precede(graph.add([&] { ++after; }));
    for (int run = 0; run != 20; ++run) {
        is_waiting = false;
        CHECK(thrown_by([&] { graph.run(s); }) == (later ? "later" : "at once"));
        CHECK(thrown_by([&] { sync_wait(s, graph.async_run(s)); }) ==
              (later ? "later" : "at once"));
    }
    CHECK(after == 0);
}

TEST_CASE("task_graph: after a failure, the graph runs completely again",
          "[promise.graph-failure]") {
    scheduler s(with(2, true));
    task_graph graph;
    std::atomic<bool> fails{true};
    std::atomic<int> calls{0};
    std::vector<node> nodes;
    for (int i = 0; i != 100; ++i) {
        nodes.push_back(graph.add([&, i] {
            ++calls;
            if (i == 37 && fails) {
                throw std::domain_error("37");
            }
        }));
        if (i > 1) {
            nodes.back().succeed(nodes[nodes.size() - 2], nodes[nodes.size() - 3]);
        }
    }
    for (int round = 0; round != 20; ++round) {
        fails = true;
        CHECK(thrown_by([&] { graph.run(s); }) == "37");
        fails = false;
        calls = 0;
        graph.run(s);
        CHECK(calls == 100);
    }
}

TEST_CASE("task_graph: a subgraph that fails, or cannot run, fails its node",
          "[promise.graph-failure]") {
    scheduler s(with(2, true));
    task_graph graph;
    bool cycle = false;
    std::atomic<int> after{0};
    const node top = graph.add([&](task_graph& below) {
        const node a = below.add("a", [] { throw std::domain_error("below"); });
        const node b = below.add("b", [] {});
        a.precede(b);
        if (cycle) {
            b.precede(a);
        }
    });
    top.precede(graph.add([&] { ++after; }));
    CHECK(thrown_by([&] { graph.run(s); }) == "below");
    cycle = true;
    CHECK(thrown_by([&] { graph.run(s); }) == "bide::task_graph: a cycle: a -> b -> a");
    CHECK(after == 0);
}

TEST_CASE("task_graph: a stop ends the waits of nodes and starts no more", "[promise.graph-stop]") {
    scheduler s(with(2, true));
    const bool before = GENERATE(false, true);
    const std::size_t limit = GENERATE(std::size_t{1}, std::size_t{4});
    task_graph graph;
    event never;
    std::stop_source stop;
    std::atomic<int> started{0};
    std::atomic<int> after{0};
    for (int i = 0; i != 4; ++i) {
        graph
            .add([&] {
                if (++started == 1) {
                    stop.request_stop();
                }
                return wait_for(never);
            })
            .precede(graph.add([&] { ++after; }));
    }
    if (before) {
        stop.request_stop();
    }
    CHECK_THROWS_AS(graph.run(s, {.stop = stop.get_token(), .limit = limit}), stopped_error);
    CHECK(after == 0);
    CHECK((before ? started == 0 : started >= 1));
    never.set();
    graph.run(s);
    CHECK(after == 4);
    // The nodes of a subgraph count, too.
    task_graph outer;
    after = 0;
    outer.add([&](task_graph& inner) {
        inner.add([&] { ++after; });
        stop.request_stop();
    });
    stop = std::stop_source();
    CHECK_THROWS_AS(outer.run(s, {.stop = stop.get_token(), .limit = limit}), stopped_error);
    CHECK(after == 0);
    // A stop that skips nothing is none.
    graph.clear();
    stop = std::stop_source();
    graph.add([&] { stop.request_stop(); });
    graph.run(s, {.stop = stop.get_token()});
}

TEST_CASE("task_graph: a task that awaits a run and is cancelled cancels the run",
          "[promise.graph-stop]") {
    scheduler s(with(2, true));
    task_graph graph;
    event never;
    std::atomic<bool> has_started{false};
    std::atomic<int> after{0};
    graph
        .add([&] {
            has_started = true;
            return wait_for(never);
        })
        .precede(graph.add([&] { ++after; }));
    auto running = s.spawn(graph.async_run(s));
    CHECK(eventually([&] { return has_started.load(); }));
    running.cancel();
    CHECK_THROWS_AS(std::move(running).join(), stopped_error);
    const auto late = sync_wait(s, with_timeout(graph.async_run(s), std::chrono::milliseconds(5)));
    CHECK((!late && late.error() == errc::timeout));
    CHECK(after == 0);
}

TEST_CASE("task_graph: a run that is destroyed while it is awaited ends first",
          "[promise.graph-stop]") {
    task_graph graph;
    event never;
    std::atomic<bool> has_started{false};
    graph.add([&] {
        has_started = true;
        return wait_for(never);
    });
    scheduler s(with(2, true));
    {
        // A coroutine of another kind, which is destroyed while it is suspended.
        struct eager {
            struct promise_type {
                eager get_return_object() {
                    return {std::coroutine_handle<promise_type>::from_promise(*this)};
                }
                std::suspend_never initial_suspend() noexcept { return {}; }
                std::suspend_always final_suspend() noexcept { return {}; }
                void return_void() noexcept {}
                void unhandled_exception() noexcept {}
            };
            std::coroutine_handle<> h;
        };
        const auto await = [](task<> run) -> eager { co_await std::move(run); };
        const eager one = await(graph.async_run(s));
        CHECK(eventually([&] { return has_started.load(); }));
        one.h.destroy();
    }
    CHECK_NOTHROW(graph.clear()); // the graph does not run
}

TEST_CASE("task_graph: a runner that has shut down runs no node", "[promise.graph-stop]") {
    task_graph graph;
    std::atomic<int> calls{0};
    graph.add([&] { ++calls; });
    scheduler s(with(2, true));
    s.shutdown();
    CHECK_THROWS_AS(graph.run(s), stopped_error);
    CHECK(calls == 0);
}

TEST_CASE("task_graph: a shutdown cancels a run and waits for it", "[promise.graph-stop]") {
    for (int round = 0; round != 20; ++round) {
        task_graph graph;
        event never;
        std::atomic<bool> has_started{false};
        graph.add([&] { has_started = true; }).precede(graph.add([&] { return wait_for(never); }));
        auto s = std::make_unique<scheduler>(with(2, true));
        bool was_stopped = false;
        std::thread outside([&] {
            try {
                graph.run(*s);
            } catch (const stopped_error&) {
                was_stopped = true;
            }
        });
        CHECK(eventually([&] { return has_started.load(); }));
        s->shutdown();
        outside.join();
        CHECK(was_stopped);
    }
}

// ---- Options

TEST_CASE("task_graph: a limit bounds the nodes that run at a time", "[promise.graph-limit]") {
    scheduler s(with(4, true));
    const unsigned limit = GENERATE(1U, 2U, 3U);
    task_graph graph;
    std::atomic<unsigned> running{0};
    std::atomic<unsigned> most{0};
    std::atomic<int> calls{0};
    const auto enter = [&] {
        const unsigned now = ++running;
        for (unsigned seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        ++calls;
    };
    const node first = graph.add([] {});
    for (int i = 0; i != 50; ++i) {
        graph
            .add([&] {
                enter();
                std::this_thread::yield();
                --running;
            })
            .succeed(first);
        graph
            .add([&]() -> task<> {
                enter();
                co_await this_task::yield();
                --running;
            })
            .succeed(first);
        graph
            .add([&](task_graph& below) {
                enter();
                below.add([&] {
                    enter();
                    --running;
                });
                --running;
            })
            .succeed(first);
    }
    graph.run(s, {.limit = limit});
    CHECK(calls == 200);
    CHECK(most <= limit);
}

TEST_CASE("task_graph: progress counts the nodes", "[promise.graph-limit]") {
    scheduler s(with(2, true));
    task_graph graph;
    fork_progress progress;
    std::atomic<bool> falls{false};
    const auto look = [&] { falls = falls || progress.done() > progress.total(); };
    const node a = graph.add(look);
    const node b = graph.add([&](task_graph& below) {
        below.add(look);
        below.add(look).precede(below.add(look));
    });
    a.precede(b);
    graph.run(s, {.progress = &progress});
    CHECK(progress.done() == 5);
    CHECK(progress.total() == 5);
    int rounds = 0;
    const node again = graph.add_condition([&] { return ++rounds < 3 ? 0 : 1; });
    b.precede(again);
    again.precede(b);
    graph.run(s, {.progress = &progress});
    CHECK(progress.done() == 5 + 1 + 3 * 5);
    CHECK(progress.total() == progress.done());
    CHECK_FALSE(falls);
}

TEST_CASE("task_graph: a second run of functions and small subgraphs allocates nothing",
          "[promise.graph-costs]") {
    scheduler s(with(2, true));
    task_graph graph;
    std::atomic<int> calls{0};
    const node first = graph.add([&] { ++calls; });
    for (int i = 0; i != 100; ++i) { // fewer than the ring of a worker takes
        first.precede(graph.add([&] { ++calls; }));
    }
    first.precede(graph.add([&](task_graph& below) {
        below.add([&] { ++calls; }).precede(below.add([&] { ++calls; }));
    }));
    for (int i = 0; i != 5; ++i) {
        graph.run(s);
    }
    const std::size_t before = test::allocations();
    for (int i = 0; i != 10; ++i) {
        graph.run(s);
    }
    if (test::counts_allocations()) {
        CHECK(test::allocations() == before);
    }
    CHECK(calls == 15 * 103);
}

// ---- Bad input

TEST_CASE("task_graph: a graph that cannot run is refused, and says why",
          "[promise.graph-bad-input]") {
    scheduler s(with(1, true));
    task_graph graph;
    bool was_called = false;
    const auto call = [&] { was_called = true; };
    const node a = graph.add("compile", call);
    const node b = graph.add("link", call);
    const node c = graph.add(call);
    const node before = graph.add("before", call);
    const node behind = graph.add("behind", call);
    before.precede(a);
    a.precede(b);
    b.precede(c);
    graph.check();
    c.precede(a, behind);
    const std::string cycle = "bide::task_graph: a cycle: link -> #2 -> compile -> link";
    CHECK(thrown_by([&] { graph.check(); }) == cycle);
    CHECK(thrown_by([&] { graph.run(s); }) == cycle);
    CHECK(thrown_by([&] { static_cast<void>(graph.async_run(s)); }) == cycle);

    task_graph itself;
    const node alone = itself.add("alone", call);
    alone.precede(alone);
    CHECK(thrown_by([&] { itself.check(); }) == "bide::task_graph: a cycle: alone -> alone");

    task_graph no_start;
    const node condition = no_start.add_condition([] { return 0; });
    const node body = no_start.add(call);
    condition.precede(body);
    body.precede(condition);
    CHECK(thrown_by([&] { no_start.check(); }) ==
          "bide::task_graph: no node to start with: each has a predecessor");

    task_graph other;
    const node foreign = other.add(call);
    CHECK(thrown_by([&] { foreign.precede(a); }) == "bide::task_graph: an edge between two graphs");
    CHECK_THROWS_AS(foreign.succeed(a), std::invalid_argument);
    CHECK(thrown_by([&] { other.run(s, {.limit = 0}); }) == "bide::task_graph: a limit of 0");
    CHECK_THROWS_AS(static_cast<void>(other.async_run(s, {.limit = 0})), std::invalid_argument);
    CHECK_FALSE(was_called);
    other.run(s);
    CHECK(was_called);
}

#if BIDE_TESTS_CAN_DIE_AT_WORK
TEST_CASE("task_graph: a misuse of a graph that runs terminates with a message",
          "[promise.graph-bad-input]") {
    const auto dies = [](const char* message, auto misuse) {
        const std::string said = test::dies([&] {
            scheduler s(with(2, true));
            task_graph graph;
            const node a = graph.add([] {});
            const node b = graph.add([&] { misuse(s, graph, a); });
            a.precede(b);
            graph.run(s);
        });
        CHECK(test::contains(said, message));
    };
    dies("changed while it runs", [](scheduler&, task_graph& g, node) { g.add([] {}); });
    dies("changed while it runs", [](scheduler&, task_graph& g, node) { g.clear(); });
    dies("changed while it runs", [](scheduler&, task_graph&, node a) { a.precede(a); });
    dies("run while it runs", [](scheduler& s, task_graph& g, node) { g.run(s); });
    dies("destroyed while it runs", [](scheduler&, task_graph& g, node) { std::destroy_at(&g); });
    dies("written while it runs",
         [](scheduler&, task_graph& g, node) { static_cast<void>(g.to_dot()); });

    const std::string twice = test::dies([] {
        scheduler s(with(2, true));
        task_graph graph;
        std::atomic<bool> is_running{false};
        const node busy = graph.add([&] {
            is_running = true;
            eventually([] { return false; });
        });
        const node picks = graph.add_condition([&] {
            eventually([&] { return is_running.load(); });
            return 0;
        });
        graph.add([] {}).precede(busy, picks);
        picks.precede(busy);
        graph.run(s);
    });
    CHECK(test::contains(twice, "a node was started again before it had ended"));
}
#endif

// ---- DOT

TEST_CASE("task_graph: to_dot() writes nodes, edges, conditions and subgraphs",
          "[promise.graph-dot]") {
    task_graph graph;
    task_graph other;
    other.add("inner", [] {});
    const node a = graph.add("say \"a\\b\"", [] {});
    const node b = graph.add_condition([] { return 0; });
    const node c = graph.add("c", other);
    a.precede(b);
    b.precede(c, a);
    CHECK(graph.to_dot() == "digraph {\n"
                            "n0 [label=\"say \\\"a\\\\b\\\"\"];\n"
                            "n1 [label=\"#1\", shape=diamond];\n"
                            "n2 [label=\"c\"];\n"
                            "subgraph cluster_n2 {\n"
                            "label=\"c\";\n"
                            "n2_0 [label=\"inner\"];\n"
                            "}\n"
                            "n0 -> n1;\n"
                            "n1 -> n2 [style=dashed, label=\"0\"];\n"
                            "n1 -> n0 [style=dashed, label=\"1\"];\n"
                            "}\n");
}
