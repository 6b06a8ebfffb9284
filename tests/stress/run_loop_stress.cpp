#include <bide/sched/run_loop.hpp>
#include <bide/sync/semaphore.hpp>
#include <support/sched.hpp>

// Threads spawn into a loop and release permits to its tasks, while one thread runs it, now by
// run(), now by short slices. Each task runs to its end once, on that thread.

using namespace bide;

TEST_CASE("run_loop: no task and no wake is lost between threads that spawn and the one that runs",
          "[promise.run-loop-thread]") {
    constexpr int spawners = 3;
    semaphore permits(2);
    std::atomic<long> spawned{0};
    long ran = 0; // plain: tasks run on one thread
    long elsewhere = 0;
    std::atomic<int> left{spawners};
    std::optional<run_loop> loop(std::in_place);
    test::players(spawners + 1, [&](int me, test::jitter& chance) {
        if (me < spawners) {
            for (const test::stress_time time; time.is_left();) {
                ++spawned;
                loop->spawn([&]() -> task<> {
                        const auto runner = std::this_thread::get_id();
                        const auto permit = co_await permits.async_acquire();
                        co_await this_task::yield();
                        elsewhere += std::this_thread::get_id() == runner ? 0 : 1;
                        ++ran;
                    })
                    .detach();
                if (permits.try_acquire()) { // so that tasks wait for this thread
                    chance();
                    permits.release();
                }
                chance();
            }
            --left;
            loop->stop();
            return;
        }
        while (left != 0 || loop->tasks() != 0) {
            switch (chance.below(3)) {
            case 0: loop->run(); break;
            case 1: loop->run_for(chance.rest(15)); break;
            default: loop->poll(); break;
            }
        }
    });
    loop.reset();
    CHECK(ran == spawned);
    CHECK(elsewhere == 0);
    CHECK(permits.available() == 2);
}

TEST_CASE("run_loop: the loop may be destroyed as soon as a thread's last post has run",
          "[promise.run-loop-destructor]") {
    long done = 0;
    long rounds = 0;
    for (const test::stress_time time; time.is_left(); ++rounds) {
        std::optional<run_loop> loop(std::in_place);
        auto ends = loop->spawn([&]() -> task<> {
            co_await this_task::yield();
            ++done;
        });
        semaphore go(0);
        loop->spawn([&]() -> task<> {
                const auto permit = co_await go.async_acquire();
                ++done;
            })
            .detach();
        std::thread poster([&] { go.release(); });
        loop->run();
        loop.reset();
        poster.join();
        std::move(ends).join();
    }
    CHECK(done == 2 * rounds);
}
