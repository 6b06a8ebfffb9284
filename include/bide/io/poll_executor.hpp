// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_POLL_EXECUTOR_HPP
#define BIDE_IO_POLL_EXECUTOR_HPP

/// \file
/// An executor for an event loop that waits for file descriptors, such as poll(2), epoll(7), GLib,
/// Qt or libuv. Linux only; empty on other systems.
//
// The queue is that of a strand (task/strand.hpp). A poster is a thread in post(). If the queue is
// idle, the poster makes the descriptor readable, which is the last access of the poster to the
// executor. run() clears the descriptor before it runs the queued runnables. So when a runnable
// runs, its poster no longer accesses the executor.

#if defined(__linux__)

#include <bide/io/detail/event_fd.hpp>
#include <bide/task/strand.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Queues runnables for the event loop of another library. Its descriptor is readable while
/// runnables are queued. The loop then calls run().
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
/// A post allocates nothing and cannot fail. A post makes a system call only if nothing is queued
/// and the executor is not running.
/// Thread safety: any thread may call post(). One thread at a time calls run().
class poll_executor : public detail::executor_users {
public:
    /// Makes the descriptor.
    /// Throws: std::system_error if the system has no more descriptors or memory.
    poll_executor() = default;
    poll_executor& operator=(poll_executor&&) = delete;

    /// Runs all queued runnables, including runnables that are posted meanwhile.
    /// Requires: the caller is no runnable of this executor. After all queued runnables have run,
    /// no task is left that must resume on this executor. Otherwise terminates with a message. To
    /// end such tasks earlier, call executor_runner::close().
    ~poll_executor() {
        if (running_) {
            detail::fatal("poll_executor", this, "destroyed by what runs on it");
        }
        for (basic_backoff<native_platform> again; !queue_.is_idle(); again()) {
            run(); // a poster may be about to make the descriptor readable
        }
        require_none("poll_executor");
    }

    /// Returns the descriptor.
    /// Requires: the loop watches the descriptor, and does not read, write or close it.
    int fd() const noexcept { return readable_.fd(); }

    /// Runs `r` in the loop, after all runnables that were posted before.
    /// Thread safety: any thread may call it.
    void post(runnable& r) noexcept {
        if (queue_.push(r)) {
            readable_.set();
        }
    }

    /// Runs at most 64 queued runnables, including runnables that are posted meanwhile. If more are
    /// queued, the descriptor stays readable, so that the loop can handle other events first.
    /// Returns: how many runnables it ran. If the caller is a runnable of the executor, returns 0.
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

}} // namespace bide::BIDE_ABI

#endif

#endif
