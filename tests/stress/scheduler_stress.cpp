// Schedulers under tasks and threads that use every operation at once, in rounds with exact accounts.
// Chains of wakes without any time-out are in spawn_options_stress.cpp.

#include <bide/channel/select.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/sched/report.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <support/is_free.hpp>
#include <support/sched.hpp>

using namespace bide;
using namespace test;
using bide::this_task::sleep_for;
using bide::this_task::yield;

namespace {

constexpr std::ptrdiff_t permits = 3;

struct storm {
    storm(unsigned workers, bool naps) : s(with(workers, naps)) {}

    test::tally lives;
    semaphore some{permits};
    channel<int> numbers{2};
    std::atomic<int> sent{0};
    std::atomic<int> received{0};
    std::atomic<std::ptrdiff_t> held{0};
    std::atomic<int> overdrawn{0};
    std::atomic<int> begun{0};
    std::atomic<int> ended{0}; // by return or exception
    std::atomic<std::uint32_t> seeds{0};
    mutex one;
    shared_mutex many;
    event set;
    unbounded_channel<int> quick;
    semaphore plenty{100};
    std::uint64_t under_one = 0;  // guarded by `one`
    std::uint64_t under_many = 0; // guarded by `many`
    std::atomic<std::uint64_t> added_one{0};
    std::atomic<std::uint64_t> added_many{0};
    test::thread_executor elsewhere;
    scheduler s;

    void take(std::ptrdiff_t n) noexcept { overdrawn += held.fetch_add(n) + n > permits ? 1 : 0; }
    void give(std::ptrdiff_t n) noexcept { held -= n; }
};

struct attendance {
    explicit attendance(storm& in) noexcept : of(in), mine(in.lives, 1) { ++of.begun; }
    attendance(const attendance&) = delete;
    attendance& operator=(const attendance&) = delete;
    ~attendance() { ++of.ended; }
    storm& of;
    test::counted mine;
};

task<int> wander(storm& in, int depth);

// What a function that is no coroutine may do: block, for a while.
int block(storm& in) {
    const attendance here(in);
    test::jitter chance(seed_of(++in.seeds));
    int got = 0;
    for (int i = 0; i < 2; ++i) {
        const auto rest = microseconds(chance.below(200));
        in.sent += in.quick.send(1) ? 1 : 0;
        in.set.set();
        if (chance.below(2) == 0) {
            if (in.some.try_acquire_for(rest)) {
                in.take(1);
                chance();
                in.give(1);
                in.some.release();
                ++got;
            }
        } else if (in.numbers.try_recv_for(rest)) {
            ++in.received;
            ++got;
        }
    }
    return got;
}

join_handle<int> spawn_any(storm& in, test::jitter& chance, int depth) {
    switch (chance.below(6)) {
    case 0: return in.s.spawn([&in] { return block(in); });
    case 1: return in.s.spawn_blocking([&in] { return block(in); });
    case 2: return in.s.spawn([&in, depth] { return wander(in, depth); });
    default: return in.s.spawn(wander(in, depth));
    }
}

task<int> hold(storm& in, test::jitter& chance) {
    const auto n = 1 + static_cast<std::ptrdiff_t>(chance.below(2));
    const auto rest = microseconds(chance.below(300));
    auto got = co_await in.some.async_acquire(n).with_timeout(rest);
    if (got) {
        in.take(n);
        if (chance.below(2) == 0) {
            [[maybe_unused]] const auto yielded = co_await yield().as_result();
        }
        in.give(n);
    }
    co_return got ? 1 : 0;
}

task<> lock(storm& in, test::jitter& chance) {
    if (chance.below(2) == 0) {
        const auto locked = co_await in.one.async_lock();
        ++in.under_one;
        ++in.added_one;
        co_await sleep_for(chance.rest(14));
    } else {
        const auto locked = co_await in.many.async_lock();
        ++in.under_many;
        ++in.added_many;
    }
}

task<int> select_any(storm& in, microseconds rest) {
    auto any = async_select(on_recv(in.numbers), on_recv(in.quick), on_acquire(in.some),
                            on_event(in.set), on_timeout(rest));
    auto got = co_await std::move(any);
    const bool received =
        got.index() == 0 ? got.get<0>().has_value() : got.index() == 1 && got.get<1>().has_value();
    in.received += received ? 1 : 0;
    if (got.index() == 3) {
        in.set.reset();
    }
    co_return 1;
}

// Loops that end when they lose, or are cancelled. The operations of the last one are always ready.
task<> receive_for_ever(storm& in) {
    for (;;) {
        const auto got = co_await in.numbers.async_recv();
        in.received += got ? 1 : 0;
    }
}
task<> hold_for_ever(storm& in) {
    for (;;) {
        const auto held = co_await in.some.async_acquire();
        in.take(1);
        const auto slept = co_await sleep_for(microseconds(20)).as_result();
        in.give(1);
        if (!slept) {
            co_return;
        }
    }
}
task<> be_ready_for_ever(storm& in) {
    for (;;) {
        const auto held = co_await in.plenty.async_acquire();
    }
}
task<> rest_for(std::chrono::nanoseconds rest) { co_await sleep_for(rest); }

task<> outlast_loops(storm& in, std::chrono::nanoseconds rest) {
    const auto won = co_await when_any(receive_for_ever(in), hold_for_ever(in),
                                       be_ready_for_ever(in), rest_for(rest));
    in.overdrawn += won.index() == 3 || this_task::is_cancelled() ? 0 : 1;
}

task<int> wander(storm& in, int depth) {
    const attendance here(in);
    test::jitter chance(seed_of(++in.seeds));
    int done = 0;
    for (int i = 0; i < 5; ++i) {
        const auto rest = microseconds(chance.below(300));
        switch (chance.below(14)) {
        case 0: done += co_await hold(in, chance); break;
        case 1: {
            const auto sent = co_await in.numbers.async_send(1).with_timeout(rest);
            in.sent += sent ? 1 : 0;
            break;
        }
        case 2: {
            const auto got = co_await in.numbers.async_recv().with_timeout(rest);
            in.received += got ? 1 : 0;
            break;
        }
        case 3: co_await sleep_for(rest); break; // throws if it is cancelled
        case 4: co_await yield(); break;
        case 5: {
            const this_task::shield on;
            done += co_await hold(in, chance);
            co_await yield();
            break;
        }
        case 6: {
            const auto slept = co_await sleep_for(rest).as_result().resume_on(in.elsewhere);
            const auto back = co_await in.s.schedule().as_result(); // before it blocks
            done += slept && back ? 1 : 0;
            break;
        }
        case 7: co_await lock(in, chance); break;
        case 8: {
            const auto locked = co_await in.many.async_lock_shared();
            done += co_await in.set.async_wait().with_timeout(rest) ? 1 : 0;
            break;
        }
        case 9: done += co_await select_any(in, rest); break;
        case 10: co_await outlast_loops(in, rest); break;
        default:
            if (depth != 0) {
                auto child = spawn_any(in, chance, depth - 1);
                const auto how = chance.below(5);
                if (how == 0) {
                    child.cancel();
                }
                if (how == 1) {
                    std::move(child).detach();
                } else if (how == 2) {
                    try {
                        done += std::move(child).join();
                    } catch (const stopped_error&) {
                    }
                } else {
                    bool stopped = false;
                    try {
                        const auto r = co_await std::move(child).async_join().with_timeout(rest);
                        done += r ? *r : 0;
                    } catch (const stopped_error&) {
                        stopped = true;
                    }
                    done += stopped ? 1 : 0;
                }
            }
        }
    }
    co_return done;
}

// Runs one round. `early`: the shutdown comes during the round.
void check_storm(unsigned workers, bool naps, bool early, std::uint32_t seed) {
    constexpr int threads = 3;
    storm in(workers, naps);
    std::vector<join_handle<int>> kept[threads];
    test::run_threads(threads, [&](int me) {
        test::jitter chance(seed + static_cast<std::uint32_t>(me));
        for (int i = 0; i < 25; ++i) {
            auto h = spawn_any(in, chance, 3);
            chance();
            switch (chance.below(6)) {
            case 0: h.cancel(); break;
            case 1: std::move(h).detach(); continue;
            case 2: ended_by_stop(std::move(h)); continue;
            default: break;
            }
            kept[me].push_back(std::move(h));
            if (!kept[me].empty() && chance.below(4) == 0) {
                kept[me][chance.below(static_cast<std::uint32_t>(kept[me].size()))].cancel();
            }
        }
        if (early) {
            in.s.shutdown();
        }
    });
    for (auto& some : kept) {
        for (auto& h : some) {
            ended_by_stop(std::move(h));
        }
    }
    in.s.shutdown();
    const scheduler_stats now = stats_of(in.s);
    int left = 0;
    while (in.numbers.try_recv() || in.quick.try_recv()) {
        ++left;
    }
    INFO(workers << " workers, naps " << naps << ", early " << early);
    REQUIRE(now.spawned == now.completed);
    REQUIRE(in.begun == in.ended);
    REQUIRE(in.lives.alive() == 0);
    REQUIRE(in.overdrawn == 0);
    REQUIRE(in.held == 0);
    REQUIRE(in.some.available() == permits);
    REQUIRE(in.some.waiters() == 0);
    REQUIRE(in.sent == in.received + left);
    REQUIRE(in.plenty.available() == 100);
    REQUIRE(in.under_one == in.added_one);
    REQUIRE(in.under_many == in.added_many);
    REQUIRE((test::is_free(in.one) && test::is_free(in.many)));
}

void grow(scheduler& s, int depth, latch& all) {
    if (depth != 0) {
        for (int i = 0; i < 10; ++i) {
            s.spawn([&s, depth, &all] { grow(s, depth - 1, all); }).detach();
        }
    }
    all.count_down();
}

} // namespace

TEST_CASE("scheduler: under load of tasks, threads, cancels and time-outs nothing is lost") {
    test::rounds([](std::uint32_t round) {
        check_storm(1 + round % 4, round % 3 != 0, round % 2 == 1, seed_of(1'000 * round));
    });
}

TEST_CASE("scheduler: a task that comes while the workers go to sleep wakes one") {
    const test::stress_time time;
    std::deque<scheduler> all;
    for (const unsigned workers : {1u, 2u, 3u, 70u}) {
        all.emplace_back(with(workers, workers == 2));
    }
    std::atomic<std::uint64_t> ran{0};
    std::uint64_t spawned[2] = {};
    std::atomic<bool> over{false};
    test::rendezvous meeting(2);
    test::players(2, [&](int me, test::jitter& chance) {
        for (std::size_t round = 0;; ++round) {
            if (me == 0) {
                over = !time.is_left();
            }
            meeting.meet();
            if (over) {
                return;
            }
            chance.dawdle(15); // the workers are asleep or about to be
            scheduler& s = all[round % all.size()];
            const auto n = 1 + chance.below(3);
            std::vector<join_handle<>> mine;
            for (std::uint32_t i = 0; i < n; ++i) {
                if (chance.below(2) == 0) {
                    mine.push_back(s.spawn([&ran] { ++ran; }));
                } else {
                    mine.push_back(s.spawn([&ran, &s]() -> task<> {
                        auto inner = s.spawn([&ran] { ++ran; });
                        co_await std::move(inner).async_join();
                    }));
                }
            }
            spawned[me] += n;
            test::join_all(mine);
            meeting.meet();
        }
    });
    CHECK(ran == spawned[0] + spawned[1]);
}

TEST_CASE("scheduler: runs a million tasks, if there is time for them") {
    const int depth = test::stress_time::length() < std::chrono::seconds(2) ? 4 : 6;
    std::ptrdiff_t tasks = 0;
    for (std::ptrdiff_t i = 0, level = 1; i <= depth; ++i, level *= 10) {
        tasks += level;
    }
    for (const bool naps : {true, false}) {
        latch all(tasks);
        scheduler s(with(2, naps));
        s.spawn([&] { grow(s, depth, all); }).detach();
        all.wait();
        s.shutdown();
        const scheduler_stats now = stats_of(s);
        CHECK(now.completed == static_cast<std::uint64_t>(tasks));
    }
}
