// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_STRAND_HPP
#define BIDE_TASK_STRAND_HPP

/// \file
/// A serial executor over another executor. At most one task of a strand runs at a time. So an
/// object needs no lock if only these tasks use it.

#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// The queue of a strand. Many threads post runnables. One thread at a time takes and runs them: the
// runner. One word contains the queue, and shows whether there is a runner:
//
//   idle      nullptr: nothing is queued, and there is no runner
//   running   the address of `bottom_`: nothing was posted after the runner looked last
//   posted    the newest posted runnable; the older ones follow by `next`, down to `bottom_` or to
//             nullptr. There is a runner, or the poster of the oldest runnable starts one.
//
// A poster puts its runnable in front of the list, by a CAS. If that CAS replaced idle, the poster
// starts a runner. The runner exchanges the word for the address of `bottom_`, and reverses the
// list that it got: first in, first out. When the runner has run that list, it changes the word
// from running to idle by a CAS. If the CAS fails, runnables were posted meanwhile. Their posters
// have started no runner, so the runner takes the new list, too. So no runnable is left without a
// runner, and there is at most one runner.
//
// The CAS to idle is the last access of a runner. The poster that replaces idle acquires what that
// CAS has released, and starts the next runner. So the next runner sees everything that the
// previous runner did [strand.hand_over].
template <class Platform> class basic_serial_queue {
public:
    // Posts a runnable. Returns true if the caller must start the runner. If the result is false,
    // the caller must not access the queue afterwards.
    bool push(runnable& r) noexcept {
        // Order: relaxed; the CAS acquires and releases.
        runnable* seen = newest_.load(std::memory_order_relaxed);
        do {
            r.next = seen;
            // Order: acq_rel [strand.hand_over]; release: the runner sees the runnable. Acquire: a
            // runner that this thread starts sees what the previous runner did. Failure: the loop
            // tries again.
        } while (!newest_.compare_exchange_weak(seen, &r, std::memory_order_acq_rel,
                                                std::memory_order_relaxed));
        return seen == nullptr;
    }

    // Called by the runner. Returns false if nothing is queued. In that case, the caller is no
    // longer the runner, and must not access the queue afterwards.
    bool has_next() noexcept { return oldest_ != nullptr || take(); }

    // Called by the runner: takes the oldest runnable. Requires: has_next() has returned true.
    runnable& pop() noexcept {
        runnable& r = *oldest_;
        oldest_ = r.next;
        return r;
    }

    // Returns true if nothing is queued and there is no runner.
    bool is_idle() const noexcept {
        // Order: acquire [strand.hand_over]; the accesses of the last runner are over.
        return newest_.load(std::memory_order_acquire) == nullptr;
    }

private:
    template <class T> using var = typename Platform::template var<T>;

    bool take() noexcept {
        runnable* none = &bottom_;
        // Order: release [strand.hand_over]; the poster that starts the next runner, and the
        // destructor of the strand, see what this runner has done. Failure: relaxed, the exchange
        // acquires.
        if (newest_.compare_exchange_strong(none, nullptr, std::memory_order_release,
                                            std::memory_order_relaxed)) {
            return false;
        }
        // Order: acquire [strand.hand_over]; sees the posted runnables. Each post is a
        // read-modify-write, so the acquire reaches all of them.
        oldest_ = oldest_first(newest_.exchange(&bottom_, std::memory_order_acquire), &bottom_);
        return true;
    }

    typename Platform::template atomic<runnable*> newest_{nullptr};
    runnable bottom_;
    var<runnable*> oldest_{nullptr}; // only the runner uses it
};

} // namespace detail

/// Runs the posted runnables one after the other, in the order of the posts, on the threads of
/// another executor. It has no thread of its own, and does not allocate. Each runnable sees the
/// effects of all earlier ones.
///
/// \code
/// bide::task<> add(int& sum) {
///     ++sum; // no other task of the strand runs now
///     co_return;
/// }
/// bide::task<> count(bide::strand& serial, int& sum) { co_await serial.run(add(sum)); }
/// \endcode
///
/// After 64 runnables, the strand posts itself to the other executor again, so that other jobs of
/// that executor run in between. A runnable that blocks its thread blocks the strand.
///
/// A task that awaits schedule() runs on the strand until its next wait. A task that is passed to
/// run() runs completely on the strand. While a task waits, other tasks of the strand run.
/// Thread safety: any thread may call any member concurrently, except the destructor.
class BIDE_SHARED strand : public detail::executor_users {
public:
    /// Makes a strand over `where`.
    /// Requires: `where` outlives the strand, and runs what is posted to it.
    template <executor S>
        requires(!std::is_same_v<std::remove_cv_t<S>, strand>)
    explicit strand(S& where) noexcept : where_(where) {
        run_.run = waker([](void* self) noexcept { static_cast<strand*>(self)->run_some(); }, this);
    }
    strand(const strand&) = delete;
    strand& operator=(const strand&) = delete;

    /// Waits until the thread that ran the last runnable has left the strand.
    /// Requires: everything that was posted has run. Each task of run() has ended or was destroyed,
    /// and the caller does not run on the strand; if not, terminates with a message. To end the
    /// tasks in time, declare their task_group after the strand, or call scheduler::shutdown().
    ~strand() {
        if (is_here()) {
            detail::fatal("strand", this, "destroyed by what runs on it");
        }
        if (auto* const simulated = detail::simulated_machine::here();
            simulated != nullptr && !queue_.is_idle()) {
            // A simulation has no other thread, so this thread runs the posted runnables.
            simulated->sleep(
                [](const void* self) noexcept {
                    return static_cast<const strand*>(self)->queue_.is_idle();
                },
                this, deadline::never().steady_ns());
        }
        for (basic_backoff<native_platform> again; !queue_.is_idle(); again()) {
        }
        require_none("strand");
    }

    /// Runs `r` after all that was posted before it.
    void post(runnable& r) noexcept {
        const executor_ref where = where_;
        if (queue_.push(r)) {
            where.post(run_);
        }
    }

    /// Returns true if the calling thread runs on this strand.
    bool is_here() const noexcept { return current() == this; }

    /// Moves the awaiting coroutine to the strand, behind the queued runnables, until its next
    /// wait.
    async_op<void> schedule() noexcept { return this_task::yield().resume_on(*this); }

    /// Runs a task, and the tasks that it awaits, completely on the strand. The coroutine that
    /// awaits run() resumes on its own executor.
    /// Throws: what the task throws; stopped_error, if the awaiting task is cancelled before the
    /// task starts.
    template <class T> task<T> run(task<T> work) {
        return run_on(*this, detail::executor_use(executor_ref::to(*this)), std::move(work));
    }

private:
    static constexpr unsigned most = 64;

    // Not inlined, because a coroutine may continue on another thread. An inlined call could then
    // use the state of the previous thread.
    BIDE_NOINLINE static const strand*& current() noexcept {
        return native_platform::local<detail::running_code>().on;
    }

    // Runs queued runnables. Posts the strand again only if a runnable is left. A post for nothing
    // could block the destructor for ever: the destructor waits until each post has run, and the
    // destructor may run on the only thread of `where_`.
    void run_some() noexcept {
        const strand* const outer = std::exchange(current(), this);
        const executor_ref where = where_;
        // When has_next() returns false, another runner may start. So nothing is accessed then.
        for (unsigned left = most; queue_.has_next(); --left) {
            if (left == 0) {
                current() = outer;
                where.post(run_);
                return;
            }
            queue_.pop().run.wake();
        }
        current() = outer;
    }

    template <class T> static task<T> run_on(strand& on, detail::executor_use use, task<T> work) {
        detail::task_promise_base& mine = co_await detail::this_promise();
        const executor_ref home = mine.exchange_scheduler(executor_ref::to(on));
        detail::kept_outcome<T> outcome;
        BIDE_TRY {
            co_await on.schedule();
            if constexpr (std::is_void_v<T>) {
                co_await std::move(work);
            } else {
                outcome.return_value(co_await std::move(work));
            }
        }
        BIDE_CATCH { outcome.error() = std::current_exception(); }
        use.end();
        mine.exchange_scheduler(home);
        static_cast<void>(co_await this_task::yield().as_result()); // leaves the strand
        co_return outcome.take();
    }

    const executor_ref where_;
    runnable run_; // the runner
    detail::basic_serial_queue<native_platform> queue_;
};

}} // namespace bide::BIDE_ABI

#endif
