// Coroutines that fork: what a fork costs if each is a coroutine. fib and skynet are those of the
// runtime-benchmarks suite, which has fib(39) and 1e8 leaves. And what an item of a generator takes that never waits,
// beside a plain loop.

#include "sched/pools.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/stream/stream.hpp>
#include <bide/task/async_generator.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>

#include <cstdint>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

namespace bench {
namespace {

constexpr const char* bide_await_row = "bide::scheduler, co_await";
constexpr const char* bide_when_all_row = "bide::scheduler, when_all";
constexpr const char* bide_await_all_row = "bide::scheduler, await_all";
constexpr const char* bide_spawn_row = "bide::scheduler, spawn and join";

using integer = std::uint64_t;

constexpr integer fib_of(integer n) {
    integer a = 0;
    integer b = 1;
    for (; n != 0; --n) {
        b += a;
        a = b - a;
    }
    return a;
}

// The calls of fib(n) that fork.
constexpr integer forks_of(integer n) { return fib_of(n + 1) - 1; }

// No fork: what the coroutines cost.
bide::task<integer> fib_awaited(integer n) {
    if (n < 2) {
        co_return n;
    }
    const integer a = co_await fib_awaited(n - 1);
    const integer b = co_await fib_awaited(n - 2);
    co_return a + b;
}

bide::task<integer> fib_by_when_all(integer n) {
    if (n < 2) {
        co_return n;
    }
    const auto [a, b] = co_await bide::when_all(fib_by_when_all(n - 1), fib_by_when_all(n - 2));
    co_return a + b;
}

bide::task<integer> fib_by_await_all(integer n) {
    if (n < 2) {
        co_return n;
    }
    const auto [a, b] = co_await bide::await_all(fib_by_await_all(n - 1), fib_by_await_all(n - 2));
    co_return a + b;
}

bide::task<integer> fib_by_spawn(bide::scheduler& s, integer n) {
    if (n < 2) {
        co_return n;
    }
    auto forked = s.spawn(fib_by_spawn(s, n - 1));
    const integer b = co_await fib_by_spawn(s, n - 2);
    const integer a = co_await std::move(forked).async_join();
    co_return a + b;
}

// The sum of the numbers from `first` on, as many as `leaves`, a power of ten.
bide::task<integer> skynet_by_when_all(integer first, integer leaves) {
    if (leaves == 1) {
        co_return first;
    }
    std::vector<bide::task<integer>> parts;
    parts.reserve(10);
    for (integer i = 0; i < 10; ++i) {
        parts.push_back(skynet_by_when_all(first + i * (leaves / 10), leaves / 10));
    }
    const std::vector<integer> sums = co_await bide::when_all(std::move(parts));
    co_return std::accumulate(sums.begin(), sums.end(), integer{0});
}

bide::task<integer> skynet_by_spawn(bide::scheduler& s, integer first, integer leaves) {
    if (leaves == 1) {
        co_return first;
    }
    std::vector<bide::join_handle<integer>> parts;
    parts.reserve(10);
    for (integer i = 0; i < 10; ++i) {
        parts.push_back(s.spawn(skynet_by_spawn(s, first + i * (leaves / 10), leaves / 10)));
    }
    integer sum = 0;
    for (auto& part : parts) {
        sum += co_await std::move(part).async_join();
    }
    co_return sum;
}

// make(scheduler) is the root.
template <class Make> auto rooted(integer expected, Make make) {
    return repeat_on_bide([expected, make](bide::scheduler& s, std::uint64_t) {
        check(s.spawn(make(s)).join() == expected);
    });
}

// ---- Generators

// The compiler does not know the numbers, and computes each.
std::uint64_t next_number(std::uint64_t n) {
    asm volatile("" : "+r"(n));
    return n + 1;
}

bide::async_generator<std::uint64_t> numbers(std::uint64_t count) {
    for (std::uint64_t n = 0; n < count;) {
        n = next_number(n);
        std::uint64_t item = n;
        co_yield std::move(item);
    }
}

template <class Stream> bide::task<> sum_up(Stream of) {
    std::uint64_t sum = 0;
    while (auto item = co_await of.next()) {
        sum += *item;
    }
    next_number(sum);
}

bide::task<> plain_loop(bide::scheduler&, std::uint64_t count) {
    std::uint64_t sum = 0;
    for (std::uint64_t n = 0; n < count;) {
        n = next_number(n);
        sum += n;
    }
    next_number(sum);
    co_return;
}

bide::task<std::uint64_t> number(std::uint64_t n) { co_return next_number(n); }
bide::task<> await_each(bide::scheduler&, std::uint64_t count) {
    std::uint64_t sum = 0;
    for (std::uint64_t n = 0; n < count;) {
        n = co_await number(n);
        sum += n;
    }
    next_number(sum);
}

bide::task<> generator(bide::scheduler&, std::uint64_t count) { return sum_up(numbers(count)); }
bide::task<> mapped(bide::scheduler&, std::uint64_t count) {
    return sum_up(bide::map(numbers(count), [](std::uint64_t n) { return 2 * n; }));
}
bide::task<> filtered(bide::scheduler&, std::uint64_t count) {
    return sum_up(bide::filter(numbers(count), [](std::uint64_t n) { return n != 0; }));
}

} // namespace

void add_forks() {
    constexpr integer n = 27;
    constexpr integer leaves = 1'000'000;
    run_table fib("forks/fib", "fib(27), each call a coroutine", n,
                  static_cast<double>(forks_of(n)));
    fib.add_peers("forks/fib", tmc_peer, libfork_peer);
    fib.add(bide_await_row, rooted(fib_of(n), [](bide::scheduler&) { return fib_awaited(n); }));
    fib.add(bide_when_all_row,
            rooted(fib_of(n), [](bide::scheduler&) { return fib_by_when_all(n); }));
    fib.add(bide_await_all_row,
            rooted(fib_of(n), [](bide::scheduler&) { return fib_by_await_all(n); }));
    fib.add(bide_spawn_row,
            rooted(fib_of(n), [](bide::scheduler& s) { return fib_by_spawn(s, n); }));

    constexpr integer sum = leaves * (leaves - 1) / 2;
    run_table skynet("forks/skynet", "a million leaves, ten to a parent", leaves,
                     static_cast<double>(leaves));
    skynet.add_peers("forks/skynet", tmc_peer, libfork_peer);
    skynet.add(bide_when_all_row,
               rooted(sum, [](bide::scheduler&) { return skynet_by_when_all(0, leaves); }));
    skynet.add(bide_spawn_row,
               rooted(sum, [](bide::scheduler& s) { return skynet_by_spawn(s, 0, leaves); }));
}

void add_generators() {
    constexpr std::uint64_t count = 100'000;
    run_table t("step/generator", "items that are ready, one consumer", count,
                static_cast<double>(count));
    const auto add = [&t](const char* row, bide_root root) {
        t.add(row, repeat_on_bide([root](bide::scheduler& s, std::uint64_t n) {
                  s.spawn(root(s, n)).join();
              }));
    };
    add("plain loop", plain_loop);
    add("bide::async_generator", generator);
    add("bide::map of it", mapped);
    add("bide::filter of it", filtered);
    add("a bide::task for each item", await_each);
}

} // namespace bench
