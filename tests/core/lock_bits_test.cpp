#include <bide/core/lock_bits.hpp>
#include <support/alloc.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

namespace {

template <class P, class W> struct kind : bide::lock_bits<P, W> {
    using word = W;
};

using native32 = kind<test::native, std::uint32_t>;
using native64 = kind<test::native, std::uint64_t>;
using portable32 = kind<test::portable, std::uint32_t>;
using portable64 = kind<test::portable, std::uint64_t>;
using jittery32 = kind<test::jittery, std::uint32_t>;

} // namespace

#define BIDE_LOCK_TEST_CASE(name)                                                                  \
    TEMPLATE_TEST_CASE(name, "", native32, native64, portable32, portable64, jittery32)

TEMPLATE_TEST_CASE("lock_bits: acquire returns the word and changes one bit", "", native32,
                   native64) {
    typename TestType::atomic word{40};
    CHECK(TestType::acquire(word) == (40 | TestType::held));
    CHECK(word.load() == (40 | TestType::held));
    TestType::release(word);
    CHECK(word.load() == 40);
}

TEMPLATE_TEST_CASE("lock_bits: release_as stores a new word and releases in one step", "", native32,
                   native64) {
    typename TestType::atomic word{40};
    TestType::acquire(word);
    TestType::release_as(word, 16);
    CHECK(word.load() == 16);
}

TEMPLATE_TEST_CASE("lock_bits: release keeps the bits that other threads changed meanwhile", "",
                   native32, native64) {
    typename TestType::atomic word{8};
    TestType::acquire(word);
    word.fetch_add(4);
    TestType::release(word);
    CHECK(word.load() == 12);
}

BIDE_LOCK_TEST_CASE("lock_bits: one thread at a time holds it, and sees the last holder's writes") {
    constexpr int threads = 4;
    constexpr int rounds = 3'000;
    typename TestType::atomic word{0};
    int counter = 0; // plain
    test::run_threads(threads, [&](int me) {
        for (int i = 0; i < rounds; ++i) {
            TestType::acquire(word);
            ++counter;
            if ((i + me) % 2 == 0) {
                TestType::release(word);
            } else {
                TestType::release_as(word, 0);
            }
        }
    });
    CHECK(counter == threads * rounds);
    CHECK(word.load() == 0);
}

TEMPLATE_TEST_CASE("lock_bits: a waiter sets `parked` before it sleeps, and acquires the lock", "",
                   native32, portable32) {
    for (const bool as : {false, true}) {
        for (int round = 0; round < 20; ++round) {
            typename TestType::atomic word{64};
            TestType::acquire(word);
            bool had_it = false;
            test::team sleeper(1, [&](int) {
                TestType::acquire(word);
                had_it = true;
                TestType::release(word);
            });
            REQUIRE(test::eventually([&] { return (word.load() & TestType::parked) != 0; }));
            if (as) {
                TestType::release_as(word, 64);
            } else {
                TestType::release(word);
            }
            sleeper.join();
            CHECK(had_it);
            CHECK(word.load() == 64);
        }
    }
}

TEST_CASE("lock_bits: without waiters, neither a system call nor an allocation is made") {
    struct tag {};
    using platform = test::counting<tag>;
    using lock = bide::lock_bits<platform, std::uint64_t>;
    lock::atomic word{0};
    const std::size_t before = test::allocations_here();
    lock::acquire(word);
    lock::release(word);
    lock::acquire(word);
    lock::release_as(word, 4);
    CHECK(test::allocations_here() == before);
    CHECK(platform::calls() == 0);
}
