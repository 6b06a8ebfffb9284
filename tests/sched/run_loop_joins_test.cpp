#include <bide/sched/run_loop.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/async_generator.hpp>
#include <bide/task/strand.hpp>
#include <bide/task/task_local_value.hpp>
#include <bide/task/with_deadline.hpp>
#include <support/sched.hpp>

// A task of a loop that awaits another task. If that one is the next job of the loop, it runs inside of
// the job that awaits it. The same holds on a scheduler, if the awaited task is in the worker's LIFO slot.

using namespace bide;
using bide::this_task::yield;

namespace {

using order = std::vector<std::string>;

task<> says(order& o, const char* what) {
    o.emplace_back(what);
    co_return;
}

// Returns "stopped" if the join was stopped, or else what the task threw, or "joined".
task<> joins(order& o, join_handle<> of) {
    try {
        co_await std::move(of).async_join();
        o.emplace_back("joined");
    } catch (const stopped_error&) {
        o.emplace_back("stopped");
    } catch (const std::exception& e) {
        o.emplace_back(e.what());
    }
}

// The last of `left` + 1 tasks that await each other writes a dump.
template <class Runner> task<> dumps_behind(Runner& on, std::size_t left, std::string& to) {
    if (left == 0) {
        to = test::dump_of(on);
    } else {
        co_await on.spawn(dumps_behind(on, left - 1, to));
    }
}

// A test with a loop, whose tasks say what they do.
struct on_loop {
    run_loop loop;
    order o;
};

} // namespace

TEST_CASE_METHOD(on_loop,
                 "run_loop: a task that joins the only other task continues in the same job") {
    const auto outer = [&]() -> task<> {
        for (int i = 0; i < 3; ++i) {
            co_await joins(o, loop.spawn(says(o, "child")));
        }
    };
    loop.spawn(outer).detach();
    CHECK(loop.run() == 4); // itself and three children
    CHECK(o == order{"child", "joined", "child", "joined", "child", "joined"});
}

TEST_CASE_METHOD(
    on_loop, "run_loop: a task that joins another one continues behind what became runnable before",
    "[promise.run-loop-joins]") {
    SECTION("by the awaited task") {
        const auto child = [&]() -> task<> {
            o.emplace_back("child");
            loop.spawn(says(o, "grandchild")).detach();
            co_return;
        };
        const auto outer = [&]() -> task<> { co_await joins(o, loop.spawn(child)); };
        loop.run_until(outer());
        CHECK(o == order{"child", "grandchild", "joined"});
    }
    SECTION("by the joiner, behind the awaited task") {
        const auto outer = [&]() -> task<> {
            auto child = loop.spawn(says(o, "child"));
            loop.spawn(says(o, "other")).detach();
            co_await joins(o, std::move(child));
        };
        loop.run_until(outer());
        CHECK(o == order{"child", "other", "joined"});
    }
    SECTION("by the joiner, before the awaited task") {
        const auto outer = [&]() -> task<> {
            loop.spawn(says(o, "other")).detach();
            co_await joins(o, loop.spawn(says(o, "child")));
        };
        loop.run_until(outer());
        CHECK(o == order{"other", "child", "joined"});
    }
    SECTION("by the awaited task, which waits") {
        const auto child = [&]() -> task<> {
            loop.spawn(says(o, "grandchild")).detach();
            co_await yield();
            o.emplace_back("child");
        };
        const auto outer = [&]() -> task<> { co_await joins(o, loop.spawn(child)); };
        loop.run_until(outer());
        CHECK(o == order{"grandchild", "child", "joined"});
    }
    SECTION("by the last of two children in place, which joins") {
        const auto first = [&]() -> task<> { co_await joins(o, loop.spawn(says(o, "child"))); };
        const auto second = [&] { return says(o, "sibling"); };
        const auto both = [&]() -> task<> { co_await when_all(first, second); };
        loop.run_until(both());
        CHECK(o == order{"child", "sibling", "joined"});
    }
}

TEST_CASE_METHOD(on_loop,
                 "run_loop: the exception of a joined task reaches its joiner, and no other one") {
    const auto child = []() -> task<> {
        throw std::runtime_error("failed");
        co_return;
    };
    const auto outer = [&]() -> task<> { co_await joins(o, loop.spawn(child)); };
    loop.run_until(outer());
    CHECK(o == order{"failed"});
}

TEST_CASE_METHOD(on_loop, "run_loop: a task that is cancelled by the task that it joins is stopped",
                 "[promise.run-loop-joins]") {
    std::optional<join_handle<>> outer;
    const auto child = [&]() -> task<> {
        o.emplace_back("child");
        CHECK(outer->cancel());
        co_return;
    };
    const auto joiner = [&]() -> task<> { co_await joins(o, loop.spawn(child)); };
    outer = loop.spawn(joiner);
    loop.run();
    CHECK(o == order{"child", "stopped"});
}

TEST_CASE_METHOD(
    on_loop, "run_loop: a cancelled task that joins another one is stopped before that one runs") {
    std::optional<join_handle<>> outer;
    const auto joiner = [&]() -> task<> {
        auto child = loop.spawn(says(o, "child"));
        CHECK(outer->cancel());
        co_await joins(o, std::move(child));
    };
    outer = loop.spawn(joiner);
    loop.run();
    CHECK(o == order{"stopped", "child"});
}

TEST_CASE_METHOD(on_loop,
                 "run_loop: a join with a time-out that polls does not run the awaited task") {
    const auto outer = [&]() -> task<> {
        auto join = loop.spawn(says(o, "child")).async_join();
        const auto got = co_await std::move(join).with_timeout(0s);
        o.emplace_back(got ? "joined" : "timeout");
    };
    loop.run_until(outer());
    loop.run();
    CHECK(o == order{"timeout", "child"});
}

TEST_CASE_METHOD(on_loop,
                 "run_loop: stop() by a joined task ends the run before its joiner continues",
                 "[promise.run-loop-joins]") {
    const auto child = [&]() -> task<> {
        loop.stop();
        o.emplace_back("child");
        co_return;
    };
    const auto outer = [&]() -> task<> { co_await joins(o, loop.spawn(child)); };
    loop.spawn(outer).detach();
    loop.run();
    CHECK(o == order{"child"});
    loop.run();
    CHECK(o == order{"child", "joined"});
}

// The group of the child blocks the thread, and runs the loop inside of the child, whose joiner the
// other task cancels. The child ends only when the joiner has.
TEST_CASE_METHOD(on_loop,
                 "run_loop: a joiner goes on while the task that it joins blocks the loop's thread",
                 "[promise.run-loop-joins]") {
    event joiner_ended;
    std::optional<join_handle<>> outer;
    const auto waits = [&]() -> task<> { co_await joiner_ended.async_wait(); };
    const auto cancels = [&]() -> task<> {
        CHECK(outer->cancel());
        co_return;
    };
    const auto child = [&]() -> task<> {
        {
            task_group group(loop);
            group.spawn(waits);
            group.spawn(cancels);
        }
        o.emplace_back("child");
        co_return;
    };
    const auto joiner = [&](int depth, const auto& again) -> task<> {
        if (depth == 0) {
            co_await joins(o, loop.spawn(child));
            joiner_ended.set();
        } else {
            co_await loop.spawn(again(depth - 1, again)).async_join();
        }
        o.emplace_back("joiner");
    };
    SECTION("the joiner is stopped") {
        outer = loop.spawn(joiner(0, joiner));
        loop.run();
        CHECK(o == order{"stopped", "joiner", "child"});
    }
    SECTION("a joiner of the joiner is stopped, and the event comes from there") {
        const auto outermost = [&]() -> task<> {
            co_await joins(o, loop.spawn(joiner(1, joiner)));
            joiner_ended.set();
        };
        outer = loop.spawn(outermost);
        loop.run();
        CHECK(o == order{"stopped", "child", "joined", "joiner", "joiner"});
    }
}

TEST_CASE("run_loop: joins inside of joins take no stack without limit",
          "[promise.run-loop-joins]") {
    run_loop loop;
    const auto sum = [&](int n, const auto& again) -> task<std::uint64_t> {
        if (n == 0) {
            co_return 0;
        }
        const std::uint64_t rest = co_await loop.spawn(again(n - 1, again)).async_join();
        co_return rest + static_cast<std::uint64_t>(n);
    };
    CHECK(loop.run_until(sum(100'000, sum)) == std::uint64_t{100'000} * 100'001 / 2);
    loop.spawn(sum(32, sum)).detach();
    CHECK(loop.run() > 33); // so some of them have waited, and were resumed
}

TEST_CASE(
    "run_loop, scheduler: eight tasks run inside of the first joiner, and all wait for the ninth",
    "[promise.run-loop-joins][promise.scheduler-joins]") {
    const auto waiting = [](std::size_t inside, bool in_loop) {
        std::string text;
        if (in_loop) {
            run_loop loop;
            loop.run_until(dumps_behind(loop, inside, text));
        } else {
            scheduler s(test::with(1, true));
            s.spawn(dumps_behind(s, inside, text)).join();
        }
        return text;
    };
    const bool in_loop = GENERATE(true, false);
    CHECK(waiting(8, in_loop).find("waiting tasks: 0") != std::string::npos);
    CHECK(waiting(9, in_loop).find("waiting tasks: 9") != std::string::npos);
}

// The producer is cancelled while its inner job runs other jobs, and yields there: the call that has
// resumed it is still on the stack, but the job that it ran in has ended.
TEST_CASE_METHOD(on_loop,
                 "run_loop: a consumer gets the item of a producer that leaves a join, in time",
                 "[promise.run-loop-joins]") {
    event consumed;
    std::optional<join_handle<>> outer;
    bool in_time = false;
    const auto waits = [&]() -> task<> {
        in_time = (co_await consumed.async_wait().with_timeout(test::patience)).has_value();
    };
    const auto cancels = [&]() -> task<> {
        CHECK(outer->cancel());
        co_return;
    };
    const auto child = [&]() -> task<> {
        task_group group(loop);
        group.spawn(waits);
        group.spawn(cancels);
        co_return;
    };
    const auto produces = [&]() -> async_generator<int> {
        co_yield 1;
        co_await joins(o, loop.spawn(child));
        co_yield 2;
    };
    const auto consumes = [&]() -> task<> {
        auto items = produces();
        while (const auto item = co_await items.next()) {
            if (*item == 2) {
                consumed.set();
            }
        }
    };
    outer = loop.spawn(consumes);
    loop.run();
    CHECK(in_time);
    CHECK(o == order{"stopped"});
}

TEST_CASE("run_loop: a task that joins one task after the other lets timers and posts have turns") {
    run_loop loop;
    bool over = false;
    const auto sleeps = [&]() -> task<> {
        co_await this_task::sleep_for(1ms);
        over = true;
    };
    const auto nothing = []() -> task<> { co_return; };
    const auto busy = [&]() -> task<> {
        while (!over) {
            co_await loop.spawn(nothing()).async_join();
        }
    };
    loop.spawn(sleeps).detach();
    loop.run_until(busy());
    CHECK(over);
}

TEST_CASE("scheduler: a task that awaits the task that it spawned last does not wait for it",
          "[promise.scheduler-joins]") {
    scheduler s(test::with(1, true));
    std::string last;
    std::string other;
    const auto dumps = [&](std::string& to) -> task<> {
        to = test::dump_of(s);
        co_return;
    };
    s.spawn([&]() -> task<> {
         co_await s.spawn(dumps(last));
         auto older = s.spawn(dumps(other));
         s.spawn([] {}).detach();
         co_await std::move(older);
     }).join();
    CHECK(last.find("waiting tasks: 0") != std::string::npos);
    CHECK(other.find("waiting tasks: 1") != std::string::npos);
}

TEST_CASE("scheduler: a task that awaits another one has its outcome, and learns of its own end",
          "[promise.scheduler-joins]") {
    scheduler s(test::each_of({1})); // a thief could end the task before the await
    order o;
    std::optional<join_handle<>> outer;
    event began;
    semaphore ended(0);
    const auto fails = []() -> task<> {
        throw std::runtime_error("failed");
        co_return;
    };
    const auto cancels = [&]() -> task<> {
        o.emplace_back(outer->cancel() ? "cancelled" : "too late");
        co_return;
    };
    const auto yields = [&]() -> task<> {
        co_await yield();
        o.emplace_back("child");
    };
    outer = s.spawn([&]() -> task<> {
        co_await began.async_wait();
        co_await joins(o, s.spawn(fails));
        co_await joins(o, s.spawn(yields));
        co_await joins(o, s.spawn(cancels));
        ended.release();
    });
    began.set();
    CHECK(ended.try_acquire_for(test::patience));
    std::move(*outer).join();
    CHECK(o == order{"failed", "child", "joined", "cancelled", "stopped"});
}

// The awaited task blocks its thread until the task that awaits it has ended. The worker may be taken
// over by another thread, or not.
TEST_CASE("scheduler: a task goes on while the task that it awaits blocks the thread of both",
          "[promise.scheduler-joins]") {
    scheduler s(test::each_of({1, 3}));
    const int depth = GENERATE(0, 2);
    semaphore began(0);
    semaphore ended(0);
    semaphore over(0);
    order o;
    bool has_ended = false;
    const auto blocks = [&]() -> task<> {
        began.release();
        has_ended = ended.try_acquire_for(test::patience);
        over.release();
        co_return;
    };
    const auto joiner = [&](int left, const auto& again) -> task<> {
        if (left == 0) {
            co_await s.spawn(blocks);
        } else {
            co_await s.spawn(again(left - 1, again));
        }
        over.release();
    };
    auto outer = s.spawn([&]() -> task<> {
        co_await joins(o, s.spawn(joiner(depth, joiner)));
        ended.release(2);
    });
    CHECK(began.try_acquire_for(test::patience));
    CHECK(outer.cancel());
    std::move(outer).join();
    CHECK(over.try_acquire_for(test::patience, depth + 2)); // a shutdown would stop them
    CHECK(has_ended);
    CHECK(o.front() == "stopped");
}

TEST_CASE("scheduler: a task of a strand leaves the strand while it awaits another task",
          "[promise.scheduler-joins]") {
    scheduler s(test::with(2, true));
    strand serial(s);
    semaphore told(0);
    const auto tells = [&]() -> task<> {
        co_await serial.schedule();
        told.release();
    };
    bool was_told = false;
    const auto blocks = [&]() -> task<> {
        s.spawn(tells).detach();
        was_told = !serial.is_here() && told.try_acquire_for(test::patience); // needs the strand
        co_return;
    };
    const auto awaits = [&]() -> task<> { co_await s.spawn(blocks); };
    SECTION("a task that runs completely on it") { s.spawn(serial.run(awaits())).join(); }
    SECTION("a task that has moved to it") {
        s.spawn([&]() -> task<> {
             co_await serial.schedule();
             co_await awaits();
         }).join();
    }
    CHECK(was_told);
}

TEST_CASE("scheduler: joins inside of joins take no stack without limit, also if they block",
          "[promise.scheduler-joins]") {
    scheduler s(test::with(2, true));
    semaphore never(0);
    const bool blocks = GENERATE(false, true);
    bool is_early = false;
    const auto sum = [&](int n, const auto& again) -> task<std::uint64_t> {
        if (n == 0) {
            co_return 0;
        }
        if (blocks) {
            is_early = never.try_acquire_for(1us);
        }
        const std::uint64_t rest = co_await s.spawn(again(n - 1, again));
        co_return rest + static_cast<std::uint64_t>(n);
    };
    const int depth = blocks ? 1'000 : 50'000;
    const auto all = static_cast<std::uint64_t>(depth);
    CHECK(s.spawn(sum(depth, sum)).join() == all * (all + 1) / 2);
}

TEST_CASE("scheduler: a task that joins one task after the other lets all other jobs have turns",
          "[promise.scheduler-joins]") {
    scheduler s(test::with(1, true));
    std::atomic<int> over{0};
    const auto sleeps = [&]() -> task<> {
        co_await this_task::sleep_for(1ms);
        ++over;
    };
    const auto yields = [&]() -> task<> {
        co_await yield();
        ++over;
    };
    const auto busy = [&]() -> task<> {
        s.spawn(yields).detach();
        s.spawn(sleeps).detach();
        while (over != 3) {
            co_await s.spawn([] {});
        }
    };
    auto ends = s.spawn(busy);
    s.spawn([&] { ++over; }).join(); // from outside
    std::move(ends).join();
    CHECK(over == 3);
}

namespace {

// Executors that a program may have over a scheduler: one runs its jobs one after the other, as a
// strand does, and one runs a job inside of its post.
class serial_executor {
public:
    explicit serial_executor(scheduler& over) : over_(over) {
        run_.run = waker([](void* me) noexcept { static_cast<serial_executor*>(me)->run(); }, this);
    }
    void post(runnable& r) noexcept {
        if (const std::lock_guard section(mutex_);
            jobs_.push_back(&r), std::exchange(runs_, true)) {
            return;
        }
        over_.executor().post(run_);
    }

private:
    void run() noexcept {
        for (std::unique_lock section(mutex_); !jobs_.empty(); section.lock()) {
            runnable& next = *jobs_.front();
            jobs_.erase(jobs_.begin());
            section.unlock();
            next.run.wake();
        }
        runs_ = false;
    }

    scheduler& over_;
    runnable run_;
    std::mutex mutex_;
    std::vector<runnable*> jobs_;
    bool runs_ = false;
};

struct immediate_executor {
    void post(runnable& r) noexcept { r.run.wake(); }
};

// Reads the value of the task that runs when an object is destroyed.
task_local_value<int> depth_of_scope;
class reads_at_end {
public:
    explicit reads_at_end(const int*& to) noexcept : to_(&to) {}
    reads_at_end(reads_at_end&& other) noexcept : to_(std::exchange(other.to_, nullptr)) {}
    reads_at_end& operator=(reads_at_end&&) = delete;
    ~reads_at_end() {
        if (to_ != nullptr) {
            *to_ = depth_of_scope.get();
        }
    }

private:
    const int** to_;
};

} // namespace

TEST_CASE("scheduler: a task leaves any executor before it runs the task that it awaits",
          "[promise.scheduler-joins]") {
    scheduler s(test::with(2, true));
    semaphore told(0);
    bool was_told = false;
    const auto blocks = [&]() -> task<> {
        was_told = told.try_acquire_for(test::patience);
        co_return;
    };
    SECTION("a serial one, whose next job ends the awaited task") {
        serial_executor serial(s);
        const auto tells = [&]() -> task<> {
            co_await yield().resume_on(serial);
            told.release();
        };
        s.spawn([&]() -> task<> {
             co_await yield().resume_on(serial);
             auto teller = s.spawn(tells);
             co_await s.spawn(blocks);
             co_await std::move(teller);
         }).join();
    }
    SECTION("one that has resumed it inside of a job, which then ends the awaited task") {
        immediate_executor here;
        semaphore gate(0);
        auto joiner = s.spawn([&]() -> task<> {
            const auto passed = co_await gate.async_acquire().resume_on(here);
            co_await s.spawn(blocks);
        });
        CHECK(test::has_waiters(gate, 1));
        s.spawn([&] {
             gate.release();
             told.release();
         }).join();
        std::move(joiner).join();
    }
    CHECK(was_told);
}

TEST_CASE("scheduler: a join that names another executor continues there",
          "[promise.scheduler-joins]") {
    scheduler s(test::with(1, true));
    scheduler other(test::with(1, true));
    bool moved = false;
    s.spawn([&]() -> task<> {
         co_await s.spawn([] {}).async_join().resume_on(other);
         moved = current_worker<native_platform>() == other.executor();
     }).join();
    CHECK(moved);
}

TEST_CASE("scheduler: a deadline or a sibling stops a join while the awaited task computes",
          "[promise.scheduler-joins]") {
    std::atomic<bool> stopped{false};
    bool was_stopped = true; // if the limit ends the joiner before it spawns, nothing computes
    scheduler s(test::with(3, true));
    const auto computes = [&]() -> task<> {
        was_stopped = test::spin_until(stopped);
        co_return;
    };
    const auto joins = [&]() -> task<> { co_await s.spawn(computes); };
    const auto sleeps = []() -> task<> { co_await this_task::sleep_for(1ms); };
    const int how = GENERATE(range(0, 5));
    const auto limited = [&]() -> task<> {
        switch (how) {
        case 0: static_cast<void>(co_await with_timeout(joins(), 1ms)); break;
        case 1: static_cast<void>(co_await when_any(joins(), sleeps())); break;
        case 2: static_cast<void>(co_await when_any(sleeps(), joins())); break;
        case 3: {
            const auto inside = [&]() -> task<> { co_await when_all(joins(), sleeps()); };
            static_cast<void>(co_await when_any(sleeps(), inside()));
            break;
        }
        default: {
            const auto inside = [&]() -> task<> {
                task_group group(s);
                group.spawn(joins());
                co_await group.async_join();
            };
            static_cast<void>(co_await with_timeout(inside(), 1ms));
        }
        }
        stopped = true;
    };
    s.spawn(limited).join();
    s.shutdown();
    CHECK(was_stopped);
}

TEST_CASE("scheduler: the objects of an awaited task are destroyed while no task runs",
          "[promise.scheduler-joins]") {
    scheduler s(test::with(1, true));
    const int none = 0;
    const int* seen = &none;
    const auto child = [](reads_at_end) -> task<> { co_return; };
    const auto joiner = [&]() -> task<> {
        auto joined = s.spawn(child(reads_at_end(seen)));
        SECTION("at its end") {}
        SECTION("if it was cancelled before its start") { joined.cancel(); }
        static_cast<void>(co_await std::move(joined).async_join().as_result());
    };
    s.spawn(with_value(depth_of_scope, 1, joiner())).join();
    CHECK(seen == nullptr);
}
