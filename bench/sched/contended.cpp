// Tasks that want the same thing, on 1 to 64 workers: what one worker does alone, more workers must
// not do much more slowly.

#include "sched/job.hpp"
#include "sched/pools.hpp"
#include "sched/workloads.hpp"

#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/latch.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace bench {
namespace {

using items = bide::channel<std::uint64_t>;
using unbounded_items = bide::unbounded_channel<std::uint64_t>;

// Spawns each task, and waits for all.
class crew {
public:
    crew(bide::scheduler& s, std::ptrdiff_t tasks) : on_(s), left_(tasks) {}

    void add(bide::task<> work) { on_.spawn(one(std::move(work), left_)).detach(); }
    void wait() { left_.wait(); }

private:
    static bide::task<> one(bide::task<> work, bide::latch& left) {
        co_await std::move(work);
        left.count_down();
    }

    bide::scheduler& on_;
    bide::latch left_;
};

bide::task<> acquire(bide::semaphore& s, std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i) {
        const bide::permit one = co_await s.async_acquire();
    }
}
bide::task<> lock(bide::mutex& m, std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i) {
        const auto held = co_await m.async_lock();
    }
}
template <class Items> bide::task<> send(Items& to, std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i) {
        co_await to.async_send(i);
    }
}
template <class Items> bide::task<> receive(Items& from, std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i) {
        co_await from.async_recv();
    }
}
bide::task<> select(std::array<items, 4>& from, std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i) {
        co_await bide::async_select(bide::on_recv(from[0]), bide::on_recv(from[1]),
                                    bide::on_recv(from[2]), bide::on_recv(from[3]));
    }
}

void permits(bide::scheduler& s, std::uint64_t count) {
    constexpr std::ptrdiff_t tasks = 64;
    bide::semaphore three(3);
    crew all(s, tasks);
    for (std::ptrdiff_t i = 0; i < tasks; ++i) {
        all.add(acquire(three, count / tasks));
    }
    all.wait();
}

template <std::ptrdiff_t Tasks> void locks(bide::scheduler& s, std::uint64_t count) {
    bide::mutex one;
    crew all(s, Tasks);
    for (std::ptrdiff_t i = 0; i < Tasks; ++i) {
        all.add(lock(one, count / Tasks));
    }
    all.wait();
}

template <class Items, std::ptrdiff_t Senders, std::ptrdiff_t Receivers, std::size_t... Capacity>
void channel(bide::scheduler& s, std::uint64_t count) {
    Items c{Capacity...};
    crew all(s, Senders + Receivers);
    for (std::ptrdiff_t i = 0; i < Senders; ++i) {
        all.add(send(c, count / Senders));
    }
    for (std::ptrdiff_t i = 0; i < Receivers; ++i) {
        all.add(receive(c, count / Receivers));
    }
    all.wait();
}

void select_of_four(bide::scheduler& s, std::uint64_t count) {
    std::array<items, 4> from{items{0}, items{0}, items{0}, items{0}};
    crew all(s, 5);
    for (items& c : from) {
        all.add(send(c, count / 4));
    }
    all.add(select(from, count));
    all.wait();
}

struct peers {
    const char* tokio = nullptr; // its workload, where it has what the row needs
    const char* go = nullptr;
    const char* tmc = nullptr;
};

template <class Run>
void add(harness& h, const std::string& name, const char* note, Run run, peers others) {
    constexpr std::uint64_t count = 64'000;
    for (const unsigned workers : {1u, 2u, 4u, 16u, 64u}) {
        run_table t(h, "contended/" + name + "/workers=" + std::to_string(workers), note, count,
                    ns_each("operation", count));
        t.set_workers(workers);
        if (others.tokio != nullptr) {
            t.add(tokio_peer, others.tokio);
        }
        if (others.go != nullptr) {
            t.add(go_peer, others.go);
        }
        if (others.tmc != nullptr) {
            t.add(tmc_peer, others.tmc);
        }
        t.add(bide_row, repeat_on_bide(run));
        t.finish();
    }
}

} // namespace

void add_contended(harness& h) {
    add(h, "permits", "64 tasks, three permits", permits,
        {"contended/permits", "contended/permits", "contended/permits"});
    add(h, "mutex/2", "two tasks", locks<2>,
        {"contended/mutex/2", "contended/mutex/2", "contended/mutex/2"});
    add(h, "mutex/16", "sixteen tasks", locks<16>,
        {"contended/mutex/16", "contended/mutex/16", "contended/mutex/16"});
    add(h, "channel/4-4/0", "four senders, four receivers, no buffer", channel<items, 4, 4, 0>,
        {nullptr, "contended/4-4/0"});
    add(h, "channel/4-1/0", "four senders, one receiver, no buffer", channel<items, 4, 1, 0>,
        {nullptr, "contended/4-1/0"});
    add(h, "channel/4-4/128", "four senders, four receivers, 128 places", channel<items, 4, 4, 128>,
        {nullptr, "contended/4-4/128"});
    add(h, "channel/4-1/128", "four senders, one receiver, 128 places", channel<items, 4, 1, 128>,
        {"contended/4-1/128", "contended/4-1/128"});
    add(h, "channel/1-1/128", "one sender, one receiver, 128 places", channel<items, 1, 1, 128>,
        {"contended/1-1/128", "contended/1-1/128"});
    add(h, "channel/1-1/unbounded", "one sender, one receiver, any number of places",
        channel<unbounded_items, 1, 1>,
        {"contended/1-1/unbounded", nullptr, "contended/1-1/unbounded"});
    add(h, "select", "four senders, a select of four channels without buffer", select_of_four,
        {nullptr, "contended/select"});
}

} // namespace bench
