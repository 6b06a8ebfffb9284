// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_CHANGE_SIGNAL_HPP
#define BIDE_DURABLE_DETAIL_CHANGE_SIGNAL_HPP

// Wakes the contenders of one process that wait for a lock.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/durable/detail/lease_monitor.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>

#include <cstdint>
#include <memory>
#include <mutex>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Wakes all threads and coroutines of this process that wait for one lock, so that they read the
// record again.
//
//   waiter:   take next()              changer:   change the record
//             read the record                     signal(): set the event that was taken,
//             wait for the event                            and forget it
//
// The lock orders next() and signal(). If next() comes first, the signal sets the waiter's event,
// whether the waiter waits already or not. If the signal comes first, the waiter's read sees what
// was done before the signal.
template <class Platform> class basic_change_signal final : public monitor_client {
public:
    using event = basic_event<Platform>;

    // Returns the event that the next signal sets.
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

    // Returns how many signals there were.
    std::uint64_t count() const noexcept {
        const std::lock_guard held(lock_);
        return count_;
    }

    // Called by the lease monitor. A coroutine without an executor resumes on a service thread: on
    // this one it might call a store.
    void happened() noexcept override {
        const wake_scope<Platform> away(&service_executor<Platform>);
        signal();
    }

private:
    mutable basic_mutex<Platform> lock_;
    std::uint64_t count_ = 0;     // under lock_
    std::shared_ptr<event> next_; // under lock_; nullptr: not taken since the last signal
};

using change_signal = basic_change_signal<native_platform>;

}}} // namespace bide::BIDE_ABI::detail

#endif
