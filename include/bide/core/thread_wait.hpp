#ifndef BIDE_CORE_THREAD_WAIT_HPP
#define BIDE_CORE_THREAD_WAIT_HPP

// The wait of a thread in a primitive's queue, the same for all primitives. A primitive Q supplies
//
//   status enqueue(waiter&) noexcept        waiting: it is queued; else what became of it at once
//   bool cancel(waiter&, status) noexcept   true: taken out by this call; false: decided before, or
//                                         not queued yet, and queueing will be refused
//   bool await(waiter&, deadline)         optional, in place of waiter::park()

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/waiter.hpp>

#include <cstddef>
#include <stop_token>

namespace bide::inline BIDE_ABI {

template <class Q, class Platform> struct thread_wait {
    using waiter = basic_waiter<Platform>;

    // Waits for `amount` until the deadline. A deadline that has passed: no waiting, timed out (or
    // what enqueueing would have answered at once is for the caller to try before).
    BIDE_NOINLINE static wait_status until(Q& queue, std::ptrdiff_t amount, deadline end) noexcept {
        if (end.is_poll()) {
            return wait_status::timed_out;
        }
        placed place(amount);
        waiter& w = place.w;
        if (const wait_status what = queue.enqueue(w); what != wait_status::waiting) {
            return what;
        }
        if (!await(queue, w, end)) {
            if (queue.cancel(w, wait_status::timed_out)) {
                return wait_status::timed_out;
            }
            await(queue, w, deadline::never()); // decided: the publication is on its way
        }
        return w.outcome();
    }

    // Waits for `amount` until a stop is requested.
    BIDE_NOINLINE static wait_status stoppable(Q& queue, std::ptrdiff_t amount,
                                               const std::stop_token& token) noexcept {
        placed place(amount);
        waiter& w = place.w;
        // Runs on the thread that requests the stop, now if it was requested already. A wait that
        // is over is left alone: the primitive may be gone.
        auto end = [&queue, &w]() noexcept {
            wake_scope<Platform> away(&detail::service_executor<Platform>);
            if (!w.is_complete() && queue.cancel(w, wait_status::stopped)) {
                w.publish(wait_status::stopped);
            }
        };
        std::stop_callback<decltype(end)&> callback(token, end);
        if (const wait_status what = queue.enqueue(w); what != wait_status::waiting) {
            return what;
        }
        await(queue, w, deadline::never());
        return w.outcome();
    }

private:
    // The node over two cache lines: what the releaser reads and writes in the one, and in the
    // other the word that the owner looks at all the while.
    struct alignas(64) placed {
        explicit placed(std::ptrdiff_t amount) noexcept : w(amount) {}
        std::byte before[64 - waiter::offset_of_outcome];
        waiter w;
    };

    static bool await(Q& queue, waiter& w, deadline end) noexcept {
        if constexpr (requires { queue.await(w, end); }) {
            return queue.await(w, end);
        } else {
            return w.park(end);
        }
    }
};

} // namespace bide::inline BIDE_ABI

#endif
