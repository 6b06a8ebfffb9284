// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_RATE_RECORD_HPP
#define BIDE_DURABLE_DETAIL_RATE_RECORD_HPP

// The record of a durable_rate_limiter: the leaky bucket of ITU-T I.371 as a meter.
//
// The record has a debt, in units that need no rounding. A token that is taken adds period_ns units
// to the debt. In each nanosecond `count` units drain away. Tokens that are taken are available at
// once if the debt is then at most burst * period_ns. If the debt is larger, the tokens are
// reserved: they become available when the debt has drained to burst * period_ns. Each reservation
// adds to the debt, so tokens become available in the order in which they were reserved.
//
// The record stores the debt and the time at which the debt had that size. It stores no time in the
// future. So if the clock is set back, or after a reboot, the debt drains from the new time on, and
// no wait becomes longer.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/json_fields.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot_types.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct token_rate {
    static constexpr std::int64_t most = std::int64_t{1} << 61; // of units, and of nanoseconds

    std::int64_t count = 1;     // tokens that come in a period
    std::int64_t period_ns = 1; // reduced: it has no common divisor with `count`
    std::int64_t burst = 1;

    // Returns nothing if a number is below 1, if more than one token comes in a nanosecond, or if
    // the bucket would have more than `most` units.
    static std::optional<token_rate> make(std::int64_t count, std::int64_t period_ns,
                                          std::int64_t burst) {
        if (count < 1 || period_ns < count || burst < 1 || period_ns > most) {
            return std::nullopt;
        }
        const std::int64_t common = std::gcd(count, period_ns);
        const token_rate made{count / common, period_ns / common, burst};
        return burst > most / made.period_ns ? std::nullopt : std::optional(made);
    }
    std::int64_t capacity() const noexcept { return burst * period_ns; }

    // Returns the time until a debt leaves tokens in the bucket again.
    std::int64_t wait_ns(std::int64_t debt) const noexcept {
        const std::int64_t over = debt - capacity();
        return over <= 0 ? 0 : over / count + (over % count != 0 ? 1 : 0);
    }
    std::int64_t available(std::int64_t debt) const noexcept {
        return debt >= capacity() ? 0 : (capacity() - debt) / period_ns;
    }

    friend bool operator==(const token_rate&, const token_rate&) = default;
};

// A time of the clock of a limiter. With lock_clock::boottime, two times of the same boot are
// compared by now_ms. Times of different boots, or of containers with different boottime clocks,
// are compared by unix_ms.
struct rate_time {
    lock_clock clock = lock_clock::boottime;
    std::int64_t now_ms = 0;
    std::int64_t unix_ms = 0;
    std::string boot{}; // durable::this_boot(); empty if it is not known, or for other clocks
};

// The kind that a stored value of a limiter names, so that no other record is taken for one.
inline constexpr std::string_view rate_kind = "bide.rate";

struct rate_record {
    token_rate rate{};
    std::int64_t debt = 0; // at the time `at`
    rate_time at{};
    std::string last{}; // the nonce of the latest reservation; empty if it was given back
    std::string kind{rate_kind};

    // True if advance() has found that the clock was set back since `at`. Then the record has to be
    // stored, so that the debt drains from the present time on. This field itself is not stored.
    bool begins_again = false;

    // Drains the debt until `now`. If `now` is earlier than the record's time by at most
    // tolerance_ms, the clock is only behind another one, and nothing changes. If `now` is earlier
    // than that, the clock was set back.
    void advance(const rate_time& now, std::int64_t tolerance_ms) {
        const bool has_boot = at.clock == lock_clock::boottime;
        const bool is_same_boot = has_boot && at.boot == now.boot && !at.boot.empty();
        const std::int64_t passed_ms =
            !has_boot || is_same_boot ? now.now_ms - at.now_ms : now.unix_ms - at.unix_ms;
        if (passed_ms < 0 && passed_ms >= -tolerance_ms) {
            return;
        }
        begins_again = passed_ms < 0;
        const std::int64_t ns =
            std::clamp<std::int64_t>(passed_ms, 0, token_rate::most / 1'000'000) * 1'000'000;
        debt = ns > debt / rate.count ? 0 : debt - ns * rate.count;
        at = now;
    }

    // Takes n tokens. Returns the time until they are available. If that time is longer than
    // `longest_ns`, no token is taken.
    // Requires: n is from 1 to the burst.
    std::int64_t take(std::int64_t n, std::int64_t longest_ns, const std::string& nonce) {
        const std::int64_t after = debt + n * rate.period_ns; // at most 2^62
        const std::int64_t wait = after > token_rate::most ? token_rate::most : rate.wait_ns(after);
        if (wait <= longest_ns && after <= token_rate::most) {
            debt = after;
            last = nonce;
        }
        return wait;
    }

    // Gives n tokens back. Returns false if others were taken later.
    bool give_back(std::int64_t n, const std::string& nonce) {
        if (last != nonce) {
            return false;
        }
        debt = std::max<std::int64_t>(debt - n * rate.period_ns, 0);
        last.clear();
        return true;
    }

    // Changes the rate and the burst to those of `to`. Reserved tokens become available when they
    // would have been before. The bucket keeps its tokens, up to the new burst.
    void adopt(const token_rate& to) {
        const std::int64_t wait = rate.wait_ns(debt);
        const std::int64_t there = std::min(rate.available(debt), to.burst);
        const std::int64_t room = (token_rate::most - to.capacity()) / to.count;
        debt = wait > 0 ? to.capacity() + std::min(wait, room) * to.count
                        : to.capacity() - there * to.period_ns;
        rate = to;
    }
};

// The stored format, in JSON:
//   {"kind":"bide.rate","v":1,"count":1,"periodNs":10000000,"burst":5,"debt":30000000,
//    "clock":"boottime","at":81234,"unixMs":1717000000000,"boot":"..","last":".."}
template <class F> void fields(durable::detail::is_a<rate_record> auto& r, F& f) {
    using durable::detail::number;
    std::int64_t version = durable::record_format;
    const durable::detail::stored_as any{.longest = std::string::npos, .may_be_empty = true};
    f("kind", r.kind, any);
    f("v", version, number(version, version));
    f("count", r.rate.count, number(1, token_rate::most));
    f("periodNs", r.rate.period_ns, number(1, token_rate::most));
    f("burst", r.rate.burst, number(1, token_rate::most));
    f("debt", r.debt, number(0, token_rate::most));
    f("clock", r.at.clock);
    f("at", r.at.now_ms, number(0));
    f("unixMs", r.at.unix_ms, number(0));
    f("boot", r.at.boot, any);
    f("last", r.last, any);
}

inline std::string encode_rate(const rate_record& r) { return durable::detail::write_text(r); }

// Returns durable_errc::corrupt_record for every other value, the record of a lock for example.
inline result<rate_record, std::error_code> decode_rate(std::string_view text) {
    const std::error_code corrupt = make_error_code(durable_errc::corrupt_record);
    rate_record r;
    if (const std::error_code error = durable::detail::read_text(text, r, corrupt)) {
        return unexpected{error};
    }
    const auto rate = token_rate::make(r.rate.count, r.rate.period_ns, r.rate.burst);
    if (!rate || r.kind != rate_kind) {
        return unexpected{corrupt};
    }
    r.rate = *rate;
    return r;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
