#ifndef BIDE_DURABLE_OPTIONS_HPP
#define BIDE_DURABLE_OPTIONS_HPP

// What a durable lock is told, and what it answers.

#include <bide/core/config.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/ticket.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

namespace bide::inline BIDE_ABI {

class scheduler;

struct durable_options {
    // For how long a hold is good without being renewed. With auto_renew: how soon others go on
    // after a crash (with lock_clock::observed they wait by `drift` longer, and everywhere by
    // reclaim_delay); without: longer than a holder ever takes.
    std::chrono::milliseconds lease{30'000};

    // For how long a place in the queue is kept for one that is not heard of. 0: as the lease.
    std::chrono::milliseconds waiter_ttl{0};

    // How much before the end of its lease a holder takes it for lost; less than the lease. 0: a
    // tenth of the lease, and a millisecond.
    std::chrono::milliseconds margin{0};

    // How long others wait after the end of a lease, for resources that cannot check tokens: what
    // the holder had on its way should have come to an end by then. Processes that are gone are
    // waited for as well, but an inheritable hold for no longer than its last renewal and this.
    std::chrono::milliseconds reclaim_delay{0};

    std::size_t max_waiters = 1024;

    // A record that has neither holders nor waiters takes this lock's number of permits. Otherwise a
    // lock with another number is refused: durable_errc::permits_mismatch.
    bool adopt_permits = false;

    // The clock of the record; the slot's own where none is given. All contenders need the same.
    std::optional<lock_clock> clock{};

    // By how much of its length longer a lease is observed before it is over, as clocks go at different
    // rates: 0.1 is a tenth. With lock_clock::observed this ends a lease; on every other clock but a
    // caller's own it bounds one whose end the clock does not show, or not in time.
    double drift = 0.1;

    // A lease that is over, and that nobody has taken or waits for, can be renewed all the same.
    bool revive = false;

    // A guard renews its lease, every third of it; as a task on this scheduler, or on a thread,
    // which is the lock's own or that of all locks of this process that share its store. The thread
    // starts when the first renewal is due, and ends some seconds after the last hold.
    bool auto_renew = true;
    scheduler* renew_on = nullptr;

    // Whether the tickets that acquire() makes itself are bound to this process. Contenders in other
    // containers see by a mark of the slot's that it has ended, which is a file of this process: one
    // that closes files it did not open gives up what it holds.
    bool process_bound = true;

    // The name on these tickets; "<host>:<pid>" where it is empty.
    std::string holder_id{};

    // How long one operation tries while others keep changing the record
    // (durable_errc::conflict_timeout), or waits for another thread's call to the store
    // (durable_errc::store_busy); also how long a waiting acquire() puts up with a store that
    // fails. inspect() and the calls of durable_admin return after this time and attempt_limit at
    // the latest.
    std::chrono::milliseconds patience{10'000};

    // How long a call waits for the store beyond the caller's own time. try_acquire() has no time
    // of its own, so this is its limit. acquire() with a timeout, or with a stop that was
    // requested, returns after this time at the latest, and so does a cancelled async_acquire(). A
    // call to the store that is under way then goes on on a store thread, which takes back what it
    // comes to. A store that answers more slowly, over a WAN for example, needs more.
    std::chrono::milliseconds attempt_limit{80};

    // How often a waiting acquire() looks: after the least time while the queue moves, then, the
    // longer that stands and the more are ahead, up to the most. A slot that can be watched wakes it.
    std::chrono::milliseconds poll_least{1};
    std::chrono::milliseconds poll_most{1'000};

    // lock_clock::caller: the time for acquire(), async_acquire() and guards, since any epoch; the
    // system clock's, since 1970, where there is none.
    std::function<std::chrono::milliseconds()> now{};
};

struct acquire_request {
    std::int64_t weight = 1; // permits; a ticket brings its own

    // The hold lasts as long as any process has durable_guard::descriptor() open, which children may
    // inherit: this process and its children may end in any order, and the guard's destructor leaves
    // the hold to the children. release() gives it back although children have it. No lease ends it
    // as long as the slot can see that; the guard renews one all the same, for the time when it
    // cannot. Errors: errc::operation_not_supported where the slot keeps no marks (file and SQLite
    // on Linux do), or with a ticket.
    bool inheritable = false;

    // Zero or less: one look, without waiting and without a place in the queue, for attempt_limit at
    // most.
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max();
    std::stop_token stop{};

    // For a hold that another process may take up; else one is made.
    std::optional<durable_ticket> ticket{};
};

// What one step of an acquisition has come to.
struct durable_attempt {
    bool acquired = false;
    std::int64_t fence = 0;    // acquired: larger than every one before
    std::int64_t lane = 0;     // acquired: below the number of permits; no other holder has it
    std::int64_t position = 0; // not acquired: how many are ahead

    // Not acquired: when the next lease is over, if it is not renewed; zero where that is not known.
    std::chrono::milliseconds retry_in{0};
};

} // namespace bide::inline BIDE_ABI

#endif
