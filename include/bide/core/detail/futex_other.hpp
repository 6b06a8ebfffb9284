// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_FUTEX_OTHER_HPP
#define BIDE_CORE_DETAIL_FUTEX_OTHER_HPP

// Sleeps on an address, on systems other than Linux. (core/platform.hpp does so on Linux.) Each
// struct below has two functions:
//
//   wait(word, expected, until)   Sleeps while the word holds `expected`. Returns false if `until`
//                                 (steady nanoseconds; the largest value: never) has passed.
//   wake<Word>(address, count)    Uses the address only: the word may be destroyed.

#include <bide/core/config.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <type_traits>

#if defined(_WIN32)
#if defined(_MSC_VER)
#pragma comment(lib, "synchronization.lib")
#endif
// Declared as in <windows.h>. That header also defines macros such as `small`, `near` and `min`.
extern "C" {
int __stdcall WaitOnAddress(
    volatile void* address, void* compare,
    std::conditional_t<sizeof(void*) == 8, unsigned long long, unsigned long> size,
    unsigned long milliseconds);
void __stdcall WakeByAddressSingle(void* address);
void __stdcall WakeByAddressAll(void* address);
__declspec(dllimport) int __stdcall SwitchToThread();
}
#elif defined(__APPLE__) && __has_include(<os/os_sync_wait_on_address.h>)
#define BIDE_HAS_OS_SYNC
#include <cerrno>

#include <os/clock.h>
#include <os/os_sync_wait_on_address.h>
#else
#include <condition_variable>
#include <cstddef>
#include <mutex>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Returns the nanoseconds until `until`. If it has passed, the result is not positive.
// Requires: `until` is not the largest value, which means never.
inline std::int64_t rest_ns(std::int64_t until) noexcept {
    using namespace std::chrono;
    return until - duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

#if defined(_WIN32)
// Sleeps and wakes by WaitOnAddress (Windows 8). Its time-outs are relative, in milliseconds. So
// each call waits for the time that is left, rounded up, and a long wait may take several calls.
struct os_futex {
    template <class Atomic, class Word>
    static bool wait(const Atomic& word, Word expected, std::int64_t until) noexcept {
        const unsigned long rest = rest_ms(until);
        if (rest == 0) {
            return false;
        }
        auto* address = const_cast<void*>(static_cast<const void*>(&word));
        // If the call fails before the deadline, this counts as a spurious wake.
        return ::WaitOnAddress(address, &expected, sizeof(Word), rest) != 0 || rest_ms(until) != 0;
    }

    template <class Word> static void wake(const void* word, int count) noexcept {
        auto* address = const_cast<void*>(word);
        (count == 1 ? &::WakeByAddressSingle : &::WakeByAddressAll)(address);
    }

private:
    // Returns the milliseconds until `until`; the value of INFINITE if `until` never comes.
    static unsigned long rest_ms(std::int64_t until) noexcept {
        constexpr std::int64_t longest = 0x7fff'ffff;
        if (until == (std::numeric_limits<std::int64_t>::max)()) {
            return 0xffff'ffff;
        }
        const std::int64_t rest = rest_ns(until);
        const std::int64_t ms = rest <= 0 ? 0 : rest / 1'000'000 + 1;
        return static_cast<unsigned long>(ms < longest ? ms : longest);
    }
};

#elif defined(BIDE_HAS_OS_SYNC)
// Sleeps and wakes by os_sync_wait_on_address (macOS 14.4, iOS 17.4). It is a public interface,
// takes words of 4 and 8 bytes, and its time-outs are relative. The caller's errno stays unchanged.
struct BIDE_SHARED os_futex {
    template <class Atomic, class Word>
    static bool wait(const Atomic& word, Word expected, std::int64_t until) noexcept {
        const int saved = errno;
        auto* address = const_cast<void*>(static_cast<const void*>(&word));
        const auto value = static_cast<std::uint64_t>(expected);
        bool in_time = true;
        if (until == (std::numeric_limits<std::int64_t>::max)()) {
            ::os_sync_wait_on_address(address, value, sizeof(Word), OS_SYNC_WAIT_ON_ADDRESS_NONE);
        } else {
            const std::int64_t rest = rest_ns(until);
            in_time = rest > 0 &&
                      !(::os_sync_wait_on_address_with_timeout(
                            address, value, sizeof(Word), OS_SYNC_WAIT_ON_ADDRESS_NONE,
                            OS_CLOCK_MACH_ABSOLUTE_TIME, static_cast<std::uint64_t>(rest)) < 0 &&
                        errno == ETIMEDOUT);
        }
        errno = saved;
        return in_time;
    }

    template <class Word> static void wake(const void* word, int count) noexcept {
        const int saved = errno;
        auto* address = const_cast<void*>(word);
        if (count == 1) {
            ::os_sync_wake_by_address_any(address, sizeof(Word), OS_SYNC_WAKE_BY_ADDRESS_NONE);
        } else {
            ::os_sync_wake_by_address_all(address, sizeof(Word), OS_SYNC_WAKE_BY_ADDRESS_NONE);
        }
        errno = saved;
    }
};

#else
// Sleeps and wakes on systems that have no wait on an address: by a table of mutexes and condition
// variables, hashed by address. The waiter compares the word under the mutex of its bucket. The
// waker changes the word first and then locks and unlocks that mutex. So either the waiter sees the
// change, or the waker locks the mutex after the waiter has begun to sleep, and wakes it.
struct BIDE_SHARED portable_futex {
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
        return b.changed.wait_for(lock, std::chrono::nanoseconds(rest_ns(until))) ==
               std::cv_status::no_timeout;
    }

    // Wakes all waiters of the bucket, because words that share a bucket cannot be told apart. A
    // needless wake is allowed, a lost wake is not.
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

#if !defined(__linux__)
using os_futex = portable_futex;
#endif
#endif

}}} // namespace bide::BIDE_ABI::detail

#undef BIDE_HAS_OS_SYNC
#endif
