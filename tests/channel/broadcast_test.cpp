#include "support/alloc.hpp"
#include "support/catch.hpp"
#include "support/coroutines.hpp"
#include "support/counted.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"
#include "support/waiting.hpp"

#include <bide/channel/broadcast.hpp>
#include <bide/task/task.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

using bide::errc;
using std::chrono::steady_clock;
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
constexpr int closed = -static_cast<int>(errc::closed);
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

template <class Subscriber> test::detached note(Subscriber& from, test::journal& turns) {
    const auto got = co_await from.async_recv();
    turns.add(number(got));
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
template <class Subscriber>
test::detached take_until(Subscriber& from, std::stop_token stop, std::atomic<int>& out) {
    const auto got = co_await from.async_recv().with_stop(std::move(stop));
    out = number(got);
}
template <class Subscriber>
test::detached take_for(Subscriber& from, std::chrono::nanoseconds rest, std::atomic<int>& out) {
    const auto got = co_await from.async_recv().with_timeout(rest);
    out = number(got);
}

} // namespace

// ---- Values

TEST_CASE("broadcast: each subscriber receives all that is sent after it subscribed, in order") {
    const test::watchdog guard;
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

TEST_CASE("broadcast: try_iter() gives the values that are kept and passes over missed ones") {
    broadcast b(2);
    auto s = b.subscribe();
    for (int i = 1; i <= 5; ++i) {
        b.send(i);
    }
    values got;
    for (const auto& v : s.try_iter()) {
        got.push_back(v);
    }
    CHECK(got == values{4, 5});
    CHECK(is(s.try_recv(), errc::empty));
    b.send(6);
    b.close();
    for (const auto& v : s.try_iter()) {
        got.push_back(v);
    }
    CHECK(got == values{4, 5, 6});
}

TEST_CASE("broadcast: a subscriber that lags again learns again how many it missed since") {
    const test::watchdog guard;
    broadcast b(2);
    auto s = b.subscribe();
    for (int i = 1; i <= 5; ++i) {
        b.send(i);
    }
    CHECK(is(s.recv(), errc::lagged, 3));
    b.send(6); // pushes 4 out
    CHECK(is(s.recv(), errc::lagged, 1));
    CHECK(number(s.recv()) == 5);
    CHECK(number(s.recv()) == 6);
    CHECK(is(s.try_recv(), errc::empty));
}

TEST_CASE("broadcast: a copy of a subscriber receives the same values from then on") {
    const test::watchdog guard;
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

// ---- Waiting

TEST_CASE("broadcast: one send reaches every waiter, of every kind, in the order they came") {
    const test::watchdog guard;
    broadcast b(2);
    std::vector<subscriber> subscribers;
    for (int i = 0; i < 9; ++i) {
        subscribers.push_back(b.subscribe());
    }
    std::stop_source never = test::new_stop();
    test::journal turns;
    std::atomic<int> ends[2] = {};
    int got[4] = {};
    for (int i = 4; i < 7; ++i) {
        note(subscribers[static_cast<std::size_t>(i)], turns);
    }
    take_until(subscribers[7], never.get_token(), ends[0]);
    take_for(subscribers[8], 1h, ends[1]);
    test::team threads(4, [&](int i) {
        auto& mine = subscribers[static_cast<std::size_t>(i)];
        switch (i) {
        case 0: got[i] = number(mine.recv()); break;
        case 1: got[i] = number(mine.recv(never.get_token())); break;
        case 2: got[i] = number(mine.try_recv_for(1h)); break;
        default: got[i] = number(mine.try_recv_until(steady_clock::now() + 1h)); break;
        }
    });
    REQUIRE(test::are_asleep<test::native>(4));
    const bool sends = GENERATE(true, false);
    if (sends) {
        CHECK(b.send(7) == 9);
    } else {
        CHECK(b.close());
    }
    const int expected = sends ? 7 : closed;
    threads.join();
    CHECK(turns.entries() == values(3, expected));
    for (const int g : got) {
        CHECK(g == expected);
    }
    CHECK(ends[0] == expected);
    CHECK(ends[1] == expected);
}

TEST_CASE("broadcast: a time that has passed is one attempt, which succeeds if a value is there") {
    const test::watchdog guard(20s);
    broadcast b(2);
    auto s = b.subscribe();
    std::stop_source stop = test::new_stop();
    stop.request_stop();
    CHECK(is(s.try_recv_for(0s), errc::timeout));
    CHECK(is(s.try_recv_for(-1h), errc::timeout));
    CHECK(is(s.try_recv_for(1ms), errc::timeout));
    CHECK(is(s.try_recv_until(steady_clock::time_point::min()), errc::timeout));
    CHECK(is(s.recv(stop.get_token()), errc::stopped));
    std::atomic<int> ends[2] = {};
    take_for(s, 0s, ends[0]);
    CHECK(ends[0] == late);
    for (int i = 1; i <= 4; ++i) {
        b.send(i);
    }
    CHECK(is(s.try_recv_for(-1h), errc::lagged, 2)); // ready, too
    CHECK(number(s.recv(stop.get_token())) == 3);
    take_until(s, stop.get_token(), ends[1]);
    CHECK(ends[1] == 4);
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

// ---- Close

TEST_CASE("broadcast: after close() subscribers receive the values that are left, then closed") {
    const test::watchdog guard;
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

// ---- Elements

TEST_CASE("broadcast: a send makes no copy, a receive makes one, and each value is destroyed") {
    const test::watchdog guard;
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

namespace {

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

TEST_CASE("broadcast: a value whose copy throws is not received yet") {
    const test::watchdog guard;
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
    const test::watchdog guard;
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

// ---- Allocation, destruction

TEST_CASE("broadcast: no wait and no receive allocates") {
    const test::watchdog guard;
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

// ---- Storm

TEST_CASE(
    "broadcast: each subscriber receives or misses each value, and learns how many it missed") {
    using storm = bide::basic_broadcast<int, test::jittery>;
    const test::watchdog guard;
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    constexpr int each = 120; // of each of two senders
    struct sums {
        std::uint64_t got = 0;
        std::uint64_t missed = 0;
        bool in_order = true;
    };
    const std::int64_t enough = test::native::now() + 2'000'000'000;
    for (std::uint32_t round = 0; round < 60 && test::native::now() < enough; ++round) {
        const std::size_t capacity = round % 4 == 3 ? 64 : round % 4 + 1;
        storm b(capacity);
        std::vector<storm::subscriber> subscribers(3, b.subscribe());
        std::atomic<int> sending{2};
        sums all[3];
        test::run_threads(5, [&](int i) {
            test::jitter pause(test::run_seed() + round * 5 + static_cast<std::uint32_t>(i));
            if (i < 2) {
                for (int n = 0; n < each; ++n) {
                    pause();
                    b.send(n * 2 + i);
                }
                if (--sending == 0) {
                    b.close();
                }
                return;
            }
            auto& mine = subscribers[static_cast<std::size_t>(i - 2)];
            sums& sum = all[i - 2];
            int last[2] = {-2, -1};
            std::stop_source stop = test::new_stop();
            stop.request_stop();
            for (;;) {
                pause();
                const std::uint32_t kind = pause.below(4);
                auto got =
                    kind == 0   ? mine.recv()
                    : kind == 1 ? mine.try_recv_for(pause.rest(14))
                    : kind == 2
                        ? mine.recv(stop.get_token())
                        : bide::sync_wait(
                              [](auto& s) -> bide::task<
                                              std::optional<bide::result<int, bide::recv_error>>> {
                                  auto g = co_await s.async_recv();
                                  co_return std::move(g);
                              }(mine))
                              .value();
                if (got) {
                    int& before = last[*got % 2];
                    sum.in_order = sum.in_order && *got > before;
                    before = *got;
                    ++sum.got;
                } else if (got.error().code == errc::lagged) {
                    sum.missed += got.error().missed;
                } else if (got.error().code == errc::closed) {
                    break;
                }
            }
        });
        for (const sums& s : all) {
            REQUIRE(s.got + s.missed == 2 * each);
            REQUIRE(s.in_order);
            REQUIRE(s.got >= (capacity < 2 * each ? capacity : 2 * each));
        }
    }
}
