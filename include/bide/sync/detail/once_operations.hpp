// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_ONCE_OPERATIONS_HPP
#define BIDE_SYNC_DETAIL_ONCE_OPERATIONS_HPP

// How a caller gets the turn to initialise Of, a once_flag or once_cell.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/result.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/fwd.hpp>
#include <bide/sync/detail/once_core.hpp>

#include <chrono>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// The turn to initialise Of. Each Of has its own, which is a basic_once_turn and has set().
template <class Of> class once_turn;

template <class Of> class basic_once_turn {
public:
    ~basic_once_turn() {
        if (of_ != nullptr) {
            of_->once_.give_up();
        }
    }

    /// Returns true if it is not empty.
    explicit operator bool() const noexcept { return of_ != nullptr; }

protected:
    basic_once_turn() noexcept = default;
    explicit basic_once_turn(Of& of) noexcept : of_(&of) {}
    basic_once_turn(basic_once_turn&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    basic_once_turn& operator=(basic_once_turn&& other) noexcept {
        std::swap(of_, other.of_);
        return *this;
    }

    Of& of(const char* name) noexcept {
        if (of_ == nullptr) {
            fatal(name, this, "set by a turn that is empty");
        }
        return *of_;
    }
    // The last access to the flag or cell.
    void end() noexcept { std::exchange(of_, nullptr)->once_.set(); }

private:
    Of* of_ = nullptr;
};

template <class Of, class Platform> class once_operations {
public:
    /// The turn to initialise, or nothing. If it is destroyed without set(), the next caller gets
    /// the turn.
    using turn = once_turn<Of>;

    /// Waits for the turn to initialise.
    /// Blocks: until the caller has the turn, or another caller has initialised the flag or cell.
    /// Returns: the turn; empty if the flag or cell is initialised.
    turn begin() noexcept { return turn_of(once_.begin(deadline::never())); }

    /// Takes the turn if the flag or cell is not initialised and no other caller has the turn. Never
    /// blocks.
    /// Returns: the turn, or an empty one.
    turn try_begin() noexcept { return turn_of(once_.begin(deadline::poll())); }

    /// Waits as begin() does, but at most `rest`.
    /// Returns: errc::timeout after the time-out.
    template <class R, class P> result<turn> begin_for(const std::chrono::duration<R, P>& rest) {
        return result_of_wait(once_.begin(deadline::after(rest)));
    }
    /// Waits as begin() does, but at most until a point in time.
    template <class C, class D>
    result<turn> begin_until(const std::chrono::time_point<C, D>& when) {
        return result_of_wait(once_.begin(deadline::at(when)));
    }
    /// Waits as begin() does, unless a stop is requested first.
    /// Returns: errc::stopped if a stop was requested.
    result<turn> begin(typename Platform::stop_token token) {
        return result_of_wait(once_.begin(token));
    }

    /// Waits as begin() does, for a coroutine.
    /// Returns: an operation for co_await; its value is the turn.
    basic_async_op<turn, Platform> async_begin() noexcept {
        return once_.async_begin([this]() noexcept { return turn_of(wait_status::granted); });
    }

protected:
    constexpr once_operations() noexcept = default;
    ~once_operations() = default;

    basic_once<Platform> once_;

private:
    friend basic_once_turn<Of>;

    turn turn_of(wait_status what) noexcept {
        return what == wait_status::granted ? turn(static_cast<Of&>(*this)) : turn();
    }
    result<turn> result_of_wait(wait_status what) noexcept {
        if (what == wait_status::granted || what == wait_status::closed) {
            return turn_of(what);
        }
        return unexpected{errc_of(what)};
    }
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
