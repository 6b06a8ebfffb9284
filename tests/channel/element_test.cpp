// Elements of the types that containers get wrong, through every kind of channel in every form: no
// operation takes an element's address by `&`, converts, copies, assigns or default-constructs it.

#include "support/catch.hpp"
#include "support/coroutines.hpp"
#include "support/gate.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"

#include <bide/channel/broadcast.hpp>
#include <bide/channel/channel.hpp>
#include <bide/channel/handles.hpp>
#include <bide/channel/oneshot.hpp>
#include <bide/channel/priority_channel.hpp>
#include <bide/channel/select.hpp>
#include <bide/channel/selector.hpp>
#include <bide/channel/sliding_channel.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/channel/watch.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

using namespace std::chrono_literals;

namespace hostile {

// Neither a default constructor nor copies nor assignments.
struct pinned {
    explicit pinned(int v) noexcept : n(v) {}
    pinned(pinned&& other) noexcept : n(std::exchange(other.n, -1)) {}
    pinned& operator=(pinned&&) = delete;
    int n;
};

// Says -1 where it was made at an address that is not aligned.
template <std::size_t Bytes> struct alignas(Bytes) aligned {
    explicit aligned(int v) noexcept
        : n(reinterpret_cast<std::uintptr_t>(this) % Bytes == 0 ? v : -1) {}
    aligned(const aligned& other) noexcept : aligned(other.n) {}
    aligned& operator=(const aligned&) = default;
    int n;
};

struct empty {
    empty() noexcept {}
};

struct without_address {
    explicit without_address(int v) noexcept : n(v) {}
    void operator&() const = delete;
    int n;
};

struct with_comma {
    explicit with_comma(int v) noexcept : n(v) {}
    int n;
};
template <class Other> void operator,(const with_comma&, Other&&) = delete;
template <class Other> void operator,(Other&&, const with_comma&) = delete;

// Its copies and moves are explicit, too.
struct strict {
    explicit strict(int v) noexcept : n(v) {}
    explicit strict(const strict& other) noexcept : n(other.n) {}
    explicit strict(strict&& other) noexcept : n(other.n) {}
    int n;
};

// Made of anything, and taken for a bool.
struct greedy {
    greedy() noexcept = default;
    template <class Any>
        requires(!std::is_same_v<std::remove_cvref_t<Any>, greedy>)
    greedy(Any&&) noexcept : n(-1) {}
    operator bool() const noexcept { return false; }
    int n = 0;
};

struct large {
    explicit large(int v) noexcept : n(v) {}
    int n;
    std::array<char, 64 * 1024> rest{};
};

struct sealed final {
    explicit sealed(int v) noexcept : n(v) {}
    int n;
};

} // namespace hostile

namespace {

using bide::errc;
using platform = test::observing<test::native>;

// How an element is made of a small number, and told from others.
template <class T> struct element {
    static T make(int n) { return T(n); }
    static bool is(const T& value, int n) { return value.n == n; }
};
template <> struct element<hostile::empty> {
    static hostile::empty make(int) { return hostile::empty(); }
    static bool is(const hostile::empty&, int) { return true; }
};
template <> struct element<hostile::greedy> {
    static hostile::greedy make(int n) {
        hostile::greedy made;
        made.n = n;
        return made;
    }
    static bool is(const hostile::greedy& value, int n) { return value.n == n; }
};
template <> struct element<bool> {
    static bool make(int n) { return n % 2 == 1; }
    static bool is(bool value, int n) { return value == make(n); }
};
template <> struct element<std::optional<int>> {
    static std::optional<int> make(int n) { return n % 2 == 1 ? std::optional(n) : std::nullopt; }
    static bool is(const std::optional<int>& value, int n) { return value == make(n); }
};
template <> struct element<std::optional<std::optional<int>>> {
    using type = std::optional<std::optional<int>>;
    static type make(int n) {
        return n % 3 == 0 ? type() : type(std::in_place, element<std::optional<int>>::make(n));
    }
    static bool is(const type& value, int n) { return value == make(n); }
};
inline int cells[16];
template <> struct element<int*> {
    static int* make(int n) { return n % 2 == 1 ? cells + n : nullptr; }
    static bool is(int* value, int n) { return value == make(n); }
};
template <> struct element<std::reference_wrapper<int>> {
    static std::reference_wrapper<int> make(int n) { return cells[n]; }
    static bool is(std::reference_wrapper<int> value, int n) { return &value.get() == cells + n; }
};
template <> struct element<std::unique_ptr<int>> {
    static auto make(int n) { return std::make_unique<int>(n); }
    static bool is(const std::unique_ptr<int>& value, int n) { return value && *value == n; }
};
template <> struct element<std::vector<int>> {
    static std::vector<int> make(int n) { return std::vector<int>(4, n); }
    static bool is(const std::vector<int>& value, int n) { return value == make(n); }
};
template <> struct element<std::variant<int, std::string>> {
    using type = std::variant<int, std::string>;
    static type make(int n) { return n % 2 == 1 ? type(n) : type(std::string(40, 'n')); }
    static bool is(const type& value, int n) { return value == make(n); }
};
template <> struct element<bide::result<int>> {
    static bide::result<int> make(int n) {
        if (n % 2 == 1) {
            return n;
        }
        return bide::unexpected{errc::closed};
    }
    static bool is(const bide::result<int>& value, int n) {
        return n % 2 == 1 ? value && *value == n : !value && value.error() == errc::closed;
    }
};

using elements = std::tuple<hostile::pinned, hostile::aligned<64>, hostile::aligned<128>,
                            hostile::empty, hostile::without_address, hostile::with_comma,
                            hostile::strict, hostile::greedy, hostile::large, hostile::sealed, bool,
                            std::optional<int>, std::optional<std::optional<int>>, int*,
                            std::reference_wrapper<int>, std::unique_ptr<int>, std::vector<int>,
                            std::variant<int, std::string>, bide::result<int>>;

// For the kinds other than channel: what the places of the elements could get wrong.
using hostile_elements =
    std::tuple<hostile::pinned, hostile::aligned<128>, hostile::without_address,
               hostile::with_comma, hostile::strict, hostile::greedy, hostile::large,
               std::optional<std::optional<int>>, std::unique_ptr<int>>;

// For handles, which pass each operation on to a channel.
using passed_elements =
    std::tuple<hostile::pinned, hostile::without_address, hostile::strict, hostile::greedy>;

template <class T> T make(int n) { return element<T>::make(n); }
template <class T> bool is(const T& value, int n) { return element<T>::is(value, n); }
template <class T> bool has(const std::optional<T>& got, int n) { return got && is<T>(*got, n); }
template <class T, class E> bool has(const bide::result<T, E>& got, int n) {
    return got && is<T>(*got, n);
}
template <class T>
bool came_back(const bide::result<void, bide::send_error<T>>& sent, errc why, int n) {
    return !sent && sent.error().code == why && is<T>(sent.error().value, n);
}
template <class T> bool are(const std::vector<T>& got, std::initializer_list<int> numbers) {
    std::size_t i = 0;
    bool right = got.size() == numbers.size();
    for (const int n : numbers) {
        right = right && is<T>(got[i++], n);
    }
    return right;
}

// ---- The kinds of channels

template <class T> struct bounded {
    using value_type = T;
    static constexpr bool has_bound = true;
    static constexpr bool has_rendezvous = true;
    explicit bounded(std::size_t capacity) : c(capacity) {}
    auto& tx() { return c; }
    auto& rx() { return c; }
    bide::basic_channel<T, platform> c;
};
template <class T> struct bounded_handles {
    using value_type = T;
    static constexpr bool has_bound = true;
    static constexpr bool has_rendezvous = true;
    explicit bounded_handles(std::size_t capacity) : c(bide::make_channel<T, platform>(capacity)) {}
    auto& tx() { return c.first; }
    auto& rx() { return c.second; }
    std::pair<bide::basic_sender<T, platform>, bide::basic_receiver<T, platform>> c;
};
template <class T> struct unbounded {
    using value_type = T;
    static constexpr bool has_bound = false;
    explicit unbounded(std::size_t) {}
    auto& tx() { return c; }
    auto& rx() { return c; }
    bide::basic_unbounded_channel<T, platform> c;
};
template <class T> struct unbounded_handles {
    using value_type = T;
    static constexpr bool has_bound = false;
    explicit unbounded_handles(std::size_t) : c(bide::make_unbounded_channel<T, platform>()) {}
    auto& tx() { return c.first; }
    auto& rx() { return c.second; }
    std::pair<bide::basic_unbounded_sender<T, platform>,
              bide::basic_unbounded_receiver<T, platform>>
        c;
};

// Its items are equal, so the first in is the first out.
struct all_equal {
    template <class T> bool operator()(const T&, const T&) const noexcept { return false; }
};
template <class T> struct priority {
    using value_type = T;
    static constexpr bool has_bound = true;
    static constexpr bool has_rendezvous = false; // a capacity of 0 orders no items
    explicit priority(std::size_t capacity) : c(capacity) {}
    auto& tx() { return c; }
    auto& rx() { return c; }
    bide::basic_priority_channel<T, all_equal, platform> c;
};
template <class T> struct sliding {
    using value_type = T;
    static constexpr bool has_bound = false;
    explicit sliding(std::size_t capacity) : c(capacity) {}
    auto& tx() { return c; }
    auto& rx() { return c; }
    bide::basic_sliding_channel<T, platform> c;
};
template <class T> struct sliding_handles {
    using value_type = T;
    static constexpr bool has_bound = false;
    explicit sliding_handles(std::size_t capacity)
        : c(bide::make_sliding_channel<T, platform>(capacity)) {}
    auto& tx() { return c.first; }
    auto& rx() { return c.second; }
    std::pair<bide::basic_sliding_sender<T, platform>, bide::basic_sliding_receiver<T, platform>> c;
};

// ---- Coroutines

// A frame is as aligned as the most aligned of these elements; operator new's own are not.
struct roomy {
    static constexpr std::align_val_t alignment{128};
    static void* operator new(std::size_t n) { return ::operator new(n, alignment); }
    static void operator delete(void* p) noexcept { ::operator delete(p, alignment); }
};
using held = test::basic_held<roomy>;

template <class T> using place = std::optional<T>;

template <class T> void keep(place<T>& out, std::optional<T>&& got) {
    if (got) {
        out.emplace(std::move(*got));
    }
}

template <class R, class T> held recv_into(R& from, place<T>& out) {
    std::optional<T> got = co_await from.async_recv();
    keep(out, std::move(got));
}
template <class R, class T> held recv_on(test::manual_executor& on, R& from, place<T>& out) {
    std::optional<T> got = co_await from.async_recv().resume_on(on);
    keep(out, std::move(got));
}
template <class R, class T> held recv_until(R& from, std::stop_token stop, place<T>& out) {
    auto got = co_await from.async_recv().with_stop(std::move(stop));
    if (got) {
        keep(out, std::move(*got));
    }
}
template <class R, class T> held recv_n_into(R& from, std::vector<T>& out, std::size_t max) {
    co_await from.async_recv_n(out, max);
}
template <class R, class T>
held recv_n_on(test::manual_executor& on, R& from, std::vector<T>& out, std::size_t max) {
    co_await from.async_recv_n(out, max).resume_on(on);
}

enum class sent { not_yet, yes, back, wrong };

template <class T, class Sent> sent outcome_of(const Sent& got, int n) {
    return got ? sent::yes : is<T>(got.error().value, n) ? sent::back : sent::wrong;
}
template <class T, class S> held send_one(S& to, int n, sent& out) {
    auto op = to.async_send(make<T>(n));
    const auto got = co_await std::move(op);
    out = outcome_of<T>(got, n);
}
template <class S, class T> held send_from(S& to, T& value, sent& out) {
    const auto got = co_await to.async_send_from(value);
    out = got ? sent::yes : sent::back;
}
template <class R, class T> held select_into(R& from, R& other, place<T>& out) {
    auto got = co_await bide::async_select(bide::on_recv(from), bide::on_recv(other));
    keep(out, std::move(got.index() == 0 ? got.template get<0>() : got.template get<1>()));
}

// ---- What is done to each kind

template <class C> void goes_through_without_waiting() {
    using T = typename C::value_type;
    C c(16);
    auto& tx = c.tx();
    auto& rx = c.rx();
    CHECK(tx.try_send(make<T>(1)));
    CHECK(tx.send(make<T>(2)));
    CHECK(tx.send(std::stop_token(), make<T>(3)));
    CHECK(tx.try_send_for(make<T>(4), 1h));
    T batch[] = {make<T>(5), make<T>(6)};
    CHECK(tx.try_send_n(batch) == 2);
    sent how[2] = {};
    auto sends = send_one<T>(tx, 7, how[0]);
    sends.start();
    T lent = make<T>(8);
    auto lends = send_from(tx, lent, how[1]);
    lends.start();
    CHECK(how[0] == sent::yes);
    CHECK(how[1] == sent::yes);
    for (const int n : {9, 10, 11, 12, 13}) {
        CHECK(tx.try_send(make<T>(n)));
    }

    CHECK(has<T>(rx.try_recv(), 1));
    CHECK(has<T>(rx.recv(), 2));
    CHECK(has<T>(rx.recv(std::stop_token()), 3));
    CHECK(has<T>(rx.try_recv_for(1h), 4));
    std::vector<T> many;
    CHECK(rx.try_recv_n(many, 2) == 2);
    CHECK(rx.recv_n(many, 1) == 1);
    auto takes_some = recv_n_into(rx, many, 2);
    takes_some.start();
    CHECK(are(many, {5, 6, 7, 8, 9}));
    place<T> one;
    auto takes = recv_into(rx, one);
    takes.start();
    CHECK(has<T>(one, 10));
    auto chosen = bide::select(bide::on_recv(rx));
    CHECK(has<T>(chosen.template get<0>(), 11));
    int next = 12;
    for (auto& item : rx.try_iter()) {
        CHECK(is<T>(item, next++));
        if (next == 13) {
            break;
        }
    }
    tx.close();
    for (auto&& item : rx) {
        CHECK(is<T>(item, next++));
    }
    CHECK(next == 14);
}

template <class C> void comes_back_or_is_left_inside() {
    using T = typename C::value_type;
    C c(1);
    auto& tx = c.tx();
    CHECK(tx.try_send(make<T>(1)));
    if constexpr (C::has_bound) {
        CHECK(came_back<T>(tx.try_send(make<T>(2)), errc::full, 2));
        CHECK(came_back<T>(tx.try_send_for(make<T>(3), 0s), errc::timeout, 3));
    }
    tx.close();
    CHECK(came_back<T>(tx.try_send(make<T>(4)), errc::closed, 4));
    CHECK(came_back<T>(tx.send(make<T>(5)), errc::closed, 5));
    CHECK(came_back<T>(tx.send(std::stop_token(), make<T>(6)), errc::closed, 6));
    CHECK(came_back<T>(tx.try_send_for(make<T>(7), 1h), errc::closed, 7));
    T kept = make<T>(8);
    CHECK(tx.try_send_n(std::span<T>(std::addressof(kept), 1)) == 0);
    sent how[2] = {};
    auto sends = send_one<T>(tx, 9, how[0]);
    sends.start();
    auto lends = send_from(tx, kept, how[1]);
    lends.start();
    CHECK(how[0] == sent::back);
    CHECK(how[1] == sent::back);
    auto chosen = bide::select(bide::on_send(tx, kept));
    CHECK_FALSE(chosen.template get<0>());
    CHECK(is<T>(kept, 8));
} // with one inside

// Each form of waiting on a channel of its own.
template <class C> void comes_to_a_thread_that_waits() {
    using T = typename C::value_type;
    const test::watchdog guard;
    C c[6] = {C(1), C(1), C(1), C(1), C(1), C(1)};
    bool right[6] = {};
    test::team waiting(6, [&](int i) {
        auto& rx = c[i].rx();
        switch (i) {
        case 0: right[i] = has<T>(rx.recv(), i); break;
        case 1: right[i] = has<T>(rx.recv(std::stop_token()), i); break;
        case 2: right[i] = has<T>(rx.try_recv_for(1h), i); break;
        case 3: {
            std::vector<T> out;
            right[i] = rx.recv_n(out, 3) == 1 && is<T>(out[0], i);
            break;
        }
        case 4: {
            auto it = rx.begin();
            right[i] = it != rx.end() && is<T>(*it, i);
            break;
        }
        default: {
            auto chosen = bide::select(bide::on_recv(rx));
            right[i] = has<T>(chosen.template get<0>(), i);
        }
        }
    });
    REQUIRE(test::are_asleep<test::native>(6));
    for (int i = 0; i < 6; ++i) {
        CHECK(c[i].tx().send(make<T>(i)));
    }
    waiting.join();
    for (const bool r : right) {
        CHECK(r);
    }
}

template <class C> void comes_from_a_thread_that_waits() {
    using T = typename C::value_type;
    const test::watchdog guard;
    C c[4] = {C(0), C(0), C(0), C(0)};
    bool was_sent[4] = {};
    test::team waiting(4, [&](int i) {
        auto& tx = c[i].tx();
        switch (i) {
        case 0: was_sent[i] = tx.send(make<T>(i)).has_value(); break;
        case 1: was_sent[i] = tx.send(std::stop_token(), make<T>(i)).has_value(); break;
        case 2: was_sent[i] = tx.try_send_for(make<T>(i), 1h).has_value(); break;
        default: {
            T value = make<T>(i);
            was_sent[i] = bide::select(bide::on_send(tx, value)).template get<0>().has_value();
        }
        }
    });
    REQUIRE(test::are_asleep<test::native>(4));
    for (int i = 0; i < 4; ++i) {
        CHECK(has<T>(c[i].rx().try_recv(), i));
    }
    waiting.join();
    for (const bool s : was_sent) {
        CHECK(s);
    }
}

template <class C> void comes_to_a_coroutine_that_waits() {
    using T = typename C::value_type;
    C c(2);
    C other(2);
    place<T> got[3];
    std::vector<T> many;
    std::stop_source never = test::new_stop();
    auto first = recv_into(c.rx(), got[0]);
    auto second = recv_until(c.rx(), never.get_token(), got[1]);
    auto third = recv_n_into(c.rx(), many, 4);
    auto fourth = select_into(c.rx(), other.rx(), got[2]);
    first.start();
    second.start();
    third.start();
    fourth.start();
    for (const int n : {1, 2, 3, 4}) {
        CHECK(c.tx().send(make<T>(n)));
    }
    CHECK(has<T>(got[0], 1));
    CHECK(has<T>(got[1], 2));
    CHECK(are(many, {3}));
    CHECK(has<T>(got[2], 4));
}

template <class C> void comes_from_a_coroutine_that_waits() {
    using T = typename C::value_type;
    C c(1);
    REQUIRE(c.tx().try_send(make<T>(1)));
    sent how[3] = {};
    auto first = send_one<T>(c.tx(), 2, how[0]);
    T lent = make<T>(3);
    auto second = send_from(c.tx(), lent, how[1]);
    auto third = send_one<T>(c.tx(), 4, how[2]);
    first.start();
    second.start();
    third.start();
    CHECK(how[0] == sent::not_yet);
    CHECK(has<T>(c.rx().try_recv(), 1));
    CHECK(has<T>(c.rx().try_recv(), 2));
    CHECK(how[0] == sent::yes);
    CHECK(how[1] == sent::yes);
    c.tx().close();
    CHECK(how[2] == sent::back);
    CHECK(has<T>(c.rx().try_recv(), 3));
}

template <class C> void goes_on_to_the_next_receiver() {
    using T = typename C::value_type;
    test::manual_executor later;
    C c(1);
    place<T> nothing;
    place<T> got[2];
    std::vector<T> none;
    auto destroyed = recv_on(later, c.rx(), nothing);
    auto destroyed_too = recv_n_on(later, c.rx(), none, 2);
    auto first = recv_into(c.rx(), got[0]);
    auto second = recv_into(c.rx(), got[1]);
    destroyed.start();
    destroyed_too.start();
    first.start();
    second.start();
    CHECK(c.tx().send(make<T>(1)));
    CHECK(c.tx().send(make<T>(2)));
    CHECK_FALSE(got[0]);
    destroyed.destroy();
    destroyed_too.destroy();
    later.drop_all();
    CHECK(has<T>(got[0], 1));
    CHECK(has<T>(got[1], 2));
    CHECK(none.empty());
}

template <class C> void goes_through_a_selector() {
    using T = typename C::value_type;
    const test::watchdog guard;
    C in(1);
    C out(1);
    place<T> got;
    T value = make<T>(2);
    bool is_sent = false;
    bide::basic_selector<platform> any;
    const std::size_t receives =
        any.add(bide::on_recv(in.rx()), [&](std::optional<T> item) { keep(got, std::move(item)); });
    CHECK(in.tx().send(make<T>(1)));
    CHECK(any.select() == receives);
    CHECK(has<T>(got, 1));
    test::team waiting(1, [&](int) { any.select(); });
    REQUIRE(test::are_asleep<test::native>(1));
    got.reset();
    CHECK(in.tx().send(make<T>(3)));
    waiting.join();
    CHECK(has<T>(got, 3));
    CHECK(any.remove(receives));
    any.add(bide::on_send(out.tx(), value), [&](auto how) { is_sent = how.has_value(); });
    CHECK(any.try_select());
    CHECK(is_sent);
    CHECK(has<T>(out.rx().try_recv(), 2));
}

// Of those that wait to send, only what has a bound.
template <class C> void goes_through_in_every_form() {
    goes_through_without_waiting<C>();
    comes_back_or_is_left_inside<C>();
    comes_to_a_thread_that_waits<C>();
    comes_to_a_coroutine_that_waits<C>();
    goes_on_to_the_next_receiver<C>();
    goes_through_a_selector<C>();
    if constexpr (C::has_bound) {
        if constexpr (C::has_rendezvous) {
            comes_from_a_thread_that_waits<C>();
        }
        comes_from_a_coroutine_that_waits<C>();
    }
}

} // namespace

TEMPLATE_LIST_TEST_CASE("element: any goes through a channel, in every form",
                        "[promise.element-needs]", elements) {
    goes_through_in_every_form<bounded<TestType>>();
}

TEMPLATE_LIST_TEST_CASE("element: any goes through an unbounded channel, in every form", "",
                        hostile_elements) {
    goes_through_in_every_form<unbounded<TestType>>();
}

TEMPLATE_LIST_TEST_CASE("element: any goes through a priority channel, in every form",
                        "[promise.element-needs]", hostile_elements) {
    goes_through_in_every_form<priority<TestType>>();
}

TEMPLATE_LIST_TEST_CASE("element: any goes through a sliding channel, in every form",
                        "[promise.element-needs]", hostile_elements) {
    goes_through_in_every_form<sliding<TestType>>();
}

TEMPLATE_LIST_TEST_CASE("element: any goes from handle to handle, in every form", "",
                        passed_elements) {
    goes_through_in_every_form<bounded_handles<TestType>>();
    goes_through_in_every_form<unbounded_handles<TestType>>();
    goes_through_in_every_form<sliding_handles<TestType>>();
}

TEMPLATE_LIST_TEST_CASE("element: any goes through a oneshot, in every form",
                        "[promise.element-needs]", elements) {
    using T = TestType;
    const test::watchdog guard;
    const auto fresh = [] { return bide::oneshot<T, platform>(); };
    using ends = decltype(fresh());
    {
        auto [to, from] = fresh();
        CHECK(std::move(to).send(make<T>(1)));
        CHECK(has<T>(from.try_recv(), 1));
    }
    {
        auto [to, from] = fresh();
        from.close();
        CHECK(came_back<T>(std::move(to).send(make<T>(2)), errc::closed, 2));
    }
    {
        auto [to, from] = fresh();
        CHECK(std::move(to).send(make<T>(3)));
    } // with one inside
    {
        ends e[4] = {fresh(), fresh(), fresh(), fresh()};
        bool right[4] = {};
        test::team waiting(4, [&](int i) {
            auto& from = e[i].second;
            switch (i) {
            case 0: right[i] = has<T>(from.recv(), i); break;
            case 1: right[i] = has<T>(from.recv(std::stop_token()), i); break;
            case 2: right[i] = has<T>(from.try_recv_for(1h), i); break;
            default: {
                auto chosen = bide::select(bide::on_recv(from));
                right[i] = has<T>(chosen.template get<0>(), i);
            }
            }
        });
        REQUIRE(test::are_asleep<test::native>(4));
        for (int i = 0; i < 4; ++i) {
            CHECK(std::move(e[i].first).send(make<T>(i)));
        }
        waiting.join();
        for (const bool r : right) {
            CHECK(r);
        }
    }
    {
        test::manual_executor later;
        auto [to, from] = fresh();
        place<T> nothing;
        place<T> got;
        auto destroyed = recv_on(later, from, nothing);
        destroyed.start();
        CHECK(std::move(to).send(make<T>(4)));
        destroyed.destroy();
        later.drop_all();
        auto next = recv_into(from, got);
        next.start();
        CHECK(has<T>(got, 4));
    }
}

TEMPLATE_LIST_TEST_CASE("element: any that can be copied goes through a broadcast, in every form",
                        "", elements) {
    using T = TestType;
    if constexpr (std::is_copy_constructible_v<T>) {
        const test::watchdog guard;
        bide::basic_broadcast<T, platform> b(4);
        auto s = b.subscribe();
        for (const int n : {1, 2, 3, 4}) {
            CHECK(b.send(make<T>(n)) == 1);
        }
        CHECK(has<T>(s.try_recv(), 1));
        CHECK(has<T>(s.recv(), 2));
        CHECK(has<T>(s.recv(std::stop_token()), 3));
        CHECK(has<T>(s.try_recv_for(1h), 4));
        bool right[3] = {};
        auto waits = [](auto from, bool& out) -> held {
            auto got = co_await from.async_recv();
            out = has<T>(got, 5);
        }(s, right[0]);
        waits.start();
        test::team waiting(2, [&, copies = std::array{s, s}](int i) mutable {
            auto& from = copies[static_cast<std::size_t>(i)];
            right[i + 1] = i == 0 ? has<T>(from.recv(), 5)
                                  : has<T>(bide::select(bide::on_recv(from)).template get<0>(), 5);
        });
        REQUIRE(test::are_asleep<test::native>(2));
        b.send(make<T>(5));
        waiting.join();
        for (const bool r : right) {
            CHECK(r);
        }
    }
}

// see() returns a T that it has made before: one that is moved explicitly only cannot be returned.
TEMPLATE_LIST_TEST_CASE("element: any that can be copied is watched, in every form", "", elements) {
    using T = TestType;
    if constexpr (std::is_copy_constructible_v<T>) {
        bide::basic_watch<T, platform> w(make<T>(1));
        auto r = w.subscribe();
        CHECK(is<T>(w.get(), 1));
        CHECK(is<T>(r.get(), 1));
        CHECK(w.send(make<T>(2)));
        CHECK(r.changed());
        CHECK(is<T>(r.get(), 2));
        if constexpr (std::is_move_assignable_v<T>) {
            CHECK(w.modify([](T& value) { value = make<T>(3); }));
        } else {
            CHECK(w.send(make<T>(3)));
        }
        if constexpr (std::is_convertible_v<T&&, T>) {
            CHECK(is<T>(r.see(), 3));
            CHECK_FALSE(r.has_changed());
        }
    }
}
