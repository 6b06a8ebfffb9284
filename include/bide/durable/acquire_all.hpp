// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_ACQUIRE_ALL_HPP
#define BIDE_DURABLE_ACQUIRE_ALL_HPP

/// \file
/// Acquires several durable locks without deadlock: all of them, or none.

#include <bide/durable/locks.hpp>
#include <bide/task/task.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {
struct held_locks;
} // namespace detail

/// A durable lock with its key, and how to acquire it. Locks are acquired in the order of their
/// keys, compared byte by byte, the smallest first.
/// Requires: all processes use the same key for the same lock, for example the name of its record.
/// Otherwise each of two programs may wait for a lock that the other one holds, until its timeout.
class keyed_lock : durable_semaphore {
public:
    /// Acquires a mutex, or `weight` permits of a semaphore.
    keyed_lock(std::string key, durable_semaphore with, std::int64_t weight = 1)
        : durable_semaphore(std::move(with)), key_(std::move(key)), weight_(weight) {}
    /// Acquires a shared mutex for a writer.
    keyed_lock(std::string key, durable_shared_mutex with)
        : durable_semaphore(std::move(with)), key_(std::move(key)), weight_(permits()) {}
    /// Acquires a shared mutex for a reader.
    static keyed_lock shared(std::string key, durable_shared_mutex lock) {
        keyed_lock reader(std::move(key), std::move(lock));
        reader.weight_ = 1;
        return reader;
    }

private:
    friend struct detail::held_locks;

    std::string key_;
    std::int64_t weight_ = 1;
};

/// Holds the grants of acquire_all(). The destructor and the assignment release them, in the
/// reverse order of their acquisition, as the destructor of durable_guard does.
/// Requires: this object was not moved from or released. This applies to every member function
/// except the destructor and the assignment.
/// Thread safety: as durable_guard.
class [[nodiscard]] durable_guards {
public:
    durable_guards(durable_guards&&) noexcept = default;            ///< Takes over the grants.
    durable_guards& operator=(durable_guards&&) noexcept = default; ///< \overload

    /// Returns the number of locks.
    std::size_t size() const noexcept;
    /// Returns the guard of a lock, by its index in the list of acquire_all().
    /// Requires: index < size().
    const durable_guard& operator[](std::size_t index) const noexcept;

    /// Returns a token that is stopped when the first lock is lost. See durable_guard::lost().
    std::stop_token lost() const noexcept;
    /// Returns true if every lock is held.
    bool is_held() const noexcept;

    /// Releases all locks as the destructor does. Afterwards this object holds nothing.
    /// Returns: the first error. After an error, the other locks are still released.
    /// Blocks: for each lock, as long as durable_guard::async_release() waits.
    result<void, std::error_code> release();
    /// Releases all locks as release() does, for a coroutine. From then on, this object is empty.
    task<result<void, std::error_code>> async_release();

private:
    friend struct detail::held_locks;
    explicit durable_guards(std::shared_ptr<detail::held_locks> held) : held_(std::move(held)) {}

    std::shared_ptr<detail::held_locks> held_;
};

/// Acquires all locks, in the order of their keys, each in the queue of its lock. The timeout of
/// the request is for all locks together. While the call waits for one lock, it renews those that
/// it has acquired. acquire_request::on_position is called for the lock for which the call waits.
/// Returns: an object that holds all locks, or an error, after which no lock is held:
/// - errc::timeout, errc::stopped, durable_errc::no_answer;
/// - durable_errc::lock_lost: a lock was lost while the call waited for a later one;
/// - durable_errc::invalid_argument: the list is empty, a key is empty or in the list twice, the
///   request has a ticket, or two locks have the same record. The last case is not detected if both
///   requests can be granted at once;
/// - the errors of durable_mutex::acquire().
/// Throws: as durable_mutex::acquire(); no lock is held then.
/// Blocks: until all are acquired, or the time is up, plus durable_options::attempt_limit.
result<durable_guards, std::error_code> acquire_all(std::vector<keyed_lock> locks,
                                                    acquire_request request = {});

/// Acquires all locks as acquire_all() does, for a coroutine.
/// Cancellation: returns errc::stopped.
task<result<durable_guards, std::error_code>> async_acquire_all(std::vector<keyed_lock> locks,
                                                                acquire_request request = {});

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/impl/acquire_all.hpp>
#endif

#endif
