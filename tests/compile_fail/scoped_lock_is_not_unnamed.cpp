// expect: name it
#include <bide/sync/mutex.hpp>
#include <bide/sync/scoped_lock.hpp>

int main() {
    bide::mutex a;
    bide::mutex b;
#if defined(BIDE_CONTROL)
    const bide::scoped_lock held(a, b);
#else
    bide::scoped_lock(a, b); // unlocked at once
#endif
}
