// The workers of a scheduler without its tasks: runnables that hop between workers, on platforms
// with delays at their steps.

#include <bide/core/executor.hpp>
#include <bide/sched/detail/pool.hpp>
#include <support/sched.hpp>

using namespace bide;

namespace {

// A pool, its workers' threads, one substitute, and an external thread that pushes.
template <class P> class arena final : bide::detail::basic_pool<P>::owner {
    using pool = bide::detail::basic_pool<P>;
    using worker = typename pool::worker;
    using parker = basic_parker<P>;

    // Runs again and again, each time after another kind of push; the worker that runs it pushes
    // it.
    struct ball : runnable {
        arena* in = nullptr;
        int hops = 0; // plain data: only the thread that has it touches it
        parker* end = nullptr;
        std::atomic<int>* left = nullptr;

        void hop() noexcept {
            if (--hops == 0) {
                parker& over = *end;
                if (left->fetch_sub(1) == 1) {
                    over.unpark();
                }
                return;
            }
            in->pass(*this);
        }
    };

public:
    struct shape {
        int pushers;
        unsigned workers;
        bool steal;
        std::int64_t timed_sleep_ns;
        bool blocks; // sometimes a ball blocks its thread
    };
    explicit arena(const shape& s)
        : pushers_(s.pushers), blocks_(s.blocks), lends_(s.steal && s.workers > 1),
          pool_(*this, {s.workers, s.steal, nullptr, s.timed_sleep_ns}) {}

    // Runs rounds of balls; at the end of each round all workers go to sleep. Returns how many
    // rounds.
    long play() {
        const auto workers = static_cast<int>(pool_.workers().size());
        std::atomic<int> players{pushers_};
        std::vector<long> rounds(static_cast<std::size_t>(pushers_));
        test::stress_threads(workers + 1 + pushers_, [&](int me) {
            if (me < workers) {
                pool_.run(pool_.workers()[static_cast<std::size_t>(me)]);
            } else if (me == workers) {
                spare_.park();
                while (worker* const w = gets_.exchange(nullptr)) {
                    pool_.run(*w);
                    is_there_ = true;
                    if (!over_) { // otherwise the token may have come with the last ball
                        spare_.park();
                    }
                }
            } else {
                rounds[static_cast<std::size_t>(me - workers - 1)] = throw_balls();
                if (--players == 0) {
                    over_ = true;
                    pool_.stop();
                    spare_.unpark();
                }
            }
        });
        return std::accumulate(rounds.begin(), rounds.end(), 0L);
    }

    bool is_even() {
        return pool_.idle().sleepers() == 0 && pool_.idle().searching() == 0 && pool_.queued() == 0;
    }

private:
    long throw_balls() {
        test::jitter& chance = test::jittery::chance();
        parker end;
        long rounds = 0;
        for (const test::stress_time time; time.is_left(); ++rounds) {
            std::deque<ball> balls(1 + chance.below(6));
            std::atomic<int> left{static_cast<int>(balls.size())};
            for (ball& b : balls) {
                b.in = this;
                b.end = &end;
                b.left = &left;
                b.hops = 1 + static_cast<int>(chance.below(30));
                b.run = waker([](void* p) noexcept { static_cast<ball*>(p)->hop(); }, &b);
                pool_.push(b);
            }
            end.park();
        }
        return rounds;
    }

    void pass(ball& b) noexcept {
        test::jitter& chance = test::jittery::chance();
        if (blocks_ && chance.below(64) == 0) {
            parker idle;
            idle.park_for(std::chrono::microseconds(20));
        }
        auto* const host = worker_local<P>::get().host;
        if (host == nullptr) { // the thread blocked and lost its worker
            return pool_.push(b);
        }
        if (lends_ && chance.below(32) == 0 && !waits_.exchange(true)) {
            wait_for_another(*pool_.current_worker());
        }
        switch (chance.below(4)) {
        case 0: return pool_.push(b);
        case 1: return host->yield(b);
        default: return pool_.push_local(*pool_.current_worker(), b);
        }
    }

    // Pushes a job that another worker has to run, and waits until it has run.
    void wait_for_another(worker& w) noexcept {
        std::atomic<bool> ran{false};
        runnable scout;
        scout.run =
            waker([](void* p) noexcept { *static_cast<std::atomic<bool>*>(p) = true; }, &ran);
        pool_.push_local(w, scout);
        while (!ran) {
            std::this_thread::yield();
        }
        waits_ = false;
    }

    bool replace(worker& w) noexcept override {
        if (over_ || !is_there_.exchange(false)) {
            return false;
        }
        gets_ = &w;
        spare_.unpark();
        return true;
    }
    bool request_replacement() noexcept override { return true; } // a ball blocks only for moments
    bool hand_to_idle_thread(worker&) noexcept override { return false; }
    void found_nothing() noexcept override {}

    const int pushers_;
    const bool blocks_;
    const bool lends_;
    std::atomic<bool> waits_{false}; // one ball at a time
    std::atomic<bool> over_{false};
    std::atomic<bool> is_there_{true};
    std::atomic<worker*> gets_{nullptr};
    parker spare_;
    pool pool_;
};

} // namespace

TEST_CASE("pool: each job that is pushed runs, through every queue, and then all workers sleep") {
    using arena_type = arena<test::jittery>;
    const arena_type::shape shapes[] = {
        {2, 1, true, 0, false},       {1, 3, true, 0, false}, {2, 3, true, 0, true},
        {1, 3, true, 100'000, false}, {2, 2, false, 0, true}, {2, 3, true, 100'000, true},
    };
    for (const auto& s : shapes) {
        CAPTURE(s.pushers, s.workers, s.steal, s.timed_sleep_ns, s.blocks);
        arena_type a(s);
        CHECK(a.play() > 0);
        CHECK(a.is_even());
    }
}
