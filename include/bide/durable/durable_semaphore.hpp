// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DURABLE_SEMAPHORE_HPP
#define BIDE_DURABLE_DURABLE_SEMAPHORE_HPP

/// \file
/// A counting semaphore that outlives processes.
///
/// It limits, for example, the calls to a vendor to three at once, over all processes and machines
/// that share a slot. Contenders are served first come, first served. If a holder crashes,
/// contenders wait for its lease at most. Every grant has a fencing token that is larger than all
/// earlier tokens. By the token a resource can refuse a holder that has lost the lock and has not
/// noticed.
///
/// A child of fork() can use its copy of the semaphore, whatever the threads of the parent did at
/// the time of the fork. Each slot documents what a fork means for it. The permits of the parent
/// belong to the parent alone.
///
/// The design follows "Durable Concurrency" of the Weft documentation. It adds waiters that expire,
/// fencing tokens, and clocks that need not agree.

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

/// A counting semaphore for all processes and machines that share a slot.
///
/// A guard may outlive the semaphore object. Copies are the same semaphore.
///
/// It also has the operations of detail::durable_lock: single steps by ticket, steps inside a
/// transaction of the caller, inspect() and admin().
///
/// Thread safety: any thread may call any function at any time.
class durable_semaphore : public detail::durable_lock {
public:
    /// Constructs a semaphore of `permits` permits on a slot.
    ///
    /// All contenders need the same number of permits. The first contender stores its number; a
    /// contender with another number is refused (durable_errc::permits_mismatch).
    ///
    /// Throws: std::system_error (durable_errc::invalid_argument) if an option is out of range.
    durable_semaphore(slot_ref slot, std::int64_t permits, durable_options options = {})
        : durable_lock(std::move(slot), permits, std::move(options)) {}

    /// Constructs the semaphore on a slot that may lose acknowledged values; otherwise as above.
    template <any_slot S>
    durable_semaphore(allow_relaxed_t, S slot, std::int64_t permits, durable_options options = {})
        : durable_lock(slot_ref(allow_relaxed, std::move(slot)), permits, std::move(options)) {}

    /// Makes a ticket: the identity of a new contender, for try_acquire() or
    /// acquire_request::ticket.
    ///
    /// The ticket is not bound to this process. If `holder_id` is empty, the ticket has the name
    /// durable_options::holder_id.
    durable_ticket ticket(std::string holder_id = {}, std::int64_t weight = 1) const {
        return make_ticket(std::move(holder_id), weight);
    }

    /// Acquires `request.weight` permits, in the order of arrival.
    ///
    /// Returns: the guard, or an error, and then the contender has left the queue:
    /// - errc::timeout: the permits were not free in time;
    /// - errc::stopped;
    /// - durable_errc::no_answer: the time was up before the store answered;
    /// - the error of a store that failed when the time was up, or for durable_options::retry_time;
    /// - another durable_errc.
    /// Blocks: until the permits are granted or an error is returned. With a timeout or a stop
    /// token it calls the store on a store thread. It returns at most
    /// durable_options::attempt_limit after the timeout or the stop (on a store of this machine, after
    /// retry_time if that is later and the first call has not ended); a store call that is still
    /// running removes the contender from the queue when it ends. Without a timeout and a stop
    /// token it calls the store on this thread, and waits for each operation of the slot to end.
    /// Throws: std::system_error if a thread cannot be started, std::bad_alloc. The contender has
    /// left the queue in this case, too.
    /// Cancellation: permits that are free are granted even if a stop was requested or the timeout
    /// is zero.
    result<durable_guard, std::error_code> acquire(acquire_request request = {}) {
        return wait(std::move(request));
    }

    /// Acquires permits if they are free and no contender is ahead. Does not enter the queue.
    ///
    /// Returns: as acquire(); errc::timeout if the permits are not free; durable_errc::no_answer if
    /// the store takes too long.
    /// Blocks: for the store, on a store thread: on a store of this machine for at most
    /// durable_options::retry_time plus attempt_limit, otherwise for at most attempt_limit.
    result<durable_guard, std::error_code> try_acquire(std::int64_t weight = 1) {
        return wait(now_or_never(weight));
    }
    using durable_lock::try_acquire;

    /// Acquires as acquire() does, for a coroutine, which includes bide/task/task.hpp.
    ///
    /// No thread waits between two tries. Every call to the store runs on a store thread, never on
    /// a thread that resumes the coroutine. The same holds for the calls of the guard.
    ///
    /// Cancellation: a task that is cancelled or destroyed leaves the queue. A cancelled task
    /// resumes at most durable_options::attempt_limit later.
    task<result<durable_guard, std::error_code>> async_acquire(acquire_request request = {});

    /// Returns the number of permits that this object was constructed with.
    std::int64_t permits() const noexcept { return permit_count(); }
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/impl/async_acquire.hpp>
#endif

#endif
