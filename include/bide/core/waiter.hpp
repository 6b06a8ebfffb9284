// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_WAITER_HPP
#define BIDE_CORE_WAITER_HPP

/// \file
/// Represents one wait: a node in the queue of a primitive. The node lies in the frame of its
/// owner, the thread or coroutine that waits.
//
// A wait ends in two steps. First, one thread, the decider, decides the wait under the lock of the
// primitive: it moves `phase_`, a member of the node, from queued to decided. A wait is decided
// only once, and from then on only the decider may set the outcome. Second, after it has released
// that lock, the decider publishes the outcome by one atomic operation on `state_`, another member.
// This is the decider's last access to the node. An owner that sees the outcome may return and free
// the node and the primitive.
//
//   state_        meaning
//   waiting       Not published. The owner has a waker, or is a thread that does not sleep.
//   parked        Not published. The owner is a thread that sleeps on this word or is about to.
//   granted ...   Published: the outcome of the wait.
//   + announced   An outcome with one more bit: decided but not published. The primitive may be
//                 destroyed. The node is in a list of the thread that decided the wait. That
//                 thread publishes the outcome just before it runs the waker.
//
// One release of a primitive may decide several waits. The thread that makes the release is called
// the releaser. First it announces the waits that have wakers (stores an outcome with the bit
// `announced`). Then it publishes the waits of threads. Then it runs the wakers one by one. A waker
// may cancel any other wait of the same release, or destroy the coroutine of that wait, because all
// outcomes are announced already. In both cases, the node of that wait leaves the list, and the
// waker of that node does not run. If another thread cancels such a wait, that thread blocks until
// the node is published (await_outcome()). If a waker makes a release itself, the nodes of that
// release are appended to the list.
//
//   field                    accessed by
//   next_, prev_, phase_,    The holder of the primitive's lock. After the decision: the decider,
//   request_, missing        until the publication. The owner: before it queues the node and after
//                            the publication.
//   waker_, contested_       Written by the owner before it queues the node. Read by the holder of
//                            the lock and by the decider.
//
// A releaser that announces a node stores in `missing` the thread_mark() of its thread, an address
// that no other running thread has (core/platform.hpp).
//
// A wait may be a case of a select, which completes exactly one of its waits. The cases of a select
// share one object, the choice (basic_choice), which records whether a case has completed. Before a
// decider decides such a wait, it claims the choice, that is, locks it.

#include <bide/core/detail/noted.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/spin.hpp>
#include <bide/core/wait_status.hpp>

namespace bide { inline namespace BIDE_ABI {

template <class Platform> class basic_waiter;
template <class Platform> class basic_waiter_queue;
template <class Platform> class basic_wake_list;

namespace detail {

// Is set in `state_` while a wait is announced: decided but not published.
inline constexpr futex_word announced = 16;

// Returns `what` with that bit inverted.
inline wait_status announced_as(wait_status what) noexcept {
    return static_cast<wait_status>(static_cast<futex_word>(what) ^ announced);
}
inline bool is_announced(wait_status seen) noexcept {
    return (static_cast<futex_word>(seen) & announced) != 0;
}

// The link of a waiter in a list. The end of a list is a link without a waiter.
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

/// Decides which one of several waits completes. The waits of one select, its cases, share a
/// choice.
//
// The state is one word:
//
//   bit 0, 1   A releaser holds the claim (core/lock_bits.hpp).
//   decided    One case has happened. This bit never changes again.
//
// A releaser claims the choice of a case, that is, locks it, before it moves an item to or from
// that case. It does so under the lock of the case's primitive. It ends the claim by commit(), or
// by abandon() if there is no item to move. If another releaser holds the claim, the releaser waits
// for the end of that claim. It must not skip the case instead: if the other releaser then
// abandoned its claim, the case would sleep although its item is there.
//
// Claims cannot deadlock. A releaser that holds a claim waits for nothing but a second claim. It
// needs two claims only if it matches a sender and a receiver that are both cases of selects. It
// then claims the choice with the lower address first.
template <class Platform> class basic_choice {
public:
    /// A function that returns the waiter of the owner: the thread or coroutine that waits for all
    /// cases. It returns nullptr if the owner does not wait yet. After a releaser has published the
    /// outcome of the chosen case, it calls this function, and grants the waiter that the function
    /// returns.
    using owner_of = basic_waiter<Platform>* (*)(basic_choice&) noexcept;

    /// Makes an undecided choice. Without `found_by`, each case has a waker of its own.
    explicit basic_choice(owner_of found_by = nullptr) noexcept : owner_(found_by) {}
    basic_choice& operator=(basic_choice&&) = delete;

    /// Claims the choice. Until commit() or abandon(), no other releaser can decide it.
    /// Blocks: while another releaser holds the claim.
    /// Returns: false if the choice is decided.
    bool claim() noexcept {
        if (is_decided()) {
            return false;
        }
        const bool open = (lock::acquire(word_) & decided) == 0;
        if (!open) {
            lock::release(word_);
        }
        return open;
    }

    /// Returns the function that finds the owner's waiter; nullptr if each case has its own waker.
    owner_of owner() const noexcept { return owner_; }

    /// Decides the choice and ends the claim.
    void commit() noexcept { lock::release_as(word_, decided); }
    /// Ends the claim and leaves the choice open.
    void abandon() noexcept { lock::release(word_); }

    /// Returns whether the choice is decided.
    // Order: relaxed; the decision carries no data. The data come with the publication of the
    // outcome [waiter.outcome].
    bool is_decided() const noexcept {
        return (word_.load(std::memory_order_relaxed) & decided) != 0;
    }

private:
    using word = std::uint64_t; // the type of most primitives' words: all share one lock function
    using lock = lock_bits<Platform, word>;
    static constexpr word decided = 4;

    const owner_of owner_;
    typename Platform::template atomic<word> word_{0};
};

/// Is the node of one wait. The functions are grouped by their callers.
template <class Platform> class basic_waiter : private detail::waiter_link<Platform> {
    using link = detail::waiter_link<Platform>;

    static constexpr waker no_waker{};

public:
    /// Makes a wait for `asked` units of the primitive. If there is no waker, the owner is a
    /// thread, which calls park().
    explicit basic_waiter(std::ptrdiff_t asked = 1, waker wake = no_waker) noexcept
        : waker_(wake), request_(request{asked}), missing(asked) {}
    basic_waiter& operator=(basic_waiter&&) = delete;

    /// Counts the bytes of the node before `state_`, the word that the owner reads while it waits.
    static constexpr std::size_t offset_of_outcome = 5 * sizeof(void*) + 2 * sizeof(std::ptrdiff_t);

    // --- called by the owner

    /// Sets the waker, before the wait is queued, and returns the previous one.
    waker set_waker(waker wake) noexcept { return std::exchange(waker_, wake); }

    /// Makes this wait a case of `with`. If this case is selected, `wake` runs with the choice as
    /// context.
    void contest(waker::function wake, basic_choice<Platform>& with) noexcept {
        waker_ = waker(wake, &with);
        contested_ = true;
    }

    /// Makes this wait a case of a choice with an owner. If this case is selected, its waker grants
    /// the owner's waiter.
    void contest(basic_choice<Platform>& with) noexcept {
        const auto grant = [](void* choice) noexcept {
            if (basic_waiter* const owner = owner_of(choice)) {
                owner->publish(wait_status::granted);
            }
        };
        contest(grant, with);
    }

    /// Returns the published outcome. If none is published, returns `waiting` or `parked`. If the
    /// outcome is only announced, returns `waiting`.
    // Order: acquire [waiter.outcome]; the reader sees what the publisher did before.
    wait_status outcome() const noexcept {
        const wait_status seen = state_.load(std::memory_order_acquire);
        return detail::is_announced(seen) ? wait_status::waiting : seen;
    }

    /// Returns whether the outcome is published.
    bool is_complete() const noexcept { return outcome() > wait_status::parked; }

    /// Returns whether the outcome is published or announced. The primitive may then be gone.
    bool is_decided() const noexcept {
        // Order: relaxed; a caller that needs what the publisher did reads outcome(), too.
        return state_.load(std::memory_order_relaxed) > wait_status::parked;
    }

    /// Returns whether a release on this thread has announced the wait and not run its waker yet.
    bool is_announced_here() const noexcept {
        // Order: acquire [waiter.outcome]; sees what the releaser has stored in `missing`.
        return detail::is_announced(state_.load(std::memory_order_acquire)) &&
               missing == reinterpret_cast<std::ptrdiff_t>(detail::thread_mark<Platform>());
    }

    /// Returns whether the node was withdrawn, or was not queued since its construction or last
    /// reset().
    bool is_idle() const noexcept { return phase_ == phase::idle; }

    /// Waits for the outcome. If the node was the first in its queue when it was queued, spins
    /// before it sleeps. Later nodes do not spin, because they wait longer than a spin takes.
    /// Blocks: until the outcome is published or the deadline has passed.
    /// Requires: the node has no waker.
    /// Returns: false if the deadline has passed and there is no outcome.
    bool park(deadline until) noexcept {
        spin();
        return sleep_through(until);
    }

    /// Spins if the node was the first in its queue when it was queued. Does not sleep.
    void spin() noexcept {
        if (was_first_) {
            basic_spin<Platform>::until([this]() noexcept { return is_complete(); });
        }
    }

    /// Waits until the outcome is published or the deadline has passed. Does not spin.
    /// Returns: false if the deadline has passed and there is no outcome.
    bool sleep_through(deadline until) noexcept {
        while (!is_complete()) {
            if (!sleep(until)) {
                return is_complete();
            }
        }
        return true;
    }

    /// Sleeps once.
    /// Blocks: until the outcome is published, rouse(), or the deadline.
    /// Returns: false if the deadline has passed.
    BIDE_COLD bool sleep(deadline until) noexcept {
        wait_status seen = wait_status::waiting;
        // Order: relaxed; the owner asks for a wake and publishes no data. After a failure the word
        // holds the outcome, or `parked` from a sleep that timed out.
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

    /// Waits for the outcome of a wait that a releaser has decided. If the calling thread is that
    /// releaser, the caller runs inside of a waker of the same release. In this case, takes the
    /// node out of the release, and the node's waker does not run.
    /// Blocks: if another thread is the releaser, until that thread has published the outcome.
    /// Until then, the releaser may run the wakers of earlier waits of the release.
    BIDE_NOINLINE wait_status await_outcome() noexcept {
        for (basic_backoff<Platform> again; !is_decided(); again()) {
        }
        if (is_announced_here()) {
            link::unlink();
            // Order: relaxed; this thread has stored the announced outcome.
            settle(detail::announced_as(state_.load(std::memory_order_relaxed)));
        }
        for (basic_backoff<Platform> again; !is_complete(); again()) {
        }
        return outcome();
    }

    /// Sets an outcome that only the owner reads: the owner decided the wait or needed no wait.
    void settle(wait_status what) noexcept {
        // Order: relaxed; the owner is the only reader.
        state_.store(what, std::memory_order_relaxed);
    }

    // --- a wait in no queue: one atomic operation on the node's own word decides it

    /// Called by the owner. Begins a wait that is in no queue and that end_alone() ends.
    /// Returns: false if the wait was ended already; then outcome() returns its outcome.
    bool begin_alone() noexcept {
        wait_status seen = wait_status::waiting;
        // Order: release [waiter.alone]; the thread that ends the wait sees the node. Failure:
        // acquire; the owner sees what that thread did.
        return state_.compare_exchange_strong(seen, wait_status::parked, std::memory_order_release,
                                              std::memory_order_acquire);
    }

    /// Ends a wait that is in no queue. Called by any thread.
    /// Returns: true if this call ended the wait; the caller then wakes the owner. False if the
    /// wait was ended before. Also false if the wait has not begun: the next begin_alone() then
    /// returns false.
    bool end_alone(wait_status why) noexcept {
        wait_status seen = wait_status::parked;
        // Order: acq_rel [waiter.alone]; acquire: sees the node. Release: the owner sees what this
        // thread did. Failure: relaxed, the loop tries again.
        while (!state_.compare_exchange_strong(seen, why, std::memory_order_acq_rel,
                                               std::memory_order_relaxed)) {
            if (seen != wait_status::waiting && seen != wait_status::parked) {
                return false;
            }
        }
        return seen == wait_status::parked;
    }

    /// Prepares the node for another wait.
    void reset(std::ptrdiff_t asked) noexcept {
        settle(wait_status::waiting);
        phase_ = phase::idle;
        forbidden_ = wait_status::waiting;
        ask(asked);
    }

    /// Asks for `amount` units, before the wait is queued.
    void ask(std::ptrdiff_t amount) noexcept {
        request_ = request{amount};
        missing = amount;
    }
    /// Sets the object that an item is moved from or to. Replaces ask().
    template <class T> void carry(T& place) noexcept {
        request_ = request{.place = __builtin_addressof(place)};
    }

    // --- called by the primitive, under its lock

    /// Returns how many units the wait asks for.
    std::ptrdiff_t amount() const noexcept { return static_cast<request>(request_).amount; }
    /// Returns the object of carry(). Requires: it is a T.
    template <class T> T& carried() const noexcept {
        return *static_cast<T*>(static_cast<request>(request_).place);
    }

    /// Returns whether the node is in a queue.
    bool is_queued() const noexcept { return phase_ == phase::queued; }

    /// Records a stop or a time-out that came before the wait was queued: the wait is then refused.
    void forbid(wait_status why) noexcept {
        if (phase_ == phase::idle) {
            forbidden_ = why;
        }
    }
    /// Returns what forbid() recorded; `waiting` if it recorded nothing.
    wait_status forbidden() const noexcept { return forbidden_; }

    /// Returns whether the node has a waker. If not, its owner is a thread.
    bool has_waker() const noexcept { return static_cast<bool>(waker_); }

    /// Called before the wait is decided. If the wait is a case of a select, claims the choice.
    /// Returns: true if the wait may be decided; the caller then calls commit() or abandon() and
    /// waits for nothing in between. False if the choice has selected another wait; the caller then
    /// takes this wait out of the queue.
    bool claim() const noexcept { return !contested_ || choice()->claim(); }
    /// Decides the choice for this wait and ends the claim.
    void commit() const noexcept {
        if (contested_) {
            choice()->commit();
        }
    }
    /// Ends the claim and leaves the choice open.
    void abandon() const noexcept {
        if (contested_) {
            choice()->abandon();
        }
    }
    /// Returns whether the choice is decided for another wait. A false answer may be outdated.
    bool is_lost() const noexcept { return contested_ && choice()->is_decided(); }

    /// Returns the choice of this wait; nullptr if it has none.
    basic_choice<Platform>* choice() const noexcept {
        return contested_ ? static_cast<basic_choice<Platform>*>(waker_.context()) : nullptr;
    }

    /// Ends one sleep() of the owner although there is no outcome.
    /// Returns: true if the owner sleeps. The caller then releases the lock and calls rouse_by()
    /// with the result of where().
    bool rouse() noexcept {
        wait_status seen = wait_status::parked;
        // Order: relaxed; the change of state carries no data.
        return state_.compare_exchange_strong(seen, wait_status::waiting, std::memory_order_relaxed,
                                              std::memory_order_relaxed);
    }

    /// Is the address that the owner sleeps on.
    using address = const typename Platform::template atomic<wait_status>*;
    address where() const noexcept { return &state_; } ///< Returns that address.

    /// Wakes the owner. Uses the address only: the node may be destroyed, because another releaser
    /// may have granted the wait meanwhile.
    BIDE_COLD static void rouse_by(address word) noexcept {
        basic_spin<Platform>::measured_wake([word]() noexcept { futex_wake<Platform>(word, 1); });
    }

    /// Marks the node as withdrawn: by its owner, by a stop or by a time-out. It may wait again.
    void withdrawn() noexcept { phase_ = phase::idle; }

    // --- called by the decider, after it has released the lock

    /// Publishes the outcome and wakes the owner. The publication is the last access to the node.
    void publish(wait_status what) noexcept {
        if (const waker wake = waker_) { // the owner does not sleep on the word
            // Order: release [waiter.outcome]; the owner sees what came before the outcome.
            state_.store(what, std::memory_order_release);
            wake.wake();
            return;
        }
        publish_to_thread(what);
    }
    /// Publishes the outcome of a node without a waker, and wakes the owner.
    void publish_to_thread(wait_status what) noexcept {
        const address word = where();
        // Order: release [waiter.outcome]; the owner sees what came before the outcome.
        if (state_.exchange(what, std::memory_order_release) == wait_status::parked) {
            rouse_by(word);
        }
    }

    /// Returns whether this wait is a case of a choice that has an owner.
    bool has_owner() const noexcept { return contested_ && choice()->owner() != nullptr; }

    /// Publishes the outcome of the selected case, but does not grant the owner's waiter.
    /// Returns: the owner's waiter; nullptr if the owner does not wait yet.
    basic_waiter* publish_chosen(wait_status what) noexcept {
        basic_choice<Platform>* const with = choice();
        // Order: release [waiter.outcome]; the owner sees what came before. The last access.
        state_.store(what, std::memory_order_release);
        return owner_of(with);
    }

    /// Announces the outcome of a node that has a waker. Every thread then sees that the wait is
    /// decided. The node stays in a list of this thread until publish_announced(). The two calls
    /// replace publish().
    void announce(wait_status what) noexcept {
        missing = reinterpret_cast<std::ptrdiff_t>(detail::thread_mark<Platform>());
        // Order: release [waiter.outcome]; the reader sees what came before the outcome.
        state_.store(detail::announced_as(what), std::memory_order_release);
    }
    /// Publishes the announced outcome, after the node was taken out of the list. This is the last
    /// access to the node.
    /// Returns: the waker that the caller has to run.
    waker publish_announced() noexcept {
        const waker wake = waker_;
        // Order: relaxed; the publisher reads what it wrote.
        const wait_status what = detail::announced_as(state_.load(std::memory_order_relaxed));
        // Order: release [waiter.outcome]; the owner sees what came before the outcome.
        state_.store(what, std::memory_order_release);
        return wake;
    }

private:
    friend class basic_waiter_queue<Platform>;
    friend class basic_wake_list<Platform>;

    enum class phase : unsigned char { idle, queued, decided };

    static basic_waiter* owner_of(void* choice) noexcept {
        auto& with = *static_cast<basic_choice<Platform>*>(choice);
        return with.owner()(with);
    }

    template <class T> using var = typename Platform::template var<T>;
    union request {
        std::ptrdiff_t amount;
        void* place;
    };

    waker waker_;
    var<request> request_;

public:
    /// Counts the units that are not granted yet. After announce(), identifies the releaser.
    var<std::ptrdiff_t> missing;

private:
    var<wait_status> forbidden_{wait_status::waiting};
    var<phase> phase_{phase::idle};
    bool contested_ = false, was_first_ = false; // was_first_: first in its queue when queued
    // The last member, so that it can have a cache line of its own (thread_wait).
    typename Platform::template atomic<wait_status> state_{wait_status::waiting};
};

// ---- The queue of a primitive
//
// Queues the waiters of a primitive, first in, first out, and publishes those that a release
// grants.
//
// The queue is an intrusive circular list. One pointer leads to its last node, and the `next_` of
// the last node is the first node. The primitive calls the queue under its own lock.

template <class Platform> class wakers_later;

/// Collects waiters that were decided under a lock, and publishes them after that lock is released.
/// The waiters are chained through their own links, so their number has no limit.
///
/// Wakers run inside publish(), first in, first out. If a waker releases other waiters, the inner
/// publish() only marks them as decided (basic_waiter::announce()). The outermost publish() of the
/// thread then runs their wakers. So the depth of the stack does not grow. If a waker blocks in
/// bide (core/futex.hpp), its thread runs the later wakers before it sleeps.
///
/// All outcomes are visible before the first waker runs. A waker may cancel later waiters of the
/// list, or destroy their coroutines. In both cases, these waiters leave the list and their wakers
/// do not run.
/// Requires: the caller of publish() holds no lock.
template <class Platform> class BIDE_SHARED basic_wake_list {
public:
    /// Is the node type.
    using waiter = basic_waiter<Platform>;

    /// Makes an empty list.
    basic_wake_list() noexcept = default;
    basic_wake_list& operator=(basic_wake_list&&) = delete;

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

    static resume_state& state() noexcept { return Platform::template near_local<resume_state>(); }

    // Returns the list that takes the wakers of this thread's releases (waker_redirect::list()).
    // Returns nullptr if a release runs its wakers itself.
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

    // Publishes the outcome to all waiters, of which at least one has a waker. Announces them
    // first, so that each outcome is visible before the first waker runs. A single waiter whose
    // waker runs in this call needs no announcement.
    BIDE_NOINLINE void publish_wakers(wait_status what) noexcept {
        resume_state& mine = state();
        if (last_thread_ == nullptr && wakers_.next_ == wakers_.prev_ && taker(mine) == nullptr) {
            return run_wakers_now(mine, what);
        }
        announce(what);
        run_wakers(mine);
    }

    // Publishes the waiters of threads, and announces the waiters that have wakers. If a waiter is
    // the selected case of a choice with an owner, publishes that case at once. If the owner's
    // waiter has a waker, the owner's waiter then takes the place of the case in the list.
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

    // Runs the wakers of the announced waiters, or moves the waiters to the list that taker()
    // returns.
    void run_wakers(resume_state& mine) noexcept {
        if (has_no_waker()) {
            return;
        }
        if (basic_wake_list* const later = taker(mine)) {
            return later->take_over(*this);
        }
        run_wakers_now(mine, wait_status::waiting);
    }
    // Runs the wakers. If `single` is an outcome, first publishes it to the only waiter of the
    // list, which is not announced.
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
        while (!list.has_no_waker()) { // a waker may take waiters out, or release others
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
    basic_waiter_queue& operator=(basic_waiter_queue&&) = delete;

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
    /// Returns: `waiting` if `w` was appended. Otherwise the outcome, `stopped` or `timed_out`;
    /// then `w` is in no queue.
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
        push(w); // behind the last node: in a circle, that is before the first one
        if (last != nullptr) {
            last_ = last;
        }
        w.was_first_ = true;
    }

    /// Queues `w` in the place of `old`. The wait of `old` leaves the queue and is not decided.
    /// Called by the owner of both waiters.
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

    /// Takes `w` out of the queue, from any position. This decides the wait, and the caller becomes
    /// its decider.
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

    /// Returns the waiter behind `w`; nullptr if `w` is the last. Requires: `w` is in this queue.
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

/// If `what` is an outcome, settles the wait with it. Called by the owner. Returns `what`.
template <class Platform>
wait_status settle_if_over(basic_waiter<Platform>& w, wait_status what) noexcept {
    if (what != wait_status::waiting) {
        w.settle(what);
    }
    return what;
}

// ---- The wait of a thread
//
// The wait of a thread in the queue of a primitive. A primitive Q has
//
//   wait_status enqueue(waiter&) noexcept;
//   bool cancel(waiter&, wait_status) noexcept;
//   bool await(waiter&, deadline);
//
// If enqueue() has queued the waiter, it returns `waiting`. Otherwise it returns the outcome.
// cancel() returns true if it took the waiter out. It returns false if the wait is decided already,
// or if the waiter is not queued yet; in the second case a later enqueue() refuses the waiter.
// await() is optional and replaces waiter::park().

/// Blocks a thread in the queue of a primitive.
template <class Q, class Platform> struct thread_wait {
    /// A node in the queue.
    using waiter = basic_waiter<Platform>;

    /// Waits for `amount` until the deadline. The caller has already tried without waiting.
    /// Blocks: until the wait is decided. If the deadline is deadline::poll(), does not block.
    /// Returns: the outcome; timed_out if the deadline is deadline::poll().
    BIDE_NOINLINE static wait_status until(Q& queue, std::ptrdiff_t amount, deadline end) noexcept {
        return wait(queue, amount, end, !end.is_never(), [](waiter&) noexcept { return 0; });
    }

    /// Waits for `amount` until a stop is requested, or until the deadline.
    /// Blocks: until the wait is decided. If the deadline is deadline::poll(), does not block.
    /// Returns: the outcome.
    BIDE_NOINLINE static wait_status until(Q& queue, std::ptrdiff_t amount,
                                           const typename Platform::stop_token& token,
                                           deadline end = deadline::never()) noexcept {
        // The callback runs on the thread that requests the stop. If the stop was requested
        // already, the callback runs here at once. The callback may access the primitive: the
        // destructor of the callback waits until a running callback has ended, and the primitive
        // exists until this wait has returned.
        return wait(queue, amount, end, token.stop_possible(), [&](waiter& one) noexcept {
            const auto stop = [&queue, &one]() noexcept {
                const wake_scope<Platform> away(detail::post_all{});
                if (!one.is_complete() && queue.cancel(one, wait_status::stopped)) {
                    one.publish(wait_status::stopped);
                }
            };
            return typename Platform::template stop_callback<std::remove_const_t<decltype(stop)>>(
                token, stop);
        });
    }

private:
    // Places the node on two cache lines. The releaser reads and writes the first line. The second
    // line contains the word that the owner polls.
    struct alignas(64) placed {
        explicit placed(std::ptrdiff_t amount) noexcept : w(amount) {}
        std::byte before[64 - waiter::offset_of_outcome];
        waiter w;
    };

    // arm(w) arms the stop callback, if there is one. It returns an object that exists while the
    // wait lasts.
    template <class Arm>
    BIDE_INLINE static wait_status wait(Q& queue, std::ptrdiff_t amount, deadline end,
                                        [[maybe_unused]] bool may_end_early, Arm arm) noexcept {
        if (end.is_poll()) {
            return wait_status::timed_out;
        }
        placed place(amount);
        waiter& w = place.w;
        BIDE_PROBE_WAIT(queue, w);
        BIDE_CHECKED(const detail::noted_wait<Platform> noted(
                         &w, detail::subject_of_queue(queue, amount), may_end_early);)
        [[maybe_unused]] const auto armed = arm(w);
        if (const wait_status what = queue.enqueue(w); what != wait_status::waiting) {
            return what;
        }
        if (!await(queue, w, end)) {
            if (queue.cancel(w, wait_status::timed_out)) {
                return wait_status::timed_out;
            }
            await(queue, w, deadline::never()); // the decider is about to publish
        }
        return w.outcome();
    }
    static bool await(Q& queue, waiter& w, deadline end) noexcept {
        if constexpr (requires { queue.await(w, end); }) {
            return queue.await(w, end);
        } else {
            return w.park(end);
        }
    }
};

BIDE_COMPILED_TEMPLATE(class basic_waiter<native_platform>)
BIDE_COMPILED_TEMPLATE(class basic_wake_list<native_platform>)
BIDE_COMPILED_TEMPLATE(class basic_waiter_queue<native_platform>)

}} // namespace bide::BIDE_ABI

#endif
