// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_ACQUIRE_ALL_HPP
#define BIDE_DURABLE_IMPL_ACQUIRE_ALL_HPP

// Each lock is first tried without a wait. If that fails, the record of the lock is read before the
// wait. If the record shows a grant of this same call, two locks of the list share the record. Then
// the wait would never end, so the call fails with durable_errc::invalid_argument.

#include <bide/durable/acquire_all.hpp>
#include <bide/durable/detail/acquisition.hpp>

#include <numeric>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The locks of one call, and the guards of those that were acquired, in the order of the keys.
struct held_locks {
    explicit held_locks(std::vector<keyed_lock> all) : locks(std::move(all)), order(locks.size()) {
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::sort(order.begin(), order.end(),
                  [this](std::size_t a, std::size_t b) { return locks[a].key_ < locks[b].key_; });
    }
    held_locks(const held_locks&) = delete;
    held_locks& operator=(const held_locks&) = delete;
    ~held_locks() { // the latest first
        while (!held.empty()) {
            held.pop_back();
        }
    }

    static task<result<durable_guards, std::error_code>> acquire(std::vector<keyed_lock> locks,
                                                                 acquire_request request);
    static task<result<void, std::error_code>> release(std::shared_ptr<held_locks> all);

    bool has_valid_keys() const {
        const auto same_key = [this](std::size_t a, std::size_t b) {
            return locks[a].key_ == locks[b].key_;
        };
        return !locks.empty() && !locks[order.front()].key_.empty() &&
               std::adjacent_find(order.begin(), order.end(), same_key) == order.end();
    }
    bool is_held() const noexcept {
        return std::ranges::all_of(held, [](const auto& one) { return one->guard.is_held(); });
    }
    bool has_grant_in(const durable::record& r) const {
        return std::any_of(held.begin(), held.end(), [&r](const auto& mine) {
            const std::string& nonce = mine->guard.ticket().nonce;
            return std::ranges::find(r.holders, nonce, &durable::holder::nonce) != r.holders.end();
        });
    }

    std::vector<keyed_lock> locks;
    std::vector<std::size_t> order; // indices of locks, in the order of the keys
    std::stop_source lost;
    std::vector<std::unique_ptr<linked_guard>> held;
};

inline task<result<void, std::error_code>> held_locks::release(std::shared_ptr<held_locks> all) {
    result<void, std::error_code> first;
    while (!all->held.empty()) { // the latest first
        const std::unique_ptr<linked_guard> last = std::move(all->held.back());
        all->held.pop_back();
        auto releasing = last->guard.async_release();
        auto released = co_await std::move(releasing);
        if (first && !released) {
            first = std::move(released);
        }
    }
    co_return first;
}

inline task<result<durable_guards, std::error_code>>
held_locks::acquire(std::vector<keyed_lock> locks, acquire_request request) {
    using inspected = result<std::optional<durable::inspection>, std::error_code>;
    const auto all = std::make_shared<held_locks>(std::move(locks));
    if (request.ticket || !all->has_valid_keys()) {
        co_return unexpected{make_error_code(durable_errc::invalid_argument)};
    }
    const deadline until = deadline::after(request.timeout);
    const std::stop_source stop; // ends the wait for the next lock
    const linked_stop on_stop(request.stop, stops_other{stop});
    const linked_stop on_loss(all->lost.get_token(), stops_other{stop});
    request.stop = stop.get_token();
    std::error_code error;
    while (!error && all->held.size() != all->locks.size()) {
        keyed_lock& next = all->locks[all->order[all->held.size()]];
        request.weight = next.weight_;
        request.timeout = std::chrono::nanoseconds(0);
        auto trying = next.async_acquire(request);
        auto got = co_await std::move(trying);
        std::int64_t rest = until.steady_ns() - native_platform::now();
        if (!got && may_pass(got.error()) && !stop.stop_requested() && rest > 0) {
            const std::function<inspected()> inspect = [lock = next] { return lock.inspect(); };
            auto inspecting = async_call_store(inspect, {until, {}, request.stop});
            const inspected seen = co_await std::move(inspecting);
            if (seen && *seen && all->has_grant_in((*seen)->live)) {
                error = make_error_code(durable_errc::invalid_argument);
                break;
            }
            rest = until.steady_ns() - native_platform::now();
            request.timeout = std::chrono::nanoseconds(std::max<std::int64_t>(rest, 0));
            auto waiting = next.async_acquire(request);
            got = co_await std::move(waiting);
        }
        if (got) {
            all->held.push_back(std::make_unique<linked_guard>(std::move(*got), all->lost));
        }
        const bool is_stopped = stop.stop_requested() && all->held.size() != all->locks.size();
        error = !all->is_held() ? make_error_code(durable_errc::lock_lost)
                : !got          ? got.error()
                : is_stopped    ? make_error_code(errc::stopped)
                                : std::error_code();
    }
    if (!error) {
        co_return durable_guards(all);
    }
    auto releasing = release(all);
    static_cast<void>(co_await std::move(releasing));
    co_return unexpected{error};
}

} // namespace detail

BIDE_DURABLE_INLINE std::size_t durable_guards::size() const noexcept { return held_->held.size(); }
BIDE_DURABLE_INLINE const durable_guard&
durable_guards::operator[](std::size_t index) const noexcept {
    const auto at = std::find(held_->order.begin(), held_->order.end(), index);
    return held_->held[static_cast<std::size_t>(at - held_->order.begin())]->guard;
}
BIDE_DURABLE_INLINE std::stop_token durable_guards::lost() const noexcept {
    return held_->lost.get_token();
}
BIDE_DURABLE_INLINE bool durable_guards::is_held() const noexcept { return held_->is_held(); }
BIDE_DURABLE_INLINE result<void, std::error_code> durable_guards::release() {
    return sync_wait(async_release());
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>> durable_guards::async_release() {
    return detail::held_locks::release(std::exchange(held_, nullptr));
}

BIDE_DURABLE_INLINE result<durable_guards, std::error_code>
acquire_all(std::vector<keyed_lock> locks, acquire_request request) {
    return sync_wait(detail::held_locks::acquire(std::move(locks), std::move(request)));
}
BIDE_DURABLE_INLINE task<result<durable_guards, std::error_code>>
async_acquire_all(std::vector<keyed_lock> locks, acquire_request request) {
    return detail::held_locks::acquire(std::move(locks), std::move(request));
}

}} // namespace bide::BIDE_ABI

#endif
