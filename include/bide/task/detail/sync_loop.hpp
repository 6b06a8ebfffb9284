// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_SYNC_LOOP_HPP
#define BIDE_TASK_DETAIL_SYNC_LOOP_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/ready_queue.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/spin.hpp>
#include <bide/core/waker.hpp>

#include <coroutine>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Blocks a thread until a task has ended, and runs what is posted to the thread meanwhile.
class sync_loop final : basic_task_context<native_platform> {
    using local = worker_local<native_platform>;
    using turn = worker_turn<native_platform>;

public:
    sync_loop() noexcept {
        finished_.run =
            waker([](void* self) noexcept { static_cast<sync_loop*>(self)->done_ = true; }, this);
        run_.run = waker(
            [](void* self) noexcept {
                resume<native_platform>(static_cast<sync_loop*>(self)->leaf_);
            },
            this);
    }
    sync_loop(const sync_loop&) = delete;
    sync_loop& operator=(const sync_loop&) = delete;

    // Runs the coroutine of a task on this thread until its end.
    template <class Promise> void run(std::coroutine_handle<Promise> frame) noexcept {
        frame.promise().begin(*this, queue_);
        take_turn([frame]() noexcept { resume<native_platform>(frame); });
        drive();
    }

    // Runs the coroutine of a task on `where`.
    template <class Promise>
    void run(executor_ref where, std::coroutine_handle<Promise> frame) noexcept {
        frame.promise().begin(*this, where);
        where.post(resumption(frame, start_));
        drive();
    }

private:
    bool begin_wait(std::coroutine_handle<> leaf, suspension& at) noexcept override {
        leaf_ = leaf;
        at_ = &at;
        return true;
    }
    void end_wait() noexcept override {}
    void wake() noexcept override {
        const executor_ref where = *at_->where;
        where.post(run_);
    }
    executor_ref goes_on_at() const noexcept override { return {}; }
    bool is_cancelled() noexcept override { return false; }
    runnable& resumption(std::coroutine_handle<> leaf, suspension& at) noexcept override {
        leaf_ = leaf;
        at_ = &at;
        return run_;
    }
    std::coroutine_handle<> ended() noexcept override {
        queue_.post(finished_); // the last access to the loop
        return std::noop_coroutine();
    }

    void drive() noexcept {
        while (!done_) {
            // Another thread takes a worker over while this one sleeps, not while it spins.
            if (queue_.empty() && local::get().host == nullptr) {
                basic_spin<native_platform>::until([this]() noexcept { return !queue_.empty(); });
            }
            runnable* const next = queue_.pop(deadline::never());
            take_turn([next]() noexcept { next->run.wake(); });
        }
    }

    template <class Run> void take_turn(Run run) noexcept {
        local& here = local::get();
        const turn now(here);
        const auto* const was_alone = std::exchange(here.alone, &queue_);
        run();
        here.alone = was_alone;
    }

    basic_ready_queue<native_platform> queue_;
    // Where the chain resumes:
    std::coroutine_handle<> leaf_;
    suspension* at_ = nullptr;
    suspension start_{};
    runnable run_;
    runnable finished_;
    bool done_ = false;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
