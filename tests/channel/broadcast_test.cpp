#include "support/alloc.hpp"
#include "support/coroutines.hpp"
#include "support/counted.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

#include <bide/channel/broadcast.hpp>

namespace {

using bide::errc;
using watched = test::observing<test::native>;
using broadcast = bide::basic_broadcast<int, watched>;
using subscriber = broadcast::subscriber;
using values = std::vector<int>;

template <class Result> bool is(const Result& got, errc error, std::uint64_t missed = 0) {
    return !got && got.error().code == error && got.error().missed == missed;
}

// A value, or the errc as a negative number.
int number(const bide::result<int, bide::recv_error>& got) {
    return got ? *got : -static_cast<int>(got.error().code);
}
constexpr int nothing_yet = 0;
constexpr int late = -static_cast<int>(errc::timeout);

// What there is: values, and for a lag -100 - missed.
template <class Subscriber> values all_of(Subscriber& s) {
    values out;
    for (;;) {
        const auto got = s.try_recv();
        if (got) {
            out.push_back(*got);
        } else if (got.error().code == errc::lagged) {
            out.push_back(-100 - static_cast<int>(got.error().missed));
        } else {
            return out;
        }
    }
}

template <class Subscriber> test::held take(Subscriber& from, int& out) {
    const auto got = co_await from.async_recv();
    out = number(got);
}
template <class Subscriber>
test::held take_on(test::manual_executor& on, Subscriber& from, int& out) {
    const auto got = co_await from.async_recv().resume_on(on);
    out = number(got);
}

struct fragile {
    explicit fragile(int v, int& fails) noexcept : value(v), failures(&fails) {}
    fragile(const fragile& other) : value(other.value), failures(other.failures) {
        if (*failures > 0) {
            --*failures;
            throw std::runtime_error("no copy today");
        }
    }
    fragile(fragile&&) noexcept = default;
    int value;
    int* failures;
};

// Comes back when it is copied and when it is destroyed.
struct reentrant {
    explicit reentrant(bide::broadcast<reentrant>*& to, int& calls) noexcept
        : of(&to), called(&calls) {}
    reentrant(const reentrant& other) noexcept : of(other.of), called(other.called) { call(); }
    reentrant(reentrant&& other) noexcept
        : of(std::exchange(other.of, nullptr)), called(other.called) {}
    ~reentrant() { call(); }
    void call() const noexcept {
        if (of != nullptr && *of != nullptr) {
            auto mine = (*of)->subscribe();
            *called += mine.try_recv() ? 100 : 1;
        }
    }
    bide::broadcast<reentrant>** of;
    int* called;
};

} // namespace

TEST_CASE("broadcast: each subscriber receives all that is sent after it subscribed, in order") {
    broadcast b(4);
    CHECK(b.capacity() == 4);
    CHECK(b.send(1) == 0); // there is no subscriber
    auto first = b.subscribe();
    CHECK(b.subscribers() == 1);
    CHECK(b.send(2) == 1);
    auto second = b.subscribe();
    CHECK(b.send(3) == 2);
    CHECK(b.send(4) == 2);
    CHECK(all_of(first) == values{2, 3, 4});
    CHECK(all_of(second) == values{3, 4});
    CHECK(is(first.try_recv(), errc::empty));
    {
        const auto gone = std::move(second);
        CHECK(b.subscribers() == 2);
    }
    CHECK(b.subscribers() == 1);
    CHECK(b.send(5) == 1);
    CHECK(number(first.recv()) == 5);
}

TEST_CASE(
    "broadcast: a subscriber that lags learns once how many it missed, then receives the oldest",
    "[promise.broadcast-lag]") {
    const std::size_t capacity = GENERATE(1u, 2u, 3u, 5u, 8u);
    const int sent = GENERATE(1, 2, 3, 4, 5, 9, 40);
    CAPTURE(capacity, sent);
    broadcast b(capacity);
    b.send(-1);
    auto s = b.subscribe();
    for (int i = 1; i <= sent; ++i) {
        b.send(i);
    }
    const int missed = sent > static_cast<int>(capacity) ? sent - static_cast<int>(capacity) : 0;
    values expected;
    if (missed != 0) {
        expected.push_back(-100 - missed);
    }
    for (int i = missed + 1; i <= sent; ++i) {
        expected.push_back(i);
    }
    CHECK(all_of(s) == expected);
}

TEST_CASE("broadcast: a subscriber that lags again learns again how many it missed since") {
    broadcast b(2);
    auto s = b.subscribe();
    for (int i = 1; i <= 5; ++i) {
        b.send(i);
    }
    CHECK(is(s.recv(), errc::lagged, 3));
    b.send(6);                                       // pushes 4 out
    CHECK(is(s.try_recv_for(-1h), errc::lagged, 1)); // ready, too
    CHECK(number(s.recv()) == 5);
    CHECK(number(s.recv()) == 6);
    CHECK(is(s.try_recv(), errc::empty));
}

TEST_CASE("broadcast: a copy of a subscriber receives the same values from then on") {
    broadcast b(4);
    auto first = b.subscribe();
    b.send(1);
    b.send(2);
    CHECK(number(first.recv()) == 1);
    auto second = first;
    CHECK(b.subscribers() == 2);
    CHECK(b.send(3) == 2);
    CHECK(all_of(first) == values{2, 3});
    CHECK(all_of(second) == values{2, 3});
    auto third = std::move(first);
    CHECK(b.subscribers() == 2);
    second = third;
    b.send(4);
    CHECK(all_of(second) == values{4});
    CHECK(all_of(third) == values{4});
    CHECK(b.subscribers() == 2);
}

TEST_CASE("broadcast: a capacity of 0 is refused") {
    CHECK_THROWS_AS(broadcast(0), std::invalid_argument);
}

TEST_CASE("broadcast: a waiter that resumes late lags like every other subscriber") {
    broadcast b(1);
    auto s = b.subscribe();
    int got = nothing_yet;
    test::manual_executor later;
    auto c = take_on(later, s, got);
    c.start();
    b.send(1);
    b.send(2);
    CHECK(later.run_all() == 1);
    CHECK(got == -static_cast<int>(errc::lagged));
    CHECK(number(s.try_recv()) == 2);
}

TEST_CASE("broadcast: after close() subscribers receive the values that are left, then closed") {
    std::optional<broadcast> b(std::in_place, 3u);
    auto s = b->subscribe();
    for (int i = 1; i <= 4; ++i) {
        b->send(i);
    }
    SECTION("called") {
        CHECK_FALSE(b->is_closed());
        CHECK(b->close());
        CHECK_FALSE(b->close());
        CHECK(b->is_closed());
        CHECK(b->send(5) == 0);
        auto nothing_to_come = b->subscribe();
        CHECK(is(nothing_to_come.recv(), errc::closed));
    }
    SECTION("by the end of the broadcast") { b.reset(); }
    CHECK(is(s.recv(), errc::lagged, 1));
    CHECK(number(s.recv()) == 2);
    auto other = s; // it may outlive the broadcast
    CHECK(all_of(s) == values{3, 4});
    CHECK(is(s.recv(), errc::closed));
    CHECK(is(s.try_recv(), errc::closed));
    CHECK(number(other.recv()) == 3);
}

TEST_CASE("broadcast: a send makes no copy, a receive makes one, and each value is destroyed") {
    test::tally count;
    {
        bide::broadcast<test::counted> b(2);
        auto s = b.subscribe();
        auto t = b.subscribe();
        for (int i = 1; i <= 3; ++i) {
            b.send(test::counted(count, i));
        }
        CHECK(count.copied == 0);
        CHECK(count.alive() == 2);   // the first was pushed out
        static_cast<void>(s.recv()); // lagged
        const auto got = s.recv();
        REQUIRE(got);
        CHECK(got->number() == 2);
        CHECK(count.copied == 1);
        CHECK(count.alive() == 3);
    }
    CHECK(count.alive() == 0);
}

TEST_CASE("broadcast: a value whose copy throws is not received yet") {
    int failures = 0;
    bide::broadcast<fragile> b(2);
    auto s = b.subscribe();
    b.send(fragile(7, failures));
    failures = 2;
    CHECK_THROWS_AS(s.recv(), std::runtime_error);
    CHECK_THROWS_AS(s.try_recv(), std::runtime_error);
    const auto got = s.recv();
    CHECK((got && got->value == 7));
    CHECK(is(s.try_recv(), errc::empty));
}

TEST_CASE("broadcast: the copy constructor and the destructor of a value may use it") {
    int calls = 0;
    bide::broadcast<reentrant>* self = nullptr;
    bide::broadcast<reentrant> b(1);
    self = &b;
    auto s = b.subscribe();
    b.send(reentrant(self, calls));
    {
        const auto got = s.recv();
        CHECK(got);
        CHECK(calls == 1);
    }
    CHECK(calls == 2);
    b.send(reentrant(self, calls)); // pushes the first out
    CHECK(calls == 3);
    self = nullptr;
}

TEST_CASE("broadcast: no wait and no receive allocates") {
    bide::timer_service<watched>(); // its thread, once
    broadcast b(4);
    auto s = b.subscribe();
    int got = nothing_yet;
    auto c = take(s, got);
    b.send(1);
    b.send(2);
    std::size_t before = test::allocations_here();
    const int first = number(s.recv());
    const int second = number(s.try_recv());
    const int third = number(s.try_recv_for(1ms));
    auto copy = s;
    c.start();
    std::size_t made = test::allocations_here() - before;
    CHECK(made == 0);
    CHECK(values{first, second, third} == values{1, 2, late});
    b.send(3);
    CHECK(got == 3);
}
