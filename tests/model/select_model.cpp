// select: exactly one case happens, the other cases have no effect, also beside other waiters. No
// waiter sleeps beside a case that could have happened.

#include <bide/channel/broadcast.hpp>
#include <bide/channel/oneshot.hpp>
#include <bide/channel/select.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>
#include <model/channel_support.hpp>
#include <support/coroutines.hpp>
#include <support/test.hpp>

using namespace channel_model;
using bide::on_acquire;
using bide::on_event;
using bide::on_recv;
using bide::on_send;

namespace {

using channel = basic_channel<awake>;
using semaphore = bide::basic_semaphore<awake>;
using event = bide::basic_event<awake>;

using signal_case = bide::basic_select_case<std::monostate, awake>;
using bide::detail::signal_payload;

signal_case timed(signal_payload::kind how) {
    return {bide::detail::signal_wait<awake>(), {how, bide::detail::select_timeout(soon)}};
}
signal_case on_timeout() { return timed(signal_payload::kind::timeout); }
signal_case on_deadline() { return timed(signal_payload::kind::deadline); }

// A stop source as one select meets it. A request runs the select's callback on its own thread; to
// take the callback out waits until it has run.
class stop_source {
    using lock = bide::lock_bits<awake, bide::futex_word>;
    using node = bide::basic_waiter<awake>;

public:
    void request() noexcept {
        lock::acquire(lock_);
        requested_ = true;
        if (waiting_ != nullptr) {
            bide::detail::end_by<awake>(waiting_);
        }
        lock::release(lock_);
    }
    signal_case on_stop() noexcept { return {stop_wait{*this}, signal_payload()}; }

private:
    bool is_requested(node* waiting) noexcept {
        lock::acquire(lock_);
        const bool requested = requested_;
        waiting_ = requested ? nullptr : waiting;
        lock::release(lock_);
        return requested;
    }

    struct stop_wait {
        stop_source& of;

        wait_status try_now() const noexcept {
            return of.is_requested(nullptr) ? wait_status::granted : wait_status::waiting;
        }
        wait_status enqueue(node& w) const noexcept {
            if (!of.is_requested(&w) || !w.claim()) {
                return wait_status::waiting;
            }
            w.commit();
            w.settle(wait_status::granted);
            return wait_status::granted;
        }
        bool cancel(node&, wait_status) const noexcept {
            of.is_requested(nullptr);
            return true;
        }
    };

    awake::atomic<bide::futex_word> lock_{0};
    var<bool> requested_{false};
    var<node*> waiting_{nullptr};
};

// What a case that sends made of its item.
bool is_gone(const item& i) { return i.value == 0; }

// 0: nothing was received.
template <std::size_t I, class Selected> int received(Selected& s) {
    return s.index() == I ? value_of(std::exchange(s.template get<I>(), std::nullopt)) : 0;
}

TEST_CASE("select: takes an item from one of two channels") {
    check("select: one sends", {0, 1}, {}, [](std::size_t n) {
        channel idle(n);
        auto* const c = new channel(n);
        model::thread other([c] { MODEL_REQUIRE(send(*c, 1)); });
        auto s = bide::select(on_recv(idle), on_recv(*c));
        MODEL_REQUIRE(received<1>(s) == 1);
        delete c; // though the other one is inside still
    });
    model::check("select: one sends to both", [] {
        channel a(1);
        channel b(1);
        model::thread other([&] {
            MODEL_REQUIRE(try_send(a, 1));
            MODEL_REQUIRE(try_send(b, 2));
        });
        auto s = bide::select(on_recv(b), on_recv(a));
        const int got = received<0>(s) + received<1>(s);
        other.join();
        MODEL_REQUIRE(got != 0 && got + try_recv(a) + try_recv(b) == 3);
    });
}

TEST_CASE("select: a case that was not chosen takes no permit, no item, no place") {
    model::check("select: an item or a permit", [] {
        channel c(1);
        semaphore s(0);
        model::thread releasing([&] {
            s.release();
            MODEL_REQUIRE(try_send(c, 1));
        });
        auto chosen = bide::select(on_recv(c), on_acquire(s));
        releasing.join();
        MODEL_REQUIRE(s.available() == (chosen.index() == 0 ? 1 : 0));
        MODEL_REQUIRE(received<0>(chosen) + try_recv(c) == 1);
    });
    model::check("select: two permits in part, or an event", [] {
        semaphore s(1);
        event e;
        model::thread setting([&] { e.set(); });
        auto chosen = bide::select(on_acquire(s, 2), on_event(e));
        MODEL_REQUIRE(chosen.index() == 1);
        MODEL_REQUIRE(s.available() == 1 && s.waiters() == 0);
    });
    model::check("select: a place or an event", [] {
        channel c(1);
        try_send(c, 1);
        event e;
        item mine(2);
        model::thread other([&] {
            e.set();
            MODEL_REQUIRE(try_recv(c) == 1);
        });
        auto chosen = bide::select(on_send(c, mine), on_event(e));
        other.join();
        MODEL_REQUIRE(is_gone(mine) == (chosen.index() == 0));
        MODEL_REQUIRE(try_recv(c) == (chosen.index() == 0 ? 2 : 0));
    });
    model::check("select: a time-out or an item", {.timeouts = 1}, [] {
        channel c(1);
        model::thread other([&] { MODEL_REQUIRE(try_send(c, 1)); });
        auto chosen = bide::select(on_recv(c), on_timeout());
        other.join();
        MODEL_REQUIRE(received<0>(chosen) + try_recv(c) == 1);
    });
    model::check("select: a closed channel", [] {
        channel a(1);
        channel b(1);
        model::thread closing([&] { MODEL_REQUIRE(a.close()); });
        auto chosen = bide::select(on_recv(b), on_recv(a));
        MODEL_REQUIRE(chosen.index() == 1 && !chosen.get<1>());
    });
}

TEST_CASE("select: a stop or an item, of which one happens and none is lost") {
    check("select: a stop, then an item", {0, 1}, {}, [](std::size_t n) {
        channel c(n);
        stop_source stop;
        bool sent = false;
        model::thread other([&] {
            stop.request();
            sent = try_send(c, 1);
        });
        auto chosen = bide::select(on_recv(c), stop.on_stop());
        other.join();
        MODEL_REQUIRE(received<0>(chosen) + try_recv(c) == (sent ? 1 : 0));
    });
    model::check("select: an item, then a stop", [] {
        channel c(1);
        stop_source stop;
        model::thread other([&] {
            MODEL_REQUIRE(try_send(c, 1));
            stop.request();
        });
        auto chosen = bide::select(stop.on_stop(), on_recv(c));
        other.join();
        MODEL_REQUIRE(received<1>(chosen) + try_recv(c) == 1);
    });
    const auto ready = [] {
        channel c(1);
        try_send(c, 1);
        stop_source stop;
        model::thread other([&] { stop.request(); });
        auto chosen = bide::select(stop.on_stop(), on_recv(c));
        other.join();
        model::record(chosen.index() == 0 ? "stop" : "item");
        MODEL_REQUIRE(received<1>(chosen) + try_recv(c) == 1);
    };
    model::check("select: a stop beside an item that is there", ready);
    CHECK(model::outcomes({}, ready) == "item stop");
    model::check("select: a deadline or an item", {.timeouts = 1}, [] {
        channel c(1);
        model::thread other([&] { MODEL_REQUIRE(try_send(c, 1)); });
        auto chosen = bide::select(on_deadline(), on_recv(c));
        other.join();
        MODEL_REQUIRE(received<1>(chosen) + try_recv(c) == 1);
    });
}

// At each instant there is an item, or a stop is requested.
TEST_CASE("select: without waiting, finds a stop that comes before the item goes") {
    const auto body = [](bool stop_first) {
        channel c(1);
        try_send(c, 1);
        stop_source stop;
        int other = 0;
        model::thread taking([&] {
            stop.request();
            other = try_recv(c);
        });
        int mine = 0;
        bool chosen = false;
        if (stop_first) {
            auto s = bide::try_select_biased(stop.on_stop(), on_recv(c));
            chosen = s.has_value();
            mine = s ? received<1>(*s) : 0;
        } else {
            auto s = bide::try_select_biased(on_recv(c), stop.on_stop());
            chosen = s.has_value();
            mine = s ? received<0>(*s) : 0;
        }
        taking.join();
        MODEL_REQUIRE(chosen);
        MODEL_REQUIRE(mine + other + try_recv(c) == 1);
    };
    model::check("select: no item, though stopped before", [=] { body(false); });
    model::check("select: not stopped yet, then no item", [=] { body(true); });
}

// At each instant there is an item in one of them.
TEST_CASE("select: without waiting, finds what is there, wherever it goes") {
    model::check("select: an item in the second, then in the first", [] {
        channel a(1);
        channel b(1);
        try_send(b, 1);
        int other = 0;
        model::thread moving([&] {
            MODEL_REQUIRE(try_send(a, 2));
            other = try_recv(b);
        });
        auto chosen = bide::try_select_biased(on_recv(a), on_recv(b));
        moving.join();
        MODEL_REQUIRE(chosen);
        MODEL_REQUIRE(received<0>(*chosen) + received<1>(*chosen) + other + try_recv(a) == 3);
    });
}

// Selects from a case of such parts, while act() decides it, and destroys the select at once: its choice is not
// touched after the outcome was published.
template <class Parts> void decide(const char* name, void (*act)(Parts&)) {
    DYNAMIC_SECTION(name) {
        model::check(name, {}, [act] {
            Parts parts;
            event never;
            model::thread other([&] { act(parts); });
            auto chosen = bide::select(parts.one(), on_event(never));
            MODEL_REQUIRE(chosen.index() == 0);
        });
    }
}

struct of_event {
    event e;
    auto one() { return on_event(e); }
};
struct of_semaphore {
    semaphore s{0};
    auto one() { return on_acquire(s); }
};
struct of_channel {
    channel c{1};
    auto one() { return on_recv(c); }
};
struct of_rendezvous {
    channel c{0};
    auto one() { return on_recv(c); }
};
struct of_unbounded {
    bide::basic_unbounded_channel<item, awake> c;
    auto one() { return on_recv(c); }
};
struct of_oneshot {
    std::pair<bide::basic_oneshot_sender<item, awake>, bide::basic_oneshot_receiver<item, awake>>
        ends = bide::oneshot<item, awake>();
    auto one() { return on_recv(ends.second); }
};
struct of_broadcast {
    bide::basic_broadcast<int, awake> b{1};
    bide::basic_broadcast_subscriber<int, awake> s{b.subscribe()};
    auto one() { return on_recv(s); }
};

TEST_CASE("select: a case is decided on the choice before its outcome is published") {
    decide<of_event>("select: an event that is set", [](auto& p) { p.e.set(); });
    decide<of_semaphore>("select: a semaphore that is released", [](auto& p) { p.s.release(); });
    decide<of_semaphore>("select: a semaphore that is closed", [](auto& p) { p.s.close(); });
    decide<of_channel>("select: a channel that is sent to",
                       [](auto& p) { MODEL_REQUIRE(try_send(p.c, 1)); });
    decide<of_rendezvous>("select: a rendezvous", [](auto& p) { MODEL_REQUIRE(send(p.c, 1)); });
    decide<of_channel>("select: a channel that is closed", [](auto& p) { p.c.close(); });
    decide<of_unbounded>("select: an unbounded channel that is sent to",
                         [](auto& p) { MODEL_REQUIRE(try_send(p.c, 1)); });
    decide<of_unbounded>("select: an unbounded channel that is closed",
                         [](auto& p) { p.c.close(); });
    decide<of_oneshot>("select: a oneshot that is sent to", [](auto& p) {
        MODEL_REQUIRE(std::move(p.ends.first).send(item(1)).has_value());
    });
    decide<of_broadcast>("select: a broadcast that is sent to",
                         [](auto& p) { MODEL_REQUIRE(p.b.send(1) == 1); });
    decide<of_broadcast>("select: a broadcast that is closed", [](auto& p) { p.b.close(); });
}

void one_behind_it(std::size_t n) {
    channel a(n);
    channel b(n);
    int other = 0;
    bool sent = false;
    model::thread receiving([&] { other = recv(a); });
    model::thread sending([&] {
        MODEL_REQUIRE(send(a, 1));
        sent = try_send(b, 2);
        a.close();
    });
    auto s = bide::select(on_recv(a), on_recv(b));
    receiving.join();
    sending.join();
    const int mine = received<0>(s) + received<1>(s);
    MODEL_REQUIRE(mine + other + try_recv(b) == (sent ? 3 : 1));
}

void two_send(std::size_t n) {
    channel a(n);
    channel b(n);
    bool left = false;
    model::thread first([&] { left = try_send(a, 1); });
    model::thread second([&] { MODEL_REQUIRE(send(b, 2)); });
    auto s = bide::select(on_recv(a), on_recv(b));
    const int got = received<0>(s) + received<1>(s);
    MODEL_REQUIRE(got == static_cast<int>(s.index()) + 1);
    first.join();
    const int rest = s.index() == 0 ? recv(b) : try_recv(a);
    second.join();
    MODEL_REQUIRE(got + rest == (left ? 3 : 2));
}

TEST_CASE("select: beside a receiver, each item comes once", "[long]") {
    check("select: one behind it", {0, 1}, random_or_long(3'000), one_behind_it);
    check("select: two send", {0, 1}, random_or_long(3'000), two_send);
}

// Each of two channels: what one sends the other receives, once.
void send_to_either_recv_from_either(std::size_t n) {
    channel a(n);
    channel b(n);
    int got = 0;
    model::thread receiving([&] {
        auto s = bide::select(on_recv(b), on_recv(a));
        got = received<0>(s) + received<1>(s);
    });
    item x(1);
    item y(2);
    auto s = bide::select(on_send(a, x), on_send(b, y));
    receiving.join();
    MODEL_REQUIRE(is_gone(x) == (s.index() == 0) && is_gone(y) == (s.index() == 1));
    MODEL_REQUIRE(got == static_cast<int>(s.index()) + 1);
}

// Both could send and receive; in a rendezvous one does the one, one the other.
void exchange(std::size_t n, bool crosswise) {
    channel a(n);
    channel b(n);
    int got = 0;
    bool other_sent = false;
    model::thread other([&] {
        item y(2);
        if (crosswise) {
            auto s = bide::select(on_recv(a), on_send(b, y));
            got = received<0>(s);
        } else {
            auto s = bide::select(on_send(b, y), on_recv(a));
            got = received<1>(s);
        }
        other_sent = is_gone(y);
    });
    item x(1);
    auto s = bide::select(on_send(a, x), on_recv(b));
    other.join();
    const int mine = received<1>(s);
    MODEL_REQUIRE(is_gone(x) == (mine == 0) && other_sent == (got == 0));
    if (n == 0) {
        MODEL_REQUIRE(mine == 2 ? got == 0 : mine == 0 && got == 1);
    }
    MODEL_REQUIRE(mine + got + try_recv(a) + try_recv(b) ==
                  (is_gone(x) ? 1 : 0) + (other_sent ? 2 : 0));
}

TEST_CASE("select: two that select meet once", "[long]") {
    const model::options o = random_or_long(3'000);
    check("select: sends against receives", {0, 1}, o, send_to_either_recv_from_either);
    model::check("select: a send and a receive each, capacity 0", o, [] { exchange(0, false); });
    model::check("select: a send and a receive each, crosswise, capacity 0", o,
                 [] { exchange(0, true); });
    model::check("select: a send and a receive each", o,
                 [] { exchange(1, model::choose(2) == 0); });
}

test::detached select_detached(channel& a, channel& b, var<int>& got) {
    auto s = co_await bide::async_select(on_recv(a), on_recv(b));
    got = received<0>(s) + received<1>(s);
}
test::held select_held(bide::basic_ready_queue<awake>& where, channel& a, channel& b, int& got) {
    auto s = co_await bide::async_select(on_recv(a), on_recv(b)).resume_on(where);
    got = received<0>(s) + received<1>(s);
}

TEST_CASE("select: a coroutine goes on once, when all its cases are queued") {
    model::check("select: a coroutine, one sends to both", [] {
        channel a(1);
        channel b(1);
        var<int> got{0};
        model::thread sending([&] {
            MODEL_REQUIRE(try_send(a, 1));
            MODEL_REQUIRE(try_send(b, 2));
        });
        select_detached(b, a, got);
        sending.join();
        MODEL_REQUIRE(got != 0 && got + try_recv(a) + try_recv(b) == 3);
    });
    model::check("select: a coroutine, one sends, capacity 0", [] {
        channel a(0);
        channel b(0);
        var<int> got{0};
        model::thread sending([&] { MODEL_REQUIRE(send(b, 1)); });
        select_detached(a, b, got);
        sending.join();
        MODEL_REQUIRE(got == 1);
    });
}

// What a time-out of the whole select does, on a thread of its own.
TEST_CASE("select: one that is ended from outside goes on once, after all are queued") {
    model::check("select: ended while its cases are queued", [] {
        channel a(1);
        channel b(1);
        auto wait = bide::async_select(on_recv(a), on_recv(b)).as_case();
        MODEL_REQUIRE(wait.ops->try_now(wait.target) == wait_status::waiting);
        bide::basic_waiter<awake> owner;
        var<int> queues{0};
        var<int> ends{0};
        model::thread ending([&] {
            ends = 1;
            if (wait.ops->cancel(wait.target, owner, wait_status::timed_out)) {
                MODEL_REQUIRE(queues == 1); // it goes on here
                owner.publish(wait_status::timed_out);
            }
        });
        queues = 1;
        if (!wait.ops->enqueue(wait.target, owner)) {
            await(owner);
        }
        MODEL_REQUIRE(ends == 1);
        const auto nothing = wait.ops->collect(wait.target, owner.outcome());
        MODEL_REQUIRE(!nothing && nothing.error() == bide::errc::timeout);
    });
}

TEST_CASE("select: the item of a select that is destroyed goes to a waiter") {
    const auto body = [] {
        channel a(1);
        channel b(1);
        bide::basic_ready_queue<awake> mine; // which is dropped with what is inside
        int got = 0;
        int next = 0;
        {
            test::held h = select_held(mine, a, b, got);
            h.start();
            model::thread receiving([&] { next = recv(a); });
            MODEL_REQUIRE(try_send(a, 1)); // it has returned when the other is destroyed
            h.destroy();
            a.close();
        }
        MODEL_REQUIRE(got == 0 && next == 1);
    };
    model::check("select: destroyed with its item", body);
}

} // namespace
