#include <bide/core/parker.hpp>
#include <bide/sched/detail/class_queues.hpp>
#include <bide/sched/idle.hpp>
#include <bide/sched/injector.hpp>
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

    // Pushes all jobs at once, and looks for sleepers once.
    template <std::size_t N> void inject_all(job (&all)[N]) noexcept {
        bide::detail::run_list list;
        for (job& j : all) {
            j.number = 1;
            list.push(j);
        }
        injected_.push(list, N);
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
                rings_[self].push(*r, injected_);
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
            rings_[self].push((&j)[i], injected_);
            unpark(idle_.wake_one());
        }
    }

    idle idle_;
    injector injected_;
    std::array<run_queue, Workers> rings_{};
    std::array<bide::basic_parker<platform>, Workers> parkers_{};
};

TEST_CASE("idle: a worker that sleeps or is about to runs an injected job", "[idle]") {
    model::check("one worker, one job", {}, [] {
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

// A queue with a job that no worker takes: the test is about which worker knows of it.
struct work {
    injector jobs;
    job all[2];

    void push(int i) noexcept { jobs.push(all[i]); }
    bool is_seen() const noexcept { return !jobs.empty(); }
};

void require_counts(const idle& i, unsigned sleeping, unsigned searching) {
    MODEL_REQUIRE(i.sleepers() == sleeping);
    MODEL_REQUIRE(i.searching() == searching);
}

void check(const char* name, const char* weak_name, const model::body& body) {
    model::check(name, {}, body);
    model::check(weak_name, {.weak_failures = 1}, body);
}

TEST_CASE("idle: a push sees the sleeper, or the sleeper sees the push", "[idle]") {
    check("push, announce", "push, announce, weak", [] {
        idle i(2);
        work w;
        unsigned woken = none;
        model::thread pushing([&] {
            w.push(0);
            woken = i.wake_one();
        });
        i.announce(0, false, false);
        const bool seen = w.is_seen();
        pushing.join();
        MODEL_REQUIRE(woken == 0 || (woken == none && seen));
        require_counts(i, woken == 0 ? 0 : 1, woken == 0 ? 1 : 0);
    });
    check("push, announce, retract", "push, announce, retract, weak", [] {
        idle i(2);
        work w;
        unsigned woken = none;
        model::thread pushing([&] {
            w.push(0);
            woken = i.wake_one();
        });
        i.announce(0, i.start_search(), false);
        const bool seen = w.is_seen();
        const bool retracted = seen && i.retract(0);
        pushing.join();
        MODEL_REQUIRE(retracted || woken == 0);
        MODEL_REQUIRE(!retracted || woken == none);
        require_counts(i, 0, 1);
    });
}

TEST_CASE("idle: one of two pushes wakes the sleeper, and the other one is deferred", "[idle]") {
    check("two pushes, one sleeper", "two pushes, one sleeper, weak", [] {
        idle i(3);
        work w;
        unsigned woken[2] = {none, none};
        i.announce(0, false, false);
        i.announce(2, false, false);
        model::thread pushing([&] {
            w.push(0);
            woken[0] = i.wake_one();
        });
        w.push(1);
        woken[1] = i.wake_one();
        pushing.join();
        MODEL_REQUIRE((woken[0] == 0 && woken[1] == none) || (woken[0] == none && woken[1] == 0));
        require_counts(i, 1, 1);
        MODEL_REQUIRE(i.end_search(false) == 2);
        MODEL_REQUIRE(i.end_search(false) == none);
        require_counts(i, 0, 0);
    });
}

TEST_CASE("idle: a push that relies on a searcher wakes a worker later", "[idle]") {
    check("push, the searcher ends", "push, the searcher ends, weak", [] {
        idle i(3);
        work w;
        unsigned woken = none;
        i.announce(0, false, false);
        MODEL_REQUIRE(i.start_search());
        model::thread pushing([&] {
            w.push(0);
            woken = i.wake_one();
        });
        const unsigned next = i.end_search(false); // with another job
        pushing.join();
        MODEL_REQUIRE((woken == 0 && next == none) || (woken == none && next == 0));
        require_counts(i, 0, 1);
    });
    check("push, the last of two searchers ends", "push, the last of two ends, weak", [] {
        idle i(4);
        work w;
        unsigned woken = none;
        unsigned next[2] = {none, none};
        i.announce(0, false, false);
        MODEL_REQUIRE(i.start_search() && i.start_search());
        w.push(0);
        woken = i.wake_one();
        MODEL_REQUIRE(woken == none);
        model::thread ending([&] { next[0] = i.end_search(false); });
        next[1] = i.end_search(false);
        ending.join();
        MODEL_REQUIRE((next[0] == 0 && next[1] == none) || (next[0] == none && next[1] == 0));
        require_counts(i, 0, 1);
    });
    // The searcher goes to sleep, looks, and finds another job.
    check("push, the searcher announces", "push, the searcher announces, weak", [] {
        idle i(3);
        work w;
        unsigned woken = none;
        i.announce(0, false, false);
        MODEL_REQUIRE(i.start_search());
        model::thread pushing([&] {
            w.push(0);
            woken = i.wake_one();
        });
        i.announce(1, true, false);
        const bool seen = w.is_seen();
        const bool retracted = seen && i.retract(1);
        const unsigned next = retracted ? i.end_search(false) : none;
        pushing.join();
        // The sleeper is awake, or the searcher, which sleeps, is awake or has not looked yet.
        const bool woken_next = woken == none && next == 0;
        const bool woken_first = woken == 0 && next == none;
        MODEL_REQUIRE(retracted ? woken_first || woken_next : woken == 0 || woken == 1);
        require_counts(i, retracted ? 0 : 1, 1);
    });
}

// A ring with a job of 3 that a searcher has put down there, before it ends its search.
struct loot {
    run_queue mine;
    run_queue theirs;
    injector over;
    job all[3];

    loot() {
        for (job& j : all) {
            theirs.push(j, over);
        }
    }
    bool steal() noexcept {
        unsigned taken = 0;
        return theirs.steal_into(mine, taken) != nullptr && taken == 2;
    }
};

TEST_CASE("idle: a worker that goes to sleep sees a job that a searcher moved, or is woken",
          "[idle]") {
    check("more, announce", "more, announce, weak", [] {
        idle i(2);
        loot w;
        unsigned woken = none;
        MODEL_REQUIRE(i.start_search());
        model::thread ending([&] {
            MODEL_REQUIRE(w.steal());
            woken = i.end_search(true);
        });
        i.announce(0, false, false);
        const bool seen = !w.mine.empty();
        ending.join();
        MODEL_REQUIRE(woken == 0 || seen);
        require_counts(i, woken == 0 ? 0 : 1, woken == 0 ? 1 : 0);
    });
    check("more, beside another searcher, announce", "more, another searcher, announce, weak", [] {
        idle i(4);
        loot w;
        unsigned woken[2] = {none, none};
        MODEL_REQUIRE(i.start_search() && i.start_search());
        model::thread ending([&] {
            MODEL_REQUIRE(w.steal());
            woken[0] = i.end_search(true);
            woken[1] = i.end_search(false); // the other searcher
        });
        i.announce(0, false, false);
        const bool seen = !w.mine.empty();
        ending.join();
        MODEL_REQUIRE(woken[0] == none);
        MODEL_REQUIRE(woken[1] == 0 || seen);
        require_counts(i, woken[1] == 0 ? 0 : 1, woken[1] == 0 ? 1 : 0);
    });
}

TEST_CASE("idle: at most half of the workers search", "[idle]") {
    check("two begin to search", "two begin to search, weak", [] {
        idle i(2);
        bool other = false;
        model::thread searching([&] { other = i.start_search(); });
        const bool mine = i.start_search();
        searching.join();
        MODEL_REQUIRE(mine != other);
        require_counts(i, 0, 1);
    });
}

TEST_CASE("idle: if the watcher leaves, a push that relied on it gets another watcher", "[idle]") {
    // Worker 0 watches, 1 sleeps, 2 pushes.
    check("a LIFO push, the watcher goes", "a LIFO push, the watcher goes, weak", [] {
        idle i(3);
        platform::atomic<int> slot{0};
        unsigned woken = none;
        MODEL_REQUIRE(i.announce(0, false, true));
        MODEL_REQUIRE(!i.announce(1, false, true));
        model::thread pushing([&] {
            slot.exchange(1, seq_cst);
            woken = i.wake_unless_watched();
        });
        MODEL_REQUIRE(i.retract(0));
        const unsigned next = i.end_search(false); // with another job
        pushing.join();
        MODEL_REQUIRE((woken == 1 && next == none) || (woken == none && next == 1));
        require_counts(i, 0, 1);
    });
    check("a LIFO push, a watcher comes", "a LIFO push, a watcher comes, weak", [] {
        idle i(2);
        platform::atomic<int> slot{0};
        unsigned woken = none;
        model::thread pushing([&] {
            slot.exchange(1, seq_cst);
            woken = i.wake_unless_watched();
        });
        MODEL_REQUIRE(i.announce(0, false, true));
        const bool seen = slot.load(seq_cst) != 0;
        pushing.join();
        MODEL_REQUIRE(woken == none);
        MODEL_REQUIRE(i.retract(0));
        i.announce(1, false, false); // a later sleeper looks later
        MODEL_REQUIRE(seen || i.end_search(false) == 1);
    });
}

// ---- Jobs that only one thread may run

using thread_queue = bide::detail::basic_thread_queue<platform>;

// Pushes a job and wakes the worker of its thread. Returns false if the thread must be unparked.
bool push_pinned(thread_queue& to, job& j, idle& i, bool& woken) {
    const unsigned at = to.push(j);
    woken = at != to.none && i.wake_worker(at);
    return at != to.none;
}

TEST_CASE(
    "idle: a push of a pinned job wakes the worker of its thread, or the thread sees the push",
    "[idle]") {
    check("a pinned push, announce", "a pinned push, announce, weak", [] {
        idle i(2);
        thread_queue mine(0);
        job j;
        bool woken = false;
        i.announce(1, false, false); // another sleeper, which is not woken
        model::thread pushing([&] { push_pinned(mine, j, i, woken); });
        i.announce(0, false, false);
        const bool seen = !mine.empty();
        pushing.join();
        MODEL_REQUIRE(woken || seen);
        require_counts(i, woken ? 1 : 2, woken ? 1 : 0);
    });
    check("a pinned push, announce, retract", "a pinned push, announce, retract, weak", [] {
        idle i(2);
        thread_queue mine(0);
        job j;
        bool woken = false;
        model::thread pushing([&] { push_pinned(mine, j, i, woken); });
        i.announce(0, i.start_search(), false);
        const bool retracted = !mine.empty() && i.retract(0);
        pushing.join();
        MODEL_REQUIRE(retracted != woken);
        require_counts(i, 0, 1);
    });
}

TEST_CASE("idle: a push of a pinned job reaches a thread that changes its worker or loses it",
          "[idle]") {
    // Another thread sleeps in the worker that the thread had.
    check("a pinned push, another worker", "a pinned push, another worker, weak", [] {
        idle i(3);
        thread_queue mine(0);
        job j;
        bool woken = false;
        i.announce(0, false, false);
        model::thread pushing([&] { push_pinned(mine, j, i, woken); });
        mine.set_owned(1);
        i.announce(1, false, false);
        const bool seen = !mine.empty();
        pushing.join();
        MODEL_REQUIRE(woken || seen);
        MODEL_REQUIRE(seen || (i.retract(0) && !i.retract(1))); // it is 1 that was woken
    });
    check("a pinned push, no worker", "a pinned push, no worker, weak", [] {
        idle i(1);
        thread_queue mine(0);
        job j;
        bool woken = false;
        bool unparked = false;
        model::thread pushing([&] { unparked = !push_pinned(mine, j, i, woken); });
        mine.set_owned(mine.none);
        const bool seen = !mine.empty();
        pushing.join();
        MODEL_REQUIRE(unparked || seen);
    });
}

TEST_CASE("idle: a job for any worker finds one beside a pinned job", "[idle]") {
    // Worker 0 sleeps, and takes the pinned job first.
    check("a pinned push, a push", "a pinned push, a push, weak", [] {
        idle i(3);
        thread_queue mine(0);
        work w;
        job j;
        bool is_mine = false;
        i.announce(0, false, false);
        i.announce(1, false, false);
        model::thread pushing([&] { push_pinned(mine, j, i, is_mine); });
        w.push(0);
        const unsigned woken = i.wake_one();
        pushing.join();
        MODEL_REQUIRE(is_mine || woken == 0);
        MODEL_REQUIRE(!is_mine || woken != 0);
        const unsigned next = i.end_search(!is_mine);
        MODEL_REQUIRE(woken == 1 ? next == none : next == 1);
        require_counts(i, 0, 1);
    });
    // Worker 0 watches, and a push into a slot relies on that.
    check("a pinned push to the watcher, a LIFO push", "the same, weak", [] {
        idle i(3);
        thread_queue mine(0);
        platform::atomic<int> slot{0};
        job j;
        bool is_mine = false;
        MODEL_REQUIRE(i.announce(0, false, true));
        MODEL_REQUIRE(!i.announce(1, false, true));
        model::thread pushing([&] { push_pinned(mine, j, i, is_mine); });
        slot.exchange(1, seq_cst);
        const unsigned woken = i.wake_unless_watched();
        pushing.join();
        MODEL_REQUIRE(is_mine);
        const unsigned next = i.end_search(false);
        MODEL_REQUIRE((woken == 1 && next == none) || (woken == none && next == 1));
        require_counts(i, 0, 1);
    });
}

TEST_CASE("idle: the last sleeper finds a blocked worker, or that worker found no sleeper",
          "[idle]") {
    check("away, the last sleeper wakes", "away, the last sleeper wakes, weak", [] {
        idle i(2);
        platform::var<int> blocked{0};
        unsigned asleep = 0;
        i.announce(0, false, false);
        model::thread blocking([&] {
            blocked = 1;
            asleep = i.add_blocked(1);
        });
        MODEL_REQUIRE(i.wake_one() == 0);
        const bool needs_replacement = i.needs_replacement();
        MODEL_REQUIRE(!needs_replacement || blocked == 1);
        blocking.join();
        MODEL_REQUIRE(asleep == 0 || needs_replacement);
        MODEL_REQUIRE(i.add_blocked(-1) == 0 && !i.needs_replacement());
    });
}

// ---- The whole: workers in their loop, and pushes by external threads and by workers

template <unsigned Workers, class Push> void run_crew(Push push) {
    crew<Workers> c;
    job all[Workers];
    std::array<std::unique_ptr<model::thread>, Workers> threads;
    for (unsigned i = 0; i < Workers; ++i) {
        threads[i] = std::make_unique<model::thread>([&c, i] { c.work(i); });
    }
    push(c, all);
    for (auto& t : threads) {
        t->join();
    }
    c.check_end();
}

void two_jobs() {
    run_crew<2>([](crew<2>& c, job(&all)[2]) {
        c.inject(all[0]);
        c.inject(all[1]);
    });
}

void job_and_child() {
    run_crew<2>([](crew<2>& c, job(&all)[2]) {
        all[0].children = 1;
        c.inject(all[0]);
    });
}

void three_jobs() {
    run_crew<3>([](crew<3>& c, job(&all)[3]) {
        for (int i = 0; i < 3; ++i) {
            c.inject(all[i]);
        }
    });
}

void job_and_children() {
    run_crew<3>([](crew<3>& c, job(&all)[3]) {
        all[0].children = 2;
        c.inject(all[0]);
    });
}

void three_jobs_at_once() {
    run_crew<3>([](crew<3>& c, job(&all)[3]) { c.inject_all(all); });
}

void job_and_child_and_job() {
    run_crew<3>([](crew<3>& c, job(&all)[3]) {
        all[0].children = 1;
        c.inject(all[0]);
        c.inject(all[2]);
    });
}

TEST_CASE("idle: each job finds a worker while a worker sleeps", "[idle]") {
    model::options few;
    few.how = model::options::method::bounded;
    few.preemptions = 0;
    model::check("two workers, two jobs", few, two_jobs);
    model::check("two workers, a job and its child", few, job_and_child);
    model::options random;
    random.how = model::options::method::pct;
    random.runs = 4'000;
    model::check("two workers, two jobs, at random", random, two_jobs);
    model::check("two workers, a job and its child, at random", random, job_and_child);
    model::check("three workers, three jobs, at random", random, three_jobs);
    model::check("three workers, three jobs at once, at random", random, three_jobs_at_once);
    model::check("three workers, a job and its children, at random", random, job_and_children);
    model::check("three workers, a job, its child, a job, at random", random,
                 job_and_child_and_job);
}

// One of the two workers is the body, which has injected before the other begins.
TEST_CASE("idle: each job finds a worker in every execution", "[idle][.long]") {
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
