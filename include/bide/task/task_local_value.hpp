// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_TASK_LOCAL_VALUE_HPP
#define BIDE_TASK_TASK_LOCAL_VALUE_HPP

/// \file
/// Values that a task, its children and the functions that they call can read, such as the number
/// of a request or the name of a user. The values need not be passed as parameters. They are like
/// the scoped values of Java (JEP 506).
///
/// A value has a scope, which is a task. Everything that this task awaits is in the scope: the
/// coroutines, the children of when_all() and when_any(), and the members of a task_group or a
/// join_set that it makes. All of these end before the scope does, so the value is destroyed after
/// the last access. The value does not change, so several threads may read it.
///
/// A task that is spawned on a scheduler is in no scope, because the task may outlive every scope.
/// A reference count could keep the value alive, but would make each spawn slower. To pass a value
/// to a spawned task, spawn a scope: `s.spawn(with_value(key, *key.get(), work()))`.
///
/// A function that another thread runs for the task is in no scope either. Examples are a function
/// of spawn_blocking(), and the parts of a parallel algorithm (parallel/) that other threads run.
/// Read the value before such a call, and capture it.
//
// A scope is the only child of a when_state (compose.hpp), as the task of with_deadline() is. The
// binding of key and value lies in the frame of with_value(). A child needs no memory for the
// values, because its context finds the values of the parent.

#include <bide/task/compose.hpp>

namespace bide { inline namespace BIDE_ABI {

/// The key by which a task reads a value of its scope. It is usually a global variable:
/// \code
/// inline bide::task_local_value<std::string> request_id;
/// \endcode
/// Thread safety: any thread may call get() concurrently.
template <class T> class task_local_value {
    static_assert(std::is_object_v<T> && !std::is_const_v<T>,
                  "bide: a task_local_value has an object that is not const; get() is const");

public:
    /// The type of the value.
    using value_type = T;

    /// Makes a key. No task has a value of this key yet.
    constexpr task_local_value() noexcept = default;
    task_local_value(const task_local_value&) = delete;
    task_local_value& operator=(const task_local_value&) = delete;

    /// Returns the address of the value of this key. If scopes nest, the innermost one with this
    /// key gives the value.
    ///
    /// Finds the running task through the thread that runs it, as the functions of this_task do
    /// (task/this_task.hpp).
    /// Returns: nullptr if no scope has a value of this key, or if no task runs. The value lives as
    /// long as its scope.
    const T* get() const noexcept {
        const auto* at = values_of(worker_local<native_platform>::get().running);
        while (at != nullptr && at->key != this) {
            at = at->outer;
        }
        return at != nullptr ? static_cast<const T*>(at->value) : nullptr;
    }
};

namespace detail {

template <task_source S> class scope_child final : public task_child<S> {
    using binding = task_binding<native_platform>;

public:
    scope_child(const void* key, const void* its_value) noexcept {
        binding_.key = key;
        binding_.value = its_value;
    }
    ~scope_child() override {
        // Order: relaxed; the end of each group happens before the end of the scope, if the program
        // is correct.
        if (binding_.uses.load(std::memory_order_relaxed) != 0) {
            fatal("task_local_value", binding_.key,
                  "had a scope that ended before a task_group or join_set that was made in it");
        }
    }

    // Makes the enclosing scopes visible in this one.
    void nest(const task_promise_base& parent) noexcept {
        binding_.outer = values_of(parent.task_context());
    }

private:
    const binding* values() const noexcept override { return &binding_; }

    binding binding_;
};

template <class T, task_source S>
task<task_value_t<S>> run_with_value(const task_local_value<T>& key, T value, S work) {
    task_when_state state(task_when_state::until::all);
    scope_child<S> child(std::addressof(key), std::addressof(value));
    detail::add_child<S>(state, child, work);
    child.nest(co_await this_promise());
    co_await state.wait();
    co_return child.take();
}

} // namespace detail

/// Runs a task, or the task that a callable returns, in a scope in which `key` has a value. The
/// callable is called before the scope begins. An inner scope of the same key hides the outer one.
/// The task `work` is a child of the awaiting task, like a child of when_all(): it has its own
/// shields and its own stop token, and a cancellation of the awaiting task reaches it.
/// Returns: a task; its value is the value of `work`.
/// Throws: in this call, what the construction of the value throws, and std::bad_alloc. When
/// awaited, what the task throws, as when_all().
/// Requires: the key outlives the scope. A task_group or join_set that is made in the scope is
/// destroyed in that scope; otherwise the end of the scope terminates.
template <class T, class U, detail::task_source S>
    requires std::constructible_from<T, U>
task<detail::task_value_t<S>> with_value(const task_local_value<T>& key, U&& value, S work) {
    static_assert(std::is_move_constructible_v<T>, "bide: the value moves into its scope");
    return detail::run_with_value<T, S>(key, T(std::forward<U>(value)), std::move(work));
}

}} // namespace bide::BIDE_ABI

#endif
