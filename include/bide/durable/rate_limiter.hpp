// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_RATE_LIMITER_HPP
#define BIDE_DURABLE_RATE_LIMITER_HPP

/// \file
/// Limits how often something happens, over all processes and machines that share a slot.

#include <bide/durable/slot.hpp>
#include <bide/task/task.hpp>

#include <chrono>

namespace bide { inline namespace BIDE_ABI {
namespace detail {
class rate_store;
} // namespace detail

/// The options of a durable_rate_limiter. All limiters of a record need the same clock.
struct rate_options {
    /// The clock of the record; by default the clock that the slot's guarantees name.
    ///
    /// - server: the clock of the store.
    /// - boottime: the clock of this machine since its boot. After a reboot, the system clock tells
    ///   how long the machine was down.
    /// - caller: the function `now`, or the system clock of each machine. Slots of etcd, which has
    ///   no clock, need this. A machine whose clock is ahead by d takes up to rate * d tokens too
    ///   many, at most a burst at a time.
    std::optional<lock_clock> clock{};
    /// With lock_clock::caller, this function returns the time, from any epoch.
    std::function<std::chrono::milliseconds()> now{};

    /// How far ahead tokens are reserved. A request for a later time gets durable_errc::queue_full.
    std::chrono::milliseconds longest_wait{3'600'000};

    /// How long one operation is retried while other limiters keep changing the record.
    std::chrono::milliseconds retry_time{10'000};
    /// How long a call still waits for the store after its timeout, a stop or a cancellation.
    std::chrono::milliseconds attempt_limit{80};
};

/// How long to wait for tokens.
struct rate_wait {
    /// Makes a wait with these limits; by default, with no limit. This class is no aggregate,
    /// because g++ before 13 destroys aggregates twice in co_await expressions.
    rate_wait(std::chrono::nanoseconds most = std::chrono::nanoseconds::max(),
              std::stop_token token = {}) noexcept
        : timeout(most), stop(std::move(token)) {}

    /// If the tokens become available only after this time, none is taken.
    std::chrono::nanoseconds timeout;
    /// Ends the wait when a stop is requested.
    std::stop_token stop;
};

/// A bucket of tokens in a slot. `count` tokens come in each period, evenly spaced, and the bucket
/// holds at most `burst` of them. It is full at the start. The number of tokens that become
/// available in any period of length t is at most burst + count * (t + 1 ms) / period. The 1 ms is
/// there because clocks count milliseconds. No rate is rounded.
///
/// \code
/// bide::durable_rate_limiter calls(bide::file_slot("vendor.rate"), 10, std::chrono::seconds(1));
/// if (auto got = calls.acquire()) std::puts("one call"); // at most 10 a second, over all processes
/// \endcode
///
/// An acquisition takes its tokens from the record at once, and then waits until they are
/// available. So tokens are acquired in the order of the requests, over all processes. If the
/// caller gives up, its tokens are returned, unless other tokens were taken later: then they are
/// lost. A process that dies while it waits loses its tokens.
///
/// A clock that is more than a second behind the time in the record was set back: the bucket then
/// fills from the clock's present time. So after that, or after a reboot, no acquisition waits
/// longer than a second plus the wait for the tokens that are reserved already (at most
/// longest_wait). A clock that is set forward fills the bucket early: the reserved tokens, and at
/// most one burst more, are granted twice. After a slot has lost a value, the bucket is empty.
///
/// The record has a JSON format of its own. A limiter refuses the record of a lock, and a lock
/// refuses the record of a limiter: durable_errc::corrupt_record. A limiter with another rate or
/// burst than the record's is refused: durable_errc::permits_mismatch. To change the rate, or to
/// refill the bucket, delete the record.
///
/// If the number of tokens is below 1, the error is durable_errc::invalid_argument; if it is above
/// the burst, too_heavy. If it is unknown whether the store has stored an acquisition, the tokens
/// may be taken twice. Copies are the same limiter. A child of fork() may use its copy.
///
/// Thread safety: any thread may call any member concurrently.
class durable_rate_limiter {
public:
    /// Constructs a limiter on a slot.
    /// Throws: std::system_error (durable_errc::invalid_argument) if the rate or the burst is zero
    /// or negative, if the rate is above one token in a nanosecond, if burst times period is above
    /// 2^61 ns, if an option is out of range, or if the clock is lock_clock::observed.
    template <class R, class P>
    durable_rate_limiter(slot_ref slot, std::int64_t count,
                         const std::chrono::duration<R, P>& period, std::int64_t burst = 1,
                         rate_options options = {})
        : durable_rate_limiter(std::move(slot), count,
                               std::chrono::nanoseconds(deadline::saturated_ns(period)), burst,
                               std::move(options), checked()) {}

    /// Acquires n tokens.
    /// Returns: errc::timeout, at once, if the tokens become available only after the timeout;
    /// errc::stopped; durable_errc::queue_full, permits_mismatch, clock_mismatch; errors of the
    /// store.
    /// Blocks: until the tokens are available. After a timeout or a stop, at most attempt_limit.
    result<void, std::error_code> acquire(std::int64_t n = 1, rate_wait wait = {});
    /// Acquires n tokens as acquire() does, for a coroutine.
    /// Cancellation: gives the tokens back, and returns errc::stopped.
    task<result<void, std::error_code>> async_acquire(std::int64_t n = 1, rate_wait wait = {});

    /// Acquires n tokens if they are in the bucket.
    /// Returns: true if they were acquired; errc::timeout if the store does not answer in time.
    /// Blocks: for the store, at most attempt_limit.
    result<bool, std::error_code> try_acquire(std::int64_t n = 1);
    /// Acquires n tokens as try_acquire() does, for a coroutine.
    task<result<bool, std::error_code>> async_try_acquire(std::int64_t n = 1);

    /// Returns the number of tokens in the bucket. It may be outdated when the caller reads it.
    /// Blocks: for the store, at most retry_time plus attempt_limit.
    result<std::int64_t, std::error_code> available();

    /// Returns the place of the record and the store's text about its last failure, for people.
    std::string explain() const;

private:
    struct checked {};
    durable_rate_limiter(slot_ref slot, std::int64_t count, std::chrono::nanoseconds period,
                         std::int64_t burst, rate_options options, checked);

    std::shared_ptr<detail::rate_store> store_;
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/options.hpp> // includes the headers below in their order

#include <bide/durable/impl/rate_limiter.hpp>
#endif

#endif
