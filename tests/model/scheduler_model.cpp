#include <bide/sched/detail/scheduler_core.hpp>
#include <model/at_random.hpp>
#include <model/posted.hpp>
#include <model/task_support.hpp>
#include <model/thread_support.hpp>
#include <support/test.hpp>

// A whole scheduler: its pool, its threads and its end, connected as in a program. Each task runs once
// or is refused, also if workers block and only few threads may be started. shutdown() returns when
// every task and every thread has ended; then the scheduler may be destroyed. The parts have models of
// their own: pool, worker_threads, blocking_pool, lifecycle.

namespace {

// The inner locks have a model of their own.
using platform = model::platform_without_lock_sleep;
using parker = bide::basic_parker<platform>;
using task = bide::detail::basic_task_header<platform>;
using bide::deadline;
template <class T> using var = platform::var<T>;
template <class T> using atomic = platform::atomic<T>;

using task_home = model::scheduler_home<platform>;

bide::scheduler_options with(unsigned blocking_threads, std::chrono::milliseconds stay) {
    bide::scheduler_options o;
    o.max_blocking_threads = blocking_threads;
    o.blocking_keep_alive = stay;
    o.name = "";
    return o;
}

using parts = bide::detail::basic_scheduler_parts<platform, task_home, model::os_thread>;

class scheduler final : public parts {
public:
    explicit scheduler(unsigned workers, unsigned blocking_threads = 1, bool opens = true,
                       std::chrono::milliseconds stay = 1ms)
        : scheduler(workers, with(blocking_threads, stay), opens) {}
    scheduler(const scheduler&) = delete;
    scheduler& operator=(const scheduler&) = delete;
    ~scheduler() {
        shutdown();
        end_external_calls();
    }

    // Returns false if a thread was not started.
    bool open() noexcept {
        const std::error_code error = start_threads();
        if (error) {
            no_worker_started();
            shutdown();
        }
        return !error;
    }
    void shutdown() noexcept {
        MODEL_REQUIRE(parts::shutdown(deadline::never(), [this]() noexcept {
            end_threads();
            ended = ended + 1;
        }));
        MODEL_REQUIRE(ended == 1);
        MODEL_REQUIRE(pool().idle().sleepers() == 0 && pool().idle().searching() == 0);
        MODEL_REQUIRE(!pool().idle().needs_replacement() && pool().queued() == 0);
        MODEL_REQUIRE(blocking().threads() == 0);
    }
    void start_blocking(task& t) noexcept {
        std::error_code why;
        parts::start_blocking(t, why);
    }

    task_home& normal() noexcept { return *this; }
    task_home& of_class(bide::task_priority which) noexcept { return home_of({.priority = which}); }
    task_home& of_thread(unsigned n) noexcept { return home_of({.worker = n}); }

    const bide::detail::unhandled& handler() const noexcept override { return unhandled_; }

    void enter() noexcept override { parts::enter(); }
    void leave() noexcept override { parts::leave(); }

    platform::var<int> ended{0};

private:
    scheduler(unsigned workers, bide::scheduler_options wanted, bool opens)
        : parts(
              nullptr, wanted, {workers, true, nullptr, 0},
              +[]() -> bide::executor_ref { return platform::local<model::at_once>(); }) {
        if (opens) {
            MODEL_REQUIRE(open());
        }
    }

    const bide::detail::unhandled unhandled_;
};

// What became of a task.
struct outcome {
    var<int> ran{0};
    var<int> refused{0};
    atomic<bool> has_ended{false};

    bool is_decided() const noexcept { return ran + refused == 1; }
    void await() const noexcept {
        while (!has_ended.load(std::memory_order_acquire)) {
            platform::pause();
        }
    }
};

// A task that calls a function. If it is refused, its spawner calls it: other tasks may wait for it.
class job final : public task {
public:
    job(task_home& in, outcome& becomes, std::function<void()> does = {}, bool blocks = false)
        : task(in, false), home_(in), becomes_(becomes), does_(std::move(does)), blocks_(blocks) {}

private:
    std::coroutine_handle<> start() noexcept override {
        if (blocks_) {
            home_.enter();
            MODEL_REQUIRE(home_.is_here());
        }
        run(becomes_.ran);
        if (blocks_) {
            home_.leave();
        }
        return {};
    }
    void never_start() noexcept override { run(becomes_.refused); }
    void run(var<int>& count) noexcept {
        if (does_) {
            does_();
        }
        count = count + 1;
        becomes_.has_ended.store(true, std::memory_order_release);
    }
    void settle() noexcept override {}
    void discard_outcome() noexcept override {}
    void destroy() noexcept override { delete this; }

    task_home& home_;
    outcome& becomes_;
    const std::function<void()> does_;
    const bool blocks_;
};

void spawn(task_home& in, outcome& becomes, std::function<void()> does = {}) {
    in.start(*new job(in, becomes, std::move(does)));
}
void spawn_blocking(scheduler& in, outcome& becomes, std::function<void()> does = {}) {
    in.start_blocking(*new job(in, becomes, std::move(does), true));
}

using model::check_at_random;

// Ends the scheduler, after all tasks if these come `first`.
template <std::size_t Count> void end(scheduler& s, const outcome (&all)[Count], bool first) {
    if (first) {
        for (const outcome& o : all) {
            o.await();
        }
    }
    s.shutdown();
    for (const outcome& o : all) {
        MODEL_REQUIRE(first ? o.ran == 1 : o.is_decided());
    }
}

// A task blocks its thread until the task that it has spawned has run.
void blocked(unsigned workers, bool first, std::chrono::milliseconds stay = 1ms) {
    parker token;
    outcome all[2];
    scheduler s(workers, 1, true, stay);
    spawn(s, all[0], [&] {
        spawn(s, all[1], [&] { token.unpark(); });
        token.park();
    });
    end(s, all, first);
}

// The same while the only thread for blocking tasks has one, which ends at any time.
void blocked_beside_a_blocking_task(bool first) {
    parker token;
    outcome all[3];
    scheduler s(1);
    spawn_blocking(s, all[2]);
    spawn(s, all[0], [&] {
        spawn(s, all[1], [&] { token.unpark(); });
        token.park();
    });
    end(s, all, first);
}

// The task before the last may end beside it: the substitute hands the worker to the thread that is back, or
// ends with it.
void handed_back() {
    parker token;
    parker back;
    outcome all[3];
    scheduler s(1);
    spawn(s, all[0], [&] {
        spawn(s, all[1], [&] { token.unpark(); });
        token.park();
        back.unpark();
    });
    back.park();
    spawn(s, all[2]);
    end(s, all, true);
}

// The same worker is blocked twice while the only thread for blocking tasks has one: the second request may come
// while the first one is served.
void requested_twice() {
    parker tokens[2];
    outcome all[4];
    scheduler s(1);
    spawn_blocking(s, all[3]);
    spawn(s, all[0], [&] {
        spawn(s, all[1], [&] {
            tokens[0].unpark();
            spawn(s, all[2], [&] { tokens[1].unpark(); });
            tokens[1].park();
        });
        tokens[0].park();
    });
    end(s, all, true);
}

// There is no thread for the worker, until its own thread is back.
void no_thread() {
    parker token;
    outcome all[3];
    scheduler s(1);
    spawn_blocking(s, all[0], [&] { token.unpark(); });
    spawn(s, all[1], [&] { token.park(); });
    spawn(s, all[2]);
    end(s, all, true);
}

// A blocking task waits for a task, whose worker is blocked until the blocking task has begun.
void blocked_for_a_blocking_task(bool first) {
    parker begun;
    parker token;
    outcome all[3];
    scheduler s(1, 2);
    spawn(s, all[0], [&] { begun.park(); });
    spawn_blocking(s, all[1], [&] {
        spawn(s, all[2], [&] { token.unpark(); });
        begun.unpark();
        token.park();
    });
    end(s, all, first);
}

// A thread that has run a worker for a while becomes free for a blocking task, when the worker has nothing
// to run.
void blocking_task_after_a_substitute(unsigned workers) {
    parker token;
    outcome all[3];
    scheduler s(workers);
    spawn(s, all[0], [&] {
        spawn(s, all[1], [&] { token.unpark(); });
        token.park();
    });
    all[0].await();
    all[1].await();
    spawn_blocking(s, all[2]);
    end(s, all, true);
}

// A task blocks, and each task after it, until the last one has run: each time another thread has to
// run the worker.
void blocked_in_turn(bool first) {
    parker tokens[2];
    outcome all[3];
    scheduler s(1, 2);
    spawn(s, all[0], [&] {
        spawn(s, all[1], [&] {
            spawn(s, all[2], [&] {
                tokens[0].unpark();
                tokens[1].unpark();
            });
            tokens[1].park();
        });
        tokens[0].park();
    });
    end(s, all, first);
}

// External threads spawn a task and a blocking one while the scheduler ends. Then it is destroyed.
void spawned_at_the_end(bool blocking, bool both) {
    outcome first;
    outcome second;
    {
        auto s = std::make_unique<scheduler>(1);
        std::unique_ptr<model::thread> another;
        model::thread spawner(
            [&, to = s.get()] { blocking ? spawn_blocking(*to, first) : spawn(*to, first); });
        if (both) {
            another = std::make_unique<model::thread>([&, to = s.get()] { spawn(*to, second); });
        }
        s->shutdown();
        spawner.join();
        another.reset();
        s.reset();
    }
    MODEL_REQUIRE(first.is_decided() && (!both || second.is_decided()));
}

// The scheduler is destroyed as soon as it has ended and the task was run or refused, while its spawner
// may still be in its call.
void destroyed_beside_a_spawn(bool blocking) {
    outcome becomes;
    auto s = std::make_unique<scheduler>(1);
    model::thread spawner(
        [&, to = s.get()] { blocking ? spawn_blocking(*to, becomes) : spawn(*to, becomes); });
    s->shutdown();
    becomes.await();
    s->shutdown();
    s.reset();
    MODEL_REQUIRE(becomes.is_decided());
}

// What an external thread posts wakes a thread that ends the scheduler's life, while the poster may
// still be in its call.
void destroyed_beside_a_post(bool of_thread) {
    parker posted;
    model::posted what([&] { posted.unpark(); });
    auto s = std::make_unique<scheduler>(1);
    model::thread poster(
        [&, to = s.get()] { (of_thread ? to->of_thread(0) : to->normal()).post(what); });
    posted.park();
    s.reset();
}

// A task spawns another one while the scheduler ends.
void spawned_by_a_task(unsigned workers, bool blocking) {
    outcome all[2];
    scheduler s(workers);
    const auto spawns = [&] { spawn(s, all[1]); };
    blocking ? spawn_blocking(s, all[0], spawns) : spawn(s, all[0], spawns);
    end(s, all, false);
}

// Two threads end the scheduler, which is destroyed while the spawner may still be in its call.
void destroyed_by_one_of_two() {
    outcome becomes;
    auto s = std::make_unique<scheduler>(1);
    model::thread spawner([&, to = s.get()] { spawn(*to, becomes); });
    {
        model::thread other([&] { s->shutdown(); });
        s->shutdown();
    }
    becomes.await();
    s.reset();
    MODEL_REQUIRE(becomes.is_decided());
}

// A task that waits is woken or cancelled.
void woken_at_the_end() {
    using model::progress;
    model::ledger<platform> book;
    var<progress> what{progress::none};
    test::basic_tokens<platform> from(0);
    auto s = std::make_unique<scheduler>(2);
    auto* const t =
        new model::task_cell<platform>(s->normal(), model::take<platform>(from, what), true, book);
    s->normal().start(*t);
    model::thread giver([&] { from.give(); });
    s->shutdown();
    const bool ran = t->take() != 2;
    t->forgo();
    giver.join();
    s.reset();
    const bool taken = what == progress::taken;
    MODEL_REQUIRE((taken || what == progress::stopped) == ran);
    MODEL_REQUIRE((taken ? 1 : 0) + from.available() == 1 && book.destroyed == 1);
}

// The first or the second thread cannot be started. Then none has run a worker, and none is left.
void not_opened(int threads) {
    scheduler s(2, 1, false);
    model::os_thread::starts_left() = threads;
    MODEL_REQUIRE(!s.open());
    MODEL_REQUIRE(s.ended == 1);
}

// Two threads shut it down, and a task waits for both calls to have begun.
void shut_down_twice() {
    outcome becomes;
    scheduler s(1);
    spawn(s, becomes);
    model::thread other([&] { s.shutdown(); });
    s.shutdown();
    other.join();
    MODEL_REQUIRE(becomes.is_decided());
}

// A fork-join of an external thread, beside the end.
void entered_at_the_end() {
    scheduler s(1);
    bool admitted = false;
    var<int> used{0};
    model::thread caller([&] {
        admitted = s.enter_caller();
        if (admitted) {
            used = 1;
            s.leave_caller();
        }
    });
    s.shutdown();
    MODEL_REQUIRE(s.ended == 1);
    caller.join();
    MODEL_REQUIRE(!admitted || used == 1);
}

void of_each_home(unsigned workers, bool first) {
    outcome all[3];
    scheduler s(workers);
    spawn(s.of_class(bide::task_priority::high), all[0]);
    spawn(s.of_thread(workers - 1), all[1], [&] {
        MODEL_REQUIRE(!s.is_here() || s.thread_here() == workers - 1);
        spawn(s.of_class(bide::task_priority::low), all[2]);
    });
    end(s, all, first);
}

// A pinned task blocks its thread until another one has run, which a substitute runs. The thread ends its
// pinned tasks with or without its worker.
void pinned_and_blocked(bool first) {
    parker token;
    outcome all[3];
    scheduler s(1);
    spawn(s.of_thread(0), all[0], [&] {
        spawn(s, all[1], [&] { token.unpark(); });
        spawn(s.of_thread(0), all[2], [&] { MODEL_REQUIRE(s.thread_here() == 0U); });
        token.park();
    });
    end(s, all, first);
}

// The thread of a worker has lost it to a substitute, whose task waits for a task that is pinned to the
// thread: it runs that one without a worker, also if it waits for one already.
void pinned_to_a_thread_without_a_worker() {
    parker token;
    outcome all[3];
    scheduler s(1);
    spawn(s.of_thread(0), all[0], [&] {
        spawn(s, all[1], [&] {
            token.unpark();
            spawn(s.of_thread(0), all[2]);
            all[2].await();
        });
        token.park();
    });
    end(s, all, true);
}

// A thread without a worker runs a pinned task that waits for a later task: the thread is no idle thread
// meanwhile, which would get the worker for that task.
void pinned_for_a_later_task() {
    parker token;
    atomic<bool> has_begun{false};
    outcome all[4];
    scheduler s(1);
    spawn(s.of_thread(0), all[0], [&] {
        spawn(s, all[1], [&] {
            spawn(s.of_thread(0), all[2], [&] {
                has_begun.store(true, std::memory_order_release);
                all[3].await();
            });
            token.unpark();
        });
        token.park();
    });
    while (!has_begun.load(std::memory_order_acquire)) {
        platform::pause();
    }
    spawn(s, all[3]);
    end(s, all, true);
}

} // namespace

TEST_CASE("scheduler: every task runs, although workers block and few threads may be started",
          "[long]") {
    const std::uint64_t runs = model::is_long() ? 3'000 : 1'000;
    check_at_random("one worker, a task blocks", runs, [] { blocked(1, true); });
    check_at_random("one worker, a task blocks, the end", runs, [] { blocked(1, false); });
    check_at_random("two workers, a task blocks", runs / 2, [] { blocked(2, true); });
    check_at_random("one worker, a substitute does not stay", runs, [] { blocked(1, true, 0ms); });
    check_at_random("beside a blocking task", runs, [] { blocked_beside_a_blocking_task(true); });
    check_at_random("handed back", runs, handed_back);
    check_at_random("requested twice", runs, requested_twice);
    check_at_random("until its own thread is back", runs, no_thread);
    check_at_random("a blocking task after a substitute", runs,
                    [] { blocking_task_after_a_substitute(1); });
    check_at_random("for a blocking task", runs, [] { blocked_for_a_blocking_task(true); });
    check_at_random("two tasks block in turn", runs, [] { blocked_in_turn(true); });
    check_at_random("a pinned task blocks", runs, [] { pinned_and_blocked(true); });
    check_at_random("pinned to a thread without a worker", runs,
                    pinned_to_a_thread_without_a_worker);
    check_at_random("pinned, for a later task", runs, pinned_for_a_later_task);
}

TEST_CASE("scheduler: each task runs once or is refused, and the end comes after it", "[long]") {
    const std::uint64_t runs = model::is_long() ? 3'000 : 300;
    check_at_random("a task, the end", runs, [] { spawned_at_the_end(false, false); });
    check_at_random("a blocking task, the end", runs, [] { spawned_at_the_end(true, false); });
    check_at_random("two tasks, the end", runs, [] { spawned_at_the_end(true, true); });
    check_at_random("a spawn, destroyed", runs, [] { destroyed_beside_a_spawn(false); });
    check_at_random("a blocking spawn, destroyed", runs, [] { destroyed_beside_a_spawn(true); });
    check_at_random("a post, destroyed", runs, [] { destroyed_beside_a_post(false); });
    check_at_random("a post to a thread, destroyed", runs, [] { destroyed_beside_a_post(true); });
    check_at_random("two ends", runs, shut_down_twice);
    check_at_random("two ends, destroyed", runs, destroyed_by_one_of_two);
    check_at_random("a task that spawns, the end", runs, [] { spawned_by_a_task(2, false); });
    check_at_random("a blocking task that spawns, the end", runs,
                    [] { spawned_by_a_task(1, true); });
    check_at_random("a task that waits, the end", runs, woken_at_the_end);
    check_at_random("a caller, the end", runs, entered_at_the_end);
    check_at_random("three homes", runs, [] { of_each_home(1, true); });
    check_at_random("three homes, the end", runs, [] { of_each_home(1, false); });
    check_at_random("three homes, two workers", runs / 4, [] { of_each_home(2, true); });
}

TEST_CASE("scheduler: if a thread cannot be started, no thread is left") {
    model::check("no thread", [] { not_opened(0); });
    model::check("one of two threads", [] { not_opened(1); });
}
