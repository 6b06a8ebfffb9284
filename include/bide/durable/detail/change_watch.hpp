#ifndef BIDE_DURABLE_DETAIL_CHANGE_WATCH_HPP
#define BIDE_DURABLE_DETAIL_CHANGE_WATCH_HPP

// What one process listens to while some of it wait for a lock: the slot's own watch, and the end of
// processes of this machine that are in the way. All of it only makes them look earlier.
//
// Of a change of the slot all who wait are told, each from the look on that it has waited since:
//
//   who looks: drain    where the file is readable makes it unreadable, and signals unless there was
//                       a signal since it was armed
//              look     at the record
//              follow   arms it
//   lease_monitor:     where the file is readable and armed: disarms it, and signals
//
// The file is one for all of them: what one drains the lease_monitor comes too late to find, and the others,
// whose turn it might be, have to be told. Where there was a signal since it was armed they were:
// whoever has looked after that signal, and waits, has armed it again.

#include <bide/core/config.hpp>
#include <bide/durable/detail/change_signal.hpp>
#include <bide/durable/detail/lease_monitor.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/slot.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

// What it listens with.
struct native_ears {
    using signal = change_signal;

    static detail::lease_monitor& lease_monitor() { return detail::lease_monitor::here(); }
    static constexpr bool sees_files = detail::lease_monitor::sees_files;
    static bool is_silent(int fd) noexcept { // for certain: it is not readable
        pollfd readable{fd, POLLIN, 0};
        return ::poll(&readable, 1, 0) == 0;
    }
};

// Used under the lock's turn.
template <class Ears> class basic_change_watch {
public:
    using signal = typename Ears::signal;

    explicit basic_change_watch(std::shared_ptr<signal> told) : signal_(std::move(told)) {}
    basic_change_watch(const basic_change_watch&) = delete;
    basic_change_watch& operator=(const basic_change_watch&) = delete;
    ~basic_change_watch() { close(); }

    // Before a look: from now on a change of the slot signals. A slot that cannot be watched, or not
    // now, is only looked at from time to time.
    void open(slot_ref& slot) {
        if (!can_open(slot)) {
            return;
        }
        auto made = slot.watch();
        told_ = signal_->count();
        if (made && Ears::lease_monitor().add((*made)->fd(), signal_)) {
            watch_ = std::move(*made);
        } else {
            next_try_ms_ = durable::boottime_ms() + 1000;
        }
    }
    bool can_open(const slot_ref& slot) const noexcept {
        return Ears::sees_files && watch_ == nullptr && slot.is_watchable() &&
               durable::boottime_ms() >= next_try_ms_;
    }
    bool is_open() const noexcept { return watch_ != nullptr; }

    // It runs for certain; false: that is not known. By a file that tells when it has ended: that is
    // one call of the system, /proc takes five.
    bool runs(const durable::origin& it) const noexcept {
        const auto found = std::find(processes_.begin(), processes_.end(), it);
        return found != processes_.end() && Ears::is_silent(found->fd);
    }

    // Before a look, too, where it is open.
    void drain() {
        if (watch_ == nullptr || Ears::is_silent(watch_->fd())) {
            return; // what comes from here on is for the lease_monitor to find
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

    // After a look: those whose end would let others in.
    void follow(const durable::record& r, const durable::origin& here) {
        if (watch_ != nullptr) {
            told_ = signal_->count();
            Ears::lease_monitor().rearm(watch_->fd());
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
                if (one.fd >= 0 && Ears::lease_monitor().add(one.fd, signal_)) {
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

    // Nobody waits any more.
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
                Ears::lease_monitor().remove(fd);
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
            Ears::lease_monitor().remove(watch_->fd());
            watch_.reset();
        }
    }

    const std::shared_ptr<signal> signal_;
    std::unique_ptr<slot_watch> watch_;
    std::uint64_t told_ = 0;       // how many signals there were when it was last armed
    std::int64_t next_try_ms_ = 0; // where the slot could not be watched, or not on
    std::vector<process> processes_;
};

using change_watch = basic_change_watch<native_ears>;

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
