// Workloads of some simulated threads. Each returns nanoseconds an operation.
#ifndef BIDE_BENCH_SIMULATED_WORKLOADS_HPP
#define BIDE_BENCH_SIMULATED_WORKLOADS_HPP

#include "support/bench.hpp"

#include <bide/model/simulated_platform.hpp>

#include <bide/channel/channel.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/barrier.hpp>
#include <bide/sync/biased_shared_mutex.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace simulated {
using bide::model::machine;
using bide::model::machine_numbers;
using platform = bide::model::simulated_platform;

// Simulated threads on processors of their own.
class team {
public:
    explicit team(const machine_numbers& of, std::uint64_t seed) : machine_(of, seed) {}

    // Calls body(i) on `threads` threads. Returns the nanoseconds until all have returned.
    template <class Body> double run(unsigned threads, Body body) {
        for (unsigned i = 0; i < threads; ++i) {
            machine_.start([&body, i] { body(i); }, i);
        }
        machine_.run();
        return machine_.elapsed_ns();
    }
    static void work(double ns) { machine::here()->compute(ns); }
    template <class T> void name(const T& object, std::string as) {
        machine_.name(&object, sizeof object, std::move(as));
    }
    machine& of() { return machine_; }

private:
    machine machine_;
};

template <class M> double lock_unlock(team& t, unsigned threads, unsigned ops, double section) {
    bench::isolated<M> m;
    t.name(m.subject, "lock");
    const double ns = t.run(threads, [&](unsigned) {
        for (unsigned k = 0; k < ops; ++k) {
            m.subject.lock();
            t.work(section);
            m.subject.unlock();
        }
    });
    return ns / ops / threads;
}

template <class M> double readers(team& t, unsigned threads, unsigned ops) {
    bench::isolated<M> m;
    t.name(m.subject, "lock");
    const double ns = t.run(threads, [&](unsigned) {
        for (unsigned k = 0; k < ops; ++k) {
            m.subject.lock_shared();
            m.subject.unlock_shared();
        }
    });
    return ns / ops; // each thread's
}

inline double permits(team& t, unsigned threads, unsigned ops, int n) {
    bench::isolated<bide::basic_semaphore<platform>> s(n);
    t.name(s.subject, "semaphore");
    const double ns = t.run(threads, [&](unsigned) {
        for (unsigned k = 0; k < ops; ++k) {
            s.subject.acquire();
            t.work(100);
            s.subject.release();
        }
    });
    return ns / ops / threads;
}

inline double phases(team& t, unsigned threads, unsigned ops) {
    bench::isolated<bide::barrier<bide::detail::no_completion, platform>> b(
        static_cast<std::ptrdiff_t>(threads));
    t.name(b.subject, "barrier");
    const double ns = t.run(threads, [&](unsigned) {
        for (unsigned k = 0; k < ops; ++k) {
            b.subject.arrive_and_wait();
        }
    });
    return ns / ops;
}

template <class C>
double messages(team& t, C& c, unsigned senders, unsigned receivers, unsigned each) {
    t.name(c, "channel");
    unsigned left = senders;
    const double ns = t.run(senders + receivers, [&](unsigned i) {
        // A sender and a receiver share a processor when there are fewer processors.
        if (i % 2 == 0 ? i / 2 < senders : i / 2 >= receivers) {
            for (unsigned k = 0; k < each; ++k) {
                static_cast<void>(c.send(k));
            }
            if (--left == 0) {
                c.close();
            }
        } else {
            while (c.recv()) {
            }
        }
    });
    return ns / each / senders;
}

} // namespace simulated

#endif
