#include "support/coroutines.hpp"
#include "support/death.hpp"
#include "support/fake_clock.hpp"
#include "support/last_touch.hpp"
#include "support/selecting.hpp"
#include "support/service.hpp"
#include "support/test.hpp"

#include <bide/channel/broadcast.hpp>
#include <bide/channel/oneshot.hpp>
#include <bide/channel/unbounded_channel.hpp>

namespace {

using namespace bide;
using namespace test;
using int_channel = bide::channel<int>;

template <class R> bool is(const R& got, errc why) { return !got && got.error() == why; }

test::held select_either(int_channel& ch, bide::semaphore& s, bool& ran) {
    const auto got = co_await bide::async_select(on_recv(ch), on_acquire(s));
    ran = got.index() < 2;
}

} // namespace

TEST_CASE("select: zero, negative and past times and NaN mean one attempt") {
    using std::chrono::duration;
    int_channel ch(1);
    auto late = [&](auto when) { return bide::select(on_recv(ch), on_timeout(when)).index(); };
    auto late_async = [&](auto when) {
        waiting w(bide::async_select(on_recv(ch), on_timeout(when)));
        return w.is_over() ? w.got().index() : 99; // without suspending
    };
    auto each = [&](auto when) {
        CHECK(late(when) == 1);
        CHECK(late_async(when) == 1);
        CHECK(bide::try_select(on_recv(ch), on_timeout(when)).has_value());
    };
    each(0s);
    each(-1ns);
    each(std::chrono::hours::min());
    each(duration<double>(-1e300));
    each(duration<double>(std::numeric_limits<double>::quiet_NaN()));
    each(steady_clock::now());
    each(steady_clock::time_point::min());
    each(std::chrono::system_clock::now() - 24h);
    REQUIRE(ch.try_send(1));
    CHECK(late(-1s) == 0);
    REQUIRE(ch.try_send(1));
    CHECK(late_async(-1s) == 0);
}

TEST_CASE("select: a huge time-out never ends the wait, an item does") {
    auto each = [](auto when) {
        int_channel ch(1);
        bide::semaphore mark(0);
        waiting w(bide::async_select(on_recv(ch), on_timeout(when)));
        CHECK_FALSE(w.is_over());
        REQUIRE(ch.try_send(1));
        REQUIRE(w.is_over());
        CHECK(w.got().index() == 0);
        std::size_t index = 99;
        test::team thread(1, [&](int) {
            index = bide::select_biased(on_recv(ch), on_acquire(mark), on_timeout(when)).index();
        });
        REQUIRE(test::has_waiters(mark, 1));
        REQUIRE(ch.try_send(1));
        thread.join();
        CHECK(index == 0);
    };
    each(std::chrono::hours::max());
    each(std::chrono::duration<double>(1e300));
    each(steady_clock::time_point::max());
    each(std::chrono::system_clock::time_point::max());
}

TEST_CASE("select: a time-out or a deadline is not early, and the first to come wins") {
    int_channel ch(1);
    const auto check = [&](auto later, auto make) {
        auto start = steady_clock::now();
        CHECK(bide::select(later(), on_recv(ch), make(start + 15ms)).index() == 2);
        CHECK(steady_clock::now() >= start + 15ms);
        const auto system = std::chrono::system_clock::now() + 15ms;
        CHECK(bide::select(make(system), on_recv(ch), later()).index() == 0);
        CHECK(std::chrono::system_clock::now() >= system);
        start = steady_clock::now();
        waiting w(bide::async_select(later(), on_recv(ch), make(start + 15ms)));
        REQUIRE(test::eventually([&] { return w.is_over(); }));
        CHECK(steady_clock::now() >= start + 15ms);
        test::service_thread();
        CHECK(w.got().index() == 2);
    };
    const auto in_an_hour = steady_clock::now() + 1h;
    check([] { return on_timeout(1h); }, [](auto when) { return on_timeout(when); });
    check([=] { return on_deadline(in_an_hour); }, [](auto when) { return on_deadline(when); });
    CHECK(bide::select(on_deadline(steady_clock::time_point::min())).index() == 0);
    CHECK_FALSE(bide::try_select(on_deadline(steady_clock::time_point::max())));
}

TEST_CASE("select: a time from now counts from the beginning of the wait, not of the case") {
    int_channel ch(1);
    auto rest = on_timeout(15ms);
    auto operation = bide::async_select(on_recv(ch), on_timeout(15ms));
    const auto made = steady_clock::now();
    test::eventually([&] { return steady_clock::now() > made + 20ms; });
    auto start = steady_clock::now();
    CHECK(bide::select(on_recv(ch), std::move(rest)).index() == 1);
    CHECK(steady_clock::now() >= start + 15ms);
    start = steady_clock::now();
    waiting w(std::move(operation));
    REQUIRE(test::eventually([&] { return w.is_over(); }));
    CHECK(steady_clock::now() >= start + 15ms);
    test::service_thread();
}

TEST_CASE("select: a time-out and a deadline by another clock come by that clock") {
    struct tag;
    using clock = test::fake_clock<tag>;
    const clock::time_point end(10s + 1ms);
    int_channel ch(1);
    const auto check = [&](auto make) {
        for (const bool async : {false, true}) {
            clock::set(10s);
            clock::reads = 0;
            bool right = false;
            test::run_threads(2, [&](int i) {
                if (i == 1) { // it stands still for a while
                    test::eventually([] { return clock::reads > 6; });
                    clock::set(11s);
                } else if (async) {
                    waiting w(bide::async_select(on_recv(ch), make(end)));
                    test::eventually([&] { return w.is_over(); });
                    test::service_thread();
                    right = w.got().index() == 1 && clock::now() >= end;
                } else {
                    right =
                        bide::select(on_recv(ch), make(end)).index() == 1 && clock::now() >= end;
                }
            });
            CHECK(right);
        }
        CHECK(bide::select(on_recv(ch), make(end)).index() == 1); // it has passed
    };
    check([](clock::time_point t) { return on_timeout(t); });
    check([](clock::time_point t) { return on_deadline(t); });
}

TEST_CASE("select: a clock that is set past a time-out ends the select", "[promise.time-limits]") {
    struct tag;
    using clock = test::fake_clock<tag>;
    int_channel ch(1);
    const clock::time_point end(11h);
    for (const bool async : {false, true}) {
        clock::set(10h);
        clock::reads = 0;
        std::size_t ended_by = 99;
        test::run_threads(2, [&](int i) {
            if (i == 1) {
                test::eventually([] { return clock::reads > 2; });
                clock::set(9h);
                clock::set(12h);
            } else if (async) {
                waiting w(bide::async_select(on_recv(ch), on_timeout(30min), on_timeout(end)));
                test::eventually([&] { return w.is_over(); });
                test::service_thread();
                ended_by = w.got().index();
            } else {
                ended_by = bide::select(on_recv(ch), on_timeout(30min), on_timeout(end)).index();
            }
        });
        CHECK(ended_by == 2);
    }
}

TEST_CASE("select: a clock that stands still does not keep another one's time-out from coming") {
    struct tag;
    using clock = test::fake_clock<tag>;
    clock::set(10s);
    const clock::time_point never(10s + 1ms);
    int_channel ch(1);
    std::size_t thread = 99;
    test::run_threads(1, [&](int) {
        thread = bide::select(on_recv(ch), on_timeout(never), on_timeout(10ms)).index();
    });
    CHECK(thread == 2);
    waiting w(bide::async_select(on_recv(ch), on_timeout(never), on_timeout(10ms)));
    REQUIRE(test::eventually([&] { return w.is_over(); }));
    test::service_thread();
    CHECK(w.got().index() == 2);
}

TEST_CASE("select: a stop or a time-out after the grant changes nothing") {
    struct tag;
    using clock = test::fake_clock<tag>;
    clock::set(10s);
    const clock::time_point end(10s + 1ms);
    int_channel ch(1);
    int_channel other(1);
    bide::semaphore s(0);
    test::manual_executor on;
    std::stop_source stop = test::new_stop();
    std::stop_source case_stop = test::new_stop();
    auto select = [&] {
        return bide::async_select(on_recv(ch), on_recv(other), on_acquire(s),
                                  on_stop(case_stop.get_token()), on_timeout(end))
            .with_stop(stop.get_token())
            .with_deadline(end)
            .resume_on(on);
    };
    waiting item(select());
    waiting permit(select());
    REQUIRE(ch.try_send(1));
    s.release();
    REQUIRE(ch.try_send(2)); // for others
    const auto start = steady_clock::now();
    clock::set(11s);
    stop.request_stop();
    case_stop.request_stop();
    ch.close();
    s.close();
    test::eventually([&] { return steady_clock::now() > start + 25ms; });
    test::service_thread(); // which has fired all that was due
    CHECK(on.run_all() == 2);
    REQUIRE(item.is_over());
    REQUIRE(permit.is_over());
    REQUIRE(item.got().has_value());
    REQUIRE(permit.got().has_value());
    CHECK(item.got()->get<0>() == 1);
    CHECK(permit.got()->get<2>().has_value());
    CHECK(ch.try_recv().value() == 2);
}

TEST_CASE("select: a stop resumes no coroutine on the thread that requests it") {
    int_channel ch(1);
    bide::semaphore s(2);
    test::manual_executor on;
    const std::thread::id here = std::this_thread::get_id();
    auto run = [&](auto with_stop) {
        std::stop_source stop = test::new_stop();
        waiting w(with_stop(stop.get_token()));
        waiting posted(with_stop(stop.get_token()).resume_on(on));
        waiting behind(s.async_acquire(2)); // is let through by their ends
        REQUIRE_FALSE(behind.is_over());
        stop.request_stop();
        REQUIRE(test::eventually([&] { return w.is_over(); }));
        REQUIRE(test::eventually([&] { return on.size() == 1; }));
        CHECK_FALSE(posted.is_over());
        REQUIRE(on.run_all() == 1);
        REQUIRE(test::eventually([&] { return behind.is_over(); }));
        test::service_thread();
        CHECK(w.on() != here);
        CHECK(posted.on() == here);
        CHECK(behind.got().count() == 2);
    };
    SECTION("as a case") {
        run([&](std::stop_token t) {
            return bide::async_select(on_recv(ch), on_acquire(s, 3), on_stop(t));
        });
    }
    SECTION("as a limit of the whole") {
        run([&](std::stop_token t) {
            return bide::async_select(on_recv(ch), on_acquire(s, 3)).with_stop(t);
        });
    }
}

TEST_CASE("select: a coroutine that is destroyed while it waits leaves nothing behind") {
    std::optional<each_kind> all(std::in_place);
    int_channel hand(0);
    {
        waiting w(all->async());
        waiting meets(bide::async_select(on_recv(hand), on_recv(hand)));
        waiting behind(hand.async_recv());
        REQUIRE(all->permits.waiters() == 1);
        meets.destroy();
        w.destroy();
        CHECK(all->permits.waiters() == 0);
        CHECK(all->permits.available() == 1);
        CHECK(hand.try_send(1));
        CHECK(behind.is_over()); // it went past the one that is gone
    }
    for (std::size_t kind = 0; kind < each_kind::kinds; ++kind) {
        all->make_happen(kind);
    }
    CHECK(all->in.size() == 1);
    CHECK(all->out.empty());
    CHECK(all->value == 7);
    CHECK(is_left_alone(hand));
    all.reset(); // there are no waiters
}

TEST_CASE("select: a select may destroy what it waited for, whatever the other side still does") {
    using items = int_channel;
    using bide::event;
    using bide::semaphore;
    items never(1);
    constexpr int rounds = 1'000;
    const std::size_t capacity = GENERATE(0u, 1u);
    bool right = true;
    auto make = [capacity](void* place, int) { return ::new (place) items(capacity); };
    CHECK(test::late_touches<items>(
              1, rounds, make, [](items& ch) { static_cast<void>(ch.send(1)); },
              [&](items& ch, int) {
                  right = right && bide::select(on_recv(never), on_recv(ch)).index() == 1;
              }) == 0);
    if (capacity == 0) {
        CHECK(test::late_touches<items>(
                  1, rounds, make, [](items& ch) { static_cast<void>(ch.recv()); },
                  [&](items& ch, int round) {
                      int value = round;
                      right =
                          right && bide::select(on_send(ch, value), on_recv(never)).index() == 0;
                  }) == 0);
        CHECK(test::late_touches<semaphore>(
                  1, rounds, [](void* place, int) { return ::new (place) semaphore(0); },
                  [](semaphore& s) { s.release(2); },
                  [&](semaphore& s, int) {
                      auto got = bide::select(on_recv(never), on_acquire(s, 2));
                      right = right && got.index() == 1;
                      got.get<1>()->forget();
                  }) == 0);
        CHECK(test::late_touches<event>(
                  1, rounds, [](void* place, int) { return ::new (place) event; },
                  [](event& e) { e.set(); },
                  [&](event& e, int) {
                      right = right && bide::select(on_recv(never), on_event(e)).index() == 1;
                  }) == 0);
    }
    CHECK(right);
}

TEST_CASE("select: a case of a temporary handle keeps its side of the channel open",
          "[promise.temporary-handle]") {
    int_channel quiet(1);
    auto [tx, rx] = bide::make_channel<int>(1);
    int value = 5;
    SECTION("a receiver") {
        {
            waiting w(bide::async_select(on_recv(quiet), on_recv(std::move(rx))));
            CHECK_FALSE(tx.is_closed());
            REQUIRE(tx.try_send(1));
            REQUIRE(w.is_over());
            CHECK(w.got().get<1>() == 1);
        }
        CHECK(tx.is_closed());
    }
    SECTION("a receiver whose case is not chosen") {
        {
            waiting w(bide::async_select(on_recv(quiet), on_recv(std::move(rx))));
            REQUIRE(quiet.try_send(1));
            REQUIRE(w.is_over());
            CHECK(tx.try_send(1)); // inside, and gone with the last receiver
        }
        CHECK(tx.is_closed());
    }
    SECTION("a sender") {
        {
            REQUIRE(tx.try_send(1));
            waiting w(bide::async_select(on_send(std::move(tx), value), on_recv(quiet)));
            CHECK_FALSE(w.is_over());
            CHECK_FALSE(rx.is_closed());
            CHECK(rx.try_recv().value() == 1);
            REQUIRE(w.is_over());
            CHECK(w.got().get<0>());
        }
        CHECK(rx.is_closed());
        CHECK(rx.try_recv().value() == 5);
    }
    SECTION("a sender of nothing") {
        int* const nothing = nullptr;
        CHECK_FALSE(bide::try_select(on_send(std::move(tx), nothing)).has_value());
        CHECK(rx.is_closed());
    }
    SECTION("copies, in the selects of a thread") {
        CHECK(bide::select(on_send(bide::sender<int>(tx), value)).get<0>());
        CHECK(bide::select(on_recv(quiet), on_recv(bide::receiver<int>(rx))).get<1>() == 5);
        CHECK_FALSE(bide::try_select(on_recv(bide::receiver<int>(rx))).has_value());
        CHECK_FALSE(tx.is_closed());
        CHECK_FALSE(rx.is_closed());
    }
    SECTION("one whose select never begins") {
        static_cast<void>(bide::async_select(on_recv(std::move(rx)), on_recv(quiet)));
        CHECK(tx.is_closed());
    }
    SECTION("one whose coroutine is destroyed while it waits") {
        waiting w(bide::async_select(on_recv(std::move(rx)), on_recv(quiet)));
        CHECK_FALSE(tx.is_closed());
        w.destroy();
        CHECK(tx.is_closed());
    }
}

TEST_CASE("select: handles of every kind may be temporaries") {
    auto [tx, rx] = bide::make_unbounded_channel<int>();
    auto [answer, answered] = bide::oneshot<int>();
    bide::broadcast<int> news(1);
    {
        waiting w(bide::async_select(on_recv(std::move(rx)), on_recv(std::move(answered)),
                                     on_recv(news.subscribe())));
        CHECK_FALSE(tx.is_closed());
        CHECK_FALSE(answer.is_closed());
        CHECK(news.send(7) == 1);
        REQUIRE(w.is_over());
        CHECK(w.got().get<2>().value() == 7);
    }
    CHECK(tx.is_closed());
    CHECK(answer.is_closed());
    CHECK(news.subscribers() == 0);
}

TEST_CASE("select: a null pointer variable is nothing to send, a value of 0 is sent") {
    int_channel ch(1);
    int value = 0;
    int* nothing = nullptr;
    CHECK_FALSE(bide::try_select(on_send(ch, nothing)).has_value());
    CHECK_FALSE(bide::try_select(on_send(ch, ch.empty() ? nullptr : &value)).has_value());
    CHECK(bide::try_select(on_send(ch, value)).has_value());
    CHECK(ch.try_recv().value() == 0);
    CHECK(bide::try_select(on_send(ch, &value)).has_value());
    CHECK(ch.try_recv().value() == 0);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("select: get() of a case that was not chosen terminates") {
    const std::string said = test::dies([] {
        int_channel ch(1);
        static_cast<void>(ch.try_send(1));
        auto got = bide::try_select(on_recv(ch), on_timeout(1h));
        static_cast<void>(got->get<1>());
    });
    CHECK(test::contains(said, "selected"));
    CHECK(test::contains(said, "not chosen"));
}

TEST_CASE("select: destroying a channel that a select waits on terminates") {
    const std::string said = test::dies([] {
        int_channel other(1);
        std::optional<int_channel> ch(std::in_place, 1);
        waiting w(bide::async_select(on_recv(*ch), on_recv(other)));
        ch.reset();
    });
    CHECK(test::contains(said, "channel"));
    CHECK(test::contains(said, "destroyed with 1 waiting"));
}

#endif

TEST_CASE("select: a waker may destroy a select that its release has decided",
          "[promise.decided-before-wakers]") {
    int_channel ch(1);
    bide::semaphore s(0);
    bool ran = false;
    std::optional<test::held> victim;
    bide::semaphore::waiter first(
        1,
        {[](void* v) noexcept { static_cast<std::optional<test::held>*>(v)->reset(); }, &victim});
    REQUIRE_FALSE(s.acquire_wait(first));
    victim.emplace(select_either(ch, s, ran));
    victim->start();
    REQUIRE(s.waiters() == 2);
    s.release(2);
    CHECK(first.is_complete());
    CHECK_FALSE(ran);
    CHECK(s.available() == 1);
    REQUIRE(ch.try_send(1)); // no receiver waits any more
    CHECK(ch.size() == 1);
}

TEST_CASE("select: a thread's select is over before the first waker of the release runs") {
    int_channel ch(1);
    bide::semaphore s(0);
    struct witness {
        std::atomic<bool> over{false};
        bool seen = false;
        static void look(void* self) noexcept {
            auto& me = *static_cast<witness*>(self);
            me.seen = test::eventually([&me] { return me.over.load(); });
        }
    } eyes;
    bide::semaphore::waiter first(1, {&witness::look, &eyes});
    REQUIRE_FALSE(s.acquire_wait(first));
    test::team selecting(1, [&](int) {
        const auto got = bide::select(on_recv(ch), on_acquire(s));
        eyes.over = got.index() == 1;
    });
    REQUIRE(test::has_waiters(s, 2));
    s.release(2);
    CHECK(eyes.seen);
    selecting.join();
    CHECK(s.available() == 1);
}

#if BIDE_TESTS_CAN_DIE
TEST_CASE("select: a wait that cannot be one of several terminates with a message as a case") {
    const auto said = test::dies([] {
        int_channel ch(1);
        auto inner = bide::async_select(on_recv(ch));
        using outcome = decltype(inner)::value_type;
        const bide::select_case<outcome> never(std::move(inner).as_case());
    });
    CAPTURE(said);
    CHECK(test::contains(said, "is not allowed as a case"));
}
#endif
