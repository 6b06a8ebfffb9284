// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_OPTIONS_HPP
#define BIDE_DURABLE_OPTIONS_HPP

/// \file
/// The tickets, options, observer and requests of a durable lock, and the result of one step.

#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>

#include <chrono>
#include <stop_token>
#include <vector>

namespace bide { inline namespace BIDE_ABI {

/// The identity of a contender. If the ticket was stored, a process that was restarted can continue
/// with the grant. A second contender that uses the ticket at the same time shares the grant: if
/// one of them releases or loses it, so does the other.
struct durable_ticket {
    std::string holder_id{}; ///< its name, for people; need not be unique
    std::string nonce{};     ///< identifies the contender: 128 random bits, in hexadecimal
    std::int64_t weight = 1; ///< the permits that it asks for

    /// If true, the ticket's grant and its place in the queue end with the process that uses the
    /// ticket. Leave it false if another process is to take over the ticket, or if the work
    /// continues in other processes.
    bool process_bound = false;

    /// The token of the grant; 0 before the grant. Renewals and releases apply to this grant only.
    std::int64_t fence = 0;

    /// Returns the ticket as one line of JSON.
    std::string to_string() const;

    /// Reads a ticket from the text of to_string().
    /// Returns: the ticket, or durable_errc::invalid_argument or unsupported_record_version.
    static result<durable_ticket, std::error_code> parse(std::string_view text);

    friend bool operator==(const durable_ticket&, const durable_ticket&) = default;
};

/// Why a grant was lost.
enum class durable_loss {
    none,    ///< it is not lost
    expired, ///< the lease ended before a renewal was confirmed
    removed, ///< the record has no such grant: an administrator removed it, or the record is lost
    forked   ///< this process is a child of the process that holds the grant
};

/// Receives what happens to the contenders of one lock object, from threads that use the lock and
/// from threads of bide. A function that blocks delays the leases of other locks.
/// Requires: the overrides are safe for concurrent calls.
class durable_observer {
public:
    durable_observer& operator=(durable_observer&&) = delete;
    virtual ~durable_observer() = default;

    /// A contender waits, and `ahead` waiters are before it. Called again when the number changes.
    virtual void waits(const durable_ticket&, std::int64_t /* ahead */) noexcept {}
    /// A contender acquired its permits after `waited`.
    virtual void acquired(const durable_ticket&, std::chrono::milliseconds /* waited */) noexcept {}
    /// A contender gave up after `waited`: a timeout, a stop, or an error. Not called if the
    /// acquisition ends with an exception.
    virtual void gave_up(const std::error_code& /* why */,
                         std::chrono::milliseconds /* waited */) noexcept {}

    /// A renewal was confirmed when more than half of the lease had passed. `left` was the rest of
    /// the lease less the margin.
    virtual void renewed_late(const durable_ticket&,
                              std::chrono::milliseconds /* left */) noexcept {}
    /// Two thirds of the time until the loss have passed without a renewal. The lock is lost after
    /// `left`, unless a renewal is confirmed before.
    virtual void at_risk(const durable_ticket&, std::chrono::milliseconds /* left */) noexcept {}
    /// The lock was lost.
    virtual void lost(const durable_ticket&, durable_loss /* why */) noexcept {}
    /// The permits were released after they were held for `held`.
    virtual void released(const durable_ticket&, std::chrono::milliseconds /* held */) noexcept {}

    /// An operation on the store failed. The lock may try it again.
    virtual void store_failed(const std::error_code&) noexcept {}
};

/// The options of a durable lock. All contenders of a record need the same clock.
struct durable_options {
    /// How long a grant lasts without a renewal. With auto_renew, contenders wait for this time
    /// after a crash of the holder; with lock_clock::observed, for this time plus the fraction
    /// `drift` of it. Without auto_renew, set a time that is longer than any holder needs the lock.
    std::chrono::milliseconds lease{30'000};

    /// How long the queue keeps a waiter that does not refresh its place. Zero means the lease.
    std::chrono::milliseconds waiter_ttl{0};

    /// How long before the end of its lease a holder regards the lock as lost. It has to be less
    /// than the lease. Zero means a tenth of the lease plus 1 ms.
    std::chrono::milliseconds margin{0};

    /// How many contenders may wait. A further one gets durable_errc::queue_full.
    std::size_t max_waiters = 1024;

    /// If true, a record without holders and waiters adopts this lock's number of permits.
    /// Otherwise a lock with another number is refused (durable_errc::permits_mismatch), unless the
    /// record was resized: then each lock adopts the record's number.
    bool adopt_permits = false;

    /// The clock of the record. The default is the clock that the slot's guarantees name.
    std::optional<lock_clock> clock{};

    /// The tolerance for clocks that run at different rates. If a contender has seen a lease
    /// unchanged for longer than lease * (1 + drift), the lease has expired for that contender, on
    /// any clock except durable_options::now.
    double drift = 0.1;

    /// If true, a guard renews its lease each time that a third of the lease has passed. Renewals
    /// run on threads of bide, one after the other for all locks on one server.
    bool auto_renew = true;

    /// If true, the tickets that acquire() makes are bound to this process: when the process ends,
    /// their grants and places in the queue end. Contenders in other containers learn of that end
    /// through a mark of presence (slot_presence), which is an open file. A process that closes
    /// this file loses its grants.
    bool process_bound = true;

    /// The name in the tickets that acquire() makes; "<host>:<pid>" if it is empty.
    std::string holder_id{};

    /// How long an operation is retried while other contenders keep changing the record
    /// (durable_errc::conflict_timeout), or while another thread's store call is under way
    /// (durable_errc::store_busy). Also how long a waiting acquire() tolerates a store that fails.
    std::chrono::milliseconds retry_time{10'000};

    /// How long a call still waits for the store after its timeout, a stop or a cancellation. A
    /// store call that has not ended by then continues on a store thread, which releases what it
    /// acquires. A slower store, as over a WAN, needs a larger value. On a store of this machine
    /// (memory, file, SQLite), the first call of an acquisition may last retry_time longer.
    std::chrono::milliseconds attempt_limit{80};

    /// The interval at which a waiting acquire() reads the record. It is `poll_least` while the
    /// queue moves, and grows while it stands still, and with the number of contenders ahead. A
    /// process of this machine that frees permits wakes the waiter earlier.
    std::chrono::milliseconds poll_least{1};
    /// The longest interval.
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
    /// is a mark of presence (slot_presence). Children may inherit the descriptor. The destructor
    /// of the guard leaves the grant to them; release() ends it. While the slot can see the mark,
    /// the grant does not expire; otherwise its lease counts, which the guard renews. If the slot
    /// keeps no marks (file and SQLite slots on Linux do), or if the request has a ticket, the
    /// error is errc::operation_not_supported.
    bool inheritable = false;

    /// How long to wait. If it is zero or negative, acquire() does as try_acquire(): it reads the
    /// record once, and does not enter the queue.
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max();
    /// Ends the wait when a stop is requested.
    std::stop_token stop{};

    /// The identity, if another process may take over the grant. By default, a new ticket.
    std::optional<durable_ticket> ticket{};

    /// The minimum hold time: for so long after the grant, no other contender gets the permits,
    /// even if the guard releases earlier or its process ends. So a job that several machines start
    /// runs only once, if this time is longer than the difference between their clocks. If the
    /// ticket holds its permits already, the minimum hold time of that grant stays.
    std::chrono::milliseconds at_least{0};

    /// A text about the contender, for people that inspect() the lock: at most 256 bytes of UTF-8.
    std::string note{};
    /// Names and values for programs that inspect() the lock. The record keeps them sorted by name.
    std::vector<std::pair<std::string, std::string>> labels{};

    /// Called with the number of waiters ahead, when the contender begins to wait and when the
    /// number changes. It runs on the thread that calls the store. If the function throws, the
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

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/locks.hpp> // has the definitions
#endif

#endif
