// expect: nodiscard
#include <bide/sync/semaphore.hpp>

int main() {
    bide::semaphore permits(1);
    bide::permit held(permits);
#if defined(BIDE_CONTROL)
    const bide::permit part = held.split(1);
#else
    held.split(1); // given back at once
#endif
}
