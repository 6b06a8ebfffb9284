// expect: pass the mutexes, not a std::unique_lock
#include <bide/sync/mutex.hpp>
#include <bide/sync/scoped_lock.hpp>

#include <mutex>

int main() {
    bide::mutex a;
    bide::mutex b;
#if defined(BIDE_CONTROL)
    const bide::scoped_lock held(a, b);
#else
    std::unique_lock lock(a, std::defer_lock);
    const bide::scoped_lock held(lock, b); // in the order of the locks' addresses: deadlocks
#endif
}
