// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_FUTEX_WINDOWS_HPP
#define BIDE_CORE_DETAIL_FUTEX_WINDOWS_HPP

// WaitOnAddress (Windows 8). Its time-outs are relative, in milliseconds. So each call waits for
// the time that is left, rounded up, and a long wait may take several calls.

#include <bide/core/config.hpp>

#include <chrono>
#include <cstdint>
#include <limits>

#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>

#if defined(_MSC_VER)
#pragma comment(lib, "synchronization.lib")
#endif

namespace bide::inline BIDE_ABI {
namespace detail {

struct windows_futex {
    // Returns false if `until` (steady nanoseconds; the largest value: never) has passed.
    template <class Atomic, class Word>
    static bool wait(const Atomic& word, Word expected, std::int64_t until) noexcept {
        const DWORD rest = rest_ms(until);
        if (rest == 0) {
            return false;
        }
        auto* address = const_cast<void*>(static_cast<const void*>(&word));
        if (::WaitOnAddress(address, &expected, sizeof(Word), rest) != 0) {
            return true;
        }
        // A call that ends before the deadline is a spurious return.
        return ::GetLastError() != ERROR_TIMEOUT || rest_ms(until) != 0;
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
    // Returns the milliseconds that are left until `until`; INFINITE if it never comes.
    static DWORD rest_ms(std::int64_t until) noexcept {
        if (until == (std::numeric_limits<std::int64_t>::max)()) {
            return INFINITE;
        }
        using namespace std::chrono;
        const auto now = steady_clock::now().time_since_epoch();
        const std::int64_t rest = until - duration_cast<nanoseconds>(now).count();
        if (rest <= 0) {
            return 0;
        }
        const std::int64_t ms = rest / 1'000'000 + 1;
        return ms < 0x7fffffff ? static_cast<DWORD>(ms) : DWORD{0x7fffffff};
    }
};

using os_futex = windows_futex;

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
