// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_EPOLL_DRIVER_HPP
#define BIDE_IO_EPOLL_DRIVER_HPP

// Lets coroutines wait for files by Linux's epoll(7). This header is empty on other systems.
//
// Each file that was waited for has an entry. The descriptor is the key of the entry. An entry has
// a lock, a queue for each direction, and the state of the request to the kernel:
//
//   armed        the events that the kernel will report when they occur
//   edges        the events of the last request, and EPOLLET; 0 if it was not edge-triggered
//   generation   the number of requests so far, in 31 bits; each event carries the number of its
//                request
//   registered   true if the last request has put the file into the epoll set
//   vain         the reads in a row that were made or put off while their event was armed
//   after_short  what a short read tells of the next read
//   forgotten    how often forget() or a detachment has ended all waits. A wait stores this number
//                when it begins. If the number differs later, the descriptor may belong to another
//                file, and the wait ends with errc::closed
//
// The driver makes a request when a waiter is queued for an event that is not armed. If waiters for
// an event are left in the queues after that event, the driver makes another request. A request
// makes the kernel check the file again, so no readiness is missed between an event and the next
// request. An event that answers an older request is dropped.
//
// async_wait_readable() and async_wait_writable() request one event. While no waiter is queued, the
// driver assumes nothing about the descriptor, because another file may have got it after a close.
// A cancelled wait leaves at most one event for which there is no waiter.
//
// An io_socket owns its file, and calls forget() before it closes the file. So its request is
// edge-triggered, and stays in place. The first waiter of a direction adds the event of that
// direction. Until then, the kernel does not report that event, and wakes no thread for it.
//
//   An operation makes its system call, such as a recv(), under the lock of the entry. If the call
//   would block, the operation arms its event. If the file becomes ready later, the kernel reports
//   an event after the call. Then serve() takes the lock and disarms the event, whether there is a
//   waiter or not. A waiter is queued under the lock too. If serve() was first, the event is not
//   armed any more, and the waiter makes a request.
//
//   A read of TCP that returns fewer bytes than asked for has emptied the socket, as a call that
//   would block has. So it arms its event, too. Exceptions: the end of the stream, an error, or
//   bytes behind an urgent one may follow. The kernel has reported these by an event before the
//   read, or reports them after it. After such an event, a short read arms nothing.
//
//   A read whose event is armed would block, unless its event is about to be served. Then it
//   depends on the peers whether the read succeeds. The entry counts such reads that were made in
//   vain, one after the other. After `most_vain` of them, a read waits without a call. One read in
//   `most_put_off` makes its call, to find out whether the peers are faster now.
//
// An eventfd(2) ends the wait of the one thread that fetches events. One word tells wake() whether
// to write to the eventfd:
//
//   awake      no thread sleeps, or the fetching thread is about to return
//   waiting    the fetching thread sleeps or is about to
//   woken      wake() was called, and has not ended a fetch() yet
//
// The thread that changes `waiting` to `woken` writes to the eventfd. The eventfd only ends system
// calls, so it is edge-triggered and never read. If an edge comes late, a later system call ends
// early, which does no harm.

#include <bide/core/config.hpp>

#if defined(__linux__)

#include <bide/core/async_op.hpp>
#include <bide/io/detail/event_fd.hpp>
#include <bide/io/detail/growing_table.hpp>
#include <bide/io/driver.hpp>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <initializer_list>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

template <class Driver> struct socket_access; // io_socket.hpp

// ---- The set of epoll

template <class Platform> class epoll_set {
public:
    // Makes the epoll set and the eventfd. Throws: std::system_error.
    epoll_set() : set_(::epoll_create1(EPOLL_CLOEXEC)) {
        if (watch(wake_event_.fd(), wake_key, EPOLLIN | EPOLLET) != 0) {
            owned_fd::fail();
        }
    }

    static constexpr const char* name = "epoll_driver";

    // The events that the kernel has reported for the request with this key.
    struct event {
        std::uint64_t key;
        std::uint32_t events;
    };

    // Requests `events` from the kernel. Each event carries `key`. The request replaces an earlier
    // request for the file. `registered` tells whether the caller expects the file to be in the
    // epoll set. If that is wrong, corrects `registered`. Returns the system's error, or 0.
    int request(int fd, bool& registered, std::uint32_t events, std::uint64_t key) noexcept {
        epoll_event requested{};
        requested.events = events;
        requested.data.u64 = key;
        for (bool again = true;; again = false) {
            if (::epoll_ctl(set_.fd(), registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd,
                            &requested) == 0) {
                registered = true;
                return 0;
            }
            const int error = errno;
            if (!again || error != (registered ? ENOENT : EEXIST)) {
                return error;
            }
            registered = !registered;
        }
    }

    void remove(int fd, bool& registered) noexcept {
        if (!std::exchange(registered, false)) {
            return;
        }
        const int saved = errno;
        epoll_event none{};
        ::epoll_ctl(set_.fd(), EPOLL_CTL_DEL, fd, &none);
        errno = saved; // the call fails if the file was closed
    }

    // Fetches events. If there are none, sleeps until there is one, wake() is called, or the
    // deadline has passed. fetch() may also return earlier. Returns true if wake() was called after
    // the last fetch(). One thread at a time calls fetch(), has_next() and next().
    // Requires: !has_next().
    bool fetch(deadline until) noexcept {
        if (!until.is_poll()) {
            yield_before_sleep();
            sleeper seen = sleeper::awake;
            // Order: relaxed; the CAS publishes nothing. Failure: wake() was called.
            if (!sleeper_.compare_exchange_strong(seen, sleeper::waiting, std::memory_order_relaxed,
                                                  std::memory_order_relaxed)) {
                until = deadline::poll();
            }
        }
        const int n = wait_for_events(until);
        if (n < 0 && errno != EINTR) {
            fatal("epoll_driver", this, "cannot wait: its files were closed");
        }
        next_ = 0;
        count_ = n < 0 ? 0 : static_cast<unsigned>(n);
        // Order: acquire [epoll.wake]; sees what was done before wake().
        return sleeper_.exchange(sleeper::awake, std::memory_order_acquire) == sleeper::woken;
    }

    // Returns whether events were fetched and not taken.
    bool has_next() const noexcept { return next_ != count_; }

    // Takes an event. Returns false if there is none.
    bool next(event& found) noexcept {
        while (next_ != count_) {
            const epoll_event& one = events_[next_++];
            if (one.data.u64 != wake_key) {
                found = {one.data.u64, one.events};
                return true;
            }
        }
        return false;
    }

    // Ends the present fetch(). If there is none, ends the next one at once. Any thread may call
    // it.
    void wake() noexcept {
        // Order: release [epoll.wake]; the woken thread sees what was done before wake().
        if (sleeper_.exchange(sleeper::woken, std::memory_order_release) == sleeper::waiting) {
            wake_event_.set();
        }
    }

protected:
    // The key of the events of the eventfd.
    static constexpr std::uint64_t wake_key = ~std::uint64_t{0};

    // Adds a file whose events carry `key`. Returns 0 or the system's error number.
    int watch(int fd, std::uint64_t key, std::uint32_t events = EPOLLIN) noexcept {
        epoll_event wanted{};
        wanted.events = events;
        wanted.data.u64 = key;
        return ::epoll_ctl(set_.fd(), EPOLL_CTL_ADD, fd, &wanted) == 0 ? 0 : errno;
    }

private:
    enum class sleeper : std::uint32_t { awake, waiting, woken };

    static constexpr unsigned most = driver::max_completions;
    static constexpr std::int64_t long_yield_ns = 1'000'000;
    static constexpr unsigned most_skipped = 4'096;

    // Lets other threads run. If a peer runs on the same processor, it may send now, and then
    // neither thread has to be woken. If a yield took long, a thread that computes has used up its
    // time slice. Then skips the next `most_skipped` yields.
    void yield_before_sleep() noexcept {
        if (skips_ != 0) {
            --skips_;
            return;
        }
        const std::int64_t begin = Platform::now();
        Platform::yield();
        skips_ = Platform::now() - begin > long_yield_ns ? most_skipped : 0;
    }

    // Makes the system call. On a system without epoll_pwait2() (Linux 5.11, glibc 2.35), the time
    // is rounded up to a millisecond.
    int wait_for_events(deadline until) noexcept {
        const int room = static_cast<int>(most);
        if (until.is_poll() || until.is_never()) {
            return ::epoll_wait(set_.fd(), events_, room, until.is_poll() ? 0 : -1);
        }
        const std::int64_t left =
            std::max<std::int64_t>(until.next_check_ns() - Platform::now(), 0);
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 35)
        if (has_pwait2_) {
            timespec precise{};
            precise.tv_sec = integer_cast<std::time_t>(left / 1'000'000'000);
            precise.tv_nsec = integer_cast<long>(left % 1'000'000'000);
            const int n = ::epoll_pwait2(set_.fd(), events_, room, &precise, nullptr);
            if (n >= 0 || errno == EINTR) {
                return n;
            }
            has_pwait2_ = false; // an older kernel or an emulator
        }
#endif
#endif
        const std::int64_t ms = left / 1'000'000 + (left % 1'000'000 != 0 ? 1 : 0);
        return ::epoll_wait(set_.fd(), events_, room,
                            static_cast<int>(std::min<std::int64_t>(ms, INT_MAX)));
    }

    const owned_fd set_;
    event_fd wake_event_;
    typename Platform::template atomic<sleeper> sleeper_{sleeper::awake};
    // Only the fetching thread uses these fields.
    bool has_pwait2_ = true;
    unsigned skips_ = 0; // the yields that are left to skip
    unsigned next_ = 0;
    unsigned count_ = 0;
    epoll_event events_[most];
};

} // namespace detail

/// Waits until files are ready. It is the common base of epoll_driver and uring_driver. `Set` makes
/// the requests to the kernel. `Base` is driver, or its replacement in a model.
template <class Platform, class Set, class Base = driver>
class basic_readiness_driver : public Base {
    using node = basic_waiter<Platform>;

public:
    /// Makes the epoll set and the eventfd. Passes the arguments to `Set`.
    /// Throws: std::system_error if the system has no more descriptors or memory.
    template <class... Args> explicit basic_readiness_driver(Args... args) : set_(args...) {}

    /// Closes the epoll set and the eventfd.
    /// Requires: no coroutine waits for a file, no thread is in wait() or wake(), no attachment
    /// exists.
    ~basic_readiness_driver() override {
        unsigned long long waiting = 0;
        entries_.each([&waiting](entry& one) noexcept {
            const guard section(one.locked);
            for (auto& waiters : one.queues) {
                for (; !waiters.empty(); ++waiting) {
                    waiters.pop();
                }
            }
        });
        if (waiting != 0) {
            detail::fatal_destroyed(Set::name, this, waiting);
        }
    }

    /// Waits until a read of the file would not block: there is data, the file is at its end, or it
    /// has an error or a hang-up. If a read would not block now, does not wait. A read of a regular
    /// file never blocks in this sense. Several coroutines may wait for the same file; an event
    /// resumes all of them. One of them may read the data before another one does, so the file
    /// should be non-blocking. Call forget() before the file is closed.
    /// Throws: std::system_error with the system's error if `fd` is not an open file or if there is
    /// no memory for the wait. std::system_error with errc::no_driver if the operation would wait
    /// and no scheduler or run_loop runs the driver. closed_error after forget() or the scheduler's
    /// shutdown. as_result(), with_timeout() and with_stop() return the error as a std::error_code.
    basic_async_op<io_done, Platform> async_wait_readable(int fd) noexcept {
        return async_wait(fd, readable);
    }

    /// Waits until a write to the file would not block. See async_wait_readable().
    basic_async_op<io_done, Platform> async_wait_writable(int fd) noexcept {
        return async_wait(fd, writable);
    }

    /// Ends all waits for the file with errc::closed. Call it before the file is closed, if a
    /// coroutine may wait for the file. Afterwards a coroutine may wait for the descriptor again.
    void forget(int fd) noexcept {
        entry* const e = fd < 0 ? nullptr : entries_.find(static_cast<std::uint32_t>(fd));
        if (e == nullptr) {
            return;
        }
        wake_list gone;
        {
            const guard section(e->locked);
            e->end_waits(gone);
            set_.remove(fd, e->registered);
        }
        gone.publish(wait_status::closed);
    }

    /// Waits as driver::wait() does. A signal does not end the wait. With Linux 5.11 and glibc 2.35 or
    /// later, the deadline is exact to the nanosecond. On older systems, it is rounded up to a
    /// millisecond.
    unsigned wait(deadline until) noexcept override {
        for (;;) {
            const bool woken = !set_.has_next() && set_.fetch(until);
            const unsigned handed = hand_over();
            if (handed != 0 || woken || has_passed(until)) {
                return handed;
            }
        }
    }

    /// Ends wait(), as driver::wake() does. Makes a system call only if a thread sleeps in wait().
    void wake() noexcept override { set_.wake(); }

protected:
    /// Ends all waits, because the driver is no longer attached to a scheduler.
    // each() visits every entry that was made before the end of the attachment. A wait whose entry
    // is made later finds that there is no attachment, and fails [growing_table.chunk].
    void detached() noexcept override {
        wake_list gone;
        entries_.each([&gone](entry& one) noexcept {
            const guard section(one.locked);
            one.end_waits(gone);
        });
        gone.publish(wait_status::closed);
    }

    Set set_; ///< Has the descriptors whose readiness is awaited.

private:
    template <class> friend struct detail::socket_access;

    using word = std::uint32_t;
    using event = typename Set::event;
    using guard = typename lock_bits<Platform, word>::guard;
    using wake_list = basic_wake_list<Platform>;
    template <class T> using atomic = typename Platform::template atomic<T>;
    template <class T> using awaitable = basic_async_op<T, Platform>;

    enum direction : unsigned { readable, writable };

    static constexpr std::uint32_t events_of[] = {EPOLLIN, EPOLLOUT};
    static constexpr short polled_of[] = {POLLIN, POLLOUT};
    static constexpr std::uint32_t always = EPOLLERR | EPOLLHUP;
    // After these events, a short read may leave something: the end of the stream, an error, or
    // bytes behind an urgent one.
    static constexpr std::uint32_t unusual = always | EPOLLRDHUP | EPOLLPRI;
    static constexpr std::uint32_t last_generation = 0x7fff'ffff;

    // Makes the key by which an event names its request. The highest bit is 0.
    static std::uint64_t key(int fd, std::uint32_t generation) noexcept {
        return std::uint64_t{generation} << 32 | static_cast<std::uint32_t>(fd);
    }

    // What a read of fewer bytes than asked for tells of the next read.
    enum class short_read : unsigned char { unknown, would_block, may_go_on };

    // If so many reads in a row were made while their event was armed, and would have blocked, the
    // next ones wait for the event. One in `most_put_off` makes its call.
    static constexpr unsigned char most_vain = Platform::model ? 0 : 8;
    static constexpr unsigned char most_put_off = Platform::model ? 2 : 16;

    struct entry {
        atomic<word> locked{0};
        // Under the lock:
        std::uint32_t generation = 0;
        std::uint32_t armed = 0;
        std::uint32_t edges = 0;
        atomic<word> forgotten{0};         // written under the lock
        bool registered = false;           // only `Set` changes it
        unsigned char first_direction = 0; // which direction is served first
        short_read after_short = short_read::unknown;
        unsigned char vain = 0; // reads in a row that were made in vain or were put off
        basic_waiter_queue<Platform> queues[2];

        std::uint32_t wanted() const noexcept {
            return (queues[readable].empty() ? 0 : events_of[readable]) |
                   (queues[writable].empty() ? 0 : events_of[writable]);
        }
        // Removes all waiters. Also ends the waits that have begun and are not queued yet.
        void end_waits(wake_list& gone) noexcept {
            for (auto& queue : queues) {
                queue.pop_all(gone);
            }
            armed = 0;
            edges = 0;
            after_short = short_read::unknown;
            vain = 0;
            forgotten.fetch_add(1, std::memory_order_relaxed); // Order: relaxed; see way_of().
        }
    };

    // The operation that waits until a file is readable or writable (core/wait_ops.hpp).
    struct readiness : io_operation {
        basic_readiness_driver& of;
        entry* its; // nullptr: the wait fails with the error of its payload
        int fd;
        word way; // the direction, and the entry's `forgotten` shifted left

        // Order: relaxed; read under the lock, or before any concurrent forget().
        static word way_of(direction d, const entry* e) noexcept {
            return d | (e == nullptr ? 0 : e->forgotten.load(std::memory_order_relaxed) << 1);
        }
        direction which() const noexcept { return static_cast<direction>(way & 1); }
        bool is_forgotten() const noexcept { return way != way_of(which(), its); }

        wait_status try_now(io_payload& mine) const noexcept {
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

        wait_status enqueue(node& w, io_payload& mine) const noexcept {
            return enqueue(w, mine, false, []() noexcept { return wait_status::waiting; });
        }
        // `owns` is true if the file stays the same until forget(). If the wait must not begin,
        // calls try_last(): the file may be ready, and its event not served yet.
        template <class Call>
        wait_status enqueue(node& w, io_payload& mine, bool owns, Call try_last) const noexcept {
            entry& e = *its;
            const guard section(e.locked);
            wait_status what = w.forbidden();
            const bool attached = of.is_attached();
            const bool gone = is_forgotten();
            if (what != wait_status::waiting && !gone) {
                const wait_status last = try_last();
                what = last != wait_status::waiting ? last : what;
            }
            const auto mask = events_of[which()];
            const bool is_armed = (e.armed & mask) != 0 && (e.edges != 0 || !owns);
            if (what == wait_status::waiting && (gone || !attached || !is_armed)) {
                const int error = gone       ? EBADF
                                  : attached ? of.arm(fd, e, e.wanted() | mask, owns)
                                             : io_payload::no_driver;
                if (error != 0) {
                    if (!w.claim()) { // another wait of its select has won
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
            return what;
        }

        bool cancel(node& w, wait_status why) const noexcept {
            entry& e = *its;
            const guard section(e.locked);
            const bool waits_still = e.queues[which()].withdraw(w, why);
            if (e.wanted() == 0) {
                e.armed = 0;
            }
            return waits_still;
        }

        // ---- Reads of an io_socket. These functions are called with the lock.

        // Returns true if the file reports an event before a read succeeds, or has reported one
        // that was not served yet.
        bool is_armed_edge() const noexcept {
            return (its->armed & its->edges & events_of[readable]) != 0;
        }
        // Returns true if the read makes no call, because the last ones were made in vain. Sets
        // `was_put_off` then, so that the same read is put off once.
        bool puts_off(bool& was_put_off) const noexcept {
            entry& e = *its;
            if (was_put_off || e.vain < most_vain || !is_armed_edge()) {
                return false;
            }
            was_put_off = ++e.vain < most_vain + most_put_off;
            return was_put_off;
        }
        // Called after the call of a read, with what is_armed_edge() was before.
        void note_read(bool was_armed, bool in_vain) const noexcept {
            if (was_armed) {
                const int count = in_vain ? (std::min)(its->vain + 1, int{most_vain}) : 0;
                its->vain = static_cast<unsigned char>(count);
            }
        }
        // Called after a read of fewer bytes than asked for. is_stream() returns true if the file
        // is a stream of TCP.
        template <class IsStream> void note_short_read(IsStream&& is_stream) const noexcept {
            entry& e = *its;
            if (e.edges != 0 && e.after_short == short_read::unknown) {
                e.after_short = is_stream() ? short_read::would_block : short_read::may_go_on;
            }
            if (e.after_short == short_read::would_block) {
                e.armed |= events_of[readable] & e.edges;
            }
        }

        // Called with the lock, after a call that would block. Returns `waiting`.
        wait_status would_block() const noexcept {
            its->armed |= events_of[which()] & its->edges;
            return wait_status::waiting;
        }
    };

    basic_async_op<io_done, Platform> async_wait(int fd, direction which) noexcept {
        io_payload payload;
        entry* const e = entry_for(fd, payload.error);
        return {readiness{{}, *this, e, fd, readiness::way_of(which, e)}, payload};
    }

    // Returns the entry of `fd`. Makes the entry if there is none. If `fd` is not an open file or
    // there is no memory, sets `error` and returns nullptr.
    entry* entry_for(int fd, int& error) noexcept {
        entry* e = fd < 0 ? nullptr : entries_.find(static_cast<std::uint32_t>(fd));
        if (e == nullptr) {
            if (fd < 0 || ::fcntl(fd, F_GETFD) < 0) {
                error = EBADF;
            } else if (e = entries_.make(static_cast<std::uint32_t>(fd)); e == nullptr) {
                error = ENOMEM;
            }
        }
        return e;
    }

    // Called with the lock of the entry. Requests `wanted`. Returns the error, or 0.
    int arm(int fd, entry& e, std::uint32_t wanted, bool owns) noexcept {
        const std::uint32_t next = (e.generation + 1) & last_generation;
        const std::uint32_t edges =
            owns || e.edges != 0 ? e.edges | wanted | EPOLLET | EPOLLRDHUP | EPOLLPRI : 0;
        const std::uint32_t events = edges != 0 ? edges : wanted | EPOLLONESHOT;
        const int error = set_.request(fd, e.registered, events, key(fd, next));
        if (error != 0) {
            return error;
        }
        e.armed = wanted;
        e.edges = edges;
        e.generation = next;
        return 0;
    }

    unsigned hand_over() noexcept {
        wake_list ready;
        wake_list gone;
        unsigned handed = 0;
        event found;
        while (handed < Base::max_completions && set_.next(found)) {
            if constexpr (requires { found.completed; }) {
                if (found.completed != nullptr) {
                    ready.push(*found.completed);
                    ++handed;
                    continue;
                }
            }
            handed += serve(found, Base::max_completions - handed, ready, gone);
        }
        wake_list::publish(ready, wait_status::granted, gone, wait_status::closed);
        return handed;
    }

    // Moves the waiters for the event to `ready`, at most `most`. Returns their number.
    unsigned serve(const event& found, unsigned most, wake_list& ready, wake_list& gone) noexcept {
        const auto fd = static_cast<std::uint32_t>(found.key);
        entry& e = *entries_.find(fd);
        unsigned taken = 0;
        const guard section(e.locked);
        if (found.key >> 32 == e.generation) {
            e.armed &= e.edges;
            if ((found.events & unusual) != 0) {
                e.after_short = short_read::may_go_on;
            }
            e.first_direction ^= 1; // so that neither direction starves the other
            for (const unsigned way : {unsigned{e.first_direction}, e.first_direction ^ 1u}) {
                if ((found.events & (events_of[way] | always)) != 0) {
                    e.armed &= ~events_of[way];
                    taken += take(e.queues[way], most - taken, ready);
                }
            }
            const std::uint32_t wanted = e.wanted();
            if ((wanted & ~e.armed) != 0 &&
                arm(static_cast<int>(fd), e, wanted, false) != 0) { // the file was closed
                for (auto& queue : e.queues) {
                    queue.pop_all(gone);
                }
            }
        }
        return taken;
    }

    static unsigned take(basic_waiter_queue<Platform>& from, unsigned most,
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

    static bool has_passed(deadline until) noexcept {
        const std::int64_t end = until.steady_ns(); // before now(), as it may read another clock
        return !until.is_never() && Platform::now() >= end && !until.is_early();
    }

    detail::growing_table<entry, Platform> entries_;
};

/// A driver for files, sockets and pipes.
///
/// \code
/// bide::epoll_driver files; // outlives the scheduler
/// bide::scheduler workers({.io = &files});
/// \endcode
template <class Platform>
class basic_epoll_driver final
    : public basic_readiness_driver<Platform, detail::epoll_set<Platform>> {};

/// The epoll driver that programs use.
using epoll_driver = basic_epoll_driver<>;

}} // namespace bide::BIDE_ABI

#endif

#endif
