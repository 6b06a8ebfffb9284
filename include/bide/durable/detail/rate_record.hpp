// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_RATE_RECORD_HPP
#define BIDE_DURABLE_DETAIL_RATE_RECORD_HPP

// The record of a durable_rate_limiter: the leaky bucket of ITU-T I.371 as a meter.
//
// A token is period_ns units. In each nanosecond `count` units of the debt drain away, so no rate
// is rounded. Tokens are there as long as the debt is at most burst * period_ns. A larger debt is
// reserved: its tokens come when it has drained to that number. Reservations add up, so their times
// are in the order of the swaps.
//
// The record holds a debt and the time at which it was that large, and no time in the future. If
// the clock is set back, or after a reboot, the debt drains from there on: no wait becomes longer.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/record_fields.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
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

    // Returns nothing if a number is below 1, more than a token comes in a nanosecond, or the
    // bucket has more than `most` units.
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

// A time of the clock of a limiter. With lock_clock::boottime, the unix time bridges reboots, and
// containers with other clocks since boot.
struct rate_time {
    lock_clock clock = lock_clock::boottime;
    std::int64_t now_ms = 0;
    std::int64_t unix_ms = 0;
    std::string boot{}; // durable::this_boot(); empty if it is not known, or for other clocks
};

struct rate_record {
    token_rate rate{};
    std::int64_t debt = 0; // at the time `at`
    rate_time at{};
    std::string last{}; // the nonce of the latest reservation; empty if it was given back

    // Not stored: the clock was set back since `at`. Then the record has to be stored, so that the
    // rate goes on from the present time.
    bool begins_again = false;

    // Drains the debt until `now`. A time that is up to tolerance_ms earlier than the record's is
    // that of a clock that is behind, and changes nothing. An earlier one shows that the clock was
    // set back.
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

    // Takes n tokens. Returns the time until they are there. If that is longer than `longest_ns`,
    // nothing is taken.
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

    // Takes over another rate. Tokens that are reserved keep their times. The bucket keeps its
    // tokens, up to the new burst.
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
inline constexpr std::string_view rate_kind = "bide.rate";
inline constexpr std::int64_t rate_format = 1;

inline std::string encode_rate(const rate_record& r) {
    const auto* const named = std::find_if(
        std::begin(durable::detail::clock_names), std::end(durable::detail::clock_names),
        [&](const auto& one) { return one.clock == r.at.clock; });
    const nlohmann::json out = {{"kind", rate_kind},      {"v", rate_format},
                                {"count", r.rate.count},  {"periodNs", r.rate.period_ns},
                                {"burst", r.rate.burst},  {"debt", r.debt},
                                {"clock", named->name},   {"at", r.at.now_ms},
                                {"unixMs", r.at.unix_ms}, {"boot", r.at.boot},
                                {"last", r.last}};
    return out.dump();
}

// Returns durable_errc::corrupt_record for every other value, the record of a lock for example.
inline result<rate_record, std::error_code> decode_rate(std::string_view text) {
    const nlohmann::json in = nlohmann::json::parse(text, nullptr, false);
    const auto number = [&in](const char* name, std::int64_t most) -> std::int64_t {
        const auto found = in.find(name);
        const bool is_good = found != in.end() && found->is_number_integer() &&
                             (!found->is_number_unsigned() ||
                              found->get<std::uint64_t>() <= static_cast<std::uint64_t>(most));
        const std::int64_t value = is_good ? found->get<std::int64_t>() : -1;
        return value <= most ? value : -1;
    };
    const auto text_of = [&in](const char* name) -> std::optional<std::string> {
        const auto found = in.find(name);
        return found != in.end() && found->is_string() ? std::optional(found->get<std::string>())
                                                       : std::nullopt;
    };
    const auto corrupt = unexpected{make_error_code(durable_errc::corrupt_record)};
    if (!in.is_object() || text_of("kind") != rate_kind) {
        return corrupt;
    }
    const std::int64_t version = number("v", std::numeric_limits<std::int64_t>::max());
    if (version > rate_format) {
        return unexpected{make_error_code(durable_errc::unsupported_record_version)};
    }
    rate_record r;
    const auto rate =
        token_rate::make(number("count", token_rate::most), number("periodNs", token_rate::most),
                         number("burst", token_rate::most));
    r.debt = number("debt", token_rate::most);
    r.at.now_ms = number("at", durable::largest_number);
    r.at.unix_ms = number("unixMs", durable::largest_number);
    const auto boot = text_of("boot");
    const auto last = text_of("last");
    const auto clock = text_of("clock");
    const auto* const named = std::find_if(std::begin(durable::detail::clock_names),
                                           std::end(durable::detail::clock_names),
                                           [&](const auto& one) { return clock == one.name; });
    if (version != rate_format || !rate || r.debt < 0 || r.at.now_ms < 0 || r.at.unix_ms < 0 ||
        !boot || !last || named == std::end(durable::detail::clock_names)) {
        return corrupt;
    }
    r.rate = *rate;
    r.at.clock = named->clock;
    r.at.boot = *boot;
    r.last = *last;
    return r;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
