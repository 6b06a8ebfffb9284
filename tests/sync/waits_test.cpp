// What every wait of this room promises. What one header alone promises is in the file of that header.

#include "support/alloc.hpp"
#include "support/any_wait.hpp"
#include "support/death.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

using namespace test::waits;

namespace {

using test::any_wait;
using test::wait_end;
using counts = std::vector<int>;
using platform = test::observing<test::native>;

struct kind {
    const char* name;
    std::unique_ptr<any_wait> (*make)();
};
template <class Closed> std::unique_ptr<any_wait> make() {
    return std::make_unique<test::wait_of<Closed>>();
}
const kind kinds[] = {
    // They let all waiters through.
    {"event", &make<an_event<platform>>},
    {"latch", &make<a_latch<platform>>},
    {"barrier", &make<a_barrier<platform>>},
    {"shared_mutex", &make<a_reader<bide::basic_shared_mutex<platform>>>},
    {"biased_shared_mutex", &make<a_reader<bide::basic_biased_shared_mutex<platform>>>},
    // They let one through.
    {"notify", &make<a_notify<platform>>},
    {"semaphore", &make<a_permit<platform>>},
    {"mutex", &make<a_lock<bide::basic_mutex<platform>>>},
    {"adaptive_mutex", &make<a_lock<bide::basic_adaptive_mutex<platform>>>},
    {"shared_mutex", &make<a_lock<bide::basic_shared_mutex<platform>>>},
    {"biased_shared_mutex", &make<a_lock<bide::basic_biased_shared_mutex<platform>>>},
    // And do not say themselves that they are destroyed with waiters.
    {"select", &make<a_select<platform>>},
    {"keyed_mutex", &make<a_key<platform>>},
    {"object_pool", &make<an_object<platform>>},
    {"once_flag", &make<a_turn<platform>>},
};
constexpr int of_all = 5;    // kinds that let all through
constexpr int of_plain = 11; // kinds that say that they are destroyed with waiters
constexpr int of_any = static_cast<int>(std::size(kinds));

// Runs the rest of its test case for each of these kinds.
int each_kind(int first = 0, int last = of_any) { return GENERATE_COPY(range(first, last)); }

// One of a kind, closed.
struct closed {
    explicit closed(int kind) : number(kind), of(kinds[kind]), it(of.make()) {}
    any_wait* operator->() const { return it.get(); }
    bool opens_for_all() const { return number < of_all; }

    const int number;
    const kind& of;
    std::unique_ptr<any_wait> it;
};

bool are_asleep(int n) { return test::are_asleep<test::native>(n); }

// A thread's wait, by one of eight ways. Returns true if it came through, and has left.
constexpr int ways = 8;
bool visit(any_wait& w, int way, std::stop_token never) {
    bool through = true;
    switch (way) {
    case 0: w.wait(); break;
    case 1: through = w.wait_for(1h); break;
    case 2: through = w.wait_until(steady_clock::now() + 1h); break;
    case 3: through = w.wait(never) == wait_end::through; break;
    default: through = w.wait_for_ever(way - 4); break;
    }
    if (through) {
        w.leave();
    }
    return through;
}

} // namespace

TEST_CASE("wait: if it can end at once it does, whatever its stop and its time say",
          "[promise.ready-despite-stop]") {
    const closed w(each_kind());
    CAPTURE(w.of.name, w.number);
    std::stop_source stop;
    stop.request_stop();
    CHECK_FALSE(w->is_open());
    w->open();
    CHECK(w->is_open());
    for (int way = 0; way < ways; ++way) {
        CHECK(visit(*w.it, way, stop.get_token()));
    }
    CHECK(w->attempts_in_no_time() == any_wait::all_attempts);
    std::atomic<wait_end> ends[2] = {};
    w->note_stopped(stop.get_token(), ends[0]);
    w->note_late(-1s, ends[1]);
    CHECK(ends[0] == wait_end::through);
    CHECK(ends[1] == wait_end::through);
    wait_end end{};
    auto c = w->pass(end);
    c.start();
    CHECK(c.done());
    CHECK(end == wait_end::through);
    CHECK(w->is_open());
}

TEST_CASE("wait: the opening lets every waiter through, of every kind and with a huge time-out",
          "[promise.time-limits]") {
    const closed w(each_kind());
    CAPTURE(w.of.name, w.number);
    std::stop_source never;
    test::journal turns;
    std::atomic<wait_end> ends[2] = {};
    bool good[ways] = {};
    for (int i = 0; i < 3; ++i) {
        w->note_turn(turns, i);
    }
    test::team threads(ways, [&](int i) { good[i] = visit(*w.it, i, never.get_token()); });
    REQUIRE(are_asleep(ways));
    w->note_stopped(never.get_token(), ends[0]);
    w->note_late(1h, ends[1]);
    w->note_turn(turns, 3);
    CHECK(turns.size() == 0);
    w->open();
    threads.join();
    REQUIRE(turns.reaches(4));
    CHECK(turns.entries() == counts{0, 1, 2, 3}); // in the order they came
    REQUIRE((test::has_ended(ends[0]) && test::has_ended(ends[1])));
    CHECK(ends[0] == wait_end::through);
    CHECK(ends[1] == wait_end::through);
    CHECK(std::count(good, good + ways, true) == ways);
    CHECK(test::eventually([&] { return w->is_open(); }));
    CHECK(w->all_have_left());
}

TEST_CASE("wait: threads, coroutines and foreign wakers come through in the order they came in",
          "[promise.fifo-waiters][promise.keyed-mutex][promise.object-pool]") {
    // Every pattern of three kinds in four places.
    constexpr int places = 4;
    const int kind = each_kind(of_all);
    for (int pattern = 0; pattern < 3 * 3 * 3 * 3; ++pattern) {
        const closed w(kind);
        CAPTURE(w.of.name, w.number, pattern);
        test::journal turns;
        std::unique_ptr<test::any_foreign> foreign[places];
        std::optional<test::team> threads[places];
        int asleep = 0;
        int rest = pattern;
        for (int i = 0; i < places; ++i, rest /= 3) {
            if (rest % 3 == 0) {
                threads[i].emplace(1, [&w, &turns, i](int) {
                    w->wait();
                    turns.add(i);
                    w->leave();
                });
                REQUIRE(are_asleep(++asleep));
            } else if (rest % 3 == 1) {
                w->note_turn(turns, i);
            } else {
                foreign[i] = w->foreign(turns, i);
                REQUIRE_FALSE(foreign[i]->start());
            }
        }
        CHECK(turns.size() == 0);
        w->open();
        for (std::size_t i = 0; i < places; ++i) {
            REQUIRE(turns.reaches(i + 1));
            if (foreign[i]) {
                foreign[i]->leave();
            }
        }
        REQUIRE(turns.entries() == counts{0, 1, 2, 3});
        REQUIRE(w->all_have_left());
    }
}

TEST_CASE("wait: a thread that came through keeps others out until it leaves") {
    const closed w(each_kind(of_all));
    CAPTURE(w.of.name, w.number);
    std::atomic<bool> enough{false};
    test::team next(1, [&](int) {
        w->wait();
        test::eventually([&] { return enough.load(); });
        w->leave();
    });
    REQUIRE(are_asleep(1));
    w->open();
    // It is the other's, awake or not; but for an adaptive_mutex, whose waiter may be overtaken until it wakes.
    CHECK((std::string_view(w.of.name) == "adaptive_mutex" || !w->is_open()));
    enough = true;
    next.join();
    CHECK(w->is_open());
}

TEST_CASE("wait: zero, negative and past times mean one attempt", "[promise.time-limits]") {
    const closed w(each_kind());
    CAPTURE(w.of.name, w.number);
    CHECK(w->attempts_in_no_time() == 0);
    std::atomic<wait_end> ends[2] = {};
    w->note_late(0s, ends[0]);
    w->note_late(-1h, ends[1]);
    CHECK(ends[0] == wait_end::timeout); // without suspending
    CHECK(ends[1] == wait_end::timeout);
    CHECK_FALSE(w->is_open());
}

TEST_CASE("wait: a time-out is not early, by its own clock, and has no effect") {
    const closed w(each_kind());
    CAPTURE(w.of.name, w.number);
    const auto start = steady_clock::now();
    CHECK_FALSE(w->wait_for(10ms));
    CHECK(steady_clock::now() >= start + 10ms);
    const auto system = std::chrono::system_clock::now() + 10ms;
    CHECK_FALSE(w->wait_until(system));
    CHECK(std::chrono::system_clock::now() >= system);
    std::atomic<wait_end> end{};
    const auto before = steady_clock::now();
    w->note_late(10ms, end);
    REQUIRE(test::has_ended(end));
    CHECK(end == wait_end::timeout);
    CHECK(steady_clock::now() >= before + 10ms);
    CHECK_FALSE(w->is_open());
    w->open();
    CHECK(w->is_open());
}

TEST_CASE("wait: a stop ends the waits it is for and no other") {
    const closed w(each_kind());
    CAPTURE(w.of.name, w.number);
    std::stop_source stop;
    std::stop_source other;
    std::atomic<wait_end> ends[5] = {};
    w->note_stopped(stop.get_token(), ends[0]);
    w->note_stopped(other.get_token(), ends[1]);
    test::team threads(2, [&](int i) {
        const wait_end end = w->wait((i == 0 ? stop : other).get_token());
        if (end == wait_end::through) {
            w->leave();
        }
        ends[2 + i] = end;
    });
    REQUIRE(are_asleep(2));
    stop.request_stop();
    REQUIRE((test::has_ended(ends[0]) && test::has_ended(ends[2])));
    CHECK(ends[0] == wait_end::stopped);
    CHECK(ends[2] == wait_end::stopped);
    CHECK(ends[1] == wait_end::nothing_yet);
    CHECK(ends[3] == wait_end::nothing_yet);
    CHECK(w->wait(stop.get_token()) == wait_end::stopped); // requested before
    w->note_stopped(stop.get_token(), ends[4]);
    REQUIRE(test::has_ended(ends[4]));
    CHECK(ends[4] == wait_end::stopped);
    w->open();
    threads.join();
    REQUIRE(test::has_ended(ends[1]));
    CHECK(ends[1] == wait_end::through);
    CHECK(ends[3] == wait_end::through);
    other.request_stop(); // too late for anything
    CHECK(w->is_open());
}

TEST_CASE("wait: a coroutine that was let through stays let through", "[promise.grant-stays]") {
    const closed w(each_kind());
    CAPTURE(w.of.name, w.number);
    test::manual_executor later;
    wait_end end{};
    SECTION("whatever is stopped afterwards") {
        std::stop_source stop;
        auto c = w->pass_on(later, stop.get_token(), end);
        c.start();
        w->open();
        stop.request_stop();
        REQUIRE(later.run_all() == 1);
        CHECK(end == wait_end::through);
    }
    SECTION("whatever the clock says afterwards") {
        const auto when = steady_clock::now() + 100ms;
        auto c = w->pass_on_until(later, when, end);
        c.start();
        w->open();
        const bool in_time = steady_clock::now() < when; // else the time-out may have come first
        REQUIRE(test::eventually([&] { return steady_clock::now() > when; }));
        REQUIRE(test::eventually([&] { return later.run_all() == 1; }));
        CHECK((end == wait_end::through || !in_time));
    }
    CHECK(w->is_open());
}

TEST_CASE("wait: an opening, stops and time-outs at once end each wait once and forget none",
          "[promise.release-or-stop]") {
    const int kind = each_kind();
    for (std::uint32_t round = 0; round < 100; ++round) {
        const closed w(kind);
        CAPTURE(w.of.name, w.number, test::run_seed());
        std::stop_source stop;
        std::atomic<wait_end> end{};
        bool good[5] = {true, true, true, true, true};
        w->note_stopped(stop.get_token(), end);
        test::run_threads(5, [&](int i) {
            test::jitter chance(test::run_seed() + round * 5 + static_cast<std::uint32_t>(i));
            chance();
            if (i == 0) {
                w->open();
            } else if (i == 1) {
                stop.request_stop();
            }
            for (int n = 0; n < 10; ++n) {
                bool through = true;
                if (i == 2) {
                    const wait_end got = w->wait(stop.get_token());
                    through = got == wait_end::through;
                    good[i] = good[i] && (through || got == wait_end::stopped);
                } else if (i == 3) {
                    through = w->wait_for(std::chrono::nanoseconds(chance.below(40'000)));
                } else {
                    w->wait();
                }
                if (through) {
                    w->leave();
                }
                chance();
            }
        });
        REQUIRE(good[2]);
        REQUIRE(test::has_ended(end));
        REQUIRE((end == wait_end::through || end == wait_end::stopped));
        REQUIRE(w->is_open());
    }
}

TEST_CASE("wait: a coroutine that is destroyed while it waits leaves the queue") {
    const closed w(each_kind());
    const int leaves = GENERATE(0, 1, 2);
    CAPTURE(w.of.name, w.number, leaves);
    wait_end ends[3] = {};
    std::vector<test::held> waiting;
    for (wait_end& end : ends) {
        waiting.push_back(w->pass(end));
        waiting.back().start();
    }
    waiting[static_cast<std::size_t>(leaves)].destroy();
    w->open();
    for (int i = 0; i < 3; ++i) {
        CHECK(ends[i] == (i == leaves ? wait_end::nothing_yet : wait_end::through));
    }
    CHECK(w->is_open());
}

TEST_CASE("wait: after its last waiter has left, it opens as before") {
    const closed w(each_kind());
    CAPTURE(w.of.name, w.number);
    wait_end end{};
    test::journal turns;
    auto gone = w->pass(end);
    gone.start();
    gone.destroy();
    const auto cancelled = w->foreign(turns, 0);
    CHECK_FALSE(cancelled->start());
    CHECK(cancelled->cancel());
    CHECK_FALSE(w->is_open());
    CHECK_FALSE(w->wait_for(1ms));
    w->open();
    CHECK(w->is_open());
    CHECK(end == wait_end::nothing_yet);
    CHECK(turns.size() == 0);
}

TEST_CASE("wait: a coroutine destroyed after the grant gives it back",
          "[promise.destroyed-grant-returns]") {
    const closed w(each_kind());
    const bool has_waiter = GENERATE(false, true);
    CAPTURE(w.of.name, w.number, has_waiter);
    test::manual_executor later;
    wait_end ends[2] = {};
    auto granted = w->pass_on(later, {}, ends[0]);
    auto next = w->pass_on(later, {}, ends[1]);
    granted.start();
    if (has_waiter) {
        next.start();
    }
    w->open();
    REQUIRE(later.size() == (w.opens_for_all() && has_waiter ? 2 : 1));
    const bool may_overtake =
        std::string_view(w.of.name) == "adaptive_mutex"; // until the coroutine runs
    if (!w.opens_for_all() && !may_overtake) {
        CHECK_FALSE(w->is_open()); // no thread overtakes
        CHECK_FALSE(w->wait_for(1ms));
    }
    if (has_waiter && w.opens_for_all()) {
        CHECK(later.run_all() == 2);
    } else {
        later.drop_all();
    }
    granted.destroy();
    CHECK(later.run_all() == (!w.opens_for_all() && has_waiter ? 1 : 0));
    CHECK((ends[1] == wait_end::through) == has_waiter);
    CHECK(w->is_open());
}

TEST_CASE("wait: a waiter that comes through may destroy another one") {
    const closed w(each_kind());
    CAPTURE(w.of.name, w.number);
    wait_end end{};
    auto second = w->pass(end);
    auto first = w->pass_and_destroy(second);
    first.start();
    second.start();
    w->open();
    CHECK(first.done());
    CHECK(end == wait_end::nothing_yet);
    CHECK(w->is_open());
}

TEST_CASE("wait: a coroutine resumes where it asked to, else inside the opening",
          "[promise.resume-in-release]") {
    const closed w(each_kind());
    CAPTURE(w.of.name, w.number);
    test::manual_executor later;
    wait_end here{};
    wait_end there{};
    auto first = w->pass(here);
    auto second = w->pass_on(later, {}, there);
    first.start();
    second.start();
    w->open();
    CHECK(here == wait_end::through);
    CHECK(there == wait_end::nothing_yet);
    CHECK(later.run_all() == 1);
    CHECK(there == wait_end::through);
}

TEST_CASE("wait: a chain of openings takes constant stack space", "[promise.resume-in-release]") {
    constexpr std::size_t length = 20'000;
    const closed w(each_kind());
    CAPTURE(w.of.name, w.number);
    test::journal turns;
    for (std::size_t i = 0; i < length; ++i) {
        w->note_turn(turns, 0);
    }
    w->open();
    CHECK(turns.size() == length);
    CHECK(w->is_open());
}

TEST_CASE("wait: no wait allocates", "[promise.no-wait-allocates]") {
    const closed w(each_kind());
    CAPTURE(w.of.name, w.number);
    std::stop_source stop;
    std::stop_source never;
    const std::stop_token token = stop.get_token();
    const std::stop_token idle = never.get_token();
    bide::timer_service<platform>(); // its thread, once

    SECTION("of a thread") {
        std::size_t made[4] = {1, 1, 1, 1};
        bool good[4] = {};
        std::atomic<bool> timed_out{false};
        test::team waiting(4, [&](int i) {
            const std::size_t before = test::allocations_here();
            if (i == 0) {
                timed_out = !w->wait_for(1ms);
                good[i] = w->wait_for(1h) && timed_out;
            } else if (i == 1) {
                good[i] = w->wait(token) == wait_end::stopped;
            } else if (i == 2) {
                good[i] = w->wait(idle) == wait_end::through;
            } else {
                w->wait();
                good[i] = true;
            }
            if (i != 1) {
                w->leave();
            }
            made[i] = test::allocations_here() - before;
        });
        const bool all = test::eventually([&] { return timed_out.load(); }) && are_asleep(4);
        const std::size_t before = test::allocations_here();
        stop.request_stop();
        w->open();
        const std::size_t here = test::allocations_here() - before;
        waiting.join();
        CHECK(here == 0);
        CHECK(all);
        for (int i = 0; i < 4; ++i) {
            CHECK(good[i]);
            CHECK(made[i] == 0);
        }
    }
    SECTION("of a coroutine and of a foreign waker") {
        test::manual_executor later;
        test::journal turns;
        wait_end ends[3] = {};
        auto stopped = w->pass_on(later, token, ends[0]);
        auto late = w->pass_on_until(later, steady_clock::now() + 1ms, ends[1]);
        auto other = w->pass(ends[2]);
        const auto cancelled = w->foreign(turns, 0);
        const std::size_t before = test::allocations();
        stopped.start();
        late.start();
        cancelled->start();
        other.start();
        stop.request_stop();
        cancelled->cancel();
        const bool in_time = test::eventually([&] {
            later.run_all();
            return ends[0] != wait_end::nothing_yet && ends[1] != wait_end::nothing_yet;
        });
        w->open();
        const std::size_t made = test::allocations() - before;
        CHECK(made == 0);
        CHECK(in_time);
        CHECK(ends[0] == wait_end::stopped);
        CHECK(ends[1] == wait_end::timeout);
        CHECK(ends[2] == wait_end::through);
        CHECK(turns.size() == 0);
    }
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("wait: destroying it while there are waiters terminates with its name and their number",
          "[promise.destroyed-with-waiters]") {
    closed w(each_kind(0, of_plain));
    const std::string said = test::dies([&] {
        wait_end end{};
        auto first = w->pass(end);
        auto second = w->pass(end);
        auto third = w->pass(end);
        first.start();
        second.start();
        third.start();
        second.destroy();
        w.it.reset();
    });
    CAPTURE(said);
    CHECK(test::contains(said, w.of.name));
    CHECK(test::contains(said, "2 waiting"));
}

TEST_CASE("wait: destroying it without waiters is allowed, open or not") {
    closed w(each_kind());
    const std::string said = test::dies([&] {
        wait_end end{};
        auto c = w->pass(end);
        c.start();
        c.destroy();
        w.it = w.of.make();
        auto d = w->pass(end);
        d.start();
        w->open();
        w.it.reset();
    });
    CAPTURE(said);
    CHECK(test::contains(said, "[it lives on]"));
}

#endif

TEST_CASE("wait: a coroutine that comes through inside the opening may destroy it there") {
    closed w(each_kind(0, of_plain));
    CAPTURE(w.of.name, w.number);
    any_wait& it = *w.it;
    test::journal turns;
    it.pass_and_destroy(w.it);
    if (w.number < 3) { // the other two come through, too, and have not run
        it.note_turn(turns, 1);
        it.note_turn(turns, 2);
    }
    it.open();
    CHECK(w.it == nullptr);
    CHECK(turns.entries() == (w.number < 3 ? counts{1, 2} : counts{}));
}

TEMPLATE_TEST_CASE(
    "wait: a coroutine that a gate let through does not access it again, wherever it resumes", "",
    an_event<test::native>, a_latch<test::native>, a_barrier<test::native>) {
    test::manual_executor later;
    std::stop_source stop;
    wait_end end{};
    alignas(TestType) unsigned char place[sizeof(TestType)];
    unsigned char pattern[sizeof place];
    std::memset(pattern, 0x5a, sizeof pattern); // as a lock that is free, with a sleeper
    auto* const g = ::new (static_cast<void*>(place)) TestType();
    auto c = test::hold_end(*g, g->async_wait().with_stop(stop.get_token()).resume_on(later), end);
    c.start();
    g->open();
    REQUIRE(g->is_open()); // so it may be destroyed
    g->~TestType();
    std::memcpy(place, pattern, sizeof place);
    bool resumes = true;
    SECTION("resumed") { CHECK(later.run_all() == 1); }
    SECTION("stopped, and resumed") {
        stop.request_stop();
        CHECK(later.run_all() == 1);
    }
    SECTION("destroyed") {
        later.drop_all();
        c.destroy();
        resumes = false;
    }
    CHECK(end == (resumes ? wait_end::through : wait_end::nothing_yet));
    CHECK(std::memcmp(place, pattern, sizeof place) == 0);
}

TEMPLATE_TEST_CASE("wait: a waiter that came through may destroy it before the opening returns",
                   "[promise.destroy-after-success][promise.barrier-phases]",
                   an_event<test::native>, a_latch<test::native>, a_barrier<test::native>,
                   a_notify<test::native>, a_lock<bide::mutex>, a_lock<bide::adaptive_mutex>,
                   an_event<test::portable>, a_lock<bide::basic_adaptive_mutex<test::portable>>) {
    const auto make_it = [](void* at, int) { return ::new (at) TestType; };
    const auto open = [](TestType& w) { w.open(); };
    const auto pass = [](TestType& w, int round) {
        switch (round % 5) {
        case 0: static_cast<void>(w.wait(std::stop_token())); break;
        case 1: w.wait(); break;
        case 2:
            while (!w.wait_for(std::chrono::nanoseconds(round % 1'000))) {
            }
            break;
        case 3: // with a look
            while (!w.is_open()) {
                bide::native_platform::pause();
            }
            break;
        default: {
            std::atomic<wait_end> end{};
            test::note_end(w, w.async_wait().with_stop(std::stop_token()), end);
            if (!test::has_ended(end)) {
                test::give_up(test::where(), "a coroutine waits for ever");
            }
        }
        }
    };
    CHECK(test::late_touches<TestType>(1, 2'000, make_it, open, pass) == 0);
}

TEMPLATE_TEST_CASE("wait: what came before the opening is seen by a waiter and by one that looks",
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
