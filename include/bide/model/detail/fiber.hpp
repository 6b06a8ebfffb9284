// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_FIBER_HPP
#define BIDE_MODEL_DETAIL_FIBER_HPP

// A stack to run on, and switching between two of them.

#include <bide/core/config.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace bide::inline BIDE_ABI::model::detail {

class fiber {
public:
    static constexpr std::size_t stack_size = 256 * 1024;

    // The stack that the program came on.
    fiber() = default;
    fiber(const fiber&) = delete;
    fiber& operator=(const fiber&) = delete;

    // The next switch to this fiber calls run(context), which must not return. The previous
    // contents of its stack are dropped, without running destructors.
    using function = void (*)(void*);
    void restart(function run, void* context);

    // Leaves this fiber, which is the one that runs, for another.
    void switch_to(fiber& other) noexcept;

    // The address is on its stack.
    bool holds(const void* address) const noexcept;
    // The address is one below its stack, which is never there: the stack overflows.
    bool guards(const void* address) const noexcept;
    // Behind its stack, which grows from there.
    std::byte* end() const noexcept { return stack_.get() + stack_size; }

    // A digest of what the left fiber keeps: its stack, and the registers on it. 0 where it cannot be had.
    std::uint64_t state() const noexcept;

    // What restart() starts.
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
    void* top_ = nullptr; // where the registers were left
#else
    ucontext_t registers_{};
#endif
};

} // namespace bide::inline BIDE_ABI::model::detail

#endif
