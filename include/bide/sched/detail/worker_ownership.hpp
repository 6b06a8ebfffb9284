#ifndef BIDE_SCHED_DETAIL_WORKER_OWNERSHIP_HPP
#define BIDE_SCHED_DETAIL_WORKER_OWNERSHIP_HPP

// Which thread runs a worker, and how it passes to another while that one is blocked. One word:
//
//   a thread's address  that one runs it
//   the same, plus 1    it is blocked and may be replaced
//   passing             somebody is looking for a thread to replace it
//
// The thread that comes back finds its own address with the 1: it is still the tenant; or `passing`,
// for a moment: it waits; or another's address: it is not.

#include <bide/core/backoff.hpp>
#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>

#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_worker_ownership {
public:
    constexpr basic_worker_ownership() noexcept = default;
    basic_worker_ownership(const basic_worker_ownership&) = delete;
    basic_worker_ownership& operator=(const basic_worker_ownership&) = delete;

    // `me`: something of the calling thread's that stays where it is, at an even address.
    void begin(const void* me) noexcept {
        // Order: relaxed; the thread before finds out that it is not the tenant any more, and touches
        // nothing.
        word_.store(of(me), std::memory_order_relaxed);
    }

    // The tenant is going to block.
    void block(const void* me) noexcept {
        // Order: release [S5]; what it did with the worker is seen by who replaces it.
        word_.store(of(me) | blocked, std::memory_order_release);
    }

    // It comes back. False: somebody else is the tenant.
    bool unblock(const void* me) noexcept {
        basic_backoff<Platform> backoff;
        std::uintptr_t seen = of(me) | blocked;
        // Order: acquire [S5]; what those did who found nobody to replace it. Failure: look again.
        while (!word_.compare_exchange_strong(seen, of(me), std::memory_order_acquire,
                                              std::memory_order_relaxed)) {
            if (seen != passing) {
                return false;
            }
            backoff();
            seen = of(me) | blocked;
        }
        return true;
    }

    // Anybody: if the tenant is blocked, find() has another thread begin(), or says that there is
    // none. True: somebody else runs it now, or will.
    template <class Find> bool pass_on(Find&& find) noexcept {
        // Order: relaxed; the CAS decides.
        std::uintptr_t seen = word_.load(std::memory_order_relaxed);
        if ((seen & blocked) == 0 ||
            // Order: acquire [S5]; what the tenant did with it. Failure: it came back.
            !word_.compare_exchange_strong(seen, passing, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
            return false;
        }
        if (find()) {
            return true;
        }
        // Order: release [S5]; the tenant goes on after this attempt.
        word_.store(seen, std::memory_order_release);
        return false;
    }

    // A snapshot.
    bool is_blocked() const noexcept {
        // Order: relaxed; it is old when it is read.
        return (word_.load(std::memory_order_relaxed) & blocked) != 0;
    }

private:
    static constexpr std::uintptr_t blocked = 1;
    static constexpr std::uintptr_t passing = 2;

    static std::uintptr_t of(const void* thread) noexcept {
        return reinterpret_cast<std::uintptr_t>(thread);
    }

    typename Platform::template atomic<std::uintptr_t> word_{0};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
