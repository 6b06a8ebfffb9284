// How long a sleeping head of the queue may be overtaken. mutex_test.cpp has what every lock promises.

#include "support/any_wait.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

namespace {

// A platform whose sleepers do not resume before they may, and whose clock can be put forward: a
// thread that was roused is late for as long as the test wants.
struct late : test::native {
    inline static std::atomic<int> asleep{0};
    inline static std::atomic<bool> stay{false};
    inline static std::atomic<std::int64_t> ahead{0}; // nanoseconds

    template <class Word>
    static bool futex_wait(const std::atomic<Word>& word, Word expected,
                           std::int64_t until) noexcept {
        constexpr bool is_wait = std::is_same_v<Word, bide::wait_status>;
        if constexpr (is_wait) {
            asleep.fetch_add(1);
        }
        const bool in_time = test::native::futex_wait(word, expected, until);
        if constexpr (is_wait) {
            asleep.fetch_sub(1);
            while (stay) {
                std::this_thread::yield();
            }
        }
        return in_time;
    }
    static std::int64_t now() noexcept { return test::native::now() + ahead.load(); }

    static bool are_asleep(int n) {
        return test::eventually([n] { return asleep == n; });
    }
};

using mutex = bide::basic_adaptive_mutex<late>;

// Unlocks and locks it as often as that works while its head does not run. Returns how often.
unsigned overtake(mutex& m) {
    unsigned overtakes = 0;
    m.unlock();
    while (overtakes < 4 * mutex::max_overtakes && m.try_lock()) {
        ++overtakes;
        m.unlock();
    }
    return overtakes;
}
bool is_free(mutex& m) {
    const bool free = m.try_lock();
    if (free) {
        m.unlock();
    }
    return free;
}

} // namespace

TEST_CASE(
    "adaptive_mutex: a running thread overtakes a sleeping head at most max_overtakes times") {
    mutex m;
    for (int round = 0; round < 3; ++round) { // each head anew
        CAPTURE(round);
        m.lock();
        bool locked = false;
        test::team head(1, [&](int) {
            m.lock();
            locked = true;
            m.unlock();
        });
        REQUIRE(late::are_asleep(1));
        // Each unlock from here on may float, and takes one off what is left; the head does not run.
        // So exactly so many are followed by another thread's success, and the next is not.
        late::stay = true;
        CHECK(overtake(m) == mutex::max_overtakes);
        CHECK_FALSE(m.try_lock()); // it is the head's, which has not run yet
        late::stay = false;
        head.join();
        CHECK(locked);
    }
    CHECK(is_free(m));
}

TEST_CASE("adaptive_mutex: the next head is overtaken at most max_overtakes times, too") {
    mutex m;
    std::stop_source stop;
    m.lock();
    test::wait_end first{};
    bool second = false;
    test::team head(1, [&](int) { first = test::wait_end_of(m.lock(stop.get_token())); });
    REQUIRE(late::are_asleep(1));
    test::team next(1, [&](int) {
        m.lock();
        second = true;
        m.unlock();
    });
    REQUIRE(late::are_asleep(2));
    late::stay = true;
    for (int i = 0; i < 10; ++i) {
        m.unlock();
        REQUIRE(m.try_lock());
    }
    stop.request_stop(); // while it is taken: the next in line becomes the head
    CHECK(overtake(m) == mutex::max_overtakes);
    late::stay = false;
    head.join();
    next.join();
    CHECK(first == test::wait_end::stopped);
    CHECK(second);
    CHECK(is_free(m));
}

TEST_CASE("adaptive_mutex: a sleeping head is overtaken at most max_overtakes times by "
          "all threads together",
          "[promise.bounded-overtaking]") {
    for (int round = 0; round < 20; ++round) {
        CAPTURE(round);
        mutex m;
        unsigned others = 0; // under the mutex: its locks since the head is known to sleep
        unsigned seen = std::numeric_limits<unsigned>::max();
        std::atomic<bool> over{false};
        m.lock();
        test::team head(1, [&](int) {
            m.lock();
            seen = others;
            over = true;
            m.unlock();
        });
        REQUIRE(late::are_asleep(1));
        test::team passing(2, [&](int) {
            // Until the head has it, each lock comes after an unlock that floated, and each of those
            // took one off what was left: no bound for chance has to be added.
            while (!over) {
                if (m.try_lock()) {
                    ++others;
                    m.unlock();
                }
            }
        });
        m.unlock();
        head.join();
        passing.join();
        REQUIRE(seen <= mutex::max_overtakes);
    }
}

TEST_CASE("adaptive_mutex: a head that is overtaken for max_overtake_time is handed it") {
    const std::int64_t overdue = std::chrono::nanoseconds(mutex::max_overtake_time).count();
    mutex m;
    bool locked = false;
    m.lock();
    test::team head(1, [&](int) {
        m.lock();
        locked = true;
        m.unlock();
    });
    REQUIRE(late::are_asleep(1));
    for (int look = 0; look < 2; ++look) {
        // Roused, and overtaken while it rises; it tries in vain, and sleeps again.
        late::stay = true;
        m.unlock();
        REQUIRE(m.try_lock());
        REQUIRE(late::are_asleep(0));
        late::ahead = late::ahead + (look == 0 ? 0 : overdue);
        late::stay = false;
        REQUIRE(late::are_asleep(1));
    }
    late::stay = true;
    m.unlock();
    CHECK_FALSE(m.try_lock());
    late::stay = false;
    head.join();
    CHECK(locked);
    late::ahead = 0;
}

TEST_CASE("adaptive_mutex: a head that gives up while it floats grants it to the next") {
    const bool next_is_thread = GENERATE(true, false);
    CAPTURE(next_is_thread);
    mutex m;
    std::stop_source stop;
    test::wait_end first{};
    std::atomic<bool> second{false};
    test::journal turns;
    m.lock();
    test::team head(1, [&](int) { first = test::wait_end_of(m.lock(stop.get_token())); });
    REQUIRE(late::are_asleep(1));
    std::optional<test::team> next;
    if (next_is_thread) {
        next.emplace(1, [&](int) {
            m.lock();
            second = true;
            m.unlock();
        });
        REQUIRE(late::are_asleep(2));
    } else {
        [](mutex& of, test::journal& to) -> test::detached {
            const auto lock = co_await of.async_lock();
            to.add(7);
        }(m, turns);
    }
    late::stay = true;
    m.unlock(); // the head is roused, and late
    stop.request_stop();
    if (next_is_thread) {
        CHECK_FALSE(m.try_lock()); // no unlock was needed for that
    }
    late::stay = false;
    head.join();
    CHECK(first == test::wait_end::stopped);
    if (next) {
        next->join();
        CHECK(second);
    } else {
        CHECK(turns.reaches(1));
    }
    CHECK(m.try_lock_for(test::patience));
    m.unlock();
}

TEST_CASE("adaptive_mutex: if the last waiter gives up while it floats, it is free") {
    mutex m;
    std::stop_source stop;
    test::wait_end end{};
    m.lock();
    test::team head(1, [&](int) { end = test::wait_end_of(m.lock(stop.get_token())); });
    REQUIRE(late::are_asleep(1));
    late::stay = true;
    m.unlock();
    stop.request_stop();
    CHECK(m.try_lock());
    m.unlock();
    late::stay = false;
    head.join();
    CHECK(end == test::wait_end::stopped);
}
