// Four channels. select_rx: a sender for each, and one receiver that selects from all. select_both:
// four senders and four receivers, and every one of them selects from all. The shapes are those of
// crossbeam-channel's own benchmark; the other peers have no select over channels.

#include "channel/job.hpp"
#include "channel/peers.hpp"
#include "channel/workloads.hpp"

#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace bench {
namespace {

static_assert(channel_threads == 4);

struct four_channels {
    using channel = bide::channel<message>;

    explicit four_channels(std::size_t capacity)
        : a(capacity), b(capacity), c(capacity), d(capacity) {}

    channel& of(std::size_t i) {
        channel* const all[] = {&a, &b, &c, &d};
        return *all[i];
    }

    message recv() {
        auto s =
            bide::select(bide::on_recv(a), bide::on_recv(b), bide::on_recv(c), bide::on_recv(d));
        switch (s.index()) {
        case 0: return *s.get<0>();
        case 1: return *s.get<1>();
        case 2: return *s.get<2>();
        default: return *s.get<3>();
        }
    }

    void send(message m) {
        static_cast<void>(bide::select(bide::on_send(a, m), bide::on_send(b, m),
                                       bide::on_send(c, m), bide::on_send(d, m)));
    }

    channel a, b, c, d;
};

double select_from_all(const job& j, bool both) {
    four_channels channels(j.capacity);
    const std::size_t receivers = both ? channel_threads : 1;
    return run_job(j, channel_threads + receivers, [&](std::size_t i) {
        std::uint64_t sum = 0;
        if (i >= channel_threads) {
            for (std::uint64_t n = j.messages / receivers; n > 0; --n) {
                sum += channels.recv();
            }
            return sum;
        }
        const std::uint64_t share = j.messages / channel_threads;
        for (std::uint64_t m = i * share; m < (i + 1) * share; ++m) {
            if (both) {
                channels.send(m);
            } else {
                static_cast<void>(channels.of(i).send(m));
            }
        }
        return sum;
    });
}

void add_select(harness& h, const load& l, const char* shape, bool both) {
    const job j{l.capacity, l.messages, h.opts().cpus};
    table t{l.name,
            both ? "4 senders and 4 receivers select from 4 channels"
                 : "a receiver selects from 4 channels with a sender each",
            {{"message", "ns", 1, true}},
            {}};
    add_crossbeam(t, shape, j, h.opts().cpus);
    const auto run = [=](const job& k) { return select_from_all(k, both); };
    t.rows.push_back(
        {"bide::channel", [=] { return after_warm_up(j, run); }, placement::own_process});
    h.add(std::move(t));
}

} // namespace

void add_selects(harness& h) {
    for (const bool both : {false, true}) {
        const char* const shape = both ? "select_both" : "select_rx";
        for (const std::size_t capacity : {0u, 1u, 16u, 128u, 1024u}) {
            add_select(h, load_of(h, shape, capacity), shape, both);
        }
        add_select(h, load_with_room_for_all(h, shape), shape, both);
    }
}

} // namespace bench
