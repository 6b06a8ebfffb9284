#include <bide/parallel/fork_scope.hpp>
#include <model/at_random.hpp>
#include <support/test.hpp>

// A stolen arm and the thread that waits for it; and forks while workers go to sleep. The deque has
// a model of its own.

namespace {

// The inner locks have a model of their own.
using platform = model::platform_without_lock_sleep;
using lane = bide::detail::basic_fork_lane<platform>;
using job = bide::detail::basic_fork_job<platform>;
using pool = bide::detail::basic_pool<platform>;
template <class T> using var = platform::var<T>;
template <class T> using atomic = platform::atomic<T>;

using model::check_at_random;

struct no_substitute : pool::owner {
    bool replace(pool::worker&) noexcept override { return false; }
    void found_nothing() noexcept override {}
};

// Lanes of a pool without threads.
struct lanes {
    no_substitute owner;
    pool all{owner, {1, true, nullptr, 0}};
    lane a{all, nullptr};
    lane b{all, nullptr};
    lane c{all, nullptr};
};

// The lanes of a pool, made by the first call.
bide::detail::basic_fork_lanes<platform>& lanes_of(pool& in) {
    return *bide::detail::basic_fork_lanes<platform>::of(in);
}

template <class F, class G> auto fork(lane& on, F f, G g) { return bide::detail::fork(&on, f, g); }

// Takes an arm from `from`, if there is one, and runs it on `on`.
bool steal_and_run(lane& from, lane& on) {
    job* const taken = from.steal();
    if (taken != nullptr) {
        on.run(*taken, from);
    }
    return taken != nullptr;
}

TEST_CASE("fork_join: a join returns when its arm has ended, on either thread") {
    const auto one = [](int thieves) {
        lanes l;
        var<int> ran{0};
        {
            std::unique_ptr<model::thread> second;
            model::thread first([&] { steal_and_run(l.a, l.b); });
            if (thieves == 2) {
                second = std::make_unique<model::thread>([&] { steal_and_run(l.a, l.c); });
            }
            const auto both = fork(
                l.a, [] { return 1; },
                [&ran] {
                    ran = ran + 1;
                    return 2;
                });
            MODEL_REQUIRE(both.first == 1 && both.second == 2);
            MODEL_REQUIRE(ran == 1);
        }
        MODEL_REQUIRE(l.a.depth() == 0 && l.a.is_empty());
    };
    model::check("a join, a thief", {.spurious = 1}, [=] { one(1); });
    model::check("a join, two thieves", [=] { one(2); });
}

TEST_CASE("fork_join: one join after another on the same lane") {
    model::check("two joins, a thief", [] {
        lanes l;
        var<int> ran{0};
        const auto arm = [&ran] { ran = ran + 1; };
        model::thread thief([&] {
            steal_and_run(l.a, l.b);
            steal_and_run(l.a, l.b);
        });
        fork(l.a, [] {}, arm);
        MODEL_REQUIRE(ran == 1);
        fork(l.a, [] {}, arm);
        MODEL_REQUIRE(ran == 2);
    });
}

TEST_CASE("fork_join: the owner runs an arm that the thief gives back") {
    model::check("a join, an arm is given back", [] {
        lanes l;
        var<int> ran{0};
        var<int> touched{0};
        model::thread thief([&] {
            if (job* const taken = l.a.steal()) {
                touched = 1;
                l.a.give_back(*taken);
            }
        });
        fork(
            l.a, [] {},
            [&] {
                ran = ran + 1;
                touched = 2;
            });
        MODEL_REQUIRE(ran == 1);
    });
}

#if BIDE_EXCEPTIONS
// The arms that throw; a thief runs the second one, or gives it back.
auto thrown(bool by_first, bool by_second, bool is_given_back) {
    return [=] {
        lanes l;
        var<int> ran{0};
        model::thread thief([&] {
            if (!is_given_back) {
                steal_and_run(l.a, l.b);
            } else if (job* const taken = l.a.steal()) {
                l.a.give_back(*taken);
            }
        });
        int caught = 0;
        try {
            fork(
                l.a,
                [by_first] {
                    if (by_first) {
                        throw 1;
                    }
                },
                [&ran, by_second] {
                    ran = ran + 1;
                    if (by_second) {
                        throw 2;
                    }
                });
        } catch (int n) {
            caught = n;
        }
        MODEL_REQUIRE(caught == (by_first ? 1 : 2) && ran == 1);
        MODEL_REQUIRE(l.a.depth() == 0 && l.a.is_empty());
    };
}

TEST_CASE("fork_join: a join throws when both arms have ended") {
    model::check("the first arm throws", thrown(true, true, false));
    model::check("the second arm throws", thrown(false, true, false));
}

TEST_CASE("fork_join: an arm that is given back runs although the first one threw") {
    model::check("the first arm throws, the second is given back", thrown(true, false, true));
    model::check("both arms throw, the second is given back", thrown(true, true, true));
}
#endif

int& this_thread() { return platform::local<int>(); }

// A thief forks in the course of an arm that it has taken, and then another job after that arm. The
// thread that waits for the arm may run the former job, never the latter.
void leapfrog(bool forks_after) {
    lanes l;
    std::unique_ptr<lane> b;
    var<int> inner{0};
    var<int> later{0};
    var<int> ran_later{0};
    this_thread() = 1;
    model::thread thief([&] {
        this_thread() = 2;
        b = std::make_unique<lane>(l.all, nullptr);
        if (steal_and_run(l.a, *b) && forks_after) {
            fork(
                *b, [] {},
                [&] {
                    later = later + 1;
                    ran_later = this_thread();
                });
            MODEL_REQUIRE(later == 1 && ran_later == 2);
        }
    });
    fork(
        l.a, [] {},
        [&] {
            lane& mine = this_thread() == 1 ? l.a : *b;
            fork(mine, [] {}, [&] { inner = inner + 1; });
        });
    MODEL_REQUIRE(inner == 1);
}

TEST_CASE("fork_join: a thread that waits for an arm runs jobs that the arm has forked",
          "[promise.join-runs-own-arms]") {
    model::check("leapfrogging", [] { leapfrog(false); });
}

TEST_CASE("fork_join: a thread that waits for an arm runs no job that the thief forks after it") {
    check_at_random("leapfrogging, the thief goes on, at random", 20'000, [] { leapfrog(true); });
}

// The forking thread does not run the arm itself: a worker takes it, asleep or not.
void forked_beside(bool brief, bool is_newest = true) {
    no_substitute owner;
    pool all(owner, {2, true, nullptr, 0}); // the other one is away
    var<int> ran{0};
    if (!is_newest) {
        lanes_of(all).thread_lane();
        lanes_of(all).put(*lanes_of(all).take()); // which stays empty
    }
    model::thread working([&] { all.run(all.workers()[0]); });
    lane& mine = *lanes_of(all).thread_lane();
    mine.begin(brief ? 0 : 1, 0);
    const auto arm = [&] {
        ran = ran + 1;
        all.stop();
    };
    bide::detail::fork_arm<platform, decltype((arm))> forked(arm);
    mine.push(forked);
    working.join();
    mine.wait(forked, 0);
    MODEL_REQUIRE(ran == 1);
    all.drop_thread_lane();
    MODEL_REQUIRE(all.idle().sleepers() == 0);
}

TEST_CASE("fork_join: a worker that goes to sleep finds a forked arm") {
    model::check("forked beside a worker", [] { forked_beside(false); });
    model::check("forked beside a worker, brief", [] { forked_beside(true); });
    model::check("forked beside a worker, on an older lane", [] { forked_beside(false, false); });
}

// A worker that goes to sleep sees the lanes, or is seen by the thread that has found or made them.
void lanes_made_by_two() {
    no_substitute owner;
    pool all(owner, {2, true, nullptr, 0});
    unsigned woken = all.idle().none;
    {
        model::thread other([&] { lanes_of(all); });
        model::thread forking([&] {
            lanes_of(all);
            woken = all.idle().wake_one();
        });
        all.idle().announce(0, false, false);
        if (all.arms() != nullptr && all.idle().retract(0)) {
            return;
        }
    }
    MODEL_REQUIRE(woken == 0);
}

TEST_CASE("fork_join: a worker that goes to sleep sees lanes that two threads make") {
    model::check("lanes made by two beside a worker", lanes_made_by_two);
}

// The two public arms are stolen, and the owner is busy with something else.
void hidden_by_owner() {
    no_substitute owner;
    pool all(owner, {2, true, nullptr, 0}); // the other one is away
    var<int> ran{0};
    lane& mine = *lanes_of(all).thread_lane();
    const auto arm = [&] {
        ran = ran + 1;
        all.stop();
    };
    using forked = bide::detail::fork_arm<platform, decltype((arm))>;
    forked arms[3]{forked(arm), forked(arm), forked(arm)};
    for (forked& a : arms) {
        mine.push(a);
    }
    job* const first = mine.steal();
    job* const second = mine.steal();
    MODEL_REQUIRE(first == &arms[0] && second == &arms[1] && mine.is_empty());
    model::thread working([&] { all.run(all.workers()[0]); });
    working.join();
    MODEL_REQUIRE(mine.wait(arms[2], 2) == job::end::done);
    MODEL_REQUIRE(ran == 1);
    mine.give_back(*second);
    MODEL_REQUIRE(mine.wait(arms[1], 1) == job::end::returned);
    mine.give_back(*first);
    MODEL_REQUIRE(mine.wait(arms[0], 0) == job::end::returned);
    all.drop_thread_lane();
}

TEST_CASE("fork_join: a worker that goes to sleep finds an arm that a busy owner keeps private") {
    model::check("hidden by a busy owner", hidden_by_owner);
}

using site = bide::detail::basic_fork_call_site<platform>;

// An external thread takes a lane for one join, on which it forks and waits.
template <class F, class G> void join_from_elsewhere(pool& in, site& from, F f, G g) {
    const bide::detail::basic_scoped_lane<platform> lent(in, false);
    MODEL_REQUIRE(lent.get() != nullptr && lent.get()->depth() == 0);
    const bide::detail::basic_fork_scope<platform> session(*lent.get(), from);
    fork(*bide::detail::basic_fork_context<platform>::here().lane, f, g);
}

// Several callers, and workers that end when the last of the callers has left.
struct callers {
    no_substitute owner;
    pool all{owner, {2, true, nullptr, 0}};
    site from;
    atomic<int> left;
    var<int> ran[2]{0, 0};

    explicit callers(int count) : left(count) {}

    void call(int n) {
        join_from_elsewhere(all, from, [] {}, [this, n] { ran[n] = ran[n] + 1; });
        MODEL_REQUIRE(ran[n] == 1);
        MODEL_REQUIRE(bide::detail::basic_fork_context<platform>::here().lane == nullptr);
        if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            all.stop();
        }
    }
};

void called(int count, unsigned workers) {
    callers c(count);
    {
        std::vector<std::unique_ptr<model::thread>> threads;
        for (unsigned n = 0; n < workers; ++n) {
            threads.push_back(
                std::make_unique<model::thread>([&c, n] { c.all.run(c.all.workers()[n]); }));
        }
        std::optional<model::thread> other;
        if (count == 2) {
            other.emplace([&] { c.call(1); });
        }
        c.call(0);
    }
    MODEL_REQUIRE(c.all.idle().sleepers() == 0);
    MODEL_REQUIRE(c.ran[0] == 1 && c.ran[1] == count - 1);
}

// A lane is taken again while the thief of the previous caller still touches it: its token.
void lent_again() {
    no_substitute owner;
    pool all(owner, {1, true, nullptr, 0});
    site from;
    var<int> ran{0};
    lane mine(all, nullptr);
    lane& lent = *lanes_of(all).take();
    lanes_of(all).put(lent);
    const auto call = [&] { join_from_elsewhere(all, from, [] {}, [&ran] { ran = ran + 1; }); };
    model::thread thief([&] { steal_and_run(lent, mine) && steal_and_run(lent, mine); });
    model::thread first(call);
    first.join();
    MODEL_REQUIRE(ran == 1);
    call();
    MODEL_REQUIRE(ran == 2);
    MODEL_REQUIRE(lanes_of(all).take() == &lent); // there is no other
}

TEST_CASE("fork_join: external callers join beside workers until the last caller has left") {
    check_at_random("a caller from elsewhere, a worker, at random", 3'000, [] { called(1, 1); });
    check_at_random("two callers from elsewhere, a worker, at random", 3'000, [] { called(2, 1); });
    check_at_random("two callers from elsewhere, two workers, at random", 2'000,
                    [] { called(2, 2); });
}

TEST_CASE("fork_join: a lane is taken again while its last thief leaves") {
    model::check("a lane is lent again", lent_again);
}

// A thread of the pool: takes a lane, joins on it, and puts it back when it ends.
void comes_and_goes(pool& in, var<int>& ran) {
    lane* const mine = lanes_of(in).take();
    MODEL_REQUIRE(mine != nullptr && mine->depth() == 0);
    fork(*mine, [] {}, [&ran] { ran = ran + 1; });
    lanes_of(in).put(*mine);
}

// A thief that looks at every lane.
void steals_from_any(pool& in, lane& on, std::uint64_t chance) {
    lane* from = nullptr;
    lane* limit = nullptr;
    if (job* const taken = lanes_of(in).steal(chance, from, limit)) {
        on.run(*taken, *from);
    }
}

// One thread ends while another one begins: it gets the lane of the former, or a new one.
void lane_is_handed_on(bool stolen, std::uint64_t chance) {
    no_substitute owner;
    pool all(owner, {1, true, nullptr, 0});
    var<int> ran[2]{0, 0};
    lane thief_lane(all, nullptr);
    {
        std::unique_ptr<model::thread> thief;
        model::thread begins([&] { comes_and_goes(all, ran[1]); });
        if (stolen) {
            thief =
                std::make_unique<model::thread>([&] { steals_from_any(all, thief_lane, chance); });
        }
        comes_and_goes(all, ran[0]);
    }
    MODEL_REQUIRE(ran[0] == 1 && ran[1] == 1);
    MODEL_REQUIRE(!lanes_of(all).has_work());
    // Each lane is free once.
    lane* const first = lanes_of(all).take();
    lane* const second = lanes_of(all).take();
    lane* const third = lanes_of(all).take();
    MODEL_REQUIRE(first != second && second != third && first != third);
    lanes_of(all).put(*first);
    lanes_of(all).put(*second);
    MODEL_REQUIRE(lanes_of(all).take() == second && lanes_of(all).take() == first);
}

TEST_CASE("fork_join: a thread that begins gets the lane of a thread that ends, or a new one") {
    model::check("a lane is handed on", [] { lane_is_handed_on(false, 0); });
    check_at_random("a lane is handed on, a thief, at random", 1'000,
                    [] { lane_is_handed_on(true, 0); });
    check_at_random("a lane is handed on, a thief looks at the other one first, at random", 1'000,
                    [] { lane_is_handed_on(true, 1); });
}

// Takes an arm from a lane with a limit, if the limit admits it, and runs it on `on`.
void enter_and_run(lane& from, lane& on) {
    lane* limit = nullptr;
    if (job* const taken = from.enter_and_steal(limit)) {
        on.run(*taken, from);
        lane::leave(limit);
    }
}

// Two thieves at a fork-join that admits one: they run arms one after the other. The lane may have
// begun another fork-join before, with other limits.
void limited(std::uint32_t before) {
    lanes l;
    var<int> ran[2]{0, 0};
    var<int> alone{0}; // only thieves write it
    const int me = this_thread() = 1;
    const auto begin = [&l](std::uint32_t most) {
        if (most != lane::no_limit) {
            l.a.set_limit(most, nullptr);
        }
        l.a.begin(1, 0, most == lane::no_limit ? nullptr : &l.a);
    };
    const auto arm = [&](int n) {
        return [&, n] {
            ran[n] = ran[n] + 1;
            if (this_thread() != me) {
                alone = alone + 1;
            }
        };
    };
    begin(before);
    model::thread first([&] { enter_and_run(l.a, l.b); });
    model::thread second([&] { enter_and_run(l.a, l.c); });
    if (before != 1) {
        fork(l.a, [] {}, [] {});
        begin(1);
    }
    fork(l.a, [&] { fork(l.a, [] {}, arm(0)); }, arm(1));
    MODEL_REQUIRE(ran[0] == 1 && ran[1] == 1);
}

// A worker runs an arm, leaves the limit and goes to sleep. Only this worker runs the next arm.
void found_after_leaving() {
    no_substitute owner;
    pool all(owner, {2, true, nullptr, 0}); // the other worker is away
    var<int> ran{0};
    model::thread working([&] { all.run(all.workers()[0]); });
    lane& mine = *lanes_of(all).take();
    mine.set_limit(1, nullptr);
    mine.begin(1, 0, &mine);
    const auto arm = [&] {
        ran = ran + 1;
        if (ran == 2) {
            all.stop();
        }
    };
    using forked = bide::detail::fork_arm<platform, decltype((arm))>;
    forked one(arm);
    forked two(arm);
    mine.push(one);
    mine.push(two);
    working.join();
    MODEL_REQUIRE(ran == 2);
    MODEL_REQUIRE(mine.wait(two, 1) == job::end::done && mine.wait(one, 0) == job::end::done);
    lanes_of(all).put(mine);
}

TEST_CASE("fork_join: no more thieves than a limit admits run its arms, also if the lane had "
          "another limit before") {
    check_at_random("two thieves, a limit of one, at random", 5'000, [] { limited(1); });
    check_at_random("two thieves, a limit of two before, at random", 5'000, [] { limited(2); });
    check_at_random("two thieves, no limit before, at random", 5'000,
                    [] { limited(lane::no_limit); });
}

TEST_CASE("fork_join: a worker that leaves a full limit and goes to sleep finds the next arm") {
    check_at_random("found after leaving, at random", 5'000, found_after_leaving);
}

using scope = bide::basic_spawn_scope<platform>;
using context = bide::detail::basic_fork_context<platform>;

// As steal_and_run(), with the context that a function of a scope needs.
bool steal_function(lane& from, lane& on) {
    job* const taken = from.steal();
    if (taken != nullptr) {
        const bide::detail::basic_fork_scope<platform> now(on, from);
        on.run(*taken, from);
    }
    return taken != nullptr;
}

// The body spawns one function, which may spawn another. Thieves take them.
void spawned(bool again, int thieves) {
    lanes l;
    var<int> ran{0};
    var<int> ran_again{0};
    {
        std::unique_ptr<model::thread> second;
        model::thread first([&] { steal_function(l.a, l.b); });
        if (thieves == 2) { // takes from the first thief
            second = std::make_unique<model::thread>([&] { steal_function(l.b, l.c); });
        }
        context::here() = {nullptr, &l.a};
        scope s(nullptr, {});
        s.run([&](scope& all) {
            all.spawn([&](scope& same) {
                ran = ran + 1;
                if (again) {
                    same.spawn([&] { ran_again = ran_again + 1; });
                }
            });
        });
        MODEL_REQUIRE(ran == 1 && ran_again == (again ? 1 : 0));
        context::here() = {};
    }
    MODEL_REQUIRE(l.a.depth() == 0 && l.a.is_empty());
}

// An arm of the body spawns a function, which goes beside. A thief, or a worker that goes to sleep,
// takes it, or else the body's thread.
void spawned_beside(bool by_worker) {
    no_substitute owner;
    pool all(owner, {2, true, nullptr, 0}); // the other worker is away
    lane thief_lane(all, nullptr);
    var<int> ran{0};
    {
        model::thread other([&] {
            if (by_worker) {
                all.run(all.workers()[0]);
                return;
            }
            lane* from = nullptr;
            lane* limit = nullptr;
            if (job* const taken = lanes_of(all).steal(0, from, limit)) {
                const bide::detail::basic_fork_scope<platform> now(thief_lane, *from);
                thief_lane.run(*taken, *from);
            }
        });
        lane& mine = *lanes_of(all).take();
        mine.begin(1, 0);
        context::here() = {nullptr, &mine};
        {
            scope s(&all, {});
            s.run([&](scope& of) { fork(mine, [&] { of.spawn([&] { ran = ran + 1; }); }, [] {}); });
            MODEL_REQUIRE(ran == 1);
        }
        context::here() = {};
        lanes_of(all).put(mine);
        if (by_worker) {
            all.stop();
        }
    }
    MODEL_REQUIRE(!lanes_of(all).has_work());
}

// Only a worker that goes to sleep runs the function.
void found_beside() {
    no_substitute owner;
    pool all(owner, {2, true, nullptr, 0}); // the other worker is away
    var<int> ran{0};
    model::thread working([&] { all.run(all.workers()[0]); });
    lane& mine = *lanes_of(all).take();
    mine.begin(1, 0);
    context::here() = {nullptr, &mine};
    {
        scope s(&all, {});
        s.run([&](scope& of) {
            const auto outer = std::exchange(context::here(), context{}); // as on a thread outside
            of.spawn([&] {
                ran = ran + 1;
                all.stop();
            });
            context::here() = outer;
            working.join();
            MODEL_REQUIRE(ran == 1);
        });
    }
    context::here() = {};
    lanes_of(all).put(mine);
}

TEST_CASE("fork_join: a scope returns when its functions have ended, on either thread") {
    model::check("a function, a thief", [] { spawned(false, 1); });
    model::check("a function that spawns one, a thief", [] { spawned(true, 1); });
    check_at_random("a function that spawns one, two thieves, at random", 20'000,
                    [] { spawned(true, 2); });
}

TEST_CASE("fork_join: a function beside is run by a thief or at the end of the body") {
    model::check("a function beside, a thief", [] { spawned_beside(false); });
    check_at_random("a function beside, a worker, at random", 3'000, [] { spawned_beside(true); });
}

TEST_CASE("fork_join: a worker that goes to sleep finds a function that is spawned beside") {
    check_at_random("a function beside, a worker that goes to sleep, at random", 5'000,
                    found_beside);
}

TEST_CASE("fork_progress: what the counted iterations wrote is visible, and so is their number") {
    model::check("two leaves, a thread that asks", [] {
        bide::basic_fork_progress<platform> progress;
        var<int> wrote[2] = {var<int>{0}, var<int>{0}};
        const auto leaf = [&](int n) {
            progress.expect(1);
            wrote[n] = 1;
            progress.count(1);
        };
        model::thread first([&] { leaf(0); });
        model::thread second([&] { leaf(1); });
        const std::uint64_t done = progress.done();
        MODEL_REQUIRE(done <= progress.total() && progress.total() <= 2);
        MODEL_REQUIRE(done != 2 || wrote[0] + wrote[1] == 2);
        first.join();
        second.join();
        MODEL_REQUIRE(progress.done() == 2 && progress.total() == 2);
    });
}

} // namespace
