// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_RATE_LIMITER_HPP
#define BIDE_DURABLE_IMPL_RATE_LIMITER_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/rate_record.hpp>
#include <bide/durable/detail/rate_store.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/rate_limiter.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

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

// A request for tokens, for threads and coroutines. If it is destroyed before keep(), the tokens
// are given back on a store thread.
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
            try_to([this] { post_giving_back(); });
        }
    }

    // Makes the call for a thread.
    std::error_code take() { return sync_wait(async_take()); }
    // Makes the call for a coroutine.
    task<std::error_code> async_take() {
        if (const std::error_code error = store_call::start(call_)) {
            co_return error;
        }
        auto waiting = wait_for_call(call_, limits_);
        co_return ended(co_await std::move(waiting));
    }
    // Returns the result of try_acquire().
    result<bool, std::error_code> is_taken(std::error_code error) noexcept {
        if (!error) {
            keep();
            return true;
        }
        return !is_left_ && error == errc::timeout ? result<bool, std::error_code>(false)
                                                   : unexpected{error};
    }

    const call_limits& limits() const noexcept { return limits_; }
    deadline ready() const noexcept { return some_->ready; }
    std::function<result<bool, std::error_code>()> giving_back() const {
        return [some = some_] {
            return some->decide() ? some->give_back() : result<bool, std::error_code>(false);
        };
    }
    call_limits giving_back_limits() const { return some_->from->retry_limits(); }
    // Keeps the tokens. Returns them.
    const std::shared_ptr<taken_tokens>& keep() noexcept {
        is_kept_ = true;
        return some_;
    }

private:
    std::error_code ended(std::error_code why) {
        is_left_ = static_cast<bool>(why);
        return why ? why : call_->error();
    }
    void post_giving_back() {
        auto call = std::make_shared<answer_call<result<bool, std::error_code>>>(
            [some = some_] { return some->give_back(); }, call_kind::has_to_run);
        static_cast<void>(store_call::start(call));
    }

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
    auto taking = mine.async_take();
    if (const std::error_code error = co_await std::move(taking)) {
        co_return unexpected{error};
    }
    auto pause = sleep_until(mine.ready()).with_stop(mine.limits().stop);
    const auto over = co_await std::move(pause);
    if (over) {
        mine.keep();
        co_return result<void, std::error_code>();
    }
    auto returning =
        async_call_store(mine.giving_back(), mine.giving_back_limits(), call_kind::has_to_run);
    static_cast<void>(co_await std::move(returning));
    co_return unexpected{make_error_code(errc::stopped)};
}

inline task<result<bool, std::error_code>> try_acquire_tokens(std::shared_ptr<rate_store> from,
                                                              std::int64_t n) {
    token_request mine(std::move(from), n, {std::chrono::nanoseconds(0), {}});
    auto taking = mine.async_take();
    co_return mine.is_taken(co_await std::move(taking));
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
    detail::token_request mine(store_, n, std::move(wait));
    if (const std::error_code error = mine.take()) {
        return unexpected{error};
    }
    event stopped;
    {
        const auto tell = [&stopped]() noexcept { stopped.set(); };
        const std::stop_callback on_stop(mine.limits().stop, tell);
        stopped.wait_for(
            std::chrono::nanoseconds(mine.ready().steady_ns() - native_platform::now()));
    }
    if (native_platform::now() >= mine.ready().steady_ns()) {
        mine.keep();
        return {};
    }
    static_cast<void>(detail::call_store(mine.giving_back(), mine.giving_back_limits(),
                                         detail::call_kind::has_to_run));
    return unexpected{make_error_code(errc::stopped)};
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>>
durable_rate_limiter::async_acquire(std::int64_t n, rate_wait wait) {
    return detail::acquire_tokens(store_, n, std::move(wait));
}

BIDE_DURABLE_INLINE result<bool, std::error_code>
durable_rate_limiter::try_acquire(std::int64_t n) {
    detail::token_request mine(store_, n, {std::chrono::nanoseconds(0), {}});
    return mine.is_taken(mine.take());
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
    return detail::call_store<result<bool, std::error_code>>(
        [some = some_] {
            return some->decide() ? some->give_back() : result<bool, std::error_code>(false);
        },
        some_->from->retry_limits(), detail::call_kind::has_to_run);
}
BIDE_DURABLE_INLINE result<durable_rate_limiter::reservation, std::error_code>
durable_rate_limiter::reserve(std::int64_t n) {
    detail::token_request mine(store_, n, {});
    if (const std::error_code error = mine.take()) {
        return unexpected{error};
    }
    return reservation(mine.keep());
}

BIDE_DURABLE_INLINE result<std::int64_t, std::error_code> durable_rate_limiter::available() {
    return detail::call_store<result<std::int64_t, std::error_code>>(
        [store = store_]() -> result<std::int64_t, std::error_code> {
            std::int64_t there = 0;
            const std::error_code error =
                store->update(deadline::after(store->options().retry_time),
                              [&there](const detail::rate_record& r, bool) {
                                  there = r.rate.available(r.debt);
                                  return false;
                              });
            return error ? result<std::int64_t, std::error_code>(unexpected{error})
                         : result<std::int64_t, std::error_code>(there);
        },
        store_->retry_limits());
}

BIDE_DURABLE_INLINE std::string durable_rate_limiter::explain() const { return store_->explain(); }

}} // namespace bide::BIDE_ABI

#endif
