// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_DETAIL_SIMULATION_STEPS_HPP
#define BIDE_TEST_DETAIL_SIMULATION_STEPS_HPP

// The steps of a simulation (simulation.hpp), and its end.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/waiter.hpp>
#include <bide/task/cancel_reason.hpp>
#include <bide/test/detail/simulation.hpp>
#include <bide/test/detail/task_table.hpp>
#include <bide/test/simulation_report.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace test::detail {

class simulation::turn {
public:
    explicit turn(simulation& of) noexcept
        : of_(of), local_(worker_local<platform>::get()),
          resumed_(platform::local<bide::detail::resume_state>()) {
        wake_scope<platform>::hand_over_pending();
        outer_local_ = std::exchange(local_, {});
        outer_resumed_ = std::exchange(resumed_, {});
        resumed_.worker = of.executor();
        outer_machine_ = simulated_machine::exchange(&of);
        outer_running_ = std::exchange(of.running_, 0);
    }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;
    ~turn() {
        of_.running_ = outer_running_;
        simulated_machine::exchange(outer_machine_);
        resumed_ = outer_resumed_;
        local_ = outer_local_;
    }

private:
    simulation& of_;
    worker_local<platform>& local_;
    bide::detail::resume_state& resumed_;
    worker_local<platform> outer_local_;
    bide::detail::resume_state outer_resumed_;
    simulated_machine* outer_machine_ = nullptr;
    std::uint64_t outer_running_ = 0;
};

template <class IsOver> bool simulation::run(std::int64_t until, IsOver&& is_over) {
    if (!is_owner() || in_task_) {
        die(in_task_ ? "it is run by one of its own tasks"
                     : "it is run by another thread than the one that made it");
    }
    return run_steps(until, is_over);
}

// Also called by a task that waits (run_tasks()).
template <class IsOver> bool simulation::run_steps(std::int64_t until, IsOver&& is_over) {
    const turn here(*this);
    for (;;) {
        if (*thrown_ != nullptr && !closing_) {
            std::rethrow_exception(std::exchange(*thrown_, nullptr));
        }
        if (is_over()) {
            return true;
        }
        if (!step(until)) {
            return is_over();
        }
    }
}

// Returns false if nothing happens before `until`.
inline bool simulation::step(std::int64_t until) {
    check_limits();
    reads_ = 0;
    if (how_.before_step && !closing_) {
        how_.before_step(steps_ + 1);
    }
    if (how_.faults.cancel > 0 && !closing_) {
        cancel_one();
    }
    const std::int64_t next = timers_.next_live_ns();
    bool due = next <= now_;
    if (!due && next <= until && next != never_ns && (ready_.empty() || stalls())) {
        now_ = next;
        due = true;
    }
    const std::size_t count = ready_.size() + (due ? 1 : 0);
    if (count == 0) {
        now_ = until != never_ns ? std::max(now_, until) : now_;
        return false;
    }
    ++steps_;
    const std::size_t at = order_.choose(steps_, count, [&](std::size_t i) -> std::uint64_t* {
        const bool is_task = !due || i != 0;
        auto* const of = is_task ? tasks_.find(ready_[i - (due ? 1 : 0)].task) : nullptr;
        return of != nullptr ? &of->priority : nullptr;
    });
    if (due && at == 0) {
        fire();
        remove_ended(0);
        return true;
    }
    const auto chosen = ready_.begin() + static_cast<std::ptrdiff_t>(at - (due ? 1 : 0));
    const queued q = *chosen;
    ready_.erase(chosen);
    execute(q, at, count);
    remove_ended(q.task);
    return true;
}

inline void simulation::check_limits() {
    if (foreign_.size() != 0) {
        take_foreign();
        if (!closing_) {
            fail<simulation_error>(
                "another thread has woken or spawned a task, so the run cannot be "
                "repeated");
        }
    }
    const std::uint64_t most = closing_ ? 2 * how_.max_steps : how_.max_steps;
    if (steps_ >= most) {
        fail<simulation_error>("max_steps reached: a task may run for ever");
    }
    if (elapsed_ns() > how_.max_time.count() && !closing_) {
        fail<simulation_error>("max_time reached: a timer may be armed again for ever");
    }
}

// Cancels a task by chance.
inline void simulation::cancel_one() {
    if (cancels_ == how_.faults.most_cancels || !random_.chance(how_.faults.cancel)) {
        return;
    }
    std::vector<std::pair<std::uint64_t, header*>> some;
    tasks_.for_each([&](std::uint64_t number, header& task) {
        const auto& may_cancel = how_.faults.may_cancel;
        if (!task.was_cancelled() &&
            (may_cancel ? may_cancel(task_table::name_of(task)) : number != main_)) {
            some.emplace_back(number, &task);
        }
    });
    if (!some.empty()) {
        const auto [number, task] = some[random_.below(some.size())];
        journal_.line(steps_ + 1, " cancel task ", number);
        ++cancels_;
        task->cancel(cancel_reason::requested);
    }
}

inline void simulation::fire() {
    journal_.line(steps_, " timer at ", elapsed_ns());
    timers_.fire_due(now_, 1);
}

inline void simulation::execute(queued q, std::size_t at, std::size_t count) {
    if (auto* const of = tasks_.find(q.task)) {
        journal_.line(steps_, " run ", at + 1, "/", count, " task ", q.task, " ",
                      task_table::name_of(*of->task));
    } else {
        journal_.line(steps_, " run ", at + 1, "/", count, " a job");
    }
    auto& local = worker_local<platform>::get();
    local.host = this;
    running_ = q.task;
    const bool outer_in_task = std::exchange(in_task_, true);
    streak_ = q.task == last_run_ ? streak_ + 1 : 0;
    last_run_ = q.task;
    {
        const worker_turn<platform> whole(local);
        q.job->run.wake();
    }
    in_task_ = outer_in_task;
    running_ = 0;
    local.host = nullptr;
}

// The task that has just run is probably the one that has ended.
inline void simulation::remove_ended(std::uint64_t number) {
    for (; ended_ != 0; --ended_) {
        if (const std::uint64_t removed = tasks_.remove_ended(number)) {
            journal_.line(steps_, " end task ", removed);
        }
    }
}

// ---- From its tasks

inline void simulation::start(header& t) noexcept {
    // Order: relaxed; the owner reads it, and finds the task in a queue.
    left_.fetch_add(1, std::memory_order_relaxed);
    if (closing_) {
        t.refuse();
    } else if (!is_owner()) {
        foreign_.push(t.to_run());
    } else {
        bide::detail::made_or_fatal("no memory for the tasks of a simulation", [&] {
            last_spawned_ = tasks_.add(t, order_.first_priority());
        });
        journal_.line(steps_, " spawn task ", last_spawned_, " ", task_table::name_of(t));
        push(t.to_run());
    }
}

// The thread is about to sleep inside of a task, and there is no other thread.
inline bool simulation::blocks() noexcept {
    die("a task blocks its thread, on which all others run. Await the operation instead");
}

inline void simulation::die(const char* why) noexcept {
    const auto* const of = tasks_.find(running_);
    const std::string text = bide::detail::made_or_fatal(why, [&] {
        return "test::scheduler: " + std::string(why) + "; seed " + std::to_string(how_.seed) +
               ", step " + std::to_string(steps_) + ", task " + std::to_string(running_) + " " +
               (of != nullptr ? task_table::name_of(*of->task) : "");
    });
    bide::detail::fatal(text.c_str());
}

inline void simulation::run_tasks(const basic_waiter<platform>& w) noexcept {
    if (!run_steps(never_ns, [&w]() noexcept { return w.is_complete(); })) {
        die("a group or a set is waited for, and its tasks wait for ever");
    }
}

// Cancels all tasks, and runs them until they have ended.
inline simulation::~simulation() {
    closing_ = true;
    registry_.close();
    const auto are_ended = [this]() noexcept {
        // Order: relaxed; the owner counts.
        return left_.load(std::memory_order_relaxed) == 0 && ready_.empty() && foreign_.size() == 0;
    };
    registry_.for_each([](header& t) { t.cancel(cancel_reason::shutdown); });
    if (!are_ended() && !run_steps(never_ns, are_ended)) {
        die("the scheduler is destroyed, and a task that it has cancelled waits for ever");
    }
    simulated_machine::exchange(outer_);
    journal_.leave();
    if (*thrown_ != nullptr && std::uncaught_exceptions() == 0) {
        std::rethrow_exception(
            *thrown_); // terminates, as it does for a scheduler without on_unhandled
    }
}

} // namespace test::detail
} // namespace bide::inline BIDE_ABI

#endif
