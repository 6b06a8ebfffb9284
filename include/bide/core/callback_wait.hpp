// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_CALLBACK_WAIT_HPP
#define BIDE_CORE_CALLBACK_WAIT_HPP

/// \file
/// Waits for any operation of bide without a thread or a coroutine: bide calls a function when the
/// operation is complete. Event loops of other libraries use such waits.
//
// The wait is a node in the queue of its primitive, like the wait of a thread or of a coroutine. A
// releaser publishes the outcome and then calls the waker. While the waker still runs, the owner
// could see the outcome and destroy the objects that the waker uses. Therefore the wait also
// records when the call of the waker has ended. The releaser reports the end of the call, in its
// last access to the wait, and the owner waits for that report [callback_wait.call]:
//
//   caller_      meaning
//   nullptr      No call has begun.
//   a mark       The waker runs on the thread that the mark identifies (thread_mark()).
//   ended        The call has returned. No thread but the owner accesses the wait.
//
// There are two exceptions. First, the owner may take, cancel or destroy the wait inside of the
// waker. In this case, the owner waits for no report. It sets `*left_`, a flag in the frame of the
// waker's caller, and this caller does not access the wait again. Second, the owner may do so
// inside of the waker of another wait that the same release has decided. In this case, the owner
// takes the node of its own wait out of that release, and the waker of this wait does not run.

#include <bide/core/async_op.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Waits by a callback for an operation whose value is a T. It accepts the operations that
/// coroutines await: those of a semaphore, a lock, an event, a channel, a select, a join handle or
/// a driver, and a sleep.
///
/// \code
/// bide::callback_wait<std::optional<int>> next(bide::waker(&wake_loop, &loop));
/// if (next.begin(numbers.async_recv())) handle(next.take().value());
/// // Later, in the loop that wake_loop() has woken:
/// if (next.is_complete()) handle(next.take().value());
/// \endcode
///
/// The wait is in the same queue as the waits of threads and coroutines. It allocates nothing.
/// A grant that the owner does not take goes back: a permit is released, a lock is unlocked, an
/// item is offered to the next receiver.
///
/// A callback_wait does not accept waits of a condition_variable, because their predicate needs a
/// thread or a coroutine. An executor that the operation names by resume_on() has no effect.
/// Thread safety: one thread at a time, called the owner, calls the functions. The thread that runs
/// the waker may be the owner.
/// Destroys: cancels the wait, as cancel() does, and gives back a grant that was not taken.
template <class T, class Platform> class basic_callback_wait {
    using R = as_result_t<T>;
    using ops = wait_ops<R, Platform>;
    using payload = wait_payload_t<R>;
    static_assert(
        !requires(payload& p) { p.retry; },
        "bide: a condition_variable is waited for by a thread or a coroutine");

public:
    /// The type that take() returns.
    using result_type = R;

    /// Constructs a wait. If begin() queues the wait, `wake` runs once at the end of the wait,
    /// except after cancel().
    ///
    /// `wake` runs on the thread that completes the operation. That thread holds no lock of bide.
    /// After a time-out, it is the thread of bide's timers. `wake` may call any function of this
    /// wait and of other waits, and may destroy this wait. `wake` must not block for long, because
    /// the releaser waits until `wake` returns. If `wake` completes other waits, the wakers of
    /// those waits run after `wake` has returned (core/executor.hpp).
    explicit basic_callback_wait(waker wake) noexcept
        : wake_(wake), node_(1, waker(&on_complete, this)) {}
    basic_callback_wait& operator=(basic_callback_wait&&) = delete;
    ~basic_callback_wait() {
        if (begun_) {
            cancel();
            give_back();
        }
    }

    /// Begins to wait. The deadline and the stop tokens of the operation apply to this wait, too.
    /// If the result of an earlier wait was not taken, gives it back first.
    /// Returns: true if the operation is complete: take() returns its result, and the waker does
    /// not run. False if the wait has begun. Then the waker runs once, unless cancel() ends the
    /// wait before. The waker may run before begin() returns.
    /// Requires: the wait has not begun, or is complete; otherwise terminates. The primitive exists
    /// until take(), cancel() or the destructor has returned.
    template <class U, int Stops>
        requires std::is_same_v<as_result_t<U>, as_result_t<T>>
    bool begin(basic_async_op<U, Platform, Stops> op) noexcept {
        if (begun_) {
            if (!is_complete()) {
                detail::fatal("callback_wait", this, "begun while it waits");
            }
            cancel(); // the waker may still run
            give_back();
        }
        begun_ = true;
        ops_ = op.ops_;
        target_.emplace(std::move(op.target_));
        node_.reset(1);
        if (const wait_status what = ops_->try_now(*target_); what != wait_status::waiting) {
            node_.settle(what);
            return true;
        }
        detail::wait_limits<Platform, 2> limits;
        detail::move_limits<Stops>(op.limits_, limits);
        if (limits.until.is_poll()) {
            node_.forbid(wait_status::timed_out); // one attempt, which also detects a close
        } else {
            armed_.arm(*this, limits);
        }
        calls_ = true;
        if (!ops_->enqueue(*target_, node_)) {
            return false; // the waker may have destroyed *this
        }
        BIDE_PROBE(wait_end, &node_, static_cast<int>(node_.outcome()));
        calls_ = false;
        return true;
    }

    /// Returns true if the wait has begun and is complete. Then take() returns the result.
    /// Memory order: if the result is true, this call is an acquire operation, as the return of the
    /// blocking operation is.
    bool is_complete() const noexcept { return begun_ && node_.is_complete(); }

    /// Ends the wait, if one has begun. Afterwards that wait is complete. If this call has ended
    /// it, take() returns errc::stopped, and for a send, the error contains the item.
    /// Returns: true if this call has ended the wait, or if no wait has begun. False if the wait
    /// was complete before: take() returns its result.
    /// Blocks: while the waker runs on another thread. After the return, the waker does not run.
    /// Requires: the waker does not wait for a lock that the caller holds.
    bool cancel() noexcept {
        if (!begun_) {
            return true;
        }
        armed_.disarm();
        if (calls_ && !node_.is_decided() &&
            ops_->cancel(*target_, node_, wait_status::destroyed)) {
            calls_ = false;
            if (ops_->on_cancel != nullptr) {
                ops_->on_cancel(*target_);
            }
            node_.settle(wait_status::stopped);
            BIDE_PROBE(wait_end, &node_, static_cast<int>(wait_status::stopped));
            return true;
        }
        end_call();
        return false;
    }

    /// Returns the result. Afterwards the wait may begin again.
    /// Blocks: while the waker runs on another thread. After the return, the waker does not run.
    /// Throws: what co_await of the operation would throw.
    /// Requires: is_complete(); otherwise terminates. The waker does not wait for a lock that the
    /// caller holds.
    auto take() -> R {
        if (!is_complete()) {
            detail::fatal("callback_wait", this, "taken before it was complete");
        }
        armed_.disarm();
        end_call();
        begun_ = false;
        struct payload_end {
            ~payload_end() { of.reset(); }
            std::optional<wait_target_with<payload>>& of;
        } const end{target_};
        return ops_->collect(*target_, node_.outcome());
    }

private:
    using armed_limits = detail::armed_limits<Platform, basic_callback_wait, 2>;
    friend armed_limits;

    static const void* ended() noexcept { return &ended_mark; }
    static constexpr char ended_mark = 0;

    static void on_complete(void* self) noexcept {
        auto& wait = *static_cast<basic_callback_wait*>(self);
        BIDE_PROBE(wait_end, &wait.node_, static_cast<int>(wait.node_.outcome()));
        bool left = false;
        wait.left_ = &left;
        // Order: relaxed; a thread compares it with its own mark only.
        wait.caller_.store(detail::thread_mark<Platform>(), std::memory_order_relaxed);
        const waker wake = wait.wake_;
        wake.wake();
        if (!left) {
            // Order: release [callback_wait.call]; the owner sees what the waker did.
            wait.caller_.store(ended(), std::memory_order_release);
        }
    }
    // Waits until the waker has returned, or prevents its call.
    void end_call() noexcept {
        if (!std::exchange(calls_, false)) {
            return;
        }
        if (node_.is_announced_here()) {
            node_.await_outcome();
            BIDE_PROBE(wait_end, &node_, static_cast<int>(node_.outcome()));
            return;
        }
        // Order: relaxed; only this thread writes its own mark.
        if (caller_.load(std::memory_order_relaxed) == detail::thread_mark<Platform>()) {
            *left_ = true;
        } else {
            // Order: acquire [callback_wait.call]; sees what the waker did.
            for (basic_backoff<Platform> again; caller_.load(std::memory_order_acquire) != ended();
                 again()) {
            }
        }
        // Order: relaxed; no other thread accesses the wait.
        caller_.store(nullptr, std::memory_order_relaxed);
    }
    // Ends the wait because of a stop or a time-out. If the end of the wait releases other
    // coroutines, they resume on another thread.
    void end_early(wait_status why) noexcept {
        const wake_scope<Platform> away(&detail::service_executor<Platform>);
        wakers_later<Platform> later;
        const bool ended_here = !node_.is_decided() && ops_->cancel(*target_, node_, why);
        later.stop_gathering();
        if (ended_here) {
            basic_wake_list<Platform>::publish(node_, why); // the waker may destroy *this
        }
    }
    void give_back() noexcept {
        begun_ = false;
        ops_->give_back(*target_, node_.outcome());
        target_.reset();
    }

    waker wake_;
    const ops* ops_ = nullptr;
    std::optional<wait_target_with<payload>> target_; // while the wait has begun
    bool begun_ = false;                              // begin() was called, and take() was not
    bool calls_ = false;                              // the waker runs when the node is granted
    bool* left_ = nullptr; // the flag of the running call; see on_complete()
    armed_limits armed_;
    typename Platform::template atomic<const void*> caller_{nullptr};
    basic_waiter<Platform> node_;
};

}} // namespace bide::BIDE_ABI

#endif
