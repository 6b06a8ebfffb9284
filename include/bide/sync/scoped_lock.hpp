// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_SCOPED_LOCK_HPP
#define BIDE_SYNC_SCOPED_LOCK_HPP

/// \file
/// Locks several mutexes without deadlock. task/lock_all.hpp has the same for coroutines.
//
// The caller locks the mutexes in the order of their addresses. While it waits for a mutex, it
// holds the earlier ones. std::lock works differently: it waits for one mutex while it holds no
// other, and then tries the others. With mutexes that are handed to their waiters, std::lock
// starves, because its tries never find such a mutex free.

#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <tuple>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// True for a lock such as std::unique_lock, whose address is not that of its mutex.
template <class M>
concept lock_object = requires(M& m) { m.owns_lock(); };

template <class M>
concept lockable = requires(M& m) {
    m.lock();
    m.unlock();
};

// Several mutexes in the order of their addresses. The owner of this object locks them in that
// order. The destructor unlocks the locked mutexes.
template <class... M> class lock_set {
public:
    static constexpr std::size_t size = sizeof...(M);
    static_assert(size != 0, "bide: no mutex to lock");
    static_assert((!lock_object<M> && ...),
                  "bide: several locks are taken in the order of the mutexes' addresses: pass the "
                  "mutexes, not a std::unique_lock of them");

    // Throws: std::invalid_argument if a mutex is in the list twice.
    explicit lock_set(M&... m) : mutexes_(std::addressof(m)...) {
        const volatile void* at[size] = {std::addressof(m)...};
        for (std::size_t i = 0; i < size; ++i) {
            std::size_t to = i;
            for (; to > 0 && std::less<>()(at[i], at[order_.at[to - 1]]); --to) {
                order_.at[to] = order_.at[to - 1];
            }
            order_.at[to] = i;
            if (to > 0 && at[order_.at[to - 1]] == at[i]) {
                BIDE_THROW(
                    std::invalid_argument("bide::scoped_lock: a mutex is in the list twice"));
            }
        }
    }
    lock_set(lock_set&& other) noexcept
        : mutexes_(other.mutexes_), order_(other.order_), locked_(std::exchange(other.locked_, 0)) {
    }
    lock_set& operator=(lock_set other) noexcept {
        std::swap(mutexes_, other.mutexes_);
        std::swap(order_, other.order_);
        std::swap(locked_, other.locked_);
        return *this;
    }
    ~lock_set() { unlock(); }

    bool all_locked() const noexcept { return locked_ == size; }

    template <class F> decltype(auto) with_next(F&& f) { return with(order_.at[locked_], f); }
    // Called when the caller has locked the next mutex.
    void add_next() noexcept { ++locked_; }
    void adopt_all() noexcept { locked_ = size; }

    // Calls take(mutex), which locks the mutex, for one mutex after the other. If a call returns
    // false, unlocks the mutexes that are locked. If a call throws, the destructor unlocks them.
    template <class Take> bool lock(Take take) {
        while (locked_ != size) {
            if (!with_next(take)) {
                unlock();
                return false;
            }
            add_next();
        }
        return true;
    }

    void unlock() noexcept {
        while (locked_ != 0) {
            --locked_;
            with_next([](auto& m)
                          BIDE_THREAD_SAFETY(no_thread_safety_analysis) noexcept { m.unlock(); });
        }
    }

private:
    template <std::size_t I = 0, class F> decltype(auto) with(std::size_t which, F& f) {
        if constexpr (I + 1 < size) {
            if (which != I) {
                return with<I + 1>(which, f);
            }
        }
        return f(*std::get<I>(mutexes_));
    }

    std::tuple<M*...> mutexes_;
    struct order {
        std::size_t at[size];
    };
    order order_;
    std::size_t locked_ = 0;
};

} // namespace detail

/// Locks several mutexes, and unlocks them when it is destroyed. The mutexes may be of bide and of
/// other libraries. Unlike std::scoped_lock, it waits in the queue of each mutex, and holds the
/// earlier mutexes meanwhile. So other waiters do not starve it. The mutexes are locked in the
/// order of their addresses.
///
/// \code
/// bide::mutex from;
/// bide::mutex to;
/// bide::scoped_lock both(from, to); // in a coroutine: co_await bide::async_lock_all(from, to)
/// \endcode
///
/// Requires: if another thread holds one of the mutexes and waits for another one, it also locks
/// them in the order of their addresses. All functions and classes of this header do so. A
/// scoped_lock cannot be a case of a select, because it waits for several mutexes one after the
/// other.
template <detail::lockable... M> class [[nodiscard("name it")]] scoped_lock {
    using set = detail::lock_set<M...>;

public:
    /// Locks the mutexes.
    /// Blocks: until it has locked all of them.
    /// Throws: std::invalid_argument if a mutex is in the list twice; what a lock() throws. After
    /// an exception, no mutex is locked.
    [[nodiscard("name it")]] explicit scoped_lock(M&... mutexes) : set_(mutexes...) {
        set_.lock([](auto& m) BIDE_THREAD_SAFETY(no_thread_safety_analysis) {
            m.lock();
            return true;
        });
    }

    /// If every mutex is free, locks all of them. If not, locks none. Never blocks.
    /// Throws: as the constructor above.
    [[nodiscard("name it")]] explicit scoped_lock(std::try_to_lock_t, M&... mutexes)
        : set_(mutexes...) {
        set_.lock([](auto& m) { return m.try_lock(); });
    }

    /// Takes over mutexes that the caller has locked.
    /// Throws: as the constructor above.
    [[nodiscard("name it")]] explicit scoped_lock(std::adopt_lock_t, M&... mutexes)
        : set_(mutexes...) {
        set_.adopt_all();
    }

    /// Locks the mutexes, waiting at most until a point in time. After the time-out, no mutex is
    /// locked. The mutexes are TimedLockable.
    /// Throws: as the constructor above.
    template <class C, class D>
    [[nodiscard("name it")]] explicit scoped_lock(const std::chrono::time_point<C, D>& until,
                                                  M&... mutexes)
        : set_(mutexes...) {
        set_.lock([&](auto& m) { return m.try_lock_until(until); });
    }
    /// Locks the mutexes, or none of them if that takes longer than `rest`.
    template <class R, class P>
    [[nodiscard("name it")]] explicit scoped_lock(const std::chrono::duration<R, P>& rest,
                                                  M&... mutexes)
        : scoped_lock(time_after(rest), mutexes...) {}

    /// Locks the mutexes, or none of them if a stop is requested first.
    /// Requires: each mutex has lock(std::stop_token), as the mutexes of bide have.
    /// Throws: as the constructor above.
    [[nodiscard("name it")]] explicit scoped_lock(const std::stop_token& stop, M&... mutexes)
        : set_(mutexes...) {
        set_.lock([&](auto& m) { return m.lock(stop).has_value(); });
    }

    /// Takes over the mutexes that `what` has locked.
    explicit scoped_lock(detail::lock_set<M...>&& what) noexcept : set_(std::move(what)) {}

    /// Takes over the mutexes of `other`, which then holds none.
    scoped_lock(scoped_lock&& other) noexcept = default;
    /// Unlocks its mutexes and takes over those of `other`.
    scoped_lock& operator=(scoped_lock&& other) noexcept = default;
    /// Unlocks the mutexes.
    ~scoped_lock() = default;

    /// Returns true if it has locked its mutexes.
    explicit operator bool() const noexcept { return set_.all_locked(); }

    /// Unlocks the mutexes. After that, this object holds none.
    void unlock() noexcept { set_.unlock(); }

private:
    template <class R, class P>
    static std::chrono::steady_clock::time_point
    time_after(const std::chrono::duration<R, P>& rest) {
        const std::chrono::nanoseconds at(deadline::after(rest).steady_ns());
        return std::chrono::steady_clock::time_point(
            std::chrono::duration_cast<std::chrono::steady_clock::duration>(at));
    }

    set set_;
};

/// Deduces the types of the mutexes. If the first argument is not a mutex, the constructors deduce
/// them.
template <detail::lockable... M> scoped_lock(M&...) -> scoped_lock<M...>;

}} // namespace bide::BIDE_ABI

#endif
