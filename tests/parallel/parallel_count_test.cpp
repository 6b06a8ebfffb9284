#include <bide/parallel/parallel_count.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/catch.hpp>
#include <support/jitter.hpp>
#include <support/scheduling.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <ranges>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct person {
    std::string name;
    int age = 0;
};

} // namespace

TEST_CASE("parallel_count_if: gives what std::count_if gives, whatever the size and the workers",
          "[promise.counts-as-std]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    const auto is_odd = [](int i) { return i % 2 != 0; };
    for (const unsigned workers : {1u, 2u, 5u}) {
        bide::scheduler s(test::with(workers, true));
        for (int round = 0; round < 40; ++round) {
            std::deque<int> numbers(chance.below(1u << chance.below(14)));
            std::generate(numbers.begin(), numbers.end(),
                          [&] { return static_cast<int>(chance.below(100)); });
            const bide::fork_policy on(
                s, {.grain = chance.below(2) == 0 ? 0 : std::size_t{chance.below(200)}});
            INFO(workers << " workers, " << numbers.size() << " elements");
            const auto odd = std::count_if(numbers.begin(), numbers.end(), is_odd);
            REQUIRE(bide::parallel_count_if(on, numbers, is_odd) == odd);
            REQUIRE(bide::parallel_count_if(on, numbers.begin(), numbers.end(), is_odd) == odd);
        }
    }
}

TEST_CASE("parallel_min_element: gives the first of the least, and the first of the greatest",
          "[promise.counts-as-std]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    for (const unsigned workers : {1u, 2u, 5u}) {
        bide::scheduler s(test::with(workers, true));
        for (int round = 0; round < 40; ++round) {
            std::vector<int> numbers(chance.below(1u << chance.below(14)));
            const std::uint32_t kinds = 1 + chance.below(1u << chance.below(10));
            std::generate(numbers.begin(), numbers.end(),
                          [&] { return static_cast<int>(chance.below(kinds)); });
            const bide::fork_policy on(
                s, {.grain = chance.below(2) == 0 ? 0 : std::size_t{chance.below(200)}});
            INFO(workers << " workers, " << numbers.size() << " elements");
            const auto first = numbers.begin();
            const auto last = numbers.end();
            REQUIRE(bide::parallel_min_element(on, numbers) == std::min_element(first, last));
            REQUIRE(bide::parallel_max_element(on, numbers) == std::max_element(first, last));
            REQUIRE(bide::parallel_min_element(on, first, last, std::greater<>()) ==
                    std::min_element(first, last, std::greater<>()));
            REQUIRE(bide::parallel_max_element(on, first, last, std::greater<>()) ==
                    std::max_element(first, last, std::greater<>()));
        }
    }
}

TEMPLATE_TEST_CASE(
    "parallel_min_element: finds the first of equal numbers of each type, at any place", "",
    signed char, unsigned short, int, std::uint64_t, float, double) {
    using number = TestType;
    bide::scheduler s(test::with(2, true));
    for (const std::size_t size : {1u, 7u, 63u, 64u, 65u, 127u, 1'024u, 1'027u, 3'100u}) {
        std::vector<number> numbers(size, number{50});
        for (std::size_t at = 0; at < size; at += 1 + size / 50) {
            INFO(size << " elements, " << at);
            numbers[at] = number{49};
            numbers[size - 1] = at == size - 1 ? number{49} : number{50};
            const auto first = numbers.begin();
            REQUIRE(bide::parallel_min_element(s, numbers) - first ==
                    std::min_element(first, numbers.end()) - first);
            REQUIRE(bide::parallel_max_element({s, {.grain = size}}, numbers, std::greater<>()) -
                        first ==
                    std::max_element(first, numbers.end(), std::greater<>()) - first);
            numbers[at] = number{51};
            REQUIRE(bide::parallel_max_element({s, {.grain = size}}, numbers) - first ==
                    std::max_element(first, numbers.end()) - first);
            REQUIRE(bide::parallel_min_element(s, numbers, std::greater<number>()) - first ==
                    std::min_element(first, numbers.end(), std::greater<number>()) - first);
            numbers[at] = number{50};
        }
    }
}

TEST_CASE("parallel_min_element: zeros are equal, and among numbers without an order any will do") {
    bide::scheduler s(test::with(2, true));
    std::vector<double> numbers(2'000, 1.0);
    numbers[700] = 0.0;
    numbers[701] = -0.0;
    CHECK(bide::parallel_min_element(s, numbers) - numbers.begin() == 700);
    std::fill(numbers.begin(), numbers.end(), std::numeric_limits<double>::quiet_NaN());
    numbers[1'500] = 1.0;
    const auto any = bide::parallel_min_element(s, numbers) - numbers.begin();
    CHECK((any >= 0 && any < 2'000));
}

TEST_CASE("parallel_count_if: predicates and projections may be members") {
    bide::scheduler s(test::with(2, true));
    std::vector<person> people(200);
    for (std::size_t i = 0; i < people.size(); ++i) {
        people[i] = {std::to_string(i), static_cast<int>(i * 7 % 100)};
    }
    // Without declared types: it cannot even be asked about a person.
    const auto is_young = [](auto age) { return age < 50; };
    CHECK(bide::parallel_count_if(s, people, is_young, &person::age) == 100);
    CHECK(bide::parallel_min_element(s, people, {}, &person::age)->age == 0);
    CHECK(bide::parallel_max_element(s, people, {}, &person::age)->age == 99);
    CHECK(bide::parallel_max_element(s, people, {}, &person::name)->name == "99");
}

TEST_CASE("parallel_min_element: the bounds may be an array and a pointer",
          "[promise.counts-as-std]") {
    bide::scheduler s(test::with(2, true));
    int numbers[100] = {};
    numbers[7] = 3;
    CHECK(bide::parallel_min_element(s, numbers, numbers + 100, std::greater<>()) == numbers + 7);
    CHECK(bide::parallel_max_element(s, numbers, numbers + 100, std::less<>()) == numbers + 7);
}

#if !defined(__clang__) ||                                                                         \
    __clang_major__ >= 16 // before, clang cannot compile the views of libstdc++
TEST_CASE("parallel_min_element: views whose differences are wider than all integers",
          "[promise.counts-as-std]") {
    bide::scheduler s(test::with(2, true));
    const auto numbers = std::views::iota(std::size_t{0}, std::size_t{5'000});
    CHECK(*bide::parallel_min_element(s, numbers) == 0);
    CHECK(*bide::parallel_max_element(s, numbers) == 4'999);
    CHECK(bide::parallel_count_if(s, numbers, [](auto n) { return n % 2 == 0; }) == 2'500);
}
#endif

TEST_CASE("parallel_min_element: what a comparison throws leaves it") {
    bide::scheduler s(test::with(2, true));
    std::vector<int> numbers(1'000);
    const auto throws = [](int, int) -> bool { throw std::runtime_error("less"); };
    CHECK_THROWS_AS(bide::parallel_min_element(s, numbers, throws), std::runtime_error);
    numbers.resize(1);
    CHECK(bide::parallel_min_element(s, numbers, throws) == numbers.begin());
    numbers.clear();
    CHECK(bide::parallel_min_element(s, numbers, throws) == numbers.end());
}
