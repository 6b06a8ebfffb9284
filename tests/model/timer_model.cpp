#include <bide/core/timer.hpp>
#include <model/check.hpp>
#include <model/posted.hpp>
#include <support/test.hpp>

// The timer queue and the service. A timer fires once or is cancelled, never both. After cancel()
// it may be destroyed. A timer that is added wakes the sleeper, without the help of a time-out.
// Each posted runnable runs, even if resumers block. Only a resumer that blocks outside of bide is
// replaced after a time-out. The service never ends, so its threads are daemons, and it is never
// destroyed.

namespace {

using bide::deadline;
using platform = model::platform_without_lock_sleep;
using service = bide::basic_timer_service<platform>;
using queue = bide::basic_timer_queue<platform>;
using parker = bide::basic_parker<platform>;
template <class T> using var = platform::var<T>;

// Has passed at the first check; passes only if the clock moves.
constexpr deadline now = deadline::at_ns(1);
constexpr deadline soon = deadline::at_ns(500'000);
constexpr deadline later = deadline::at_ns(900'000);

void start(service& s) {
    model::daemon([&s] { s.run(); });
}
service& start_service() {
    auto* const made = new service;
    start(*made);
    return *made;
}

// A timer that counts its firings and announces them.
struct bell {
    var<int> fired{0};
    parker* const heard;
    model::timed timer;

    explicit bell(deadline when, parker* hears = nullptr)
        : heard(hears), timer(when, [this] {
              parker* const p = heard;
              fired = fired + 1;
              if (p != nullptr) {
                  p->unpark();
              }
          }) {}
};

void fires_once() {
    service& s = start_service();
    parker p;
    bell b(now, &p);
    s.add(b.timer);
    p.park();
    MODEL_REQUIRE(!s.cancel(b.timer));
    MODEL_REQUIRE(b.fired == 1);
}

// cancel() returns whether it fired, and no thread accesses it afterwards.
void cancelled_or_fired(bool added_first) {
    auto& s = *new service;
    auto b = std::make_unique<bell>(now);
    if (!added_first) {
        start(s);
    }
    s.add(b->timer);
    if (added_first) {
        start(s);
    }
    const bool in_time = s.cancel(b->timer);
    model::record(in_time ? "cancelled" : "fired");
    MODEL_REQUIRE(b->fired == (in_time ? 0 : 1));
    b.reset();
}

// Two threads cancel the same timer. Both may free the data that it accesses.
void cancelled_by_two() {
    auto& s = *new service;
    bell b(now);
    var<int> in_time{0};
    s.add(b.timer);
    start(s);
    model::thread other([&] { in_time = s.cancel(b.timer) ? 1 : 0; });
    const bool mine = s.cancel(b.timer);
    other.join();
    const int cancels = in_time + (mine ? 1 : 0);
    MODEL_REQUIRE(cancels <= 1);
    MODEL_REQUIRE(b.fired == 1 - cancels);
}

// The service may sleep for the later timer already. The earlier timer must wake it.
void earlier_one_is_heard() {
    auto& s = *new service;
    parker p;
    bell far(later);
    bell near(now, &p);
    s.add(far.timer);
    start(s);
    s.add(near.timer);
    p.park();
    MODEL_REQUIRE(s.cancel(far.timer));
    MODEL_REQUIRE(near.fired == 1 && far.fired == 0);
}

// The service's own sleep ends in time: the clock moves if that sleep times out.
void sleeps_until_it_is_time() {
    auto& s = *new service;
    parker p;
    bell b(soon, &p);
    s.add(b.timer);
    start(s);
    const bool heard = p.park_until(later);
    const bool in_time = s.cancel(b.timer);
    model::record(in_time ? "cancelled" : "fired");
    MODEL_REQUIRE(!heard || !in_time);
    MODEL_REQUIRE(b.fired == (in_time ? 0 : 1));
}

// One of two timers is cancelled, and the other fires.
void the_other_fires() {
    auto& s = *new service;
    parker p;
    auto first = std::make_unique<bell>(now);
    bell second(now, &p);
    s.add(first->timer);
    s.add(second.timer);
    start(s);
    const bool in_time = s.cancel(first->timer);
    MODEL_REQUIRE(first->fired == (in_time ? 0 : 1));
    first.reset();
    p.park();
    MODEL_REQUIRE(second.fired == 1);
}

// Timers of two threads, each cancelled by its owner.
void two_owners() {
    service& s = start_service();
    const auto own = [&] {
        auto b = std::make_unique<bell>(now);
        s.add(b->timer);
        const bool in_time = s.cancel(b->timer);
        MODEL_REQUIRE(b->fired == (in_time ? 0 : 1));
        b.reset();
    };
    model::thread other(own);
    own();
}

// A firing that cancels its own timer does not wait for itself. A firing may add its timer again.
void cancels_and_adds_itself() {
    auto& s = *new service;
    parker p;
    var<int> fired{0};
    model::timed again(now, [&] {
        MODEL_REQUIRE(!s.cancel(again));
        fired = fired + 1;
        if (fired == 1) {
            s.add(again);
        } else {
            p.unpark();
        }
    });
    s.add(again);
    start(s);
    p.park();
    MODEL_REQUIRE(!s.cancel(again));
    MODEL_REQUIRE(fired == 2);
}

// A posted runnable runs on the service once, which may sleep for a timer. It may be destroyed when it has announced
// its run.
void runs_posted(service& s) {
    parker p;
    var<int> ran{0};
    auto e = std::make_unique<model::posted>([&] {
        ran = ran + 1;
        p.unpark();
    });
    s.post(*e);
    p.park();
    MODEL_REQUIRE(ran == 1);
    e.reset();
}

void posted() { runs_posted(start_service()); }

void posted_between_timers() {
    auto& s = *new service;
    bell far(later);
    s.add(far.timer);
    start(s);
    runs_posted(s);
    MODEL_REQUIRE(s.cancel(far.timer));
}

// The resumers of a service, and a thread that only serves their calls for attention.
struct watched {
    parker bed; // of that thread
    queue timers;
    bide::detail::basic_resumers<platform> resumers{
        timers, bide::waker([](void* b) noexcept { static_cast<parker*>(b)->unpark(); }, &bed)};

    static watched& start() {
        auto& made = *new watched;
        model::daemon([&made] {
            for (;;) {
                const std::int64_t next = made.resumers.start_needed(platform::now());
                made.bed.park_until(deadline::at_ns(next));
            }
        });
        return made;
    }
};

// Runs on a resumer: sleeps until `before` has a token, and leaves one in `after`.
struct job : model::posted {
    parker* const before;
    parker* const after;
    var<int> ran{0};

    job(parker* sleeps_in, parker& tells)
        : posted([this] {
              parker* const p = after;
              if (before != nullptr) {
                  before->park();
              }
              ran = ran + 1;
              p->unpark();
          }),
          before(sleeps_in), after(&tells) {}
};

// The second runnable meets a resumer that runs, becomes idle or is idle.
template <class Place> void posted_twice(Place& to, bool by_two) {
    parker done[2];
    auto first = std::make_unique<job>(nullptr, done[0]);
    auto second = std::make_unique<job>(nullptr, done[1]);
    if (by_two) {
        model::thread other([&] { to.post(*second); });
        to.post(*first);
        done[0].park();
    } else {
        to.post(*first);
        done[0].park();
        to.post(*second);
    }
    done[1].park();
    MODEL_REQUIRE(first->ran == 1 && second->ran == 1);
    first.reset();
    second.reset();
}

// The first runnable sleeps until the second has run.
template <class Place> void first_blocks(Place& to, bool by_two) {
    parker done;
    parker between;
    job first(&between, done);
    job second(nullptr, between);
    if (by_two) {
        model::thread other([&] { to.post(second); });
        to.post(first);
    } else {
        to.post(first);
        to.post(second);
    }
    done.park();
    MODEL_REQUIRE(first.ran == 1 && second.ran == 1);
}

// No more resumers may start, and both sleep: the third runnable runs when one of them wakes.
void all_blocked() {
    auto& w = watched::start();
    parker middle[2];
    parker done[3];
    job first(&middle[0], done[0]);
    job second(&middle[1], done[1]);
    job third(nullptr, done[2]);
    w.resumers.post(first);
    w.resumers.post(second);
    model::thread other([&] { w.resumers.post(third); });
    middle[1].unpark();
    done[2].park();
    done[1].park();
    MODEL_REQUIRE(first.ran == 0 && second.ran == 1 && third.ran == 1);
    middle[0].unpark();
    done[0].park();
}

// The first runnable blocks outside of bide. The second becomes late when the serving thread's
// sleep times out.
template <class Place> void first_is_late(Place& to) {
    platform::atomic<int> go{0};
    parker done;
    model::posted first([&] {
        while (go.load(std::memory_order_acquire) == 0) {
            platform::pause();
        }
        done.unpark();
    });
    model::posted second([&] { go.store(1, std::memory_order_release); });
    to.post(first);
    to.post(second);
    done.park();
}

// A surplus resumer times out while a runnable is posted.
void surplus_leaves() {
    auto& w = watched::start();
    first_blocks(w.resumers, false);
    parker done;
    job last(nullptr, done);
    w.resumers.post(last);
    done.park();
    MODEL_REQUIRE(last.ran == 1);
}

// A worker that fires the timers of its queue and sleeps in between, as a scheduler's worker does.
struct worker {
    platform::atomic<std::int64_t> until{0}; // when its sleep ends; 0: it is awake
    parker bed;
    queue timers{bide::waker(
        [](void* self) noexcept {
            auto& mine = *static_cast<worker*>(self);
            if (mine.until.load(std::memory_order_seq_cst) != 0) {
                mine.bed.unpark();
            }
        },
        this)};

    void sleep() noexcept {
        const std::int64_t next = timers.next_ns();
        until.store(next, std::memory_order_seq_cst);
        if (next > platform::now() && timers.next_ns() >= next) { // the second check
            bed.park_until(deadline::at_ns(next));
        }
        until.store(0, std::memory_order_relaxed);
    }
};

// One worker sleeps until the earliest timer, or for ever. The other adds a nearer timer and does
// not check the queue again.
void handed_over(deadline earliest, int nearer) {
    worker w;
    bell far(earliest);
    bell near[2] = {bell(now), bell(now)};
    w.timers.add(far.timer);
    model::thread sleeper([&] {
        for (int fired = 0; fired < nearer;) {
            const auto n = static_cast<int>(w.timers.fire_due(platform::now()));
            fired += n;
            if (n == 0) {
                w.sleep();
            }
        }
    });
    for (int i = 0; i < nearer; ++i) {
        w.timers.add(near[i].timer);
    }
    sleeper.join();
    MODEL_REQUIRE(near[0].fired + near[1].fired == nearer && far.fired == 0);
    MODEL_REQUIRE(w.timers.cancel(far.timer));
}

// Two workers fire a queue of two timers at once. The owner of one timer cancels and destroys it.
void fired_by_two(bool owner_comes) {
    queue q;
    auto b = std::make_unique<bell>(now);
    bell other(now);
    var<int> fired{0};
    var<bool> in_time{false};
    q.add(b->timer);
    q.add(other.timer);
    const auto cancel = [&] {
        in_time = q.cancel(b->timer);
        MODEL_REQUIRE(b->fired == (in_time ? 0 : 1));
        b.reset();
    };
    model::thread worker([&] { fired = static_cast<int>(q.fire_due(1)); });
    {
        model::thread owner([&] {
            if (owner_comes) {
                cancel();
            }
        });
        const auto mine = static_cast<int>(q.fire_due(1));
        worker.join();
        fired = fired + mine;
    }
    if (!owner_comes) {
        cancel();
    }
    MODEL_REQUIRE(fired + (in_time ? 1 : 0) == 2);
    MODEL_REQUIRE(other.fired == 1);
    MODEL_REQUIRE(q.next_ns() == queue::never_ns);
}

// The owner of the only timer and a worker.
void fired_by_one() {
    queue q;
    auto b = std::make_unique<bell>(now);
    q.add(b->timer);
    model::thread worker([&] { q.fire_due(1); });
    const bool in_time = q.cancel(b->timer);
    MODEL_REQUIRE(b->fired == (in_time ? 0 : 1));
    b.reset();
    model::record(in_time ? "cancelled" : "fired");
}

// A firing adds its timer again while another thread cancels it. The canceller waits for the firing
// and then takes the timer out. The timer fires again only if it was cancelled before the firing.
void cancelled_while_it_returns(int firings) {
    queue q;
    var<int> fired{0};
    std::unique_ptr<model::timed> r;
    r = std::make_unique<model::timed>(now, [&] {
        fired = fired + 1;
        q.add(*r);
    });
    q.add(*r);
    model::thread worker([&q, firings] { q.fire_due(1, static_cast<unsigned>(firings)); });
    MODEL_REQUIRE(q.cancel(*r));
    model::record(std::to_string(fired));
    r.reset();
    worker.join();
    MODEL_REQUIRE(q.fire_due(1) == 0);
}

model::options at_random() { return {.how = model::options::method::pct, .runs = 10'000}; }
model::options random_or_all() { return model::brief_or_long(at_random(), {}); }

} // namespace

TEST_CASE("timer: a timer fires once or is cancelled, and may be destroyed", "[long]") {
    model::check("cancelled or fired, added before the service starts",
                 [] { cancelled_or_fired(true); });
    CHECK(model::outcomes({}, [] { cancelled_or_fired(true); }) == "cancelled fired");
    model::check("fires once", random_or_all(), fires_once);
    model::check("cancelled or fired", random_or_all(), [] { cancelled_or_fired(false); });
    model::check("the other of two fires", random_or_all(), the_other_fires);
    model::check("two cancellers", at_random(), cancelled_by_two);
    model::check("two owners", at_random(), two_owners);
}

TEST_CASE("timer: an earlier timer and a runnable wake a sleeping service", "[long]") {
    model::check("a runnable", posted);
    model::check("a runnable between timers", random_or_all(), posted_between_timers);
    model::check("an earlier timer", random_or_all(), earlier_one_is_heard);
}

TEST_CASE("timer: each posted runnable runs, even if resumers block") {
    model::check("posted twice", at_random(),
                 [] { posted_twice(watched::start().resumers, false); });
    model::check("posted by two", at_random(),
                 [] { posted_twice(watched::start().resumers, true); });
    model::check("the first blocks", at_random(),
                 [] { first_blocks(watched::start().resumers, false); });
    model::check("the first blocks, posted by two", at_random(),
                 [] { first_blocks(watched::start().resumers, true); });
    model::check("all block", at_random(), all_blocked);
    model::options late = at_random();
    late.timeouts = 2;
    model::check("the first is late", late, [] { first_is_late(watched::start().resumers); });
    model::check("a surplus one leaves", late, surplus_leaves);
    model::check("a service's first one blocks", at_random(),
                 [] { first_blocks(start_service(), true); });
}

TEST_CASE("timer: each posted runnable runs, in many more schedules", "[.long]") {
    model::options many = at_random();
    many.runs = 300'000;
    many.depth = 4;
    model::check("posted by two", many, [] { posted_twice(watched::start().resumers, true); });
    model::check("the first blocks, posted by two", many,
                 [] { first_blocks(watched::start().resumers, true); });
    model::check("all block", many, all_blocked);
    many.timeouts = 2;
    model::check("a surplus one leaves", many, surplus_leaves);
}

TEST_CASE("timer: a firing may cancel its timer and add it again") {
    model::check("cancels and adds itself", {.max_executions = 500'000}, cancels_and_adds_itself);
}

TEST_CASE("timer: the service's sleep ends when the timer is due") {
    model::check("sleeps until it is time", {.timeouts = 1, .max_executions = 500'000},
                 sleeps_until_it_is_time);
    CHECK(model::outcomes({.timeouts = 1}, sleeps_until_it_is_time) == "cancelled fired");
}

TEST_CASE("timer: a sleeping worker fires a timer that another worker added") {
    model::check("an earlier timer for a worker that sleeps for ever",
                 [] { handed_over(deadline::never(), 1); });
    model::check("an earlier timer for a worker that sleeps until later",
                 [] { handed_over(later, 1); });
    model::check("two", at_random(), [] { handed_over(later, 2); });
}

TEST_CASE("timer: fired by two workers, it fires once or is cancelled, and may be destroyed") {
    model::check("fired by one or cancelled", fired_by_one);
    CHECK(model::outcomes({}, fired_by_one) == "cancelled fired");
    model::check("fired by two", [] { fired_by_two(false); });
    model::check("fired by two or cancelled", at_random(), [] { fired_by_two(true); });
    model::check("cancelled while it returns", [] { cancelled_while_it_returns(1); });
    model::check("cancelled while it returns twice", at_random(),
                 [] { cancelled_while_it_returns(2); });
}
