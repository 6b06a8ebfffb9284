// priority_channel and sliding_channel, which share a lock and two queues (locked_core.hpp): what is
// sent is received once, by a waiter or a later receiver, or displaced. Every waiter that can
// proceed does. A thread that has the item, or saw the channel closed, may destroy the channel.

#include <bide/channel/priority_channel.hpp>
#include <bide/channel/sliding_channel.hpp>
#include <model/core_support.hpp>
#include <support/test.hpp>

using namespace channel_model;

namespace {

struct less_value {
    bool operator()(const item& a, const item& b) const noexcept { return a.value < b.value; }
};

template <class P> using priority = bide::basic_priority_channel<item, less_value, P>;
template <class P> using sliding = bide::basic_sliding_channel<item, P>;
using core = bide::detail::basic_priority_core<item, less_value, awake>;
using window = bide::detail::basic_sliding_core<item, awake>;

// Sends, and returns the number that made room; 0, none.
int displace(window& c, int n) {
    item it(n);
    std::optional<item> old;
    MODEL_REQUIRE(c.send(it, old) == wait_status::granted);
    return value_of(std::move(old));
}

using receiver = receiver_of<core>;
using sender = sender_of<core>;

TEST_CASE("priority_channel: an item reaches the waiter, which may destroy the channel") {
    model::check("priority: one item", one_item<priority<awake>>);
    model::check("sliding: one item", one_item<sliding<awake>>);
    model::check("priority: one item, steps that fail for no reason",
                 {.spurious = 1, .weak_failures = 1}, one_item_for_a_sleeper<core>);
}

TEST_CASE("priority_channel: a sender that waits goes in when an item comes out") {
    model::check("priority: two items through one place", [] {
        core c(1);
        put(c, 2);
        sender s(1);
        model::thread sending([&] { MODEL_REQUIRE(wait_in(c, s) == wait_status::granted); });
        MODEL_REQUIRE(take(c) == 2);
        sending.join();
        MODEL_REQUIRE(take(c) == 1 && take(c) == 0 && c.size() == 0);
    });
}

TEST_CASE("priority_channel: what was sent before close is received, and then it is closed") {
    model::check("priority: send, close", send_and_close<core>);
    model::check("priority: close against a sender that waits, and a receive", [] {
        core c(1);
        put(c, 2);
        sender s(1);
        MODEL_REQUIRE(s.enqueue(c) == wait_status::waiting);
        model::thread closing([&] { MODEL_REQUIRE(c.close()); });
        MODEL_REQUIRE(take(c) == 2);
        const int next = take(c);
        closing.join();
        await(s.w);
        MODEL_REQUIRE(s.outcome() == (next == 1 ? wait_status::granted : wait_status::closed) ||
                      take(c) == 1);
        MODEL_REQUIRE((s.outcome() == wait_status::closed) == (s.value.value == 1));
        MODEL_REQUIRE(!c.close() && c.size() == 0);
    });
    model::check("priority: close against senders that wait, or come to wait", [] {
        core c(1);
        put(c, 4);
        sender first(1);
        sender second(2);
        MODEL_REQUIRE(first.enqueue(c) == wait_status::waiting);
        model::thread closing([&] { MODEL_REQUIRE(c.close()); });
        MODEL_REQUIRE(wait_in(c, second) == wait_status::closed);
        closing.join();
        await(first.w);
        MODEL_REQUIRE(first.outcome() == wait_status::closed);
        MODEL_REQUIRE(first.value.value == 1 && second.value.value == 2);
        MODEL_REQUIRE(take(c) == 4 && take(c) == 0);
    });
    model::check("sliding: close against send", [] {
        window c(1);
        close_against_send(c);
    });
}

void two_send_to_two_that_wait() {
    core c(1);
    receiver a;
    receiver b;
    model::thread one([&] {
        sender s(1);
        MODEL_REQUIRE(wait_in(c, s) == wait_status::granted);
    });
    model::thread two([&] {
        sender s(2);
        MODEL_REQUIRE(wait_in(c, s) == wait_status::granted);
    });
    model::thread other([&] { MODEL_REQUIRE(wait_in(c, b) == wait_status::granted); });
    MODEL_REQUIRE(wait_in(c, a) == wait_status::granted);
    one.join();
    two.join();
    other.join();
    MODEL_REQUIRE(a.take() + b.take() == 3 && c.size() == 0);
}

void two_wait_to_send_and_two_take() {
    core c(1);
    put(c, 4);
    sender a(1);
    sender b(2);
    receiver mine;
    receiver theirs;
    model::thread one([&] { MODEL_REQUIRE(wait_in(c, a) == wait_status::granted); });
    model::thread two([&] { MODEL_REQUIRE(wait_in(c, b) == wait_status::granted); });
    model::thread taking([&] { MODEL_REQUIRE(wait_in(c, theirs) == wait_status::granted); });
    MODEL_REQUIRE(wait_in(c, mine) == wait_status::granted);
    taking.join();
    one.join();
    two.join();
    MODEL_REQUIRE(mine.take() + theirs.take() + take(c) == 7 && c.size() == 0);
}

void two_displace_and_two_take() {
    window c(1);
    int old[2] = {};
    int got[2] = {};
    model::thread one([&] { old[0] = displace(c, 1); });
    model::thread two([&] { old[1] = displace(c, 2); });
    model::thread taking([&] { got[0] = take(c); });
    got[1] = take(c);
    one.join();
    two.join();
    taking.join();
    MODEL_REQUIRE(old[0] + old[1] + got[0] + got[1] + take(c) == 3 && c.size() == 0);
}

TEST_CASE("priority_channel: two senders and two receivers get one item each", "[long]") {
    const model::options o = random_or_long(3'000);
    model::check("priority: two senders, one that waits", two_send_and_one_waits<core>);
    model::check("priority: two receivers, a batch", two_wait_for_a_batch<core>);
    model::check("priority: three senders, then in order", [] {
        core c(3);
        put(c, 2);
        model::thread one([&] { put(c, 1); });
        put(c, 3);
        one.join();
        MODEL_REQUIRE(take(c) == 3 && take(c) == 2 && take(c) == 1);
    });
    model::check("sliding: two senders, one that takes", [] {
        window c(1);
        int theirs = 0;
        model::thread other([&] { theirs = displace(c, 1); });
        int mine = displace(c, 2);
        mine += take(c);
        other.join();
        MODEL_REQUIRE(mine + theirs + take(c) == 3 && c.size() == 0);
    });
    model::check("priority: two send, two wait", o, two_send_to_two_that_wait);
    model::check("priority: two wait to send, two take", o, two_wait_to_send_and_two_take);
    model::check("sliding: two displace, two take", o, two_displace_and_two_take);
}

TEST_CASE("priority_channel: its size is that of one instant") {
    model::check("priority: size of what comes and goes", size_of_what_comes_and_goes<core>);
    model::check("priority: a thread that looks", [] {
        auto* const c = new priority<platform>(1);
        model::thread sending([c] { MODEL_REQUIRE(c->send(item(7))); });
        while (c->empty()) {
            platform::pause();
        }
        MODEL_REQUIRE(value_of(c->recv()) == 7);
        delete c;
    });
}

TEST_CASE("priority_channel: a waiter that gives up has its outcome, or no effect") {
    model::check("priority: a receiver gives up against a send",
                 a_receiver_gives_up_against_a_send<core>);
    model::check("priority: a sender gives up against a receive, another waits behind it", [] {
        core c(1);
        put(c, 4);
        sender s(c, 1);
        sender behind(c, 2);
        int got = 0;
        model::thread receiving([&] { got = take(c); });
        const bool gone = s.cancel(c);
        receiving.join();
        MODEL_REQUIRE(got == 4);
        MODEL_REQUIRE(gone == (s.value.value == 1));
        MODEL_REQUIRE(take(c) == (gone ? 2 : 1));
        MODEL_REQUIRE(behind.outcome() == wait_status::granted);
        MODEL_REQUIRE(take(c) == (gone ? 0 : 2));
    });
    model::check("priority: time-outs on both sides", {.timeouts = 1}, [] {
        priority<awake> c(1);
        MODEL_REQUIRE(c.send(item(2)));
        bool sent = false;
        model::thread sending([&] { sent = c.try_send_for(item(1), soon).has_value(); });
        const int mine = try_recv(c);
        sending.join();
        MODEL_REQUIRE(mine == 2 && try_recv(c) == (sent ? 1 : 0));
    });
    model::check("priority: stopped before it is queued, or while",
                 a_receiver_is_stopped_at_any_time<core>);
    model::check("priority: an item is passed on, to a waiter or a new receiver",
                 an_item_is_passed_on<core>);
    model::check("priority: an item comes back, another is sent, another closes", [] {
        core c(1);
        item gone(1);
        bool passed = false;
        wait_status sent{};
        model::thread passing([&] { passed = c.pass_on(gone); });
        model::thread sending([&] { sent = offer(c, 2); });
        c.close();
        const int got = take(c) + take(c);
        passing.join();
        sending.join();
        MODEL_REQUIRE(!(passed && sent == wait_status::granted)); // there is one place
        MODEL_REQUIRE(got == (passed ? 1 : sent == wait_status::granted ? 2 : 0));
        MODEL_REQUIRE(take(c) == 0 && c.size() == 0);
    });
}

TEST_CASE("priority_channel: one choice of two waits happens once") {
    const auto ring = [](void*) noexcept {};
    model::check("priority: one choice, two channels", one_choice_of_two_channels<core>);
    model::check("priority: one choice, a send and a receive, of two channels", [ring] {
        core full(1);
        core empty(1);
        put(full, 4);
        bide::basic_choice<awake> choice;
        sender s(1);
        receiver r;
        s.w.contest(ring, choice);
        r.w.contest(ring, choice);
        s.enqueue(full);
        r.enqueue(empty);
        model::thread other([&] { put(empty, 2); });
        MODEL_REQUIRE(take(full) == 4);
        other.join();
        const bool sent = s.value.value == 0;
        MODEL_REQUIRE(sent != r.got.has_value());
        MODEL_REQUIRE(take(full) == (sent ? 1 : 0) && take(empty) == (sent ? 2 : 0));
        MODEL_REQUIRE(sent || r.take() == 2);
        s.cancel(full);
        r.cancel(empty);
    });
    model::check("priority: one choice, both sides of one channel", [ring] {
        core c(2);
        bide::basic_choice<awake> choice;
        receiver r;
        sender s(1);
        r.w.contest(ring, choice);
        s.w.contest(ring, choice);
        MODEL_REQUIRE(r.enqueue(c) == wait_status::waiting);
        int theirs = 0;
        model::thread other([&] {
            put(c, 2);
            theirs = take(c);
        });
        const bool sent = s.enqueue(c) == wait_status::granted; // never to r
        other.join();
        const int got = value_of(std::move(r.got));
        MODEL_REQUIRE(!(sent && got != 0));
        MODEL_REQUIRE(got + theirs + take(c) + take(c) == (s.value.value == 0 ? 3 : 2));
        r.cancel(c);
        s.cancel(c);
    });
}

} // namespace
