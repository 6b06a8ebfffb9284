// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_GROUP_HPP
#define BIDE_SCHED_DETAIL_GROUP_HPP

// The state of a task_group: the number of children that have not ended, the waiters for their end,
// the members that can be cancelled, and the first failure. One lock guards all of it.
//
// A child is counted before it is posted. It decrements the count when its outcome is final and its
// frame is destroyed. The last child takes the waiters out of the queue. The release of the lock is
// its last access to the group, which may be destroyed as soon as one of these waits has returned.
//
// The body of task_group::run() is a member, too: it is cancelled as a child is, and its failure is
// a failure of the group. But the body may wait for the children. So a group has two ends: the end
// of the children, and the end of all members.
//
// The list links the members that have not been cancelled. A cancellation empties the list. It
// takes a reference to one member at a time, and cancels it without the lock. A member may be a
// task that waits for a group of its own. That group is then appended to the round of the first
// cancellation (cancel_round), so the stack does not grow with the depth of groups in groups. The
// round counts as a child of each group in it, so the group stays until its members have been
// cancelled.
//
// The end of a group needs no thread. A cancelled task that waits for its group continues to wait,
// without a thread, until all members have ended (wait_steps::on_cancel).

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>
#include <bide/task/detail/task_body.hpp>
#include <bide/task/detail/task_control.hpp>
#include <bide/task/detail/task_header.hpp>
#include <bide/task/detail/task_registry.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_group;

// A field of the cell of each member.
template <class Platform>
class basic_group_member : public basic_task_links<Platform, basic_group_member<Platform>> {
    using header = basic_task_header<Platform>;

public:
    basic_group_member(basic_group<Platform>& g, header& task) noexcept : group_(g), task_(task) {}
    basic_group_member(const basic_group_member&) = delete;
    basic_group_member& operator=(const basic_group_member&) = delete;

    header& task() const noexcept { return task_; }

    // Called when the task has ended and its frame is destroyed. `error` is its exception;
    // `stopped` means that it never ran.
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
    using wake_list = basic_wake_list<Platform>;
    template <class T> using var = typename Platform::template var<T>;

public:
    // The end of the children, or of all members, which waiters wait for.
    class end {
    public:
        end(basic_group& g, bool of_all) noexcept : group_(g), of_all_(of_all) {}
        end(const end&) = delete;
        end& operator=(const end&) = delete;

        bool has_come() noexcept;
        void wait() noexcept {
            if (!has_come()) {
                thread_wait<end, Platform>::until(*this, 1, deadline::never());
            }
        }
        // Throws: as rethrow_if_failed().
        basic_async_op<void, Platform> async_wait() noexcept { return {ending{*this}}; }

        // For thread_wait.
        wait_status enqueue(node& w) noexcept;
        bool cancel(node& w, wait_status why) noexcept;

    private:
        friend basic_group;

        // The operation of async_wait() (core/wait_ops.hpp).
        struct ending {
            end& of;

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

    basic_group() noexcept = default;
    basic_group(const basic_group&) = delete;
    basic_group& operator=(const basic_group&) = delete;

    // Adds a child. Requires: its task is not posted yet.
    void begin(member& m) noexcept { add(m, false); }
    // Adds the body. Called at most once.
    void begin_body(member& m) noexcept { add(m, true); }

    // Cancels all members.
    void cancel() noexcept {
        if (start_cancel()) {
            cancel_members();
        }
    }
    // The same, if a cancellation calls this: joins the round of the calling thread.
    void cancel_in_turn() noexcept;

    end& of_children() noexcept { return children_; }
    end& of_all() noexcept { return all_; }

    // Throws: the first failure, if there is one.
    void rethrow_if_failed();

private:
    friend member;

    using round = cancel_round<Platform>;

    bool start_cancel() noexcept;
    void cancel_members() noexcept;
    void cancel_own_members() noexcept;

    void add(member& m, bool is_body) noexcept;
    void ended(member& m, std::exception_ptr error, bool stopped) noexcept;
    void leave(bool is_body) noexcept;
    void note_failure(std::exception_ptr error, bool stopped) noexcept;
    void link(member& m) noexcept {
        members_.push_front(m);
        m.linked_ = true;
    }
    void unlink(member& m) noexcept {
        members_.remove(m);
        m.linked_ = false;
    }

    typename Platform::template atomic<word> lock_{0};
    // Guarded by it:
    end children_{*this, false};
    end all_{*this, true};
    list members_;              // those that have not been cancelled
    var<std::size_t> left_{0};  // children that have not ended
    var<bool> has_body_{false}; // a body that has not ended
    var<bool> cancelled_{false};
    var<bool> failed_{false};
    std::exception_ptr error_; // the first failure; empty if a child failed that never ran

    basic_group* next_in_round_ = nullptr; // accessed only by the thread that cancels the group
};

template <class Platform> void basic_group<Platform>::add(member& m, bool is_body) noexcept {
    lock::acquire(lock_);
    m.is_body_ = is_body;
    if (is_body) {
        has_body_ = true;
    } else {
        left_ = left_ + 1;
    }
    const bool too_late = cancelled_;
    if (!too_late) {
        link(m);
    }
    lock::release(lock_);
    if (too_late) {
        m.task_.cancel();
    }
}

template <class Platform>
void basic_group<Platform>::ended(member& m, std::exception_ptr error, bool stopped) noexcept {
    if (error || stopped) {
        note_failure(std::move(error), stopped);
    }
    const bool is_body = m.is_body_;
    lock::acquire(lock_);
    if (m.linked_) {
        unlink(m);
    }
    leave(is_body);
}

// Called with the lock held; releases it.
template <class Platform> void basic_group<Platform>::leave(bool is_body) noexcept {
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
    lock::release(lock_);
    passed.publish(wait_status::granted);
}

// ---- The two ends

template <class Platform> bool basic_group<Platform>::end::has_come() noexcept {
    lock::acquire(group_.lock_);
    const bool here = is_here();
    lock::release(group_.lock_);
    return here;
}

template <class Platform> wait_status basic_group<Platform>::end::enqueue(node& w) noexcept {
    lock::acquire(group_.lock_);
    wait_status what = wait_status::waiting;
    if (!is_here()) {
        queue_.push(w);
        what = w.forbidden();
        if (what != wait_status::waiting) {
            queue_.remove(w);
        }
    } else if (w.claim()) { // fails if the waiter's select chose another case
        w.commit();
        what = wait_status::granted;
    }
    lock::release(group_.lock_);
    if (what != wait_status::waiting) {
        w.settle(what);
    }
    return what;
}

template <class Platform>
bool basic_group<Platform>::end::cancel(node& w, wait_status why) noexcept {
    lock::acquire(group_.lock_);
    const bool waits_still = queue_.withdraw(w, why);
    lock::release(group_.lock_);
    return waits_still;
}

// ---- Cancellation

// Returns true if the caller must cancel the members.
template <class Platform> bool basic_group<Platform>::start_cancel() noexcept {
    lock::acquire(lock_);
    const bool mine = !cancelled_ && members_.first() != nullptr;
    cancelled_ = true;
    if (mine) {
        left_ = left_ + 1; // the caller counts as a child until it has cancelled all members
    }
    lock::release(lock_);
    return mine;
}

template <class Platform> void basic_group<Platform>::cancel_in_turn() noexcept {
    if (!start_cancel()) {
        return;
    }
    if (round* const now = round::here()) {
        (now->first == nullptr ? now->first : now->last->next_in_round_) = this;
        now->last = this;
    } else {
        cancel_members();
    }
}

template <class Platform> void basic_group<Platform>::cancel_members() noexcept {
    round mine{this, this};
    const typename round::scope now(&mine);
    while (basic_group* const next = mine.first) {
        mine.first = next->next_in_round_;
        next->cancel_own_members();
    }
}

template <class Platform> void basic_group<Platform>::cancel_own_members() noexcept {
    lock::acquire(lock_);
    while (member* const m = members_.first()) {
        unlink(*m);
        list::template visit_unlocked<lock>(lock_, m->task_,
                                            [](header& task) noexcept { task.cancel(); });
    }
    leave(false);
}

template <class Platform>
void basic_group<Platform>::note_failure(std::exception_ptr error, bool stopped) noexcept {
    const bool is_stop = stopped || is_stopped_error(error);
    lock::acquire(lock_);
    const bool counts = !failed_ && !(is_stop && cancelled_);
    if (counts) {
        failed_ = true;
        error_ = std::move(error);
    }
    lock::release(lock_);
    if (counts) {
        cancel();
    }
}

template <class Platform> void basic_group<Platform>::rethrow_if_failed() {
    lock::acquire(lock_);
    const bool failed = failed_;
    const std::exception_ptr error = error_;
    lock::release(lock_);
    if (failed) {
#if BIDE_EXCEPTIONS
        if (error) {
            std::rethrow_exception(error);
        }
#endif
        throw_error(errc::stopped);
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
