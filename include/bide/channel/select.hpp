// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_SELECT_HPP
#define BIDE_CHANNEL_SELECT_HPP

/// \file
/// Waits for the first of several operations: a receive, a send, an acquire, a lock, an event, a
/// time-out, a deadline, a stop.
///
/// Exactly one case happens. The other cases have no effect: no item is taken, no permit is held,
/// no wakeup is lost. If several cases can happen at once, each of them is chosen with the same
/// probability. The functions called _biased choose the first of them.
///
/// A closed channel is ready to receive from and to send to; the result says that it is closed. A
/// requested stop and a deadline that has passed are ready cases too. So a loop that always finds a
/// ready case soon takes them and can end. A time-out is chosen only if no other case is ready, so
/// such a loop never takes it. A case that was made from a null pointer never happens.
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
//
// channel/detail/select_core.hpp has the protocol.

#include <bide/channel/detail/select_core.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/detail/item_payload.hpp>

#include <optional>
#include <stop_token>
#include <tuple>
#include <variant>

namespace bide { inline namespace BIDE_ABI {

/// One case of a select. The functions below make it; it is used once. A case without a value has
/// the result std::monostate.
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
        : how_(what.ops), target_(what.target), payload_(payload_of(what)) {
        if (how_->stands_alone) {
            detail::fatal("select: a wait for a time, for a task, or of another select is not "
                          "allowed as a case");
        }
    }

    /// Constructs a case without a primitive from an operation that has no collect().
    template <class Op>
        requires is_signal
    basic_select_case(const Op& what, detail::signal_payload carried) noexcept
        : how_(&detail::steps_of<Op, payload, Platform>), target_(what),
          payload_(std::move(carried)) {}

    /// Moves a case, before its select begins.
    basic_select_case(basic_select_case&&) noexcept = default;
    basic_select_case& operator=(basic_select_case&&) = delete;

    // --- For selects

    /// Keeps an object alive as long as the case.
    void keep(detail::keep_alive what) noexcept { alive_ = std::move(what); }

    /// Fills in the entry of the case. After that, neither the case nor the entry may be moved.
    void fill(detail::select_entry<Platform>& e) noexcept {
        e.how = how_;
        e.target = target_;
        e.target.carry(payload_);
        if constexpr (is_signal) {
            e.is_last = payload_.is_last();
            e.timeout = payload_.timeout();
        }
    }

    /// Returns true if a coroutine that waits for it needs prepare_timers() first.
    bool needs_timers() const noexcept {
        if constexpr (is_signal) {
            return payload_.needs_timers();
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
                return ops.collect(e.target, e.node.outcome());
            } else {
                return *ops.collect(e.target, e.node.outcome());
            }
        }
    }
    /// Undoes a case that has happened and is not collected.
    void give_back(const detail::select_entry<Platform>& e) noexcept {
        if (how_ != nullptr && how_->give_back != nullptr) {
            how_->give_back(e.target, e.node.outcome());
        }
    }

private:
    static payload payload_of([[maybe_unused]] basic_wait<R, Platform>& what) noexcept {
        if constexpr (is_signal) {
            return {};
        } else {
            return std::move(what.payload);
        }
    }

    // If it is nullptr, the case never happens. For a primitive, it points to wait_ops.
    const wait_steps<Platform>* how_ = nullptr;
    wait_target target_;
    [[no_unique_address]] payload payload_{};
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

// A case that owns its handle. Make makes the case of the handle once the handle stays in place.
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

// True if on_send() takes a T from such an argument. 0 and nullptr do not count as pointers.
template <class T, class Argument>
inline constexpr bool is_sent_from =
    std::is_convertible_v<Argument, T&> ||
    (std::is_convertible_v<Argument, T*> && !std::is_null_pointer_v<std::remove_cvref_t<Argument>>);

// Returns where the item of such an argument is.
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
// it takes a temporary handle of a channel, the case owns the handle: its side of the channel stays
// open until the select is over.

/// Makes a case that receives as recv() does, from each type that has async_recv().
/// The result is empty if the channel is closed and no item is left.
template <class Channel> auto on_recv(Channel&& from) {
    return detail::case_from(std::forward<Channel>(from),
                             [](auto& channel) { return detail::case_of(channel.async_recv()); });
}

/// Makes a case that sends `value`, an lvalue or a pointer to one, as send() does. If the pointer
/// is nullptr, the case never happens.
/// Requires: the value exists until the select returns. It is moved from only if this case is
/// chosen and its result is not an error.
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
/// Throws: as acquire(). The callables of an object_pool throw in the select that has chosen the
/// case.
template <class From, class... Count> auto on_acquire(From&& from, Count... n) {
    return detail::case_from(std::forward<From>(from), [n...](auto& f) {
        return detail::case_of(f.async_acquire(n...).as_result());
    });
}

/// Makes a case that locks as lock() does, for each type that has async_lock(): a mutex of this
/// process, a synchronized_value, a keyed_mutex with its key. The result is the value of
/// async_lock(). If the case is not chosen, the mutex is not locked.
template <class Mutex, class... Key> auto on_lock(Mutex&& what, const Key&... key) {
    return detail::case_from(std::forward<Mutex>(what),
                             [&key...](auto& m) { return detail::case_of(m.async_lock(key...)); });
}

/// Makes a case that locks as lock_shared() does; otherwise as on_lock().
template <class Mutex> auto on_lock_shared(Mutex&& what) {
    return detail::case_from(std::forward<Mutex>(what),
                             [](auto& m) { return detail::case_of(m.async_lock_shared()); });
}

/// Makes a case that waits for an event to be set, for a latch to be zero, or for the end of the
/// phase of a barrier, with the token of an arrival.
template <class Event, class... Token> auto on_event(Event&& what, const Token&... at) {
    return detail::case_from(std::forward<Event>(what),
                             [&at...](auto& e) { return detail::case_of(e.async_wait(at...)); });
}

/// Makes a case for a time-out. It happens when `rest` has passed since the start of the select and
/// no other case can happen.
template <class R, class P>
select_case<std::monostate> on_timeout(const std::chrono::duration<R, P>& rest) {
    return {detail::signal_wait<native_platform>(),
            {detail::signal_payload::kind::timeout, detail::select_timeout(rest)}};
}
/// Makes a case for a time-out at a point in time; otherwise as on_timeout(rest).
template <class C, class D>
select_case<std::monostate> on_timeout(const std::chrono::time_point<C, D>& when) {
    return {detail::signal_wait<native_platform>(),
            {detail::signal_payload::kind::timeout, detail::select_timeout(deadline::at(when))}};
}

/// Makes a case that is ready once a point in time, on any clock, has passed.
template <class C, class D>
select_case<std::monostate> on_deadline(const std::chrono::time_point<C, D>& when) {
    return {detail::signal_wait<native_platform>(),
            {detail::signal_payload::kind::deadline, detail::select_timeout(deadline::at(when))}};
}

/// Makes a case that is ready once a stop is requested. A coroutine does not resume on the thread
/// that requests the stop.
inline select_case<std::monostate> on_stop(std::stop_token token) {
    return {detail::signal_wait<native_platform>(), detail::signal_payload(std::move(token))};
}

// ---- Results

namespace detail {

template <class C> struct result_of_case { // of what select() refuses
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

    // After the wait: the result of the chosen case as an Out; none() if the wait was ended.
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

template <class Out, class OnNone, class... Cases>
Out select_now([[maybe_unused]] bool may_wait, [[maybe_unused]] bool biased, OnNone&& none,
               Cases&... cases) {
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

template <class... Cases> selected<Cases...> select_waiting(bool biased, Cases&... cases) {
    using out = selected<Cases...>;
    const auto never = []() noexcept -> out { fatal("select: ended without a case"); };
    return detail::select_now<out>(true, biased, never, cases...);
}

template <class... Cases>
std::optional<selected<Cases...>> select_trying(bool biased, Cases&... cases) {
    using out = std::optional<selected<Cases...>>;
    const auto nothing = []() noexcept { return out(); };
    return detail::select_now<out>(false, biased, nothing, cases...);
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
    return detail::select_waiting(false, cases...);
}
/// Waits as select() does, but if several cases are ready, chooses the first of them.
template <class... Cases> selected<Cases...> select_biased(Cases... cases) {
    return detail::select_waiting(true, cases...);
}

/// Tries the cases. Never blocks.
/// Returns: as select(); nothing if at one instant no case could happen.
/// Throws: as select().
template <class... Cases> std::optional<selected<Cases...>> try_select(Cases... cases) {
    return detail::select_trying(false, cases...);
}
/// Tries the cases as try_select() does, but if several cases are ready, chooses the first of them.
template <class... Cases> std::optional<selected<Cases...>> try_select_biased(Cases... cases) {
    return detail::select_trying(true, cases...);
}

/// Waits as select() does, for a coroutine.
/// Returns: an operation for co_await; its value is a `selected`.
/// Throws: std::system_error if there is a time-out, a deadline or a stop among the cases and the
/// service thread of bide cannot be started.
template <class... Cases> auto async_select(Cases... cases) {
    return detail::select_later(false, cases...);
}
/// Waits as async_select() does, but if several cases are ready, chooses the first of them.
template <class... Cases> auto async_select_biased(Cases... cases) {
    return detail::select_later(true, cases...);
}

}} // namespace bide::BIDE_ABI

#endif
