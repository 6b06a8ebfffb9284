// A user of the library: two threads pass permits to each other and count under a lock.

#if defined(CONSUMER_MIXES_HEADERS)
#include <bide/sync/semaphore.hpp>
#endif

#if defined(CONSUMER_SINGLE_HEADER)
#include <bide.hpp>
#else
#include <bide/bide.hpp>
#endif

#if defined(CONSUMER_MIXES_HEADERS)
#include <bide/bide.hpp>
#include <bide/sync/mutex.hpp>
#endif

#include <functional>
#include <mutex>
#include <thread>

int main() {
    constexpr int rounds = 1000;
    bide::semaphore ping(0);
    bide::semaphore pong(0);
    bide::mutex mutex;
    int count = 0;
    const auto play = [&](bide::semaphore& mine, bide::semaphore& theirs) {
        for (int i = 0; i < rounds; ++i) {
            mine.acquire();
            {
                const std::lock_guard lock(mutex);
                ++count;
            }
            theirs.release();
        }
    };
    std::thread other(play, std::ref(ping), std::ref(pong));
    ping.release();
    play(pong, ping);
    other.join();
    return count == 2 * rounds && BIDE_VERSION_MAJOR >= 0 ? 0 : 1;
}
