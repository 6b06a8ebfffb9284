#include <bide/sched/fork_deque.hpp>
#include <support/alloc.hpp>
#include <support/gate.hpp>
#include <support/jitter.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using bide::fork_pop;

namespace {

struct job {
    int number = 0;
    int runs = 0; // plain data: only the thread that runs it touches it
    std::atomic<bool> ended{false};
};

// 0, 1, 2 and so on.
std::vector<job> numbered(std::size_t n) {
    std::vector<job> all(n);
    for (std::size_t i = 0; i < n; ++i) {
        all[i].number = static_cast<int>(i);
    }
    return all;
}

constexpr int none = -1;

template <class Deque> int steal(Deque& from) {
    job* const j = from.steal();
    return j != nullptr ? j->number : none;
}

template <unsigned First = 256> using deque = bide::basic_fork_deque<test::native, job, First>;

} // namespace

TEST_CASE("fork_deque: the owner pops the youngest job, a thief takes the oldest") {
    deque<2> d;
    std::vector<job> all = numbered(4);
    CHECK(d.is_empty_to_thieves());
    CHECK(steal(d) == none);
    for (std::uint32_t i = 0; i < 4; ++i) {
        CHECK(d.depth() == i);
        d.push(all[i]);
        CHECK(!d.is_empty_to_thieves());
    }
    CHECK(d.pop(3) == fork_pop::popped);
    CHECK(steal(d) == 0);
    CHECK(d.pop(2) == fork_pop::popped);
    CHECK(d.depth() == 2);
    CHECK(steal(d) == 1);
    CHECK(steal(d) == none);
    CHECK(d.pop(1) == fork_pop::stolen);
    CHECK(d.depth() == 2);
    d.reset(1);
    CHECK(d.depth() == 1);
    CHECK(d.pop(0) == fork_pop::stolen); // and so are the older ones
    d.reset(0);
    CHECK(d.depth() == 0);
    CHECK(d.is_empty_to_thieves());
    d.push(all[3]); // into a slot that was used before
    CHECK(steal(d) == 3);
}

TEST_CASE("fork_deque: an owner that waits for a stolen job pushes above it") {
    deque<2> d;
    std::vector<job> all = numbered(4);
    d.push(all[0]);
    CHECK(steal(d) == 0);
    CHECK(d.pop(0) == fork_pop::stolen);
    d.push(all[1]);
    d.push(all[2]);
    CHECK(d.depth() == 3);
    CHECK(d.pop(2) == fork_pop::popped);
    CHECK(steal(d) == 1);
    CHECK(d.pop(1) == fork_pop::stolen);
    d.reset(1);
    d.push(all[3]);
    CHECK(d.pop(1) == fork_pop::popped);
    d.reset(0);
    CHECK(d.depth() == 0);
    CHECK(d.is_empty_to_thieves());
}

// ---- What is public

TEST_CASE("fork_deque: the two oldest jobs are public, the rest are private") {
    deque<> d;
    std::vector<job> all = numbered(5);
    CHECK(d.wants_work());
    CHECK(d.push(all[0]));
    CHECK(!d.wants_work());
    CHECK(d.push(all[1]));
    CHECK(!d.push(all[2]));
    CHECK(!d.push(all[3]));
    CHECK(!d.push(all[4]));
    CHECK(steal(d) == 0);
    CHECK(!d.wants_work());
    CHECK(steal(d) == 1);
    CHECK(d.wants_work());
    CHECK(steal(d) == none);
}

TEST_CASE("fork_deque: as many jobs are public as are wanted, and at least two") {
    deque<> d;
    std::vector<job> all = numbered(8);
    int asked = 0;
    std::uint32_t wanted = 4;
    const auto want = [&] {
        ++asked;
        return wanted;
    };
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(d.push(all[i], want));
    }
    CHECK(asked == 4);
    CHECK_FALSE(d.push(all[4], want)); // private, and not asked
    CHECK(asked == 4);
    CHECK_FALSE(d.wants_work(4));
    CHECK(d.wants_work(5));
    CHECK(d.pop(4, want) == fork_pop::popped);
    CHECK(asked == 4);
    SECTION("of those that are wanted, the owner takes back one at a time") {
        CHECK(d.pop(3, want) == fork_pop::popped);
        CHECK_FALSE(d.wants_work(3));
        CHECK(d.push(all[5], want));
        CHECK_FALSE(d.wants_work(4));
    }
    SECTION("if fewer are wanted than before, it takes back half") {
        wanted = 0; // counts as two
        CHECK(d.pop(3, want) == fork_pop::popped);
        CHECK(steal(d) == 0);
        CHECK(steal(d) == 1);
        CHECK(steal(d) == none);
    }
    SECTION("if more are wanted, the next push that looks publishes them") {
        for (std::size_t i = 4; i < 7; ++i) {
            CHECK_FALSE(d.push(all[i], want));
        }
        wanted = 16;
        for (int i = 0; i < 4; ++i) {
            CHECK(steal(d) == i);
        }
        CHECK(d.push(all[7], want));
        for (int i = 4; i < 8; ++i) {
            CHECK(steal(d) == i);
        }
    }
}

TEST_CASE(
    "fork_deque: when one of two is stolen and the other taken back, the next two are public") {
    deque<> d;
    std::vector<job> all = numbered(5);
    d.push(all[0]);
    d.push(all[1]);
    CHECK(steal(d) == 0);
    CHECK(d.pop(1) == fork_pop::popped);
    CHECK(d.push(all[2]));
    CHECK(d.push(all[3]));
    CHECK(!d.push(all[4]));
}

TEST_CASE("fork_deque: after a theft of the last public job, the next push publishes") {
    deque<> d;
    std::vector<job> all = numbered(7);
    for (std::size_t i = 0; i < 5; ++i) {
        d.push(all[i]);
    }
    CHECK(steal(d) == 0);
    CHECK(steal(d) == 1);
    CHECK(steal(d) == none);
    CHECK(d.push(all[5])); // half of four
    CHECK(!d.push(all[6]));
    CHECK(steal(d) == 2);
    CHECK(steal(d) == 3);
    CHECK(steal(d) == none);
}

TEST_CASE("fork_deque: after a theft of the last public job, the next pop publishes") {
    deque<> d;
    std::vector<job> all = numbered(6);
    for (job& j : all) {
        d.push(j);
    }
    CHECK(steal(d) == 0);
    CHECK(steal(d) == 1);
    CHECK(d.pop(5) == fork_pop::popped_and_published); // half of three, rounded up
    CHECK(d.pop(4) == fork_pop::popped);
    CHECK(steal(d) == 2);
    CHECK(steal(d) == 3);
    CHECK(steal(d) == none);
    CHECK(d.pop(3) == fork_pop::stolen);
}

TEST_CASE("fork_deque: a thief that leaves a public job, or finds none, requests nothing") {
    deque<> d;
    std::vector<job> all = numbered(5);
    CHECK(steal(d) == none);
    for (std::size_t i = 0; i < 4; ++i) {
        d.push(all[i]);
    }
    CHECK(steal(d) == 0);
    CHECK(!d.push(all[4]));
    CHECK(d.pop(4) == fork_pop::popped);
    CHECK(steal(d) == 1);
    CHECK(steal(d) == none);
}

TEST_CASE("fork_deque: the owner publishes half of its private jobs, and takes half of the public "
          "ones back") {
    deque<> d;
    std::vector<job> all = numbered(10);
    for (std::size_t i = 0; i < 9; ++i) {
        d.push(all[i]);
    }
    CHECK(steal(d) == 0);
    CHECK(steal(d) == 1);
    CHECK(d.push(all[9])); // half of eight
    for (std::uint32_t at = 9; at >= 6; --at) {
        CHECK(d.pop(at) == fork_pop::popped);
    }
    SECTION("all that was published is to be had") {
        for (int i = 2; i <= 5; ++i) {
            CHECK(steal(d) == i);
        }
        CHECK(steal(d) == none);
    }
    SECTION("half of it is taken back with the youngest") {
        CHECK(d.pop(5) == fork_pop::popped);
        CHECK(steal(d) == 2);
        CHECK(steal(d) == 3);
        CHECK(steal(d) == none);
        CHECK(d.pop(4) == fork_pop::popped);
        CHECK(d.pop(3) == fork_pop::stolen);
    }
}

namespace {

// Counts what is done to words that threads share.
struct tallied : test::native {
    inline static int loads = 0;
    inline static int changes = 0;

    template <class T> struct atomic : std::atomic<T> {
        using base = std::atomic<T>;
        using order = std::memory_order;
        using base::base;

        T load(order o) const noexcept { return ++loads, base::load(o); }
        void store(T value, order o) noexcept { ++changes, base::store(value, o); }
        T exchange(T value, order o) noexcept { return ++changes, base::exchange(value, o); }
        T fetch_add(T value, order o) noexcept { return ++changes, base::fetch_add(value, o); }
        bool compare_exchange_weak(T& seen, T value, order o, order failed) noexcept {
            return ++changes, base::compare_exchange_weak(seen, value, o, failed);
        }
    };
};

} // namespace

TEST_CASE("fork_deque: a private fork loads two words and changes none, before and after a theft") {
    bide::basic_fork_deque<tallied, job> d;
    std::vector<job> all = numbered(12);
    const auto require_private = [&](std::uint32_t at) {
        tallied::loads = 0;
        tallied::changes = 0;
        d.push(all[at]);
        CHECK(d.pop(at) == fork_pop::popped);
        CHECK(tallied::loads == 2);
        CHECK(tallied::changes == 0);
    };
    for (std::size_t i = 0; i < 8; ++i) {
        d.push(all[i]);
    }
    require_private(8);
    steal(d);
    steal(d);
    CHECK(d.push(all[8]));
    require_private(9);
    for (std::uint32_t at = 8; at >= 5; --at) {
        CHECK(d.pop(at) == fork_pop::popped);
    }
    require_private(5); // two of the four that were published are private again
    for (std::uint32_t at = 4; at >= 3; --at) {
        CHECK(d.pop(at) == fork_pop::popped);
    }
    CHECK(steal(d) == 2); // the last job
    CHECK(d.pop(2) == fork_pop::stolen);
    for (std::uint32_t at = 3; at-- > 0;) {
        d.reset(at);
    }
    d.push(all[0]);
    d.push(all[1]);
    require_private(2);
}

// ---- Memory

TEST_CASE("fork_deque: the first push allocates, and so does one that needs a larger buffer") {
    const std::size_t before = test::allocations();
    deque<4> d;
    CHECK(test::allocations() == before);
    std::vector<job> all = numbered(17);
    const bool counts = test::counts_allocations();
    std::vector<std::size_t> taken;
    taken.reserve(all.size());
    for (job& j : all) {
        const std::size_t first = test::allocations();
        d.push(j);
        taken.push_back(counts ? test::allocations() - first : 0);
    }
    for (std::size_t i = 0; i < taken.size(); ++i) {
        CAPTURE(i);
        CHECK(taken[i] == (counts && (i == 0 || i == 4 || i == 8 || i == 16) ? 1U : 0U));
    }
    for (std::uint32_t at = 17; at-- > 0;) {
        CHECK(d.pop(at) == fork_pop::popped);
    }
}

TEST_CASE("fork_deque: a push that gets no memory throws and changes nothing") {
    if (!test::counts_allocations()) {
        return;
    }
    deque<2> d;
    std::vector<job> all = numbered(3);
    const auto fails = [&](job& j) {
        const test::out_of_memory here;
        try {
            d.push(j);
        } catch (const std::bad_alloc&) {
            return true;
        }
        return false;
    };
    CHECK(fails(all[0]));
    CHECK(d.depth() == 0);
    CHECK(steal(d) == none);
    d.push(all[0]);
    d.push(all[1]);
    CHECK(fails(all[2]));
    CHECK(d.depth() == 2);
    d.push(all[2]);
    CHECK(d.pop(2) == fork_pop::popped);
    CHECK(steal(d) == 0);
    CHECK(steal(d) == 1);
}

// ---- Threads

namespace {

// An owner that forks and joins `jobs` jobs, nested up to `deepest`, beside thieves. Returns how
// many did not run once.
template <class Deque> std::size_t storm(int thieves, std::size_t jobs, std::uint32_t deepest) {
    Deque d;
    std::vector<job> all(jobs);
    std::atomic<bool> over{false};
    std::size_t next = 0;
    test::jitter chance(test::run_seed());
    const auto fork = [&](auto& again, std::uint32_t levels) -> void {
        if (levels == 0 || next == jobs) {
            return;
        }
        job& mine = all[next++];
        const std::uint32_t at = d.depth();
        d.push(mine);
        if (chance.below(16) == 0) {
            std::this_thread::yield(); // to a thief
        }
        again(again, levels - 1);
        if (chance.below(4) == 0) {
            again(again, 2); // above a job that may have been stolen
        }
        if (d.pop(at) != fork_pop::stolen) {
            ++mine.runs;
            return;
        }
        if (chance.below(4) == 0) {
            again(again, 3); // above a job that was stolen
        }
        while (!mine.ended.load(std::memory_order_acquire)) {
            std::this_thread::yield();
        }
        d.reset(at);
    };
    test::run_threads(thieves + 1, [&](int me) {
        if (me == 0) {
            while (next != jobs) {
                fork(fork, 1 + chance.below(deepest));
            }
            over.store(true, std::memory_order_release);
            return;
        }
        while (!over.load(std::memory_order_acquire)) {
            if (job* const j = d.steal()) {
                ++j->runs;
                j->ended.store(true, std::memory_order_release);
            } else {
                std::this_thread::yield();
            }
        }
    });
    std::size_t wrong = d.is_empty_to_thieves() && d.depth() == 0 ? 0 : 1;
    for (const job& j : all) {
        wrong += j.runs == 1 ? 0 : 1;
    }
    return wrong;
}

} // namespace

TEST_CASE("fork_deque: each of 2'000 jobs is run once, beside four thieves") {
    CHECK(storm<bide::basic_fork_deque<test::jittery, job, 256>>(4, 2'000, 40) == 0);
}

TEST_CASE("fork_deque: each of 100 jobs is run once, beside eight thieves") {
    for (int round = 0; round < 10; ++round) {
        CHECK(storm<bide::basic_fork_deque<test::jittery, job, 256>>(8, 100, 10) == 0);
    }
}

TEST_CASE("fork_deque: each job is run once while the buffer grows beside thieves") {
    for (int round = 0; round < 10; ++round) {
        CHECK(storm<bide::basic_fork_deque<test::jittery, job, 1>>(2, 300, 100) == 0);
    }
}
