// expect: by reference or by pointer
#include <bide/core/executor.hpp>

struct runs_on_the_spot {
    void post(bide::waker w) noexcept { w.wake(); }
};

struct promise {
#if defined(BIDE_CONTROL)
    runs_on_the_spot& get_scheduler() { return here; }
#else
    runs_on_the_spot get_scheduler() { return here; } // posting to a copy that is gone
#endif
    runs_on_the_spot here;
};

int main() {
    promise p;
    return bide::executor_of(p) ? 0 : 1;
}
