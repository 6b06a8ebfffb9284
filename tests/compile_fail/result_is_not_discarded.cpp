// expect: nodiscard
#include <bide/sync/semaphore.hpp>

#include <stop_token>

int main() {
    bide::semaphore permits(1);
    std::stop_source source;
#if defined(BIDE_CONTROL)
    const bide::result<void> got = permits.acquire(source.get_token());
    return got ? 0 : 1;
#else
    permits.acquire(source.get_token()); // stopped? unknown
#endif
}
