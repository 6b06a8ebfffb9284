// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_NANOSECONDS_HPP
#define BIDE_CORE_DETAIL_NANOSECONDS_HPP

// Converts durations of any type to nanoseconds. std::chrono multiplies before it divides, which
// overflows for a period such as 1/60 of a second. It has no type for a period of 1e18 seconds.

#include <bide/core/config.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>
#include <type_traits>

namespace bide::inline BIDE_ABI {
namespace detail {

// A count of periods P is count * num * ns / den nanoseconds. No two of these factors cancel.
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

// Rounds up. Returns INT64_MAX or INT64_MIN if the result does not fit.
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

// The same, as exact as F is. Returns INT64_MIN if `count` is not a number.
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

// Converts a duration. See deadline::saturated_ns().
template <class R, class P>
constexpr std::int64_t saturated_ns(const std::chrono::duration<R, P>& d) {
    const R count = d.count();
    if constexpr (std::is_integral_v<R> && sizeof(R) <= sizeof(std::uint64_t)) {
        const auto bits = static_cast<std::uint64_t>(count);
        const bool negative = std::is_signed_v<R> && bits >> 63 != 0;
        return ns_of_integer<P>(negative ? 0 - bits : bits, negative);
    } else if constexpr (std::is_floating_point_v<R>) {
        return ns_of_floating<P>(static_cast<std::common_type_t<R, double>>(count));
    } else {
        return ns_of_floating<P>(static_cast<long double>(count));
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
