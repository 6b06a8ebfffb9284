#include <bide/core/executor.hpp>
#include <bide/core/result.hpp>
#include <bide/core/waker.hpp>
#include <bide/sync/barrier.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/permit.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>

#include <memory>
#include <stop_token>
#include <utility>

void async_op_has_two_stop_tokens() { // 1: takes two stop tokens at most
    bide::semaphore permits(1);
    std::stop_token stop;
    [[maybe_unused]] auto two = permits.async_acquire().with_stop(stop).with_stop(stop);
#if BIDE_MISUSE == 1
    [[maybe_unused]] auto three = std::move(two).with_stop(stop);
#endif
}

bide::task<>
async_op_is_awaited_as_an_rvalue(bide::semaphore& permits) { // 2: operator co_await|await_ready
    auto operation = permits.async_acquire();
#if BIDE_MISUSE != 2
    const bide::permit held = co_await std::move(operation);
#else
    const bide::permit held = co_await operation; // it could be awaited twice
#endif
}

void async_op_is_not_copyable() { // 3: deleted (copy )?(function|constructor)|is deleted|implicitly-deleted
    bide::event ready;
    auto operation = ready.async_wait();
#if BIDE_MISUSE != 3
    [[maybe_unused]] const auto other = std::move(operation);
#else
    [[maybe_unused]] const auto other = operation;
#endif
}

void async_op_is_not_discarded() { // 4: co_await it
    bide::semaphore permits(1);
#if BIDE_MISUSE != 4
    [[maybe_unused]] const auto operation = permits.async_acquire();
#else
    permits.async_acquire(); // does nothing
#endif
}

void barrier_completion_does_not_throw() { // 5: is noexcept
#if BIDE_MISUSE != 5
    bide::barrier b(1, []() noexcept {});
#else
    bide::barrier b(1, [] {}); // the other threads wait for it: it cannot fail
#endif
    b.arrive_and_wait();
}

void permit_has_no_release() { // 6: no member named .*release
    bide::semaphore permits(1);
    bide::permit held(permits);
#if BIDE_MISUSE != 6
    held.reset();
#else
    held.release(); // std::unique_lock's would forget the lock, a semaphore's would give it back
#endif
}

namespace permit_is_not_copyable { // 7: (use of deleted function|deleted copy constructor)
bide::permit pass_on(bide::permit& held) {
#if BIDE_MISUSE != 7
    return std::move(held);
#else
    return held;
#endif
}
} // namespace permit_is_not_copyable

void permit_is_not_discarded() { // 8: nodiscard
    bide::semaphore permits(1);
    bide::permit held(permits);
#if BIDE_MISUSE != 8
    const bide::permit part = held.split(1);
#else
    held.split(1); // given back at once
#endif
}

void permit_is_not_unnamed() { // 9: name it
    bide::semaphore permits(1);
#if BIDE_MISUSE != 9
    const bide::permit held(permits, 1);
#else
    bide::permit(permits, 1); // given back at once
#endif
}

int result_has_no_references() { // 10: of object types
    int value = 0;
#if BIDE_MISUSE != 10
    const bide::result<int*> answer(&value);
#else
    const bide::result<int&> answer(value);
#endif
    return answer ? 0 : 1;
}

int result_is_not_discarded() { // 11: nodiscard
    bide::semaphore permits(1);
    std::stop_source source;
#if BIDE_MISUSE != 11
    const bide::result<void> got = permits.acquire(source.get_token());
    return got ? 0 : 1;
#else
    permits.acquire(source.get_token()); // stopped? unknown
#endif
}

namespace resume_on_takes_an_executor { // 12: constraints? not satisfied|unsatisfied constraints|no matching member function
struct runs_on_the_spot {
#if BIDE_MISUSE != 12
    void post(bide::waker w) noexcept { w.wake(); }
#else
    void post(bide::waker w) { w.wake(); } // may throw: a wake would be lost
#endif
};

void use() {
    bide::semaphore permits(1);
    runs_on_the_spot here;
    [[maybe_unused]] const auto operation = permits.async_acquire().resume_on(here);
}
} // namespace resume_on_takes_an_executor

namespace scheduler_is_named_by_reference { // 13: by reference or by pointer
struct runs_on_the_spot {
    void post(bide::waker w) noexcept { w.wake(); }
};

struct promise {
#if BIDE_MISUSE != 13
    runs_on_the_spot& get_scheduler() { return here; }
#else
    runs_on_the_spot get_scheduler() { return here; } // posting to a copy that is gone
#endif
    runs_on_the_spot here;
};

int use() {
    promise p;
    return bide::executor_of(p) ? 0 : 1;
}
} // namespace scheduler_is_named_by_reference

void semaphore_is_not_copyable() { // 14: deleted (function|constructor)|is deleted
    bide::semaphore permits(1);
#if BIDE_MISUSE != 14
    bide::semaphore& other = permits;
#else
    bide::semaphore other(permits);
#endif
    other.release();
}

void semaphore_is_not_movable() { // 15: deleted (function|constructor)|is deleted
    auto permits = std::make_unique<bide::semaphore>(1);
#if BIDE_MISUSE != 15
    auto moved = std::move(permits);
    moved->release();
#else
    bide::semaphore moved(std::move(*permits));
    moved.release();
#endif
}

int semaphore_try_acquire_is_not_discarded() { // 16: nodiscard
    bide::semaphore permits(1);
#if BIDE_MISUSE != 16
    return permits.try_acquire() ? 0 : 1;
#else
    permits.try_acquire(); // acquired or not?
#endif
}

int semaphore_waiter_is_not_copyable() { // 17: deleted (function|constructor)|is deleted
    bide::semaphore permits(1);
    bide::semaphore::waiter w(1, bide::waker());
#if BIDE_MISUSE != 17
    bide::semaphore::waiter& queued = w;
#else
    bide::semaphore::waiter queued = w;
#endif
    return permits.acquire_wait(queued) ? 0 : 1;
}
