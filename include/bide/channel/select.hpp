// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_SELECT_HPP
#define BIDE_CHANNEL_SELECT_HPP

/// \file
/// Waits for the first of several operations: a receive, a send, an acquire, a lock, an event, a
/// time-out, a deadline, a stop.
///
/// Each operation is a case. Exactly one case happens. The other cases have no effect: no item is
/// taken, no permit is held, no wakeup is lost. If several cases can happen at once, each of them
/// is chosen with the same probability. Functions whose names end in _biased choose the first.
///
/// A send to a closed channel is a ready case; so is a receive from it. The result says that the
/// channel is closed. A requested stop and a deadline that has passed are ready cases, too. So a
/// loop of selects soon chooses them, even if another case is always ready. A time-out is chosen
/// only if no other case is ready. If another case is always ready, a loop never chooses the
/// time-out. A case that was made from a null pointer never happens.
///
/// \code
/// auto s = bide::select(bide::on_recv(orders), bide::on_event(quit), bide::on_timeout(50ms));
/// if (s.index() == 0) handle(s.get<0>()); // a std::optional<order>, as recv() returns it
/// \endcode
///
/// In a coroutine: `auto s = co_await bide::async_select(...)`.
///
/// A select waits in the queues of all its cases, under the same rules as every other waiter. It
/// allocates nothing.

#include <bide/core/async_op.hpp>
#include <bide/core/detail/item_payload.hpp>

#include <tuple>
#include <variant>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// The part of a select that does not depend on the types of its cases. A select has one wait for
// each case, in the queue of the case's primitive (a channel, a mutex or the like). The owner is
// the thread or coroutine that selects. The steps of a select are:
//
//   try      The owner tries each case alone, in a random order. The first that can happen does.
//   begin    The owner enqueues one node for each case. All nodes share one choice: the record of
//            whether a case was selected (core/waiter.hpp). One thread at a time can claim it.
//   decide   A thread that can grant a case claims the choice under the primitive's lock, moves the
//            item, and commits. Then the case has happened. A time-out, a deadline and a stop claim
//            the choice and commit, too. In a try_select, the owner claims the choice after it has
//            queued all nodes. If this claim succeeds, no case has happened.
//   publish  The thread that has claimed the choice for a case publishes the node of the case, and
//            then the waiter of the select's owner.
//   end      The owner takes the other nodes out of their queues, and collects the result.
//
// A try_select enqueues its cases too. If it only tried one case after the other, it could miss an
// item: another thread may meanwhile move the item from a channel that was not tried yet to one
// that was tried.
//
// A case may happen while the owner still enqueues other cases. A coroutine must not resume before
// its last node is queued. So the owner and the thread that decides each set a bit of `progress_`,
// and the second of the two lets the owner proceed [select.progress].
//
//   progress_   begun: all nodes are queued     over: a case has happened, or the wait was ended

// The time of a time-out or a deadline: relative to the start of the wait, or a point in time.
class select_timeout {
public:
    select_timeout() noexcept = default;
    select_timeout(deadline at) noexcept : at_(at) {}
    select_timeout(deadline::from_now rest) noexcept : rest_(rest), is_rest_(true) {}

    deadline from_now() const noexcept { return is_rest_ ? deadline(rest_) : at_; }

private:
    deadline at_ = deadline::never();
    deadline::from_now rest_{std::chrono::nanoseconds(0)};
    bool is_rest_ = false;
};

// One case. A time-out is queued last, and only if no other case could happen at once.
template <class Platform> struct select_entry {
    const wait_steps<Platform>* how = nullptr; // nullptr: never happens
    const wait_target* target = nullptr;
    const select_timeout* timeout = nullptr; // of a time-out or a deadline
    deadline until = deadline::never();      // the point in time of `timeout`
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

    // Tries the cases, and returns true if one has happened. Puts the entries into the order in
    // which they are tried and enqueued. Unless `biased` is true, this is a random order.
    BIDE_INLINE bool try_all(entries all, bool biased) noexcept {
        // Fisher and Yates's shuffle. Each place is drawn only when it is tried.
        for (std::size_t i = 0; i < all.count; ++i) {
            if (!biased) {
                std::swap(all.first[i], all.first[i + any_below(all.count - i)]);
            }
            entry& e = *all.first[i];
            if (e.how != nullptr) {
                if (const wait_status what = e.how->try_now(*e.target);
                    what != wait_status::waiting) {
                    e.node.settle(what);
                    tried_ = &e;
                    return true;
                }
            }
        }
        return false;
    }

    // Enqueues the cases. Called after try_all(). `main` is the owner's waiter. If a case has
    // happened or the select was ended, returns true, and no other thread publishes `main`. If
    // `timers` is true, timers fire the cases of time-outs and deadlines. If not, the owner reads
    // the clock.
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
                if (e.how->enqueue(*e.target, e.node)) {
                    return true;
                }
            }
        }
        if (const wait_status forbidden = main.forbidden();
            forbidden != wait_status::waiting && end_by_owner()) {
            main.settle(forbidden);
            return true;
        }
        // Order: acq_rel [select.progress]; sees the chosen case, or publishes the nodes.
        if ((progress_.fetch_or(begun, std::memory_order_acq_rel) & over) == 0) {
            return false;
        }
        main.settle(ended_);
        return true;
    }

    // Blocks the thread until a case happens, or until a time-out or a deadline ends the wait. If
    // `may_wait` is false, ends the wait at once unless a case has happened. Called after
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

    // Ends the whole select, for a stop or a time-out. Returns false if a case has happened. If the
    // owner has not queued all cases yet, also returns false, and begin() later finds that the
    // select was ended.
    BIDE_NOINLINE bool cancel(wait_status why) noexcept {
        if (!this->claim()) {
            return false;
        }
        this->commit();
        ended_ = why;
        // Order: acq_rel [select.progress]; publishes `ended_`, or sees what the owner has queued.
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

    // Returns a random number from 0 to n - 1; 0 if Platform::model is true.
    BIDE_NOINLINE static std::size_t any_below(std::size_t n) noexcept {
        if (Platform::model || n < 2) {
            return 0;
        }
        if (auto* const simulated = simulated_machine::here()) [[unlikely]] {
            return integer_cast<std::size_t>(((simulated->random() >> 32) * n) >> 32);
        }
        // The generator is that of Marsaglia, "Xorshift RNGs", 2003. A thread makes its seed from
        // the time and the address of its state, mixed as in Steele, Lea, Flood, "Fast Splittable
        // Pseudorandom Number Generators", 2014. So the seeds of two threads differ, even if their
        // states have the same address at different times, or adjacent addresses at the same time.
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

    // Called when a case has happened. Returns the waiter of the owner, which the caller publishes.
    // If the owner is still in begin(), returns nullptr. Then the step on `progress_` is the
    // caller's last access to the select.
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
                e->how->cancel(*e->target, e->node, wait_status::stopped);
            }
        }
        return happened;
    }

    // Waits until a case has happened. Returns false if a time-out or a deadline ended the wait.
    // Sleeps until the earliest time-out or deadline, and then checks all of them. The time-outs
    // and deadlines may be on several clocks, so the sleep also ends when one of these clocks has
    // to be read again (core/deadline.hpp).
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

// Makes the case of `node` happen, unless another case has happened. `node` is a
// basic_waiter<Platform>.
template <class Platform> void end_by(void* node) noexcept {
    auto& w = *static_cast<basic_waiter<Platform>*>(node);
    if (w.claim()) {
        w.commit();
        basic_wake_list<Platform>::publish(w, wait_status::granted);
    }
}

// A time-out, a deadline or a stop; kind::none for any other case. Moved only before the select.
class signal_payload {
public:
    enum class kind : unsigned char { none, timeout, deadline, stop };

    signal_payload() noexcept = default;
    signal_payload(kind timed, select_timeout when) noexcept : kind_(timed), timeout_(when) {}
    explicit signal_payload(std::stop_token what) noexcept
        : kind_(kind::stop), stop_(std::move(what)) {}
    signal_payload(signal_payload&& other) noexcept
        : kind_(other.kind_), timeout_(other.timeout_), stop_(std::move(other.stop_)) {}

    // Returns true if a coroutine that waits for this case needs timers.
    bool needs_timers() const noexcept { return timeout() != nullptr || stop_.stop_possible(); }
    bool is_last() const noexcept { return kind_ == kind::timeout; }
    const select_timeout* timeout() const noexcept {
        return kind_ == kind::timeout || kind_ == kind::deadline ? &timeout_ : nullptr;
    }

    // ---- The steps of an operation (core/wait_ops.hpp)

    wait_status try_now() const noexcept {
        const bool ready = kind_ == kind::stop
                               ? stop_.stop_requested()
                               : kind_ == kind::deadline && timeout_.from_now().has_passed();
        return ready ? wait_status::granted : wait_status::waiting;
    }
    template <class Platform> wait_status enqueue(basic_waiter<Platform>& w) noexcept {
        const deadline end = timeout_.from_now(); // for a stop: never
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

    // A coroutine that this call resumes does not run on the thread that requested the stop.
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

// The operation of a time-out, a deadline or a stop. It has no collect(), because it has no result.
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

} // namespace detail

/// One case of a select. The functions below make cases. A case is used once. A case without a
/// value has the result std::monostate.
template <class Result, class Platform> class basic_select_case {
    static constexpr bool is_signal = std::is_same_v<Result, std::monostate>;
    using R = std::conditional_t<is_signal, result<void>, as_result_t<Result>>;
    using payload = std::conditional_t<is_signal, detail::signal_payload, wait_payload_t<R>>;

public:
    /// The result of the case.
    using result_type = Result;
    /// The platform of its primitive.
    using platform = Platform;

    /// Constructs a case that never happens.
    basic_select_case() noexcept = default;

    /// Constructs a case from a wait of a primitive.
    /// Requires: `what` is not a wait for a time, for a task, or of another select; terminates
    /// otherwise.
    basic_select_case(basic_wait<R, Platform>&& what) noexcept
        : how_(what.ops), target_(static_cast<const wait_target&>(what.target), payload_of(what)) {
        if (how_->stands_alone) {
            detail::fatal("select: a wait for a time, for a task, or of another select is not "
                          "allowed as a case");
        }
    }

    /// Constructs the case of a time-out, a deadline or a stop.
    template <class Op>
        requires is_signal
    basic_select_case(const Op& what, detail::signal_payload carried) noexcept
        : how_(&detail::steps_of<Op, payload, Platform>), target_(what, std::move(carried)) {}

    /// Moves a case, before its select begins.
    basic_select_case(basic_select_case&&) noexcept = default;
    basic_select_case& operator=(basic_select_case&&) = delete;

    // --- For selects

    /// Keeps an object alive as long as the case.
    void keep(detail::keep_alive what) noexcept { alive_ = std::move(what); }

    /// Fills in the entry of the case. After that, neither the case nor the entry may be moved.
    void fill(detail::select_entry<Platform>& e) noexcept {
        e.how = how_;
        e.target = &target_;
        if constexpr (is_signal) {
            e.is_last = target_.payload.is_last();
            e.timeout = target_.payload.timeout();
        }
    }

    /// Returns true if a coroutine that waits for this case needs prepare_timers() first.
    bool needs_timers() const noexcept {
        if constexpr (is_signal) {
            return target_.payload.needs_timers();
        } else {
            return false;
        }
    }

    /// Returns the result. Requires: the case has happened.
    Result collect(const detail::select_entry<Platform>& e) {
        if constexpr (is_signal) {
            return {};
        } else {
            const auto& ops = static_cast<const wait_ops<R, Platform>&>(*how_);
            if constexpr (detail::is_result<Result>) {
                return ops.collect(*e.target, e.node.outcome());
            } else {
                return *ops.collect(*e.target, e.node.outcome());
            }
        }
    }
    /// Undoes a case that has happened and is not collected.
    void give_back(const detail::select_entry<Platform>& e) noexcept {
        if (how_ != nullptr && how_->give_back != nullptr) {
            how_->give_back(*e.target, e.node.outcome());
        }
    }

private:
    static payload payload_of([[maybe_unused]] basic_wait<R, Platform>& what) noexcept {
        if constexpr (is_signal) {
            return {};
        } else {
            return std::move(what.target.payload);
        }
    }

    // nullptr: the case never happens. For a case of a primitive, points to a wait_ops.
    const wait_steps<Platform>* how_ = nullptr;
    wait_target_with<payload> target_;
    detail::keep_alive alive_;
};

/// A case of a select for users.
template <class Result> using select_case = basic_select_case<Result, native_platform>;

namespace detail {

// An operation without a value makes a case without a value.
template <class T, class Platform> auto case_of(basic_async_op<T, Platform>&& op) noexcept {
    using value = std::conditional_t<std::is_void_v<T>, std::monostate, T>;
    return basic_select_case<value, Platform>(std::move(op).as_case());
}

// A case that owns the handle of its channel. The handle may move until fill(). So only fill()
// makes the inner case, which refers to the handle.
template <class Handle, class Make> class owning_case {
    using made = decltype(std::declval<const Make&>()(std::declval<Handle&>()));
    static_assert(std::is_nothrow_move_constructible_v<Handle>,
                  "bide: a case of a temporary that is not a handle: the channel would be gone "
                  "before the select begins");

public:
    using result_type = typename made::result_type;
    using platform = typename made::platform;

    owning_case(Handle&& of, Make make) noexcept : of_(std::move(of)), make_(make) {}

    void fill(select_entry<platform>& e) noexcept { made_.emplace(make_(of_)).fill(e); }
    bool needs_timers() const noexcept { return false; }
    result_type collect(const select_entry<platform>& e) { return made_->collect(e); }
    void give_back(const select_entry<platform>& e) noexcept { made_->give_back(e); }

private:
    Handle of_;
    [[no_unique_address]] Make make_;
    std::optional<made> made_;
};

// Makes a case by make(of). If `of` is a pointer, makes the case by make(*of); a null pointer makes
// a case that never happens. If `of` is a temporary handle, the case owns the handle.
template <class Object, class Make> auto case_from(Object&& of, Make make) {
    if constexpr (std::is_pointer_v<std::remove_cvref_t<Object>>) {
        return of != nullptr ? make(*of) : decltype(make(*of))();
    } else if constexpr (std::is_lvalue_reference_v<Object>) {
        return make(of);
    } else {
        return owning_case<Object, Make>(std::move(of), std::move(make));
    }
}

// The item type of a channel that is given by reference or pointer.
template <class Channel>
using sent_through = typename std::remove_pointer_t<std::remove_cvref_t<Channel>>::value_type;

// True if an Argument refers or points to a T. 0 and nullptr do not count as pointers.
template <class T, class Argument>
inline constexpr bool is_sent_from =
    std::is_convertible_v<Argument, T&> ||
    (std::is_convertible_v<Argument, T*> && !std::is_null_pointer_v<std::remove_cvref_t<Argument>>);

// Returns the address of the T that the argument refers or points to.
template <class T, class Argument> T* sent_from(Argument&& value) noexcept {
    if constexpr (std::is_convertible_v<Argument, T&>) {
        T& item = std::forward<Argument>(value);
        return __builtin_addressof(item);
    } else {
        return std::forward<Argument>(value);
    }
}

template <class C>
concept case_of_select = requires {
    typename C::result_type;
    typename C::platform;
};

} // namespace detail

// ---- Cases
//
// Each function takes an object, or a pointer to one; nullptr means a case that never happens. If
// the object is a temporary handle of a channel, the case owns the handle. So the channel still has
// this sender or receiver until the select is over.

/// Makes a case that receives as recv() does. `from` is of any type that has async_recv().
/// The result is that of async_recv(): empty if the source is a closed channel without items.
template <class Channel> auto on_recv(Channel&& from) {
    return detail::case_from(std::forward<Channel>(from),
                             [](auto& channel) { return detail::case_of(channel.async_recv()); });
}

/// Makes a case that sends `value`, an lvalue or a pointer to one, as send() does. If the pointer
/// is nullptr, the case never happens.
/// Requires: the value exists until the select returns. The value is moved from only if this case
/// is chosen and the send succeeds.
template <class Channel, class Argument> auto on_send(Channel&& to, Argument&& value) {
    using T = detail::sent_through<Channel>;
    static_assert(detail::is_sent_from<T, Argument>,
                  "bide: on_send takes an lvalue, which outlives the select and is moved from if "
                  "this case is chosen, or a pointer to one");
    if constexpr (detail::is_sent_from<T, Argument>) {
        T* const item = detail::sent_from<T>(std::forward<Argument>(value));
        return detail::case_from(std::forward<Channel>(to), [item](auto& c) {
            using made = decltype(detail::case_of(c.async_send_from(*item)));
            if (item == nullptr) {
                return made();
            }
            made sends(detail::case_of(c.async_send_from(*item)));
            sends.keep(detail::channel_access::keep(c));
            return sends;
        });
    }
}

/// Makes a case that acquires n permits of a semaphore (1 by default), or an object of an
/// object_pool.
/// Throws: as acquire(). If a callable of an object_pool throws, the select throws that exception.
template <class From, class... Count> auto on_acquire(From&& from, Count... n) {
    return detail::case_from(std::forward<From>(from), [n...](auto& f) {
        return detail::case_of(f.async_acquire(n...).as_result());
    });
}

/// Makes a case that locks as lock() does. `what` is of any type that has async_lock(): a mutex of
/// this process, a synchronized_value, a keyed_mutex with its key. The result is the value of
/// async_lock(). If the case is not chosen, the mutex is not locked.
template <class Mutex, class... Key> auto on_lock(Mutex&& what, const Key&... key) {
    return detail::case_from(std::forward<Mutex>(what),
                             [&key...](auto& m) { return detail::case_of(m.async_lock(key...)); });
}

/// Makes a case that locks as lock_shared() does. `what` is of any type that has
/// async_lock_shared(). If the case is not chosen, the mutex is not locked.
template <class Mutex> auto on_lock_shared(Mutex&& what) {
    return detail::case_from(std::forward<Mutex>(what),
                             [](auto& m) { return detail::case_of(m.async_lock_shared()); });
}

/// Makes a case that waits for an event to be set, for a latch to be zero, or for the end of the
/// phase of a barrier. For a barrier, `at` is the token of an arrival.
template <class Event, class... Token> auto on_event(Event&& what, const Token&... at) {
    return detail::case_from(std::forward<Event>(what),
                             [&at...](auto& e) { return detail::case_of(e.async_wait(at...)); });
}

/// Makes a case for a time-out. It happens when `rest` has passed after the start of the select and
/// no other case can happen.
inline select_case<std::monostate> on_timeout(deadline::from_now rest) {
    return {detail::signal_wait<native_platform>(), {detail::signal_payload::kind::timeout, rest}};
}
/// Makes a case for a time-out. It happens after a point in time, if no other case can happen.
inline select_case<std::monostate> on_timeout(deadline when) {
    return {detail::signal_wait<native_platform>(), {detail::signal_payload::kind::timeout, when}};
}

/// Makes a case that is ready once a point in time, on any clock, has passed.
inline select_case<std::monostate> on_deadline(deadline when) {
    return {detail::signal_wait<native_platform>(), {detail::signal_payload::kind::deadline, when}};
}

/// Makes a case that is ready once a stop is requested. A coroutine does not resume on the thread
/// that requests the stop.
inline select_case<std::monostate> on_stop(std::stop_token token) {
    return {detail::signal_wait<native_platform>(), detail::signal_payload(std::move(token))};
}

// ---- Results

namespace detail {

template <class C> struct result_of_case { // for what is not a case
    using type = std::monostate;
};
template <case_of_select C> struct result_of_case<C> {
    using type = typename C::result_type;
};

} // namespace detail

/// The case that was chosen, and its result.
template <class... Cases> class [[nodiscard]] selected {
public:
    /// One alternative for each case.
    using results = std::variant<typename detail::result_of_case<Cases>::type...>;

    /// Constructs the result of case I from `args`.
    template <std::size_t I, class... Args>
    explicit selected(std::in_place_index_t<I> which, Args&&... args)
        : result_(which, std::forward<Args>(args)...) {}

    /// Returns the index of the chosen case.
    std::size_t index() const noexcept { return result_.index(); }

    /// Returns the result of case I.
    /// Requires: I == index(); terminates otherwise.
    template <std::size_t I> std::variant_alternative_t<I, results>& get() noexcept {
        auto* const r = std::get_if<I>(&result_);
        if (r == nullptr) {
            detail::fatal("selected: asked for the result of a case that was not chosen");
        }
        return *r;
    }

private:
    results result_;
};

namespace detail {

// The cases of one select with their nodes; they stay in place while the select waits.
template <class... Cases> class select_frame {
    using first = std::tuple_element_t<0, std::tuple<Cases...>>;

public:
    using platform = typename first::platform;
    using core = basic_select_core<platform>;
    using node = typename core::node;
    static constexpr std::size_t count = sizeof...(Cases);
    static_assert((std::is_same_v<typename Cases::platform, platform> && ...));

    select_frame(bool biased, Cases&... cases) noexcept
        : cases_(std::move(cases)...), biased_(biased) {}

    // Requires: the select has not begun.
    select_frame(select_frame&& other) noexcept
        : cases_(std::move(other.cases_)), biased_(other.biased_) {}

    bool try_all() noexcept {
        fill(std::index_sequence_for<Cases...>());
        return core_.try_all({order_, count}, biased_);
    }
    bool begin(node& main, bool timers) noexcept {
        return core_.begin({order_, count}, main, timers);
    }
    bool cancel(wait_status why) noexcept { return core_.cancel(why); }

    // Blocks the thread, after try_all().
    void wait(bool may_wait) noexcept { core_.wait({order_, count}, may_wait); }

    // Called after the wait. Returns the result of the chosen case as an Out. If no case has
    // happened, returns none().
    template <class Out, class OnNone> Out collect(OnNone&& none) {
        return collect_from<Out, 0>(core_.finish({order_, count}), none);
    }
    void give_back() noexcept {
        const auto* const happened = core_.finish({order_, count});
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            ((entries_ + I == happened ? std::get<I>(cases_).give_back(entries_[I]) : void()), ...);
        }(std::index_sequence_for<Cases...>());
    }

private:
    using entry = typename core::entry;

    template <std::size_t... I> void fill(std::index_sequence<I...>) noexcept {
        ((std::get<I>(cases_).fill(entries_[I]), order_[I] = &entries_[I]), ...);
    }
    template <class Out, std::size_t I, class OnNone>
    Out collect_from(const entry* happened, OnNone& none) {
        if constexpr (I < count) {
            if (happened == entries_ + I) {
                return Out(selected<Cases...>(std::in_place_index<I>,
                                              std::get<I>(cases_).collect(entries_[I])));
            }
            return collect_from<Out, I + 1>(happened, none);
        } else {
            return none();
        }
    }

    std::tuple<Cases...> cases_;
    entry entries_[count];
    core core_;
    entry* order_[count]; // in which the cases are tried
    bool biased_;
};

} // namespace detail

/// The state of a select that a coroutine awaits.
template <class... Cases> struct wait_payload<result<selected<Cases...>>> {
    /// The frame of the select.
    using type = detail::select_frame<Cases...>;
};

namespace detail {

// The operation of async_select() (core/wait_ops.hpp); its payload is the frame.
template <class... Cases> struct select_wait {
    using frame = select_frame<Cases...>;
    using platform = typename frame::platform;
    using node = typename frame::node;
    using outcome = result<selected<Cases...>>;

    static constexpr bool stands_alone = true;
    static constexpr const char* waited_for = "a select";
    wait_status try_now(frame& of) const noexcept {
        return of.try_all() ? wait_status::granted : wait_status::waiting;
    }
    // If the select is complete, collect() finds out which case has happened.
    wait_status enqueue(node& w, frame& of) const noexcept {
        return of.begin(w, true) ? wait_status::granted : wait_status::waiting;
    }
    bool cancel(node&, wait_status why, frame& of) const noexcept { return of.cancel(why); }
    outcome collect(wait_status what, frame& of) const {
        return of.template collect<outcome>(
            [what]() noexcept -> outcome { return unexpected{errc_of(what)}; });
    }
    void give_back(wait_status, frame& of) const noexcept { of.give_back(); }
};

// Reports an argument that is not a case, with one message.
template <class... Cases> constexpr bool are_cases() noexcept {
    constexpr bool all = (case_of_select<Cases> && ...);
    static_assert(all,
                  "bide: a select takes cases, such as on_recv(channel), on_acquire(semaphore) "
                  "and on_event(event), not operations such as channel.async_recv()");
    static_assert(sizeof...(Cases) > 0, "bide: a select needs a case");
    return all && sizeof...(Cases) > 0;
}

// Selects on this thread. If Out is selected<Cases...>, waits. If Out is a std::optional of it,
// only tries the cases, and returns nothing if no case could happen.
template <class Out, class... Cases> Out select_now([[maybe_unused]] bool biased, Cases&... cases) {
    constexpr bool may_wait = std::is_same_v<Out, selected<Cases...>>;
    const auto none = []() noexcept -> Out {
        if constexpr (may_wait) {
            fatal("select: ended without a case");
        } else {
            return std::nullopt;
        }
    };
    if constexpr (are_cases<Cases...>()) {
        select_frame<Cases...> frame(biased, cases...);
        if (!frame.try_all()) {
            frame.wait(may_wait);
        }
        return frame.template collect<Out>(none);
    } else {
        return none();
    }
}

template <class... Cases> auto select_later(bool biased, Cases&... cases) {
    if constexpr (are_cases<Cases...>()) {
        using platform = typename select_frame<Cases...>::platform;
        if ((cases.needs_timers() || ...)) {
            prepare_timers<platform>();
        }
        return basic_async_op<selected<Cases...>, platform>(std::in_place, select_wait<Cases...>(),
                                                            biased, cases...);
    } else { // lets the rest of the statement compile
        using refused = async_op<selected<select_case<std::monostate>>>;
        return []() -> refused { fatal("select of what is no case"); }();
    }
}

} // namespace detail

// ---- Selects

/// Waits until one of the cases happens.
/// Blocks: until a case happens; for ever if none can.
/// Returns: the chosen case and its result.
/// Throws: any exception that is thrown while the result is made. For a broadcast_subscriber, that
/// is an exception of the copy constructor of T; for a send to an unbounded channel,
/// std::bad_alloc.
template <class... Cases> selected<Cases...> select(Cases... cases) {
    return detail::select_now<selected<Cases...>>(false, cases...);
}
/// Waits as select() does, but if several cases are ready, chooses the first of them.
template <class... Cases> selected<Cases...> select_biased(Cases... cases) {
    return detail::select_now<selected<Cases...>>(true, cases...);
}

/// Tries the cases. Never blocks.
/// Returns: as select(); nothing if, at one instant of the call, no case could happen.
/// Throws: as select().
template <class... Cases> std::optional<selected<Cases...>> try_select(Cases... cases) {
    return detail::select_now<std::optional<selected<Cases...>>>(false, cases...);
}
/// Tries the cases as try_select() does, but if several cases are ready, chooses the first of them.
template <class... Cases> std::optional<selected<Cases...>> try_select_biased(Cases... cases) {
    return detail::select_now<std::optional<selected<Cases...>>>(true, cases...);
}

/// Waits as select() does, for a coroutine.
/// Returns: an operation for co_await; its value is a `selected`.
/// Throws: a time-out, a deadline or a stop needs the service thread of bide. If that thread cannot
/// be started, throws std::system_error.
template <class... Cases> auto async_select(Cases... cases) {
    return detail::select_later(false, cases...);
}
/// Waits as async_select() does, but if several cases are ready, chooses the first of them.
template <class... Cases> auto async_select_biased(Cases... cases) {
    return detail::select_later(true, cases...);
}

BIDE_COMPILED_TEMPLATE(class detail::basic_select_core<native_platform>)

}} // namespace bide::BIDE_ABI

#endif
