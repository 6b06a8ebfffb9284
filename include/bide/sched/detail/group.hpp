// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_GROUP_HPP
#define BIDE_SCHED_DETAIL_GROUP_HPP

// What task_group and join_set share: the group, the cells of its members, and the blocking wait
// for them. The state of a group is the number of children that have not ended, the waiters for
// their end, the members that can be cancelled, and the first failure. One lock guards all of it.
//
// A child is counted before it is posted. It decrements the count when its outcome is final and its
// frame is destroyed. The last child takes the waiters out of the queue. Its last access to the
// group is the release of the lock: the group may be destroyed when one of these waits has
// returned.
//
// A group may have a limit. Then each child has a permit of the group's semaphore. When a child
// ends, it first returns the permit and then decrements the count, so that the semaphore still
// exists. A returned permit may resume a coroutine that has waited for it. If that coroutine has no
// executor, it resumes on the thread that ended the child. There it must resume after the decrement
// (wake_scope), because it may block until the end of the children.
//
// The body of task_group::run() is a member, too. It is cancelled like a child, and its failure is
// a failure of the group. But the body may wait for the children. So a group counts two things: the
// children that have not ended, and the members that have not ended.
//
// The group has a list of the members that have not been cancelled. A cancellation empties the
// list. For each member, it takes a reference under the lock, and cancels the member without the
// lock. A member may be a task that waits for another group. Then that group must be cancelled,
// too. It is not cancelled by recursion: it is appended to the list of the first cancellation
// (cancel_round), so that the stack does not grow with the depth of nested groups. The cancel_round
// counts as a child of each group in its list, so each group exists until its members have been
// cancelled.
//
// A wait for the end of a group needs no thread. If a task that waits for its group is cancelled,
// it continues to wait until all members have ended (wait_steps::on_cancel).

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/core/waker.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/permit.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/cancel_reason.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/detail/task_control.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class Platform> class basic_group;

// A member of a group. It is a task, and this object is a field of its cell.
template <class Platform>
class basic_group_member : public basic_task_links<Platform, basic_group_member<Platform>> {
    using header = basic_task_header<Platform>;

public:
    basic_group_member(basic_group<Platform>& of, header& its_task) noexcept
        : group_(of), task_(its_task) {}
    basic_group_member(const basic_group_member&) = delete;
    basic_group_member& operator=(const basic_group_member&) = delete;

    deadline limit() const noexcept { return group_.limit(); }
    const task_binding<Platform>* values() const noexcept { return group_.values(); }

    // Called when the task has ended and its frame is destroyed. `error` is the exception of the
    // task. If `stopped` is true, the task never ran.
    void end(std::exception_ptr error, bool stopped) noexcept {
        group_.ended(*this, std::move(error), stopped);
    }

private:
    friend class basic_group<Platform>;

    basic_group<Platform>& group_;
    header& task_;
    typename Platform::template var<bool> linked_{false}; // guarded by the group's lock
    bool is_body_ = false;
};

template <class Platform> class basic_group {
    using member = basic_group_member<Platform>;
    using header = basic_task_header<Platform>;
    using list = basic_task_list<Platform, member>;
    using node = basic_waiter<Platform>;
    using word = std::uint32_t;
    using lock = lock_bits<Platform, word>;
    using guard = typename lock::guard;
    using wake_list = basic_wake_list<Platform>;
    template <class T> using var = typename Platform::template var<T>;

public:
    // The end of the children, or the end of all members. Waiters wait for it.
    class end {
    public:
        static constexpr const char* waited_for = "the end of a group";

        end(basic_group& of, bool of_all) noexcept : group_(of), of_all_(of_all) {}
        end(const end&) = delete;
        end& operator=(const end&) = delete;

        bool has_come() noexcept {
            const guard section(group_.lock_);
            return is_here();
        }

        // Returns false if the deadline has passed.
        bool wait_until(deadline when) noexcept {
            return has_come() ||
                   thread_wait<end, Platform>::until(*this, 1, when) == wait_status::granted;
        }
        void wait() noexcept { wait_until(deadline::never()); }
        // Throws: as rethrow_if_failed().
        basic_async_op<void, Platform> async_wait() noexcept { return {ending{*this}}; }

        // For thread_wait.
        wait_status enqueue(node& w) noexcept {
            lock::acquire(group_.lock_);
            wait_status what = wait_status::waiting;
            if (!is_here()) {
                what = queue_.push_unless_forbidden(w);
            } else if (w.claim()) { // fails if the waiter's select chose another case
                w.commit();
                what = wait_status::granted;
            }
            lock::release_plain(group_.lock_);
            if (what != wait_status::waiting) {
                w.settle(what);
            }
            return what;
        }

        bool cancel(node& w, wait_status why) noexcept {
            const guard section(group_.lock_);
            return queue_.withdraw(w, why);
        }

    private:
        friend basic_group;

        // The operation of async_wait() (core/wait_ops.hpp).
        struct ending {
            end& of;

            const auto& primitive() const noexcept { return of; }
            wait_status try_now() const noexcept {
                return of.has_come() ? wait_status::granted : wait_status::waiting;
            }
            wait_status enqueue(node& w) const noexcept { return of.enqueue(w); }
            bool cancel(node& w, wait_status why) const noexcept { return of.cancel(w, why); }
            result<void> collect(wait_status what) const {
                if (what == wait_status::granted ||
                    (what == wait_status::stopped && of.has_come())) {
                    of.group_.rethrow_if_failed();
                }
                return result_of(what);
            }
            void give_back(wait_status) const noexcept {}
            void on_cancel() const noexcept { of.group_.cancel_in_turn(); }
        };

        // Requires: the caller holds the lock.
        bool is_here() const noexcept {
            return group_.left_ == 0 && !(of_all_ && group_.has_body_);
        }

        basic_group& group_;
        const bool of_all_;
        basic_waiter_queue<Platform> queue_; // empty if the end has come
    };

    using semaphore = basic_semaphore<Platform>;

    // If the group has a limit, `room` is the semaphore of its permits. A thread that makes a child
    // acquires a permit of `room` before it calls begin(). If `room` is nullptr, there is no limit.
    explicit basic_group(semaphore* room = nullptr) noexcept : room_(room) {}

    bool has_limit() const noexcept { return room_ != nullptr; }

    // Adds a child. Requires: its task is not posted yet.
    void begin(member& m) noexcept { add(m, false); }
    // Adds the body. Called at most once.
    void begin_body(member& m) noexcept { add(m, true); }

    void cancel(cancel_reason why = cancel_reason::requested) noexcept {
        if (start_cancel(why)) {
            cancel_members();
        }
    }

    // Cancels the group because the task that joins it was cancelled. If the calling thread is in a
    // cancel_round, appends the group to that round, which then cancels the members. Otherwise
    // cancels the members in this call.
    void cancel_in_turn() noexcept {
        if (!start_cancel(cancel_reason::parent)) {
            return;
        }
        if (round* const now = round::here()) {
            (now->first == nullptr ? now->first : now->last->next_in_round_) = this;
            now->last = this;
        } else {
            cancel_members();
        }
    }

    // The deadline, the values and the tag that the members get from the maker of the group.
    deadline limit() const noexcept { return limit_; }
    const task_binding<Platform>* values() const noexcept { return values_.get(); }
    std::uint8_t tag() const noexcept { return tag_; }

    end& of_children() noexcept { return children_; }
    end& of_all() noexcept { return all_; }

    // Throws: the first failure, if there is one.
    void rethrow_if_failed() {
        lock::acquire(lock_);
        const bool failed = failed_;
        const std::exception_ptr error = error_;
        lock::release_plain(lock_);
        if (failed) {
#if BIDE_EXCEPTIONS
            if (error) {
                std::rethrow_exception(error);
            }
#endif
            throw_error(errc::stopped);
        }
    }

private:
    friend member;

    using round = cancel_round<Platform>;

    // Returns true if the caller must cancel the members.
    bool start_cancel(cancel_reason why) noexcept {
        const guard section(lock_);
        if (cancelled_) {
            return false;
        }
        cancelled_ = true;
        reason_ = why;
        if (members_.first() == nullptr) {
            return false;
        }
        left_ = left_ + 1; // the caller counts as a child until it has cancelled all members
        return true;
    }

    void cancel_members() noexcept {
        round mine{this, this};
        round* const outer = std::exchange(round::here(), &mine);
        while (basic_group* const next = mine.first) {
            mine.first = next->next_in_round_;
            next->cancel_own_members();
        }
        round::here() = outer;
    }

    void cancel_own_members() noexcept {
        lock::acquire(lock_);
        const cancel_reason why = reason_;
        while (member* const m = members_.first()) {
            unlink(*m);
            list::template visit_unlocked<lock>(
                lock_, m->task_, [why](header& its_task) noexcept { its_task.cancel(why); });
        }
        leave(false);
    }

    void add(member& m, bool is_body) noexcept {
        m.is_body_ = is_body;
        {
            const guard section(lock_);
            if (is_body) {
                has_body_ = true;
            } else {
                left_ = left_ + 1;
            }
            if (!cancelled_) {
                members_.push_front(m);
                m.linked_ = true;
                return;
            }
        }
        m.task_.cancel(reason_);
    }

    void ended(member& m, std::exception_ptr error, bool stopped) noexcept {
        if (error || stopped) {
            note_failure(std::move(error), stopped);
        }
        if (room_ == nullptr || m.is_body_) {
            return remove(m);
        }
        const wake_scope<Platform> later;
        basic_permit<Platform>(*room_, std::adopt_lock).reset();
        remove(m);
    }

    // This is the last access to the group.
    void remove(member& m) noexcept {
        const bool is_body = m.is_body_;
        lock::acquire(lock_);
        if (m.linked_) {
            unlink(m);
        }
        leave(is_body);
    }

    // Called with the lock held; releases it.
    void leave(bool is_body) noexcept {
        if (is_body) {
            has_body_ = false;
        } else {
            left_ = left_ - 1;
        }
        wake_list passed;
        if (children_.is_here()) {
            children_.queue_.pop_all(passed);
        }
        if (all_.is_here()) {
            all_.queue_.pop_all(passed);
        }
        lock::release_plain(lock_);
        passed.publish(wait_status::granted);
    }

    void note_failure(std::exception_ptr error, bool stopped) noexcept {
        const bool is_stop = stopped || is_stopped_error(error);
        {
            const guard section(lock_);
            if (failed_ || (is_stop && cancelled_)) {
                return;
            }
            failed_ = true;
            error_ = std::move(error);
        }
        cancel(cancel_reason::sibling);
    }

    void unlink(member& m) noexcept {
        members_.remove(m);
        m.linked_ = false;
    }

    semaphore* const room_;
    const task_binding_use<Platform> values_{values_of(worker_local<Platform>::get().running)};
    const deadline limit_ = limit_of(worker_local<Platform>::get().running);
    const std::uint8_t tag_ = tag_of(worker_local<Platform>::get().running);
    typename Platform::template atomic<word> lock_{0};
    // Guarded by it:
    end children_{*this, false};
    end all_{*this, true};
    list members_;              // those that have not been cancelled
    var<std::size_t> left_{0};  // children that have not ended
    var<bool> has_body_{false}; // a body that has not ended
    var<bool> cancelled_{false};
    var<cancel_reason> reason_{cancel_reason::none}; // set once, with cancelled_
    var<bool> failed_{false};
    std::exception_ptr error_; // the first failure; empty if a child failed that never ran

    basic_group* next_in_round_ = nullptr; // accessed only by the thread that cancels the group
};

// ---- Cancellation

// A task that is a member of a group and stores its own outcome. The derived class decides what
// happens to the outcome.
template <class T, class Platform> class basic_group_task : public basic_task_header<Platform> {
    using header = basic_task_header<Platform>;

public:
    basic_group_member<Platform>& member() noexcept { return member_; }
    deadline limit() const noexcept final { return member_.limit(); }
    const task_binding<Platform>* values() const noexcept final { return member_.values(); }

    kept_outcome<T>& kept() noexcept { return kept_; }
    void settled() noexcept {}

protected:
    basic_group_task(typename header::home_type& home, bool kept,
                     basic_group<Platform>& of) noexcept
        : header(home, kept), member_(of, *this) {
        this->set_tag(of.tag());
    }
    ~basic_group_task() = default;

    basic_group_member<Platform> member_;
    kept_outcome<T> kept_;
};

BIDE_COMPILED_TEMPLATE(class basic_group<native_platform>)

using group = basic_group<native_platform>;
using group_member = basic_group_member<native_platform>;

// A child of a task_group, or its body: the group gets the exception. The value is dropped.
class group_task : public basic_group_task<void, native_platform> {
public:
    group_task(task_home& home, bool kept, group& of) noexcept : basic_group_task(home, kept, of) {}

protected:
    ~group_task() = default;

private:
    void discard_outcome() noexcept final { member_.end(std::move(kept_.error()), never_ran()); }
};

template <task_source S> using group_cell = coroutine_cell<S, group_task>;

// Blocks until all members that `until` counts have ended. These members belong to `home`. If no
// other thread runs the members, the calling thread runs them meanwhile. If the calling thread
// belongs to a scheduler, that scheduler may start one thread more than max_blocking_threads
// meanwhile, so that a thread is free for the members.
void block_until(group::end& until, task_home& home) noexcept;

}}} // namespace bide::BIDE_ABI::detail

#if BIDE_DEFINITIONS

#include <bide/core/detail/worker_host.hpp>
#include <bide/sched/detail/scheduler_core.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

BIDE_COMPILED_INLINE void block_until(group::end& until, task_home& home) noexcept {
    constexpr std::chrono::nanoseconds retry(basic_worker_host<native_platform>::retry_ns);
    if (until.has_come()) {
        return;
    }
    if (const waker here = home.waker_of_caller()) {
        basic_waiter<native_platform> w(1, here);
        if (until.enqueue(w) != wait_status::waiting) {
            return;
        }
        home.run_tasks(w);
        if (w.is_complete()) {
            return;
        }
        if (!until.cancel(w, wait_status::timed_out)) {
            w.await_outcome();
            return;
        }
    } // another thread runs them
    scheduler* const here = scheduler::current();
    auto* const threads = here != nullptr ? &scheduler_access::core(*here).blocking() : nullptr;
    if (threads == nullptr) {
        until.wait();
        return;
    }
    threads->raise_limit();
    // The system may have refused to start the extra thread. Then this thread tries again at
    // intervals, because all other threads may be blocked.
    while (!until.wait_until(threads->tend() ? deadline::after(retry) : deadline::never())) {
    }
    threads->lower_limit();
}

}}} // namespace bide::BIDE_ABI::detail

#endif
#endif
