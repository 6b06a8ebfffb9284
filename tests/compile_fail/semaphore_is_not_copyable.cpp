// expect: deleted (function|constructor)|is deleted
#include <bide/sync/semaphore.hpp>

int main() {
    bide::semaphore permits(1);
#if defined(BIDE_CONTROL)
    bide::semaphore& other = permits;
#else
    bide::semaphore other(permits);
#endif
    other.release();
}
