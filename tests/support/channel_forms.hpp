#ifndef BIDE_TESTS_SUPPORT_CHANNEL_FORMS_HPP
#define BIDE_TESTS_SUPPORT_CHANNEL_FORMS_HPP

// Every kind of channel with one face, every form of a send and of a receive as one function, and what
// holds of each kind in each form.

#include <bide/channel/channel.hpp>
#include <bide/channel/handles.hpp>
#include <bide/channel/priority_channel.hpp>
#include <bide/channel/select.hpp>
#include <bide/channel/selector.hpp>
#include <bide/channel/sliding_channel.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <support/channel_waits.hpp>
#include <support/coroutines.hpp>
#include <support/observing.hpp>
#include <support/platforms.hpp>
#include <support/stop.hpp>
#include <support/test.hpp>

namespace test::forms {

using namespace std::chrono_literals;
using bide::errc;
using std::chrono::steady_clock;

// How an element is made of a small number, and told from others.
template <class T> struct element {
    static T make(int n) { return T(n); }
    static bool is(const T& value, int n) { return value.n == n; }
};
template <class T> T make(int n) { return element<T>::make(n); }
template <class T> bool is(const T& value, int n) { return element<T>::is(value, n); }

template <class Channel> Channel made(std::size_t capacity) {
    if constexpr (std::is_constructible_v<Channel, std::size_t>) {
        return Channel(capacity);
    } else {
        return Channel();
    }
}

template <class Channel, bool Waits, std::size_t Least> struct in_one {
    using value_type = typename Channel::value_type;
    static constexpr bool sends_wait = Waits;
    static constexpr std::size_t least = Least; // capacity

    explicit in_one(std::size_t capacity) : c(made<Channel>(capacity)) {}
    Channel& tx() { return c; }
    Channel& rx() { return c; }

    Channel c;
};
template <class Pair, bool Waits, std::size_t Least> struct in_two {
    using value_type = typename Pair::first_type::value_type;
    static constexpr bool sends_wait = Waits;
    static constexpr std::size_t least = Least;

    explicit in_two(Pair both) : c(std::move(both)) {}
    auto& tx() { return c.first; }
    auto& rx() { return c.second; }

    Pair c;
};

// Its items are equal, so the first in is the first out.
struct all_equal {
    template <class T> bool operator()(const T&, const T&) const noexcept { return false; }
};

template <class T, class P> using bounded = in_one<bide::basic_channel<T, P>, true, 0>;
template <class T, class P> using unbounded = in_one<bide::basic_unbounded_channel<T, P>, false, 0>;
template <class T, class P>
using priority = in_one<bide::basic_priority_channel<T, all_equal, P>, true, 1>;
template <class T, class P> using sliding = in_one<bide::basic_sliding_channel<T, P>, false, 1>;

template <class T, class P>
struct bounded_handles : in_two<decltype(bide::make_channel<T, P>(1)), true, 0> {
    explicit bounded_handles(std::size_t n)
        : bounded_handles::in_two(bide::make_channel<T, P>(n)) {}
};
template <class T, class P>
struct unbounded_handles : in_two<decltype(bide::make_unbounded_channel<T, P>()), false, 0> {
    explicit unbounded_handles(std::size_t)
        : unbounded_handles::in_two(bide::make_unbounded_channel<T, P>()) {}
};
// ---- Coroutines

// A frame is as aligned as the most aligned of the elements; operator new's own are not.
struct roomy {
    static constexpr std::align_val_t alignment{128};
    static void* operator new(std::size_t n) { return ::operator new(n, alignment); }
    static void operator delete(void* p) noexcept { ::operator delete(p, alignment); }
};
using held = basic_held<roomy>;

template <class T> using ending = channel_waits::ending<T>;
template <class Op> held start(Op op, channel_waits::ending_of<Op>& to) {
    held frame = channel_waits::await_as<held>(std::move(op), to);
    frame.start();
    return frame;
}

inline constexpr int waiting_sends = 5; // those of a thread that waits; all others come after them
inline constexpr int all_sends = 12;

// Sends the item, if its form says so with a stop token or a time that has passed. Nothing: it was sent.
// Else it is still there, unless a coroutine was destroyed with it, which waited.
template <class S, class T>
std::optional<errc> send_by(int form, S& to, std::optional<T>& item, std::stop_token stop) {
    const auto by_value = [&item](auto sent) -> std::optional<errc> {
        item.reset();
        if (sent) {
            return std::nullopt;
        }
        item.emplace(std::move(sent.error().value));
        return sent.error().code;
    };
    const auto lent = [](const bide::result<void>& sent) {
        return sent ? std::nullopt : std::optional(sent.error());
    };
    switch (form) {
    case 0: return by_value(to.send(std::move(*item)));
    case 1: return by_value(to.send(stop, std::move(*item)));
    case 2: return by_value(to.try_send_for(std::move(*item), 1h));
    case 3: return by_value(to.try_send_until(std::move(*item), steady_clock::time_point::max()));
    case 4: return lent(bide::select(bide::on_send(to, *item)).template get<0>());
    case 5: return by_value(to.try_send(std::move(*item)));
    case 6: return by_value(to.try_send_for(std::move(*item), -1h));
    case 7: return by_value(to.try_send_until(std::move(*item), steady_clock::time_point::min()));
    case 8: {
        const std::span<T> one(std::addressof(*item), 1);
        return to.try_send_n(one) == 1 ? std::nullopt : std::optional(errc::full);
    }
    case 9: {
        auto chosen = bide::try_select(bide::on_send(to, *item));
        return chosen ? lent(chosen->template get<0>()) : errc::full;
    }
    case 10: {
        ending<bide::result<void, bide::send_error<T>>> end;
        const held frame = start(to.async_send(T(std::move(*item))), end);
        return end.done ? by_value(std::move(*end.out)) : errc::full;
    }
    default: {
        ending<bide::result<void>> end;
        const held frame = start(to.async_send_from(*item), end);
        return end.done ? lent(*end.out) : errc::full;
    }
    }
}
template <class S> bool sends(int form, S& to, int n, std::stop_token stop = std::stop_token()) {
    using T = typename S::value_type;
    std::optional<T> item(std::in_place, make<T>(n));
    return !send_by(form, to, item, std::move(stop));
}
// The item came back, or stayed, for that reason. A batch says none.
template <class S>
bool comes_back(int form, S& to, int n, errc why, std::stop_token stop = std::stop_token()) {
    using T = typename S::value_type;
    std::optional<T> item(std::in_place, make<T>(n));
    const auto failed = send_by(form, to, item, std::move(stop));
    return failed && (*failed == why || form == 8) && item && is<T>(*item, n);
}

inline constexpr int waiting_takes = 8; // those of a thread that waits; all others come after them
inline constexpr int all_takes = 16;

// The first of what a form gave, or why there is none.
template <class T> bide::result<T> first_of(std::optional<T> got, errc why) {
    if (got) {
        return bide::result<T>(std::in_place, std::move(*got));
    }
    return bide::unexpected{why};
}
template <class T> bide::result<T> first_of(std::vector<T>& got, errc why) {
    if (!got.empty()) {
        return bide::result<T>(std::in_place, std::move(got.front()));
    }
    return bide::unexpected{why};
}

template <class P, class T, class Case> bide::result<T> take_by_selector(Case one) {
    std::optional<T> got;
    bide::basic_selector<P> any;
    any.add(std::move(one), [&got](std::optional<T> item) {
        if (item) {
            got.emplace(std::move(*item));
        }
    });
    any.select();
    return first_of<T>(std::move(got), errc::closed);
}

template <class P, class R>
bide::result<typename R::value_type> take_by(int form, R& from, std::stop_token stop) {
    using T = typename R::value_type;
    std::vector<T> some;
    switch (form) {
    case 0: return first_of<T>(from.recv(), errc::closed);
    case 1: return from.recv(stop);
    case 2: return from.try_recv_for(1h);
    case 3: return from.try_recv_until(std::chrono::system_clock::time_point::max());
    case 4: from.recv_n(some, 1); return first_of(some, errc::closed);
    case 5: {
        auto at = from.begin();
        return at != from.end() ? bide::result<T>(std::in_place, std::move(*at))
                                : bide::result<T>(bide::unexpected{errc::closed});
    }
    case 6: {
        auto chosen = bide::select(bide::on_recv(from));
        return first_of<T>(std::move(chosen.template get<0>()), errc::closed);
    }
    case 7: return take_by_selector<P, T>(bide::on_recv(from));
    case 8: return from.try_recv();
    case 9: return from.try_recv_for(-1h);
    case 10: return from.try_recv_until(steady_clock::time_point::min());
    case 11: from.try_recv_n(some, 1); return first_of(some, errc::empty);
    case 12: {
        auto chosen = bide::try_select(bide::on_recv(from));
        return chosen ? first_of<T>(std::move(chosen->template get<0>()), errc::closed)
                      : bide::result<T>(bide::unexpected{errc::empty});
    }
    case 13: {
        ending<std::optional<T>> end;
        const held frame = start(from.async_recv(), end);
        return end.done ? first_of<T>(std::move(*end.out), errc::closed)
                        : bide::result<T>(bide::unexpected{errc::empty});
    }
    case 14: {
        ending<std::size_t> end;
        const held frame = start(from.async_recv_n(some, 1), end);
        return first_of(some, end.done ? errc::closed : errc::empty);
    }
    default: {
        auto op = bide::async_select(bide::on_recv(from));
        channel_waits::ending_of<decltype(op)> end;
        const held frame = start(std::move(op), end);
        return end.done ? first_of<T>(std::move(end.out->template get<0>()), errc::closed)
                        : bide::result<T>(bide::unexpected{errc::empty});
    }
    }
}
// What says neither that it is closed nor that it is empty, but gives nothing.
constexpr bool tells_nothing(int form) { return form == 11; }

template <class P, class R>
bool takes(int form, R& from, int n, std::stop_token stop = std::stop_token()) {
    const auto got = take_by<P>(form, from, std::move(stop));
    return got && is<typename R::value_type>(*got, n);
}
template <class P, class R>
bool takes_nothing(int form, R& from, errc why, std::stop_token stop = std::stop_token()) {
    const auto got = take_by<P>(form, from, std::move(stop));
    return !got && (got.error() == (tells_nothing(form) ? errc::empty : why));
}

// ---- What holds of every kind, in every form; P: its platform

inline std::stop_token requested() {
    std::stop_source stop = new_stop();
    stop.request_stop();
    return stop.get_token();
}

// An operation that can complete at once does so, though a stop is requested or its time has passed.
template <class P, class C> void goes_through_at_once() {
    const std::stop_token stopped = requested();
    C c(3);
    int n = 0;
    for (int sent = 0; sent < all_sends; ++sent) {
        for (int taken = 0; taken < all_takes; ++taken, n += 2) { // at every place of a ring
            CAPTURE(sent, taken);
            REQUIRE(sends(sent, c.tx(), n % 12, stopped));
            REQUIRE(sends(5, c.tx(), n % 12 + 1));
            REQUIRE(takes<P>(taken, c.rx(), n % 12, stopped));
            REQUIRE(takes<P>(8, c.rx(), n % 12 + 1));
        }
    }
    CHECK(c.rx().empty());
}

template <class P, class Tx, class Rx> void is_closed_in_every_form(Tx& tx, Rx& rx) {
    const std::stop_token stopped = requested(); // closed comes first
    for (int form = 0; form < all_sends; ++form) {
        CAPTURE(form);
        REQUIRE(comes_back(form, tx, form, errc::closed, stopped));
    }
    for (int form = 0; form < all_takes; ++form) {
        CAPTURE(form);
        REQUIRE(takes_nothing<P>(form, rx, errc::closed, stopped));
    }
    CHECK(tx.is_closed());
    CHECK_FALSE(rx.close());
    CHECK(rx.empty());
}

template <class P, class C> void is_drained_when_closed() {
    for (int form = 0; form < all_takes; ++form) {
        CAPTURE(form);
        C c(2);
        REQUIRE_FALSE(c.tx().is_closed());
        REQUIRE(sends(5, c.tx(), 1));
        REQUIRE(c.tx().close());
        REQUIRE(comes_back(form % all_sends, c.tx(), 2, errc::closed)); // there is room
        REQUIRE(c.rx().size() == 1);
        REQUIRE(takes<P>(form, c.rx(), 1));
        REQUIRE(takes_nothing<P>(form, c.rx(), errc::closed));
    }
    C c(1);
    c.rx().close();
    is_closed_in_every_form<P>(c.tx(), c.rx());
    C left(1);
    CHECK(sends(5, left.tx(), 1)); // is destroyed with it
}

// The stop of a blocking form is requested, so it does not wait either.
template <class P, class C> void fails_if_it_would_wait() {
    using T = typename C::value_type;
    const std::stop_token stopped = requested();
    const auto error_of = [](int form, errc other) {
        return form == 1 ? errc::stopped : form == 6 || form == 7 ? errc::timeout : other;
    };
    C c(1);
    for (int form = 1; form < all_takes; ++form) {
        if (form == 1 || form >= waiting_takes) {
            CAPTURE(form);
            const bool late = form == 9 || form == 10;
            REQUIRE(takes_nothing<P>(form, c.rx(),
                                     form == 1 ? errc::stopped
                                     : late    ? errc::timeout
                                               : errc::empty,
                                     stopped));
        }
    }
    REQUIRE(sends(5, c.tx(), 1)); // to no waiter that is left
    CHECK(c.rx().size() == 1);
    if constexpr (C::sends_wait) {
        for (int form = 1; form < all_sends; ++form) {
            if (form == 10) { // its item goes with the coroutine
                std::optional<T> gone(std::in_place, make<T>(9));
                REQUIRE(send_by(form, c.tx(), gone, stopped) == errc::full);
            } else if (form == 1 || form >= waiting_sends) {
                CAPTURE(form);
                REQUIRE(comes_back(form, c.tx(), form, error_of(form, errc::full), stopped));
            }
        }
    }
    CHECK(takes<P>(8, c.rx(), 1));
    CHECK(takes_nothing<P>(8, c.rx(), errc::empty)); // no sender that is left came in
}

// Receivers that wait on one channel: a thread of each form, and a coroutine after each.
template <class P, class C> class waiting_receivers {
public:
    using T = typename C::value_type;
    static constexpr int all = 2 * waiting_takes;

    template <class Base> explicit waiting_receivers(C& c, Base) {
        for (int i = 0; i < waiting_takes; ++i) {
            threads_.emplace_back(1, std::function<void(int)>([this, i, &c](int) {
                                      got_[i].emplace(take_by<P>(i, c.rx(), never_.get_token()));
                                  }));
            REQUIRE(are_asleep<Base>(i + 1)); // a thread that sleeps has queued
            switch (i % 4) {
            case 0: frames_.push_back(start(c.rx().async_recv(), plain_[i / 4])); break;
            case 1: {
                auto op = c.rx().async_recv().with_stop(never_.get_token()).with_timeout(1h);
                frames_.push_back(start(std::move(op), limited_[i / 4]));
                break;
            }
            case 2:
                frames_.push_back(start(c.rx().async_recv_n(many_[i / 4], 3), n_[i / 4]));
                break;
            default: {
                auto op = bide::async_select(bide::on_recv(c.rx()));
                frames_.push_back(start(std::move(op), chosen_[i / 4]));
            }
            }
        }
    }
    void join() {
        for (team& t : threads_) {
            t.join();
        }
    }
    // Whether the i-th of all got item n; none: it was told that the channel is closed.
    bool has(int i, std::optional<int> n) {
        const int at = i / 8;
        if (i % 2 == 0) {
            const auto& got = *got_[i / 2];
            return n ? got && is<T>(*got, *n) : !got && got.error() == errc::closed;
        }
        const auto same = [n](const std::optional<T>& got) {
            return got.has_value() == n.has_value() && (!n || is<T>(*got, *n));
        };
        switch (i / 2 % 4) {
        case 0: return plain_[at].done && same(*plain_[at].out);
        case 1: return limited_[at].done && *limited_[at].out && same(**limited_[at].out);
        case 2:
            return n_[at].done && *n_[at].out == (n ? 1u : 0u) && many_[at].size() == *n_[at].out &&
                   (!n || is<T>(many_[at].front(), *n));
        default: return chosen_[at].done && same(chosen_[at].out->template get<0>());
        }
    }

private:
    using selecting = decltype(bide::async_select(bide::on_recv(std::declval<C&>().rx())));

    std::stop_source never_ = new_stop();
    std::optional<bide::result<T>> got_[waiting_takes];
    ending<std::optional<T>> plain_[2];
    ending<bide::result<std::optional<T>>> limited_[2];
    ending<std::size_t> n_[2];
    std::vector<T> many_[2];
    channel_waits::ending_of<selecting> chosen_[2];
    std::vector<held> frames_;
    std::deque<team> threads_;
};

template <class Base, class C> void serves_receivers_in_order(std::size_t capacity) {
    using P = observing<Base>;
    C c(capacity);
    waiting_receivers<P, C> waiting(c, Base());
    for (int i = 0; i < waiting.all; ++i) {
        CAPTURE(i);
        REQUIRE(sends(5, c.tx(), i % 12)); // there is a receiver
        REQUIRE(c.rx().empty());
    }
    waiting.join();
    for (int i = 0; i < waiting.all; ++i) {
        CAPTURE(i);
        CHECK(waiting.has(i, i % 12));
    }
}

// Senders that wait on a full channel: a thread of each form, and a coroutine after each.
template <class P, class C> class waiting_senders {
public:
    using T = typename C::value_type;
    static constexpr int all = 2 * waiting_sends;

    template <class Base> explicit waiting_senders(C& c, Base) {
        for (int i = 0; i < waiting_sends; ++i) {
            item_[i].emplace(make<T>(2 * i));
            threads_.emplace_back(1, std::function<void(int)>([this, i, &c](int) {
                                      why_[i] = send_by(i, c.tx(), item_[i], never_.get_token());
                                  }));
            REQUIRE(are_asleep<Base>(i + 1));
            if (i == 3) {
                lent_.emplace(make<T>(7));
                frames_.push_back(start(c.tx().async_send_from(*lent_), from_));
            } else if (i % 2 == 0) {
                auto op = c.tx().async_send(make<T>(2 * i + 1));
                frames_.push_back(start(std::move(op), sent_[i]));
            } else {
                auto op = c.tx().async_send(make<T>(2 * i + 1));
                frames_.push_back(start(
                    std::move(op).with_stop(never_.get_token()).with_timeout(1h), limited_[i]));
            }
        }
    }
    void join() {
        for (team& t : threads_) {
            t.join();
        }
    }
    bool is_sent(int i) const {
        const int at = i / 2;
        return i % 2 == 0 ? !why_[at]
               : i == 7   ? from_.done && from_.out->has_value()
                          : (at % 2 == 0 ? sent_ : limited_)[at].done &&
                              (at % 2 == 0 ? sent_ : limited_)[at].out->has_value();
    }
    bool is_back(int i) const {
        const int at = i / 2;
        if (i % 2 == 0) {
            return why_[at] == errc::closed && is<T>(*item_[at], i);
        }
        if (i == 7) {
            return from_.done && !*from_.out && is<T>(*lent_, i);
        }
        const auto& end = (at % 2 == 0 ? sent_ : limited_)[at];
        return end.done && !*end.out && end.out->error().code == errc::closed &&
               is<T>(end.out->error().value, i);
    }

private:
    std::stop_source never_ = new_stop();
    std::optional<T> item_[waiting_sends];
    std::optional<errc> why_[waiting_sends];
    ending<bide::result<void, bide::send_error<T>>> sent_[waiting_sends];
    ending<bide::result<void, bide::send_error<T>>> limited_[waiting_sends];
    std::optional<T> lent_;
    ending<bide::result<void>> from_;
    std::vector<held> frames_;
    std::deque<team> threads_;
};

template <class Base, class C> void serves_senders_in_order(std::size_t capacity) {
    using P = observing<Base>;
    C c(capacity);
    const int inside = static_cast<int>(capacity);
    for (int i = 0; i < inside; ++i) {
        REQUIRE(sends(5, c.tx(), 12 + i));
    }
    waiting_senders<P, C> waiting(c, Base());
    for (int i = 0; i < inside + waiting.all; ++i) {
        CAPTURE(i);
        REQUIRE(takes<P>(8, c.rx(), i < inside ? 12 + i : i - inside));
    }
    waiting.join();
    for (int i = 0; i < waiting.all; ++i) {
        CAPTURE(i);
        CHECK(waiting.is_sent(i));
    }
    CHECK(c.rx().empty());
}

template <class Base, class C> void close_ends_every_wait() {
    using P = observing<Base>;
    {
        C empty(1);
        waiting_receivers<P, C> waiting(empty, Base());
        CHECK(empty.tx().close());
        waiting.join();
        for (int i = 0; i < waiting.all; ++i) {
            CAPTURE(i);
            CHECK(waiting.has(i, std::nullopt));
        }
    }
    if constexpr (C::sends_wait) {
        C full(1);
        REQUIRE(sends(5, full.tx(), 12));
        waiting_senders<P, C> waiting(full, Base());
        CHECK(full.rx().close());
        waiting.join();
        for (int i = 0; i < waiting.all; ++i) {
            CAPTURE(i);
            CHECK(waiting.is_back(i));
        }
        CHECK(takes<P>(8, full.rx(), 12)); // what was inside stays
        CHECK(takes_nothing<P>(8, full.rx(), errc::closed));
    }
}

// An item that came to a coroutine that is destroyed goes to the next receiver, or back into the
// channel, unless that is closed.
template <class P, class C> void destroyed_receiver_passes_on() {
    using T = typename C::value_type;
    for (const bool many : {false, true}) {
        CAPTURE(many);
        manual_executor later;
        C c(1);
        std::vector<T> some;
        ending<std::optional<T>> none;
        ending<std::size_t> none_n;
        const auto granted = [&](int n) {
            held frame = many ? start(c.rx().async_recv_n(some, 2).resume_on(later), none_n)
                              : start(c.rx().async_recv().resume_on(later), none);
            REQUIRE(sends(5, c.tx(), n));
            REQUIRE(c.rx().empty());
            later.drop_all();
            return frame;
        };
        {
            held first = granted(1);
            ending<std::optional<T>> next;
            const held behind = start(c.rx().async_recv(), next);
            REQUIRE_FALSE(next.done);
            first.destroy();
            REQUIRE((next.done && *next.out));
            CHECK(is<T>(**next.out, 1));
        }
        held gone = granted(2);
        gone.destroy();
        CHECK(c.rx().size() == 1);
        CHECK(takes<P>(8, c.rx(), 2));
        CHECK(some.empty());
        held last = granted(3);
        c.tx().close();
        last.destroy();
        CHECK(takes_nothing<P>(8, c.rx(), errc::closed));
        CHECK(some.size() == (many ? 1u : 0u)); // there it stays
        CHECK_FALSE((none.done || none_n.done));
    }
}

} // namespace test::forms

#endif
