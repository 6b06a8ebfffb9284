#include <bide/sched/detail/pool.hpp>
#include <model/at_random.hpp>
#include <model/posted.hpp>
#include <support/test.hpp>

// The workers of a scheduler: first their parts, then all of it with real queues, timers and
// sleepers. Each job that is pushed is run, whichever worker sleeps; each timer that is due is
// fired; a blocked worker is replaced; stop() ends all workers. Only a wait for a timer may need a
// time-out.

namespace {

// The inner locks have a model of their own.
using platform = model::platform_without_lock_sleep;
using parker = bide::basic_parker<platform>;
using bide::deadline;
template <class T> using var = platform::var<T>;
template <class T> using atomic = platform::atomic<T>;

// A driver without files: it waits for a wake, and one thread at a time is in it.
class quiet_driver final : public bide::driver {
public:
    unsigned wait(deadline until) noexcept override {
        visits = visits + 1;
        occupied.store(true, std::memory_order_relaxed);
        token_.park_until(until);
        occupied.store(false, std::memory_order_relaxed);
        return 0;
    }
    void wake() noexcept override { token_.unpark(); }

    var<int> visits{0};
    atomic<bool> occupied{false};

private:
    parker token_;
};

void check_at_random(const char* name, int timeouts, const model::body& body,
                     std::uint64_t runs = 1'000) {
    model::check_at_random(name, {.runs = runs, .timeouts = timeouts}, body);
}
void check_at_random(const char* name, const model::body& body) { check_at_random(name, 0, body); }

using sleeper = bide::detail::basic_sleeper<platform>;

// The taker of a token sees what was done before the token was left.
void take_token(bool drives) {
    quiet_driver d;
    sleeper s;
    var<int> news{0};
    model::thread leaving(model::after_writing(news, [&] { s.unpark(&d); }));
    MODEL_REQUIRE(s.park(deadline::never(), drives ? &d : nullptr));
    MODEL_REQUIRE(news == 1);
    leaving.join();
}

// Two threads leave a token each; the two may count once.
void take_tokens(bool drives) {
    quiet_driver d;
    sleeper s;
    atomic<int> count{0};
    const auto leave = [&] {
        count.fetch_add(1, std::memory_order_relaxed);
        s.unpark(&d);
    };
    model::thread first(leave);
    model::thread second(leave);
    while (count.load(std::memory_order_relaxed) != 2) {
        static_cast<void>(s.park(deadline::never(), drives ? &d : nullptr));
    }
    first.join();
    second.join();
}

TEST_CASE("sleeper: a token ends the sleep, on the futex and in the driver") {
    model::check("a bed on a futex", {.spurious = 1}, [] { take_token(false); });
    model::check("a bed in the driver", [] { take_token(true); });
    model::check("two tokens, on a futex", [] { take_tokens(false); });
    model::check("two tokens, in the driver", [] { take_tokens(true); });
}

TEST_CASE("driver_lock: one thread at a time is in the driver, and sees what the last one did") {
    const auto two = [] {
        quiet_driver d;
        bide::detail::basic_driver_lock<platform> seat(&d);
        const auto visit = [&] {
            if (bide::driver* const io = seat.try_enter()) {
                io->wake();
                io->wait(deadline::poll());
                seat.leave();
            }
        };
        model::thread other(visit);
        visit();
        other.join();
        MODEL_REQUIRE(seat.is_free());
        model::record(std::to_string(d.visits));
    };
    model::check("two in turn", two);
    CHECK(model::outcomes({}, two) == "1 2");
}

TEST_CASE("driver_lock: a leaver sees the sleeper that found the driver taken, or is seen by it") {
    model::check("leave, sleep beside it", [] {
        quiet_driver d;
        bide::detail::basic_driver_lock<platform> seat(&d);
        bide::basic_idle<platform> idle(2);
        unsigned woken = idle.none;
        bool taken = false;
        MODEL_REQUIRE(seat.try_enter() == &d);
        model::thread sleeping([&] {
            idle.announce(1, false, false);
            taken = seat.try_enter() != nullptr;
        });
        seat.leave();
        if (seat.is_free()) {
            woken = idle.wake_unless_timed();
        }
        sleeping.join();
        MODEL_REQUIRE(taken || woken == 1);
    });
}

using timer_leader = bide::detail::basic_timer_leader<platform>;

constexpr std::int64_t never = timer_leader::never;

// When the next timer of a queue is due.
struct schedule {
    timer_leader leader;
    atomic<std::int64_t> next{never};

    // Returns true if no sleeper wakes in time: a worker must be woken.
    bool add(std::int64_t t) noexcept {
        next.store(t, std::memory_order_seq_cst);
        return leader.wakes_after(t);
    }
    void keep(std::int64_t& mine) noexcept {
        leader.lead(mine, [this]() noexcept { return next.load(std::memory_order_seq_cst); });
    }
};

TEST_CASE("timer_leader: the leader sleeps until a nearer timer, or its adder wakes a worker") {
    const auto one = [](std::int64_t before) {
        schedule s;
        s.add(before);
        bool missed = false;
        model::thread adding([&] { missed = s.add(5); });
        std::int64_t mine = never;
        s.keep(mine);
        adding.join();
        MODEL_REQUIRE(missed || mine == 5);
        MODEL_REQUIRE(mine == 5 || mine == before);
    };
    model::check("add, keep", [=] { one(never); });
    model::check("add, keep a later one", [=] { one(9); });
}

TEST_CASE("timer_leader: a leader that resigns sees a timer that relied on it") {
    model::check("add, resign, keep", [] {
        schedule s;
        std::int64_t mine = never;
        s.add(5);
        s.keep(mine);
        s.next.store(never, std::memory_order_relaxed); // fired
        bool missed = false;
        schedule& shared = s;
        model::thread adding([&] { missed = shared.add(9); });
        MODEL_REQUIRE(s.leader.resign(mine));
        MODEL_REQUIRE(!s.leader.resign(mine));
        s.keep(mine);
        adding.join();
        MODEL_REQUIRE(missed || mine == 9);
    });
}

// A worker and its blocked thread. Other threads look for a replacement, which is there or not.
// Only the owner uses the worker.
void passed_on(int passers, bool there) {
    bide::detail::basic_worker_ownership<platform> worker_ownership;
    int threads[2]{}; // for their addresses
    var<int> used{0};
    var<int> tries{0};
    atomic<bool> is_replaced{false};
    const auto pass = [&] {
        const bool passed = worker_ownership.transfer([&] {
            tries = tries + 1;
            return there;
        });
        if (passed) {
            is_replaced.store(true, std::memory_order_relaxed);
            worker_ownership.begin(&threads[1]);
            used = used + 1;
        }
    };
    worker_ownership.begin(&threads[0]);
    model::thread first(pass);
    used = used + 1;
    worker_ownership.block(&threads[0]);
    if (passers == 2) {
        pass();
    }
    const bool mine = worker_ownership.unblock(&threads[0]);
    if (mine) {
        used = used + 1;
        MODEL_REQUIRE(there ? tries == 0 : tries <= passers);
        MODEL_REQUIRE(!is_replaced.load(std::memory_order_relaxed));
    }
    first.join();
    MODEL_REQUIRE(used == 2);
    model::record(mine ? "mine" : "passed");
}

TEST_CASE("worker_ownership: a blocked worker is transferred once, or its thread keeps it") {
    model::check("one looks for a replacement", [] { passed_on(1, true); });
    model::check("one looks, no replacement", [] { passed_on(1, false); });
    model::check("two look for a replacement", [] { passed_on(2, true); });
    model::check("two look, no replacement", [] { passed_on(2, false); });
    CHECK(model::outcomes({}, [] { passed_on(1, true); }) == "mine passed");
    CHECK(model::outcomes({}, [] { passed_on(1, false); }) == "mine");
}

TEST_CASE(
    "pool: a blocked worker is transferred by its thread or by the last sleeper that leaves") {
    // Worker 0 blocks. Worker 1 sleeps, and is woken by a push, or wakes by itself.
    const auto one = [](bool pushed) {
        bide::basic_idle<platform> idle(2);
        bide::detail::basic_worker_ownership<platform> worker_ownership;
        parker bed;
        int threads[2]{};
        var<int> used{0};
        atomic<int> passed{0};
        const auto pass = [&] {
            worker_ownership.transfer([&] {
                used = used + 1;
                passed.fetch_add(1, std::memory_order_relaxed);
                return true;
            });
        };
        idle.announce(1, false, false);
        worker_ownership.begin(&threads[0]);
        model::thread waking([&] {
            if (!pushed) {
                MODEL_REQUIRE(idle.retract(1));
            } else if (idle.wake_one() == 1) {
                bed.unpark();
            }
        });
        model::thread woken([&] {
            if (pushed) {
                bed.park();
            } else {
                waking.join();
            }
            MODEL_REQUIRE(idle.end_search(false) == idle.none);
            if (idle.needs_replacement()) {
                pass();
            }
        });
        used = used + 1;
        worker_ownership.block(&threads[0]);
        if (idle.add_blocked(1) == 0) {
            pass();
        }
        waking.join();
        woken.join();
        MODEL_REQUIRE(passed.load(std::memory_order_relaxed) == 1);
    };
    model::check("block, the last sleeper goes", [=] { one(false); });
    model::check("block, the last sleeper is woken", [=] { one(true); });
}

TEST_CASE("worker: the end of a task is counted after the tasks that it spawned") {
    // A task that is counted spawns another one and ends. The other one ends elsewhere.
    model::check("spawned, completed", [] {
        struct counts {
            bide::detail::basic_counter<platform> spawned;
            bide::detail::basic_counter<platform> completed;
        };
        counts c[2];
        c[0].spawned.add(1);
        atomic<bool> handed{false};
        model::thread first([&] {
            c[0].spawned.add(1);
            handed.store(true, std::memory_order_release);
            c[0].completed.add(1);
        });
        model::thread second([&] {
            if (handed.load(std::memory_order_acquire)) {
                c[1].completed.add(1);
            }
        });
        const std::uint64_t ended = c[0].completed.read() + c[1].completed.read();
        const std::uint64_t spawned = c[0].spawned.read() + c[1].spawned.read();
        MODEL_REQUIRE(ended != spawned || ended == 2);
        first.join();
        second.join();
    });
}

// ---- Two owners and a worker that goes to sleep

struct no_threads : bide::detail::basic_pool_owner<platform> {
    bool replace(bide::detail::basic_worker<platform>&) noexcept override { return false; }
    void found_nothing() noexcept override {}
};

// Worker 1 takes half of what worker 0 has more. Meanwhile worker 0 runs what it has left, and worker 2
// goes to sleep. A job that is in neither ring while worker 2 looks is not left to a sleeping worker.
void even_out() {
    no_threads owner;
    bide::detail::basic_pool<platform> all(owner, {3, true, nullptr, 0});
    auto& longer = all.workers()[0];
    auto& shorter = all.workers()[1];
    bide::runnable jobs[4];
    for (bide::runnable& r : jobs) {
        all.push_ring(longer, r);
    }
    std::uint64_t seed = shorter.random;
    while (shorter.next_random() % 3 != 0) {
        seed = shorter.random;
    }
    shorter.random = seed; // it chooses worker 0
    atomic<int> ran{0};
    bool sees = false;
    model::thread owning([&] {
        for (int i = 0; i < 2; ++i) {
            ran.fetch_add(longer.ring.pop() != nullptr ? 1 : 0, std::memory_order_relaxed);
        }
    });
    model::thread sleeping([&] {
        all.idle().announce(2, false, false);
        sees = all.sees_work(all.workers()[2], false);
    });
    ran.fetch_add(all.balance(shorter) != nullptr ? 1 : 0, std::memory_order_relaxed);
    owning.join();
    sleeping.join();
    const int left = static_cast<int>(longer.ring.size() + shorter.ring.size());
    MODEL_REQUIRE(ran.load(std::memory_order_relaxed) + left == 4);
    MODEL_REQUIRE(shorter.ring.size() == 0 || sees || all.idle().sleepers() == 0);
}

TEST_CASE(
    "pool: a worker that goes to sleep sees a job that moves between two rings, or is woken") {
    model::check("two owners even out, a worker goes to sleep", even_out);
}

using pool = bide::detail::basic_pool<platform>;
using thread_queue = pool::thread_queue;

class crew;
struct bell;

// What a thread of a crew is.
struct home {
    thread_queue* of = nullptr;
};

struct job : bide::runnable {
    crew* of = nullptr;
    var<int> pushed{0};
    var<int> ran{0};
    thread_queue* only = nullptr; // runs on the thread of this queue
    // What it does:
    int pushes = 0;                      // pushes so many of the jobs after it, on its worker
    const atomic<bool>* looks = nullptr; // waits until this is true
    bell* adds = nullptr;                // adds this timer to the worker that runs it
    job* yields = nullptr;               // queues this job behind the others of its worker
    job* forks = nullptr;                // forks this job as a child
    parker* sleeps = nullptr;            // blocks its thread until this has a token
    parker* wakes = nullptr;             // leaves a token
    job* awaits = nullptr;               // pushes this job, and runs it inside if it is still there
    job* waits = nullptr;                // pushes this job if its wait for `awaits` begins
    atomic<bool> done{false};

    void execute() noexcept;
};

// A pool with a thread for each worker that is started, and one substitute. A thread that has lost
// its worker waits for another. The pool ends when so many jobs have run and timers have fired.
class crew final : pool::owner {
public:
    explicit crew(int jobs, const pool::options& wanted)
        : all(*this, wanted), workers_(wanted.workers), left_(jobs) {}

    void start(unsigned n) {
        threads_.emplace_back([this, n] {
            auto& mine = all.workers()[n].pinned;
            platform::local<home>().of = &mine;
            all.run(all.workers()[n], &mine);
            for (;;) {
                if (pool::worker* const blocked = all.run_pinned(mine)) {
                    all.run(*blocked, &mine);
                } else if (begins_to_wait(n)) {
                    work_on(n);
                } else {
                    break;
                }
            }
        });
    }
    void start_stand_in() {
        begins_to_wait(workers_); // it is there as soon as a worker blocks
        threads_.emplace_back([this] {
            do {
                work_on(workers_);
            } while (begins_to_wait(workers_));
        });
    }

    void prepare(job& j) noexcept {
        j.of = this;
        j.run = bide::waker([](void* p) noexcept { static_cast<job*>(p)->execute(); }, &j);
        j.pushed = 1;
    }
    void push(job& j) noexcept {
        prepare(j);
        all.push(j);
    }
    void push(bide::task_priority of, job& j) noexcept {
        prepare(j);
        all.push(of, j);
    }
    void push_pinned(unsigned to, job& j) noexcept {
        prepare(j);
        j.only = &all.workers()[to].pinned;
        all.push_pinned(all.workers()[to], j);
    }
    void push_local(pool::worker& at, job& j) noexcept {
        prepare(j);
        all.push_local(at, j);
    }

    // A job has run, or a timer fired.
    void one_less() noexcept {
        if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            all.stop();
            const unsigned waiting = waiting_.exchange(over, std::memory_order_acq_rel);
            for (unsigned n = 0; n <= workers_; ++n) {
                if ((waiting >> n & 1) != 0) {
                    seats_[n].bed.unpark();
                }
            }
        }
    }

    // When all threads have ended.
    void check_end() {
        threads_.clear();
        MODEL_REQUIRE(all.idle().sleepers() == 0);
        MODEL_REQUIRE(all.idle().searching() == 0);
        MODEL_REQUIRE(!all.idle().needs_replacement());
        MODEL_REQUIRE(all.take_unrun() == nullptr);
    }

    pool all;

private:
    struct seat {
        parker bed;
        atomic<pool::worker*> gets{nullptr};
    };
    static constexpr unsigned over = 1U << 31;

    // Returns false at the end.
    bool begins_to_wait(unsigned n) noexcept {
        if ((waiting_.fetch_or(1U << n, std::memory_order_acq_rel) & over) != 0) {
            return false;
        }
        all.replace_blocked();
        return true;
    }
    void work_on(unsigned n) noexcept {
        seat& mine = seats_[n];
        mine.bed.park();
        // The token may be for a pinned job: then the thread no longer waits.
        const unsigned was = waiting_.fetch_and(~(1U << n), std::memory_order_acq_rel);
        if ((was & (over | 1U << n)) != 0) {
            return;
        }
        pool::worker* w = nullptr;
        while ((w = mine.gets.exchange(nullptr, std::memory_order_acq_rel)) == nullptr) {
            mine.bed.park();
        }
        all.run(*w, platform::local<home>().of, n == workers_);
    }

    // The first thread that waits.
    bool assign(pool::worker& w, unsigned from) noexcept {
        unsigned seen = waiting_.fetch_or(0, std::memory_order_relaxed); // not an old value
        for (;;) {
            unsigned n = 0;
            while (n < from && (seen >> n & 1) == 0) {
                ++n;
            }
            if (n == from || (seen & over) != 0) {
                return false;
            }
            if (waiting_.compare_exchange_strong(seen, seen & ~(1U << n), std::memory_order_acq_rel,
                                                 std::memory_order_relaxed)) {
                seats_[n].gets.store(&w, std::memory_order_release);
                seats_[n].bed.unpark();
                return true;
            }
        }
    }

    bool replace(pool::worker& w) noexcept override { return assign(w, workers_ + 1); }
    bool request_replacement() noexcept override {
        if ((waiting_.fetch_or(0, std::memory_order_acq_rel) & ~over) != 0) { // since
            all.replace_blocked();
        }
        return true;
    }
    bool hand_to_idle_thread(pool::worker& w) noexcept override { return assign(w, workers_); }
    void wake_thread(unsigned n) noexcept override { seats_[n].bed.unpark(); }
    void found_nothing() noexcept override {}

    const unsigned workers_;
    atomic<int> left_;
    atomic<unsigned> waiting_{0}; // a bit for each seat; over: no thread waits any more
    seat seats_[4];               // one for each worker's own thread, and one for the substitute
    std::vector<model::thread> threads_;
};

constexpr deadline now = deadline::at_ns(0); // past already
constexpr deadline soon = deadline::at_ns(500'000);
constexpr deadline later = deadline::at_ns(900'000);

struct bell : model::timed {
    bell(crew& of, deadline due)
        : timed(due, [this, &of] {
              rung = rung + 1;
              done.store(true, std::memory_order_release);
              if (wakes != nullptr) {
                  wakes->unpark();
              }
              of.one_less();
          }) {}

    var<int> rung{0};
    parker* wakes = nullptr; // leaves a token
    atomic<bool> done{false};
};

// The wait of a job for the job that it runs inside. Both lie in the frame of execute().
struct inside : bide::detail::inner_job {
    explicit inside(job& whose)
        : inner_job{bide::waker(
              [](void* self) noexcept {
                  auto& me = *static_cast<inside*>(self);
                  me.waits = me.waits + 1;
                  if (job* const next = me.of.waits) {
                      me.of.of->push_local(*me.of.of->all.current_worker(), *next);
                  }
              },
              this)},
          of(whose) {}

    job& of;
    var<int> waits{0};
};

void job::execute() noexcept {
    MODEL_REQUIRE(pushed == 1);
    MODEL_REQUIRE(only == nullptr || only == platform::local<home>().of);
    crew& c = *of;
    for (int i = 1; i <= pushes; ++i) {
        c.push_local(*c.all.current_worker(), this[i]);
    }
    if (wakes != nullptr) {
        wakes->unpark();
    }
    while (looks != nullptr && !looks->load(std::memory_order_acquire)) {
        platform::pause();
    }
    if (yields != nullptr) {
        c.prepare(*yields);
        c.all.yield(*c.all.current_worker(), *yields, nullptr);
    }
    if (forks != nullptr) {
        bide::detail::run_list one;
        c.prepare(*forks);
        one.push(*forks);
        c.all.fork(*c.all.current_worker(), one);
    }
    if (adds != nullptr) {
        c.all.current_worker()->timers.add(*adds);
    }
    if (awaits != nullptr) {
        c.push_local(*c.all.current_worker(), *awaits);
        inside wait(*this);
        if (bide::worker_local<platform>::get().host->run_inside(*awaits, wait)) {
            MODEL_REQUIRE(awaits->ran == 1);
            MODEL_REQUIRE(wait.waits == (awaits->sleeps != nullptr ? 1 : 0));
        } else {
            MODEL_REQUIRE(wait.waits == 0);
        }
    }
    if (sleeps != nullptr) {
        sleeps->park();
    }
    ran = ran + 1;
    done.store(true, std::memory_order_release);
    c.one_less();
}

pool::options workers(unsigned n, bool steal = true) { return {n, steal, nullptr, 0}; }

// Jobs, and the crew that runs them. It ends when they have run, and so many timers have fired.
struct shift {
    explicit shift(const pool::options& of, int jobs, int timers = 0)
        : c(jobs + timers, of), count(jobs), threads(of.workers) {}

    void start() {
        for (unsigned i = 0; i < threads; ++i) {
            c.start(i);
        }
    }
    void start_with_stand_in() {
        start();
        c.start_stand_in();
    }
    // The first job blocks its thread until the second one has run.
    void block(int first, int until) noexcept {
        all[first].sleeps = &tokens[first];
        all[until].wakes = &tokens[first];
    }
    void await(int job) noexcept {
        while (!all[job].done.load(std::memory_order_acquire)) {
            platform::pause();
        }
    }
    pool::worker& worker(unsigned n) noexcept { return c.all.workers()[n]; }
    void push(int job) noexcept { c.push(all[job]); }
    void push_pinned(unsigned to, int job) noexcept { c.push_pinned(to, all[job]); }
    void push_local(unsigned at, int job) noexcept { c.push_local(worker(at), all[job]); }
    void end() {
        c.check_end();
        for (int i = 0; i < count; ++i) {
            MODEL_REQUIRE(all[i].ran == 1);
        }
    }

    crew c;
    const int count;
    const unsigned threads;
    parker tokens[2];
    job all[3];
};

// How a job is pushed from outside: for any worker, of a class, or for one thread.
using way = std::function<void(crew&, job&)>;
const way any = [](crew& c, job& j) { c.push(j); };
const way low = [](crew& c, job& j) { c.push(bide::task_priority::low, j); };
const way high = [](crew& c, job& j) { c.push(bide::task_priority::high, j); };
way pinned(unsigned to) {
    return [to](crew& c, job& j) { c.push_pinned(to, j); };
}

void from_outside(const pool::options& of, std::initializer_list<way> ways) {
    shift s(of, static_cast<int>(ways.size()));
    s.start();
    job* next = s.all;
    for (const way& push : ways) {
        push(s.c, *next++);
    }
    s.end();
}

// Worker 0 is the body, which pushes and never looks: worker 1 has to run all jobs.
void pushed_beside(int jobs) {
    shift s(workers(2), jobs);
    s.c.start(1);
    for (int i = 0; i < jobs; ++i) {
        s.push_local(0, i);
    }
    s.end();
}

// A job pushes others and runs until the last of them has run.
void pushes_and_goes_on(int others, std::int64_t nap = 0) {
    shift s({2, true, nullptr, nap}, others + 1);
    s.all[0].pushes = others;
    s.all[0].looks = &s.all[others].done;
    s.push(0);
    s.start();
    s.end();
}

TEST_CASE("pool: an injected job is run, whichever worker sleeps") {
    model::check("one worker, one job", [] { from_outside(workers(1), {any}); });
    check_at_random("two workers, one job, at random", [] { from_outside(workers(2), {any}); });
    check_at_random("two workers, two jobs, at random",
                    [] { from_outside(workers(2), {any, any}); });
}

TEST_CASE("pool: another worker runs what a busy worker pushes") {
    model::check("pushed into a LIFO slot", [] { pushed_beside(1); });
    check_at_random("pushed into a LIFO slot and a ring, at random", [] { pushed_beside(2); });
    check_at_random("a job pushes and goes on, at random", [] { pushes_and_goes_on(1); });
    check_at_random("a job pushes two and goes on, at random", [] { pushes_and_goes_on(2); });
}

TEST_CASE(
    "pool: a timed sleeper takes a job that stays in a slot, and sleeps when no worker runs") {
    check_at_random("two workers that nap, two jobs, at random", 2,
                    [] { from_outside({2, true, nullptr, 100'000}, {any, any}); });
    check_at_random("a job pushes and goes on, the other one naps, at random", 2,
                    [] { pushes_and_goes_on(1, 100'000); });
}

// Worker 0 has run as many jobs from its slot as it may in a row. One job is left there, and the
// injector has one that both workers want: the worker that does not get it looks at the slot again.
TEST_CASE("pool: a worker does not sleep while its own slot is full") {
    check_at_random("a slot, without stealing, at random", [] {
        shift s(workers(2, false), 2);
        s.push_local(0, 0);
        s.worker(0).lifo_streak = 3;
        s.push(1);
        s.start();
        s.end();
    });
}

// A job awaits the one that it has pushed, which runs inside of it, or another worker takes it.
void awaits_its_job(unsigned n, std::int64_t nap = 0) {
    shift s({n, true, nullptr, nap}, 2);
    s.all[0].awaits = &s.all[1];
    s.push(0);
    s.start();
    s.end();
}

// The awaited job blocks until a job has run that the first one pushes when its wait begins. So the
// wait begins before the thread blocks, and another thread finds that job.
void awaits_a_job_that_blocks(unsigned n) {
    shift s(workers(n), 3);
    s.all[0].awaits = &s.all[1];
    s.all[0].waits = &s.all[2];
    s.block(1, 2);
    s.push(0);
    s.start_with_stand_in();
    s.end();
}

TEST_CASE(
    "pool: an awaited job runs inside of the one that awaits it, or another worker takes it") {
    model::check("one worker", [] { awaits_its_job(1); });
    check_at_random("two workers, at random", [] { awaits_its_job(2); });
    check_at_random("two workers that nap, at random", 2, [] { awaits_its_job(2, 100'000); });
    check_at_random("one worker, the awaited job blocks, at random",
                    [] { awaits_a_job_that_blocks(1); });
}

TEST_CASE("pool: stop() ends all workers, in every state") {
    const auto stopped = [](unsigned n) {
        crew c(0, workers(n));
        var<int> news{0};
        std::vector<model::thread> threads;
        for (unsigned i = 0; i < n; ++i) {
            threads.emplace_back([&c, &news, i] {
                c.all.run(c.all.workers()[i]);
                MODEL_REQUIRE(news == 1); // what came before
            });
        }
        news = 1;
        c.all.stop();
        threads.clear();
        c.check_end();
    };
    model::check("stop one worker", [=] { stopped(1); });
    check_at_random("stop two workers, at random", [=] { stopped(2); });
}

// One of two workers has a thread, and sleeps for a timer or for nothing. An external thread adds
// an earlier timer, or the only one, to the other worker's queue.
void nearer_timer(bool keeps) {
    shift s(workers(2), 0, 1);
    bell far(s.c, later);
    bell near(s.c, now);
    if (keeps) {
        s.worker(0).timers.add(far);
    }
    s.c.start(0);
    s.worker(1).timers.add(near);
    s.end();
    MODEL_REQUIRE(near.rung == 1 && far.rung == 0);
    MODEL_REQUIRE(!keeps || s.worker(0).timers.cancel(far));
}

// A later timer: the thread that adds it relies on the sleeper.
void later_timer() {
    shift s(workers(2), 0, 2);
    bell near(s.c, soon);
    bell far(s.c, later);
    s.worker(0).timers.add(near);
    s.c.start(0);
    s.worker(1).timers.add(far);
    s.end();
    MODEL_REQUIRE(near.rung == 1 && far.rung == 1);
}

// The timer leader may run a job, which continues until the timer has fired: the other worker then
// sleeps for it.
void kept_for_a_job(bool from_outside) {
    shift s(workers(2), 1, 1);
    bell b(s.c, soon);
    s.all[0].looks = &b.done;
    s.worker(0).timers.add(b);
    if (!from_outside) {
        s.push(0);
    }
    s.start();
    if (from_outside) {
        s.push(0);
    }
    s.end();
    MODEL_REQUIRE(b.rung == 1);
}

TEST_CASE("pool: an earlier timer reaches a sleeping worker", "[long]") {
    model::check("the only timer", [] { nearer_timer(false); });
    model::check_at_random_or_all("a nearer timer", {.runs = 1'000}, [] { nearer_timer(true); });
    model::check_at_random_or_all("a later timer", {.runs = 1'000, .timeouts = 2}, later_timer);
}

TEST_CASE("pool: a worker sleeps for the timers while another one runs") {
    check_at_random("a job while a timer is kept, at random", 2, [] { kept_for_a_job(true); });
    check_at_random("a job before a timer is kept, at random", 2, [] { kept_for_a_job(false); });
}

// A job blocks its thread until another job has run. What was queued behind it is run by the other
// workers, or by the substitute.
void blocked(const pool::options& of, bool pushed_by_it) {
    shift s(of, 2);
    s.block(0, 1);
    s.all[0].pushes = pushed_by_it ? 1 : 0;
    s.start_with_stand_in();
    s.push(0);
    if (!pushed_by_it) {
        s.push(1);
    }
    s.end();
}

// A job adds a timer that is due, and blocks its thread until the timer has fired.
void blocked_for_a_timer(unsigned n) {
    shift s(workers(n), 1, 1);
    bell b(s.c, now);
    b.wakes = &s.tokens[0];
    s.all[0].adds = &b;
    s.all[0].sleeps = &s.tokens[0];
    s.start_with_stand_in();
    s.push(0);
    s.end();
    MODEL_REQUIRE(b.rung == 1);
}

// A job blocks its thread until the job that its worker has behind the others has run, or its child.
void blocked_for_its_worker(const pool::options& of, bool forks) {
    shift s(of, 2);
    (forks ? s.all[0].forks : s.all[0].yields) = &s.all[1];
    s.block(0, 1);
    s.start_with_stand_in();
    s.push(0);
    s.end();
}

// One of two workers is blocked. The other one wakes and runs a job that continues until a third
// job has run: the first worker has to run that one.
void blocked_before_the_last() {
    shift s(workers(2), 3);
    s.block(0, 2);
    s.all[1].looks = &s.all[2].done;
    s.start_with_stand_in();
    for (const int i : {0, 1, 2}) {
        s.push(i);
    }
    s.end();
}

// Each of two workers gets a job that blocks. The third job wakes them both.
void both_blocked() {
    shift s(workers(2), 3);
    s.block(0, 1);
    s.block(1, 2);
    s.start_with_stand_in();
    for (const int i : {0, 1, 2}) {
        s.push(i);
    }
    s.end();
}

TEST_CASE("pool: a worker that blocks leaves its timers, children and last job to another thread") {
    check_at_random("one worker, blocked for a job that has yielded, at random",
                    [] { blocked_for_its_worker(workers(1), false); });
    check_at_random("two workers, one blocked for a job that has yielded, at random",
                    [] { blocked_for_its_worker(workers(2), false); });
    check_at_random("two workers, one blocked for a child, at random",
                    [] { blocked_for_its_worker(workers(2), true); });
    check_at_random("two workers, one blocked for a child, without stealing, at random",
                    [] { blocked_for_its_worker(workers(2, false), true); });
    check_at_random("one worker, blocked for a timer, at random", [] { blocked_for_a_timer(1); });
    check_at_random("two workers, one blocked for a timer, at random",
                    [] { blocked_for_a_timer(2); });
}

TEST_CASE("pool: a blocked worker is replaced if no other worker sleeps") {
    check_at_random("one worker, blocked, at random", [] { blocked(workers(1), true); });
    check_at_random("one worker, blocked, a job from outside, at random",
                    [] { blocked(workers(1), false); });
    check_at_random("two workers, one blocked, at random", [] { blocked(workers(2), true); });
    check_at_random("two workers, one blocked, without stealing, at random",
                    [] { blocked(workers(2, false), true); });
    check_at_random("two workers, one blocked before the other, at random",
                    blocked_before_the_last);
    check_at_random("two workers, both blocked, at random", both_blocked);
}

// A pinned job runs until a job for any worker has run, which is pushed beside it: another worker has
// to run that one.
void pinned_job_beside_another() {
    shift s(workers(2), 2);
    s.all[0].looks = &s.all[1].done;
    s.start();
    s.push_pinned(0, 0);
    s.push(1);
    s.end();
}

// Worker 1 is the body, which pushes and never looks. A worker that is woken for that job may take a pinned
// job instead, which continues until the other job has run: a third worker has to run that one. Before that,
// the first one may have been woken for a pinned job.
void pinned_job_in_place_of_another(bool after_a_pinned_one) {
    shift s(workers(3), after_a_pinned_one ? 3 : 2);
    s.all[1].looks = &s.all[0].done;
    s.c.start(0);
    s.c.start(2);
    if (after_a_pinned_one) {
        s.push_pinned(0, 2);
        s.await(2);
    }
    s.push_local(1, 0);
    s.push_pinned(0, 1);
    s.end();
}

// A pinned job blocks its thread. The substitute runs the worker, and wakes the thread. The next pinned
// job comes at any time: while the thread has its worker, waits for one, or gets one.
void pinned_to_a_blocked_thread() {
    shift s(workers(1), 3);
    s.block(0, 1);
    s.start_with_stand_in();
    s.push_pinned(0, 0);
    s.push(1);
    s.push_pinned(0, 2);
    s.end();
}

TEST_CASE("pool: high and low jobs are run, whichever worker sleeps") {
    check_at_random("one worker, two classes, at random",
                    [] { from_outside(workers(1), {low, high}); });
    check_at_random("two workers, two classes, at random",
                    [] { from_outside(workers(2), {low, high}); });
}

TEST_CASE("pool: a pinned job is run by its thread, whichever worker sleeps or is lost", "[long]") {
    model::check_at_random_or_all("one worker, one pinned job", {.runs = 1'000},
                                  [] { from_outside(workers(1), {pinned(0)}); });
    check_at_random("two workers, two pinned jobs, at random",
                    [] { from_outside(workers(2), {pinned(0), pinned(1)}); });
    check_at_random("two workers, a pinned job, a job, at random",
                    [] { from_outside(workers(2), {pinned(1), any}); });
    check_at_random("a pinned job until another job has run, at random", pinned_job_beside_another);
    check_at_random(
        "a pinned job in place of another job, at random", 0,
        [] { pinned_job_in_place_of_another(false); }, 300);
    check_at_random(
        "a pinned job, then one in place of another job, at random", 0,
        [] { pinned_job_in_place_of_another(true); }, 300);
    check_at_random("pinned to a blocked thread, at random", pinned_to_a_blocked_thread);
}

TEST_CASE("pool: a wake reaches the worker in the driver, and another worker enters it") {
    check_at_random("one worker in the driver, at random", [] {
        quiet_driver d;
        from_outside({1, true, &d, 0}, {any});
    });
    check_at_random("two workers and a driver, at random", [] {
        quiet_driver d;
        from_outside({2, true, &d, 0}, {any, any});
    });
    // The worker in the driver may run the job, which continues until another worker is in the driver.
    check_at_random("a job while a worker is in the driver, at random", [] {
        quiet_driver d;
        shift s({2, true, &d, 0}, 1);
        s.all[0].looks = &d.occupied;
        s.start();
        s.push(0);
        s.end();
    });
}

} // namespace
