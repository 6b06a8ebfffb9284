// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_OPTIONS_HPP
#define BIDE_DURABLE_OPTIONS_HPP

/// \file
/// The options of a durable lock, its requests, and what one step of an acquisition returns.

#include <bide/durable/observer.hpp>
#include <bide/durable/slot.hpp>

#include <stop_token>
#include <vector>

namespace bide { inline namespace BIDE_ABI {

/// The options of a durable lock. All contenders of a record need the same clock.
struct durable_options {
    /// How long a grant lasts without a renewal.
    ///
    /// With auto_renew, contenders wait for this time after a crash of the holder; with
    /// lock_clock::observed, for this time plus the fraction `drift` of it. Without auto_renew, the
    /// lease must be longer than a holder ever needs.
    std::chrono::milliseconds lease{30'000};

    /// How long the queue keeps a waiter that does not refresh its place. Zero means the length of
    /// the lease.
    std::chrono::milliseconds waiter_ttl{0};

    /// The time before the end of its lease at which a holder regards the lock as lost; less than
    /// the lease. Zero means a tenth of the lease plus 1 ms.
    std::chrono::milliseconds margin{0};

    /// How long before the loss of the lock its holder is warned (durable_guard::at_risk(),
    /// durable_observer::at_risk()); less than the lease minus the margin. Zero means a third of
    /// that difference. With auto_renew, the renewals have failed for about a third of the lease by
    /// then.
    std::chrono::milliseconds warn_before{0};

    /// How many contenders may wait. A further one gets durable_errc::queue_full.
    std::size_t max_waiters = 1024;

    /// If true, a record without holders and waiters takes this lock's number of permits. Otherwise
    /// a lock with another number is refused: durable_errc::permits_mismatch. Every lock follows a
    /// number that was set by durable_admin::resize().
    bool adopt_permits = false;

    /// The clock of the record. The default is the clock that the slot's guarantees name.
    std::optional<lock_clock> clock{};

    /// The tolerance for clocks that run at different rates, as a fraction of the lease. If a
    /// contender has seen a lease unchanged for longer than lease * (1 + drift), the lease has
    /// expired for that contender, whatever the record's clock shows. With lock_clock::observed,
    /// this is the only way in which a lease expires by time. With lock_clock::caller, this option
    /// has no effect.
    double drift = 0.1;

    /// If true, a guard renews its lease each time that a third of the lease has passed.
    ///
    /// Renewals run on threads of bide, one after the other for all locks of this process that
    /// share a store. A thread is started when a renewal is due, and ends when it was idle for 5 s.
    bool auto_renew = true;

    /// If true, the tickets that acquire() makes are bound to this process: when the process ends,
    /// their grants and places in the queue end.
    ///
    /// Contenders in other containers learn of that end through a mark of presence (slot_presence),
    /// an open file of this process. A process that closes files that it did not open gives up its
    /// grants.
    bool process_bound = true;

    /// The name on these tickets; "<host>:<pid>" if it is empty.
    std::string holder_id{};

    /// How long an operation is retried while other contenders keep changing the record
    /// (durable_errc::conflict_timeout), or while another thread's store call is under way
    /// (durable_errc::store_busy). Also how long a waiting acquire() tolerates a store that fails.
    std::chrono::milliseconds retry_time{10'000};

    /// How long a call waits for the store beyond the caller's own time, which ends by a timeout, a
    /// stop or a cancellation. A store call that has not ended by then continues on a store thread,
    /// which releases what the call acquires. If the store answers more slowly, over a WAN for
    /// example, it needs a larger value.
    ///
    /// try_acquire() has no time of its own, so this is its limit on a store that several machines
    /// share. On a store of this machine (memory, file, SQLite) the first try of an acquisition may
    /// last up to retry_time: so a free lock is acquired even if the disk is slow.
    std::chrono::milliseconds attempt_limit{80};

    /// How often a waiting acquire() reads the record: after `poll_least` while the queue moves.
    /// The interval grows, up to `poll_most`, the longer the queue stands still and the more
    /// contenders are ahead. A slot that can be watched wakes the waiter earlier.
    std::chrono::milliseconds poll_least{1};
    /// The longest interval: see poll_least.
    std::chrono::milliseconds poll_most{1'000};

    /// The clock of lock_clock::caller, from any epoch. The default is the system clock.
    std::function<std::chrono::milliseconds()> now{};

    /// Receives what happens to the contenders of this lock object. The lock object and its guards
    /// share ownership of the observer.
    std::shared_ptr<durable_observer> observer{};
};

/// What a contender asks for.
struct acquire_request {
    /// Makes a request for one permit. This class is no aggregate, because g++ before 13 destroys
    /// aggregates twice in co_await expressions.
    acquire_request() noexcept {}

    /// The number of permits. If there is a ticket, its weight counts instead.
    std::int64_t weight = 1;

    /// If true, the grant lasts as long as any process has durable_guard::descriptor() open, which
    /// is a mark of presence (slot_presence). Children may inherit the descriptor.
    ///
    /// The destructor of the guard leaves the grant to the children; release() releases it although
    /// children have the descriptor. No lease ends the grant while the slot can see the mark. The
    /// guard renews a lease nevertheless, for times when the slot cannot see it.
    ///
    /// The error is errc::operation_not_supported if the slot keeps no marks (file and SQLite slots
    /// on Linux keep them), or if the request has a ticket.
    bool inheritable = false;

    /// How long to wait. If it is zero or negative, acquire() reads the record once and does not
    /// enter the queue. That takes at most durable_options::attempt_limit.
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max();
    /// Ends the wait when a stop is requested.
    std::stop_token stop{};

    /// The identity of the contender, for a grant that another process may take over. By default a
    /// new ticket.
    std::optional<durable_ticket> ticket{};

    /// The minimum hold time: for so long after the grant, no other contender gets the permits,
    /// even if the guard releases earlier or its process ends. If the ticket holds its permits
    /// already, that grant keeps its own.
    ///
    /// A job that several machines start at about the same time runs once, however short it is, if
    /// this is longer than the difference between the machines' clocks.
    std::chrono::milliseconds at_least{0};

    /// A text about the contender, for people that inspect() the lock: at most 256 bytes of UTF-8.
    std::string note{};
    /// Names and values for programs that inspect() the lock. The record keeps them sorted by name.
    std::vector<std::pair<std::string, std::string>> labels{};

    /// Called with the number of waiters that are ahead, when the contender begins to wait and when
    /// the number changes, on the thread that calls the store. If the function throws, the
    /// acquisition ends with that exception.
    std::function<void(std::int64_t ahead)> on_position{};
};

/// The result of one step of an acquisition.
struct durable_attempt {
    bool acquired = false;     ///< the contender holds its permits
    std::int64_t fence = 0;    ///< if acquired: a token larger than all before
    std::int64_t lane = 0;     ///< if acquired: below the number of permits; no other holder has it
    std::int64_t position = 0; ///< if not acquired: how many waiters are ahead

    /// The time until the next lease expires, unless it is renewed; zero if that is not known, or
    /// if the permits were acquired.
    std::chrono::milliseconds retry_in{0};
};

}} // namespace bide::BIDE_ABI

#endif
