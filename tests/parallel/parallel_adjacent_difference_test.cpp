#include <bide/parallel/parallel_adjacent_difference.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/catch.hpp>
#include <support/jitter.hpp>
#include <support/parallel_rounds.hpp>
#include <support/scheduling.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

TEST_CASE("parallel_adjacent_difference: writes what std's writes, whatever the size and workers",
          "[promise.counts-as-std]") {
    test::jitter chance(test::run_seed());
    test::on_all_workers(chance, 3, 14, [&](const bide::fork_policy& on, std::size_t n) {
        std::vector<int> in(n);
        std::generate(in.begin(), in.end(), [&] { return static_cast<int>(chance.below(99)); });
        std::vector<int> wanted(n);
        std::vector<int> out(n + 1, -1);
        const auto is_right = [&](auto end) {
            return end == out.end() - 1 && out.back() == -1 &&
                   std::equal(wanted.begin(), wanted.end(), out.begin());
        };
        std::adjacent_difference(in.begin(), in.end(), wanted.begin());
        REQUIRE(is_right(bide::parallel_adjacent_difference(on, in, out.begin())));
        const std::deque<int> copy(in.begin(), in.end());
        REQUIRE(is_right(bide::parallel_adjacent_difference(on, copy, out.begin())));
        const auto pair = [](int a, int b) { return 100 * a + b; };
        std::adjacent_difference(in.begin(), in.end(), wanted.begin(), pair);
        REQUIRE(is_right(
            bide::parallel_adjacent_difference(on, in.begin(), in.end(), out.begin(), pair)));
    });
}

TEST_CASE("parallel_adjacent_difference: what the operation threw leaves it") {
    bide::scheduler s(test::with(3, true));
    std::vector<int> in(5'000);
    std::iota(in.begin(), in.end(), 0);
    const auto difference = [](int a, int b) {
        if (a >= 3'333) {
            throw std::runtime_error(std::to_string(a));
        }
        return a - b;
    };
    std::vector<int> numbers(5'000);
    try {
        bide::parallel_adjacent_difference(s, in, numbers.begin(), difference);
        FAIL("nothing was thrown");
    } catch (const std::runtime_error& thrown) {
        CHECK(thrown.what() == std::string("3333"));
    }
    CHECK(std::count(numbers.begin(), numbers.begin() + 3'333, 1) == 3'332);
    CHECK(numbers[3'333] == 0);
}
