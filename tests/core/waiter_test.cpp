#include <bide/core/waiter.hpp>
#include <support/alloc.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using namespace bide;

namespace {

void count(void* calls) noexcept { ++*static_cast<int*>(calls); }

} // namespace

TEST_CASE("waiter: a new waiter is waiting, is not queued, and misses all units") {
    const basic_waiter<test::native> w(3);
    CHECK(w.outcome() == wait_status::waiting);
    CHECK_FALSE(w.is_complete());
    CHECK_FALSE(w.is_queued());
    CHECK_FALSE(w.has_waker());
    CHECK(w.forbidden() == wait_status::waiting);
    CHECK(w.amount() == 3);
    CHECK(w.missing == 3);
}

TEST_CASE("waiter: each published outcome ends park at once") {
    for (const wait_status what : {wait_status::granted, wait_status::closed, wait_status::stopped,
                                   wait_status::timed_out}) {
        basic_waiter<test::native> w;
        w.publish(what);
        CHECK(w.is_complete());
        CHECK(w.outcome() == what);
        CHECK(w.park(deadline::never()));
        CHECK(w.park(deadline::poll()));
        CHECK(w.await_outcome() == what);
    }
}

TEMPLATE_TEST_CASE("waiter: a park that times out leaves the wait open", "", test::native,
                   test::portable) {
    basic_waiter<TestType> w;
    const deadline end = deadline::after(2ms);
    CHECK_FALSE(w.park(end));
    CHECK(bide::native_platform::now() >= end.steady_ns());
    CHECK_FALSE(w.is_complete());
    CHECK_FALSE(w.park(deadline::poll()));
    CHECK_FALSE(w.park(deadline::after(1us))); // begins with `parked`, left by the last park
    w.publish(wait_status::granted);
    CHECK(w.park(deadline::never()));
    CHECK(w.outcome() == wait_status::granted);
}

TEST_CASE("waiter: the publication runs the waker once, after the outcome is visible") {
    struct context {
        basic_waiter<test::native>* w;
        wait_status seen;
        int calls;
    } c{nullptr, wait_status::waiting, 0};
    basic_waiter<test::native> w(1);
    c.w = &w;
    w.set_waker(bide::waker(
        [](void* p) noexcept {
            auto& mine = *static_cast<context*>(p);
            mine.seen = mine.w->outcome();
            ++mine.calls;
        },
        &c));
    CHECK(w.has_waker());
    w.publish(wait_status::closed);
    CHECK(c.calls == 1);
    CHECK(c.seen == wait_status::closed);
}

TEST_CASE("waiter: settle wakes no thread") {
    int calls = 0;
    basic_waiter<test::native> w(1, bide::waker(&count, &calls));
    w.settle(wait_status::granted);
    CHECK(w.is_complete());
    CHECK(calls == 0);
}

TEST_CASE("waiter: the wait is decided once, by the thread that takes it out of the queue") {
    basic_waiter_queue<test::native> queue;
    basic_waiter<test::native> w;
    queue.push(w);
    CHECK(w.is_queued());
    queue.remove(w);
    CHECK_FALSE(w.is_queued()); // a later decider sees that it is decided
    CHECK_FALSE(w.is_complete());
    w.publish(wait_status::granted);
    CHECK(w.outcome() == wait_status::granted);
}

TEST_CASE("waiter: a stop before queueing is recorded, a stop after queueing is not") {
    basic_waiter<test::native> early;
    early.forbid(wait_status::stopped);
    CHECK(early.forbidden() == wait_status::stopped);
    CHECK_FALSE(early.is_complete());

    basic_waiter_queue<test::native> queue;
    basic_waiter<test::native> late;
    queue.push(late);
    late.forbid(wait_status::stopped);
    CHECK(late.forbidden() == wait_status::waiting);
    queue.remove(late);
    late.forbid(wait_status::timed_out);
    CHECK(late.forbidden() == wait_status::waiting);
}

TEST_CASE("waiter: after reset it is in the state of a new waiter") {
    basic_waiter_queue<test::native> queue;
    basic_waiter<test::native> w(2);
    w.forbid(wait_status::stopped);
    queue.push(w);
    w.missing = 1;
    queue.remove(w);
    w.publish(wait_status::granted);
    w.reset(7);
    CHECK(w.outcome() == wait_status::waiting);
    CHECK(w.forbidden() == wait_status::waiting);
    CHECK(w.amount() == 7);
    CHECK(w.missing == 7);
    w.forbid(wait_status::timed_out); // it is not queued yet
    CHECK(w.forbidden() == wait_status::timed_out);
    queue.push(w);
    CHECK(w.is_queued());
    queue.remove(w);
}

TEMPLATE_TEST_CASE("waiter: a rouse ends one sleep without an outcome, and only a sleep", "",
                   test::native, test::portable) {
    basic_waiter<TestType> w;
    CHECK_FALSE(w.rouse()); // the owner is awake
    std::atomic<bool> slept{false};
    bool in_time = false;
    wait_status between = wait_status::granted;
    bool granted = false;
    test::run_threads(2, [&](int me) {
        if (me == 0) {
            in_time = w.sleep(deadline::never());
            between = w.outcome();
            slept = true;
            granted = w.park(deadline::never());
        } else {
            test::eventually([&] { return w.rouse(); });
            basic_waiter<TestType>::rouse_by(w.where());
            test::eventually([&] { return slept.load(); });
            w.publish(wait_status::granted);
        }
    });
    CHECK(in_time);
    CHECK(between == wait_status::waiting);
    CHECK(granted);
    CHECK_FALSE(w.rouse()); // complete
    CHECK(w.outcome() == wait_status::granted);
}

TEST_CASE("waiter: a publication without a sleeper makes no system call") {
    struct tag {};
    using platform = test::counting<tag>;
    basic_waiter<platform> w;
    w.publish(wait_status::granted);
    CHECK(w.park(deadline::never()));
    CHECK(platform::calls() == 0);
}

TEMPLATE_TEST_CASE("waiter: errno stays as it was and nothing is allocated", "", test::native,
                   test::portable) {
    basic_waiter<TestType>().park(deadline::after(1us)); // the first use makes the portable table
    const std::size_t before = test::allocations();
    errno = 4711;
    basic_waiter<TestType> w;
    w.park(deadline::after(1us));
    w.publish(wait_status::granted);
    w.park(deadline::never());
    const int after = errno;
    const std::size_t allocated = test::allocations() - before;
    CHECK(after == 4711);
    CHECK(allocated == 0);
}

using bide::basic_choice;

static_assert(sizeof(basic_choice<test::native>) <= 2 * sizeof(void*));
static_assert(!std::is_copy_constructible_v<basic_choice<test::native>>);
static_assert(!std::is_move_assignable_v<basic_choice<test::native>>);

TEST_CASE("choice: a claim decides when it is committed, and the decision stays") {
    basic_choice<test::native> c;
    CHECK_FALSE(c.is_decided());
    for (int again = 0; again < 3; ++again) {
        REQUIRE(c.claim());
        CHECK_FALSE(c.is_decided());
        c.abandon();
        CHECK_FALSE(c.is_decided());
    }
    REQUIRE(c.claim());
    c.commit();
    for (int again = 0; again < 3; ++again) {
        CHECK(c.is_decided());
        CHECK_FALSE(c.claim());
    }
}

TEMPLATE_TEST_CASE("choice: of many claims exactly one commits, even if others were abandoned", "",
                   test::native, test::portable, test::jittery) {
    constexpr int threads = 4;
    constexpr int rounds = 200;
    std::vector<basic_choice<TestType>> choices(rounds);
    std::vector<int> winners[threads];
    bool blind[threads] = {};
    test::rendezvous all(threads);
    test::run_threads(threads, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        for (int round = 0; round < rounds; ++round) {
            basic_choice<TestType>& c = choices[static_cast<std::size_t>(round)];
            all.meet();
            while (c.claim()) {
                if (chance.below(3) == 0) {
                    c.commit();
                    winners[i].push_back(round);
                    break;
                }
                c.abandon();
            }
            blind[i] = blind[i] || !c.is_decided();
        }
    });
    std::vector<int> decided(rounds);
    for (int i = 0; i < threads; ++i) {
        CHECK_FALSE(blind[i]);
        for (const int round : winners[i]) {
            ++decided[static_cast<std::size_t>(round)];
        }
    }
    CHECK(decided == std::vector<int>(rounds, 1));
}
