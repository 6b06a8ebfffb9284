#ifndef BIDE_TESTS_SUPPORT_CHANNEL_WAITS_HPP
#define BIDE_TESTS_SUPPORT_CHANNEL_WAITS_HPP

// Waits on a channel, of threads and of coroutines, and their outcomes.

#include <bide/channel/channel.hpp>
#include <support/coroutines.hpp>
#include <support/standard.hpp>
#include <support/waiting.hpp>

namespace test::channel_waits {

using namespace std::chrono_literals;

using bide::errc;
using std::chrono::steady_clock;
using ints = std::vector<int>;
using channel = bide::channel<int>;
template <class T> using sent = bide::result<void, bide::send_error<T>>;

inline ints numbers(int from, int to) {
    ints all(static_cast<std::size_t>(to - from));
    std::iota(all.begin(), all.end(), from);
    return all;
}

template <class R> bool is(const R& got, errc why) { return !got && got.error() == why; }
template <class T> bool came_back(const sent<T>& got, errc why, const T& value) {
    return !got && got.error().code == why && got.error().value == value;
}

template <class Channel> ints take_all(Channel& ch) {
    ints out;
    while (const auto got = ch.try_recv()) {
        out.push_back(*got);
    }
    return out;
}
template <class Channel> void fill(Channel& ch) {
    for (int i = 0; ch.try_send(i); ++i) {
    }
}

// ---- Threads, in each form of a wait that lasts until it is served.

inline constexpr int forms_of_send = 4;
template <class Channel> sent<int> send_by(int form, Channel& ch, int value, std::stop_token stop) {
    switch (form % forms_of_send) {
    case 0: return ch.send(value);
    case 1: return ch.send(stop, value);
    case 2: return ch.try_send_for(value, 1h);
    default: return ch.try_send_until(value, steady_clock::time_point::max());
    }
}
// Nothing: closed.
inline constexpr int forms_of_recv = 6;
template <class Channel> std::optional<int> recv_by(int form, Channel& ch, std::stop_token stop) {
    const auto item = [](bide::result<int> got) {
        return got ? std::optional(*got) : std::nullopt;
    };
    switch (form % forms_of_recv) {
    case 0: return ch.recv();
    case 1: return item(ch.recv(stop));
    case 2: return item(ch.try_recv_for(1h));
    case 3: return item(ch.try_recv_until(std::chrono::system_clock::time_point::max()));
    case 4: {
        ints out;
        return ch.recv_n(out, 1) == 1 ? std::optional(out.at(0)) : std::nullopt;
    }
    default: {
        auto at = ch.begin();
        return at != ch.end() ? std::optional(*at) : std::nullopt;
    }
    }
}

// ---- Coroutines: one operation each, and what came of it.

template <class T> struct ending {
    std::optional<T> out;
    std::thread::id on;
    std::atomic<bool> done{false}; // the last that is written
};
template <class Op> using ending_of = ending<typename Op::value_type>;

template <class Coroutine, class Op> Coroutine await_as(Op op, ending_of<Op>& to) {
    auto got = co_await std::move(op);
    to.out.emplace(std::move(got));
    to.on = test::this_thread();
    to.done = true;
}
template <class Op> test::held hold(Op op, ending_of<Op>& to) {
    return await_as<test::held>(std::move(op), to);
}
template <class Op> void let_go(Op op, ending_of<Op>& to) {
    await_as<test::detached>(std::move(op), to);
}
template <class T> bool ends(const ending<T>& e) {
    return test::eventually([&] { return e.done.load(); });
}

using send_ending = ending<sent<int>>;
using recv_ending = ending<std::optional<int>>;
using limited_ending = ending<bide::result<std::optional<int>>>;

inline bool is_sent(const send_ending& e) { return e.done && e.out->has_value(); }
inline bool is_back(const send_ending& e, errc why, int value) {
    return e.done && came_back(*e.out, why, value);
}
inline bool has(const recv_ending& e, int value) { return e.done && *e.out == value; }
inline bool is_closed(const recv_ending& e) { return e.done && !e.out->has_value(); }

template <class Channel> test::detached send_each(Channel& ch, ints values) {
    for (const int value : values) {
        const auto got = co_await ch.async_send(value);
        if (!got) {
            co_return;
        }
    }
}

} // namespace test::channel_waits

#endif
