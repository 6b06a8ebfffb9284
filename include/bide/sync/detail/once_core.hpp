// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_ONCE_CORE_HPP
#define BIDE_SYNC_DETAIL_ONCE_CORE_HPP

// The wait of once_flag and once_cell. It is a permit queue with one permit, the turn to initialise:
//
//   free       no caller initialises
//   taken      the holder of the permit initialises; the other callers wait in the queue
//   closed     it is initialised
//
// A holder that fails gives the permit back, so the first waiter gets it and is the next one to
// initialise. A holder that succeeds closes the queue: that lets every waiter through at once, and
// fails every later acquire. So "closed" is the good outcome here. What was done before the close
// is seen by each caller that finds it closed [permit.release].

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/result.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/fwd.hpp>
#include <bide/sync/detail/permit_queue.hpp>

#include <type_traits>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_once {
    using queue = basic_permit_queue<Platform>;
    using waits = thread_wait<queue, Platform>;

public:
    constexpr basic_once() noexcept : turns_(1) {}

    // For destructors: terminates with the name of the primitive if it is in use.
    void require_unused(const char* name, const void* object) const noexcept {
        turns_.require_no_waiters(name, object);
        if (!turns_.is_closed() && turns_.available() == 0) {
            fatal(name, object, "destroyed while it is being initialised");
        }
    }

    bool is_set() const noexcept { return turns_.is_closed(); }

    // Waits for the turn to initialise. Returns granted: the caller has the turn, and calls set()
    // or give_up(). closed: it is initialised.
    wait_status begin(deadline until) noexcept {
        return begin_by([&] { return waits::until(turns_, 1, until); });
    }
    wait_status begin(const typename Platform::stop_token& token) noexcept {
        return begin_by([&] { return waits::stoppable(turns_, 1, token); });
    }

    // Both are the last access of their caller.
    void set() noexcept { turns_.close(); }
    void give_up() noexcept { turns_.give(1); }

    // Waits for the turn, for a coroutine. Make makes the turn of the caller that has it; made
    // without arguments, a turn is empty.
    template <class Make> struct beginning : queue::taking {
        using turn = std::invoke_result_t<const Make&>;
        Make make;

        result<turn> collect(wait_status what) const noexcept {
            if (what == wait_status::granted) {
                return make();
            }
            if (what == wait_status::closed) {
                return turn();
            }
            return unexpected{errc_of(what)};
        }
    };
    template <class Make>
    basic_async_op<std::invoke_result_t<const Make&>, Platform> async_begin(Make make) noexcept {
        return {beginning<Make>{{turns_, 1}, make}};
    }

private:
    template <class Wait> wait_status begin_by(Wait wait) noexcept {
        return turns_.is_closed()   ? wait_status::closed
               : turns_.try_take(1) ? wait_status::granted
                                    : wait();
    }

    queue turns_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
