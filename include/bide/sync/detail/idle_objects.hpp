// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_IDLE_OBJECTS_HPP
#define BIDE_SYNC_DETAIL_IDLE_OBJECTS_HPP

// The objects of an object_pool that no caller has: a list in the order of their return, under a
// lock of its own (core/lock_bits.hpp). No user code runs under that lock.
//
// Why there are never more than `limit` objects. A permit of the pool is needed to have an object,
// and also to destroy an idle one. So count the callers with a permit that have an object, make one
// or destroy one: `busy`. A caller begins to make an object only if it finds the list empty. That
// caller has a permit and is not in `busy` yet, so busy + 1 <= permits <= limit then. A caller that
// takes an object from the list or returns it there changes neither idle + busy nor the number of
// objects. So idle + busy <= limit always. A close empties the list, and from then on no caller
// begins to make an object.

#include <bide/core/config.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// An object, and its place in the list. The links and the time belong to the holder of the lock.
template <class T, class Platform> struct pooled_object {
    template <class V> using var = typename Platform::template var<V>;

    // Constructs the object in place if `make` returns a T.
    template <class Make> explicit pooled_object(std::in_place_t, Make& make) : value(make()) {}

    T value;
    var<pooled_object*> older{nullptr};
    var<pooled_object*> newer{nullptr};
    var<std::int64_t> since{0}; // the time of its return
};

// What a caller with a permit does next.
enum class pool_step : unsigned char {
    lend,    // takes the object
    destroy, // destroys the object, which was idle for too long
    make,    // makes an object
    closed   // gives up
};

template <class T, class Platform> class idle_objects {
    using lock = lock_bits<Platform, futex_word>;
    template <class V> using var = typename Platform::template var<V>;

public:
    using object = pooled_object<T, Platform>;

    static constexpr std::int64_t never_expires = (std::numeric_limits<std::int64_t>::max)();

    idle_objects(std::int64_t idle_ns, std::size_t keep) noexcept
        : idle_ns_(idle_ns), keep_(keep) {}
    idle_objects(const idle_objects&) = delete;
    idle_objects& operator=(const idle_objects&) = delete;

    // The time for the calls below. The clock is not read if no object expires.
    std::int64_t now() const noexcept { return idle_ns_ == never_expires ? 0 : Platform::now(); }

    // Decides the next step, and stores the object of the first two. If the last returned object
    // has expired, all have.
    pool_step take(std::int64_t now, object*& found) noexcept {
        const held inside(*this);
        if (closed_) {
            return pool_step::closed;
        }
        found = newest_;
        if (found == nullptr) {
            size_ = size_ + 1;
            return pool_step::make;
        }
        unlink(*found);
        return is_spare(*found, now) ? pool_step::destroy : pool_step::lend;
    }

    // Takes the object back. Returns false if the pool is closed; the caller destroys it.
    bool put(object& returned, std::int64_t now) noexcept {
        const held inside(*this);
        if (closed_) {
            size_ = size_ - 1;
            return false;
        }
        returned.since = now;
        returned.newer = nullptr;
        object* const next = newest_;
        returned.older = next;
        (next != nullptr ? next->newer : oldest_) = &returned;
        newest_ = &returned;
        idle_ = idle_ + 1;
        return true;
    }

    // Takes out an object that has expired, for the caller to destroy; nullptr if there is none.
    object* pop_expired(std::int64_t now) noexcept {
        if (idle_ns_ == never_expires) {
            return nullptr;
        }
        const held inside(*this);
        object* const old = oldest_;
        if (old == nullptr || !is_spare(*old, now)) {
            return nullptr;
        }
        unlink(*old);
        return old;
    }

    // Counts an object that a caller with a permit destroys, or could not make.
    void lose() noexcept {
        const held inside(*this);
        size_ = size_ - 1;
    }

    // Closes the pool and deletes the idle objects.
    void close() noexcept {
        object* all = nullptr;
        {
            const held inside(*this);
            closed_ = true;
            all = newest_;
            newest_ = nullptr;
            oldest_ = nullptr;
            size_ = size_ - idle_;
            idle_ = 0;
        }
        while (all != nullptr) {
            delete std::exchange(all, static_cast<object*>(all->older));
        }
    }

    // Snapshots: the objects that exist or are being made, and those of them that are idle.
    std::size_t size() const noexcept {
        const held inside(*this);
        return size_;
    }
    std::size_t idle() const noexcept {
        const held inside(*this);
        return idle_;
    }

private:
    class held {
    public:
        explicit held(const idle_objects& of) noexcept : of_(of) { lock::acquire(of.word_); }
        held(const held&) = delete;
        held& operator=(const held&) = delete;
        ~held() { lock::release(of_.word_); }

    private:
        const idle_objects& of_;
    };

    void unlink(object& o) noexcept {
        object* const newer = o.newer;
        object* const older = o.older;
        (newer != nullptr ? newer->older : newest_) = older;
        (older != nullptr ? older->newer : oldest_) = newer;
        idle_ = idle_ - 1;
    }

    // Returns whether the object has expired and is not one of those to keep. If it is true, the
    // object counts no longer.
    bool is_spare(const object& o, std::int64_t now) noexcept {
        if (idle_ns_ == never_expires || size_ <= keep_ || now - o.since < idle_ns_) {
            return false;
        }
        size_ = size_ - 1;
        return true;
    }

    const std::int64_t idle_ns_;
    const std::size_t keep_;
    mutable typename Platform::template atomic<futex_word> word_{0};
    // Under the lock:
    var<object*> newest_{nullptr};
    var<object*> oldest_{nullptr};
    var<std::size_t> size_{0};
    var<std::size_t> idle_{0};
    var<bool> closed_{false};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
