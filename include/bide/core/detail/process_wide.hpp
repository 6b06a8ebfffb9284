// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_PROCESS_WIDE_HPP
#define BIDE_CORE_DETAIL_PROCESS_WIDE_HPP

// Holds one T for each process. The first use makes the T. It is never destroyed, because threads
// may run after statics were destroyed.
//
// A child of fork() has no threads of its parent, so it cannot use a T that owns threads. Its first
// use makes a new T. The parent's T stays in the child's memory as it was at the fork, possibly
// locked, and the child does not access it again.

#include <bide/core/config.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>

#include <cstdint>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class T, class Platform> class BIDE_SHARED process_wide {
public:
    // Returns the T of this process. If there is none, calls make(), which returns a T made by new.
    // If make() returns nullptr, or if there is no memory to prepare for fork(), returns nullptr.
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

    // Called before the lock is acquired, because a child may be forked while the lock is held.
    static bool prepare_for_fork() noexcept {
#if !defined(_WIN32)
        // Order: relaxed; a second registration does no harm.
        if (!prepared.load(std::memory_order_relaxed)) {
            if (::pthread_atfork(nullptr, nullptr, &forget) != 0) {
                return false;
            }
            // Order: relaxed; as for the load.
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

}}} // namespace bide::BIDE_ABI::detail

#endif
