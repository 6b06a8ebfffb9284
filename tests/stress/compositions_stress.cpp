// Primitives used together, as programs use them: groups, servers, pipelines, and schedulers that
// shut down meanwhile. Each test accounts for every item and permit.

#include <bide/channel/oneshot.hpp>
#include <bide/channel/select.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <support/sched.hpp>

using namespace bide;
using namespace test;
using bide::this_task::sleep_for;
using bide::this_task::yield;

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

struct forest {
    explicit forest(unsigned workers, bool naps, unsigned blocking = 512)
        : s(with_blocking(workers, naps, blocking)) {}

    static scheduler_options with_blocking(unsigned workers, bool naps, unsigned blocking) {
        scheduler_options wanted = with(workers, naps);
        wanted.max_blocking_threads = blocking;
        return wanted;
    }

    semaphore some{permits};
    channel<int> items{2};
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

struct connection {
    connection(test::tally& in, oneshot_sender<int> answer) noexcept
        : life(in, 1), reply(std::move(answer)) {}
    connection(connection&&) noexcept = default;
    connection& operator=(connection&&) noexcept = default;

    test::counted_once life;
    oneshot_sender<int> reply;
};

struct service {
    service(unsigned workers, std::size_t backlog) : queue(backlog), s(with(workers, true)) {}

    test::tally connections;
    channel<connection> queue;
    semaphore slots{2};
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
    const this_task::shield until_all_ended;
    co_await open.async_join();
}

task<> connect(service& in, int times) {
    for (int i = 0; i < times; ++i) {
        auto line = oneshot<int>();
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
        auto line = oneshot<int>();
        if (!in.queue.send(connection(in.connections, std::move(line.first)))) {
            ++in.refused;
            continue;
        }
        chance();
        ++(line.second.recv() ? in.answered : in.closed);
    }
}

struct parcel {
    parcel(test::tally& in, int number, permit space) noexcept
        : life(in, number), room(std::move(space)) {}
    parcel(parcel&&) noexcept = default;
    parcel& operator=(parcel&&) noexcept = default;

    test::counted_once life;
    permit room;
};

struct belt {
    explicit belt(std::uint32_t round) : first(round % 3), last(round / 3 % 3) {}

    test::tally lives;
    semaphore rooms{4};
    channel<parcel> first;
    unbounded_channel<parcel> middle;
    channel<parcel> last;
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

TEST_CASE(
    "compositions: a server that is cancelled while it accepts accounts for each connection") {
    rounds([](std::uint32_t round) {
        constexpr int times = 20;
        service in(1 + round % 3, round % 4);
        auto server = in.s.spawn(run_service(in, round % 2 == 0, seed_of(round)));
        test::players(
            4,
            [&](int me, test::jitter& chance) {
                switch (me) {
                case 0:
                    chance.dawdle(19);
                    server.cancel();
                    if (ended_by_stop(std::move(server))) { // the server never ran
                        close(in);
                    }
                    break;
                case 1: connect_from_thread(in, times, chance); break;
                case 2: sync_wait(connect(in, times)); break;
                default: in.s.spawn(connect(in, times)).join();
                }
            },
            round);
        REQUIRE(in.answered + in.closed + in.refused == 3 * times);
        REQUIRE(in.answered == in.served);
        REQUIRE(in.closed == in.dropped + in.unaccepted);
        REQUIRE(in.accepted == in.served + in.dropped);
        REQUIRE(in.connections.alive() == 0);
        REQUIRE(in.slots.available() == 2);
    });
}

TEST_CASE("compositions: all permits return that items carry through a pipeline") {
    rounds([](std::uint32_t round) {
        constexpr int items = 100;
        belt in(round);
        const bool breaks = round % 4 == 3; // shuts down meanwhile
        scheduler s(with(1 + round % 3, round % 2 == 0));
        test::players(
            5,
            [&](int me, test::jitter& chance) {
                switch (me) {
                case 0: {
                    auto other = s.spawn(load(in, items));
                    sync_wait(load(in, items));
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
                    sync_wait(unload(in, in.last));
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
            },
            round);
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
