// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_FUTEX_DARWIN_HPP
#define BIDE_CORE_DETAIL_FUTEX_DARWIN_HPP

// Sleeps and wakes by os_sync_wait_on_address (macOS 14.4, iOS 17.4). It is a public interface,
// takes words of 4 and 8 bytes, and its time-outs are relative. The caller's errno stays unchanged.

#include <bide/core/config.hpp>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>

#include <os/clock.h>
#include <os/os_sync_wait_on_address.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct BIDE_SHARED darwin_futex {
    // Returns false if `until` (steady nanoseconds; the largest value: never) has passed.
    template <class Atomic, class Word>
    static bool wait(const Atomic& word, Word expected, std::int64_t until) noexcept {
        const int saved = errno;
        auto* address = const_cast<void*>(static_cast<const void*>(&word));
        const auto value = static_cast<std::uint64_t>(expected);
        bool in_time = true;
        if (until == (std::numeric_limits<std::int64_t>::max)()) {
            ::os_sync_wait_on_address(address, value, sizeof(Word), OS_SYNC_WAIT_ON_ADDRESS_NONE);
        } else {
            using namespace std::chrono;
            const auto now = steady_clock::now().time_since_epoch();
            const std::int64_t rest = until - duration_cast<nanoseconds>(now).count();
            in_time = rest > 0 &&
                      !(::os_sync_wait_on_address_with_timeout(
                            address, value, sizeof(Word), OS_SYNC_WAIT_ON_ADDRESS_NONE,
                            OS_CLOCK_MACH_ABSOLUTE_TIME, static_cast<std::uint64_t>(rest)) < 0 &&
                        errno == ETIMEDOUT);
        }
        errno = saved;
        return in_time;
    }

    // Uses the address only: the word may be destroyed.
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

using os_futex = darwin_futex;

}}} // namespace bide::BIDE_ABI::detail

#endif
