#ifndef BIDE_DURABLE_DURABLE_MUTEX_HPP
#define BIDE_DURABLE_DURABLE_MUTEX_HPP

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/durable_lock.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/task/task.hpp>

#include <string>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {

// One at a time, over all processes and machines that share a slot, and over their crashes: a
// durable_semaphore of one permit. Not recursive: who holds it and acquires it again waits, unless
// it comes with the same ticket. Any thread. Guards may outlive it; copies are the same mutex.
//
// Besides what is here it has the steps of an acquisition by ticket, also inside a transaction of the
// caller's, inspect() and admin(): durable/detail/durable_lock.hpp.
class durable_mutex : public detail::durable_lock {
public:
    // Throws: std::system_error (durable_errc::invalid_argument) for options that cannot be meant.
    explicit durable_mutex(slot_ref slot, durable_options options = {})
        : durable_lock(std::move(slot), 1, std::move(options)) {}

    // For a slot that may forget what it acknowledged.
    template <cas_slot S>
    durable_mutex(allow_relaxed_t, S slot, durable_options options = {})
        : durable_lock(slot_ref(allow_relaxed, std::move(slot)), 1, std::move(options)) {}

    // All of these are as durable_semaphore's.

    durable_ticket ticket(std::string holder_id = {}) const {
        return make_ticket(std::move(holder_id), 1);
    }
    result<durable_guard, std::error_code> acquire(acquire_request request = {}) {
        return wait(std::move(request));
    }
    result<durable_guard, std::error_code> try_acquire() { return wait(now_or_never(1)); }
    using durable_lock::try_acquire;
    task<result<durable_guard, std::error_code>> async_acquire(acquire_request request = {}) {
        return async_wait(std::move(request));
    }
};

} // namespace bide::inline BIDE_ABI

#endif
