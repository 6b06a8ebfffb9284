// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DURABLE_SHARED_MUTEX_HPP
#define BIDE_DURABLE_DURABLE_SHARED_MUTEX_HPP

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/durable_lock.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/fwd.hpp>

#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

/// A shared mutex for all processes and machines that share a slot: many readers or one writer.
///
/// It is a durable_semaphore: a reader takes one permit, a writer takes all. Contenders are served
/// in the order of arrival, so a reader that arrives after a writer waits behind it. A guard may
/// outlive the mutex object. Copies are the same mutex.
///
/// It also has the operations of detail::durable_lock: single steps by ticket, steps inside a
/// transaction of the caller, inspect() and admin().
///
/// Thread safety: any thread may call any function at any time.
class durable_shared_mutex : public detail::durable_lock {
public:
    /// The number of readers at once, unless the constructor gets another number.
    static constexpr std::int64_t default_readers = 1024;

    /// Constructs a shared mutex for at most `max_readers` readers at once. All contenders need the
    /// same number.
    ///
    /// Throws: std::system_error (durable_errc::invalid_argument) if an option is out of range.
    explicit durable_shared_mutex(slot_ref slot, durable_options options = {},
                                  std::int64_t max_readers = default_readers)
        : durable_lock(std::move(slot), max_readers, std::move(options)) {}

    /// Constructs the mutex on a slot that may lose acknowledged values; otherwise as above.
    template <any_slot S>
    durable_shared_mutex(allow_relaxed_t, S slot, durable_options options = {},
                         std::int64_t max_readers = default_readers)
        : durable_lock(slot_ref(allow_relaxed, std::move(slot)), max_readers, std::move(options)) {}

    /// Makes the ticket of a writer as durable_semaphore::ticket() does.
    durable_ticket ticket(std::string holder_id = {}) const {
        return make_ticket(std::move(holder_id), permit_count());
    }
    /// Makes the ticket of a reader.
    durable_ticket shared_ticket(std::string holder_id = {}) const {
        return make_ticket(std::move(holder_id), 1);
    }

    /// Acquires the mutex for a writer as durable_semaphore::acquire() does. The weight of the
    /// request is ignored.
    result<durable_guard, std::error_code> acquire(acquire_request request = {}) {
        return wait(weighing(std::move(request), permit_count()));
    }
    /// Acquires the mutex for a writer as durable_semaphore::try_acquire() does.
    result<durable_guard, std::error_code> try_acquire() {
        return wait(now_or_never(permit_count()));
    }
    using durable_lock::try_acquire;
    /// Acquires the mutex for a writer as durable_semaphore::async_acquire() does.
    task<result<durable_guard, std::error_code>> async_acquire(acquire_request request = {});

    /// Acquires the mutex for a reader as durable_semaphore::acquire() does. The weight of the
    /// request is ignored.
    result<durable_guard, std::error_code> acquire_shared(acquire_request request = {}) {
        return wait(weighing(std::move(request), 1));
    }
    /// Acquires the mutex for a reader as durable_semaphore::try_acquire() does.
    result<durable_guard, std::error_code> try_acquire_shared() { return wait(now_or_never(1)); }
    /// Acquires the mutex for a reader as durable_semaphore::async_acquire() does.
    task<result<durable_guard, std::error_code>> async_acquire_shared(acquire_request request = {});

private:
    static acquire_request weighing(acquire_request request, std::int64_t weight) {
        request.weight = weight;
        return request;
    }
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/impl/async_acquire.hpp>
#endif

#endif
