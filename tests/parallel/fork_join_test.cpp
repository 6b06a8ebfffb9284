#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_scope.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/sched/report.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <support/alloc.hpp>
#include <support/counted.hpp>
#include <support/scheduling.hpp>
#include <support/thrown_by.hpp>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

using namespace bide;
using test::eventually;
using test::spin_until;
using test::thrown_by;
using test::with;

namespace {

long fib(scheduler& s, int n) {
    if (n < 2) {
        return n;
    }
    const auto [a, b] =
        join(s, [&s, n] { return fib(s, n - 1); }, [&s, n] { return fib(s, n - 2); });
    return a + b;
}

// Joins on a worker. Another worker has begun the second arm before the first one calls f().
// Returns what the join returned.
template <class F, class G> auto stolen(scheduler& s, F f, G g) {
    std::atomic<bool> begun{false};
    return join(
        s,
        [&]() -> decltype(auto) {
            if (!spin_until(begun)) {
                test::give_up(test::where(), "no worker has taken the arm");
            }
            return f();
        },
        [&]() -> decltype(auto) {
            begun = true;
            return g();
        });
}

struct first_error : std::runtime_error {
    first_error() : std::runtime_error("first") {}
};
struct second_error : std::runtime_error {
    second_error() : std::runtime_error("second") {}
};

} // namespace

// ---- Values

TEST_CASE("fork_join: join() returns the values of both arms") {
    const bool taken = GENERATE(false, true);
    scheduler s(taken ? with(2, true) : test::with_serial_forks());
    const auto both = [&s, taken](auto f, auto g) {
        return taken ? s.spawn([&] { return stolen(s, f, g); }).join() : join(s, f, g);
    };
    int n = 1;
    CHECK(both([] { return 1; }, [] { return std::string("two"); }) ==
          std::pair<int, std::string>(1, "two"));
    CHECK(both([&n] { ++n; }, [] {}) == std::pair<std::monostate, std::monostate>());
    CHECK(n == 2);
    const std::pair<int&, const int&> same =
        both([&n]() -> int& { return n; }, [&n]() -> const int& { return n; });
    CHECK((&same.first == &n && &same.second == &n));
    auto box = std::make_unique<int>(3);
    const auto expiring = [&box]() -> std::unique_ptr<int>&& { return std::move(box); };
    const std::pair<std::unique_ptr<int>&&, std::unique_ptr<int>&&> late = both(expiring, expiring);
    CHECK((&late.first == &box && &late.second == &box));
    auto boxes =
        both([] { return std::make_unique<int>(1); }, [] { return std::make_unique<int>(2); });
    CHECK((*boxes.first == 1 && *boxes.second == 2));
}

TEST_CASE("fork_join: an arm keeps its value category, and values are moved and not copied") {
    struct by_category {
        int operator()() & { return 1; }
        int operator()() && { return 2; }
        int operator()() const& { return 3; }
    };
    scheduler s(with(1, true));
    by_category f;
    const by_category constant;
    CHECK(join(s, f, by_category()) == std::pair(1, 2));
    CHECK(join(s, constant, std::move(f)) == std::pair(3, 2));
    test::tally values;
    {
        const auto both = join(
            s, [&] { return test::counted(values, 1); }, [&] { return test::counted(values, 2); });
        CHECK((both.first.number() == 1 && both.second.number() == 2));
    }
    CHECK(values.copied == 0);
    CHECK(values.alive() == 0);
    int calls = 0;
    auto count = [&calls]() mutable { return ++calls; };
    join(s, count, count);
    CHECK(calls == 2);
}

// Arms and values in a namespace that has functions of every name that the library uses, for all
// arguments.
namespace greedy {

template <class... T> void call_arm(T&&...) = delete;
template <class T> void call_arm(T&&) = delete;
template <class... T> void call_first(T&&...) = delete;
template <class... T> void drop_second(T&&...) = delete;
template <class... T> void fork(T&&...) = delete;
template <std::size_t, class... T> void fork_all(T&&...) = delete;
template <class... T> void join(T&&...) = delete;
template <class... T> void in_fork(T&&...) = delete;
template <std::size_t, std::size_t, class T> void value_of(T&&) = delete;

struct value {
    int number;
    value* operator&() const = delete;
    template <class T> void operator,(T&&) const = delete;
    static void* operator new(std::size_t, void*) = delete;
};

struct arm {
    int number;
    value operator()() const { return {number}; }
    arm* operator&() const = delete;
};

} // namespace greedy

TEST_CASE("fork_join: functions of the same names in the arms' namespaces are not called") {
    scheduler s(with(2, true));
    const greedy::arm one{1};
    const auto both = bide::join(s, one, greedy::arm{2});
    CHECK((both.first.number == 1 && both.second.number == 2));
    const auto all = bide::parallel_invoke(s, one, greedy::arm{2}, one);
    CHECK((std::get<1>(all).number == 2 && std::get<2>(all).number == 1));
    const auto taken = s.spawn([&] { return stolen(s, one, one).second; }).join();
    CHECK(taken.number == 1);
}

TEST_CASE("fork_join: parallel_invoke returns all values in order") {
    scheduler s(with(2, true));
    int n = 0;
    CHECK(parallel_invoke(s, [] { return 1; }) == std::tuple(1));
    const auto all = parallel_invoke(
        s, [] { return 1; }, [] { return std::string("2"); }, [&n] { ++n; },
        [&s] { return fib(s, 10); }, [] { return std::make_unique<int>(5); });
    CHECK(std::get<0>(all) == 1);
    CHECK(std::get<1>(all) == "2");
    CHECK(std::is_same_v<std::tuple_element_t<2, decltype(all)>, const std::monostate>);
    CHECK(std::get<3>(all) == 55);
    CHECK(*std::get<4>(all) == 5);
    CHECK(n == 1);
    const auto inside = [&] {
        return parallel_invoke(
            s, [&] { return fib(s, 12); }, [&] { return fib(s, 13); }, [&] { return fib(s, 14); });
    };
    CHECK(s.spawn(inside).join() == std::tuple(144L, 233L, 377L));
}

TEST_CASE(
    "fork_join: without stealing, or on the only worker, all arms run on the thread that forked "
    "them") {
    const bool on_worker = GENERATE(false, true);
    auto wanted = with(on_worker ? 1 : 2, true);
    wanted.enable_stealing = on_worker;
    scheduler s(wanted);
    const auto here = [] { return std::this_thread::get_id(); };
    const auto forks = [&] {
        const auto [a, b] = join(s, here, [&] { return join(s, here, here).second; });
        return a == here() && b == here() && fib(s, 15) == 610;
    };
    CHECK((on_worker ? s.spawn(forks).join() : forks()));
}

TEST_CASE("fork_join: a single worker takes arms of a thread outside, if there are two processors",
          "[promise.caller-takes-part]") {
    scheduler s(with(1, GENERATE(false, true)));
    if (detail::cpu_count() == 1) {
        CHECK(join(s, [] { return 1; }, [] { return 2; }) == std::pair(1, 2));
        return;
    }
    std::thread::id worker;
    stolen(s, [] {}, [&worker] { worker = std::this_thread::get_id(); });
    CHECK(worker == s.spawn([] { return std::this_thread::get_id(); }).join());
    CHECK(thrown_by([&s] { stolen(s, [] {}, [] { throw second_error(); }); }) == "second");
    CHECK(fib(s, 20) == 6765);
    CHECK(s.spawn([&s] { return fib(s, 15); }).join() == 610);
}

TEST_CASE("fork_join: neither a join nor a small scope allocates",
          "[promise.join-allocates-once]") {
    if (!test::counts_allocations()) {
        return;
    }
    scheduler s(with(2, true));
    std::atomic<bool> busy{false};
    std::atomic<bool> over{false};
    auto other =
        s.spawn([&] { // so that no worker steals, or sleeps and makes a thread replace this one
            busy = true;
            spin_until(over);
        });
    spin_until(busy);
    std::size_t before = 0;
    std::size_t after = 0;
    int spawned = 0;
    const auto forks = [&] {
        fib(s, 15);
        bide::fork_scope(s, [&spawned](bide::spawn_scope& scope) {
            for (int i = 0; i < 3; ++i) {
                scope.spawn([&spawned] { ++spawned; });
            }
        });
    };
    s.spawn([&] {
         forks(); // the thread's first
         before = test::allocations();
         for (int i = 0; i < 10; ++i) {
             forks();
         }
         after = test::allocations();
         over = true;
     }).join();
    std::move(other).join();
    CHECK(before != 0);
    CHECK(after == before);
    CHECK(spawned == 33);
}

TEST_CASE("fork_join: a fork without memory throws, and neither of its arms runs") {
    if (!test::counts_allocations()) {
        return;
    }
    struct ladder {
        scheduler& s;
        std::atomic<int> begun{0};
        std::atomic<int> ended{0};
        // At this depth. The exception is thrown when all that has begun has ended.
        bool fails(int depth) {
            try {
                const test::out_of_memory here;
                go(depth);
                return false;
            } catch (const std::bad_alloc&) {
                return true;
            }
        }
        void go(int depth) {
            if (depth > 0) {
                join(
                    s,
                    [this, depth] {
                        ++begun;
                        go(depth - 1);
                    },
                    [this] { ++ended; });
            }
        }
    };
    scheduler s(with(2, true));
    ladder steps{s};
    bool first_fails = false;
    int begun_then = 0;
    bool deep_fails = false;
    int begun_later = 0;
    s.spawn([&] { // on one thread
         first_fails = steps.fails(1);
         begun_then = steps.begun + steps.ended;
         steps.go(1);
         deep_fails = steps.fails(2'000);
         begun_later = steps.begun;
         steps.go(2'000);
     })
        .join();
    CHECK(first_fails);
    CHECK(begun_then == 0);
    CHECK(deep_fails);
    CHECK((begun_later > 1 && begun_later < 2'001));
    CHECK(steps.begun == begun_later + 2'000);
    CHECK(steps.begun == steps.ended);
}

TEST_CASE(
    "fork_join: if a thief has no memory, the caller runs the arm, whatever the other arm does") {
    if (!test::counts_allocations()) {
        return;
    }
    const bool throws = GENERATE(false, true);
    scheduler s(with(2, true));
    test::rendezvous both(2);
    const auto gets_no_memory = [&both] {
        thread_local std::optional<test::out_of_memory> until_its_end;
        until_its_end.emplace();
        both.meet(); // each worker runs one of them
    };
    auto one = s.spawn(gets_no_memory);
    s.spawn(gets_no_memory).join();
    std::move(one).join();
    int ran = 0; // plain data: only this thread uses it
    const auto once = [&] {
        const auto before = stats_of(s).stolen;
        join(
            s,
            [&] {
                if (!eventually([&] { return stats_of(s).stolen != before; })) {
                    test::give_up(test::where(), "no worker has taken the arm");
                }
                if (throws) {
                    throw first_error();
                }
            },
            [&ran, caller = std::this_thread::get_id()] {
                ran += std::this_thread::get_id() == caller ? 1 : 100;
            });
    };
    CHECK(thrown_by(once) == (throws ? "first" : "nothing"));
    CHECK(ran == 1);
}

TEST_CASE("fork_join: a stolen arm is in the fork-join, and thieves want work of it") {
    scheduler s(with(2, true));
    const auto asked = [&s] { return bide::detail::forker(s).wants_work(1); };
    CHECK(stolen(s, [] {}, asked).second);
    CHECK_FALSE(asked());
}

TEST_CASE("fork_join: a call site is worth a wake if it took long or never ran") {
    bide::detail::basic_fork_call_site<bide::native_platform> site;
    CHECK(site.worth() > 0);
    site.learn(1'000);
    CHECK(site.worth() == 0);
    for (int i = 0; i < 20; ++i) {
        site.learn(1'000'000);
    }
    CHECK(site.worth() > 0);
    for (int i = 0; i < 40; ++i) {
        site.learn(1'000);
    }
    CHECK(site.worth() == 0);
}

// ---- Exceptions

TEST_CASE("fork_join: both arms end before the first one's exception is thrown",
          "[promise.join-both-arms]") {
    const bool taken = GENERATE(false, true);
    const bool first = GENERATE(false, true);
    const bool second = GENERATE(false, true);
    scheduler s(with(taken ? 2 : 1, true));
    std::atomic<int> ended{0};
    std::atomic<bool> waits{false};
    const auto f = [&] {
        if (first) {
            ++ended;
            waits = true;
            throw first_error();
        }
        waits = true;
        return test::counted(*std::make_unique<test::tally>(), ++ended).number();
    };
    const auto g = [&] {
        spin_until(waits); // so that the first one could be thrown, if that were possible
        ++ended;
        if (second) {
            throw second_error();
        }
        return 1;
    };
    const std::string what =
        s.spawn([&] { return thrown_by([&] { taken ? stolen(s, f, g) : join(s, f, g); }); }).join();
    CHECK(what == (first ? "first" : second ? "second" : "nothing"));
    CHECK(ended == 2);
    CHECK(fib(s, 10) == 55); // nothing is left behind
}

namespace {

// A value that counts its moves down: the last one throws.
class brittle {
public:
    brittle(test::tally& in, int& moves) noexcept : value_(in, 1), moves_(moves) {}
    brittle(brittle&& other) : value_(std::move(other.value_)), moves_(other.moves_) {
        if (--moves_ == 0) {
            throw second_error();
        }
    }

private:
    test::counted value_;
    int& moves_;
};

} // namespace

TEST_CASE("fork_join: a value with a move that throws is destroyed") {
    const bool taken = GENERATE(false, true);
    scheduler s(taken ? with(2, true) : test::with_serial_forks());
    int thrown = 0;
    for (int most = 1; most <= 12; ++most) {
        test::tally values;
        int moves = most;
        int ended = 0; // plain data: both arms have ended
        const auto f = [&] { return brittle(values, moves); };
        const auto g = [&] {
            ++ended;
            return brittle(values, moves);
        };
        const auto both = [&] { taken ? stolen(s, f, g) : join(s, f, g); };
        // An external caller moves the values once more.
        const bool outside = most % 2 == 0;
        const std::string what =
            outside && !taken ? thrown_by(both) : s.spawn([&] { return thrown_by(both); }).join();
        thrown += what == "second" ? 1 : 0;
        CHECK(ended == 1);
        CHECK(values.alive() == 0);
    }
    CHECK(thrown > 0);
    CHECK(thrown < 12);
    CHECK(fib(s, 10) == 55);
}

TEST_CASE("fork_join: an exception passes any depth, and unused values are destroyed") {
    scheduler s(with(GENERATE(1U, 2U, 4U), true));
    test::tally values;
    struct shape {
        scheduler& s;
        test::tally& values;
        int at(int depth, int path) {
            if (depth == 0) {
                if (path % 7 == 3) {
                    throw std::runtime_error(std::to_string(path));
                }
                return path;
            }
            const auto arm = [this, depth, path](int bit) {
                return test::counted(values, at(depth - 1, 2 * path + bit));
            };
            const auto both = join(s, [&] { return arm(0); }, [&] { return arm(1); });
            return both.first.number() + both.second.number();
        }
    } tree{s, values};
    for (int i = 0; i < 50; ++i) {
        CHECK(thrown_by([&] { tree.at(8, 1); }) == "262"); // the first in order: 262 = 7 * 37 + 3
    }
    CHECK(values.alive() == 0);
    CHECK(fib(s, 10) == 55);
}

TEST_CASE("fork_join: parallel_invoke() throws the first exception in order, when all have ended",
          "[promise.join-both-arms]") {
    scheduler s(with(2, true));
    std::atomic<int> ended{0};
    const auto counts = [&ended] { ++ended; };
    const auto throws = [&ended](const char* what) {
        return [&ended, what] {
            ++ended;
            throw std::runtime_error(what);
        };
    };
    for (int i = 0; i < 100; ++i) {
        CHECK(thrown_by([&] { parallel_invoke(s, counts, throws("2"), counts, throws("4")); }) ==
              "2");
        CHECK(thrown_by([&] { parallel_invoke(s, throws("1"), throws("2"), throws("3")); }) == "1");
    }
    CHECK(ended == 700);
}

// ---- Callers

TEST_CASE(
    "fork_join: an external caller runs its arms and functions itself if all workers are blocked",
    "[promise.caller-takes-part][promise.scope-function-place]") {
    auto wanted = with(2, true);
    wanted.max_blocking_threads = 0;
    scheduler s(wanted);
    std::mutex held; // the scheduler does not know of it
    std::atomic<int> blocked{0};
    const auto blocks = [&] {
        ++blocked;
        const std::lock_guard lock(held);
    };
    std::unique_lock lock(held);
    auto first = s.spawn(blocks);
    auto second = s.spawn(blocks);
    CHECK(eventually([&blocked] { return blocked == 2; }));
    const auto here = [] { return std::this_thread::get_id(); };
    CHECK(join(s, here, here) == std::pair(here(), here()));
    CHECK(parallel_invoke(s, here, here, here) == std::tuple(here(), here(), here()));
    CHECK(fib(s, 15) == 610);
    std::vector<int> visits(1'000);
    bide::parallel_for(s, std::size_t{0}, visits.size(), [&visits](std::size_t i) { ++visits[i]; });
    CHECK(visits == std::vector<int>(1'000, 1));
    int ran = 0;
    bide::fork_scope(s, [&](bide::spawn_scope& scope) {
        const auto spawns = [&](int) { scope.spawn([&ran] { ++ran; }); };
        spawns(0);
        bide::parallel_for(s, 1, 100, spawns);
    });
    CHECK(ran == 100);
    lock.unlock();
    std::move(first).join();
    std::move(second).join();
}

TEST_CASE("fork_join: an external caller runs an arm while each worker runs one",
          "[promise.caller-takes-part]") {
    scheduler s(with(2, true));
    std::atomic<int> begun{0};
    const auto meets = [&begun] {
        ++begun;
        return eventually([&begun] { return begun == 3; }, test::patience / 2);
    };
    CHECK(parallel_invoke(s, meets, meets, meets) == std::tuple(true, true, true));
}

namespace {

// A tree of joins that alternate between two schedulers. Counts how often a thread was in the wrong
// fork-join: in an arm, in that of its join's scheduler; after the join, in the previous one.
int misplaced(scheduler& one, scheduler& other, int depth) {
    if (depth == 0) {
        return 0;
    }
    scheduler* const before = scheduler::current();
    const auto arm = [&one, &other, depth] {
        return misplaced(other, one, depth - 1) + (scheduler::current() == &one ? 0 : 1) +
               (fib(one, 3) == 2 ? 0 : 1);
    };
    const auto both = join(one, arm, arm);
    return both.first + both.second + (scheduler::current() == before ? 0 : 1);
}

} // namespace

TEST_CASE("fork_join: fork-joins of several schedulers nest, in threads and tasks of each kind",
          "[promise.fork-from-anywhere]") {
    scheduler a(with(GENERATE(1U, 2U), true));
    scheduler b(with(2, true));
    std::vector<int> wrong(4);
    test::run_threads(4, [&](int me) {
        const auto once = [&] { return misplaced(a, b, 8); };
        wrong[static_cast<std::size_t>(me)] = me == 0   ? once()
                                              : me == 1 ? a.spawn(once).join()
                                              : me == 2 ? b.spawn(once).join()
                                                        : a.spawn_blocking(once).join();
    });
    CHECK(wrong == std::vector<int>(4));
}

TEST_CASE("fork_join: an exception restores the fork-join that the thread was in before") {
    scheduler a(with(2, true));
    scheduler b(with(2, true));
    const auto throws = [&] { join(b, [] {}, [] { throw second_error(); }); };
    const auto once = [&] {
        return join(
            a,
            [&] {
                const std::string what = thrown_by(throws);
                return what == "second" && scheduler::current() == &a && fib(a, 10) == 55;
            },
            [&] { return fib(b, 10) == 55; });
    };
    CHECK(once() == std::pair(true, true));
    CHECK(a.spawn(once).join() == std::pair(true, true));
    CHECK(scheduler::current() == nullptr);
}

TEST_CASE("fork_join: threads that join once and end do not make memory grow",
          "[promise.join-allocates-once]") {
    if (!test::counts_allocations()) {
        return;
    }
    scheduler s(with(2, true));
    std::size_t most = 0;
    std::size_t all = 0;
    long wrong = 0;
    for (int i = 0; i < 10'000; ++i) {
        std::size_t made = 0;
        std::thread([&] {
            const std::size_t before = test::allocations_here();
            wrong += fib(s, 2) == 1 ? 0 : 1;
            made = test::allocations_here() - before;
        }).join();
        most = std::max(most, made);
        all += made;
    }
    CHECK(wrong == 0);
    CHECK(most > 0);        // the first needs a lane
    CHECK(all <= 3 * most); // and each worker
}

TEST_CASE("fork_join: an external caller without memory runs nothing and is not waited for") {
    if (!test::counts_allocations()) {
        return;
    }
    scheduler s(with(2, true));
    int ran = 0;
    bool thrown = false;
    try {
        const test::out_of_memory here;
        join(s, [&ran] { ++ran; }, [&ran] { ++ran; });
    } catch (const std::bad_alloc&) {
        thrown = true;
    }
    CHECK(thrown);
    CHECK(ran == 0);
    CHECK(scheduler::current() == nullptr);
    CHECK(fib(s, 10) == 55);
    s.shutdown();
}

TEST_CASE("fork_join: a join on a scheduler that has ended throws, and neither arm runs") {
    scheduler s(with(GENERATE(1U, 2U), true));
    CHECK(fib(s, 10) == 55);
    s.shutdown();
    std::atomic<int> ran{0};
    const auto runs = [&ran] { ++ran; };
    CHECK_THROWS_AS(fib(s, 10), bide::stopped_error);
    CHECK_THROWS_AS(join(s, runs, runs), bide::stopped_error);
    CHECK_THROWS_AS(parallel_invoke(s, runs, runs), bide::stopped_error);
    CHECK_THROWS_AS(bide::fork_scope(s, [&](bide::spawn_scope&) { ++ran; }), bide::stopped_error);
    CHECK(ran == 0);
    CHECK(scheduler::current() == nullptr);
}

TEST_CASE("fork_join: a scheduler may be destroyed as soon as the last arm of a caller says so") {
    const unsigned workers = GENERATE(1U, 2U);
    for (int i = 0; i < 200; ++i) {
        auto s = std::make_unique<scheduler>(with(workers, true));
        std::atomic<bool> last{false};
        std::thread caller([&, &in = *s] { join(in, [] {}, [&last] { last = true; }); });
        CHECK(spin_until(last));
        s.reset();
        caller.join();
    }
}

#if BIDE_TESTS_CAN_DIE_AT_WORK
TEST_CASE("fork_join: an arm that shuts its scheduler down terminates, also through another one") {
    const bool by_task = GENERATE(false, true);
    const bool through_another = GENERATE(false, true);
    const std::string said = test::dies([by_task, through_another] {
        scheduler s(with(2, true));
        scheduler other(with(2, true));
        const auto ends_it = [&] {
            join(through_another ? other : s, [&s] { s.shutdown(); }, [] {});
        };
        if (by_task) {
            s.spawn(ends_it).join();
        } else if (through_another) {
            join(s, ends_it, [] {});
        } else {
            ends_it();
        }
    });
    CHECK(test::contains(said, "shut down by one of its own workers"));
}
#endif

TEST_CASE(
    "fork_join: a shutdown waits for callers and tasks, which may still join, and refuses later "
    "callers",
    "[promise.caller-takes-part]") {
    const unsigned workers = GENERATE(1U, 2U);
    const bool by_task = GENERATE(false, true);
    const bool through_another = by_task ? false : GENERATE(false, true);
    auto s = std::make_unique<scheduler>(with(workers, true));
    scheduler other(with(2, true));
    std::atomic<bool> begun{false};
    std::atomic<bool> ends{false};
    long inside = 0;
    std::thread caller([&, &in = *s] {
        const auto waits = [&] {
            begun = true;
            spin_until(ends);
            join(through_another ? other : in, [&] { inside = fib(in, 15); }, [] {});
        };
        by_task ? in.spawn(waits).join() : void(join(in, waits, [&] { return fib(in, 14); }));
    });
    CHECK(spin_until(begun));
    CHECK_FALSE(s->shutdown_for(std::chrono::milliseconds(0)));
    CHECK_THROWS_AS(fib(*s, 10), bide::stopped_error); // the scheduler is closing
    ends = true;
    by_task ? s->shutdown() : s.reset(); // perhaps while the caller leaves
    caller.join();
    CHECK(inside == 610);
}

// ---- Waiting for an arm

TEST_CASE("fork_join: an arm that blocks does not keep other work from its worker") {
    scheduler s(with(GENERATE(1U, 2U), false));
    bide::event opened;
    const auto both = s.spawn([&] {
                           s.spawn([&opened] {
                                opened.set();
                            }).detach(); // queued on the worker that this task blocks
                           return join(
                               s,
                               [&] {
                                   opened.wait();
                                   return fib(s, 15); // on a thread that lost its worker
                               },
                               [&] {
                                   opened.wait();
                                   return fib(s, 14);
                               });
                       }).join();
    CHECK(both == std::pair(610L, 377L));
    CHECK(fib(s, 15) == 610);
}

#if defined(__linux__)
namespace {

// A thread of the process; says whether it sleeps.
class witness {
public:
    void is_me() noexcept { id_ = ::syscall(SYS_gettid); }

    bool eventually_sleeps() const {
        return eventually([this] { return id_ != 0 && sleeps(); });
    }

private:
    bool sleeps() const {
        char name[64];
        std::snprintf(name, sizeof name, "/proc/self/task/%ld/stat", id_.load());
        std::FILE* const file = std::fopen(name, "r");
        char state = 0;
        const bool read = file != nullptr && std::fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
        if (file != nullptr) {
            std::fclose(file);
        }
        return read && state == 'S';
    }

    std::atomic<long> id_{0};
};

} // namespace

TEST_CASE("fork_join: a thread that holds a lock and waits for an arm runs no unrelated arm, and "
          "sleeps",
          "[promise.join-runs-own-arms]") {
    const bool outside = GENERATE(false, true);
    scheduler s(with(2, true));
    bide::mutex m;
    witness waiter;
    std::atomic<bool> is_forked{false};
    std::atomic<bool> over{false};
    bool slept = false;
    int locked = 0;
    // An arm that any worker may take, and that waits for the lock.
    const auto other = [&] {
        join(
            s,
            [&] {
                is_forked = true;
                spin_until(over);
            },
            [&] {
                const std::lock_guard lock(m);
                ++locked;
            });
    };
    const auto holder = [&] {
        const std::lock_guard lock(m);
        bide::join_handle<void> handle = stolen(
                                             s,
                                             [&] {
                                                 waiter.is_me();
                                                 auto begun = s.spawn_blocking(other);
                                                 spin_until(is_forked);
                                                 return begun;
                                             },
                                             [&] {
                                                 spin_until(is_forked);
                                                 slept = waiter.eventually_sleeps();
                                             })
                                             .first;
        over = true;
        return handle;
    };
    (outside ? holder() : s.spawn(holder).join()).join();
    CHECK(slept);
    CHECK(locked == 1);
}
#endif

namespace {

// A task that spawns the next one, until it is told to end, or so many have run.
struct chain {
    scheduler& s;
    std::atomic<bool>& over;
    std::atomic<int>& left; // tasks
    std::atomic<int>& chains;
    void next() {
        if (over || --left == 0) {
            over = true;
            --chains;
        } else {
            s.spawn([this] { next(); }).detach();
        }
    }
};

} // namespace

TEST_CASE("fork_join: tasks run during a fork-join, and one of them ends it",
          "[promise.tasks-and-arms]") {
    scheduler s(with(2, GENERATE(true, false)));
    std::atomic<int> left{1'000};
    std::atomic<int> chains{1};
    std::atomic<bool> over{false};
    auto forks = s.spawn([&] {
        long sum = 0;
        while (!over) {
            sum += fib(s, 12);
        }
        return sum;
    });
    chain tasks{s, over, left, chains};
    tasks.next();
    CHECK(std::move(forks).join() % 144 == 0);
    CHECK(over);
}

TEST_CASE("fork_join: a fork-join runs while tasks do", "[promise.tasks-and-arms]") {
    scheduler s(with(GENERATE(1U, 2U), true));
    std::atomic<bool> over{false};
    std::atomic<int> left{1 << 30};
    std::atomic<int> chains{8};
    chain tasks{s, over, left, chains};
    for (int i = 0; i < 8; ++i) {
        tasks.next();
    }
    CHECK(fib(s, 18) == 2584);
    over = true;
    CHECK(eventually([&chains] { return chains == 0; }));
}
