// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_SCHEDULER_CORE_HPP
#define BIDE_SCHED_DETAIL_SCHEDULER_CORE_HPP

// The home of a task is the executor to which the task belongs. A wake posts a task to its home, so
// the home determines where the task runs. A scheduler is the home of its normal tasks
// (lifecycle.hpp). High tasks, low tasks, and the tasks that are pinned to one thread have other
// homes (spawn_options). The scheduler counts, registers and cancels the tasks of all homes. It
// also has the pool and the threads (basic_worker_threads).
//
// basic_scheduler_parts is a template, so that the model checker can run it
// (tests/model/scheduler_model.cpp). scheduler_core adds the options, the driver, the handler of
// exceptions, and the checks for misuse.
//
// A scheduler has one thread for each worker of its pool, and threads for blocking tasks.
//
// If the thread of a worker blocks in a task, another thread runs the worker. An idle thread is
// preferred: a thread that has lost its own worker and has nothing to do. If there is no idle
// thread, a thread for blocking tasks runs the worker; it is called a substitute. If a thread has
// lost its worker when it returns from blocking, it finishes its task and becomes an idle thread.
//
// A substitute that finds nothing to run hands its worker to an idle thread, and is then free for
// blocking tasks. If a substitute already sleeps when a thread becomes idle, the idle thread wakes
// the substitute. The substitute announces its sleep and then looks for an idle thread. The idle
// thread adds itself to the list of idle threads and then looks for sleeping substitutes. So one of
// the two finds the other [idle.announce].
//
// An idle thread also runs the jobs that are pinned to it. Meanwhile it is not in the list of idle
// threads, so after each of these jobs it looks for a blocked worker.
//
// A timer calls tend() and reap() of blocking_pool.hpp for the threads that run blocking tasks
// (basic_tended_pool). The timer is started in two cases:
//
//   - The system has refused to start a thread. tend() tries the start again, because all threads
//     of the pool may be blocked, and then none of them can try.
//   - A thread has left. reap() joins it when it has ended.
//
// `armed_` is set from the start of the timer until it fires. A thread that finds `armed_` set
// relies on the next firing of the timer, which sees what the thread has changed in the pool.
// Proof: both use the pool under its lock. The thread does so before it reads `armed_`; the firing
// does so after it has reset `armed_`. If the firing acquired the lock first, the thread would find
// `armed_` reset. So the thread acquired the lock first.

#include <bide/sched/blocking_pool.hpp>
#include <bide/sched/detail/lifecycle.hpp>
#include <bide/sched/detail/pool.hpp>
#include <bide/task/detail/task_cell.hpp>

#include <thread>

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- The processors that the process may use: the affinity mask of the process limits them, and
// so does the CPU quota of its control group (version 2), rounded up.

#if defined(__linux__)

// Returns the least quota of the process's control group and the groups above it, in processors,
// rounded up. Returns 0 if none of them has a quota.
BIDE_COLD inline unsigned processors_of_cgroup() noexcept {
    std::FILE* const file = std::fopen("/proc/self/cgroup", "re");
    if (file == nullptr) {
        return 0;
    }
    char path[4096] = "/sys/fs/cgroup";
    const std::size_t root = std::strlen(path);
    char line[4000];
    while (std::fgets(line, sizeof line, file) != nullptr) {
        if (std::strncmp(line, "0::/", 4) == 0) { // the group of the unified hierarchy
            std::strcpy(path + root, line + 3);
            path[std::strcspn(path, "\n")] = '\0';
        }
    }
    std::fclose(file);
    long long least = 0;
    for (;;) {
        char max[sizeof path + 16];
        std::snprintf(max, sizeof max, "%s/cpu.max", path);
        long long quota = 0;
        long long period = 0; // the file has both, such as "50000 100000", or "max" for no quota
        if (std::FILE* const limit = std::fopen(max, "re")) {
            if (std::fscanf(limit, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
                const long long n = (quota - 1) / period + 1;
                least = least == 0 ? n : (std::min)(least, n);
            }
            std::fclose(limit);
        }
        char* const last = std::strrchr(path, '/');
        if (last < path + root) {
            return static_cast<unsigned>((std::min)(least, 1'000'000LL));
        }
        *last = '\0';
    }
}

#endif

// Returns how many processors the process may use, at least 1.
BIDE_COLD inline unsigned cpu_count() noexcept {
    unsigned count = (std::max)(1U, std::thread::hardware_concurrency());
#if defined(__linux__)
    cpu_set_t mask; // of the main thread, even if another thread makes the scheduler
    if (::sched_getaffinity(::getpid(), sizeof mask, &mask) == 0 && CPU_COUNT(&mask) > 0) {
        count = static_cast<unsigned>(CPU_COUNT(&mask));
    }
    if (const unsigned quota = processors_of_cgroup(); quota != 0) {
        count = (std::min)(count, quota);
    }
#endif
    return count;
}

// ---- The scheduler of a thread

// The scheduler to which a thread belongs. In a fork-join, it is the scheduler of the fork-join;
// otherwise, the scheduler that started the thread. `instance` is also set during callbacks, and on
// those threads of a scheduler that own no worker.
template <class Platform> struct BIDE_SHARED basic_current_scheduler {
    scheduler* instance = nullptr;                  // nullptr: the thread belongs to no scheduler
    bool leaving = false;                           // the thread is in on_worker_stop
    const basic_current_scheduler* outer = nullptr; // the value before the fork-join

    // Returns true if the thread belongs to `s` or is in a fork-join of it, even if it has entered
    // fork-joins of other schedulers meanwhile.
    static bool is_of(const scheduler& s) noexcept {
        for (const basic_current_scheduler* at = &here(); at != nullptr; at = at->outer) {
            if (at->instance == &s) {
                return true;
            }
        }
        return false;
    }
    static basic_current_scheduler& here() noexcept {
        return Platform::template near_local<basic_current_scheduler>();
    }
};
using current_scheduler = basic_current_scheduler<native_platform>;

// ---- Threads for blocking tasks

template <class Platform, class Pool, class Thread>
class basic_tended_pool : public basic_blocking_pool<Platform, Thread> {
    using base = basic_blocking_pool<Platform, Thread>;

public:
    BIDE_COLD basic_tended_pool(Pool& workers, typename base::options wanted) noexcept
        : base([&wanted, this] {
              wanted.attention = waker(&arm, this);
              return std::move(wanted);
          }()),
          workers_(workers) {
        timer_.fire = waker(&on_timer, this);
    }

    // Requires: no thread fires timers of the workers any more, and no other call is in progress.
    BIDE_COLD ~basic_tended_pool() {
        this->finish();
        cancel_timer<Platform>(timer_);
    }

private:
    BIDE_COLD static void arm(void* self) noexcept {
        auto& mine = *static_cast<basic_tended_pool*>(self);
        // Order: acquire [tended_pool.armed]; the last firing no longer uses the timer.
        if (!mine.armed_.exchange(true, std::memory_order_acquire)) {
            mine.timer_.when =
                deadline::at_ns(Platform::now() + basic_worker_host<Platform>::retry_ns);
            mine.workers_.workers()[0].timers.add(mine.timer_);
        }
    }

    BIDE_COLD static void on_timer(void* self) noexcept {
        auto& mine = *static_cast<basic_tended_pool*>(self);
        // Order: release [tended_pool.armed]; the next thread that arms the timer may write it.
        mine.armed_.store(false, std::memory_order_release);
        const bool leaves = mine.reap();
        if (mine.tend() || leaves) {
            arm(self);
        }
    }

    Pool& workers_;
    timer timer_;
    typename Platform::template atomic<bool> armed_{false};
};

// ---- All threads

// `Pool` is basic_pool and `Thread` is os_thread, or both are types for the model checker.
template <class Platform, class Pool = basic_pool<Platform>, class Thread = os_thread>
class basic_worker_threads : public Pool::owner {
    using current = basic_current_scheduler<Platform>;
    using blocking_pool_type = basic_tended_pool<Platform, Pool, Thread>;
    template <class T> using var = typename Platform::template var<T>;

public:
    using worker = typename Pool::worker;

    // Moves the callbacks out of `wanted`. `of` is the scheduler of the threads.
    BIDE_COLD basic_worker_threads(scheduler* of, scheduler_options& wanted,
                                   const typename Pool::options& how)
        : scheduler_(of), own_pool_(*this, how), name_(wanted.name), stack_size_(wanted.stack_size),
          on_start_(std::move(wanted.on_worker_start)), on_stop_(std::move(wanted.on_worker_stop)),
          blocking_(own_pool_,
                    {wanted.max_blocking_threads, wanted.blocking_keep_alive, name_, stack_size_}),
          threads_(own_pool_.workers().size()) {
        for (worker& w : own_pool_.workers()) {
            threads_.add(*this, w);
        }
        request_.run = waker(
            [](void* self) noexcept { static_cast<basic_worker_threads*>(self)->serve_request(); },
            this);
    }

    // Starts the threads, which run until end_threads(). If one of them cannot be started, returns
    // the error. No thread then runs a worker or calls on_worker_start, because on_worker_start
    // might rely on the other threads.
    BIDE_COLD std::error_code start_threads() noexcept {
        std::error_code error;
        for (own_thread& p : threads_) {
            error = p.thread.start(
                [](void* self) noexcept { static_cast<own_thread*>(self)->run_own_worker(); }, &p,
                stack_size_);
            if (error) {
                threads_.shrink(p.mine.index);
                some_failed_ = true;
                break;
            }
        }
        start_is_over_.arrive(1);
        return error;
    }

    // Waits until all threads have ended.
    // Requires: the pool was stopped.
    BIDE_COLD void end_threads() noexcept {
        {
            const guard section(lock_);
            over_ = true;
            while (take_idle() != nullptr) { // so that no idle thread gets a worker
            }
        }
        for (own_thread& p : threads_) {
            p.parker.unpark();
        }
        blocking_.finish();
        for (own_thread& p : threads_) {
            p.thread.join();
        }
    }

    // ---- Overrides of basic_pool_owner

    bool replace(worker& w) noexcept final {
        return hand_to_idle_thread(w) || blocking_.try_run(threads_[w.index]);
    }

    bool hand_to_idle_thread(worker& w) noexcept final {
        own_thread* other = nullptr;
        {
            const guard section(lock_);
            other = take_idle();
            if (other == nullptr) {
                return false;
            }
            other->next_worker = &w;
        }
        other->parker.unpark();
        return true;
    }

    bool has_idle_thread() noexcept final {
        const guard section(lock_);
        return idle_threads_.first() != nullptr;
    }

    // If a thread is idle, gives it a blocked worker. If not, posts a request: the next thread for
    // blocking tasks that becomes free then runs a blocked worker as a substitute. Returns false if
    // the system has refused to start such a thread. The caller then tries again.
    BIDE_COLD bool request_replacement() noexcept final {
        lock::acquire(lock_);
        // After replace(), a thread may have become idle and found no blocked worker.
        const bool has_idle_thread = idle_threads_.first() != nullptr;
        if (!has_idle_thread && !requested_) {
            std::error_code why;
            // The post is under the lock, so that no other thread relies on a request that fails.
            requested_ = blocking_.post(request_, why);
        }
        // All present threads may be blocked, so this call tries refused starts again.
        const bool requested = requested_ && !blocking_.tend();
        lock::release_plain(lock_);
        if (has_idle_thread) {
            own_pool_.replace_blocked();
        }
        return has_idle_thread || requested;
    }

    void wake_thread(unsigned number) noexcept final { threads_[number].parker.unpark(); }

    Pool& pool() noexcept { return own_pool_; }
    const Pool& pool() const noexcept { return own_pool_; }
    blocking_pool_type& blocking() noexcept { return blocking_; }

protected:
    ~basic_worker_threads() = default;

    scheduler* const scheduler_;

private:
    using lock = lock_bits<Platform, std::uint32_t>;
    using guard = typename lock::guard;

    // A worker and its own thread. The object is also a runnable: if a thread for blocking tasks
    // runs it, that thread runs the worker in place of `thread`.
    struct own_thread : runnable, basic_task_links<Platform, own_thread> {
        BIDE_COLD own_thread(basic_worker_threads& of, worker& which) noexcept
            : all(of), mine(which) {
            run = waker(
                [](void* self) noexcept { static_cast<own_thread*>(self)->run_as_substitute(); },
                this);
        }

        BIDE_COLD void run_own_worker() noexcept {
            all.start_is_over_.sleep_until_open();
            if (all.some_failed_) {
                return;
            }
            Thread::name_this(all.name_, "-", mine.index);
            Pool::thread_role::here() = {&all.own_pool_, nullptr,
                                         &mine.pinned}; // for on_worker_start
            all.begin_worker(mine.index);
            for (worker* w = &mine; w != nullptr; w = wait_for_worker()) {
                all.own_pool_.run(*w, &mine.pinned);
            }
            all.end_worker(mine.index);
        }

        // Waits. Returns the worker that the thread must run, or nullptr if the thread must end.
        // Another thread unparks the thread in three cases: there is a worker for it, there is a
        // pinned job for it, or it must end. An unpark may come late, when its cause is gone.
        BIDE_COLD worker* wait_for_worker() noexcept {
            for (;;) {
                if (worker* const blocked = all.own_pool_.run_pinned(mine.pinned)) {
                    return blocked;
                }
                {
                    const guard section(all.lock_);
                    if (all.over_) {
                        return nullptr;
                    }
                    all.idle_threads_.push_front(*this);
                    is_idle = true;
                }
                all.own_pool_.replace_blocked(); // a thread may have found no idle thread before
                for (own_thread& other : all.threads_) {
                    if (other.has_substitute()) {
                        all.own_pool_.wake(other.mine);
                    }
                }
                parker.park();
                const guard section(all.lock_);
                if (is_idle) { // no other thread has removed it
                    all.idle_threads_.remove(*this);
                    is_idle = false;
                } else if (worker* const given = next_worker) {
                    next_worker = nullptr;
                    return given;
                }
            }
        }

        BIDE_COLD void run_as_substitute() noexcept {
            all.begin_worker(mine.index);
            count_substitutes(1);
            all.own_pool_.run(mine, nullptr, true);
            count_substitutes(-1);
            all.end_worker(mine.index);
        }

        void count_substitutes(int by) noexcept {
            const guard section(all.lock_);
            substitutes = substitutes + static_cast<unsigned>(by);
        }
        bool has_substitute() noexcept {
            const guard section(all.lock_);
            return substitutes != 0;
        }

        basic_worker_threads& all;
        worker& mine;
        Thread thread;
        basic_parker<Platform> parker; // where it waits as an idle thread
        // Under the lock:
        var<bool> is_idle{false}; // it is in the list of idle threads
        var<worker*> next_worker{nullptr};
        var<unsigned> substitutes{0}; // threads that run `mine` in place of `thread`
    };

    // Removes a thread from the list of idle threads. Requires: the caller holds the lock.
    own_thread* take_idle() noexcept {
        own_thread* const first = idle_threads_.first();
        if (first != nullptr) {
            idle_threads_.remove(*first);
            first->is_idle = false;
        }
        return first;
    }

    // Runs on a thread for blocking tasks.
    BIDE_COLD void serve_request() noexcept {
        {
            const guard section(lock_);
            requested_ = false; // a later request is queued again
        }
        if (worker* const w = own_pool_.take_blocked()) {
            own_pool_
                .replace_blocked(); // the owners of several workers may have relied on one request
            threads_[w->index].run_as_substitute();
        }
    }

    BIDE_COLD void begin_worker(unsigned index) noexcept {
        current::here().instance = scheduler_;
        if (on_start_) {
            call_noexcept("on_worker_start", [&] { on_start_(index); });
        }
    }

    BIDE_COLD void end_worker(unsigned index) noexcept {
        current::here().leaving = true;
        if (on_stop_) {
            call_noexcept("on_worker_stop", [&] { on_stop_(index); });
        }
        current::here() = {};
    }

    Pool own_pool_;
    const std::string name_;
    const std::size_t stack_size_;
    const std::function<void(unsigned)> on_start_;
    const std::function<void(unsigned)> on_stop_;
    blocking_pool_type blocking_;
    fixed_array<own_thread> threads_;
    basic_gate<Platform> start_is_over_{1};
    var<bool> some_failed_{false}; // written before the gate opens
    typename Platform::template atomic<std::uint32_t> lock_{0};
    // Under the lock:
    basic_task_list<Platform, own_thread> idle_threads_; // they wait for workers
    var<bool> over_{false};
    var<bool> requested_{false}; // `request_` is queued among blocking tasks
    runnable request_;
};

// ---- The homes of tasks, and the scheduler

// `Home` is task_home and `Thread` is os_thread, or both are types for the model checker.
template <class Platform, class Home, class Thread = os_thread>
class basic_scheduler_parts : public basic_worker_threads<Platform, basic_pool<Platform>, Thread>,
                              public basic_lifecycle<Platform, Home, basic_pool<Platform>> {
    using header = basic_task_header<Platform>;
    using current = basic_current_scheduler<Platform>;
    using pool_type = basic_pool<Platform>;
    using threads = basic_worker_threads<Platform, pool_type, Thread>;
    using role = typename pool_type::thread_role;
    using worker = typename pool_type::worker;

public:
    using lifecycle = basic_lifecycle<Platform, Home, pool_type>;

    // Returns the number of the worker for which the calling thread was started. Returns nothing if
    // the thread was not started for a worker of this scheduler.
    std::optional<unsigned> thread_here() const noexcept {
        const role& here = role::here();
        return here.pool == &this->pool() && here.pinned != nullptr
                   ? std::optional(here.pinned->index)
                   : std::nullopt;
    }

    // Returns the home of a task that is spawned with these options.
    // Throws: std::invalid_argument, see scheduler::spawn().
    Home& home_of(const spawn_options& how) {
        if (!how.worker && how.priority == task_priority::normal) {
            return *this;
        }
        if (!how.worker) {
            return how.priority == task_priority::high ? high_ : low_;
        }
        if (how.priority != task_priority::normal) {
            BIDE_THROW(std::invalid_argument("scheduler::spawn(): a pinned task has no priority"));
        }
        if (*how.worker >= pinned_.size()) {
            BIDE_THROW(std::invalid_argument("scheduler::spawn(): there is no such worker"));
        }
        return pinned_[*how.worker];
    }

protected:
    // `of` is the scheduler of the threads. `fallback` returns the executor for runnables that are
    // posted when no worker is left.
    BIDE_COLD basic_scheduler_parts(scheduler* of, scheduler_options& wanted, pool_options how,
                                    typename lifecycle::get_executor fallback)
        : threads(of, wanted, with_names(how, of, *this)), lifecycle(this->pool(), fallback),
          high_(*this, task_priority::high), low_(*this, task_priority::low),
          pinned_(this->pool().workers().size()) {
        for (worker& w : this->pool().workers()) {
            pinned_.add(*this, task_priority::normal, &w);
        }
    }

    // Requires: the derived class has called end_external_calls().
    ~basic_scheduler_parts() = default;

    // Starts a blocking task. If the scheduler is closing or no thread can be started, refuses the
    // task and sets `why` to the reason.
    void start_blocking(header& t, std::error_code& why) noexcept {
        const typename lifecycle::external_call here(*this);
        if (!this->admit() || !this->blocking().post(t.to_run(), why)) {
            t.refuse();
        }
    }

    void enter() noexcept override {
        role::here() = {&this->pool(), nullptr};
        current::here().instance = this->scheduler_;
    }
    void leave() noexcept override {
        this->pool().drop_thread_lane();
        role::here() = {};
        current::here() = {};
    }

private:
    // The home of the high tasks, of the low tasks, or of the tasks that are pinned to one thread.
    class queue_home final : public Home {
    public:
        // If `of` is not nullptr, the tasks are pinned to the thread of this worker.
        queue_home(basic_scheduler_parts& all, task_priority which, worker* of = nullptr) noexcept
            : all_(all), class_(which), worker_(of) {}

        void push(runnable& r, worker*) noexcept {
            worker_ != nullptr ? all_.pool().push_pinned(*worker_, r) : all_.pool().push(class_, r);
        }
        // A pinned task ends on its own thread, where its coroutine and its function are destroyed.
        bool is_here() const noexcept override {
            return worker_ != nullptr ? role::here().pinned == &worker_->pinned : all_.is_here();
        }
        void start(header& t) noexcept override { all_.start_in(*this, t); }
        void post(runnable& r) noexcept override { all_.post_in(*this, r); }
        executor_ref executor() noexcept override { return executor_ref::to(*this); }

        unsigned registry_here() const noexcept override { return all_.registry_here(); }
        basic_task_registry<Platform>& registry(unsigned number) noexcept override {
            return all_.registry(number);
        }
        bool is_closing() const noexcept override { return all_.is_closing(); }
        void task_ended() noexcept override { all_.task_ended(); }
        const unhandled& handler() const noexcept override { return all_.handler(); }
        void enter() noexcept override { all_.enter(); }
        void leave() noexcept override { all_.leave(); }

    private:
        basic_scheduler_parts& all_;
        const task_priority class_;
        worker* const worker_;
    };

    // Overrides of basic_pool_owner.
    void found_nothing() noexcept final { this->add_up(); }
    // Called by a pinned task on its own thread.
    bool has_queue(executor_ref where) noexcept final {
        const std::optional<unsigned> mine = thread_here();
        return where == high_.executor() || where == low_.executor() ||
               (mine && where == pinned_[*mine].executor());
    }
    static pool_options with_names(pool_options how, scheduler* of, lifecycle& core) noexcept {
        how.executor = executor_ref::to(core);
        how.scheduler_id = of;
        return how;
    }

    queue_home high_, low_;
    fixed_array<queue_home> pinned_; // one for each worker
};

class scheduler_core final : public basic_scheduler_parts<native_platform, task_home> {
    using platform = native_platform;
    using parts = basic_scheduler_parts<platform, task_home>;

public:
    // Throws: std::bad_alloc; std::invalid_argument if there are too many workers or no thread can
    // have a stack of the given size; std::system_error if `wanted.io` is attached to another
    // scheduler.
    BIDE_COLD scheduler_core(scheduler& of, scheduler_options&& wanted)
        : parts(
              &of, wanted, options_of_pool(wanted),
              +[]() -> executor_ref { return required_service<platform>(); }),
          unhandled_(std::move(wanted.on_unhandled)) {
        static_cast<void>(
            error_of<stopped_error>(errc::stopped)); // made before any cancellation needs it
        if (wanted.io != nullptr) {
            attached_.emplace(*wanted.io);
        }
    }

    BIDE_COLD ~scheduler_core() {
        if (!shut_down(deadline::never())) {
            refuse_shutdown();
        }
        end_external_calls();
    }

    // Starts the threads.
    // Throws: std::system_error if a thread cannot be started. The other threads have then ended.
    BIDE_COLD void open() {
        if (const std::error_code error = start_threads()) {
            no_worker_started();
            shut_down(deadline::never());
            BIDE_THROW(std::system_error(error, "a worker of a scheduler cannot be started"));
        }
    }

    // Does not use the LIFO slot: the worker looks there when the running job has ended, and a push
    // into the slot does not always wake another worker.
    void post_to_others(runnable& r) noexcept override {
        if (auto* const w = pool().current_worker()) {
            pool().push_ring(*w, r);
        } else {
            post(r);
        }
    }

    // Starts a blocking task.
    // Throws: std::system_error if there is no thread for it. Then the task is refused.
    void start_blocking(task_header& t) {
        std::error_code why;
        parts::start_blocking(t, why);
        if (why && why != errc::closed) {
            BIDE_THROW(std::system_error(why, "no thread for a blocking task"));
        }
    }

    // Returns true if the scheduler has ended by the deadline.
    BIDE_COLD bool shut_down(deadline until) noexcept {
        if (current_scheduler::is_of(*scheduler_)) {
            if (is_closing() || current_scheduler::here().leaving) {
                return false; // another thread shuts it down
            }
            refuse_shutdown();
        }
        return shutdown(until, [this]() noexcept {
            end_threads();
            const wake_scope<platform> later(&service_executor<platform>);
            attached_.reset();
        });
    }

private:
    [[noreturn]] BIDE_COLD static void refuse_shutdown() noexcept {
        fatal("a scheduler must not be shut down by one of its own workers or in an arm");
    }
    const unhandled& handler() const noexcept override { return unhandled_; }

    // Checks the options, before any part of the scheduler is made.
    BIDE_COLD static pool_options options_of_pool(const scheduler_options& wanted) {
        if (wanted.num_workers > basic_idle<platform>::max_workers) {
            BIDE_THROW(std::invalid_argument("scheduler: num_workers is above 1048575"));
        }
        if (!os_thread::may_have_stack(wanted.stack_size)) {
            BIDE_THROW(
                std::invalid_argument("scheduler: no thread can have a stack of stack_size"));
        }
        const unsigned processors = cpu_count();
        const unsigned workers = wanted.num_workers != 0 ? wanted.num_workers : processors;
        return {workers,
                wanted.enable_stealing,
                wanted.io,
                option_ns(wanted.max_timed_sleep),
                wanted.trace,
                option_ns(wanted.timer_slack),
                static_cast<int>(processors) - static_cast<int>(workers)};
    }

    const unhandled unhandled_;
    std::optional<driver::attachment> attached_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
