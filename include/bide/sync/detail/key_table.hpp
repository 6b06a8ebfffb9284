// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_KEY_TABLE_HPP
#define BIDE_SYNC_DETAIL_KEY_TABLE_HPP

// The keys that are in use, each with its queue. A hash table in shards; each shard has a lock of
// its own (core/lock_bits.hpp), which is held for the search of one bucket, and while the buckets
// double or halve. A key is in the table as long as a key_use of it exists: a waiter, a holder.

#include <bide/core/config.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/sync/detail/permit_queue.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Key, class Platform> class key_shard;

// One key. Its links and its count belong to the holder of the shard's lock.
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

// Keeps a key in the table, or nothing.
template <class Key, class Platform> class key_use {
public:
    using entry = key_entry<Key, Platform>;

    key_use() noexcept = default;
    explicit key_use(entry& of) noexcept : entry_(&of) {}
    key_use(key_use&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
    key_use& operator=(key_use&& other) noexcept {
        std::swap(entry_, other.entry_);
        return *this;
    }
    ~key_use() {
        if (entry_ != nullptr) {
            entry_->shard.end_use(*entry_);
        }
    }

    entry* get() const noexcept { return entry_; }

private:
    entry* entry_ = nullptr;
};

template <class Key, class Platform> class alignas(cache_line_pair) key_shard {
    using lock = lock_bits<Platform, futex_word>;
    template <class T> using var = typename Platform::template var<T>;

public:
    using entry = key_entry<Key, Platform>;
    using use = key_use<Key, Platform>;

    key_shard() noexcept = default;
    key_shard(const key_shard&) = delete;
    key_shard& operator=(const key_shard&) = delete;

    // Returns whether no key is in use. Requires: no other thread uses the shard.
    bool empty() const noexcept { return size_ == 0; }

    // Finds the key, or adds it.
    // Throws: std::bad_alloc, and what Key and Equal throw; nothing changes then.
    template <class Equal> use find_or_add(const Key& key, std::size_t hash, const Equal& equal) {
        if (use found = find_or_insert(key, hash, equal, nullptr); found.get() != nullptr) {
            return found;
        }
        auto made = std::make_unique<entry>(*this, hash, key);
        use found = find_or_insert(key, hash, equal, made.get());
        if (found.get() == made.get()) {
            static_cast<void>(made.release());
        }
        return found;
    }

    void end_use(entry& e) noexcept {
        bool is_last = false;
        buckets old;
        {
            const held inside(*this);
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

    class held {
    public:
        explicit held(key_shard& of) noexcept : of_(of) { lock::acquire(of.word_); }
        held(const held&) = delete;
        held& operator=(const held&) = delete;
        ~held() { lock::release(of_.word_); }

    private:
        key_shard& of_;
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
        const held inside(*this);
        var<entry*>& head = bucket(hash);
        for (entry* e = head; e != nullptr; e = e->next) {
            if (e->hash == hash && equal(e->key, key)) {
                e->uses = e->uses + 1;
                return use(*e);
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
        return use(*other);
    }

    void unlink(entry& e) noexcept {
        var<entry*>* at = &bucket(e.hash);
        while (*at != &e) {
            at = &static_cast<entry*>(*at)->next;
        }
        *at = static_cast<entry*>(e.next);
        size_ = size_ - 1;
    }

    // Moves all keys to `count` buckets. Without memory for them, changes nothing. Returns the
    // buckets that are no longer used.
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
} // namespace bide::inline BIDE_ABI

#endif
