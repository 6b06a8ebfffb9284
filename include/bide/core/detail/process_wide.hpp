#ifndef BIDE_CORE_DETAIL_PROCESS_WIDE_HPP
#define BIDE_CORE_DETAIL_PROCESS_WIDE_HPP

// One T for each process, made on its first use and never destroyed: threads may outlive statics.
//
// A child of fork() has none of its parent's threads, so a T that owns threads is of no use there.
// The child makes another one on its first use. The parent's stays in memory as the fork found it,
// perhaps with a lock held, and the child does not touch it again.

#include <bide/core/config.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>

#include <cstdint>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace bide::inline BIDE_ABI {
namespace detail {

template <class T, class Platform> class process_wide {
public:
    // The one. Where there is none, make() returns it, made by new; a nullptr is passed on.
    // nullptr, too, where there is no memory to prepare for fork().
    // Throws: what make() throws.
    template <class Make> static T* get(Make make) {
        // Order: acquire [W1]; what made it.
        if (T* const made = one.load(std::memory_order_acquire)) {
            return made;
        }
        if (!prepare_for_fork()) {
            return nullptr;
        }
        const locked hold;
        // Order: relaxed; under the lock.
        T* made = one.load(std::memory_order_relaxed);
        if (made == nullptr) {
            made = make();
            // Order: release [W1]; what made it.
            one.store(made, std::memory_order_release);
        }
        return made;
    }

private:
    template <class U> using atomic = typename Platform::template atomic<U>;
    using lock_word = lock_bits<Platform, std::uint32_t>;

    struct locked {
        locked() noexcept { lock_word::acquire(lock); }
        locked(const locked&) = delete;
        locked& operator=(const locked&) = delete;
        ~locked() { lock_word::release(lock); }
    };

    // Before the lock is taken: a child may be forked while it is held.
    static bool prepare_for_fork() noexcept {
#if !defined(_WIN32)
        // Order: relaxed; to do it twice does no harm.
        if (!prepared.load(std::memory_order_relaxed)) {
            if (::pthread_atfork(nullptr, nullptr, &forget) != 0) {
                return false;
            }
            // Order: relaxed; as above.
            prepared.store(true, std::memory_order_relaxed);
        }
#endif
        return true;
    }

    // In the child, whose only thread this is.
    static void forget() noexcept {
        // Order: relaxed; there is no other thread.
        one.store(nullptr, std::memory_order_relaxed);
        // Order: relaxed; as above.
        lock.store(0, std::memory_order_relaxed);
    }

    inline static constinit atomic<T*> one{nullptr};
    inline static constinit atomic<std::uint32_t> lock{0};
    inline static constinit atomic<bool> prepared{false};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
