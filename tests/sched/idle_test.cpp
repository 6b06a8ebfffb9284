#include <bide/core/parker.hpp>
#include <bide/sched/idle.hpp>
#include <support/alloc.hpp>
#include <support/death.hpp>
#include <support/gate.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using idle = bide::basic_idle<bide::native_platform>;

namespace {

constexpr unsigned none = idle::none;

// How many workers may search at once.
unsigned searchers(idle& i) {
    unsigned n = 0;
    while (i.start_search()) {
        ++n;
    }
    return n;
}

} // namespace

TEST_CASE("idle: a push wakes no worker if none sleeps") {
    idle i(2);
    CHECK(i.wake_one() == none);
    CHECK(i.wake_unless_watched() == none);
    CHECK(i.start_search());
    CHECK(i.wake_one() == none);
    CHECK(i.end_search(false) == none); // and no wake is deferred
    i.announce(0, false, false);
    CHECK(i.start_search());
    CHECK(i.end_search(false) == none);
    CHECK(i.sleepers() == 1);
    CHECK(i.searching() == 0);
}

TEST_CASE("idle: a push wakes one sleeper, which counts as searching") {
    idle i(4);
    i.announce(2, false, false);
    i.announce(1, false, false);
    CHECK(i.sleepers() == 2);
    CHECK(i.wake_one() == 1);
    CHECK(i.sleepers() == 1);
    CHECK(i.searching() == 1);
    CHECK(i.wake_one() == none); // a worker searches
    CHECK(i.wake_unless_watched() == none);
    CHECK(i.sleepers() == 1);
}

TEST_CASE("idle: the last searcher wakes the next worker if a push has relied on it") {
    idle i(4);
    i.announce(0, false, false);
    i.announce(1, false, false);
    CHECK(i.start_search());
    CHECK(i.start_search());
    CHECK(i.wake_one() == none);
    CHECK(i.end_search(false) == none); // not the last
    CHECK(i.end_search(false) == 0);
    CHECK(i.end_search(false) == 1); // the chain continues until a worker finds nothing
    CHECK(i.end_search(false) == none);
    CHECK(i.searching() == 0);
    CHECK(i.sleepers() == 0);
}

TEST_CASE("idle: a searcher that finds nothing ends the chain of wakes") {
    idle i(4);
    i.announce(0, false, false);
    i.announce(1, false, false);
    CHECK(i.start_search());
    CHECK(i.wake_one() == none);
    CHECK(i.end_search(false) == 0);
    i.announce(0, true, false);
    CHECK(i.searching() == 0);
    CHECK(i.sleepers() == 2);
    CHECK(i.start_search());
    CHECK(i.end_search(false) == none);
}

TEST_CASE("idle: a worker that retracts continues the chain of wakes") {
    idle i(4);
    const bool is_taken = GENERATE(false, true);
    i.announce(0, false, false);
    i.announce(1, false, false);
    CHECK(i.start_search());
    CHECK(i.wake_one() == none);
    i.announce(2, true, false);
    if (is_taken) {
        CHECK(i.wake_one() == 0);
        i.announce(0, true, false);
        CHECK(i.wake_one() == 0);
        CHECK(i.end_search(false) == none);
        CHECK(i.wake_one() == 1);
        CHECK(i.end_search(false) == none);
        CHECK(i.wake_one() == 2);
        i.announce(1, false, false);
        CHECK(!i.retract(2));
        CHECK(i.end_search(false) == 1);
    } else {
        CHECK(i.retract(2));
        CHECK(i.searching() == 1);
        CHECK(i.end_search(false) == 0);
    }
}

TEST_CASE(
    "idle: a searcher that has seen more wakes a worker, or leaves that to the last searcher") {
    idle i(4);
    for (unsigned n = 0; n < 3; ++n) {
        i.announce(n, false, false);
    }
    CHECK(i.start_search());
    CHECK(i.end_search(true) == 0);
    CHECK(i.start_search());
    CHECK(i.end_search(true) == none);
    CHECK(i.end_search(false) == 1);
}

TEST_CASE("idle: a worker that retracts is not woken, and a woken worker does not retract") {
    idle i(2);
    i.announce(0, false, false);
    CHECK(i.retract(0));
    CHECK(i.sleepers() == 0);
    CHECK(i.searching() == 1);
    i.announce(0, true, false);
    CHECK(i.searching() == 0);
    CHECK(i.wake_one() == 0);
    CHECK(!i.retract(0));
    CHECK(i.sleepers() == 0);
    CHECK(i.searching() == 1);
    CHECK(i.end_search(false) == none);
    CHECK(i.searching() == 0);
}

TEST_CASE("idle: at most half of the workers search, and at least one may") {
    for (const unsigned workers : {1U, 2U, 3U, 4U, 7U, 130U}) {
        idle i(workers);
        CHECK(searchers(i) == (workers + 1) / 2);
        CHECK(i.end_search(false) == none);
        CHECK(i.start_search());
        CHECK(!i.start_search());
    }
}

TEST_CASE("idle: each of 130 workers is woken, in the order of their numbers") {
    constexpr unsigned workers = 130;
    idle i(workers);
    for (unsigned n = workers; n-- > 0;) {
        i.announce(n, false, false);
    }
    CHECK(i.sleepers() == workers);
    std::vector<unsigned> woken;
    std::vector<unsigned> all;
    for (unsigned n = 0; n < workers; ++n) {
        all.push_back(n);
        woken.push_back(i.wake_one());
        CHECK(i.end_search(false) == none);
    }
    CHECK(woken == all);
    CHECK(i.wake_one() == none);
    for (const unsigned n : {129U, 63U, 64U, 128U, 127U}) {
        i.announce(n, false, false);
    }
    CHECK(i.retract(64));
    CHECK(i.end_search(true) == 63); // it continues, because there may be more
    CHECK(i.end_search(false) == 127);
    CHECK(i.end_search(false) == 128);
    CHECK(i.end_search(false) == 129);
    CHECK(i.sleepers() == 0);
}

TEST_CASE("idle: one worker watches while another runs, and LIFO pushes rely on it") {
    idle i(3);
    CHECK(!i.announce(0, false, false));
    CHECK(i.retract(0));
    CHECK(i.announce(0, true, true));
    CHECK(!i.announce(1, false, true)); // there is a watcher
    CHECK(i.wake_unless_watched() == none);
    CHECK(i.wake_one() == 1);        // not the watcher, while another worker sleeps
    CHECK(i.end_search(false) == 0); // the LIFO push has deferred a wake
    CHECK(i.end_search(false) == none);
    CHECK(i.announce(1, false, true)); // there was no watcher
    CHECK(i.retract(1));
    CHECK(i.end_search(false) == none);
    i.announce(0, false, false);
    CHECK(i.wake_unless_watched() == 0);
}

TEST_CASE("idle: no worker watches if none runs") {
    idle i(3);
    i.announce(0, false, true);
    CHECK(i.retract(0));
    i.announce(1, false, false);
    i.announce(2, false, false);
    CHECK(!i.announce(0, true, true)); // all sleep
    CHECK(i.wake_one() == 0);
    CHECK(i.end_search(false) == none);
    CHECK(i.wake_one() == 1);
    CHECK(i.end_search(false) == none);
    i.add_blocked(1);
    CHECK(!i.announce(1, false, true)); // 0 is blocked
    CHECK(i.retract(1));
    i.add_blocked(-1);
    CHECK(i.announce(1, true, true));
    CHECK(i.sleepers() == 2);
}

TEST_CASE("idle: a push that relied on the watcher wakes a worker when the watcher leaves") {
    idle i(4);
    CHECK(i.announce(0, false, true));
    CHECK(!i.announce(1, false, true));
    CHECK(!i.announce(2, false, true));
    CHECK(i.wake_unless_watched() == none);
    CHECK(i.wake_one() == 1);
    i.announce(1, true, true); // relies on the watcher
    CHECK(i.retract(0));       // its time-out is over, and it finds another job
    CHECK(i.end_search(false) == 1);
    CHECK(i.announce(1, true, true));
}

TEST_CASE("idle: a brief arm wakes a worker only if none watches and none searches") {
    idle i(4);
    CHECK(i.wake_for_brief_arm() == none); // no worker sleeps
    CHECK(i.announce(0, false, true));
    CHECK(!i.announce(1, false, true));
    CHECK(i.wake_for_brief_arm() == none);
    CHECK(i.start_search());
    CHECK(i.end_search(false) == none); // and no wake is deferred to the end of a search
    CHECK(i.retract(0));
    CHECK(i.wake_for_brief_arm() == none); // a worker searches, and wakes the next one
    CHECK(i.end_search(false) == 1);
    CHECK(i.end_search(false) == none);
    i.announce(2, false, false);
    CHECK(i.wake_for_brief_arm() == 2);
}

TEST_CASE("idle: only the constructor allocates") {
    idle i(130);
    const std::size_t before = test::allocations();
    for (unsigned n = 0; n < 130; ++n) {
        i.announce(n, false, true);
    }
    while (i.wake_one() != none) {
        static_cast<void>(i.end_search(true));
    }
    CHECK(test::allocations() == before);
}

#if BIDE_TESTS_CAN_DIE
TEST_CASE("idle: zero workers terminate with a message") {
    CHECK(test::contains(test::dies([] { idle i(0); }), "workers"));
}
#endif

namespace {

// Workers that take jobs off one counter, sleep by the protocol, and run each job only when as many
// jobs run as there are workers: if a worker sleeps while a job is queued, the others wait for
// ever.
template <class P> void all_at_once(unsigned workers, int rounds) {
    bide::basic_idle<P> idle(workers);
    std::vector<bide::basic_parker<P>> parkers(workers);
    typename P::template atomic<int> jobs{0};
    std::atomic<int> run{0};
    const auto wake = [&](unsigned worker) {
        if (worker != none) {
            parkers[worker].unpark();
        }
    };
    const auto take = [&] {
        int seen = jobs.load(std::memory_order_relaxed);
        while (seen > 0) {
            if (jobs.compare_exchange_weak(seen, seen - 1, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
                return true;
            }
        }
        return false;
    };
    const int size = static_cast<int>(workers);
    test::run_threads(size + 1, [&](int me) {
        if (me == size) {
            for (int round = 0; round < rounds; ++round) {
                for (unsigned n = 0; n < workers; ++n) {
                    jobs.fetch_add(1, std::memory_order_seq_cst);
                    wake(idle.wake_one());
                }
                if (round % 4 != 0) { // sometimes one round follows the other at once
                    while (run.load() < (round + 1) * size) {
                        std::this_thread::yield();
                    }
                }
            }
            return;
        }
        const auto self = static_cast<unsigned>(me);
        bool searching = false;
        for (int mine = 0; mine < rounds;) {
            searching = searching || idle.start_search();
            if (searching && take()) {
                searching = false;
                wake(idle.end_search(false));
                const int round = run.fetch_add(1) / size;
                while (run.load() < (round + 1) * size) {
                    std::this_thread::yield();
                }
                ++mine;
                continue;
            }
            idle.announce(self, searching, false);
            if (jobs.load(std::memory_order_seq_cst) == 0 || !idle.retract(self)) {
                parkers[self].park();
            }
            searching = true;
        }
    });
    CHECK(idle.sleepers() == 0);
    CHECK(idle.searching() == 0);
    CHECK(jobs.load(std::memory_order_relaxed) == 0);
}

} // namespace

TEST_CASE("idle: no worker sleeps while a job is queued") {
    all_at_once<test::jittery>(1, 200);
    all_at_once<test::jittery>(3, 200);
    all_at_once<test::jittery>(70, 3);
}
