// Sixteen messages in one call, against sixteen calls.

#include "channel/job.hpp"
#include "channel/peers.hpp"
#include "channel/workloads.hpp"
#include "support/isolated.hpp"

#include <bide/channel/channel.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace bench {
namespace {

constexpr std::size_t batch = 16;
constexpr std::size_t room = 128;

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

// A tenth of them, for the warm-up, are whole batches as well.
std::uint64_t messages_of(const harness& h) { return h.opts().quick ? 80'000 : 800'000; }

void add_table(harness& h, const char* name, const char* note, const char* shape, cpu_list cpus,
               bool two_threads) {
    const job j{room, messages_of(h), std::move(cpus)};
    table t{name, note, {{"message", "ns", 1, true}}, {}};
    const auto add = [&]<class Batches>(std::type_identity<Batches>, const char* row_name) {
        const auto run = [=](const job& k) {
            return two_threads ? by_two_threads<Batches>(k) : by_one_thread<Batches>(k);
        };
        t.rows.push_back({row_name, [=] { return after_warm_up(j, run); }, placement::own_process});
    };
    add_crossbeam(t, shape, j, h.opts().cpus);
    add(std::type_identity<one_by_one<bide_channel>>(), "bide::channel");
    add(std::type_identity<bide_batches>(), "bide::channel, batches");
    add(std::type_identity<one_by_one<condition_channel>>(), "mutex and condition_variable");
#if defined(BIDE_BENCH_HAS_MOODYCAMEL)
    add(std::type_identity<moodycamel_batches>(), "moodycamel, unbounded, batches");
#endif
    h.add(std::move(t));
}

} // namespace

void add_batches(harness& h) {
    const cpu_list all = h.opts().cpus;
    add_table(h, "batch/one-thread", "one thread: 16 in, 16 out; one by one, but for the batches",
              "batch", {all.front()}, false);
    add_table(h, "batch/two-threads", "as spsc/capacity=128; one by one, but for the batches",
              "spsc", all, true);
}

} // namespace bench
