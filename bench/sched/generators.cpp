// What an item of a generator takes that never waits, beside a plain loop.

#include "sched/job.hpp"
#include "sched/workloads.hpp"
#include "support/work.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/stream/stream.hpp>
#include <bide/task/async_generator.hpp>
#include <bide/task/task.hpp>

#include <cstdint>
#include <utility>

namespace bench {
namespace {

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

void add_generators(harness& h) {
    constexpr std::uint64_t count = 100'000;
    run_table t(h, "step/generator", "items that are ready, one consumer", count,
                ns_each("item", count));
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
    t.finish();
}

} // namespace bench
