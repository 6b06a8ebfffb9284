// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_PROCESS_WIDE_HPP
#define BIDE_CORE_DETAIL_PROCESS_WIDE_HPP

// Provides what a process has once: an object, and a fence that acts on all of its threads.

#include <bide/core/lock_bits.hpp>

#if !defined(_WIN32)
#include <pthread.h>
#endif
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

// Holds one T for each process. The first use makes the T. It is never destroyed, because threads
// may run after statics were destroyed.
//
// A child of fork() has no threads of its parent, so it cannot use a T that owns threads. The first
// use in the child makes a new T. The parent's T stays in the child's memory as it was at the fork,
// possibly locked, and the child does not access it.
template <class T, class Platform> class BIDE_SHARED process_wide {
public:
    // Returns the T of this process. If there is none, calls make(), which returns a T made by new.
    // Returns nullptr if make() returns nullptr, or if there is no memory for the handler of
    // fork().
    // Throws: any exception of make().
    template <class Make> static T* get(Make make) {
        // Order: acquire [process_wide.publish]; the caller sees the finished T.
        if (T* const made = one.load(std::memory_order_acquire)) {
            return made;
        }
        if (!prepare_for_fork()) {
            return nullptr;
        }
        const typename lock_word::guard section(lock);
        // Order: relaxed; under the lock.
        T* made = one.load(std::memory_order_relaxed);
        if (made == nullptr) {
            made = make();
            // Order: release [process_wide.publish]; the T is finished.
            one.store(made, std::memory_order_release);
        }
        return made;
    }

private:
    template <class U> using atomic = typename Platform::template atomic<U>;
    using lock_word = lock_bits<Platform, std::uint32_t>;

    // Called before the lock is acquired: if a child is forked while the lock is held, the handler
    // frees the lock in the child.
    static bool prepare_for_fork() noexcept {
#if !defined(_WIN32)
        // Order: relaxed; a second registration does no harm.
        if (!prepared.load(std::memory_order_relaxed)) {
            if (::pthread_atfork(nullptr, nullptr, &forget) != 0) {
                return false;
            }
            // Order: relaxed; a second registration does no harm.
            prepared.store(true, std::memory_order_relaxed);
        }
#endif
        return true;
    }

    // Runs in the child, which has no other thread.
    static void forget() noexcept {
        // Order: relaxed; there is no other thread.
        one.store(nullptr, std::memory_order_relaxed);
        // Order: relaxed; there is no other thread.
        lock.store(0, std::memory_order_relaxed);
    }

    inline static constinit atomic<T*> one{nullptr};
    inline static constinit atomic<std::uint32_t> lock{0};
    inline static constinit atomic<bool> prepared{false};
};

// A seq_cst fence that acts on all threads of the process. One thread makes the system call:
// membarrier(2) on Linux, FlushProcessWriteBuffers() on Windows. The other threads then need only a
// compiler fence.
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

    // Executes the fence. Returns false if the system has no such fence.
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

// Executes the heavy fence of the platform. If the platform has none, executes process_fence.
// Returns false if there is neither.
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
