// Locks and permits, which all kinds of waiters wait for and give up in every way. At the end, what they
// have guarded is counted.

#include <bide/core/callback_wait.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/biased_shared_mutex.hpp>
#include <bide/sync/keyed_mutex.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/once.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/task/lock_all.hpp>
#include <support/is_free.hpp>
#include <support/sched.hpp>

using namespace bide;
using namespace test;

namespace {

// Counts the shares that are held, of which there are `all`. A thread that holds all of them writes plain
// data, and a thread that holds fewer reads it: if both are inside, a sum is wrong and a sanitizer sees a race.
class books {
public:
    explicit books(std::ptrdiff_t shares) : all(shares) {}

    void use(std::ptrdiff_t n, test::jitter& chance) noexcept {
        wrong_ += held_.fetch_add(n) + n > all ? 1 : 0;
        if (n == all) {
            ++first_;
            chance();
            ++second_;
            ++written_;
        } else {
            const std::uint64_t seen = first_;
            chance();
            wrong_ += first_ == seen && second_ == seen ? 0 : 1;
        }
        held_ -= n;
        ++uses_;
    }
    void expect(bool right) noexcept { wrong_ += right ? 0 : 1; }
    std::uint64_t version() const noexcept { return first_; }

    void check() const {
        CHECK(wrong_ == 0);
        CHECK(held_ == 0);
        CHECK(first_ == written_);
        CHECK(second_ == written_);
        CHECK(uses_ > 0);
    }

    const std::ptrdiff_t all;

private:
    std::uint64_t first_ = 0;
    std::uint64_t second_ = 0;
    std::atomic<std::uint64_t> written_{0};
    std::atomic<std::uint64_t> uses_{0};
    std::atomic<std::ptrdiff_t> held_{0};
    std::atomic<std::uint64_t> wrong_{0};
};

// ---- What is held: how to wait for it, and how to give it back

template <class S> struct permits {
    S& from;
    books& in;
    std::ptrdiff_t n;

    void use(test::jitter& chance) { in.use(n, chance); }
    bool try_now() { return from.try_acquire(n); }
    bool wait_for(microseconds rest) { return from.try_acquire_for(rest, n); }
    bool wait(std::stop_token stop) { return from.acquire(stop, n).has_value(); }
    void wait() { from.acquire(n); }
    auto async_wait() { return from.async_acquire(n); }
    void give_back(test::jitter&) { from.release(n); }

    // By a waker, which is called once if the permits were granted later.
    bool wait_by_waker(test::jitter& chance) {
        std::atomic<int> wakes{0};
        const auto wake = [](void* count) noexcept { ++*static_cast<std::atomic<int>*>(count); };
        typename S::waiter w(n, waker(wake, &wakes));
        if (from.acquire_wait(w)) {
            in.expect(wakes == 0);
            return true;
        }
        chance();
        if (chance.below(2) == 0 && from.cancel_acquire(w)) {
            in.expect(wakes == 0);
            return false;
        }
        while (wakes == 0) { // what it points to must outlive its call
            std::this_thread::yield();
        }
        in.expect(wakes == 1 && w.is_complete());
        return true;
    }
};

template <class Mutex> struct exclusive {
    Mutex& of;
    books& in;

    void use(test::jitter& chance) { in.use(in.all, chance); }
    bool try_now() { return of.try_lock(); }
    bool wait_for(microseconds rest) { return of.try_lock_for(rest); }
    bool wait(std::stop_token stop) { return of.lock(stop).has_value(); }
    void wait() { of.lock(); }
    auto async_wait() { return of.async_lock(); }
    void give_back(test::jitter& chance) {
        if constexpr (requires { of.unlock_and_lock_shared(); }) {
            if (chance.below(4) == 0) {
                of.unlock_and_lock_shared();
                in.use(1, chance);
                return of.unlock_shared();
            }
        }
        of.unlock();
    }
};

template <class Mutex> struct shared {
    Mutex& of;
    books& in;

    void use(test::jitter& chance) { in.use(1, chance); }
    bool try_now() { return of.try_lock_shared(); }
    bool wait_for(microseconds rest) { return of.try_lock_shared_for(rest); }
    bool wait(std::stop_token stop) { return of.lock_shared(stop).has_value(); }
    void wait() { of.lock_shared(); }
    auto async_wait() { return of.async_lock_shared(); }
    void give_back(test::jitter&) { of.unlock_shared(); }
};

template <class Keyed> struct with_key {
    Keyed& of;
    books& in;
    int key;
    decltype(of.try_lock(key)) held{};

    void use(test::jitter& chance) { in.use(1, chance); }
    bool keep(decltype(held) got) {
        held = std::move(got);
        return static_cast<bool>(held);
    }
    bool try_now() { return keep(of.try_lock(key)); }
    bool wait_for(microseconds rest) { return keep(of.try_lock_for(key, rest)); }
    bool wait(std::stop_token stop) {
        auto got = of.lock(stop, key);
        return got && keep(std::move(*got));
    }
    void wait() { keep(of.lock(key)); }
    auto async_wait() { return of.async_lock(key); }
    void give_back(test::jitter&) { held.unlock(); }
};

template <class How> task<> hold_in_task(How& how, microseconds rest, test::jitter& chance) {
    if (rest.count() == 0) {
        const auto held = co_await how.async_wait();
        how.use(chance);
        co_return;
    }
    const auto held = co_await how.async_wait().with_timeout(rest);
    if (held) {
        how.use(chance);
    }
}

// Waits as an event loop does, and then gives up, or takes what it was granted. The waker is called once
// at most, and not after the end.
template <class P, class How> void hold_by_callback(How& how, test::jitter& chance) {
    std::atomic<int> wakes{0};
    std::stop_source stop = test::new_stop();
    const auto wake = [](void* count) noexcept { ++*static_cast<std::atomic<int>*>(count); };
    basic_callback_wait<typename decltype(how.async_wait())::value_type, P> w(waker(wake, &wakes));
    bool at_once = false;
    switch (chance.below(3)) {
    case 0: at_once = w.begin(how.async_wait()); break;
    case 1: at_once = w.begin(how.async_wait().with_timeout(microseconds(chance.below(60)))); break;
    default: at_once = w.begin(how.async_wait().with_stop(stop.get_token()));
    }
    chance();
    switch (chance.below(4)) {
    case 0: return; // destroyed as it is
    case 1: stop.request_stop(); break;
    case 2: break;
    default:
        for (int i = 0; i < 100 && !w.is_complete(); ++i) {
            chance();
        }
    }
    const bool ended = w.cancel();
    how.in.expect(wakes == 0 || (wakes == 1 && !ended && !at_once));
    if (const auto held = w.take()) {
        how.use(chance);
    }
}

template <class P, class How> void hold(How how, test::jitter& chance) {
    switch (chance.below(9)) {
    case 0: return sync_wait(hold_in_task(how, microseconds(0), chance));
    case 1: return sync_wait(hold_in_task(how, microseconds(1 + chance.below(100)), chance));
    case 2: return hold_by_callback<P>(how, chance);
    case 3:
        if (!how.try_now()) {
            return;
        }
        break;
    case 4:
        if (!how.wait_for(microseconds(chance.below(60)))) {
            return;
        }
        break;
    case 5: {
        std::stop_source stop = test::new_stop();
        const std::jthread stops([&stop] { stop.request_stop(); });
        if (!how.wait(stop.get_token())) {
            return;
        }
        break;
    }
    case 6:
        if constexpr (requires { how.wait_by_waker(chance); }) {
            if (!how.wait_by_waker(chance)) {
                return;
            }
            break;
        }
        [[fallthrough]];
    default: how.wait();
    }
    how.use(chance);
    how.give_back(chance);
}

template <class Op> Op on(test::thread_executor* where, Op op) {
    return where != nullptr ? std::move(op).resume_on(*where) : std::move(op);
}

// Where coroutines resume, and what ends them.
struct places {
    test::thread_executor thread;
    semaphore elsewhere{1};
    std::stop_source stop = test::new_stop();
    std::atomic<int> running{0};
};
// Runs on `where`, or on the thread that resumes it. Sometimes it goes on elsewhere with what it holds.
template <class How>
test::detached wander(How how, std::uint32_t seed, places& at, test::thread_executor* where) {
    test::jitter chance(seed);
    {
        const microseconds rest(chance.below(2) == 0 ? 1'000'000 : chance.below(80));
        auto op = on(where, how.async_wait().with_stop(at.stop.get_token()).with_timeout(rest));
        auto held = co_await std::move(op);
        if (held) {
            how.use(chance);
        }
        if constexpr (requires { held->split(0); }) {
            if (held) { // waits for more while it holds some
                auto more = co_await how.from.async_acquire().with_timeout(microseconds(40));
                if (more) {
                    held->merge(std::move(*more));
                }
                held->split(static_cast<std::ptrdiff_t>(chance.below(2))).reset();
                if (held->count() != 0) {
                    how.in.use(held->count(), chance);
                }
            }
        }
        if (held && chance.below(2) == 0) {
            const auto turn = co_await at.elsewhere.async_acquire().resume_on(at.thread);
            if constexpr (!requires { held->split(0); }) {
                how.use(chance);
            }
        }
    }
    --at.running;
}

template <class P> struct of_permits {
    using platform = P;
    basic_semaphore<P> it{4};
    books in{4};

    template <class F> void choose(test::jitter& chance, F f) {
        f(permits<basic_semaphore<P>>{it, in, 1 + static_cast<std::ptrdiff_t>(chance.below(4))});
    }
    bool is_free() const { return it.available() == 4 && it.waiters() == 0; }
    void check() const { in.check(); }
};

template <class Mutex, class P> struct of_mutex {
    using platform = P;
    Mutex it;
    books in{1};

    template <class F> void choose(test::jitter&, F f) { f(exclusive<Mutex>{it, in}); }
    bool is_free() { return test::is_free(it); }
    void check() const { in.check(); }
};
template <class P> using of_plain = of_mutex<basic_mutex<P>, P>;
template <class P> using of_adaptive = of_mutex<basic_adaptive_mutex<P>, P>;

// One write in 4 to 512: so a bias comes and goes, and stays.
template <class Mutex, class P> struct of_shared_mutex {
    using platform = P;
    Mutex it;
    books in{1'000};
    std::atomic<unsigned> turns{0};

    template <class F> void choose(test::jitter& chance, F f) {
        const std::uint32_t every = 4u << (++turns / 256 % 8);
        if (chance.below(every) == 0) {
            f(exclusive<Mutex>{it, in});
        } else if (chance.below(4) == 0) {
            upgrade(chance);
        } else {
            f(shared<Mutex>{it, in});
        }
    }
    // Reads, and writes if it becomes the writer: no other one has written in between.
    void upgrade([[maybe_unused]] test::jitter& chance) {
        if constexpr (requires { it.upgrade(); }) {
            const microseconds limit(chance.below(50));
            if (!it.try_lock_upgradable_for(limit)) {
                return;
            }
            in.use(1, chance);
            const std::uint64_t seen = in.version();
            const bool upgraded = chance.below(2) == 0   ? it.try_upgrade_for(limit)
                                  : chance.below(2) == 0 ? it.try_upgrade()
                                                         : (it.upgrade(), true);
            in.expect(in.version() == seen);
            if (upgraded) {
                in.use(in.all, chance);
                it.downgrade();
            }
            it.unlock_upgradable();
        }
    }
    bool is_free() { return test::is_free(it); }
    void check() const { in.check(); }
};
template <class P> using of_shared = of_shared_mutex<basic_shared_mutex<P>, P>;
// Of two slots, which threads share.
template <class P> using of_biased = of_shared_mutex<basic_biased_shared_mutex<P, 2>, P>;

template <class P> struct of_keys {
    using platform = P;
    using keyed = keyed_mutex<int, std::hash<int>, std::equal_to<int>, P>;
    keyed it{2};
    std::array<books, 3> in{books(1), books(1), books(1)};

    template <class F> void choose(test::jitter& chance, F f) {
        const std::size_t key = chance.below(3);
        f(with_key<keyed>{it, in[key], static_cast<int>(key)});
    }
    bool is_free() { return it.try_lock(0) && it.try_lock(1) && it.try_lock(2); }
    void check() const {
        for (const books& one : in) {
            one.check();
        }
    }
};

template <class Locks> void storms(int threads, int turns) {
    using platform = typename Locks::platform;
    const test::stress_time time;
    Locks of;
    std::uint32_t round = 0;
    do {
        places at;
        const auto play = [&](int, test::jitter& chance) {
            const auto turn = [&](auto how) {
                if (chance.below(8) == 0) {
                    ++at.running;
                    auto* const where = chance.below(2) == 0 ? &at.thread : nullptr;
                    wander(std::move(how), chance.below(1u << 30), at, where);
                } else {
                    hold<platform>(std::move(how), chance);
                }
            };
            for (int i = 0; i < turns; ++i) {
                of.choose(chance, turn);
            }
        };
        test::players(threads, play, ++round);
        at.stop.request_stop();
        if (!test::eventually([&] { return at.running == 0; })) {
            test::give_up(test::where(), "coroutines wait for ever");
        }
        REQUIRE(of.is_free());
    } while (time.is_left());
    of.check();
}

// The value is plain data: only the side that has the turn touches it.
template <class S>
test::detached answer(S& to, S& fro, int rounds, std::uint64_t& turns,
                      test::thread_executor& where) {
    for (int i = 0; i < rounds; ++i) {
        auto got = co_await to.async_acquire().resume_on(where);
        got.forget();
        turns += turns % 2;
        fro.release();
    }
}

// No other thread could wake a waiter that a lost wakeup left asleep.
template <class S> void to_and_fro() {
    constexpr int rounds = 200;
    test::thread_executor other;
    test::rounds([&other](std::uint32_t) {
        std::uint64_t turns = 0;
        S to(0);
        S fro(0);
        answer(to, fro, rounds, turns, other);
        for (int n = 0; n < rounds; ++n) {
            turns += turns % 2 == 0 ? 1 : 0;
            to.release();
            fro.acquire();
        }
        REQUIRE(turns == 2 * rounds);
    });
}

// Reads over a suspension, and so leaves on another worker than it came, at times.
task<> read_and_wander(biased_shared_mutex& m, books& in, int times) {
    test::jitter chance(test::run_seed());
    for (int i = 0; i < times; ++i) {
        const auto held = co_await m.async_lock_shared();
        in.use(1, chance);
        co_await this_task::yield();
        in.use(1, chance);
    }
}
task<> write_often(biased_shared_mutex& m, books& in, int times) {
    test::jitter chance(test::run_seed());
    for (int i = 0; i < times; ++i) {
        {
            const auto held = co_await m.async_lock();
            in.use(in.all, chance);
            co_await this_task::yield();
        }
        for (int n = 0; n < 100; ++n) { // meanwhile it is biased again
            co_await this_task::yield();
        }
    }
}

// Locks it again and again, at times with a time-out, until the task is cancelled.
task<> lock_often(adaptive_mutex& m, int& inside, std::atomic<int>& counted, std::uint32_t seed) {
    test::jitter chance(seed);
    for (int i = 0; i < 200; ++i) {
        const microseconds rest(chance.below(4) == 0 ? chance.below(60) : 1'000'000);
        auto held = co_await m.async_lock().with_timeout(rest);
        if (!held && held.error() == errc::stopped) {
            co_return;
        }
        if (held) {
            ++inside;
            ++counted;
            if (chance.below(8) == 0) {
                static_cast<void>(co_await this_task::yield().as_result());
                ++inside;
                ++counted;
            }
        }
    }
}

template <class M> task<> lock_both(M& a, M& b, books& in, test::jitter& chance) {
    const auto held = co_await async_lock_all(a, b);
    in.use(1, chance);
}

} // namespace

TEMPLATE_TEST_CASE("locks: no share is lost or doubled in storms of every kind of waiter",
                   "[promise.permits-conserved][promise.biased-as-shared][promise.keyed-mutex]"
                   "[promise.callback-grants][promise.upgrade]",
                   of_permits<native>, of_permits<portable>, of_permits<jittery>, of_plain<native>,
                   of_plain<portable>, of_plain<jittery>, of_adaptive<native>,
                   of_adaptive<portable>, of_adaptive<jittery>, of_shared<native>,
                   of_shared<portable>, of_shared<jittery>, of_biased<native>, of_biased<portable>,
                   of_biased<jittery>, of_keys<native>, of_keys<portable>, of_keys<jittery>) {
    storms<TestType>(4, 50);
}

TEMPLATE_TEST_CASE("locks: the same with many more threads than processors, and on one processor",
                   "[promise.permits-conserved]", of_permits<native>, of_plain<native>,
                   of_adaptive<native>, of_shared<native>) {
    storms<TestType>(32, 50);
    const test::on_one_processor pinned;
    storms<TestType>(6, 50);
}

TEMPLATE_TEST_CASE("semaphore: a thread and a coroutine pass a permit back and forth", "", native,
                   portable, jittery) {
    to_and_fro<basic_semaphore<TestType>>();
    const test::on_one_processor here;
    to_and_fro<basic_semaphore<TestType>>();
}

TEST_CASE("semaphore: closing in a storm fails the waiters and strands none",
          "[promise.close-semaphore]") {
    test::rounds([](std::uint32_t round) {
        semaphore s(4);
        const auto play = [&](int i, test::jitter& chance) {
            if (i == 0) {
                chance();
                s.close();
                return;
            }
            for (int turn = 0; turn < 8; ++turn) {
                const std::ptrdiff_t n = 1 + static_cast<std::ptrdiff_t>(chance.below(3));
                if (s.acquire(std::stop_token(), n)) {
                    chance();
                    s.release(n);
                }
            }
        };
        test::players(4, play, round);
        REQUIRE(s.available() == 4);
        REQUIRE(s.waiters() == 0);
    });
}

TEST_CASE("biased_shared_mutex: tasks that read on one worker and leave on another",
          "[promise.biased-reader-moves]") {
    scheduler s({.num_workers = 3});
    test::rounds([&s](std::uint32_t) {
        constexpr int times = 50;
        biased_shared_mutex m;
        books in(1'000);
        std::vector<join_handle<>> all;
        for (int i = 0; i < 8; ++i) {
            all.push_back(
                s.spawn(i < 6 ? read_and_wander(m, in, 20 * times) : write_often(m, in, times)));
        }
        test::join_all(all);
        in.check();
        REQUIRE(in.version() == 2 * times);
        REQUIRE(test::is_free(m));
    });
}

TEST_CASE("adaptive_mutex: tasks of a scheduler, of which some are cancelled, beside threads",
          "[promise.permits-conserved][promise.cancel-ends-wait]") {
    scheduler s({.num_workers = 3});
    test::rounds([&s](std::uint32_t round) {
        adaptive_mutex m;
        int inside = 0; // plain: guarded by the mutex
        std::atomic<int> counted{0};
        std::vector<join_handle<>> all;
        for (std::uint32_t i = 0; i < 12; ++i) {
            all.push_back(s.spawn(lock_often(m, inside, counted, round * 12 + i)));
        }
        const auto play = [&](int i, test::jitter& chance) {
            for (int turn = 0; turn < 100; ++turn) {
                if (chance.below(2) == 0 ? m.try_lock() : (m.lock(), true)) {
                    ++inside;
                    ++counted;
                    m.unlock();
                }
                if (i == 0 && chance.below(20) == 0) {
                    all[chance.below(12)].cancel();
                }
            }
        };
        test::players(2, play, round);
        for (join_handle<>& one : all) {
            test::ended_by_stop(std::move(one));
        }
        REQUIRE(counted == inside);
        REQUIRE(test::is_free(m));
    });
}

TEMPLATE_TEST_CASE("scoped_lock: three mutexes by pairs, from threads and tasks, in any order", "",
                   mutex, adaptive_mutex) {
    const test::stress_time time;
    TestType m[3];
    books pairs[3] = {books(1), books(1), books(1)}; // pairs[i] is guarded by both mutexes but m[i]
    test::players(4, [&](int, test::jitter& chance) {
        for (int turn = 0; turn < 50 || time.is_left(); ++turn) {
            const auto left_out = chance.below(3);
            auto& a = m[(left_out + 1) % 3];
            auto& b = m[(left_out + 2) % 3];
            books& in = pairs[left_out];
            switch (chance.below(4)) {
            case 0: {
                const scoped_lock held(b, a);
                in.use(1, chance);
                break;
            }
            case 1: {
                const scoped_lock held(microseconds(chance.below(50)), a, b);
                if (held) {
                    in.use(1, chance);
                }
                break;
            }
            case 2: sync_wait(lock_both(a, b, in, chance)); break;
            default: {
                const scoped_lock held(a, b);
                in.use(1, chance);
            }
            }
        }
    });
    for (const books& in : pairs) {
        in.check();
    }
}

TEMPLATE_TEST_CASE("once_flag: one call of each round succeeds, whatever fails and gives up",
                   "[promise.once]", native, portable, jittery) {
    using flag = basic_once_flag<TestType>;
    test::rounds([](std::uint32_t round) {
        flag f;
        books turns(1);
        int made = 0; // plain: guarded by the turn
        std::atomic<int> wrong{0};
        const auto play = [&](int, test::jitter& chance) {
            while (!f.is_set()) {
                auto got = chance.below(2) == 0 ? f.begin_for(microseconds(chance.below(50)))
                                                : result<typename flag::turn>(f.begin());
                if (got && *got) {
                    turns.use(1, chance);
                    if (chance.below(2) == 0) {
                        ++made;
                        got->set();
                    }
                } else if (got) {
                    wrong += made != 1 ? 1 : 0;
                }
            }
            wrong += made != 1 ? 1 : 0;
        };
        test::players(4, play, round);
        turns.check();
        REQUIRE(wrong == 0);
        REQUIRE(made == 1);
    });
}
