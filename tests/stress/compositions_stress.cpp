// Primitives used together, as programs use them: groups, servers, pipelines, and schedulers that
// shut down meanwhile. Each test accounts for every item and permit.

#include <bide/channel/channel.hpp>
#include <bide/channel/oneshot.hpp>
#include <bide/channel/select.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>
#include <support/counted.hpp>
#include <support/gate.hpp>
#include <support/jitter.hpp>
#include <support/rounds.hpp>
#include <support/scheduling.hpp>
#include <support/stop.hpp>
#include <support/test.hpp>

using bide::join_handle;
using bide::on_acquire;
using bide::on_event;
using bide::on_recv;
using bide::on_stop;
using bide::scheduler;
using bide::stopped_error;
using bide::task;
using bide::task_group;
using bide::this_task::sleep_for;
using bide::this_task::yield;
using std::chrono::microseconds;
using test::ended_by_stop;
using test::rounds;
using test::seed_of;
using test::with;

namespace {

constexpr std::ptrdiff_t permits = 3;

// Adds up the received items until the channel is closed and drained.
template <class Channel> task<> drain(Channel& from, std::atomic<std::uint64_t>& sum) {
    for (;;) {
        const auto got = co_await from.async_recv();
        if (!got) {
            co_return;
        }
        sum += static_cast<std::uint64_t>(*got);
    }
}

// ---- Groups in groups

struct forest {
    explicit forest(unsigned workers, bool naps, unsigned blocking = 512)
        : s(with_blocking(workers, naps, blocking)) {}

    static bide::scheduler_options with_blocking(unsigned workers, bool naps, unsigned blocking) {
        bide::scheduler_options wanted = with(workers, naps);
        wanted.max_blocking_threads = blocking;
        return wanted;
    }

    bide::semaphore some{permits};
    bide::channel<int> items{2};
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> received{0};
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
    scheduler s;
};

struct attendance {
    attendance(std::atomic<int>& begun, std::atomic<int>& ended) noexcept : ended_(ended) {
        ++begun;
    }
    attendance(const attendance&) = delete;
    attendance& operator=(const attendance&) = delete;
    ~attendance() { ++ended_; }

private:
    std::atomic<int>& ended_;
};

// Each node has three children in a group of its own, and sends one item while it has a permit.
task<> grow(forest& in, int depth, std::uint32_t seed) {
    const attendance here(in.begun, in.ended);
    test::jitter chance(seed);
    task_group children(in.s);
    for (int i = 0; depth != 0 && i < 3; ++i) {
        children.spawn(grow(in, depth - 1, chance.below(1u << 30)));
        chance();
    }
    {
        const auto held = co_await in.some.async_acquire();
        const auto sent = co_await in.items.async_send(1);
        in.sent += sent ? 1 : 0;
    }
    co_await children.async_join();
}

} // namespace

TEST_CASE("compositions: nested groups that share permits and a channel all end") {
    rounds([](std::uint32_t round) {
        forest in(1 + round % 4, round % 3 != 0);
        std::atomic<std::uint64_t> by_thread{0};
        test::run_threads(2, [&](int me) {
            if (me == 0) {
                in.s.spawn(grow(in, 3, seed_of(round))).join();
                in.items.close();
            } else {
                auto receives = in.s.spawn(drain(in.items, in.received));
                for (const int one : in.items) {
                    by_thread += static_cast<std::uint64_t>(one);
                }
                std::move(receives).join();
            }
        });
        REQUIRE(in.begun == 1 + 3 + 9 + 27);
        REQUIRE(in.ended == in.begun);
        REQUIRE(in.sent == 1 + 3 + 9 + 27);
        REQUIRE(in.received + by_thread == in.sent);
        REQUIRE(in.some.available() == permits);
    });
}

TEST_CASE("compositions: nested groups end that are cancelled, or whose scheduler shuts down") {
    rounds([](std::uint32_t round) {
        forest in(1 + round % 3, round % 3 != 0, 1); // one thread for blocking functions
        auto root = in.s.spawn(grow(in, 3, seed_of(round)));
        auto receives = in.s.spawn(drain(in.items, in.received));
        test::jitter chance(seed_of(round + 1));
        chance.dawdle(18);
        if (round % 2 == 0) {
            root.cancel();
        } else {
            in.s.shutdown();
        }
        static_cast<void>(ended_by_stop(std::move(root)));
        in.items.close();
        static_cast<void>(ended_by_stop(std::move(receives)));
        REQUIRE(in.begun == in.ended);
        REQUIRE(in.received + in.items.size() == in.sent);
        REQUIRE(in.some.available() == permits);
        REQUIRE(in.some.waiters() == 0);
    });
}

// ---- Selects in loops

namespace {

struct market {
    bide::channel<int> slow{1};
    bide::unbounded_channel<int> quick;
    bide::semaphore some{0};
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> released{0};
    std::atomic<std::uint64_t> received{0};
    std::atomic<std::uint64_t> acquired{0};
};

// Handles the outcome of a select. Returns false for the stop.
template <class Selected> bool account(market& in, Selected& got) {
    switch (got.index()) {
    case 0: in.received += got.template get<0>() ? 1 : 0; return true;
    case 1: in.received += got.template get<1>() ? 1 : 0; return true;
    case 2:
        got.template get<2>()->forget();
        ++in.acquired;
        return true;
    default: return false;
    }
}

task<> buy(market& in, std::stop_token stop) {
    for (bool goes_on = true; goes_on;) {
        auto any = bide::async_select(on_recv(in.slow), on_recv(in.quick), on_acquire(in.some),
                                      on_stop(stop));
        auto got = co_await std::move(any);
        goes_on = account(in, got);
    }
}

// The task's own stop is a case of the select. If the stop ends the select itself, this throws.
task<> buy_until_cancelled(market& in) {
    const std::stop_token mine = bide::this_task::get_stop_token();
    co_await buy(in, mine);
}

void sell(market& in, test::jitter& chance) {
    switch (chance.below(3)) {
    case 0:
        if (in.slow.try_send_for(1, microseconds(chance.below(50)))) {
            ++in.sent;
        }
        break;
    case 1:
        if (in.quick.send(1)) {
            ++in.sent;
        }
        break;
    default: ++in.released; in.some.release();
    }
}

} // namespace

TEST_CASE("compositions: selects in loops that stops and cancellations end lose no item") {
    rounds([](std::uint32_t round) {
        market in;
        std::stop_source stop = test::new_stop();
        scheduler s(with(1 + round % 3, round % 2 == 0));
        auto by_token = s.spawn(buy(in, stop.get_token()));
        auto by_cancel = s.spawn(buy_until_cancelled(in));
        test::run_threads(4, [&](int me) {
            test::jitter chance(seed_of(8 * round + static_cast<std::uint32_t>(me)));
            if (me == 0) {
                for (int i = 0; i < 50; ++i) {
                    sell(in, chance);
                    chance();
                }
                chance.dawdle(14);
                by_cancel.cancel();
                stop.request_stop();
            } else if (me == 1) {
                for (int i = 0; i < 50; ++i) {
                    sell(in, chance);
                }
            } else if (me == 2) {
                for (bool goes_on = true; goes_on;) {
                    auto got = bide::select(on_recv(in.slow), on_recv(in.quick),
                                            on_acquire(in.some), on_stop(stop.get_token()));
                    goes_on = account(in, got);
                }
            } else {
                bide::sync_wait(buy(in, stop.get_token()));
            }
        });
        std::move(by_token).join();
        static_cast<void>(ended_by_stop(std::move(by_cancel)));
        const std::uint64_t left = in.slow.size() + in.quick.size();
        REQUIRE(in.received + left == in.sent);
        REQUIRE(in.acquired + static_cast<std::uint64_t>(in.some.available()) == in.released);
        REQUIRE(in.some.waiters() == 0);
    });
}

// ---- A server that is cancelled while it accepts

namespace {

struct connection {
    connection(test::tally& in, bide::oneshot_sender<int> answer) noexcept
        : life(in, 1), reply(std::move(answer)) {}
    connection(connection&&) noexcept = default;
    connection& operator=(connection&&) noexcept = default;

    test::counted_once life;
    bide::oneshot_sender<int> reply;
};

struct service {
    service(unsigned workers, std::size_t backlog) : queue(backlog), s(with(workers, true)) {}

    test::tally connections;
    bide::channel<connection> queue;
    bide::semaphore slots{2};
    std::atomic<int> accepted{0};
    std::atomic<int> served{0};  // accepted and answered
    std::atomic<int> dropped{0}; // accepted and cancelled
    std::atomic<int> unaccepted{0};
    std::atomic<int> answered{0};
    std::atomic<int> refused{0}; // the queue was closed
    std::atomic<int> closed{0};  // the connection was closed
    scheduler s;
};

// A connection records its status once, however its task ends, also if it never runs.
struct visit {
    visit(service& in, connection c) noexcept : of(&in), what(std::move(c)) { ++of->accepted; }
    visit(visit&& other) noexcept
        : of(std::exchange(other.of, nullptr)), what(std::move(other.what)) {}
    visit& operator=(visit&&) = delete;
    ~visit() {
        if (of != nullptr) {
            ++(is_served ? of->served : of->dropped);
        }
    }
    service* of;
    connection what;
    bool is_served = false;
};

task<> serve(visit v, std::uint32_t seed) {
    test::jitter chance(seed);
    const auto slot = co_await v.of->slots.async_acquire();
    if (chance.below(2) == 0) {
        co_await sleep_for(chance.rest(15));
    }
    v.is_served = true;
    static_cast<void>(std::move(v.what.reply).send(1));
}

task<> accept_all(service& in, task_group& open, std::uint32_t seed) {
    test::jitter chance(seed);
    for (;;) {
        auto next = co_await in.queue.async_recv();
        if (!next) {
            co_return;
        }
        open.spawn(serve(visit(in, std::move(*next)), chance.below(1u << 30)));
    }
}

void close(service& in) {
    in.queue.close();
    while (in.queue.try_recv()) {
        ++in.unaccepted;
    }
}

// Accepts until it is cancelled, and ends when no connection is left.
task<> run_service(service& in, bool drops, std::uint32_t seed) {
    task_group open(in.s);
    try {
        co_await accept_all(in, open, seed);
    } catch (const stopped_error&) {
    }
    close(in);
    if (drops) {
        open.cancel();
    }
    const bide::this_task::shield until_all_ended;
    co_await open.async_join();
}

task<> connect(service& in, int times) {
    for (int i = 0; i < times; ++i) {
        auto line = bide::oneshot<int>();
        connection mine(in.connections, std::move(line.first));
        auto sent = co_await in.queue.async_send(std::move(mine));
        if (!sent) {
            ++in.refused;
            continue;
        }
        const auto answer = co_await line.second.async_recv();
        ++(answer ? in.answered : in.closed);
    }
}

void connect_from_thread(service& in, int times, test::jitter& chance) {
    for (int i = 0; i < times; ++i) {
        auto line = bide::oneshot<int>();
        if (!in.queue.send(connection(in.connections, std::move(line.first)))) {
            ++in.refused;
            continue;
        }
        chance();
        ++(line.second.recv() ? in.answered : in.closed);
    }
}

} // namespace

TEST_CASE(
    "compositions: a server that is cancelled while it accepts accounts for each connection") {
    rounds([](std::uint32_t round) {
        constexpr int times = 20;
        service in(1 + round % 3, round % 4);
        auto server = in.s.spawn(run_service(in, round % 2 == 0, seed_of(round)));
        test::run_threads(4, [&](int me) {
            test::jitter chance(seed_of(8 * round + static_cast<std::uint32_t>(me)));
            switch (me) {
            case 0:
                chance.dawdle(19);
                server.cancel();
                if (ended_by_stop(std::move(server))) { // the server never ran
                    close(in);
                }
                break;
            case 1: connect_from_thread(in, times, chance); break;
            case 2: bide::sync_wait(connect(in, times)); break;
            default: in.s.spawn(connect(in, times)).join();
            }
        });
        REQUIRE(in.answered + in.closed + in.refused == 3 * times);
        REQUIRE(in.answered == in.served);
        REQUIRE(in.closed == in.dropped + in.unaccepted);
        REQUIRE(in.accepted == in.served + in.dropped);
        REQUIRE(in.connections.alive() == 0);
        REQUIRE(in.slots.available() == 2);
    });
}

// ---- when_any over loops

namespace {

struct race {
    bide::channel<int> items{0};
    bide::semaphore some{1};
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> received{0};
    std::atomic<int> held{0};
    std::atomic<int> overdrawn{0};
};

task<> take_items(race& in) {
    for (;;) {
        const auto got = co_await in.items.async_recv();
        if (!got) {
            co_return;
        }
        ++in.received;
    }
}

// Holds a permit during a wait.
task<> take_turns(race& in) {
    for (;;) {
        const auto turn = co_await in.some.async_acquire();
        in.overdrawn += ++in.held > 1 ? 1 : 0;
        const auto slept = co_await sleep_for(microseconds(20)).as_result();
        --in.held;
        if (!slept) {
            co_return;
        }
    }
}

task<> rest_for(std::chrono::nanoseconds rest) { co_await sleep_for(rest); }

task<std::size_t> first_of(race& in, std::chrono::nanoseconds rest) {
    const auto won =
        co_await bide::when_any(take_items(in), take_turns(in), take_turns(in), rest_for(rest));
    co_return won.index();
}

} // namespace

TEST_CASE("compositions: loops that lose a when_any lose no item and no permit") {
    rounds([](std::uint32_t round) {
        race in;
        scheduler s(with(1 + round % 3, round % 2 == 0));
        std::array<std::size_t, 3> won{};
        test::run_threads(4, [&](int me) {
            test::jitter chance(seed_of(8 * round + static_cast<std::uint32_t>(me)));
            if (me == 0) {
                for (int i = 0; i < 100; ++i) {
                    if (in.items.try_send_for(1, microseconds(chance.below(30)))) {
                        ++in.sent;
                    }
                }
                return;
            }
            auto& mine = won[static_cast<std::size_t>(me - 1)];
            mine = me == 1 ? bide::sync_wait(first_of(in, chance.rest(20)))
                           : s.spawn(first_of(in, chance.rest(20))).join();
        });
        for (const std::size_t winner : won) {
            REQUIRE(winner == 3);
        }
        REQUIRE(in.received == in.sent);
        REQUIRE(in.overdrawn == 0);
        REQUIRE(in.held == 0);
        REQUIRE(in.some.available() == 1);
        REQUIRE(in.some.waiters() == 0);
    });
}

// ---- Loops that never have to wait

namespace {

struct mint {
    bide::semaphore some{100};
    bide::unbounded_channel<int> coins;
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> received{0};
};

task<> take_and_give(mint& in) {
    for (;;) {
        const auto held = co_await in.some.async_acquire();
    }
}

task<> send_and_receive(mint& in) {
    for (;;) {
        const auto sent = co_await in.coins.async_send(1);
        in.sent += sent ? 1 : 0;
        const auto got = co_await in.coins.async_recv();
        in.received += got ? 1 : 0;
    }
}

task<std::size_t> outlast(mint& in, std::chrono::nanoseconds rest) {
    const auto won =
        co_await bide::when_any(take_and_give(in), send_and_receive(in), rest_for(rest));
    co_return won.index();
}

} // namespace

TEST_CASE(
    "compositions: loops whose operations are all ready end when they lose or are cancelled") {
    rounds([](std::uint32_t round) {
        mint in;
        std::array<std::size_t, 2> won{};
        {
            scheduler s(with(1 + round % 3, round % 2 == 0));
            std::vector<join_handle<>> loops;
            for (int i = 0; i < 4; ++i) {
                loops.push_back(s.spawn(i % 2 == 0 ? take_and_give(in) : send_and_receive(in)));
            }
            test::run_threads(3, [&](int me) {
                test::jitter chance(seed_of(8 * round + static_cast<std::uint32_t>(me)));
                if (me == 0) {
                    won[0] = bide::sync_wait(outlast(in, chance.rest(18)));
                } else if (me == 1) {
                    won[1] = s.spawn(outlast(in, chance.rest(18))).join();
                } else {
                    chance.dawdle(18);
                    for (std::size_t i = 0; i < loops.size() / 2; ++i) {
                        loops[i].cancel();
                    }
                }
            });
            REQUIRE(ended_by_stop(std::move(loops[0])));
            REQUIRE(ended_by_stop(std::move(loops[1])));
        } // cancels the other tasks
        REQUIRE(won[0] == 2);
        REQUIRE(won[1] == 2);
        REQUIRE(in.some.available() == 100);
        REQUIRE(in.received + in.coins.size() == in.sent);
    });
}

// ---- A scheduler that shuts down while its tasks work

namespace {

struct place {
    explicit place(std::size_t capacity) : items(capacity) {}

    bide::semaphore some{permits};
    bide::mutex one;
    bide::shared_mutex many;
    bide::event set;
    bide::channel<int> items;
    std::uint64_t under_one = 0;  // guarded by `one`
    std::uint64_t under_many = 0; // guarded by `many`
    std::atomic<std::uint64_t> added_one{0};
    std::atomic<std::uint64_t> added_many{0};
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> received{0};
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
};

task<> live_on(place& in, std::uint32_t seed) {
    const attendance here(in.begun, in.ended);
    test::jitter chance(seed);
    for (;;) {
        switch (chance.below(7)) {
        case 0: {
            const auto held = co_await in.some.async_acquire(1 + chance.below(2));
            co_await yield();
            break;
        }
        case 1: {
            const auto locked = co_await in.one.async_lock();
            ++in.under_one;
            ++in.added_one;
            if (chance.below(4) == 0) {
                co_await sleep_for(chance.rest(14));
            }
            break;
        }
        case 2: {
            const auto locked = co_await in.many.async_lock();
            ++in.under_many;
            ++in.added_many;
            break;
        }
        case 3: {
            const auto locked = co_await in.many.async_lock_shared();
            co_await in.set.async_wait();
            break;
        }
        case 4: {
            const auto sent = co_await in.items.async_send(1);
            in.sent += sent ? 1 : 0;
            break;
        }
        case 5: {
            const auto got = co_await in.items.async_recv();
            in.received += got ? 1 : 0;
            break;
        }
        default: {
            auto any = bide::async_select(on_recv(in.items), on_acquire(in.some), on_event(in.set));
            auto got = co_await std::move(any);
            in.received += got.index() == 0 && got.get<0>() ? 1 : 0;
            if (got.index() == 2) {
                in.set.reset();
            }
        }
        }
        co_await yield();
    }
}

// Waits with a time-out, because the other side may have ended with the scheduler.
void live_outside(place& in, test::jitter& chance) {
    for (int i = 0; i < 40; ++i) {
        const auto rest = microseconds(chance.below(100));
        switch (chance.below(5)) {
        case 0:
            if (in.some.try_acquire_for(rest)) {
                chance();
                in.some.release();
            }
            break;
        case 1:
            if (in.many.try_lock_shared_for(rest)) {
                in.many.unlock_shared();
            }
            break;
        case 2: in.sent += in.items.try_send_for(1, rest) ? 1 : 0; break;
        case 3: in.received += in.items.try_recv_for(rest) ? 1 : 0; break;
        default: in.set.set();
        }
    }
}

} // namespace

TEST_CASE("compositions: primitives that outlive the scheduler of their users stay consistent") {
    rounds([](std::uint32_t round) {
        place in(round % 3);
        std::vector<join_handle<>> kept;
        {
            scheduler s(with(1 + round % 4, round % 3 != 0));
            for (std::uint32_t i = 0; i < 12; ++i) {
                kept.push_back(s.spawn(live_on(in, seed_of(64 * round + i))));
            }
            test::run_threads(3, [&](int me) {
                test::jitter chance(seed_of(8 * round + static_cast<std::uint32_t>(me)));
                if (me != 0) {
                    live_outside(in, chance);
                } else if (round % 2 == 0) {
                    chance.dawdle(20);
                    s.shutdown();
                }
            });
        }
        std::size_t stopped = 0;
        for (auto& h : kept) {
            stopped += ended_by_stop(std::move(h)) ? 1 : 0;
        }
        REQUIRE(stopped == kept.size());
        REQUIRE(in.begun == in.ended);
        REQUIRE(in.some.waiters() == 0);
        REQUIRE(in.some.available() == permits);
        REQUIRE(in.one.try_lock());
        in.one.unlock();
        REQUIRE(in.many.try_lock());
        in.many.unlock();
        REQUIRE(in.under_one == in.added_one);
        REQUIRE(in.under_many == in.added_many);
        REQUIRE(in.received + in.items.size() == in.sent);
    });
}

// ---- Fork and join from tasks that hold permits

namespace {

struct mill {
    explicit mill(unsigned workers, bool naps) : s(with(workers, naps)) {}

    bide::semaphore some{2};
    std::atomic<std::ptrdiff_t> held{0};
    std::atomic<int> overdrawn{0};
    std::atomic<std::uint64_t> leaves{0};
    scheduler s;
};

std::uint64_t split(mill& in, int depth) {
    if (depth == 0) {
        ++in.leaves;
        return 1;
    }
    const auto [left, right] = bide::join(
        in.s, [&] { return split(in, depth - 1); }, [&] { return split(in, depth - 1); });
    return left + right;
}

void grind(mill& in, int depth) {
    in.overdrawn += ++in.held > 2 ? 1 : 0;
    const std::uint64_t leaves = split(in, depth);
    std::atomic<std::uint64_t> sum{0};
    bide::parallel_for(in.s, 0, 100, [&sum](int i) { sum += static_cast<std::uint64_t>(i); });
    in.overdrawn += leaves == (std::uint64_t{1} << depth) && sum == 4'950 ? 0 : 1;
    --in.held;
}

task<> grind_in_task(mill& in, int times, int depth) {
    for (int i = 0; i < times; ++i) {
        auto held = co_await in.some.async_acquire();
        grind(in, depth);
        held.reset();
        co_await yield();
    }
}

} // namespace

TEST_CASE("compositions: tasks and threads that hold permits fork and join, and all end") {
    rounds([](std::uint32_t round) {
        constexpr int times = 10;
        constexpr int depth = 5;
        mill in(1 + round % 3, round % 2 == 0);
        std::vector<join_handle<>> tasks;
        for (int i = 0; i < 4; ++i) {
            tasks.push_back(in.s.spawn(grind_in_task(in, times, depth)));
        }
        test::run_threads(3, [&](int me) {
            for (int i = 0; i < times; ++i) {
                if (me == 0) {
                    auto by_function = in.s.spawn([&] {
                        const bide::permit held(in.some);
                        grind(in, depth);
                    });
                    std::move(by_function).join();
                } else {
                    const bide::permit held(in.some);
                    grind(in, depth);
                }
            }
        });
        for (auto& h : tasks) {
            std::move(h).join();
        }
        REQUIRE(in.overdrawn == 0);
        REQUIRE(in.held == 0);
        REQUIRE(in.leaves == 7 * times * (std::uint64_t{1} << depth));
        REQUIRE(in.some.available() == 2);
    });
}

// ---- A pipeline of threads and tasks, whose items carry permits

namespace {

struct parcel {
    parcel(test::tally& in, int number, bide::permit space) noexcept
        : life(in, number), room(std::move(space)) {}
    parcel(parcel&&) noexcept = default;
    parcel& operator=(parcel&&) noexcept = default;

    test::counted_once life;
    bide::permit room;
};

struct belt {
    explicit belt(std::uint32_t round) : first(round % 3), last(round / 3 % 3) {}

    test::tally lives;
    bide::semaphore rooms{4};
    bide::channel<parcel> first;
    bide::unbounded_channel<parcel> middle;
    bide::channel<parcel> last;
    std::atomic<std::uint64_t> made{0}; // sent to the first channel
    std::atomic<std::uint64_t> arrived{0};
    std::atomic<std::uint64_t> lost{0}; // returned by a closed channel
};

template <class From, class To> task<> carry(belt& in, From& from, To& to) {
    for (;;) {
        auto got = co_await from.async_recv();
        if (!got) {
            break;
        }
        auto sent = co_await to.async_send(std::move(*got));
        in.lost += sent ? 0 : 1;
    }
}

template <class From, class To> void carry_by_thread(belt& in, From& from, To& to) {
    while (auto got = from.recv()) {
        in.lost += to.send(std::move(*got)) ? 0 : 1;
    }
}

task<> load(belt& in, int items) {
    for (int i = 0; i < items; ++i) {
        auto room = co_await in.rooms.async_acquire().as_result();
        if (!room) {
            co_return;
        }
        parcel next(in.lives, i, std::move(*room));
        auto sent = co_await in.first.async_send(std::move(next));
        ++(sent ? in.made : in.lost);
    }
}

template <class From> task<> unload(belt& in, From& from) {
    for (;;) {
        const auto got = co_await from.async_recv();
        if (!got) {
            co_return;
        }
        ++in.arrived;
    }
}

} // namespace

TEST_CASE("compositions: all permits return that items carry through a pipeline") {
    rounds([](std::uint32_t round) {
        constexpr int items = 100;
        belt in(round);
        const bool breaks = round % 4 == 3; // shuts down meanwhile
        scheduler s(with(1 + round % 3, round % 2 == 0));
        test::run_threads(5, [&](int me) {
            test::jitter chance(seed_of(8 * round + static_cast<std::uint32_t>(me)));
            switch (me) {
            case 0: {
                auto other = s.spawn(load(in, items));
                bide::sync_wait(load(in, items));
                std::move(other).join();
                in.first.close();
                break;
            }
            case 1: {
                auto other = s.spawn(carry(in, in.first, in.middle));
                carry_by_thread(in, in.first, in.middle);
                std::move(other).join();
                in.middle.close();
                break;
            }
            case 2: {
                auto other = s.spawn(carry(in, in.middle, in.last));
                carry_by_thread(in, in.middle, in.last);
                std::move(other).join();
                in.last.close();
                break;
            }
            case 3: {
                auto other = s.spawn(unload(in, in.last));
                bide::sync_wait(unload(in, in.last));
                std::move(other).join();
                break;
            }
            default:
                if (breaks) {
                    chance.dawdle(20);
                    in.rooms.close();
                    in.first.close();
                    in.last.close();
                }
            }
        });
        REQUIRE(in.lives.alive() == 0);
        REQUIRE(in.rooms.available() == 4);
        REQUIRE(in.rooms.waiters() == 0);
        if (!breaks) {
            REQUIRE(in.made == 2 * items);
            REQUIRE(in.arrived == in.made);
            REQUIRE(in.lost == 0);
        }
    });
}
