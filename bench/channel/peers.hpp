#ifndef BIDE_BENCH_CHANNEL_PEERS_HPP
#define BIDE_BENCH_CHANNEL_PEERS_HPP

// Every channel under one shape: made with a capacity, send(message), recv(). So a workload is
// written once and each variant is compiled into it. (crossbeam-channel is in job.hpp.)

#include "channel/job.hpp"

#include <bide/channel/channel.hpp>

#if defined(BIDE_BENCH_HAS_ATOMIC_QUEUE)
#include <atomic_queue/atomic_queue.h>
#endif
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
#include <boost/fiber/buffered_channel.hpp>
#include <boost/fiber/unbuffered_channel.hpp>
#endif
#if defined(BIDE_BENCH_HAS_MOODYCAMEL)
#include <blockingconcurrentqueue.h>
#endif
#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/concurrent_queue.h>
#endif

#include <bit>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace bench {

using message = std::uint64_t; // as crossbeam-channel's own benchmark has it

class bide_channel {
public:
    explicit bide_channel(std::size_t capacity) : channel_(capacity) {}
    void send(message m) { static_cast<void>(channel_.send(m)); }
    message recv() { return *channel_.recv(); }

private:
    bide::channel<message> channel_;
};

// What programs without a channel do.
class condition_channel {
public:
    explicit condition_channel(std::size_t capacity) : items_(capacity) {}

    void send(message m) {
        {
            std::unique_lock lock(mutex_);
            not_full_.wait(lock, [this] { return size_ < items_.size(); });
            items_[(first_ + size_++) % items_.size()] = m;
        }
        not_empty_.notify_one();
    }

    message recv() {
        message m = 0;
        {
            std::unique_lock lock(mutex_);
            not_empty_.wait(lock, [this] { return size_ > 0; });
            m = items_[first_];
            first_ = (first_ + 1) % items_.size();
            --size_;
        }
        not_full_.notify_one();
        return m;
    }

private:
    std::mutex mutex_;
    std::condition_variable not_full_;
    std::condition_variable not_empty_;
    std::vector<message> items_;
    std::size_t first_ = 0;
    std::size_t size_ = 0;
};

#if defined(BIDE_BENCH_HAS_TBB)
class tbb_channel {
public:
    explicit tbb_channel(std::size_t capacity) {
        queue_.set_capacity(static_cast<std::ptrdiff_t>(capacity));
    }
    void send(message m) { queue_.push(m); }
    message recv() {
        message m = 0;
        queue_.pop(m);
        return m;
    }

private:
    tbb::concurrent_bounded_queue<message> queue_;
};
#endif

#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
// Wants a power of two and uses all but one: gets the next that holds the capacity.
class fiber_channel {
public:
    explicit fiber_channel(std::size_t capacity) : channel_(std::bit_ceil(capacity + 1)) {}
    void send(message m) { channel_.push(m); }
    message recv() { return channel_.value_pop(); }

private:
    boost::fibers::buffered_channel<message> channel_;
};

class fiber_rendezvous {
public:
    explicit fiber_rendezvous(std::size_t) {}
    void send(message m) { channel_.push(m); }
    message recv() { return channel_.value_pop(); }

private:
    boost::fibers::unbuffered_channel<message> channel_;
};
#endif

#if defined(BIDE_BENCH_HAS_ATOMIC_QUEUE)
// Has no way to sleep: a thread that must wait spins for a while, and then yields each time.
template <class Queue> class yielding_channel {
public:
    explicit yielding_channel(std::size_t capacity) : queue_(make(capacity)) {}

    void send(message m) {
        until([&] { return queue_.try_push(m); });
    }
    message recv() {
        message m = 0;
        until([&] { return queue_.try_pop(m); });
        return m;
    }

private:
    static constexpr int looks = 100;

    static Queue make(std::size_t capacity) {
        if constexpr (std::is_constructible_v<Queue, unsigned>) {
            return Queue(static_cast<unsigned>(capacity));
        } else {
            return Queue();
        }
    }

    template <class Try> static void until(Try done) {
        for (int i = 0; !done(); ++i) {
            if (i < looks) {
                atomic_queue::spin_loop_pause();
            } else {
                std::this_thread::yield();
            }
        }
    }

    Queue queue_;
};

template <unsigned Capacity>
using fixed_atomic_queue = yielding_channel<atomic_queue::AtomicQueue2<message, Capacity>>;
// Holds 4096 at least.
using sized_atomic_queue = yielding_channel<atomic_queue::AtomicQueueB2<message>>;
#endif

#if defined(BIDE_BENCH_HAS_MOODYCAMEL)
class moodycamel_channel {
public:
    explicit moodycamel_channel(std::size_t capacity) : queue_(capacity) {}
    void send(message m) { queue_.enqueue(m); }
    message recv() {
        message m = 0;
        queue_.wait_dequeue(m);
        return m;
    }

    void send_n(const message* first, std::size_t count) { queue_.enqueue_bulk(first, count); }
    std::size_t recv_n(message* first, std::size_t most) {
        return queue_.wait_dequeue_bulk(first, most);
    }

private:
    moodycamel::BlockingConcurrentQueue<message> queue_;
};
#endif

// Whether a workload never has more inside than the capacity, so that a queue without one will do.
enum class bounds { needed, not_needed };

// Calls visit(std::type_identity<Channel>(), name) for each channel that has, or nearly has, that
// capacity.
template <class Visit>
void for_each_channel(std::size_t capacity, [[maybe_unused]] bounds which, Visit visit) {
    visit(std::type_identity<bide_channel>(), "bide::channel");
    if (capacity == 0) {
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
        visit(std::type_identity<fiber_rendezvous>(), "boost::fibers channel");
#endif
        return;
    }
    visit(std::type_identity<condition_channel>(), "mutex and condition_variable");
#if defined(BIDE_BENCH_HAS_TBB)
    visit(std::type_identity<tbb_channel>(), "tbb::concurrent_bounded_queue");
#endif
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
    visit(std::type_identity<fiber_channel>(), "boost::fibers channel");
#endif
#if defined(BIDE_BENCH_HAS_ATOMIC_QUEUE)
    constexpr const char* name = "atomic_queue, yielding";
    switch (capacity) {
    case 1: visit(std::type_identity<fixed_atomic_queue<1>>(), name); break;
    case 16: visit(std::type_identity<fixed_atomic_queue<16>>(), name); break;
    case 128: visit(std::type_identity<fixed_atomic_queue<128>>(), name); break;
    case 1024: visit(std::type_identity<fixed_atomic_queue<1024>>(), name); break;
    default: visit(std::type_identity<sized_atomic_queue>(), name); break;
    }
#endif
#if defined(BIDE_BENCH_HAS_MOODYCAMEL)
    if (which == bounds::not_needed) {
        visit(std::type_identity<moodycamel_channel>(), "moodycamel, unbounded");
    }
#endif
}

// Adds a row for each channel: measure(std::type_identity<Channel>(), job).
template <class Measure>
void add_channels(table& t, const job& j, bounds which, placement where, Measure measure) {
    for_each_channel(j.capacity, which,
                     [&]<class Channel>(std::type_identity<Channel> type, const char* name) {
                         add_run(t, name, j, [=](const job& k) { return measure(type, k); }, where);
                     });
}

} // namespace bench

#endif
