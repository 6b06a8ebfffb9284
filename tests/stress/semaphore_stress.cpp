// All kinds of waiters wait for the same permits and give up in every way. At the end the permits are
// counted.

#include "support/coroutines.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/platforms.hpp"
#include "support/stress.hpp"
#include "support/test.hpp"

#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>

namespace {

using std::chrono::microseconds;

constexpr std::ptrdiff_t permits = 4;

// Permits in use: never more than there are.
struct ledger {
    std::atomic<std::ptrdiff_t> held{0};
    std::atomic<bool> overdrawn{false};
    std::atomic<std::uint64_t> grants{0};

    void use(std::ptrdiff_t n, test::jitter& wait) noexcept {
        if (held.fetch_add(n) + n > permits) {
            overdrawn = true;
        }
        grants.fetch_add(1);
        wait();
        held.fetch_sub(n);
    }
};

std::ptrdiff_t one_to_three(test::jitter& chance) noexcept {
    return 1 + static_cast<std::ptrdiff_t>(chance.below(3));
}

// ---- Threads

template <class S> void by_thread(S& s, ledger& l, test::jitter& chance) {
    const std::ptrdiff_t n = one_to_three(chance);
    bool mine = false;
    switch (chance.below(4)) {
    case 0: mine = s.try_acquire(n); break;
    case 1: mine = s.try_acquire_for(microseconds(chance.below(60)), n); break;
    default:
        s.acquire(n);
        mine = true;
        break;
    }
    if (mine) {
        l.use(n, chance);
        s.release(n);
    }
}

template <class S> void by_stoppable_thread(S& s, ledger& l, test::jitter& chance) {
    std::stop_source source;
    const std::ptrdiff_t n = one_to_three(chance);
    bool mine = false;
    std::thread waiting([&] { mine = s.acquire(source.get_token(), n).has_value(); });
    chance();
    source.request_stop();
    waiting.join();
    if (mine) {
        l.use(n, chance);
        s.release(n);
    }
}

// ---- Coroutines

template <class S> bide::task<void> by_task(S& s, ledger& l, test::jitter& chance) {
    const std::ptrdiff_t n = one_to_three(chance);
    if (chance.below(2) == 0) {
        auto got = co_await s.async_acquire(n);
        l.use(n, chance);
    } else {
        const microseconds rest(chance.below(100));
        auto got = co_await s.async_acquire(n).with_timeout(rest);
        if (got) {
            l.use(n, chance);
        }
    }
}

// Detached: it runs where it is resumed, and says when it has ended.
template <class S>
test::detached by_detached(S& s, ledger& l, std::uint32_t seed, std::stop_token stop,
                           std::atomic<int>& running) {
    test::jitter chance(seed);
    const std::ptrdiff_t n = one_to_three(chance);
    {
        auto got = co_await s.async_acquire(n).with_stop(stop);
        if (got) {
            l.use(n, chance);
        }
    }
    running.fetch_sub(1);
}

// ---- Foreign wakers

template <class S> void by_foreigner(S& s, ledger& l, test::jitter& chance) {
    const std::ptrdiff_t n = one_to_three(chance);
    std::atomic<bool> woken{false};
    const auto wake = [](void* flag) noexcept {
        static_cast<std::atomic<bool>*>(flag)->store(true);
    };
    typename S::waiter w(n, bide::waker(wake, &woken));
    bool mine = s.acquire_wait(w);
    if (!mine) {
        chance();
        mine = chance.below(2) == 0 || !s.cancel_acquire(w);
        if (mine) {
            while (!woken.load()) { // the waker's context must outlive its call
                std::this_thread::yield();
            }
        }
    }
    if (mine) {
        l.use(n, chance);
        s.release(n);
    }
}

template <class S> void one_turn(S& s, ledger& l, test::jitter& chance) {
    switch (chance.below(8)) {
    case 0:
    case 1: by_foreigner(s, l, chance); break;
    case 2: bide::sync_wait(by_task(s, l, chance)); break;
    case 3: by_stoppable_thread(s, l, chance); break;
    default: by_thread(s, l, chance); break;
    }
}

template <class S> void storm(S& s, ledger& l, int threads, int turns) {
    std::atomic<int> running{0};
    std::stop_source stop;
    test::run_threads(threads, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i) * 7'919u);
        for (int turn = 0; turn < turns; ++turn) {
            if (chance.below(8) == 0) {
                running.fetch_add(1);
                by_detached(s, l, chance.below(1u << 30), stop.get_token(), running);
            } else {
                one_turn(s, l, chance);
            }
        }
    });
    stop.request_stop();
    if (!test::eventually([&] { return running.load() == 0; })) {
        test::give_up(test::where(), "detached coroutines wait for ever");
    }
}

template <class S> void check_books(const S& s, const ledger& l) {
    CHECK_FALSE(l.overdrawn);
    CHECK(l.held == 0);
    CHECK(l.grants > 0);
    CHECK(s.waiters() == 0);
    CHECK(s.available() == permits);
}

template <class S> void storms(int threads, int turns) {
    const test::stress_time time;
    S s(permits);
    ledger l;
    do {
        storm(s, l, threads, turns);
    } while (time.is_left());
    check_books(s, l);
}

} // namespace

TEMPLATE_TEST_CASE("semaphore: permits are conserved in many short storms of every kind of waiter",
                   "[promise.permits-conserved]", test::native, test::portable) {
    storms<bide::basic_semaphore<TestType>>(4, 20);
}

TEST_CASE("semaphore: permits are conserved in a long storm") { storms<bide::semaphore>(4, 2'000); }

TEST_CASE("semaphore: permits are conserved with many more threads than processors",
          "[promise.permits-conserved]") {
    storms<bide::semaphore>(32, 50);
}

TEST_CASE("semaphore: permits are conserved on a single processor", "[promise.permits-conserved]") {
    const test::on_one_processor pinned;
    storms<bide::semaphore>(4, 100);
}

TEST_CASE(
    "semaphore: a thread that acquired may destroy it before the releases return, in a storm") {
    const test::stress_time time;
    constexpr int releasers = 3;
    std::array<std::atomic<bide::semaphore*>, releasers> of_round{};
    std::atomic<bool> over{false};
    std::uint64_t rounds = 0;
    test::run_threads(releasers + 1, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        if (i == releasers) {
            while (time.is_left()) {
                auto done = std::make_unique<bide::semaphore>(0); // freed at once: for ASan to see
                for (auto& slot : of_round) {
                    slot = done.get();
                }
                if (chance.below(2) == 0) {
                    chance();
                }
                done->acquire(releasers);
                ++rounds;
            }
            over = true;
            return;
        }
        auto& slot = of_round[static_cast<std::size_t>(i)];
        while (!over) {
            if (bide::semaphore* const s = slot.exchange(nullptr); s != nullptr) {
                chance();
                s->release();
            }
        }
    });
    CHECK(rounds > 0);
}

TEST_CASE("semaphore: closing in a storm fails the waiters and strands none",
          "[promise.close-semaphore]") {
    const test::stress_time time;
    std::uint64_t rounds = 0;
    bool restored = true;
    while (time.is_left()) {
        bide::semaphore s(permits);
        test::run_threads(4, [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
            if (i == 0) {
                chance();
                s.close();
                return;
            }
            for (int turn = 0; turn < 8; ++turn) {
                const std::ptrdiff_t n = one_to_three(chance);
                const auto got = s.acquire(std::stop_token(), n);
                if (got) {
                    chance();
                    s.release(n);
                }
            }
        });
        restored = restored && s.available() == permits && s.waiters() == 0;
        ++rounds;
    }
    INFO("seed " << test::run_seed() << ", rounds " << rounds);
    CHECK(restored);
}
