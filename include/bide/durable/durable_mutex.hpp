// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DURABLE_MUTEX_HPP
#define BIDE_DURABLE_DURABLE_MUTEX_HPP

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/durable_lock.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/fwd.hpp>

#include <string>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

/// A mutex for all processes and machines that share a slot. It survives their crashes.
///
/// It is a durable_semaphore of one permit. It is not recursive: a holder that acquires it again
/// waits, unless it uses the same ticket. A guard may outlive the mutex object. Copies are the same
/// mutex.
///
/// It also has the operations of detail::durable_lock: single steps by ticket, steps inside a
/// transaction of the caller, inspect() and admin().
///
/// Thread safety: any thread may call any function at any time.
class durable_mutex : public detail::durable_lock {
public:
    /// Throws: std::system_error (durable_errc::invalid_argument) if an option is out of range.
    explicit durable_mutex(slot_ref slot, durable_options options = {})
        : durable_lock(std::move(slot), 1, std::move(options)) {}

    /// Constructs the mutex on a slot that may lose acknowledged values; otherwise as above.
    template <any_slot S>
    durable_mutex(allow_relaxed_t, S slot, durable_options options = {})
        : durable_lock(slot_ref(allow_relaxed, std::move(slot)), 1, std::move(options)) {}

    /// Makes a ticket as durable_semaphore::ticket() does.
    durable_ticket ticket(std::string holder_id = {}) const {
        return make_ticket(std::move(holder_id), 1);
    }
    /// Acquires the mutex as durable_semaphore::acquire() does.
    result<durable_guard, std::error_code> acquire(acquire_request request = {}) {
        return wait(std::move(request));
    }
    /// Acquires the mutex as durable_semaphore::try_acquire() does.
    result<durable_guard, std::error_code> try_acquire() { return wait(now_or_never(1)); }
    using durable_lock::try_acquire;
    /// Acquires the mutex as durable_semaphore::async_acquire() does.
    task<result<durable_guard, std::error_code>> async_acquire(acquire_request request = {});
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/impl/async_acquire.hpp>
#endif

#endif
