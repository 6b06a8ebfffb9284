// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_SHARED_MUTEX_HPP
#define BIDE_SYNC_SHARED_MUTEX_HPP

/// \file
/// A reader-writer mutex for threads and coroutines, first come, first served.
//
// It is a semaphore: a reader takes one permit, and a writer takes all permits. A reader that may
// upgrade takes more than half of them, so there is one such reader at a time. Readers and writers
// wait in one queue. An upgrade goes to the front of that queue.

#include <bide/sync/detail/permit_queue.hpp>
#include <bide/sync/lock_operations.hpp>

#include <shared_mutex>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// A reader that upgrades to a writer waits in front of all other waiters of the permit queue. The
// reader keeps its permits while it waits for the other permits. If a writer were in front of it,
// the writer could already have some of these other permits. The writer would then wait for the
// permits of the reader, and the reader for those of the writer: a deadlock. So the upgrade goes to
// the front of the queue, and gets the permits that the first waiter was granted so far. If the
// upgrade is cancelled, these permits go back to the first waiter.

// If enough permits are free or granted to the first waiter, grants them to `w`. If not, enqueues
// `w` in front of all other waiters. Returns the status of `w`.
// Requires: `w` is not a case of a select.
template <class Platform>
wait_status basic_permit_queue<Platform>::enqueue_first(node& w) noexcept {
    const word need = static_cast<word>(w.amount());
    word seen = lock::acquire(word_);
    word free = 0;
    word next = 0;
    for (;;) {
        if ((seen & queued) != 0) { // only the holder of the lock changes the word then
            node& head = queue_.front();
            free = static_cast<word>(head.amount() - head.missing);
            head.missing = head.missing + static_cast<std::ptrdiff_t>(free < need ? free : need);
            next = seen + one;
            if (free >= need) {
                lock::release(word_);
            }
            break;
        }
        free = seen / one;
        next =
            free >= need ? (seen - need * one) & ~lock::both : queued | one | (seen & lock::both);
        // Order: acquire [permit.release]; the caller sees what was done before the permits were
        // released. No release order is needed for the lock, because this call has accessed nothing
        // under it. Failure: look again.
        if (word_.compare_exchange_weak(seen, next, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
            if (free >= need) {
                lock::wake_after(&word_, seen);
            }
            break;
        }
    }
    if (free >= need) {
        w.settle(wait_status::granted);
        return wait_status::granted;
    }
    w.missing = static_cast<std::ptrdiff_t>(need - free);
    queue_.push_front(w);
    if (const wait_status forbidden = w.forbidden(); forbidden != wait_status::waiting) {
        withdraw(w, next / one);
        w.settle(forbidden);
        return forbidden;
    }
    lock::release_as(word_, next & ~lock::both);
    return wait_status::waiting;
}

// How an upgrade waits: in front of all other waiters. upgrade() passes this type to thread_wait.
// async_upgrade() passes it to lock_operation() (lock_operations.hpp), which adds collect()
// (core/wait_ops.hpp).
template <class Platform> struct permit_upgrading : basic_permit_queue<Platform>::taking {
    static constexpr bool stands_alone = true;

    wait_status enqueue(basic_waiter<Platform>& w) const noexcept {
        w.ask(this->amount);
        return this->from.enqueue_first(w);
    }
};

// Owns a lock of a mutex. Mode::end(mutex) unlocks or downgrades it.
template <class Mutex, class Mode> class [[nodiscard]] mode_lock {
public:
    mode_lock() noexcept = default;
    explicit mode_lock(Mutex& held) noexcept : of_(&held) {}
    mode_lock(mode_lock&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    mode_lock& operator=(mode_lock other) noexcept {
        std::swap(of_, other.of_);
        return *this;
    }
    ~mode_lock() { unlock(); }

    explicit operator bool() const noexcept { return of_ != nullptr; }

    void unlock() noexcept {
        if (of_ != nullptr) {
            Mode::end(*std::exchange(of_, nullptr));
        }
    }

private:
    Mutex* of_ = nullptr;
};

} // namespace detail

/// Locks a Mutex exclusively or shared. The functions are those of SharedTimedLockable, and two
/// that take a stop token. There are two for coroutines, and one that turns an exclusive lock into
/// a shared one.
template <class Mutex, class Platform>
class shared_lock_operations : public lock_operations<Mutex, Platform> {
public:
    /// Locks the mutex shared.
    /// Blocks: until no writer has the mutex and every earlier waiter has had it.
    /// Memory order: what happens before the last exclusive unlock happens before the return.
    void lock_shared() BIDE_THREAD_SAFETY(acquire_shared_capability(), no_thread_safety_analysis) {
        if (!try_lock_shared()) {
            lock_shared_by(deadline::never());
        }
    }

    /// Locks the mutex shared if no writer has it and there are no waiters. Never blocks.
    /// Returns: true if the caller locked it.
    [[nodiscard]] bool try_lock_shared() noexcept
        BIDE_THREAD_SAFETY(try_acquire_shared_capability(true), no_thread_safety_analysis) {
        BIDE_SWITCH_AFTER();
        auto&& how = this->self().shared();
        return noted_shared(how.take_free() || how.try_take());
    }

    /// Locks the mutex as lock_shared() does, but waits at most `rest`.
    /// Returns: true if the caller locked it.
    template <class R, class P>
    [[nodiscard]] bool try_lock_shared_for(const std::chrono::duration<R, P>& rest)
        BIDE_THREAD_SAFETY(try_acquire_shared_capability(true), no_thread_safety_analysis) {
        return try_lock_shared() || lock_shared_by(deadline::after(rest));
    }
    /// Locks the mutex as lock_shared() does, but waits at most until a point in time.
    template <class C, class D>
    [[nodiscard]] bool try_lock_shared_until(const std::chrono::time_point<C, D>& when)
        BIDE_THREAD_SAFETY(try_acquire_shared_capability(true), no_thread_safety_analysis) {
        return try_lock_shared() || lock_shared_by(deadline::at(when));
    }

    /// Locks the mutex as lock_shared() does, unless a stop is requested first.
    /// Returns: errc::stopped if the caller did not lock it.
    result_on<void, Platform> lock_shared(typename Platform::stop_token token)
        BIDE_THREAD_SAFETY(no_thread_safety_analysis) {
        return detail::stopped_or<Platform>(try_lock_shared() || lock_shared_by(token));
    }

    /// Locks the mutex as lock_shared() does, for a coroutine.
    /// Returns: an operation for co_await; its value is a lock that unlocks the mutex, on any
    /// thread.
    basic_async_op<std::shared_lock<Mutex>, Platform> async_lock_shared() {
        return detail::lock_operation<Platform>(this->self().shared().steps(), [this]() noexcept {
            return std::shared_lock<Mutex>(this->self(), std::adopt_lock);
        });
    }

    /// Turns an exclusive lock into a shared lock. No writer locks the mutex in between. The
    /// readers at the head of the queue then lock the mutex, too.
    /// Requires: the mutex is locked exclusively; terminates if it detects that this does not hold.
    void unlock_and_lock_shared() noexcept
        BIDE_THREAD_SAFETY(release_capability(), acquire_shared_capability(),
                           no_thread_safety_analysis) {
        BIDE_SWITCH_AFTER();
        BIDE_CHECKED(detail::note_unlocked<Platform>(&this->self());)
        noted_shared(true);
        if (!this->self().exclusive().downgrade()) {
            detail::fatal(Mutex::name, &this->self(), "downgraded while not locked");
        }
    }

    /// Unlocks a shared lock. If that was the last one, hands the mutex to the first waiters.
    /// Requires: the mutex is locked shared; terminates if it detects that this does not hold.
    void unlock_shared() noexcept
        BIDE_THREAD_SAFETY(release_shared_capability(), no_thread_safety_analysis) {
        BIDE_SWITCH_AFTER();
        BIDE_CHECKED(
            detail::note_unlocked<Platform>(&this->self(), detail::wait_notes::mode::shared);)
        if (!this->self().shared().give()) {
            detail::fatal(Mutex::name, &this->self(), "unlocked (shared) while not locked");
        }
    }

    /// Does what assume_locked() does, for a shared lock.
    void assume_locked_shared() const noexcept BIDE_THREAD_SAFETY(assert_shared_capability(this)) {}

protected:
    constexpr shared_lock_operations() noexcept = default;
    ~shared_lock_operations() = default;

private:
    template <class Limit> bool lock_shared_by(const Limit& limit) noexcept {
        BIDE_SWITCH_AFTER();
        return noted_shared(this->self().shared().wait(limit) == wait_status::granted);
    }

    // Notes the shared lock if `is_locked` is true, and returns `is_locked`.
    bool noted_shared(bool is_locked) noexcept {
        BIDE_CHECKED(detail::note_locked<Platform>(&this->self(), is_locked,
                                                   detail::wait_notes::mode::shared);)
        return is_locked;
    }
};

/// A mutex that many readers or one writer lock, in the order in which they came.
/// SharedTimedLockable. Readers behind a waiting writer wait for it, so neither side starves. One
/// reader at a time may have the right to upgrade its lock to an exclusive one. Not recursive, not
/// even for readers: if a reader locks again behind a waiting writer, both wait for ever.
///
/// \code
/// bide::shared_mutex mutex;
/// {
///     std::shared_lock reader(mutex); // beside other readers
/// }
/// {
///     std::unique_lock writer(mutex); // alone
/// }
/// auto reader = co_await mutex.async_lock_shared(); // in a coroutine
/// \endcode
///
/// shared_lock_operations and lock_operations have the functions that lock and unlock it: lock()
/// with a stop token or without, try_lock(), try_lock_for(), try_lock_until(), async_lock(),
/// unlock(), each of these also with _shared in the name, and unlock_and_lock_shared().
template <class Platform>
class basic_shared_mutex : public shared_lock_operations<basic_shared_mutex<Platform>, Platform> {
    using queue = detail::basic_permit_queue<Platform>;
    using upgrading = detail::permit_upgrading<Platform>;

    struct upgradable_mode {
        static void end(basic_shared_mutex& m) noexcept { m.unlock_upgradable(); }
    };
    struct upgraded_mode {
        static void end(basic_shared_mutex& m) noexcept { m.downgrade(); }
    };

public:
    /// Owns an upgradable lock; unlocks it when it is destroyed.
    using upgradable_lock = detail::mode_lock<basic_shared_mutex, upgradable_mode>;
    /// Owns the upgrade of an upgradable lock; downgrades it when it is destroyed.
    using upgraded_lock = detail::mode_lock<basic_shared_mutex, upgraded_mode>;

    /// Constructs a mutex that is not locked.
    constexpr basic_shared_mutex() noexcept : basic_shared_mutex(nullptr) {}

    /// Constructs a mutex that is not locked, with a name for reports (core/deadlock_check.hpp).
    /// The name is copied if BIDE_DEADLOCK_CHECK is defined, and ignored otherwise.
    constexpr explicit basic_shared_mutex([[maybe_unused]] const char* its_name) noexcept
        : permits_(all) {
        BIDE_CHECKED(detail::note_made<Platform>(this, name, its_name);)
    }

    /// Destroys the mutex.
    /// Requires: there are no waiters; terminates otherwise.
    ~basic_shared_mutex() {
        permits_.require_no_waiters(name, this);
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    basic_shared_mutex& operator=(basic_shared_mutex&&) = delete;

    // ---- Shared, with the right to become exclusive

    /// Locks the mutex shared, with the right to upgrade. There is one such reader at a time; other
    /// readers may have the mutex, too. Later writers and later upgradable readers wait until this
    /// reader unlocks.
    /// Blocks: until no writer and no other upgradable reader has the mutex, and every earlier
    /// waiter has had it.
    void lock_upgradable() {
        if (!try_lock_upgradable()) {
            upgradable().wait(deadline::never());
        }
    }
    /// Locks the mutex as lock_upgradable() does, if that needs no wait. Never blocks.
    /// Returns: true if the caller locked it.
    [[nodiscard]] bool try_lock_upgradable() noexcept {
        BIDE_SWITCH_AFTER();
        return upgradable().try_take();
    }
    /// Locks the mutex as lock_upgradable() does, but waits at most `limit`.
    template <class R, class P>
    [[nodiscard]] bool try_lock_upgradable_for(const std::chrono::duration<R, P>& limit) {
        return try_lock_upgradable() ||
               upgradable().wait(deadline::after(limit)) == wait_status::granted;
    }
    /// Locks the mutex as lock_upgradable() does, but waits at most until a point in time.
    template <class C, class D>
    [[nodiscard]] bool try_lock_upgradable_until(const std::chrono::time_point<C, D>& when) {
        return try_lock_upgradable() ||
               upgradable().wait(deadline::at(when)) == wait_status::granted;
    }
    /// Locks the mutex as lock_upgradable() does, unless a stop is requested first.
    /// Returns: errc::stopped if the caller did not lock it.
    result_on<void, Platform> lock_upgradable(typename Platform::stop_token token) {
        return detail::stopped_or<Platform>(try_lock_upgradable() ||
                                            upgradable().wait(token) == wait_status::granted);
    }
    /// Unlocks an upgradable lock.
    /// Requires: the caller has an upgradable lock and has not upgraded it. Terminates if it
    /// detects that this does not hold.
    void unlock_upgradable() noexcept {
        BIDE_SWITCH_AFTER();
        if (!permits_.give(most, all)) {
            detail::fatal(name, this, "unlocked (upgradable) while not locked");
        }
    }

    /// Turns the caller's upgradable lock into an exclusive lock. The caller overtakes every
    /// waiter. No other writer locks the mutex in between. The exclusive lock ends by unlock(),
    /// unlock_and_lock_shared() or downgrade().
    /// Blocks: until the other readers have unlocked. New readers wait behind the caller.
    /// Requires: the caller has an upgradable lock.
    void upgrade() {
        if (!try_upgrade()) {
            upgrade_by(deadline::never());
        }
    }
    /// If there is no other reader, upgrades as upgrade() does. Never blocks.
    /// Returns: true if the lock is exclusive now; false if it is still upgradable.
    [[nodiscard]] bool try_upgrade() noexcept {
        BIDE_SWITCH_AFTER();
        if (permits_.try_take(to_upgrade)) {
            return true;
        }
        basic_waiter<Platform> w(to_upgrade);
        w.forbid(wait_status::timed_out); // one attempt, in front of the waiters
        return permits_.enqueue_first(w) == wait_status::granted;
    }
    /// Upgrades as upgrade() does, but waits at most `limit`.
    template <class R, class P>
    [[nodiscard]] bool try_upgrade_for(const std::chrono::duration<R, P>& limit) {
        return try_upgrade() || upgrade_by(deadline::after(limit));
    }
    /// Upgrades as upgrade() does, but waits at most until a point in time.
    template <class C, class D>
    [[nodiscard]] bool try_upgrade_until(const std::chrono::time_point<C, D>& when) {
        return try_upgrade() || upgrade_by(deadline::at(when));
    }
    /// Upgrades as upgrade() does, unless a stop is requested first.
    /// Returns: errc::stopped if the lock is still upgradable.
    result_on<void, Platform> upgrade(typename Platform::stop_token token) {
        return detail::stopped_or<Platform>(try_upgrade() || upgrade_by(token));
    }
    /// Turns an exclusive lock into an upgradable lock. The readers at the head of the queue then
    /// lock the mutex, too.
    /// Requires: the mutex is locked exclusively; terminates if it detects that this does not hold.
    void downgrade() noexcept {
        BIDE_SWITCH_AFTER();
        BIDE_CHECKED(detail::note_unlocked<Platform>(&permits_);)
        if (!permits_.give(to_upgrade, to_upgrade)) {
            detail::fatal(name, this, "downgraded while not locked");
        }
    }

    // ---- Coroutines

    /// Locks the mutex as lock_upgradable() does, for a coroutine.
    /// Returns: an operation for co_await; its value is a lock that unlocks the mutex.
    basic_async_op<upgradable_lock, Platform> async_lock_upgradable() {
        return detail::lock_operation<Platform>(
            upgradable().steps(), [this]() noexcept { return upgradable_lock(*this); });
    }
    /// Upgrades as upgrade() does, for a coroutine that has an upgradable_lock. An upgrade cannot
    /// be a case of a select.
    /// Returns: an operation for co_await; its value is an exclusive lock whose destructor calls
    /// downgrade().
    /// Requires: the upgradable_lock outlives that lock.
    basic_async_op<upgraded_lock, Platform> async_upgrade() {
        return detail::lock_operation<Platform>(upgrading{{permits_, to_upgrade}},
                                                [this]() noexcept { return upgraded_lock(*this); });
    }

private:
    friend lock_operations<basic_shared_mutex, Platform>;
    friend shared_lock_operations<basic_shared_mutex, Platform>;
    friend detail::condition_access;

    static constexpr const char* name = "shared_mutex";
    static constexpr std::ptrdiff_t all = (queue::max)();
    static constexpr std::ptrdiff_t most = all / 2 + 1;      // the permits of an upgradable reader
    static constexpr std::ptrdiff_t to_upgrade = all - most; // that an upgrade acquires in addition

    using mode = detail::permit_mode<Platform>;
    mode exclusive() noexcept { return {permits_, all, all}; }
    mode shared() noexcept { return {permits_, 1, all}; }
    mode upgradable() noexcept { return {permits_, most, all}; }

    template <class Limit> bool upgrade_by(const Limit& limit) noexcept {
        BIDE_SWITCH_AFTER();
        upgrading at{{permits_, to_upgrade}};
        return thread_wait<upgrading, Platform>::until(at, to_upgrade, limit) ==
               wait_status::granted;
    }

    queue permits_;
};

/// A reader-writer mutex for users.
using shared_mutex = basic_shared_mutex<native_platform>;
static_assert(sizeof(shared_mutex) <= 32);

BIDE_COMPILED_TEMPLATE(wait_status detail::basic_permit_queue<native_platform>::enqueue_first(
    basic_waiter<native_platform>&) noexcept)

}} // namespace bide::BIDE_ABI

#endif
