#ifndef BIDE_TESTS_SUPPORT_LIFETIME_HPP
#define BIDE_TESTS_SUPPORT_LIFETIME_HPP

// A platform that shows when a primitive's state is destroyed, without a sanitizer.

#include "support/coroutines.hpp"
#include "support/gate.hpp"
#include "support/platforms.hpp"

#include <bide/core/waiter.hpp>

#include <support/standard.hpp>

namespace test {

struct mortal : native {
    // Counts of handles and of references that were destroyed.
    inline static std::atomic<int> gone{0};
    // While it is set, a thread that slept in a wait stays inside the wait.
    inline static std::atomic<bool> holds{false};

    template <class T> struct atomic : std::atomic<T> {
        using std::atomic<T>::atomic;
        ~atomic() {
            if constexpr (std::is_same_v<T, std::uint64_t> || std::is_same_v<T, std::size_t>) {
                ++gone;
            }
        }
    };

    template <class Word>
    static bool futex_wait(const std::atomic<Word>& word, Word expected,
                           std::int64_t until) noexcept {
        const bool in_time = native::futex_wait(word, expected, until);
        if constexpr (std::is_same_v<Word, bide::wait_status>) {
            eventually([] { return !holds.load(); });
        }
        return in_time;
    }
};

// Waits with an operation that was made before.
template <class Op> held await_op(Op op) {
    const auto got = co_await std::move(op);
    static_cast<void>(got);
}

} // namespace test

#endif
