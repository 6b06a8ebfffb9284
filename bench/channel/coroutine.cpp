// A coroutine on one thread sends to a coroutine on another. Peers do the same with threads;
// Boost.Fiber's are fibers.

#include "channel/job.hpp"
#include "channel/peers.hpp"
#include "channel/workloads.hpp"

#include <bide/channel/channel.hpp>
#include <bide/task/task.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace bench {
namespace {

bide::task<std::uint64_t> send_all(bide::channel<message>& to, std::uint64_t messages) {
    for (message m = 0; m < messages; ++m) {
        static_cast<void>(co_await to.async_send(m));
    }
    co_return 0;
}

bide::task<std::uint64_t> recv_all(bide::channel<message>& from, std::uint64_t messages) {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < messages; ++i) {
        sum += *co_await from.async_recv();
    }
    co_return sum;
}

double by_coroutines(const job& j) {
    bide::channel<message> channel(j.capacity);
    return run_job(j, 2, [&](std::size_t i) {
        return bide::sync_wait(i == 0 ? send_all(channel, j.messages)
                                      : recv_all(channel, j.messages));
    });
}

template <class Channel> double by_threads(const job& j) {
    Channel channel(j.capacity);
    return run_job(j, 2, [&](std::size_t i) {
        std::uint64_t sum = 0;
        for (message m = 0; m < j.messages; ++m) {
            if (i == 0) {
                channel.send(m);
            } else {
                sum += channel.recv();
            }
        }
        return sum;
    });
}

void add_capacity(harness& h, std::size_t capacity) {
    const job j{capacity, h.opts().quick ? 500'000u : 10'000'000u, h.opts().cpus};
    table t{"coroutines/capacity=" + std::to_string(capacity),
            "a sender, a receiver, ten million messages",
            {{"message", "ns", 1, true}},
            {}};
    const auto add = [&](const char* name, auto run) {
        t.rows.push_back({name, [=] { return after_warm_up(j, run); }, placement::own_process});
    };
    add_crossbeam(t, "spsc", j, h.opts().cpus);
    add("bide::channel", by_threads<bide_channel>);
    add("bide::channel, coroutines", by_coroutines);
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
    add("boost::fibers channel", by_threads<fiber_channel>);
#endif
    h.add(std::move(t));
}

} // namespace

void add_coroutines(harness& h) {
    add_capacity(h, 128);
    add_capacity(h, 1024);
}

} // namespace bench
