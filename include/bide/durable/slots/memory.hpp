// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_MEMORY_HPP
#define BIDE_DURABLE_SLOTS_MEMORY_HPP

/// \file
/// A slot in the memory of this process: for tests, and for locks among the threads of one process.

#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>

#include <mutex>

namespace bide { inline namespace BIDE_ABI {

/// A slot in the memory of this process. Copies of a slot object use the same memory. Two threads
/// may use two copies at the same time.
///
/// After fork() the child has its own memory with the same value. If a process forks while another
/// thread uses the memory, the child's mutex may stay locked.
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

private:
    struct memory {
        std::mutex mutex;
        slot_snapshot current{};
    };

    cas_result put(std::string&& next) noexcept {
        if (next.size() > largest_value) {
            return {cas_status::failed, 0, {}, durable_errc::too_large};
        }
        memory_->current.value = std::move(next);
        ++memory_->current.version;
        return {cas_status::stored, memory_->current.version, {}, {}};
    }

    std::shared_ptr<memory> memory_ = std::make_shared<memory>();
};

}} // namespace bide::BIDE_ABI

#endif
