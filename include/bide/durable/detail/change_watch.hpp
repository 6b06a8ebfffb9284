// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_CHANGE_WATCH_HPP
#define BIDE_DURABLE_DETAIL_CHANGE_WATCH_HPP

// How the contenders of one process wait for a change of a slot:
//
//   change_signal   wakes all threads and coroutines of this process that wait for one lock
//   wake_socket     wakes another process of the same machine
//   change_watch    has the descriptors that report changes, and signals when one is readable

#include <bide/durable/detail/background.hpp>

#include <poll.h>
#if defined(__linux__)
#include <sys/socket.h>
#include <sys/un.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Wakes all threads and coroutines of this process that wait for one lock.
//
//   waiter:   take next()              changer:   change the record
//             read the record                     signal(): set the event that was taken,
//             wait for the event                            and forget it
//
// The mutex orders next() and signal(). If next() comes first, signal() sets the waiter's event. If
// signal() comes first, the waiter reads the record after the change, and sees it.
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
    // because a call to a store would delay the monitor.
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

// A watch that owns its descriptor. drain() does nothing: the descriptor of a process stays
// readable once the process has ended.
class fd_watch : public slot_watch {
public:
    explicit fd_watch(int of) noexcept : fd_(of) {}
    ~fd_watch() override {
        if (fd_ >= 0) {
            ::close(fd_);
        }
    }
    int fd() const noexcept final { return fd_; }
    std::error_code drain() noexcept override { return {}; }

private:
    const int fd_;
};

// Wakes another process of the same machine and network namespace that waits for a durable lock:
// sends an empty datagram to a socket in Linux's abstract namespace. The name of the socket is the
// mark of presence of the waiting process (slot_presence in slot.hpp). If another program has taken
// the name, the waiter watches every change of the slot, as on a system without such sockets.

#if defined(__linux__)

class wake_socket final : public fd_watch {
public:
    // Opens the socket whose name is the mark. Returns nullptr if that fails.
    // Throws: std::bad_alloc.
    static std::unique_ptr<slot_watch> of(std::int64_t mark) {
        auto made = std::make_unique<wake_socket>();
        const address name(mark);
        const bool is_bound = made->fd() >= 0 && ::bind(made->fd(), name.get(), name.size) == 0;
        return is_bound ? std::move(made) : nullptr;
    }

    // Wakes the process that has the mark, if it waits. A full socket is readable already.
    static void wake(std::int64_t mark) noexcept {
        const wake_socket from;
        const address name(mark);
        ::sendto(from.fd(), nullptr, 0, MSG_DONTWAIT | MSG_NOSIGNAL, name.get(), name.size);
    }

    wake_socket() noexcept
        : fd_watch(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {}

    std::error_code drain() noexcept override {
        char none;
        while (::recv(fd(), &none, sizeof none, 0) >= 0 || errno == EINTR) {
        }
        return errno == EAGAIN ? std::error_code() : std::error_code(errno, std::system_category());
    }

private:
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
};

#else

struct wake_socket {
    static std::unique_ptr<slot_watch> of(std::int64_t) noexcept { return nullptr; }
    static void wake(std::int64_t) noexcept {}
};

#endif

// The descriptors and the monitor of the system.
struct native_watch_system {
    using signal = change_signal;

    static lease_monitor& monitor() { return lease_monitor::here(); }
    static constexpr bool sees_files = lease_monitor::sees_files;
    static std::unique_ptr<slot_watch> wake_socket(std::int64_t mark) {
        return mark != 0 ? detail::wake_socket::of(mark) : nullptr;
    }
    static bool is_silent(int fd) noexcept { // true: certainly not readable
        pollfd readable{fd, POLLIN, 0};
        return ::poll(&readable, 1, 0) == 0;
    }
};

// The descriptors that notify this process while its contenders wait for a lock:
//
//   the watch of the slot   readable after each change of the slot
//   the wake socket         readable after another process has sent to it
//   process descriptors     one for each process of this machine that a waiter depends on, mostly
//                           a holder or a process ahead in the queue; readable when it has ended
//
// The watch, which wakes this process for every change, is open only if a waiter is not notified
// through the other descriptors of every change that concerns it (is_told() in record.hpp). No
// waiter misses such a change after its last read. The steps of a reader, which is a contender that
// reads the record, and of the lease monitor:
//
//   reader:   drain    if a descriptor is readable: clears it, and signals unless
//                      there was a signal since the descriptors were last armed
//             read     the record
//             follow   arms the descriptors
//   monitor:           if a descriptor is readable and armed: disarms it, and signals
//
// All waiters share the descriptors. The monitor does not signal for one that a reader has cleared.
// So the reader signals: the change may have granted another waiter its permits. If there was a
// signal since the descriptors were last armed, it woke all waiters, and none of them waits again
// yet, because a waiter arms the descriptors before it waits.
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
// Thread safety: only the contender of this process that has the turn (slot_part) uses the object.
template <class System> class basic_change_watch {
public:
    using signal = typename System::signal;

    explicit basic_change_watch(std::shared_ptr<signal> told) : signal_(std::move(told)) {}
    ~basic_change_watch() { leave(); }

    // Opens the watch of the slot, and the wake socket for the mark of presence `mark` (0: none).
    // The socket stays open as long as this object exists. Requires: the caller reads the record
    // afterwards.
    void open(slot& of, std::int64_t mark) {
        if (socket_ == nullptr && mark != std::exchange(mark_, mark)) {
            socket_ = listen(System::wake_socket(mark));
        }
        if (!can_open()) {
            return;
        }
        auto made = of.watch();
        watch_ = listen(made ? std::move(*made) : nullptr);
        if (watch_ == nullptr) {
            next_try_ms_ = !made && made.error() == std::errc::operation_not_supported
                               ? std::numeric_limits<std::int64_t>::max()
                               : durable::boottime_ms() + 1000;
        }
    }
    // Whether open() could open the watch of the slot, as far as is known.
    bool can_open() const noexcept {
        return System::sees_files && watch_ == nullptr && durable::boottime_ms() >= next_try_ms_;
    }
    // Returns true if, as of the last follow(), this object is notified of every change that
    // concerns the waiters of this process.
    bool hears() const noexcept { return watch_ != nullptr || is_told_; }

    // Returns true if the process certainly runs, by one system call; to read /proc takes five.
    bool runs(const durable::origin& it) const noexcept {
        const auto found = find(processes_, it);
        return found != processes_.end() && System::is_silent(found->end->fd());
    }

    // Drains the descriptors, before a read.
    void drain() {
        if (watch_ == nullptr && socket_ == nullptr) {
            return;
        }
        const bool was_told = signal_->count() != told_;
        const bool is_heard = drain(watch_);
        if ((drain(socket_) || is_heard) && !was_told) {
            signal_->signal();
        }
    }

    // Called after a read of the record. Opens descriptors for the processes that the waiters of
    // this process depend on, and arms all. Closes the watch of the slot if it is not needed.
    // `hears_all`: a waiter of this process wants to be notified of every change, or has no mark of
    // presence. `others`: other waiters of this process have read the record before.
    void follow(const durable::record& r, const durable::origin& here, bool hears_all,
                bool others) {
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
        bool waits = false;
        is_told_ = socket_ != nullptr && !hears_all;
        for (std::size_t i = 0; socket_ != nullptr && i != r.waiters.size(); ++i) {
            if (r.waiters[i].from.mark == mark_) {
                waits = true;
                const bool follows =
                    i == 0 ? follow_holders() : follow(r.waiters[i - 1].from, here);
                is_told_ = is_told_ && durable::is_told(r, i) && follows;
            }
        }
        is_told_ = is_told_ && waits;
        if (!is_told_) {
            follow_holders();
            if (!r.waiters.empty()) {
                follow(r.waiters.front().from, here);
            }
        }
        std::erase_if(processes_, [](const process& one) { return !one.is_followed; });
        if (is_told_ && watch_ != nullptr) {
            watch_.reset();
            // This read may have seen a change that the watch has not yet reported to the
            // other contenders.
            if (others) {
                signal_->signal();
            }
        }
        for (const descriptor* one : {&watch_, &socket_}) {
            if (*one != nullptr) {
                System::monitor().rearm((*one)->fd());
            }
        }
    }

    // Closes all descriptors except the wake socket, when no contender of this process waits.
    void close() noexcept {
        processes_.clear();
        watch_.reset();
        is_told_ = false;
    }
    // Closes the wake socket, too.
    void leave() noexcept {
        close();
        socket_.reset();
    }

private:
    struct unmonitored {
        void operator()(slot_watch* of) const noexcept {
            // If a child of fork() cannot make a monitor, nothing is to be removed from it.
            try_to([of] { System::monitor().remove(of->fd()); });
            delete of;
        }
    };
    using descriptor = std::unique_ptr<slot_watch, unmonitored>; // nullptr: none

    struct process {
        durable::origin from;
        descriptor end; // readable when the process has ended
        bool is_followed = true;
    };
    static constexpr std::size_t most_processes = 64;

    static auto find(auto& in, const durable::origin& it) noexcept {
        return std::find_if(in.begin(), in.end(),
                            [&](const process& one) { return one.from == it; });
    }

    // Returns nullptr if the descriptor cannot be monitored.
    descriptor listen(std::unique_ptr<slot_watch> made) {
        told_ = signal_->count();
        const bool is_heard = made != nullptr && System::monitor().add(made->fd(), signal_);
        return descriptor(is_heard ? made.release() : nullptr);
    }
    // Clears the descriptor. Returns true if it was readable. Closes it if it has failed.
    bool drain(descriptor& of) {
        if (of == nullptr || System::is_silent(of->fd())) {
            return false; // the monitor finds what comes later
        }
        if (of->drain()) {
            of.reset();
            next_try_ms_ = durable::boottime_ms() + 1000;
        }
        return true;
    }

    // Makes the end of the process `it` signal. Returns false if that is not possible. If `it` is
    // this process, returns true without a descriptor.
    bool follow(const durable::origin& it, const durable::origin& here) {
        if (durable::can_look_up(it, here) && it.pid == here.pid) {
            return true;
        }
        const auto known = find(processes_, it);
        if (known != processes_.end()) {
            return known->is_followed = true;
        }
        const int fd = processes_.size() < most_processes ? durable::watch_process(it, here) : -1;
        descriptor end = fd >= 0 ? listen(std::make_unique<fd_watch>(fd)) : nullptr;
        if (end == nullptr) {
            return false;
        }
        processes_.push_back({it, std::move(end)});
        return true;
    }

    const std::shared_ptr<signal> signal_;
    descriptor watch_;             // of the slot
    descriptor socket_;            // the wake socket
    std::int64_t mark_ = 0;        // of this process: the name of the wake socket
    bool is_told_ = false;         // the watch is not needed
    std::uint64_t told_ = 0;       // the count of signals when the descriptors were last armed
    std::int64_t next_try_ms_ = 0; // when to try again to open the watch
    std::vector<process> processes_;
};

using change_watch = basic_change_watch<native_watch_system>;

}}} // namespace bide::BIDE_ABI::detail

#endif
