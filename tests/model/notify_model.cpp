// notify: a notification lets one waiter through, or is stored, or lets all through. A listener that
// looks and waits misses none.

#include <bide/channel/select.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/notify.hpp>
#include <model/sync_support.hpp>
#include <support/coroutines.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using awake = model::platform_without_lock_sleep;
using notify = bide::basic_notify<platform>;
using queue = bide::detail::basic_notify_queue<platform>;
template <class T> using atomic = platform::atomic<T>;

constexpr auto relaxed = std::memory_order_relaxed;

bool is_through(const node& w) {
    return w.outcome() == wait_status::granted || w.outcome() == wait_status::all_let_go;
}

TEST_CASE("notify: a listener that looks and waits misses no notification") {
    const auto body = [](bool all) {
        bide::basic_notify<awake> n;
        atomic<int> ready{0};
        model::thread telling([&] {
            ready.store(1, relaxed);
            all ? n.notify_all() : n.notify_one();
        });
        bide::basic_notify<awake>::listener mine(n);
        if (ready.load(relaxed) == 0) {
            mine.wait();
            MODEL_REQUIRE(ready.load(relaxed) == 1);
        }
    };
    model::check("notify: listener against notify_one", [=] { body(false); });
    model::check("notify: listener against notify_all", [=] { body(true); });
    model::check("notify: two listeners, one notifies all", random(10'000), [] {
        bide::basic_notify<awake> n;
        awake::atomic<int> ready{0};
        const auto wait = [&] {
            bide::basic_notify<awake>::listener mine(n);
            if (ready.load(relaxed) == 0) {
                mine.wait();
            }
        };
        model::thread other(wait);
        model::thread telling([&] {
            ready.store(1, relaxed);
            n.notify_all();
        });
        wait();
    });
}

TEST_CASE("notify: two consumers that listen miss none of two producers") {
    model::check("notify: two items, each consumer takes one", random(20'000), [] {
        bide::basic_notify<awake> n;
        awake::atomic<int> items{0};
        const auto produce = [&] {
            items.fetch_add(1, relaxed);
            n.notify_one();
        };
        const auto consume = [&] {
            for (;;) {
                bide::basic_notify<awake>::listener mine(n);
                int have = items.load(relaxed);
                while (have != 0) {
                    if (items.compare_exchange_strong(have, have - 1, relaxed, relaxed)) {
                        return;
                    }
                }
                mine.wait();
            }
        };
        model::thread a(produce);
        model::thread b(produce);
        model::thread c(consume);
        consume();
        a.join();
        b.join();
        c.join();
        MODEL_REQUIRE(items.load(relaxed) == 0);
    });
}

TEST_CASE("notify: what comes before a notification comes before the waits that it lets through") {
    model::check("notify: one waits, one notifies one", {.spurious = 1, .weak_failures = 1}, [] {
        notify n;
        var<int> data{0};
        model::thread telling(model::after_writing(data, [&] { n.notify_one(); }));
        n.wait();
        MODEL_REQUIRE(data == 1);
    });
    model::check("notify: the permit of two that notify", [] {
        notify n;
        var<int> left{0};
        var<int> right{0};
        atomic<int> told{0};
        model::thread a([&] {
            left = 1;
            n.notify_one();
            told.fetch_add(1, relaxed);
        });
        model::thread b([&] {
            right = 1;
            n.notify_one();
            told.fetch_add(1, relaxed);
        });
        while (told.load(relaxed) != 2) {
            platform::pause();
        }
        n.wait();
        MODEL_REQUIRE(left == 1 && right == 1);
        MODEL_REQUIRE(!n.try_wait());
    });
    model::check("notify: one in the queue, one that comes", [] {
        queue q;
        var<int> data{0};
        queued first(q);
        model::thread second([&] {
            node mine(1);
            if (q.enqueue(mine) == wait_status::waiting) {
                mine.park(deadline::never());
            }
            MODEL_REQUIRE(data == 1);
        });
        data = 1;
        q.notify_one();
        q.notify_one();
        await(first);
        MODEL_REQUIRE(first.outcome() == wait_status::granted);
    });
}

TEST_CASE("notify: each notify_one() lets one waiter through or is stored") {
    model::check("notify: two notify, one waits, one comes", [] {
        queue q;
        queued first(q);
        model::thread other([&] { q.notify_one(); });
        q.notify_one();
        other.join();
        MODEL_REQUIRE(first.outcome() == wait_status::granted && q.try_take() && !q.try_take());
    });
    model::check("notify: one for one, and one for all", [] {
        queue q;
        queued a(q);
        queued b(q);
        model::thread all([&] { q.notify_all(); });
        q.notify_one();
        all.join();
        MODEL_REQUIRE(is_through(a) && is_through(b));
        const bool was_first = a.outcome() == wait_status::granted;
        MODEL_REQUIRE(b.outcome() == wait_status::all_let_go);
        MODEL_REQUIRE(q.try_take() == !was_first);
    });
}

TEST_CASE("notify: a waiter that is let through may destroy it") {
    const auto body = [](bool listens) {
        auto* const n = new notify;
        model::thread telling([n] { n->notify_one(); });
        if (listens) {
            notify::listener mine(*n);
            mine.wait();
        } else {
            n->wait();
        }
        delete n;
    };
    model::check("notify: destroyed by a waiter", [=] { body(false); });
    model::check("notify: destroyed by a listener", [=] { body(true); });
}

TEST_CASE("notify: a waiter that gives up takes nothing with it") {
    model::check("notify: cancel against notify_one", [] {
        queue q;
        queued a(q);
        queued b(q);
        model::thread telling([&] { q.notify_one(); });
        const bool cancelled = q.cancel(a, wait_status::stopped);
        telling.join();
        MODEL_REQUIRE(!q.try_take());
        MODEL_REQUIRE(cancelled ? b.outcome() == wait_status::granted
                                : a.outcome() == wait_status::granted && !b.is_complete());
        if (!cancelled) {
            q.notify_one();
        }
    });
    model::check("notify: time-out against notify_one", {.timeouts = 1}, [] {
        notify n;
        bool in_time = false;
        model::thread waiting([&] { in_time = n.wait_for(soon); });
        n.notify_one();
        waiting.join();
        MODEL_REQUIRE(n.try_wait() == !in_time);
    });
    model::check("notify: stopped before it is queued, or while", [] {
        queue q;
        node w(1);
        stop_at_any_time(q, w);
        q.require_no_waiters();
    });
}

TEST_CASE("notify: a listener that ends, or waits, keeps the notification in the queue") {
    model::check("notify: the end of a listener against notify_one", [] {
        queue q;
        queue::seat s;
        q.enable(s);
        queued next(q);
        model::thread telling([&] { q.notify_one(); });
        q.disable(s);
        telling.join();
        MODEL_REQUIRE(next.outcome() == wait_status::granted && !q.try_take());
    });
    model::check("notify: the wait of a listener against two that notify", [] {
        queue q;
        queue::seat s;
        node mine(1);
        q.enable(s);
        queued next(q);
        model::thread telling([&] { q.notify_one(); });
        if (q.enqueue(mine, s) == wait_status::waiting) {
            mine.park(deadline::never());
        }
        MODEL_REQUIRE(!next.is_complete());
        q.notify_one();
        telling.join();
        MODEL_REQUIRE(mine.outcome() == wait_status::granted);
        MODEL_REQUIRE(next.outcome() == wait_status::granted && !q.try_take());
    });
    model::check("notify: a stop of a listener's wait against notify_one", [] {
        queue q;
        queue::seat s;
        node mine(1);
        q.enable(s);
        model::thread telling([&] { q.notify_one(); });
        if (q.enqueue(mine, s) == wait_status::waiting && q.cancel(mine, wait_status::stopped, s)) {
            mine.settle(wait_status::stopped);
        } else {
            await(mine);
        }
        telling.join();
        MODEL_REQUIRE(!q.try_take()); // the listener has it, or the wait
        q.disable(s);
        MODEL_REQUIRE(q.try_take() == (mine.outcome() == wait_status::stopped));
    });
}

TEST_CASE("notify: a select by a listener that chooses another case keeps the notification") {
    const auto body = [](bool all) {
        model::check("notify: a notification against an event and a listener", random(20'000),
                     [all] {
                         bide::basic_notify<awake> n;
                         bide::basic_event<awake> e;
                         bide::basic_notify<awake>::listener mine(n);
                         model::thread telling([&] { all ? n.notify_all() : n.notify_one(); });
                         model::thread setting([&] { e.set(); });
                         const auto s = bide::select(bide::on_event(mine), bide::on_event(e));
                         telling.join();
                         MODEL_REQUIRE(!n.try_wait());
                         MODEL_REQUIRE(mine.wait_for(0s) == (s.index() == 1));
                         setting.join();
                     });
    };
    body(false);
    body(true);
}

test::detached first_of(bide::basic_notify<awake>& n, bide::basic_event<awake>& e, int& chosen) {
    const auto s = co_await bide::async_select(bide::on_event(n), bide::on_event(e));
    chosen = static_cast<int>(s.index());
}

TEST_CASE("notify: a select takes the notification if it chooses it, and only then") {
    model::check("notify: notify_one against an event", [] {
        bide::basic_notify<awake> n;
        bide::basic_event<awake> e;
        int chosen = -1;
        first_of(n, e, chosen);
        model::thread telling([&] { n.notify_one(); });
        e.set();
        telling.join();
        MODEL_REQUIRE(chosen == 0 || chosen == 1);
        MODEL_REQUIRE(n.try_wait() == (chosen == 1));
    });
}

void four_threads() {
    bide::basic_notify<awake> n;
    bool in_time = false;
    model::thread patient([&] { n.wait(); });
    model::thread impatient([&] { in_time = n.wait_for(soon); });
    model::thread telling([&] { n.notify_one(); });
    n.notify_one();
    telling.join();
    impatient.join();
    if (in_time) {
        n.notify_one(); // two were stored as one
    }
    patient.join();
}

TEST_CASE("notify: two wait and two notify", "[long]") {
    model::check("notify: four threads", random_or_long(10'000, {.timeouts = 1}), four_threads);
}

} // namespace
