#include <bide/parallel/parallel_min_element.hpp>
#include <support/scheduling.hpp>

// The results: algorithms_test.cpp.

TEMPLATE_TEST_CASE(
    "parallel_min_element: finds the first of equal numbers of each size, at any place",
    "[promise.counts-as-std]", signed char, int, double) {
    using number = TestType;
    bide::scheduler s(test::with(2, true));
    for (const std::size_t size : {1u, 7u, 63u, 64u, 65u, 127u, 1'024u, 1'027u, 3'100u}) {
        std::vector<number> numbers(size, number{50});
        for (std::size_t at = 0; at < size; at += 1 + size / 13) {
            INFO(size << " elements, " << at);
            const auto first = numbers.begin();
            const auto place = static_cast<std::ptrdiff_t>(at);
            numbers[at] = number{49};
            numbers[size - 1] = at == size - 1 ? number{49} : number{50};
            REQUIRE(bide::parallel_min_element(s, numbers) - first == place);
            REQUIRE(bide::parallel_max_element({s, {.grain = size}}, numbers, std::greater<>()) -
                        first ==
                    place);
            numbers[at] = number{51};
            REQUIRE(bide::parallel_max_element({s, {.grain = size}}, numbers) - first == place);
            REQUIRE(bide::parallel_min_element(s, numbers, std::greater<>()) - first == place);
            numbers[at] = number{50};
            REQUIRE(bide::parallel_min_element(s, numbers) == first);
        }
    }
}

TEST_CASE("parallel_min_element: the first of equal elements is found, although a thief was first",
          "[promise.counts-as-std]") {
    bide::scheduler s(test::with(2, true));
    std::vector<int> numbers(20'000, 1);
    numbers[0] = 2;
    std::atomic<std::thread::id> first{};
    std::atomic<int> calls_of_thieves{0};
    const auto less = [&](int a, int b) {
        const std::thread::id me = std::this_thread::get_id();
        std::thread::id none;
        if (first.compare_exchange_strong(none, me)) { // until a thief has found one
            test::eventually([&] { return calls_of_thieves.load() >= 10; }, test::patience / 4);
        } else if (none != me) {
            ++calls_of_thieves;
        }
        return a < b;
    };
    CHECK(bide::parallel_min_element(s, numbers, less) - numbers.begin() == 1);
    CHECK(calls_of_thieves >= 10);
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

#if !defined(__clang__) ||                                                                         \
    __clang_major__ >= 16 // before, clang cannot compile the views of libstdc++
TEST_CASE("parallel_min_element: views whose differences are wider than all integers",
          "[promise.counts-as-std]") {
    bide::scheduler s(test::with(2, true));
    const auto numbers = std::views::iota(std::size_t{0}, std::size_t{5'000});
    CHECK(*bide::parallel_max_element(s, numbers) == 4'999);
}
#endif

TEST_CASE("parallel_min_element: what a comparison throws leaves it") {
    bide::scheduler s(test::with(2, true));
    int numbers[1'000] = {};
    const auto throws = [](int, int) -> bool { throw std::runtime_error("less"); };
    CHECK_THROWS_AS(bide::parallel_min_element(s, numbers, throws), std::runtime_error);
    CHECK(bide::parallel_min_element(s, numbers, numbers + 1, throws) == numbers);
    CHECK(bide::parallel_min_element(s, numbers, numbers, throws) == numbers);
}
