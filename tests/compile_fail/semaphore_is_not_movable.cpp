// expect: deleted (function|constructor)|is deleted
#include <bide/sync/semaphore.hpp>

#include <memory>
#include <utility>

int main() {
    auto permits = std::make_unique<bide::semaphore>(1);
#if defined(BIDE_CONTROL)
    auto moved = std::move(permits);
    moved->release();
#else
    bide::semaphore moved(std::move(*permits));
    moved.release();
#endif
}
