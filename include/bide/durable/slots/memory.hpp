// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_MEMORY_HPP
#define BIDE_DURABLE_SLOTS_MEMORY_HPP

/// \file
/// A slot in the memory of this process: for tests, and for locks among the threads of one process.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>

#include <cstddef>
#include <memory>
#include <string_view>
#include <system_error>

namespace bide { inline namespace BIDE_ABI {

namespace detail {
struct slot_memory;
} // namespace detail

/// A slot in the memory of this process. A copy is a slot object over the same memory; two threads
/// may use two copies at the same time.
///
/// After fork() the child has a memory of its own with the same value. A change in one process does
/// not reach the other. The child's copies of the parent's watches return errors. If a process
/// forks while another thread uses the memory, the child's mutex may stay locked.
class memory_slot : public slot {
public:
    /// What the slot promises. A process that relies on the value ends with the value.
    static constexpr slot_guarantees guarantees{true, false, lock_clock::boottime};

    /// The largest value in bytes. A longer value fails with durable_errc::too_large.
    static constexpr std::size_t largest_value = std::size_t{64} << 20;

    /// Makes a new memory without a value.
    /// Throws: std::bad_alloc, as do all operations; the operation has no effect then.
    memory_slot();

    /// Reads the value.
    /// Requires: the slot was not moved from; this holds for all operations.
    result<slot_snapshot, std::error_code> load() override;

    /// Stores the value if the version is still the current one.
    cas_result compare_exchange(slot_version version, std::string_view value) override;

    /// Calls the update under the mutex and stores what it returns.
    /// Requires: the update uses no slot object over this memory.
    /// Throws: what the update throws; nothing is stored then.
    cas_result update_locked(const slot_update& update) override;

    /// Makes a watch, which may outlive the slot object.
    /// Returns: an error, if the process has no free file descriptor.
    result<std::unique_ptr<slot_watch>, std::error_code> watch() override;

private:
    std::shared_ptr<detail::slot_memory> memory_;
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/slots/impl/memory.hpp>
#endif

#endif
