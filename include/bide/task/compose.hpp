// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_COMPOSE_HPP
#define BIDE_TASK_COMPOSE_HPP

/// \file
/// Runs several tasks concurrently: when_all() waits for all of them, when_any() for the first.
///
/// A child is a task, or a callable that returns a task, such as a lambda coroutine with captures.
/// When the result of when_all() or when_any() is awaited, each callable is called once, in
/// argument order, before any child starts. If a callable throws, the await throws the same and no
/// child starts. A callable is destroyed when its child has ended.
///
/// Each child is posted to the executor of the awaiting coroutine, or else to the worker that runs
/// it, and may run in parallel with the other children. If there is neither, the children run on
/// the awaiting thread, one after the other; such a child is resumed as any coroutine without an
/// executor is (core/resume.hpp).
///
/// The functions of this_task work in a child: a child has its own shields and its own stop token.
///
/// If the awaiting task is cancelled, all children are cancelled, and the await continues when all
/// of them have ended. A shield of the awaiting task keeps the cancellation from all children. A
/// shield of a child keeps it from that child alone.
///
/// GCC before 13 destroys some temporaries of a co_await expression twice: lambdas that capture by
/// value, and braced arguments, as in `co_await when_all(f({1, "text"}))`. bide cannot detect this
/// (BIDE_BRACED_AWAIT_BUG in core/config.hpp). Give the lambda, the argument or the task a name in
/// a statement before.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/task/detail/nonvoid.hpp>
#include <bide/task/detail/task_body.hpp>
#include <bide/task/detail/when_children.hpp>
#include <bide/task/task.hpp>

#include <cstddef>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace bide::inline BIDE_ABI {

/// Runs all children and returns their values in argument order, std::monostate for void.
/// Throws: if children failed, the exception of the first of these in argument order, after all
/// children have ended; the other exceptions are dropped. std::bad_alloc; what the move of a value
/// throws; stopped_error, if the awaiting task has awaited children 128 times since its
/// cancellation.
/// Cancellation: cancels all children, and waits for them.
template <detail::task_source... Ss>
task<std::tuple<nonvoid_t<detail::task_value_t<Ss>>...>> when_all(Ss... children) {
    using until = detail::task_when_state::until;
    detail::when_children<Ss...> all(until::all, std::move(children)...);
    co_await all.state();
    co_return all.values();
}

/// The same, for a vector of children, which may be empty.
template <detail::task_source S>
task<std::vector<nonvoid_t<detail::task_value_t<S>>>> when_all(std::vector<S> children) {
    using until = detail::task_when_state::until;
    detail::when_children_vector<S> all(until::all, children);
    co_await all.state();
    co_return all.values();
}

/// Runs all children until the first one has ended, and returns its value; the index of the variant
/// is the index of that child. An exception counts as an end.
///
/// The other children are cancelled, and the await continues when they have ended. A child that has
/// not started by then never starts. The outcomes of the other children are dropped.
/// Throws: the exception of the first child to end; std::bad_alloc; what the move of a value
/// throws; stopped_error, as when_all().
/// Cancellation: cancels all children, and waits for them.
template <detail::task_source... Ss>
    requires(sizeof...(Ss) != 0)
task<std::variant<nonvoid_t<detail::task_value_t<Ss>>...>> when_any(Ss... children) {
    using until = detail::task_when_state::until;
    detail::when_children<Ss...> all(until::first, std::move(children)...);
    co_await all.state();
    co_return all.first();
}

/// The same, for a vector of children. Returns the index of the first child to end, and its value.
/// Throws: as above; std::invalid_argument, when awaited, if the vector is empty.
template <detail::task_source S>
task<std::pair<std::size_t, nonvoid_t<detail::task_value_t<S>>>> when_any(std::vector<S> children) {
    using until = detail::task_when_state::until;
    if (children.empty()) {
        BIDE_THROW(std::invalid_argument("bide::when_any of an empty vector"));
    }
    detail::when_children_vector<S> all(until::first, children);
    co_await all.state();
    co_return all.first();
}

} // namespace bide::inline BIDE_ABI

#endif
