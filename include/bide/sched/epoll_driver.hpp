// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_EPOLL_DRIVER_HPP
#define BIDE_SCHED_EPOLL_DRIVER_HPP

// Lets coroutines wait for files, by Linux's epoll(7), and an eventfd(2) for the wake
// (detail/epoll_set.hpp). Empty on other systems.
//
// Each file that was waited for has an entry, found by its descriptor: a lock, a queue for each
// direction, and what the kernel was asked for.
//
//   armed        the events that the kernel looks for on behalf of the waiters; 0 if none waits
//   generation   the number of requests so far; each event carries that of its request
//   registered   the kernel had the file in its set at the last request
//   forgotten    how often forget() or a detachment has ended all waits. A wait has the number of its
//                begin: if that differs, the descriptor may be another file's, and the wait is closed
//
// The driver requests one event (EPOLLONESHOT) when a waiter is queued for an event that is not
// armed. If waiters are left in the queues after an event, it requests another one. A request makes
// the kernel check the file again, so no event is lost between an event and the next request. An
// event that answers an older request is dropped. While no waiter is queued, the driver assumes
// nothing about the descriptor: the file may have been closed, and another file may have the same
// descriptor. In that case the next request fails with ENOENT, and the driver adds the file. A
// cancelled wait leaves at most one event for which there is no waiter.

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
namespace detail {

struct socket_access; // sched/io_socket.hpp

} // namespace detail

/// A driver for files, sockets and pipes.
template <class Platform> class basic_epoll_driver final : public driver {
    using node = basic_waiter<Platform>;

public:
    /// Makes the epoll set and the eventfd.
    /// Throws: std::system_error if the system has no more descriptors or memory.
    basic_epoll_driver() {}
    /// Closes both.
    /// Requires: no coroutine waits for a file, no wait() or wake() is going on, and there is no
    /// attachment.
    ~basic_epoll_driver() override;

    /// Waits until a read of the file would not block: there is data, the file is at its end, or it
    /// has an error or a hang-up. Does not wait if a read would not block now, as for every regular
    /// file. Several coroutines may wait for the same file: an event lets all of them through. One
    /// of them may have read the data before another reads, so the file should be non-blocking.
    /// Call forget() before the file is closed.
    /// Throws: std::system_error with the system's error if `fd` is no open file or if there is no
    /// memory to wait; with resource_deadlock_would_occur if it would wait and no scheduler runs
    /// the driver. closed_error after forget() or the scheduler's shutdown. Otherwise as other
    /// waits. as_result() returns the error as a std::error_code.
    basic_async_op<io_done, Platform> async_wait_readable(int fd) noexcept {
        return async_wait(fd, readable);
    }

    /// Waits until a write to the file would not block; otherwise as async_wait_readable().
    basic_async_op<io_done, Platform> async_wait_writable(int fd) noexcept {
        return async_wait(fd, writable);
    }

    /// Ends all waits for the file with errc::closed. Must be called before the file is closed, if
    /// a coroutine may wait for it. A coroutine may wait for the descriptor again after that.
    void forget(int fd) noexcept;

    /// See driver. With Linux 5.11 or later the deadline is exact to the nanosecond, otherwise it
    /// is rounded up to a millisecond. Never returns early.
    unsigned wait(deadline until) noexcept override;

    /// See driver. Makes a system call only if a thread sleeps in wait().
    void wake() noexcept override { set_.wake(); }

private:
    friend struct detail::socket_access;

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
        std::uint32_t generation = 0;
        std::uint32_t armed = 0;
        bool registered = false;
        atomic<word> forgotten{0};         // written under the lock
        unsigned char first_direction = 0; // which direction is served first
        basic_waiter_queue<Platform> queues[2];

        std::uint32_t wanted() const noexcept {
            return (queues[readable].empty() ? 0 : events_of[readable]) |
                   (queues[writable].empty() ? 0 : events_of[writable]);
        }
    };

    // The operation that waits for a direction of a file (core/wait_ops.hpp).
    struct readiness : io_operation {
        basic_epoll_driver& of;
        entry* its; // nullptr: it fails with the error of its payload
        int fd;
        word way; // the direction, and the entry's `forgotten` shifted left

        // Order: relaxed; under the lock, or before any concurrent forget().
        static word way_of(direction d, const entry* e) noexcept {
            return d | (e == nullptr ? 0 : e->forgotten.load(std::memory_order_relaxed) << 1);
        }
        direction which() const noexcept { return static_cast<direction>(way & 1); }
        bool is_forgotten() const noexcept { return way != way_of(which(), its); }

        wait_status try_now(io_payload& mine) const noexcept;
        wait_status enqueue(node& w, io_payload& mine) const noexcept;
        bool cancel(node& w, wait_status why) const noexcept;
    };

    basic_async_op<io_done, Platform> async_wait(int fd, direction which) noexcept {
        io_payload payload;
        entry* const e = entry_for(fd, payload.error);
        return {readiness{{}, *this, e, fd, readiness::way_of(which, e)}, payload};
    }

    void detached() noexcept override;
    entry* entry_for(int fd, int& error) noexcept;
    int arm(int fd, entry& e, std::uint32_t wanted) noexcept;
    unsigned hand_over() noexcept;
    unsigned serve(const epoll_event& told, unsigned most, wake_list& ready,
                   wake_list& gone) noexcept;
    static unsigned take(basic_waiter_queue<Platform>& from, unsigned most, wake_list& to) noexcept;

    static bool has_passed(deadline until) noexcept {
        const std::int64_t end = until.steady_ns(); // before now(): its clock may be another one
        return !until.is_never() && Platform::now() >= end && !until.is_early();
    }

    detail::epoll_set<Platform> set_;
    detail::growing_table<entry, Platform> entries_;
    atomic<word> made_{0}; // counts entries and ends of attachments

    // Only the thread in wait() uses these fields. The events from next_ on are still to be handed
    // over.
    unsigned next_ = 0;
    unsigned count_ = 0;
    epoll_event events_[max_completions];
};

/// The driver of a program.
using epoll_driver = basic_epoll_driver<>;

// ---- Destruction

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

// ---- Waiters

// Returns the entry of `fd`. Makes no entry for a number that is no open file: returns nullptr and
// sets `error`.
template <class Platform>
auto basic_epoll_driver<Platform>::entry_for(int fd, int& error) noexcept -> entry* {
    entry* e = fd < 0 ? nullptr : entries_.find(static_cast<std::uint32_t>(fd));
    if (e == nullptr) {
        if (fd < 0 || ::fcntl(fd, F_GETFD) < 0) {
            error = EBADF;
        } else if (e = entries_.make(static_cast<std::uint32_t>(fd)); e == nullptr) {
            error = ENOMEM;
        } else {
            // Order: acq_rel [driver.detach]; detached() finds the entry, or the waits of the entry
            // find that detached() came first.
            made_.fetch_add(1, std::memory_order_acq_rel);
        }
    }
    return e;
}

template <class Platform>
wait_status basic_epoll_driver<Platform>::readiness::try_now(io_payload& mine) const noexcept {
    if (its == nullptr) {
        return wait_status::granted; // with an error
    }
    pollfd file{fd, polled_of[which()], 0};
    if (::poll(&file, 1, 0) <= 0) {
        return wait_status::waiting;
    }
    mine.error = (file.revents & POLLNVAL) != 0 ? EBADF : 0;
    return wait_status::granted;
}

template <class Platform>
wait_status basic_epoll_driver<Platform>::readiness::enqueue(node& w,
                                                             io_payload& mine) const noexcept {
    entry& e = *its;
    lock::acquire(e.locked);
    wait_status what = w.forbidden();
    const bool attached = of.is_attached();
    const bool gone = is_forgotten();
    const auto mask = events_of[which()];
    if (what == wait_status::waiting && (gone || !attached || (e.armed & mask) == 0)) {
        const int error = gone ? EBADF : attached ? of.arm(fd, e, e.wanted() | mask) : EDEADLK;
        if (error != 0) {
            if (!w.claim()) { // another wait of its select has won
                lock::release(e.locked);
                return wait_status::waiting;
            }
            w.commit();
            mine.error = error == EPERM ? 0 : error; // EPERM: the file is always ready
            what = gone ? wait_status::closed : wait_status::granted;
        }
    }
    if (what == wait_status::waiting) {
        e.queues[which()].push(w);
    } else {
        w.settle(what);
    }
    lock::release(e.locked);
    return what;
}

template <class Platform>
bool basic_epoll_driver<Platform>::readiness::cancel(node& w, wait_status why) const noexcept {
    entry& e = *its;
    lock::acquire(e.locked);
    const bool waits_still = e.queues[which()].withdraw(w, why);
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
    e->forgotten.fetch_add(1, std::memory_order_relaxed); // Order: relaxed; see way_of().
    if (e->registered) {
        set_.remove(fd);
        e->registered = false;
    }
    lock::release(e->locked);
    gone.publish(wait_status::closed);
}

template <class Platform> void basic_epoll_driver<Platform>::detached() noexcept {
    // Order: acq_rel [driver.detach]; see entry_for().
    made_.fetch_add(1, std::memory_order_acq_rel);
    wake_list gone;
    entries_.each([&gone](entry& e) noexcept {
        lock::acquire(e.locked);
        for (auto& queue : e.queues) {
            queue.pop_all(gone);
        }
        e.armed = 0;
        e.forgotten.fetch_add(1, std::memory_order_relaxed); // Order: relaxed; see way_of().
        lock::release(e.locked);
    });
    gone.publish(wait_status::closed);
}

// Under the entry's lock: requests one event of `wanted`. Returns the system's error.
template <class Platform>
int basic_epoll_driver<Platform>::arm(int fd, entry& e, std::uint32_t wanted) noexcept {
    const int error =
        set_.request(fd, e.registered, wanted,
                     std::uint64_t{e.generation + 1} << 32 | static_cast<std::uint32_t>(fd));
    if (error != 0) {
        return error;
    }
    e.armed = wanted;
    ++e.generation;
    return 0;
}

// ---- The thread in wait()

template <class Platform> unsigned basic_epoll_driver<Platform>::wait(deadline until) noexcept {
    for (;;) {
        bool woken = false;
        if (next_ == count_) {
            next_ = 0;
            woken = set_.fetch(until, events_, max_completions, count_);
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

// Removes the waiters that the event lets through, at most `most`. Returns their number.
template <class Platform>
unsigned basic_epoll_driver<Platform>::serve(const epoll_event& told, unsigned most,
                                             wake_list& ready, wake_list& gone) noexcept {
    const auto fd = static_cast<std::uint32_t>(told.data.u64);
    entry& e = *entries_.find(fd);
    unsigned taken = 0;
    lock::acquire(e.locked);
    if (told.data.u64 >> 32 == e.generation) {
        e.armed = 0;
        e.first_direction ^= 1; // so that neither direction starves the other
        for (const unsigned way : {unsigned{e.first_direction}, e.first_direction ^ 1u}) {
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
