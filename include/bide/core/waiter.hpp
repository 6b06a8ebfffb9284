#ifndef BIDE_CORE_WAITER_HPP
#define BIDE_CORE_WAITER_HPP

// One wait: a node of a primitive's queue, in the frame of whoever waits.
//
// Two things are told apart. The *decision* is made once, under the primitive's lock, by moving
// `phase_` from queued to decided; whoever moved it owns the outcome. The *publication* comes after
// that lock was released, as one step on the node's own word `state_`, and is the last touch of
// the node: the owner may return, and free node and primitive, the moment it sees it.
//
//   state_        means
//   waiting       not published; the owner is awake, or is a coroutine or a foreign waker
//   parked        not published; the owner, a thread, sleeps on this word or is about to
//   granted ...   published: what became of the wait
//   + announced   decided, and its primitive may be gone; the node stands in a list of the
//                 releaser's thread until its waker is about to run, which is the publication
//
// One release may decide several waits. It announces all that have wakers, publishes those of
// threads, and only then runs the first waker: so a waker may cancel any other waiter of the same
// release, or destroy its coroutine. On the releaser's thread that takes the node out of the list,
// and its waker will not run. On any other thread it waits until the node is published
// (await_outcome()).
//
//   field                    who may touch it, when
//   next_, prev_, phase_,    the holder of the primitive's lock; once decided, the one who decided,
//   amount, missing          until publication; the owner before it is queued and after publication
//   waker_, contested_       the owner before it is queued; read by the holder of the lock and by
//                            the one who decided
// Once announced, `missing` holds the mark of the releaser's thread.
//
// A wait may be one of several of which only one is to happen: then whoever wants to decide it
// under a primitive's lock claims their common choice first (core/choice.hpp).

#include <bide/core/backoff.hpp>
#include <bide/core/choice.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/thread_mark.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/spin.hpp>
#include <bide/core/waker.hpp>

#include <cstddef>

namespace bide::inline BIDE_ABI {

// What became of a wait. The first two are not outcomes; see the table above.
enum class wait_status : futex_word {
    waiting,
    parked,
    granted,
    closed,
    stopped,
    timed_out,
    no_memory
};

template <class Platform> class basic_waiter_queue;
template <class Platform> class basic_wake_list;

namespace detail {

// The place of a waiter in a list, and the end of such a list.
template <class Platform> struct waiter_link {
    typename Platform::template var<waiter_link*> next_{nullptr};
    typename Platform::template var<waiter_link*> prev_{nullptr};

    void unlink() noexcept {
        waiter_link* const next = next_;
        waiter_link* const prev = prev_;
        prev->next_ = next;
        next->prev_ = prev;
    }
};

} // namespace detail

template <class Platform> class basic_waiter : private detail::waiter_link<Platform> {
    using link = detail::waiter_link<Platform>;

public:
    // `amount`: how much is asked for, in the primitive's own measure. Without a waker the owner is
    // a thread, which calls park().
    explicit basic_waiter(std::ptrdiff_t asked = 1, waker wake = {}) noexcept
        : waker_(wake), amount(asked), missing(asked) {}
    basic_waiter(const basic_waiter&) = delete;
    basic_waiter& operator=(const basic_waiter&) = delete;

    // How many bytes of the node come before the word that the owner looks at.
    static constexpr std::size_t offset_of_outcome = 5 * sizeof(void*) + 2 * sizeof(std::ptrdiff_t);

    // --- the owner

    void set_waker(waker wake) noexcept { waker_ = wake; }

    // Makes it one of several waits. `wake` gets the choice as its context, and runs when this wait
    // was the one.
    void contest(waker::function wake, basic_choice<Platform>& with) noexcept {
        waker_ = waker(wake, &with);
        contested_ = true;
    }

    // The same for a choice that has an owner, whose waiter is granted then.
    void contest(basic_choice<Platform>& with) noexcept {
        contest(
            [](void* choice) noexcept {
                if (basic_waiter* const owner = owner_of(choice)) {
                    owner->publish(wait_status::granted);
                }
            },
            with);
    }

    // Order: acquire [W1]; a published outcome brings what the publisher did before. One that is
    // announced only is none yet.
    wait_status outcome() const noexcept {
        const wait_status seen = state_.load(std::memory_order_acquire);
        return is_announced(seen) ? wait_status::waiting : seen;
    }

    bool is_complete() const noexcept { return outcome() > wait_status::parked; }

    // Complete, or announced: its primitive may be gone.
    // Order: acquire [W1]; as outcome().
    bool is_decided() const noexcept {
        return state_.load(std::memory_order_acquire) > wait_status::parked;
    }

    // In no queue: it has not been queued since it was made or reset, or was withdrawn.
    bool is_idle() const noexcept { return phase_ == phase::idle; }

    // Waits until the outcome is published or the deadline has passed (false). Only a thread's
    // node. Looks for a while before it sleeps if it was the first in its queue: the others have
    // longer to wait than a look is worth.
    bool park(deadline until) noexcept;

    // park()'s look alone.
    void look() noexcept {
        if (was_first_) {
            basic_spin<Platform>::until([this]() noexcept { return is_complete(); });
        }
    }

    // park() without the look.
    bool sleep_through(deadline until) noexcept;

    // One sleep of park(): until the outcome, a rouse(), or the deadline (false).
    bool sleep(deadline until) noexcept;

    // The outcome of a wait that a releaser has decided. Where this thread is that releaser, and is
    // running the wakers of its release, the waker of this one will not run.
    // Blocks: until another thread has published it, which runs the wakers before this one first.
    wait_status await_outcome() noexcept;

    // An outcome that needed no waiting, or the owner's own decision. Nobody else looks at it.
    void settle(wait_status what) noexcept {
        // Order: relaxed; the owner tells itself.
        state_.store(what, std::memory_order_relaxed);
    }

    // --- a wait in no queue, which somebody ends: one step on the node's own word decides

    // The owner. False: it was ended already, and outcome() says how.
    bool begin_alone() noexcept {
        wait_status seen = wait_status::waiting;
        // Order: acq_rel [W2]; the node is seen by who ends the wait; failure: what that one did.
        return state_.compare_exchange_strong(seen, wait_status::parked, std::memory_order_acq_rel,
                                              std::memory_order_acquire);
    }

    // True: ended by this call, and its owner is to be woken. False: it was ended before, or has not
    // begun, and will not.
    bool end_alone(wait_status why) noexcept {
        wait_status seen = wait_status::parked;
        // Order: acq_rel [W2]; as above. Failure: look again.
        while (!state_.compare_exchange_strong(seen, why, std::memory_order_acq_rel,
                                               std::memory_order_relaxed)) {
            if (seen != wait_status::waiting && seen != wait_status::parked) {
                return false;
            }
        }
        return seen == wait_status::parked;
    }

    // Ready for another wait.
    void reset(std::ptrdiff_t asked) noexcept {
        settle(wait_status::waiting);
        phase_ = phase::idle;
        forbidden_ = wait_status::waiting;
        amount = missing = asked;
    }

    // --- the primitive, under its lock

    bool is_queued() const noexcept { return phase_ == phase::queued; }

    // A stop or a time-out that came before the wait was queued: queueing will be refused.
    void forbid(wait_status why) noexcept {
        if (phase_ == phase::idle) {
            forbidden_ = why;
        }
    }
    wait_status forbidden() const noexcept { return forbidden_; }

    bool has_waker() const noexcept { return static_cast<bool>(waker_); }

    // Before it is decided. True: it may be, and commit() or abandon() follows without waiting for
    // anything in between. False: another wait of the same choice was; take this one out.
    bool claim() const noexcept { return !contested_ || choice()->claim(); }
    void commit() const noexcept {
        if (contested_) {
            choice()->commit();
        }
    }
    void abandon() const noexcept {
        if (contested_) {
            choice()->abandon();
        }
    }
    // Its choice fell on another wait, and its owner has not taken it out yet. A false answer may
    // be old.
    bool is_lost() const noexcept { return contested_ && choice()->is_decided(); }

    basic_choice<Platform>* choice() const noexcept {
        return contested_ ? static_cast<basic_choice<Platform>*>(waker_.context()) : nullptr;
    }

    // Ends one sleep() of the owner without an outcome. True: it slept, and the caller owes it a
    // rouse_by(where()) after the lock was released.
    bool rouse() noexcept {
        wait_status seen = wait_status::parked;
        // Order: relaxed; it brings no news but itself.
        return state_.compare_exchange_strong(seen, wait_status::waiting, std::memory_order_relaxed,
                                              std::memory_order_relaxed);
    }

    using address = const typename Platform::template atomic<wait_status>*;
    address where() const noexcept { return &state_; }

    // By address alone: the waiter may be gone, for another may have granted it meanwhile.
    static void rouse_by(address word) noexcept {
        basic_spin<Platform>::measured_wake([word]() noexcept { futex_wake<Platform>(word, 1); });
    }

    // Withdrawn by its owner, a stop or a time-out: it may wait again.
    void withdrawn() noexcept { phase_ = phase::idle; }

    // --- who decided, after the lock was released

    // Publishes and wakes: nothing of the node is touched after that step.
    void publish(wait_status what) noexcept;

    // Its outcome is its owner's: the chosen case of a choice that has one.
    bool has_owner() const noexcept { return contested_ && choice()->owner() != nullptr; }

    // What publish() does, without granting the owner's waiter, which is returned: nullptr if that
    // does not wait yet.
    basic_waiter* publish_chosen(wait_status what) noexcept {
        basic_choice<Platform>* const with = choice();
        // Order: release [W1]; as publish(). The last touch of the node.
        state_.store(what, std::memory_order_release);
        return owner_of(with);
    }

    // What publish() does, in two steps, for one that has a waker and stands in a list of this
    // thread's: it is decided for all to see, but stays where it is;
    void announce(wait_status what) noexcept {
        missing = reinterpret_cast<std::ptrdiff_t>(detail::thread_mark<Platform>());
        // Order: release [W1]; the outcome brings everything before it.
        state_.store(announced_as(what), std::memory_order_release);
    }
    // and, when it was taken out of the list: nothing of the node is touched afterwards. Returns
    // the waker to be run.
    waker publish_announced() noexcept {
        const waker wake = waker_;
        // Order: relaxed; the publisher reads what it wrote.
        const wait_status what = announced_as(state_.load(std::memory_order_relaxed));
        // Order: release [W1]; the last touch of the node, and of the list that it stood in.
        state_.store(what, std::memory_order_release);
        return wake;
    }

private:
    friend class basic_waiter_queue<Platform>;
    friend class basic_wake_list<Platform>;

    enum class phase : unsigned char { idle, queued, decided };

    static constexpr futex_word announced = 8;

    // With the mark, or without it where it is set.
    static wait_status announced_as(wait_status what) noexcept {
        return static_cast<wait_status>(static_cast<futex_word>(what) ^ announced);
    }
    static bool is_announced(wait_status seen) noexcept {
        return (static_cast<futex_word>(seen) & announced) != 0;
    }

    static basic_waiter* owner_of(void* choice) noexcept {
        auto& with = *static_cast<basic_choice<Platform>*>(choice);
        return with.owner()(with);
    }

    template <class T> using var = typename Platform::template var<T>;

    waker waker_;

public:
    var<std::ptrdiff_t> amount;  // asked for
    var<std::ptrdiff_t> missing; // of it, not granted yet; or a thread's mark, see above

private:
    var<wait_status> forbidden_{wait_status::waiting};
    var<phase> phase_{phase::idle};
    bool was_first_ = false; // the owner's: nobody was queued before it
    bool contested_ = false;

    // Last, so that it can have a cache line of its own (thread_wait.hpp).
    typename Platform::template atomic<wait_status> state_{wait_status::waiting};
};

template <class Platform> bool basic_waiter<Platform>::park(deadline until) noexcept {
    look();
    return sleep_through(until);
}

template <class Platform> bool basic_waiter<Platform>::sleep_through(deadline until) noexcept {
    while (!is_complete()) {
        if (!sleep(until)) {
            return is_complete();
        }
    }
    return true;
}

template <class Platform> bool basic_waiter<Platform>::sleep(deadline until) noexcept {
    wait_status seen = wait_status::waiting;
    // Order: relaxed; it asks to be woken and publishes nothing. A failure finds the outcome, or
    // `parked` from a sleep that timed out.
    state_.compare_exchange_strong(seen, wait_status::parked, std::memory_order_relaxed,
                                   std::memory_order_relaxed);
    // Order: relaxed; outcome() acquires.
    while (state_.load(std::memory_order_relaxed) == wait_status::parked) {
        if (!futex_wait<Platform>(state_, wait_status::parked, until)) {
            return false;
        }
    }
    return true;
}

template <class Platform> wait_status basic_waiter<Platform>::await_outcome() noexcept {
    for (basic_backoff<Platform> again; !is_decided(); again()) {
    }
    // Order: acquire [W1]; where the node stands, and in whose list.
    const wait_status seen = state_.load(std::memory_order_acquire);
    if (is_announced(seen) &&
        missing == reinterpret_cast<std::ptrdiff_t>(detail::thread_mark<Platform>())) {
        link::unlink();
        settle(announced_as(seen));
    }
    for (basic_backoff<Platform> again; !is_complete(); again()) {
    }
    return outcome();
}

template <class Platform> void basic_waiter<Platform>::publish(wait_status what) noexcept {
    if (const waker wake = waker_) { // the owner does not sleep on the word
        // Order: release [W1]; the outcome brings everything before it to the owner.
        state_.store(what, std::memory_order_release);
        wake.wake();
        return;
    }
    const address word = where();
    // Order: release [W1]; as above.
    if (state_.exchange(what, std::memory_order_release) == wait_status::parked) {
        rouse_by(word);
    }
}

} // namespace bide::inline BIDE_ABI

#endif
