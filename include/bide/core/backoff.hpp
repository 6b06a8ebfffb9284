#ifndef BIDE_CORE_BACKOFF_HPP
#define BIDE_CORE_BACKOFF_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/platform.hpp>

#include <chrono>

namespace bide::inline BIDE_ABI {

// Waits for a thread that is between two steps of a few instructions and may have lost its
// processor there: pauses at first, then yields, then, for a waiter whose priority keeps the other
// from running, sleeps for moments. Call it again and again, looking in between.
template <class Platform> class basic_backoff {
public:
    void operator()() noexcept {
        if constexpr (Platform::model) {
            Platform::pause();
        } else if (count_ < yields_from) {
            for (int left = 1 << count_; left > 0; --left) {
                Platform::pause();
            }
            ++count_;
        } else if (count_ < sleeps_from) {
            Platform::yield();
            ++count_;
        } else {
            const typename Platform::template atomic<futex_word> nobody_wakes_this{0};
            // Not worth a replacement of a worker (core/futex.hpp): it will not be long.
            const deadline until = deadline::after(std::chrono::microseconds(50));
            Platform::futex_wait(nobody_wakes_this, futex_word{0}, until.steady_ns());
        }
    }

private:
    static constexpr int yields_from = 6;
    static constexpr int sleeps_from = 200;
    int count_ = 0;
};

} // namespace bide::inline BIDE_ABI

#endif
