// unbounded_channel and handles: what is sent is received, by a waiter or a later receiver. A thread
// that has the item, or saw the channel closed, may destroy the channel. The last handle of a side
// closes it, the last user frees it, once.

#include <bide/channel/handles.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <model/core_support.hpp>
#include <support/coroutines.hpp>
#include <support/test.hpp>

using namespace channel_model;

namespace {

template <class P> using channel = bide::basic_unbounded_channel<item, P>;
using core = bide::detail::basic_unbounded_core<item, awake>;

using waiting = receiver_of<core>;

TEST_CASE("unbounded_channel: an item reaches the waiter, which may destroy the channel") {
    model::check("unbounded: one item", one_item<channel<awake>>);
    model::check("unbounded: a thread that looks", [] {
        auto* const c = new channel<platform>;
        model::thread sending([c] { MODEL_REQUIRE(c->send(item(7))); });
        while (c->empty()) {
            platform::pause();
        }
        delete c; // and the item
    });
    model::check("unbounded: one item, steps that fail for no reason",
                 {.spurious = 1, .weak_failures = 1}, one_item_for_a_sleeper<core>);
}

TEST_CASE("unbounded_channel: items come in order, over segments") {
    model::check("unbounded: three items", [] {
        auto* const c = new core;
        put(*c, 1);
        put(*c, 2); // the first segment is full
        model::thread sending([c] { put(*c, 3); });
        MODEL_REQUIRE(take(*c) == 1);
        MODEL_REQUIRE(take(*c) == 2);
        waiting r;
        wait_in(*c, r);
        MODEL_REQUIRE(r.take() == 3);
        delete c;
    });
}

TEST_CASE("unbounded_channel: what was sent before close is received, and then it is closed") {
    model::check("unbounded: send, close", send_and_close<core>);
    model::check("unbounded: close against send", [] {
        channel<awake> c;
        bool sent = false;
        model::thread sending([&] { sent = c.send(item(1)).has_value(); });
        MODEL_REQUIRE(c.close());
        const int now = recv(c);
        sending.join();
        MODEL_REQUIRE(now == (sent ? 1 : 0)); // never later
        MODEL_REQUIRE(!c.close() && c.is_closed() && c.empty());
    });
    model::check("unbounded: two close", [] {
        channel<platform> c;
        bool other = false;
        model::thread closing([&] { other = c.close(); });
        const bool mine = c.close();
        closing.join();
        MODEL_REQUIRE(mine != other);
    });
}

TEST_CASE("unbounded_channel: two senders and a waiter, two waiters and a batch") {
    model::check("unbounded: two senders", two_send_and_one_waits<core>);
    model::check("unbounded: two receivers", two_wait_for_a_batch<core>);
    model::check("unbounded: two take", [] {
        core c;
        put(c, 1);
        int theirs = 0;
        model::thread other([&] { theirs = take(c); });
        const int mine = take(c);
        other.join();
        MODEL_REQUIRE(mine + theirs == 1 && c.size() == 0);
    });
}

void two_send_and_receive() {
    core c;
    const auto send_and_receive = [&c](int n) {
        put(c, n);
        return take(c);
    };
    int theirs = 0;
    model::thread other([&] { theirs = send_and_receive(1); });
    const int mine = send_and_receive(2);
    other.join();
    MODEL_REQUIRE(mine != 0 && theirs != 0 && mine + theirs == 3); // neither finds it empty
}

void two_wait_and_two_send() {
    core c;
    waiting a;
    waiting b;
    model::thread one([&] { put(c, 1); });
    model::thread two([&] { put(c, 2); });
    model::thread other([&] { wait_in(c, b); });
    wait_in(c, a);
    other.join();
    MODEL_REQUIRE(a.take() + b.take() == 3);
}

void two_send_and_two_take() {
    core c;
    put(c, 1);
    model::thread one([&] { put(c, 2); });
    model::thread two([&] { put(c, 4); });
    int theirs = 0;
    model::thread receiving([&] { theirs = take(c); });
    int mine = 0;
    c.recv_n([&mine](item& i) noexcept { mine += item(std::move(i)).take(); }, 2);
    receiving.join();
    one.join();
    two.join();
    MODEL_REQUIRE(mine + theirs + take(c) + take(c) == 7 && c.size() == 0);
}

void two_pass_on_beside_a_waiter() {
    core c;
    put(c, 4);
    model::thread one([&] {
        item gone(1);
        MODEL_REQUIRE(c.pass_on(gone));
    });
    model::thread two([&] { put(c, 2); });
    waiting r;
    r.enqueue(c);
    const int mine = take(c);
    one.join();
    two.join();
    await(r.w);
    MODEL_REQUIRE(r.take() + mine + take(c) + take(c) == 7 && c.size() == 0);
}

TEST_CASE("unbounded_channel: receivers that take the senders' items keep the order", "[long]") {
    const model::options o = random_or_long(3'000);
    model::check("unbounded: two take what comes", [] {
        core c;
        put(c, 1);
        put(c, 2);
        int theirs = 0;
        model::thread other([&] {
            put(c, 3);
            theirs = take(c);
        });
        const int first = take(c);
        const int second = take(c);
        other.join();
        MODEL_REQUIRE(first != 0 && theirs != 0 && (second == 0 || first < second));
        MODEL_REQUIRE(first + second + theirs + take(c) == 6 && c.size() == 0);
    });
    model::check("unbounded: two send and receive", model::brief_or_long(o, {}),
                 two_send_and_receive);
    model::check("unbounded: two wait, two send", o, two_wait_and_two_send);
    model::check("unbounded: two send, two take", o, two_send_and_two_take);
    model::check("unbounded: one comes back, one is sent", o, two_pass_on_beside_a_waiter);
}

TEST_CASE("unbounded_channel: a send that needs no memory meets a waiter and a close") {
    // Leaves an empty segment on each side.
    const auto use = [](core& c) {
        for (int n = 1; n <= 2; ++n) {
            put(c, n);
            MODEL_REQUIRE(take(c) == n);
        }
    };
    model::check("unbounded: a used channel, a waiter", [use] {
        core c;
        use(c);
        waiting r;
        model::thread sending([&] { put(c, 7); });
        wait_in(c, r);
        MODEL_REQUIRE(r.take() == 7);
    });
    model::check("unbounded: a used channel, close against send", [use] {
        core c;
        use(c);
        close_against_send(c);
    });
}

TEST_CASE("unbounded_channel: its size is that of one instant") {
    model::check("unbounded: size of one item that comes and goes",
                 size_of_what_comes_and_goes<core>);
    model::check("unbounded: size, one sends and one receives", [] {
        core c;
        model::thread sending([&] { put(c, 1); });
        model::thread receiving([&] { take(c); });
        MODEL_REQUIRE(c.size() <= 1);
    });
    model::check("unbounded: size of an item that goes and comes back", [] {
        core c;
        put(c, 1);
        model::thread other([&] {
            item it(take(c));
            MODEL_REQUIRE(c.pass_on(it));
        });
        MODEL_REQUIRE(c.size() <= 1);
    });
}

TEST_CASE("unbounded_channel: a receiver that finds it closed sees all that was sent before") {
    model::check("unbounded: closed, and nothing left", [] {
        core c;
        var<int> news{0};
        model::thread sending([&] {
            put(c, 1);
            news = 1;
            c.close();
        });
        std::optional<item> got;
        // Never closed: the item was sent before.
        MODEL_REQUIRE(c.recv(bide::detail::into(got)) != wait_status::closed);
        const int first = value_of(std::move(got));
        got.reset();
        if (first == 1 && c.recv(bide::detail::into(got)) == wait_status::closed) {
            MODEL_REQUIRE(news == 1);
        }
        sending.join();
    });
}

TEST_CASE("unbounded_channel: a receiver that gives up has the item, or leaves it inside") {
    model::check("unbounded: cancel against send", a_receiver_gives_up_against_a_send<core>);
    model::check("unbounded: time-out against send", {.timeouts = 1}, [] {
        channel<awake> c;
        model::thread sending([&] { MODEL_REQUIRE(c.send(item(1))); });
        auto got = c.try_recv_for(soon);
        sending.join();
        MODEL_REQUIRE((got ? got->take() : 0) + try_recv(c) == 1);
    });
    model::check("unbounded: stopped before it is queued, or while",
                 a_receiver_is_stopped_at_any_time<core>);
    model::check("unbounded: an item is passed on, to a waiter or a new receiver",
                 an_item_is_passed_on<core>);
    model::check("unbounded: an item comes back, another is received", [] {
        core c;
        put(c, 2);
        item gone(1);
        model::thread passing([&] { MODEL_REQUIRE(c.pass_on(gone)); });
        const int got = take(c);
        passing.join();
        MODEL_REQUIRE(got != 0 && got + take(c) == 3 && c.size() == 0);
    });
    model::check("unbounded: an item comes back, another closes", [] {
        core c;
        item gone(1);
        bool passed = false;
        model::thread passing([&] { passed = c.pass_on(gone); });
        c.close();
        const int got = take(c);
        passing.join();
        MODEL_REQUIRE(got == (passed ? 1 : 0)); // nothing comes once it was drained
        MODEL_REQUIRE(take(c) == 0 && c.size() == 0);
    });
}

TEST_CASE("unbounded_channel: one choice of two channels gets one item") {
    model::check("unbounded: one choice", one_choice_of_two_channels<core>);
    model::check("unbounded: one choice, both at once", [] {
        core a;
        core b;
        bide::basic_choice<awake> choice;
        waiting in_a;
        in_a.w.contest([](void*) noexcept {}, choice);
        item it(2);
        bide::basic_waiter<awake> in_b;
        in_b.carry(it);
        in_b.contest([](void*) noexcept {}, choice);
        model::thread other([&] { put(a, 1); });
        in_a.enqueue(a);
        const wait_status sent = b.enqueue(in_b, side::sending);
        other.join();
        MODEL_REQUIRE((sent == wait_status::granted) == !in_a.got);
        MODEL_REQUIRE(sent == wait_status::granted ? take(b) == 2 && take(a) == 1
                                                   : in_a.take() == 1 && b.size() == 0);
        in_a.cancel(a);
    });
}

template <class P> using sender = bide::basic_unbounded_sender<item, P>;
template <class P> using receiver = bide::basic_unbounded_receiver<item, P>;

// A handle that is given up by a thread.
template <class Handle> auto give_up(std::optional<Handle>& h) {
    return [&h] { h.reset(); };
}

TEST_CASE("handles: the last sender and the last receiver go at once") {
    model::check("handles: unbounded, an item inside", [] {
        auto [tx, rx] = bide::make_unbounded_channel<item, platform>();
        MODEL_REQUIRE(tx.send(item(1)));
        std::optional<sender<platform>> last(std::move(tx));
        model::thread leaving(give_up(last));
        const auto gone = std::move(rx);
    });
    model::check("handles: bounded, an item inside", [] {
        auto [tx, rx] = bide::make_channel<item, awake>(1);
        MODEL_REQUIRE(tx.try_send(item(1)));
        std::optional<bide::basic_sender<item, awake>> last(std::move(tx));
        model::thread leaving(give_up(last));
        const auto gone = std::move(rx);
    });
}

TEST_CASE("handles: a send against the last receiver is received, discarded or comes back") {
    model::check("handles: send, last receiver", [] {
        auto [tx, rx] = bide::make_unbounded_channel<item, platform>();
        std::optional<receiver<platform>> last(std::move(rx));
        model::thread leaving(give_up(last));
        auto sent = tx.send(item(1));
        if (!sent) {
            MODEL_REQUIRE(std::move(sent).error().value.take() == 1);
        }
    });
}

TEST_CASE(
    "handles: a thread that sees the channel closed sees what was done before each handle went") {
    model::check("handles: two senders go", [] {
        auto [tx, rx] = bide::make_unbounded_channel<item, awake>();
        std::optional<sender<awake>> one(tx);
        std::optional<sender<awake>> two(std::move(tx));
        var<int> first{0};
        var<int> second{0};
        model::thread leaving(model::after_writing(first, [&] { one.reset(); }));
        model::thread also(model::after_writing(second, [&] { two.reset(); }));
        MODEL_REQUIRE(!rx.recv());
        MODEL_REQUIRE(first == 1 && second == 1);
    });
    model::check("handles: two receivers go", [] {
        auto [tx, rx] = bide::make_unbounded_channel<item, awake>();
        std::optional<receiver<awake>> one(rx);
        std::optional<receiver<awake>> two(std::move(rx));
        var<int> first{0};
        var<int> second{0};
        model::thread leaving(model::after_writing(first, [&] { one.reset(); }));
        second = 1;
        two.reset();
        if (!tx.send(item(1))) {
            MODEL_REQUIRE(first == 1 && second == 1);
        }
    });
    model::check("handles: copied while another goes", [] {
        auto [tx, rx] = bide::make_unbounded_channel<item, awake>();
        std::optional<sender<awake>> one(tx);
        model::thread leaving([&] {
            const sender<awake> copy(*one);
            one.reset();
        });
        const sender<awake> gone(std::move(tx));
        MODEL_REQUIRE(!rx.is_closed());
    });
}

template <class Receiver> test::detached receive_once(Receiver from, var<int>& got) {
    std::optional<item> it = co_await from.async_recv();
    got = it ? it->take() : -1;
}

TEST_CASE("handles: an operation that waits keeps the channel, and may be the last to have it") {
    model::check("handles: a coroutine that waits, the last sender", [] {
        auto [tx, rx] = bide::make_unbounded_channel<item, awake>();
        std::optional<sender<awake>> last(std::move(tx));
        var<int> got{0};
        model::thread leaving(give_up(last));
        receive_once(std::move(rx), got);
        leaving.join();
        MODEL_REQUIRE(got == -1);
    });
    model::check("handles: a coroutine that waits, a send, the last sender", [] {
        auto [tx, rx] = bide::make_unbounded_channel<item, awake>();
        var<int> got{0};
        std::optional<sender<awake>> last(std::move(tx));
        model::thread leaving([&] {
            MODEL_REQUIRE(last->send(item(3)) || got == 0);
            last.reset();
        });
        receive_once(std::move(rx), got);
        leaving.join();
        MODEL_REQUIRE(got == 3);
    });
}

} // namespace
