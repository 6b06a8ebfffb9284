// The holder is killed, and another one waits: how long from the signal to the return of its
// acquire(). A hold that is bound to its process is over with that, for all of the same machine;
// any other, and on other machines, with its lease.

#include "durable/job.hpp"
#include "durable/workloads.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

struct succession {
    slot_meter dead;
    slot_meter heir;
    std::atomic<bool> is_held{false};
    std::atomic<bool> heir_wants{false};
    std::atomic<std::int64_t> inherited_at{0};
    std::atomic<bool> stop{false};
};

void inherit(succession& all, contender& lock) {
    for (;;) {
        while (!all.heir_wants && !all.stop) {
            rest(std::chrono::microseconds(500));
        }
        if (all.stop) {
            return;
        }
        all.heir.begin_acquisition();
        lock.acquire();
        all.inherited_at = now_ns();
        lock.release();
        all.heir_wants = false;
    }
}

// Nanoseconds.
std::int64_t bury(const lock_kind& kind, const std::string& place, const lock_terms& terms,
                  succession& all, crew& heirs) {
    all.is_held = false;
    all.inherited_at = 0;
    crew holder(members::processes, 1, [&](std::size_t, const crew::gate&) {
        const auto lock = kind.join(place, all.dead, terms);
        lock->acquire();
        all.is_held = true;
        rest(std::chrono::seconds(80)); // until it is killed
    });
    holder.await([&] { return all.is_held.load(); });
    all.heir.begin_acquisition();
    all.heir_wants = true;
    heirs.await([&] { return all.heir.first_returned != 0; });
    rest(std::chrono::milliseconds(3));
    const std::int64_t killed_at = holder.kill();
    heirs.await([&] { return !all.heir_wants; });
    return all.inherited_at - killed_at;
}

sample succeed(const lock_kind& kind, const lock_terms& terms, int kills) {
    const std::string place = begin_place(kind);
    const shared_with_children<succession> all;
    crew heirs(members::processes, 1, [&](std::size_t, const crew::gate& gate) {
        const auto lock = kind.join(place, all->heir, terms);
        lock->acquire();
        lock->release();
        gate.wait();
        inherit(*all, *lock);
    });
    heirs.start(); // else the first holder could come before it
    std::vector<std::int64_t> times;
    for (int i = 0; i < kills; ++i) {
        times.push_back(bury(kind, place, terms, *all, heirs));
    }
    all->stop = true;
    heirs.finish();
    return {percentile_us(times, 0.5) / 1e3, percentile_us(times, 1) / 1e3,
            static_cast<double>(kills)};
}

void add_succession(harness& h, const char* name, const char* note, bool by_process, int kills) {
    table t{name, note, {{"p50", "ms", 2}, {"longest", "ms", 2}, {"kills", "a round", 0}}, {}};
    lock_terms terms;
    terms.lease = std::chrono::milliseconds(by_process ? 30'000 : 300);
    terms.process_bound = by_process;
    for (const lock_kind& kind : our_locks()) {
        if (kind.shared_by == members::processes && !kind.is_variant &&
            (by_process || is_for_many(h, kind))) {
            add_row(t, kind.name, [&kind, terms, kills] { return succeed(kind, terms, kills); });
        }
    }
    h.add(std::move(t));
}

} // namespace

void add_recovery(harness& h) {
    const bool quick = h.opts().quick;
    add_succession(h, "recovery/process", "the holder is killed, bound to its process, lease 30 s",
                   true, quick ? 3 : 20);
    add_succession(h, "recovery/lease",
                   "the holder is killed, not bound to its process, lease 300 ms", false,
                   quick ? 1 : 3);
}

} // namespace bench
