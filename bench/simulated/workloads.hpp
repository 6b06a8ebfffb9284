// Workloads of some threads, for a platform: the same code runs on the simulated machine and on the
// real one. Each returns nanoseconds an operation.
#ifndef BIDE_BENCH_SIMULATED_WORKLOADS_HPP
#define BIDE_BENCH_SIMULATED_WORKLOADS_HPP

#include <bide/model/simulated_platform.hpp>

#include <bide/channel/channel.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/barrier.hpp>
#include <bide/sync/biased_shared_mutex.hpp>
#include <bide/sync/latch.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>

#include <atomic>
#include <chrono>
#include <pthread.h>
#include <thread>

namespace simulated {
using bide::model::machine;
using bide::model::machine_numbers;
using platform = bide::model::simulated_platform;

// Threads on processors of their own, one each as long as there are processors.
template <class P> class team;

template <> class team<platform> {
public:
    explicit team(const machine_numbers& of, std::uint64_t seed = 1) : machine_(of, seed) {}

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

template <> class team<bide::native_platform> {
public:
    template <class Body> double run(unsigned threads, Body body) {
        std::atomic<unsigned> here{0};
        std::vector<std::thread> all;
        std::chrono::steady_clock::time_point began;
        for (unsigned i = 0; i < threads; ++i) {
            all.emplace_back([&, i] {
                cpu_set_t mask;
                CPU_ZERO(&mask);
                CPU_SET(i % std::thread::hardware_concurrency(), &mask);
                ::pthread_setaffinity_np(::pthread_self(), sizeof mask, &mask);
                if (here.fetch_add(1) + 1 == threads) {
                    began = std::chrono::steady_clock::now();
                    here.store(threads + 1);
                }
                while (here.load() != threads + 1) {
                    std::this_thread::yield();
                }
                body(i);
            });
        }
        for (std::thread& t : all) {
            t.join();
        }
        return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - began)
            .count();
    }
    static void work(double ns) {
        static const double per_ns = [] { // turns of the loop below
            const auto began = std::chrono::steady_clock::now();
            turn(1'000'000);
            return 1e6 / std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() -
                                                                  began)
                             .count();
        }();
        turn(static_cast<unsigned>(ns * per_ns));
    }
    template <class T> void name(const T&, const char*) {}

private:
    static void turn(unsigned times) {
        for (unsigned i = 0; i < times; ++i) {
            asm volatile("" ::: "memory");
        }
    }
};

// An object on cache lines of its own.
template <class T> struct alignas(128) apart {
    T value;
    template <class... Args> explicit apart(Args&&... args) : value(std::forward<Args>(args)...) {}
};

template <class M, class Team>
double lock_unlock(Team& t, unsigned threads, unsigned ops, double section, double outside = 0) {
    apart<M> m;
    t.name(m.value, "lock");
    const double ns = t.run(threads, [&](unsigned) {
        for (unsigned k = 0; k < ops; ++k) {
            m.value.lock();
            t.work(section);
            m.value.unlock();
            t.work(outside);
        }
    });
    return ns / ops / threads;
}

template <class M, class Team> double readers(Team& t, unsigned threads, unsigned ops) {
    apart<M> m;
    t.name(m.value, "lock");
    const double ns = t.run(threads, [&](unsigned) {
        for (unsigned k = 0; k < ops; ++k) {
            m.value.lock_shared();
            m.value.unlock_shared();
        }
    });
    return ns / ops; // each thread's
}

template <class P, class Team> double hand_over(Team& t, unsigned ops) {
    apart<bide::basic_semaphore<P>> a(0), b(0);
    t.name(a.value, "there");
    t.name(b.value, "back");
    const double ns = t.run(2, [&](unsigned i) {
        for (unsigned k = 0; k < ops; ++k) {
            if (i == 0) {
                a.value.release();
                b.value.acquire();
            } else {
                a.value.acquire();
                b.value.release();
            }
        }
    });
    return ns / ops / 2;
}

template <class P, class Team> double permits(Team& t, unsigned threads, unsigned ops, int n) {
    apart<bide::basic_semaphore<P>> s(n);
    t.name(s.value, "semaphore");
    const double ns = t.run(threads, [&](unsigned) {
        for (unsigned k = 0; k < ops; ++k) {
            s.value.acquire();
            t.work(100);
            s.value.release();
        }
    });
    return ns / ops / threads;
}

template <class P, class Team> double phases(Team& t, unsigned threads, unsigned ops) {
    apart<bide::barrier<bide::detail::no_completion, P>> b(static_cast<std::ptrdiff_t>(threads));
    t.name(b.value, "barrier");
    const double ns = t.run(threads, [&](unsigned) {
        for (unsigned k = 0; k < ops; ++k) {
            b.value.arrive_and_wait();
        }
    });
    return ns / ops;
}

template <class C, class Team>
double messages(Team& t, C& c, unsigned senders, unsigned receivers, unsigned each) {
    t.name(c, "channel");
    std::atomic<unsigned> left{senders};
    const double ns = t.run(senders + receivers, [&](unsigned i) {
        // A sender and a receiver share a processor when there are fewer processors.
        if (i % 2 == 0 ? i / 2 < senders : i / 2 >= receivers) {
            for (unsigned k = 0; k < each; ++k) {
                static_cast<void>(c.send(k));
            }
            if (left.fetch_sub(1) == 1) {
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
