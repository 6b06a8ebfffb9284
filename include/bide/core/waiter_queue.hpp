#ifndef BIDE_CORE_WAITER_QUEUE_HPP
#define BIDE_CORE_WAITER_QUEUE_HPP

// The waiters of a primitive, first come first served: an intrusive circular list behind one
// pointer, to the last node, whose `next_` is the first. Everything here is done under the
// primitive's lock.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/waiter.hpp>

namespace bide::inline BIDE_ABI {

template <class Platform> class wakers_later;

// Waiters whose wait was decided under a lock, to be published after it: chained through their own
// links, so there is no number of them that is too large. No lock is held while they are published:
// coroutines and foreign wakers run inside.
//
// The outcomes of all are there before the first waker runs (core/waiter.hpp). A waker may cancel the
// waiters behind it, or destroy their coroutines: that takes them out of the list.
template <class Platform> class basic_wake_list {
public:
    using waiter = basic_waiter<Platform>;

    basic_wake_list() noexcept = default;
    basic_wake_list(const basic_wake_list&) = delete;
    basic_wake_list& operator=(const basic_wake_list&) = delete;

    bool empty() const noexcept { return last_thread_ == nullptr && has_no_waker(); }

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

    // Publishes `what` to all of them, in order: threads first. The list is empty then.
    void publish(wait_status what) noexcept {
        if (has_no_waker()) {
            announce(what);
        } else if (basic_wake_list* const later = gathering()) {
            announce(what);
            later->take_over(*this);
        } else if (last_thread_ == nullptr && wakers_.next_ == wakers_.prev_) {
            const wake_scope<Platform> scope;
            pop_waker().publish(what); // one alone: nothing of it is touched afterwards
        } else {
            announce(what);
            run_wakers();
        }
    }

    // The same for two lists of one release.
    static void publish(basic_wake_list& list, wait_status what, basic_wake_list& other,
                        wait_status what_other) noexcept {
        if (list.empty() || other.empty()) {
            list.publish(what);
            other.publish(what_other);
        } else {
            list.announce(what);
            other.announce(what_other);
            list.take_over(other);
            if (basic_wake_list* const later = gathering()) {
                later->take_over(list);
            } else {
                list.run_wakers();
            }
        }
    }

private:
    friend class wakers_later<Platform>;

    // Which list keeps what this thread announces; nullptr: none.
    struct gatherer {
        basic_wake_list* into = nullptr;
    };
    static basic_wake_list*& gathering() noexcept {
        return Platform::template local<gatherer>().into;
    }

    // Moves the wakers of `other`, which are announced, behind those of this list.
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

    // Threads are published, waiters with wakers only announced. In the place of a chosen case
    // comes the owner of its choice.
    void announce(wait_status what) noexcept {
        if (!has_no_waker()) {
            for (link* l = wakers_.next_; l != &wakers_; l = l->next_) {
                if (auto& w = static_cast<waiter&>(*l); !w.has_owner()) {
                    w.announce(what);
                }
            }
            announce_owners(what);
        }
        for (link* l = first_thread_; l != nullptr;) {
            auto* const w = static_cast<waiter*>(l);
            l = w->next_; // before the last touch of *w
            w->publish(what);
        }
        first_thread_ = last_thread_ = nullptr;
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

    void run_wakers() noexcept {
        if (has_no_waker()) {
            return;
        }
        const wake_scope<Platform> scope;
        while (!has_no_waker()) { // one that runs may take out those behind it
            const waker wake = pop_waker().publish_announced();
            wake.wake();
        }
    }

    link* first_thread_ = nullptr; // linked by next_ alone
    link* last_thread_ = nullptr;
    link wakers_; // the end of a circle; not linked before there are any
};

// While it gathers, the releases of this thread announce the outcomes of their waiters, and leave the
// wakers to it. It runs them at its end: for a step that must come between, such as publishing the
// outcome of the wait whose removal let the others through. No user code runs while it gathers.
template <class Platform> class wakers_later {
    using wake_list = basic_wake_list<Platform>;

public:
    wakers_later() noexcept { wake_list::gathering() = &gathered_; }
    wakers_later(const wakers_later&) = delete;
    wakers_later& operator=(const wakers_later&) = delete;
    ~wakers_later() { gathered_.run_wakers(); }

    void stop_gathering() noexcept { wake_list::gathering() = nullptr; }

private:
    wake_list gathered_;
};

template <class Platform> class basic_waiter_queue {
public:
    using waiter = basic_waiter<Platform>;
    using wake_list = basic_wake_list<Platform>;

    constexpr basic_waiter_queue() noexcept = default;
    basic_waiter_queue(const basic_waiter_queue&) = delete;
    basic_waiter_queue& operator=(const basic_waiter_queue&) = delete;

    bool empty() const noexcept { return last_ == nullptr; }

    // Requires: not empty.
    waiter& front() const noexcept {
        waiter* const last = last_;
        return static_cast<waiter&>(*last->next_);
    }

    // The first node is going to be taken out: asks for its lines at once, not one after the other.
    void prefetch_front() const noexcept {
        const waiter& first = front();
        Platform::prefetch(&first);
        Platform::prefetch(first.where());
    }

    // Called by the owner of `w`.
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

    // Takes `w` out, wherever it stands: its wait is decided, and the caller owns the outcome.
    // Requires: w.is_queued(), here.
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

    // Ends the wait of `w`, which is this queue's. False: it is decided already, or not queued yet,
    // and queueing it will be refused with `why`.
    bool withdraw(waiter& w, wait_status why) noexcept {
        const bool waits_still = w.is_queued();
        if (waits_still) {
            remove(w);
            w.withdrawn();
        } else {
            w.forbid(why);
        }
        return waits_still;
    }

    // Requires: not empty.
    waiter& pop() noexcept {
        waiter& w = front();
        remove(w);
        return w;
    }

    // Moves all to `list`, in order, but for those whose choice fell on another wait.
    void pop_all(wake_list& list) noexcept {
        while (!empty()) {
            if (waiter& w = pop(); w.claim()) {
                w.commit();
                list.push(w);
            }
        }
    }

    // The one behind `w`, which is queued here; nullptr: none.
    waiter* after(const waiter& w) const noexcept {
        waiter* const last = last_;
        link* const next = w.next_;
        return &w == last ? nullptr : static_cast<waiter*>(next);
    }

    // For the destructor of a primitive that somebody waits on: says how many, and terminates.
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

} // namespace bide::inline BIDE_ABI

#endif
