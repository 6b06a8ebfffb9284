// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_FUTEX_PORTABLE_HPP
#define BIDE_CORE_DETAIL_FUTEX_PORTABLE_HPP

// Sleeps and wakes on systems that have no wait on an address. It uses a table of mutexes and
// condition variables, hashed by address. The waiter compares the word under the mutex of its
// bucket. The waker changes the word first and then locks and unlocks that mutex. So either the
// waiter sees the change, or the waker locks the mutex after the waiter has begun to sleep, and
// wakes it.

#include <bide/core/config.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct BIDE_SHARED portable_futex {
    // Returns false if `until` (steady nanoseconds; the largest value: never) has passed.
    template <class Atomic, class Word>
    static bool wait(const Atomic& word, Word expected, std::int64_t until) noexcept {
        bucket& b = bucket_of(&word);
        std::unique_lock lock(b.mutex);
        // Order: acquire; the mutex of the bucket orders the load already.
        if (word.load(std::memory_order_acquire) != expected) {
            return true;
        }
        if (until == (std::numeric_limits<std::int64_t>::max)()) {
            b.changed.wait(lock);
            return true;
        }
        using clock = std::chrono::steady_clock;
        const auto at = clock::time_point(
            std::chrono::duration_cast<clock::duration>(std::chrono::nanoseconds(until)));
        return b.changed.wait_until(lock, at) == std::cv_status::no_timeout;
    }

    // Wakes all waiters of the bucket, because words that share a bucket cannot be told apart. A
    // needless wake is allowed, a lost wake is not. This function does not read the word.
    template <class Word> static void wake(const void* word, int) noexcept {
        bucket& b = bucket_of(word);
        {
            const std::lock_guard lock(b.mutex);
        }
        b.changed.notify_all();
    }

private:
    struct bucket {
        std::mutex mutex;
        std::condition_variable changed;
    };

    static constexpr std::size_t buckets = 64;

    union bucket_table { // never destroyed: threads may outlive statics
        bucket_table() noexcept : at() {}
        ~bucket_table() {}
        bucket at[buckets];
    };

    static bucket& bucket_of(const void* word) noexcept {
        static bucket_table table;
        const auto address = reinterpret_cast<std::uintptr_t>(word);
        return table.at[(address / 64 ^ address / 4) % buckets];
    }
};

}}} // namespace bide::BIDE_ABI::detail

#endif
