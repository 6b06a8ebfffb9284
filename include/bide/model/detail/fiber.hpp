// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_FIBER_HPP
#define BIDE_MODEL_DETAIL_FIBER_HPP

// A fiber is a stack, and the registers with which its code continues.

#include <bide/core/config.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

class fiber {
public:
    static constexpr std::size_t stack_size = 256 * 1024;

    // The fiber of the calling code. It has the stack of the system thread until restart().
    fiber() = default;
    fiber(const fiber&) = delete;
    fiber& operator=(const fiber&) = delete;

    // Prepares the fiber to start again. The next switch to the fiber calls run(context), which
    // must not return. The previous contents of the fiber's stack are dropped, and no destructors
    // run.
    using function = void (*)(void*);
    void restart(function run, void* context);

    // Suspends this fiber and continues `other`. Requires: this fiber runs.
    void switch_to(fiber& other) noexcept;

    // Returns true if the address is on the stack.
    bool holds(const void* address) const noexcept;
    // Returns true if the address is in the guard area below the stack. An access to that area is a
    // stack overflow.
    bool guards(const void* address) const noexcept;
    // Returns the end of the stack. The stack grows downwards from there.
    std::byte* end() const noexcept { return stack_.get() + stack_size; }

    // Returns a hash of the used part of the stack, which includes the saved registers. Returns 0
    // if the platform does not support this. Requires: the fiber is suspended.
    std::uint64_t state() const noexcept;

    // The first function on the stack. Called by the first switch after restart().
    [[noreturn]] void enter() noexcept;

private:
    struct unmap {
        void operator()(std::byte* stack) const noexcept;
    };
    static std::byte* map();

    std::unique_ptr<std::byte[], unmap> stack_;
    // The state of exceptions that the C++ runtime keeps for each system thread: the exceptions
    // that are being handled, and the number of uncaught exceptions.
    struct exceptions {
        void* handled = nullptr;
        unsigned on_their_way = 0;
    };
    exceptions exceptions_;
    function run_ = nullptr;
    void* context_ = nullptr;
#if defined(__x86_64__) || defined(__aarch64__)
    void* top_ = nullptr; // the address of the saved registers
#else
    ucontext_t registers_{};
#endif
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
