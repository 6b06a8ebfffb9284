// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DEADLINE_HPP
#define BIDE_CORE_DEADLINE_HPP

/// \file
/// Represents the end of a wait in absolute nanoseconds.
///
/// Conversions saturate: a duration that no clock can hold becomes never(), a negative duration
/// becomes poll(). Waits sleep on the steady clock. Any other clock can be set back or forward. For
/// a deadline on such a clock, a wait sleeps for at most 1 s (recheck_ns) and then reads the clock
/// again. So if the clock is set past the deadline, the wait ends within 1 s. The wait never ends
/// before the deadline. In a simulation (test/scheduler.hpp), the system clock is steady.

#include <bide/core/platform.hpp>

#include <ratio>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Converts durations of any type to nanoseconds. The conversion of std::chrono does not suffice: it
// multiplies before it divides. For a period such as 1/60 of a second, the product overflows. For a
// period of 1e18 seconds, the factor itself does not fit into a std::ratio.

// The factors of a conversion: a count of periods P is count * `num` * `ns` / `den` nanoseconds.
// `ns` is a number like the other two, not a unit. The fraction is reduced.
template <class P> struct ns_factors {
    using reduced = std::ratio<1'000'000'000, P::den>;
    static constexpr std::uint64_t num = static_cast<std::uint64_t>(P::num);
    static constexpr std::uint64_t ns = static_cast<std::uint64_t>(reduced::num);
    static constexpr std::uint64_t den = static_cast<std::uint64_t>(reduced::den);
};

// The number whole + rest / Den, where rest < Den. `whole` saturates.
template <std::uint64_t Den> struct mixed_number {
    std::uint64_t whole;
    std::uint64_t rest;

    template <std::uint64_t By> constexpr mixed_number times() const noexcept {
        constexpr std::uint64_t most = (std::numeric_limits<std::uint64_t>::max)();
        mixed_number part{0, 0}; // rest * By / Den
        if constexpr (Den - 1 <= most / By) {
            part = {rest * By / Den, rest * By % Den};
        } else {
            for (std::uint64_t bit = std::uint64_t{1} << 63; bit != 0; bit >>= 1) {
                part = {2 * part.whole, 2 * part.rest};
                part.carry();
                part.rest += (By & bit) != 0 ? rest : 0;
                part.carry();
            }
        }
        if (whole > (most - part.whole) / By) {
            return {most, 0};
        }
        return {whole * By + part.whole, part.rest};
    }

private:
    constexpr void carry() noexcept {
        if (rest >= Den) {
            rest -= Den;
            ++whole;
        }
    }
};

// Converts an integer to nanoseconds, rounded up. Saturates at INT64_MAX and INT64_MIN.
template <class P>
constexpr std::int64_t ns_of_integer(std::uint64_t magnitude, bool negative) noexcept {
    using factors = ns_factors<P>;
    using limits = std::numeric_limits<std::int64_t>;
    constexpr auto most = static_cast<std::uint64_t>((limits::max)());
    const mixed_number<factors::den> count{magnitude / factors::den, magnitude % factors::den};
    const auto ns = count.template times<factors::num>().template times<factors::ns>();
    if (negative) {
        return ns.whole > most ? (limits::min)() : -static_cast<std::int64_t>(ns.whole);
    }
    return ns.whole >= most ? (limits::max)()
                            : static_cast<std::int64_t>(ns.whole + (ns.rest != 0 ? 1 : 0));
}

// Converts a floating-point count to nanoseconds. Computes in F. Rounds the result up to a whole
// number. Saturates as ns_of_integer() does. Returns INT64_MIN if `count` is NaN.
template <class P, class F> constexpr std::int64_t ns_of_floating(F count) noexcept {
    using factors = ns_factors<P>;
    using limits = std::numeric_limits<std::int64_t>;
    constexpr F end = static_cast<F>(std::uint64_t{1} << 63);
    const F ns = count * static_cast<F>(factors::num) * static_cast<F>(factors::ns) /
                 static_cast<F>(factors::den);
    if (ns >= end) {
        return (limits::max)();
    }
    if (!(ns >= -end)) {
        return (limits::min)();
    }
    const auto whole = static_cast<std::int64_t>(ns);
    const bool more = static_cast<F>(whole) < ns || (whole == 0 && count > F(0));
    return more && whole != (limits::max)() ? whole + 1 : whole;
}

} // namespace detail

/// Is a point in time until which an operation may wait. Every time point of std::chrono converts
/// to a deadline, by at().
class deadline {
public:
    /// Is the length of time for which an operation may wait. Every duration of std::chrono
    /// converts to it. A conversion to a deadline reads the clock and adds this time.
    class from_now {
    public:
        /// Holds the time `rest`; zero if `rest` is negative or not a number.
        template <class R, class P>
        from_now(const std::chrono::duration<R, P>& rest)
            : ns_(rest > rest.zero() ? saturated_ns(rest) : 0) {}

        /// Returns the deadline; poll() if the time is zero.
        operator deadline() const noexcept { return ns_ == 0 ? poll() : at_ns(steady_after(ns_)); }

    private:
        std::int64_t ns_;
    };

    /// Constructs the result of at(when).
    template <class C, class D>
    deadline(const std::chrono::time_point<C, D>& when) : deadline(at(when)) {}

    /// Returns the deadline that never passes.
    static constexpr deadline never() noexcept { return deadline(never_ns, nullptr); }

    /// Returns a deadline that has passed already: one attempt, no waiting.
    static constexpr deadline poll() noexcept { return deadline(poll_ns, nullptr); }

    /// Returns the deadline at `steady` nanoseconds on the steady clock.
    static constexpr deadline at_ns(std::int64_t steady) noexcept {
        return deadline(steady, nullptr);
    }

    /// Returns the deadline `rest` from now; poll() if `rest` is zero, negative or not a number.
    static deadline after(from_now rest) noexcept { return rest; }

    /// Returns the deadline at `when` on the clock of `when`; poll() if it has passed already.
    template <class C, class D> static deadline at(const std::chrono::time_point<C, D>& when) {
        const std::int64_t ns = saturated_ns(when.time_since_epoch());
        if (ns == never_ns) {
            return never();
        }
        if (ns <= clock_now_ns<C>()) {
            return poll();
        }
        return deadline(ns, is_steady<C>() ? nullptr : &clock_now_ns<C>);
    }

    /// Returns whether it is never().
    constexpr bool is_never() const noexcept { return ns_ == never_ns; }
    /// Returns whether it is poll().
    constexpr bool is_poll() const noexcept { return ns_ == poll_ns; }

    /// The longest sleep of a wait whose clock can be adjusted: 1 s. After such a sleep, the wait
    /// reads its clock again.
    static constexpr std::int64_t recheck_ns = 1'000'000'000;

    /// Returns the steady time at which the deadline passes if its own clock is not adjusted.
    std::int64_t steady_ns() const noexcept {
        return other_clock_ != nullptr ? other_steady_ns() : ns_ < 0 ? 0 : ns_;
    }

    /// Returns whether the deadline has passed on its own clock.
    bool has_passed() const noexcept {
        return other_clock_ != nullptr ? other_rest() == 0 : ns_ <= native_platform::now();
    }

    /// Returns the steady time at which a sleeper has to wake and check the deadline again. `at` is
    /// the result of steady_ns().
    std::int64_t next_check_ns(std::int64_t at) const noexcept {
        return other_clock_ != nullptr ? next_recheck_ns(at) : at;
    }
    /// \overload
    std::int64_t next_check_ns() const noexcept { return next_check_ns(steady_ns()); }

    /// Called after a sleep until next_check_ns(). Returns true if the deadline has not passed yet
    /// on its own clock. On the steady clock, always returns false.
    bool is_early() const noexcept { return other_clock_ != nullptr && other_rest() > 0; }

    /// Converts a duration to nanoseconds. Rounds up, so that no wait is too short. Saturates at
    /// the values of never() and poll(); NaN becomes the value of poll(). Integers of up to 64 bits
    /// are exact in every period. Other counts may be rounded, as floating-point numbers are.
    template <class R, class P>
    static std::int64_t saturated_ns(const std::chrono::duration<R, P>& d) {
        const R count = d.count();
        if constexpr (std::is_integral_v<R> && sizeof(R) <= sizeof(std::uint64_t)) {
            const auto bits = static_cast<std::uint64_t>(count);
            const bool negative = std::is_signed_v<R> && bits >> 63 != 0;
            return detail::ns_of_integer<P>(negative ? 0 - bits : bits, negative);
        } else if constexpr (std::is_floating_point_v<R>) {
            return detail::ns_of_floating<P>(static_cast<std::common_type_t<R, double>>(count));
        } else {
            return detail::ns_of_floating<P>(static_cast<long double>(count));
        }
    }

    /// Reads a clock in nanoseconds.
    using clock_function = std::int64_t (*)();
    /// Returns the function that reads the deadline's own clock; nullptr for the steady clock.
    constexpr clock_function other_clock() const noexcept { return other_clock_; }
    /// Returns the time of the deadline on its own clock.
    constexpr std::int64_t own_ns() const noexcept { return ns_; }

private:
    static constexpr std::int64_t never_ns = (std::numeric_limits<std::int64_t>::max)();
    static constexpr std::int64_t poll_ns = (std::numeric_limits<std::int64_t>::min)();

    constexpr deadline(std::int64_t ns, clock_function clock) noexcept
        : ns_(ns), other_clock_(clock) {}

    template <class C> static std::int64_t clock_now_ns() {
        return is_steady<C>() ? native_platform::now() : saturated_ns(C::now().time_since_epoch());
    }

    // Returns true if C is the steady clock. In a simulation, also returns true if C is the system
    // clock, because a simulation never adjusts it.
    template <class C> static bool is_steady() noexcept {
        return std::is_same_v<C, std::chrono::steady_clock> ||
               (std::is_same_v<C, std::chrono::system_clock> &&
                detail::simulated_machine::here() != nullptr);
    }

    // Returns the steady time `rest` nanoseconds from now.
    static std::int64_t steady_after(std::int64_t rest) noexcept {
        const std::int64_t now = native_platform::now();
        return rest > never_ns - now ? never_ns : now + rest;
    }

    BIDE_COLD static std::int64_t next_recheck_ns(std::int64_t at) noexcept {
        const std::int64_t latest = native_platform::now() + recheck_ns;
        return at < latest ? at : latest;
    }

    BIDE_COLD std::int64_t other_steady_ns() const noexcept { return steady_after(other_rest()); }

    // The time left on the deadline's own clock; zero if the deadline has passed.
    BIDE_COLD std::int64_t other_rest() const noexcept {
        const std::int64_t now = other_clock_();
        if (now >= ns_) {
            return 0;
        }
        return now < 0 && ns_ > never_ns + now ? never_ns : ns_ - now;
    }

    std::int64_t ns_;
    clock_function other_clock_; // nullptr: the steady clock
};

}} // namespace bide::BIDE_ABI

#endif
