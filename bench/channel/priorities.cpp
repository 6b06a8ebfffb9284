// Messages through a priority channel: in and out by one thread, or from some threads to others. The
// order of the messages is a permutation of their numbers, so that each one sinks and rises.
//
// tbb::concurrent_priority_queue has no capacity and no wait: it takes part if there is room for all
// messages, and a receiver that finds it empty yields.

#include "channel/peers.hpp"

#include <bide/channel/priority_channel.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/concurrent_priority_queue.h>
#endif

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace bench {
namespace {

struct less_urgent {
    static constexpr message spread = 0x9e3779b97f4a7c15;
    bool operator()(message a, message b) const noexcept { return a * spread < b * spread; }
};

class bide_priority {
public:
    explicit bide_priority(std::size_t capacity) : channel_(capacity) {}
    void send(message m) { static_cast<void>(channel_.send(m)); }
    message recv() { return *channel_.recv(); }

private:
    bide::priority_channel<message, less_urgent> channel_;
};

class condition_priority {
public:
    explicit condition_priority(std::size_t capacity) : capacity_(capacity) {}

    void send(message m) {
        {
            std::unique_lock lock(mutex_);
            not_full_.wait(lock, [this] { return queue_.size() < capacity_; });
            queue_.push(m);
        }
        not_empty_.notify_one();
    }
    message recv() {
        message m = 0;
        {
            std::unique_lock lock(mutex_);
            not_empty_.wait(lock, [this] { return !queue_.empty(); });
            m = queue_.top();
            queue_.pop();
        }
        not_full_.notify_one();
        return m;
    }

private:
    const std::size_t capacity_;
    std::mutex mutex_;
    std::condition_variable not_full_;
    std::condition_variable not_empty_;
    std::priority_queue<message, std::vector<message>, less_urgent> queue_;
};

#if defined(BIDE_BENCH_HAS_TBB)
class tbb_priority {
public:
    explicit tbb_priority(std::size_t capacity) : queue_(capacity) {}
    void send(message m) { queue_.push(m); }
    message recv() {
        message m = 0;
        while (!queue_.try_pop(m)) {
            std::this_thread::yield();
        }
        return m;
    }

private:
    tbb::concurrent_priority_queue<message, less_urgent> queue_;
};
#endif

// Threads: the senders come first. One thread alone sends `capacity` messages, receives them, and so
// on.
struct shape {
    const char* name;
    std::size_t senders;
    std::size_t receivers;
};

template <class Channel> double priorities(const job& j, const shape& s) {
    isolated<Channel> channel(j.capacity);
    Channel& c = channel.subject;
    const auto send = [&](std::uint64_t from, std::uint64_t count) {
        for (std::uint64_t i = from; i < from + count; ++i) {
            c.send(i);
        }
    };
    const auto recv = [&](std::uint64_t count) {
        std::uint64_t sum = 0;
        for (std::uint64_t i = 0; i < count; ++i) {
            sum += c.recv();
        }
        return sum;
    };
    if (s.receivers == 0) {
        return run_job(j, 1, [&](std::size_t) {
            std::uint64_t sum = 0;
            for (std::uint64_t from = 0, n = 0; from < j.messages; from += n) {
                n = std::min<std::uint64_t>(j.capacity, j.messages - from);
                send(from, n);
                sum += recv(n);
            }
            return sum;
        });
    }
    return run_job(j, s.senders + s.receivers, [&](std::size_t i) {
        if (i >= s.senders) {
            return recv(j.messages / s.receivers);
        }
        const std::uint64_t share = j.messages / s.senders;
        send(i * share, share);
        return std::uint64_t{0};
    });
}

void add_table(const shape& s, std::size_t capacity) {
    table t(table_name(s.name, capacity), "the greatest first");
    const job j = job_of(capacity);
    const auto add = [&]<class Channel>(std::type_identity<Channel>, const char* row) {
        add_run(t, row, j, [s](const job& k) { return priorities<Channel>(k, s); });
    };
    add(std::type_identity<bide_priority>(), "bide::priority_channel");
    add(std::type_identity<condition_priority>(),
        "std::priority_queue, mutex and condition_variable");
#if defined(BIDE_BENCH_HAS_TBB)
    if (s.receivers == 0 || capacity == room_for_all) {
        add(std::type_identity<tbb_priority>(), "tbb::concurrent_priority_queue, yielding");
    }
#endif
}

} // namespace

void add_priorities() {
    add_table({"priority_seq", 1, 0}, 16);
    add_table({"priority_seq", 1, 0}, 1024);
    for (const shape& s :
         {shape{"priority_spsc", 1, 1}, shape{"priority_mpmc", channel_threads, channel_threads}}) {
        for (const std::size_t capacity :
             {std::size_t{1}, std::size_t{16}, std::size_t{1024}, room_for_all}) {
            add_table(s, capacity);
        }
    }
}

} // namespace bench
