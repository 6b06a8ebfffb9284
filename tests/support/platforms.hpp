#ifndef BIDE_TESTS_SUPPORT_PLATFORMS_HPP
#define BIDE_TESTS_SUPPORT_PLATFORMS_HPP

// What is instantiated for the system's futex is instantiated for others, too:
// TEMPLATE_TEST_CASE("...", "", test::native, test::portable, test::jittery).

#include <bide/core/detail/futex_other.hpp>
#include <bide/core/platform.hpp>
#include <support/jitter.hpp>
#include <support/standard.hpp>

namespace test {

using native = bide::native_platform;

// The futex of systems that have none. In a build that need not say the same of both, for another
// one does, the system's stands in: half of the templates, half of the time.
#if defined(BIDE_TEST_ONE_FUTEX)
using portable = native;
#else
using portable = bide::basic_native_platform<bide::detail::portable_futex>;
#endif

// The system's futex on a bad day: a random delay before each step on an atomic, which makes a
// window of nanoseconds one of microseconds, and now and then a sleep that ends for no reason (not
// so often that it would hide a lost wakeup).
struct jittery : native {
    static jitter& chance() noexcept {
        static std::atomic<std::uint32_t> threads{0};
        thread_local jitter mine(run_seed() + ++threads);
        return mine;
    }

    template <class T> class atomic : public std::atomic<T> {
        using base = std::atomic<T>;
        using order = std::memory_order;

    public:
        using base::base;

        T load(order o = std::memory_order_seq_cst) const noexcept {
            chance()();
            return base::load(o);
        }
        void store(T value, order o = std::memory_order_seq_cst) noexcept {
            chance()();
            base::store(value, o);
        }
        T exchange(T value, order o = std::memory_order_seq_cst) noexcept {
            chance()();
            return base::exchange(value, o);
        }
        bool compare_exchange_weak(T& seen, T value, order o, order failed) noexcept {
            chance()();
            return base::compare_exchange_weak(seen, value, o, failed);
        }
        bool compare_exchange_strong(T& seen, T value, order o, order failed) noexcept {
            chance()();
            return base::compare_exchange_strong(seen, value, o, failed);
        }
        T fetch_add(T value, order o = std::memory_order_seq_cst) noexcept {
            chance()();
            return base::fetch_add(value, o);
        }
        T fetch_sub(T value, order o = std::memory_order_seq_cst) noexcept {
            chance()();
            return base::fetch_sub(value, o);
        }
        T fetch_and(T value, order o = std::memory_order_seq_cst) noexcept {
            chance()();
            return base::fetch_and(value, o);
        }
        T fetch_or(T value, order o = std::memory_order_seq_cst) noexcept {
            chance()();
            return base::fetch_or(value, o);
        }
    };

    template <class Word>
    static bool futex_wait(const atomic<Word>& word, Word expected, std::int64_t until) noexcept {
        chance()();
        return chance().below(32) == 0 || native::futex_wait(word, expected, until);
    }
};

// Counts the system calls. One for each Tag.
template <class Tag> struct counting : native {
    inline static std::atomic<int> waits{0};
    inline static std::atomic<int> wakes{0};

    template <class Word>
    static bool futex_wait(const atomic<Word>& word, Word expected, std::int64_t until) noexcept {
        ++waits;
        return native::futex_wait(word, expected, until);
    }
    template <class Word> static void futex_wake(const atomic<Word>* word, int count) noexcept {
        ++wakes;
        native::futex_wake(word, count);
    }
    static int calls() noexcept { return waits + wakes; }
};

} // namespace test

#endif
