#ifndef BIDE_TASK_DETAIL_TASK_SOURCE_HPP
#define BIDE_TASK_DETAIL_TASK_SOURCE_HPP

// What a task is made from: the task itself, or a callable that returns one.

#include <bide/core/config.hpp>
#include <bide/task/task.hpp>

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class T> inline constexpr bool is_task = false;
template <class T> inline constexpr bool is_task<task<T>> = true;

template <class S> struct task_source_traits {};
template <class T> struct task_source_traits<task<T>> {
    using value = T;
};
template <class F>
    requires(std::is_invocable_v<F&> && is_task<std::invoke_result_t<F&>>)
struct task_source_traits<F> : task_source_traits<std::invoke_result_t<F&>> {};

// The type of the task's value.
template <class S> using task_value_t = typename task_source_traits<S>::value;

template <class S>
concept task_source = requires { typename task_value_t<S>; };

// Keeps the callable that a task came from: a lambda coroutine uses the captures until its end.
// The owner of the task's frame has one of these, destroys the frame first, and calls close() then.
template <task_source F> class task_origin {
public:
    using value = task_value_t<F>;

    // Calls the callable, where it stays. Throws: what moving it throws, and what it throws.
    task<value> open(F&& function) {
        function_.emplace(std::move(function));
        return std::invoke(*function_);
    }

    void close() noexcept { function_.reset(); }

private:
    std::optional<F> function_;
};

template <class T> class task_origin<task<T>> {
public:
    using value = T;

    task<T> open(task<T>&& t) noexcept { return std::move(t); }
    void close() noexcept {}
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
