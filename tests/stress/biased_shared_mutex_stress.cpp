// biased_shared_mutex: writers and readers, threads and tasks, that try, give up and leave elsewhere.
// Each write counts once, no reader sees half of one.

#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/platforms.hpp"
#include "support/stress.hpp"
#include "support/test.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/sync/biased_shared_mutex.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

namespace {

using std::chrono::microseconds;

// Plain, so that a hole in the exclusion is a wrong sum, and a race to a sanitizer.
struct pair_of_counts {
    std::uint64_t first = 0;
    std::uint64_t second = 0;

    void add() noexcept {
        ++first;
        ++second;
    }
    bool is_torn() const noexcept { return first != second; }
};

struct tally {
    std::uint64_t written = 0;
    std::uint64_t torn = 0;
};

template <class Mutex>
bide::task<bool> write_in_time(Mutex& m, pair_of_counts& in, microseconds rest) {
    const auto held = co_await m.async_lock().with_timeout(rest);
    if (held) {
        in.add();
    }
    co_return held.has_value();
}
template <class Mutex> bide::task<bool> read_torn(Mutex& m, pair_of_counts& in) {
    const auto held = co_await m.async_lock_shared();
    co_return in.is_torn();
}

template <class Mutex> bool write_once(Mutex& m, pair_of_counts& in, test::jitter& chance) {
    const microseconds rest(chance.below(50));
    switch (chance.below(5)) {
    case 0: return bide::sync_wait(write_in_time(m, in, rest));
    case 1:
        if (!m.try_lock()) {
            return false;
        }
        break;
    case 2:
        if (!m.try_lock_for(rest)) {
            return false;
        }
        break;
    case 3: {
        std::stop_source source;
        std::thread stopping([&source] { source.request_stop(); });
        const bool mine = m.lock(source.get_token()).has_value();
        stopping.join();
        if (!mine) {
            return false;
        }
        break;
    }
    default: m.lock();
    }
    in.add();
    if (chance.below(4) == 0) {
        m.unlock_and_lock_shared();
        m.unlock_shared();
    } else {
        m.unlock();
    }
    return true;
}

template <class Mutex> bool read_once(Mutex& m, pair_of_counts& in, test::jitter& chance) {
    bool torn = false;
    switch (chance.below(8)) {
    case 0: return bide::sync_wait(read_torn(m, in));
    case 1:
        if (!m.try_lock_shared_for(microseconds(chance.below(50)))) {
            return false;
        }
        break;
    case 2:
        if (!m.try_lock_shared()) {
            return false;
        }
        break;
    default: m.lock_shared();
    }
    torn = in.is_torn();
    m.unlock_shared();
    return torn;
}

} // namespace

TEMPLATE_TEST_CASE("biased_shared_mutex: each write counts once, and no reader sees half of one",
                   "[promise.biased-as-shared]", test::native, test::portable, test::jittery) {
    constexpr int threads = 4;
    const test::stress_time time;
    bide::basic_biased_shared_mutex<TestType, 2> m; // so that threads share slots
    pair_of_counts in;
    tally of[threads];
    test::stress_threads(threads, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        tally& mine = of[i];
        // One write in 4 to 512: the bias comes and goes, and stays.
        for (std::uint32_t every = 4; time.is_left(); every = every < 512 ? 2 * every : 4) {
            for (int left = 256; left > 0 && time.is_left(); --left) {
                if (chance.below(every) == 0) {
                    mine.written += write_once(m, in, chance) ? 1 : 0;
                } else {
                    mine.torn += read_once(m, in, chance) ? 1 : 0;
                }
            }
        }
    });
    std::uint64_t written = 0;
    for (const tally& t : of) {
        CHECK(t.torn == 0);
        written += t.written;
    }
    CHECK(written > 0);
    CHECK(in.first == written);
    CHECK(m.try_lock());
    m.unlock();
}

namespace {

// Reads over a suspension, and so leaves on another worker than it came, at times.
bide::task<std::uint64_t> read_and_wander(bide::biased_shared_mutex& m, pair_of_counts& in,
                                          int times) {
    std::uint64_t torn = 0;
    for (int i = 0; i < times; ++i) {
        const auto held = co_await m.async_lock_shared();
        torn += in.is_torn() ? 1 : 0;
        co_await bide::this_task::yield();
        torn += in.is_torn() ? 1 : 0;
    }
    co_return torn;
}
bide::task<std::uint64_t> write_often(bide::biased_shared_mutex& m, pair_of_counts& in, int times) {
    for (int i = 0; i < times; ++i) {
        {
            const auto held = co_await m.async_lock();
            in.add();
            co_await bide::this_task::yield();
        }
        for (int n = 0; n < 100; ++n) { // meanwhile it is biased again
            co_await bide::this_task::yield();
        }
    }
    co_return 0;
}

} // namespace

TEST_CASE("biased_shared_mutex: tasks that read on one worker and leave on another",
          "[promise.biased-reader-moves]") {
    constexpr int times = 50;
    constexpr int writers = 2;
    const test::stress_time time;
    std::uint64_t rounds = 0;
    std::uint64_t torn = 0;
    while (time.is_left()) {
        bide::biased_shared_mutex m;
        pair_of_counts in;
        bide::scheduler s({.num_workers = 3});
        std::vector<bide::join_handle<std::uint64_t>> all;
        for (int i = 0; i < 6; ++i) {
            all.push_back(s.spawn(read_and_wander(m, in, 20 * times)));
        }
        for (int i = 0; i < writers; ++i) {
            all.push_back(s.spawn(write_often(m, in, times)));
        }
        for (auto& h : all) {
            torn += std::move(h).join();
        }
        REQUIRE(in.first == writers * times);
        REQUIRE(m.try_lock());
        m.unlock();
        ++rounds;
    }
    CHECK(torn == 0);
    CHECK(rounds > 0);
}
