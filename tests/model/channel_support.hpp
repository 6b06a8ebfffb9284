#ifndef BIDE_TESTS_MODEL_CHANNEL_SUPPORT_HPP
#define BIDE_TESTS_MODEL_CHANNEL_SUPPORT_HPP

// What the models of channel/ are made of.

#include <bide/channel/channel.hpp>
#include <model/check.hpp>
#include <model/sync_support.hpp>

#include <support/standard.hpp>

namespace channel_model {

using namespace sync_model;
using awake = model::platform_without_lock_sleep;

// Positions that wrap soon.
using stamp = std::uint16_t;

// What goes through: plain data, so a move that nothing orders is a race, and moved but once.
struct item {
    item(int v) noexcept : value(v) {}
    item(item&& from) noexcept : value(from.take()) {}
    item& operator=(item&& from) noexcept {
        value = from.take();
        return *this;
    }

    int take() noexcept {
        const int v = value;
        MODEL_REQUIRE(v != 0);
        value = 0;
        return v;
    }

    var<int> value; // 0: moved from
};

template <class Platform> using basic_channel = bide::basic_channel<item, Platform, stamp>;
template <class Platform>
using basic_core = bide::detail::basic_channel_core<item, Platform, stamp>;
using bide::detail::side;

// 0: there was none.
inline int value_of(std::optional<item>&& received) noexcept {
    return received ? received->take() : 0;
}
template <class Channel> int recv(Channel& c) { return value_of(c.recv()); }
template <class Channel> int try_recv(Channel& c) {
    auto received = c.try_recv();
    return received ? received->take() : 0;
}

// True: it was sent. If not, it came back.
template <class Sent> bool is_sent(Sent&& sent, int v) {
    MODEL_REQUIRE(sent || sent.error().value.value == v);
    return sent.has_value();
}
template <class Channel> bool send(Channel& c, int v) { return is_sent(c.send(item(v)), v); }
template <class Channel> bool try_send(Channel& c, int v) {
    return is_sent(c.try_send(item(v)), v);
}

// The same below the channel's face, without ever waiting.
template <class Platform> wait_status offer(basic_core<Platform>& c, int v) noexcept {
    item i(v);
    const wait_status what = c.send(i);
    MODEL_REQUIRE((what == wait_status::granted) == (i.value == 0));
    return what;
}
// In as few steps as there are, again until all are in.
template <class Platform>
void put_all(basic_core<Platform>& c, std::array<item, 2> items) noexcept {
    for (std::size_t done = 0; done < items.size();) {
        const std::size_t n = c.send_n(
            [&](std::size_t i) noexcept -> item& { return items[done + i]; }, items.size() - done);
        done += n;
        if (n == 0) {
            platform::pause();
        }
    }
}
template <class Platform> wait_status poll(basic_core<Platform>& c, int& v) noexcept {
    return c.recv([&v](item& i) noexcept { v = item(std::move(i)).take(); });
}
template <class Platform> int poll(basic_core<Platform>& c) noexcept {
    int v = 0;
    poll(c, v);
    return v;
}
// Tries until there is a place, or an item.
template <class Platform> void put(basic_core<Platform>& c, int v) noexcept {
    item i(v);
    while (c.send(i) != wait_status::granted) {
        platform::pause();
    }
}
template <class Platform> int get(basic_core<Platform>& c) noexcept {
    int v = 0;
    while (poll(c, v) != wait_status::granted) {
        platform::pause();
    }
    return v;
}

// A node, and what it is to bring or to take along. Whose it is looks, and does not sleep. With a channel, it waits there
// when the body begins.
template <class Core, class Platform, side Which> struct basic_wait {
    using core = Core;
    static constexpr side which = Which;

    wait_status enqueue(Core& c) noexcept { return c.enqueue(w, Which); }
    bool cancel(Core& c) noexcept { return c.cancel(w, Which, wait_status::stopped); }
    wait_status outcome() const noexcept { return w.outcome(); }

    bide::basic_waiter<Platform> w;
};
template <class Core, class Platform>
struct receiving_from : basic_wait<Core, Platform, side::receiving> {
    receiving_from() noexcept { this->w.carry(to); }
    explicit receiving_from(Core& c) noexcept : receiving_from() { this->enqueue(c); }
    int take() noexcept { return value_of(std::exchange(got, std::nullopt)); }

    std::optional<item> got;
    bide::detail::destination to{got};
};
template <class Core, class Platform>
struct sending_to : basic_wait<Core, Platform, side::sending> {
    explicit sending_to(int v) noexcept : value(v) { this->w.carry(value); }
    sending_to(Core& c, int v) noexcept : sending_to(v) { this->enqueue(c); }
    bool is_gone() const noexcept { return value.value == 0; }

    item value;
};
template <class Platform> using basic_receiving = receiving_from<basic_core<Platform>, Platform>;
template <class Platform> using basic_sending = sending_to<basic_core<Platform>, Platform>;

// What a stop does, on the thread that requests it (thread_wait::until).
template <class Core, class Wait> void stop(Core& c, Wait& wait) {
    if (!wait.w.is_complete() && wait.cancel(c)) {
        wait.w.publish(wait_status::stopped);
    }
}

// Queues it and waits for the outcome.
template <class Core, class Wait> wait_status wait_in(Core& c, Wait& wait) {
    if (wait.enqueue(c) == wait_status::waiting) {
        await(wait.w);
    }
    return wait.outcome();
}

// One case for each capacity.
template <class Body>
void check(const std::string& name, std::vector<std::size_t> capacities, model::options o,
           const Body& body) {
    for (const std::size_t n : capacities) {
        model::check(name + ", capacity " + std::to_string(n), o, [&body, n] { body(n); });
    }
}

} // namespace channel_model

#endif
