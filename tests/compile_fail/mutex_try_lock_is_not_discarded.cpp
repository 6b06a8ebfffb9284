// expect: nodiscard
#include <bide/sync/mutex.hpp>

int main() {
    bide::mutex m;
#if defined(BIDE_CONTROL)
    return m.try_lock() ? 0 : 1;
#else
    m.try_lock(); // locked or not?
#endif
}
