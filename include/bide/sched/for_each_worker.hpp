// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_FOR_EACH_WORKER_HPP
#define BIDE_SCHED_FOR_EACH_WORKER_HPP

/// \file
/// Calls a function on each worker of a scheduler, as pinned tasks (spawn_options::worker).

#include <bide/sched/scheduler.hpp>
#include <bide/task/this_task.hpp>

#include <vector>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

template <class F> decltype(auto) call_on_worker(F& f, unsigned worker) {
    if constexpr (std::invocable<F&, unsigned>) {
        return f(worker);
    } else {
        return f();
    }
}

template <class F> using on_worker_t = decltype(detail::call_on_worker(std::declval<F&>(), 0U));

// Holds the outcomes of the calls on all workers. A call ends when its callable is destroyed, even
// if the scheduler has refused the call.
template <class F> class worker_calls {
    using value_type = on_worker_t<F>;
    static_assert(std::is_void_v<value_type> || std::is_object_v<value_type>,
                  "bide: a function for each worker returns no reference");
    static_assert(!is_task<value_type>, "bide: a function for each worker returns no task");

public:
    using result = std::conditional_t<std::is_void_v<value_type>, void, std::vector<value_type>>;

    // Throws: std::bad_alloc.
    worker_calls(scheduler& on, F& body)
        : scheduler_(on), function_(body), workers_(on.concurrency()),
          outcomes_(std::make_unique<outcome[]>(workers_)), ended_(std::ptrdiff_t{workers_}) {}
    worker_calls& operator=(worker_calls&&) = delete;
    ~worker_calls() {
        ended_.arrive(workers_ - made_);
        ended_.wait();
    }

    // Throws: std::bad_alloc. The destructor waits for the calls that were spawned.
    void spawn() {
        while (made_ < workers_) {
            const unsigned w = made_++;
            auto call = [mine = call_end(this), w]() noexcept {
                worker_calls& of = *mine;
                of.outcomes_[w].was_called = true;
                of.outcomes_[w].kept.compute(
                    [&of, w]() -> value_type { return detail::call_on_worker(of.function_, w); });
            };
            scheduler_.spawn(std::move(call), {.worker = w}).detach();
        }
    }

    basic_gate<native_platform>& ended() noexcept { return ended_; }

    // Returns the values.
    // Throws: if calls threw, the exception of the call on the worker with the lowest number.
    // Otherwise stopped_error, if the scheduler has refused a call.
    // Requires: the calls have ended.
    result finish() {
        bool refused = false;
        for (unsigned w = 0; w < workers_; ++w) {
            outcomes_[w].kept.rethrow_if_failed();
            refused = refused || !outcomes_[w].was_called;
        }
        if (refused) {
            throw_error(errc::stopped);
        }
        if constexpr (!std::is_void_v<value_type>) {
            result values;
            values.reserve(workers_);
            for (unsigned w = 0; w < workers_; ++w) {
                values.push_back(outcomes_[w].kept.value());
            }
            return values;
        }
    }

private:
    struct outcome {
        kept_outcome<value_type> kept;
        bool was_called = false;
    };

    // Ends a call when its callable is destroyed.
    struct at_end {
        void operator()(worker_calls* of) const noexcept { of->ended_.arrive(1); }
    };
    using call_end = std::unique_ptr<worker_calls, at_end>;

    scheduler& scheduler_;
    F& function_;
    const unsigned workers_;
    const std::unique_ptr<outcome[]> outcomes_; // of the workers
    basic_gate<native_platform> ended_;
    unsigned made_ = 0; // calls
};

} // namespace detail

/// Calls f(w), or f(), for each worker w of the scheduler. The call runs on the thread that the
/// scheduler has started for that worker, after on_worker_start(w). So f may set thread-local state
/// for the tasks that run on that thread. A thread for blocking tasks does not call f, even while
/// it runs a worker. Returns the values in the order of the workers, as a std::vector. If f returns
/// void, returns nothing.
///
/// The calls are pinned tasks (spawn_options::worker). Each call waits for its thread: if the
/// thread is blocked in a task, the call begins when that task has ended.
/// Blocks: until all calls have ended.
/// Throws: if calls threw, the exception of the call on the worker with the lowest number, after
/// all calls have ended. stopped_error if the scheduler is shutting down; some calls may have run.
/// std::bad_alloc. std::system_error (resource_deadlock_would_occur) if the calling thread was
/// started for a worker of this scheduler, because two such callers would wait for each other. On
/// such a thread, await async_for_each_worker().
/// Requires: f may be called by several threads at once.
template <class F>
    requires std::invocable<F&, unsigned> || std::invocable<F&>
auto for_each_worker(scheduler& s, F&& f) ->
    typename detail::worker_calls<std::remove_reference_t<F>>::result {
    if (s.this_worker()) {
        BIDE_THROW(
            std::system_error(std::make_error_code(std::errc::resource_deadlock_would_occur),
                              "bide::for_each_worker(): called by a worker of the scheduler"));
    }
    detail::worker_calls<std::remove_reference_t<F>> calls(s, f);
    calls.spawn();
    calls.ended().wait();
    return calls.finish();
}

/// Returns a task that calls a function on each worker, as for_each_worker() does. The calls start
/// when the task is awaited. The awaiting coroutine may run on one of the workers; it does not
/// block that worker.
/// Throws: what for_each_worker() throws, after all calls have ended.
/// Blocks: never, with one exception: if the task is destroyed before its end, the destruction
/// blocks until all calls have ended.
/// Cancellation: does not interrupt the calls. A cancelled task waits until the calls have ended.
template <class F>
    requires std::invocable<F&, unsigned> || std::invocable<F&>
auto async_for_each_worker(scheduler& s, F f) -> task<typename detail::worker_calls<F>::result> {
    const this_task::shield until_the_end;
    detail::worker_calls<F> calls(s, f);
    calls.spawn();
    co_await calls.ended().async_wait();
    co_return calls.finish();
}

}} // namespace bide::BIDE_ABI

#endif
