// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_TOKEN_COUNT_HPP
#define BIDE_TASK_DETAIL_TOKEN_COUNT_HPP

// The tokens of a rate_limiter, in one word: what is spent of them. (It is the virtual scheduling
// algorithm of ITU-T I.371, with a count in the place of the theoretical arrival time, so that no rate
// is rounded.)
//
// A token consists of parts, which come one after the other: `n` parts in each period, the k-th one
// at the time ceil(k * period / n) after the start. The bucket holds at most `burst` parts and is
// full at the start. Let come(t) be the number of parts that have come until t. Then
// come(t) + burst - spent parts are in the bucket. If that is more than `burst`, the bucket has
// overflowed: the spent parts count as at least come(t).
//
// To take c parts at the time t is one CAS:
//
//   spent := max(spent, come(t)) + c
//
// These parts are there when come(t) + burst >= spent, which may be in the future: then they are
// reserved. Each change of the word goes up by what is taken, so no token is taken twice. The times
// of reservations are in the order of the CASes. If the word cannot go up, they come never.
//
// Why there are parts: whole tokens would come at fixed times, at which a full bucket overflows. A
// token that is taken just before such a time would be replaced at once. With a burst of one, two
// acquisitions would follow each other without an interval.
//
// A reservation is returned by the CAS back, which succeeds if no later one was made. If there is a
// later one, its time is fixed already. A returned token would have to come before that time: then
// the next caller passes the later one, or at that time: then both together exceed the rate. So the
// returned tokens are lost.

#include <bide/core/config.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <numeric>

namespace bide::inline BIDE_ABI {
namespace detail {

// Times are nanoseconds of one clock.
template <class Platform> class basic_token_count {
public:
    using count = std::uint64_t;

    // Tokens that were taken together, in parts.
    struct taken {
        count from = 0;
        count to = 0; // `from` if none were taken
        std::int64_t ready = 0;

        explicit operator bool() const noexcept { return to != from; }
    };

    // Requires: is_valid(n, period).
    basic_token_count(std::int64_t start, std::int64_t amount, std::int64_t period,
                      std::int64_t burst) noexcept
        : basic_token_count(start, reduced(amount, period), burst) {}

    // At most one token comes in a nanosecond, and a product of both numbers fits.
    static constexpr bool is_valid(std::int64_t n, std::int64_t period) noexcept {
        return n > 0 && n <= period && period <= never / n;
    }

    count burst() const noexcept { return burst_ / parts_; }
    // Returns the number of parts of a token.
    count parts() const noexcept { return parts_; }

    // Takes c tokens, unless they are there only after `latest`.
    // Requires: c is from 1 to burst().
    taken take(std::int64_t now, count c, std::int64_t latest) noexcept {
        const count come = come_until(now);
        // Order: relaxed, for all accesses; the word carries no other data.
        count seen = spent_.load(std::memory_order_relaxed);
        for (;;) {
            const count from = seen > come ? seen : come;
            const count to = from > most - c * parts_ ? most : from + c * parts_;
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
        const count there = spent <= come           ? burst_
                            : come + burst_ > spent ? come + burst_ - spent
                                                    : 0;
        return there / parts_;
    }

private:
    static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();
    static constexpr count most = (std::numeric_limits<count>::max)();

    struct rate {
        std::int64_t n, period;
    };
    static rate reduced(std::int64_t n, std::int64_t period) noexcept {
        const std::int64_t common = std::gcd(n, period);
        return {n / common, period / common};
    }

    basic_token_count(std::int64_t start, rate of, std::int64_t burst) noexcept
        : start_(start), parts_(parts_of(of, burst)), n_(of.n * static_cast<std::int64_t>(parts_)),
          period_(of.period), burst_(static_cast<count>(burst) * parts_) {}

    // Returns how many parts a token may have: at most one part comes in a nanosecond, and all
    // products fit.
    static count parts_of(rate of, std::int64_t burst) noexcept {
        return static_cast<count>(
            (std::min)({of.period / of.n, never / of.period / of.n, never / burst}));
    }

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
    const count parts_;    // of a token
    const std::int64_t n_; // in parts
    const std::int64_t period_;
    const count burst_; // in parts
    typename Platform::template atomic<count> spent_{0};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
