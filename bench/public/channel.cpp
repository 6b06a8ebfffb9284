// Numbers through a channel: channel [THREADS [ELEMENTS]]. Half of the threads send, half receive.

#include "program.hpp"

#include <bide/channel/unbounded_channel.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>

#include <algorithm>
#include <vector>

namespace {

using numbers = bide::unbounded_channel<std::size_t>;

// Sends the numbers from `first` on, before `last`.
bide::task<> produce(numbers& to, std::size_t first, std::size_t last) {
    for (std::size_t i = first; i != last; ++i) {
        check(to.send(i).has_value(), true);
    }
    co_return;
}

struct received {
    std::size_t count = 0;
    std::size_t sum = 0;
    bool operator==(const received&) const = default;
};

bide::task<received> consume(numbers& from) {
    received all;
    while (auto number = co_await from.async_recv()) {
        ++all.count;
        all.sum += *number;
    }
    co_return all;
}

received transfer(bide::scheduler& on, std::size_t pairs, std::size_t elements) {
    numbers between;
    std::vector<bide::join_handle<received>> consumers;
    std::vector<bide::join_handle<void>> producers;
    for (std::size_t i = 0; i != pairs; ++i) {
        consumers.push_back(on.spawn(consume(between)));
        producers.push_back(
            on.spawn(produce(between, elements * i / pairs, elements * (i + 1) / pairs)));
    }
    for (auto& producer : producers) {
        std::move(producer).join();
    }
    between.close();
    received all;
    for (auto& consumer : consumers) {
        const received some = std::move(consumer).join();
        all.count += some.count;
        all.sum += some.sum;
    }
    return all;
}

} // namespace

int main(int argc, char** argv) {
    const arguments args{argc, argv};
    const unsigned threads = args.threads(1);
    const std::size_t elements = args.number(2, 10'000'000);
    const std::size_t pairs = std::max(threads / 2, 1u);
    std::printf("producers: %zu\nconsumers: %zu\n", pairs, pairs);

    bide::scheduler workers({.num_workers = threads});
    const received expected{elements, elements * (elements - 1) / 2};
    const auto run = [&] {
        const received all = transfer(workers, pairs, elements);
        check(all, expected);
        return all.sum;
    };
    std::printf("output: %zu\n", run()); // warmup
    print_run(microseconds(run), "iteration_count: 1", "elements", elements);
}
