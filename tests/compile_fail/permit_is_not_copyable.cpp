// expect: (use of deleted function|deleted copy constructor)
#include <bide/sync/permit.hpp>
#include <bide/sync/semaphore.hpp>

#include <utility>

bide::permit pass_on(bide::permit& held);

bide::permit pass_on(bide::permit& held) {
#if defined(BIDE_CONTROL)
    return std::move(held);
#else
    return held;
#endif
}
