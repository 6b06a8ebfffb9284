#include <bide/core/parker.hpp>
#include <support/alloc.hpp>
#include <support/fake_clock.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using namespace bide;

#define BIDE_PARKER_TEST_CASE(name)                                                                \
    TEMPLATE_TEST_CASE(name, "", test::native, test::portable, test::jittery)

TEST_CASE("parker: a token from before park is kept") {
    basic_parker<test::native> p;
    p.unpark();
    p.park();
    SUCCEED();
}

TEMPLATE_TEST_CASE("parker: several unparks count once", "", test::native, test::portable) {
    basic_parker<TestType> p;
    p.unpark();
    p.unpark();
    p.unpark();
    CHECK(p.park_for(1h));
    CHECK_FALSE(p.park_for(1ms));
    p.unpark(); // the time-out does not affect later parks
    CHECK(p.park_for(1h));
    CHECK_FALSE(p.park_for(1us));
}

TEMPLATE_TEST_CASE("parker: a park without a token times out, not before its time", "",
                   test::native, test::portable) {
    basic_parker<TestType> p;
    const auto before = std::chrono::steady_clock::now();
    CHECK_FALSE(p.park_for(3ms));
    CHECK(std::chrono::steady_clock::now() - before >= 3ms);
    const auto end = std::chrono::steady_clock::now() + 2ms;
    CHECK_FALSE(p.park_until(end));
    CHECK(std::chrono::steady_clock::now() >= end);
}

TEMPLATE_TEST_CASE("parker: a zero or negative time is one attempt, which takes a token", "",
                   test::native, test::portable) {
    basic_parker<TestType> p;
    CHECK_FALSE(p.park_for(0s));
    CHECK_FALSE(p.park_for(-1h));
    CHECK_FALSE(p.park_until(deadline::poll()));
    CHECK_FALSE(p.park_until(std::chrono::steady_clock::now() - 1h));
    CHECK_FALSE(p.park_until(std::chrono::system_clock::now() - 1h));
    p.unpark();
    CHECK(p.park_for(0s));
    CHECK_FALSE(p.park_for(0s));
    p.unpark();
    CHECK(p.park_until(std::chrono::steady_clock::time_point::min()));
    CHECK_FALSE(p.park_for(0s));
}

BIDE_PARKER_TEST_CASE(
    "parker: each park waits for a token, ends with it, and sees what came before it") {
    constexpr int rounds = 1'000;
    int data = 0; // plain
    int seen_wrong = 0;
    basic_parker<TestType> there;
    basic_parker<TestType> back;
    test::run_threads(2, [&](int me) {
        for (int i = 1; i <= rounds; ++i) {
            if (me == 0) {
                data = i;
                there.unpark();
                back.park();
            } else {
                there.park();
                seen_wrong += data == i ? 0 : 1;
                back.unpark();
            }
        }
    });
    CHECK(seen_wrong == 0);
}

TEMPLATE_TEST_CASE("parker: a deadline on another clock is kept on that clock", "", test::native,
                   test::portable) {
    using clock = test::fake_clock<TestType>;
    clock::set(0s);
    clock::reads = 0;
    basic_parker<TestType> p;
    bool token = true;
    test::run_threads(2, [&](int me) {
        if (me == 0) {
            token = p.park_until(typename clock::time_point(1ms));
        } else {
            test::eventually([] { return clock::reads > 9; });
            clock::set(2ms);
        }
    });
    CHECK_FALSE(token);
    CHECK(clock::reads > 9);
}

TEMPLATE_TEST_CASE("parker: a time that no clock can hold never times out", "", test::native,
                   test::portable) {
    basic_parker<TestType> p;
    bool token = false;
    std::atomic<bool> about{false};
    test::run_threads(2, [&](int me) {
        if (me == 0) {
            about = true;
            token = p.park_for(std::chrono::hours::max());
        } else {
            test::eventually([&] { return about.load(); });
            for (int i = 0; i < 100; ++i) {
                std::this_thread::yield();
            }
            p.unpark();
        }
    });
    CHECK(token);
}

TEST_CASE("parker: without a sleeper, neither unpark nor one attempt makes a system call") {
    struct tag {};
    using platform = test::counting<tag>;
    basic_parker<platform> p;
    p.unpark();
    p.unpark();
    p.park();
    CHECK_FALSE(p.park_for(0s));
    CHECK(platform::calls() == 0);
    CHECK_FALSE(p.park_for(1us));
    const int waits = platform::waits;
    CHECK(waits > 0);
    p.unpark(); // the owner that timed out does not count as a sleeper
    p.park();
    CHECK(platform::wakes == 0);
    CHECK(platform::waits == waits);
}

TEMPLATE_TEST_CASE("parker: errno stays as it was and nothing is allocated", "", test::native,
                   test::portable) {
    basic_parker<TestType> p;
    p.park_for(1us); // the first use makes the portable table
    const std::size_t before = test::allocations();
    errno = 4711;
    p.park_for(1us);
    p.unpark();
    p.park();
    const int after = errno;
    const std::size_t allocated = test::allocations() - before;
    CHECK(after == 4711);
    CHECK(allocated == 0);
}
