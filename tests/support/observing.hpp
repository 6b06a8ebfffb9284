#ifndef BIDE_TESTS_SUPPORT_OBSERVING_HPP
#define BIDE_TESTS_SUPPORT_OBSERVING_HPP

// A platform that tells how many threads sleep in a wait. A sleeper has queued before, so a
// test can tell the order where the primitive does not tell its waiters.

#include "support/gate.hpp"

#include <bide/core/waiter.hpp>

#include <support/standard.hpp>

namespace test {

template <class Base> struct observing : Base {
    inline static std::atomic<int> asleep{0};

    template <class Word>
    static bool futex_wait(const std::atomic<Word>& word, Word expected,
                           std::int64_t until) noexcept {
        constexpr bool is_wait = std::is_same_v<Word, bide::wait_status>; // and not for a lock
        if constexpr (is_wait) {
            asleep.fetch_add(1);
        }
        const bool in_time = Base::futex_wait(word, expected, until);
        if constexpr (is_wait) {
            asleep.fetch_sub(1);
        }
        return in_time;
    }
};

// Polls until that many threads sleep.
template <class Base> bool are_asleep(int n) {
    return eventually([n] { return observing<Base>::asleep.load() == n; });
}

} // namespace test

#endif
