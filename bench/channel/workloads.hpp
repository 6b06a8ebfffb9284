#ifndef BIDE_BENCH_CHANNEL_WORKLOADS_HPP
#define BIDE_BENCH_CHANNEL_WORKLOADS_HPP

// The workloads; each adds its tables.

#include "channel/crossbeam.hpp"
#include "channel/job.hpp"
#include "channel/peers.hpp"
#include "support/harness.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace bench {

void add_streams(harness&);   // seq, spsc, mpsc, mpmc
void add_selects(harness&);   // select_rx, select_both
void add_ping_pong(harness&); // two threads take turns
void add_batches(harness&);   // sixteen at a time
void add_coroutines(harness&);
void add_priorities(harness&); // the greatest message first

// "spsc/capacity=N": room for all messages.
struct load {
    std::string name;
    std::size_t capacity;
    std::uint64_t messages;
};

// Where every message is waited for, fewer do.
inline std::uint64_t messages_at(const harness& h, std::size_t capacity) {
    const std::uint64_t many = capacity <= 1 ? 50'000 : capacity <= 128 ? 500'000 : 1'000'000;
    return h.opts().quick ? many / 10 : many;
}

inline load load_of(const harness& h, const char* workload, std::size_t capacity) {
    return {std::string(workload) + "/capacity=" + std::to_string(capacity), capacity,
            messages_at(h, capacity)};
}

inline load load_with_room_for_all(const harness& h, const char* workload) {
    const std::uint64_t messages = messages_at(h, 1'000'000);
    return {std::string(workload) + "/capacity=N", static_cast<std::size_t>(messages), messages};
}

// Adds a row for each channel: measure(std::type_identity<Channel>(), job).
template <class Measure>
void add_channels(table& t, const job& j, bounds which, placement where, Measure measure) {
    for_each_channel(
        j.capacity, which, [&]<class Channel>(std::type_identity<Channel> type, const char* name) {
            const auto once = [=] {
                return after_warm_up(j, [=](const job& k) { return measure(type, k); });
            };
            t.rows.push_back({name, once, where});
        });
}

} // namespace bench

#endif
