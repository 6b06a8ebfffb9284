// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_BACKGROUND_HPP
#define BIDE_DURABLE_DETAIL_BACKGROUND_HPP

// What a process does for its locks in the background:
//
//   lease_monitor    one thread, which waits for times and for file descriptors. It notifies its
//                    clients: grants whose lease ends, waiters, and jobs that are due
//   store_threads    threads that call stores, started when they are needed
//   background_job   work that a store thread does at a given time: renewals and withdrawals
//
// The monitor calls no store. So a store that hangs delays neither the notification that a lease
// has ended nor the jobs of other stores. Nothing runs in the background before it is needed, and
// none of the threads keeps the process from ending. A child of fork() starts its own threads,
// which do not notify the clients of its parent.

#include <bide/core/config.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/process.hpp>
#include <bide/sched/blocking_pool.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
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

// A client of the lease monitor.
class monitor_client {
public:
    monitor_client() = default;
    monitor_client(const monitor_client&) = delete;
    monitor_client& operator=(const monitor_client&) = delete;
    virtual ~monitor_client() = default;

    // Called on the thread of the lease monitor, without its lock.
    virtual void happened() noexcept = 0;
};

class BIDE_SHARED lease_monitor {
public:
    // Returns the monitor of this process. It is never destroyed.
    // Throws: std::system_error, std::bad_alloc.
    static lease_monitor& here();

    // Notifies the client once, when boottime_ms() is `at_ms`. A client has one such time; a
    // further call replaces it.
    // Throws: std::system_error if the thread cannot be started, std::bad_alloc.
    void alarm(const std::shared_ptr<monitor_client>& client, std::int64_t at_ms);
    void cancel(const monitor_client& client) noexcept;
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

private:
    struct time_entry {
        std::int64_t at_ms;
        std::weak_ptr<monitor_client> client;
    };

    // A list of fixed size, so that the thread needs no memory. Clients that do not fit are
    // notified in the next round.
    static constexpr std::size_t most_clients = 16;
    struct client_list {
        std::array<std::weak_ptr<monitor_client>, most_clients> clients;
        std::size_t size = 0;
    };

    lease_monitor();

    // Starts the thread, unless it runs. The caller holds the monitor's lock. If the start fails,
    // the next caller tries again.
    void start();
    [[noreturn]] static void enter(void* self) noexcept {
        static_cast<lease_monitor*>(self)->run();
    }
    [[noreturn]] void run() noexcept;

    // Collects the clients that are due. Returns the next time.
    std::int64_t collect_due(client_list& into);

    // Makes the thread wake at `at_ms` at the latest. The caller holds the monitor's lock. If the
    // thread may already sleep, the caller calls wake() afterwards.
    void arm(std::int64_t at_ms) noexcept;
    void wake() noexcept;

    // Sleeps until armed_ms_, or until a descriptor is readable; collects the clients of those.
    void sleep(client_list& into);

    mutex lock_;
    bool runs_ = false;                                 // under lock_
    std::map<const monitor_client*, time_entry> times_; // under lock_
    std::int64_t armed_ms_ = never;                     // under lock_: when the thread wakes
#if defined(__linux__)
    int timer_ = -1;
    int files_ = -1; // an epoll set with the descriptors and the timer
    std::map<int, std::weak_ptr<monitor_client>> clients_; // under lock_: without the timer
#else
    semaphore wakeups_{0};
#endif
};

inline lease_monitor& lease_monitor::here() {
    lease_monitor* const one =
        process_wide<lease_monitor, native_platform>::get(+[] { return new lease_monitor; });
    if (one == nullptr) {
        throw_error(std::make_error_code(std::errc::not_enough_memory));
    }
    return *one;
}

inline void lease_monitor::start() {
    if (!runs_) {
        if (const std::error_code error = os_thread::start_detached(&enter, this)) {
            throw_error(error);
        }
        runs_ = true;
    }
}

inline void lease_monitor::alarm(const std::shared_ptr<monitor_client>& client,
                                 std::int64_t at_ms) {
    const std::lock_guard held(lock_);
    start();
    times_[client.get()] = time_entry{at_ms, client};
    if (at_ms < armed_ms_) {
        arm(at_ms);
        wake();
    }
}

inline void lease_monitor::cancel(const monitor_client& client) noexcept {
    const std::lock_guard held(lock_);
    times_.erase(&client);
}

inline std::int64_t lease_monitor::collect_due(client_list& into) {
    const std::int64_t now = durable::boottime_ms();
    std::int64_t next_ms = never;
    for (auto entry = times_.begin(); entry != times_.end();) {
        if (entry->second.at_ms <= now && into.size < most_clients) {
            into.clients[into.size++] = std::move(entry->second.client);
            entry = times_.erase(entry);
        } else {
            next_ms = std::min(next_ms, entry->second.at_ms);
            ++entry;
        }
    }
    return next_ms;
}

inline void lease_monitor::run() noexcept {
    os_thread::name_this("bide-monitor", "", 0);
    client_list due;
    for (;;) {
        {
            const std::lock_guard held(lock_);
            arm(collect_due(due));
        }
        for (; due.size != 0; --due.size) {
            const auto client = std::exchange(due.clients[due.size - 1], {});
            if (const auto alive = client.lock()) {
                alive->happened();
            }
        }
        sleep(due); // a time that was added meanwhile has armed it
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

inline void lease_monitor::wake() noexcept {} // the timer wakes the thread

inline void lease_monitor::sleep(client_list& into) {
    epoll_event seen[most_clients];
    const int count = ::epoll_wait(files_, seen, most_clients, -1);
    const std::lock_guard held(lock_);
    for (int i = 0; i < count; ++i) {
        const auto found = clients_.find(seen[i].data.fd);
        if (found != clients_.end()) {
            into.clients[into.size++] = found->second;
        }
    }
}

inline bool lease_monitor::add(int fd, const std::shared_ptr<monitor_client>& client) {
    const std::lock_guard held(lock_);
    start();
    clients_[fd] = client;
    epoll_event wanted{};
    wanted.events = EPOLLIN | EPOLLONESHOT;
    wanted.data.fd = fd;
    if (::epoll_ctl(files_, EPOLL_CTL_ADD, fd, &wanted) != 0) {
        clients_.erase(fd);
        return false;
    }
    return true;
}

inline void lease_monitor::rearm(int fd) noexcept {
    epoll_event wanted{};
    wanted.events = EPOLLIN | EPOLLONESHOT;
    wanted.data.fd = fd;
    ::epoll_ctl(files_, EPOLL_CTL_MOD, fd, &wanted);
}

inline void lease_monitor::remove(int fd) noexcept {
    const std::lock_guard held(lock_);
    epoll_event none{};
    ::epoll_ctl(files_, EPOLL_CTL_DEL, fd, &none);
    clients_.erase(fd);
}

#else

inline lease_monitor::lease_monitor() = default;

inline void lease_monitor::arm(std::int64_t at_ms) noexcept { armed_ms_ = at_ms; }
inline void lease_monitor::wake() noexcept { wakeups_.release(); }

inline void lease_monitor::sleep(client_list&) {
    std::int64_t until_ms = never;
    {
        const std::lock_guard held(lock_);
        until_ms = armed_ms_;
    }
    if (until_ms == never) {
        wakeups_.acquire();
    } else {
        const std::int64_t rest = std::max<std::int64_t>(until_ms - durable::boottime_ms(), 0);
        wakeups_.try_acquire_for(std::chrono::milliseconds(rest));
    }
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
    static std::error_code post(runnable& r) noexcept {
        return post_to(r, process_wide<calls, native_platform>::get(
                              +[]() noexcept { return new (std::nothrow) calls; }));
    }
    // Runs it on a thread for renewals.
    static std::error_code post_renewal(runnable& r) noexcept {
        return post_to(r, process_wide<renewals, native_platform>::get(
                              +[]() noexcept { return new (std::nothrow) renewals; }));
    }

private:
    // A thread of the pool uses nothing of the pool after it has left it, so no join is needed.
    struct detached_thread {
        std::error_code start(os_thread::function body, void* argument,
                              std::size_t /* the pool asks for the system's size */) noexcept {
            return os_thread::start_detached(body, argument);
        }
        void join() noexcept {}
        static void name_this(std::string_view name, const char* separator,
                              unsigned index) noexcept {
            os_thread::name_this(name, separator, index);
        }
    };
    using pool = basic_blocking_pool<native_platform, detached_thread>;

    struct calls final : pool {
        calls() noexcept : pool({most, keep_alive, "bide-store"}) {}
    };
    struct renewals final : pool {
        renewals() noexcept : pool({most, keep_alive, "bide-lease"}) {}
    };

    static std::error_code post_to(runnable& r, pool* to) noexcept {
        std::error_code why = std::make_error_code(std::errc::not_enough_memory);
        if (to != nullptr && to->post(r, why)) {
            why.clear();
        }
        return why;
    }
};

// ---- jobs

// A job that store threads run repeatedly. At most one thread runs it at a time. Its states:
//
//   asleep    the job waits: the monitor knows the time at which it is due
//   runs      the job is posted to the store threads, or a thread runs it. A new time that is
//             set meanwhile takes effect after the run
//
// When the job is due, the monitor posts it and does none of its work. If no thread can be started,
// the monitor tries again 10 ms later. Coroutines that the job wakes resume on a service thread:
// they must not occupy a store thread.
class background_job : public monitor_client, public std::enable_shared_from_this<background_job> {
public:
    using poster = std::error_code (*)(runnable&) noexcept; // a function of store_threads

    explicit background_job(poster post) noexcept : post_(post) { posted_.run = waker(&run, this); }
    ~background_job() override {
        if (at_ms_ != never) {
            try_to([this] { lease_monitor::here().cancel(*this); });
        }
    }

    // Runs the job when boottime_ms() is `at_ms`, or earlier.
    // Throws: std::system_error if the monitor cannot be started, std::bad_alloc.
    void wake_at(std::int64_t at_ms) {
        const std::lock_guard held(state_);
        if (at_ms < at_ms_) {
            if (!runs_) {
                lease_monitor::here().alarm(shared_from_this(), at_ms);
            }
            at_ms_ = at_ms;
        }
    }

    // Called by the monitor.
    void happened() noexcept override;

protected:
    static constexpr std::int64_t never = lease_monitor::never;

    // Returns when there is something to do, at most now if there is. Called by the monitor.
    virtual std::int64_t due_ms() noexcept = 0;
    // Does what is due. Returns when there is something more to do.
    virtual std::int64_t work() noexcept = 0;

private:
    static constexpr std::int64_t retry_ms = 10;

    static void run(void* self) noexcept;
    // Sleeps until at_ms_. Called with the lock.
    void sleep() noexcept {
        runs_ = false;
        if (at_ms_ != never &&
            !try_to([this] { lease_monitor::here().alarm(shared_from_this(), at_ms_); })) {
            at_ms_ = never; // there is no memory: the next wake_at() helps
        }
    }

    const poster post_;
    runnable posted_;
    mutex state_;
    // Under state_:
    std::int64_t at_ms_ = never; // the earliest time that is asked for
    bool runs_ = false;
    std::shared_ptr<background_job> self_; // from the post to the run
};

inline void background_job::happened() noexcept {
    {
        const std::lock_guard held(state_);
        if (runs_) {
            return;
        }
        at_ms_ = never; // so a wake_at() from here on has an effect
    }
    const std::int64_t due = due_ms();
    const std::int64_t now = durable::boottime_ms();
    const std::lock_guard held(state_);
    at_ms_ = std::min(at_ms_, due);
    if (at_ms_ <= now) {
        runs_ = true;
        at_ms_ = never;
        self_ = shared_from_this();
        if (!post_(posted_)) {
            return;
        }
        self_.reset(); // the monitor has a reference
        at_ms_ = now + retry_ms;
    }
    sleep();
}

inline void background_job::run(void* self) noexcept {
    auto& me = *static_cast<background_job*>(self);
    std::shared_ptr<background_job> alive; // destroyed after the lock is released
    {
        const std::lock_guard held(me.state_);
        alive = std::move(me.self_);
    }
    const wake_scope<native_platform> away(&service_executor<native_platform>);
    for (;;) {
        const std::int64_t next = me.work();
        const std::lock_guard held(me.state_);
        me.at_ms_ = std::min(me.at_ms_, next);
        if (me.at_ms_ > durable::boottime_ms()) {
            me.sleep();
            return;
        }
        me.at_ms_ = never;
    }
}

}}} // namespace bide::BIDE_ABI::detail

#endif
