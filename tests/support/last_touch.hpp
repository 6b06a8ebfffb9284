#ifndef BIDE_TESTS_SUPPORT_LAST_TOUCH_HPP
#define BIDE_TESTS_SUPPORT_LAST_TOUCH_HPP

// A thread that observed success may destroy a primitive at once. Here helpers act on one that its owner
// destroys the moment its own wait is over, round after round; its place is filled with a pattern
// then, so that a helper that comes back to it shows, with a sanitizer or without.

#include "support/gate.hpp"
#include "support/jitter.hpp"
#include <support/standard.hpp>

namespace test {

// In each round: make(place, round) constructs a T there, help(T&) is run by each of `helpers`
// threads, wait(T&, round) by this one, which then destroys it. Returns in how many rounds the
// place was written to afterwards. On a machine that is busy with other things a round takes as long
// as their time slices: there are fewer then.
template <class T, class Make, class Help, class Wait>
int late_touches(int helpers, int rounds, Make make, Help help, Wait wait, where at = where()) {
    struct alignas(128) order {
        std::atomic<T*> object{nullptr};
    };
    order orders[8];
    std::atomic<bool> over{false};
    team helping(
        helpers,
        [&](int i) {
            while (!over) {
                if (T* const object = orders[i].object.exchange(nullptr)) {
                    help(*object);
                } else {
                    std::this_thread::yield();
                }
            }
        },
        patience, at);
    int touched = 0;
    jitter pause(run_seed());
    alignas(T) unsigned char place[sizeof(T)];
    unsigned char pattern[sizeof(T)];
    std::memset(pattern, 0xa5, sizeof pattern);
    const std::int64_t enough = bide::native_platform::now() + 1'500'000'000;
    for (int round = 0; round < rounds && bide::native_platform::now() < enough; ++round) {
        T* const object = make(static_cast<void*>(place), round);
        for (int i = 0; i < helpers; ++i) {
            orders[i].object = object;
        }
        pause();
        wait(*object, round);
        object->~T();
        std::memset(place, 0xa5, sizeof place);
        pause();
        touched += std::memcmp(place, pattern, sizeof place) != 0 ? 1 : 0;
    }
    over = true;
    helping.join();
    return touched;
}

} // namespace test

#endif
