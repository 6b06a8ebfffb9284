// Deques of forks and thieves: trees of forks by several threads at once, which steal from the
// thief of an arm while they wait for it.

#include <bide/sched/fork_deque.hpp>
#include <support/sched.hpp>

using namespace bide;

namespace {

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
        basic_fork_deque<P, job, 1> deque;
        account books;
        test::jitter chance{test::run_seed()};
    };

    unsigned size() const noexcept { return static_cast<unsigned>(lanes_.size()); }

    bool steal(lane& mine, lane& from) {
        if (mine.chance.below(8) == 0) {
            from.deque.publish_all();
        }
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
