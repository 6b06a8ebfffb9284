// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_PROCESS_FENCE_HPP
#define BIDE_CORE_DETAIL_PROCESS_FENCE_HPP

// A seq_cst fence that acts on all threads of the process. One thread makes the system call:
// membarrier(2) on Linux, FlushProcessWriteBuffers() on Windows. The other threads then need only a
// compiler fence.

#include <bide/core/config.hpp>

#if defined(__linux__) && __has_include(<linux/membarrier.h>)
#include <cerrno>

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#define BIDE_HAS_MEMBARRIER
#elif defined(_WIN32)
extern "C" __declspec(dllimport) void __stdcall FlushProcessWriteBuffers();
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct process_fence {
    // Prepares the fence. Returns false if the system has none. In a process that has several
    // threads, the first call may take 20 ms.
    static bool prepare() noexcept {
#if defined(BIDE_HAS_MEMBARRIER)
        return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
#elif defined(_WIN32)
        return true;
#else
        return false;
#endif
    }

    // Makes the fence. Returns false if the system has no such fence.
    static bool run() noexcept {
#if defined(BIDE_HAS_MEMBARRIER)
        // After fork() the child may have to prepare again.
        return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) ||
               (prepare() && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED));
#elif defined(_WIN32)
        ::FlushProcessWriteBuffers();
        return true;
#else
        return false;
#endif
    }

private:
#if defined(BIDE_HAS_MEMBARRIER)
    static bool membarrier(int command) noexcept {
        const int saved = errno;
        const bool succeeded = ::syscall(SYS_membarrier, command, 0, 0) == 0;
        errno = saved;
        return succeeded;
    }
#endif
};

// Makes the heavy fence of a platform, or that of the system. Returns false if there is none.
template <class Platform> bool heavy_fence() noexcept {
    if constexpr (requires { Platform::heavy_fence(); }) {
        return Platform::heavy_fence();
    } else {
        return process_fence::run();
    }
}

// Prepares heavy_fence(), which may take some milliseconds in the first call of the process.
template <class Platform> void prepare_heavy_fence() noexcept {
    if constexpr (!requires { Platform::heavy_fence(); }) {
        process_fence::prepare();
    }
}

}}} // namespace bide::BIDE_ABI::detail

#undef BIDE_HAS_MEMBARRIER

#endif
