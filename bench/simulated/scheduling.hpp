// Workloads of a scheduler, as templates on a machine: a simulated machine runs them, and so may
// real processors. A machine has
//
//   platform, thread, mutex   a platform, a type with the functions of os_thread, and a plain mutex
//   work(ns)                  computes
//   sleep(ns)                 sleeps, and uses no processor
//   name(object, size, as)    names memory, for the table of lines
//   run(main)                 calls main() on a thread of the machine, and waits for all threads
//
// Each workload returns nanoseconds. Tasks are made in memory that was touched before, because an
// allocation costs nothing on a simulated machine.
#ifndef BIDE_BENCH_SIMULATED_SCHEDULING_HPP
#define BIDE_BENCH_SIMULATED_SCHEDULING_HPP

#include "support/stats.hpp"

#include <bide/core/parker.hpp>
#include <bide/core/timer.hpp>
#include <bide/parallel/fork_scope.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/sched/detail/scheduler_core.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/task/compose.hpp>

#include <model/portable_task.hpp>

#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <vector>

namespace simulated {
using bide::detail::fixed_array;

// Returns the time of the machine. Costs nothing on a simulated machine.
inline std::int64_t time_now() { return bide::native_platform::now(); }

// ---- bide's scheduler

// A task that calls a function. Its maker owns it.
template <class Platform, class F>
class job final : public bide::detail::basic_task_header<Platform> {
    using header = bide::detail::basic_task_header<Platform>;

public:
    job(typename header::home_type& home, F f) noexcept : header(home, false), f_(std::move(f)) {
        is_written_ = true;
    }

private:
    std::coroutine_handle<> start() noexcept override {
        if (is_written_) {
            f_();
        }
        return {};
    }
    void never_start() noexcept override {}
    void settle() noexcept override {}
    void discard_outcome() noexcept override {}
    void destroy() noexcept override {}

    F f_;
    typename Platform::template var<bool> is_written_{false}; // its line moves with the task
};

template <class Machine>
using scheduler_parts =
    bide::detail::basic_scheduler_parts<typename Machine::platform,
                                        bide::model::scheduler_home<typename Machine::platform>,
                                        typename Machine::thread>;

template <class Machine> class scheduler final : public scheduler_parts<Machine> {
    using parts = scheduler_parts<Machine>;

public:
    using machine = Machine;
    using platform = typename Machine::platform;
    template <class F> using task = job<platform, F>;

    // Starts the workers, one for each processor.
    explicit scheduler(unsigned workers) : scheduler(workers, bide::scheduler_options{.name = ""}) {
        const auto& all = this->pool().workers();
        Machine::name(this, sizeof *this, "scheduler");
        Machine::name(all.begin(), all.size() * sizeof *all.begin(), "workers");
        static_cast<void>(this->start_threads());
    }
    ~scheduler() {
        shutdown();
        this->end_external_calls();
    }

    // Returns the time at which no task was left.
    std::int64_t shutdown() noexcept {
        parts::shutdown(bide::deadline::never(), [this]() noexcept {
            ended_at_ = time_now();
            this->end_threads();
        });
        return ended_at_;
    }
    void start_blocking(bide::detail::basic_task_header<platform>& t) noexcept {
        std::error_code why;
        parts::start_blocking(t, why);
    }

    const bide::detail::unhandled& handler() const noexcept override { return unhandled_; }
    void enter() noexcept override { parts::enter(); }
    void leave() noexcept override { parts::leave(); }

private:
    scheduler(unsigned workers, bide::scheduler_options wanted)
        : parts(
              nullptr, wanted,
              {workers, true, nullptr, bide::detail::option_ns(wanted.max_timed_sleep)},
              +[]() -> bide::executor_ref { return {}; }) {}

    const bide::detail::unhandled unhandled_;
    std::int64_t ended_at_ = 0;
};

// ---- The textbook peer: one queue under a lock. If `WakesAll` is true, a new task wakes all
// threads that sleep.

template <class Machine, bool WakesAll = false> class locked_pool {
    template <class T> using var = typename Machine::platform::template var<T>;

public:
    using machine = Machine;
    using platform = typename Machine::platform;

    template <class F> struct task : bide::runnable {
        task(locked_pool&, F f) : call(std::move(f)) {
            run = bide::waker([](void* me) noexcept { static_cast<task*>(me)->begin(); }, this);
            is_written = true;
        }
        void begin() {
            if (is_written) {
                call();
            }
        }
        F call;
        var<bool> is_written{false};
    };

    explicit locked_pool(unsigned threads) : threads_(threads) {
        for (unsigned i = 0; i < threads; ++i) {
            threads_.add();
            threads_[i].start([](void* me) noexcept { static_cast<locked_pool*>(me)->run(); }, this,
                              0);
        }
    }

    void start(bide::runnable& r) {
        {
            const std::lock_guard held(lock_);
            queue_.push(r);
            size_ = size_ + 1;
            left_ = left_ + 1;
            changes_.fetch_add(1);
        }
        platform::futex_wake(&changes_, WakesAll ? all : 1);
    }
    std::int64_t shutdown() {
        {
            const std::lock_guard held(lock_);
            is_closing_ = true;
            changes_.fetch_add(1);
        }
        platform::futex_wake(&changes_, all);
        for (auto& thread : threads_) {
            thread.join();
        }
        return ended_at_;
    }

private:
    static constexpr int all = (std::numeric_limits<int>::max)();

    void run() {
        std::unique_lock held(lock_);
        while (size_ != 0U || left_ != 0U || !is_closing_) {
            if (size_ == 0U) {
                const bide::futex_word seen = changes_.load();
                held.unlock();
                platform::futex_wait(changes_, seen, bide::deadline::never().steady_ns());
                held.lock();
                continue;
            }
            size_ = size_ - 1;
            bide::runnable& r = *queue_.pop();
            held.unlock();
            r.run.wake();
            held.lock();
            left_ = left_ - 1;
            if (left_ == 0U) {
                ended_at_ = time_now();
                changes_.fetch_add(1);
                platform::futex_wake(&changes_, all);
            }
        }
    }

    typename Machine::mutex lock_;
    typename platform::template atomic<bide::futex_word> changes_{0}; // under the lock
    bide::detail::run_list queue_;
    var<unsigned> size_{0};
    var<unsigned> left_{0}; // tasks that are queued or run
    var<bool> is_closing_{false};
    fixed_array<typename Machine::thread> threads_;
    std::int64_t ended_at_ = 0;
};

// ---- Workloads of either pool

// Memory for tasks, and the tasks that were started.
template <class Pool, class F> class tasks {
public:
    explicit tasks(std::size_t most) : all_(most) {
        std::memset(static_cast<void*>(all_.begin()), 0, most * sizeof(*all_.begin()));
    }
    void start(Pool& in, F f) {
        all_.add(in, std::move(f));
        in.start(all_[all_.size() - 1]);
    }

private:
    fixed_array<typename Pool::template task<F>> all_;
};

// The threads that call meet() go on when all of them have called it.
template <class Platform> class start_line {
public:
    explicit start_line(unsigned threads) : missing_(threads) {}
    void meet() {
        if (missing_.fetch_sub(1) == 1) {
            began_at = time_now();
        }
        while (missing_.load(std::memory_order_acquire) != 0) {
            Platform::pause();
        }
    }
    std::int64_t began_at = 0;

private:
    typename Platform::template atomic<unsigned> missing_;
};

// Counts the tasks that have ended. A thread may sleep until all of them have.
template <class Platform> class end_count {
public:
    explicit end_count(unsigned tasks) : left_(tasks) {}
    void end_one() {
        if (left_.fetch_sub(1) == 1) {
            none_left_.unpark();
        }
    }
    void wait() { none_left_.park(); }

private:
    typename Platform::template atomic<unsigned> left_;
    bide::basic_parker<Platform> none_left_;
};

// Calls body(pool, i) for each i < roots in a task of its own, all at a time. Returns the time
// until all tasks have ended.
template <class Pool, class Body>
double run_roots(typename Pool::machine& m, unsigned workers, unsigned roots, const Body& body) {
    using platform = typename Pool::platform;
    start_line<platform> line(roots);
    end_count<platform> ended(roots);
    double ns = 0;
    m.run([&] {
        Pool s(workers);
        const auto root = [&](unsigned i) {
            return [&, i] {
                line.meet();
                body(s, i);
                ended.end_one();
            };
        };
        tasks<Pool, decltype(root(0))> all(roots);
        for (unsigned i = 0; i < roots; ++i) {
            all.start(s, root(i));
        }
        ended.wait(); // the pool refuses tasks when it shuts down
        ns = static_cast<double>(s.shutdown() - line.began_at);
    });
    return ns;
}

// Each of `roots` tasks spawns `each` tasks, which compute. Returns the time for one of `each`.
template <class Pool>
double spawn(typename Pool::machine& m, unsigned workers, unsigned roots, unsigned each,
             double task_ns) {
    const auto task = [task_ns] { Pool::machine::work(task_ns); };
    fixed_array<tasks<Pool, decltype(task)>> all(roots);
    for (unsigned i = 0; i < roots; ++i) {
        all.add(each);
    }
    return run_roots<Pool>(m, workers, roots,
                           [&](Pool& s, unsigned i) {
                               for (unsigned k = 0; k < each; ++k) {
                                   all[i].start(s, task);
                               }
                           }) /
           each;
}

// Threads outside of the pool spawn `each` tasks. Returns the time for one task of all.
template <class Pool>
double inject(typename Pool::machine& m, unsigned workers, unsigned producers, unsigned each) {
    const auto task = [] {};
    struct producer {
        producer(Pool& pool, start_line<typename Pool::platform>& gate, unsigned count)
            : to(pool), line(gate), all(count), left(count) {}
        void run() {
            line.meet();
            for (; left != 0; --left) {
                all.start(to, decltype(task)());
            }
        }
        Pool& to;
        start_line<typename Pool::platform>& line;
        tasks<Pool, std::remove_const_t<decltype(task)>> all;
        unsigned left;
        typename Pool::machine::thread thread{};
    };
    start_line<typename Pool::platform> line(producers);
    double ns = 0;
    m.run([&] {
        Pool s(workers);
        fixed_array<producer> all(producers);
        for (unsigned i = 0; i < producers; ++i) {
            all.add(s, line, each);
            all[i].thread.start([](void* me) noexcept { static_cast<producer*>(me)->run(); },
                                &all[i], 0);
        }
        for (producer& p : all) {
            p.thread.join();
        }
        ns = static_cast<double>(s.shutdown() - line.began_at);
    });
    return ns / producers / each;
}

// A thread outside of the pool spawns a task and waits until the task has run. Before each spawn it
// sleeps, so that all workers sleep, too. Medians.
struct wake_times {
    double start;  // until the task runs
    double caller; // until the spawn has returned
    double back;   // until the thread knows that the task has run
};
template <class Pool>
wake_times wake(typename Pool::machine& m, unsigned workers, unsigned count, double sleep_ns) {
    std::vector<double> starts, calls, backs;
    m.run([&] {
        Pool s(workers);
        bide::basic_parker<typename Pool::platform> done;
        std::int64_t ran_at = 0;
        const auto task = [&ran_at, &done] {
            ran_at = time_now();
            done.unpark();
        };
        tasks<Pool, std::remove_const_t<decltype(task)>> all(count);
        for (unsigned k = 0; k < count; ++k) {
            if (sleep_ns != 0) {
                Pool::machine::sleep(sleep_ns);
            }
            const std::int64_t before = time_now();
            const auto since = [before] { return static_cast<double>(time_now() - before); };
            all.start(s, task);
            calls.push_back(since());
            done.park();
            backs.push_back(since());
            starts.push_back(static_cast<double>(ran_at - before));
        }
        s.shutdown();
    });
    return {bench::percentile(starts, 0.5), bench::percentile(calls, 0.5),
            bench::percentile(backs, 0.5)};
}

// ---- Timers

// Each task adds `each` timers, which are due in a second, and cancels them. Returns the time for
// one timer.
template <class Machine> double add_timers(Machine& m, unsigned workers, unsigned each) {
    using platform = typename Machine::platform;
    return run_roots<scheduler<Machine>>(m, workers, workers,
                                         [&](auto&, unsigned) {
                                             auto& host = *bide::worker_local<platform>::get().host;
                                             for (unsigned k = 0; k < each; ++k) {
                                                 bide::timer t;
                                                 t.when = bide::deadline::at_ns(time_now() +
                                                                                1'000'000'000);
                                                 host.add_timer(t);
                                                 bide::cancel_timer<platform>(t);
                                             }
                                         }) /
           each;
}

// As many tasks as workers sleep `rounds` times for `ns`. Returns how late a sleep ends.
template <class Machine>
double late_timers(Machine& m, unsigned workers, unsigned rounds, std::int64_t ns) {
    using platform = typename Machine::platform;
    using pool = scheduler<Machine>;
    end_count<platform> ended(workers);
    std::int64_t late = 0;
    struct sleeper {
        sleeper() {
            alarm.fire = bide::waker(
                [](void* me) noexcept {
                    auto& mine = *static_cast<sleeper*>(me);
                    mine.in->post(mine.goes_on);
                },
                this);
            goes_on.run =
                bide::waker([](void* me) noexcept { static_cast<sleeper*>(me)->next(); }, this);
        }
        void next() {
            if (due != 0) {
                *late += time_now() - due;
            }
            if (rounds-- == 0) {
                return ended->end_one();
            }
            due = time_now() + ns;
            alarm.when = bide::deadline::at_ns(due);
            bide::worker_local<platform>::get().host->add_timer(alarm);
        }
        pool* in = nullptr;
        unsigned rounds = 0;
        std::int64_t ns = 0, due = 0;
        std::int64_t* late = nullptr;
        end_count<platform>* ended = nullptr;
        bide::timer alarm;
        bide::runnable goes_on;
    };
    m.run([&] {
        pool s(workers);
        fixed_array<sleeper> all(workers);
        for (unsigned i = 0; i < workers; ++i) {
            all.add();
            all[i].in = &s;
            all[i].rounds = rounds;
            all[i].ns = ns;
            all[i].late = &late;
            all[i].ended = &ended;
            s.post(all[i].goes_on);
        }
        ended.wait();
        s.shutdown();
    });
    return static_cast<double>(late) / workers / rounds;
}

// ---- Fork-joins

// Forks as bide's forker does (parallel/fork_join.hpp). `site` is the place in the program.
template <class Machine> class forks {
    using context = bide::detail::basic_fork_context<typename Machine::platform>;

public:
    using platform = typename Machine::platform;
    using call_site = bide::detail::basic_fork_call_site<platform>;

    forks(scheduler<Machine>& in, call_site& site) noexcept : in_(&in), site_(&site) {}

    template <class F, class G> void both(F&& f, G&& g, bool is_brief = false) const {
        bide::detail::fork(context::here().lane, std::forward<F>(f), std::forward<G>(g), is_brief);
    }
    template <class F> void enter(const F& f) const { enter_loop<0>(1, nullptr, f); }
    template <std::int64_t LongestNs, class Brief, class F>
    void enter_loop(std::uint64_t iterations, const Brief& run_briefly, const F& f) const {
        if (context::here().scheduler_id == in_->pool().scheduler_id()) {
            return f();
        }
        std::int64_t begin = 0;
        if constexpr (LongestNs != 0) {
            const std::int64_t most_ns = site_->alone_ns(in_->pool(), LongestNs, iterations);
            if (most_ns != 0) {
                begin = platform::now();
                if (const std::int64_t end = run_briefly(begin, most_ns); end != 0) {
                    return site_->learn(end - begin, iterations);
                }
            }
        }
        const bool is_kept = in_->is_here() && context::here().scheduler_id == nullptr;
        const bide::detail::basic_scoped_lane<platform> lane(in_->pool(), is_kept);
        const bide::detail::basic_fork_scope<platform> scope(*lane.get(), *site_, iterations,
                                                             begin);
        f();
    }
    bool wants_work(std::uint64_t most) const noexcept {
        const context& here = context::here();
        return here.lane != nullptr && here.lane->wants_work(most);
    }
    const void* thread() const noexcept { return context::here().lane; }
    bool may_leave() const noexcept { return context::here().lane->may_leave(); }
    bool leaves_for_task(std::int64_t now) const noexcept {
        return context::here().lane->leaves_for_task(now);
    }

private:
    scheduler<Machine>* in_;
    call_site* site_;
};

// A thread outside of the pool begins fork-joins; the first one is not measured. Returns the
// average time of the others. body(forks, scheduler) is one fork-join.
template <class Machine, class Body>
double fork_join(Machine& m, unsigned workers, unsigned rounds, const Body& body) {
    typename forks<Machine>::call_site site;
    double ns = 0;
    m.run([&] {
        scheduler<Machine> s(workers);
        const forks<Machine> f(s, site);
        if (bide::detail::basic_pool<typename Machine::platform>& p = s.pool(); !p.takes_arms()) {
            return; // there are no lanes
        }
        body(f, s);
        const std::int64_t begin = time_now();
        for (unsigned k = 0; k < rounds; ++k) {
            body(f, s);
        }
        ns = static_cast<double>(time_now() - begin) / rounds;
        s.shutdown();
    });
    return ns;
}

// Each call of the recursion computes for `call_ns`.
template <class Machine> unsigned fib(const forks<Machine>& f, unsigned n, double call_ns) {
    Machine::work(call_ns);
    if (n < 2) {
        return n;
    }
    unsigned a = 0, b = 0;
    f.both([&] { a = fib(f, n - 1, call_ns); }, [&] { b = fib(f, n - 2, call_ns); });
    return a + b;
}
constexpr unsigned calls_of_fib(unsigned n) {
    return n < 2 ? 1 : 1 + calls_of_fib(n - 1) + calls_of_fib(n - 2);
}

template <class Machine, class Body>
void loop(const forks<Machine>& f, std::uint64_t count, const Body& body) {
    const auto leaf = [&body](std::uint64_t from, std::uint64_t to) {
        for (; from != to; ++from) {
            body();
        }
    };
    const bide::fork_options none;
    bide::detail::run_loop_over(f, bide::detail::range_of(std::uint64_t{0}, count), none, leaf);
}

// Spawns `count` functions into a scope.
template <class Machine, class Body>
void scope(const forks<Machine>& f, scheduler<Machine>& s, unsigned count, const Body& body) {
    f.enter([&] {
        bide::basic_spawn_scope<typename Machine::platform> all(&s.pool(), {});
        all.run([&](auto& in) {
            for (unsigned k = 0; k < count; ++k) {
                in.spawn([&body] { body(); });
            }
        });
    });
}

// ---- Coroutines

// Makes the coroutine a part of a task, and returns it.
template <class Platform>
std::coroutine_handle<> begin(const bide::model::link<Platform>& one,
                              bide::basic_task_context<Platform>& task, bide::executor_ref where) {
    one.frame.promise().context = &task;
    one.frame.promise().where = where;
    return one.frame;
}

// A task that runs a coroutine.
template <class Platform>
class coroutine_task final : public bide::detail::basic_task_header<Platform> {
    using header = bide::detail::basic_task_header<Platform>;

public:
    coroutine_task(typename header::home_type& home, bide::model::link<Platform>&& what) noexcept
        : header(home, false), what_(std::move(what)) {}

private:
    std::coroutine_handle<> start() noexcept override {
        return simulated::begin<Platform>(what_, *this, this->home().executor());
    }
    void never_start() noexcept override {}
    void settle() noexcept override {}
    void discard_outcome() noexcept override {}
    void destroy() noexcept override {}

    const bide::model::link<Platform> what_;
};

template <class Machine>
class when_child final : public bide::detail::basic_when_child<typename Machine::platform> {
public:
    explicit when_child(double ns) : what_(compute(ns)) {}

private:
    static bide::model::link<typename Machine::platform> compute(double ns) {
        Machine::work(ns);
        co_return;
    }
    std::coroutine_handle<> begin(bide::executor_ref where) noexcept override {
        return simulated::begin<typename Machine::platform>(what_, *this, where);
    }
    void settle() noexcept override {}

    const bide::model::link<typename Machine::platform> what_;
};

// Awaits when_all() of `children` children that compute, `rounds` times.
template <class Machine>
bide::model::link<typename Machine::platform>
await_all(unsigned rounds, unsigned children, double child_ns,
          end_count<typename Machine::platform>& ended,
          start_line<typename Machine::platform>& line) {
    using state = bide::detail::basic_when_state<typename Machine::platform>;
    line.meet();
    for (unsigned k = 0; k < rounds; ++k) {
        state all(state::until::all);
        fixed_array<when_child<Machine>> each(children);
        for (unsigned i = 0; i < children; ++i) {
            each.add(child_ns);
            all.add(each[i]);
        }
        co_await all.wait();
    }
    ended.end_one();
}

// Each of `parents` tasks does that. Returns the time for one when_all().
template <class Machine>
double when_all(Machine& m, unsigned workers, unsigned parents, unsigned rounds, unsigned children,
                double child_ns) {
    using platform = typename Machine::platform;
    start_line<platform> line(parents);
    end_count<platform> ended(parents);
    double ns = 0;
    m.run([&] {
        scheduler<Machine> s(workers);
        fixed_array<coroutine_task<platform>> all(parents);
        for (unsigned i = 0; i < parents; ++i) {
            all.add(s, await_all<Machine>(rounds, children, child_ns, ended, line));
            s.start(all[i]);
        }
        ended.wait();
        ns = static_cast<double>(s.shutdown() - line.began_at);
    });
    return ns / rounds;
}

// ---- Groups and blocking tasks

// A task that is a member of a group, and does nothing.
template <class Platform> class member final : public bide::detail::basic_task_header<Platform> {
public:
    member(bide::detail::basic_task_home<Platform>& home, bide::detail::basic_group<Platform>& of)
        : bide::detail::basic_task_header<Platform>(home, false), in_group(of, *this) {}

    bide::detail::basic_group_member<Platform> in_group;

private:
    std::coroutine_handle<> start() noexcept override { return {}; }
    void never_start() noexcept override {}
    void settle() noexcept override {}
    void discard_outcome() noexcept override { in_group.end({}, false); }
    void destroy() noexcept override {}
};

// Each worker spawns `each` members. If `shares`, into one group. Returns the time for one of
// `each`.
template <class Machine>
double spawn_members(Machine& m, unsigned workers, unsigned each, bool shares) {
    using platform = typename Machine::platform;
    fixed_array<fixed_array<member<platform>>> all(workers);
    struct alignas(128) isolated_group : bide::detail::basic_group<platform> {};
    fixed_array<isolated_group> groups(workers);
    for (unsigned i = 0; i < workers; ++i) {
        all.add(each);
        groups.add();
    }
    return run_roots<scheduler<Machine>>(m, workers, workers,
                                         [&](auto& s, unsigned i) {
                                             auto& to = groups[shares ? 0 : i];
                                             Machine::name(&to, sizeof to, "group");
                                             for (unsigned k = 0; k < each; ++k) {
                                                 all[i].add(s, to);
                                                 member<platform>& one = all[i][k];
                                                 to.begin(one.in_group);
                                                 s.start(one);
                                             }
                                         }) /
           each;
}

// The same with one counter in place of a group: nothing can cancel the tasks.
template <class Machine> double count_members(Machine& m, unsigned workers, unsigned each) {
    using pool = scheduler<Machine>;
    alignas(128) typename pool::platform::template atomic<unsigned> left{0};
    const auto task = [&left] { left.fetch_sub(1); };
    fixed_array<tasks<pool, std::remove_const_t<decltype(task)>>> all(workers);
    for (unsigned i = 0; i < workers; ++i) {
        all.add(each);
    }
    return run_roots<pool>(m, workers, workers,
                           [&](pool& s, unsigned i) {
                               for (unsigned k = 0; k < each; ++k) {
                                   left.fetch_add(1);
                                   all[i].start(s, task);
                               }
                           }) /
           each;
}

// Each worker starts `each` blocking tasks, which sleep. Returns the time until all have ended.
template <class Machine>
double spawn_blocking(Machine& m, unsigned workers, unsigned each, double sleep_ns) {
    using platform = typename Machine::platform;
    const auto sleeps = [sleep_ns] { Machine::sleep(sleep_ns); };
    using task = job<platform, std::remove_const_t<decltype(sleeps)>>;
    fixed_array<fixed_array<task>> all(workers);
    for (unsigned i = 0; i < workers; ++i) {
        all.add(each);
    }
    return run_roots<scheduler<Machine>>(m, workers, workers, [&](auto& s, unsigned i) {
        for (unsigned k = 0; k < each; ++k) {
            all[i].add(s, sleeps);
            s.start_blocking(all[i][k]);
        }
    });
}

} // namespace simulated

#endif
