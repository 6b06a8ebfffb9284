// Schedulers under tasks and threads that use every operation at once, in rounds with exact accounts.
// Chains of wakes without any time-out are in spawn_options_stress.cpp.

#include <support/sched.hpp>

using bide::join_handle;
using bide::scheduler;
using bide::scheduler_stats;
using bide::stopped_error;
using bide::task;
using bide::this_task::sleep_for;
using bide::this_task::yield;
using std::chrono::microseconds;
using test::ended_by_stop;
using test::seed_of;
using test::with;

namespace {

// ---- Everything at once

constexpr std::ptrdiff_t permits = 3;

struct storm {
    storm(unsigned workers, bool naps) : s(with(workers, naps)) {}

    test::tally lives;
    bide::semaphore some{permits};
    bide::channel<int> numbers{2};
    std::atomic<int> sent{0};
    std::atomic<int> received{0};
    std::atomic<std::ptrdiff_t> held{0};
    std::atomic<int> overdrawn{0};
    std::atomic<int> begun{0};
    std::atomic<int> ended{0}; // by return or exception
    std::atomic<std::uint32_t> seeds{0};
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

task<int> wander(storm& in, int depth) {
    const attendance here(in);
    test::jitter chance(seed_of(++in.seeds));
    int done = 0;
    for (int i = 0; i < 5; ++i) {
        const auto rest = microseconds(chance.below(300));
        switch (chance.below(9)) {
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
            const bide::this_task::shield on;
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
    const scheduler_stats now = in.s.stats();
    int left = 0;
    while (in.numbers.try_recv()) {
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
}

} // namespace

TEST_CASE("scheduler: under load of tasks, threads, cancels and time-outs nothing is lost") {
    test::rounds([](std::uint32_t round) {
        check_storm(1 + round % 4, round % 3 != 0, round % 5 == 4, seed_of(1'000 * round));
    });
}

// ---- Wakes

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
    test::stress_threads(2, [&](int me) {
        test::jitter chance(seed_of(static_cast<std::uint64_t>(me)));
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

// ---- Lives

TEST_CASE(
    "scheduler: a life as short as can be, with an end from two sides, leaves nothing behind") {
    test::tally lives;
    test::rounds([&](std::uint32_t round) {
        bide::semaphore none(0);
        std::atomic<int> ran{0};
        std::vector<join_handle<int>> kept;
        {
            bide::scheduler_options wanted = with(1 + round % 3, round % 2 == 0);
            wanted.enable_stealing = round % 5 != 0;
            scheduler s(std::move(wanted));
            for (int i = 0; i < 6; ++i) {
                kept.push_back(s.spawn([&, mine = test::counted(lives, i)]() -> task<int> {
                    ++ran;
                    [[maybe_unused]] const auto yielded = co_await yield().as_result();
                    const auto got = co_await none.async_acquire().as_result();
                    co_return got ? 1 : 2;
                }));
            }
            test::run_threads(2, [&](int me) {
                test::jitter mine(seed_of(2 * round + static_cast<std::uint32_t>(me)));
                mine();
                if (me == 0) {
                    kept[mine.below(6)].cancel();
                    mine();
                }
                s.shutdown();
            });
        }
        int stopped = 0;
        for (auto& h : kept) {
            try {
                stopped += std::move(h).join() == 2 ? 1 : 0;
            } catch (const stopped_error&) {
                ++stopped; // before it ran
            }
        }
        REQUIRE(stopped == 6);
        REQUIRE(ran <= 6);
        REQUIRE(lives.alive() == 0);
        REQUIRE(none.waiters() == 0);
    });
}

namespace {

void grow(scheduler& s, int depth, bide::latch& all) {
    if (depth != 0) {
        for (int i = 0; i < 10; ++i) {
            s.spawn([&s, depth, &all] { grow(s, depth - 1, all); }).detach();
        }
    }
    all.count_down();
}

} // namespace

TEST_CASE("scheduler: runs a million tasks, if there is time for them") {
    const int depth = test::stress_time::length() < std::chrono::seconds(2) ? 4 : 6;
    std::ptrdiff_t tasks = 0;
    for (std::ptrdiff_t i = 0, level = 1; i <= depth; ++i, level *= 10) {
        tasks += level;
    }
    for (const bool naps : {true, false}) {
        bide::latch all(tasks);
        scheduler s(with(2, naps));
        s.spawn([&] { grow(s, depth, all); }).detach();
        all.wait();
        s.shutdown();
        const scheduler_stats now = s.stats();
        CHECK(now.completed == static_cast<std::uint64_t>(tasks));
    }
}
