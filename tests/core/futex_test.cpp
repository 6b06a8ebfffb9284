#include <bide/core/futex.hpp>
#include <support/alloc.hpp>
#include <support/fake_clock.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using bide::deadline;

namespace {

// A backend and a width.
template <class P, class W> struct kind : P {
    using platform = P;
    using word = W;
    using atomic = typename P::template atomic<W>;
    static bool wait(const atomic& a, W expected, deadline until = deadline::never()) {
        return bide::futex_wait<P>(a, expected, until);
    }
    static void wake(const atomic* a, int count) { bide::futex_wake<P>(a, count); }
};

using native32 = kind<test::native, std::uint32_t>;
using native64 = kind<test::native, std::uint64_t>;
using portable32 = kind<test::portable, std::uint32_t>;
using portable64 = kind<test::portable, std::uint64_t>;

} // namespace

#define BIDE_FUTEX_TEST_CASE(name)                                                                 \
    TEMPLATE_TEST_CASE(name, "", native32, native64, portable32, portable64)

BIDE_FUTEX_TEST_CASE("futex: a wait does not sleep if the word differs from the expected value") {
    const typename TestType::atomic word{1};
    CHECK(TestType::wait(word, 2));
    CHECK(TestType::wait(word, 2, deadline::after(1h)));
}

BIDE_FUTEX_TEST_CASE("futex: a wait ends at its deadline, not before, and returns false") {
    const typename TestType::atomic word{1};
    const deadline end = deadline::after(3ms);
    while (TestType::wait(word, 1, end)) { // spurious
    }
    CHECK(bide::native_platform::now() >= end.steady_ns());
    CHECK_FALSE(TestType::wait(word, 1, deadline::poll()));
    CHECK_FALSE(TestType::wait(word, 1, deadline::at_ns(1)));
}

BIDE_FUTEX_TEST_CASE("futex: a wake after the change ends each wait") {
    constexpr int rounds = 300;
    typename TestType::atomic turn{0};
    test::run_threads(2, [&](int me) {
        using word = typename TestType::word;
        for (word i = 0; i < rounds; ++i) {
            const word mine = 2 * i + static_cast<word>(me);
            for (word seen = turn.load(); seen != mine; seen = turn.load()) {
                TestType::wait(turn, seen);
            }
            turn.store(mine + 1);
            TestType::wake(&turn, 1);
        }
    });
    CHECK(turn.load() == 2 * rounds);
}

BIDE_FUTEX_TEST_CASE("futex: one wake with a large count ends all waits") {
    typename TestType::atomic word{0};
    std::atomic<int> near{0};
    test::run_threads(5, [&](int i) {
        if (i == 4) {
            test::eventually([&] { return near == 4; });
            word.store(1);
            TestType::wake(&word, 0x7fffffff);
            return;
        }
        ++near;
        while (word.load() == 0) {
            TestType::wait(word, 0);
        }
    });
    CHECK(near == 4);
}

BIDE_FUTEX_TEST_CASE("futex: one wake for each sleeper ends all waits") {
    typename TestType::atomic word{0};
    std::atomic<int> awake{0};
    test::run_threads(4, [&](int i) {
        if (i == 3) {
            word.store(1);
            for (int wakes = 0; wakes < 3; ++wakes) {
                TestType::wake(&word, 1);
            }
            return;
        }
        while (word.load() == 0) {
            TestType::wait(word, 0);
        }
        ++awake;
    });
    CHECK(awake == 3);
}

BIDE_FUTEX_TEST_CASE("futex: neither a wait nor a wake changes errno") {
    const typename TestType::atomic word{1};
    std::vector<int> left;
    errno = 4711;
    TestType::wait(word, 2); // EAGAIN
    left.push_back(errno);
    errno = 4711;
    TestType::wait(word, 1, deadline::after(1us)); // ETIMEDOUT
    left.push_back(errno);
    errno = 4711;
    TestType::wake(&word, 1);
    left.push_back(errno);
    CHECK(left == std::vector<int>(3, 4711));
}

BIDE_FUTEX_TEST_CASE("futex: nothing is allocated") {
    typename TestType::atomic word{1};
    TestType::wake(&word, 1); // the first use makes the portable table
    const std::size_t before = test::allocations();
    TestType::wait(word, 2);
    TestType::wait(word, 1, deadline::after(1us));
    TestType::wake(&word, 1);
    CHECK(test::allocations() == before);
}

BIDE_FUTEX_TEST_CASE("futex: a wake does not access the word") {
    auto word = std::make_unique<typename TestType::atomic>(0);
    const typename TestType::atomic* volatile address =
        word.get(); // hides the address from the compiler
    word.reset();
    TestType::wake(address, 1);
    SUCCEED();
}

TEMPLATE_TEST_CASE("futex: of a 64-bit word the low half is compared", "", native64, portable64) {
    constexpr std::uint64_t high = std::uint64_t{1} << 40;
    const typename TestType::atomic word{high | 5};
    CHECK(TestType::wait(word, high | 6)); // differs in the low half: no sleep
    CHECK(TestType::wait(word, 4));
    const deadline end = deadline::after(1ms);
    while (TestType::wait(word, high | 5, end)) {
    }
    CHECK(bide::native_platform::now() >= end.steady_ns());
}

TEMPLATE_TEST_CASE("futex: a deadline on a clock that stands still is checked again each second",
                   "", native32, portable32) {
    using clock = test::fake_clock<TestType>;
    clock::set(0s);
    clock::reads = 0;
    const deadline end = deadline::at(typename clock::time_point(1ms));
    const typename TestType::atomic word{1};
    bool in_time = true;
    test::run_threads(2, [&](int i) {
        if (i == 0) {
            while ((in_time = TestType::wait(word, 1, end))) {
            }
        } else {
            test::eventually([] { return clock::reads > 12; });
            clock::set(1ms);
        }
    });
    CHECK_FALSE(in_time);
    CHECK(clock::reads > 12);
}
