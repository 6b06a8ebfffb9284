// expect: no member named .*release
#include <bide/sync/semaphore.hpp>

int main() {
    bide::semaphore permits(1);
    bide::permit held(permits);
#if defined(BIDE_CONTROL)
    held.reset();
#else
    held.release(); // std::unique_lock's would forget the lock, a semaphore's would give it back
#endif
}
