// Messages through one channel: all in and all out by one thread, or from some threads to others.
// The shapes are those of crossbeam-channel's own benchmark, and so are the four threads on a side
// that has several.
//
// Queues that have no capacity take part where there is room for all messages.

#include "channel/job.hpp"
#include "channel/peers.hpp"
#include "channel/workloads.hpp"
#include "support/isolated.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace bench {
namespace {

template <class Channel> void send_all(Channel& channel, std::uint64_t from, std::uint64_t count) {
    for (std::uint64_t i = from; i < from + count; ++i) {
        channel.send(i);
    }
}

template <class Channel> std::uint64_t recv_all(Channel& channel, std::uint64_t count) {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        sum += channel.recv();
    }
    return sum;
}

// One thread: `batch` in, `batch` out, and again.
template <class Channel> double in_and_out(const job& j, std::uint64_t batch) {
    isolated<Channel> channel(j.capacity);
    return run_job(j, 1, [&](std::size_t) {
        std::uint64_t sum = 0;
        for (std::uint64_t from = 0; from < j.messages; from += batch) {
            send_all(channel.subject, from, batch);
            sum += recv_all(channel.subject, batch);
        }
        return sum;
    });
}

// Threads: the senders come first.
struct sides {
    std::size_t senders;
    std::size_t receivers;
};

template <class Channel> double stream(const job& j, const sides& s) {
    isolated<Channel> channel(j.capacity);
    return run_job(j, s.senders + s.receivers, [&](std::size_t i) {
        if (i >= s.senders) {
            return recv_all(channel.subject, j.messages / s.receivers);
        }
        const std::uint64_t share = j.messages / s.senders;
        send_all(channel.subject, i * share, share);
        return std::uint64_t{0};
    });
}

table make_table(const load& l, std::string note) {
    return {l.name, std::move(note), {{"message", "ns", 1, true}}, {}};
}

void add_one_thread(harness& h, const load& l, const char* shape, bool pairs, const char* note) {
    const job j{l.capacity, l.messages, {h.opts().cpus.front()}};
    table t = make_table(l, note);
    add_crossbeam(t, shape, j, h.opts().cpus);
    add_channels(t, j, bounds::not_needed, placement::own_process,
                 [=]<class Channel>(std::type_identity<Channel>, const job& k) {
                     return in_and_out<Channel>(k, pairs ? 1 : k.messages);
                 });
    h.add(std::move(t));
}

void add_stream(harness& h, const load& l, const char* shape, const sides& s) {
    const job j{l.capacity, l.messages, h.opts().cpus};
    const bool all_fit = l.capacity >= l.messages;
    table t = make_table(l, "senders: " + std::to_string(s.senders) + ", receivers: " +
                                std::to_string(s.receivers) + (all_fit ? ", room for all" : ""));
    add_crossbeam(t, shape, j, h.opts().cpus);
    add_channels(t, j, all_fit ? bounds::not_needed : bounds::needed, placement::own_process,
                 [=]<class Channel>(std::type_identity<Channel>, const job& k) {
                     return stream<Channel>(k, s);
                 });
    h.add(std::move(t));
}

} // namespace

void add_streams(harness& h) {
    add_one_thread(h, load_with_room_for_all(h, "seq"), "seq", false,
                   "one thread: all in, then all out");
    add_one_thread(h, load_of(h, "seq", 128), "pairs", true, "one thread: one in, one out");
    struct shape {
        const char* name;
        sides of;
    };
    for (const shape& s : {shape{"spsc", {1, 1}}, shape{"mpsc", {channel_threads, 1}},
                           shape{"mpmc", {channel_threads, channel_threads}}}) {
        for (const std::size_t capacity : {0u, 1u, 16u, 128u, 1024u}) {
            add_stream(h, load_of(h, s.name, capacity), s.name, s.of);
        }
        add_stream(h, load_with_room_for_all(h, s.name), s.name, s.of);
    }
}

} // namespace bench
