// expect: constraints? not satisfied|unsatisfied constraints|no matching member function
#include <bide/core/waker.hpp>
#include <bide/sync/semaphore.hpp>

#include <utility>

struct runs_on_the_spot {
#if defined(BIDE_CONTROL)
    void post(bide::waker w) noexcept { w.wake(); }
#else
    void post(bide::waker w) { w.wake(); } // may throw: a wake would be lost
#endif
};

int main() {
    bide::semaphore permits(1);
    runs_on_the_spot here;
    [[maybe_unused]] const auto operation = permits.async_acquire().resume_on(here);
}
