// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_WAITER_QUEUE_HPP
#define BIDE_CORE_WAITER_QUEUE_HPP

/// \file
/// Queues the waiters of a primitive, first in, first out, and wakes those that a release lets
/// through.
//
// The queue is an intrusive circular list. One pointer leads to its last node, and the `next_` of
// the last node is the first node. The primitive calls the queue under its own lock.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/wake_scope.hpp>

namespace bide { inline namespace BIDE_ABI {

template <class Platform> class wakers_later;

/// Collects waiters that were decided under a lock, and publishes them after that lock is released.
/// The waiters are chained through their own links, so their number has no limit.
///
/// Wakers run inside publish(), first in, first out. If a waker releases other waiters, the inner
/// publish() only announces them, and the outermost publish() of the thread runs their wakers
/// afterwards. So the depth of the stack does not grow. If a waker blocks in bide (core/futex.hpp),
/// the later wakers run before it sleeps.
///
/// All outcomes are visible before the first waker runs (core/waiter.hpp). A waker may cancel later
/// waiters of the list, or destroy their coroutines. In both cases, these waiters leave the list
/// and their wakers do not run.
/// Requires: the caller of publish() holds no lock.
template <class Platform> class BIDE_SHARED basic_wake_list {
public:
    /// Is the node type.
    using waiter = basic_waiter<Platform>;

    /// Makes an empty list.
    basic_wake_list() noexcept = default;
    basic_wake_list(const basic_wake_list&) = delete;
    basic_wake_list& operator=(const basic_wake_list&) = delete;

    /// Returns whether the list is empty.
    bool empty() const noexcept { return last_thread_ == nullptr && has_no_waker(); }

    /// Appends a decided waiter.
    void push(waiter& w) noexcept {
        if (w.has_waker()) {
            append(w);
        } else {
            w.next_ = nullptr;
            if (last_thread_ == nullptr) {
                first_thread_ = &w;
            } else {
                last_thread_->next_ = &w;
            }
            last_thread_ = &w;
        }
    }

    /// Publishes `what` to all waiters in order, threads first, and empties the list.
    void publish(wait_status what) noexcept {
        if (has_no_waker()) {
            publish_threads(what);
        } else {
            publish_wakers(what);
        }
    }

    /// Publishes `what` to one decided waiter.
    static void publish(waiter& w, wait_status what) noexcept {
        basic_wake_list list;
        list.push(w);
        list.publish(what);
    }

    /// Publishes two lists of one release: `what` to the first, `what_other` to the second.
    BIDE_NOINLINE static void publish(basic_wake_list& list, wait_status what,
                                      basic_wake_list& other, wait_status what_other) noexcept {
        if (list.empty() || other.empty()) {
            list.publish(what);
            other.publish(what_other);
        } else {
            list.announce(what);
            other.announce(what_other);
            list.take_over(other);
            list.run_wakers(state());
        }
    }

private:
    friend class wakers_later<Platform>;

    using resume_state = detail::resume_state;

    static resume_state& state() noexcept { return Platform::template local<resume_state>(); }

    // Returns the list to which this thread's releases give their wakers. If it returns nullptr,
    // the wakers run now. A scope that posts its list does not leave wakers to the list of an outer
    // scope.
    static basic_wake_list* taker(const resume_state& mine) noexcept {
        const detail::waker_redirect* const to = mine.wakers;
        return to != nullptr ? static_cast<basic_wake_list*>(to->list()) : nullptr;
    }

    // Appends the waiters of `other` that have wakers.
    void take_over(basic_wake_list& other) noexcept {
        while (!other.has_no_waker()) {
            append(other.pop_waker());
        }
    }

    using link = detail::waiter_link<Platform>;

    bool has_no_waker() const noexcept {
        const link* const first = wakers_.next_;
        return first == nullptr || first == &wakers_;
    }
    void append(waiter& w) noexcept {
        if (wakers_.next_ == nullptr) {
            wakers_.next_ = wakers_.prev_ = &wakers_;
        }
        insert(w, wakers_);
    }
    void insert(waiter& w, link& before) noexcept {
        link* const prev = before.prev_;
        w.next_ = &before;
        w.prev_ = prev;
        prev->next_ = &w;
        before.prev_ = &w;
    }
    waiter& pop_waker() noexcept {
        link* const first = wakers_.next_;
        first->unlink();
        return static_cast<waiter&>(*first);
    }

    BIDE_NOINLINE void publish_threads(wait_status what) noexcept {
        for (link* l = first_thread_; l != nullptr;) {
            auto* const w = static_cast<waiter*>(l);
            l = w->next_; // before the last access to *w
            w->publish_to_thread(what);
        }
        first_thread_ = last_thread_ = nullptr;
    }

    // Publishes the outcome to all waiters. If there is only one waiter, and its waker runs now, it
    // is published without an announcement.
    // Requires: at least one waiter has a waker.
    BIDE_NOINLINE void publish_wakers(wait_status what) noexcept {
        resume_state& mine = state();
        if (last_thread_ == nullptr && wakers_.next_ == wakers_.prev_ && taker(mine) == nullptr) {
            return run_wakers_now(mine, what);
        }
        announce(what);
        run_wakers(mine);
    }

    // Publishes the waiters of threads, and announces the waiters that have wakers. A waiter may be
    // the selected case of a select. Then the waiter of the select itself takes its place in the
    // list.
    void announce(wait_status what) noexcept {
        if (!has_no_waker()) {
            for (link* l = wakers_.next_; l != &wakers_; l = l->next_) {
                if (auto& w = static_cast<waiter&>(*l); !w.has_owner()) {
                    w.announce(what);
                }
            }
            announce_owners(what);
        }
        publish_threads(what);
    }

    void announce_owners(wait_status what) noexcept {
        for (link* l = wakers_.next_; l != &wakers_;) {
            auto& w = static_cast<waiter&>(*l);
            l = w.next_;
            if (!w.is_decided() && w.has_owner()) {
                w.unlink();
                if (waiter* const owner = w.publish_chosen(what); owner == nullptr) {
                    continue;
                } else if (owner->has_waker()) {
                    insert(*owner, *l);
                    owner->announce(wait_status::granted);
                } else {
                    owner->publish(wait_status::granted);
                }
            }
        }
    }

    // Runs the wakers of the announced waiters, or leaves them to the list that takes them.
    void run_wakers(resume_state& mine) noexcept {
        if (has_no_waker()) {
            return;
        }
        if (basic_wake_list* const later = taker(mine)) {
            return later->take_over(*this);
        }
        run_wakers_now(mine, wait_status::waiting);
    }
    // Runs the wakers. If `single` is an outcome, the list has one waiter, which is not announced;
    // then first publishes `single` to it.
    BIDE_NOINLINE void run_wakers_now(resume_state& mine, wait_status single) noexcept {
        const wake_scope<Platform> scope(mine);
        const detail::waker_redirect here(mine, this, &run_all);
        if (single != wait_status::waiting) {
            pop_waker().publish(single); // the last access to it
        }
        run_all(this);
    }
    BIDE_NOINLINE static void run_all(void* self) noexcept {
        auto& list = *static_cast<basic_wake_list*>(self);
        while (!list.has_no_waker()) { // a waker may take waiters out, or let others through
            const waker wake = list.pop_waker().publish_announced();
            wake.wake();
        }
    }

    link* first_thread_ = nullptr; // linked by next_ only
    link* last_thread_ = nullptr;
    link wakers_; // the end of a circular list; linked by the first append()
};

/// Queues waiters, first in, first out. Each function takes constant time, except pop_all().
/// Requires: the caller holds the primitive's lock.
template <class Platform> class basic_waiter_queue {
public:
    /// Is the node type.
    using waiter = basic_waiter<Platform>;
    /// Is the list that pop_all() fills.
    using wake_list = basic_wake_list<Platform>;

    /// Makes an empty queue.
    constexpr basic_waiter_queue() noexcept = default;
    basic_waiter_queue(const basic_waiter_queue&) = delete;
    basic_waiter_queue& operator=(const basic_waiter_queue&) = delete;

    /// Returns whether the queue is empty.
    bool empty() const noexcept { return last_ == nullptr; }

    /// Returns the first waiter.
    /// Requires: the queue is not empty.
    waiter& front() const noexcept {
        waiter* const last = last_;
        return static_cast<waiter&>(*last->next_);
    }

    /// Prefetches the cache lines of the first node together, before that node is taken out.
    /// Requires: the queue is not empty.
    void prefetch_front() const noexcept {
        const waiter& first = front();
        Platform::prefetch(&first);
        Platform::prefetch(first.where());
    }

    /// Appends `w`. Called by the owner of `w`.
    void push(waiter& w) noexcept {
        waiter* const last = last_;
        w.was_first_ = last == nullptr;
        if (last == nullptr) {
            w.next_ = &w;
            w.prev_ = &w;
        } else {
            link* const first = last->next_;
            w.next_ = first;
            w.prev_ = last;
            first->prev_ = &w;
            last->next_ = &w;
        }
        last_ = &w;
        w.phase_ = waiter::phase::queued;
    }

    /// Appends `w`, unless a stop or a time-out came first. Called by the owner of `w`.
    /// Returns: waiting if `w` was appended. Otherwise the outcome, stopped or timed_out; then `w`
    /// is in no queue.
    wait_status push_unless_forbidden(waiter& w) noexcept {
        push(w);
        const wait_status forbidden = w.forbidden();
        if (forbidden != wait_status::waiting) {
            remove(w);
        }
        return forbidden;
    }

    /// Puts `w` before all other waiters. Called by the owner of `w`.
    void push_front(waiter& w) noexcept {
        waiter* const last = last_;
        push(w); // behind the last one, which is before the first one
        if (last != nullptr) {
            last_ = last;
        }
        w.was_first_ = true;
    }

    /// Queues `w` in the place of `old`, which leaves the queue undecided. Called by the owner of
    /// both waiters.
    /// Requires: `old` is in this queue.
    void replace(waiter& old, waiter& w) noexcept {
        w.was_first_ = &front() == &old;
        waiter* const last = last_;
        link* const next = old.next_;
        link* const prev = old.prev_;
        w.next_ = next == &old ? &w : next;
        w.prev_ = prev == &old ? &w : prev;
        w.next_->prev_ = &w;
        w.prev_->next_ = &w;
        if (last == &old) {
            last_ = &w;
        }
        old.phase_ = waiter::phase::idle;
        w.phase_ = waiter::phase::queued;
    }

    /// Takes over all waiters of `other`.
    /// Requires: this queue is empty.
    void take(basic_waiter_queue& other) noexcept {
        last_ = static_cast<waiter*>(other.last_);
        other.last_ = nullptr;
    }

    /// Takes `w` out of the queue, from any position. This decides the wait, and the caller owns
    /// the outcome.
    /// Requires: `w` is in this queue.
    void remove(waiter& w) noexcept {
        link* const prev = w.prev_;
        if (prev == &w) {
            last_ = nullptr;
        } else {
            w.unlink();
            if (last_ == &w) {
                last_ = static_cast<waiter*>(prev);
            }
        }
        w.phase_ = waiter::phase::decided;
    }

    /// Withdraws the wait of `w`, which belongs to this queue.
    /// Returns: true if `w` was taken out of the queue. False if the wait is decided already, or is
    /// not queued yet; in the second case, a later attempt to queue it is refused with `why`.
    bool withdraw(waiter& w, wait_status why) noexcept {
        const bool was_queued = w.is_queued();
        if (was_queued) {
            remove(w);
            w.withdrawn();
        } else {
            w.forbid(why);
        }
        return was_queued;
    }

    /// Takes the first waiter out.
    /// Requires: the queue is not empty.
    waiter& pop() noexcept {
        waiter& w = front();
        remove(w);
        return w;
    }

    /// Moves all waiters to `list`, in order. If a waiter is a case of a select that has selected
    /// another case, drops the waiter.
    void pop_all(wake_list& list) noexcept {
        while (!empty()) {
            if (waiter& w = pop(); w.claim()) {
                w.commit();
                list.push(w);
            }
        }
    }

    /// Returns the waiter behind `w`, which is in this queue; nullptr if there is none.
    waiter* after(const waiter& w) const noexcept {
        waiter* const last = last_;
        link* const next = w.next_;
        return &w == last ? nullptr : static_cast<waiter*>(next);
    }

    /// Reports how many waiters a destroyed primitive has, and terminates.
    [[noreturn]] void fatal_destroyed(const char* name, const void* object) noexcept {
        unsigned long long waiting = 0;
        for (; !empty(); ++waiting) {
            pop();
        }
        detail::fatal_destroyed(name, object, waiting);
    }

private:
    using link = detail::waiter_link<Platform>;

    typename Platform::template var<waiter*> last_{nullptr};
};

/// Settles a wait that has an outcome, for its owner. Returns the outcome, or waiting.
template <class Platform>
wait_status settle_if_over(basic_waiter<Platform>& w, wait_status what) noexcept {
    if (what != wait_status::waiting) {
        w.settle(what);
    }
    return what;
}

BIDE_COMPILED_TEMPLATE(class basic_wake_list<native_platform>)
BIDE_COMPILED_TEMPLATE(class basic_waiter_queue<native_platform>)

}} // namespace bide::BIDE_ABI

#endif
