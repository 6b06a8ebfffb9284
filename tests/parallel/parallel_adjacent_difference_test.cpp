#include <bide/parallel/parallel_adjacent_difference.hpp>
#include <support/scheduling.hpp>

// Its results and exceptions: algorithms_test.cpp.

TEST_CASE(
    "parallel_adjacent_difference: takes any range, and is a difference if not told otherwise",
    "[promise.counts-as-std]") {
    bide::scheduler s(test::with(2, true));
    const std::deque<int> squares{1, 4, 9, 16, 25};
    std::vector<int> out(5);
    CHECK(bide::parallel_adjacent_difference(s, squares, out.begin()) == out.end());
    CHECK(out == std::vector<int>{1, 3, 5, 7, 9});
}
