// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_FORK_SCOPE_HPP
#define BIDE_PARALLEL_FORK_SCOPE_HPP

/// \file
/// A scope of functions that run in parallel. Their number may be known only at run time, and each
/// function may spawn others into the same scope. detail/spawn_frame.hpp tells how it works.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/parallel/detail/fork_arms.hpp>
#include <bide/parallel/detail/fork_entry.hpp>
#include <bide/parallel/detail/spawn_frame.hpp>
#include <bide/parallel/detail/spawned_function.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/fork_progress.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/detail/nonvoid.hpp>

#include <concepts>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

/// The scope that fork_scope() passes to its body, and to each spawned function that takes it.
template <class Platform> class basic_spawn_scope : detail::basic_spawn_state<Platform> {
    using state = detail::basic_spawn_state<Platform>;
    using frame = detail::basic_spawn_frame<Platform>;
    template <class F> using job = detail::spawned_function<Platform, std::decay_t<F>>;
    template <class Body>
    using value_of = nonvoid_t<std::invoke_result_t<Body, basic_spawn_scope&>>;
    template <class, class> friend class detail::spawned_function;

public:
    /// Constructs the scope of a pool. Only fork_scope() calls it.
    using state::state;

    /// Spawns a function, which takes nothing or the scope. Its value is ignored. It is called
    /// once, as an rvalue: on an idle worker, or on this thread after the body or the function that
    /// spawns it has returned. It is never called inside of this call, so the caller may hold a
    /// lock that the function needs.
    ///
    /// Functions run in no order. A thread runs its own spawned functions from the youngest on. A
    /// spawn by the body or by a spawned function itself costs some tens of nanoseconds. It
    /// allocates nothing if the function is small and the spawner has few others. A spawn by an arm
    /// of a join or by an iteration of a loop, in the body or in a function, allocates and takes a
    /// lock.
    /// Throws: std::bad_alloc, or the exception of the function's copy. Then it is not spawned.
    /// Requires: the call is made in the course of the body or of a function of the scope: there,
    /// or in an arm, an iteration or a thread that it waits for.
    /// Thread safety: several threads may call it at once.
    template <class F>
        requires std::invocable<std::decay_t<F>> ||
                 std::invocable<std::decay_t<F>, basic_spawn_scope&>
    void spawn(F&& function) {
        frame* const innermost = detail::basic_fork_context<Platform>::here().frame;
        if (innermost != nullptr && innermost->accepts(*this)) [[likely]] {
            spawn_on(*innermost, std::forward<F>(function));
        } else {
            spawn_beside(std::forward<F>(function));
        }
    }

    /// Calls the body, and returns its value when it and all functions have ended. Only
    /// fork_scope() calls it.
    template <class Body> value_of<Body> run(Body&& body) {
        if (!this->begins()) {
            this->finish();
        }
        value_of<Body> value = call(std::forward<Body>(body));
        this->finish();
        return static_cast<value_of<Body>&&>(value);
    }

private:
    // At the end of the body, also if it throws.
    struct ends {
        ~ends() {
            part.finish();
            scope.finish_beside(part);
        }
        basic_spawn_scope& scope;
        frame& part;
    };
    template <class Body> value_of<Body> call(Body&& body) {
        frame part(*this);
        const ends later{*this, part};
        const auto arm = [&]() -> decltype(auto) { return std::forward<Body>(body)(*this); };
        return detail::call_arm(arm);
    }

    // Makes a function and gives it to push(function). Memory that has an alignment of its own is
    // not a cell.
    template <class Job, class F, class Push>
    void make(void* memory, std::size_t own_alignment, F&& function, frame* part,
              const Push& push) {
        struct undo {
            ~undo() {
                if (made != nullptr) {
                    made->drop();
                    std::destroy_at(made);
                }
                if (memory != nullptr) {
                    frame::give_back(part, memory, own_alignment);
                }
            }
            frame* part;
            void* memory;
            std::size_t own_alignment;
            Job* made = nullptr;
        } unless_pushed{part, memory, own_alignment};
        unless_pushed.made = ::new (memory) Job(*this, own_alignment, std::forward<F>(function));
        push(*unless_pushed.made);
        unless_pushed.made = nullptr;
        unless_pushed.memory = nullptr;
    }
    template <class Job> static void* own_memory() {
        return ::operator new(sizeof(Job), std::align_val_t(alignof(Job)));
    }

    template <class F> BIDE_INLINE void spawn_on(frame& part, F&& function) {
        constexpr bool fits = job<F>::fits_into_cell();
        void* const memory = fits ? part.take_cell() : own_memory<job<F>>();
        make<job<F>>(memory, fits ? 0 : alignof(job<F>), std::forward<F>(function), &part,
                     [&part](job<F>& made) { part.push(made); });
    }
    template <class F> BIDE_NOINLINE void spawn_beside(F&& function) {
        make<job<F>>(own_memory<job<F>>(), alignof(job<F>), std::forward<F>(function), nullptr,
                     [this](job<F>& made) { this->push_beside(made); });
    }
};
/// The scope that fork_scope() passes to its body.
using spawn_scope = basic_spawn_scope<native_platform>;

/// Calls body(scope) on the calling thread. The body, and each function that it spawns, may spawn
/// functions, which run on this thread and on workers that are free. Returns the value of the body
/// when all have ended. Use it where the number of functions is not known before, or where their
/// calls do not form a tree of joins; a join costs less.
///
/// Functions may run after the body, or the function that has spawned them, has returned. So they
/// must not refer to its local objects. They may refer to objects declared before the call of
/// fork_scope().
///
/// Locks: a function runs on a worker that is idle, or where the frame that spawned it has
/// returned, or on a thread that waits for an arm in the course of which the scope was opened. So a
/// lock that is held around a spawn causes no deadlock. A lock that the caller of fork_scope()
/// holds causes one only if it would in a serial run, in which the functions run when the body has
/// returned.
///
/// Memory: a function that its own thread has run leaves its memory to the next one. A function
/// that another thread has taken leaves it when the body, or the function, that has spawned it
/// ends. So a body that goes on for ever should open a scope for each round.
/// Blocks: until all functions have ended. In the body and in the functions, this_task and
/// scheduler::current() are as in an arm of join().
/// Throws: the exception of the body. If it did not throw, the exception of the first function, in
/// the order of the body's spawns, that threw. A function that another function has spawned counts
/// as a part of it; of several exceptions of one part, any one is thrown. Functions that an arm or
/// an iteration has spawned have no fixed place in that order. After an exception, all functions
/// run. stopped_error after a stop, if no function has thrown. Before the body is called, as
/// join().
/// Cancellation: after a stop of the options, functions that have not begun are dropped. The
/// options' grain has no effect. Progress counts functions.
template <class Body>
    requires std::invocable<Body, spawn_scope&>
auto fork_scope(const fork_policy& on, Body&& body) -> std::invoke_result_t<Body, spawn_scope&> {
    using value = std::invoke_result_t<Body, spawn_scope&>;
    const auto arm = [&on, &body]() -> nonvoid_t<value> {
        auto& pool = detail::fork_entry::core(on.where()).pool();
        spawn_scope scope(pool.steals() ? &pool : nullptr, on.options());
        return scope.run(static_cast<Body&&>(body));
    };
    if constexpr (std::is_void_v<value>) {
        detail::in_fork(on.where(), arm);
    } else {
        return detail::in_fork(on.where(), arm);
    }
}

} // namespace bide::inline BIDE_ABI

#endif
