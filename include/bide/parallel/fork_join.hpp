// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_FORK_JOIN_HPP
#define BIDE_PARALLEL_FORK_JOIN_HPP

/// \file
/// Fork-join: functions that run in parallel if workers are idle.
///
/// Such a function is called an arm. The calling thread runs arms, too, even if it is no worker. So
/// with W workers that steal and C callers that are no workers, up to W + C arms run at a time.
//
// A join has two arms. It uses the lane of its thread, which is a deque of jobs
// (sched/detail/fork_lane.hpp). The thread pushes the second arm to its lane, and then runs the
// first arm. Other threads, called thieves, may take the second arm from the lane. If no thief has
// taken it meanwhile, the thread runs it, too. All state is in the stack frame of the join. The
// code for the case without a thief is inlined. If the thread has no lane, it calls the arms one
// after the other.

#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_range.hpp>
#include <bide/sched/detail/fork_lane.hpp>
#include <bide/sched/detail/scheduler_core.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/detail/nonvoid.hpp>

#include <tuple>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// ---- The two arms

// Calls f(). If f() throws, calls handle() in the exception handler.
template <class F, class Handle> BIDE_INLINE void call_or(F&& f, [[maybe_unused]] Handle&& handle) {
#if BIDE_EXCEPTIONS
    try {
        f();
    } catch (...) {
        handle();
    }
#else
    f();
#endif
}

template <class F> BIDE_INLINE nonvoid_t<std::invoke_result_t<F>> call_arm(F&& f) {
    if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
        std::forward<F>(f)();
        return {};
    } else {
        return std::forward<F>(f)();
    }
}

// The second arm, and its value or exception if a thief has run it.
template <class Platform, class G> class fork_arm final : public basic_fork_job<Platform> {
    using job = basic_fork_job<Platform>;
    using value = nonvoid_t<std::invoke_result_t<G>>;
    using kept = std::conditional_t<std::is_reference_v<value>, std::add_pointer_t<value>,
                                    std::remove_const_t<value>>;

public:
    using end = typename job::end;

    explicit fork_arm(std::remove_reference_t<G>& arm) noexcept : job(&run_stolen), call_(arm) {}
    ~fork_arm() {}

    // Returns the value, or throws the exception, of an arm that a thief has run.
    value take(end how) {
        if (how == end::failed) {
            rethrow();
        }
        if constexpr (std::is_reference_v<value>) {
            return static_cast<value>(*value_);
        } else {
            const drop_value later{*this};
            return std::move(value_);
        }
    }
    // Destroys the value or the exception.
    void drop(end how) noexcept {
        if (how == end::failed) {
            error_.~exception_ptr();
        } else {
            value_.~kept();
        }
    }

private:
    struct drop_value {
        fork_arm& arm;
        ~drop_value() { arm.value_.~kept(); }
    };

    static bool run_stolen(job& j) noexcept {
        auto& mine = static_cast<fork_arm&>(j);
        bool has_failed = false;
        detail::call_or([&] { mine.keep(); },
                        [&] {
                            ::new (static_cast<void*>(&mine.error_))
                                std::exception_ptr(std::current_exception());
                            has_failed = true;
                        });
        return has_failed;
    }
    void keep() {
        if constexpr (std::is_reference_v<value>) {
            auto&& result = detail::call_arm<G>(static_cast<G&&>(call_));
            value_ = std::addressof(result);
        } else {
            ::new (const_cast<void*>(static_cast<const volatile void*>(std::addressof(value_))))
                kept(detail::call_arm<G>(static_cast<G&&>(call_)));
        }
    }
    [[noreturn]] BIDE_COLD void rethrow() {
#if BIDE_EXCEPTIONS
        const std::exception_ptr error = std::move(error_);
        error_.~exception_ptr();
        std::rethrow_exception(error);
#else
        std::terminate();
#endif
    }

    std::remove_reference_t<G>& call_;
    union {
        kept value_;
        std::exception_ptr error_;
    };
};

#if BIDE_EXCEPTIONS
// Called if the first arm has thrown. Runs the second arm, or waits for the thief that runs it.
// Drops the value or the exception of the second arm.
template <class Platform, class G>
BIDE_COLD void drop_second(basic_fork_lane<Platform>* lane, std::uint32_t at,
                           fork_arm<Platform, G>& arm, std::remove_reference_t<G>& g) noexcept {
    using end = typename fork_arm<Platform, G>::end;
    if (lane != nullptr && !lane->pop(at)) {
        if (const end how = lane->wait(arm, at); how != end::returned) {
            arm.drop(how);
            return;
        }
    }
    // An exception of the second arm is ignored, because that of the first arm has priority.
    detail::call_or([&] { static_cast<void>(detail::call_arm<G>(static_cast<G&&>(g))); }, [] {});
}
#endif

template <class Platform, class F, class G>
BIDE_INLINE nonvoid_t<std::invoke_result_t<F>>
call_first([[maybe_unused]] basic_fork_lane<Platform>* lane, [[maybe_unused]] std::uint32_t at,
           [[maybe_unused]] fork_arm<Platform, G>& second, F&& f,
           [[maybe_unused]] std::remove_reference_t<G>& g) {
#if BIDE_EXCEPTIONS
    if constexpr (!std::is_nothrow_invocable_v<F>) {
        try {
            return detail::call_arm<F>(std::forward<F>(f));
        } catch (...) {
            detail::drop_second<Platform, G>(lane, at, second, g);
            throw;
        }
    }
#endif
    return detail::call_arm<F>(std::forward<F>(f));
}

template <class F, class G>
using fork_result =
    std::pair<nonvoid_t<std::invoke_result_t<F>>, nonvoid_t<std::invoke_result_t<G>>>;

// Storage for the second arm, which is constructed only if there is a lane.
template <class Platform, class G> union arm_storage {
    arm_storage() noexcept {}
    ~arm_storage() {}
    fork_arm<Platform, G> arm;
};

// Runs both arms on the lane of the calling thread. If `lane` is nullptr, runs f and then g.
// `is_brief` means that g takes less time than the wake of a worker.
template <class Platform, class F, class G>
BIDE_INLINE fork_result<F, G> fork(basic_fork_lane<Platform>* lane, F&& f, G&& g,
                                   bool is_brief = false) {
    using first_type = nonvoid_t<std::invoke_result_t<F>>;
    using end = typename fork_arm<Platform, G>::end;
    arm_storage<Platform, G> storage;
    fork_arm<Platform, G>& second = storage.arm;
    std::uint32_t at = 0;
    if (lane != nullptr) [[likely]] {
        ::new (static_cast<void*>(std::addressof(second))) fork_arm<Platform, G>(g);
        at = lane->depth();
        lane->push(second, is_brief);
    }
    first_type first = detail::call_first<Platform, F, G>(lane, at, second, std::forward<F>(f), g);
    if (lane != nullptr && !lane->pop(at)) [[unlikely]] {
        if (const end how = lane->wait(second, at); how != end::returned) {
            return {static_cast<first_type&&>(first), second.take(how)};
        }
    }
    return {static_cast<first_type&&>(first), detail::call_arm<G>(std::forward<G>(g))};
}

// ---- How a thread begins a fork-join

class fork_entry {
public:
    static scheduler_core& core(scheduler& s) noexcept { return *s.core_; }
};

using fork_context = basic_fork_context<native_platform>;

// Returns true if the calling thread is in a fork-join of `s`.
BIDE_INLINE bool forks_here(const scheduler& s) noexcept {
    return fork_context::here().scheduler_id == &s;
}

// Runs both arms in the fork-join that the calling thread is in.
template <class F, class G> BIDE_INLINE fork_result<F, G> fork_here(F&& f, G&& g) {
    return detail::fork(fork_context::here().lane, std::forward<F>(f), std::forward<G>(g));
}

// While this object lives, the scheduler is the current scheduler of the calling thread, and the
// shutdown of the scheduler waits for the thread.
class fork_caller {
public:
    // Throws: stopped_error if the thread is external and the scheduler is closing.
    explicit fork_caller(scheduler& on)
        : core_(fork_entry::core(on)), enters_(!current_scheduler::is_of(on)) {
        if (enters_ && !core_.enter_caller()) {
            detail::throw_error(errc::stopped);
        }
        current_scheduler& here = current_scheduler::here();
        here.instance = &on;
        here.outer = &before_;
    }
    fork_caller(const fork_caller&) = delete;
    fork_caller& operator=(const fork_caller&) = delete;
    ~fork_caller() {
        current_scheduler::here() = before_;
        if (enters_) {
            core_.leave_caller();
        }
    }

private:
    scheduler_core& core_;
    const bool enters_;
    const current_scheduler before_ = current_scheduler::here();
};

// Calls f() in a fork-join of `s`. If the calling thread is already in a fork-join of `s`, f()
// becomes a part of that fork-join. `iterations` is the number of iterations of the fork-join.
// Their time is estimated from earlier calls. If the estimate is at most LongestNs nanoseconds, or
// not worth the wake that a fork-join would cause, in_fork() calls run_briefly(now, most_ns) before
// f(), outside of a fork-join. If run_briefly() has run all iterations, it returns the current
// time, and f() is not called. After `most_ns` nanoseconds, it returns 0. Then iterations remain,
// and f() runs them. `max_workers` is that of fork_options. A call with a limit is a fork-join of
// its own, with another lane, even if the calling thread is in a fork-join already. If there is
// one worker, a call that is not a loop and not worth a wake has no lane.
template <std::int64_t LongestNs = 0, class F, class Brief = std::nullptr_t>
BIDE_NOINLINE nonvoid_t<std::invoke_result_t<F>>
in_fork(scheduler& s, F&& f, std::uint64_t iterations = 1, const Brief& run_briefly = nullptr,
        unsigned max_workers = fork_options::no_limit) {
    const bool is_inner = detail::forks_here(s);
    const bool is_part =
        max_workers == fork_options::no_limit || fork_context::here().lane == nullptr;
    if (is_inner && is_part) {
        return detail::call_arm<F>(std::forward<F>(f));
    }
    scheduler_core& core = fork_entry::core(s);
    const fork_caller caller(s);
    if (!core.pool().takes_arms() || max_workers == 1) {
        const basic_fork_scope<native_platform> scope(&s);
        return detail::call_arm<F>(std::forward<F>(f));
    }
    static constinit basic_fork_call_site<native_platform> site;
    if (LongestNs == 0 && !core.pool().steals() && site.worth(iterations) == 0) {
        const basic_fork_scope<native_platform> scope(&s, &site, iterations);
        return detail::call_arm<F>(std::forward<F>(f));
    }
    std::int64_t begin = 0;
    if constexpr (LongestNs != 0) {
        // Outside of a fork-join, a limit would not hold for the calls inside of the loop.
        const std::int64_t most_ns = max_workers == fork_options::no_limit
                                         ? site.alone_ns(core.pool(), LongestNs, iterations)
                                         : 0;
        if (most_ns != 0) {
            begin = native_platform::now();
            if (const std::int64_t end = run_briefly(begin, most_ns); end != 0) {
                site.learn(end - begin, iterations);
                return {};
            }
        }
    }
    const bool is_kept = core.is_here() && fork_context::here().scheduler_id == nullptr;
    const basic_scoped_lane<native_platform> lane(core.pool(), is_kept, is_inner);
    if (lane.get() == nullptr) {
        BIDE_THROW(std::bad_alloc());
    }
    const basic_fork_scope<native_platform> scope(*lane.get(), site, iterations, begin,
                                                  max_workers);
    return detail::call_arm<F>(std::forward<F>(f));
}

// The interface of a scheduler for the parallel algorithms. The templates of the algorithms accept
// any other copyable type with the same members.
class forker {
public:
    using platform = native_platform;

    explicit forker(scheduler& on, unsigned max_workers = fork_options::no_limit) noexcept
        : scheduler_(&on), max_workers_(max_workers) {}

    // Runs f() on the calling thread, and g() on the calling thread or on a worker. Returns when
    // both have ended. `is_brief` means that g() takes less time than the wake of a worker.
    // Throws: what f() threw; if f() did not throw, what g() threw. std::bad_alloc if there is no
    // memory to fork. In that case, neither f nor g was called.
    // Requires: the caller runs inside enter().
    template <class F, class G> void both(F&& f, G&& g, bool is_brief = false) const {
        detail::fork(fork_context::here().lane, std::forward<F>(f), std::forward<G>(g), is_brief);
    }

    // Calls f() in a fork-join. Throws: what f() throws. If f() cannot be called, throws as join().
    template <class F> void enter(F&& f) const {
        detail::in_fork(*scheduler_, std::forward<F>(f), 1, nullptr, max_workers_);
    }

    // Does the same for a loop of `iterations` iterations. in_fork() describes `run_briefly`.
    template <std::int64_t LongestNs = 0, class Brief, class F>
    void enter_loop(std::uint64_t iterations, const Brief& run_briefly, F&& f) const {
        detail::in_fork<LongestNs>(*scheduler_, std::forward<F>(f), iterations, run_briefly,
                                   max_workers_);
    }

    // Returns true if this thread has no arm that a worker could take now. Let n be the number of
    // its arms that have not begun. Also returns true if n is less than `most`, and less than the
    // number of workers that the fork-join may wake. Costs a few loads.
    // Requires: the call is made in enter().
    bool wants_work(std::uint64_t most) const noexcept {
        const fork_context& here = fork_context::here();
        return here.scheduler_id == scheduler_ && here.lane != nullptr &&
               here.lane->wants_work(most);
    }

    // Returns a different address for each thread, or nullptr if the calling thread cannot fork. If
    // an arm gets another address than the thread that forked it, a thief runs the arm.
    // Requires: the call is made in enter().
    const void* thread() const noexcept { return fork_context::here().lane; }

    // Called by a thief that begins an arm. Returns true if the thief may end the arm early: no
    // code of the program is below the arm on the stack of the thread, except the loop of a worker.
    // Requires: the call is made in an arm.
    bool may_leave() const noexcept { return fork_context::here().lane->may_leave(); }
    // Called by such a thief between two leaves, at the time `now` in nanoseconds of the steady
    // clock. Returns true if a task waits for this worker, and no other thread runs an arm that
    // this thief has forked. The thief then ends its arm early, so that its owner runs the rest.
    // Looks for tasks every 100 us.
    bool leaves_for_task(std::int64_t now) const noexcept {
        return fork_context::here().lane->leaves_for_task(now);
    }

    // Returns how many threads may take part besides the caller.
    unsigned workers() const noexcept {
        return (std::min)(scheduler_->concurrency(), max_workers_ - 1);
    }

private:
    scheduler* scheduler_;
    unsigned max_workers_;
};

// Calls f(i) for each i of [first, last), which is not empty. Makes a tree of forks with one call
// in each leaf. Use it for few calls that take long. If calls throw, throws the exception of the
// call with the lowest i, after all calls have ended. If `Surely` is true, lack of memory stops no
// call: if there is no memory to fork, the calling thread makes the calls.
template <bool Surely = false, class Forker, class F>
void fork_each(const Forker& forks, std::size_t first, std::size_t last, const F& f) {
    if (last - first == 1) {
        return f(first);
    }
    const std::size_t middle = first + (last - first) / 2;
    [[maybe_unused]] bool began = false;
    const auto both = [&] {
        forks.both(
            [&] {
                began = true;
                detail::fork_each<Surely>(forks, first, middle, f);
            },
            [&] { detail::fork_each<Surely>(forks, middle, last, f); });
    };
#if BIDE_EXCEPTIONS
    if constexpr (Surely) {
        try {
            return both();
        } catch (...) {
            if (began) {
                throw;
            }
        }
        for (std::size_t i = first; i != last; ++i) {
            f(i);
        }
        return;
    }
#endif
    both();
}

} // namespace detail

inline detail::forker fork_policy::forks() const noexcept {
    return detail::forker(*scheduler_, options_.max_workers);
}

// ---- Functions that run in parallel

// If join() were inlined, its caller would save registers even on the path that does not fork. In a
// recursion, half of the calls take that path. So join() is not inlined, but the arms are inlined
// into join().

/// Runs f() and g(), in parallel if a worker is free to take g. Returns both values when both
/// functions have ended. The value of a void function is std::monostate. A fork costs a few
/// nanoseconds and no allocation, so a recursion may fork at every level. If enable_stealing is
/// false, or if the caller runs on the only worker, g is called after f. A single worker takes arms
/// of other threads only if the process may use a second processor.
///
/// f and g are called arms. f runs on the calling thread, which may be any thread. g runs on the
/// calling thread or on a worker. Several threads may call join() at the same time. No call waits
/// for a worker to become free: if no worker has taken an arm, the caller runs it.
///
/// While a thread waits for an arm, it runs arms that were forked in the course of that arm. If
/// there are none, it sleeps. If the sleeping thread is that of a worker, another thread may run
/// that worker meanwhile. An arm runs on top of the caller's frame only if it would also do so in a
/// serial program. So a lock that the caller holds causes a deadlock only if it would cause one in
/// a serial program, too.
///
/// Arms are functions, not tasks: if an arm blocks, its thread blocks. On the calling thread,
/// this_task refers to the task that has called join(); on other threads it refers to no task. So
/// if an arm needs the stop token of the task, get the token before the call. A worker that runs an
/// arm runs no tasks meanwhile; it looks for tasks before it takes another arm. If the tasks of the
/// scheduler must not wait for an arm, use a separate scheduler for fork-joins.
///
/// scheduler::current() is the scheduler `s` in each arm. The shutdown of `s` waits for the callers
/// that are in a join.
/// Blocks: until both have ended.
/// Throws: when both have ended, what f threw; if f did not throw, what g threw. stopped_error if
/// the calling thread is external (no worker) and `s` is shutting down. std::bad_alloc if there is
/// no memory to fork. In these two cases, no arm has run. A fork needs memory only if more threads
/// fork, or forks nest more deeply, than ever before.
template <class F, class G>
BIDE_NOINLINE auto join(scheduler& s, F&& f, G&& g)
    -> std::pair<nonvoid_t<std::invoke_result_t<F>>, nonvoid_t<std::invoke_result_t<G>>> {
    if (detail::forks_here(s)) [[likely]] {
        return detail::fork_here(std::forward<F>(f), std::forward<G>(g));
    }
    return detail::in_fork(
        s, [&] { return detail::fork_here(static_cast<F&&>(f), static_cast<G&&>(g)); });
}

namespace detail {

// Runs the first `Count` arms, grouped as ((first, second), third), and so on. If `lane` is not
// nullptr, forks them on that lane. Returns the values in order.
template <std::size_t Count, class Arms>
BIDE_INLINE auto fork_all(basic_fork_lane<native_platform>* lane, Arms& arms) {
    using last = std::tuple_element_t<Count - 1, Arms>;
    using value = std::tuple<nonvoid_t<std::invoke_result_t<last>>>;
    if constexpr (Count == 1) {
        return value(detail::call_arm<last>(static_cast<last>(std::get<0>(arms))));
    } else {
        auto values = detail::fork(
            lane, [&] { return detail::fork_all<Count - 1>(lane, arms); },
            static_cast<last>(std::get<Count - 1>(arms)));
        return std::tuple_cat(std::move(values.first),
                              value(static_cast<decltype(values)&&>(values).second));
    }
}

} // namespace detail

/// Runs one or more functions as join() runs two. Returns their values, in order, when all
/// functions have ended.
/// Throws: if functions threw, the exception of the first of these in argument order. Other
/// exceptions are those of join(). If memory runs out after some functions have begun, throws
/// std::bad_alloc. The last functions are forked first, so some of them have run, and the first
/// functions have not.
template <class... Fs>
    requires(sizeof...(Fs) != 0)
BIDE_NOINLINE auto parallel_invoke(scheduler& s, Fs&&... fs)
    -> std::tuple<nonvoid_t<std::invoke_result_t<Fs>>...> {
    std::tuple<Fs&&...> arms(std::forward<Fs>(fs)...);
    const auto all = [&arms] {
        return detail::fork_all<sizeof...(Fs)>(detail::fork_context::here().lane, arms);
    };
    if (detail::forks_here(s)) [[likely]] {
        return all();
    }
    return detail::in_fork(s, all);
}

/// Calls each function of a range, in parallel if workers are free, and returns when all functions
/// have ended. Ignores their values. To keep the values, use parallel_transform() with a function
/// that calls its argument.
/// Blocks: as join().
/// Throws: if functions threw, the exception of the first of these in the order of the range. An
/// exception skips no function. stopped_error after a stop, if no function has thrown. Other
/// exceptions are those of join(). If memory runs out after some functions have begun, throws
/// std::bad_alloc, and some functions have not run.
/// Requires: copies of the range's iterators may be used by several threads at once.
/// Cancellation: after a stop request by the token in the options, functions that have not begun
/// are skipped. The grain in the options has no effect. Progress counts functions.
template <parallel_range Range>
    requires std::invocable<std::ranges::range_reference_t<Range>>
void parallel_invoke(const fork_policy& on, Range&& functions) {
    const fork_options& options = on.options();
    const auto all = detail::elements_of(functions);
    native_platform::atomic<bool> was_stopped{false};
    const auto call = [&](std::size_t n) {
        if (options.stop.stop_requested()) {
            // Order: relaxed; the joins order this store before the load below.
            was_stopped.store(true, std::memory_order_relaxed);
            return;
        }
        static_cast<void>((*all.at(n))());
        if (options.progress != nullptr) {
            options.progress->count(1);
        }
    };
    if (options.progress != nullptr) {
        options.progress->expect(all.size);
    }
    if (all.size != 0) {
        on.forks().enter(
            [&] { detail::fork_each(on.forks(), 0, static_cast<std::size_t>(all.size), call); });
    }
    // Order: relaxed; the joins order this load after the stores.
    if (was_stopped.load(std::memory_order_relaxed)) {
        detail::throw_error(errc::stopped);
    }
}

}} // namespace bide::BIDE_ABI

#endif
