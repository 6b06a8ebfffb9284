// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_POSTED_CALL_HPP
#define BIDE_SCHED_DETAIL_POSTED_CALL_HPP

// A call that runs on a worker while a coroutine awaits it (parallel/async_fork.hpp).
//
// The object is part of the awaiter, and so of the frame of the coroutine. It consists of a
// runnable and a gate. When the coroutine awaits the call, the runnable is posted to the scheduler.
// When the call has ended, the gate opens; this is the worker's last access to the object. If the
// scheduler ends before the runnable has run, a thread of bide's own service runs the runnable. The
// runnable then makes no call and does not access the scheduler.

#include <bide/sched/detail/scheduler_core.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class posted_call : runnable {
    using node = basic_waiter<native_platform>;

public:
    // `stop` gets a stop request if the awaiting task is cancelled or the coroutine is destroyed.
    posted_call(scheduler_core& on, std::stop_source stop) noexcept
        : core_(on), pool_(&on.pool()), stop_(std::move(stop)) {
        run =
            waker([](void* self) noexcept { static_cast<posted_call*>(self)->run_posted(); }, this);
    }

    // The wait operation (core/wait_ops.hpp). Its enqueue() posts the call. The wait lasts until
    // the call has ended. The result of the wait is always a success: the derived class has the
    // outcome of the call.
    struct waiting {
        posted_call& of;
        static constexpr bool stands_alone = true;
        static constexpr const char* waited_for = "a call on a worker";

        wait_status try_now() const noexcept {
            return of.ended_.is_open() ? wait_status::granted : wait_status::waiting;
        }
        // Posts the call here and not earlier. If the task was cancelled before this wait,
        // on_cancel() requests the stop before the post. So the runnable sees the stop request and
        // makes no call.
        wait_status enqueue(node& w) const noexcept {
            of.begin();
            return of.ended_.enqueue(w);
        }
        bool cancel(node& w, wait_status why) const noexcept { return of.ended_.cancel(w, why); }
        result<void> collect(wait_status) const noexcept { return {}; }
        void give_back(wait_status) const noexcept {
            if (of.has_begun_) {
                of.ended_.wait();
            }
        }
        void on_cancel() const noexcept { of.stop_.request_stop(); }
    };

protected:
    ~posted_call() = default;

    // Returns false if the call was not made, because a stop was requested before it began or
    // because the scheduler had ended.
    bool was_made() const noexcept { return was_made_; }
    std::stop_source& stop() noexcept { return stop_; }

private:
    // Makes the call, on a thread of the scheduler.
    virtual void call() noexcept = 0;

    void begin() noexcept {
        if (!std::exchange(has_begun_, true)) {
            core_.post(*this);
        }
    }
    void run_posted() noexcept {
        if (basic_thread_role<native_platform>::here().pool == pool_ && !stop_.stop_requested()) {
            was_made_ = true;
            call();
        }
        ended_.arrive(1); // the last access
    }

    scheduler_core& core_;
    const void* const pool_;
    std::stop_source stop_;
    bool has_begun_ = false;
    bool was_made_ = false;
    basic_gate<native_platform> ended_{1};
};

}}} // namespace bide::BIDE_ABI::detail

#endif
