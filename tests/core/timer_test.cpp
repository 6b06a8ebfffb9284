#include <bide/core/parker.hpp>
#include <support/alloc.hpp>
#include <support/fake_clock.hpp>
#include <support/platforms.hpp>
#include <support/takers.hpp>
#include <support/test.hpp>

#if defined(__linux__)
#include <signal.h>
#endif

using namespace bide;

namespace {

// A timer that records when, where and how often it fired.
template <class P> struct bell {
    std::atomic<int> fired{0};
    std::int64_t at = 0;
    std::thread::id on;
    bool on_resumer = true;
    timer t;

    explicit bell(deadline when) {
        t.when = when;
        t.fire = waker(
            [](void* self) noexcept {
                auto& me = *static_cast<bell*>(self);
                me.at = bide::native_platform::now();
                me.on = std::this_thread::get_id();
                me.on_resumer = test::is_resumer<P>();
                ++me.fired;
            },
            this);
    }
    void add() { bide::timer_service<P>().add(t); }
    bool cancel() { return bide::timer_service<P>().cancel(t); }
    bool fires() {
        return test::eventually([this] { return fired.load() == 1; });
    }
};

// Runs f() on a resumer.
template <class P, class F> struct job : runnable {
    F f;
    std::atomic<bool> done{false};

    explicit job(F run_it) : f(run_it) {
        run = waker(
            [](void* self) noexcept {
                auto& me = *static_cast<job*>(self);
                me.f();
                me.done = true;
            },
            this);
    }
    void post() { bide::timer_service<P>().post(*this); }
    bool is_done() {
        return test::eventually([this] { return done.load(); });
    }
};
template <class P, class F> std::unique_ptr<job<P, F>> post(F f) {
    auto made = std::make_unique<job<P, F>>(f);
    made->post();
    return made;
}

// A place where a thread sleeps in bide, until the test opens it.
template <class P> class bide_barrier {
public:
    void pass() noexcept {
        reached_ = true;
        parker_.park();
    }
    bool is_reached() noexcept { return reached_; }
    void open() noexcept { parker_.unpark(); }

private:
    bide::basic_parker<P> parker_;
    std::atomic<bool> reached_{false};
};

template <class P, class Barrier> void check_that_none_is_held_up() {
    Barrier barriers[3];
    bell<P> late(deadline::after(1ms));
    {
        const auto pass = [&barriers](int i) { return [b = &barriers[i]] { b->pass(); }; };
        auto first = post<P>(pass(0));
        REQUIRE(test::eventually([&] { return barriers[0].is_reached(); }));
        late.add();
        CHECK(late.fires());
        late.cancel();
        auto second = post<P>(pass(1)); // while a resumer is blocked
        auto third = post<P>(pass(2));
        auto last = post<P>([] {});
        CHECK(last->is_done());
        CHECK(
            test::eventually([&] { return barriers[1].is_reached() && barriers[2].is_reached(); }));
        CHECK_FALSE(first->done);
        CHECK_FALSE(second->done);
        CHECK_FALSE(third->done);
        for (Barrier& b : barriers) {
            b.open();
        }
        test::service_thread<P>();
        CHECK((first->done && second->done && third->done));
    }
}

// Counts the threads of the service, and those that sleep without a deadline. Each Tag has its own.
template <class Tag> struct watched : test::native {
    inline static std::atomic<unsigned> fails{0}; // the lowest bit: the next start fails
    inline static std::atomic<int> started{0};
    inline static std::atomic<int> asleep{0};

    static std::error_code start_thread(void (*body)(void*) noexcept, void* argument) noexcept {
        const unsigned next = fails;
        fails = next / 2;
        if (next % 2 != 0) {
            return std::make_error_code(std::errc::resource_unavailable_try_again);
        }
        ++started;
        return bide::detail::os_thread::start_detached(body, argument);
    }
    template <class Word>
    static bool futex_wait(const atomic<Word>& word, Word expected, std::int64_t until) noexcept {
        const int endless = until == std::numeric_limits<std::int64_t>::max() ? 1 : 0;
        asleep += endless;
        const bool in_time = test::native::futex_wait(word, expected, until);
        asleep -= endless;
        return in_time;
    }
};

// Its clock stands still, so that no runnable is late on a busy machine: a runnable that has to wait
// for 5 ms gets one more resumer.
template <class Tag> struct watched_in_time : watched<Tag> {
    static std::int64_t now() noexcept {
        static const std::int64_t start = test::native::now();
        return start;
    }
};

} // namespace

TEST_CASE("timer: fires once, not before its time, on the timer thread") {
    for (int us = 1; us < 1'500; us = us * 3 / 2 + 1) {
        bell<test::native> a(deadline::after(std::chrono::microseconds(us)));
        a.add();
        REQUIRE(a.fires());
        CHECK_FALSE(a.cancel());
        CHECK(a.fired == 1);
        CHECK(a.at >= a.t.when.steady_ns());
        CHECK(a.on != std::this_thread::get_id());
        CHECK_FALSE(a.on_resumer);
    }
}

TEST_CASE("timer: a past timer fires at once, and a timer at never() does not fire") {
    bell<test::native> past(deadline::poll());
    bell<test::native> never(deadline::never());
    never.add();
    past.add();
    CHECK(past.fires());
    past.cancel();
    CHECK(never.fired == 0);
    CHECK(never.cancel());
    CHECK(never.fired == 0);
}

TEMPLATE_TEST_CASE("timer: an earlier timer ends the service's sleep for a later one", "",
                   test::native, test::portable) {
    bell<TestType> later(deadline::after(1h));
    bell<TestType> sooner(deadline::after(30min));
    bell<TestType> now(deadline::after(1ms));
    later.add();
    test::service_thread<TestType>(); // the service has seen the timer
    sooner.add();
    test::service_thread<TestType>();
    now.add();
    CHECK(now.fires());
    now.cancel();
    CHECK(later.cancel());
    CHECK(sooner.cancel());
    CHECK(later.fired + sooner.fired == 0);
}

TEST_CASE("timer: a timer that is cancelled in time does not fire, and may be added again") {
    bell<test::native> a(deadline::after(1h));
    for (int i = 0; i < 3; ++i) {
        a.add();
        CHECK(a.cancel());
        CHECK_FALSE(a.cancel());
    }
    CHECK(a.fired == 0);
    a.t.when = deadline::after(1us);
    a.add();
    CHECK(a.fires());
    CHECK_FALSE(a.cancel());
}

TEST_CASE("timer: a runnable that blocks in bide delays no time-out and no other runnable") {
    check_that_none_is_held_up<test::native, bide_barrier<test::native>>();
}

TEST_CASE("timer: what blocks a resumer outside of bide holds up no time-out and no other",
          "[promise.resumed-coroutine-delays-none]") {
    check_that_none_is_held_up<test::native, test::barrier>();
}

TEST_CASE("timer: with 256 blocked resumers, a posted runnable runs when one of them unblocks") {
    constexpr unsigned most = bide::detail::basic_resumers<test::native>::most_threads;
    std::deque<bide_barrier<test::native>> barriers(most);
    std::deque<runnable> blockers(most);
    for (unsigned i = 0; i < most; ++i) {
        blockers[i].run =
            waker([](void* b) noexcept { static_cast<bide_barrier<test::native>*>(b)->pass(); },
                  &barriers[i]);
        bide::timer_service<test::native>().post(blockers[i]);
    }
    for (auto& b : barriers) {
        REQUIRE(test::eventually([&] { return b.is_reached(); }));
    }
    auto last = post<test::native>([] {});
    bell<test::native> late(deadline::after(1ms));
    late.add();
    CHECK(late.fires());
    late.cancel();
    CHECK_FALSE(last->done);
    barriers[most / 2].open();
    CHECK(last->is_done());
    for (auto& b : barriers) {
        b.open();
    }
    test::service_thread();
}

TEST_CASE("timer: without time-outs and stops the service starts no thread") {
    using platform = watched<struct no_limits>;
    test::basic_tokens<platform> t(1);
    test::outcome outs[2];
    test::held first = test::take(t, outs[0]);
    test::held second = test::take(t, outs[1]);
    first.start();
    second.start();
    CHECK(outs[0].is_granted());
    t.give();
    CHECK(outs[1].is_granted());
    CHECK(t.take_until(deadline::after(1us)) == bide::wait_status::granted);
    CHECK(platform::started == 0);
}

TEST_CASE("timer: an idle service sleeps until it is woken") {
    using platform = watched_in_time<struct idle>;
    test::service_thread<platform>();
    CHECK(platform::started == 2);
    CHECK(test::eventually([] { return platform::asleep == 2; }));
}

#if BIDE_EXCEPTIONS
TEST_CASE("timer: if the service cannot be started it throws, and the next use starts it") {
    using platform = watched_in_time<struct throws>;
    platform::fails = 0b1;
    CHECK_THROWS_AS(bide::timer_service<platform>(), std::system_error);
    CHECK(platform::started == 0);
    platform::fails = 0b10;
    CHECK_THROWS_AS(bide::timer_service<platform>(), std::system_error);
    CHECK(platform::started == 1);
    test::service_thread<platform>();
    CHECK(platform::started == 2);
}
#endif

TEST_CASE("timer: if no resumer can be started, no runnable is lost and the start is retried") {
    using platform = watched<struct later>;
    test::barrier outside;
    bide_barrier<platform> inside;
    auto first = post<platform>([&] { outside.pass(); });
    REQUIRE(test::eventually([&] { return outside.is_reached(); }));
    platform::fails = 0b111;
    auto second = post<platform>([&] { inside.pass(); });
    REQUIRE(test::eventually([&] { return inside.is_reached(); }));
    CHECK(platform::fails == 0);
    platform::fails = 0b111;
    outside.open();
    REQUIRE(first->is_done());
    auto third = post<platform>([] {});
    CHECK(third->is_done());
    inside.open();
    test::service_thread<platform>();
    CHECK(second->done);
}

TEST_CASE("timer: nothing is allocated once the service runs") {
    bell<test::native> a(deadline::after(1h));
    test::service_thread<test::native>();
    const std::size_t before = test::allocations();
    a.add();
    a.cancel();
    a.t.when = deadline::after(1us);
    a.add();
    while (a.fired == 0) {
        std::this_thread::yield();
    }
    a.cancel();
    CHECK(test::allocations() == before);
}

#if defined(__linux__)

TEST_CASE("timer: the service threads block all signals, and the starter's mask stays") {
    sigset_t mask;
    auto looks = post<test::native>([&mask] { ::pthread_sigmask(SIG_BLOCK, nullptr, &mask); });
    REQUIRE(looks->is_done());
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM}) {
        CHECK(::sigismember(&mask, signal) == 1);
    }
    sigset_t mine;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mine);
    CHECK(::sigismember(&mine, SIGINT) == 0);
}

#endif
