#ifndef BIDE_TESTS_SUPPORT_TWO_THREADS_HPP
#define BIDE_TESTS_SUPPORT_TWO_THREADS_HPP

#include <support/gate.hpp>
#include <support/standard.hpp>

namespace test {

// Holds the thread that comes first until another thread has come, so that a part of an algorithm
// is stolen. The body of the algorithm calls come().
class two_threads {
public:
    void come() {
        const std::thread::id me = std::this_thread::get_id();
        std::thread::id first;
        if (first_.compare_exchange_strong(first, me)) {
            eventually([this] { return met_.load(); }, patience / 4);
        } else if (first != me) {
            met_.store(true);
        }
    }

    bool met() const { return met_.load(); }

private:
    std::atomic<std::thread::id> first_{};
    std::atomic<bool> met_{false};
};

} // namespace test

#endif
