#include <bide/core/parker.hpp>
#include <support/jitter.hpp>
#include <support/platforms.hpp>
#include <support/stress.hpp>
#include <support/test.hpp>

using bide::basic_parker;
using bide::deadline;

namespace {

// The owner parks with random time-outs. The notifier sends a token when the last one was counted.
template <class P> void tokens_against_timeouts() {
    basic_parker<P> p;
    std::atomic<int> sent{0};
    std::atomic<int> taken{0};
    std::atomic<bool> over{false};
    bool left_over = false;
    test::stress_threads(2, [&](int me) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(me));
        if (me == 0) {
            while (!over || taken != sent) {
                if (chance.below(8) == 0 && !over && taken == sent) {
                    p.park(); // ends with the next token or with the last one
                    ++taken;
                } else if (p.park_for(chance.rest(17))) {
                    ++taken;
                }
            }
            left_over = p.park_for(std::chrono::nanoseconds(0));
        } else {
            for (const test::stress_time time; time.is_left();) {
                chance.dawdle(15);
                ++sent;
                p.unpark();
                while (taken != sent) {
                    chance();
                }
            }
            ++sent; // for a park without a deadline in between
            over = true;
            p.unpark();
        }
    });
    CHECK(taken == sent);
    CHECK_FALSE(left_over);
}

// A token passes round a ring of threads.
template <class P> void ring(int threads) {
    std::deque<basic_parker<P>> parkers(static_cast<std::size_t>(threads));
    std::vector<long> passed(static_cast<std::size_t>(threads));
    std::atomic<bool> over{false};
    parkers[0].unpark();
    test::stress_threads(threads, [&](int me) {
        const auto mine = static_cast<std::size_t>(me);
        const auto next = static_cast<std::size_t>((me + 1) % threads);
        const test::stress_time time;
        for (bool last = false; !last;) {
            parkers[mine].park();
            ++passed[mine];
            last = over.load();
            if (me == 0 && !time.is_left()) {
                last = true;
                over = true; // the token passes round once more and ends each thread
            }
            if (!last || me + 1 < threads) {
                parkers[next].unpark();
            }
        }
    });
    long most = passed[0];
    long least = passed[0];
    for (const long n : passed) {
        most = n > most ? n : most;
        least = n < least ? n : least;
    }
    CHECK(least > 0);
    CHECK(most == least);
}

// The owner destroys the parker as soon as park() has returned.
template <class P> void short_lives() {
    std::atomic<basic_parker<P>*> current{nullptr};
    std::atomic<bool> over{false};
    std::atomic<int> lives{0};
    test::stress_threads(2, [&](int me) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(me));
        if (me == 0) {
            for (const test::stress_time time; time.is_left(); ++lives) {
                auto p = std::make_unique<basic_parker<P>>();
                current = p.get();
                chance();
                p->park();
            }
            over = true;
        } else {
            while (!over) {
                if (basic_parker<P>* const p = current.exchange(nullptr)) {
                    chance();
                    p->unpark();
                }
            }
        }
    });
    CHECK(lives > 0);
}

} // namespace

TEMPLATE_TEST_CASE("parker: tokens and time-outs, stress", "", test::native, test::portable,
                   test::jittery) {
    tokens_against_timeouts<TestType>();
}

TEMPLATE_TEST_CASE("parker: a ring of 64 threads, stress", "", test::native, test::portable,
                   test::jittery) {
    ring<TestType>(64);
}

TEMPLATE_TEST_CASE("parker: short lives, stress", "", test::native, test::portable, test::jittery) {
    short_lives<TestType>();
}

TEMPLATE_TEST_CASE("parker: on one processor, stress", "", test::native, test::portable,
                   test::jittery) {
    const test::on_one_processor pinned;
    tokens_against_timeouts<TestType>();
    ring<TestType>(3);
}
