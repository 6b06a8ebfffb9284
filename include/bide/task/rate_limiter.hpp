// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_RATE_LIMITER_HPP
#define BIDE_TASK_RATE_LIMITER_HPP

/// \file
/// Limits the rate of operations: a token bucket for threads and coroutines.
//
// This is the virtual scheduling algorithm of ITU-T I.371. Instead of a theoretical arrival time,
// one word, `spent`, stores what was taken from the bucket, in parts of tokens. So no rate is
// rounded.
//
// A token consists of parts, and the bucket counts parts only. The parts come, that is, are added
// to the bucket, one after the other. In each period, n parts come. The k-th part comes at the time
// ceil(k * period / n) after the start. The bucket holds at most B parts and is full at the start.
// B is the burst, which the user gives in tokens, times the parts of a token. Let come(t) be the
// number of parts that have come until t. Then the bucket contains come(t) + B - spent parts. If
// that is more than B, the bucket has overflowed, and come(t) replaces `spent`.
//
// One CAS takes c parts at the time t:
//
//   spent := max(spent, come(t)) + c
//
// These c parts are in the bucket from the first time t on at which come(t) + B >= spent. If that
// time is in the future, the parts are reserved. Each CAS increases the word by the parts that it
// takes. So no token is taken twice, and a later CAS never gets an earlier time. If the word would
// overflow, the parts never come.
//
// The reason for the parts: whole tokens would come at fixed times. If a token were taken from a
// full bucket just before such a time, the next token would come at once. With a burst of one
// token, two acquisitions would then follow each other without an interval.
//
// A reservation is cancelled by a CAS that restores the previous word. The CAS succeeds if no later
// reservation was made. If there is a later reservation, its time cannot change any more, and the
// cancelled tokens are lost. No other caller may get them. If it got them before the time of the
// later reservation, it would overtake that reservation. If it got them at that time, the rate
// would be exceeded.

#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// Times are nanoseconds of one clock.
template <class Platform> class basic_token_count {
public:
    using count = std::uint64_t;

    // What one call has taken: the parts from number `from` to number `to`.
    struct taken {
        count from = 0;
        count to = 0; // equal to `from` if no tokens were taken
        std::int64_t ready = 0;

        explicit operator bool() const noexcept { return to != from; }
    };

    // Requires: is_valid(tokens, period).
    basic_token_count(std::int64_t start, std::int64_t tokens, std::int64_t period,
                      std::int64_t burst) noexcept
        : start_(start), parts_(parts_of(reduced(tokens, period), reduced(period, tokens), burst)),
          n_(reduced(tokens, period) * static_cast<std::int64_t>(parts_)),
          period_(reduced(period, tokens)), burst_(static_cast<count>(burst) * parts_) {}

    // Returns true if at most one token comes in a nanosecond, and n * period does not overflow.
    static constexpr bool is_valid(std::int64_t n, std::int64_t period) noexcept {
        return n > 0 && n <= period && period <= never / n;
    }

    count burst() const noexcept { return burst_ / parts_; }
    count parts() const noexcept { return parts_; }

    // Takes c tokens, if they will be in the bucket at or before the time `latest`.
    // Requires: c is from 1 to burst().
    taken take(std::int64_t now, count c, std::int64_t latest) noexcept {
        const count come = come_until(now);
        // Order: relaxed, for all accesses; the word publishes no other data.
        count seen = spent_.load(std::memory_order_relaxed);
        for (;;) {
            const count from = seen > come ? seen : come;
            const count to = from > most - c * parts_ ? most : from + c * parts_;
            const std::int64_t ready = to <= come + burst_ ? now : time_of(to - burst_);
            if (ready > latest) {
                return {};
            }
            // Order: relaxed; the word publishes no other data.
            if (spent_.compare_exchange_weak(seen, to, std::memory_order_relaxed,
                                             std::memory_order_relaxed)) {
                return {from, to, ready};
            }
        }
    }

    // Returns tokens to the bucket. If other tokens were taken after `some`, the tokens of `some`
    // are lost, and the result is false.
    bool give_back(const taken& some) noexcept {
        count seen = some.to;
        // Order: relaxed; the word publishes no other data.
        return spent_.compare_exchange_strong(seen, some.from, std::memory_order_relaxed,
                                              std::memory_order_relaxed);
    }

    count available(std::int64_t now) const noexcept {
        const count come = come_until(now);
        // Order: relaxed; the word publishes no other data.
        const count spent = spent_.load(std::memory_order_relaxed);
        const count there = spent <= come           ? burst_
                            : come + burst_ > spent ? come + burst_ - spent
                                                    : 0;
        return there / parts_;
    }

private:
    static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();
    static constexpr count most = (std::numeric_limits<count>::max)();

    static constexpr std::int64_t lesser(std::int64_t a, std::int64_t b) noexcept {
        return a < b ? a : b;
    }
    // Returns n divided by the greatest common divisor of both numbers.
    static std::int64_t reduced(std::int64_t n, std::int64_t other) noexcept {
        std::int64_t common = n;
        while (other != 0) {
            common = std::exchange(other, common % other);
        }
        return n / common;
    }

    // Returns the number of parts in a token: the greatest number p for which at most one part
    // comes in a nanosecond, and neither n * p * period nor burst * p overflows.
    static count parts_of(std::int64_t n, std::int64_t period, std::int64_t burst) noexcept {
        return static_cast<count>(lesser(lesser(period / n, never / period / n), never / burst));
    }

    count come_until(std::int64_t now) const noexcept {
        const std::int64_t past = now > start_ ? now - start_ : 0;
        return static_cast<count>(past / period_ * n_ + past % period_ * n_ / period_);
    }

    std::int64_t time_of(count k) const noexcept {
        const count n = static_cast<count>(n_);
        const count periods = k / n;
        const std::int64_t last =
            (static_cast<std::int64_t>(k % n) * period_ + n_ - 1) / n_; // below 2 periods
        const auto room = static_cast<count>((never - start_ - last) / period_);
        return periods > room ? never
                              : start_ + static_cast<std::int64_t>(periods) * period_ + last;
    }

    const std::int64_t start_;
    const count parts_;    // of a token
    const std::int64_t n_; // in parts
    const std::int64_t period_;
    const count burst_; // in parts
    typename Platform::template atomic<count> spent_{0};
};

} // namespace detail

/// A bucket of tokens. `count` tokens come in each period, evenly spaced, and the bucket holds at
/// most `burst` of them. The bucket is full at the start. In any interval of length t, at most
/// burst + count * t / period tokens are acquired. The period is rounded up to whole nanoseconds.
/// The rate is not rounded otherwise. The time of a token is exact to 2 ns, or to period * period /
/// 2^62 ns if that is more.
///
/// \code
/// bide::rate_limiter calls(10, std::chrono::seconds(1), 20); // 10 a second, at most 20 at once
/// calls.acquire();                                        // in a coroutine: co_await calls.async_acquire()
/// if (calls.try_acquire()) std::puts("one more at once");
/// \endcode
///
/// With a burst of 1, it is a leaky bucket: acquisitions are at least period / count apart.
///
/// Waiters get their tokens in the order of their calls. An acquisition reserves its tokens at
/// once, and then waits for their time. If the wait ends early, the tokens go back to the bucket.
/// But if a later acquisition has reserved tokens meanwhile, the time of that acquisition does not
/// change, and the returned tokens are lost. An acquisition with a time limit reserves no tokens
/// that come after its limit.
///
/// A number of tokens that is below 1 or above the burst is invalid. For such a number,
/// try_acquire() returns false, and all other functions throw std::invalid_argument.
/// Thread safety: any thread may call any member concurrently, except the destructor.
/// Destroys: no call may be under way.
class rate_limiter {
    using tokens = detail::basic_token_count<native_platform>;

public:
    /// Makes a full bucket.
    /// Throws: std::invalid_argument, if the rate or the burst is zero or negative, if the rate is
    /// above one token in a nanosecond, or if count * period, in nanoseconds, is 2^63 or more.
    template <class R, class P>
    rate_limiter(std::int64_t count, const std::chrono::duration<R, P>& period,
                 std::int64_t burst = 1)
        : tokens_(checked(count, deadline::saturated_ns(period), burst)) {}
    rate_limiter(const rate_limiter&) = delete;
    rate_limiter& operator=(const rate_limiter&) = delete;

    /// Acquires n tokens.
    /// Blocks: until the time of the tokens has come.
    void acquire(std::int64_t n = 1) { sleep(tokens_.take(now(), valid(n), never)); }

    /// Acquires n tokens if they are in the bucket. Never blocks.
    /// Returns: true if they were acquired.
    [[nodiscard]] bool try_acquire(std::int64_t n = 1) noexcept {
        const std::int64_t at = now();
        return is_valid(n) && tokens_.take(at, static_cast<std::uint64_t>(n), at);
    }

    /// Acquires n tokens as acquire() does, if their time comes within `duration`. If it does not,
    /// returns false at once.
    /// Returns: true if they were acquired.
    template <class R, class P>
    [[nodiscard]] bool try_acquire_for(const std::chrono::duration<R, P>& duration,
                                       std::int64_t n = 1) {
        return acquire_until(deadline::after(duration), n);
    }
    /// Acquires n tokens as acquire() does, if the time of the tokens is not later than `when`.
    template <class C, class D>
    [[nodiscard]] bool try_acquire_until(const std::chrono::time_point<C, D>& when,
                                         std::int64_t n = 1) {
        return acquire_until(deadline::at(when), n);
    }

    /// Acquires n tokens as acquire() does, unless a stop is requested first. Allocates a coroutine
    /// frame.
    /// Returns: errc::stopped if they were not acquired.
    /// Throws: std::system_error if the service threads of bide cannot be started; std::bad_alloc.
    template <std::same_as<std::stop_token> Token> // a template, as async_acquire() is
    result<void> acquire(Token token, std::int64_t n = 1) {
        return sync_wait(wait_unless(std::move(token), valid(n)));
    }

    /// Acquires n tokens as acquire() does, for a coroutine. If the tokens come only after
    /// this_task::deadline(), takes none, and waits until the deadline stops the wait. If a shield
    /// of the task prevents that stop, the task then acquires the tokens.
    /// Throws: at the call: std::invalid_argument. When awaited: stopped_error, if the awaiting
    /// task is cancelled.
    /// Cancellation: the wait is stopped.
    template <class = void> // without a call, the compiler makes no code for the frame
    task<> async_acquire(std::int64_t n = 1) {
        return wait(valid(n));
    }

    /// Tokens that were reserved. The destructor does not return them to the bucket.
    /// Requires: the limiter outlives the reservation.
    class [[nodiscard]] reservation {
    public:
        /// Takes over the right of `other` to return its tokens.
        reservation(reservation&& other) noexcept : of_(other.of_), some_(other.exchange_none()) {}
        /// Takes over the right of `other` to return its tokens. The tokens that this object held
        /// before are not returned.
        reservation& operator=(reservation&& other) noexcept {
            some_ = other.exchange_none();
            of_ = other.of_;
            return *this;
        }

        /// Returns the time at which the tokens come. That time may have passed.
        std::chrono::steady_clock::time_point ready_at() const noexcept { return at(some_.ready); }
        /// Gives the tokens back to the bucket. A second call does nothing and returns false.
        /// Returns: true if the tokens are back in the bucket; false if they are lost, because
        /// other tokens were taken later.
        bool cancel() noexcept {
            const tokens::taken mine = exchange_none();
            return mine && of_->tokens_.give_back(mine);
        }

        /// \cond
    protected:
        friend rate_limiter;
        reservation(rate_limiter& of, tokens::taken some) noexcept : of_(&of), some_(some) {}

        // Empties this reservation, and returns what it contained. ready_at() stays the same.
        tokens::taken exchange_none() noexcept {
            const tokens::taken had = some_;
            some_.to = some_.from;
            return had;
        }

        rate_limiter* of_;
        tokens::taken some_;
        /// \endcond
    };
    /// Takes n tokens without waiting. The caller must wait until ready_at().
    reservation reserve(std::int64_t n = 1) {
        return reservation(*this, tokens_.take(now(), valid(n), never));
    }

    /// Returns the number of tokens in the bucket. It may be outdated when the caller reads it.
    std::int64_t available() const noexcept {
        return static_cast<std::int64_t>(tokens_.available(now()));
    }

private:
    static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();

    static std::int64_t now() noexcept { return native_platform::now(); }
    static std::chrono::steady_clock::time_point at(std::int64_t ns) noexcept {
        return std::chrono::steady_clock::time_point(
            std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                std::chrono::nanoseconds(ns)));
    }

    static tokens checked(std::int64_t count, std::int64_t period, std::int64_t burst) {
        if (!tokens::is_valid(count, period) || burst < 1) {
            BIDE_THROW(std::invalid_argument("bide::rate_limiter: an invalid rate or burst"));
        }
        return tokens(now(), count, period, burst);
    }

    bool is_valid(std::int64_t n) const noexcept {
        return n > 0 && static_cast<std::uint64_t>(n) <= tokens_.burst();
    }
    std::uint64_t valid(std::int64_t n) const {
        if (!is_valid(n)) {
            BIDE_THROW(std::invalid_argument("bide::rate_limiter: tokens outside [1, burst]"));
        }
        return static_cast<std::uint64_t>(n);
    }

    // Blocks the thread until the time of the tokens, as a wait for a semaphore does.
    static void sleep(const tokens::taken& some) {
        if (some.ready > now()) {
            semaphore none(0);
            static_cast<void>(none.try_acquire_until(at(some.ready)));
        }
    }

    bool acquire_until(deadline until, std::int64_t n) {
        const std::int64_t start = now();
        const std::int64_t latest = until.steady_ns();
        const tokens::taken some = tokens_.take(start, valid(n), latest > start ? latest : start);
        if (some) {
            sleep(some);
        }
        return static_cast<bool>(some);
    }

    // The reservation of a waiting coroutine. If the wait ends early, gives the tokens back.
    struct claim : reservation {
        using reservation::reservation;
        ~claim() { cancel(); }
    };

    template <class = void> task<> wait(std::uint64_t n) {
        const deadline limit = this_task::deadline();
        claim one(*this, tokens_.take(now(), n, limit.steady_ns()));
        if (!one.some_) { // the deadline stops this wait, unless the task has a shield
            co_await detail::sleep_until(limit);
            one.some_ = tokens_.take(now(), n, never);
        }
        co_await detail::sleep_until(deadline::at_ns(one.some_.ready));
        one.some_ = {};
    }

    template <class Token> task<result<void>> wait_unless(Token token, std::uint64_t n) {
        claim one(*this, tokens_.take(now(), n, never));
        auto over = co_await detail::sleep_until(deadline::at_ns(one.some_.ready))
                        .with_stop(std::move(token));
        if (over) {
            one.some_ = {};
        }
        co_return over;
    }

    tokens tokens_;
};

}} // namespace bide::BIDE_ABI

#endif
