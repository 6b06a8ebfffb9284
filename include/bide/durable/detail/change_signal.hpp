#ifndef BIDE_DURABLE_DETAIL_CHANGE_SIGNAL_HPP
#define BIDE_DURABLE_DETAIL_CHANGE_SIGNAL_HPP

// "Look again": for all of this process that wait for one lock, threads and coroutines.
//
//   waiter:   take next()              changer:   change the record
//             look at the record                  signal(): set what was taken, and forget it
//             wait for what was taken
//
// next() and signal() are one after the other, under the lock. Where next() is first, the signal sets
// what the waiter took, whether it waits already or not. Where the signal is first, what was done
// before it is seen by the look.

#include <bide/core/config.hpp>
#include <bide/core/detail/coroutine_wait.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>
#include <bide/durable/detail/monitor_client.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_change_signal final : public monitor_client {
public:
    using event = basic_event<Platform>;

    // Set by the next signal.
    // Throws: std::bad_alloc.
    std::shared_ptr<event> next() {
        const std::lock_guard held(lock_);
        if (next_ == nullptr) {
            next_ = std::make_shared<event>();
        }
        return next_;
    }

    void signal() noexcept {
        std::shared_ptr<event> now;
        {
            const std::lock_guard held(lock_);
            now.swap(next_);
            ++count_;
        }
        if (now != nullptr) {
            now->set();
        }
    }

    // How many signals there were.
    std::uint64_t count() const noexcept {
        const std::lock_guard held(lock_);
        return count_;
    }

    // The lease_monitor's: a coroutine without an executor would go on here, to its store and beyond.
    void happened() noexcept override {
        const wake_scope<Platform> away(&service_executor<Platform>);
        signal();
    }

private:
    mutable basic_mutex<Platform> lock_;
    std::uint64_t count_ = 0;     // under lock_
    std::shared_ptr<event> next_; // under lock_; nullptr: nobody has asked since the last signal
};

using change_signal = basic_change_signal<native_platform>;

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
