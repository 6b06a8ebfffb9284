// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_THREAD_WAIT_HPP
#define BIDE_CORE_THREAD_WAIT_HPP

/// \file
/// The wait of a thread in the queue of a primitive. A primitive Q has
///
/// \code
/// wait_status enqueue(waiter&) noexcept;
/// bool cancel(waiter&, wait_status) noexcept;
/// bool await(waiter&, deadline);
/// \endcode
///
/// If enqueue() has queued the waiter, it returns waiting. Otherwise it returns the outcome.
/// cancel() returns true if it took the waiter out. It returns false if the wait is decided
/// already, or if the waiter is not queued yet; in the second case a later enqueue() refuses the
/// waiter. await() is optional and replaces waiter::park().

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/wake_scope.hpp>

#include <cstddef>
#include <type_traits>

namespace bide { inline namespace BIDE_ABI {

/// Blocks a thread in the queue of a primitive.
template <class Q, class Platform> struct thread_wait {
    /// A node in the queue.
    using waiter = basic_waiter<Platform>;

    /// Waits for `amount` until the deadline. The caller has already tried without waiting.
    /// Blocks: until the wait is decided. If the deadline is deadline::poll(), does not block.
    /// Returns: the outcome; timed_out if the deadline is deadline::poll().
    BIDE_NOINLINE static wait_status until(Q& queue, std::ptrdiff_t amount, deadline end) noexcept {
        return wait(queue, amount, end, !end.is_never(), [](waiter&) noexcept { return 0; });
    }

    /// Waits for `amount` until a stop is requested, or until the deadline.
    /// Blocks: until the wait is decided. If the deadline is deadline::poll(), does not block.
    /// Returns: the outcome.
    BIDE_NOINLINE static wait_status stoppable(Q& queue, std::ptrdiff_t amount,
                                               const typename Platform::stop_token& token,
                                               deadline end = deadline::never()) noexcept {
        // The callback runs on the thread that requests the stop. If the stop was requested
        // already, it runs here at once. It may access the primitive, because the primitive exists
        // until this wait has returned, and the destructor of the callback waits for a running
        // callback.
        return wait(queue, amount, end, token.stop_possible(), [&](waiter& w) noexcept {
            const auto stop = [&queue, &w]() noexcept {
                const wake_scope<Platform> away(detail::post_all{});
                if (!w.is_complete() && queue.cancel(w, wait_status::stopped)) {
                    w.publish(wait_status::stopped);
                }
            };
            return typename Platform::template stop_callback<std::remove_const_t<decltype(stop)>>(
                token, stop);
        });
    }

private:
    // The node lies on two cache lines. The releaser reads and writes the first one. The second one
    // contains the word that the owner polls.
    struct alignas(64) placed {
        explicit placed(std::ptrdiff_t amount) noexcept : w(amount) {}
        std::byte before[64 - waiter::offset_of_outcome];
        waiter w;
    };

    // arm(w) returns an object that exists while the wait lasts.
    template <class Arm>
    BIDE_INLINE static wait_status wait(Q& queue, std::ptrdiff_t amount, deadline end,
                                        [[maybe_unused]] bool may_end_early, Arm arm) noexcept {
        if (end.is_poll()) {
            return wait_status::timed_out;
        }
        placed place(amount);
        waiter& w = place.w;
        BIDE_PROBE_WAIT(queue, w);
        BIDE_CHECKED(const detail::noted_wait<Platform> noted(
                         &w, detail::subject_of_queue(queue, amount), may_end_early);)
        [[maybe_unused]] const auto armed = arm(w);
        if (const wait_status what = queue.enqueue(w); what != wait_status::waiting) {
            return what;
        }
        if (!await(queue, w, end)) {
            if (queue.cancel(w, wait_status::timed_out)) {
                return wait_status::timed_out;
            }
            await(queue, w, deadline::never()); // decided: what decided it is about to publish
        }
        return w.outcome();
    }
    static bool await(Q& queue, waiter& w, deadline end) noexcept {
        if constexpr (requires { queue.await(w, end); }) {
            return queue.await(w, end);
        } else {
            return w.park(end);
        }
    }
};

}} // namespace bide::BIDE_ABI

#endif
