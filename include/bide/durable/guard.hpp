// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_GUARD_HPP
#define BIDE_DURABLE_GUARD_HPP

#include <bide/durable/observer.hpp>

#include <memory>
#include <stop_token>

namespace bide { inline namespace BIDE_ABI {
namespace detail {
class acquisition;
class grant;
} // namespace detail

/// Holds permits of a durable lock, and releases them on destruction.
///
/// The guard renews its lease in the background (durable_options::auto_renew). If the lock is lost
/// in spite of that, the stop token lost() is stopped. If a holder is suspended for longer than its
/// lease, another contender may acquire the lock. So pass the fencing token to the resource, and
/// let the resource refuse older tokens.
///
/// Requires: the guard holds a grant, which means that it was not moved from, released or detached.
/// This applies to every member function except the destructor and the assignment.
///
/// Thread safety: one thread at a time. Any thread may use the token of lost().
class [[nodiscard]] durable_guard {
public:
    /// Takes over the grant of another guard.
    durable_guard(durable_guard&&) noexcept = default;
    /// Releases the grant of this guard, and takes over that of `other`.
    /// Blocks: as the destructor.
    durable_guard& operator=(durable_guard&& other) noexcept {
        if (this != &other) {
            durable_guard dropped(std::move(*this));
            grant_ = std::move(other.grant_);
        }
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
    /// the grant gone, and at the latest at the end of the lease less the margin, on the clock of
    /// this machine. A store that hangs does not delay the stop. release() and the destructor do
    /// not stop the token.
    ///
    /// Its callbacks run on the thread that monitors all leases of the process, or on a thread that
    /// renews leases. A callback that blocks delays the other leases that the thread serves.
    std::stop_token lost() const noexcept;

    /// Returns a token that is stopped when the lock will be lost within
    /// durable_options::warn_before unless a renewal succeeds. It is stopped once, and stays so if
    /// a renewal succeeds later. Its callbacks run on the thread that monitors all leases of the
    /// process.
    std::stop_token at_risk() const noexcept;

    /// Returns why the lock is lost; durable_loss::none while it is held.
    durable_loss loss() const noexcept;

    /// Returns true if the lock is not lost and the lease has not expired.
    bool is_held() const noexcept;

    /// Throws if the lock is lost.
    /// Throws: std::system_error (durable_errc::lock_lost) unless is_held().
    void check() const;

    /// Returns the time until the end of the lease less the margin, on the clock of this machine.
    /// Returns zero if the lock is lost.
    std::chrono::milliseconds remaining() const noexcept;

    /// Renews the lease: it begins again now.
    /// Returns: durable_errc::lock_lost, or the error of the store. After an error of the store the
    /// caller may try again while is_held().
    /// Blocks: for the store. A guard of acquire() or try_acquire() calls the store on the calling
    /// thread: for at most durable_options::retry_time plus one operation of the slot. A guard of
    /// async_acquire() calls the store on a store thread, and waits at most
    /// durable_options::retry_time plus attempt_limit.
    result<void, std::error_code> renew();

    /// Releases the permits. Afterwards the guard holds nothing, even if an error is returned.
    /// Returns: durable_errc::lock_lost if the lock was lost before. After an error of the store,
    /// or errc::timeout, the permits are free when the lease expires at the latest.
    /// Blocks: as renew().
    result<void, std::error_code> release();

    /// Releases as release() does, for at most `limit`, on a store thread.
    /// Returns: errc::timeout if the release is not confirmed in time; the store thread continues
    /// it.
    /// Blocks: for at most `limit` plus durable_options::attempt_limit.
    result<void, std::error_code> release_for(std::chrono::nanoseconds limit);

    /// Renews as renew() does, for a coroutine, on a store thread. No thread waits for the store.
    /// Returns: errc::timeout after durable_options::retry_time plus attempt_limit.
    /// Cancellation: returns errc::stopped; the store thread continues the renewal.
    task<result<void, std::error_code>> async_renew();
    /// Releases as release() does, for a coroutine, with the limits of async_renew(). After the
    /// call of this function the guard holds nothing. If the task is destroyed before it is
    /// awaited, it releases the permits as the destructor of the guard does.
    task<result<void, std::error_code>> async_release();

    /// Returns the file descriptor of an inheritable grant (acquire_request::inheritable); -1 for
    /// any other grant. It is close-on-exec: a child inherits it if that flag is cleared between
    /// fork() and exec.
    /// Requires: this process does not close the descriptor.
    int descriptor() const noexcept;

    /// Leaves an inheritable grant to the children that have the descriptor open. Afterwards the
    /// guard holds nothing.
    /// Returns: true if a child has the descriptor open; false if no process has it, and the
    /// permits were released; errors as release().
    /// Blocks: as renew().
    result<bool, std::error_code> hand_over();

    /// Detaches the grant from the guard: the permits stay held, without renewal. A caller that has
    /// the ticket can continue to use the permits.
    ///
    /// An inheritable grant lasts as long as a child has its descriptor open. If the ticket is
    /// bound to this process, the file descriptor of its mark of presence (slot_presence) stays
    /// open until a lock object of this process has released the grant or found it lost.
    ///
    /// Throws: std::bad_alloc; then nothing changes.
    durable_ticket detach();

private:
    friend class detail::acquisition;
    explicit durable_guard(std::shared_ptr<detail::grant> held) noexcept
        : grant_(std::move(held)) {}

    static task<result<void, std::error_code>> release_task(durable_guard mine);

    std::shared_ptr<detail::grant> grant_;
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/locks.hpp> // has the definitions
#endif

#endif
