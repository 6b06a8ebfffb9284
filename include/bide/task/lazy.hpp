// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_LAZY_HPP
#define BIDE_TASK_LAZY_HPP

/// \file
/// One-time initialisation by a function or a coroutine: the class lazy, and functions for
/// once_flag and once_cell (sync/once.hpp).

#include <bide/sync/once.hpp>
#include <bide/task/task.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

template <class T> struct result_of_task {
    using type = T;
};
template <class T> struct result_of_task<task<T>> {
    using type = T;
};
// The type of the value that f() makes. If f() returns a task, the type of the task's value.
template <class F> using initialised_by = typename result_of_task<std::invoke_result_t<F&>>::type;

} // namespace detail

/// If the flag is not set, calls f() and sets the flag. If f() returns a task, awaits the task
/// before the flag is set.
/// Returns: a task that ends after the flag was set.
/// Throws: when the task is awaited: what f() and its task throw. After an exception or a
/// cancellation, the next caller calls its own function.
template <class F> task<void> async_call_once(once_flag& flag, F f) {
    auto mine = co_await flag.async_begin();
    if (mine) {
        if constexpr (detail::is_task<std::invoke_result_t<F&>>) {
            co_await f();
        } else {
            f();
        }
        mine.set();
    }
}

/// Returns the value of the cell. If the cell is empty, first stores the result of f(). If f()
/// returns a task, awaits the task and stores its value.
/// Returns: a task; its value is the value of the cell.
/// Throws: as async_call_once().
template <class T, class F> task<T&> async_get_or_init(once_cell<T>& cell, F f) {
    auto mine = co_await cell.async_begin();
    if (!mine) {
        co_return *cell.get();
    }
    if constexpr (detail::is_task<std::invoke_result_t<F&>>) {
        T made = co_await f();
        co_return mine.set(std::move(made));
    } else {
        co_return mine.set_by(f);
    }
}

/// A value that a function makes when the value is first needed. One of the threads and coroutines
/// that need the value calls the function; the others wait. The function returns a T or a task<T>.
/// If the function throws, the next caller calls it again. A wait for the value cannot be a case of
/// a select, because the waiter may have to call the function.
///
/// \code
/// bide::lazy config([] { return load_config(); });     // get() blocks, async_get() suspends
/// bide::lazy session([]() -> bide::task<int> { co_return co_await connect(); });
/// \endcode
template <class T, class F> class lazy {
    static_assert(std::is_same_v<detail::initialised_by<F>, T>,
                  "bide: the function of a lazy<T, F> returns a T or a task<T>");

public:
    /// The type of the value.
    using value_type = T;

    /// Constructs a lazy value. `f` is not called yet.
    explicit lazy(F body) : make_(std::move(body)) {}

    /// Destroys the value, if it was made.
    /// Requires: no caller waits for the value or makes it; terminates otherwise.
    ~lazy() = default;

    lazy(const lazy&) = delete;
    lazy& operator=(const lazy&) = delete;

    /// Returns the address of the value, or nullptr if it was not made yet. Costs one load.
    T* get_if() noexcept { return cell_.get(); }
    /// \overload
    const T* get_if() const noexcept { return cell_.get(); }

    /// Returns the value. The first caller makes it. If the function returns a task, sync_wait()
    /// runs that task.
    /// Blocks: until the value is made.
    /// Throws: what the function throws.
    T& get() {
        return cell_.get_or_init([this]() -> T {
            if constexpr (detail::is_task<std::invoke_result_t<F&>>) {
                return bide::sync_wait(make_());
            } else {
                return make_();
            }
        });
    }

    /// Returns the value as get() does, for a coroutine.
    /// Returns: a task; its value is a reference to the value.
    /// Throws: when the task is awaited, what the function throws.
    task<T&> async_get() {
        return bide::async_get_or_init(cell_, [this] { return make_(); });
    }

private:
    once_cell<T> cell_;
    F make_;
};

/// Deduces the type of the value from the function.
template <class F> explicit lazy(F) -> lazy<detail::initialised_by<F>, F>;

}} // namespace bide::BIDE_ABI

#endif
