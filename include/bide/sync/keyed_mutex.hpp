// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_KEYED_MUTEX_HPP
#define BIDE_SYNC_KEYED_MUTEX_HPP

/// \file
/// A mutex for each key. A key is, for example, a file name or the number of a user. Keys that are
/// not in use take no memory.

#include <bide/core/wait_ops.hpp>
#include <bide/sync/detail/permit_queue.hpp>
#include <bide/sync/lock_operations.hpp>

#include <functional>
#include <memory>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The table of the keys that are in use: a hash table in shards. Each key has a queue. Each shard
// has its own lock (core/lock_bits.hpp). The lock is held during the search of one bucket, and
// while the number of buckets doubles or halves. A key is in the table as long as a key_use of the
// key exists. The holder of the key and each waiter for the key have a key_use.

template <class Key, class Platform> class key_shard;

// One key. Only the holder of the shard's lock accesses `next` and `uses`.
template <class Key, class Platform> struct key_entry {
    template <class T> using var = typename Platform::template var<T>;

    key_entry(key_shard<Key, Platform>& in, std::size_t hashed, const Key& its_key)
        : shard(in), hash(hashed), key(its_key) {
        BIDE_CHECKED(note_made<Platform>(this, "key of keyed_mutex");)
    }
    BIDE_CHECKED(~key_entry() { note_gone<Platform>(this); })

    key_shard<Key, Platform>& shard;
    const std::size_t hash;
    const Key key;
    basic_permit_queue<Platform> permits{1};
    var<std::size_t> uses{1};
    var<key_entry*> next{nullptr};
};

// A key_use keeps one key in the table, or is empty.
struct end_of_key_use {
    template <class Entry> void operator()(Entry* e) const noexcept { e->shard.end_use(*e); }
};
template <class Key, class Platform>
using key_use = std::unique_ptr<key_entry<Key, Platform>, end_of_key_use>;

template <class Key, class Platform> class alignas(cache_line_pair) key_shard {
    using lock = lock_bits<Platform, futex_word>;
    template <class T> using var = typename Platform::template var<T>;

public:
    using entry = key_entry<Key, Platform>;
    using use = key_use<Key, Platform>;

    key_shard() noexcept = default;
    key_shard& operator=(key_shard&&) = delete;

    // Returns true if no key is in use. Requires: no other thread uses the shard.
    bool empty() const noexcept { return size_ == 0; }

    // Finds the key, or adds it.
    // Throws: std::bad_alloc, and what Key and Equal throw; nothing changes then.
    template <class Equal> use find_or_add(const Key& key, std::size_t hash, const Equal& equal) {
        if (use found = find_or_insert(key, hash, equal, nullptr)) {
            return found;
        }
        auto made = std::make_unique<entry>(*this, hash, key);
        use found = find_or_insert(key, hash, equal, made.get());
        if (found.get() == made.get()) {
            static_cast<void>(made.release());
        }
        return found;
    }

    BIDE_NOINLINE void end_use(entry& e) noexcept {
        bool is_last = false;
        buckets old;
        {
            const typename lock::guard inside(word_);
            const std::size_t left = e.uses - 1;
            e.uses = left;
            is_last = left == 0;
            if (is_last) {
                unlink(e);
                if (buckets_.count > few && size_ * 8 < buckets_.count) {
                    old = resize(buckets_.count / 2);
                }
            }
        }
        if (is_last) {
            delete &e;
        }
    }

private:
    static constexpr std::size_t few = 4; // buckets that need no allocation

    struct buckets {
        std::size_t count = 0;
        std::unique_ptr<var<entry*>[]> heap;
    };

    var<entry*>& bucket(std::size_t hash) noexcept {
        // In two steps: g++ 12 with UBSan evaluates the index of a conditional array wrongly.
        var<entry*>* const all = buckets_.heap ? buckets_.heap.get() : &first_[0];
        return all[hash % buckets_.count];
    }

    // Finds the key, or inserts `other` if it is not nullptr.
    template <class Equal>
    use find_or_insert(const Key& key, std::size_t hash, const Equal& equal, entry* other) {
        buckets old; // freed after the lock is released
        const typename lock::guard inside(word_);
        var<entry*>& head = bucket(hash);
        for (entry* e = head; e != nullptr; e = e->next) {
            if (e->hash == hash && equal(e->key, key)) {
                e->uses = e->uses + 1;
                return use(e);
            }
        }
        if (other == nullptr) {
            return use();
        }
        other->next = static_cast<entry*>(head);
        head = other;
        size_ = size_ + 1;
        if (size_ > buckets_.count * 2) {
            old = resize(buckets_.count * 2);
        }
        return use(other);
    }

    void unlink(entry& e) noexcept {
        var<entry*>* at = &bucket(e.hash);
        while (*at != &e) {
            at = &static_cast<entry*>(*at)->next;
        }
        *at = static_cast<entry*>(e.next);
        size_ = size_ - 1;
    }

    // Moves all keys to `count` new buckets. If there is no memory for the new buckets, changes
    // nothing. Returns the buckets that are no longer used.
    buckets resize(std::size_t count) noexcept {
        buckets next{count, nullptr};
        if (count > few) {
            next.heap.reset(new (std::nothrow) var<entry*>[count]());
            if (!next.heap) {
                return {};
            }
        }
        entry* all = nullptr;
        for (std::size_t i = 0; i < buckets_.count; ++i) {
            while (entry* const e = bucket(i)) {
                bucket(i) = static_cast<entry*>(e->next);
                e->next = all;
                all = e;
            }
        }
        std::swap(buckets_, next);
        while (all != nullptr) {
            entry* const e = std::exchange(all, static_cast<entry*>(all->next));
            var<entry*>& head = bucket(e->hash);
            e->next = static_cast<entry*>(head);
            head = e;
        }
        return next;
    }

    typename Platform::template atomic<futex_word> word_{0};
    var<std::size_t> size_{0};
    buckets buckets_{few, nullptr};
    var<entry*> first_[few] = {};
};

} // namespace detail

/// Holds the lock of one key of a keyed_mutex, or nothing. Unlocks it when it is destroyed.
template <class Key, class Platform> class [[nodiscard]] basic_key_lock {
    using use = detail::key_use<Key, Platform>;

public:
    /// Constructs a lock that holds nothing.
    basic_key_lock() noexcept = default;
    /// Takes over what `other` holds. `other` holds nothing then.
    basic_key_lock(basic_key_lock&& other) noexcept = default;
    /// Unlocks what it holds and takes over what `other` holds.
    basic_key_lock& operator=(basic_key_lock other) noexcept {
        std::swap(use_, other.use_);
        return *this;
    }
    /// Unlocks the key.
    ~basic_key_lock() { unlock(); }

    /// Returns true if it holds a key.
    explicit operator bool() const noexcept { return use_ != nullptr; }
    /// Returns the key.
    /// Requires: this object holds the lock of a key.
    const Key& key() const noexcept { return use_->key; }

    /// Unlocks the key, or hands it to its first waiter. This object holds nothing then.
    void unlock() noexcept {
        if (use_ != nullptr) {
            BIDE_SWITCH_AFTER();
            const use mine = std::move(use_);
            if (!mine->permits.give_known(0, 1)) {
                mine->permits.give(1);
            }
        }
    }

private:
    template <class, class, class, class> friend class keyed_mutex;
    explicit basic_key_lock(use&& locked) noexcept : use_(std::move(locked)) {}

    use use_;
};

/// The data of a coroutine's wait for a key: a use of the key.
template <class Key, class Platform> struct wait_payload<result<basic_key_lock<Key, Platform>>> {
    /// The use of the key.
    using type = detail::key_use<Key, Platform>;
};

/// A mutex for each key. Threads and coroutines that lock the same key get the lock in the order in
/// which they came. Callers with different keys do not wait for each other. The first lock of a key
/// allocates memory for it, which is freed when the key has neither a holder nor a waiter. Apart
/// from that, a wait allocates nothing.
///
/// \code
/// bide::keyed_mutex<std::string> accounts;
/// auto held = accounts.lock("alice"); // a holder of "bob" is not in the way
/// auto other = co_await accounts.async_lock("bob"); // in a coroutine
/// \endcode
///
/// Requires: Equal does not use the keyed_mutex, because a lock of the table is held during the
/// call.
///
/// Memory order: what happens before an unlock of a key happens before the return of the next lock
/// of the same key.
///
/// Destroys: every unlock must have returned before; terminates if a key is in use.
template <class Key, class Hash = std::hash<Key>, class Equal = std::equal_to<Key>,
          class Platform = native_platform>
class keyed_mutex {
    using shard = detail::key_shard<Key, Platform>;
    using use = typename shard::use;

public:
    /// The type of the keys.
    using key_type = Key;
    /// Holds the lock of a key.
    using key_lock = basic_key_lock<Key, Platform>;

    /// Constructs a keyed_mutex without keys in use. Keys in different shards are found without
    /// contention. The number of shards is `shards` rounded up to a power of two, and 4,096 at
    /// most.
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

    keyed_mutex& operator=(keyed_mutex&&) = delete;

    /// Locks a key.
    /// Blocks: until the key is free and every earlier waiter for the key has had the lock.
    /// Throws: std::bad_alloc, and what Hash, Equal and the copy of the key throw; nothing is
    /// locked then.
    key_lock lock(const Key& key) { return until(key, deadline::never()); }

    /// Locks a key if it is free. Does not wait for the key.
    /// Throws: as lock().
    /// Returns: the lock; empty if the key is not free.
    key_lock try_lock(const Key& key) { return until(key, deadline::poll()); }

    /// Locks a key as lock() does, but waits at most `rest`.
    /// Returns: the lock; empty after the time-out.
    key_lock try_lock_for(const Key& key, deadline::from_now rest) {
        return until(key, deadline(rest));
    }
    /// Locks a key as lock() does, but waits at most until a point in time.
    key_lock try_lock_until(const Key& key, deadline when) { return until(key, when); }

    /// Locks a key as lock() does, unless a stop is requested first.
    /// Returns: errc::stopped if the caller did not lock it.
    result<key_lock> lock(typename Platform::stop_token stop, const Key& key) {
        key_lock mine = until(key, stop);
        return mine ? result<key_lock>(std::move(mine)) : unexpected{errc::stopped};
    }

    /// Locks a key as lock() does, for a coroutine.
    /// Throws: as lock().
    /// Returns: an operation for co_await; its value is the lock.
    basic_async_op<key_lock, Platform> async_lock(const Key& key) {
        use mine = use_of(key);
        return {locking{{mine->permits, 1}}, std::move(mine)};
    }

private:
    static constexpr std::size_t most = 4'096; // shards

    // The operation of async_lock() (core/wait_ops.hpp).
    struct locking : detail::basic_permit_queue<Platform>::taking {
        wait_status try_now() const noexcept {
            return this->from.take_known(1, 1) || this->from.try_take(1) ? wait_status::granted
                                                                         : wait_status::waiting;
        }
        result<key_lock> collect(wait_status what, use& of) const noexcept {
            if (what != wait_status::granted) {
                return unexpected{errc_of(what)};
            }
            return key_lock(std::move(of));
        }
    };

    use use_of(const Key& key) {
        const std::size_t hash = mixed(hash_(key));
        return shards_[hash & (count_ - 1)].find_or_add(key, hash / count_, equal_);
    }

    // Spreads the bits of a hash over the shards and the buckets, because std::hash of a number is
    // often the number itself. (This is the finalizer of MurmurHash3, by Austin Appleby.)
    static std::size_t mixed(std::size_t hash) noexcept {
        std::uint64_t bits = hash;
        bits = (bits ^ (bits >> 33)) * 0xff51'afd7'ed55'8ccd;
        bits = (bits ^ (bits >> 33)) * 0xc4ce'b9fe'1a85'ec53;
        return detail::integer_cast<std::size_t>(bits ^ (bits >> 33));
    }

    template <class End> key_lock until(const Key& key, const End& end) {
        use mine = use_of(key);
        const detail::permit_mode<Platform> how{mine->permits, 1, 1};
        if (how.take_free() || how.try_take() || how.wait(end) == wait_status::granted) {
            return key_lock(std::move(mine));
        }
        return key_lock();
    }

    std::unique_ptr<shard[]> shards_;
    std::size_t count_ = 1;
    [[no_unique_address]] Hash hash_;
    [[no_unique_address]] Equal equal_;
};

}} // namespace bide::BIDE_ABI

#endif
