// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_MEMORY_HPP
#define BIDE_DURABLE_SLOTS_MEMORY_HPP

/// \file
/// A slot in the memory of this process: for tests, and for locks among the threads of one process.

#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>

#include <mutex>
#include <vector>

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

class memory_watch;

struct slot_memory {
    std::mutex mutex;
    // The mutex guards:
    slot_snapshot current{};
    std::vector<const memory_watch*> watches{};
};

// A pipe whose reading end is readable from notify() to drain().
class memory_watch final : public slot_watch {
public:
    explicit memory_watch(std::shared_ptr<slot_memory> of) : memory_(std::move(of)) {
        const std::lock_guard lock(memory_->mutex);
        memory_->watches.push_back(this);
        if (::pipe(ends_) == 0) { // otherwise leaves both ends at -1
            for (const int end : ends_) {
                ::fcntl(end, F_SETFD, FD_CLOEXEC);
                ::fcntl(end, F_SETFL, O_NONBLOCK);
            }
        }
    }
    ~memory_watch() override {
        const std::lock_guard lock(memory_->mutex);
        std::erase(memory_->watches, this);
        for (const int end : ends_) {
            if (end >= 0) {
                ::close(end);
            }
        }
    }

    int fd() const noexcept override { return ends_[0]; }

    std::error_code drain() noexcept override {
        if (::getpid() != maker_) {
            return std::make_error_code(std::errc::operation_not_permitted);
        }
        char some[256];
        while (::read(ends_[0], some, sizeof some) > 0) {
        }
        return {};
    }
    void notify() const noexcept {
        if (::getpid() == maker_) {
            // If the pipe is full, it is readable already.
            [[maybe_unused]] const ssize_t written = ::write(ends_[1], "", 1);
        }
    }

private:
    const std::shared_ptr<slot_memory> memory_;
    const pid_t maker_ = ::getpid(); // a child must not write or read its parent's pipe
    int ends_[2] = {-1, -1};
};

} // namespace detail

/// A slot in the memory of this process. Copies of a slot object use the same memory. Two threads
/// may use two copies at the same time.
///
/// After fork() the child has its own memory with the same value, and its copies of the parent's
/// watches return errors. If a process forks while another thread uses the memory, the child's
/// mutex may stay locked.
///
/// Requires: the slot was not moved from.
/// Throws: std::bad_alloc; then the operation has no effect.
class memory_slot : public slot {
public:
    /// What the slot promises. The value and all its contenders end with the process.
    static constexpr slot_guarantees guarantees{true, false, lock_clock::boottime};

    /// The largest value in bytes. A longer value fails with durable_errc::too_large.
    static constexpr std::size_t largest_value = std::size_t{64} << 20;

    result<slot_snapshot, std::error_code> load() override {
        const std::lock_guard lock(memory_->mutex);
        return memory_->current;
    }

    cas_result compare_exchange(slot_version version, std::string_view value) override {
        const std::lock_guard lock(memory_->mutex);
        return memory_->current.version == version
                   ? put(std::string(value))
                   : cas_result{cas_status::conflict, 0, memory_->current, {}};
    }

    /// Calls the update under the mutex and stores what it returns.
    /// Requires: the update uses no slot object over this memory.
    /// Throws: what the update throws; nothing is stored then.
    cas_result update_locked(const slot_update& update) override {
        const std::lock_guard lock(memory_->mutex);
        std::optional<std::string> value = update(memory_->current);
        return value ? put(std::move(*value))
                     : cas_result{cas_status::stored, memory_->current.version, {}, {}};
    }

    /// Makes a watch, which may outlive the slot object.
    /// Returns: an error, if the process has no free file descriptor.
    result<std::unique_ptr<slot_watch>, std::error_code> watch() override {
        auto made = std::make_unique<detail::memory_watch>(memory_);
        if (made->fd() < 0) {
            return unexpected{std::make_error_code(std::errc::too_many_files_open)};
        }
        return std::unique_ptr<slot_watch>(std::move(made));
    }

private:
    cas_result put(std::string&& next) noexcept {
        if (next.size() > largest_value) {
            return {cas_status::failed, 0, {}, durable_errc::too_large};
        }
        memory_->current.value = std::move(next);
        ++memory_->current.version;
        for (const detail::memory_watch* const watch : memory_->watches) {
            watch->notify();
        }
        return {cas_status::stored, memory_->current.version, {}, {}};
    }

    std::shared_ptr<detail::slot_memory> memory_ = std::make_shared<detail::slot_memory>();
};

}} // namespace bide::BIDE_ABI

#endif
