// Tasks that want the same thing, on 1 to 64 workers: what one worker does alone, more workers must
// not do much more slowly. And six tasks that each take a lock once, after Tokio's benches/sync_semaphore.rs and
// sync_rwlock.rs.

#include "sched/pools.hpp"

#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/latch.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

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
template <class Mutex> bide::task<> lock(Mutex& m, std::uint64_t times) {
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
        static_cast<void>(co_await from.async_recv());
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

template <std::ptrdiff_t Tasks, class Mutex = bide::mutex>
void locks(bide::scheduler& s, std::uint64_t count) {
    Mutex one;
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
    void (*adaptive)(bide::scheduler&, std::uint64_t) = nullptr; // with an adaptive_mutex
};

template <class Run> void add(const std::string& name, const char* note, Run run, peers others) {
    constexpr std::uint64_t count = 64'000;
    for (const unsigned workers : {1u, 2u, 4u, 16u, 64u}) {
        run_table t("contended/" + name + "/workers=" + std::to_string(workers), note, count, count,
                    workers);
        for (const auto& [peer, workload] :
             {std::pair(tokio_peer, others.tokio), {go_peer, others.go}, {tmc_peer, others.tmc}}) {
            if (workload != nullptr) {
                t.add(peer, workload);
            }
        }
        t.add(bide_row, repeat_on_bide(run));
        if (others.adaptive != nullptr) {
            t.add("bide::adaptive_mutex", repeat_on_bide(others.adaptive));
        }
    }
}

// ---- Six tasks

bide::task<> take(bide::semaphore& s) { static_cast<void>(co_await s.async_acquire()); }

bide::task<> read(bide::shared_mutex& m) { static_cast<void>(co_await m.async_lock_shared()); }

bide::task<> join_all(std::vector<bide::join_handle<>>& handles) {
    for (bide::join_handle<>& handle : handles) {
        co_await std::move(handle).async_join();
    }
}

bide::task<> take_all(bide::scheduler& s, bide::semaphore& permits, std::uint64_t count) {
    std::vector<bide::join_handle<>> handles;
    handles.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        handles.push_back(s.spawn(take(permits)));
    }
    co_await join_all(handles);
}

bide::task<> semaphore_uncontended(bide::scheduler& s, std::uint64_t count) {
    bide::semaphore permits(10);
    co_await take_all(s, permits, count);
}

bide::task<> semaphore_contended(bide::scheduler& s, std::uint64_t count) {
    bide::semaphore permits(5);
    co_await take_all(s, permits, count);
}

// A writer has it while the readers are spawned, or no task has.
bide::task<> read_all(bide::scheduler& s, std::uint64_t count, bool contended) {
    bide::shared_mutex m;
    std::unique_lock<bide::shared_mutex> writing(m, std::defer_lock);
    if (contended) {
        writing = co_await m.async_lock();
    }
    std::vector<bide::join_handle<>> handles;
    handles.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        handles.push_back(s.spawn(read(m)));
    }
    if (contended) {
        writing.unlock();
    }
    co_await join_all(handles);
}

bide::task<> rwlock_uncontended(bide::scheduler& s, std::uint64_t count) {
    return read_all(s, count, false);
}

bide::task<> rwlock_contended(bide::scheduler& s, std::uint64_t count) {
    return read_all(s, count, true);
}

} // namespace

void add_contended() {
    add("permits", "64 tasks, three permits", permits,
        {"contended/permits", "contended/permits", "contended/permits"});
    add("mutex/2", "two tasks", locks<2>,
        {"contended/mutex/2", "contended/mutex/2", "contended/mutex/2",
         locks<2, bide::adaptive_mutex>});
    add("mutex/16", "sixteen tasks", locks<16>,
        {"contended/mutex/16", "contended/mutex/16", "contended/mutex/16",
         locks<16, bide::adaptive_mutex>});
    add("channel/4-4/0", "four senders, four receivers, no buffer", channel<items, 4, 4, 0>,
        {nullptr, "contended/4-4/0"});
    add("channel/4-1/0", "four senders, one receiver, no buffer", channel<items, 4, 1, 0>,
        {nullptr, "contended/4-1/0"});
    add("channel/4-4/128", "four senders, four receivers, 128 places", channel<items, 4, 4, 128>,
        {nullptr, "contended/4-4/128"});
    add("channel/4-1/128", "four senders, one receiver, 128 places", channel<items, 4, 1, 128>,
        {"contended/4-1/128", "contended/4-1/128"});
    add("channel/1-1/128", "one sender, one receiver, 128 places", channel<items, 1, 1, 128>,
        {"contended/1-1/128", "contended/1-1/128"});
    add("channel/1-1/unbounded", "one sender, one receiver, any number of places",
        channel<unbounded_items, 1, 1>,
        {"contended/1-1/unbounded", nullptr, "contended/1-1/unbounded"});
    add("select", "four senders, a select of four channels without buffer", select_of_four,
        {nullptr, "contended/select"});
}

void add_locks() {
    struct shape {
        const char* table;
        const char* note;
        const char* tokio;
        bide_root root;
    };
    for (const shape& each : {
             shape{"locks/semaphore", "six tasks, ten permits", "semaphore_uncontended",
                   semaphore_uncontended},
             shape{"locks/semaphore_contended", "six tasks, five permits", "semaphore_contended",
                   semaphore_contended},
             shape{"locks/rwlock", "six readers", "rwlock_uncontended", rwlock_uncontended},
             shape{"locks/rwlock_contended", "six readers, behind a writer", "rwlock_contended",
                   rwlock_contended},
         }) {
        run_table t(each.table, each.note, 6);
        t.add(tokio_peer, each.tokio);
        add_bide_roots(t, each.root);
    }
}

} // namespace bench
