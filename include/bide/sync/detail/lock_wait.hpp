// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_LOCK_WAIT_HPP
#define BIDE_SYNC_DETAIL_LOCK_WAIT_HPP

// The parts that all mutexes share: the result of a wait with a stop token, and the operation of
// async_lock() (core/wait_ops.hpp). Steps has the steps of the wait for the mutex. lock() makes the
// lock object when the mutex is locked.

#include <bide/core/config.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/fwd.hpp>

#if defined(BIDE_DEADLOCK_CHECK)
#include <shared_mutex>
#endif
#include <type_traits>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Finds the queue of a mutex, for a condition_variable (condition_variable.hpp).
struct condition_access;

template <class Lock> using lock_made_by = std::invoke_result_t<const Lock&>;

#if defined(BIDE_DEADLOCK_CHECK)
template <class Mutex, class Mode> class mode_lock; // shared_mutex.hpp

// What a lock of type L holds. An upgradable lock is not noted.
enum class lock_held { exclusive, shared, upgradable };
template <class L> inline constexpr lock_held lock_effect = lock_held::exclusive;
template <class M> inline constexpr lock_held lock_effect<std::shared_lock<M>> = lock_held::shared;
template <class M, class Mode>
inline constexpr lock_held lock_effect<mode_lock<M, Mode>> = lock_held::upgradable;

// A coroutine's wait for a lock was granted.
inline void note_collected(const void* lock, lock_held how) noexcept {
    if (how != lock_held::upgradable) {
        wait_notes::all().locked(
            lock, how == lock_held::shared ? wait_notes::mode::shared : wait_notes::mode::exclusive,
            collecting::here());
    }
}
#endif

// Makes the result of a lock with a stop token.
template <class Platform> result_on<void, Platform> stopped_or(bool is_locked) noexcept {
    using answer = result_on<void, Platform>;
    return is_locked ? answer() : answer(unexpect_t(), errc_of(wait_status::stopped));
}

template <class Steps, class Lock> struct lock_wait : Steps {
    Lock lock;

    result<lock_made_by<Lock>> collect(wait_status what) const noexcept {
        using answer = result<lock_made_by<Lock>>;
        if (what != wait_status::granted) {
            return answer(unexpect_t(), errc_of(what));
        }
        BIDE_CHECKED(note_collected(&this->primitive(), lock_effect<lock_made_by<Lock>>);)
        return lock();
    }
};

}}} // namespace bide::BIDE_ABI::detail

#endif
