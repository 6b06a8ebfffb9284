#include <bide/sched/detail/scheduler_core.hpp>
#include <model/at_random.hpp>
#include <model/posted.hpp>
#include <model/thread_support.hpp>
#include <support/test.hpp>

// The threads of a scheduler: the list of idle threads, and requests for a thread, alone. A blocked worker gets
// another thread: one that has lost its worker, a new one, or the next one that becomes free. end_threads() ends every
// thread, whatever it waits for. With a pool: scheduler_model.

namespace {

// The inner locks have a model of their own.
using platform = model::platform_without_lock_sleep;
template <class T> using var = platform::var<T>;
template <class T> using atomic = platform::atomic<T>;

bide::scheduler_options with(unsigned blocking_threads) {
    bide::scheduler_options o;
    o.max_blocking_threads = blocking_threads;
    o.blocking_keep_alive = std::chrono::milliseconds(1);
    o.name = "";
    return o;
}

bool post(auto& to, model::posted& what) {
    std::error_code why;
    return to.blocking().post(what, why);
}

using model::check_at_random;

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
        struct {
            void add(bide::timer&) noexcept {} // a caller that learns of the refusal tries again
        } timers;
    };
    struct thread_role {
        const steps* pool = nullptr;
        worker* owned = nullptr;
        nothing_pinned* pinned = nullptr;
        static thread_role& here() noexcept { return platform::local<thread_role>(); }
    };
    // As basic_pool_owner.
    struct owner {
        virtual bool replace(worker& w) noexcept = 0;
        virtual bool request_replacement() noexcept = 0;
        virtual bool hand_to_idle_thread(worker& w) noexcept = 0;
        virtual bool has_idle_thread() noexcept = 0;
        virtual void wake_thread(unsigned number) noexcept = 0;

    protected:
        ~owner() = default;
    };
    using options = unsigned; // how many workers

    steps(owner& of, options n) : owner_(of), workers_(n) {
        for (unsigned i = 0; i < n; ++i) {
            workers_[i].index = i;
        }
    }
    std::deque<worker>& workers() noexcept { return workers_; }

    void run(worker& w, nothing_pinned* = nullptr, bool = false) noexcept {
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

    // Returns false if the worker is not blocked.
    static bool take(worker& w) noexcept {
        bool is = true;
        return w.blocked.compare_exchange_strong(is, false, std::memory_order_acq_rel,
                                                 std::memory_order_relaxed);
    }

private:
    void replace(worker& w) noexcept {
        if (take(w) && !owner_.replace(w)) {
            w.blocked.store(true, std::memory_order_release);
            static_cast<void>(owner_.request_replacement());
        }
    }

    owner& owner_;
    std::deque<worker> workers_;
};

struct all_threads final : bide::detail::basic_worker_threads<platform, steps, model::os_thread> {
    using basic_worker_threads::basic_worker_threads;
};

// A pool, and its threads.
struct scene {
    scene(unsigned workers, unsigned blocking_threads)
        : wanted(with(blocking_threads)), t(nullptr, wanted, workers) {}

    bide::scheduler_options wanted;
    all_threads t;
    steps& p = t.pool();
};

// Each worker is run once by its own thread. Then this thread blocks it, as the last one that has used
// it, and waits until another thread has run it.
void replaced(unsigned workers, unsigned blocking_threads) {
    scene s(workers, blocking_threads);
    MODEL_REQUIRE(!s.t.start_threads());
    steps::worker& w = s.p.workers()[0];
    steps::await(w, 1);
    s.p.block(w);
    steps::await(w, 2);
    s.t.end_threads();
}

// Two threads that wait are woken for nothing, as by a pinned job that another one has run. Each of them
// is given one worker.
void woken_and_replaced() {
    scene s(2, 0);
    MODEL_REQUIRE(!s.t.start_threads());
    for (steps::worker& w : s.p.workers()) {
        steps::await(w, 1);
        s.t.wake_thread(w.index);
    }
    for (steps::worker& w : s.p.workers()) {
        s.p.block(w);
    }
    for (steps::worker& w : s.p.workers()) {
        steps::await(w, 2);
    }
    s.t.end_threads();
}

// end_threads() comes while a thread is about to wait.
void finished(unsigned workers) {
    scene s(workers, 1);
    MODEL_REQUIRE(!s.t.start_threads());
    s.t.end_threads();
    for (steps::worker& w : s.p.workers()) {
        MODEL_REQUIRE(w.runs == 1);
    }
}

// Two threads request a replacement, and no thread can be started: none relies on the other.
void refused_twice() {
    scene s(1, 1);
    bool other = true;
    model::thread requesting([&] {
        model::os_thread::starts_left() = 0;
        other = s.t.request_replacement();
    });
    model::os_thread::starts_left() = 0;
    const bool mine = s.t.request_replacement();
    requesting.join();
    MODEL_REQUIRE(!mine && !other);
    s.t.end_threads();
}

// The only thread for blocking tasks waits for the worker, and no other one can be started: the caller
// learns that, and tries again.
void refused_beside_a_blocked_thread() {
    scene s(1, 2);
    steps::worker& w = s.p.workers()[0];
    model::posted other([&] { steps::await(w, 1); });
    MODEL_REQUIRE(post(s.t, other));
    w.blocked.store(true, std::memory_order_release);
    model::os_thread::starts_left() = 0;
    MODEL_REQUIRE(!s.t.request_replacement());
    model::os_thread::starts_left() = 1;
    MODEL_REQUIRE(s.t.request_replacement());
    steps::await(w, 1);
    s.t.end_threads();
}

// The only thread for blocking tasks becomes free at any time, also when the worker's own thread is back:
// then it serves the next request.
void served_again() {
    scene s(1, 1);
    model::posted other([] {});
    MODEL_REQUIRE(post(s.t, other));
    steps::worker& w = s.p.workers()[0];
    w.blocked.store(true, std::memory_order_release);
    MODEL_REQUIRE(s.t.request_replacement());
    const int runs = steps::take(w) ? 0 : 1;
    steps::await(w, runs);
    w.blocked.store(true, std::memory_order_release);
    MODEL_REQUIRE(s.t.request_replacement());
    steps::await(w, runs + 1);
    s.t.end_threads();
}

// It runs a worker for each request.
void served(int requesters) {
    scene s(2, 1);
    model::posted other([] {});
    MODEL_REQUIRE(post(s.t, other));
    const auto request = [&](unsigned n) {
        s.p.workers()[n].blocked.store(true, std::memory_order_release);
        MODEL_REQUIRE(s.t.request_replacement());
        steps::await(s.p.workers()[n], 1);
    };
    if (requesters == 2) {
        model::thread second([&] { request(1); });
        request(0);
    } else {
        request(0);
        request(1);
    }
    s.t.end_threads();
}

TEST_CASE("worker_threads: end_threads() ends every thread, whatever it waits for") {
    model::check("finish, one worker", [] { finished(1); });
    check_at_random("finish, two workers", 3'000, [] { finished(2); });
}

TEST_CASE("worker_threads: a worker that is blocked is found by a thread that begins to wait") {
    check_at_random("blocked, a thread waits", 3'000, [] { replaced(1, 0); });
    check_at_random("blocked, a thread waits or is started", 3'000, [] { replaced(1, 1); });
    check_at_random("blocked, two threads wait", 3'000, [] { replaced(2, 0); });
    check_at_random("both blocked, two threads wait and are woken", 3'000, woken_and_replaced);
    check_at_random("blocked, two threads wait or one is started", 3'000, [] { replaced(2, 1); });
}

TEST_CASE("worker_threads: a worker that is blocked is found by a thread that begins to wait, with "
          "few preemptions",
          "[.long]") {
    model::check("blocked, a thread waits", {.how = model::options::method::bounded},
                 [] { replaced(1, 0); });
}

TEST_CASE("worker_threads: a request is served, or its caller learns that it is not") {
    model::check("two requests, no thread", refused_twice);
    check_at_random("no thread, and one that is blocked", 3'000, refused_beside_a_blocked_thread);
    check_at_random("two requests, a worker that is back", 3'000, served_again);
    check_at_random("two requests, one after the other", 3'000, [] { served(1); });
    check_at_random("two requests", 3'000, [] { served(2); });
}

} // namespace
