#ifndef BIDE_DURABLE_DURABLE_SEMAPHORE_HPP
#define BIDE_DURABLE_DURABLE_SEMAPHORE_HPP

// A counting semaphore that outlives processes: "at most three calls to the vendor at once", over
// all processes and machines that share a slot, and over their crashes. First come, first served;
// who crashes is not waited for longer than its lease; every grant has a token, larger than all
// before, by which a resource can tell a holder that does not know yet that it is not one any more.
//
// A child of fork() can use its copy, whatever the threads of its parent did at the time of the fork;
// the slot says what that means for the slot. The child holds nothing of what its parent does.
//
// The design follows "Durable Concurrency" of the Weft documentation, with waiters that expire,
// fencing tokens, and clocks that need not agree.

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

// Any thread. Guards may outlive it; copies are the same semaphore.
//
// Besides what is here it has the steps of an acquisition by ticket, also inside a transaction of the
// caller's, inspect() and admin(): durable/detail/durable_lock.hpp.
class durable_semaphore : public detail::durable_lock {
public:
    // All contenders need the same number of permits; the first one's is written down, and others
    // are refused (durable_errc::permits_mismatch).
    // Throws: std::system_error (durable_errc::invalid_argument) for options that cannot be meant.
    durable_semaphore(slot_ref slot, std::int64_t permits, durable_options options = {})
        : durable_lock(std::move(slot), permits, std::move(options)) {}

    // For a slot that may forget what it acknowledged.
    template <cas_slot S>
    durable_semaphore(allow_relaxed_t, S slot, std::int64_t permits, durable_options options = {})
        : durable_lock(slot_ref(allow_relaxed, std::move(slot)), permits, std::move(options)) {}

    // A contender of its own, for try_acquire() or acquire_request::ticket; not bound to this
    // process. Without a name it gets that of the options.
    durable_ticket ticket(std::string holder_id = {}, std::int64_t weight = 1) const {
        return make_ticket(std::move(holder_id), weight);
    }

    // Waits for its turn. Errors: errc::timeout, errc::stopped, and then it has left the queue;
    // durable_errc; the store's, when it has failed for longer than durable_options::patience.
    // Blocks: until then. With a timeout or a stop token it calls the store on a store thread, and
    // returns durable_options::attempt_limit after its time or the stop at the latest. A call to
    // the store that is under way then leaves the queue when it ends. Without either it calls the
    // store on this thread, and waits for each operation of the slot to end.
    // Throws: std::system_error where a thread cannot be started, std::bad_alloc; it has left the
    // queue then, too.
    // Cancel: what can be had at once is, even stopped or without any time.
    result<durable_guard, std::error_code> acquire(acquire_request request = {}) {
        return wait(std::move(request));
    }

    // One look, without waiting and without a trace in the queue, past which it does not go. Errors:
    // as acquire(); errc::timeout where it is not to be had within durable_options::attempt_limit.
    // Blocks: for the store, on a store thread, for that long at most.
    result<durable_guard, std::error_code> try_acquire(std::int64_t weight = 1) {
        return wait(now_or_never(weight));
    }
    using durable_lock::try_acquire;

    // As acquire(), for a coroutine. No thread waits between looks, and no look runs on a thread
    // that resumes the coroutine: all calls to the store run on store threads. The guard's calls,
    // too.
    // Cancel: a cancelled task, and one that is destroyed, leaves the queue. A cancelled task goes
    // on durable_options::attempt_limit later at the latest.
    task<result<durable_guard, std::error_code>> async_acquire(acquire_request request = {}) {
        return async_wait(std::move(request));
    }

    std::int64_t permits() const noexcept { return permit_count(); }
};

} // namespace bide::inline BIDE_ABI

#endif
