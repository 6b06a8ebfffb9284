// expect: name it
#include <bide/sync/semaphore.hpp>

int main() {
    bide::semaphore permits(1);
#if defined(BIDE_CONTROL)
    const bide::permit held(permits, 1);
#else
    bide::permit(permits, 1); // given back at once
#endif
}
