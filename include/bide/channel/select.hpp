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
/// auto s = bide::select(bide::on_recv(orders), bide::on_recv(quit), bide::on_timeout(50ms));
/// if (s.index() == 0) handle(s.get<0>());
/// \endcode
///
/// A select waits in the queues of all its cases, under the same rules as every other waiter. It
/// allocates nothing.
//
// channel/detail/select_core.hpp has the protocol.

#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/detail/select_case.hpp>
#include <bide/channel/detail/select_cases_only.hpp>
#include <bide/channel/detail/select_core.hpp>
#include <bide/channel/detail/signal_wait.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wait_ops.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <stop_token>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace bide::inline BIDE_ABI {

// ---- Cases
//
// Each function takes an object, or a pointer to one; nullptr means a case that never happens. If
// it takes a temporary handle of a channel, the case owns the handle: its side of the channel stays
// open until the select is over.

/// Makes a case that receives as recv() does, from each type that has async_recv().
/// The result is empty if the channel is closed and no item is left.
template <class Channel> auto on_recv(Channel& from) { return detail::case_of(from.async_recv()); }
/// \overload
template <class Channel> auto on_recv(Channel* from) {
    using none = detail::case_type_t<decltype(from->async_recv())>;
    return from != nullptr ? on_recv(*from) : none();
}
/// \overload
template <class Handle>
    requires detail::is_temporary<Handle>
auto on_recv(Handle&& from) {
    auto make = [](Handle& h) { return on_recv(h); };
    return detail::owning_case<Handle, decltype(make)>(std::move(from), make);
}

/// Makes a case that sends as send() does.
/// Requires: `value` exists until the select returns. The value is moved from only if this case is
/// chosen and its result is not an error.
template <class Channel> auto on_send(Channel& to, typename Channel::value_type& value) {
    auto made = detail::case_of(to.async_send_from(value));
    made.keep(detail::keep_alive::of(to));
    return made;
}
/// \overload
template <class Channel> auto on_send(Channel* to, typename Channel::value_type& value) {
    using none = detail::case_type_t<decltype(to->async_send_from(value))>;
    return to != nullptr ? on_send(*to, value) : none();
}

/// \overload
/// If `value` is nullptr, the case never happens.
template <class Channel> auto on_send(Channel& to, typename Channel::value_type* value) {
    using none = detail::case_type_t<decltype(to.async_send_from(*value))>;
    return value != nullptr ? on_send(to, *value) : none();
}

/// \overload
template <class Handle>
    requires detail::is_temporary<Handle>
auto on_send(Handle&& to, typename Handle::value_type* value) {
    auto make = [value](Handle& h) { return on_send(h, value); };
    return detail::owning_case<Handle, decltype(make)>(std::move(to), make);
}
/// \overload
template <class Handle>
    requires detail::is_temporary<Handle>
auto on_send(Handle&& to, typename Handle::value_type& value) {
    return on_send(std::move(to), std::addressof(value));
}

/// \overload
/// Rejects what an item cannot be moved from: a temporary, a constant, 0, nullptr.
template <class Channel, class Argument>
    requires(!detail::is_sent_from<detail::sent_through<Channel>, Argument>)
auto on_send(Channel&&, Argument&&) {
    static_assert(detail::is_sent_from<detail::sent_through<Channel>, Argument>,
                  "bide: on_send takes an lvalue, which outlives the select and is moved from if "
                  "this case is chosen, or a pointer to one");
}

/// Makes a case that acquires n permits of a semaphore (1 by default), or an object of an object_pool.
/// Throws: as acquire(). The callables of an object_pool throw in the select that has chosen the case.
template <class From, class... Count> auto on_acquire(From& from, Count... n) {
    return detail::case_of(from.async_acquire(n...).as_result());
}
/// \overload
template <class From, class... Count> auto on_acquire(From* from, Count... n) {
    using none = detail::case_type_t<decltype(from->async_acquire(n...).as_result())>;
    return from != nullptr ? on_acquire(*from, n...) : none();
}

/// Makes a case that locks as lock() does, for each type that has async_lock(): a mutex of this
/// process, a synchronized_value, a keyed_mutex with its key. The result is the value of
/// async_lock(). If the case is not chosen, the mutex is not locked.
template <class Mutex, class... Key> auto on_lock(Mutex& what, const Key&... key) {
    return detail::case_of(what.async_lock(key...));
}
/// \overload
template <class Mutex> auto on_lock(Mutex* what) {
    return what != nullptr ? on_lock(*what) : decltype(on_lock(*what))();
}

/// Makes a case that locks as lock_shared() does; otherwise as on_lock().
template <class Mutex> auto on_lock_shared(Mutex& what) {
    return detail::case_of(what.async_lock_shared());
}
/// \overload
template <class Mutex> auto on_lock_shared(Mutex* what) {
    return what != nullptr ? on_lock_shared(*what) : decltype(on_lock_shared(*what))();
}

/// Makes a case that waits for an event to be set, for a latch to be zero, or for the end of the
/// phase of a barrier, with the token of an arrival.
template <class Event, class... Token> auto on_event(Event& what, const Token&... at) {
    return detail::signal_case(what.async_wait(at...).as_case());
}
/// \overload
template <class Event> auto on_event(Event* what) {
    return what != nullptr ? on_event(*what) : decltype(on_event(*what))();
}

/// Makes a case for a time-out. It happens when `rest` has passed since the begin of the select and
/// no other case can happen.
template <class R, class P>
select_case<std::monostate> on_timeout(const std::chrono::duration<R, P>& rest) {
    return detail::timeout_case<native_platform>(detail::select_timeout(rest));
}
/// Makes a case for a time-out at a point in time; otherwise as on_timeout(rest).
template <class C, class D>
select_case<std::monostate> on_timeout(const std::chrono::time_point<C, D>& when) {
    return detail::timeout_case<native_platform>(detail::select_timeout(deadline::at(when)));
}

/// Makes a case that is ready once a point in time, on any clock, has passed.
template <class C, class D>
select_case<std::monostate> on_deadline(const std::chrono::time_point<C, D>& when) {
    return detail::deadline_case<native_platform>(detail::select_timeout(deadline::at(when)));
}

/// Makes a case that is ready once a stop is requested. A coroutine does not resume on the thread
/// that requests the stop.
inline select_case<std::monostate> on_stop(std::stop_token token) {
    return detail::stop_case<native_platform>(std::move(token));
}

// ---- Results

/// The case that was chosen, and its result.
template <class... Cases> class [[nodiscard]] selected {
public:
    /// One alternative for each case.
    using results = std::variant<typename Cases::result_type...>;

    /// Constructs the result of case I from `args`.
    template <std::size_t I, class... Args>
    explicit selected(std::in_place_index_t<I> which, Args&&... args)
        : result_(which, std::forward<Args>(args)...) {}

    /// Returns the index of the chosen case.
    std::size_t index() const noexcept { return result_.index(); }

    /// Returns the result of case I.
    /// Requires: I == index(); terminates otherwise.
    template <std::size_t I>
    typename std::tuple_element_t<I, std::tuple<Cases...>>::result_type& get() noexcept {
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
        return core_.try_all(at(), count, order_, biased_);
    }
    bool begin(node& main, bool timers) noexcept {
        return core_.begin(at(), count, order_, main, timers);
    }
    bool cancel(wait_status why) noexcept { return core_.cancel(why); }

    // Blocks the thread, after try_all().
    void wait(bool may_wait) noexcept {
        thread_select<platform>::wait(core_, at(), count, order_, may_wait);
    }

    // After the wait: the result of the chosen case as an Out; none() if the wait was ended.
    template <class Out, class OnNone> Out collect(OnNone&& none) {
        return collect_from<Out, 0>(core_.finish(at(), count), none);
    }
    void give_back() noexcept {
        with(core_.finish(at(), count), [](auto, auto& one, auto& entry) { one.give_back(entry); });
    }

private:
    auto at() noexcept {
        return [this](std::size_t at) noexcept -> select_entry<platform>& { return entries_[at]; };
    }
    template <std::size_t... I> void fill(std::index_sequence<I...>) noexcept {
        (std::get<I>(cases_).fill(entries_[I]), ...);
    }
    template <class Out, std::size_t I, class OnNone>
    Out collect_from(std::size_t happened, OnNone& none) {
        if constexpr (I < count) {
            if (happened == I) {
                return Out(selected<Cases...>(std::in_place_index<I>,
                                              std::get<I>(cases_).collect(entries_[I])));
            }
            return collect_from<Out, I + 1>(happened, none);
        } else {
            return none();
        }
    }
    template <class F> void with(std::size_t happened, F&& f) {
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            ((I == happened
                  ? f(std::integral_constant<std::size_t, I>(), std::get<I>(cases_), entries_[I])
                  : void()),
             ...);
        }(std::index_sequence_for<Cases...>());
    }

    std::tuple<Cases...> cases_;
    select_entry<platform> entries_[count];
    core core_;
    std::size_t order_[count];
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
    // If it is complete, collect() finds out how.
    wait_status enqueue(node& w, frame& of) const noexcept {
        return of.begin(w, true) ? wait_status::granted : wait_status::waiting;
    }
    bool cancel(node&, wait_status why, frame& of) const noexcept { return of.cancel(why); }
    outcome collect(wait_status what, frame& of) const {
        return of.template collect<outcome>(
            [what]() noexcept -> outcome { return unexpected{errc_of(what)}; });
    }
    void give_back(wait_status, frame& of) const noexcept { of.give_back(); }

    static basic_async_op<selected<Cases...>, platform> make(bool biased, Cases&... cases) {
        if ((cases.needs_timers() || ...)) {
            prepare_timers<platform>();
        }
        return {std::in_place, select_wait(), biased, cases...};
    }
};

template <class Out, class OnNone, class... Cases>
Out select_now(bool may_wait, bool biased, OnNone&& none, Cases&... cases) {
    static_assert(sizeof...(Cases) > 0, "bide: a select needs a case");
    select_frame<Cases...> frame(biased, cases...);
    if (!frame.try_all()) {
        frame.wait(may_wait);
    }
    return frame.template collect<Out>(none);
}

template <class... Cases> selected<Cases...> select_waiting(bool biased, Cases&... cases) {
    using out = selected<Cases...>;
    const auto never = []() noexcept -> out { fatal("select: ended without a case"); };
    return select_now<out>(true, biased, never, cases...);
}

template <class... Cases>
std::optional<selected<Cases...>> select_trying(bool biased, Cases&... cases) {
    using out = std::optional<selected<Cases...>>;
    const auto nothing = []() noexcept { return out(); };
    return select_now<out>(false, biased, nothing, cases...);
}

} // namespace detail

// ---- Selects

/// Waits until one of the cases happens.
/// Blocks: until a case happens; for ever if none can.
/// Returns: the chosen case and its result.
/// Throws: what making the result throws. For a broadcast_subscriber, that is what the copy of T
/// throws; for a send to an unbounded channel, std::bad_alloc.
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
    return detail::select_wait<Cases...>::make(false, cases...);
}
/// Waits as async_select() does, but if several cases are ready, chooses the first of them.
template <class... Cases> auto async_select_biased(Cases... cases) {
    return detail::select_wait<Cases...>::make(true, cases...);
}

} // namespace bide::inline BIDE_ABI

#endif
