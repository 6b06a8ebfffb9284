#include <bide/core/ready_queue.hpp>
#include <support/jitter.hpp>
#include <support/platforms.hpp>
#include <support/stress.hpp>
#include <support/test.hpp>

using bide::basic_ready_queue;
using bide::deadline;
using bide::runnable;

namespace {

struct ball : runnable {
    int poster = 0;
    long number = 0;              // plain: the post publishes it
    std::atomic<bool> out{false}; // the runnable is in the queue
};

// Each poster has a few runnables and posts each again when it was popped. The owner pops with and
// without time-outs.
template <class P> void posters_and_owner(int posters) {
    constexpr std::size_t balls = 4;
    basic_ready_queue<P> queue;
    std::vector<std::deque<ball>> all(static_cast<std::size_t>(posters));
    std::vector<long> posted(static_cast<std::size_t>(posters));
    std::vector<long> popped(static_cast<std::size_t>(posters));
    std::atomic<int> posting{posters};
    long disorder = 0;
    runnable end;
    for (auto& mine : all) {
        mine.resize(balls);
    }
    test::stress_threads(posters + 1, [&](int me) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(me));
        if (me < posters) {
            const auto mine = static_cast<std::size_t>(me);
            for (const test::stress_time time; time.is_left();) {
                ball& b = all[mine][static_cast<std::size_t>(posted[mine]) % balls];
                while (b.out.load(std::memory_order_acquire)) {
                    chance();
                }
                b.poster = me;
                b.number = posted[mine]++;
                b.out.store(true, std::memory_order_relaxed);
                queue.post(b);
                chance();
            }
            if (--posting == 0) {
                queue.post(end);
            }
            return;
        }
        for (;;) {
            const bool endless = chance.below(2) == 0;
            runnable* const r =
                queue.pop(endless ? deadline::never() : deadline::after(chance.rest(15)));
            if (r == &end) {
                return;
            }
            if (r != nullptr) {
                auto& b = *static_cast<ball*>(r);
                disorder += b.number == popped[static_cast<std::size_t>(b.poster)]++ ? 0 : 1;
                b.out.store(false, std::memory_order_release);
            }
        }
    });
    CHECK(disorder == 0);
    CHECK(popped == posted);
    CHECK(queue.pop(deadline::poll()) == nullptr);
}

// The owner destroys the queue as soon as its runnable is popped.
template <class P> void short_lives() {
    using queue = basic_ready_queue<P>;
    std::atomic<queue*> current{nullptr};
    std::atomic<bool> over{false};
    runnable r;
    long wrong = 0;
    test::stress_threads(2, [&](int me) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(me));
        if (me == 0) {
            for (const test::stress_time time; time.is_left();) {
                auto mine = std::make_unique<queue>();
                current = mine.get();
                chance();
                wrong += mine->pop(deadline::never()) == &r ? 0 : 1;
            }
            over = true;
        } else {
            while (!over) {
                if (queue* const theirs = current.exchange(nullptr)) {
                    chance();
                    theirs->post(r);
                }
            }
        }
    });
    CHECK(wrong == 0);
}

} // namespace

TEMPLATE_TEST_CASE("ready_queue: posters and owner, stress", "", test::native, test::portable,
                   test::jittery) {
    posters_and_owner<TestType>(1);
    posters_and_owner<TestType>(4);
}

TEMPLATE_TEST_CASE("ready_queue: short lives, stress", "", test::native, test::portable,
                   test::jittery) {
    short_lives<TestType>();
}

TEMPLATE_TEST_CASE("ready_queue: on one processor, stress", "", test::native, test::portable,
                   test::jittery) {
    const test::on_one_processor pinned;
    posters_and_owner<TestType>(2);
}
