// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_DETAIL_PROCESS_MONITOR_HPP
#define BIDE_IO_DETAIL_PROCESS_MONITOR_HPP

// The thread that receives the signals of the process and reaps its children. The first signal_set
// or child_process starts it, and it never ends.
//
// A signal takes this way:
//
//   handler       runs on any thread. Sets the bit of the signal in `arrived_` and calls wake() of
//                 the driver in which the thread sleeps. Both are safe in a handler.
//   the thread    returns from wait() and gives the signal to each set that has it (signal_queue)
//
// Why no signal is lost: wait() sees what came before the wake() that ends it. So the thread finds
// the bit. A bit that is set later has a wake() of its own.
//
// A handler works whatever threads were started before. A descriptor of signalfd(2) does not: it
// receives a signal only if every thread of the process blocks the signal. If all threads block a
// signal, no handler would run. So the thread unblocks the signals of the sets, for itself alone.
//
// All changes of handlers happen under the lock. The thread gives up a signal in this order: it
// blocks the signal, and then restores the previous action. Otherwise the previous action could run
// on this thread, although all other threads block the signal.

#if defined(__linux__)

#include <bide/core/async_op.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/io/detail/signal_queue.hpp>
#include <bide/io/epoll_driver.hpp>
#include <bide/sync/detail/gate.hpp>

#include <cstring>

#include <pthread.h>
#include <signal.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// What the monitor knows of a signal_set. It is in the list of the monitor.
struct monitored_signals {
    monitored_signals* next = nullptr;
    signal_mask mask = 0;
    bool is_leaving = false;
    basic_signal_queue<native_platform> arrived{};
    basic_gate<native_platform> has_left{1};
};

class BIDE_SHARED process_monitor {
    using platform = native_platform;
    using guard = lock_bits<platform, std::uint32_t>::guard;

public:
    // Returns the monitor of the process. The first call starts its thread.
    // Throws: std::system_error; std::bad_alloc.
    static process_monitor& get() {
        process_monitor* const one =
            process_wide<process_monitor, platform>::get(+[] { return new process_monitor; });
        if (one == nullptr) {
            throw_error(std::make_error_code(std::errc::not_enough_memory));
        }
        return *one;
    }

    epoll_driver& io() noexcept { return io_; }

    // Returns true in a child of fork(), which does not have the thread of this monitor.
    bool is_inherited() const noexcept { return process_ != ::getpid(); }

    // Adds a set without signals to the list.
    void enter(monitored_signals& set) noexcept {
        const guard section(lock_);
        set.next = std::exchange(first_, &set);
    }

    // Adds a signal to the set. Returns 0 or the error of the system. If another handler has the
    // signal, returns EBUSY and sets `other`.
    int add(monitored_signals& set, int signal, struct sigaction& other) noexcept {
        const signal_mask bit = mask_of(signal);
        if ((bit & ~faults()) == 0) {
            return EINVAL;
        }
        const guard section(lock_);
        if (::sigaction(signal, nullptr, &other) != 0) {
            return errno;
        }
        if (!is_mine(other)) {
            if (!is_plain(other)) {
                return EBUSY;
            }
            before_[signal - 1] = other;
        }
        // Order: relaxed; the call of the system that installs the handler comes after it.
        installed_.fetch_or(bit, std::memory_order_relaxed);
        struct sigaction mine{};
        mine.sa_handler = &on_signal;
        mine.sa_flags = SA_RESTART | SA_ONSTACK;
        if (::sigaction(signal, &mine, nullptr) != 0) {
            return errno;
        }
        set.mask |= bit;
        io_.wake(); // to unblock the signal
        return 0;
    }

    // Removes the set. If no other set has its signals, restores their previous actions.
    // Blocks: until the thread of the monitor has done so.
    void leave(monitored_signals& set) noexcept {
        if (is_inherited()) {
            return;
        }
        {
            const guard section(lock_);
            set.is_leaving = true;
            if (::pthread_equal(thread_, ::pthread_self()) != 0) { // in a waker
                return release();
            }
        }
        io_.wake();
        set.has_left.wait();
    }

private:
    process_monitor() : attached_(io_), process_(::getpid()) {
        // Order: acquire [process_monitor.current]; in a child of fork(), the parent's monitor.
        if (const auto* const parents = current.load(std::memory_order_acquire)) {
            std::memcpy(before_, parents->before_, sizeof before_);
        }
        const auto body = [](void* self) noexcept { static_cast<process_monitor*>(self)->run(); };
        if (const std::error_code error = os_thread::start_detached(body, this)) {
            BIDE_THROW(std::system_error(error, "bide: the thread for signals and children"));
        }
        // Order: release [process_monitor.current]; a handler sees the finished monitor.
        current.store(this, std::memory_order_release);
    }

    // The signals of errors of a thread. Their handlers must not return.
    static signal_mask faults() noexcept {
        return mask_of(SIGSEGV) | mask_of(SIGBUS) | mask_of(SIGFPE) | mask_of(SIGILL);
    }

    static void on_signal(int signal) noexcept {
        // Order: acquire [process_monitor.current]; sees the finished monitor.
        process_monitor& to = *current.load(std::memory_order_acquire);
        // Order: relaxed; see add().
        const signal_mask installed = to.installed_.load(std::memory_order_relaxed);
        if (to.is_inherited() || (installed & mask_of(signal)) == 0) {
            // The last set has just left, or the handler is that of a parent, which must not get
            // the signal. The previous action follows when this handler has returned.
            ::sigaction(signal, &to.before_[signal - 1], nullptr);
            ::raise(signal);
            return;
        }
        // Order: relaxed; wake() publishes it.
        to.arrived_.fetch_or(mask_of(signal), std::memory_order_relaxed);
        to.io_.wake();
    }

    static bool is_plain(const struct sigaction& it) noexcept {
        return (it.sa_flags & SA_SIGINFO) == 0 &&
               (it.sa_handler == SIG_DFL || it.sa_handler == SIG_IGN);
    }
    static bool is_mine(const struct sigaction& it) noexcept {
        return (it.sa_flags & SA_SIGINFO) == 0 && it.sa_handler == &on_signal;
    }

    [[noreturn]] void run() noexcept {
        os_thread::name_this("bide", "-s", 0);
        {
            const guard section(lock_);
            thread_ = ::pthread_self();
        }
        for (;;) {
            // Coroutines without an executor do not resume on this thread.
            const wake_scope<platform> away(&service_executor<platform>);
            io_.wait(deadline::never());
            const wakers_later<platform> later; // wakers are code of the user: not under the lock
            const guard section(lock_);
            // Order: relaxed; wait() sees what came before wake().
            const signal_mask arrived = arrived_.exchange(0, std::memory_order_relaxed);
            for (monitored_signals* each = first_; each != nullptr; each = each->next) {
                each->arrived.deliver(arrived & each->mask);
            }
            release();
        }
    }

    // Takes the leaving sets out of the list, and gives up the signals that no set has any more.
    // Called with the lock, on the thread of the monitor.
    void release() noexcept {
        signal_mask wanted = 0;
        monitored_signals* left = nullptr;
        for (monitored_signals** at = &first_; *at != nullptr;) {
            monitored_signals& each = **at;
            if (each.is_leaving) {
                *at = each.next;
                each.next = std::exchange(left, &each);
            } else {
                wanted |= each.mask;
                at = &each.next;
            }
        }
        // Order: relaxed; see add().
        const signal_mask gone = installed_.fetch_and(wanted, std::memory_order_relaxed) & ~wanted;
        sigset_t blocked;
        ::sigfillset(&blocked);
        for (signal_mask rest = wanted; rest != 0; rest &= rest - 1) {
            ::sigdelset(&blocked, std::countr_zero(rest) + 1);
        }
        ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
        for (signal_mask rest = gone; rest != 0; rest &= rest - 1) {
            const int at = std::countr_zero(rest);
            struct sigaction now{};
            if (::sigaction(at + 1, nullptr, &now) == 0 && is_mine(now)) {
                ::sigaction(at + 1, &before_[at], nullptr);
            }
        }
        while (left != nullptr) {
            std::exchange(left, left->next)->has_left.arrive(1); // the set may be gone
        }
    }

    epoll_driver io_;
    const driver::attachment attached_;
    const ::pid_t process_;
    platform::atomic<signal_mask> arrived_{0};
    // The signals of all sets, whose handler is on_signal(). Changed under the lock.
    platform::atomic<signal_mask> installed_{0};
    platform::atomic<std::uint32_t> lock_{0};
    // Under the lock:
    pthread_t thread_{};
    monitored_signals* first_ = nullptr;
    struct sigaction before_[64] = {}; // the previous actions, which a handler may restore

    inline static constinit platform::atomic<process_monitor*> current{nullptr};
};

}}} // namespace bide::BIDE_ABI::detail

#endif

#endif
