#include <bide/core/event_count.hpp>
#include <support/alloc.hpp>
#include <support/jitter.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using namespace bide;

// Waits until the deadline. A wait may return early. If a notification ended each wait, this loop
// would run until the deadline of the test case.
template <class Platform> void sleep_out(basic_event_count<Platform>& events, deadline end) {
    while (events.wait(events.prepare(), end)) {
    }
}

#define BIDE_EVENT_COUNT_TEST_CASE(name)                                                           \
    TEMPLATE_TEST_CASE(name, "", test::native, test::portable, test::jittery)

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

BIDE_EVENT_COUNT_TEST_CASE("event_count: a condition made true before a notification is seen") {
    constexpr int rounds = 1'000;
    basic_event_count<TestType> events;
    basic_event_count<TestType> answers;
    std::atomic<int> asked{0};
    std::atomic<int> answered{0};
    const auto wait_for = [](auto& count, std::atomic<int>& what, int value) {
        while (what.load(std::memory_order_acquire) != value) {
            const auto epoch = count.prepare();
            if (what.load(std::memory_order_acquire) == value) {
                count.cancel();
            } else {
                count.wait(epoch);
            }
        }
    };
    test::run_threads(2, [&](int me) {
        for (int i = 1; i <= rounds; ++i) {
            if (me == 0) {
                asked.store(i, std::memory_order_release);
                events.notify_one();
                wait_for(answers, answered, i);
            } else {
                wait_for(events, asked, i);
                answered.store(i, std::memory_order_release);
                answers.notify_all();
            }
        }
    });
    CHECK(answered == rounds);
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

// Several consumers, and one notification for each item. If a notification were lost, an item would
// stay and a consumer would sleep.
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
