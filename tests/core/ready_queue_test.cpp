#include <bide/core/ready_queue.hpp>
#include <support/alloc.hpp>
#include <support/gate.hpp>
#include <support/jitter.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using namespace std::chrono_literals;
using bide::basic_ready_queue;
using bide::deadline;
using bide::runnable;

#define BIDE_READY_QUEUE_TEST_CASE(name)                                                           \
    TEMPLATE_TEST_CASE(name, "", test::native, test::portable, test::jittery)

TEST_CASE("ready_queue: pop returns the oldest runnable first") {
    basic_ready_queue<test::native> queue;
    runnable all[5];
    queue.post(all[0]);
    queue.post(all[1]);
    queue.post(all[2]);
    CHECK(queue.pop(deadline::never()) == &all[0]);
    queue.post(all[3]);
    CHECK(queue.pop(deadline::never()) == &all[1]);
    queue.post(all[4]);
    CHECK(queue.pop(deadline::poll()) == &all[2]);
    CHECK(queue.pop(deadline::poll()) == &all[3]);
    CHECK(queue.pop(deadline::never()) == &all[4]);
    CHECK(queue.pop(deadline::poll()) == nullptr);
}

TEST_CASE("ready_queue: empty() says whether a pop would wait") {
    basic_ready_queue<test::native> queue;
    runnable all[2];
    CHECK(queue.empty());
    queue.post(all[0]);
    queue.post(all[1]);
    CHECK_FALSE(queue.empty());
    CHECK(queue.pop(deadline::poll()) == &all[0]);
    CHECK_FALSE(queue.empty());
    CHECK(queue.pop(deadline::poll()) == &all[1]);
    CHECK(queue.empty());
    CHECK(queue.pop(deadline::poll()) == nullptr);
    CHECK(queue.empty());
}

TEST_CASE("ready_queue: a popped runnable may be posted again") {
    basic_ready_queue<test::native> queue;
    runnable a;
    runnable b;
    for (int i = 0; i < 3; ++i) {
        queue.post(a);
        queue.post(b);
        CHECK(queue.pop(deadline::never()) == &a);
        queue.post(a);
        CHECK(queue.pop(deadline::never()) == &b);
        CHECK(queue.pop(deadline::never()) == &a);
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

BIDE_READY_QUEUE_TEST_CASE("ready_queue: each post wakes the sleeping owner") {
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

namespace {

struct numbered : runnable {
    int poster = 0;
    int number = 0; // plain: published by the post
};

} // namespace

TEMPLATE_TEST_CASE("ready_queue: all of many posters come out once, each poster's in order", "",
                   test::native, test::portable) {
    constexpr int posters = 3;
    constexpr int each = 3'000;
    basic_ready_queue<TestType> queue;
    std::vector<std::vector<numbered>> posted(posters, std::vector<numbered>(each));
    int next[posters] = {};
    int disorder = 0;
    test::run_threads(posters + 1, [&](int me) {
        if (me < posters) {
            for (int i = 0; i < each; ++i) {
                numbered& r = posted[static_cast<std::size_t>(me)][static_cast<std::size_t>(i)];
                r.poster = me;
                r.number = i;
                queue.post(r);
            }
            return;
        }
        for (int i = 0; i < posters * each; ++i) {
            const auto& r = *static_cast<numbered*>(queue.pop(deadline::never()));
            disorder += r.number == next[r.poster]++ ? 0 : 1;
        }
    });
    CHECK(disorder == 0);
    for (const int n : next) {
        CHECK(n == each);
    }
    CHECK(queue.pop(deadline::poll()) == nullptr);
}

BIDE_READY_QUEUE_TEST_CASE("ready_queue: a post that races with a time-out is not lost") {
    constexpr int posts = 1'500;
    basic_ready_queue<TestType> queue;
    std::atomic<int> popped{0};
    runnable r;
    int wrong = 0;
    test::run_threads(2, [&](int me) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(me));
        if (me == 0) {
            while (popped.load() < posts) {
                if (const runnable* const got = queue.pop(deadline::after(chance.rest(15)))) {
                    wrong += got == &r ? 0 : 1;
                    ++popped;
                }
            }
        } else {
            for (int sent = 1; sent <= posts; ++sent) {
                chance.dawdle(15);
                queue.post(r);
                while (popped.load() < sent) {
                    chance();
                }
            }
        }
    });
    CHECK(popped == posts);
    CHECK(wrong == 0);
    CHECK(queue.pop(deadline::poll()) == nullptr);
}

// The last runnable tells the owner that no poster uses the queue any more, as in sync_wait().
BIDE_READY_QUEUE_TEST_CASE("ready_queue: it may be destroyed when its last runnable is popped") {
    constexpr int rounds = 300;
    using queue = basic_ready_queue<TestType>;
    std::atomic<queue*> current{nullptr};
    std::deque<runnable> last(rounds);
    test::run_threads(2, [&](int me) {
        for (int i = 0; i < rounds; ++i) {
            if (me == 0) {
                auto mine = std::make_unique<queue>();
                current.store(mine.get());
                mine->pop(deadline::never());
            } else {
                queue* theirs = nullptr;
                while ((theirs = current.exchange(nullptr)) == nullptr) {
                    std::this_thread::yield();
                }
                theirs->post(last[static_cast<std::size_t>(i)]);
            }
        }
    });
    SUCCEED();
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
