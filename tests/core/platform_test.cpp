#include <bide/core/platform.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

namespace {

struct slot {
    int number = 7;
};

} // namespace

TEST_CASE("platform: native_platform uses std::atomic and plain data") {
    using bide::native_platform;
    STATIC_REQUIRE(std::is_same_v<native_platform::atomic<int>, std::atomic<int>>);
    STATIC_REQUIRE(std::is_same_v<native_platform::var<int>, int>);
    STATIC_REQUIRE_FALSE(native_platform::model);
    native_platform::pause();
    native_platform::fence(std::memory_order_seq_cst);
}

TEST_CASE("platform: now() is the steady clock in nanoseconds") {
    using std::chrono::nanoseconds;
    const auto before = std::chrono::steady_clock::now().time_since_epoch();
    const nanoseconds now(bide::native_platform::now());
    const auto after = std::chrono::steady_clock::now().time_since_epoch();
    CHECK(before <= now);
    CHECK(now <= after);
}

TEMPLATE_TEST_CASE("platform: each thread has its own local object, initialised", "", test::native,
                   test::portable) {
    TestType::template local<slot>().number = 1;
    std::vector<int> first(3);
    std::vector<const slot*> where(3);
    std::atomic<int> looked{0};
    test::run_threads(3, [&](int i) {
        const auto mine = static_cast<std::size_t>(i);
        first[mine] = TestType::template local<slot>().number;
        where[mine] = &TestType::template local<slot>();
        for (++looked; looked != 3;) { // all threads live, so that no address is used again
            std::this_thread::yield();
        }
    });
    CHECK(first == std::vector<int>{7, 7, 7});
    CHECK(where[0] != where[1]);
    CHECK(where[1] != where[2]);
    CHECK(where[0] != where[2]);
    CHECK(TestType::template local<slot>().number == 1);
}

#if defined(__linux__)

TEST_CASE("platform: single_cpu is true in each thread of a process on one processor") {
    cpu_set_t before;
    REQUIRE(::sched_getaffinity(::getpid(), sizeof before, &before) == 0);
    CHECK(bide::native_platform::single_cpu() == (CPU_COUNT(&before) == 1));

    int first = 0;
    while (!CPU_ISSET(first, &before)) {
        ++first;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
    bool elsewhere = false;
    test::run_threads(1, [&](int) { elsewhere = bide::native_platform::single_cpu(); });
    const bool here = bide::native_platform::single_cpu();
    ::sched_setaffinity(0, sizeof before, &before);
    CHECK(here);
    CHECK(elsewhere);
}

TEST_CASE("platform: single_cpu is false in a pinned thread of a process on several processors") {
    cpu_set_t all;
    REQUIRE(::sched_getaffinity(::getpid(), sizeof all, &all) == 0);
    bool pinned_says = false;
    test::run_threads(1, [&](int) {
        int first = 0;
        while (!CPU_ISSET(first, &all)) {
            ++first;
        }
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(first, &one);
        ::sched_setaffinity(0, sizeof one, &one);
        pinned_says = bide::native_platform::single_cpu();
    });
    CHECK(pinned_says == (CPU_COUNT(&all) == 1));
}

#endif
