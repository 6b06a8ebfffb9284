#include <bide/core/parker.hpp>
#include <bide/sched/detail/worker.hpp>
#include <bide/sched/idle.hpp>
#include <bide/sched/run_queue.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

// Workers that sleep, search and run, and threads that push: no job stays unseen while a worker
// sleeps, and the counts are right at the end. With the real queues and parkers, because each pair
// of orders has two ends.

namespace {

constexpr auto seq_cst = std::memory_order_seq_cst;

// The inner locks and the parkers have models of their own.
using platform = model::platform_without_lock_sleep;
using idle = bide::basic_idle<platform>;
using injector = bide::basic_injector<platform>;
using run_queue = bide::basic_run_queue<platform, 4, 4>;

struct job : bide::runnable {
    platform::var<int> number{0};
    int children = 0; // its worker pushes so many of the jobs after it into its ring
};

// A small scheduler with a job for each worker. A worker that runs a job never looks at a queue
// again. So each job must find a worker of its own, wherever it is queued.
template <unsigned Workers> class crew {
public:
    crew() : idle_(Workers) {}

    // An external thread: pushes a job.
    void inject(job& j) noexcept {
        j.number = 1;
        injected_.push(j);
        unpark(idle_.wake_one());
    }

    // Pushes all jobs, and then looks for sleepers once.
    template <std::size_t N> void inject_all(job (&all)[N]) noexcept {
        for (job& j : all) {
            j.number = 1;
            injected_.push(j);
        }
        unpark(idle_.wake_one());
    }

    // A worker's thread.
    void work(unsigned self) noexcept {
        bool searching = false;
        for (;;) {
            bool more = false;
            searching = searching || idle_.start_search();
            bide::runnable* const r = searching ? search(self, more) : nullptr;
            if (r != nullptr) {
                unpark(idle_.end_search(more));
                return run(self, *static_cast<job*>(r));
            }
            idle_.announce(self, searching, false);
            if (!look() || !idle_.retract(self)) {
                parkers_[self].park();
            }
            searching = true;
        }
    }

    void check_end() const noexcept {
        MODEL_REQUIRE(idle_.sleepers() == 0);
        MODEL_REQUIRE(idle_.searching() == 0);
        MODEL_REQUIRE(!look());
    }

private:
    void unpark(unsigned worker) noexcept {
        if (worker != idle::none) {
            parkers_[worker].unpark();
        }
    }

    bide::runnable* search(unsigned self, bool& more) noexcept {
        bide::detail::run_list batch;
        if (injected_.pop(batch, 2) != 0) {
            bide::runnable* const first = batch.pop();
            while (bide::runnable* const r = batch.pop()) {
                more = true;
                push(self, *r);
            }
            more = more || !injected_.empty();
            return first;
        }
        for (unsigned other = 0; other < Workers; ++other) {
            unsigned taken = 0;
            if (other == self) {
                continue;
            }
            if (bide::runnable* const r = rings_[other].steal_into(rings_[self], taken)) {
                more = taken > 1 || !rings_[other].empty();
                return r;
            }
        }
        return nullptr;
    }

    void push(unsigned self, bide::runnable& r) noexcept {
        if (!rings_[self].push(r)) {
            injected_.push(r);
        }
    }

    bool look() const noexcept {
        for (const run_queue& ring : rings_) {
            if (!ring.empty()) {
                return true;
            }
        }
        return !injected_.empty();
    }

    void run(unsigned self, job& j) noexcept {
        MODEL_REQUIRE(j.number == 1);
        j.number = 2;
        for (int i = 1; i <= j.children; ++i) {
            (&j)[i].number = 1;
            push(self, (&j)[i]);
            unpark(idle_.wake_one());
        }
    }

    idle idle_;
    injector injected_;
    std::array<run_queue, Workers> rings_{};
    std::array<bide::basic_parker<platform>, Workers> parkers_{};
};

TEST_CASE("idle: a worker that sleeps or is about to runs an injected job") {
    model::check("one worker, one job", [] {
        crew<1> c;
        job j;
        model::thread worker([&] { c.work(0); });
        c.inject(j);
        worker.join();
        c.check_end();
    });
}

// ---- Single steps: worker 0 is the body, or asleep

constexpr unsigned none = idle::none;

// One of the two workers that push found this sleeper.
bool is_woken_once(unsigned sleeper, unsigned a, unsigned b) {
    return (a == sleeper && b == none) || (a == none && b == sleeper);
}

// Workers, and a queue with a job that no worker takes: the test is about which worker knows of it.
struct scene {
    explicit scene(unsigned workers) : i(workers) {}

    // What a thread that pushes does: here, or on a thread of its own.
    unsigned push(int n) noexcept {
        queue.push(jobs[n]);
        return i.wake_one();
    }
    void push_beside() {
        pushing.emplace([this] { woken = push(0); });
    }
    // The same with a LIFO slot, and sleepers of which one may be the timed sleeper.
    void push_into_slot_beside() {
        pushing.emplace([this] {
            slot.exchange(1, seq_cst);
            woken = i.wake_unless_timed();
        });
    }
    bool is_seen() const noexcept { return !queue.empty(); }
    void end_push() { pushing.reset(); }
    void require_counts(unsigned sleeping, unsigned searching) {
        MODEL_REQUIRE(i.sleepers() == sleeping);
        MODEL_REQUIRE(i.searching() == searching);
    }

    idle i;
    injector queue;
    platform::atomic<int> slot{0};
    job jobs[2];
    unsigned woken = none; // by the thread that pushes
    std::optional<model::thread> pushing;
};

TEST_CASE("idle: a push sees the sleeper, or the sleeper sees the push") {
    model::check_weak("push, announce", [] {
        scene s(2);
        s.push_beside();
        s.i.announce(0, false, false);
        const bool seen = s.is_seen();
        s.end_push();
        MODEL_REQUIRE(s.woken == 0 || (s.woken == none && seen));
        s.require_counts(s.woken == 0 ? 0 : 1, s.woken == 0 ? 1 : 0);
    });
    model::check_weak("push, announce, retract", [] {
        scene s(2);
        s.push_beside();
        s.i.announce(0, s.i.start_search(), false);
        const bool retracted = s.is_seen() && s.i.retract(0);
        s.end_push();
        MODEL_REQUIRE(retracted ? s.woken == none : s.woken == 0);
        s.require_counts(0, 1);
    });
}

TEST_CASE("idle: one of two pushes wakes the sleeper, and the other one is deferred") {
    model::check_weak("two pushes, one sleeper", [] {
        scene s(3);
        s.i.announce(0, false, false);
        s.i.announce(2, false, false);
        s.push_beside();
        const unsigned woken = s.push(1);
        s.end_push();
        MODEL_REQUIRE(is_woken_once(0, woken, s.woken));
        s.require_counts(1, 1);
        MODEL_REQUIRE(s.i.end_search(false) == 2);
        MODEL_REQUIRE(s.i.end_search(false) == none);
        s.require_counts(0, 0);
    });
}

TEST_CASE("idle: beside a push, two wakes of a worker wake two, which count as searching") {
    model::check("end_search() and wake_another()", [] {
        scene s(4);
        MODEL_REQUIRE(s.i.start_search());
        s.i.announce(1, false, false);
        s.i.announce(2, false, false);
        s.push_beside(); // relies on a searcher
        const unsigned first = s.i.end_search(true);
        const unsigned second = s.i.wake_another(1);
        s.end_push();
        MODEL_REQUIRE(first == 1);
        MODEL_REQUIRE(second == 2);
        MODEL_REQUIRE(s.woken == none);
        s.require_counts(0, 2);
    });
}

TEST_CASE("idle: a push that relies on a searcher wakes a worker later") {
    model::check_weak("push, the searcher ends", [] {
        scene s(3);
        s.i.announce(0, false, false);
        MODEL_REQUIRE(s.i.start_search());
        s.push_beside();
        const unsigned next = s.i.end_search(false); // with another job
        s.end_push();
        MODEL_REQUIRE(is_woken_once(0, s.woken, next));
        s.require_counts(0, 1);
    });
    model::check_weak("push, the last of two searchers ends", [] {
        scene s(4);
        unsigned other = none;
        s.i.announce(0, false, false);
        MODEL_REQUIRE(s.i.start_search() && s.i.start_search());
        MODEL_REQUIRE(s.push(0) == none);
        model::thread ending([&] { other = s.i.end_search(false); });
        const unsigned next = s.i.end_search(false);
        ending.join();
        MODEL_REQUIRE(is_woken_once(0, other, next));
        s.require_counts(0, 1);
    });
    // The searcher goes to sleep, looks, and finds another job.
    model::check_weak("push, the searcher announces", [] {
        scene s(3);
        s.i.announce(0, false, false);
        MODEL_REQUIRE(s.i.start_search());
        s.push_beside();
        s.i.announce(1, true, false);
        const bool retracted = s.is_seen() && s.i.retract(1);
        const unsigned next = retracted ? s.i.end_search(false) : none;
        s.end_push();
        // The sleeper is awake, or the searcher, which sleeps, is awake or has not looked yet.
        MODEL_REQUIRE(retracted ? is_woken_once(0, s.woken, next) : s.woken == 0 || s.woken == 1);
        s.require_counts(retracted ? 0 : 1, 1);
    });
}

// A ring with a job of 3 that a searcher has put down there, before it ends its search.
struct loot {
    run_queue mine;
    run_queue theirs;
    job all[3];

    loot() {
        for (job& j : all) {
            MODEL_REQUIRE(theirs.push(j));
        }
    }
    bool steal() noexcept {
        unsigned taken = 0;
        return theirs.steal_into(mine, taken) != nullptr && taken == 2;
    }
};

TEST_CASE("idle: a worker that goes to sleep sees a job that a searcher moved, or is woken") {
    const auto moved = [](bool by_last) {
        idle i(by_last ? 2 : 4);
        loot w;
        unsigned woken = none;
        MODEL_REQUIRE(i.start_search() && (by_last || i.start_search()));
        model::thread ending([&] {
            MODEL_REQUIRE(w.steal());
            woken = i.end_search(true);
            if (!by_last) {
                MODEL_REQUIRE(woken == none);
                woken = i.end_search(false); // the other searcher
            }
        });
        i.announce(0, false, false);
        const bool seen = !w.mine.empty();
        ending.join();
        MODEL_REQUIRE(woken == 0 || seen);
        MODEL_REQUIRE(i.sleepers() == (woken == 0 ? 0 : 1));
        MODEL_REQUIRE(i.searching() == (woken == 0 ? 1 : 0));
    };
    model::check_weak("more, announce", [=] { moved(true); });
    model::check_weak("more, beside another searcher, announce", [=] { moved(false); });
}

TEST_CASE("idle: at most half of the workers search") {
    model::check_weak("two begin to search", [] {
        scene s(2);
        bool other = false;
        model::thread searching([&] { other = s.i.start_search(); });
        const bool mine = s.i.start_search();
        searching.join();
        MODEL_REQUIRE(mine != other);
        s.require_counts(0, 1);
    });
}

TEST_CASE(
    "idle: if the timed sleeper leaves, a push that relied on it gets another timed sleeper") {
    // Worker 0 is the timed sleeper, 1 sleeps, 2 pushes.
    model::check_weak("a LIFO push, the timed sleeper goes", [] {
        scene s(3);
        MODEL_REQUIRE(s.i.announce(0, false, true));
        MODEL_REQUIRE(!s.i.announce(1, false, true));
        s.push_into_slot_beside();
        MODEL_REQUIRE(s.i.retract(0));
        const unsigned next = s.i.end_search(false); // with another job
        s.end_push();
        MODEL_REQUIRE(is_woken_once(1, s.woken, next));
        s.require_counts(0, 1);
    });
    model::check_weak("a LIFO push, a timed sleeper comes", [] {
        scene s(2);
        s.push_into_slot_beside();
        MODEL_REQUIRE(s.i.announce(0, false, true));
        const bool seen = s.slot.load(seq_cst) != 0;
        s.end_push();
        MODEL_REQUIRE(s.woken == none);
        MODEL_REQUIRE(s.i.retract(0));
        s.i.announce(1, false, false); // a later sleeper looks later
        MODEL_REQUIRE(seen || s.i.end_search(false) == 1);
    });
}

struct pinned_scene : scene {
    using scene::scene;

    // Pushes a job for the thread of worker 0, and wakes its worker.
    void push_pinned_beside() {
        pushing.emplace([this] {
            const unsigned at = mine.push(jobs[1]);
            unparks = at == mine.none;
            is_woken = !unparks && i.wake_worker(at);
        });
    }

    bide::detail::basic_thread_queue<platform> mine{0};
    bool is_woken = false;
    bool unparks = false; // the thread has no worker
};

TEST_CASE(
    "idle: a push of a pinned job wakes the worker of its thread, or the thread sees the push") {
    model::check_weak("a pinned push, announce", [] {
        pinned_scene s(2);
        s.i.announce(1, false, false); // another sleeper, which is not woken
        s.push_pinned_beside();
        s.i.announce(0, false, false);
        const bool seen = !s.mine.empty();
        s.end_push();
        MODEL_REQUIRE(s.is_woken || seen);
        s.require_counts(s.is_woken ? 1 : 2, s.is_woken ? 1 : 0);
    });
    model::check_weak("a pinned push, announce, retract", [] {
        pinned_scene s(2);
        s.push_pinned_beside();
        s.i.announce(0, s.i.start_search(), false);
        const bool retracted = !s.mine.empty() && s.i.retract(0);
        s.end_push();
        MODEL_REQUIRE(retracted != s.is_woken);
        s.require_counts(0, 1);
    });
}

TEST_CASE("idle: a push of a pinned job reaches a thread that changes its worker or loses it") {
    // Another thread sleeps in the worker that the thread had.
    model::check_weak("a pinned push, another worker", [] {
        pinned_scene s(3);
        s.i.announce(0, false, false);
        s.push_pinned_beside();
        s.mine.set_owned(1);
        s.i.announce(1, false, false);
        const bool seen = !s.mine.empty();
        s.end_push();
        MODEL_REQUIRE(s.is_woken || seen);
        MODEL_REQUIRE(seen || (s.i.retract(0) && !s.i.retract(1))); // it is 1 that was woken
    });
    model::check_weak("a pinned push, no worker", [] {
        pinned_scene s(1);
        s.push_pinned_beside();
        s.mine.set_owned(s.mine.none);
        const bool seen = !s.mine.empty();
        s.end_push();
        MODEL_REQUIRE(s.unparks || seen);
    });
}

TEST_CASE("idle: a job for any worker finds one beside a pinned job") {
    // Worker 0 sleeps, and takes the pinned job first.
    model::check_weak("a pinned push, a push", [] {
        pinned_scene s(3);
        s.i.announce(0, false, false);
        s.i.announce(1, false, false);
        s.push_pinned_beside();
        const unsigned woken = s.push(0);
        s.end_push();
        MODEL_REQUIRE(s.is_woken == (woken != 0));
        const unsigned next = s.i.end_search(!s.is_woken);
        MODEL_REQUIRE(next == (woken == 1 ? none : 1));
        s.require_counts(0, 1);
    });
    // Worker 0 is the timed sleeper, and a push into a slot relies on that.
    model::check_weak("a pinned push to the timed sleeper, a LIFO push", [] {
        pinned_scene s(3);
        MODEL_REQUIRE(s.i.announce(0, false, true));
        MODEL_REQUIRE(!s.i.announce(1, false, true));
        s.push_pinned_beside();
        s.slot.exchange(1, seq_cst);
        const unsigned woken = s.i.wake_unless_timed();
        s.end_push();
        MODEL_REQUIRE(s.is_woken);
        MODEL_REQUIRE(is_woken_once(1, woken, s.i.end_search(false)));
        s.require_counts(0, 1);
    });
}

TEST_CASE("idle: the last sleeper finds a blocked worker, or that worker found no sleeper") {
    model::check_weak("away, the last sleeper wakes", [] {
        idle i(2);
        platform::var<int> blocked{0};
        unsigned asleep = 0;
        i.announce(0, false, false);
        model::thread blocking(model::after_writing(blocked, [&] { asleep = i.add_blocked(1); }));
        MODEL_REQUIRE(i.wake_one() == 0);
        const bool needs_replacement = i.needs_replacement();
        MODEL_REQUIRE(!needs_replacement || blocked == 1);
        blocking.join();
        MODEL_REQUIRE(asleep == 0 || needs_replacement);
        MODEL_REQUIRE(i.add_blocked(-1) == 0 && !i.needs_replacement());
    });
}

// ---- The whole: workers in their loop, and pushes by external threads and by workers

// A worker for each job. The first job pushes the next `children` jobs; the remaining jobs are injected after it. With
// `at_once`, all jobs are injected before the first look for sleepers.
template <unsigned Workers> model::body run_crew(int children, bool at_once = false) {
    return [=] {
        crew<Workers> c;
        job all[Workers];
        std::vector<model::thread> threads;
        for (unsigned i = 0; i < Workers; ++i) {
            threads.emplace_back([&c, i] { c.work(i); });
        }
        all[0].children = children;
        if (at_once) {
            c.inject_all(all);
        } else {
            c.inject(all[0]);
            for (unsigned i = static_cast<unsigned>(children) + 1; i < Workers; ++i) {
                c.inject(all[i]);
            }
        }
        threads.clear();
        c.check_end();
    };
}

TEST_CASE("idle: each job finds a worker while a worker sleeps") {
    const model::options few{.how = model::options::method::bounded, .preemptions = 0};
    model::check("two workers, two jobs", few, run_crew<2>(0));
    model::check("two workers, a job and its child", few, run_crew<2>(1));
    const model::options random{.how = model::options::method::pct, .runs = 4'000};
    model::check("two workers, two jobs, at random", random, run_crew<2>(0));
    model::check("two workers, a job and its child, at random", random, run_crew<2>(1));
    model::check("three workers, three jobs, at random", random, run_crew<3>(0));
    model::check("three workers, three jobs at once, at random", random, run_crew<3>(0, true));
    model::check("three workers, a job and its children, at random", random, run_crew<3>(2));
    model::check("three workers, a job, its child, a job, at random", random, run_crew<3>(1));
}

// One of the two workers is the body, which has injected before the other begins.
TEST_CASE("idle: each job finds a worker in every execution", "[.long]") {
    for (const int children : {0, 1}) {
        const auto body = [=] {
            crew<2> c;
            job all[2];
            all[0].children = children;
            c.inject(all[0]);
            if (children == 0) {
                c.inject(all[1]);
            }
            model::thread other([&] { c.work(1); });
            c.work(0);
            other.join();
            c.check_end();
        };
        model::check(children == 0 ? "two jobs there" : "a job there, and its child", {}, body);
    }
}

} // namespace
