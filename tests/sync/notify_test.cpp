#include "support/alloc.hpp"
#include "support/death.hpp"
#include "support/event_waits.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

#include <bide/channel/select.hpp>
#include <bide/core/choice.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/detail/notify_queue.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/notify.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>

using namespace test::event_waits;

static_assert(sizeof(bide::notify) == 16 || sizeof(void*) != 8);
static_assert(!std::is_copy_constructible_v<bide::notify>);
static_assert(!std::is_move_constructible_v<bide::notify>);
static_assert(!std::is_move_constructible_v<bide::notify::listener>);
static_assert(!std::is_move_constructible_v<bide::notify::waiter>);
static_assert(std::is_nothrow_default_constructible_v<bide::notify>);
static_assert(noexcept(std::declval<bide::notify&>().notify_one()));
static_assert(noexcept(std::declval<bide::notify&>().notify_all()));
static_assert(noexcept(std::declval<bide::notify&>().try_wait()));

namespace {

using std::chrono::steady_clock;
using counts = std::vector<int>;
using listener = bide::notify::listener;

constinit bide::notify ready_at_start;

// An event loop's wait.
class foreign {
public:
    foreign(bide::notify& of, test::journal& turns, int name)
        : of_(of), turns_(turns), name_(name), wait_(bide::waker(&on_wake, this)) {}

    bool start() noexcept { return of_.begin_wait(wait_); }
    bool cancel() noexcept { return of_.cancel_wait(wait_); }
    bool is_complete() const noexcept { return wait_.is_complete(); }

private:
    static void on_wake(void* self) noexcept {
        auto& mine = *static_cast<foreign*>(self);
        mine.turns_.add(mine.name_);
    }

    bide::notify& of_;
    test::journal& turns_;
    const int name_;
    bide::notify::waiter wait_;
};

} // namespace

// ---- The permit

TEST_CASE("notify: it can be constant-initialised") {
    CHECK_FALSE(ready_at_start.try_wait());
    ready_at_start.notify_one();
    CHECK(ready_at_start.try_wait());
}

TEST_CASE("notify: without waiters notify_one() stores one permit, notify_all() none",
          "[promise.notify-remembered]") {
    bide::notify n;
    std::stop_source stop;
    stop.request_stop();
    n.notify_all();
    CHECK_FALSE(n.try_wait());
    const auto store = [&n] {
        n.notify_one();
        n.notify_one();
    };
    store();
    n.notify_all(); // the permit stays
    CHECK(n.try_wait());
    CHECK_FALSE(n.try_wait());
    store();
    n.wait();
    CHECK_FALSE(n.wait_for(0s));
    store();
    CHECK(n.wait_for(-1h));
    store();
    CHECK(n.wait_until(steady_clock::time_point::min()));
    store();
    CHECK(n.wait(stop.get_token()));
    CHECK_FALSE(n.wait(stop.get_token()));
    store();
    test::journal turns;
    note_turn(n, turns, 1);
    CHECK(turns.entries() == counts{1});
    CHECK_FALSE(n.try_wait());
}

// ---- Order

TEST_CASE("notify: coroutines, listeners and foreign wakers are served in one order",
          "[promise.notify-remembered]") {
    bide::notify n;
    test::journal turns;
    foreign first(n, turns, 0);
    foreign third(n, turns, 2);
    foreign fifth(n, turns, 4);
    CHECK_FALSE(first.start());
    note_turn(n, turns, 1);
    CHECK_FALSE(third.start());
    std::optional<listener> fourth(std::in_place, n);
    CHECK_FALSE(fifth.start());
    for (int i = 0; i < 3; ++i) {
        CHECK(turns.size() == static_cast<std::size_t>(i));
        n.notify_one();
    }
    n.notify_one(); // for the listener
    CHECK(turns.size() == 3);
    CHECK(fourth->wait_for(0s));
    fourth.reset();
    CHECK_FALSE(fifth.is_complete());
    n.notify_one();
    CHECK(fifth.is_complete());
    CHECK(turns.entries() == counts{0, 1, 2, 4});
    CHECK_FALSE(n.try_wait());
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

// ---- Listeners

TEST_CASE("notify: a listener gets what was notified after it was enabled",
          "[promise.notify-remembered]") {
    bide::notify n;
    const bool all = GENERATE(true, false);
    const auto tell = [&] { all ? n.notify_all() : n.notify_one(); };
    listener mine(n);
    tell();
    SECTION("a thread") { mine.wait(); }
    SECTION("a thread, for a time") { CHECK(mine.wait_for(0s)); }
    SECTION("a thread, unless stopped") {
        std::stop_source stop;
        stop.request_stop();
        CHECK(mine.wait(stop.get_token()));
    }
    SECTION("a coroutine") {
        bool through = false;
        auto c = pass(mine, through);
        c.start();
        CHECK(through);
    }
    SECTION("a select") {
        bide::event never;
        auto chosen = bide::try_select(bide::on_event(never), bide::on_event(mine));
        CHECK((chosen && chosen->index() == 1));
    }
    CHECK_FALSE(mine.wait_for(0s)); // it is used up
    CHECK_FALSE(n.try_wait());
}

TEST_CASE("notify: a wait takes the place in the queue that its listener has") {
    bide::notify n;
    test::journal turns;
    foreign before(n, turns, 0);
    foreign after(n, turns, 2);
    CHECK_FALSE(before.start());
    listener mine(n);
    CHECK_FALSE(after.start());
    SECTION("of a coroutine") {
        note_turn(mine, turns, 1);
        n.notify_one();
        n.notify_one();
        CHECK(turns.entries() == counts{0, 1});
        n.notify_one();
        CHECK(turns.entries() == counts{0, 1, 2});
        CHECK_FALSE(n.try_wait());
    }
    SECTION("of a select") {
        bide::event never;
        [](bide::event& e, listener& l, test::journal& to) -> test::detached {
            const auto s = co_await bide::async_select(bide::on_event(e), bide::on_event(l));
            to.add(s.index() == 1 ? 1 : -1);
        }(never, mine, turns);
        n.notify_one();
        n.notify_one();
        CHECK(turns.entries() == counts{0, 1});
        n.notify_one();
        CHECK(turns.entries() == counts{0, 1, 2});
    }
    SECTION("of one that ends early") {
        CHECK_FALSE(mine.wait_for(1ms));
        n.notify_one();
        n.notify_one();
        CHECK(turns.entries() == counts{0, 2});
        n.notify_one(); // stored
        mine.wait();
    }
    SECTION("unless it was enabled anew") {
        CHECK_FALSE(mine.wait_for(0s));
        mine.enable();
        mine.enable();
        n.notify_one();
        n.notify_one();
        CHECK(turns.entries() == counts{0, 2});
        n.notify_one();
        CHECK_FALSE(n.try_wait());
        CHECK(mine.wait_for(0s));
    }
}

TEST_CASE("notify: a listener that ends passes on what notify_one() gave it, and no more",
          "[promise.notify-remembered]") {
    bide::notify n;
    test::journal turns;
    std::optional<listener> mine(std::in_place, n);
    foreign next(n, turns, 1);
    CHECK_FALSE(next.start());
    SECTION("nothing") {
        mine.reset();
        CHECK(turns.size() == 0);
        n.notify_one();
        CHECK(turns.size() == 1);
    }
    SECTION("to the next waiter") {
        n.notify_one();
        CHECK(turns.size() == 0);
        mine.reset();
        CHECK(turns.size() == 1);
    }
    SECTION("into the permit") {
        CHECK(next.cancel());
        n.notify_one();
        mine.reset();
        CHECK(n.try_wait());
        next.start();
        n.notify_one();
    }
    SECTION("not what notify_all() gave it") {
        n.notify_all();
        CHECK(turns.size() == 1);
        mine.reset();
    }
    CHECK_FALSE(n.try_wait());
}

TEST_CASE("notify: the wait of a cancelled task uses its listener up") {
    bide::notify n;
    std::atomic<int> step{0};
    bool stopped = false;
    bool is_stored = false;
    const auto wait_cancelled = [&]() -> bide::task<> {
        listener mine(n);
        step = 1;
        test::eventually([&] { return step == 2; });
        const auto got = co_await mine.async_wait().as_result();
        stopped = !got && got.error() == bide::errc::stopped;
        n.notify_one();
        is_stored = n.try_wait();
    };
    bide::scheduler workers({.num_workers = 1});
    auto waiting = workers.spawn(wait_cancelled());
    CHECK(test::eventually([&] { return step == 1; }));
    waiting.cancel();
    step = 2;
    std::move(waiting).join();
    CHECK(stopped);
    CHECK(is_stored);
}

TEST_CASE("notify: a listener takes a permit when it is enabled") {
    bide::notify n;
    n.notify_one();
    {
        listener mine(n);
        CHECK_FALSE(n.try_wait());
    }
    CHECK(n.try_wait());
}

// ---- Waits that end early

TEST_CASE("notify: cancel_wait() of a waiter that did not have to wait says that it is complete") {
    bide::notify n;
    test::journal turns;
    foreign w(n, turns, 0);
    n.notify_one();
    CHECK(w.start()); // takes the permit
    CHECK_FALSE(w.cancel());
    CHECK(w.is_complete());
    CHECK(turns.size() == 0);
    CHECK_FALSE(n.try_wait());
}

TEST_CASE("notify: what notify_one() gave to a coroutine that is destroyed goes to the next") {
    bide::notify n;
    test::journal turns;
    test::manual_executor later;
    bool through = false;
    const bool selects = GENERATE(false, true);
    const auto wait_in_select = [](test::manual_executor& on, bide::notify& of,
                                   bool& end) -> test::held {
        bide::event never;
        const auto s =
            co_await bide::async_select(bide::on_event(of), bide::on_event(never)).resume_on(on);
        end = s.index() == 0;
    };
    auto c = selects ? wait_in_select(later, n, through) : pass_on(later, n, through);
    c.start();
    SECTION("of one, to a waiter") {
        note_turn(n, turns, 1);
        n.notify_one();
        CHECK(turns.size() == 0);
        later.drop_all();
        c.destroy();
        CHECK(turns.size() == 1);
    }
    SECTION("of one, into the permit") {
        n.notify_one();
        later.drop_all();
        c.destroy();
        CHECK(n.try_wait());
    }
    SECTION("of all, nowhere") {
        n.notify_all();
        later.drop_all();
        c.destroy();
    }
    SECTION("before any, nothing") { c.destroy(); }
    CHECK_FALSE(n.try_wait());
    CHECK_FALSE(through);
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
    e.set();
    CHECK(chosen == 1);
    n.notify_one();
    CHECK(n.try_wait());
    e.reset();
    wait(n, e, chosen);
    n.notify_one();
    CHECK(chosen == 0);
    CHECK_FALSE(n.try_wait());
    wait(n, e, chosen = 5);
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
    queue q;
    queue::seat marked;
    q.enable(marked);
    of_all ? q.notify_all() : q.notify_one();
    bide::basic_choice<bide::native_platform> with;
    bide::basic_waiter<bide::native_platform> case_of_it;
    case_of_it.contest(with);
    REQUIRE(with.claim());
    with.commit(); // between the look at the seat and its wait, another case happens
    CHECK(q.enqueue(case_of_it, marked) == bide::wait_status::waiting);
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

// ---- Memory, the end

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

TEST_CASE("notify: destroying a foreign waiter that is queued terminates and names it") {
    const std::string said = test::dies([] {
        bide::notify n;
        test::journal turns;
        std::optional<foreign> w(std::in_place, n, turns, 0);
        w->start();
        w.reset();
    });
    CHECK(test::contains(said, "notify::waiter"));
}

#endif

TEST_CASE("notify: a listener that was let through may destroy it before the notification returns",
          "[promise.destroy-after-success]") {
    const auto make = [](void* at, int) { return ::new (at) bide::notify; };
    const auto tell = [](bide::notify& n) { n.notify_one(); };
    const auto wait = [](bide::notify& n, int) { listener(n).wait(); };
    CHECK(test::late_touches<bide::notify>(1, 2'000, make, tell, wait) == 0);
}
