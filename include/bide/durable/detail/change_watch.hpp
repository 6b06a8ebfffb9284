// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_CHANGE_WATCH_HPP
#define BIDE_DURABLE_DETAIL_CHANGE_WATCH_HPP

// How the contenders of one process wait for a change of a slot: change_signal wakes them,
// change_watch signals, change_wait closes the watch while no contender waits.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>
#include <bide/durable/detail/lease_monitor.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <poll.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

// Wakes all threads and coroutines of this process that wait for one lock, so that they read the
// record again.
//
//   waiter:   take next()              changer:   change the record
//             read the record                     signal(): set the event that was taken,
//             wait for the event                            and forget it
//
// The lock orders next() and signal(). If next() comes first, the signal sets the waiter's event,
// whether the waiter waits already or not. If the signal comes first, the waiter's read sees what
// was done before the signal.
template <class Platform> class basic_change_signal final : public monitor_client {
public:
    using event = basic_event<Platform>;

    // Returns the event that the next signal sets.
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

    // Returns how many signals there were.
    std::uint64_t count() const noexcept {
        const std::lock_guard held(lock_);
        return count_;
    }

    // Called by the lease monitor. A coroutine without an executor resumes on a service thread: on
    // this one it might call a store.
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

// The descriptors and the monitor of the system.
struct native_watch_system {
    using signal = change_signal;

    static lease_monitor& monitor() { return lease_monitor::here(); }
    static constexpr bool sees_files = lease_monitor::sees_files;
    static bool is_silent(int fd) noexcept { // true: certainly not readable
        pollfd readable{fd, POLLIN, 0};
        return ::poll(&readable, 1, 0) == 0;
    }
};

// What a process listens to while its contenders wait for a lock: the watch of the slot, and the
// end of processes of this machine that hold the lock or are ahead in the queue. It only makes the
// waiters read the record earlier.
//
// Every waiter is told of a change of the slot that comes after its last read:
//
//   reader:   drain    if the descriptor is readable: makes it unreadable, and signals unless
//                      there was a signal since it was armed
//             read     the record
//             follow   arms the descriptor
//   monitor:           if the descriptor is readable and armed: disarms it, and signals
//
// All waiters share the descriptor. What one reader drains, the monitor does not find. So the
// reader has to signal to the other waiters, whose turn it may be. If there was a signal since the
// descriptor was armed, they were told: every waiter that has read the record after that signal,
// and waits, has armed it again.
//
// Used by the contender that has the turn of the lock.
template <class System> class basic_change_watch {
public:
    using signal = typename System::signal;

    explicit basic_change_watch(std::shared_ptr<signal> told) : signal_(std::move(told)) {}
    basic_change_watch(const basic_change_watch&) = delete;
    basic_change_watch& operator=(const basic_change_watch&) = delete;
    ~basic_change_watch() { close(); }

    // Opens the watch; call it before a read. From here on, each change of the slot signals. If the
    // slot cannot be watched, waiters only read it from time to time.
    void open(slot_ref& slot) {
        if (!can_open(slot)) {
            return;
        }
        auto made = slot.watch();
        told_ = signal_->count();
        if (made && System::monitor().add((*made)->fd(), signal_)) {
            watch_ = std::move(*made);
        } else {
            next_try_ms_ = durable::boottime_ms() + 1000;
        }
    }
    bool can_open(const slot_ref& slot) const noexcept {
        return System::sees_files && watch_ == nullptr && slot.is_watchable() &&
               durable::boottime_ms() >= next_try_ms_;
    }
    bool is_open() const noexcept { return watch_ != nullptr; }

    // Returns true if the process certainly runs; false if that is not known. Asks the descriptor
    // that becomes readable at the end of the process. That takes one system call; /proc takes
    // five.
    bool runs(const durable::origin& it) const noexcept {
        const auto found = std::find(processes_.begin(), processes_.end(), it);
        return found != processes_.end() && System::is_silent(found->fd);
    }

    // Drains the watch if it is open, before a read.
    void drain() {
        if (watch_ == nullptr || System::is_silent(watch_->fd())) {
            return; // the monitor finds a later change
        }
        const bool was_told = signal_->count() != told_;
        if (watch_->drain()) {
            drop_watch();
            next_try_ms_ = durable::boottime_ms() + 1000;
        }
        if (!was_told) {
            signal_->signal();
        }
    }

    // Follows, after a read, the processes whose end would let a waiter in.
    void follow(const durable::record& r, const durable::origin& here) {
        if (watch_ != nullptr) {
            told_ = signal_->count();
            System::monitor().rearm(watch_->fd());
        }
        std::vector<process> wanted;
        const auto want = [&](const auto& entry) {
            if (std::find(wanted.begin(), wanted.end(), entry.from) != wanted.end()) {
                return;
            }
            const auto known = std::find(processes_.begin(), processes_.end(), entry.from);
            if (known != processes_.end()) {
                wanted.push_back(std::move(*known));
            } else if (wanted.size() < most_processes) {
                process one(entry.from, durable::watch_process(entry.from, here));
                if (one.fd >= 0 && System::monitor().add(one.fd, signal_)) {
                    wanted.push_back(std::move(one));
                }
            }
        };
        std::for_each(r.holders.begin(), r.holders.end(), want);
        if (!r.waiters.empty()) {
            want(r.waiters.front());
        }
        processes_ = std::move(wanted);
    }

    // Closes all descriptors: no contender of this process waits.
    void close() noexcept {
        processes_.clear();
        drop_watch();
    }

private:
    struct process {
        process(durable::origin of, int file) noexcept : from(std::move(of)), fd(file) {}
        process(process&& other) noexcept
            : from(std::exchange(other.from, {})), fd(std::exchange(other.fd, -1)) {}
        process& operator=(process&&) = delete;
        ~process() {
            if (fd >= 0) {
                System::monitor().remove(fd);
                ::close(fd);
            }
        }
        bool operator==(const durable::origin& it) const noexcept { return fd >= 0 && from == it; }

        durable::origin from;
        int fd; // -1: none
    };
    static constexpr std::size_t most_processes = 64;

    void drop_watch() noexcept {
        if (watch_ != nullptr) {
            System::monitor().remove(watch_->fd());
            watch_.reset();
        }
    }

    const std::shared_ptr<signal> signal_;
    std::unique_ptr<slot_watch> watch_;
    std::uint64_t told_ = 0;       // the count of signals when the watch was last armed
    std::int64_t next_try_ms_ = 0; // when to try again to open the watch
    std::vector<process> processes_;
};

using change_watch = basic_change_watch<native_watch_system>;

// What a contender does if it is not its turn.
enum class intent {
    nothing, // it leaves no entry
    queue,   // it enters the queue
    wait,    // as queue, and it is going to wait for the signal
    watch    // as wait, and the watch of the slot signals, from before this read on
};

// The contenders of this process that wait for one lock. While there is one, the slot may be
// watched.
class change_wait {
public:
    change_signal& signal() noexcept { return *signal_; }

    // Counts a contender that begins to wait. Opens no watch.
    void begin() noexcept {
        // Order: relaxed; the turn orders it before the read that opens the watch.
        waiting_.fetch_add(1, std::memory_order_relaxed);
    }
    // Ends the wait of a contender. Returns true if it was the last one: then the watch can be
    // closed.
    bool end() noexcept {
        // Order: relaxed; the number publishes nothing else.
        return waiting_.fetch_sub(1, std::memory_order_relaxed) == 1;
    }

    // All of these are called with the turn.

    // Called before a read of the slot.
    void prepare(intent what, slot_ref& slot) {
        close_if_idle();
        if (what == intent::watch) {
            watch_.open(slot);
        }
        if (what >= intent::wait) {
            watch_.drain();
        }
    }
    void close_if_idle() noexcept {
        // Order: relaxed; a waiter that is counted later opens the watch in a later turn.
        if (waiting_.load(std::memory_order_relaxed) == 0) {
            watch_.close();
        }
    }
    void close() noexcept { watch_.close(); }
    change_watch& watch() noexcept { return watch_; }

private:
    const std::shared_ptr<change_signal> signal_ = std::make_shared<change_signal>();
    change_watch watch_{signal_};
    native_platform::atomic<unsigned> waiting_{0};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
