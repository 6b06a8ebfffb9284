// What event, latch and barrier promise in common: waiters wait until it opens.

#include "support/alloc.hpp"
#include "support/coroutines.hpp"
#include "support/death.hpp"
#include "support/event_waits.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"
#include "support/waiting.hpp"

#include <bide/core/timer.hpp>
#include <bide/sync/barrier.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/latch.hpp>

using namespace std::chrono_literals;
using namespace test::event_waits;

namespace {

using std::chrono::steady_clock;
using counts = std::vector<int>;
using platform = test::observing<test::native>;

// An event, a latch of one arrival and the phase of a barrier that one arrival ends, with one interface.
template <class Platform> struct an_event : bide::basic_event<Platform> {
    void open() { this->set(); }
    bool is_open() const { return this->is_set(); }
};
template <class Platform> struct a_latch : bide::basic_latch<Platform> {
    a_latch() : bide::basic_latch<Platform>(1) {}
    void open() { this->count_down(); }
    bool is_open() const { return this->try_wait(); }
};
template <class Platform> struct a_barrier {
    using barrier = bide::barrier<bide::detail::no_completion, Platform>;
    barrier of{2};
    const typename barrier::arrival_token phase = of.arrive();

    void open() { static_cast<void>(of.arrive()); }
    bool is_open() const { return of.try_wait(phase); }
    void wait() { of.wait(phase); }
    template <class Rest> bool wait_for(Rest rest) { return of.wait_for(phase, rest); }
    template <class When> bool wait_until(When when) { return of.wait_until(phase, when); }
    bide::result<void> wait(std::stop_token stop) { return of.wait(stop, phase); }
    auto async_wait() { return of.async_wait(phase); }
};

// A gate of any kind, so that a test case is compiled once.
class any_gate {
public:
    using nanoseconds = std::chrono::nanoseconds;
    using steady_time = steady_clock::time_point;
    using system_time = std::chrono::system_clock::time_point;

    any_gate() noexcept = default;
    any_gate(const any_gate&) = delete;
    any_gate& operator=(const any_gate&) = delete;
    virtual ~any_gate() = default;

    virtual void open() = 0;
    virtual bool is_open() const = 0;
    virtual void wait() = 0;
    virtual bool wait_for(nanoseconds rest) = 0;
    virtual bool wait_until(steady_time when) = 0;
    virtual bool wait_until(system_time when) = 0;
    virtual bide::result<void> wait(std::stop_token stop) = 0;
    // Waits with each type of time that has passed, or is none. Returns how many came through.
    virtual int attempts_in_no_time() = 0;
    // Waits with a time-out that never comes, by one of four ways to say so.
    virtual bool wait_for_ever(int way) = 0;

    // The coroutines of event_waits.hpp.
    virtual test::detached note_turn(test::journal& turns, int name) = 0;
    virtual test::detached note_stopped(std::stop_token stop, std::atomic<what>& end) = 0;
    virtual test::detached note_late(nanoseconds rest, std::atomic<what>& end) = 0;
    virtual test::held pass(bool& through) = 0;
    virtual test::held pass_on(test::manual_executor& on, std::stop_token stop, what& end) = 0;
    virtual test::held pass_on_until(test::manual_executor& on, steady_time when, what& end) = 0;
    // Coroutines that destroy, when they are let through, the gate or another coroutine.
    virtual test::detached pass_and_destroy(std::unique_ptr<any_gate>& mine) = 0;
    virtual test::held pass_and_destroy(test::held& victim) = 0;
};

template <class Gate> class gate_of final : public any_gate {
public:
    void open() override { gate_.open(); }
    bool is_open() const override { return gate_.is_open(); }
    void wait() override { gate_.wait(); }
    bool wait_for(nanoseconds rest) override { return gate_.wait_for(rest); }
    bool wait_until(steady_time when) override { return gate_.wait_until(when); }
    bool wait_until(system_time when) override { return gate_.wait_until(when); }
    bide::result<void> wait(std::stop_token stop) override { return gate_.wait(stop); }
    int attempts_in_no_time() override {
        return gate_.wait_for(0s) + gate_.wait_for(-1ns) +
               gate_.wait_for(std::chrono::hours::min()) +
               gate_.wait_for(std::chrono::duration<double>(-1e300)) +
               gate_.wait_until(steady_clock::now()) + gate_.wait_until(steady_time::min()) +
               gate_.wait_until(std::chrono::system_clock::now() - 24h);
    }
    bool wait_for_ever(int way) override {
        switch (way) {
        case 0: return gate_.wait_for(std::chrono::hours::max());
        case 1: return gate_.wait_for(std::chrono::duration<double>(1e300));
        case 2: return gate_.wait_until(steady_time::max());
        default: return gate_.wait_until(system_time::max());
        }
    }

    test::detached note_turn(test::journal& turns, int name) override {
        return test::event_waits::note_turn(gate_, turns, name);
    }
    test::detached note_stopped(std::stop_token stop, std::atomic<what>& end) override {
        return test::event_waits::note_stopped(gate_, stop, end);
    }
    test::detached note_late(nanoseconds rest, std::atomic<what>& end) override {
        return test::event_waits::note_late(gate_, rest, end);
    }
    test::held pass(bool& through) override { return test::event_waits::pass(gate_, through); }
    test::held pass_on(test::manual_executor& on, std::stop_token stop, what& end) override {
        return test::event_waits::pass_on_until_stopped(on, gate_, stop, end);
    }
    test::held pass_on_until(test::manual_executor& on, steady_time when, what& end) override {
        return test::event_waits::pass_on_until(on, gate_, when, end);
    }
    test::detached pass_and_destroy(std::unique_ptr<any_gate>& mine) override {
        co_await gate_.async_wait();
        mine.reset();
    }
    test::held pass_and_destroy(test::held& victim) override {
        co_await gate_.async_wait();
        victim.destroy();
    }

private:
    Gate gate_;
};

struct kind {
    const char* name;
    std::unique_ptr<any_gate> (*make)();
};
template <class Gate> std::unique_ptr<any_gate> make() { return std::make_unique<gate_of<Gate>>(); }
const kind kinds[] = {{"event", &make<an_event<platform>>},
                      {"latch", &make<a_latch<platform>>},
                      {"barrier", &make<a_barrier<platform>>}};

// Runs the rest of its test case for each kind.
const kind& each_kind() { return kinds[GENERATE(0, 1, 2)]; }

bool are_asleep(int n) { return test::are_asleep<test::native>(n); }
bool has_ended(const std::atomic<what>& end) {
    return test::eventually([&end] { return end != what::nothing_yet; });
}

} // namespace

TEST_CASE("gate: a wait while it is open returns at once") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto g = of.make();
    CHECK_FALSE(g->is_open());
    g->open();
    CHECK(g->is_open());
    std::stop_source stop;
    stop.request_stop();
    g->wait();
    CHECK(g->attempts_in_no_time() == 7);
    CHECK(g->wait(std::stop_token()));
    CHECK(g->wait(stop.get_token()));
    std::atomic<what> ends[2] = {};
    g->note_stopped(stop.get_token(), ends[0]);
    g->note_late(-1s, ends[1]);
    CHECK(ends[0] == what::through);
    CHECK(ends[1] == what::through);
    bool through = false;
    auto c = g->pass(through);
    c.start();
    CHECK(c.done());
    CHECK(through);
    CHECK(g->is_open());
}

TEST_CASE("gate: the opening lets every waiter through, of every kind") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto g = of.make();
    std::stop_source never;
    test::journal turns;
    std::atomic<what> ends[2] = {};
    bool good[4] = {};
    for (int i = 0; i < 3; ++i) {
        g->note_turn(turns, i);
    }
    test::team threads(4, [&](int i) {
        switch (i) {
        case 0: g->wait(), good[i] = true; break;
        case 1: good[i] = g->wait_for(1h); break;
        case 2: good[i] = g->wait_until(steady_clock::now() + 1h); break;
        default: good[i] = g->wait(never.get_token()).has_value(); break;
        }
    });
    REQUIRE(are_asleep(4));
    g->note_stopped(never.get_token(), ends[0]);
    g->note_late(1h, ends[1]);
    g->note_turn(turns, 3);
    CHECK(turns.size() == 0);
    g->open();
    CHECK(turns.entries() == counts{0, 1, 2, 3}); // in the order they came
    CHECK(ends[0] == what::through);
    CHECK(ends[1] == what::through);
    threads.join();
    for (const bool through : good) {
        CHECK(through);
    }
}

TEMPLATE_TEST_CASE("gate: what came before the opening is seen by a waiter and by one that looks",
                   "[promise.release-visible]", an_event<test::native>, an_event<test::portable>,
                   a_latch<test::native>, a_latch<test::portable>, a_barrier<test::native>,
                   a_barrier<test::portable>) {
    for (int round = 0; round < 200; ++round) {
        TestType g;
        int news = 0; // plain: a sanitizer sees whether it is ordered
        int seen[2] = {};
        test::run_threads(3, [&](int i) {
            if (i == 0) {
                news = 42;
                g.open();
            } else if (i == 1) {
                g.wait();
                seen[0] = news;
            } else if (test::eventually([&] { return g.is_open(); })) {
                seen[1] = news;
            }
        });
        REQUIRE(seen[0] == 42);
        REQUIRE(seen[1] == 42);
    }
}

// ---- Deadlines

TEST_CASE("gate: zero, negative and past times mean one attempt") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto g = of.make();
    CHECK(g->attempts_in_no_time() == 0);
    std::atomic<what> ends[2] = {};
    g->note_late(0s, ends[0]);
    g->note_late(-1h, ends[1]);
    CHECK(ends[0] == what::timeout); // without suspending
    CHECK(ends[1] == what::timeout);
    CHECK_FALSE(g->is_open());
}

TEST_CASE("gate: a time-out is not early, by its own clock") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto g = of.make();
    const auto start = steady_clock::now();
    CHECK_FALSE(g->wait_for(10ms));
    CHECK(steady_clock::now() >= start + 10ms);
    const auto system = std::chrono::system_clock::now() + 10ms;
    CHECK_FALSE(g->wait_until(system));
    CHECK(std::chrono::system_clock::now() >= system);
    std::atomic<what> end{};
    const auto before = steady_clock::now();
    g->note_late(10ms, end);
    REQUIRE(has_ended(end));
    CHECK(end == what::timeout);
    CHECK(steady_clock::now() >= before + 10ms);
}

TEST_CASE("gate: a huge time-out never ends the wait, the opening does") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto g = of.make();
    bool got[4] = {};
    test::team waiting(4, [&](int i) { got[i] = g->wait_for_ever(i); });
    REQUIRE(are_asleep(4));
    g->open();
    waiting.join();
    for (const bool through : got) {
        CHECK(through);
    }
}

// ---- Stops

TEST_CASE("gate: a stop that was requested before ends a wait that has to wait") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto g = of.make();
    std::stop_source stop;
    stop.request_stop();
    CHECK(is(g->wait(stop.get_token()), bide::errc::stopped));
    std::atomic<what> end{};
    g->note_stopped(stop.get_token(), end);
    REQUIRE(has_ended(end));
    CHECK(end == what::stopped);
}

TEST_CASE("gate: a stop ends the waits it is for and no other") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto g = of.make();
    std::stop_source stop;
    std::stop_source other;
    std::atomic<what> ends[4] = {};
    g->note_stopped(stop.get_token(), ends[0]);
    g->note_stopped(other.get_token(), ends[1]);
    test::team threads(2, [&](int i) {
        ends[2 + i] = ::test::event_waits::of(g->wait((i == 0 ? stop : other).get_token()));
    });
    REQUIRE(are_asleep(2));
    stop.request_stop();
    REQUIRE((has_ended(ends[0]) && has_ended(ends[2])));
    CHECK(ends[0] == what::stopped);
    CHECK(ends[2] == what::stopped);
    CHECK(ends[1] == what::nothing_yet);
    CHECK(ends[3] == what::nothing_yet);
    g->open();
    threads.join();
    CHECK(ends[1] == what::through);
    CHECK(ends[3] == what::through);
    other.request_stop(); // too late for anything
}

TEST_CASE("gate: a coroutine that was let through stays let through") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto g = of.make();
    test::manual_executor later;
    what end = what::nothing_yet;
    SECTION("whatever is stopped afterwards") {
        std::stop_source stop;
        auto c = g->pass_on(later, stop.get_token(), end);
        c.start();
        g->open();
        stop.request_stop();
        REQUIRE(later.run_all() == 1);
        CHECK(end == what::through);
    }
    SECTION("whatever the clock says afterwards") {
        const auto when = steady_clock::now() + 200ms;
        auto c = g->pass_on_until(later, when, end);
        c.start();
        g->open();
        const bool in_time = steady_clock::now() < when; // else the time-out may have come first
        REQUIRE(test::eventually([&] { return steady_clock::now() > when; }));
        REQUIRE(test::eventually([&] { return later.run_all() == 1; }));
        CHECK((end == what::through || !in_time));
    }
}

TEST_CASE("gate: a stop and the opening at once end a wait once, as one of the two") {
    const kind& of = each_kind();
    CAPTURE(of.name, test::run_seed());
    for (int round = 0; round < 300; ++round) {
        const auto g = of.make();
        std::stop_source stop;
        std::atomic<what> end{};
        what of_thread = what::nothing_yet;
        g->note_stopped(stop.get_token(), end);
        test::run_threads(3, [&](int i) {
            test::jitter pause(test::run_seed() + static_cast<std::uint32_t>(round * 3 + i));
            pause();
            if (i == 0) {
                g->open();
            } else if (i == 1) {
                stop.request_stop();
            } else {
                of_thread = ::test::event_waits::of(g->wait(stop.get_token()));
            }
        });
        REQUIRE(has_ended(end));
        REQUIRE((end == what::through || end == what::stopped));
        REQUIRE((of_thread == what::through || of_thread == what::stopped));
        REQUIRE(g->is_open());
    }
}

// ---- Coroutines

TEST_CASE("gate: a coroutine that is destroyed while it waits leaves the queue") {
    const kind& of = each_kind();
    const int leaves = GENERATE(0, 1, 2);
    CAPTURE(of.name, leaves);
    const auto g = of.make();
    bool through[3] = {};
    std::vector<test::held> waiting;
    for (bool& t : through) {
        waiting.push_back(g->pass(t));
        waiting.back().start();
    }
    waiting[static_cast<std::size_t>(leaves)].destroy();
    g->open();
    for (int i = 0; i < 3; ++i) {
        CHECK(through[i] == (i != leaves));
    }
}

TEST_CASE("gate: one that is let through may destroy another that is") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto g = of.make();
    bool through = false;
    auto second = g->pass(through);
    auto first = g->pass_and_destroy(second);
    first.start();
    second.start();
    g->open();
    CHECK(first.done());
    CHECK_FALSE(through);
}

TEST_CASE("gate: a coroutine resumes where it asked to, else inside the opening") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto g = of.make();
    test::manual_executor later;
    what there = what::nothing_yet;
    bool here = false;
    auto first = g->pass_on(later, {}, there);
    auto second = g->pass(here);
    first.start();
    second.start();
    g->open();
    CHECK(here);
    CHECK(there == what::nothing_yet);
    CHECK(later.run_all() == 1);
    CHECK(there == what::through);
}

TEST_CASE("gate: after its last waiter has left, it opens as before") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto g = of.make();
    bool through = false;
    auto gone = g->pass(through);
    gone.start();
    gone.destroy();
    CHECK_FALSE(g->is_open());
    CHECK_FALSE(g->wait_for(1ms));
    g->open();
    CHECK(g->is_open());
    CHECK_FALSE(through);
}

// ---- Allocation

TEST_CASE("gate: no wait allocates", "[promise.no-wait-allocates]") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    const auto g = of.make();
    std::stop_source stop;
    std::stop_source never;
    const std::stop_token token = stop.get_token();
    const std::stop_token idle = never.get_token();
    bide::timer_service<platform>(); // its thread, once

    SECTION("of a thread") {
        std::size_t made[3] = {1, 1, 1};
        bool good[3] = {};
        std::atomic<bool> timed_out{false};
        test::team waiting(3, [&](int i) {
            const std::size_t before = test::allocations_here();
            if (i == 0) {
                timed_out = !g->wait_for(1ms);
                good[i] = g->wait_for(1h) && timed_out;
            } else if (i == 1) {
                good[i] = !g->wait(token) && g->wait(idle);
            } else {
                g->wait();
                good[i] = true;
            }
            made[i] = test::allocations_here() - before;
        });
        const bool all = test::eventually([&] { return timed_out.load(); }) && are_asleep(3);
        const std::size_t before = test::allocations_here();
        stop.request_stop();
        g->open();
        const std::size_t here = test::allocations_here() - before;
        CHECK(here == 0);
        CHECK(all);
        waiting.join();
        for (int i = 0; i < 3; ++i) {
            CHECK(good[i]);
            CHECK(made[i] == 0);
        }
    }
    SECTION("of a coroutine") {
        test::manual_executor later;
        what ends[2] = {};
        bool through = false;
        auto stopped = g->pass_on(later, token, ends[0]);
        auto late = g->pass_on_until(later, steady_clock::now() + 1ms, ends[1]);
        auto other = g->pass(through);
        const std::size_t before = test::allocations();
        stopped.start();
        late.start();
        other.start();
        stop.request_stop();
        const bool in_time = test::eventually([&] {
            later.run_all();
            return ends[0] != what::nothing_yet && ends[1] != what::nothing_yet;
        });
        g->open();
        const std::size_t made = test::allocations() - before;
        CHECK(made == 0);
        CHECK(in_time);
        CHECK(ends[0] == what::stopped);
        CHECK(ends[1] == what::timeout);
        CHECK(through);
    }
}

// ---- Destruction

#if BIDE_TESTS_CAN_DIE

TEST_CASE("gate: destroying it while there are waiters terminates with its name and their number") {
    const kind& of = each_kind();
    const std::string said = test::dies([&] {
        bool through = false;
        auto g = of.make();
        auto first = g->pass(through);
        auto second = g->pass(through);
        auto third = g->pass(through);
        first.start();
        second.start();
        third.start();
        second.destroy();
        g.reset();
    });
    CAPTURE(said);
    CHECK(test::contains(said, of.name));
    CHECK(test::contains(said, "2 waiting"));
}

TEST_CASE("gate: destroying it without waiters is allowed, open or not") {
    const kind& of = each_kind();
    const std::string said = test::dies([&] {
        bool through = false;
        auto g = of.make();
        auto c = g->pass(through);
        c.start();
        c.destroy();
        g = of.make();
        auto d = g->pass(through);
        d.start();
        g->open();
        g.reset();
    });
    CHECK(test::contains(said, "[it lives on]"));
}

#endif

TEST_CASE("gate: a coroutine that is let through by the opening may destroy it there") {
    const kind& of = each_kind();
    CAPTURE(of.name);
    auto g = of.make();
    any_gate& gate = *g;
    test::journal turns;
    // The first of three: the other two are let through, too, and have not run.
    gate.pass_and_destroy(g);
    gate.note_turn(turns, 1);
    gate.note_turn(turns, 2);
    gate.open();
    CHECK(g == nullptr);
    CHECK(turns.entries() == counts{1, 2});
}

TEMPLATE_TEST_CASE(
    "gate: a coroutine that was let through does not access it again, wherever it resumes", "",
    an_event<test::native>, a_latch<test::native>, a_barrier<test::native>) {
    test::manual_executor later;
    std::stop_source stop;
    what end = what::nothing_yet;
    alignas(TestType) unsigned char place[sizeof(TestType)];
    unsigned char pattern[sizeof place];
    std::memset(pattern, 0x5a, sizeof pattern); // as a lock that is free, with a sleeper
    auto* const g = ::new (static_cast<void*>(place)) TestType();
    auto c = pass_on_until_stopped(later, *g, stop.get_token(), end);
    c.start();
    g->open();
    REQUIRE(g->is_open()); // so it may be destroyed
    g->~TestType();
    std::memcpy(place, pattern, sizeof place);
    SECTION("resumed") { CHECK(later.run_all() == 1); }
    SECTION("stopped, and resumed") {
        stop.request_stop();
        CHECK(later.run_all() == 1);
    }
    SECTION("destroyed") {
        later.drop_all();
        c.destroy();
    }
    CHECK(end != what::stopped);
    CHECK(std::memcmp(place, pattern, sizeof place) == 0);
}

TEMPLATE_TEST_CASE("gate: a thread that sees it open may destroy it before the opening returns",
                   "[promise.destroy-after-success][promise.barrier-phases]",
                   an_event<test::native>, a_latch<test::native>, a_barrier<test::native>,
                   an_event<test::portable>) {
    const auto make_it = [](void* at, int) { return ::new (at) TestType; };
    const auto open = [](TestType& g) { g.open(); };
    const auto pass_it = [](TestType& g, int round) {
        switch (round % 5) {
        case 0: static_cast<void>(g.wait(std::stop_token())); break;
        case 1: g.wait(); break;
        case 2:
            while (!g.wait_for(std::chrono::nanoseconds(round % 1'000))) {
            }
            break;
        case 3: // with a look
            while (!g.is_open()) {
                bide::native_platform::pause();
            }
            break;
        default: {
            std::atomic<what> end{};
            note_stopped(g, std::stop_token(), end);
            test::eventually([&] { return end != what::nothing_yet; });
        }
        }
    };
    CHECK(test::late_touches<TestType>(1, 2'000, make_it, open, pass_it) == 0);
}
