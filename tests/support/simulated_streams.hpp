#ifndef BIDE_TESTS_SUPPORT_SIMULATED_STREAMS_HPP
#define BIDE_TESTS_SUPPORT_SIMULATED_STREAMS_HPP

// Producers and consumers of streams in simulated time.

#include <bide/channel/channel.hpp>
#include <bide/stream/stream.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>
#include <support/simulated.hpp>
#include <support/standard.hpp>

namespace test {

// Sends 0, 1, ... at these times, and closes the channel.
inline bide::task<> send_at(bide::channel<int>& to, std::vector<std::chrono::milliseconds> times,
                            std::chrono::milliseconds end) {
    int n = 0;
    for (const auto at : times) {
        co_await bide::this_task::sleep_for(at - bide::test::now());
        static_cast<void>(to.try_send(n++));
    }
    co_await bide::this_task::sleep_for(end - bide::test::now());
    to.close();
}

// All items, with the times at which they came. The consumer is busy for a while after each item.
template <class T> using timed = std::vector<std::pair<std::chrono::nanoseconds, T>>;
template <bide::stream S>
bide::task<timed<std::remove_cvref_t<bide::stream_item_t<S>>>>
consume_timed(S from, std::chrono::milliseconds busy = std::chrono::milliseconds(0)) {
    timed<std::remove_cvref_t<bide::stream_item_t<S>>> all;
    while (auto item = co_await bide::detail::next_of(from)) {
        all.emplace_back(bide::test::now(), static_cast<bide::stream_item_t<S>&&>(*item));
        co_await bide::this_task::sleep_for(busy);
    }
    co_return all;
}

} // namespace test

#endif
