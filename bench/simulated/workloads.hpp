// Workloads of some simulated threads. Each returns nanoseconds an operation.
#ifndef BIDE_BENCH_SIMULATED_WORKLOADS_HPP
#define BIDE_BENCH_SIMULATED_WORKLOADS_HPP

#include "support/bench.hpp"

#include <bide/model/simulated_platform.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

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

template <class S> double permits(team& t, unsigned threads, unsigned ops) {
    bench::isolated<S> s(static_cast<int>(threads + 1) / 2);
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

template <class B> double phases(team& t, unsigned threads, unsigned ops) {
    bench::isolated<B> b(threads);
    t.name(b.subject, "barrier");
    const double ns = t.run(threads, [&](unsigned) {
        for (unsigned k = 0; k < ops; ++k) {
            t.work(100);
            b.subject.arrive_and_wait();
        }
    });
    return ns / ops;
}

// A round, with a G(argument...) of its own, begins every 10 ms. Thread 0 calls first(g) `late`
// nanoseconds after that, each other thread calls others(g) at once. Returns the nanoseconds from
// the call of first(g) until the last thread has returned.
template <class G, class First, class Others, class... Argument>
double rounds(team& t, unsigned threads, unsigned count, double late, First first, Others others,
              Argument... argument) {
    std::deque<bench::isolated<G>> gates;
    for (unsigned k = 0; k < count; ++k) {
        t.name(gates.emplace_back(argument...).subject, "gate");
    }
    std::vector<double> took(count);
    const auto now = [&] { return static_cast<double>(t.of().now_ns()); };
    t.run(threads, [&](unsigned i) {
        for (unsigned k = 0; k < count; ++k) {
            const double start = 10e6 * (k + 1) + late;
            const double mine = i == 0 ? start : start - late;
            for (double at = now(); at < mine; at = now()) {
                t.work(0.9 * (mine - at)); // the time of a step is not exact
            }
            if (i == 0) {
                first(gates[k].subject);
            } else {
                others(gates[k].subject);
            }
            took[k] = std::max(took[k], now() - start);
        }
    });
    return std::accumulate(took.begin(), took.end(), 0.0) / count;
}

// From set() until all threads, which sleep, have left an event.
template <class E> double broadcast(team& t, unsigned threads, unsigned count) {
    return rounds<E>(t, threads, count, 1e6, [](E& e) { e.set(); }, [](E& e) { e.wait(); });
}

// One thread waits for a latch. All others count it down at the same time.
template <class L> double countdown(team& t, unsigned threads, unsigned count) {
    return rounds<L>(
        t, threads, count, 0, [](L& l) { l.wait(); }, [](L& l) { l.count_down(); }, threads - 1);
}

// The even threads send, the odd ones receive. The time of a message.
template <class C> double messages(team& t, C& c, unsigned threads, unsigned each) {
    t.name(c, "channel");
    unsigned left = threads / 2;
    const double ns = t.run(threads, [&](unsigned i) {
        if (i % 2 == 0) {
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
    return ns / each / (threads / 2);
}

} // namespace simulated

#endif
