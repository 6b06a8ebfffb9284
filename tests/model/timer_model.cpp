#include <bide/core/parker.hpp>
#include <bide/core/timer.hpp>
#include <model/check.hpp>
#include <support/catch.hpp>

#include <memory>

// The service thread: a timer fires once or is cancelled, never both; after cancel() it may be
// destroyed; one that is added reaches a service that sleeps, without any time-out's help. The
// service never ends, so its thread is a daemon, and it is never destroyed.

namespace {

using bide::deadline;
using platform = model::platform_without_lock_sleep;
using service = bide::basic_timer_service<platform>;
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
