// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_FUTEX_WINDOWS_HPP
#define BIDE_CORE_DETAIL_FUTEX_WINDOWS_HPP

// Sleeps and wakes by WaitOnAddress (Windows 8). Its time-outs are relative, in milliseconds. So
// each call waits for the time that is left, rounded up, and a long wait may take several calls.

#include <bide/core/config.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <type_traits>

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

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct windows_futex {
    // Returns false if `until` (steady nanoseconds; the largest value: never) has passed.
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

    // Uses the address only: the word may be destroyed.
    template <class Word> static void wake(const void* word, int count) noexcept {
        auto* address = const_cast<void*>(word);
        if (count == 1) {
            ::WakeByAddressSingle(address);
        } else {
            ::WakeByAddressAll(address);
        }
    }

private:
    static constexpr unsigned long infinite = 0xffff'ffff;
    static constexpr std::int64_t longest = 0x7fff'ffff;

    // Returns the milliseconds until `until`; `infinite` if `until` never comes.
    static unsigned long rest_ms(std::int64_t until) noexcept {
        if (until == (std::numeric_limits<std::int64_t>::max)()) {
            return infinite;
        }
        using namespace std::chrono;
        const auto now = steady_clock::now().time_since_epoch();
        const std::int64_t rest = until - duration_cast<nanoseconds>(now).count();
        if (rest <= 0) {
            return 0;
        }
        const std::int64_t ms = rest / 1'000'000 + 1;
        return static_cast<unsigned long>(ms < longest ? ms : longest);
    }
};

using os_futex = windows_futex;

}}} // namespace bide::BIDE_ABI::detail

#endif
