// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_ONCE_HPP
#define BIDE_SYNC_ONCE_HPP

/// \file
/// Initialises something once, by one of the threads and coroutines that need it.
///
/// One caller at a time has the turn to initialise; the others wait, first in, first out. If that
/// caller fails, because of an exception or a cancelled task, the first waiter gets the turn. If it
/// succeeds, every waiter is let through. An initialisation by a coroutine:
///
/// \code
/// auto turn = co_await cell.async_begin(); // empty: another caller has initialised the cell
/// if (turn) turn.set(co_await load());     // if load() throws, the turn goes to the next waiter
/// use(*cell.get());
/// \endcode
///
/// task/lazy.hpp has that in one call, and a value that knows how to initialise itself.
//
// sync/detail/once_core.hpp has the protocol.

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/fwd.hpp>
#include <bide/sync/detail/once_core.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// The turn to initialise. Of is the once_flag or once_cell.
template <class Of> class once_turn {
public:
    ~once_turn() {
        if (of_ != nullptr) {
            of_->once_.give_up();
        }
    }

    /// Returns true if it is not empty.
    explicit operator bool() const noexcept { return of_ != nullptr; }

protected:
    once_turn() noexcept = default;
    explicit once_turn(Of& of) noexcept : of_(&of) {}
    once_turn(once_turn&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    once_turn& operator=(once_turn&& other) noexcept {
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

} // namespace detail

/// A flag that is set once, when an initialisation has succeeded. It is std::once_flag for threads
/// and coroutines. An initialisation that begins the same flag again waits for itself for ever.
///
/// Memory order: what happens before set() happens before the return of each call that finds the
/// flag set.
///
/// Destroys: a caller that finds the flag set may destroy it at once, even if the set() has not
/// returned.
template <class Platform> class basic_once_flag {
    using self = basic_once_flag;

public:
    /// The turn to initialise, or nothing. If it is destroyed without set(), the next caller gets
    /// the turn.
    class [[nodiscard]] turn : public detail::once_turn<self> {
    public:
        /// Constructs an empty turn.
        turn() noexcept = default;
        /// Sets the flag and lets every waiter through. The turn is empty then.
        /// Requires: it is not empty; terminates otherwise.
        void set() noexcept {
            this->of("once_flag");
            this->end();
        }

    private:
        friend class basic_once_flag;
        explicit turn(self& of) noexcept : detail::once_turn<self>(of) {}
    };

    /// Constructs a flag that is not set.
    constexpr basic_once_flag() noexcept = default;

    /// Destroys the flag.
    /// Requires: there are no waiters, and no turn is held; terminates otherwise.
    ~basic_once_flag() { once_.require_unused("once_flag", this); }

    basic_once_flag(const basic_once_flag&) = delete;
    basic_once_flag& operator=(const basic_once_flag&) = delete;

    /// Returns true if the flag is set. It is one load.
    bool is_set() const noexcept { return once_.is_set(); }

    /// Waits for the turn to initialise.
    /// Blocks: until the caller has the turn, or the flag is set.
    /// Returns: the turn; empty if the flag is set.
    turn begin() noexcept { return of(once_.begin(deadline::never())); }

    /// Takes the turn if the flag is not set and no other caller has the turn. Never blocks.
    /// Returns: the turn, or an empty one.
    turn try_begin() noexcept { return of(once_.begin(deadline::poll())); }

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
    result<turn> begin(std::stop_token token) { return result_of_wait(once_.begin(token)); }

    /// Waits as begin() does, for a coroutine.
    /// Returns: an operation for co_await; its value is the turn.
    basic_async_op<turn, Platform> async_begin() noexcept {
        return once_.async_begin([this]() noexcept { return turn(*this); });
    }

    /// Calls f(args...) unless the flag is set, and sets it.
    /// Blocks: as begin() does.
    /// Throws: what f throws; the next caller gets the turn then.
    template <class F, class... Args> void call(F&& f, Args&&... args) {
        if (!is_set()) {
            if (turn mine = begin()) {
                std::invoke(std::forward<F>(f), std::forward<Args>(args)...);
                mine.set();
            }
        }
    }

private:
    friend class detail::once_turn<self>;

    turn of(wait_status what) noexcept {
        return what == wait_status::granted ? turn(*this) : turn();
    }
    result<turn> result_of_wait(wait_status what) noexcept {
        if (what == wait_status::granted || what == wait_status::closed) {
            return of(what);
        }
        return unexpected{errc_of(what)};
    }

    detail::basic_once<Platform> once_;
};

/// A value that is constructed once, when it is needed. T need not be movable. An initialisation
/// that begins the same cell again waits for itself for ever.
///
/// Memory order: what happens before set() happens before the return of each call that finds the
/// value.
///
/// Destroys: as a basic_once_flag.
template <class T, class Platform> class once_cell {
    static_assert(std::is_object_v<T> && !std::is_array_v<T>);

public:
    /// The type of the value.
    using value_type = T;

    /// The turn to initialise, or nothing. If it is destroyed without set(), the next caller gets
    /// the turn.
    class [[nodiscard]] turn : public detail::once_turn<once_cell> {
    public:
        /// Constructs an empty turn.
        turn() noexcept = default;
        /// Constructs the value from `args` and lets every waiter through. The turn is empty then.
        /// Requires: it is not empty; terminates otherwise.
        /// Throws: what the constructor of T throws; the turn is not empty then.
        template <class... Args> T& set(Args&&... args) {
            T& made = this->of("once_cell").make([&] { return T(std::forward<Args>(args)...); });
            this->end();
            return made;
        }

    private:
        friend class once_cell;
        explicit turn(once_cell& of) noexcept : detail::once_turn<once_cell>(of) {}
    };

    /// Constructs an empty cell.
    constexpr once_cell() noexcept : none_() {}

    /// Destroys the cell and its value.
    /// Requires: there are no waiters, and no turn is held; terminates otherwise.
    ~once_cell() {
        once_.require_unused("once_cell", this);
        if (once_.is_set()) {
            std::destroy_at(std::addressof(value_));
        }
    }

    once_cell(const once_cell&) = delete;
    once_cell& operator=(const once_cell&) = delete;

    /// Returns the value; nullptr if there is none yet. It is one load.
    T* get() noexcept { return once_.is_set() ? std::addressof(value_) : nullptr; }
    /// \overload
    const T* get() const noexcept { return once_.is_set() ? std::addressof(value_) : nullptr; }

    /// Waits for the turn to initialise.
    /// Blocks: until the caller has the turn, or there is a value.
    /// Returns: the turn; empty if there is a value.
    turn begin() noexcept { return of(once_.begin(deadline::never())); }

    /// Takes the turn if there is no value and no other caller has the turn. Never blocks.
    /// Returns: the turn, or an empty one.
    turn try_begin() noexcept { return of(once_.begin(deadline::poll())); }

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
    result<turn> begin(std::stop_token token) { return result_of_wait(once_.begin(token)); }

    /// Waits as begin() does, for a coroutine.
    /// Returns: an operation for co_await; its value is the turn.
    basic_async_op<turn, Platform> async_begin() noexcept {
        return once_.async_begin([this]() noexcept { return turn(*this); });
    }

    /// Returns the value, which it makes by f() if there is none.
    /// Blocks: as begin() does.
    /// Throws: what f or the constructor of T throws; the next caller gets the turn then.
    template <class F> T& get_or_init(F&& f) {
        if (!once_.is_set()) {
            if (turn mine = begin()) {
                make(std::forward<F>(f));
                mine.end();
            }
        }
        return value_;
    }

private:
    friend class detail::once_turn<once_cell>;

    // Constructs the value in place, also if it cannot be moved.
    template <class F> T& make(F&& f) {
        return *::new (static_cast<void*>(std::addressof(value_)))
            T(std::invoke(std::forward<F>(f)));
    }

    turn of(wait_status what) noexcept {
        return what == wait_status::granted ? turn(*this) : turn();
    }
    result<turn> result_of_wait(wait_status what) noexcept {
        if (what == wait_status::granted || what == wait_status::closed) {
            return of(what);
        }
        return unexpected{errc_of(what)};
    }

    detail::basic_once<Platform> once_;
    union {
        char none_;
        T value_; // constructed if the cell is set
    };
};

} // namespace bide::inline BIDE_ABI

#endif
