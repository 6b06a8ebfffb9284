#ifndef BIDE_CHANNEL_SELECT_HPP
#define BIDE_CHANNEL_SELECT_HPP

// The first of several waits that can happen: receive, send, acquire, lock, an event, a deadline, a
// stop, a time-out.
//
// Exactly one case happens; the others leave no trace: no item taken, no permit held, no wake
// swallowed. Of the cases that can happen at once each has the same chance, however many cannot;
// the forms called _biased take the first. A closed channel can be received from, and sent to, at
// once, which says closed. A requested stop and a passed deadline are ready cases, too: a loop
// that always finds something ready ends by them soon. A time-out comes after all others: such a
// loop never takes it. A case of a null pointer never happens.
//
//   auto s = bide::select(bide::on_recv(orders), bide::on_recv(quit), bide::on_timeout(50ms));
//   if (s.index() == 0) handle(s.get<0>());
//
// A select waits in the queues of all its cases at once, under the same rules as any other that
// waits there; channel/detail/select_core.hpp has the protocol. Nothing is allocated.

#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/detail/select_case.hpp>
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

// ---- Cases. Each in two forms: of an object, and of a pointer, where nullptr means never. A
// temporary handle of a channel belongs to its case from then on: its side of the channel stays
// open until the select is over.

// Receives: as recv(), from anything that has async_recv(). Nothing: closed and drained.
template <class Channel> auto on_recv(Channel& from) { return detail::case_of(from.async_recv()); }
template <class Channel> auto on_recv(Channel* from) {
    using none = detail::case_type_t<decltype(from->async_recv())>;
    return from != nullptr ? on_recv(*from) : none();
}
template <class Handle>
    requires detail::is_temporary<Handle>
auto on_recv(Handle&& from) {
    auto make = [](Handle& h) { return on_recv(h); };
    return detail::owning_case<Handle, decltype(make)>(std::move(from), make);
}

// Sends: as send(). `value` stays where it is until the select returns, and is moved from only if
// this case is chosen and the result is not an error.
template <class Channel> auto on_send(Channel& to, typename Channel::value_type& value) {
    auto made = detail::case_of(to.async_send_from(value));
    made.keep(detail::keep_alive::of(to));
    return made;
}
template <class Channel> auto on_send(Channel* to, typename Channel::value_type& value) {
    using none = detail::case_type_t<decltype(to->async_send_from(value))>;
    return to != nullptr ? on_send(*to, value) : none();
}

// The same where there may be nothing to send: a null pointer variable.
template <class Channel> auto on_send(Channel& to, typename Channel::value_type* value) {
    using none = detail::case_type_t<decltype(to.async_send_from(*value))>;
    return value != nullptr ? on_send(to, *value) : none();
}

template <class Handle>
    requires detail::is_temporary<Handle>
auto on_send(Handle&& to, typename Handle::value_type* value) {
    auto make = [value](Handle& h) { return on_send(h, value); };
    return detail::owning_case<Handle, decltype(make)>(std::move(to), make);
}
template <class Handle>
    requires detail::is_temporary<Handle>
auto on_send(Handle&& to, typename Handle::value_type& value) {
    return on_send(std::move(to), std::addressof(value));
}

// What cannot be sent from: a temporary, a constant, 0, nullptr.
template <class Channel, class Argument>
    requires(!detail::is_sent_from<detail::sent_through<Channel>, Argument>)
auto on_send(Channel&&, Argument&&) {
    static_assert(detail::is_sent_from<detail::sent_through<Channel>, Argument>,
                  "bide: on_send takes an lvalue, which outlives the select and is moved from if "
                  "this case is chosen, or a pointer to one");
}

// Acquires permits: as semaphore::acquire(n). Throws: std::invalid_argument, as that does.
template <class Semaphore> auto on_acquire(Semaphore& from, std::ptrdiff_t n = 1) {
    return detail::case_of(from.async_acquire(n).as_result());
}
template <class Semaphore> auto on_acquire(Semaphore* from, std::ptrdiff_t n = 1) {
    using none = detail::case_type_t<decltype(from->async_acquire(n).as_result())>;
    return from != nullptr ? on_acquire(*from, n) : none();
}

// Locks: as lock(), anything that has async_lock(): a mutex of this process, a synchronized_value.
// The result is the guard that async_lock() gives; a mutex whose case is not chosen is not held.
template <class Mutex> auto on_lock(Mutex& what) { return detail::case_of(what.async_lock()); }
template <class Mutex> auto on_lock(Mutex* what) {
    return what != nullptr ? on_lock(*what) : decltype(on_lock(*what))();
}

// The same, shared: as lock_shared().
template <class Mutex> auto on_lock_shared(Mutex& what) {
    return detail::case_of(what.async_lock_shared());
}
template <class Mutex> auto on_lock_shared(Mutex* what) {
    return what != nullptr ? on_lock_shared(*what) : decltype(on_lock_shared(*what))();
}

// An event that is set, a latch that is open.
template <class Event> auto on_event(Event& what) {
    return detail::signal_case(what.async_wait().as_case());
}
template <class Event> auto on_event(Event* what) {
    return what != nullptr ? on_event(*what) : decltype(on_event(*what))();
}

// A time from the beginning of the select, or a point in time. Happens only if no other case could.
template <class R, class P>
select_case<std::monostate> on_timeout(const std::chrono::duration<R, P>& rest) {
    return detail::timeout_case<native_platform>(detail::select_timeout(rest));
}
template <class C, class D>
select_case<std::monostate> on_timeout(const std::chrono::time_point<C, D>& when) {
    return detail::timeout_case<native_platform>(detail::select_timeout(deadline::at(when)));
}

// A point in time, on any clock. Once it has passed, a case that is ready.
template <class C, class D>
select_case<std::monostate> on_deadline(const std::chrono::time_point<C, D>& when) {
    return detail::deadline_case<native_platform>(detail::select_timeout(deadline::at(when)));
}

// A stop. Once it is requested, a case that is ready. A coroutine does not resume on the thread
// that requests it.
inline select_case<std::monostate> on_stop(std::stop_token token) {
    return detail::stop_case<native_platform>(std::move(token));
}

// ---- What happened

// The case that was chosen, and what came of it.
template <class... Cases> class [[nodiscard]] selected {
public:
    using results = std::variant<typename Cases::result_type...>;

    template <std::size_t I, class... Args>
    explicit selected(std::in_place_index_t<I> which, Args&&... args)
        : result_(which, std::forward<Args>(args)...) {}

    std::size_t index() const noexcept { return result_.index(); }

    // Requires: I == index(); terminates otherwise.
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

// The cases of one select, where they and their nodes stay.
template <class... Cases> class select_frame {
    using first = std::tuple_element_t<0, std::tuple<Cases...>>;

public:
    using platform = typename first::platform;
    using core = basic_select_core<platform>;
    using node = typename core::node;
    static constexpr std::size_t count = sizeof...(Cases);
    static_assert((std::is_same_v<typename Cases::platform, platform> && ...));

    select_frame(std::tuple<Cases...>&& cases, bool biased) noexcept
        : cases_(std::move(cases)), biased_(biased) {}

    // While it has not begun.
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

    // A thread's wait, after try_all().
    void wait(bool may_wait) noexcept {
        thread_select<platform>::wait(core_, at(), count, order_, may_wait);
    }

    // After it has happened: what came of it, as an Out; or was ended: none().
    template <class Out, class OnNone> Out collect(OnNone&& none) {
        return collect_from<Out, 0>(core_.finish(at(), count), none);
    }
    void give_back() noexcept {
        with(core_.finish(at(), count), [](auto, auto& c, auto& entry) { c.give_back(entry); });
    }

private:
    auto at() noexcept {
        return [this](std::size_t i) noexcept -> select_entry<platform>& { return entries_[i]; };
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

template <class... Cases> struct wait_payload<result<selected<Cases...>>> {
    using type = detail::select_frame<Cases...>;
};

namespace detail {

template <class... Cases> struct select_ops {
    using frame = select_frame<Cases...>;
    using platform = typename frame::platform;
    using node = typename frame::node;
    using outcome = result<selected<Cases...>>;

    static frame& of(const wait_target& t) noexcept { return *static_cast<frame*>(t.payload); }

    static constexpr auto value =
        wait_ops<outcome, platform>(
            [](const wait_target& t) noexcept {
                return of(t).try_all() ? wait_status::granted : wait_status::waiting;
            },
            [](const wait_target& t, node& w) noexcept { return of(t).begin(w, true); },
            [](const wait_target& t, node&, wait_status why) noexcept { return of(t).cancel(why); },
            [](const wait_target& t, wait_status what) -> outcome {
                return of(t).template collect<outcome>(
                    [what]() noexcept -> outcome { return unexpected{errc_of(what)}; });
            },
            [](const wait_target& t, wait_status) noexcept { of(t).give_back(); })
            .standing_alone();

    static basic_async_op<selected<Cases...>, platform> make(std::tuple<Cases...>&& cases,
                                                             bool biased) {
        if (std::apply([](const auto&... c) { return (c.needs_timers() || ...); }, cases)) {
            prepare_timers<platform>();
        }
        return {value, wait_target{}, frame(std::move(cases), biased)};
    }
};

template <class Out, class OnNone, class... Cases>
Out select_now(bool may_wait, bool biased, OnNone&& none, Cases&&... cases) {
    static_assert(sizeof...(Cases) > 0, "bide: a select needs a case");
    select_frame<Cases...> frame(std::tuple<Cases...>(std::move(cases)...), biased);
    if (!frame.try_all()) {
        frame.wait(may_wait);
    }
    return frame.template collect<Out>(none);
}

template <class... Cases> selected<Cases...> select_waiting(bool biased, Cases&&... cases) {
    using out = selected<Cases...>;
    const auto never = []() noexcept -> out { fatal("select: ended without a case"); };
    return select_now<out>(true, biased, never, std::move(cases)...);
}

template <class... Cases>
std::optional<selected<Cases...>> select_trying(bool biased, Cases&&... cases) {
    using out = std::optional<selected<Cases...>>;
    const auto nothing = []() noexcept { return out(); };
    return select_now<out>(false, biased, nothing, std::move(cases)...);
}

} // namespace detail

// ---- Selects

// Blocks: until a case happens; for ever where none can.
// Throws: what making the result of the case throws: of a broadcast_subscriber, T's copy;
// std::bad_alloc of a send to an unbounded channel for which there is no memory.
template <class... Cases> selected<Cases...> select(Cases... cases) {
    return detail::select_waiting(false, std::move(cases)...);
}
template <class... Cases> selected<Cases...> select_biased(Cases... cases) {
    return detail::select_waiting(true, std::move(cases)...);
}

// Never waits. Nothing: there was an instant at which no case could have happened.
template <class... Cases> std::optional<selected<Cases...>> try_select(Cases... cases) {
    return detail::select_trying(false, std::move(cases)...);
}
template <class... Cases> std::optional<selected<Cases...>> try_select_biased(Cases... cases) {
    return detail::select_trying(true, std::move(cases)...);
}

// For a coroutine.
// Throws: std::system_error when there is a time-out, a deadline or a stop among the cases and
// bide's service thread cannot be started.
template <class... Cases> auto async_select(Cases... cases) {
    return detail::select_ops<Cases...>::make(std::tuple<Cases...>(std::move(cases)...), false);
}
template <class... Cases> auto async_select_biased(Cases... cases) {
    return detail::select_ops<Cases...>::make(std::tuple<Cases...>(std::move(cases)...), true);
}

} // namespace bide::inline BIDE_ABI

#endif
