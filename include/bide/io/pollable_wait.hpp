// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_POLLABLE_WAIT_HPP
#define BIDE_IO_POLLABLE_WAIT_HPP

/// \file
/// Waits for an operation of bide in an event loop that waits for file descriptors, such as
/// poll(2), epoll(7), GLib, Qt or libuv. Linux only; empty on other systems.

#if defined(__linux__)

#include <bide/core/callback_wait.hpp>
#include <bide/io/detail/event_fd.hpp>

namespace bide { inline namespace BIDE_ABI {

/// A wait for an operation whose value is a T. Its descriptor is readable while the result is
/// ready.
/// Requires: the loop polls the descriptor, and does not read, write or close it.
///
/// \code
/// bide::pollable_wait<std::optional<int>> next;
/// next.begin(numbers.async_recv());
/// pollfd files[] = {{next.fd(), POLLIN, 0}, {socket, POLLIN, 0}};
/// while (::poll(files, 2, -1) > 0) {
///     if (next.is_complete()) {
///         handle(next.take().value());
///         next.begin(numbers.async_recv());
///     }
///     // ...
/// }
/// \endcode
///
/// For everything else, see callback_wait. The destructor cancels the wait. If the operation has
/// got something that was not taken, the destructor gives it back.
/// Thread safety: one thread at a time calls the functions.
template <class T> class pollable_wait {
public:
    /// The type that take() returns.
    using result_type = typename callback_wait<T>::result_type;

    /// Makes the descriptor.
    /// Throws: std::system_error if the system has no more descriptors or memory.
    pollable_wait() : wait_(waker(&on_complete, &readable_)) {}
    pollable_wait& operator=(pollable_wait&&) = delete;

    /// Returns the descriptor. It is readable exactly while is_complete() is true.
    int fd() const noexcept { return readable_.fd(); }

    /// Begins to wait, as callback_wait::begin() does. If the operation is complete at once, the
    /// descriptor is readable at once.
    /// Requires: the wait has not begun, or is complete; otherwise terminates.
    template <class U, int Stops> void begin(async_op<U, Stops> op) noexcept {
        if (wait_.is_complete()) {
            wait_.cancel(); // ends the call of the waker
            readable_.clear();
        }
        if (wait_.begin(std::move(op))) {
            readable_.set();
        }
    }

    /// Returns true if the wait has begun and is over.
    bool is_complete() const noexcept { return wait_.is_complete(); }

    /// Ends the wait, as callback_wait::cancel() does. If the wait had begun, makes the descriptor
    /// readable.
    bool cancel() noexcept {
        const bool ended = wait_.cancel();
        if (wait_.is_complete()) {
            readable_.set();
        }
        return ended;
    }

    /// Returns the result. The descriptor is not readable afterwards.
    /// Throws: what co_await of the operation would throw.
    /// Requires: is_complete(); otherwise terminates.
    result_type take() {
        struct at_end {
            ~at_end() { of.clear(); } // after the waker has made the descriptor readable
            detail::event_fd& of;
        } const end{readable_};
        return wait_.take();
    }

private:
    static void on_complete(void* of) noexcept { static_cast<detail::event_fd*>(of)->set(); }

    detail::event_fd readable_;
    callback_wait<T> wait_;
};

}} // namespace bide::BIDE_ABI

#endif

#endif
