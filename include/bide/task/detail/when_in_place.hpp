// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_WHEN_IN_PLACE_HPP
#define BIDE_TASK_DETAIL_WHEN_IN_PLACE_HPP

// Children in place. If a task awaits when_all() on a worker of its executor, it posts no child. It
// forks all children but the first on that worker: other workers may steal them, the last child
// first. Then it runs the first child in place: it transfers control to the child, as if it awaited
// a single task. When the child ends, it takes the next child back from the worker and transfers
// control to that child. The last child transfers control back to the parent. The first child that
// cannot be taken back was stolen or posted, and so were all children after it, or the task has
// moved to another worker. The parent and the children that have ended in place are then counted
// down, and the parent waits for the other children. So a child that is not stolen costs no count,
// no wake, and no step through a queue.
//
// The parent has begun its wait before the first child starts. So a cancellation reaches all
// children while one of them runs in place. The child in place is a chain of its own, with shields
// and a stop token of its own. If it waits, its worker posts what was forked and goes on. When the
// child resumes and ends, on whichever worker, the next child or the parent continues there. If it
// ends on another thread than a worker's, or is resumed by other code than bide's, then it ends like
// a stolen child, and counts for the parent, too, which starts no further child.
//
// If the budget is spent before a child starts, that child pauses. If other jobs run first, the worker
// moves all that its chain has forked to `run_`, because they would stand in the way of what the other
// jobs fork. When the child starts, they are forked again, on whichever worker it starts. The chain may
// never wait, and may need what it has forked. So the worker counts the pauses that follow on each other,
// and queues one of the forked children now and then, the oldest one.

#include <bide/core/config.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/resume.hpp>
#include <bide/task/detail/when_state.hpp>

#include <coroutine>

namespace bide::inline BIDE_ABI {
namespace detail {

// Each child is forked on this worker, or is run by the parent.
template <class Platform>
bool basic_when_state<Platform>::runs_in_place(const local& here) const noexcept {
    return !first_wins_ && here.running == context_ && here.host != nullptr && is_home();
}

// Forks all children but the first, the last one first: the parent takes back the newest.
template <class Platform>
std::coroutine_handle<> basic_when_state<Platform>::begin_in_place(local& here) noexcept {
    run_list others;
    for (child* c = last_; c != first_; c = c->prev_child_) {
        others.push(c->to_run());
    }
    fork(others, here);
    return start_in_place(*first_, here);
}

// Posts those that the worker has no place for.
template <class Platform>
void basic_when_state<Platform>::fork(run_list& children, local& here) noexcept {
    if (here.host != nullptr && children.first() != nullptr) {
        here.host->fork(children);
    }
    while (runnable* const r = children.pop()) {
        home().post(*r);
    }
}

// If the budget is spent, other tasks of this worker run first.
template <class Platform>
std::coroutine_handle<> basic_when_state<Platform>::start_in_place(child& c, local& here) noexcept {
    c.in_place_ = true;
    if (here.spend()) {
        return transfer<Platform>(c.start_in_place(here), node_);
    }
    next_ = &c;
    run_.pauses = here.pauses;
    run_.run =
        waker([](void* self) noexcept { static_cast<basic_when_state*>(self)->go_on(); }, this);
    here.host->pause(run_);
    return std::noop_coroutine();
}

// The other tasks have run.
template <class Platform> void basic_when_state<Platform>::go_on() noexcept {
    child& c = *next_;
    local& here = local::get();
    fork(run_.forked, here);
    here.pauses = run_.pauses + 1;
    c.to_run().run.wake();
    here.pauses = 0; // of the next job
}

// The child has ended in place. Its frame is suspended at its end, and is destroyed here.
template <class Platform>
std::coroutine_handle<> basic_when_state<Platform>::ended_in_place(child& c, local& here) noexcept {
    here.running = context_;
    if (here.traced) {
        here.name = context_->name();
        here.tag = context_->tag();
    }
    c.settle_in_place();
    ++ended_in_place_;
    child* const next = c.next_child_;
    if (next == nullptr) { // so all have ended in place
        context_->end_wait();
        return to_parent();
    }
    // A cancelled child starts without a budget: see run().
    if (here.host == nullptr || next->state_.is_cancelled() ||
        !here.host->take_back(next->to_run())) {
        return count_parent_down(1 + ended_in_place_);
    }
    return start_in_place(*next, here);
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
