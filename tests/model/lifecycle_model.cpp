#include <bide/sched/detail/lifecycle.hpp>
#include <bide/sched/detail/worker.hpp>
#include <model/at_random.hpp>
#include <model/posted.hpp>
#include <model/task_support.hpp>
#include <support/test.hpp>

// The end of a scheduler, with its real lists and tasks. shutdown() returns when every task has
// ended and not before; each task runs or is refused; and the scheduler may be destroyed as soon as
// its user knows that it has ended. With a pool whose workers take one step at a time; the whole is in
// scheduler_model.

namespace {

// The inner locks have a model of their own.
using platform = model::platform_without_lock_sleep;
using header = bide::detail::basic_task_header<platform>;
using registry_type = bide::detail::basic_task_registry<platform>;
using tokens = test::basic_tokens<platform>;
using link = model::link<platform>;
using ledger = model::ledger<platform>;
using cell = model::task_cell<platform>;
using outcome = model::outcome<platform>;
using job = model::calling_task<platform>;
using bide::deadline;
template <class T> using var = platform::var<T>;
template <class T> using atomic = platform::atomic<T>;

// The smallest pool. A push or wake_any() reads the word after its own step. A worker that finds
// nothing announces in the word before it looks again, as in idle.hpp.
class small_pool {
public:
    struct worker {
        unsigned index = 0;
        bide::detail::basic_counter<platform> spawned;
        bide::detail::basic_counter<platform> completed;
        registry_type tasks;
    };
    struct thread_role {
        const small_pool* pool = nullptr;
        worker* owned = nullptr;
        static thread_role& here() noexcept { return platform::local<thread_role>(); }
    };

    explicit small_pool(unsigned n) : workers_(n) {
        for (unsigned i = 0; i < n; ++i) {
            workers_[i].index = i;
        }
    }

    std::deque<worker>& workers() noexcept { return workers_; }
    worker* current_worker() const noexcept { return thread_role::here().owned; }
    bool runs_here() const noexcept { return thread_role::here().pool == this; }
    void push_local(worker&, bide::runnable& r) noexcept { push(r); }
    void push(bide::runnable& r) noexcept {
        queue_.push(r);
        wake_any();
    }
    void wake_any() noexcept {
        if (word_.load(std::memory_order_seq_cst) != 0) {
            word_.exchange(0, std::memory_order_seq_cst);
        }
    }
    std::size_t queued() const noexcept { return queue_.size(); }
    bide::runnable* take_unrun() noexcept { return queue_.pop(); }
    void stop() noexcept {}

    // A worker runs what is queued, and sleeps if there is nothing more.
    template <class FoundNothing> void step(unsigned n, FoundNothing&& found_nothing) {
        thread_role::here() = {this, &workers_[n]};
        while (bide::runnable* const r = queue_.pop()) {
            r->run.wake();
        }
        word_.fetch_or(1U << n, std::memory_order_seq_cst);
        found_nothing();
        if (queued() != 0) {
            word_.fetch_and(~(1U << n), std::memory_order_seq_cst);
        }
        thread_role::here() = {};
    }
    bool is_asleep(unsigned n) const noexcept {
        return (word_.load(std::memory_order_relaxed) >> n & 1) != 0;
    }

private:
    std::deque<worker> workers_;
    bide::basic_injector<platform> queue_;
    atomic<std::uint32_t> word_{0}; // a bit for each worker that sleeps
};

// A scheduler whose workers and threads do what the model says, and what became of its tasks.
class by_hand final
    : public bide::detail::basic_lifecycle<platform, model::starting_home<platform>, small_pool> {
    using lifecycle = basic_lifecycle;

public:
    using thread_role = small_pool::thread_role;

    // If its tasks are `admitted`, all have run or are refused when the scheduler ends, and else later.
    explicit by_hand(unsigned workers, int tasks = 0, bool admitted = false)
        : lifecycle(
              all, +[]() -> bide::executor_ref { return platform::local<model::at_once>(); }),
          count(tasks), all(workers) {
        if (admitted) {
            at_end = [this] { require_decided(); };
        }
    }
    ~by_hand() { end_external_calls(); }

    void spawn(int n, std::function<void()> does = {}) {
        start(*new job(*this, false, becomes[n], std::move(does)));
    }
    // What runs the task on a thread for blocking tasks.
    std::function<void()> blocking(int n, std::function<void()> does = {}) {
        MODEL_REQUIRE(admit());
        auto* const t = new job(*this, false, becomes[n], std::move(does));
        return [this, t] {
            thread_role::here() = {&all, nullptr};
            t->to_run().run.wake();
            thread_role::here() = {};
        };
    }
    void step(unsigned n) {
        all.step(n, [this] { add_up(); });
    }
    // Returns true if all has ended. The first call closes it.
    bool shutdown(deadline until = deadline::poll()) noexcept {
        return lifecycle::shutdown(until, [this]() noexcept {
            if (at_end) {
                at_end();
            }
            over = over + 1;
        });
    }
    // Requires that nothing else runs: the workers that are awake go to sleep, and all has ended.
    void require_end() {
        MODEL_REQUIRE(over == 0 || all.queued() == 0);
        for (unsigned n = 0; n < all.workers().size(); ++n) {
            while (!all.is_asleep(n)) {
                step(n);
            }
        }
        MODEL_REQUIRE(shutdown());
        MODEL_REQUIRE(all.queued() == 0);
        MODEL_REQUIRE(over == 1);
        require_decided();
    }
    void require_decided() {
        for (int i = 0; i < count; ++i) {
            MODEL_REQUIRE(becomes[i].is_decided());
        }
    }
    // Ends it beside threads. The body closes it, and does the step of a worker unless that is none.
    void end_beside(const std::vector<std::function<void()>>& others, int looking = 0) {
        {
            std::vector<model::thread> running;
            for (const auto& run : others) {
                running.emplace_back(run);
            }
            shutdown();
            if (looking >= 0) {
                step(static_cast<unsigned>(looking));
                shutdown();
            }
        }
        require_end();
    }

    const int count;
    outcome becomes[2];
    std::function<void()> at_end; // when no task is left
    var<int> over{0};
    small_pool all;
};

void join(header& t) noexcept {
    t.ended_gate().wait();
    t.forgo();
}

// A task that waits until it is cancelled or has a token.
struct taking {
    ledger book;
    var<model::progress> what{model::progress::none};
    tokens from{0};

    cell* task(header::home_type& in, bool kept) {
        return new cell(in, model::take<platform>(from, what), kept, book);
    }
    int taken() const noexcept { return what == model::progress::taken ? 1 : 0; }
};

constexpr int none = -1;

TEST_CASE("lifecycle: no task is left when the sums are equal") {
    // A worker runs a task that spawns another one, while a second worker adds up.
    model::check("two workers, one adds up", [] {
        by_hand s(2, 2, true);
        s.spawn(0, [&] { s.spawn(1); });
        s.shutdown();
        s.end_beside({[&] { s.step(0); }}, 1);
    });
    // The same with a blocking task, which spawns one for the worker that adds up.
    model::check("a task that blocks spawns, a worker adds up", [] {
        by_hand s(1, 2, true);
        s.end_beside({s.blocking(0, [&] { s.spawn(1); })});
    });
}

TEST_CASE("lifecycle: a task of an external thread is waited for or refused") {
    const auto spawned_beside = [] {
        by_hand s(1, 1, false);
        s.end_beside({[&] { s.spawn(0); }});
        model::record(s.becomes[0].ran == 1 ? "ran" : "refused");
    };
    model::check("spawn, shutdown", spawned_beside);
    CHECK(model::outcomes({}, spawned_beside) == "ran refused");
    model::check("spawn, shutdown, a worker", [] {
        by_hand s(1, 1, false);
        s.end_beside({[&] { s.spawn(0); }, [&] { s.step(0); }}, none);
    });
}

TEST_CASE("lifecycle: a worker sees the end of the last blocking task") {
    model::check("one task that blocks", [] {
        by_hand s(1, 1, true);
        s.end_beside({s.blocking(0)});
    });
    model::check("two tasks that block", [] {
        by_hand s(1, 2, true);
        s.end_beside({s.blocking(0), s.blocking(1)});
    });
    model::check("one task that blocks, a worker", [] {
        by_hand s(1, 1, true);
        s.end_beside({s.blocking(0), [&] { s.step(0); }}, none);
    });
}

TEST_CASE(
    "lifecycle: one caller of shutdown() ends the threads, and every caller returns after that") {
    model::check("two callers", [] {
        by_hand s(1);
        s.shutdown();
        s.step(0);
        const auto ends = [&] {
            MODEL_REQUIRE(s.shutdown(deadline::never()));
            MODEL_REQUIRE(s.over == 1);
        };
        model::thread other(ends);
        ends();
        other.join();
        s.require_end();
    });
    model::check("two callers, a worker", [] {
        by_hand s(1);
        s.end_beside({[&] { s.shutdown(); }, [&] { s.step(0); }}, none);
    });
}

TEST_CASE("lifecycle: the joiner of a task may destroy the scheduler") {
    // The spawner is still in its call.
    const auto destroyed = [] {
        outcome becomes; // outlives the scheduler
        auto s = std::make_unique<by_hand>(1);
        auto* const t = new job(*s, true, becomes);
        model::thread spawner([to = s.get(), t] { to->start(*t); });
        s->shutdown();
        s->step(0);
        model::assume(t->is_complete());
        s->require_end();
        join(*t);
        s.reset();
        MODEL_REQUIRE(becomes.is_decided());
        model::record(becomes.ran == 1 ? "ran" : "refused");
    };
    model::check("spawn, destroy", destroyed);
    CHECK(model::outcomes({}, destroyed) == "ran refused");
}

TEST_CASE("lifecycle: an external caller is waited for or refused, and may be the last") {
    // The scheduler is destroyed while the caller is still in its call.
    const auto entered = [] {
        var<int> ran{0};
        bool admitted = false;
        auto s = std::make_unique<by_hand>(1);
        s->at_end = [&] { MODEL_REQUIRE(!admitted || ran == 1); };
        model::thread caller([&, to = s.get()] {
            admitted = to->enter_caller();
            if (admitted) {
                ran = 1;
                to->leave_caller();
            }
        });
        s->shutdown();
        s->step(0);
        model::assume(s->count_external().ended == 1);
        if (!s->shutdown()) { // the worker was asleep before
            model::assume(!s->all.is_asleep(0));
        }
        s->require_end();
        s.reset();
        caller.join();
        model::record(admitted ? "ran" : "refused");
    };
    model::check("enter, shutdown, leave, destroy", entered);
    CHECK(model::outcomes({}, entered) == "ran refused");
}

// A runnable that records that it ran.
struct posted_call : model::posted {
    posted_call()
        : posted([this] {
              ran = ran + 1;
              done.store(true, std::memory_order_release);
          }) {}

    var<int> ran{0};
    atomic<bool> done{false};
};

TEST_CASE(
    "lifecycle: what is posted beside the end runs, and then the scheduler may be destroyed") {
    model::check("post, shutdown", [] {
        posted_call e;
        by_hand s(1);
        s.end_beside({[&] { s.post(e); }});
        MODEL_REQUIRE(e.ran == 1);
    });
    model::check("post, the end of shutdown", [] {
        posted_call e;
        by_hand s(1);
        s.shutdown();
        s.step(0);
        model::thread poster([&] { s.post(e); });
        s.shutdown();
        poster.join();
        MODEL_REQUIRE(e.ran == 1);
        s.require_end();
    });
    model::check("post, destroy", [] {
        posted_call e;
        auto s = std::make_unique<by_hand>(1);
        s->shutdown();
        s->step(0);
        model::thread poster([&, to = s.get()] { to->post(e); });
        s->shutdown();
        model::assume(e.done.load(std::memory_order_acquire));
        s.reset();
        MODEL_REQUIRE(e.ran == 1);
    });
}

using model::check_at_random;

void waits(bool given) {
    taking t;
    by_hand s(1);
    s.at_end = [&] { MODEL_REQUIRE(t.book.destroyed == 1); };
    s.start(*t.task(s, false));
    model::thread worker([&] { s.step(0); });
    std::optional<model::thread> giver;
    if (given) {
        giver.emplace([&] { t.from.give(); });
    }
    s.shutdown();
    worker.join();
    giver.reset();
    s.require_end();
    MODEL_REQUIRE(t.taken() + t.from.available() == (given ? 1 : 0));
}

TEST_CASE("lifecycle: a task that begins to wait beside the end is cancelled", "[long]") {
    model::check_at_random_or_all("wait, shutdown", {.runs = 2'000}, [] { waits(false); });
    check_at_random("wait, shutdown, wake", 2'000, [] { waits(true); });
}

// ---- A home that is destroyed when its last task was counted

class brief_home final : public header::home_type {
public:
    explicit brief_home(int tasks) : left(tasks) {}

    bide::executor_ref executor() noexcept override { return platform::local<model::at_once>(); }
    void post(bide::runnable& r) noexcept override { r.run.wake(); }

    bide::detail::basic_gate<platform> left;

private:
    unsigned registry_here() const noexcept override { return 0; }
    registry_type& registry(unsigned) noexcept override { return tasks_; }
    bool is_here() const noexcept override { return true; }
    bool is_closing() const noexcept override { return false; }
    void task_ended() noexcept override { left.arrive(1); }

    registry_type tasks_;
};

TEST_CASE("lifecycle: a task touches nothing of its home after it was counted as ended") {
    model::check("a task that waited, its home goes", [] {
        taking what;
        auto h = std::make_unique<brief_home>(1);
        cell* const t = what.task(*h, false);
        t->begin();
        model::thread giver([&] { what.from.give(); });
        h->left.wait();
        h.reset();
        giver.join();
        MODEL_REQUIRE(what.taken() == 1 && what.book.destroyed == 1);
    });
    model::check("a task that is joined was counted", [] {
        taking what;
        brief_home h(1);
        cell* const t = what.task(h, true);
        t->begin();
        model::thread giver([&] { what.from.give(); });
        t->ended_gate().wait();
        MODEL_REQUIRE(h.left.is_open());
        t->forgo();
        giver.join();
    });
}

} // namespace
