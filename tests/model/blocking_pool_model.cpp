#include <bide/core/parker.hpp>
#include <bide/sched/blocking_pool.hpp>
#include <bide/sched/detail/scheduler_core.hpp>
#include <model/posted.hpp>
#include <model/thread_support.hpp>
#include <support/test.hpp>

// The pool of threads for blocking work: a runnable that is taken runs once, beside a thread that
// leaves, finish(), or another post. The pool may be destroyed as soon as the work was seen done.

namespace {

using platform = model::platform_without_lock_sleep;
using parker = bide::basic_parker<platform>;
template <class T> using atomic = platform::atomic<T>;

using pool = bide::basic_blocking_pool<platform, model::os_thread>;

pool::options at_most(unsigned n, std::chrono::milliseconds keep_alive) {
    return {.max_threads = n, .keep_alive = keep_alive, .name = ""};
}

// Counts how often it ran, and releases a token.
struct posted_call : model::posted {
    explicit posted_call(parker* says = nullptr)
        : posted([this, says] {
              ran = ran + 1;
              if (says != nullptr) {
                  says->unpark();
              }
          }) {}

    platform::var<int> ran{0};
};

bool post(pool& to, model::posted& e) {
    std::error_code why;
    return to.post(e, why);
}

// The second post may find the thread busy, idle, about to leave, or gone.
void posted_twice(std::chrono::milliseconds keep_alive) {
    posted_call first;
    posted_call second;
    pool p(at_most(1, keep_alive));
    MODEL_REQUIRE(post(p, first));
    MODEL_REQUIRE(post(p, second));
    p.finish();
    MODEL_REQUIRE(first.ran == 1 && second.ran == 1);
}

void posted_by_two(unsigned threads) {
    posted_call first;
    posted_call second;
    pool p(at_most(threads, 1ms));
    {
        model::thread other([&] { MODEL_REQUIRE(post(p, second)); });
        MODEL_REQUIRE(post(p, first));
    }
    p.finish();
    MODEL_REQUIRE(first.ran == 1 && second.ran == 1);
}

// A refused runnable does not run, a taken one does. Both callers of finish() see that.
void finished_by_two() {
    posted_call first;
    posted_call second;
    pool p(at_most(1, 1ms));
    MODEL_REQUIRE(post(p, first));
    bool taken = false;
    {
        model::thread other([&] {
            p.finish();
            MODEL_REQUIRE(first.ran == 1);
        });
        taken = post(p, second);
        p.finish();
    }
    model::record(taken ? "taken" : "refused");
    MODEL_REQUIRE(first.ran == 1);
    MODEL_REQUIRE(second.ran == (taken ? 1 : 0));
}

void tried() {
    posted_call first;
    posted_call second;
    pool p(at_most(1, 1ms));
    MODEL_REQUIRE(p.try_run(first));
    const bool taken = p.try_run(second);
    p.finish();
    model::record(taken ? "taken" : "not");
    MODEL_REQUIRE(second.ran == (taken ? 1 : 0));
}

// One thread posts. The other one sees the work done and destroys the pool.
void destroyed_after_the_work() {
    parker seen;
    auto p = std::make_unique<pool>(at_most(1, 1ms));
    auto e = std::make_unique<posted_call>(&seen);
    model::thread poster([to = p.get(), what = e.get()] { post(*to, *what); });
    seen.park();
    e.reset();
    p.reset();
}

// The first ends after the second, which may be queued until the limit is raised.
void raised_for_one_that_is_queued() {
    parker seen;
    posted_call second(&seen);
    pool p(at_most(1, 1ms));
    model::posted first([&] {
        p.raise_limit();
        seen.park();
        p.lower_limit();
    });
    MODEL_REQUIRE(post(p, first));
    MODEL_REQUIRE(post(p, second));
    p.finish();
    MODEL_REQUIRE(second.ran == 1);
}

// The workers of a scheduler, of which one fires the timer.
struct timer_of_workers {
    struct worker {
        struct {
            void add(bide::timer& t) noexcept {
                when = when + 1;
                MODEL_REQUIRE(armed.exchange(&t, std::memory_order_acq_rel) == nullptr);
                token.unpark();
            }
            atomic<bide::timer*> armed{nullptr};
            platform::var<int> when{0}; // a field of the timer
            parker token;
        } timers;
    };
    std::array<worker, 1>& workers() noexcept { return all; }
    void fire_until(const atomic<int>& left) noexcept {
        auto& mine = all[0].timers;
        while (left.load(std::memory_order_acquire) != 0) {
            mine.token.park();
            if (bide::timer* const t = mine.armed.exchange(nullptr, std::memory_order_acq_rel)) {
                MODEL_REQUIRE(mine.when != 0);
                t->fire.wake();
            }
        }
    }

    std::array<worker, 1> all;
};

// What three threads post waits for all of it. Two of them may start no thread, and do not try again.
void refused_and_tended() {
    using tended_pool =
        bide::detail::basic_tended_pool<platform, timer_of_workers, model::os_thread>;
    timer_of_workers workers;
    tended_pool p(workers, at_most(3, 1ms));
    parker begun[3];
    atomic<int> left{3};
    const auto waits_for_all = [&](int me) {
        return model::posted([&, me] {
            if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) {
                begun[me].park();
                return;
            }
            begun[(me + 1) % 3].unpark();
            begun[(me + 2) % 3].unpark();
            workers.all[0].timers.token.unpark();
        });
    };
    model::posted all[3] = {waits_for_all(0), waits_for_all(1), waits_for_all(2)};
    MODEL_REQUIRE(post(p, all[0]));
    {
        const auto posts = [&](model::posted& r) {
            model::os_thread::starts_left() = 0;
            MODEL_REQUIRE(post(p, r));
        };
        model::thread one([&] { posts(all[1]); });
        model::thread two([&] { posts(all[2]); });
        workers.fire_until(left);
    }
    p.finish();
}

// A thread that says when it has ended.
class ending_thread {
public:
    std::error_code start(void (*run)(void*) noexcept, void* argument, std::size_t) noexcept {
        run_ = run;
        argument_ = argument;
        return thread_.start(
            [](void* self) noexcept {
                auto& mine = *static_cast<ending_thread*>(self);
                mine.run_(mine.argument_);
                mine.ended_.store(true, std::memory_order_release);
            },
            this);
    }
    void join() noexcept { thread_.join(); }
    bool try_join() noexcept {
        const bool ended = ended_.load(std::memory_order_acquire);
        if (ended) {
            thread_.join();
        }
        return ended;
    }
    static void name_this(std::string_view, const char*, unsigned) noexcept {}

private:
    model::os_thread thread_;
    void (*run_)(void*) noexcept = nullptr;
    void* argument_ = nullptr;
    atomic<bool> ended_{false};
};

// Threads leave, and are joined by reap(), by each other, or by finish().
void reaped(bool finishes_beside) {
    posted_call first;
    posted_call second;
    bide::basic_blocking_pool<platform, ending_thread> p(
        {.max_threads = 1, .keep_alive = 0ms, .name = ""});
    std::error_code why;
    {
        model::thread owner([&] {
            p.reap();
            p.reap();
        });
        MODEL_REQUIRE(p.post(first, why));
        MODEL_REQUIRE(p.post(second, why));
        if (finishes_beside) {
            p.finish();
        }
    }
    p.finish();
    MODEL_REQUIRE(first.ran == 1 && second.ran == 1);
    MODEL_REQUIRE(!p.reap());
}

// With 0 time-outs, no thread leaves because its time is over.
model::options at_random(int timeouts) {
    return {.how = model::options::method::pct, .runs = 5'000, .timeouts = timeouts};
}

} // namespace

TEST_CASE("blocking_pool: a runnable that is taken runs once", "[long]") {
    const model::options part = at_random(1);
    model::check("two posts, threads stay", model::brief_or_long(at_random(0), {}),
                 [] { posted_twice(1ms); });
    model::check("two posts, threads may leave", at_random(1), [] { posted_twice(1ms); });
    model::check("two posts, threads leave at once", model::brief_or_long(part, {}),
                 [] { posted_twice(0ms); });
    model::check("two threads post, one thread", at_random(1), [] { posted_by_two(1); });
    model::check("two threads post, two threads", at_random(0), [] { posted_by_two(2); });
    model::check("tried", model::brief_or_long(part, {}), tried);
    CHECK(model::outcomes(at_random(1), tried) == "not taken");
    model::check("limit raised", at_random(0), raised_for_one_that_is_queued);
    model::check("refused, and tended", at_random(0), refused_and_tended);
}

TEST_CASE("blocking_pool: finish() returns after all that was taken has run") {
    model::check("two threads finish, threads stay", at_random(0), finished_by_two);
    model::check("two threads finish, threads may leave", at_random(1), finished_by_two);
    CHECK(model::outcomes(at_random(1), finished_by_two) == "refused taken");
}

TEST_CASE("blocking_pool: each thread is joined once") {
    model::check("reaped", at_random(0), [] { reaped(false); });
    model::check("reaped, and finished", at_random(0), [] { reaped(true); });
}

TEST_CASE("blocking_pool: a thread that saw the work done may destroy the pool") {
    model::check("destroyed after the work", at_random(1), destroyed_after_the_work);
}
