// adaptive_mutex: one owner at a time. The head of the queue is overtaken a bounded number of times
// and never forgotten.

#include <bide/channel/select.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/event.hpp>
#include <model/sync_support.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using mutex = bide::basic_adaptive_mutex<platform>;
using adaptive_lock = bide::detail::basic_adaptive_lock<platform>;

constexpr int most_overtakes = adaptive_lock::max_overtakes;

// The body has it.
struct held_lock : adaptive_lock {
    held_lock() { MODEL_REQUIRE(take_free()); }
};

// An unlock by another owner, which has the mutex when this is called.
bide::waker increments(var<int>& data) {
    return {[](void* of) noexcept { increment(*static_cast<var<int>*>(of)); }, &data};
}

// Until its owner sleeps, or need not.
void until_asleep(const auto& w) {
    while (w.where()->load(std::memory_order_relaxed) == wait_status::waiting) {
        platform::pause();
    }
}

TEST_CASE("adaptive_mutex: two threads are never inside together") {
    const auto twice = &two_lock_it<mutex>;
    model::check("adaptive_mutex: two threads", twice);
    model::check("adaptive_mutex: two threads, woken for no reason", {.spurious = 1}, twice);
    model::check("adaptive_mutex: two that try", &two_try_it<mutex>);
    model::check("adaptive_mutex: one that tries, one that locks", {.weak_failures = 1},
                 &one_tries_one_locks_it<mutex>);
    model::check("adaptive_mutex: destroyed by the last of two",
                 [] { last_one_destroys_it<mutex>(2); });
}

enum class unlocks { at_once, once_it_sleeps };

// One holds the mutex, one waits. The holder unlocks and comes again, `rounds` times.
void overtaken(int rounds, unlocks when) {
    held_lock l;
    var<int> data{0};
    queued head(l);
    model::thread waiting([&] {
        l.await(head, deadline::never());
        increment(data);
    });
    for (int i = 0; i <= rounds; ++i) {
        if (when == unlocks::once_it_sleeps) {
            until_asleep(head);
        }
        increment(data);
        l.unlock(&l);
        if (i == rounds || !l.try_take()) {
            return;
        }
    }
}

// As above, as long as the head lets it, which is counted. A thread that is served says so while it
// has the mutex.
template <class Platform = platform>
void overtaken_too_often(unlocks when, int most = most_overtakes) {
    bide::detail::basic_adaptive_lock<Platform> l;
    var<bool> served{false};
    bide::basic_waiter<Platform> head(1);
    l.take_free();
    l.enqueue(head);
    model::thread waiting([&] {
        l.await(head, deadline::never());
        served = true;
        l.unlock(&l);
    });
    for (int overtakes = 0; !served; ++overtakes) {
        MODEL_REQUIRE(overtakes <= most);
        if (when == unlocks::once_it_sleeps) {
            until_asleep(head);
        }
        l.unlock(&l);
        if (!l.try_take()) {
            return;
        }
    }
    l.unlock(&l);
}

TEST_CASE("adaptive_mutex: the head of the queue is not forgotten") {
    model::check("adaptive_mutex: one waits, one unlocks", {.spurious = 1},
                 [] { overtaken(0, unlocks::at_once); });
    model::check("adaptive_mutex: one waits, one unlocks and overtakes", random(10'000),
                 [] { overtaken(1, unlocks::once_it_sleeps); });
    model::check("adaptive_mutex: two in the queue", [] {
        held_lock l;
        var<int> data{0};
        queued first(l);
        queued second(l);
        model::thread waiting([&] {
            l.await(first, deadline::never());
            increment(data);
            l.unlock(&l);
        });
        increment(data);
        l.unlock(&l);
        await(second);
        increment(data);
        waiting.join();
    });
}

TEST_CASE("adaptive_mutex: the head of the queue is overtaken only so often") {
    static_assert(most_overtakes <= 4, "few enough to be counted by a model");
    model::check("adaptive_mutex: two overtake a head that is late", [] {
        adaptive_lock l;
        var<int> unlocks{0}; // before the head had it
        const bool second = model::choose(2) == 1;
        node first(1, {[](void*) noexcept {}, nullptr}); // handed over at once
        node head(1);
        node behind(1);
        l.take_free();
        if (second) {
            l.enqueue(first);
        }
        l.enqueue(head);
        l.enqueue(behind);
        head.sleep(deadline::at_ns(0)); // asks to be woken, and does not come
        if (second) {
            l.unlock(&l);
        }
        const auto overtake = [&] {
            if (l.try_take()) {
                increment(unlocks);
                MODEL_REQUIRE(unlocks <= most_overtakes + 1);
                l.unlock(&l);
            }
        };
        increment(unlocks);
        l.unlock(&l);
        model::thread other([&] {
            overtake();
            stop(l, behind); // a waiter that leaves from behind the head changes nothing
            overtake();
        });
        for (int i = 0; i < most_overtakes; ++i) {
            overtake();
        }
        other.join();
        while (head.outcome() != wait_status::granted) {
            overtake();
        }
        // The last one hands over, and not before.
        MODEL_REQUIRE(head.outcome() == wait_status::granted && unlocks == most_overtakes + 1);
    });
    model::check("adaptive_mutex: overtakes of one head", random(10'000),
                 [] { overtaken_too_often(unlocks::once_it_sleeps); });
    model::check("adaptive_mutex: overtakes of one head at any moment", random(10'000),
                 [] { overtaken_too_often(unlocks::at_once); });
}

TEST_CASE("adaptive_mutex: the head of the queue is overtaken only so often, at any moment",
          "[.long]") {
    model::check("adaptive_mutex: one overtakes at any moment",
                 [] { overtaken(1, unlocks::at_once); });
    model::check("adaptive_mutex: one overtakes as often as it can", bounded(1),
                 [] { overtaken_too_often(unlocks::at_once); });
}

// Each look at the clock is a millisecond after the one before.
struct late_platform : platform {
    struct clock {
        std::int64_t ns = 0;
    };
    static std::int64_t now() noexcept { return local<clock>().ns += 1'000'000; }
};

TEST_CASE("adaptive_mutex: a head that is overtaken for max_overtake_time is handed it") {
    REQUIRE(most_overtakes > 2); // or it is handed the mutex anyway
    // The first wake begins its max_overtake_time; at the second wake it is over.
    model::check("adaptive_mutex: overtaken twice is enough", random(10'000),
                 [] { overtaken_too_often<late_platform>(unlocks::once_it_sleeps, 2); });
}

TEST_CASE("adaptive_mutex: a foreign waker is handed the mutex") {
    model::check("adaptive_mutex: a waker and a thread that tries", [] {
        adaptive_lock l;
        struct owner {
            adaptive_lock& mine;
            var<int> data{0};
        } o{l};
        node w(1, {[](void* self) noexcept {
                       auto& my = *static_cast<owner*>(self);
                       increment(my.data);
                       my.mine.unlock(self);
                   },
                   &o});
        l.take_free();
        l.enqueue(w);
        model::thread other([&] {
            if (l.try_take()) {
                MODEL_REQUIRE(o.data == 2); // never between the holder and the waker
                l.unlock(&l);
            }
        });
        increment(o.data);
        l.unlock(&l);
        other.join();
        MODEL_REQUIRE(o.data == 2 && l.take_free());
    });
    model::check("adaptive_mutex: a waker that is queued while it is unlocked", [] {
        held_lock l;
        var<int> data{0};
        node w(1);
        model::thread waiting([&] {
            if (l.enqueue(w) == wait_status::waiting) {
                await(w);
            }
            increment(data);
            l.unlock(&l);
        });
        increment(data);
        l.unlock(&l);
    });
}

// Woken, perhaps overtaken, and out of time.
void head_times_out() {
    held_lock l;
    var<int> data{0};
    queued head(l);
    queued next(l, 1, increments(data));
    model::thread waiting([&] {
        if (l.await(head, deadline::at_ns(1)) || !l.cancel(head, wait_status::timed_out)) {
            await(head);
            increment(data);
            l.unlock(&l);
        }
    });
    until_asleep(head);
    increment(data);
    l.unlock(&l);
    if (model::choose(2) == 1 && l.try_take()) {
        increment(data);
        l.unlock(&l);
    }
    await(next);
    waiting.join();
    MODEL_REQUIRE(data >= 2);
}

TEST_CASE("adaptive_mutex: a head that gives up passes the mutex on", "[long]") {
    model::check("adaptive_mutex: time-out of a head that was woken",
                 random_or_long(10'000, {.timeouts = 1}), head_times_out);
    model::check("adaptive_mutex: stop of a head that was woken", [] {
        held_lock l;
        var<int> data{0};
        queued head(l);
        queued next(l, 1, increments(data));
        head.sleep(deadline::at_ns(0)); // asks to be woken
        l.unlock(&l);                   // wakes it: the mutex floats
        model::thread stopping([&] { stop(l, head); });
        if (l.try_take()) {
            increment(data);
            l.unlock(&l);
        }
        await(next);
        stopping.join();
        MODEL_REQUIRE(head.outcome() == wait_status::stopped);
    });
    model::check("adaptive_mutex: time-out of the only one", {.timeouts = 1},
                 &one_times_out_or_locks_it<mutex>);
}

TEST_CASE("adaptive_mutex: a stop and an unlock that come together leave it to one") {
    model::check("adaptive_mutex: stop against unlock", [] {
        held_lock l;
        var<int> data{0};
        queued w(l);
        model::thread stopping([&] { stop(l, w); });
        increment(data);
        l.unlock(&l);
        stopping.join();
        MODEL_REQUIRE(w.is_complete());
        MODEL_REQUIRE(l.take_free() == (w.outcome() == wait_status::stopped));
    });
    model::check("adaptive_mutex: stop of a waiter that takes it", [] {
        held_lock l;
        var<int> data{0};
        queued w(l);
        model::thread waiting([&] {
            l.await(w, deadline::never());
            if (w.outcome() == wait_status::granted || l.try_take()) {
                MODEL_REQUIRE(data == 1);
                l.unlock(&l);
            }
        });
        until_asleep(w);
        data = 1;
        l.unlock(&l);
        stop(l, w);
        waiting.join();
        MODEL_REQUIRE(l.take_free());
    });
    model::check("adaptive_mutex: one stops, the other unlocks and locks", [] {
        held_lock l;
        var<int> data{0};
        queued w(l);
        model::thread unlocking(model::after_writing(data, [&] { l.unlock(&l); }));
        stop(l, w);
        while (w.outcome() != wait_status::granted && !l.try_take()) {
            platform::pause();
        }
        MODEL_REQUIRE(data == 1);
    });
    model::check("adaptive_mutex: stopped before it is queued, or while", [] {
        held_lock l;
        node w(1);
        model::thread stopping([&] { stop(l, w); });
        if (l.enqueue(w) == wait_status::waiting) {
            l.await(w, deadline::never());
        }
        stopping.join();
        MODEL_REQUIRE(w.outcome() == wait_status::stopped);
        l.unlock(&l);
        MODEL_REQUIRE(l.take_free());
    });
    model::check("adaptive_mutex: one behind the head is stopped", [] {
        held_lock l;
        var<int> data{0};
        queued first(l);
        queued second(l);
        model::thread stopping([&] { stop(l, second); });
        increment(data);
        l.unlock(&l);
        await(first);
        increment(data);
        l.unlock(&l);
        await(second);
        stopping.join();
        if (second.outcome() == wait_status::granted) {
            l.unlock(&l);
        }
        MODEL_REQUIRE(l.take_free());
    });
}

using awake = model::platform_without_lock_sleep;
using awake_mutex = bide::basic_adaptive_mutex<awake>;
using awake_lock = bide::detail::basic_adaptive_lock<awake>;
using awake_node = bide::basic_waiter<awake>;

// A node that hangs on a choice that the body decides.
struct choice_of_nodes : bide::basic_choice<awake> {
    void add(awake_node& one) noexcept {
        one.contest([](void*) noexcept {}, *this);
    }
    void decide() {
        MODEL_REQUIRE(claim());
        commit();
    }
};

// A lock, or the event that another thread sets. The lock is queued before it is unlocked, or meanwhile.
void lock_or_event(bool comes_late) {
    awake_lock l;
    bide::detail::basic_gate<awake> g(1);
    choice_of_nodes choice;
    awake_node lock(1);
    awake_node event(1);
    choice.add(lock);
    choice.add(event);
    l.take_free();
    g.enqueue(event);
    if (!comes_late) {
        l.enqueue(lock);
    }
    model::thread setting([&] { g.arrive(1); });
    model::thread unlocking([&] { l.unlock(&l); });
    if (comes_late) {
        l.enqueue(lock);
    }
    setting.join();
    unlocking.join();
    MODEL_REQUIRE(comes_late || choice.is_decided());
    MODEL_REQUIRE(lock.is_complete() != event.is_complete());
    if (comes_late && event.is_complete()) {
        l.cancel(lock, wait_status::stopped);
    }
    MODEL_REQUIRE(l.take_free() == event.is_complete());
}

// A lock that is held, with a node of a choice at the head of its queue and another one behind it.
struct case_at_the_head {
    case_at_the_head() {
        choice.add(head);
        l.take_free();
        l.enqueue(head);
        l.enqueue(next);
    }
    awake_lock l;
    choice_of_nodes choice;
    awake_node head{1};
    awake_node next{1};
};

TEST_CASE("adaptive_mutex: of a lock and an event in one select exactly one happens") {
    model::check("adaptive_mutex: select against unlock and set, two threads", [] {
        awake_mutex m;
        bide::basic_event<awake> e;
        var<int> data{0};
        m.lock();
        model::thread other([&] {
            data = 1;
            e.set();
            m.unlock();
        });
        {
            const auto chosen = bide::select(bide::on_lock(m), bide::on_event(e));
            MODEL_REQUIRE(data == 1);
            MODEL_REQUIRE(chosen.index() == 1 || !m.try_lock());
        }
        other.join();
        MODEL_REQUIRE(m.try_lock());
    });
    model::check("adaptive_mutex: a case against unlock and set, three threads",
                 [] { lock_or_event(false); });
    model::check("adaptive_mutex: a case that comes while it is unlocked, and an event",
                 [] { lock_or_event(true); });
}

TEST_CASE("adaptive_mutex: a case that lost, at the head, keeps it from no waiter behind") {
    model::check("adaptive_mutex: a lost head, one behind it that sleeps or does not", [] {
        case_at_the_head s;
        s.choice.decide();
        model::thread waiting([&] {
            s.l.await(s.next, deadline::never());
            s.l.unlock(&s.l);
        });
        const bool stays = model::choose(2) == 1;
        MODEL_REQUIRE(stays || s.l.cancel(s.head, wait_status::stopped));
        s.l.unlock(&s.l);
        waiting.join();
        MODEL_REQUIRE(!s.head.is_complete() && s.l.take_free());
    });
    model::check("adaptive_mutex: a lost head leaves while it is unlocked", [] {
        case_at_the_head s;
        model::thread deciding([&] {
            if (s.choice.claim()) {
                s.choice.commit();
                s.l.cancel(s.head, wait_status::stopped);
            }
        });
        s.l.unlock(&s.l);
        deciding.join();
        if (s.head.is_complete()) {
            s.l.unlock(&s.l);
        }
        await(s.next);
        MODEL_REQUIRE(!s.l.try_take());
    });
    model::check("adaptive_mutex: one that floats is granted past a lost case", [] {
        awake_lock l;
        choice_of_nodes choice;
        awake_node head(1);
        awake_node lost(1);
        awake_node last(1);
        choice.add(lost);
        const bool has_last = model::choose(2) == 1;
        l.take_free();
        l.enqueue(head);
        l.enqueue(lost);
        if (has_last) {
            l.enqueue(last);
        }
        head.sleep(deadline::at_ns(0)); // asks to be woken
        l.unlock(&l);                   // wakes it: the mutex floats
        choice.decide();
        model::thread stopping([&] {
            if (l.cancel(head, wait_status::stopped)) {
                head.publish(wait_status::stopped);
            }
        });
        l.cancel(lost, wait_status::stopped);
        stopping.join();
        MODEL_REQUIRE(head.outcome() == wait_status::stopped && !lost.is_complete());
        MODEL_REQUIRE(last.is_complete() == has_last && l.try_take() != has_last);
    });
}

// ---- A coroutine that an unlock may resume to try

// The wait of such a coroutine, which was queued before. A thread plays its executor.
struct coroutine : node {
    explicit coroutine(adaptive_lock& in) : node(adaptive_lock::can_retry, ignored()) {
        in.enqueue(*this);
    }
    // What coroutine_locking does after each wakeup, until the coroutine has the mutex.
    void lock(adaptive_lock& l) {
        for (;;) {
            await(*this);
            if (l.take_resumed(true)) {
                return;
            }
            reset(adaptive_lock::can_retry);
            if (l.link(*this, true) != wait_status::waiting) {
                return;
            }
        }
    }
    static bide::waker ignored() {
        return {[](void*) noexcept {}, nullptr};
    }
};

// One holds the mutex, one coroutine or two wait, and others overtake.
void coroutines_against(int overtakers, bool two) {
    held_lock l;
    var<int> data{0};
    coroutine first(l);
    std::optional<coroutine> second;
    if (two) {
        second.emplace(l);
    }
    const auto section = [&] {
        increment(data);
        l.unlock(&l);
    };
    const auto overtake = [&] {
        const bool mine = l.try_take();
        if (mine) {
            section();
        }
        return mine ? 1 : 0;
    };
    int here = two ? 3 : 2;
    int there = 0;
    model::thread resumed([&] {
        first.lock(l);
        section();
    });
    std::optional<model::thread> other;
    if (overtakers == 2) {
        other.emplace([&] { there = overtake(); });
    }
    section();
    here += overtake();
    if (two) {
        second->lock(l);
        section();
    }
    resumed.join();
    other.reset();
    MODEL_REQUIRE(data == here + there && l.take_free());
}

TEST_CASE("adaptive_mutex: a coroutine that is resumed to try is not forgotten") {
    model::check("adaptive_mutex: a coroutine and one that overtakes",
                 [] { coroutines_against(1, false); });
    model::check("adaptive_mutex: two coroutines and one that overtakes", random_or_long(10'000),
                 [] { coroutines_against(1, true); });
    model::check("adaptive_mutex: a coroutine and two that overtake", random_or_long(10'000),
                 [] { coroutines_against(2, false); });
    model::check("adaptive_mutex: a coroutine, a thread that waits behind it", [] {
        held_lock l;
        var<int> data{0};
        coroutine first(l);
        queued second(l);
        model::thread waiting([&] {
            l.await(second, deadline::never());
            increment(data);
            l.unlock(&l);
        });
        increment(data);
        l.unlock(&l);
        first.lock(l);
        increment(data);
        l.unlock(&l);
        waiting.join();
        MODEL_REQUIRE(data == 3 && l.take_free());
    });
}

TEST_CASE("adaptive_mutex: a coroutine is overtaken until it runs, and only so often") {
    model::check("adaptive_mutex: a coroutine that is late", [] {
        held_lock l;
        coroutine late(l);
        l.unlock(&l); // resumes it
        MODEL_REQUIRE(late.is_complete() && l.try_take());
        var<int> overtakes{1};
        queued behind(l, 1, coroutine::ignored());
        l.unlock(&l);
        const auto overtake = [&] {
            while (l.try_take()) {
                increment(overtakes);
                l.unlock(&l);
            }
        };
        model::thread other(overtake);
        overtake();
        other.join();
        overtake();
        MODEL_REQUIRE(overtakes == most_overtakes); // now it is kept for the coroutine
        MODEL_REQUIRE(!behind.is_complete() && l.take_resumed(true));
        l.unlock(&l);
        MODEL_REQUIRE(behind.is_granted() && !l.try_take());
    });
    model::check("adaptive_mutex: a coroutine that has failed is handed it", [] {
        held_lock l;
        coroutine w(l);
        l.unlock(&l);
        MODEL_REQUIRE(l.try_take() && !l.take_resumed(true));
        w.reset(adaptive_lock::can_retry);
        model::thread overtaking([&] {
            if (l.try_take()) { // until it is queued
                l.unlock(&l);
            }
        });
        const wait_status what = l.link(w, true);
        MODEL_REQUIRE(what == wait_status::waiting);
        l.unlock(&l);
        MODEL_REQUIRE(w.is_complete() && l.take_resumed(true) && !l.try_take());
    });
    model::check("adaptive_mutex: a coroutine tries at the last overtake", [] {
        held_lock l;
        coroutine w(l);
        l.unlock(&l);
        for (int i = 1; i < most_overtakes; ++i) {
            MODEL_REQUIRE(l.try_take());
            l.unlock(&l);
        }
        MODEL_REQUIRE(l.try_take());
        model::thread resumed([&] { w.lock(l); });
        l.unlock(&l); // keeps it for the coroutine, or hands it over
        MODEL_REQUIRE(!l.try_take());
        resumed.join();
    });
    model::check("adaptive_mutex: the next head is overtaken as often", [] {
        held_lock l;
        coroutine first(l);
        coroutine second(l);
        l.unlock(&l);
        MODEL_REQUIRE(l.try_take());
        l.unlock(&l);
        MODEL_REQUIRE(!second.is_complete() && l.take_resumed(true));
        l.unlock(&l);
        int overtakes = 0;
        for (; l.try_take(); ++overtakes) {
            l.unlock(&l);
        }
        MODEL_REQUIRE(overtakes == most_overtakes && second.is_complete());
    });
}

TEST_CASE("adaptive_mutex: a coroutine that gives up its attempt passes the mutex on") {
    model::check("adaptive_mutex: cancelled after it was resumed", [] {
        held_lock l;
        var<int> data{0};
        coroutine w(l);
        queued behind(l);
        model::thread waiting([&] {
            l.await(behind, deadline::never());
            increment(data);
            l.unlock(&l);
        });
        increment(data);
        l.unlock(&l);
        int inside = 2;
        const bool overtakes = model::choose(2) == 1;
        std::optional<model::thread> unlocking;
        if (overtakes && l.try_take()) {
            ++inside;
            unlocking.emplace([&] {
                increment(data);
                l.unlock(&l);
            });
        }
        await(w);
        if (l.take_resumed(false)) {
            l.unlock(&l);
        }
        waiting.join();
        unlocking.reset();
        MODEL_REQUIRE(data == inside && l.take_free());
    });
    model::check("adaptive_mutex: stopped when it queues itself again", random_or_long(10'000), [] {
        held_lock l;
        var<int> data{0};
        coroutine w(l);
        queued behind(l, 1, increments(data));
        l.unlock(&l);
        MODEL_REQUIRE(l.try_take() && !l.take_resumed(true));
        w.reset(adaptive_lock::can_retry);
        model::thread stopping([&] { stop(l, w); });
        model::thread unlocking([&] {
            increment(data);
            l.unlock(&l);
        });
        settle_if_over(w, l.link(w, true));
        stopping.join();
        unlocking.join();
        if (w.outcome() == wait_status::granted) {
            MODEL_REQUIRE(l.take_resumed(true) && !behind.is_complete());
            l.unlock(&l);
        }
        MODEL_REQUIRE(behind.is_granted() && data == 2 && !l.try_take());
    });
    // The stop takes the head out of the queue before it wakes the head's thread. That thread may
    // still take the mutex.
    model::check("adaptive_mutex: a head that is stopped while it tries, before a coroutine",
                 random_or_long(20'000), [] {
                     held_lock l;
                     var<int> data{0};
                     queued head(l);
                     coroutine behind(l);
                     model::thread waiting([&] {
                         l.await(head, deadline::never());
                         if (head.outcome() == wait_status::granted) {
                             increment(data);
                             l.unlock(&l);
                         }
                     });
                     until_asleep(head);
                     l.unlock(&l); // wakes the head
                     const bool overtakes = l.try_take();
                     model::thread stopping([&] { stop(l, head); });
                     if (overtakes) {
                         increment(data);
                         l.unlock(&l);
                     }
                     behind.lock(l);
                     increment(data);
                     l.unlock(&l);
                     stopping.join();
                     waiting.join();
                     const bool locked = head.outcome() == wait_status::granted;
                     MODEL_REQUIRE(data == 1 + (overtakes ? 1 : 0) + (locked ? 1 : 0));
                     MODEL_REQUIRE(l.take_free());
                 });
    model::check("adaptive_mutex: one behind is stopped while the coroutine is on its way", [] {
        held_lock l;
        coroutine w(l);
        queued behind(l);
        l.unlock(&l);
        model::thread stopping([&] { stop(l, behind); });
        if (l.try_take()) {
            l.unlock(&l);
        }
        w.lock(l);
        l.unlock(&l);
        stopping.join();
        if (behind.outcome() == wait_status::granted) {
            l.unlock(&l);
        }
        MODEL_REQUIRE(l.take_free());
    });
}

void three_threads() {
    mutex m;
    var<int> data{0};
    int in_vain = 0;
    const auto work = [&] {
        const std::scoped_lock held(m);
        increment(data);
    };
    model::thread a([&] {
        work();
        work();
    });
    model::thread b([&] {
        if (m.try_lock_for(soon)) {
            increment(data);
            m.unlock();
        } else {
            ++in_vain;
        }
    });
    work();
    work();
    a.join();
    b.join();
    MODEL_REQUIRE(data == 5 - in_vain && m.try_lock());
}

TEST_CASE("adaptive_mutex: three threads are never inside together", "[long]") {
    model::check("adaptive_mutex: three threads",
                 random_or_long(10'000, {.timeouts = 1, .clock_jumps = 1}), three_threads);
}

} // namespace
