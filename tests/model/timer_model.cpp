#include <bide/core/parker.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/timer_queue.hpp>
#include <model/check.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <memory>
#include <string>

// The timer queue and the service thread: a timer fires once or is cancelled, never both; after
// cancel() it may be destroyed; one that is added reaches who sleeps for it, without any time-out's
// help. The service never ends, so its thread is a daemon, and it is never destroyed.

namespace {

using bide::deadline;
using platform = model::platform_without_lock_sleep;
using service = bide::basic_timer_service<platform>;
using queue = bide::basic_timer_queue<platform>;
using parker = bide::basic_parker<platform>;
template <class T> using var = platform::var<T>;

// Past as soon as somebody looks; and never, but for a clock that moves.
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

// A timer that counts how often it fired, and says so.
struct bell {
    bide::timer timer;
    var<int> fired{0};
    parker* heard = nullptr;

    explicit bell(deadline when, parker* hears = nullptr) : heard(hears) {
        timer.when = when;
        timer.fire = bide::waker(
            [](void* self) noexcept {
                auto& mine = *static_cast<bell*>(self);
                parker* const p = mine.heard;
                mine.fired = mine.fired + 1;
                if (p != nullptr) {
                    p->unpark();
                }
            },
            this);
    }
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

// cancel() says whether it fired, and nothing touches it afterwards.
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

// Two who cancel the same timer; both may free what it touches.
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

// The service may sleep for the later one already: the earlier one must reach it.
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

// By the service's own sleep: its clock moves where that times out.
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

// One of two is cancelled, and the other fires.
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

// Two threads' timers, each cancelled by its owner.
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

// A firing that cancels its own timer does not wait for itself; one that adds it again is heard.
struct rearmed {
    bide::timer timer;
    service& at;
    parker p;
    var<int> fired{0};

    explicit rearmed(service& s) : at(s) {
        timer.when = now;
        timer.fire = bide::waker(
            [](void* self) noexcept {
                auto& mine = *static_cast<rearmed*>(self);
                MODEL_REQUIRE(!mine.at.cancel(mine.timer));
                mine.fired = mine.fired + 1;
                if (mine.fired == 1) {
                    mine.at.add(mine.timer);
                } else {
                    mine.p.unpark();
                }
            },
            this);
    }
};

void cancels_and_adds_itself() {
    auto& s = *new service;
    rearmed r(s);
    s.add(r.timer);
    start(s);
    r.p.park();
    MODEL_REQUIRE(!s.cancel(r.timer));
    MODEL_REQUIRE(r.fired == 2);
}

// What is posted runs there, once, and may be destroyed by what it says.
struct errand : bide::runnable {
    parker& done;
    var<int> ran{0};

    explicit errand(parker& p) : done(p) {
        run = bide::waker(
            [](void* self) noexcept {
                auto& mine = *static_cast<errand*>(self);
                parker& over = mine.done;
                mine.ran = mine.ran + 1;
                over.unpark();
            },
            this);
    }
};

void posted() {
    service& s = start_service();
    parker p;
    auto e = std::make_unique<errand>(p);
    s.post(*e);
    p.park();
    MODEL_REQUIRE(e->ran == 1);
    e.reset();
}

void posted_between_timers() {
    auto& s = *new service;
    parker p;
    bell far(later);
    auto e = std::make_unique<errand>(p);
    s.add(far.timer);
    start(s);
    s.post(*e);
    p.park();
    MODEL_REQUIRE(e->ran == 1);
    e.reset();
    MODEL_REQUIRE(s.cancel(far.timer));
}

// ---- The queue, fired by several

// A worker that fires its own queue's timers and sleeps in between, as a scheduler's do.
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
        if (next > platform::now() && timers.next_ns() >= next) { // the second look
            bed.park_until(deadline::at_ns(next));
        }
        until.store(0, std::memory_order_relaxed);
    }
};

// One worker sleeps until the earliest, or for ever; the other adds a nearer one and does not look
// again.
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

// Two workers fire a queue of two timers at once, and the owner of one cancels and destroys it.
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

// The owner of the only timer, and a worker.
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

// Its firing adds it again while another cancels it: that one waits for the firing, and takes it out
// again afterwards. It is the firing's again only if it was cancelled before.
struct returning {
    bide::timer timer;
    queue& at;
    var<int> fired{0};

    explicit returning(queue& q) : at(q) {
        timer.when = now;
        timer.fire = bide::waker(
            [](void* self) noexcept {
                auto& mine = *static_cast<returning*>(self);
                mine.fired = mine.fired + 1;
                mine.at.add(mine.timer);
            },
            this);
    }
};

void cancelled_while_it_returns(int firings) {
    queue q;
    auto r = std::make_unique<returning>(q);
    q.add(r->timer);
    model::thread worker([&q, firings] { q.fire_due(1, static_cast<unsigned>(firings)); });
    MODEL_REQUIRE(q.cancel(r->timer));
    model::record(std::to_string(r->fired));
    r.reset();
    worker.join();
    MODEL_REQUIRE(q.fire_due(1) == 0);
}

model::options at_random() {
    model::options random;
    random.how = model::options::method::pct;
    random.runs = 10'000;
    return random;
}

} // namespace

TEST_CASE("timer: one that is added fires once or is cancelled, and may be destroyed", "[timer]") {
    model::check("cancelled or fired, added before the service starts", {},
                 [] { cancelled_or_fired(true); });
    CHECK(model::outcomes({}, [] { cancelled_or_fired(true); }) == "cancelled fired");
    model::check("fires once, at random", at_random(), fires_once);
    model::check("cancelled or fired, at random", at_random(), [] { cancelled_or_fired(false); });
    model::check("two who cancel, at random", at_random(), cancelled_by_two);
    model::check("two owners, at random", at_random(), two_owners);
}

TEST_CASE("timer: one that is added fires once or is cancelled, in every execution",
          "[timer][.long]") {
    model::check("fires once", {}, fires_once);
    model::check("cancelled or fired", {}, [] { cancelled_or_fired(false); });
    model::check("the other of two fires", {}, the_other_fires);
}

TEST_CASE("timer: an earlier one and an errand reach a service that sleeps", "[timer]") {
    model::check("an errand", {}, posted);
    model::check("an errand between timers", {}, posted_between_timers);
    model::check("an earlier one, at random", at_random(), earlier_one_is_heard);
}

TEST_CASE("timer: an earlier one reaches a service that sleeps, in every execution",
          "[timer][.long]") {
    model::check("an earlier one", {}, earlier_one_is_heard);
}

TEST_CASE("timer: it may be cancelled and added again by its own firing", "[timer]") {
    model::check("cancels and adds itself", {.max_executions = 500'000}, cancels_and_adds_itself);
}

TEST_CASE("timer: the service's sleep ends when it is time", "[timer]") {
    model::check("sleeps until it is time", {.timeouts = 1, .max_executions = 500'000},
                 sleeps_until_it_is_time);
    CHECK(model::outcomes({.timeouts = 1}, sleeps_until_it_is_time) == "cancelled fired");
}

TEST_CASE("timer: a worker that sleeps fires what another one added", "[timer]") {
    model::check("hand-over to one who sleeps for ever", {},
                 [] { handed_over(deadline::never(), 1); });
    model::check("hand-over to one who sleeps until later", {}, [] { handed_over(later, 1); });
    model::check("two, at random", at_random(), [] { handed_over(later, 2); });
}

TEST_CASE("timer: fired by workers, it fires once or is cancelled, and may be destroyed",
          "[timer]") {
    model::check("fired by one or cancelled", {}, fired_by_one);
    CHECK(model::outcomes({}, fired_by_one) == "cancelled fired");
    model::check("fired by two", {}, [] { fired_by_two(false); });
    model::check("fired by two or cancelled, at random", at_random(), [] { fired_by_two(true); });
    model::check("cancelled while it returns", {}, [] { cancelled_while_it_returns(1); });
    model::check("cancelled while it returns twice, at random", at_random(),
                 [] { cancelled_while_it_returns(2); });
}
