// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_INNER_WAIT_HPP
#define BIDE_CORE_DETAIL_INNER_WAIT_HPP

// A wait for a job that runs inside of the job that waits for it.
//
// If a task awaits another task, which is the next job of its thread, then the host of both
// (worker_host.hpp) may run that job at once, before the wait begins. If the inner job ends, the
// awaiting task continues, and its wait took no queue, no wake and no atomic operation. If the inner
// job waits, the awaiting task waits for it as for any other.
//
// The order of the jobs stays the same. The awaited job was the next one, and the awaiting task
// continues behind all jobs that are queued at the end of the awaited one. A cancellation works as
// before, too: if the task is cancelled before the inner job runs, or by it, its wait is stopped. Only
// a wait without limits has an inner job, because the limits are not armed meanwhile.
//
// The inner job may block its thread, and the host may run other jobs meanwhile, inside of the inner
// one. Those may make the awaiting task go on, by a cancellation. So the host tells each awaiting task
// before, from the innermost one out, and the task then begins its wait (begin_wait). When the inner
// job returns, its awaiting task may have gone on or be destroyed: only inner_wait is accessed, which
// lies on the stack.

#include <bide/core/config.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waker.hpp>

#include <coroutine>
#include <type_traits>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform, class Awaiter, class Promise> struct inner_wait : inner_job {
    inner_wait(Awaiter& of, std::coroutine_handle<Promise> whose) noexcept
        : inner_job{waker(&on_wait, this)}, awaiter(of), coroutine(whose) {}

    // Runs the job that completes the wait, if it has not run. Returns false if the host does not do
    // that, or if the coroutine is not the task that runs here, or is cancelled.
    bool runs(const wait_steps<Platform>& how, const wait_target& what) noexcept {
        if constexpr (!std::is_void_v<Promise>) {
            const auto& here = worker_local<Platform>::get();
            context = task_context_of<Platform>(coroutine.promise());
            return context != nullptr && context == here.running && here.host != nullptr &&
                   !context->is_cancelled() && here.host->run_inside(how.awaited_job(what), *this);
        }
        return false;
    }

    Awaiter& awaiter;
    const std::coroutine_handle<Promise> coroutine;
    basic_task_context<Platform>* context = nullptr; // of the coroutine

private:
    static void on_wait(void* self) noexcept {
        auto& mine = *static_cast<inner_wait*>(self);
        mine.awaiter.wait_for_inner_job(mine.coroutine);
    }
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
