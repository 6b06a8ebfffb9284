// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_ONCE_HPP
#define BIDE_SYNC_ONCE_HPP

/// \file
/// Initialises something once, by one of the threads and coroutines that need it.
///
/// One caller at a time has the turn to initialise; the other callers wait, first in, first out. If
/// that caller fails, because of an exception or a cancelled task, the first waiter gets the turn.
/// If it succeeds, every waiter is let through. An initialisation by a coroutine:
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

#include <bide/core/config.hpp>
#include <bide/core/detail/is_task.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/platform.hpp>
#include <bide/fwd.hpp>
#include <bide/sync/detail/once_operations.hpp>

#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

/// A flag that is set once, when an initialisation has succeeded. It is std::once_flag for threads
/// and coroutines. An initialisation that begins the same flag again waits for itself for ever.
///
/// Memory order: what happens before set() happens before the return of each call that finds the
/// flag set.
///
/// Destroys: a caller that finds the flag set may destroy it at once, even if the set() has not
/// returned.
///
/// A caller gets the turn to initialise by begin(), try_begin(), begin_for(), begin_until() or
/// async_begin() (detail/once_operations.hpp).
template <class Platform>
class basic_once_flag : public detail::once_operations<basic_once_flag<Platform>, Platform> {
public:
    /// The turn to initialise, or nothing (detail::once_turn below).
    using turn = detail::once_turn<basic_once_flag>;

    /// Constructs a flag that is not set.
    constexpr basic_once_flag() noexcept {
        BIDE_CHECKED(detail::note_made<Platform>(this, "once_flag");)
    }

    /// Destroys the flag.
    /// Requires: there are no waiters, and no turn is held; terminates otherwise.
    ~basic_once_flag() {
        this->once_.require_unused("once_flag", this);
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    basic_once_flag(const basic_once_flag&) = delete;
    basic_once_flag& operator=(const basic_once_flag&) = delete;

    /// Returns true if the flag is set. It is one load.
    bool is_set() const noexcept { return this->once_.is_set(); }

    /// Calls f(args...) unless the flag is set, and sets it.
    /// Blocks: as begin() does.
    /// Throws: what f throws; the next caller gets the turn then.
    template <class F, class... Args> void call(F&& f, Args&&... args) {
        static_assert(!detail::is_task<std::invoke_result_t<F, Args...>>,
                      "bide: a flag awaits no task: async_call_once() does");
        if (!is_set()) {
            if (turn mine = this->begin()) {
                std::invoke(std::forward<F>(f), std::forward<Args>(args)...);
                mine.set();
            }
        }
    }
};

/// The turn to set a flag, or nothing. If it is destroyed without set(), the next caller gets the
/// turn.
template <class Platform>
class [[nodiscard]] detail::once_turn<basic_once_flag<Platform>>
    : public detail::basic_once_turn<basic_once_flag<Platform>> {
    using flag = basic_once_flag<Platform>;

public:
    /// Constructs an empty turn.
    once_turn() noexcept = default;
    /// Sets the flag and lets every waiter through. The turn is empty then.
    /// Requires: it is not empty; terminates otherwise.
    void set() noexcept {
        this->of("once_flag");
        this->end();
    }

private:
    friend detail::once_operations<flag, Platform>;
    explicit once_turn(flag& of) noexcept : detail::basic_once_turn<flag>(of) {}
};

/// A value that is constructed once, when it is needed. T need not be movable. An initialisation
/// that begins the same cell again waits for itself for ever.
///
/// Memory order: what happens before set() happens before the return of each call that finds the
/// value.
///
/// Destroys: as a basic_once_flag.
///
/// A caller gets the turn to initialise by begin(), try_begin(), begin_for(), begin_until() or
/// async_begin() (detail/once_operations.hpp).
template <class T, class Platform>
class once_cell : public detail::once_operations<once_cell<T, Platform>, Platform> {
    static_assert(std::is_object_v<T> && !std::is_array_v<T>);

public:
    /// The type of the value.
    using value_type = T;
    /// The turn to initialise, or nothing (detail::once_turn below).
    using turn = detail::once_turn<once_cell>;

    /// Constructs an empty cell.
    constexpr once_cell() noexcept : none_() {
        BIDE_CHECKED(detail::note_made<Platform>(this, "once_cell");)
    }

    /// Destroys the cell and its value.
    /// Requires: there are no waiters, and no turn is held; terminates otherwise.
    ~once_cell() {
        this->once_.require_unused("once_cell", this);
        if (this->once_.is_set()) {
            std::destroy_at(std::addressof(value_));
        }
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    once_cell(const once_cell&) = delete;
    once_cell& operator=(const once_cell&) = delete;

    /// Returns the value; nullptr if there is none yet. It is one load.
    T* get() noexcept { return this->once_.is_set() ? std::addressof(value_) : nullptr; }
    /// \overload
    const T* get() const noexcept {
        return this->once_.is_set() ? std::addressof(value_) : nullptr;
    }

    /// Returns the value, which it makes by f() if there is none.
    /// Blocks: as begin() does.
    /// Throws: what f or the constructor of T throws; the next caller gets the turn then.
    template <class F> T& get_or_init(F&& f) {
        if (!this->once_.is_set()) {
            if (turn mine = this->begin()) {
                mine.set_by(std::forward<F>(f));
            }
        }
        return value_;
    }

private:
    friend turn;

    void* place() noexcept { return const_cast<std::remove_cv_t<T>*>(std::addressof(value_)); }

    union {
        char none_;
        T value_; // constructed if the cell is set
    };
};

/// The turn to make the value of a cell, or nothing. If it is destroyed without set(), the next
/// caller gets the turn.
template <class T, class Platform>
class [[nodiscard]] detail::once_turn<once_cell<T, Platform>>
    : public detail::basic_once_turn<once_cell<T, Platform>> {
    using cell = once_cell<T, Platform>;

public:
    /// Constructs an empty turn.
    once_turn() noexcept = default;
    /// Constructs the value from `args` and lets every waiter through. The turn is empty then.
    /// Requires: it is not empty; terminates otherwise.
    /// Throws: what the constructor of T throws; the turn is not empty then.
    template <class... Args>
        requires std::is_constructible_v<T, Args...>
    T& set(Args&&... args) {
        T& made = *::new (this->of("once_cell").place()) T(std::forward<Args>(args)...);
        this->end();
        return made;
    }
    /// Constructs the value from f(), also if it cannot be moved; otherwise as set().
    /// Throws: what f or the constructor of T throws; the turn is not empty then.
    template <class F> T& set_by(F&& f) {
        T& made = *::new (this->of("once_cell").place()) T(std::invoke(std::forward<F>(f)));
        this->end();
        return made;
    }

private:
    friend cell;
    friend detail::once_operations<cell, Platform>;
    explicit once_turn(cell& of) noexcept : detail::basic_once_turn<cell>(of) {}
};

} // namespace bide::inline BIDE_ABI

#endif
