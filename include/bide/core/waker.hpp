// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_WAKER_HPP
#define BIDE_CORE_WAKER_HPP

#include <bide/core/config.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Makes a waiter runnable: a function and its context. It is two words and trivially copyable.
/// Event loops of other libraries use it to connect to bide.
class waker {
public:
    /// Is called with the context.
    using function = void (*)(void*) noexcept;

    /// Makes an empty waker: wake() does nothing.
    constexpr waker() noexcept = default;

    /// Makes a waker: wake() calls `call(context)`. A releaser calls wake() at most once for each
    /// wait, while it holds no lock of the library. The releaser waits until `call` returns, so
    /// `call` should only make the waiter runnable. A stop or a time-out that ends the wait is a
    /// releaser, too. Outside a scheduler, one thread fires the time-outs of the whole process
    /// (core/timer.hpp).
    ///
    /// If `call` releases other waiters, their outcomes are decided at once. Their wakers run after
    /// `call` has returned, in the order in which the waiters were released. So the stack does not
    /// grow with a chain of wakers. If `call` blocks in bide (core/futex.hpp), these wakers run
    /// before it sleeps. If `call` blocks elsewhere, these wakers wait for it, so `call` must not
    /// wait for their effects.
    constexpr waker(function call, void* context) noexcept : call_(call), context_(context) {}

    /// Calls the function, if there is one.
    void wake() const noexcept {
        if (call_ != nullptr) {
            call_(context_);
        }
    }

    /// Returns whether there is a function.
    explicit operator bool() const noexcept { return call_ != nullptr; }

    /// Returns the context.
    void* context() const noexcept { return context_; }

private:
    function call_ = nullptr;
    void* context_ = nullptr;
};

}} // namespace bide::BIDE_ABI

#endif
