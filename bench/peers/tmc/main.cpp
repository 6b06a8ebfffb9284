// TooManyCooks under the workloads of bench/sched, which runs them for the other libraries. COUNT is that
// of the tasks, the operations or the messages of a run.

#define TMC_IMPL
#include "peers/program.hpp"

#include <tmc/all_headers.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using tmc::task;

// All of them at once; then their ends are awaited.
task<void> together(std::vector<task<void>> tasks) {
    co_await tmc::spawn_many(tasks.begin(), tasks.end());
}

// ---- Forks

task<std::uint64_t> fib(std::uint64_t n) {
    if (n < 2) {
        co_return n;
    }
    auto [a, b] = co_await tmc::spawn_tuple(fib(n - 1), fib(n - 2));
    co_return a + b;
}
task<void> fib_of(std::uint64_t n) { static_cast<void>(co_await fib(n)); }

task<std::uint64_t> skynet(std::uint64_t first, std::uint64_t leaves) {
    if (leaves == 1) {
        co_return first;
    }
    std::array<task<std::uint64_t>, 10> children;
    for (std::uint64_t i = 0; i < 10; ++i) {
        children[i] = skynet(first + i * leaves / 10, leaves / 10);
    }
    std::uint64_t sum = 0;
    for (const std::uint64_t each : co_await tmc::spawn_many<10>(children.data())) {
        sum += each;
    }
    co_return sum;
}
task<void> skynet_of(std::uint64_t leaves) {
    bench::check(co_await skynet(0, leaves) == leaves * (leaves - 1) / 2);
}

// ---- Tasks

task<void> nothing() { co_return; }
task<void> yields(std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i) {
        co_await tmc::yield();
    }
}
task<void> spawn_many(std::uint64_t count) {
    std::vector<task<void>> tasks(count);
    for (task<void>& t : tasks) {
        t = nothing();
    }
    co_await together(std::move(tasks));
}
task<void> spawn_await(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        co_await tmc::spawn(nothing());
    }
}
task<void> yield_many(std::uint64_t count) {
    std::vector<task<void>> tasks(count);
    for (task<void>& t : tasks) {
        t = yields(1'000);
    }
    co_await together(std::move(tasks));
}
task<void> spawn_yielding(std::uint64_t count) {
    std::vector<task<void>> tasks(count);
    for (task<void>& t : tasks) {
        t = yields(1);
    }
    co_await together(std::move(tasks));
}

// ---- Contention

template <class Work> task<void> so_many(std::size_t tasks, std::uint64_t count, Work work) {
    std::vector<task<void>> all(tasks);
    for (task<void>& t : all) {
        t = work(count / tasks);
    }
    co_await together(std::move(all));
}

task<void> acquire(tmc::semaphore& s, std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i) {
        const auto one = co_await s.acquire_scope();
    }
}
task<void> permits(std::uint64_t count) {
    tmc::semaphore three(3);
    co_await so_many(64, count, [&](std::uint64_t n) { return acquire(three, n); });
}
task<void> lock(tmc::mutex& m, std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i) {
        const auto held = co_await m.lock_scope();
    }
}
template <std::size_t Tasks> task<void> locks(std::uint64_t count) {
    tmc::mutex one;
    co_await so_many(Tasks, count, [&](std::uint64_t n) { return lock(one, n); });
}

using numbers = tmc::chan_tok<std::uint64_t>;
task<void> send(numbers to, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        co_await to.push(i);
    }
}
task<void> receive(numbers from, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        co_await from.pull();
    }
}
task<void> unbounded(std::uint64_t count) {
    auto c = tmc::make_channel<std::uint64_t>();
    std::vector<task<void>> both(2);
    both[0] = send(c.new_token(), count);
    both[1] = receive(c.new_token(), count);
    co_await together(std::move(both));
}

struct workload {
    std::string_view name;
    task<void> (*run)(std::uint64_t count);
};
constexpr workload workloads[] = {{"forks/fib", fib_of},
                                  {"forks/skynet", skynet_of},
                                  {"spawn_many_local", spawn_many},
                                  {"spawn_await", spawn_await},
                                  {"scaling", spawn_yielding},
                                  {"yield_many", yield_many},
                                  {"single_yield", yields},
                                  {"contended/permits", permits},
                                  {"contended/mutex/2", locks<2>},
                                  {"contended/mutex/16", locks<16>},
                                  {"contended/1-1/unbounded", unbounded}};

} // namespace

int main(int argc, char** argv) {
    return bench::run_program(
        argc, argv, "tmc_bench", workloads,
        [] {
            std::printf("TooManyCooks %d.%d, without hwloc\n", TMC_VERSION_MAJOR,
                        TMC_VERSION_MINOR);
        },
        [](const workload& each, const bench::job& j) {
            tmc::cpu_executor().set_thread_count(j.workers).init();
            bench::print_times(
                j, [&] { tmc::post_waitable(tmc::cpu_executor(), each.run(j.count)).get(); });
            tmc::cpu_executor().teardown();
        });
}
