#ifndef BIDE_CORE_WAKER_HPP
#define BIDE_CORE_WAKER_HPP

#include <bide/core/config.hpp>

namespace bide::inline BIDE_ABI {

// "Make it runnable": two words, trivially copyable. The seam for foreign event loops.
class waker {
public:
    using function = void (*)(void*) noexcept;

    // An empty one: wake() does nothing.
    constexpr waker() noexcept = default;

    // `call(context)` is run by whoever releases, with no lock of bide's held, at most once for
    // each wait. It has to mark and return: the releaser waits for it. A stop or a time-out that lets
    // a waiter through is a releaser, too; a time-out outside a scheduler is decided on the one
    // thread that fires them all (core/timer.hpp).
    constexpr waker(function call, void* context) noexcept : call_(call), context_(context) {}

    void wake() const noexcept {
        if (call_ != nullptr) {
            call_(context_);
        }
    }

    explicit operator bool() const noexcept { return call_ != nullptr; }

    void* context() const noexcept { return context_; }

private:
    function call_ = nullptr;
    void* context_ = nullptr;
};

} // namespace bide::inline BIDE_ABI

#endif
