// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_FIBER_HPP
#define BIDE_MODEL_IMPL_FIBER_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/model/detail/fiber.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#if BIDE_EXCEPTIONS
#include <cxxabi.h>
#endif

#if defined(__unix__) || defined(__APPLE__)
#define BIDE_MODEL_MAPS 1
#include <sys/mman.h>
#else
#define BIDE_MODEL_MAPS 0
#endif

// bide_model_switch(save, load): pushes the callee-saved registers, stores the stack pointer in
// *save, sets the stack pointer to `load`, pops the registers and returns. restart() prepares a new
// stack so that the first switch to it returns to the beginning of bide_model_start. The argument
// of bide_model_start is in a callee-saved register.
#if defined(__x86_64__)
asm(R"(
.text
.globl bide_model_switch
.hidden bide_model_switch
.type bide_model_switch,@function
bide_model_switch:
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
.size bide_model_switch,.-bide_model_switch
.globl bide_model_start
.hidden bide_model_start
.type bide_model_start,@function
bide_model_start:
    movq %rbx, %rdi
    callq bide_model_enter
    ud2
.size bide_model_start,.-bide_model_start
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl bide_model_switch
.hidden bide_model_switch
.type bide_model_switch,%function
bide_model_switch:
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
.size bide_model_switch,.-bide_model_switch
.globl bide_model_start
.hidden bide_model_start
.type bide_model_start,%function
bide_model_start:
    mov x0, x19
    bl bide_model_enter
    brk #1
.size bide_model_start,.-bide_model_start
)");
#endif

#if defined(__x86_64__) || defined(__aarch64__)
extern "C" {
void bide_model_switch(void** save, void* load);
void bide_model_start();
[[gnu::used]] void bide_model_enter(bide::model::detail::fiber* f) { f->enter(); }
}
#endif

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// Returns a 64-bit hash of bytes, which is never 0. The four sums are independent of each other, so
// the processor computes them in parallel.
inline std::uint64_t digest(const std::byte* from, std::size_t size) noexcept {
    constexpr std::uint64_t odd = 0x9e37'79b9'7f4a'7c15u;
    std::uint64_t sums[4] = {1, 2, 3, size};
    const auto add = [&](std::uint64_t& sum, std::size_t bytes) {
        std::uint64_t word = 0;
        std::memcpy(&word, from, bytes);
        sum = (sum ^ word) * odd;
        sum ^= sum >> 29;
        from += bytes;
        size -= bytes;
    };
    while (size >= sizeof sums) {
        for (std::uint64_t& sum : sums) {
            add(sum, sizeof sum);
        }
    }
    while (size != 0) {
        add(sums[0], size < sizeof sums[0] ? size : sizeof sums[0]);
    }
    std::uint64_t all = 0;
    for (const std::uint64_t sum : sums) {
        all = (all ^ sum) * odd;
    }
    return all | 1;
}

void fiber::restart(function run, void* context) {
    if (!stack_) {
        stack_.reset(map());
    }
    run_ = run;
    context_ = context;
    exceptions_ = {};
#if defined(__x86_64__) || defined(__aarch64__)
    auto end = reinterpret_cast<std::uintptr_t>(stack_.get()) + stack_size;
    end &= ~std::uintptr_t{15};
#if defined(__x86_64__)
    constexpr std::size_t words = 9;    // six registers, the return address, and the alignment
    constexpr std::size_t argument = 4; // rbx
    constexpr std::size_t target = 6;
#else
    constexpr std::size_t words = 20;
    constexpr std::size_t argument = 0; // x19
    constexpr std::size_t target = 11;  // x30
#endif
    auto* const frame = reinterpret_cast<std::uintptr_t*>(end) - words;
    std::memset(frame, 0, words * sizeof *frame);
    frame[argument] = reinterpret_cast<std::uintptr_t>(this);
    frame[target] = reinterpret_cast<std::uintptr_t>(&bide_model_start);
    top_ = frame;
#else
    ::getcontext(&registers_);
    registers_.uc_stack.ss_sp = stack_.get();
    registers_.uc_stack.ss_size = stack_size;
    registers_.uc_link = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    ::makecontext(&registers_, reinterpret_cast<void (*)()>(+[](unsigned high, unsigned low) {
        const auto address = (std::uint64_t{high} << 32) | low;
        reinterpret_cast<fiber*>(static_cast<std::uintptr_t>(address))->enter();
    }),
                  2, static_cast<unsigned>(std::uint64_t{self} >> 32), static_cast<unsigned>(self));
#endif
}

void fiber::switch_to(fiber& other) noexcept {
#if BIDE_EXCEPTIONS
    auto* const now = reinterpret_cast<std::byte*>(abi::__cxa_get_globals());
    constexpr std::size_t size = sizeof(void*) + sizeof(unsigned); // the layout of the ABI
    std::memcpy(static_cast<void*>(&exceptions_), now, size);
    std::memcpy(now, &other.exceptions_, size);
#endif
#if defined(__x86_64__) || defined(__aarch64__)
    bide_model_switch(&top_, other.top_);
#else
    ::swapcontext(&registers_, &other.registers_);
#endif
}

#if BIDE_MODEL_MAPS

// The size of the guard area below a stack. The frame of one function may have this size.
constexpr std::size_t guard_size = 1024 * 1024;

std::byte* fiber::map() {
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

void fiber::unmap::operator()(std::byte* stack) const noexcept {
    ::munmap(stack - guard_size, guard_size + stack_size);
}

bool fiber::guards(const void* address) const noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto begin = reinterpret_cast<std::uintptr_t>(stack_.get());
    return begin != 0 && at < begin && begin - at <= guard_size;
}

#else

std::byte* fiber::map() { return new std::byte[stack_size]; }

void fiber::unmap::operator()(std::byte* stack) const noexcept { delete[] stack; }

bool fiber::guards(const void*) const noexcept { return false; }

#endif

bool fiber::holds(const void* address) const noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto begin = reinterpret_cast<std::uintptr_t>(stack_.get());
    return begin != 0 && at - begin < stack_size;
}

std::uint64_t fiber::state() const noexcept {
#if defined(__x86_64__) || defined(__aarch64__)
    const auto* const top = static_cast<const std::byte*>(top_);
    return digest(top, static_cast<std::size_t>(end() - top));
#else
    return 0;
#endif
}

void fiber::enter() noexcept {
    run_(context_);
    std::abort();
}

}}} // namespace bide::BIDE_ABI::model::detail

#endif
