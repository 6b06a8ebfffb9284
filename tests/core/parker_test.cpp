#include <bide/core/parker.hpp>
#include <support/alloc.hpp>
#include <support/fake_clock.hpp>
#include <support/gate.hpp>
#include <support/jitter.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using namespace std::chrono_literals;
using bide::basic_parker;
using bide::deadline;

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

TEMPLATE_TEST_CASE("parker: a park that timed out does not affect later parks", "", test::native,
                   test::portable) {
    basic_parker<TestType> p;
    CHECK_FALSE(p.park_for(1us));
    p.unpark();
    CHECK(p.park_for(1h));
    CHECK_FALSE(p.park_for(1us));
}

BIDE_PARKER_TEST_CASE("parker: each park waits for a token and ends with it") {
    constexpr int rounds = 1'000;
    basic_parker<TestType> parkers[2];
    int passed[2] = {0, 0};
    test::run_threads(2, [&](int me) {
        for (int i = 0; i < rounds; ++i) {
            if (me == 0) {
                parkers[1].unpark();
                parkers[0].park();
            } else {
                parkers[1].park();
                parkers[0].unpark();
            }
            ++passed[me];
        }
    });
    CHECK(passed[0] == rounds);
    CHECK(passed[1] == rounds);
    CHECK_FALSE(parkers[0].park_for(0s));
    CHECK_FALSE(parkers[1].park_for(0s));
}

BIDE_PARKER_TEST_CASE("parker: writes before unpark are visible after park") {
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

// ThreadSanitizer reports a race if the token does not order the data; the flag does not.
TEMPLATE_TEST_CASE("parker: an unpark that finds a token also orders its writes", "", test::native,
                   test::portable) {
    for (int i = 0; i < 50; ++i) {
        basic_parker<TestType> p;
        int data = 0;
        std::atomic<bool> done{false};
        p.unpark();
        test::team late(1, [&](int) {
            data = 1;
            p.unpark();
            done.store(true, std::memory_order_relaxed);
        });
        while (!done.load(std::memory_order_relaxed)) {
            std::this_thread::yield();
        }
        p.park();
        CHECK(data == 1);
        late.join();
    }
}

// The notifier sends the next token when the last one was counted: none is lost, none is doubled.
BIDE_PARKER_TEST_CASE("parker: tokens that race with time-outs are neither lost nor doubled") {
    constexpr int tokens = 2'000;
    basic_parker<TestType> p;
    std::atomic<int> taken{0};
    test::run_threads(2, [&](int me) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(me));
        if (me == 0) {
            while (taken.load() < tokens) {
                if (p.park_for(chance.rest(15))) {
                    ++taken;
                }
            }
        } else {
            for (int sent = 1; sent <= tokens; ++sent) {
                chance.dawdle(15);
                p.unpark();
                while (taken.load() < sent) {
                    chance();
                }
            }
        }
    });
    CHECK(taken == tokens);
    CHECK_FALSE(p.park_for(0s));
}

BIDE_PARKER_TEST_CASE("parker: it may be destroyed as soon as park has returned") {
    constexpr int rounds = 500;
    std::atomic<basic_parker<TestType>*> current{nullptr};
    test::run_threads(2, [&](int me) {
        for (int i = 0; i < rounds; ++i) {
            if (me == 0) {
                auto p = std::make_unique<basic_parker<TestType>>();
                current.store(p.get());
                p->park();
            } else {
                basic_parker<TestType>* p = nullptr;
                while ((p = current.exchange(nullptr)) == nullptr) {
                    std::this_thread::yield();
                }
                p->unpark();
            }
        }
    });
    SUCCEED();
}

BIDE_PARKER_TEST_CASE("parker: many threads unpark at once") {
    constexpr int rounds = 500;
    basic_parker<TestType> p;
    std::atomic<int> round{0};
    test::run_threads(4, [&](int me) {
        for (int i = 1; i <= rounds; ++i) {
            if (me == 0) {
                round.store(i);
                p.park();
            } else {
                test::eventually([&] { return round.load() >= i; });
                p.unpark();
            }
        }
    });
    CHECK(round == rounds);
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
