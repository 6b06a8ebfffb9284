// # 14. A build graph
//
// A build system runs commands that depend on each other: a library is linked when its objects are compiled, and the
// tests run when all is linked. A `task_graph` has a node for each command and an edge for each dependency. It runs on
// the workers of a scheduler, as many nodes at a time as a limit allows, and it can run again after each change.

#include <bide/bide.hpp>
#include <bide/parallel/task_graph.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

// What the build file says: targets, what each needs, and how long its command takes. The commands of this program only
// wait. A command that fails throws.

struct target {
    std::string name;
    std::vector<std::string> needs;
    std::chrono::milliseconds takes;
    bool fails = false;
};

bide::task<> run_command(const target& of) {
    co_await bide::this_task::sleep_for(of.takes); // a cancelled build stops this wait
    if (of.fails) {
        throw std::runtime_error(of.name + " failed");
    }
}

// **Building the graph.** Nodes first, then edges, so that the order of the targets does not matter. A node is a function
// or, as here, a function that returns a task: the node ends when its task has ended, and uses no thread while the
// command runs. The graph keeps the function, and the function refers to the target, so the targets must outlive the
// graph.

void add_targets(bide::task_graph& graph, const std::vector<target>& targets) {
    std::map<std::string, bide::task_graph::node> nodes;
    for (const target& t : targets) {
        nodes.emplace(t.name, graph.add(t.name, [&t] { return run_command(t); }));
    }
    for (const target& t : targets) {
        for (const std::string& needed : t.needs) {
            nodes.at(t.name).succeed(nodes.at(needed));
        }
    }
}

// **The progress line.** A `fork_progress` counts the nodes that have ended, and any thread may read it. So the line is a
// task of its own: it sleeps, reads, and writes, until it is cancelled.

void write_line(const bide::fork_progress& progress) {
    const std::uint64_t done = progress.done(); // before the total, which is at least as large
    std::printf("[%2llu/%llu]\n", static_cast<unsigned long long>(done),
                static_cast<unsigned long long>(progress.total()));
}

bide::task<> write_lines(const bide::fork_progress& progress) {
    for (;;) {
        co_await bide::this_task::sleep_for(5ms);
        write_line(progress);
    }
}

// **A build.** At most `jobs` commands run at a time. The caller may request a stop, by Ctrl-C for example: no more
// commands start, and those that run are cancelled. If a command fails, the same happens, and `run()` throws the
// exception of the command. In all cases it returns when all that was started has ended. So it is safe to destroy
// the targets then.

enum class outcome { built, failed, stopped };

outcome build(bide::scheduler& workers, bide::task_graph& graph, std::size_t jobs,
              const std::stop_token& stop = {}) {
    bide::fork_progress progress;
    bide::task_group lines(workers);
    lines.spawn(write_lines(progress));
    outcome how = outcome::built;
    try {
        graph.run(workers, {.stop = stop, .limit = jobs, .progress = &progress});
    } catch (const bide::stopped_error&) {
        std::puts("stopped");
        how = outcome::stopped;
    } catch (const std::runtime_error& error) {
        std::printf("error: %s\n", error.what());
        how = outcome::failed;
    }
    lines.cancel();
    lines.join();
    write_line(progress);
    return how;
}

// Mistakes in the build file are found before anything runs. `check()` names the targets of a cycle. `run()` calls it,
// too. The text of `to_dot()` is for Graphviz: `program | dot -Tsvg` draws the graph.

int main() {
    std::vector<target> targets{
        {"app", {"main.o", "core", "net"}, 4ms},
        {"core", {"a.o", "b.o"}, 2ms},
        {"net", {"net.o", "core"}, 2ms},
        {"a.o", {"config.h"}, 6ms},
        {"b.o", {"config.h"}, 9ms},
        {"net.o", {"config.h"}, 5ms},
        {"main.o", {"config.h"}, 7ms},
        {"config.h", {}, 1ms},
        {"test", {"app"}, 3ms},
    };
    bide::scheduler workers;
    bide::task_graph graph;
    add_targets(graph, targets);
    std::fputs(graph.to_dot().c_str(), stdout);
    if (build(workers, graph, 2) != outcome::built) {
        return EXIT_FAILURE;
    }

    // A command that fails, and then the build after the repair: the same graph.
    targets[3].fails = true;
    if (build(workers, graph, 4) != outcome::failed) {
        return EXIT_FAILURE;
    }
    targets[3].fails = false;
    if (build(workers, graph, 4) != outcome::built) {
        return EXIT_FAILURE;
    }

    // A stop.
    std::stop_source stop;
    auto ctrl_c = workers.spawn([&]() -> bide::task<> {
        co_await bide::this_task::sleep_for(4ms);
        stop.request_stop();
    });
    const outcome how = build(workers, graph, 1, stop.get_token());
    std::move(ctrl_c).join();
    if (how != outcome::stopped) {
        return EXIT_FAILURE;
    }

    // A build file with a cycle.
    const std::vector<target> wrong{{"parser", {"grammar"}, 1ms}, {"grammar", {"parser"}, 1ms}};
    bide::task_graph impossible;
    add_targets(impossible, wrong);
    try {
        impossible.check();
    } catch (const std::invalid_argument& error) {
        std::puts(error.what()); // bide::task_graph: a cycle: grammar -> parser -> grammar
        return EXIT_SUCCESS;
    }
    return EXIT_FAILURE;
}
