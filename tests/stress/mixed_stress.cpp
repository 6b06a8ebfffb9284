// Threads, coroutines and other wakers at the same time, in thousands of short rounds that start
// together: a grant, a stop, a time-out and a cancel meet within a microsecond.

#include "support/coroutines.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/platforms.hpp"
#include "support/stress.hpp"
#include "support/test.hpp"

#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/task/task.hpp>

namespace {

using std::chrono::microseconds;

// ---- Back and forth

// The value is plain data: only the thread that has the turn touches it.
template <class S>
test::detached answer(S& to, S& fro, int rounds, std::uint64_t& turns,
                      test::thread_executor* where) {
    for (int i = 0; i < rounds; ++i) {
        if (where != nullptr) {
            auto got = co_await to.async_acquire().resume_on(*where);
            got.forget();
        } else {
            auto got = co_await to.async_acquire();
            got.forget();
        }
        turns += turns % 2 == 1 ? 1 : 0;
        fro.release();
    }
}

template <class S>
bide::task<void> answer_in_task(S& to, S& fro, int rounds, std::uint64_t& turns) {
    for (int i = 0; i < rounds; ++i) {
        auto got = co_await to.async_acquire();
        got.forget();
        turns += turns % 2 == 1 ? 1 : 0;
        fro.release();
    }
}

template <class S> void serve(S& to, S& fro, int rounds, std::uint64_t& turns) {
    for (int i = 0; i < rounds; ++i) {
        turns += turns % 2 == 0 ? 1 : 0;
        to.release();
        fro.acquire();
    }
}

template <class S> void to_and_fro() {
    constexpr int rounds = 200;
    const test::stress_time time;
    test::thread_executor other;
    do {
        for (const bool elsewhere : {false, true}) {
            std::uint64_t turns = 0;
            S to(0);
            S fro(0);
            answer(to, fro, rounds, turns, elsewhere ? &other : nullptr);
            serve(to, fro, rounds, turns);
            REQUIRE(turns == 2 * rounds);
        }
        std::uint64_t turns = 0;
        S to(0);
        S fro(0);
        test::run_threads(2, [&](int i) {
            if (i == 0) {
                serve(to, fro, rounds, turns);
            } else {
                bide::sync_wait(answer_in_task(to, fro, rounds, turns));
            }
        });
        REQUIRE(turns == 2 * rounds);
    } while (time.is_left());
}

} // namespace

TEMPLATE_TEST_CASE("semaphore: a thread and a coroutine pass a permit back and forth", "",
                   test::native, test::portable, test::jittery) {
    to_and_fro<bide::basic_semaphore<TestType>>();
}

TEST_CASE("semaphore: a thread and a coroutine pass a permit back and forth on one processor") {
    const test::on_one_processor here;
    to_and_fro<bide::semaphore>();
}

// ---- Races for the outcome

namespace {

enum class end : int { none, granted, stopped, timeout, closed };

template <class T> end end_of(const bide::result<T>& r) {
    return r                                  ? end::granted
           : r.error() == bide::errc::stopped ? end::stopped
           : r.error() == bide::errc::timeout ? end::timeout
                                              : end::closed;
}

// A waiter without a thread; it keeps what it is granted.
template <class S>
test::detached wait_limited(S& s, std::ptrdiff_t n, std::stop_token t, microseconds rest,
                            std::atomic<end>& e) {
    auto got = co_await s.async_acquire(n).with_stop(t).with_timeout(rest);
    const end how = end_of(got);
    if (got) {
        got->forget();
    }
    e = how; // the last touch: the round may be destroyed
}

template <class S> class foreigner {
public:
    foreigner(S& from, std::ptrdiff_t n) : from_(from), wait_(n, bide::waker(&woken, this)) {}

    void start() { at_once_ = from_.acquire_wait(wait_); }
    // The outcome. No wake is on its way any longer.
    end finish(bool give_up) {
        if (!at_once_ && give_up && from_.cancel_acquire(wait_)) {
            return end::stopped;
        }
        if (!at_once_) {
            test::eventually([this] { return wakes_.load() != 0; });
        }
        return end_of(wait_.outcome());
    }
    bool is_complete() const { return wait_.is_complete(); }
    int wakes() const { return wakes_.load(); }
    bool was_at_once() const { return at_once_; }

private:
    static void woken(void* self) noexcept { ++static_cast<foreigner*>(self)->wakes_; }

    S& from_;
    bool at_once_ = false;
    std::atomic<int> wakes_{0};
    typename S::waiter wait_;
};

// A head of random kind that wants 1 or 2, a waiter behind it that wants 1, releases of 1 and 2,
// and a stop, a time-out or a cancel, all at once.
template <class S> struct encounter {
    S s{0};
    std::ptrdiff_t wants = 1;
    unsigned kind = 0;
    std::stop_source stop;
    microseconds rest{0};
    std::atomic<end> head{end::none};
    foreigner<S> head_waker{s, 2};
    foreigner<S> next{s, 1};
    end next_end = end::none;

    void as_head() {
        switch (kind) {
        case 0: head = s.try_acquire_for(rest, wants) ? end::granted : end::timeout; break;
        case 1: head = end_of(s.acquire(stop.get_token(), wants)); break;
        case 2: head_waker.start(); break;
        default: wait_limited(s, wants, stop.get_token(), rest, head);
        }
    }
    void finish_head(bool give_up) {
        if (kind == 2) {
            head = head_waker.finish(give_up);
        }
        if (!test::eventually([&] { return head != end::none; })) {
            test::give_up(test::where(), "the head waits for ever");
        }
    }
};

template <class S> void encounters() {
    const test::stress_time time;
    constexpr std::ptrdiff_t released = 3;
    test::rendezvous meeting(3);
    std::unique_ptr<encounter<S>> round;
    std::atomic<bool> over{false};
    std::uint64_t rounds = 0;
    std::uint64_t wrong = 0;
    std::uint64_t seen[5] = {};
    test::stress_threads(3, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        for (;;) {
            if (i == 0) {
                round = std::make_unique<encounter<S>>();
                round->kind = chance.below(4);
                round->wants = round->kind == 2 ? 2 : 1 + static_cast<int>(chance.below(2));
                round->rest = microseconds(chance.below(40));
                over = !time.is_left();
            }
            meeting.meet();
            if (over) {
                return;
            }
            chance();
            encounter<S>& r = *round;
            if (i == 0) {
                r.as_head();
            } else if (i == 1) {
                r.s.release(1);
                chance();
                r.s.release(2);
            } else {
                r.next.start();
                chance();
                r.stop.request_stop();
                if (chance.below(2) == 0) {
                    r.next_end = r.next.finish(true);
                }
            }
            if (i == 0) {
                r.finish_head(chance.below(2) == 0);
            }
            meeting.meet();
            if (i == 0) {
                if (r.next_end == end::none) {
                    r.next_end = r.next.finish(false); // 3 are enough for both
                }
                std::ptrdiff_t taken = 0;
                taken += r.head == end::granted ? (r.kind == 2 ? 2 : r.wants) : 0;
                taken += r.next_end == end::granted ? 1 : 0;
                const bool once =
                    r.next.wakes() == (r.next_end == end::granted && !r.next.was_at_once());
                const bool good = taken + r.s.available() == released && r.s.waiters() == 0 &&
                                  once && r.head != end::closed;
                wrong += good ? 0 : 1;
                ++seen[static_cast<int>(r.head.load())];
                ++rounds;
            }
        }
    });
    INFO("BIDE_TEST_SEED=" << test::run_seed() << ", " << rounds << " rounds, head granted "
                           << seen[1] << ", stopped " << seen[2] << ", timed out " << seen[3]);
    CHECK(wrong == 0);
    CHECK(rounds > 0);
}

} // namespace

TEMPLATE_TEST_CASE("semaphore: a grant meets a stop, a time-out and a cancel: one of them decides",
                   "", test::native, test::portable, test::jittery) {
    encounters<bide::basic_semaphore<TestType>>();
}

TEST_CASE("semaphore: a grant meets a stop, a time-out and a cancel on one processor") {
    const test::on_one_processor here;
    encounters<bide::semaphore>();
}

// ---- On executors

namespace {

constexpr std::ptrdiff_t permits = 5;

struct ledger {
    std::atomic<std::ptrdiff_t> held{0};
    std::atomic<bool> overdrawn{false};
    std::atomic<std::uint64_t> grants{0};
    std::atomic<int> running{0};

    void take(std::ptrdiff_t n) noexcept {
        if (held.fetch_add(n) + n > permits) {
            overdrawn = true;
        }
        ++grants;
    }
    void give(std::ptrdiff_t n) noexcept { held.fetch_sub(n); }
};

template <class Op> Op on(test::thread_executor* where, Op op) {
    return where != nullptr ? std::move(op).resume_on(*where) : std::move(op);
}

// Acquires some permits, waits for more with a time limit, splits off some and releases it, and so
// on. It runs on `where`, or, if that is nullptr, on the thread that resumes it.
template <class S>
test::detached wander(S& s, ledger& l, std::uint32_t seed, std::stop_token stop,
                      test::thread_executor* where) {
    test::jitter chance(seed);
    for (int i = 0; i < 5; ++i) {
        const auto n = 1 + static_cast<std::ptrdiff_t>(chance.below(3));
        const microseconds rest(chance.below(80));
        auto got = co_await on(where, s.async_acquire(n).with_stop(stop));
        if (!got) {
            continue;
        }
        l.take(n);
        chance();
        auto more = co_await s.async_acquire().with_timeout(rest);
        if (more) {
            l.take(1);
            got->merge(std::move(*more));
        }
        const auto part = static_cast<std::ptrdiff_t>(chance.below(2));
        l.give(part);
        got->split(part).reset();
        chance();
        l.give(got->count());
    }
    --l.running;
}

template <class S> void wanderers(int threads) {
    const test::stress_time time;
    do {
        std::stop_source stop;
        S s(permits);
        ledger l;
        {
            test::thread_executor a;
            test::thread_executor b;
            test::run_threads(threads, [&](int i) {
                test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
                for (int k = 0; k < 20; ++k) {
                    test::thread_executor* const where[] = {&a, &b, nullptr};
                    ++l.running;
                    wander(s, l, chance.below(1u << 30), stop.get_token(), where[chance.below(3)]);
                    if (s.try_acquire_for(microseconds(chance.below(50)))) {
                        l.take(1);
                        chance();
                        l.give(1);
                        s.release();
                    }
                }
            });
            stop.request_stop();
            if (!test::eventually([&] { return l.running == 0; })) {
                test::give_up(test::where(), "coroutines wait for ever");
            }
        }
        REQUIRE_FALSE(l.overdrawn);
        REQUIRE(l.held == 0);
        REQUIRE(l.grants > 0);
        REQUIRE(s.waiters() == 0);
        REQUIRE(s.try_acquire(permits));
        REQUIRE_FALSE(s.try_acquire());
    } while (time.is_left());
}

} // namespace

TEMPLATE_TEST_CASE("semaphore: permits are conserved on executors, and on the releasing thread", "",
                   test::native, test::portable, test::jittery) {
    wanderers<bide::basic_semaphore<TestType>>(3);
}

TEST_CASE("semaphore: permits are conserved on executors with more threads than processors") {
    wanderers<bide::semaphore>(32);
}

// ---- Locks

namespace {

struct guarded {
    std::uint64_t sum = 0; // plain data
    std::atomic<std::uint64_t> expected{0};
    std::atomic<int> running{0};

    void add() noexcept {
        ++sum;
        ++expected;
    }
};

template <class Mutex>
test::detached lock_limited(Mutex& m, guarded& g, std::stop_token t, microseconds rest) {
    {
        const auto lock = co_await m.async_lock().with_stop(t).with_timeout(rest);
        if (lock) {
            g.add();
        }
    }
    --g.running;
}

template <class Mutex> void locks(int threads, int turns) {
    const test::stress_time time;
    do {
        Mutex m;
        guarded g;
        test::run_threads(threads, [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
            for (int turn = 0; turn < turns; ++turn) {
                std::stop_source stop;
                const microseconds rest(chance.below(60));
                switch (chance.below(5)) {
                case 0:
                    ++g.running;
                    lock_limited(m, g, stop.get_token(), rest);
                    break;
                case 1:
                    if (m.try_lock_for(rest)) {
                        g.add();
                        m.unlock();
                    }
                    break;
                default:
                    m.lock();
                    g.add();
                    chance();
                    m.unlock();
                }
                chance();
                stop.request_stop();
            }
        });
        if (!test::eventually([&] { return g.running == 0; })) {
            test::give_up(test::where(), "coroutines wait for ever");
        }
        REQUIRE(m.try_lock());
        REQUIRE(g.sum == g.expected);
        m.unlock();
    } while (time.is_left());
}

} // namespace

TEMPLATE_TEST_CASE("mutexes: no update is lost beside stops and time-outs", "", bide::mutex,
                   bide::adaptive_mutex, bide::shared_mutex, bide::basic_mutex<test::jittery>,
                   bide::basic_adaptive_mutex<test::jittery>,
                   bide::basic_shared_mutex<test::jittery>) {
    locks<TestType>(4, 50);
}

TEMPLATE_TEST_CASE("mutexes: no update is lost beside stops and time-outs on one processor", "",
                   bide::mutex, bide::adaptive_mutex, bide::shared_mutex) {
    const test::on_one_processor here;
    locks<TestType>(8, 50);
}
