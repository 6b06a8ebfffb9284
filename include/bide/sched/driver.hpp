#ifndef BIDE_SCHED_DRIVER_HPP
#define BIDE_SCHED_DRIVER_HPP

// What an idle worker of a scheduler does where the system has more to wait for than threads: it
// sits in a driver, which waits for the system and for a wake at the same time, and hands over what
// became ready. sched/epoll_driver.hpp is one.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>

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

protected:
    driver() noexcept = default;
};

// What an operation of a driver ends with: nothing, an errc (stopped, timeout, closed), or an error
// of the system's.
using io_result = result<void, std::error_code>;

// For drivers: where an operation keeps the system's error until it is collected; 0: none.
struct io_cargo {
    int error = 0;
};
template <> struct wait_cargo<io_result> {
    using type = io_cargo;
};

// For drivers: the outcome of such an operation.
inline io_result collect_io(const wait_target& t, fate what) noexcept {
    if (what != fate::granted) {
        return unexpected{make_error_code(errc_of(what))};
    }
    const int error = static_cast<const io_cargo*>(t.cargo)->error;
    return error == 0 ? io_result() : unexpected{std::error_code(error, std::system_category())};
}

} // namespace bide::inline BIDE_ABI

#endif
