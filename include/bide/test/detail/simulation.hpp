// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_DETAIL_SIMULATION_HPP
#define BIDE_TEST_DETAIL_SIMULATION_HPP

// The simulation of a test::scheduler. It is the home of its tasks (basic_task_home,
// task/detail/task_control.hpp), the host of their operations (basic_worker_host,
// core/detail/worker_host.hpp), and the simulated machine of its thread (simulated_machine,
// core/platform.hpp).
//
// One thread, the owner, does everything. A step runs one runnable or fires one timer, as
// step_order.hpp chooses. If nothing is runnable, the clock jumps to the next timer. Each decision
// depends only on the seed and on earlier decisions, and not on addresses or measured times.
// Runnables that other threads post are kept separately, and end the run with an error.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/timer_queue.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/core/waker.hpp>
#include <bide/sched/injector.hpp>
#include <bide/task/cancel_reason.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/test/detail/journal.hpp>
#include <bide/test/detail/seeded_random.hpp>
#include <bide/test/detail/step_order.hpp>
#include <bide/test/detail/task_table.hpp>
#include <bide/test/simulation_options.hpp>
#include <bide/test/simulation_report.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace test::detail {

class simulation final : public bide::detail::task_home,
                         public basic_worker_host<native_platform>,
                         public bide::detail::simulated_machine {
    using platform = native_platform;
    using header = bide::detail::task_header;

public:
    static constexpr std::int64_t never_ns = std::numeric_limits<std::int64_t>::max();

    explicit simulation(simulation_options&& how)
        : how_(std::move(how)), random_(how_.seed), order_(how_, random_),
          unhandled_([to = std::weak_ptr(thrown_)](std::exception_ptr error) {
              const auto there = to.lock();
              if (there == nullptr) {
                  std::rethrow_exception(error); // terminates
              }
              if (*there == nullptr) {
                  *there = error;
              }
          }) {
        static_cast<void>(bide::detail::error_of<stopped_error>(errc::stopped)); // as a run_loop
        journal_.line("seed ", how_.seed);
        outer_ = simulated_machine::exchange(this);
    }
    simulation(const simulation&) = delete;
    simulation& operator=(const simulation&) = delete;
    ~simulation();

    // Makes steps until is_over() returns true, or until no further step is possible before the
    // time `until`. In the second case, sets the time to `until`, unless that is never_ns. Returns
    // is_over(). Terminates with a message if the caller is another thread than the owner, or a
    // task.
    // Throws: simulation_error; the exception of a task whose handle was dropped.
    template <class IsOver> bool run(std::int64_t until, IsOver&& is_over);

    std::int64_t elapsed_ns() const noexcept { return now_ - start_ns; }
    // Returns the time `ns` from now. If `ns` is not positive, returns the present time.
    std::int64_t time_after(std::int64_t ns) const noexcept {
        return now_ + std::clamp<std::int64_t>(ns, 0, never_ns - now_);
    }
    void advance(std::int64_t ns) noexcept {
        if (ns < 0) {
            die("advance() cannot go back in time");
        }
        now_ = std::min(time_after(ns), latest_ns);
        journal_.line("advance to ", elapsed_ns());
    }

    journal& notes() noexcept { return journal_; }
    seeded_random& chance() noexcept { return random_; }
    std::uint64_t steps() const noexcept { return steps_; }

    // Makes the task that was spawned last the main task. fault_options::cancel does not cancel the
    // main task unless may_cancel allows it.
    void set_main() noexcept { main_ = tasks_.last(); }

    // Terminates with a message that has `why`, the task that runs, the report and the last steps.
    [[noreturn]] void die(const std::string& why) noexcept;

    // Throws: std::bad_alloc.
    simulation_report report() const {
        return {how_.seed, steps_, std::chrono::nanoseconds(elapsed_ns()), tasks_.unfinished()};
    }
    template <class Error> [[noreturn]] void fail(const std::string& why) {
        journal_.line("error: ", why);
        BIDE_THROW(Error("bide::test: " + why + "; " + report().text()));
    }

    // ---- The machine of the owner's thread

    std::int64_t now() noexcept override {
        if (++reads_ > most_reads) {
            now_ = std::min(time_after(1'000), latest_ns); // a loop that waits for a time ends
        }
        return now_;
    }
    std::uint64_t random() noexcept override { return random_.bits(); }
    inline sleep_end sleep(condition is_over, const void* of, std::int64_t until) noexcept override;

    // ---- The home of the tasks

    inline void start(header& t) noexcept override;
    void post(runnable& r) noexcept override {
        if (is_owner()) {
            push(r);
        } else {
            foreign_.push(r);
        }
    }
    executor_ref executor() noexcept override { return executor_ref::to(*this); }

    waker waker_of_caller() noexcept override {
        const auto nothing = [](void*) noexcept {}; // run_tasks() looks by itself
        return is_owner() ? waker(nothing, this) : waker();
    }
    inline void run_tasks(const basic_waiter<platform>& w) noexcept override;

private:
    // The start of the simulated time. It is later than the time of any real clock. So an object
    // that was made before the scheduler, such as a rate_limiter, is full or due at the start. 220
    // years are left until the end of the clock.
    static constexpr std::int64_t start_ns =
        std::chrono::nanoseconds(std::chrono::hours(24 * 365 * 70)).count();
    static constexpr std::int64_t latest_ns = never_ns - 1;
    static constexpr std::uint64_t most_reads = 100'000;        // of the clock, in one step
    static constexpr std::uint64_t most_last_steps = 1'000'000; // at least

    struct queued {
        runnable* job;
        task_table::entry* task; // nullptr: none of the table
    };

    // While an object of this class exists, the thread of the owner runs the simulation.
    class turn;
    class step_scope;

    unsigned registry_here() const noexcept override { return 0; }
    bide::detail::basic_task_registry<platform>& registry(unsigned) noexcept override {
        return registry_;
    }
    bool is_here() const noexcept override { return is_owner(); }
    bool is_closing() const noexcept override { return closing_; }
    void task_ended() noexcept override {
        // Order: relaxed; the owner reads it.
        left_.fetch_sub(1, std::memory_order_relaxed);
        if (is_owner()) {
            ++ended_;
        }
    }
    const bide::detail::unhandled& handler() const noexcept override { return unhandled_; }
    void enter() noexcept override {}
    void leave() noexcept override {}

    // ---- The host of their operations

    void yield(runnable& r) noexcept override { push_behind(r, order_.is_polling(streak_)); }
    void yield_spent(runnable& r) noexcept override { push_behind(r, order_.is_endless(streak_)); }
    void add_timer(timer& t) noexcept override { timers_.add(t); }
    inline bool blocks() noexcept override;
    void unblocks() noexcept override {}
    // A strand of the tasks is another executor, and its waits are simulated, too.
    bool has_queue(executor_ref) noexcept override { return true; }

    bool is_owner() const noexcept { return bide::detail::thread_mark<platform>() == owner_; }
    void push(runnable& r) noexcept {
        bide::detail::made_or_fatal("no memory for the queue of a simulation",
                                    [&] { ready_.push_back({&r, tasks_.of(r)}); });
    }
    void push_behind(runnable& r, bool is_last) noexcept {
        push(r);
        if (auto* const task = ready_.back().task; task != nullptr && is_last) {
            task->priority = order_.lowest_priority();
        }
    }

    template <class IsOver, class Check>
    bool run_steps(std::int64_t until, IsOver&& is_over, Check&& check);
    template <class IsOver> bool run_or_die(std::int64_t until, IsOver&& is_over) noexcept;
    bool step(std::int64_t until);
    void call_hooks();
    void cancel_one();
    bool stalls() noexcept { return how_.faults.stall > 0 && random_.chance(how_.faults.stall); }
    void fire();
    queued take(std::size_t at);
    void execute(queued q, std::size_t at, std::size_t count);
    void remove_ended(std::uint64_t number);
    std::string limit(std::uint64_t most_steps, std::int64_t most_ns);
    std::string take_foreign();

    simulation_options how_;
    const void* const owner_ = bide::detail::thread_mark<platform>();
    seeded_random random_;
    step_order order_;
    journal journal_;
    const std::shared_ptr<std::exception_ptr> thrown_ = std::make_shared<std::exception_ptr>();
    const bide::detail::unhandled unhandled_;
    simulated_machine* outer_ = nullptr;

    std::int64_t now_ = start_ns;
    std::uint64_t reads_ = 0; // of the clock, in this step
    std::uint64_t steps_ = 0;
    std::uint64_t cancels_ = 0;
    std::uint64_t ended_ = 0; // tasks that have ended and may be in the table
    std::uint64_t main_ = 0;
    const task_table::entry* running_ = nullptr; // the task that runs
    std::uint64_t last_run_ = 0;                 // the number of the task that ran last
    std::uint64_t streak_ = 0;                   // how many times in a row
    bool in_step_ = false;                       // a task, another runnable or a hook runs
    bool closing_ = false;

    std::deque<queued> ready_; // fifo: the oldest first
    basic_timer_queue<platform> timers_{waker([](void*) noexcept {}, nullptr)};
    bide::detail::basic_task_registry<platform> registry_;
    task_table tasks_;
    // Other threads use these:
    basic_injector<platform> foreign_;
    platform::atomic<std::size_t> left_{0};
};

}}} // namespace bide::BIDE_ABI::test::detail

#include <bide/test/detail/simulation_steps.hpp> // its functions

#endif
