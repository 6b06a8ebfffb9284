// A pool's worker that finds no job sleeps on an epoch. It must announce itself and read the epoch
// before its last search, and the announcement is one of the two variables of a pair (the job is
// the other): a mere hint it is not.

#include <model/known_bad/parts.hpp>

using namespace known_bad;

namespace {

struct pool {
    word job{0};
    var<int> value{0}; // what the job is
    word sleeping{0};
    word epoch{0};

    void sleep(std::uint32_t seen) noexcept { bide::futex_wait<platform>(epoch, seen); }
    void wake() noexcept {
        epoch.fetch_add(1, order::release);
        bide::futex_wake<platform>(&epoch, 1);
    }
};

// A push between search and load has moved the epoch already: the worker waits for the next one.
struct epoch_after_the_last_search : pool {
    void push() noexcept {
        job.store(1, order::seq_cst);
        if (sleeping.load(order::seq_cst) != 0) {
            wake();
        }
    }
    bool look_and_sleep() noexcept {
        sleeping.fetch_add(1, order::seq_cst);
        const bool found = job.load(order::seq_cst) != 0;
        if (!found) {
            sleep(epoch.load(order::seq_cst));
        }
        sleeping.fetch_sub(1, order::relaxed);
        return found;
    }
};

// The epoch comes first. The worker's half, for both twins below.
struct epoch_first : pool {
    bool look_and_sleep() noexcept {
        sleeping.fetch_add(1, order::relaxed);
        platform::fence(order::seq_cst); // announced before the last search
        const std::uint32_t seen = epoch.load(order::acquire);
        const bool found = job.load(order::acquire) != 0;
        if (!found) {
            sleep(seen);
        }
        sleeping.fetch_sub(1, order::relaxed);
        return found;
    }
};

// The pusher may read the counter before its job is seen, and both miss.
struct sleepers_as_a_hint : epoch_first {
    void push() noexcept {
        job.store(1, order::release);
        if (sleeping.load(order::relaxed) != 0) {
            wake();
        }
    }
};

// Repaired: job before sleepers in the pusher, sleepers before job in the worker.
struct sleepers_as_a_pair : epoch_first {
    void push() noexcept {
        job.store(1, order::release);
        platform::fence(order::seq_cst);
        if (sleeping.load(order::relaxed) != 0) {
            wake();
        }
    }
};

// A worker that sees the epoch moved must see the job that it was moved for.
struct epoch_is_relaxed : sleepers_as_a_pair {
    bool look_and_sleep() noexcept {
        sleeping.fetch_add(1, order::relaxed);
        platform::fence(order::seq_cst);
        const std::uint32_t seen = epoch.load(order::relaxed);
        const bool found = job.load(order::acquire) != 0;
        if (!found) {
            sleep(seen);
        }
        sleeping.fetch_sub(1, order::relaxed);
        return found;
    }
};

template <class Pool> void one_job() {
    Pool p;
    model::thread worker([&] {
        while (!p.look_and_sleep()) {
        }
        MODEL_REQUIRE(p.value == 42);
    });
    p.value = 42;
    p.push();
}

} // namespace

TEST_CASE("known bad: an epoch read after the last search loses a wake", "[known_bad]") {
    model::find("epoch after the last search", failure::lost_wakeup, {},
                one_job<epoch_after_the_last_search>);
    model::find("epoch first, but relaxed", failure::lost_wakeup, {}, one_job<epoch_is_relaxed>);
}

TEST_CASE("known bad: a count of sleepers taken for a hint loses a wake", "[known_bad]") {
    model::find("sleepers as a hint", failure::lost_wakeup, {}, one_job<sleepers_as_a_hint>);
}

TEST_CASE("known bad: the epoch first and a pair lose no wake", "[known_bad]") {
    model::check("one job", {}, one_job<sleepers_as_a_pair>);
    model::check("one job, woken for no reason", {.spurious = 1}, one_job<sleepers_as_a_pair>);
}
