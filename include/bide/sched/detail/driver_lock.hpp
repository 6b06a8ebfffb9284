#ifndef BIDE_SCHED_DETAIL_DRIVER_LOCK_HPP
#define BIDE_SCHED_DETAIL_DRIVER_LOCK_HPP

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/driver.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

// The scheduler's driver, if it has one: one thread at a time sits in it.
template <class Platform> class basic_driver_lock {
public:
    explicit basic_driver_lock(driver* io) noexcept : driver_(io) {}
    basic_driver_lock(const basic_driver_lock&) = delete;
    basic_driver_lock& operator=(const basic_driver_lock&) = delete;

    // The driver, to be left again; nullptr: there is none, or somebody is in it.
    driver* enter() noexcept {
        // Order: acquire [S4]; what the last one did in it.
        return is_free() && !taken_.exchange(true, std::memory_order_acquire) ? driver_ : nullptr;
    }

    // Order: release [S4]; what was done in it is seen by the next one. is_free() follows [S6].
    void leave() noexcept { taken_.store(false, std::memory_order_release); }

    // There is one, and nobody is in it.
    bool is_free() const noexcept {
        // Order: seq_cst [S6]; after it was announced that this one sleeps. Whoever leaves it does the
        // reverse: one of the two sees the other.
        return driver_ != nullptr && !taken_.load(std::memory_order_seq_cst);
    }

private:
    driver* const driver_;
    typename Platform::template atomic<bool> taken_{false};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
