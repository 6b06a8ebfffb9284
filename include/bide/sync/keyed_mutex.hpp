// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_KEYED_MUTEX_HPP
#define BIDE_SYNC_KEYED_MUTEX_HPP

/// \file
/// A mutex for each key: a file name, a user's number. Keys that are not in use take no memory.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/integer_cast.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/fwd.hpp>
#include <bide/sync/detail/key_table.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace bide::inline BIDE_ABI {

/// Holds the lock of one key of a keyed_mutex, or nothing. Unlocks it when it is destroyed.
template <class Key, class Platform> class [[nodiscard]] basic_key_lock {
    using use = detail::key_use<Key, Platform>;

public:
    /// Constructs a lock that holds nothing.
    basic_key_lock() noexcept = default;
    /// Takes over what `other` holds. `other` holds nothing then.
    basic_key_lock(basic_key_lock&& other) noexcept = default;
    /// Unlocks what it holds and takes over what `other` holds.
    basic_key_lock& operator=(basic_key_lock&& other) noexcept {
        if (this != &other) {
            unlock();
            use_ = std::move(other.use_);
        }
        return *this;
    }
    /// Unlocks the key.
    ~basic_key_lock() { unlock(); }

    /// Returns true if it holds a key.
    explicit operator bool() const noexcept { return use_.get() != nullptr; }
    /// Returns the key.
    /// Requires: it holds a key.
    const Key& key() const noexcept { return use_.get()->key; }

    /// Unlocks the key, or hands it to its first waiter. It holds nothing then.
    void unlock() noexcept {
        const use mine = std::move(use_);
        if (auto* const e = mine.get(); e != nullptr && !e->permits.give_known(0, 1)) {
            e->permits.give(1);
        }
    }

private:
    template <class, class, class, class> friend class keyed_mutex;
    explicit basic_key_lock(use&& locked) noexcept : use_(std::move(locked)) {}

    use use_;
};

/// What a coroutine's wait for a key carries: a use of the key.
template <class Key, class Platform> struct wait_payload<result<basic_key_lock<Key, Platform>>> {
    /// The use of the key.
    using type = detail::key_use<Key, Platform>;
};

/// A mutex for each key. Threads and coroutines that lock the same key get it in the order in which
/// they came; callers with different keys do not wait for each other. The first lock of a key
/// allocates memory for it, which is freed when the key has neither a holder nor a waiter. A wait
/// allocates nothing else.
///
/// Equal is called with a lock of the table held: it must not use the keyed_mutex.
///
/// Memory order: what happens before an unlock of a key happens before the return of the next lock
/// of the same key.
///
/// Destroys: not until every unlock has returned; terminates if a key is in use.
template <class Key, class Hash = std::hash<Key>, class Equal = std::equal_to<Key>,
          class Platform = native_platform>
class keyed_mutex {
    using shard = detail::key_shard<Key, Platform>;
    using use = typename shard::use;
    using queue = detail::basic_permit_queue<Platform>;
    using wait = thread_wait<queue, Platform>;

public:
    /// The type of the keys.
    using key_type = Key;
    /// Holds the lock of a key.
    using key_lock = basic_key_lock<Key, Platform>;

    /// Constructs a mutex for each key. Keys in different shards are found without contention;
    /// there are at least `shards` of them, a power of two, and 4,096 at most.
    /// Throws: std::bad_alloc.
    explicit keyed_mutex(std::size_t shards = 16, Hash hash = Hash(), Equal equal = Equal())
        : hash_(std::move(hash)), equal_(std::move(equal)) {
        while (count_ < shards && count_ <= most / 2) {
            count_ *= 2;
        }
        shards_ = std::make_unique<shard[]>(count_);
    }

    /// Destroys the mutex.
    /// Requires: no key is in use; terminates otherwise.
    ~keyed_mutex() {
        for (std::size_t i = 0; i < count_; ++i) {
            if (!shards_[i].empty()) {
                detail::fatal("keyed_mutex", this, "destroyed while a key is in use");
            }
        }
    }

    keyed_mutex(const keyed_mutex&) = delete;
    keyed_mutex& operator=(const keyed_mutex&) = delete;

    /// Locks a key.
    /// Blocks: until the key is free and every earlier waiter for it has had it.
    /// Throws: std::bad_alloc, and what Hash, Equal and the copy of the key throw; nothing is
    /// locked then.
    key_lock lock(const Key& key) { return until(key, deadline::never()); }

    /// Locks a key if it is free. Does not wait for the key.
    /// Throws: as lock().
    /// Returns: the lock; empty if the key is not free.
    key_lock try_lock(const Key& key) { return until(key, deadline::poll()); }

    /// Locks a key as lock() does, but waits at most `rest`.
    /// Returns: the lock; empty after the time-out.
    template <class R, class P>
    key_lock try_lock_for(const Key& key, const std::chrono::duration<R, P>& rest) {
        return until(key, deadline::after(rest));
    }
    /// Locks a key as lock() does, but waits at most until a point in time.
    template <class C, class D>
    key_lock try_lock_until(const Key& key, const std::chrono::time_point<C, D>& when) {
        return until(key, deadline::at(when));
    }

    /// Locks a key as lock() does, unless a stop is requested first.
    /// Returns: errc::stopped if the caller did not lock it.
    result<key_lock> lock(typename Platform::stop_token stop, const Key& key) {
        use mine = use_of(key);
        queue& permits = mine.get()->permits;
        if (!take_free(permits) && wait::stoppable(permits, 1, stop) != wait_status::granted) {
            return unexpected{errc::stopped};
        }
        return key_lock(std::move(mine));
    }

    /// Locks a key as lock() does, for a coroutine.
    /// Throws: as lock().
    /// Returns: an operation for co_await; its value is the lock.
    basic_async_op<key_lock, Platform> async_lock(const Key& key) {
        return {locking(), use_of(key)};
    }

private:
    static constexpr std::size_t most = 4'096; // shards

    // The operation of async_lock() (core/wait_ops.hpp).
    struct locking {
        locking() noexcept {}
        const auto& primitive(const use& of) const noexcept { return of.get()->permits; }
        wait_status try_now(use& of) const noexcept {
            return take_free(of.get()->permits) ? wait_status::granted : wait_status::waiting;
        }
        wait_status enqueue(basic_waiter<Platform>& w, use& of) const noexcept {
            w.ask(1);
            return of.get()->permits.enqueue(w);
        }
        bool cancel(basic_waiter<Platform>& w, wait_status why, use& of) const noexcept {
            return of.get()->permits.cancel(w, why);
        }
        result<key_lock> collect(wait_status what, use& of) const noexcept {
            if (what != wait_status::granted) {
                return unexpected{errc_of(what)};
            }
            return key_lock(std::move(of));
        }
    };

    static bool take_free(queue& permits) noexcept {
        return permits.take_known(1, 1) || permits.try_take(1);
    }

    use use_of(const Key& key) {
        const std::size_t hash = mixed(hash_(key));
        return shards_[hash & (count_ - 1)].find_or_add(key, hash / count_, equal_);
    }

    // std::hash of a number is often the number: spreads its bits over the shards and the buckets.
    // (The finalizer of MurmurHash3, by Austin Appleby.)
    static std::size_t mixed(std::size_t hash) noexcept {
        std::uint64_t bits = hash;
        bits = (bits ^ (bits >> 33)) * 0xff51'afd7'ed55'8ccd;
        bits = (bits ^ (bits >> 33)) * 0xc4ce'b9fe'1a85'ec53;
        return detail::integer_cast<std::size_t>(bits ^ (bits >> 33));
    }

    key_lock until(const Key& key, deadline end) {
        use mine = use_of(key);
        queue& permits = mine.get()->permits;
        const bool locked =
            take_free(permits) || wait::until(permits, 1, end) == wait_status::granted;
        return locked ? key_lock(std::move(mine)) : key_lock();
    }

    std::unique_ptr<shard[]> shards_;
    std::size_t count_ = 1;
    [[no_unique_address]] Hash hash_;
    [[no_unique_address]] Equal equal_;
};

} // namespace bide::inline BIDE_ABI

#endif
