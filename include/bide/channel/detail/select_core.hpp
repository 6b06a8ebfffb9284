// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_SELECT_CORE_HPP
#define BIDE_CHANNEL_DETAIL_SELECT_CORE_HPP

// The part of a select that does not depend on the types of its cases. A select has several waits,
// each in the queue of its own primitive, and exactly one of them happens. The steps of a select
// are:
//
//   try      The owner tries each case alone, in a random order. The first that can happen does.
//   begin    The owner enqueues one node for each case. All nodes share one choice
//            (core/waiter.hpp).
//   decide   A thread that can grant a case claims the choice under the primitive's lock, moves the
//            item, and commits: from there on the case has happened. A time-out, a deadline and a
//            stop do the same. In a try_select, the owner claims the choice when all nodes are
//            queued. If it succeeds, no case has happened.
//   publish  That thread publishes the node of the case, and then the waiter of the select's owner.
//   end      The owner takes the other nodes out of their queues, and collects the result.
//
// A try_select enqueues its cases too. If it only tried one case after the other, it could miss an
// item that moves in between: out of a case that is not tried yet, into a case that was tried
// already.
//
// A case may happen while the owner still enqueues other cases. A coroutine must not resume before
// its last node is queued. So the owner and the thread that decides each set a bit of `progress_`,
// and the second of the two lets the owner proceed [select.progress].
//
//   progress_   begun: all nodes are queued     over: a case has happened, or the wait was ended

#include <bide/core/resume.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>

#include <optional>
#include <stop_token>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The time of a time-out or a deadline: relative to the start of the wait, or a point in time.
class select_timeout {
public:
    select_timeout() noexcept = default;
    explicit select_timeout(deadline at) noexcept : at_(at) {}
    template <class R, class P>
    explicit select_timeout(const std::chrono::duration<R, P>& rest)
        : rest_(rest > rest.zero() ? deadline::saturated_ns(rest) : 0), is_rest_(true) {}

    deadline from_now() const noexcept { return is_rest_ ? deadline::after(rest_) : at_; }

private:
    deadline at_ = deadline::never();
    std::chrono::nanoseconds rest_{0};
    bool is_rest_ = false;
};

// One case. A time-out is last: it is queued after all other cases, if none could happen at once.
template <class Platform> struct select_entry {
    const wait_steps<Platform>* how = nullptr; // nullptr: never happens
    wait_target target;
    const select_timeout* timeout = nullptr; // of a time-out or a deadline
    deadline until = deadline::never();      // when it comes
    bool is_last = false;
    bool queued = false;
    basic_waiter<Platform> node;
};

template <class Platform> class basic_select_core : private basic_choice<Platform> {
public:
    using node = basic_waiter<Platform>;
    using entry = select_entry<Platform>;

    basic_select_core() noexcept : basic_choice<Platform>(&on_case) {}

    // Pointers to the entries of the cases, in an array of the owner.
    struct entries {
        entry** first;
        std::size_t count;

        entry** begin() const noexcept { return first; }
        entry** end() const noexcept { return first + count; }
    };

    // Tries the cases. Puts the entries into the order in which they are tried and enqueued: a
    // random one, unless `biased`.
    BIDE_INLINE bool try_all(entries all, bool biased) noexcept {
        // Fisher and Yates's shuffle, as far as it is needed: each place is drawn when it is tried.
        for (std::size_t i = 0; i < all.count; ++i) {
            if (!biased) {
                std::swap(all.first[i], all.first[i + any_below(all.count - i)]);
            }
            entry& e = *all.first[i];
            if (e.how != nullptr) {
                if (const wait_status what = e.how->try_now(e.target);
                    what != wait_status::waiting) {
                    e.node.settle(what);
                    tried_ = &e;
                    return true;
                }
            }
        }
        return false;
    }

    // Enqueues the cases; call it after try_all(). Returns true if a case has happened or the
    // select was ended; `main` is not published then. If `timers` is true, timers end time-outs and
    // deadlines; otherwise the owner reads the clock.
    BIDE_NOINLINE bool begin(entries all, node& main, bool timers) noexcept {
        main_ = &main;
        for (const bool last : {false, true}) {
            for (std::size_t i = 0; i < all.count && !this->is_decided(); ++i) {
                entry& e = *all.first[i];
                if (e.how == nullptr || e.is_last != last) {
                    continue;
                }
                if (e.timeout != nullptr && !timers) { // the owner reads the clock itself
                    e.until = e.timeout->from_now();
                    if (e.until.has_passed() && end_by_owner(e)) {
                        return true;
                    }
                    continue;
                }
                e.node.reset(1);
                e.node.contest(*this);
                e.queued = true;
                if (e.how->enqueue(e.target, e.node)) {
                    return true;
                }
            }
        }
        if (const wait_status forbidden = main.forbidden();
            forbidden != wait_status::waiting && end_by_owner()) {
            main.settle(forbidden);
            return true;
        }
        // Order: acq_rel [select.progress]; see on_case.
        if ((progress_.fetch_or(begun, std::memory_order_acq_rel) & over) == 0) {
            return false;
        }
        main.settle(ended_);
        return true;
    }

    // Blocks the thread until a case happens, or until a time-out or a deadline ends the wait. If
    // `may_wait` is false, ends the wait at once unless a case has happened. Call it after
    // try_all().
    BIDE_NOINLINE void wait(entries all, bool may_wait) noexcept {
        node main;
        BIDE_CHECKED(const noted_wait<Platform> noted(&main, {nullptr, "a select"}, true);)
        if (begin(all, main, false)) {
            return;
        }
        if (may_wait ? park(all, main) : !end_by_owner()) {
            main.sleep_through(deadline::never()); // it is complete, or about to be published
        }
    }

    // Ends the whole select, for a stop or a time-out. Returns false if a case has happened. Also
    // returns false if the owner has not queued all cases yet. The owner then notices the end when
    // it has queued them.
    BIDE_NOINLINE bool cancel(wait_status why) noexcept {
        if (!this->claim()) {
            return false;
        }
        this->commit();
        ended_ = why;
        // Order: acq_rel [select.progress]; see on_case.
        return (progress_.fetch_or(over, std::memory_order_acq_rel) & begun) != 0;
    }

    // Takes the nodes out of their queues. Returns the case that has happened, or nullptr.
    BIDE_INLINE entry* finish(entries all) noexcept {
        return tried_ != nullptr ? tried_ : take_out(all);
    }

private:
    static constexpr futex_word begun = 1;
    static constexpr futex_word over = 2;
    static constexpr std::int64_t spin_budget_ns = 10'000;

    struct dice {
        std::uint32_t state = 0;
    };

    // Called by the owner: ends the select. Returns false if a case has happened.
    bool end_by_owner() noexcept {
        if (!this->claim()) {
            return false;
        }
        this->commit();
        return true;
    }
    bool end_by_owner(entry& e) noexcept {
        const bool ended = end_by_owner();
        if (ended) {
            e.node.settle(wait_status::granted);
        }
        return ended;
    }

    // Returns a random number from 0 to n - 1; 0 in a model.
    BIDE_NOINLINE static std::size_t any_below(std::size_t n) noexcept {
        if (Platform::model || n < 2) {
            return 0;
        }
        if (auto* const simulated = simulated_machine::here()) [[unlikely]] {
            return integer_cast<std::size_t>(((simulated->random() >> 32) * n) >> 32);
        }
        // Marsaglia, "Xorshift RNGs", 2003. A thread makes its seed from the time and the address
        // of its state, mixed as in Steele, Lea, Flood, "Fast Splittable Pseudorandom Number
        // Generators", 2014. So the seeds of two threads differ, even if the state of both has the
        // same address at different times, or adjacent addresses at the same time.
        std::uint32_t& x = Platform::template local<dice>().state;
        if (x == 0) {
            std::uint64_t seed = static_cast<std::uint64_t>(Platform::now()) +
                                 reinterpret_cast<std::uintptr_t>(&x) * 0x9e3779b97f4a7c15;
            seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9;
            seed = (seed ^ (seed >> 27)) * 0x94d049bb133111eb;
            x = static_cast<std::uint32_t>(seed >> 32) | 1;
        }
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        return integer_cast<std::size_t>((std::uint64_t{x} * n) >> 32);
    }

    // Runs after a case has happened. Returns the waiter of the owner, which the caller publishes;
    // nullptr if the owner does not wait. Without such a waiter, the step on `progress_` is the
    // last access to the select.
    static node* on_case(basic_choice<Platform>& choice) noexcept {
        auto& self = static_cast<basic_select_core&>(choice);
        node* const main = self.main_;
        // Order: acq_rel [select.progress]; the owner that queued the last node sees the case that
        // has happened, or this thread sees all that the owner has queued.
        const futex_word before = self.progress_.fetch_or(over, std::memory_order_acq_rel);
        return (before & begun) != 0 ? main : nullptr;
    }

    BIDE_NOINLINE static auto take_out(entries all) noexcept -> entry* {
        entry* happened = nullptr;
        for (entry* const e : all) {
            if (e->node.is_complete()) {
                happened = e; // its primitive may be destroyed already
            } else if (e->queued) {
                e->how->cancel(e->target, e->node, wait_status::stopped);
            }
        }
        return happened;
    }

    // Waits until a case has happened. Returns false if a time-out or a deadline ended the wait.
    // Sleeps until the earliest time-out or deadline, and then checks all of them. Because they may
    // be on several clocks, the sleep also ends when one of these clocks has to be read again
    // (core/deadline.hpp).
    BIDE_NOINLINE bool park(entries all, node& main) noexcept {
        basic_spin<Platform>::spin_then_yield([&main]() noexcept { return main.is_complete(); },
                                              spin_budget_ns);
        for (;;) {
            entry* first = nullptr;
            std::int64_t when = (std::numeric_limits<std::int64_t>::max)();
            std::int64_t look = when;
            for (entry* const e : all) {
                if (e->timeout == nullptr) {
                    continue;
                }
                const std::int64_t its = e->until.steady_ns();
                const std::int64_t next = e->until.next_check_ns(its);
                look = next < look ? next : look;
                if (its < when) {
                    first = e;
                    when = its;
                }
            }
            if (main.sleep_through(deadline::at_ns(look))) {
                return true;
            }
            if (look == when && !first->until.is_early()) {
                return !end_by_owner(*first);
            }
        }
    }

    entry* tried_ = nullptr; // the case that has happened in try_all(): no node is queued
    node* main_ = nullptr;
    wait_status ended_ = wait_status::granted; // why the wait was ended
    typename Platform::template atomic<futex_word> progress_{0};
};

// ---- The cases without a primitive: a time-out, a deadline and a stop

// Ends the select unless a case has happened. `node` is a basic_waiter<Platform>.
template <class Platform> void end_by(void* node) noexcept {
    auto& w = *static_cast<basic_waiter<Platform>*>(node);
    if (w.claim()) {
        w.commit();
        basic_wake_list<Platform>::publish(w, wait_status::granted);
    }
}

// A time-out, a deadline or a stop; none for a case of another kind. Moved only before it begins.
class signal_payload {
public:
    enum class kind : unsigned char { none, timeout, deadline, stop };

    signal_payload() noexcept = default;
    signal_payload(kind timed, select_timeout when) noexcept : kind_(timed), timeout_(when) {}
    explicit signal_payload(std::stop_token what) noexcept
        : kind_(kind::stop), stop_(std::move(what)) {}
    signal_payload(signal_payload&& other) noexcept
        : kind_(other.kind_), timeout_(other.timeout_), stop_(std::move(other.stop_)) {}

    // Returns true if a coroutine that waits for it needs timers.
    bool needs_timers() const noexcept { return timeout() != nullptr || stop_.stop_possible(); }
    bool is_last() const noexcept { return kind_ == kind::timeout; }
    const select_timeout* timeout() const noexcept {
        return kind_ == kind::timeout || kind_ == kind::deadline ? &timeout_ : nullptr;
    }

    // ---- As those of an operation (core/wait_ops.hpp)

    wait_status try_now() const noexcept {
        const bool ready = kind_ == kind::stop
                               ? stop_.stop_requested()
                               : kind_ == kind::deadline && timeout_.from_now().has_passed();
        return ready ? wait_status::granted : wait_status::waiting;
    }
    template <class Platform> wait_status enqueue(basic_waiter<Platform>& w) noexcept {
        const deadline end = timeout_.from_now(); // never, of a stop
        if (kind_ == kind::stop ? stop_.stop_requested() : end.has_passed()) {
            if (!w.claim()) {
                return wait_status::waiting;
            }
            w.commit();
            w.settle(wait_status::granted);
            return wait_status::granted;
        }
        if (stop_.stop_possible()) {
            on_stop_.emplace(stop_, on_stop{&w, &stopped<Platform>}); // it may run at once, here
        } else if (!end.is_never()) {
            clock_.when = end;
            clock_.fire = waker(&end_by<Platform>, &w);
            add_timer<Platform>(clock_);
        }
        return wait_status::waiting;
    }
    template <class Platform> void cancel() noexcept {
        on_stop_.reset();
        if (clock_.fire) {
            cancel_timer<Platform>(clock_);
            clock_.fire = {};
        }
    }

private:
    struct on_stop {
        void* node;
        void (*run)(void*) noexcept;
        void operator()() const noexcept { run(node); }
    };

    // What this resumes does not run on the thread that requested the stop.
    template <class Platform> static void stopped(void* node) noexcept {
        wake_scope<Platform> away(&service_executor<Platform>);
        end_by<Platform>(node);
    }

    kind kind_ = kind::none;
    select_timeout timeout_;
    timer clock_;
    std::stop_token stop_;
    std::optional<std::stop_callback<on_stop>> on_stop_;
};

// The operation of these cases, without a result: the select knows that they have happened.
template <class Platform> struct signal_wait {
    wait_status try_now(signal_payload& of) const noexcept { return of.try_now(); }
    wait_status enqueue(basic_waiter<Platform>& w, signal_payload& of) const noexcept {
        return of.enqueue(w);
    }
    bool cancel(basic_waiter<Platform>&, wait_status, signal_payload& of) const noexcept {
        of.template cancel<Platform>();
        return true;
    }
};

BIDE_COMPILED_TEMPLATE(class basic_select_core<native_platform>)

}}} // namespace bide::BIDE_ABI::detail

#endif
