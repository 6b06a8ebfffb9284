// How long a sleeping head of the queue may be overtaken. mutex_test.cpp has what every lock promises.

#include "support/any_wait.hpp"
#include "support/is_free.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

#include <bide/sched/run_loop.hpp>
#include <bide/task/task.hpp>

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

namespace {

using native_mutex = bide::adaptive_mutex;

// Coroutines that wait on an executor that the test runs, and keep the mutex.
template <class Mutex> struct waiting_coroutine {
    waiting_coroutine(Mutex& m, test::manual_executor& on, std::stop_token stop = {},
                      bide::deadline until = bide::deadline::never())
        : frame(wait(m, on, std::move(stop), until, *this)) {
        frame.start();
    }
    waiting_coroutine(const waiting_coroutine&) = delete;
    waiting_coroutine& operator=(const waiting_coroutine&) = delete;
    ~waiting_coroutine() = default;

    static test::held wait(Mutex& m, test::manual_executor& on, std::stop_token stop,
                           bide::deadline until, waiting_coroutine& to) {
        auto got =
            co_await m.async_lock().with_stop(std::move(stop)).with_deadline(until).resume_on(on);
        to.end = test::wait_end_of(got);
        if (got) {
            to.lock = std::move(*got);
        }
    }

    std::unique_lock<Mutex> lock;
    std::atomic<test::wait_end> end{};
    test::held frame;
};

// A mutex that was unlocked when two coroutines waited. The first one is to run next.
struct two_waiting {
    two_waiting() {
        REQUIRE(is_locked);
        m.unlock();
    }

    native_mutex m;
    test::manual_executor later;
    const bool is_locked = m.try_lock();
    waiting_coroutine<native_mutex> first{m, later};
    waiting_coroutine<native_mutex> second{m, later};
};

unsigned overtake_all(native_mutex& m) {
    unsigned overtakes = 0;
    for (; overtakes < 4 * native_mutex::max_overtakes && m.try_lock(); ++overtakes) {
        m.unlock();
    }
    return overtakes;
}

} // namespace

TEST_CASE("adaptive_mutex: a coroutine is overtaken until it runs, at most max_overtakes times",
          "[promise.bounded-overtaking]") {
    two_waiting of;
    auto& [m, later, is_locked, first, second] = of;
    CHECK(overtake_all(m) == native_mutex::max_overtakes);
    CHECK(later.run_all() == 1);
    REQUIRE(first.lock.owns_lock());
    first.lock.unlock(); // the next one has as many before it
    CHECK(overtake_all(m) == native_mutex::max_overtakes);
    CHECK(later.run_all() == 1);
    REQUIRE(second.lock.owns_lock());
    second.lock.unlock();
    CHECK(test::is_free(m));
}

TEST_CASE("adaptive_mutex: a coroutine that runs while it is overtaken is handed it next",
          "[promise.bounded-overtaking]") {
    two_waiting of;
    auto& [m, later, is_locked, first, second] = of;
    REQUIRE(m.try_lock());
    CHECK(later.run_all() == 1);
    CHECK(first.end == test::wait_end::nothing_yet);
    m.unlock();
    CHECK_FALSE(m.try_lock());
    CHECK(later.run_all() == 1);
    CHECK(first.lock.owns_lock());
    CHECK(second.end == test::wait_end::nothing_yet);
    first.lock.unlock();
    CHECK(later.run_all() == 1);
    CHECK(second.lock.owns_lock());
}

TEST_CASE("adaptive_mutex: a coroutine that was resumed to try and gives up passes the mutex on",
          "[promise.giving-up-passes-on]") {
    const bool is_overtaken = GENERATE(false, true);
    const int way = GENERATE(0, 1, 2, 3);
    CAPTURE(is_overtaken, way);
    native_mutex m;
    test::manual_executor later;
    std::stop_source stop;
    m.lock();
    std::optional<waiting_coroutine<native_mutex>> first;
    const auto soon = steady_clock::now() + (way == 2 ? 1ms : 1h);
    first.emplace(m, later, stop.get_token(), soon);
    waiting_coroutine second(m, later);
    m.unlock();
    REQUIRE((!is_overtaken || m.try_lock()));
    switch (way) {
    case 0: // destroyed before it runs
        later.drop_all();
        first.reset();
        break;
    case 1: stop.request_stop(); break;
    case 2: std::this_thread::sleep_until(soon); break;
    default: // destroyed when it waits again
        if (is_overtaken) {
            CHECK(later.run_one());
        }
        later.drop_all();
        first.reset();
    }
    later.run_one();
    const bool ends_early = is_overtaken && (way == 1 || way == 2);
    if (ends_early) { // tries, and waits no more
        CHECK(test::eventually([&] {
            later.run_all();
            return first->end != test::wait_end::nothing_yet;
        }));
        CHECK(first->end == (way == 1 ? test::wait_end::stopped : test::wait_end::timeout));
    } else if (first) {
        CHECK(first->lock.owns_lock()); // it was free
        first->lock.unlock();
    }
    if (is_overtaken) {
        CHECK(second.end == test::wait_end::nothing_yet);
        m.unlock();
    }
    later.run_all();
    REQUIRE(second.lock.owns_lock());
    second.lock.unlock();
    CHECK(test::is_free(m));
}

TEST_CASE("adaptive_mutex: a task that is cancelled after it was resumed to try",
          "[promise.cancel-ends-wait]") {
    const bool is_overtaken = GENERATE(false, true);
    CAPTURE(is_overtaken);
    native_mutex m;
    bide::run_loop loop;
    test::wait_end end{};
    m.lock();
    const auto lock_it = [](native_mutex& of, test::wait_end& to) -> bide::task<> {
        auto got = co_await of.async_lock().as_result();
        to = test::wait_end_of(got);
    };
    auto waiting = loop.spawn(lock_it(m, end));
    loop.poll();
    m.unlock();
    REQUIRE((!is_overtaken || m.try_lock()));
    waiting.cancel();
    loop.run();
    CHECK(end == (is_overtaken ? test::wait_end::stopped : test::wait_end::through));
    if (is_overtaken) {
        m.unlock();
    }
    CHECK(test::is_free(m));
}

TEST_CASE("adaptive_mutex: a thread behind a coroutine that tries") {
    mutex m;
    test::manual_executor later;
    m.lock();
    waiting_coroutine first(m, later);
    std::atomic<bool> locked{false};
    test::team thread(1, [&](int) {
        m.lock();
        locked = true;
        m.unlock();
    });
    REQUIRE(late::are_asleep(1));
    m.unlock(); // resumes the coroutine, and does not wake the thread
    REQUIRE(m.try_lock());
    CHECK(later.run_all() == 1);
    m.unlock(); // hands it to the coroutine
    CHECK(later.run_all() == 1);
    REQUIRE(first.lock.owns_lock());
    CHECK_FALSE(locked);
    first.lock.unlock();
    thread.join();
    CHECK(locked);
    CHECK(is_free(m));
}
