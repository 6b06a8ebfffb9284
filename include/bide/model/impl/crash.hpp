// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_CRASH_HPP
#define BIDE_MODEL_IMPL_CRASH_HPP

// Turns a crash of a body, for instance by assert(), into a failure of the execution. The program
// continues, and reports the failure like any other. The signal handler changes the saved registers
// of the crashed thread, so that the thread continues in crashed(), at the upper end of its stack.

#include <bide/core/config.hpp>
#include <bide/model/detail/execution.hpp>
#include <bide/model/detail/heap.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

// Sanitizers report crashes themselves.
#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__)) &&                         \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define BIDE_MODEL_CATCHES_CRASHES 1
#else
#define BIDE_MODEL_CATCHES_CRASHES 0
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#undef BIDE_MODEL_CATCHES_CRASHES
#define BIDE_MODEL_CATCHES_CRASHES 0
#endif
#endif

#if BIDE_MODEL_CATCHES_CRASHES
#include <csignal>
#include <ucontext.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace model::detail { namespace {

#if BIDE_MODEL_CATCHES_CRASHES

// While an object of this class exists, crashes of bodies are failures.
class crash_guard {
    static constexpr std::array<int, 5> signals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    using actions = std::array<struct sigaction, signals.size()>;

public:
    crash_guard() noexcept : outer_(innermost) {
        stack_t stack{};
        stack.ss_sp = handlers_stack;
        stack.ss_size = sizeof handlers_stack;
        ::sigaltstack(&stack, &old_stack_);
        struct sigaction mine{};
        mine.sa_sigaction = &handle;
        mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
        for (std::size_t i = 0; i < signals.size(); ++i) {
            ::sigaction(signals[i], &mine, &old_[i]);
        }
        innermost = this;
    }
    crash_guard(const crash_guard&) = delete;
    crash_guard& operator=(const crash_guard&) = delete;
    ~crash_guard() {
        restore();
        ::sigaltstack(&old_stack_, nullptr);
        innermost = outer_;
    }

private:
    static void handle(int signal, siginfo_t* info, void* context) {
        execution* const x = execution::current();
        if (x == nullptr || !heap::in_body()) {
            // The crash is not in a body. Restores the previous handlers. The instruction then runs
            // and crashes again, and a previous handler is called.
            for (crash_guard* guard = innermost; guard != nullptr; guard = guard->outer_) {
                guard->restore();
            }
            if (signal == SIGABRT) {
                ::raise(signal);
            }
            return;
        }
        fiber& stack = x->self().stack;
        cause =
            signal == SIGABRT                       ? "abort() was called, perhaps by assert()"
            : signal == SIGFPE                      ? "SIGFPE, perhaps a division by zero"
            : signal != SIGSEGV && signal != SIGBUS ? "an illegal instruction"
            : stack.guards(info->si_addr)
                ? "a thread's stack overflows: there are 256 KiB"
                : "an access to an address that is none, perhaps read from freed memory (0xdd...)";
        auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
        const auto top = reinterpret_cast<std::uintptr_t>(stack.end()) & ~std::uintptr_t{15};
        const auto next = reinterpret_cast<std::uintptr_t>(&crashed);
#if defined(__x86_64__)
        registers.gregs[REG_RSP] = static_cast<greg_t>(top - 8); // the alignment after a call
        registers.gregs[REG_RIP] = static_cast<greg_t>(next);
#else
        registers.sp = top;
        registers.pc = next;
#endif
    }

    [[noreturn]] static void crashed() {
        execution::current()->fail_now(failure::terminated, cause);
    }

    void restore() const noexcept {
        for (std::size_t i = 0; i < signals.size(); ++i) {
            ::sigaction(signals[i], &old_[i], nullptr);
        }
    }

    static inline crash_guard* innermost = nullptr;
    static inline const char* cause = "";
    alignas(16) static inline std::byte handlers_stack[64 * 1024];

    crash_guard* const outer_;
    actions old_{};
    stack_t old_stack_{};
};

#else

struct crash_guard {
    crash_guard() noexcept {}
};

#endif

}}}} // namespace bide::BIDE_ABI::model::detail

#endif
