#define BIDE_SWITCH_POINTS 1

#include <bide/durable/locks.hpp>
#include <bide/durable/slot.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/this_task.hpp>
#include <bide/test/scheduler.hpp>
#include <support/test.hpp>

// Durable locks in simulated time: leases that end, holders that crash, stores
// that fail or answer late, clocks that jump. Each task stands for a process,
// with a lock object of its own.

using bide::task;
using bide::test::scheduler;

namespace {

// A value on a server, and what it does to its callers.
struct server {
    bide::slot_snapshot current{};
    std::int64_t ahead_ms = 0; // its clock
    double fails = 0;
    bool is_slow = false;

    std::int64_t now_ms() const {
        return std::chrono::duration_cast<milliseconds>(
                   bide::test::system_clock::now().time_since_epoch())
                   .count() +
               ahead_ms;
    }
    // Lets the call take up to 3 s of simulated time.
    void delay() const {
        if (is_slow && bide::test::fault_point("slow", 0.3)) {
            bide::semaphore never(0);
            static_cast<void>(never.try_acquire_for(100ms * (1 + bide::test::choose("delay", 30))));
        }
    }
};
std::error_code fault() { return make_error_code(bide::durable_errc::storage_error); }

template <bide::lock_clock Clock> class server_slot : public bide::slot {
public:
    static constexpr bide::slot_guarantees guarantees{true, true, Clock};

    explicit server_slot(server& at) : at_(&at) {}

    bide::result<bide::slot_snapshot, std::error_code> load() override {
        at_->delay();
        if (bide::test::fault_point("load", at_->fails)) {
            return bide::unexpected{fault()};
        }
        return answer();
    }
    bide::cas_result compare_exchange(bide::slot_version version, std::string_view value) override {
        at_->delay();
        if (bide::test::fault_point("store", at_->fails)) {
            return {bide::cas_status::failed, 0, {}, fault()};
        }
        if (at_->current.version != version) {
            return {bide::cas_status::conflict, 0, answer(), {}};
        }
        at_->current.value = value;
        ++at_->current.version;
        if (bide::test::fault_point("answer", at_->fails)) {
            return {bide::cas_status::indeterminate, 0, {}, fault()};
        }
        at_->delay();
        return {bide::cas_status::stored, version + 1, {}, {}};
    }

private:
    bide::slot_snapshot answer() const {
        bide::slot_snapshot told = at_->current;
        if (Clock == bide::lock_clock::server) {
            told.server_ms = at_->now_ms();
        }
        return told;
    }

    server* at_;
};

// What the lock guards: it refuses older tokens, and counts.
struct resource {
    std::vector<const bide::durable_guard*> inside{}; // of the contenders that have not left
    std::int64_t newest = 0;
    int value = 0;
    int accepted = 0;
    bool was_together = false; // two contenders had the lock, by their own clocks
    bool went_back = false;    // a later grant had an older token

    void look() {
        was_together |=
            std::ranges::count_if(inside, [](const auto* one) { return one->is_held(); }) > 1;
    }
};

struct behaviour {
    bool crashes = false;  // never releases, and never renews
    int works = 10;        // tenths of a second in the lock
    milliseconds ahead{0}; // of its own clock, when it has the lock: for lock_clock::caller
};
bide::durable_options options() {
    bide::durable_options how;
    how.lease = 10s;
    how.process_bound = false; // a task stands for a process
    how.poll_most = 500ms;
    how.retry_time = 120s;
    return how;
}

template <bide::lock_clock Clock> task<> contend(server& at, resource& of, behaviour what) {
    auto how = options();
    how.auto_renew = !what.crashes;
    if (Clock == bide::lock_clock::caller) {
        how.now = [&at, what] { return milliseconds(at.now_ms()) + what.ahead; };
    }
    const bide::durable_mutex mine(server_slot<Clock>(at), how);
    auto got = co_await mine.async_acquire();
    if (!got) {
        throw std::system_error(got.error());
    }
    of.went_back |= got->is_held() && got->fence() <= of.newest;
    of.newest = std::max(of.newest, got->fence());
    of.inside.push_back(&*got);
    const int seen = of.value;
    for (int i = 0; i < what.works; ++i) {
        of.look();
        co_await bide::this_task::sleep_for(100ms);
    }
    of.look();
    std::erase(of.inside, &*got);
    if (got->fence() == of.newest) {
        of.value = seen + 1;
        ++of.accepted;
    }
    if (what.crashes) {
        static_cast<void>(got->detach());
    }
}

struct outcome {
    resource of{};
    std::chrono::nanoseconds time{};
    std::string journal{};
};
task<> nothing(scheduler&) { co_return; }
template <bide::lock_clock Clock, class Also = task<> (*)(scheduler&)>
outcome run(std::uint64_t seed, server& at, const std::vector<behaviour>& all,
            Also also = nothing) {
    outcome end;
    bide::test::simulation_options how;
    how.seed = seed;
    how.order = seed % 2 == 0 ? bide::test::task_order::random : bide::test::task_order::priorities;
    how.switches = bide::test::switch_places::operations;
    scheduler s(how);
    for (const behaviour& each : all) {
        s.spawn(contend<Clock>(at, end.of, each)).detach();
    }
    s.spawn(also(s)).detach();
    const auto report = s.run();
    INFO(report.text());
    REQUIRE(report.all_ended());
    end.time = report.time;
    end.journal = s.journal();
    return end;
}

constexpr std::uint64_t seeds = 60;

} // namespace

TEST_CASE("simulated durable locks: a crashed holder delays the others until "
          "its lease has ended") {
    const auto holds = [](auto clock) {
        for (std::uint64_t seed = 0; seed < seeds; ++seed) {
            server at;
            const auto end = run<clock()>(seed, at, {{.crashes = true}, {}, {}});
            CAPTURE(seed, end.time.count());
            REQUIRE_FALSE(end.of.was_together);
            REQUIRE_FALSE(end.of.went_back);
            REQUIRE(end.of.value == 3);
            REQUIRE(end.time < 20s);
        }
    };
    holds(std::integral_constant<bide::lock_clock, bide::lock_clock::server>());
    holds(std::integral_constant<bide::lock_clock, bide::lock_clock::observed>());
}

TEST_CASE("simulated durable locks: the same seed makes the same run") {
    const auto once = [] {
        server at;
        at.fails = 0.1;
        at.is_slow = true;
        return run<bide::lock_clock::server>(1, at, {{.crashes = true}, {}, {}}).journal;
    };
    REQUIRE(once() == once());
}

TEST_CASE("simulated durable locks: a store that fails or answers late breaks "
          "no exclusion") {
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        server at;
        at.fails = 0.1;
        at.is_slow = seed % 4 >= 2;
        const auto end =
            run<bide::lock_clock::observed>(seed, at, {{.works = 30}, {.works = 150}, {}});
        CAPTURE(seed);
        REQUIRE_FALSE(end.of.was_together);
        REQUIRE_FALSE(end.of.went_back);
        REQUIRE(end.of.value == end.of.accepted);
    }
}

TEST_CASE("simulated durable locks: a machine that stands still loses its "
          "leases, and learns of it") {
    int lost = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        server at;
        const auto stand_still = [](scheduler& on) -> task<> {
            for (int i = 0; i < 3; ++i) {
                co_await bide::this_task::sleep_for(100ms *
                                                    (1 + bide::test::choose("stand still", 20)));
                on.advance(15s);
            }
        };
        const auto end = run<bide::lock_clock::server>(seed, at, {{}, {}, {}}, stand_still);
        CAPTURE(seed);
        REQUIRE_FALSE(end.of.was_together);
        REQUIRE_FALSE(end.of.went_back);
        REQUIRE(end.of.value == end.of.accepted);
        lost += end.of.accepted < 3 ? 1 : 0;
    }
    REQUIRE(lost > 0);
}

TEST_CASE("simulated durable locks: if a clock jumps, two may hold the lock, "
          "and the tokens save the resource") {
    int together = 0;
    int apart = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        server at; // its clock jumps ahead, so that a lease seems to have ended
        const auto jump = [&at](scheduler&) -> task<> {
            co_await bide::this_task::sleep_for(100ms * (1 + bide::test::choose("jump", 20)));
            at.ahead_ms += 20'000;
        };
        const auto of_server = run<bide::lock_clock::server>(seed, at, {{}, {}, {}}, jump);
        REQUIRE(of_server.of.value == of_server.of.accepted);
        together += of_server.of.was_together ? 1 : 0;

        server other; // the clocks of the contenders differ
        const auto of_caller = run<bide::lock_clock::caller>(seed, other, {{}, {.ahead = 20s}, {}});
        REQUIRE(of_caller.of.value == of_caller.of.accepted);
        together += of_caller.of.was_together ? 1 : 0;

        server third; // each contender measures with its own clock, so that no
                      // clock can mislead it
        third.ahead_ms = 20'000;
        apart += run<bide::lock_clock::observed>(seed, third, {{}, {}, {}}, jump).of.was_together
                     ? 0
                     : 1;
    }
    REQUIRE(together > 0);
    REQUIRE(apart == static_cast<int>(seeds));
}
