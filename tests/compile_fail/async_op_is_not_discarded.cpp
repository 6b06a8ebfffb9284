// expect: co_await it
#include <bide/sync/semaphore.hpp>

int main() {
    bide::semaphore permits(1);
#if defined(BIDE_CONTROL)
    [[maybe_unused]] const auto operation = permits.async_acquire();
#else
    permits.async_acquire(); // does nothing
#endif
}
