// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_EIGEN_HPP
#define BIDE_INTEROP_EIGEN_HPP

/// \file
/// Runs the tensors of Eigen 3.3 or later on the workers of a scheduler.
///
/// \code
/// bide::scheduler workers;
/// bide::eigen_pool pool(workers);
/// Eigen::ThreadPoolDevice device(&pool, pool.NumThreads());
/// c.device(device) = a + b; // Eigen::Tensor, with EIGEN_USE_THREADS defined
/// \endcode

#include <bide/sched/scheduler.hpp>

#include <functional>

#include <unsupported/Eigen/CXX11/ThreadPool>

namespace bide { inline namespace BIDE_ABI {

/// A thread pool for Eigen::ThreadPoolDevice, in place of Eigen::ThreadPool. It has no threads of
/// its own: its functions run on the workers of a scheduler, between the tasks of the scheduler.
///
/// A thread that evaluates an expression on such a device waits in a condition variable of Eigen,
/// of which the scheduler knows nothing. So evaluate expressions on threads that are no workers of
/// the scheduler, for example in a function that was passed to scheduler::spawn_blocking(). If all
/// workers evaluate expressions at once, no worker is left to compute them. The same holds for
/// Eigen::ThreadPool.
/// Requires: the scheduler and the pool outlive the functions.
class eigen_pool final : public Eigen::ThreadPoolInterface {
public:
    /// Runs on `workers`.
    explicit eigen_pool(scheduler& workers) noexcept : workers_(workers) {}
    eigen_pool(const eigen_pool&) = delete;
    eigen_pool& operator=(const eigen_pool&) = delete;

    /// Runs the function on a worker. If the scheduler has shut down, a thread of bide's service
    /// runs it, so the evaluation of an expression always ends. If the function throws, the program
    /// terminates.
    /// Throws: std::bad_alloc.
    /// Thread safety: any thread may call it.
    void Schedule(std::function<void()> function) override {
        auto* const made = new job;
        made->call = std::move(function);
        made->run = waker(
            [](void* self) noexcept {
                const std::unique_ptr<job> mine(static_cast<job*>(self));
                mine->call();
            },
            made);
        workers_.post(*made);
    }

    /// Returns the number of workers.
    int NumThreads() const override { return static_cast<int>(workers_.concurrency()); }

    /// Returns the number of the worker for which the calling thread was started, or -1.
    int CurrentThreadId() const override {
        const std::optional<unsigned> number = workers_.this_worker();
        return number ? static_cast<int>(*number) : -1;
    }

private:
    struct job : runnable {
        std::function<void()> call;
    };

    scheduler& workers_;
};

}} // namespace bide::BIDE_ABI

#endif
