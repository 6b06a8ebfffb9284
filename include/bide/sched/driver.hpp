#ifndef BIDE_SCHED_DRIVER_HPP
#define BIDE_SCHED_DRIVER_HPP

// What an idle worker of a scheduler does where the system has more to wait for than threads: it
// sits in a driver, which waits for the system and for a wake at the same time, and hands over what
// became ready. sched/epoll_driver.hpp is one.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>

#include <atomic>
#include <system_error>

namespace bide::inline BIDE_ABI {

class driver {
public:
    // What one wait() hands over at most, so that tasks and timers get their turn.
    static constexpr unsigned max_completions = 256;

    driver(const driver&) = delete;
    driver& operator=(const driver&) = delete;
    virtual ~driver() = default;

    // Waits until something is ready, wake() was called, or the deadline has passed (with
    // deadline::poll() it only looks). Hands over what is ready, max_completions at most, by
    // publishing its waits or running its wakers with no lock held, and says how many. What is left
    // over is the next call's; what is always ready does not keep the rest out.
    // Blocks: until then. A coroutine without any executor runs inside.
    // Requires: one thread at a time, and not from inside itself. Each call comes after the last.
    virtual unsigned wait(deadline until) noexcept = 0;

    // Ends the wait() that is going on, or the next one. Several count once. Any thread.
    // Order: what was done before is seen by who called that wait().
    virtual void wake() noexcept = 0;

    // While one lives, some thread calls wait() again and again. A scheduler has one from its
    // construction until its shutdown.
    class [[nodiscard]] attachment {
    public:
        // Throws: std::system_error (device_or_resource_busy) if the driver has one already.
        explicit attachment(driver& to) : to_(to) {
            state seen = state::free;
            // Order: acquire [D3]; the last attachment has ended. Failure: relaxed; it has not.
            if (!to.state_.compare_exchange_strong(seen, state::attached, std::memory_order_acquire,
                                                   std::memory_order_relaxed)) {
                BIDE_THROW(
                    std::system_error(std::make_error_code(std::errc::device_or_resource_busy),
                                      "bide: a driver is attached already"));
            }
        }
        attachment(const attachment&) = delete;
        attachment& operator=(const attachment&) = delete;
        // Ends the operations that still wait, with errc::closed. No wait() is going on.
        ~attachment() {
            // Order: relaxed; detached() synchronizes with the operations.
            to_.state_.store(state::ending, std::memory_order_relaxed);
            to_.detached();
            // Order: release [D3]; the next attachment comes after all that.
            to_.state_.store(state::free, std::memory_order_release);
        }

    private:
        driver& to_;
    };

protected:
    driver() noexcept = default;

    // There is an attachment. An operation that would wait for ever without one fails.
    bool is_attached() const noexcept {
        // Order: relaxed; detached() finds the operations that were queued before.
        return state_.load(std::memory_order_relaxed) == state::attached;
    }

private:
    enum class state : unsigned char { free, attached, ending };

    // The attachment has ended, is_attached() is false: ends what waits with errc::closed.
    virtual void detached() noexcept {}

    native_platform::atomic<state> state_{state::free};
};

// What an operation of a driver gives as a result: nothing, an errc (stopped, timeout, closed), or an
// error of the system's.
using io_result = result<void, std::error_code>;

// What it gives as a value: it throws the error instead. An async_op<io_done> has the steps of an
// async_op<io_result>.
struct io_done {};
template <> struct as_result<io_done> {
    using type = io_result;
};

// For drivers: where an operation keeps the system's error until it is collected; 0: none.
struct io_payload {
    int error = 0;
};
template <> struct wait_payload<io_result> {
    using type = io_payload;
};

// For drivers: the outcome of such an operation.
inline io_result collect_io(const wait_target& t, wait_status what) noexcept {
    if (what != wait_status::granted) {
        return unexpected{make_error_code(errc_of(what))};
    }
    const int error = static_cast<const io_payload*>(t.payload)->error;
    return error == 0 ? io_result() : unexpected{std::error_code(error, std::system_category())};
}

} // namespace bide::inline BIDE_ABI

#endif
