#include <bide/core/timer.hpp>
#include <support/alloc.hpp>
#include <support/calling.hpp>
#include <support/fake_clock.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using namespace bide;
using queue = bide::basic_timer_queue<test::native>;

static_assert(sizeof(timer) <= 72);

namespace {

constexpr std::int64_t never = queue::never_ns;
constexpr std::int64_t tick = 1024;

// A timer that records its number in a log when it fires.
struct note {
    timer t;
    std::vector<note*>* log = nullptr;
    int fired = 0;

    note() = default;
    note(std::int64_t at, std::vector<note*>& to) { set(at, to); }
    note(const note&) = delete;
    note& operator=(const note&) = delete;

    void set(std::int64_t at, std::vector<note*>& to) {
        log = &to;
        t.when = deadline::at_ns(at);
        t.fire = waker(
            [](void* self) noexcept {
                auto& mine = *static_cast<note*>(self);
                ++mine.fired;
                mine.log->push_back(&mine);
            },
            this);
    }
    std::int64_t at() const { return t.when.steady_ns(); }
};

// Timers at random times, and a record of those that have fired.
struct crowd {
    std::vector<note*> log;
    std::deque<note> all;
    std::size_t seen = 0;

    void add(queue& q, int n, std::int64_t start, std::uint32_t span, test::jitter& chance) {
        log.reserve(all.size() + static_cast<std::size_t>(n));
        for (int i = 0; i < n; ++i) {
            q.add(all.emplace_back(start + chance.below(span), log).t);
        }
    }

    // Checks that exactly the timers that are due at `now` have fired, once each, and in order
    // since the last check.
    bool fired_up_to(std::int64_t now) {
        const auto earlier = [](const note* a, const note* b) { return a->at() < b->at(); };
        const auto right = [now](const note& n) { return n.fired == (n.at() <= now ? 1 : 0); };
        const auto from = log.begin() + static_cast<std::ptrdiff_t>(seen);
        seen = log.size();
        return std::is_sorted(from, log.end(), earlier) &&
               std::all_of(all.begin(), all.end(), right);
    }
};

void fire_all_due(queue& q, std::int64_t now) {
    while (q.next_ns() <= now) {
        q.fire_due(now);
    }
}

// A clock that was set back: it is an hour before each deadline. `look` runs while the clock is
// read.
struct slow_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<slow_clock>;

    static time_point now() noexcept {
        const waker hook = look;
        look = {};
        hook.wake();
        return time_point(0h);
    }
    inline static waker look;
};

} // namespace

TEST_CASE("timer_queue: with a slack, the timers of an interval fire together at its end",
          "[promise.timer-slack]") {
    constexpr std::int64_t slack = 1'000'000;
    queue q(waker(), slack);
    std::vector<note*> log;
    note past(-1, log), first(1, log), second(slack, log), third(slack + 1, log);
    note last(never - 1, log);
    for (note* n : {&past, &first, &second, &third, &last}) {
        q.add(n->t);
    }
    CHECK(q.fire_due(0) == 1);
    CHECK(past.fired == 1);
    CHECK(q.fire_due(slack - 1) == 0);
    CHECK(q.fire_due(slack) == 2);
    CHECK(q.fire_due(2 * slack - 1) == 0);
    CHECK(q.fire_due(2 * slack) == 1);
    CHECK(q.cancel(last.t));
}

TEST_CASE("timer_queue: at any time exactly the due timers have fired, in order") {
    test::jitter chance(test::run_seed());
    // The timers are sparse, so that few share a tick: then times are exact. They are due after
    // ticks to seconds. The wheel starts where the digits of many levels are about to change.
    // Further timers are added on the way, some of them late.
    for (const std::uint32_t span : {1'000'000u, 30'000'000u, 4'000'000'000u}) {
        for (const std::int64_t start :
             {std::int64_t{0}, (std::int64_t{1} << 52) - span / 2, std::int64_t{987'654'321}}) {
            queue q;
            q.fire_due(start);
            crowd c;
            c.add(q, span == 1'000'000 ? 20 : 200, start, span, chance);
            bool right = true;
            for (std::int64_t now = start; now < start + span;) {
                now += chance.below(chance.below(2) == 0 ? span / 8 : span / 500) + 1;
                fire_all_due(q, now);
                right = right && c.fired_up_to(now);
                c.add(q, 1, std::max(start, now - span / 50), span / 20, chance);
            }
            fire_all_due(q, start + 2 * std::int64_t{span});
            CHECK(right);
            CHECK(c.fired_up_to(never));
            CHECK(q.next_ns() == never);
        }
    }
}

TEST_CASE("timer_queue: many timers of one tick are never early, and late by less than a tick") {
    test::jitter chance(test::run_seed());
    queue q;
    constexpr int n = 2'000;
    crowd c;
    c.add(q, n, 1'000'000, 20 * tick, chance);
    std::int64_t early = 0;
    std::int64_t late = 0;
    std::size_t seen = 0;
    for (std::int64_t now = 1'000'000; now < 1'000'000 + 22 * tick; now += 16) {
        fire_all_due(q, now);
        for (; seen < c.log.size(); ++seen) {
            early = std::max(early, c.log[seen]->at() - now);
            late = std::max(late, now - c.log[seen]->at());
        }
    }
    CHECK(seen == n);
    CHECK(early <= 0);
    CHECK(late <= tick + 16);
}

TEST_CASE("timer_queue: next_ns is never later than the earliest timer, and rarely too early") {
    test::jitter chance(test::run_seed());
    for (const int n : {1, 2, 16, 1'000}) {
        queue q;
        crowd c;
        c.add(q, n, 5'000'000'000, 4'000'000'000u, chance);
        bool right = true;
        int in_vain = 0;
        for (std::int64_t next = q.next_ns(); next != never; next = q.next_ns()) {
            const std::size_t before = c.log.size();
            q.fire_due(next);
            in_vain += c.log.size() == before ? 1 : 0;
            right = right && c.fired_up_to(next);
        }
        CHECK(right);
        CHECK(c.fired_up_to(never));
        // A slot with more than 16 timers is searched before its first timer is due.
        CHECK(in_vain <= (n <= 16 ? 0 : n / 8));
    }
}

TEST_CASE("timer_queue: a single timer ends one sleep, and a timer at never() ends none") {
    queue q;
    std::vector<note*> log;
    for (const std::int64_t at : {std::int64_t{1}, std::int64_t{1'023}, std::int64_t{1'024},
                                  std::int64_t{3'600'000'000'000}, std::int64_t{1} << 42,
                                  (std::int64_t{1} << 62) + 12'345, never - 1}) {
        note n(at, log);
        q.add(n.t);
        CHECK(q.next_ns() == at);
        CHECK(q.fire_due(at - 1) == 0);
        CHECK(q.next_ns() == at);
        CHECK(q.fire_due(at) == 1);
        CHECK(q.next_ns() == never);
    }
    queue other;
    note n(never, log);
    other.add(n.t);
    CHECK(other.next_ns() == never);
    CHECK(other.fire_due(never - 1) == 0);
    CHECK(other.cancel(n.t));
}

// Two workers may read the clock in one order and call fire_due() in the other.
TEST_CASE("timer_queue: fire_due with an earlier time than before fires no timer early") {
    queue q;
    std::vector<note*> log;
    q.fire_due(1'000'000);
    note far(1'000'000 + 5 * tick, log);
    note past(0, log);
    note near(500'000, log);
    q.add(far.t);
    q.add(past.t);
    q.fire_due(1'000'000);
    q.add(past.t);
    q.fire_due(2 * tick);
    q.add(near.t);
    q.fire_due(600'000); // the clock of a second worker, which is late
    q.fire_due(1'000'000);
    CHECK((past.fired == 2 && near.fired == 1 && far.fired == 0));
    CHECK(q.fire_due(far.at()) == 1);
}

TEST_CASE("timer_queue: fire_due fires at most `most` timers, and next_ns stays due") {
    queue q;
    std::vector<note*> log;
    std::deque<note> all;
    for (int i = 0; i < 10; ++i) {
        q.add(all.emplace_back(5'000 + i, log).t);
    }
    CHECK(q.fire_due(6'000, 0) == 0);
    CHECK(q.fire_due(6'000, 3) == 3);
    CHECK(log.size() == 3);
    CHECK(q.next_ns() <= 5'003);
    CHECK(q.fire_due(6'000, 3) == 3);
    CHECK(q.fire_due(6'000) == 4);
    CHECK(q.fire_due(6'000) == 0);
    CHECK(q.next_ns() == never);
}

TEST_CASE("timer_queue: fire_due tells of each timer before it fires, and of no other one") {
    queue q;
    int told = 0;
    int seen = 0; // the sum of what had been told of at each firing
    auto tell = [&] { ++told; };
    auto fire = [&] { seen += told; };
    timer t[3];
    for (timer& one : t) {
        one.when = deadline::at_ns(&one == &t[2] ? 2 : 1);
        one.fire = test::waker_of(fire);
        q.add(one);
    }
    CHECK(q.fire_due(1, 256, 0, test::waker_of(tell)) == 2);
    CHECK(seen == 1 + 2);
    CHECK(told == 2);
    CHECK(q.cancel(t[2]));
}

TEST_CASE("timer_queue: fire_due passes over timers only if a due one of their tick follows") {
    queue q;
    std::vector<note*> log;
    note a(4 * tick + 1, log);
    note b(4 * tick + 1, log);
    note c(4 * tick + 2, log);
    note later(4 * tick + 9, log);
    note other(7 * tick, log);
    for (note* n : {&a, &b, &c, &later, &other}) {
        q.add(n->t);
    }
    REQUIRE(q.fire_due(4 * tick + 2, 1, 1) == 1);
    REQUIRE(log == std::vector<note*>{&b});
    REQUIRE(q.next_ns() <= 4 * tick + 1); // the one that was passed over is due
    REQUIRE(q.fire_due(4 * tick + 2, 1, 100) == 1);
    REQUIRE(q.fire_due(4 * tick + 2, 1, 100) == 1);
    REQUIRE(q.fire_due(4 * tick + 2, 1, 100) == 0);
    REQUIRE(log == std::vector<note*>{&b, &c, &a});
    REQUIRE(q.fire_due(8 * tick, 2, 1) == 2);
    REQUIRE(log == std::vector<note*>{&b, &c, &a, &later, &other});
}

// One far slot holds more timers than a call moves to nearer slots.
TEST_CASE("timer_queue: during a long move, timers are added and cancelled as usual") {
    test::jitter chance(test::run_seed());
    queue q;
    constexpr std::int64_t start = std::int64_t{1} << 46;
    crowd c;
    c.add(q, 3'000, start + 1'000, 50'000'000, chance);
    const std::int64_t now = start + 20'000'000;
    CHECK(q.fire_due(now) == 0);
    CHECK(q.next_ns() <= now); // the move goes on
    std::vector<note*> late;
    note early(start, late);
    note due(now, late);
    note later(now + 1, late);
    q.add(early.t);
    q.add(due.t);
    q.add(later.t);
    for (std::size_t i = 0; i < c.all.size(); i += 3) {
        REQUIRE(q.cancel(c.all[i].t));
    }
    fire_all_due(q, now);
    CHECK(early.fired + due.fired == 2);
    CHECK(later.fired == 0);
    bool right = true;
    for (std::size_t i = 0; i < c.all.size(); ++i) {
        right = right && c.all[i].fired == (i % 3 != 0 && c.all[i].at() <= now ? 1 : 0);
    }
    CHECK(right);
    for (std::size_t i = 1; i < c.all.size(); i += 2) {
        q.cancel(c.all[i].t);
    }
    fire_all_due(q, start + 60'000'000);
    CHECK(later.fired == 1);
    CHECK(q.next_ns() == never);
}

TEST_CASE(
    "timer_queue: a nearer timer wakes `earlier` outside the lock, and a later one does not") {
    std::vector<note*> log;
    note other(never - 2, log);
    int told = 0;
    std::int64_t next = 0;
    queue* in = nullptr;
    auto earlier = [&] {
        ++told;
        next = in->next_ns();
        in->add(other.t); // acquires the lock
        in->cancel(other.t);
    };
    queue q(test::waker_of(earlier));
    in = &q;
    note later(9'000'000, log);
    note nearer(8'000'000, log);
    note between(8'500'000, log);
    note same(8'000'000, log);
    q.add(later.t);
    CHECK((told == 1 && next == 9'000'000));
    q.add(nearer.t);
    CHECK((told == 2 && next == 8'000'000));
    q.add(between.t);
    q.add(same.t);
    CHECK(told == 2);
    // A sleeper until 8 ms wakes at 8 ms in any case.
    CHECK((q.cancel(nearer.t) && q.cancel(same.t)));
    CHECK(q.next_ns() == 8'000'000);
    q.add(same.t);
    CHECK(told == 2);
    q.cancel(same.t);
    CHECK(q.fire_due(8'000'000) == 0);
    CHECK(q.next_ns() == 8'500'000);
    q.add(nearer.t);
    CHECK(told == 3);
    CHECK(q.fire_due(9'000'000) == 3);
}

// An outer call of fire_due() ends after an inner call has moved next_ns() forward.
TEST_CASE("timer_queue: next_ns does not move back without a wake of `earlier`") {
    int told = 0;
    auto earlier = [&] { ++told; };
    queue q(test::waker_of(earlier));
    std::vector<note*> log;
    std::deque<note> many;
    std::int64_t next = 0;
    auto nested = [&] {
        const std::int64_t far = 1'000'000'000;
        q.add(many.emplace_back(far, log).t);
        q.fire_due(5'000);
        next = q.next_ns();
        for (int i = 0; i < 20; ++i) { // too many timers for a search of the slot
            q.add(many.emplace_back(far + 1, log).t);
        }
    };
    timer t;
    t.when = deadline::at_ns(1'000);
    t.fire = test::waker_of(nested);
    q.add(t);
    CHECK(q.fire_due(1'000) == 1);
    CHECK(next == 1'000'000'000);
    CHECK(q.next_ns() == next);
    CHECK(told == 1);
    q.add(many.emplace_back(next - 1, log).t);
    CHECK(told == 2);
    fire_all_due(q, 2'000'000'000);
    CHECK(log.size() == 22);
}

TEST_CASE("timer_queue: cancel_timer cancels in the queue that the timer was added to") {
    queue a;
    queue b;
    std::vector<note*> log;
    note n(1'000, log);
    CHECK_FALSE(bide::cancel_timer<test::native>(n.t));
    for (queue* q : {&a, &b, &a}) {
        q->add(n.t);
        CHECK(q->next_ns() == 1'000);
        CHECK(bide::cancel_timer<test::native>(n.t));
        CHECK_FALSE(bide::cancel_timer<test::native>(n.t));
        CHECK(q->fire_due(2'000) == 0);
    }
    CHECK(n.fired == 0);
}

TEST_CASE("timer_queue: a timer may be cancelled, added again and destroyed by its own firing") {
    queue q;
    auto t = std::make_unique<timer>();
    int fired = 0;
    bool in_time = true;
    bool added = false;
    auto fire = [&] {
        if (++fired == 1) {
            in_time = q.cancel(*t);
            q.add(*t);
            added = q.cancel(*t);
            q.add(*t);
        } else {
            t.reset();
        }
    };
    t->when = deadline::at_ns(0);
    t->fire = test::waker_of(fire);
    q.add(*t);
    CHECK(q.fire_due(1, 1) == 1);
    CHECK_FALSE(in_time);
    CHECK(added);
    CHECK(q.fire_due(1) == 1);
    CHECK(fired == 2);
    CHECK(q.fire_due(1) == 0);
}

TEST_CASE("timer_queue: a timer that is early by its own clock is queued again") {
    struct tag;
    using clock = test::fake_clock<tag>;
    clock::set(0s);
    int fired = 0;
    auto fire = [&] { ++fired; };
    queue q;
    timer t;
    t.when = deadline::at(clock::time_point(1h));
    t.fire = test::waker_of(fire);
    q.add(t);
    const std::int64_t first = q.next_ns();
    clock::set(-1h); // set back
    CHECK(q.fire_due(first) == 0);
    CHECK(fired == 0);
    const std::int64_t then = q.next_ns();
    CHECK(then > first);
    clock::set(1h);
    CHECK(q.fire_due(then) == 1);
    CHECK(fired == 1);
    CHECK_FALSE(q.cancel(t));
}

TEST_CASE("timer_queue: an early timer wakes `earlier` if another call has moved next_ns past it") {
    int told = 0;
    auto earlier = [&] { ++told; };
    queue q(test::waker_of(earlier));
    timer t;
    t.when = deadline::at(slow_clock::time_point(1h));
    q.add(t);
    const std::int64_t at = q.next_ns();
    std::int64_t between = 0;
    auto other_call = [&] {
        q.fire_due(at); // this thread holds no lock
        between = q.next_ns();
    };
    slow_clock::look = test::waker_of(other_call);
    CHECK(q.fire_due(at) == 0);
    CHECK(between == never);
    CHECK(told == 2);
    CHECK((q.next_ns() > at && q.next_ns() < never));
    CHECK(q.cancel(t));
}

TEST_CASE("timer_queue: a timer that is cancelled while its clock is read is not queued again") {
    for (int i = 0; i < 100; ++i) {
        queue q;
        timer t;
        std::atomic<bool> read{false};
        std::atomic<bool> about{false};
        int fired = 0;
        auto fire = [&] { ++fired; };
        auto look = [&] {
            read = true;
            test::eventually([&] { return about.load(); });
        };
        t.when = deadline::at(slow_clock::time_point(1h));
        t.fire = test::waker_of(fire);
        q.add(t);
        slow_clock::look = test::waker_of(look);
        const std::int64_t at = q.next_ns();
        test::team firing(1, [&](int) { q.fire_due(at); });
        test::eventually([&] { return read.load(); });
        about = true;
        const bool in_time = q.cancel(t);
        const bool again = q.cancel(t);
        firing.join();
        if (!in_time || again || fired != 0 || q.fire_due(never - 1) != 0) {
            FAIL("cancelled: " << in_time << ", again: " << again << ", fired: " << fired);
        }
    }
}

TEST_CASE("timer_queue: nothing is allocated") {
    std::vector<note*> log;
    log.reserve(100);
    std::deque<note> all(100);
    const std::size_t before = test::allocations();
    queue q;
    std::int64_t at = 1;
    for (note& n : all) {
        n.set(at = at * 5 / 4 + 1, log);
        q.add(n.t);
    }
    q.cancel(all[50].t);
    fire_all_due(q, at);
    CHECK(test::allocations() == before);
    CHECK(log.size() == 99);
}

TEMPLATE_TEST_CASE(
    "timer_queue: cancel waits only for a firing of the same timer on another thread", "",
    test::native, test::jittery) {
    test::jitter chance(test::run_seed());
    struct slow {
        timer t;
        std::atomic<bool> firing{false};
        std::atomic<bool> go{false};
        std::uint32_t yields = 0;
        int over = 0; // plain: cancel() orders it
    };
    const auto fire = [](void* p) noexcept {
        auto& me = *static_cast<slow*>(p);
        me.firing = true;
        test::eventually([&] { return me.go.load(); });
        for (std::uint32_t n = me.yields; n != 0; --n) {
            std::this_thread::yield();
        }
        me.over = 1;
    };
    for (int round = 0; round < 30; ++round) {
        bide::basic_timer_queue<TestType> q;
        slow all[4];
        std::deque<test::team> threads;
        for (slow& s : all) {
            s.t.when = deadline::at_ns(0);
            s.t.fire = waker(fire, &s);
            s.yields = chance.below(20);
            q.add(s.t);
        }
        // Three timers fire at once, begun one after the other. The fourth thread waits for one of
        // them.
        for (int i = 0; i < 3; ++i) {
            threads.emplace_back(1, [&](int) { q.fire_due(1, 1); });
            REQUIRE(test::eventually([&] { return all[i].firing.load(); }));
        }
        bool right = q.cancel(all[3].t);
        for (const std::uint32_t i : {1u, chance.below(2) * 2, 0u, 2u}) {
            all[i].go = true;
            right = right && !q.cancel(all[i].t) && all[i].over == 1;
            threads[i].join();
        }
        if (!right || all[3].firing || q.fire_due(1) != 0 || q.next_ns() != never) {
            FAIL("round " << round);
        }
    }
}

// For cancellers, the firing ends before the coroutines run that it made runnable: these may run
// for long.
TEST_CASE("timer_queue: runnables of a firing run after the call has ended for cancellers") {
    queue q;
    timer t;
    timer other;
    bide::runnable r;
    int fired = 0;
    bool waited = false;
    auto run = [&] {
        bool cancelled = true;
        test::run_threads(1, [&](int) {
            cancelled = q.cancel(t);
            q.add(other);
            q.fire_due(5);
        });
        waited = !cancelled;
    };
    auto wake = [&] { bide::wake_scope<test::native>::run(r); };
    auto fire = [&] { ++fired; };
    r.run = test::waker_of(run);
    t.when = other.when = deadline::at_ns(0);
    t.fire = test::waker_of(wake);
    other.fire = test::waker_of(fire);
    q.add(t);
    CHECK(q.fire_due(5) == 1);
    CHECK(waited);
    CHECK(fired == 1);
}
