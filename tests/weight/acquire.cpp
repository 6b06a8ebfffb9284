// A semaphore's acquire(), until its thread sleeps.

#include "entered.hpp"

#include <bide/sync/semaphore.hpp>

#include <chrono>
#include <thread>

int main() {
    bide::semaphore permits(0);
    std::thread releaser([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300)); // until main() sleeps
        weight::end();
        permits.release();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100)); // until the releaser does
    weight::begin();
    permits.acquire();
    releaser.join();
}
