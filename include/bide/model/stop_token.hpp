// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_STOP_TOKEN_HPP
#define BIDE_MODEL_STOP_TOKEN_HPP

/// \file
/// stop_source, stop_token and stop_callback for bodies (model/check.hpp). They have the same
/// interfaces as those of std. model::platform uses them, so the checker can check operations of
/// the library that take a stop token.

#include <bide/model/atomic.hpp>

#include <concepts>
#include <functional>
#include <memory>
#include <stop_token>

namespace bide { inline namespace BIDE_ABI { namespace model {

namespace detail {

// The state that a stop source, its tokens and its callbacks share.
//
// A thread changes the list of callbacks directly after a step on the atomic `list_`. No other
// thread runs before the next step of that thread. So the list is plain memory, and each change of
// the list is a part of the step before it. The counts of a std::shared_ptr are not modelled: they
// take no steps.
//
// The memory orders are the weakest that keep these promises of the standard:
//   - The registration of a callback happens before the call of the callback.
//   - A stop request happens before each step that sees the request.
//   - The call of a callback happens before the return of the destructor of the callback.
class stop_state {
public:
    struct callback {
        void (*call)(callback&) noexcept;
        callback* next = nullptr;
        ops::bits number = 0; // the number of its call; 0: it is in the list
    };

    stop_state() noexcept {
        ops::name(requested_, "stop requested");
        ops::name(list_, "stop callbacks");
        ops::name(ended_, "stop calls ended");
    }

    bool requested(ops::site s) const noexcept {
        return ops::load(requested_, std::memory_order_acquire, s) != 0;
    }

    bool request(ops::site s) noexcept {
        ops::bits seen = 0;
        if (!ops::compare_exchange(requested_, seen, 1, std::memory_order_release,
                                   std::memory_order_relaxed, false, s)) {
            return false;
        }
        stopper_ = ops::this_thread();
        for (bool more = true; more;) {
            step(std::memory_order_acq_rel, s);
            is_late_ = true;
            callback* const next = first_;
            if (next == nullptr) {
                break;
            }
            first_ = next->next;
            more = first_ != nullptr;
            next->number = ++calls_;
            next->call(*next); // the call may destroy *next
            ops::store(ended_, calls_, std::memory_order_release, s);
        }
        return true;
    }

    // Adds a callback. Returns false if a stop was requested before.
    bool add(callback& c, ops::site s) noexcept {
        step(std::memory_order_release, s);
        if (is_late_) {
            ops::fence(std::memory_order_acquire, s); // synchronises with the request
            return false;
        }
        c.next = std::exchange(first_, &c);
        return true;
    }

    // Removes a callback. After the return, the callback does not run, except on this thread.
    void remove(callback& c, ops::site s) noexcept {
        step(std::memory_order_relaxed, s);
        if (c.number == 0) {
            callback** at = &first_;
            while (*at != &c) {
                at = &(*at)->next;
            }
            *at = c.next;
        } else if (stopper_ != ops::this_thread()) {
            while (ops::load(ended_, std::memory_order_acquire, s) < c.number) {
                ops::pause();
            }
        }
    }

private:
    void step(std::memory_order o, ops::site s) noexcept {
        ops::modify(list_, [](ops::bits was, ops::bits by) { return was + by; }, 1, o, s);
    }

    int requested_ = ops::make_atomic(0);
    int list_ = ops::make_atomic(0);
    int ended_ = ops::make_atomic(0); // the number of the last call that has returned
    ops::bits calls_ = 0;
    int stopper_ = -1; // the thread that requested the stop
    bool is_late_ = false;
    callback* first_ = nullptr;
};

} // namespace detail

/// Is the std::stop_token of the checker.
class stop_token {
public:
    /// Makes a token that is never stopped.
    stop_token() noexcept = default;
    /// Returns whether a stop was requested.
    bool stop_requested(BIDE_MODEL_SITE) const noexcept {
        return state_ != nullptr && state_->requested({file, line, 1});
    }
    /// Returns whether the token belongs to a source.
    bool stop_possible() const noexcept { return state_ != nullptr; }
    /// Exchanges two tokens.
    void swap(stop_token& other) noexcept { std::swap(state_, other.state_); }
    /// Returns whether both tokens belong to the same source, or to none.
    bool operator==(const stop_token&) const noexcept = default;

private:
    friend class stop_source;
    template <class F> friend class stop_callback;
    explicit stop_token(std::shared_ptr<detail::stop_state> state) noexcept
        : state_(std::move(state)) {}

    std::shared_ptr<detail::stop_state> state_;
};

/// Is the std::stop_source of the checker.
class stop_source : stop_token {
public:
    /// Makes a source with its own state. Allocates.
    stop_source() : stop_token(std::make_shared<detail::stop_state>()) {}
    /// Makes a source without a state, which cannot request a stop.
    explicit stop_source(std::nostopstate_t) noexcept {}
    /// Returns a token of this source.
    stop_token get_token() const noexcept { return *this; }
    /// Requests a stop: runs the callbacks, on this thread.
    /// Returns: true if it is the first request.
    bool request_stop(BIDE_MODEL_SITE) noexcept {
        return state_ != nullptr && state_->request({file, line, 1});
    }
    /// Returns whether a stop was requested.
    using stop_token::stop_requested;
    /// Returns whether the source can request a stop.
    using stop_token::stop_possible;
    /// Exchanges two sources.
    void swap(stop_source& other) noexcept { stop_token::swap(other); }
    /// Returns whether both sources have the same state, or none.
    bool operator==(const stop_source&) const noexcept = default;
};

/// Is std::stop_callback of the checker.
template <class F> class stop_callback : detail::stop_state::callback {
public:
    /// The type that is called.
    using callback_type = F;

    /// Calls `what` when a stop is requested. If that has happened before, calls it at once.
    template <class G>
        requires std::constructible_from<F, G>
    explicit stop_callback(stop_token token, G&& what,
                           BIDE_MODEL_SITE) noexcept(std::is_nothrow_constructible_v<F, G>)
        : callback{&invoke}, what_(std::forward<G>(what)), state_(std::move(token.state_)) {
        if (state_ != nullptr && !state_->add(*this, {file, line, 1})) {
            state_.reset();
            invoke(*this);
        }
    }
    stop_callback(const stop_callback&) = delete;
    stop_callback& operator=(const stop_callback&) = delete;
    /// Removes the callback. Blocks: while another thread calls it.
    ~stop_callback() {
        if (state_ != nullptr) {
            state_->remove(*this, {.is_given = 1}); // the step has no line in the body
        }
    }

private:
    static void invoke(callback& c) noexcept {
        std::invoke(std::forward<F>(static_cast<stop_callback&>(c).what_));
    }

    F what_;
    std::shared_ptr<detail::stop_state> state_;
};
/// Deduces the type of the callback.
template <class F> stop_callback(stop_token, F) -> stop_callback<F>;

}}} // namespace bide::BIDE_ABI::model

#endif
