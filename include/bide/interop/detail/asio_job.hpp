// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_DETAIL_ASIO_JOB_HPP
#define BIDE_INTEROP_DETAIL_ASIO_JOB_HPP

// The jobs of bide on executors of Asio, from their begin to the end of the execution context.
//
// A job is a chain of coroutines (task/detail/task_control.hpp) that runs on an executor of Asio.
// To post a runnable, the job puts it into the queue of the job, and posts a step to the executor.
// A step is a function object that takes the oldest runnable of its job and runs it. The service of
// the execution context lists every job.
//
// The destructor of an execution context calls shutdown(). No thread runs the context then, but any
// thread that releases a lock or sends an item may still post. So shutdown() runs the jobs in the
// place of the context:
//
//   1. It sets `is_shut_`. From then on a post does not access the executor, and goes to `left_`.
//   2. It waits for the posts that have begun before.
//   3. It moves the runnables that are still queued to `left_`. If Asio runs their steps later, the
//      steps find nothing to run.
//   4. It cancels each job, and runs the runnables in `left_` until every job has ended.
//
// Each wait of a cancelled job ends, so the job ends too, and gives back what it was granted. The
// handler of the job is destroyed and not called, as Asio does with the handlers of a destroyed
// context.
//
// `Asio` is one of the two structs that asio_names.inc makes.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/ready_queue.hpp>
#include <bide/core/spin.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/task/cancel_reason.hpp>
#include <bide/task/detail/task_control.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class Asio> class asio_job;

template <class Asio> class asio_service final : public Asio::execution_context::service {
    using context = typename Asio::execution_context;
    using job = asio_job<Asio>;

public:
    inline static typename context::id id;

    explicit asio_service(context& of) : context::service(of) {}

    // Lists a job that is about to begin. Returns false if the context is being destroyed.
    bool add(job& j) noexcept {
        const std::lock_guard lock(mutex_);
        if (!is_shut_) {
            j.next_ = std::exchange(first_, &j);
            j.place_ = &first_;
            if (j.next_ != nullptr) {
                j.next_->place_ = &j.next_;
            }
        }
        return !is_shut_;
    }

    void remove(job& j) noexcept {
        const std::lock_guard lock(mutex_);
        *j.place_ = j.next_;
        if (j.next_ != nullptr) {
            j.next_->place_ = j.place_;
        }
    }

    // Queues a runnable. Returns true if the caller must post a step and then call has_posted().
    bool push(job& j, runnable& r) noexcept {
        const std::lock_guard lock(mutex_);
        if (is_shut_) {
            left_.post(r);
            return false;
        }
        j.ready_.push(r);
        ++posting_;
        return true;
    }

    void has_posted() noexcept {
        const std::lock_guard lock(mutex_);
        --posting_;
    }

    // Returns the oldest runnable of a job; nullptr if shutdown() took it.
    runnable* pop(job& j) noexcept {
        const std::lock_guard lock(mutex_);
        return j.ready_.pop();
    }

private:
    void shutdown() noexcept override;

    bool is_posting() noexcept {
        const std::lock_guard lock(mutex_);
        return posting_ != 0;
    }

    std::mutex mutex_; // guards all but left_
    job* first_ = nullptr;
    std::size_t posting_ = 0;
    bool is_shut_ = false;
    basic_ready_queue<native_platform> left_; // popped by shutdown()
};

// Says whether the calling thread runs a step, and which job this step has ended.
template <class Asio> struct asio_step_here {
    bool runs = false;               // it runs a step
    asio_job<Asio>* ended = nullptr; // the job that has ended in this step
};

template <class Asio> class asio_job : public basic_task_control<native_platform> {
    using control = basic_task_control<native_platform>;
    using service_type = asio_service<Asio>;
    using here = asio_step_here<Asio>;

public:
    // The executor of its coroutines. Terminates if Asio finds no memory for the step.
    void post(runnable& r) noexcept {
        service_type& service = service_; // the step may end the job
        if (service.push(*this, r)) {
            post_step(self_);
            service.has_posted();
        }
    }

    // Starts the job, either on this thread at once, or in the first step.
    // Requires: `self` owns the job, and the service has listed the job. The job then owns itself
    // until its end.
    void begin(std::shared_ptr<asio_job> self, bool on_this_thread) noexcept {
        self_ = std::move(self);
        if (on_this_thread) {
            here& mine = native_platform::local<here>();
            const here outer = std::exchange(mine, here()); // no outer step may end it
            this->run();
            mine = outer;
        } else {
            post(this->to_run());
        }
    }

    // Runs a step of the job that `of` owns.
    // Throws: what the handler throws.
    static void run_step(std::shared_ptr<asio_job> of) {
        runnable* const r = of->service_.pop(*of);
        of.reset(); // the job owns itself
        if (r != nullptr) {
            if (asio_job* const ended = run_one(*r)) {
                ended->complete(true);
            }
        }
    }

protected:
    asio_job(service_type& service) noexcept : control(1, false), service_(service) {}
    ~asio_job() = default;

    // Posts a step to the executor, which calls run_step().
    virtual void post_step(std::shared_ptr<asio_job> self) = 0;

    // Destroys the job, and calls its handler if `deliver`.
    virtual void complete(bool deliver) = 0;

    // Removes the job from the list of its service. Returns the pointer by which the job owns
    // itself.
    std::shared_ptr<asio_job> leave() noexcept {
        service_.remove(*this);
        return std::move(self_);
    }

private:
    friend service_type;

    static asio_job* run_one(runnable& r) noexcept {
        here& mine = native_platform::local<here>();
        const here outer = std::exchange(mine, here{true, nullptr});
        r.run.wake();
        return std::exchange(mine, outer).ended;
    }

    // A job may end only in a step. So the function that starts a job never calls its handler.
    bool may_finish_here() const noexcept override { return native_platform::local<here>().runs; }
    void post_home() noexcept override { post(this->to_run()); }
    void finish() noexcept override { native_platform::local<here>().ended = this; }

    service_type& service_;
    std::shared_ptr<asio_job> self_;
    // Under the mutex of the service:
    asio_job* next_ = nullptr;
    asio_job** place_ = nullptr; // points to this job
    run_list ready_;             // one runnable for each step that is posted
};

template <class Asio> void asio_service<Asio>::shutdown() noexcept {
    {
        const std::lock_guard lock(mutex_);
        is_shut_ = true;
    }
    for (basic_backoff<native_platform> again; is_posting(); again()) {
    }
    // From here on only this thread changes the list.
    for (job* j = first_; j != nullptr; j = j->next_) {
        while (runnable* const r = pop(*j)) {
            left_.post(*r);
        }
    }
    for (job* j = first_; j != nullptr; j = j->next_) {
        j->cancel(cancel_reason::shutdown);
    }
    while (first_ != nullptr) {
        runnable* const r = left_.pop(deadline::never());
        if (job* const ended = job::run_one(*r)) {
            ended->complete(false);
        }
    }
}

}}} // namespace bide::BIDE_ABI::detail

#endif
