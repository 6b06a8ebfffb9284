// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_LOCKS_HPP
#define BIDE_DURABLE_LOCKS_HPP

/// \file
/// Locks that outlive processes: durable_semaphore, durable_mutex, durable_shared_mutex.
///
/// All processes and machines that share a slot share the lock. Contenders acquire it in the order
/// of their arrival. If a holder crashes, contenders wait at most until its lease expires.
///
/// Copies of a lock object are the same lock. A guard may outlive the lock object. A child of
/// fork() can use its copy of a lock, even if threads of the parent used the lock during the fork.
/// The permits of the parent stay with the parent. Each slot documents its use after a fork.
///
/// Blocks: a call to the store tries again for at most durable_options::retry_time. If the call is
/// made on the calling thread, its last operation may end later. If it is made on a store thread,
/// the caller waits at most durable_options::attempt_limit longer.
///
/// Thread safety: any thread may call any function of a lock at any time.
///
/// The design follows "Durable Concurrency" of the Weft documentation.

#include <bide/durable/options.hpp>
#include <bide/durable/record_types.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {
class acquisition;
class grant;
class lock_engine;
} // namespace detail

/// Holds permits of a durable lock, and releases them on destruction.
///
/// \code
/// bide::durable_mutex nightly(bide::file_slot("nightly.lock"));
/// auto held = nightly.acquire();
/// while (held && !held->lost().stop_requested()) {
///     work(held->fence()); // the resource refuses older tokens
/// }
/// \endcode
///
/// The guard renews its lease in the background (durable_options::auto_renew). If a holder is
/// suspended for longer than its lease, another contender may acquire the lock. So let the resource
/// refuse tokens older than the latest.
///
/// Requires: for every member function except the destructor and the assignment, the guard was not
/// moved from, released or detached.
///
/// Thread safety: one thread at a time. Any thread may use the token of lost().
class [[nodiscard]] durable_guard {
public:
    /// Takes over the grant of another guard.
    durable_guard(durable_guard&&) noexcept = default;
    /// Releases the grant of this guard as the destructor does, and takes over that of `other`.
    durable_guard& operator=(durable_guard&& other) noexcept {
        durable_guard taken(std::move(other));
        grant_.swap(taken.grant_);
        return *this;
    }

    /// Releases the permits. An inheritable grant is handed over as by hand_over(). If the store
    /// fails, the permits are free when the lease expires.
    /// Blocks: as release() does; not at all if the lock is lost.
    ~durable_guard();

    /// Returns the fencing token, which is larger than that of every earlier grant.
    std::int64_t fence() const noexcept { return ticket().fence; }

    /// Returns a number from 0 to the number of permits minus 1 that no other holder has. It is 0
    /// for a mutex and for a writer.
    std::int64_t lane() const noexcept;

    /// Returns the ticket of this grant.
    const durable_ticket& ticket() const noexcept;

    /// Returns a token that is stopped when the lock is lost. The lock is lost when a renewal finds
    /// the grant gone, or when the lease less the margin has ended on the clock of this machine. A
    /// store that hangs does not delay the stop. A release does not stop the token.
    ///
    /// Its callbacks run on the thread that monitors all leases of the process, or on a thread that
    /// renews leases. A callback that blocks delays the other leases that the thread serves.
    std::stop_token lost() const noexcept;

    /// Returns why the lock is lost; durable_loss::none while it is held.
    durable_loss loss() const noexcept;

    /// Returns true if the lock is not lost and the lease has not expired.
    bool is_held() const noexcept;

    /// Returns the time until the end of the lease less the margin, on the clock of this machine.
    /// Returns zero if the lock is lost.
    std::chrono::milliseconds remaining() const noexcept;

    /// Renews the lease: it begins again now.
    /// Returns: durable_errc::lock_lost, or the error of the store. After the latter, the caller
    /// may try again while is_held().
    /// Blocks: for the store. A guard of async_acquire() calls it by a store thread.
    result<void, std::error_code> renew();

    /// Releases the permits. Afterwards the guard holds nothing, even if an error is returned.
    /// Returns: durable_errc::lock_lost if the lock was lost before. After an error of the store,
    /// or errc::timeout, the permits are free when the lease expires at the latest.
    /// Blocks: as renew().
    result<void, std::error_code> release();

    /// Renews as renew() does, for a coroutine, on a store thread. No thread waits for the store.
    /// Returns: errc::timeout after durable_options::retry_time plus attempt_limit.
    /// Cancellation: returns errc::stopped; the store thread continues the renewal.
    task<result<void, std::error_code>> async_renew();
    /// Releases as release() does, for a coroutine, on a store thread. As soon as this function
    /// returns, the guard holds nothing. If the task is destroyed before it is awaited, it releases
    /// the permits as the destructor of the guard does.
    task<result<void, std::error_code>> async_release();

    /// Returns the descriptor of an inheritable grant (acquire_request::inheritable), otherwise -1.
    /// It is close-on-exec: a child inherits it if that flag is cleared between fork() and exec.
    /// Requires: this process does not close the descriptor.
    int descriptor() const noexcept;

    /// Leaves an inheritable grant to children that have the descriptor. The guard is empty then.
    /// Returns: true if a child has the descriptor open, or may have it open; false if the permits
    /// were released because no process has it open; errors as release().
    /// Blocks: as renew().
    result<bool, std::error_code> hand_over();

    /// Detaches the grant from the guard: the permits stay held, without renewal, for a caller that
    /// has the ticket. An inheritable grant lasts as long as a child has its descriptor open. The
    /// mark of presence (slot_presence) of a ticket that is bound to this process stays open until
    /// a lock object of this process has released the grant or found it lost.
    /// Throws: std::bad_alloc; then nothing changes.
    durable_ticket detach();

private:
    friend class detail::acquisition;
    explicit durable_guard(std::shared_ptr<detail::grant> held) noexcept
        : grant_(std::move(held)) {}

    static task<result<void, std::error_code>> release_task(durable_guard mine);

    std::shared_ptr<detail::grant> grant_;
};

/// The operations of an administrator, which is not a contender of the lock.
///
/// The record keeps a note of the latest such change: its time, its author, what changed and why.
/// After durable_errc::indeterminate, the change may have been made, or may still be made.
///
/// Blocks: every call waits for the store, which is called on a store thread.
class durable_admin {
public:
    /// Takes away the grant that has the token `fence`. The holder learns of it when its next
    /// renewal fails. Until then only a resource that checks tokens refuses it.
    /// Returns: false if there is no such grant.
    result<bool, std::error_code> force_release(std::int64_t fence, std::string_view why);

    /// Changes the number of permits. Lock objects and waiters that were made with another number
    /// adopt the new one, whatever durable_options::adopt_permits says. A contender that asks for
    /// more permits gets durable_errc::permits_mismatch. Holders keep their permits and can renew
    /// them. If they have more than the new number, none is granted until enough are released.
    /// Returns: false if there is no record, or if `permits` is not a valid number of permits.
    result<bool, std::error_code> resize(std::int64_t permits, std::string_view why);

    /// Replaces a record that cannot be read, or that is missing, by one without holders and
    /// waiters. The tokens begin with the larger of `min_fence` and durable::floor_of(). If the
    /// store itself is damaged and the slot does not offer replace_damaged(), the error is
    /// durable_errc::corrupt_record until the damaged data are removed.
    /// Returns: false if the record can be read; it is left as it is.
    result<bool, std::error_code> repair(std::int64_t min_fence, std::string_view why);

private:
    friend class durable_semaphore;
    durable_admin(std::shared_ptr<detail::lock_engine> engine, std::string by)
        : engine_(std::move(engine)), by_(std::move(by)) {}

    std::shared_ptr<detail::lock_engine> engine_;
    std::string by_;
};

/// A counting semaphore for all processes and machines that share a slot: for example, at most
/// three calls to a vendor at once.
///
/// \code
/// bide::durable_semaphore calls(bide::file_slot("vendor.lock"), 3); // three holders on this machine
/// auto held = calls.acquire(); // in a coroutine: co_await calls.async_acquire()
/// if (!held) std::puts(held.error().message().c_str());
/// \endcode
class durable_semaphore {
public:
    /// Constructs a semaphore of `permits` permits on a slot. The first contender stores its
    /// number. A contender with another number is refused (durable_errc::permits_mismatch).
    /// Throws: std::system_error (durable_errc::invalid_argument) if an option is out of range.
    durable_semaphore(slot_ref slot, std::int64_t permits, durable_options options = {});

    /// Returns the number of permits that this object was constructed with.
    std::int64_t permits() const noexcept;

    /// Acquires `request.weight` permits, in the order of arrival.
    /// Returns: the guard, or an error, after which the contender leaves the queue:
    /// - errc::timeout: the permits were not free in time;
    /// - errc::stopped;
    /// - durable_errc::no_answer: the time was up before the store answered;
    /// - the error of the store: at once if may_pass() is false for it; otherwise if the store
    ///   still failed when the time was up, or failed for all of durable_options::retry_time;
    /// - the error of the system if no thread for the store can be started;
    /// - another durable_errc.
    /// Blocks: until the permits are granted or an error is returned. Without a timeout and a stop
    /// token, the calling thread calls the store. Otherwise a store thread does, and acquire()
    /// returns at most durable_options::attempt_limit after the timeout or the stop.
    /// Throws: std::system_error if a service thread cannot be started, std::bad_alloc, and what
    /// acquire_request::on_position throws. The contender leaves the queue in this case, too.
    /// Cancellation: free permits are granted even after a stop, or if the timeout is zero.
    result<durable_guard, std::error_code> acquire(acquire_request request = {}) const;

    /// Acquires as acquire() does, for a coroutine. Every call to the store, also of the guard,
    /// runs on a store thread, never on a thread that resumes the coroutine.
    /// Requires: the caller includes bide/task/task.hpp.
    /// Cancellation: a task that is cancelled or destroyed leaves the queue. A cancelled task
    /// resumes at most durable_options::attempt_limit later.
    task<result<durable_guard, std::error_code>> async_acquire(acquire_request request = {}) const;

    /// Acquires permits if they are free and no contender is ahead. Does not enter the queue.
    /// Returns: as acquire(); errc::timeout if the permits are not free; durable_errc::no_answer if
    /// the store takes too long.
    /// Blocks: as acquire() with a timeout of zero.
    result<durable_guard, std::error_code> try_acquire(std::int64_t weight = 1) const {
        acquire_request request;
        request.weight = weight;
        request.timeout = std::chrono::nanoseconds(0);
        return acquire(std::move(request));
    }

    // ---- single steps, without waiting
    //
    // For work that is suspended and later resumed, in this process or in another one. Each
    // function calls the store on the calling thread.

    /// Makes a ticket, the identity of a new contender. It is not bound to this process. If
    /// `holder_id` is empty, the ticket has the name durable_options::holder_id.
    durable_ticket ticket(std::string holder_id = {}, std::int64_t weight = 1) const;

    /// If the free permits suffice for this contender and for all waiters ahead, acquires the
    /// permits of the ticket. Otherwise enters the queue; the place is lost unless the caller calls
    /// again within durable_options::waiter_ttl. Once the permits are acquired, further calls
    /// return the same grant, and its lease begins again.
    result<durable_attempt, std::error_code> try_acquire(durable_ticket& t);

    /// Renews the lease of the ticket's grant: the lease begins again now.
    /// Returns: false if the grant is lost.
    result<bool, std::error_code> renew(const durable_ticket& t);

    /// Releases the ticket's grant, or its place in the queue.
    /// Returns: false if there was neither; durable_errc::clock_mismatch if the grant has a minimum
    /// hold time and the record has another clock than this object.
    result<bool, std::error_code> release(const durable_ticket& t);

    // ---- for people and administrators

    /// Lists the holders and the waiters.
    /// Returns: nothing if the lock was never used; errc::timeout if the store does not answer in
    /// time; durable_errc::clock_mismatch if the record has another clock than this object.
    /// Blocks: waits for the store, which is called on a store thread.
    result<std::optional<durable::inspection>, std::error_code> inspect() const;

    /// Returns the place where the lock is kept, and the store's text about the last call that
    /// failed, as slot::explain().
    std::string explain() const;

    /// Returns the operations of an administrator. The record notes the name `by`.
    durable_admin admin(std::string by) const { return {engine_, std::move(by)}; }

private:
    std::shared_ptr<detail::lock_engine> engine_;
};

/// A mutex for all processes and machines that share a slot: a durable_semaphore of one permit. If
/// a holder acquires it again, that call waits, unless it uses the same ticket.
///
/// \code
/// bide::durable_mutex nightly(bide::file_slot("nightly.lock"));
/// if (auto held = nightly.try_acquire()) {
///     std::puts("this process does it tonight");
/// }
/// \endcode
class durable_mutex : public durable_semaphore {
public:
    /// Throws: std::system_error (durable_errc::invalid_argument) if an option is out of range.
    explicit durable_mutex(slot_ref slot, durable_options options = {})
        : durable_semaphore(std::move(slot), 1, std::move(options)) {}
};

/// A shared mutex for all processes and machines that share a slot: many readers or one writer. A
/// reader takes one permit of a durable_semaphore, a writer takes all.
///
/// \code
/// bide::durable_shared_mutex catalogue(bide::file_slot("catalogue.lock"));
/// if (auto reader = catalogue.acquire_shared()) std::puts("beside other readers");
/// if (auto writer = catalogue.acquire()) std::puts("alone");
/// \endcode
class durable_shared_mutex : durable_semaphore {
public:
    using durable_semaphore::admin;
    using durable_semaphore::explain;
    using durable_semaphore::inspect;
    using durable_semaphore::permits;
    using durable_semaphore::release;
    using durable_semaphore::renew;

    /// The default of `max_readers`.
    static constexpr std::int64_t default_readers = 1024;

    /// Constructs a shared mutex for at most `max_readers` readers, the same for all contenders.
    /// Throws: std::system_error (durable_errc::invalid_argument) if an option is out of range.
    explicit durable_shared_mutex(slot_ref slot, durable_options options = {},
                                  std::int64_t max_readers = default_readers)
        : durable_semaphore(std::move(slot), max_readers, std::move(options)) {}

    /// Makes the ticket of a writer as durable_semaphore::ticket() does.
    durable_ticket ticket(std::string holder_id = {}) const {
        return durable_semaphore::ticket(std::move(holder_id), permits());
    }
    /// Makes the ticket of a reader.
    durable_ticket shared_ticket(std::string holder_id = {}) const {
        return durable_semaphore::ticket(std::move(holder_id), 1);
    }

    /// Acquires the mutex for a writer as durable_semaphore::acquire() does. The weight of the
    /// request is ignored, here and in the functions below.
    result<durable_guard, std::error_code> acquire(acquire_request request = {}) const {
        request.weight = permits();
        return durable_semaphore::acquire(std::move(request));
    }
    /// Acquires the mutex for a writer as durable_semaphore::async_acquire() does.
    task<result<durable_guard, std::error_code>> async_acquire(acquire_request request = {}) const;
    /// Acquires the mutex for a writer as durable_semaphore::try_acquire() does.
    result<durable_guard, std::error_code> try_acquire() const {
        return durable_semaphore::try_acquire(permits());
    }
    /// Makes one step of an acquisition, as durable_semaphore::try_acquire() of a ticket does.
    result<durable_attempt, std::error_code> try_acquire(durable_ticket& t) {
        return durable_semaphore::try_acquire(t);
    }

    /// Acquires the mutex for a reader as acquire() does.
    result<durable_guard, std::error_code> acquire_shared(acquire_request request = {}) const {
        request.weight = 1;
        return durable_semaphore::acquire(std::move(request));
    }
    /// Acquires the mutex for a reader as async_acquire() does.
    task<result<durable_guard, std::error_code>>
    async_acquire_shared(acquire_request request = {}) const;
    /// Acquires the mutex for a reader as try_acquire() does.
    result<durable_guard, std::error_code> try_acquire_shared() const {
        return durable_semaphore::try_acquire(1);
    }

private:
    friend class keyed_lock;
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/impl/locks.hpp>
#endif

#endif
