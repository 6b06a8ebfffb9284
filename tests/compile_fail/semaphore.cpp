#include <bide/core/executor.hpp>
#include <bide/core/result.hpp>
#include <bide/core/resume.hpp>
#include <bide/sync/barrier.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>

#include <stop_token>
#include <utility>

void async_op_has_two_stop_tokens(bide::semaphore& permits) { // takes two stop tokens at most
    std::stop_token stop;
    auto two = permits.async_acquire().with_stop(stop).with_stop(stop);
    [[maybe_unused]] auto three = std::move(two);
    //! [[maybe_unused]] auto three = std::move(two).with_stop(stop);
}

bide::task<> async_op_is_awaited_as_an_rvalue(bide::event& e) { // operator co_await|await_ready
    auto operation = e.async_wait();
    co_await std::move(operation);
    //! co_await operation; // it could be awaited twice
}

void async_op_is_not_copyable() { // deleted (copy )?(function|constructor)|is deleted|implicitly-deleted
    bide::event ready;
    auto operation = ready.async_wait();
    [[maybe_unused]] const auto other = std::move(operation);
    //! [[maybe_unused]] const auto other = operation;
}

void async_op_is_not_discarded(bide::semaphore& permits) { // co_await it
    [[maybe_unused]] const auto operation = permits.async_acquire();
    //! permits.async_acquire(); // does nothing
}

void barrier_completion_does_not_throw() { // is noexcept
    bide::barrier b(1, []() noexcept {});
    //! bide::barrier b(1, [] {}); // the other threads wait for it: it cannot fail
    b.arrive_and_wait();
}

void permit_has_no_release(bide::permit& held) { // no member named .*release
    held.reset();
    //! held.release(); // std::unique_lock's would forget the lock, a semaphore's would give it back
}

bide::permit permit_is_not_copyable(bide::permit& held) { // use of deleted function|deleted copy
    return std::move(held);
    //! return held;
}

void permit_is_not_discarded(bide::permit& held) { // nodiscard
    const bide::permit part = held.split(1);
    //! held.split(1); // given back at once
}

void permit_is_not_unnamed(bide::semaphore& permits) { // name it
    const bide::permit held(permits, 1);
    //! bide::permit(permits, 1); // given back at once
}

int result_has_no_references(int& value) { // of object types
    const bide::result<int*> answer(&value);
    //! const bide::result<int&> answer(value);
    return answer ? 0 : 1;
}

bool result_is_not_discarded(bide::semaphore& permits, std::stop_token stop) { // nodiscard
    return permits.acquire(stop).has_value();
    //! permits.acquire(stop); // stopped? unknown
}

namespace resume_on_takes_an_executor { // constraints? not satisfied|unsatisfied constraints|no matching member function
struct runs_on_the_spot {
    void post(bide::waker w) noexcept { w.wake(); }
    //! void post(bide::waker w) { w.wake(); } // may throw: a wake would be lost
};

void use(bide::semaphore& permits, runs_on_the_spot& here) {
    [[maybe_unused]] const auto operation = permits.async_acquire().resume_on(here);
}
} // namespace resume_on_takes_an_executor

namespace scheduler_is_named_by_reference { // by reference or by pointer
struct runs_on_the_spot {
    void post(bide::waker w) noexcept { w.wake(); }
};

struct promise {
    runs_on_the_spot& get_scheduler() { return here; }
    //! runs_on_the_spot get_scheduler() { return here; } // posting to a copy that is gone
    runs_on_the_spot here;
};

int use(promise& p) { return bide::executor_of(p) ? 0 : 1; }
} // namespace scheduler_is_named_by_reference

void semaphore_is_not_copyable() { // deleted (function|constructor)|is deleted
    bide::semaphore permits(1);
    bide::semaphore& other = permits;
    //! bide::semaphore other(permits);
    other.release();
}

void semaphore_is_not_movable() { // deleted (function|constructor)|is deleted
    bide::semaphore permits(1);
    bide::semaphore&& moved(std::move(permits));
    //! bide::semaphore moved(std::move(permits));
    moved.release();
}

bool semaphore_try_acquire_is_not_discarded(bide::semaphore& permits) { // nodiscard
    return permits.try_acquire();
    //! permits.try_acquire(); // acquired or not?
}

void semaphore_waiter_is_not_copyable() { // deleted (function|constructor)|is deleted
    bide::semaphore::waiter w(1, bide::waker());
    bide::semaphore::waiter& queued = w;
    //! bide::semaphore::waiter queued = w;
    static_cast<void>(queued);
}
