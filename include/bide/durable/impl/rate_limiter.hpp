// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_RATE_LIMITER_HPP
#define BIDE_DURABLE_IMPL_RATE_LIMITER_HPP

// The record of a durable_rate_limiter: the leaky bucket of ITU-T I.371 as a meter.
//
// The record has a debt, in units that need no rounding, and the time at which the debt had that
// size. A token that is taken adds period_ns units to the debt. In each nanosecond `count` units
// drain away. Tokens that are taken are available when the debt is at most burst * period_ns. So
// they become available in the order in which they were taken.
//
// The record does not store when tokens become available. So if the clock is set back, or after a
// reboot, the debt drains from the new time on, and no wait becomes longer.

#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/rate_limiter.hpp>

#include <numeric>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// ---- the record

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

    std::int64_t wait_ns(std::int64_t debt) const noexcept {
        return (std::max<std::int64_t>(debt - capacity(), 0) + count - 1) / count;
    }
    std::int64_t available(std::int64_t debt) const noexcept {
        return std::max<std::int64_t>(capacity() - debt, 0) / period_ns;
    }

    friend bool operator==(const token_rate&, const token_rate&) = default;
};

// A time of the clock of a limiter. With lock_clock::boottime, times of different boots (as of
// containers with different boottime clocks) are compared by unix_ms, all others by now_ms.
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
    std::string kind = "bide.rate"; // so that the record of a lock is not read as that of a limiter

    // True if advance() has found that the clock was set back since `at`. Then the record has to be
    // stored, so that the debt drains from the present time on. This field itself is not stored.
    bool begins_again = false;

    // Drains the debt until `now`. If `now` is earlier than the record's time by at most
    // tolerance_ms, nothing changes: this clock is only behind that of another limiter. If `now` is
    // even earlier, the clock was set back: the debt drains from `now` on.
    void advance(const rate_time& now, std::int64_t tolerance_ms) {
        const bool is_other_boot =
            at.clock == lock_clock::boottime && (at.boot != now.boot || at.boot.empty());
        const std::int64_t passed_ms =
            is_other_boot ? now.unix_ms - at.unix_ms : now.now_ms - at.now_ms;
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
};

// The stored format, in JSON:
//   {"kind":"bide.rate","v":1,"count":1,"periodNs":10000000,"burst":5,"debt":30000000,
//    "clock":"boottime","at":81234,"unixMs":1717000000000,"boot":"..","last":".."}
template <class F> void fields(durable::detail::is_a<rate_record> auto& r, F& f) {
    using durable::detail::number;
    using durable::detail::text;
    std::int64_t version = durable::record_format;
    f("kind", r.kind, text());
    f("v", version, number(version, version));
    f("count", r.rate.count, number(1, token_rate::most));
    f("periodNs", r.rate.period_ns, number(1, token_rate::most));
    f("burst", r.rate.burst, number(1, token_rate::most));
    f("debt", r.debt, number(0, token_rate::most));
    f("clock", r.at.clock);
    f("at", r.at.now_ms, number(0));
    f("unixMs", r.at.unix_ms, number(0));
    f("boot", r.at.boot, text());
    f("last", r.last, text());
}

// Reads a record. Any other value, such as the record of a lock, is durable_errc::corrupt_record.
inline result<rate_record, std::error_code> decode_rate(std::string_view text) {
    auto r = durable::detail::read_text<rate_record>(text, durable_errc::corrupt_record);
    if (r) {
        const auto rate = token_rate::make(r->rate.count, r->rate.period_ns, r->rate.burst);
        if (!rate || r->kind != rate_record().kind) {
            return unexpected{make_error_code(durable_errc::corrupt_record)};
        }
        r->rate = *rate;
    }
    return r;
}

// ---- the record in its slot

class rate_store {
public:
    rate_store(slot_ref slot, std::optional<token_rate> its_rate, rate_options its_options)
        : options(std::move(its_options)), rate(its_rate.value_or(token_rate())),
          slot_(std::move(slot)), clock_(options.clock.value_or(slot_.guarantees().clock)) {
        const bool is_sane =
            its_rate && clock_ != lock_clock::observed &&
            (clock_ != lock_clock::server || slot_.guarantees().clock == lock_clock::server) &&
            options.longest_wait.count() >= 0 && options.retry_time.count() > 0 &&
            options.attempt_limit.count() >= 0;
        if (!is_sane) {
            BIDE_THROW(std::system_error(make_error_code(durable_errc::invalid_argument),
                                         "bide: the options of a durable rate limiter"));
        }
    }

    // Carries out a rule, by update_value(). Each try calls rule(record) once, which returns true
    // if the record has to be stored. Only the last call counts.
    template <class Rule> result<void, std::error_code> update(deadline until, Rule rule) {
        const auto apply = [&](const slot_snapshot& from, std::int64_t, bool,
                               std::error_code& error) -> std::optional<std::string> {
            auto stored = read(from);
            error = stored ? std::error_code() : stored.error();
            if (error || !(rule(*stored) || stored->begins_again)) {
                return std::nullopt;
            }
            return durable::detail::write_text(*stored);
        };
        if (const auto error =
                update_value(own(), until, options.retry_time, [] {}, apply, [] {})) {
            return unexpected{error};
        }
        return {};
    }
    call_limits limits(deadline until, std::stop_token stop = {}) const {
        return {until, std::chrono::nanoseconds(deadline::saturated_ns(options.attempt_limit)),
                std::move(stop)};
    }
    deadline retry_end() const { return deadline::after(options.retry_time); }
    std::string explain() { return own().explain(); }

    static constexpr std::int64_t clock_tolerance_ms = 1'000;
    const rate_options options;
    const token_rate rate;

private:
    struct part : slot_part {
        using slot_part::slot_part;
        const std::string boot = durable::this_boot();
    };
    part& own() {
        return own_.get([this] { return part(*slot_); });
    }
    result<rate_record, std::error_code> read(const slot_snapshot& from) {
        const bool is_boottime = clock_ == lock_clock::boottime;
        rate_time now{clock_, 0, durable::unix_ms(), is_boottime ? own().boot : std::string()};
        if (clock_ == lock_clock::server && !from.server_ms) { // no other time may replace it
            return unexpected{make_error_code(durable_errc::storage_error)};
        }
        now.now_ms = is_boottime                    ? durable::boottime_ms()
                     : clock_ == lock_clock::server ? *from.server_ms
                     : options.now                  ? options.now().count()
                                                    : now.unix_ms;
        if (now.now_ms < 0 || now.now_ms > durable::largest_number) {
            return unexpected{make_error_code(durable_errc::invalid_argument)};
        }
        rate_record r{rate, 0, now};
        if (from.version != 0) {
            auto there = decode_rate(from.value);
            if (!there) {
                return there;
            }
            r = std::move(*there);
            if (r.at.clock != clock_) {
                return unexpected{make_error_code(durable_errc::clock_mismatch)};
            }
            r.advance(now, clock_tolerance_ms);
        }
        if (r.rate != rate) {
            return unexpected{make_error_code(durable_errc::permits_mismatch)};
        }
        if (from.fell_back) { // tokens of the lost value may have been taken
            r.debt = std::max(r.debt, r.rate.capacity());
        }
        return r;
    }

    slot_ref slot_;
    const lock_clock clock_;
    per_process<part> own_;
};

// ---- tokens that were taken

// If `is_unused` is set, the destructor gives the tokens back, on a store thread.
struct taken_tokens {
    taken_tokens(std::shared_ptr<rate_store> of, std::int64_t how_many)
        : from(std::move(of)), count(how_many), nonce(fresh_nonce()) {}
    taken_tokens(const taken_tokens&) = delete;
    taken_tokens& operator=(const taken_tokens&) = delete;
    ~taken_tokens() {
        if (is_unused) {
            try_to([this] {
                static_cast<void>(store_call<result<void, std::error_code>>::start(
                    giving_back(), call_kind::has_to_run));
            });
        }
    }

    // The function gives the tokens back unless others were taken later. It may outlive this.
    std::function<result<void, std::error_code>()> giving_back() const {
        return [to = from, n = count, id = nonce] {
            return to->update(to->retry_end(), [&](rate_record& r) { return r.give_back(n, id); });
        };
    }

    const std::shared_ptr<rate_store> from;
    const std::int64_t count;
    const std::string nonce;
    deadline ready = deadline::poll();
    bool is_unused = false;
};
// nullptr: the tokens become available only after the end of the wait.
using taking_result = result<std::unique_ptr<taken_tokens>, std::error_code>;

// Takes tokens on this thread, if they become available not later than `until`.
inline taking_result take_now(const std::shared_ptr<rate_store>& from, std::int64_t n,
                              deadline until, deadline tries_until) {
    auto some = std::make_unique<taken_tokens>(from, n);
    const std::int64_t most = deadline::saturated_ns(from->options.longest_wait);
    std::int64_t wait = 0;
    std::int64_t rest = 0;
    const auto done = from->update(tries_until, [&](rate_record& r) {
        const std::int64_t now = native_platform::now();
        const bool is_stored = r.last == some->nonce; // by an earlier try
        rest = std::max<std::int64_t>(until.steady_ns() - now, 0);
        wait = is_stored ? r.rate.wait_ns(r.debt) : r.take(n, std::min(rest, most), some->nonce);
        some->is_unused = r.last == some->nonce;
        some->ready = deadline::at_ns(now + wait);
        return some->is_unused && !is_stored;
    });
    some->is_unused = some->is_unused && done;
    if (!done || (!some->is_unused && wait <= rest)) {
        return unexpected{done ? make_error_code(durable_errc::queue_full) : done.error()};
    }
    return some->is_unused ? std::move(some) : nullptr;
}

// Acquires n tokens, and returns `acquired`; if they become available only after the end of the
// wait, returns `late`. If the caller leaves before the store answers, the tokens are given back.
template <class Answer>
task<Answer> acquire_tokens(std::shared_ptr<rate_store> from, std::int64_t n, rate_wait wait,
                            Answer acquired, Answer late) {
    if (n < 1 || n > from->rate.burst) {
        co_return unexpected{
            make_error_code(n < 1 ? durable_errc::invalid_argument : durable_errc::too_heavy)};
    }
    const deadline until = deadline::after(wait.timeout);
    const call_limits limits =
        from->limits(until.is_poll() ? deadline::at_ns(native_platform::now()) : until, wait.stop);
    const deadline tries_until = call_limits::later(limits.until, limits.grace);
    const std::function<taking_result()> take = [=] {
        return take_now(from, n, until, tries_until);
    };
    auto taking = async_call_store(take, limits);
    const taking_result got = co_await std::move(taking);
    if (!got) {
        co_return unexpected{got.error()};
    }
    if (*got == nullptr) {
        co_return late;
    }
    auto pause = sleep_until((*got)->ready).with_stop(wait.stop);
    const auto over = co_await std::move(pause);
    (*got)->is_unused = false;
    if (over) {
        co_return acquired;
    }
    auto returning = async_call_store((*got)->giving_back(), from->limits(from->retry_end()),
                                      call_kind::has_to_run);
    static_cast<void>(co_await std::move(returning));
    co_return unexpected{make_error_code(errc::stopped)};
}

} // namespace detail

BIDE_DURABLE_INLINE
durable_rate_limiter::durable_rate_limiter(slot_ref slot, std::int64_t count,
                                           std::chrono::nanoseconds period, std::int64_t burst,
                                           rate_options options, checked)
    : store_(std::make_shared<detail::rate_store>(
          std::move(slot), detail::token_rate::make(count, period.count(), burst),
          std::move(options))) {}

BIDE_DURABLE_INLINE task<result<void, std::error_code>>
durable_rate_limiter::async_acquire(std::int64_t n, rate_wait wait) {
    using answer = result<void, std::error_code>;
    return detail::acquire_tokens<answer>(store_, n, std::move(wait), {},
                                          unexpected{make_error_code(errc::timeout)});
}
BIDE_DURABLE_INLINE result<void, std::error_code> durable_rate_limiter::acquire(std::int64_t n,
                                                                                rate_wait wait) {
    return sync_wait(async_acquire(n, std::move(wait)));
}
BIDE_DURABLE_INLINE task<result<bool, std::error_code>>
durable_rate_limiter::async_try_acquire(std::int64_t n) {
    using answer = result<bool, std::error_code>;
    return detail::acquire_tokens<answer>(store_, n, {std::chrono::nanoseconds(0), {}}, true,
                                          false);
}
BIDE_DURABLE_INLINE result<bool, std::error_code>
durable_rate_limiter::try_acquire(std::int64_t n) {
    return sync_wait(async_try_acquire(n));
}

BIDE_DURABLE_INLINE result<std::int64_t, std::error_code> durable_rate_limiter::available() {
    using answer = result<std::int64_t, std::error_code>;
    const deadline until = store_->retry_end();
    return detail::call_store<answer>(
        [store = store_, until]() -> answer {
            std::int64_t there = 0;
            const auto seen = store->update(until, [&](const detail::rate_record& r) {
                there = r.rate.available(r.debt);
                return false;
            });
            return seen ? answer(there) : unexpected{seen.error()};
        },
        store_->limits(until));
}

BIDE_DURABLE_INLINE std::string durable_rate_limiter::explain() const { return store_->explain(); }

}} // namespace bide::BIDE_ABI

#endif
