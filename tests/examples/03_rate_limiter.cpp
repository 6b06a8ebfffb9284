// # 3. A rate limiter
//
// Calls to an API stay below two limits, a rate with a burst and a number at a time. An object keeps each limit,
// and all callers share the two, threads as well as coroutines. A call that the server refuses is made again
// after a while.

#include <bide/bide.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

// The server of this chapter is a class. It answers after a millisecond, counts its calls, and is busy when it
// is asked for a page that ends in 7 for the first time.

class server {
public:
    bide::task<bide::result<int>> get(int page) {
        ++calls;
        const int together = ++now_;
        if (together > most)
            most = together; // two may race for it; it is a lower bound
        co_await bide::this_task::sleep_for(1ms);
        --now_;
        if (page % 10 == 7 && !was_busy_[static_cast<std::size_t>(page)].exchange(true))
            co_return bide::unexpected{bide::errc::timeout};
        co_return 2 * page;
    }

    std::atomic<int> calls{0};
    std::atomic<int> most{0}; // at a time

private:
    std::atomic<int> now_{0};
    std::vector<std::atomic<bool>> was_busy_ = std::vector<std::atomic<bool>>(100);
};

// **The limits.** A `rate_limiter` is a bucket that holds at most `burst` tokens. It is full at the start, and
// tokens come evenly. In any time t, at most burst + rate · t tokens are taken, so an idle client may make
// ten calls at once, and a busy one makes a call each millisecond. A semaphore keeps the number at a time.

constexpr int max_burst = 10;
constexpr int max_together = 4;

struct limits {
    bide::rate_limiter rate{1000, 1s, max_burst};
    bide::semaphore room{max_together};
};

// **A call** takes its permit first, and its token last. The other way round, calls would have tokens while
// they wait for a permit, and after a slow answer more of them would start together than the rate allows.
// The permit is released at the end of the scope, when the answer is there. A token is never returned.
//
// Both waits are first come, first served. If the task is cancelled, the wait ends by an exception, and the
// permit goes to the next caller.

bide::task<bide::result<int>> call(server& api, limits& shared, int page) {
    const bide::permit mine = co_await shared.room.async_acquire();
    co_await shared.rate.async_acquire();
    co_return co_await api.get(page);
}

// **A page** is one call, or a few. `retry()` makes a new task while the last one ends with an error or an
// exception. In between it waits, at first up to a millisecond, then up to two, and so on, at random so that
// clients that failed together do not come back together. Every attempt takes a permit and a token of its
// own, and none is held during the wait. After five attempts, the outcome is that of the last one.

bide::task<int> fetch(server& api, limits& shared, int page) {
    bide::retry_policy patient;
    patient.base = 1ms;
    const auto attempt = [&] { return call(api, shared, page); };
    const auto answer = co_await bide::retry(patient, attempt);
    co_return answer.value(); // throws if the last attempt failed
}

// **A thread** blocks where the tasks suspend, in the same two queues.

int fetch_from_a_thread(server& api, limits& shared, int page) {
    const bide::permit mine(shared.room);
    shared.rate.acquire();
    return bide::sync_wait(api.get(page)).value();
}

// **A call that is not worth a wait**, such as one that warms a cache, is dropped when there is no token.
// `try_acquire()` never waits. `try_acquire_for()` knows when its token will come: if that is too late, it
// says so at once and takes none.

bool skips_what_is_not_urgent() {
    bide::rate_limiter rare(1, 24h, 1);
    const bool first = rare.try_acquire();
    const bool second = rare.try_acquire_for(1h); // returns at once
    return first && !second;
}

// The program fetches sixty pages from tasks and ten from a thread. The test of a rate is a lower bound: so
// many calls must have taken so long.

int main() {
    server api;
    const auto begin = steady::now();
    limits shared;
    std::vector<int> pages(60);
    for (int i = 0; i < 60; ++i)
        pages[static_cast<std::size_t>(i)] = i;
    int from_a_thread = 0;
    std::jthread thread([&] {
        for (int page = 80; page < 90; ++page)
            if (page != 87)
                from_a_thread += fetch_from_a_thread(api, shared, page);
    });
    bide::scheduler workers;
    const auto fetch_one = [&](int page) { return fetch(api, shared, page); };
    const auto answers = bide::sync_wait(workers, bide::map_concurrent(pages, 20, fetch_one));
    thread.join();

    const auto took = steady::now() - begin;
    std::printf("%d calls, at most %d at a time\n", api.calls.load(), api.most.load());
    const bool is_right = answers[59] == 118 && from_a_thread == 2 * (845 - 87) &&
                          api.calls == 60 + 6 + 9 && api.most <= max_together &&
                          took >= 1ms * (api.calls - max_burst);
    return is_right && skips_what_is_not_urgent() ? 0 : 1;
}

// **Limits.** The limiter belongs to one process. Where several processes share an account,
// `durable_rate_limiter` keeps the tokens in a file or a database. A limiter says when a call may
// start, not whether the server agrees: the network may bring calls closer together than they left.
