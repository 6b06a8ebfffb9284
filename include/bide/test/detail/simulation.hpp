// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_DETAIL_SIMULATION_HPP
#define BIDE_TEST_DETAIL_SIMULATION_HPP

// The simulation of a test::scheduler. It queues and counts the tasks (as a basic_task_home,
// task/detail/task_control.hpp). It serves the operations of the tasks (as a basic_worker_host,
// core/wake_scope.hpp). It provides the clock of its thread (as a simulated_machine,
// core/platform.hpp).
//
// One thread, the owner, does everything. A step runs one runnable or fires one timer;
// step_order.hpp chooses which. If nothing is runnable, the clock jumps to the next timer. Each
// decision depends only on the seed and on earlier decisions, and not on addresses or measured
// times. Runnables that other threads post go to a separate queue. Each such post ends the run with
// an error.
//
// With switch_places::operations, each runnable runs on a lane (lanes.hpp). At a switch point, it
// may leave the lane, and is then queued like a runnable. A task that blocks its thread leaves its
// lane, too, until what it waits for has come. So, with this option, a step may continue a runnable
// that has begun. A switch point counts as a step, whether or not it interrupts the runnable.

#include <bide/sched/injector.hpp>
#include <bide/test/detail/journal.hpp>
#include <bide/test/detail/lanes.hpp>
#include <bide/test/detail/step_order.hpp>

#include <deque>
#include <map>
#include <unordered_map>

namespace bide { inline namespace BIDE_ABI { namespace test::detail {

// The tasks of a simulation that have not ended, in the order of their numbers. The table holds a
// reference to each task. So no new task gets the address of a task in the table.
class task_table {
public:
    using header = bide::detail::task_header;

    struct drop {
        void operator()(header* task) const noexcept { task->drop_reference(); }
    };
    struct entry {
        std::uint64_t number;
        std::unique_ptr<header, drop> task;
        std::uint64_t priority; // see step_order.hpp
        bool blocks = false;    // the task blocks its thread

        // Throws: std::bad_alloc.
        std::string label() const {
            const std::string name = name_of(*task);
            return "task " + std::to_string(number) + (name.empty() ? "" : " '" + name + "'");
        }
    };

    // Adds a task. Throws: std::bad_alloc.
    void add(header& task, std::uint64_t priority) {
        const std::uint64_t number = ++last_;
        task.add_reference();
        std::unique_ptr<header, drop> mine(&task);
        const auto added = entries_.emplace(number, entry{number, std::move(mine), priority}).first;
        by_runnable_.emplace(&task.to_run(), &added->second);
    }

    bool empty() const noexcept { return entries_.empty(); }

    std::uint64_t last() const noexcept { return last_; }

    // Returns the task that a runnable runs. If it runs no task of the table, returns nullptr.
    entry* of(const runnable& r) const noexcept {
        const auto found = by_runnable_.find(&r);
        return found != by_runnable_.end() ? found->second : nullptr;
    }

    // If the task `number` has ended, removes it. Otherwise removes the first task that has ended.
    // Returns the number of the removed task, or 0 if no task has ended.
    std::uint64_t remove_ended(std::uint64_t number) noexcept {
        auto at = entries_.find(number);
        if (at == entries_.end() || !at->second.task->is_complete()) {
            for (at = entries_.begin(); at != entries_.end(); ++at) {
                if (at->second.task->is_complete()) {
                    break;
                }
            }
        }
        if (at == entries_.end()) {
            return 0;
        }
        const std::uint64_t removed = at->first;
        by_runnable_.erase(&at->second.task->to_run());
        entries_.erase(at);
        return removed;
    }

    // Calls visit(number, header&) for each task, the oldest first.
    template <class Visit> void for_each(Visit&& visit) const {
        for (const auto& [number, e] : entries_) {
            visit(number, *e.task);
        }
    }

    static const char* name_of(const header& task) noexcept {
        const char* const name = task.name();
        return name != nullptr ? name : "";
    }

    // Throws: std::bad_alloc.
    std::vector<unfinished_task> unfinished() const {
        std::vector<unfinished_task> found;
        for (const auto& [number, e] : entries_) {
            found.push_back(
                {number, name_of(*e.task), what_for(*e.task), e.blocks || e.task->is_waiting()});
        }
        return found;
    }

private:
    static std::string what_for([[maybe_unused]] const header& task) {
        std::string what;
        BIDE_CHECKED(what = bide::detail::wait_notes::all().what_for(bide::detail::actor(&task));)
        return what;
    }

    std::map<std::uint64_t, entry> entries_;
    std::unordered_map<const runnable*, entry*> by_runnable_; // never iterated
    std::uint64_t last_ = 0;
};

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
        static_cast<void>(bide::detail::error_of<stopped_error>(errc::stopped)); // see run_loop.hpp
        make_lanes();
        journal_.line("seed ", how_.seed);
        outer_ = simulated_machine::exchange(this);
    }
    simulation(const simulation&) = delete;
    simulation& operator=(const simulation&) = delete;
    // Cancels all tasks, and runs them until they have ended.
    ~simulation() {
        if (in_step_ || !is_owner() || simulated_machine::here() != this) {
            die(in_step_     ? "it is destroyed by one of its own tasks, or by before_step"
                : is_owner() ? "it is destroyed before one that its thread made later"
                             : "it is destroyed by another thread than the one that made it");
        }
        closing_ = true;
        registry_.close();
        const auto are_ended = [this]() noexcept {
            // Order: relaxed; no other thread may spawn or wake tasks now.
            return left_.load(std::memory_order_relaxed) == 0 && ready_.empty() &&
                   foreign_.size() == 0 && sleepers_.empty();
        };
        registry_.for_each([](header& t) { t.cancel(cancel_reason::shutdown); });
        if (!run_or_die(never_ns, are_ended)) {
            die("the scheduler is destroyed, and a task that it has cancelled waits for ever");
        }
        if (timers_.next_live_ns() != never_ns) {
            die("the scheduler is destroyed, and a coroutine that is part of no task waits for a "
                "time");
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

    // Makes steps until is_over() returns true, or until no step is possible up to the time
    // `until`. In the second case, also sets the clock to `until`, unless that is never_ns. Returns
    // the last result of is_over(). Terminates with a message if the caller is not the owner, or is
    // a task.
    // Throws: simulation_error; the exception of a task whose handle was dropped.
    template <class IsOver> bool run(std::int64_t until, IsOver&& is_over) {
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
            if (const std::string why = limit(how_.max_steps, how_.max_time.count());
                !why.empty()) {
                fail<simulation_error>(why);
            }
        });
    }

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
    bide::detail::seeded_random& chance() noexcept { return random_; }
    std::uint64_t steps() const noexcept { return steps_; }

    // The task that was spawned last becomes the main task. fault_options::cancel does not cancel
    // the main task, unless fault_options::may_cancel allows that.
    void set_main() noexcept { main_ = tasks_.last(); }

    // Terminates with a message that has `why`, the task that runs, the report and the last steps.
    [[noreturn]] void die(const std::string& why) noexcept {
        const std::string text = bide::detail::made_or_fatal(why.c_str(), [&] {
            return "test::scheduler: " + why +
                   (running_ != nullptr ? "; " + running_->label() : "") + "; " + report().text() +
                   "\nthe last steps:\n" + std::string(last_lines(journal_.text(), 20));
        });
        bide::detail::fatal(text.c_str());
    }

    // Throws: std::bad_alloc.
    simulation_report report() const {
        return {how_.seed, steps_, std::chrono::nanoseconds(elapsed_ns()), tasks_.unfinished()};
    }
    template <class Error> [[noreturn]] void fail(const std::string& why) {
        journal_.line("error: ", why);
        BIDE_THROW(Error("bide::test: " + why + "; " + report().text()));
    }

    // ---- The time and the sleep of the owner

    std::int64_t now() noexcept override {
        if (++reads_ > most_reads) {
            now_ = std::min(time_after(1'000), latest_ns); // so a loop that waits for a time ends
        }
        return now_;
    }
    std::uint64_t random() noexcept override { return random_.bits(); }
    // Called when the owner is about to sleep. If a lane runs, the lane sleeps. If a task runs
    // without a lane, or a function of the options runs, terminates the program. Otherwise runs the
    // simulation until is_over() returns true, or until no step is possible up to the time `until`.
    sleep_end sleep(condition is_over, const void* of, std::int64_t until) noexcept override {
        if (on_lane()) {
            return sleep_on_lane(is_over, of, until);
        }
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

    // Called after an operation of the code that runs. If it runs on a lane, another runnable may
    // run inside of this call.
    void switch_point() noexcept override {
#if BIDE_HAS_FIBERS
        // No switch while a stop callback ends a wait: the callback must end before its wait is
        // destroyed.
        if (on_lane() && !platform::near_local<bide::detail::resume_state>().is_away &&
            is_interrupted()) {
            journal_.line(steps_, " switch");
            task_table::entry* const task = running();
            bide::detail::made_or_fatal(
                no_memory, [&] { ready_.push_back({nullptr, task, lanes_->current()}); });
            lanes_->leave();
        }
#endif
    }

    // The work of durable locks for other threads (durable/detail/background.hpp).
    void run_on_thread(runnable& r) noexcept override { push(r); }
    bool has_threads() const noexcept override {
        return how_.switches == switch_places::operations;
    }

    // ---- The tasks

    void start(header& t) noexcept override {
        // Order: relaxed; only the owner reads it. A queue passes the task to the owner.
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
            switch_point();
        }
    }

    void post(runnable& r) noexcept override {
        if (is_owner()) {
            push(r);
        } else {
            foreign_.push(r);
        }
    }
    executor_ref executor() noexcept override { return executor_ref::to(*this); }

    waker waker_of_caller() noexcept override {
        const auto nothing = [](void*) noexcept {}; // run_tasks() checks the waiter itself
        return is_owner() ? waker(nothing, this) : waker();
    }
    void run_tasks(const basic_waiter<platform>& w) noexcept override {
        if (on_lane()) {
            const auto is_complete = [](const void* of) noexcept {
                return static_cast<const basic_waiter<platform>*>(of)->is_complete();
            };
            sleep_on_lane(is_complete, &w, never_ns);
            return;
        }
        if (!run_or_die(never_ns, [&w]() noexcept { return w.is_complete(); })) {
            die("a group or a set is waited for, and its tasks wait for ever");
        }
    }

private:
    // The simulated time when the scheduler is constructed. It is later than the present time of
    // any real clock. So if an object was constructed before the scheduler, the deadlines of that
    // object have passed at the start. For example, the token bucket of a rate_limiter is full. The
    // clock can advance by 220 years.
    static constexpr std::int64_t start_ns =
        std::chrono::nanoseconds(std::chrono::hours(24 * 365 * 70)).count();
    static constexpr std::int64_t latest_ns = never_ns - 1;
    static constexpr std::uint64_t most_reads = 100'000;        // of the clock, in one step
    static constexpr std::uint64_t most_last_steps = 1'000'000; // the least limit of run_or_die()
    static constexpr std::uint64_t most_points = 4'096;         // without a look at the limits
    static constexpr const char* no_memory = "no memory for the queue of a simulation";

    struct queued {
        runnable* job;           // nullptr: `on` is set
        task_table::entry* task; // nullptr: the job is no task
        lane* on = nullptr;      // the job has begun on this lane
    };
    struct sleeper {
        queued who;
        condition is_over;
        const void* of;
        std::int64_t until;
    };

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

    // ---- The host of the tasks' operations

    void yield(runnable& r) noexcept override { push_behind(r, order_.is_polling(streak_)); }
    void yield_spent(runnable& r) noexcept override { push_behind(r, order_.is_endless(streak_)); }
    void add_timer(timer& t) noexcept override { timers_.add(t); }
    // Called when a task is about to block the owner. Terminates the program, because no other
    // thread could wake the owner.
    bool blocks() noexcept override {
        if (on_lane()) {
            return true;
        }
        die("a task blocks its thread, on which all others run. Await the operation instead");
    }

    void unblocks() noexcept override {}
    // Returns true, so that the waits on a strand of the tasks are simulated, too.
    bool has_queue(executor_ref) noexcept override { return true; }

    bool is_owner() const noexcept { return bide::detail::thread_mark<platform>() == owner_; }
    void push(runnable& r) noexcept {
        bide::detail::made_or_fatal(no_memory, [&] { ready_.push_back({&r, tasks_.of(r)}); });
    }
    void push_behind(runnable& r, bool is_last) noexcept {
        push(r);
        if (auto* const task = ready_.back().task; task != nullptr && is_last) {
            task->priority = order_.lowest_priority();
        }
    }

    // Makes steps as run() does. Before each step, calls check(), which may throw.
    template <class IsOver, class Check>
    bool run_steps(std::int64_t until, IsOver&& is_over, Check&& check) {
        wake_scope<platform>::hand_over_pending();
        bide::detail::resume_state mine;
        mine.worker = executor();
        const replaced local(worker_local<platform>::get(), {});
        const replaced resumed(platform::near_local<bide::detail::resume_state>(), std::move(mine));
        const replaced transfers(platform::near_local<bide::detail::transfer_loop_place>(), {});
        struct machine_scope {
            simulated_machine* const outer;
            ~machine_scope() { simulated_machine::exchange(outer); }
        };
        const machine_scope machine{simulated_machine::exchange(this)};
        const replaced running(running_, nullptr);
        while (!is_over()) {
            check();
            if (!step(until)) {
                return is_over();
            }
        }
        return true;
    }

    // Makes steps as run() does, but never throws. If a task throws, the next run() throws the
    // exception. The limits of the options may be reached already, so a separate limit of steps
    // applies here. If that limit is reached, terminates the program.
    template <class IsOver> bool run_or_die(std::int64_t until, IsOver&& is_over) noexcept {
        const std::uint64_t more = std::max(how_.max_steps, most_last_steps);
        const std::uint64_t most = steps_ + std::min(more, UINT64_MAX - steps_);
        return run_steps(until, is_over, [this, most] {
            if (const std::string why = limit(most, never_ns); !why.empty()) {
                die(why);
            }
        });
    }

    // Returns the function that finds the priority of the runnable at a place, for step_order.
    auto priorities(std::size_t timer_places) noexcept {
        return [this, timer_places](std::size_t i) -> std::uint64_t* {
            auto* const task = i >= timer_places ? ready_[i - timer_places].task : nullptr;
            return task != nullptr ? &task->priority : nullptr;
        };
    }

    // Makes one step. Returns false if no step is possible up to the time `until`.
    bool step(std::int64_t until) {
        reads_ = 0;
        if (!closing_) {
            call_hooks();
        }
        wake_sleepers();
        const std::int64_t next_timer = timers_.next_live_ns();
        const std::int64_t next = std::min(next_timer, next_sleeper_ns());
        if (next > now_ && next <= until && next != never_ns && (ready_.empty() || stalls())) {
            now_ = next;
            wake_sleepers();
        }
        const std::size_t timer_places =
            next_timer <= now_ ? 1 : 0; // the timer has the first place
        const std::size_t count = ready_.size() + timer_places;
        if (count == 0) {
            now_ = until != never_ns ? std::max(now_, until) : now_;
            return false;
        }
        ++steps_;
        points_ = 0;
        const std::size_t at = order_.choose(steps_, count, priorities(timer_places));
        if (at < timer_places) {
            fire();
        } else {
            execute(take(at - timer_places), at, count);
        }
        return true;
    }

    void call_hooks() {
        const replaced calls(in_step_, true);
        if (how_.before_step) {
            how_.before_step(steps_ + 1);
        }
        if (how_.faults.cancel > 0) {
            cancel_one();
        }
    }

    void cancel_one() {
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

    bool stalls() noexcept { return how_.faults.stall > 0 && random_.chance(how_.faults.stall); }
    void fire() {
        journal_.line(steps_, " timer at ", elapsed_ns());
        timers_.fire_due(now_, 1, order_.skipped_timers());
        remove_ended(0);
    }

    // Removes the runnable at the place `at`, and returns it. If `at` is 0, the other runnables
    // keep their order. Otherwise the last runnable moves to the place `at`.
    queued take(std::size_t at) {
        const queued q = ready_[at];
        if (at == 0) {
            ready_.pop_front();
        } else {
            ready_[at] = ready_.back();
            ready_.pop_back();
        }
        return q;
    }

    void execute(queued q, std::size_t at, std::size_t count) {
        const std::uint64_t number = q.task != nullptr ? q.task->number : 0;
        const std::string_view does = q.on != nullptr ? " continue " : " run ";
        if (number != 0) {
            journal_.line(steps_, does, at + 1, "/", count, " task ", number, " ",
                          task_table::name_of(*q.task->task));
        } else {
            journal_.line(steps_, does, at + 1, "/", count, " a job");
        }
        streak_ = number != 0 && number == last_run_ ? streak_ + 1 : 0;
        last_run_ = number;
        running_ = q.task;
        {
            const replaced runs(in_step_, true);
            run_or_continue(q);
        }
        running_ = nullptr;
        remove_ended(number);
    }

    void run_here(runnable& job) noexcept {
        auto& local = worker_local<platform>::get();
        local.host = this;
        local.next_budget = order_.budget();
        {
            const task_budget<platform> whole(local);
            job.run.wake();
        }
        local.next_budget = local.whole_budget;
        local.host = nullptr;
    }

    // ---- Lanes

#if BIDE_HAS_FIBERS
    bool on_lane() const noexcept { return lanes_ != nullptr && lanes_->current() != nullptr; }

    // Throws: simulation_error, if the program has no switch points.
    void make_lanes() {
        if (how_.switches == switch_places::awaits) {
            return;
        }
        if (!BIDE_SWITCH_POINTS) {
            BIDE_THROW(simulation_error("bide::test: switch_places::operations needs a program "
                                        "that is compiled with BIDE_SWITCH_POINTS=1"));
        }
        const auto run = [](void* self, runnable& job) noexcept {
            auto& me = *static_cast<simulation*>(self);
            platform::near_local<bide::detail::resume_state>().worker = me.executor();
            me.run_here(job);
        };
        lanes_ = std::make_unique<lanes>(run, this);
    }

    void run_or_continue(const queued& q) noexcept {
        if (lanes_ == nullptr) {
            run_here(*q.job);
        } else {
            lanes_->enter(q.on != nullptr ? *q.on : begin(*q.job));
        }
    }
    lane& begin(runnable& job) noexcept {
        lane* made = nullptr;
        bide::detail::made_or_fatal(no_memory, [&] { made = &lanes_->begin(job); });
        return *made;
    }

    // Decides whether the lane that runs leaves at this switch point.
    bool is_interrupted() noexcept {
        ++steps_;
        ++points_;
        const std::size_t timer_places = timers_.next_live_ns() <= now_ ? 1 : 0;
        task_table::entry* const task = running();
        return order_.interrupts(steps_, points_, task != nullptr ? &task->priority : nullptr,
                                 ready_.size() + timer_places, priorities(timer_places)) ||
               points_ % most_points == 0;
    }

    // Returns the entry of the task that runs; nullptr if no task runs, or if it has ended.
    task_table::entry* running() const noexcept {
        return running_ != nullptr && !running_->task->is_complete() ? running_ : nullptr;
    }

    sleep_end sleep_on_lane(condition is_over, const void* of, std::int64_t until) noexcept {
        if (is_over(of)) {
            return sleep_end::woken;
        }
        task_table::entry* const task = running();
        if (task != nullptr) {
            journal_.line(steps_, " task ", task->number, " blocks");
            task->blocks = true;
        }
        lane& mine = *lanes_->current();
        bide::detail::made_or_fatal(
            no_memory, [&] { sleepers_.push_back({{nullptr, task, &mine}, is_over, of, until}); });
        lanes_->leave();
        return mine.timed_out ? sleep_end::timed_out : sleep_end::woken;
    }

    // Queues the lanes whose sleep is over.
    void wake_sleepers() noexcept {
        for (auto at = sleepers_.begin(); at != sleepers_.end();) {
            const bool is_over = at->is_over(at->of);
            if (!is_over && at->until > now_) {
                ++at;
                continue;
            }
            at->who.on->timed_out = !is_over;
            if (at->who.task != nullptr) {
                at->who.task->blocks = false;
            }
            bide::detail::made_or_fatal(no_memory, [&] { ready_.push_back(at->who); });
            at = sleepers_.erase(at);
        }
    }
    std::int64_t next_sleeper_ns() const noexcept {
        std::int64_t first = never_ns;
        for (const sleeper& s : sleepers_) {
            first = std::min(first, s.until);
        }
        return first;
    }

    // Forgets the tasks that have ended: a lane may still destroy what such a task has left.
    void forget_ended() noexcept {
        const auto forget = [](queued& q) noexcept {
            if (q.on != nullptr && q.task != nullptr && q.task->task->is_complete()) {
                q.task = nullptr;
            }
        };
        for (queued& q : ready_) {
            forget(q);
        }
        for (sleeper& s : sleepers_) {
            forget(s.who);
        }
    }
#else
    bool on_lane() const noexcept { return false; }
    void make_lanes() {
        if (how_.switches != switch_places::awaits) {
            BIDE_THROW(simulation_error("bide::test: switch_places::operations needs fibers, which "
                                        "bide has on Linux and BSD"));
        }
    }
    void run_or_continue(const queued& q) noexcept { run_here(*q.job); }
    sleep_end sleep_on_lane(condition, const void*, std::int64_t) noexcept {
        return sleep_end::woken;
    }
    void wake_sleepers() noexcept {}
    std::int64_t next_sleeper_ns() const noexcept { return never_ns; }
    void forget_ended() noexcept {}
#endif

    // The task that has just run is probably the one that has ended.
    void remove_ended(std::uint64_t number) {
        if (ended_ != 0) {
            forget_ended();
        }
        for (; ended_ != 0; --ended_) {
            if (const std::uint64_t removed = tasks_.remove_ended(number)) {
                journal_.line(steps_, " end task ", removed);
            }
        }
    }

    // Returns the reason why the run cannot continue; "" if it can.
    std::string limit(std::uint64_t most_steps, std::int64_t most_ns) {
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
    std::string take_foreign() {
        std::string what = "spawned a task";
        while (runnable* const r = foreign_.pop()) {
            push(*r);
            if (const auto* const task = ready_.back().task) {
                what = "woken " + task->label();
            }
        }
        return what;
    }

    simulation_options how_;
    const void* const owner_ = bide::detail::thread_mark<platform>();
    bide::detail::seeded_random random_;
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
    std::uint64_t points_ = 0;             // switch points in this step
    task_table::entry* running_ = nullptr; // the task that runs
    std::uint64_t last_run_ = 0;           // the number of the task that ran last
    std::uint64_t streak_ = 0;             // how many times in a row it ran before
    bool in_step_ = false;                 // a task, another runnable or a hook runs
    bool closing_ = false;

    std::deque<queued> ready_; // fifo: the oldest first
    std::vector<sleeper> sleepers_;
#if BIDE_HAS_FIBERS
    std::unique_ptr<lanes> lanes_;
#endif
    basic_timer_queue<platform> timers_{waker([](void*) noexcept {}, nullptr)};
    bide::detail::basic_task_registry<platform> registry_;
    task_table tasks_;
    // Other threads use these:
    basic_injector<platform> foreign_;
    platform::atomic<std::size_t> left_{0};
};

}}} // namespace bide::BIDE_ABI::test::detail

#endif
