#include "support/alloc.hpp"
#include "support/counted.hpp"
#include "support/lifetime.hpp"
#include "support/observing.hpp"
#include "support/test.hpp"

#include <bide/channel/handles.hpp>
#include <bide/channel/select.hpp>
#include <bide/channel/unbounded_channel.hpp>

namespace {

using namespace bide;
using ints = std::vector<int>;

template <class Handle>
inline constexpr bool is_handle =
    std::is_nothrow_copy_constructible_v<Handle> && std::is_nothrow_move_constructible_v<Handle> &&
    std::is_nothrow_copy_assignable_v<Handle> && std::is_nothrow_move_assignable_v<Handle> &&
    !std::is_default_constructible_v<Handle> && sizeof(Handle) == sizeof(void*);
static_assert(is_handle<sender<int>> && is_handle<receiver<std::unique_ptr<int>>>);
static_assert(is_handle<bide::unbounded_sender<int>> && is_handle<bide::unbounded_receiver<int>>);
static_assert(
    std::is_same_v<decltype(make_channel<int>(1)), std::pair<sender<int>, receiver<int>>>);

template <class T>
concept has_send = requires(T& h) { h.try_send(1); };
template <class T>
concept has_recv = requires(T& h) { h.try_recv(); };
template <class T>
concept tells_capacity = requires(T& h) { h.capacity(); };
static_assert(has_send<sender<int>> && !has_recv<sender<int>> && tells_capacity<sender<int>>);
static_assert(has_recv<receiver<int>> && !has_send<receiver<int>> && tells_capacity<receiver<int>>);
static_assert(tells_capacity<bide::unbounded_sender<int>>);

// What a function that is a template on the element deduces.
template <class T> T element_of(sender<T>&);
template <class T> T element_of(receiver<T>&);
static_assert(std::is_same_v<decltype(element_of(std::declval<sender<char>&>())), char>);
static_assert(std::is_same_v<decltype(element_of(std::declval<receiver<char>&>())), char>);

template <class R> bool is(const R& got, errc why) { return !got && got.error() == why; }
template <class R> bool came_back(const R& got, int value) {
    return !got && got.error().code == errc::closed && got.error().value == value;
}

// A channel of each kind, by its first two handles.
struct bounded {
    template <class T, class Platform = test::native> static auto make() {
        return make_channel<T, Platform>(4);
    }
};
struct unbounded {
    template <class T, class Platform = test::native> static auto make() {
        return make_unbounded_channel<T, Platform>();
    }
};

// Waits with the operation alone: the handle is gone by then.
template <class Receiver>
test::held recv_without_handle(test::manual_executor& on, Receiver from, ints* out = nullptr) {
    auto op = from.async_recv().resume_on(on);
    {
        const auto gone = std::move(from);
    }
    const auto got = co_await std::move(op);
    if constexpr (std::is_same_v<typename Receiver::value_type, int>) {
        out->push_back(got.value_or(-1));
    }
}

using mortal = test::observing<test::mortal>;

// wait(ends, form) on a thread that is still inside of it when the last handle goes.
template <class Ends, class Wait> void stays_while_a_thread_waits(Ends made, int form, Wait wait) {
    std::optional<Ends> ends(std::move(made));
    CAPTURE(form);
    test::mortal::gone = 0;
    test::mortal::holds = true;
    test::team waiting(1, [form, wait, at = &*ends](int) { wait(*at, form); });
    REQUIRE(test::are_asleep<test::mortal>(1));
    ends.reset(); // ends the wait
    const bool stayed = test::mortal::gone == 0;
    test::mortal::holds = false;
    waiting.join();
    REQUIRE(stayed);
    CHECK(test::mortal::gone > 0);
}

// The same of a coroutine that waits with the operation that make(ends) returns.
template <class Ends, class Make> void stays_while_a_coroutine_waits(Ends made, Make make) {
    test::manual_executor later;
    std::optional<Ends> ends(std::move(made));
    auto waiting = test::await_op(make(*ends).resume_on(later));
    waiting.start();
    CHECK_FALSE(waiting.done());
    test::mortal::gone = 0; // the operations that were moved from have gone
    ends.reset();
    REQUIRE(test::mortal::gone == 0);
    CHECK(later.run_all() == 1);
    CHECK(waiting.done());
    waiting.destroy();
    CHECK(test::mortal::gone > 0);
}

// An item that holds its own channel's sender, and uses it when it is destroyed.
struct cyclic {
    cyclic(bide::unbounded_sender<cyclic> to, int& count) noexcept
        : home(std::move(to)), destroyed(&count) {}
    cyclic(cyclic&& other) noexcept
        : home(std::move(other.home)), destroyed(std::exchange(other.destroyed, nullptr)) {}
    ~cyclic() {
        if (destroyed != nullptr) {
            *destroyed += home.is_closed() ? 1 : 1'000;
            home.close();
            static_cast<void>(home.size());
        }
    }
    bide::unbounded_sender<cyclic> home;
    int* destroyed;
};

// Waits with a receiver of its own, and is not to go on.
template <class Receiver> test::held recv_holding(test::manual_executor& on, Receiver from) {
    const auto got = co_await from.async_recv().resume_on(on);
    static_cast<void>(got);
}

} // namespace

TEST_CASE("handles: a channel has the capacity that was asked for") {
    for (std::size_t capacity = 0; capacity < 4; ++capacity) {
        auto [tx, rx] = make_channel<int>(capacity);
        CHECK(tx.capacity() == capacity);
        CHECK(rx.capacity() == capacity);
        for (std::size_t i = 0; i < capacity; ++i) {
            CHECK(tx.try_send(1));
        }
        const auto one_more = tx.try_send(7);
        REQUIRE_FALSE(one_more);
        CHECK(one_more.error().code == errc::full);
    }
    CHECK_THROWS_AS(make_channel<int>(std::numeric_limits<std::size_t>::max()), std::length_error);
}

TEMPLATE_TEST_CASE("handles: same_channel() tells the handles of two channels apart", "", bounded,
                   unbounded) {
    auto [tx, rx] = TestType::template make<int>();
    auto [other_tx, other_rx] = TestType::template make<int>();
    auto copy = tx;
    CHECK(tx.same_channel(tx));
    CHECK(tx.same_channel(copy));
    CHECK(tx.same_channel(rx));
    CHECK(rx.same_channel(copy));
    CHECK_FALSE(tx.same_channel(other_tx));
    CHECK_FALSE(tx.same_channel(other_rx));
    CHECK_FALSE(rx.same_channel(other_rx));
    const auto moved = std::move(copy);
    CHECK(moved.same_channel(tx));
    CHECK_FALSE(copy.same_channel(moved));
    CHECK_FALSE(copy.same_channel(copy));
    tx = other_tx;
    CHECK(tx.same_channel(other_rx));
}

TEST_CASE("handles: the channel and its counts are one allocation, and a copy is none") {
    if (!test::counts_allocations()) {
        return;
    }
    const std::size_t before = test::allocations_here();
    const auto pair = make_unbounded_channel<int>();
    CHECK(test::allocations_here() == before + 1);
    const auto bounded_pair = make_channel<int>(100);
    CHECK(test::allocations_here() == before + 3); // and the ring
    const auto copy = pair;
    const auto bounded_copy = bounded_pair;
    CHECK(test::allocations_here() == before + 3);
}

TEMPLATE_TEST_CASE(
    "handles: if the last sender is destroyed, the channel is closed and receivers drain it",
    "[promise.last-handle-closes]", bounded, unbounded) {
    auto [tx, rx] = TestType::template make<int>();
    {
        auto copy = tx;
        auto another(copy);
        auto moved = std::move(copy);
        REQUIRE(moved.send(1));
        REQUIRE(another.send(2));
        copy = another; // is one again
        REQUIRE(copy.send(3));
    }
    CHECK_FALSE(rx.is_closed());
    REQUIRE(tx.send(4));
    {
        const auto last = std::move(tx);
    }
    CHECK(rx.is_closed());
    CHECK(rx.size() == 4);
    auto other = rx;
    CHECK(rx.recv() == 1);
    CHECK(other.recv() == 2);
    CHECK(rx.recv() == 3);
    CHECK(other.recv() == 4);
    CHECK_FALSE(rx.recv());
    CHECK(is(other.try_recv(), errc::closed));
}

TEMPLATE_TEST_CASE(
    "handles: if the last receiver is destroyed, the channel is closed and its items are destroyed",
    "[promise.unsent-returns]", bounded, unbounded) {
    test::tally t;
    auto [tx, rx] = TestType::template make<test::counted_once>();
    for (int i = 0; i < 3; ++i) {
        REQUIRE(tx.send(test::counted_once(t, i)));
    }
    {
        auto copy = rx;
        const auto moved = std::move(rx);
        REQUIRE(copy.recv()->number() == 0);
    }
    CHECK(t.alive() == 0); // at once, though there is a sender
    CHECK(tx.is_closed());
    CHECK(tx.empty());
    {
        const auto back = tx.send(test::counted_once(t, 9));
        REQUIRE_FALSE(back);
        CHECK(back.error().code == errc::closed);
        CHECK(back.error().value.number() == 9);
    }
    CHECK(t.alive() == 0);
    CHECK(t.copied == 0);
}

TEST_CASE("handles: an assignment gives up one handle and takes another") {
    auto [tx, rx] = make_unbounded_channel<int>();
    auto [tx2, rx2] = make_unbounded_channel<int>();
    auto& same = tx;
    tx = same;
    tx = std::move(same);
    CHECK(tx.send(1));
    tx = tx2;
    CHECK(rx.is_closed()); // that was its last
    CHECK_FALSE(rx2.is_closed());
    CHECK(tx.send(2));
    CHECK(rx2.recv() == 2);
    rx2 = rx;
    CHECK(came_back(tx2.send(3), 3));
    CHECK(rx2.recv() == 1);
    std::swap(rx, rx2);
    CHECK_FALSE(rx.recv());
}

TEMPLATE_TEST_CASE("handles: an operation that waits keeps the channel's memory when all handles "
                   "are gone",
                   "[promise.last-handle-closes]", bounded, unbounded) {
    test::manual_executor later;
    ints told;
    const auto waits_alone = [&](auto use) {
        auto [tx, rx] = TestType::template make<int>();
        auto waiting = recv_without_handle(later, rx, &told);
        waiting.start();
        REQUIRE_FALSE(waiting.done()); // the other receiver keeps it open
        use(tx);
        return waiting;
    };
    {
        auto closed = waits_alone([](auto&) {});
        CHECK(later.run_all() == 1);
        CHECK(told == ints{-1});
    }
    {
        auto granted = waits_alone([](auto& tx) { REQUIRE(tx.send(4)); });
        CHECK(later.run_all() == 1);
        CHECK(told == ints{-1, 4});
    }
    {
        auto destroyed = waits_alone([](auto& tx) { REQUIRE(tx.send(5)); });
        later.drop_all();
    }
    CHECK(told == ints{-1, 4});
}

TEST_CASE("handles: the channel's memory stays until the last receiver's wait is over") {
    const auto make = [] { return make_channel<int, mortal>(0); };
    for (int form = 0; form < 5; ++form) {
        stays_while_a_thread_waits(make(), form, [](auto& ends, int how) {
            auto& from = ends.second;
            ints out;
            switch (how) {
            case 0: static_cast<void>(from.recv()); break;
            case 1: static_cast<void>(from.recv(std::stop_token())); break;
            case 2: static_cast<void>(from.try_recv_for(1h)); break;
            case 3: from.recv_n(out, 1); break;
            default: static_cast<void>(bide::select(bide::on_recv(from)));
            }
        });
    }
    ints out;
    stays_while_a_coroutine_waits(make(), [](auto& ends) { return ends.second.async_recv(); });
    stays_while_a_coroutine_waits(make(),
                                  [&out](auto& ends) { return ends.second.async_recv_n(out, 1); });
    stays_while_a_coroutine_waits(
        make(), [](auto& ends) { return bide::async_select(bide::on_recv(ends.second)); });
}

TEST_CASE("handles: the channel's memory stays until the last sender's wait is over") {
    const auto make = [] { return make_channel<int, mortal>(0); };
    for (int form = 0; form < 4; ++form) {
        stays_while_a_thread_waits(make(), form, [](auto& ends, int how) {
            auto& to = ends.first;
            int value = 3;
            switch (how) {
            case 0: static_cast<void>(to.send(value)); break;
            case 1: static_cast<void>(to.send(std::stop_token(), value)); break;
            case 2: static_cast<void>(to.try_send_for(value, 1h)); break;
            default: static_cast<void>(bide::select(bide::on_send(to, value)));
            }
        });
    }
    int value = 3;
    stays_while_a_coroutine_waits(make(), [](auto& ends) { return ends.first.async_send(3); });
    stays_while_a_coroutine_waits(make(), [&value](auto& ends) {
        return bide::async_select(bide::on_send(ends.first, value));
    });
}

TEST_CASE("handles: an item may hold a sender of the channel that it is in") {
    int destroyed = 0;
    {
        auto [tx, rx] = make_unbounded_channel<cyclic>();
        for (int i = 0; i < 100; ++i) {
            REQUIRE(tx.send(cyclic(tx, destroyed)));
        }
        const auto gone = std::move(tx);
        CHECK_FALSE(rx.is_closed()); // those inside are senders
    }
    CHECK(destroyed == 100);
}

TEMPLATE_TEST_CASE("handles: an item that came to a destroyed coroutine goes back as long as there "
                   "is a receiver",
                   "", bounded, unbounded) {
    test::tally t;
    test::manual_executor later;
    {
        auto [tx, rx] = TestType::template make<test::counted_once>();
        auto one = recv_without_handle(later, rx);
        one.start();
        REQUIRE(tx.send(test::counted_once(t, 1)));
        later.drop_all();
        SECTION("which takes it") {
            one.destroy();
            const auto got = rx.try_recv();
            REQUIRE(got);
            CHECK(got->number() == 1);
        }
        SECTION("and without one it is destroyed") {
            {
                const auto last = std::move(rx);
            }
            REQUIRE(tx.is_closed());
            one.destroy();
            CHECK(t.alive() == 0);
            CHECK(tx.empty());
        }
        SECTION("and is destroyed with the coroutine that has the last one") {
            auto other = recv_holding(later, std::move(rx));
            other.start();
            one.destroy(); // it goes to the other
            later.drop_all();
            CHECK(t.alive() == 1);
            CHECK_FALSE(tx.is_closed());
            other.destroy();
            CHECK(t.alive() == 0);
            CHECK(tx.is_closed());
            CHECK(tx.empty());
        }
    }
    CHECK(t.alive() == 0);
    CHECK(t.copied == 0);
}

TEST_CASE("handles: an item that holds a sender of its channel does not go back into it once it is "
          "closed") {
    int destroyed = 0;
    test::manual_executor later;
    auto one = [&] {
        auto [tx, rx] = make_unbounded_channel<cyclic>();
        auto waiting = recv_without_handle(later, rx);
        waiting.start();
        REQUIRE(tx.send(cyclic(tx, destroyed)));
        return waiting;
    }();
    later.drop_all();
    CHECK(destroyed == 0);
    one.destroy();
    CHECK(destroyed == 1); // it saw its channel closed
}

TEST_CASE("handles: a chain of nested channels of any length can be destroyed") {
    constexpr int length = 10'000;
    auto [tx, rx] = make_channel<int>(1);
    receiver<int> from = rx;
    for (int i = 0; i < length; ++i) {
        auto [next_tx, next_rx] = make_channel<int>(1);
        [](receiver<int> in, sender<int> out) -> test::detached {
            for (;;) {
                const std::optional<int> got = co_await in.async_recv();
                if (!got) {
                    co_return;
                }
                const auto sent = co_await out.async_send(*got + 1);
                if (!sent) {
                    co_return;
                }
            }
        }(std::move(from), std::move(next_tx));
        from = std::move(next_rx);
    }
    REQUIRE(tx.send(1));
    CHECK(from.recv() == length + 1);
    {
        const auto gone = std::move(tx);
    }
    CHECK_FALSE(from.recv()); // each closed the next
}
