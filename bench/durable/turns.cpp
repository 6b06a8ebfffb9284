// How a lock goes from one process to the next: two that take turns, one of many that wait, and the heir of one that is
// killed.

#include "durable/job.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

// ---- Two take turns
//
// Two processes take turns: how long it takes from where the holder begins to release to where the
// other one's acquire() returns. The holder makes sure that the other one is in the queue, and
// sleeps a while for that to sleep, too. Where changes are told the other one is woken, else it
// looks about once in a millisecond after so short a time; later, less often.

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

measured hand_off(const lock_kind& kind, std::chrono::nanoseconds duration) {
    const std::string place = begin_place(kind);
    const shared_with_children<two_players> all;
    crew two(kind.shared_by, 2, [&](std::size_t i, const crew::gate& gate) {
        take_turns(kind, place, *all, i, gate);
    });
    two.start();
    rest(duration);
    all->stop = true;
    two.finish();
    return {all->times.percentile(0.5),
            {{"p99", all->times.percentile(0.99) / 1e3},
             {"handoffs", static_cast<double>(all->times.count())}}};
}

// ---- A herd
//
// A holder has the lock, many contenders wait, the holder releases: what the waiters then do.
//
// writes: the release, and the grant to the next. loads: until the next one has it and all have had
// time to look; processes that are not told of changes poll.

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

measured stampede(const lock_kind& kind, std::size_t size) {
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
    return {static_cast<double>(all->acquired_at - all->released_at),
            {{"writes", after.stores - before.stores}, {"loads", after.loads - before.loads}}};
}

// ---- A holder that is killed
//
// The holder is killed, and another one waits: how long from the signal to the return of its
// acquire(). A hold that is bound to its process is over with that, for all of the same machine;
// any other, and on other machines, with its lease.

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

measured succeed(const lock_kind& kind, const lock_terms& terms, int kills) {
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
    return {percentile(times, 0.5),
            {{"longest ms", percentile(times, 1) / 1e6}, {"kills", static_cast<double>(kills)}}};
}

void add_succession(const char* name, const char* note, bool by_process, int kills) {
    table t(name, note);
    lock_terms terms;
    terms.lease = std::chrono::milliseconds(by_process ? 30'000 : 300);
    terms.process_bound = by_process;
    for (const lock_kind& kind : our_locks()) {
        if (kind.shared_by == members::processes && (by_process || is_for_many(kind))) {
            add_row(t, kind.name, [&kind, terms, kills] { return succeed(kind, terms, kills); });
        }
    }
}

} // namespace

void add_handoff() {
    const std::chrono::nanoseconds duration = a_round(5);
    table t("handoff",
            "two processes (memory: threads), from the release in one to the return in the other");
    for (const auto* const kinds : {&other_locks(), &our_locks()}) {
        for (const lock_kind& kind : *kinds) {
            if (!kind.polls) { // else the one that releases would take it again itself
                add_row(t, kind.name, [&kind, duration] { return hand_off(kind, duration); });
            }
        }
    }
}

void add_herd() {
    const std::size_t size = is_short() ? 16 : largest_herd;
    table t("herd/" + std::to_string(size),
            std::to_string(size) +
                " processes (memory: threads) wait, and the holder releases once: "
                "until the next has it");
    for (const lock_kind& kind : our_locks()) {
        if (is_for_many(kind)) {
            add_row(t, kind.name, [&kind, size] { return stampede(kind, size); });
        }
    }
}

void add_recovery() {
    const bool quick = is_short();
    add_succession("recovery/process", "the holder is killed, bound to its process, lease 30 s",
                   true, quick ? 3 : 20);
    add_succession("recovery/lease", "the holder is killed, not bound to its process, lease 300 ms",
                   false, quick ? 1 : 3);
}

} // namespace bench
