// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_RETRY_HPP
#define BIDE_TASK_RETRY_HPP

/// \file
/// Runs a task again if it fails. The waits between the attempts are random, and their limit grows
/// exponentially: "full jitter", M. Brooker, "Exponential Backoff And Jitter", AWS Architecture
/// Blog, 2015.

#include <bide/task/detail/task_cell.hpp>
#include <bide/task/this_task.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Says how often retry() tries, and how long it waits between attempts. The wait after attempt i,
/// counted from 1, is at most base * 2^(i-1), and at most cap.
struct retry_policy {
    unsigned attempts = 5;                                         ///< The maximum; at least 1.
    std::chrono::nanoseconds base = std::chrono::milliseconds(10); ///< Not negative.
    std::chrono::nanoseconds cap = std::chrono::seconds(10);       ///< Not negative.
    /// If true, each wait is random, uniform between zero and its longest time. If false, each wait
    /// takes its longest time.
    bool jitter = true;
    /// The seed of the random waits: equal seeds lead to equal waits. If it is zero, each call uses
    /// another seed.
    std::uint64_t seed = 0;
};

namespace detail {

// Generates random numbers that are the same on every machine and with every standard library.
// (Those of std::uniform_int_distribution are not.) The algorithm is SplitMix64: Steele, Lea,
// Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
class seeded_random {
public:
    explicit seeded_random(std::uint64_t seed) noexcept : state_(seed) {
        static_cast<void>(bits()); // so that the results of small seeds differ in all bits
    }

    std::uint64_t bits() noexcept {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }

    // Returns a number from 0 to n - 1. The bias is below n / 2^64.
    // Requires: n is not 0.
    std::uint64_t below(std::uint64_t n) noexcept { return bits() % n; }

    // Returns true with the given probability. Draws one number, even if the result is certain.
    bool chance(double probability) noexcept {
        constexpr double whole = 9007199254740992.0; // 2^53: a double holds these integers exactly
        return static_cast<double>(bits() >> 11) < probability * whole;
    }

private:
    std::uint64_t state_;
};

// The waits between the attempts of one retry().
class retry_waits {
public:
    // Throws: std::invalid_argument.
    explicit retry_waits(const retry_policy& policy)
        : next_(policy.base.count()), cap_(policy.cap.count()), jitter_(policy.jitter),
          random_(policy.seed != 0 ? policy.seed : any_seed()) {
        if (policy.attempts == 0 || next_ < 0 || cap_ < 0) {
            BIDE_THROW(std::invalid_argument("bide::retry: no attempts, or a negative time"));
        }
    }

    std::chrono::nanoseconds next() noexcept {
        const std::int64_t longest = next_ < cap_ ? next_ : cap_;
        constexpr std::int64_t half = (std::numeric_limits<std::int64_t>::max)() / 2;
        next_ = next_ > half ? 2 * half : 2 * next_;
        const auto any = random_.below(static_cast<std::uint64_t>(longest) + 1);
        return std::chrono::nanoseconds(jitter_ ? static_cast<std::int64_t>(any) : longest);
    }

private:
    std::uint64_t any_seed() const noexcept {
        if (auto* const simulated = simulated_machine::here()) {
            return simulated->random();
        }
        return static_cast<std::uint64_t>(native_platform::now()) ^
               reinterpret_cast<std::uintptr_t>(this);
    }

    std::int64_t next_; // ns, without the cap
    std::int64_t cap_;
    bool jitter_;
    seeded_random random_;
};

struct always {
    template <class Failure> bool operator()(const Failure&) const noexcept { return true; }
};

// Returns true if the outcome of an attempt is an error that `again` accepts.
template <class T, class Again> bool is_worth_retry(const T& value, Again& again) {
    if constexpr (is_result<T>) {
        using error = std::remove_cvref_t<decltype(value.error())>;
        if constexpr (std::is_invocable_v<Again&, const error&>) {
            return !value.has_value() && again(value.error());
        }
    }
    return false;
}
template <class Again> bool is_worth_retry(const std::exception_ptr& error, Again& again) {
    if constexpr (std::is_invocable_v<Again&, const std::exception_ptr&>) {
        return again(error);
    }
    return false;
}

// Returns true if the running task is not cancelled and its deadline comes after a wait of
// `duration`.
inline bool can_wait(std::chrono::nanoseconds duration) noexcept {
    const bide::deadline limit = this_task::deadline();
    return !this_task::is_cancelled() &&
           (limit.is_never() || bide::deadline::after(duration).steady_ns() < limit.steady_ns());
}

template <class Make, class Again>
task<task_value_t<Make>> retry(retry_waits waits, unsigned attempts, Make make, Again again) {
    using value = task_value_t<Make>;
    for (;; --attempts) {
        const std::chrono::nanoseconds duration = waits.next();
        BIDE_TRY {
            if constexpr (std::is_void_v<value>) {
                co_await make();
                co_return;
            } else {
                value got = co_await make();
                if (attempts == 1 || !can_wait(duration) || !detail::is_worth_retry(got, again)) {
                    co_return got;
                }
            }
        }
        BIDE_CATCH {
            const std::exception_ptr error = std::current_exception();
            if (attempts == 1 || !can_wait(duration) || !detail::is_worth_retry(error, again)) {
                std::rethrow_exception(error);
            }
        }
        co_await this_task::sleep_for(duration);
    }
}

} // namespace detail

/// Awaits the task that `make_task()` returns. If the task fails, makes and awaits another one,
/// until a task does not fail or the policy allows no more attempts.
///
/// A failure is an exception for which again(std::exception_ptr) returns true, or a result<T, E>
/// with an error for which again(E) returns true. Without `again`, every exception and every error
/// is a failure. Any other outcome ends the retry.
///
/// There is no further attempt if the awaiting task is cancelled, or if its deadline
/// (this_task::deadline()) comes before the end of the next wait. In that case, retry() does not
/// wait, and its outcome is that of the last attempt.
/// Throws: std::invalid_argument in this call, if the policy is invalid. When awaited, what the
/// last attempt, make_task() or `again` throws; stopped_error, if a wait between attempts is
/// stopped.
/// Cancellation: cancels the attempt or stops the wait between attempts. The attempts run in the
/// awaiting task.
template <class Make, class Again = detail::always>
    requires(detail::task_source<Make> && !detail::is_task<Make>)
task<detail::task_value_t<Make>> retry(const retry_policy& policy, Make make_task,
                                       Again again = {}) {
    return detail::retry<Make, Again>(detail::retry_waits(policy), policy.attempts,
                                      std::move(make_task), std::move(again));
}

}} // namespace bide::BIDE_ABI

#endif
