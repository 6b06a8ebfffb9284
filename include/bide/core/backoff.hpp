// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_BACKOFF_HPP
#define BIDE_CORE_BACKOFF_HPP

#include <bide/core/config.hpp>

#include <bide/core/platform.hpp>

#include <cstdint>

namespace bide { inline namespace BIDE_ABI {

/// Waits for another thread that is between two steps, which are a few instructions apart. That
/// thread may be preempted between these steps. Each call waits longer: the first 6 calls pause,
/// the next 194 calls yield, and later calls sleep for 50 us. Without the sleep, a waiter of higher
/// priority could keep the other thread from running. The caller checks its condition between the
/// calls.
template <class Platform> class basic_backoff {
public:
    /// Pauses, yields or sleeps once.
    void operator()() noexcept {
        if constexpr (Platform::model) {
            Platform::pause();
        } else if (count_ < yields_from) {
            for (int left = 1 << count_; left > 0; --left) {
                Platform::pause();
            }
            ++count_;
        } else if (count_ < sleeps_from) {
            Platform::yield();
            ++count_;
        } else {
            const typename Platform::template atomic<futex_word> never_changed{0};
            // Sleeps by the platform and not by core/futex.hpp, because a short sleep needs no
            // replacement worker.

            Platform::futex_wait(never_changed, futex_word{0}, Platform::now() + sleep_ns);
        }
    }

private:
    static constexpr int yields_from = 6;
    static constexpr int sleeps_from = 200;
    static constexpr std::int64_t sleep_ns = 50'000;
    int count_ = 0;
};

}} // namespace bide::BIDE_ABI

#endif
