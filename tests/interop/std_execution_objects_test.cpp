#include <support/std_algorithms.hpp>
#include <support/test.hpp>

TEST_CASE("std_execution: unsequenced algorithms on elements that own memory") {
    CHECK(test::differ<std::deque<test::boxed>>(std::execution::par_unseq, {0, 1, 2, 17, 4'000}) ==
          "");
}
