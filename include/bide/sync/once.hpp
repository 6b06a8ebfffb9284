// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_ONCE_HPP
#define BIDE_SYNC_ONCE_HPP

/// \file
/// Initialises an object once, by one of the threads and coroutines that need it.
///
/// The right to initialise the object is called the turn. One caller at a time has the turn; the
/// other callers wait, first in, first out. If the caller that has the turn fails, by an exception
/// or a cancelled task, the first waiter gets the turn. If it succeeds, every waiter is let
/// through.
///
/// task/lazy.hpp does the same in one call. It also has a value that holds its own initialisation
/// function.

#include <bide/core/wait_ops.hpp>
#include <bide/sync/detail/permit_queue.hpp>

#include <functional>
#include <memory>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The type of the value of a once_cell; void for a once_flag.
template <class Of> struct once_value {
    using type = void;
};
template <class T, class Platform> struct once_value<once_cell<T, Platform>> {
    using type = T;
};

} // namespace detail

/// Holds the turn, or is empty. The turn is the right to initialise an `Of`: a once_flag or a
/// once_cell. If this object is destroyed without set(), the next caller gets the turn.
template <class Of> class [[nodiscard]] once_turn {
    using T = typename detail::once_value<Of>::type;
    static constexpr bool is_of_flag = std::is_void_v<T>;

public:
    /// Constructs an empty turn.
    once_turn() noexcept = default;
    /// Takes over the turn of `other`, which is empty then.
    once_turn(once_turn&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    /// Exchanges the two turns.
    once_turn& operator=(once_turn&& other) noexcept {
        std::swap(of_, other.of_);
        return *this;
    }
    ~once_turn() {
        if (of_ != nullptr) {
            of_->turns_.give(1); // the last access to the flag or cell
        }
    }

    /// Returns true if it is not empty.
    explicit operator bool() const noexcept { return of_ != nullptr; }

    /// Sets the flag and lets every waiter through. This turn object is empty afterwards.
    /// Requires: this object is not empty; terminates otherwise.
    void set() noexcept
        requires is_of_flag
    {
        require("once_flag");
        end();
    }
    /// Constructs the value of the cell from `args` and lets every waiter through. This turn object
    /// is empty afterwards.
    /// Requires: this object is not empty; terminates otherwise.
    /// Throws: what the constructor of T throws. This object then still holds the turn.
    template <class... Args>
        requires(!is_of_flag && std::is_constructible_v<T, Args...>)
    std::add_lvalue_reference_t<T> set(Args&&... args) {
        require("once_cell");
        T& made = *::new (of_->place()) T(std::forward<Args>(args)...);
        end();
        return made;
    }
    /// Does the same as set(), but constructs the value from the result of f(), even if T cannot be
    /// moved.
    /// Throws: what f or the constructor of T throws. This object then still holds the turn.
    template <class F>
        requires(!is_of_flag)
    std::add_lvalue_reference_t<T> set_by(F&& f) {
        require("once_cell");
        T& made = *::new (of_->place()) T(std::invoke(std::forward<F>(f)));
        end();
        return made;
    }

private:
    template <class, class> friend class once_operations;
    explicit once_turn(Of& of) noexcept : of_(&of) {}

    void require(const char* name) const noexcept {
        if (of_ == nullptr) {
            detail::fatal(name, this, "set by a turn that is empty");
        }
    }
    // The last access to the flag or cell.
    void end() noexcept {
        BIDE_SWITCH_AFTER();
        std::exchange(of_, nullptr)->turns_.close();
    }

    Of* of_ = nullptr;
};

/// How a caller gets the turn to initialise Of: the functions that once_flag and once_cell share.
template <class Of, class Platform> class once_operations {
public:
    /// Holds the turn, or is empty. If it is destroyed without set(), the next caller gets the
    /// turn.
    using turn = once_turn<Of>;

    /// Waits for the turn to initialise.
    /// Blocks: until the caller has the turn, or another caller has initialised the flag or cell.
    /// Returns: the turn; empty if the flag or cell is initialised.
    turn begin() noexcept { return turn_of(wait(deadline::never())); }

    /// Takes the turn if the flag or cell is not initialised and no other caller has the turn.
    /// Never blocks.
    /// Returns: the turn, or an empty one.
    turn try_begin() noexcept { return turn_of(wait(deadline::poll())); }

    /// Waits as begin() does, but at most `rest`.
    /// Returns: errc::timeout after the time-out.
    result<turn> begin_for(deadline::from_now rest) { return result_of_wait(wait(deadline(rest))); }
    /// Waits as begin() does, but at most until a point in time.
    result<turn> begin_until(deadline when) { return result_of_wait(wait(when)); }
    /// Waits as begin() does, unless a stop is requested first.
    /// Returns: errc::stopped if a stop was requested.
    result<turn> begin(typename Platform::stop_token token) { return result_of_wait(wait(token)); }

    /// Waits as begin() does, for a coroutine.
    /// Returns: an operation for co_await; its value is the turn.
    basic_async_op<turn, Platform> async_begin() noexcept {
        return {beginning{{turns_, 1}, *this}};
    }

private:
    friend Of;
    friend turn;
    using queue = detail::basic_permit_queue<Platform>;

    // The operation of async_begin() (core/wait_ops.hpp).
    struct beginning : queue::taking {
        once_operations& of;

        result<turn> collect(wait_status what) const noexcept { return of.result_of_wait(what); }
    };

    constexpr once_operations() noexcept = default;
    // Terminates with the name of the primitive if it is in use.
    void require_unused(const char* name) const noexcept {
        turns_.require_no_waiters(name, static_cast<const Of*>(this));
        if (!turns_.is_closed() && turns_.available() == 0) {
            detail::fatal(name, static_cast<const Of*>(this),
                          "destroyed while it is being initialised");
        }
    }
    ~once_operations() = default;

    // Returns granted if the caller has the turn, and closed if the flag or cell is initialised.
    // `limit` is a deadline or a stop token.
    template <class Limit> wait_status wait(const Limit& limit) noexcept {
        return turns_.is_closed()   ? wait_status::closed
               : turns_.try_take(1) ? wait_status::granted
                                    : thread_wait<queue, Platform>::until(turns_, 1, limit);
    }
    turn turn_of(wait_status what) noexcept {
        return what == wait_status::granted ? turn(static_cast<Of&>(*this)) : turn();
    }
    result<turn> result_of_wait(wait_status what) noexcept {
        if (what == wait_status::granted || what == wait_status::closed) {
            return turn_of(what);
        }
        return unexpected{errc_of(what)};
    }

    // The permit of this queue is the turn. While the permit is free, no caller initialises. While
    // it is taken, its holder initialises, and the other callers wait. A holder that fails gives
    // the permit back, and the first waiter gets it. A holder that succeeds closes the queue. This
    // lets every waiter through, and every later acquire fails. So the status `closed` means that
    // the object is initialised. Each caller that finds the queue closed sees what was done before
    // the close [permit.release].
    queue turns_{1};
};

/// A flag that is set once, when an initialisation has succeeded. It is std::once_flag for threads
/// and coroutines. An initialisation that calls begin() of the same flag waits for itself for ever.
///
/// \code
/// bide::once_flag flag;
/// flag.call([] { std::puts("once"); }); // if it throws, the next caller tries
/// \endcode
///
/// Memory order: what happens before set() happens before the return of each call that finds the
/// flag set.
///
/// Destroys: a caller that finds the flag set may destroy it at once, even if the set() has not
/// returned.
///
/// A caller gets the turn to initialise by begin(), try_begin(), begin_for(), begin_until() or
/// async_begin().
template <class Platform>
class basic_once_flag : public once_operations<basic_once_flag<Platform>, Platform> {
public:
    /// The turn to initialise, or nothing.
    using turn = once_turn<basic_once_flag>;

    /// Constructs a flag that is not set.
    constexpr basic_once_flag() noexcept {
        BIDE_CHECKED(detail::note_made<Platform>(this, "once_flag");)
    }

    /// Destroys the flag.
    /// Requires: there are no waiters, and no turn is held; terminates otherwise.
    ~basic_once_flag() {
        this->require_unused("once_flag");
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    basic_once_flag& operator=(basic_once_flag&&) = delete;

    /// Returns true if the flag is set. It is one load.
    bool is_set() const noexcept { return this->turns_.is_closed(); }

    /// If the flag is not set, calls f(args...) and sets the flag.
    /// Blocks: as begin() does.
    /// Throws: what f throws. The next caller then gets the turn.
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

/// A value that is constructed once, when it is needed. T need not be movable. An initialisation
/// that calls begin() of the same cell waits for itself for ever.
///
/// \code
/// auto turn = co_await cell.async_begin(); // empty: another caller has initialised the cell
/// if (turn) turn.set(co_await load());     // if load() throws, the turn goes to the next waiter
/// use(*cell.get());
/// \endcode
///
/// Memory order: what happens before set() happens before the return of each call that finds the
/// value.
///
/// Destroys: a caller that finds the value may destroy the cell at once, even if the set() has not
/// returned.
///
/// A caller gets the turn to initialise by begin(), try_begin(), begin_for(), begin_until() or
/// async_begin().
template <class T, class Platform>
class once_cell : public once_operations<once_cell<T, Platform>, Platform> {
    static_assert(std::is_object_v<T> && !std::is_array_v<T>);

public:
    /// The type of the value.
    using value_type = T;
    /// The turn to initialise, or nothing.
    using turn = once_turn<once_cell>;

    /// Constructs an empty cell.
    constexpr once_cell() noexcept : none_() {
        BIDE_CHECKED(detail::note_made<Platform>(this, "once_cell");)
    }

    /// Destroys the cell and its value.
    /// Requires: there are no waiters, and no turn is held; terminates otherwise.
    ~once_cell() {
        this->require_unused("once_cell");
        if (this->turns_.is_closed()) {
            std::destroy_at(std::addressof(value_));
        }
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    once_cell& operator=(once_cell&&) = delete;

    /// Returns the value; nullptr if there is none yet. It is one load.
    T* get() noexcept { return this->turns_.is_closed() ? std::addressof(value_) : nullptr; }
    /// \overload
    const T* get() const noexcept {
        return this->turns_.is_closed() ? std::addressof(value_) : nullptr;
    }

    /// Returns the value. If there is none, makes it by f().
    /// Blocks: as begin() does.
    /// Throws: what f or the constructor of T throws. The next caller then gets the turn.
    template <class F> T& get_or_init(F&& f) {
        if (!this->turns_.is_closed()) {
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

}} // namespace bide::BIDE_ABI

#endif
