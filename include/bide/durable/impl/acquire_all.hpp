// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_ACQUIRE_ALL_HPP
#define BIDE_DURABLE_IMPL_ACQUIRE_ALL_HPP

// The locks are acquired in the order of their keys, so no two callers wait for each other. Each
// lock is first tried without a wait. If that fails, the record of the lock is read before the
// wait. If the record shows a grant of this same call, two locks of the list share the record, and
// the wait would never end.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/acquire_all.hpp>
#include <bide/durable/detail/background.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/record_types.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Locks in the order of their keys, and the guards of the first of them.
class held_locks {
public:
    using acquired = result<durable_guard, std::error_code>;
    using inspected = result<std::optional<durable::inspection>, std::error_code>;

    held_locks(std::vector<keyed_lock> locks, acquire_request request)
        : locks_(std::move(locks)), request_(std::move(request)),
          until_(deadline::after(request_.timeout)), order_(locks_.size()),
          on_stop_(std::in_place, request_.stop, stops_both{stop_}) {
        request_.stop = stop_.get_token();
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        std::sort(order_.begin(), order_.end(), [this](std::size_t a, std::size_t b) {
            return locks_[a].key() < locks_[b].key();
        });
        held_.reserve(locks_.size());
    }
    held_locks(const held_locks&) = delete;
    held_locks& operator=(const held_locks&) = delete;
    ~held_locks() { // the latest first
        while (!held_.empty()) {
            held_.pop_back();
        }
    }

    std::error_code check_arguments() const {
        const auto same_key = [this](std::size_t a, std::size_t b) {
            return locks_[a].key() == locks_[b].key();
        };
        const bool is_valid =
            !locks_.empty() && !request_.ticket && !locks_[order_.front()].key().empty() &&
            std::adjacent_find(order_.begin(), order_.end(), same_key) == order_.end();
        return is_valid ? std::error_code() : make_error_code(durable_errc::invalid_argument);
    }

    bool has_all() const noexcept { return held_.size() == locks_.size(); }

    // The request for the next lock, with or without a wait.
    acquire_request next_request(bool waits) const {
        acquire_request one = request_;
        const std::int64_t rest = until_.steady_ns() - native_platform::now();
        one.timeout =
            std::chrono::nanoseconds(!waits              ? 0
                                     : until_.is_never() ? deadline::never().steady_ns()
                                                         : std::max<std::int64_t>(rest, 0));
        one.weight = next().weight_;
        return one;
    }
    task<acquired> acquire_next(bool waits) {
        return std::visit(
            [&](auto& lock) -> task<acquired> {
                if constexpr (std::is_same_v<std::decay_t<decltype(lock)>, durable_shared_mutex>) {
                    if (next().is_reader_) {
                        return lock.async_acquire_shared(next_request(waits));
                    }
                }
                return lock.async_acquire(next_request(waits));
            },
            next().lock_);
    }
    // Returns a function that reads the record of the next lock. It may outlive this object.
    std::function<inspected()> inspect_next() const {
        return [lock = next().lock_]() mutable {
            return std::visit([](auto& one) { return one.inspect(); }, lock);
        };
    }

    call_limits limits() const { return {until_, {}, stop_.get_token()}; }

    // Whether to wait for the next lock after a try without a wait.
    bool may_wait(const acquired& tried) const {
        return !tried && may_pass(tried.error()) && !stop_.stop_requested() &&
               native_platform::now() < until_.steady_ns();
    }
    bool is_one_of_ours(const inspected& seen) const {
        if (!seen || !*seen) {
            return false;
        }
        const auto& holders = (*seen)->live.holders;
        return std::any_of(holders.begin(), holders.end(), [this](const durable::holder& h) {
            return std::any_of(held_.begin(), held_.end(), [&h](const auto& mine) {
                return mine->guard.ticket().nonce == h.nonce;
            });
        });
    }

    // Adds the guard of the next lock. Returns the error that ends the acquisition.
    std::error_code add(acquired got) {
        if (!got) {
            return is_held() ? got.error() : make_error_code(durable_errc::lock_lost);
        }
        held_.push_back(std::make_unique<one_lock>(std::move(*got), stop_, lost_));
        if (!is_held()) {
            return make_error_code(durable_errc::lock_lost);
        }
        return !has_all() && stop_.stop_requested() ? make_error_code(errc::stopped)
                                                    : std::error_code();
    }
    // Ends the acquisition: from now on, a stop of the request has no effect.
    static durable_guards finish(std::unique_ptr<held_locks> all) {
        all->on_stop_.reset();
        return durable_guards(std::move(all));
    }

    std::size_t size() const noexcept { return held_.size(); }
    const durable_guard& operator[](std::size_t index) const noexcept {
        const auto at = std::find(order_.begin(), order_.end(), index) - order_.begin();
        return held_[static_cast<std::size_t>(at)]->guard;
    }
    std::stop_token lost() const noexcept { return lost_.get_token(); }
    bool is_held() const noexcept {
        return std::all_of(held_.begin(), held_.end(),
                           [](const auto& one) { return one->guard.is_held(); });
    }

    // Takes out the guard of the lock that was acquired last, if there is one.
    std::optional<durable_guard> take_last() {
        if (held_.empty()) {
            return std::nullopt;
        }
        const std::unique_ptr<one_lock> last = std::move(held_.back());
        held_.pop_back();
        return std::move(last->guard);
    }

private:
    struct stops_both {
        std::stop_source stop;
        std::stop_source lost{std::nostopstate};
        void operator()() {
            const stops_both mine(*this); // a callback of lost() may destroy the locks, and this
            mine.lost.request_stop();
            mine.stop.request_stop();
        }
    };
    struct one_lock {
        one_lock(durable_guard of, const std::stop_source& stop, const std::stop_source& lost)
            : guard(std::move(of)), on_loss(guard.lost(), stops_both{stop, lost}) {}

        durable_guard guard;
        std::stop_callback<stops_both> on_loss;
    };

    const keyed_lock& next() const noexcept { return locks_[order_[held_.size()]]; }
    keyed_lock& next() noexcept { return locks_[order_[held_.size()]]; }

    std::vector<keyed_lock> locks_;
    acquire_request request_;
    const deadline until_;
    std::vector<std::size_t> order_; // indices of locks_, in the order of the keys
    std::stop_source stop_;          // ends the wait for the next lock
    std::stop_source lost_;
    std::vector<std::unique_ptr<one_lock>> held_;
    std::optional<std::stop_callback<stops_both>> on_stop_;
};

inline task<result<void, std::error_code>> release_all(std::shared_ptr<held_locks> all) {
    result<void, std::error_code> first;
    while (auto last = all->take_last()) {
        auto releasing = last->async_release();
        auto released = co_await std::move(releasing);
        if (first && !released) {
            first = std::move(released);
        }
    }
    co_return first;
}

inline task<result<durable_guards, std::error_code>> acquire_all_task(std::vector<keyed_lock> locks,
                                                                      acquire_request request) {
    auto all = std::make_unique<held_locks>(std::move(locks), std::move(request));
    std::error_code error = all->check_arguments();
    while (!error && !all->has_all()) {
        auto trying = all->acquire_next(false);
        auto got = co_await std::move(trying);
        if (all->may_wait(got)) {
            auto inspecting = async_call_store(all->inspect_next(), all->limits());
            const auto seen = co_await std::move(inspecting);
            if (all->is_one_of_ours(seen)) {
                error = make_error_code(durable_errc::invalid_argument);
                break;
            }
            auto waiting = all->acquire_next(true);
            got = co_await std::move(waiting);
        }
        error = all->add(std::move(got));
    }
    if (!error) {
        co_return held_locks::finish(std::move(all));
    }
    auto releasing = release_all(std::move(all));
    static_cast<void>(co_await std::move(releasing));
    co_return unexpected{error};
}

} // namespace detail

BIDE_DURABLE_INLINE durable_guards::durable_guards(std::unique_ptr<detail::held_locks> held)
    : held_(std::move(held)) {}
BIDE_DURABLE_INLINE std::size_t durable_guards::size() const noexcept { return held_->size(); }
BIDE_DURABLE_INLINE const durable_guard&
durable_guards::operator[](std::size_t index) const noexcept {
    return (*held_)[index];
}
BIDE_DURABLE_INLINE std::stop_token durable_guards::lost() const noexcept { return held_->lost(); }
BIDE_DURABLE_INLINE bool durable_guards::is_held() const noexcept { return held_->is_held(); }
BIDE_DURABLE_INLINE void durable_guards::check() const {
    if (!is_held()) {
        detail::throw_error(make_error_code(durable_errc::lock_lost));
    }
}
BIDE_DURABLE_INLINE result<void, std::error_code> durable_guards::release() {
    return sync_wait(async_release());
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>> durable_guards::async_release() {
    return detail::release_all(std::exchange(held_, nullptr));
}

BIDE_DURABLE_INLINE result<durable_guards, std::error_code>
acquire_all(std::vector<keyed_lock> locks, acquire_request request) {
    return sync_wait(detail::acquire_all_task(std::move(locks), std::move(request)));
}
BIDE_DURABLE_INLINE result<durable_guards, std::error_code>
try_acquire_all(std::vector<keyed_lock> locks) {
    acquire_request now;
    now.timeout = std::chrono::nanoseconds(0);
    return acquire_all(std::move(locks), std::move(now));
}
BIDE_DURABLE_INLINE task<result<durable_guards, std::error_code>>
async_acquire_all(std::vector<keyed_lock> locks, acquire_request request) {
    return detail::acquire_all_task(std::move(locks), std::move(request));
}

}} // namespace bide::BIDE_ABI

#endif
