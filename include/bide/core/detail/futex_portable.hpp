#ifndef BIDE_CORE_DETAIL_FUTEX_PORTABLE_HPP
#define BIDE_CORE_DETAIL_FUTEX_PORTABLE_HPP

// Where the system has no wait on an address: a table of mutexes and condition variables, hashed by
// address. The waiter compares the word under its bucket's mutex; the waker, who changed the word
// before, passes through that mutex: so either the waiter sees the change or the waker comes later.

#include <bide/core/config.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>

namespace bide::inline BIDE_ABI {
namespace detail {

struct portable_futex {
    template <class Atomic, class Word>
    static bool wait(const Atomic& word, Word expected, std::int64_t until) noexcept {
        bucket& b = bucket_of(&word);
        std::unique_lock lock(b.mutex);
        // Order: acquire; the bucket's mutex orders it, the strength costs nothing beside the wait.
        if (word.load(std::memory_order_acquire) != expected) {
            return true;
        }
        if (until == std::numeric_limits<std::int64_t>::max()) {
            b.changed.wait(lock);
            return true;
        }
        using clock = std::chrono::steady_clock;
        const auto at = clock::time_point(
            std::chrono::duration_cast<clock::duration>(std::chrono::nanoseconds(until)));
        return b.changed.wait_until(lock, at) == std::cv_status::no_timeout;
    }

    // Wakes all of the bucket: words that share it cannot be told apart, and a wake too many is
    // allowed where a wake too few is not.
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

    union bucket_table { // never destroyed: threads outlive statics
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
