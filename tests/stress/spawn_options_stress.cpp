// Tasks of all classes and of all threads of one scheduler wake each other, without any time-out, while
// some of them block the threads: one lost wake blocks the test. Each task is on its thread, and all
// steps are counted.

#include <bide/sched/report.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/sync/semaphore.hpp>
#include <support/sched.hpp>

using namespace bide;
using bide::this_task::yield;
using test::with;

namespace {

struct ring {
    std::deque<semaphore> places;
    std::uint64_t passed = 0; // plain data: only the holder of the token touches it

    explicit ring(std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
            places.emplace_back(0);
        }
    }
    void pass(std::size_t from) {
        ++passed;
        places[(from + 1) % places.size()].release();
    }
};

// What the pinned tasks of one thread have done, and on which thread.
struct alignas(64) ledger {
    std::uint64_t steps = 0; // plain data: only that thread touches it
    std::thread::id thread;
    int wrong = 0;

    void enter() {
        wrong += steps != 0 && thread != std::this_thread::get_id() ? 1 : 0;
        thread = std::this_thread::get_id();
        ++steps;
    }
};

task<> sit(ring& in, std::size_t at, int laps, ledger* mine, std::uint32_t seed) {
    test::jitter chance(seed);
    for (int i = 0; i < laps; ++i) {
        auto token = co_await in.places[at].async_acquire();
        token.forget();
        if (mine != nullptr) {
            mine->enter();
        }
        if (chance.below(8) == 0) {
            co_await yield();
        }
        chance();
        in.pass(at);
    }
}

void sit_and_block(ring& in, std::size_t at, int laps, ledger* mine) {
    for (int i = 0; i < laps; ++i) {
        in.places[at].acquire();
        if (mine != nullptr) {
            mine->enter();
        }
        in.pass(at);
    }
}

// Any class, or any thread.
spawn_options any(test::jitter& chance, unsigned workers) {
    switch (chance.below(6)) {
    case 0: return {.priority = task_priority::high};
    case 1: return {.priority = task_priority::low};
    case 2: return {};
    default: return {.worker = chance.below(workers)};
    }
}

void check_round(std::uint32_t seed) {
    constexpr int rings = 3;
    constexpr std::size_t seats = 5;
    constexpr int laps = 40;
    test::jitter chance(seed);
    const unsigned workers = 1 + chance.below(4);
    // A pinned task waits while any task blocks its thread. So a ring has pinned tasks, or some that block.
    const bool some_block = chance.below(3) == 0;
    std::vector<ledger> ledgers(workers);
    std::uint64_t pinned_steps = 0;
    std::deque<ring> all;
    scheduler s(with(workers, chance.below(4) == 0));
    std::vector<join_handle<>> seated;
    for (int n = 0; n < rings; ++n) {
        ring& in = all.emplace_back(seats);
        for (std::size_t i = 0; i + 1 < seats; ++i) {
            spawn_options how = any(chance, workers);
            if (some_block) {
                how.worker.reset();
            }
            const bool blocks = some_block && chance.below(4) == 0;
            ledger* const mine = how.worker ? &ledgers[*how.worker] : nullptr;
            pinned_steps += mine != nullptr ? laps : 0;
            seated.push_back(blocks
                                 ? s.spawn([&in, i] { sit_and_block(in, i, laps, nullptr); }, how)
                                 : s.spawn(sit(in, i, laps, mine, chance.below(1U << 30)), how));
        }
    }
    test::run_threads(rings, [&](int n) {
        ring& in = all[static_cast<std::size_t>(n)];
        in.places[0].release();
        sit_and_block(in, seats - 1, laps, nullptr);
    });
    test::join_all(seated);
    s.shutdown();
    INFO(workers << " workers");
    for (const ring& in : all) {
        REQUIRE(in.passed == seats * laps);
    }
    std::uint64_t steps = 0;
    for (const ledger& l : ledgers) {
        REQUIRE(l.wrong == 0);
        steps += l.steps;
    }
    REQUIRE(steps == pinned_steps);
    REQUIRE(stats_of(s).spawned == stats_of(s).completed);
}

} // namespace

TEST_CASE(
    "spawn_options: tokens pass through tasks of all classes and threads without a time-out") {
    const test::stress_time time;
    std::uint32_t round = test::run_seed();
    do {
        check_round(round);
        round += 77;
    } while (time.is_left());
}

// Threads whose workers sleep, run other workers, or have lost theirs, all the time.
TEST_CASE("spawn_options: a pinned task runs on its thread while tasks block all threads",
          "[promise.pinned-tasks]") {
    const test::stress_time time;
    constexpr unsigned workers = 2;
    scheduler s(with(workers, false));
    std::vector<ledger> ledgers(workers);
    std::uint64_t spawned = 0;
    semaphore go(0);
    test::jitter chance(test::run_seed());
    do {
        std::vector<join_handle<>> all;
        for (unsigned i = 0; i < 2 * workers; ++i) { // each waits for the next one
            all.push_back(s.spawn([&go] { go.acquire(); }));
        }
        all.push_back(s.spawn([&go] { go.release(2 * workers); }));
        for (unsigned i = 0; i < 6; ++i) {
            const unsigned to = chance.below(workers);
            const auto step = [&mine = ledgers[to], often = chance.below(2)]() -> task<> {
                mine.enter();
                if (often != 0) {
                    co_await yield();
                }
            };
            all.push_back(s.spawn(step, {.worker = to}));
            ++spawned;
            chance();
        }
        test::join_all(all);
    } while (time.is_left());
    s.shutdown();
    REQUIRE(ledgers[0].wrong + ledgers[1].wrong == 0);
    REQUIRE(ledgers[0].steps + ledgers[1].steps == spawned);
    REQUIRE(stats_of(s).spawned == stats_of(s).completed);
}
