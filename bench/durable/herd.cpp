// One holds the lock, many wait, one releases: what that makes the others do.
//
// writes: the release, and the grant to the next. loads: until the next one has it and all have had
// time to look; processes that are not told of changes poll.

#include "durable/job.hpp"
#include "durable/workloads.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace bench {
namespace {

constexpr std::size_t largest_herd = 100;

struct herd {
    std::array<slot_meter, largest_herd + 1> of{}; // the last one's is the holder's
    std::atomic<bool> is_held{false};
    std::atomic<bool> release{false};
    std::atomic<std::int64_t> released_at{0};
    std::atomic<std::int64_t> acquired_at{0};
    std::atomic<int> acquired{0};
};

struct herd_tally {
    double stores = 0;
    double loads = 0;
};

herd_tally count(const herd& all) {
    herd_tally sum;
    for (const slot_meter& one : all.of) {
        sum.stores += static_cast<double>(one.stores);
        sum.loads += static_cast<double>(one.loads);
    }
    return sum;
}

void hold_first(herd& all, contender& lock) {
    lock.acquire();
    all.is_held = true;
    while (!all.release) {
        rest(std::chrono::microseconds(200));
    }
    all.released_at = now_ns();
    lock.release();
}

// To queue, one behind the other: a hundred at a time would be in each other's way for long.
void wait_for_turn(const herd& all, std::size_t i) {
    for (;;) {
        std::size_t queued = 0;
        while (queued < i && all.of[queued].stores != 0) {
            ++queued;
        }
        if (all.is_held && queued == i) {
            return;
        }
        rest(std::chrono::milliseconds(1 + (i - queued) / 4));
    }
}

sample stampede(const lock_kind& kind, std::size_t size) {
    const std::string place = begin_place(kind);
    const shared_with_children<herd> all;
    crew all_processes(kind.shared_by, size + 1, [&](std::size_t i, const crew::gate&) {
        const bool is_first = i == size;
        const auto lock = kind.join(place, all->of[is_first ? largest_herd : i], {});
        if (is_first) {
            hold_first(*all, *lock);
        } else {
            wait_for_turn(*all, i);
            lock->acquire();
            if (++all->acquired == 1) {
                all->acquired_at = now_ns();
            }
        }
        rest(std::chrono::seconds(80)); // until it is killed
    });
    const auto is_queued = [&] {
        for (std::size_t i = 0; i < size; ++i) {
            if (all->of[i].stores == 0) {
                return false;
            }
        }
        return true;
    };
    all_processes.await(is_queued, std::chrono::seconds(60));
    rest(std::chrono::milliseconds(100));
    const herd_tally before = count(*all);
    all->release = true;
    all_processes.await([&] { return all->acquired_at != 0; });
    rest(std::chrono::milliseconds(50));
    const herd_tally after = count(*all);
    all_processes.kill();
    return {after.stores - before.stores, after.loads - before.loads,
            static_cast<double>(all->acquired_at - all->released_at) / 1e6};
}

} // namespace

void add_herd(harness& h) {
    const std::size_t size = h.opts().quick ? 16 : largest_herd;
    table t{"herd/" + std::to_string(size),
            std::to_string(size) +
                " processes (memory: threads) wait, and the holder releases once",
            {{"writes", "", 0}, {"loads", "", 0}, {"until the next has it", "ms", 2}},
            {}};
    for (const lock_kind& kind : our_locks()) {
        if (is_for_many(h, kind)) {
            add_row(t, kind.name, [&kind, size] { return stampede(kind, size); });
        }
    }
    h.add(std::move(t));
}

} // namespace bench
