#include "support/death.hpp"
#include "support/event_waits.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

#include <bide/channel/select.hpp>
#include <bide/sync/barrier.hpp>

using namespace test::event_waits;

static_assert(sizeof(bide::barrier<>) == 24 || sizeof(void*) != 8);
static_assert(!std::is_copy_constructible_v<bide::barrier<>>);
static_assert(!std::is_move_constructible_v<bide::barrier<>>);
static_assert(!std::is_default_constructible_v<bide::barrier<>>);
static_assert(!std::is_convertible_v<std::ptrdiff_t, bide::barrier<>>);

namespace {

using counts = std::vector<int>;

template <class Platform> using barrier_on = bide::barrier<bide::detail::no_completion, Platform>;

constinit bide::barrier<> at_start(2);

// A coroutine that arrives, waits and notes its turn.
template <class Barrier> test::detached meet(Barrier& b, test::journal& turns, int name) {
    co_await b.async_arrive_and_wait();
    turns.add(name);
}
template <class Barrier, class Token> test::held wait_at(Barrier& b, Token at, bool& through) {
    co_await b.async_wait(at);
    through = true;
}
template <class Barrier, class Token>
test::detached wait_until_stopped(Barrier& b, Token at, std::stop_token t, std::atomic<what>& end) {
    const auto got = co_await b.async_wait(at).with_stop(t);
    end = of(got);
}
template <class Barrier, class Token>
test::detached wait_until_late(Barrier& b, Token at, std::chrono::nanoseconds rest,
                               std::atomic<what>& end) {
    const auto got = co_await b.async_wait(at).with_timeout(rest);
    end = of(got);
}

} // namespace

TEST_CASE("barrier: the phase ends with the last arrival, and the next one begins") {
    barrier_on<test::native> b(3);
    for (int phase = 0; phase < 5; ++phase) {
        const auto first = b.arrive();
        const auto second = b.arrive();
        CHECK_FALSE(b.try_wait(first));
        CHECK_FALSE(b.wait_for(second, 0s));
        CHECK_FALSE(b.wait_for(second, 1us));
        const auto third = b.arrive();
        for (const auto& token : {first, second, third}) {
            CHECK(b.try_wait(token));
            b.wait(token);
            CHECK(b.wait_for(token, -1h));
            CHECK(b.wait_until(token, steady_clock::time_point::min()));
            std::stop_source stop;
            stop.request_stop();
            CHECK(b.wait(stop.get_token(), token));
            CHECK(b.wait(std::stop_token(), token));
            bool through = false;
            auto c = wait_at(b, token, through);
            c.start();
            CHECK(through);
        }
    }
    const auto all = b.arrive(3);
    CHECK(b.try_wait(all));
}

TEST_CASE("barrier: it can be constant-initialised") {
    const auto token = at_start.arrive(2);
    CHECK(at_start.try_wait(token));
}

TEST_CASE("barrier: zero, negative and too many arrivals are refused and change nothing",
          "[promise.misuse-refused]") {
    using barrier = barrier_on<test::native>;
    CHECK_THROWS_AS(std::make_unique<barrier>(0), std::invalid_argument);
    CHECK_THROWS_AS(std::make_unique<barrier>(-1), std::invalid_argument);
    CHECK_THROWS_AS(std::make_unique<barrier>(barrier::max() + 1), std::invalid_argument);
    barrier b(2);
    for (const std::ptrdiff_t n : {std::ptrdiff_t{0}, std::ptrdiff_t{-1}, barrier::max() + 1}) {
        CHECK_THROWS_AS(static_cast<void>(b.arrive(n)), std::invalid_argument);
    }
    const auto token = b.arrive();
    CHECK_FALSE(b.try_wait(token));
    CHECK(b.try_wait(b.arrive()));
    barrier most(barrier::max());
    const auto early = most.arrive(barrier::max() - 1);
    CHECK_FALSE(most.try_wait(early));
    static_cast<void>(most.arrive());
    CHECK(most.try_wait(early));
}

TEST_CASE("barrier: a drop is an arrival, and lowers what later phases expect") {
    barrier_on<test::native> b(3);
    const auto first = b.arrive();
    b.arrive_and_drop();
    CHECK_FALSE(b.try_wait(first));
    b.arrive_and_drop();
    CHECK(b.try_wait(first));
    b.arrive_and_wait(); // alone
    b.arrive_and_wait();
    b.arrive_and_drop();
}

TEST_CASE(
    "barrier: the last arrival calls the completion function, once a phase, before any waiter "
    "goes on",
    "[promise.barrier-phases]") {
    constexpr int size = 10; // more than 3 missing arrivals, so that a spin pauses longer
    int completed = 0;       // plain: a sanitizer sees whether it is ordered
    std::atomic<int> wrong{0};
    bide::barrier b(size, [&completed]() noexcept { ++completed; });
    test::run_threads(size, [&](int) {
        for (int phase = 1; phase <= 200; ++phase) {
            b.arrive_and_wait();
            wrong += completed != phase ? 1 : 0;
        }
    });
    CHECK(wrong == 0);
    static_cast<void>(b.arrive(size - 1));
    CHECK(completed == 200);
    static_cast<void>(b.arrive());
    CHECK(completed == 201);
}

TEST_CASE("barrier: all that arrive and wait go on with the last arrival, in order") {
    using platform = test::observing<test::native>;
    barrier_on<platform> b(6);
    std::stop_source never;
    test::journal turns;
    bool good[2] = {};
    for (int i = 0; i < 3; ++i) {
        meet(b, turns, i);
    }
    test::team threads(2, [&](int i) {
        if (i == 0) {
            b.arrive_and_wait();
        }
        good[i] = i == 0 || b.arrive_and_wait(never.get_token());
    });
    REQUIRE(test::are_asleep<test::native>(2));
    CHECK(turns.size() == 0);
    meet(b, turns, 3); // the last one: it does not wait
    CHECK(turns.entries() == counts{0, 1, 2, 3});
    threads.join();
    CHECK((good[0] && good[1]));
}

TEST_CASE("barrier: a wait that is stopped or times out leaves the arrival counted",
          "[promise.barrier-phases]") {
    barrier_on<test::native> b(4);
    std::stop_source stop;
    std::atomic<what> ends[2] = {};
    const auto token = b.arrive();
    wait_until_stopped(b, token, stop.get_token(), ends[0]);
    wait_until_late(b, b.arrive(), 1ms, ends[1]);
    stop.request_stop();
    REQUIRE(test::eventually([&] { return ends[0] == what::stopped; }));
    REQUIRE(test::eventually([&] { return ends[1] == what::timeout; }));
    CHECK(is(b.wait(stop.get_token(), token), bide::errc::stopped));
    CHECK(is(b.arrive_and_wait(stop.get_token()), bide::errc::stopped));
    CHECK_FALSE(b.wait_for(token, 1ms));
    CHECK_FALSE(b.try_wait(token));
    b.arrive_and_wait();
    CHECK(b.try_wait(token));
}

TEST_CASE("barrier: the end of a phase is a case of a select") {
    bide::barrier b(2);
    const auto token = b.arrive();
    CHECK(bide::select(bide::on_event(b, token), bide::on_timeout(1ms)).index() == 1);
    test::team other(1, [&](int) { b.arrive_and_wait(); });
    CHECK(bide::select(bide::on_event(b, token), bide::on_timeout(1h)).index() == 0);
    other.join();
    CHECK(bide::select(bide::on_event(b, token), bide::on_timeout(1h)).index() == 0);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("barrier: misuse terminates with its name", "[promise.misuse-refused]") {
    const std::string too_often = test::dies([] {
        bide::barrier b(2);
        static_cast<void>(b.arrive(3));
    });
    CHECK(test::contains(too_often, "barrier"));
    CHECK(test::contains(too_often, "more often than it expects"));
    const std::string after_drops = test::dies([] {
        bide::barrier b(1);
        b.arrive_and_drop();
        b.arrive_and_wait();
    });
    CHECK(test::contains(after_drops, "more often than it expects"));
}

#endif

TEST_CASE("barrier: the wait of the last arrival does not access the barrier, which may be gone") {
    std::optional<bide::barrier<>> b(std::in_place, 1);
    auto passes = b->async_arrive_and_wait();
    b.emplace(2); // in the same place; its phase has not ended
    const auto wait = [](bide::async_op<void> op) -> test::held { co_await std::move(op); };
    auto last = wait(std::move(passes));
    last.start();
    CHECK(last.done());
}
