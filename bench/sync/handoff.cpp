// Two threads take turns through two semaphores: how long a permit takes from release() in one to
// the return of acquire() in the other.
//
// Where the threads may run decides everything, and libraries decide once in a process, or once in
// a thread, whether to spin; so each row has a fresh process, in which no other row has taught the
// library anything:
//   handoff/two-processors       pinned to one each
//   handoff/unpinned             as the kernel likes
//   handoff/one-processor        the whole process may use one processor: spinning is in vain, and
//                                can be known to be
//   handoff/pinned-to-the-same   the process may use all, both threads are pinned to one: spinning
//                                is in vain, and no thread's mask says so for certain

#include "support/isolated.hpp"
#include "support/team.hpp"
#include "sync/peers.hpp"
#include "sync/workloads.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace bench {
namespace {

using clock = std::chrono::steady_clock;

template <class Semaphore> class table_tennis {
public:
    // Nanoseconds for one way.
    sample play(const cpu_list& cpus, std::chrono::nanoseconds duration) {
        const auto player = [&](std::size_t i) { i == 0 ? serve(duration) : answer(); };
        run_team(2, cpus, player, [] {});
        return {one_way_ns_};
    }

private:
    static constexpr int turns = 50; // between looks at the clock

    void serve(std::chrono::nanoseconds duration) {
        rally(duration / 10); // both threads run, and the library has learnt what it learns
        one_way_ns_ = rally(duration);
        stop_.store(true, std::memory_order_release);
        there_.subject.release();
    }

    double rally(std::chrono::nanoseconds duration) {
        const auto began = clock::now();
        double ways = 0;
        for (;;) {
            for (int i = 0; i < turns; ++i) {
                there_.subject.release();
                back_.subject.acquire();
            }
            ways += 2 * turns;
            const std::chrono::duration<double, std::nano> elapsed = clock::now() - began;
            if (elapsed >= duration) {
                return elapsed.count() / ways;
            }
        }
    }

    void answer() {
        for (;;) {
            there_.subject.acquire();
            if (stop_.load(std::memory_order_acquire)) {
                return;
            }
            back_.subject.release();
        }
    }

    isolated<Semaphore> there_{0u};
    isolated<Semaphore> back_{0u};
    std::atomic<bool> stop_{false};
    double one_way_ns_ = 0;
};

struct arrangement {
    const char* table;
    const char* note;
    placement where;
    cpu_list pinned_to;
};

void add_arrangement(harness& h, const arrangement& a, std::chrono::nanoseconds duration) {
    table t{a.table, a.note, {{"one way", "ns", 0, true}}, {}};
    for_each_handoff([&]<class Semaphore>(std::type_identity<Semaphore>, const char* name) {
        const auto play = [=] { return table_tennis<Semaphore>().play(a.pinned_to, duration); };
        t.rows.push_back({name, play, a.where});
    });
    h.add(std::move(t));
}

} // namespace

void add_handoff(harness& h) {
    const setting with = h.make_setting(200, 60);
    const cpu_list first{with.cpus.front()};
    const arrangement all[] = {
        {"handoff/two-processors", "ping-pong, threads pinned to one processor each",
         placement::own_process, with.cpus},
        {"handoff/unpinned", "ping-pong, threads not pinned", placement::own_process, {}},
        {"handoff/one-processor", "ping-pong, the process may use one processor",
         placement::one_processor, first},
        {"handoff/pinned-to-the-same",
         "ping-pong, both threads pinned to one of the process' processors", placement::own_process,
         first},
    };
    for (const arrangement& a : all) {
        add_arrangement(h, a, with.duration);
    }
}

} // namespace bench
