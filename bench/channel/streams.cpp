// Messages through one channel, or two: all in and all out by one thread, from some threads to others, there and
// back, sixteen at a time, and between coroutines. The shapes are those of crossbeam-channel's own benchmark, and
// so are the four threads on a side that has several.
//
// Queues that have no capacity take part where there is room for all messages.

#include "channel/peers.hpp"

#include <bide/channel/channel.hpp>
#include <bide/task/task.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace bench {
namespace {

template <class Channel> void send_all(Channel& channel, std::uint64_t from, std::uint64_t count) {
    for (std::uint64_t i = from; i < from + count; ++i) {
        channel.send(i);
    }
}

template <class Channel> std::uint64_t recv_all(Channel& channel, std::uint64_t count) {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        sum += channel.recv();
    }
    return sum;
}

// One thread: `batch` in, `batch` out, and again.
template <class Channel> double in_and_out(const job& j, std::uint64_t batch) {
    isolated<Channel> channel(j.capacity);
    return run_job(j, 1, [&](std::size_t) {
        std::uint64_t sum = 0;
        for (std::uint64_t from = 0; from < j.messages; from += batch) {
            send_all(channel.subject, from, batch);
            sum += recv_all(channel.subject, batch);
        }
        return sum;
    });
}

// Threads: the senders come first.
struct sides {
    std::size_t senders;
    std::size_t receivers;
};

template <class Channel> double stream(const job& j, const sides& s) {
    isolated<Channel> channel(j.capacity);
    return run_job(j, s.senders + s.receivers, [&](std::size_t i) {
        if (i >= s.senders) {
            return recv_all(channel.subject, j.messages / s.receivers);
        }
        const std::uint64_t share = j.messages / s.senders;
        send_all(channel.subject, i * share, share);
        return std::uint64_t{0};
    });
}

// ---- There and back
//
// Where the threads may run decides everything:
//   ping-pong/two-processors       pinned to one each
//   ping-pong/one-processor        the process may use one processor: spinning is in vain, and can
//                                  be known to be
//   ping-pong/pinned-to-the-same   the process may use all, both threads are pinned to one: spinning
//                                  is in vain, and nothing says so for certain

template <class Channel> double take_turns(const job& j) {
    isolated<Channel> there(j.capacity);
    isolated<Channel> back(j.capacity);
    return run_job(j, 2, [&](std::size_t player) {
        std::uint64_t sum = 0;
        for (std::uint64_t i = 0; i < j.messages; ++i) {
            if (player == 0) {
                there.subject.send(i);
                sum += back.subject.recv();
            } else {
                back.subject.send(there.subject.recv());
            }
        }
        return sum;
    });
}

// ---- A coroutine on one thread sends to a coroutine on another

bide::task<std::uint64_t> send_each(bide::channel<message>& to, std::uint64_t messages) {
    for (message m = 0; m < messages; ++m) {
        static_cast<void>(co_await to.async_send(m));
    }
    co_return 0;
}

bide::task<std::uint64_t> recv_each(bide::channel<message>& from, std::uint64_t messages) {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < messages; ++i) {
        sum += *co_await from.async_recv();
    }
    co_return sum;
}

double by_coroutines(const job& j) {
    bide::channel<message> channel(j.capacity);
    return run_job(j, 2, [&](std::size_t i) {
        return bide::sync_wait(i == 0 ? send_each(channel, j.messages)
                                      : recv_each(channel, j.messages));
    });
}

// ---- Sixteen messages in one call, against sixteen calls

constexpr std::size_t batch = 16;

// In batches: send_n(messages) puts all of them in, recv_n(messages) takes up to as many out.
class bide_batches {
public:
    explicit bide_batches(std::size_t capacity) : channel_(capacity) { taken_.reserve(batch); }

    void send_n(std::span<message> items) {
        for (;;) {
            items = items.subspan(channel_.try_send_n(items));
            if (items.empty()) {
                return;
            }
            static_cast<void>(channel_.send(items.front()));
            items = items.subspan(1);
        }
    }

    std::span<const message> recv_n(std::size_t most) {
        taken_.clear();
        channel_.recv_n(taken_, most);
        return taken_;
    }

private:
    bide::channel<message> channel_;
    std::vector<message> taken_; // the receiver's
};

#if defined(BIDE_BENCH_HAS_MOODYCAMEL)
class moodycamel_batches {
public:
    explicit moodycamel_batches(std::size_t capacity) : queue_(capacity) {}
    void send_n(std::span<message> items) { queue_.send_n(items.data(), items.size()); }
    std::span<const message> recv_n(std::size_t most) {
        return {taken_.data(), queue_.recv_n(taken_.data(), most)};
    }

private:
    moodycamel_channel queue_;
    std::array<message, batch> taken_{}; // the receiver's
};
#endif

// The same calls, one message each.
template <class Channel> class one_by_one {
public:
    explicit one_by_one(std::size_t capacity) : channel_(capacity) {}
    void send_n(std::span<message> items) {
        for (const message m : items) {
            channel_.send(m);
        }
    }
    std::span<const message> recv_n(std::size_t most) {
        for (std::size_t i = 0; i < most; ++i) {
            taken_[i] = channel_.recv();
        }
        return {taken_.data(), most};
    }

private:
    Channel channel_;
    std::array<message, batch> taken_{}; // the receiver's
};

template <class Batches> void send_batch(Batches& to, std::uint64_t from) {
    std::array<message, batch> items;
    std::iota(items.begin(), items.end(), from);
    to.send_n(items);
}

// Sum and number of what came.
template <class Batches> std::size_t recv_batch(Batches& from, std::uint64_t& sum) {
    const std::span<const message> items = from.recv_n(batch);
    sum = std::accumulate(items.begin(), items.end(), sum);
    return items.size();
}

template <class Batches> double by_one_thread(const job& j) {
    isolated<Batches> batches(j.capacity);
    return run_job(j, 1, [&](std::size_t) {
        std::uint64_t sum = 0;
        for (std::uint64_t from = 0; from < j.messages; from += batch) {
            send_batch(batches.subject, from);
            for (std::size_t received = 0; received < batch;) {
                received += recv_batch(batches.subject, sum);
            }
        }
        return sum;
    });
}

template <class Batches> double by_two_threads(const job& j) {
    isolated<Batches> batches(j.capacity);
    return run_job(j, 2, [&](std::size_t i) {
        std::uint64_t sum = 0;
        for (std::uint64_t done = 0; done < j.messages;) {
            if (i == 0) {
                send_batch(batches.subject, done);
                done += batch;
            } else {
                done += recv_batch(batches.subject, sum);
            }
        }
        return sum;
    });
}

} // namespace

void add_streams() {
    const auto add_one_thread = [](const char* shape, const std::string& name, std::size_t capacity,
                                   bool pairs, const char* note) {
        table t(name, note);
        job j = job_of(capacity);
        j.cpus.resize(1);
        add_crossbeam(t, shape, j, allowed_cpus());
        add_channels(t, j, bounds::not_needed, placement::own_process,
                     [=]<class Channel>(std::type_identity<Channel>, const job& k) {
                         return in_and_out<Channel>(k, pairs ? 1 : k.messages);
                     });
    };
    add_one_thread("seq", "seq/capacity=N", room_for_all, false,
                   "one thread: all in, then all out");
    add_one_thread("pairs", "seq/capacity=128", 128, true, "one thread: one in, one out");
    struct shape {
        const char* name;
        sides of;
    };
    for (const shape& s : {shape{"spsc", {1, 1}}, shape{"mpsc", {channel_threads, 1}},
                           shape{"mpmc", {channel_threads, channel_threads}}}) {
        for (const std::size_t capacity : {std::size_t{0}, std::size_t{1}, std::size_t{16},
                                           std::size_t{128}, std::size_t{1024}, room_for_all}) {
            table t(table_name(s.name, capacity),
                    "senders: " + std::to_string(s.of.senders) +
                        ", receivers: " + std::to_string(s.of.receivers));
            const job j = job_of(capacity);
            add_crossbeam(t, s.name, j, j.cpus);
            add_channels(t, j, capacity == room_for_all ? bounds::not_needed : bounds::needed,
                         placement::own_process,
                         [of = s.of]<class Channel>(std::type_identity<Channel>, const job& k) {
                             return stream<Channel>(k, of);
                         });
        }
    }
}

void add_ping_pong() {
    struct arrangement {
        const char* name;
        const char* note;
        cpu_list allowed;
        cpu_list pinned_to;
    };
    const cpu_list all = allowed_cpus();
    const cpu_list first{all.front()};
    for (const arrangement& a :
         {arrangement{"two-processors", "threads pinned to one processor each", all, all},
          arrangement{"one-processor", "the process may use one processor", first, first},
          arrangement{"pinned-to-the-same", "both threads pinned to one of the process' processors",
                      all, first}}) {
        table t(std::string("ping-pong/") + a.name, std::string("a round trip; ") + a.note);
        const job j{1, scaled(20'000, messages_multiple), a.pinned_to};
        add_crossbeam(t, "ping_pong", j, a.allowed);
        add_channels(t, j, bounds::not_needed,
                     a.name == std::string("one-processor") ? placement::one_processor
                                                            : placement::own_process,
                     []<class Channel>(std::type_identity<Channel>, const job& k) {
                         return take_turns<Channel>(k);
                     });
    }
}

void add_batches() {
    for (const bool two : {false, true}) {
        table t(two ? "batch/two-threads" : "batch/one-thread",
                two ? "as spsc/capacity=128; one by one, but for the batches"
                    : "one thread: 16 in, 16 out; one by one, but for the batches");
        job j{128, scaled(800'000, 10 * messages_multiple), allowed_cpus()};
        j.cpus.resize(two ? j.cpus.size() : 1);
        add_crossbeam(t, two ? "spsc" : "batch", j, allowed_cpus());
        const auto add = [&]<class Batches>(std::type_identity<Batches>, const char* row) {
            add_run(t, row, j, two ? by_two_threads<Batches> : by_one_thread<Batches>);
        };
        add(std::type_identity<one_by_one<bide_channel>>(), "bide::channel");
        add(std::type_identity<bide_batches>(), "bide::channel, batches");
        add(std::type_identity<one_by_one<condition_channel>>(), "mutex and condition_variable");
#if defined(BIDE_BENCH_HAS_MOODYCAMEL)
        add(std::type_identity<moodycamel_batches>(), "moodycamel, unbounded, batches");
#endif
    }
}

void add_coroutines() {
    for (const std::size_t capacity : {128u, 1024u}) {
        table t(table_name("coroutines", capacity), "a sender, a receiver, ten million messages");
        const job j{capacity, scaled(10'000'000, messages_multiple), allowed_cpus()};
        add_crossbeam(t, "spsc", j, j.cpus);
        const sides one_to_one{1, 1};
        add_run(t, "bide::channel", j,
                [=](const job& k) { return stream<bide_channel>(k, one_to_one); });
        add_run(t, "bide::channel, coroutines", j, by_coroutines);
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
        add_run(t, "boost::fibers channel", j,
                [=](const job& k) { return stream<fiber_channel>(k, one_to_one); });
#endif
    }
}

} // namespace bench
