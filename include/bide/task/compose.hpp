#ifndef BIDE_TASK_COMPOSE_HPP
#define BIDE_TASK_COMPOSE_HPP

// Tasks that run side by side: when_all and when_any.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/task/detail/task_source.hpp>
#include <bide/task/detail/when_children.hpp>
#include <bide/task/task.hpp>

#include <cstddef>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace bide::inline BIDE_ABI {

// ---- when_all, when_any
//
// Each child is posted to the executor of the coroutine that awaits, and may run in parallel with
// the others. Where it has none, the children run on the awaiting thread, one after the other, and
// go on as any coroutine does that has no executor. this_task works in them: a child has its own
// shields and its own stop token.
//
// Cancel: where the awaiting task is cancelled, its children are; it goes on when all have ended.
// Its shields keep that from them, theirs do so for each alone.
// Throws: std::bad_alloc; what a move of a value throws.
//
// A child is a task, or a callable that returns one, as a lambda coroutine with captures. Callables
// are called where the result is awaited, in order, before any child begins; if one throws, so does
// the await, and none begins. A callable is destroyed when its child has ended.
//
// With GCC before 13 no co_await expression may contain a lambda that captures by value, nor
// arguments of a task in braces, as in co_await when_all(f({1, "text"})): they are destroyed twice,
// and bide cannot refuse it (BIDE_BRACED_AWAIT_BUG in core/config.hpp). Name the lambda, the
// argument or the task before.

// Runs all, each to its end. The values in order; std::monostate for void.
// Throws: if any failed, what the first of these in argument order threw, the others' is dropped.
template <detail::task_source... Ss>
task<std::tuple<nonvoid_t<detail::task_value_t<Ss>>...>> when_all(Ss... children) {
    using until = detail::task_when_state::until;
    detail::when_children<Ss...> all(until::all, std::move(children)...);
    co_await all.state();
    co_return all.values();
}

// The same of any number, of none too.
template <detail::task_source S>
task<std::vector<nonvoid_t<detail::task_value_t<S>>>> when_all(std::vector<S> children) {
    using until = detail::task_when_state::until;
    detail::when_children_vector<S> all(until::all, children);
    co_await all.state();
    co_return all.values();
}

// Runs all until one has ended, by a value or an exception: that is the outcome. The others are
// cancelled, and waited for; those that have not begun never do. What becomes of them is dropped.
// Throws: what the first one threw.
template <detail::task_source... Ss>
    requires(sizeof...(Ss) != 0)
task<std::variant<nonvoid_t<detail::task_value_t<Ss>>...>> when_any(Ss... children) {
    using until = detail::task_when_state::until;
    detail::when_children<Ss...> all(until::first, std::move(children)...);
    co_await all.state();
    co_return all.first();
}

// The same of any number: which one, and its value.
// Throws: as above; std::invalid_argument, when awaited, if there are none.
template <detail::task_source S>
task<std::pair<std::size_t, nonvoid_t<detail::task_value_t<S>>>> when_any(std::vector<S> children) {
    using until = detail::task_when_state::until;
    if (children.empty()) {
        BIDE_THROW(std::invalid_argument("bide::when_any of nothing"));
    }
    detail::when_children_vector<S> all(until::first, children);
    co_await all.state();
    co_return all.first();
}

} // namespace bide::inline BIDE_ABI

#endif
