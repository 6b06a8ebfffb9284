#ifndef BIDE_CORE_WAITER_QUEUE_HPP
#define BIDE_CORE_WAITER_QUEUE_HPP

// The waiters of a primitive, first come first served: an intrusive circular list behind one
// pointer, to the last node, whose `next_` is the first. Everything here is done under the
// primitive's lock.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/waiter.hpp>

#include <optional>

namespace bide::inline BIDE_ABI {

// Waiters whose wait was decided under a lock, to be published after it: chained through their own
// links, so there is no number of them that is too large.
template <class Platform> class basic_wake_list {
public:
    using waiter = basic_waiter<Platform>;

    bool empty() const noexcept { return last_ == nullptr; }

    void push(waiter& w) noexcept {
        w.next_ = nullptr;
        if (last_ == nullptr) {
            first_ = &w;
        } else {
            last_->next_ = &w;
        }
        last_ = &w;
    }

    // Publishes `what` to all of them, in order, and wakes them. No lock is held here: coroutines
    // and foreign wakers run inside.
    void publish(fate what) noexcept {
        std::optional<wake_scope<Platform>> scope;
        for (waiter* w = first_; w != nullptr;) {
            waiter* const next = w->next_; // before the last touch of *w
            if (w->has_waker() && !scope) {
                scope.emplace();
            }
            w->publish(what);
            w = next;
        }
        first_ = last_ = nullptr;
    }

private:
    waiter* first_ = nullptr;
    waiter* last_ = nullptr;
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
        return *last->next_;
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
            waiter* const first = last->next_;
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
        waiter* const next = w.next_;
        waiter* const prev = w.prev_;
        if (next == &w) {
            last_ = nullptr;
        } else {
            prev->next_ = next;
            next->prev_ = prev;
            if (last_ == &w) {
                last_ = prev;
            }
        }
        w.phase_ = waiter::phase::decided;
    }

    // Ends the wait of `w`, which is this queue's. False: it is decided already, or not queued yet,
    // and queueing it will be refused with `why`.
    bool withdraw(waiter& w, fate why) noexcept {
        const bool waits_still = w.is_queued();
        if (waits_still) {
            remove(w);
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
        return &w == last ? nullptr : static_cast<waiter*>(w.next_);
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
    typename Platform::template var<waiter*> last_{nullptr};
};

} // namespace bide::inline BIDE_ABI

#endif
