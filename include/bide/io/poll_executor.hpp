// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_POLL_EXECUTOR_HPP
#define BIDE_IO_POLL_EXECUTOR_HPP

/// \file
/// An executor for a loop that waits for file descriptors: poll(2), epoll(7), GLib, Qt, libuv. Linux
/// only; empty on other systems.
//
// The queue is that of a strand (task/strand.hpp). The poster that must start a runner makes
// the descriptor readable. run() makes it unreadable, and only then is the runner. So a poster has left
// the executor when its runnable runs.

#if defined(__linux__)

#include <bide/core/backoff.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/executor_users.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/io/detail/event_fd.hpp>
#include <bide/task/strand.hpp>

#include <cstddef>
#include <utility>

namespace bide::inline BIDE_ABI {

/// Queues runnables for a loop on another library's thread. Its descriptor is readable while something
/// is queued; the loop then calls run().
///
/// \code
/// bide::poll_executor ui;
/// g_unix_fd_add(ui.fd(), G_IO_IN, [](int, GIOCondition, void* of) {
///     static_cast<bide::poll_executor*>(of)->run();
///     return G_SOURCE_CONTINUE;
/// }, &ui);
/// bide::spawn(ui, load(model)).detach(); // all of it runs on the thread of the loop
/// \endcode
///
/// A post allocates nothing and cannot fail. A post from a runnable of the executor, and all posts
/// while something is queued, make no system call.
/// Thread safety: any thread posts; one thread at a time calls run().
class poll_executor : public detail::executor_users {
public:
    /// Makes the descriptor.
    /// Throws: std::system_error if the system has no more descriptors or memory.
    poll_executor() = default;
    poll_executor(const poll_executor&) = delete;
    poll_executor& operator=(const poll_executor&) = delete;

    /// Runs what is queued, until nothing is.
    /// Requires: it is not destroyed by what it runs, and the tasks that are to resume on it have ended
    /// by then; otherwise terminates with a message. executor_runner::close() ends tasks.
    ~poll_executor() {
        if (running_) {
            detail::fatal("poll_executor", this, "destroyed by what runs on it");
        }
        for (basic_backoff<native_platform> again; !queue_.is_idle(); again()) {
            run(); // a poster may be about to make it readable
        }
        require_none("poll_executor");
    }

    /// Returns the descriptor. The loop only watches it: it must not read it, write it or close it.
    int fd() const noexcept { return readable_.fd(); }

    /// Runs `r` in the loop, after all that was posted before.
    /// Thread safety: any thread may call it.
    void post(runnable& r) noexcept {
        if (queue_.push(r)) {
            readable_.set();
        }
    }

    /// Runs what is queued, and what that posts; at most 64 runnables, so that the loop gets its turn.
    /// The descriptor stays readable if more is queued.
    /// Returns: how many it ran. 0 if nothing was queued, or if what it runs calls it.
    std::size_t run() noexcept {
        if (running_ || !readable_.clear()) {
            return 0;
        }
        running_ = true;
        std::size_t ran = 0;
        for (; queue_.has_next(); ++ran) {
            if (ran == most) {
                readable_.set();
                break;
            }
            queue_.pop().run.wake();
        }
        running_ = false;
        return ran;
    }

private:
    static constexpr std::size_t most = 64;

    detail::event_fd readable_;
    detail::basic_serial_queue<native_platform> queue_;
    bool running_ = false; // only the thread of the loop uses it
};

} // namespace bide::inline BIDE_ABI

#endif

#endif
