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
/// Each child is posted to the executor of the awaiting coroutine, and may run in parallel with the
/// other children. If the coroutine has no executor, its children are posted to the worker that
/// runs it. If there is no worker either, the children run on the awaiting thread, one after the
/// other. Such a child is resumed like every coroutine without an executor (core/resume.hpp).
///
/// On a worker of its scheduler, a task that awaits when_all() posts no child. It runs the children
/// itself, in argument order, one after the other. Other workers take the children that it has not
/// started, the last child first. If a child waits, the children that have not started are posted.
/// Such an await spends one unit of the task's budget for each child. A run_loop does the same on
/// its one thread.
///
/// If all operations of a child are ready, the child pauses when the budget is spent, and queued
/// tasks run. After at most 4,096 such pauses, one more child that has not started is posted; the
/// first to be posted is the last child of the outermost when_all(). So each child starts, and a
/// child may wait for a later one.
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
/// an earlier statement.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/task/detail/coroutine_frame.hpp>
#include <bide/task/detail/nonvoid.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/detail/when_state.hpp>
#include <bide/task/task.hpp>

#include <coroutine>
#include <cstddef>
#include <iterator>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// The children of when_all and when_any, with their bodies and outcomes (task_cell.hpp), and the
// state that they share (when_state.hpp).

using task_when_state = basic_when_state<native_platform>;

template <task_source S> class task_child : public basic_when_child<native_platform> {
    using T = task_value_t<S>;

public:
    task_child() noexcept {}

    // Throws: what a callable throws.
    void open(S&& source) { body_.open(std::move(source)); }
    awaited_frame& frame() noexcept { return body_.frame(); }

    // Requires, for all: the child has ended.
    bool is_stopped() const noexcept { return outcome_.is_stopped(); }
    void rethrow_if_failed() { outcome_.rethrow_if_failed(); }
    nonvoid_t<T> value() {
        if constexpr (std::is_void_v<T>) {
            return {};
        } else {
            return outcome_.value();
        }
    }

private:
    std::coroutine_handle<> begin(executor_ref where) noexcept override {
        return body_.begin(*this, where);
    }

    void settle() noexcept override {
        if (has_begun()) {
            body_.end(outcome_);
        } else {
            body_.destroy();
        }
    }

    task_body<S, awaited_frame> body_;
    [[no_unique_address]] kept_outcome<T> outcome_;
};

template <class S> void add_child(task_when_state& to, task_child<S>& c, S& source) {
    c.open(std::move(source));
    to.add(c, &c.frame());
}

template <task_source... Ss> class when_children {
public:
    // Throws: what a callable throws.
    explicit when_children(task_when_state::until what, Ss&... sources) : state(what) {
        std::apply([&](task_child<Ss>&... c) { (detail::add_child(state, c, sources), ...); },
                   children_);
    }

    std::tuple<nonvoid_t<task_value_t<Ss>>...> values() {
        return std::apply(
            [](task_child<Ss>&... c) {
                (c.rethrow_if_failed(), ...);
                return std::tuple<nonvoid_t<task_value_t<Ss>>...>(c.value()...);
            },
            children_);
    }

    template <std::size_t I = 0> std::variant<nonvoid_t<task_value_t<Ss>>...> first() {
        static_assert((!std::is_reference_v<task_value_t<Ss>> && ...),
                      "when_any of references: use pointers");
        if constexpr (I + 1 < sizeof...(Ss)) {
            if (state.winner() != I) {
                return first<I + 1>();
            }
        }
        auto& c = std::get<I>(children_);
        c.rethrow_if_failed();
        return std::variant<nonvoid_t<task_value_t<Ss>>...>(std::in_place_index<I>, c.value());
    }

    task_when_state state;

private:
    std::tuple<task_child<Ss>...> children_;
};

template <task_source S> class when_children_vector {
    using T = task_value_t<S>;

    static_assert(!std::is_reference_v<T>, "a vector of tasks of references: use pointers");

public:
    // Throws: std::bad_alloc; what a callable throws.
    when_children_vector(task_when_state::until what, std::vector<S>& sources)
        : state(what), children_(sources.size()) {
        for (std::size_t i = 0; i < sources.size(); ++i) {
            detail::add_child(state, children_[i], sources[i]);
        }
    }

    std::vector<nonvoid_t<T>> values() {
        for (task_child<S>& c : children_) {
            c.rethrow_if_failed();
        }
        std::vector<nonvoid_t<T>> all;
        all.reserve(children_.size());
        for (task_child<S>& c : children_) {
            all.push_back(c.value());
        }
        return all;
    }

    std::pair<std::size_t, nonvoid_t<T>> first() {
        const std::size_t which = state.winner();
        children_[which].rethrow_if_failed();
        return {which, children_[which].value()};
    }

    task_when_state state;

private:
    std::vector<task_child<S>> children_;
};

template <class R>
using child_of_range_t = std::remove_cvref_t<decltype(*std::begin(std::declval<R&>()))>;
template <class R>
concept child_range = task_source<child_of_range_t<R>>;

// Moves the children of an rvalue container. Elements of a view or an lvalue are taken as they are.
template <class R> std::vector<child_of_range_t<R>> to_children(R&& range) {
    std::vector<child_of_range_t<R>> children;
    for (auto&& child : range) {
        if constexpr (!std::is_lvalue_reference_v<R> && requires { typename R::allocator_type; }) {
            children.push_back(std::move(child));
        } else {
            children.push_back(std::forward<decltype(child)>(child));
        }
    }
    return children;
}

// Stands for a type that is not a child. With this type, the rest of the statement compiles, so
// that the compiler reports only one error.
template <class Other> using refused_child = std::monostate;

template <class... Others> [[noreturn]] void refuse_children() {
    static_assert((task_source<Others> && ...),
                  "bide: when_all and when_any take tasks, and callables that return tasks; for "
                  "operations write a task that awaits each, or a select");
    fatal("when_all or when_any of what is no task");
}

} // namespace detail

/// Runs all children and returns their values in argument order. The value of a void child is
/// std::monostate.
/// Throws: if children failed, the exception of the first failed child in argument order, after all
/// children have ended. The other exceptions are dropped. Also std::bad_alloc, and what the move of
/// a value throws. stopped_error, if the awaiting task has awaited children 128 times since its
/// cancellation.
/// Cancellation: cancels all children, and waits for them.
template <detail::task_source... Ss>
task<std::tuple<nonvoid_t<detail::task_value_t<Ss>>...>> when_all(Ss... children) {
    detail::when_children<Ss...> all(detail::task_when_state::until::all, children...);
    co_await all.state.wait();
    co_return all.values();
}

/// Runs a vector of children, which may be empty, as when_all() above does.
template <detail::task_source S>
task<std::vector<nonvoid_t<detail::task_value_t<S>>>> when_all(std::vector<S> children) {
    detail::when_children_vector<S> all(detail::task_when_state::until::all, children);
    co_await all.state.wait();
    co_return all.values();
}

/// Runs the children of any range as those of a vector. The range is read in this call. A container
/// must be passed as an rvalue, and its children are moved.
template <detail::child_range R> auto when_all(R&& children) {
    return bide::when_all(detail::to_children(std::forward<R>(children)));
}

/// Rejects an argument that is neither a task nor a callable that returns a task, such as an
/// operation.
template <class... Others>
    requires(!(detail::task_source<Others> && ...))
task<std::tuple<detail::refused_child<Others>...>> when_all(Others...) {
    detail::refuse_children<Others...>();
}

/// Runs all children until the first one has ended, and returns the value of that child in a
/// variant. The index of the variant is the index of the child. An exception counts as an end.
///
/// The other children are cancelled, and the await continues when they have ended. A child that has
/// not started before never starts. The outcomes of the other children are dropped.
///
/// The children start in argument order. So if one thread runs them all, as on a run_loop or on a
/// scheduler with one worker, the first child that need not wait wins. If several workers run them,
/// any child that need not wait may win.
/// Throws: the exception of the first child to end; std::bad_alloc; what the move of a value
/// throws; stopped_error, as when_all().
/// Cancellation: cancels all children, and waits for them.
template <detail::task_source... Ss>
    requires(sizeof...(Ss) != 0)
task<std::variant<nonvoid_t<detail::task_value_t<Ss>>...>> when_any(Ss... children) {
    detail::when_children<Ss...> all(detail::task_when_state::until::first, children...);
    co_await all.state.wait();
    co_return all.first();
}

/// Rejects an argument that is neither a task nor a callable that returns a task, such as an
/// operation.
template <class... Others>
    requires(!(detail::task_source<Others> && ...))
task<std::variant<detail::refused_child<Others>...>> when_any(Others...) {
    detail::refuse_children<Others...>();
}

/// Runs a vector of children as when_any() above does. Returns the index of the first child to end,
/// and its value.
/// Throws: as when_any() above; if the vector is empty, the await throws std::invalid_argument.
template <detail::task_source S>
task<std::pair<std::size_t, nonvoid_t<detail::task_value_t<S>>>> when_any(std::vector<S> children) {
    if (children.empty()) {
        BIDE_THROW(std::invalid_argument("bide::when_any of an empty vector"));
    }
    detail::when_children_vector<S> all(detail::task_when_state::until::first, children);
    co_await all.state.wait();
    co_return all.first();
}

/// Runs the children of any range as those of a vector, as when_all() of a range does.
template <detail::child_range R> auto when_any(R&& children) {
    return bide::when_any(detail::to_children(std::forward<R>(children)));
}

}} // namespace bide::BIDE_ABI

#endif
