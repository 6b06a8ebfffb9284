// Two processes take turns: how long it takes from where the holder begins to release to where the
// other one's acquire() returns. The holder makes sure that the other one is in the queue, and
// sleeps a while for that to sleep, too. Where changes are told the other one is woken, else it
// looks about once in a millisecond after so short a time; later, less often.

#include "durable/job.hpp"
#include "durable/workloads.hpp"
#include "support/histogram.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace bench {
namespace {

struct two_players {
    struct player {
        slot_meter meter;
        std::atomic<bool> wants{false};
    };
    player of[2];
    std::atomic<std::int64_t> released_at{0};
    std::atomic<bool> stop{false};
    histogram times; // the holder's
};

constexpr std::chrono::milliseconds until_it_sleeps{2};

void wait_until_queued(const lock_kind& kind, const two_players::player& other) {
    const auto is_queued = [&] {
        return other.wants && (!kind.is_ours || other.meter.first_returned != 0);
    };
    const std::int64_t end = now_ns() + 10'000'000'000;
    while (!is_queued()) {
        if (now_ns() >= end) {
            throw std::runtime_error("the other one did not come");
        }
        rest(std::chrono::microseconds(50));
    }
    rest(until_it_sleeps);
}

void take_turns(const lock_kind& kind, const std::string& place, two_players& all, std::size_t i,
                const crew::gate& gate) {
    two_players::player& me = all.of[i];
    const std::unique_ptr<contender> lock = kind.join(place, me.meter, {});
    lock->acquire();
    lock->release();
    gate.wait();
    for (;;) {
        me.meter.begin_acquisition();
        me.wants = true;
        lock->acquire();
        const std::int64_t now = now_ns();
        me.wants = false;
        if (const std::int64_t before = all.released_at.exchange(0)) {
            all.times.add(static_cast<std::uint64_t>(now - before));
        }
        if (all.stop) {
            lock->release();
            return;
        }
        wait_until_queued(kind, all.of[1 - i]);
        all.released_at = now_ns();
        lock->release();
    }
}

sample hand_off(const lock_kind& kind, std::chrono::nanoseconds duration) {
    const std::string place = begin_place(kind);
    const shared_with_children<two_players> all;
    crew two(kind.shared_by, 2, [&](std::size_t i, const crew::gate& gate) {
        take_turns(kind, place, *all, i, gate);
    });
    two.start();
    rest(duration);
    all->stop = true;
    two.finish();
    return {static_cast<double>(all->times.percentile(0.5)) / 1e3,
            static_cast<double>(all->times.percentile(0.99)) / 1e3,
            static_cast<double>(all->times.count())};
}

} // namespace

void add_handoff(harness& h) {
    const std::chrono::nanoseconds duration = h.make_setting(500, 60).duration;
    table t{"handoff",
            "two processes (memory: threads), from the release in one to the return in the other",
            {{"p50", "us", 0}, {"p99", "us", 0}, {"handoffs", "", 0}},
            {}};
    for (const auto* const kinds : {&other_locks(), &our_locks()}) {
        for (const lock_kind& kind : *kinds) {
            add_row(t, kind.name, [&kind, duration] { return hand_off(kind, duration); });
        }
    }
    h.add(std::move(t));
}

} // namespace bench
