// Rings, and the injector behind them. With the workers that sleep: pool_stress.cpp.

#include <bide/sched/injector.hpp>
#include <support/sched.hpp>

using namespace bide;

namespace {

struct ball : runnable {
    int had = 0;                  // plain data: only the thread that has it touches it
    std::atomic<bool> out{false}; // it is in a queue
};

// Each worker pushes its own balls into its ring, again and again. The ring grows, or they go
// into the injector. They are stolen, and popped. Each ball is taken once before it is pushed again.
template <class P, unsigned Capacity, unsigned Max> int throw_and_catch(unsigned workers) {
    std::vector<basic_run_queue<P, Capacity, Max>> rings(workers);
    basic_injector<P> injected;
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
        const auto push = [&](runnable& r) noexcept {
            if (!ring.push(r)) {
                injected.push(r);
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
                push(*r);
            }
        };
        for (const test::stress_time time; time.is_left();) {
            for (std::uint32_t n = chance.below(jobs); n > 0; --n) {
                ball& b = all[self][chance.below(jobs)];
                if (!b.out.load(std::memory_order_acquire)) {
                    b.had = 0;
                    b.out.store(true, std::memory_order_relaxed);
                    push(b);
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

TEST_CASE("run_queue: owners and thieves under load lose no job and run none twice") {
    CHECK(throw_and_catch<test::jittery, 2, 2>(3) == 0);
    CHECK(throw_and_catch<test::jittery, 4, 1024>(4) == 0); // grows and shrinks
    CHECK(throw_and_catch<test::jittery, 256, 256>(3) == 0);
}
