// Elements of the types that containers get wrong, in every form of a send and of a receive: no
// operation takes an element's address by `&`, converts, copies, assigns or default-constructs it.

#include "support/channel_forms.hpp"

#include <bide/channel/broadcast.hpp>
#include <bide/channel/oneshot.hpp>
#include <bide/channel/watch.hpp>

namespace forms = test::forms;

namespace hostile {

// A channel calls its own functions, not those that it finds by the type of an item.
template <class... Any> void deliver(Any&&...) = delete;
template <class... Any> void hand_over(Any&&...) = delete;
template <class... Any> void into(Any&&...) = delete;
template <class... Any> void item_of(Any&&...) = delete;
template <class... Any> void make_element(Any&&...) = delete;
template <class... Any> void make_room(Any&&...) = delete;
template <class... Any> void meet(Any&&...) = delete;
template <class... Any> void recv_more(Any&&...) = delete;
template <class... Any> void to_result(Any&&...) = delete;

// Neither a default constructor nor assignments nor implicit moves, an address and a comma that are
// not its own, and an alignment that operator new does not give. Says -1 where it was made at an
// address that is not aligned.
template <bool Copies> struct alignas(128) pinned final {
    explicit pinned(int v) noexcept
        : n(reinterpret_cast<std::uintptr_t>(this) % 128 == 0 ? v : -1) {}
    explicit pinned(const pinned& other) noexcept
        requires Copies
        : pinned(other.n) {}
    explicit pinned(pinned&& other) noexcept : pinned(std::exchange(other.n, -1)) {}
    pinned& operator=(pinned&&) = delete;
    void operator&() const = delete;
    int n;
};
template <bool Copies, class Other> void operator,(const pinned<Copies>&, Other&&) = delete;
template <bool Copies, class Other> void operator,(Other&&, const pinned<Copies>&) = delete;

// Made of anything, and taken for a bool.
struct greedy {
    greedy() noexcept = default;
    template <class Any>
        requires(!std::is_same_v<std::remove_cvref_t<Any>, greedy>)
    greedy(Any&&) noexcept : n(-1) {}
    operator bool() const noexcept { return false; }
    int n = 0;
};

struct empty {
    empty() noexcept {}
};

} // namespace hostile

namespace test::forms {

// An element that compares equal to what make() makes again.
template <class T, auto Make> struct made_by {
    static T make(int n) { return Make(n); }
    static bool is(const T& value, int n) { return value == Make(n); }
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
template <> struct element<bool> : made_by<bool, [](int n) { return n % 2 == 1; }> {};
using nested = std::optional<std::optional<int>>;
template <>
struct element<nested> : made_by<nested, [](int n) {
    return n % 3 == 0 ? nested()
                      : nested(std::in_place, n % 3 == 1 ? std::optional(n) : std::nullopt);
}> {};
inline int cells[16];
template <>
struct element<int*> : made_by<int*, [](int n) { return n % 2 == 1 ? cells + n : nullptr; }> {};
template <> struct element<std::reference_wrapper<int>> {
    static std::reference_wrapper<int> make(int n) { return cells[n]; }
    static bool is(std::reference_wrapper<int> value, int n) { return &value.get() == cells + n; }
};
template <> struct element<std::unique_ptr<int>> {
    static auto make(int n) { return std::make_unique<int>(n); }
    static bool is(const std::unique_ptr<int>& value, int n) { return value && *value == n; }
};
template <>
struct element<std::vector<int>>
    : made_by<std::vector<int>, [](int n) { return std::vector<int>(4, n); }> {};
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

} // namespace test::forms

namespace {

using bide::errc;
using forms::ending;
using forms::held;
using forms::is;
using forms::make;
using platform = test::observing<test::native>;

using pinned = hostile::pinned<false>;
using copied = hostile::pinned<true>;

template <class T, class Result> bool has(const Result& got, int n) {
    return got && is<T>(*got, n);
}

// At once, back, by a wait on either side, and by a coroutine that is destroyed.
template <class C> void goes_through_in_every_form() {
    forms::goes_through_at_once<platform, C>();
    forms::is_drained_when_closed<platform, C>();
    forms::close_ends_every_wait<test::native, C>();
    forms::serves_receivers_in_order<test::native, C>(1);
    if constexpr (C::sends_wait) {
        forms::serves_senders_in_order<test::native, C>(C::least);
    }
    forms::destroyed_receiver_passes_on<platform, C>();
}

} // namespace

// By each type that a place of a channel could get wrong.
TEMPLATE_TEST_CASE("element: any goes through a channel, in every form", "[promise.element-needs]",
                   pinned, hostile::greedy, bool, forms::nested, bide::result<int>) {
    goes_through_in_every_form<forms::bounded<TestType, platform>>();
}

TEMPLATE_TEST_CASE("element: any goes through a channel in every form that does not wait", "",
                   hostile::empty, int*, std::reference_wrapper<int>, std::unique_ptr<int>,
                   std::vector<int>) {
    forms::goes_through_at_once<platform, forms::bounded<TestType, platform>>();
    forms::is_drained_when_closed<platform, forms::bounded<TestType, platform>>();
}

TEMPLATE_TEST_CASE("element: any goes through each other kind, in every form",
                   "[promise.element-needs]", (forms::unbounded<pinned, platform>),
                   (forms::unbounded<hostile::greedy, platform>),
                   (forms::priority<pinned, platform>),
                   (forms::priority<hostile::greedy, platform>), (forms::sliding<pinned, platform>),
                   (forms::sliding<hostile::greedy, platform>)) {
    goes_through_in_every_form<TestType>();
}

TEMPLATE_TEST_CASE("element: any goes through a oneshot, in every form", "[promise.element-needs]",
                   pinned, hostile::greedy, forms::nested, bide::result<int>) {
    using T = TestType;
    using ends = decltype(bide::oneshot<T, platform>());
    const auto each = [](auto wait) {
        ends e = bide::oneshot<T, platform>();
        bool right = false;
        test::team waiting(1, [&](int) { right = has<T>(wait(e.second), 1); });
        REQUIRE(test::are_asleep<test::native>(1));
        CHECK(std::move(e.first).send(make<T>(1)));
        waiting.join();
        CHECK(right);
    };
    each([](auto& from) { return from.recv(); });
    each([](auto& from) { return from.recv(std::stop_token()); });
    each([](auto& from) { return from.try_recv_for(1h); });
    each([](auto& from) {
        auto chosen = bide::select(bide::on_recv(from));
        return std::move(chosen.template get<0>());
    });
    {
        auto [to, from] = bide::oneshot<T, platform>();
        CHECK(std::move(to).send(make<T>(1)));
        CHECK(has<T>(from.try_recv(), 1));
    }
    {
        auto [to, from] = bide::oneshot<T, platform>();
        from.close();
        const auto back = std::move(to).send(make<T>(2));
        CHECK((!back && is<T>(back.error().value, 2)));
    }
    test::manual_executor later;
    auto [to, from] = bide::oneshot<T, platform>();
    ending<std::optional<T>> none;
    ending<std::optional<T>> got;
    auto destroyed = forms::start(from.async_recv().resume_on(later), none);
    CHECK(std::move(to).send(make<T>(4)));
    destroyed.destroy();
    later.drop_all();
    const auto next = forms::start(from.async_recv(), got);
    CHECK((got.done && has<T>(*got.out, 4)));
}

TEMPLATE_TEST_CASE("element: any that can be copied goes through a broadcast, in every form", "",
                   copied, hostile::greedy, bool, bide::result<int>) {
    using T = TestType;
    bide::basic_broadcast<T, platform> b(4);
    auto s = b.subscribe();
    for (const int n : {1, 2, 3, 4}) {
        CHECK(b.send(make<T>(n)) == 1);
    }
    CHECK(has<T>(s.try_recv(), 1));
    CHECK(has<T>(s.recv(), 2));
    CHECK(has<T>(s.recv(std::stop_token()), 3));
    CHECK(has<T>(s.try_recv_for(1h), 4));
    ending<bide::result<T, bide::recv_error>> got;
    const auto waits = forms::start(s.async_recv(), got);
    bool right[2] = {};
    test::team waiting(2, [&, copies = std::array{s, s}](int i) mutable {
        auto& from = copies[static_cast<std::size_t>(i)];
        right[i] = i == 0 ? has<T>(from.recv(), 5)
                          : has<T>(bide::select(bide::on_recv(from)).template get<0>(), 5);
    });
    REQUIRE(test::are_asleep<test::native>(2));
    b.send(make<T>(5));
    waiting.join();
    CHECK((right[0] && right[1] && got.done && has<T>(*got.out, 5)));
}

// see() returns a T that it has made before: one that is moved explicitly only cannot be returned.
TEMPLATE_TEST_CASE("element: any that can be copied is watched, in every form", "", copied,
                   hostile::greedy, bool, bide::result<int>) {
    using T = TestType;
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
