#include <bide/task/strand.hpp>

#include <bide/sched/executor_runner.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/compose.hpp>
#include <support/coroutines.hpp>
#include <support/death.hpp>
#include <support/rounds.hpp>
#include <support/tasks.hpp>

using bide::scheduler;
using bide::strand;
using bide::task;
using test::workers;
namespace this_task = bide::this_task;

static_assert(bide::executor<strand>);

namespace {

// A runnable that notes its number, and whether it runs on the strand.
struct note {
    note(std::vector<int>& to, const strand& on, int n) : list(to), here(on), number(n) {
        to_run.run = bide::waker(
            [](void* self) noexcept {
                auto& me = *static_cast<note*>(self);
                me.list.push_back(me.here.is_here() ? me.number : -1); // a race if two run
            },
            this);
    }
    std::vector<int>& list;
    const strand& here;
    const int number;
    bide::runnable to_run;
};

} // namespace

TEST_CASE("strand: runs what is posted in the order of the posts, on the threads of its executor",
          "[promise.strand-serial]") {
    test::manual_executor where;
    strand on(where);
    std::vector<int> seen;
    std::vector<std::unique_ptr<note>> all;
    for (int i = 0; i < 200; ++i) {
        all.push_back(std::make_unique<note>(seen, on, i));
    }
    for (int i = 0; i < 100; ++i) {
        on.post(all[static_cast<std::size_t>(i)]->to_run);
    }
    CHECK(where.size() == 1); // one runner
    CHECK(seen.empty());
    CHECK(where.run_one());
    CHECK(seen.size() == 64); // then others of the executor have their turn
    CHECK(where.size() == 1);
    for (int i = 100; i < 200; ++i) {
        on.post(all[static_cast<std::size_t>(i)]->to_run);
    }
    CHECK(where.size() == 1);
    where.run_all();
    REQUIRE(seen.size() == 200);
    for (int i = 0; i < 200; ++i) {
        CHECK(seen[static_cast<std::size_t>(i)] == i);
    }
    CHECK_FALSE(on.is_here());
}

TEST_CASE("strand: a task is on it from schedule() until it waits, and all the time in run()",
          "[promise.strand-serial]") {
    scheduler s(workers(2));
    strand on(s);
    const auto steps = [&]() -> task<bool> {
        bool good = on.is_here();
        co_await this_task::yield();
        good = good && on.is_here();
        co_await this_task::sleep_for(1ms);
        good = good && on.is_here();
        const auto inner = [&]() -> task<bool> {
            co_await this_task::sleep_for(1ms);
            co_return on.is_here();
        };
        good = good && co_await inner();
        co_return good&& on.is_here();
    };
    const auto hops = [&]() -> task<bool> {
        bool good = !on.is_here();
        co_await on.schedule();
        good = good && on.is_here();
        co_await this_task::sleep_for(1ms);
        good = good && !on.is_here();
        good = good && co_await on.run(steps());
        co_return good && !on.is_here() && scheduler::current() == &s;
    };
    CHECK(s.spawn(hops()).join());
    CHECK(s.spawn(on.run(steps())).join());
    CHECK(bide::sync_wait(on.run(steps())));
}

TEST_CASE("strand: run() passes values, references and exceptions on, and leaves the strand") {
    scheduler s(workers(2));
    strand on(s);
    int place = 7;
    const auto reference = [&]() -> task<int&> { co_return place; };
    const auto moved = []() -> task<std::unique_ptr<int>> { co_return std::make_unique<int>(3); };
    const auto fails = []() -> task<> {
        co_await this_task::yield();
        throw std::runtime_error("fails");
    };
    const auto all = [&]() -> task<std::string> {
        int& got = co_await on.run(reference());
        std::unique_ptr<int> own = co_await on.run(moved());
        std::string what;
        try {
            co_await on.run(fails());
        } catch (const std::runtime_error& e) {
            what = e.what();
        }
        co_return std::to_string(got + *own) + what + (on.is_here() ? " here" : "");
    };
    CHECK(s.spawn(all()).join() == "10fails");
}

TEST_CASE("strand: tasks that run() never overlap, and others run while one waits",
          "[promise.strand-serial]") {
    test::rounds([](std::uint32_t) {
        scheduler s(workers(3));
        strand on(s);
        int unguarded = 0;
        int inside = 0;
        bool overlapped = false;
        const auto adds = [&]() -> task<> {
            for (int i = 0; i < 20; ++i) {
                overlapped = overlapped || inside++ != 0;
                ++unguarded;
                --inside;
                if (i % 5 == 0) {
                    co_await this_task::sleep_for(1us);
                } else {
                    co_await this_task::yield();
                }
            }
        };
        bide::task_group g(s);
        for (int i = 0; i < 10; ++i) {
            g.spawn(on.run(adds()));
        }
        g.join();
        REQUIRE(unguarded == 200);
        REQUIRE_FALSE(overlapped);
    });
}

TEST_CASE("strand: may be destroyed as soon as its tasks have ended, were cancelled or destroyed",
          "[promise.home-outlives-tasks]") {
    test::rounds([](std::uint32_t round) {
        scheduler s(workers(2));
        bide::semaphore none(0), told(0);
        strand on(s);
        const auto waits = [&]() -> task<> { const auto permit = co_await none.async_acquire(); };
        const auto resumes = [&]() -> task<> {
            const auto permit = co_await none.async_acquire().resume_on(on);
        };
        const auto tells = [&]() -> task<> {
            told.release(); // its last step is on the strand
            co_return;
        };
        static_cast<void>(on.run(waits())); // never runs
        s.spawn(on.run(tells())).detach();
        bide::spawn(on, tells).detach();
        bide::task_group g(s);
        g.spawn(on.run(waits()));
        g.spawn(on.run(resumes()));
        g.spawn(resumes);
        if (round % 2 == 0) {
            told.acquire(2);
        }
        g.cancel();
        g.join();
        told.acquire(round % 2 == 0 ? 0 : 2);
    });
}

TEST_CASE("strand: a cancellation reaches a task that waits on it") {
    scheduler s(workers(1));
    strand on(s);
    std::atomic<bool> waits{false};
    const auto stuck = [&]() -> task<> {
        bide::semaphore none(0);
        waits = true;
        const auto permit = co_await none.async_acquire();
    };
    auto h = s.spawn(on.run(stuck()));
    REQUIRE(test::eventually([&] { return waits.load(); }));
    h.cancel();
    CHECK(test::ended_by_stop(std::move(h)));
    CHECK(s.spawn(on.run([&]() -> task<bool> { co_return on.is_here(); }())).join());
}

TEST_CASE(
    "strand: after its last runnable it leaves nothing in its executor, however many there were") {
    test::manual_executor where;
    std::vector<int> seen;
    std::vector<std::unique_ptr<note>> all;
    for (const int count : {1, 63, 64, 65, 128}) { // 64 at a time
        seen.clear();
        all.clear();
        strand on(where); // its destructor would wait for ever for a runner that is not run
        for (int i = 0; i < count; ++i) {
            all.push_back(std::make_unique<note>(seen, on, i));
            on.post(all.back()->to_run);
        }
        while (seen.size() < static_cast<std::size_t>(count)) {
            REQUIRE(where.run_one());
        }
        REQUIRE(where.size() == 0);
    }
}

TEST_CASE("strand: the destructor waits until the last runnable has left the strand",
          "[promise.strand-serial]") {
    test::manual_executor where;
    auto on = std::make_unique<strand>(where);
    struct lingers {
        lingers() noexcept {
            to_run.run = bide::waker(
                [](void* self) noexcept {
                    auto& me = *static_cast<lingers*>(self);
                    me.told.set();
                    me.is_destroying.wait();
                    for (int i = 0; i < 1'000; ++i) {
                        std::this_thread::yield();
                    }
                    me.left = true;
                },
                this);
        }
        bide::event told;
        bide::event is_destroying;
        bool left = false; // a race if the destructor does not wait
        bide::runnable to_run;
    } last;
    on->post(last.to_run);
    std::thread runs([&] { where.run_all(); });
    last.told.wait();
    last.is_destroying.set();
    on.reset();
    CHECK(last.left);
    runs.join();
}

#if BIDE_TESTS_CAN_DIE
TEST_CASE(
    "strand: one that is destroyed by what runs on it terminates the program, with a message") {
    const std::string said = test::dies([] {
        test::manual_executor where;
        static std::unique_ptr<strand> on;
        on = std::make_unique<strand>(where);
        bide::runnable ends;
        ends.run = bide::waker([](void*) noexcept { on.reset(); }, nullptr);
        on->post(ends);
        where.run_all();
    });
    CHECK(said.find("strand") != said.npos);
    CHECK(said.find("destroyed by what runs on it") != said.npos);
}

TEST_CASE("strand: one that is destroyed before a task of its own terminates, with a message",
          "[promise.home-outlives-tasks]") {
    const auto dies_with = [](auto begin) {
        const std::string said = test::dies([&] {
            static std::optional<task<>> unrun;
            bide::semaphore none(0);
            test::manual_executor where;
            strand on(where);
            const auto waits = [&](auto op) -> task<> { const auto one = co_await std::move(op); };
            begin(where, on, none, waits, unrun);
            where.run_all();
        });
        return said.find("strand") != said.npos &&
               said.find("destroyed while tasks are to resume on it: 1") != said.npos;
    };
    CHECK(dies_with([](auto& where, strand& on, bide::semaphore& none, auto waits, auto&) {
        bide::spawn(where, on.run(waits(none.async_acquire()))).detach();
    }));
    CHECK(dies_with([](auto& where, strand& on, bide::semaphore& none, auto waits, auto&) {
        bide::spawn(where, waits(none.async_acquire().resume_on(on))).detach();
    }));
    CHECK(dies_with([](auto&, strand& on, bide::semaphore& none, auto waits, auto&) {
        bide::spawn(on, waits(none.async_acquire())).detach();
    }));
    CHECK(dies_with([](auto&, strand& on, bide::semaphore& none, auto waits, auto& unrun) {
        unrun.emplace(on.run(waits(none.async_acquire())));
    }));
}
#endif
