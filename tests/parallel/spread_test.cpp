#include <bide/parallel/fork_scope.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <support/scheduling.hpp>

// Free workers find what is forked. Each leaf waits until all leaves run, so a case ends only if W
// workers run W leaves at the same time. Each case has a call site of its own, whose calls have been
// brief before.

namespace {

using bide::scheduler;

// One type for each case, and so one call site.
template <int Leaves, bool FromWorker> class meeting {
public:
    static constexpr int leaves = Leaves;

    explicit meeting(scheduler& s) : on(s) {}

    void operator()(int = 0) {
        if (!meets_) {
            return;
        }
        ++here_;
        if (!test::eventually([this] { return here_.load() == Leaves; })) {
            test::give_up(test::where(), "not all leaves run at the same time");
        }
    }

    // The first iteration of a loop, which may run alone if the loop was brief before.
    void first() const {
        const auto end =
            std::chrono::steady_clock::now() + std::chrono::microseconds(meets_ ? 50 : 0);
        while (std::chrono::steady_clock::now() < end) {
        }
    }

    template <class Fork> void hold(Fork fork) {
        const auto run = [&] {
            for (int i = 0; i < 200; ++i) {
                fork(*this);
            }
            meets_ = true;
            fork(*this);
        };
        if constexpr (FromWorker) {
            on.spawn(run).join();
        } else {
            run();
        }
        CHECK(here_.load() == Leaves);
    }

    scheduler& on;

private:
    std::atomic<int> here_{0};
    bool meets_ = false; // written between two fork-joins
};

template <class Meeting> void tree(Meeting& leaf, int n) {
    if (n == 1) {
        return leaf();
    }
    bide::join(leaf.on, [&leaf, n] { tree(leaf, n / 2); }, [&leaf, n] { tree(leaf, n - n / 2); });
}

template <class Meeting> void chain(Meeting& leaf, bide::spawn_scope& scope, int n) {
    if (n < Meeting::leaves) {
        scope.spawn([&leaf, &scope, n] { chain(leaf, scope, n + 1); });
    }
    leaf();
}

template <class Meeting> void invoke_all(Meeting& leaf) {
    if constexpr (Meeting::leaves == 4) {
        const auto one = [&leaf] { leaf(); };
        bide::parallel_invoke(leaf.on, one, one, one, one);
    } else {
        const std::vector all(static_cast<std::size_t>(Meeting::leaves), std::ref(leaf));
        bide::parallel_invoke(leaf.on, all);
    }
}

template <int Workers, bool FromWorker> void spread() {
    INFO(Workers << " workers, from a worker: " << FromWorker);
    scheduler s(test::with(Workers, true));
    using leaves = meeting<Workers, FromWorker>;
    leaves(s).hold([](auto& leaf) { tree(leaf, Workers); });
    leaves(s).hold([](auto& leaf) { invoke_all(leaf); });
    leaves(s).hold([](auto& leaf) {
        bide::fork_scope(leaf.on, [&leaf](bide::spawn_scope& scope) {
            for (int i = 1; i < Workers; ++i) {
                scope.spawn([&leaf] { leaf(); });
            }
            leaf();
        });
    });
    leaves(s).hold([](auto& leaf) { // each function spawns one more
        bide::fork_scope(leaf.on, [&leaf](bide::spawn_scope& scope) { chain(leaf, scope, 1); });
    });
    leaves(s).hold([](auto& leaf) { // by iterations
        bide::fork_scope(leaf.on, [&leaf](bide::spawn_scope& scope) {
            bide::parallel_for(leaf.on, 1, Workers, [&](int) { scope.spawn([&leaf] { leaf(); }); });
            leaf();
        });
    });
    leaves(s).hold([](auto& leaf) {
        bide::parallel_for(leaf.on, 0, Workers + 1, [&](int i) { i == 0 ? leaf.first() : leaf(); });
    });
    leaves(s).hold([](auto& leaf) {
        bide::parallel_for({leaf.on, {.grain = 1}}, 0, Workers, [&leaf](int i) { leaf(i); });
    });
    leaves(s).hold([](auto& leaf) {
        bide::parallel_reduce(
            leaf.on, 0, Workers + 1, 0,
            [&leaf](int i) { return i == 0 ? leaf.first() : leaf(), 1; }, std::minus<>());
    });
}

// Of a pool whose workers the test runs itself.
struct lone_owner : bide::detail::basic_pool_owner<bide::native_platform> {
    bool replace(bide::detail::basic_worker<bide::native_platform>&) noexcept override {
        return false;
    }
    void found_nothing() noexcept override {}
};

} // namespace

TEST_CASE("spread: as many leaves run at the same time as there are workers",
          "[promise.leaves-spread]") {
    spread<4, false>();
    spread<16, false>();
    spread<64, false>();
    spread<16, true>();
}

TEST_CASE("spread: a caller that owns no worker takes the place of a worker that would be woken") {
    lone_owner owner;
    constexpr std::int64_t nap = 4'000'000;
    const unsigned spare = GENERATE(0U, 1U);
    bide::detail::basic_pool<bide::native_platform> pool(
        owner, {3, true, nullptr, nap, nullptr, 0, static_cast<int>(spare)});
    CHECK(pool.wakes_for_arms() == 0);
    CHECK(pool.idle().announce(0, false, true)); // the watcher
    CHECK_FALSE(pool.idle().announce(1, false, true));
    CHECK(pool.wakes_for_arms() == 2);
    bide::detail::basic_fork_lane<bide::native_platform> lane(pool, nullptr);
    lane.begin(100, 0);
    lane.set_outside(true);
    lane.set_outside(true); // counts once
    pool.add_callers(1);
    CHECK(pool.wakes_for_arms() == spare);
    CHECK(pool.callers_take_all_places() == (spare == 0));
    CHECK(lane.is_worth_a_wake() == (spare != 0));
    bide::detail::fork(&lane, [] {}, [] {});
    CHECK(pool.idle().sleepers() == 2 - spare); // the watcher takes it later
    lane.set_outside(false);
    pool.add_callers(-1);
    CHECK(pool.wakes_for_arms() == 2 - spare);
}

TEST_CASE(
    "spread: a single worker takes arms of other threads only if there is a spare processor") {
    lone_owner owner;
    const bool steals = GENERATE(false, true);
    const int spare = GENERATE(-1, 0, 1);
    const bide::detail::basic_pool<bide::native_platform> pool(
        owner, {1, steals, nullptr, 4'000'000, nullptr, 0, spare});
    CHECK(pool.takes_arms() == (steals && spare == 1));
    CHECK_FALSE(pool.steals());
}

TEST_CASE("spread: a short loop begins alone only if a fork-join would cause a vain wake") {
    lone_owner owner;
    using lane = bide::detail::basic_fork_lane<bide::native_platform>;
    bide::detail::basic_pool<bide::native_platform> pool(owner, {3, true, nullptr, 4'000'000});
    bide::detail::basic_fork_call_site<bide::native_platform> site;
    const auto alone = [&] { return site.alone_ns(pool, 2'000, 1'000); };
    CHECK(alone() == 0); // its time is unknown
    site.learn(10'000, 1'000);
    CHECK(alone() == 0); // no worker sleeps
    CHECK_FALSE(pool.idle().announce(1, false, false));
    CHECK(alone() == 20'000);
    CHECK(site.alone_ns(pool, 2'000, 100) == 4'000);
    CHECK(site.alone_ns(pool, 2'000, 10'000) == 0); // 100 us are worth a wake
    CHECK(pool.idle().announce(0, false, true));
    CHECK(alone() == 0); // the timed sleeper would find the arms
    CHECK(site.alone_ns(pool, 2'000, 100) == 4'000);
    CHECK(lane::worth_a_wake_ns() >= 20'000);
    CHECK(lane::worth_a_wake_ns() <= 100'000);
}

TEST_CASE("spread: a worker that watched and takes an arm leaves the others to another worker",
          "[promise.leaves-spread]") {
    lone_owner owner;
    constexpr std::int64_t nap = 4'000'000;
    // No thread runs the last worker, which so counts as busy.
    bide::detail::basic_pool<bide::native_platform> pool(owner, {4, true, nullptr, nap});
    CHECK_FALSE(pool.idle().announce(1, false, false));
    CHECK_FALSE(pool.idle().announce(2, false, false));
    std::thread watcher([&pool] { pool.run(pool.workers()[0]); });
    CHECK(test::eventually([&pool] { return pool.idle().sleepers() == 3; }));
    auto& lanes = *bide::detail::basic_fork_lanes<bide::native_platform>::of(pool);
    auto& lane = *lanes.take();
    lane.begin(100, 0);
    pool.add_callers(3); // in the places of all that sleep
    std::atomic<bool> woken{false};
    const auto leaf = [&pool, &woken] {
        if (!test::eventually([&] { return woken || pool.idle().sleepers() < 2; })) {
            test::give_up(test::where(), "a worker sleeps, and the other leaves do not run");
        }
        woken = true;
    };
    bide::detail::fork(&lane, [&] { bide::detail::fork(&lane, leaf, leaf); }, leaf);
    CHECK(woken);
    pool.stop();
    watcher.join();
    pool.add_callers(-3);
    lanes.put(lane);
}

TEST_CASE("spread: a worker that becomes free while another one is in a long leaf takes the rest",
          "[promise.leaves-spread]") {
    scheduler s(test::with(2, true));
    std::atomic<int> others{0};
    const auto leaf = [&others](int i) {
        if (i == 0 && !test::eventually([&others] { return others.load() == 8; })) {
            test::give_up(test::where(), "the other leaves do not run beside the long one");
        }
        others += i == 0 ? 0 : 1;
    };
    SECTION("a loop") {
        s.spawn([&] { bide::parallel_for(s, 0, 9, leaf); }).join();
    }
    SECTION("a scope") {
        s.spawn([&] {
             bide::fork_scope(s, [&](bide::spawn_scope& scope) {
                 for (int i = 1; i < 9; ++i) {
                     scope.spawn([&leaf, i] { leaf(i); });
                 }
                 scope.spawn([&leaf] { leaf(0); }); // the youngest, which its owner runs
             });
         }).join();
    }
    SECTION("parallel_invoke") {
        struct arm {
            const decltype(leaf)& run;
            int number;
            void operator()() const { run(number); }
        };
        s.spawn([&] {
             bide::parallel_invoke(s, arm{leaf, 0}, arm{leaf, 1}, arm{leaf, 2}, arm{leaf, 3},
                                   arm{leaf, 4}, arm{leaf, 5}, arm{leaf, 6}, arm{leaf, 7},
                                   arm{leaf, 8});
         }).join();
    }
    CHECK(others.load() == 8);
}

namespace {

// A task starts while all workers are in a loop that does not end before. A thread is known by its
// id, because it may run a worker for which it was not started.
template <bool FromWorker> void start_task_in_loop(scheduler& s, std::size_t grain) {
    INFO(s.concurrency() << " workers, grain " << grain << ", from a worker: " << FromWorker);
    std::stop_source stop;
    std::array<std::atomic<std::thread::id>, 3> visitors{}; // in the order in which they come
    std::atomic<bool> ran{false};
    std::atomic<bool> is_late{false};
    std::optional<bide::join_handle<void>> spawned;
    const auto spawn = [&] { spawned.emplace(s.spawn([&] { ran = true; })); };
    // All visitors have come, of which the caller is one.
    const auto all_visit = [&] { return visitors[FromWorker ? 1 : 2].load() != std::thread::id(); };
    const auto visit = [&] {
        for (auto& visitor : visitors) {
            std::thread::id none;
            if (visitor.compare_exchange_strong(none, std::this_thread::get_id()) ||
                none == std::this_thread::get_id()) {
                return;
            }
        }
    };
    const auto loop = [&] {
        const auto caller = std::this_thread::get_id();
        const auto end = std::chrono::steady_clock::now() + test::patience / 2;
        bool is_spawned = !FromWorker;
        try {
            bide::parallel_for(
                {s, {.grain = grain, .stop = stop.get_token(), .yield_to_tasks = true}},
                std::size_t{0}, std::numeric_limits<std::size_t>::max(), [&](std::size_t) {
                    visit();
                    if (std::this_thread::get_id() == caller && !is_spawned && all_visit()) {
                        is_spawned = true;
                        spawn(); // lies in the LIFO slot of this worker
                    }
                    if (std::chrono::steady_clock::now() > end) {
                        is_late = true;
                    }
                    if (ran || is_late) {
                        stop.request_stop();
                    }
                });
        } catch (const bide::stopped_error&) {
        }
    };
    if constexpr (FromWorker) {
        s.spawn(loop).join();
    } else {
        test::team outside(1, [&](int) { loop(); });
        CHECK(test::eventually(all_visit));
        spawn();
        outside.join();
    }
    CHECK_FALSE(is_late);
    if (spawned) {
        std::move(*spawned).join();
    }
    CHECK(ran);
}

} // namespace

TEST_CASE("spread: a task starts while all workers run parts of a loop", "[promise.task-in-loop]") {
    for (const bool naps : {true, false}) {
        scheduler s(test::with(2, naps));
        for (const std::size_t grain : {std::size_t{0}, std::size_t{1}, std::size_t{1'000}}) {
            start_task_in_loop<false>(s, grain);
            start_task_in_loop<true>(s, grain);
        }
    }
}

TEST_CASE("spread: a loop visits each element once while its workers leave it for tasks",
          "[promise.task-in-loop]") {
    scheduler s(test::with(4, true));
    std::vector<unsigned char> visits(1 << 18);
    std::atomic<bool> is_over{false};
    std::atomic<int> tasks{0};
    test::team spawner(1, [&](int) {
        while (!is_over) {
            s.spawn([&] { ++tasks; }).join();
        }
    });
    int rounds = 0;
    test::eventually([&] {
        bide::parallel_for({s, {.yield_to_tasks = true}}, visits, [](unsigned char& n) { ++n; });
        ++rounds;
        return rounds == 200 || (rounds >= 10 && tasks > 200);
    });
    is_over = true;
    spawner.join();
    CHECK(std::ranges::count(visits, static_cast<unsigned char>(rounds)) ==
          static_cast<std::ptrdiff_t>(visits.size()));
}

TEST_CASE("spread: iterations may wait for each other while tasks come, without yield_to_tasks",
          "[promise.leaves-spread]") {
    scheduler s(test::with(2, true));
    std::atomic<bool> is_over{false};
    test::team spawner(1, [&](int) {
        while (!is_over) {
            s.spawn([] {}).join();
        }
    });
    for (int round = 0; round < 5; ++round) {
        std::atomic<int> others{0};
        bide::parallel_for(s, 0, 40, [&](int i) {
            if (i == 0 && !test::eventually([&] { return others == 39; })) {
                test::give_up(test::where(), "the other iterations do not run beside the long one");
            }
            const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
            while (i != 0 && std::chrono::steady_clock::now() < end) {
            }
            others += i == 0 ? 0 : 1;
        });
        CHECK(others == 39);
    }
    is_over = true;
    spawner.join();
}
