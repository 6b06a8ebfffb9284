#ifndef BIDE_TESTS_SUPPORT_IS_FREE_HPP
#define BIDE_TESTS_SUPPORT_IS_FREE_HPP

#include <thread>

namespace test {

// Returns true if another thread can lock the mutex now. It does so for a moment. (The owner of a
// std::mutex must not ask.)
template <class Mutex> bool is_free(Mutex& m) {
    bool got = false;
    std::thread([&] {
        got = m.try_lock();
        if (got) {
            m.unlock();
        }
    }).join();
    return got;
}

} // namespace test

#endif
