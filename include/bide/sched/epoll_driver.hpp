#ifndef BIDE_SCHED_EPOLL_DRIVER_HPP
#define BIDE_SCHED_EPOLL_DRIVER_HPP

// Coroutines that wait for files: Linux's epoll(7), with an eventfd(2) for the wake. Empty elsewhere.
//
// Each file that was waited for has an entry, found by its number: a lock, a queue for each
// direction, and what the kernel was asked to look for.
//
//   armed      what the kernel looks for in the name of those who wait; nothing where nobody does
//   arming     counts the askings; each event carries the number of the one it answers
//   known      the kernel had the file in its set when last asked
//
// The kernel is asked for one event (EPOLLONESHOT) when somebody comes to wait for what it does not
// look for yet, and again when an event leaves somebody waiting. Asking looks at the file afresh, so
// nothing is lost between an event and the next asking; an event that answers an older asking is
// dropped. While nobody waits, nothing is believed about the number: a file may have been closed
// and another one got it, which the next asking finds out (ENOENT). A wait that was cancelled leaves
// at most one event that nobody takes.
//
// The wake is detail/epoll_set.hpp's.

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>
#include <bide/fwd.hpp>
#include <bide/sched/detail/epoll_set.hpp>
#include <bide/sched/detail/growing_table.hpp>
#include <bide/sched/driver.hpp>

#if defined(__linux__)

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_epoll_driver final : public driver {
    using node = basic_waiter<Platform>;

public:
    // Throws: std::system_error when the system has no more files or memory for it.
    basic_epoll_driver() {}
    // Requires: nothing waits for a file, no wait() or wake() is going on, no attachment is left.
    ~basic_epoll_driver() override;

    // Waits until the file can be read without waiting, is at its end, or has an error or a hang-up;
    // at once where that is so already, as it always is of regular files. Any number of coroutines
    // may wait for the same file: all that wait are let through. What one was let through for
    // another may have taken, so the file is best non-blocking.
    // Throws: std::system_error with the system's error where it is no file or there is no memory to
    // wait; with resource_deadlock_would_occur where it would wait and no scheduler runs the driver;
    // as other waits; closed_error after forget() or the scheduler's shutdown. as_result() gives the
    // error as a std::error_code.
    // A file that is waited for is closed after forget().
    basic_async_op<io_done, Platform> async_wait_readable(int fd) noexcept {
        return async_wait<readable>(fd);
    }

    // The same for writing.
    basic_async_op<io_done, Platform> async_wait_writable(int fd) noexcept {
        return async_wait<writable>(fd);
    }

    // Ends all waits for the file with errc::closed; to be called before the file is closed, if
    // somebody may wait for it. Who comes after waits again.
    void forget(int fd) noexcept;

    // To the nanosecond where the kernel can (5.11), else to the next millisecond, never early.
    unsigned wait(deadline until) noexcept override;

    // No system call unless somebody sleeps in wait().
    void wake() noexcept override { set_.wake(); }

private:
    using word = std::uint32_t;
    using lock = lock_bits<Platform, word>;
    using wake_list = basic_wake_list<Platform>;
    template <class T> using atomic = typename Platform::template atomic<T>;

    enum direction : unsigned { readable, writable };

    static constexpr std::uint32_t events_of[] = {EPOLLIN, EPOLLOUT};
    static constexpr short polled_of[] = {POLLIN, POLLOUT};
    static constexpr std::uint32_t always = EPOLLERR | EPOLLHUP;

    struct entry {
        atomic<word> locked{0};
        // Under the lock:
        std::uint32_t arming = 0;
        std::uint32_t armed = 0;
        bool known = false;
        unsigned char turn = 0; // the direction that is served first
        basic_waiter_queue<Platform> queues[2];

        std::uint32_t wanted() const noexcept {
            return (queues[readable].empty() ? 0 : events_of[readable]) |
                   (queues[writable].empty() ? 0 : events_of[writable]);
        }
    };

    static entry& entry_of(const wait_target& t) noexcept { return *static_cast<entry*>(t.queue); }
    static int fd_of(const wait_target& t) noexcept { return static_cast<int>(t.amount); }
    static int& error_of(const wait_target& t) noexcept {
        return static_cast<io_payload*>(t.payload)->error;
    }

    template <direction D> basic_async_op<io_done, Platform> async_wait(int fd) noexcept {
        static constexpr wait_ops<io_result, Platform> ops{&try_now<D>, &enqueue<D>, &cancel<D>,
                                                           &collect_io};
        io_payload payload;
        entry* const e = entry_for(fd, payload.error);
        return {ops, wait_target{e, this, fd}, payload};
    }
    template <auto D> static wait_status try_now(const wait_target& t) noexcept;
    template <auto D> static bool enqueue(const wait_target& t, node& w) noexcept;
    template <auto D> static bool cancel(const wait_target& t, node& w, wait_status why) noexcept;

    void detached() noexcept override;
    entry* entry_for(int fd, int& error) noexcept;
    int arm(int fd, entry& e, std::uint32_t wanted) noexcept;
    unsigned hand_over() noexcept;
    unsigned serve(const epoll_event& told, unsigned most, wake_list& ready,
                   wake_list& gone) noexcept;
    static unsigned take(basic_waiter_queue<Platform>& from, unsigned most, wake_list& to) noexcept;

    static bool has_passed(deadline until) noexcept {
        const std::int64_t end = until.steady_ns(); // on another clock, not before now: so first
        return !until.is_never() && Platform::now() >= end && !until.is_early();
    }

    detail::epoll_set<Platform> set_;
    detail::growing_table<entry, Platform> entries_;
    atomic<word> made_{0}; // entries, and once for each end of an attachment

    // Of the thread in wait(): events of which those from next_ on are to be handed over yet.
    unsigned next_ = 0;
    unsigned count_ = 0;
    epoll_event events_[max_completions];
};

using epoll_driver = basic_epoll_driver<>;

// ---- The life of the driver

template <class Platform> basic_epoll_driver<Platform>::~basic_epoll_driver() {
    unsigned long long waiting = 0;
    entries_.each([&waiting](entry& e) noexcept {
        lock::acquire(e.locked);
        for (auto& queue : e.queues) {
            for (; !queue.empty(); ++waiting) {
                queue.pop();
            }
        }
    });
    if (waiting != 0) {
        detail::fatal_destroyed("epoll_driver", this, waiting);
    }
}

// ---- Those who wait for files

// nullptr: `error` says why. Of a number that is no file's, no entry is made.
template <class Platform>
auto basic_epoll_driver<Platform>::entry_for(int fd, int& error) noexcept -> entry* {
    entry* e = fd < 0 ? nullptr : entries_.find(static_cast<std::uint32_t>(fd));
    if (e == nullptr) {
        if (fd < 0 || ::fcntl(fd, F_GETFD) < 0) {
            error = EBADF;
        } else if (e = entries_.make(static_cast<std::uint32_t>(fd)); e == nullptr) {
            error = ENOMEM;
        } else {
            // Order: acq_rel [D4]; detached() finds the entry, or its waits find that it came first.
            made_.fetch_add(1, std::memory_order_acq_rel);
        }
    }
    return e;
}

template <class Platform>
template <auto D>
wait_status basic_epoll_driver<Platform>::try_now(const wait_target& t) noexcept {
    if (t.queue == nullptr) {
        return wait_status::granted; // with an error
    }
    pollfd file{fd_of(t), polled_of[D], 0};
    if (::poll(&file, 1, 0) <= 0) {
        return wait_status::waiting;
    }
    error_of(t) = (file.revents & POLLNVAL) != 0 ? EBADF : 0;
    return wait_status::granted;
}

template <class Platform>
template <auto D>
bool basic_epoll_driver<Platform>::enqueue(const wait_target& t, node& w) noexcept {
    entry& e = entry_of(t);
    lock::acquire(e.locked);
    wait_status what = w.forbidden();
    auto& self = *static_cast<basic_epoll_driver*>(t.owner);
    const bool attached = self.is_attached();
    if (what == wait_status::waiting && (!attached || (e.armed & events_of[D]) == 0)) {
        const int error = attached ? self.arm(fd_of(t), e, e.wanted() | events_of[D]) : EDEADLK;
        if (error != 0) {
            if (!w.claim()) { // its choice fell on another wait, so it need not even queue
                lock::release(e.locked);
                return false;
            }
            w.commit();
            error_of(t) = error == EPERM ? 0 : error; // the kernel refuses what is always ready
            what = wait_status::granted;
        }
    }
    if (what == wait_status::waiting) {
        e.queues[D].push(w);
    } else {
        w.settle(what);
    }
    lock::release(e.locked);
    return what != wait_status::waiting;
}

template <class Platform>
template <auto D>
bool basic_epoll_driver<Platform>::cancel(const wait_target& t, node& w, wait_status why) noexcept {
    entry& e = entry_of(t);
    lock::acquire(e.locked);
    const bool waits_still = e.queues[D].withdraw(w, why);
    if (e.wanted() == 0) {
        e.armed = 0;
    }
    lock::release(e.locked);
    return waits_still;
}

template <class Platform> void basic_epoll_driver<Platform>::forget(int fd) noexcept {
    entry* const e = fd < 0 ? nullptr : entries_.find(static_cast<std::uint32_t>(fd));
    if (e == nullptr) {
        return;
    }
    wake_list gone;
    lock::acquire(e->locked);
    for (auto& queue : e->queues) {
        queue.pop_all(gone);
    }
    e->armed = 0;
    if (e->known) {
        set_.remove(fd);
        e->known = false;
    }
    lock::release(e->locked);
    gone.publish(wait_status::closed);
}

template <class Platform> void basic_epoll_driver<Platform>::detached() noexcept {
    // Order: acq_rel [D4]; see entry_for().
    made_.fetch_add(1, std::memory_order_acq_rel);
    wake_list gone;
    entries_.each([&gone](entry& e) noexcept {
        lock::acquire(e.locked);
        for (auto& queue : e.queues) {
            queue.pop_all(gone);
        }
        e.armed = 0;
        lock::release(e.locked);
    });
    gone.publish(wait_status::closed);
}

// Under the entry's lock: asks for one event of those. Returns the system's error.
template <class Platform>
int basic_epoll_driver<Platform>::arm(int fd, entry& e, std::uint32_t wanted) noexcept {
    const int error = set_.ask(fd, e.known, wanted,
                               std::uint64_t{e.arming + 1} << 32 | static_cast<std::uint32_t>(fd));
    if (error != 0) {
        return error;
    }
    e.armed = wanted;
    ++e.arming;
    return 0;
}

// ---- The thread in wait()

template <class Platform> unsigned basic_epoll_driver<Platform>::wait(deadline until) noexcept {
    for (;;) {
        bool woken = false;
        if (next_ == count_) {
            next_ = 0;
            woken = set_.look(until, events_, max_completions, count_);
        }
        const unsigned handed = hand_over();
        if (handed != 0 || woken || has_passed(until)) {
            return handed;
        }
    }
}

template <class Platform> unsigned basic_epoll_driver<Platform>::hand_over() noexcept {
    wake_list ready;
    wake_list gone;
    unsigned handed = 0;
    while (next_ != count_ && handed < max_completions) {
        const epoll_event told = events_[next_++];
        if (told.data.u64 != detail::epoll_set<Platform>::wake_mark) {
            handed += serve(told, max_completions - handed, ready, gone);
        }
    }
    wake_list::publish(ready, wait_status::granted, gone, wait_status::closed);
    return handed;
}

// Takes out whom the event lets through, `most` of them. Says how many.
template <class Platform>
unsigned basic_epoll_driver<Platform>::serve(const epoll_event& told, unsigned most,
                                             wake_list& ready, wake_list& gone) noexcept {
    const auto fd = static_cast<std::uint32_t>(told.data.u64);
    entry& e = *entries_.find(fd);
    unsigned taken = 0;
    lock::acquire(e.locked);
    if (told.data.u64 >> 32 == e.arming) {
        e.armed = 0;
        e.turn ^= 1; // neither keeps the other out
        for (const unsigned way : {unsigned{e.turn}, e.turn ^ 1u}) {
            if ((told.events & (events_of[way] | always)) != 0) {
                taken += take(e.queues[way], most - taken, ready);
            }
        }
        const std::uint32_t wanted = e.wanted();
        if (wanted != 0 && arm(static_cast<int>(fd), e, wanted) != 0) { // it was closed
            for (auto& queue : e.queues) {
                queue.pop_all(gone);
            }
        }
    }
    lock::release(e.locked);
    return taken;
}

template <class Platform>
unsigned basic_epoll_driver<Platform>::take(basic_waiter_queue<Platform>& from, unsigned most,
                                            wake_list& to) noexcept {
    unsigned taken = 0;
    while (taken < most && !from.empty()) {
        if (node& w = from.pop(); w.claim()) {
            w.commit();
            to.push(w);
            ++taken;
        }
    }
    return taken;
}

} // namespace bide::inline BIDE_ABI

#endif

#endif
