// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_TOKEN_COUNT_HPP
#define BIDE_TASK_DETAIL_TOKEN_COUNT_HPP

// The tokens of a rate_limiter, in one word: the number of tokens that are spent. (It is the virtual
// scheduling algorithm of ITU-T I.371, with a count in the place of the theoretical arrival time, so
// that no rate is rounded.)
//
// `n` tokens come in each period, the k-th one at the time ceil(k * period / n) after the start. The
// bucket holds at most `burst` tokens and is full at the start. Let come(t) be the number of tokens
// that have come until t. Then come(t) + burst - spent tokens are in the bucket. If that is more than
// `burst`, the bucket has overflowed: the spent tokens count as at least come(t).
//
// To take c tokens at the time t is one CAS:
//
//   spent := max(spent, come(t)) + c
//
// These tokens are there when come(t) + burst >= spent, which may be in the future: then they are
// reserved. Each change of the word goes up by what is taken, so no token is taken twice. The times
// of reservations are in the order of the CASes. A reservation is returned by the CAS back, which
// succeeds if no later one was made. If there is a later one, its time is fixed already, and the
// returned tokens are lost.

#include <bide/core/config.hpp>

#include <atomic>
#include <cstdint>
#include <limits>

namespace bide::inline BIDE_ABI {
namespace detail {

// Times are nanoseconds of one clock.
template <class Platform> class basic_token_count {
public:
    using count = std::uint64_t;

    // Tokens that were taken together.
    struct taken {
        count from = 0;
        count to = 0; // `from` if none were taken
        std::int64_t ready = 0;

        explicit operator bool() const noexcept { return to != from; }
    };

    // Requires: is_valid(n, period).
    basic_token_count(std::int64_t start, std::int64_t n, std::int64_t period,
                      std::int64_t burst) noexcept
        : start_(start), n_(n), period_(period), burst_(static_cast<count>(burst)) {}

    // At most one token comes in a nanosecond, and a product of both numbers fits.
    static constexpr bool is_valid(std::int64_t n, std::int64_t period) noexcept {
        return n > 0 && n <= period && period <= never / n;
    }

    count burst() const noexcept { return burst_; }

    // Takes c tokens, unless they are there only after `latest`.
    // Requires: c is from 1 to burst().
    taken take(std::int64_t now, count c, std::int64_t latest) noexcept {
        const count come = come_until(now);
        // Order: relaxed, for all accesses; the word carries no other data.
        count seen = spent_.load(std::memory_order_relaxed);
        for (;;) {
            const count from = seen > come ? seen : come;
            const count to = from + c;
            const std::int64_t ready = to <= come + burst_ ? now : time_of(to - burst_);
            if (ready > latest) {
                return {};
            }
            // Order: relaxed; as above.
            if (spent_.compare_exchange_weak(seen, to, std::memory_order_relaxed,
                                             std::memory_order_relaxed)) {
                return {from, to, ready};
            }
        }
    }

    // Returns tokens. Returns false if they are lost, because later ones were taken.
    bool give_back(const taken& some) noexcept {
        count seen = some.to;
        // Order: relaxed; as in take().
        return spent_.compare_exchange_strong(seen, some.from, std::memory_order_relaxed,
                                              std::memory_order_relaxed);
    }

    // Returns the number of tokens in the bucket.
    count available(std::int64_t now) const noexcept {
        const count come = come_until(now);
        // Order: relaxed; as in take().
        const count spent = spent_.load(std::memory_order_relaxed);
        return spent <= come ? burst_ : come + burst_ > spent ? come + burst_ - spent : 0;
    }

private:
    static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();

    count come_until(std::int64_t now) const noexcept {
        const std::int64_t past = now > start_ ? now - start_ : 0;
        return static_cast<count>(past / period_ * n_ + past % period_ * n_ / period_);
    }

    std::int64_t time_of(count k) const noexcept {
        const count n = static_cast<count>(n_);
        const count periods = k / n;
        const std::int64_t rest =
            (static_cast<std::int64_t>(k % n) * period_ + n_ - 1) / n_; // below 2 periods
        const auto room = static_cast<count>((never - start_ - rest) / period_);
        return periods > room ? never
                              : start_ + static_cast<std::int64_t>(periods) * period_ + rest;
    }

    const std::int64_t start_;
    const std::int64_t n_;
    const std::int64_t period_;
    const count burst_;
    typename Platform::template atomic<count> spent_{0};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
