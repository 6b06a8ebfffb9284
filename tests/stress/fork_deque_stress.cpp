// Deques of forks and thieves: trees of forks by several threads at once, which steal from the
// thief of an arm while they wait for it; and thieves that sleep by the protocol of idle.hpp.

#include <bide/core/parker.hpp>
#include <bide/sched/fork_deque.hpp>
#include <bide/sched/idle.hpp>
#include <support/jitter.hpp>
#include <support/platforms.hpp>
#include <support/stress.hpp>
#include <support/test.hpp>

using bide::fork_pop;

namespace {

// ---- Trees

template <class P> class forest {
public:
    explicit forest(unsigned lanes) : lanes_(lanes) {
        for (unsigned i = 0; i < lanes; ++i) {
            lanes_[i].chance = test::jitter(test::run_seed() + i);
        }
    }

    struct account {
        std::uint64_t wrong = 0;
        std::uint64_t forks = 0;
        std::uint64_t stolen = 0;
    };

    // Grows trees on a lane, or steals, until the time is over.
    void work(unsigned self) {
        lane& mine = lanes_[self];
        for (const test::stress_time time; time.is_left();) {
            if (mine.chance.below(3) != 0) {
                const unsigned depth = 1 + mine.chance.below(12);
                mine.books.wrong += grow(mine, depth) == std::uint64_t{1} << depth ? 0 : 1;
            } else if (!steal(mine, lanes_[mine.chance.below(size())])) {
                std::this_thread::yield();
            }
            mine.books.wrong += mine.deque.depth() == 0 ? 0 : 1;
            mine.books.wrong += mine.deque.is_empty_to_thieves() ? 0 : 1;
        }
    }

    account total() const {
        account all;
        for (const lane& l : lanes_) {
            all.wrong += l.books.wrong;
            all.forks += l.books.forks;
            all.stolen += l.books.stolen;
        }
        return all;
    }

private:
    struct lane;
    struct job {
        unsigned depth = 0;
        std::uint64_t leaves = 0; // plain data: only the thread that runs it touches it
        int runs = 0;
        std::atomic<lane*> thief{nullptr};
        std::atomic<bool> ended{false};
    };
    struct lane {
        bide::basic_fork_deque<P, job, 1> deque;
        account books;
        test::jitter chance{test::run_seed()};
    };

    unsigned size() const noexcept { return static_cast<unsigned>(lanes_.size()); }

    bool steal(lane& mine, lane& from) {
        job* const j = from.deque.steal();
        if (j == nullptr) {
            return false;
        }
        ++mine.books.stolen;
        j->thief.store(&mine, std::memory_order_release);
        run(mine, *j);
        j->ended.store(true, std::memory_order_release);
        return true;
    }

    void run(lane& mine, job& j) {
        ++j.runs;
        j.leaves = grow(mine, j.depth);
    }

    std::uint64_t grow(lane& mine, unsigned depth) {
        if (depth == 0) {
            return 1;
        }
        ++mine.books.forks;
        job other;
        other.depth = depth - 1;
        const std::uint32_t at = mine.deque.depth();
        mine.deque.push(other);
        if (mine.chance.below(64) == 0) {
            std::this_thread::yield();
        }
        const std::uint64_t leaves = grow(mine, depth - 1);
        if (mine.deque.pop(at) != fork_pop::stolen) {
            run(mine, other);
        } else {
            // Steals only from the thief: its jobs descend from this job.
            while (!other.ended.load(std::memory_order_acquire)) {
                lane* const thief = other.thief.load(std::memory_order_acquire);
                if (thief == nullptr || !steal(mine, *thief)) {
                    std::this_thread::yield();
                }
            }
            mine.deque.reset(at);
        }
        mine.books.wrong += other.runs == 1 ? 0 : 1;
        return leaves + other.leaves;
    }

    std::vector<lane> lanes_;
};

template <class P> void grow_forest(unsigned lanes) {
    forest<P> f(lanes);
    test::stress_threads(static_cast<int>(lanes),
                         [&](int me) { f.work(static_cast<unsigned>(me)); });
    const auto all = f.total();
    CAPTURE(test::run_seed(), lanes, all.forks, all.stolen);
    CHECK(all.wrong == 0);
    CHECK(all.forks > 0);
}

} // namespace

TEMPLATE_TEST_CASE("fork_deque: each leaf of a tree of forks is run once, beside thieves", "",
                   test::native, test::jittery) {
    grow_forest<TestType>(3);
    grow_forest<TestType>(8);
}

TEST_CASE("fork_deque: each leaf of a tree of forks is run once, on one processor") {
    const test::on_one_processor here;
    grow_forest<test::native>(4);
}

namespace {

// ---- Sleepers

struct task {
    int runs = 0;
    std::atomic<bool> ended{false};
};

// An owner that leaves its jobs to thieves, which sleep if they find nothing. If a thief sleeps
// while a job is public, the owner waits for ever.
template <class P, std::size_t Thieves> class night {
public:
    void steal(unsigned self) {
        bool searching = false;
        while (!over_.load(std::memory_order_acquire)) {
            searching = searching || idle_.start_search();
            task* const t = searching ? deque_.steal() : nullptr;
            if (t != nullptr) {
                unpark(idle_.end_search(!deque_.is_empty_to_thieves()));
                searching = false;
                ++t->runs;
                t->ended.store(true, std::memory_order_release);
                continue;
            }
            idle_.announce(self, searching, false);
            if (deque_.is_empty_to_thieves() || !idle_.retract(self)) {
                parkers_[self].park();
            }
            searching = true;
        }
    }

    // Returns how many tasks were not run exactly once.
    std::size_t own() {
        test::jitter chance(test::run_seed());
        std::size_t wrong = 0;
        for (const test::stress_time time; time.is_left();) {
            std::array<task, 6> all;
            const std::uint32_t n = 1 + chance.below(6);
            for (std::uint32_t i = 0; i < n; ++i) {
                publish(deque_.push(all[i]));
            }
            for (std::uint32_t left = n; left-- > 0;) {
                while (!deque_.is_empty_to_thieves()) {
                    std::this_thread::yield();
                }
                const fork_pop popped = deque_.pop(left);
                publish(popped == fork_pop::popped_and_published);
                if (popped != fork_pop::stolen) {
                    ++all[left].runs;
                    continue;
                }
                while (!all[left].ended.load(std::memory_order_acquire)) {
                    std::this_thread::yield();
                }
                deque_.reset(left);
            }
            for (std::uint32_t i = 0; i < n; ++i) {
                wrong += all[i].runs == 1 ? 0 : 1;
            }
            chance.dawdle(
                chance.below(2) == 0 ? 0 : 17); // sometimes long enough for the thieves to sleep
        }
        over_.store(true, std::memory_order_release);
        for (auto& bed : parkers_) {
            bed.unpark();
        }
        return wrong;
    }

private:
    using idle = bide::basic_idle<P>;

    void publish(bool published) {
        if (published) {
            unpark(idle_.wake_one());
        }
    }
    void unpark(unsigned worker) {
        if (worker != idle::none) {
            parkers_[worker].unpark();
        }
    }

    bide::basic_fork_deque<P, task, 2> deque_;
    idle idle_{Thieves + 1};
    std::array<bide::basic_parker<P>, Thieves> parkers_{};
    std::atomic<bool> over_{false};
};

template <class P, std::size_t Thieves> std::size_t pass_night() {
    night<P, Thieves> n;
    std::size_t wrong = 0;
    test::stress_threads(static_cast<int>(Thieves) + 1, [&](int me) {
        if (me == 0) {
            wrong = n.own();
        } else {
            n.steal(static_cast<unsigned>(me - 1));
        }
    });
    return wrong;
}

} // namespace

TEMPLATE_TEST_CASE("fork_deque: no thief sleeps while a job is public", "", test::native,
                   test::jittery) {
    CHECK(pass_night<TestType, 1>() == 0);
    CHECK(pass_night<TestType, 3>() == 0);
}
