#include "support/alloc.hpp"
#include "support/death.hpp"
#include "support/event_waits.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"
#include <bide/core/callback_wait.hpp>

#include <bide/channel/select.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/notify.hpp>

using namespace test::event_waits;

static_assert(sizeof(bide::notify) == 16 || sizeof(void*) != 8);
static_assert(!std::is_copy_constructible_v<bide::notify>);
static_assert(!std::is_move_constructible_v<bide::notify>);
static_assert(!std::is_move_constructible_v<bide::notify::listener>);
static_assert(std::is_nothrow_default_constructible_v<bide::notify>);
static_assert(noexcept(std::declval<bide::notify&>().notify_one()));
static_assert(noexcept(std::declval<bide::notify&>().notify_all()));
static_assert(noexcept(std::declval<bide::notify&>().try_wait()));

namespace {

using counts = std::vector<int>;
using listener = bide::notify::listener;

constinit bide::notify ready_at_start;

// An event loop's wait.
class foreign {
public:
    foreign(bide::notify& of, test::journal& turns, int name)
        : of_(of), turns_(turns), name_(name), wait_(bide::waker(&on_wake, this)) {}

    ~foreign() {
        if (wait_.is_complete()) { // otherwise the notification would be passed on
            static_cast<void>(wait_.take());
        }
    }
    foreign(const foreign&) = delete;
    foreign& operator=(const foreign&) = delete;

    bool start() noexcept { return wait_.begin(of_.async_wait()); }
    bool cancel() noexcept { return wait_.cancel(); }
    bool is_complete() const noexcept { return wait_.is_complete(); }

private:
    static void on_wake(void* self) noexcept {
        auto& mine = *static_cast<foreign*>(self);
        mine.turns_.add(mine.name_);
    }

    bide::notify& of_;
    test::journal& turns_;
    const int name_;
    bide::callback_wait<void> wait_;
};

// What a notify has to do: its waiters, in order, and what each was given.
struct model {
    enum gift { nothing, one, all };
    std::deque<int> queue;
    std::map<int, gift> gifts;
    bool permit = false;

    bool waits(int who) const { return std::ranges::find(queue, who) != queue.end(); }
    bool has(int who) { return gifts[who] != nothing; }
    bool take() { return std::exchange(permit, false); }
    void notify(gift what) {
        permit = permit || (queue.empty() && what == one);
        for (bool more = !queue.empty(); more; more = what == all && !queue.empty()) {
            gifts[queue.front()] = what;
            queue.pop_front();
        }
    }
    void come(int who) {
        if (take()) {
            gifts[who] = one;
        } else {
            queue.push_back(who);
        }
    }
    // Takes the place of `other`, or what it was given.
    void replace(int other, int who) {
        if (waits(other)) {
            *std::ranges::find(queue, other) = who;
        } else if (has(other)) {
            gifts[who] = std::exchange(gifts[other], nothing);
        } else {
            come(who);
        }
    }
    // Gives up, and passes on what notify_one() gave it.
    void leave(int who) {
        std::erase(queue, who);
        if (std::exchange(gifts[who], nothing) == one) {
            notify(one);
        }
    }
};

template <class Event>
test::held pass_select(test::manual_executor& on, Event& e, bide::event& other, bool& through) {
    const auto s =
        co_await bide::async_select(bide::on_event(other), bide::on_event(e)).resume_on(on);
    through = s.index() == 1;
}

// A wait of a coroutine or of an event loop.
struct visitor {
    test::manual_executor later;
    bide::event other; // a select waits for it, too
    int by = -1;       // the listener that it waits by
    bool lent = false; // it stands in the place of that listener
    bool through = false;
    std::optional<foreign> loop;
    std::optional<test::held> coroutine;

    template <class Event> void begin(Event& e, bool selects) {
        coroutine.emplace(selects ? pass_select(later, e, other, through)
                                  : pass_on(later, e, through));
        coroutine->start();
    }
    bool is_let_through() const {
        return loop ? loop->is_complete() : through || later.size() != 0;
    }
};

// Random operations of one thread on a notify, and on its model.
class game {
public:
    game() { stop_.request_stop(); }

    void play(int steps) {
        for (int step = 0; step < steps; ++step) {
            CAPTURE(step);
            const int what = roll(9);
            if (what < 2) {
                n_.notify_one();
                m_.notify(model::one);
            } else if (what == 2 && roll(4) == 0) {
                n_.notify_all();
                m_.notify(model::all);
            } else if (what == 3) {
                REQUIRE(n_.try_wait() == m_.take());
            } else {
                what < 6 ? listen(roll(listeners)) : visit(roll(visitors));
            }
            for (int i = 0; i < visitors; ++i) {
                REQUIRE((visits_[i] && visits_[i]->is_let_through()) == m_.has(name(i)));
            }
        }
        for (int i = 0; i < visitors; ++i) {
            give_up(i);
        }
        for (int i = 0; i < listeners; ++i) {
            listeners_[i].reset();
            m_.leave(i);
        }
        CHECK(n_.try_wait() == m_.take());
    }

private:
    static constexpr int listeners = 2;
    static constexpr int visitors = 4;

    int roll(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
    static int name(int visitor) { return listeners + visitor; } // in the model
    bool is_busy(int who) const {
        return std::ranges::any_of(visits_, [who](auto& v) { return v && v->by == who; });
    }

    void listen(int who) {
        std::optional<listener>& l = listeners_[who];
        const int how = roll(7);
        if (is_busy(who)) {
            return;
        }
        const bool is_enabled = m_.waits(who) || m_.has(who);
        if (!l) {
            l.emplace(n_);
            m_.come(who);
        } else if (how == 0) {
            l.reset();
            m_.leave(who);
        } else if (how == 1) {
            l->enable();
            if (!is_enabled) {
                m_.come(who);
            }
        } else {
            const bool gets = is_enabled ? m_.has(who) : m_.take();
            m_.gifts[who] = model::nothing;
            if (how == 2) {
                const auto chosen = bide::try_select(bide::on_event(never_), bide::on_event(*l));
                REQUIRE((chosen && chosen->index() == 1) == gets);
            } else if (how == 3 && gets) {
                l->wait();
            } else if (how < 5) {
                REQUIRE(l->wait_for(how == 3 ? 0ns : 1us) == gets);
            } else {
                REQUIRE(l->wait(stop_.get_token()).has_value() == gets);
            }
        }
    }

    void visit(int who) {
        std::optional<visitor>& v = visits_[who];
        if (!v) {
            arrive(name(who), v.emplace());
        } else if (roll(2) == 0) {
            give_up(who);
        } else if (v->is_let_through()) {
            v->later.run_all();
            CHECK((v->loop || v->through));
            m_.gifts[name(who)] = model::nothing;
            v.reset();
        }
    }
    void arrive(int who, visitor& v) {
        const int by = roll(listeners);
        const bool selects = roll(2) == 0;
        if (listeners_[by] && !is_busy(by)) {
            v.by = by;
            v.lent = m_.waits(by);
            v.begin(*listeners_[by], selects);
            m_.replace(by, who);
        } else if (roll(2) == 0) {
            v.begin(n_, selects);
            m_.come(who);
        } else {
            v.loop.emplace(n_, turns_, who);
            CHECK(v.loop->start() == m_.permit);
            m_.come(who);
        }
    }
    void give_up(int i) {
        std::optional<visitor>& v = visits_[i];
        if (v && v->loop) {
            CHECK(v->loop->cancel() == m_.waits(name(i)));
        } else if (v && m_.waits(name(i)) && roll(2) == 0) {
            v->other.set(); // the select has another result
            v->later.run_all();
            CHECK_FALSE(v->through);
        }
        if (v && (v->loop || v->through)) { // it has had what it was given
            m_.gifts[name(i)] = model::nothing;
        }
        if (v && v->lent && m_.waits(name(i))) {
            m_.replace(name(i), v->by);
        }
        v.reset();
        m_.leave(name(i));
    }

    std::mt19937 random_{test::run_seed()};
    std::stop_source stop_; // requested
    bide::event never_;
    bide::notify n_;
    model m_;
    std::optional<listener> listeners_[listeners];
    test::journal turns_;
    std::optional<visitor> visits_[visitors];
};

} // namespace

TEST_CASE("notify: it can be constant-initialised") {
    CHECK_FALSE(ready_at_start.try_wait());
    ready_at_start.notify_one();
    CHECK(ready_at_start.try_wait());
}

TEST_CASE("notify: notify_all() lets every present waiter through, of every kind") {
    using platform = test::observing<test::native>;
    bide::basic_notify<platform> n;
    std::stop_source never;
    test::journal turns;
    std::atomic<what> ends[2] = {};
    bool good[4] = {};
    note_turn(n, turns, 0);
    test::team threads(4, [&](int i) {
        switch (i) {
        case 0: n.wait(), good[i] = true; break;
        case 1: good[i] = n.wait_for(1h); break;
        case 2: good[i] = n.wait(never.get_token()).has_value(); break;
        default: {
            typename bide::basic_notify<platform>::listener mine(n);
            mine.wait();
            good[i] = true;
        }
        }
    });
    REQUIRE(test::are_asleep<test::native>(4));
    note_stopped(n, never.get_token(), ends[0]);
    note_late(n, 1h, ends[1]);
    note_turn(n, turns, 1);
    n.notify_all();
    CHECK(turns.entries() == counts{0, 1});
    CHECK(ends[0] == what::through);
    CHECK(ends[1] == what::through);
    threads.join();
    for (const bool g : good) {
        CHECK(g);
    }
    CHECK_FALSE(n.try_wait()); // nothing is stored
    CHECK_FALSE(n.wait_for(0s));
}

TEST_CASE("notify: waiters of each kind get, keep and pass on what a queue with one permit gives",
          "[promise.notify-remembered]") {
    game().play(4'000);
}

TEST_CASE("notify: the wait of a cancelled task leaves its listener enabled") {
    bide::notify n;
    std::atomic<int> step{0};
    bool stopped = false;
    bool is_let_through = false;
    const auto wait_cancelled = [&]() -> bide::task<> {
        listener mine(n);
        step = 1;
        test::eventually([&] { return step == 2; });
        const auto got = co_await mine.async_wait().as_result();
        stopped = !got && got.error() == bide::errc::stopped;
        n.notify_one();
        is_let_through = !n.try_wait() && mine.wait_for(0s);
    };
    bide::scheduler workers({.num_workers = 1});
    auto waiting = workers.spawn(wait_cancelled());
    CHECK(test::eventually([&] { return step == 1; }));
    waiting.cancel();
    step = 2;
    std::move(waiting).join();
    CHECK(stopped);
    CHECK(is_let_through);
}

TEST_CASE("notify: a select that happens otherwise takes no notification") {
    bide::notify n;
    bide::event e;
    int chosen = -1;
    const auto wait = [](bide::notify& of, bide::event& other, int& index) -> test::detached {
        const auto s = co_await bide::async_select(bide::on_event(of), bide::on_event(other));
        index = static_cast<int>(s.index());
    };
    wait(n, e, chosen);
    n.notify_all();
    CHECK(chosen == 0);
    auto now =
        bide::try_select(bide::on_event(n), bide::on_event(static_cast<bide::event*>(nullptr)));
    CHECK_FALSE(now.has_value());
    n.notify_one();
    CHECK(bide::select(bide::on_event(n), bide::on_event(e)).index() == 0);
    std::atomic<int> first{-1};
    test::team thread(1, [&](int) {
        listener mine(n);
        first = static_cast<int>(bide::select(bide::on_event(e), bide::on_event(mine)).index());
    });
    while (first < 0) {
        n.notify_all();
        std::this_thread::yield();
    }
    CHECK(first == 1);
}

TEST_CASE("notify: a seat whose choice selects another wait keeps its mark, and passes it on") {
    using queue = bide::detail::basic_notify_queue<bide::native_platform>;
    const bool of_all = GENERATE(false, true);
    const bool is_queued = GENERATE(false, true);
    queue q;
    queue::seat marked;
    q.enable(marked);
    bide::basic_choice<bide::native_platform> with;
    bide::basic_waiter<bide::native_platform> case_of_it;
    case_of_it.contest(with);
    if (is_queued) {
        CHECK(q.enqueue(case_of_it, marked) == bide::wait_status::waiting);
    } else {
        of_all ? q.notify_all() : q.notify_one();
    }
    REQUIRE(with.claim());
    with.commit(); // between the look at the seat and its wait, or during the wait, another case happens
    if (is_queued) {
        of_all ? q.notify_all() : q.notify_one();
        CHECK_FALSE(q.cancel(case_of_it, bide::wait_status::stopped, marked));
    } else {
        CHECK(q.enqueue(case_of_it, marked) == bide::wait_status::waiting);
    }
    SECTION("to the permit") {
        q.disable(marked);
        CHECK(q.try_take() == !of_all);
    }
    SECTION("or to its own next wait") {
        CHECK(q.take(marked) ==
              (of_all ? bide::wait_status::all_let_go : bide::wait_status::granted));
        q.disable(marked);
    }
    CHECK_FALSE(q.try_take());
    q.require_no_waiters();
}

TEST_CASE("notify: no wait of a listener allocates", "[promise.no-wait-allocates]") {
    bide::notify n;
    const std::size_t before = test::allocations_here();
    listener mine(n);
    n.notify_all();
    mine.wait();
    mine.enable();
    const bool notified = mine.wait_for(1us);
    const std::size_t made = test::allocations_here() - before;
    CHECK_FALSE(notified);
    CHECK(made == 0);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE(
    "notify: destroying it while there are waiters terminates with its name and their number") {
    const std::string said = test::dies([] {
        bool through = false;
        std::optional<bide::notify> n(std::in_place);
        auto first = pass(*n, through);
        first.start();
        listener second(*n);
        n.reset();
    });
    CHECK(test::contains(said, "notify"));
    CHECK(test::contains(said, "2 waiting"));
}

#endif

TEST_CASE("notify: a listener that was let through may destroy it before the notification returns",
          "[promise.destroy-after-success]") {
    const auto make = [](void* at, int) { return ::new (at) bide::notify; };
    const auto tell = [](bide::notify& n) { n.notify_one(); };
    const auto wait = [](bide::notify& n, int) { listener(n).wait(); };
    CHECK(test::late_touches<bide::notify>(1, 2'000, make, tell, wait) == 0);
}
