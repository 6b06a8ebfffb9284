#include <bide/core/ready_queue.hpp>
#include <support/alloc.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using namespace bide;

TEST_CASE("ready_queue: pop returns the oldest runnable first, which may be posted again") {
    basic_ready_queue<test::native> queue;
    test::jitter chance(test::run_seed());
    runnable all[5];
    std::deque<runnable*> inside;
    for (int step = 0; step < 2'000; ++step) {
        REQUIRE(queue.empty() == inside.empty());
        runnable& any = all[chance.below(5)];
        if (chance.below(2) == 0) {
            if (std::find(inside.begin(), inside.end(), &any) == inside.end()) {
                queue.post(any);
                inside.push_back(&any);
            }
        } else if (inside.empty()) {
            REQUIRE(queue.pop(deadline::poll()) == nullptr);
        } else {
            REQUIRE(queue.pop(step % 2 == 0 ? deadline::poll() : deadline::never()) ==
                    inside.front());
            inside.pop_front();
        }
    }
}

TEMPLATE_TEST_CASE("ready_queue: pop of an empty queue returns at the deadline, not before", "",
                   test::native, test::portable) {
    basic_ready_queue<TestType> queue;
    CHECK(queue.pop(deadline::poll()) == nullptr);
    const deadline end = deadline::after(2ms);
    CHECK(queue.pop(end) == nullptr);
    CHECK(bide::native_platform::now() >= end.steady_ns());
    runnable r;
    queue.post(r); // the time-out does not affect later posts
    CHECK(queue.pop(deadline::never()) == &r);
}

TEMPLATE_TEST_CASE("ready_queue: each post wakes the sleeping owner", "", test::native,
                   test::portable, test::jittery) {
    constexpr int rounds = 1'000;
    basic_ready_queue<TestType> queues[2];
    runnable balls[2];
    int wrong[2] = {0, 0};
    test::run_threads(2, [&](int me) {
        for (int i = 0; i < rounds; ++i) {
            if (me == 0) {
                queues[1].post(balls[0]);
                wrong[0] += queues[0].pop(deadline::never()) == &balls[1] ? 0 : 1;
            } else {
                wrong[1] += queues[1].pop(deadline::never()) == &balls[0] ? 0 : 1;
                queues[0].post(balls[1]);
            }
        }
    });
    CHECK(wrong[0] == 0);
    CHECK(wrong[1] == 0);
}

TEST_CASE("ready_queue: a post to an owner that is awake makes no system call") {
    struct tag {};
    using platform = test::counting<tag>;
    basic_ready_queue<platform> queue;
    runnable r;
    CHECK(queue.pop(deadline::poll()) == nullptr);
    queue.post(r);
    CHECK(queue.pop(deadline::never()) == &r);
    CHECK(platform::calls() == 0);
    CHECK(queue.pop(deadline::after(1us)) == nullptr);
    queue.post(r); // the owner that timed out does not count as a sleeper
    CHECK(queue.pop(deadline::never()) == &r);
    CHECK(platform::wakes == 0);
}

TEMPLATE_TEST_CASE("ready_queue: nothing is allocated", "", test::native, test::portable) {
    basic_ready_queue<TestType> queue;
    runnable r;
    queue.pop(deadline::after(1us)); // the first use makes the portable table
    const std::size_t before = test::allocations();
    queue.post(r);
    queue.pop(deadline::never());
    queue.pop(deadline::after(1us));
    CHECK(test::allocations() == before);
}
