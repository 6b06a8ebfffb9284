#ifndef BIDE_SCHED_DETAIL_GLOBAL_QUEUE_INTERVAL_HPP
#define BIDE_SCHED_DETAIL_GLOBAL_QUEUE_INTERVAL_HPP

#include <bide/core/config.hpp>

#include <algorithm>
#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

// How many polls a busy worker makes before it looks up from its own queues: so many that a
// millisecond passes, as far as the last ones tell (their exponentially weighted average, a tenth
// for the newest), at least 8 and at most 255; but never more than 128, the budget of a tick.
class global_queue_interval {
public:
    // One more poll. True: time to look up. now() is asked once in a while, for polls that are longer
    // than those before.
    template <class Now> bool tick(Now&& now) noexcept {
        return ++polls_ >= interval_ || (polls_ % 16 == 0 && now() - since_ >= target_ns);
    }

    // It looks up now.
    void restart(std::int64_t now) noexcept {
        const std::int64_t each = (now - since_) / (std::max)(polls_, 1U);
        average_ns_ += (std::clamp<std::int64_t>(each, 1, longest_ns) - average_ns_) / 10;
        interval_ =
            static_cast<unsigned>(std::clamp<std::int64_t>(target_ns / average_ns_, 8, 128));
        since_ = now;
        polls_ = 0;
    }

    // It has slept: that was no poll.
    void wake(std::int64_t now) noexcept {
        since_ = now;
        polls_ = 0;
    }

private:
    static constexpr std::int64_t target_ns = 1'000'000;
    static constexpr std::int64_t longest_ns =
        100'000'000; // one poll that counts for more than that

    unsigned polls_ = 0;
    unsigned interval_ = 61;
    std::int64_t since_ = 0;
    std::int64_t average_ns_ = 16'000;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
