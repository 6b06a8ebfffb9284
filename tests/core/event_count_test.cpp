#include <bide/core/parker.hpp>
#include <support/alloc.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using namespace bide;

// Waits until the deadline. A wait may return early. If a notification ended each wait, this loop
// would run until the deadline of the test case.
template <class Platform> void sleep_out(basic_event_count<Platform>& events, deadline end) {
    while (events.wait(events.prepare(), end)) {
    }
}

TEMPLATE_TEST_CASE("event_count: a notification between prepare and wait ends the wait", "",
                   test::native, test::portable) {
    basic_event_count<TestType> events;
    for (const bool all : {false, true}) {
        const auto epoch = events.prepare();
        if (all) {
            events.notify_all();
        } else {
            events.notify_one();
        }
        CHECK(events.wait(epoch, deadline::after(1h)));
    }
}

TEMPLATE_TEST_CASE("event_count: a notification before prepare does not end the wait", "",
                   test::native, test::portable) {
    basic_event_count<TestType> events;
    events.notify_one();
    events.notify_all();
    const deadline end = deadline::after(2ms);
    sleep_out(events, end);
    CHECK(bide::native_platform::now() >= end.steady_ns());
}

TEST_CASE("event_count: cancel withdraws an announcement") {
    basic_event_count<test::native> events;
    static_cast<void>(events.prepare());
    events.cancel();
    sleep_out(events, deadline::poll());
    events.notify_one();
}

TEMPLATE_TEST_CASE("event_count: notify_all ends all waits", "", test::native, test::portable) {
    constexpr int sleepers = 4;
    basic_event_count<TestType> events;
    std::atomic<int> prepared{0};
    std::atomic<bool> open{false};
    std::vector<int> woken(sleepers);
    test::run_threads(sleepers + 1, [&](int me) {
        if (me == sleepers) {
            test::eventually([&] { return prepared == sleepers; });
            open = true;
            events.notify_all();
            return;
        }
        auto epoch = events.prepare();
        ++prepared;
        do { // at least once, even if it was notified already
            woken[static_cast<std::size_t>(me)] += events.wait(epoch) ? 1 : 0;
            epoch = events.prepare();
        } while (!open);
        events.cancel();
    });
    CHECK(*std::min_element(woken.begin(), woken.end()) >= 1);
}

TEST_CASE("event_count: a notification without waiters makes no system call") {
    struct tag {};
    using platform = test::counting<tag>;
    basic_event_count<platform> events;
    events.notify_one();
    static_cast<void>(events.prepare());
    events.cancel();
    events.notify_all();
    CHECK(platform::calls() == 0);

    events.wait(events.prepare(), deadline::after(1us));
    const auto epoch = events.prepare();
    events.notify_one(); // a waiter is about to sleep
    CHECK(platform::wakes == 1);
    events.wait(epoch);
    events.notify_one();
    events.notify_all();
    CHECK(platform::wakes == 1);
}

TEMPLATE_TEST_CASE("event_count: errno stays as it was and nothing is allocated", "", test::native,
                   test::portable) {
    basic_event_count<TestType> events;
    events.wait(events.prepare(), deadline::after(1us)); // the first use makes the portable table
    const std::size_t before = test::allocations();
    errno = 4711;
    events.wait(events.prepare(), deadline::after(1us));
    const auto epoch = events.prepare();
    events.notify_one();
    events.wait(epoch);
    const int after = errno;
    const std::size_t allocated = test::allocations() - before;
    CHECK(after == 4711);
    CHECK(allocated == 0);
}
