#include <bide/parallel/parallel_transform.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/catch.hpp>
#include <support/jitter.hpp>
#include <support/scheduling.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

template <class Range, class Out>
concept transforms_to = requires(bide::scheduler& s, Range& range, Out out) {
    bide::parallel_transform(s, range, out, [](int i) { return i; });
};

} // namespace

static_assert(transforms_to<std::vector<int>, int*>);
static_assert(transforms_to<std::vector<int>, std::deque<long>::iterator>);
static_assert(!transforms_to<std::vector<int>, std::vector<bool>::iterator>);
static_assert(!transforms_to<std::vector<int>, std::back_insert_iterator<std::vector<int>>>);
static_assert(!transforms_to<std::vector<int>, const int*>);
static_assert(!transforms_to<std::vector<int>, std::unique_ptr<int>*>);

TEST_CASE("parallel_transform: writes what std::transform writes, whatever the containers",
          "[promise.counts-as-std]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    const auto square = [](int i) { return static_cast<long>(i) * i; };
    for (const unsigned workers : {1u, 2u, 5u}) {
        bide::scheduler s(test::with(workers, true));
        for (int round = 0; round < 30; ++round) {
            const std::size_t n = chance.below(1u << chance.below(14));
            std::vector<int> numbers(n);
            std::generate(numbers.begin(), numbers.end(),
                          [&] { return static_cast<int>(chance.below(1'000)); });
            const bide::fork_policy on(
                s, {.grain = chance.below(2) == 0 ? 0 : std::size_t{chance.below(200)}});
            INFO(workers << " workers, " << n << " elements");
            std::vector<long> wanted(n);
            std::transform(numbers.begin(), numbers.end(), wanted.begin(), square);

            std::vector<long> squares(n + 1, -1); // the last one stays
            REQUIRE(bide::parallel_transform(on, numbers, squares.begin(), square) ==
                    squares.end() - 1);
            REQUIRE(squares.back() == -1);
            squares.pop_back();
            REQUIRE(squares == wanted);
            std::deque<long> others(n);
            REQUIRE(bide::parallel_transform(on, numbers.begin(), numbers.end(), others.begin(),
                                             square) == others.end());
            REQUIRE(std::equal(others.begin(), others.end(), wanted.begin(), wanted.end()));

            const auto sum = bide::parallel_transform(
                on, others.begin(), others.end(), numbers.begin(), squares.begin(), std::plus<>());
            REQUIRE(sum == squares.end());
            for (std::size_t i = 0; i < n; ++i) {
                REQUIRE(squares[i] == wanted[i] + numbers[i]);
            }
        }
    }
}

TEST_CASE("parallel_transform: the output may be the input") {
    bide::scheduler s(test::with(3, true));
    std::vector<int> numbers(10'000, 3);
    bide::parallel_transform(s, numbers, numbers.begin(), [](int i) { return i + 1; });
    CHECK(std::count(numbers.begin(), numbers.end(), 4) == 10'000);
    bide::parallel_transform(s, numbers.begin(), numbers.end(), numbers.begin(), numbers.begin(),
                             std::plus<>());
    CHECK(std::count(numbers.begin(), numbers.end(), 8) == 10'000);
}

TEST_CASE("parallel_transform: values may be move-only, and functions members") {
    bide::scheduler s(test::with(2, true));
    const std::vector<int> numbers(500, 6);
    std::vector<std::unique_ptr<int>> owners(500);
    bide::parallel_transform({s, {.grain = 7}}, numbers, owners.begin(),
                             [](int i) { return std::make_unique<int>(i); });
    CHECK(std::all_of(owners.begin(), owners.end(), [](auto& owner) { return *owner == 6; }));
    const std::vector<std::string> words(300, "four");
    std::vector<std::size_t> sizes(300);
    bide::parallel_transform(s, words, sizes.begin(), &std::string::size);
    CHECK(std::count(sizes.begin(), sizes.end(), 4u) == 300);
}

TEST_CASE("parallel_transform: what the function threw leaves it, and all before it is written",
          "[promise.counts-as-std]") {
    bide::scheduler s(test::with(3, true));
    std::vector<int> numbers(5'000);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = static_cast<int>(i);
    }
    std::vector<int> written(5'000, -1);
    const auto throws = [](int i) { return i == 3'333 ? throw std::runtime_error("3333") : i; };
    CHECK_THROWS_AS(bide::parallel_transform(s, numbers, written.begin(), throws),
                    std::runtime_error);
    CHECK(std::equal(written.begin(), written.begin() + 3'333, numbers.begin()));
    CHECK(written[3'333] == -1);
}

TEST_CASE("parallel_copy: copies as std::copy does, and parallel_fill() assigns to all") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    bide::scheduler s(test::with(3, true));
    for (int round = 0; round < 30; ++round) {
        const std::size_t n = chance.below(1u << chance.below(14));
        std::vector<std::string> words(n);
        std::generate(words.begin(), words.end(), [&] { return std::to_string(chance.below(99)); });
        std::vector<std::string> copies(n + 1, "end");
        REQUIRE(bide::parallel_copy(s, words, copies.begin()) == copies.end() - 1);
        REQUIRE(std::equal(words.begin(), words.end(), copies.begin()));
        REQUIRE(copies.back() == "end");
        const std::string same = "same";
        bide::parallel_fill({s, {.grain = 9}}, std::span(copies).first(n), same);
        REQUIRE(std::count(copies.begin(), copies.end(), same) == static_cast<std::ptrdiff_t>(n));
        REQUIRE(copies.back() == "end");
    }
}

TEST_CASE("parallel_copy: two iterators do as a range, and so with parallel_fill()",
          "[promise.counts-as-std]") {
    bide::scheduler s(test::with(2, true));
    int numbers[1'000] = {};
    bide::parallel_fill(s, numbers + 1, numbers + 999, 7);
    CHECK(std::count(numbers, numbers + 1'000, 7) == 998);
    std::deque<int> copies(1'000, 1);
    CHECK(bide::parallel_copy(s, numbers, numbers + 999, copies.begin()) == copies.end() - 1);
    CHECK(copies.front() == 0);
    CHECK(copies.back() == 1);
    CHECK(std::count(copies.begin(), copies.end(), 7) == 998);
}
