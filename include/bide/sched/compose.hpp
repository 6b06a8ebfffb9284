#ifndef BIDE_SCHED_COMPOSE_HPP
#define BIDE_SCHED_COMPOSE_HPP

// Tasks that run side by side: when_all, when_any, and groups of any number of them (task_group.hpp).

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/sched/detail/siblings.hpp>
#include <bide/sched/task.hpp>
#include <bide/sched/task_group.hpp> // they belong together

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
// With GCC before 13, co_await when_all(f({1, "text"})) destroys the argument of f twice where that
// is an aggregate, and bide cannot refuse it: name the argument or the task before
// (BIDE_BRACED_AWAIT_BUG in core/config.hpp).

// Runs all, each to its end. The values in order; std::monostate for void.
// Throws: if any failed, what the first of these in argument order threw, the others' is dropped.
template <class... Ts> task<std::tuple<nonvoid_t<Ts>...>> when_all(task<Ts>... children) {
    using until = detail::task_family::until;
    detail::siblings<Ts...> all(until::all, std::move(children)...);
    co_await all.family();
    co_return all.values();
}

// The same of any number, of none too.
template <class T> task<std::vector<nonvoid_t<T>>> when_all(std::vector<task<T>> children) {
    using until = detail::task_family::until;
    detail::sibling_vector<T> all(until::all, children);
    co_await all.family();
    co_return all.values();
}

// Runs all until one has ended, by a value or an exception: that is the outcome. The others are
// cancelled, and waited for; those that have not begun never do. What becomes of them is dropped.
// Throws: what the first one threw.
template <class... Ts>
    requires(sizeof...(Ts) != 0)
task<std::variant<nonvoid_t<Ts>...>> when_any(task<Ts>... children) {
    using until = detail::task_family::until;
    detail::siblings<Ts...> all(until::first, std::move(children)...);
    co_await all.family();
    co_return all.first();
}

// The same of any number: which one, and its value.
// Throws: as above; std::invalid_argument, when awaited, if there are none.
template <class T>
task<std::pair<std::size_t, nonvoid_t<T>>> when_any(std::vector<task<T>> children) {
    using until = detail::task_family::until;
    if (children.empty()) {
        BIDE_THROW(std::invalid_argument("bide::when_any of nothing"));
    }
    detail::sibling_vector<T> all(until::first, children);
    co_await all.family();
    co_return all.first();
}

} // namespace bide::inline BIDE_ABI

#endif
