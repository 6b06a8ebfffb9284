// The queues and the sleep protocol of a scheduler together: rings, the injector behind them, and
// workers that sleep by the protocol of idle.hpp.

#include <bide/core/parker.hpp>
#include <bide/sched/idle.hpp>
#include <bide/sched/injector.hpp>
#include <bide/sched/run_queue.hpp>
#include <support/catch.hpp>
#include <support/jitter.hpp>
#include <support/platforms.hpp>
#include <support/stress.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

using bide::runnable;

namespace {

// ---- Owners and thieves

struct ball : runnable {
    int had = 0;                  // plain data: only the thread that has it touches it
    std::atomic<bool> out{false}; // it is in a queue
};

// Each worker pushes its own balls into its ring, again and again. The ring grows, or they overflow
// into the injector. They are stolen, and popped. Each ball is taken once before it is pushed again.
template <class P, unsigned Capacity, unsigned Max> int throw_and_catch(unsigned workers) {
    std::vector<bide::basic_run_queue<P, Capacity, Max>> rings(workers);
    bide::basic_injector<P> injected;
    constexpr unsigned jobs = Capacity == Max ? 2 * Capacity : 16 * Capacity;
    std::vector<std::vector<ball>> all;
    for (unsigned i = 0; i < workers; ++i) {
        all.emplace_back(jobs);
    }
    std::vector<int> wrong(workers);
    std::atomic<unsigned> throwing{workers};
    test::stress_threads(static_cast<int>(workers), [&](int me) {
        const auto self = static_cast<unsigned>(me);
        test::jitter chance(test::run_seed() + self);
        auto& ring = rings[self];
        const auto have = [&](runnable* r) noexcept {
            if (r != nullptr) {
                ball& b = *static_cast<ball*>(r);
                wrong[self] += ++b.had == 1 ? 0 : 1;
                b.out.store(false, std::memory_order_release);
            }
        };
        const auto catch_some = [&] {
            for (std::uint32_t n = chance.below(jobs / 2); n > 0; --n) {
                have(ring.pop());
            }
            ring.trim();
            const auto from = static_cast<unsigned>(chance.below(workers));
            unsigned taken = 0;
            if (from != self) {
                have(rings[from].steal_into(ring, taken));
            }
            bide::detail::run_list batch;
            injected.pop(batch, chance.below(8));
            have(batch.pop());
            while (runnable* const r = batch.pop()) {
                ring.push(*r, injected);
            }
        };
        for (const test::stress_time time; time.is_left();) {
            for (std::uint32_t n = chance.below(jobs); n > 0; --n) {
                ball& b = all[self][chance.below(jobs)];
                if (!b.out.load(std::memory_order_acquire)) {
                    b.had = 0;
                    b.out.store(true, std::memory_order_relaxed);
                    ring.push(b, injected);
                }
            }
            catch_some();
        }
        --throwing;
        for (ball& b : all[self]) { // all balls come back
            while (b.out.load(std::memory_order_acquire)) {
                catch_some();
                std::this_thread::yield();
            }
        }
        while (throwing != 0 || !ring.empty()) {
            catch_some();
            std::this_thread::yield();
        }
    });
    for (const auto& ring : rings) {
        wrong[0] += ring.empty() ? 0 : 1;
    }
    wrong[0] += injected.empty() ? 0 : 1;
    return std::accumulate(wrong.begin(), wrong.end(), 0);
}

} // namespace

TEMPLATE_TEST_CASE("run_queue: owners and thieves under load lose no job and run none twice", "",
                   test::native, test::jittery) {
    CAPTURE(test::run_seed());
    CHECK(throw_and_catch<TestType, 2, 2>(3) == 0);
    CHECK(throw_and_catch<TestType, 4, 4>(4) == 0);
    CHECK(throw_and_catch<TestType, 2, 1024>(3) == 0); // grows and shrinks
    CHECK(throw_and_catch<TestType, 4, 1024>(4) == 0);
    CHECK(throw_and_catch<TestType, 256, 256>(3) == 0);
}

namespace {

// ---- Sleepers

struct task : runnable {
    int children = 0; // its worker pushes so many of the jobs after it into its ring
};

// Workers in their loop. Each job waits until as many jobs of its round have begun as there are
// workers: if a worker sleeps while a job is queued, the others wait for ever.
template <class P> class crew {
public:
    explicit crew(unsigned workers)
        : idle_(workers), rings_(workers), parkers_(workers), size_(workers) {}

    // Runs until `rounds` are over, or the driver has said that the last one is.
    void work(unsigned self) {
        test::jitter chance(test::run_seed() + self);
        bool searching = false;
        while (!over_.load(std::memory_order_acquire)) {
            bool more = false;
            runnable* r = rings_[self].pop();
            if (r == nullptr) {
                searching = searching || idle_.start_search();
                r = searching ? search(self, chance, more) : nullptr;
            }
            if (r != nullptr) {
                if (searching) {
                    unpark(idle_.end_search(more));
                    searching = false;
                }
                run(self, *static_cast<task*>(r));
                continue;
            }
            idle_.announce(self, searching, false);
            if (!look() || !idle_.retract(self)) {
                parkers_[self].park();
            }
            searching = true;
        }
    }

    // Rounds of jobs, pushed in one of three ways by an external thread.
    void drive() {
        test::jitter chance(test::run_seed() + 4'711);
        std::vector<task> tasks(size_);
        const auto n = static_cast<unsigned>(size_);
        for (const test::stress_time time; time.is_left();) {
            const std::uint32_t way = chance.below(3);
            for (task& t : tasks) {
                t.children = 0;
            }
            if (way == 0) {
                for (task& t : tasks) {
                    injected_.push(t);
                    unpark(idle_.wake_one());
                    chance();
                }
            } else if (way == 1) {
                tasks[0].children = static_cast<int>(n) - 1;
                injected_.push(tasks[0]);
                unpark(idle_.wake_one());
            } else {
                bide::detail::run_list list;
                for (task& t : tasks) {
                    list.push(t);
                }
                injected_.push(list, n);
                unpark(idle_.wake_one());
            }
            ++rounds_;
            while (ended_.load(std::memory_order_acquire) != rounds_ * n) {
                std::this_thread::yield();
            }
            chance.dawdle(
                chance.below(2) == 0 ? 0 : 17); // sometimes long enough for the workers to sleep
        }
        over_.store(true, std::memory_order_release);
        for (auto& bed : parkers_) {
            bed.unpark();
        }
    }

    std::uint64_t rounds() const noexcept { return rounds_; }
    bool is_empty() const noexcept { return !look(); }

private:
    void unpark(unsigned worker) noexcept {
        if (worker != bide::basic_idle<P>::none) {
            parkers_[worker].unpark();
        }
    }

    runnable* search(unsigned self, test::jitter& chance, bool& more) noexcept {
        const std::size_t part =
            bide::basic_injector<P>::share(injected_.size(), static_cast<unsigned>(size_));
        bide::detail::run_list batch;
        if (injected_.pop(batch, part) != 0) {
            runnable* const first = batch.pop();
            while (runnable* const r = batch.pop()) {
                more = true;
                rings_[self].push(*r, injected_);
            }
            more = more || !injected_.empty();
            return first;
        }
        const auto start = chance.below(static_cast<std::uint32_t>(size_));
        for (std::size_t i = 0; i < size_; ++i) {
            const std::size_t other = (start + i) % size_;
            unsigned taken = 0;
            if (other == self) {
                continue;
            }
            if (runnable* const r = rings_[other].steal_into(rings_[self], taken)) {
                more = taken > 1 || !rings_[other].empty();
                return r;
            }
        }
        return nullptr;
    }

    bool look() const noexcept {
        for (const auto& ring : rings_) {
            if (!ring.empty()) {
                return true;
            }
        }
        return !injected_.empty();
    }

    void run(unsigned self, task& t) noexcept {
        for (int i = 1; i <= t.children; ++i) {
            rings_[self].push((&t)[i], injected_);
            unpark(idle_.wake_one());
        }
        const std::uint64_t end = (begun_.fetch_add(1) / size_ + 1) * size_;
        while (begun_.load() < end) {
            std::this_thread::yield();
        }
        ended_.fetch_add(1, std::memory_order_release);
    }

    bide::basic_idle<P> idle_;
    bide::basic_injector<P> injected_;
    std::vector<bide::basic_run_queue<P, 4, 4>> rings_; // small, so that they overflow
    std::vector<bide::basic_parker<P>> parkers_;
    const std::size_t size_;
    std::atomic<std::uint64_t> begun_{0};
    std::atomic<std::uint64_t> ended_{0};
    std::uint64_t rounds_ = 0; // the driver counts
    std::atomic<bool> over_{false};
};

template <class P> void all_at_once(unsigned workers) {
    crew<P> c(workers);
    test::stress_threads(static_cast<int>(workers) + 1, [&](int me) {
        if (me == static_cast<int>(workers)) {
            c.drive();
        } else {
            c.work(static_cast<unsigned>(me));
        }
    });
    CHECK(c.rounds() > 0);
    CHECK(c.is_empty());
}

} // namespace

TEMPLATE_TEST_CASE("idle: no job waits while a worker sleeps", "", test::native, test::portable,
                   test::jittery) {
    CAPTURE(test::run_seed());
    all_at_once<TestType>(2);
    all_at_once<TestType>(5);
}
