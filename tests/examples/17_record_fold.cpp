// # 17. A fold over records
//
// A program reads ten million records of sales, and wants the number of sales and the sum of each shop, and the largest
// sale of all. The machine has other work to do, so at most four threads may count. `parallel_fold()` gives each of
// these threads a table of its own, and adds the tables up at the end.

#include <bide/bide.hpp>
#include <bide/parallel/async_fork.hpp>
#include <bide/parallel/parallel_fold.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

// The records. A real program would map a file of them; this one computes the record of a number.

struct sale {
    unsigned shop;
    std::uint64_t cents;
};

constexpr unsigned shops = 1'000;

sale record(std::size_t number) {
    const std::uint64_t mixed = (number + 1) * 0x9e37'79b9'7f4a'7c15U;
    return {static_cast<unsigned>(mixed >> 32) % shops, (mixed >> 20) % 10'000};
}

// **The accumulator.** What a thread has counted so far. It is too large for a reduction that makes a new value for each
// record, and a table that all threads share would need a lock for each. It has two operations: one adds a record, the
// other one adds what another thread has counted.

struct totals {
    struct shop {
        std::uint64_t sales = 0;
        std::uint64_t cents = 0;
    };

    void add(const sale& one) {
        shop& to = of_shop[one.shop];
        ++to.sales;
        to.cents += one.cents;
        largest = std::max(largest, one.cents);
    }
    void add(const totals& other) {
        for (std::size_t i = 0; i != of_shop.size(); ++i) {
            of_shop[i].sales += other.of_shop[i].sales;
            of_shop[i].cents += other.of_shop[i].cents;
        }
        largest = std::max(largest, other.largest);
    }

    std::vector<shop> of_shop = std::vector<shop>(shops);
    std::uint64_t largest = 0;
};

// **The fold.** Its first function makes an empty accumulator, its second one adds an element, its third one combines
// two accumulators. The order of the records in an accumulator changes from run to run; here it does not matter. The
// limit is an option of the call, so other calls on the same scheduler may use all workers. The calling thread counts as
// one of the four.

totals count(bide::scheduler& workers, std::size_t records, bide::fork_progress& progress) {
    return bide::parallel_fold(
        {workers, {.progress = &progress, .max_workers = 4}}, std::size_t{0}, records,
        [] { return totals(); }, [](totals& to, std::size_t number) { to.add(record(number)); },
        [](totals& to, const totals& from) { to.add(from); });
}

// **In a coroutine.** A fold takes a while, so a coroutine awaits it by `async_fork()`, which passes the policy on: if
// the task is cancelled, the fold stops. If a record is bad, the function may throw; the fold then ends and throws, too.

bide::task<std::uint64_t> sum_of_sales(bide::scheduler& workers, std::size_t records) {
    auto fold = [records](const bide::fork_policy& on) {
        return bide::parallel_fold(
            on, std::size_t{0}, records, [] { return std::uint64_t{0}; },
            [](std::uint64_t& to, std::size_t number) { to += record(number).cents; },
            [](std::uint64_t a, std::uint64_t b) { return a + b; });
    };
    const std::uint64_t sum = co_await bide::async_fork({workers, {.max_workers = 4}}, fold);
    co_return sum;
}

int main(int argc, char** argv) {
    const std::size_t records = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10'000'000;
    bide::scheduler workers; // one for each processor
    bide::fork_progress progress;
    const totals all = count(workers, records, progress);

    std::uint64_t sales = 0;
    std::uint64_t cents = 0;
    for (const totals::shop& one : all.of_shop) {
        sales += one.sales;
        cents += one.cents;
    }
    const auto largest = std::ranges::max_element(all.of_shop, {}, &totals::shop::cents);
    std::printf("%llu sales, the largest of %llu cents; shop %d sold most\n",
                static_cast<unsigned long long>(sales),
                static_cast<unsigned long long>(all.largest),
                static_cast<int>(largest - all.of_shop.begin()));

    // A limit of no threads is refused.
    try {
        static_cast<void>(bide::fork_policy(workers, {.max_workers = 0}));
        return 1;
    } catch (const std::invalid_argument&) {
    }
    const std::uint64_t sum = bide::sync_wait(workers, sum_of_sales(workers, records));
    return sales == records && progress.done() == records && sum == cents ? 0 : 1;
}
