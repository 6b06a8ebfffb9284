#include <mutex>

int main() {
    std::mutex mutex;
    const std::scoped_lock lock(mutex);
}
