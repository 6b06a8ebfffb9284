// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_FIBER_HPP
#define BIDE_CORE_DETAIL_FIBER_HPP

// A fiber is a stack, and the registers with which its code continues. The model checker and the
// simulation of a test::scheduler run code on fibers. BIDE_HAS_FIBERS is 0 on a platform that has
// none.

#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>

#if defined(__ELF__)
#define BIDE_HAS_FIBERS 1
#else
#define BIDE_HAS_FIBERS 0
#endif

#if BIDE_HAS_FIBERS

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>

#if BIDE_EXCEPTIONS
#include <cxxabi.h>
#endif

// bide_fiber_switch(save, load): pushes the callee-saved registers and stores the stack pointer in
// *save. Then sets the stack pointer to `load`, pops the registers and returns. restart() prepares
// a new stack so that the first switch to it returns to the beginning of fiber::enter(). Each file
// that includes this header has the function, and the linker keeps one of them.
#if defined(__x86_64__)
asm(R"(
.section .text.bide_fiber_switch,"axG",@progbits,bide_fiber_switch,comdat
.weak bide_fiber_switch
.hidden bide_fiber_switch
.type bide_fiber_switch,@function
bide_fiber_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size bide_fiber_switch,.-bide_fiber_switch
.text
)");
#elif defined(__aarch64__)
asm(R"(
.section .text.bide_fiber_switch,"axG",%progbits,bide_fiber_switch,comdat
.weak bide_fiber_switch
.hidden bide_fiber_switch
.type bide_fiber_switch,%function
bide_fiber_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size bide_fiber_switch,.-bide_fiber_switch
.text
)");
#endif

#if defined(__x86_64__) || defined(__aarch64__)
#define BIDE_FIBER_HAS_SWITCH 1
extern "C" void bide_fiber_switch(void** save, void* load);
#else
#define BIDE_FIBER_HAS_SWITCH 0
#include <ucontext.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

class fiber {
public:
    static constexpr std::size_t stack_size = 256 * 1024;

    // The fiber of the calling code. It has the stack of the system thread until restart().
    fiber() = default;
    fiber(const fiber&) = delete;
    fiber& operator=(const fiber&) = delete;
    ~fiber() {
        if (stack_ != nullptr) {
            ::munmap(stack_ - guard_size, guard_size + stack_size);
        }
    }

    // Prepares the fiber to start again. The next switch to the fiber calls run(context). The
    // previous contents of the fiber's stack are dropped, and no destructors run.
    // Requires: run() does not return.
    using function = void (*)(void*);
    void restart(function run, void* context) {
        if (stack_ == nullptr) {
            stack_ = map();
        }
        run_ = run;
        context_ = context;
        exceptions_ = {};
        begins_ = true;
#if BIDE_FIBER_HAS_SWITCH
#if defined(__x86_64__)
        constexpr std::size_t words =
            8; // six registers, and the return addresses of switch and enter
        constexpr std::size_t target = 6;
#else
        constexpr std::size_t words = 20;
        constexpr std::size_t target = 11; // x30
#endif
        auto* const frame = reinterpret_cast<std::uintptr_t*>(end()) - words;
        std::memset(frame, 0, words * sizeof *frame);
        frame[target] = reinterpret_cast<std::uintptr_t>(&enter);
        top_ = frame;
#else
        ::getcontext(&registers_);
        registers_.uc_stack.ss_sp = stack_;
        registers_.uc_stack.ss_size = stack_size;
        registers_.uc_link = nullptr;
        ::makecontext(&registers_, &enter, 0);
#endif
    }

    // Suspends this fiber and continues `other`. Requires: this fiber runs.
    void switch_to(fiber& other) noexcept {
#if BIDE_EXCEPTIONS
        auto* const now = reinterpret_cast<std::byte*>(abi::__cxa_get_globals());
        constexpr std::size_t size = sizeof(void*) + sizeof(unsigned); // the layout of the ABI
        std::memcpy(static_cast<void*>(&exceptions_), now, size);
        std::memcpy(now, &other.exceptions_, size);
#endif
        if (std::exchange(other.begins_, false)) {
            here().began = &other;
        }
#if BIDE_FIBER_HAS_SWITCH
        bide_fiber_switch(&top_, other.top_);
#else
        ::swapcontext(&registers_, &other.registers_);
#endif
    }

    // Returns true if the address is on the stack.
    bool holds(const void* address) const noexcept {
        return stack_ != nullptr && distance(stack_, address) < stack_size;
    }
    // Returns true if the address is in the guard area below the stack. An access to that area is a
    // stack overflow.
    bool guards(const void* address) const noexcept {
        return stack_ != nullptr && distance(stack_ - guard_size, address) < guard_size;
    }
    // Returns the end of the stack. The stack grows downwards from there.
    std::byte* end() const noexcept { return stack_ + stack_size; }

protected:
#if BIDE_FIBER_HAS_SWITCH
    // Returns the address of the saved registers, the lowest address of the used part of the stack.
    // Requires: the fiber is suspended.
    const std::byte* top() const noexcept { return static_cast<const std::byte*>(top_); }
#endif

private:
    // The size of the guard area below a stack. A frame up to this size cannot skip the area.
    static constexpr std::size_t guard_size = 1024 * 1024;

    static std::size_t distance(const void* from, const void* to) noexcept {
        return reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
    }

    // Maps a stack, whose address is a multiple of the page size.
    static std::byte* map() {
        void* const all =
            ::mmap(nullptr, guard_size + stack_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED) {
            BIDE_THROW(std::bad_alloc());
        }
        auto* const stack = static_cast<std::byte*>(all) + guard_size;
        if (::mprotect(stack, stack_size, PROT_READ | PROT_WRITE) != 0) {
            BIDE_THROW(std::bad_alloc());
        }
        return stack;
    }

    // The first function on each stack. Called by the first switch after restart().
    [[noreturn]] static void enter() noexcept {
        fiber& mine = *here().began;
        mine.run_(mine.context_);
        std::abort();
    }

    // The state of a system thread.
    struct thread {
        fiber* began = nullptr; // the fiber that was begun last
    };
    static thread& here() noexcept { return native_platform::local<thread>(); }

    std::byte* stack_ = nullptr;
    // The state of exceptions that the C++ runtime keeps for each system thread: the exceptions
    // that are being handled, and the number of uncaught exceptions.
    struct exceptions {
        void* handled = nullptr;
        unsigned on_their_way = 0;
    };
    exceptions exceptions_;
    function run_ = nullptr;
    void* context_ = nullptr;
    bool begins_ = false; // it was restarted, and has not run since
#if BIDE_FIBER_HAS_SWITCH
    void* top_ = nullptr; // the address of the saved registers
#else
    ucontext_t registers_{};
#endif
};

}}} // namespace bide::BIDE_ABI::detail

#endif
#endif
