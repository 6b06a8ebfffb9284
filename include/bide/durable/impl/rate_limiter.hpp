// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_RATE_LIMITER_HPP
#define BIDE_DURABLE_IMPL_RATE_LIMITER_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/background.hpp>
#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/detail/per_process.hpp>
#include <bide/durable/detail/rate_record.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/rate_limiter.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The record of a limiter, in its slot.
class rate_store {
public:
    rate_store(slot_ref slot, std::optional<token_rate> rate, rate_options options)
        : slot_(std::move(slot)), options_(std::move(options)),
          clock_(options_.clock.value_or(slot_.guarantees().clock)) {
        const bool is_sane =
            rate && clock_ != lock_clock::observed &&
            (clock_ != lock_clock::server || slot_.guarantees().clock == lock_clock::server) &&
            options_.clock_tolerance.count() >= 0 && options_.longest_wait.count() >= 0 &&
            options_.retry_time.count() > 0 && options_.attempt_limit.count() >= 0;
        if (!is_sane) {
            BIDE_THROW(std::system_error(make_error_code(durable_errc::invalid_argument),
                                         "bide: the options of a durable rate limiter"));
        }
        rate_ = *rate;
    }
    rate_store(const rate_store&) = delete;
    rate_store& operator=(const rate_store&) = delete;

    // Carries out a rule. rule(record, maybe_done) returns true if the record has to be stored. It
    // is called once a try, and its last call counts. maybe_done is true if an earlier try may have
    // been stored.
    template <class Rule> std::error_code update(deadline until, Rule rule);

    std::error_code check(std::int64_t n) const {
        return n < 1             ? make_error_code(durable_errc::invalid_argument)
               : n > rate_.burst ? make_error_code(durable_errc::too_heavy)
                                 : std::error_code();
    }
    const rate_options& options() const noexcept { return options_; }
    const token_rate& rate() const noexcept { return rate_; }
    call_limits limits(deadline until, std::stop_token stop) const {
        return {until, std::chrono::nanoseconds(deadline::saturated_ns(options_.attempt_limit)),
                std::move(stop)};
    }
    call_limits retry_limits() const { return limits(deadline::after(options_.retry_time), {}); }

    std::string explain() { return own().explain(); }

private:
    struct part : slot_part {
        using slot_part::slot_part;
        const std::string boot = durable::this_boot();
    };
    part& own() {
        return own_.get([this] { return part(*slot_); });
    }

    // Reads the record of a snapshot, and drains its debt until now.
    result<rate_record, std::error_code> read(const slot_snapshot& from);

    slot_ref slot_;
    const rate_options options_;
    const lock_clock clock_;
    token_rate rate_;
    per_process<part> own_;
};

inline result<rate_record, std::error_code> rate_store::read(const slot_snapshot& from) {
    rate_time now;
    now.clock = clock_;
    now.unix_ms = durable::unix_ms();
    switch (clock_) {
    case lock_clock::boottime:
        now.now_ms = durable::boottime_ms();
        now.boot = own().boot;
        break;
    case lock_clock::server:
        if (!from.server_ms) { // no other time may replace it
            return unexpected{make_error_code(durable_errc::storage_error)};
        }
        now.now_ms = *from.server_ms;
        break;
    case lock_clock::caller:
    case lock_clock::observed:
        now.now_ms = options_.now ? options_.now().count() : now.unix_ms;
        break;
    }
    if (now.now_ms < 0 || now.now_ms > durable::largest_number) {
        return unexpected{make_error_code(durable_errc::invalid_argument)};
    }
    rate_record r;
    if (from.version == 0) {
        r.rate = rate_;
        r.at = std::move(now);
    } else {
        auto there = decode_rate(from.value);
        if (!there) {
            return there;
        }
        r = std::move(*there);
        if (r.at.clock != clock_) {
            return unexpected{make_error_code(durable_errc::clock_mismatch)};
        }
        r.advance(now, options_.clock_tolerance.count());
    }
    if (r.rate != rate_) {
        if (!options_.adopt_rate) {
            return unexpected{make_error_code(durable_errc::permits_mismatch)};
        }
        r.adopt(rate_);
    }
    if (from.fell_back) { // tokens of the lost value may have been taken
        r.debt = std::max(r.debt, r.rate.capacity());
    }
    return r;
}

template <class Rule> std::error_code rate_store::update(deadline until, Rule rule) {
    const auto apply = [&](const slot_snapshot& from, std::int64_t, bool maybe_done,
                           std::error_code& error) -> std::optional<std::string> {
        auto stored = read(from);
        if (!stored) {
            error = stored.error();
            return std::nullopt;
        }
        const bool is_changed = rule(*stored, maybe_done);
        return is_changed || stored->begins_again ? std::optional(encode_rate(*stored))
                                                  : std::nullopt;
    };
    return update_value(own(), until, options_.retry_time, [] {}, apply, [] {});
}

// Gives n tokens back. Returns false if others were taken later.
inline result<bool, std::error_code> give_back(rate_store& to, std::int64_t n,
                                               const std::string& nonce) {
    bool is_back = false;
    const std::error_code error =
        to.update(deadline::after(to.options().retry_time), [&](rate_record& r, bool maybe_done) {
            const bool is_there = r.give_back(n, nonce);
            is_back = is_there || (is_back && maybe_done);
            return is_there;
        });
    return error ? result<bool, std::error_code>(unexpected{error})
                 : result<bool, std::error_code>(is_back);
}

// Tokens that were taken. Its destructor gives them back, on a store thread, unless that was decided.
struct taken_tokens {
    taken_tokens(std::shared_ptr<rate_store> of, std::int64_t how_many)
        : from(std::move(of)), count(how_many), nonce(fresh_nonce()) {}
    taken_tokens(const taken_tokens&) = delete;
    taken_tokens& operator=(const taken_tokens&) = delete;
    ~taken_tokens() {
        if (is_taken && !is_kept) {
            try_to([this] {
                static_cast<void>(store_call::start(std::make_shared<store_call>(
                    [back = giving_back()] { try_to([&] { static_cast<void>(back()); }); },
                    call_kind::has_to_run)));
            });
        }
    }

    // Returns a function that gives the tokens back once. It may outlive this object.
    std::function<result<bool, std::error_code>()> giving_back() {
        // Order: relaxed; the flag publishes nothing else.
        const bool is_first = !is_returned.exchange(true, std::memory_order_relaxed);
        if (!is_kept) { // copies of a reservation, which keeps them, may be used by several threads
            is_kept = true;
        }
        return [to = from, n = count, id = nonce, is_first] {
            return is_first ? give_back(*to, n, id) : result<bool, std::error_code>(false);
        };
    }

    const std::shared_ptr<rate_store> from;
    const std::int64_t count;
    const std::string nonce;
    deadline ready = deadline::poll();
    bool is_taken = false;
    bool is_kept = false; // the destructor leaves them
    native_platform::atomic<bool> is_returned{false};
};
// nullptr: their time comes later than the wait.
using taking_result = result<std::shared_ptr<taken_tokens>, std::error_code>;

// Takes tokens on this thread, if their time comes until `until`.
inline taking_result take_now(const std::shared_ptr<rate_store>& from, std::int64_t n,
                              deadline until, deadline tries_until) {
    const auto some = std::make_shared<taken_tokens>(from, n);
    const std::int64_t most = deadline::saturated_ns(from->options().longest_wait);
    std::int64_t wait = 0;
    std::int64_t rest = 0;
    const std::error_code error = from->update(tries_until, [&](rate_record& r, bool) {
        const std::int64_t now = native_platform::now();
        const bool is_stored = r.last == some->nonce; // by an earlier try
        rest = until.is_never() ? token_rate::most
                                : std::max<std::int64_t>(until.steady_ns() - now, 0);
        wait = is_stored ? r.rate.wait_ns(r.debt) : r.take(n, std::min(rest, most), some->nonce);
        some->is_taken = is_stored || r.last == some->nonce;
        some->ready = deadline::at_ns(now + wait);
        return some->is_taken && !is_stored;
    });
    if (error) {
        some->is_taken = false;
        return unexpected{error};
    }
    if (some->is_taken) {
        return some;
    }
    return wait > rest ? taking_result(nullptr)
                       : taking_result(unexpected{make_error_code(durable_errc::queue_full)});
}

// If its caller leaves, the tokens are given back.
inline task<taking_result> take_tokens(std::shared_ptr<rate_store> from, std::int64_t n,
                                       rate_wait wait) {
    if (const std::error_code error = from->check(n)) {
        co_return unexpected{error};
    }
    const deadline until = deadline::after(wait.timeout);
    const call_limits limits =
        from->limits(until.is_poll() ? deadline::at_ns(native_platform::now()) : until, wait.stop);
    const deadline tries_until = call_limits::later(limits.until, limits.grace);
    const std::function<taking_result()> take = [=] {
        return take_now(from, n, until, tries_until);
    };
    auto taking = async_call_store(take, limits);
    co_return co_await std::move(taking);
}

inline task<result<bool, std::error_code>> give_back_tokens(std::shared_ptr<taken_tokens> some) {
    return async_call_store(some->giving_back(), some->from->retry_limits(), call_kind::has_to_run);
}

inline task<result<void, std::error_code>> acquire_tokens(std::shared_ptr<rate_store> from,
                                                          std::int64_t n, rate_wait wait) {
    auto taking = take_tokens(std::move(from), n, wait);
    const taking_result got = co_await std::move(taking);
    if (!got) {
        co_return unexpected{got.error()};
    }
    if (*got == nullptr) {
        co_return unexpected{make_error_code(errc::timeout)};
    }
    auto pause = sleep_until((*got)->ready).with_stop(wait.stop);
    const auto over = co_await std::move(pause);
    if (over) {
        (*got)->is_kept = true;
        co_return result<void, std::error_code>();
    }
    auto returning = give_back_tokens(*got);
    static_cast<void>(co_await std::move(returning));
    co_return unexpected{make_error_code(errc::stopped)};
}

// Takes tokens, which the caller keeps.
inline task<taking_result> keep_tokens(std::shared_ptr<rate_store> from, std::int64_t n,
                                       rate_wait wait) {
    auto taking = take_tokens(std::move(from), n, std::move(wait));
    taking_result got = co_await std::move(taking);
    if (got && *got != nullptr) {
        (*got)->is_kept = true;
    }
    co_return got;
}

inline task<result<bool, std::error_code>> try_acquire_tokens(std::shared_ptr<rate_store> from,
                                                              std::int64_t n) {
    auto taking = keep_tokens(std::move(from), n, {std::chrono::nanoseconds(0), {}});
    const taking_result got = co_await std::move(taking);
    co_return got ? result<bool, std::error_code>(*got != nullptr) : unexpected{got.error()};
}

inline result<std::int64_t, std::error_code> available_tokens(rate_store& in) {
    std::int64_t there = 0;
    const std::error_code error =
        in.update(deadline::after(in.options().retry_time), [&there](const rate_record& r, bool) {
            there = r.rate.available(r.debt);
            return false;
        });
    return error ? result<std::int64_t, std::error_code>(unexpected{error})
                 : result<std::int64_t, std::error_code>(there);
}

} // namespace detail

BIDE_DURABLE_INLINE
durable_rate_limiter::durable_rate_limiter(slot_ref slot, std::int64_t count,
                                           std::chrono::nanoseconds period, std::int64_t burst,
                                           rate_options options, checked)
    : store_(std::make_shared<detail::rate_store>(
          std::move(slot), detail::token_rate::make(count, period.count(), burst),
          std::move(options))) {}

BIDE_DURABLE_INLINE result<void, std::error_code> durable_rate_limiter::acquire(std::int64_t n,
                                                                                rate_wait wait) {
    return sync_wait(detail::acquire_tokens(store_, n, std::move(wait)));
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>>
durable_rate_limiter::async_acquire(std::int64_t n, rate_wait wait) {
    return detail::acquire_tokens(store_, n, std::move(wait));
}

BIDE_DURABLE_INLINE result<bool, std::error_code>
durable_rate_limiter::try_acquire(std::int64_t n) {
    return sync_wait(detail::try_acquire_tokens(store_, n));
}
BIDE_DURABLE_INLINE task<result<bool, std::error_code>>
durable_rate_limiter::async_try_acquire(std::int64_t n) {
    return detail::try_acquire_tokens(store_, n);
}

BIDE_DURABLE_INLINE std::chrono::steady_clock::time_point
durable_rate_limiter::reservation::ready_at() const noexcept {
    return std::chrono::steady_clock::time_point(
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(
            std::chrono::nanoseconds(some_->ready.steady_ns())));
}
BIDE_DURABLE_INLINE result<bool, std::error_code> durable_rate_limiter::reservation::cancel() {
    return sync_wait(detail::give_back_tokens(some_));
}
BIDE_DURABLE_INLINE result<durable_rate_limiter::reservation, std::error_code>
durable_rate_limiter::reserve(std::int64_t n) {
    auto some = sync_wait(detail::keep_tokens(store_, n, {}));
    if (!some) {
        return unexpected{some.error()};
    }
    return reservation(std::move(*some)); // without a limit, their time never comes too late
}

BIDE_DURABLE_INLINE result<std::int64_t, std::error_code> durable_rate_limiter::available() {
    return sync_wait(detail::async_call_store<result<std::int64_t, std::error_code>>(
        [store = store_] { return detail::available_tokens(*store); }, store_->retry_limits()));
}

BIDE_DURABLE_INLINE std::string durable_rate_limiter::explain() const { return store_->explain(); }

}} // namespace bide::BIDE_ABI

#endif
