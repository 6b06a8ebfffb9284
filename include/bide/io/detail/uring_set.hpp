// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_DETAIL_URING_SET_HPP
#define BIDE_IO_DETAIL_URING_SET_HPP

// What a uring_driver asks the kernel for: one event of a file (for detail/readiness_driver.hpp), or a
// whole request, which reads, writes, accepts or connects.
//
// The data of a request to the kernel says what its completion is:
//
//   highest bit 0   the event of a file: the key of the readiness_driver
//   highest bit 1   the address of a uring_request, rotated to the right by one. With bit 1 of the address
//                   set, it is the completion of a request that ends that one early
//
// A uring_request lies in the frame of the coroutine that waits for it, and so may its buffer. The kernel
// uses both until it has posted the completion. So a wait is over only then: a stop, a time-out or the
// end of the coroutine asks the kernel to end the request, and waits for the completion. All fields are
// written under the lock of the ring:
//
//   idle        not submitted yet; cancel() forbids it
//   submitted   the kernel has it, or next() is about to submit it again
//   ends_early  the same, and its end was asked for. It is not submitted again
//   over        the result stands. Only the owner accesses it
//
// The kernel ends the requests of a thread that has ended, with ECANCELED. Such a request is submitted
// again. If a request to end another one does not find it although it is not over (ENOENT), the kernel
// was about to take it up again: it is asked once more.

#include <bide/core/backoff.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter.hpp>
#include <bide/io/detail/uring_ring.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <liburing.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace bide::inline BIDE_ABI {
namespace detail {

struct uring_request {
    enum class kind : unsigned char { receive, send, read, write, accept, connect };
    enum class phase : unsigned char { idle, submitted, ends_early, over };

    // The position of a file or a stream that has one.
    static constexpr std::uint64_t current_position = ~std::uint64_t{0};

    kind what{};
    phase at = phase::idle;
    bool is_left_out = false;  // its end was asked for before this step could be submitted
    bool is_abandoned = false; // end_now() waits for it, and its waiter is not woken
    bool polls = false;        // waits until the file is ready; only then does what it is for
    wait_status ended_by = wait_status::granted;
    int fd = -1;
    int result = 0; // negative: the system's error
    std::uint32_t size = 0;
    void* data = nullptr; // of a write and of a connect: only read
    std::uint64_t offset = current_position;
    void* waiter = nullptr;
    uring_request* next = nullptr; // in the list of those that are submitted
    uring_request* prev = nullptr;

    bool writes() const noexcept {
        return what == kind::send || what == kind::write || what == kind::connect;
    }
    void prepare(io_uring_sqe& to) const noexcept;
    bool is_over_with(int res) noexcept;
};

inline void uring_request::prepare(io_uring_sqe& to) const noexcept {
    if (polls) {
        return ::io_uring_prep_poll_add(&to, fd, writes() ? POLLOUT : POLLIN);
    }
    switch (what) {
    case kind::receive: return ::io_uring_prep_recv(&to, fd, data, size, 0);
    case kind::send: return ::io_uring_prep_send(&to, fd, data, size, MSG_NOSIGNAL);
    case kind::read: return ::io_uring_prep_read(&to, fd, data, size, offset);
    case kind::write: return ::io_uring_prep_write(&to, fd, data, size, offset);
    case kind::accept: return ::io_uring_prep_accept(&to, fd, nullptr, nullptr, SOCK_CLOEXEC);
    case kind::connect:
        return ::io_uring_prep_connect(&to, fd, static_cast<const sockaddr*>(data), size);
    }
}

// Takes the result of a step. Returns false if there is another step, which prepare() prepares.
inline bool uring_request::is_over_with(int res) noexcept {
    const bool retried = res == -ECANCELED || res == -EINTR; // its thread has ended
    if (polls) {
        if (retried || (res >= 0 && what != kind::connect)) {
            polls = retried;
            return false;
        }
        if (res >= 0) {
            socklen_t length = sizeof result;
            const bool known = ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &length) == 0;
            result = -(known ? result : errno);
            return true;
        }
    } else if (retried || res == -EAGAIN || (what == kind::accept && res == -ECONNABORTED) ||
               (what == kind::connect && (res == -EINPROGRESS || res == -EALREADY))) {
        polls = res == -EAGAIN || what == kind::connect; // a connection is under way
        return false;
    }
    result = res;
    return true;
}

template <class Platform> class uring_set {
    using node = basic_waiter<Platform>;
    using phase = uring_request::phase;

public:
    static constexpr const char* name = "uring_driver";

    struct event {
        std::uint64_t key;
        std::uint32_t events;
        node* completed; // the waiter of a request that is over, or nullptr: then it is of a file
    };

    explicit uring_set(unsigned entries) : ring_(entries) {}

    // ---- For the readiness_driver, as epoll_driver.hpp has it. `registered`: a poll with the last
    // key may be under way. It keeps the file open, so it is cancelled as soon as it is of no use. So a
    // poll is for one event: one for many would outlive the last waiter each time.

    int request(int fd, bool& registered, std::uint32_t events, std::uint64_t key,
                std::uint64_t old) noexcept;
    static void has_fired(bool& registered) noexcept { registered = false; }
    void withdraw(bool& registered, std::uint64_t key) noexcept;
    void remove(int, bool& registered, std::uint64_t key) noexcept { withdraw(registered, key); }
    bool fetch(deadline until) noexcept { return ring_.fetch(until); }
    bool has_next() const noexcept { return ring_.has_saved(); }
    bool next(event& told) noexcept;
    void wake() noexcept { ring_.wake(); }

    // ---- Requests

    // Submits it unless refusal() returns an outcome, which is then returned. `refusal` runs under the
    // lock.
    template <class Refusal> wait_status begin(uring_request& r, node& w, Refusal refusal) noexcept;
    // Asks the kernel to end it; `why` is what became of it if it has not happened by then.
    void end_early(uring_request& r, node& w, wait_status why) noexcept;
    // Asks the kernel to end it, and waits until it is over. Returns false if next() has returned its
    // waiter before. From then on next() does not return it: the thread that takes the completion must
    // not wake a coroutine that is being destroyed.
    bool end_now(uring_request& r) noexcept;
    // Asks the kernel to end all requests for a file, or all requests if `fd` is negative.
    void end_all(int fd) noexcept;
    // Returns the number of requests that are not over.
    std::size_t size() noexcept;

private:
    using ring = uring_ring<Platform>;
    static constexpr std::uint64_t highest = std::uint64_t{1} << 63;
    static constexpr std::uint64_t ends_it = 2;

    static std::uint64_t data_of(const uring_request& r, std::uint64_t bits = 0) noexcept {
        return (reinterpret_cast<std::uintptr_t>(&r) | bits) >> 1 | highest;
    }
    void submit_cancel(uring_request& r) noexcept;
    void submit_again(uring_request& r) noexcept;
    bool finish(uring_request& r, int res) noexcept;
    uring_request* listed(std::uint64_t address) noexcept;
    void link(uring_request& r) noexcept;
    void unlink(uring_request& r) noexcept;

    ring ring_;
    uring_request* first_ = nullptr; // under the lock
};

// ---- One event of a file

template <class Platform>
int uring_set<Platform>::request(int fd, bool& registered, std::uint32_t events, std::uint64_t key,
                                 std::uint64_t old) noexcept {
    withdraw(registered, old);
    ring_.lock();
    const bool fits = ring_.expect();
    if (fits) {
        io_uring_sqe& poll = ring_.prepare();
        ::io_uring_prep_poll_add(&poll, fd, events);
        ring_.submit(poll, key);
        registered = true;
    }
    ring_.unlock();
    return fits ? 0 : ENOMEM;
}

template <class Platform>
void uring_set<Platform>::withdraw(bool& registered, std::uint64_t key) noexcept {
    if (registered) {
        registered = false;
        ring_.lock();
        io_uring_sqe& cancel = ring_.prepare();
        ring::prepare_cancel(cancel, key);
        ring_.submit(cancel, ring::ignored);
        ring_.unlock();
    }
}

// ---- Requests

template <class Platform> void uring_set<Platform>::link(uring_request& r) noexcept {
    r.prev = nullptr;
    r.next = first_;
    if (first_ != nullptr) {
        first_->prev = &r;
    }
    first_ = &r;
}

template <class Platform> void uring_set<Platform>::unlink(uring_request& r) noexcept {
    (r.prev != nullptr ? r.prev->next : first_) = r.next;
    if (r.next != nullptr) {
        r.next->prev = r.prev;
    }
}

template <class Platform>
template <class Refusal>
wait_status uring_set<Platform>::begin(uring_request& r, node& w, Refusal refusal) noexcept {
    ring_.lock();
    wait_status what = refusal();
    if (what == wait_status::waiting && !ring_.expect()) {
        r.at = phase::over;
        r.result = -ENOMEM;
        what = wait_status::granted;
    }
    if (what == wait_status::waiting) {
        r.at = phase::submitted;
        r.waiter = &w;
        link(r);
        submit_again(r);
    } else {
        w.settle(what);
    }
    ring_.unlock();
    return what;
}

// Under the lock, after expect(): submits the next step of a request. If its end was asked for while
// prepare() had released the lock, a request that does nothing takes its place.
template <class Platform> void uring_set<Platform>::submit_again(uring_request& r) noexcept {
    io_uring_sqe& step = ring_.prepare();
    if (r.at == phase::submitted) {
        r.prepare(step);
    } else {
        r.is_left_out = true;
        ::io_uring_prep_nop(&step);
    }
    ring_.submit(step, data_of(r));
}

// Under the lock. Without memory for the answer, the kernel is asked without one.
template <class Platform> void uring_set<Platform>::submit_cancel(uring_request& r) noexcept {
    const bool answers = ring_.expect();
    io_uring_sqe& cancel = ring_.prepare();
    ring::prepare_cancel(cancel, data_of(r));
    ring_.submit(cancel, answers ? data_of(r, ends_it) : ring::ignored);
}

template <class Platform>
void uring_set<Platform>::end_early(uring_request& r, node& w, wait_status why) noexcept {
    ring_.lock();
    if (r.at == phase::idle) {
        w.forbid(why);
    } else if (r.at == phase::submitted) {
        r.at = phase::ends_early;
        r.ended_by = why;
        submit_cancel(r);
    }
    ring_.unlock();
}

template <class Platform> bool uring_set<Platform>::end_now(uring_request& r) noexcept {
    ring_.lock();
    const bool ends = r.at == phase::submitted || r.at == phase::ends_early;
    r.is_abandoned = true;
    if (r.at == phase::submitted) {
        r.at = phase::ends_early;
        r.ended_by = wait_status::stopped;
        submit_cancel(r);
    }
    for (basic_backoff<Platform> again; r.at == phase::ends_early;) {
        ring_.take();
        int res = 0;
        if (ring_.pop(data_of(r), res)) {
            finish(r, res);
            break;
        }
        if (ring_.pop(data_of(r, ends_it), res) && res == -ENOENT) {
            submit_cancel(r);
        }
        ring_.unlock();
        again();
        ring_.lock();
    }
    ring_.unlock();
    return ends;
}

template <class Platform> void uring_set<Platform>::end_all(int fd) noexcept {
    ring_.lock();
    for (uring_request* r = first_; r != nullptr;) {
        if (r->at == phase::submitted && (fd < 0 || r->fd == fd)) {
            r->at = phase::ends_early;
            r->ended_by = wait_status::closed;
            const unsigned before = ring_.releases();
            submit_cancel(*r);
            if (before != ring_.releases()) {
                r = first_; // this one may be over
                continue;
            }
        }
        r = r->next;
    }
    ring_.unlock();
}

template <class Platform> std::size_t uring_set<Platform>::size() noexcept {
    std::size_t n = 0;
    ring_.lock();
    for (const uring_request* r = first_; r != nullptr; r = r->next) {
        ++n;
    }
    ring_.unlock();
    return n;
}

// Under the lock: takes the result of the last step. Returns true if the request is over.
template <class Platform> bool uring_set<Platform>::finish(uring_request& r, int res) noexcept {
    const bool early = r.at == phase::ends_early;
    const bool is_over = !r.is_left_out && r.is_over_with(res);
    if (!is_over && !early) {
        return false;
    }
    if (is_over) {
        r.ended_by = wait_status::granted; // it has happened, or failed
    }
    unlink(r);
    r.at = phase::over;
    return true;
}

// Under the lock: returns the request at an address, or nullptr if it is over.
template <class Platform>
uring_request* uring_set<Platform>::listed(std::uint64_t address) noexcept {
    uring_request* r = first_;
    while (r != nullptr && reinterpret_cast<std::uintptr_t>(r) != address) {
        r = r->next;
    }
    return r;
}

template <class Platform> bool uring_set<Platform>::next(event& told) noexcept {
    bool found = false;
    uring_completion c{};
    ring_.lock();
    while (!found && ring_.pop(c)) {
        const std::uint64_t address = c.data << 1;
        if ((c.data & highest) == 0) {
            // A poll that has failed lets its waiters through, whose next attempt fails. Of a cancelled
            // one, the thread has ended: the readiness_driver requests another one.
            const std::uint32_t failed = c.result == -ECANCELED ? 0u : std::uint32_t{EPOLLERR};
            told = {c.data, c.result < 0 ? failed : static_cast<std::uint32_t>(c.result), nullptr};
            found = true;
        } else if ((address & ends_it) != 0) {
            uring_request* const r = c.result == -ENOENT ? listed(address & ~ends_it) : nullptr;
            if (r != nullptr && r->at == phase::ends_early) {
                submit_cancel(*r);
            }
        } else {
            auto& r = *reinterpret_cast<uring_request*>(static_cast<std::uintptr_t>(address));
            if (finish(r, c.result)) {
                found = !r.is_abandoned;
                told = {0, 0, static_cast<node*>(r.waiter)};
            } else {
                ring_.expect(); // it has just been popped: there is room
                submit_again(r);
            }
        }
    }
    ring_.unlock();
    return found;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
