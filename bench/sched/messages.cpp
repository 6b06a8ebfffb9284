// Tasks that wait for each other. After Tokio's benches/rt_multi_threaded.rs (ping_pong),
// sync_mpsc_oneshot.rs (request_reply) and sync_mpsc.rs (bounded, unbounded).

#include "sched/pools.hpp"

#include <bide/channel/channel.hpp>
#include <bide/channel/oneshot.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/latch.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>

#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
#include <boost/fiber/buffered_channel.hpp>
#include <boost/fiber/future.hpp>
#endif

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

namespace bench {
namespace {

using signal = std::monostate;

void check_sum(std::uint64_t count, std::uint64_t sum) { check(sum == count * (count - 1) / 2); }

// ---- ping_pong

bide::task<> pong(bide::oneshot_receiver<signal> ping, bide::oneshot_sender<signal> answer) {
    check((co_await ping.async_recv()).has_value());
    check(std::move(answer).send({}).has_value());
}

bide::task<> ping(bide::scheduler& s, bide::latch& left) {
    auto there = bide::oneshot<signal>();
    auto back = bide::oneshot<signal>();
    s.spawn(pong(std::move(there.second), std::move(back.first))).detach();
    check(std::move(there.first).send({}).has_value());
    check((co_await back.second.async_recv()).has_value());
    left.count_down();
}

bide::task<> spawn_pings(bide::scheduler& s, bide::latch& left, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        s.spawn(ping(s, left)).detach();
    }
    co_return;
}

bide::task<> ping_pong(bide::scheduler& s, std::uint64_t count) {
    bide::latch left(static_cast<std::ptrdiff_t>(count));
    s.spawn(spawn_pings(s, left, count)).detach();
    co_await left.async_wait();
}

// ---- request_reply

using request = bide::oneshot_sender<signal>;
using requests = bide::channel<request>;

constexpr std::size_t requests_in_flight = 10;

bide::task<> answer_all(requests& from) {
    while (auto next = co_await from.async_recv()) {
        check(std::move(*next).send({}).has_value());
    }
}

bide::task<> ask(requests& to, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        auto reply = bide::oneshot<signal>();
        check((co_await to.async_send(std::move(reply.first))).has_value());
        check((co_await reply.second.async_recv()).has_value());
    }
}

// The client's runs are timed where it runs: with one worker no other thread takes part.
bide::task<measured> ask_repeatedly(requests& to, job j) {
    run_timer timer(j);
    while (timer.next()) {
        co_await ask(to, j.count);
    }
    co_return timer.result();
}

measured request_reply_one_thread(const job& j) {
    job alone = j;
    alone.workers = 1;
    bide::scheduler s(scheduler_options_of(alone));
    requests to(requests_in_flight);
    bide::join_handle<> server = s.spawn(answer_all(to));
    measured found = s.spawn(ask_repeatedly(to, alone)).join();
    to.close();
    std::move(server).join();
    return found;
}

// As Tokio has it: the client comes from a thread outside.
measured request_reply(const job& j) {
    bide::scheduler s(scheduler_options_of(j));
    requests to(requests_in_flight);
    bide::join_handle<> server = s.spawn(answer_all(to));
    run_timer timer(j);
    while (timer.next()) {
        bide::sync_wait(s, ask(to, j.count));
    }
    to.close();
    std::move(server).join();
    return timer.result();
}

// The client is a task on a worker, too.
measured request_reply_of_tasks(const job& j) {
    bide::scheduler s(scheduler_options_of(j));
    requests to(requests_in_flight);
    bide::join_handle<> server = s.spawn(answer_all(to));
    run_timer timer(j);
    while (timer.next()) {
        s.spawn(ask(to, j.count)).join();
    }
    to.close();
    std::move(server).join();
    return timer.result();
}

// ---- round trips

using numbers = bide::channel<std::uint64_t>;

bide::task<> echo(numbers& from, numbers& to) {
    while (auto next = co_await from.async_recv()) {
        static_cast<void>(co_await to.async_send(*next));
    }
}

bide::task<> round_trip(bide::scheduler& s, std::uint64_t count) {
    numbers there(1);
    numbers back(1);
    bide::join_handle<> other = s.spawn(echo(there, back));
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        static_cast<void>(co_await there.async_send(i));
        sum += *co_await back.async_recv();
    }
    there.close();
    co_await std::move(other).async_join();
    check_sum(count, sum);
}

// ---- all in, all out

template <class Channel>
bide::task<std::uint64_t> in_and_out(Channel& channel, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        static_cast<void>(co_await channel.async_send(i));
    }
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        sum += *co_await channel.async_recv();
    }
    co_return sum;
}

void in_and_out_bounded(bide::scheduler& s, std::uint64_t count) {
    numbers channel(count);
    check_sum(count, bide::sync_wait(s, in_and_out(channel, count)));
}

void in_and_out_unbounded(bide::scheduler& s, std::uint64_t count) {
    bide::unbounded_channel<std::uint64_t> channel;
    check_sum(count, bide::sync_wait(s, in_and_out(channel, count)));
}

// ---- Boost.Fiber

#if defined(BIDE_BENCH_HAS_BOOST_FIBER)

void ping_fibers(std::atomic<std::uint64_t>& left, finish_line& done) {
    boost::fibers::promise<void> there;
    boost::fibers::promise<void> back;
    auto pinged = there.get_future();
    auto ponged = back.get_future();
    make_fiber([pinged = std::move(pinged), back = std::move(back)]() mutable {
        pinged.get();
        back.set_value();
    }).detach();
    there.set_value();
    ponged.get();
    if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        done.cross();
    }
}

void ping_pong_fibers(fiber_pool& pool, std::uint64_t count) {
    std::atomic<std::uint64_t> left{count};
    pool.post([&] {
        for (std::uint64_t i = 0; i < count; ++i) {
            make_fiber([&] { ping_fibers(left, pool.done); }).detach();
        }
    });
    pool.done.wait();
}

void round_trip_fibers(fiber_pool& pool, std::uint64_t count) {
    pool.run([=] {
        boost::fibers::buffered_channel<std::uint64_t> there(2); // one place: it keeps one free
        boost::fibers::buffered_channel<std::uint64_t> back(2);
        auto other = make_fiber([&] {
            for (const std::uint64_t next : there) {
                back.push(next);
            }
        });
        std::uint64_t sum = 0;
        for (std::uint64_t i = 0; i < count; ++i) {
            there.push(i);
            sum += back.value_pop();
        }
        there.close();
        other.join();
        check_sum(count, sum);
    });
}

#endif

} // namespace

void add_ping_pong() {
    constexpr std::uint64_t count = 1'000;
    run_table t("tasks/ping_pong", "a thousand pairs of tasks, each with two oneshots", count);
    t.add(tokio_peer, "ping_pong");
    add_bide_roots(t, ping_pong);
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
    t.add(fiber_row, repeat_on<fiber_pool>(ping_pong_fibers));
#endif
}

void add_request_reply() {
    constexpr std::uint64_t count = 1'000;
    run_table one("request_reply/one_thread", "a thousand requests, a oneshot for each reply",
                  count);
    one.add(tokio_peer, "request_reply_one_thread");
    one.add(bide_row, request_reply_one_thread);

    run_table two("request_reply/workers", "the client comes from a thread outside", count);
    two.add(tokio_peer, "request_reply");
    two.add(bide_row, request_reply);
    two.add(bide_join_row, request_reply_of_tasks);
}

void add_round_trip() {
    constexpr std::uint64_t count = 1'000;
    run_table t("step/round_trip", "two tasks, two channels with one place each", count,
                static_cast<double>(count));
    t.add_peers("round_trip", tokio_peer, go_peer);
    add_bide_roots(t, round_trip);
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
    t.add(fiber_row, repeat_on<fiber_pool>(round_trip_fibers));
#endif
}

void add_mpsc() {
    constexpr std::uint64_t count = 5'000;
    run_table bounded("mpsc/bounded", "one task, five thousand in, then out", count,
                      static_cast<double>(count));
    bounded.add(tokio_peer, "bounded");
    bounded.add(bide_row, repeat_on_bide(in_and_out_bounded));

    run_table unbounded("mpsc/unbounded", "the same", count, static_cast<double>(count));
    unbounded.add(tokio_peer, "unbounded");
    unbounded.add(bide_row, repeat_on_bide(in_and_out_unbounded));
}

} // namespace bench
