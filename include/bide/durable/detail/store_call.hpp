// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_STORE_CALL_HPP
#define BIDE_DURABLE_DETAIL_STORE_CALL_HPP

// A call to a store that its caller may leave before the call ends. The caller is always a
// coroutine: a blocking function runs one by sync_wait(). The call runs on a store thread and owns
// all objects that it uses. Its states:
//
//   under way -> ended   the call has returned, and the caller takes the result
//   under way -> left    the caller's time was up. The store thread calls was_left() when the
//                        call ends; a call that has not begun is skipped
//
// Both sides change the state atomically, and the first one decides. So the result has exactly one
// owner: the caller, or was_left().

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/durable/detail/background.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// How long a caller waits for its call: until `until` or a stop. If the call is running at that
// time, the caller waits at most `grace` longer.
struct call_limits {
    deadline until = deadline::never();
    std::chrono::nanoseconds grace{0};
    std::stop_token stop{};

    static deadline later(deadline than, std::chrono::nanoseconds by) noexcept {
        const std::int64_t at = than.steady_ns();
        const std::int64_t most = deadline::never().steady_ns();
        return at >= most - by.count() ? deadline::never() : deadline::at_ns(at + by.count());
    }

    // Returns the end of the grace, for a caller that begins to use it now.
    deadline last() const noexcept {
        const deadline from_now = later(deadline::at_ns(native_platform::now()), grace);
        const deadline in_all = later(until, grace);
        return from_now.steady_ns() < in_all.steady_ns() ? from_now : in_all;
    }
    std::error_code why() const noexcept {
        return native_platform::now() >= until.steady_ns() ? make_error_code(errc::timeout)
                                                           : make_error_code(errc::stopped);
    }
};

class store_call {
public:
    store_call() noexcept { runs_.run = waker(&run, this); }
    store_call(const store_call&) = delete;
    store_call& operator=(const store_call&) = delete;
    virtual ~store_call() = default;

    // Makes the call on a store thread. Returns an error if the call is not made.
    // Requires: start() was not called before.
    static std::error_code start(const std::shared_ptr<store_call>& one) noexcept {
        one->self_ = one;
        const std::error_code error = store_threads::post(one->runs_);
        if (error) {
            one->self_.reset();
        }
        return error;
    }

    // Leaves the call. Returns false if the call has ended before.
    bool leave() noexcept {
        int now = under_way;
        // Order: acq_rel [store_call.end]; what the caller did is visible to was_left(). Failure:
        // acquire; the result is visible to the caller.
        return state_.compare_exchange_strong(now, left, std::memory_order_acq_rel,
                                              std::memory_order_acquire);
    }
    bool has_ended() const noexcept {
        // Order: acquire [store_call.end]; the result is visible to the caller.
        return state_.load(std::memory_order_acquire) == ended;
    }

    // Is set after the end of the call.
    event& end() noexcept { return end_; }

protected:
    // All of these run on a store thread.
    virtual void call() noexcept = 0;
    virtual void was_left() noexcept {}
    virtual void afterwards() noexcept {} // after the caller was told of the end

private:
    static constexpr int under_way = 0;
    static constexpr int ended = 1;
    static constexpr int left = 2;

    static void run(void* self) noexcept;

    runnable runs_;
    std::shared_ptr<store_call> self_; // set while the call is posted or runs
    native_platform::atomic<int> state_{under_way};
    event end_;
};

// Coroutines that it wakes resume on a service thread: they must not occupy a store thread.
inline void store_call::run(void* self) noexcept {
    auto& me = *static_cast<store_call*>(self);
    const std::shared_ptr<store_call> alive = std::move(me.self_);
    {
        const wake_scope<native_platform> away(&service_executor<native_platform>);
        // Order: relaxed; only an optimization: a call that was left is skipped.
        if (me.state_.load(std::memory_order_relaxed) != left) {
            me.call();
        }
        // Order: acq_rel [store_call.end]; publishes the result, and sees what a caller that left
        // has done.
        if (me.state_.exchange(ended, std::memory_order_acq_rel) == left) {
            me.was_left();
        } else {
            me.end_.set();
        }
    }
    const wake_scope<native_platform> away(&service_executor<native_platform>);
    me.afterwards();
}

// Awaited in a coroutine, returns the context of its task; nullptr if it has none.
struct own_context {
    basic_task_context<native_platform>* found = nullptr;
    bool await_ready() const noexcept { return false; }
    template <class Promise> bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        found = task_context_of<native_platform>(h.promise());
        return false;
    }
    basic_task_context<native_platform>* await_resume() const noexcept { return found; }
};

// Waits for the end of the call. Returns errc::timeout or errc::stopped if the caller has left the
// call. If the caller's task is cancelled, that counts as a stop, with the same grace.
// Throws: std::system_error if bide's service threads cannot be started.
inline task<std::error_code> wait_for_call(std::shared_ptr<store_call> call, call_limits limits) {
    auto ends = call->end().async_wait().with_deadline(limits.until).with_stop(limits.stop);
    const auto ended = co_await std::move(ends);
    if (ended) {
        co_return std::error_code();
    }
    own_context asked;
    const auto* const mine = co_await asked;
    // A shield is for the running task, so this has to be the running task.
    std::optional<this_task::shield> shield;
    if (mine != nullptr && mine == running_task()) {
        shield.emplace();
    }
    auto last = call->end().async_wait().with_deadline(limits.last());
    static_cast<void>(co_await std::move(last));
    if (call->leave()) {
        co_return make_error_code(ended.error() == errc::timeout ? errc::timeout : errc::stopped);
    }
    co_return std::error_code();
}

enum class call_kind {
    may_be_skipped, // it is skipped if its caller left before it began
    has_to_run      // it runs even if its caller left
};

// A call with a result. If the caller left, the result is dropped.
template <class R> class answer_call final : public store_call {
public:
    answer_call(std::function<R()> body, call_kind kind) : body_(std::move(body)), kind_(kind) {}

    // Returns the result of the call. If the call threw, throws the same exception.
    // Requires: the call has ended, and its caller has not left it.
    R take() {
        if (error_) {
            std::rethrow_exception(error_);
        }
        return std::move(*answer_);
    }

private:
    void call() noexcept override {
        error_ = thrown_by([this] { answer_.emplace(body_()); });
    }

    void was_left() noexcept override {
        if (kind_ == call_kind::has_to_run && !answer_ && !error_) {
            call();
        }
    }

    const std::function<R()> body_;
    const call_kind kind_;
    std::optional<R> answer_;
    std::exception_ptr error_;
};

// Makes the call on a store thread, and waits as long as the limits allow. The call never runs on
// this thread.
template <class R>
task<R> async_call_store(std::function<R()> body, call_limits limits,
                         call_kind kind = call_kind::may_be_skipped) {
    const auto call = std::make_shared<answer_call<R>>(std::move(body), kind);
    if (const std::error_code error = store_call::start(call)) {
        co_return unexpected{error};
    }
    auto waiting = wait_for_call(call, std::move(limits));
    if (const std::error_code why = co_await std::move(waiting)) {
        co_return unexpected{why};
    }
    co_return call->take();
}

// Calls async_call_store() and blocks the thread until the result is there.
template <class R>
R call_store(std::function<R()> body, call_limits limits,
             call_kind kind = call_kind::may_be_skipped) {
    return sync_wait(async_call_store<R>(std::move(body), std::move(limits), kind));
}

}}} // namespace bide::BIDE_ABI::detail

#endif
