#include "support/alloc.hpp"
#include "support/fake_clock.hpp"
#include "support/is_free.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/selecting.hpp"
#include "support/service.hpp"
#include "support/test.hpp"

#include <bide/channel/unbounded_channel.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/sync/synchronized_value.hpp>

namespace {

using namespace bide;
using namespace test;
using ints = std::vector<int>;
using int_channel = bide::channel<int>;
using other_clock = test::fake_clock<struct other_clock_tag>;

struct any {
    static int_channel& c() noexcept;
    static bide::semaphore& s() noexcept;
    static bide::event& e() noexcept;
    static int& i() noexcept;
};
template <class Case, class Result>
inline constexpr bool is_case = std::is_same_v<Case, bide::select_case<Result>> &&
                                std::is_same_v<typename Case::result_type, Result>;
static_assert(is_case<decltype(on_recv(any::c())), std::optional<int>>);
static_assert(is_case<decltype(on_recv(&any::c())), std::optional<int>>);
static_assert(is_case<decltype(on_send(any::c(), any::i())), bide::result<void>>);
static_assert(is_case<decltype(on_send(&any::c(), any::i())), bide::result<void>>);
static_assert(is_case<decltype(on_acquire(any::s())), bide::result<bide::permit>>);
static_assert(is_case<decltype(on_acquire(&any::s(), 2)), bide::result<bide::permit>>);
static_assert(is_case<decltype(on_event(any::e())), std::monostate>);
static_assert(is_case<decltype(on_event(&any::e())), std::monostate>);
static_assert(is_case<decltype(on_timeout(1s)), std::monostate>);
static_assert(is_case<decltype(on_timeout(steady_clock::now())), std::monostate>);
static_assert(is_case<decltype(on_deadline(steady_clock::now())), std::monostate>);
static_assert(is_case<decltype(on_stop(std::stop_token())), std::monostate>);

using one = bide::selected<decltype(on_recv(any::c())), decltype(on_timeout(1s))>;
static_assert(std::is_same_v<decltype(bide::select(on_recv(any::c()), on_timeout(1s))), one>);
static_assert(std::is_same_v<decltype(bide::try_select(on_recv(any::c()), on_timeout(1s))),
                             std::optional<one>>);
static_assert(std::is_same_v<decltype(bide::async_select(on_recv(any::c()), on_timeout(1s))),
                             bide::async_op<one>>);
static_assert(
    std::is_same_v<decltype(std::declval<one&>().template get<0>()), std::optional<int>&>);
static_assert(noexcept(std::declval<const one&>().index()));
static_assert(!std::is_copy_constructible_v<decltype(on_recv(any::c()))>);

template <class R> bool is(const R& got, errc why) { return !got && got.error() == why; }

// How often each of N cases was chosen; the ready ones are given as bits.
template <std::size_t N> ints shares(int how, unsigned ready, int rounds) {
    std::array<bide::event, N> events;
    for (std::size_t i = 0; i < N; ++i) {
        if ((ready >> i & 1) != 0) {
            events[i].set();
        }
    }
    ints hits(N);
    for (int round = 0; round < rounds; ++round) {
        const auto got = [&]<std::size_t... I>(std::index_sequence<I...>) {
            return test::select_fairly(how, on_event(events[I])...);
        }(std::make_index_sequence<N>());
        ++hits[got->index()];
    }
    return hits;
}

template <std::size_t N> bool is_uniform(int how, unsigned ready) {
    constexpr int rounds = 5'000;
    return test::is_uniform(shares<N>(how, ready, rounds), ready);
}

// Two selects wait for `first` and then for `other`, another wait for `behind`. The selects are
// chosen for by `other` and have not gone on when `act` does what `behind` waits for.
template <class Make, class Behind, class Act> void pass_over(Make first, Behind behind, Act act) {
    int_channel other(2);
    test::manual_executor on;
    waiting left(bide::async_select(first(), on_recv(other)).resume_on(on));
    waiting left_too(bide::async_select_biased(first(), on_recv(other)).resume_on(on));
    waiting next(behind());
    REQUIRE(other.try_send(1));
    REQUIRE(other.try_send(2));
    REQUIRE(on.size() == 2);
    REQUIRE_FALSE(next.is_over());
    act();
    CHECK(next.is_over());
    CHECK(on.run_all() == 2);
    CHECK(left.got().index() == 1);
    CHECK(left_too.got().index() == 1);
}

template <class Mutex> using lock_case = decltype(on_lock(std::declval<Mutex&>()));
static_assert(is_case<lock_case<bide::mutex>, std::unique_lock<bide::mutex>>);
static_assert(is_case<lock_case<bide::adaptive_mutex>, std::unique_lock<bide::adaptive_mutex>>);
static_assert(is_case<lock_case<bide::shared_mutex>, std::unique_lock<bide::shared_mutex>>);
static_assert(
    is_case<decltype(on_lock(std::declval<bide::mutex*>())), std::unique_lock<bide::mutex>>);
static_assert(is_case<decltype(on_lock_shared(std::declval<bide::shared_mutex&>())),
                      std::shared_lock<bide::shared_mutex>>);
static_assert(is_case<decltype(on_lock_shared(std::declval<bide::shared_mutex*>())),
                      std::shared_lock<bide::shared_mutex>>);

// A clock that acts right after it was looked at, so that something happens between two cases.
struct acting_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<acting_clock>;

    static time_point now() noexcept {
        const time_point seen = at;
        if (act != nullptr) {
            act(looks++);
        }
        return seen;
    }
    // From now on, act(0) after the first look, and so on.
    static void begin(void (*what)(int look)) noexcept {
        act = what;
        looks = 0;
    }

    inline static time_point at;
    inline static void (*act)(int look) = nullptr;
    inline static int looks = 0;
    inline static int_channel* ch = nullptr;
};

} // namespace

TEST_CASE("select: each case that can happen at once does, alone, in every form") {
    const int how = GENERATE(range(0, test::all_forms));
    for (std::size_t kind = 0; kind < each_kind::kinds; ++kind) {
        INFO("kind " << kind);
        each_kind all;
        for (int round = 0; round < (kind < each_kind::latch ? 3 : 1); ++round) {
            all.make_happen(kind);
            auto got = all.run(how);
            REQUIRE(got.has_value());
            CHECK(all.is_right(kind, *got));
        }
    }
}

TEST_CASE("select: the ready cases have equal shares, wherever the quiet ones stand",
          "[promise.select-fair]") {
    const int how = GENERATE(range(0, test::first_biased));
    CHECK(is_uniform<2>(how, 0b11));
    CHECK(is_uniform<2>(how, 0b10));
    CHECK(is_uniform<3>(how, 0b101));
    CHECK(is_uniform<3>(how, 0b110));
    CHECK(is_uniform<3>(how, 0b111));
    CHECK(is_uniform<4>(how, 0b1001));
    for (const unsigned ready : {0b00011u, 0b10001u, 0b11010u, 0b10111u, 0b11111u}) {
        CHECK(is_uniform<5>(how, ready));
    }
    CHECK(is_uniform<9>(how, 0b100010001));
}

TEST_CASE("select: disabled cases and time-outs change no share") {
    const int how = GENERATE(range(0, test::first_biased));
    int_channel quiet(1);
    bide::event set(true);
    int_channel* const none = nullptr;
    constexpr int rounds = 5'000;
    ints hits(7);
    for (int round = 0; round < rounds; ++round) {
        const auto got =
            test::select_fairly(how, on_event(set), on_recv(none), on_timeout(0s), on_event(set),
                                on_recv(quiet), on_timeout(1h), on_event(set));
        ++hits[got->index()];
    }
    CHECK(test::is_uniform(hits, 0b1001001));
}

TEST_CASE("select: a requested stop and a passed deadline have the share of a ready case",
          "[promise.select-stop-and-time]") {
    const int how = GENERATE(range(0, test::first_biased));
    int_channel quiet(1);
    bide::event set(true);
    std::stop_source stopped = test::new_stop();
    stopped.request_stop();
    const std::stop_token token = stopped.get_token();
    const std::stop_source never = test::new_stop();
    const auto past = steady_clock::now();
    const other_clock::time_point other(1s);
    for (const bool passed : {false, true}) {
        other_clock::set(passed ? 1s : 0s);
        ints hits(7);
        for (int round = 0; round < 5'000; ++round) {
            const auto got = test::select_fairly(
                how, on_recv(quiet), on_deadline(past), on_stop(never.get_token()), on_event(set),
                on_timeout(0s), on_stop(token), on_deadline(other));
            ++hits[got->index()];
        }
        CHECK(test::is_uniform(hits, passed ? 0b1101010 : 0b0101010));
    }
}

TEST_CASE("select: where all cases are disabled it waits until it is ended") {
    int_channel* const none = nullptr;
    CHECK_FALSE(bide::try_select(on_recv(none)).has_value());
    CHECK_FALSE(bide::try_select_biased(on_recv(none), on_stop(std::stop_token())).has_value());
    waiting ended(bide::async_select(on_recv(none), on_recv(none)).with_timeout(1ms));
    REQUIRE(test::eventually([&] { return ended.is_over(); }));
    test::service_thread();
    CHECK(is(ended.got(), errc::timeout));
    waiting dropped(bide::async_select(on_recv(none)));
    CHECK_FALSE(dropped.is_over());
}

TEST_CASE("select: each case ends the wait of a coroutine, and only that one happens") {
    for (std::size_t kind = 0; kind < each_kind::kinds; ++kind) {
        INFO("kind " << kind);
        each_kind all;
        all.make_come(kind, 2ms);
        waiting w(all.async());
        if (kind < each_kind::timeout) {
            REQUIRE_FALSE(w.is_over());
            REQUIRE(all.permits.waiters() == 1);
        }
        if (!each_kind::is_time(kind)) {
            all.make_happen(kind);
        }
        REQUIRE(test::eventually([&] { return w.is_over(); }));
        test::service_thread();
        CHECK(all.is_right(kind, w.got()));
    }
}

TEST_CASE("select: each case ends the wait of a thread, and only that one happens",
          "[promise.select-one-case]") {
    const int how = GENERATE(test::blocking, test::blocking_biased);
    for (std::size_t kind = 0; kind < each_kind::kinds; ++kind) {
        INFO("kind " << kind);
        each_kind all;
        all.make_come(kind, 2ms);
        bool right = false;
        test::run_threads(2, [&](int i) {
            if (i == 0) {
                auto got = all.run(how);
                right = got.has_value() && all.is_right(kind, *got);
            } else if (!each_kind::is_time(kind) && test::has_waiters(all.permits, 1)) {
                all.make_happen(kind);
            }
        });
        CHECK(right);
    }
}

TEST_CASE("select: it waits in the queue of each case, in the order in which it came") {
    using platform = test::observing<test::native>;
    bide::basic_channel<int, platform> ch(2);
    bide::basic_channel<int, platform> other(2);
    waiting first(bide::async_select(on_recv(ch), on_recv(other)));
    waiting second(ch.async_recv());
    std::optional<int> third;
    std::optional<int> fifth;
    test::team threads(1, [&](int) {
        auto got = bide::select(on_recv(other), on_recv(ch));
        third = got.index() == 1 ? got.get<1>() : std::nullopt;
    });
    REQUIRE(test::are_asleep<test::native>(1));
    waiting fourth(bide::async_select(on_recv(ch), on_recv(ch)));
    test::team last(1, [&](int) { fifth = ch.recv(); });
    REQUIRE(test::are_asleep<test::native>(2));
    for (int i = 1; i <= 6; ++i) {
        REQUIRE(ch.try_send(i));
    }
    threads.join();
    last.join();
    REQUIRE(first.is_over());
    CHECK(first.got().get<0>() == 1);
    CHECK(second.got() == 2);
    CHECK(third == 3);
    REQUIRE(fourth.is_over());
    CHECK((fourth.got().index() == 0 ? fourth.got().get<0>() : fourth.got().get<1>()) == 4);
    CHECK(fifth == 5);
    CHECK(ch.try_recv().value() == 6);
    CHECK(other.empty());
}

TEST_CASE("select: which of two waits on one channel is served is a matter of chance, too") {
    int_channel hand(0);
    ints hits(2);
    for (int round = 0; round < 200; ++round) {
        waiting w(bide::async_select(on_recv(hand), on_recv(hand)));
        REQUIRE(hand.try_send(round));
        REQUIRE(w.is_over());
        ++hits[w.got().index()];
    }
    CHECK(hits[0] > 0);
    CHECK(hits[1] > 0);
}

TEST_CASE("select: what a case that is not chosen had in part goes to the waiters behind it",
          "[promise.select-one-case]") {
    bide::semaphore s(2);
    int_channel ch(1);
    test::foreign next(s, 1);
    test::foreign after(s, 4);
    SECTION("by an item for a thread") {
        bool right = false;
        test::team thread(
            1, [&](int) { right = bide::select(on_acquire(s, 5), on_recv(ch)).index() == 1; });
        REQUIRE(test::has_waiters(s, 1));
        next.start();
        after.start();
        REQUIRE(ch.try_send(1));
        thread.join();
        CHECK(right);
    }
    SECTION("by a stop") {
        std::stop_source stop = test::new_stop();
        waiting w(bide::async_select(on_acquire(s, 5), on_recv(ch)).with_stop(stop.get_token()));
        next.start();
        after.start();
        stop.request_stop();
        REQUIRE(test::eventually([&] { return w.is_over(); }));
        test::service_thread();
        CHECK(is(w.got(), errc::stopped));
    }
    REQUIRE(test::eventually([&] { return next.is_complete(); }));
    CHECK_FALSE(after.is_complete());
    CHECK(s.waiters() == 1);
    s.release(3); // one it had
    CHECK(after.is_complete());
    CHECK(s.available() == 0);
}

TEST_CASE("select: a case that lost to another of the same semaphore frees what it held") {
    bide::semaphore s(1);
    waiting w(bide::async_select_biased(on_acquire(s, 3), on_acquire(s, 2)));
    CHECK_FALSE(w.is_over());
    CHECK(s.available() == 0); // the head has it
    s.release(2);
    REQUIRE(w.is_over());
    CHECK(w.got().index() == 0);
    CHECK(w.got().get<0>().value().count() == 3);
    CHECK(s.available() == 0);
    CHECK(s.waiters() == 0);
    w.got().get<0>().value().forget();
    s.release();
    CHECK(s.available() == 1);
}

TEST_CASE("select: a grant passes over selects that have ended, to the next waiter") {
    bide::unbounded_channel<int> ch;
    const auto receive = [&] { return on_recv(ch); };
    const auto behind = [&] { return ch.async_recv(); };
    SECTION("an item") {
        pass_over(receive, behind, [&] { CHECK(ch.try_send(1)); });
    }
    SECTION("a close") {
        pass_over(receive, behind, [&] { ch.close(); });
    }
}

TEST_CASE("select: each operand is evaluated once, in every form") {
    const int how = GENERATE(range(0, test::all_forms));
    int_channel ch(1);
    int value = 1;
    int asked[4] = {};
    auto count = [&asked](std::size_t which, auto& what) -> auto& {
        ++asked[which];
        return what;
    };
    std::chrono::seconds none(0);
    auto got = select_by(how, on_recv(count(0, ch)), on_recv(count(1, ch)),
                         on_send(count(2, ch), value), on_timeout(count(3, none)));
    CHECK(got->index() == 2);
    CHECK(ints(asked, asked + 4) == ints(4, 1));
}

TEST_CASE("select: an exception while a case is evaluated leaves all other cases usable") {
    int_channel hand(0);
    int_channel ch(1);
    bide::semaphore s(1);
    int value = 1;
    REQUIRE(ch.try_send(5));
    auto thrower = []() -> int_channel& { throw std::runtime_error("evaluated"); };
    for (int round = 0; round < 3; ++round) {
        CHECK_THROWS_AS(bide::select(on_recv(ch), on_acquire(s, -1)), std::invalid_argument);
        CHECK_THROWS_AS(bide::try_select(on_send(hand, value), on_recv(ch), on_recv(thrower())),
                        std::runtime_error);
        CHECK_THROWS_AS(bide::async_select(on_acquire(s), on_recv(hand), on_recv(thrower())),
                        std::runtime_error);
        CHECK(is_left_alone(hand));
        CHECK(ch.size() == 1);
        CHECK(s.available() == 1);
        CHECK(s.waiters() == 0);
        CHECK(value == 1);
    }
    CHECK(bide::select(on_recv(hand), on_recv(ch)).get<1>() == 5);
}

TEST_CASE("select: an async_select that is never awaited has no effect") {
    each_kind all;
    {
        const auto unused = all.async();
        static_cast<void>(unused);
        CHECK(all.permits.waiters() == 0);
    }
    REQUIRE(all.in.try_send(1));
    CHECK(all.in.size() == 1);
    CHECK(all.value == 7);
}

#define BIDE_EACH_MUTEX bide::mutex, bide::adaptive_mutex, bide::shared_mutex

TEMPLATE_TEST_CASE("select: a lock that is free is taken, one that is not is left alone", "",
                   BIDE_EACH_MUTEX) {
    TestType m;
    bide::event e;
    {
        auto got = bide::select(on_event(e), on_lock(m));
        REQUIRE(got.index() == 1);
        CHECK(got.template get<1>().mutex() == &m);
        CHECK(got.template get<1>().owns_lock());
        CHECK_FALSE(test::is_free(m));
        CHECK_FALSE(bide::try_select(on_event(e), on_lock(m)));
        e.set();
        CHECK(bide::select(on_lock(m), on_event(e)).index() == 1);
    }
    CHECK(test::is_free(m));
    TestType* const none = nullptr;
    CHECK(bide::select(on_lock(none), on_event(e)).index() == 1);
    static_cast<void>(on_lock(m)); // never awaited
    static_cast<void>(bide::async_select(on_lock(m), on_event(e)));
    CHECK(test::is_free(m));
}

TEMPLATE_TEST_CASE("select: of a lock and an event that come one after the other the first happens",
                   "[promise.select-one-case]", BIDE_EACH_MUTEX) {
    TestType m;
    bide::event e;
    test::manual_executor later;
    m.lock();
    SECTION("the event") {
        waiting w(bide::async_select(on_lock(m), on_event(e)).resume_on(later));
        e.set();
        m.unlock();
        CHECK(test::is_free(m)); // though the select has not gone on yet
        CHECK(later.run_all() == 1);
        REQUIRE(w.is_over());
        CHECK(w.got().index() == 1);
        CHECK(test::is_free(m));
    }
    SECTION("the event, and another waits behind") {
        waiting w(bide::async_select(on_lock(m), on_event(e)).resume_on(later));
        waiting behind(m.async_lock());
        e.set();
        CHECK_FALSE(behind.is_over());
        SECTION("while the select has not gone on") {
            m.unlock();
            CHECK(behind.is_over());
            CHECK(later.run_all() == 1);
        }
        SECTION("when it has gone on") {
            CHECK(later.run_all() == 1);
            m.unlock();
            CHECK(behind.is_over());
        }
        REQUIRE(w.is_over());
        CHECK(w.got().index() == 1);
        CHECK_FALSE(test::is_free(m));
    }
    SECTION("of two selects that hang on each other's lock") {
        TestType other;
        other.lock();
        waiting w(bide::async_select(on_lock(m), on_lock(other)));
        waiting v(bide::async_select(on_lock(other), on_lock(m)));
        m.unlock();
        REQUIRE(w.is_over());
        CHECK(w.got().index() == 0);
        CHECK_FALSE(v.is_over());
        other.unlock();
        REQUIRE(v.is_over());
        CHECK(v.got().index() == 0);
    }
}

TEST_CASE("select: a shared lock is a case, too, beside others that share it") {
    bide::shared_mutex m;
    bide::event e;
    m.lock();
    waiting one_reader(bide::async_select(on_lock_shared(m), on_event(e)));
    waiting another(bide::async_select(on_event(e), on_lock_shared(m)));
    CHECK_FALSE(one_reader.is_over());
    m.unlock();
    REQUIRE(one_reader.is_over());
    REQUIRE(another.is_over());
    CHECK(one_reader.got().get<0>().owns_lock());
    CHECK(another.got().get<1>().owns_lock());
    CHECK_FALSE(m.try_lock());
    one_reader.got().get<0>().unlock();
    another.got().get<1>().unlock();
    CHECK(test::is_free(m));
    bide::shared_mutex* const none = nullptr;
    e.set();
    CHECK(bide::select(on_lock_shared(none), on_event(e)).index() == 1);
}

TEMPLATE_TEST_CASE("select: a synchronized_value is locked with its value", "", bide::mutex,
                   bide::adaptive_mutex) {
    bide::synchronized_value<int, TestType> v(7);
    bide::event e;
    {
        auto got = bide::select(on_event(e), on_lock(v));
        REQUIRE(got.index() == 1);
        CHECK(*got.template get<1>() == 7);
        CHECK_FALSE(v.try_lock());
    }
    CHECK(v.try_lock());
}

TEST_CASE("select: a send to an unbounded channel has decided before its receiver goes on") {
    using platform = bide::native_platform;
    using bide::detail::side;
    bide::detail::basic_unbounded_core<int, platform> core;
    struct {
        bide::basic_choice<platform> choice;
        bool was_decided = false;
    } seen;
    std::optional<int> got;
    bide::detail::destination to(got);
    int value = 3;
    bide::basic_waiter<platform> receiver;
    receiver.carry(to);
    receiver.set_waker(bide::waker(
        [](void* s) noexcept {
            auto& mine = *static_cast<decltype(seen)*>(s);
            mine.was_decided = mine.choice.is_decided();
        },
        &seen));
    bide::basic_waiter<platform> sender;
    sender.carry(value);
    sender.contest([](void*) noexcept {}, seen.choice);
    REQUIRE(core.enqueue(receiver, side::receiving) == bide::wait_status::waiting);
    CHECK(core.enqueue(sender, side::sending) == bide::wait_status::granted);
    CHECK(got == 3);
    CHECK(seen.was_decided);
}

TEST_CASE("select: no form allocates, with few cases or many", "[promise.no-wait-allocates]") {
    std::stop_source stop = test::new_stop();
    const std::stop_token token = stop.get_token();
    test::service_thread(); // it is there
    int_channel a(1);
    int_channel b(1);
    bide::semaphore s(0);
    bide::semaphore more(1);
    bide::event e;
    int value = 1;
    int other = 2;
    auto few = [&](auto form) {
        return form(on_recv(a), on_recv(b), on_acquire(s), on_event(e), on_recv(a), on_recv(b),
                    on_timeout(1h), on_stop(token));
    };
    const auto later = steady_clock::now() + 1h;
    auto many = [&](auto form) {
        return form(on_recv(a), on_recv(b), on_acquire(s), on_event(e), on_recv(a), on_recv(b),
                    on_acquire(more, 2), on_event(e), on_recv(a), on_recv(b), on_timeout(1h),
                    on_stop(token), on_deadline(later));
    };
    auto blocks = [](auto... c) {
        auto got = bide::select(std::move(c)...);
        got.template get<2>()->forget();
        return got.index();
    };
    auto tries = [](auto... c) { return bide::try_select(std::move(c)...).has_value(); };
    auto async = [](auto... c) { return bide::async_select(std::move(c)...); };
    waiting small(few(async));
    waiting large(many(async));
    REQUIRE_FALSE(small.is_over());
    REQUIRE_FALSE(large.is_over());
    std::size_t before = test::allocations_here();
    bool sent = bide::try_select(on_send(a, value), on_send(b, other)).has_value();
    sent = sent && bide::try_select(on_send(a, value), on_send(b, other)).has_value();
    std::size_t used = test::allocations_here() - before;
    CHECK(sent);
    CHECK(used == 0);
    CHECK(small.is_over());
    CHECK(large.is_over());

    before = test::allocations_here();
    const bool nothing = tries(on_recv(a), on_recv(b)) || few(tries) || many(tries);
    used = test::allocations_here() - before;
    CHECK_FALSE(nothing);
    CHECK(used == 0);

    std::size_t threads_use = 99;
    std::size_t index[2] = {99, 99};
    test::team thread(1, [&](int) {
        const std::size_t start = test::allocations_here();
        index[0] = few(blocks);
        index[1] = many(blocks);
        threads_use = test::allocations_here() - start;
    });
    for (int i = 0; i < 2; ++i) {
        REQUIRE(test::has_waiters(s, 1));
        before = test::allocations_here();
        s.release();
        used = test::allocations_here() - before;
        CHECK(used == 0);
    }
    thread.join();
    CHECK(index[0] == 2);
    CHECK(index[1] == 2);
    CHECK(threads_use == 0);
}

TEST_CASE("select: it does not say that nothing can happen while at every instant "
          "something can",
          "[promise.attempt-fails-rightly]") {
    const int how = GENERATE(range(0, test::first_biased));
    // While the one channel still has its item, the other one gets one; then the first loses it.
    constexpr int rounds = 3'000;
    int_channel first(1);
    int_channel second(1);
    test::rendezvous both(2);
    int blind = 0;
    bool is_over = false;
    const auto enough =
        steady_clock::now() + test::patience / 8; // on a busy machine they meet slowly
    test::run_threads(2, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        for (int round = 0; !is_over; ++round) {
            if (i == 0) {
                static_cast<void>(first.try_send(1));
                both.meet();
                chance();
                auto got =
                    test::select_fairly(how, on_recv(first), on_recv(second), on_timeout(0s));
                blind += !got || got->index() == 2 ? 1 : 0;
                both.meet();
                static_cast<void>(second.try_recv());
                is_over = round + 1 == rounds || steady_clock::now() > enough;
            } else {
                both.meet();
                chance();
                static_cast<void>(second.try_send(2));
                static_cast<void>(first.try_recv());
                both.meet();
            }
            both.meet();
        }
    });
    CHECK(blind == 0);
}

TEST_CASE("select: of the same for a deadline that passes before an item goes") {
    const int how = GENERATE(range(0, test::all_forms));
    int_channel ch(1);
    acting_clock::ch = &ch;
    for (int round = 0; round < 20; ++round) {
        acting_clock::at = {};
        REQUIRE(ch.try_send(1));
        auto end = on_deadline(acting_clock::time_point(1s));
        acting_clock::begin([](int look) {
            if (look == 0) {
                acting_clock::at = acting_clock::time_point(1s);
                static_cast<void>(acting_clock::ch->try_recv());
            }
        });
        const auto got = select_by(how, std::move(end), on_recv(ch), on_timeout(0s));
        REQUIRE(got);
        CHECK(got->index() == (acting_clock::looks != 0 ? 0u : 1u));
        acting_clock::begin(nullptr);
    }
}

TEST_CASE("select: a send that finds room while the receive of its channel is queued") {
    const int how = GENERATE(range(test::first_biased, test::all_forms));
    int_channel ch(1);
    int value = 2;
    acting_clock::ch = &ch;
    acting_clock::at = {};
    auto full = on_deadline(acting_clock::time_point(1s));
    auto empty = on_deadline(acting_clock::time_point(1s));
    acting_clock::begin([](int look) {
        if (look == 0) { // the receive has found nothing
            static_cast<void>(acting_clock::ch->try_send(1));
        } else if (look == 1) { // the send has found no room
            static_cast<void>(acting_clock::ch->try_recv());
        }
    });
    const auto got = test::select_biased(how, on_recv(ch), std::move(full), on_send(ch, value),
                                         std::move(empty));
    acting_clock::begin(nullptr);
    REQUIRE(got);
    CHECK(got->index() == 2);
    CHECK(ch.try_recv().value() == 2);
    REQUIRE(ch.try_send(3)); // to no receiver
    CHECK(ch.size() == 1);
}

TEST_CASE("select: 44 threads that each offer to send and to receive pair up exactly",
          "[promise.select-meets-once]") {
    constexpr int threads = 44;
    constexpr int rounds = 5;
    bide::basic_channel<int, test::jittery> hand(0);
    test::rendezvous all(threads);
    std::vector<ints> met(threads); // the partner of each; -1: it has sent
    test::run_threads(threads, [&](int i) {
        ints& mine = met[static_cast<std::size_t>(i)];
        mine.reserve(rounds);
        for (int round = 0; round < rounds; ++round) {
            int value = i;
            auto got = bide::select(on_send(hand, value), on_recv(hand));
            mine.push_back(got.index() == 0 ? -1 : got.get<1>().value_or(-2));
            all.meet(); // no thread is left over
        }
    });
    int sent = 0;
    ints times(threads);
    for (int i = 0; i < threads; ++i) {
        for (const int partner : met[static_cast<std::size_t>(i)]) {
            REQUIRE(partner >= -1);
            REQUIRE(partner != i); // not itself
            if (partner == -1) {
                ++sent;
            } else {
                ++times[static_cast<std::size_t>(partner)];
            }
        }
    }
    CHECK(sent == threads * rounds / 2);
    for (int i = 0; i < threads; ++i) {
        int mine = 0;
        for (const int partner : met[static_cast<std::size_t>(i)]) {
            mine += partner == -1 ? 1 : 0;
        }
        REQUIRE(times[static_cast<std::size_t>(i)] == mine);
    }
    CHECK(is_left_alone(hand));
}

TEST_CASE("select: threads that select once each share the ready cases evenly") {
    int_channel a(1);
    int_channel b(1);
    REQUIRE((a.try_send(1) && b.try_send(2)));
    int first = 0;
    constexpr int threads = 400;
    for (int i = 0; i < threads; ++i) {
        int value = 0;
        test::team one(1, [&](int) {
            auto got = bide::select(on_recv(a), on_recv(b));
            value = got.index() == 0 ? *got.get<0>() : *got.get<1>();
        });
        one.join();
        first += value == 1 ? 1 : 0;
        REQUIRE((value == 1 ? a : b).try_send(int{value}));
    }
    CHECK(first > threads / 4); // 10 standard deviations
    CHECK(first < threads * 3 / 4);
}
