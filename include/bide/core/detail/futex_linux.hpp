// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_FUTEX_LINUX_HPP
#define BIDE_CORE_DETAIL_FUTEX_LINUX_HPP

// Sleeps and wakes by private futex(2), with absolute CLOCK_MONOTONIC deadlines. It uses
// FUTEX_WAIT_BITSET, because FUTEX_WAIT takes no absolute deadline. The caller's errno stays
// unchanged.

#include <bide/core/config.hpp>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <limits>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct BIDE_SHARED linux_futex {
    // Returns false if `until` (steady nanoseconds; the largest value: never) has passed.
    template <class Atomic, class Word>
    static bool wait(const Atomic& word, Word expected, std::int64_t until) noexcept {
        return wait_on(low_half<Word>(&word), static_cast<std::uint32_t>(expected), until);
    }

    // Uses the address only: the word may be destroyed.
    template <class Word> static void wake(const void* word, int count) noexcept {
        wake_on(low_half<Word>(word), count);
    }

private:
#if defined(SYS_futex_time64) // a 32-bit machine: its time_t has 32 or 64 bits
    static constexpr long wait_call = sizeof(std::time_t) > sizeof(long) ? SYS_futex_time64
                                                                         : SYS_futex;
#else
    static constexpr long wait_call = SYS_futex;
#endif

    // Returns the address of the 32 bits that the kernel compares: the least significant half of a
    // 64-bit word.
    template <class Word> static const void* low_half(const void* word) noexcept {
        constexpr bool high_first = std::endian::native == std::endian::big;
        return static_cast<const char*>(word) + (high_first ? sizeof(Word) - 4 : 0);
    }

    BIDE_COLD static void wake_on(const void* word, int count) noexcept {
        const int saved = errno;
        ::syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count);
        errno = saved;
    }

    BIDE_COLD static bool wait_on(const void* word, std::uint32_t expected,
                                  std::int64_t until) noexcept {
        const int saved = errno;
        constexpr std::int64_t last_second = (std::numeric_limits<std::time_t>::max)();
        const std::int64_t seconds = until / 1'000'000'000;
        timespec at{};
        at.tv_sec = integer_cast<std::time_t>(seconds < last_second ? seconds : last_second);
        at.tv_nsec = integer_cast<long>(until % 1'000'000'000);
        const bool endless = until == (std::numeric_limits<std::int64_t>::max)();
        const auto failed =
            ::syscall(wait_call, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
                      endless ? nullptr : &at, nullptr, FUTEX_BITSET_MATCH_ANY);
        const bool in_time = !(failed != 0 && errno == ETIMEDOUT);
        errno = saved;
        return in_time;
    }
};

using os_futex = linux_futex;

}}} // namespace bide::BIDE_ABI::detail

#endif
