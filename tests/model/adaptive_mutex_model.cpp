// adaptive_mutex: one at a time; the head of the queue is overtaken only so often, and never
// forgotten.

#include <bide/sync/adaptive_mutex.hpp>
#include <model/sync_support.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <mutex>

using namespace sync_model;

namespace {

using mutex = bide::basic_adaptive_mutex<platform>;
using adaptive_lock = bide::detail::basic_adaptive_lock<platform>;

void increment(var<int>& data) { data = data + 1; }

bool is_asleep(const auto& w) {
    return w.where()->load(std::memory_order_relaxed) == fate::parked;
}

} // namespace

// ---- Exclusion

TEST_CASE("adaptive_mutex: two threads are never inside together", "[adaptive_mutex]") {
    const auto twice = [] {
        mutex m;
        var<int> data{0};
        const auto work = [&] {
            const std::scoped_lock held(m);
            increment(data);
        };
        model::thread other(work);
        work();
        other.join();
        MODEL_REQUIRE(data == 2);
    };
    model::check("adaptive_mutex: two threads", {}, twice);
    model::check("adaptive_mutex: two threads, woken for no reason", {.spurious = 1}, twice);
    model::check("adaptive_mutex: two that try", {}, [] {
        mutex m;
        var<int> data{0};
        bool other = false;
        model::thread trying([&] {
            other = m.try_lock();
            if (other) {
                increment(data);
            }
        });
        const bool mine = m.try_lock();
        if (mine) {
            increment(data);
        }
        trying.join();
        MODEL_REQUIRE(mine != other);
    });
    model::check("adaptive_mutex: one that tries, one that locks", {.weak_failures = 1}, [] {
        mutex m;
        var<int> data{0};
        model::thread trying([&] {
            if (m.try_lock()) {
                increment(data);
                m.unlock();
            }
        });
        m.lock();
        increment(data);
        m.unlock();
    });
    model::check("adaptive_mutex: destroyed by the last of two", {}, [] {
        struct object {
            mutex m;
            var<int> users{2};
        };
        auto* const o = new object;
        const auto leave = [o] {
            o->m.lock();
            const int left = o->users - 1;
            o->users = left;
            o->m.unlock();
            if (left == 0) {
                delete o;
            }
        };
        model::thread other(leave);
        leave();
    });
}

// ---- The head of the queue

namespace {

// The mutex is held, one waits; the holder unlocks and comes again, `rounds` times.
void overtaken(int rounds) {
    adaptive_lock l;
    var<int> data{0};
    node head(1);
    l.take_free();
    l.enqueue(head);
    model::thread waiting([&] {
        l.await(head, deadline::never());
        increment(data);
        l.unlock(&l);
    });
    for (int i = 0; i < rounds; ++i) {
        increment(data);
        l.unlock(&l);
        if (!l.barge()) {
            return;
        }
    }
    increment(data);
    l.unlock(&l);
}

} // namespace

TEST_CASE("adaptive_mutex: the head of the queue is not forgotten", "[adaptive_mutex]") {
    model::check("adaptive_mutex: one waits, one unlocks", {.spurious = 1}, [] { overtaken(0); });
    model::check("adaptive_mutex: one waits, one unlocks and overtakes", {}, [] { overtaken(1); });
    model::check("adaptive_mutex: two in the queue", {}, [] {
        adaptive_lock l;
        var<int> data{0};
        node first(1);
        node second(1);
        l.take_free();
        l.enqueue(first);
        l.enqueue(second);
        const auto wait = [&](node& w) {
            l.await(w, deadline::never());
            increment(data);
            l.unlock(&l);
        };
        model::thread a([&] { wait(first); });
        model::thread b([&] { wait(second); });
        increment(data);
        l.unlock(&l);
        a.join();
        b.join();
        MODEL_REQUIRE(data == 3);
    });
}

TEST_CASE("adaptive_mutex: the head of the queue is overtaken only so often",
          "[adaptive_mutex]") {
    constexpr int most = adaptive_lock::max_overtakes;
    static_assert(most <= 4, "few enough to be counted by a model");
    model::check("adaptive_mutex: overtakes of one head", {}, [] {
        adaptive_lock l;
        var<bool> served{false};
        node head(1);
        l.take_free();
        l.enqueue(head);
        model::thread waiting([&] {
            l.await(head, deadline::never());
            served = true;
            l.unlock(&l);
        });
        // The unlock that is one too many hands over.
        for (int overtakes = 0; !served; ++overtakes) {
            MODEL_REQUIRE(overtakes <= most);
            l.unlock(&l);
            if (!l.barge()) {
                return;
            }
        }
        l.unlock(&l);
    });
    model::check("adaptive_mutex: overtakes of the second head", {}, [] {
        adaptive_lock l;
        var<bool> served{false};
        bell rings;
        node first(1, rings.waker()); // handed over at once
        node second(1);
        l.take_free();
        l.enqueue(first);
        l.enqueue(second);
        model::thread waiting([&] {
            l.await(second, deadline::never());
            served = true;
            l.unlock(&l);
        });
        l.unlock(&l);
        MODEL_REQUIRE(rings.rung == 1);
        for (int overtakes = 0; !served; ++overtakes) {
            MODEL_REQUIRE(overtakes <= most);
            l.unlock(&l);
            if (!l.barge()) {
                return;
            }
        }
        l.unlock(&l);
    });
}

namespace {

// Each look at the clock is a millisecond after the one before.
struct late_platform : platform {
    struct clock {
        std::int64_t ns = 0;
    };
    static std::int64_t now() noexcept { return local<clock>().ns += 1'000'000; }
};

} // namespace

TEST_CASE("adaptive_mutex: a head whose patience went by is handed the mutex",
          "[adaptive_mutex]") {
    model::check("adaptive_mutex: overtaken twice is enough", {}, [] {
        bide::detail::basic_adaptive_lock<late_platform> l;
        bide::basic_waiter<late_platform> head(1);
        l.take_free();
        l.enqueue(head);
        model::thread waiting([&] {
            l.await(head, deadline::never());
            l.unlock(&l);
        });
        // Woken once, and its patience begins; woken twice, and it is over.
        for (int i = 0; i < 2; ++i) {
            while (!is_asleep(head)) {
                platform::pause();
            }
            l.unlock(&l);
            if (!l.barge()) {
                return;
            }
        }
        while (!is_asleep(head)) {
            platform::pause();
        }
        l.unlock(&l);
        MODEL_REQUIRE(!l.barge() || head.outcome() == fate::granted);
    });
}

// ---- Handing over

TEST_CASE("adaptive_mutex: a foreign waker is handed the mutex", "[adaptive_mutex]") {
    model::check("adaptive_mutex: a waker and one who comes by", {}, [] {
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
            if (l.barge()) {
                MODEL_REQUIRE(o.data == 2); // never between the holder and the waker
                l.unlock(&l);
            }
        });
        increment(o.data);
        l.unlock(&l);
        other.join();
        MODEL_REQUIRE(o.data == 2 && l.take_free());
    });
    model::check("adaptive_mutex: a waker that is queued while it is unlocked", {}, [] {
        adaptive_lock l;
        var<int> data{0};
        node w(1);
        l.take_free();
        model::thread waiting([&] {
            if (l.enqueue(w) == fate::waiting) {
                await(w);
            }
            increment(data);
            l.unlock(&l);
        });
        increment(data);
        l.unlock(&l);
    });
}

// ---- Giving up

TEST_CASE("adaptive_mutex: a head that gives up passes the mutex on", "[adaptive_mutex]") {
    model::check("adaptive_mutex: time-out of a head that was woken", {.timeouts = 1}, [] {
        adaptive_lock l;
        var<int> data{0};
        node head(1);
        node next(1);
        l.take_free();
        l.enqueue(head);
        l.enqueue(next);
        model::thread waiting([&] {
            if (l.await(head, deadline::at_ns(1)) || !l.cancel(head, fate::timed_out)) {
                await(head);
                increment(data);
                l.unlock(&l);
            }
        });
        const int rounds = model::choose(2);
        for (int i = 0; i <= rounds; ++i) {
            increment(data);
            l.unlock(&l);
            if (i == rounds || !l.barge()) {
                break;
            }
        }
        await(next);
        increment(data);
        l.unlock(&l);
        waiting.join();
        MODEL_REQUIRE(l.take_free());
    });
    model::check("adaptive_mutex: time-out of the only one", {.timeouts = 1}, [] {
        mutex m;
        var<int> data{0};
        m.lock();
        model::thread waiting([&] {
            if (m.try_lock_for(soon)) {
                increment(data);
                m.unlock();
            }
        });
        increment(data);
        m.unlock();
        waiting.join();
        MODEL_REQUIRE(m.try_lock());
    });
}

TEST_CASE("adaptive_mutex: a stop and an unlock that come together leave it to one",
          "[adaptive_mutex]") {
    model::check("adaptive_mutex: stop against unlock", {}, [] {
        adaptive_lock l;
        var<int> data{0};
        node w(1);
        l.take_free();
        l.enqueue(w);
        model::thread stopping([&] { stop(l, w); });
        model::thread waiting([&] {
            l.await(w, deadline::never());
            if (w.outcome() == fate::granted || l.barge()) {
                increment(data);
                l.unlock(&l);
            }
        });
        increment(data);
        l.unlock(&l);
        stopping.join();
        waiting.join();
        MODEL_REQUIRE(l.take_free());
    });
    model::check("adaptive_mutex: stopped before it is queued, or while", {}, [] {
        adaptive_lock l;
        node w(1);
        l.take_free();
        model::thread stopping([&] { stop(l, w); });
        if (l.enqueue(w) == fate::waiting) {
            l.await(w, deadline::never());
        }
        stopping.join();
        MODEL_REQUIRE(w.outcome() == fate::stopped);
        l.unlock(&l);
        MODEL_REQUIRE(l.take_free());
    });
    model::check("adaptive_mutex: one behind the head is stopped", {}, [] {
        adaptive_lock l;
        var<int> data{0};
        node first(1);
        node second(1);
        l.take_free();
        l.enqueue(first);
        l.enqueue(second);
        model::thread stopping([&] { stop(l, second); });
        increment(data);
        l.unlock(&l);
        await(first);
        increment(data);
        l.unlock(&l);
        await(second);
        stopping.join();
        if (second.outcome() == fate::granted) {
            l.unlock(&l);
        }
        MODEL_REQUIRE(l.take_free());
    });
}

// ---- More threads

namespace {

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

} // namespace

TEST_CASE("adaptive_mutex: three threads are never inside together", "[adaptive_mutex]") {
    model::options o = random(10'000);
    o.timeouts = o.clock_jumps = 1;
    model::check("adaptive_mutex: three threads", o, three_threads);
}

TEST_CASE("adaptive_mutex: three threads are never inside together, for long",
          "[adaptive_mutex][.long]") {
    model::options o = random(300'000);
    o.depth = 5;
    o.timeouts = o.clock_jumps = o.spurious = o.weak_failures = 1;
    model::check("adaptive_mutex: three threads, long", o, three_threads);
}
