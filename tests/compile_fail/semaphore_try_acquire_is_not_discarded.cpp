// expect: nodiscard
#include <bide/sync/semaphore.hpp>

int main() {
    bide::semaphore permits(1);
#if defined(BIDE_CONTROL)
    return permits.try_acquire() ? 0 : 1;
#else
    permits.try_acquire(); // acquired or not?
#endif
}
