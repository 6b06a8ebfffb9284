// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_RATE_LIMITER_HPP
#define BIDE_DURABLE_IMPL_RATE_LIMITER_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/per_process.hpp>
#include <bide/durable/detail/rate_record.hpp>
#include <bide/durable/detail/record_store.hpp>
#include <bide/durable/detail/store_call.hpp>
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
#include <exception>
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

    std::string explain() {
        part& mine = own();
        const std::lock_guard held(mine.state);
        return mine.trouble;
    }

private:
    struct part { // of one process, as process_part
        const std::string boot = durable::this_boot();
        mutex state;
        std::string trouble; // under state
        mutex turn;
        std::minstd_rand random{std::random_device()()}; // used with the turn
    };
    part& own() {
        return own_.get([] { return part(); });
    }
    std::error_code failed(std::error_code error) {
        part& mine = own();
        std::string why = slot_->explain();
        const std::lock_guard held(mine.state);
        mine.trouble = std::move(why);
        return error;
    }

    // Reads the record of a snapshot, and drains its debt until now.
    result<rate_record, std::error_code> read(const slot_snapshot& from);
    template <class Rule> cas_result try_once(update_tries& tries, Rule& rule);

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

template <class Rule> cas_result rate_store::try_once(update_tries& tries, Rule& rule) {
    std::error_code error;
    const auto apply = [&](const slot_snapshot& from) -> std::optional<std::string> {
        auto stored = read(from);
        if (!stored) {
            error = stored.error();
            return std::nullopt;
        }
        const bool is_changed = rule(*stored, tries.maybe_done());
        return is_changed || stored->begins_again ? std::optional(encode_rate(*stored))
                                                  : std::nullopt;
    };
    const auto swap = [&]() -> cas_result {
        const auto loaded = slot_->load();
        if (!loaded) {
            return {cas_status::failed, 0, {}, loaded.error()};
        }
        const auto changed = apply(*loaded);
        return changed ? slot_->compare_exchange(loaded->version, *changed)
                       : cas_result{cas_status::stored, 0, {}, {}};
    };
    const cas_result tried = tries.once(swap, [&] { return slot_->update_locked(apply); });
    return error ? cas_result{cas_status::failed, 0, {}, error} : tried;
}

template <class Rule> std::error_code rate_store::update(deadline until, Rule rule) {
    update_tries tries(until, options_.retry_time);
    part& mine = own();
    if (!mine.turn.try_lock_for(tries.rest())) {
        return make_error_code(durable_errc::store_busy);
    }
    const std::lock_guard turn(mine.turn, std::adopt_lock);
    const blocking_section section;
    return tries.run(
        mine.random, [&] { return try_once(tries, rule); },
        [&](const cas_result&) { return !tries.may_lock(); },
        [&](std::error_code error) { return failed(error); });
}

// Tokens that were taken, and that can be given back once.
struct taken_tokens {
    std::shared_ptr<rate_store> from;
    std::int64_t count = 0;
    std::string nonce{};
    deadline ready = deadline::poll();
    native_platform::atomic<bool> is_kept{false}; // or given back

    // Returns true to one caller, which keeps the tokens or gives them back.
    bool decide() noexcept {
        // Order: relaxed; the flag publishes nothing else.
        return !is_kept.exchange(true, std::memory_order_relaxed);
    }
    // Returns false if others were taken later.
    result<bool, std::error_code> give_back() {
        bool is_back = false;
        const std::error_code error = from->update(
            deadline::after(from->options().retry_time), [&](rate_record& r, bool maybe_done) {
                const bool is_there = r.give_back(count, nonce);
                is_back = is_there || (is_back && maybe_done);
                return is_there;
            });
        return error ? result<bool, std::error_code>(unexpected{error})
                     : result<bool, std::error_code>(is_back);
    }
};

// Takes tokens on this thread, if their time comes until `until`.
inline std::error_code take_tokens(taken_tokens& some, deadline until, deadline tries_until) {
    rate_store& from = *some.from;
    if (const std::error_code error = from.check(some.count)) {
        return error;
    }
    some.nonce = fresh_nonce();
    std::error_code refused;
    const std::int64_t most = deadline::saturated_ns(from.options().longest_wait);
    const std::error_code error = from.update(tries_until, [&](rate_record& r, bool) {
        refused.clear();
        const std::int64_t now = native_platform::now();
        some.ready = deadline::at_ns(now);
        if (r.last == some.nonce) { // an earlier try was stored
            some.ready = deadline::at_ns(now + r.rate.wait_ns(r.debt));
            return false;
        }
        const std::int64_t rest = until.is_never()
                                      ? token_rate::most
                                      : std::max<std::int64_t>(until.steady_ns() - now, 0);
        const std::int64_t wait = r.take(some.count, std::min(rest, most), some.nonce);
        if (wait > rest) {
            refused = make_error_code(errc::timeout);
        } else if (wait > most || wait == token_rate::most) {
            refused = make_error_code(durable_errc::queue_full);
        }
        some.ready = deadline::at_ns(now + wait);
        return !refused;
    });
    return error ? error : refused;
}

// Takes tokens on a store thread. If the caller left, they are given back.
class take_call final : public store_call {
public:
    take_call(std::shared_ptr<taken_tokens> some, deadline until, deadline tries_until)
        : some_(std::move(some)), until_(until), tries_until_(tries_until) {}

    // Requires: the call has ended, and its caller has not left it.
    std::error_code error() const {
        if (thrown_) {
            std::rethrow_exception(thrown_);
        }
        return error_;
    }
    // Requires: the call has ended.
    bool has_taken() const noexcept { return is_taken_; }

private:
    void call() noexcept override {
        thrown_ = thrown_by([this] { error_ = take_tokens(*some_, until_, tries_until_); });
        is_taken_ = !thrown_ && !error_;
    }
    void was_left() noexcept override {
        if (is_taken_ && some_->decide()) {
            try_to([this] { static_cast<void>(some_->give_back()); });
        }
    }

    const std::shared_ptr<taken_tokens> some_;
    const deadline until_;
    const deadline tries_until_;
    std::error_code error_{};
    std::exception_ptr thrown_{};
    bool is_taken_ = false;
};

// Gives tokens back, unless that was decided before.
inline task<result<bool, std::error_code>> give_back_tokens(std::shared_ptr<taken_tokens> some) {
    const call_limits limits = some->from->retry_limits();
    return async_call_store<result<bool, std::error_code>>(
        [tokens = std::move(some)] {
            return tokens->decide() ? tokens->give_back() : result<bool, std::error_code>(false);
        },
        limits, call_kind::has_to_run);
}

using tokens_given_back = result<bool, std::error_code>;

// A request for tokens. If it is destroyed before keep(), the tokens are given back on a store thread.
class token_request {
public:
    token_request(std::shared_ptr<rate_store> from, std::int64_t amount, rate_wait wait)
        : until_(deadline::after(wait.timeout)),
          limits_(from->limits(until_.is_poll() ? deadline::at_ns(native_platform::now()) : until_,
                               std::move(wait.stop))),
          some_(std::make_shared<taken_tokens>()) {
        some_->from = std::move(from);
        some_->count = amount;
        call_ = std::make_shared<take_call>(some_, until_,
                                            call_limits::later(limits_.until, limits_.grace));
    }
    token_request(const token_request&) = delete;
    token_request& operator=(const token_request&) = delete;
    ~token_request() {
        call_->leave();
        if (!is_kept_ && call_->has_ended() && call_->has_taken() && some_->decide()) {
            try_to([this] {
                static_cast<void>(
                    store_call::start(std::make_shared<answer_call<tokens_given_back>>(
                        [some = some_] { return some->give_back(); }, call_kind::has_to_run)));
            });
        }
    }

    task<std::error_code> take() {
        if (const std::error_code error = store_call::start(call_)) {
            co_return error;
        }
        auto waiting = wait_for_call(call_, limits_);
        const std::error_code why = co_await std::move(waiting);
        is_left_ = static_cast<bool>(why);
        co_return why ? why : call_->error();
    }
    // Returns true if the store did not answer in time.
    bool is_left() const noexcept { return is_left_; }

    const std::stop_token& stop() const noexcept { return limits_.stop; }
    deadline ready() const noexcept { return some_->ready; }
    task<tokens_given_back> give_back() { return give_back_tokens(some_); }
    // Keeps the tokens. Returns them.
    const std::shared_ptr<taken_tokens>& keep() noexcept {
        is_kept_ = true;
        return some_;
    }

private:
    const deadline until_;
    const call_limits limits_;
    const std::shared_ptr<taken_tokens> some_;
    std::shared_ptr<take_call> call_;
    bool is_kept_ = false;
    bool is_left_ = false;
};

inline task<result<void, std::error_code>> acquire_tokens(std::shared_ptr<rate_store> from,
                                                          std::int64_t n, rate_wait wait) {
    token_request mine(std::move(from), n, std::move(wait));
    auto taking = mine.take();
    if (const std::error_code error = co_await std::move(taking)) {
        co_return unexpected{error};
    }
    auto pause = sleep_until(mine.ready()).with_stop(mine.stop());
    const auto over = co_await std::move(pause);
    if (over) {
        mine.keep();
        co_return result<void, std::error_code>();
    }
    auto returning = mine.give_back();
    static_cast<void>(co_await std::move(returning));
    co_return unexpected{make_error_code(errc::stopped)};
}

inline task<result<bool, std::error_code>> try_acquire_tokens(std::shared_ptr<rate_store> from,
                                                              std::int64_t n) {
    token_request mine(std::move(from), n, {std::chrono::nanoseconds(0), {}});
    auto taking = mine.take();
    const std::error_code error = co_await std::move(taking);
    if (!error) {
        mine.keep();
        co_return true;
    }
    if (!mine.is_left() && error == errc::timeout) {
        co_return false;
    }
    co_return unexpected{error};
}

inline task<result<std::shared_ptr<taken_tokens>, std::error_code>>
reserve_tokens(std::shared_ptr<rate_store> from, std::int64_t n) {
    token_request mine(std::move(from), n, {});
    auto taking = mine.take();
    if (const std::error_code error = co_await std::move(taking)) {
        co_return unexpected{error};
    }
    co_return mine.keep();
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
    auto some = sync_wait(detail::reserve_tokens(store_, n));
    if (!some) {
        return unexpected{some.error()};
    }
    return reservation(std::move(*some));
}

BIDE_DURABLE_INLINE result<std::int64_t, std::error_code> durable_rate_limiter::available() {
    return sync_wait(detail::async_call_store<result<std::int64_t, std::error_code>>(
        [store = store_] { return detail::available_tokens(*store); }, store_->retry_limits()));
}

BIDE_DURABLE_INLINE std::string durable_rate_limiter::explain() const {
    return detail::one_line(store_->explain());
}

}} // namespace bide::BIDE_ABI

#endif
