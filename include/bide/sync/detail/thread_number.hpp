// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_THREAD_NUMBER_HPP
#define BIDE_SYNC_DETAIL_THREAD_NUMBER_HPP

// Small numbers for threads, so that threads that run at once use different cache lines.

#include <bide/core/platform.hpp>

#include <bit>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The number of the calling thread. A coroutine does not use a reference to this object after a
// suspension, because it may resume on another thread.
struct BIDE_SHARED thread_number {
    static constexpr std::uint32_t none = 0xffff'ffff;
    std::uint32_t value = none;
};

// Numbers the threads round-robin, in the order in which they call assign().
template <class Platform> struct BIDE_SHARED thread_numbers {
    static constexpr std::uint32_t least = Platform::model ? 4 : 16;
    static constexpr std::uint32_t most = 128;

    // Returns how many numbers there are: a number for each processor, within [least, most].
    BIDE_COLD static std::uint32_t count() noexcept {
        const std::uint32_t processors = Platform::processors();
        return processors <= least ? least : processors >= most ? most : std::bit_ceil(processors);
    }

    // Returns the number of the calling thread, or `none` before assign().
    static std::uint32_t of_this_thread() noexcept {
        return Platform::template near_local<thread_number>().value;
    }

    // Returns the number of the calling thread.
    static std::uint32_t get() noexcept {
        const std::uint32_t mine = of_this_thread();
        return mine != thread_number::none ? mine : assign();
    }

    BIDE_COLD static std::uint32_t assign() noexcept {
        std::uint32_t next = 0; // in a model, the test assigns the other numbers
        if constexpr (!Platform::model) {
            // Order: relaxed; the number publishes no other data.
            next = next_.fetch_add(1, std::memory_order_relaxed) % count();
        }
        return Platform::template near_local<thread_number>().value = next;
    }

private:
    inline static constinit typename Platform::template atomic<std::uint32_t> next_{0};
};

}}} // namespace bide::BIDE_ABI::detail

#endif
