// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_OUTCOME_HPP
#define BIDE_TASK_OUTCOME_HPP

/// \file
/// The outcome of a task as an object: a value or an exception. as_outcome() turns a task that may
/// throw into a task that returns its outcome. So when_all() keeps every outcome:
///
/// \code
/// const auto [one, two] = co_await bide::when_all(bide::as_outcome(ask(a)),
///                                                 bide::as_outcome(ask(b)));
/// if (!one && !bide::is_stopped(one.error())) report(one.error()); // a std::exception_ptr
/// if (two) use(*two);
/// \endcode

#include <bide/task/detail/task_cell.hpp>

namespace bide { inline namespace BIDE_ABI {

/// A value of a task, or the exception that the task has thrown. T may be void. A copy shares the
/// exception.
template <class T> using outcome = result<T, std::exception_ptr>;

/// Returns true if the exception is a stopped_error: a cancellation, or a stop, has ended the task.
inline bool is_stopped(const std::exception_ptr& error) noexcept {
    return error && detail::is_stopped_error(error);
}

namespace detail {

template <task_source S> task<task_value_t<S>> open_source(S& from) {
    if constexpr (is_task<S>) {
        return std::move(from);
    } else {
        return from();
    }
}

} // namespace detail

/// Runs a task, or the task that a callable returns.
/// Returns: a task whose value is the outcome of `work`. If a cancellation of the awaiting task
/// has stopped `work`, the outcome is a stopped_error, and the next wait of the awaiting task is
/// stopped.
/// Throws: when awaited, what the move of the value throws.
/// Cancellation: cancels `work`, and waits for it.
template <detail::task_source S> task<outcome<detail::task_value_t<S>>> as_outcome(S work) {
    using value = detail::task_value_t<S>;
    static_assert(!std::is_reference_v<value>, "an outcome of a reference: use a pointer");
    std::exception_ptr error;
    BIDE_TRY {
        task<value> made = detail::open_source(work);
        if constexpr (std::is_void_v<value>) {
            co_await std::move(made);
            co_return outcome<void>();
        } else {
            co_return outcome<value>(std::in_place, co_await std::move(made));
        }
    }
    BIDE_CATCH { error = std::current_exception(); }
    co_return unexpected(std::move(error));
}

namespace detail {

// Moves the outcome of an ended task out. If `never_ran` is true, the outcome is a stopped_error.
// Throws: what the move of the value throws.
template <class T> outcome<T> take_outcome(kept_outcome<T>& from, bool never_ran) {
    if (never_ran) {
        return unexpected(std::make_exception_ptr(error_of<stopped_error>(errc::stopped)));
    }
    if (from.error()) {
        return unexpected(std::exchange(from.error(), nullptr));
    }
    if constexpr (std::is_void_v<T>) {
        return {};
    } else {
        return outcome<T>(std::in_place, from.value());
    }
}

} // namespace detail
}} // namespace bide::BIDE_ABI

#endif
