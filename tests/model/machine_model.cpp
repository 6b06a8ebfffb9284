// The simulated machine: what steps cost, when a thread runs, and results that are known of real machines.

#include <bide/model/machine.hpp>
#include <bide/model/simulated_platform.hpp>
#include <bide/sync/mutex.hpp>
#include <model/locks.hpp>
#include <support/test.hpp>

namespace {

using bide::model::machine;
using bide::model::machine_numbers;
using platform = bide::model::simulated_platform;
template <class T> using atomic = platform::atomic<T>;
using enum std::memory_order;

// A machine whose times are easy to add.
machine_numbers simple(unsigned processors, unsigned sockets = 1) {
    return {.sockets = sockets,
            .cores = processors / sockets,
            .hit = 1,
            .locked = 10,
            .within = 100,
            .between = 1'000,
            .shared = 20,
            .sharer = 5,
            .pause = 2,
            .clock = 3,
            .call = 50,
            .wake = 200,
            .wake_delay = 400,
            .yield = 30,
            .barrier = 70,
            .slice = 10'000};
}

// Nanoseconds that one thread takes for body().
template <class Body> double time_of(const machine_numbers& of, Body body) {
    machine m(of, 1, 0);
    m.start(body, 0);
    m.run();
    return m.elapsed_ns();
}

// Nanoseconds an operation, all processors together: `ops` times in each thread.
template <class Op> double each(unsigned processors, int ops, Op op) {
    machine m(bide::model::one_socket_server(processors));
    for (unsigned i = 0; i < processors; ++i) {
        m.start(
            [&op, ops, i] {
                for (int k = 0; k < ops; ++k) {
                    op(i);
                }
            },
            i);
    }
    m.run();
    return m.elapsed_ns() / ops / processors;
}

template <class Lock> double lock_time(unsigned processors) {
    Lock lock;
    return each(processors, 100, [&](unsigned) {
        lock.lock();
        machine::here()->compute(100);
        lock.unlock();
    });
}

// Of README.md.
double time_of_a_lock(unsigned processors) {
    using namespace bide::model;
    machine m(two_socket_server(processors / 2));
    bide::basic_mutex<simulated_platform> lock;
    m.name(&lock, sizeof lock, "lock");
    for (unsigned i = 0; i < processors; ++i) {
        m.start([&] {
            for (int k = 0; k < 1'000; ++k) {
                lock.lock();
                machine::here()->compute(100); // nanoseconds
                lock.unlock();
            }
        });
    }
    m.run();
    for (const machine::line& l : m.hottest(3)) {
        std::printf("%s: %.0f us waited\n", l.name.c_str(), l.waited_ns / 1e3);
    }
    return m.elapsed_ns() / processors / 1'000;
}

} // namespace

TEST_CASE("machine: a line that no other processor has changed costs a hit") {
    atomic<int> word{0};
    CHECK(time_of(simple(1), [&] {
              for (int i = 0; i < 10; ++i) {
                  word.load(relaxed);
              }
          }) == 10);
    CHECK(time_of(simple(1), [&] { word.fetch_add(1); }) == 12); // the line comes first, as a hit
    CHECK(time_of(simple(1), [&] {
              word.store(1, release);
              word.store(2, seq_cst);
          }) == 12); // a store, a read-modify-write
}

TEST_CASE("machine: a line that another processor has changed moves, between sockets for longer") {
    for (const unsigned sockets : {1u, 2u}) {
        atomic<int> word{0};
        double took = 0;
        machine m(simple(2, sockets), 1, 0);
        m.start([&] { word.fetch_add(1); }, 0);
        m.start(
            [&] {
                machine::here()->compute(500);
                const auto before = machine::here()->now_ns();
                word.load();
                took = static_cast<double>(machine::here()->now_ns() - before);
            },
            1);
        m.run();
        CHECK(took == (sockets == 1 ? 100 : 1'000) + 3); // and the second look at the clock
        REQUIRE(m.hottest(1).size() == 1);
        CHECK(m.hottest(1)[0].processors == 2);
    }
}

TEST_CASE("machine: requests for one line are served one after the other") {
    atomic<int> word{0};
    machine m(simple(8), 1, 0);
    for (unsigned i = 0; i < 8; ++i) {
        m.start([&] { word.fetch_add(1); }, i);
    }
    m.run();
    CHECK(word.peek() == 8);
    CHECK(m.elapsed_ns() == 1 + 7 * 100 + 11);
}

TEST_CASE("machine: a sleep ends by a wake or in time, and says which") {
    atomic<unsigned> word{0};
    bool woken = false, late = true;
    std::int64_t at = 0;
    machine m(simple(3), 1, 0);
    m.start([&] {
        woken = platform::futex_wait(word, 0u, std::numeric_limits<std::int64_t>::max());
        at = machine::here()->now_ns();
    });
    m.start([&] {
        machine::here()->compute(10'000);
        platform::futex_wake(&word, 1);
    });
    atomic<unsigned> other{0};
    m.start([&] { late = platform::futex_wait(other, 0u, 700); });
    m.run();
    CHECK(woken);
    CHECK_FALSE(late);
    CHECK(at == 10'000 + 50 + 200 + 400 + 3);
}

TEST_CASE(
    "machine: threads that sleep for ever are an error, and so is a machine without processors") {
    atomic<unsigned> word{0};
    {
        machine m(simple(2));
        m.start([&] { platform::futex_wait(word, 0u, std::numeric_limits<std::int64_t>::max()); });
        CHECK_THROWS_AS(m.run(), std::runtime_error);
    }
    CHECK_THROWS_AS(machine(machine_numbers{.cores = 0}), std::invalid_argument);
    CHECK_THROWS_AS(machine(machine_numbers{.cores = 257}), std::invalid_argument);
}

TEST_CASE("machine: threads that share a processor take turns of a slice") {
    std::vector<int> order;
    machine m(simple(1), 1, 0);
    for (int i = 0; i < 2; ++i) {
        m.start([&, i] {
            for (int k = 0; k < 3; ++k) {
                order.push_back(i);
                machine::here()->compute(10'001);
                machine::here()->now_ns();
            }
        });
    }
    m.run();
    CHECK(order == std::vector{0, 1, 0, 1, 0, 1});
}

TEST_CASE("machine: the same seed gives the same run") {
    const auto run = [](std::uint64_t seed) {
        ttas_lock lock;
        machine m(simple(16), seed);
        for (unsigned i = 0; i < 16; ++i) {
            m.start([&] {
                for (int k = 0; k < 20; ++k) {
                    lock.lock();
                    lock.unlock();
                }
            });
        }
        m.run();
        return std::pair(m.elapsed_ns(), m.steps());
    };
    CHECK(run(1) == run(1));
    CHECK(run(1) != run(2));
}

TEST_CASE("machine: the line that threads wait for longest is named") {
    struct alignas(64) two {
        atomic<int> calm{0};
        alignas(64) atomic<int> wanted{0};
    } object;
    machine m(simple(4));
    m.name(&object, sizeof object, "two");
    for (unsigned i = 0; i < 4; ++i) {
        m.start([&] {
            object.calm.load();
            for (int k = 0; k < 10; ++k) {
                object.wanted.fetch_add(1);
            }
        });
    }
    m.run();
    CHECK(m.hottest(1)[0].name == "two+64");
    CHECK(m.hottest(1)[0].accesses == 40);
}

// What is known of real machines (Anderson, "The Performance of Spin Lock Alternatives", 1990;
// Mellor-Crummey and Scott, "Algorithms for Scalable Synchronization", 1991).

TEST_CASE("machine: a test-and-set lock collapses, a ticket lock degrades, an MCS lock does not") {
    CHECK(lock_time<tas_lock>(32) > 3 * lock_time<tas_lock>(2));
    CHECK(lock_time<ticket_lock>(32) > 1.5 * lock_time<ticket_lock>(2));
    CHECK(lock_time<mcs_lock>(32) < 1.2 * lock_time<mcs_lock>(4));
    CHECK(lock_time<mcs_lock>(32) < lock_time<ticket_lock>(32));
}

TEST_CASE(
    "machine: a read lock with one counter does not scale, one counter for each reader does") {
    const auto shared = [](unsigned readers) {
        atomic<int> count{0};
        return each(readers, 100, [&](unsigned) {
            count.fetch_add(1);
            count.fetch_sub(1);
        });
    };
    const auto apart = [](unsigned readers) {
        struct alignas(64) slot {
            atomic<int> count{0};
        };
        std::vector<slot> slots(readers);
        return each(readers, 100, [&](unsigned i) {
            slots[i].count.fetch_add(1);
            slots[i].count.fetch_sub(1);
        });
    };
    CHECK(shared(32) > 1.5 * shared(1)); // all readers together are slower than one
    CHECK(apart(32) < apart(1) / 20);
}

TEST_CASE("machine: counters on one line cost as much as one counter") {
    struct counter {
        atomic<int> count{0};
    };
    const auto time = [](std::size_t stride) {
        std::vector<counter> all(8 * stride + 16);
        return each(8, 100, [&](unsigned i) { all[i * stride].count.fetch_add(1); });
    };
    CHECK(time(1) > 5 * time(16));
}

// Chase and Lev, "Dynamic Circular Work-Stealing Deque", 2005. The items are the positions.
class chase_lev_deque {
public:
    void push() {
        const long at = bottom_.load(relaxed);
        items_[static_cast<std::size_t>(at) % 4096].store(at, relaxed);
        bottom_.store(at + 1, release);
    }
    bool pop() {
        const long at = bottom_.load(relaxed) - 1;
        bottom_.store(at); // seq_cst: before the load of the top
        long top = top_.load();
        if (top < at) {
            return true;
        }
        const bool is_mine = top == at && top_.compare_exchange_strong(top, top + 1);
        bottom_.store(at + 1, relaxed);
        return is_mine;
    }
    bool steal() {
        long top = top_.load(acquire);
        return top < bottom_.load(acquire) && top_.compare_exchange_strong(top, top + 1);
    }

private:
    alignas(64) atomic<long> top_{0};
    alignas(64) atomic<long> bottom_{0};
    alignas(64) atomic<long> items_[4096]{};
};
struct locked_deque {
    tas_lock lock;
    int count = 0;

    void push() {
        change([&] { return ++count > 0; });
    }
    bool pop() {
        return change([&] { return count > 0 && count-- > 0; });
    }
    bool steal() { return pop(); }
    template <class F> bool change(F f) {
        lock.lock();
        const bool done = f();
        lock.unlock();
        return done;
    }
};

TEST_CASE("machine: thieves hold up the owner of a locked deque, but not of a Chase-Lev deque") {
    const auto owner_time = []<class Deque>(std::type_identity<Deque>, unsigned thieves) {
        const auto deque = std::make_unique<Deque>();
        for (int i = 0; i < 2'000; ++i) {
            deque->push(); // outside of the machine: costs nothing
        }
        machine m(bide::model::one_socket_server(thieves + 1));
        std::int64_t took = 0;
        bool is_over = false;
        m.start(
            [&] {
                for (int k = 0; k < 500; ++k) {
                    deque->push();
                    deque->pop();
                }
                took = machine::here()->now_ns();
                is_over = true;
            },
            0);
        for (unsigned i = 1; i <= thieves; ++i) {
            m.start(
                [&] {
                    while (!is_over) {
                        deque->steal();
                        machine::here()->compute(4'000);
                        platform::pause();
                        machine::here()->now_ns(); // other threads run here
                    }
                },
                i);
        }
        m.run();
        return static_cast<double>(took);
    };
    const std::type_identity<chase_lev_deque> chase_lev;
    const std::type_identity<locked_deque> locked;
    CHECK(owner_time(chase_lev, 15) < 2 * owner_time(chase_lev, 1));
    CHECK(owner_time(locked, 15) > 6 * owner_time(locked, 1));
}

TEST_CASE("machine: the example of the README runs") {
    CHECK(time_of_a_lock(2) > 100);
    CHECK(time_of_a_lock(8) > time_of_a_lock(2));
}
