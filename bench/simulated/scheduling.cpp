// A scheduler with a worker for each processor (scheduling.hpp has the workloads).
//
//   spawn/one     a task that does nothing, from one worker
//   spawn/all     from all workers; each worker's time for a task
//   spread        a task of 1 us, from one worker
//   inject        from P / 2 threads outside, for P / 2 workers
//   wake          all workers sleep: from the spawn until the task runs
//   caller        the same, until the spawn has returned
//   round trip    a thread spawns a task and sleeps until it has run
//   timer/add     adds and cancels a timer; each worker's time
//   timer/late    P tasks sleep for 100 us: how late they go on
//   fork/fib      calls of 50 ns, which fork; each worker's time for a call
//   fork/loop     iterations of 100 ns; each worker's time for an iteration
//   fork/scope    a scope spawns functions of 1 us; each worker's time for a function
//   fork/sleep    P leaves sleep: the time for all
//   when_all/one  4 P children of 10 us: the time for all
//   when_all/all  4 children of 100 ns, in a task on each worker
//   group         each worker spawns members; its time for a member
//   blocking      2 P blocking tasks of 1 ms: the time for all
//
// A thread outside begins the fork-joins, so there is one thread more than there are processors.

#include "simulated/scheduling.hpp"
#include "simulated/curves.hpp"
#include "simulated/peers.hpp"

namespace simulated {
namespace {

// A thread of the machine, with the functions of bide's os_thread.
class thread {
public:
    std::error_code start(void (*call)(void*) noexcept, void* argument, std::size_t) noexcept {
        runs_.store(1, relaxed);
        machine::here()->start([word = &runs_, call, argument] {
            call(argument);
            word->store(0, release);
            platform::futex_wake(word, 1);
        });
        return {};
    }
    // Returns at once if the thread was never started.
    void join() noexcept {
        while (runs_.load(acquire) != 0) {
            sleep_on(runs_, 1u);
        }
    }
    static void name_this(std::string_view, const char*, unsigned) noexcept {}

private:
    atomic<bide::futex_word> runs_{0};
};

struct simulated_machine {
    using platform = simulated::platform;
    using thread = simulated::thread;
    using mutex = futex_mutex;

    static void work(double ns) { machine::here()->compute(ns); }
    static void sleep(double ns) {
        const atomic<unsigned> never{0};
        platform::futex_wait(never, 0u, time_now() + static_cast<std::int64_t>(ns));
    }
    static void name(const void* object, std::size_t size, const char* as) {
        machine::here()->name(object, size, as);
    }
    void run(const std::function<void()>& main) {
        of.start([&] {
            // The library knows what a wake costs, as in a program that has run for a while.
            for (int i = 0; i < 1'000; ++i) {
                bide::basic_spin<platform>::measured_wake([&] { work(wake_ns); });
            }
            main();
        });
        of.run();
    }

    machine& of;
    double wake_ns;
};

using bide_pool = scheduler<simulated_machine>;
using pool_of_book = locked_pool<simulated_machine>;
using pool_of_broadcasts = locked_pool<simulated_machine, true>;

unsigned few(unsigned count) { return static_cast<unsigned>(bench::scaled(count)) + 1; }

// The tables for one machine.
class tables {
public:
    explicit tables(const shape& of) : of_(of) {}

    // measure(machine, P) returns nanoseconds.
    template <class Measure>
    void add(const std::string& workload, const char* note, const char* row, Measure measure) {
        const double wake_ns = of_.numbers.call + of_.numbers.wake;
        curves(workload, of_, note).add(row, [=](team& t, unsigned p, unsigned) {
            simulated_machine m{t.of(), wake_ns};
            return measure(m, p);
        });
    }

private:
    shape of_;
};

template <class Pool> void add_spawns(tables& to, const char* row) {
    using m = simulated_machine;
    to.add("spawn/one", "a task, from one worker", row,
           [](m& on, unsigned p) { return spawn<Pool>(on, p, 1, few(5'000), 0); });
    to.add("spawn/all", "each worker's time for a task", row,
           [](m& on, unsigned p) { return spawn<Pool>(on, p, p, few(20'000 / p + 400), 0); });
    to.add("spread", "a task of 1 us, from one worker", row,
           [](m& on, unsigned p) { return spawn<Pool>(on, p, 1, few(5'000), 1'000); });
    to.add("inject", "a task, from P / 2 threads for P / 2 workers", row, [](m& on, unsigned p) {
        const unsigned half = (p + 1) / 2;
        return inject<Pool>(on, half, half, few(5'000 / half + 20));
    });
}

template <class Pool> void add_wakes(tables& to, const char* row) {
    using m = simulated_machine;
    to.add("wake", "all workers sleep: until one of them runs a task", row,
           [](m& on, unsigned p) { return wake<Pool>(on, p, few(30), 2e6).start; });
    to.add("caller", "the same, until the spawn has returned", row,
           [](m& on, unsigned p) { return wake<Pool>(on, p, few(30), 2e6).caller; });
    to.add("round trip", "a thread spawns a task and sleeps until it has run", row,
           [](m& on, unsigned p) { return wake<Pool>(on, p, few(100), 0).back; });
}

void add_timer_tables(tables& to, const char* row) {
    using m = simulated_machine;
    to.add("timer/add", "each worker's time to add and cancel a timer", row,
           [](m& on, unsigned p) { return add_timers(on, p, few(300)); });
    to.add("timer/late", "P tasks sleep for 100 us: how late they go on", row,
           [](m& on, unsigned p) { return late_timers(on, p, few(10), 100'000); });
}

void add_forks(tables& to) {
    using m = simulated_machine;
    const char* const pool = "bide::scheduler";
    to.add("fork/fib", "each worker's time for a call of 50 ns", pool, [](m& on, unsigned p) {
        const auto body = [](auto& f, auto&) { f.enter([&f] { fib(f, 20, 50); }); };
        return fork_join(on, p, 1, body) * p / calls_of_fib(20);
    });
    to.add("fork/loop", "each worker's time for an iteration of 100 ns", pool,
           [](m& on, unsigned p) {
               const auto body = [](auto& f, auto&) { loop(f, 40'000, [] { m::work(100); }); };
               return fork_join(on, p, 1, body) * p / 40'000;
           });
    to.add("fork/scope", "each worker's time for a function of 1 us", pool, [](m& on, unsigned p) {
        const auto body = [](auto& f, auto& s) { scope(f, s, 4'000, [] { m::work(1'000); }); };
        return fork_join(on, p, 1, body) * p / 4'000;
    });
    for (const int ms : {1, 20}) {
        const std::string workload = "fork/sleep" + std::to_string(ms);
        const auto leaf = [ms] { m::sleep(ms * 1e6); };
        to.add(workload, "P leaves that sleep", "a tree of joins", [leaf](m& on, unsigned p) {
            return fork_join(on, p, 1, [=](auto& f, auto&) {
                f.enter([&] { bide::detail::fork_each(f, 0, p, [&](std::size_t) { leaf(); }); });
            });
        });
        to.add(workload, "P leaves that sleep", "a loop", [leaf](m& on, unsigned p) {
            return fork_join(on, p, 1, [=](auto& f, auto&) { loop(f, p, leaf); });
        });
    }
}

void add_tasks(tables& to) {
    using m = simulated_machine;
    const char* const pool = "bide::scheduler";
    to.add("when_all/one", "4 P children of 10 us", pool,
           [](m& on, unsigned p) { return when_all(on, p, 1, 4, 4 * p, 10'000); });
    to.add("when_all/all", "4 children of 100 ns, on each worker", pool,
           [](m& on, unsigned p) { return when_all(on, p, p, few(100), 4, 100); });
    for (const bool shares : {false, true}) {
        to.add("group", "each worker's time for a member",
               shares ? "one group" : "a group for each worker", [shares](m& on, unsigned p) {
                   return spawn_members(on, p, few(5'000 / p + 100), shares);
               });
    }
    to.add("blocking", "2 P blocking tasks of 1 ms", pool,
           [](m& on, unsigned p) { return spawn_blocking(on, p, 2, 1e6); });
}

void add_tables(const char* name, unsigned processors, const machine_numbers& numbers) {
    if (is_left_out(processors)) {
        return;
    }
    tables to({name, processors, numbers});
    add_spawns<bide_pool>(to, "bide::scheduler");
    add_spawns<pool_of_book>(to, "one locked queue");
    add_wakes<bide_pool>(to, "bide::scheduler");
    add_wakes<pool_of_broadcasts>(to, "one locked queue, a broadcast");
    add_timer_tables(to, "bide::scheduler");
    if (processors > 1) {
        add_forks(to);
    }
    add_tasks(to);
}

} // namespace

void add_scheduling() {
    for (unsigned p = 1; p <= 32; p *= 2) {
        add_tables("one-socket", p, bide::model::one_socket_server(p));
    }
    for (const unsigned p : {64u, 128u}) {
        add_tables("two-sockets", p, bide::model::two_socket_server(p / 2));
    }
    add_tables("virtual", 2, bide::model::two_core_virtual());
}

} // namespace simulated
