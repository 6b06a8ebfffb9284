// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_SEMAPHORE_HPP
#define BIDE_SYNC_SEMAPHORE_HPP

/// \file
/// A counting semaphore. Blocked threads, suspended coroutines and wakers of other libraries wait
/// in one first-in-first-out queue. A release hands its permits directly to the waiters.
//
// sync/detail/permit_queue.hpp has the queue, and the proof that no wakeup is lost.

#include <bide/core/result.hpp>
#include <bide/sync/detail/permit_queue.hpp>

#include <mutex>
#include <stdexcept>

namespace bide { inline namespace BIDE_ABI {

template <class Platform> class basic_semaphore;

/// Owns n permits of a semaphore and releases them when it is destroyed. The constructors are those
/// of std::unique_lock. If the release would raise the count above max(), the count becomes max()
/// and the excess is dropped. This can happen only if other callers have released more permits than
/// they acquired. There is no release(), because the name is ambiguous: std::unique_lock::release()
/// forgets its lock, and semaphore::release() returns permits. Use reset() or forget().
///
/// \code
/// bide::semaphore connections(8);
/// bide::permit one(connections);                    // blocks
/// bide::permit three(connections, std::try_to_lock); // owns one, or nothing
/// if (three) three.reset();                         // releases it early
/// \endcode
template <class Platform> class [[nodiscard("name it")]] basic_permit {
    using semaphore = basic_semaphore<Platform>;

public:
    /// Constructs a permit that owns nothing.
    basic_permit() noexcept = default;

    /// Acquires `amount` permits of `from`.
    /// Blocks: as semaphore::acquire() does.
    /// Throws: as semaphore::acquire() does.
    [[nodiscard("name it")]] explicit basic_permit(semaphore& from, std::ptrdiff_t amount = 1) {
        from.acquire(amount);
        own(from, amount);
    }

    /// Owns `amount` permits if from.try_acquire(amount) succeeds, and nothing if it fails.
    [[nodiscard("name it")]] basic_permit(semaphore& from, std::try_to_lock_t,
                                          std::ptrdiff_t amount = 1) noexcept {
        if (from.try_acquire(amount)) {
            own(from, amount);
        }
    }

    /// Takes over `amount` permits that the caller has acquired. If `amount` is outside [0, max()],
    /// owns nothing.
    [[nodiscard("name it")]] basic_permit(semaphore& from, std::adopt_lock_t,
                                          std::ptrdiff_t amount = 1) noexcept {
        if (semaphore::is_valid(amount)) {
            own(from, amount);
        }
    }

    /// Takes over the permits of `other`, which then owns nothing.
    basic_permit(basic_permit&& other) noexcept
        : from_(std::exchange(other.from_, nullptr)), count_(std::exchange(other.count_, 0)) {}

    /// Releases its permits and takes over those of `other`.
    basic_permit& operator=(basic_permit other) noexcept {
        std::swap(from_, other.from_);
        std::swap(count_, other.count_);
        return *this;
    }

    /// Releases its permits.
    ~basic_permit() { reset(); }

    /// Returns true if it belongs to a semaphore, even if it owns 0 permits.
    explicit operator bool() const noexcept { return from_ != nullptr; }
    /// Returns the number of permits that it owns.
    std::ptrdiff_t count() const noexcept { return count_; }

    /// Releases its permits. It owns nothing then.
    void reset() noexcept {
        if (semaphore* const s = std::exchange(from_, nullptr)) {
            BIDE_SWITCH_AFTER();
            s->give_back(std::exchange(count_, 0));
        }
    }

    /// Drops its permits: the semaphore never gets them back.
    void forget() noexcept {
        from_ = nullptr;
        count_ = 0;
    }

    /// Moves n of the permits to a new object.
    /// Throws: std::invalid_argument if n < 0 or n > count(); nothing changes then.
    basic_permit split(std::ptrdiff_t n) {
        if (n < 0 || n > count_) {
            BIDE_THROW(std::invalid_argument("bide::permit: split outside [0, count()]"));
        }
        basic_permit part;
        part.from_ = from_;
        part.count_ = n;
        count_ -= n;
        return part;
    }

    /// Takes over all permits of `other`. Either object may belong to no semaphore.
    /// Throws: std::invalid_argument if they belong to different semaphores, std::overflow_error if
    /// the permits of both are more than max(). Nothing changes then.
    void merge(basic_permit&& other) {
        if (other.from_ == nullptr || this == &other) {
            return;
        }
        if (from_ != nullptr && from_ != other.from_) {
            BIDE_THROW(std::invalid_argument("bide::permit: merge of another semaphore's"));
        }
        if (other.count_ > (semaphore::max)() - count_) {
            BIDE_THROW(std::overflow_error("bide::permit: merge past max()"));
        }
        from_ = std::exchange(other.from_, nullptr);
        count_ += std::exchange(other.count_, 0);
    }

private:
    void own(semaphore& s, std::ptrdiff_t n) noexcept {
        from_ = &s;
        count_ = n;
    }

    semaphore* from_ = nullptr;
    std::ptrdiff_t count_ = 0;
};

/// A counting semaphore for threads and coroutines, first come, first served.
///
/// \code
/// bide::semaphore connections(8);
/// {
///     bide::permit one(connections); // in a thread: blocks until a permit is free
/// } // releases it
/// auto other = co_await connections.async_acquire(); // in a coroutine: suspends it
/// \endcode
///
/// If a count of permits is outside [0, max()], a throwing function throws std::invalid_argument, a
/// noexcept function returns false or 0, and nothing changes.
template <class Platform> class basic_semaphore {
    using queue = detail::basic_permit_queue<Platform>;

public:
    /// Returns the largest number of permits that the semaphore can count.
    static constexpr std::ptrdiff_t(max)() noexcept { return (queue::max)(); }

    /// Constructs a semaphore with `permits` free permits.
    /// Throws: std::invalid_argument if `permits` is outside [0, max()].
    constexpr explicit basic_semaphore(std::ptrdiff_t permits)
        : basic_semaphore(permits, nullptr) {}

    /// Constructs a semaphore with `permits` free permits and a name for reports
    /// (core/deadlock_check.hpp). The name is copied if BIDE_DEADLOCK_CHECK is defined, and ignored
    /// otherwise.
    /// Throws: std::invalid_argument if `permits` is outside [0, max()].
    constexpr basic_semaphore(std::ptrdiff_t permits, [[maybe_unused]] const char* its_name)
        : permits_(valid(permits)) {
        BIDE_CHECKED(detail::note_made<Platform>(this, "semaphore", its_name);)
    }

    /// Destroys the semaphore.
    /// Requires: there are no waiters; terminates otherwise.
    ~basic_semaphore() {
        permits_.require_no_waiters("semaphore", this);
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    basic_semaphore& operator=(basic_semaphore&&) = delete;

    /// Acquires n permits. acquire(0) succeeds immediately unless the semaphore is closed.
    /// Blocks: until the n permits are granted. Every earlier waiter gets its permits first.
    /// Throws: closed_error if the semaphore is closed.
    /// Memory order: what happens before the releases of the n permits happens before the return.
    void acquire(std::ptrdiff_t n = 1) {
        if (acquire_by(deadline::never(), n) == wait_status::closed) {
            detail::throw_error(errc::closed);
        }
    }

    /// Acquires n permits if they are free and there are no waiters. Never blocks.
    /// Returns: true if the permits were acquired.
    [[nodiscard]] bool try_acquire(std::ptrdiff_t n = 1) noexcept {
        BIDE_SWITCH_AFTER();
        return is_valid(n) && permits_.try_take(count(n));
    }

    /// Acquires n permits as acquire() does, but waits at most `rest`.
    /// Returns: true if the permits were acquired; false after the time-out, or if the semaphore is
    /// closed.
    [[nodiscard]] bool try_acquire_for(deadline::from_now rest, std::ptrdiff_t n = 1) {
        return acquire_by(deadline(rest), n) == wait_status::granted;
    }
    /// Acquires n permits as acquire() does, but waits at most until a point in time.
    [[nodiscard]] bool try_acquire_until(deadline when, std::ptrdiff_t n = 1) {
        return acquire_by(when, n) == wait_status::granted;
    }

    /// Acquires n permits as acquire() does, unless a stop is requested first.
    /// Returns: errc::closed or errc::stopped if the permits were not acquired.
    /// Cancellation: a stop that is requested after the grant changes nothing.
    result<void> acquire(typename Platform::stop_token token, std::ptrdiff_t n = 1) {
        return result_of(acquire_by(token, n));
    }

    /// Releases n permits, or adds new ones, and grants them to the waiters in their order.
    /// Blocks: only while it wakes threads and runs coroutines that have no executor.
    /// Throws: std::overflow_error if more than max() permits would be free; nothing changes then.
    void release(std::ptrdiff_t n = 1) {
        BIDE_SWITCH_AFTER();
        if (!permits_.give(count(valid(n)))) {
            BIDE_THROW(std::overflow_error("bide::semaphore: release past max()"));
        }
    }

    /// Acquires n permits as acquire() does, for a coroutine.
    /// Returns: an operation for co_await; its value is a basic_permit that owns the n permits.
    basic_async_op<basic_permit<Platform>, Platform> async_acquire(std::ptrdiff_t n = 1) {
        return {acquiring{{permits_, valid(n)}, *this}};
    }

    /// Closes the semaphore: every present and later acquire fails with errc::closed. If a waiter
    /// was granted a part of its permits, these become free. Permits that are held stay valid, and
    /// release() still adds them to the free permits.
    /// Returns: true if this call closed it; false if it was closed already.
    bool close() noexcept {
        BIDE_SWITCH_AFTER();
        return permits_.close();
    }
    /// Returns true if close() was called.
    bool is_closed() const noexcept { return permits_.is_closed(); }

    /// Removes at most n free permits, permanently.
    /// Returns: the number of permits removed.
    std::ptrdiff_t forget_permits(std::ptrdiff_t n) noexcept {
        return is_valid(n) ? static_cast<std::ptrdiff_t>(permits_.forget(count(n))) : 0;
    }

    /// Returns the number of free permits, which may be outdated when the caller reads it.
    std::ptrdiff_t available() const noexcept { return permits_.available(); }
    /// Returns the number of waiters. It may be outdated when the caller reads it.
    std::size_t waiters() const noexcept { return permits_.waiters(); }

    /// The wait of a caller that neither blocks nor is a coroutine, for example of an event loop.
    /// The owner keeps the waiter alive until it is complete or cancel_acquire() has returned. Then
    /// the owner may use the waiter again.
    class waiter {
    public:
        /// Constructs a waiter for `amount` permits. If the waiter is queued, `wake` runs once,
        /// when the wait is complete. `wake` runs on the releasing thread, which holds no lock.
        /// `wake` may acquire and release permits, and cancel other waiters. Before `wake` destroys
        /// another waiter, it must cancel that waiter. If `wake` releases permits to another
        /// waiter, that waiter becomes complete and is woken after `wake` has returned
        /// (core/executor.hpp).
        /// Requires: the context of `wake` outlives the call of `wake`, which may end after
        /// is_complete() returns true.
        waiter(std::ptrdiff_t amount, waker wake) noexcept : node_(amount, wake) {}

        /// Destroys the waiter.
        /// Requires: the waiter is not queued; terminates otherwise.
        ~waiter() {
            if (!node_.is_complete() && !node_.is_idle()) {
                detail::fatal("semaphore::waiter", this, "destroyed while queued");
            }
        }
        waiter& operator=(waiter&&) = delete;

        /// Returns true if the wait is over. From then on, no other thread accesses the waiter.
        /// Memory order: if the permits were granted, what happens before their releases happens
        /// before the return.
        bool is_complete() const noexcept { return node_.is_complete(); }

        /// Returns the outcome: success if the permits were granted; errc::closed if not.
        /// Requires: is_complete().
        result<void> outcome() const noexcept { return result_of(node_.outcome()); }

    private:
        friend class basic_semaphore;
        basic_waiter<Platform> node_;
    };

    /// Enqueues `w`, or completes it immediately.
    /// Returns: true if `w` is complete; its waker does not run. False if `w` is queued. Also false
    /// if the number of permits of `w` is invalid; then nothing was done.
    /// Requires: `w` is not queued.
    bool acquire_wait(waiter& w) noexcept {
        const std::ptrdiff_t n = w.node_.amount();
        if (!is_valid(n)) {
            return false;
        }
        w.node_.reset(n);
        return permits_.enqueue(w.node_) != wait_status::waiting;
    }

    /// Cancels the wait of `w`. If `w` was granted a part of its permits, that part goes to the
    /// waiters behind `w`.
    /// Returns: true if this call has ended the wait, or if `w` did not wait. Then the waker of `w`
    /// does not run. False if `w` is complete already; if `w` was granted, the caller owns the
    /// permits.
    /// Blocks: if a release on another thread has granted `w` and still runs the wakers of earlier
    /// waiters. The call then blocks until these wakers have run. Inside a waker of that release,
    /// the call does not block, and the waker of `w` does not run.
    /// Requires: no other thread calls acquire_wait(w) or cancel_acquire(w) meanwhile. The wakers
    /// of two releases on two threads do not cancel each other's waiters, because then the two
    /// threads could wait for each other.
    bool cancel_acquire(waiter& w) noexcept {
        if (!is_valid(w.node_.amount())) {
            return true;
        }
        if (!w.node_.is_decided() && (permits_.cancel(w.node_, wait_status::stopped) ||
                                      w.node_.forbidden() != wait_status::waiting)) {
            return true; // the waiter was in no queue, or this call took it out
        }
        w.node_.await_outcome();
        return false;
    }

private:
    friend class basic_permit<Platform>;

    static constexpr bool is_valid(std::ptrdiff_t n) noexcept { return n >= 0 && n <= (max)(); }
    static constexpr std::ptrdiff_t valid(std::ptrdiff_t n) {
        if (!is_valid(n)) {
            BIDE_THROW(std::invalid_argument("bide::semaphore: permits outside [0, max()]"));
        }
        return n;
    }
    static typename queue::word count(std::ptrdiff_t n) noexcept {
        return static_cast<typename queue::word>(n);
    }

    // Returns the n permits of a basic_permit. Permits that do not fit below max() are dropped.
    void give_back(std::ptrdiff_t n) noexcept { permits_.give_fitting(count(n)); }

    template <class Limit> wait_status acquire_by(const Limit& limit, std::ptrdiff_t n) {
        return permits_.try_take(count(valid(n)))
                   ? wait_status::granted
                   : thread_wait<queue, Platform>::until(permits_, n, limit);
    }

    // The operation of async_acquire() (core/wait_ops.hpp).
    struct acquiring : queue::taking {
        basic_semaphore& of;

        result<basic_permit<Platform>> collect(wait_status what) const noexcept {
            if (what != wait_status::granted) {
                return unexpected{errc_of(what)};
            }
            return basic_permit<Platform>(of, std::adopt_lock, this->amount);
        }
    };

    queue permits_;
};

/// A semaphore for users.
using semaphore = basic_semaphore<native_platform>;
/// A permit of a semaphore.
using permit = basic_permit<native_platform>;

}} // namespace bide::BIDE_ABI

#endif
