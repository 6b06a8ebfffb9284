#ifndef BIDE_DURABLE_DETAIL_CHANGE_WATCH_HPP
#define BIDE_DURABLE_DETAIL_CHANGE_WATCH_HPP

// What one process listens to while some of it wait for a lock: the slot's own watch, and the end of
// processes of this machine that are in the way. All of it only makes them look earlier.

#include <bide/core/config.hpp>
#include <bide/durable/detail/change_signal.hpp>
#include <bide/durable/detail/vigil.hpp>
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

#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

// Used under the lock's turn.
class change_watch {
public:
    explicit change_watch(std::shared_ptr<change_signal> signal) : signal_(std::move(signal)) {}
    change_watch(const change_watch&) = delete;
    change_watch& operator=(const change_watch&) = delete;
    ~change_watch() { close(); }

    // Before a look: from now on a change of the slot signals. A slot that cannot be watched, or not
    // now, is only looked at from time to time.
    void open(slot_ref& slot) {
        if (!can_open(slot)) {
            return;
        }
        auto made = slot.watch();
        if (made && vigil::here().add((*made)->fd(), signal_)) {
            watch_ = std::move(*made);
        } else {
            next_try_ms_ = durable::boottime_ms() + 1000;
        }
    }
    bool can_open(const slot_ref& slot) const noexcept {
        return vigil::sees_files && watch_ == nullptr && slot.is_watchable() &&
               durable::boottime_ms() >= next_try_ms_;
    }
    bool is_open() const noexcept { return watch_ != nullptr; }

    // Before a look, too, where it is open.
    void drain() {
        if (watch_ != nullptr) {
            if (watch_->drain()) {
                drop_watch();
                next_try_ms_ = durable::boottime_ms() + 1000;
            } else {
                vigil::here().rearm(watch_->fd());
            }
        }
    }

    // After a look: those whose end would let others in.
    void follow(const durable::record& r, const durable::origin& here) {
        std::vector<process> wanted;
        const auto want = [&](const auto& entry) {
            const auto known = std::find_if(processes_.begin(), processes_.end(),
                                            [&](auto& p) { return p.nonce == entry.nonce; });
            if (known != processes_.end()) {
                wanted.push_back(std::move(*known));
            } else if (wanted.size() < most_processes) {
                process one(entry.nonce, durable::watch_process(entry.from, here));
                if (one.fd >= 0 && vigil::here().add(one.fd, signal_)) {
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
        process(std::string of, int file) noexcept : nonce(std::move(of)), fd(file) {}
        process(process&& other) noexcept
            : nonce(std::exchange(other.nonce, {})), fd(std::exchange(other.fd, -1)) {}
        process& operator=(process&&) = delete;
        ~process() {
            if (fd >= 0) {
                vigil::here().remove(fd);
                ::close(fd);
            }
        }

        std::string nonce;
        int fd; // -1: none
    };
    static constexpr std::size_t most_processes = 64;

    void drop_watch() noexcept {
        if (watch_ != nullptr) {
            vigil::here().remove(watch_->fd());
            watch_.reset();
        }
    }

    std::shared_ptr<change_signal> signal_;
    std::unique_ptr<slot_watch> watch_;
    std::int64_t next_try_ms_ = 0; // where the slot could not be watched, or not on
    std::vector<process> processes_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
