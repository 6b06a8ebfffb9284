#ifndef BIDE_SCHED_DETAIL_GROUP_HPP
#define BIDE_SCHED_DETAIL_GROUP_HPP

// What is behind a task_group: how many children have not ended, which waiters wait for that, which
// children can be cancelled, and what failed first. All under one lock.
//
// A child is counted before it is posted, and counts itself down when its outcome stands and its
// frame is gone. The last one takes the waiters out of the queue; to let go of the lock is its last
// touch of the group, which may go as soon as one of these waits has returned.
//
// The body of task_group::run() is a member, too: it is cancelled as a child is, and its failure is
// one of the group. But it may wait for the children, so there are two ends: that of the children,
// and that of all, which is the body's as well.
//
// The members that are linked are those that have not been cancelled. Once the group is cancelled
// none is linked any more, so one cancellation passes through the list once, with a reference to
// the member that it is at and without the lock. A task that is told while it waits for a group of
// its own has that group's members told in its turn, and so on, at any depth: such a group is
// appended to what the first cancellation has still to tell, not told on top of it. Until its
// members have been told a group stays, for that counts as a child.
//
// Nor does the end of a group need a thread: a cancelled task that waits for its group goes on
// waiting without one, until all members have ended (wait_steps::on_cancel).

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
#include <bide/task/detail/cancel_round.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/detail/task_header.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_group;

template <class Platform> class basic_group_member : public basic_task_header<Platform> {
    using header = basic_task_header<Platform>;

protected:
    basic_group_member(basic_group<Platform>& g, typename header::home_type& home,
                       const char* name) noexcept
        : header(home, name, false), group_(g) {}
    ~basic_group_member() = default;

    // What it threw, when its frame is gone; stopped: it never ran.
    virtual std::exception_ptr failure(bool& stopped) noexcept = 0;

private:
    friend class basic_group<Platform>;

    // Its end: there is no handle to ask for its outcome.
    void discard_outcome() noexcept final { group_.ended(*this); }

    basic_group<Platform>& group_;
    // Under the group's lock:
    typename Platform::template var<basic_group_member*> next_{nullptr};
    typename Platform::template var<basic_group_member*> prev_{nullptr};
    typename Platform::template var<bool> linked_{false};
    bool is_body_ = false;
};

template <class Platform> class basic_group {
    using member = basic_group_member<Platform>;
    using node = basic_waiter<Platform>;
    using word = std::uint32_t;
    using lock = lock_bits<Platform, word>;
    using wake_list = basic_wake_list<Platform>;
    template <class T> using var = typename Platform::template var<T>;

public:
    // What is waited for: that the children have ended, or all members.
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
        basic_async_op<void, Platform> async_wait() noexcept;

        // For thread_wait.
        wait_status enqueue(node& w) noexcept;
        bool cancel(node& w, wait_status why) noexcept;

    private:
        friend basic_group;

        static end& self(const wait_target& t) noexcept { return *static_cast<end*>(t.queue); }

        // Under the lock.
        bool is_here() const noexcept {
            return group_.left_ == 0 && !(of_all_ && group_.has_body_);
        }

        basic_group& group_;
        const bool of_all_;
        basic_waiter_queue<Platform> queue_; // empty where the end is here
    };

    basic_group() noexcept = default;
    basic_group(const basic_group&) = delete;
    basic_group& operator=(const basic_group&) = delete;

    // Before it is posted.
    void begin(member& m) noexcept { add(m, false); }
    // The same for the body. Once.
    void begin_body(member& m) noexcept { add(m, true); }

    // Tells all members.
    void cancel() noexcept {
        if (start_cancel()) {
            tell_members();
        }
    }
    // The same where this is called by a cancellation.
    void cancel_in_turn() noexcept;

    end& of_children() noexcept { return children_; }
    end& of_all() noexcept { return all_; }

    // Throws: what failed first, if anything did.
    void rethrow_if_failed();

private:
    friend member;

    using round = cancel_round<Platform>;

    bool start_cancel() noexcept;
    void tell_members() noexcept;
    void tell_mine() noexcept;

    void add(member& m, bool is_body) noexcept;
    void ended(member& m) noexcept;
    void leave(bool is_body) noexcept;
    void note_failure(std::exception_ptr error, bool stopped) noexcept;
    void link(member& m) noexcept;
    void unlink(member& m) noexcept;

    typename Platform::template atomic<word> lock_{0};
    // Under it:
    end children_{*this, false};
    end all_{*this, true};
    var<member*> first_{nullptr};
    var<std::size_t> left_{0};  // children that have not ended
    var<bool> has_body_{false}; // that has not ended
    var<bool> cancelled_{false};
    var<bool> failed_{false};
    std::exception_ptr error_; // where it failed; none: by a child that never ran

    basic_group* next_in_round_ = nullptr; // whose turn to be told comes after; the canceller's
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
        m.cancel();
    }
}

template <class Platform> void basic_group<Platform>::ended(member& m) noexcept {
    bool stopped = false;
    std::exception_ptr error = m.failure(stopped);
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

// Under the lock, which it lets go of.
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

// ---- Its ends

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
    } else if (w.claim()) { // else its choice fell on another wait
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

template <class Platform>
basic_async_op<void, Platform> basic_group<Platform>::end::async_wait() noexcept {
    static constexpr auto ops =
        wait_ops<result<void>, Platform>(
            [](const wait_target& t) noexcept {
                return self(t).has_come() ? wait_status::granted : wait_status::waiting;
            },
            [](const wait_target& t, node& w) noexcept {
                return self(t).enqueue(w) != wait_status::waiting;
            },
            [](const wait_target& t, node& w, wait_status why) noexcept {
                return self(t).cancel(w, why);
            },
            [](const wait_target& t, wait_status what) -> result<void> {
                if (what == wait_status::granted ||
                    (what == wait_status::stopped && self(t).has_come())) {
                    self(t).group_.rethrow_if_failed();
                }
                return result_of(what);
            },
            [](const wait_target&, wait_status) noexcept {})
            .outlasting_cancel(
                [](const wait_target& t) noexcept { self(t).group_.cancel_in_turn(); });
    return {ops, wait_target{this}};
}

// ---- Cancellation

// True: this call does it.
template <class Platform> bool basic_group<Platform>::start_cancel() noexcept {
    lock::acquire(lock_);
    const bool mine = !cancelled_ && first_ != nullptr;
    cancelled_ = true;
    if (mine) {
        left_ = left_ + 1; // it counts as a child: the group stays until all have been told
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
        tell_members();
    }
}

template <class Platform> void basic_group<Platform>::tell_members() noexcept {
    round mine{this, this};
    const typename round::scope now(&mine);
    while (basic_group* const next = mine.first) {
        mine.first = next->next_in_round_;
        next->tell_mine();
    }
}

template <class Platform> void basic_group<Platform>::tell_mine() noexcept {
    lock::acquire(lock_);
    while (member* const m = first_) {
        unlink(*m);
        m->add_reference();
        lock::release(lock_);
        m->cancel();
        m->drop_reference();
        lock::acquire(lock_);
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

template <class Platform> void basic_group<Platform>::link(member& m) noexcept {
    member* const first = first_;
    m.next_ = first;
    m.prev_ = nullptr;
    m.linked_ = true;
    if (first != nullptr) {
        first->prev_ = &m;
    }
    first_ = &m;
}

template <class Platform> void basic_group<Platform>::unlink(member& m) noexcept {
    member* const next = m.next_;
    member* const prev = m.prev_;
    if (prev == nullptr) {
        first_ = next;
    } else {
        prev->next_ = next;
    }
    if (next != nullptr) {
        next->prev_ = prev;
    }
    m.linked_ = false;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
