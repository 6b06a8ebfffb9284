// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_RATE_STORE_HPP
#define BIDE_DURABLE_DETAIL_RATE_STORE_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/per_process.hpp>
#include <bide/durable/detail/rate_record.hpp>
#include <bide/durable/detail/record_store.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/rate_limiter.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>
#include <bide/sync/mutex.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

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

}}} // namespace bide::BIDE_ABI::detail

#endif
