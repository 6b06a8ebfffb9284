// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_DETAIL_SIMULATION_STEPS_HPP
#define BIDE_TEST_DETAIL_SIMULATION_STEPS_HPP

// The steps of a simulation (simulation.hpp), and its end.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/fatal_exception.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/task/cancel_reason.hpp>
#include <bide/test/detail/journal.hpp>
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

namespace bide { inline namespace BIDE_ABI { namespace test::detail {

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
        outer_running_ = std::exchange(of.running_, nullptr);
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
    const task_table::entry* outer_running_ = nullptr;
};

// While an object of this class exists, a step is under way.
class simulation::step_scope {
public:
    explicit step_scope(simulation& of) noexcept
        : of_(of), outer_(std::exchange(of.in_step_, true)) {}
    step_scope(const step_scope&) = delete;
    step_scope& operator=(const step_scope&) = delete;
    ~step_scope() { of_.in_step_ = outer_; }

private:
    simulation& of_;
    const bool outer_;
};

template <class IsOver> bool simulation::run(std::int64_t until, IsOver&& is_over) {
    if (!is_owner() || in_step_) {
        die(in_step_ ? "it is run by one of its own tasks, or by before_step"
                     : "it is run by another thread than the one that made it");
    }
    const auto is_over_or_throws = [&] {
        if (*thrown_ != nullptr) {
            std::rethrow_exception(std::exchange(*thrown_, nullptr));
        }
        return is_over();
    };
    return run_steps(until, is_over_or_throws, [this] {
        if (const std::string why = limit(how_.max_steps, how_.max_time.count()); !why.empty()) {
            fail<simulation_error>(why);
        }
    });
}

// Runs for a caller that cannot handle an exception. The exception of a task is kept for the next
// run(). The limits of the options may be reached already, so this function has a separate limit.
template <class IsOver> bool simulation::run_or_die(std::int64_t until, IsOver&& is_over) noexcept {
    const std::uint64_t more = std::max(how_.max_steps, most_last_steps);
    const std::uint64_t most = steps_ + std::min(more, UINT64_MAX - steps_);
    return run_steps(until, is_over, [this, most] {
        if (const std::string why = limit(most, never_ns); !why.empty()) {
            die(why);
        }
    });
}

// Calls check(), which may throw, before each step.
template <class IsOver, class Check>
bool simulation::run_steps(std::int64_t until, IsOver&& is_over, Check&& check) {
    const turn here(*this);
    while (!is_over()) {
        check();
        if (!step(until)) {
            return is_over();
        }
    }
    return true;
}

// Returns the reason why the run cannot continue; "" if it can.
inline std::string simulation::limit(std::uint64_t most_steps, std::int64_t most_ns) {
    if (foreign_.size() != 0) {
        const std::string woken = take_foreign();
        if (!closing_) {
            return "another thread has " + woken + ", so the run cannot be repeated";
        }
    }
    if (steps_ >= most_steps) {
        return "max_steps reached: a task may run for ever";
    }
    if (elapsed_ns() > most_ns) {
        return "max_time reached: a timer may be armed again for ever";
    }
    return {};
}

// Queues the runnables of other threads. Returns what these threads did.
inline std::string simulation::take_foreign() {
    std::string what = "spawned a task";
    while (runnable* const r = foreign_.pop()) {
        push(*r);
        if (const auto* const task = ready_.back().task) {
            what = "woken " + task->label();
        }
    }
    return what;
}

// Makes one step. Returns false if no step is possible before `until`.
inline bool simulation::step(std::int64_t until) {
    reads_ = 0;
    if (!closing_) {
        call_hooks();
    }
    const std::int64_t next = timers_.next_live_ns();
    bool due = next <= now_;
    if (!due && next <= until && next != never_ns && (ready_.empty() || stalls())) {
        now_ = next;
        due = true;
    }
    const std::size_t timer_places = due ? 1 : 0; // the timer has the first place
    const std::size_t count = ready_.size() + timer_places;
    if (count == 0) {
        now_ = until != never_ns ? std::max(now_, until) : now_;
        return false;
    }
    ++steps_;
    const std::size_t at = order_.choose(steps_, count, [&](std::size_t i) -> std::uint64_t* {
        auto* const task = i >= timer_places ? ready_[i - timer_places].task : nullptr;
        return task != nullptr ? &task->priority : nullptr;
    });
    if (at < timer_places) {
        fire();
        remove_ended(0);
    } else {
        const queued q = take(at - timer_places);
        const std::uint64_t number = q.task != nullptr ? q.task->number : 0;
        execute(q, at, count);
        remove_ended(number);
    }
    return true;
}

inline void simulation::call_hooks() {
    const step_scope calls(*this);
    if (how_.before_step) {
        how_.before_step(steps_ + 1);
    }
    if (how_.faults.cancel > 0) {
        cancel_one();
    }
}

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
    timers_.fire_due(now_, 1, order_.skipped_timers());
}

// Takes out the runnable at a place. The order of the others is kept only if it is the first place.
inline simulation::queued simulation::take(std::size_t at) {
    const queued q = ready_[at];
    if (at == 0) {
        ready_.pop_front();
    } else {
        ready_[at] = ready_.back();
        ready_.pop_back();
    }
    return q;
}

inline void simulation::execute(queued q, std::size_t at, std::size_t count) {
    if (q.task != nullptr) {
        journal_.line(steps_, " run ", at + 1, "/", count, " task ", q.task->number, " ",
                      task_table::name_of(*q.task->task));
    } else {
        journal_.line(steps_, " run ", at + 1, "/", count, " a job");
    }
    const std::uint64_t number = q.task != nullptr ? q.task->number : 0;
    streak_ = number != 0 && number == last_run_ ? streak_ + 1 : 0;
    last_run_ = number;
    running_ = q.task;
    auto& local = worker_local<platform>::get();
    local.host = this;
    local.next_budget = order_.budget();
    {
        const step_scope runs(*this);
        const task_budget<platform> whole(local);
        q.job->run.wake();
    }
    local.next_budget = local.whole_budget;
    local.host = nullptr;
    running_ = nullptr;
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
        bide::detail::made_or_fatal("no memory for the tasks of a simulation",
                                    [&] { tasks_.add(t, order_.first_priority()); });
        journal_.line(steps_, " spawn task ", tasks_.last(), " ", task_table::name_of(t));
        push(t.to_run());
    }
}

// Called when the thread is about to sleep inside of a task. There is no other thread that could
// wake it.
inline bool simulation::blocks() noexcept {
    die("a task blocks its thread, on which all others run. Await the operation instead");
}

// Called when the thread is about to sleep. If it is not in a task, it runs the tasks meanwhile.
inline simulation::sleep_end simulation::sleep(condition is_over, const void* of,
                                               std::int64_t until) noexcept {
    if (in_step_) {
        blocks();
    }
    if (run_or_die(until, [=]() noexcept { return is_over(of); })) {
        return sleep_end::woken;
    }
    if (until != never_ns) {
        return sleep_end::timed_out;
    }
    if (!tasks_.empty()) {
        die("the test waits for ever, outside of the tasks, and all tasks do, too");
    }
    return sleep_end::idle;
}

inline void simulation::run_tasks(const basic_waiter<platform>& w) noexcept {
    if (!run_or_die(never_ns, [&w]() noexcept { return w.is_complete(); })) {
        die("a group or a set is waited for, and its tasks wait for ever");
    }
}

inline void simulation::die(const std::string& why) noexcept {
    const std::string text = bide::detail::made_or_fatal(why.c_str(), [&] {
        return "test::scheduler: " + why + (running_ != nullptr ? "; " + running_->label() : "") +
               "; " + report().text() + "\nthe last steps:\n" +
               std::string(last_lines(journal_.text(), 20));
    });
    bide::detail::fatal(text.c_str());
}

// Cancels all tasks, and runs them until they have ended.
inline simulation::~simulation() {
    if (in_step_ || !is_owner() || simulated_machine::here() != this) {
        die(in_step_     ? "it is destroyed by one of its own tasks, or by before_step"
            : is_owner() ? "it is destroyed before one that its thread made later"
                         : "it is destroyed by another thread than the one that made it");
    }
    closing_ = true;
    registry_.close();
    const auto are_ended = [this]() noexcept {
        // Order: relaxed; the owner counts.
        return left_.load(std::memory_order_relaxed) == 0 && ready_.empty() && foreign_.size() == 0;
    };
    registry_.for_each([](header& t) { t.cancel(cancel_reason::shutdown); });
    if (!run_or_die(never_ns, are_ended)) {
        die("the scheduler is destroyed, and a task that it has cancelled waits for ever");
    }
    if (timers_.next_live_ns() != never_ns) {
        die("the scheduler is destroyed, and a coroutine that is part of no task waits for a time");
    }
    simulated_machine::exchange(outer_);
    journal_.leave();
    if (*thrown_ != nullptr && std::uncaught_exceptions() == 0) {
        const std::string source = bide::detail::made_or_fatal("no memory", [&] {
            return "test::scheduler, seed " + std::to_string(how_.seed) +
                   ": a task that no handle asks for";
        });
        bide::detail::call_noexcept(source.c_str(), [&] { std::rethrow_exception(*thrown_); });
    }
}

}}} // namespace bide::BIDE_ABI::test::detail

#endif
