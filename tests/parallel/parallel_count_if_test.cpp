#include <bide/parallel/parallel_count_if.hpp>
#include <support/scheduling.hpp>

// The results: algorithms_test.cpp.

TEST_CASE("parallel_count_if: predicates and projections may be members, containers deques") {
    struct person {
        std::string name;
        int age = 0;
    };
    bide::scheduler s(test::with(2, true));
    std::deque<person> people(200);
    for (std::size_t i = 0; i < people.size(); ++i) {
        people[i] = {std::to_string(i), static_cast<int>(i * 7 % 100)};
    }
    // Without declared types: it cannot even be asked about a person.
    const auto is_young = [](auto age) { return age < 50; };
    CHECK(bide::parallel_count_if(s, people, is_young, &person::age) == 100);
}

#if !defined(__clang__) || __clang_major__ >= 16 // before, clang cannot compile libstdc++'s views
TEST_CASE("parallel_count_if: views whose differences are wider than all integers",
          "[promise.counts-as-std]") {
    bide::scheduler s(test::with(2, true));
    const auto numbers = std::views::iota(std::size_t{0}, std::size_t{5'000});
    CHECK(bide::parallel_count_if(s, numbers, [](auto n) { return n % 2 == 0; }) == 2'500);
}
#endif
