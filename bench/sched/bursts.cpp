// How long tasks wait under overload: four times as many tasks as workers always want to run.

#include "sched/pools.hpp"

#include <bide/channel/channel.hpp>
#include <bide/channel/oneshot.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace bench {
namespace {

constexpr unsigned overload = 4;

void compute() {
    const auto until = steady::now() + std::chrono::microseconds(2);
    while (steady::now() < until) {
    }
}

// client(waits, count) in each of so many tasks, which add what each of their waits took: the median, and in microseconds
// 99 % and 99.9 %.
template <class Client> measured waits(bide::scheduler& s, const job& j, Client client) {
    const std::uint64_t tasks = overload * j.workers;
    std::vector<histogram> of(tasks);
    std::vector<bide::join_handle<>> handles;
    for (histogram& mine : of) {
        handles.push_back(s.spawn(client(mine, j.count / tasks)));
    }
    for (bide::join_handle<>& h : handles) {
        std::move(h).join();
    }
    histogram all;
    for (const histogram& each : of) {
        all.merge(each);
    }
    return {all.percentile(0.5),
            {{"p99", all.percentile(0.99) / 1e3}, {"p99.9", all.percentile(0.999) / 1e3}}};
}

void add_wait(histogram& to, steady::time_point began) {
    to.add(static_cast<std::uint64_t>(ns_since(began)));
}

// The permit is kept over a suspension, as real work keeps it.
bide::task<> work_with_permit(bide::semaphore& free, histogram& waited, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto began = steady::now();
        const bide::permit mine = co_await free.async_acquire();
        add_wait(waited, began);
        compute();
        co_await bide::this_task::yield();
        compute();
    }
}

measured permits(const job& j) {
    bide::semaphore free(static_cast<std::ptrdiff_t>(j.workers));
    bide::scheduler s(scheduler_options_of(j));
    return waits(s, j, [&](histogram& waited, std::uint64_t count) {
        return work_with_permit(free, waited, count);
    });
}

using request = bide::oneshot_sender<std::monostate>;
using requests = bide::channel<request>;

bide::task<> answer_all(requests& from) {
    while (auto next = co_await from.async_recv()) {
        compute();
        check(std::move(*next).send({}).has_value());
    }
}

bide::task<> ask(requests& to, histogram& waited, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        auto reply = bide::oneshot<std::monostate>();
        const auto began = steady::now();
        check((co_await to.async_send(std::move(reply.first))).has_value());
        check((co_await reply.second.async_recv()).has_value());
        add_wait(waited, began);
    }
}

measured round_trips(const job& j) {
    requests to(j.workers);
    bide::scheduler s(scheduler_options_of(j));
    std::vector<bide::join_handle<>> servers;
    for (unsigned i = 0; i < j.workers; ++i) {
        servers.push_back(s.spawn(answer_all(to)));
    }
    measured result =
        waits(s, j, [&](histogram& waited, std::uint64_t count) { return ask(to, waited, count); });
    to.close();
    for (bide::join_handle<>& server : servers) {
        std::move(server).join();
    }
    return result;
}

void add(const char* name, const char* note, measured (*measure)(const job&)) {
    const job j{scaled(200'000)};
    table t(name, note);
    for (const peer_program& peer : {tokio_peer, go_peer}) {
        add_peer(t, peer, name, j, {"p99", "p99.9"}, 1e3);
    }
    t.add(bide_row, [=] { return measure(j); }, placement::own_process);
}

} // namespace

void add_bursts() {
    add("bursts/permit", "a permit for each worker, four tasks that want it; 4 us with it",
        permits);
    add("bursts/request_reply",
        "a server for each worker, four tasks that ask it over one channel; 2 us for each answer",
        round_trips);
}

} // namespace bench
