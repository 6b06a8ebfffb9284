#include <bide/core/executor.hpp>
#include <bide/core/parker.hpp>
#include <bide/core/waker.hpp>
#include <bide/sched/detail/worker.hpp>
#include <bide/sched/detail/worker_threads.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <model/at_random.hpp>
#include <model/check.hpp>
#include <model/thread_support.hpp>
#include <support/test.hpp>

// The threads of a scheduler, with a pool whose only worker runs its jobs in order. A blocked worker
// gets another thread: one that has lost its worker, a new one, or the next one that becomes free.
// One thread at a time runs the worker. finish() ends every thread, whatever it waits for.

namespace {

using namespace std::chrono_literals;
// The inner locks have a model of their own.
using platform = model::platform_without_lock_sleep;
using parker = bide::basic_parker<platform>;
template <class T> using var = platform::var<T>;
template <class T> using atomic = platform::atomic<T>;

class small_pool;
using threads_type = bide::detail::basic_worker_threads<platform, small_pool, model::os_thread>;
using current = bide::detail::basic_current_scheduler<platform>;

// What pool.hpp and blocked_workers.hpp do with the threads, for one worker that never sleeps in
// the idle word.
class small_pool {
public:
    struct nothing_pinned {};
    struct worker {
        const unsigned index = 0;
        bide::detail::basic_worker_ownership<platform> ownership;
        nothing_pinned pinned;
    };
    struct thread_role {
        const small_pool* pool = nullptr;
        worker* owned = nullptr;
        nothing_pinned* pinned = nullptr;
        static thread_role& here() noexcept { return platform::local<thread_role>(); }
    };
    using job = std::function<void(small_pool&)>;

    small_pool(std::initializer_list<job> jobs, unsigned pushed)
        : jobs_(jobs), workers_(1), pushed_(pushed), left_(static_cast<int>(jobs.size())) {}

    std::deque<worker>& workers() noexcept { return workers_; }

    void run(worker& w, nothing_pinned* = nullptr) noexcept {
        thread_role& here = thread_role::here();
        here = {this, &w};
        w.ownership.begin(&here);
        while (here.owned == &w) {
            if (next_ < pushed_.load(std::memory_order_acquire)) {
                const unsigned mine = next_;
                next_ = mine + 1;
                jobs_[mine](*this);
                if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
                    no_job_left.unpark();
                }
            } else if (stopped_.load(std::memory_order_acquire)) {
                break;
            } else if (current::here().is_substitute && threads->hand_to_idle_thread(w)) {
                break;
            } else {
                const unsigned done = next_;
                while (done == pushed_.load(std::memory_order_relaxed) &&
                       !stopped_.load(std::memory_order_relaxed)) {
                    platform::pause();
                }
            }
        }
        here = {};
    }
    worker* run_pinned(nothing_pinned&) noexcept { return nullptr; }
    void wake(worker&) noexcept {} // no worker sleeps

    void replace_blocked() noexcept {
        if (blocked_.load(std::memory_order_acquire) != 0) {
            replace(workers_[0]);
        }
    }
    worker* take_blocked() noexcept {
        const auto take = [this] {
            blocked_.fetch_sub(1, std::memory_order_relaxed);
            return true;
        };
        return blocked_.load(std::memory_order_acquire) != 0 && workers_[0].ownership.transfer(take)
                   ? &workers_[0]
                   : nullptr;
    }

    // Blocks the job that runs here.
    void sleep(parker& until) noexcept {
        thread_role& here = thread_role::here();
        worker& w = workers_[0];
        w.ownership.block(&here);
        blocked_.fetch_add(1, std::memory_order_release);
        if (replace(w)) {
            here.owned = nullptr;
        }
        until.park();
        if (here.owned == nullptr) {
            return;
        }
        if (w.ownership.unblock(&here)) {
            blocked_.fetch_sub(1, std::memory_order_relaxed);
        } else {
            here.owned = nullptr;
        }
    }

    void push_next() noexcept { pushed_.fetch_add(1, std::memory_order_release); }
    void stop() noexcept { stopped_.store(true, std::memory_order_release); }

    threads_type* threads = nullptr;
    parker no_job_left;

private:
    bool replace(worker& w) noexcept {
        bool found_none = false;
        const bool replaced = w.ownership.transfer([&] {
            blocked_.fetch_sub(1, std::memory_order_relaxed);
            found_none = !threads->replace(w);
            if (found_none) {
                blocked_.fetch_add(1, std::memory_order_release);
            }
            return !found_none;
        });
        if (found_none) {
            MODEL_REQUIRE(threads->request_replacement());
        }
        return replaced;
    }

    std::vector<job> jobs_;
    std::deque<worker> workers_;
    var<unsigned> next_{0}; // only the thread that owns the worker
    atomic<unsigned> pushed_;
    atomic<int> left_; // jobs that have not ended
    atomic<int> blocked_{0};
    atomic<bool> stopped_{false};
};

bide::scheduler_options with(unsigned blocking_threads, std::chrono::milliseconds stay) {
    bide::scheduler_options o;
    o.max_blocking_threads = blocking_threads;
    o.blocking_keep_alive = stay;
    o.name = "";
    return o;
}

// Runs the jobs; the last one leaves the token.
struct crew {
    crew(small_pool& p, bide::scheduler_options wanted) : all(p), threads(nullptr, p, wanted) {
        p.threads = &threads;
    }
    void finish() {
        all.stop();
        threads.finish();
    }
    void run() {
        MODEL_REQUIRE(!threads.start());
        all.no_job_left.park();
        finish();
    }

    small_pool& all;
    threads_type threads;
};

// A runnable for a thread for blocking tasks.
struct posted_call : bide::runnable {
    explicit posted_call(std::function<void()> what) : does(std::move(what)) {
        run =
            bide::waker([](void* self) noexcept { static_cast<posted_call*>(self)->does(); }, this);
    }
    std::function<void()> does;
};

bool post(auto& to, posted_call& what) {
    std::error_code why;
    return to.post_blocking(what, why);
}

// The first job blocks until the second one has run, on another thread.
void blocked(std::chrono::milliseconds stay) {
    parker token;
    var<int> ran{0};
    small_pool p({[&](small_pool& in) { in.sleep(token); },
                  [&](small_pool&) {
                      ran = 1;
                      token.unpark();
                  }},
                 2);
    crew c(p, with(1, stay));
    c.run();
    MODEL_REQUIRE(ran == 1);
}

// Each of two jobs may be the last one: the substitute hands the worker to the thread that is back,
// or ends with it.
void handed_back() {
    parker token;
    parker back;
    var<int> ran{0};
    small_pool p({[&](small_pool& in) {
                      in.sleep(token);
                      back.unpark();
                  },
                  [&](small_pool&) { token.unpark(); }, [&](small_pool&) { ran = 1; }},
                 2);
    crew c(p, with(1, 1ms));
    MODEL_REQUIRE(!c.threads.start());
    back.park();
    p.push_next();
    p.no_job_left.park();
    c.finish();
    MODEL_REQUIRE(ran == 1);
}

// The only thread for blocking tasks has another one when the worker blocks, and ends it at any
// time.
void requested() {
    parker token;
    var<int> ran{0};
    var<int> ran_blocking{0};
    posted_call other([&] { ran_blocking = 1; });
    small_pool p({[&](small_pool& in) { in.sleep(token); },
                  [&](small_pool&) {
                      ran = 1;
                      token.unpark();
                  }},
                 2);
    crew c(p, with(1, 1ms));
    MODEL_REQUIRE(post(c.threads, other));
    c.run();
    MODEL_REQUIRE(ran == 1 && ran_blocking == 1);
}

// The same job blocks twice: the second request may come while the first one is served.
void requested_twice() {
    parker tokens[2];
    var<int> ran{0};
    posted_call other([] {});
    small_pool p({[&](small_pool& in) { in.sleep(tokens[0]); },
                  [&](small_pool& in) {
                      tokens[0].unpark();
                      in.sleep(tokens[1]);
                  },
                  [&](small_pool&) {
                      ran = 1;
                      tokens[1].unpark();
                  }},
                 3);
    crew c(p, with(1, 1ms));
    MODEL_REQUIRE(post(c.threads, other));
    c.run();
    MODEL_REQUIRE(ran == 1);
}

// There is no thread for the worker, until its own thread is back.
void no_thread() {
    var<int> ran{0};
    parker token;
    small_pool p({[&](small_pool& in) { in.sleep(token); }, [&](small_pool&) { ran = 1; }}, 2);
    crew c(p, with(1, 1ms));
    posted_call other([&] { token.unpark(); });
    MODEL_REQUIRE(post(c.threads, other));
    c.run();
    MODEL_REQUIRE(ran == 1);
}

using model::check_at_random;

TEST_CASE("worker_threads: another thread runs a worker that is blocked", "[worker_threads]") {
    check_at_random("blocked, at random", 3'000, [] { blocked(1ms); });
    check_at_random("blocked, a substitute does not stay, at random", 3'000, [] { blocked(0ms); });
    check_at_random("handed back, at random", 3'000, handed_back);
    check_at_random("until its own thread is back, at random", 3'000, no_thread);
}

TEST_CASE("worker_threads: the next thread that becomes free runs a worker that is blocked",
          "[worker_threads]") {
    check_at_random("requested, at random", 3'000, requested);
    check_at_random("requested twice, at random", 3'000, requested_twice);
}

// ---- The list of idle threads, and requests, alone

// A pool whose workers are run by a thread for one step: then the thread has lost its worker. Another
// thread takes a worker that is blocked.
class steps {
public:
    struct nothing_pinned {};
    struct worker {
        unsigned index = 0;
        var<int> runs{0}; // a race if two threads run it
        atomic<bool> blocked{false};
        atomic<int> ended{0}; // of these
        nothing_pinned pinned;
    };
    struct thread_role {
        const steps* pool = nullptr;
        worker* owned = nullptr;
        nothing_pinned* pinned = nullptr;
        static thread_role& here() noexcept { return platform::local<thread_role>(); }
    };
    using threads_type = bide::detail::basic_worker_threads<platform, steps, model::os_thread>;

    explicit steps(unsigned n) : workers_(n) {
        for (unsigned i = 0; i < n; ++i) {
            workers_[i].index = i;
        }
    }
    std::deque<worker>& workers() noexcept { return workers_; }

    void run(worker& w, nothing_pinned* = nullptr) noexcept {
        w.runs = w.runs + 1;
        w.ended.fetch_add(1, std::memory_order_release);
    }
    worker* run_pinned(nothing_pinned&) noexcept { return nullptr; }
    void wake(worker&) noexcept {} // no worker sleeps

    void replace_blocked() noexcept {
        for (worker& w : workers_) {
            replace(w);
        }
    }
    worker* take_blocked() noexcept {
        for (worker& w : workers_) {
            if (take(w)) {
                return &w;
            }
        }
        return nullptr;
    }

    // Waits until the worker was run so many times.
    static void await(const worker& w, int runs) noexcept {
        while (w.ended.load(std::memory_order_acquire) != runs) {
            platform::pause();
        }
        MODEL_REQUIRE(w.runs == runs);
    }

    // The worker's thread has left it.
    void block(worker& w) noexcept {
        w.blocked.store(true, std::memory_order_release);
        replace(w);
    }

    threads_type* threads = nullptr;

    // Returns false if the worker is not blocked.
    static bool take(worker& w) noexcept {
        bool is = true;
        return w.blocked.compare_exchange_strong(is, false, std::memory_order_acq_rel,
                                                 std::memory_order_relaxed);
    }

private:
    void replace(worker& w) noexcept {
        if (take(w) && !threads->replace(w)) {
            w.blocked.store(true, std::memory_order_release);
            static_cast<void>(threads->request_replacement());
        }
    }

    std::deque<worker> workers_;
};

// Each worker is run once by its own thread. Then this thread blocks it, as the last one that has used
// it, and waits until another thread has run it.
void replaced(unsigned workers, unsigned blocking_threads) {
    steps p(workers);
    auto wanted = with(blocking_threads, 1ms);
    steps::threads_type t(nullptr, p, wanted);
    p.threads = &t;
    MODEL_REQUIRE(!t.start());
    steps::worker& w = p.workers()[0];
    steps::await(w, 1);
    p.block(w);
    steps::await(w, 2);
    t.finish();
}

// Two threads that wait are woken for nothing, as by a pinned job that another one has run. Each of them
// is given one worker.
void woken_and_replaced() {
    steps p(2);
    auto wanted = with(0, 1ms);
    steps::threads_type t(nullptr, p, wanted);
    p.threads = &t;
    MODEL_REQUIRE(!t.start());
    for (steps::worker& w : p.workers()) {
        steps::await(w, 1);
        t.wake_thread(w.index);
    }
    for (steps::worker& w : p.workers()) {
        p.block(w);
    }
    for (steps::worker& w : p.workers()) {
        steps::await(w, 2);
    }
    t.finish();
}

// finish() comes while a thread is about to wait.
void finished(unsigned workers) {
    steps p(workers);
    auto wanted = with(1, 1ms);
    steps::threads_type t(nullptr, p, wanted);
    p.threads = &t;
    MODEL_REQUIRE(!t.start());
    t.finish();
    for (steps::worker& w : p.workers()) {
        MODEL_REQUIRE(w.runs == 1);
    }
}

// Two threads request a replacement, and no thread can be started: none relies on the other.
void refused_twice() {
    steps p(1);
    auto wanted = with(1, 1ms);
    steps::threads_type t(nullptr, p, wanted);
    p.threads = &t;
    bool other = true;
    model::thread requesting([&] {
        model::os_thread::starts_left() = 0;
        other = t.request_replacement();
    });
    model::os_thread::starts_left() = 0;
    const bool mine = t.request_replacement();
    requesting.join();
    MODEL_REQUIRE(!mine && !other);
    t.finish();
}

// The only thread for blocking tasks becomes free at any time, also when the worker's own thread is back:
// then it serves the next request.
void served_again() {
    steps p(1);
    auto wanted = with(1, 1ms);
    steps::threads_type t(nullptr, p, wanted);
    p.threads = &t;
    posted_call other([] {});
    MODEL_REQUIRE(post(t, other));
    steps::worker& w = p.workers()[0];
    w.blocked.store(true, std::memory_order_release);
    MODEL_REQUIRE(t.request_replacement());
    const int runs = steps::take(w) ? 0 : 1;
    steps::await(w, runs);
    w.blocked.store(true, std::memory_order_release);
    MODEL_REQUIRE(t.request_replacement());
    steps::await(w, runs + 1);
    t.finish();
}

// It runs a worker for each request.
void served(int requesters) {
    steps p(2);
    auto wanted = with(1, 1ms);
    steps::threads_type t(nullptr, p, wanted);
    p.threads = &t;
    posted_call other([] {});
    MODEL_REQUIRE(post(t, other));
    const auto request = [&](unsigned n) {
        p.workers()[n].blocked.store(true, std::memory_order_release);
        MODEL_REQUIRE(t.request_replacement());
        steps::await(p.workers()[n], 1);
    };
    if (requesters == 2) {
        model::thread second([&] { request(1); });
        request(0);
    } else {
        request(0);
        request(1);
    }
    t.finish();
}

TEST_CASE("worker_threads: finish() ends every thread, whatever it waits for", "[worker_threads]") {
    model::check("finish, one worker", {}, [] { finished(1); });
    check_at_random("finish, two workers, at random", 3'000, [] { finished(2); });
}

TEST_CASE("worker_threads: a worker that is blocked is found by a thread that begins to wait",
          "[worker_threads]") {
    check_at_random("blocked, a thread waits, at random", 3'000, [] { replaced(1, 0); });
    check_at_random("blocked, a thread waits or is started, at random", 3'000,
                    [] { replaced(1, 1); });
    check_at_random("blocked, two threads wait, at random", 3'000, [] { replaced(2, 0); });
    check_at_random("both blocked, two threads wait and are woken, at random", 3'000,
                    woken_and_replaced);
    check_at_random("blocked, two threads wait or one is started, at random", 3'000,
                    [] { replaced(2, 1); });
}

TEST_CASE("worker_threads: a worker that is blocked is found by a thread that begins to wait, with "
          "few preemptions",
          "[worker_threads][.long]") {
    model::check("blocked, a thread waits", {.how = model::options::method::bounded},
                 [] { replaced(1, 0); });
}

TEST_CASE("worker_threads: a request is served, or its caller learns that it is not",
          "[worker_threads]") {
    model::check("two requests, no thread", {}, refused_twice);
    check_at_random("two requests, a worker that is back, at random", 3'000, served_again);
    check_at_random("two requests, one after the other, at random", 3'000, [] { served(1); });
    check_at_random("two requests, at random", 3'000, [] { served(2); });
}

} // namespace
