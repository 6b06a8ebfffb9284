#include <bide/core/executor.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sync/event.hpp>
#include <support/sched.hpp>

// What a scheduler and a run_loop have in common, for a caller that knows a task_runner alone.

using namespace bide;

static_assert(!std::is_copy_constructible_v<task_runner> &&
              !std::is_move_assignable_v<task_runner>);
static_assert(executor<task_runner>);

namespace {

task<int> number(int n) {
    co_await this_task::yield();
    co_return n;
}

task<int> sum_on(task_runner& where) {
    auto one = where.spawn(number(1));
    auto two = where.spawn([] { return 2; });
    auto three = where.spawn([x = std::make_unique<int>(3)]() -> task<int> {
        co_await this_task::yield();
        co_return *x;
    });
    int sum = co_await std::move(one).async_join();
    sum += co_await std::move(two).async_join();
    sum += co_await std::move(three).async_join();
    co_return sum;
}

task<bool> moves_to(task_runner& where) {
    co_await where.schedule();
    co_return current_worker<native_platform>() == where.executor();
}

task<bool> waits_for_post(task_runner& where) {
    event ran;
    where.post(waker([](void* e) noexcept { static_cast<event*>(e)->set(); }, &ran));
    co_await ran.async_wait();
    co_return true;
}

} // namespace

TEST_CASE("task_runner: the same function starts its tasks on a scheduler and on a run_loop",
          "[promise.task-runner]") {
    scheduler s;
    run_loop loop;
    CHECK(sync_wait(s, sum_on(s)) == 6);
    CHECK(loop.run_until(sum_on(loop)) == 6);
}

TEST_CASE("task_runner: schedule() and executor() lead to the runner, and post() runs there",
          "[promise.task-runner]") {
    scheduler s;
    run_loop loop;
    CHECK(sync_wait(moves_to(s)));
    CHECK(sync_wait(s, waits_for_post(s)));
    CHECK(loop.run_until(moves_to(loop)));
    CHECK(loop.run_until(waits_for_post(loop)));
    CHECK_FALSE(s.executor() == loop.executor());
}
