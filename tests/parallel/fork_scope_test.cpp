#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_scope.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/sync/mutex.hpp>
#include <support/alloc.hpp>
#include <support/counted.hpp>
#include <support/function_ref.hpp>
#include <support/scheduling.hpp>
#include <support/thrown_by.hpp>

using namespace bide;
using test::eventually;
using test::spin_until;
using test::thrown_by;
using test::with;
using indexed = test::function_ref<void(int)>;

namespace {

// Counts the leaves of fib(n) by functions that spawn functions into one scope.
void fib(spawn_scope& scope, std::atomic<long>& sum, int n) {
    if (n < 2) {
        sum += n;
        return;
    }
    scope.spawn([&scope, &sum, n] { fib(scope, sum, n - 1); });
    scope.spawn([&sum, n](spawn_scope& same) { fib(same, sum, n - 2); });
}

// The same with a scope for each level.
long fib_nested(scheduler& s, int n) {
    if (n < 2) {
        return n;
    }
    long a = 0;
    const long b = fork_scope(s, [&](spawn_scope& scope) {
        scope.spawn([&] { a = fib_nested(s, n - 1); });
        return fib_nested(s, n - 2);
    });
    return a + b;
}

} // namespace

// ---- What runs

TEST_CASE("fork_scope: each function runs once, and all have ended when the call returns",
          "[promise.scope-ends]") {
    const unsigned workers = GENERATE(1U, 2U, 4U);
    const bool outside = GENERATE(false, true);
    scheduler s(with(workers, workers != 4));
    for (const std::size_t n : {0U, 1U, 2U, 3U, 4U, 17U, 255U, 257U, 5'000U}) {
        std::vector<std::atomic<int>> calls(n);
        const auto all = [&] {
            return fork_scope(s, [&](spawn_scope& scope) {
                for (std::atomic<int>& one : calls) {
                    scope.spawn([&one] { ++one; });
                }
                return n;
            });
        };
        CHECK((outside ? all() : s.spawn(all).join()) == n);
        std::size_t wrong = 0;
        for (const std::atomic<int>& one : calls) {
            wrong += one == 1 ? 0U : 1U;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("fork_scope: functions spawn into their scope, and scopes nest", "[promise.scope-ends]") {
    const unsigned workers = GENERATE(1U, 2U, 4U, 70U);
    scheduler s(with(workers, workers != 4));
    std::atomic<long> sum{0};
    fork_scope(s, [&sum](spawn_scope& scope) { fib(scope, sum, 20); });
    CHECK(sum == 6765);
    CHECK(fib_nested(s, 18) == 2584);
    sum = 0;
    s.spawn([&] { fork_scope(s, [&sum](spawn_scope& scope) { fib(scope, sum, 20); }); }).join();
    CHECK(sum == 6765);
    CHECK(s.spawn([&s] { return fib_nested(s, 18); }).join() == 2584);
}

// Each function goes on for as long as a thread that waits takes to steal what it has spawned.
TEST_CASE("fork_scope: threads that take a chain of functions from each other need little stack",
          "[promise.function-chain-stack]") {
    struct chain {
        spawn_scope& scope;
        std::atomic<std::size_t>& deepest;
        int left;
        void operator()() const {
            thread_local std::uintptr_t highest = 0;
            const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
            highest = (std::max)(highest, here);
            std::size_t seen = deepest;
            while (seen < highest - here && !deepest.compare_exchange_weak(seen, highest - here)) {
            }
            if (left > 1) {
                scope.spawn(chain{scope, deepest, left - 1});
            }
            for (int n = 0; n < 1'000; ++n) {
                bide::native_platform::pause();
            }
        }
    };
    scheduler s(with(2, true));
    std::atomic<std::size_t> deepest{0};
    fork_scope(s, [&deepest](spawn_scope& scope) { scope.spawn(chain{scope, deepest, 20'000}); });
    CHECK(deepest < 500'000);
}

TEST_CASE("fork_scope: arms, iterations and the bodies of inner scopes spawn into an outer scope",
          "[promise.scope-ends]") {
    const unsigned workers = GENERATE(1U, 2U, 4U);
    const bool outside = GENERATE(false, true);
    scheduler s(with(workers, workers != 4));
    std::atomic<int> ran{0};
    const auto all = [&] {
        fork_scope(s, [&](spawn_scope& scope) {
            const auto again = [&ran, &scope] {
                ++ran;
                scope.spawn([&ran] { ++ran; });
            };
            const auto spawn = [&] { scope.spawn(again); };
            const auto spawns = [&](int) { spawn(); };
            join(s, spawn, spawn);
            bide::parallel_for(s, 0, 1'000, indexed(spawns));
            fork_scope(s, [&](spawn_scope& inner) {
                spawn();
                inner.spawn(spawn);
            });
            scope.spawn([&s, &scope, again] {
                const auto spawn_here = [&] { scope.spawn(again); };
                const auto all_here = [&](int) { spawn_here(); };
                join(s, spawn_here, spawn_here);
                bide::parallel_for(s, 0, 1'000, indexed(all_here));
            });
        });
    };
    outside ? all() : s.spawn(all).join();
    CHECK(ran == 2 * (2 + 1'000 + 2 + 2 + 1'000));
    std::atomic<long> sum{0}; // nothing is left behind
    fork_scope(s, [&sum](spawn_scope& scope) { fib(scope, sum, 10); });
    CHECK(sum == 55);
}

TEST_CASE("fork_scope: an arm on another scheduler, or another thread, may spawn") {
    scheduler s(with(2, true));
    scheduler other(with(2, true));
    std::atomic<int> ran{0};
    fork_scope(s, [&](spawn_scope& scope) {
        const auto count = [&ran] { ++ran; };
        const auto spawns = [&](int) { scope.spawn(count); };
        bide::parallel_for(other, 0, 100, indexed(spawns));
        std::thread([&] { scope.spawn(count); }).join();
    });
    CHECK(ran == 101);
}

// ---- Functions and values

TEST_CASE("fork_scope: returns the value of the body, also a reference or what is only moved") {
    scheduler s(with(2, true));
    int n = 1;
    auto& same = fork_scope(s, [&n](spawn_scope&) -> int& { return n; });
    CHECK(&same == &n);
    CHECK(*fork_scope(s, [](spawn_scope&) { return std::make_unique<int>(5); }) == 5);
    CHECK(std::is_void_v<decltype(fork_scope(s, [](spawn_scope&) {}))>);
}

namespace {

// In a namespace that has functions of every name that the library uses, for all arguments.
namespace greedy {

template <class... T> void call_arm(T&&...) = delete;
template <class... T> void spawn(T&&...) = delete;
template <class... T> void make(T&&...) = delete;
template <class... T> void invoke(T&&...) = delete;
template <class... T> void destroy_at(T&&...) = delete;

struct function {
    explicit function(int& to) : ran(&to), mine(std::make_unique<int>(7)) {}
    function(function&&) = default;
    void operator()() & = delete;
    void operator()() && { *ran += *mine; }
    function* operator&() const = delete;
    template <class T> void operator,(T&&) const = delete;
    static void* operator new(std::size_t, void*) = delete;
    int* ran;
    std::unique_ptr<int> mine;
};

} // namespace greedy

struct alignas(256) aligned {
    bool is_aligned() const { return reinterpret_cast<std::uintptr_t>(this) % 256 == 0; }
};

} // namespace

TEST_CASE("fork_scope: functions may be moved only, large, aligned, or have hostile operators") {
    scheduler s(with(GENERATE(1U, 2U), true));
    int ran = 0;
    fork_scope(s, [&ran](spawn_scope& scope) { scope.spawn(greedy::function(ran)); });
    CHECK(ran == 7);
    std::atomic<int> right{0};
    fork_scope(s, [&](spawn_scope& scope) {
        for (int i = 0; i < 100; ++i) {
            std::array<int, 1'000> many{};
            many[999] = i;
            scope.spawn([many, i, &right] { right += many[999] == i ? 1 : 0; });
            scope.spawn([a = aligned(), &right] { right += a.is_aligned() ? 1 : 0; });
        }
    });
    CHECK(right == 200);
    const auto constant = [&right] { ++right; };
    fork_scope(s, [&](spawn_scope& scope) { scope.spawn(constant); });
    CHECK(right == 201);
}

TEST_CASE("fork_scope: each function is destroyed once, whether it ran, threw or was dropped",
          "[promise.scope-ends]") {
    const bool stops = GENERATE(false, true);
    scheduler s(with(GENERATE(1U, 2U), true));
    test::tally values;
    std::stop_source source;
    const auto all = [&] {
        fork_scope({s, {.stop = source.get_token()}}, [&](spawn_scope& scope) {
            for (int i = 0; i < 500; ++i) {
                scope.spawn([mine = test::counted(values, i)] {
                    if (mine.number() % 100 == 77) {
                        throw std::runtime_error(std::to_string(mine.number()));
                    }
                });
            }
            if (stops) {
                source.request_stop();
            }
            const auto spawns = [&](int i) { scope.spawn([mine = test::counted(values, i)] {}); };
            bide::parallel_for(s, 0, 100, indexed(spawns));
        });
    };
    CHECK(thrown_by(all) != "nothing");
    CHECK(values.alive() == 0);
    CHECK(values.copied == 0);
}

TEST_CASE("fork_scope: a spawn without memory throws, and spawns nothing") {
    if (!test::counts_allocations()) {
        return;
    }
    const bool beside = GENERATE(false, true);
    scheduler s(with(2, true));
    test::tally values;
    std::atomic<int> ran{0};
    int spawned = 0;
    int failed = 0;
    s.spawn([&] {
         fork_scope(s, [&](spawn_scope& scope) {
             const auto spawn = [&] {
                 for (int i = 0; i < 1'000; ++i) {
                     try {
                         test::counted mine(values, i);
                         const test::out_of_memory here;
                         scope.spawn([&ran, one = std::move(mine)] { ++ran; });
                         ++spawned;
                     } catch (const std::bad_alloc&) {
                         ++failed;
                     }
                 }
             };
             beside ? static_cast<void>(join(s, spawn, [] {})) : spawn();
         });
     }).join();
    CHECK(ran == spawned);
    CHECK(spawned + failed == 1'000);
    CHECK(failed >= (beside ? 1'000 : 500));
    CHECK(values.alive() == 0);
}

// ---- Exceptions

TEST_CASE(
    "fork_scope: of the functions that the body has spawned, the first one's exception is thrown",
    "[promise.scope-ends]") {
    scheduler s(with(GENERATE(1U, 2U, 4U), true));
    for (int round = 0; round < 20; ++round) {
        std::atomic<int> ended{0};
        const auto all = [&] {
            fork_scope(s, [&](spawn_scope& scope) {
                for (int i = 0; i < 300; ++i) {
                    scope.spawn([&ended, i, &scope] {
                        ++ended;
                        if (i == 41) { // what it has spawned is its part
                            scope.spawn([&ended] {
                                ++ended;
                                throw std::runtime_error("41");
                            });
                        }
                        if (i > 41 && i % 7 == 1) {
                            throw std::runtime_error(std::to_string(i));
                        }
                    });
                }
            });
        };
        CHECK(thrown_by(all) == "41");
        CHECK(ended == 301);
    }
}

TEST_CASE("fork_scope: the body's exception comes first, and that of an iteration's function is "
          "not lost") {
    scheduler s(with(GENERATE(1U, 2U), true));
    std::atomic<int> ended{0};
    const auto body = [&](bool throws, bool spawns) {
        return thrown_by([&] {
            fork_scope(s, [&](spawn_scope& scope) {
                const auto spawns_one = [&](int) {
                    scope.spawn([&ended] {
                        ++ended;
                        throw std::runtime_error("beside");
                    });
                };
                bide::parallel_for(s, 0, 10, indexed(spawns_one));
                if (spawns) {
                    scope.spawn([&ended] {
                        ++ended;
                        throw std::runtime_error("function");
                    });
                }
                if (throws) {
                    throw std::runtime_error("body");
                }
                return 1;
            });
        });
    };
    CHECK(body(true, true) == "body");
    CHECK(ended == 11);
    CHECK(body(false, true) != "nothing");
    CHECK(ended == 22);
    CHECK(body(false, false) == "beside");
    CHECK(ended == 32);
}

// ---- Options

TEST_CASE("fork_scope: after a stop no function begins, and the call says so") {
    scheduler s(with(GENERATE(1U, 2U), true));
    std::stop_source source;
    std::atomic<int> ran{0};
    bool stopped = false;
    try {
        fork_scope({s, {.stop = source.get_token()}}, [&](spawn_scope& scope) {
            source.request_stop();
            for (int i = 0; i < 100; ++i) {
                scope.spawn([&ran] { ++ran; });
            }
        });
    } catch (const bide::stopped_error&) {
        stopped = true;
    }
    CHECK(stopped);
    CHECK(ran == 0);
    bool called = false;
    CHECK_THROWS_AS(
        fork_scope({s, {.stop = source.get_token()}}, [&called](spawn_scope&) { called = true; }),
        bide::stopped_error);
    CHECK_FALSE(called);
}

TEST_CASE("fork_scope: progress counts the functions") {
    scheduler s(with(GENERATE(1U, 2U), true));
    bide::fork_progress progress;
    std::atomic<long> sum{0};
    fork_scope({s, {.progress = &progress}}, [&](spawn_scope& scope) {
        fib(scope, sum, 10);
        join(s, [&] { scope.spawn([] {}); }, [] {});
    });
    CHECK(progress.total() == 177);
    CHECK(progress.done() == 177);
}

// ---- Where functions run

TEST_CASE("fork_scope: a function never runs inside of a spawn, or while its spawner is in a join",
          "[promise.scope-function-place]") {
    scheduler s(with(GENERATE(1U, 2U, 4U), true));
    for (int round = 0; round < 200; ++round) {
        std::mutex m; // a thread that locks it twice never ends
        int ran = 0;
        const auto locks = [&] {
            const std::lock_guard lock(m);
            ++ran;
        };
        s.spawn([&] {
             fork_scope(s, [&](spawn_scope& scope) {
                 const std::lock_guard lock(m);
                 for (int i = 0; i < 10; ++i) {
                     scope.spawn(locks);
                 }
                 join(
                     s, [&] { scope.spawn(locks); },
                     [&] { // may be stolen: then the body waits for it with the lock held
                         for (int i = 0; i < 10; ++i) {
                             scope.spawn(locks);
                         }
                     });
                 const auto spawns = [&](int) { scope.spawn(locks); };
                 bide::parallel_for(s, 0, 100, indexed(spawns));
             });
         }).join();
        CHECK(ran == 121);
    }
}

TEST_CASE("fork_scope: a worker takes a function while the body is in a long arm or iteration",
          "[promise.scope-function-place]") {
    const bool in_loop = GENERATE(false, true);
    const bool outside = GENERATE(false, true);
    scheduler s(with(2, true));
    const auto all = [&] {
        fork_scope(s, [&](spawn_scope& scope) {
            const auto waits = [&scope] {
                std::atomic<bool> ran{false};
                scope.spawn([&ran] { ran = true; });
                if (!spin_until(ran)) {
                    test::give_up(test::where(), "no worker has taken the function");
                }
            };
            if (in_loop) {
                const auto calls = [&](int) { waits(); };
                bide::parallel_for(s, 0, 1, indexed(calls));
            } else {
                join(s, waits, [] {});
            }
            waits();
        });
    };
    outside ? all() : s.spawn(all).join();
    SUCCEED();
}
