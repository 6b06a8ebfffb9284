#include <bide/sync/mutex.hpp>

#include <mutex>

int main() {
    bide::mutex mutex;
    const std::scoped_lock lock(mutex);
}
