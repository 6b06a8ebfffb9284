// channel: every item that is sent is received once or is in the channel, whichever side waits, gives
// up or closes. No waiter sleeps beside an item or room. No operation waits for a granted waiter.

#include <bide/channel/channel.hpp>
#include <bide/model/linearizable.hpp>
#include <model/channel_support.hpp>
#include <support/coroutines.hpp>
#include <support/test.hpp>

using namespace channel_model;

namespace {

using channel = basic_channel<platform>;
using core = basic_core<platform>;
using receiving = basic_receiving<platform>;
using sending = basic_sending<platform>;

// For three threads.
using awake_core = basic_core<awake>;
using awake_receiving = basic_receiving<awake>;
using awake_sending = basic_sending<awake>;

// A channel and two waits of one side: to receive from an empty channel, or to send into a full one.
template <class Wait> struct scene {
    static constexpr bool receives = Wait::which == side::receiving;

    explicit scene(std::size_t n) : c(n), a(make(10)), b(make(20)) {
        for (std::size_t i = 0; i < n && !receives; ++i) {
            offer(c, 1);
        }
    }
    // Brings an item, or takes one away, as soon as that is possible.
    void serve(int v) noexcept {
        if constexpr (receives) {
            put(c, v);
        } else {
            get(c);
        }
    }
    // Requires: served with 1 and with 2.
    void require_both_served() noexcept {
        if constexpr (receives) {
            MODEL_REQUIRE(a.take() + b.take() == 3);
        } else {
            MODEL_REQUIRE(a.is_gone() && b.is_gone());
        }
    }
    static Wait make(int v) noexcept {
        if constexpr (receives) {
            return Wait();
        } else {
            return Wait(v);
        }
    }

    typename Wait::core c;
    Wait a;
    Wait b;
};

TEST_CASE("channel: what one sends another receives, in order") {
    const auto one_item = [](std::size_t n) {
        auto* const c = new channel(n);
        model::thread other([c] { MODEL_REQUIRE(send(*c, 1)); });
        MODEL_REQUIRE(recv(*c) == 1);
        delete c; // though the other one is inside of send() still
    };
    check("channel: one item", {0, 1}, {}, one_item);
    check("channel: one item, steps that fail for no reason", {1},
          {.spurious = 1, .weak_failures = 1}, one_item);
    check("channel: two items, one at a time", {0, 1}, {}, [](std::size_t n) {
        awake_core c(n);
        model::thread other([&] {
            put(c, 1);
            put(c, 2);
        });
        awake_receiving a;
        awake_receiving b;
        wait_in(c, a);
        MODEL_REQUIRE(a.take() == 1);
        wait_in(c, b);
        MODEL_REQUIRE(b.take() == 2);
    });
}

TEST_CASE("channel: a sender that waits for room gets it, and may destroy the channel") {
    check("channel: a full one", {1}, {}, [](std::size_t n) {
        auto* const c = new channel(n);
        try_send(*c, 1);
        model::thread other([c] { MODEL_REQUIRE(try_recv(*c) == 1); });
        MODEL_REQUIRE(send(*c, 2));
        delete c; // though the other one is inside of try_recv() still
    });
}

template <class Wait> void two_queued(std::size_t n) {
    auto* const s = new scene<Wait>(n);
    s->a.enqueue(s->c);
    s->b.enqueue(s->c);
    model::thread first([s] { s->serve(1); });
    model::thread second([s] { s->serve(2); });
    await(s->a.w);
    await(s->b.w);
    s->require_both_served();
    delete s; // though they are inside still
}

template <class Wait> void one_queued_and_one_comes(std::size_t n) {
    scene<Wait> s(n);
    const std::size_t size = s.c.size();
    s.a.enqueue(s.c);
    model::thread coming([&] { wait_in(s.c, s.b); });
    s.serve(1);
    s.serve(2);
    await(s.a.w);
    coming.join();
    s.require_both_served();
    MODEL_REQUIRE(s.c.size() == size);
}

template <class Wait> void two_come(std::size_t n) {
    scene<Wait> s(n);
    const std::size_t size = s.c.size();
    model::thread first([&] { wait_in(s.c, s.a); });
    model::thread second([&] { wait_in(s.c, s.b); });
    s.serve(1);
    s.serve(2);
    first.join();
    second.join();
    s.require_both_served();
    MODEL_REQUIRE(s.c.size() == size);
}

void two_items(std::size_t n) {
    basic_channel<awake> c(n);
    model::thread other([&] {
        MODEL_REQUIRE(send(c, 1));
        MODEL_REQUIRE(send(c, 2));
    });
    MODEL_REQUIRE(recv(c) == 1);
    MODEL_REQUIRE(recv(c) == 2);
}

TEST_CASE("channel: a waiter is served by the threads that come, each of which may be the last") {
    check("channel: two queued receivers, two send", {0, 1, 2}, {}, two_queued<awake_receiving>);
    check("channel: two queued senders, two receive", {0, 1, 2}, {}, two_queued<awake_sending>);
}

TEST_CASE("channel: a new waiter and a queued waiter are both served") {
    check("channel: one queued to receive, one comes, one sends", {0, 1, 2}, {},
          one_queued_and_one_comes<awake_receiving>);
    check("channel: one queued to send, one comes, one receives", {0, 1}, {},
          one_queued_and_one_comes<awake_sending>);
}

TEST_CASE("channel: two that come are served by one", "[long]") {
    const model::options o = random_or_long(3'000);
    check("channel: two receive, one sends", {0, 1, 2}, o, two_come<awake_receiving>);
    check("channel: two send, one receives", {0, 1, 2}, o, two_come<awake_sending>);
    check("channel: two items", {0, 1}, o, two_items);
}

TEST_CASE("channel: of two that come for one item one is served", "[.long]") {
    check("channel: two receive, one item", {0, 1}, {}, [](std::size_t n) {
        awake_core c(n);
        awake_receiving a;
        awake_receiving b;
        model::thread first([&] { a.enqueue(c); });
        model::thread second([&] { b.enqueue(c); });
        put(c, 1);
        first.join();
        second.join();
        MODEL_REQUIRE(a.got.has_value() != b.got.has_value());
        MODEL_REQUIRE((a.got ? b : a).cancel(c));
    });
}

TEST_CASE("channel: a waiter is served once, while another thread tries") {
    check("channel: one queued to receive, one tries, one sends", {0, 1, 2}, {}, [](std::size_t n) {
        awake_core c(n);
        awake_receiving a(c);
        int b = 0;
        model::thread trying([&] { b = poll(c); });
        model::thread sender([&] { put(c, 1); });
        const wait_status mine = n == 0 ? wait_status::waiting : offer(c, 2);
        sender.join();
        trying.join();
        const int left = poll(c);
        MODEL_REQUIRE(a.outcome() == wait_status::granted || a.cancel(c));
        MODEL_REQUIRE(a.got.has_value() || b != 0);
        const int sum = (a.got ? a.take() : 0) + b + left;
        MODEL_REQUIRE(sum == (mine == wait_status::granted ? 3 : 1));
    });
}

// What came out: first two at once, in no order, and then one after the other.
struct received_items {
    std::array<int, 2> at_once{};
    std::vector<int> later;

    // When `v` came; 0: at once, -1: not.
    int place_of(int v) const {
        if (at_once[0] == v || at_once[1] == v) {
            return 0;
        }
        for (std::size_t i = 0; i < later.size(); ++i) {
            if (later[i] == v) {
                return static_cast<int>(i) + 1;
            }
        }
        return -1;
    }
};

// One receiver waits and, if `tries`, another one tries. Two senders put an item into the ring, as a
// batch does, although a receiver waits. The second of them then sends 2, which may go past the ring,
// but not if its 1 is behind the slot that the first one has claimed and not published.
void two_of_one_sender(std::size_t n, bool tries, bool closes) {
    awake_core c(n);
    awake_receiving waits(c);
    std::array<bool, 2> sent{};
    bool other_sent = false;
    const auto into_ring = [&c](item i) {
        return c.send_n([&i](std::size_t) noexcept -> item& { return i; }, 1) == 1;
    };
    model::thread other([&] { other_sent = into_ring(10); });
    model::thread sender([&] {
        sent[0] = into_ring(1);
        sent[1] = offer(c, 2) == wait_status::granted;
    });
    received_items got;
    got.at_once[1] = tries ? poll(c) : 0;
    if (closes) {
        c.close();
    }
    sender.join();
    other.join();
    if (!waits.w.is_complete()) { // the one that tried has the only item that was sent
        MODEL_REQUIRE(tries && c.size() == 0 && c.close());
    }
    await(waits.w);
    got.at_once[0] = waits.got ? waits.take() : 0;
    while (const int v = poll(c)) {
        got.later.push_back(v);
    }
    MODEL_REQUIRE((got.place_of(1) >= 0) == sent[0]);
    MODEL_REQUIRE((got.place_of(2) >= 0) == sent[1]);
    MODEL_REQUIRE((got.place_of(10) >= 0) == other_sent);
    MODEL_REQUIRE(closes || n < 3 || (sent[0] && sent[1] && other_sent));
    // At place 0, two receivers have one each.
    MODEL_REQUIRE(!sent[0] || !sent[1] || got.place_of(1) < got.place_of(2) ||
                  (tries && got.place_of(1) == 0 && got.place_of(2) == 0));
    MODEL_REQUIRE((waits.outcome() == wait_status::closed) == !got.at_once[0]);
}

TEST_CASE("channel: an item for a waiting receiver does not overtake another of its sender") {
    check("channel: one waits, two send, one of them twice", {1, 2, 3}, {},
          [](std::size_t n) { two_of_one_sender(n, false, false); });
    check("channel: one waits, one tries, two send, one of them twice", {2}, random(5'000),
          [](std::size_t n) { two_of_one_sender(n, true, false); });
    check("channel: one waits, one closes, two send, one of them twice", {2}, random(5'000),
          [](std::size_t n) { two_of_one_sender(n, false, true); });
}

TEST_CASE("channel: a wait that is cancelled while it is served has one outcome") {
    check("channel: a receiver that is cancelled", {0, 1}, {}, [](std::size_t n) {
        core c(n);
        receiving a(c);
        wait_status sent{};
        model::thread other([&] { sent = offer(c, 1); });
        const bool cancelled = a.cancel(c);
        other.join();
        if (cancelled) {
            MODEL_REQUIRE(!a.got && poll(c) == (sent == wait_status::granted ? 1 : 0));
        } else {
            MODEL_REQUIRE(a.take() == 1);
        }
        MODEL_REQUIRE(n == 0 ? (sent == wait_status::granted) != cancelled
                             : sent == wait_status::granted);
    });
    check("channel: a sender that is cancelled", {0, 1}, {}, [](std::size_t n) {
        core c(n);
        if (n == 1) {
            offer(c, 1);
        }
        sending a(c, 2);
        int got = 0;
        model::thread other([&] { got = poll(c); });
        const bool cancelled = a.cancel(c);
        other.join();
        MODEL_REQUIRE(a.is_gone() != cancelled);
        MODEL_REQUIRE(got + poll(c) == (cancelled ? 0 : 2) + (n == 1 ? 1 : 0));
    });
    check("channel: the first of two receivers is cancelled", {0, 1}, {}, [](std::size_t n) {
        awake_core c(n);
        awake_receiving a(c);
        awake_receiving b(c);
        model::thread other([&] { put(c, 1); });
        const bool cancelled = a.cancel(c);
        await((cancelled ? b : a).w);
        MODEL_REQUIRE((cancelled ? b : a).take() == 1);
        MODEL_REQUIRE(cancelled || b.cancel(c));
    });
    check("channel: stopped by another", {0, 1}, {}, [](std::size_t n) {
        core c(n);
        var<int> stopped{0};
        receiving a(c);
        model::thread stopping(model::after_writing(stopped, [&] { stop(c, a); }));
        model::thread other([&] { offer(c, 1); });
        await(a.w);
        MODEL_REQUIRE(a.outcome() == wait_status::granted ? a.take() == 1 : stopped == 1);
        other.join();
        MODEL_REQUIRE(n == 0 || a.outcome() == wait_status::granted || poll(c) == 1);
    });
    check("channel: stopped before it is queued, or while", {0, 1}, {}, [](std::size_t n) {
        core c(n);
        const bool receives = model::choose(2) == 0;
        if (!receives && n == 1) {
            offer(c, 1);
        }
        receiving r;
        sending s(2);
        model::thread stopping([&] { receives ? stop(c, r) : stop(c, s); });
        MODEL_REQUIRE((receives ? wait_in(c, r) : wait_in(c, s)) == wait_status::stopped);
        stopping.join();
        MODEL_REQUIRE(!r.got && !s.is_gone());
    });
}

TEST_CASE("channel: a time-out loses no item and makes none") {
    check("channel: a receiver that times out", {0, 1}, {.timeouts = 1}, [](std::size_t n) {
        basic_channel<awake> c(n);
        int got = 0;
        model::thread waiting([&] {
            auto received = c.try_recv_for(soon);
            MODEL_REQUIRE(received || received.error() == bide::errc::timeout);
            got = received ? received->take() : 0;
        });
        const bool sent = try_send(c, 1);
        waiting.join();
        MODEL_REQUIRE(got + try_recv(c) == (sent ? 1 : 0));
    });
    check("channel: a sender that times out", {0, 1}, {.timeouts = 1}, [](std::size_t n) {
        basic_channel<awake> c(n);
        if (n == 1) {
            try_send(c, 1);
        }
        bool sent = false;
        model::thread waiting([&] { sent = is_sent(c.try_send_for(item(2), soon), 2); });
        const int got = try_recv(c);
        waiting.join();
        MODEL_REQUIRE(got + try_recv(c) == (sent ? 2 : 0) + (n == 1 ? 1 : 0));
    });
    check("channel: the time-out of one, the item of another", {0, 1}, {.timeouts = 1},
          [](std::size_t n) {
              awake_core c(n);
              awake_receiving patient;
              awake_receiving impatient;
              const bool first = model::choose(2) == 0;
              (first ? impatient : patient).enqueue(c);
              (first ? patient : impatient).enqueue(c);
              model::thread waiting([&] {
                  if (!impatient.w.park(deadline::at_ns(1)) && !impatient.cancel(c)) {
                      await(impatient.w);
                  }
              });
              put(c, 1);
              waiting.join();
              const int taken = impatient.got ? impatient.take() : 0;
              MODEL_REQUIRE(taken == 0 || first);
              if (taken != 0) {
                  put(c, 2);
              }
              await(patient.w);
              MODEL_REQUIRE(taken + patient.take() == (taken == 0 ? 1 : 3));
          });
}

test::held recv_held(bide::basic_ready_queue<awake>& where, basic_channel<awake>& c, int& got) {
    auto received = co_await c.async_recv().resume_on(where);
    got = value_of(std::move(received));
}
test::detached recv_detached(basic_channel<awake>& c, var<int>& got) {
    auto received = co_await c.async_recv();
    got = value_of(std::move(received));
}
test::detached send_detached(basic_channel<awake>& c, int v, var<int>& sent) {
    auto op = c.async_send(item(v));
    const auto done = co_await std::move(op);
    MODEL_REQUIRE(done || done.error().value.value == v);
    sent = done ? 1 : 2;
}

TEST_CASE("channel: an item of a receiver that is destroyed goes to the next waiter") {
    check("channel: passed on to a waiter", {0, 1}, {}, [](std::size_t n) {
        core c(n);
        receiving next(c);
        item late(1);
        bool passed = false;
        model::thread passing([&] { passed = c.pass_on(late); });
        const bool cancelled = next.cancel(c);
        passing.join();
        MODEL_REQUIRE(cancelled != next.got.has_value());
        MODEL_REQUIRE(passed == (!cancelled || n != 0)); // else it went back in
        MODEL_REQUIRE(poll(c) == (cancelled && passed ? 1 : 0));
    });
    check("channel: passed on to the second of two", {0, 1}, {}, [](std::size_t n) {
        core c(n);
        receiving first(c);
        receiving next(c);
        item late(1);
        model::thread passing([&] { MODEL_REQUIRE(c.pass_on(late)); });
        const bool cancelled = first.cancel(c);
        passing.join();
        MODEL_REQUIRE(cancelled ? next.got && next.take() == 1 : first.take() == 1);
        MODEL_REQUIRE(cancelled || next.cancel(c));
    });
    check("channel: passed on to a new waiter", {0, 1}, {}, [](std::size_t n) {
        core c(n);
        receiving next;
        item late(1);
        model::thread passing([&] {
            const bool passed = c.pass_on(late);
            MODEL_REQUIRE(passed == (late.value == 0));
            if (!passed) {
                MODEL_REQUIRE(n == 0); // there is room
                c.close();             // it is dropped, so the next one waits for another
            }
        });
        const wait_status what = wait_in(c, next);
        passing.join();
        MODEL_REQUIRE((what == wait_status::granted) == next.got.has_value());
        MODEL_REQUIRE((late.value == 0) == next.got.has_value());
        MODEL_REQUIRE(c.size() == 0);
    });
    check("channel: a coroutine that is destroyed with its item", {0, 1}, {}, [](std::size_t n) {
        basic_channel<awake> c(n);
        bide::basic_ready_queue<awake> mine; // which is dropped with what is inside
        int got = 0;
        var<int> next{0};
        model::thread sender([&] { send(c, 1); });
        {
            test::held h = recv_held(mine, c, got);
            h.start();
            recv_detached(c, next);
            sender.join(); // its send has returned
        }
        if (got == 0 && next == 0) {
            send(c, 2);
        }
        MODEL_REQUIRE(got + next != 0);
        c.close();
    });
}

// An item that has to go back: `passed`, or it is still here.
template <class Core> struct passing_on {
    void operator()() noexcept {
        passed = to.pass_on(late);
        MODEL_REQUIRE(passed == (late.value == 0));
    }
    Core& to;
    item late;
    bool passed = false;
};

// All that is inside, added up.
template <class Core> int drain(Core& c) {
    int sum = 0;
    for (int got = poll(c); got != 0; got = poll(c)) {
        sum += got;
    }
    return sum;
}

// A receiver waits while this thread tries, or comes.
void comes_back_beside_a_send(std::size_t n, bool is_queued) {
    awake_core c(n);
    awake_receiving receiver;
    if (is_queued) {
        receiver.enqueue(c);
    }
    passing_on<awake_core> back{c, 1};
    bool sent = false;
    int got = 0;
    model::thread passing([&] { back(); });
    model::thread giver([&] { sent = offer(c, 2) == wait_status::granted; });
    if (is_queued) {
        got = poll(c);
    } else {
        wait_in(c, receiver);
    }
    passing.join();
    giver.join();
    await(receiver.w);
    const int sum = receiver.take() + got + drain(c);
    MODEL_REQUIRE(sum == (back.passed ? 1 : 0) + (sent ? 2 : 0));
    MODEL_REQUIRE(n == 0 ? back.passed != sent : n == 1 || (back.passed && sent));
}

TEST_CASE("channel: an item that comes back is received once, or there is no room for it") {
    check("channel: comes back, another is received", {0, 1, 2}, {}, [](std::size_t n) {
        core c(n);
        passing_on<core> back{c, 1};
        model::thread passing([&] { back(); });
        const int got = poll(c);
        passing.join();
        MODEL_REQUIRE(back.passed == (n != 0));
        MODEL_REQUIRE(got + drain(c) == (n != 0 ? 1 : 0));
    });
    check("channel: comes back, another is sent", {1, 2}, {}, [](std::size_t n) {
        core c(n);
        passing_on<core> back{c, 10};
        model::thread passing([&] { back(); });
        const bool sent = offer(c, 1) == wait_status::granted;
        passing.join();
        MODEL_REQUIRE(n == 1 ? back.passed != sent : back.passed && sent);
        MODEL_REQUIRE(drain(c) == (back.passed ? 10 : 0) + (sent ? 1 : 0));
    });
    check("channel: comes back beside a sender that waits, another is received", {1, 2}, {},
          [](std::size_t n) {
              core c(n);
              for (std::size_t i = 0; i < n; ++i) {
                  offer(c, 1);
              }
              sending waits(c, 100);
              passing_on<core> back{c, 10};
              model::thread passing([&] { back(); });
              int sum = poll(c);
              passing.join();
              sum += drain(c);
              await(waits.w);
              MODEL_REQUIRE(waits.is_gone());
              MODEL_REQUIRE(sum == static_cast<int>(n) + 100 + (back.passed ? 10 : 0));
          });
    check("channel: two come back, a receiver waits", {0, 1}, {}, [](std::size_t n) {
        core c(n);
        receiving waits(c);
        passing_on<core> one{c, 1};
        passing_on<core> two{c, 2};
        model::thread passing([&] { one(); });
        two();
        passing.join();
        await(waits.w);
        MODEL_REQUIRE(one.passed + two.passed == (n == 0 ? 1 : 2));
        MODEL_REQUIRE(waits.take() + drain(c) == (one.passed ? 1 : 0) + (two.passed ? 2 : 0));
    });
    check("channel: comes back, a receiver waits, another is sent", {0, 1, 2}, {},
          [](std::size_t n) {
              core c(n);
              receiving waits(c);
              passing_on<core> back{c, 1};
              model::thread passing([&] { back(); });
              const bool sent = offer(c, 2) == wait_status::granted;
              passing.join();
              await(waits.w);
              // At every instant the receiver waits or there is room.
              MODEL_REQUIRE(n == 0 ? back.passed != sent : back.passed && sent);
              MODEL_REQUIRE(waits.take() + drain(c) == (back.passed ? 1 : 0) + (sent ? 2 : 0));
          });
    check("channel: comes back, one waits, one sends, one tries", {0, 1, 2}, {},
          [](std::size_t n) { comes_back_beside_a_send(n, true); });
    check("channel: comes back, one comes, one sends", {1, 2}, {},
          [](std::size_t n) { comes_back_beside_a_send(n, false); });
}

TEST_CASE("channel: nothing comes back into a channel that was closed and drained") {
    check("channel: comes back, another closes", {0, 1, 2}, {}, [](std::size_t n) {
        core c(n);
        passing_on<core> back{c, 1};
        model::thread passing([&] { back(); });
        c.close();
        int got = 0;
        const bool drained = poll(c, got) == wait_status::closed;
        passing.join();
        MODEL_REQUIRE(got == (back.passed ? 1 : 0));
        MODEL_REQUIRE(drained != back.passed);
        int late = 0;
        MODEL_REQUIRE(poll(c, late) == wait_status::closed);
    });
    check("channel: comes back, a receiver waits, another closes", {0, 1}, {}, [](std::size_t n) {
        core c(n);
        receiving waits(c);
        passing_on<core> back{c, 1};
        model::thread passing([&] { back(); });
        c.close();
        passing.join();
        await(waits.w);
        MODEL_REQUIRE(back.passed == (waits.outcome() == wait_status::granted));
        MODEL_REQUIRE(back.passed == waits.got.has_value());
        MODEL_REQUIRE(c.size() == 0);
    });
    check("channel: comes back, one sends, one closes", {1}, {}, [](std::size_t n) {
        awake_core c(n);
        passing_on<awake_core> back{c, 1};
        bool sent = false;
        model::thread passing([&] { back(); });
        model::thread giver([&] { sent = offer(c, 2) == wait_status::granted; });
        c.close();
        int sum = 0;
        int got = 0;
        while (poll(c, got) == wait_status::granted) {
            sum += got;
        }
        passing.join();
        giver.join();
        MODEL_REQUIRE(sum == (back.passed ? 1 : 0) + (sent ? 2 : 0));
        MODEL_REQUIRE(c.size() == 0);
    });
}

// Destroyed when its item has come, at the latest: `got` is what it took before.
void destroyed_with_its_item(std::size_t n, bool closes) {
    basic_channel<awake> c(n);
    bide::basic_ready_queue<awake> mine; // which is dropped with what is inside
    int got = 0;
    int taken = 0;
    bool sent = false;
    {
        test::held h = recv_held(mine, c, got);
        h.start();
        model::thread giver([&] { sent = try_send(c, 1); });
        giver.join(); // its send has returned
        model::thread other([&] { closes ? void(c.close()) : void(taken = try_recv(c)); });
        h.destroy();
        other.join();
    }
    MODEL_REQUIRE(sent && got == 0);
    const int left = try_recv(c);
    MODEL_REQUIRE(closes ? left == 0 || n != 0 : taken + left == (n == 0 ? 0 : 1));
    MODEL_REQUIRE(c.size() == 0);
}

TEST_CASE("channel: a coroutine that is destroyed gives its item back") {
    check("channel: destroyed with its item, another tries", {0, 1, 2}, {},
          [](std::size_t n) { destroyed_with_its_item(n, false); });
    check("channel: destroyed with its item, another closes", {0, 1, 2}, {},
          [](std::size_t n) { destroyed_with_its_item(n, true); });
}

TEST_CASE("channel: coroutines wait beside threads") {
    check("channel: a coroutine receives", {0, 1}, {}, [](std::size_t n) {
        basic_channel<awake> c(n);
        var<int> got{0};
        model::thread sender([&] { send(c, 1); });
        recv_detached(c, got);
        sender.join();
        MODEL_REQUIRE(got == 1);
    });
    check("channel: a coroutine sends", {0, 1}, {}, [](std::size_t n) {
        basic_channel<awake> c(n);
        if (n == 1) {
            send(c, 1);
        }
        var<int> sent{0};
        int got = 0;
        model::thread receiver([&] { got = recv(c); });
        send_detached(c, 2, sent);
        receiver.join();
        MODEL_REQUIRE(sent == 1);
        MODEL_REQUIRE(got + try_recv(c) == (n == 1 ? 3 : 2));
    });
}

TEST_CASE("channel: a send that was accepted before close is received") {
    check("channel: close against a send that does not wait", {0, 1}, {}, [](std::size_t n) {
        core c(n);
        wait_status sent{};
        model::thread sender([&] { sent = offer(c, 1); });
        MODEL_REQUIRE(c.close());
        int got = 0;
        int one = 0;
        wait_status what = poll(c, one);
        while (what == wait_status::granted) {
            got += one;
            what = poll(c, one);
        }
        MODEL_REQUIRE(what == wait_status::closed);
        sender.join();
        MODEL_REQUIRE(got == (sent == wait_status::granted ? 1 : 0));
    });
    check("channel: close against a send that waits", {0, 1}, {}, [](std::size_t n) {
        basic_channel<awake> c(n);
        if (n == 1) {
            try_send(c, 1);
        }
        bool sent = false;
        model::thread sender([&] { sent = send(c, 2); });
        MODEL_REQUIRE(c.close());
        sender.join();
        MODEL_REQUIRE(!sent && try_recv(c) == static_cast<int>(n) && try_recv(c) == 0);
    });
    check("channel: close, a send and a receiver that waits", {0, 1}, {}, [](std::size_t n) {
        awake_core c(n);
        awake_receiving a(c);
        awake_receiving b(c);
        wait_status sent{};
        model::thread sender([&] { sent = offer(c, 1); });
        model::thread closing([&] { MODEL_REQUIRE(c.close()); });
        await(a.w);
        await(b.w);
        sender.join();
        closing.join();
        MODEL_REQUIRE(a.got.has_value() == (sent == wait_status::granted) && !b.got);
        MODEL_REQUIRE(b.outcome() == wait_status::closed && c.is_closed() && c.size() == 0);
    });
}

TEST_CASE("channel: close ends every wait") {
    check("channel: close against a new receiver", {0, 1}, {}, [](std::size_t n) {
        channel c(n);
        model::thread receiver([&] { MODEL_REQUIRE(recv(c) == 0); });
        MODEL_REQUIRE(c.close());
    });
    check("channel: close against a new sender", {0, 1}, {}, [](std::size_t n) {
        channel c(n);
        if (n == 1) {
            try_send(c, 1);
        }
        model::thread sender([&] { MODEL_REQUIRE(!send(c, 2)); });
        MODEL_REQUIRE(c.close());
    });
    check("channel: waiting senders get their items back, but for one", {1}, {}, [](std::size_t n) {
        awake_core c(n);
        offer(c, 1);
        awake_sending a(c, 10);
        awake_sending b(c, 20);
        int got = 0;
        model::thread receiver([&] { got = get(c); });
        model::thread closing([&] { c.close(); });
        await(a.w);
        await(b.w);
        receiver.join();
        closing.join();
        MODEL_REQUIRE(got == 1 && b.outcome() == wait_status::closed && !b.is_gone());
        MODEL_REQUIRE(a.is_gone() == (a.outcome() == wait_status::granted));
        MODEL_REQUIRE(poll(c) == (a.is_gone() ? 10 : 0));
    });
    check("channel: close against close and a wait that is cancelled", {0, 1}, {},
          [](std::size_t n) {
              awake_core c(n);
              awake_receiving a(c);
              awake_receiving b(c);
              bool other = false;
              model::thread closing([&] { other = c.close(); });
              const bool cancelled = a.cancel(c);
              const bool mine = c.close();
              await(b.w);
              closing.join();
              MODEL_REQUIRE(cancelled || a.outcome() == wait_status::closed);
              MODEL_REQUIRE(mine != other && b.outcome() == wait_status::closed);
          });
}

TEST_CASE("channel: what came before close is seen by a thread that sees it closed") {
    model::check("channel: close against is_closed()", [] {
        channel c(1);
        var<int> data{0};
        model::thread closer(model::after_writing(data, [&] { c.close(); }));
        while (c.try_recv().error() != bide::errc::closed) {
            platform::pause();
        }
        MODEL_REQUIRE(data == 1);
    });
}

TEST_CASE("channel: a batch serves every waiter") {
    check("channel: two queued receivers, one batch", {0, 1, 2}, {}, [](std::size_t n) {
        auto* const c = new awake_core(n);
        awake_receiving b;
        awake_receiving a(*c);
        model::thread coming([&, c] { wait_in(*c, b); });
        model::thread sender([c] { put_all(*c, {1, 2}); });
        await(a.w);
        coming.join();
        delete c; // though the other one is inside still
        MODEL_REQUIRE(a.take() + b.take() == 3);
    });
    check("channel: two senders, one batch", {0, 1, 2}, {}, [](std::size_t n) {
        awake_core c(n);
        for (std::size_t i = 1; i <= n; ++i) {
            offer(c, 1);
        }
        awake_sending b(20);
        awake_sending a(c, 10);
        model::thread coming([&] { wait_in(c, b); });
        int got = 0;
        std::size_t count = 0;
        model::thread receiver([&] {
            count = c.recv_n([&got](item& i) noexcept { got += item(std::move(i)).take(); }, 2);
        });
        await(a.w);
        receiver.join();
        while (count < 2) {
            got += get(c);
            ++count;
        }
        coming.join();
        for (std::size_t i = 1; i <= n; ++i) {
            got += poll(c);
        }
        MODEL_REQUIRE(got == 30 + static_cast<int>(n) && c.size() == 0);
    });
}

// The other thread acquires the lock, to serve a waiter that has left meanwhile.
template <class Wait> void served_after_it_left(std::size_t n) {
    auto* const s = new scene<Wait>(n);
    s->a.enqueue(s->c);
    model::thread serving([s] {
        if constexpr (scene<Wait>::receives) {
            offer(s->c, 1);
        } else {
            poll(s->c);
        }
    });
    if (!s->a.cancel(s->c)) {
        await(s->a.w);
    } else if constexpr (scene<Wait>::receives) {
        MODEL_REQUIRE(get(s->c) == 1);
    } else {
        put(s->c, 3);
    }
    delete s; // though the other one is inside still
}

TEST_CASE("channel: a receiver that has its item may destroy the channel") {
    check("channel: an item for a receiver that left", {1}, {}, served_after_it_left<receiving>);
    check("channel: room for a sender that left", {1}, {}, served_after_it_left<sending>);
    check("channel: a batch", {2}, {}, [](std::size_t n) {
        auto* const c = new core(n);
        model::thread sender([c] { put_all(*c, {1, 2}); });
        MODEL_REQUIRE(get(*c) == 1);
        MODEL_REQUIRE(get(*c) == 2);
        delete c; // though the other one is inside still
    });
}

// Two send and two receive.
void two_and_two() {
    const auto n = static_cast<std::size_t>(model::choose(3));
    basic_channel<awake> c(n);
    int first = 0;
    model::thread receiver([&] { first = recv(c); });
    model::thread sender([&] { send(c, 1); });
    model::thread other([&] { send(c, 2); });
    const int second = recv(c);
    receiver.join();
    MODEL_REQUIRE(first + second == 3);
}

// Two senders, one of them with a time-out, and two receivers, one of them with a time-out, the other
// until it is closed. The sender without a time-out closes.
void all_at_once() {
    const auto n = static_cast<std::size_t>(model::choose(3));
    basic_channel<awake> c(n);
    int sent = 0;
    int sent_in_time = 0;
    int received = 0;
    int received_in_time = 0;
    {
        model::thread a([&] {
            for (const int v : {1, 2}) {
                sent += send(c, v) ? v : 0;
            }
            c.close();
        });
        model::thread b([&] {
            for (const int v : {10, 20}) {
                sent_in_time += is_sent(c.try_send_for(item(v), soon), v) ? v : 0;
            }
        });
        model::thread patient([&] {
            while (const int v = recv(c)) {
                received += v;
                MODEL_REQUIRE(c.size() <= n);
            }
        });
        while (auto one = c.try_recv_for(soon)) {
            received_in_time += one->take();
        }
    }
    MODEL_REQUIRE(sent == 3 && try_recv(c) == 0);
    MODEL_REQUIRE(received + received_in_time == sent + sent_in_time);
}

TEST_CASE("channel: all that is sent is received, whatever happens at once", "[long]") {
    model::check("channel: two send, two receive", random_or_long(5'000), two_and_two);
    model::check("channel: two send, two receive, one closes",
                 random_or_long(3'000, {.timeouts = 1}), all_at_once);
}

TEST_CASE("channel: three threads see a queue that can be closed") {
    using checked_channel = bide::basic_channel<int, awake, stamp>;
    using specification = model::spec::channel<int>;
    const auto threads = [](bool closes) {
        checked_channel c(1);
        model::linearizable checked(c, specification(1), "c");
        const auto try_send = [&](int value) {
            checked.call(
                "try_send", [](checked_channel& o, int v) { return o.try_send(v).has_value(); },
                [](specification& o, int v) { return o.try_send(v); }, value);
        };
        const auto try_receive = [&] {
            checked.call(
                "try_receive",
                [](checked_channel& o) {
                    auto received = o.try_recv();
                    return received ? std::optional<int>(*received) : std::nullopt;
                },
                [](specification& o) { return o.try_receive(); });
        };
        model::thread a([&] { try_send(1); });
        model::thread b([&] {
            if (closes) {
                checked.call("close", [](auto& o) { o.close(); });
            } else {
                try_receive();
                try_send(2);
            }
        });
        try_receive();
        a.join();
        b.join();
        try_receive();
    };
    model::check("channel: its specification", [=] { threads(false); });
    model::check("channel: its specification, one closes", [=] { threads(true); });
    model::check("channel: its specification, one waits", [] {
        checked_channel c(1);
        model::linearizable checked(c, specification(1), "c");
        model::thread a([&] {
            checked.call(
                "send", [](checked_channel& o, int v) { return o.send(v).has_value(); },
                [](specification& o, int v) { return o.send(v); }, 1);
        });
        model::thread b([&] { checked.call("close", [](auto& o) { o.close(); }); });
        checked.call(
            "receive", [](checked_channel& o) { return o.recv(); },
            [](specification& o) { return o.receive(); });
    });
}

} // namespace
