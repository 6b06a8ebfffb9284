#include <bide/sched/detail/lifecycle.hpp>
#include <bide/sched/detail/loop.hpp>
#include <model/posted.hpp>
#include <model/task_support.hpp>
#include <support/test.hpp>

// The loop of sched/run_loop.hpp. Threads push while another thread runs it: each push runs once, and
// wakes the loop if it sleeps. A job may wait inside of the loop. stop_run() ends one run. Two threads
// run it in turn. With a real lifecycle, it may be destroyed as soon as it has run what was posted, or a
// stop has ended its run, and each task that is spawned meanwhile runs or is refused.

namespace {

// The inner locks have a model of their own.
using platform = model::platform_without_lock_sleep;
using loop_type = bide::detail::basic_loop<platform>;
using header = bide::detail::basic_task_header<platform>;
using bide::deadline;
template <class T> using var = platform::var<T>;
template <class T> using atomic = platform::atomic<T>;

// Counts in plain data: one thread at a time runs the loop.
struct job : model::posted {
    explicit job(var<int>& ran) : posted([&ran] { ran = ran + 1; }) {}
};

// A loop, and jobs for it.
struct scene {
    loop_type loop{{}, nullptr, 0};
    var<int> ran{0};
    job a{ran};
    job b{ran};

    // Runs the loop until so many jobs have run.
    void run_until(int wanted) {
        loop.run(deadline::never(), [&](bool) noexcept { return ran == wanted; });
    }
    // Until it is told to stop.
    void run() {
        loop.run(deadline::never(), [](bool) noexcept { return false; });
    }
};

void pushed(int jobs) {
    scene s;
    model::thread first([&] { s.loop.push(s.a); });
    std::optional<model::thread> second;
    if (jobs == 2) {
        second.emplace([&] { s.loop.push(s.b); });
    }
    s.run_until(jobs);
}

void pusher_and_stopper() {
    scene s;
    var<int> told{0};
    model::thread pusher([&] { s.loop.push(s.a); });
    model::thread stopper(model::after_writing(told, [&] { s.loop.stop_run(); }));
    s.run();
    MODEL_REQUIRE(told == 1);
    s.run_until(1);
}

void two_runners() {
    scene s;
    s.loop.push(s.a);
    model::thread pusher([&] { s.loop.push(s.b); });
    model::thread other(
        [&] { s.loop.run(deadline::never(), [](bool idle) noexcept { return idle; }); });
    other.join();
    s.run_until(2);
}

// A job waits inside of the loop until a thread says that it is over, and wakes the loop. Meanwhile
// the loop runs what the same thread, or another one, has pushed.
struct waits_inside : model::posted {
    explicit waits_inside(loop_type& of)
        : posted([this] { loop.run_inside([this]() noexcept { return is_over(); }); }), loop(of) {}
    // As the outcome of a waiter, and its waker.
    void end() noexcept {
        over.store(true, std::memory_order_release);
        loop.wake_any();
    }
    bool is_over() const noexcept { return over.load(std::memory_order_acquire); }

    loop_type& loop;
    atomic<bool> over{false};
};

void wait_inside() {
    scene s;
    waits_inside outer(s.loop);
    s.loop.push(outer);
    model::thread ender([&] {
        s.loop.push(s.a);
        outer.end();
    });
    s.run_until(1);
    ender.join();
    MODEL_REQUIRE(outer.is_over());
}

void wait_inside_and_stop() {
    scene s;
    waits_inside outer(s.loop);
    s.loop.push(outer);
    model::thread ender([&] { outer.end(); });
    model::thread stopper([&] { s.loop.stop_run(); });
    // The stop may come before the job, which the second run then runs.
    s.run();
    s.loop.run(deadline::never(), [&](bool) noexcept { return outer.is_over(); });
    ender.join();
    stopper.join();
}

// The thread that has made the loop waits outside of a run, and runs the loop.
void joins() {
    scene s;
    waits_inside outer(s.loop);
    model::thread ender([&] {
        s.loop.push(s.a);
        outer.end();
    });
    MODEL_REQUIRE(s.loop.is_own());
    outer.run.wake();
    MODEL_REQUIRE(outer.is_over());
    ender.join();
    s.run_until(1);
}

// The same, until another thread runs it.
void gives_way() {
    scene s;
    waits_inside outer(s.loop);
    s.loop.push(s.a);
    model::thread runner([&] { s.run_until(1); });
    outer.run.wake(); // no thread calls outer.end()
    runner.join();
    MODEL_REQUIRE(s.ran == 1);
    MODEL_REQUIRE(!s.loop.is_own());
}

class home final
    : public bide::detail::basic_lifecycle<platform, model::starting_home<platform>, loop_type> {
    using lifecycle = basic_lifecycle;

public:
    home()
        : lifecycle(
              loop, +[]() -> bide::executor_ref { return platform::local<model::at_once>(); }),
          loop(bide::executor_ref::to(*this), nullptr, 0) {}
    // As the destructor of run_loop_core.
    ~home() {
        while (!shutdown(deadline::poll(), []() noexcept {})) {
            run();
        }
        end_external_calls();
    }
    void run() noexcept {
        loop.run(deadline::never(), [this](bool idle) noexcept {
            if (!idle) {
                return false;
            }
            add_up();
            return all_ended();
        });
    }

    // As run_loop_core::stop().
    void stop() noexcept {
        const external_call here(*this);
        loop.stop_run();
    }

    loop_type loop;
};

void spawn_from_a_thread() {
    model::outcome<platform> of;
    {
        home here;
        model::thread spawner(
            [&] { here.start(*new model::calling_task<platform>(here, false, of)); });
        here.run(); // returns before or after the task
        spawner.join();
    }
    MODEL_REQUIRE(of.is_decided());
}

void destroyed_after_a_post() {
    var<int> ran{0};
    job last(ran);
    std::optional<model::thread> poster; // may be on its way out of a loop that ends
    {
        home here;
        poster.emplace([&] { here.post(last); });
        here.loop.run(deadline::never(), [&](bool) noexcept { return ran == 1; });
    }
    poster->join();
    MODEL_REQUIRE(ran == 1);
}

void destroyed_after_a_stop() {
    var<int> told{0};
    std::optional<model::thread> stopper; // as the poster above
    {
        home here;
        stopper.emplace([&] {
            told = 1;
            here.stop();
        });
        here.loop.run(deadline::never(), [](bool) noexcept { return false; });
        MODEL_REQUIRE(told == 1);
    }
    stopper->join();
}

// A run that must not stop leaves the stop to the next one.
void stop_for_the_next_run() {
    scene s;
    model::thread other([&] {
        s.loop.stop_run();
        s.loop.push(s.a);
    });
    s.loop.run(deadline::never(), [&](bool) noexcept { return s.ran == 1; }, false);
    s.run();
}

} // namespace

TEST_CASE("run_loop: each push runs once and wakes the loop", "[promise.run-loop-thread]") {
    model::check("one push", {.spurious = 1}, [] { pushed(1); });
    model::check("two pushers", [] { pushed(2); });
}

TEST_CASE("run_loop: stop_run() ends a run and loses no push") {
    model::check("a pusher and a stopper", pusher_and_stopper);
    model::check("a stop for the next run", stop_for_the_next_run);
}

TEST_CASE("run_loop: a second thread continues with what the first one has left") {
    model::check("two runners in turn", two_runners);
}

TEST_CASE("run_loop: a job that waits inside of the loop is woken, and no push is lost",
          "[promise.run-loop-groups]") {
    model::check("a wait inside, and its end", wait_inside);
    model::check("a wait inside, spurious returns", {.spurious = 1}, wait_inside);
    model::check("a wait inside, its end, and a stop", wait_inside_and_stop);
}

TEST_CASE("run_loop: a thread that waits outside of a run gives way to one that runs the loop",
          "[promise.run-loop-groups]") {
    model::check("a wait outside of a run", joins);
    model::check("a wait outside of a run, and a run", gives_way);
}

TEST_CASE("run_loop: with its lifecycle, no task and no post is lost at the end",
          "[promise.run-loop-destructor]") {
    model::check("a task from a thread", spawn_from_a_thread);
    model::check("the end after the last post", destroyed_after_a_post);
    model::check("the end after a stop", destroyed_after_a_stop);
}
