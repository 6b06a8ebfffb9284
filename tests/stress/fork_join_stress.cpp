// Fork-joins of random shapes by many kinds of threads at once, on a scheduler; and on a pool with
// delays at its steps.

#include <bide/core/executor.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <support/sched.hpp>

using namespace bide;

namespace {

// The tree that a number stands for: the sum of its leaves, and whether one of them throws.
struct random_tree {
    // splitmix64
    static std::uint64_t mix(std::uint64_t n) noexcept {
        n += 0x9e3779b97f4a7c15U;
        n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9U;
        n = (n ^ n >> 27) * 0x94d049bb133111ebU;
        return n ^ n >> 31;
    }
    static std::uint64_t left(std::uint64_t n) noexcept { return mix(2 * n); }
    static std::uint64_t right(std::uint64_t n) noexcept { return mix(2 * n + 1); }
    static bool is_leaf(std::uint64_t n, int depth) noexcept { return depth == 0 || n % 8 == 0; }
    static bool throws(std::uint64_t n, int depth) noexcept {
        return is_leaf(n, depth) ? n % 509 == 3
                                 : throws(left(n), depth - 1) || throws(right(n), depth - 1);
    }
    static std::uint64_t sum(std::uint64_t n, int depth) noexcept {
        return is_leaf(n, depth) ? n : sum(left(n), depth - 1) + sum(right(n), depth - 1);
    }
};

struct thrown {};

// A tree on a scheduler, with leaves that also lock, block, and spawn.
struct forked_tree : random_tree {
    scheduler& s;
    mutex& locked;
    std::atomic<long>& spawned;

    forked_tree(scheduler& on, mutex& m, std::atomic<long>& count) noexcept
        : s(on), locked(m), spawned(count) {}

    std::uint64_t run(std::uint64_t n, int depth) {
        if (is_leaf(n, depth)) {
            leaf(n);
            return n;
        }
        const auto l = [this, n, depth] { return run(left(n), depth - 1); };
        const auto r = [this, n, depth] { return run(right(n), depth - 1); };
        if (n % 64 == 5) {
            const auto all = parallel_invoke(s, l, [] {}, r);
            return std::get<0>(all) + std::get<2>(all);
        }
        if (n % 512 == 7) { // the lock is held over a join
            const std::lock_guard lock(locked);
            const auto both = join(
                s, [n, depth] { return sum(left(n), depth - 1); },
                [n, depth] { return sum(right(n), depth - 1); });
            if (throws(n, depth)) {
                throw thrown();
            }
            return both.first + both.second;
        }
        const auto both = join(s, l, r);
        return both.first + both.second;
    }

private:
    void leaf(std::uint64_t n) {
        if (n % 509 == 3) {
            throw thrown();
        }
        if (n % 257 == 1) {
            semaphore ready(0);
            s.spawn([this, &ready] {
                 ++spawned;
                 ready.release();
             }).detach();
            ready.acquire();
        }
    }
};

// A pool with its workers' threads, without a scheduler.
template <class P> class grove final : bide::detail::basic_pool<P>::owner {
    using pool = bide::detail::basic_pool<P>;
    using worker = typename pool::worker;
    using lane = bide::detail::basic_fork_lane<P>;
    using place = bide::detail::basic_fork_context<P>;

    struct root : runnable {
        grove& in;
        std::uint64_t n = 0;
        std::uint64_t sum = 0;
        basic_parker<P> over;

        explicit root(grove& g) noexcept : in(g) {
            run = waker([](void* self) noexcept { static_cast<root*>(self)->grow(); }, this);
        }
        void grow() noexcept {
            static bide::detail::basic_fork_call_site<P> site;
            const bide::detail::basic_fork_scope<P> session(
                *bide::detail::basic_fork_lanes<P>::of(in.pool_)->thread_lane(), site);
            sum = tree(n, tall);
            over.unpark();
        }
    };

public:
    static constexpr int tall = 8;

    grove(unsigned workers, std::int64_t timed_sleep_ns)
        : pool_(*this, {workers, true, nullptr, timed_sleep_ns}) {}

    // Returns how many trees had a wrong result.
    long play(int forkers) {
        const auto workers = static_cast<int>(pool_.workers().size());
        std::atomic<int> left{forkers};
        std::atomic<long> wrong{0};
        const test::stress_time time;
        test::stress_threads(workers + forkers, [&](int me) {
            if (me < workers) {
                pool_.run(pool_.workers()[static_cast<std::size_t>(me)]);
                return;
            }
            root r(*this);
            r.n = random_tree::mix(test::run_seed() + static_cast<std::uint64_t>(me));
            while (time.is_left()) {
                r.n = random_tree::mix(r.n);
                pool_.push(r);
                r.over.park();
                wrong += r.sum == random_tree::sum(r.n, tall) ? 0 : 1;
            }
            if (--left == 0) {
                pool_.stop();
            }
        });
        return wrong;
    }

private:
    static std::uint64_t tree(std::uint64_t n, int depth) {
        if (random_tree::is_leaf(n, depth)) {
            return n;
        }
        const auto both = bide::detail::fork(
            place::here().lane, [&] { return tree(random_tree::left(n), depth - 1); },
            [&] { return tree(random_tree::right(n), depth - 1); });
        return both.first + both.second;
    }

    bool replace(worker&) noexcept override { return false; }
    void found_nothing() noexcept override {}

    pool pool_;
};

} // namespace

TEST_CASE("fork_join stress: external threads, tasks and blocking threads join random trees",
          "[promise.fork-from-anywhere]") {
    const unsigned workers = GENERATE(1U, 2U, 5U);
    scheduler s(test::with(workers, workers != 2));
    mutex locked;
    std::atomic<long> spawned{0};
    std::vector<long> wrong(6);
    const test::stress_time time;
    test::stress_threads(6, [&](int me) {
        auto n = random_tree::mix(test::run_seed() + static_cast<std::uint64_t>(me));
        while (time.is_left()) {
            n = random_tree::mix(n);
            const int depth = static_cast<int>(n >> 60);
            const auto once = [&] {
                try {
                    const auto sum = forked_tree(s, locked, spawned).run(n, depth);
                    return sum == random_tree::sum(n, depth);
                } catch (const thrown&) {
                    return random_tree::throws(n, depth);
                }
            };
            const bool right = me < 2   ? once()
                               : me < 4 ? s.spawn(once).join()
                                        : s.spawn_blocking(once).join();
            wrong[static_cast<std::size_t>(me)] += right ? 0 : 1;
        }
    });
    for (const long w : wrong) {
        CHECK(w == 0);
    }
}

TEST_CASE("fork_join stress: random trees with delays at every step") {
    const std::int64_t timed_sleep_ns = GENERATE(0, 100'000);
    CHECK(grove<test::jittery>(3, timed_sleep_ns).play(2) == 0);
}
