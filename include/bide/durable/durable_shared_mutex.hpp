#ifndef BIDE_DURABLE_DURABLE_SHARED_MUTEX_HPP
#define BIDE_DURABLE_DURABLE_SHARED_MUTEX_HPP

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/durable_lock.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/task/task.hpp>

#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {

// Many readers or one writer, over all processes and machines that share a slot: a durable_semaphore
// of which a reader takes one permit and a writer all. They are served in the order of their coming:
// readers that come after a writer wait behind it. Any thread. Guards may outlive it; copies are the
// same mutex.
//
// Besides what is here it has the steps of an acquisition by ticket, also inside a transaction of the
// caller's, inspect() and admin(): durable/detail/durable_lock.hpp.
class durable_shared_mutex : public detail::durable_lock {
public:
    static constexpr std::int64_t default_readers = 1024;

    // At most so many readers at once; all contenders need the same number.
    // Throws: std::system_error (durable_errc::invalid_argument) for options that cannot be meant.
    explicit durable_shared_mutex(slot_ref slot, durable_options options = {},
                                  std::int64_t max_readers = default_readers)
        : durable_lock(std::move(slot), max_readers, std::move(options)) {}

    // For a slot that may forget what it acknowledged.
    template <cas_slot S>
    durable_shared_mutex(allow_relaxed_t, S slot, durable_options options = {},
                         std::int64_t max_readers = default_readers)
        : durable_lock(slot_ref(allow_relaxed, std::move(slot)), max_readers, std::move(options)) {}

    // All of these are as durable_semaphore's; the request's weight does not count.

    durable_ticket ticket(std::string holder_id = {}) const {
        return make_ticket(std::move(holder_id), permit_count());
    }
    durable_ticket shared_ticket(std::string holder_id = {}) const {
        return make_ticket(std::move(holder_id), 1);
    }

    // The writer's.
    result<durable_guard, std::error_code> acquire(acquire_request request = {}) {
        return wait(weighing(std::move(request), permit_count()));
    }
    result<durable_guard, std::error_code> try_acquire() {
        return wait(now_or_never(permit_count()));
    }
    using durable_lock::try_acquire;
    task<result<durable_guard, std::error_code>> async_acquire(acquire_request request = {}) {
        return async_wait(weighing(std::move(request), permit_count()));
    }

    // A reader's.
    result<durable_guard, std::error_code> acquire_shared(acquire_request request = {}) {
        return wait(weighing(std::move(request), 1));
    }
    result<durable_guard, std::error_code> try_acquire_shared() { return wait(now_or_never(1)); }
    task<result<durable_guard, std::error_code>>
    async_acquire_shared(acquire_request request = {}) {
        return async_wait(weighing(std::move(request), 1));
    }

private:
    static acquire_request weighing(acquire_request request, std::int64_t weight) {
        request.weight = weight;
        return request;
    }
};

} // namespace bide::inline BIDE_ABI

#endif
