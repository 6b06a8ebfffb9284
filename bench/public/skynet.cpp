// A tree of ten children each, whose leaves are added up: skynet [THREADS [DEPTH]]

#include "program.hpp"

#include <bide/parallel/fork_join.hpp>

#include <utility>

namespace {

// The sum of the numbers from `first` on, as many as `leaves`, a power of ten.
std::size_t skynet(bide::scheduler& on, std::size_t first, std::size_t leaves) {
    if (leaves == 1) {
        return first;
    }
    const std::size_t part = leaves / 10;
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
        const auto sums = bide::parallel_invoke(
            on, [&on, first, part] { return skynet(on, first + part * I, part); }...);
        return (std::get<I>(sums) + ...);
    }(std::make_index_sequence<10>());
}

} // namespace

int main(int argc, char** argv) {
    const arguments args{argc, argv};
    bide::scheduler workers({.num_workers = args.threads(1)});
    std::size_t leaves = 1;
    for (std::size_t depth = args.number(2, 8); depth != 0; --depth) {
        leaves *= 10;
    }
    const auto run = [&] {
        const std::size_t sum =
            workers.spawn([&workers, leaves] { return skynet(workers, 0, leaves); }).join();
        check(sum, leaves * (leaves - 1) / 2);
    };
    run(); // warmup
    print_run(microseconds(run));
}
