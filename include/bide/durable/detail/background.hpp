// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_BACKGROUND_HPP
#define BIDE_DURABLE_DETAIL_BACKGROUND_HPP

// What a process does for its locks in the background. No thread is started before it is needed,
// and none keeps the process from ending. A child of fork() has threads and queues of its own,
// which do not notify the clients of its parent.

#include <bide/durable/process.hpp>
#include <bide/sched/blocking_pool.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <list>

#include <poll.h>
#if defined(__linux__)
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- the monitor
//
// One thread waits for times and for file descriptors, and notifies its clients: grants whose lease
// ends, waiters, and jobs that are due. It calls no store. So a store that hangs delays neither the
// notification that a lease has ended nor the jobs of other stores.
//
// It has weak references to its clients. A client that is removed during a notification may be
// notified once more. cancel() does not wake the thread: to wake once without need is cheaper.
//
// In a simulation with threads (test/scheduler.hpp), the simulation runs the monitor, which ends
// when it has nothing to wait for, and starts again. It monitors no descriptors.

class monitor_client {
public:
    virtual ~monitor_client() = default;

    // Called on the thread of the lease monitor, without its lock.
    virtual void happened() noexcept = 0;

private:
    friend class lease_monitor;
    // The time that the client has asked for. Under the monitor's lock.
    std::int64_t asked_ms_ = std::numeric_limits<std::int64_t>::max();
};

class BIDE_SHARED lease_monitor {
public:
    // Throws: std::system_error, std::bad_alloc.
    static lease_monitor& here() {
        if (simulated_threads() == nullptr) [[likely]] {
            return of_process<lease_monitor>();
        }
        auto& mine = native_platform::local<of_simulations>().one;
        if (mine == nullptr) {
            mine = new lease_monitor;
            mine->is_simulated_ = true;
        }
        return *mine;
    }

    // Notifies the client once, when boottime_ms() is `at_ms`. A client has at most one such time:
    // the earliest that it has asked for after the last notification.
    // Throws: std::system_error if the thread cannot be started, std::bad_alloc.
    void alarm(const std::shared_ptr<monitor_client>& client, std::int64_t at_ms) {
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
    void cancel(monitor_client& client) noexcept {
        const std::lock_guard held(lock_);
        times_.erase({std::exchange(client.asked_ms_, never), &client});
    }
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

#if defined(__linux__)
    lease_monitor()
        : timer_(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)),
          files_(::epoll_create1(EPOLL_CLOEXEC)) {
        epoll_event of_timer{};
        of_timer.events = EPOLLIN | EPOLLET; // the timer is never read: each setting is an edge
        of_timer.data.fd = timer_;
        if (timer_ < 0 || files_ < 0 ||
            ::epoll_ctl(files_, EPOLL_CTL_ADD, timer_, &of_timer) != 0) {
            const std::error_code error(errno, std::system_category());
            ::close(timer_);
            ::close(files_);
            throw_error(error);
        }
    }

    ~lease_monitor() { // that of a simulation
        ::close(timer_);
        ::close(files_);
    }
    lease_monitor& operator=(lease_monitor&&) = delete;

    // Notifies the client once when the descriptor is readable, and once more after each rearm().
    // The caller keeps it open until remove(). Returns false if it cannot be monitored.
    // Throws: as alarm().
    bool add(int fd, const std::shared_ptr<monitor_client>& client) {
        const std::lock_guard held(lock_);
        if (is_simulated_) {
            return false;
        }
        start();
        clients_[fd] = client;
        const bool is_added = control(EPOLL_CTL_ADD, fd);
        if (!is_added) {
            clients_.erase(fd);
        }
        return is_added;
    }
    void rearm(int fd) noexcept { control(EPOLL_CTL_MOD, fd); }
    void remove(int fd) noexcept {
        const std::lock_guard held(lock_);
        control(EPOLL_CTL_DEL, fd);
        clients_.erase(fd);
    }
#else
    bool add(int, const std::shared_ptr<monitor_client>&) { return false; }
    void rearm(int) noexcept {}
    void remove(int) noexcept {}
#endif

private:
    // The monitor of the simulations of a thread, one after the other.
    struct of_simulations {
        lease_monitor* one = nullptr;
        ~of_simulations() { delete one; }
    };

    // Starts the thread, unless it runs. Under lock_.
    void start() {
        if (is_simulated_ && !runs_) {
            runs_ = true;
            wakeups_.forget_permits((semaphore::max)()); // of the simulation before this one
            simulated_.run = waker(&run_simulated, this);
            simulated_machine::here()->run_on_thread(simulated_);
        } else if (!runs_) {
            if (const std::error_code error = os_thread::start_detached(&run, this)) {
                throw_error(error);
            }
            runs_ = true;
        }
    }
    [[noreturn]] static void run(void* self) noexcept {
        auto& me = *static_cast<lease_monitor*>(self);
        os_thread::name_this("bide-monitor", "", 0);
        for (;;) {
            while (const auto client = me.take_due()) {
                client->happened();
            }
            me.sleep(); // if a time was added meanwhile, alarm() has set the wake time
        }
    }

    static void run_simulated(void* self) noexcept {
        auto& me = *static_cast<lease_monitor*>(self);
        for (;;) {
            while (const auto client = me.take_due()) {
                client->happened();
            }
            if (me.ends()) {
                return;
            }
            me.sleep_until_woken();
        }
    }
    bool ends() noexcept {
        const std::lock_guard held(lock_);
        if (times_.empty()) {
            runs_ = false;
        }
        return !runs_;
    }
    void wake_at(std::int64_t at_ms) noexcept {
        if (at_ms < std::exchange(armed_ms_, at_ms)) {
            wakeups_.release(); // the thread may sleep for longer than that
        }
    }
    void sleep_until_woken() noexcept {
        std::int64_t until_ms = never;
        {
            const std::lock_guard held(lock_);
            until_ms = armed_ms_;
        }
        const std::int64_t rest = std::max<std::int64_t>(until_ms - durable::boottime_ms(), 0);
        static_cast<void>(wakeups_.try_acquire_for(std::chrono::milliseconds(rest)));
    }

    // Without a client that is due, sets the next wake time and returns nullptr.
    std::shared_ptr<monitor_client> take_due() noexcept {
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

    mutex lock_;
    // Under lock_:
    bool runs_ = false;
    std::map<std::pair<std::int64_t, const monitor_client*>, std::weak_ptr<monitor_client>> times_;
    std::int64_t armed_ms_ = never; // when the thread wakes

    semaphore wakeups_{0}; // where nothing else wakes the thread
    runnable simulated_;
    bool is_simulated_ = false;

    // arm() makes the thread wake at `at_ms`; its caller holds lock_. sleep() sleeps until
    // armed_ms_, or until descriptors are readable, and notifies their clients.
#if defined(__linux__)
    void arm(std::int64_t at_ms) noexcept {
        if (is_simulated_) {
            wake_at(at_ms);
            return;
        }
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
    void sleep() noexcept {
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
    bool control(int operation, int fd) noexcept {
        epoll_event wanted{};
        wanted.events = EPOLLIN | EPOLLONESHOT;
        wanted.data.fd = fd;
        return ::epoll_ctl(files_, operation, fd, &wanted) == 0;
    }

    std::map<int, std::weak_ptr<monitor_client>> clients_; // under lock_, by their descriptors
    const int timer_;
    const int files_; // an epoll set with the descriptors and the timer
#else
    void arm(std::int64_t at_ms) noexcept { wake_at(at_ms); }
    void sleep() noexcept { sleep_until_woken(); }
#endif
};

// ---- store threads

// The threads that call stores: one set for renewals, one for all other calls and jobs. The end of
// the process does not wait for them.
//
// In each set at most 256 calls run at once. A further call waits for a free thread, in order of
// arrival; its caller returns when its own time is up. So 256 calls that hang delay all other
// calls, but no renewal. A thread ends when it was idle for 5 s.
class BIDE_SHARED store_threads {
public:
    static constexpr unsigned most = 256;

    // Runs r.run.wake() on a store thread of one of the sets. Returns an error if there is no such
    // thread and none can be started; then r is not used.
    template <bool Renews = false> static std::error_code post(runnable& r) noexcept {
        if (auto* const simulated = simulated_threads()) [[unlikely]] {
            simulated->run_on_thread(r);
            return {};
        }
        std::error_code why = std::make_error_code(std::errc::not_enough_memory);
        bool is_posted = false;
        try_to([&] { is_posted = of_process<set<Renews>>().post(r, why); });
        return is_posted ? std::error_code() : why;
    }

private:
    // A thread that has left the pool uses nothing of the pool, so no join is needed.
    struct detached_thread : os_thread {
        std::error_code start(function body, void* argument,
                              std::size_t /* the pool asks for the system's size */) noexcept {
            return start_detached(body, argument);
        }
        void join() noexcept {}
    };
    using pool = basic_blocking_pool<native_platform, detached_thread>;

    template <bool Renews> struct set final : pool {
        set() noexcept
            : pool({most, std::chrono::milliseconds(5'000), Renews ? "bide-lease" : "bide-store"}) {
        }
    };
};

// ---- jobs

class background_job;

// The jobs that are due. One store thread at a time does them, in the order of their times.
struct job_queue {
    using poster = std::error_code (*)(runnable&) noexcept; // a function of store_threads

    explicit job_queue(poster its) noexcept : post(its) {}

    const poster post;
    runnable posted;
    mutex lock;
    // Under the lock:
    std::list<std::shared_ptr<background_job>> due;
    std::shared_ptr<job_queue> self; // while it is posted, or a store thread works
};

// Work that a store thread does at given times: a renewal, a withdrawal. If no thread for a job
// that is due can be started, the lease monitor tries again 10 ms later.
class background_job final : public monitor_client {
public:
    static constexpr std::int64_t never = lease_monitor::never;

    // work() does the work that is due, and returns the time of the next work; `never` if the job
    // is done. Requires: work() does not throw.
    explicit background_job(std::function<std::int64_t()> work) noexcept : work_(std::move(work)) {}

    // Begins the job: work() is called at `at_ms`, and each call returns the time of the next one.
    // The job owns a reference to itself until it is done, or until cancel().
    // Throws: std::system_error if the monitor cannot be started, std::bad_alloc.
    static void begin(const std::shared_ptr<background_job>& one, std::shared_ptr<job_queue> on,
                      std::int64_t at_ms) {
        one->queue_ = std::move(on);
        const std::lock_guard held(one->queue_->lock);
        lease_monitor::here().alarm(one, at_ms);
        one->self_ = one;
    }

    // Ends the job: work() is not called again. Does nothing if the job never began.
    // Requires: the caller has a reference to the job.
    void cancel() noexcept {
        if (queue_ != nullptr) {
            const std::lock_guard held(queue_->lock);
            self_.reset();
            lease_monitor::here().cancel(*this);
        }
    }

private:
    void happened() noexcept override {
        job_queue& to = *queue_;
        const std::lock_guard held(to.lock);
        if (self_ == nullptr) {
            return;
        }
        if (try_to([&] { to.due.push_back(self_); })) {
            if (to.self != nullptr) {
                return;
            }
            to.self = queue_;
            to.posted.run = waker(&run, &to);
            if (!to.post(to.posted)) {
                return;
            }
            to.self.reset();
            to.due.pop_back();
        }
        try_to([this] { lease_monitor::here().alarm(self_, durable::boottime_ms() + 10); });
    }

    // Does the jobs of a queue. If a job wakes a coroutine, the coroutine resumes on a service
    // thread, because it must not occupy a store thread.
    static void run(void* queue) noexcept {
        auto& of = *static_cast<job_queue*>(queue);
        for (;;) {
            const wake_scope<native_platform> away(&service_executor<native_platform>);
            // Destroyed after the lock is released:
            std::shared_ptr<job_queue> last;
            std::shared_ptr<background_job> job;
            std::function<std::int64_t()> done;
            std::unique_lock held(of.lock);
            if (of.due.empty()) {
                last = std::move(of.self);
                return;
            }
            job = std::move(of.due.front());
            of.due.pop_front();
            if (job->self_ == nullptr) {
                continue;
            }
            held.unlock();
            const std::int64_t next = job->work_();
            held.lock();
            const bool goes_on = next != never && job->self_ != nullptr;
            if (!goes_on || !try_to([&] { lease_monitor::here().alarm(job, next); })) {
                job->self_.reset();
                done.swap(job->work_);
            }
        }
    }

    std::function<std::int64_t()> work_;   // destroyed on a store thread, unless it is cancelled
    std::shared_ptr<job_queue> queue_;     // since begin()
    std::shared_ptr<background_job> self_; // under the lock of the queue; nullptr: cancelled
};

// ---- calls whose caller can leave

// How long a caller waits for its call: until `until` or a stop, and then at most `grace` longer.
struct call_limits {
    deadline until = deadline::never();
    std::chrono::nanoseconds grace{0};
    std::stop_token stop{};

    static deadline later(deadline than, std::chrono::nanoseconds by) noexcept {
        const std::int64_t at = than.steady_ns();
        const std::int64_t most = deadline::never().steady_ns();
        return at >= most - by.count() ? deadline::never() : deadline::at_ns(at + by.count());
    }
};

enum class call_kind {
    may_be_skipped, // it is skipped if its caller left before it began
    has_to_run      // it runs even if its caller left
};

// A call to a store on a store thread. The caller may leave before the call ends, so the call owns
// all objects that it uses.
template <class R> struct store_call {
    // Makes the call on a store thread. Throws: std::bad_alloc.
    static result<std::shared_ptr<store_call>, std::error_code> start(std::function<R()> body,
                                                                      call_kind kind) {
        const std::shared_ptr<store_call> one(new store_call{std::move(body), kind});
        one->posted.run = waker(&run, one.get());
        one->self = one;
        if (const std::error_code error = store_threads::post(one->posted)) {
            one->self.reset();
            return unexpected{error};
        }
        return one;
    }

    // Coroutines that the call wakes resume on a service thread, not on the store thread.
    static void run(void* self) noexcept {
        const wake_scope<native_platform> away(&service_executor<native_platform>);
        auto& me = *static_cast<store_call*>(self);
        const std::shared_ptr<store_call> alive = std::move(me.self);
        const bool is_left = alive.use_count() == 1; // its caller has a reference until it leaves
        if (me.kind == call_kind::has_to_run || !is_left) {
            me.error = thrown_by([&me] { me.value.emplace(me.body()); });
        }
        me.end.set();
    }

    const std::function<R()> body;
    const call_kind kind;
    std::optional<R> value{};
    std::exception_ptr error{};
    event end{};
    runnable posted{};
    std::shared_ptr<store_call> self{}; // set while the call is posted or runs
};

// Waits for the end of the call. Returns errc::timeout or errc::stopped if the limits end the wait
// first. A cancellation of the caller's task counts as a stop.
// Throws: std::system_error if bide's service threads cannot be started.
inline task<std::error_code> wait_for_call(event& end, call_limits limits) {
    auto ends = end.async_wait().with_deadline(limits.until).with_stop(limits.stop);
    const auto ended = co_await std::move(ends);
    if (ended) {
        co_return std::error_code();
    }
    const auto* const mine = task_context_of<native_platform>(co_await this_promise());
    // A shield works on the running task, so it is used only if this task is the running one.
    std::optional<this_task::shield> shield;
    if (mine != nullptr && mine == running_task()) {
        shield.emplace();
    }
    const std::int64_t now = std::min(native_platform::now(), limits.until.steady_ns());
    const deadline last = call_limits::later(deadline::at_ns(now), limits.grace);
    auto ending = end.async_wait().with_deadline(last);
    const auto is_over = co_await std::move(ending);
    co_return is_over
        ? std::error_code()
        : make_error_code(ended.error() == errc::timeout ? errc::timeout : errc::stopped);
}

// Calls body() on a store thread, and waits as long as the limits allow. Throws what body() throws.
template <class R>
task<R> async_call_store(std::function<R()> body, call_limits limits,
                         call_kind kind = call_kind::may_be_skipped) {
    const auto call = store_call<R>::start(std::move(body), kind);
    if (!call) {
        co_return unexpected{call.error()};
    }
    auto waiting = wait_for_call((*call)->end, std::move(limits));
    if (const std::error_code why = co_await std::move(waiting)) {
        co_return unexpected{why};
    }
    if ((*call)->error) {
        std::rethrow_exception((*call)->error);
    }
    co_return std::move(*(*call)->value);
}

template <class R>
R call_store(std::function<R()> body, call_limits limits,
             call_kind kind = call_kind::may_be_skipped) {
    return sync_wait(async_call_store<R>(std::move(body), std::move(limits), kind));
}

// ---- changes of a slot

// Wakes all threads and coroutines of this process that wait for one lock:
//
//   waiter:   take next()              changer:   change the record
//             read the record                     signal(): set the event that was taken,
//             wait for the event                            and forget it
//
// If next() comes first, signal() sets the waiter's event. If signal() comes first, the waiter
// reads the record after the change.
template <class Platform> class basic_change_signal final : public monitor_client {
public:
    using event = basic_event<Platform>;

    // Throws: std::bad_alloc.
    std::shared_ptr<event> next() {
        const std::lock_guard held(lock_);
        if (next_ == nullptr) {
            next_ = std::make_shared<event>();
        }
        return next_;
    }

    void signal() noexcept {
        std::shared_ptr<event> now;
        {
            const std::lock_guard held(lock_);
            now.swap(next_);
            ++count_;
        }
        if (now != nullptr) {
            now->set();
        }
    }

    std::uint64_t count() const noexcept { // of all signals
        const std::lock_guard held(lock_);
        return count_;
    }

    // Called by the lease monitor. A coroutine without an executor resumes on a service thread,
    // because it may call a store, which would delay the monitor.
    void happened() noexcept override {
        const wake_scope<Platform> away(&service_executor<Platform>);
        signal();
    }

private:
    mutable basic_mutex<Platform> lock_;
    std::uint64_t count_ = 0;     // under lock_
    std::shared_ptr<event> next_; // under lock_; nullptr: not taken since the last signal
};

using change_signal = basic_change_signal<native_platform>;

// Wakes another process of the same machine and network namespace: sends an empty datagram to a
// socket in Linux's abstract namespace. The socket's name is origin::mark of the waiting process.
struct wake_socket {
#if defined(__linux__)
    // Returns the descriptor of a new socket with that name; -1 if it cannot be opened.
    static int open(std::int64_t mark) noexcept {
        const int fd = make();
        const address name(mark);
        if (fd >= 0 && ::bind(fd, name.get(), name.size) == 0) {
            return fd;
        }
        ::close(fd);
        return -1;
    }

    // Wakes the process that has the mark, if it waits. A full socket has a message that wakes it.
    static void wake(std::int64_t mark) noexcept {
        const int fd = make();
        const address name(mark);
        ::sendto(fd, nullptr, 0, MSG_DONTWAIT | MSG_NOSIGNAL, name.get(), name.size);
        ::close(fd);
    }

private:
    static int make() noexcept {
        return ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    struct address {
        explicit address(std::int64_t mark) noexcept {
            of.sun_family = AF_UNIX; // a name that begins with a zero byte is an abstract one
            const int length = std::snprintf(of.sun_path + 1, sizeof of.sun_path - 1, "bide-%llx",
                                             static_cast<unsigned long long>(mark));
            size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                          static_cast<std::size_t>(length));
        }
        const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&of); }

        sockaddr_un of{};
        socklen_t size;
    };
#else
    static int open(std::int64_t) noexcept { return -1; }
    static void wake(std::int64_t) noexcept {}
#endif
};

// The descriptors and the monitor of the system.
struct native_watch_system {
    using signal = change_signal;
    using wake_socket = detail::wake_socket;

    static lease_monitor& monitor() { return lease_monitor::here(); }
    static int file_events() noexcept { // for slot::watch(); -1: not on this system
#if defined(__linux__)
        return ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
#else
        return -1;
#endif
    }
    static bool is_silent(int fd) noexcept { // true: certainly not readable
        pollfd readable{fd, POLLIN, 0};
        return ::poll(&readable, 1, 0) == 0;
    }
    // Makes the descriptor unreadable. Returns false if it has failed.
    static bool drain(int fd) noexcept {
        char bytes[4096]; // a message of a socket is empty
        while (::read(fd, bytes, sizeof bytes) >= 0 || errno == EINTR) {
        }
        return errno == EAGAIN;
    }
    static void close(int fd) noexcept { ::close(fd); }
};

// The descriptors that notify this process while its contenders wait for a lock:
//
//   the wake socket       readable after another process has sent to it
//   process descriptors   one for each process of this machine that a waiter depends on, mostly
//                         a holder or a process ahead in the queue; readable when it has ended
//   the file events       readable after each change of the slot (slot::watch()); used only for
//                         waiters that the other two do not notify of every change that concerns
//                         them (is_told() in record.hpp), for example in another container
//
// A waiter that is notified polls seldom. So it must not miss a change after its last read. To arm
// a descriptor means that the lease monitor signals once when it is readable. The steps:
//
//   reader:   drain    if the descriptor is readable: clears it, and signals unless
//                      there was a signal since the descriptors were last armed
//             read     the record
//             follow   arms the descriptor
//   monitor:           if the descriptor is readable and armed: disarms it, and signals
//
// All waiters share the descriptors. If a reader clears one, the monitor does not signal. So the
// reader signals: the change may have granted another waiter its permits. If there was a signal
// since the descriptors were last armed, all waiters are awake and read the record before they wait.
// A process may end after a reader has judged that it runs, and before follow() opens its
// descriptor. Then follow() signals, and the reader reads again.
//
// The protocol with another process that makes a change (the changer):
//
//   waiter:   bind     the wake socket         changer:   change the record
//             enter    the queue                          send to the wake sockets of the
//             read     the record, and follow             processes that the change concerns
//
// The store orders the changes of the record. If the change comes after the waiter's entry, the
// changer finds the waiter's mark in the record, and the socket exists. If the change comes before
// the entry, the waiter's read sees the change.
//
// Thread safety: only a thread that holds the update lock (slot_part::update_lock) uses the object.
template <class System> class basic_change_watch {
public:
    using signal = typename System::signal;

    // `is_local`: the slot is on this machine.
    basic_change_watch(std::shared_ptr<signal> told, bool is_local)
        : signal_(std::move(told)), may_watch_(is_local) {}

    // Whether open() may help to notify the waiters with this mark. 0: no mark.
    bool can_open(std::int64_t mark) const noexcept {
        return can_bind(mark) || (may_watch_ && events_ == nullptr && !is_told(mark));
    }
    // If can_bind(), opens the wake socket of that name. Otherwise, if can_open(), opens the file
    // events. Requires: drain() and a read of the record follow.
    void open(std::int64_t mark) {
        told_ = signal_->count();
        if (can_bind(mark)) {
            if (socket_ != nullptr) { // a message to it is lost
                signal_->happened();
            }
            mark_ = mark;
            socket_ = listen(System::wake_socket::open(mark));
        } else if (can_open(mark)) {
            events_ = listen(System::file_events());
            may_watch_ = events_ != nullptr;
        }
    }
    // Returns true if, as of the last follow(), this object is notified of every change that
    // concerns the waiters with this mark. Arms the file events if only they achieve that.
    bool hears(std::int64_t mark) {
        const bool told = is_told(mark);
        if (!told && events_ != nullptr) {
            System::monitor().rearm(*events_);
        }
        return told || events_ != nullptr;
    }

    // Returns true if the process certainly runs, by one system call; to read /proc takes five.
    bool runs(const durable::origin& it) const noexcept {
        const auto found = find(processes_, it);
        return found != processes_.end() && found->end && System::is_silent(*found->end);
    }

    // Drains the descriptors that notify the waiters with this mark, before a read.
    void drain(slot& of, std::int64_t mark) {
        const bool was_told = signal_->count() != told_;
        bool is_heard = clear(socket_);
        if (events_ != nullptr && !is_told(mark)) {
            is_heard = clear(events_) || is_heard;
            if (!of.watch(*events_)) {
                events_.reset();
                may_watch_ = false;
            }
        }
        if (is_heard && !was_told) {
            signal_->happened();
        }
    }

    // Called after a read of the record. Opens descriptors for the processes that the waiters of
    // this process depend on, and closes those that no waiter needs. Arms the socket.
    void follow(const durable::record& r, const durable::origin& here) {
        told_ = signal_->count();
        for (process& one : processes_) {
            one.is_followed = false;
        }
        const auto follow_holders = [&] {
            bool follows = true;
            for (const durable::holder& one : r.holders) {
                follows = follow(one.from, here) && follows;
            }
            return follows;
        };
        waits_ = is_told_ = false;
        bool told = true;
        for (std::size_t i = 0; socket_ != nullptr && i != r.waiters.size(); ++i) {
            if (r.waiters[i].from.mark == mark_) {
                const bool follows =
                    i == 0 ? follow_holders() : follow(r.waiters[i - 1].from, here);
                told = durable::is_told(r, i) && follows && told;
                waits_ = true;
            }
        }
        if (waits_ && !told) {
            follow_holders();
            follow(r.waiters.front().from, here);
        }
        is_told_ = told && waits_;
        std::erase_if(processes_, [](const process& one) { return !one.is_followed; });
        if (waits_) {
            System::monitor().rearm(*socket_);
        }
    }

    void leave() noexcept {
        processes_.clear();
        socket_.reset();
        events_.reset();
    }

private:
    struct unmonitored {
        void operator()(const int* fd) const noexcept {
            // A child of fork() may fail to make a monitor. Then no monitor knows the descriptor.
            try_to([fd] { System::monitor().remove(*fd); });
            System::close(*fd);
            delete fd;
        }
    };
    using descriptor = std::unique_ptr<const int, unmonitored>; // nullptr: none

    struct process {
        durable::origin from;
        descriptor end; // readable when the process has ended; nullptr: it had ended before
        bool is_followed = true;
    };
    static constexpr std::size_t most_processes = 64;

    static auto find(auto& in, const durable::origin& it) noexcept {
        return std::ranges::find(in, it, &process::from);
    }

    bool can_bind(std::int64_t mark) const noexcept {
        return mark != 0 && mark != mark_ && (socket_ == nullptr || !waits_);
    }
    bool is_told(std::int64_t mark) const noexcept { return is_told_ && mark == mark_; }

    // Returns true if the descriptor was readable.
    static bool clear(descriptor& one) {
        const bool is_readable = one != nullptr && !System::is_silent(*one);
        if (is_readable && !System::drain(*one)) {
            one.reset();
        }
        return is_readable;
    }

    // Takes over a descriptor. Returns nullptr if there is none, or if it cannot be monitored.
    descriptor listen(int fd) {
        if (fd < 0) {
            return nullptr;
        }
        descriptor made(new int(fd));
        return System::monitor().add(fd, signal_) ? std::move(made) : nullptr;
    }

    // Opens a descriptor, so that the end of the process `it` is signalled, unless it is this
    // process. If it has ended, signals once. Returns false if it has, or if that is not possible.
    bool follow(const durable::origin& it, const durable::origin& here) {
        if (durable::can_look_up(it, here) && it.pid == here.pid) {
            return true;
        }
        const auto known = find(processes_, it);
        if (known != processes_.end()) {
            known->is_followed = true;
            return runs(it);
        }
        if (processes_.size() == most_processes) {
            return false;
        }
        descriptor end = listen(durable::watch_process(it, here));
        if (end == nullptr) {
            if (!durable::is_gone(it, here)) {
                return false;
            }
            signal_->happened();
        }
        processes_.push_back({it, std::move(end)});
        return processes_.back().end != nullptr;
    }

    const std::shared_ptr<signal> signal_;
    bool may_watch_; // the slot may offer file events
    descriptor events_;
    descriptor socket_;
    std::int64_t mark_ = 0;  // the name of the socket
    bool waits_ = false;     // as of the last follow(), a waiter has the mark
    bool is_told_ = false;   // such a waiter needs no short polls
    std::uint64_t told_ = 0; // the count of signals when the socket was last armed
    std::vector<process> processes_;
};

using change_watch = basic_change_watch<native_watch_system>;

}}} // namespace bide::BIDE_ABI::detail

#endif
