// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_BACKGROUND_HPP
#define BIDE_DURABLE_DETAIL_BACKGROUND_HPP

// What a process does for its locks in the background:
//
//   lease_monitor    one thread, which waits for times and for file descriptors. It notifies its
//                    clients: grants whose lease ends, waiters, and jobs that are due
//   store_threads    threads that call stores, started when they are needed
//   background_job   work that a store thread does at given times: a renewal, a withdrawal
//   job_queue        the jobs that one store thread at a time does
//   store_call       a call on a store thread, which its caller can leave
//
// The monitor calls no store. So a store that hangs delays neither the notification that a lease
// has ended nor the jobs of other stores. Nothing runs in the background before it is needed, and
// none of the threads keeps the process from ending. A child of fork() starts its own threads,
// which do not notify the clients of its parent.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/process.hpp>
#include <bide/sched/blocking_pool.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <algorithm>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stop_token>
#include <system_error>
#include <utility>

#include <unistd.h>
#if defined(__linux__)
#include <cerrno>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- the monitor
//
// The monitor notifies a client at the time that the client has asked for. The time is on the clock
// that continues while the machine sleeps (boottime_ms()). On Linux it also notifies a client when
// the client's descriptor is readable. The monitor has a weak reference to each client, and makes
// it a strong one for the time of a notification. A client that is removed during a notification
// may be notified once more.
//
// The monitor's thread is started at the first use and never ends. It sleeps until the earliest
// time that it knows, and is woken only if a client asks for an earlier time. If a client cancels
// its time, the thread still wakes at that time, in vain. That costs less than a wake at each
// cancel().

// The one T of this process. It is never destroyed.
// Throws: std::system_error if there is no memory, what the constructor throws.
template <class T> T& of_process() {
    T* const one = process_wide<T, native_platform>::get(+[] { return new T; });
    if (one == nullptr) {
        throw_error(std::make_error_code(std::errc::not_enough_memory));
    }
    return *one;
}

// A client of the lease monitor.
class monitor_client {
public:
    virtual ~monitor_client() = default;

    // Called on the thread of the lease monitor, without its lock.
    virtual void happened() noexcept = 0;

private:
    friend class lease_monitor;
    // The time that the client has asked for, under the monitor's lock.
    std::int64_t asked_ms_ = std::numeric_limits<std::int64_t>::max();
};

class BIDE_SHARED lease_monitor {
public:
    // Returns the monitor of this process. It is never destroyed.
    // Throws: std::system_error, std::bad_alloc.
    static lease_monitor& here() { return of_process<lease_monitor>(); }

    // Notifies the client once, when boottime_ms() is `at_ms`. A client has one such time, the
    // earliest that it has asked for since the last notification.
    // Throws: std::system_error if the thread cannot be started, std::bad_alloc.
    void alarm(const std::shared_ptr<monitor_client>& client, std::int64_t at_ms);
    void cancel(monitor_client& client) noexcept {
        const std::lock_guard held(lock_);
        times_.erase({std::exchange(client.asked_ms_, never), &client});
    }
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

#if defined(__linux__)
    static constexpr bool sees_files = true;
#else
    static constexpr bool sees_files = false; // the three functions below do nothing
#endif
    // Notifies the client once when the descriptor is readable, and once more after each rearm().
    // The caller keeps the descriptor open until remove(). Returns false if the descriptor cannot
    // be monitored.
    // Throws: as alarm().
    bool add(int fd, const std::shared_ptr<monitor_client>& client);
    void rearm(int fd) noexcept;
    void remove(int fd) noexcept;

    lease_monitor();

private:
    // Starts the thread, unless it runs. The caller holds the monitor's lock. If the start fails,
    // the next caller tries again.
    void start();
    [[noreturn]] static void run(void* self) noexcept;

    // Takes out a client that is due. If there is none, makes the thread wake at the next time, and
    // returns nullptr.
    std::shared_ptr<monitor_client> take_due() noexcept;

    // Makes the thread wake at `at_ms`. The caller holds the monitor's lock.
    void arm(std::int64_t at_ms) noexcept;

    // Sleeps until armed_ms_, or until a descriptor is readable; notifies the clients of those.
    void sleep() noexcept;

    mutex lock_;
    // Under lock_:
    bool runs_ = false;
    std::map<std::pair<std::int64_t, const monitor_client*>, std::weak_ptr<monitor_client>> times_;
    std::int64_t armed_ms_ = never; // when the thread wakes
#if defined(__linux__)
    bool control(int operation, int fd) noexcept; // epoll_ctl(2)

    std::map<int, std::weak_ptr<monitor_client>> clients_; // under lock_, by their descriptors

    const int timer_;
    const int files_; // an epoll set with the descriptors and the timer
#else
    semaphore wakeups_{0};
#endif
};

inline void lease_monitor::start() {
    if (!runs_) {
        if (const std::error_code error = os_thread::start_detached(&run, this)) {
            throw_error(error);
        }
        runs_ = true;
    }
}

inline void lease_monitor::alarm(const std::shared_ptr<monitor_client>& client,
                                 std::int64_t at_ms) {
    const std::lock_guard held(lock_);
    start();
    if (at_ms >= client->asked_ms_) {
        return;
    }
    times_[{at_ms, client.get()}] = client;
    times_.erase({std::exchange(client->asked_ms_, at_ms), client.get()});
    if (at_ms < armed_ms_) {
        arm(at_ms);
    }
}

inline std::shared_ptr<monitor_client> lease_monitor::take_due() noexcept {
    const std::lock_guard held(lock_);
    while (!times_.empty() && times_.begin()->first.first <= durable::boottime_ms()) {
        if (auto client = times_.extract(times_.begin()).mapped().lock()) {
            client->asked_ms_ = never;
            return client;
        }
    }
    arm(times_.empty() ? never : times_.begin()->first.first);
    return nullptr;
}

inline void lease_monitor::run(void* self) noexcept {
    auto& me = *static_cast<lease_monitor*>(self);
    os_thread::name_this("bide-monitor", "", 0);
    for (;;) {
        while (const auto client = me.take_due()) {
            client->happened();
        }
        me.sleep(); // a time that was added meanwhile has armed it
    }
}

#if defined(__linux__)

inline lease_monitor::lease_monitor()
    : timer_(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)),
      files_(::epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event of_timer{};
    of_timer.events = EPOLLIN | EPOLLET; // never read: each setting is an edge
    of_timer.data.fd = timer_;
    if (timer_ < 0 || files_ < 0 || ::epoll_ctl(files_, EPOLL_CTL_ADD, timer_, &of_timer) != 0) {
        const std::error_code error(errno, std::system_category());
        ::close(timer_);
        ::close(files_);
        throw_error(error);
    }
}

inline void lease_monitor::arm(std::int64_t at_ms) noexcept {
    if (at_ms == armed_ms_ && at_ms > durable::boottime_ms()) {
        return; // the timer is set to that time
    }
    armed_ms_ = at_ms;
    itimerspec when{}; // zero: disarmed
    if (at_ms != never) {
        when.it_value.tv_sec = integer_cast<time_t>(at_ms / 1000);
        when.it_value.tv_nsec = integer_cast<long>(at_ms % 1000 * 1'000'000 + 1);
    }
    ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
}

inline void lease_monitor::sleep() noexcept {
    epoll_event seen[16];
    const int count = ::epoll_wait(files_, seen, 16, -1);
    for (int i = 0; i < count; ++i) {
        std::shared_ptr<monitor_client> client;
        {
            const std::lock_guard held(lock_);
            const auto found = clients_.find(seen[i].data.fd);
            client = found != clients_.end() ? found->second.lock() : nullptr;
        }
        if (client != nullptr) {
            client->happened();
        }
    }
}

inline bool lease_monitor::control(int operation, int fd) noexcept {
    epoll_event wanted{};
    wanted.events = EPOLLIN | EPOLLONESHOT;
    wanted.data.fd = fd;
    return ::epoll_ctl(files_, operation, fd, &wanted) == 0;
}

inline bool lease_monitor::add(int fd, const std::shared_ptr<monitor_client>& client) {
    const std::lock_guard held(lock_);
    start();
    clients_[fd] = client;
    const bool is_added = control(EPOLL_CTL_ADD, fd);
    if (!is_added) {
        clients_.erase(fd);
    }
    return is_added;
}

inline void lease_monitor::rearm(int fd) noexcept { control(EPOLL_CTL_MOD, fd); }

inline void lease_monitor::remove(int fd) noexcept {
    const std::lock_guard held(lock_);
    control(EPOLL_CTL_DEL, fd);
    clients_.erase(fd);
}

#else

inline lease_monitor::lease_monitor() = default;

inline void lease_monitor::arm(std::int64_t at_ms) noexcept {
    if (at_ms < std::exchange(armed_ms_, at_ms)) {
        wakeups_.release(); // it may sleep for longer
    }
}

inline void lease_monitor::sleep() noexcept {
    std::int64_t until_ms = never;
    {
        const std::lock_guard held(lock_);
        until_ms = armed_ms_;
    }
    const std::int64_t rest = std::max<std::int64_t>(until_ms - durable::boottime_ms(), 0);
    wakeups_.try_acquire_for(std::chrono::milliseconds(rest));
}

inline bool lease_monitor::add(int, const std::shared_ptr<monitor_client>&) { return false; }
inline void lease_monitor::rearm(int) noexcept {}
inline void lease_monitor::remove(int) noexcept {}

#endif

// ---- store threads

// The threads that call stores. The process has two sets of threads, which are started on demand:
// one for renewals, one for all other calls and jobs. The sets are never destroyed, and the end of
// the process does not wait for their threads. A child of fork() starts its own threads.
//
// In each set at most 256 calls run at once. A further call waits for a free thread, in order of
// arrival. So 256 calls that hang delay the calls to every other store: each delayed caller gives
// up when its own time is up. They do not delay renewals.
class BIDE_SHARED store_threads {
public:
    static constexpr unsigned most = 256;
    static constexpr std::chrono::milliseconds keep_alive{5'000}; // how long an idle thread stays

    // Runs r.run.wake() on a store thread. Returns an error if there is no such thread and none can
    // be started; then r is not used.
    static std::error_code post(runnable& r) noexcept { return post_to<set<false>>(r); }
    // Runs it on a thread for renewals.
    static std::error_code post_renewal(runnable& r) noexcept { return post_to<set<true>>(r); }

private:
    // A thread of the pool uses nothing of the pool after it has left it, so no join is needed.
    struct detached_thread : os_thread {
        std::error_code start(function body, void* argument,
                              std::size_t /* the pool asks for the system's size */) noexcept {
            return start_detached(body, argument);
        }
        void join() noexcept {}
    };
    using pool = basic_blocking_pool<native_platform, detached_thread>;

    template <bool Renews> struct set final : pool {
        set() noexcept : pool({most, keep_alive, Renews ? "bide-lease" : "bide-store"}) {}
    };

    template <class Set> static std::error_code post_to(runnable& r) noexcept {
        Set* const to = process_wide<Set, native_platform>::get(
            +[]() noexcept { return new (std::nothrow) Set; });
        std::error_code why = std::make_error_code(std::errc::not_enough_memory);
        if (to != nullptr && to->post(r, why)) {
            why.clear();
        }
        return why;
    }
};

// ---- jobs

// Work that store threads do repeatedly: a renewal, a withdrawal.
class background_job {
public:
    static constexpr std::int64_t never = lease_monitor::never;

    virtual ~background_job() = default;

    // Does the work that is due. Returns the time of the next work, on the clock of boottime_ms();
    // `never` if the job is done.
    virtual std::int64_t work() noexcept = 0;

private:
    friend class job_queue;
    std::int64_t due_ms_ = never; // under the lock of its queue
};

// Jobs that one store thread at a time does, always the one that is due first. When a job is due,
// the lease monitor posts the queue to the store threads, and does none of the work. If no thread
// can be started, the monitor tries again 10 ms later. Coroutines that a job wakes resume on a
// service thread: they must not occupy a store thread.
class job_queue final : public monitor_client, public std::enable_shared_from_this<job_queue> {
public:
    using poster = std::error_code (*)(runnable&) noexcept; // a function of store_threads

    explicit job_queue(poster post) noexcept : post_(post) { posted_.run = waker(&run, this); }
    ~job_queue() override {
        try_to([this] { lease_monitor::here().cancel(*this); });
    }

    // Does the job when boottime_ms() is `at_ms`, and again at each time that its work() returns.
    // Keeps a reference to the job until it is done, or until remove().
    // Throws: std::system_error if the monitor cannot be started, std::bad_alloc.
    void add(const std::shared_ptr<background_job>& one, std::int64_t at_ms) {
        const std::lock_guard held(lock_);
        if (!runs_) {
            lease_monitor::here().alarm(shared_from_this(), at_ms);
        }
        jobs_[{at_ms, one.get()}] = one;
        one->due_ms_ = at_ms;
    }
    // The job is not begun again. The caller has a reference to it.
    void remove(background_job& one) noexcept {
        const std::lock_guard held(lock_);
        jobs_.erase({std::exchange(one.due_ms_, never), &one});
    }

    // Called by the monitor.
    void happened() noexcept override;

private:
    static constexpr std::int64_t never = background_job::never;

    using table =
        std::map<std::pair<std::int64_t, background_job*>, std::shared_ptr<background_job>>;

    static void run(void* self) noexcept;
    // The caller of these two has the lock.
    std::int64_t next_ms() const noexcept {
        return jobs_.empty() ? never : jobs_.begin()->first.first;
    }
    void sleep_until(std::int64_t at_ms) noexcept {
        if (at_ms != never) { // if it fails, there is no memory, and the next add() helps
            try_to([&] { lease_monitor::here().alarm(shared_from_this(), at_ms); });
        }
    }

    const poster post_;
    runnable posted_;
    mutex lock_;
    // Under lock_:
    table jobs_;                      // by the times at which they are due
    bool runs_ = false;               // it is posted, or a store thread works
    std::shared_ptr<job_queue> self_; // from the post to the run
};

inline void job_queue::happened() noexcept {
    const std::lock_guard held(lock_);
    if (runs_) {
        return;
    }
    std::int64_t next = next_ms();
    if (next <= durable::boottime_ms()) {
        runs_ = true;
        self_ = shared_from_this();
        if (!post_(posted_)) {
            return;
        }
        runs_ = false;
        self_.reset(); // the monitor has a reference
        next = durable::boottime_ms() + 10;
    }
    sleep_until(next);
}

inline void job_queue::run(void* self) noexcept {
    auto& me = *static_cast<job_queue*>(self);
    std::shared_ptr<job_queue> alive; // destroyed after the lock is released
    {
        const std::lock_guard held(me.lock_);
        alive = std::move(me.self_);
    }
    for (;;) {
        const wake_scope<native_platform> away(&service_executor<native_platform>);
        table::node_type job; // may be destroyed at the end of the round, without the lock
        {
            const std::lock_guard held(me.lock_);
            if (me.next_ms() > durable::boottime_ms()) {
                me.runs_ = false;
                me.sleep_until(me.next_ms());
                return;
            }
            job = me.jobs_.extract(me.jobs_.begin());
        }
        const std::int64_t next = job.mapped()->work();
        const std::lock_guard held(me.lock_);
        if (next != never && job.mapped()->due_ms_ != never) { // it was not removed meanwhile
            job.key().first = job.mapped()->due_ms_ = next;
            me.jobs_.insert(std::move(job));
        }
    }
}

// ---- calls whose caller can leave

// How long a caller waits for its call: until `until` or a stop. If the call is running at that
// time, the caller waits at most `grace` longer.
struct call_limits {
    deadline until = deadline::never();
    std::chrono::nanoseconds grace{0};
    std::stop_token stop{};

    static deadline later(deadline than, std::chrono::nanoseconds by) noexcept {
        const std::int64_t at = than.steady_ns();
        const std::int64_t most = deadline::never().steady_ns();
        return at >= most - by.count() ? deadline::never() : deadline::at_ns(at + by.count());
    }
    // Returns the end of the grace, for a caller whose time is up, or that is stopped now.
    deadline last() const noexcept {
        const std::int64_t now = native_platform::now();
        return later(deadline::at_ns(std::min(now, until.steady_ns())), grace);
    }
};

enum class call_kind {
    may_be_skipped, // it is skipped if its caller left before it began
    has_to_run      // it runs even if its caller left
};

// A call to a store that its caller may leave before the call ends. The caller is always a
// coroutine: a blocking function runs one by sync_wait(). The call runs on a store thread and owns
// all objects that it uses. Its states:
//
//   under way -> ended   the call has returned, and the caller takes the result
//   under way -> left    the caller's time was up, or its coroutine was destroyed. The result is
//                        destroyed on the store thread
//
// Both sides change the state atomically, and the first one decides.
class store_call {
public:
    // body() must not throw.
    store_call(std::function<void()> body, call_kind kind) noexcept
        : body_(std::move(body)), kind_(kind) {
        runs_.run = waker(&run, this);
    }

    // Makes the call on a store thread. Returns an error if the call is not made.
    // Requires: start() was not called before.
    static std::error_code start(const std::shared_ptr<store_call>& one) noexcept {
        one->self_ = one;
        const std::error_code error = store_threads::post(one->runs_);
        if (error) {
            one->self_.reset();
        }
        return error;
    }

    // Leaves the call. Returns false if the call has ended before.
    bool leave() noexcept {
        int now = under_way;
        // Order: acq_rel [store_call.end]; what the caller did is visible to the store thread.
        // Failure: acquire; the result is visible to the caller.
        return state_.compare_exchange_strong(now, left, std::memory_order_acq_rel,
                                              std::memory_order_acquire);
    }

    // Is set after the end of the call.
    event& end() noexcept { return end_; }

private:
    static constexpr int under_way = 0;
    static constexpr int ended = 1;
    static constexpr int left = 2;

    static void run(void* self) noexcept;

    const std::function<void()> body_;
    const call_kind kind_;
    runnable runs_;
    std::shared_ptr<store_call> self_; // set while the call is posted or runs
    native_platform::atomic<int> state_{under_way};
    event end_;
};

// Coroutines that it wakes resume on a service thread: they must not occupy a store thread.
inline void store_call::run(void* self) noexcept {
    auto& me = *static_cast<store_call*>(self);
    std::shared_ptr<store_call> alive = std::move(me.self_);
    {
        const wake_scope<native_platform> away(&service_executor<native_platform>);
        // Order: relaxed; only an optimization: a call that was left is skipped.
        if (me.kind_ == call_kind::has_to_run ||
            me.state_.load(std::memory_order_relaxed) != left) {
            me.body_();
        }
        // Order: acq_rel [store_call.end]; publishes the result, and sees what a caller that left
        // has done.
        if (me.state_.exchange(ended, std::memory_order_acq_rel) != left) {
            me.end_.set();
        }
    }
    const wake_scope<native_platform> away(&service_executor<native_platform>);
    alive.reset();
}

// Awaited in a coroutine, returns the context of its task; nullptr if it has none.
struct own_context {
    basic_task_context<native_platform>* found = nullptr;
    bool await_ready() const noexcept { return false; }
    template <class Promise> bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        found = task_context_of<native_platform>(h.promise());
        return false;
    }
    basic_task_context<native_platform>* await_resume() const noexcept { return found; }
};

// Waits for the end of the call. Returns errc::timeout or errc::stopped if the caller has left the
// call. If the caller's task is cancelled, that counts as a stop, with the same grace. If the
// caller's coroutine is destroyed, the caller leaves the call.
// Throws: std::system_error if bide's service threads cannot be started.
inline task<std::error_code> wait_for_call(std::shared_ptr<store_call> call, call_limits limits) {
    const struct leaving {
        store_call& of;
        ~leaving() { of.leave(); }
    } at_the_end{*call};
    auto ends = call->end().async_wait().with_deadline(limits.until).with_stop(limits.stop);
    const auto ended = co_await std::move(ends);
    if (ended) {
        co_return std::error_code();
    }
    own_context asked;
    const auto* const mine = co_await asked;
    // A shield is for the running task, so this has to be the running task.
    std::optional<this_task::shield> shield;
    if (mine != nullptr && mine == running_task()) {
        shield.emplace();
    }
    auto last = call->end().async_wait().with_deadline(limits.last());
    static_cast<void>(co_await std::move(last));
    if (call->leave()) {
        co_return make_error_code(ended.error() == errc::timeout ? errc::timeout : errc::stopped);
    }
    co_return std::error_code();
}

// Makes the call on a store thread, and waits as long as the limits allow. The call never runs on
// this thread. If body() throws, throws the same exception.
template <class R>
task<R> async_call_store(std::function<R()> body, call_limits limits,
                         call_kind kind = call_kind::may_be_skipped) {
    struct answer {
        std::optional<R> value{};
        std::exception_ptr error{};
    };
    const auto got = std::make_shared<answer>();
    const auto call = std::make_shared<store_call>(
        [got, of = std::move(body)] { got->error = thrown_by([&] { got->value.emplace(of()); }); },
        kind);
    if (const std::error_code error = store_call::start(call)) {
        co_return unexpected{error};
    }
    auto waiting = wait_for_call(call, std::move(limits));
    if (const std::error_code why = co_await std::move(waiting)) {
        co_return unexpected{why};
    }
    if (got->error) {
        std::rethrow_exception(got->error);
    }
    co_return std::move(*got->value);
}

// Calls async_call_store() and blocks the thread until the result is there.
template <class R>
R call_store(std::function<R()> body, call_limits limits,
             call_kind kind = call_kind::may_be_skipped) {
    return sync_wait(async_call_store<R>(std::move(body), std::move(limits), kind));
}

}}} // namespace bide::BIDE_ABI::detail

#endif
