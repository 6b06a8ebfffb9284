// # 18. std::execution::par on bide
//
// A program that uses the parallel algorithms of std can keep them. If it links the CMake target `bide::std_execution`,
// `<execution>` runs them on the workers of bide, and the program needs no libtbb. This one analyses a day of requests to
// a server: the slowest ones, how many in each hour, and when half of all bytes were sent.

#include <bide/bide.hpp>
#include <bide/parallel/async_fork.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <execution>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

struct request {
    std::uint32_t second; // of the day
    std::uint32_t bytes;
    std::uint32_t microseconds;
};

// The log of a day, in the order of time. The numbers are made up; the same each time.

std::vector<request> read_log(std::size_t size) {
    std::vector<request> log(size);
    std::uint32_t random = 1;
    for (std::size_t i = 0; i < size; ++i) {
        random = random * 1'664'525 + 1'013'904'223;
        log[i] = {static_cast<std::uint32_t>(i * 86'400 / size), random >> 20,
                  100 + (random >> 12) % 10'000};
    }
    return log;
}

// **The slowest requests.** A copy of a few of them: the log itself stays in its order.

std::array<request, 3> slowest(const std::vector<request>& log) {
    std::array<request, 3> slow{};
    std::partial_sort_copy(
        std::execution::par, log.begin(), log.end(), slow.begin(), slow.end(),
        [](const request& a, const request& b) { return a.microseconds > b.microseconds; });
    return slow;
}

// **When half of the bytes were sent.** A scan adds up the bytes of all requests up to each one, and a search finds the
// first sum that is large enough.

std::uint32_t half_time(const std::vector<request>& log) {
    std::vector<std::uint64_t> sent(log.size());
    std::transform_inclusive_scan(
        std::execution::par, log.begin(), log.end(), sent.begin(), std::plus(),
        [](const request& r) { return std::uint64_t{r.bytes}; }, std::uint64_t{0});
    const auto half = std::find_if(std::execution::par, sent.begin(), sent.end(),
                                   [all = sent.back()](std::uint64_t n) { return 2 * n >= all; });
    return log[static_cast<std::size_t>(half - sent.begin())].second;
}

// **Requests in each hour.** One algorithm in the body of another: the hours in parallel, and the requests of each hour
// in parallel, too. The inner ones run on the same workers as the outer one, so there are never more threads than
// workers, apart from the caller.

std::array<std::ptrdiff_t, 24> by_hour(const std::vector<request>& log) {
    std::array<std::ptrdiff_t, 24> count{};
    std::for_each(std::execution::par, count.begin(), count.end(), [&](std::ptrdiff_t& mine) {
        const auto hour = static_cast<std::uint32_t>(&mine - count.data());
        mine = std::count_if(std::execution::par, log.begin(), log.end(),
                             [hour](const request& r) { return r.second / 3'600 == hour; });
    });
    return count;
}

// **Where they run.** A thread that belongs to no scheduler uses `scheduler::shared()`, or the scheduler that
// `bide::set_std_execution_scheduler()` was given. A task uses its own scheduler. So the tasks of a server and its
// algorithms share the workers, and no thread waits for a processor that another one of the program has. An algorithm
// blocks its caller, here a worker; `spawn_blocking()` or `async_fork()` keep it off the task that waits.

bide::task<bool> report(bide::scheduler& workers, const std::vector<request>& log) {
    auto slow = workers.spawn([&] { return slowest(log); });
    auto half = workers.spawn([&] { return half_time(log); });
    const auto count = [&log] { return by_hour(log); };
    const std::array<std::ptrdiff_t, 24> hours = co_await bide::async_fork(workers, count);
    const std::array<request, 3> slowest_requests = co_await std::move(slow);
    for (const request& r : slowest_requests) {
        std::printf("slow: %u us at %02u:%02u\n", unsigned{r.microseconds},
                    unsigned{r.second / 3'600}, unsigned{r.second / 60 % 60});
    }
    const std::uint32_t at = co_await std::move(half);
    std::printf("half of the bytes by %02u:%02u\n", unsigned{at / 3'600}, unsigned{at / 60 % 60});
    const auto all = std::reduce(hours.begin(), hours.end());
    std::printf("%td requests, %td in the first hour\n", all, hours.front());
    co_return all == static_cast<std::ptrdiff_t>(log.size()) && at / 3'600 == 12;
}

// An exception in a body ends the program, as std says. The algorithms of bide throw it to their caller instead, and take
// stop tokens: `bide::parallel_for(workers, log, body)`. Both kinds may be mixed.

int main() {
    bide::scheduler workers;
    const std::vector<request> log = read_log(200'000);
    return bide::sync_wait(workers, report(workers, log)) ? EXIT_SUCCESS : EXIT_FAILURE;
}
