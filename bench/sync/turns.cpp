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
//
// And threads that meet at a barrier again and again: how long one phase takes.

#include "support/bench.hpp"
#include "sync/peers.hpp"

#include <bide/sync/barrier.hpp>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include <pthread.h>

namespace bench {
namespace {

using clock = std::chrono::steady_clock;

template <class Semaphore> class table_tennis {
public:
    measured play(const cpu_list& cpus, std::chrono::nanoseconds duration) {
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

// ---- Barriers

class posix_barrier {
public:
    explicit posix_barrier(std::ptrdiff_t size) {
        ::pthread_barrier_init(&barrier_, nullptr, static_cast<unsigned>(size));
    }
    posix_barrier(const posix_barrier&) = delete;
    posix_barrier& operator=(const posix_barrier&) = delete;
    ~posix_barrier() { ::pthread_barrier_destroy(&barrier_); }

    void arrive_and_wait() { ::pthread_barrier_wait(&barrier_); }

private:
    ::pthread_barrier_t barrier_;
};

template <class Barrier> class meetings {
public:
    explicit meetings(std::size_t size)
        : size_(size), barrier_(static_cast<std::ptrdiff_t>(size)) {}

    measured meet(const cpu_list& cpus, std::chrono::nanoseconds duration) {
        run_team(size_, cpus, [&](std::size_t i) { i == 0 ? lead(duration) : follow(); }, [] {});
        return {phase_ns_};
    }

private:
    static constexpr int phases = 50; // between looks at the clock

    void lead(std::chrono::nanoseconds duration) {
        rounds(duration / 10); // all threads run, and the library has learnt what it learns
        phase_ns_ = rounds(duration);
        over_.store(true, std::memory_order_relaxed);
        follow_round();
    }

    double rounds(std::chrono::nanoseconds duration) {
        const auto began = clock::now();
        for (double met = phases;; met += phases) {
            follow_round();
            const std::chrono::duration<double, std::nano> elapsed = clock::now() - began;
            if (elapsed >= duration) {
                return elapsed.count() / met;
            }
        }
    }

    // The leader says between two rounds whether the next one is the last. All know it after the
    // first phase.
    void follow() {
        while (!follow_round()) {
        }
    }
    bool follow_round() {
        barrier_.subject.arrive_and_wait();
        const bool is_last = over_.load(std::memory_order_relaxed);
        for (int i = 1; i < phases; ++i) {
            barrier_.subject.arrive_and_wait();
        }
        return is_last;
    }

    std::size_t size_;
    isolated<Barrier> barrier_;
    std::atomic<bool> over_{false};
    double phase_ns_ = 0;
};

} // namespace

void add_handoff() {
    struct arrangement {
        const char* name;
        const char* note;
        cpu_list pinned_to;
        placement where = placement::own_process;
    };
    const cpu_list all = allowed_cpus();
    const cpu_list first{all.front()};
    for (const arrangement& a : {
             arrangement{"two-processors", "threads pinned to one processor each", all},
             arrangement{"unpinned", "threads not pinned", {}},
             arrangement{"one-processor", "the process may use one processor", first,
                         placement::one_processor},
             arrangement{"pinned-to-the-same",
                         "both threads pinned to one of the process' processors", first},
         }) {
        table t(std::string("handoff/") + a.name, std::string("a permit, one way; ") + a.note);
        for_each_handoff([&]<class Semaphore>(std::type_identity<Semaphore>, const char* name) {
            const auto play = [=] {
                return table_tennis<Semaphore>().play(a.pinned_to, a_round(2));
            };
            t.add(name, play, a.where);
        });
    }
}

void add_barriers() {
    for (const auto& [size, name] : {std::pair(2u, "two"), std::pair(4u, "four")}) {
        table t(std::string("barrier/") + name + "-threads",
                "a phase, threads pinned to the processors");
        const auto add = [&]<class Barrier>(std::type_identity<Barrier>, const char* of) {
            const auto meet = [n = size] {
                return meetings<Barrier>(n).meet(allowed_cpus(), a_round(2));
            };
            t.add(of, meet, placement::own_process);
        };
        add(std::type_identity<std::barrier<>>(), "std::barrier");
        add(std::type_identity<posix_barrier>(), "pthread_barrier_t");
        add(std::type_identity<bide::barrier<>>(), "bide::barrier");
    }
}

} // namespace bench
