#ifndef BIDE_TESTS_MODEL_CORE_SUPPORT_HPP
#define BIDE_TESTS_MODEL_CORE_SUPPORT_HPP

// What the models of the channels of priority_channel.hpp, sliding_channel.hpp and unbounded_channel.hpp have in
// common: each has a core with the same functions, and one without a capacity takes none.

#include <model/channel_support.hpp>

#include <support/standard.hpp>

namespace channel_model {

template <class Core> wait_status offer(Core& c, int n) {
    item it(n);
    const wait_status what = c.send(it);
    MODEL_REQUIRE((what == wait_status::granted) == (it.value == 0));
    return what;
}
template <class Core> void put(Core& c, int n) {
    MODEL_REQUIRE(offer(c, n) == wait_status::granted);
}
// 0: there was none.
template <class Core> int take(Core& c) {
    std::optional<item> got;
    c.recv(bide::detail::into(got));
    return value_of(std::move(got));
}

template <class Core> using receiver_of = receiving_from<Core, awake>;
template <class Core> using sender_of = sending_to<Core, awake>;

// With room for so many items.
template <class Core> auto make(std::size_t room) {
    if constexpr (std::is_constructible_v<Core, std::size_t>) {
        return std::make_unique<Core>(room);
    } else {
        return std::make_unique<Core>();
    }
}

// The receiver destroys the channel, though the send has not returned.
template <class Channel> void one_item() {
    auto c = make<Channel>(1);
    var<int> news{0};
    model::thread sending([&news, to = c.get()] {
        news = 1;
        MODEL_REQUIRE(to->send(item(7)));
    });
    MODEL_REQUIRE(value_of(std::optional<item>(c->recv())) == 7);
    MODEL_REQUIRE(news == 1);
    c.reset();
}

template <class Core> void one_item_for_a_sleeper() {
    const auto c = make<Core>(1);
    receiver_of<Core> r;
    model::thread sending([&] { put(*c, 7); });
    if (r.enqueue(*c) == wait_status::waiting) {
        r.w.park(deadline::never());
    }
    MODEL_REQUIRE(r.take() == 7);
}

template <class Core> void send_and_close() {
    auto c = make<Core>(2);
    var<int> news{0};
    model::thread sending([&news, to = c.get()] {
        put(*to, 1);
        news = 1;
        MODEL_REQUIRE(to->close());
    });
    receiver_of<Core> first;
    MODEL_REQUIRE(wait_in(*c, first) == wait_status::granted && first.take() == 1);
    receiver_of<Core> second;
    MODEL_REQUIRE(wait_in(*c, second) == wait_status::closed && news == 1);
    c.reset();
}

template <class Core> void close_against_send(Core& c) {
    wait_status sent{};
    model::thread sending([&] { sent = offer(c, 1); });
    MODEL_REQUIRE(c.close());
    const int now = take(c);
    sending.join();
    MODEL_REQUIRE(now == (sent == wait_status::granted ? 1 : 0)); // never later
}

template <class Core> void two_send_and_one_waits() {
    const auto c = make<Core>(2);
    receiver_of<Core> r;
    MODEL_REQUIRE(r.enqueue(*c) == wait_status::waiting);
    model::thread left([&] { put(*c, 1); });
    put(*c, 2);
    left.join();
    MODEL_REQUIRE(r.outcome() == wait_status::granted);
    MODEL_REQUIRE(r.take() + take(*c) == 3 && c->size() == 0);
}

template <class Core> void two_wait_for_a_batch() {
    const auto c = make<Core>(2);
    receiver_of<Core> a;
    receiver_of<Core> b;
    model::thread other([&] { b.enqueue(*c); });
    a.enqueue(*c);
    item two[] = {item(1), item(2)};
    MODEL_REQUIRE(c->send_n([&](std::size_t i) noexcept -> item& { return two[i]; }, 2) == 2);
    other.join();
    await(a.w);
    await(b.w);
    MODEL_REQUIRE(a.take() + b.take() == 3);
}

template <class Core> void size_of_what_comes_and_goes() {
    const auto c = make<Core>(1);
    model::thread other([&] {
        for (int n = 1; n <= 2; ++n) {
            put(*c, n);
            MODEL_REQUIRE(take(*c) == n);
        }
    });
    MODEL_REQUIRE(c->size() <= 1);
    other.join();
    MODEL_REQUIRE(c->size() == 0);
}

template <class Core> void a_receiver_gives_up_against_a_send() {
    const auto c = make<Core>(1);
    receiver_of<Core> r;
    r.enqueue(*c);
    model::thread sending([&] { put(*c, 1); });
    if (r.cancel(*c)) {
        sending.join();
        MODEL_REQUIRE(c->size() == 1 && take(*c) == 1 && !r.got);
    } else {
        await(r.w);
        MODEL_REQUIRE(r.take() == 1);
    }
}

template <class Core> void a_receiver_is_stopped_at_any_time() {
    const auto c = make<Core>(1);
    receiver_of<Core> r;
    model::thread stopping([&] { stop(*c, r); });
    if (r.enqueue(*c) == wait_status::waiting) {
        r.w.park(deadline::never());
    }
    stopping.join();
    MODEL_REQUIRE(r.outcome() == wait_status::stopped);
}

// To a waiter or a new receiver.
template <class Core> void an_item_is_passed_on() {
    const auto c = make<Core>(1);
    receiver_of<Core> r;
    model::thread receiving([&] {
        if (r.enqueue(*c) == wait_status::waiting) {
            r.w.park(deadline::never());
        }
        MODEL_REQUIRE(r.outcome() == wait_status::granted && r.take() == 1);
    });
    item gone(1);
    MODEL_REQUIRE(c->pass_on(gone));
}

template <class Core> void one_choice_of_two_channels() {
    const auto ring = [](void*) noexcept {};
    const auto a = make<Core>(1);
    const auto b = make<Core>(1);
    bide::basic_choice<awake> choice;
    receiver_of<Core> in_a;
    receiver_of<Core> in_b;
    in_a.w.contest(ring, choice);
    in_b.w.contest(ring, choice);
    in_a.enqueue(*a);
    in_b.enqueue(*b);
    model::thread other([&] { put(*b, 2); });
    put(*a, 1);
    other.join();
    const int got = in_a.take() + in_b.take();
    MODEL_REQUIRE(got + take(*a) + take(*b) == 3 && (got == 1 || got == 2));
    in_a.cancel(*a);
    in_b.cancel(*b);
}

} // namespace channel_model

#endif
