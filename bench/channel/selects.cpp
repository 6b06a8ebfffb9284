// Four channels. select_rx: a sender for each, and one receiver that selects from all. select_both:
// four senders and four receivers, and every one of them selects from all. The shapes are those of
// crossbeam-channel's own benchmark; the other peers have no select over channels.

#include "channel/peers.hpp"

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

} // namespace

void add_selects() {
    for (const bool both : {false, true}) {
        const char* const shape = both ? "select_both" : "select_rx";
        for (const std::size_t capacity : {std::size_t{0}, std::size_t{1}, std::size_t{16},
                                           std::size_t{128}, std::size_t{1024}, room_for_all}) {
            table t(table_name(shape, capacity),
                    both ? "4 senders and 4 receivers select from 4 channels"
                         : "a receiver selects from 4 channels with a sender each");
            const job j = job_of(capacity);
            add_crossbeam(t, shape, j, j.cpus);
            add_run(t, "bide::channel", j, [=](const job& k) { return select_from_all(k, both); });
        }
    }
}

} // namespace bench
