// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_WHEN_IN_PLACE_HPP
#define BIDE_TASK_DETAIL_WHEN_IN_PLACE_HPP

// Children in place. If a task awaits when_all() on a worker of its executor, it posts no child. It
// forks all children but the first on that worker: other workers may steal them, the last child
// first. Then it runs the first child in place: it transfers control to the child, as if it awaited
// a single task. When the child ends, it transfers control back. The parent takes the next child
// back from the worker and runs it in place, too. The first child that it cannot take back was
// stolen or posted, and so were all children after it, or the parent has moved to another worker.
// It then counts itself and the children that have ended in place down, and waits for the rest. So
// a child that is not stolen costs no count, no wake, and no step through a queue.
//
// The parent has begun its wait before the first child starts. So a cancellation reaches all
// children while one of them runs in place. The child in place is a chain of its own, with shields
// and a stop token of its own. If it waits, its worker posts what was forked and goes on. When the
// child resumes and ends, on whichever worker, the parent continues there. If it ends on another
// thread than a worker's, or is resumed by other code than bide's, then it ends like a stolen
// child, and counts for the parent, too, which starts no further child.
//
// A parent whose budget is spent pauses before it starts the next child.

#include <bide/core/config.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/resume.hpp>
#include <bide/task/detail/when_state.hpp>

#include <coroutine>

namespace bide::inline BIDE_ABI {
namespace detail {

// Each child is forked on this worker, or is run by the parent.
template <class Platform> bool basic_when_state<Platform>::runs_in_place() const noexcept {
    const local& here = local::get();
    return !first_wins_ && here.running == context_ && here.host != nullptr && is_home();
}

// Forks all children but the first, the last one first: the parent takes back the newest.
template <class Platform> void basic_when_state<Platform>::fork_others() noexcept {
    auto& host = *local::get().host;
    for (child* c = last_; c != first_; c = c->prev_child_) {
        if (!host.fork(c->to_run())) {
            home().post(c->to_run());
        }
    }
    in_place_ = true;
    next_ = first_;
    step_ = step::in_place;
}

// Returns true if next() need not suspend the parent.
template <class Platform> bool basic_when_state<Platform>::is_ready() noexcept {
    if (!in_place_) {
        return begun_ || first_ == nullptr;
    }
    if (next_ == nullptr) {
        step_ = step::over;
        if (ended_in_place_ != size_) {
            return false;
        }
        context_->end_wait();
        return true;
    }
    local& here = local::get();
    wants_pause_ = here.host != nullptr && !here.spend();
    if (wants_pause_) {
        step_ = step::again;
        return false;
    }
    // A cancelled child starts without a budget: see run().
    if (here.host == nullptr || next_->state_.is_cancelled() ||
        !here.host->take_back(next_->to_run())) {
        step_ = step::over;
        return false;
    }
    step_ = step::in_place;
    return true;
}

template <class Platform>
std::coroutine_handle<> basic_when_state<Platform>::start_in_place() noexcept {
    next_->in_place_ = true;
    return transfer<Platform>(next_->start_in_place(), node_);
}

// The parent resumes: the child has ended in place, or all children have ended.
template <class Platform> void basic_when_state<Platform>::end_in_place() noexcept {
    if (in_place_) {
        local& here = local::get();
        here.running = context_;
        if (here.traced) {
            here.name = context_->name();
        }
        next_->settle_in_place();
        next_ = next_->next_child_;
        ++ended_in_place_;
    }
}

// Lets other tasks of this worker run. Returns true; no access to the state may follow.
template <class Platform> bool basic_when_state<Platform>::pause() noexcept {
    local::get().host->pause(context_->resumption(parent_, at_));
    return true;
}

// The parent starts no further child. Returns false if all have ended.
template <class Platform> bool basic_when_state<Platform>::stop_starting() noexcept {
    in_place_ = false;
    if (!count_down(1 + ended_in_place_)) {
        return true;
    }
    context_->end_wait();
    return false;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
