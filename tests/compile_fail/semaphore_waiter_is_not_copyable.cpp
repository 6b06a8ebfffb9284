// expect: deleted (function|constructor)|is deleted
#include <bide/sync/semaphore.hpp>

int main() {
    bide::semaphore permits(1);
    bide::semaphore::waiter w(1, bide::waker());
#if defined(BIDE_CONTROL)
    bide::semaphore::waiter& queued = w;
#else
    bide::semaphore::waiter queued = w;
#endif
    return permits.acquire_wait(queued) ? 0 : 1;
}
